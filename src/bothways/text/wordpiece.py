"""A WordPiece vocabulary learned from a corpus, the same each time for the same text."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers.models import WordPiece
from tokenizers.trainers import WordPieceTrainer

from bothways.errors import UserError
from bothways.files import write_json, write_text
from bothways.progress import progress
from bothways.text.documents import Documents
from bothways.text.tokenizer import SETTINGS, SPECIAL, TOKENIZER, VOCAB, bert_tokenizer, settings_of

LEAST_VOCAB = 32
MOST_ALPHABET = 0.5
"""Of the vocabulary, what single characters may take: the rest is for pieces."""
MIN_FREQUENCY = 2
"""How often two pieces must be neighbours to become one, as in BERT's vocabularies."""
_TOO_LONG = re.compile("[^\\W_\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]{101,}")
"""Inside a word that is [UNK] whatever is learned, as lines of base64 are: learning from it only takes time."""
_BATCH_CHARACTERS = 2**20
_MEGABYTE = 10**6


def train_wordpiece(
    documents: Documents, vocab_size: int, *, lowercase: bool = True, strip_accents: bool | None = None
) -> tuple[tokenizers.Tokenizer, dict[str, Any]]:
    """Learns a vocabulary of pieces of words; the corpus is read three times.

    The ids are [PAD] [UNK] [CLS] [SEP] [MASK], then the characters, then these as continuations (`##a`), both in
    Unicode order, then the pieces as they were found. If the characters would take more than half of the vocabulary,
    the rarest are left out.

    Args:
        documents: the corpus; what it says of itself is that of a whole iteration afterwards.
        vocab_size: tokens at most; a small corpus gives fewer.
        lowercase: whether texts are lower-cased.
        strip_accents: whether they lose their accents; if none, when they are lower-cased.

    Returns:
        The tokenizer, and `vocab_size` (what there is), `characters`, `tokens` (of the corpus), `unknown` (those of
        them that are [UNK]), `alphabet` (characters with a token), `alphabet_left_out` (those without) and
        `share_left_out` (of the corpus's characters, white space not counted, how many these are).

    Raises:
        UserError: too small a vocabulary, or a corpus without a word.
    """
    if vocab_size < LEAST_VOCAB:
        raise UserError(
            f"vocab: expected {LEAST_VOCAB} tokens or more, got {vocab_size}; 8192 is usual for a small corpus"
        )
    special = list(SPECIAL.values())
    empty = bert_tokenizer(
        {token: i for i, token in enumerate(special)}, lowercase=lowercase, strip_accents=strip_accents
    )
    counts: Counter[str] = Counter()
    for line in _lines(documents, "characters"):
        counts.update(line)
    alphabet, joining, left_out, share_left_out = _alphabet(empty, counts, vocab_size - len(special))
    if not alphabet:
        raise UserError(
            f"{', '.join(map(str, documents.paths))}: expected documents with words, found none"
            f"{documents.first_reason()}; check the corpus"
        )
    pieces = [*special, *alphabet, *(f"##{character}" for character in joining)]
    learner = tokenizers.Tokenizer(WordPiece(unk_token=SPECIAL["unk"]))
    learner.normalizer, learner.pre_tokenizer = empty.normalizer, empty.pre_tokenizer
    trainer = WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=MIN_FREQUENCY,
        # Given ids here, since the trainer numbers continuations in the order of a hash table, and so breaks ties.
        special_tokens=pieces,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    learner.train_from_iterator((_TOO_LONG.sub(" ", line) for line in _lines(documents, "words")), trainer)
    vocab = learner.get_vocab()
    made = bert_tokenizer(vocab, lowercase=lowercase, strip_accents=strip_accents)
    made.add_special_tokens(special)
    tokens = unknown = 0
    unknown_id = vocab[SPECIAL["unk"]]
    for batch in _batches(_lines(documents, "tokens")):
        for encoding in made.encode_batch_fast(batch, add_special_tokens=False):
            tokens += len(encoding)
            unknown += encoding.ids.count(unknown_id)
    without_space = sum(n for character, n in counts.items() if not character.isspace())
    return made, {
        "vocab_size": len(vocab),
        "characters": without_space,
        "tokens": tokens,
        "unknown": unknown,
        "alphabet": len(alphabet),
        "alphabet_left_out": len(left_out),
        "share_left_out": share_left_out,
    }


def save_tokenizer(tokenizer: tokenizers.Tokenizer, folder: Path) -> None:
    """Writes `tokenizer.json`, `vocab.txt` and `tokenizer_config.json`, as transformers reads them."""
    vocab = tokenizer.get_vocab()
    write_text(folder / TOKENIZER, tokenizer.to_str(pretty=True) + "\n")
    write_text(folder / VOCAB, "".join(f"{token}\n" for token in sorted(vocab, key=vocab.__getitem__)))
    write_json(folder / SETTINGS, settings_of(tokenizer, SPECIAL))


def _alphabet(
    tokenizer: tokenizers.Tokenizer, counts: Counter[str], room: int
) -> tuple[list[str], list[str], Counter[str], float]:
    """Returns the characters that get a token, those also inside words, the counts of the rest, and their share.

    Args:
        tokenizer: the rules by which a text becomes words.
        counts: how often the corpus has each character.
        room: tokens there are, the special ones aside.
    """
    normal: Counter[str] = Counter()
    for character, n in counts.items():
        for one in tokenizer.normalizer.normalize_str(character):
            normal[one] += n * (not one.isspace())
    kept, inside, used = [], [], 0
    for character in sorted(normal, key=lambda one: (-normal[one], one)):
        word = tokenizer.normalizer.normalize_str(f"a{character}a")
        joins = len(tokenizer.pre_tokenizer.pre_tokenize_str(word)) == 1
        used += 1 + joins
        if not normal[character] or used > room * MOST_ALPHABET:
            break
        kept.append(character)
        inside += [character] * joins
    left_out = +normal - Counter(dict.fromkeys(kept, sum(normal.values())))
    return sorted(kept), sorted(inside), left_out, sum(left_out.values()) / max(sum(normal.values()), 1)


def _lines(documents: Documents, unit: str) -> Iterator[str]:
    """Yields the corpus line by line: white space parts words anyway, and a document may be long."""
    with progress(f"tokenizer, counting {unit}", -(-documents.total_bytes // _MEGABYTE), "MB") as meter:
        for document in documents:
            yield from document.text.split("\n")
            if (done := documents.bytes_read // _MEGABYTE) > meter.done:
                meter.advance(done - meter.done, document.file)
        meter.advance(meter.total - meter.done)


def _batches(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yields lines of about a megabyte together, for the library works on a batch with all cores."""
    batch, size = [], 0
    for line in lines:
        batch.append(line)
        size += len(line)
        if size > _BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    yield batch

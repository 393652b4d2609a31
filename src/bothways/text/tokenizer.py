"""Text to token ids and back, by the files that lie beside a checkpoint."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tokenizers
import torch
from jaxtyping import Bool, Float
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import BertProcessing
from torch import Tensor

from bothways.config import TextConfig
from bothways.errors import BothwaysWarning, UserError
from bothways.files import read_bytes, read_json
from bothways.text.tables import is_unicode

TOKENIZER, VOCAB, SETTINGS = "tokenizer.json", "vocab.txt", "tokenizer_config.json"
MOST_BYTES, MOST_BYTES_A_TOKEN = 2**22, 256
"""Room in these files, and more for every token that the model knows."""
MOST_SPARE = 128
"""Tables are padded to a multiple of 8 to 128 rows: only other numbers of them are told."""
SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
"""In BERT's order, which is that of their ids."""


class Encoding(NamedTuple):
    """`[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`, each list of the same length."""

    ids: list[int]
    type_ids: list[int]
    """0 = a, 1 = b."""
    tokens: list[str]
    offsets: list[tuple[int, int]]
    """Where a token stands in its text: first character and one past the last; (0, 0) for [CLS] and [SEP]."""


class Tokenizer:
    """A tokenizer that gives each text [CLS] and [SEP] and cuts nothing.

    Special tokens are recognised where they are written in a text: "the [MASK] sat" holds the mask token.

    Args:
        tokenizer: the pieces and rules.
        special: pad, unk, cls, sep and mask as they are written.
        text: sizes of the model that reads the ids.

    Raises:
        UserError: the tokenizer lacks a special token, does not put [CLS] and [SEP], or has more tokens than the model.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer, special: dict[str, str], text: TextConfig) -> None:
        vocab = tokenizer.get_vocab()
        lacking = [token for token in special.values() if token not in vocab]
        if lacking:
            raise UserError(
                f"expected the token {lacking[0]!r} in the vocabulary, found none; add the model's own files"
            )
        if max(vocab.values()) >= text.vocab_size:
            raise UserError(
                f"expected token ids below the model's vocab_size {text.vocab_size}, got one of {max(vocab.values())}; "
                "add the tokenizer that the model was trained with"
            )
        known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
        tokenizer.add_special_tokens([token for token in special.values() if token not in known])
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer, self._text = tokenizer, text
        self.mask_token = special["mask"]
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (vocab[special[name]] for name in SPECIAL)
        self._named = torch.zeros(text.vocab_size, dtype=torch.bool)
        self._named[list(vocab.values())] = True
        if (empty := tokenizer.encode("").ids) != [self.cls_id, self.sep_id]:
            raise UserError(
                f"expected a tokenizer that writes {special['cls']} text {special['sep']}, but an empty text becomes "
                f"{[self.token(i) for i in empty]}; mend its post_processor"
            )

    def __len__(self) -> int:
        """Number of tokens; the model's table may have more rows."""
        return int(self._named.sum())

    def encode(self, text: str, pair: str | None = None) -> Encoding:
        """Splits a text, or a pair of texts, into tokens.

        Raises:
            UserError: more tokens than the model has positions, a pair for a model of one segment, or no Unicode text.
        """
        if pair is not None and self._text.type_vocab_size == 1:
            raise UserError("expected one text, got a pair; the model has one segment (type_vocab_size 1)")
        try:
            found = self._tokenizer.encode(text, pair)
        except TypeError:
            raise UserError(f"expected Unicode text, got {text!a} {pair!a}; read it as UTF-8") from None
        if len(found.ids) > self._text.max_position_embeddings:
            raise UserError(
                f"a text of {len(found.ids)} tokens is longer than the model's {self._text.max_position_embeddings}; "
                "cut it or use windows"
            )
        return Encoding(found.ids, found.type_ids, found.tokens, found.offsets)

    def pieces(self, texts: Sequence[str]) -> list[tokenizers.Encoding]:
        """Splits texts on all cores, however long they are, without [CLS] and [SEP]; only `ids` are filled.

        Raises:
            UserError: one is no Unicode text.
        """
        try:
            return self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        except TypeError:
            wrong = next((one for one in texts if not isinstance(one, str) or not is_unicode(one)), texts)
            raise UserError(f"expected Unicode text, got {wrong!a}; read it as UTF-8") from None

    def words(self, text: str) -> list[int | None]:
        """Returns which word of a text each of its tokens is a piece of, without [CLS] and [SEP]."""
        return self._tokenizer.encode(text, add_special_tokens=False).word_ids

    def find(self, token: str) -> int | None:
        """Returns a token's id, if there is such a token."""
        return self._tokenizer.token_to_id(token)

    @property
    def ordinary(self) -> Bool[np.ndarray, " V"]:
        """Which ids name a token that is not special: those that can be hidden, and stand in for another."""
        named = self._named.numpy().copy()
        named[[self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id]] = False
        return named

    def token(self, token_id: int) -> str:
        """Returns how a token is written.

        Raises:
            UserError: the id names none, as the rows that pad a table to a round size.
        """
        token = self._tokenizer.id_to_token(token_id) if token_id >= 0 else None
        if token is None:
            raise UserError(f"expected the id of one of {len(self)} tokens, got {token_id}; use ids of the vocabulary")
        return token

    def named(self, scores: Float[Tensor, "R V"]) -> Float[Tensor, "R V"]:
        """Returns MLM scores with minus infinity where an id names no token, so that none is ever predicted."""
        return scores.masked_fill(~self._named.to(scores.device), -torch.inf)


def load_tokenizer(folder: Path, text: TextConfig) -> Tokenizer:
    """Reads `tokenizer.json`, or else `vocab.txt` with the settings in `tokenizer_config.json`.

    Args:
        folder: where they lie.
        text: sizes of the model that reads the ids.

    Raises:
        UserError: neither is there, one is damaged, they contradict each other or do not fit the model; or nothing says
            whether a `vocab.txt` is of lower-cased text.
    """
    settings = read_json(folder / SETTINGS, MOST_BYTES) if (folder / SETTINGS).is_file() else {}
    if not isinstance(settings, dict):
        raise UserError(f"{folder / SETTINGS}: expected a JSON object, got {type(settings).__name__}; restore the file")
    most_bytes = MOST_BYTES + MOST_BYTES_A_TOKEN * text.vocab_size
    special = {name: _written(settings.get(f"{name}_token") or default) for name, default in SPECIAL.items()}
    if (folder / TOKENIZER).is_file():
        source, tokenizer = folder / TOKENIZER, _read_tokenizer(folder / TOKENIZER, settings, most_bytes)
    elif (folder / VOCAB).is_file():
        source, tokenizer = folder / VOCAB, _build_tokenizer(folder, settings, special, most_bytes)
    else:
        raise UserError(f"{folder}: expected {TOKENIZER} or {VOCAB}, found neither; add the model's own")
    try:
        made = Tokenizer(tokenizer, special, text)
    except UserError as problem:
        raise UserError(f"{source}: {problem}") from None
    spare = text.vocab_size - len(made)
    if spare and (text.vocab_size % 8 or spare >= MOST_SPARE):
        message = f"{source}: has {len(made)} tokens, the model {text.vocab_size}; check that the file is whole"
        warnings.warn(message, BothwaysWarning, stacklevel=2)
    return made


def _written(token: Any) -> str:
    return str(token["content"] if isinstance(token, dict) and "content" in token else token)


def _read_tokenizer(path: Path, settings: dict[str, Any], most_bytes: int) -> tokenizers.Tokenizer:
    content = read_bytes(path, most_bytes)
    try:
        tokenizer = tokenizers.Tokenizer.from_buffer(content)
    except Exception as problem:  # the library raises nothing narrower
        raise UserError(
            f"{path}: expected a tokenizer of the tokenizers library, but it is damaged ({problem})"
        ) from None
    lowers, said = getattr(tokenizer.normalizer, "lowercase", None), settings.get("do_lower_case")
    if None not in (lowers, said) and lowers != said:
        raise UserError(
            f"{path}: its normalizer has lowercase {lowers}, {SETTINGS} has do_lower_case {said}; make them agree"
        )
    return tokenizer


def _build_tokenizer(
    folder: Path, settings: dict[str, Any], special: dict[str, str], most_bytes: int
) -> tokenizers.Tokenizer:
    """Makes BERT's tokenizer (google-research/bert, tokenization.py) from a vocabulary, one token a line."""
    lowers, kind = settings.get("do_lower_case"), settings.get("tokenizer_class", "BertTokenizer")
    if not isinstance(lowers, bool):
        raise UserError(
            f"{folder}: {VOCAB} does not say whether its texts are lower-cased; add {SETTINGS} with "
            '{"do_lower_case": true} (an uncased model) or false'
        )
    if kind not in ("BertTokenizer", "BertTokenizerFast") or settings.get("do_basic_tokenize") is False:
        raise UserError(f"{folder}: expected BERT's tokenizer, got {kind} with rules of its own; add a {TOKENIZER}")
    try:
        # Not splitlines: a vocabulary may hold other marks of a line's end as tokens.
        text = read_bytes(folder / VOCAB, most_bytes).decode("utf-8-sig")
        lines = text.replace("\r\n", "\n").removesuffix("\n").split("\n")
    except UnicodeDecodeError as problem:
        raise UserError(f"{folder / VOCAB}: expected UTF-8 text, but it cannot be read ({problem})") from None
    vocab = {token: i for i, token in enumerate(lines)}
    if twice := [i for i, token in enumerate(lines) if vocab[token] != i]:
        message = f"{folder / VOCAB}: line {twice[0] + 1} is there again below; check that the file is the model's own"
        warnings.warn(message, BothwaysWarning, stacklevel=3)
    lacking = [special[name] for name in ("unk", "sep", "cls") if special[name] not in vocab]
    if lacking:
        raise UserError(f"{folder / VOCAB}: expected the token {lacking[0]!r}, found none; add the model's own file")
    return bert_tokenizer(
        vocab,
        special,
        lowercase=lowers,
        strip_accents=settings.get("strip_accents"),
        chinese_apart=settings.get("tokenize_chinese_chars", True),
    )


def bert_tokenizer(
    vocab: dict[str, int],
    special: dict[str, str] = SPECIAL,
    *,
    lowercase: bool,
    strip_accents: bool | None = None,
    chinese_apart: bool = True,
) -> tokenizers.Tokenizer:
    """Makes BERT's tokenizer of the tokenizers library; a word of more than 100 characters is one unknown token.

    Args:
        vocab: token -> id, with the special tokens.
        special: cls, sep and unk as they are written.
        lowercase: whether texts are lower-cased.
        strip_accents: whether they lose their accents; if none, when they are lower-cased, as BERT's do.
        chinese_apart: whether each Chinese character is a word.
    """
    tokenizer = tokenizers.Tokenizer(WordPiece(vocab, unk_token=special["unk"], max_input_chars_per_word=100))
    tokenizer.normalizer = BertNormalizer(
        clean_text=True, handle_chinese_chars=chinese_apart, strip_accents=strip_accents, lowercase=lowercase
    )
    tokenizer.pre_tokenizer = BertPreTokenizer()
    sep, cls = ((special[name], vocab[special[name]]) for name in ("sep", "cls"))
    tokenizer.post_processor = BertProcessing(sep, cls)
    return tokenizer

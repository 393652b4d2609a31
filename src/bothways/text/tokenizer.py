"""Text to token ids and back, by the files that lie beside a checkpoint."""

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tokenizers
import torch
from jaxtyping import Bool, Float
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import BertProcessing
from torch import Tensor

from bothways.config import TextConfig
from bothways.errors import BothwaysWarning, UserError
from bothways.files import beside, read_bytes, read_json
from bothways.text.tables import is_unicode

TOKENIZER, VOCAB, SETTINGS = "tokenizer.json", "vocab.txt", "tokenizer_config.json"
MOST_BYTES, MOST_BYTES_A_TOKEN = 2**22, 256
"""Room in these files, and more for every token that the model knows."""
MOST_TOKENS = 2**20
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
        text: sizes of the model that reads the ids; if none, those of a model made for them.

    Attributes:
        size: rows of the table that its ids need.
        named_ids: of all tokens, sorted.
        continues: whether a token goes on with a word that the one before it began, [size]; of WordPieces, no others.

    Raises:
        UserError: the tokenizer lacks a special token, does not put [CLS] and [SEP], or has more tokens than the model.
    """

    def __init__(
        self,
        tokenizer: tokenizers.Tokenizer,
        special: dict[str, str],
        text: TextConfig | None = None,
    ) -> None:
        vocab = tokenizer.get_vocab()
        self.size = max(vocab.values(), default=0) + 1
        text = text or TextConfig(vocab_size=self.size)
        lacking = [token for token in special.values() if token not in vocab]
        if lacking:
            raise UserError(
                f"expected the token {lacking[0]!r} in the vocabulary, found none; add the model's own files"
            )
        if self.size > text.vocab_size:
            raise UserError(
                f"expected token ids below the model's vocab_size {text.vocab_size}, got one of {self.size - 1}; "
                "add the tokenizer that the model was trained with"
            )
        known = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
        tokenizer.add_special_tokens([token for token in special.values() if token not in known])
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self._tokenizer, self._text = tokenizer, text
        added = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}
        self._special = sorted(added | {vocab[token] for token in special.values()})
        self.named_ids = np.array(sorted(vocab.values()))
        self.continues = np.zeros(self.size, dtype=bool)
        self.prefix = tokenizer.model.continuing_subword_prefix if isinstance(tokenizer.model, WordPiece) else ""
        """Of a piece that goes on a word; none where the tokenizer is no WordPiece."""
        if self.prefix:
            goes_on = [i for token, i in vocab.items() if token.startswith(self.prefix) and token != self.prefix]
            self.continues[goes_on] = True
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

    def to_str(self) -> str:
        """Returns pieces and rules as `tokenizer.json` has them."""
        return self._tokenizer.to_str()

    def decode(self, ids: Sequence[int]) -> str:
        """Returns tokens as text: pieces joined, special tokens as they are written."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    @property
    def vocab_size(self) -> int:
        """Rows of the model's table."""
        return self._text.vocab_size

    @property
    def max_length(self) -> int:
        """Positions of the model: tokens of a sequence at most."""
        return self._text.max_position_embeddings

    @property
    def n_segments(self) -> int:
        """Segments that the model tells apart; 0 = it has no embedding of them."""
        return self._text.type_vocab_size

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

    def pieces(self, texts: Sequence[str], *, offsets: bool = False) -> list[tokenizers.Encoding]:
        """Splits texts on all cores, however long they are, without [CLS] and [SEP].

        Args:
            texts: any number.
            offsets: fill `offsets`, too, and not `ids` alone, which takes longer.

        Raises:
            UserError: one is no Unicode text.
        """
        encode = self._tokenizer.encode_batch if offsets else self._tokenizer.encode_batch_fast
        try:
            return encode(list(texts), add_special_tokens=False)
        except TypeError:
            wrong = next((one for one in texts if not isinstance(one, str) or not is_unicode(one)), texts)
            raise UserError(f"expected Unicode text, got {wrong!a}; read it as UTF-8") from None

    def find(self, token: str) -> int | None:
        """Returns a token's id, if there is such a token."""
        return self._tokenizer.token_to_id(token)

    @property
    def ordinary(self) -> Bool[np.ndarray, " V"]:
        """Which ids name a token that is not special ([UNK] is): those that can be hidden."""
        named = self._named.numpy().copy()
        named[self._special] = False
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


def load_tokenizer(folder: Path, text: TextConfig | None = None) -> Tokenizer:
    """Reads `tokenizer.json`, or else `vocab.txt` with the settings in `tokenizer_config.json`.

    Args:
        folder: where they lie.
        text: sizes of the model that reads the ids; if none, a model is still to be made for them.

    Raises:
        UserError: neither is there, one is damaged, they contradict each other or do not fit the model; or nothing says
            whether a `vocab.txt` is of lower-cased text.
    """
    settings = read_json(folder / SETTINGS, MOST_BYTES) if (folder / SETTINGS).is_file() else {}
    if not isinstance(settings, dict):
        raise UserError(f"{folder / SETTINGS}: expected a JSON object, got {type(settings).__name__}; restore the file")
    most_bytes = MOST_BYTES + MOST_BYTES_A_TOKEN * (text.vocab_size if text else MOST_TOKENS)
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
    if text is None:
        return made
    spare = text.vocab_size - len(made)
    if spare and (text.vocab_size % 8 or spare >= MOST_SPARE):
        message = f"{source}: has {len(made)} tokens, the model {text.vocab_size}; check that the file is whole"
        warnings.warn(message, BothwaysWarning, stacklevel=2)
    return made


def tokenizer_files(tokenizer: Tokenizer, folder: Path | None = None) -> dict[str, str]:
    """Returns `tokenizer.json`, `vocab.txt` and `tokenizer_config.json` by name, as transformers reads them.

    `vocab.txt` is left out where it cannot say what `tokenizer.json` does: other pieces than WordPiece, ids with gaps.

    Args:
        tokenizer: as loaded.
        folder: what it was loaded from: its `tokenizer.json` stays as it is, its settings too, beside those that
            transformers needs.

    Raises:
        UserError: a file of `folder` cannot be read.
    """
    inner, most_bytes = tokenizer._tokenizer, MOST_BYTES + MOST_BYTES_A_TOKEN * tokenizer.vocab_size
    special = {name: tokenizer.token(getattr(tokenizer, f"{name}_id")) for name in SPECIAL}
    settings = settings_of(inner, special) | {"model_max_length": tokenizer._text.max_position_embeddings}
    files: dict[str, str] = {TOKENIZER: inner.to_str(pretty=True) + "\n"}
    vocab = inner.get_vocab()
    tokens = sorted(vocab, key=vocab.__getitem__)
    lines = "".join(f"{token}\n" for token in tokens)
    told = _tokens_of(lines) == tokens and max(vocab.values()) == len(tokens) - 1
    if isinstance(inner.model, WordPiece) and told:
        files[VOCAB] = lines
    if folder is not None:
        if (folder / SETTINGS).is_file():
            settings |= read_json(beside(folder, SETTINGS), MOST_BYTES)
            settings.pop("auto_map", None)  # where code is that others wrote
        # A vocab.txt with a line twice has ids with gaps, and is all that there is.
        source = TOKENIZER if (folder / TOKENIZER).is_file() else VOCAB
        if source == TOKENIZER or VOCAB not in files:
            files[source] = read_bytes(beside(folder, source), most_bytes).decode("utf-8-sig")
    return files | {SETTINGS: json.dumps(settings, indent=1, ensure_ascii=False) + "\n"}


def settings_of(tokenizer: tokenizers.Tokenizer, special: dict[str, str]) -> dict[str, Any]:
    """Returns what `tokenizer_config.json` says of a tokenizer: of which class it is, its rules, its special tokens."""
    rules, written = tokenizer.normalizer, {f"{name}_token": token for name, token in special.items()}
    pair = tokenizer.encode("", "")
    like_bert = (pair.tokens, pair.type_ids) == ([special["cls"], special["sep"], special["sep"]], [0, 0, 1])
    words = isinstance(tokenizer.pre_tokenizer, BertPreTokenizer) and isinstance(tokenizer.model, WordPiece)
    if not (like_bert and words and isinstance(rules, BertNormalizer)):
        return {"tokenizer_class": "PreTrainedTokenizerFast", **written}  # whatever tokenizer.json says
    return {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": rules.lowercase,
        "strip_accents": rules.strip_accents,
        "tokenize_chinese_chars": rules.handle_chinese_chars,
        **written,
    }


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
        lines = _tokens_of(read_bytes(folder / VOCAB, most_bytes).decode("utf-8-sig"))
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


def _tokens_of(text: str) -> list[str]:
    """Reads a vocabulary; not by splitlines, for it may hold other marks of a line's end as tokens."""
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n")


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
    tokenizer.decoder = WordPieceDecoder(cleanup=True)
    sep, cls = ((special[name], vocab[special[name]]) for name in ("sep", "cls"))
    tokenizer.post_processor = BertProcessing(sep, cls)
    return tokenizer

"""A corpus on disk: token ids one after the other, memory-mapped, with where each sentence and document begins."""

import hashlib
import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, Shaped

from bothways.errors import UserError
from bothways.files import read_json
from bothways.text.tokenizer import Tokenizer, load_tokenizer

FORMAT_VERSION = 1
HEAD = "store.json"
COUNTED = ("tokens", "sentences", "documents")
ARRAYS = ("ids", "sentences", "documents", "places", "digests")
MOST_HEAD_BYTES = 2**28
"""It names all files."""
_AT_ONCE = 2**22
"""Ids or places that are checked at once."""


@dataclass(frozen=True)
class Corpus:
    """A store of documents, made by `prepare_corpus`; nothing but its head is read before it is asked for.

    Attributes:
        path: the folder.
        head: `store.json`: settings, totals, files, notes.
        tokenizer: what made the ids.
        ids: all tokens, without [CLS] and [SEP], [T] uint16 or uint32.
        sentences: place of each sentence's first token, and T, [S+1].
        documents: number of each document's first sentence, and S, [D+1].
        places: of each document its file's number in `head["files"]` and the line (of a table the row), [D 2].
        digests: a hash of each document's tokens, [D]: equal documents have equal ones.
    """

    path: Path
    head: dict[str, Any]
    tokenizer: Tokenizer
    ids: Shaped[np.ndarray, " T"]
    sentences: Int[np.ndarray, " S1"]
    documents: Int[np.ndarray, " D1"]
    places: Int[np.ndarray, "D 2"]
    digests: Shaped[np.ndarray, " D"]

    @classmethod
    def open(cls, path: str | Path) -> "Corpus":
        """Opens a store.

        Raises:
            UserError: the folder is none, is of another version, or its files do not belong together.
        """
        path = Path(path)
        head = read_head(path)
        try:
            arrays = {
                name: np.asarray(np.load(path / f"{name}.npy", mmap_mode="r", allow_pickle=False)) for name in ARRAYS
            }  # plain views of the memory maps, which are quicker to cut
        except (OSError, ValueError, EOFError) as problem:
            raise UserError(f"{path}: the corpus is damaged ({problem}); prepare it anew") from None
        found = cls(path, head, load_tokenizer(path), **arrays)
        found._check()
        return found

    def _check(self) -> None:
        """Refuses files that contradict each other."""
        n_tokens, n_sentences = len(self.ids), len(self.sentences) - 1
        n_documents = len(self.documents) - 1
        fit = (
            n_documents > 0
            and [one.ndim for one in (self.ids, self.sentences, self.documents, self.places, self.digests)]
            == [1, 1, 1, 2, 1]
            and self.ids.dtype.kind == self.digests.dtype.kind == "u"
            and {one.dtype.kind for one in (self.sentences, self.documents, self.places)} == {"i"}
            and (int(self.sentences[0]), int(self.sentences[-1])) == (0, n_tokens)
            and (int(self.documents[0]), int(self.documents[-1])) == (0, n_sentences)
            and len(self.places) == len(self.digests) == n_documents
        )
        totals = self.head["totals"]
        if not fit or [totals.get(name) for name in COUNTED] != [n_tokens, n_sentences, n_documents]:
            raise self._damaged("its files contradict each other")

    def check(self) -> None:
        """Reads all ids and all places, so that damage is found before work begins.

        Raises:
            UserError: a document's ids are not those of its hash, or places do not grow.
        """
        if not (self.places[:, 0].min() >= 0 and self.places[:, 0].max() < len(self.head["files"])):
            raise self._damaged("a document is of no file")
        for places in (self.sentences, self.documents):
            for first in range(0, len(places), _AT_ONCE):
                if (np.diff(places[first : first + _AT_ONCE + 1]) < 1).any():
                    raise self._damaged("its places do not grow")
        for document, digest in enumerate(self.digests.tolist()):
            if digest_of(self.tokens(*self.tokens_of(document))) != digest:
                raise self._damaged(f"the ids of {self.name(document)} are not those that were written")

    def _damaged(self, why: str) -> UserError:
        return UserError(f"{self.path}: the corpus is damaged ({why}); prepare it anew")

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the store again, whose arrays would be copied else."""
        return Corpus.open, (self.path,)

    def __len__(self) -> int:
        """Number of documents."""
        return len(self.documents) - 1

    def tokens_of(self, document: int) -> tuple[int, int]:
        """Returns where a document's tokens begin and end in `ids`."""
        first, last = self.documents[document : document + 2]
        return int(self.sentences[first]), int(self.sentences[last])

    def n_tokens(self, documents: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
        """Returns how many tokens documents have.

        Raises:
            UserError: the store is damaged.
        """
        try:
            n = self.sentences[self.documents[documents + 1]] - self.sentences[self.documents[documents]]
        except IndexError:
            n = np.zeros(1, np.int64)
        if n.min(initial=1) < 1:
            raise self._damaged("a document has no token")
        return n

    def tokens(self, begin: int, end: int) -> Int[np.ndarray, " n"]:
        """Returns the ids from one place to another, as int64.

        Raises:
            UserError: the store is damaged.
        """
        ids = self.ids[begin:end].astype(np.int64)
        if not 0 <= begin < end or len(ids) < end - begin or ids.max() >= self.tokenizer.size:
            raise self._damaged(f"no ids of its tokenizer are at {begin} to {end}")
        return ids

    def sentences_of(self, document: int) -> list[list[int]]:
        """Returns the ids of each sentence of a document.

        Raises:
            UserError: the store is damaged.
        """
        first, last = self.documents[document : document + 2]
        starts = self.sentences[first : last + 1].tolist()
        return [self.tokens(begin, end).tolist() for begin, end in pairwise(starts)]

    def name(self, document: int) -> str:
        """Returns a document's file and line."""
        file, line = self.places[document]
        if not 0 <= file < len(self.head["files"]):
            raise self._damaged("a document is of no file")
        return f"{self.head['files'][int(file)]['file']}:{line}"

    def identity(self) -> str:
        """Returns a hash of the text that it comes from and of how it was made, whatever the files are called."""
        told = {name: self.head[name] for name in ("source", "settings", "totals")}
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()

    def equal_documents(self) -> int:
        """Returns how many documents were there before, word for word."""
        return len(self) - len(np.unique(self.digests))


def digest_of(ids: Shaped[np.ndarray, " n"]) -> int:
    """Returns the hash of a document's ids."""
    return int.from_bytes(hashlib.blake2b(ids.astype("<u4").tobytes(), digest_size=8).digest(), "little")


def is_corpus(path: Path) -> bool:
    """Whether a folder is one that `prepare_corpus` made."""
    return (path / HEAD).is_file() and (path / "ids.npy").is_file()


def read_head(path: Path) -> dict[str, Any]:
    """Reads what a corpus says of itself, and nothing else of it.

    Raises:
        UserError: the folder is none, or of another version.
    """
    if not is_corpus(path):
        raise UserError(f"{path}: expected a corpus made by `bothways text prepare`, found none; check the path")
    head = read_json(path / HEAD, MOST_HEAD_BYTES)
    keys = {"source", "settings", "totals", "files", "skipped", "left_out", "notes"}
    found = head.get("format_version") if isinstance(head, dict) and keys <= head.keys() else None
    if found == FORMAT_VERSION and [type(head[name]) for name in ("totals", "files")] != [dict, list]:
        raise UserError(f"{path / HEAD}: the corpus is damaged (its head is another one); prepare it anew")
    if found != FORMAT_VERSION:
        raise UserError(f"{path}: expected format_version {FORMAT_VERSION}, got {found}; prepare the corpus anew")
    return head

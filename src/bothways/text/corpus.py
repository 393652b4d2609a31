"""A corpus on disk: token ids one after the other, memory-mapped, with where each sentence and document begins."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, Shaped

from bothways.errors import UserError
from bothways.files import read_json
from bothways.text.tokenizer import Tokenizer, load_tokenizer

FORMAT_VERSION = 1
HEAD = "store.json"
ARRAYS = ("ids", "sentences", "documents", "places", "digests")
MOST_HEAD_BYTES = 2**28
"""It names all files."""


@dataclass(frozen=True)
class Corpus:
    """A store of documents, made by `prepare_corpus`; nothing of it is read before it is asked for.

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
            arrays = {name: np.load(path / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in ARRAYS}
        except (OSError, ValueError, EOFError) as problem:
            raise UserError(f"{path}: the corpus is damaged ({problem}); prepare it anew") from None
        found = cls(path, head, load_tokenizer(path), **arrays)
        found._check()
        return found

    def _check(self) -> None:
        """Refuses files that contradict each other, which would read beyond their ends; each id is looked at."""
        n_tokens, n_sentences = len(self.ids), len(self.sentences) - 1
        n_documents = len(self.documents) - 1
        ends = (
            n_documents > 0
            and self.ids.dtype.kind == "u"
            and (int(self.sentences[0]), int(self.sentences[-1])) == (0, n_tokens)
            and (int(self.documents[0]), int(self.documents[-1])) == (0, n_sentences)
            and len(self.places) == len(self.digests) == n_documents
        )
        pieces = range(0, n_tokens, 2**24)
        known = all(int(self.ids[first : first + 2**24].max()) < self.tokenizer.size for first in pieces)
        ends = ends and known and all(bool((np.diff(one) > 0).all()) for one in (self.sentences, self.documents))
        totals = self.head["totals"]
        wanted = [totals.get(name) for name in ("tokens", "sentences", "documents")]
        if not ends or wanted != [n_tokens, n_sentences, n_documents]:
            raise UserError(f"{self.path}: the corpus is damaged (its files contradict each other); prepare it anew")

    def __len__(self) -> int:
        """Number of documents."""
        return len(self.documents) - 1

    def tokens_of(self, document: int) -> tuple[int, int]:
        """Returns where a document's tokens begin and end in `ids`."""
        first, last = self.documents[document : document + 2]
        return int(self.sentences[first]), int(self.sentences[last])

    def name(self, document: int) -> str:
        """Returns a document's file and line."""
        file, line = self.places[document]
        return f"{self.head['files'][int(file)]['file']}:{line}"

    def identity(self) -> str:
        """Returns a hash of the text that it comes from and of how it was made, whatever the files are called."""
        told = {name: self.head[name] for name in ("source", "settings", "totals")}
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()

    def equal_documents(self) -> int:
        """Returns how many documents were there before, word for word."""
        return len(self) - len(np.unique(self.digests))


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
    if found != FORMAT_VERSION:
        raise UserError(f"{path}: expected format_version {FORMAT_VERSION}, got {found}; prepare the corpus anew")
    return head

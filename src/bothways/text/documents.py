"""Files and folders of text to documents, one at a time: plain text, CSV, TSV, JSON lines and Parquet."""

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bothways.errors import UserError, plain_words
from bothways.files import sha256_file
from bothways.text.encodings import check_encoding, find_encoding
from bothways.text.tables import MOST_CHARACTERS, PARQUET, TABLES, clean, open_text, position, table_rows, text_column

SEPARATORS = ("blank", "file", "line")
"""What ends a document in a plain text file: a blank line, only the file's end, or each line's end."""
_NO_TEXT = (
    ("store.json", "ids.npy"), ("training.json", "checkpoints"), ("config.json", "model.safetensors"),
    ("tokenizer.json", "tokenizer_config.json"),
)  # fmt: skip
"""What stands together in a folder that was made of text: a corpus, a run, a model, a tokenizer."""
SUFFIXES = frozenset({".txt", *TABLES})
"""What a folder is searched for; a file that is named itself may have another suffix, and is plain text then."""


class Document(NamedTuple):
    """A document, and where it is from."""

    text: str
    """Lines ended by `\\n`; neither the first nor the last is blank."""
    file: str
    """As in `Documents.files`."""
    line: int
    """In a text file the line it begins on, in a table its row; both count from 1, a table's header is none."""


@dataclass
class SourceFile:
    """One file and what was found in it.

    Attributes:
        file: the name: relative to the folder if that alone was given, else as it was reached.
        encoding: as Python names it; none of Parquet.
        column: of a table, where the text was.
        documents: how many it holds.
        empty: how many had nothing but white space, and were left out.
    """

    file: str
    encoding: str | None = None
    column: str | None = None
    documents: int = 0
    empty: int = 0


@dataclass
class Documents:
    """The documents of files and folders; each iteration reads them anew, holding one at a time.

    What is known of the files (`files`, `skipped`, `notes`) is that of the last iteration, as far as it went.

    In plain text a blank line ends a document: one of nothing but white space, whatever the line's end. With
    `separator="file"` each file is one document, and blank lines in it part its paragraphs; with `"line"` each line is
    one. In a table each row is a document. Control characters become a space. In plain text a document above
    `MOST_CHARACTERS` is cut at a line's end, and a line above it where it may be: memory stays bounded.

    Attributes:
        paths: files, or folders that are searched for `SUFFIXES`.
        separator: what ends a document in plain text, `blank` (line), `file` or `line`.
        column: of tables, the text's; if none, the only column of text, or `text`, or one called like it.
        encoding: of all text files; if none, that of each is found.
        files: what was read.
        skipped: (file, reason) of what could not be.
        left_out: (file, reason) of what the folders hold besides.
        notes: a word for programs -> what was changed, guessed or looks wrong.
        bytes_read: where the iteration stands, of `total_bytes`.
    """

    paths: Sequence[str | Path]
    separator: str = "blank"
    column: str | None = None
    encoding: str | None = None
    files: list[SourceFile] = field(default_factory=list, init=False)
    skipped: list[dict[str, str]] = field(default_factory=list, init=False)
    left_out: list[dict[str, str]] = field(default_factory=list, init=False)
    notes: dict[str, list[str]] = field(default_factory=dict, init=False)
    bytes_read: int = field(default=0, init=False)
    total_bytes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        """Looks for the files.

        Raises:
            UserError: a path that is not there, no file of text, or a setting that is none.
        """
        if self.separator not in SEPARATORS:
            raise UserError(f"documents: expected blank, file or line, got {self.separator!r}")
        try:
            "".encode("utf-8" if self.encoding is None else self.encoding)
        except (LookupError, ValueError):
            raise UserError(
                f"encoding: expected a name such as utf-8, utf-16 or cp1252, got {self.encoding!r}"
            ) from None
        self._found = self._search()
        if not self._found:
            places = ", ".join(str(path) for path in self.paths) or "no path"
            raise UserError(f"{places}: no text found; expected files that end in {', '.join(sorted(SUFFIXES))}")
        self.total_bytes = sum(size for _, _, size in self._found)

    def __iter__(self) -> Iterator[Document]:
        self.files, self.skipped, self.notes, self.bytes_read = [], [], {}, 0
        before = 0
        for path, name, size in self._found:
            one = SourceFile(name)
            try:
                yield from self._of_file(path, one, before)
            except UserError as problem:
                reason = str(problem).removeprefix(f"{path}: ")
                if one.documents:
                    reason = f"{reason} (documents read before that: {one.documents:,})"
                self.skipped.append({"file": name, "reason": reason})
            if one.documents or not (self.skipped and self.skipped[-1]["file"] == name):
                self.files.append(one)
            before += size
            self.bytes_read = before

    def summary(self) -> dict[str, Any]:
        """Returns what the last iteration found, as plain values."""
        return {
            "documents": sum(one.documents for one in self.files),
            "empty_documents": sum(one.empty for one in self.files),
            "files": [asdict(one) for one in self.files],
            "skipped": self.skipped,
            "left_out": self.left_out,
            "notes": self.notes,
        }

    def first_reason(self) -> str:
        """Returns why nothing is left, in brackets: why the first file was skipped, or rows were left out."""
        reasons = [f"{one['file']}: {one['reason']}" for one in self.skipped] + self.notes.get("bad_rows", [])
        return f" ({reasons[0]})" if reasons else ""

    def fingerprint(self) -> str:
        """Returns a hash of the files' bytes and of how they are read; it reads them all, and names play no part.

        Of a file that cannot be read, which will be skipped, the reason stands for its bytes.
        """
        digest = hashlib.sha256(json.dumps([self.separator, self.column, self.encoding]).encode())
        for path, _, _ in self._found:
            try:
                content = sha256_file(path)
            except OSError as problem:
                content = plain_words(problem)
            digest.update(f"{path.suffix.lower()} {content}".encode())
        return digest.hexdigest()

    def _search(self) -> list[tuple[Path, str, int]]:
        """Returns (path, name, bytes) of each file once, in the order of the paths and then of the names."""
        found: dict[str, tuple[Path, str, int]] = {}
        for top in map(Path, self.paths):
            if top.is_dir():
                if _is_made_of_text(top):
                    raise UserError(
                        f"{top}: expected text, got a corpus, run, model or tokenizer; give the folder of the text"
                    )
                places = self._in_folder(top)
            elif top.exists():
                places = [top]
            else:
                raise UserError(f"{top}: expected a file or folder here, found none; check the path")
            for path in places:
                alone = len(self.paths) == 1 and top.is_dir()
                name = _printable(path.relative_to(top) if alone else path)
                found.setdefault(os.path.realpath(path), (path, name, path.stat().st_size))
        return list(found.values())

    def _in_folder(self, top: Path) -> list[Path]:
        found: list[Path] = []

        def leave_out(path: Path, reason: str) -> None:
            self.left_out.append({"file": _printable(path.relative_to(top)), "reason": reason})

        def unreadable(problem: OSError) -> None:
            leave_out(Path(problem.filename), plain_words(problem))

        for folder, folders, files in os.walk(top, onerror=unreadable):
            links = [name for name in folders if (Path(folder) / name).is_symlink()]
            made = [name for name in folders if name not in links and _is_made_of_text(Path(folder) / name)]
            for name in made:
                leave_out(Path(folder) / name, "a corpus, run, model or tokenizer, made of text")
            folders[:] = sorted({name for name in folders if not name.startswith(".")} - {*links, *made})
            for name in sorted([*files, *links]):
                path = Path(folder) / name
                if name.startswith("."):
                    continue
                if name in links or not path.is_file():
                    leave_out(path, "a link to a folder, a broken link, or no plain file")
                elif path.suffix.lower() not in SUFFIXES:
                    leave_out(path, f"does not end in {', '.join(sorted(SUFFIXES))}")
                else:
                    found.append(path)
        return found

    def _of_file(self, path: Path, one: SourceFile, before: int) -> Iterator[Document]:
        kind = path.suffix.lower()
        if kind != PARQUET:
            if self.encoding is not None:
                check_encoding(path, self.encoding)
            one.encoding = self.encoding or find_encoding(path)
            if self.encoding is None and one.encoding in ("cp1252", "latin-1"):
                self._note("encoding_guessed", f"{one.file}: is not UTF-8; read as {one.encoding}, which is a guess")
        counts: Counter[str] = Counter()
        if kind in TABLES:
            one.column = text_column(path, one.encoding, self.column)
            if len(one.column) > _LONG_NAME or _SENTENCE.search(one.column):
                message = f"{one.file}: its first line is taken for names of columns, but reads like text: "
                self._note("no_header", f"{message}{one.column[:80]!r}; if it is one, put a line with a name above it")
            parts = table_rows(path, one.encoding, one.column, counts)
        else:
            parts = self._plain(path, one, counts)
        for text, line, at in parts:
            one.documents += bool(text)
            one.empty += not text
            self.bytes_read = before + at
            if text:
                yield Document(text, one.file, line)
        for code, message in _MESSAGES.items():
            if counts[code]:
                self._note(code, f"{one.file}: {message.format(counts[code])}")

    def _plain(self, path: Path, one: SourceFile, counts: Counter[str]) -> Iterator[tuple[str, int, int]]:
        """Yields (text, first line, bytes read) of each document; of a file without any, one empty text."""
        lines: list[str] = []
        size = number = first = documents = at = 0
        goes_on = False
        assert one.encoding is not None
        with open_text(path, one.encoding) as file:
            while line := file.readline(MOST_CHARACTERS):
                number += not goes_on
                counts["long_line"] += goes_on
                goes_on = not line.endswith("\n")
                if number % 256 == 0:  # a call of the system
                    at = position(file)
                blank = not (line := clean(line, counts))
                cut = size > MOST_CHARACTERS
                if lines and (cut or self.separator == "line" or (blank and self.separator == "blank")):
                    counts["long_document"] += cut
                    documents += 1
                    yield "\n".join(lines).rstrip(), first, at
                    lines, size = [], 0
                if lines or not blank:
                    first = first if lines else number
                    lines.append(line)
                    size += len(line) + 1
            if lines or not documents:
                yield "\n".join(lines).rstrip(), first, position(file)

    def _note(self, code: str, message: str) -> None:
        self.notes.setdefault(code, []).append(message)


_LONG_NAME, _SENTENCE = 60, re.compile(r"\s\S+[.!?]\S*$")
"""A column's name that is longer than this, or ends as a sentence does, may be none."""


def _is_made_of_text(folder: Path) -> bool:
    return any(all((folder / name).exists() for name in names) for names in _NO_TEXT)


def _printable(path: Path) -> str:
    """Returns a name in Unicode, whatever bytes a file system has in it."""
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")


_MESSAGES = {
    "control_characters": "{} control characters became spaces",
    "replacement_characters": "{} characters were lost before (U+FFFD stands in the file)",
    "long_document": "a document of more than " + f"{MOST_CHARACTERS:,}" + " characters was cut, {} times",
    "long_line": "a line of more than " + f"{MOST_CHARACTERS:,}" + " characters was cut, {} times",
    "bad_rows": "{} rows were left out: other numbers of cells than the header, no JSON, no text, or half a character",
    "literal_quotes": "quotes do not enclose cells in it, and are read as they stand",
}

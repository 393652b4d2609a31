"""Tables of texts with labels: a text or a pair of texts, and for it a class, several, or a number."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bothways.config import ColumnConfig, LabelKind
from bothways.errors import UserError
from bothways.text.documents import SourceFile
from bothways.text.encodings import check_encoding, find_encoding
from bothways.text.tables import MISSING, PARQUET, TABLES, columns_of, find_column, table_cells, text_column, text_of

Label = str | float | tuple[str, ...] | None
"""A class, a number, the classes that are there; none where there is no label."""
MOST_ROWS_NAMED = 20
_USUAL = ("label", "labels", "class", "category", "target", "sentiment", "score")
_NO_LABEL = ("", "nan")
"""What becomes of an empty cell when tables are written."""
_LOOKS_EMPTY = ("na", "n/a", "null", "none")
_SEPARATORS = re.compile("[;|]")
_WHOLE = re.compile(r"([+-]?\d+)\.0+")


class LabelledText(NamedTuple):
    """A row of a table."""

    text: str
    pair: str | None
    label: Label
    group: str | None
    file: str
    row: int
    """From 1, without the header."""


@dataclass
class LabelledTexts:
    """The rows of tables; each iteration reads them anew, holding one at a time.

    What is known of the files (`files`, `notes`, `unlabelled`) is that of the last iteration, as far as it went.

    Attributes:
        paths: CSV, TSV, JSON lines or Parquet.
        columns: what is where; a column of text, and of labels, is found where one can be meant.
        kind: what a label is.
        labels: whether there are labels; without, no column of them is looked for.
        encoding: of all files; if none, that of each is found.
        empty: give rows without a text, too.
        files: what was read.
        unlabelled: (file, row) of rows without a label.
        notes: a word for programs -> what was changed, guessed or looks wrong.
        found: the columns of the last file.
    """

    paths: Sequence[str | Path]
    columns: ColumnConfig = field(default_factory=ColumnConfig)
    kind: LabelKind = "classes"
    labels: bool = True
    encoding: str | None = None
    empty: bool = False
    files: list[SourceFile] = field(default_factory=list, init=False)
    unlabelled: list[tuple[str, int]] = field(default_factory=list, init=False)
    notes: dict[str, list[str]] = field(default_factory=dict, init=False)
    found: ColumnConfig = field(default_factory=ColumnConfig, init=False)

    def __iter__(self) -> Iterator[LabelledText]:
        """Yields the rows that have a text.

        Raises:
            UserError: a file is no table, has not the columns, or holds a label that is none.
        """
        self.files, self.unlabelled, self.notes = [], [], {}
        for path in map(Path, self.paths):
            yield from self._of_file(path)

    def summary(self) -> dict[str, Any]:
        """Returns what the last iteration found, as plain values."""
        return {
            "rows": sum(one.documents for one in self.files),
            "empty_rows": sum(one.empty for one in self.files),
            "unlabelled_rows": len(self.unlabelled),
            "columns": self.found.model_dump(),
            "files": [asdict(one) for one in self.files],
            "notes": self.notes,
        }

    def _of_file(self, path: Path) -> Iterator[LabelledText]:
        kind = path.suffix.lower()
        if kind not in TABLES:
            raise UserError(f"{path}: expected a table ({', '.join(sorted(TABLES))}), got another file; convert it")
        one = SourceFile(str(path))
        if kind != PARQUET:
            if self.encoding is not None:
                check_encoding(path, self.encoding)
            one.encoding = self.encoding or find_encoding(path)
            if self.encoding is None and one.encoding in ("cp1252", "latin-1"):
                self._note("encoding_guessed", f"{path}: is not UTF-8; read as {one.encoding}, which is a guess")
        self.found = self._columns(path, one.encoding)
        one.column = self.found.text
        names = [name for name in self.found.model_dump().values() if name is not None]
        counts: Counter[str] = Counter()
        without: list[int] = []
        for cells, row, _ in table_cells(path, one.encoding, names, counts):
            values = dict(zip(names, cells))
            text = text_of(values[self.found.text], counts)
            pair = None if self.found.pair is None else text_of(values[self.found.pair], counts)
            if text is None or (pair is None and self.found.pair is not None):
                continue
            if not (text or pair):
                one.empty += 1
                if not self.empty:
                    continue
            label = None if self.found.label is None else self._label(values[self.found.label], path, row)
            if label is None and self.labels:
                without.append(row)
            one.documents += bool(text or pair)
            group = None if self.found.group is None else str(values[self.found.group])
            yield LabelledText(text, pair, label, group, one.file, row)
        self.files.append(one)
        self.unlabelled += [(one.file, row) for row in without]
        if without:
            more = f" and {len(without) - MOST_ROWS_NAMED} more" if len(without) > MOST_ROWS_NAMED else ""
            rows = ", ".join(map(str, without[:MOST_ROWS_NAMED]))
            self._note("unlabelled", f"{path}: {len(without)} rows have no label: {rows}{more}")
        if one.empty:
            left_out = "" if self.empty else " and are left out"
            self._note("empty_texts", f"{path}: {one.empty} rows have no text{left_out}")
        for code, message in _MESSAGES.items():
            if counts[code]:
                self._note(code, f"{path}: {message.format(counts[code])}")

    def _columns(self, path: Path, encoding: str | None) -> ColumnConfig:
        all_columns = columns_of(path, encoding)
        text = self._text_column(path, encoding, all_columns)
        found = {"text": text}
        for name in ("pair", "group"):
            if (wanted := getattr(self.columns, name)) is not None:
                found[name] = find_column(path, all_columns, wanted, (), name, f"columns.{name}=NAME")
        if self.labels:
            others = [name for name in all_columns if name not in found.values()]
            found["label"] = find_column(path, others, self.columns.label, _USUAL, "labels", "columns.label=NAME")
        return ColumnConfig.model_validate(found)

    def _text_column(self, path: Path, encoding: str | None, columns: Sequence[str]) -> str:
        """Returns the column of text: of two columns the one that is not that of the labels."""
        label = self.columns.label or next((name for name in columns if name.strip().lower() in _USUAL), None)
        others = [name for name in columns if name not in (label, self.columns.pair, self.columns.group)]
        if self.columns.text is None and len(others) == 1:
            return others[0]
        return text_column(path, encoding, self.columns.text)

    def _label(self, value: Any, path: Path, row: int) -> Label:
        if self.kind == "several":
            parts = value if isinstance(value, list | tuple) else _SEPARATORS.split(label_name(value) or "")
            if value is MISSING or value is None or (isinstance(value, str) and value.strip().lower() in _NO_LABEL):
                return None
            return tuple(sorted({one for part in parts if (one := label_name(part)) is not None}))
        if isinstance(value, list | tuple | dict):
            raise UserError(
                f"{path}: row {row}: expected one label, got {value!r}; for any number of classes set labels=several"
            )
        label = label_name(value)
        if label is None or self.kind == "classes":
            return label
        try:
            number = float(label)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise UserError(f"{path}: row {row}: expected a number, got {label!r}; mend it, or set labels=classes")
        return number

    def _note(self, code: str, message: str) -> None:
        self.notes.setdefault(code, []).append(message)


def label_name(value: Any) -> str | None:
    """Returns a label as it is written, or none; whole numbers without the `.0` that tables put behind them."""
    if value is MISSING or value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    label = repr(value) if isinstance(value, float) else str(value).strip()
    if label.lower() in _NO_LABEL:
        return None
    whole = _WHOLE.fullmatch(label)
    return whole.group(1) if whole else label


def classes_of(labels: Iterable[Label]) -> list[str]:
    """Returns the classes that labels name: numbers by their value, else by the alphabet."""
    names = {name for one in labels if one is not None for name in ([one] if isinstance(one, str) else one)}  # type: ignore[union-attr]
    try:
        return sorted(names, key=lambda name: (float(name), name))
    except ValueError:
        return sorted(names)


def like_empty(classes: Iterable[str]) -> list[str]:
    """Returns the classes whose names may stand for no label."""
    return [name for name in classes if name.lower() in _LOOKS_EMPTY]


_MESSAGES = {
    "control_characters": "{} control characters became spaces",
    "replacement_characters": "{} characters were lost before (U+FFFD stands in the file)",
    "bad_rows": "{} rows were left out: no JSON, fewer or more cells than columns, or no text",
    "literal_quotes": "quotes do not enclose cells in it, and are read as they stand",
}

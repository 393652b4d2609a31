"""Text files opened, and rows of tables with a column of text: CSV, TSV, JSON lines and Parquet, in bounded memory."""

import csv
import io
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from bothways.errors import UserError
from bothways.files import readable

PARQUET = ".parquet"
JSON_LINES = (".jsonl", ".ndjson")
TABLES = frozenset({".csv", ".tsv", *JSON_LINES, PARQUET})
"""Ends of the names of tables."""
MOST_CHARACTERS = 2**24
"""Of a line or cell that is read at once."""
_USUAL = ("text", "content", "document", "body", "sentence", "article", "abstract", "review", "note", "report")
"""Names of columns of text; the first is taken even beside others of them."""
_CONTROL = re.compile(r"[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029]")
MISSING = object()
"""The cell of a key that a line of JSON has not."""
Row = tuple[str, int, int]
"""Text without white space around it, row (from 1, without a header), and bytes of the file that are read."""


def clean(line: str, counts: Counter[str]) -> str:
    """Returns a line without white space around it, control characters being spaces; counts what was found.

    They would be taken out later, and glue two words together.
    """
    line, n = _CONTROL.subn(" ", line)
    counts["control_characters"] += n
    counts["replacement_characters"] += line.count("\ufffd")
    return line.strip()


@contextmanager
def open_text(path: Path, encoding: str, newline: str | None = None) -> Iterator[io.TextIOWrapper]:
    """Opens a text file to read; lines end in LF, CR LF or CR."""
    with readable(path) as file:
        yield io.TextIOWrapper(file, encoding, newline=newline)


def position(file: io.TextIOWrapper) -> int:
    """Returns how many bytes of a file were read, a little ahead of what was seen of it."""
    return os.lseek(file.fileno(), 0, os.SEEK_CUR)


def columns_of(path: Path, encoding: str | None, *, of_text: bool = False) -> list[str]:
    """Returns the names of a table's columns; of JSON lines, the keys of the first object.

    Args:
        path: the table.
        encoding: its encoding; none of Parquet.
        of_text: leave out those that hold numbers and the like, where the table says so.

    Raises:
        UserError: the file is no table.
    """
    if encoding is None:
        with _parquet(path) as table:
            return [one.name for one in table.schema_arrow if not of_text or _is_text(one.type)]
    if path.suffix.lower() in JSON_LINES:
        for value, _ in _objects(path, encoding):
            if isinstance(value, dict):
                return [key for key, inner in value.items() if not of_text or isinstance(inner, str)]
        raise UserError(f"{path}: expected a JSON object in each line, found none; check the file")
    with open_text(path, encoding, newline="") as file:
        return _header(path, file.readline(MOST_CHARACTERS))[0]


def text_column(path: Path, encoding: str | None, wanted: str | None) -> str:
    """Returns the name of a table's column of text.

    Args:
        path: the table.
        encoding: its encoding; none of Parquet.
        wanted: the name that was asked for.

    Raises:
        UserError: there is no such column, none or several that may be meant, or the file is no table.
    """
    return find_column(path, columns_of(path, encoding, of_text=True), wanted, _USUAL, "text", "--column NAME")


def find_column(
    path: Path, columns: Sequence[str], wanted: str | None, usual: Sequence[str], what: str, option: str
) -> str:
    """Returns which column is meant: the one that is wanted, the only one, or one of a usual name, the first of all.

    Args:
        path: the table.
        columns: that may be meant.
        wanted: the name that was asked for.
        usual: names that are taken for it.
        what: is in the column, for messages.
        option: how it is named.

    Raises:
        UserError: there is no such column, none or several that may be meant.
    """
    if wanted is not None:
        if list(columns).count(wanted) == 1:
            return wanted
    else:
        named_so = [name for name in columns if name.strip().lower() in usual]
        first = [name for name in named_so if name.strip().lower() == usual[0]]
        for those in (columns, first, named_so):
            if len(those) == 1:
                return those[0]
    named = ", ".join(name[:60] for name in columns[:20]) or "none"
    named += f" and {len(columns) - 20} more" * (len(columns) > 20)
    asked = f"one column of {what}" if wanted is None else f"one column {wanted!r}"
    raise UserError(f"{path}: expected {asked}, got the columns {named}; name it: {option}")


def table_rows(path: Path, encoding: str | None, column: str, counts: Counter[str]) -> Iterator[Row]:
    """Yields the text of each row; an empty one where the cell is empty.

    Args:
        path: the table.
        encoding: its encoding; none of Parquet.
        column: the column of text.
        counts: what was left out or looks wrong is added.

    Raises:
        UserError: the file is damaged.
    """
    for cells, number, at in table_cells(path, encoding, [column], counts):
        if (text := text_of(cells[0], counts)) is not None:
            yield text, number, at


def text_of(cell: Any, counts: Counter[str]) -> str | None:
    """Returns a cell of text, cleaned; nothing of what is no text, which is counted."""
    text = "" if cell is None else cell
    if not isinstance(text, str) or not is_unicode(text):
        counts["bad_rows"] += 1
        return None
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(clean(line, counts) for line in lines).strip()


def table_cells(
    path: Path, encoding: str | None, columns: Sequence[str], counts: Counter[str]
) -> Iterator[tuple[list[Any], int, int]]:
    """Yields cells of each row, its number and the bytes that are read; a row that has not these cells is counted.

    Args:
        path: the table.
        encoding: its encoding; none of Parquet.
        columns: which cells. Of JSON lines, a key that an object lacks is `MISSING`.
        counts: what was left out or looks wrong is added.

    Raises:
        UserError: the file is damaged.
    """
    if encoding is None:
        rows = _parquet_rows(path, columns)
    elif path.suffix.lower() in JSON_LINES:
        rows = _json_rows(path, encoding, columns)
    else:
        rows = _csv_rows(path, encoding, columns, counts)
    for number, (cells, at) in enumerate(rows, 1):
        if cells is None:
            counts["bad_rows"] += 1
        else:
            yield cells, number, at


def is_unicode(text: str) -> bool:
    """Says whether a text is all characters: half of a pair of surrogates, which JSON can spell, is none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _header(path: Path, line: str) -> tuple[list[str], str]:
    """Returns the columns of a CSV or TSV, and what parts them."""
    csv.field_size_limit(max(csv.field_size_limit(), MOST_CHARACTERS))
    delimiters = "\t" if path.suffix.lower() == ".tsv" else ",;\t"
    try:
        read = [(next(csv.reader([line], delimiter=delimiter), []), delimiter) for delimiter in delimiters]
    except csv.Error as problem:
        raise UserError(f"{path}: expected names of columns in its first line, but {problem}; mend it") from None
    return max(read, key=lambda one: len(one[0]))


def _csv_rows(
    path: Path, encoding: str, wanted: Sequence[str], counts: Counter[str]
) -> Iterator[tuple[list[Any] | None, int]]:
    with open_text(path, encoding, newline="") as file:
        columns, delimiter = _header(path, file.readline(MOST_CHARACTERS))
    rules: dict[str, Any] = {"delimiter": delimiter, "strict": True}
    try:
        uneven = sum(len(row) != len(columns) for row, _ in _parsed(path, encoding, rules))
        broken = None
    except csv.Error as problem:
        uneven, broken = 0, problem
    if (broken or uneven) and path.suffix.lower() == ".tsv":  # many are written without quotes around cells
        counts["literal_quotes"] = 1
        rules["quoting"] = csv.QUOTE_NONE
    elif broken:
        raise UserError(f"{path}: expected CSV, but it cannot be read ({broken}); mend its quotes, or a cell too long")
    places = [columns.index(column) for column in wanted]
    for row, at in _parsed(path, encoding, rules):
        yield ([row[place] for place in places] if len(row) == len(columns) else None), at


def _parsed(path: Path, encoding: str, rules: dict[str, Any]) -> Iterator[tuple[list[str], int]]:
    """Yields the rows below the header; an empty line is none."""
    with open_text(path, encoding, newline="") as file:
        rows = csv.reader(file, **rules)
        next(rows, None)
        for row in rows:
            if row:
                yield row, position(file)


def _objects(path: Path, encoding: str) -> Iterator[tuple[Any, int]]:
    """Yields what each line of JSON holds, none where it is no JSON; a blank line is no row."""
    with open_text(path, encoding) as file:
        while line := file.readline(MOST_CHARACTERS):
            if not line.strip():
                continue
            whole = line.endswith("\n") or len(line) < MOST_CHARACTERS
            while not (whole or line.endswith("\n") or not line):  # the rest of what is too long
                line = file.readline(MOST_CHARACTERS)
            try:
                value = json.loads(line) if whole else None
            except (ValueError, RecursionError):
                value = None
            yield value, position(file)


def _json_rows(path: Path, encoding: str, columns: Sequence[str]) -> Iterator[tuple[list[Any] | None, int]]:
    for value, at in _objects(path, encoding):
        yield ([value.get(column, MISSING) for column in columns] if isinstance(value, dict) else None), at


@contextmanager
def _parquet(path: Path) -> Iterator[Any]:
    with readable(path) as file:
        try:
            yield pyarrow.parquet.ParquetFile(file)
        except (pyarrow.ArrowException, OSError) as problem:
            why = " ".join(str(problem).split())
            raise UserError(f"{path}: expected Parquet, but it cannot be read ({why}); copy it anew") from None


def _is_text(kind: Any) -> bool:
    kind = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
    return pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)


def _parquet_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[list[Any] | None, int]]:
    size = path.stat().st_size
    with _parquet(path) as table:
        done, total = 0, max(table.metadata.num_rows, 1)
        for batch in table.iter_batches(batch_size=256, columns=list(dict.fromkeys(columns))):
            for cells in zip(*(batch.column(column).to_pylist() for column in columns)):
                done += 1
                yield list(cells), size * done // total

"""Text files opened, and rows of tables with a column of text: CSV, TSV, JSON lines and Parquet, in bounded memory."""

import csv
import io
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
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


def text_column(path: Path, encoding: str | None, wanted: str | None) -> str:
    """Returns the name of a table's column of text.

    Args:
        path: the table.
        encoding: its encoding; none of Parquet.
        wanted: the name that was asked for.

    Raises:
        UserError: there is no such column, none or several that may be meant, or the file is no table.
    """
    if encoding is None:
        columns = _parquet_columns(path)
    elif path.suffix.lower() in JSON_LINES:
        columns = _json_columns(path, encoding)
    else:
        with open_text(path, encoding, newline="") as file:
            columns = _header(path, file.readline(MOST_CHARACTERS))[0]
    if wanted is not None:
        if columns.count(wanted) == 1:
            return wanted
    else:
        usual = [name for name in columns if name.strip().lower() in _USUAL]
        first = [name for name in usual if name.strip().lower() == _USUAL[0]]
        for those in (columns, first, usual):
            if len(those) == 1:
                return those[0]
    named = ", ".join(name[:60] for name in columns[:20]) or "none"
    named += f" and {len(columns) - 20} more" * (len(columns) > 20)
    asked = "one column of text" if wanted is None else f"one column {wanted!r}"
    raise UserError(f"{path}: expected {asked}, got the columns {named}; name it: --column NAME")


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
    if encoding is None:
        rows = _parquet_rows(path, column)
    elif path.suffix.lower() in JSON_LINES:
        rows = _json_rows(path, encoding, column)
    else:
        rows = _csv_rows(path, encoding, column, counts)
    for number, (text, at) in enumerate(rows, 1):
        if text is None or not is_unicode(text):
            counts["bad_rows"] += 1
            continue
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        yield "\n".join(clean(line, counts) for line in lines).strip(), number, at


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


def _csv_rows(path: Path, encoding: str, column: str, counts: Counter[str]) -> Iterator[tuple[str | None, int]]:
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
    for row, at in _parsed(path, encoding, rules):
        yield (row[columns.index(column)] if len(row) == len(columns) else None), at


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


def _json_columns(path: Path, encoding: str) -> list[str]:
    """Returns the keys with text of the first object."""
    for value, _ in _objects(path, encoding):
        if isinstance(value, dict):
            return [key for key, inner in value.items() if isinstance(inner, str)]
    raise UserError(f"{path}: expected a JSON object in each line, found none; check the file")


def _json_rows(path: Path, encoding: str, column: str) -> Iterator[tuple[str | None, int]]:
    for value, at in _objects(path, encoding):
        text = value.get(column, 0) if isinstance(value, dict) else 0
        yield ("" if text is None else text if isinstance(text, str) else None), at


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


def _parquet_columns(path: Path) -> list[str]:
    with _parquet(path) as table:
        return [one.name for one in table.schema_arrow if _is_text(one.type)]


def _parquet_rows(path: Path, column: str) -> Iterator[tuple[str | None, int]]:
    size = path.stat().st_size
    with _parquet(path) as table:
        done, total = 0, max(table.metadata.num_rows, 1)
        for batch in table.iter_batches(batch_size=256, columns=[column]):
            for text in batch.column(0).to_pylist():
                done += 1
                yield text or "", size * done // total

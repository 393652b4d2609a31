"""Tables as files: the columns of CSV, TSV and Parquet, each read where it is asked for."""

import csv
import gzip
import io
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bothways.eeg.recording import Note, listed
from bothways.errors import UserError

TEXT_ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
PARQUET_ENDINGS = (".parquet", ".pq")
TABLE_ENDINGS = (*TEXT_ENDINGS, *PARQUET_ENDINGS)
"""Endings that a folder is searched for; a `.txt` counts where it is given by itself."""
RATE_KEY = "SamplingFrequency"
_HEAD_BYTES = 2**16
NULLS = ["", "nan", "NaN", "NAN", "-nan", "n/a", "N/A", "na", "NA", "null", "NULL", "None"]


@dataclass(frozen=True)
class Table:
    """A table that may be too large to hold: names and types (pyarrow's) of its columns, and what reads one.

    `read(index, most)` returns a column as a pyarrow array, or its first `most` rows.
    """

    names: list[str]
    types: list[Any]
    n_rows: int
    rate_hz: float | None
    read: Callable[[int, int | None], Any]


@dataclass(frozen=True)
class Header:
    """What stands above the samples of a text file, and how its cells are parted."""

    cells: list[str]
    skip_lines: int
    delimiter: str
    decimal: str
    encoding: str
    rate_hz: float | None
    first_rows: list[list[str]]


def read_table_file(path: Path, notes: list[Note], channels: Callable[[list[str]], set[int]]) -> Table:
    """Opens a table; what is left out of it is noted. `channels` says which columns are enough in single precision.

    Raises:
        UserError: it cannot be read.
    """
    return _parquet(path) if path.name.lower().endswith(PARQUET_ENDINGS) else _text(path, notes, channels)


def is_number(kind: Any) -> bool:
    """Whether a column of this type holds numbers."""
    import pyarrow as pa

    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def is_float(cell: str, decimal: str) -> bool:
    """Whether a cell holds a number, or nothing."""
    if cell.strip() in NULLS:
        return True
    try:
        float(cell.replace(decimal, ".", 1))
    except ValueError:
        return False
    return True


def rate_in(path: Path, schema: Any) -> float | None:
    """The rate that a Parquet file states, in Hz."""
    text = (schema.metadata or {}).get(RATE_KEY.encode())
    try:
        return float(text) if text else None
    except ValueError:
        raise UserError(f"{path}: expected a number as {RATE_KEY}, got {text!r}; write the file anew") from None


def _parquet(path: Path) -> Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def opened(work: Callable[[Any], Any]) -> Any:
        try:
            with pq.ParquetFile(path) as file:
                return work(file)
        except (pa.ArrowException, ValueError, OSError) as problem:
            if isinstance(problem, OSError) and problem.errno is not None:
                raise
            raise UserError(
                f"{path}: not a Parquet file that can be read: {one_line(problem)}; copy it again"
            ) from None

    schema, n_rows, n_groups = opened(lambda file: (file.schema_arrow, file.metadata.num_rows, file.num_row_groups))
    own = schema.names

    def read(index: int, most: int | None) -> Any:
        def column(file: Any) -> Any:
            groups, n = range(n_groups), 0
            if most is not None:
                for group in range(n_groups):
                    n += file.metadata.row_group(group).num_rows
                    if n >= most:
                        groups = range(group + 1)
                        break
            same = file.read_row_groups(list(groups), columns=[own[index]])
            values = same.column(own[:index].count(own[index])).slice(0, most)  # names may be double
            values.validate(full=True)  # else what is no UTF-8 would fail where it is used
            return values

        return opened(column)

    return Table([printable(name) for name in own], schema.types, n_rows, rate_in(path, schema), read)


def _text(path: Path, notes: list[Note], channels: Callable[[list[str]], set[int]]) -> Table:
    """Reads all of a text file, its channels in single precision: read again, it would take minutes."""
    import pyarrow as pa

    header = read_header(path)
    single = {str(index): pa.float32() for index in channels(header.cells)}
    try:
        table, bad = _rows(path, header, single)
    except pa.ArrowInvalid:  # says which cell is no number
        table, bad = _rows(path, header, {})
    last = table.num_rows + len(bad) + header.skip_lines
    if bad and (len(bad) > 1 or bad[0][0] not in (0, last)):
        line, expected, got = bad[0]
        raise UserError(
            f"{path}: expected {expected} cells in each row, line {line} has {got} ({len(bad)} such rows); correct them"
        )
    if bad:
        notes.append(Note("truncated", f"the last row has {bad[0][2]} of {bad[0][1]} cells and is left out"))
    return Table(
        header.cells, table.schema.types, table.num_rows, header.rate_hz,
        lambda index, most: table.column(index).slice(0, most),
    )  # fmt: skip


def _rows(path: Path, header: Header, types: dict[str, Any]) -> tuple[Any, list[tuple[int, int, int]]]:
    """Returns the table, and of rows with too few or too many cells: line, cells expected, cells there."""
    import pyarrow as pa
    from pyarrow import csv as arrow

    bad: list[tuple[int, int, int]] = []

    def broken(row: Any) -> str:
        bad.append((row.number or 0, row.expected_columns, row.actual_columns))
        return "skip"

    try:
        with pa.input_stream(str(path), compression="gzip" if path.name.lower().endswith(".gz") else None) as stream:
            table = arrow.read_csv(
                stream,
                arrow.ReadOptions(
                    use_threads=False, skip_rows=header.skip_lines, encoding=header.encoding,
                    column_names=[str(index) for index in range(len(header.cells))],
                ),
                arrow.ParseOptions(delimiter=header.delimiter, invalid_row_handler=broken),
                arrow.ConvertOptions(
                    decimal_point=header.decimal, null_values=NULLS, strings_can_be_null=True, column_types=types,
                ),
            )  # fmt: skip
    except (pa.ArrowException, EOFError) as problem:
        if types and isinstance(problem, pa.ArrowInvalid):
            raise
        raise UserError(f"{path}: not a table that can be read: {one_line(problem)}; check the file") from None
    return table, bad


def one_line(problem: Exception) -> str:
    """The beginning of an error's text, on one line."""
    return printable(" ".join(str(problem).split())[:200])


def printable(text: str) -> str:
    """Text without what a terminal would take for a command."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def read_header(path: Path, most: int = 20) -> Header:
    """Reads the lines above the samples: comments (`%`, `#`, Emotiv's line of keys) and the names.

    Args:
        path: the file.
        most: how many lines from the names on to take apart, of the first 64 KiB.

    Raises:
        UserError: the file is empty, no text, or has no header.
    """
    lowered = path.name.lower()
    try:
        with gzip.open(path) if lowered.endswith(".gz") else path.open("rb") as file:
            content = file.read(_HEAD_BYTES)
    except (EOFError, gzip.BadGzipFile, zlib.error) as problem:
        raise UserError(f"{path}: expected a table packed by gzip, but {one_line(problem)}; copy it again") from None
    if b"\0" in content or not content.strip():
        what = "is empty" if not content.strip() else "is no text"
        raise UserError(f"{path}: expected a table with a header and a row for each sample, but it {what}")
    encoding = "utf-8"
    try:
        text = content.removeprefix(b"\xef\xbb\xbf").decode()
    except UnicodeDecodeError as problem:
        encoding = "utf-8" if problem.start > len(content) - 4 else "latin-1"
        text = content.removeprefix(b"\xef\xbb\xbf").decode(encoding, "ignore")
    lines = text.splitlines()
    if len(content) == _HEAD_BYTES:
        lines.pop()
    # OpenBCI states it above the names, OpenViBE in one of them (`Time:256Hz`)
    rate = re.search(r"(?im)^[%#].*?sampl\w*[ _-]*(?:rate|frequency)\s*[=:]\s*(\d+\.?\d*)", text) or re.match(
        r"(?i)time:(\d+\.?\d*) ?hz", text
    )
    skip = 0
    while skip < len(lines) and (not lines[skip].strip() or lines[skip].lstrip()[0] in "%#"):
        skip += 1
    if skip < len(lines) and re.match(r"(?i)title:", lines[skip]):  # Emotiv's line of keys; the names follow
        skip += 1
    body = lines[skip:]
    delimiter = max(",;\t", key=(body[0] if body else "").count)
    rows = [
        [cell.strip() for cell in row] for row in csv.reader(io.StringIO("\n".join(body[:most])), delimiter=delimiter)
    ]
    decimal = "," if delimiter != "," and any("," in cell for row in rows[1:] for cell in row) else "."
    if rows and all(is_float(cell, decimal) for cell in rows[0]):
        # numpy.savetxt writes the names as a comment
        above = [cell.strip() for cell in lines[skip - 1].lstrip("%# ").split(delimiter)] if skip else []
        if len(above) != len(rows[0]) or all(is_float(cell, decimal) for cell in above):
            raise UserError(
                f"{path}: expected a header with the channels' names above the samples, got {listed(rows[0])}; add one"
            )
        return Header(above, skip, delimiter, decimal, encoding, float(rate[1]) if rate else None, rows)
    if not rows:
        raise UserError(f"{path}: expected a table with a header and a row for each sample, got comments only")
    cells = rows[0]
    if len(rows) > 1 and not any(rows[1][len(cells) :]):  # a delimiter at the end of each row
        cells = cells + [""] * (len(rows[1]) - len(cells))
    cells = [printable(cell) for cell in cells]
    return Header(cells, skip + 1, delimiter, decimal, encoding, float(rate[1]) if rate else None, rows[1:])

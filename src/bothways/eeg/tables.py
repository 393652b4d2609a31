"""Recordings in tables: CSV, TSV and Parquet with a row for each sample and a column for each channel."""

import csv
import gzip
import io
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from bothways.eeg.channels import Channel, parse_labels
from bothways.eeg.recording import (
    Note,
    Recording,
    Segment,
    checked_rate,
    leave_out,
    listed,
    named,
    no_eeg_error,
    place_events,
    placed,
    possible_uv,
    true_time_s,
    unit_in_uv,
)  # fmt: skip
from bothways.eeg.stamps import read_stamps
from bothways.errors import UserError
from bothways.files import read_json

TEXT_ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
PARQUET_ENDINGS = (".parquet", ".pq")
TABLE_ENDINGS = (*TEXT_ENDINGS, *PARQUET_ENDINGS)
"""Endings that a folder is searched for; a `.txt` counts where it is given by itself."""
RATE_KEY = "SamplingFrequency"
_HEAD_BYTES = 2**16
_NULLS = ["", "nan", "NaN", "NAN", "-nan", "n/a", "N/A", "na", "NA", "null", "NULL", "None"]
_TIME = re.compile(
    r"(?i)(time|times|t|time ?stamps?|(sample|unix|lsl|local|elapsed|device)[ _]?time([ _]?stamp)?|date ?time|"
    r"(second|millisecond|microsecond)s?)"
)
_TIME_UNITS = {"s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s", "ms": "ms", "msec": "ms",
               "millisecond": "ms", "milliseconds": "ms", "us": "us", "µs": "us", "μs": "us", "microsecond": "us",
               "microseconds": "us", "ns": "ns"}  # fmt: skip
_MARKER = re.compile(
    r"(?i)(markers?|marker ?value(int)?|event ?id|stim(ulus)?|sti|trig(ger)?s?|events?|status|labels?|class|target|"
    r"code|din)[ _]?\d*"
)
_EARLIEST, _LATEST = datetime(1990, 1, 1, tzinfo=UTC).timestamp(), datetime(2100, 1, 1, tzinfo=UTC).timestamp()
_FEW_VALUES, _OTHER_SCALE = 8, 30.0
"""A column without a 10-05 name that takes so few values, or is so many times larger or smaller, is no EEG."""


@dataclass(frozen=True)
class Column:
    """One column: its name, without the unit that stands with it, and that unit."""

    index: int
    name: str
    unit: str = ""


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


def read_table_recording(path: Path, unit: str | None = None, sfreq_hz: float | int | None = None) -> Recording:
    """Reads one recording from a table; see `recording.read_recording`.

    The rate is `sfreq_hz`, else `SamplingFrequency` of a JSON file of the same name beside it, else what the time
    column gives. The unit is `unit`, else what stands behind a column's name (`Cz (mV)`) or as `Units` in that JSON
    file, else microvolts, and then noted as guessed. A marker column gives an event where it changes to another value
    than 0 or empty, as long as that value is held, or of no duration where it is held for one sample.

    Raises:
        UserError: it holds no samples of EEG under channel names, no rate, or times that are none.
    """
    beside = sidecar(path)
    notes: list[Note] = []
    if path.name.lower().endswith(PARQUET_ENDINGS):
        names, columns, stated_hz = _read_parquet(path)
    else:
        names, columns, stated_hz = _read_text(path, notes)
    stated_hz = _rate(path, beside) or stated_hz if sfreq_hz is None else float(sfreq_hz)
    sfreq_hz = None if stated_hz is None else checked_rate(path, stated_hz)
    time, markers, others = sort_columns(names, beside)
    others += [marker for marker in markers if not _is_code(columns[marker.index].type)]
    markers = [marker for marker in markers if _is_code(columns[marker.index].type)]
    if not columns or len(columns[0]) == 0:
        raise UserError(f"{path}: no data: the table has no rows below its header; leave the file out")
    left_out = {names[column.index]: "time column" for column in ([time] if time else [])}

    picked, channels = _pick(path, names, others, columns, left_out)
    if not picked:
        raise no_eeg_error(path, {**left_out, **{marker.name: "marker column" for marker in markers}})
    n, date = len(columns[0]), None
    if time is not None:
        stamps, time_unit = _stamps(path, columns[time.index], time)
        timing = read_stamps(path, stamps, time_unit, sfreq_hz)
        sfreq_hz, segments = timing.sfreq_hz, timing.segments
        notes += timing.notes
        if _EARLIEST < timing.start_s < _LATEST:
            date = datetime.fromtimestamp(timing.start_s, UTC).replace(tzinfo=None)
    elif sfreq_hz is not None:
        segments = [Segment(0, n, 0.0)]
    else:
        raise UserError(
            f"{path}: expected a recording: a row for each sample, a column for each channel, and a time column or a "
            f"rate; got the columns {listed(names)}; name the time column 'time', or state the rate as "
            f'{{"{RATE_KEY}": 250}} in {_sidecar_path(path).name} beside it'
        )
    sfreq_hz = checked_rate(path, sfreq_hz)

    guessed = [column.name for column in picked if not column.unit]
    if guessed and unit is None:
        notes.append(Note("unit_guessed", f"unit taken for microvolts, as none is stated: {listed(guessed)}"))
    data_uv = np.empty((len(picked), n), np.float32)
    for row, column in zip(data_uv, picked):
        row[:] = possible_uv(_numbers(columns[column.index]) * (unit_in_uv(unit or column.unit or "uV") or 1.0))
        columns[column.index] = columns[column.index].slice(0, 0)  # its memory is free again
    marked = [event for marker in markers for event in _marked(columns[marker.index], segments, sfreq_hz)]
    for marker in markers:
        leave_out(left_out, names[marker.index], "marker column, read as events")
    events = place_events(marked, segments, sfreq_hz, notes)
    positions = placed(channels, notes)
    form = "Parquet" if path.name.lower().endswith(PARQUET_ENDINGS) else "TSV" if ".tsv" in path.name.lower() else "CSV"
    return Recording(
        path, form, data_uv, named(channels, notes, positions), [names[column.index] for column in picked], positions,
        sfreq_hz, segments, events, left_out, date, notes, file_units=[column.unit for column in picked],
    )  # fmt: skip


def looks_like_recording(path: Path) -> bool:
    """Whether a table is a recording and not a list of labels, people or results; reads its beginning only.

    It is one that has a time column or a stated rate, and two columns of numbers or more of which one at least has a
    10-05 name.
    """
    try:
        beside = sidecar(path)
        if path.name.lower().endswith(PARQUET_ENDINGS):
            import pyarrow.parquet as pq

            file = pq.ParquetFile(path)
            names, stated_hz = file.schema_arrow.names, _rate_in(file.schema_arrow)
            numeric, rows = [_is_number(kind) for kind in file.schema_arrow.types], []
        else:
            header = _header(path)
            names, stated_hz, rows = header.cells, header.rate_hz, header.first_rows
            numeric = [
                bool(rows) and all(len(row) <= i or _is_float(row[i], header.decimal) for row in rows)
                for i in range(len(names))
            ]
        time, _, others = sort_columns(names, beside)
        if time is None and not _rate(path, beside) and not stated_hz:
            return False
        if time is not None and rows and numeric[time.index]:
            stamps = [row[time.index].replace(header.decimal, ".", 1) for row in rows if len(row) > time.index]
            if not stamps or not float(stamps[0] or "nan") < float(stamps[-1] or "nan"):
                return False  # a time that does not rise from row to row is no sample's
    except (UserError, OSError, ValueError):
        return False
    channels = parse_labels([column.name for column in others])
    places = [channel.anode for column, channel in zip(others, channels) if numeric[column.index]]
    return len(places) > 1 and any(places)


def sidecar(path: Path) -> dict[str, Any]:
    """The JSON object in the file of the same name beside a table; empty = there is none.

    Raises:
        UserError: it cannot be read, or is no JSON object.
    """
    beside = _sidecar_path(path)
    if not beside.is_file():
        return {}
    content = read_json(beside)
    if not isinstance(content, dict):
        raise UserError(f'{beside}: expected an object such as {{"{RATE_KEY}": 250}}, got {type(content).__name__}')
    return content


def _sidecar_path(path: Path) -> Path:
    return path.with_name(re.sub(r"(?i)\.(csv|tsv|txt|parquet|pq)(\.gz)?$", "", path.name) + ".json")


def _rate(path: Path, beside: dict[str, Any]) -> float | None:
    rate = beside.get(RATE_KEY)
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < 1e9:
        raise UserError(f"{_sidecar_path(path)}: expected {RATE_KEY} in Hz, got {repr(rate)[:40]}; correct it")
    return float(rate)


def sort_columns(
    names: Sequence[str], beside: dict[str, Any] | None = None
) -> tuple[Column | None, list[Column], list[Column]]:
    """Returns the time column, the marker columns and the others."""
    time, markers, others = None, [], []
    for index, name in enumerate(names):
        column = _with_unit(Column(index, re.sub(r"(?i)(?<=^time):[\d.]+ ?hz$", "", name)), beside or {})
        is_time = _TIME.fullmatch(re.sub(r"_(s|ms|us|ns)$", "", column.name.strip()))
        if is_time and time is None:
            stated = re.search(r"_(s|ms|us|ns)$", column.name.strip())
            words = (column.unit, stated[1] if stated else "", column.name.strip().lower())
            time = replace(column, unit=next((_TIME_UNITS[w] for w in words if w in _TIME_UNITS), ""))
        elif _MARKER.fullmatch(column.name.strip()):
            markers.append(column)
        else:
            others.append(column)
    return time, markers, others


def _with_unit(column: Column, beside: dict[str, Any]) -> Column:
    """Takes `Cz (uV)`, `Cz [µV]` and `Cz_uV` apart; a unit in the file beside is as good."""
    if match := re.fullmatch(r"\s*(.*?)\s*[(\[]\s*([^()\[\]]*?)\s*[)\]]\s*", column.name):
        if unit_in_uv(match[2]) is not None or match[2] in _TIME_UNITS:
            return Column(column.index, match[1], match[2])
    elif (match := re.fullmatch(r"(.+?)[_ ]([unmµμ]?V)", column.name)) and unit_in_uv(match[2]) is not None:
        return Column(column.index, match[1], match[2])
    own = beside.get(column.name)
    unit = own.get("Units") if isinstance(own, dict) else beside.get("Units")
    return replace(column, unit=unit) if isinstance(unit, str) and unit_in_uv(unit) is not None else column


def _pick(
    path: Path, names: Sequence[str], others: list[Column], columns: list[Any], left_out: dict[str, str]
) -> tuple[list[Column], list[Channel]]:
    """Chooses the EEG among the columns: by name, then, where the name says nothing, by what is in them."""
    picked: list[tuple[Column, Channel]] = []
    for column, channel in zip(others, parse_labels([column.name for column in others])):
        kind = columns[column.index].type
        empty = columns[column.index].null_count == len(columns[column.index])
        why = channel.left_out
        if not column.name.strip() or re.fullmatch(r"Unnamed: \d+|__index_level_\d+__", column.name):
            why = "no name"
        elif not why and _TIME.fullmatch(column.name.strip()):
            why = "a second time column"
        elif not why and not _is_number(kind) and not empty:
            if channel.anode:
                raise UserError(f"{path}: {_no_number(column.name, columns[column.index])}")
            why = f"{kind}, no numbers"
        if why:
            leave_out(left_out, names[column.index], why)
        else:
            picked.append((column, channel))
    sizes = [_size(columns[column.index]) for column, channel in picked if channel.anode]
    usual = float(np.median(sizes)) if sizes else 0.0
    kept = []
    for column, channel in picked:
        why = "" if channel.anode else _no_signal(columns[column.index], usual)
        if why:
            leave_out(left_out, names[column.index], why)
        else:
            kept.append((column, channel))
    return [column for column, _ in kept], [channel for _, channel in kept]


def _no_signal(values: Any, usual: float) -> str:
    """Why a column without a 10-05 name is no EEG by its values; empty = it may be."""
    numbers = _numbers(values)
    there = numbers[np.isfinite(numbers)]
    if len(there) == 0:
        return "no 10-05 name, and it is empty"
    if len(there) > 10 * _FEW_VALUES and len(np.unique(there[:100_000])) <= _FEW_VALUES:
        return f"no 10-05 name, and it takes {_FEW_VALUES} values at most: a code or a state"
    if (np.diff(there) >= 0).all() and there[-1] > there[0]:
        return "no 10-05 name, and it only rises: a counter"
    size = _size(values)
    if usual and size and not 1 / _OTHER_SCALE <= size / usual <= _OTHER_SCALE:
        return f"no 10-05 name, and its values spread {size / usual:.2g} times as much as the EEG's"
    return ""


def _size(values: Any) -> float:
    steps = np.abs(np.diff(_numbers(values)[:100_000]))
    steps = steps[np.isfinite(steps)]
    return float(steps.mean()) if len(steps) else 0.0


def _numbers(values: Any) -> Float64[np.ndarray, " T"]:
    import pyarrow as pa

    return values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) if len(values) else np.zeros(0)


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def _is_code(kind: Any) -> bool:
    """Whether a marker can be of this type: a number, a word, true or false."""
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    plain = (pa.types.is_null, pa.types.is_boolean, pa.types.is_string, pa.types.is_large_string)
    return _is_number(kind) or any(is_one(kind) for is_one in plain)


def _is_float(cell: str, decimal: str) -> bool:
    if cell.strip() in _NULLS:
        return True
    try:
        float(cell.replace(decimal, ".", 1))
    except ValueError:
        return False
    return True


def _no_number(name: str, values: Any) -> str:
    import pyarrow as pa

    for row, value in enumerate(values.to_pylist() if pa.types.is_string(values.type) else [], 1):
        if not isinstance(value, str) or not _is_float(value, "."):
            return (
                f"expected numbers in column {name}, row {row} holds {str(value)[:40]!r}; correct it or leave it empty"
            )
    return f"expected numbers in column {name}, got {values.type}"


def _stamps(path: Path, values: Any, column: Column) -> tuple[Float64[np.ndarray, " T"], str | None]:
    """The times as numbers and their unit, where it is known."""
    import pyarrow as pa

    if pa.types.is_timestamp(values.type):
        whole = values.cast(pa.timestamp("ns"), safe=False).cast(pa.int64())
        return _numbers(whole) * 1e-9, "s"
    if not _is_number(values.type):
        raise UserError(f"{path}: {_no_number(column.name, values)}")
    return _numbers(values), column.unit or None


def _marked(values: Any, segments: Sequence[Segment], sfreq_hz: float) -> list[tuple[float, float, str]]:
    """(true onset, duration, label) wherever a marker changes to something."""
    if _is_number(values.type):
        codes = np.nan_to_num(_numbers(values))
        labels = [f"{code:g}" if code else "" for code in codes[_changes(codes)]]
    else:
        text = values.to_pylist()
        codes = np.unique(["" if t is None or t is False else str(t).strip() for t in text], return_inverse=True)[1]
        labels = ["" if text[at] in (None, False, "0") else str(text[at]).strip() for at in _changes(codes)]
    starts = _changes(codes)
    found = []
    for start, stop, label in zip(starts, [*starts[1:], len(codes)], labels):
        if label:
            held_s = (stop - start) / sfreq_hz if stop - start > 1 else 0.0
            found.append((true_time_s(start / sfreq_hz, segments, sfreq_hz), held_s, label))
    return found


def _changes(codes: np.ndarray) -> list[int]:
    return [0, *(np.flatnonzero(codes[1:] != codes[:-1]) + 1).tolist()]


def _rate_in(schema: Any) -> float | None:
    text = (schema.metadata or {}).get(RATE_KEY.encode())
    return float(text) if text else None


def _read_parquet(path: Path) -> tuple[list[str], list[Any], float | None]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        table.validate(full=True)  # else what is no UTF-8 would fail where it is used
        return [_printable(name) for name in table.column_names], list(table.columns), _rate_in(table.schema)
    except (pa.ArrowException, ValueError, OSError) as problem:
        if isinstance(problem, OSError) and problem.errno is not None:
            raise
        raise UserError(f"{path}: not a Parquet file that can be read: {_one_line(problem)}; copy it again") from None


def _read_text(path: Path, notes: list[Note]) -> tuple[list[str], list[Any], float | None]:
    import pyarrow as pa
    from pyarrow import csv as arrow

    header = _header(path)
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
                    decimal_point=header.decimal, null_values=_NULLS, strings_can_be_null=True,
                ),
            )  # fmt: skip
    except (pa.ArrowException, EOFError) as problem:
        raise UserError(f"{path}: not a table that can be read: {_one_line(problem)}; check the file") from None
    last = table.num_rows + len(bad) + header.skip_lines
    if bad and (len(bad) > 1 or bad[0][0] not in (0, last)):
        line, expected, got = bad[0]
        raise UserError(
            f"{path}: expected {expected} cells in each row, line {line} has {got} ({len(bad)} such rows); correct them"
        )
    if bad:
        notes.append(Note("truncated", f"the last row has {bad[0][2]} of {bad[0][1]} cells and is left out"))
    return header.cells, list(table.columns), header.rate_hz


def _one_line(problem: Exception) -> str:
    return _printable(" ".join(str(problem).split())[:200])


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _header(path: Path) -> Header:
    """Reads the lines above the samples: comments (`%`, `#`, Emotiv's line of keys) and the names.

    Raises:
        UserError: the file is empty, no text, or has no header.
    """
    lowered = path.name.lower()
    try:
        with gzip.open(path) if lowered.endswith(".gz") else path.open("rb") as file:
            content = file.read(_HEAD_BYTES)
    except (EOFError, gzip.BadGzipFile, zlib.error) as problem:
        raise UserError(f"{path}: expected a table packed by gzip, but {_one_line(problem)}; copy it again") from None
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
        [cell.strip() for cell in row] for row in csv.reader(io.StringIO("\n".join(body[:20])), delimiter=delimiter)
    ]
    decimal = "," if delimiter != "," and any("," in cell for row in rows[1:] for cell in row) else "."
    if rows and all(_is_float(cell, decimal) for cell in rows[0]):
        # numpy.savetxt writes the names as a comment
        above = [cell.strip() for cell in lines[skip - 1].lstrip("%# ").split(delimiter)] if skip else []
        if len(above) != len(rows[0]) or all(_is_float(cell, decimal) for cell in above):
            raise UserError(
                f"{path}: expected a header with the channels' names above the samples, got {listed(rows[0])}; add one"
            )
        return Header(above, skip, delimiter, decimal, encoding, float(rate[1]) if rate else None, rows)
    if not rows:
        raise UserError(f"{path}: expected a table with a header and a row for each sample, got comments only")
    cells = rows[0]
    if len(rows) > 1 and not any(rows[1][len(cells) :]):  # a delimiter at the end of each row
        cells = cells + [""] * (len(rows[1]) - len(cells))
    cells = [_printable(cell) for cell in cells]
    return Header(cells, skip + 1, delimiter, decimal, encoding, float(rate[1]) if rate else None, rows[1:])

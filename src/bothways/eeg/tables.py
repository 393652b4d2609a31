"""Recordings in tables: CSV, TSV and Parquet with a row for each sample and a column for each channel."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64

from bothways.eeg.channels import Channel, parse_labels
from bothways.eeg.recording import (
    Note,
    Recording,
    Segment,
    checked_rate,
    held_or_lazy,
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
from bothways.eeg.table_files import (
    NULLS,
    PARQUET_ENDINGS,
    RATE_KEY,
    Header,
    Table,
    is_float,
    is_number,
    one_line,
    rate_in,
    read_header,
    read_table_file,
)  # fmt: skip
from bothways.errors import UserError, plain_words
from bothways.files import read_json

_TIME = re.compile(
    r"(?i)(time|times|t|time ?stamps?|(sample|unix|lsl|local|elapsed|device)[ _]?time([ _]?stamp)?|date ?time|"
    r"(second|millisecond|microsecond)s?)"
)
_TIME_UNITS = {"s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s", "ms": "ms", "msec": "ms",
               "millisecond": "ms", "milliseconds": "ms", "us": "us", "µs": "us", "μs": "us", "microsecond": "us",
               "microseconds": "us", "ns": "ns"}  # fmt: skip
_MARKER = re.compile(
    r"(?i)(markers?|marker ?value(int)?|event ?id|stim(ulus)?|sti|trig(ger)?s?|events?|status|labels?|class|target|"
    r"code|din|states?|conditions?|phases?|stages?|annotations?)[ _]?\d*"
)
_EARLIEST, _LATEST = datetime(1990, 1, 1, tzinfo=UTC).timestamp(), datetime(2100, 1, 1, tzinfo=UTC).timestamp()
_SOME = 100_000
"""Of so many samples the usual size is taken."""
_FEW_VALUES, _OTHER_SCALE = 8, 30.0
"""A column without a 10-05 name that takes so few values, or is so many times larger or smaller, is no EEG."""
_NO_ROWS = "no data: the table has no rows below its header; leave the file out"
_HEAD_ROWS = 5_000
"""So many rows, as far as they fit in what is read of the beginning, are looked at where the first have one time."""


@dataclass(frozen=True)
class Column:
    """One column: its name, without the unit that stands with it, and that unit."""

    index: int
    name: str
    unit: str = ""


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
    table = read_table_file(path, notes, lambda cells: {column.index for column in _placed(cells, beside)})
    names, n = table.names, table.n_rows
    stated_hz = _rate(path, beside) or table.rate_hz if sfreq_hz is None else float(sfreq_hz)
    sfreq_hz = None if stated_hz is None else checked_rate(path, stated_hz)
    time, markers, others = sort_columns(names, beside)
    others += [marker for marker in markers if not _is_code(table.types[marker.index])]
    markers = [marker for marker in markers if _is_code(table.types[marker.index])]
    if not names or n == 0:
        raise UserError(f"{path}: {_NO_ROWS}")
    left_out = {names[column.index]: "time column" for column in ([time] if time else [])}

    picked, channels = _pick(path, table, others, left_out)
    if not picked:
        raise no_eeg_error(path, {**left_out, **{marker.name: "marker column" for marker in markers}})
    date = None
    if time is not None:
        stamps, time_unit = _stamps(path, table.read(time.index, None), time)
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
            f"rate; got the columns {listed(names)}; {_advice(path)}"
        )
    sfreq_hz = checked_rate(path, sfreq_hz)

    guessed = [column.name for column in picked if not column.unit]
    if guessed and unit is None:
        notes.append(Note("unit_guessed", f"unit taken for microvolts, as none is stated: {listed(guessed)}"))

    def read(rows: slice) -> Float32[np.ndarray, "c T"]:
        data_uv = np.empty((len(picked[rows]), n), np.float32)
        for row, column in zip(data_uv, picked[rows]):
            factor = unit_in_uv(unit or column.unit or "uV") or 1.0
            at = 0
            for chunk in table.read(column.index, None).chunks:  # double precision is held for one at a time
                row[at : at + len(chunk)] = possible_uv(_numbers(chunk) * factor)
                at += len(chunk)
        return data_uv

    data_uv = held_or_lazy((len(picked), n), read)
    marked = [event for marker in markers for event in _marked(table.read(marker.index, None), segments, sfreq_hz)]
    for marker in markers:
        leave_out(left_out, names[marker.index], "marker column, read as events")
    events = place_events(marked, segments, sfreq_hz, notes)
    positions = placed(channels, notes)
    form = "Parquet" if path.name.lower().endswith(PARQUET_ENDINGS) else "TSV" if ".tsv" in path.name.lower() else "CSV"
    return Recording(
        path, form, data_uv, named(channels, notes, positions), [names[column.index] for column in picked], positions,
        sfreq_hz, segments, events, left_out, date, notes, file_units=[column.unit for column in picked],
    )  # fmt: skip


def _placed(names: Sequence[str], beside: dict[str, Any]) -> list[Column]:
    """Returns the columns that have a 10-05 name."""
    others = sort_columns(names, beside)[2]
    return [
        column for column, channel in zip(others, parse_labels([column.name for column in others])) if channel.anode
    ]


def why_no_recording(path: Path) -> tuple[str, str] | None:
    """Says why a table is no recording but a list of labels, people or results; reads its beginning only.

    A recording has two columns of numbers or more, of which one at least has a 10-05 name, and a time column or a
    stated rate.

    Returns:
        `no_recording`, or, where it is all but one, `no_rate`, `no_times`, `no_data` or `not_read`, and the reason;
        None = it is one, or a Parquet file that is damaged.
    """
    parquet = path.name.lower().endswith(PARQUET_ENDINGS)
    try:
        beside = sidecar(path)
        if parquet:
            import pyarrow.parquet as pq

            schema = pq.ParquetFile(path).schema_arrow
            names, stated_hz = schema.names, rate_in(path, schema)
            numeric, header = [is_number(kind) for kind in schema.types], None
        else:
            header = read_header(path)
            names, stated_hz = header.cells, header.rate_hz
            numeric = [bool(header.first_rows) and _no_float(header, i) is None for i in range(len(names))]
        stated_hz = _rate(path, beside) or stated_hz
    except (UserError, OSError, ValueError) as problem:
        if isinstance(problem, OSError) and problem.errno is not None:
            return None if parquet else ("not_read", plain_words(problem))
        why = one_line(problem).removeprefix(f"{path}: ")
        return None if parquet else ("not_read", why)
    time, _, others = sort_columns(names, beside)
    channels = parse_labels([column.name for column in others])
    places = [channel.anode for column, channel in zip(others, channels) if numeric[column.index]]
    if len(places) < 2 or not any(places):
        named = [column for column, channel in zip(others, channels) if channel.anode]
        if header is not None and len(named) > 1:
            if not header.first_rows:
                return "no_data", _NO_ROWS
            wrong = [(column.name, *cell) for column in named if (cell := _no_float(header, column.index))]
            if (time is not None or stated_hz) and wrong and re.match(r"[-+]?[.,]?\d", wrong[0][2]):  # `1,234.5`
                return "not_read", _no_number_in(*wrong[0])
        return "no_recording", f"no columns of numbers with 10-05 names among {listed(names)}"
    if time is None and not stated_hz:
        if len(places) < len(others):  # samples have no names
            return "no_recording", f"no time column and no rate, and not only numbers, in {listed(names)}"
        return "no_rate", f"no time column and no rate; {_advice(path)}, if it is a recording"
    if time is not None and header is not None and numeric[time.index]:
        stamps = _first_times(header, time)
        if len(set(stamps)) < 2 and len(header.first_rows) > 2:  # samples come in bursts of one time
            stamps = _first_times(read_header(path, _HEAD_ROWS), time)
        if stamps and stamps[-1] < stamps[0]:
            rise = f"expected times that rise, got {stamps[0]:g} to {stamps[-1]:g} in column {names[time.index]}"
            return "no_times", f"{rise}; sort the rows by time, if it is a recording"
        if len(set(stamps)) < 2:
            reason = f"no samples: times do not rise from row to row in column {names[time.index]}"
            return "no_times" if len(header.first_rows) > 2 else "no_recording", reason
    return None


def why_text_left_out(path: Path) -> tuple[str, str] | None:
    """Says of a `.txt`, which no folder is searched for, that it looks like a recording; None = it does not."""
    try:
        names = read_header(path).cells
    except (UserError, OSError, ValueError):
        return None
    places = [channel for channel in parse_labels(names) if channel.anode]
    if len(places) < 2 and not any(name.startswith("EXG Channel") for name in names):  # OpenBCI's
        return None
    return "text_table", f"a .txt is read where it is given by itself; give it, if {listed(names)} are a recording"


def _first_times(header: Header, time: Column) -> list[float]:
    cells = [row[time.index] for row in header.first_rows if len(row) > time.index]
    numbers = (float(cell.replace(header.decimal, ".", 1)) for cell in cells if cell not in NULLS)
    return [number for number in numbers if np.isfinite(number)]


def _no_float(header: Header, index: int) -> tuple[int, str] | None:
    """The first row of a column that holds no number, and what it holds."""
    rows = ((n, row[index]) for n, row in enumerate(header.first_rows, 1) if len(row) > index)
    return next(((n, cell) for n, cell in rows if not is_float(cell, header.decimal)), None)


def _advice(path: Path) -> str:
    beside = f"in {_sidecar_path(path).name} beside it"
    return f"name the time column 'time', or state the rate as {{\"{RATE_KEY}\": 250}} {beside}"


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
    path: Path, table: Table, others: list[Column], left_out: dict[str, str]
) -> tuple[list[Column], list[Channel]]:
    """Chooses the EEG among the columns: by name, then, where the name says nothing, by what is in them."""
    picked: list[tuple[Column, Channel]] = []
    for column, channel in zip(others, parse_labels([column.name for column in others])):
        kind = table.types[column.index]
        why = channel.left_out
        if not column.name.strip() or re.fullmatch(r"Unnamed: \d+|__index_level_\d+__", column.name):
            why = "no name"
        elif not why and _TIME.fullmatch(column.name.strip()):
            why = "a second time column"
        elif not why and not is_number(kind) and (values := table.read(column.index, None)).null_count < len(values):
            if channel.anode:
                raise UserError(f"{path}: {_no_number(column.name, values)}")
            why = f"{kind}, no numbers"
        if why:
            leave_out(left_out, table.names[column.index], why)
        else:
            picked.append((column, channel))
    sizes = [_size(_numbers(table.read(column.index, _SOME))) for column, channel in picked if channel.anode]
    usual = float(np.median(sizes)) if sizes else 0.0
    kept = []
    for column, channel in picked:
        why = "" if channel.anode else _no_signal(_numbers(table.read(column.index, None)), usual)
        if why:
            leave_out(left_out, table.names[column.index], why)
        else:
            kept.append((column, channel))
    return [column for column, _ in kept], [channel for _, channel in kept]


def _no_signal(numbers: Float64[np.ndarray, " T"], usual: float) -> str:
    """Why a column without a 10-05 name is no EEG by its values; empty = it may be."""
    there = numbers[np.isfinite(numbers)]
    if len(there) == 0:
        return "no 10-05 name, and it is empty"
    if len(there) > 10 * _FEW_VALUES and len(np.unique(there[:_SOME])) <= _FEW_VALUES:
        return f"no 10-05 name, and it takes {_FEW_VALUES} values at most: a code or a state"
    if (np.diff(there) >= 0).all() and there[-1] > there[0]:
        return "no 10-05 name, and it only rises: a counter"
    size = _size(numbers[:_SOME])
    if usual and size and not 1 / _OTHER_SCALE <= size / usual <= _OTHER_SCALE:
        return f"no 10-05 name, and its values spread {size / usual:.2g} times as much as the EEG's"
    return ""


def _size(numbers: Float64[np.ndarray, " T"]) -> float:
    steps = np.abs(np.diff(numbers))
    steps = steps[np.isfinite(steps)]
    return float(steps.mean()) if len(steps) else 0.0


def _numbers(values: Any) -> Float64[np.ndarray, " T"]:
    import pyarrow as pa

    return values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) if len(values) else np.zeros(0)


def _is_code(kind: Any) -> bool:
    """Whether a marker can be of this type: a number, a word, true or false."""
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    plain = (pa.types.is_null, pa.types.is_boolean, pa.types.is_string, pa.types.is_large_string)
    return is_number(kind) or any(is_one(kind) for is_one in plain)


def _no_number(name: str, values: Any) -> str:
    import pyarrow as pa

    for row, value in enumerate(values.to_pylist() if pa.types.is_string(values.type) else [], 1):
        if not isinstance(value, str) or not is_float(value, "."):
            return _no_number_in(name, row, str(value))
    advice = "; write seconds, as numbers" if pa.types.is_time(values.type) else ""
    return f"expected numbers in column {name}, got {values.type}{advice}"


def _no_number_in(name: str, row: int, cell: str) -> str:
    return f"expected numbers in column {name}, row {row} holds {cell[:40]!r}; correct it or leave it empty"


def _stamps(path: Path, values: Any, column: Column) -> tuple[Float64[np.ndarray, " T"], str | None]:
    """The times as numbers and their unit, where it is known."""
    import pyarrow as pa

    if pa.types.is_timestamp(values.type) or pa.types.is_duration(values.type):
        in_ns = pa.timestamp("ns") if pa.types.is_timestamp(values.type) else pa.duration("ns")
        whole = values.cast(in_ns, safe=False).cast(pa.int64())
        return _numbers(whole) * 1e-9, "s"
    if not is_number(values.type):
        raise UserError(f"{path}: {_no_number(column.name, values)}")
    return _numbers(values), column.unit or None


def _marked(values: Any, segments: Sequence[Segment], sfreq_hz: float) -> list[tuple[float, float, str]]:
    """(true onset, duration, label) wherever a marker changes to something."""
    if is_number(values.type):
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

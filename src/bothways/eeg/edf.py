"""EDF, EDF+, BDF: header, samples and annotations as they stand in the file.

mne reads these too, but it joins the pieces of a discontinuous file, brings mixed rates to the highest one and
takes an unknown unit for volts. Here each channel keeps its own rate and unit and each record its own time.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int32, UInt8

from bothways.errors import UserError

MAX_SIGNALS = 10_000
_BLOCK_BYTES = 2**26
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")


@dataclass(frozen=True)
class EdfSignal:
    """One row of the header: a channel as the file describes it."""

    label: str
    unit: str
    physical: tuple[float, float]
    digital: tuple[float, float]
    n_per_record: int
    offset: int
    """Samples before it in a record."""

    @property
    def is_annotation(self) -> bool:
        """Whether it holds text (EDF+) and no samples."""
        return self.label in ("EDF Annotations", "BDF Annotations")

    @property
    def scale(self) -> tuple[float, float]:
        """Factor and offset from a stored integer to the channel's own unit."""
        (low, high), (digital_low, digital_high) = self.physical, self.digital
        gain = (high - low) / (digital_high - digital_low)
        return gain, low - digital_low * gain

    @property
    def no_scale(self) -> tuple[str, tuple[float, float]] | None:
        """The range that is no scale, and which it is (`physical`, `digital`); None = both are."""
        if not np.isfinite(self.physical).all() or self.physical[0] == self.physical[1]:
            return "physical", self.physical
        if not np.isfinite(self.digital).all() or self.digital[0] >= self.digital[1]:
            return "digital", self.digital
        return None


@dataclass
class EdfFile:
    """An open EDF or BDF file."""

    path: Path
    format: str
    start: datetime | None
    record_s: float
    signals: list[EdfSignal]
    data_start: int
    n_records: int
    record_bytes: int
    sample_bytes: int
    notes: list[tuple[str, str]] = field(default_factory=list)

    def rate_hz(self, signal: EdfSignal) -> float:
        """Samples in a second."""
        return signal.n_per_record / self.record_s

    def blocks(self) -> Iterator[tuple[int, UInt8[np.ndarray, "n bytes"]]]:
        """Yields the bytes of the whole records, so many at a time that memory stays bounded, and which is the first.

        Each block is a map of its own: the pages of a map that is kept count as memory in use.
        """
        at_once = max(_BLOCK_BYTES // self.record_bytes, 1)
        for first in range(0, self.n_records, at_once):
            shape = (min(at_once, self.n_records - first), self.record_bytes)
            yield first, np.memmap(self.path, np.uint8, "r", self.data_start + first * self.record_bytes, shape)

    def pieces(self, signals: Sequence[EdfSignal]) -> Iterator[tuple[int, list[Int32[np.ndarray, " t"]]]]:
        """Yields the stored integers of some channels, a piece of time after the other, and its first record."""
        for first, block in self.blocks():
            yield first, [self._integers(block, signal) for signal in signals]

    def digital(self, signal: EdfSignal) -> Int32[np.ndarray, " T"]:
        """Returns the stored integers of one channel."""
        whole = [integers for _, (integers,) in self.pieces([signal])]
        return np.concatenate(whole) if whole else np.zeros(0, np.int32)

    def _integers(self, block: UInt8[np.ndarray, "n bytes"], signal: EdfSignal) -> Int32[np.ndarray, " t"]:
        width = self.sample_bytes
        columns = block[:, signal.offset * width : (signal.offset + signal.n_per_record) * width]
        flat = np.ascontiguousarray(columns)
        if width == 2:
            return flat.view("<i2").reshape(-1).astype(np.int32)
        bytes3 = flat.reshape(-1, 3)
        padded = np.zeros((len(bytes3), 4), np.uint8)
        padded[:, 1:] = bytes3
        return padded.view("<i4").reshape(-1) >> 8

    def annotations(self) -> tuple[list[float | None], list[tuple[float, float, str]]]:
        """Returns the start of each record (None = not given) and the texts as (onset_s, duration_s, text)."""
        starts: list[float | None] = [None] * self.n_records
        texts: list[tuple[float, float, str]] = []
        width = self.sample_bytes
        signals = [signal for signal in self.signals if signal.is_annotation]
        if not signals:
            return starts, texts
        records = (record for _, block in self.blocks() for record in block)
        for index, record in enumerate(records):
            for place, signal in enumerate(signals):
                piece = record[signal.offset * width : (signal.offset + signal.n_per_record) * width].tobytes()
                for number, entry in enumerate(piece.split(b"\x00")):
                    stamp, *entries = entry.split(b"\x14")
                    onset, _, duration = stamp.partition(b"\x15")
                    onset_s, duration_s = _number(onset), _number(duration)
                    if onset_s is None:
                        continue
                    if place == 0 and number == 0 and starts[index] is None:
                        starts[index] = onset_s
                    texts += [(onset_s, duration_s or 0.0, decoded) for text in entries if (decoded := _text(text))]
        return starts, texts


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8").strip()
    except UnicodeDecodeError:
        return content.decode("latin-1").strip()


def _field(content: bytes) -> str:
    """Text of a header field: UTF-8 where it is that, maybe cut at the field's end, else Latin-1; no control codes."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as problem:
        cut = problem.reason == "unexpected end of data" and not content[: problem.start].isascii()
        text = content[: problem.start].decode("utf-8") if cut else content.decode("latin-1")
    return "".join(c for c in text if unicodedata.category(c) != "Cc").strip()


def _number(content: bytes) -> float | None:
    """A number as recorders write it: ended by NUL instead of spaces, or with a decimal comma, too."""
    try:
        value = float(content.partition(b"\0")[0].replace(b",", b"."))
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def open_edf(path: Path) -> EdfFile:
    """Opens an EDF or BDF file and checks its header against its size.

    Raises:
        UserError: it is no EDF, or its header is incomplete or contradicts itself.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        fixed = file.read(256)
        biosemi = fixed[:8] == b"\xffBIOSEMI"
        if not biosemi and fixed[:8].strip(b" \0") != b"0":
            what = "is empty" if size == 0 else f"begins with {fixed[:16]!r}"
            raise UserError(f"{path}: not an EDF or BDF file: it {what}; check that it was copied whole")
        n_signals = _whole(fixed[252:256])
        if len(fixed) < 256 or n_signals is None or not 0 < n_signals <= MAX_SIGNALS:
            _incomplete(path, size, 256, n_signals)
        assert n_signals is not None
        rows = file.read(256 * n_signals)
    if len(rows) < 256 * n_signals:
        _incomplete(path, size, 256 * (1 + n_signals), n_signals)
    header_bytes = _whole(fixed[184:192])
    n_declared = _whole(fixed[236:244]) if fixed[236:244].strip(b" \0") else -1
    record_s = _number(fixed[244:252])
    if n_declared is None or record_s is None or record_s < 0:
        raise UserError(
            f"{path}: expected a record count and duration in the EDF header, got {fixed[236:244]!r} and "
            f"{fixed[244:252]!r}; the header is damaged"
        )
    signals = _signals(path, rows, n_signals)
    sample_bytes = 3 if biosemi else 2
    notes: list[tuple[str, str]] = []
    commas = [c.decode("latin-1").strip(" \0") for c in (fixed[244:252], *_ranges(rows, n_signals)) if b"," in c]
    if commas:
        shown = ", ".join(f"'{text}'" for text in list(dict.fromkeys(commas))[:4])
        notes.append(("decimal_comma", f"numbers of the header have a comma, taken for the decimal point: {shown}"))
    if header_bytes != 256 * (1 + n_signals):
        notes.append(("header_size", f"header states {header_bytes} bytes, has {256 * (1 + n_signals)}"))
    record_bytes = sample_bytes * sum(signal.n_per_record for signal in signals)
    if record_bytes == 0:
        raise UserError(f"{path}: expected samples in each record, the EDF header states none; nothing to read")
    n_records, rest = divmod(max(size - 256 * (1 + n_signals), 0), record_bytes)
    if n_declared == -1:
        notes.append(("record_count", f"no record count (not closed by the recorder); {n_records} from the size"))
    elif n_records != n_declared:
        notes.append(
            ("truncated" if n_records < n_declared else "record_count",
             f"header states {n_declared} records, the file holds {n_records} whole ones; those are read")
        )  # fmt: skip
    if rest and n_records >= n_declared:
        notes.append(("truncated", f"the last {rest} bytes are no whole record and are left out"))
    reserved = fixed[192:236].decode("latin-1").strip()
    kind = "BDF" if biosemi else "EDF"
    plus = re.match(r"(EDF|BDF)\+([CD])", reserved)
    start = _start(fixed, plus is not None)
    if start is None:
        notes.append(("bad_date", f"start {fixed[168:184].decode('latin-1')!r} is no date; taken for unknown"))
    return EdfFile(
        path, f"{kind}+{plus[2]}" if plus else kind, start, record_s, signals, 256 * (1 + n_signals), n_records,
        record_bytes, sample_bytes, notes,
    )  # fmt: skip


def _incomplete(path: Path, size: int, needed: int, n_signals: int | None) -> None:
    raise UserError(
        f"{path}: the EDF header is incomplete: {size} bytes with "
        f"{'an unreadable number of' if n_signals is None else n_signals} signals, at least {needed} bytes "
        "expected; copy the file again"
    )


def _whole(content: bytes) -> int | None:
    value = _number(content)
    return int(value) if value is not None and value == int(value) else None


def _column(rows: bytes, n_signals: int, start: int, width: int) -> list[bytes]:
    at = start * n_signals
    return [rows[at + i * width : at + (i + 1) * width] for i in range(n_signals)]


def _ranges(rows: bytes, n_signals: int) -> list[bytes]:
    """Physical minimum and maximum, digital minimum and maximum of all signals, one after the other."""
    return [c for start in (104, 112, 120, 128) for c in _column(rows, n_signals, start, 8)]


def _signals(path: Path, rows: bytes, n_signals: int) -> list[EdfSignal]:
    labels, units = _column(rows, n_signals, 0, 16), _column(rows, n_signals, 96, 8)
    numbers = [_number(c) for c in _ranges(rows, n_signals)]
    ranges = [numbers[at * n_signals : (at + 1) * n_signals] for at in range(4)]
    signals: list[EdfSignal] = []
    offset = 0
    for i, n in enumerate(_column(rows, n_signals, 216, 8)):
        n_per_record = _whole(n)
        if n_per_record is None or n_per_record < 0:
            raise UserError(f"{path}: expected a number of samples for signal {i + 1}, got {n!r}; header damaged")
        low, high, digital_low, digital_high = (np.nan if r[i] is None else float(r[i] or 0) for r in ranges)
        label, unit = _field(labels[i]), _field(units[i])
        signals.append(EdfSignal(label, unit, (low, high), (digital_low, digital_high), n_per_record, offset))
        offset += n_per_record
    return signals


def _start(fixed: bytes, plus: bool) -> datetime | None:
    """The recorder's clock; EDF+ states the century in the recording field, EDF means 1985-2084."""
    text = fixed[168:184].decode("latin-1")
    match = re.fullmatch(r"(\d\d)\.(\d\d)\.(\d\d)(\d\d)[.:](\d\d)[.:](\d\d)", text)
    if match is None:
        return None
    day, month, year, hour, minute, second = (int(part) for part in match.groups())
    year += 1900 if year >= 85 else 2000
    stated = re.match(r"Startdate (\d\d)-([A-Z]{3})-(\d{4})", fixed[88:168].decode("latin-1"))
    if plus and stated and stated[2] in _MONTHS:
        day, month, year = int(stated[1]), _MONTHS.index(stated[2]) + 1, int(stated[3])
    try:
        return datetime(year, month, day, hour, minute, second)
    except ValueError:
        return None


def status_events(codes: Int32[np.ndarray, " T"]) -> list[tuple[int, int]]:
    """Returns (sample, code) where the low 16 bits of a status channel change to something other than 0.

    The bits above are the amplifier's own (BioSemi: CMS in range, speed, epoch, battery) and are no triggers.
    """
    low: Any = codes & 0xFFFF
    changes = np.flatnonzero((low[1:] != low[:-1]) & (low[1:] != 0)) + 1
    return [(int(at), int(low[at])) for at in changes]

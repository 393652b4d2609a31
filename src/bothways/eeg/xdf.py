"""XDF, the files of Lab Streaming Layer: the EEG stream, and every stream of markers as events.

A stream has the times that its computer's clock gave, and how far that clock was from the recorder's; pyxdf brings
both together. The amplifier's own clock is the more even one: where it and the stamps agree on the rate but for a
thousandth, its rate stands and all times are told in its seconds.
"""

import gzip
import io
import logging
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

import numpy as np
from jaxtyping import Float64

from bothways.eeg.channels import Channel, shown
from bothways.eeg.edf import status_events
from bothways.eeg.recording import (
    Note,
    Recording,
    Segment,
    checked_rate,
    listed,
    named,
    pick_eeg,
    place_events,
    placed,
    possible_uv,
    true_time_s,
    unit_in_uv,
    unit_notes,
)
from bothways.eeg.stamps import read_stamps
from bothways.errors import UserError

XDF_ENDINGS = (".xdf", ".xdfz")
_STREAM_HEADER, _SAMPLES, _CLOCK = 2, 3, 4
_TAGS = range(1, 7)
_WITH_STREAM = (2, 3, 4, 6)  # the last is the footer
_BOUNDARY = bytes.fromhex("43a546dccbf5410fb30ed5467383cbe4")
_WIDTHS = {"float32": 4, "double64": 8, "int8": 1, "int16": 2, "int32": 4, "int64": 8, "string": 0}
"""Bytes of a value; strings state theirs."""
_MOST_PACKED = 200
"""An `.xdfz` unpacks to less than so many times its size."""
_SAME_RATE = 1e-3
"""Clocks differ by less than this share; a stated rate further from the measured one is wrong."""
_NO_DIFFERENCE = 1e-5
_MARKERS = ("marker", "markers", "event", "events", "trigger", "triggers", "stim", "annotation", "annotations")


def read_xdf(path: Path, unit: str | None) -> Recording:
    """Reads the EEG stream of a file; see `recording.read_recording`.

    Raises:
        UserError: no XDF, damaged, or not exactly one EEG stream with samples.
    """
    notes: list[Note] = []
    eeg, markers, header = _load(path, notes)
    labels, kinds, units, points = _described(eeg)

    triggers = [index for index, kind in enumerate(kinds) if kind.lower() in _MARKERS]

    def why_not(index: int, channel: Channel) -> str:
        kind, unit_text = kinds[index], units[index]
        if index in triggers:
            return "trigger channel, read as events"
        if kind and kind.lower() != "eeg":
            return f"{shown(kind)} channel in the file, not scalp EEG"
        if not channel.left_out and unit_text and unit_in_uv(unit_text) is None and channel.anode is None:
            return f"unit {shown(unit_text)!r} is no voltage"
        return channel.left_out

    picks, channels, left_out = pick_eeg(path, labels, why_not)
    file_names, file_units = [labels[pick] for pick in picks], [units[pick] for pick in picks]
    notes += unit_notes(file_names, file_units, unit)

    sfreq_hz, segments, to_own_s = _times(path, eeg, notes)
    samples = eeg["time_series"]
    data_uv = np.empty((len(picks), len(samples)), np.float32)
    with np.errstate(invalid="ignore"):  # a NaN of damaged bytes may signal
        for row, pick in zip(data_uv, picks):
            row[:] = possible_uv(samples[:, pick].astype(np.float64) * (unit_in_uv(unit or units[pick]) or 1.0))
    events = [(to_own_s(onset_s), 0.0, label) for stream in markers for onset_s, label in _marks(stream)]
    for pick in triggers:
        codes = np.clip(np.nan_to_num(samples[:, pick].astype(np.float64)), -(2**31), 2**31 - 1).astype(np.int32)
        for sample, code in status_events(codes):
            events.append((true_time_s(sample / sfreq_hz, segments, sfreq_hz), 0.0, str(code)))
    positions = placed(channels, notes, points[picks])
    return Recording(
        path, "XDF", data_uv, named(channels, notes, positions), file_names, positions, sfreq_hz,
        segments, place_events(events, segments, sfreq_hz, notes), left_out, _start(header), notes,
        file_units=file_units,
    )  # fmt: skip


def _load(path: Path, notes: list[Note]) -> tuple[dict[str, Any], list[dict[str, Any]], Any]:
    """Returns the EEG stream, the streams of markers and the file's header."""
    import pyxdf

    content = _content(path)
    log = _Log()
    logger = logging.getLogger("pyxdf")
    logger.addHandler(log)
    was, logger.propagate = logger.propagate, False
    try:
        wanted, chunks = _choose(path, content, _chunks(content, notes), notes)
        sound = b"".join([content[:4], *(memoryview(content)[chunk.starts : chunk.ends] for chunk in chunks)])
        del content
        streams, header = pyxdf.load_xdf(io.BytesIO(sound), wanted, dejitter_timestamps=False, verbose=False)
    except (UserError, MemoryError):
        raise
    except Exception as problem:  # of damaged files all kinds
        why = f"{type(problem).__name__}: {' '.join(str(problem).split())[:300]}"
        raise UserError(f"{path}: expected an XDF file, but {shown(why)}; check that it was copied whole") from None
    finally:
        logger.removeHandler(log)
        logger.propagate = was
    notes += [Note("reader", text) for text in dict.fromkeys(log.errors)]
    (eeg,) = (stream for stream in streams if stream["info"]["stream_id"] == wanted[0])
    return eeg, [stream for stream in streams if stream is not eeg], header


def _content(path: Path) -> bytearray:
    """The file's bytes, unpacked; no more of them than an XDF file can have."""
    most = _MOST_PACKED * path.stat().st_size + 2**20
    content = bytearray()
    with gzip.open(path) if path.suffix.lower() == ".xdfz" else path.open("rb") as file:
        try:
            while content[:4] in (b"", b"XDF:") and len(content) <= most and (piece := file.read(2**20)):
                content += piece
        except (EOFError, gzip.BadGzipFile, zlib.error) as problem:
            raise UserError(f"{path}: expected an XDF file, but {problem}; copy it again") from None
    if content[:4] != b"XDF:":
        what = f"one that begins with {bytes(content[:16])!r}" if content else "an empty one"
        raise UserError(f"{path}: expected an XDF file, got {what}; check that it was copied whole")
    if len(content) > most:
        raise UserError(
            f"{path}: expected an XDF file, got one that unpacks to more than {_MOST_PACKED} times its size; it is "
            "damaged, copy it again"
        )
    return content


class _Log(logging.Handler):
    """Keeps what pyxdf says of damage; that gaps and clocks differ is told by the times."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.errors.append(shown(" ".join(record.getMessage().split())[:300]))


@dataclass(frozen=True)
class _Chunk:
    """One chunk: it starts with its length, its content begins behind its tag and stream (-1 = it is of none)."""

    tag: int
    stream: int
    starts: int
    begins: int
    ends: int


def _chunks(content: bytearray, notes: list[Note]) -> list[_Chunk]:
    """Finds the whole chunks; behind damage they go on at the next boundary, if the file has any."""
    chunks: list[_Chunk] = []
    holes: list[tuple[int, int]] = []
    at, n = 4, len(content)
    while at < n:
        length, begins = _length(content, at)
        ends = begins + length
        tag = int.from_bytes(content[begins : begins + 2], "little")
        head = 6 if tag in _WITH_STREAM else 2
        if head <= length <= n - begins and tag in _TAGS:
            stream = int.from_bytes(content[begins + 2 : begins + 6], "little") if head == 6 else -1
            chunks.append(_Chunk(tag, stream, at, begins + head, ends))
            at = ends
            continue
        found = content.find(_BOUNDARY, at)
        if found < 0 <= length and ends > n:
            notes.append(Note("truncated", f"the last {n - at} bytes are part of a chunk and are left out"))
            break
        holes.append((at, n if found < 0 else found + len(_BOUNDARY)))
        at = holes[-1][1]
    if holes:
        lost, where = sum(b - a for a, b in holes), listed([str(a) for a, _ in holes])
        notes.append(Note("damaged", f"{lost} bytes, from byte {where} on, are damaged and left out"))
    return chunks


def _length(content: bytearray, at: int) -> tuple[int, int]:
    """Returns a number of one, four or eight bytes, behind the byte that says how many; -1 = it says something else."""
    begins = at + 1 + content[at]
    return int.from_bytes(content[at + 1 : begins], "little") if content[at] in (1, 4, 8) else -1, begins


def _choose(path: Path, content: bytearray, chunks: list[_Chunk], notes: list[Note]) -> tuple[list[int], list[_Chunk]]:
    """Returns the numbers of the EEG stream and of those that hold markers, and the sound chunks of these.

    What pyxdf is given holds what it states: it would take memory for whatever that is.
    """
    from defusedxml.ElementTree import fromstring

    headers: dict[int, _Chunk] = {}
    for chunk in chunks:
        if chunk.tag == _STREAM_HEADER:
            headers.setdefault(chunk.stream, chunk)
    found: dict[int, dict[str, str]] = {}
    for stream, chunk in headers.items():
        try:
            xml = fromstring(content[chunk.begins : chunk.ends].decode("utf-8", "replace"))
        except ParseError as problem:
            raise UserError(f"{path}: the header of stream {stream} is damaged: {problem}; copy it again") from None
        keys = ("name", "type", "channel_format", "channel_count")
        found[stream] = {key: (xml.findtext(key) or "").strip() for key in keys}
    filled = {chunk.stream for chunk in chunks if chunk.tag == _SAMPLES}
    numeric = [
        stream for stream, info in found.items() if info["channel_format"] != "string" and info["type"].lower() == "eeg"
    ]
    eeg = [stream for stream in numeric if stream in filled]
    if len(eeg) != 1:
        if numeric and not eeg:
            raise UserError(f"{path}: no data: the EEG stream has no samples; leave the file out")
        names = listed([f"{found[s]['name']} ({found[s]['type'] or 'no type'})" for s in eeg or found]) or "none"
        what = "save each as a file of its own" if eeg else "set the stream's type to EEG when recording"
        raise UserError(f"{path}: expected one stream of type EEG, got {names}; {what}")
    wanted = eeg + [
        stream
        for stream, info in found.items()
        if stream in filled and (info["channel_format"] == "string" or info["type"].lower() in _MARKERS)
    ]
    sound, damaged = [], 0
    for chunk in chunks:
        if chunk.stream not in (-1, *wanted):
            continue
        n = 1
        if chunk.tag == _SAMPLES:
            n = _n_samples(content, chunk, found[chunk.stream])
        if chunk.tag == _CLOCK and chunk.ends - chunk.begins != 16:
            n = -1
        if chunk.tag == _STREAM_HEADER and chunk is not headers[chunk.stream]:
            n = -1
        sound += [chunk] * (n > 0)
        damaged += n < 0
    if damaged:
        notes.append(Note("damaged", f"{damaged} chunks do not hold what they should and are left out"))
    filled = {chunk.stream for chunk in sound if chunk.tag == _SAMPLES}
    if eeg[0] not in filled:
        raise UserError(
            f"{path}: expected samples of {shown(found[eeg[0]]['channel_count'][:40]) or 'no'} channels in the EEG "
            "stream, no chunk of it holds them; it is damaged, copy it again"
        )
    return [stream for stream in wanted if stream in filled], [c for c in sound if c.stream in (-1, *filled)]


def _n_samples(content: bytearray, chunk: _Chunk, info: dict[str, str]) -> int:
    """How many samples a chunk holds; -1 = not as many, of as many channels, as are stated."""
    if not re.fullmatch(r"0*[1-9]\d{0,8}", info["channel_count"]) or chunk.begins == chunk.ends:
        return -1
    n_channels, width = int(info["channel_count"]), _WIDTHS.get(info["channel_format"], 0)
    n, at = _length(content, chunk.begins)
    for _ in range(n):
        if at >= chunk.ends:
            return -1
        at += 9 if content[at] else 1  # the time is left out where it follows from the one before
        at += n_channels * width
        for _ in range(0 if width else n_channels):
            if at >= chunk.ends:
                return -1
            length, begins = _length(content, at)
            at = begins + max(length, 0)
    return n if at == chunk.ends else -1


def _first(holder: Any, *keys: str) -> Any:
    """Goes down into pyxdf's lists of one; None where something is not there."""
    for key in keys:
        items = holder.get(key) if isinstance(holder, dict) else None
        holder = items[0] if isinstance(items, list) and items else None
    return holder


def _described(stream: dict[str, Any]) -> tuple[list[str], list[str], list[str], Float64[np.ndarray, "C 3"]]:
    """Returns label, type, unit and position of each channel; "" and NaN where the stream says nothing."""
    n = stream["time_series"].shape[1]
    channels = _first(stream["info"], "desc", "channels")
    described = channels.get("channel", []) if isinstance(channels, dict) else []
    if len(described) != n:  # then it is not known which is which
        described = [None] * n

    def text(channel: Any, *keys: str) -> str:
        value = _first(channel, *keys)
        return value.strip() if isinstance(value, str) else ""

    def number(channel: Any, axis: str) -> float:
        try:
            return float(text(channel, "location", axis))
        except ValueError:
            return np.nan

    labels = [text(channel, "label") or text(channel, "name") or f"Ch{i + 1}" for i, channel in enumerate(described)]
    points = np.array([[number(channel, axis) for axis in "XYZ"] for channel in described], np.float64)
    kinds, units = ([text(channel, key) for channel in described] for key in ("type", "unit"))
    return labels, kinds, units, points.reshape(n, 3)


def _marks(stream: dict[str, Any]) -> list[tuple[float, str]]:
    """Returns (time, label) of each marker; the values of several channels stand behind each other.

    Of numbers at a constant rate, a trigger line, only a change to another one than 0 is a marker.
    """
    times_s, series = stream["time_stamps"], stream["time_series"]
    if _rate_hz(stream) > 0 and isinstance(series, np.ndarray):
        series = np.nan_to_num(series)
        begins = np.flatnonzero(((series[1:] != series[:-1]) & (series[1:] != 0)).any(1)) + 1
        times_s, series = times_s[begins], series[begins]
    marks = []
    for time_s, values in zip(times_s, series):
        texts = [f"{value:g}" if isinstance(value, np.floating) else str(value) for value in values]
        if (label := " ".join(" ".join(texts).split())) and np.isfinite(time_s):
            marks.append((float(time_s), label))
    return marks


def _rate_hz(stream: dict[str, Any]) -> float:
    """The stated rate; 0 = none."""
    try:
        return float(_first(stream["info"], "nominal_srate") or 0)
    except (TypeError, ValueError):
        return 0.0


def _times(path: Path, eeg: dict[str, Any], notes: list[Note]) -> tuple[float, list[Segment], Callable[[float], float]]:
    """Returns rate, segments, and what turns the recorder's times into seconds since the first sample."""
    stamps = np.asarray(eeg["time_stamps"], np.float64)
    timing = read_stamps(path, stamps, "s", mend="the stream's times are damaged, leave the file out")
    stated_hz = _rate_hz(eeg)
    agree = stated_hz > 0 and abs(timing.sfreq_hz / stated_hz - 1) <= _SAME_RATE
    sfreq_hz = checked_rate(path, stated_hz if agree else timing.sfreq_hz)
    longest = max(timing.segments, key=lambda segment: segment.stop - segment.start)
    own = stamps[longest.start : longest.stop]
    exact_hz = 1 / float(np.polyfit(np.arange(len(own)), own - own[0], 1)[0]) if len(own) > 1 else sfreq_hz
    notes += [note for note in timing.notes if note.code not in ("time_jitter", "rate_rounded")]
    if not agree and stated_hz > 0:
        notes.append(
            Note("rate_measured", f"{sfreq_hz:g} Hz taken, which the times give; the stream states {stated_hz:g} Hz")
        )
    elif abs(exact_hz / sfreq_hz - 1) > _NO_DIFFERENCE:
        notes.append(Note("rate_rounded", f"{sfreq_hz:g} Hz taken for the {exact_hz:.6g} Hz that the times give"))
    begin_s = [
        float(stamps[segment.start : segment.stop].mean() - (segment.stop - segment.start - 1) / 2 / exact_hz)
        for segment in timing.segments
    ]
    scale = exact_hz / sfreq_hz
    segments = [
        Segment(segment.start, segment.stop, round((at_s - begin_s[0]) * scale, 6))
        for segment, at_s in zip(timing.segments, begin_s)
    ]
    return sfreq_hz, segments, lambda time_s: round((time_s - begin_s[0]) * scale, 6)


def _start(header: Any) -> datetime | None:
    """When the recorder began, on its own clock."""
    try:
        return datetime.fromisoformat(_first((header or {}).get("info"), "datetime").strip()).replace(tzinfo=None)
    except (AttributeError, ValueError):
        return None

"""Damaged recordings: what they are made of, how they are damaged, and what must be true of whatever is read.

A mutant is a name and a number: the same two give the same bytes. `examine` works in a process of its own, so that a
hang ends that process only and its memory is its own.
"""

import gzip
import json
import re
import signal
import tempfile
import traceback
import warnings
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from recordings import noise_uv, write_brainvision, write_edf, write_eeglab, write_fif
from xdf import Stream, bodies, joined, write_xdf

SEED = 4
MAX_S = 10
"""Of processor time; reading, judging and preparing a mutant takes less, or its process is ended."""
MAX_GROWTH = 2**29
"""Bytes by which a mutant may raise the peak of memory."""
MAX_MESSAGE = 1500
NAMES = ["Fp1", "Fp2", "C3", "C4"]
TEXT_ENDINGS = (".vhdr", ".vmrk", ".csv", ".tsv", ".json", ".head", ".txt")
NUMBERS = ("", " ", "0", "-1", "nan", "inf", "-inf", "1e400", "1e-300", "1e300", "99999999", "9" * 30, "2147483648",
           "0.001", "1,5", "x", "µ", "\0", "1" * 5000)  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """`number` says how the recording `name`, whose files lie in `folder`, is damaged."""

    folder: Path
    name: str
    number: int


def write_seeds(root: Path) -> list[tuple[Path, str]]:
    """Writes whole recordings of all kinds, each in a folder of its own; returns folder and main file of each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = noise_uv(4, 1600)
    marks = [(0.5, 1.0, "go"), (3.0, None, "Sleep stage 2"), (99.0, 1.0, "late")]
    write_edf(root / "edf" / "a.edf", data, ["EEG Fp1-REF", "Fp2", "C3", "EKG"], units=["uV", "mV", "", "uV"])
    write_edf(root / "edf_c" / "a.edf", data, NAMES, plus="C", annotations=marks)
    write_edf(root / "edf_d" / "a.edf", data, NAMES, plus="D", annotations=marks, onsets_s=[0, 1, 2, 5, 6, 7, 20, 21])
    codes = np.repeat([0, 1, 0, 7], 400)
    write_edf(root / "bdf" / "a.bdf", data, NAMES, bdf=True, status=codes)
    write_edf(root / "mixed" / "a.rec", [*data[:3], data[3, ::2]], NAMES)
    (root / "vhdr").mkdir()
    write_brainvision(root / "vhdr" / "a.vhdr", data, NAMES)
    (root / "set").mkdir()
    write_eeglab(root / "set" / "a.set", data, NAMES)
    (root / "fif").mkdir()
    write_fif(root / "fif" / "a_raw.fif", data, NAMES)

    (root / "xdf").mkdir()
    eeg = Stream(data.T, np.arange(1600) / 200, rate_hz=200, channels=[(name, "EEG", "uV") for name in NAMES])
    words = Stream([["go"]], [4.0], kind="Markers", form="string", rate_hz=0)
    line = Stream(codes[:, None], np.arange(1600) / 200, kind="Trigger", form="int16", rate_hz=200)
    write_xdf(root / "xdf" / "a.xdf", [eeg, words, line])

    head = "time,Fp1,C3 (uV),AUX,label\n"
    lines = [f"{i / 200:.4f},{a:.1f},{b:.1f},{c:.2f},{i // 500}\n" for i, (a, b, c, _) in enumerate(data.T)]
    for name in ("csv/a.csv", "tsv/a.tsv", "gz/a.csv.gz"):
        (root / name).parent.mkdir()
    (root / "csv" / "a.csv").write_text(head + "".join(lines))
    without_time = (line.partition(",")[2].replace(",", "\t") for line in [head, *lines])
    (root / "tsv" / "a.tsv").write_text("".join(without_time))
    (root / "tsv" / "a.json").write_text('{"SamplingFrequency": 200, "Fp1": {"Units": "mV"}, "Units": "uV"}')
    (root / "gz" / "a.csv.gz").write_bytes(gzip.compress((head + "".join(lines)).encode(), mtime=0))
    (root / "parquet").mkdir()
    table = pa.table({"timestamp": np.arange(1600) / 200, "Fp1": data[0], "C3": data[1], "label": ["x"] * 1600})
    pq.write_table(table, root / "parquet" / "a.parquet")

    bids = root / "bids" / "sub-1" / "eeg" / "sub-1_task-x_eeg.edf"
    write_edf(bids, data, NAMES, units="")
    beside = {
        "_channels.tsv": "name\ttype\tunits\tstatus\nFp1\tEEG\tmV\tgood\nFp2\tEOG\tuV\tgood\nC3\tEEG\tuV\tbad\n",
        "_events.tsv": "onset\tduration\ttrial_type\n0.5\t1\tgo\n\n3\tn/a\tstop\n99\t1\tlate\n",
        "_electrodes.tsv": "name\tx\ty\tz\nFp1\t-0.03\t0.08\t0\nC3\t-0.06\t0\t0.06\n",
        "_coordsystem.json": '{"EEGCoordinateSystem": "CapTrak"}',
        "_eeg.json": '{"SamplingFrequency": 200, "PowerLineFrequency": 50, "EEGReference": "Cz"}',
    }
    for suffix, text in beside.items():
        bids.with_name(bids.name.replace("_eeg.edf", suffix)).write_text(text)
    (root / "bids" / "participants.tsv").write_text("participant_id\tage\nsub-1\t40\n")
    (root / "bids" / "dataset_description.json").write_text('{"Name": "x", "BIDSVersion": "1.8.0"}')
    mains = ["edf/a.edf", "edf_c/a.edf", "edf_d/a.edf", "bdf/a.bdf", "mixed/a.rec", "vhdr/a.vhdr", "set/a.set",
             "fif/a_raw.fif", "xdf/a.xdf", "csv/a.csv", "tsv/a.tsv", "gz/a.csv.gz", "parquet/a.parquet"]  # fmt: skip
    return [(root / "bids", bids.relative_to(root / "bids").as_posix())] + [
        (root / main.partition("/")[0], main.partition("/")[2]) for main in mains
    ]


def mutate(files: dict[str, bytes], main: str, number: int) -> tuple[dict[str, bytes], str]:
    """Damages one of a recording's files, mostly the main one; returns the files and what was done to them.

    Nothing is damaged by number 0.
    """
    if number == 0:
        return files, "whole"
    rng = np.random.default_rng([SEED, zlib.crc32(main.encode()), len(files[main]), number])
    small = [name for name in sorted(files) if name != main]
    name = main if not small or rng.random() < 0.6 else str(rng.choice(small))
    if main.endswith(".gz") and number % 2:  # what is packed, and packed again
        inside, how = mutate({main[:-3]: gzip.decompress(files[main])}, main[:-3], number)
        return {main: gzip.compress(inside[main[:-3]], mtime=0)}, f"packed {how}"
    content = files[name]
    kinds: list[Callable[[bytes, np.random.Generator], bytes]] = [_flips, _cut, _number, _section, _flips_in_front]
    if name.lower().endswith(TEXT_ENDINGS):
        kinds += [_text_number, _text_lines, _encoded] * 2
    elif content[:8] in (b"0       ", b"\xffBIOSEMI"):
        kinds += [_edf_field] * 5
    elif content[:10] == b"MATLAB 5.0" and number % 2:
        kinds = [_eeglab_field]
    elif content[:4] == b"XDF:":
        kinds += [_xdf_field] * 5
    elif content[:4] == b"PAR1" and number % 2:
        kinds = [_parquet_column]
    kind = kinds[int(rng.integers(len(kinds)))]
    damaged = dict(files)
    if small and rng.random() < 0.05:  # companions are exchanged, or one is missing
        other = str(rng.choice(small))
        damaged[name], damaged[other] = damaged[other], damaged[name]
        return damaged, f"{name} exchanged with {other}"
    if small and rng.random() < 0.05:
        return {key: value for key, value in files.items() if key == main or key != name}, f"{name} missing"
    for _ in range(int(rng.integers(1, 3))):
        damaged[name] = kind(damaged[name], rng)
    return damaged, f"{name} {kind.__name__.strip('_')}"


def _flips(content: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(content)
    for _ in range(int(rng.integers(1, 9)) if content else 0):
        changed[int(rng.integers(len(changed)))] = int(rng.integers(256))
    return bytes(changed)


def _flips_in_front(content: bytes, rng: np.random.Generator) -> bytes:
    front = int(rng.choice([16, 256, 2048]))
    return _flips(content[:front], rng) + content[front:]


def _cut(content: bytes, rng: np.random.Generator) -> bytes:
    n = len(content)
    places = [0, 1, 8, 255, 256, 257, 1000, n // 2, n - 1, n - 2, int(rng.integers(n + 1)), int(rng.integers(n + 1))]
    at = max(min(int(rng.choice(places)), n), 0)
    return content[:at] if rng.random() < 0.9 else content[at:]


def _number(content: bytes, rng: np.random.Generator) -> bytes:
    """Writes an odd number of some width over the bytes at some place, mostly in front, where headers are."""
    values = [0, -1, 1, 2**31 - 1, -(2**31), 2**16, np.nan, np.inf, 1e300, -1e-300]
    value, width = values[int(rng.integers(len(values)))], str(rng.choice(["i2", "i4", "i8", "f4", "f8"]))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        packed = np.array([value], np.float64).astype(str(rng.choice(["<", ">"])) + width).tobytes()
    at = int(rng.integers(max(min(len(content), int(rng.choice([200, 2000, 10**9]))), 1))) // 4 * 4
    return content[:at] + packed + content[at + len(packed) :]


def _section(content: bytes, rng: np.random.Generator) -> bytes:
    """Removes or repeats a stretch, or puts it elsewhere."""
    a, b = sorted(int(x) for x in rng.integers(len(content) + 1, size=2))
    b = min(b, a + int(rng.choice([3, 256, 5000])))
    at = int(rng.integers(len(content) + 1))
    return [content[:a] + content[b:], content[:b] + content[a:], content[:at] + content[a:b] + content[at:]][
        int(rng.integers(3))
    ]


def _edf_field(content: bytes, rng: np.random.Generator) -> bytes:
    """Replaces a field of the header, or one kind of field in all signals."""
    n = max((len(content) - 256) // 256, 0) if not content[252:256].strip().isdigit() else int(content[252:256])
    whole = {168: 8, 176: 8, 184: 8, 192: 44, 236: 8, 244: 8, 252: 4}
    rows = {0: 16, 96: 8, 104: 8, 112: 8, 120: 8, 128: 8, 216: 8}
    value = str(rng.choice(NUMBERS[:-1])) if rng.random() < 0.8 else str(rng.integers(-5, 10**6))
    changed = bytearray(content)
    if rng.random() < 0.4:
        at = int(rng.choice(list(whole)))
        places = [(at, whole[at])]
    else:
        start = int(rng.choice(list(rows)))
        signals = range(n) if rng.random() < 0.3 else [int(rng.integers(max(n, 1)))]
        places = [(256 + start * n + i * rows[start], rows[start]) for i in signals]
    for at, width in places:
        changed[at : at + width] = value.encode(str(rng.choice(["utf-8", "latin-1"]))).ljust(width)[:width]
    return bytes(changed)


def _eeglab_field(content: bytes, rng: np.random.Generator) -> bytes:
    """Replaces or removes a field of an EEGLAB structure, and keeps the file sound."""
    from io import BytesIO

    from scipy.io import loadmat, savemat

    fields = loadmat(BytesIO(content), squeeze_me=False)
    one = fields["EEG"]
    assert one.dtype.names
    values = {name: one[name][0, 0] for name in one.dtype.names}
    odd = [np.nan, 0, -1, 1e12, 1e300, 0.001, "", "abc", np.array([]), np.zeros((3, 3)), "missing.fdt"]
    name = str(rng.choice([n for n in values if not n.startswith("ica")]))
    if rng.random() < 0.2:
        del values[name]
    else:
        values[name] = odd[int(rng.integers(len(odd)))]
    written = BytesIO()
    savemat(written, {"EEG": values})
    return written.getvalue()


def _xdf_field(content: bytes, rng: np.random.Generator) -> bytes:
    """Replaces a value in a stream's header, or what stands where a chunk states how many samples it has."""
    chunks = bodies(content)
    at = int(rng.choice([i for i, body in enumerate(chunks) if body[:2] in (b"\2\0", b"\3\0")] or [0]))
    if chunks and chunks[at][:2] == b"\2\0" and (found := list(re.finditer(rb">([^<>]*)<", chunks[at]))):
        match = found[int(rng.integers(len(found)))]
        value = str(rng.choice([*NUMBERS, "30000000", "<x/>", "string", "int8", "eeg", "Markers"])).encode()
        chunks[at] = chunks[at][: match.start(1)] + value + chunks[at][match.end(1) :]
    elif chunks:
        size = int(rng.choice([1, 4, 8]))
        n = int(rng.choice([0, 1, 99, 255, 30_000_000, 2**31, 2**62])) % 256**size
        chunks[at] = chunks[at][:6] + bytes([size]) + n.to_bytes(size, "little") + chunks[at][11:]
    return joined(chunks)


def _parquet_column(content: bytes, rng: np.random.Generator) -> bytes:
    """Replaces, adds or removes a column, or the stated rate, and keeps the file sound."""
    from io import BytesIO

    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.ParquetFile(BytesIO(content)).read()
    n = len(table) // 2 * 2
    table = table.slice(0, n)
    odd = [
        pa.nulls(n), pa.array([["x"]] * n), pa.array([1e300, -1e300] * (n // 2)), pa.array([np.nan, np.inf] * (n // 2)),
        pa.array([2**63 - 1] * n), pa.array(range(n), pa.timestamp("ns")), pa.array([True, None] * (n // 2)),
        pa.array(["1", "x"] * (n // 2)).dictionary_encode(), pa.array([b"\xff"] * n), pa.array(range(n), pa.date64()),
        pa.array([2**62] * n, pa.timestamp("us")), pa.array([1, 2] * (n // 2), pa.decimal128(38, 30)),
        pa.array(range(n), pa.duration("ms")), pa.array(np.linspace(0, 1e-300, n)),
    ]  # fmt: skip
    column = odd[int(rng.integers(len(odd)))]
    at = int(rng.integers(len(table.column_names)))
    names = ["", "Fp1", "time", "label", "Cz\n", "\u202e", "Cz (V)", "EEG", "trigger"]
    match int(rng.integers(4)):
        case 0:
            table = table.set_column(at, table.column_names[at], column)
        case 1:
            table = table.append_column(str(rng.choice(names)), column)
        case 2:
            table = table.remove_column(at)
        case _:
            table = table.replace_schema_metadata({"SamplingFrequency": str(rng.choice(NUMBERS))})
    written = BytesIO()
    pq.write_table(table.slice(0, int(rng.choice([0, 1, 2, 30, n]))), written)
    return written.getvalue()


def _text_number(content: bytes, rng: np.random.Generator) -> bytes:
    found = list(re.finditer(rb"-?\d+(\.\d*)?", content[:5000]))
    if not found:
        return content
    match = found[int(rng.integers(len(found)))]
    return content[: match.start()] + str(rng.choice(NUMBERS)).encode() + content[match.end() :]


def _text_lines(content: bytes, rng: np.random.Generator) -> bytes:
    """Removes, repeats, empties or exchanges lines, those in front more often."""
    lines = content.splitlines(keepends=True)
    if not lines:
        return content
    for _ in range(int(rng.integers(1, 4))):
        a, b = (int(x) for x in rng.integers(min(len(lines), int(rng.choice([4, 30, 10**6]))), size=2))
        what = int(rng.integers(5))
        if what == 0:
            lines[a] = b""
        elif what == 1:
            lines[a] *= 2
        elif what == 2:
            lines[a] = b"\n"
        elif what == 3:
            lines[a], lines[b] = lines[b], lines[a]
        else:
            lines[a] = lines[a].replace(b",", b";").replace(b"=", b" ").replace(b"\t", b",")
    return b"".join(lines)


def _encoded(content: bytes, rng: np.random.Generator) -> bytes:
    text = content.decode("utf-8", "replace").replace("uV", str(rng.choice(["µV", "μV", "ÂµV", "日本", "\u202e"])))
    return text.encode(str(rng.choice(["utf-16", "utf-8-sig", "latin-1", "utf-32", "cp1252", "utf-8"])), "replace")


def examine(mutant: Mutant) -> tuple[str, str, str]:
    """Returns `read`, `refused` or `wrong`, what was done to the recording, and why it is wrong."""
    import resource

    files = {
        file.relative_to(mutant.folder).as_posix(): file.read_bytes()
        for file in sorted(mutant.folder.rglob("*"))
        if file.is_file()
    }
    damaged, how = mutate(files, mutant.name, mutant.number)
    how = f"{mutant.folder.name}/{mutant.name} {mutant.number}: {how}"
    _all_loaded()
    with tempfile.TemporaryDirectory() as folder:
        for name, content in damaged.items():
            (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / name).write_bytes(content)
        limit = _memory("VmSize") + 4 * MAX_GROWTH
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
        before = _memory("VmHWM")
        # nothing handles these: they end the process, whatever it is doing, or waiting for on a busy machine
        signal.setitimer(signal.ITIMER_PROF, MAX_S)
        signal.alarm(10 * MAX_S)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                outcome, why = _read(Path(folder), Path(folder) / mutant.name)
        except Exception:
            outcome, why = "wrong", "".join(traceback.format_exc(limit=-6))
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
    if (grown := _memory("VmHWM") - before) > MAX_GROWTH:
        outcome, why = "wrong", f"{grown / 2**20:.0f} MB more memory; {why}"
    return outcome, how, why


def _all_loaded() -> None:
    """Imports what the readers import late: that is no mutant's memory or time."""
    import mne.io  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import scipy.io  # noqa: F401

    from bothways.eeg.channels import parse_label

    parse_label("Cz")


def _memory(what: str) -> int:
    match = re.search(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match
    return int(match[1]) * 1024


def _read(folder: Path, path: Path) -> tuple[str, str]:
    from bothways.eeg import read_recording, scan
    from bothways.errors import UserError

    with suppress(UserError):
        scan([folder])
    try:
        recording = read_recording(path)
        check_recording(recording)
        check_use(recording)
    except UserError as problem:
        refused = str(problem)
    else:
        return "read", ""
    check_line(refused)
    assert "does not fit in memory" not in refused, refused
    return "refused", refused


def check_line(text: str) -> None:
    assert text.strip(), "an empty message"
    assert len(text) <= MAX_MESSAGE, f"{len(text)} characters: {text[:300]}…"
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", text), repr(text)
    text.encode("utf-8")


def check_recording(recording: object) -> None:
    """Asserts what holds for every `Recording`."""
    from bothways.eeg import Recording

    assert isinstance(recording, Recording)
    data = np.asarray(recording.data_uv)
    n_channels, n = data.shape
    assert n_channels > 0
    assert n > 0
    assert data.dtype == np.float32
    assert not np.isinf(data).any()
    assert n_channels == len(recording.ch_names) == len(set(recording.ch_names)) == len(recording.file_names)
    assert recording.positions.shape == (n_channels, 2, 3)
    assert recording.positions.dtype == np.float32
    assert not np.isinf(recording.positions).any()
    assert len(recording.file_units) in (0, n_channels)
    assert set(recording.marked_bad) <= set(recording.ch_names)
    assert 0 < recording.sfreq_hz < np.inf
    check_places(recording.segments, recording.events, n)
    for before, after in zip(recording.segments, recording.segments[1:]):
        ends_s = before.onset_s + (before.stop - before.start) / recording.sfreq_hz
        assert after.onset_s >= ends_s - 0.1, "segments overlap in time"
    for note in recording.notes:
        assert re.fullmatch("[a-z_]+", note.code)
        check_line(note.message)
    for name in (*recording.ch_names, *recording.left_out, *recording.left_out.values()):
        assert not re.search(r"[\x00-\x1f]", name), repr(name)
        name.encode("utf-8")


def check_places(segments: list, events: list, n: int) -> None:
    """Asserts that segments are in order and inside, and each event in one of them."""
    assert segments
    edges = [edge for segment in segments for edge in (segment.start, segment.stop)]
    assert edges == sorted(edges)
    assert edges[0] >= 0
    assert edges[-1] <= n
    assert all(segment.start < segment.stop and np.isfinite(segment.onset_s) for segment in segments)
    for event in events:
        assert any(segment.start <= event.start_sample < segment.stop for segment in segments), event
        assert np.isfinite(event.onset_s), event
        assert 0 <= event.duration_s < np.inf, event
        event.label.encode("utf-8")


def check_use(recording: object) -> None:
    """Asserts that a recording can be judged and prepared, and that the verdict can be written as JSON."""
    from bothways.config import SignalConfig
    from bothways.eeg import Recording, assess, preprocess
    from bothways.eeg.quality import unusable

    assert isinstance(recording, Recording)
    quality, bad, notes = assess(recording)
    json.dumps([quality, bad], allow_nan=False)
    for note in notes:
        check_line(note.message)
    unusable(recording, bad, notes)
    prepared = preprocess(recording, SignalConfig(), bad)
    data = np.asarray(prepared.data_uv)
    assert data.shape[0] == len(recording.ch_names)
    assert not np.isinf(data).any()
    check_places(prepared.segments, prepared.events, data.shape[1])

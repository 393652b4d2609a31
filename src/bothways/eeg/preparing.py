"""Making a store: recordings are prepared one by one into a work folder, and the store is put together from it.

A finished recording is two files there, samples and entry. Whatever stops the work, the next call with the same `out`
goes on with what is finished, as long as neither the source nor a setting has changed.
"""

import hashlib
import json
import math
import os
import threading
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Float32, Int16

from bothways import __version__
from bothways.config import SignalConfig
from bothways.eeg.preprocess import Prepared, preprocess, robust_scale
from bothways.eeg.quality import assess, file_notes, unusable
from bothways.eeg.reading import no_memory_error, reading
from bothways.eeg.recording import Recording, row_groups
from bothways.eeg.scan import Found, LeftOut, load, scan, shown
from bothways.eeg.source import source_files, source_hash
from bothways.eeg.store import FORMAT_VERSION, Store, content_hash, read_entries, to_int16, write_entries
from bothways.errors import BothwaysWarning, UserError
from bothways.files import check_output, link_or_copy, new_folder, replacing, write_json
from bothways.making import check_workers, lost_reason, most_workers, work, work_folder
from bothways.progress import progress
from bothways.workers import Lost, Results, here

WORTH_BYTES = 2**27
"""So much of recordings makes up for the start of a process, which imports torch."""
_ALONE = threading.Lock()


@dataclass(frozen=True)
class Task:
    """One recording to prepare into `folder`."""

    index: int
    one: Found
    folder: Path
    signal: SignalConfig
    unit: str | None


@dataclass(frozen=True)
class Result:
    """What came of a task: the name of its two files, or why there are none."""

    name: str = ""
    reused: bool = False
    skipped: str = ""


def prepare(
    paths: Iterable[str | Path | Recording],
    out: str | Path,
    signal: SignalConfig | None = None,
    *,
    subject_from: str | Path = "path",
    unit: str | None = None,
    baseline: Sequence[Mapping[str, Any]] = (),
    overwrite: bool = False,
    append: bool = False,
    workers: int | None = None,
    dask: str | None = None,
) -> Store:
    """Reads, filters and stores recordings; a file that cannot be used is noted and left out.

    The store is the same whoever did the work, and in whatever order it was finished.

    Args:
        paths: files, folders and recordings in memory; see `scan`.
        out: the store's folder; made in a hidden work folder beside it and moved into place when whole. A call that was
            stopped is taken up by the next one.
        signal: what the stored numbers shall be.
        subject_from: see `scan`.
        unit: see `read_recording`.
        baseline: rows `file`, `onset_s`, `duration_s`, `subject`: kept as they are, for `labels.baseline_spans`.
        overwrite: replace an existing `out`.
        append: add to the store `out`, which keeps its recordings and their ids.
        workers: processes; 1 = none but this one. By default one for each core, fewer where there is little to do or
            little memory.
        dask: address of a Dask cluster that does the work, with the same files under the same names.

    Returns:
        The store; its `made` says how many recordings were `already_there`, how many were `added`, and of these how
        many `reused` of a stopped call, its `tried` which files were not there already.

    Raises:
        UserError: nothing is found or usable; `out` cannot be written, exists, or is being written; appending, `out` is
            no store, has another signal contract, or has another recording of the same name; the cluster does not
            answer, or no longer.
        KeyboardInterrupt: as it came, with what the next call can go on with.
    """
    out, signal = Path(out), signal or SignalConfig()
    if overwrite and append:
        raise UserError("--overwrite replaces the store and --append adds to it; choose one")
    check_workers(workers, dask)
    check_output(out, overwrite=overwrite or append)
    left_out: list[LeftOut] = []
    found = scan(paths, subject_from, left_out)
    with work_folder(out, "recordings", ".json", dask) as at:
        old = _appended_to(out, signal, {"unit": unit, "subject_from": str(subject_from)}) if append else None
        new = found if old is None else _not_in(old, found)
        contract = {"signal": signal.model_dump(mode="json"), "unit": unit}
        at.set_up({"format_version": FORMAT_VERSION, "version": __version__, **contract})
        # Whole paths: a process of a cluster may have started in another folder.
        tasks = [
            Task(index, replace(one, path=one.path.absolute()), at.done.absolute(), signal, unit)
            for index, one in enumerate(new)
        ]
        results = _work(tasks, _n_workers(new, workers), dask)
        with new_folder(out, overwrite=overwrite or append, temporary=at.whole) as folder:
            (folder / "signals").mkdir()
            _put_together(folder, at.done, old, new, results, signal, baseline, [str(subject_from), unit], left_out)
    store = Store.open(out)
    store.made = {
        "reused": sum(r.reused for r in results),
        "already_there": len(found) - len(new),
        "added": sum(not r.skipped for r in results),
    }
    store.tried = [one.file for one in new]
    return store


def _appended_to(out: Path, signal: SignalConfig, settings: dict[str, str | None]) -> Store:
    old = Store.open(out)
    mine = signal.model_dump() | settings
    theirs = old.signal.model_dump() | {name: old.head["settings"].get(name) for name in settings}
    if differing := [f"{name}: {mine[name]}, the store {theirs[name]}" for name in mine if mine[name] != theirs[name]]:
        raise UserError(
            f"{out}: cannot be appended to with other settings ({'; '.join(differing)}); "
            "use the store's settings, or another --out"
        )
    return old


def _not_in(old: Store, found: Sequence[Found]) -> list[Found]:
    """Returns the recordings that the store lacks, by whatever folder's name; one that has changed since is refused."""
    sources = {recording.file: recording.source for recording in old.recordings}
    names = {Path(file).name for file in sources}
    same = {(recording.source, recording.subject): recording.file for recording in old.recordings}
    new = []
    for one in found:
        if Path(one.file).name not in names:  # spares reading it twice
            new.append(one)
            continue
        with reading(one.path):
            source = _source(one)
        if sources.get(one.file, source) != source:
            raise UserError(
                f"{one.file}: the store has another recording of this name (the file has changed, or lies in another "
                "folder); prepare the store anew, or give the folder above, so that their names differ"
            )
        there = same.get((source, one.subject))
        if there is None:
            new.append(one)
        elif there != one.file:
            warnings.warn(f"{one.file}: is in the store already, as {there}", BothwaysWarning, stacklevel=3)
    return new


def _n_workers(new: Sequence[Found], workers: int | None) -> int:
    if workers is not None:
        return max(1, min(workers, len(new)))
    most, total = min(most_workers(), len(new)), 0
    for one in new if most > 1 else ():
        if one.recording is not None:  # is prepared in this process
            continue
        with suppress(OSError):  # what cannot be read is told when its turn comes
            total += sum(file.stat().st_size for file in source_files(one.path))
        if total >= most * WORTH_BYTES:
            return most
    return max(1, total // WORTH_BYTES)


def _work(tasks: Sequence[Task], n_workers: int, dask: str | None) -> list[Result]:
    """Does the tasks and returns their results in the order of the tasks."""
    if not tasks:
        return []
    finished = _finished(tasks, n_workers, dask)
    results = [Result()] * len(tasks)
    with closing(finished), progress("prepare", len(tasks), "recordings") as meter:
        for task, result in finished:
            if isinstance(result, Lost):
                result = Result(skipped=shown(lost_reason(task.one.path, result.why)))
            results[task.index] = result
            meter.advance(note=task.one.file)
    return results


def _finished(tasks: Sequence[Task], n_workers: int, dask: str | None) -> Results:
    """Yields (task, result) as they are finished; what is in memory here stays here."""
    yield from here(prepare_one, [task for task in tasks if task.one.recording is not None])
    yield from work(prepare_one, [task for task in tasks if task.one.recording is None], n_workers, dask)


def prepare_one(task: Task) -> Result:
    """Prepares one recording, in whatever process; only what stops all work is an exception.

    Raises:
        OSError: nothing can be written.
    """
    try:
        with _ALONE:  # Python's warnings, which become notes, belong to all threads of a process
            return _prepare_one(task)
    except UserError as problem:
        return Result(skipped=shown(str(problem)))
    except MemoryError:
        return Result(skipped=shown(str(no_memory_error(task.one.path))))


def _prepare_one(task: Task) -> Result:
    path = task.one.path
    with reading(path):
        source = _source(task.one)
    name = hashlib.sha256(os.fsencode(path.absolute()) + source.encode()).hexdigest()[:32]
    if _is_whole(task.folder, name):
        return Result(name, reused=True)
    with reading(path):
        recording = load(task.one, task.unit)
        quality, bad, notes = assess(recording)
        if reason := unusable(recording, bad, notes):
            raise UserError(f"{path}: {reason}")
        digest = content_hash(recording)
        prepared = preprocess(recording, task.signal, bad)
    # Synced before its entry is written: an entry says that the samples are there.
    with replacing(task.folder / f"{name}.npy") as file:
        stretches = bad_stretches(recording, prepared, quality, bad)
        median_uv, scale_uv = _write_signals(file, path, prepared, stretches)
    entry = {
        "sha256": digest,
        "source": source,
        "format": recording.format,
        "ch_names": recording.ch_names,
        "positions": [
            [[None if np.isnan(x) else round(float(x), 6) for x in p] for p in c] for c in recording.positions
        ],
        "n_samples": prepared.data_uv.shape[1],
        "segments": [asdict(segment) for segment in prepared.segments],
        "events": [asdict(event) for event in prepared.events],
        "left_out": recording.left_out,
        "notes": [asdict(note) for note in (*recording.notes, *notes, *prepared.notes)],
        "quality": quality,
        "median_uv": [float(value) for value in median_uv],
        "scale_uv": [float(value) for value in scale_uv],
        "bad_channels": bad,
        "file_sfreq_hz": recording.sfreq_hz,
        "meas_date": recording.meas_date.isoformat() if recording.meas_date else None,
    }
    with replacing(task.folder / f"{name}.json", sync=False) as file:
        file.write(json.dumps(entry, allow_nan=False).encode())
    return Result(name)


def _source(one: Found) -> str:
    """SHA-256 of what a recording is read from; of one in memory, of all that becomes part of the store."""
    if one.recording is None:
        return source_hash(one.path)
    own = one.recording
    told = (own.file_names, own.events, own.left_out, own.marked_bad, own.meas_date, own.notes, own.positions.tolist())
    return hashlib.sha256(f"{content_hash(own)} {told}".encode()).hexdigest()


def _is_whole(folder: Path, name: str) -> bool:
    """Whether a recording is finished: its entry, which is written last, can be read, and so can its samples."""
    try:
        json.loads((folder / f"{name}.json").read_bytes())
        np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError):
        return False
    return True


def bad_stretches(
    recording: Recording, prepared: Prepared, quality: Mapping[str, Mapping[str, Any]], bad: Collection[str]
) -> list[list[tuple[int, int]]]:
    """Returns each channel's bad stretches [start, stop) of the prepared samples; of a bad channel none are wanted."""
    spans = [() if name in bad else quality[name]["bad_stretches"] for name in recording.ch_names]
    return [_stored_spans(recording, prepared, of_channel) for of_channel in spans]


def _stored_spans(
    recording: Recording, prepared: Prepared, stretches: Iterable[Sequence[Any]]
) -> list[tuple[int, int]]:
    """Returns where stretches (start_s, stop_s, ... of the samples as read) lie among the prepared samples.

    Segment by segment, for each keeps a whole number of samples when its rate is changed.
    """
    spans = []
    for start_s, stop_s, *_ in stretches:
        first, last = (round(at_s * recording.sfreq_hz) for at_s in (start_s, stop_s))
        for old, new in zip(recording.segments, prepared.segments):
            a, b = max(first, old.start), min(last, old.stop)
            if b > a:
                ratio = (new.stop - new.start) / (old.stop - old.start)
                stop = new.start + math.ceil((b - old.start) * ratio)
                spans.append((new.start + math.floor((a - old.start) * ratio), min(stop, new.stop)))
    return spans


def _write_signals(
    file: BinaryIO, path: Path, prepared: Prepared, stretches: Sequence[Sequence[tuple[int, int]]]
) -> tuple[Float32[np.ndarray, " C"], Float32[np.ndarray, " C"]]:
    """Writes the samples as numpy's own file, some channels at a time; returns what they are scaled by.

    Each channel's bad `stretches` [start, stop) are missing, so that no model attends to them or rebuilds them.
    """
    medians, scales = [], []
    head = {"descr": "<i2", "fortran_order": False, "shape": prepared.data_uv.shape}
    np.lib.format.write_array_header_1_0(file, head)
    for group in row_groups(prepared.data_uv):
        with reading(path):
            rows_uv = prepared.data_uv[group]
        steps, median_uv, scale_uv = scaled(rows_uv, stretches[group])
        file.write(steps.astype("<i2", copy=False).tobytes())
        medians.append(median_uv)
        scales.append(scale_uv)
    return np.concatenate(medians), np.concatenate(scales)


def scaled(
    rows_uv: Float32[np.ndarray, "C T"], stretches: Sequence[Sequence[tuple[int, int]]]
) -> tuple[Int16[np.ndarray, "C T"], Float32[np.ndarray, " C"], Float32[np.ndarray, " C"]]:
    """Returns what a store holds of prepared channels, and what they are scaled by; bad stretches become missing."""
    for row, bad in zip(rows_uv, stretches):
        for start, stop in bad:
            row[start:stop] = np.nan
    median_uv, scale_uv = robust_scale(rows_uv)
    return to_int16(rows_uv, median_uv, scale_uv), median_uv, scale_uv


def _put_together(
    folder: Path,
    done: Path,
    old: Store | None,
    new: Sequence[Found],
    results: Sequence[Result],
    signal: SignalConfig,
    baseline: Sequence[Mapping[str, Any]],
    settings: Sequence[str | None],
    left_out: Sequence[LeftOut],
) -> None:
    """Fills a store's folder: what the old one holds, then what is finished, in the order of the list."""
    n_samples = 0
    subjects: set[str] = set()

    def counted() -> Iterator[dict[str, Any]]:
        nonlocal n_samples
        for entry in _entries(folder / "signals", done, old, new, results):
            n_samples += entry["n_samples"]
            subjects.add(entry["subject"])
            yield entry

    n_recordings = write_entries(folder / "recordings.json", counted())
    skipped = {one.file: result.skipped for one, result in zip(new, results) if result.skipped}
    if len(skipped) == len(new) and skipped:
        reasons = "; ".join(list(skipped.values())[:3])
        there = f"; the {len(old.recordings)} of the store stay as they are" if old is not None else ""
        raise UserError(f"none of {len(new)} {'new ' * bool(there)}recordings can be used: {reasons}{there}")
    head: dict[str, Any] = {"settings": dict(zip(("subject_from", "unit"), settings)), "baseline": [], "skipped": []}
    passed = {one.file: asdict(one) for one in left_out}
    if old is not None:
        now = {one.file for one in new}
        skipped = {s["file"]: s["reason"] for s in old.head["skipped"] if s["file"] not in now} | skipped
        passed = {one["file"]: one for one in old.head.get("left_out", []) if one["file"] not in now} | passed
        head["baseline"] = list(old.head["baseline"])
    head["baseline"] += [dict(row) for row in baseline if dict(row) not in head["baseline"]]
    write_json(
        folder / "store.json",
        {
            "format_version": FORMAT_VERSION,
            "signal": signal.model_dump(mode="json"),
            **head,
            "totals": {
                "recordings": n_recordings,
                "subjects": len(subjects),
                "duration_s": round(n_samples / signal.sfreq_hz, 3),
                "skipped": len(skipped),
            },
            "skipped": [{"file": file, "reason": reason} for file, reason in skipped.items()],
            "left_out": list(passed.values()),
        },
    )


def _entries(
    signals: Path, done: Path, old: Store | None, new: Sequence[Found], results: Sequence[Result]
) -> Iterator[dict[str, Any]]:
    """Yields the entries of a store one at a time, and gives each its samples in `signals`."""
    first_of: dict[str, str] = {}
    number = 0
    if old is not None:
        for entry in read_entries(old.path / "recordings.json"):
            link_or_copy(old.path / "signals" / f"{entry['id']}.npy", signals / f"{entry['id']}.npy")
            first_of.setdefault(entry["sha256"], entry["file"])
            number = max(number, int(entry["id"]) + 1)
            yield entry
    for one, result in zip(new, results):
        if result.skipped:
            continue
        entry = json.loads((done / f"{result.name}.json").read_bytes())
        entry["notes"] += [asdict(note) for note in file_notes(one, entry["sha256"], first_of)]
        link_or_copy(done / f"{result.name}.npy", signals / f"{number:06d}.npy")
        head = {"id": f"{number:06d}", "file": one.file, "sha256": "", "source": ""}
        yield head | {"subject": one.subject, "session": one.session} | entry
        number += 1

"""`bothways eeg prepare`."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bothways import eeg
from bothways.config import SignalConfig, load_config
from bothways.errors import UserError
from bothways.files import check_output


def prepare(
    paths: str | Path | eeg.Recording | Sequence[str | Path | eeg.Recording],
    out: str | Path,
    *,
    recipe: str | Path | None = None,
    changes: Sequence[str] = (),
    baseline: str | Path | None = None,
    subject_from: str | Path = "path",
    unit: str | None = None,
    overwrite: bool = False,
    append: bool = False,
    workers: int | None = None,
    dask: str | None = None,
) -> dict[str, Any]:
    """Filters, resamples and scales recordings into a store that training reads memory-mapped.

    A call that was stopped (killed, disk full) goes on where it was when it is repeated.

    Args:
        paths: files and folders, as for `check`.
        out: the store's folder.
        recipe: TOML of `config.SignalConfig`.
        changes: `name=value` on top of it, e.g. `notch_hz=60`.
        baseline: CSV `file,onset_s,duration_s[,subject]`: each subject's stretch of rest, a calibration without
            labels that models with `patches.baseline` subtract.
        subject_from: see `check`.
        unit: see `check`.
        overwrite: replace `out`.
        append: add to the store `out`, made with the same signal settings.
        workers: processes; by default one for each core, fewer where there is little to do.
        dask: address of a Dask cluster that does the work instead, e.g. `tcp://host:8786`.

    Returns:
        `store`, `recordings`, `subjects`, `duration_s`, `skipped` (of this call: file, reason), `left_out` (file, code,
        reason: what the folders hold besides), `notes` (of this call: code -> files), `reused` (how many recordings a
        stopped call had finished), `already_there` (how many were in the store appended to), `added`.

    Raises:
        UserError: nothing usable, a bad baseline file, `out` cannot be written, or, appending, does not fit.
    """
    signal = load_config(SignalConfig, Path(recipe) if recipe else None, changes)
    paths = eeg.as_paths(paths)
    on_disk = [path for path in paths if not isinstance(path, eeg.Recording)]
    check_output(Path(out), overwrite=overwrite or append, inputs=on_disk)
    rows = []
    if baseline is not None:
        places = [(one.path.absolute().as_posix(), one.file, one.subject) for one in eeg.scan(paths, subject_from)]
        if append:
            own = {file for _, file, _ in places}
            places += [(r.file, r.file, r.subject) for r in eeg.Store.open(out).recordings if r.file not in own]
        rows = _baseline_rows(Path(baseline), places)
    store = eeg.prepare(
        paths, out, signal, subject_from=subject_from, unit=unit, baseline=rows, overwrite=overwrite, append=append,
        workers=workers, dask=dask,
    )  # fmt: skip
    notes: dict[str, list[str]] = {}
    tried = set(store.tried)
    for recording in store.recordings:
        for note in recording.notes if recording.file in tried else ():
            notes.setdefault(note.code, []).append(f"{recording.file}: {note.message}")
    skipped = [one for one in store.head["skipped"] if one["file"] in tried]
    done = {"skipped": skipped, "left_out": store.head["left_out"], "notes": notes, **store.made}
    return {"store": str(store.path), **store.head["totals"], **done}


def _baseline_rows(path: Path, places: Sequence[tuple[str, str, str]]) -> list[dict[str, Any]]:
    """Reads the calibration stretches and gives each the subject of its file where the CSV names none.

    Args:
        path: the CSV.
        places: of each recording the name that the CSV's has to fit, the store's `file`, and the subject.
    """
    rows, unmatched = [], Counter[str]()
    for span in eeg.read_spans(path).rows:
        fits = [(file, subject) for place, file, subject in places if eeg.ends_with(place, span.file)]
        if len(fits) > 1:
            names = ", ".join(file for file, _ in fits[:3])
            raise UserError(f"{path}: {span.file} fits {len(fits)} recordings ({names}); write more of the path")
        if not fits:
            unmatched[span.file] += 1
            continue
        ((file, subject),) = fits
        row = {"file": file, "onset_s": span.onset_s, "duration_s": span.duration_s}
        rows.append(row | {"subject": span.subject or subject})
    if unmatched:
        raise UserError(
            f"{path}: {len(unmatched)} files are not among the recordings, e.g. {next(iter(unmatched))}; "
            "correct the file column, or give the folder that holds them"
        )
    return rows

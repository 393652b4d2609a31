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
    paths: Sequence[str | Path],
    out: str | Path,
    *,
    recipe: str | Path | None = None,
    changes: Sequence[str] = (),
    baseline: str | Path | None = None,
    subject_from: str | Path = "path",
    unit: str | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Filters, resamples and scales recordings into a store that training reads memory-mapped.

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

    Returns:
        `store`, `recordings`, `subjects`, `duration_s`, `skipped` (file, reason), `notes` (code -> files).

    Raises:
        UserError: nothing usable, a bad baseline file, or `out` cannot be written.
    """
    signal = load_config(SignalConfig, Path(recipe) if recipe else None, changes)
    check_output(Path(out), overwrite=overwrite, inputs=paths)
    found = eeg.scan(paths, subject_from)
    rows = [] if baseline is None else _baseline_rows(Path(baseline), found)
    store = eeg.prepare(paths, out, signal, subject_from=subject_from, unit=unit, baseline=rows, overwrite=overwrite)
    notes: dict[str, list[str]] = {}
    for recording in store.recordings:
        for note in recording.notes:
            notes.setdefault(note.code, []).append(f"{recording.file}: {note.message}")
    return {"store": str(store.path), **store.head["totals"], "skipped": store.head["skipped"], "notes": notes}


def _baseline_rows(path: Path, found: Sequence[eeg.Found]) -> list[dict[str, Any]]:
    """Reads the calibration stretches and gives each the subject of its file where the CSV names none."""
    rows, unmatched = [], Counter[str]()
    for span in eeg.read_spans(path).rows:
        fits = [one for one in found if eeg.ends_with(one.path.absolute().as_posix(), span.file)]
        if len(fits) > 1:
            names = ", ".join(one.file for one in fits[:3])
            raise UserError(f"{path}: {span.file} fits {len(fits)} recordings ({names}); write more of the path")
        if not fits:
            unmatched[span.file] += 1
            continue
        row = {"file": fits[0].file, "onset_s": span.onset_s, "duration_s": span.duration_s}
        rows.append(row | {"subject": span.subject or fits[0].subject})
    if unmatched:
        raise UserError(
            f"{path}: {len(unmatched)} files are not among the recordings, e.g. {next(iter(unmatched))}; "
            "correct the file column, or give the folder that holds them"
        )
    return rows

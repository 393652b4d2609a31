"""`bothways eeg split`."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from bothways import eeg
from bothways.evaluation import check_leak, split_subjects
from bothways.files import check_output
from bothways.run.common import guessed_subjects, identities


def split(
    data: str | Path,
    out: str | Path,
    *,
    seed: int = 0,
    train_fraction: float = 0.6,
    validation_fraction: float = 0.2,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Divides the people of a store once, for `pretrain` and `finetune` alike: the tested ones stay unseen by both.

    Args:
        data: a store.
        out: the split file (JSON).
        seed: another seed, another division.
        train_fraction: share of the people to train on.
        validation_fraction: share to look at during training; the rest are tested on.
        overwrite: replace `out`.

    Returns:
        `split` (the file), `train`, `validation`, `test` (people), `notes`.

    Raises:
        UserError: too few people, equal recordings in two parts, or `out` exists.
    """
    out = Path(out)
    if not (overwrite and out.is_file()):  # a file is replaced atomically when it is saved
        check_output(out)
    store = eeg.Store.open(data)
    people = [recording.subject for recording in store.recordings]
    made = split_subjects(people, seed=seed, train_fraction=train_fraction, validation_fraction=validation_fraction)
    check_leak(made, identities(store))
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    made.save(out)
    parts = asdict(made)
    return {
        "split": str(out),
        **{part: list(parts[part]) for part in ("train", "validation", "test")},
        "notes": guessed_subjects(store, set(people)),
    }

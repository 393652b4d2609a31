"""`bothways eeg check`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bothways import eeg


def check(paths: Sequence[str | Path], *, subject_from: str | Path = "path", unit: str | None = None) -> dict[str, Any]:
    """Reads recordings and says what is in them and what is wrong; nothing is written.

    Args:
        paths: files and folders; folders are searched for every format that mne reads.
        subject_from: `path` (`sub-…` in the path), `parent` (the folder's name) or a CSV `file,subject`.
        unit: what the files' numbers are, where their own statement is wrong.

    Returns:
        See `bothways.eeg.check`; `exit_status` is 0 = fine, 1 = usable with warnings, 2 = something unusable.

    Raises:
        UserError: no recording is found.
    """
    return eeg.check(paths, subject_from=subject_from, unit=unit)

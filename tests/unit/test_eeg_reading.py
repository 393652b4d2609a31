"""What the system says while a recording is read names the file that it is about, and what to do."""

from pathlib import Path

import pytest

from bothways.eeg.reading import reading
from bothways.errors import UserError


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (PermissionError(13, "x", "/d/a.vhdr"), "cannot be read: permission is denied; check its permissions"),
        (PermissionError(13, "x", "/d/a.eeg"), "/d/a.eeg cannot be read: permission is denied; check its permissions"),
        (OSError(5, "x", "d/a.vhdr"), "cannot be read: the disk or network fails; check the path and "
         "the disk"),
        (FileNotFoundError(2, "x"), "cannot be read: it is not there (any more); check the path and the disk"),
        (MemoryError(), "does not fit in memory (a header that states false sizes does the same); free memory or cut "
         "the file"),
    ],
)  # fmt: skip
def test_errors_of_reading(problem: Exception, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    path = Path("/d/a.vhdr")
    with pytest.raises(UserError) as caught, reading(path):
        raise problem
    assert str(caught.value) == f"{path}: {message}"

"""Text of files, and what goes wrong while a recording is read, as an error for its reader."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bothways.eeg.channels import shown
from bothways.errors import UserError, plain_words


def decoded(content: bytes) -> str:
    """Text in UTF-8, with or without its mark, else in Latin-1."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def no_memory_error(path: Path) -> UserError:
    """The error for a recording that is too large to work on."""
    return UserError(
        f"{path}: does not fit in memory (a header that states false sizes does the same); free memory or cut the file"
    )


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Makes a `UserError` of what fails while a recording is read, at first or later (see `LazyRows`)."""
    try:
        yield
    except OSError as problem:
        file = Path(problem.filename) if isinstance(problem.filename, str) else path
        other = "" if file.absolute() == path.absolute() else f"{shown(str(file))} "
        mend = "check its permissions" if isinstance(problem, PermissionError) else "check the path and the disk"
        raise UserError(f"{path}: {other}cannot be read: {plain_words(problem)}; {mend}") from None
    except MemoryError:
        raise no_memory_error(path) from None

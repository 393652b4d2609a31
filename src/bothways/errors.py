"""What a user's mistake or a bad input raises, what a signal raises, and what is worth a warning."""

import errno

_PLAIN = {
    errno.EACCES: "permission is denied",
    errno.EPERM: "permission is denied",
    errno.EISDIR: "it is a folder",
    errno.ENOTDIR: "a part of the path is a file and no folder",
    errno.ENAMETOOLONG: "its name is too long",
    errno.ENOENT: "it is not there (any more)",
    errno.ELOOP: "its link leads to itself",
    errno.EIO: "the disk or network fails",
    errno.EMFILE: "too many files are open",
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the space allotted to you is used up",
    errno.EROFS: "the disk is read-only",
}


def plain_words(problem: OSError) -> str:
    """Says what an operating system's error means, on one line."""
    known = _PLAIN.get(problem.errno or 0) or problem.strerror or str(problem) or type(problem).__name__
    return " ".join(known.split())


class UserError(Exception):
    """Something the user can mend: bad input, a wrong option, a mismatch.

    The message is one line: what was expected, what came, and what to do. The command line prints it and
    exits with status 2; Python callers catch it as they like.
    """


class Interrupted(Exception):
    """A signal stopped long work, which is saved and can go on; the message says how.

    Attributes:
        status: what the command exits with: 130 after an interrupt from the keyboard, 0 after a scheduler's signal.
        saved: whether something is there that `--overwrite` would replace when the command is given again.
    """

    def __init__(self, message: str, status: int, *, saved: bool = True) -> None:
        super().__init__(message)
        self.status, self.saved = status, saved


class BothwaysWarning(UserWarning):
    """Something was changed, left out or ignored that a user should know of."""

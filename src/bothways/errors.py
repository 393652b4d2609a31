"""What a user's mistake or a bad input raises, what a signal raises, and what is worth a warning."""


class UserError(Exception):
    """Something the user can mend: bad input, a wrong option, a mismatch.

    The message is one line: what was expected, what came, and what to do. The command line prints it and
    exits with status 2; Python callers catch it as they like.
    """


class Interrupted(Exception):
    """A signal stopped long work, which is saved and can go on; the message says how.

    Attributes:
        status: what the command exits with: 130 after an interrupt from the keyboard, 0 after a scheduler's signal.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class BothwaysWarning(UserWarning):
    """Something was changed, left out or ignored that a user should know of."""

"""The one exception that a user's mistake or a bad input raises."""


class UserError(Exception):
    """Something the user can mend: bad input, a wrong option, a mismatch.

    The message is one line: what was expected, what came, and what to do. The command line prints it and
    exits with status 2; Python callers catch it as they like.
    """


class BothwaysWarning(UserWarning):
    """Something was changed, left out or ignored that a user should know of."""

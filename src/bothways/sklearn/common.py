"""What the estimators share: how they refuse."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bothways.errors import UserError


class InputError(UserError, ValueError):
    """A `UserError` that scikit-learn, too, takes for a mistake in what an estimator was given."""


def check_is_one_of(name: str, value: Any, known: Sequence[str]) -> None:
    """Refuses a word that is none of those known.

    Raises:
        InputError: it is not.
    """
    if value not in known:
        raise InputError(f"{name}: expected {' or '.join(map(repr, known))}, got {value!r}; choose one")


@contextmanager
def for_scikit_learn() -> Iterator[None]:
    """Makes a `UserError` in the block an `InputError`."""
    try:
        yield
    except InputError:
        raise
    except UserError as problem:
        raise InputError(str(problem)) from None

"""A signal asks a training to stop: it saves what it has at the next step and can go on later."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from bothways.errors import Interrupted, UserError

STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name))
"""From the keyboard; from a scheduler that wants the machine; from SLURM's `--signal=USR1@…`, some time before."""


class LostPeer(UserError):
    """Another process of the training has gone."""


class StopNow(BaseException):
    """Raised out of work that may be left at any place, by the signal that came during it."""


class Stop:
    """Whether a signal has come.

    Attributes:
        signal: its number; 0 = none.
        begun: a step has been done.
    """

    def __init__(self) -> None:
        self.signal = 0
        self.begun = False
        self._leaving = False

    @contextmanager
    def leaving(self, allowed: bool = True) -> Iterator[None]:
        """Lets a signal raise `StopNow` in the block, which has no effect on what is saved."""
        if allowed and self.signal:
            raise StopNow
        self._leaving = allowed
        try:
            yield
        finally:
            self._leaving = False

    def _take(self, number: int, frame: FrameType | None) -> None:
        if number == self.signal == signal.SIGINT:  # the second time: whoever asks does not want to wait
            raise KeyboardInterrupt
        self.signal = number if number == signal.SIGINT else self.signal or number
        if self._leaving:
            self._leaving = False
            raise StopNow


_current: Stop | None = None


@contextmanager
def stopping(wanted: bool = True) -> Iterator[Stop]:
    """Yields what takes note of the signals that ask to stop, if that is wanted; only the main thread can.

    Within `interruptible` it is the same `Stop`, and from here on nothing is left by a signal.
    """
    global _current
    if wanted and _current is not None:
        _current._leaving = False
        yield _current
        return
    stop = Stop()
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield stop
        return
    _current = stop
    before = {number: signal.signal(number, stop._take) for number in STOPPING}
    try:
        yield stop
    finally:
        _current = None
        for number, handler in before.items():
            signal.signal(number, handler)


def again() -> str:
    """What to do to go on, in words."""
    return "start all processes again as before" if _several() else "run the same command again"


def _several() -> bool:
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


@contextmanager
def interruptible(title: str) -> Iterator[None]:
    """Makes of a signal before the first step an `Interrupted`; after the last one, what is left to do is done.

    Of several processes one may be in the first step already when the others leave.
    """
    with stopping() as stop:
        try:
            with stop.leaving():
                yield
        except (StopNow, LostPeer) as problem:
            if isinstance(problem, LostPeer) and (stop.begun or not stop.signal):
                raise
            message = f"{title}: stopped by a signal before the first step; to begin or go on, {again()}"
            raise Interrupted(message, 130 if stop.signal == signal.SIGINT else 0, saved=False) from None

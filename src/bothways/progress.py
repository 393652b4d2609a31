"""Progress of long work: a rich bar on a terminal, plain lines elsewhere; always with rate and time left."""

import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

console = Console(stderr=True)
_quiet = ContextVar("quiet", default=False)


@contextmanager
def quiet(wanted: bool = True) -> Iterator[None]:
    """Says nothing of the progress of what runs inside, in this thread."""
    before = _quiet.set(wanted or _quiet.get())
    try:
        yield
    finally:
        _quiet.reset(before)


class Meter:
    """Counts finished units of one piece of work; made by `progress`."""

    def __init__(self, title: str, total: int, unit: str, bar: Progress | None, every_s: float, done: int = 0) -> None:
        self.title, self.total, self.unit, self.every_s = title, total, unit, every_s
        self.before = self.done = done
        self.shown = -1
        self.note = ""
        self.started = self.last_line = time.monotonic()
        self.bar = bar
        self.task = bar.add_task(title, total=total, completed=done, rate="", note="") if bar else None

    @property
    def rate(self) -> float:
        """Units finished in a second, since the start."""
        return (self.done - self.before) / max(time.monotonic() - self.started, 1e-9)

    def expect(self, total: int) -> None:
        """Says anew how many units there are."""
        if total != self.total:
            self.total = total
            if self.bar is not None and self.task is not None:
                self.bar.update(self.task, total=total)

    def advance(self, n: int = 1, note: str = "") -> None:
        """Adds `n` finished units; `note` (a loss, a file's name) is shown beside the rate."""
        self.done += n
        self.note = note
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, advance=n, rate=f"{self.rate:.1f} {self.unit}/s", note=note)
        elif time.monotonic() - self.last_line >= self.every_s:
            self.line()

    def line(self) -> None:
        """Prints where the work stands as one plain line on standard error."""
        self.last_line, self.shown = time.monotonic(), self.done
        left_s = (self.total - self.done) / self.rate if self.done > self.before else float("nan")
        left = f", {left_s:.0f} s left" if 0 < left_s < float("inf") else ""
        note = f", {self.note}" if self.note else ""
        print(
            f"{self.title}: {self.done}/{self.total} {self.unit}, {self.rate:.1f} {self.unit}/s{left}{note}",
            file=sys.stderr,
            flush=True,
        )


@contextmanager
def progress(title: str, total: int, unit: str, *, every_s: float = 10.0, done: int = 0) -> Iterator[Meter]:
    """Yields a `Meter` for `total` units of work.

    Args:
        title: what is done, shown first.
        total: how many units there are.
        unit: their name in the plural, for the rate (`"windows"` gives `windows/s`).
        every_s: off a terminal, the least time between two lines.
        done: units finished before, which do not count for the rate.
    """
    silent = _quiet.get() or os.environ.get("RANK", "0") != "0"  # of several processes the first one speaks for all
    if silent or not console.is_terminal:
        meter = Meter(title, total, unit, None, math.inf if silent else every_s, done)
        yield meter
        if meter.shown != meter.done and not silent:
            meter.line()
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Progress(*columns, console=console) as bar:
        yield Meter(title, total, unit, bar, every_s, done)

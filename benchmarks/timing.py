"""Shared by the parts: threads, medians, figures and their table. Standard library only, for every environment."""

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Figure:
    """One measured number; with a bound it is an assertion of this run."""

    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def holds(self) -> bool:
        """Whether the value lies within its bounds; NaN does not."""
        above = self.at_least is None or self.value >= self.at_least
        below = self.at_most is None or self.value <= self.at_most
        return above and below

    @property
    def bound(self) -> str:
        """The bounds in words, empty if there are none."""
        bounds = {"≥": self.at_least, "≤": self.at_most}
        return ", ".join(f"{sign} {bound:g}" for sign, bound in bounds.items() if bound is not None)


Figures = Mapping[str, Figure]


def pin_threads(n: int = 2) -> None:
    """Holds numeric libraries to `n` threads: those imported later, torch if it is there, and child processes."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(n)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(n)


def median_seconds(f: Callable[[], object], repeats: int = 7, warmup: int = 2) -> float:
    """Returns the median time of one call; the warm-up calls are not counted."""
    for _ in range(warmup):
        f()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        f()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def paired_seconds(
    f: Callable[[], object], g: Callable[[], object], repeats: int = 7, warmup: int = 2
) -> tuple[list[float], list[float]]:
    """Returns the times of two functions called in turn; their ratio survives a machine whose speed drifts."""
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(warmup + repeats):
        for seconds, call in zip(times, (f, g)):
            start = time.perf_counter()
            call()
            if turn >= warmup:
                seconds.append(time.perf_counter() - start)
    return times


def warn_if_busy() -> float:
    """Returns how many processes ran on average in the last minute; any makes the figures doubtful."""
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"this machine is busy (load {load:.1f}): the figures below are too low", file=sys.stderr, flush=True)
    return load


def table(parts: Mapping[str, Figures]) -> str:
    """Lays all figures out as one Markdown table."""
    rows = ["| part | measure | value | asked | |", "| --- | --- | --: | --- | --- |"]
    for part, figures in parts.items():
        for name, figure in figures.items():
            verdict = ("yes" if figure.holds else "**no**") if figure.bound else ""
            rows.append(f"| {part} | {name} | {figure.value:.3g} {figure.unit} | {figure.bound} | {verdict} |")
    return "\n".join(rows) + "\n"


def write_results(parts: Mapping[str, Figures], load: float, folder: Path) -> None:
    """Writes `latest.md` and `latest.json`, with what the run ran on."""
    machine = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load at the start": round(load, 2),
    }
    plain = {part: {name: asdict(figure) for name, figure in figures.items()} for part, figures in parts.items()}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "latest.json").write_text(json.dumps({"machine": machine, "parts": plain}, indent=1) + "\n")
    ran_on = ", ".join(f"{key} {value}" for key, value in machine.items())
    (folder / "latest.md").write_text(f"{table(parts)}\n{ran_on}\n", encoding="utf-8")

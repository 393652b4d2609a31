"""Folders made of many parts, each finished by itself in a hidden work folder beside them.

Whatever stops the work, the next call with the same output goes on with what is finished.
"""

import errno
import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bothways.errors import BothwaysWarning, UserError
from bothways.files import hidden_beside, locked, read_json, write_json
from bothways.workers import Results, available_bytes, here, in_processes, on_cluster

PROCESS_BYTES = 2**30
"""What a process needs at most, which imports torch."""
_MEND = dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room") | {errno.EROFS: "make it writable"}


class WorkFolder:
    """The hidden folder beside an output in which its parts are made; see `work_folder`.

    Attributes:
        done: what is finished, to be filled by whoever works.
        whole: where the output is put together, before it takes its place.
    """

    def __init__(self, out: Path, parts: str, ending: str) -> None:
        self.path = hidden_beside(out.resolve(), "partial")
        self.done, self.whole = self.path / "done", self.path / "store"
        self._parts, self._ending = parts, ending

    def finished(self) -> int:
        """Returns how many parts are finished."""
        return sum(1 for _ in self.done.glob(f"*{self._ending}"))

    def set_up(self, settings: Mapping[str, Any]) -> None:
        """Makes the folder's inside; what was finished with other settings is of no use and goes."""
        file = self.path / "settings.json"
        if self.done.exists() and not (file.is_file() and read_json(file) == settings):
            if self.finished():
                message = f"{self.path}: {self._parts} finished with other settings are done anew"
                warnings.warn(message, BothwaysWarning, stacklevel=3)
            shutil.rmtree(self.done)
        self.done.mkdir(exist_ok=True)
        write_json(file, settings)

    def remove(self) -> None:
        """Removes the folder, the lock last: who takes the next one must not lose files to this."""
        shutil.rmtree(self.done, ignore_errors=True)
        shutil.rmtree(self.whole, ignore_errors=True)
        (self.path / "settings.json").unlink(missing_ok=True)
        (self.path / "lock").unlink(missing_ok=True)
        with suppress(OSError):
            self.path.rmdir()


@contextmanager
def work_folder(out: Path, parts: str, ending: str, dask: str | None = None) -> Iterator[WorkFolder]:
    """Holds an output's work folder; it is removed when the block ends, and kept where that stops with parts finished.

    Args:
        out: the output.
        parts: what its parts are called, in the plural.
        ending: of the file that says that a part is finished.
        dask: address of the cluster that works.

    Raises:
        UserError: as it came, or somebody else makes `out`, nothing can be written, or the cluster is gone.
        KeyboardInterrupt: as it came, with what the next call can go on with.
    """
    folder = WorkFolder(out, parts, ending)
    busy = f"{out}: another prepare is writing it; wait until it is done, or choose another --out"
    with locked(folder.path / "lock", busy):
        try:
            yield folder
        except (UserError, OSError, KeyboardInterrupt) as problem:
            again = "run it again"
            if finished := folder.finished():
                again += f", it goes on after the {finished} {parts} that are finished (in {folder.path})"
            else:
                folder.remove()
            if isinstance(problem, KeyboardInterrupt):
                raise type(problem)(f"{out}: {again}") from None
            if isinstance(problem, ConnectionError):  # on_cluster's
                raise UserError(f"{dask}: {problem}; start a scheduler and {again}") from None
            if isinstance(problem, OSError):  # all that is read has its own error
                mend = _MEND.get(problem.errno or 0, "see to the disk")
                why = problem.strerror or str(problem)
                raise UserError(f"{out}: cannot be written: {why}; {mend} and {again}") from None
            raise
        folder.remove()


def work(function: Callable[[Any], Any], tasks: Iterable[Any], n_workers: int, dask: str | None = None) -> Results:
    """Yields (task, result) as they are finished: on a cluster, in `n_workers` processes, or, of one, in this one."""
    if dask is not None:
        return on_cluster(function, tasks, dask)
    return in_processes(function, tasks, n_workers) if n_workers > 1 else here(function, tasks)


def check_workers(workers: int | None, dask: str | None) -> None:
    """Refuses who shall work where that is not clear.

    Raises:
        UserError: it is not.
    """
    if dask is not None and workers is not None:
        raise UserError("--workers are processes of this machine and --dask is a cluster; choose one")
    if workers is not None and workers < 1:
        raise UserError(f"workers: expected 1 or more, got {workers}; leave it out for as many as pay off")


def most_workers() -> int:
    """Returns how many processes this machine has cores and memory for."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, available_bytes() // PROCESS_BYTES)


def lost_reason(what: object, why: str) -> str:
    """Says that the process that worked on something ended, and what may help."""
    said = f"{what}: the process that worked on it ended ({why})"
    if "SIGKILL" in why:
        return f"{said}, as it does for want of memory; use fewer --workers, or leave the file out"
    return f"{said}; run with --workers 1 to see why, or leave the file out"

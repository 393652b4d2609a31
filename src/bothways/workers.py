"""The same function over many tasks, in this process, in others of this machine, or on a Dask cluster.

The processes are fresh ones that import what they need: none inherits a lock or a thread, and the caller's own script
is not run again in them, as Python's own pools would do. Each task is given to one that waits, so a process that ends
takes only its own task along.
"""

import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

from bothways.errors import UserError

ANSWER_S = 10
"""How long a cluster may take to answer."""
CGROUPS = Path("/sys/fs/cgroup")
_AHEAD = 2
"""Tasks that each thread of a cluster has waiting: it need not wait for the network, and an end loses little."""


Results = Generator[tuple[Any, Any], None, None]
"""(task, result) as they are finished; closing it ends what is under way."""


class Lost:
    """The result of a task whose process ended while it worked on it."""

    def __init__(self, why: str) -> None:
        self.why = why


def here(function: Callable[[Any], Any], tasks: Iterable[Any]) -> Results:
    """Yields (task, result), one after the other."""
    for task in tasks:
        yield task, function(task)


def in_processes(function: Callable[[Any], Any], tasks: Iterable[Any], n: int) -> Results:
    """Yields (task, result) in the order in which `n` processes finish; an exception in one is raised here.

    Args:
        function: one of a module, so that a process can find it by its name.
        tasks: what can be pickled.
        n: how many processes.
    """
    waiting = iter(tasks)
    busy: dict[Any, tuple[_Worker, Any]] = {}

    def give(worker: _Worker | None = None) -> None:
        """Gives the next task to a worker, or a new one; without a task the worker ends."""
        for task in waiting:
            if worker is not None and not worker.takes(task):  # it ended while it had nothing to do
                worker.end()
                worker = None
            if worker is None:
                worker = _Worker(function)
                worker.takes(task)  # if it ends at once, its task is lost like any other
            busy[worker.connection] = worker, task
            return
        if worker is not None:
            worker.end()

    try:
        for _ in range(n):
            give()
        while busy:
            for connection in wait(list(busy)):
                worker, task = busy.pop(connection)
                try:
                    succeeded, result = worker.connection.recv()
                except (EOFError, ConnectionError):
                    succeeded, result = True, Lost(worker.end())
                    give()
                else:
                    give(worker)
                if not succeeded:
                    raise result
                yield task, result
    finally:
        for worker, _ in busy.values():
            worker.end(kill=True)


def python(code: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """The command that runs `code`, and its environment: it finds the modules that this process finds, no others."""
    path = os.pathsep.join(filter(None, sys.path))  # without -P the current folder would come before all of it
    alone = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
    environment = os.environ | alone | {"PYTHONPATH": path}
    return [sys.executable, "-P", "-W", "ignore", "-c", code, *arguments], environment


class _Worker:
    """A process that calls one function with what it is sent."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.connection, theirs = Pipe()
        command, environment = python("from bothways.workers import serve; serve()", str(theirs.fileno()))
        try:
            self.process = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
            )
        except OSError as problem:
            raise UserError(f"no process can be started ({problem.strerror}); use fewer --workers") from None
        finally:
            theirs.close()
        self.takes(function)

    def takes(self, what: Any) -> bool:
        """Sends it something, unless it has ended."""
        try:
            self.connection.send(what)
        except ConnectionError:
            return False
        return True

    def end(self, *, kill: bool = False) -> str:
        """Ends the process and says in words how it ended."""
        self.connection.close()
        if kill:
            self.process.kill()
        status = self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        return f"killed by {signal.Signals(-status).name}" if status < 0 else f"status {status}"


def serve() -> None:
    """What a worker's process does until its connection ends, or the process that started it does."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # Ctrl-C goes to all; the first process ends the others
    threading.Thread(target=_end_with_parent, daemon=True).start()
    connection = Connection(int(sys.argv[1]))
    try:
        function = connection.recv()
        while True:
            task = connection.recv()
            try:
                answer = True, function(task)
            except Exception as problem:
                answer = False, problem
            connection.send(answer)
    except (EOFError, ConnectionError):
        os._exit(0)


def _end_with_parent() -> None:
    sys.stdin.buffer.read()  # nothing is ever written: it ends when the other side is gone
    os._exit(1)


def on_cluster(function: Callable[[Any], Any], tasks: Iterable[Any], address: str) -> Results:
    """Yields (task, result) in the order in which the workers of a Dask cluster finish.

    Raises:
        UserError: dask is not installed, or no scheduler or worker answers.
        ConnectionError: the scheduler is gone.
    """
    try:
        from distributed import Client, KilledWorker, as_completed
    except ImportError:
        raise UserError("--dask needs the package distributed; install it with `pip install bothways[dask]`") from None
    try:
        client = Client(address, timeout=ANSWER_S, set_as_default=False)
    except (OSError, ValueError, RuntimeError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{address}: no Dask scheduler answers ({why}); expected one such as tcp://host:8786") from None
    own: BaseException | None = None
    told = logging.getLogger("distributed.client")
    level = told.level
    told.setLevel(logging.CRITICAL)  # it prints a traceback where the scheduler is gone
    try:
        with client:
            try:
                client.wait_for_workers(1, timeout=ANSWER_S)
            except TimeoutError:
                raise UserError(f"{address}: the Dask cluster has no workers; start some") from None
            waiting = iter(tasks)
            tasks_of: dict[Any, Any] = {}

            def submit() -> Iterator[Any]:
                for task in waiting:
                    future = client.submit(function, task, pure=False)
                    tasks_of[future] = task
                    yield future

            submitted = submit()
            threads = sum(client.nthreads().values())
            first = [future for _, future in zip(range(_AHEAD * threads), submitted)]
            finished = as_completed(first, loop=client.loop)
            for future in finished:
                problem = future.exception()
                if isinstance(problem, CancelledError):
                    raise problem
                if problem is not None and not isinstance(problem, KilledWorker):
                    own = problem
                    break
                result = future.result() if problem is None else Lost("the workers that had it ended")
                yield tasks_of.pop(future), result
                for further in submitted:
                    finished.add(further)
                    break
    except (CancelledError, OSError):  # of the connection, for a task's own is kept
        raise ConnectionError("the Dask scheduler is gone, or cannot be reached any more") from None
    finally:
        told.setLevel(level)
    if own is not None:
        raise own


def available_bytes() -> int:
    """How much memory there is to take: in the machine, and in the control groups that this process belongs to."""
    free = [sys.maxsize]
    with suppress(OSError):
        free += [1024 * int(n) for n in re.findall(r"MemAvailable: *(\d+)", Path("/proc/meminfo").read_text())]
        for kind, own in re.findall(r"(?m)^\d+:(memory)?:/(.*)$", Path("/proc/self/cgroup").read_text()):
            top = CGROUPS / kind
            limit, used = (
                ("memory.limit_in_bytes", "memory.usage_in_bytes") if kind else ("memory.max", "memory.current")
            )
            for folder in (top / own, *(top / own).parents)[: len(Path(own).parts) + 1]:
                with suppress(OSError, ValueError):  # none here, or no limit
                    most, taken = (int((folder / name).read_text()) for name in (limit, used))
                    kept = re.findall(r"(?m)^(?:total_)?inactive_file (\d+)", (folder / "memory.stat").read_text())
                    # what is kept of files gives way to what is asked for
                    free.append(most - taken + max(map(int, kept), default=0))
    return max(min(free), 0)

"""The same function here, in processes and on a cluster; what ends takes only its own task along."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bothways import workers
from bothways.errors import UserError
from bothways.workers import Lost, available_bytes, here, in_processes, on_cluster


def work(task: str) -> str:
    """What the processes of these tests do; they find it by its name."""
    print("this must not disturb the answers")
    if task == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if task == "exit":
        os._exit(3)
    if task == "die soon":
        threading.Timer(0.1, os._exit, [0]).start()
    if task == "fail":
        raise OSError(28, "No space left on device")
    if task.startswith("sleep"):
        Path(task.removeprefix("sleep ")).write_text(str(os.getpid()))
        time.sleep(60)
    return task.upper()


def test_each_task_has_its_result() -> None:
    tasks = ["a", "b", "c", "d", "e"]
    expected = [(task, task.upper()) for task in tasks]
    assert list(here(work, tasks)) == expected
    assert sorted(in_processes(work, tasks, 2)) == expected
    assert list(in_processes(work, [], 2)) == []


def test_a_process_that_ends_loses_its_own_task_only() -> None:
    results = dict(in_processes(work, ["a", "die", "b", "exit", "c"], 2))
    lost = {task: results.pop(task) for task in ("die", "exit")}
    assert results == {"a": "A", "b": "B", "c": "C"}
    assert all(isinstance(result, Lost) for result in lost.values())
    assert (lost["die"].why, lost["exit"].why) == ("killed by SIGKILL", "status 3")


def test_an_exception_is_raised_here_and_ends_the_others(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        for _ in in_processes(work, [f"sleep {tmp_path / 'pid'}", "fail"], 2):
            pass
    if (tmp_path / "pid").exists():  # the other may not have begun
        assert not running(int((tmp_path / "pid").read_text()))


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()  # a zombie only waits to be counted


SLEEPER = """
import sys
import signal
from bothways.workers import in_processes
from test_workers import work
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
for _ in in_processes(work, ["sleep " + path for path in sys.argv[1:]], 2):
    pass
"""


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_no_process_outlives_the_first(tmp_path: Path, ending: signal.Signals) -> None:
    files = [tmp_path / "one", tmp_path / "two"]
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    first = subprocess.Popen(
        [sys.executable, "-c", SLEEPER, *files], env=os.environ | {"PYTHONPATH": path}, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    until(lambda: all(file.exists() and file.read_text() for file in files))
    if ending == signal.SIGINT:
        os.killpg(first.pid, ending)  # as Ctrl-C does: to all of them
    else:
        first.kill()
    _, errors = first.communicate(timeout=20)
    assert errors.count(b"Traceback") == (ending == signal.SIGINT)
    until(lambda: not any(running(int(file.read_text())) for file in files))


def until(true: Callable[[], bool], most_s: float = 60) -> None:
    end = time.monotonic() + most_s
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_script_is_not_run_again_by_its_processes(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "print('once')\nfrom operator import neg\nfrom bothways.workers import in_processes\n"
        "print(sorted(in_processes(neg, [1, 2], 2)))\n"
    )
    done = subprocess.run([sys.executable, script], check=True, stdout=subprocess.PIPE, text=True)
    assert done.stdout == "once\n[(1, -1), (2, -2)]\n"


def test_processes_import_nothing_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "random.py").write_text("raise ImportError")
    monkeypatch.chdir(tmp_path)
    assert dict(in_processes(work, ["a", "b"], 2)) == {"a": "A", "b": "B"}


def test_dask_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UserError, match=r"install it with `pip install bothways\[dask\]`"):
        list(on_cluster(work, ["a"], "tcp://127.0.0.1:8786"))


@pytest.mark.filterwarnings("ignore")  # distributed's own
@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "nonsense://x"])
def test_a_cluster_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setattr(workers, "ANSWER_S", 0.5)
    with pytest.raises(UserError, match="no Dask scheduler answers") as caught:
        list(on_cluster(work, ["a"], address))
    assert "\n" not in str(caught.value)


def test_a_process_that_ends_while_it_waits_is_replaced() -> None:
    def tasks() -> Iterator[str]:
        yield "die soon"
        time.sleep(1)  # the process has its next task only when it is gone
        yield "a"

    assert list(in_processes(work, tasks(), 1)) == [("die soon", "DIE SOON"), ("a", "A")]


def test_processes_that_end_at_once_lose_each_its_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 7\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    results = dict(in_processes(work, ["a", "b", "c"], 2))
    assert {task: result.why for task, result in results.items()} == dict.fromkeys("abc", "status 7")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with pytest.raises(
        UserError, match=r"no process can be started \(No such file or directory\); use fewer --workers"
    ):
        list(in_processes(work, ["a"], 2))


def test_available_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "CGROUPS", tmp_path / "none")
    machine = available_bytes()
    assert 2**24 < machine < 2**50
    for folder, names in (
        (tmp_path, ("memory.max", "memory.current")),
        (tmp_path / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")),
    ):
        folder.mkdir(exist_ok=True)
        for name, value in zip(names, (9_000_000, 5_000_000)):
            (folder / name).write_text(f"{value}\n")
        (folder / "memory.stat").write_text("active_file 7\ninactive_file 1000000\ntotal_inactive_file 1000000\n")
    monkeypatch.setattr(workers, "CGROUPS", tmp_path)
    assert available_bytes() == 5_000_000
    for file in (tmp_path / "memory.current", tmp_path / "memory" / "memory.usage_in_bytes"):
        file.write_text("11000000\n")  # more than allowed
    assert available_bytes() == 0
    for file in (tmp_path / "memory.max", tmp_path / "memory" / "memory.limit_in_bytes"):
        file.write_text("max\n")
    assert available_bytes() > 2**24

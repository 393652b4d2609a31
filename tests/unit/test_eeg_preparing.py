"""However a store is made (stopped and taken up, appended to, in processes, on a cluster), it is the same store."""

import errno
import json
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bothways import files, making, run, workers
from bothways.config import SignalConfig
from bothways.eeg import Recording, Store, check, from_array, prepare, preparing, recording
from bothways.errors import BothwaysWarning, UserError
from bothways.files import locked
from recordings import NAMES, noise_uv, write_brainvision, write_edf, write_five
from stores import content, names


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five recordings, of which one is a copy and one is broken."""
    return write_five(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def store(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Store:
    return prepare([data], tmp_path_factory.mktemp("stores") / "store", workers=1)


def killed_at(event: int, data: Path, out: Path) -> bool:
    """Prepares in a copy of this process that kills itself at the n-th change of a file; says whether it did."""
    pid = os.fork()
    if pid == 0:
        seen = 0

        def count(name: str, arguments: tuple[object, ...]) -> None:
            nonlocal seen
            changes = name in ("os.rename", "os.link", "os.remove", "os.rmdir", "os.mkdir")
            if changes or (name == "open" and str(arguments[0]).endswith((".partial", ".json", ".npy"))):
                seen += 1
                if seen == event:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        try:
            prepare([data], out, workers=1)
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # fork, from Python 3.12 on
def test_killed_at_any_moment_it_goes_on_where_it_was(data: Path, store: Store, tmp_path: Path) -> None:
    reused = []
    for event in range(1, 500, 3):
        out = tmp_path / str(event) / "store"
        if not killed_at(event, data, out):
            break
        if not out.exists():
            finished = len(list(out.parent.glob(".store.partial/done/*.json")))
            again = prepare([data], out, workers=1)
            assert again.made == {"reused": finished, "already_there": 0, "added": 4}
            reused.append(finished)
            assert names(out.parent) == ["store"]
        assert content(out) == content(store.path), event
    assert len(reused) > 10
    assert set(reused) == {0, 1, 2, 3, 4}
    assert reused == sorted(reused)


RUN = "import sys; from bothways.eeg import prepare; prepare([sys.argv[1]], sys.argv[2], workers=2)"


@pytest.mark.slow
def test_killed_at_random_times_with_processes(tmp_path: Path) -> None:
    data, rng = tmp_path / "data", np.random.default_rng(0)
    for number in range(24):
        write_edf(data / f"sub-{number:02d}.edf", noise_uv(19, 40_000, seed=number), [f"E{i}" for i in range(19)])
    out = tmp_path / "store"
    reused = 0
    for _ in range(6):
        process = subprocess.Popen([sys.executable, "-c", RUN, data, out], stderr=subprocess.DEVNULL)
        done = tmp_path / ".store.partial" / "done"
        before, deadline = len(list(done.glob("*.json"))), time.monotonic() + 60
        while len(list(done.glob("*.json"))) < before + 1 and not out.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 0.2))
        process.kill()
        process.wait()
        assert out.exists() or len(list(done.glob("*.json"))) > before
    if not out.exists():
        reused = prepare([data], out, workers=1).made["reused"]
        assert reused >= 6
    assert content(out) == content(prepare([data], tmp_path / "undisturbed", workers=1).path)
    assert names(tmp_path) == ["data", "store", "undisturbed"]


@contextmanager
def stopped(monkeypatch: pytest.MonkeyPatch, after: int) -> Iterator[None]:
    """Ends the work with Ctrl-C after some recordings."""
    real, finished = preparing.prepare_one, 0

    def some(task: preparing.Task) -> preparing.Result:
        nonlocal finished
        if finished == after:
            raise KeyboardInterrupt
        finished += 1
        return real(task)

    with monkeypatch.context() as patch:
        patch.setattr(preparing, "prepare_one", some)
        said = rf"run it again, it goes on after the {after} recordings that are finished \(in .*\.partial\)$"
        with pytest.raises(KeyboardInterrupt, match=said):
            yield


def test_a_changed_source_is_done_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, data = tmp_path / "store", tmp_path / "data"
    data.mkdir()
    headers = [write_brainvision(data / f"sub-{number}.vhdr", noise_uv(seed=number), NAMES) for number in range(4)]
    with stopped(monkeypatch, after=3):
        prepare([data], out)
    markers = headers[0].with_suffix(".vmrk")
    markers.write_text(markers.read_text().replace("401", "601"))
    headers[1].with_suffix(".eeg").write_bytes(noise_uv(seed=9).T.astype("<f4").tobytes())
    assert prepare([data], out).made["reused"] == 1
    assert content(out) == content(prepare([data], tmp_path / "undisturbed").path)
    assert Store.open(out).recordings[0].events[0].start_sample == 600


def test_what_was_finished_with_other_settings_is_not_used(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, expected = tmp_path / "store", prepare([data], tmp_path / "expected", SignalConfig(notch_hz=60))
    with stopped(monkeypatch, after=2):
        prepare([data], out)
    with pytest.warns(BothwaysWarning, match="finished with other settings are done anew"):
        assert prepare([data], out, SignalConfig(notch_hz=60)).made["reused"] == 0
    assert content(out) == content(expected.path)
    out = tmp_path / "unit"
    with stopped(monkeypatch, after=2):
        prepare([data], out, unit="uV")
    with pytest.warns(BothwaysWarning, match="other settings"):
        prepare([data], out)
    assert names(tmp_path) == ["expected", "store", "unit"]


def test_spoilt_remains_are_done_anew(
    data: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "store"
    with stopped(monkeypatch, after=3):
        prepare([data], out)
    done = tmp_path / ".store.partial" / "done"
    entries, samples = sorted(done.glob("*.json")), sorted(done.glob("*.npy"))
    entries[0].write_bytes(b"")  # as a power failure leaves a file
    samples[1].write_bytes(samples[1].read_bytes()[:-2])
    assert prepare([data], out).made["reused"] == 1
    assert content(out) == content(store.path)


def test_a_full_disk_stops_and_the_next_call_goes_on(tmp_path: Path) -> None:
    for number, seconds in enumerate((4, 4, 60)):
        write_edf(tmp_path / "data" / f"sub-{number}.edf", noise_uv(4, 200 * seconds, seed=number), NAMES)
    out, (soft, hard) = tmp_path / "store", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.raises(UserError, match=r"make room and run it again, it goes on after the 2 recordings"):
            prepare([tmp_path / "data"], out, workers=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not out.exists()
    assert prepare([tmp_path / "data"], out, workers=1).made["reused"] == 2
    assert content(out) == content(prepare([tmp_path / "data"], tmp_path / "undisturbed").path)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EIO, "Input/output error; see to the disk and run it again"),
        (errno.EROFS, "Read-only file system; make it writable and run it again"),
        (errno.ENOSPC, "No space left on device; make room and run it again"),
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_what_cannot_be_written_stops_all(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str, workers: int
) -> None:
    def broken(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    if workers == 1:
        monkeypatch.setattr(files.os, "fsync", broken)
    else:  # in each process, and all the same here
        monkeypatch.setattr(making, "in_processes", lambda function, tasks, _: making.here(function, tasks))
        monkeypatch.setattr(preparing, "_write_signals", broken)
    with pytest.raises(UserError, match=f"store: cannot be written: {said}$"):
        prepare([data], tmp_path / "store", workers=workers)
    assert names(tmp_path) == []


def vanishing(monkeypatch: pytest.MonkeyPatch, module: Any, moment: str, path: Path, at: int = 2) -> None:
    """Deletes a recording at the end of a function's n-th call; samples are read when they are asked for."""
    real, calls = getattr(module, moment), 0

    def vanish(*arguments: object) -> object:
        nonlocal calls
        result, calls = real(*arguments), calls + 1
        if calls == at:
            path.unlink()
        return result

    monkeypatch.setattr(module, moment, vanish)
    monkeypatch.setattr(recording, "HELD_BYTES", 0)
    monkeypatch.setattr(recording, "GROUP_BYTES", 1)


@pytest.mark.parametrize(("moment", "at"), [("assess", 2), ("preprocess", 2), ("robust_scale", len(NAMES) + 1)])
def test_a_file_that_vanishes_half_way_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, at: int
) -> None:
    paths = [write_edf(tmp_path / "in" / f"sub-{n}.edf", noise_uv(seed=n), NAMES) for n in (1, 2, 3)]
    vanishing(monkeypatch, preparing, moment, paths[1], at)
    store = prepare([tmp_path / "in"], tmp_path / "store", workers=1)
    assert [r.subject for r in store.recordings] == ["1", "3"]
    reason = f"{paths[1]}: cannot be read: it is not there (any more); check the path and the disk"
    assert store.head["skipped"] == [{"file": "sub-2.edf", "reason": reason}]


def test_a_file_that_vanishes_while_it_is_checked_is_unusable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [write_edf(tmp_path / "in" / f"sub-{n}.edf", noise_uv(seed=n), NAMES) for n in (1, 2, 3)]
    vanishing(monkeypatch, sys.modules["bothways.eeg.check"], "assess", paths[1])
    rows = check([tmp_path / "in"])["recordings"]
    assert [row["status"] for row in rows] == ["ok", "unusable", "ok"]
    assert rows[1]["reason"] == f"{paths[1]}: cannot be read: it is not there (any more); check the path and the disk"


@pytest.mark.skipif(os.geteuid() != 0, reason="only a superuser can mount")
def test_a_really_full_disk(data: Path, store: Store, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", str(disk)]
    if subprocess.run(mount, check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        with pytest.raises(UserError, match="cannot be written: No space left on device; make room"):
            prepare([data], disk / "store", workers=1)
        subprocess.run(["mount", "-o", "remount,size=4m", str(disk)], check=True)
        assert prepare([data], disk / "store", workers=1).made["reused"] >= 1
        assert content(disk / "store") == content(store.path)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_second_prepare_into_the_same_folder_is_refused(data: Path, tmp_path: Path) -> None:
    with locked(tmp_path / ".store.partial" / "lock", "not here"):
        with pytest.raises(UserError, match="another prepare is writing it; wait until it is done") as caught:
            prepare([data], tmp_path / "store")
        assert (tmp_path / ".store.partial" / "lock").exists()
    assert "\n" not in str(caught.value)


def test_recordings_in_memory(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    signals = [noise_uv(seed=number) for number in range(3)]
    events = [[(1.0, 2.0, "go")], [], []]

    def given() -> list[Path | Recording]:
        held = [
            from_array(signal, NAMES, 200, unit="uV", events=some, name=f"sub-{number}")
            for number, (signal, some) in enumerate(zip(signals, events))
        ]
        return [*held, data / "sub-3_rest.edf"]

    out, undisturbed = tmp_path / "store", prepare(given(), tmp_path / "undisturbed").path
    with stopped(monkeypatch, after=3):
        prepare(given(), out)
    assert prepare(given(), out, workers=2).made["reused"] == 3
    assert content(out) == content(undisturbed)
    with stopped(monkeypatch, after=3):
        prepare(given(), out, overwrite=True)
    signals[0], events[1] = signals[0] + 1, [(1.0, 2.0, "stop")]
    assert prepare(given(), out, overwrite=True).made["reused"] == 1
    assert run.prepare(given(), out, append=True)["already_there"] == 4
    signals[2] = signals[2] * 2
    with pytest.raises(UserError, match="sub-2: the store has another recording of this name"):
        prepare(given(), out, append=True)


# --- processes and clusters


@pytest.mark.parametrize("workers", [0, -5])
def test_less_than_one_process_is_refused(data: Path, tmp_path: Path, workers: int) -> None:
    with pytest.raises(UserError, match=f"workers: expected 1 or more, got {workers}; leave it out"):
        prepare([data], tmp_path / "store", workers=workers)
    assert names(tmp_path) == []


def test_threads_of_a_process_prepare_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a cluster a process may have several; Python's warnings, which become notes, belong to all of them."""
    inside, most = 0, 0

    def slow(_: preparing.Task) -> preparing.Result:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        time.sleep(0.1)
        inside -= 1
        return preparing.Result("done")

    monkeypatch.setattr(preparing, "_prepare_one", slow)
    task = preparing.Task(0, preparing.Found(Path("a"), "a", "1", ""), Path(), SignalConfig(), None)
    threads = [threading.Thread(target=preparing.prepare_one, args=[task]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_the_store_is_the_same_with_processes(data: Path, store: Store, tmp_path: Path) -> None:
    assert content(prepare([data], tmp_path / "store", workers=2).path) == content(store.path)


@pytest.mark.filterwarnings("ignore")  # distributed's own
def test_the_store_is_the_same_from_a_cluster(data: Path, store: Store, tmp_path: Path) -> None:
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        made = prepare([data], tmp_path / "store", dask=cluster.scheduler_address)
        assert content(made.path) == content(store.path)
        with pytest.raises(UserError, match="choose one"):
            prepare([data], tmp_path / "other", dask=cluster.scheduler_address, workers=2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # distributed's own
def test_a_cluster_that_goes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[logging.LogRecord] = []
    monkeypatch.setattr(logging.getLogger("distributed.client"), "filters", [lambda one: logged.append(one) or True])
    monkeypatch.setattr(workers, "ANSWER_S", 60)
    for number in range(30):
        write_edf(tmp_path / "data" / f"sub-{number:02d}.edf", noise_uv(4, 40_000, seed=number), NAMES)
    at = tmp_path / "scheduler.json"
    cluster = [
        subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.dask_{which}", "--scheduler-file", at, *options],
            stderr=subprocess.DEVNULL,
        )
        for which, options in (
            ("scheduler", ["--port", "0", "--no-dashboard"]),
            ("worker", ["--nthreads", "1", "--no-nanny", "--no-dashboard"]),
        )
    ]
    try:
        deadline = time.monotonic() + 60
        while not (at.exists() and at.read_text().endswith("}")):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        address = json.loads(at.read_text())["address"]
        results = making.on_cluster

        def cut(*arguments: object) -> Iterator[object]:
            for n, result in enumerate(results(*arguments)):
                if n == 2:
                    cluster[0].kill()
                yield result

        monkeypatch.setattr(making, "on_cluster", cut)
        with pytest.raises(UserError, match=r"scheduler is gone, .*run it again, it goes on after the") as caught:
            prepare([tmp_path / "data"], tmp_path / "store", dask=address)
    finally:
        for process in cluster:
            process.kill()
            process.wait()
    assert str(caught.value).startswith(f"{address}: ")
    assert logged == []
    assert prepare([tmp_path / "data"], tmp_path / "store", workers=1).made["reused"] >= 3


def dies_at_the_second(task: preparing.Task) -> preparing.Result:
    """What the processes of the next test do; they find it by its name."""
    if task.one.file == "sub-2_rest.edf":
        os.kill(os.getpid(), signal.SIGKILL)
    return preparing.prepare_one(task)


@pytest.mark.slow
def test_a_process_that_is_killed_takes_its_own_recording_only(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "prepare_one", dies_at_the_second)
    store = prepare([data], tmp_path / "store", workers=2)
    assert [r.file for r in store.recordings] == ["sub-1_rest.edf", "sub-3_rest.edf", "sub-5_copy.edf"]
    first, _ = store.head["skipped"]
    assert first["reason"].startswith(f"{data / 'sub-2_rest.edf'}: the process that worked on it ended (killed by SIGK")


@pytest.mark.parametrize(
    ("how", "what"), [("killed by SIGKILL", "for want of memory"), ("status 1", "run with --workers 1 to see why")]
)
def test_only_what_was_killed_is_said_to_want_memory(
    data: Path, monkeypatch: pytest.MonkeyPatch, how: str, what: str
) -> None:
    task = preparing.Task(0, preparing.scan([data])[0], data, SignalConfig(), None)
    monkeypatch.setattr(preparing, "_finished", lambda *_: (pair for pair in [(task, preparing.Lost(how))]))
    (result,) = preparing._work([task], 2, None)
    assert f"ended ({how})" in result.skipped
    assert what in result.skipped
    assert ("memory" in result.skipped) == ("SIGKILL" in how)


def test_processes_are_started_where_they_pay_off(
    example_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    monkeypatch.setattr(making, "available_bytes", lambda: 2**40)
    assert preparing._n_workers(preparing.scan([example_data]), None) == 1
    for number in range(4):
        path = tmp_path / f"{number}.edf"
        path.touch()
        os.truncate(path, 2**26 * 2)  # takes no room
    found = preparing.scan([tmp_path])
    assert [preparing._n_workers(some, None) for some in (found[:1], found[:2], found)] == [1, 2, 4]
    assert preparing._n_workers(found, 9) == 4
    assert preparing._n_workers(found[:1] * 40, None) == 16
    assert preparing._n_workers([], None) == 1
    for gib, expected in ((3.5, 3), (0.2, 1)):  # a process needs one
        monkeypatch.setattr(making, "available_bytes", lambda gib=gib: int(gib * 2**30))
        assert preparing._n_workers(found[:1] * 40, None) == expected
        assert preparing._n_workers(found[:1] * 40, 7) == 7


# --- sources


def test_odd_sources(tmp_path: Path) -> None:
    data, away = tmp_path / "data", tmp_path / "away"
    longest = "sub-µ" + "é" * 122 + ".edf"
    assert len(longest.encode()) == 254
    deep = data / ("d" * 200) / ("e" * 200) / ("f" * 200)
    write_edf(away / "sub-9.edf", noise_uv(seed=9), NAMES)
    write_edf(data / longest, noise_uv(seed=1), NAMES)
    write_edf(deep / "sub-2 日本.edf", noise_uv(seed=2), NAMES)
    (data / "sub-3.edf").symlink_to(away / "sub-9.edf")
    (data / "linked").symlink_to(away)
    before = sorted(data.rglob("*"))
    for folder in (data, away, deep):
        folder.chmod(0o555)
    out = tmp_path / ("s" * 255)
    stored = prepare([data], out).recordings
    assert [r.file for r in stored] == [
        f"{'d' * 200}/{'e' * 200}/{'f' * 200}/sub-2 日本.edf", "linked/sub-9.edf", longest,
    ]  # fmt: skip
    assert prepare([data], out, append=True).made["already_there"] == 3
    assert sorted(data.rglob("*")) == before
    for folder in (data, away, deep):
        folder.chmod(0o755)
    assert names(tmp_path) == ["away", "data", out.name]


def test_entries_are_read_in_any_layout(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "recordings.json"
    whole = json.loads((store.path / "recordings.json").read_text())
    assert list(preparing.read_entries(store.path / "recordings.json")) == whole
    for text in (json.dumps(whole), json.dumps(whole, indent=1), "[\n" + json.dumps(whole)[1:]):
        path.write_text(text)
        assert list(preparing.read_entries(path)) == whole
    path.write_text((store.path / "recordings.json").read_text()[:-3])  # cut at its end
    with pytest.raises(UserError, match="expected JSON"):
        list(preparing.read_entries(path))
    assert preparing.write_entries(path, iter([])) == 0
    assert list(preparing.read_entries(path)) == []


def test_a_bad_stretch_of_a_good_channel_is_missing_in_the_store(tmp_path: Path) -> None:
    common = noise_uv(1, 60 * 200, seed=5, sd_uv=20.0)
    data = common + noise_uv(4, 60 * 200, seed=6, sd_uv=5.0)
    data[1, 20 * 200 : 30 * 200] *= 90
    path = write_edf(tmp_path / "sub-1.edf", np.clip(data, -3000, 3000), ["Fp1", "Fp2", "C3", "C4"])
    store = prepare([path], tmp_path / "store")
    assert store.recordings[0].bad_channels == []
    assert store.recordings[0].quality["Fp2"]["bad_stretches"][0][:2] == [20.0, 30.0]
    missing = np.isnan(store.read(0))
    assert missing[1, 20 * 200 : 30 * 200].all()
    assert not missing[1, : 20 * 200].any()
    assert not missing[1, 30 * 200 :].any()
    assert not missing[[0, 2, 3]].any()

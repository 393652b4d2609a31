"""Whatever interrupts a write, what lay there before is whole, or what was to come is."""

import errno
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from bothways import files
from bothways.errors import BothwaysWarning, UserError
from bothways.files import (
    check_output,
    hidden_beside,
    link_or_copy,
    locked,
    new_folder,
    read_bytes,
    read_json,
    sha256_file,
    write_bytes,
    write_json,
    write_text,
)

NO_EXCHANGE = "files._exchange = lambda *_: False\n"  # as on a system that cannot let two folders change names
OLD, NEW = b"old content", b"new content, longer than the old"


def run_killed(code: str, *arguments: Path) -> None:
    """Runs Python code that is expected to kill itself with the signal that nothing can catch."""
    prelude = "import os, signal, sys; from pathlib import Path; from bothways import files\n"
    prelude += "die = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
    command = [sys.executable, "-c", prelude + code, *map(str, arguments)]
    assert subprocess.run(command, timeout=60).returncode == -signal.SIGKILL


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_write_and_read(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"µV": [1, 2.5, None]})
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == '{\n "µV": [\n  1,\n  2.5,\n  null\n ]\n}\n'
    assert read_json(tmp_path / "a.json") == {"µV": [1, 2.5, None]}
    write_text(tmp_path / "a.json", "[]")
    assert read_json(tmp_path / "a.json") == []
    assert names(tmp_path) == {"a.json"}


def test_names_outlast_a_power_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    real, replace = os.fsync, Path.replace

    def sync(descriptor: int) -> None:
        done.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        done.append("renamed")
        return replace(path, target)

    if not Path("/proc/self/fd").exists():
        pytest.skip("what is synced is read from /proc")
    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", renamed)
    files.make_folder(tmp_path / "a" / "b")
    assert sorted(done) == [str(tmp_path), str(tmp_path / "a")]
    done.clear()
    write_text(tmp_path / "a" / "b" / "c", "")
    assert done[1:] == ["renamed", str(tmp_path / "a" / "b")]
    assert Path(done[0]).parent == tmp_path / "a" / "b"


def test_a_file_system_that_syncs_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "fsync", sync)
    write_text(tmp_path / "a", "b")
    assert (tmp_path / "a").read_text() == "b"


def test_json_that_no_other_reader_takes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"loss": float("nan")})
    assert names(tmp_path) == set()


def test_sha256(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256_file(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_read_json_says_what_is_wrong_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(UserError, match=r"a\.json: expected JSON") as caught:
        read_json(tmp_path / "a.json")
    assert "\n" not in str(caught.value)


def test_read_json_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected a file here, found none"):
        read_json(tmp_path / "a.json")


def test_what_is_no_file_is_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "zeros").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("pipe", "folder", "zeros"):
        with pytest.raises(UserError, match="expected a file, got a folder, a pipe or a device; check the path"):
            read_json(tmp_path / name)
    with pytest.raises(UserError, match="expected a file, but it cannot be read"):
        read_json(tmp_path / "loop")


def test_a_file_larger_than_makes_sense_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"[1234]")
    assert read_bytes(tmp_path / "a", 6) == b"[1234]"
    with pytest.raises(UserError, match="expected at most 5 bytes, got 6; check that it is the right file"):
        read_json(tmp_path / "a", 5)


def test_json_of_little_but_brackets(tmp_path: Path) -> None:
    for many in ("[]", "{}", '"ab"'):
        (tmp_path / "a").write_text(f"[{', '.join([many] * 1_500_000)}]")
        with pytest.raises(UserError, match="expected JSON, got little but brackets and quotes"):
            read_json(tmp_path / "a")
    (tmp_path / "a").write_text(json.dumps([[0.25, 0.5]] * 400_000))  # of a size that would be looked at
    assert len(read_json(tmp_path / "a")) == 400_000


@pytest.mark.parametrize("moment", ["files.os.fsync", "Path.replace"])
def test_a_kill_while_writing_leaves_the_old_file(tmp_path: Path, moment: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(OLD)
    run_killed(f"{moment} = die; files.write_bytes(Path(sys.argv[1]), {NEW!r})", path)
    assert path.read_bytes() == OLD


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_leaves_the_old_file_and_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(OLD)
    monkeypatch.setattr(files.os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_bytes(path, NEW)
    assert path.read_bytes() == OLD
    assert names(tmp_path) == {"a"}


def test_a_full_disk_leaves_the_old_folder_and_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "store"
    with new_folder(out) as folder:
        (folder / "a").write_bytes(OLD)
        (folder / "store.json").write_text("{}")
    monkeypatch.setattr(files.os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"), new_folder(out, overwrite=True) as folder:
        (folder / "a").write_bytes(NEW)
    assert (out / "a").read_bytes() == OLD
    assert names(tmp_path) == {"store"}


def test_new_folder(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "store"
    with new_folder(out) as folder:
        (folder / "signals").mkdir()
        (folder / "signals" / "a").write_bytes(OLD)
        (folder / "store.json").write_text("{}")
        assert not out.exists()
    assert (out / "signals" / "a").read_bytes() == OLD
    with new_folder(out, overwrite=True) as folder:
        (folder / "b").write_bytes(NEW)
    assert names(out) == {"b"}
    assert names(out.parent) == {"store"}


def test_an_exception_in_the_block_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "store") as folder:  # noqa: PT012
        (folder / "a").write_bytes(NEW)
        raise KeyboardInterrupt
    assert names(tmp_path) == set()


MAKE = "with files.new_folder(Path(sys.argv[1]), overwrite=True) as folder:\n    (folder / 'a').write_bytes({!r})\n"


@pytest.mark.parametrize("moment", ["block", "sync", "exchange", "first rename"])
def test_a_kill_before_the_folder_is_ready_leaves_the_old_one(tmp_path: Path, moment: str) -> None:
    out = tmp_path / "store"
    out.mkdir()
    (out / "store.json").write_text("{}")
    (out / "a").write_bytes(OLD)
    code = {
        "block": MAKE.format(NEW[:5]) + "    die()\n",
        "sync": "files.os.fsync = die\n" + MAKE.format(NEW),
        "exchange": "files._exchange = die\n" + MAKE.format(NEW),
        "first rename": NO_EXCHANGE + "Path.rename = die\n" + MAKE.format(NEW),
    }
    run_killed(code[moment], out)
    assert (out / "a").read_bytes() == OLD


def test_a_kill_between_the_renames_loses_neither_folder(tmp_path: Path) -> None:
    out = tmp_path / "store"
    out.mkdir()
    (out / "store.json").write_text("{}")
    (out / "a").write_bytes(OLD)
    code = "rename = Path.rename\nPath.rename = lambda *a: (rename(*a), die())\n"
    run_killed(NO_EXCHANGE + code + MAKE.format(NEW), out)
    contents = {path.read_bytes() for path in tmp_path.glob("*/a")} | {p.read_bytes() for p in tmp_path.glob(".*/a")}
    assert contents == {OLD, NEW}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is a moment between two renames")
def test_a_kill_at_the_exchange_leaves_the_old_folder_or_the_new(tmp_path: Path) -> None:
    out = tmp_path / "store"
    out.mkdir()
    (out / "store.json").write_text("{}")
    (out / "a").write_bytes(OLD)
    run_killed(
        "exchange = files._exchange\nfiles._exchange = lambda *a: (exchange(*a), die())\n" + MAKE.format(NEW), out
    )
    assert (out / "a").read_bytes() == NEW


def test_a_folder_behind_a_link_is_replaced_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("store")
    for content in (OLD, NEW):
        with new_folder(tmp_path / "link", overwrite=True) as folder:
            (folder / "a").write_bytes(content)
            (folder / "store.json").write_text("{}")
        assert (tmp_path / "store" / "a").read_bytes() == content
    assert (tmp_path / "link").is_symlink()
    assert names(tmp_path) == {"link", "store"}


@pytest.mark.parametrize("can_link", [True, False])
def test_link_or_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_link: bool) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    (tmp_path / "a").write_bytes(OLD)
    if not can_link:
        monkeypatch.setattr(files.os, "link", no_links)
    link_or_copy(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == OLD
    assert (tmp_path / "b").samefile(tmp_path / "a") == can_link
    with pytest.raises(FileNotFoundError):
        link_or_copy(tmp_path / "none", tmp_path / "c")


def test_a_lock_is_held_by_one_and_ends_with_its_process(tmp_path: Path) -> None:
    lock = tmp_path / "work" / "lock"
    run_killed("with files.locked(Path(sys.argv[1]), 'busy'): die()", lock)
    with locked(lock, "busy"):
        with pytest.raises(UserError, match="busy now"), locked(lock, "busy now"):
            pass
        shutil.rmtree(lock.parent)
        with locked(lock, "busy"):  # a new file of the same name is another lock
            pass
    with locked(lock, "busy"):
        pass


def test_a_lock_on_a_file_that_was_replaced_meanwhile_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, flock = tmp_path / "lock", files.fcntl.flock

    def replaced(descriptor: int, how: int) -> None:
        monkeypatch.setattr(files.fcntl, "flock", flock)
        lock.unlink()  # as its last holder does, and the next one
        lock.touch()
        flock(descriptor, how)

    monkeypatch.setattr(files.fcntl, "flock", replaced)
    with locked(lock, "busy"), pytest.raises(UserError, match="busy now"), locked(lock, "busy now"):
        pass


def test_a_lock_that_the_file_system_lacks_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(files.fcntl, "flock", none)
    with pytest.warns(BothwaysWarning, match="cannot be locked"), locked(tmp_path / "lock", "busy"):
        pass


def test_a_hidden_name_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hidden_beside(tmp_path / "store", "partial") == tmp_path / ".store.partial"
    with monkeypatch.context() as ascii_locale:
        ascii_locale.setattr(os, "fsencode", None)  # which cannot take every name
        one, other = (hidden_beside(tmp_path / ("µ" * 127 + letter), "partial") for letter in "ab")
    assert one != other
    one.mkdir()
    with new_folder(tmp_path / ("s" * 255)) as folder:
        (folder / "a").write_bytes(NEW)
    assert (tmp_path / ("s" * 255) / "a").read_bytes() == NEW


def test_check_output(tmp_path: Path) -> None:
    check_output(tmp_path / "new" / "deeper")
    (tmp_path / "file").write_bytes(OLD)
    with pytest.raises(UserError, match="already exists; choose another --out, or pass --overwrite"):
        check_output(tmp_path / "file")
    with pytest.raises(UserError, match="not a folder that bothways wrote"):
        check_output(tmp_path / "file", overwrite=True)
    with pytest.raises(UserError, match="is a file, expected a folder"):
        check_output(tmp_path / "file" / "store")


def test_check_output_where_nothing_may_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.os, "access", lambda *_: False)  # a superuser may write anywhere
    with pytest.raises(UserError, match="cannot be written; choose another --out"):
        check_output(tmp_path / "store")


def test_overwriting_spares_what_is_not_ours_and_what_is_read(tmp_path: Path) -> None:
    recordings, store = tmp_path / "recordings", tmp_path / "recordings" / "store"
    store.mkdir(parents=True)
    (recordings / "a.edf").write_bytes(OLD)
    with pytest.raises(UserError, match="not a folder that bothways wrote"), new_folder(recordings, overwrite=True):
        pass
    check_output(store, overwrite=True, inputs=[recordings])  # empty: nothing is lost
    (recordings / "store.json").write_text("{}")
    for inputs in ([recordings], [recordings / "a.edf"], [store]):
        with pytest.raises(UserError, match="the output may not be or hold the input"):
            check_output(recordings, overwrite=True, inputs=inputs)
    assert (recordings / "a.edf").read_bytes() == OLD


def test_a_fork_does_not_keep_a_lock(tmp_path: Path) -> None:
    """A killed training's loader workers live on for some seconds; the next one need not wait for them."""
    awake, wake = os.pipe()
    if (parent := os.fork()) == 0:
        with locked(tmp_path / "lock", "busy"):
            if os.fork() == 0:  # the worker, which ends with this test
                os.close(wake)
                os.read(awake, 1)
            os._exit(0)
    os.waitpid(parent, 0)
    try:
        with locked(tmp_path / "lock", "busy"):
            pass
    finally:
        os.close(wake)
        os.close(awake)


def test_a_full_disk_is_that_of_the_folder_that_was_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space") as caught, new_folder(tmp_path / "out"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.filename == str(tmp_path / "out")
    with pytest.raises(OSError, match="No space") as caught, new_folder(tmp_path / "out"):
        raise OSError(errno.ENOSPC, "No space left on device", "scratch")
    assert caught.value.filename == "scratch"
    assert not list(tmp_path.iterdir())

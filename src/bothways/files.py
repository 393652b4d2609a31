"""Writing so that a kill, a full disk or a reader in between never sees half a file; content hashes."""

import ctypes
import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from bothways.errors import BothwaysWarning, UserError, plain_words


def sha256_file(path: Path) -> str:
    """Returns the SHA-256 of a plain file's bytes in hexadecimal, reading it in pieces.

    Raises:
        UserError: see `readable`.
    """
    with readable(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def write_text(path: Path, text: str) -> None:
    """Writes a text file under a temporary name, syncs it and renames it into place."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file under a temporary name, syncs it and renames it into place."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: Path, *, sync: bool = True) -> Iterator[BinaryIO]:
    """Yields a file to write that takes the place of `path` when the block ends without an exception.

    Without `sync` a power failure right after may leave part of it, or what was there; a killed process never does.
    """
    temporary = hidden_beside(path, f"{os.getpid()}.partial")
    try:
        with temporary.open("wb") as file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
        if sync:
            sync_to_disk(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Writes plain values as JSON, atomically; NaN and infinity are refused, for no other reader takes them."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


@contextmanager
def readable(path: Path) -> Iterator[BinaryIO]:
    """Opens a plain file to read; unlike `open`, it never waits for a pipe.

    Raises:
        UserError: the file is missing, cannot be read, or is a folder, a pipe or a device.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        raise UserError(f"{path}: expected a file here, found none; check the path") from None
    except (OSError, ValueError) as problem:
        why = plain_words(problem) if isinstance(problem, OSError) else problem
        raise UserError(f"{path}: expected a file, but it cannot be read ({why})") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UserError(f"{path}: expected a file, got a folder, a pipe or a device; check the path")
    with open(descriptor, "rb") as file:
        yield file


def read_bytes(path: Path, most_bytes: int) -> bytes:
    """Reads a file that is not larger than what makes sense.

    Raises:
        UserError: see `readable`; it is larger.
    """
    with readable(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most_bytes:
            raise UserError(
                f"{path}: expected at most {most_bytes:,} bytes, got {size:,}; check that it is the right file"
            )
        return file.read(most_bytes)


def read_json(path: Path, most_bytes: int = 2**30) -> Any:
    """Reads a JSON file.

    Empty brackets take 25 times the memory of their text, short strings 12 times. A file above 4 MiB that is little
    else is refused.

    Raises:
        UserError: the file is missing, is not JSON, or is larger than `most_bytes`.
    """
    content = read_bytes(path, most_bytes)
    brackets, quotes = content.count(b"[") + content.count(b"{"), content.count(b'"')
    if len(content) > 2**22 and 90 * brackets + 35 * quotes > 8 * len(content):
        raise UserError(f"{path}: expected JSON, got little but brackets and quotes; check that it is the right file")
    try:
        return json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as problem:
        raise UserError(f"{path}: expected JSON, but it cannot be read ({problem})") from None


OURS = (
    "store.json",
    "manifest.json",
    "predictions.json",
    "embeddings.json",
    "training.json",
    "metrics.jsonl",
    "splits.json",
    "pasted.json",
    "corpus.json",
)
"""One of these lies in every folder that a command writes: only such a folder is ever replaced."""
_NO_SYNC = {errno.EINVAL, errno.ENOTSUP}
"""Of file systems that sync no folder."""
_NO_LINKS = {errno.EPERM, errno.EXDEV, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES}


def check_output(out: Path, *, overwrite: bool = False, inputs: Iterable[str | Path] = ()) -> None:
    """Checks, before any work, that `out` can be made.

    Args:
        out: the folder to write.
        overwrite: whether it may be replaced.
        inputs: what is read to make it: it may neither be nor hold one of them.

    Raises:
        UserError: it exists and `overwrite` is false, it is something else than an earlier output, it touches an input,
            or its folder cannot be written.
    """
    if out.exists() and not overwrite:
        raise UserError(f"{out}: already exists; choose another --out, or pass --overwrite to replace it")
    if out.exists() and not (out.is_dir() and (not any(out.iterdir()) or any((out / name).exists() for name in OURS))):
        raise UserError(f"{out}: not a folder that bothways wrote, so it is not overwritten; choose another --out")
    real = out.resolve()
    for path in map(Path, inputs):
        if real in (path.resolve(), *path.resolve().parents):
            raise UserError(f"{out}: the output may not be or hold the input {path}; choose another --out")
    parent = out.absolute().parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise UserError(f"{out}: {parent} is a file, expected a folder; choose another --out")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UserError(f"{out}: {parent} cannot be written; choose another --out")


def beside(folder: Path, name: str) -> Path:
    """Returns a file of a folder, which may have come with a download: it may not be a link to elsewhere.

    Raises:
        UserError: it is one.
    """
    real, home = Path(os.path.realpath(folder / name)), Path(os.path.realpath(folder))
    blobs = home.parent.parent / "blobs"  # where the hub's cache keeps what its snapshots link to
    if real.parent not in (home, blobs):
        raise UserError(f"{folder / name}: expected a file in the folder, got a link out of it; copy the file there")
    return folder / name


def hidden_beside(path: Path, ending: str) -> Path:
    """Returns a hidden name in the same folder; of a name so long that nothing fits behind it, a part and a hash."""
    name = path.name
    encoded = name.encode("utf-8", "surrogateescape")
    if len(encoded) > 200:
        name = f"{name[:40]}-{hashlib.sha256(encoded).hexdigest()[:16]}"
    return path.with_name(f".{name}.{ending}")


@contextmanager
def new_folder(out: Path, *, overwrite: bool = False, temporary: Path | None = None) -> Iterator[Path]:
    """Yields a temporary folder that takes the place of `out` when the block ends without an exception.

    Every file is synced before the rename, so `out` is either absent, as it was, or whole.

    Args:
        out: the folder to write.
        overwrite: whether it may be replaced.
        temporary: the folder to yield, on the same file system; emptied first. By default one beside `out`.

    Raises:
        UserError: see `check_output`.
    """
    check_output(out, overwrite=overwrite)
    out = out.resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary or hidden_beside(out, f"{os.getpid()}.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        for path in sorted(temporary.rglob("*")):
            sync_to_disk(path)
        sync_to_disk(temporary)
        if not out.exists():
            temporary.rename(out)
        elif not _exchange(temporary, out):  # then there is a moment without `out`
            old = hidden_beside(out, f"{os.getpid()}.old")
            out.rename(old)
            try:
                temporary.rename(out)
            except OSError:
                old.rename(out)
                raise
            shutil.rmtree(old)
        sync_to_disk(out.parent)
    except OSError as problem:
        if problem.filename is None:  # of a full disk a write does not say where
            problem.filename = str(out)
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Lets two folders change names in one step, where the system can (Linux); says whether it did."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return rename is not None and rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0


def link_or_copy(source: Path, target: Path) -> None:
    """Gives a file a second name; where the file system has no hard links, copies it."""
    try:
        os.link(source, target)
    except OSError as problem:
        if problem.errno not in _NO_LINKS:
            raise
        shutil.copyfile(source, target)


_HELD: set[int] = set()
"""Descriptors of the locks that this process holds."""


def _let_go() -> None:
    """In a fork, which would keep a lock as long as it lives: a loader's worker outlives its killed parent a while."""
    while _HELD:
        os.close(_HELD.pop())


os.register_at_fork(after_in_child=_let_go)


@contextmanager
def locked(path: Path, busy: str) -> Iterator[None]:
    """Holds a lock on a file, which is made and which may be deleted in the block; it ends with the process.

    Raises:
        UserError: another process holds it; `busy` is the message.
    """
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:  # who held it has just deleted the folder
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise UserError(busy) from None
        except OSError as problem:
            warnings.warn(f"{path}: cannot be locked ({problem.strerror}); run one at a time", BothwaysWarning, 3)
        if path.exists() and os.path.samestat(path.stat(), os.fstat(descriptor)):
            break
        os.close(descriptor)  # of a file that is deleted by now
    _HELD.add(descriptor)
    try:
        yield
    finally:
        if descriptor in _HELD:
            _HELD.remove(descriptor)
            os.close(descriptor)


def make_folder(path: Path) -> None:
    """Makes a folder, and those it lies in, where they are missing; a power failure does not take them away again."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    if not path.is_dir():  # where it is, its file system may be one that is only read
        path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync_to_disk(folder.parent)


def sync_to_disk(path: Path) -> None:
    """Waits until a file's content, or a folder's names, would outlast a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as problem:
        if not (path.is_dir() and problem.errno in _NO_SYNC):
            raise
    finally:
        os.close(descriptor)

"""Writing so that a kill, a full disk or a reader in between never sees half a file; content hashes."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bothways.errors import UserError


def sha256_file(path: Path) -> str:
    """Returns the SHA-256 of a file's bytes in hexadecimal, reading it in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_text(path: Path, text: str) -> None:
    """Writes a text file under a temporary name, syncs it and renames it into place."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file under a temporary name, syncs it and renames it into place."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Writes plain values as JSON, atomically; NaN and infinity are refused, for no other reader takes them."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Reads a JSON file.

    Raises:
        UserError: the file is missing or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: expected a file here, found none; check the path") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as problem:
        raise UserError(f"{path}: expected JSON, but it cannot be read ({problem})") from None


OURS = ("store.json", "manifest.json", "predictions.json")
"""One of these lies in every folder that a command writes: only such a folder is ever replaced."""


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


@contextmanager
def new_folder(out: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yields a temporary folder beside `out` that takes its place when the block ends without an exception.

    Every file is synced before the rename, so `out` is either absent, as it was, or whole.

    Raises:
        UserError: see `check_output`.
    """
    check_output(out, overwrite=overwrite)
    out = out.absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_name(f".{out.name}.{os.getpid()}.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        for path in sorted(temporary.rglob("*")):
            _sync(path)
        _sync(temporary)
        if out.exists():
            old = out.with_name(f".{out.name}.{os.getpid()}.old")
            out.rename(old)
            try:
                temporary.rename(out)
            except OSError:
                old.rename(out)
                raise
            shutil.rmtree(old)
        else:
            temporary.rename(out)
        _sync(out.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

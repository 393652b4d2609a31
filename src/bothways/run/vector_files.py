"""Vectors of documents in a file, as many as come: Parquet, or NumPy's .npy and .npz."""

import csv
import io
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from jaxtyping import Float32, Int

from bothways import __version__
from bothways.errors import UserError
from bothways.files import check_output, replacing
from bothways.text import Document

COLUMNS = ("file", "line", "tokens")
ARRAYS = {"vectors.npy", "file.npy", "line.npy", "tokens.npy", "files.npy"}
MADE_BY = b"bothways"
"""Key in a Parquet file's metadata."""
ENDINGS = (".parquet", ".npy", ".npz")


class VectorWriter(Protocol):
    """Takes vectors as they come."""

    files: list[Path]

    def add(self, some: Sequence[Document], tokens: Int[np.ndarray, " n"], values: Float32[np.ndarray, "n D"]) -> None:
        """Adds some documents' vectors, and where these are from."""

    def finish(self) -> None:
        """Writes what is known at the end only."""


def check_place(out: Path, overwrite: bool, inputs: Sequence[str | Path]) -> None:
    """Refuses, before any work, what cannot be written or is nothing of ours.

    Raises:
        UserError: see `files.check_output`; the ending is none that is written.
    """
    if out.suffix not in ENDINGS:
        raise UserError(f"{out}: expected FILE{', FILE'.join(ENDINGS)}; choose one of them")
    check_files(out, COLUMNS, overwrite, inputs)


def check_files(out: Path, columns: Sequence[str], overwrite: bool, inputs: Sequence[str | Path]) -> None:
    """Refuses a file that is there and is not to be replaced, or is nothing of ours; of FILE.npy also FILE.csv.

    Args:
        out: the file.
        columns: of the table beside FILE.npy, by which that is known.
        overwrite: what we wrote may be replaced.
        inputs: see `files.check_output`.

    Raises:
        UserError: there is one.
    """
    for file in [out, *([out.with_suffix(".csv")] if out.suffix == ".npy" else [])]:
        if not (overwrite and file.is_file()):
            check_output(file, inputs=inputs)
        elif not _is_ours(file, columns):
            raise UserError(f"{file}: not a file that bothways wrote, so it is not overwritten; choose another --out")


def _is_ours(file: Path, columns: Sequence[str]) -> bool:
    try:
        if file.suffix == ".parquet":
            return MADE_BY in (pq.read_schema(file).metadata or {})
        if file.suffix == ".npz":
            with zipfile.ZipFile(file) as arrays:
                return set(arrays.namelist()) == ARRAYS
        with file.with_suffix(".csv").open(encoding="utf-8", errors="replace") as lines:
            return lines.readline().strip() == ",".join(columns)
    except (OSError, pa.ArrowException, zipfile.BadZipFile):
        return False


@contextmanager
def vector_writer(out: Path, size: int) -> Iterator[VectorWriter]:
    """Yields what writes vectors of D numbers; the file is there when the block ends, or not at all."""
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        file = stack.enter_context(replacing(out))
        if out.suffix == ".parquet":
            columns = [("file", pa.string()), ("line", pa.int64()), ("tokens", pa.int64())]
            schema = pa.schema(
                [*columns, ("vector", pa.list_(pa.float32(), size))], metadata={MADE_BY: __version__.encode()}
            )
            yield _Parquet(out, stack.enter_context(pq.ParquetWriter(file, schema)))
        elif out.suffix == ".npy":
            yield _Npy(out, size, file, stack.enter_context(replacing(out.with_suffix(".csv"))))
        else:
            with tempfile.TemporaryDirectory(dir=out.absolute().parent, prefix=".vectors-") as scratch:
                yield _Npz(out, size, file, Path(scratch), stack)


class _Parquet:
    def __init__(self, out: Path, writer: pq.ParquetWriter) -> None:
        self.files, self.writer = [out], writer

    def add(self, some: Sequence[Document], tokens: Int[np.ndarray, " n"], values: Float32[np.ndarray, "n D"]) -> None:
        """Writes a row group."""
        flat = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
        places = [pa.array([one.file for one in some]), pa.array([one.line for one in some], pa.int64())]
        columns = [*places, pa.array(tokens, pa.int64()), flat]
        self.writer.write_table(pa.Table.from_arrays(columns, schema=self.writer.schema))

    def finish(self) -> None:
        """Has nothing to add."""


class _Growing:
    """An array in a file, of which the number of rows is known at the end only."""

    def __init__(self, file: BinaryIO, kind: str, *size: int) -> None:
        self.file, self.kind, self.size, self.n = file, kind, size, 0
        self._head()

    def _head(self) -> None:
        head = {"descr": self.kind, "fortran_order": False, "shape": (self.n, *self.size)}
        np.lib.format.write_array_header_1_0(self.file, head)  # leaves room for a larger first number

    def add(self, values: np.ndarray) -> None:
        self.file.write(np.ascontiguousarray(values, dtype=self.kind).tobytes())
        self.n += len(values)

    def finish(self) -> None:
        self.file.seek(0)
        self._head()
        self.file.seek(0, io.SEEK_END)


class _Npy:
    def __init__(self, out: Path, size: int, file: BinaryIO, table: BinaryIO) -> None:
        self.files, self.vectors, self.table = [out, out.with_suffix(".csv")], _Growing(file, "<f4", size), table
        self._rows([COLUMNS])

    def _rows(self, rows: Sequence[Sequence[Any]]) -> None:
        lines = io.StringIO()
        csv.writer(lines, lineterminator="\n").writerows(rows)
        self.table.write(lines.getvalue().encode())

    def add(self, some: Sequence[Document], tokens: Int[np.ndarray, " n"], values: Float32[np.ndarray, "n D"]) -> None:
        """Writes some rows."""
        self._rows([(one.file, one.line, n) for one, n in zip(some, tokens.tolist())])
        self.vectors.add(values)

    def finish(self) -> None:
        """Writes how many there are."""
        self.vectors.finish()


class _Npz:
    def __init__(self, out: Path, size: int, file: BinaryIO, scratch: Path, stack: ExitStack) -> None:
        self.files, self.file, self.names = [out], file, dict[str, int]()
        kinds: dict[str, tuple[str, tuple[int, ...]]] = {
            "vectors": ("<f4", (size,)), "file": ("<i4", ()), "line": ("<i8", ()), "tokens": ("<i8", ()),
        }  # fmt: skip
        self.arrays = {
            name: _Growing(stack.enter_context((scratch / name).open("w+b")), kind, *shape)
            for name, (kind, shape) in kinds.items()
        }

    def add(self, some: Sequence[Document], tokens: Int[np.ndarray, " n"], values: Float32[np.ndarray, "n D"]) -> None:
        """Writes some rows beside the archive, whose parts must be whole when they go in."""
        files = [self.names.setdefault(one.file, len(self.names)) for one in some]
        lines = [one.line for one in some]
        for name, part in {"vectors": values, "file": files, "line": lines, "tokens": tokens}.items():
            self.arrays[name].add(np.asarray(part))

    def finish(self) -> None:
        """Puts them together."""
        with zipfile.ZipFile(self.file, "w") as archive:
            for name, array in self.arrays.items():
                array.finish()
                array.file.seek(0)
                with archive.open(f"{name}.npy", "w", force_zip64=True) as part:
                    shutil.copyfileobj(array.file, part)
            with archive.open("files.npy", "w", force_zip64=True) as part:
                np.lib.format.write_array(part, np.array(list(self.names)), allow_pickle=False)

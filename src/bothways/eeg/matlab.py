"""Whether the sizes that a MATLAB file states are true, before its reader believes them.

scipy takes the types and sizes in a file for granted: false ones make it reserve any amount of memory, or end the
process. What is checked here is only that each piece lies in the one around it and holds what it is said to hold.
"""

import math
import struct
import zlib
from pathlib import Path

import numpy as np

from bothways.errors import UserError

_TYPE_BYTES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8, 16: 1, 17: 2, 18: 4}
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MATRIX, _COMPRESSED = 14, 15
_CELL, _STRUCT, _OBJECT, _CHAR, _SPARSE, _FUNCTION, _OPAQUE = 1, 2, 3, 4, 5, 16, 17
_DEEPEST = 50


class _Wrong(Exception):
    """What is wrong with a file."""


def check_eeglab(path: Path) -> None:
    """Checks a `.set` of MATLAB 5 to 7; later ones are HDF5, whose reader checks for itself.

    Raises:
        UserError: a size or type in it is impossible, or it states more channels than there are bytes.
    """
    with path.open("rb") as file:
        head = file.read(128)
        if head[:4] == b"\x89HDF" or head[124:128] in (b"\x00\x02IM", b"\x02\x00MI"):
            return
        order = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}.get(head[124:128])
        if order is None:
            raise UserError(f"{path}: expected a MATLAB file, got one that begins with {head[:16]!r}; copy it again")
        try:
            n_channels, size = _Walk(order).whole(file.read())
            if not 0 <= n_channels <= size:
                raise _Wrong(f"it states {n_channels:g} channels")
        except (_Wrong, struct.error, zlib.error) as problem:
            raise UserError(f"{path}: expected a MATLAB file, but {problem}; it is damaged, copy it again") from None


class _Walk:
    """Goes through all elements of a file."""

    def __init__(self, order: str) -> None:
        self.order = order
        self.n_channels = 0.0
        self.content = b""

    def whole(self, content: bytes) -> tuple[float, int]:
        """Returns the number of channels as it is stated, and the size of all elements, unpacked."""
        at, size = 0, 0
        while at + 8 <= len(content):
            kind, n = struct.unpack_from(f"{self.order}II", content, at)
            piece = content[at : at + 8 + n]
            self.content = zlib.decompress(piece[8:]) if kind == _COMPRESSED else piece
            self.matrix(*self.tag(0, len(self.content), (_MATRIX,))[1:], "", 0)
            size += len(self.content)
            at += 8 + n
        return self.n_channels, size

    def tag(self, at: int, end: int, kinds: tuple[int, ...] = tuple(_TYPE_BYTES)) -> tuple[int, int, int]:
        """Returns type, start and stop of the element at a place."""
        kind, n = struct.unpack_from(f"{self.order}II", self.content, at)
        start = at + 8
        if kind >> 16:  # up to four bytes lie in the tag itself
            kind, n, start = kind & 0xFFFF, kind >> 16, at + 4
            if n > 4:
                raise _Wrong(f"a short piece states {n} bytes")
        if kind not in kinds:
            raise _Wrong(f"a piece has the unknown type {kind}")
        if start + n > end:
            raise _Wrong(f"a piece of {n} bytes reaches beyond its end")
        return kind, start, start + n

    def matrix(self, at: int, end: int, name: str, depth: int) -> None:
        """Checks an array of any class and all that it holds."""
        if at == end:
            return
        if depth > _DEEPEST:
            raise _Wrong("its structures lie too deep in each other")
        _, start, stop = self.tag(at, end, (6,))
        if stop - start != 8:
            raise _Wrong("an array has no flags")
        (flags,) = struct.unpack_from(f"{self.order}I", self.content, start)
        kind, parts = flags & 0xFF, 2 if flags & 0x0800 else 1
        at = _after(stop)
        if kind == _OPAQUE:
            return
        if not 1 <= kind <= _OPAQUE:
            raise _Wrong(f"an array has the unknown class {kind}")
        _, start, stop = self.tag(at, end, (5,))
        dims = np.frombuffer(self.content[start:stop], f"{self.order}i4").tolist()
        n = math.prod(dims)
        if not 2 <= len(dims) <= 32 or min(dims) < 0:
            raise _Wrong(f"an array has the size {dims[:8]}")
        _, start, stop = self.tag(_after(stop), end, (1, 2))
        name = name or self.content[start:stop].decode("latin-1")
        at = _after(stop)
        if kind in (_CELL, _STRUCT, _OBJECT, _FUNCTION):
            self.inner(at, end, kind, n, name, depth)
            return
        for _ in range(2 + parts if kind == _SPARSE else parts):
            stored, start, stop = self.tag(at, end)
            if kind != _SPARSE and (stop - start) // _TYPE_BYTES[stored] < n:
                raise _Wrong(f"an array of {n} values holds {stop - start} bytes")
            at = _after(stop)
        if name == "nbchan" and n == 1 and stored in _NUMBERS:
            self.n_channels = float(np.frombuffer(self.content[start:stop], self.order + _NUMBERS[stored])[0])

    def inner(self, at: int, end: int, kind: int, n: int, name: str, depth: int) -> None:
        """Checks the arrays in a cell array or structure."""
        fields = [""]
        if kind == _OBJECT:
            at = _after(self.tag(at, end, (1, 2))[2])
        if kind in (_STRUCT, _OBJECT):
            _, start, stop = self.tag(at, end, (5,))
            width = int.from_bytes(self.content[start:stop], "little" if self.order == "<" else "big")
            _, start, stop = self.tag(_after(stop), end, (1, 2))
            if not 0 < width <= 1024 or (stop - start) % width:
                raise _Wrong(f"a structure's names are {width} letters long")
            names = self.content[start:stop]
            fields = [names[i : i + width].partition(b"\0")[0].decode("latin-1") for i in range(0, len(names), width)]
            at = _after(stop)
        n = 1 if kind == _FUNCTION else n
        if n * len(fields) * 8 > end - at:
            raise _Wrong(f"a structure of {n} x {len(fields)} arrays holds {end - at} bytes")
        for _ in range(n):
            for field in fields:
                _, start, stop = self.tag(at, end, (_MATRIX,))
                self.matrix(start, stop, field if depth == 0 and name == "EEG" else "-", depth + 1)
                at = stop


def _after(stop: int) -> int:
    return -(-stop // 8) * 8

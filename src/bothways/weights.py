"""Weights on disk: safetensors with a checksum for every tensor; all is verified, nothing is ever executed.

The format (huggingface/safetensors): the header's length as 8 bytes, the header (JSON: name -> dtype, shape, offsets;
`__metadata__`: strings), the numbers without a gap. Ours holds in `__metadata__` a `sha256:NAME` for every tensor, and
`alias:NAME` = another name for each that shares its numbers. Files without checksums are read too.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch
from torch import Tensor

from bothways.errors import UserError
from bothways.files import beside, read_json, readable, replacing

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
MOST_HEADER_BYTES = 4 * 2**20
"""Room for 20,000 tensors; a hostile one of this size takes 100 MB as Python's values."""
DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_OTHERS = {
    "pytorch_model*.bin": "a pickle that can run code; load it with transformers where you trust it",
    "tf_model*.h5": "weights of TensorFlow; load it with transformers 4 (`from_pretrained(…, from_tf=True)`)",
    "*.ckpt*.index": "a checkpoint of TensorFlow; load it with transformers 4 (`from_pretrained(…, from_tf=True)`)",
    "flax_model*.msgpack": "weights of Flax; load it with transformers 4 (`from_pretrained(…, from_flax=True)`)",
}
"""What others keep weights in, and how it becomes safetensors."""
_SUM, _ALIAS = "sha256:", "alias:"


class _Place(NamedTuple):
    """Where a tensor lies behind the header."""

    dtype: str
    shape: list[int]
    start: int
    stop: int


class _Header(NamedTuple):
    places: dict[str, _Place]
    """In the order of the file."""
    sums: dict[str, str]
    aliases: dict[str, str]


def write_weights(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] = {}) -> None:
    """Writes tensors atomically, each with its checksum; what shares its numbers with another is written once.

    Raises:
        UserError: more tensors than `read_weights` would take, or one of a dtype that it does not know.
    """
    if odd := [name for name, tensor in tensors.items() if tensor.dtype not in _NAMES]:
        raise UserError(
            f"{path}: tensor {odd[0]}: expected a dtype of {', '.join(DTYPES)}, got "
            f"{str(tensors[odd[0]].dtype).removeprefix('torch.')}; convert it first"
        )
    held: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    first: dict[Any, str] = {}
    for name, tensor in tensors.items():
        same = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and same in first:
            aliases[name] = first[same]
        else:
            first[same] = name
            held[name] = tensor.detach().cpu().contiguous()
    order = sorted(held, key=lambda name: (-held[name].element_size(), name))  # aligned, as the library writes them
    sums = {name: _digest(_NAMES[held[name].dtype], list(held[name].shape), _bytes(held[name])) for name in order}
    sums |= {name: sums[other] for name, other in aliases.items()}
    notes = {"format": "pt", **metadata}
    notes |= {f"{_ALIAS}{name}": other for name, other in aliases.items()}
    notes |= {f"{_SUM}{name}": value for name, value in sums.items()}
    header: dict[str, Any] = {"__metadata__": notes}
    start = 0
    for name in order:
        stop = start + held[name].nbytes
        header[name] = {
            "dtype": _NAMES[held[name].dtype], "shape": list(held[name].shape), "data_offsets": [start, stop],
        }  # fmt: skip
        start = stop
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MOST_HEADER_BYTES:
        raise UserError(f"{path}: {len(tensors)} tensors need a header of {len(text)} bytes, over {MOST_HEADER_BYTES}")
    with replacing(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            file.write(_bytes(held[name]))


def read_weights(path: Path, *, finite: bool = True) -> dict[str, Tensor]:
    """Reads all tensors of a file; sizes are verified before memory is taken, checksums where the file has them.

    Args:
        path: the file.
        finite: refuse NaN and infinity; False reads the batch that a run kept of a step that was not finite.

    Raises:
        UserError: missing, no safetensors, cut, changed, or a number that is NaN or infinite; the tensor is named.
    """
    tensors: dict[str, Tensor] = {}
    with _opened(path) as (file, header):
        for name, place in header.places.items():
            tensor = torch.empty(place.shape, dtype=DTYPES[place.dtype])
            content = _bytes(tensor)
            if file.readinto(content) != len(content):  # type: ignore[attr-defined]
                raise _damaged(path, f"tensor {_short(name)}: cut")
            expected = header.sums.get(name)
            found = _digest(place.dtype, place.shape, content) if expected is not None else None
            if found != expected:
                raise _damaged(path, f"tensor {_short(name)}: SHA-256 {found} is not the one it was saved with")
            if finite and tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
                raise UserError(
                    f"{path}: weight {_short(name)}: expected finite numbers, got NaN or infinity; take an earlier "
                    "checkpoint"
                )
            tensors[name] = tensor
    return tensors | {name: tensors[other] for name, other in header.aliases.items()}


def read_header(path: Path) -> dict[str, Tensor]:
    """Reads names, shapes and dtypes alone: tensors on the device `meta`, which hold no numbers.

    Raises:
        UserError: missing, no safetensors, cut, or a header that contradicts itself or the file.
    """
    with _opened(path) as (_, header):
        outlines = {
            name: torch.empty(place.shape, dtype=DTYPES[place.dtype], device="meta")
            for name, place in header.places.items()
        }
    return outlines | {name: outlines[other] for name, other in header.aliases.items()}


def has_checksums(path: Path) -> bool:
    """Whether a file says what its tensors were, as all that `write_weights` makes do.

    Raises:
        UserError: see `read_header`.
    """
    with _opened(path) as (_, header):
        return bool(header.sums) or not header.places


def sha256_of_header(path: Path) -> str:
    """Returns the SHA-256 of a file's header: with the checksums in it, it stands for all numbers, which are not read.

    Raises:
        UserError: missing, or no safetensors.
    """
    with readable(path) as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        header = file.read(min(length, MOST_HEADER_BYTES))
        if len(header) < length:
            raise _damaged(path, f"a header of {length} bytes, found {len(header)}")
        return hashlib.sha256(start + header).hexdigest()


def read_folder(folder: Path, read: Callable[[Path], dict[str, Tensor]] = read_weights) -> dict[str, Tensor]:
    """Reads `model.safetensors`, or the pieces that its index names; `read` is `read_weights` or `read_header`.

    Raises:
        UserError: see `read`; neither is there, or the index names what is not in the folder.
    """
    weights: dict[str, Tensor] = {}
    for file in weight_files(folder):
        weights |= read(file)
    if not (folder / WEIGHTS).exists() and (lacking := sorted(_weight_map(folder).keys() - weights.keys())):
        raise UserError(f"{folder}: {INDEX} names {len(lacking)} weights that no file holds (first: {lacking[0]})")
    return weights


def weight_files(folder: Path) -> list[Path]:
    """Returns `model.safetensors`, or the pieces that its index names.

    Raises:
        UserError: neither is there, one is a link out of the folder, or the index names what is not in it.
    """
    if (folder / WEIGHTS).exists():
        return [beside(folder, WEIGHTS)]
    return [_beside(folder, name) for name in sorted(set(_weight_map(folder).values()))]


def other_format(folder: Path) -> str | None:
    """Says which other weights than safetensors a folder holds, and how they are made such; they are never opened."""
    if (folder / WEIGHTS).exists() or (folder / INDEX).exists():
        return None
    for pattern, what in _OTHERS.items():
        if found := sorted(path.name for path in folder.glob(pattern)):
            return f"{_short(found[0])}, {what}, and save_pretrained writes safetensors"
    return None


def _weight_map(folder: Path) -> dict[str, str]:
    """Reads which file holds each weight of a folder whose weights lie in pieces."""
    if not (folder / INDEX).exists():
        if found := other_format(folder):
            raise UserError(f"{folder}: expected {WEIGHTS}, found only {found}")
        raise UserError(f"{folder}: expected weights in {WEIGHTS}, found none; check the path")
    index = read_json(folder / INDEX, most_bytes=MOST_HEADER_BYTES)
    places = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(places, dict) or not places:
        raise UserError(f"{folder / INDEX}: expected a weight_map of names to files, found none; restore the file")
    return {name: str(file) for name, file in places.items()}


def _beside(folder: Path, name: str) -> Path:
    """Returns a file that an index names. It came with a download: it may name files in its folder and no others."""
    if name in ("", ".", "..") or any(mark in name for mark in "/\\:\0"):
        raise UserError(
            f"{folder / INDEX}: expected names of files beside it, got {_short(name)!r}; do not trust this folder"
        )
    return beside(folder, name)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, _Header]]:
    """Opens a file, verifies its header against its size, and stands at the first number."""
    with readable(path) as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if start[:4] == b"PK\3\4" or (start[:1] == b"\x80" and length > size):
            kind = "a zip, as torch.save writes it" if start[:2] == b"PK" else "a pickle, which can run code"
            raise UserError(f"{path}: expected safetensors, this is {kind}; it was not opened, convert it elsewhere")
        if len(start) < 8 or not 2 <= length <= size - 8:
            raise _damaged(path, f"a header of {length} bytes in a file of {size}")
        if length > MOST_HEADER_BYTES:
            raise _damaged(path, f"a header of {length} bytes, at most {MOST_HEADER_BYTES} make sense")
        try:
            values = json.loads(file.read(length), object_pairs_hook=lambda pairs: _once(path, pairs))
        except (ValueError, RecursionError) as problem:
            raise _damaged(path, f"its header is not JSON: {problem}") from None
        yield file, _verify(path, values, size - 8 - length)


def _once(path: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Makes an object of JSON; of a name that is there twice another reader may take the other one."""
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise _damaged(path, f"its header has {_short(twice)} twice")
    return values


def _verify(path: Path, values: Any, n_bytes: int) -> _Header:
    """Checks every claim of a header: types, sizes, no gap and no overlap, a checksum for each name or for none."""
    notes = values.pop("__metadata__", {}) if isinstance(values, dict) else None
    if not isinstance(notes, dict) or not all(isinstance(value, str) for value in notes.values()):
        raise _damaged(path, "its header is no object with strings as metadata")
    places = {name: _place(path, name, value) for name, value in values.items()}
    places = dict(sorted(places.items(), key=lambda item: item[1][2:]))
    end = 0
    for name, place in places.items():
        if place.start != end:
            raise _damaged(path, f"tensor {_short(name)}: starts at byte {place.start}, the one before ends at {end}")
        end = place.stop
    if end != n_bytes:
        raise _damaged(path, f"its header says {end} bytes of numbers, the file has {n_bytes}")
    sums = {key.removeprefix(_SUM): value for key, value in notes.items() if key.startswith(_SUM)}
    aliases = {key.removeprefix(_ALIAS): value for key, value in notes.items() if key.startswith(_ALIAS)}
    for name, other in aliases.items():
        if name in places or other not in places or sums.get(name) != sums.get(other):
            raise _damaged(path, f"{_short(name)} is said to be {_short(other)}, which does not fit")
    odd = sorted(sums.keys() ^ (places.keys() | aliases.keys())) if sums else []
    if odd:
        raise _damaged(path, f"{_short(odd[0])}: a checksum without a tensor, or a tensor without one")
    return _Header(places, sums, aliases)


def _place(path: Path, name: str, value: Any) -> _Place:
    """Checks what a header says of one tensor."""
    if not isinstance(value, dict) or value.keys() != {"dtype", "shape", "data_offsets"}:
        raise _damaged(path, f"tensor {_short(name)}: expected dtype, shape and data_offsets")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise UserError(
            f"{path}: tensor {_short(name)}: expected a dtype of {', '.join(DTYPES)}, got {_short(str(dtype))}; "
            "save the weights as one of these"
        )
    for what, numbers, most in (("shape", shape, 8), ("data_offsets", offsets, 2)):
        fine = isinstance(numbers, list) and len(numbers) <= most
        if not fine or not all(type(number) is int and 0 <= number < 2**48 for number in numbers):
            raise _damaged(path, f"tensor {_short(name)}: {what} {_short(str(numbers))}")
    wanted = math.prod(shape) * DTYPES[dtype].itemsize
    if math.prod(max(n, 1) for n in shape) >= 2**48 or len(offsets) != 2 or offsets[1] - offsets[0] != wanted:
        raise _damaged(path, f"tensor {_short(name)}: {dtype} {shape} is {wanted} bytes, its offsets are {offsets}")
    return _Place(dtype, shape, *offsets)


def _bytes(tensor: Tensor) -> memoryview:
    """Returns a contiguous tensor's own memory."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def _digest(dtype: str, shape: list[int], content: memoryview) -> str:
    """Returns the SHA-256 of dtype, shape and numbers: equal bytes in another shape are another tensor."""
    total = hashlib.sha256(f"{dtype} {shape} ".encode())
    total.update(content)
    return total.hexdigest()


def _damaged(path: Path, why: str) -> UserError:
    return UserError(f"{path}: expected safetensors, but the file is damaged ({why}); restore it")


def _short(text: str) -> str:
    """A name of a hostile file may be a megabyte long, or several lines."""
    return " ".join(text[:80].split()) + ("…" if len(text) > 80 else "")

"""Weights on disk: what is written comes back, the library reads it too, and no changed file passes for a sound one."""

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from bothways.config import PretrainConfig
from bothways.errors import UserError
from bothways.training import load_run, save_run
from bothways.weights import (
    INDEX,
    WEIGHTS,
    has_checksums,
    read_folder,
    read_header,
    read_weights,
    weight_files,
    write_weights,
)
from models import FORMS, embedding_of

TENSORS: dict[str, Tensor] = {
    "a.weight": torch.tensor([[1.0, -2.5], [0.0, 3.0]]),
    "a.bias": torch.tensor([7, -1], dtype=torch.int64),
    "half": torch.tensor([0.5], dtype=torch.bfloat16),
    "flag": torch.tensor([True, False, True]),
    "none": torch.zeros(0, 4),
    "one": torch.tensor(2.0),
}


def write(path: Path, header: Any, numbers: bytes = b"") -> None:
    """Writes a file by hand; `header` is JSON's values or the bytes themselves."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + numbers)


def header_of(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    return json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])


def same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(
        one.dtype == theirs[name].dtype and torch.equal(one, theirs[name]) for name, one in ours.items()
    )


def refused(read: Callable[[], Any]) -> str:
    with pytest.raises(UserError) as caught:
        read()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_tensors_come_back_and_the_library_reads_the_same(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    write_weights(path, TENSORS, {"note": "mine"})
    assert same(read_weights(path), TENSORS)
    assert same(load_file(path), TENSORS)
    with safe_open(path, "pt") as file:
        notes = file.metadata()
    assert (notes["format"], notes["note"]) == ("pt", "mine")
    assert {key for key in notes if key.startswith("sha256:")} == {f"sha256:{name}" for name in TENSORS}
    content = b"I64 [2] " + np.array([7, -1]).tobytes()
    assert notes["sha256:a.bias"] == hashlib.sha256(content).hexdigest()
    shapes = {name: (one.shape, one.dtype, one.device.type) for name, one in read_header(path).items()}
    assert shapes == {name: (one.shape, one.dtype, "meta") for name, one in TENSORS.items()}


def test_files_of_the_library_are_read(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "w.safetensors")
    assert not has_checksums(tmp_path / "w.safetensors")
    assert same(read_weights(tmp_path / "w.safetensors"), TENSORS)


def test_the_same_tensors_give_the_same_bytes(tmp_path: Path) -> None:
    write_weights(tmp_path / "a", TENSORS)
    write_weights(tmp_path / "b", dict(reversed(TENSORS.items())))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_what_shares_its_numbers_is_written_once_and_shares_them_again(tmp_path: Path) -> None:
    table = torch.arange(300.0).view(30, 10)
    tied = {"table": table, "decoder": table, "turned": table.T, "part": table[:2]}
    write_weights(tmp_path / "w", tied)
    assert header_of(tmp_path / "w").keys() == {"__metadata__", "table", "turned", "part"}
    assert header_of(tmp_path / "w")["__metadata__"]["alias:decoder"] == "table"
    back = read_weights(tmp_path / "w")
    assert same(back, tied)
    assert back["decoder"].data_ptr() == back["table"].data_ptr() != back["turned"].data_ptr()
    assert read_header(tmp_path / "w")["decoder"].shape == (30, 10)


def test_every_flipped_byte_is_an_error_or_changes_nothing(tmp_path: Path) -> None:
    path, tied = tmp_path / "w", {"t": torch.tensor([1.0, 2.0]), "s": torch.tensor([1.5])}
    tied["u"] = tied["t"]
    write_weights(path, tied)
    sound, named, harmless = path.read_bytes(), 0, []
    for place in range(len(sound)):
        for bits in (1 << place % 8, 0x5F):
            changed = bytearray(sound)
            changed[place] ^= bits
            path.write_bytes(changed)
            try:
                assert same(read_weights(path), tied), (place, bits)
                harmless.append(place)
            except UserError as problem:
                named += "tensor t" in str(problem) or "tensor s" in str(problem)
    assert harmless  # the words of "format", spaces
    assert all(place < len(sound) - 12 for place in harmless)  # never a number
    assert len(harmless) < 2 * 20
    assert named >= 12 * 2


@pytest.mark.parametrize("form", ["eeg_channels", "bert"])
def test_flipped_bytes_of_a_run(form: str, tmp_path: Path) -> None:
    model = FORMS[form].build(3)
    save_run(tmp_path, model, PretrainConfig(), {})
    path = tmp_path / "model.safetensors"
    sound, draw = path.read_bytes(), np.random.default_rng(0)
    header = int.from_bytes(sound[:8], "little")
    refusals = harmless = 0
    for place in [*draw.integers(8 + header, size=100), *draw.integers(8 + header, len(sound), size=50)]:
        changed = bytearray(sound)
        changed[place] ^= int(draw.integers(1, 256))
        path.write_bytes(changed)
        try:
            assert same(dict(load_run(tmp_path, embedding_of).state_dict()), dict(model.state_dict())), place
        except UserError as problem:
            refusals += "\n" not in str(problem)
        else:
            harmless += 1
    assert refusals + harmless == 150
    assert harmless < 5


FINE = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
LIES: dict[str, tuple[Any, bytes, str]] = {
    "no object": ([1], b"", "its header is no object"),
    "metadata": ({"__metadata__": {"a": 1}, "t": FINE}, bytes(8), "strings as metadata"),
    "keys": ({"t": {"dtype": "F32", "shape": [2]}}, bytes(8), "tensor t: expected dtype, shape and data_offsets"),
    "no tensor": ({"t": 3}, b"", "tensor t: expected dtype, shape and data_offsets"),
    "dtype": ({"t": FINE | {"dtype": "F4"}}, bytes(8), "tensor t: expected a dtype of F64, F32, "),
    "dtype is a list": ({"t": FINE | {"dtype": []}}, bytes(8), "tensor t: expected a dtype of"),
    "wrong dtype": ({"t": FINE | {"dtype": "F64"}}, bytes(8), "tensor t: F64 [2] is 16 bytes, its offsets are [0, 8]"),
    "wrong shape": ({"t": FINE | {"shape": [3]}}, bytes(8), "tensor t: F32 [3] is 12 bytes, its offsets are [0, 8]"),
    "huge": ({"t": FINE | {"shape": [10**12, 10**12]}}, bytes(8), "tensor t: F32 [1000000000000, 1000000000000] is"),
    "huge and empty": (
        {"t": {"dtype": "F32", "shape": [0, 2**47, 2**47], "data_offsets": [0, 0]}}, b"", "tensor t: F32 [0, "
    ),
    "beyond 64 bits": ({"t": FINE | {"shape": [10**30]}}, bytes(8), f"tensor t: shape [{10**30}]"),
    "negative": ({"t": FINE | {"shape": [-2]}}, bytes(8), "tensor t: shape [-2]"),
    "fraction": ({"t": FINE | {"shape": [2.0]}}, bytes(8), "tensor t: shape [2.0]"),
    "truth": ({"t": FINE | {"shape": [True, 2]}}, bytes(8), "tensor t: shape [True, 2]"),
    "deep shape": ({"t": FINE | {"shape": [1] * 9 + [2]}}, bytes(8), "tensor t: shape [1, 1,"),
    "negative offset": ({"t": FINE | {"data_offsets": [-8, 0]}}, bytes(8), "tensor t: data_offsets [-8, 0]"),
    "one offset": ({"t": FINE | {"data_offsets": [8]}}, bytes(8), "its offsets are [8]"),
    "beyond the end": ({"t": FINE}, bytes(4), "its header says 8 bytes of numbers, the file has 4"),
    "more than said": ({"t": FINE}, bytes(12), "its header says 8 bytes of numbers, the file has 12"),
    "gap": ({"t": FINE, "u": FINE | {"data_offsets": [12, 20]}}, bytes(20), "tensor u: starts at byte 12, the one"),
    "overlap": ({"t": FINE, "u": FINE | {"data_offsets": [4, 12]}}, bytes(12), "tensor u: starts at byte 4, the one"),
    "twice": ({"t": FINE, "u": FINE}, bytes(8), "tensor u: starts at byte 0, the one before ends at 8"),
    "checksum of nothing": ({"__metadata__": {"sha256:x": "0"}, "t": FINE}, bytes(8), "a checksum without a tensor"),
    "wrong checksum": ({"__metadata__": {"sha256:t": "0"}, "t": FINE}, bytes(8), "tensor t: SHA-256 "),
    "alias of nothing": ({"__metadata__": {"alias:a": "b"}, "t": FINE}, bytes(8), "a is said to be b"),
    "alias of itself": ({"__metadata__": {"alias:t": "t"}, "t": FINE}, bytes(8), "t is said to be t"),
    "NaN": ({"t": FINE}, np.array([1, math.nan], np.float32).tobytes(), "weight t: expected finite numbers, got NaN"),
    "infinity": ({"t": FINE}, np.array([math.inf, 1], np.float32).tobytes(), "weight t: expected finite numbers"),
    "not JSON": (b"{]", b"", "its header is not JSON"),
    "no UTF-8": (b'{"\xff": 1}', b"", "its header is not JSON"),
    "a name twice": (b'{"t": 1, "t": 2}', b"", "its header has t twice"),
    "a key twice": (
        b'{"t": {"dtype": "F32", "shape": [2], "shape": [1], "data_offsets": [0, 8]}}', bytes(8), "has shape twice"
    ),
    "deep": (b"[" * 10**6, b"", "its header is not JSON"),
    "large": (b" " * 5 * 2**20, b"", "a header of 5242880 bytes, at most 4194304 make sense"),
    "several lines": ({"a\nb" * 99: 1}, b"", "tensor a ba b"),
}  # fmt: skip


@pytest.mark.parametrize(("header", "numbers", "message"), LIES.values(), ids=LIES)
def test_a_header_that_lies_is_refused(header: Any, numbers: bytes, message: str, tmp_path: Path) -> None:
    write(tmp_path / "w", header, numbers)
    told = refused(lambda: read_weights(tmp_path / "w"))
    assert message in told
    assert len(told) < 500
    assert told.startswith(str(tmp_path / "w"))


def test_a_pickle_and_a_zip_are_named(tmp_path: Path) -> None:
    torch.save(TENSORS, tmp_path / "zip")
    torch.save(TENSORS, tmp_path / "pickle", _use_new_zipfile_serialization=False)
    assert "this is a zip, as torch.save writes it; it was not opened" in refused(
        lambda: read_weights(tmp_path / "zip")
    )
    assert "this is a pickle, which can run code; it was not opened" in refused(
        lambda: read_weights(tmp_path / "pickle")
    )


@pytest.mark.parametrize("dtype", [torch.uint16, torch.complex64])
def test_a_dtype_that_could_not_be_read_is_not_written(dtype: torch.dtype, tmp_path: Path) -> None:
    told = refused(lambda: write_weights(tmp_path / "w", {"a": torch.ones(1), "t": torch.zeros(2, dtype=dtype)}))
    assert "tensor t: expected a dtype of F64, " in told
    assert f"got {str(dtype).removeprefix('torch.')}; convert it" in told
    assert list(tmp_path.iterdir()) == []


def test_a_batch_that_was_kept_can_be_read(tmp_path: Path) -> None:
    batch = {"signals": torch.tensor([1.0, math.nan, math.inf])}
    write_weights(tmp_path / "w", batch)
    assert has_checksums(tmp_path / "w")
    refused(lambda: read_weights(tmp_path / "w"))
    assert torch.equal(
        read_weights(tmp_path / "w", finite=False)["signals"].nan_to_num(), torch.nan_to_num(*batch.values())
    )


def test_more_tensors_than_could_be_read_are_not_written(tmp_path: Path) -> None:
    many = {f"{i:0200d}": torch.zeros(1) for i in range(12_000)}
    assert "12000 tensors need a header of" in refused(lambda: write_weights(tmp_path / "w", many))
    assert list(tmp_path.iterdir()) == []


# Folders ---------------------------------------------------------------------------------------------------------


def index(folder: Path, **files: str) -> None:
    (folder / INDEX).write_text(json.dumps({"weight_map": files}))


def test_pieces_are_put_together(tmp_path: Path) -> None:
    write_weights(tmp_path / "1.safetensors", {"a": torch.ones(2)})
    write_weights(tmp_path / "2.safetensors", {"b": torch.zeros(3)})
    index(tmp_path, a="1.safetensors", b="2.safetensors")
    assert same(read_folder(tmp_path), {"a": torch.ones(2), "b": torch.zeros(3)})
    assert read_folder(tmp_path, read_header)["b"].device.type == "meta"
    assert weight_files(tmp_path) == [tmp_path / "1.safetensors", tmp_path / "2.safetensors"]


def test_an_index_leads_nowhere_else(tmp_path: Path) -> None:
    secret, folder = tmp_path / "secret.safetensors", tmp_path / "folder"
    folder.mkdir()
    write_weights(secret, {"a": torch.ones(2)})
    for name in ("../secret.safetensors", str(secret), "..", ".", "", "a\\b", "C:secret"):
        index(folder, a=name)
        assert "expected names of files beside it" in refused(lambda: read_folder(folder))
    (folder / "link.safetensors").symlink_to(secret)
    index(folder, a="link.safetensors")
    assert "got a link out of it" in refused(lambda: read_folder(folder))
    (folder / "loop.safetensors").symlink_to("loop.safetensors")
    index(folder, a="loop.safetensors")
    assert "cannot be read" in refused(lambda: read_folder(folder))


def test_the_links_of_the_hubs_cache_are_followed(tmp_path: Path) -> None:
    snapshot, blobs = tmp_path / "snapshots" / "abc", tmp_path / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    write_weights(blobs / "1234", {"a": torch.ones(2)})
    (snapshot / "1.safetensors").symlink_to("../../blobs/1234")
    index(snapshot, a="1.safetensors")
    assert same(read_folder(snapshot), {"a": torch.ones(2)})
    (snapshot / WEIGHTS).symlink_to("../../blobs/1234")
    assert same(read_folder(snapshot), {"a": torch.ones(2)})


def test_weights_that_lie_elsewhere_are_not_followed(tmp_path: Path) -> None:
    write_weights(tmp_path / "w", {"a": torch.ones(2)})
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / WEIGHTS).symlink_to(tmp_path / "w")
    assert "got a link out of it; copy the file there" in refused(lambda: read_folder(tmp_path / "run"))

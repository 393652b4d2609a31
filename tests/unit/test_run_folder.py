"""A run's folder comes back bit-equal, and a damaged one never loads: one line says what is wrong."""

import json
import math
import shutil
import struct
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from bothways.config import HeadConfig, PretrainConfig
from bothways.errors import UserError
from bothways.model import Model, check_sizes, load_weights
from bothways.training import check_fits, load_config_of, load_run, load_tensors, save_run
from bothways.weights import read_folder, write_weights
from models import FORMS, SEQUENCE, embedding_of


@pytest.fixture
def run(tmp_path: Path) -> Path:
    model = FORMS["eeg_channels"].build(7)
    (tmp_path / "run").mkdir()
    save_run(tmp_path / "run", model, PretrainConfig(), {"kind": "pretrain"})
    return tmp_path / "run"


def read(run: Path) -> Model:
    return load_run(run, embedding_of)


def test_a_run_comes_back_bit_equal(run: Path) -> None:
    form = FORMS["eeg_channels"]
    model, back = form.build(7).eval(), read(run)
    assert back.config == model.config
    assert not back.training
    ours, theirs = model.state_dict(), back.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    with torch.no_grad():
        assert torch.equal(model(form.batch()).rows.values, back(form.batch()).rows.values)
    assert sorted(file.name for file in run.iterdir()) == [
        "README.md", "config.json", "manifest.json", "model.safetensors", "recipe.toml",
    ]  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_every_form_comes_back(name: str, tmp_path: Path) -> None:
    model = FORMS[name].build(1)
    save_run(tmp_path, model, PretrainConfig(), {})
    back = read(tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), back.state_dict().values()))


def weights(change: Callable[[dict[str, Tensor]], object]) -> Callable[[Path], object]:
    def damage(run: Path) -> None:
        tensors = load_file(run / "model.safetensors")
        change(tensors)
        write_weights(run / "model.safetensors", tensors)

    return damage


def rewrite(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda run: (run / name).write_bytes(change((run / name).read_bytes()))


def config(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    def damage(run: Path) -> None:
        values = json.loads((run / "config.json").read_text())
        change(values)
        (run / "config.json").write_text(json.dumps(values))
        manifest = json.loads((run / "manifest.json").read_text())
        manifest.pop("config_sha256", None)  # as in a run of before, whose config nothing vouches for
        (run / "manifest.json").write_text(json.dumps(manifest))

    return damage


MODEL, PATCH = "model.safetensors", "embedding.patch.weight"
HEAD = "heads.sequence.linear.weight"
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut": (rewrite(MODEL, lambda b: b[:-100]), "the file is damaged"),
    "cut in the header": (rewrite(MODEL, lambda b: b[:20]), "the file is damaged"),
    "header length": (rewrite(MODEL, lambda b: struct.pack("<Q", 2**60) + b[8:]), "the file is damaged"),
    "zero bytes": (rewrite(MODEL, lambda b: b""), "the file is damaged"),
    "only zeros": (rewrite(MODEL, lambda b: bytes(len(b))), "the file is damaged"),
    "a pickle": (rewrite(MODEL, lambda b: b"\x80\x02}q\x00." + b), "this is a pickle, which can run code"),
    "a zip": (rewrite(MODEL, lambda b: b"PK\x03\x04" + b), "this is a zip, as torch.save writes it; it was not"),
    "no weights": (lambda run: (run / MODEL).unlink(), "expected weights in model.safetensors, found none"),
    "half precision": (
        weights(lambda t: t.update({PATCH: t[PATCH].half()})), f"weight {PATCH}: expected float32, got float16"
    ),
    "NaN": (weights(lambda t: t[PATCH].fill_(math.nan)), f"weight {PATCH}: expected finite numbers"),
    "infinity": (weights(lambda t: t[HEAD].fill_(math.inf)), f"weight {HEAD}: expected finite numbers"),
    "shape": (weights(lambda t: t.update({PATCH: t[PATCH][:, :-1].clone()})), PATCH),
    "shape of a head": (weights(lambda t: t.update({HEAD: t[HEAD][:-1].clone()})), HEAD),
    "missing": (weights(lambda t: t.pop(PATCH)), PATCH),
    "missing in a head": (weights(lambda t: t.pop(HEAD)), HEAD),
    "one too many": (weights(lambda t: t.update({"heads.x": torch.ones(2)})), "heads.x"),
    "no config": (lambda run: (run / "config.json").unlink(), "expected a run"),
    "config cut": (rewrite("config.json", lambda b: b[:50]), "expected JSON"),
    "config empty": (rewrite("config.json", lambda b: b""), "expected JSON"),
    "config is a list": (rewrite("config.json", lambda b: b"[1]"), "expected a JSON object"),
    "unknown key": (config(lambda c: c["encoder"].update(hiden_size=3)), "did you mean 'encoder.hidden_size'"),
    "lacking key": (config(lambda c: c.pop("encoder")), "encoder"),
    "wrong value": (config(lambda c: c["encoder"].update(hidden_size=-4)), "encoder.hidden_size"),
    "other size": (config(lambda c: c["encoder"].update(intermediate_size=48)), "feed_forward"),
    "absurd size": (config(lambda c: c["encoder"].update(hidden_size=10**9)), "no model can be built from it"),
    "absurd depth": (
        config(lambda c: c["encoder"].update(num_hidden_layers=10**6)),
        "encoder.num_hidden_layers: expected 2 as in the weights, got 1000000",
    ),
    "absurd patch": (config(lambda c: c["patches"].update(patch_s=1e6)), "patch_s 1e+06 at 64 Hz is over 1000000"),
    "absurd rate": (
        config(lambda c: (c["signal"].update(sfreq_hz=1e6), c["patches"].update(spectrum_hz=[1, 1e5]))),
        "are over 10000000 numbers; narrow spectrum_hz or shorten patch_s",
    ),
    "heads without weights": (
        config(lambda c: c["heads"].update({f"{i}": {"kind": "span"} for i in range(700)})),
        "heads: expected 3 as in the weights, got 703",
    ),
    "a wrapper's names": (
        weights(lambda t: [t.update({f"module.{name}": t.pop(name)}) for name in list(t)]),
        "got module.embedding.anode.bias, module.embedding.anode.weight; save the model without the wrapper that names "
        "it module.…",
    ),
    "names of another model": (
        weights(lambda t: [t.update({f"blocks.{i}": t.pop(name)}) for i, name in enumerate(list(t))]),
        "expected names such as encoder.layers.0.… in the weights, got blocks.",
    ),
    "no tensor at all": (weights(lambda t: t.clear()), "encoder.layers.0.… in the weights, got none of them"),
    "no encoder": (
        weights(lambda t: [t.pop(name) for name in list(t) if name.startswith("encoder.layers")]),
        "encoder.layers.0.… in the weights, got none of them",
    ),
    "one layer less": (config(lambda c: c["encoder"].update(num_hidden_layers=1)), "unexpected: encoder.layers.1."),
    "all zero": (weights(lambda t: [one.zero_() for one in t.values()]), "expected weights, got zeros only"),
    "config is a link": (
        lambda run: (run / "config.json").symlink_to((run / "config.json").rename(run.parent / "c")),
        "config.json: expected a file in the folder, got a link out of it",
    ),
    "one head more": (config(lambda c: c.update(pooler=True)), "missing: pooler.dense.weight"),
    "config of a megabyte": (rewrite("config.json", lambda b: b + b" " * 2**20), "expected at most 65,536 bytes"),
    "another function": (
        rewrite("config.json", lambda b: b.replace(b'"gelu"', b'"relu"')),
        "config.json: not the one that the run was saved with; restore it",
    ),
    "another contract": (
        rewrite("config.json", lambda b: b.replace(b'"notch_hz": 50.0', b'"notch_hz": 60.0')),
        "config.json: not the one that the run was saved with; restore it",
    ),
    "nothing at all": (lambda run: shutil.rmtree(run), "expected a run"),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "message"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_run_is_one_line(
    run: Path, damage: Callable[[Path], object], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    damage(run)
    with pytest.raises(UserError) as caught:
        read(run)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("file", ["cut.safetensors", "bad_length.safetensors", "zero.pt", "ok.safetensors"])
def test_shared_damaged_checkpoints(run: Path, shared: Path, file: str) -> None:
    shutil.copy(shared / "cases" / "b43_checkpoint" / file, run / MODEL)
    if file.startswith("ok"):
        assert load_tensors(run)
    else:
        with pytest.raises(UserError, match="the file is damaged"):
            load_tensors(run)


def test_config_of_a_run(run: Path) -> None:
    assert load_config_of(run) == FORMS["eeg_channels"].config


def test_a_run_of_ours_keeps_its_checksums(run: Path) -> None:
    tensors = load_file(run / MODEL)
    tensors[PATCH] += 1
    save_file(tensors, run / MODEL)
    with pytest.raises(UserError, match="expected the checksums that it was saved with, found none; restore it"):
        read(run)
    config(lambda _: None)(run)
    assert read(run)  # by its manifest it may be older than the checksums


NEW = {"sequence": HeadConfig(kind="sequence", classes=("x", "y", "z"))}


def test_heads_of_a_new_task(run: Path) -> None:
    before = dict(read(run).state_dict())
    kept = load_run(run, embedding_of, heads={"sequence": SEQUENCE}, seed=3).load_report
    model = load_run(run, embedding_of, heads=NEW, seed=3)
    report = model.load_report
    assert kept is not None
    assert report is not None
    names = ["heads.sequence.linear.weight", "heads.sequence.linear.bias"]
    assert (kept.other_classes, kept.missing) == ([], [])
    assert set(names) < set(kept.matched)
    assert (report.other_classes, report.missing, report.new_heads) == (names, [], [])
    assert len(report.matched) + len(report.unexpected) + len(report.other_classes) == len(before)
    assert "other classes: heads.sequence.linear.weight" in report.line()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]) == (name not in names or "bias" in name), name
    assert list(load_run(run, embedding_of, heads={}).heads) == []


@pytest.mark.parametrize(
    "name",
    ["half precision", "NaN", "missing", "one layer less", "shape of a head", "one head more", "cut", "all zero"],
)
def test_what_is_refused_of_a_run_is_refused_for_a_new_task(run: Path, name: str) -> None:
    damage, message = DAMAGES[name]
    damage(run)
    with pytest.raises(UserError) as caught:
        load_run(run, embedding_of, heads=NEW)
    assert message in str(caught.value)


def test_weights_without_heads_do_for_a_new_task(run: Path) -> None:
    weights(lambda t: [t.pop(name) for name in list(t) if name.startswith("heads.")])(run)
    with pytest.raises(UserError, match="heads: expected 0 as in the weights, got 3"):
        read(run)
    report = load_run(run, embedding_of, heads=NEW).load_report
    assert report is not None
    assert (report.new_heads, report.body_share) == (["sequence"], 1.0)


def test_sizes_are_verified_before_numbers_are_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bothways.training.checkpoint.read_folder", lambda folder, read: read_folder(folder, read))
    DAMAGES["other size"][0](run)
    with pytest.raises(UserError, match="feed_forward"):  # a call without `read` would be a TypeError
        load_run(run, embedding_of, heads=NEW)


def test_a_part_where_it_is_asked_for(run: Path) -> None:
    DAMAGES["missing"][0](run)
    config(lambda c: c["encoder"].update(num_hidden_layers=3))(run)
    model = load_run(run, embedding_of, partial=True)
    assert model.load_report is not None
    assert PATCH in model.load_report.missing
    assert len([name for name in model.load_report.missing if name.startswith("encoder.layers.2.")]) == 12
    assert all(bool(tensor.isfinite().all()) for tensor in model.state_dict().values())
    config(lambda c: c["encoder"].update(num_hidden_layers=10**9))(run)
    with pytest.raises(UserError, match=r"parameters need .* GiB of memory, .* are free; lower encoder.hidden_size"):
        load_run(run, embedding_of, partial=True)


@pytest.mark.parametrize("n_layers", [1, 3])
def test_parameters_are_counted_before_they_are_made(n_layers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    form = FORMS["eeg_channels"]
    encoder = form.config.encoder.model_copy(update={"num_hidden_layers": n_layers})
    sizes = form.config.model_copy(update={"encoder": encoder})
    n = sum(p.numel() for p in Model(sizes, embedding_of(sizes)).parameters())
    for free, trained, fits in (
        (4 * n, False, True),
        (4 * n - 1, False, False),
        (16 * n, True, True),
        (4 * n, True, False),
    ):
        monkeypatch.setattr("bothways.training.memory.free_bytes", lambda _, free=free: free)
        with nullcontext() if fits else pytest.raises(UserError, match=f"settings: {n:,} parameters need"):
            check_fits(sizes, embedding_of, "settings", trained=trained)


# Load report -----------------------------------------------------------------------------------------------------


def test_report_of_partial_weights() -> None:
    model, donor = FORMS["eeg_channels"].build(0), FORMS["eeg_channels"].build(1)
    given = dict(donor.state_dict())
    given["heads.old.linear.weight"] = torch.ones(2)
    del given["heads.sequence.linear.bias"]
    given["heads.sequence.linear.weight"] = torch.ones(2, 2)
    kept = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    report = load_weights(model, given)
    assert report.missing == ["heads.sequence.linear.bias"]
    assert report.reshaped == ["heads.sequence.linear.weight"]
    assert report.unexpected == ["heads.old.linear.weight"]
    assert report.body_share == 1.0
    for name, tensor in model.state_dict().items():
        expected = donor.state_dict()[name] if name in report.matched else kept[name]
        assert torch.equal(tensor, expected), name
    assert len(report.matched) == len(kept) - 2
    assert report.line() == (
        f"loaded {len(kept) - 2} tensors (100% of embedding and encoder); missing: heads.sequence.linear.bias; "
        "unexpected: heads.old.linear.weight; reshaped: heads.sequence.linear.weight"
    )


def test_report_names_the_heads_that_are_new() -> None:
    model = FORMS["eeg_channels"].build(0)
    assert model.load_report is None
    given = {name: one for name, one in model.state_dict().items() if not name.startswith("heads.sequence.")}
    report = load_weights(model, given)
    assert model.load_report is report
    assert report.as_dict() == {
        "matched": [*given],
        "missing": ["heads.sequence.linear.weight", "heads.sequence.linear.bias"],
        "new_heads": ["sequence"],
        "unexpected": [],
        "reshaped": [],
        "other_classes": [],
    }
    assert report.line() == (
        f"loaded {len(given)} tensors (100% of embedding and encoder); missing: heads.sequence.linear.weight, "
        "heads.sequence.linear.bias; new heads: sequence"
    )


def test_whole_numbers_are_no_weights() -> None:
    model = FORMS["eeg_channels"].build(0)
    given = dict(model.state_dict())
    given[HEAD] = given[HEAD].to(torch.int8)
    with pytest.raises(UserError, match=f"weight {HEAD}: expected float32, got int8; load a checkpoint that is not"):
        load_weights(model, given)


def test_sizes_are_compared_before_memory_is_taken() -> None:
    model = FORMS["eeg_channels"].build(0)
    outlines = {name: one.to("meta") for name, one in model.state_dict().items()}
    report = check_sizes(model.config, embedding_of, outlines, "config.json")
    assert report.matched == [*outlines]
    larger = model.config.encoder.model_copy(update={"hidden_size": 10**6})
    with pytest.raises(UserError, match=r"33 are missing or of another shape \(first: embedding.cls\)"):
        check_sizes(model.config.model_copy(update={"encoder": larger}), embedding_of, outlines, "config.json")


def test_half_a_body_is_refused_unless_wanted() -> None:
    donor = FORMS["eeg_channels"].build(1).state_dict()
    half = {name: tensor for name, tensor in donor.items() if "layers.1" not in name}
    model = FORMS["eeg_channels"].build(0)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(UserError, match=r"12 are missing or of another shape \(first: encoder\.layers\.1"):
        load_weights(model, half)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    report = load_weights(model, half, partial=True)
    assert len(report.missing) == 12
    assert report.body_share == pytest.approx(1 - 12 / report.body_total)

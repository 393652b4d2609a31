"""The loop, its order and its files: exact repeats, exact resuming, and no damaged run that loads.

After a wanted change of results, `PYTHONPATH=tests .venv/bin/python tests/unit/test_training.py` writes the stored
losses anew; say in the change log what changed them.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bothways import eeg
from bothways.config import (
    EncoderConfig,
    HeadConfig,
    MaskingConfig,
    ModelConfig,
    PatchConfig,
    PretrainConfig,
    TrainingConfig,
    WindowConfig,
)
from bothways.errors import UserError
from bothways.model import Model
from bothways.training import (
    Plan,
    batches,
    build_optimizer,
    infer,
    join,
    learning_rate,
    open_run,
    train,
)
from bothways.training.optim import in_bf16
from bothways.training.parallel import Team, gathered
from models import FORMS
from recordings import noise_uv, write_edf
from sentences import QUICK, Pairs, Poisoned, Sentences, bert, classifier, losses

LOSSES = Path(__file__).resolve().parent.parent / "golden" / "losses.json"


# The plan --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "size"), [(10, 5), (10, 4), (3, 8), (7, 7), (1, 3)])
def test_each_sample_once_an_epoch(n: int, size: int) -> None:
    plan = Plan(n, size, seed=0)
    steps = [plan.step(step) for step in range(3 * n)]
    assert all(len(ids) == len(epochs) == size for ids, epochs in steps)
    ids, epochs = (np.concatenate(column) for column in zip(*steps))
    for epoch in range(3 * size):
        assert sorted(ids[epochs == epoch].tolist()) == list(range(n))
    assert (np.diff(epochs) >= 0).all()


def test_epochs_and_seeds_differ_in_order() -> None:
    first, second = (Plan(50, 50, seed=0).step(epoch)[0].tolist() for epoch in (0, 1))
    other = Plan(50, 50, seed=1).step(0)[0].tolist()
    assert first != second
    assert first != other


@pytest.mark.parametrize("n_processes", [2, 3])
def test_the_union_of_the_processes_is_the_batch_of_one(n_processes: int) -> None:
    whole = Plan(11, 6, seed=4)
    for step in range(5):
        ids, epochs = whole.step(step)
        parts = [Plan(11, 6, 4, process, n_processes).step(step) for process in range(n_processes)]
        assert sorted(zip(ids, epochs)) == sorted(pair for part in parts for pair in zip(*part))
        assert {len(part[0]) for part in parts} == {6 // n_processes}


@pytest.mark.parametrize("workers", [0, 2])
def test_resuming_at_a_step_gives_the_same_batches(workers: int) -> None:
    source, plan = Sentences(), Plan(10, 4, seed=0)
    whole = [batch["sample_id"].tolist() for batch in batches(source, plan, 8)]
    assert whole == [plan.step(step)[0].tolist() for step in range(8)]
    resumed = batches(source, plan, 8, first_step=5, workers=workers)
    assert [batch["sample_id"].tolist() for batch in resumed] == whole[5:]


# The optimizer ---------------------------------------------------------------------------------------------------


def test_learning_rate() -> None:
    config = TrainingConfig(steps=10, learning_rate=1.0, warmup_fraction=0.2)
    expected = [0.5, 1.0, 1.0, 0.9619397662556434, 0.8535533905932737, 0.6913417161825449, 0.5, 0.3086582838174551,
                0.14644660940672627, 0.03806023374435663]  # fmt: skip
    assert [learning_rate(step, config) for step in range(10)] == pytest.approx(expected, rel=1e-12)
    assert learning_rate(10, config) == 0  # would be the step after the last


@pytest.mark.parametrize(("fraction", "first"), [(0.0, 1.0), (1.0, 0.25)])
def test_no_and_nothing_but_warm_up(fraction: float, first: float) -> None:
    config = TrainingConfig(steps=4, learning_rate=1.0, warmup_fraction=fraction)
    assert learning_rate(0, config) == first
    assert all(0 < learning_rate(step, config) <= 1 for step in range(4))


def test_biases_norms_and_single_vectors_do_not_decay() -> None:
    model = FORMS["eeg_channels"].build()
    optimizer = build_optimizer(model, TrainingConfig(weight_decay=0.3))
    name_of = {id(p): name for name, p in model.named_parameters()}
    decayed, free = (
        {name_of[id(p)] for group in optimizer.param_groups if group["weight_decay"] == decay for p in group["params"]}
        for decay in (0.3, 0.0)
    )
    assert decayed | free == set(name_of.values())
    assert {"embedding.patch.weight", "embedding.time.weight", "encoder.layers.0.attention.qkv.weight"} <= decayed
    assert {"embedding.cls", "embedding.mask", "embedding.no_position", "encoder.final_norm.weight"} <= free
    assert not [name for name in decayed if name.endswith("bias") or "norm" in name]


def test_the_first_step_is_corrected_for_bias() -> None:
    """AdamW's first step moves every weight by the rate, whatever the gradient's size: m/sqrt(v) = 1."""
    weight = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(weight.weight)
    optimizer = build_optimizer(weight, TrainingConfig(learning_rate=0.1, weight_decay=0.5))
    (weight(torch.ones(1, 1)) * 3).sum().backward()
    optimizer.step()
    assert weight.weight.item() == pytest.approx(1 - 0.1 * 0.5 - 0.1, rel=1e-6)


# The loop --------------------------------------------------------------------------------------------------------


def test_it_learns() -> None:
    config = QUICK.model_copy(update={"steps": 60})
    trace = losses(train(classifier(), Sentences(), config, title="test"))
    assert trace[0] > 0.6
    assert trace[-1] < 0.1


def test_the_seed_decides() -> None:
    traces = [
        losses(train(classifier(), Sentences(), QUICK.model_copy(update={"seed": seed}), title="test"))
        for seed in (0, 0, 1)
    ]
    assert traces[0] == traces[1]
    assert traces[0] != traces[2]


def test_dropout_does_not_hang_on_the_global_generator() -> None:
    traces = []
    for seed in (5, 6):
        model = classifier(0, dropout=0.3)
        torch.manual_seed(seed)
        traces.append(losses(train(model, Sentences(), QUICK, title="test")))
    assert traces[0] == traces[1]


def test_log_and_evaluation(tmp_path: Path) -> None:
    calls: list[bool] = []

    def evaluate(model: Model) -> dict[str, Any]:
        calls.append(model.training)
        return {"call": len(calls)}

    model = classifier()
    config = QUICK.model_copy(update={"steps": 9, "log_every": 4, "evaluations": 3})
    settings = PretrainConfig(training=config)
    with open_run(tmp_path / "run", settings, {}, join()) as run:
        result = train(model, Sentences(), config, title="test", evaluate=evaluate, run=run)
        logged = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert logged == result.metrics
    assert [entry["step"] for entry in logged] == [3, 4, 6, 8, 9]
    assert {e["step"]: e["evaluation"] for e in logged if "evaluation" in e} == {
        3: {"call": 1}, 6: {"call": 2}, 9: {"call": 3},
    }  # fmt: skip
    assert calls == [False] * 3
    assert not model.training
    last = logged[-1]
    assert last["loss"] == pytest.approx(last["loss_sequence"])
    assert last["learning_rate"] == pytest.approx(learning_rate(8, config))


def test_frozen_weights_stay() -> None:
    model = classifier()
    model.embedding.requires_grad_(False)
    model.encoder.requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    train(model, Sentences(), QUICK, title="test")
    moved = [name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])]
    assert moved == ["heads.sequence.linear.weight", "heads.sequence.linear.bias"]


def test_gradients_are_shortened_where_that_is_asked_for() -> None:
    """Where nothing is shortened the norm is logged all the same."""
    runs = {}
    for most in (1e-3, 1e3, None):
        result = train(classifier(), Sentences(), QUICK.model_copy(update={"max_grad_norm": most}), title="test")
        runs[most] = [(entry["loss"], entry["gradient_norm"]) for entry in result.metrics]
    assert all(1e-3 < norm < 1e3 for _, norm in runs[None])
    assert runs[None] == runs[1e3] != runs[1e-3]


def test_no_samples() -> None:
    with pytest.raises(UserError, match="expected windows to train on, got none"):
        train(classifier(), Sentences(0), QUICK, title="test")


def test_a_loss_that_is_not_finite_stops_and_names_step_and_file() -> None:
    model = classifier()
    with torch.no_grad():
        model.heads["sequence"].linear.bias[2] = -torch.inf  # class 2 has no chance: its loss is infinite
    plan = Plan(10, QUICK.batch_size, QUICK.seed)
    (step,) = [step for step in range(QUICK.steps) if 3 in plan.step(step)[0]][:1]
    with pytest.raises(UserError) as caught:
        train(model, Poisoned(), QUICK, title="fine-tune")
    message = str(caught.value)
    assert message.startswith(f"fine-tune: the loss of step {step + 1} is inf; it comes from text-3.txt; ")
    assert "\n" not in message


def test_bf16_after_float32_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)  # torch computes it anywhere, slowly
    traces = {}
    for precision in ("float32", "bf16", "float32"):
        config = QUICK.model_copy(update={"precision": precision})
        trace = losses(train(classifier(), Sentences(), config, title="test"))
        assert traces.setdefault(precision, trace) == trace
    assert traces["float32"] != traces["bf16"]
    assert traces["bf16"] == pytest.approx(traces["float32"], rel=0.05)


def test_bf16_is_refused_where_the_hardware_lacks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match="no bf16 arithmetic"):
        train(classifier(), Sentences(), QUICK.model_copy(update={"precision": "bf16"}), title="test")
    auto = losses(train(classifier(), Sentences(), QUICK.model_copy(update={"precision": "auto"}), title="test"))
    assert auto == losses(train(classifier(), Sentences(), QUICK, title="test"))


@pytest.mark.parametrize(("capability", "expected"), [((7, 5), False), ((8, 0), True)])
def test_bf16_of_a_gpu_is_none_that_is_emulated(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], expected: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.delattr(torch.cpu, "_is_avx512_bf16_supported")
    auto = QUICK.model_copy(update={"precision": "auto"})
    assert in_bf16(auto, torch.device("cuda", 0)) is expected
    assert not in_bf16(auto, torch.device("cpu"))  # whatever else this machine has
    with pytest.raises(UserError, match="no bf16 arithmetic"):
        in_bf16(QUICK.model_copy(update={"precision": "bf16"}), torch.device("cpu"))


def test_weights_to_write_are_in_the_first_process_alone() -> None:
    tensors = {"a": torch.ones(2, requires_grad=True)}
    first, other = (gathered(tensors, Team(rank, 2, torch.device("cpu"))) for rank in (0, 1))
    assert first["a"].tolist() == [1, 1]
    assert not first["a"].requires_grad
    assert other == {}


def test_inference_in_batches_is_inference_at_once() -> None:
    model, told = classifier(), []

    def read(model: Model, batch: dict[str, Tensor]) -> Tensor:
        return model.features(batch)

    whole = infer(model, Sentences(), read, batch_size=10)
    parts = infer(model, Sentences(), read, batch_size=4, advance=told.append)
    np.testing.assert_allclose(parts, whole, atol=1e-6)
    assert told == [4, 4, 2]
    assert not model.training


# EEG: workers and stored losses ----------------------------------------------------------------------------------


def eeg_store(folder: Path) -> eeg.Store:
    for i in range(2):
        write_edf(
            folder / "data" / f"sub-{i}.edf", noise_uv(3 + i, 200 * 12, seed=i), ["C3", "Cz", "C4", "O1"][: 3 + i]
        )
    return eeg.prepare([folder / "data"], folder / "store")


def train_eeg(store: eeg.Store, seed: int = 0, workers: int = 0) -> tuple[Model, list[float]]:
    """Pretrains a tiny encoder for six steps on two recordings of noise with different channels."""
    patches = PatchConfig(patch_s=0.5)
    masking = MaskingConfig(kind="block", ratio=0.4, mask=0.8, random=0.1)
    encoder = EncoderConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, hidden_dropout_prob=0.1
    )
    windows = eeg.cut_windows(store, WindowConfig(window_s=2.0, stride_s=1.0))
    source = eeg.WindowSource(store, windows, patches, masking=masking, seed=seed, jitter_s=0.5)
    config = ModelConfig(encoder=encoder, patches=patches, signal=store.signal)
    embedding = eeg.build_embedding(config)
    head = HeadConfig(kind="reconstruction", features=embedding.targets)
    heads = {"reconstruction": head, "cls_reconstruction": head.model_copy(update={"kind": "cls_reconstruction"})}
    model = Model(config.model_copy(update={"heads": heads}), embedding)
    model.initialise(seed)
    eeg.fit_spectrum(embedding, source)
    settings = QUICK.model_copy(update={"seed": seed, "workers": workers})
    return model, losses(train(model, source, settings, title="test"))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> eeg.Store:
    return eeg_store(tmp_path_factory.mktemp("training"))


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_workers_do_not_change_a_bit(store: eeg.Store) -> None:
    (none, trace), (two, with_workers) = train_eeg(store), train_eeg(store, workers=2)
    assert trace == with_workers
    assert all(torch.equal(a, b) for a, b in zip(none.state_dict().values(), two.state_dict().values()))


def test_pairs_train_the_same_from_whatever_process() -> None:
    traces = [losses(train(bert(), Pairs(), QUICK.model_copy(update={"workers": n}), title="test")) for n in (0, 2)]
    assert traces[0] == traces[1]


def train_text(seed: int) -> list[float]:
    """Pretrains a tiny BERT (MLM and NSP) for six steps on pairs of counted sentences."""
    return losses(train(bert(seed), Pairs(), QUICK.model_copy(update={"seed": seed}), title="test"))


def all_losses(store: eeg.Store) -> dict[str, list[float]]:
    """One tiny recipe of each modality, with two seeds."""
    return {f"eeg_seed_{seed}": train_eeg(store, seed)[1] for seed in (0, 1)} | {
        f"text_seed_{seed}": train_text(seed) for seed in (0, 1)
    }


def test_stored_losses(store: eeg.Store) -> None:
    golden, found = json.loads(LOSSES.read_text()), all_losses(store)
    assert found.keys() == golden.keys()
    for name, trace in found.items():
        assert trace == pytest.approx(golden[name], rel=1e-5), name
    assert len({tuple(trace) for trace in golden.values()}) == 4


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        values = all_losses(eeg_store(Path(temporary)))
    LOSSES.write_text(json.dumps(values, indent=1) + "\n")
    print(f"wrote {LOSSES}")

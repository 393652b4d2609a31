"""Each setting of the loop against literal numbers, or against what the same training gives in another way."""

import errno
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bothways.config import PretrainConfig, TrainingConfig, load_config
from bothways.errors import BothwaysWarning, UserError
from bothways.model import Model
from bothways.training import (
    Team,
    TrainResult,
    build_optimizer,
    freeze,
    join,
    learning_rate,
    learning_rate_at,
    loop,
    open_run,
    train,
)
from sentences import Sentences, changed, classifier, losses

# Rates -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("linear", [0.5, 1, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125]),
        ("constant", [0.5, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
        ("stable", [0.5, 1, 1, 1, 1, 1, 1, 1, 1, 0.625]),
    ],
)
def test_schedules(schedule: Any, expected: list[float]) -> None:
    config = TrainingConfig(steps=10, learning_rate=1.0, warmup_fraction=0.2, schedule=schedule)
    assert [learning_rate(step, config) for step in range(10)] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("cosine", [0, 0.5, 1, 0.5, 0]),
        ("linear", [0, 0.5, 1, 0.5, 0]),
        ("constant", [0, 0.5, 1, 1, 1]),
        ("stable", [0, 0.5, 1, 1, 0]),
    ],
)
def test_schedules_by_time(schedule: Any, expected: list[float]) -> None:
    config = TrainingConfig(learning_rate=1.0, warmup_fraction=0.2, schedule=schedule)
    assert [learning_rate_at(share, config) for share in (0.0, 0.1, 0.2, 0.6, 1.0)] == pytest.approx(
        expected, abs=1e-12
    )


@pytest.mark.parametrize(("fraction", "rate"), [(0.0, 1.0), (1.0, 0.25)])
def test_no_and_nothing_but_warm_up_by_time(fraction: float, rate: float) -> None:
    config = TrainingConfig(learning_rate=1.0, warmup_fraction=fraction, schedule="constant")
    assert learning_rate_at(0.25, config) == rate
    assert learning_rate_at(1.0, config) == 1.0


def test_each_layer_has_its_share_of_the_rate() -> None:
    model = classifier()
    freeze(model, ("encoder.layers.1.norm_1",))  # does not shift the others
    optimizer = build_optimizer(model, changed(layer_decay=0.5))
    name_of = {id(p): name for name, p in model.named_parameters()}
    shares: dict[str, set[float]] = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            shares.setdefault(".".join(name_of[id(parameter)].split(".")[:3]), set()).add(group["share"])
    assert shares == {
        "embedding.word.weight": {0.125},
        "embedding.position.weight": {0.125},
        "encoder.layers.0": {0.25},
        "encoder.layers.1": {0.5},
        "heads.sequence.linear": {1.0},
    }


def test_frozen_layers_do_not_shift_the_shares() -> None:
    model = classifier()
    freeze(model, ("encoder.layers.1",))
    optimizer = build_optimizer(model, changed(layer_decay=0.5))
    assert {group["share"] for group in optimizer.param_groups} == {0.125, 0.25, 1.0}


def test_the_shares_are_what_is_trained_with() -> None:
    """AdamW's first step moves every weight by its rate."""
    model = classifier()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    config = changed(
        steps=1, layer_decay=0.5, weight_decay=0, schedule="constant", warmup_fraction=0, learning_rate=1e-2
    )
    train(model, Sentences(), config, title="test")
    for name, share in (("heads.sequence.linear.bias", 1), ("encoder.layers.1.norm_2.bias", 0.5),
                        ("encoder.layers.0.norm_2.bias", 0.25)):  # fmt: skip
        moved = (dict(model.named_parameters())[name].detach() - before[name]).abs()
        assert moved.max().item() == pytest.approx(1e-2 * share, rel=1e-3), name


def test_the_heads_learn_first() -> None:
    model = classifier()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    moved: list[set[str]] = []

    def look(model: Model) -> dict[str, Any]:
        moved.append({name.split(".")[0] for name, p in model.named_parameters() if not torch.equal(p, before[name])})
        return {}

    config = changed(steps=4, evaluations=4, head_first=0.5, warmup_fraction=0, schedule="constant")
    train(model, Sentences(), config, title="test", evaluate=look)
    everything = {"embedding", "encoder", "heads"}
    assert moved == [{"heads"}, {"heads"}, everything, everything]


# Time ------------------------------------------------------------------------------------------------------------


class Clock:
    """A clock that stands still but for what batches and evaluations take."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: self.now))


class Slow(Sentences):
    """Each batch takes 6 s."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def batch(self, ids: np.ndarray, epochs: np.ndarray) -> dict[str, Tensor]:
        self.clock.now += 6
        return super().batch(ids, epochs)


def test_minutes_end_the_run_the_schedule_and_spread_the_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    config = changed(minutes=1.0, warmup_fraction=0.2, learning_rate=1.0, evaluations=4, steps=3)
    result = train(classifier(), Slow(clock), config, title="test", evaluate=lambda _: {})
    assert result.steps == 10
    assert result.seconds == 60
    assert result.wait_share == 1.0
    assert [entry["step"] for entry in result.metrics if "evaluation" in entry] == [3, 5, 8, 10]
    expected = [0, 0.5, 1, 0.9619397662556434, 0.8535533905932737, 0.6913417161825449, 0.5, 0.3086582838174551,
                0.14644660940672627, 0.03806023374435663]  # fmt: skip
    assert [entry["learning_rate"] for entry in result.metrics] == pytest.approx(expected, abs=1e-12)


def test_evaluations_are_part_of_the_minutes_and_no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    def evaluate(model: Model) -> dict[str, Any]:
        clock.now += 12
        return {}

    config = changed(minutes=1.0, evaluations=2)
    result = train(classifier(), Slow(clock), config, title="test", evaluate=evaluate)
    assert [entry["step"] for entry in result.metrics if "evaluation" in entry] == [5, 8]
    assert (result.steps, result.seconds) == (8, 60)
    assert result.wait_share == pytest.approx(48 / 60)


def test_minutes_go_on_where_they_were(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock = Clock(monkeypatch)
    config = changed(minutes=1.0, evaluations=2)
    calls = []

    def evaluate(model: Model) -> dict[str, Any]:
        calls.append(clock.now)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return {}

    for sitting in range(2):
        clock.now += 3600  # nothing of what happens between two sittings counts
        with open_run(tmp_path / "run", PretrainConfig(training=config), {}, join()) as run:
            if sitting == 0:
                with pytest.raises(KeyboardInterrupt):
                    train(classifier(), Slow(clock), config, title="test", evaluate=evaluate, run=run)
            else:
                result = train(classifier(), Slow(clock), config, title="test", evaluate=evaluate, run=run)
    assert (result.steps, result.seconds) == (10, 60)


def test_steps_beside_minutes_are_warned_of() -> None:
    with pytest.warns(BothwaysWarning, match=r"training\.steps has no effect: training\.minutes says when"):
        load_config(PretrainConfig, None, ["training.minutes=5", "training.steps=20"])
    load_config(PretrainConfig, None, ["training.minutes=5"])


# The gradient in parts, layers twice -----------------------------------------------------------------------------


class Unequal(Sentences):
    """Some texts have no label, so that parts of a batch count differently."""

    def batch(self, ids: np.ndarray, epochs: np.ndarray) -> dict[str, Tensor]:
        batch = super().batch(ids, epochs)
        batch["labels"][ids % 5 == 1] = -100
        return batch


@pytest.mark.parametrize("accumulate", [2, 3, 6])
def test_parts_of_a_step_have_the_gradient_of_the_whole(accumulate: int) -> None:
    models = [classifier().double(), classifier().double()]
    traces = [
        train(model, Unequal(), changed(batch_size=6, accumulate=parts), title="test").metrics
        for model, parts in zip(models, (1, accumulate))
    ]
    for name in ("loss", "gradient_norm"):
        one, other = ([entry[name] for entry in trace] for trace in traces)
        assert one == pytest.approx(other, rel=1e-10)
    for one, other in zip(models[0].parameters(), models[1].parameters()):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


def test_more_parts_than_samples_are_refused() -> None:
    with pytest.raises(UserError, match=r"expected 5 windows or more, one for each part .*, got 4; raise"):
        train(classifier(), Sentences(), changed(accumulate=5), title="test")


def test_layers_computed_twice_give_the_same_numbers() -> None:
    models = [classifier(dropout=0.3).double(), classifier(dropout=0.3).double()]
    traces = [
        losses(train(model, Sentences(), changed(gradient_checkpointing=twice), title="test"))
        for model, twice in zip(models, (False, True))
    ]
    assert traces[0] == pytest.approx(traces[1], abs=1e-12)
    for one, other in zip(models[0].parameters(), models[1].parameters()):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


# What is trained -------------------------------------------------------------------------------------------------


def test_what_is_frozen_stays() -> None:
    model = classifier()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    train(model, Sentences(), changed(freeze=("embedding", "encoder.layers.0.", "encoder.layers.1")), title="test")
    moved = {name for name, tensor in model.state_dict().items() if not torch.equal(tensor, before[name])}
    assert moved == {"heads.sequence.linear.weight", "heads.sequence.linear.bias"}


def test_an_unknown_part_names_the_known_ones() -> None:
    with pytest.raises(UserError) as caught:
        freeze(classifier(), ("encoder.layer",))
    assert str(caught.value) == (
        "training.freeze: no weight's name begins with 'encoder.layer'; known parts: embedding.word, "
        "embedding.position, encoder.layers, heads.sequence, …"
    )


def test_nothing_left_to_train() -> None:
    with pytest.raises(UserError, match=r"training.freeze: nothing is left to train; freeze less"):
        train(classifier(), Sentences(), changed(freeze=("embedding", "encoder", "heads")), title="test")


# The average -----------------------------------------------------------------------------------------------------


def weights_of(model: Model) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def test_the_average_of_two_steps() -> None:
    steady = {"schedule": "constant", "warmup_fraction": 0}
    after = []
    for steps in (0, 1, 2):
        model = classifier().double()
        if steps:
            train(model, Sentences(), changed(steps=steps, **steady), title="test")
        after.append(weights_of(model))
    seen: list[dict[str, Tensor]] = []

    def evaluate(model: Model) -> dict[str, Any]:
        seen.append(weights_of(model))
        return {}

    model = classifier().double()
    config = changed(steps=2, ema=0.9, evaluations=2, **steady)
    train(model, Sentences(), config, title="test", evaluate=evaluate)
    first = {name: 0.9 * after[0][name] + 0.1 * after[1][name] for name in after[0]}
    second = {name: 0.9 * first[name] + 0.1 * after[2][name] for name in first}
    for found, expected in ((seen[0], first), (seen[1], second), (weights_of(model), second)):
        for name, tensor in found.items():
            torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-12)


def test_the_average_keeps_no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    init = loop._Training.__init__
    monkeypatch.setattr(loop._Training, "__init__", lambda self, *a: (made.append(self), init(self, *a))[1])
    train(classifier(), Sentences(), changed(ema=0.5), title="test")
    assert made[0].average
    assert not [name for name, tensor in made[0].average.items() if tensor.requires_grad]


# The best --------------------------------------------------------------------------------------------------------


class Scores:
    """Evaluates to given scores, one after the other, and remembers the weights that it saw."""

    def __init__(self, *scores: float) -> None:
        self.scores, self.seen = list(scores), []

    def __call__(self, model: Model) -> dict[str, Any]:
        self.seen.append(weights_of(model))
        return {"score": self.scores.pop(0)}


@pytest.mark.parametrize("ema", [0.0, 0.5])
def test_patience_keeps_the_best(ema: float) -> None:
    evaluate, model = Scores(1, 3, 2, 3, 9), classifier()
    config = changed(steps=10, evaluations=10, patience=2, ema=ema)
    result = train(model, Sentences(), config, title="test", evaluate=evaluate, score=lambda found: found["score"])
    assert (result.steps, result.best_step, result.evaluation) == (4, 2, {"score": 3})
    assert [entry["step"] for entry in result.metrics] == [1, 2, 3, 4]
    assert all(torch.equal(tensor, evaluate.seen[1][name]) for name, tensor in model.state_dict().items())
    assert not all(torch.equal(tensor, evaluate.seen[3][name]) for name, tensor in model.state_dict().items())


def test_without_patience_the_last_is_kept() -> None:
    evaluate, model = Scores(1, 3, 2), classifier()
    result = train(
        model, Sentences(), changed(evaluations=3), title="test", evaluate=evaluate, score=lambda found: found["score"]
    )
    assert (result.steps, result.best_step, result.evaluation) == (6, 4, {"score": 2})
    assert all(torch.equal(tensor, evaluate.seen[2][name]) for name, tensor in model.state_dict().items())


def test_patience_survives_a_stop(tmp_path: Path) -> None:
    config = changed(steps=10, evaluations=10, patience=2)

    def sitting(scores: Scores) -> tuple[Model, TrainResult]:
        model = classifier()
        with open_run(tmp_path / "run", PretrainConfig(training=config), {}, join()) as run:
            result = train(
                model, Sentences(), config, title="test", evaluate=scores, score=lambda found: found["score"], run=run
            )
        return model, result

    first = Scores(1, 3, 2)
    with pytest.raises(IndexError):  # the fourth evaluation is one too many
        sitting(first)
    model, result = sitting(Scores(2, 9))
    assert (result.steps, result.best_step, result.evaluation) == (4, 2, {"score": 3})
    assert all(torch.equal(tensor, first.seen[1][name]) for name, tensor in model.state_dict().items())


def test_patience_needs_a_number() -> None:
    config = changed(steps=4, evaluations=2, patience=1)
    with pytest.raises(UserError, match=r"the evaluation after step 2 gives nan, training.patience has nothing"):
        train(classifier(), Sentences(), config, title="test", evaluate=lambda _: {}, score=lambda _: float("nan"))


def test_what_the_first_process_measures_counts_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """On unlike hardware the last digits differ; were each to go by its own, one would stop and the others wait."""
    monkeypatch.setattr(Team, "agree", lambda team, work: [{"first": 1.0}, work()])
    config = changed(steps=4, evaluations=2)
    result = train(classifier(), Sentences(), config, title="test", evaluate=lambda _: {"own": 2.0})
    assert [entry["evaluation"] for entry in result.metrics if "evaluation" in entry] == [{"first": 1.0}] * 2


def test_an_operating_system_error_of_one_process_is_everyones(monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "run/metrics.jsonl")

    with pytest.raises(UserError, match=r"^run/metrics.jsonl: the disk is full; check the path and space$"):
        Team(0, 1, torch.device("cpu")).agree(full)


def test_more_in_a_step_than_there_are_is_said() -> None:
    with pytest.warns(BothwaysWarning, match=r"training.batch_size: 30 for 11 windows: a step holds each"):
        train(classifier(), Sentences(11), changed(steps=1, batch_size=30), title="test")


def test_patience_needs_somebody_to_measure_on() -> None:
    with pytest.raises(UserError, match=r"training.patience: there is nobody to measure on; keep some out"):
        train(classifier(), Sentences(), changed(patience=1), title="test", evaluate=lambda _: {})


# TensorBoard -----------------------------------------------------------------------------------------------------


def test_without_tensorboard_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    config = changed(tensorboard=True)
    with (
        open_run(tmp_path / "run", PretrainConfig(training=config), {}, join()) as run,
        pytest.raises(UserError, match=r"training.tensorboard: TensorBoard is not installed; `pip install"),
    ):
        train(classifier(), Sentences(), config, title="test", run=run)


def test_tensorboard_gets_the_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    writers: list[Any] = []

    class Writer:
        def __init__(self, folder: str, purge_step: int) -> None:
            self.folder, self.purge_step, self.closed = folder, purge_step, False
            self.scalars: dict[tuple[str, int], float] = {}
            writers.append(self)

        def add_scalar(self, name: str, value: float, step: int) -> None:
            self.scalars[name, step] = value

        def close(self) -> None:
            self.closed = True

    fake = ModuleType("torch.utils.tensorboard")
    fake.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    config = changed(steps=4, log_every=2, evaluations=1, tensorboard=True)

    def evaluate(model: Model) -> dict[str, Any]:
        return {"accuracy": 0.25, "subjects": {"a": {"accuracy": 0.5}}, "classes": ["no number"]}

    with open_run(tmp_path / "run", PretrainConfig(training=config), {}, join()) as run:
        result = train(classifier(), Sentences(), config, title="test", evaluate=evaluate, run=run)
    (writer,) = writers
    assert (writer.folder, writer.purge_step, writer.closed) == (str(tmp_path / "run" / "tensorboard"), 1, True)
    assert {step for _, step in writer.scalars} == {2, 4}
    assert {name for name, step in writer.scalars if step == 2} == {
        "loss", "loss_sequence", "learning_rate", "gradient_norm", "windows_per_s", "wait_share",
    }  # fmt: skip
    assert writer.scalars["loss", 2] == result.metrics[0]["loss"]
    assert writer.scalars["evaluation/accuracy", 4] == 0.25
    assert writer.scalars["evaluation/subjects/a/accuracy", 4] == 0.5

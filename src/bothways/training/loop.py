"""The training loop: batches in, a trained model and its log out. It knows batches, not modalities."""

import signal
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bothways.config import TrainingConfig
from bothways.errors import BothwaysWarning, Interrupted, UserError
from bothways.heads import LossSum
from bothways.model import Model
from bothways.progress import Meter, progress
from bothways.training.folder import RunFolder, State
from bothways.training.memory import keep_freed_memory
from bothways.training.optim import build_optimizer, freeze, in_bf16, learning_rate, learning_rate_at, odd_moments
from bothways.training.parallel import Spread, Team, as_divided, gathered, join, lost_peer, whole
from bothways.training.sampler import Plan, Source, batches
from bothways.training.signals import LostPeer, Stop, StopNow, again, stopping
from bothways.training.watch import Board, not_finite_error

ENDLESS = 2**40
"""Steps of a run whose end is a time."""


@dataclass
class TrainResult:
    """What a training gave beside the weights, which are in the model."""

    metrics: list[dict[str, Any]] = field(default_factory=list)
    """One entry for each logged step."""
    seconds: float = 0.0
    """All sittings together."""
    samples_per_s: float = 0.0
    wait_share: float = 0.0
    """Share of the time spent waiting for batches."""
    steps: int = 0
    best_step: int = 0
    """Of the evaluation with the best score; 0 = none was scored."""
    evaluation: dict[str, Any] | None = None
    """That of the weights that are kept: the last, or the best where `patience` looks for it."""

    def told(self, unit: str) -> dict[str, Any]:
        """Returns what a command tells of a training."""
        return {
            "steps": self.steps,
            "best_step": self.best_step,
            "seconds": self.seconds,
            f"{unit}_per_s": self.samples_per_s,
            "wait_share": self.wait_share,
            "loss": self.metrics[-1]["loss"],
        }


def train(
    model: Model,
    source: Source,
    config: TrainingConfig,
    *,
    title: str,
    unit: str = "windows",
    evaluate: Callable[[Model], dict[str, Any]] | None = None,
    score: Callable[[dict[str, Any]], float] | None = None,
    team: Team | None = None,
    run: RunFolder | None = None,
) -> TrainResult:
    """Trains a model in place.

    Args:
        model: all parameters that require a gradient are trained, but for those of `config.freeze`.
        source: the samples.
        config: steps, batch size, rates, seed; a batch size `auto` needs `largest_batch` first.
        title: shown with the progress.
        unit: what a sample is called, in the plural.
        evaluate: called in eval mode `config.evaluations` times; what it returns is logged. A function of the model
            alone, for it may be begun again.
        score: of what `evaluate` returns, how good it is; decides which checkpoint is the best.
        team: the processes that train; by default those that torchrun started.
        run: the folder to save to; where it was stopped, the training goes on.

    Raises:
        UserError: there are no samples, a setting does not fit, the loss or the gradient is not finite (the step and
            the samples' names are given), a checkpoint cannot be written.
        Interrupted: a signal came, and the state is saved.
    """
    if len(source) == 0:
        raise UserError(f"{title}: expected {unit} to train on, got none; look at what was prepared")
    if config.patience and score is None:
        raise UserError("training.patience: there is nobody to measure on; keep some out, or set it to 0")
    if config.batch_size != "auto" and config.batch_size >= 2 * len(source):
        several = f"{config.batch_size} for {len(source)} {unit}: a step holds each of them several times"
        warnings.warn(f"training.batch_size: {several}", BothwaysWarning, stacklevel=2)
    freeze(model, config.freeze)
    training = _Training(model, source, config, title, unit, evaluate, score, team or join(), run)
    if training.team.device.type == "cpu":
        keep_freed_memory()
    with stopping(run is not None) as stop, progress(title, training.total(), unit, done=training.seen()) as meter:
        try:
            training.go_on(stop, meter)
        except RuntimeError as problem:
            if training.team.size == 1 or not lost_peer(problem):
                raise
            raise LostPeer(
                f"{title}: another process of this training has ended; see what it said, then start all of them again: "
                f"they go on from {'the last checkpoint' if run is not None else 'the beginning'}"
            ) from None
        finally:
            training.board.close()
    model.eval()
    state = training.state
    evaluations = {entry["step"]: entry["evaluation"] for entry in state.metrics if "evaluation" in entry}
    return TrainResult(
        metrics=state.metrics,
        seconds=state.seconds,
        samples_per_s=meter.rate,
        wait_share=state.waited_s / max(state.seconds, 1e-9),
        steps=state.step,
        best_step=state.best_step,
        evaluation=evaluations.get(state.best_step if config.patience else max(evaluations, default=0)),
    )


class _Training:
    """A training under way."""

    def __init__(
        self,
        model: Model,
        source: Source,
        config: TrainingConfig,
        title: str,
        unit: str,
        evaluate: Callable[[Model], dict[str, Any]] | None,
        score: Callable[[dict[str, Any]], float] | None,
        team: Team,
        run: RunFolder | None,
    ) -> None:
        self.model, self.source, self.config, self.title, self.unit = model, source, config, title, unit
        self.evaluate, self.score, self.team, self.run = evaluate, score, team, run
        assert config.batch_size != "auto"
        self.batch_size: int = config.batch_size
        n_parts = team.size * config.accumulate
        if self.batch_size < n_parts:
            raise UserError(
                f"training.batch_size: expected {n_parts} {unit} or more, one for each part of a step "
                f"({team.size} x training.accumulate), got {self.batch_size}; raise it, or lower training.accumulate"
            )
        self.plan = Plan(len(source), self.batch_size, config.seed, team.rank, team.size, config.accumulate)
        self.bf16 = in_bf16(config, team.device)
        model.encoder.checkpointing = config.gradient_checkpointing
        self.spread = Spread(model, team, shard=config.shard)
        self.optimizer = build_optimizer(model, config)
        self.trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.average = {name: p.detach().clone() for name, p in self.trained.items()} if config.ema else {}
        self.best: dict[str, Tensor] | None = None
        """Without a folder, the best weights so far."""
        self.state = State()
        if run is not None and (saved := run.load()) is not None:
            self._restore(*saved)
        n = config.evaluations
        self.evaluate_at = {round(config.steps * (k + 1) / n) for k in range(n)} if evaluate else set()
        self.before_s = self.state.seconds
        self.started = self.saved = time.monotonic()
        self.board = Board(run, config, self.state.step, team)

    # Where it stands -----------------------------------------------------------------------------------------------

    def seen(self) -> int:
        """Samples trained on so far."""
        return self.state.step * self.batch_size

    def total(self) -> int:
        """Samples that will have been trained on at the end, as far as that is known."""
        if self.config.minutes is None:
            return self.config.steps * self.batch_size
        return max(round(self.seen() / max(self._share(), 1e-6)), self.seen(), 1)

    def _share(self) -> float:
        """How much of the run is done, from 0 to 1."""
        if self.config.minutes is None:
            return self.state.step / self.config.steps
        return min(self.state.seconds / (60 * self.config.minutes), 1.0)

    def _over(self) -> bool:
        early = 0 < self.config.patience <= self.state.stale
        return (self._share() >= 1 or early) and self.state.pending is None

    def _evaluation_is_due(self) -> bool:
        if self.evaluate is None or self.state.evaluated == self.state.step:
            return False
        if self.config.minutes is None:
            return self.state.step in self.evaluate_at
        return self._share() >= (self.state.evaluations + 1) / self.config.evaluations

    # The loop ------------------------------------------------------------------------------------------------------

    def go_on(self, stop: Stop, meter: Meter) -> None:
        """Trains to the end."""
        config, state = self.config, self.state
        steps = config.steps if config.minutes is None else ENDLESS
        loader = iter(batches(self.source, self.plan, steps, first_step=state.step, workers=config.workers))
        self.model.train()
        asked = save = False
        logged = bool(state.metrics) and state.metrics[-1]["step"] == state.step
        if self._over() and (self._evaluation_is_due() or not logged):  # --force with fewer steps ends anywhere
            state.pending = state.entry
        while True:
            if state.pending is not None and not (asked or self._finish_entry(stop)):
                asked = True
            if asked:
                self._save()
                raise Interrupted(self._goes_on(), 130 if stop.signal == signal.SIGINT else 0)
            if save and state.evaluated != state.step:  # after an evaluation it is saved already
                self._save()
            if self._over():
                break
            asked_for = time.monotonic()
            try:
                parts = list(islice(loader, config.accumulate))
            except RuntimeError:
                if not stop.signal or self.team.size > 1:
                    raise
                asked = True  # the signal has ended a loader worker, too
                continue
            state.waited_s += time.monotonic() - asked_for
            entry, asked, save = self._step(parts, stop)
            stop.begun = True
            state.entry = entry
            due = self._evaluation_is_due()
            if state.step % config.log_every == 0 or self._share() >= 1 or due:
                state.pending = {**entry, f"{self.unit}_per_s": meter.rate, "wait_share": self._wait_share()}
            meter.expect(self.total())
            meter.advance(self.batch_size, f"loss {entry['loss']:.4f}")
        if config.ema:
            self._use(self.average)
        if config.patience and self.run is not None:
            self.best = self.run.weights_of(state.best_step)
        if self.best is not None:
            self._use(self.best)

    def _step(self, parts: list[Mapping[str, Tensor]], stop: Stop) -> tuple[dict[str, Any], bool, bool]:
        """Does a step; returns what may be logged of it, whether to stop, whether to save."""
        config, state, team = self.config, self.state, self.team
        rate, all_learn = self._rate(), self._share() >= config.head_first
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["share"] if all_learn or group["above"] else 0.0
        parts = [{name: tensor.to(team.device) for name, tensor in part.items()} for part in parts]
        counts = self._counts(parts) if len(parts) > 1 else None
        sums: dict[str, Tensor] = {}
        for number, part in enumerate(parts):
            # Dropout, too, is a function of (seed, step): a resumed run needs no generator's state.
            place = state.step * self.plan.n_parts + number * team.size + team.rank
            _seed((config.seed << 32) + place, team.device)
            with self.spread.last_part(number == len(parts) - 1):
                with torch.autocast(team.device.type, torch.bfloat16, enabled=self.bf16):
                    losses = self.spread.wrapped(part).losses
                    if counts is None:
                        counts = self._all({name: loss.count.detach() for name, loss in losses.items()})
                    of_all = {name: LossSum(loss.sum, counts[name]) for name, loss in losses.items()}
                    loss = self.model.loss(of_all)
                # The processes' gradients are averaged: of shares of one sum that is `size` times too little.
                (loss * team.size if team.size > 1 else loss).backward()
            for name, own in losses.items():
                sums[name] = sums.get(name, 0) + own.sum.detach()
                if own.correct is not None:
                    hits = f"accuracy_{name}"
                    sums[hits] = sums.get(hits, 0) + own.correct.to(own.sum)
        assert counts is not None
        sums = self._all(sums)
        total = {name: LossSum(sums[name], counts[name], sums.get(f"accuracy_{name}")) for name in counts}
        norm = whole(torch.nn.utils.clip_grad_norm_(self.trained.values(), config.max_grad_norm or np.inf))
        value, norm_value = torch.stack([self.model.loss(total).to(norm), norm]).tolist()
        if not np.isfinite([value, norm_value]).all():
            raise not_finite_error(
                self.title, self.model, self.source, self.plan, state.step, value, parts, self.run, team
            )
        self.optimizer.step()
        self.optimizer.zero_grad()
        if config.ema:
            with torch.no_grad():
                torch._foreach_lerp_(list(self.average.values()), list(self.trained.values()), 1 - config.ema)
        state.step += 1
        asked, save = self._agree(stop)
        entry = {
            "step": state.step,
            "loss": value,
            **{f"loss_{name}": float(part.mean()) for name, part in total.items()},
            **{f"accuracy_{name}": part.accuracy() for name, part in total.items() if part.correct is not None},
            "learning_rate": rate,
            "gradient_norm": norm_value,
        }
        return entry, asked, save

    def _rate(self) -> float:
        if self.config.minutes is None:
            return learning_rate(self.state.step, self.config)
        return learning_rate_at(self._share(), self.config)

    def _agree(self, stop: Stop) -> tuple[bool, bool]:
        """Brings the clock up to date: the first process's counts, so that all do the same at the same step."""
        now = time.monotonic()
        every_s = self.config.checkpoint_every_s
        clock = [now - self.started, float(0 < every_s <= now - self.saved)] if self.team.first else [0.0, 0.0]
        if self.team.size > 1:
            clock = [*clock, float(bool(stop.signal)), float(stop.signal == signal.SIGINT)]
            clock = self.team.sum(torch.tensor(clock, dtype=torch.float64, device=self.team.device)).tolist()
            *clock, asked, by_hand = clock
            if asked:  # all end with one status
                stop.signal = signal.SIGINT if by_hand else signal.SIGTERM
        else:
            asked = stop.signal
        self.state.seconds = self.before_s + clock[0]
        return bool(asked), bool(clock[1]) and self.run is not None

    def _counts(self, parts: list[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Counts what all parts' losses will be divided by, before the first one's gradient is taken."""
        with torch.no_grad():
            each = [self.model.counts(part) for part in parts]
        return self._all({name: torch.stack([counts[name] for counts in each]).sum() for name in each[0]})

    def _all(self, values: dict[str, Tensor]) -> dict[str, Tensor]:
        if self.team.size == 1:
            return values
        total = self.team.sum(torch.stack([value.double() for value in values.values()]))
        return {name: part.to(values[name].dtype) for name, part in zip(values, total)}

    def _wait_share(self) -> float:
        return self.state.waited_s / max(self.state.seconds, 1e-9)

    # Evaluation and checkpoints ------------------------------------------------------------------------------------

    def _finish_entry(self, stop: Stop) -> bool:
        """Evaluates where it is due and logs; False = a signal came, and the entry is still pending."""
        state = self.state
        assert state.pending is not None
        entry = state.pending
        if due := self._evaluation_is_due():
            evaluate = self.evaluate
            assert evaluate is not None
            self.model.eval()
            try:
                with self._averaged(), stop.leaving(self.team.size == 1):
                    # The first one's counts: on other hardware the last digits may differ, and with them who stops.
                    entry = {**entry, "evaluation": self.team.agree(lambda: evaluate(self.model))[0]}
            except StopNow:
                return False
            self.model.train()
            state.evaluated, state.evaluations = state.step, state.evaluations + 1
            if self.score is not None:
                value = float(self.score(entry["evaluation"]))
                if self.config.patience and not np.isfinite(value):
                    raise UserError(
                        f"{self.title}: the evaluation after step {state.step} gives {value}, training.patience has "
                        "nothing to go by; look at what is kept out, or set it to 0"
                    )
                better = value > (-np.inf if state.best_score is None else state.best_score)
                state.stale = 0 if better else state.stale + 1
                if better:
                    state.best_score, state.best_step = value, state.step
                    if self.config.patience and self.run is None:
                        self.best = {name: tensor.detach().clone() for name, tensor in self._weights().items()}
        state.metrics.append(entry)
        state.pending = None
        if (run := self.run) is not None:
            self.team.first_does(lambda: run.log(entry))
        self.board.add(entry)
        if due and self.run is not None:
            self._save()
        return True

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """The averaged weights in place of the trained ones, for a while."""
        own = {name: self.trained[name].detach().clone() for name in self.average}
        self._use(self.average)
        try:
            yield
        finally:
            self._use(own)

    @torch.no_grad()
    def _use(self, weights: Mapping[str, Tensor]) -> None:
        state = self.model.state_dict()
        for name, value in weights.items():
            state[name].copy_(as_divided(value, state[name]))

    def _weights(self) -> dict[str, Tensor]:
        """What is evaluated and kept: the model's tensors, the averaged ones where there are any."""
        return {**self.model.state_dict(), **self.average}

    def _save(self) -> None:
        if (run := self.run) is None:
            return
        weights = gathered(self._weights(), self.team)
        moments = {
            f"{key}.{name}": value
            for name, parameter in self.trained.items()
            for key, value in self.optimizer.state[parameter].items()
        }
        moments = gathered(moments | {f"own.{name}": self.trained[name] for name in self.average}, self.team)

        def write() -> None:
            if bad := [name for name, tensor in weights.items() if not bool(torch.isfinite(tensor).all())]:
                raise UserError(
                    f"{self.title}: the weights after step {self.state.step} are not finite ({bad[0]}); lower "
                    "training.learning_rate and begin anew with --overwrite"
                )
            run.save(self.model, weights, moments, self.state)

        self.team.first_does(write)
        self.saved = time.monotonic()

    def _restore(self, weights: dict[str, Tensor], moments: dict[str, Tensor], state: State) -> None:
        if self.config.minutes is None and state.step > self.config.steps:
            raise UserError(
                f"{self.title}: {state.step} steps are done already, training.steps is {self.config.steps}; raise it, "
                "or pass --overwrite to begin anew"
            )
        self.state, own = state, self.model.state_dict()
        odd = [n for n in {**own, **weights} if n not in own or n not in weights or own[n].shape != weights[n].shape]
        if odd := odd or odd_moments(moments, own, self.trained, state.step):
            raise UserError(
                f"{self.title}: the checkpoint of step {state.step} is of another model ({odd[0]} does not fit); use "
                "the settings that it was begun with, or pass --overwrite to begin anew"
            )
        self._use(weights)
        for name in self.average:
            self.average[name].copy_(as_divided(weights[name], self.average[name]))
        for key, value in moments.items():
            kind, _, name = key.partition(".")
            if kind == "own":
                self._use({name: value})
            elif (
                parameter := self.trained.get(name)
            ) is not None:  # all are there unless --force has changed what is frozen
                self.optimizer.state[parameter][kind] = as_divided(value, parameter)

    def _goes_on(self) -> str:
        where = f"step {self.state.step} is saved; " if self.run is not None else ""
        return f"{self.title}: stopped by a signal; {where}to go on, {again()}"


def _seed(seed: int, device: torch.device) -> None:
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)  # the other seeds devices that are not there, for 0.3 ms a step
    else:
        torch.manual_seed(seed)

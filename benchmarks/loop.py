"""What the loop adds to a bare training step: order, logging, checkpoints; and how long it waits for batches."""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from encoder import pretraining_model
from timing import Figure, Figures
from torch import Tensor, nn

from bothways import eeg
from bothways.config import (
    ENCODER_SIZES,
    EncoderConfig,
    MaskingConfig,
    PretrainConfig,
    TrainingConfig,
    WindowConfig,
)
from bothways.model import Model
from bothways.training import build_optimizer, join, learning_rate, open_run, train

DATA = Path(__file__).parent.parent / "examples/data/eeg_mental_arithmetic"
STEPS, WARMUP = 100, 10


class InTurn:
    """A source that does a bare step of another model whenever the loop asks for a batch, and times both.

    What lies between two requests is the loop's: its step, log and progress.
    """

    def __init__(self, source: eeg.WindowSource, model: Model, config: TrainingConfig) -> None:
        self.source, self.model, self.config = source, model, config
        self.optimizer = build_optimizer(model, config)
        self.loop_s: list[float] = []
        self.bare_s: list[float] = []
        self.left_at: float | None = None

    def __len__(self) -> int:
        return len(self.source)

    def batch(self, ids: np.ndarray, epochs: np.ndarray) -> dict[str, Tensor]:
        """Returns windows of the store, after a bare step on them."""
        asked_at = time.perf_counter()
        if self.left_at is not None:
            self.loop_s.append(asked_at - self.left_at)
        batch = self.source.batch(ids, epochs)
        start = time.perf_counter()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(len(self.bare_s), self.config)
        self.model.loss(self.model(batch).losses).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.config.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.left_at = time.perf_counter()
        self.bare_s.append(self.left_at - start)
        return batch

    def names(self, ids: np.ndarray) -> list[str]:
        """Returns nothing: no message names them."""
        return []


def nano() -> Model:
    """Returns the default model."""
    return pretraining_model(EncoderConfig(**ENCODER_SIZES["nano"], hidden_dropout_prob=0.0))


def run() -> Figures:
    config = TrainingConfig(steps=STEPS, batch_size=16, precision="float32", log_every=1)
    saving_s: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        store = eeg.prepare([DATA], Path(folder) / "store")
        windows = eeg.cut_windows(store, WindowConfig())
        source = eeg.WindowSource(store, windows, PretrainConfig().patches, masking=MaskingConfig())
        in_turn = InTurn(source, nano(), config)

        def trained(source: InTurn | eeg.WindowSource, config: TrainingConfig) -> float:
            """Trains in a folder of its own; returns the share of the time that was waited."""
            with open_run(Path(folder) / "run", PretrainConfig(training=config), {}, join(), overwrite=True) as run:
                save = run.save

                def timed(*arguments: Any, **options: Any) -> None:
                    start = time.perf_counter()
                    save(*arguments, **options)
                    saving_s.append(time.perf_counter() - start)

                run.save = timed  # type: ignore[method-assign]
                return train(nano(), source, config, title="loop", run=run).wait_share

        trained(in_turn, config)
        often = config.model_copy(update={"steps": 40, "checkpoint_every_s": 0.5})
        waited = [trained(source, often) for _ in range(3)]
    added = statistics.median(a / b for a, b in list(zip(in_turn.loop_s, in_turn.bare_s))[WARMUP:])
    saving = statistics.median(saving_s) / config.checkpoint_every_s
    return {
        "bare forward, backward, clip, step": Figure(1000 * statistics.median(in_turn.bare_s), "ms"),
        "one checkpoint": Figure(1000 * statistics.median(saving_s), "ms"),
        "loop, log and checkpoints / bare": Figure(added + saving, "", at_most=1.03),
        "share of the time waited for batches": Figure(statistics.median(waited), "", at_most=0.05),
    }

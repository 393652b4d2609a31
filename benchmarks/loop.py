"""What the loop adds to a bare training step: order, logging, checkpoints; and how long it waits for batches."""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from encoder import pretraining_model
from timing import Figure, Figures, paired_seconds
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
from bothways.training import Plan, build_optimizer, join, learning_rate, open_run, train

DATA = Path(__file__).parent.parent / "examples/data/eeg_mental_arithmetic"
STEPS, ROUNDS = 40, 7


class Held:
    """A source whose batches are made already, so that only the loop's own work is measured."""

    def __init__(self, source: eeg.WindowSource, plan: Plan) -> None:
        self.n = len(source)
        steps = [plan.step(step) for step in range(STEPS)]
        self.batches = {ids.tobytes(): source.batch(ids, epochs) for ids, epochs in steps}

    def __len__(self) -> int:
        return self.n

    def batch(self, ids: np.ndarray, epochs: np.ndarray) -> dict[str, Tensor]:
        """Returns what was made before."""
        return self.batches[ids.tobytes()]

    def names(self, ids: np.ndarray) -> list[str]:
        """Returns nothing: no message names them."""
        return []


def nano() -> Model:
    """Returns the default model."""
    return pretraining_model(EncoderConfig(**ENCODER_SIZES["nano"], hidden_dropout_prob=0.0))


def bare(model: Model, source: Held, config: TrainingConfig) -> Callable[[], None]:
    """Returns a function that does the same steps without the loop."""
    plan = Plan(len(source), int(config.batch_size), config.seed)
    batches = [source.batch(*plan.step(step)) for step in range(STEPS)]
    optimizer = build_optimizer(model, config)

    def steps() -> None:
        for step, batch in enumerate(batches):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, config)
            model.loss(model(batch).losses).backward()
            nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm)
            optimizer.step()
            optimizer.zero_grad()

    return steps


def run() -> Figures:
    config = TrainingConfig(steps=STEPS, batch_size=16, precision="float32")
    every_s = config.checkpoint_every_s
    with tempfile.TemporaryDirectory() as folder:
        store = eeg.prepare([DATA], Path(folder) / "store")
        windows = eeg.cut_windows(store, WindowConfig())
        source = eeg.WindowSource(store, windows, PretrainConfig().patches, masking=MaskingConfig())
        held = Held(source, Plan(len(source), 16, config.seed))
        checkpoint_s: list[float] = []

        def trained(source: Held | eeg.WindowSource = held) -> float:
            with open_run(Path(folder) / "run", PretrainConfig(training=config), {}, join(), overwrite=True) as run:
                save = run.save

                def timed(*arguments: object, **options: object) -> None:
                    start = time.perf_counter()
                    save(*arguments, **options)  # type: ignore[arg-type]
                    checkpoint_s.append(time.perf_counter() - start)

                run.save = timed  # type: ignore[method-assign]
                return train(nano(), source, config, title="loop", run=run).wait_share

        loop_s, bare_s = paired_seconds(trained, bare(nano(), held, config), repeats=ROUNDS)
        config = config.model_copy(update={"checkpoint_every_s": 0.5})
        waits = [trained(source) for _ in range(3)]
    added = statistics.median(a / b for a, b in zip(loop_s, bare_s))
    saving = statistics.median(checkpoint_s) / every_s
    return {
        "bare forward, backward, clip, step": Figure(1000 * statistics.median(bare_s) / STEPS, "ms"),
        "the loop with its log / bare": Figure(added, ""),
        "one checkpoint": Figure(1000 * statistics.median(checkpoint_s), "ms"),
        f"loop, log and a checkpoint every {every_s:g} s / bare": Figure(added + saving, "", at_most=1.03),
        "share of the time that is waited for batches, no workers": Figure(statistics.median(waits), "", at_most=0.05),
    }

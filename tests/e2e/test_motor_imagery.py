"""Labels of moments from a recording's own annotations: T0, T1, T2 of motor imagery (BCI2000)."""

from pathlib import Path
from typing import Any

import pytest

from bothways import run
from people import CHANNELS, TINY, alpha_uv
from recordings import write_edf

SETTINGS = [
    *TINY, "windows.window_s=5", "windows.stride_s=4", "windows.jitter_s=1", "patches.patch_s=0.5",
    "patches.spectrum_hz=[4.0, 40.0]", "training.batch_size=16", "training.learning_rate=3e-3",
]  # fmt: skip
PERIOD_S, REST_S = 6.5, 1.375
"""A trial follows on each rest, as in the real run."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five people of 65 s: T1 takes a rhythm from the first channels, T2 from the last ones."""
    folder = tmp_path_factory.mktemp("imagery")
    for person in range(5):
        signal, other = (alpha_uv(state, person, seconds=65) for state in ("closed", "open"))
        marks: list[tuple[float, float | None, str]] = []
        for trial in range(10):
            name, rows = (("T1", slice(0, 2)), ("T2", slice(2, 4)))[(trial + person) % 2]
            onset_s = PERIOD_S * trial + REST_S
            here = slice(int(200 * onset_s), int(200 * (onset_s + 3)))
            signal[rows, here] = other[rows, here]
            marks += [(onset_s - REST_S, REST_S, "T0"), (onset_s, 3.0, name)]
        write_edf(folder / "data" / f"sub-{person}.edf", signal, CHANNELS, plus="C", annotations=marks)
    run.prepare([folder / "data"], folder / "store")
    return folder


def tuned(runs: Path, out: Path, *changes: str, **options: Any) -> dict[str, Any]:
    return run.finetune("scratch", runs / "store", "events", out, changes=[*SETTINGS, *changes], **options)


def test_each_moment_has_the_class_of_its_annotation(runs: Path, tmp_path: Path) -> None:
    plan = tuned(runs, tmp_path / "run", 'task="moment"', dry_run=True)
    assert plan["classes"] == ["T0", "T1", "T2"]
    counted = plan["counts"]["train"]
    assert len(counted) == 3
    assert all(min(of.values()) > 10 for of in counted.values())
    assert all(abs(of["T1"] - of["T2"]) < 0.3 * of["T1"] for of in counted.values())


@pytest.mark.slow
def test_moments_of_trials_are_told_apart_in_new_people(runs: Path, tmp_path: Path) -> None:
    tuned(runs, tmp_path / "run", 'task="moment"', "training.steps=150")
    found = run.evaluate(tmp_path / "run")
    assert found["model"]["balanced_accuracy"] > 0.6  # of three classes, chance 0.33
    assert found["events"] is None  # T0 is a class with a beginning and an end, no time is background

"""Labels of moments and of one event, from finetune to evaluate: bursts of alpha waves in long recordings."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bothways import run
from bothways.errors import UserError
from people import CHANNELS, TINY, alpha_uv
from recordings import write_edf

SETTINGS = [
    *TINY, "windows.window_s=10", "windows.stride_s=5", "patches.patch_s=1", "training.batch_size=16",
    "training.learning_rate=3e-3", "training.seed=1",
]  # fmt: skip


@pytest.fixture(scope="module")
def bursts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Six people of two minutes, with a burst of 4 to 6 s every 15 s or so."""
    folder = tmp_path_factory.mktemp("bursts")
    rows = ["file,onset_s,duration_s,label"]
    for person in range(6):
        draw = np.random.default_rng(person)
        signal, burst = (alpha_uv(state, person, seconds=120) for state in ("open", "closed"))
        for slot in range(8):
            onset_s, duration_s = 15 * slot + int(draw.integers(2, 8)), int(draw.integers(4, 7))
            here = slice(200 * onset_s, 200 * (onset_s + duration_s))
            signal[:, here] = burst[:, here]
            rows.append(f"sub-{person}.edf,{onset_s},{duration_s},burst")
        write_edf(folder / "data" / f"sub-{person}.edf", signal, CHANNELS)
    (folder / "labels.csv").write_text("\n".join(rows))
    run.prepare([folder / "data"], folder / "store")
    return {"store": folder / "store", "labels": folder / "labels.csv", "data": folder / "data"}


def tuned(bursts: dict[str, Path], out: Path, *changes: str) -> dict[str, Any]:
    return run.finetune("scratch", bursts["store"], bursts["labels"], out, changes=[*SETTINGS, *changes])


def test_moments_are_found(bursts: dict[str, Path], tmp_path: Path) -> None:
    told = tuned(bursts, tmp_path / "run", 'task="moment"', 'labels.background="rest"', "training.steps=150")
    assert told["classes"] == ["burst", "rest"]
    counted = told["windows"]["test"]
    assert counted["burst"] + counted["rest"] == 10 * 23 * len(told["split"]["test"])  # patches of all windows
    found = run.evaluate(tmp_path / "run")
    assert found["task"] == "moment"
    assert found["model"]["n"] == counted["burst"] + counted["rest"]
    assert found["model"]["balanced_accuracy"] > 0.85
    assert found["controls"]["band_power"]["n"] == found["model"]["n"]


def test_an_event_is_found_with_its_onset_and_end(bursts: dict[str, Path], tmp_path: Path) -> None:
    tuned(bursts, tmp_path / "run", 'task="event"', "training.steps=250", "windows.jitter_s=2")
    found = run.evaluate(tmp_path / "run")
    assert found["classes"] == ["burst", "nothing"]
    spans = found["model"]["spans"]
    assert spans["n"] > 4
    assert spans["onset_error_s"] <= 1
    assert spans["overlap"] > 0.6


def test_what_a_task_needs_is_said(bursts: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"expected moments of two classes or more, got .*burst; label more, or set"):
        tuned(bursts, tmp_path / "run", 'task="moment"')
    rows = bursts["labels"].read_text().splitlines()
    (tmp_path / "two.csv").write_text("\n".join([*rows[:9], *(row.replace("burst", "blink") for row in rows[9:])]))
    with pytest.raises(UserError, match='task = "event": expected one class beside nothing, got blink, burst'):
        tuned({**bursts, "labels": tmp_path / "two.csv"}, tmp_path / "run", 'task="event"')

"""Labels of moments and of one event, from finetune to evaluate: bursts of alpha waves in long recordings."""

import json
from pathlib import Path
from typing import Any

import mne
import numpy as np
import pyarrow.parquet as pq
import pytest

from bothways import run
from bothways.cli.printing import print_evaluation, print_windows
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


def test_moments_are_found(bursts: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = tuned(bursts, tmp_path / "run", 'task="moment"', 'labels.background="rest"', "training.steps=150")
    assert told["classes"] == ["burst", "rest"]
    counted = told["windows"]["test"]
    assert counted["burst"] + counted["rest"] == 10 * 23 * len(told["split"]["test"])  # patches of all windows
    found = run.evaluate(tmp_path / "run")
    assert found["task"] == "moment"
    assert found["model"]["n"] == counted["burst"] + counted["rest"]
    assert found["model"]["balanced_accuracy"] > 0.85
    assert found["controls"]["band_power"]["n"] == found["model"]["n"]
    burst = found["events"]["burst"]
    assert 0 < burst["pooled"]["n_reference"] <= burst["pooled"]["n_given"] / 2
    (note,) = [note for note in found["notes"] if note.startswith("events burst: merge_s 90 makes ")]
    assert "--event-rule merge_s=" in note
    assert burst["sensitivity"]["mean"] > 0.9  # within the tolerance of 30 s before and 60 s after
    assert burst["pooled"]["uncovered_s"] == 0
    capsys.readouterr()
    print_windows(told)
    print_evaluation(found)
    out = capsys.readouterr().out
    assert f", moments: {counted['burst']} burst, {counted['rest']} rest" in out
    assert "windows: " not in out


@pytest.mark.slow
def test_time_without_a_window_is_no_time_without_false_alarms(bursts: dict[str, Path], tmp_path: Path) -> None:
    settings = ['task="moment"', 'labels.background="rest"', "training.steps=1"]
    tuned(bursts, tmp_path / "run", *settings, "training.batch_size=2", "windows.window_s=70", "windows.stride_s=70")
    pooled = run.evaluate(tmp_path / "run")["events"]["burst"]["pooled"]
    n = pooled["recorded_s"] / 70
    assert n == round(n) >= 1
    assert pooled["uncovered_s"] == 50 * n
    assert pooled["false_alarms_per_24h"] == pytest.approx(pooled["n_false"] / (70 * n / 86400))


def test_an_event_is_found_with_its_onset_and_end(
    bursts: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned(bursts, tmp_path / "run", 'task="event"', "training.steps=250", "windows.jitter_s=2")
    found = run.evaluate(tmp_path / "run")
    assert found["classes"] == ["burst", "nothing"]
    spans = found["model"]["spans"]
    assert spans["n"] > 4
    assert spans["onset_error_s"] <= 1
    assert spans["overlap"] > 0.6
    capsys.readouterr()
    found["model"]["spans"] = {"n": 1, "onset_error_s": 0.5, "end_error_s": 2.0, "overlap": None}
    print_evaluation(found)
    out = capsys.readouterr().out
    assert "onset and end of 1 event: median error 0.5 s and 2 s, mean overlap –\n" in out


def test_what_a_task_needs_is_said(bursts: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"expected moments of two classes or more, got .*burst; label more, or set"):
        tuned(bursts, tmp_path / "run", 'task="moment"')
    rows = bursts["labels"].read_text().splitlines()
    (tmp_path / "two.csv").write_text("\n".join([*rows[:9], *(row.replace("burst", "blink") for row in rows[9:])]))
    with pytest.raises(UserError, match='task = "event": expected one class beside nothing, got blink, burst'):
        tuned({**bursts, "labels": tmp_path / "two.csv"}, tmp_path / "run", 'task="event"')


def overlap_s(events: list[dict[str, Any]], onset_s: float, stop_s: float) -> float:
    shared = [min(e["onset_s"] + e["duration_s"], stop_s) - max(e["onset_s"], onset_s) for e in events]
    return float(np.maximum(shared, 0).sum())


@pytest.mark.parametrize("task", ["moment", "event"])
def test_events_are_predicted_and_written(bursts: dict[str, Path], tmp_path: Path, task: str) -> None:
    changes = [f'task="{task}"', 'labels.background="rest"', "training.steps=200", "windows.jitter_s=2"]
    tuned(bursts, tmp_path / "run", *changes)
    result = run.predict(
        tmp_path / "run", [bursts["data"] / "sub-0.edf"], tmp_path / "out", stride_s=2.0, changes=["min_duration_s=2"]
    )
    (found,) = result["recordings"]
    assert result["events_by"]["background"] == ["rest"]
    rows = [row.split(",") for row in bursts["labels"].read_text().splitlines() if row.startswith("sub-0")]
    truth = [(float(onset), float(onset) + float(duration)) for _, onset, duration, _ in rows]
    hit = sum(overlap_s(found["events"], *span) for span in truth)
    assert hit > 0.75 * sum(stop - start for start, stop in truth)
    assert hit > 0.6 * sum(event["duration_s"] for event in found["events"])
    annotations = mne.read_annotations(tmp_path / "out" / "sub-0.edf_annotations.edf")
    assert annotations.onset.tolist() == pytest.approx([event["onset_s"] for event in found["events"]], abs=1e-6)
    assert set(annotations.description) == {"burst"}
    table = pq.read_table(tmp_path / "out" / "sub-0.edf_probabilities.parquet")
    assert table.num_rows == 120
    array = np.load(tmp_path / "out" / "sub-0.edf_probabilities.npy", allow_pickle=False)
    np.testing.assert_array_equal(array, np.stack([table[f"p_{name}"] for name in ("burst", "rest")], 1))
    about = json.loads((tmp_path / "out" / "sub-0.edf_probabilities.json").read_text())
    assert (about["classes"], about["step_s"]) == (["burst", "rest"], 1.0)
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {found["csv"], *found["files"], "predictions.json"}
    assert found["files"][1] == f"{found['file'].removesuffix('.edf')}_events.tsv"


def test_a_gap_has_no_event_over_it(bursts: dict[str, Path], tmp_path: Path) -> None:
    tuned(bursts, tmp_path / "run", 'task="moment"', 'labels.background="rest"', "training.steps=100")
    signal = alpha_uv("closed", 9, seconds=60)
    write_edf(tmp_path / "gap.edf", signal, CHANNELS, onsets_s=[0.0, 100.0], record_s=30, plus="D")
    (found,) = run.predict(tmp_path / "run", [tmp_path / "gap.edf"], tmp_path / "out")["recordings"]
    assert found["events"]
    for event in found["events"]:
        assert not (event["onset_s"] < 30 and event["onset_s"] + event["duration_s"] > 100)
        assert event["onset_s"] + event["duration_s"] <= 30 or event["onset_s"] >= 100

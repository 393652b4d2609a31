"""Labels of moments and of one trial from a recording's own annotations: T0, T1, T2 of motor imagery (BCI2000)."""

import json
from pathlib import Path
from typing import Any

import pytest

from bothways import run
from bothways.eeg import read_recording, write_edf_recording
from bothways.errors import UserError
from bothways.run.common import of_subjects
from bothways.run.tasks import measured, probabilities, rules_of
from bothways.run.tested import open_tested
from people import CHANNELS, TINY, alpha_uv
from recordings import write_edf

SETTINGS = [
    *TINY, "windows.window_s=5", "windows.stride_s=4", "windows.jitter_s=1", "patches.patch_s=0.5",
    "patches.spectrum_hz=[4.0, 40.0]", "training.batch_size=16", "training.learning_rate=3e-3",
]  # fmt: skip
LEFT = ['labels.map={"T1"="left", "T0|T2"="rest"}', 'labels.background="rest"', "windows.stride_s=1"]
"""The left hand alone is an event: between two trials is no room for a window without any."""
SHORT = ("before_s=0.5", "after_s=0.5", "merge_s=0.5")
ROUNDED = pytest.mark.filterwarnings(
    "ignore:.*labelled stretches (reach up to|overlap one of the same label):bothways.errors.BothwaysWarning"
)
"""The real run's onsets are rounded to hundredths."""
HALF_S = 62
PERIOD_S, REST_S = 6.5, 1.375
"""A trial follows on each rest, as in the real run; 3 s of movement, so that a window of 5 s can hold one."""


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


@pytest.mark.slow
def test_the_trial_in_a_window_is_found_in_new_people(runs: Path, tmp_path: Path) -> None:
    tuned(runs, tmp_path / "run", 'task="event"', *LEFT, "training.steps=150")
    found = run.evaluate(tmp_path / "run", event_rules=SHORT)
    assert found["classes"] == ["left", "rest"]
    assert found["model"]["spans"]["n"] > 3
    assert found["model"]["spans"]["onset_error_s"] <= 1
    assert found["events"]["left"]["pooled"]["n_reference"] == 5 * len(found["split"]["test"])


@pytest.fixture(scope="module")
def real(shared: Path) -> Path:
    return shared / "data" / "eeg_formats" / "edf_plus_annotated" / "motor_imagery_T0T1T2.edf"


@pytest.fixture(scope="module")
def halves(real: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real run cut in two, each half under a name of its own: what is measured is no other person, and said so."""
    folder = tmp_path_factory.mktemp("halves")
    recording, n = read_recording(real), 128 * HALF_S
    (folder / "data").mkdir()
    for number, name in enumerate(("first", "second")):
        begin_s = HALF_S * number
        events = []
        for event in recording.events:
            start_s = max(event.onset_s - begin_s, 0.0)
            stop_s = min(event.onset_s + event.duration_s - begin_s, HALF_S)
            if stop_s > start_s:
                events.append((start_s, stop_s - start_s, event.label))
        part_uv = recording.data_uv[:, n * number : n * (number + 1)].astype(float)
        write_edf_recording(folder / "data" / f"sub-{name}.edf", part_uv, recording.ch_names, 128, events)
    run.prepare([folder / "data"], folder / "store", changes=["notch_hz=60"])
    note = "halves of one recording of one person: says nothing of other people"
    split = {"train": ["first"], "validation": [], "test": ["second"], "note": note}
    (folder / "split.json").write_text(json.dumps(split))
    return folder


@ROUNDED
def test_one_person_is_not_divided_by_itself(real: Path, tmp_path: Path) -> None:
    run.prepare([real], tmp_path / "store", changes=["notch_hz=60"])
    settings = [*SETTINGS, 'task="moment"']
    with pytest.raises(UserError, match="give at least 3 people"):
        run.finetune("scratch", tmp_path / "store", "events", tmp_path / "run", changes=settings)


def measured_on(out: Path, name: str) -> dict[str, Any]:
    """What the run gives on one half."""
    opened = open_tested(out)
    settings, windows = opened.settings, of_subjects(opened.windows, [name])
    source = opened.sources().of(windows, task=settings.task, background=rules_of(settings).background)
    return measured(source, probabilities(opened.model, source), windows.classes)


REAL = ['patches.tokens="all_channels"', "training.steps=200"]


@ROUNDED
@pytest.mark.slow
def test_moments_of_the_real_run_are_learned(halves: Path, tmp_path: Path) -> None:
    tuned(halves, tmp_path / "run", 'task="moment"', "windows.stride_s=1", *REAL, split=halves / "split.json")
    found = run.evaluate(tmp_path / "run")
    assert found["split"]["note"] == "halves of one recording of one person: says nothing of other people"
    assert found["classes"] == ["T0", "T1", "T2"]
    assert measured_on(tmp_path / "run", "first")["balanced_accuracy"] > 0.8  # of three classes, chance 0.33
    assert found["model"]["n"] > 500  # of the other half; ten trials teach little that holds there


@ROUNDED
@pytest.mark.slow
def test_the_trial_in_a_window_of_the_real_run_is_learned(halves: Path, tmp_path: Path) -> None:
    changes = ['task="event"', *LEFT, "windows.window_s=6.5", "windows.stride_s=0.25", *REAL]
    tuned(halves, tmp_path / "run", *changes, split=halves / "split.json")
    found = run.evaluate(tmp_path / "run", event_rules=SHORT)
    assert found["split"]["note"] == "halves of one recording of one person: says nothing of other people"
    learned = measured_on(tmp_path / "run", "first")
    assert learned["balanced_accuracy"] > 0.8
    assert learned["spans"]["onset_error_s"] <= 0.5
    assert learned["spans"]["overlap"] > found["model"]["spans"]["overlap"]
    assert found["events"]["left"]["pooled"]["n_reference"] == 6

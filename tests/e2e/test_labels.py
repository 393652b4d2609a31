"""Fine-tuning from events, from hypnograms and from labels that cover windows in part; the shared cases of labels."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bothways import eeg, run
from bothways.config import FinetuneConfig, LabelConfig, WindowConfig
from bothways.errors import BothwaysWarning, UserError
from bothways.training import load_recipe
from people import CHANNELS, TINY, alpha_uv
from recordings import write_edf
from stores import a_store, entry

Call = Callable[..., tuple[int, str, str]]
SHORT = [*TINY, "windows.window_s=3", "windows.stride_s=3", "training.steps=2", "training.batch_size=4"]
EVENTS = [(0, 12, "Rest"), (12, 9, "S  1"), (21, 3, "Sleep stage ?"), (24, 6, "S  2"), (29.5, None, "button")]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five people of 30 s with events of their own."""
    top = tmp_path_factory.mktemp("events")
    for person in range(5):
        write_edf(top / "data" / f"sub-{person}.edf", alpha_uv("open", person), CHANNELS, plus="C", annotations=EVENTS)
    run.prepare([top / "data"], top / "store")
    return top / "store"


def set_of(*changes: str) -> list[str]:
    return [word for change in changes for word in ("--set", change)]


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text('[labels.map]\n"Rest" = "rest"\n"S +[12]" = "task"\n', encoding="utf-8")
    return path


def test_events_to_an_evaluated_run(store: Path, recipe: Path, tmp_path: Path) -> None:
    with pytest.warns(BothwaysWarning, match=r"labels that are no class: Sleep stage \? \(5\), button \(5\)"):
        result = run.finetune("scratch", store, "events", tmp_path / "run", recipe=recipe, changes=SHORT)
    assert result["classes"] == ["rest", "task"]
    assert result["windows"] == {
        "train": {"rest": 12, "task": 15}, "validation": {"rest": 4, "task": 5}, "test": {"rest": 4, "task": 5},
    }  # fmt: skip
    assert {part: set(people) for part, people in result["counts"].items()} == {
        part: set(result["split"][part]) for part in ("train", "validation", "test")
    }
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["counts"] == result["counts"]
    assert load_recipe(tmp_path / "run", FinetuneConfig).labels.map == {"Rest": "rest", "S +[12]": "task"}
    assert run.evaluate(tmp_path / "run")["model"]["support"] == {"rest": 4, "task": 5}


def test_windows_covered_in_part_are_evaluated_alike(store: Path, tmp_path: Path) -> None:
    changes = [*SHORT, "windows.window_s=4", "windows.min_overlap=0.6", "labels.background=rest"]
    changes.append('labels.map={"S +[12]" = "task"}')
    with pytest.warns(BothwaysWarning):
        result = run.finetune("scratch", store, "events", tmp_path / "run", changes=changes)
    (person,) = result["split"]["test"]
    # of the windows at 0, 3, … 24 s those at 9, 18 and 21 s are half and half, or a quarter task
    assert result["counts"]["test"][person] == {"rest": 5, "task": 4}
    assert run.evaluate(tmp_path / "run")["model"]["support"] == {"rest": 5, "task": 4}


def test_a_dry_run_counts_and_stops(bothways: Call, store: Path, recipe: Path, tmp_path: Path) -> None:
    command = ("eeg", "finetune", "--from", "scratch", "--data", store, "--labels", "events", "--out", tmp_path / "run")
    command = (*command, recipe, "--dry-run", *set_of(*SHORT))
    code, out, err = bothways(*command)
    assert code == 0, err
    lines = [line.split() for line in out.splitlines()]
    assert ["part", "person", "rest", "task"] in lines
    assert sum(line[0] == "train" and line[2:] == ["4", "5"] for line in lines) == 3
    assert "train: 3 people, windows: 12 rest, 15 task" in out
    assert "warning: labels that are no class: Sleep stage ? (5), button (5)" in err.splitlines()
    assert not (tmp_path / "run").exists()
    code, out, _ = bothways(*command, "--min-overlap", "0.5", "--json")
    assert code == 0
    plan: dict[str, Any] = json.loads(out)
    assert plan["windows"]["test"] == {"rest": 4, "task": 5}
    known_before = {"classes", "task", "split", "without_windows", "windows", "counts", "pretraining_overlap", "notes"}
    assert plan.keys() == known_before


def test_a_dry_run_of_too_few_people_counts_all(bothways: Call, tmp_path: Path) -> None:
    for person in range(2):
        path = tmp_path / "data" / f"sub-{person}.edf"
        write_edf(path, alpha_uv("open", person), CHANNELS, plus="C", annotations=[(0, 12, "Rest"), (12, 9, "Task")])
    run.prepare([tmp_path / "data"], tmp_path / "store")
    command = ("eeg", "finetune", "--from", "scratch", "--data", tmp_path / "store", "--labels", "events",
               "--out", tmp_path / "run", *set_of(*SHORT))  # fmt: skip
    code, out, err = bothways(*command, "--dry-run")
    assert code == 0, err
    assert "all: 2 people, windows: 8 Rest, 6 Task" in out
    needs = "a split needs 3 people or more, got 2 with labels; add people to train"
    assert f"warning: {needs}" in err.splitlines()
    plan = json.loads(bothways(*command, "--dry-run", "--json")[1])
    assert (plan["split"], plan["counts"]["all"]["1"]) == (None, {"Rest": 4, "Task": 3})
    assert needs in plan["notes"]
    code, _, err = bothways(*command)
    assert (code, "give at least 3 people" in err) == (2, True)
    split = run.finetune("scratch", tmp_path / "store", "events", tmp_path / "run", dry_run=True,
                         changes=[*SHORT, "validation_fraction=0"])["split"]  # fmt: skip
    assert (len(split["train"]), len(split["test"])) == (1, 1)


def test_a_class_that_somebody_lacks_is_seen(bothways: Call, store: Path, tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("subject,label\n0,a\n1,a\n2,b\n3,b\n4,b\n")
    (tmp_path / "split.json").write_text(json.dumps({"train": ["0", "2"], "validation": ["3"], "test": ["1", "4"]}))
    code, out, err = bothways(
        "eeg", "finetune", "--from", "scratch", "--data", store, "--labels", tmp_path / "l.csv", "--split",
        tmp_path / "split.json", "--out", tmp_path / "run", *set_of(*SHORT),
    )  # fmt: skip
    assert code == 0, err
    lines = [line.split() for line in out.splitlines()]
    assert ["train", "0", "10", "0"] in lines
    assert ["train", "2", "0", "10"] in lines
    assert out.index("train: 2 people, windows: 10 a, 10 b") < out.index("parameters")
    assert "warning: the validation subjects have no window of a" in err


def test_a_class_that_nobody_in_training_has_ends_a_training_and_no_dry_run(store: Path, tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("subject,label\n0,a\n1,a\n2,b\n3,b\n4,b\n")
    (tmp_path / "split.json").write_text(json.dumps({"train": ["0"], "validation": ["3"], "test": ["1", "4"]}))

    def finetune(**more: Any) -> dict[str, Any]:
        return run.finetune("scratch", store, tmp_path / "l.csv", tmp_path / "run", split=tmp_path / "split.json",
                            changes=SHORT, **more)  # fmt: skip

    with pytest.warns(BothwaysWarning):
        plan = finetune(dry_run=True)
    assert "the train subjects have no window of b" in plan["notes"]
    assert plan["counts"] == {
        "train": {"0": {"a": 10, "b": 0}}, "validation": {"3": {"a": 0, "b": 10}},
        "test": {"1": {"a": 10, "b": 0}, "4": {"a": 0, "b": 10}},
    }  # fmt: skip
    with pytest.raises(UserError, match="no training subject has b; choose another split or seed"):
        finetune()


def test_a_split_may_name_people_without_a_label_or_a_window(store: Path, tmp_path: Path) -> None:
    split = {"train": ["0", "1", "2"], "validation": ["3"], "test": ["4"]}
    (tmp_path / "split.json").write_text(json.dumps(split))
    (tmp_path / "l.csv").write_text("file,onset_s,duration_s,label\n" + "".join(
        f"sub-{person}.edf,{at},12,{label}\n" for person in (0, 4) for at, label in ((0, "a"), (12, "b"))
    ))  # fmt: skip

    def finetune(**more: Any) -> dict[str, Any]:
        return run.finetune("scratch", store, tmp_path / "l.csv", tmp_path / "run", split=tmp_path / "split.json",
                            changes=SHORT, **more)  # fmt: skip

    with pytest.warns(BothwaysWarning):
        result = finetune()
    assert "2 people of the split's train have no labelled window and are left out: 1, 2" in result["notes"]
    assert result["without_windows"] == {"train": ["1", "2"], "validation": ["3"]}
    assert [result["split"][part] for part in ("train", "validation", "test")] == [("0",), (), ("4",)]
    assert result["windows"]["train"] == {"a": 4, "b": 4}
    assert list(run.evaluate(tmp_path / "run")["model"]["subjects"]) == ["4"]
    for part, message in (
        ("test", "the data has no subject 9"),
        ("train", "expected somebody in train with a labelled"),
    ):
        people = split | {"test": ["4", "9"]} if part == "test" else split | {"train": ["1", "2"]}
        (tmp_path / "split.json").write_text(json.dumps(people))
        with pytest.raises(UserError, match=message):
            finetune(overwrite=True)


def test_pretraining_leaves_out_whose_recordings_are_too_short(tmp_path: Path) -> None:
    for person, seconds in enumerate((30, 30, 2, 30)):
        write_edf(tmp_path / "data" / f"sub-{person}.edf", alpha_uv("open", person, seconds=seconds), CHANNELS)
    store = run.prepare([tmp_path / "data"], tmp_path / "store")["store"]
    (tmp_path / "split.json").write_text(json.dumps({"train": ["0", "1", "2"], "test": ["3"]}))
    with pytest.warns(BothwaysWarning):
        result = run.pretrain(store, tmp_path / "run", changes=SHORT, split=tmp_path / "split.json")
    assert "1 people of the split's train have no window of 3 s and are left out: 2" in result["notes"]
    assert (result["without_windows"], result["subjects"]) == ({"train": ["2"]}, 1)
    (tmp_path / "split.json").write_text(json.dumps({"train": ["2"], "test": ["3"]}))
    with pytest.raises(UserError, match="expected somebody in train with a window of 3 s, got nobody"):
        run.pretrain(store, tmp_path / "other", changes=SHORT, split=tmp_path / "split.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (['labels.map={"no such" = "a"}'], "expected labels, found no usable one: labels that are no class: Rest (5)"),
        (["windows.min_overlap=0"], "windows.min_overlap: Input should be greater than 0"),
        (["labels.maps=1"], "did you mean 'labels.map'?"),
        (['labels.map={"Rest" = ""}'], "labels.map.Rest: String should have at least 1 character"),
    ],
)
def test_labels_that_cannot_be_used(store: Path, tmp_path: Path, changes: list[str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        run.finetune("scratch", store, "events", tmp_path / "run", changes=[*SHORT, *changes])
    assert message in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_a_label_that_no_window_has_is_said_and_is_no_class(store: Path, tmp_path: Path) -> None:
    changes = ['labels.map={"Rest" = "r", "S +1" = "a", "S +2" = "b"}', "windows.window_s=8"]
    with pytest.warns(BothwaysWarning) as said:
        result = run.finetune("scratch", store, "events", tmp_path / "run", changes=[*SHORT, *changes], dry_run=True)
    assert any("no window has the label b, which is no class then" in str(one.message) for one in said)
    assert result["classes"] == ["a", "r"]
    assert all(set(counts) <= {"a", "r"} for part in result["counts"].values() for counts in part.values())


# The shared cases ------------------------------------------------------------------------------------------------


def labels_of(windows: eeg.Windows) -> list[tuple[str, int]]:
    kept = windows.select(windows.label >= 0)
    return [(windows.classes[label], start) for label, start in zip(kept.label.tolist(), kept.start.tolist())]


def test_b17_a_hypnogram_beside_its_recording(shared: Path, tmp_path: Path) -> None:
    cases = shared / "cases"
    for name in ("b17_hypnogram.edf", "b17_psg.edf"):
        shutil.copy(cases / name, tmp_path)
    store = eeg.prepare([cases / "b17_psg.edf"], tmp_path / "store")
    for source in (cases / "b17_hypnogram.edf", tmp_path):
        windows = eeg.cut_windows(store, WindowConfig(window_s=30, stride_s=30), eeg.find_labels(source, store))
        assert windows.counts()["classes"] == {
            "Sleep stage 1": 2, "Sleep stage 2": 1, "Sleep stage W": 1, "(no label)": 1,
        }  # fmt: skip
        assert ("no_class", "labels that are no class: Sleep stage ? (1)") in [
            (note.code, note.message) for note in windows.notes
        ]
    asked = eeg.find_labels(tmp_path, store, LabelConfig(map={"Sleep stage ?": "unscored"}))
    windows = eeg.cut_windows(store, WindowConfig(window_s=30, stride_s=30), asked)
    assert labels_of(windows) == [("unscored", 120 * 200)]
    assert "label_clipped" in [note.code for note in windows.notes]


def test_a_real_hypnogram(shared: Path) -> None:
    path = shared / "data" / "eeg_formats" / "edf_annotations_only" / "SC4001EC-Hypnogram.edf"
    store = a_store(entry("SC4001E0-PSG.edf", 79500))
    mapping = {"Sleep stage W": "W", "Sleep stage R": "R", "Sleep stage [1-4]": "N"}
    labels = eeg.find_labels(path, store, LabelConfig(map=mapping))
    windows = eeg.cut_windows(store, WindowConfig(window_s=30, stride_s=30), labels)
    counts = windows.counts()["classes"]
    assert (counts["R"], counts["N"], counts["W"]) == (125, 528, 1997)


def test_b18_and_b25_events(shared: Path, tmp_path: Path) -> None:
    cases = shared / "cases"
    store = eeg.prepare([cases / "b18_annotation_past_end.edf"], tmp_path / "b18")
    windows = eeg.cut_windows(store, WindowConfig(window_s=1, stride_s=1), eeg.labels_from_events(store))
    assert labels_of(windows) == [("A", 400), ("A", 600), ("B", 1400)]
    codes = {note.code: note.message for note in windows.notes}
    assert codes["events_outside"] == "events lie where no data are in 1 recordings: b18_annotation_past_end.edf"
    assert {"events_shortened", "label_outside"} < codes.keys()
    store = eeg.prepare([cases / "b25_biosemi_status.bdf"], tmp_path / "b25")
    windows = eeg.cut_windows(
        store, WindowConfig(window_s=0.5, stride_s=1), eeg.labels_from_events(store, LabelConfig(duration_s=0.5))
    )
    assert [name for name, _ in labels_of(windows)] == ["1", "2", "255", "256"]


def test_b35_imbalance(shared: Path, tmp_path: Path) -> None:
    eeg.prepare([shared / "cases" / "b35_imbalance"], tmp_path / "store")
    split = {"train": ["01", "02"], "validation": ["04"], "test": ["03"]}
    (tmp_path / "split.json").write_text(json.dumps(split))
    changes = ["windows.window_s=1", "windows.stride_s=1"]
    with pytest.warns(BothwaysWarning, match="the validation subjects have no window of seiz"):
        plan = run.finetune(
            "scratch", tmp_path / "store", "events", tmp_path / "run", changes=changes, split=tmp_path / "split.json",
            dry_run=True,
        )  # fmt: skip
    assert plan["counts"] == {
        "train": {"01": {"bckg": 11, "seiz": 1}, "02": {"bckg": 12, "seiz": 0}},
        "validation": {"04": {"bckg": 12, "seiz": 0}},
        "test": {"03": {"bckg": 11, "seiz": 1}},
    }
    (tmp_path / "split.json").write_text(json.dumps(split | {"train": ["02", "04"], "validation": []}))
    with pytest.raises(UserError, match="no training subject has seiz; choose another split"):
        run.finetune(
            "scratch", tmp_path / "store", "events", tmp_path / "run", changes=changes, split=tmp_path / "split.json"
        )

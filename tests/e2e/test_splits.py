"""`split` and every command that takes one: nobody and nothing is in two parts, under whatever name, format or cut."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bothways import eeg, run
from bothways.errors import UserError
from conftest import Call
from people import CHANNELS, TINY, WINDOWS, Chain, alpha_uv
from recordings import write_brainvision, write_edf, write_fif

SHORT = [*TINY, *WINDOWS, "training.steps=1"]


def people_at(folder: Path, n: int = 5) -> Path:
    """Writes one recording a person, each at a time of its own."""
    for person in range(n):
        write_edf(folder / f"sub-{person}.edf", alpha_uv("open", person), CHANNELS, start=start_of(person))
    return folder


def start_of(person: int) -> bytes:
    return f"0{person + 1}.02.2010.30.00".encode()


def copied(folder: Path) -> list[str]:
    shutil.copy(folder / "sub-0.edf", folder / "sub-9.edf")
    return ["sub-0.edf (train) = sub-9.edf (test)"]


def renamed_in_a_folder(folder: Path) -> list[str]:
    (folder / "sub-9").mkdir()
    shutil.copy(folder / "sub-0.edf", folder / "sub-9" / "night.edf")
    return ["sub-0.edf (train) = sub-9/night.edf (test)"]


def as_fif(folder: Path) -> list[str]:
    write_fif(folder / "sub-9_raw.fif", np.rint(alpha_uv("open", 0)), CHANNELS)
    return ["same signal", "sub-9_raw.fif (test) from", "is sub-0.edf (train) at"]


def as_brainvision(folder: Path) -> list[str]:
    write_brainvision(folder / "sub-9.vhdr", 1.7 * alpha_uv("open", 0), [f"E{name}" for name in CHANNELS])
    return ["same signal", "sub-9.vhdr (test) from", "is sub-0.edf (train) at"]


def cut_out(folder: Path) -> list[str]:
    write_edf(folder / "sub-9.edf", alpha_uv("open", 0)[:, 2000:5000], CHANNELS, start=start_of(8))
    return ["same signal", "sub-9.edf (test) from", "is sub-0.edf (train) at 1"]


def two_overlapping_halves(folder: Path) -> list[str]:
    whole = alpha_uv("open", 0, seconds=60)
    write_edf(folder / "sub-0.edf", whole[:, :8000], CHANNELS, start=start_of(7))
    write_edf(folder / "sub-9.edf", whole[:, 4000:], CHANNELS, start=start_of(8))
    return ["same signal", "sub-9.edf (test) from", "is sub-0.edf (train) at 2"]


def referenced_otherwise(folder: Path) -> list[str]:
    """A cut that begins 5 s later, by its date too, with the mean of the first two channels taken out."""
    data = alpha_uv("open", 0)[:, 1000:]
    write_edf(folder / "sub-9.edf", data - data[:2].mean(0), CHANNELS, start=b"01.02.2010.30.05")
    return ["same time of one signal", "sub-0.edf (train) and sub-9.edf (test) at 2020-02-01 10:30:05"]


def names_that_differ_in_case(folder: Path) -> list[str]:
    write_edf(folder / "sub-a.edf", alpha_uv("open", 8), CHANNELS, start=start_of(7))
    write_edf(folder / "sub-A.edf", alpha_uv("closed", 8), CHANNELS, start=start_of(8))
    return ["sub-A.edf", "sub-a.edf", "one row of it naming both"]


LEAKS: list[Callable[[Path], list[str]]] = [
    copied, renamed_in_a_folder, as_fif, as_brainvision, cut_out, two_overlapping_halves, referenced_otherwise,
    names_that_differ_in_case,
]  # fmt: skip


@pytest.mark.parametrize("leak", LEAKS, ids=lambda leak: leak.__name__)
def test_a_leak_is_an_error_that_names_the_recordings(leak: Any, tmp_path: Path) -> None:
    """In `split`, and in training on a split by hand."""
    data = people_at(tmp_path / "data")
    said = leak(data)
    run.prepare([data], tmp_path / "store")
    train, test = (["a", "0", "1"], ["A", "2"]) if leak is names_that_differ_in_case else (["0", "1"], ["9", "2"])
    split = {"train": train, "test": test}
    (tmp_path / "split.json").write_text(json.dumps(split))
    steps = (
        lambda: run.split(tmp_path / "store", tmp_path / "new.json", test=test, train=train),
        lambda: run.pretrain(tmp_path / "store", tmp_path / "run", changes=SHORT, split=tmp_path / "split.json"),
        lambda: run.split(tmp_path / "store", tmp_path / "folds", leave_one_out=True),
    )
    for step in steps:
        with pytest.raises(UserError) as problem:
            step()
        assert "\n" not in str(problem.value)
        if step is not steps[2]:
            assert all(words in str(problem.value) for words in said), str(problem.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "split.json", "store"]
    # As one person, the same recordings are fine.
    both = "a,A" if leak is names_that_differ_in_case else "0,9"
    (tmp_path / "same.csv").write_text(both)
    made = run.split(tmp_path / "store", tmp_path / "new.json", test=[both[0]], aliases=tmp_path / "same.csv")
    assert made["test"] == sorted(both.split(","))
    assert made["splits"][0]["people"]["test"] == 1
    assert len(run.split(tmp_path / "store", tmp_path / "folds", folds=5, aliases=tmp_path / "same.csv")["splits"]) == 5


def test_at_evaluation_what_was_trained_on_is_looked_for(chain: Chain, tmp_path: Path) -> None:
    """The run is whole; its store has changed since: a tested person's file is now a copy of a trained one."""
    split = chain.results["finetune"]["split"]
    data = shutil.copytree(chain.data, tmp_path / "data")
    trained, tested = split["train"][0], split["test"][0]
    source, target = (f"sub-{who}/sub-{who}_open.edf" for who in (trained, tested))
    shutil.copy(data / source, data / target)
    run.prepare([data], tmp_path / "store")
    run_folder = shutil.copytree(chain.finetuned, tmp_path / "run")
    message = rf"sub-{trained}_open.edf \(train\) = sub-{tested}/sub-{tested}_open.edf \(test\)"
    with pytest.raises(UserError, match=message):
        run.evaluate(run_folder, data=tmp_path / "store")
    # The trained people's own recordings need not be there.
    shutil.rmtree(data / f"sub-{trained}")
    run.prepare([data], tmp_path / "store", overwrite=True)
    with pytest.raises(UserError, match=message):
        run.evaluate(run_folder, data=tmp_path / "store")


def test_a_name_in_two_parts_of_an_edited_file(chain: Chain, tmp_path: Path) -> None:
    run.split(chain.store, tmp_path / "split.json")
    values = json.loads((tmp_path / "split.json").read_text())
    values["test"].append(values["train"][0])
    (tmp_path / "split.json").write_text(json.dumps(values))
    with pytest.raises(UserError, match=rf"split.json: split: .*{values['train'][0]} \(train and test\)"):
        run.pretrain(chain.store, tmp_path / "run", changes=SHORT, split=tmp_path / "split.json")


def test_a_split_of_another_store(chain: Chain, tmp_path: Path) -> None:
    data = people_at(tmp_path / "data", 6)
    run.prepare([data], tmp_path / "store")
    run.split(tmp_path / "store", tmp_path / "split.json")
    with pytest.raises(UserError, match=r"made of another store: .*sub-0/sub-0_closed.edf.*make the split again"):
        run.finetune(
            "scratch", chain.store, chain.labels, tmp_path / "run", changes=SHORT, split=tmp_path / "split.json"
        )
    # Where some are the same, the rest is said.
    write_edf(data / "sub-3.edf", alpha_uv("open", 30), CHANNELS, start=start_of(3))
    run.prepare([data], tmp_path / "store", overwrite=True)
    with pytest.warns(UserWarning, match=r"made of other recordings of 1 people: 3 \(sub-3.edf\)"):
        run.pretrain(tmp_path / "store", tmp_path / "run", changes=SHORT, split=tmp_path / "split.json")


def test_sessions_and_times_that_cannot_be_judged_are_said(tmp_path: Path, bothways: Call) -> None:
    for number, name in enumerate(("S001R01", "S001R02", "S002R01", "S003R01")):
        start = b"01.02.2010.30.00" if number in (0, 2) else start_of(5 + number)
        write_edf(tmp_path / "data" / f"{name}.edf", alpha_uv("open", number), CHANNELS, start=start)
    run.prepare([tmp_path / "data"], tmp_path / "store")
    arguments = ["--data", tmp_path / "store", "--out", tmp_path / "s.json"]
    code, out, err = bothways("eeg", "split", *arguments, "--test", "S001R01", "--validation", "S003R01")
    assert code == 0, err
    looks = [line for line in out.splitlines() if "look like one person's" in line]
    times = [line for line in out.splitlines() if "overlap in time" in line]
    assert "S001R01 (test, S001R01.edf) and S001R02 (train, S001R02.edf)" in looks[0]
    assert "S001R01.edf (test) and S002R01.edf (train)" in times[0]
    assert all(line.startswith("warning: ") for line in looks + times)


def test_b47_splits_by_person_and_by_class(shared: Path, tmp_path: Path, bothways: Call) -> None:
    """Case B47: 8 people, 4 of each class; each fold tests one of both."""
    case = shared / "cases" / "b47_leak"
    run.prepare([case], tmp_path / "store")
    command = ["eeg", "split", "--data", tmp_path / "store", "--out", tmp_path / "folds", "--folds", "4"]
    code, out, err = bothways(*command, "--stratify", case / "labels.csv", "--json")
    assert code == 0, err
    told = json.loads(out)
    assert told["stratified"] is True
    assert sorted(name for one in told["splits"] for name in one["test"]) == [f"0{i}" for i in range(1, 9)]
    assert all(one["classes"]["test"] == {"x": 1, "y": 1} for one in told["splits"])
    written = json.loads((tmp_path / "folds" / "split-1.json").read_text())
    assert written["made"] == {
        "method": "folds", "folds": 4, "validation_fraction": 0.2, "stratify": "labels.csv", "stratify_by": "set",
    }  # fmt: skip
    assert written["content"].keys() == {f"0{i}" for i in range(1, 9)}
    assert json.loads((tmp_path / "folds" / "splits.json").read_text())["splits"] == [
        f"split-{i}.json" for i in (1, 2, 3, 4)
    ]
    shutil.copy(case / "sub-01.edf", tmp_path / "sub-09.edf")
    run.prepare([case, tmp_path / "sub-09.edf"], tmp_path / "more")
    with pytest.raises(UserError, match=r"sub-01.edf \(t.*\) = .*sub-09.edf \(t"):
        run.split(tmp_path / "more", tmp_path / "s.json", test="09", validation_fraction=0.0)


def test_classes_of_people(chain: Chain, tmp_path: Path) -> None:
    groups = ["participant_id\tgroup\tage", *(f"sub-{i}\t{'ill' if i < 2 else 'well'}\t{30 + i}" for i in range(6))]
    (tmp_path / "participants.tsv").write_text("\n".join(groups))
    told = run.split(
        chain.store, tmp_path / "a.json", stratify=tmp_path / "participants.tsv", changes=["labels.column=group"],
        train_fraction=0.5, validation_fraction=0.0,
    )  # fmt: skip
    assert told["splits"][0]["classes"]["test"] == {"ill": 1, "well": 2}
    # Everybody has both states; by time more of one.
    rows = ["file,onset_s,duration_s,label"]
    for i in range(6):
        rows += [f"sub-{i}_open.edf,0,{20 if i < 3 else 5},open", f"sub-{i}_closed.edf,0,10,closed"]
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    told = run.split(chain.store, tmp_path / "b.json", stratify=tmp_path / "labels.csv")
    assert told["stratified"] is False
    assert "everybody is of one class, closed+open: to stratify by it changes nothing" in told["notes"]
    told = run.split(
        chain.store, tmp_path / "c", folds=3, stratify=tmp_path / "labels.csv", stratify_by="majority",
        validation_fraction=0.0,
    )  # fmt: skip
    assert [one["classes"]["test"] for one in told["splits"]] == [{"closed": 1, "open": 1}] * 3
    (tmp_path / "few.csv").write_text("subject,label\n0,rare\n1,often\n2,often\n3,often")
    told = run.split(chain.store, tmp_path / "d.json", stratify=tmp_path / "few.csv", test="1")
    assert any("2 people have no label: 4, 5" in note for note in told["notes"])
    assert any("test has nobody of rare (1 in all)" in note for note in told["notes"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"folds": 3, "test": "1"}, "--folds and --test are different ways"),
        ({"leave_one_out": True, "repeats": 2}, "--leave-one-out and --repeats are different ways"),
        ({"validation": "1"}, "give --test, too"),
        ({"folds": 3, "train_fraction": 0.5}, "--train-fraction has no effect with --folds"),
        ({"folds": 7}, "2 to 6 folds"),
        ({"test": "7"}, r"no subject 7 \(test\)"),
        ({"changes": ["labels.column=a"]}, "give --stratify"),
        ({"stratify": "LABELS", "changes": ["training.steps=1"]}, "settings of labels"),
        ({"stratify": "LABELS", "stratify_by": "mean"}, "expected set or majority"),
        ({"repeats": 0}, "n_splits of at least 1"),
    ],
)
def test_what_does_not_go_together(chain: Chain, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    options = {name: chain.labels if value == "LABELS" else value for name, value in options.items()}
    with pytest.raises(UserError, match=message):
        run.split(chain.store, tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_splits_is_whole_and_replaced_only_when_asked(chain: Chain, tmp_path: Path) -> None:
    run.split(chain.store, tmp_path / "s", repeats=2)
    with pytest.raises(UserError, match="already exists"):
        run.split(chain.store, tmp_path / "s", repeats=3)
    again = run.split(chain.store, tmp_path / "s", repeats=3, overwrite=True)
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == [
        "split-1.json", "split-2.json", "split-3.json", "splits.json",
    ]  # fmt: skip
    assert [one["note"] for one in again["splits"]] == ["1 of 3", "2 of 3", "3 of 3"]
    with pytest.raises(UserError, match="not a folder that bothways wrote"):
        run.split(chain.store, chain.data, folds=2, overwrite=True)
    result = run.finetune(
        "scratch", chain.store, chain.labels, tmp_path / "run", changes=SHORT, split=tmp_path / "s" / "split-2.json"
    )
    assert list(result["split"]["test"]) == again["splits"][1]["test"]


def test_pretraining_on_a_person_under_another_name(chain: Chain, tmp_path: Path, bothways: Call) -> None:
    for name, split in (
        ("pre", {"train": ["0", "1"], "test": ["2"]}),
        ("tune", {"train": ["2", "3"], "validation": ["4"], "test": ["5"], "aliases": [["0", "5"]]}),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps(split))
    run.pretrain(chain.store, tmp_path / "pre", changes=[*SHORT, "validation_fraction=0"], split=tmp_path / "pre.json")
    arguments = ["--data", chain.store, "--labels", chain.labels, "--out", tmp_path / "run"]
    code, out, err = bothways(
        "eeg", "finetune", "--from", tmp_path / "pre", *arguments, "--split", tmp_path / "tune.json",
        *(word for change in (*WINDOWS, "training.steps=1") for word in ("--set", change)),
    )  # fmt: skip
    assert code == 0, err
    assert "overlap of the validation people with pretraining: same corpus" in out.splitlines()
    assert "validation: balanced accuracy " in out
    code, out, err = bothways("eeg", "evaluate", tmp_path / "run")
    assert code == 0, err
    assert "overlap of the test people with pretraining: same subject (2 recordings, such as sub-5" in out
    assert "warning: the weights were trained on 1 person of the test part (5) before" in out
    assert json.loads((tmp_path / "run" / "evaluation.json").read_text())["pretraining_overlap"] == {
        "kind": "same subject", "recordings": ["sub-5/sub-5_closed.edf", "sub-5/sub-5_open.edf"], "subjects": ["5"],
    }  # fmt: skip


def test_pretraining_elsewhere_and_on_a_cut(chain: Chain, tmp_path: Path) -> None:
    """Pretrained on others in another store: none. On a cut of a tested recording under another name: it is seen."""
    data = tmp_path / "data"
    for i in (7, 8):
        write_edf(data / f"sub-{i}.edf", alpha_uv("open", 70 + i), CHANNELS, start=start_of(i))
    run.prepare([data], tmp_path / "other")
    changes = [*SHORT, "validation_fraction=0", "training.batch_size=4"]
    run.pretrain(tmp_path / "other", tmp_path / "pre", changes=changes)
    split = {"train": ["0", "1"], "validation": ["2"], "test": ["3"]}
    (tmp_path / "split.json").write_text(json.dumps(split))
    tuning = {"changes": [*WINDOWS, "training.steps=1", "training.batch_size=4"], "split": tmp_path / "split.json"}
    told = run.finetune(tmp_path / "pre", chain.store, chain.labels, tmp_path / "a", **tuning)
    assert told["pretraining_overlap"] == {"kind": "none", "recordings": [], "subjects": []}
    assert run.evaluate(tmp_path / "a")["pretraining_overlap"] == {"kind": "none", "recordings": [], "subjects": []}

    write_edf(tmp_path / "more" / "sub-9.edf", alpha_uv("open", 3)[:, 1000:5000], CHANNELS, start=start_of(8))
    run.prepare([chain.data, tmp_path / "more"], tmp_path / "store")
    (tmp_path / "nine.json").write_text(json.dumps({"train": ["9"], "test": ["0"]}))
    run.pretrain(tmp_path / "store", tmp_path / "cut", changes=changes, split=tmp_path / "nine.json")
    (tmp_path / "labels.csv").write_text(chain.labels.read_text() + "\nsub-9.edf,open")
    run.finetune(tmp_path / "cut", tmp_path / "store", tmp_path / "labels.csv", tmp_path / "b", **tuning)
    overlap = run.evaluate(tmp_path / "b")["pretraining_overlap"]
    assert overlap["kind"] == "same recording"
    assert [Path(file).name for file in overlap["recordings"]] == ["sub-3_open.edf"]
    manifest = json.loads((tmp_path / "b" / "manifest.json").read_text())
    del manifest["pretraining"]["data"]
    (tmp_path / "b" / "manifest.json").write_text(json.dumps(manifest))
    assert run.evaluate(tmp_path / "b")["pretraining_overlap"] == {"kind": "unknown", "recordings": [], "subjects": []}


def test_windows_go_with_their_recording_whatever_the_labels_say(chain: Chain, tmp_path: Path) -> None:
    """A row that gives half of a recording to another person moves no window: overlapping ones are in one part."""
    rows = ["file,onset_s,duration_s,label,subject", "sub-0_open.edf,0,20,open,0", "sub-0_open.edf,20,10,shut,1"]
    rows += [f"sub-{i}_closed.edf,0,30,shut,{i}" for i in range(6)]
    rows += [f"sub-{i}_open.edf,0,30,open,{i}" for i in range(1, 6)]
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    (tmp_path / "split.json").write_text(json.dumps({"train": ["0", "2"], "test": ["1", "3"]}))
    with pytest.warns(UserWarning, match="sub-0_open.edf of 1, of 0 here"):
        plan = run.finetune(
            "scratch", chain.store, tmp_path / "labels.csv", tmp_path / "run", changes=[*SHORT, "windows.stride_s=1"],
            split=tmp_path / "split.json", dry_run=True,
        )  # fmt: skip
    assert plan["counts"]["test"]["1"] == {"open": 28, "shut": 28}
    assert plan["counts"]["train"]["0"] == {"open": 18, "shut": 28 + 8}


def test_a_store_of_an_earlier_version_is_checked_all_the_same(tmp_path: Path) -> None:
    data = people_at(tmp_path / "data")
    cut_out(data)
    run.prepare([data], tmp_path / "store")
    lines = (tmp_path / "store" / "recordings.json").read_text().splitlines()
    entries = [json.loads(line.rstrip(",")) for line in lines[1:-1]]
    for entry in entries:
        del entry["source"]
    (tmp_path / "store" / "recordings.json").write_text(json.dumps(entries))
    assert eeg.Store.open(tmp_path / "store").recordings[0].source == ""
    with pytest.raises(UserError, match="same signal is in two parts"):
        run.split(tmp_path / "store", tmp_path / "s.json", test="9")

"""Curves over labelled people and over channels, and the probes, on people with plain alpha waves."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser

from bothways import eeg, run
from bothways.config import FinetuneConfig
from bothways.errors import BothwaysWarning, UserError
from bothways.evaluation import Split, repeated_splits
from bothways.report import write_report
from bothways.report.plots import number
from bothways.run.compare import trial_splits
from bothways.run.probe_page import probe_page
from people import TINY, WINDOWS, Chain

Call = Callable[..., tuple[int, str, str]]
SHORT = [*WINDOWS, "training.steps=5", "training.evaluations=1", "train_fraction=0.5"]


def files_of(folder: Path) -> dict[str, int]:
    return {str(file.relative_to(folder)): file.stat().st_mtime_ns for file in sorted(folder.rglob("arms/*/*.json"))}


@pytest.fixture(scope="module")
def labelled(chain: Chain, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Two seeds, the default numbers and arms; treat it as read-only."""
    out = tmp_path_factory.mktemp("curve") / "curve"
    start = chain.pretrained
    return out, run.label_curve(start, chain.store, chain.labels, out, changes=SHORT, seeds=2, rates=(1.0,))


def test_the_larger_number_holds_the_smaller(labelled: tuple[Path, dict[str, Any]]) -> None:
    out, result = labelled
    assert result["people"] == [1, 2, 3]  # half of six train: 1, 2, and all
    for trial in ("split-1-seed-0", "split-2-seed-1"):
        chosen = [set(row["chosen"][trial]) for row in result["sizes"]]
        assert [len(one) for one in chosen] == [1, 2, 3]
        assert chosen[0] < chosen[1] < chosen[2]
        number = trial[6]
        splits = [Split.load(out / f"people-{n}" / "splits" / f"{number}.json") for n in (1, 2, 3)]
        assert [set(split.train) for split in splits] == chosen
        assert len({(split.validation, split.test) for split in splits}) == 1


def test_the_arms_and_their_differences(labelled: tuple[Path, dict[str, Any]]) -> None:
    out, result = labelled
    for row in result["sizes"]:
        assert list(row["arms"]) == ["band_power", "scratch", "frozen_probe", "finetuned"]
        assert row["arms"]["band_power"]["over_people"]["mean"] == 1.0  # alpha is plain, from one person on
        for control in ("scratch", "band_power"):
            difference = row["differences"]["finetuned"][control]
            arms = [row["arms"][name]["over_people"]["mean"] for name in ("finetuned", control)]
            assert difference["mean"] == pytest.approx(arms[0] - arms[1])
            assert difference["n"] == 4
            assert difference["low"] <= difference["mean"] <= difference["high"]
    assert result["above_from"]["finetuned"]["band_power"] is None
    assert "fine-tuned is above band power + logistic regression from no number of labelled people on" in result["said"]
    one = result["sizes"][0]["arms"]["frozen_probe"]["given"]
    assert one.endswith("each window of the one training person left out in turn")
    assert any("labels of 1 validation people" in note for note in result["notes"])
    assert json.loads((out / "curve.json").read_text()) == result
    page = (out / "report.html").read_text()
    assert "same encoder from scratch 1: " in page  # the text beside the plot: each point with its interval
    assert "2: 1 (1 to 1)" in page


def test_a_curve_goes_on(labelled: tuple[Path, dict[str, Any]], chain: Chain, tmp_path: Path) -> None:
    out = tmp_path / "curve"
    shutil.copytree(labelled[0], out)
    lost = out / "people-2" / "arms" / "band_power" / "split-1.json"
    before = files_of(out)
    lost.unlink()
    again = run.label_curve(
        chain.pretrained, chain.store, chain.labels, out, changes=SHORT, seeds=2, rates=(1.0,), people=[2]
    )
    after = files_of(out)
    assert {name for name in before if before[name] != after[name]} == {"people-2/arms/band_power/split-1.json"}
    assert again["people"] == [1, 2, 3]  # what is finished stays in the result
    assert again["sizes"] == labelled[1]["sizes"]
    fewer = run.label_curve(
        chain.pretrained, chain.store, chain.labels, out, changes=SHORT, seeds=1, rates=(1.0,), people=[3],
        arms=["band_power"],
    )  # fmt: skip
    assert fewer["sizes"] == labelled[1]["sizes"]
    assert fewer["above_from"] == labelled[1]["above_from"]
    manifest = out / "people-1" / "manifest.json"
    other = json.loads(manifest.read_text())
    other["depends_on"]["settings"]["windows"]["window_s"] = 2.0
    manifest.write_text(json.dumps(other))
    fewer = run.label_curve(
        chain.pretrained, chain.store, chain.labels, out, changes=SHORT, seeds=2, rates=(1.0,), people=[2]
    )
    assert fewer["people"] == [2, 3]
    assert any("people-1 was made with other settings or data" in note for note in fewer["notes"])
    with pytest.raises(UserError, match="was begun with other settings or data"):
        run.label_curve(chain.pretrained, chain.store, chain.labels, out, changes=SHORT[:-1], seeds=2, people=[2])


def test_numbers_that_cannot_be_had(chain: Chain, tmp_path: Path) -> None:
    here = (chain.pretrained, chain.store, chain.labels, tmp_path / "out")
    with pytest.raises(UserError, match="--people: expected 1 to 3, got 0, 4"):
        run.label_curve(*here, changes=SHORT, people=[0, 4])
    with pytest.raises(UserError, match="labelled_subjects: the curve goes over it"):
        run.label_curve(*here, changes=[*SHORT, "labelled_subjects=2"])
    with pytest.raises(UserError, match="--arm: expected arms of chance"):
        run.label_curve(*here, arms=["svm"])
    with pytest.raises(UserError, match=r"--rate: expected .* above 0, got 0"):
        run.label_curve(*here, rates=(0.0,))
    assert not (tmp_path / "out").exists()


def test_people_with_one_class_each_are_balanced(chain: Chain, tmp_path: Path) -> None:
    """Where nobody has both classes, one person is no number to train on, and of two each has another class."""
    rows = ["file,label", *(f"sub-{n}_{state}.edf,{state}" for n in range(6) for state in [("closed", "open")[n % 2]])]
    labels = tmp_path / "labels.csv"
    labels.write_text("\n".join(rows))
    told: dict[str, Any] = {"changes": [*TINY, *SHORT], "arms": ["band_power"], "seeds": 3}
    result = run.label_curve("scratch", chain.store, labels, tmp_path / "out", **told)
    assert result["people"] == [2, 3]
    assert any(note.startswith("not with 1: in 3 of 3 trials they lack closed, open") for note in result["notes"])
    for chosen in result["sizes"][0]["chosen"].values():
        assert {int(name) % 2 for name in chosen} == {0, 1}
    given = result["sizes"][0]["arms"]["band_power"]["given"]
    assert given.endswith("C of 0.001, 0.01, 0.1, 1, the best on the validation people")


def test_by_validation_people_of_one_class_nothing_but_accuracy_is_chosen(chain: Chain, tmp_path: Path) -> None:
    rows = ["file,label", *(f"sub-{n}_{state}.edf,{state}" for n in range(6) for state in [("closed", "open")[n % 2]])]
    labels = tmp_path / "labels.csv"
    labels.write_text("\n".join(rows))
    with pytest.warns(BothwaysWarning):
        plan = run.finetune("scratch", chain.store, labels, tmp_path / "out", changes=[*TINY, *WINDOWS], dry_run=True)
    assert len(plan["split"]["validation"]) == 1
    said = [note for note in plan["notes"] if note.startswith("the validation subjects have no window of ")]
    assert [note.endswith(": of one class, so step and rate are chosen by accuracy") for note in said] == [True]


def test_only_people_with_windows_are_drawn() -> None:
    n = np.arange(6)
    subjects = np.array(["a", "a", "b", "b", "e", "f"])
    windows = eeg.Windows(n, n, n % 2, subjects, n, n, 10, ["x", "y"])
    split = Split(("a", "b", "c"), ("e",), ("f",))
    assert split.train == ("a", "b", "c")
    settings = FinetuneConfig(labelled_subjects=2)
    files = "split.json"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Split, "load", classmethod(lambda *_: split))
        drawn = trial_splits(windows, settings, [files], 3)
    assert [one.train for one in drawn] == [("a", "b")] * 3


def test_splits_are_drawn_by_the_classes_that_people_have() -> None:
    def of(labels: list[list[int]]) -> eeg.Windows:
        whose, label = zip(*((str(person), c) for person, own in enumerate(labels) for c in own))
        n = np.arange(len(label))
        return eeg.Windows(n, n, np.array(label), np.array(whose), n, n, 10, ["x", "y"])

    settings, diagnosis = FinetuneConfig(), of([[i % 2] for i in range(10)])
    for split in trial_splits(diagnosis, settings, [], 20):  # 6 people, 2 and 2
        for part in (split.test, split.validation):
            assert {int(name) % 2 for name in part} == {0, 1}
    everything = of([[0, 1]] * 10)
    plain = repeated_splits([str(i) for i in range(10)], 4, seed=0)
    assert trial_splits(everything, settings, [], 4) == plain  # nothing to stratify by, so seeds give what they gave


def test_the_curve_by_the_command_line(chain: Chain, tmp_path: Path, bothways: Call) -> None:
    places = ["--from", "scratch", "--data", chain.store, "--labels", chain.labels, "--out", tmp_path / "out"]
    words = [w for one in [*TINY, *SHORT] for w in ("--set", one)]
    code, out, err = bothways("eeg", "curve", "labels", *places, *words, "--arm", "band_power", "--people", "2")
    assert code == 0, err
    assert "band power + logistic regression" in out
    assert "overlap of the tested people with pretraining: none" in out
    assert f"written: {tmp_path / 'out'}/report.html" in out
    assert "label curve: 2 labelled people, 1 of 1 numbers" in err
    code, out, err = bothways(
        "eeg", "curve", "labels", *places, *words, "--arm", "band_power", "--people", "3", "--seeds", "3"
    )
    assert code == 0, err
    assert "note: not as many trials at every number of people: 5 with 2, 3 with 3" in out


def test_fewer_channels(chain: Chain, tmp_path: Path) -> None:
    out = tmp_path / "channels"
    result = run.channel_curve(chain.finetuned, out)
    rows = {row["name"]: row for row in result["montages"]}
    assert {name: row["ch_names"] for name, row in rows.items()} == {
        "all": ["Fp1", "Cz", "O1", "O2"], "2": ["O1", "O2"], "bipolar": ["Fp1-O1"],
    }  # fmt: skip
    assert result["refused"].keys() == {"19", "8", "4"}
    assert result["refused"]["8"] == "of the 4 channels that the recordings share 4 are of the 10-20 system: done"
    assert (result["n"], result["thing"]) == (20, "window")
    evaluated = chain.results["evaluate"]["model"]["balanced_accuracy"]
    assert rows["all"]["balanced_accuracy"] == evaluated
    assert rows["all"]["difference_to_all"] is None
    assert rows["2"]["difference_to_all"]["mean"] == pytest.approx(
        rows["2"]["over_people"]["mean"] - rows["all"]["over_people"]["mean"]
    )
    assert json.loads((out / "channels.json").read_text()) == result
    assert "a montage never seen bipolar: " in (out / "report.html").read_text()

    kept = json.loads((out / "montages" / "2.json").read_text()) | {"balanced_accuracy": 0.123}
    (out / "montages" / "2.json").write_text(json.dumps(kept))  # what is there is not done again
    again = run.channel_curve(chain.finetuned, out)
    assert next(row for row in again["montages"] if row["name"] == "2")["balanced_accuracy"] == 0.123
    with pytest.raises(UserError, match="begun by another command or with another run, part or data"):
        run.channel_curve(chain.finetuned, out, part="validation")


def test_hidden_channels_are_not_read(chain: Chain) -> None:
    """What lies in them changes no answer, in both forms of tokens."""
    from bothways.run.tested import open_tested

    here = open_tested(chain.finetuned)
    shown = eeg.showing(here.store, ["O1", "O2"])
    answers = here.predict(here.sources(shown), here.tested)[1]
    other = eeg.in_other_unit(shown, 1.0)
    for entry in other.recordings:
        entry.scale_uv[:2] *= 7  # Fp1 and Cz
    assert np.array_equal(here.predict(here.sources(other), here.tested)[1], answers)
    for entry in other.recordings:
        entry.scale_uv[2:] *= 7
    assert not np.array_equal(here.predict(here.sources(other), here.tested)[1], answers)


def test_tokens_of_all_channels(chain: Chain, tmp_path: Path) -> None:
    changes = [*TINY, *WINDOWS, "training.steps=5", 'patches.tokens="all_channels"']
    run.finetune("scratch", chain.store, chain.labels, tmp_path / "run", changes=changes)
    result = run.channel_curve(tmp_path / "run", tmp_path / "out")
    assert [row["name"] for row in result["montages"]] == ["all", "2"]
    assert result["refused"]["bipolar"].startswith("the model's tokens hold 4 channels by their names")


def test_probes(chain: Chain, tmp_path: Path, bothways: Call) -> None:
    copy = tmp_path / "run"
    shutil.copytree(chain.finetuned, copy)
    page = tmp_path / "probes.html"
    code, out, err = bothways("eeg", "probe", copy, "--steps", 15, "--shuffles", 4, "--json", "--html", page)
    assert code == 0, err
    result = json.loads(out)
    assert json.loads((copy / "probe.json").read_text()) == result
    identity = result["identity"]
    assert (identity["people"], identity["n"], identity["chance"]) == (6, 60, pytest.approx(1 / 6))
    assert identity["accuracy"] < 0.5  # these people differ in nothing but the noise
    shuffled = result["shuffled"]
    assert shuffled["over_shuffles"]["n"] == 4
    assert shuffled["at_chance"] is True
    assert shuffled["as_labelled"] > 0.9
    assert shuffled["over_seeds"]["n"] == 4  # the same seeds as the deals
    assert shuffled["over_seeds"]["mean"] == shuffled["as_labelled"]
    rows = {row["what"]: row for row in result["amplitude"]}
    assert {what: (row["suspected"], row["refused"]) for what, row in rows.items()} == {
        "×10": (0, 0), "µV read as V": (2, 2), "V read as µV": (2, 2),
    }  # fmt: skip
    assert "÷1000000 would make" in rows["µV read as V"]["said"]
    assert rows["×10"]["as_it_is"] == chain.results["evaluate"]["model"]["balanced_accuracy"]
    assert rows["µV read as V"]["changed"] == 0.5  # all windows look alike then
    html = page.read_text()
    assert (
        f"mean of 4 deals shuffled: {number(shuffled['over_shuffles']['mean'])} (" in html
    )  # beside the plot, in words
    assert "Its interval holds chance, as it must." in html
    assert "÷1000000 would make" in html


@pytest.mark.parametrize("width", [360, 1440])
def test_the_page_of_probes_fits(browser: Browser, tmp_path: Path, width: int) -> None:
    above = {"mean": 0.1, "low": 0.05, "high": 0.2, "p": 0.03}
    row = {
        "what": "<b>×10", "changed": 0.5, "balanced_accuracy": None, "as_it_is": 0.75, "suspected": 1, "refused": 0,
        "recordings": 2, "said": "<i>odd",
    }  # fmt: skip
    over = {"mean": 0.9, "low": 0.8, "high": 1.0, "n": 3}
    result = {
        "run": "<script>x", "identity": {"people": 4, "n": 40, "accuracy": 0.35, "chance": 0.25, "above_chance": above},
        "shuffled": {"steps": 3, "chance": 0.5, "over_shuffles": over, "at_chance": False, "as_labelled": 0.95},
        "amplitude": [row], "notes": ["<u>note"],
    }  # fmt: skip
    write_report(probe_page(result), tmp_path / "page.html")
    said: list[str] = []
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda problem: said.append(str(problem)))
    page.goto((tmp_path / "page.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator("h1").inner_text() == "Probes: <script>x"
    assert "does not hold chance" in page.locator("main").inner_text()
    label = page.locator(".curve").first.get_attribute("aria-label") or ""
    assert "4 people: 0.35 (0.3 to 0.45); chance 0.25" in label
    page.close()
    assert said == []


def test_a_pretrained_run_has_no_classes_to_probe(chain: Chain, tmp_path: Path, bothways: Call) -> None:
    copy = tmp_path / "run"
    shutil.copytree(chain.pretrained, copy)
    code, out, err = bothways("eeg", "probe", copy)
    assert code == 0, err
    assert "identity: " in out
    assert "note: no shuffled labels, no amplitude: a pretrained run has no classes to tell apart" in out


def test_people_who_are_known_are_recognised(chain: Chain, tmp_path: Path) -> None:
    """A person's own rhythm, the same in both halves, is found by the embedding of the untrained encoder too."""
    from people import CHANNELS, GAIN_UV
    from recordings import write_edf

    for person in range(4):
        seconds = np.arange(30 * 200) / 200
        noise = np.random.default_rng(person).normal(size=(4, len(seconds)))
        own = 30 * np.sin(2 * np.pi * (6 + 6 * person) * seconds)
        data_uv = np.rint((10 * noise + own) / GAIN_UV) * GAIN_UV
        write_edf(tmp_path / "data" / f"sub-{person}" / f"sub-{person}_a.edf", data_uv, CHANNELS, sfreq_hz=200)
    run.prepare([tmp_path / "data"], tmp_path / "store")
    copy = tmp_path / "run"
    shutil.copytree(chain.pretrained, copy)
    result = run.probe(copy, data=tmp_path / "store")
    assert result["identity"]["accuracy"] == 1.0
    assert result["identity"]["above_chance"]["low"] == 0.75

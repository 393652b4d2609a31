"""`compare`: all arms on the same people, seeds, budget; gone on with, refused, interrupted; an arm that fails."""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bothways import run
from bothways.config import FinetuneConfig, load_config
from bothways.errors import Interrupted, UserError
from bothways.evaluation import Split
from bothways.run import arms
from people import TINY, WINDOWS, Chain, write_people

Call = Callable[..., tuple[int, str, str]]
SHORT = [*WINDOWS, "training.steps=20", "train_fraction=0.5"]
QUICK = ("chance", "majority", "band_power")


def comparing(chain: Chain, out: Path, *more: str) -> list[str]:
    places = ["--from", str(chain.pretrained), "--data", str(chain.store), "--labels", str(chain.labels)]
    return ["eeg", "compare", *places, "--out", str(out), *(w for one in SHORT for w in ("--set", one)), *more]


@pytest.fixture(scope="module")
def compared(chain: Chain, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """All arms, two seeds; treat it as read-only."""
    out = tmp_path_factory.mktemp("compare") / "compared"
    result = run.compare(chain.pretrained, chain.store, chain.labels, out, changes=SHORT, seeds=2, rates=(1.0,))
    return out, result


def test_all_arms_on_the_same_people(compared: tuple[Path, dict[str, Any]], chain: Chain) -> None:
    out, result = compared
    assert list(result["arms"]) == list(arms.ARMS)
    assert result["failed"] == {}
    assert result["classes"] == ["closed", "open"]
    assert [trial["name"] for trial in result["trials"]] == ["split-1-seed-0", "split-2-seed-1"]
    tested = [Split.load(out / "splits" / f"{n}.json").test for n in (1, 2)]
    assert set(tested[0]).isdisjoint(tested[1])
    for name, arm in result["arms"].items():
        assert sorted(arm["people"]) == sorted(tested[0] + tested[1]), name
        assert all(0 <= value <= 1 for value in arm["trials"].values())
    chance, majority = result["arms"]["chance"], result["arms"]["majority"]
    assert set(chance["people"].values()) == set(majority["people"].values()) == {0.5}
    guess = json.loads((out / "arms/chance/split-1.json").read_text())
    assert (guess["balanced_accuracy"], guess["macro_f1"], guess["confusion"]) == (0.5, None, None)  # not class 0's
    for name in ("band_power", "tangent_space"):  # alpha waves with the eyes closed are plain to see
        assert result["arms"][name]["over_people"]["mean"] == 1.0
    assert result["strongest_control"] == "band_power"
    assert result["differences"].keys() == {"frozen_probe", "frozen_attention", "finetuned"}
    assert {one["kind"] for one in result["pretraining_overlap"]} == {"same recording"}
    assert json.loads((out / "compare.json").read_text()) == result


def test_what_each_arm_was_given(compared: tuple[Path, dict[str, Any]], chain: Chain) -> None:
    out, result = compared
    told = result["arms"]
    body = chain.results["pretrain"]["parameters"]["encoder"] + chain.results["pretrain"]["parameters"]["embedding"]
    sizes = {name: (arm["trained"], arm["encoder"]) for name, arm in told.items()}
    assert sizes["scratch"] == sizes["finetuned"] == (body + 2 * 33, body)
    assert sizes["frozen_attention"] == (2 * 33 + 32, body)  # the query besides
    assert sizes["frozen_probe"] == (2 * 33, body)
    assert sizes["band_power"] == (2 * (4 * 7 + 1), None)  # 4 channels, 7 bands
    assert sizes["tangent_space"] == (2 * (4 * 10 + 1), None)  # 4 bands, 4 · 5 / 2 numbers
    assert sizes["chance"] == (0, None)
    budget = "20 steps of 16 windows; learning rate 0.002"
    assert all(told[name]["given"].startswith(budget) for name in ("cnn", "scratch", "frozen_attention", "finetuned"))
    settings = load_config(FinetuneConfig, out / "runs/frozen_attention/split-1-seed-0-rate-1/recipe.toml")
    assert (settings.pool, settings.freeze_encoder, settings.training.seed) == ("attention", True, 0)
    assert not list((out / "runs").glob("*/*/checkpoints"))  # the models stay, what going on needs does not


def test_the_cnn_learns_what_there_is(chain: Chain, tmp_path: Path) -> None:
    told = {"changes": [*TINY, *WINDOWS, "training.steps=150"], "arms": ["cnn"], "seeds": 1, "rates": (1.0,)}
    result = run.compare("scratch", chain.store, chain.labels, tmp_path / "out", **told)
    assert result["arms"]["cnn"]["trials"]["split-1-seed-0"] > 0.85
    # At 128 Hz: 8 filters of 64 samples, 16 over 4 channels, 16 of 16, 16 over 16, norms, a head on 16 · 12 features.
    assert result["arms"]["cnn"]["trained"] == 8 * 64 + 16 * 4 + 16 * 16 + 16 * 16 + 80 + 2 * (16 * 12 + 1)


def test_a_lower_rate_keeps_what_it_can_hold() -> None:
    def wave(hz: float, sfreq_hz: int) -> torch.Tensor:
        return torch.sin(2 * torch.pi * hz * torch.arange(sfreq_hz) / sfreq_hz)[None, None]

    torch.testing.assert_close(arms.at_rate(wave(10, 200), 128), wave(10, 128), rtol=0, atol=1e-5)
    assert arms.at_rate(wave(80, 200), 128).abs().max() < 1e-4
    assert torch.equal(arms.at_rate(wave(80, 200), 200), wave(80, 200))


def test_people_are_seen_from_their_rest_where_the_encoder_is(chain: Chain, tmp_path: Path) -> None:
    run.prepare([chain.data], tmp_path / "store", baseline=chain.baseline)
    settings = [*TINY, *WINDOWS, "patches.baseline=true"]
    arms_ = ("band_power", "tangent_space")
    told = {"changes": settings, "arms": arms_, "seeds": 1, "rates": (1.0,)}
    result = run.compare("scratch", tmp_path / "store", chain.labels, tmp_path / "out", **told)
    space = result["arms"]["tangent_space"]
    assert space["given"] == "covariances in 4 bands, seen from each person's rest; C 0.01"
    assert space["over_people"]["mean"] == 1.0


def test_frozen_stays_frozen(compared: tuple[Path, dict[str, Any]], chain: Chain) -> None:
    from bothways import load

    before = load(chain.pretrained).state_dict()
    for arm, same in (("frozen_attention", True), ("finetuned", False)):
        after = load(compared[0] / f"runs/{arm}/split-1-seed-0-rate-1").state_dict()
        layers = [name for name in before if name.startswith("encoder.layers.0") and name.endswith("weight")]
        assert all(bool((before[name] == after[name]).all()) == same for name in layers)


def test_the_page_and_the_command_line(compared: tuple[Path, dict[str, Any]], chain: Chain, bothways: Call) -> None:
    out, result = compared
    page = (out / "report.html").read_text(encoding="utf-8")
    for arm in result["arms"].values():
        assert arm["title"] in page
    assert "The strongest control on these people: band power + logistic regression" in page
    status, printed, said = bothways(*comparing(chain, out, "--seeds", "2", "--rate", "1", "--json"))
    assert (status, said) == (0, "")  # nothing was done again
    assert json.loads(printed) == result
    status, printed, _ = bothways(*comparing(chain, out, "--seeds", "2", "--rate", "1"))
    assert status == 0
    for words in ("tangent space + logistic regression", "2 trials, 2 splits", "same recording", "report.html"):
        assert words in printed


def test_other_settings_are_refused_and_more_seeds_are_not(chain: Chain, tmp_path: Path, bothways: Call) -> None:
    out = tmp_path / "compared"
    quick = [word for name in QUICK for word in ("--arm", name)] + ["--rate", "1"]
    status, _, said = bothways(*comparing(chain, out, *quick, "--seeds", "1"))
    assert status == 0
    assert said.count("now ") == 3
    status, _, said = bothways(*comparing(chain, out, *quick, "--seeds", "1", "--set", "windows.window_s=2"))
    assert status == 2
    assert "was begun with other settings or data (windows.window_s: 3.0, now 2.0" in said
    assert len(list((out / "arms").rglob("*.json"))) == 3
    status, _, said = bothways(*comparing(chain, out, *quick, "--seeds", "3", "--set", "training.keep=9"))
    assert status == 0
    assert "compare: 0/6 done" in said
    assert len(json.loads((out / "compare.json").read_text())["arms"]["band_power"]["trials"]) == 3
    fuller = json.loads((out / "compare.json").read_text())
    status, printed, said = bothways(*comparing(chain, out, "--arm", "chance", "--rate", "1", "--seeds", "1", "--json"))
    assert (status, said) == (0, "")
    assert json.loads(printed) == fuller  # what is finished stays in the result
    status, printed, _ = bothways(
        *comparing(chain, out, "--arm", "tangent_space", "--rate", "1", "--seeds", "2", "--json")
    )
    result = json.loads(printed)
    assert list(result["arms"]) == [*QUICK, "tangent_space"]
    assert {name: arm["over_trials"]["n"] for name, arm in result["arms"].items()} == {
        "chance": 3, "majority": 3, "band_power": 3, "tangent_space": 2,
    }  # fmt: skip
    (note,) = [note for note in result["notes"] if "trials" in note]
    assert note.startswith("tangent space + logistic regression has 2 of 3 trials")
    assert note.endswith("--arm tangent_space --seeds 3 adds what it lacks")
    assert "Arms that lack a trial are in the table alone" in (out / "report.html").read_text(encoding="utf-8")
    result = run.compare(
        "scratch", chain.store, chain.labels, out, changes=[*SHORT, *TINY], arms=QUICK, seeds=1, overwrite=True
    )
    assert len(list((out / "arms").rglob("*.json"))) == 3
    assert result["differences"] == {}


def test_what_a_training_warns_of_is_a_note_once_and_stays(chain: Chain, tmp_path: Path) -> None:
    told = {"changes": [*SHORT, "training.steps=2", "training.batch_size=200"], "arms": ["cnn", "finetuned"]}
    notes = [
        run.compare(chain.pretrained, chain.store, chain.labels, tmp_path / "out", **told, seeds=2, rates=(1.0,))[
            "notes"
        ]
        for _ in range(2)
    ]
    assert notes[0] == notes[1]
    assert [note for note in notes[0] if "200 for 60 windows" in note] != []
    assert len(notes[0]) == len(set(notes[0]))


def test_an_interrupt_keeps_what_is_done(chain: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(trial: arms.Trial) -> arms.Scored:
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("the signal comes first")

    told = {"changes": SHORT, "arms": QUICK, "seeds": 2, "rates": (1.0,)}
    with monkeypatch.context() as patched:
        patched.setitem(arms.ARMS, "band_power", replace(arms.ARMS["band_power"], score=stop))
        with pytest.raises(Interrupted, match="4 of 6 results are kept; to go on, run the same command again") as ended:
            run.compare(chain.pretrained, chain.store, chain.labels, tmp_path / "out", **told)
    assert ended.value.status == 130
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "out/arms").rglob("*.json")}
    assert len(kept) == 4
    result = run.compare(chain.pretrained, chain.store, chain.labels, tmp_path / "out", **told)
    assert list(result["arms"]) == list(QUICK)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_a_training_that_is_stopped_goes_on(chain: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal within a training saves it; the comparison is then as one that was never stopped."""
    told = {"changes": [*SHORT, "training.evaluations=2"], "arms": ["finetuned"], "seeds": 1, "rates": (1.0,)}
    whole = run.compare(chain.pretrained, chain.store, chain.labels, tmp_path / "whole", **told)
    measure, left = arms.class_probabilities, [2]

    def stopping(*given: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGINT)
        return measure(*given)

    with monkeypatch.context() as patched:
        patched.setattr(sys.modules["bothways.run.tasks"], "class_probabilities", stopping)
        with pytest.raises(Interrupted, match="0 of 1 results are kept"):
            run.compare(chain.pretrained, chain.store, chain.labels, tmp_path / "out", **told)
    assert list((tmp_path / "out/runs/finetuned").glob("*/checkpoints/step-*"))
    result = run.compare(chain.pretrained, chain.store, chain.labels, tmp_path / "out", **told)
    assert result["arms"]["finetuned"]["trials"] == whole["arms"]["finetuned"]["trials"]


def test_an_arm_that_cannot_be_had_is_a_note(tmp_path: Path, bothways: Call) -> None:
    """One channel has no covariance with another; the other arms go on."""
    data = write_people(tmp_path / "data", n=4, channels=[("Cz",)])
    run.prepare([data], tmp_path / "store")
    few = [word for name in (*QUICK, "tangent_space") for word in ("--arm", name)]
    status, printed, _ = bothways(
        "eeg", "compare", "--from", "scratch", "--data", tmp_path / "store", "--labels", tmp_path / "labels.csv",
        "--out", tmp_path / "out", "--seeds", 2, "--rate", 1, *few, "--set", "windows.window_s=3", "--json",
    )  # fmt: skip
    assert status == 0
    result = json.loads(printed)
    assert list(result["arms"]) == list(QUICK)
    assert result["failed"]["tangent_space"].keys() == {"split-1-seed-0", "split-2-seed-1"}
    (note,) = [note for note in result["notes"] if "tangent space" in note]
    assert note.startswith("no tangent space + logistic regression in 2 of 2 trials: covariance: expected 2 channels")
    assert (tmp_path / "out/report.html").is_file()


def test_split_files_take_turns_and_several_rates_are_tried(chain: Chain, tmp_path: Path) -> None:
    for n, test in enumerate((("0",), ("1",)), 1):
        Split(("2", "3"), ("4", "5"), test).save(tmp_path / f"{n}.json")
    result = run.compare(
        [chain.pretrained, chain.finetuned], chain.store, chain.labels, tmp_path / "out", changes=WINDOWS,
        splits=[tmp_path / "1.json", tmp_path / "2.json"], seeds=3, rates=(0.5, 1.0),
        arms=("band_power", "frozen_probe"),
    )  # fmt: skip
    assert [trial["name"] for trial in result["trials"]] == ["split-1-seed-0", "split-2-seed-1", "split-1-seed-2"]
    kept = sorted(path.name for path in (tmp_path / "out/arms/band_power").iterdir())
    assert kept == ["split-1.json", "split-2.json"]
    assert sorted(result["arms"]["frozen_probe"]["people"]) == ["0", "1"]
    over = result["arms"]["band_power"]["over_trials"]  # three trials, but two fits
    assert (over["n"], over["low"], result["differences"]["frozen_probe"]["band_power"]["over_trials"]["n"]) == (
        2, None, 2,
    )  # fmt: skip
    fewer = run.compare(
        chain.pretrained, chain.store, chain.labels, tmp_path / "alone", changes=WINDOWS,
        splits=[tmp_path / "1.json", tmp_path / "2.json"], seeds=2, arms=["chance"],
    )  # fmt: skip
    assert fewer["splits"] == 2
    fewer = run.compare(
        chain.pretrained, chain.store, chain.labels, tmp_path / "alone", changes=WINDOWS,
        splits=[tmp_path / "1.json"], seeds=1, arms=["chance"],
    )  # fmt: skip
    assert (fewer["splits"], fewer["seeds"]) == (1, 1)
    assert any(note.startswith("1 finished results in ") for note in fewer["notes"])
    kinds = [one["kind"] for one in result["pretraining_overlap"]]
    assert kinds == ["same recording", "same recording, with its labels"]
    assert "C of 0.001, 0.01, 0.1, 1, the best on the validation people" in result["arms"]["band_power"]["given"]


def test_the_best_rate_is_kept(chain: Chain, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run.compare(
        chain.pretrained, chain.store, chain.labels, out, changes=[*SHORT, "training.steps=8"], seeds=1,
        rates=(1e-6, 2.0), arms=["finetuned"],
    )  # fmt: skip
    assert [path.name for path in (out / "runs/finetuned").iterdir()] == ["split-1-seed-0-rate-2"]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an arm": ({"arms": ["cn"]}, "--arm: expected arms of chance, majority, .* got cn, did you mean cnn"),
    "an arm like another": ({"arms": ["chance", "bandpower"]}, "got bandpower, did you mean band_power"),
    "a rate": ({"rates": (1.0, 0.0)}, "^--rate: expected multiples of .*, above 0, got 1, 0$"),
    "no rate": ({"rates": ()}, "above 0, got none"),
    "no run": ({"start": []}, "--from: expected one run, .* got 0"),
    "runs and splits": ({"start": ["a", "b"]}, "one for each of the 0 split files, got 2"),
    "a batch size": ({"changes": ["training.batch_size=auto"]}, "expected a number, got auto"),
    "no seed": ({"seeds": 0}, "^--seeds: expected 1 or more, got 0$"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_leaves_nothing(case: str, chain: Chain, tmp_path: Path) -> None:
    given, message = REFUSED[case]
    start = given.pop("start", chain.pretrained) if "start" in given else chain.pretrained
    with pytest.raises(UserError, match=message):
        run.compare(start, chain.store, chain.labels, tmp_path / "out", **given)
    assert not (tmp_path / "out").exists()


def test_a_finished_comparison_needs_no_trainings(compared: tuple[Path, dict[str, Any]], chain: Chain) -> None:
    """What is kept is enough for the result, and it is what the trained models say."""
    out, result = compared
    evaluated = run.evaluate(out / "runs/finetuned/split-1-seed-0-rate-1")
    assert evaluated["model"]["balanced_accuracy"] == result["arms"]["finetuned"]["trials"]["split-1-seed-0"]
    probe = evaluated["controls"]["frozen_probe"]["balanced_accuracy"]
    assert probe == pytest.approx(result["arms"]["frozen_probe"]["trials"]["split-1-seed-0"])
    power = evaluated["controls"]["band_power"]["balanced_accuracy"]
    assert np.isclose(power, result["arms"]["band_power"]["trials"]["split-1-seed-0"])


def test_a_folder_of_something_else_is_left_alone(chain: Chain, tmp_path: Path) -> None:
    shutil.copytree(chain.finetuned, tmp_path / "run")
    with pytest.raises(UserError, match="expected a folder of compare"):
        run.compare(chain.pretrained, chain.store, chain.labels, tmp_path / "run", changes=SHORT, arms=QUICK)
    assert (tmp_path / "run/model.safetensors").is_file()

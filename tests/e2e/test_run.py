"""The commands as Python functions, end to end on small recordings."""

import csv
import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from bothways import eeg, run
from bothways.config import FinetuneConfig, PatchConfig, WindowConfig
from bothways.errors import BothwaysWarning, UserError
from bothways.training import load_run, load_tensors, save_run
from models import FORMS
from people import CHANNELS, TINY, WINDOWS, Chain, alpha_uv, write_people
from recordings import noise_uv, write_edf, write_fif

SHORT = [*TINY, *WINDOWS, "training.steps=2"]
FINE = [*WINDOWS, "training.steps=2"]
LEARN = [*TINY, *WINDOWS, "training.steps=40"]


def test_what_each_step_says(chain: Chain) -> None:
    r = chain.results
    totals = r["check"]["totals"]
    assert (totals["recordings"], totals["subjects"], totals["duration_s"], totals["ok"]) == (12, 6, 360.0, 12)
    assert r["check"]["exit_status"] == 0
    assert (r["prepare"]["recordings"], r["prepare"]["subjects"], r["prepare"]["duration_s"]) == (12, 6, 360.0)
    assert r["prepare"]["skipped"] == []
    assert r["pretrain"]["windows"] == 100  # one of six people is kept out to measure the error on
    assert (r["pretrain"]["subjects"], len(r["pretrain"]["validation_subjects"])) == (5, 1)
    assert set(r["pretrain"]["reconstruction"]["spectrum"]) == {"delta", "theta", "alpha", "beta", "gamma"}
    assert r["finetune"]["classes"] == ["closed", "open"]
    assert r["finetune"]["windows"] == {
        "train": {"closed": 40, "open": 40},
        "validation": {"closed": 10, "open": 10},
        "test": {"closed": 10, "open": 10},
    }
    json.dumps(r, allow_nan=False)


def test_people_not_windows_are_divided(chain: Chain) -> None:
    split = chain.results["finetune"]["split"]
    people = [set(split[part]) for part in ("train", "validation", "test")]
    assert set.union(*people) == {str(i) for i in range(6)}
    assert sum(map(len, people)) == 6
    manifest = json.loads((chain.finetuned / "manifest.json").read_text())
    assert set(manifest["data"]["subjects"]) == people[0]
    assert {entry["subject"] for entry in manifest["data"]["recordings"]} == people[0]


def test_nothing_of_the_tested_people_reaches_the_weights(chain: Chain, tmp_path: Path) -> None:
    """Other labels and other signals of theirs give the same weights, bit for bit."""
    split = {"train": ["0", "1", "2", "3"], "test": ["4", "5"]}
    (tmp_path / "split.json").write_text(json.dumps(split))
    data = shutil.copytree(chain.data, tmp_path / "data")
    for person in split["test"]:
        for state in ("open", "closed"):
            write_edf(data / f"sub-{person}" / f"sub-{person}_{state}.edf", alpha_uv(state, 77), CHANNELS)
    run.prepare([data], tmp_path / "store")
    swapped = [row.replace("closed", "*").replace("open", "closed").replace("*", "open") if row[4:5] in "45" else row
               for row in chain.labels.read_text().splitlines()]  # fmt: skip
    (tmp_path / "labels.csv").write_text("\n".join(swapped))
    weights = []
    for name, store, labels in (
        ("one", chain.store, chain.labels),
        ("other", tmp_path / "store", tmp_path / "labels.csv"),
    ):
        pretrained, finetuned = tmp_path / f"pre-{name}", tmp_path / f"fine-{name}"
        run.pretrain(store, pretrained, changes=SHORT, split=tmp_path / "split.json")
        run.finetune(pretrained, store, labels, finetuned, changes=FINE, split=tmp_path / "split.json")
        weights.append([*load_tensors(pretrained).values(), *load_tensors(finetuned).values()])
    assert all(torch.equal(one, other) for one, other in zip(*weights))


def test_a_difference_is_learned(chain: Chain) -> None:
    """Twenty windows of one unseen person; by chance, 0.85 has a probability of 0.001."""
    result = chain.results["evaluate"]
    assert result["model"]["n"] == 20
    assert result["model"]["support"] == {"closed": 10, "open": 10}
    assert result["model"]["balanced_accuracy"] >= 0.85
    assert result["controls"]["chance"]["balanced_accuracy"] == 0.5
    assert result["controls"]["majority"]["balanced_accuracy"] == 0.5
    assert result["controls"]["band_power"]["balanced_accuracy"] >= 0.85
    assert "frozen_probe" in result["controls"]
    assert json.loads((chain.finetuned / "evaluation.json").read_text()) == result


def test_pretraining_brings_the_error_down(chain: Chain) -> None:
    lines = (chain.pretrained / "metrics.jsonl").read_text().splitlines()
    errors = [json.loads(line)["evaluation"]["reconstruction"]["spectrum"] for line in lines if "evaluation" in line]
    assert len(errors) == 4
    assert errors[-1]["alpha"]["model"] < errors[0]["alpha"]["model"]
    assert all(band["zero"] == 1.0 for error in errors for band in error.values())


def test_overlap_with_pretraining_is_said(chain: Chain, tmp_path: Path) -> None:
    overlap = chain.results["evaluate"]["pretraining_overlap"]
    seen = set(json.loads((chain.pretrained / "manifest.json").read_text())["data"]["subjects"])
    tested = set(chain.results["finetune"]["split"]["test"])
    assert overlap["kind"] == ("same recording" if seen & tested else "same corpus")
    split = {"train": ["0", "1", "2"], "validation": ["3"], "test": ["4", "5"]}
    (tmp_path / "split.json").write_text(json.dumps(split))
    result = run.pretrain(chain.store, tmp_path / "pre", changes=SHORT, split=tmp_path / "split.json")
    assert result["validation_subjects"] == ["3"]
    run.finetune(
        tmp_path / "pre", chain.store, chain.labels, tmp_path / "clean", changes=FINE, split=tmp_path / "split.json"
    )
    assert run.evaluate(tmp_path / "clean")["pretraining_overlap"] == {
        "kind": "same corpus",
        "recordings": [],
        "subjects": [],
    }
    run.pretrain(chain.store, tmp_path / "all", changes=[*SHORT, "validation_fraction=0"])
    run.finetune(
        tmp_path / "all", chain.store, chain.labels, tmp_path / "leak", changes=FINE, split=tmp_path / "split.json"
    )
    overlap = run.evaluate(tmp_path / "leak")["pretraining_overlap"]
    assert overlap["kind"] == "same recording"
    assert len(overlap["recordings"]) == 4


def test_same_seed_same_run_other_seed_other_run(chain: Chain, tmp_path: Path) -> None:
    loss = {}
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        run.pretrain(chain.store, tmp_path / name, changes=[*SHORT, f"training.seed={seed}"])
        loss[name] = load_tensors(tmp_path / name)
    assert all(torch.equal(loss["a"][k], loss["b"][k]) for k in loss["a"])
    assert not torch.equal(loss["a"]["embedding.patch.weight"], loss["c"]["embedding.patch.weight"])


def test_from_scratch(chain: Chain, tmp_path: Path) -> None:
    result = run.finetune("scratch", chain.store, chain.labels, tmp_path / "run", changes=LEARN)
    assert (result["from"], result["load_report"]) == ("scratch", None)
    evaluated = run.evaluate(tmp_path / "run")
    assert "frozen_probe" not in evaluated["controls"]
    assert evaluated["pretraining_overlap"]["kind"] == "none"
    assert evaluated["model"]["balanced_accuracy"] >= 0.85


def test_a_frozen_encoder_stays_as_it_was(chain: Chain, tmp_path: Path) -> None:
    run.finetune(chain.pretrained, chain.store, chain.labels, tmp_path / "run", changes=[*FINE, "freeze_encoder=true"])
    before, after = load_tensors(chain.pretrained), load_tensors(tmp_path / "run")
    body = [name for name in after if not name.startswith("heads.")]
    assert len(body) > 20
    assert all(torch.equal(before[name], after[name]) for name in body)
    moved = load_tensors(chain.finetuned)
    assert not torch.equal(moved["embedding.patch.weight"], before["embedding.patch.weight"])


def test_the_load_report_accounts_for_every_tensor(chain: Chain) -> None:
    report = chain.results["finetune"]["load_report"]
    assert report["missing"] == ["heads.sequence.linear.weight", "heads.sequence.linear.bias"]
    assert all(name.startswith(("heads.reconstruction", "heads.cls_reconstruction")) for name in report["unexpected"])
    assert len(report["matched"]) + len(report["unexpected"]) == len(load_tensors(chain.pretrained))


# Prediction ------------------------------------------------------------------------------------------------------


def test_predictions_of_a_new_recording(chain: Chain, tmp_path: Path) -> None:
    new = write_edf(tmp_path / "new" / "sub-9_closed.edf", alpha_uv("closed", 99), CHANNELS)
    before = sorted(new.parent.iterdir())
    result = run.predict(chain.finetuned, [new], tmp_path / "out")
    assert sorted(new.parent.iterdir()) == before  # nothing is written beside the data
    assert json.loads((tmp_path / "out" / "predictions.json").read_text()) == result
    (recording,) = result["recordings"]
    assert (recording["windows"], recording["subject"], recording["uncovered_s"]) == (10, "9", 0.0)
    assert recording["counts"]["closed"] >= 8
    with (tmp_path / "out" / recording["csv"]).open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["onset_s", "duration_s", "label", "p_closed", "p_open"]
    assert [float(row["onset_s"]) for row in rows] == [3.0 * i for i in range(10)]
    for row in rows:
        p = [float(row["p_closed"]), float(row["p_open"])]
        assert sum(p) == pytest.approx(1, abs=2e-6)
        assert row["label"] == ("closed" if p[0] > p[1] else "open")
    assert recording["mean_probability"]["closed"] == pytest.approx(
        np.mean([float(row["p_closed"]) for row in rows]), abs=1e-5
    )


def test_predictions_are_those_of_the_evaluation(chain: Chain, tmp_path: Path) -> None:
    (subject,) = chain.results["finetune"]["split"]["test"]
    result = run.predict(chain.finetuned, [chain.data / f"sub-{subject}"], tmp_path / "out")
    counts = {r["file"].split("_")[1].removesuffix(".edf"): r["counts"] for r in result["recordings"]}
    confusion = [[counts[truth][said] for said in ("closed", "open")] for truth in ("closed", "open")]
    assert confusion == chain.results["evaluate"]["model"]["confusion"]


def test_stride_and_true_time_over_a_gap(chain: Chain, tmp_path: Path) -> None:
    onsets_s = [*range(8), *range(20, 27)]
    file = write_edf(tmp_path / "sub-9.edf", alpha_uv("open", 5, seconds=15), CHANNELS, plus="D", onsets_s=onsets_s)
    result = run.predict(chain.finetuned, [file], tmp_path / "out", stride_s=2.0)
    rows = list(csv.DictReader((tmp_path / "out" / result["recordings"][0]["csv"]).read_text().splitlines()))
    assert [float(row["onset_s"]) for row in rows] == [0, 2, 4, 20, 22, 24]
    assert result["recordings"][0]["uncovered_s"] == pytest.approx(1.0)


@pytest.mark.parametrize("stride_s", [0.0, -1.0])
def test_a_stride_must_lead_somewhere(chain: Chain, tmp_path: Path, stride_s: float) -> None:
    with pytest.raises(UserError, match="stride"):
        run.predict(chain.finetuned, [chain.data / "sub-0"], tmp_path / "out", stride_s=stride_s)


def test_what_cannot_be_used_is_said_and_the_rest_goes_on(chain: Chain, tmp_path: Path) -> None:
    data = tmp_path / "mixed"
    write_edf(data / "sub-7.edf", alpha_uv("open", 1), CHANNELS)
    write_edf(data / "sub-8_short.edf", alpha_uv("open", 1, seconds=2), CHANNELS)
    (data / "sub-9_page.edf").write_text("<!DOCTYPE html><html>not found</html>")
    write_edf(data / "sub-5_ecg.edf", noise_uv(1, 6000), ["ECG"])
    result = run.predict(chain.finetuned, [data], tmp_path / "out")
    assert [r["file"] for r in result["recordings"]] == ["sub-7.edf"]
    assert sorted(s["file"] for s in result["skipped"]) == ["sub-5_ecg.edf", "sub-8_short.edf", "sub-9_page.edf"]
    assert all(s["reason"] and "\n" not in s["reason"] for s in result["skipped"])
    prepared = run.prepare([data], tmp_path / "store")
    assert prepared["recordings"] == 2
    assert [s["file"] for s in prepared["skipped"]] == ["sub-5_ecg.edf", "sub-9_page.edf"]


# Montages and baselines ------------------------------------------------------------------------------------------

MONTAGES = (("Fp1", "Cz", "O1", "O2"), ("O2", "O1", "Pz"), ("F3-C3", "P3-O1", "P4-O2", "O2", "X9"))


def test_mixed_montages_train_and_predict(tmp_path: Path) -> None:
    data = write_people(tmp_path / "data", channels=MONTAGES)
    run.prepare([data], tmp_path / "store")
    assert {len(r.ch_names) for r in eeg.Store.open(tmp_path / "store").recordings} >= {3, 4}
    run.pretrain(tmp_path / "store", tmp_path / "pre", changes=SHORT)
    run.finetune(
        tmp_path / "pre", tmp_path / "store", tmp_path / "labels.csv", tmp_path / "run",
        changes=[*WINDOWS, "training.steps=40"],
    )  # fmt: skip
    new = write_edf(tmp_path / "sub-9.edf", alpha_uv("closed", 50, 2), ["Pz", "Oz"])
    (recording,) = run.predict(tmp_path / "run", [new], tmp_path / "out")["recordings"]
    assert recording["counts"]["closed"] >= 8
    result = run.evaluate(tmp_path / "run")
    assert result["model"]["balanced_accuracy"] >= 0.85
    assert result["controls"]["band_power"]["balanced_accuracy"] >= 0.85  # of O2, which all have


def test_fixed_channels_and_baseline(tmp_path: Path) -> None:
    data = write_people(tmp_path / "data", channels=(CHANNELS, ("O2", "O1", "Cz", "Fp1", "Pz")))
    run.prepare([data], tmp_path / "store", baseline=tmp_path / "baseline.csv")
    form = ['patches.tokens="all_channels"', "patches.baseline=true", "patches.spectrum_hz=[2, 40]"]
    run.pretrain(tmp_path / "store", tmp_path / "pre", changes=[*SHORT, *form])
    run.finetune(
        tmp_path / "pre", tmp_path / "store", tmp_path / "labels.csv", tmp_path / "run",
        changes=[*WINDOWS, "training.steps=40"],
    )  # fmt: skip
    config = load_run(tmp_path / "run", eeg.build_embedding).config
    assert config.patches is not None
    assert config.patches.ch_names == CHANNELS
    assert run.evaluate(tmp_path / "run")["model"]["balanced_accuracy"] >= 0.85

    new = tmp_path / "new"
    write_edf(new / "sub-9_rest.edf", alpha_uv("open", 90), CHANNELS)
    write_edf(new / "sub-9_task.edf", alpha_uv("closed", 91, 5), ["Pz", *CHANNELS[::-1]])
    write_edf(new / "sub-9_few.edf", alpha_uv("closed", 92, 3), CHANNELS[:3])
    (new / "rest.csv").write_text("file,onset_s,duration_s\nsub-9_rest.edf,0,12\n")
    with pytest.raises(UserError, match="subtracts each person's baseline; give --baseline FILE"):
        run.predict(tmp_path / "run", [new / "sub-9_task.edf"], tmp_path / "out")
    result = run.predict(
        tmp_path / "run", [new / "sub-9_task.edf", new / "sub-9_few.edf"], tmp_path / "out",
        baseline=new / "rest.csv",
    )  # fmt: skip
    (recording,) = result["recordings"]  # the calibration file is read, not predicted
    assert recording["file"] == "sub-9_task.edf"
    assert recording["counts"]["closed"] >= 8
    (skipped,) = result["skipped"]
    assert skipped["file"] == "sub-9_few.edf"
    assert "lacks O2" in skipped["reason"]
    # Calibration and task under the same name in two folders: each is taken for what it is.
    for kind in ("rest", "task"):
        (new / kind).mkdir()
        shutil.copy(new / f"sub-9_{kind}.edf", new / kind / "sub-9.edf")
    (new / "same.csv").write_text("file,onset_s,duration_s\nrest/sub-9.edf,0,12\n")
    (same,) = run.predict(tmp_path / "run", [new / "task" / "sub-9.edf"], tmp_path / "same", baseline=new / "same.csv")[
        "recordings"
    ]
    assert same["mean_probability"] == recording["mean_probability"]
    other = write_edf(tmp_path / "sub-8_task.edf", alpha_uv("closed", 91), CHANNELS)
    with pytest.raises(UserError, match="no stretch for 8"):
        run.predict(tmp_path / "run", [other], tmp_path / "out2", baseline=new / "rest.csv")


def test_a_baseline_that_is_not_used(chain: Chain, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="uses no baseline; leave --baseline out"):
        run.predict(chain.finetuned, [chain.data], tmp_path / "out", baseline=chain.baseline)
    with pytest.raises(UserError, match="--baseline FILE"):
        run.pretrain(chain.store, tmp_path / "run", changes=[*SHORT, "patches.baseline=true"])


def test_no_channel_in_common(tmp_path: Path) -> None:
    data = write_people(tmp_path / "data", 2, channels=(("Fp1", "Fp2"), ("O1", "O2")))
    run.prepare([data], tmp_path / "store")
    with pytest.raises(UserError, match="no channel is in all recordings"):
        run.pretrain(tmp_path / "store", tmp_path / "run", changes=[*SHORT, 'patches.tokens="all_channels"'])


@pytest.mark.parametrize("form", ["patches.patch_s=0.2", "patches.spectrum_hz=[2, 30]"])
def test_other_patches_can_be_evaluated(chain: Chain, tmp_path: Path, form: str) -> None:
    """The classic control has bands of its own, whatever the model's patches are."""
    run.finetune("scratch", chain.store, chain.labels, tmp_path / "run", changes=[*SHORT, form])
    assert run.evaluate(tmp_path / "run")["controls"]["band_power"]["balanced_accuracy"] >= 0.85


# Contracts, warnings, odd data -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "named"), [("sfreq_hz=128", "sfreq_hz: model 200.0, store 128.0"), ("band_hz=[1, 40]", "band_hz")]
)
def test_another_contract_is_refused(chain: Chain, tmp_path: Path, change: str, named: str) -> None:
    extra = ["band_hz=[0.5, 60]"] if change.startswith("sfreq") else []
    run.prepare([chain.data / "sub-0", chain.data / "sub-1"], tmp_path / "store", changes=[change, *extra])
    with pytest.raises(UserError) as caught:
        run.finetune(chain.pretrained, tmp_path / "store", chain.labels, tmp_path / "run", changes=FINE)
    assert named in str(caught.value)
    with pytest.raises(UserError, match="prepared in another way"):
        run.evaluate(chain.finetuned, data=tmp_path / "store")


def test_with_and_without_mains(chain: Chain, tmp_path: Path) -> None:
    run.prepare([chain.data / "sub-0"], tmp_path / "none", changes=["notch_hz=none"])
    assert eeg.Store.open(tmp_path / "none").signal.notch_hz is None
    with pytest.raises(UserError, match=r"notch_hz: model 50\.0, store None"):
        run.finetune(chain.pretrained, tmp_path / "none", chain.labels, tmp_path / "run", changes=FINE)
    run.prepare([chain.data / f"sub-{i}" for i in range(3)], tmp_path / "60", changes=["notch_hz=60"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BothwaysWarning)  # rows of the other people
        run.finetune(chain.pretrained, tmp_path / "60", chain.labels, tmp_path / "run", changes=FINE)


@pytest.mark.parametrize("change", ["encoder.hidden_size=96", 'patches.features=["samples"]'])
def test_settings_without_effect_warn(chain: Chain, tmp_path: Path, change: str) -> None:
    with pytest.warns(BothwaysWarning, match=rf"\[{change.split('.')[0]}\] of the recipe has no effect"):
        run.finetune(chain.pretrained, chain.store, chain.labels, tmp_path / "run", changes=[*FINE, change])


def test_fractions_beside_a_split_file_warn(chain: Chain, tmp_path: Path) -> None:
    (tmp_path / "split.json").write_text(json.dumps({"train": ["0", "1"], "test": ["2"]}))
    with pytest.warns(BothwaysWarning, match="train_fraction"):
        run.finetune(
            chain.pretrained, chain.store, chain.labels, tmp_path / "run", changes=[*FINE, "train_fraction=0.5"],
            split=tmp_path / "split.json",
        )  # fmt: skip


def test_labels_that_fit_in_part_warn(chain: Chain, tmp_path: Path) -> None:
    text = chain.labels.read_text() + "\nsub-99_open.edf,open\nsub-0_open.edf,\n"
    (tmp_path / "labels.csv").write_text(text)
    with pytest.warns(BothwaysWarning) as caught:
        result = run.finetune(chain.pretrained, chain.store, tmp_path / "labels.csv", tmp_path / "run", changes=FINE)
    said = "; ".join(str(w.message) for w in caught)
    assert "1 rows have no label" in said
    assert "sub-99_open.edf" in said
    assert len(result["notes"]) == 2


@pytest.mark.filterwarnings("ignore:5 recordings have no label")
def test_a_class_that_few_people_have_is_said(chain: Chain, tmp_path: Path) -> None:
    rows = [f"sub-{i}_open.edf,open" for i in range(6)] + ["sub-0_closed.edf,closed"]
    (tmp_path / "labels.csv").write_text("\n".join(["file,label", *rows]))
    split = {"train": ["0", "1", "2"], "validation": ["3"], "test": ["4", "5"]}
    (tmp_path / "split.json").write_text(json.dumps(split))
    with pytest.warns(BothwaysWarning, match="subjects have no window of closed"):
        run.finetune(
            chain.pretrained, chain.store, tmp_path / "labels.csv", tmp_path / "run", changes=FINE,
            split=tmp_path / "split.json",
        )  # fmt: skip
    evaluated = run.evaluate(tmp_path / "run")
    assert evaluated["model"]["support"] == {"closed": 0, "open": 20}
    (tmp_path / "split.json").write_text(json.dumps({"train": ["1", "2"], "test": ["0"]}))
    with pytest.raises(UserError, match="no training subject has closed"):
        run.finetune(
            chain.pretrained, chain.store, tmp_path / "labels.csv", tmp_path / "run2", changes=FINE,
            split=tmp_path / "split.json",
        )  # fmt: skip


def test_missing_samples_do_not_spread(tmp_path: Path) -> None:
    """A second of NaN and a dead channel: the loss and the predictions stay finite."""
    for person in range(2):
        data_uv = alpha_uv("open", person)
        data_uv[1, 1000:1200] = np.nan
        data_uv[2] = 0
        (tmp_path / "data").mkdir(exist_ok=True)
        write_fif(tmp_path / "data" / f"sub-{person}_raw.fif", data_uv, CHANNELS)
    prepared = run.prepare([tmp_path / "data"], tmp_path / "store")
    assert prepared["notes"]
    for features in ('["samples"]', '["samples", "spectrum", "amplitude"]'):
        result = run.pretrain(
            tmp_path / "store", tmp_path / "run", overwrite=True,
            changes=[*SHORT, f"patches.features={features}", "training.batch_size=8"],
        )  # fmt: skip
        assert np.isfinite(result["loss"])


def test_a_persons_tone_says_nothing_of_others(shared: Path, tmp_path: Path) -> None:
    """Case B47: random labels and a tone of each person's own; only a split by windows would score high."""
    case = shared / "cases" / "b47_leak"
    run.prepare([case], tmp_path / "store")
    people: dict[str, list[str]] = {}
    for row in (case / "labels.csv").read_text().splitlines()[1:]:
        people.setdefault(row.split(",")[2], []).append(row[4:6])
    halves = [sorted(name for of in people.values() for name in of[i::2]) for i in (0, 1)]
    accuracies = []
    for train, test in (halves, halves[::-1]):
        (tmp_path / "split.json").write_text(json.dumps({"train": train, "test": test}))
        run.finetune(
            "scratch", tmp_path / "store", case / "labels.csv", tmp_path / "run", overwrite=True,
            changes=[*LEARN, "training.steps=100", "windows.window_s=2", "windows.stride_s=1"],
            split=tmp_path / "split.json",
        )  # fmt: skip
        assert json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])["loss"] < 0.2
        accuracies.append(run.evaluate(tmp_path / "run")["model"]["accuracy"])
    assert np.mean(accuracies) <= 0.75


def test_rare_events_show_their_support(shared: Path, tmp_path: Path) -> None:
    """Case B35: 46 to 2; a split that leaves the rare class out of a part says so."""
    run.prepare([shared / "cases" / "b35_imbalance"], tmp_path / "store")
    store = eeg.Store.open(tmp_path / "store")
    rows = ["file,onset_s,duration_s,label"]
    rows += [f"{s.file},{s.onset_s},{s.duration_s},{s.label}" for s in eeg.labels_from_events(store).rows]
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    windows = [*WINDOWS, "windows.window_s=1", "windows.stride_s=1", "training.steps=2"]
    for test, expected in ((["03", "04"], True), (["02", "04"], False)):
        train = sorted({"01", "02", "03", "04"} - set(test))
        (tmp_path / "split.json").write_text(json.dumps({"train": train, "test": test}))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run.finetune(
                "scratch", tmp_path / "store", tmp_path / "labels.csv", tmp_path / "run",
                changes=[*TINY, *windows], split=tmp_path / "split.json", overwrite=True,
            )  # fmt: skip
        model = run.evaluate(tmp_path / "run")["model"]
        assert (model["support"]["seiz"] > 0) is expected
        assert any("test subjects have no window of seiz" in str(w.message) for w in caught) is not expected
        if expected:
            always = run.evaluate(tmp_path / "run")["controls"]["majority"]
            assert always["balanced_accuracy"] == 0.5 < 0.9 < always["accuracy"]


def test_channels_are_matched_by_name(shared: Path, tmp_path: Path) -> None:
    """Case B33: trained on one order of channels, used on another, on a file with extras, and on one that lacks C4."""
    cases = [shared / "cases" / f"b33_subject_{name}.edf" for name in "abc"]
    run.prepare([cases[0]], tmp_path / "store")
    patches = PatchConfig(tokens="all_channels", ch_names=("Fp1", "Fp2", "C3", "C4", "O1", "O2"))
    signals = []
    for case in (cases[0], cases[2]):
        run.prepare([case], tmp_path / "one", overwrite=True)
        store = eeg.Store.open(tmp_path / "one")
        windows = eeg.cut_windows(store, WindowConfig(window_s=2.0, stride_s=2.0))
        signals.append(eeg.WindowSource(store, windows, patches).batch(np.arange(len(windows)))["signals"])
    torch.testing.assert_close(signals[0], signals[1], rtol=0, atol=2e-3)
    run.prepare([cases[1]], tmp_path / "one", overwrite=True)
    store = eeg.Store.open(tmp_path / "one")
    with pytest.raises(UserError, match="lacks C4"):
        eeg.WindowSource(store, eeg.cut_windows(store, WindowConfig(window_s=2.0)), patches)


def test_a_text_run_is_no_eeg_run(chain: Chain, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    manifest = json.loads((chain.finetuned / "manifest.json").read_text())
    save_run(tmp_path / "run", FORMS["bert"].build(), FinetuneConfig(), manifest)
    for step in (
        lambda: run.finetune(tmp_path / "run", chain.store, chain.labels, tmp_path / "out", changes=FINE),
        lambda: run.evaluate(tmp_path / "run"),
        lambda: run.predict(tmp_path / "run", [chain.data], tmp_path / "out"),
    ):
        with pytest.raises(UserError, match="expected a model of EEG, got one of text"):
            step()


def test_a_failed_training_leaves_nothing_behind(chain: Chain, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the weights after step 1 are not finite"):
        run.pretrain(chain.store, tmp_path / "run", changes=[*SHORT, "training.learning_rate=1e300"])
    assert list(tmp_path.iterdir()) == []


def test_a_moved_store_is_asked_for(chain: Chain, tmp_path: Path) -> None:
    shutil.copytree(chain.finetuned, tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    manifest["data"]["store"] = str(tmp_path / "gone")
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="gone: expected a prepared store"):
        run.evaluate(tmp_path / "run")
    moved = run.evaluate(tmp_path / "run", data=chain.store)
    assert moved["model"] == chain.results["evaluate"]["model"]
    validation = run.evaluate(tmp_path / "run", data=chain.store, part="validation")
    assert list(validation["model"]["subjects"]) == list(chain.results["finetune"]["split"]["validation"])

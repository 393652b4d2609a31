"""Numbers and several classes at once, from finetune to predict: an age in slow waves, alpha and beta of their own."""

import csv
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from bothways import run
from bothways.cli.printing import print_evaluation
from bothways.config import FinetuneConfig
from bothways.errors import BothwaysWarning, UserError
from bothways.training import load_config_of, load_recipe
from people import CHANNELS, TINY
from recordings import GAIN_UV, write_edf

SETTINGS = [
    *TINY,
    "windows.window_s=3",
    "training.batch_size=16",
    "training.learning_rate=4e-3",
    "training.log_every=10",
]
AGE = ["labels.column=age", "labels.kind=number", *SETTINGS]
WAVES = ["labels.column=waves", "labels.kind=several", *SETTINGS]
PEOPLE = 14
AGES = [20 + 5 * (7 * person % PEOPLE) for person in range(PEOPLE)]
PARTS = {"train": range(8), "validation": (9, 10), "test": (8, 11, 12, 13)}

Call = Callable[..., tuple[int, str, str]]


def waves_of(person: int) -> list[str]:
    return [name for name, there in (("alpha", person % 2), ("beta", person // 2 % 2)) if there]


def signal_uv(person: int, seconds: int = 12) -> np.ndarray:
    """Returns noise whose slow waves grow with age, and which has alpha, or beta, or both, or none."""
    n = seconds * 200
    f_hz = np.fft.rfftfreq(n, 1 / 200)
    spectrum = np.fft.rfft(np.random.default_rng(person).normal(size=(4, n))) / np.sqrt(np.maximum(f_hz, 1))
    for low, high, factor in (
        (2, 7, np.exp((AGES[person] - 50) / 20)),
        (9, 12, 4.0 if "alpha" in waves_of(person) else 1.0),
        (17, 24, 4.0 if "beta" in waves_of(person) else 1.0),
    ):
        spectrum[:, (f_hz >= low) & (f_hz <= high)] *= factor
    return np.rint(30 * np.fft.irfft(spectrum, n) / GAIN_UV) * GAIN_UV


@dataclass(frozen=True)
class Cohort:
    data: Path
    store: Path
    labels: Path
    split: Path


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    top = tmp_path_factory.mktemp("cohort")
    rows = ["participant_id\tage\twaves"]
    for person in range(PEOPLE):
        write_edf(top / "data" / f"sub-{person:02d}.edf", signal_uv(person), CHANNELS)
        rows.append(f"sub-{person:02d}\t{AGES[person]}\t{'|'.join(waves_of(person))}")
    (top / "participants.tsv").write_text("\n".join(rows), encoding="utf-8")
    (top / "split.json").write_text(json.dumps({part: [f"{p:02d}" for p in who] for part, who in PARTS.items()}))
    run.prepare([top / "data"], top / "store")
    return Cohort(top / "data", top / "store", top / "participants.tsv", top / "split.json")


def tuned(cohort: Cohort, out: Path, changes: list[str], start: str | Path = "scratch") -> dict[str, Any]:
    with pytest.warns(BothwaysWarning, match="columns not used"):
        return run.finetune(start, cohort.store, cohort.labels, out, changes=changes, split=cohort.split)


@pytest.fixture(scope="module")
def pretrained(cohort: Cohort, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("start") / "pretrained"
    run.pretrain(cohort.store, out, changes=[*SETTINGS, "training.steps=2"], split=cohort.split)
    return out


@pytest.fixture(scope="module")
def age(cohort: Cohort, pretrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("age") / "run"
    tuned(cohort, out, [*AGE, "training.steps=3"], pretrained)
    return out


@pytest.fixture(scope="module")
def waves(cohort: Cohort, pretrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("waves") / "run"
    tuned(cohort, out, [*WAVES, "training.steps=3"], pretrained)
    return out


def told_by(out: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(out)
    return found


def test_a_number_by_the_command_line(
    age: Path, cohort: Cohort, bothways: Call, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    manifest = json.loads((age / "manifest.json").read_text())
    trained = np.array([AGES[person] for person in PARTS["train"]], float)
    target = manifest["target"]
    assert (target["kind"], target["name"], manifest["classes"]) == ("number", "age", [])
    assert (target["mean"], target["sd"]) == pytest.approx((trained.mean(), trained.std()))
    assert manifest["counts"]["test"]["11"] == {"windows": 4, **dict.fromkeys(("least", "mean", "most"), AGES[11])}
    head = load_config_of(age).heads["number"]
    assert (head.classes, head.mean, head.sd, head.loss) == (("age",), target["mean"], target["sd"], "mse")
    assert "a number for each window, read from cls" in (age / "README.md").read_text()

    code, out, err = bothways("eeg", "evaluate", age, "--html", tmp_path / "age.html", "--json")
    assert code == 0, err
    found = told_by(out)
    assert found["model"]["n"] == 16
    assert list(found["controls"]) == ["training_mean", "training_median", "band_power", "frozen_probe"]
    tested = np.array([AGES[person] for person in PARTS["test"]], float)
    assert found["controls"]["training_mean"]["mae"] == pytest.approx(np.abs(tested - trained.mean()).mean())
    assert found["controls"]["band_power"]["mae"] < found["controls"]["training_mean"]["mae"]
    assert found["levels"]["model"]["recording"]["metrics"]["n"] == 4
    assert [one["true"] for one in found["recordings"]] == tested.tolist()
    first = found["comparisons"]["training_mean"]["mean"]
    assert first == pytest.approx(found["model"]["mae"] - found["controls"]["training_mean"]["mae"])
    page = (tmp_path / "age.html").read_text()
    assert "true age" in page
    assert "a point for each recording" in page
    print_evaluation(found)
    out = capsys.readouterr().out
    assert re.search(r"this run +recording +4", out)
    assert "this run against band power, over 4 people: MAE" in out

    code, out, err = bothways("eeg", "predict", age, cohort.data / "sub-11.edf", "--out", tmp_path / "out")
    assert code == 0, err
    rows = list(csv.DictReader((tmp_path / "out" / "sub-11.edf.csv").open()))
    assert list(rows[0]) == ["onset_s", "duration_s", "value"]
    assert [float(row["onset_s"]) for row in rows] == [0, 3, 6, 9]
    values = [float(row["value"]) for row in rows]
    assert np.mean(values) == pytest.approx(found["recordings"][1]["predicted"], rel=1e-5)
    assert pq.read_table(tmp_path / "out" / "sub-11.edf.parquet")["value"].to_pylist() == pytest.approx(
        values, rel=1e-5
    )
    told = json.loads((tmp_path / "out" / "predictions.json").read_text())
    assert (told["target"], told["events_by"]) == ("number", None)
    assert told["recordings"][0]["mean_value"] == pytest.approx(np.mean(values), rel=1e-5)


def test_several_classes_by_the_command_line(
    waves: Path, cohort: Cohort, bothways: Call, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    manifest = json.loads((waves / "manifest.json").read_text())
    assert (manifest["classes"], manifest["target"]["kind"]) == (["alpha", "beta"], "several")
    assert manifest["counts"]["train"]["03"] == {"alpha": 4, "beta": 4, "(none)": 0, "(windows)": 4}
    assert manifest["counts"]["train"]["00"] == {"alpha": 0, "beta": 0, "(none)": 4, "(windows)": 4}
    assert load_config_of(waves).heads["several"].class_weights == (1, 1)  # half of the windows have each

    code, out, err = bothways("eeg", "evaluate", waves, "--html", tmp_path / "waves.html", "--json")
    assert code == 0, err
    found = told_by(out)
    assert list(found["controls"]) == ["base_rate", "band_power", "frozen_probe"]
    assert found["controls"]["base_rate"]["macro"]["auroc"] == 0.5
    assert found["controls"]["band_power"]["labels"]["alpha"]["auroc"] == 1
    assert found["model"]["labels"]["beta"]["n_positive"] == 4
    assert [one["true"] for one in found["recordings"]] == [waves_of(person) for person in PARTS["test"]]
    assert "Class by class, windows" in (tmp_path / "waves.html").read_text()
    print_evaluation(found)
    assert re.search(r"beta +band power +4 +16", capsys.readouterr().out)

    code, out, err = bothways("eeg", "predict", waves, cohort.data / "sub-11.edf", "--out", tmp_path / "out")
    assert code == 0, err
    table = pq.read_table(tmp_path / "out" / "sub-11.edf.parquet")
    assert table.column_names == ["onset_s", "duration_s", "labels", "p_alpha", "p_beta"]
    row = next(csv.DictReader((tmp_path / "out" / "sub-11.edf.csv").open()))
    assert row["labels"] == ";".join(name for name in ("alpha", "beta") if float(row[f"p_{name}"]) >= 0.5)


@pytest.mark.parametrize("kind", ["number", "several"])
def test_what_measures_by_single_classes_refuses(
    kind: str, request: pytest.FixtureRequest, cohort: Cohort, fails: Callable[..., str], tmp_path: Path
) -> None:
    run_of = request.getfixturevalue("age" if kind == "number" else "waves")
    new, why = tmp_path / "new", f'expected labels.kind = "classes", got "{kind}"'
    assert why in fails("eeg", "probe", run_of)
    assert why in fails("eeg", "curve", "channels", run_of, "--out", new)
    places = ["--data", cohort.store, "--labels", cohort.labels, "--out", new]
    own = ["--set", f"labels.kind={kind}", "--set", "labels.column=age"]
    for words in (["compare"], ["curve", "labels"]):
        assert why in fails("eeg", *words, "--from", "scratch", *places, *own)
    stratify = ["--data", cohort.store, "--out", tmp_path / "s.json", "--stratify", cohort.labels]
    assert why in fails("eeg", "split", *stratify, *own)
    file = cohort.data / "sub-11.edf"
    for option in (["--events", "szcore"], ["--set", "enter=0.7"], ["--html"]):
        message = fails("eeg", "predict", run_of, file, "--out", new, *option)
        assert message.startswith(f"{option[0]}: events and their page are made of one class at a time")
    assert not new.exists()
    moment = ["--set", "task=moment", "--from", "scratch"]
    assert f'task = "moment" needs labels.kind = "classes", got "{kind}"' in fails(
        "eeg", "finetune", *places, *own, *moment
    )


def test_labels_that_cannot_be_learned(cohort: Cohort, fails: Callable[..., str], tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    places = ["--from", "scratch", "--data", cohort.store, "--labels", labels, "--out", tmp_path / "run"]
    number = ["--set", "labels.kind=number"]
    labels.write_text("subject,label\n00,34\n01,n/a\n02,>89")
    assert fails("eeg", "finetune", *places, *number) == (
        f"{labels}: line 4: expected a number as label, or n/a, got '>89'"
    )
    labels.write_text("subject,label\n00,34\n01,34.0\n02,n/a")
    assert "expected windows of two different numbers or more, got 2 windows of 34" in fails(
        "eeg", "finetune", *places, *number
    )
    labels.write_text("subject,label\n00,\n01,n/a\n02,;")
    assert "expected windows of two different sets of classes or more, got 2 windows of no class" in fails(
        "eeg", "finetune", *places, "--set", "labels.kind=several"
    )


def test_rows_without_a_number_are_no_windows(cohort: Cohort, tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text("subject,label\n00,34\n02,n/a\n03,50\n04,60.50\n05,12")
    with pytest.warns(BothwaysWarning, match=r"labels that are no number: n/a \(1\)|recordings have no label"):
        plan = run.finetune(
            "scratch", cohort.store, labels, tmp_path / "run", changes=["labels.kind=number", *SETTINGS], dry_run=True
        )
    everybody = sorted(name for people in plan["counts"].values() for name in people)
    assert everybody == ["00", "03", "04", "05"]
    assert not (tmp_path / "run").exists()
    (tmp_path / "split.json").write_text(json.dumps({"train": ["00"], "validation": [], "test": ["03"]}))
    with pytest.raises(UserError, match="all 4 windows of the training people have the number 34"):
        run.finetune(
            "scratch", cohort.store, labels, tmp_path / "run", changes=["labels.kind=number", *SETTINGS],
            split=tmp_path / "split.json",
        )  # fmt: skip


@pytest.mark.slow
def test_a_number_is_learned(cohort: Cohort, tmp_path: Path) -> None:
    told = tuned(cohort, tmp_path / "run", [*AGE, "training.steps=200", "training.patience=4", "number_loss=smooth_l1"])
    assert told["validation"]["mae"] < 10
    assert load_recipe(tmp_path / "run", FinetuneConfig).number_loss == "smooth_l1"
    found = run.evaluate(tmp_path / "run")
    assert found["model"]["mae"] < 0.5 * found["controls"]["training_mean"]["mae"]
    assert found["model"]["r2"] > 0.6
    assert found["levels"]["model"]["recording"]["metrics"]["pearson"] > 0.9


@pytest.mark.slow
def test_several_classes_are_learned(cohort: Cohort, tmp_path: Path) -> None:
    tuned(cohort, tmp_path / "run", [*WAVES, "training.steps=200"])
    found = run.evaluate(tmp_path / "run")
    assert found["model"]["macro"]["auroc"] > 0.95 > found["controls"]["base_rate"]["macro"]["auroc"]
    assert found["model"]["exact_match"] > 0.8
    (one,) = run.predict(tmp_path / "run", [cohort.data / "sub-11.edf"], tmp_path / "out")["recordings"]
    assert one["mean_probability"]["alpha"] > 0.8
    assert one["mean_probability"]["beta"] > 0.8

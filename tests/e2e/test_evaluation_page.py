"""`eeg evaluate --html`, and sleep stages in `evaluate` and in the page of `predict`."""

import json
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser

from bothways import eeg, run
from bothways.evaluation import constant_controls, regression_metrics
from bothways.report import write_report
from bothways.run.evaluation_page import evaluation_page
from people import CHANNELS, TINY, WINDOWS, Chain, alpha_uv
from recordings import write_edf

Call = Callable[..., tuple[int, str, str]]
NASTY = "<script>x&"


def titles(page: dict[str, Any]) -> list[str]:
    return [section["title"] for section in page["sections"]]


def hypnograms(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The hypnogram in the page of each recording."""
    found = {}
    for entry in result["recordings"]:
        page = (Path(result["out"]) / entry["files"][-1]).read_text(encoding="utf-8")
        data = json.loads(page.split('id="data">')[1].split("</script>")[0])
        found[entry["file"]] = next(one for one in data["sections"] if one["kind"] == "hypnogram")
    return found


@pytest.fixture(scope="module")
def asleep(chain: Chain, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose classes are stages: eyes open is wake, eyes closed is N2; two people are tested."""
    top = tmp_path_factory.mktemp("asleep")
    split = {"train": ["0", "1", "2"], "validation": ["3"], "test": ["4", "5"]}
    (top / "split.json").write_text(json.dumps(split))
    changes = [*TINY, *WINDOWS, "training.steps=40", 'labels.map={open = "W", closed = "Sleep stage 2"}']
    run.finetune("scratch", chain.store, chain.labels, top / "run", changes=changes, split=top / "split.json")
    run.evaluate(top / "run")
    return top / "run"


def test_the_page_says_what_the_result_says(chain: Chain) -> None:
    result = {**chain.results["evaluate"], "notes": ["nobody was asked"]}
    page = evaluation_page(result)
    warning, first = page["sections"][:2]
    assert result["pretraining_overlap"]["kind"] == "same recording"
    assert warning["title"] == "Not unseen"
    assert warning["paragraphs"][0].startswith(f"The weights were trained on {result['split']['test'][0]}")
    rows = {row[0]: row for row in first["rows"]}
    assert list(rows) == ["this run", "chance", "majority", "band power", "frozen probe"]
    assert first["columns"][:4] == ["", "balanced accuracy", "95 % over people", "accuracy"]
    assert rows["this run"][1] == result["model"]["balanced_accuracy"]
    told = {section["title"]: section for section in page["sections"]}
    assert told["What is taken for what"]["matrix"] == result["model"]["confusion"]
    assert told["Each person"]["splits"] == list(result["model"]["subjects"])
    assert told["Data"]["facts"]["Overlap of these people with pretraining"] == result["pretraining_overlap"]["kind"]
    assert told["Notes"]["paragraphs"] == result["notes"]
    assert "Sleep stages" not in told
    assert result["sleep"] is None


def test_intervals_and_dots_are_over_people(asleep: Path) -> None:
    result = json.loads((asleep / "evaluation.json").read_text())
    told = {section["title"]: section for section in evaluation_page(result)["sections"]}
    assert result["model"]["interval"] is None  # of two people
    assert told["People never seen"]["rows"][0][:2] == ["this run", result["model"]["balanced_accuracy"]]
    of_people = result["levels"]["model"]["within_subject"]["balanced_accuracy"]["values"]
    assert told["Each person"]["arms"][0] == {"label": "this run", "values": [of_people["4"], of_people["5"]]}
    against = {row[0]: row[1:4] for row in told["Differences to the controls"]["rows"]}
    one = result["comparisons"]["arms"]["majority"]
    assert against["majority"] == [one["difference"], "", one["p"]]


def test_numbers_instead_of_classes_have_a_page_too(tmp_path: Path) -> None:
    truth, guess, people = np.array([20.0, 30, 40, 50]), np.array([22.0, 29, 45, 41]), ["a", "a", "b", "b"]
    measured = regression_metrics(truth, guess, people)
    result = {
        "run": "r", "part": "test", "task": "window", "model": measured, "unheard_of": 1,
        "controls": constant_controls(truth, truth, people),
        "levels": {"model": {"subject": {"metrics": measured, "reason": None}}},
        "comparisons": {"mean": {"mean": -5.75, "low": -8.0, "high": -1.0, "p": 0.5}}, "notes": [],
    }  # fmt: skip
    page = evaluation_page(result)
    assert titles(page) == [
        "People never seen", "Differences to the controls", "This run by window, recording and person", "Data",
    ]  # fmt: skip
    assert page["sections"][0]["columns"][1] == "MAE"
    assert page["sections"][0]["rows"][0][1] == 4.25
    assert page["sections"][1]["rows"] == [["mean", -5.75, "-8.000 to -1.000", 0.5, None]]
    write_report(page, tmp_path / "page.html")


@pytest.mark.parametrize("width", [360, 1440])
def test_it_fits_and_names_are_text(chain: Chain, tmp_path: Path, browser: Browser, width: int) -> None:
    text = json.dumps(chain.results["evaluate"]).replace("closed", NASTY)
    write_report(evaluation_page(json.loads(text)), tmp_path / "page.html")
    said: list[str] = []
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda problem: said.append(str(problem)))
    page.goto((tmp_path / "page.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.locator(".confusion tbody th").first.inner_text() == NASTY
    assert page.locator(".dots .dot").count() > 0
    label = page.locator(".dots").get_attribute("aria-label") or ""
    assert "standard deviation over people; this run" in label
    page.close()
    assert said == []


def test_the_command_writes_the_page(asleep: Path, tmp_path: Path, bothways: Call, fails: Callable[..., str]) -> None:
    page = tmp_path / "page.html"
    code, out, err = bothways("eeg", "evaluate", asleep, "--html", page)
    assert code == 0, err
    assert re.search(r"^sleep stages: kappa \S+, by person \S+.*, macro-F1 \S+; F1 W \S+, N2 \S+$", out, re.M)
    assert out.splitlines()[-1] == f"written: {page}"
    told = json.loads((asleep / "evaluation.json").read_text())
    assert told["sleep"]["stage_of"] == {"Sleep stage 2": "N2", "W": "W"}
    assert told["sleep"]["kappa"] == pytest.approx(told["model"]["kappa"])
    assert told["sleep"]["kappa_subjects"]["n"] == 2
    assert "Sleep stages" in titles(evaluation_page(told))
    assert "already exists; choose another --html" in fails("eeg", "evaluate", asleep, "--html", page)
    assert "folder that exists" in fails("eeg", "evaluate", asleep, "--html", tmp_path / "no" / "page.html")
    page.write_text("mine")
    assert "not a page" in fails("eeg", "evaluate", asleep, "--html", page, "--overwrite")


def test_a_hypnogram_beside_the_annotated_one(asleep: Path, tmp_path: Path) -> None:
    signal = alpha_uv("open", 99)
    signal[:, 3000:] = alpha_uv("closed", 99)[:, 3000:]
    marks = [(0, 12, "open"), (15, 15, "closed")]  # the labels that labels.map turns into stages
    write_edf(tmp_path / "sub-9.edf", signal, CHANNELS, plus="C", annotations=marks)
    write_edf(tmp_path / "sub-8.edf", signal, CHANNELS)
    result = run.predict(asleep, [tmp_path / "sub-9.edf", tmp_path / "sub-8.edf"], tmp_path / "out", pages=True)
    sections = hypnograms(result)
    night = sections["sub-9.edf"]
    assert (night["stages"], night["window_s"]) == (["W", "N2"], 3)
    predicted, annotated = night["series"]
    assert annotated["values"] == [0, 0, 0, 0, None, 1, 1, 1, 1, 1]
    lines = (tmp_path / "out" / "sub-9.edf.csv").read_text().splitlines()[1:]
    assert predicted["values"] == [{"W": 0, "Sleep stage 2": 1}[line.split(",")[2]] for line in lines]
    assert "Of 9 that have both, " in night["caption"]
    assert "Sleep stage 2 is N2" in night["caption"]
    assert [line["label"] for line in sections["sub-8.edf"]["series"]] == ["predicted"]


def test_a_hypnogram_in_a_file_of_its_own(asleep: Path, tmp_path: Path) -> None:
    night = tmp_path / "night"
    write_edf(night / "sub-7-PSG.edf", alpha_uv("open", 98), CHANNELS)
    marks = [eeg.PredictedEvent(3.0, 6.0, "open", 1.0, 1.0), eeg.PredictedEvent(9.0, 6.0, "closed", 1.0, 1.0)]
    eeg.write_edf_annotations(night / "sub-7-Hypnogram.edf", marks, datetime(2020, 2, 1, 10, 20, 30))
    page = hypnograms(run.predict(asleep, night, tmp_path / "out", pages=True))["sub-7-PSG.edf"]
    assert page["series"][1]["values"] == [None, 0, 0, 1, 1, None, None, None, None, None]
    others = [eeg.PredictedEvent(3.0, 6.0, "asleep", 1.0, 1.0)]
    eeg.write_edf_annotations(night / "sub-7-Hypnogram.edf", others)
    result = run.predict(asleep, night, tmp_path / "again", pages=True)
    assert len(hypnograms(result)["sub-7-PSG.edf"]["series"]) == 1
    notes = {note["code"]: note["message"] for note in result["recordings"][0]["notes"]}
    assert "labels that are no class: asleep (1)" in notes["hypnogram_not_used"]

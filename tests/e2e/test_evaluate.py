"""What `evaluate` says beyond windows: recordings, people, controls person by person, how sure a run may be."""

import json
from pathlib import Path

import pytest

from bothways import run
from people import TINY, WINDOWS, Chain

LEARN = [*TINY, *WINDOWS, "training.steps=40"]


def test_evaluation_of_recordings_people_and_arms(chain: Chain, tmp_path: Path) -> None:
    """Two people each: whole recordings, people alone, controls by person, and a temperature of the two others."""
    split = {"train": ["0", "1"], "validation": ["2", "3"], "test": ["4", "5"]}
    (tmp_path / "split.json").write_text(json.dumps(split))
    run.finetune("scratch", chain.store, chain.labels, tmp_path / "run", changes=LEARN, split=tmp_path / "split.json")
    result = run.evaluate(tmp_path / "run")
    assert result["levels"].keys() == {"model", "majority", "band_power"}
    recording = result["levels"]["model"]["recording"]
    assert recording["metrics"]["support"] == {"closed": 2, "open": 2}
    assert recording["metrics"]["balanced_accuracy"] == 1
    assert result["levels"]["model"]["subject"]["n_mixed"] == 2
    people = result["model"]["subjects"]
    within = result["levels"]["model"]["within_subject"]["accuracy"]
    assert within["values"] == {name: one["accuracy"] for name, one in people.items()}
    arm = result["comparisons"]["arms"]["majority"]
    assert arm["difference"] == pytest.approx(result["model"]["balanced_accuracy"] - 0.5)
    assert arm["p"] == 0.5  # two of the 2^2 exchanges are as large
    temperature = result["temperature"]
    assert (temperature["n"], temperature["n_subjects"]) == (40, 2)
    assert temperature["before"]["ece"] == result["model"]["ece"]
    assert (temperature["after"] is None) == (temperature["reason"] is not None)
    validation = run.evaluate(tmp_path / "run", part="validation")["temperature"]
    assert (validation["reason"], validation["n_subjects"]) == ("there are no other people to fit it on", 0)

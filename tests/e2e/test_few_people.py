"""The script of the experiment with few labelled people, cut short."""

import importlib.util
import json
from pathlib import Path

import pytest

from people import Chain

SCRIPT = Path(__file__).parents[2] / "examples" / "few_people.py"


@pytest.mark.slow
def test_from_recordings_to_a_curve(chain: Chain, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("few_people", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    tiny = ["training.steps=4", "windows.window_s=4", "training.batch_size=4"]
    out = tmp_path / "out"
    result = script.few_people(
        chain.data, chain.labels, chain.baseline, out, people=(1, 2), trials=5, pretraining=tiny, finetuning=tiny
    )
    assert [row["people"] for row in result["sizes"]] == [1, 2]
    assert set(result["sizes"][0]["differences"]["finetuned"]) == {"band_power", "scratch"}
    assert result["pretraining_overlap"]
    kept = json.loads((out / "curve" / "curve.json").read_text())
    assert kept["sizes"] == result["sizes"]
    script.show(result)
    assert "fine-tuned - scratch: " in capsys.readouterr().out

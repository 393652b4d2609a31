"""How many labelled people does a pretrained encoder save? Pretrains on each split's people and draws the curve.

    python examples/few_people.py RECORDINGS --labels labels.csv --baseline baseline.csv --out few-people

Five splits by person, each person tested once per round; pretraining sees the signals of a split's training people,
never those of the tested. The same as the commands `prepare`, `split --folds`, `pretrain` and `curve labels`, in one.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bothways import run

RECIPES = Path(__file__).parent.parent / "recipes"
N_SPLITS = 5
PEOPLE = (2, 4, 8)
TRIALS = 20
ARMS = ("band_power", "scratch", "frozen_probe", "finetuned")


def few_people(
    recordings: Path,
    labels: Path,
    baseline: Path,
    out: Path,
    *,
    people: Sequence[int] = PEOPLE,
    trials: int = TRIALS,
    pretraining: Sequence[str] = (),
    finetuning: Sequence[str] = (),
) -> dict[str, Any]:
    """Does all of it; what is finished is not done again.

    Args:
        recordings: a folder.
        labels: CSV `file,onset_s,duration_s,label`.
        baseline: CSV `file,onset_s,duration_s`: rest of each person, whose spectrum is subtracted.
        out: a folder; `curve/report.html` in it is the page.
        people: numbers of labelled people.
        trials: whom to label, first weights and order are drawn so often; the splits take turns.
        pretraining: changes of the recipe.
        finetuning: changes of the recipe.

    Returns:
        `run.label_curve`'s result, with `seconds` of everything.
    """
    started = time.monotonic()
    store, splits = out / "store", out / "splits"
    run.prepare([recordings], store, baseline=baseline)
    if not splits.exists():
        run.split(store, splits, folds=N_SPLITS, validation_fraction=0.0)
    files = sorted(splits.glob("split-*.json"))
    pretrained = []
    for number, file in enumerate(files):
        pretrained.append(out / "pretrained" / file.stem)
        run.pretrain(
            store,
            pretrained[-1],
            recipe=RECIPES / "few-people-pretrain.toml",
            changes=[f"training.seed={number}", *pretraining],
            split=file,
        )
    result = run.label_curve(
        pretrained,
        store,
        labels,
        out / "curve",
        recipe=RECIPES / "few-people-finetune.toml",
        changes=finetuning,
        splits=files,
        people=people,
        seeds=trials,
        rates=[1.0],
        arms=ARMS,
    )
    return result | {"seconds": time.monotonic() - started}


def written(value: float | None, form: str = ".3f") -> str:
    """Writes a number; a dash where there is none, e.g. an interval of one person."""
    return "–" if value is None else format(value, form)


def show(result: dict[str, Any]) -> None:
    """Prints a line for each number of people."""
    for row in result["sizes"]:
        arms = "  ".join(f"{name} {written(arm['over_people']['mean'])}" for name, arm in row["arms"].items())
        print(f"{row['people']} labelled people: {arms}")
        for control, d in row["differences"].get("finetuned", {}).items():
            mean, low, high = (written(d[name], "+.3f") for name in ("mean", "low", "high"))
            print(f"   fine-tuned - {control}: {mean} [{low}, {high}]")
    print(f"{result['seconds']:.0f} s; page: {result['out']}/report.html")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path)
    for name in ("labels", "baseline", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    arguments = vars(parser.parse_args())
    as_json = arguments.pop("json")
    outcome = few_people(**arguments)
    if as_json:
        print(json.dumps(outcome))
    else:
        show(outcome)

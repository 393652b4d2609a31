"""`bothways eeg curve labels`: how many labelled people each arm needs; a comparison for each number of them.

OUT/people-N/     a folder of `compare` with N labelled people: splits (who they are), arms, runs, page
OUT/curve.json    the result, and OUT/report.html the same as a page
"""

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bothways import eeg
from bothways.config import FinetuneConfig, load_config
from bothways.errors import UserError
from bothways.evaluation import Split, above_from, check_classes, person_of
from bothways.files import check_output, locked, read_json, write_json
from bothways.report import write_report
from bothways.run.arms import check_asked
from bothways.run.compare import RATES, compare, trial_splits
from bothways.run.compare import RESULT as COMPARED
from bothways.run.curve_page import label_page, said_above
from bothways.run.finetune import SCRATCH
from bothways.run.targets import need_classes
from bothways.training import MANIFEST

RESULT, PAGE = "curve.json", "report.html"
CURVE_ARMS = ("band_power", "scratch", "frozen_probe", "finetuned")


def label_curve(
    start: str | Path | Sequence[str | Path],
    data: str | Path,
    labels: str | Path,
    out: str | Path,
    *,
    recipe: str | Path | None = None,
    changes: Sequence[str] = (),
    splits: Sequence[str | Path] = (),
    people: Sequence[int] = (),
    seeds: int = 5,
    rates: Sequence[float] = RATES,
    arms: Sequence[str] = (),
    overwrite: bool = False,
) -> dict[str, Any]:
    """Compares arms with 1, 2, 4, 8 … labelled people to train on; whom they are tested on stays the same.

    In each trial (a split and a seed, see `compare`) the labelled people of a smaller number are among those of a
    larger one, and have the classes as alike as can be. Validation people are as many at every number. What is
    finished is kept in `out` and not done again; `people`, `seeds` and `arms` may grow, and the result is of all that
    is finished there with the same settings, asked for this time or not.

    Args:
        start: as `compare` takes it; so are `data`, `labels`, `recipe`, `changes`, `splits`, `seeds` and `rates`.
        data: a store.
        labels: as `finetune` takes them.
        out: folder of the curve.
        recipe: TOML of `config.FinetuneConfig`.
        changes: `a.b=value` on top of it.
        splits: split files.
        people: numbers of labelled people; if left out 1, 2, 4, … and all that every trial has.
        seeds: how many trials.
        rates: learning rates to try, as multiples of the recipe's.
        arms: names of `arms.ARMS`; `CURVE_ARMS` if left out.
        overwrite: begin anew.

    Returns:
        `out`, `classes`, `seeds`, `people` (the numbers), `sizes` (a row for each: `people`, `chosen` (trial ->
        names), `arms` (name -> `title`, `over_trials`, `over_people`, `given`), `differences` (arm -> control ->
        as `evaluation.side_by_side` has it)), `above_from` (arm -> control -> number of people, None = none, see
        `evaluation.above_from`), `said` (the same in words), `titles`, `pretraining_overlap`, `notes`, `seconds`.

    Raises:
        UserError: the parts do not fit together, a number of people cannot be had, or `out` was begun with others.
        Interrupted: a signal came; what was finished is kept.
    """
    out, wanted = Path(out), tuple(arms) or CURVE_ARMS
    check_asked(wanted, seeds, rates)
    begun = not overwrite and (out / MANIFEST).is_file()
    if begun and read_json(out / MANIFEST).get("kind") != "label_curve":
        raise UserError(f"{out}: expected a folder of a label curve, got something else; choose another --out")
    starts = [start] if isinstance(start, str | Path) else list(start)
    inputs = [data, *splits, *(path for path in (labels, *starts) if str(path) not in (SCRATCH, eeg.EVENTS))]
    check_output(out, overwrite=overwrite or begun, inputs=inputs)
    settings = load_config(FinetuneConfig, Path(recipe) if recipe else None, changes)
    need_classes(settings, "label curve")
    if settings.labelled_subjects:
        raise UserError("labelled_subjects: the curve goes over it; leave it out, and give --people")
    numbers, notes = _numbers(data, labels, settings, splits, seeds, people)
    with locked(out / "lock", f"{out}: another process computes a curve there; wait until it is done"):
        if overwrite:
            for entry in out.iterdir():
                if entry.name != "lock":
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        write_json(out / MANIFEST, {"kind": "label_curve"})
        results = {}
        for i, n in enumerate(numbers, 1):
            print(f"label curve: {n} labelled people, {i} of {len(numbers)} numbers", file=sys.stderr, flush=True)
            results[n] = compare(
                start, data, labels, out / f"people-{n}", recipe=recipe, splits=splits, seeds=seeds, rates=rates,
                arms=wanted, changes=[*changes, f"labelled_subjects={n}"],
            )  # fmt: skip
        earlier, left_out = _earlier(out, numbers)
        result = _result(out, dict(sorted({**earlier, **results}.items())), [*notes, *left_out])
        write_json(out / RESULT, result)
        write_report(label_page(result), out / PAGE)
    return result


def _earlier(out: Path, numbers: Sequence[int]) -> tuple[dict[int, dict[str, Any]], list[str]]:
    """Reads the comparisons with other numbers of people that are finished; notes those with other settings."""

    def depends_on(n: int) -> tuple[dict[str, Any], set[str]]:
        had = read_json(out / f"people-{n}" / MANIFEST)["depends_on"]
        return had, {json.dumps([one["validation"], one["test"]]) for one in had.pop("splits")}

    (now, tested), found, notes = depends_on(numbers[0]), {}, []
    for file in sorted(out.glob(f"people-*/{COMPARED}")):
        if (n := int(file.parent.name.removeprefix("people-"))) in numbers:
            continue
        had, theirs = depends_on(n)
        if had == now and (theirs <= tested or tested <= theirs):  # more seeds have more splits
            found[n] = read_json(file)
        else:
            notes.append(f"{file.parent} was made with other settings or data: not told here")
    return found, notes


def _numbers(
    data: str | Path,
    labels: str | Path,
    settings: FinetuneConfig,
    split_files: Sequence[str | Path],
    seeds: int,
    asked: Sequence[int],
) -> tuple[list[int], list[str]]:
    """Returns the numbers of people to try, and what is left out of them and why."""
    store = eeg.Store.open(data)
    given = eeg.find_labels(str(labels), store, settings.labels)
    windows = eeg.cut_windows(store, settings.windows, labels=given, rules=settings.labels)
    windows = windows.select(windows.label >= 0)
    whole = trial_splits(windows, settings, split_files, seeds)
    there = set(windows.subject.tolist())
    most = min(len({*person_of([n for n in one.train if n in there], one.aliases).values()}) for one in whole)
    if wrong := [n for n in asked if not 1 <= n <= most]:
        raise UserError(f"--people: expected 1 to {most}, got {', '.join(map(str, wrong))}")
    numbers = sorted(set(asked)) or sorted({*(2**i for i in range(most.bit_length()) if 2**i <= most), most})
    possible, notes = [], []
    for n in numbers:
        few = settings.model_copy(update={"labelled_subjects": n})
        drawn = trial_splits(windows, few, split_files, seeds)
        lacking = [
            check_classes(windows.label, windows.subject, split, windows.classes).get("train") for split in drawn
        ]
        if any(lacking):
            names = ", ".join(sorted({name for names in lacking for name in names or ()}))
            notes.append(f"not with {n}: in {sum(map(bool, lacking))} of {len(drawn)} trials they lack {names}")
        else:
            possible.append(n)
    if not possible:
        raise UserError(f"label curve: no number of people has every class to train on ({'; '.join(notes)})")
    return possible, notes


def _result(out: Path, results: dict[int, dict[str, Any]], notes: list[str]) -> dict[str, Any]:
    last = results[max(results)]
    said: dict[str, list[str]] = {}
    for n, one in results.items():
        for note in one["notes"]:
            said.setdefault(note, []).append(str(n))
    notes = [*notes, *(n if len(of) == len(results) else f"with {', '.join(of)}: {n}" for n, of in said.items())]
    trials = {n: one["seeds"] for n, one in results.items()}
    if len(set(trials.values())) > 1:
        told = ", ".join(f"{seeds} with {n}" for n, seeds in trials.items())
        notes.append(f"not as many trials at every number of people: {told}")
    validation = sorted({len(_split(out, max(results), trial).validation) for trial in last["trials"]})
    if validation != [0]:
        counts = " or ".join(map(str, validation))
        notes.append(f"besides, the labels of {counts} validation people choose rate, step and C at every number")
    shown = ("title", "over_trials", "over_people", "given")
    sizes: list[dict[str, Any]] = [
        {
            "people": n,
            "chosen": {trial["name"]: list(_split(out, n, trial).train) for trial in one["trials"]},
            "arms": {name: {key: arm[key] for key in shown} for name, arm in one["arms"].items()},
            "differences": one["differences"],
        }
        for n, one in results.items()
    ]
    pairs = {
        arm: list(dict.fromkeys(control for row in sizes for control in row["differences"].get(arm, ())))
        for arm in dict.fromkeys(arm for row in sizes for arm in row["differences"])
    }
    result = {
        "out": str(out),
        "classes": last["classes"],
        "seeds": max(trials.values()),
        "people": list(results),
        "sizes": sizes,
        "above_from": {
            arm: {
                control: above_from({row["people"]: row["differences"].get(arm, {}).get(control) for row in sizes})
                for control in controls
            }
            for arm, controls in pairs.items()
        },
        "titles": {name: arm["title"] for row in sizes for name, arm in row["arms"].items()},
        "pretraining_overlap": last["pretraining_overlap"],
        "notes": notes,
        "seconds": sum(one["seconds"] for one in results.values()),
    }
    return result | {"said": said_above(result)}


def _split(out: Path, n: int, trial: dict[str, Any]) -> Split:
    """Reads the split of a trial with `n` labelled people."""
    return Split.load(out / f"people-{n}" / "splits" / f"{trial['split']}.json")

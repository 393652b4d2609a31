"""`bothways text curve`: how many labelled texts each arm needs, and from how many on all weights should be trained.

OUT/manifest.json                      what the curve depends on; there from the first moment
OUT/subsets/seed-S.json                whose labels are used: the first n are the subset of n; and who is tested
OUT/vectors/FEATURES.npy               vectors of all texts of the frozen encoder, computed once
OUT/results/ARM/labels-N-seed-S.json   what is finished, one file for each
OUT/curve.json                         the result, and OUT/report.html the same as a page
"""

import json
import shutil
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import softmax

from bothways import text
from bothways.config import ANY_TIME, TextFinetuneConfig, load_config
from bothways.draws import generator
from bothways.errors import Interrupted, UserError
from bothways.evaluation import classification_metrics, nested_order
from bothways.files import check_output, locked, read_json, replacing, write_json
from bothways.report import write_report
from bothways.run.common import said_once
from bothways.run.text_classify import Classify, Rows, read_rows
from bothways.run.text_curve_page import text_curve_page
from bothways.run.text_curve_result import MEASURES, curve_result
from bothways.run.text_data import digests, divide_rows, seen_before, select
from bothways.run.text_finetune import learn, start_model
from bothways.run.text_frozen import fit_head, vectors_of, with_features
from bothways.run.text_model import TextModel, content_of_model, length_of, open_model
from bothways.run.text_tfidf import tfidf
from bothways.training import MANIFEST, differing, interruptible

SIZES = (100, 1_000, 10_000)
"""Numbers of labels, of which those are taken that leave texts to test on."""
LEAST_TESTED, MOST_TESTED = 500, 0.2
"""Texts, or this share of all if that is fewer."""
RATES = {"scratch": (10.0,)}
"""Learning rates, as multiples of the recipe's, where none are asked for: drawn weights want higher ones; others 1."""
FEW = 10
"""Tested texts of a class, below which that is said."""
RESULT, PAGE = "curve.json", "report.html"


@dataclass(frozen=True)
class Arm:
    """A way to learn from n labels.

    Attributes:
        title: what it is called.
        settings: what it sets.
        features: of a frozen encoder.
    """

    title: str
    settings: dict[str, Any]
    features: str | None = None


ARMS = {
    "frozen": Arm("frozen encoder, mean", {}, "mean"),
    "full": Arm("all weights", {}),
    "scratch": Arm("from scratch", {"scratch": True}),
    "tfidf": Arm("TF-IDF, logistic regression", {}),
    "frozen_cls": Arm("frozen encoder, [CLS]", {}, "cls"),
    "frozen_last_four": Arm("frozen encoder, last four layers", {}, "last_four"),
    "full_mean": Arm("all weights, mean", {"pool": "mean"}),
}
DEFAULT = ("frozen", "full", "scratch", "tfidf")


@dataclass(frozen=True)
class _Plan:
    """What is to be done, and with what."""

    out: Path
    opened: TextModel
    rows: Rows
    """All there are, those to test on last."""
    n_own: int
    """How many of them are not given to test on."""
    n_tested: int
    classes: tuple[str, ...]
    settings: TextFinetuneConfig
    rates: tuple[float, ...]
    depends_on: dict[str, Any]


@dataclass(frozen=True)
class _Drawn:
    """What a seed draws, as numbers of rows: in `order` to train on, and to test on."""

    seed: int
    order: list[int]
    tested: list[int]


def text_curve(
    start: str | Path,
    data: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    test: str | Path | Sequence[str | Path] = (),
    recipe: str | Path | None = None,
    changes: Sequence[str] = (),
    labels: Sequence[int] = (),
    seeds: int = 5,
    rates: Sequence[float] = (),
    arms: Sequence[str] = (),
    measure: str = "accuracy",
    overwrite: bool = False,
) -> dict[str, Any]:
    """Learns from 100, 1,000, 10,000 labels, in several ways, and compares them on the same texts.

    Each seed draws which texts are labelled: of each class the same share as in all, the smaller number among the
    larger one; and without `test` which others are tested. Every arm has the same. What is chosen is chosen with these
    labels alone: the regressions' C (and then they are fitted to all), and of several learning rates or with
    `training.patience` a rate and a step, for which `validation_fraction` of the labels is kept out. A frozen encoder's
    vectors are computed once; of a text in windows it is their mean. What is finished is kept in `out` and not done
    again; `labels`, `seeds` and `arms` may grow, and the result is of all that is finished there.

    Args:
        start: a run on text, or a BERT that transformers saved.
        data: tables with labels of single classes.
        out: folder of the curve.
        test: tables to test on; without, each seed keeps a fifth out, or what the largest number of labels leaves;
            texts of one group stay together.
        recipe: TOML of `config.TextFinetuneConfig`.
        changes: `a.b=value` on top of it.
        labels: numbers of labels; `SIZES` if left out.
        seeds: how many draws.
        rates: learning rates to try, as multiples of the recipe's; if left out 1, from scratch 10.
        arms: names of `ARMS`; `DEFAULT` if left out.
        measure: what is compared and drawn: accuracy, balanced_accuracy, macro_f1 or auroc.
        overwrite: begin anew.

    Returns:
        `out`, `classes`, `measure`, `labels` (the numbers), `n_tested`, `sizes` (a row for each number: `labels`,
        `arms` (name -> mean, sd, n, low and high of the 95 % interval over seeds, `chosen_by` (labels that chose),
        `measures` (the same of each)), `differences` (arm -> other -> the same of their difference, seed by seed, and
        whether it is `above` or `below` 0)), `crossings` and `above_from` (arm -> other -> see `evaluation`), `said`
        (in words), `titles`, `rates`, `failed` (result -> reason), `notes`, `seconds`.

    Raises:
        UserError: the parts do not fit together, a number of labels cannot be had, or `out` was begun with others.
        Interrupted: a signal came; what was finished is kept.
    """
    out = Path(out)
    data, test = ([one] if isinstance(one, str | Path) else list(one) for one in (data, test))
    wanted = [name for name in ARMS if name in (arms or DEFAULT)]
    _check(arms, labels, seeds, rates, measure)
    begun = not overwrite and (out / MANIFEST).is_file()
    check_output(out, overwrite=overwrite or begun, inputs=[start, *data, *test])
    settings = load_config(TextFinetuneConfig, Path(recipe) if recipe else None, changes)
    own = {name: getattr(settings, name) for name in ("task", "labels", "frozen", "features", "scratch")}
    if odd := [name for name, value in own.items() if value != TextFinetuneConfig.model_fields[name].default]:
        raise UserError(f"{', '.join(odd)}: the arms of a curve say that, and they learn classes; leave it out")
    if settings.training.batch_size == "auto":
        raise UserError("training.batch_size: all arms have the same batches: expected a number, got auto; give one")
    opened = open_model(start)
    with locked(out / "lock", f"{out}: another process computes a curve there; wait until it is done"):
        try:
            with said_once() as notes:
                plan = _plan(out, opened, data, test, settings, rates, labels, notes, overwrite=overwrite)
                drawn, sizes = _draws(plan, seeds, labels, notes)
                _begin(plan, drawn, overwrite=overwrite)
        finally:
            if not (out / MANIFEST).is_file():  # nothing to go on from
                shutil.rmtree(out, ignore_errors=True)
        failed = _do(plan, [(n, one, name) for one in drawn for n in sizes for name in wanted])
        titles = {name: arm.title for name, arm in ARMS.items()}
        result = curve_result(out, titles, plan.classes, measure, [*notes, *failed.values()])
        result |= {"n_tested": plan.n_tested, "rates": list(plan.rates) or RATES, "failed": failed}
        write_json(out / RESULT, result)
        write_report(text_curve_page(result), out / PAGE)
    return result


def _check(arms: Sequence[str], labels: Sequence[int], seeds: int, rates: Sequence[float], measure: str) -> None:
    if unknown := [name for name in arms if name not in ARMS]:
        raise UserError(f"--arm: expected some of {', '.join(ARMS)}, got {', '.join(unknown)}")
    if seeds < 1:
        raise UserError(f"--seeds: expected 1 or more, got {seeds}")
    if wrong := [rate for rate in rates if not rate > 0]:
        raise UserError(f"--rate: expected more than 0, got {wrong[0]:g}")
    if measure not in MEASURES:
        raise UserError(f"--measure: expected one of {', '.join(MEASURES)}, got {measure}")


def _plan(
    out: Path,
    opened: TextModel,
    data: Sequence[str | Path],
    test: Sequence[str | Path],
    settings: TextFinetuneConfig,
    rates: Sequence[float],
    labels: Sequence[int],
    notes: list[str],
    *,
    overwrite: bool,
) -> _Plan:
    """Reads the data, and what the folder was begun with; writes nothing."""
    had = read_json(out / MANIFEST) if (out / MANIFEST).is_file() else {}
    if had.get("kind", "text_curve") != "text_curve":
        raise UserError(f"{out}: expected a folder of a curve on text, got something else; choose another --out")
    had = {} if overwrite else had
    rows, given = read_rows(data, settings).labelled(), []
    notes += [message for messages in rows.told["notes"].values() for message in messages]
    classes = tuple(text.classes_of([row.label for row in rows.rows]))
    if test:
        found = read_rows(test, settings)
        notes += [message for messages in found.told["notes"].values() for message in messages]
        tested = Classify("classes", classes).known(found.labelled(), notes)
        if not len(tested):
            what = f"texts of the classes {', '.join(classes)}"
            raise UserError(f"{', '.join(map(str, test))}: expected {what} to test on, found none; check columns.label")
        theirs = set(digests(tested))
        kept = [i for i, one in enumerate(digests(rows)) if one not in theirs]
        if len(kept) < len(rows):
            n = len(rows) - len(kept)
            notes.append(f"{n} texts of the data, or others of their groups, are tested on: they are not trained on")
        if seen := seen_before(tested, opened.folder):
            notes.append(f"{seen} tested texts are what the model was trained on or chosen by: results are too good")
        rows, given = select(rows, kept), tested.rows
    if len(classes) < 2:
        raise UserError(
            f"labels: expected texts of two classes or more, got {', '.join(classes) or 'none'}; label more"
        )
    n_tested = len(given) or had.get("n_tested") or _n_tested(len(rows), labels)
    depends_on = {
        "from": content_of_model(opened),
        "data": rows.identity(),
        "test": Rows(given, {}).identity() if given else "",
        "n_tested": n_tested,
        "rates": list(map(float, rates)),
        "settings": settings.model_dump(mode="json", exclude={"training": set(ANY_TIME)}),
        "bothways": version("bothways"),
        "torch": torch.__version__,
    }
    if others := differing(had.get("depends_on", depends_on), json.loads(json.dumps(depends_on))):
        raise UserError(
            f"{out}: was begun with other settings or data ({'; '.join(others)}); use those, choose another --out, or "
            "pass --overwrite to begin anew"
        )
    both = Rows([*rows.rows, *given], rows.told)
    return _Plan(out, opened, both, len(rows), n_tested, classes, settings, tuple(map(float, rates)), depends_on)


def _n_tested(n: int, asked: Sequence[int]) -> int:
    """Returns how many of n texts to keep out for tests."""
    least = 1 if asked else min(LEAST_TESTED, round(MOST_TESTED * n))
    most = max((size for size in asked or SIZES if size <= n - least), default=0)
    return max(1, min(round(MOST_TESTED * n), n - most))


def _draws(plan: _Plan, seeds: int, labels: Sequence[int], notes: list[str]) -> tuple[list[_Drawn], list[int]]:
    """Draws whose labels are used and who is tested; returns the numbers of labels, too."""
    drawn = [_draw(plan, plan.settings.training.seed + i) for i in range(seeds)]
    most, fewest = min(len(one.order) for one in drawn), len(plan.classes)
    if wrong := [n for n in labels if not fewest <= n <= most]:
        raise UserError(
            f"--labels: expected {fewest} (one for each class) to {most} (beside {plan.n_tested} to test on), got "
            f"{', '.join(map(str, wrong))}; choose others, or give --test"
        )
    sizes = sorted(set(labels)) or [n for n in SIZES if fewest <= n <= most]
    if not sizes:
        raise UserError(f"--labels: expected numbers of labels, as there are {most} texts to train on; give some")
    if left := [f"{n:,}" for n in SIZES if n > most and not labels]:
        notes.append(f"not with {' or '.join(left)} labels: the data leaves {most:,} texts to train on")
    tested = [Counter(str(plan.rows.rows[i].label) for i in one.tested) for one in drawn]
    if few := [name for name in plan.classes if min(counts[name] for counts in tested) < FEW]:
        notes.append(f"fewer than {FEW} tested texts are {', '.join(few)}")
    return drawn, sizes


def _draw(plan: _Plan, seed: int) -> _Drawn:
    place = {id(row): i for i, row in enumerate(plan.rows.rows)}
    own, tested = select(plan.rows, range(plan.n_own)), list(range(plan.n_own, len(plan.rows)))
    if not tested:
        own, kept_out = divide_rows(own, plan.n_tested / plan.n_own, seed, "tested texts")
        tested = [place[id(row)] for row in kept_out.rows]
    order = nested_order(own.strata(), generator("labelled texts", seed))
    return _Drawn(seed, [place[id(own.rows[i])] for i in order], tested)


def _begin(plan: _Plan, drawn: Sequence[_Drawn], *, overwrite: bool) -> None:
    """Writes down what the curve depends on and whom it draws."""
    if overwrite:
        for entry in plan.out.iterdir():
            if entry.name != "lock":
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    (plan.out / "subsets").mkdir(exist_ok=True)
    for one in drawn:
        named = {
            part: [[plan.rows.rows[i].file, plan.rows.rows[i].row] for i in numbers]
            for part, numbers in (("train", one.order), ("test", one.tested))
        }
        known = {name: plan.depends_on[name] for name in ("data", "test")}
        told = {"seed": one.seed, "columns": ["file", "row"], **named, "identity": known}
        write_json(plan.out / "subsets" / f"seed-{one.seed}.json", told)
    write_json(plan.out / MANIFEST, {"kind": "text_curve", "n_tested": plan.n_tested, "depends_on": plan.depends_on})


def _do(plan: _Plan, trials: Sequence[tuple[int, _Drawn, str]]) -> dict[str, str]:
    """Does what is not done yet; returns what failed, and why."""
    files = [plan.out / "results" / name / f"labels-{n}-seed-{drawn.seed}.json" for n, drawn, name in trials]
    left = [i for i, file in enumerate(files) if not file.is_file()]
    took: dict[tuple[str, int], list[float]] = {}
    failed: dict[str, str] = {}
    for done, i in enumerate(left):
        n, drawn, name = trials[i]
        to_come = [(trials[j][2], trials[j][0]) for j in left[done:]]
        seconds = f", {sum(np.mean(took[one]) for one in to_come):.0f} s left" if {*to_come} <= took.keys() else ""
        what = f"{ARMS[name].title}, {n:,} labels, seed {drawn.seed}"
        print(f"text curve: {done}/{len(left)} done{seconds}, now {what}", file=sys.stderr, flush=True)
        begun = time.monotonic()
        try:
            with interruptible("text curve"), said_once() as notes:
                found = _measured(plan, name, n, drawn)
        except UserError as problem:
            failed[f"{name}/{files[i].stem}"] = f"no {what}: {problem}"
            continue
        except Interrupted as problem:
            kept = f"{done - len(failed)} of {len(left)} results are kept; to go on, run the same command again"
            raise Interrupted(f"text curve: stopped by a signal; {kept}", problem.status) from None
        took.setdefault((name, n), []).append(time.monotonic() - begun)
        files[i].parent.mkdir(parents=True, exist_ok=True)
        write_json(files[i], {**found, "seconds": time.monotonic() - begun, "notes": notes})
    if failed and not any((plan.out / "results").glob("*/*.json")):
        raise UserError(next(iter(failed.values())))
    return failed


def _measured(plan: _Plan, name: str, n: int, drawn: _Drawn) -> dict[str, Any]:
    """Learns from n labels and measures it."""
    arm, own = ARMS[name], drawn.order[:n]
    training, tested = select(plan.rows, own), select(plan.rows, drawn.tested)
    task = Classify.of(training, plan.settings)
    seeded = plan.settings.training.model_copy(update={"seed": drawn.seed})
    settings = plan.settings.model_copy(update={**arm.settings, "training": seeded})
    if name == "tfidf":
        scores, told = tfidf(training, tested, task)
    elif arm.features is not None:
        scores, told = _frozen(plan, task, settings, arm.features, own, drawn.tested)
    else:
        rates = plan.rates or RATES.get(name, (1.0,))
        scores, told = _trained(plan, task, settings, f"{name}-{n}-{drawn.seed}", rates, training, tested)
    metrics = classification_metrics(task.targets(tested), scores, plan.classes, n_bootstrap=2)
    probabilities = [[round(float(p), 6) for p in row] for row in scores]
    return {
        "arm": name, "labels": n, "seed": drawn.seed, "n": metrics["n"], **{key: metrics[key] for key in MEASURES},
        **told, "probabilities": probabilities,
    }  # fmt: skip


def _frozen(
    plan: _Plan, task: Classify, settings: TextFinetuneConfig, features: str, own: list[int], tested: list[int]
) -> tuple[Float[np.ndarray, "n k"], dict[str, Any]]:
    """Fits a head to vectors that are computed once."""
    vectors, training = _vectors(plan, task, settings, features), select(plan.rows, own)
    place = {id(plan.rows.rows[i]): i for i in own}
    rest, kept_out = divide_rows(training, settings.validation_fraction, settings.training.seed)
    chosen = len(kept_out) > 0 and settings.validation_fraction > 0
    parts = {"train": rest, "validation": kept_out} if chosen else {"train": training}
    of = {name: vectors[[place[id(row)] for row in rows.rows]] for name, rows in parts.items()}
    strength = fit_head(task, settings, of, {name: task.targets(rows) for name, rows in parts.items()})[2]
    whole = {"train": vectors[own]}, {"train": task.targets(training)}
    weight, bias, _ = fit_head(task, settings, *whole, strengths=None if strength is None else (strength,))
    told = {"chosen_by": len(kept_out) if chosen and strength is not None else 0, "strength": strength}
    return softmax(vectors[tested] @ weight.T + bias, axis=1), told


def _vectors(plan: _Plan, task: Classify, settings: TextFinetuneConfig, features: str) -> Float[np.ndarray, "n D"]:
    """Returns the vectors of all rows, from the folder where they are there."""
    file = plan.out / "vectors" / f"{features}.npy"
    if not file.is_file():
        settings = with_features(settings.model_copy(update={"frozen": True, "features": features}))
        model, _ = start_model(plan.opened, settings, task.head(settings))
        length = length_of(plan.opened, settings)
        tokens = task.prepare(plan.rows, plan.opened.tokenizer, length, settings)
        made = vectors_of(model, tokens, plan.opened.tokenizer.pad_id, f"vectors, {features}")
        file.parent.mkdir(exist_ok=True)
        with replacing(file) as stream:
            np.save(stream, made, allow_pickle=False)
    return np.load(file, allow_pickle=False)


def _trained(
    plan: _Plan,
    task: Classify,
    settings: TextFinetuneConfig,
    name: str,
    rates: Sequence[float],
    training: Rows,
    tested: Rows,
) -> tuple[Float[np.ndarray, "n k"], dict[str, Any]]:
    """Trains with each rate and takes the model that is best on what is kept out of its labels."""
    kept_out = None
    if len(rates) > 1 or settings.training.patience:
        training, chosen = divide_rows(training, settings.validation_fraction or 0.1, settings.training.seed)
        kept_out = chosen if len(chosen) else None
    best: tuple[float, Float[np.ndarray, "n k"], dict[str, Any]] | None = None
    for rate in rates:
        learning = settings.training.model_copy(update={"learning_rate": settings.training.learning_rate * rate})
        folder = plan.out / "runs" / f"{name}-rate-{rate:g}"
        result = learn(plan.opened, training, kept_out, folder, settings.model_copy(update={"training": learning}))
        score = 0.0 if kept_out is None else task.score(result["validation"])
        if best is None or score > best[0]:
            run = open_model(folder)
            tokens = task.prepare(tested, run.tokenizer, length_of(run, settings), settings)
            told = {
                "chosen_by": len(kept_out or ()), "learning_rate": learning.learning_rate, "steps": result["steps"],
            }  # fmt: skip
            best = score, task.told(run.model, tokens, run.tokenizer.pad_id, "test"), told
    assert best is not None
    for rate in rates:
        shutil.rmtree(plan.out / "runs" / f"{name}-rate-{rate:g}")
    return best[1], best[2]

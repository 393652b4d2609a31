"""`bothways eeg compare`: a pretrained encoder beside its controls, on the same splits and seeds.

OUT/manifest.json          what the comparison depends on; there from the first moment
OUT/recipe.toml            the settings of all trainings, filled in
OUT/splits/N.json          the splits
OUT/arms/ARM/TRIAL.json    what is finished, one file for an arm and a trial
OUT/runs/ARM/TRIAL-…       the trained models
OUT/compare.json           the result, and OUT/report.html the same as a page
"""

import hashlib
import json
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bothways import eeg
from bothways.config import ANY_TIME, FinetuneConfig, load_config, to_toml
from bothways.errors import Interrupted, UserError
from bothways.evaluation import (
    Split,
    classification_metrics,
    few_subjects,
    people_recalls,
    repeated_splits,
    side_by_side,
)
from bothways.files import check_output, locked, read_json, write_json, write_text
from bothways.report import write_report
from bothways.run.arms import ARMS, CONTROLS, TRIVIAL, Trial, check_asked
from bothways.run.common import (
    Sources,
    check_contract,
    check_eeg,
    content_of,
    fill_channels,
    label_sets,
    of_subjects,
    said_once,
    strata,
    usable,
)
from bothways.run.compare_page import page
from bothways.run.finetune import LABELLED, SCRATCH, finetune
from bothways.run.leaks import pretraining_overlap
from bothways.run.targets import need_classes
from bothways.training import (
    MANIFEST,
    RECIPE,
    content_of_run,
    interruptible,
    join,
    load_config_of,
    load_manifest,
    run_at,
)

RESULT, PAGE = "compare.json", "report.html"
PARTS = ("train", "validation", "test")
RESULTS = 2
"""Number of the form in which results are kept; those of another cannot be gone on with."""
RATES = (0.3, 1.0, 3.0)
"""Learning rates that each training arm tries, as multiples of the recipe's."""


@dataclass
class _Plan:
    """What is to be done, and with what."""

    out: Path
    trials: list[Trial]
    """Those that are asked for, then those that the folder was asked for earlier."""
    n_asked: int
    classes: list[str]
    overlaps: list[dict[str, Any]]
    notes: list[str] = field(default_factory=list)


def compare(
    start: str | Path | Sequence[str | Path],
    data: str | Path,
    labels: str | Path,
    out: str | Path,
    *,
    recipe: str | Path | None = None,
    changes: Sequence[str] = (),
    splits: Sequence[str | Path] = (),
    seeds: int = 5,
    rates: Sequence[float] = RATES,
    arms: Sequence[str] = (),
    overwrite: bool = False,
) -> dict[str, Any]:
    """Trains and measures every arm on the same people, seeds and budget, and puts them side by side.

    A seed draws the first weights, the order of the windows and, where no split file is given, a split of its own
    (people are tested about equally often; where they have not all the same classes, parts have them as alike as can
    be). With split files trial i has the i-th of them, in turns, and seed i.
    Every training has the same steps and tries the same learning rates; the one that is best on the validation
    people counts. What is finished is kept in `out` and not done again; `seeds` and `arms` may grow, and the
    result is of all that is finished there, asked for this time or not.

    Args:
        start: a pretrained run, or one for each split file; `scratch`: controls alone.
        data: a store.
        labels: as `finetune` takes them.
        out: folder of the comparison.
        recipe: TOML of `config.FinetuneConfig`; encoder and patches are those of the pretrained run.
        changes: `a.b=value` on top of it.
        splits: split files.
        seeds: how many trials, at least one for each split file.
        rates: learning rates to try, as multiples of the recipe's. Where there are several, the logistic regressions
            try several C, on the validation people too.
        arms: names of `arms.ARMS`; all where none is given.
        overwrite: begin anew.

    Returns:
        `out`, `classes`, `seeds`, `trials` (name, split, seed), `arms` (name -> `title`, `control`, `given`, `trained`
        and `encoder` (parameters), and what `evaluation.side_by_side` says of it), `strongest_control`, `differences`
        (arm -> control -> …), `every_control` (arm -> whether it is above all of them), `failed` (arm -> trial ->
        reason), `pretraining_overlap` (of each split), `notes`, `seconds`.

    Raises:
        UserError: the parts do not fit together, or `out` was begun with others.
        Interrupted: a signal came; what was finished is kept.
    """
    out = Path(out)
    starts = [start] if isinstance(start, str | Path) else list(start)
    check_asked(arms, seeds, rates)
    if join().size > 1:
        raise UserError("compare: runs in one process, got several; start it without torchrun")
    if not starts or len(starts) not in (1, len(splits)):
        raise UserError(
            f"--from: expected one run, or one for each of the {len(splits)} split files, got {len(starts)}; a run for "
            "each split is one that has not seen the split's tested people"
        )
    begun = not overwrite and (out / MANIFEST).is_file()
    inputs = [data, *splits, *(path for path in (labels, *starts) if str(path) not in (SCRATCH, eeg.EVENTS))]
    check_output(out, overwrite=overwrite or begun, inputs=inputs)
    runs = [None if str(one) == SCRATCH else run_at(Path(one)) for one in starts]
    settings = load_config(FinetuneConfig, Path(recipe) if recipe else None, changes)
    need_classes(settings, "compare")
    wanted = [name for name in ARMS if not arms or name in arms]
    busy = f"{out}: another process compares there; wait until it is done"
    with locked(out / "lock", busy):
        try:
            with interruptible("compare"), said_once() as notes:
                store = eeg.Store.open(data)
                settings = _filled(settings, runs, store)
                factors = tuple(map(float, rates))
                plan = _plan(out, store, str(labels), settings, runs, splits, seeds, factors, notes, overwrite)
        finally:
            if not (out / MANIFEST).is_file():  # nothing to go on from
                shutil.rmtree(out, ignore_errors=True)
        if None in runs:
            notes += [f"no {ARMS[name].title}: no pretrained run is given" for name in wanted if ARMS[name].pretrained]
            wanted = [name for name in wanted if not ARMS[name].pretrained]
        failed = _do(plan, wanted)
        result = _result(plan, failed)
        write_json(out / RESULT, result)
        write_report(page(result), out / PAGE)
    return result


def _filled(settings: FinetuneConfig, runs: Sequence[Path | None], store: eeg.Store) -> FinetuneConfig:
    """Gives the settings the encoder and patches of the pretrained runs: the arm from scratch has the same."""
    pretrained = [run for run in runs if run is not None]
    configs = [load_config_of(run) for run in pretrained]
    for start, config in zip(pretrained, configs):
        check_eeg(config, start)
        check_contract(config, store)
    if configs:
        first = configs[0]
        for run, config in zip(runs, configs):
            if (config.encoder, config.patches) != (first.encoder, first.patches):
                raise UserError(f"{run}: has another encoder than {runs[0]}; compare runs of one form")
        settings = settings.model_copy(update={"encoder": first.encoder, "patches": first.patches})
    else:
        settings = settings.model_copy(update={"patches": fill_channels(settings.patches, store)})
    if settings.training.batch_size == "auto":
        raise UserError("training.batch_size: compare gives all arms the same batches: expected a number, got auto")
    return settings


def _plan(
    out: Path,
    store: eeg.Store,
    labels: str,
    settings: FinetuneConfig,
    runs: Sequence[Path | None],
    split_files: Sequence[str | Path],
    seeds: int,
    rates: tuple[float, ...],
    notes: list[str],
    overwrite: bool,
) -> _Plan:
    """Finds the windows, divides the people, and opens the folder."""
    given = eeg.find_labels(labels, store, settings.labels)
    windows = eeg.cut_windows(store, settings.windows, labels=given, rules=settings.labels)
    windows = windows.select(windows.label >= 0)
    first = settings.training.seed
    n_asked = max(seeds, len(split_files))
    n_trials = max(n_asked, 0 if overwrite else _begun(out).get("trials", 0))
    drawn = trial_splits(windows, settings, split_files, n_trials)
    neutral = {"labelled_subjects": 0}
    if not split_files:
        neutral |= {n: FinetuneConfig.model_fields[n].default for n in ("train_fraction", "validation_fraction")}
    settings = settings.model_copy(update=neutral)
    chosen = [(replace(split, seed=None, note=""), runs[i % len(runs)]) for i, split in enumerate(drawn)]
    distinct = list(dict.fromkeys(chosen))
    if len(rates) > 1 and not all(split.validation for split, _ in distinct):
        notes.append("one learning rate alone is tried: a split has no validation people to choose by")
        rates = (1.0,)
    depends_on = {
        "from": [SCRATCH if run is None else content_of_run(run) for run in runs],
        "data": content_of(store),
        "labels": hashlib.sha256(json.dumps([asdict(row) for row in given.rows]).encode()).hexdigest(),
        "rates": list(rates),
        "splits": [asdict(split) for split, _ in distinct],
        "settings": settings.model_dump(mode="json", exclude={"training": set(ANY_TIME)}),
        "results": RESULTS,
        "bothways": version("bothways"),
        "torch": torch.__version__,
    }
    depends_on = _checked(out, json.loads(json.dumps(depends_on)), overwrite)
    (out / "splits").mkdir(exist_ok=True)
    write_text(out / RECIPE, to_toml(settings))
    plans, overlaps = [], []
    for number, (split, run) in enumerate(distinct, 1):
        split.save(out / "splits" / f"{number}.json")
        told = finetune(
            run or SCRATCH, store.path, labels, out / "runs" / "none",
            recipe=out / RECIPE, split=out / "splits" / f"{number}.json", dry_run=True,
        )  # fmt: skip
        if lacking := [name for name, n in told["windows"]["train"].items() if n == 0]:
            raise UserError(f"split {number}: no training person has {', '.join(lacking)}; choose others or a seed")
        plans.append(told)
        earlier = None if run is None else load_manifest(run)
        overlaps.append({"split": number, **pretraining_overlap(earlier, store, told["split"]["test"], split)})
    write_json(out / MANIFEST, {"kind": "compare", "depends_on": depends_on, "trials": n_trials})
    classes: list[str] = plans[0]["classes"]
    everybody = {name for told in plans for part in PARTS for name in told["split"][part]}
    windows = _kept(of_subjects(windows, everybody), classes, Sources(store, settings.patches))
    trials, of_split = [], [distinct.index(one) for one in chosen]
    for i, number in enumerate(of_split):
        parts = {part: of_subjects(windows, plans[number]["split"][part]) for part in PARTS}
        trials.append(
            Trial(
                name=f"split-{number + 1}-seed-{first + i}",
                store=store,
                labels=labels,
                settings=settings,
                recipe=out / RECIPE,
                patches=settings.patches,
                classes=classes,
                training=parts["train"],
                validation=parts["validation"],
                tested=parts["test"],
                split=out / "splits" / f"{number + 1}.json",
                seed=first + i,
                start=distinct[number][1],
                rates=rates,
                folder=out / "runs",
            )
        )
    return _Plan(out, trials, n_asked, classes, overlaps, notes)


def trial_splits(
    windows: eeg.Windows, settings: FinetuneConfig, split_files: Sequence[str | Path], seeds: int
) -> list[Split]:
    """Returns the split of each trial: of the files in turn, or each drawn by its seed, stratified by people's classes.

    With `labelled_subjects` those that are left of the training people depend on the seed, are nested (the 2 contain
    the 1), and have the classes as alike as can be; only who has a labelled window counts.
    """
    first, few = settings.training.seed, settings.labelled_subjects
    people = windows.subject.tolist()
    if split_files:
        files = [Split.load(Path(path)) for path in split_files]
        drawn = [files[i % len(files)] for i in range(max(seeds, len(files)))]
    else:
        fractions = {name: getattr(settings, name) for name in ("train_fraction", "validation_fraction")}
        drawn = repeated_splits(people, seeds, seed=first, stratify=strata(windows), **fractions)
    if not few:
        return drawn
    classes = label_sets(windows)
    return [few_subjects(split.among(people, LABELLED)[0], few, first + i, classes) for i, split in enumerate(drawn)]


def _kept(windows: eeg.Windows, classes: list[str], sources: Sources) -> eeg.Windows:
    """Returns the windows that hold something, by the numbers of the classes that there are."""
    number = np.array([classes.index(name) if name in classes else -1 for name in windows.classes])
    return usable(sources, replace(windows, label=number[windows.label], classes=classes))


def _checked(out: Path, mine: dict[str, Any], overwrite: bool) -> dict[str, Any]:
    """Returns what the folder depends on; with `overwrite` it is emptied.

    Raises:
        UserError: it was begun with other settings or data; the differences are named.
    """
    if overwrite:
        for entry in out.iterdir():
            if entry.name != "lock":
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    had = _begun(out).get("depends_on", mine)
    n = min(len(had["splits"]), len(mine["splits"]))  # more seeds may bring more splits
    before, now = ({**one, "splits": one["splits"][:n]} for one in (had, mine))
    if differing := list(_differences(before, now)):
        raise UserError(
            f"{out}: was begun with other settings or data ({'; '.join(differing)}); use those, choose another "
            "--out, or pass --overwrite to begin anew"
        )
    return max(had, mine, key=lambda one: len(one["splits"]))


def _begun(out: Path) -> dict[str, Any]:
    """Reads what the folder depends on and the number of trials that it was asked for; of a new one, nothing."""
    theirs = read_json(out / MANIFEST) if (out / MANIFEST).is_file() else {"kind": "compare"}
    if not isinstance(theirs, dict) or theirs.get("kind") != "compare":
        raise UserError(f"{out}: expected a folder of compare, got something else; choose another --out")
    return theirs


def _differences(theirs: Any, mine: Any, name: str = "") -> Iterator[str]:
    if isinstance(theirs, dict) and isinstance(mine, dict):
        for key in dict.fromkeys([*theirs, *mine]):
            inside = key if name in ("", "settings") else f"{name}.{key}"
            yield from _differences(theirs.get(key), mine.get(key), inside)
    elif theirs != mine:
        short = [text if len(text := json.dumps(one)) < 40 else f"{text[:36]} …" for one in (theirs, mine)]
        yield f"{name}: {short[0]}, now {short[1]}"


def _do(plan: _Plan, wanted: Sequence[str]) -> dict[str, dict[str, str]]:
    """Does what is asked for and not done yet; returns what failed: arm -> trial -> reason."""
    failed: dict[str, dict[str, str]] = {}
    reasons: dict[Path, str] = {}
    asked = plan.trials[: plan.n_asked]
    files = {(name, trial.name): _file(plan, name, trial) for name in wanted for trial in asked}
    left = {file for file in files.values() if not file.is_file()}
    n_done, total = 0, len(left)
    took: dict[bool, list[float]] = {True: [], False: []}  # trainings last long, other arms do not
    for name in wanted:
        for trial in asked:
            file = files[name, trial.name]
            if file in left:
                to_come = [arm for arm, _ in {one: key for key, one in files.items() if one in left}.values()]
                _say_where(n_done, total, took, to_come, f"{ARMS[name].title}, {trial.name}")
                begun = time.monotonic()
                try:
                    with interruptible("compare"), said_once() as said:
                        entry = _scored(name, trial)
                    entry["notes"] = said
                    file.parent.mkdir(parents=True, exist_ok=True)
                    write_json(file, entry)
                except UserError as problem:
                    reasons[file] = str(problem)
                except Interrupted as problem:
                    kept = f"{n_done} of {total} results are kept; to go on, run the same command again"
                    raise Interrupted(f"compare: stopped by a signal; {kept}", problem.status) from None
                took[ARMS[name].drawn].append(time.monotonic() - begun)
                left.discard(file)
                n_done += 1
            if file in reasons:
                failed.setdefault(name, {})[trial.name] = reasons[file]
    return failed


def _finished(plan: _Plan) -> tuple[list[Trial], dict[str, dict[str, Any]], list[str]]:
    """Reads all that is finished.

    Returns the trials (of those not asked for now the ones with a result of their own), arm -> trial -> what it gave
    and the `fit` that it is of, and a note of results that are of no trial.
    """
    there = {path for path in (plan.out / "arms").glob("*/*.json") if path.parent.name in ARMS}
    trials: list[Trial] = []
    counted: set[Path] = set()
    for i, trial in enumerate(plan.trials):
        own = {_file(plan, name, trial) for name in ARMS} & there
        if i < plan.n_asked or own - counted:
            trials.append(trial)
            counted |= own
    done: dict[str, dict[str, Any]] = {}
    for name in ARMS:
        for trial in trials:
            if (file := _file(plan, name, trial)) in there:
                done.setdefault(name, {})[trial.name] = read_json(file) | {"fit": file.stem}
    unused = f"{len(there - counted)} finished results in {plan.out / 'arms'} are of other split files: not told here"
    return trials, done, [unused] if there - counted else []


def _say_where(n_done: int, total: int, took: dict[bool, list[float]], to_come: Sequence[str], what: str) -> None:
    """Says where the work stands, with rate and time left as far as they are known, on standard error."""
    mean = {drawn: float(np.mean(seconds)) for drawn, seconds in took.items() if seconds}
    known = all(ARMS[name].drawn in mean for name in to_come)
    words = {True: "training", False: "fit"}
    rate = ", ".join(f"{seconds:.1f} s a {words[drawn]}" for drawn, seconds in mean.items())
    left = f", {sum(mean[ARMS[name].drawn] for name in to_come):.0f} s left" if known else ""
    rate = f" ({rate}{left})" if rate else ""
    print(f"compare: {n_done}/{total} done{rate}, now {what}", file=sys.stderr, flush=True)


def _file(plan: _Plan, name: str, trial: Trial) -> Path:
    """Where an arm's result lies; one for all seeds of a split where the seed changes nothing."""
    which = trial.name if ARMS[name].drawn else f"split-{trial.split.stem}"
    return plan.out / "arms" / name / f"{which}.json"


def _scored(name: str, trial: Trial) -> dict[str, Any]:
    """Runs an arm and measures it."""
    begun = time.monotonic()
    scored = ARMS[name].score(trial)
    tested = trial.tested
    metrics = classification_metrics(tested.label, scored.scores, trial.classes, tested.subject, n_bootstrap=2)
    people = people_recalls(tested.label, scored.scores, tested.subject, trial.classes)
    if name == "chance":  # what is expected of a guess, not what one guess gave
        share = 1 / len(trial.classes)
        metrics |= {"accuracy": share, "balanced_accuracy": share, "macro_f1": None, "confusion": None}
        people = {person: dict.fromkeys(recalls, share) for person, recalls in people.items()}
    kept = ("n", "accuracy", "balanced_accuracy", "macro_f1", "kappa", "auroc", "confusion")
    return {
        **{key: metrics[key] for key in kept},
        "people": people,
        "trained": scored.trained,
        "encoder": scored.encoder,
        "given": scored.given,
        "seconds": time.monotonic() - begun,
    }


def _result(plan: _Plan, failed: dict[str, dict[str, str]]) -> dict[str, Any]:
    trials, there, unused = _finished(plan)
    compared = side_by_side(there, CONTROLS, TRIVIAL)
    notes = [*plan.notes, *(note for of in there.values() for one in of.values() for note in one["notes"]), *unused]
    for name, done in there.items():
        if len(done) + len(failed.get(name, ())) < len(trials):
            notes.append(
                f"{ARMS[name].title} has {len(done)} of {len(trials)} trials, so its means are of other people or fits "
                f"than those of the rest; --arm {name} --seeds {len(trials)} adds what it lacks"
            )
    splits = {int(trial.split.stem) for trial in trials}
    for name, lacking in failed.items():
        reasons = list(dict.fromkeys(lacking.values()))
        notes.append(f"no {ARMS[name].title} in {len(lacking)} of {len(trials)} trials: {'; '.join(reasons)}")
    if any(value is None for arm in compared["arms"].values() for value in arm["trials"].values()):
        notes.append("the tested people of a split have one class only: its balanced accuracy is undefined")
    return {
        "out": str(plan.out),
        "classes": plan.classes,
        "seeds": len(trials),
        "splits": len(splits),
        "trials": [{"name": trial.name, "split": int(trial.split.stem), "seed": trial.seed} for trial in trials],
        "arms": {
            name: {
                "title": ARMS[name].title,
                "control": name in CONTROLS,
                **{key: next(iter(there[name].values()))[key] for key in ("given", "trained", "encoder")},
                **compared["arms"][name],
            }
            for name in there
        },
        "strongest_control": compared["strongest_control"],
        "differences": compared["differences"],
        "every_control": compared["every_control"],
        "failed": failed,
        "pretraining_overlap": [one for one in plan.overlaps if one["split"] in splits],
        "notes": list(dict.fromkeys(notes)),
        "seconds": sum({(name, e["fit"]): e["seconds"] for name in there for e in there[name].values()}.values()),
    }

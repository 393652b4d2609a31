"""`bothways eeg finetune`."""

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bothways import eeg
from bothways.config import FinetuneConfig, HeadConfig, ModelConfig, load_config
from bothways.errors import BothwaysWarning, UserError
from bothways.evaluation import (
    Split,
    check_classes,
    few_subjects,
    how_good,
    split_subjects,
)
from bothways.model import LoadReport, Model
from bothways.run.common import (
    SCRATCH,
    Sources,
    absent_notes,
    check_contract,
    check_eeg,
    check_names,
    content_of,
    fill_channels,
    fitted_batch,
    guessed_subjects,
    label_sets,
    of_subjects,
    parameters_of,
    provenance,
    strata,
    usable,
)
from bothways.run.leaks import check_split, pretraining_overlap
from bothways.run.targets import Target, target_of
from bothways.run.tasks import head_of, labelled, measured, probabilities, rules_of
from bothways.training import (
    MANIFEST,
    RunFolder,
    check_fits,
    check_place,
    check_run,
    content_of_run,
    interruptible,
    join,
    load_config_of,
    load_manifest,
    load_run,
    open_run,
    run_at,
    train,
)

PARTS = ("train", "validation", "test")
LABELLED = "labelled window"


@interruptible("fine-tune")
def finetune(
    start: str | Path,
    data: str | Path,
    labels: str | Path,
    out: str | Path,
    *,
    recipe: str | Path | None = None,
    changes: Sequence[str] = (),
    split: str | Path | None = None,
    overwrite: bool = False,
    force: bool = False,
    dry_run: bool = False,
    announce: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Trains what the labels ask (see `FinetuneConfig.task`) on top of a pretrained encoder or from scratch.

    A run that was stopped goes on when it is called again, to the same numbers as if it had not been.

    Args:
        start: a pretrained run, or `scratch`: the encoder and patches of the recipe, freshly drawn.
        data: a store.
        labels: `events` = the recordings' own; a CSV `file,label`, `subject,label` or `file,onset_s,duration_s,label`;
            a hypnogram (annotations-only EDF), or a folder of them.
        out: the run's folder.
        recipe: TOML of `config.FinetuneConfig`.
        changes: `a.b=value` on top of it.
        split: a split file; without it the subjects are divided by `training.seed` and the two fractions, where they
            have not all the same classes so that the parts have them as alike as can be. Its people without a labelled
            window are left out, with a note.
        overwrite: replace `out`; begin anew.
        force: go on with a stopped run although its settings or data have changed.
        dry_run: find the labels, cut the windows, divide the people and train nothing; too few people to divide are
            one part, `all`, and `split` is None.
        announce: called before the first step with what is known by then.

    Returns:
        Known before the first step, and all of a dry run: `target` (only of numbers and of several classes at once, see
        `config.LabelConfig.kind`: `kind`, and of a number its `name` and the training windows' `mean` and `sd`),
        `classes`, `task`, `split`, `without_windows` (who is left out of it, per part), `windows` (per part and class),
        `counts` (per part, subject and class), `pretraining_overlap` (how what the weights were trained on before
        touches the validation people, see `leaks.pretraining_overlap`; None without them), `notes`. After it: `run`,
        `finished_before` (it was there already, nothing was done), `from`, `load_report`, `parameters`, `seconds`,
        `windows_per_s`, `loss` (last), `validation` (metrics or None).

    Raises:
        UserError: the parts do not fit together: another contract, one class only, a class without a window, a person
            or recording in two parts (see `leaks.check_split`), a subject not in the store, a class that no training
            subject has (but for a dry run), `out` was begun with others, …
        Interrupted: a signal came; what was done is saved.
    """
    check_names(data, start, out)
    out, start = Path(out), start if str(start) == SCRATCH else run_at(Path(start))
    settings = load_config(FinetuneConfig, Path(recipe) if recipe else None, changes)
    words = (SCRATCH, eeg.EVENTS)  # no files
    inputs = (data, *(path for path in (labels, start) if str(path) not in words))
    check_place(out, overwrite=overwrite, inputs=inputs)
    team = join()
    earlier: dict[str, Any] | None = None
    if str(start) != SCRATCH:
        check_eeg(load_config_of(Path(start)), start)
        config = check_run(Path(start), eeg.build_embedding, any_heads=True)
        earlier = _told_by(Path(start))
    store = eeg.Store.open(data)
    if earlier is not None:
        check_contract(config, store)
    rules, task = rules_of(settings), settings.task
    given = eeg.find_labels(labels, store, rules)
    windows = eeg.cut_windows(store, settings.windows, labels=given, rules=rules, by_moment=task != "window")
    notes = [note.message for note in windows.notes]
    if split is not None:
        changed = settings.model_dump(include={"train_fraction", "validation_fraction"}, exclude_defaults=True)
        notes += [f"{name} has no effect beside a split file" for name in changed]
    windows = windows.select(windows.label >= 0)
    patches = settings.patches if str(start) == SCRATCH else load_config_of(Path(start)).patches
    assert patches is not None
    things = labelled(windows, task, rules.background, round(patches.patch_s * store.signal.sfreq_hz))
    classes, thing = windows.classes, "moment" if task == "moment" else "window"
    target = target_of(rules, things, str(labels))
    if target is not None:
        classes = target.classes
    elif len(set(things.label.tolist())) < 2:
        counts = ", ".join(f"{n} of {name}" for name, n in things.counts()["classes"].items())
        why = f" ({'; '.join(notes[:3])})" if notes else ""
        remedy = "shorten windows.window_s" if task == "window" else "set labels.background"
        raise UserError(
            f"{labels}: expected {thing}s of two classes or more, got {counts or 'none'}{why}; label more, or {remedy}"
        )
    if target is None and (absent := [name for name, n in things.counts()["classes"].items() if n == 0]):
        remedy = "windows.window_s, or lower windows.min_overlap" if task == "window" else "patches.patch_s"
        notes.append(f"no {thing} has the label {', '.join(absent)}, which is no class then; shorten {remedy}")
        classes = [name for name in classes if name not in absent]
        windows, things = windows.with_classes(classes), things.with_classes(classes)
    people = sorted(set(things.subject.tolist()))
    needed = 2 + (settings.validation_fraction > 0)
    if dry_run and split is None and len(people) < needed:
        notes.append(f"a split needs {needed} people or more, got {len(people)} with labels; add people to train")
        notes += guessed_subjects(store, set(people))
        return _announced({"all": people}, things, classes, notes, task, None, {}, target)
    chosen, without, suspicions = _split(store, things, settings, split, target)
    notes += suspicions
    notes += absent_notes(without, LABELLED)
    if target is None:
        found = check_classes(things.label, things.subject, chosen, classes)
    else:
        found = target.lacking(things, chosen)
        target = target.fitted(of_subjects(things, chosen.train), settings)
    for part, lacking in found.items():
        if part == "train" and lacking and not dry_run:
            raise UserError(f"no training subject has {', '.join(lacking)}; choose another split or seed")
        if lacking and getattr(chosen, part):
            moot = part == "validation" and len(classes) - len(lacking) == 1
            then = ": of one class, so step and rate are chosen by accuracy" if moot else ""
            notes.append(f"the {part} subjects have no {thing} of {', '.join(lacking)}{then}")
    notes += guessed_subjects(store, {*chosen.train, *chosen.validation, *chosen.test})
    parts = {part: getattr(chosen, part) for part in PARTS}
    plan = _announced(parts, things, classes, notes, task, asdict(chosen), without, target)
    if chosen.validation:
        plan["pretraining_overlap"] = pretraining_overlap(earlier, store, chosen.validation, chosen)
    if dry_run:
        return plan

    depends_on = {
        "command": "finetune",
        "from": SCRATCH if earlier is None else content_of_run(Path(start)),
        "data": team.first_does(lambda: content_of(store)),
        "labels": hashlib.sha256(json.dumps([asdict(row) for row in given.rows]).encode()).hexdigest(),
        "split": chosen.identity(),
    }
    with open_run(out, settings, depends_on, team, overwrite=overwrite, force=force, inputs=inputs) as folder:
        if folder.result is not None:
            return {**folder.result, "run": str(out), "finished_before": True}
        training = of_subjects(things, chosen.train)
        head = head_of(settings, classes, training) if target is None else target.head(settings)
        told = _train(
            folder, start, store, settings, head, target, windows, chosen, plan, given.rows, earlier, announce
        )
    return {**told, "finished_before": False}


def _train(
    folder: RunFolder,
    start: str | Path,
    store: eeg.Store,
    settings: FinetuneConfig,
    head: HeadConfig,
    target: Target | None,
    windows: eeg.Windows,
    chosen: Split,
    plan: dict[str, Any],
    rows: Sequence[eeg.Span],
    earlier: dict[str, Any] | None,
    announce: Callable[[dict[str, Any]], None] | None,
) -> dict[str, Any]:
    """Trains and finishes the run; returns what is told of it."""
    classes, background = plan["classes"], rules_of(settings).background
    training, validation = of_subjects(windows, chosen.train), of_subjects(windows, chosen.validation)
    model, report, settings = start_model(start, store, settings, head, on_cpu=folder.team.device.type == "cpu")
    assert model.config.patches is not None
    patches, seed = model.config.patches, settings.training.seed
    sources = Sources(store, patches)
    training = usable(sources, training)
    codes = None if target is None else target.codes(windows)
    source = sources.of(
        training, seed=seed, jitter_s=settings.windows.jitter_s, task=settings.task, codes=codes, background=background
    )
    if report is None:
        assert isinstance(model.embedding, eeg.PatchEmbedding)
        eeg.fit_spectrum(model.embedding, source)
    if settings.freeze_encoder:
        model.embedding.requires_grad_(False)
        model.encoder.requires_grad_(False)
    evaluate = None
    if len(validation):
        validation = usable(sources, validation)
        validation_source = sources.of(validation, task=settings.task, background=background)

        def evaluate(m: Model) -> dict[str, Any]:
            if target is not None:
                truth, said = target.truth(validation), target.read(m, validation_source)
                return target.measured(truth, said, validation.subject, n_bootstrap=200)
            return measured(validation_source, probabilities(m, validation_source), classes, n_bootstrap=200)

    if announce is not None:
        announce(plan)
    folder.settings = settings = fitted_batch(settings, model, source, folder)
    folder.manifest = {
        "kind": "finetune",
        "from": SCRATCH if report is None else str(Path(start).absolute()),
        **provenance(store, chosen.train),
        "labels": [asdict(row) for row in rows],
        **plan,
        "pretraining": earlier,
    }
    result = train(
        model,
        source,
        settings.training,
        title="fine-tune",
        evaluate=evaluate,
        score=None if not len(validation) else how_good if target is None else target.score,
        team=folder.team,
        run=folder,
    )
    told = {
        "run": str(folder.path),
        "from": folder.manifest["from"],
        **plan,
        "load_report": None if report is None else report.as_dict(),
        "parameters": parameters_of(model),
        **result.told("windows"),
        "validation": result.evaluation,
    }
    folder.finish(model, told)
    return told


def _announced(
    parts: Mapping[str, Sequence[str]],
    windows: eeg.Windows,
    classes: list[str],
    notes: list[str],
    task: str,
    split: dict[str, Any] | None,
    absent: dict[str, list[str]],
    target: Target | None,
) -> dict[str, Any]:
    """Warns of the notes and returns what is known before the first step."""
    for note in notes:
        warnings.warn(note, BothwaysWarning, stacklevel=3)
    own = {part: of_subjects(windows, subjects) for part, subjects in parts.items()}
    per_part = {part: some.counts() if target is None else target.counts(some) for part, some in own.items()}
    return {
        **({} if target is None else {"target": target.told()}),
        "classes": classes,
        "task": task,
        "split": split,
        "without_windows": absent,
        "windows": {part: counted["classes"] for part, counted in per_part.items()},
        "counts": {part: counted["subjects"] for part, counted in per_part.items()},
        "pretraining_overlap": None,
        "notes": notes,
    }


def _split(
    store: eeg.Store,
    windows: eeg.Windows,
    settings: FinetuneConfig,
    path: str | Path | None,
    target: Target | None,
) -> tuple[Split, dict[str, list[str]], list[str]]:
    """The people who have windows, in parts, those of a split file who have none, and what may be a leak."""
    seed = settings.training.seed
    if path is None:
        split = split_subjects(
            windows.subject.tolist(),
            seed=seed,
            train_fraction=settings.train_fraction,
            validation_fraction=settings.validation_fraction,
            stratify=strata(windows) if target is None else None,
        )
    else:
        split = Split.load(Path(path))
    split.check_known(recording.subject for recording in store.recordings)
    notes = check_split(split, store)
    split, absent = split.among(windows.subject.tolist(), LABELLED)
    if settings.labelled_subjects:
        classes = label_sets(windows) if target is None else None  # as `compare` draws them
        split = few_subjects(split, settings.labelled_subjects, seed, classes)
    return split, absent, notes


def start_model(
    start: str | Path, store: eeg.Store, settings: FinetuneConfig, head: HeadConfig, *, on_cpu: bool
) -> tuple[Model, LoadReport | None, FinetuneConfig]:
    """Builds the model; from a run, with its encoder, front end and weights, which the load report accounts for."""
    heads: dict[str, HeadConfig] = {head.kind: head}
    seed = settings.training.seed
    if str(start) == SCRATCH:
        settings = settings.model_copy(update={"patches": fill_channels(settings.patches, store)})
        config = ModelConfig(encoder=settings.encoder, patches=settings.patches, signal=store.signal, heads=heads)
        check_fits(config, eeg.build_embedding, "settings", trained=on_cpu)
        model = Model(config, eeg.build_embedding(config))
        model.initialise(seed)
        return model, None, settings
    theirs = load_config_of(Path(start))
    config = theirs.model_copy(update={"heads": heads})
    assert config.patches is not None
    for name in ("encoder", "patches"):
        wanted, default = getattr(settings, name), getattr(FinetuneConfig(), name)
        if wanted not in (default, getattr(config, name), *_unfilled(config)):
            message = f"[{name}] of the recipe has no effect with --from {start}: the run's own is used"
            warnings.warn(message, BothwaysWarning, stacklevel=3)
    model = load_run(Path(start), eeg.build_embedding, heads=heads, seed=seed)
    report, trained = model.load_report, theirs.heads.get(head.kind)
    assert report is not None
    if trained is not None and report.other_classes:
        message = f"{start}: its head is drawn anew, it tells {', '.join(trained.classes)} apart"
        warnings.warn(message, BothwaysWarning, stacklevel=3)
    elif trained is not None and head.kind not in report.new_heads and trained.pool != head.pool:
        message = f'{start}: its head was trained with pool = "{trained.pool}" and goes on with "{head.pool}"'
        warnings.warn(message, BothwaysWarning, stacklevel=3)
    settings = settings.model_copy(update={"encoder": config.encoder, "patches": config.patches})
    return model, report, settings


def _told_by(start: Path) -> dict[str, Any]:
    """Returns the manifest of a run to start from; of weights and a config alone, that nothing is known."""
    if os.path.lexists(start / MANIFEST):
        manifest = load_manifest(start)
        if not isinstance(manifest.get("kind"), str):
            raise UserError(f"{start / MANIFEST}: expected the kind of the run, found none; restore the file")
        return manifest
    message = (
        f"{start}: has no {MANIFEST}: what it was trained on is not known, nor whether it has seen the people that it "
        "will be tested on"
    )
    warnings.warn(message, BothwaysWarning, stacklevel=3)
    return {"kind": "unknown"}


def _unfilled(config: ModelConfig) -> list[Any]:
    assert config.patches is not None
    return [config.patches.model_copy(update={"ch_names": ()})]

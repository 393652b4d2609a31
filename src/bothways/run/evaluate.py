"""`bothways eeg evaluate`."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from bothways import eeg
from bothways.config import PatchConfig
from bothways.errors import UserError
from bothways.evaluation import (
    SZCORE,
    EventRules,
    chance,
    classification_metrics,
    compare_arms,
    fit_logistic,
    majority,
    metrics_by_level,
    ridge_probe,
    sleep_scores,
    temperature_scaling,
)
from bothways.files import write_json
from bothways.model import Model
from bothways.report import write_report
from bothways.run.common import (
    SCRATCH,
    Sources,
    band_powers,
    check_page,
    control_patches,
    guessed_subjects,
    of_subjects,
    usable,
)
from bothways.run.evaluate_target import evaluate_target
from bothways.run.evaluation_page import evaluation_page
from bothways.run.leaks import pretraining_overlap
from bothways.run.target_page import target_page
from bothways.run.targets import SAID, target_of_model
from bothways.run.tasks import event_scores, labelled, measured, merged_notes, probabilities, rules_of, told
from bothways.run.tested import EVALUATION, frozen_encoder, open_tested
from bothways.training import cls_features, infer


def evaluate(
    run: str | Path,
    *,
    data: str | Path | None = None,
    part: str = "test",
    event_rules: Sequence[str] = (),
    html: str | Path | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Measures a fine-tuned run on people it was not trained on, beside controls on the same split.

    The controls: chance, majority, band power + logistic regression (of the channels that all recordings have), and
    a closed-form probe on the frozen encoder that the run started from. One that cannot be had is left out with a
    note. The result is also written to `evaluation.json` (`evaluation-validation.json`) in the run.

    Args:
        run: a fine-tuned run.
        data: its store, where it has moved.
        part: `test` or `validation`.
        event_rules: what counts as one event and as found where it is not as SzCORE has it for seizures:
            `name=seconds` of `evaluation.EventRules`.
        html: file to write a page to.
        overwrite: replace that file.

    Returns:
        `run`, `part`, `split`, `classes`, `task`, `model` and `controls` (see `evaluation.classification_metrics`; of
        events also `spans`, see `evaluation.span_metrics`), `levels`
        (`model` and each control per recording, per subject and within subjects: `evaluation.metrics_by_level`),
        `events` (where some time is background: `predict`'s events by `event_rules`, `evaluation.score_subjects` of
        each class), `event_rules`, `sleep` (where the classes are sleep stages: `evaluation.sleep_scores`),
        `comparisons` (the model with each control: `evaluation.compare_arms`),
        `temperature` (of the model, fitted on `n` windows of `n_subjects` validation people, none of whom is tested:
        `evaluation.temperature_scaling`),
        `pretraining_overlap` (how all that the weights were trained on before touches the tested people, see
        `leaks.pretraining_overlap`), `load_report`,
        `probe_load_report` (of the frozen encoder, or None), `notes`. Of numbers and of several classes at once see
        `evaluate_target.evaluate_target`.

    Raises:
        UserError: no such run or store, another contract, nobody in that part, or a person or recording of another
            part in it (see `leaks.check_split`), or the page cannot be written or exists.
    """
    scoring = EventRules.of(event_rules)
    if html is not None:
        check_page(Path(html), [run], overwrite)
    result = _evaluate(run, data, part, scoring)
    if html is not None:
        page = target_page if "target" in result else evaluation_page
        write_report(page(result), Path(html))
    return result


def _evaluate(run: str | Path, data: str | Path | None, part: str, scoring: EventRules) -> dict[str, Any]:
    opened = open_tested(run, data, part)
    if (target := target_of_model(opened.model)) is not None:
        if scoring != SZCORE:
            raise UserError(f"--event-rule: {opened.run} tells {SAID[target.kind]}, no events; leave it out")
        return evaluate_target(opened, target, part)
    run, manifest, settings, split = opened.run, opened.manifest, opened.settings, opened.split
    store, model, windows, tested, notes = opened.store, opened.model, opened.windows, opened.tested, opened.notes
    assert model.load_report is not None
    pretraining = None if manifest["from"] == SCRATCH else manifest["pretraining"] or {}
    task, rules = opened.task, rules_of(settings)
    rows = [eeg.Span(**row) for row in manifest["labels"]]
    training = of_subjects(windows, split.train)
    sources = opened.sources()
    tested, training = usable(sources, tested), usable(sources, training)
    what: dict[str, Any] = {"task": task, "background": rules.background}
    tested_source, training_source = sources.of(tested, **what), sources.of(training, **what)
    answers = probabilities(model, tested_source)
    measured_model = measured(tested_source, answers, windows.classes)
    # From here on what is counted: windows, moments, or windows with an event or none.
    tested, model_scores = told(tested_source, answers)
    training = labelled(training, task, rules.background, tested_source.patch_samples)
    notes += guessed_subjects(store, {*split.train, *getattr(split, part)})
    gone = sorted(set(getattr(split, part)) - set(tested.subject.tolist()))
    if gone:
        notes.append(f"{len(gone)} of the {part} people have no window in {store.path}: {', '.join(gone[:8])}")
    absent = [name for i, name in enumerate(windows.classes) if not (tested.label == i).any()]
    if absent:
        notes.append(f"the {part} people have no window of {', '.join(absent)}: the figures say nothing about it")
    scores = {"majority": majority(training.label, len(tested), len(windows.classes))}
    try:
        scores["band_power"] = _band_power(store, training, tested, opened.patches)
    except UserError as problem:
        notes.append(f"no band power: {problem}")
    encoder = frozen_encoder(manifest, notes)
    if encoder is not None and task != "window":
        notes.append(f"no frozen probe: [CLS] stands for a window, not for each {task}")
    elif encoder is not None:
        features = infer(encoder, training_source, cls_features)
        try:
            probe = ridge_probe(features, training.label, len(windows.classes), subjects=training.subject.tolist())
            scores["frozen_probe"] = probe.scores(infer(encoder, tested_source, cls_features))
        except UserError as problem:
            notes.append(f"no frozen probe: {problem}")

    def metrics(values: np.ndarray) -> dict[str, Any]:
        return classification_metrics(tested.label, values, windows.classes, tested.subject)

    arms = {"model": model_scores, **scores}
    events, sleep = None, None
    try:
        sleep = sleep_scores(tested.label, model_scores, windows.classes, tested.subject)
    except UserError as problem:
        notes.append(f"no sleep scores: {problem}")
    if any(row.onset_s is not None for row in rows):
        try:
            events = event_scores(model, sources, np.unique(tested.recording).tolist(), rows, settings, scoring)
        except UserError as problem:
            notes.append(f"no scores of events: {problem}")
    notes += merged_notes(events or {}, scoring)
    # The validation people say nothing of themselves.
    held_out = of_subjects(windows, split.validation if part == "test" else ())
    result = {
        "run": str(run),
        "part": part,
        "split": manifest["split"],
        "classes": windows.classes,
        "task": task,
        "model": measured_model,
        "controls": {
            "chance": chance(tested.label, windows.classes),
            **{name: metrics(values) for name, values in scores.items()},
        },
        "levels": {
            name: metrics_by_level(tested.label, values, windows.classes, tested.subject, tested.recording)
            for name, values in arms.items()
        },
        "comparisons": compare_arms(tested.label, arms, tested.subject, reference="model"),
        "events": events,
        "event_rules": asdict(scoring),
        "sleep": sleep,
        "temperature": _temperature(model, sources, held_out, what, tested.label, arms["model"]),
        "pretraining_overlap": pretraining_overlap(pretraining, store, getattr(split, part), split),
        "load_report": model.load_report.as_dict(),
        "probe_load_report": encoder.load_report.as_dict() if encoder and encoder.load_report else None,
        "notes": notes,
    }
    try:
        write_json(run / EVALUATION[part], result)
    except OSError as problem:
        notes.append(f"not kept in the run: {problem}")
    return result


def _band_power(store: eeg.Store, training: eeg.Windows, tested: eeg.Windows, model: PatchConfig) -> np.ndarray:
    """Fits the classic control on the same windows."""
    patches = control_patches(store, training, model)
    control = fit_logistic(band_powers(store, patches, training), training.label, len(training.classes))
    return control.scores(band_powers(store, patches, tested))


def _temperature(
    model: Model,
    sources: Sources,
    validation: eeg.Windows,
    what: dict[str, Any],
    labels: np.ndarray,
    scores: np.ndarray,
) -> dict[str, Any]:
    """Fits the model's temperature on the validation people, where there are any, and measures it on the tested."""
    fitted_on = validation.label[:0], scores[:0]
    n_subjects, why = 0, None if len(validation) else "there are no other people to fit it on"
    if len(validation):
        try:
            source = sources.of(usable(sources, validation), **what)
            things, found = told(source, probabilities(model, source))
            fitted_on, n_subjects = (things.label, found), len(set(things.subject.tolist()))
        except UserError as problem:
            why = str(problem)
    scaled = temperature_scaling(fitted_on, (labels, scores))
    return {**scaled, "reason": why or scaled["reason"], "n_subjects": n_subjects}

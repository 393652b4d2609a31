"""`bothways eeg evaluate`."""

from pathlib import Path
from typing import Any

import numpy as np

from bothways import eeg
from bothways.config import FinetuneConfig, PatchConfig
from bothways.errors import UserError
from bothways.evaluation import (
    Split,
    band_power,
    chance,
    classification_metrics,
    fit_logistic,
    majority,
    ridge_probe,
)
from bothways.files import write_json
from bothways.model import Model
from bothways.run.common import Sources, check_contract, fill_channels, guessed_subjects, of_subjects, usable
from bothways.run.finetune import SCRATCH
from bothways.training import (
    class_probabilities,
    cls_features,
    infer,
    load_config_of,
    load_manifest,
    load_recipe,
    load_run,
    run_at,
)

EVALUATION = {"test": "evaluation.json", "validation": "evaluation-validation.json"}


def evaluate(run: str | Path, *, data: str | Path | None = None, part: str = "test") -> dict[str, Any]:
    """Measures a fine-tuned run on people it was not trained on, beside controls on the same split.

    The controls: chance, majority, band power + logistic regression (of the channels that all recordings have), and
    a closed-form probe on the frozen encoder that the run started from. One that cannot be had is left out with a
    note. The result is also written to `evaluation.json` (`evaluation-validation.json`) in the run.

    Args:
        run: a fine-tuned run.
        data: its store, where it has moved.
        part: `test` or `validation`.

    Returns:
        `run`, `part`, `split`, `classes`, `model` and `controls` (see `evaluation.classification_metrics`),
        `pretraining_overlap` (how the encoder's pretraining data touches the tested people), `load_report`,
        `probe_load_report` (of the frozen encoder, or None), `notes`.

    Raises:
        UserError: no such run or store, another contract, or nobody in that part.
    """
    run = run_at(Path(run))
    manifest = finetuned_manifest(run)
    settings = load_recipe(run, FinetuneConfig)
    split = Split.of(manifest["split"])
    if part not in EVALUATION:
        raise UserError(f"--part: expected test or validation, got {part}")
    store = eeg.Store.open(data or manifest["data"]["store"])
    model = load_run(run, eeg.build_embedding)
    assert model.load_report is not None
    check_contract(model.config, store)
    assert model.config.patches is not None
    rows = [eeg.Span(**row) for row in manifest["labels"]]
    windows = eeg.cut_windows(store, settings.windows, labels=rows, rules=settings.labels)
    windows = windows.select(windows.label >= 0)
    tested, training = of_subjects(windows, getattr(split, part)), of_subjects(windows, split.train)
    if len(tested) == 0 or windows.classes != manifest["classes"]:
        raise UserError(f"{run}: no labelled window of the {part} subjects in {store.path}; give the run's own --data")
    sources = Sources(store, model.config.patches)
    tested, training = usable(sources, tested), usable(sources, training)
    tested_source, training_source = sources.of(tested), sources.of(training)
    notes = guessed_subjects(store, {*split.train, *getattr(split, part)})
    gone = sorted(set(getattr(split, part)) - set(tested.subject.tolist()))
    if gone:
        notes.append(f"{len(gone)} of the {part} people have no window in {store.path}: {', '.join(gone[:8])}")
    absent = [name for i, name in enumerate(windows.classes) if not (tested.label == i).any()]
    if absent:
        notes.append(f"the {part} people have no window of {', '.join(absent)}: the figures say nothing about it")
    scores = {"majority": majority(training.label, len(tested), len(windows.classes))}
    try:
        scores["band_power"] = _band_power(store, training, tested, model.config.patches)
    except UserError as problem:
        notes.append(f"no band power: {problem}")
    encoder = _pretrained(manifest, notes)
    if encoder is not None:
        features = infer(encoder, training_source, cls_features)
        try:
            probe = ridge_probe(features, training.label, len(windows.classes), subjects=training.subject.tolist())
            scores["frozen_probe"] = probe.scores(infer(encoder, tested_source, cls_features))
        except UserError as problem:
            notes.append(f"no frozen probe: {problem}")

    def metrics(values: np.ndarray) -> dict[str, Any]:
        return classification_metrics(tested.label, values, windows.classes, tested.subject)

    result = {
        "run": str(run),
        "part": part,
        "split": manifest["split"],
        "classes": windows.classes,
        "model": metrics(infer(model, tested_source, class_probabilities)),
        "controls": {
            "chance": chance(tested.label, windows.classes),
            **{name: metrics(values) for name, values in scores.items()},
        },
        "pretraining_overlap": _overlap(manifest, store, set(getattr(split, part))),
        "load_report": model.load_report.as_dict(),
        "probe_load_report": encoder.load_report.as_dict() if encoder and encoder.load_report else None,
        "notes": notes,
    }
    try:
        write_json(run / EVALUATION[part], result)
    except OSError as problem:
        notes.append(f"not kept in the run: {problem}")
    return result


def finetuned_manifest(run: Path) -> dict[str, Any]:
    """Reads the manifest of a fine-tuned run.

    Raises:
        UserError: it is no run, or a pretrained one.
    """
    load_config_of(run)
    manifest = load_manifest(run)
    if manifest.get("kind") != "finetune":
        raise UserError(
            f"{run}: expected a fine-tuned run, got one of kind {manifest.get('kind')}; "
            "run `bothways eeg finetune` first"
        )
    return manifest


def _band_power(store: eeg.Store, training: eeg.Windows, tested: eeg.Windows, model: PatchConfig) -> np.ndarray:
    """Fits the classic control on the same windows: 1-s spectra of the model's channels, or of those all share."""
    patches = PatchConfig(
        tokens="all_channels",
        ch_names=model.ch_names,
        patch_s=min(1.0, training.window_samples / store.signal.sfreq_hz),
        features=("spectrum",),
        spectrum_hz=(1.0, 45.0),
        baseline=model.baseline,  # the same calibration, where the model has one
    )
    patches = fill_channels(patches, store)
    reader = eeg.PatchEmbedding(patches, 1, store.signal.sfreq_hz)
    assert reader.spectrum is not None
    frequencies_hz = reader.spectrum.frequencies_hz

    sources = Sources(store, patches)

    def features(windows: eeg.Windows) -> np.ndarray:
        source = sources.of(windows)
        spectra = []
        for i in range(len(source)):
            batch = source.batch(np.array([i]))
            real = batch["patch_mask"][..., None]
            spectrum = (reader.log_spectrum(batch) * real).sum(2) / real.sum(2).clamp_min(1)  # [1 C F]
            spectra.append(spectrum[0].numpy() * np.log(10))
        return band_power(np.stack(spectra), frequencies_hz)

    return fit_logistic(features(training), training.label, len(training.classes)).scores(features(tested))


def _pretrained(manifest: dict[str, Any], notes: list[str]) -> Model | None:
    """Loads the encoder that the run started from, as it was before fine-tuning."""
    if manifest["from"] == SCRATCH:
        return None
    try:
        start = Path(manifest["from"])
        return load_run(start, eeg.build_embedding, heads={})
    except UserError as problem:
        notes.append(f"no frozen probe: {problem}")
        return None


def _overlap(manifest: dict[str, Any], store: eeg.Store, subjects: set[str]) -> dict[str, Any]:
    """Says how all that the weights were trained on before touches the tested people.

    `same recording, with its labels`, `same recording` (equal content), `same subject` (an equal name, in whatever
    store), `none`, or `unknown` where a run on the way does not say what it saw.
    """
    seen: set[str] = set()
    labelled: set[str] = set()
    people: set[str] = set()
    earlier = manifest
    while earlier["from"] != SCRATCH:
        earlier = earlier["pretraining"] or {}
        if "data" not in earlier:
            return {"kind": "unknown", "recordings": []}
        hashes = {entry["sha256"] for entry in earlier["data"]["recordings"]}
        seen |= hashes
        if earlier["kind"] == "finetune":
            labelled |= hashes
        people |= set(earlier["data"]["subjects"])
        earlier = {"from": SCRATCH} | earlier  # a pretrained run started from nothing
    tested = [r for r in store.recordings if r.subject in subjects]
    same = sorted(r.file for r in tested if r.sha256 in seen)
    named = sorted(r.file for r in tested if r.subject in people)
    with_labels = any(r.sha256 in labelled for r in tested)
    kind = (
        "same recording" + (", with its labels" if with_labels else "") if same else "same subject" if named else "none"
    )
    return {"kind": kind, "recordings": same or named}

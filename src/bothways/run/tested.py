"""A fine-tuned run with the people that it is measured on, for the commands that look closer than `evaluate`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bothways import eeg
from bothways.config import FinetuneConfig, PatchConfig, Task
from bothways.errors import UserError
from bothways.evaluation import Split, classification_metrics, people_recalls
from bothways.model import Model
from bothways.run.common import SCRATCH, Sources, check_contract, of_subjects
from bothways.run.leaks import check_split
from bothways.run.tasks import probabilities, rules_of, told
from bothways.training import load_config_of, load_manifest, load_recipe, load_run, run_at

EVALUATION = {"test": "evaluation.json", "validation": "evaluation-validation.json"}
"""Where `evaluate` keeps what it finds, in the run."""


@dataclass(frozen=True)
class Tested:
    """What there is to measure a run with."""

    run: Path
    manifest: dict[str, Any]
    settings: FinetuneConfig
    split: Split
    store: eeg.Store
    model: Model
    patches: PatchConfig
    windows: eeg.Windows
    """All that have a label."""
    tested: eeg.Windows
    notes: list[str]

    @property
    def task(self) -> Task:
        """What is labelled."""
        return self.settings.task

    def sources(self, store: eeg.Store | None = None) -> Sources:
        """Makes sources for the model, of the run's store or of another view of it."""
        return Sources(store or self.store, self.patches)

    def predict(self, sources: Sources, windows: eeg.Windows) -> tuple[eeg.Windows, np.ndarray]:
        """Returns a row for each labelled thing in the windows and the probability of each class for it."""
        source = sources.of(windows, task=self.task, background=rules_of(self.settings).background)
        return told(source, probabilities(self.model, source))


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


def open_tested(run: str | Path, data: str | Path | None = None, part: str = "test") -> Tested:
    """Opens a fine-tuned run and its store, and finds the labelled windows of a part's people.

    Raises:
        UserError: no such run or store, another contract, nobody in that part, or a person or recording of another
            part in it (see `leaks.check_split`).
    """
    run = run_at(Path(run))
    manifest = finetuned_manifest(run)
    if part not in ("test", "validation"):
        raise UserError(f"--part: expected test or validation, got {part}")
    settings, split = load_recipe(run, FinetuneConfig), Split.of(manifest["split"])
    store = eeg.Store.open(data or manifest["data"]["store"])
    model = load_run(run, eeg.build_embedding)
    check_contract(model.config, store)
    assert model.config.patches is not None
    rows = [eeg.Span(**row) for row in manifest["labels"]]
    by_moment = settings.task != "window"
    windows = eeg.cut_windows(store, settings.windows, labels=rows, rules=rules_of(settings), by_moment=by_moment)
    if by_moment:
        windows = windows.with_classes(manifest["classes"])
    windows = windows.select(windows.label >= 0)
    tested = of_subjects(windows, getattr(split, part))
    single = settings.labels.kind == "classes"  # else the table's labels are not the run's classes
    if len(tested) == 0 or (single and windows.classes != manifest["classes"]):
        raise UserError(f"{run}: no labelled window of the {part} subjects in {store.path}; give the run's own --data")
    notes = check_split(split, store, manifest["data"].get("recordings", []))
    return Tested(run, manifest, settings, split, store, model, model.config.patches, windows, tested, notes)


def frozen_encoder(manifest: dict[str, Any], notes: list[str]) -> Model | None:
    """Loads the encoder that a run started from, as it was before fine-tuning; where it cannot, a note says why."""
    if manifest["from"] == SCRATCH:
        return None
    try:
        return load_run(Path(manifest["from"]), eeg.build_embedding, heads={})
    except UserError as problem:
        notes.append(f"no frozen probe: {problem}")
        return None


def scored(things: eeg.Windows, scores: np.ndarray) -> dict[str, Any]:
    """Returns what `evaluation.side_by_side` wants of a trial: balanced accuracy, and the recalls of each person."""
    found = classification_metrics(things.label, scores, things.classes, things.subject, n_bootstrap=2)
    people = people_recalls(things.label, scores, things.subject, things.classes)
    return {"n": len(things), "balanced_accuracy": found["balanced_accuracy"], "people": people}

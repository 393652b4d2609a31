"""A fine-tuned run on text, measured on texts whose labels are known; part of `bothways text evaluate`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bothways.config import TextTask
from bothways.errors import UserError
from bothways.evaluation import classification_metrics, constant_controls, majority
from bothways.model import Model
from bothways.run.text_answer import Answer, read_questions
from bothways.run.text_classify import Classify, Rows, read_rows
from bothways.run.text_data import seen_before
from bothways.run.text_model import TextModel, answers, length_of, open_model, settings_of, tag_head
from bothways.run.text_predict import task_of
from bothways.run.text_tag import Tag, read_tagged
from bothways.training import MANIFEST, load_manifest


def text_measure(model: str | Path, paths: str | Path | Sequence[str | Path]) -> dict[str, Any]:
    """Measures what a run of `text_finetune` tells of texts whose labels are known.

    Args:
        model: the run, or a BERT that transformers saved, with a head for the whole text, each word, or answers.
        paths: tables with the columns of its training; of a run that tags words, CoNLL or JSON; of one that answers,
            see `text.read_squad`.

    Returns:
        `model`, `task`, `labels`, `classes`, `texts` (measured), `metrics` (see `evaluate` of the task), `controls`
        (name -> the same of a guess: always the most frequent training class, or the training texts' mean number; none
        where the run does not say these), `unknown` (class that the run does not know -> texts, which are not
        measured), `seen` (texts that the run was trained on or chosen by, or others of their group or article; None
        where it does not say), `too_long`, `data` (of the files), `notes`, `load_report`.

    Raises:
        UserError: no such model or head, no such columns, or no text with a label that it knows.
    """
    opened = open_model(model)
    one = to_measure(opened, [paths] if isinstance(paths, str | Path) else list(paths))
    task, labels = one.task, one.name == "classify"
    return {
        "model": str(opened.folder), "task": one.name, "labels": task.kind, "classes": list(task.classes),
        "texts": len(one.rows), "metrics": one.evaluate(opened.model, "evaluate"),
        "controls": _controls(task, one.rows, opened) if labels else {},
        "unknown": task.unknown(one.labelled) if labels else {}, "seen": one.seen,
        "too_long": task.n_too_long(one.made), "data": one.told, "notes": one.notes,
        "load_report": opened.report.as_dict(),
    }  # fmt: skip


class ToMeasure(NamedTuple):
    """Labelled texts, ready for any model of the same task."""

    name: TextTask
    task: Any
    labelled: Any
    rows: Any
    """Of `labelled`, those whose labels the run knows."""
    made: Any
    """As a model reads them."""
    pad_id: int
    seen: int | None
    told: dict[str, Any]
    """Of the files."""
    notes: list[str]

    def evaluate(self, model: Model, title: str) -> dict[str, Any]:
        """Returns how well a model tells them; see `evaluate` of the task."""
        found: dict[str, Any] = self.task.evaluate(model, self.made, self.rows, self.pad_id, title)
        return found


def to_measure(opened: TextModel, paths: Sequence[str | Path]) -> ToMeasure:
    """Reads labelled texts for a run; see `text_measure`."""
    settings = settings_of(opened)
    name: TextTask
    task: Any
    found: Any
    if (head := tag_head(opened)) is not None:
        name, task, found = "tag", Tag.from_head(head), read_tagged(paths)
    elif answers(opened):
        name, task, found = "answer", Answer.from_run(opened, settings), read_questions(paths)
    else:
        name, task, found = "classify", task_of(opened), read_rows(paths, settings)
    notes = [message for messages in found.told["notes"].values() for message in messages]
    labelled: Any = found.labelled()
    rows = task.known(labelled, notes)
    if not len(rows):
        what = {
            "tag": "tagged sentences",
            "answer": "questions with answers",
            "classify": f"texts with a label that the run knows ({', '.join(task.classes)})",
        }[name]
        raise UserError(f"{', '.join(map(str, paths))}: expected {what} to measure, found none; check their labels")
    if name == "answer" and len(labelled) < len(found):
        notes.append(f"of {len(found) - len(labelled)} questions the answer is not told, and they are not measured")
    if seen := seen_before(rows, opened.folder):
        notes.append(
            f"{seen} of {len(rows)} are what the run was trained on or chosen by, or of their group or article; what "
            "is measured is too good"
        )
    length = length_of(opened, settings)
    made = task.prepare(rows, opened.tokenizer, length, settings)
    notes += task.notes(made, "evaluated", length, settings)
    return ToMeasure(name, task, labelled, rows, made, opened.tokenizer.pad_id, seen, found.told, notes)


def _controls(task: Classify, rows: Rows, opened: TextModel) -> dict[str, Any]:
    if task.kind == "several" or not (opened.folder / MANIFEST).is_file():
        return {}
    manifest = load_manifest(opened.folder)
    if task.kind == "number":
        truth = np.array([row.label for row in rows.rows], float)
        mean = manifest.get("number", {}).get("mean")
        return {} if mean is None else {"mean": constant_controls(np.array([mean]), truth)["mean"]}
    counts = manifest.get("texts", {}).get("train", {})
    if set(counts) != set(task.classes):
        return {}
    training = np.repeat(np.arange(len(task.classes)), [counts[name] for name in task.classes])
    scores = majority(training, len(rows), len(task.classes))
    return {"most_frequent": classification_metrics(task.targets(rows), scores, task.classes)}

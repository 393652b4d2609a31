"""A fine-tuned run on text, measured on texts whose labels are known; part of `bothways text evaluate`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bothways.errors import UserError
from bothways.evaluation import classification_metrics, constant_controls, majority
from bothways.run.text_answer import Answer, read_questions
from bothways.run.text_classify import Classify, Rows, read_rows
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
        measured), `too_long`, `data` (of the files), `notes`, `load_report`.

    Raises:
        UserError: no such model or head, no such columns, or no text with a label that it knows.
    """
    paths = [paths] if isinstance(paths, str | Path) else list(paths)
    opened = open_model(model)
    if (head := tag_head(opened)) is not None:
        return _tags_measured(opened, Tag.from_head(head), paths)
    if answers(opened):
        return _answers_measured(opened, paths)
    task, settings = task_of(opened), settings_of(opened)
    found = read_rows(paths, settings)
    notes = [message for messages in found.told["notes"].values() for message in messages]
    labelled = found.labelled()
    rows = task.known(labelled, notes)
    if not len(rows):
        raise UserError(
            f"{', '.join(map(str, paths))}: expected texts with a label that the run knows "
            f"({', '.join(task.classes)}), found none; check columns.label"
        )
    length = length_of(opened, settings)
    made = task.prepare(rows, opened.tokenizer, length, settings)
    notes += task.notes(made, "evaluated", length, settings)
    return {
        "model": str(opened.folder), "task": "classify", "labels": task.kind, "classes": list(task.classes),
        "texts": len(rows), "controls": _controls(task, rows, opened),
        "metrics": task.evaluate(opened.model, made, rows, opened.tokenizer.pad_id, "evaluate"),
        "unknown": task.unknown(labelled), "too_long": task.n_too_long(made), "data": found.told, "notes": notes,
        "load_report": opened.report.as_dict(),
    }  # fmt: skip


def _tags_measured(opened: TextModel, task: Tag, paths: Sequence[str | Path]) -> dict[str, Any]:
    settings, found = settings_of(opened), read_tagged(paths)
    notes = [message for messages in found.told["notes"].values() for message in messages]
    rows = task.known(found.labelled(), notes)
    length = length_of(opened, settings)
    made = task.prepare(rows, opened.tokenizer, length, settings)
    notes += task.notes(made, "evaluated", length, settings)
    return {
        "model": str(opened.folder), "task": "tag", "labels": "tags", "classes": list(task.classes),
        "texts": len(rows), "metrics": task.evaluate(opened.model, made, rows, opened.tokenizer.pad_id, "evaluate"),
        "controls": {}, "unknown": {}, "too_long": task.n_too_long(made), "data": found.told, "notes": notes,
        "load_report": opened.report.as_dict(),
    }  # fmt: skip


def _answers_measured(opened: TextModel, paths: Sequence[str | Path]) -> dict[str, Any]:
    settings, found = settings_of(opened), read_questions(paths)
    task, length = Answer.from_run(opened, settings), length_of(opened, settings)
    notes = [message for messages in found.told["notes"].values() for message in messages]
    rows = found.labelled()
    if not len(rows):
        raise UserError(f"{', '.join(map(str, paths))}: expected questions with answers to measure, found none")
    if unknown := len(found) - len(rows):
        notes.append(f"of {unknown} questions the answer is not told, and they are not measured")
    made = task.prepare(rows, opened.tokenizer, length, settings)
    notes += task.notes(made, "evaluated", length, settings)
    return {
        "model": str(opened.folder), "task": "answer", "labels": "answers", "classes": [], "texts": len(rows),
        "metrics": task.evaluate(opened.model, made, rows, opened.tokenizer.pad_id, "evaluate"),
        "controls": {}, "unknown": {}, "too_long": task.n_too_long(made), "data": found.told, "notes": notes,
        "load_report": opened.report.as_dict(),
    }  # fmt: skip


def _controls(task: Classify, rows: Rows, opened: TextModel) -> dict[str, Any]:
    if task.kind == "number":
        truth = np.array([row.label for row in rows.rows], float)
        return {"mean": constant_controls(np.array([task.mean]), truth)["mean"]}
    if task.kind == "several" or not (opened.folder / MANIFEST).is_file():
        return {}
    counts = load_manifest(opened.folder).get("texts", {}).get("train", {})
    if set(counts) != set(task.classes):
        return {}
    training = np.repeat(np.arange(len(task.classes)), [counts[name] for name in task.classes])
    scores = majority(training, len(rows), len(task.classes))
    return {"most_frequent": classification_metrics(task.targets(rows), scores, task.classes)}

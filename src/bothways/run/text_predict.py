"""`bothways text predict`."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from bothways import text
from bothways.config import TextFinetuneConfig
from bothways.errors import BothwaysWarning, UserError
from bothways.files import check_output
from bothways.run.text_classify import Classify
from bothways.run.text_data import collect
from bothways.run.text_model import TextModel, answers, label_heads, length_of, open_model, settings_of, tag_head
from bothways.run.text_predict_answers import predict_answers
from bothways.run.text_predict_tags import predict_tags

THRESHOLD = 0.5
"""Of several classes at once, from which probability one is there, if it is not said."""
FORMATS = (".csv", ".jsonl")
_POOL = 2048
"""Texts that are held at once."""


def text_predict(
    model: str | Path,
    paths: str | Path | Sequence[str | Path] = (),
    out: str | Path | None = None,
    *,
    texts: Iterable[str] | None = None,
    encoding: str | None = None,
    threshold: float | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Says of each text what a fine-tuned run has learned to tell; any number of texts in bounded memory.

    Of a run that tags words see `predict_tags`, of one that answers questions `predict_answers`.

    Args:
        model: a run of `text_finetune`, or a BERT that transformers saved, with a head.
        paths: tables with the columns of the run's training (labels are not needed), or `.txt` files, a text a line.
        out: `FILE.csv` or `FILE.jsonl`; without, the predictions are returned.
        texts: instead of `paths`, texts themselves (no pairs).
        encoding: of all files; if none, that of each is found.
        threshold: of several classes, from which probability one is there, 0.5 if none; of answers see
            `predict_answers`.
        overwrite: replace `out`.

    Returns:
        `model`, `out`, `task`, `classes`, `threshold` (of several classes), `n`, `counts` (prediction -> how many; of
        numbers None), `too_long` (texts longer than a window), `empty` (texts without a character, which have no
        prediction), `columns`, `files`, `notes`, `load_report`, and without `out` `predictions`: of each text `file`,
        `row`, `prediction` (a class, a number, or a list of classes; None of an empty text), `probability` (of the
        class), `probabilities` (class ->).

    Raises:
        UserError: no such model or head, no such files or columns, an option that the model has no use for, or `out`
            cannot be written.
    """
    paths = [paths] if isinstance(paths, str | Path) else list(paths)
    if (texts is None) == (not paths):
        raise UserError("expected files, or texts themselves, one of both; give one")
    out = None if out is None else Path(out)
    if out is not None:
        if out.suffix not in FORMATS:
            raise UserError(f"{out}: expected a name that ends in {' or '.join(FORMATS)}; choose one")
        if not (overwrite and out.is_file()):
            check_output(out, inputs=[model, *paths])
    opened = open_model(model)
    if answers(opened):
        if encoding is not None:
            raise UserError("--encoding belongs to plain text; questions are JSON, or tables of which it is found")
        return predict_answers(opened, paths, out, texts, threshold)
    several = "several" in opened.model.heads
    if threshold is not None and not several:
        raise UserError("--threshold belongs to models of several classes at once and of answers; leave it out")
    if tag_head(opened) is not None:
        return predict_tags(opened, paths, out, texts, encoding)
    task = task_of(opened)
    least = (THRESHOLD if threshold is None else threshold) if several else None
    settings = settings_of(opened)
    length = length_of(opened, settings)
    reader = Rows(paths, settings, encoding) if texts is None else None
    rows = reader if reader is not None else _given(texts or ())
    counts: dict[str, int] = {}
    n = n_too_long = n_empty = 0

    def predicted() -> Iterator[list[dict[str, Any]]]:
        nonlocal n, n_too_long, n_empty
        stream = iter(rows)
        while pool := list(islice(stream, _POOL)):
            there = [row for row in pool if row.text or row.pair]
            pairs = [row.pair or "" for row in there] if settings.columns.pair is not None else None
            tokens = text.tokenise(
                opened.tokenizer, [row.text for row in there], pairs, length=length, too_long=settings.too_long
            )  # fmt: skip
            said = iter(task.told(opened.model, tokens, opened.tokenizer.pad_id, "predict") if there else ())
            made = [_told(task, row, next(said) if row.text or row.pair else None, least) for row in pool]
            for one in made:
                name = one["prediction"]
                for each in name if isinstance(name, list) else [name]:
                    counts[str(each)] = counts.get(str(each), 0) + 1
            n, n_too_long, n_empty = n + len(pool), n_too_long + tokens.n_too_long, n_empty + len(pool) - len(there)
            yield made

    classes = () if task.kind == "number" else task.classes

    def lines_of(one: dict[str, Any]) -> Iterator[Sequence[Any]]:
        value, each = one["prediction"], one.get("probabilities") or dict.fromkeys(classes, "")
        shown = "" if value is None else ";".join(value) if isinstance(value, list) else value
        yield [one["file"], one["row"], shown, *(each[name] for name in classes)]

    columns = ["file", "row", "prediction", *(f"p: {name}" for name in classes)]
    nothing = f"{', '.join(map(str, paths)) or 'texts'}: expected texts, found none; check the files"
    kept = collect(out, predicted(), columns, lines_of, nothing)
    if n_too_long:
        rule = "the mean of their windows was taken" if settings.too_long == "windows" else "their ends were not read"
        warnings.warn(
            f"{n_too_long} of {n} texts are longer than {length} tokens; {rule}", BothwaysWarning, stacklevel=2
        )
    told = reader.told() if reader is not None else {"columns": None, "files": [], "notes": {}}
    return {
        "model": str(opened.folder), "out": None if out is None else str(out), "task": "classify", "labels": task.kind,
        "classes": list(task.classes), "threshold": least, "n": n, "counts": None if task.kind == "number" else counts,
        "too_long": n_too_long, "empty": n_empty, **told, "load_report": opened.report.as_dict(),
        **({"predictions": kept} if out is None else {}),
    }  # fmt: skip


def task_of(opened: TextModel) -> Classify:
    """Returns what a model tells of a whole text.

    Raises:
        UserError: it has no head for that.
    """
    found = label_heads(opened)
    if len(found) != 1:
        has = ", ".join(opened.model.config.heads) or "none"
        raise UserError(
            f"{opened.folder}: expected a model with one head for whole texts, got the heads: {has}; "
            "run `bothways text finetune` first"
        )
    return Classify.from_head(found[0])


class Rows:
    """The rows of tables, and the lines of plain text, that something is said of."""

    def __init__(self, paths: Sequence[str | Path], settings: TextFinetuneConfig, encoding: str | None) -> None:
        tables = [path for path in paths if Path(path).suffix.lower() in text.TABLES]
        lines = [path for path in paths if path not in tables]
        self.tables = text.LabelledTexts(
            tables, settings.columns, settings.labels, labels=False, encoding=encoding, empty=True
        )  # fmt: skip
        self.lines = text.Documents(lines, "line", None, encoding) if lines else None

    def __iter__(self) -> Iterator[text.LabelledText]:
        yield from self.tables
        for one in self.lines or ():
            yield text.LabelledText(one.text, None, None, None, one.file, one.line)

    def told(self) -> dict[str, Any]:
        """Returns what was found in the files."""
        found = self.tables.summary()
        lines = {"files": [], "notes": {}} if self.lines is None else self.lines.summary()
        notes = {
            **found["notes"],
            **{key: [*found["notes"].get(key, ()), *said] for key, said in lines["notes"].items()},
        }
        return {"columns": found["columns"], "files": found["files"] + lines["files"], "notes": notes}


def _given(texts: Iterable[str]) -> Iterator[text.LabelledText]:
    for number, one in enumerate(texts, 1):
        yield text.LabelledText(one, None, None, None, "", number)


def _told(task: Classify, row: text.LabelledText, said: np.ndarray | None, least: float | None) -> dict[str, Any]:
    place = {"file": row.file, "row": row.row}
    if task.kind == "number":
        return {**place, "prediction": None if said is None else float(said[0])}
    probabilities = None if said is None else dict(zip(task.classes, map(float, said)))
    if least is not None:
        there = [name for name, p in (probabilities or {}).items() if p >= least]
        return {**place, "prediction": None if said is None else there, "probabilities": probabilities}
    best = None if said is None else int(said.argmax())
    return {
        **place, "prediction": None if best is None else task.classes[best],
        "probability": None if said is None or best is None else float(said[best]), "probabilities": probabilities,
    }  # fmt: skip

"""Questions answered by a fine-tuned run; part of `bothways text predict`."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from bothways.errors import BothwaysWarning
from bothways.run.text_answer import HAS_ANSWER, NO_ANSWER, Answer, Questions, given_questions, read_questions
from bothways.run.text_data import collect, select
from bothways.run.text_model import TextModel, length_of, settings_of

_POOL = 1024
"""Questions that are answered at once."""


def predict_answers(
    opened: TextModel,
    paths: Sequence[str | Path],
    out: Path | None,
    texts: Iterable[str] | None,
    threshold: float | None,
) -> dict[str, Any]:
    """Answers questions with parts of their contexts; `texts` are lines of JSON with `question` and `context`.

    A file is held in memory, as it is read as a whole.

    Args:
        opened: the model.
        paths: files; see `text.read_squad`.
        out: as of `text_predict`.
        texts: instead of `paths`.
        threshold: how much the null score may be above the best answer's before the answer is "". If none, the one
            with the best F1 on the run's validation questions; of a run that learned no question without an answer,
            and of a model from elsewhere, no answer is "".

    Returns:
        `model`, `out`, `task`, `classes` (none), `threshold`, `n`, `counts` (`answer`, `no answer`), `files`, `notes`,
        `load_report`, and without `out` `predictions`: of each question `file`, `question`, and what
        `text.predict_answers` says. A CSV has of each `file`, `id`, `text`, `start`, `stop`, `score` and
        `no_answer_score`.

    Raises:
        UserError: a file has no question.
    """
    settings = settings_of(opened)
    task = Answer.from_run(opened, settings)
    threshold = task.threshold if threshold is None else threshold
    length = length_of(opened, settings)
    counts = {HAS_ANSWER: 0, NO_ANSWER: 0}
    files: list[dict[str, Any]] = []
    notes: dict[str, list[str]] = {}

    def pools() -> Iterator[tuple[str, Questions]]:
        for path in paths:
            yield str(path), read_questions([path])
        stream, first = iter(texts or ()), 1
        while lines := list(islice(stream, _POOL)):
            if any(line.strip() for line in lines):
                yield "", given_questions(lines, first)
            first += len(lines)

    def predicted() -> Iterator[list[dict[str, Any]]]:
        for file, pool in pools():
            files.extend(pool.told["files"])
            _add(notes, pool.told["notes"])
            for first in range(0, len(pool), _POOL):
                some = select(pool, range(first, min(first + _POOL, len(pool))))
                made = task.prepare(some, opened.tokenizer, length, settings)
                _add(notes, made.notes)
                found = [
                    {"file": file, "question": row.text, **one}
                    for row, one in zip(some.rows, task.answers(opened.model, made, "predict", threshold))
                ]
                for one in found:
                    counts[HAS_ANSWER if one["text"] else NO_ANSWER] += 1
                yield found

    columns = ["file", "id", "text", "start", "stop", "score", "no_answer_score"]
    nothing = f"{', '.join(map(str, paths)) or 'texts'}: expected questions, found none; check the files"
    kept = collect(out, predicted(), columns, lambda one: [[one[name] for name in columns]], nothing)
    for said in notes.values():
        for message in said:
            warnings.warn(message, BothwaysWarning, stacklevel=3)
    return {
        "model": str(opened.folder), "out": None if out is None else str(out), "task": "answer", "labels": "answers",
        "classes": [], "threshold": threshold, "n": sum(counts.values()), "counts": counts, "files": files,
        "notes": notes, "load_report": opened.report.as_dict(), **({"predictions": kept} if out is None else {}),
    }  # fmt: skip


def _add(notes: dict[str, list[str]], more: dict[str, list[str]]) -> None:
    for code, said in more.items():
        notes.setdefault(code, []).extend(said)

"""Words tagged by a fine-tuned run; part of `bothways text predict`."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from bothways import text
from bothways.errors import BothwaysWarning
from bothways.run.text_data import collect, select
from bothways.run.text_model import TextModel, length_of, settings_of, tag_head
from bothways.run.text_tag import Sentences, Tag, read_tagged

_POOL = 2048
"""Sentences that are tagged at once."""


def predict_tags(
    opened: TextModel, paths: Sequence[str | Path], out: Path | None, texts: Iterable[str] | None, encoding: str | None
) -> dict[str, Any]:
    """Tags words: of CoNLL, JSON, or plain text, a sentence a line, which is split into words by BERT's rules.

    A file is held in memory, as it is read as a whole.

    Returns:
        `model`, `out`, `task`, `classes`, `n` (sentences), `words`, `counts` (type -> entities), `files`, `notes`,
        `load_report`, and without `out` `predictions`: of each sentence `file`, `row` (its first line), `text`,
        `words`, `tags`, `probabilities` (of the tags), `offsets` (of the words in `text`), `entities` (see
        `text.spans`). A CSV has a row for each word: `file`, `row`, `word`, `tag`, `probability`, `start`, `stop`.

    Raises:
        UserError: a file has no sentence.
    """
    head = tag_head(opened)
    assert head is not None
    task, settings = Tag.from_head(head), settings_of(opened)
    length = length_of(opened, settings)
    told: dict[str, Any] = {"n": 0, "words": 0, "files": [], "notes": {}}
    counts: dict[str, int] = {}

    def pools() -> Iterator[Sentences]:
        for path in paths:
            yield read_tagged([path], tagged=False, encoding=encoding)
        numbered = enumerate(texts or (), 1)
        while lines := list(islice(numbered, _POOL)):
            split = [(number, line, *text.words_of(line)) for number, line in lines]
            rows = [
                text.Sentence(words, None, "", number, line, places) for number, line, words, places in split if words
            ]
            yield Sentences(rows, {"rows": len(rows), "files": [], "notes": {}})

    def predicted() -> Iterator[list[dict[str, Any]]]:
        for pool in pools():
            told["files"] += pool.told["files"]
            for code, said in pool.told["notes"].items():
                told["notes"].setdefault(code, []).extend(said)
            for first in range(0, len(pool), _POOL):
                some = select(pool, range(first, min(first + _POOL, len(pool))))
                made = task.prepare(some, opened.tokenizer, length, settings)
                for code, said in made.notes.items():
                    told["notes"].setdefault(code, []).extend(said)
                found: list[dict[str, Any]] = [
                    {
                        "file": row.file, "row": row.line, "text": row.text, "words": row.words, "tags": tags,
                        "probabilities": [float(p) for p in sure], "offsets": [list(one) for one in row.offsets],
                        "entities": text.spans(tags, row),
                    }
                    for row, tags, sure in zip(some.rows, *task.tags(opened.model, made, "predict"))
                ]  # fmt: skip
                told["n"] += len(found)
                told["words"] += sum(len(one["words"]) for one in found)
                for one in found:
                    for entity in one["entities"]:
                        counts[entity["type"]] = counts.get(entity["type"], 0) + 1
                yield found

    def lines_of(one: dict[str, Any]) -> Iterator[Sequence[Any]]:
        for word, tag, p, place in zip(one["words"], one["tags"], one["probabilities"], one["offsets"]):
            yield [one["file"], one["row"], word, tag, p, *place]

    columns = ["file", "row", "word", "tag", "probability", "start", "stop"]
    nothing = f"{', '.join(map(str, paths)) or 'texts'}: expected words to tag, found none; check the files"
    kept = collect(out, predicted(), columns, lines_of, nothing)
    for said in told["notes"].values():
        for message in said:
            warnings.warn(message, BothwaysWarning, stacklevel=3)
    return {
        "model": str(opened.folder), "out": None if out is None else str(out), "task": "tag", "labels": "tags",
        "classes": list(task.classes), **told, "counts": counts, "load_report": opened.report.as_dict(),
        **({"predictions": kept} if out is None else {}),
    }  # fmt: skip

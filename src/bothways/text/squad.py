"""Questions about contexts: SQuAD's JSON, one a line, or tables; contexts stay as they are, for offsets."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from bothways.errors import UserError
from bothways.files import read_bytes
from bothways.text.encodings import find_encoding
from bothways.text.tables import JSON_LINES, PARQUET, TABLES, columns_of, is_unicode, table_cells

MOST_BYTES = 2**30
_HOLDERS = {"paragraphs", "question"}
_WANTED = "give SQuAD's JSON (data, paragraphs, qas) or objects with question and context"


class GoldAnswer(NamedTuple):
    """What somebody answered."""

    text: str
    start: int | None
    """First character in the context, counted in Unicode's code points; none where it is not told and not certain."""


class Question(NamedTuple):
    """A question about a context."""

    id: str
    text: str
    context: int
    """Which of `Squad.contexts`."""
    answers: tuple[GoldAnswer, ...] | None
    """Empty: the context has no answer. None: what the answer is was not told."""
    title: str
    """Of the article; without one its first context. Questions of one belong on one side of a split."""

    @property
    def trainable(self) -> bool:
        """Whether it is known where the answer is, or that there is none."""
        return self.answers is not None and (not self.answers or any(one.start is not None for one in self.answers))


@dataclass(frozen=True)
class Squad:
    """Questions, and the contexts that they ask about.

    Attributes:
        contexts: untouched; equal ones are one.
        questions: in the order of the files.
        counts: a word for programs -> how many; of `notes` and of what was read.
        notes: a word for programs -> what was changed, made or cannot be used.
    """

    contexts: list[str]
    questions: list[Question]
    counts: dict[str, int] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)

    def gold(self) -> list[list[str] | None]:
        """Returns the answers of each question as they are scored: none = unknown."""
        return [None if one.answers is None else [answer.text for answer in one.answers] for one in self.questions]

    def select(self, chosen: Sequence[int]) -> "Squad":
        """Returns some of the questions, by their numbers; counts and notes stay those of all."""
        return replace(self, questions=[self.questions[i] for i in chosen])


def read_squad(paths: Sequence[str | Path]) -> Squad:
    """Reads questions: SQuAD 1.1 and 2.0, or flat ones as data sets of transformers have them, in JSON or JSON lines.

    An answer that does not stand at its `answer_start` is taken from where its text stands, if that is one place
    alone; else it is scored and not trained on. `is_impossible` and an empty list of answers are the same;
    `plausible_answers` are no answers. All this is counted.

    Args:
        paths: files; `.jsonl` and `.ndjson` hold an article or a question a line, others may. Of CSV, TSV and Parquet
            the columns `question`, `context`, and where there are such `id`, `title`, `answers` and `is_impossible`;
            of CSV and TSV instead of the last two `answer`, a text (an empty one: it is not told).

    Raises:
        UserError: a file cannot be read, is nothing of the kind, or two questions have one id.
    """
    items = (found for path in map(Path, paths) for found in _items(path))
    return _squad_of(items, ", ".join(map(str, paths)) or "no path")


def squad_of_lines(lines: Iterable[str], first: int = 1) -> Squad:
    """Returns questions of lines of JSON, each with an article or a question; see `read_squad`.

    Args:
        lines: any number.
        first: the number of the first line, which questions without an id are called by.

    Raises:
        UserError: one is nothing of the kind, there is none, or two questions have one id.
    """
    numbered = ((f"line {n}", line.encode("utf-8", "surrogatepass")) for n, line in enumerate(lines, first))
    items = ((where, _parsed(line, where)) for where, line in numbered if line.strip())
    return _squad_of(items, "texts", first)


def _squad_of(items: Iterable[tuple[str, Any]], name: str, first: int = 1) -> Squad:
    reader = _Reader()
    for where, item in items:
        reader.add(item, where)
    if not reader.questions:
        raise UserError(f"{name}: expected questions, found none; {_WANTED}")
    return reader.result(first)


def _rows_of(path: Path) -> Iterator[tuple[str, Any]]:
    """Yields the rows of a table."""
    plain = path.suffix.lower() != PARQUET
    encoding = find_encoding(path) if plain else None
    columns = columns_of(path, encoding)
    told = ("answer",) if plain else ("answers", "is_impossible")
    if plain and (odd := {"answers", "is_impossible"} & set(columns)):
        raise UserError(f"{path}: {', '.join(sorted(odd))}: expected a column answer of texts; rename it, or use JSON")
    names = [name for name in ("id", "title", "question", "context", *told) if name in columns]
    counts: Counter[str] = Counter()
    for cells, row, _ in table_cells(path, encoding, names, counts):
        item = dict(zip(names, cells))
        if answer := item.pop("answer", None):
            item["answers"] = [answer]
        yield f"{path}: row {row}", item
    if counts["bad_rows"]:
        raise UserError(f"{path}: {counts['bad_rows']} rows have not as many cells as there are columns; mend them")


def _items(path: Path) -> Iterator[tuple[str, Any]]:
    """Yields articles or questions, and where each stands."""
    if path.suffix.lower() in TABLES - {*JSON_LINES}:
        yield from _rows_of(path)
        return
    content = read_bytes(path, MOST_BYTES)
    if path.suffix.lower() in JSON_LINES or _is_lines(content):
        for number, line in enumerate(content.split(b"\n"), 1):
            if line.strip():
                yield f"{path}: line {number}", _parsed(line, f"{path}: line {number}")
        return
    values = _parsed(content, str(path))
    if isinstance(values, dict) and "data" not in values and _HOLDERS & values.keys():
        values = [values]
    where, items = (f"{path}: data", values.get("data")) if isinstance(values, dict) else (str(path), values)
    if not isinstance(items, list):
        keys = f"the keys {_named(values)}" if isinstance(values, dict) else type(values).__name__
        raise UserError(f"{path}: expected questions, got JSON with {keys}; {_WANTED}")
    for number, item in enumerate(items):
        yield f"{where}[{number}]", item


def _is_lines(content: bytes) -> bool:
    """Says whether the first of several lines is a whole object: some call JSON lines `.json`."""
    first, _, others = content.partition(b"\n")
    if not others.strip():
        return False
    try:
        return isinstance(json.loads(first.decode("utf-8-sig")), dict)
    except (ValueError, RecursionError):
        return False


def _parsed(content: bytes, where: str) -> Any:
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as problem:
        raise UserError(f"{where}: expected JSON in UTF-8, but byte {problem.start:,} is none; save it anew") from None
    except (ValueError, RecursionError) as problem:
        raise UserError(f"{where}: expected JSON, but it cannot be read ({problem}); {_WANTED}") from None


def _named(values: dict[str, Any]) -> str:
    return ", ".join(map(ascii, list(values)[:6])) or "none"


class _Reader:
    """Questions as they are read."""

    def __init__(self) -> None:
        self.questions: list[Question] = []
        self.contexts: dict[str, int] = {}
        self.ids: set[str] = set()
        self.made: list[int] = []
        """Questions that had no id."""
        self.counts: Counter[str] = Counter()
        self.first: dict[str, str] = {}
        """A question for each count."""

    def add(self, item: Any, where: str) -> None:
        """Adds an article's questions, or one that stands alone."""
        item = _object(item, where)
        if "paragraphs" not in item:
            if not {"question", "context"} <= item.keys():
                raise UserError(f"{where}: expected an article or a question, got the keys {_named(item)}; {_WANTED}")
            self._question(item, _text(item, "context", where), item.get("title"), where)
            return
        title = item.get("title")
        for p, paragraph in enumerate(_list(item, "paragraphs", where)):
            place = f"{where}.paragraphs[{p}]"
            context = _text(_object(paragraph, place), "context", place)
            title = title or context
            for q, question in enumerate(_list(paragraph, "qas", place)):
                inner = f"{place}.qas[{q}]"
                self._question(_object(question, inner), context, title, inner)

    def result(self, first: int) -> Squad:
        """Returns what was read, with an id for each question; those that had none are numbered from `first`."""
        n = first - 1
        for number in self.made:
            n += 1
            while f"question {n}" in self.ids:
                n += 1
            self.questions[number] = self.questions[number]._replace(id=f"question {n}")
        known = [one.answers for one in self.questions if one.answers is not None]
        counts = {
            "questions": len(self.questions),
            "contexts": len(self.contexts),
            "titles": len({one.title for one in self.questions}),
            "with_answer": sum(len(answers) > 0 for answers in known),
            "without_answer": sum(len(answers) == 0 for answers in known),
            "not_told": len(self.questions) - len(known),
        }
        notes = {
            code: [f"{self.counts[code]:,} {message} (first: {self.first[code]})"]
            for code, message in _MESSAGES.items()
            if self.counts[code]
        }
        return Squad(list(self.contexts), self.questions, counts | {code: self.counts[code] for code in notes}, notes)

    def _question(self, values: dict[str, Any], context: str, title: Any, where: str) -> None:
        text, name = _text(values, "question", where), values.get("id")
        if name is None or name == "":
            self.made.append(len(self.questions))
            self._count("ids_made", where)
            name = ""
        elif isinstance(name, bool) or not isinstance(name, str | int):
            raise UserError(f"{where}: id: expected text, got {type(name).__name__}; write it in quotes")
        elif (name := str(name)) in self.ids:
            raise UserError(f"{where}: id {name!a}: another question has it, too; give each an id of its own")
        self.ids.add(name)
        answers = self._answers(values, context, where, name or where)
        number = self.contexts.setdefault(context, len(self.contexts))
        self.questions.append(Question(name, text, number, answers, str(title or context)))

    def _answers(self, values: dict[str, Any], context: str, where: str, name: str) -> tuple[GoldAnswer, ...] | None:
        given, impossible = values.get("answers"), values.get("is_impossible")
        if impossible is not None and not isinstance(impossible, bool):
            raise UserError(f"{where}: is_impossible: expected true or false, got {impossible!a}; correct it")
        if given is None:
            return () if impossible else None
        stated = [_object({"text": one} if isinstance(one, str) else one, where) for one in _rows(given, where)]
        spoken = [one for one in stated if _text(one, "text", where).strip()]
        if len(spoken) < len(stated):
            self._count("empty_answers", name, len(stated) - len(spoken))
        if impossible and spoken:
            self._count("answers_of_impossible", name)
            return ()
        answers = tuple(GoldAnswer(one["text"], self._place(one, context, name)) for one in spoken)
        if answers and all(one.start is None for one in answers):
            self._count("not_trainable", name)
        return answers

    def _place(self, answer: dict[str, Any], context: str, name: str) -> int | None:
        """Returns where an answer begins: as told, or where it stands if that is one place alone."""
        text, start = answer["text"], answer.get("answer_start")
        if isinstance(start, int) and start >= 0 and context.startswith(text, start):
            return start
        place = context.find(text)
        if place < 0 or context.find(text, place + 1) >= 0:
            self._count("not_found", name)
            return None
        self._count("moved", name)
        return place

    def _count(self, code: str, name: str, n: int = 1) -> None:
        self.counts[code] += n
        self.first.setdefault(code, name)


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{where}: expected an object, got {type(value).__name__}; {_WANTED}")
    return value


def _list(holder: dict[str, Any], key: str, where: str) -> list[Any]:
    if not isinstance(value := holder.get(key), list):
        raise UserError(f"{where}: {key}: expected a list, got {type(value).__name__}; {_WANTED}")
    return value


def _text(holder: dict[str, Any], key: str, where: str) -> str:
    value = holder.get(key)
    if not isinstance(value, str) or not is_unicode(value):
        got = "half a character" if isinstance(value, str) else type(value).__name__ if key in holder else "none"
        raise UserError(f"{where}: {key}: expected text, got {got}; {_WANTED}")
    return value


def _rows(given: Any, where: str) -> list[Any]:
    """Returns answers one by one, also where texts and starts are a list each."""
    if isinstance(given, dict):
        texts = _list(given, "text", where)
        starts = given.get("answer_start")
        starts = [None] * len(texts) if starts is None else _list(given, "answer_start", where)
        if len(texts) != len(starts):
            raise UserError(f"{where}: answers: {len(texts)} texts, {len(starts)} starts; give each text its start")
        return [{"text": text, "answer_start": start} for text, start in zip(texts, starts)]
    return _list({"answers": given}, "answers", where)


_MESSAGES = {
    "ids_made": "questions had no id and got one",
    "moved": "answers do not stand at their answer_start, and were taken from the one place where their text stands",
    "not_found": "answers stand neither at their answer_start nor at one place alone; they are scored, not trained on",
    "not_trainable": "questions have only answers of that kind, and are not trained on",
    "empty_answers": "answers are empty, and were left out",
    "answers_of_impossible": "questions are marked is_impossible and have answers; they count as without an answer",
}

"""Sentences of words with their tags: CoNLL in its variants, and JSON; plain text as words, to be tagged."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers.pre_tokenizers import BertPreTokenizer

from bothways.errors import UserError
from bothways.files import read_bytes
from bothways.tags import UNTYPED, parse_tag
from bothways.text.encodings import check_encoding, find_encoding
from bothways.text.tables import JSON_LINES, MOST_CHARACTERS, is_unicode, open_text

FORMS = ("conll", "json", "text")
WORDS, TAGS = ("words", "tokens"), ("tags", "ner_tags", "labels")
"""Keys of JSON, the first of which is taken."""
_MOST_BYTES = 2**30
_DOCSTART = "-DOCSTART-"
_CONLL = frozenset({".conll", ".conllu", ".iob", ".iob1", ".iob2", ".bio", ".bioes", ".bilou", ".tsv"})
_BLANKS = re.compile(r"[ \t]+")
"""Not all that `str.split` takes for white space, which may be a word."""
_COMMENT = re.compile(r"#(?:[ \t]|[\w:.-]+[ \t]*=)")
_KEY = re.compile(r"#[ \t]+[\w:.-]+[ \t]*=")
"""A comment of CoNLL-U, whatever columns it seems to have."""
_COUNTER = re.compile(r"([1-9]\d*)|\d+[-.]\d+")
"""CoNLL-U's numbers of words; those of ranges ("1-2") and of what is not written ("1.1")."""
_CHINESE = re.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002ceaf\U0002f800-\U0002fa1f]"
)
"""Characters that are words for BERT (google-research/bert, tokenization.py)."""
_PRE_TOKENIZER = BertPreTokenizer()
_MESSAGES = {
    "comments": "{} comments (# …) are no words",
    "docstart": "{} lines of -DOCSTART- are no words",
    "empty_sentences": "{} sentences without a word were left out",
    "untagged": "{} sentences without tags were left out",
    "replacement_characters": "{} characters were lost before (U+FFFD stands in the file)",
    "unwritten_words": "{} lines of ranges and of words that are not written were left out (1-2, 1.1)",
}


class Sentence(NamedTuple):
    """Words, and where they are from."""

    words: list[str]
    tags: list[str] | None
    """Of each word; none of what is to be tagged."""
    file: str
    line: int
    """Of its first word; of a list in JSON the row; from 1."""
    text: str
    """The line of plain text; of others the words with a space between them."""
    offsets: list[tuple[int, int]]
    """Where each word stands in `text`: first character and one past the last."""


@dataclass
class SentenceFile:
    """One file and what was found in it.

    Attributes:
        file: its name.
        form: one of `FORMS`.
        encoding: as Python names it.
        sentences: in order, none without a word.
        columns: of CoNLL, those of the word and of the tag, from 1; no tag where it is to be predicted.
        notes: a word for programs -> what was left out, guessed or looks wrong.
    """

    file: str
    form: str
    encoding: str
    sentences: list[Sentence] = field(default_factory=list)
    columns: tuple[int, int | None] | None = None
    notes: dict[str, list[str]] = field(default_factory=dict)


def read_sentences(
    path: Path,
    *,
    tagged: bool = True,
    form: str | None = None,
    word_column: int | None = None,
    tag_column: int | None = None,
    encoding: str | None = None,
    name: str | None = None,
) -> SentenceFile:
    """Reads the sentences of a file.

    In CoNLL a line is a word and what belongs to it, in columns parted by tabs, or by spaces where not every line has a
    tab; a line of white space, or -DOCSTART-, ends a sentence. In JSON an object has `words` (or `tokens`) and `tags`
    (or `ner_tags`, `labels`); objects are lines, or a list. Plain text can only be tagged: each line is split into
    words by BERT's rules; so is the `text` of JSON without words.

    Args:
        path: the file.
        tagged: whether it has tags, which then are needed; else none is read.
        form: one of `FORMS`; if none: `json` by its ending; `conll` if it has tags, by its ending, or if every line has
            columns of which the last is a tag; else `text`.
        word_column: of CoNLL, from 1; if none, the first, or the second where the first counts the words.
        tag_column: of CoNLL, from 1; if none, the last.
        encoding: if none, it is found.
        name: of the file in what is returned; if none, its own without its folder.

    Raises:
        UserError: the file cannot be read, a line has other columns than the others, or a tag of no scheme (both are
            named with their line), words and tags are not as many, or there is no sentence.
    """
    if form not in (None, *FORMS) or (form == "text" and tagged):
        raise UserError(f"form: expected conll or json (or, without tags, text), got {form!r}; choose one")
    for column in (word_column, tag_column):
        if column is not None and column < 1:
            raise UserError(f"column: expected a number from 1, got {column}; count from the left")
    guessed = encoding is None
    encoding = find_encoding(path) if encoding is None else _checked(path, encoding)
    name = path.name if name is None else name
    made = SentenceFile(name, "", encoding)
    if guessed and encoding in ("cp1252", "latin-1"):
        made.notes["encoding_guessed"] = [f"{name}: is not UTF-8; read as {encoding}, which is a guess"]
    counts: Counter[str] = Counter()
    if form is None and path.suffix.lower() in (".json", *JSON_LINES):
        form = "json"
    lines = [] if form == "json" else list(_lines(path, encoding))
    made.form = form or ("conll" if tagged or _is_conll(path, lines) else "text")
    if made.form == "json":
        found = _of_json(path, encoding, tagged, counts)
    elif made.form == "conll":
        rows = _Rows(path, lines, tagged, word_column, tag_column)
        made.columns = rows.word + 1, rows.tag + 1 if rows.tag is not None else None
        if rows.numbered:
            made.notes["numbered_words"] = [f"{name}: the first column counts the words, which are in the second"]
        found = rows.sentences(counts)
    else:
        found = ((n, *words_of(line), None, line) for n, line in lines if line.strip())
    for line, words, offsets, tags, text in found:
        counts["replacement_characters"] += sum(word.count("\ufffd") for word in words)
        if words:
            made.sentences.append(Sentence(words, tags, name, line, text, offsets))
        else:
            counts["empty_sentences"] += 1
    if not made.sentences:
        why = "those of it have no tags" if counts["untagged"] else "it is empty"
        raise UserError(f"{path}: expected sentences, found none ({why}); check the file")
    _check_types(path, made.sentences)
    for code, message in _MESSAGES.items():
        if counts[code]:
            made.notes[code] = [f"{name}: {message.format(f'{counts[code]:,}')}"]
    return made


def words_of(text: str) -> tuple[list[str], list[tuple[int, int]]]:
    """Splits a text as BERT does: at white space, punctuation, and around Chinese characters; nothing is changed.

    Returns:
        The words, and of each its first character in the text and one past the last.
    """
    found = [span for _, span in _PRE_TOKENIZER.pre_tokenize_str(text)]
    if _CHINESE.search(text):
        found = [part for span in found for part in _apart(text, *span)]
    return [text[start:stop] for start, stop in found], found


Found = tuple[int, list[str], list[tuple[int, int]], list[str] | None, str]
"""Line, words, offsets, tags, text."""


class _Rows:
    """The lines of a CoNLL file and how they are read; indices of columns count from 0."""

    def __init__(
        self, path: Path, lines: Sequence[tuple[int, str]], tagged: bool, word: int | None, tag: int | None
    ) -> None:
        self.path = path
        content = [(n, line.strip(" \t") if line.strip() else "") for n, line in lines]
        by_tab = all("\t" in line for _, line in content if line and not line.startswith(("#", _DOCSTART)))
        self.rows = [(n, line, _cells(line, by_tab)) for n, line in content]
        told = [(line, len(cells)) for _, line, cells in self.rows if line and cells[0] != _DOCSTART]
        width = Counter([n for line, n in told if line[0] != "#"] or [n for _, n in told]).most_common(1)
        self.n_columns = width[0][0] if width else 1
        self.fixed = tag is None
        self.numbered = word is None and self.n_columns > 1 + tagged and self._is_numbered()
        self.word = word - 1 if word is not None else int(self.numbered)
        self.tag = (tag or self.n_columns) - 1 if tagged else None
        self.least = max(self.word, self.tag or 0) + 1
        if width and (self.least > self.n_columns or self.tag == self.word):
            wanted = "a word and its tag in two columns" if self.fixed else f"{self.least} columns, two of them named"
            raise UserError(f"{path}: expected {wanted}, got {self.n_columns} in most lines; check form and columns")

    def sentences(self, counts: Counter[str]) -> Iterator[Found]:
        """Yields the sentences."""
        words: list[str] = []
        tags: list[str] = []
        first = 0
        for n, line, cells in [*self.rows, (0, "", [""])]:
            docstart = cells[0] == _DOCSTART
            if words and (docstart or not line):
                yield first, words, *_joined(words, tags if self.tag is not None else None)
                words, tags = [], []
            counts["docstart"] += docstart
            if docstart or not line:
                continue
            if not words and self._is_comment(line, cells):
                counts["comments"] += 1
                continue
            if self.numbered and not cells[0].isdigit():
                counts["unwritten_words"] += 1
                continue
            if len(cells) < self.least or (self.fixed and len(cells) != self.n_columns):
                wanted = f"{self.n_columns} columns as in the other lines" if self.fixed else f"{self.least} columns"
                raise UserError(f"{self.path}: line {n}: expected {wanted}, got {len(cells)}; mend the line")
            if not cells[self.word]:
                raise UserError(f"{self.path}: line {n}: expected a word, got none; mend the line")
            first = first if words else n
            words.append(cells[self.word])
            if self.tag is not None:
                tags.append(_checked_tag(cells[self.tag], f"{self.path}: line {n}"))

    def _is_comment(self, line: str, cells: list[str]) -> bool:
        """Says whether a line at the beginning of a sentence is a comment: #, and no word with its columns."""
        other = len(cells) != self.n_columns or (self.tag is not None and not _is_tag(cells[self.tag]))
        return bool(_KEY.match(line) or (other and _COMMENT.match(line)))

    def _is_numbered(self) -> bool:
        """Says whether the first column counts the words of each sentence from 1."""
        last = 0
        for _, line, cells in self.rows:
            if not line or cells[0] == _DOCSTART:
                last = 0
            elif not (line.startswith("#") and last == 0):
                found = _COUNTER.fullmatch(cells[0])
                if found is None or (found[1] and int(found[1]) != last + 1):
                    return False
                last += bool(found[1])
        return True


def _cells(line: str, by_tab: bool) -> list[str]:
    return [cell.strip(" ") for cell in line.split("\t")] if by_tab and "\t" in line else _BLANKS.split(line)


def _is_conll(path: Path, lines: Sequence[tuple[int, str]]) -> bool:
    if path.suffix.lower() in _CONLL:
        return True
    cells = (_BLANKS.split(line.strip(" \t")) for _, line in lines if line.strip() and not line.startswith(_DOCSTART))
    return all(len(one) > 1 and _is_tag(one[-1]) for one in cells)


def _is_tag(tag: str) -> bool:
    try:
        return bool(parse_tag(tag))
    except UserError:
        return False


def _checked_tag(tag: Any, place: str) -> str:
    if not isinstance(tag, str):
        raise UserError(f"{place}: expected tags as text, such as B-PER, got {tag!r}; write their names")
    try:
        parse_tag(tag)
    except UserError as problem:
        raise UserError(f"{place}: {problem}") from None
    return tag


def _check_types(path: Path, sentences: Sequence[Sentence]) -> None:
    """Refuses a tag that lacks the type that others have."""
    tagged = [(one.line, tag) for one in sentences for tag in one.tags or () if tag != "O"]
    bare = [(line, tag) for line, tag in tagged if parse_tag(tag)[1] == UNTYPED]
    if 0 < len(bare) < len(tagged):
        line, tag = bare[0]
        raise UserError(f"{path}: sentence of line {line}: expected a type behind {tag!r}, as others have; mend it")


def _joined(words: list[str], tags: list[str] | None) -> tuple[list[tuple[int, int]], list[str] | None, str]:
    """Returns offsets, tags and text of words that have no text of their own."""
    offsets, at = [], 0
    for word in words:
        offsets.append((at, at + len(word)))
        at += len(word) + 1
    return offsets, tags, " ".join(words)


def _apart(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yields a word's parts, each Chinese character being one."""
    for found in _CHINESE.finditer(text, start, stop):
        if start < found.start():
            yield start, found.start()
        yield found.span()
        start = found.end()
    if start < stop:
        yield start, stop


def _lines(path: Path, encoding: str) -> Iterator[tuple[int, str]]:
    """Yields the lines with their numbers, without their ends."""
    with open_text(path, encoding) as file:
        number = 0
        while line := file.readline(MOST_CHARACTERS):
            number += 1
            if len(line) == MOST_CHARACTERS:
                raise UserError(f"{path}: line {number}: expected at most {MOST_CHARACTERS:,} characters; cut the line")
            yield number, line.removesuffix("\n")


def _checked(path: Path, encoding: str) -> str:
    try:
        check_encoding(path, encoding)
    except LookupError:
        raise UserError(f"encoding: expected a name such as utf-8, utf-16 or cp1252, got {encoding!r}") from None
    return encoding


def _objects(path: Path, encoding: str) -> Iterator[tuple[str, int, Any]]:
    """Yields line or row, its number, and what is there; a file that is no JSON as a whole is one of JSON lines."""
    found: Exception | None = None
    if path.suffix.lower() not in JSON_LINES:
        try:
            whole = json.loads(read_bytes(path, _MOST_BYTES).decode(encoding))
        except (ValueError, RecursionError) as problem:
            found = problem
        else:
            yield from (("row", n, row) for n, row in enumerate(_listed(whole), 1))
            return
    seen = False
    for number, line in _lines(path, encoding):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as problem:
                place, why = (f"line {number}: ", problem) if seen or found is None else ("", found)
                raise UserError(f"{path}: {place}expected JSON, but it cannot be read ({why}); mend it") from None
            seen = True
            yield "line", number, row


def _listed(whole: Any) -> list[Any]:
    """Returns the rows: those of a list, of an object of lists of lists (words of each sentence), or the one object."""
    if isinstance(whole, dict):
        columns = {key: value for key, value in whole.items() if key in (*WORDS, *TAGS) and isinstance(value, list)}
        nested = columns and all(isinstance(one, list) for value in columns.values() for one in value)
        if nested and len({len(value) for value in columns.values()}) == 1:
            return [dict(zip(columns, row)) for row in zip(*columns.values())]
    return whole if isinstance(whole, list) else [whole]


def _of_json(path: Path, encoding: str, tagged: bool, counts: Counter[str]) -> Iterator[Found]:
    for unit, number, row in _objects(path, encoding):
        place = f"{path}: {unit} {number}"
        values = row if isinstance(row, dict) else {}
        words, tags = (next((values[key] for key in keys if key in values), None) for keys in (WORDS, TAGS))
        text = values.get("text")
        if words is None and not tagged and isinstance(text, str) and is_unicode(text):
            yield number, *words_of(text), None, text
            continue
        if not isinstance(words, list) or not all(isinstance(one, str) and is_unicode(one) for one in words):
            raise UserError(f"{place}: expected an object with words or tokens, a list of text; mend it")
        if words == [_DOCSTART]:
            counts["docstart"] += 1
        elif not tagged:
            yield number, words, *_joined(words, None)
        elif tags is None:
            counts["untagged"] += 1
        elif not isinstance(tags, list) or len(tags) != len(words):
            n = len(tags) if isinstance(tags, list) else "none"
            raise UserError(f"{place}: expected a tag for each of {len(words)} words, got {n}; mend it")
        else:
            yield number, words, *_joined(words, [_checked_tag(tag, place) for tag in tags])

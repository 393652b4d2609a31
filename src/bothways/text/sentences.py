"""A document to sentences, by rules good enough for next-sentence pairs."""

import re
from collections.abc import Callable

Splitter = Callable[[str], list[str]]
"""What splits a document into its sentences, in order; `split_sentences` is one, and any other may take its place."""

_OPEN, _CLOSE = "\"'“‘«‹„‚([{「『（《〈【¿¡", "\"'”’»›)]}」』）》〉】"
_STOPS, _WIDE_STOPS = ".!?…‽؟۔।॥", "。！？｡．"
_END = re.compile(rf"[{_STOPS}]++[{re.escape(_CLOSE)}]*+(\s+(?=\S))?+")
"""Where a sentence may end, if there is white space behind it."""
_WIDE_END = re.compile(
    rf"(?<![{_STOPS}])[{_STOPS}]++[{re.escape(_CLOSE)}]*+(\s+)(?=\S)"
    rf"|(?<![{_WIDE_STOPS}])[{_WIDE_STOPS}]++[{re.escape(_CLOSE)}]*+(\s*+)(?=\S)"
)
"""The same in a text with the marks of Chinese and Japanese, which need no white space; it takes longer."""
_WIDE = re.compile(f"[{_WIDE_STOPS}]")
_TITLES = re.compile(
    r"adm|assoc|brig|capt|cf|cmdr|col|cpl|dept|dr|e\.g|esp|est|fr|ft|gen|gov|hon|i\.e|inst|lt|maj|messrs|mlle|"
    r"mme|mr|mrs|ms|mt|mx|pres|prof|pvt|rep|rev|sen|sens|sgt|st|supt|univ|viz|vs"
)
"""Abbreviations that something follows."""
_BEFORE_NUMBERS = re.compile(
    r"al|apr|aug|art|ca|ch|chap|dec|eq|eqs|feb|fig|figs|jan|jul|jun|mar|no|nos|nov|nr|oct|p|para|pp|pt|sec|sect|"
    r"sep|sept|tab|vol|vols"
)
"""Abbreviations only where a number follows: "No. 5", but "He said no. Then he left"."""
_INITIAL = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")
_NUMBER = re.compile(r"[(\[]?(?:\d{1,3}|[a-zA-Z]|[ivxIVX]{1,4})")
_WIDEST_WRAPPED = 120
"""Characters of a line beyond which nobody wraps text by hand: a longer one is a paragraph."""


def split_sentences(text: str) -> list[str]:
    r"""Splits a document into sentences; nothing but white space is lost, and runs of it become one space.

    A sentence ends at `.`, `!`, `?` or `…` (with the quotes and brackets that close behind it) before white space, if
    what follows does not begin with a small letter, and at the full stops of Chinese and Japanese. Not so after
    titles and their like ("Dr."), initials ("J. Smith", "U.S. Senate"), "No." and "Fig." before a number, or the
    number of a list. It also ends at an empty line, and at a line's end that was meant: the next line does not begin
    with a small letter, and its first word would have had room. In a document without any capital letter small
    letters begin sentences too.

    Args:
        text: a document, its lines ended by `\n`.

    Returns:
        The sentences in order, none empty.
    """
    cased = any(map(str.isupper, text))
    return [sentence for block in _blocks(text) for sentence in _of_block(block, cased)]


def _blocks(text: str) -> list[str]:
    """Returns what no sentence crosses, on one line each."""
    lines = [" ".join(line.split()) for line in text.split("\n")]
    widest = max(map(len, lines))
    blocks: list[list[str]] = [[]]
    for before, line in zip(["", *lines], lines):
        meant = widest > _WIDEST_WRAPPED or len(before) + 1 + len(line.split(" ", 1)[0]) <= widest
        if not (before and line) or (meant and not _first(line).islower()):
            blocks.append([])
        if line:
            blocks[-1].append(line)
    return [" ".join(block) for block in blocks if block]


def _of_block(text: str, cased: bool) -> list[str]:
    found, start = [], 0
    for end in (_WIDE_END if _WIDE.search(text) else _END).finditer(text):
        if end.lastindex and _ends(text, start, end, cased):
            found.append(text[start : end.end()].rstrip())
            start = end.end()
    return [*found, text[start:]]


def _ends(text: str, start: int, end: re.Match[str], cased: bool) -> bool:
    """Says whether the sentence from `start` on is over at a place where it may be."""
    following = _first(text[end.end() : end.end() + 8])
    if text[end.start()] in _WIDE_STOPS:
        return not following.isdigit()
    if not (following.isalnum() or ord(following) > 0x2190) or (cased and following.islower()):
        return False  # above are arrows, symbols and emoji, which open a sentence; below, marks, which do not
    if end.group().rstrip() != ".":
        return True
    before = text[max(start, end.start() - 40) : end.start()]  # 40: longer than any abbreviation
    word = before.rsplit(" ", 1)[-1].lstrip(_OPEN).lower()
    if end.start() - start == len(before) and _NUMBER.fullmatch(before):
        return False
    if _TITLES.fullmatch(word) or (following.isdigit() and _BEFORE_NUMBERS.fullmatch(word)):
        return False
    return word in ("a.m", "p.m", "i") or not _INITIAL.fullmatch(word)


def _first(text: str) -> str:
    """Returns the first character behind what opens a sentence."""
    return text.lstrip(_OPEN + " ")[:1] or text[:1]

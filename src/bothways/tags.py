"""Tags of words: which scheme they are in, the entities that they mark, and one scheme made another."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from bothways.errors import UserError

RULES = ("default", "strict")
SCHEMES = ("IOB1", "IOB2", "BIOES", "BILOU")
_ALSO_CALLED = {"BIO": "IOB2", "IOBES": "BIOES"}
_TAG = re.compile(r"(O)|([BIESLU])(?:-(\S(?:.*\S)?))?", re.DOTALL)
UNTYPED = "_"
"""The type of an entity whose tags are bare letters."""
_LIKE_BIOES = {"L": "E", "U": "S"}
_LETTERS = {"IOB1": "BIO", "IOB2": "BIO", "BIOES": "BIOES", "BILOU": "BILOU"}
_LAST_AND_ONLY = {"IOB1": ("I", "I"), "IOB2": ("I", "B"), "BIOES": ("E", "S"), "BILOU": ("L", "U")}
"""Letters of the last word of several, and of the only one."""


class _Strict(NamedTuple):
    """Neighbours at which an entity starts, goes on and ends: two letters and `=` same type, `!` another, `*` any."""

    start: frozenset[str]
    inside: frozenset[str]
    end: frozenset[str]


def _strict(start: str, inside: str, end: str) -> _Strict:
    return _Strict(*(frozenset(one.split()) for one in (start, inside, end)))


_AFTER_ANY = " ".join(f"{a}{b}*" for a in "OBIES" for b in "BS")
_BEFORE_ANY = " ".join(f"{a}{b}*" for a in "ES" for b in "OBIES")
_PATTERNS = {
    "IOB1": _strict("OI* II! BI* IB= BB=", "BI= II=", "II! IO* IB* BO* BI! BB="),
    "IOB2": _strict("OB* IB* BB*", "BI= II=", "II! IO* IB* BO* BI! BB*"),
    "BIOES": _strict(_AFTER_ANY, "BI= BE= II= IE=", _BEFORE_ANY),
}
"""Those of seqeval 1.2.2; of BILOU, BIOES in other letters, the same."""


class Entity(NamedTuple):
    """Words `start` up to, not with, `stop` are of a type."""

    type: str
    start: int
    stop: int


class Scheme(NamedTuple):
    """What tags are in."""

    name: str
    """One of `SCHEMES`."""
    n_broken: int
    """Tags that cannot be in it, where none fits all."""
    ambiguous: bool
    """Whether IOB1 and IOB2 fit alike, or neither."""
    said: str
    """Why, for a person."""


@lru_cache(maxsize=2**16)
def parse_tag(tag: str) -> tuple[str, str]:
    """Returns a tag's letter and type: ("B", "PER") of B-PER; `UNTYPED` for O and for bare letters.

    Raises:
        UserError: it is of no scheme.
    """
    found = _TAG.fullmatch(tag)
    if found is None:
        raise UserError(
            f"expected a tag such as O, B-PER or I-PER (IOB1, IOB2, BIOES, BILOU), got {tag!r}; mend it or name the "
            "column of the tags"
        )
    outside, letter, kind = found.groups()
    return outside or letter, kind or UNTYPED


def scheme_named(name: str) -> str:
    """Returns which of `SCHEMES` a name stands for; IOBES is BIOES, BIO is IOB2.

    Raises:
        UserError: none.
    """
    known = _ALSO_CALLED.get(name.upper(), name.upper())
    if known not in SCHEMES:
        raise UserError(f"scheme: expected {', '.join(SCHEMES)}, got {name!r}; choose one")
    return known


def recognise_scheme(sequences: Iterable[Sequence[str]]) -> Scheme:
    """Recognises the scheme of the tags of many sentences.

    E and S are BIOES, L and U are BILOU. Of B and I alone, an I that begins an entity is none of IOB2, and a B where no
    entity of its type ends is none of IOB1; where both are found the scheme with fewer such tags is named.

    Raises:
        UserError: a tag of no scheme, or letters of two schemes.
    """
    letters: set[str] = set()
    stray = needless = broken = 0
    for tags in sequences:
        before, kind_before = "O", UNTYPED
        for letter, kind in map(parse_tag, tags):
            goes_on = before != "O" and kind == kind_before
            stray += letter == "I" and not goes_on
            needless += letter == "B" and not goes_on
            before, kind_before = letter, kind
            letters.add(letter)
        if letters & set("ESLU"):
            broken += sum(tag != "O" for tag in tags) - sum(one.stop - one.start for one in _by_patterns(tags, "BIOES"))
    if letters & {"E", "S"} and letters & {"L", "U"}:
        raise UserError("expected tags of one scheme, got E or S of BIOES beside L or U of BILOU; make them one")
    if letters & set("ESLU"):
        name = "BILOU" if letters & {"L", "U"} else "BIOES"
        return Scheme(name, broken, False, f"{name}: by its letters" + f", but {broken} tags break it" * bool(broken))
    if not stray and not needless:
        return Scheme("IOB2", 0, True, "IOB1 or IOB2: there is no entity, which is the same in both; taken for IOB2")
    if not needless:
        return Scheme("IOB1", 0, False, "IOB1: I begins entities, B only parts two of the same type")
    if not stray:
        return Scheme("IOB2", 0, False, "IOB2: each entity begins with B")
    name = "IOB2" if stray <= needless else "IOB1"
    said = f"neither IOB1 nor IOB2: {stray} entities begin with I, {needless} with a B that IOB1 has not"
    return Scheme(name, min(stray, needless), True, f"{said}; taken for {name}")


def entities_of(tags: Sequence[str], rule: str = "default", scheme: str = "IOB2") -> list[Entity]:
    """Returns the entities that the tags of one sentence mark, in order.

    Args:
        tags: of each word.
        rule: `default`: conlleval's, which reads every scheme and every slip: an entity begins at B and S, wherever the
            type changes, and at any other tag that nothing precedes. `strict`: only what is whole in `scheme`.
        scheme: read by `strict` alone.

    Raises:
        UserError: a tag of no scheme, or with `strict` of another; a rule or scheme that is none.
    """
    if rule not in RULES:
        raise UserError(f"rule: expected {' or '.join(RULES)}, got {rule!r}; choose one")
    if rule == "default":
        return _by_conlleval(tags)
    scheme = scheme_named(scheme)
    if odd := [tag for tag in tags if parse_tag(tag)[0] not in _LETTERS[scheme]]:
        raise UserError(f"expected tags of {scheme} ({', '.join(_LETTERS[scheme])}), got {odd[0]!r}; name their scheme")
    return _by_patterns(tags, scheme)


def convert_tags(tags: Sequence[str], scheme: str) -> list[str]:
    """Returns the tags of one sentence in another scheme; they are read by conlleval's rule, whatever they are in."""
    scheme, made, before = scheme_named(scheme), ["O"] * len(tags), Entity(UNTYPED, -1, -1)
    last, only = _LAST_AND_ONLY[scheme]
    for one in entities_of(tags):
        letters = only if one.stop - one.start == 1 else "B" + "I" * (one.stop - one.start - 2) + last
        if scheme == "IOB1":
            letters = ("B" if (one.type, one.start) == (before.type, before.stop) else "I") + letters[1:]
        made[one.start : one.stop] = [
            one_tag if one.type == UNTYPED else f"{one_tag}-{one.type}" for one_tag in letters
        ]
        before = one
    return made


def _pairs(tags: Sequence[str]) -> list[tuple[str, str]]:
    """Returns letter and type of each tag, letters as in BIOES, and of an O behind the last."""
    parsed = map(parse_tag, [*tags, "O"])
    return [(_LIKE_BIOES.get(letter, letter), kind) for letter, kind in parsed]


def _by_conlleval(tags: Sequence[str]) -> list[Entity]:
    found, start, before, kind_before = [], 0, "O", UNTYPED
    for i, (letter, kind) in enumerate(_pairs(tags)):
        changed = kind != kind_before
        if before in "ES" or (before in "BI" and (letter in "BSO" or changed)):
            found.append(Entity(kind_before, start, i))
        if letter in "BS" or (letter in "IE" and (before in "OES" or changed)):
            start = i
        before, kind_before = letter, kind
    return found


def _by_patterns(tags: Sequence[str], scheme: str) -> list[Entity]:
    patterns, pairs = _PATTERNS["BIOES" if scheme == "BILOU" else scheme], _pairs(tags)

    def fits(pattern: frozenset[str], i: int) -> bool:
        (a, kind_a), (b, kind_b) = pairs[i - 1] if i else ("O", UNTYPED), pairs[i]
        return f"{a}{b}*" in pattern or f"{a}{b}{'=' if kind_a == kind_b else '!'}" in pattern

    found, i = [], 0
    while i < len(tags):
        start, i = i, i + 1
        if fits(patterns.start, start):
            while fits(patterns.inside, i):
                i += 1
            if fits(patterns.end, i):
                found.append(Entity(pairs[start][1], start, i))
    return found

"""Where what readers see as one character begins and ends, so that a text is not cut inside it."""

import unicodedata

_JOINER = "\u200d"


def whole_graphemes(text: str, start: int, stop: int) -> tuple[int, int]:
    """Returns the smallest stretch of a text that holds another one and cuts no grapheme.

    By the rules of Unicode (UAX 29) for line ends, combining marks, joined and coloured emoji, flags and Hangul; not
    those for prepended marks and conjuncts of Indic scripts.

    Args:
        text: all of it.
        start: first character, in code points.
        stop: one past the last.
    """
    while _inside(text, start):
        start -= 1
    while _inside(text, stop):
        stop += 1
    return start, stop


def _inside(text: str, place: int) -> bool:
    """Says whether a place between two characters lies inside a grapheme."""
    if not 0 < place < len(text):
        return False
    before, after = text[place - 1], text[place]
    if after.isascii():
        return before == "\r" and after == "\n"
    if before in "\r\n":
        return False
    if _extends(after):
        return True
    if before == _JOINER:
        return unicodedata.category(after) == "So"
    if _is_flag_letter(before) and _is_flag_letter(after):
        first = place
        while first and _is_flag_letter(text[first - 1]):
            first -= 1
        return (place - first) % 2 == 1
    return False


def _extends(character: str) -> bool:
    """Says whether a character goes on with the one before it: a mark, joiner, skin colour, tag, part of Hangul."""
    code = ord(character)
    return (
        unicodedata.category(character).startswith("M")
        or code in (0x200C, 0x200D)
        or 0x1F3FB <= code <= 0x1F3FF
        or 0xE0020 <= code <= 0xE007F
        or 0x1160 <= code <= 0x11FF
    )


def _is_flag_letter(character: str) -> bool:
    return 0x1F1E6 <= ord(character) <= 0x1F1FF

"""Numbers in printed text: read from lines, and found again in another text in the same order."""

import re
from collections.abc import Sequence
from decimal import Decimal

_NUMBER = re.compile(r"(?<![\w.])[+-]?\d+(?:\.\d*)?(?!\w)")


def numbers_of(text: str) -> list[str]:
    """Returns the numbers of a text; `24..31` are two, a second's `s` is dropped, names such as `p3` are none."""
    return _NUMBER.findall(re.sub(r"(?<=\d)s\b", "", text.replace("..", " ")))


def not_found(lines: Sequence[Sequence[str]], text: str) -> list[Sequence[str]]:
    """Returns the lines of figures that do not come, unbroken and in this order, among the numbers of a text.

    Compared as decimals: 0.638 is 0.6380, but 0.6381 is not.
    """
    printed = [Decimal(number) for number in numbers_of(text)]
    place, missing = 0, []
    for line in lines:
        wanted = [Decimal(number) for number in line]
        for start in range(place, len(printed) - len(wanted) + 1):
            if printed[start : start + len(wanted)] == wanted:
                place = start + len(wanted)
                break
        else:
            missing.append(line)
    return missing

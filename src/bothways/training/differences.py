"""How a run that goes on differs from how it was begun, and what may: some settings, the last bits, what is forced."""

import json
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bothways.config import ANY_TIME
from bothways.errors import BothwaysWarning, UserError

_BITS = ("bothways", "torch", "processes", "threads")
"""Another of these may change the last bits."""


def compare(path: Path, theirs: dict[str, Any], mine: dict[str, Any], *, finished: bool, force: bool) -> list[str]:
    """Refuses what would change the numbers, or returns it; what may change their last bits only is said."""
    differing = list(_differences(theirs, mine))
    bits = {name: text for name, text in differing if name in _BITS}
    if bits and not finished:
        drawn = "processes" in bits and any(_dropouts(mine))
        what = "other dropout is drawn" if drawn else "the last bits may differ"
        warnings.warn(f"{path}: goes on with {'; '.join(bits.values())}: {what}", BothwaysWarning, stacklevel=4)
    others = [text for name, text in differing if name not in (*_BITS, *(f"training.{name}" for name in ANY_TIME))]
    if others and (finished or not force):
        go_on = "" if finished else ", or --force to go on all the same"
        over = ", and a finished run cannot be extended" if finished and force else ""
        raise UserError(
            f"{path}: was {'made' if finished else 'begun'} with other settings or data ({'; '.join(others)}){over}; "
            f"use those, choose another --out, pass --overwrite to begin anew{go_on}"
        )
    if others:
        warnings.warn(f"{path}: --force goes on although {'; '.join(others)}", BothwaysWarning, stacklevel=4)
    return others


def differing(theirs: Any, mine: Any) -> list[str]:
    """Says where two JSON values differ: a text for each place."""
    return [said for _, said in _differences(theirs, mine)]


def _dropouts(values: Mapping[str, Any]) -> Iterator[float]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _dropouts(value)
        elif "dropout" in name:
            yield value


def _differences(theirs: Any, mine: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(theirs, dict) and isinstance(mine, dict):
        for key in dict.fromkeys([*theirs, *mine]):
            yield from _differences(theirs.get(key), mine.get(key), f"{name}.{key}" if name else str(key))
    elif theirs != mine:
        yield name, f"{name}: {_short(theirs)}, now {_short(mine)}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:37]}…"

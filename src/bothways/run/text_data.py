"""Labelled texts in memory and their division; predictions as they come, to a list or a file."""

import csv
import hashlib
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from bothways.draws import generator
from bothways.errors import UserError
from bothways.files import beside, read_bytes, replacing

SEEN = "seen.txt"
"""Of a run: a hash of each text, group or article that it was trained on or chosen by, one a line."""
R = TypeVar("R")
D = TypeVar("D", bound="Labelled[Any]")


@dataclass(frozen=True)
class Labelled(Generic[R]):
    """Texts with what is known of them, and of their files."""

    rows: list[R]
    told: dict[str, Any]

    def __len__(self) -> int:
        return len(self.rows)

    def identity(self) -> str:
        """Returns a hash of all that is learned of the rows."""
        raise NotImplementedError

    def keys(self) -> list[str]:
        """Returns of each row what must not be on both sides of a split."""
        raise NotImplementedError

    def strata(self) -> list[str]:
        """Returns of each row of what a split takes the same share."""
        return [""] * len(self)


def digests(data: Labelled[Any]) -> list[str]:
    """Returns a hash of each row's key, in the rows' order."""
    keys = data.keys()
    return [hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest() for key in keys]


def seen_before(data: Labelled[Any], folder: Path) -> int | None:
    """Returns how many rows a run was trained on or chosen by, or others of their group; None where it does not say."""
    if not (folder / SEEN).is_file():
        return None
    seen = set(read_bytes(beside(folder, SEEN), 2**32).decode("ascii", "replace").split())
    return sum(one in seen for one in digests(data))


def select(data: D, chosen: Iterable[int]) -> D:
    """Returns some of the rows."""
    return replace(data, rows=[data.rows[i] for i in chosen])


def divide_rows(data: D, fraction: float, seed: int, name: str = "validation rows") -> tuple[D, D]:
    """Returns rows to train on and rows to measure on: of each stratum the same share, equal keys on one side.

    `name` is of the draw: the same rows are divided otherwise by another.
    """
    keys = data.keys()
    stratum_of = dict(zip(reversed(keys), reversed(data.strata())))
    n_of = Counter(keys)
    rng, held_out = generator(name, seed), set[str]()
    for one in sorted(set(stratum_of.values())):
        own = [key for key, stratum in stratum_of.items() if stratum == one]
        wanted, taken = max(1, round(fraction * sum(n_of[key] for key in own))), 0
        for place in rng.permutation(len(own))[: len(own) - 1]:
            if taken and taken + n_of[own[place]] / 2 > wanted:
                break
            held_out.add(own[place])
            taken += n_of[own[place]]
    kept = np.array([key in held_out for key in keys])
    return select(data, np.flatnonzero(~kept).tolist()), select(data, np.flatnonzero(kept).tolist())


def collect(
    out: Path | None,
    pools: Iterable[list[dict[str, Any]]],
    columns: Sequence[str],
    lines_of: Callable[[dict[str, Any]], Iterable[Sequence[Any]]],
    nothing: str,
) -> list[dict[str, Any]]:
    """Writes predictions as they come and returns none, or without a file returns all.

    Args:
        out: `FILE.csv` or `FILE.jsonl`; it is there when all is done, or not at all.
        pools: the predictions.
        columns: of CSV.
        lines_of: the CSV's lines of a prediction.
        nothing: what is said where there is no prediction.

    Raises:
        UserError: there is none.
    """
    if out is None:
        kept = [one for some in pools for one in some]
        if not kept:
            raise UserError(nothing)
        return kept
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    n = 0
    with replacing(out) as file:
        if out.suffix == ".csv":
            file.write(_csv([columns]))
        for some in pools:
            n += len(some)
            if out.suffix == ".csv":
                file.write(_csv(line for one in some for line in lines_of(one)))
            else:
                file.write("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in some).encode())
        if not n:
            raise UserError(nothing)
    return []


def _csv(rows: Iterable[Sequence[Any]]) -> bytes:
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows(rows)
    return lines.getvalue().encode()

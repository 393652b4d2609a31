"""One person under several names: alias groups, and names that look like one person's."""

from __future__ import annotations

import csv
import difflib
import io
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bothways.errors import UserError
from bothways.files import read_bytes, read_json

Aliases = Sequence[Sequence[str]]
"""Rows of names of one person each; a row of one name says that it is nobody else."""
_MOST_BYTES = 2**26
_SESSION = re.compile(
    r"(?i)(?:[-_. ]*(?:ses(?:sion)?|run|day|night|visit|part|block|trial|rec(?:ording)?)[-_ ]*\d+|(?<=\d)r\d+)$"
)
"""How names end that tell of a session or a run, not of a person: `01_ses-2`, `S001R02`."""
_LAST_WORD = re.compile(r"(?<=\d)[-_. ]+[A-Za-z0-9]+$")
"""How names of files go on behind the person's number: `chb01_03`, `Subject00_2`."""


def alias_groups(rows: Iterable[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Joins rows that share a name: each name is in one group; groups and names are sorted."""
    group_of: dict[str, set[str]] = {}
    for row in rows:
        joined = set(row).union(*(group_of[name] for name in row if name in group_of))
        group_of |= dict.fromkeys(joined, joined)
    return tuple(sorted({tuple(sorted(group)) for group in group_of.values()}))


def person_of(subjects: Iterable[str], aliases: Aliases) -> dict[str, str]:
    """Returns the person behind each name: the first name of its group, or the name itself."""
    first = {name: group[0] for group in alias_groups(aliases) for name in group}
    return {name: first.get(name, name) for name in map(str, subjects)}


def aliases_from(values: Any, source: str) -> tuple[tuple[str, ...], ...]:
    """Checks rows of names that came from a file.

    Raises:
        UserError: they are no lists of names.
    """
    rows = isinstance(values, list) and all(isinstance(row, list) and row for row in values)
    if not rows or not all(isinstance(name, str) and name.strip() for row in values for name in row):
        raise UserError(f'{source}: expected lists of names of one person each, such as [["chb01", "chb21"]]')
    return alias_groups(values)


def read_aliases(path: str | Path) -> tuple[tuple[str, ...], ...]:
    """Reads who is who: a JSON list of lists, or a CSV without a header; each row holds all names of one person.

    A row of one name says that it is nobody else, however much another name looks like it. Blank cells, and a first
    row that begins with `subject`, are skipped.

    Raises:
        UserError: it is no such file, or names nobody.
    """
    path = Path(path)
    if path.suffix.lower() == ".json":
        rows = read_json(path)
    else:
        try:
            text = read_bytes(path, _MOST_BYTES).decode("utf-8-sig")
        except UnicodeDecodeError:
            raise UserError(f"{path}: expected a CSV of names in UTF-8; save it so") from None
        lines = text.splitlines()
        delimiter = max(",;\t", key=text.count)
        cells = [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=delimiter)]
        rows = [named for row in cells if (named := [cell for cell in row if cell])]
        if rows and rows[0][0].lower() == "subject":
            rows = rows[1:]
    groups = aliases_from(rows, str(path))
    if not groups:
        raise UserError(f"{path}: expected rows of names of one person each, got none; write chb01,chb21")
    return groups


def read_names(given: str | Path | Iterable[str]) -> tuple[str, ...]:
    """Returns names given as a list, as `a,b`, or as a file with a name a line.

    Raises:
        UserError: there is none.
    """
    if isinstance(given, str | Path):
        path = Path(given)
        if isinstance(given, Path) or ("," not in given and path.is_file()):
            given = io.StringIO(read_bytes(path, _MOST_BYTES).decode("utf-8-sig", "replace"), newline=None)
        else:
            given = given.split(",")
    names = tuple(dict.fromkeys(name for one in given if (name := str(one).strip())))
    if not names:
        raise UserError("split: expected names of people, such as a,b, or a file with one a line, got none")
    return names


def check_names(named: Mapping[str, str], known: Iterable[str]) -> None:
    """Checks that the data has everybody who is named (name -> where).

    Raises:
        UserError: it has not; the missing ones are named, and of each the nearest name that there is.
    """
    here = sorted({str(name) for name in known})
    missing = []
    for name, where in named.items():
        if name in here:
            continue
        same = [other for other in here if _without_zeros(other) == _without_zeros(name)]
        near = same[:1] or difflib.get_close_matches(name, here, n=1, cutoff=0.6)
        missing.append(f"{name} ({where})" + (f", did you mean {near[0]}?" if near else ""))
    if missing:
        raise UserError(
            f"split: the data has no subject {', '.join(missing)}; it has {some(here)}; correct the split or the data"
        )


def alike(names: Iterable[str], aliases: Aliases = (), guessed: Iterable[str] = ()) -> list[tuple[str, str, bool]]:
    """Returns pairs of names that look like one person's, and whether that is sure.

    Sure are names that differ in case, spaces, separators or `sub-` alone. Likely are those that differ in leading
    zeros, or in an ending that tells of a session or run. Names in an alias row are settled: they are not returned.

    Args:
        names: all of them.
        aliases: see `Aliases`.
        guessed: those of files in whose path no person is named; of these the last word is left out, too.
    """
    settled = {name for group in aliases for name in group}
    loose = set(guessed)
    keys: list[tuple[bool, Any]] = [
        (True, _plain),
        (False, _without_zeros),
        (False, lambda name: _plain(_SESSION.sub("", name))),
        (False, lambda name: _plain(_LAST_WORD.sub("", name) if name in loose else name)),
    ]
    found: dict[tuple[str, str], bool] = {}
    for sure, key in keys:
        groups: dict[str, list[str]] = defaultdict(list)
        for name in sorted({str(name) for name in names} - settled):
            groups[key(name)].append(name)
        for group in groups.values():
            for i, name in enumerate(group):
                for other in group[i + 1 :]:
                    found.setdefault((name, other), sure)
    return [(*pair, sure) for pair, sure in found.items()]


def _plain(name: str) -> str:
    plain = re.sub(r"[\s_.-]+", "-", unicodedata.normalize("NFKC", name).casefold()).strip("-")
    return plain.removeprefix("sub-")


def _without_zeros(name: str) -> str:
    return re.sub(r"(?<!\d)0+(?=\d)", "", _plain(name))


def some(names: Sequence[str], most: int = 8) -> str:
    """Names the first few and says how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")

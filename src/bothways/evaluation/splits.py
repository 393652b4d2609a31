"""Who is trained on and who is tested: splits by person, made before any window is cut, kept as files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from bothways.errors import UserError
from bothways.evaluation.people import alias_groups, aliases_from, check_names, some
from bothways.files import read_json, write_json

Names = Sequence[str] | np.ndarray
"""One name per window; an array of text will do."""
PARTS = ("train", "validation", "test")
FORMAT = 2
"""Of format 1, which is read too, a file has neither `aliases` nor `made` nor `content`."""


@dataclass(frozen=True)
class Split:
    """Three lists of subjects that share nobody; only `validation` may be empty.

    Subjects of the data that are in no part are simply not used.

    Raises:
        UserError: a subject in two parts (or twice in one), or nobody to train or to test on.
    """

    train: tuple[str, ...]
    validation: tuple[str, ...]
    test: tuple[str, ...]
    seed: int | None = None
    """What it was drawn with; None = made by hand."""
    note: str = ""
    aliases: tuple[tuple[str, ...], ...] = ()
    """Names of one person each (see `people.alias_groups`); a person is in one part, whatever the name."""
    made: dict[str, Any] = field(default_factory=dict, hash=False)
    """How: `method`, its fractions or lists, what it is stratified by; empty = by hand."""
    content: dict[str, str] = field(default_factory=dict, hash=False, repr=False)
    """Of whose recordings: subject -> hash; empty = not known."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "aliases", alias_groups(self.aliases))
        parts_of: dict[str, list[str]] = defaultdict(list)
        for part in PARTS:
            for subject in getattr(self, part):
                parts_of[subject].append(part)
        shared = {subject: parts for subject, parts in parts_of.items() if len(parts) > 1}
        if shared:
            named = ", ".join(f"{subject} ({' and '.join(parts)})" for subject, parts in sorted(shared.items()))
            raise UserError(f"split: expected each subject once, got {named}; keep each in one part only")
        empty = [part for part in ("train", "test") if not getattr(self, part)]
        if empty:
            raise UserError(f"split: no subject in {' and in '.join(empty)}; name at least one there")
        for group in self.aliases:
            apart = {parts_of[name][0] for name in group if name in parts_of}
            if len(apart) > 1:
                named = ", ".join(f"{name} ({parts_of[name][0]})" for name in group if name in parts_of)
                raise UserError(f"split: one person in {len(apart)} parts under several names: {named}; keep one part")

    def identity(self) -> dict[str, Any]:
        """Returns what a training on it depends on: not how it was made."""
        values = asdict(self)
        left_out = {"made", "content", *([] if self.aliases else ["aliases"])}
        return {name: value for name, value in values.items() if name not in left_out}

    def rows(self, subjects: Names) -> dict[str, Int[np.ndarray, "part"]]:
        """Returns, for each part, the indices of its entries in `subjects` (one entry per window), ascending.

        Raises:
            UserError: the split names a subject that has no entry.
        """
        here = np.asarray(subjects, dtype=str)
        self.check_known(here)
        return {part: np.flatnonzero(np.isin(here, getattr(self, part))) for part in PARTS}

    def check_known(self, subjects: Iterable[str]) -> None:
        """Checks that the data has every subject that the split names, in its parts and as an alias.

        Raises:
            UserError: it has not; the missing ones are named, with the nearest name.
        """
        aliases = {name: "alias" for group in self.aliases for name in group}
        check_names(aliases | {name: part for part in PARTS for name in getattr(self, part)}, subjects)

    def among(self, subjects: Iterable[str], what: str) -> tuple[Split, dict[str, list[str]]]:
        """Returns the split without those who have no entry in `subjects`, and who they are, by part.

        Args:
            subjects: whose windows there are.
            what: what the others lack, for the error.

        Raises:
            UserError: nobody is left to train or to test on.
        """
        here = {str(subject) for subject in subjects}
        absent = {part: [s for s in getattr(self, part) if s not in here] for part in PARTS}
        for part in ("train", "test"):
            if len(absent[part]) == len(getattr(self, part)):
                raise UserError(
                    f"split: expected somebody in {part} with a {what}, but {some(absent[part])} have none; name "
                    "others there"
                )
        train, validation, test = (tuple(s for s in getattr(self, part) if s in here) for part in PARTS)
        kept = replace(self, train=train, validation=validation, test=test)
        return kept, {part: names for part, names in absent.items() if names}

    def save(self, path: Path) -> None:
        """Writes the split as JSON, atomically."""
        write_json(path, {"format": FORMAT, **asdict(self)})

    @classmethod
    def load(cls, path: Path) -> Split:
        """Reads what `save` wrote, or the same by hand: only `train` and `test` must be there.

        Raises:
            UserError: not such a file, a newer format, or not a valid split.
        """
        values = read_json(path)
        try:
            return cls.of(values)
        except UserError as problem:
            raise UserError(f"{path}: {problem}") from None

    @classmethod
    def of(cls, values: Any) -> Split:
        """Makes a split from plain values, as `load` and a run's manifest have them.

        Raises:
            UserError: not a valid split.
        """
        known = {"format", *(one.name for one in fields(cls))}
        if not isinstance(values, dict) or not {"train", "test"} <= values.keys() <= known:
            raise UserError(f"split: expected the keys train and test, and of {', '.join(sorted(known))} no others")
        if values.get("format", FORMAT) not in (1, FORMAT):
            raise UserError(
                f"split: expected format {FORMAT} or format 1, got {values['format']!r}; make the split again"
            )
        parts = {part: values.get(part, []) for part in PARTS}
        for part, subjects in parts.items():
            if not isinstance(subjects, list) or not all(isinstance(subject, str) for subject in subjects):
                raise UserError(f"split: {part}: expected a list of subjects in quotes, got {subjects!r}")
        seed, note = values.get("seed"), values.get("note", "")
        if not isinstance(seed, int | None) or not isinstance(note, str):
            raise UserError(f"split: expected a whole number as seed and text as note, got {seed!r} and {note!r}")
        made, content = values.get("made", {}), values.get("content", {})
        if not isinstance(made, dict) or not isinstance(content, dict):
            raise UserError("split: made, content: expected names with values in braces; take them out")
        return cls(
            **{part: tuple(subjects) for part, subjects in parts.items()},
            seed=seed,
            note=note,
            aliases=aliases_from(values.get("aliases", []), "split: aliases"),
            made=made,
            content={str(subject): str(digest) for subject, digest in content.items()},
        )


def check_classes(
    labels: Int[np.ndarray, "n"], subjects: Names, split: Split, classes: Sequence[str]
) -> dict[str, list[str]]:
    """Returns the classes that a part lacks, part -> classes; parts that lack none (and empty ones) are left out.

    Args:
        labels: class of each window, -1 = none.
        subjects: whose window it is, one name per window.
        split: the parts.
        classes: name of each class.
    """
    lacking = {}
    for part, rows in split.rows(subjects).items():
        present = set(np.unique(labels[rows]).tolist())
        missing = [name for index, name in enumerate(classes) if index not in present]
        if missing and getattr(split, part):
            lacking[part] = missing
    return lacking

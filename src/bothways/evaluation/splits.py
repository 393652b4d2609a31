"""Who is trained on and who is tested: splits by person, made before any window is cut, kept as files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from bothways.draws import generator
from bothways.errors import UserError
from bothways.files import read_json, write_json

Names = Sequence[str] | np.ndarray
"""One name per window; an array of text will do."""
PARTS = ("train", "validation", "test")
FORMAT = 1


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

    def __post_init__(self) -> None:
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

    def rows(self, subjects: Names) -> dict[str, Int[np.ndarray, "part"]]:
        """Returns, for each part, the indices of its entries in `subjects` (one entry per window), ascending.

        Raises:
            UserError: the split names a subject that has no entry.
        """
        here = np.asarray(subjects, dtype=str)
        self.check_known(here)
        return {part: np.flatnonzero(np.isin(here, getattr(self, part))) for part in PARTS}

    def check_known(self, subjects: Iterable[str]) -> None:
        """Checks that the data has every subject that the split names.

        Raises:
            UserError: it has not; the missing ones are named.
        """
        known = {str(subject) for subject in subjects}
        missing = [f"{s} ({part})" for part in PARTS for s in getattr(self, part) if s not in known]
        if missing:
            raise UserError(
                f"split: the data has no subject {', '.join(missing)}; it has {_some(sorted(known))}; "
                "correct the split or the data"
            )

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
                    f"split: expected somebody in {part} with a {what}, but {_some(absent[part])} have none; name "
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
        """Reads what `save` wrote, or the same by hand (`seed`, `note`, `validation` and `format` may be left out).

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
        known = {"format", *PARTS, "seed", "note"}
        if not isinstance(values, dict) or not {"train", "test"} <= values.keys() <= known:
            raise UserError(f"split: expected the keys train and test, and of {', '.join(sorted(known))} no others")
        if values.get("format", FORMAT) != FORMAT:
            raise UserError(f"split: expected format {FORMAT}, got {values['format']!r}; make the split again")
        parts = {part: values.get(part, []) for part in PARTS}
        for part, subjects in parts.items():
            if not isinstance(subjects, list) or not all(isinstance(subject, str) for subject in subjects):
                raise UserError(f"split: {part}: expected a list of subjects in quotes, got {subjects!r}")
        seed, note = values.get("seed"), values.get("note", "")
        if not isinstance(seed, int | None) or not isinstance(note, str):
            raise UserError(f"split: expected a whole number as seed and text as note, got {seed!r} and {note!r}")
        return cls(**{part: tuple(subjects) for part, subjects in parts.items()}, seed=seed, note=note)


def split_subjects(
    subjects: Iterable[str],
    *,
    seed: int,
    train_fraction: float = 0.6,
    validation_fraction: float = 0.2,
    stratify: Mapping[str, str] | None = None,
) -> Split:
    """Draws one split; the test part is what the two fractions leave. See `repeated_splits`."""
    return repeated_splits(
        subjects,
        1,
        seed=seed,
        train_fraction=train_fraction,
        validation_fraction=validation_fraction,
        stratify=stratify,
    )[0]


def repeated_splits(
    subjects: Iterable[str],
    n_splits: int,
    *,
    seed: int,
    train_fraction: float = 0.6,
    validation_fraction: float = 0.2,
    stratify: Mapping[str, str] | None = None,
) -> list[Split]:
    """Draws splits in which everybody is tested about equally often: those tested least are tested next.

    Args:
        subjects: names, in any order and as often as you like (a window table's column will do).
        n_splits: how many.
        seed: the draw; the same names and seed give the same splits.
        train_fraction: share of the people to train on.
        validation_fraction: share to choose settings on; 0 = none. The rest is tested; each share that is not 0
            gets at least one person.
        stratify: each subject's class (a diagnosis, say), so that every part holds about the same shares of it.

    Returns:
        `n_splits` splits; without `stratify`, how often two people are tested differs by at most 1.

    Raises:
        UserError: too few people for the parts, fractions that leave nobody to test, a subject without a class.
    """
    names = sorted({str(subject) for subject in subjects})
    if n_splits < 1 or train_fraction <= 0 or validation_fraction < 0 or train_fraction + validation_fraction >= 1:
        raise UserError(
            "split: expected n_splits of at least 1, train_fraction above 0, validation_fraction of at least 0 and "
            f"a sum below 1, got {n_splits}, {train_fraction:g} and {validation_fraction:g}"
        )
    n_validation = max(1, round(len(names) * validation_fraction)) if validation_fraction else 0
    n_test = max(1, round(len(names) * (1 - train_fraction - validation_fraction)))
    n_train = len(names) - n_validation - n_test
    if n_train < 1:
        needed = 3 if validation_fraction else 2
        raise UserError(
            f"split: {len(names)} people ({_some(names)}) cannot fill train, validation and test with fractions "
            f"{train_fraction:g} and {validation_fraction:g}; give at least {needed} people or other fractions"
        )

    tested = dict.fromkeys(names, 0)
    splits = []
    for index in range(n_splits):
        draw = generator("split", seed, index)
        rank = dict(zip(names, draw.permutation(len(names))))
        by_need = sorted(names, key=lambda name: (tested[name], rank[name]))
        chosen = _spread(by_need, stratify, draw)[:n_test]
        rest = _spread([name for name in by_need if name not in chosen], stratify, draw, shuffle=True)
        for name in chosen:
            tested[name] += 1
        train, validation, test = (tuple(sorted(part)) for part in (rest[:n_train], rest[n_train:], chosen))
        note = f"{index + 1} of {n_splits}" if n_splits > 1 else ""
        splits.append(Split(train, validation, test, seed, note))
    return splits


def few_subjects(split: Split, k: int, seed: int, stratify: Mapping[str, str] | None = None) -> Split:
    """Returns the split with `k` of its training subjects; those of a smaller k are among those of a larger one.

    Raises:
        UserError: `k` is not between 1 and the number of training subjects.
    """
    if not 1 <= k <= len(split.train):
        raise UserError(f"split: expected 1 to {len(split.train)} training subjects, got {k}")
    order = _spread(sorted(split.train), stratify, generator("few", seed), shuffle=True)
    note = f"{split.note}; {k} of {len(split.train)} training subjects".removeprefix("; ")
    return replace(split, train=tuple(sorted(order[:k])), note=note)


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


def check_leak(split: Split, recordings: Iterable[Mapping[str, Any]]) -> None:
    """Checks that no recording is in two parts under two subjects' names.

    Args:
        split: the parts.
        recordings: entries of a store's `recordings.json`: `file`, `subject`, `sha256`.

    Raises:
        UserError: equal content in two parts; the files are named.
    """
    part_of = {subject: part for part in PARTS for subject in getattr(split, part)}
    copies: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for entry in recordings:
        if entry["subject"] in part_of:
            copies[entry["sha256"]].append((part_of[entry["subject"]], entry["file"]))
    leaks = [
        " = ".join(f"{file} ({part})" for part, file in same)
        for same in copies.values()
        if len({part for part, _ in same}) > 1
    ]
    if leaks:
        raise UserError(f"split: the same recording is in two parts: {'; '.join(leaks)}; remove the copies")


def _spread(
    names: Sequence[str], stratify: Mapping[str, str] | None, draw: np.random.Generator, *, shuffle: bool = False
) -> list[str]:
    """Orders names so that any stretch holds about the same shares of the classes; the order within a class stays.

    The i-th of a class's n members goes to place (i + u) / n, u drawn per class: systematic sampling.
    """
    if shuffle:
        names = [names[i] for i in draw.permutation(len(names))]
    if stratify is None:
        return list(names)
    without = [name for name in names if name not in stratify]
    if without:
        raise UserError(f"split: no class to stratify by for {_some(without)}; give each subject one")
    members: dict[str, list[str]] = defaultdict(list)
    for name in names:
        members[stratify[name]].append(name)
    place: dict[str, float] = {}
    for group in sorted(members):
        offset = draw.random()
        place |= {name: (i + offset) / len(members[group]) for i, name in enumerate(members[group])}
    return sorted(names, key=place.__getitem__)


def _some(names: Sequence[str], most: int = 8) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")

"""Ways to divide people into train, validation and test: at random, in folds, one by one, by lists."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bothways.draws import generator
from bothways.errors import UserError
from bothways.evaluation.people import Aliases, alias_groups, check_names, person_of, some
from bothways.evaluation.splits import PARTS, Split


class _People:
    """Persons of a list of names: what is drawn is a person, what a split holds are all of the names.

    Raises:
        UserError: an alias is none of the names, or a person has no class.
    """

    def __init__(self, subjects: Iterable[str], aliases: Aliases, stratify: Mapping[str, str] | None) -> None:
        names = sorted({str(subject) for subject in subjects})
        self.aliases = alias_groups(aliases)
        check_names({name: "alias" for group in self.aliases for name in group}, names)
        self.person = person_of(names, self.aliases)
        self.names: dict[str, list[str]] = defaultdict(list)
        for name, person in self.person.items():
            self.names[person].append(name)
        self.persons = sorted(self.names)
        self.stratify = None if stratify is None else classes_of_persons(names, stratify, self.aliases)

    def of(self, named: Iterable[str], part: str) -> list[str]:
        """Returns the persons behind some names."""
        named = list(named)
        check_names(dict.fromkeys(named, part), self.person)
        return list(dict.fromkeys(self.person[name] for name in named))

    def split(self, parts: Sequence[Sequence[str]], seed: int | None, note: str, made: dict[str, Any]) -> Split:
        train, validation, test = (tuple(sorted(n for p in part for n in self.names[p])) for part in parts)
        return Split(train, validation, test, seed, note, self.aliases, made)

    def rest(self, test: Sequence[str], n_validation: int, draw: np.random.Generator, order: Sequence[str] = ()) -> Any:
        """Draws the validation part of those who are not tested; `order` goes before the names' own."""
        rest = [person for person in order or self.persons if person not in set(test)]
        if len(rest) <= n_validation:
            raise UserError(
                f"split: with {len(test)} people to test and {n_validation} to validate none of {len(self.persons)} "
                f"({some(self.persons)}) is left to train; give more people or other fractions"
            )
        rest = spread(rest, self.stratify, draw, shuffle=True)
        return rest[: len(rest) - n_validation], rest[len(rest) - n_validation :]

    def n_validation(self, fraction: float) -> int:
        if not 0 <= fraction < 1:
            raise UserError(f"split: expected a validation_fraction of at least 0 and below 1, got {fraction:g}")
        return max(1, round(len(self.persons) * fraction)) if fraction else 0


def split_subjects(
    subjects: Iterable[str],
    *,
    seed: int,
    train_fraction: float = 0.6,
    validation_fraction: float = 0.2,
    stratify: Mapping[str, str] | None = None,
    aliases: Aliases = (),
) -> Split:
    """Draws one split; the test part is what the two fractions leave. See `repeated_splits`."""
    return repeated_splits(
        subjects,
        1,
        seed=seed,
        train_fraction=train_fraction,
        validation_fraction=validation_fraction,
        stratify=stratify,
        aliases=aliases,
    )[0]


def repeated_splits(
    subjects: Iterable[str],
    n_splits: int,
    *,
    seed: int,
    train_fraction: float = 0.6,
    validation_fraction: float = 0.2,
    stratify: Mapping[str, str] | None = None,
    aliases: Aliases = (),
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
        aliases: rows of names of one person each.

    Returns:
        `n_splits` splits; without `stratify`, how often two people are tested differs by at most 1.

    Raises:
        UserError: too few people for the parts, fractions that leave nobody to test, a subject without a class, an
            alias that is none of the names.
    """
    people = _People(subjects, aliases, stratify)
    names = people.persons
    if n_splits < 1 or train_fraction <= 0 or validation_fraction < 0 or train_fraction + validation_fraction >= 1:
        raise UserError(
            "split: expected n_splits of at least 1, train_fraction above 0, validation_fraction of at least 0 and "
            f"a sum below 1, got {n_splits}, {train_fraction:g} and {validation_fraction:g}"
        )
    n_validation = people.n_validation(validation_fraction)
    n_test = max(1, round(len(names) * (1 - train_fraction - validation_fraction)))
    if len(names) - n_validation - n_test < 1:
        needed = 3 if validation_fraction else 2
        raise UserError(
            f"split: {len(names)} people ({some(names)}) cannot fill train, validation and test with fractions "
            f"{train_fraction:g} and {validation_fraction:g}; give at least {needed} people or other fractions"
        )

    made = {"method": "random", "train_fraction": train_fraction, "validation_fraction": validation_fraction}
    tested = dict.fromkeys(names, 0)
    splits = []
    for index in range(n_splits):
        draw = generator("split", seed, index)
        rank = dict(zip(names, draw.permutation(len(names))))
        by_need = sorted(names, key=lambda name: (tested[name], rank[name]))
        chosen = spread(by_need, people.stratify, draw)[:n_test]
        train, validation = people.rest(chosen, n_validation, draw, by_need)
        for name in chosen:
            tested[name] += 1
        note = f"{index + 1} of {n_splits}" if n_splits > 1 else ""
        splits.append(people.split((train, validation, chosen), seed, note, made))
    return splits


def k_fold(
    subjects: Iterable[str],
    n_folds: int,
    *,
    seed: int,
    validation_fraction: float = 0.2,
    stratify: Mapping[str, str] | None = None,
    aliases: Aliases = (),
) -> list[Split]:
    """Draws folds in each of which other people are tested, so that everybody is tested exactly once.

    Sizes of folds differ by at most one person; stratified, so do the numbers of each class that two folds test.

    Args:
        subjects: as in `repeated_splits`, like all that is not named here.
        n_folds: how many.
        seed: the draw.
        validation_fraction: share of all people, drawn for each fold from those not tested there; 0 = none.
        stratify: each subject's class.
        aliases: rows of names of one person each.

    Raises:
        UserError: fewer people than folds, nobody left to train, a subject without a class, an unknown alias.
    """
    people = _People(subjects, aliases, stratify)
    if not 2 <= n_folds <= len(people.persons):
        raise UserError(
            f"split: expected 2 to {len(people.persons)} folds, one a person at the most, got {n_folds}; choose fewer "
            "folds or give more people"
        )
    draw = generator("folds", seed)
    order = [people.persons[i] for i in draw.permutation(len(people.persons))]
    if people.stratify is not None:
        order.sort(key=people.stratify.__getitem__)  # a class after the other; within it the order stays
    n_validation = people.n_validation(validation_fraction)
    method = "leave one out" if n_folds == len(people.persons) else "folds"
    made = {"method": method, "folds": n_folds, "validation_fraction": validation_fraction}
    splits = []
    for index in range(n_folds):
        chosen = order[index::n_folds]
        train, validation = people.rest(chosen, n_validation, generator("fold", seed, index))
        note = f"fold {index + 1} of {n_folds}"
        splits.append(people.split((train, validation, chosen), seed, note, made))
    return splits


def leave_one_out(
    subjects: Iterable[str],
    *,
    seed: int,
    validation_fraction: float = 0.2,
    stratify: Mapping[str, str] | None = None,
    aliases: Aliases = (),
) -> list[Split]:
    """Returns a split for each person, who alone is tested there, in the order of their names. See `k_fold`.

    Raises:
        UserError: too few people, or an unknown alias.
    """
    subjects = list(subjects)
    n_people = len(set(person_of(subjects, aliases).values()))
    splits = k_fold(
        subjects,
        n_people,
        seed=seed,
        validation_fraction=validation_fraction,
        stratify=stratify,
        aliases=aliases,
    )
    splits.sort(key=lambda split: split.test)
    return [replace(split, note=f"fold {i + 1} of {n_people}") for i, split in enumerate(splits)]


def fixed_split(
    subjects: Iterable[str],
    test: Iterable[str],
    *,
    validation: Iterable[str] | None = None,
    train: Iterable[str] | None = None,
    seed: int = 0,
    validation_fraction: float = 0.2,
    stratify: Mapping[str, str] | None = None,
    aliases: Aliases = (),
) -> Split:
    """Makes a split of given people; who is named under one name is taken under all.

    Args:
        subjects: all names.
        test: whom to test.
        validation: whom to validate; None = drawn from those not named, nobody where `train` is given.
        train: whom to train on; None = all the others.
        seed: the draw.
        validation_fraction: share of all people that is drawn.
        stratify: each subject's class, for the draw.
        aliases: rows of names of one person each.

    Raises:
        UserError: an unknown name, somebody in two parts, nobody left to train.
    """
    people = _People(subjects, aliases, stratify)
    tested = people.of(test, "test")
    given = None if validation is None else people.of(validation, "validation")
    trained = None if train is None else people.of(train, "train")
    drawn = given is None and trained is None and validation_fraction > 0
    if drawn:
        draw = generator("split", seed)
        trained, given = people.rest(tested, people.n_validation(validation_fraction), draw)
    given = given or []
    if trained is None:
        trained = [person for person in people.persons if person not in {*tested, *given}]
    made = {"method": "lists"} | ({"validation_fraction": validation_fraction} if drawn else {})
    return people.split((trained, given, tested), seed if drawn else None, "", made)


def few_subjects(split: Split, k: int, seed: int, stratify: Mapping[str, str] | None = None) -> Split:
    """Returns the split with `k` of its training people; those of a smaller k are among those of a larger one.

    With `stratify` each class comes once before any comes again, from there on about by its share.

    Raises:
        UserError: `k` is not between 1 and the number of training people.
    """
    people = _People(split.train, _within(split), stratify)
    if not 1 <= k <= len(people.persons):
        raise UserError(f"split: expected 1 to {len(people.persons)} training subjects, got {k}")
    order = spread(people.persons, people.stratify, generator("few", seed), shuffle=True)
    if people.stratify is not None:  # few people hold as many classes as they can
        of_class = {people.stratify[person]: person for person in reversed(order)}
        first = [person for person in order if of_class[people.stratify[person]] == person]
        order = [*first, *(person for person in order if person not in first)]
    note = f"{split.note}; {k} of {len(people.persons)} training subjects".removeprefix("; ")
    return replace(split, train=tuple(sorted(name for p in order[:k] for name in people.names[p])), note=note)


def classes_of_persons(subjects: Iterable[str], stratify: Mapping[str, str], aliases: Aliases) -> dict[str, str]:
    """Returns each person's class; who has different ones under different names has them joined by `+`.

    Raises:
        UserError: a subject has none.
    """
    person = person_of(subjects, aliases)
    without = [name for name in person if name not in stratify]
    if without:
        raise UserError(f"split: no class to stratify by for {some(without)}; give each subject one")
    classes: dict[str, set[str]] = defaultdict(set)
    for name, one in person.items():
        classes[one].add(stratify[name])
    return {one: "+".join(sorted(named)) for one, named in classes.items()}


def class_counts(split: Split, stratify: Mapping[str, str]) -> tuple[dict[str, dict[str, int]], list[str]]:
    """Counts the people of each class in each part, and says where the parts could not be alike.

    Returns:
        part -> class -> people; and what is to be said: that there is one class only, which classes are not within one
        person of their share of a part, and which a part lacks. Empty = as well as it can be met.
    """
    named = [name for part in PARTS for name in getattr(split, part)]
    classes = classes_of_persons(named, stratify, split.aliases)
    person = person_of(named, split.aliases)
    counts = {
        part: Counter(classes[one] for one in sorted({person[name] for name in getattr(split, part)})) for part in PARTS
    }
    total = sum(counts.values(), Counter[str]())
    n_people = sum(total.values())
    notes, off, lacking = [], [], []
    for part in PARTS:
        n = sum(counts[part].values())
        for name in sorted(total):
            share = n * total[name] / n_people
            if abs(counts[part][name] - share) >= 1:
                off.append(f"{part} has {counts[part][name]} of {name} for {share:.1f}")
            if n and not counts[part][name]:
                lacking.append(f"{part} has nobody of {name} ({total[name]} in all)")
    if len(total) == 1:
        notes.append(f"everybody is of one class, {next(iter(total))}: to stratify by it changes nothing")
    if off:
        notes.append(f"classes are not within one person of their share everywhere: {some(off, 4)}")
    if lacking:
        notes.append(f"classes that a part lacks: {some(lacking, 4)}")
    return {part: {name: counts[part][name] for name in sorted(total)} for part in PARTS}, notes


def spread(
    names: Sequence[str], stratify: Mapping[str, str] | None, draw: np.random.Generator, *, shuffle: bool = False
) -> list[str]:
    """Orders names so that any stretch holds about the same shares of the classes; the order within a class stays.

    The i-th of a class's n members goes to place (i + u) / n, u drawn per class: systematic sampling.
    """
    if shuffle:
        names = [names[i] for i in draw.permutation(len(names))]
    if stratify is None:
        return list(names)
    members: dict[str, list[str]] = defaultdict(list)
    for name in names:
        members[stratify[name]].append(name)
    place: dict[str, float] = {}
    for group in sorted(members):
        offset = draw.random()
        place |= {name: (i + offset) / len(members[group]) for i, name in enumerate(members[group])}
    return sorted(names, key=place.__getitem__)


def _within(split: Split) -> list[list[str]]:
    """The alias rows of a split as far as they are about its training subjects."""
    rows = ([name for name in group if name in split.train] for group in split.aliases)
    return [row for row in rows if row]

"""What is in two parts of a split at once: equal contents, copies and cuts, names of one person, overlapping times."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from jaxtyping import Int64

from bothways.errors import UserError
from bothways.evaluation.people import alike, some
from bothways.evaluation.splits import PARTS, Split

LEAST_LANDMARKS = 4
"""Landmarks at one distance in time that two recordings share, to be one signal; each has more than 40 bits."""
_MOST_PLACES = 64
"""Places beyond which a landmark is a pattern of many recordings (a device's test signal) and tells of none."""
_MOST_PEOPLE = 2
"""People beyond which an equal start is a date that was put in for the true one."""


@dataclass(frozen=True)
class Repeat:
    """Two recordings that hold one signal: `other` from `other_start_s` on is `one` from `start_s` to `stop_s`."""

    one: int
    other: int
    start_s: float
    stop_s: float
    other_start_s: float


Same = Callable[[Mapping[str, Any], Mapping[str, Any], float], bool]
"""Whether two recordings hold one signal, of which the second begins so many seconds after the first."""


def check_leak(split: Split, recordings: Iterable[Mapping[str, Any]], same: Same | None = None) -> list[str]:
    """Checks that no recording and no person is in two parts under two names.

    Args:
        split: the parts.
        recordings: of each `file`, `subject` and `sha256` (of its content). Optional: `landmarks` (marks and their
            samples, see `repeats`) with `sfreq_hz`; `start` (ISO date and time) with `seconds` and `device` (anything
            that is equal for recordings of one device); `guessed`: whether the subject is a guess from its name.
        same: asked of recordings that overlap in time by their dates.

    Returns:
        What looks like a leak and may be none: names that differ in a number's zeros or a session's, recordings that
        overlap in time.

    Raises:
        UserError: equal content, or a copy or cut of it, in two parts; what overlaps in time and is the `same`; or
            names in two parts that differ in case, separators or `sub-` alone. The files are named.
    """
    part_of = {subject: part for part in PARTS for subject in getattr(split, part)}
    used = [entry for entry in recordings if entry["subject"] in part_of]
    shown = [f"{entry['file']} ({part_of[entry['subject']]})" for entry in used]
    copies: dict[str, list[int]] = defaultdict(list)
    for index, entry in enumerate(used):
        copies[entry["sha256"]].append(index)
    leaks = [
        " = ".join(shown[i] for i in same)
        for same in copies.values()
        if len({part_of[used[i]["subject"]] for i in same}) > 1
    ]
    if leaks:
        raise UserError(f"split: the same recording is in two parts: {some(leaks, 4)}; remove the copies")
    parts = np.array([PARTS.index(part_of[entry["subject"]]) for entry in used], np.int64)
    leaks = [
        f"{shown[r.other]} from {r.other_start_s:.0f} s is {shown[r.one]} at {r.start_s:.0f}-{r.stop_s:.0f} s"
        for r in repeats(used, parts)
    ]
    if leaks:
        raise UserError(
            f"split: the same signal is in two parts: {some(leaks, 4)}; remove the copies, or split "
            "with --aliases FILE, a row of it naming both subjects as one person"
        )
    return [*_alike_notes(split, used, part_of), *_time_notes(used, shown, part_of, same)]


def repeats(recordings: Sequence[Mapping[str, Any]], parts: Int64[np.ndarray, " n"]) -> list[Repeat]:
    """Finds recordings of different parts that hold the same signal: copies in any format or scale, and cuts.

    A landmark describes a moment of a signal such that two recordings have it in common only if they have that moment
    in common; at least `LEAST_LANDMARKS` must lie at the same distance in time.

    Args:
        recordings: of each `landmarks` (marks and samples, two int64 arrays) and `sfreq_hz`; without, none is found.
        parts: of each recording.
    """
    given = [(i, *entry["landmarks"]) for i, entry in enumerate(recordings) if "landmarks" in entry]
    if not given:
        return []
    marks = np.sort(np.concatenate([m for _, m, _ in given]))
    several = np.unique(marks[1:][marks[1:] == marks[:-1]])
    given = [(i, m[shared], a[shared]) for i, m, a in given for shared in [np.isin(m, several)]]
    marks = np.concatenate([m for _, m, _ in given])
    at = np.concatenate([a for _, _, a in given])
    whose = np.repeat([i for i, _, _ in given], [len(m) for _, m, _ in given])
    order = np.lexsort((at, whose, marks))
    marks, at, whose = marks[order], at[order], whose[order]
    _, first, counts = np.unique(marks, return_index=True, return_counts=True)
    size = np.repeat(counts, counts)
    rare = size <= _MOST_PLACES
    marks, at, whose = marks[rare], at[rare], whose[rare]
    found = []
    for step in range(1, _MOST_PLACES):
        pairs = np.flatnonzero(marks[step:] == marks[:-step]) if step < len(marks) else np.zeros(0, np.int64)
        if len(pairs) == 0:
            break
        pairs = pairs[parts[whose[pairs]] != parts[whose[pairs + step]]]
        one, other = whose[pairs], whose[pairs + step]
        found.append(np.stack([one, other, at[pairs + step] - at[pairs], at[pairs]], axis=1))
    if not found:
        return []
    near = np.concatenate(found)  # a landmark lies between two samples, so a copy's may be one further
    same = np.unique(np.concatenate([near, near + np.array([0, 0, 1, 0])]), axis=0)  # one of several equal channels
    lines, first, counts = np.unique(same[:, :3], axis=0, return_index=True, return_counts=True)
    best: dict[tuple[int, int], tuple[int, Repeat]] = {}
    for (one, other, shift), begin, n in zip(lines.tolist(), first.tolist(), counts.tolist()):
        if n < max(LEAST_LANDMARKS, best.get((one, other), (0,))[0] + 1):
            continue
        sfreq_hz = recordings[one]["sfreq_hz"]
        start, stop = (int(same[i, 3]) for i in (begin, begin + n - 1))
        repeat = Repeat(one, other, start / sfreq_hz, stop / sfreq_hz, (start + shift) / sfreq_hz)
        best[one, other] = n, repeat
    return [repeat for _, repeat in best.values()]


def check_content(
    split: Split, content: Mapping[str, str], files: Mapping[str, Sequence[str]], *, refuse: bool = True
) -> list[str]:
    """Compares whom a split was made of with whom the data has.

    Args:
        split: made by hand, it does not say, and nothing is compared.
        content: subject -> hash of the recordings, as `content_of_people` gives it.
        files: subject -> names of the recordings, for the message.
        refuse: whether a split of another store is an error; it is a note where the split cannot be made again.

    Returns:
        A note that names those whose recordings have changed, been added or gone.

    Raises:
        UserError: none of several people has the recordings that he had: the split is of another store.
    """
    named = [subject for part in PARTS for subject in getattr(split, part)]
    known = [subject for subject in named if subject in split.content and subject in content]
    other = [subject for subject in known if split.content[subject] != content[subject]]
    if not other:
        return []
    shown = some([f"{subject} ({some(files[subject], 2)})" for subject in other], 4)
    if refuse and len(other) == len(known) > 1:
        raise UserError(
            f"split: it was made of another store: nobody of the same name has the same recordings: {shown}; make the "
            "split again from this store"
        )
    return [f"the split was made of other recordings of {len(other)} people: {shown}; make it again if that is wrong"]


def _alike_notes(split: Split, used: Sequence[Mapping[str, Any]], part_of: Mapping[str, str]) -> list[str]:
    file_of = {entry["subject"]: entry["file"] for entry in reversed(used)}
    guessed = {entry["subject"] for entry in used if entry.get("guessed")}
    pairs = [(a, b, sure) for a, b, sure in alike(part_of, split.aliases, guessed) if part_of[a] != part_of[b]]

    def shown(name: str) -> str:
        return f"{name} ({', '.join(filter(None, [part_of[name], file_of.get(name)]))})"

    sure, likely = ([f"{shown(a)} and {shown(b)}" for a, b, is_sure in pairs if is_sure == of] for of in (True, False))
    if sure:
        raise UserError(
            f"split: names of one person, by all appearance, in two parts: {some(sure, 4)}; split with --aliases "
            "FILE, one row of it naming both, or each in a row of its own if they are two people"
        )
    if likely:
        return [
            f"{len(likely)} pairs of names in different parts look like one person's: {some(likely, 2)}; if so, "
            "split with --aliases FILE, one row of it naming both; if not, each in a row of its own"
        ]
    return []


def _time_notes(
    used: Sequence[Mapping[str, Any]], shown: Sequence[str], part_of: Mapping[str, str], same: Same | None
) -> list[str]:
    """What was recorded at the same time, by a device alike, is in two parts; dates put in for others are left out."""
    people_at: dict[str | None, set[str]] = defaultdict(set)
    for entry in used:
        people_at[entry.get("start")].add(entry["subject"])
    spans: dict[Any, list[tuple[datetime, datetime, int]]] = defaultdict(list)
    for index, entry in enumerate(used):
        at = entry.get("start")
        if at is None or len(people_at[at]) > _MOST_PEOPLE:
            continue
        start = datetime.fromisoformat(at).replace(tzinfo=None)
        if start.time() == datetime.min.time():  # a date without a time
            continue
        spans[entry.get("device")].append((start, start + timedelta(seconds=entry["seconds"]), index))
    found: list[str] = []
    leaks: list[str] = []
    for of_device in spans.values():
        running: list[tuple[datetime, datetime, int]] = []
        for start, stop, index in sorted(of_device):
            running = [one for one in running if one[1] > start]
            for began, _, other in running:
                if part_of[used[other]["subject"]] != part_of[used[index]["subject"]]:
                    pair = f"{shown[other]} and {shown[index]} at {start.isoformat(' ')}"
                    sure = same is not None and same(used[other], used[index], (start - began).total_seconds())
                    (leaks if sure else found).append(pair)
            running.append((start, stop, index))
    if leaks:
        raise UserError(
            f"split: the same time of one signal is in two parts, filtered or referenced in another way: "
            f"{some(leaks, 4)}; remove the copies, or split with --aliases FILE, a row of it naming both subjects as "
            "one person"
        )
    if not found:
        return []
    return [
        f"{len(found)} pairs of recordings in different parts overlap in time by their dates: {some(found, 2)}; if "
        "they are of one person, split with --aliases FILE, one row of it naming both subjects"
    ]

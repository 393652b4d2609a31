"""What is in two parts at once is an error that names the recordings; what may be is a note."""

import numpy as np
import pytest

from bothways.errors import UserError
from bothways.evaluation import Repeat, Split, check_content, check_leak, repeats

SPLIT = Split(("a", "c"), (), ("b",))


def entry(subject, file, digest="", **more):
    return {"file": file, "subject": subject, "sha256": digest or file, **more}


def marked(subject, file, marks, at):
    return entry(subject, file, landmarks=(np.array(marks), np.array(at)), sfreq_hz=100.0)


def test_a_shared_signal_is_found_at_one_distance_only() -> None:
    one = marked("a", "a.edf", [1, 2, 3, 4, 5], [100, 200, 300, 400, 500])
    cut = marked("b", "b.edf", [2, 3, 4, 5, 9], [50, 150, 250, 350, 360])
    assert repeats([one, cut], np.array([0, 1])) == [Repeat(0, 1, 2.0, 5.0, 0.5)]
    assert repeats([one, cut], np.array([0, 0])) == []
    between = marked("b", "b.edf", [2, 3, 4, 5], [50, 151, 250, 351])  # its samples lie between those of the other
    assert repeats([one, between], np.array([0, 1])) == [Repeat(0, 1, 2.0, 5.0, 0.51)]
    scattered = marked("b", "b.edf", [2, 3, 4, 5], [50, 150, 250, 352])
    assert repeats([one, scattered], np.array([0, 1])) == []
    twice = marked("b", "b.edf", [2, 2, 2, 2], [50, 50, 50, 50])  # one moment, in four equal channels
    assert repeats([one, twice], np.array([0, 1])) == []
    assert repeats([entry("a", "a.edf")], np.array([0])) == []


def test_what_many_recordings_have_tells_of_none() -> None:
    """A device's test signal at the start of each: 70 recordings; of 60 it would count."""
    for n, expected in ((70, 0), (60, 60 * 59 // 2)):
        same = [marked(str(i), f"{i}.edf", [1, 2, 3, 4], [0, 10, 20, 30]) for i in range(n)]
        assert len(repeats(same, np.arange(n))) == expected


def test_copies_and_cuts_are_named_with_their_place() -> None:
    one = marked("a", "a.edf", [1, 2, 3, 4, 5], [100, 200, 300, 400, 500])
    cut = marked("b", "b.edf", [2, 3, 4, 5], [50, 150, 250, 350])
    with pytest.raises(
        UserError, match=r"same signal is in two parts: b.edf \(test\) from 0 s is a.edf \(train\) at 2-5 s; remove"
    ):
        check_leak(SPLIT, [one, cut])
    assert check_leak(SPLIT, [one, cut | {"subject": "c"}]) == []
    assert check_leak(SPLIT, [one, cut | {"subject": "unused"}]) == []


@pytest.mark.parametrize(
    ("names", "files", "message"),
    [
        (("Sub-01", "sub-01"), ("x.edf", "y.edf"), r"Sub-01 \(train, x.edf\) and sub-01 \(test, y.edf\)"),
        (("p_1", "P 1"), ("x.edf", "y.edf"), r"P 1 \(test, y.edf\) and p_1 \(train, x.edf\)"),
    ],
)
def test_names_that_differ_in_case_are_one_person(names, files, message) -> None:
    split = Split((names[0], "other"), (), (names[1],))
    recordings = [entry(name, file) for name, file in zip(names, files)]
    with pytest.raises(UserError, match=message):
        check_leak(split, recordings)
    for aliases in ([[names[0]], [names[1]]],):  # declared two people
        assert check_leak(Split(split.train, (), split.test, aliases=tuple(map(tuple, aliases))), recordings) == []


@pytest.mark.parametrize(
    ("names", "guessed"), [(("1", "01"), False), (("01_ses-1", "01_ses-2"), False), (("chb01_03", "chb01_04"), True)]
)
def test_names_of_sessions_are_said(names, guessed) -> None:
    recordings = [entry(name, f"{name}.edf", guessed=guessed) for name in names]
    (note,) = check_leak(Split((names[0],), (), (names[1],)), recordings)
    assert note.startswith("1 pairs of names in different parts look like one person's: ")
    assert all(f"{name}.edf" in note for name in names)
    assert check_leak(Split(names, (), ("x",)), recordings) == []


def test_recordings_of_one_time_are_said() -> None:
    day = {"seconds": 600.0, "device": ("C3", 200)}
    first = entry("a", "a.edf", start="2020-02-03T10:00:00", **day)
    second = entry("b", "b.edf", start="2020-02-03T10:05:00+00:00", **day)
    (note,) = check_leak(SPLIT, [first, second])
    assert note.startswith("1 pairs of recordings in different parts overlap in time by their dates: a.edf (train) and")
    assert "b.edf (test) at 2020-02-03 10:05:00" in note
    asked = []
    with pytest.raises(UserError, match=r"same time of one signal .*: a.edf \(train\) and b.edf \(test\)"):
        check_leak(SPLIT, [first, second], lambda one, other, shift_s: asked.append((one, other, shift_s)) is None)
    assert asked == [(first, second, 300.0)]
    assert check_leak(SPLIT, [first, second], lambda *_: False) == [note]
    for fine in (
        {"start": "2020-02-03T10:10:00"},  # right behind
        {"device": ("C3", 250)},
        {"start": None},
        {"subject": "c"},  # the same part
    ):
        assert check_leak(SPLIT, [first, second | fine]) == []
    # A date without a time, and one that several people have, were put in for the true ones.
    midnight = {"start": "2020-02-03T00:00:00"}
    assert check_leak(SPLIT, [first | midnight, second | midnight]) == []
    third = entry("c", "c.edf", start=first["start"], **day)
    assert check_leak(SPLIT, [first, second | {"start": first["start"]}, third]) == []


def test_a_split_of_another_store_is_refused_and_of_a_changed_one_said() -> None:
    split = Split(("a", "c"), (), ("b",), content={"a": "1", "b": "2", "c": "3"})
    files = {name: [f"{name}.edf"] for name in "abc"}
    assert check_content(split, {"a": "1", "b": "2", "c": "3", "d": "4"}, files) == []
    assert check_content(SPLIT, {"a": "9", "b": "9", "c": "9"}, files) == []
    (note,) = check_content(split, {"a": "1", "b": "2", "c": "9"}, files)
    assert note.startswith("the split was made of other recordings of 1 people: c (c.edf)")
    with pytest.raises(UserError, match=r"made of another store: .* a \(a.edf\), c \(c.edf\), b \(b.edf\); make"):
        check_content(split, {"a": "7", "b": "8", "c": "9"}, files)
    (note,) = check_content(split, {"a": "7", "b": "8", "c": "9"}, files, refuse=False)
    assert note.startswith("the split was made of other recordings of 3 people: a (a.edf), c (c.edf), b (b.edf)")
    assert len(check_content(split, {"a": "7"}, files)) == 1  # of one alone it cannot be told

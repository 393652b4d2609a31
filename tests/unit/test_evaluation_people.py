"""One person under several names: who is equal to whom, read from files, drawn and checked as one."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothways.errors import UserError
from bothways.evaluation import (
    Split,
    alias_groups,
    class_counts,
    few_subjects,
    fixed_split,
    k_fold,
    leave_one_out,
    person_of,
    read_aliases,
    read_names,
    repeated_splits,
    split_subjects,
)
from bothways.evaluation.people import alike

PEOPLE = [f"chb{i:02d}" for i in range(1, 25)]
SAME = (("chb01", "chb21"),)


def test_rows_that_share_a_name_are_one_group() -> None:
    rows = [["d", "c"], ["a", "b"], ["b", "c"], ["x", "y"], ["alone"]]
    assert alias_groups(rows) == (("a", "b", "c", "d"), ("alone",), ("x", "y"))
    assert person_of(["c", "z", "y"], rows) == {"c": "a", "z": "z", "y": "x"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "chb01,chb21\nchb21,chb22\n\nx;y,\n"),
        ("a.csv", "\ufeffsubject,same as\r\nchb01,chb21\r\nchb22,chb01,\r\nx;y\r\n"),
        ("a.tsv", "chb01\tchb21\tchb22\nx;y\n"),
        ("a.json", '[["chb22", "chb21"], ["chb01", "chb22"], ["x;y"]]'),
    ],
)
def test_aliases_of_a_file(tmp_path, name, text) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert read_aliases(tmp_path / name) == (("chb01", "chb21", "chb22"), ("x;y",))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "\n,\n", "rows of names of one person each, got none"),
        ("a.json", '{"chb01": "chb21"}', "expected lists of names"),
        ("a.json", '[["chb01", 21]]', "expected lists of names"),
        ("a.json", "[[]]", "expected lists of names"),
        ("a.json", "chb01,chb21", "expected JSON"),
        ("a.csv", b"chb\xff", "in UTF-8"),
    ],
)
def test_a_wrong_file_of_aliases_is_one_line(tmp_path, name, text, message) -> None:
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=message) as problem:
        read_aliases(tmp_path / name)
    assert "\n" not in str(problem.value)
    assert name in str(problem.value)


def test_names_of_a_list_a_text_or_a_file(tmp_path) -> None:
    (tmp_path / "names.txt").write_text("a\r\n\r\n b \na\n")
    for given_as in (["a", "b"], "a, b,,a", str(tmp_path / "names.txt"), tmp_path / "names.txt"):
        assert read_names(given_as) == ("a", "b")
    with pytest.raises(UserError, match="got none"):
        read_names(" , ")


def test_one_person_is_drawn_under_all_names() -> None:
    splits = [
        *repeated_splits(PEOPLE, 6, seed=0, aliases=SAME),
        *k_fold(PEOPLE, 4, seed=0, aliases=SAME),
        *leave_one_out(PEOPLE, seed=0, aliases=SAME),
        split_subjects(PEOPLE, seed=5, aliases=SAME),
    ]
    assert len(splits) == 6 + 4 + 23 + 1
    for split in splits:
        parts = {part for part in ("train", "validation", "test") for name in SAME[0] if name in getattr(split, part)}
        assert len(parts) == 1
        assert split.aliases == SAME
        assert sorted([*split.train, *split.validation, *split.test]) == PEOPLE
    both = [split for split in splits[10:33] if "chb01" in split.test]
    assert [split.test for split in both] == [("chb01", "chb21")]


def test_each_person_is_tested_in_one_fold() -> None:
    for seed in range(4):
        folds = k_fold(PEOPLE[:23], 5, seed=seed, validation_fraction=0.1)
        assert sorted(name for fold in folds for name in fold.test) == PEOPLE[:23]
        assert sorted(len(fold.test) for fold in folds) == [4, 4, 5, 5, 5]
        assert {len(fold.validation) for fold in folds} == {2}
        assert [fold.note for fold in folds] == [f"fold {i} of 5" for i in (1, 2, 3, 4, 5)]
    assert k_fold(PEOPLE, 5, seed=1) == k_fold(reversed(PEOPLE * 2), 5, seed=1) != k_fold(PEOPLE, 5, seed=2)
    assert folds[0].made == {"method": "folds", "folds": 5, "validation_fraction": 0.1}
    for n in (1, 25):
        with pytest.raises(UserError, match=f"2 to 24 folds, one a person at the most, got {n}"):
            k_fold(PEOPLE, n, seed=0)
    with pytest.raises(UserError, match=r"none of 2 .* is left to train"):
        k_fold(["a", "b"], 2, seed=0)
    assert k_fold(["a", "b"], 2, seed=0, validation_fraction=0.0)[0].validation == ()


def test_one_is_left_out_in_the_order_of_names() -> None:
    splits = leave_one_out(PEOPLE[:5], seed=0, validation_fraction=0.2)
    assert [split.test for split in splits] == [(name,) for name in PEOPLE[:5]]
    assert splits[2].note == "fold 3 of 5"
    assert {(len(split.train), len(split.validation)) for split in splits} == {(3, 1)}
    assert leave_one_out(iter(PEOPLE[:5]), seed=0) == splits
    assert splits[0].made["method"] == "leave one out"


def test_lists_are_taken_as_they_are() -> None:
    names = ["a", "b", "c", "d", "e"]
    split = fixed_split(names, ["b"], validation=["a"])
    assert (split.train, split.validation, split.test, split.seed) == (("c", "d", "e"), ("a",), ("b",), None)
    split = fixed_split(names, ["b"], train=["c"])
    assert (split.train, split.validation, split.test) == (("c",), (), ("b",))
    split = fixed_split(names, ["b"], validation_fraction=0.4, seed=3)
    assert (len(split.train), len(split.validation), split.test, split.seed) == (2, 2, ("b",), 3)
    assert fixed_split(names, ["b"], validation_fraction=0.0).validation == ()
    assert fixed_split(names, ["b"], aliases=[["b", "e"]], validation=["a"]).test == ("b", "e")
    with pytest.raises(UserError, match=r"one person in 2 parts|a \(validation and test\)"):
        fixed_split(names, ["a"], validation=["e"], aliases=[["a", "e"]])
    with pytest.raises(UserError, match="no subject in train"):
        fixed_split(names, names, validation_fraction=0.0)
    with pytest.raises(UserError, match=r"no subject aa \(test\), did you mean a\?"):
        fixed_split(names, ["aa"])


def test_a_group_lies_in_one_part_of_a_file_by_hand(tmp_path) -> None:
    values = {"train": ["chb01"], "validation": ["chb02"], "test": ["chb03"], "aliases": [["chb01", "chb21"]]}
    (tmp_path / "s.json").write_text(json.dumps(values))
    assert Split.load(tmp_path / "s.json").aliases == SAME
    values |= {"test": ["chb21"]}
    (tmp_path / "s.json").write_text(json.dumps(values))
    with pytest.raises(UserError, match=r"s.json: split: one person in 2 parts .*chb01 \(train\), chb21 \(test\)"):
        Split.load(tmp_path / "s.json")
    # Through a third name that no part holds.
    with pytest.raises(UserError, match=r"chb01 \(train\), chb21 \(test\)"):
        Split(("chb01",), (), ("chb21",), aliases=(("chb01", "x"), ("x", "chb21")))


def test_an_unknown_alias_has_its_nearest_name() -> None:
    with pytest.raises(UserError, match=r"no subject chb1 \(alias\), did you mean chb01\?; it has chb01, chb02"):
        split_subjects(PEOPLE, seed=0, aliases=[["chb1", "chb21"]])
    split = Split(("a",), (), ("b",), aliases=(("b", "bb"),))
    with pytest.raises(UserError, match=r"no subject bb \(alias\), did you mean b\?"):
        split.check_known(["a", "b"])
    with pytest.raises(UserError, match=r"no subject sub-07 \(test\), did you mean 07\?"):
        fixed_split(["07", "08"], ["sub-07"])


def test_few_people_take_all_their_names() -> None:
    split = split_subjects(PEOPLE, seed=3, aliases=SAME)
    assert "chb01" in split.train
    sizes = [len(few_subjects(split, k, seed=0).train) for k in range(1, 14)]
    assert sorted(set(range(1, 15)) - set(sizes)) == [next(n for n in range(1, 15) if n not in sizes)]
    assert sizes[-1] == len(split.train) == 14
    with pytest.raises(UserError, match="1 to 13 training subjects, got 14"):
        few_subjects(split, 14, seed=0)


@given(
    names=st.sets(st.text("abcde", min_size=1, max_size=3), min_size=6, max_size=25),
    pairs=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=3),
    folds=st.integers(2, 4),
    seed=st.integers(0, 2**32 - 1),
)
def test_folds_share_nobody_and_test_everybody_once(names, pairs, folds, seed) -> None:
    order = sorted(names)
    aliases = [[order[a], order[b]] for a, b in pairs]
    person = person_of(names, aliases)
    folds = min(folds, len(set(person.values())))
    if folds < 2:
        return
    made = k_fold(names, folds, seed=seed, validation_fraction=0.0, aliases=aliases)
    assert Counter(name for fold in made for name in fold.test) == Counter(names)
    for fold in made:
        assert not {person[n] for n in fold.train} & {person[n] for n in fold.test}


def test_strata_and_how_well_they_are_met() -> None:
    group = {name: "patient" if i < 8 else "control" for i, name in enumerate(PEOPLE)}
    for fold in k_fold(PEOPLE, 4, seed=0, stratify=group, validation_fraction=0.25):
        counts, notes = class_counts(fold, group)
        assert counts == {
            "train": {"control": 8, "patient": 4},
            "validation": {"control": 4, "patient": 2},
            "test": {"control": 4, "patient": 2},
        }
        assert notes == []
    rare = group | {"chb24": "seizure"}
    counts, notes = class_counts(fixed_split(PEOPLE, PEOPLE[:4], validation=["chb24"]), rare)
    assert counts["test"] == {"control": 0, "patient": 4, "seizure": 0}
    assert notes[0].startswith("classes are not within one person of their share everywhere: ")
    assert "test has 4 of patient for 1.3" in notes[0]
    assert "test has nobody of control (15 in all)" in notes[1]
    assert "validation has nobody of patient (8 in all)" in notes[1]
    _, notes = class_counts(fold, dict.fromkeys(PEOPLE, "all"))
    assert notes == ["everybody is of one class, all: to stratify by it changes nothing"]
    # A person with two names has both classes, and counts once.
    both = class_counts(fixed_split(PEOPLE, ["chb21"], aliases=SAME, validation_fraction=0.0), group)[0]
    assert both["test"] == {"control": 0, "control+patient": 1, "patient": 0}


@pytest.mark.parametrize(
    ("one", "other", "sure"),
    [
        ("Sub-01", "sub-01", True),
        ("sub-01", "01", True),
        ("P 1", "p_1", True),
        ("1", "01", False),
        ("01_ses-1", "01_ses-2", False),
        ("S001R01", "S001R02", False),
        ("chb01", "chb02", None),
        ("S1", "S2", None),
        ("chb01_03", "chb01_04", None),
    ],
)
def test_names_that_look_like_one_person(one, other, sure) -> None:
    expected = [] if sure is None else [(*sorted([one, other]), sure)]
    assert alike([one, other, "someone"]) == expected
    assert alike([one, other], [[one, other]]) == alike([one, other], [[one], [other]]) == []


def test_of_files_names_the_last_word_tells_of_no_person() -> None:
    names = ["chb01_03", "chb01_04", "chb02_03", "Subject00-a"]
    assert alike(names, guessed=names) == [("chb01_03", "chb01_04", False)]
    assert alike(names) == []


def test_files_of_both_formats_and_what_a_split_was_made_of(tmp_path) -> None:
    old = {"format": 1, "train": ["a"], "validation": [], "test": ["b"], "seed": 3, "note": "n"}
    (tmp_path / "old.json").write_text(json.dumps(old))
    assert Split.load(tmp_path / "old.json") == Split(("a",), (), ("b",), 3, "n")
    assert Split(("a",), (), ("b",), 3, "n").identity() == {k: v for k, v in asdict_of(old).items() if k != "format"}
    split = split_subjects(PEOPLE, seed=7, train_fraction=0.5, aliases=SAME)
    split.save(tmp_path / "new.json")
    written = json.loads((tmp_path / "new.json").read_text())
    assert (written["format"], written["seed"], written["aliases"]) == (2, 7, [["chb01", "chb21"]])
    assert written["made"] == {"method": "random", "train_fraction": 0.5, "validation_fraction": 0.2}
    assert Split.load(tmp_path / "new.json") == split
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    for wrong in ({"aliases": "a"}, {"aliases": [["a", 1]]}, {"made": []}, {"content": 1}):
        with pytest.raises(UserError, match="expected"):
            Split.of(written | wrong)


def asdict_of(values):
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}

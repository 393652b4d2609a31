import json
from itertools import pairwise

import numpy as np
import pytest

from bothways.errors import UserError
from bothways.evaluation import Split, check_classes, check_leak, few_subjects, repeated_splits, split_subjects

PEOPLE = [f"sub-{i:02d}" for i in range(30)]


def test_sizes_and_repeatability() -> None:
    split = split_subjects(PEOPLE, seed=3)
    assert [len(split.train), len(split.validation), len(split.test)] == [18, 6, 6]
    assert split == split_subjects(list(reversed(PEOPLE)) * 4, seed=3)
    assert split != split_subjects(PEOPLE, seed=4)


def test_everybody_is_tested_about_equally_often() -> None:
    for n_splits, times in ((5, {1}), (7, {1, 2})):
        splits = repeated_splits(PEOPLE, n_splits, seed=0)
        tested = [sum(name in split.test for split in splits) for name in PEOPLE]
        assert set(tested) == times


def test_stratified_parts_hold_equal_shares() -> None:
    group = {name: "patient" if i < 10 else "control" for i, name in enumerate(PEOPLE)}
    for split in repeated_splits(PEOPLE, 5, seed=1, stratify=group):
        assert sum(group[name] == "patient" for name in split.test) == 2
        assert sum(group[name] == "patient" for name in split.train) == 6
        few = few_subjects(split, 3, seed=0, stratify=group)
        assert sum(group[name] == "patient" for name in few.train) == 1


def test_no_validation_part_where_none_is_asked_for() -> None:
    assert split_subjects(PEOPLE[:2], seed=0, train_fraction=0.5, validation_fraction=0.0).validation == ()


def test_few_subjects_are_nested() -> None:
    split = split_subjects(PEOPLE, seed=0)
    two, four = (few_subjects(split, k, seed=5) for k in (2, 4))
    assert set(two.train) < set(four.train) < set(split.train)
    assert two.test == split.test
    assert two.note == "2 of 18 training subjects"
    with pytest.raises(UserError, match="1 to 18 training subjects, got 19"):
        few_subjects(split, 19, seed=5)


def test_saved_and_loaded(tmp_path) -> None:
    split = repeated_splits(PEOPLE, 2, seed=7)[1]
    split.save(tmp_path / "split.json")
    assert Split.load(tmp_path / "split.json") == split


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"train": ["a"], "test": ["b", "a"]}, r"a \(train and test\)"),
        ({"train": ["a", "a"], "test": ["b"]}, r"a \(train and train\)"),
        ({"train": ["a"], "test": []}, "no subject in test"),
        ({"train": ["a"]}, "expected the keys train and test"),
        ({"train": ["a"], "test": ["b"], "tset": []}, "no others"),
        ({"train": "ab", "test": ["c"]}, "train: expected a list of subjects"),
        ({"train": [1], "test": ["c"]}, "train: expected a list of subjects"),
        ({"train": ["a"], "test": ["b"], "seed": "x"}, "whole number as seed"),
        ({"train": ["a"], "test": ["b"], "format": 9}, "format 1, got 9"),
        ([], "expected the keys"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path, values, message) -> None:
    path = tmp_path / "split.json"
    path.write_text(json.dumps(values))
    with pytest.raises(UserError, match=message) as problem:
        Split.load(path)
    assert "split.json" in str(problem.value)
    assert "\n" not in str(problem.value)


def test_too_few_people_or_odd_fractions() -> None:
    with pytest.raises(UserError, match=r"2 people \(a, b\) cannot fill"):
        split_subjects(["a", "b"], seed=0)
    with pytest.raises(UserError, match="a sum below 1"):
        split_subjects(PEOPLE, seed=0, train_fraction=0.8, validation_fraction=0.2)
    with pytest.raises(UserError, match="no class to stratify by for sub-29"):
        split_subjects(PEOPLE, seed=0, stratify=dict.fromkeys(PEOPLE[:-1], "x"))


def test_rows_of_each_part_and_unknown_subjects() -> None:
    split = Split(("a",), ("b",), ("c",))
    rows = split.rows(["a", "c", "a", "b", "other"])
    assert {part: index.tolist() for part, index in rows.items()} == {
        "train": [0, 2],
        "validation": [3],
        "test": [1],
    }
    with pytest.raises(UserError, match=r"no subject c \(test\); it has a, b"):
        split.rows(["a", "b"])


def test_a_part_without_a_class_is_named() -> None:
    subjects = ["a"] * 3 + ["b"] * 2 + ["c"] * 2
    labels = np.array([0, 1, -1, 0, -1, 0, 0])
    split = Split(("a",), ("b",), ("c",))
    assert check_classes(labels, subjects, split, ["bckg", "seiz"]) == {"validation": ["seiz"], "test": ["seiz"]}
    assert check_classes(np.array([0, 1, 1, 0, 1, 1, 0]), subjects, split, ["bckg", "seiz"]) == {}


def test_one_recording_under_two_names_is_a_leak() -> None:
    split = Split(("a",), (), ("b",))
    entry = {"file": "a/1.edf", "subject": "a", "sha256": "11"}
    fine = [entry, entry | {"file": "a/2.edf"}, {"file": "c/1.edf", "subject": "c", "sha256": "11"}]
    check_leak(split, fine)
    with pytest.raises(UserError, match=r"a/1.edf \(train\) = b/9.edf \(test\)"):
        check_leak(split, [entry, {"file": "b/9.edf", "subject": "b", "sha256": "11"}])


def test_a_leak_by_windows_looks_perfect_and_a_split_by_subject_does_not() -> None:
    """Case b47's kind: each person has a tone of their own and a random label per recording."""
    from bothways.evaluation import fit_logistic

    draw = np.random.default_rng(0)
    n_people, n_windows = 12, 20
    tone = draw.normal(size=(n_people, 30))
    features = np.repeat(tone, n_windows, 0) + 0.1 * draw.normal(size=(n_people * n_windows, 30))
    labels = np.repeat(draw.permutation([0, 1] * (n_people // 2)), n_windows)
    subjects = np.repeat([f"s{i}" for i in range(n_people)], n_windows)

    def accuracy(train, test) -> float:
        model = fit_logistic(features[train], labels[train], 2, c=1.0)
        return float((model.scores(features[test]).argmax(1) == labels[test]).mean())

    order = draw.permutation(len(labels))
    assert accuracy(order[:120], order[120:]) == 1.0
    by_subject = []
    for split in repeated_splits(subjects, 10, seed=0, train_fraction=0.5, validation_fraction=0.0):
        rows = split.rows(subjects)
        by_subject.append(accuracy(rows["train"], rows["test"]))
    assert np.mean(by_subject) < 0.75
    with pytest.raises(UserError, match="expected each subject once"):
        Split(("s0", "s1"), (), ("s1", "s2"))


def test_few_subjects_hold_as_many_classes_as_they_can() -> None:
    classes = {"a": "x", "b": "x", "c": "x", "d": "x", "e": "y", "f": "z"}
    split = Split(tuple(classes), (), ("t",))
    for seed in range(20):
        few = [few_subjects(split, k, seed, classes).train for k in range(1, 7)]
        assert [len({classes[name] for name in train}) for train in few] == [1, 2, 3, 3, 3, 3]
        assert all(set(small) < set(large) for small, large in pairwise(few))

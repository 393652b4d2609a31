"""The recordings that ship with the project: small, unchanged, and described by tables that fit them."""

import csv
from collections import Counter
from pathlib import Path

import pytest

from bothways.files import sha256_file


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_size(example_data: Path) -> None:
    assert sum(path.stat().st_size for path in example_data.iterdir()) <= 12_000_000


def test_content(example_data: Path) -> None:
    lines = (example_data / "SHA256SUMS").read_text().splitlines()
    expected = {name: digest for digest, name in (line.split() for line in lines)}
    present = {path.name for path in example_data.iterdir()} - {"README.md", "SHA256SUMS"}
    assert present == set(expected)
    assert {name: sha256_file(example_data / name) for name in present} == expected


def test_speeches(example_data: Path) -> None:
    folder = example_data.parent / "text_speeches"
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    expected = {name: digest for digest, name in (line.split() for line in lines)}
    assert {f"inaugural/{path.name}": sha256_file(path) for path in (folder / "inaugural").iterdir()} == expected
    assert len(expected) == 59


def test_sentences_on_films(example_data: Path) -> None:
    folder = example_data.parent / "text_rt_polarity"
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    assert {name: sha256_file(folder / name) for _, name in map(str.split, lines)} == {
        name: digest for digest, name in map(str.split, lines)
    }
    parts = [rows(folder / name) for name in ("train.csv", "test.csv")]
    assert [Counter(row["label"] for row in part) for part in parts] == [
        {"negative": 4500, "positive": 4500},
        {"negative": 831, "positive": 831},
    ]
    texts = [row["text"] for part in parts for row in part]
    assert len(set(texts)) == 10_662


def test_sentences_on_films_are_those_of_the_original(example_data: Path) -> None:
    original = Path(__file__).parents[2] / ".." / "shared" / "data" / "text_rt_polarity"
    if not original.is_dir():
        pytest.skip(f"{original} is absent")
    for label in ("negative", "positive"):
        lines = (original / f"rt-polarity.{label[:3]}").read_text(encoding="utf-8").split("\n")
        ours = [
            row["text"]
            for name in ("train.csv", "test.csv")
            for row in rows(example_data.parent / "text_rt_polarity" / name)
            if row["label"] == label
        ]
        assert sorted(ours) == sorted(line.strip() for line in lines if line)


def test_recordings(example_data: Path) -> None:
    listed = rows(example_data / "recordings.csv")
    assert {row["file"] for row in listed} == {path.name for path in example_data.glob("*.edf")}
    assert len({row["subject"] for row in listed}) == 13


@pytest.mark.parametrize("table", ["labels.csv", "baseline.csv"])
def test_stretches_lie_inside_their_recordings(example_data: Path, table: str) -> None:
    length_s = {row["file"]: float(row["seconds"]) for row in rows(example_data / "recordings.csv")}
    for row in rows(example_data / table):
        assert float(row["onset_s"]) >= 0
        assert float(row["onset_s"]) + float(row["duration_s"]) <= length_s[row["file"]]


def test_labels_are_balanced_and_apart_from_the_baseline(example_data: Path) -> None:
    labels, baseline = rows(example_data / "labels.csv"), rows(example_data / "baseline.csv")
    labelled_s = {"rest": 0.0, "task": 0.0}
    for row in labels:
        labelled_s[row["label"]] += float(row["duration_s"])
    assert labelled_s == {"rest": 780.0, "task": 780.0}
    end_s = {row["file"]: float(row["onset_s"]) + float(row["duration_s"]) for row in baseline}
    assert len(end_s) == 13
    for row in labels:
        assert float(row["onset_s"]) >= end_s.get(row["file"], 0.0)

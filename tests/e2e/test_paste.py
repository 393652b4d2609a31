"""`paste` on the example recordings, on tiny ones whose figures are known, and on what cannot be pasted."""

import csv
import json
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bothways import run
from bothways.eeg import read_recording
from bothways.errors import UserError
from people import CHANNELS
from recordings import noise_uv, write_edf

BRIEF: dict[str, Any] = {"shortest_s": 2, "longest_s": 4}


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two people: 24 s of rest, ended by two held seconds, and 12 s of task at another level."""
    folder = tmp_path_factory.mktemp("two")
    for person in range(2):
        rest, task = (noise_uv(4, seconds * 200, seed=10 * person + seconds) for seconds in (24, 12))
        rest[:, -400:] = 3.0
        write_edf(folder / "data" / f"sub-{person}_rest.edf", rest, CHANNELS)
        write_edf(folder / "data" / f"sub-{person}_task.edf", task + 80, CHANNELS)
    (folder / "labels.csv").write_text(
        "file,onset_s,duration_s,label\n"
        + "".join(f"sub-{n}_rest.edf,4,20,rest\nsub-{n}_task.edf,0,12,task\n" for n in range(2))
    )
    (folder / "calm.csv").write_text("file,onset_s,duration_s\n" + "".join(f"sub-{n}_rest.edf,0,4\n" for n in range(2)))
    return folder


@pytest.fixture(scope="module")
def pasted(two: Path) -> dict[str, Any]:
    return run.paste([two / "data"], two / "labels.csv", two / "long", baseline=two / "calm.csv", recordings=2, **BRIEF)


def test_what_is_made_is_told(two: Path, pasted: dict[str, Any]) -> None:
    assert json.loads((two / "long" / "pasted.json").read_text()) == pasted
    assert [r["file"] for r in pasted["recordings"]] == [f"sub-{n}_run-{m}.edf" for n in range(2) for m in (1, 2)]
    assert pasted["settings"] == {
        "background": "rest", "shortest_s": 2.0, "longest_s": 4.0, "join_s": 0.5, "seed": 0,
    }  # fmt: skip
    (note,) = pasted["notes"]
    assert note.startswith("4.5 s of 2 recordings hold no signal and are not used")  # 2 s and a quarter before each
    assert all(r["shams"] >= r["events"] > 0 for r in pasted["recordings"])


def test_labels_joins_and_annotations_agree(two: Path, pasted: dict[str, Any]) -> None:
    labels, joins = rows(two / "long" / "labels.csv"), rows(two / "long" / "joins.csv")
    for one in pasted["recordings"]:
        spans = [
            (float(r["onset_s"]), float(r["onset_s"]) + float(r["duration_s"]), r["label"])
            for r in labels
            if r["file"] == one["file"]
        ]
        recording = read_recording(two / "long" / one["file"])
        assert recording.duration_s == one["duration_s"] == spans[-1][1]
        assert spans[0][0] == 3.75  # where the calibration's join has its middle
        assert all(a[1] == pytest.approx(b[0], abs=1e-6) and a[2] != b[2] for a, b in pairwise(spans))
        events = [(a, b - a, label) for a, b, label in spans if label == "task"]
        assert [(e.onset_s, pytest.approx(e.duration_s), e.label) for e in recording.events] == events
        assert len(events) == one["events"]
        of_file = [r for r in joins if r["file"] == one["file"]]
        assert [r["kind"] for r in of_file].count("sham") == one["shams"]
        edges = sorted(edge for a, lasts, _ in events for edge in (a, a + lasts))
        assert [float(r["at_s"]) for r in of_file if r["kind"] == "event"] == pytest.approx(edges, abs=1e-6)
    assert rows(two / "long" / "baseline.csv")[0] == {"file": "sub-0_run-1.edf", "onset_s": "0", "duration_s": "3.5"}


def test_each_piece_is_its_source_but_for_the_level(two: Path, pasted: dict[str, Any]) -> None:
    read = cache(read_recording)
    for piece in rows(two / "long" / "pieces.csv"):
        made, source = read(two / "long" / piece["file"]), read(two / "data" / piece["from_file"])
        first, begin = (round(float(piece[name]) * 200) for name in ("onset_s", "from_s"))
        n = round(float(piece["duration_s"]) * 200) - 100  # half a join at either end
        live = source.data_uv[:, :4350] if "rest" in piece["from_file"] else source.data_uv
        level = np.median(live, axis=1, keepdims=True)
        ours = made.data_uv[:, first + 50 : first + 50 + n]
        np.testing.assert_allclose(ours, source.data_uv[:, begin + 50 : begin + 50 + n] - level, atol=0.01)
    assert abs(made.data_uv.mean()) < 1  # though the task's files are 80 uV higher
    assert pasted["left_out"] == {}


def test_draws_belong_to_the_seed_and_the_person(two: Path, pasted: dict[str, Any], tmp_path: Path) -> None:
    def made(name: str, data: list[Path], **options: Any) -> list[str]:
        text = (two / "labels.csv").read_text()
        (tmp_path / "labels.csv").write_text("\n".join(r for r in text.splitlines() if not r.startswith("sub-0")))
        labels = two / "labels.csv" if len(data) == 1 else tmp_path / "labels.csv"
        run.paste(data, labels, tmp_path / name, **BRIEF, **options)
        return (tmp_path / name / "pieces.csv").read_text().splitlines()

    both = made("both", [two / "data"])
    assert made("again", [two / "data"]) == both
    assert made("other", [two / "data"], seed=1) != both
    alone = made("alone", sorted((two / "data").glob("sub-1*")))
    assert alone == [both[0], *(row for row in both if row.startswith("sub-1"))]


def test_the_example_recordings(bothways: Callable[..., Any], example_data: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for file in [*sorted(example_data.glob("sub-0[01]*.edf"))]:
        (tmp_path / "data" / file.name).symlink_to(file)
    text = (example_data / "labels.csv").read_text().splitlines()
    (tmp_path / "labels.csv").write_text("\n".join(r for r in text if r.startswith(("file", "sub-00", "sub-01"))))
    where = [tmp_path / "data", "--labels", tmp_path / "labels.csv"]
    code, printed, _ = bothways("eeg", "paste", *where, "--out", tmp_path / "long", "--json")
    result = json.loads(printed)
    assert code == 0
    assert [(r["file"], r["events"]) for r in result["recordings"]] == [
        ("sub-00_run-1.edf", 2),
        ("sub-01_run-1.edf", 2),
    ]
    first = rows(tmp_path / "long" / "labels.csv")[:5]
    assert [(r["onset_s"], r["duration_s"], r["label"]) for r in first] == [
        ("0", "34.4375", "rest"), ("34.4375", "8.0625", "task"), ("42.5", "11.757812", "rest"),
        ("54.257812", "12.476562", "task"), ("66.734375", "9.265625", "rest"),
    ]  # fmt: skip
    code, printed, _ = bothways("eeg", "paste", *where, "--out", tmp_path / "long", "--overwrite")
    assert code == 0
    assert "note: 4.5 s of 2 recordings hold no signal" in printed
    assert "2 recordings of 2 people, " in printed
    assert ": 4 events, " in printed
    report = run.check([tmp_path / "long"])
    assert [r["status"] for r in report["recordings"]] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shortest_s": 0.5, "longest_s": 4}, "shortest_s: expected 1 s or more (two joins, a second), got 0.5"),
        ({"shortest_s": 3, "longest_s": 4}, "longest_s: expected twice shortest_s (6 s) or more, got 4"),
        ({"join_s": -1.0}, "join_s: expected 0 or more, got -1"),
        ({"join_s": float("nan")}, "join_s: expected 0 or more, got nan"),
        ({"recordings": 0}, "recordings: expected 1 or more of each person, got 0"),
        ({"background": "calm"}, "expected stretches of calm and of another class, got rest, task"),
        ({"shortest_s": 8, "longest_s": 16}, "nobody has what a recording is made of, e.g. 0: 17.75 s of rest, 40 s"),
        ({"shortest_s": 20, "longest_s": 40}, "no stretch of another class than rest of 20 s; label more"),
    ],
)
def test_what_cannot_be_pasted_is_said(two: Path, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as problem:
        run.paste([two / "data"], two / "labels.csv", tmp_path / "out", **options)
    assert message in str(problem.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("file,label\nsub-0_rest.edf,rest\nsub-9_task.edf,task", "sub-9_task.edf: expected one recording of this name"),
        ("subject,label\n0,rest\n1,task", "subject 0: expected one recording of this name, got 0"),
        (
            "file,onset_s,duration_s,label\nsub-0_rest.edf,0,9,rest\nsub-0_rest.edf,5,9,task",
            "sub-0_rest.edf: expected stretches that do not overlap, got two at 5 s (rest, task); nothing may be",
        ),
    ],
)
def test_labels_that_do_not_fit_are_said(
    two: Path, tmp_path: Path, fails: Callable[..., str], labels: str, message: str
) -> None:
    (tmp_path / "labels.csv").write_text(labels)
    said = fails("eeg", "paste", two / "data", "--labels", tmp_path / "labels.csv", "--out", tmp_path / "out")
    assert message in said


def test_recordings_that_cannot_be_joined_are_said(two: Path, tmp_path: Path) -> None:
    for name, rate_hz, channels in (("task", 100, CHANNELS), ("task", 200, CHANNELS[:3])):
        for file in ("sub-0_rest.edf", f"sub-0_{name}.edf"):
            (tmp_path / "data").mkdir(exist_ok=True)
            (tmp_path / "data" / file).write_bytes((two / "data" / "sub-0_rest.edf").read_bytes())
        write_edf(tmp_path / "data" / "sub-0_task.edf", noise_uv(len(channels)), channels, sfreq_hz=rate_hz)
        (tmp_path / "labels.csv").write_text("file,label\nsub-0_rest.edf,rest\nsub-0_task.edf,task")
        with pytest.raises(UserError, match=rf"expected the channels and rate of sub-0_rest.edf \(4 at 200 Hz\), got "
                           rf"{len(channels)} channels at {rate_hz} Hz"):  # fmt: skip
            run.paste([tmp_path / "data"], tmp_path / "labels.csv", tmp_path / "out")


def test_a_person_who_lacks_something_is_left_out(two: Path, tmp_path: Path) -> None:
    text = (two / "labels.csv").read_text().replace("sub-1_task.edf,0,12,task\n", "")
    (tmp_path / "labels.csv").write_text(text)
    result = run.paste([two / "data"], tmp_path / "labels.csv", tmp_path / "out", **BRIEF)
    assert result["left_out"] == {"1": "no stretch of another class than rest of 2 s"}
    assert {r["subject"] for r in result["recordings"]} == {"0"}

"""A store that is added to is as if all had been prepared together; what does not fit is refused."""

import os
from pathlib import Path

import pytest

from bothways import run
from bothways.config import SignalConfig
from bothways.eeg import Store, prepare
from bothways.errors import BothwaysWarning, UserError
from recordings import NAMES, noise_uv, write_edf, write_five
from stores import content, names


@pytest.fixture
def halves(tmp_path: Path) -> list[Path]:
    """Five recordings in two folders, in their order."""
    data = sorted(write_five(tmp_path).iterdir())
    folders = [tmp_path / "first", tmp_path / "more"]
    for folder in folders:
        folder.mkdir()
    for index, path in enumerate(data):
        path.rename(folders[index >= 2] / path.name)
    return folders


@pytest.mark.parametrize("can_link", [True, False])
def test_appended_is_as_prepared_together(
    halves: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_link: bool
) -> None:
    if not can_link:

        def no_links(*_: object) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", no_links)
    out, together = tmp_path / "store", content(prepare(halves, tmp_path / "together").path)
    prepare(halves[:1], out)
    assert prepare(halves[1:], out, append=True).made == {"reused": 0, "already_there": 0, "added": 2}
    assert content(out) == together
    assert prepare(halves[:1], out, append=True).made == {"reused": 0, "already_there": 2, "added": 0}
    assert content(out) == together
    assert names(tmp_path) == ["first", "more", "store", "together"]


def test_ids_stay_whatever_is_appended(halves: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "store"
    prepare(halves[1:], out)
    before = {r.id: r.file for r in Store.open(out).recordings}
    old = (out / "signals" / "000001.npy").read_bytes()
    stored = prepare(halves[:1], out, append=True).recordings
    assert before == {"000000": "sub-3_rest.edf", "000001": "sub-5_copy.edf"}
    assert {r.id: r.file for r in stored} == before | {"000002": "sub-1_rest.edf", "000003": "sub-2_rest.edf"}
    assert (out / "signals" / "000001.npy").read_bytes() == old
    assert [n.message for n in stored[3].notes if n.code == "duplicate_content"] == ["same content as sub-5_copy.edf"]


def test_append_refuses_what_does_not_fit(halves: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "store"
    with pytest.raises(UserError, match="expected a prepared store"):
        prepare(halves[:1], out, append=True)
    prepare(halves[:1], out)
    before = content(out)
    with pytest.raises(UserError, match=r"other settings \(notch_hz: 60\.0, the store 50\.0\)"):
        prepare(halves[1:], out, SignalConfig(notch_hz=60), append=True)
    write_edf(halves[1] / "sub-1_rest.edf", noise_uv(seed=7), NAMES)
    with pytest.raises(UserError, match=r"sub-1_rest\.edf: the store has another recording of this name"):
        prepare(halves[1:], out, append=True)
    (halves[1] / "sub-1_rest.edf").unlink()
    for path in halves[1].glob("sub-[35]*"):
        path.unlink()
    with pytest.raises(UserError, match="none of 1 new recordings can be used"):
        prepare(halves[1:], out, append=True)
    with pytest.raises(UserError, match="choose one"):
        prepare(halves, out, append=True, overwrite=True)
    assert content(out) == before
    assert names(tmp_path) == ["first", "more", "store"]


def test_a_file_that_was_skipped_and_is_mended_is_added(halves: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "store"
    assert [s["file"] for s in prepare(halves, out).head["skipped"]] == ["sub-4_bad.edf"]
    write_edf(halves[1] / "sub-4_bad.edf", noise_uv(seed=4), NAMES)
    head = prepare(halves, out, append=True).head
    assert head["skipped"] == []
    assert head["totals"] == {"recordings": 5, "subjects": 5, "duration_s": 40.0, "skipped": 0}


def test_baselines_are_merged(halves: list[Path], tmp_path: Path) -> None:
    text = "file,onset_s,duration_s\nsub-1_rest.edf,0,3\n"
    one, both = tmp_path / "one.csv", tmp_path / "both.csv"
    one.write_text(text)
    both.write_text(text + "sub-3_rest.edf,1,2\n")
    run.prepare(halves[:1], tmp_path / "store", baseline=one)
    result = run.prepare(halves[1:], tmp_path / "store", baseline=both, append=True)
    assert (result["recordings"], result["already_there"], result["reused"]) == (4, 0, 0)
    run.prepare(halves, tmp_path / "together", baseline=both)
    assert content(tmp_path / "store") == content(tmp_path / "together")
    rows = Store.open(tmp_path / "store").head["baseline"]
    assert [(row["file"], row["subject"]) for row in rows] == [("sub-1_rest.edf", "1"), ("sub-3_rest.edf", "3")]


def test_appending_keeps_the_baseline(halves: list[Path], tmp_path: Path) -> None:
    table = tmp_path / "baseline.csv"
    table.write_text("file,onset_s,duration_s\nsub-1_rest.edf,0,3\n")
    run.prepare(halves[:1], tmp_path / "store", baseline=table)
    head = Store.open(tmp_path / "store").head
    assert len(head["baseline"]) == 1
    run.prepare(halves[1:], tmp_path / "store", append=True)
    again = Store.open(tmp_path / "store").head
    assert (again["baseline"], again["settings"]) == (head["baseline"], head["settings"])


def test_a_folder_above_adds_what_is_new_and_nothing_twice(tmp_path: Path) -> None:
    for index, folder in enumerate("AB"):
        write_edf(tmp_path / "two" / folder / "sub-01_rest.edf", noise_uv(seed=index), NAMES)
    run.prepare([tmp_path / "two" / "A"], tmp_path / "store")
    with pytest.raises(UserError, match="give the folder above, so that their names differ"):
        run.prepare([tmp_path / "two" / "B"], tmp_path / "store", append=True)
    with pytest.warns(BothwaysWarning, match="A/sub-01_rest.edf: is in the store already, as sub-01_rest.edf"):
        result = run.prepare([tmp_path / "two"], tmp_path / "store", append=True)
    assert (result["recordings"], result["already_there"], result["added"]) == (2, 1, 1)
    assert [r.file for r in Store.open(tmp_path / "store").recordings] == ["sub-01_rest.edf", "B/sub-01_rest.edf"]


def test_appending_tells_of_what_is_new_alone(tmp_path: Path) -> None:
    write_edf(tmp_path / "one" / "sub-1.edf", noise_uv(), NAMES)
    (tmp_path / "one" / "sub-2.edf").write_bytes(b"no EDF")
    write_edf(tmp_path / "more" / "sub-3.edf", noise_uv(seed=1), NAMES)
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "sub-4.edf").write_bytes(b"no EDF")
    assert [one["file"] for one in run.prepare([tmp_path / "one"], tmp_path / "store")["skipped"]] == ["sub-2.edf"]
    added = run.prepare([tmp_path / "more"], tmp_path / "store", append=True)
    assert added["skipped"] == []
    assert [one["file"] for one in Store.open(tmp_path / "store").head["skipped"]] == ["sub-2.edf"]
    with pytest.raises(
        UserError, match=r"none of 1 new recordings can be used: .*; the 2 of the store stay as they are$"
    ):
        run.prepare([tmp_path / "bad"], tmp_path / "store", append=True)

"""The files that a recording is read from: each of them changes its hash, and nothing else does."""

from pathlib import Path

import pytest

from bothways.eeg.source import source_files, source_hash


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "a.edf", "a1.edf", "a.b.edf", "A.tsv", "x.vhdr", "x.vmrk", "renamed.eeg", "y.set", "Y.FDT",
        "r_raw.fif", "r_raw-1.fif", "r_raw-2.fif", "r_raw-4.fif", "r-1_raw.fif", "g.fif.gz", "g-1.fif.gz",
        "s_split-01_eeg.fif", "s_split-02_eeg.fif", "t_split-02_eeg.fif",
        "n.csv.gz", "n.json", "m.mff/signal1.bin", "m.mff/deep/info.xml", "z.cdt", "z.cdt.dpa",
        "task-rest_eeg.json", "events.json", "participants.tsv",
        "sub-1/sub-1_coordsystem.json", "sub-2/sub-2_coordsystem.json",
        "sub-1/eeg/sub-1_task-rest_eeg.edf", "sub-1/eeg/sub-1_task-rest_events.tsv", "sub-1/eeg/sub-1_electrodes.tsv",
        "sub-1/eeg/sub-1_task-rest_channels.tsv", "sub-1/eeg/sub-1_task-go_events.tsv", "sub-1/eeg/notes.tsv",
        "sub-1/eeg/sub-1_task-rest_run-2_events.tsv", "sub-1/eeg/sub-1_space-CapTrak_electrodes.tsv",
    ):  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "x.vhdr").write_text("[Common Infos]\nDataFile=renamed.eeg\r\nMarkerFile=x.vmrk\n")
    return tmp_path


@pytest.mark.parametrize(
    ("recording", "expected"),
    [
        ("a.edf", ["A.tsv", "a.b.edf", "a.edf"]),
        ("a1.edf", ["a1.edf"]),
        ("a.b.edf", ["a.b.edf"]),
        ("x.vhdr", ["renamed.eeg", "x.vhdr", "x.vmrk"]),
        ("y.set", ["Y.FDT", "y.set"]),
        ("z.cdt", ["z.cdt", "z.cdt.dpa"]),
        ("r_raw.fif", ["r_raw-1.fif", "r_raw-2.fif", "r_raw.fif"]),
        ("g.fif.gz", ["g-1.fif.gz", "g.fif.gz"]),
        ("s_split-01_eeg.fif", ["s_split-01_eeg.fif", "s_split-02_eeg.fif"]),
        ("n.csv.gz", ["n.csv.gz", "n.json"]),
        ("m.mff", ["m.mff/deep/info.xml", "m.mff/signal1.bin"]),
        (
            "sub-1/eeg/sub-1_task-rest_eeg.edf",
            ["events.json", "sub-1/eeg/sub-1_electrodes.tsv", "sub-1/eeg/sub-1_space-CapTrak_electrodes.tsv",
             "sub-1/eeg/sub-1_task-rest_channels.tsv", "sub-1/eeg/sub-1_task-rest_eeg.edf",
             "sub-1/eeg/sub-1_task-rest_events.tsv",
             "sub-1/sub-1_coordsystem.json", "task-rest_eeg.json"],
        ),
    ],
)  # fmt: skip
def test_source_files(folder: Path, recording: str, expected: list[str]) -> None:
    assert [path.relative_to(folder).as_posix() for path in source_files(folder / recording)] == expected
    before = source_hash(folder / recording)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        was = path.read_bytes()
        path.write_bytes(was + b"\n")
        assert (source_hash(folder / recording) != before) == (path.relative_to(folder).as_posix() in expected), path
        path.write_bytes(was)


def test_a_companion_that_appears_or_moves_changes_the_hash(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = source_hash(folder / "a1.edf")
    (folder / "a1.tsv").write_text("new")
    assert source_hash(folder / "a1.edf") != before
    (folder / "a1.tsv").unlink()
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (folder / "a1.edf").rename(elsewhere / "a1.edf")
    assert source_hash(elsewhere / "a1.edf") == before


def test_a_relative_path_and_a_link_have_the_same_hash(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = source_hash(folder / "x.vhdr")
    monkeypatch.chdir(folder)
    assert source_hash(Path("x.vhdr")) == before
    (folder / "linked").symlink_to(folder)
    assert source_hash(folder / "linked" / "x.vhdr") == before

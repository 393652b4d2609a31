import json

import numpy as np
import pytest

from bothways.eeg import check, read_recording, scan
from bothways.eeg import recording as recording_module
from bothways.eeg.channels import parse_label, standard_positions
from bothways.eeg.recording import Event, LazyRows
from bothways.errors import UserError
from recordings import noise_uv, write_brainvision, write_edf

NAMES = ["Fp1", "Fp2", "C3", "LEOG", "C4"]


@pytest.fixture
def dataset(tmp_path):
    return make(tmp_path)


def make(tmp_path, marks=()):
    """A dataset of one subject with a session; returns its root and the recording."""
    root = tmp_path / "set"
    eeg = root / "sub-01" / "ses-a" / "eeg"
    annotations = [(0.0, 1.0, "own"), (2.0, 99.0, "long"), *marks]
    path = write_edf(
        eeg / "sub-01_ses-a_task-rest_run-1_eeg.edf", noise_uv(5), NAMES, plus="C", annotations=annotations
    )
    (root / "dataset_description.json").write_text('{"Name": "x", "BIDSVersion": "1.8.0"}')
    return root, path


def beside(path, suffix, text):
    """Writes a file beside the recording."""
    path.with_name(path.name.replace("_eeg.edf", f"_{suffix}")).write_text(text)


def codes(recording):
    return [note.code for note in recording.notes]


def message(recording, code):
    (note,) = [note for note in recording.notes if note.code == code]
    return note.message


def table(*rows):
    return "".join("\t".join(row) + "\n" for row in rows)


def test_without_tables_nothing_changes(dataset, tmp_path):
    _, path = dataset
    plain = write_edf(tmp_path / "a.edf", noise_uv(5), NAMES)
    np.testing.assert_array_equal(read_recording(path).data_uv, read_recording(plain).data_uv)
    assert codes(read_recording(path)) == ["events_shortened"]


def test_channels(dataset):
    _, path = dataset
    beside(path, "channels.tsv", table(
        ("name", "type", "units", "status"), ("Fp1", "EEG", "uV", "good"), ("Fp2", "MISC", "n/a", "n/a"),
        ("C3", "EEG", "mV", "bad"), ("LEOG", "EOG", "uV", "good"), ("C4", "EEG", "uV", "n/a"), ("Oz", "EEG", "uV", ""),
    ))  # fmt: skip
    recording = read_recording(path)
    assert (recording.ch_names, recording.file_names) == (["Fp1", "C3", "C4"], ["Fp1", "C3", "C4"])
    assert recording.left_out["Fp2"] == f"MISC by {path.stem[:-4]}_channels.tsv, not scalp EEG"
    assert recording.left_out["LEOG"] == "eye movement, not scalp EEG"
    assert recording.marked_bad == ["C3"]
    assert "C3 (uV in the file, mV in the table)" in message(recording, "bids_units")
    assert message(recording, "bids_mismatch").endswith("not in the file: Oz")
    np.testing.assert_array_equal(recording.data_uv, read_recording(path).data_uv)
    np.testing.assert_allclose(recording.data_uv, noise_uv(5)[[0, 2, 4]], atol=1e-3)
    assert len(recording.positions) == 3


@pytest.mark.parametrize("held_bytes", [0, 2**28])
def test_units_of_the_table_count_where_the_file_states_none(dataset, monkeypatch, held_bytes):
    _, path = dataset
    monkeypatch.setattr(recording_module, "HELD_BYTES", held_bytes)
    write_edf(path, noise_uv(5), NAMES, units=["", "", "uV", "uV", ""])
    rows = [
        ("name", "type", "units"),
        ("Fp1", "EEG", "mV"),
        ("Fp2", "EEG", "n/a"),
        ("C3", "EEG", "mV"),
        ("C4", "EOG", "V"),
    ]
    beside(path, "channels.tsv", table(*rows))
    recording = read_recording(path)
    assert isinstance(recording.data_uv, LazyRows) == (held_bytes == 0)
    np.testing.assert_allclose(recording.data_uv, noise_uv(5)[:3] * [[1e3], [1], [1]], rtol=1e-4, atol=1e-3)
    assert message(recording, "unit_guessed") == "unit taken for microvolts: Fp2"
    assert [n.message for n in recording.notes if n.code == "bids_units"] == [
        "units differ, the file's stand: C3 (uV in the file, mV in the table)",
        f"units by {path.stem[:-4]}_channels.tsv, as the file states none: Fp1",
    ]
    user = read_recording(path, unit="uV")
    np.testing.assert_allclose(user.data_uv, noise_uv(5)[:3], atol=1e-3)


def test_events(dataset):
    _, path = dataset
    beside(path, "events.tsv", table(
        ("onset", "duration", "trial_type", "value"), ("1.5", "0.5", "go", "1"), ("3", "n/a", "n/a", "7"),
        ("n/a", "1", "lost", "1"), ("5", "0", "n/a", "n/a"), ("100", "1", "late", "1"),
    ))  # fmt: skip
    recording = read_recording(path)
    assert recording.events == [Event(1.5, 0.5, "go", 300), Event(3.0, 0.0, "7", 600), Event(5.0, 0.0, "event", 1000)]
    assert codes(recording) == ["bids_events", "bids_events_skipped", "events_outside"]
    assert "4 events of" in message(recording, "bids_events")
    assert "in place of 2 of the file's own" in message(recording, "bids_events")


def test_what_the_file_marks_as_bad_stays(tmp_path):
    _, path = make(tmp_path, [(3.0, 1.0, "BAD_x"), (4.0, 1.0, "BAD_y")])
    beside(path, "events.tsv", table(("onset", "duration", "value"), ("1", "1", "go"), ("5", "1", "BAD_y")))
    recording = read_recording(path)
    assert [(e.onset_s, e.label) for e in recording.events] == [(1.0, "go"), (3.0, "BAD_x"), (5.0, "BAD_y")]
    assert "2 events of" in message(recording, "bids_events")
    assert "in place of 3 of the file's own" in message(recording, "bids_events")


@pytest.mark.parametrize("suffix", ["channels.tsv", "events.tsv", "eeg.json"])
def test_a_file_of_another_task_does_not_apply(dataset, suffix):
    root, path = dataset
    content = {
        "channels.tsv": table(("name", "type"), ("Fp1", "MISC")), "events.tsv": table(("onset", "value"), ("1", "9")),
        "eeg.json": json.dumps({"SamplingFrequency": 512}),
    }  # fmt: skip
    before = codes(read_recording(path))
    for name in (f"task-other_{suffix}", f"task-rest_run-2_{suffix}", f"task-rest_xchannels_{suffix[1:]}"):
        (root / name).write_text(content[suffix])
        path.with_name(f"sub-01_ses-a_{name}").write_text(content[suffix])
    assert codes(read_recording(path)) == before
    (root / f"task-rest_{suffix}").write_text(content[suffix])
    assert codes(read_recording(path)) != before


def test_the_nearest_of_several_and_in_a_folder_the_one_with_more_entities(dataset):
    root, path = dataset
    for place, marker in (
        (root / "events.tsv", "a"), (root / "task-rest_events.tsv", "b"), (root / "task-rest_run-1_events.tsv", "c"),
        (root / "sub-01" / "sub-01_task-rest_events.tsv", "d"), (path.with_name("sub-01_ses-a_events.tsv"), "e"),
    ):  # fmt: skip
        place.write_text(table(("onset", "value"), ("1", marker)))
        assert [event.label for event in read_recording(path).events] == [marker]


def test_files_higher_up_apply_and_the_nearest_wins(dataset):
    root, path = dataset
    (root / "task-rest_channels.tsv").write_text(table(("name", "type"), ("Fp1", "MISC")))
    (root / "task-other_events.tsv").write_text(table(("onset",), ("1",)))
    (root / "sub-01" / "sub-01_task-rest_events.tsv").write_text(table(("onset", "value"), ("1", "9")))
    (root / "task-rest_eeg.json").write_text(json.dumps({"PowerLineFrequency": 60, "SamplingFrequency": 500}))
    beside(path, "eeg.json", json.dumps({"SamplingFrequency": 250, "EEGReference": "left\nmastoid"}))
    recording = read_recording(path)
    assert recording.ch_names == ["Fp2", "C3", "C4"]
    assert [event.label for event in recording.events] == ["9"]
    assert message(recording, "bids_rate").startswith("the dataset states 250 Hz, the file has 200 Hz")
    assert message(recording, "bids_mains") == "mains frequency by the dataset: 60 Hz"
    assert message(recording, "bids_reference") == "reference by the dataset: left mastoid"
    beside(path, "channels.tsv", table(("name", "type"), ("Fp2", "MISC")))
    assert read_recording(path).ch_names == ["Fp1", "C3", "C4"]


def test_a_name_like_bids_outside_of_a_dataset_sees_its_folder_only(tmp_path):
    path = write_edf(tmp_path / "here" / "sub-1_task-x_eeg.edf", noise_uv(5), NAMES)
    (tmp_path / "task-x_channels.tsv").write_text(table(("name", "type"), ("Fp1", "MISC")))
    assert read_recording(path).ch_names == ["Fp1", "Fp2", "C3", "C4"]
    (tmp_path / "here" / "task-x_channels.tsv").write_text(table(("name", "type"), ("Fp1", "MISC")))
    assert read_recording(path).ch_names == ["Fp2", "C3", "C4"]


@pytest.mark.parametrize(
    "content", [b"", b"nonsense", b"\xff\xfe\x00", b'"', b"name\n\tx\ty\n", b"onset\tname\n\x00\t1\n"]
)
@pytest.mark.parametrize("suffix", ["channels.tsv", "events.tsv", "electrodes.tsv"])
def test_broken_tables_are_noted_and_never_crash(dataset, suffix, content):
    _, path = dataset
    path.with_name(path.name.replace("_eeg.edf", f"_{suffix}")).write_bytes(content)
    recording = read_recording(path)
    assert recording.ch_names == ["Fp1", "Fp2", "C3", "C4"]
    assert not any("\n" in note.message for note in recording.notes)


def test_what_is_broken_is_said(dataset):
    root, path = dataset
    beside(path, "channels.tsv", "what\never\n")
    beside(path, "eeg.json", "{")
    (root / "participants.tsv").write_text("who\nsub-01\n")
    recording = read_recording(path)
    assert codes(recording).count("bids_broken") == 3
    assert [event.label for event in recording.events] == ["own", "long"]


def test_participants(dataset):
    root, path = dataset
    (root / "participants.tsv").write_text("participant_id\tage\nsub-02\t30\n")
    assert message(read_recording(path), "bids_participant") == "sub-01 is not in participants.tsv"
    (root / "participants.tsv").write_text("participant_id\tage\nsub-01\t30\n")
    assert "bids_participant" not in codes(read_recording(path))


def test_all_channels_of_another_type(dataset):
    _, path = dataset
    beside(path, "channels.tsv", table(("name", "type"), *((name, "EOG") for name in NAMES)))
    with pytest.raises(UserError, match="no EEG channels"):
        read_recording(path)


PLACES = ["Fp1", "Fp2", "F3", "F4", "C3", "C4", "O1", "O2", "Cz", "Pz"]


@pytest.mark.parametrize(
    ("system", "used"),
    [("CapTrak", True), ("EEGLAB", True), ("CTF", True), ("Other", False), (None, False), ("MNI305", True)],
)
def test_electrodes(dataset, system, used):
    _, path = dataset
    write_edf(path, noise_uv(11), [*PLACES, "X1"])
    points = standard_positions([parse_label(name) for name in PLACES])[:, 0] * 0.09 + [0.001, 0.01, 0.03]
    points += np.random.default_rng(0).normal(0, 0.002, points.shape)
    x, y, z = points.T
    stored = np.stack([y, -x, z], 1) if system in ("EEGLAB", "CTF") else points
    rows = [(name, *(f"{value:.5f}" for value in point)) for name, point in zip(PLACES, stored)]
    beside(path, "space-A_electrodes.tsv", table(("name", "x", "y", "z"), *rows, ("X1", "n/a", "n/a", "n/a")))
    beside(path, "space-B_coordsystem.json", '{"EEGCoordinateSystem": "CapTrak"}')
    if system is not None:
        beside(path, "space-A_coordsystem.json", json.dumps({"EEGCoordinateSystem": system, "EEGCoordinateUnits": "m"}))
    recording = read_recording(path)
    assert codes(recording) == (
        ["digitised_positions", "unknown_names"] if used else ["unknown_names", "bids_positions_unused"]
    )
    named = standard_positions([parse_label(name) for name in PLACES])[:, 0]
    distance = np.linalg.norm(recording.positions[:10, 0] - named, axis=1)
    assert (0 < distance.max() < 0.2) == used
    assert np.isnan(recording.positions[10]).all()


def test_electrodes_in_a_frame_that_does_not_fit_are_left_aside(dataset):
    _, path = dataset
    write_edf(path, noise_uv(10), PLACES)
    points = standard_positions([parse_label(name) for name in PLACES])[:, 0]
    rows = [(name, *(f"{value:.5f}" for value in point)) for name, point in zip(PLACES, -points)]
    beside(path, "electrodes.tsv", table(("name", "x", "y", "z"), *rows))
    beside(path, "coordsystem.json", '{"EEGCoordinateSystem": "CapTrak"}')
    assert "not near where the names belong" in message(read_recording(path), "bids_positions_unused")


def test_brainvision_in_a_dataset(tmp_path):
    path = tmp_path / "sub-7" / "eeg" / "sub-7_task-odd_eeg.vhdr"
    path.parent.mkdir(parents=True)
    write_brainvision(path, noise_uv(), ["Fp1", "Fp2", "C3", "C4"])
    (tmp_path / "task-odd_channels.tsv").write_text(
        table(("name", "type", "units", "status"), *((n, "EEG", "µV", "bad" if n == "C3" else "good") for n in NAMES))
    )
    path.with_name("sub-7_task-odd_events.tsv").write_text(
        table(("onset", "duration", "trial_type"), ("2", "1", "oddball"))
    )
    (one,) = scan([tmp_path])
    assert (one.file, one.subject) == ("sub-7/eeg/sub-7_task-odd_eeg.vhdr", "7")
    recording = read_recording(path)
    assert recording.marked_bad == ["C3"]
    assert [event.label for event in recording.events] == ["oddball"]
    (entry,) = check([tmp_path])["recordings"]
    assert (entry["subject"], entry["bad_channels"]) == ("7", ["C3"])


def test_channels_are_matched_by_what_their_names_mean_where_that_is_one(dataset):
    _, path = dataset
    write_edf(path, noise_uv(5), ["EEG Fp1", "EEG Fp2-REF", "C3", "EEG C4", "EEG C4-REF"])
    rows = [("Fp1", "EEG", "bad"), ("FP2", "MISC", "good"), ("c3", "EEG", "bad"), ("C4", "EEG", "bad")]
    beside(path, "channels.tsv", table(("name", "type", "status"), *rows))
    recording = read_recording(path)
    assert recording.marked_bad == ["Fp1", "C3"]
    assert recording.left_out == {"EEG Fp2-REF": f"MISC by {path.stem[:-4]}_channels.tsv, not scalp EEG"}
    assert message(recording, "bids_mismatch") == (
        "channels of the file and of the table differ, bad marks and types of these are not applied; "
        f"not in {path.stem[:-4]}_channels.tsv: EEG C4, EEG C4-REF; not in the file: C4"
    )

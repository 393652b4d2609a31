"""The CSV recordings of the shared data: what their tables say, down to windows around the faces and houses."""

import numpy as np
import pytest

from bothways.config import WindowConfig
from bothways.eeg import Segment, check, cut_windows, prepare, read_recording, scan

# Read with the csv module and counted by hand: rows, stimuli (1 house, 2 face), and the first with its row.
RUNS = {
    1: (30732, 197), 2: (30732, 195), 3: (30732, 195), 4: (30732, 194), 5: (30720, 194), 6: (30732, 199),
}  # fmt: skip


@pytest.fixture(scope="session")
def muse(shared):
    return shared / "data" / "eeg_muse_n170"


@pytest.mark.parametrize("run", RUNS)
def test_muse_runs(muse, run):
    recording = read_recording(muse / f"run{run}.csv.gz")
    n, n_stimuli = RUNS[run]
    assert (recording.format, recording.sfreq_hz, recording.segments) == ("CSV", 256.0, [Segment(0, n, 0.0)])
    assert recording.ch_names == recording.file_names == ["TP9", "AF7", "AF8", "TP10"]
    assert np.isfinite(recording.positions[:, 0]).all()
    assert recording.left_out == {
        "timestamps": "time column", "Right AUX": "auxiliary input, not scalp EEG",
        "Marker0": "marker column, read as events",
    }  # fmt: skip
    assert len(recording.events) == n_stimuli
    assert {event.label for event in recording.events} == {"1", "2"}
    assert [note.code for note in recording.notes] == ["time_jitter", "rate_rounded", "unit_guessed"]
    assert recording.duration_s == pytest.approx(120, abs=0.1)


def test_the_first_samples_and_stimuli(muse, shared):
    recording = read_recording(muse / "run1.csv.gz")
    np.testing.assert_array_equal(
        recording.data_uv[:, :2], np.float32([[34.668, 30.762], [32.715, 29.297], [29.297, 37.598], [14.160, 24.414]])
    )
    assert [(e.label, e.start_sample) for e in recording.events[:2]] == [("2", 70), ("1", 198)]
    plain = read_recording(shared / "data" / "eeg_formats" / "csv_muse" / "n170_subject1_run1.csv")
    np.testing.assert_array_equal(plain.data_uv, recording.data_uv)
    assert plain.events == recording.events


def test_a_lost_stretch_becomes_a_gap(muse, tmp_path):
    import gzip

    lines = gzip.decompress((muse / "run1.csv.gz").read_bytes()).decode().splitlines(keepends=True)
    (tmp_path / "a.csv").write_text("".join([*lines[:10001], *lines[10301:20001], *lines[20021:]]))
    recording = read_recording(tmp_path / "a.csv")
    assert recording.sfreq_hz == 256.0
    assert [(s.start, s.stop) for s in recording.segments] == [(0, 10000), (10000, 19700), (19700, 30412)]
    np.testing.assert_allclose([s.onset_s for s in recording.segments], [0, 10300 / 256, 20020 / 256], atol=0.03)


def test_the_folder_is_scanned_checked_and_prepared(muse, tmp_path):
    assert [one.file for one in scan([muse])] == [f"run{run}.csv.gz" for run in RUNS]
    report = check([muse], subject_from="parent")
    assert report["exit_status"] == 1
    assert {entry["status"] for entry in report["recordings"]} == {"warning"}
    store = prepare([muse], tmp_path / "store", subject_from="parent")
    assert store.head["totals"] == {
        "recordings": 6,
        "subjects": 1,
        "duration_s": pytest.approx(720, abs=1),
        "skipped": 0,
    }
    assert len(cut_windows(store, WindowConfig(window_s=1, stride_s=1))) == 720


def test_no_other_table_of_the_shared_data_is_taken_for_a_recording(shared):
    folders = [shared / "cases", shared / "data" / "eeg_formats", shared / "data" / "eeg_mental_arithmetic"]
    tables = {one.file for one in scan(folders) if not one.file.lower().endswith((".edf", ".bdf"))}
    assert {file for file in tables if file.endswith((".csv", ".tsv", ".parquet"))} == {
        "csv_muse/n170_subject1_run1.csv", "csv_muse/n170_subject1_run2.csv",
    }  # fmt: skip

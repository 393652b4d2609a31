"""Persyst: its pauses, its times of the day, and headers that cannot be."""

import numpy as np
import pytest

import vendor_files as write
from bothways.eeg import read_recording
from bothways.eeg.persyst import _segments
from readings import codes, marks, refused, segments
from recordings import noise_uv

NAMES = ["Fp1", "Fp2", "C3", "C4"]
EVENTS = [(400, "7"), (1000, "9")]
DATA_UV = noise_uv(4, 1600)


def persyst(folder, **changes):
    return write.write_persyst(folder, DATA_UV, NAMES, 200, EVENTS, **changes)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([(0, 37230.0), (800, 37290.0)], [(0, 800, 0.0), (800, 1600, 60.0)]),
        ([(0, 10.0), (400, 12.05), (800, 14.0), (1200, 26.0)], [(0, 1200, 0.0), (1200, 1600, 16.0)]),
        ([(0, 10.0), (800, 14.002), (1200, 16.0)], [(0, 1600, 0.0)]),
        ([], [(0, 1600, 0.0)]),
    ],
)
def test_times_of_persyst_show_gaps(tmp_path, times, expected):
    recording = read_recording(persyst(tmp_path, sample_times=times))
    np.testing.assert_allclose(segments(recording), expected)
    assert codes(recording) == (["gaps"] if len(expected) > 1 else [])
    assert marks(recording) == EVENTS  # comments count the stored seconds


HOUR = 3600 * 200


@pytest.mark.parametrize(
    ("times", "gaps_s", "noted"),
    [
        ([(0, 0.0), (HOUR, 3603.5)], [(HOUR, 3603.5)], ["gaps"]),
        ([(0, 0.0), (HOUR, 3600.4)], [], ["record_times"]),
        ([(0, 0.0), (HOUR, 3600.09)], [], []),
        ([(0, 0.0), (HOUR, 3600.0), (HOUR + 200, 3601.2)], [], ["record_times"]),
        ([(0, 0.0), *((k * 2000, k * 10.08) for k in range(1, 20))], [(4000, 20.16)], None),
        ([(0, 86300.0), (100 * 200, 20.0)], [(20000, 120.0)], ["gaps"]),
        ([(0, 86300.0), (100 * 200, 0.0), (HOUR, 3500.0)], [], []),
        ([(0, 80000.0), (HOUR, 83660.0), (2 * HOUR, 860.0), (3 * HOUR, 4460.0)], [(HOUR, 3660.0)], ["gaps"]),
        ([(0, 10.0), (400, 5.0), (800, 14.0)], [], ["record_times"]),
    ],
)  # fmt: skip
def test_long_recordings_of_persyst(times, gaps_s, noted):
    """A clock drifts, a pause of seconds stays one, and times of the day begin again at midnight."""
    notes = []
    found = _segments([f"{sample}={time_s}" for sample, time_s in times], 25 * HOUR, 200.0, notes)
    begins = [(segment.start, segment.onset_s) for segment in found][: 1 + len(gaps_s)]
    np.testing.assert_allclose(begins, [(0, 0.0), *gaps_s])
    if noted is not None:
        assert len(found) == 1 + len(gaps_s)
        assert [note.code for note in notes] == noted


def test_a_time_of_persyst_beside_its_sample_is_noted(tmp_path):
    recording = read_recording(persyst(tmp_path, sample_times=[(0, 100.0), (800, 50.0), (1200, 106.0)]))
    (note,) = recording.notes
    assert note.message == "1 times lie up to -54 s beside their samples, which are taken as following on"


def test_equals_signs_in_a_header_of_persyst(tmp_path):
    path = persyst(tmp_path, data_file="x=y.dat")
    (tmp_path / "a.dat").rename(tmp_path / "x=y.dat")
    path.write_text(path.read_text().replace("C4=4", "a=b=4"))
    recording = read_recording(path)
    assert recording.notes[0].message == "no place on the head is known for a=b"
    assert recording.data_uv.shape == (4, 1600)


def test_a_comment_behind_a_gap_has_its_true_time(tmp_path):
    recording = read_recording(persyst(tmp_path, sample_times=[(0, 10.0), (800, 70.0)]))
    assert [(event.onset_s, event.start_sample) for event in recording.events] == [(2.0, 400), (61.0, 1000)]


def test_times_of_persyst_that_run_backwards(tmp_path):
    recording = read_recording(persyst(tmp_path, sample_times=[(0, 100.0), (800, 50.0)]))
    assert segments(recording) == [(0, 1600, 0.0)]
    assert codes(recording) == ["record_times"]


def test_persyst_without_a_patient(tmp_path):
    recording = read_recording(persyst(tmp_path, patient=[]))
    np.testing.assert_allclose(recording.data_uv, DATA_UV, atol=1e-4)
    assert (recording.meas_date, recording.notes) == (None, [])


def test_the_samples_of_persyst_under_another_name(tmp_path):
    path = persyst(tmp_path, data_file="C:\\EEG\\A.DAT")  # a Windows path, another case
    assert read_recording(path).notes == []
    path = persyst(tmp_path, data_file="original.dat")
    recording = read_recording(path)
    (note,) = recording.notes
    assert (note.code, note.message) == (
        "renamed",
        "the header names 'original.dat', which is not there; read a.dat beside it",
    )


def test_a_cut_persyst_file_keeps_its_whole_samples(tmp_path):
    path = persyst(tmp_path)
    (tmp_path / "a.dat").write_bytes((tmp_path / "a.dat").read_bytes()[: 1000 * 8 + 3])
    recording = read_recording(path)
    np.testing.assert_allclose(recording.data_uv, DATA_UV[:, :1000], atol=1e-4)
    assert [(note.code, note.message) for note in recording.notes] == [
        ("truncated", "the last 3 bytes of a.dat are no whole sample, left out"),
        ("events_outside", "1 events lie where no data are and are left out: 9 at 5 s"),
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("SamplingRate=200", "SamplingRate=x", "expected a number for samplingrate in [FileInfo], got 'x'; header "
         "damaged"),
        ("Calibration=0.1", "", "expected a number for calibration in [FileInfo], got 'none'; header damaged"),
        ("C4=4", "C4=3", "expected a number of its own for each channel, got 3 for C3 and C4; header damaged"),
        ("HeaderLength=0", "HeaderLength=0.5", "expected a whole number for headerlength in [FileInfo], got 0.5; "
         "header damaged"),
        ("DataType=0", "DataType=0.5", "expected a whole number for datatype in [FileInfo], got 0.5; header damaged"),
        ("WaveformCount=4", "WaveformCount=4.5", "expected a whole number for waveformcount in [FileInfo], got 4.5; "
         "header damaged"),
        ("Calibration=0.1", "Calibration=0", "expected FileType=Interleaved, DataType 0 or 7, WaveformCount from 1, "
         "HeaderLength from 0 and a Calibration other than 0, got filetype=Interleaved, samplingrate=200, "
         "headerlength=0, calibration=0, waveformcount=4, datatype=0; export it again"),
        ("C4=4", "C4=5", "expected a number from 1 to 4 for the channel C4, got '5'; header damaged"),
        ("[FileInfo]", "<html>", "expected a Persyst header with [FileInfo], got one that begins with "
         "b'<html>\\nFile=a.da'; check that it was copied whole"),
        ("SamplingRate=200", "SamplingRate=2", "expected a sampling rate of 10 Hz to 100 kHz, got 2 Hz; header "
         "damaged"),
        ("Fp1=1\nFp2=2\nC3=3\nC4=4", "ECG=1", "no EEG channels among the 1 in the file (ECG: electrocardiogram, not "
         "scalp EEG); leave the file out"),
        ("DataType=0", "DataType=3", "expected FileType=Interleaved, DataType 0 or 7, WaveformCount from 1, "
         "HeaderLength from 0 and a Calibration other than 0, got filetype=Interleaved, samplingrate=200, "
         "headerlength=0, calibration=0.1, waveformcount=4, datatype=3; export it again"),
    ],
)  # fmt: skip
def test_headers_of_persyst_that_are_refused(tmp_path, old, new, message):
    path = persyst(tmp_path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    assert refused(path) == message

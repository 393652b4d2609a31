import inspect
from types import SimpleNamespace

import mne
import numpy as np
import pytest

from bothways import run
from bothways.config import WindowConfig
from bothways.eeg import (
    cut_windows,
    from_array,
    from_braindecode,
    from_mne,
    labels_from_events,
    load,
    prepare,
    read_recording,
    scan,
)
from bothways.eeg.recording import Event, Segment
from bothways.errors import UserError
from recordings import noise_uv, write_edf

NAMES = ["Fp1", "Fp2", "C3", "ECG"]
DATA_UV = noise_uv(4)


def codes(recording):
    return [note.code for note in recording.notes]


def raw_of(data_uv=DATA_UV, names=NAMES, hz=200.0):
    info = mne.create_info(list(names), hz, "eeg")
    raw = mne.io.RawArray(data_uv * 1e-6, info, verbose="error")
    raw.set_annotations(mne.Annotations([2.0], [0.5], ["go"]))
    return raw


def epochs_of(starts, tmin=-0.5, tmax=1.0, **fields):
    events = np.array([[start, 0, 1 + index % 2] for index, start in enumerate(starts)])
    return mne.Epochs(
        raw_of(), events, {"left": 1, "right": 2}, tmin, tmax, baseline=None, preload=True, verbose="error", **fields
    )


@pytest.mark.parametrize(("unit", "factor"), [("uV", 1), ("V", 1e-6), ("mV", 1e-3), ("µV", 1)])
def test_an_array(unit, factor):
    recording = from_array(DATA_UV * factor, NAMES, 200, unit=unit, events=[(1, 0.5, "go")], name="sub-3_ses-b")
    np.testing.assert_allclose(recording.data_uv, DATA_UV[:3], atol=1e-4)
    assert (recording.ch_names, recording.sfreq_hz, recording.format) == (["Fp1", "Fp2", "C3"], 200.0, "array")
    assert recording.left_out == {"ECG": "electrocardiogram, not scalp EEG"}
    assert recording.events == [Event(1.0, 0.5, "go", 200)]
    assert (recording.segments, recording.notes) == ([Segment(0, 1600, 0.0)], [])


def test_pieces_of_an_array_are_segments():
    pieces = np.stack([DATA_UV[:, :800], DATA_UV[:, 800:]])
    recording = from_array(pieces, NAMES, 200.0, unit="uV")
    np.testing.assert_allclose(recording.data_uv, DATA_UV[:3], atol=1e-4)
    assert recording.segments == [Segment(0, 800, 0.0), Segment(800, 1600, 4.0)]
    assert codes(recording) == ["gaps"]


@pytest.mark.parametrize(
    ("data", "names", "hz", "unit", "message"),
    [
        (DATA_UV, NAMES, 200, "T", "unit: expected one of V, mV, uV, nV, got 'T'"),
        (DATA_UV.T, NAMES, 200, "uV", r"expected 4 channels as named, .*turn the array"),
        (DATA_UV, NAMES[:3], 200, "uV", "expected 3 channels as named"),
        (DATA_UV[0], NAMES, 200, "uV", r"expected real numbers \[C T\]"),
        (DATA_UV * 1j, NAMES, 200, "uV", "expected real numbers"),
        (DATA_UV[:, :0], NAMES, 200, "uV", "no data"),
        (DATA_UV[3:], NAMES[3:], 200, "uV", "no EEG channels"),
        (DATA_UV, NAMES, 0, "uV", "rate of 10 Hz to 100 kHz"),
    ],
)
def test_an_array_that_does_not_fit(data, names, hz, unit, message):
    with pytest.raises(UserError, match=message):
        from_array(data, names, hz, unit=unit)


def test_raw_is_read_as_its_file_is(tmp_path):
    raw = raw_of()
    raw.info["bads"] = ["C3"]
    recording = from_mne(raw, name="sub-1_a")
    np.testing.assert_allclose(recording.data_uv, DATA_UV[:3], atol=1e-4)
    assert (recording.marked_bad, recording.events) == (["C3"], [Event(2.0, 0.5, "go", 400)])
    path = write_edf(tmp_path / "sub-1_b.edf", DATA_UV, NAMES)
    with mne.utils.use_log_level("error"):
        again = from_mne(mne.io.read_raw_edf(path))
    np.testing.assert_allclose(again.data_uv, read_recording(path).data_uv, atol=1e-3)
    assert again.path == path


def test_epochs_are_segments_with_their_labels():
    recording = from_mne(epochs_of([200, 600, 1200]), subject="7")
    assert recording.segments == [Segment(0, 301, 0.0), Segment(301, 602, 2.0), Segment(602, 903, 5.0)]
    assert recording.events == [
        Event(0.0, 1.505, "left", 0), Event(2.0, 1.505, "right", 301), Event(5.0, 1.505, "left", 602),
    ]  # fmt: skip
    np.testing.assert_allclose(recording.data_uv[:, :301], DATA_UV[:3, 100:401], atol=1e-4)
    assert (recording.format, codes(recording), recording.subject) == ("Epochs", ["gaps"], "7")


def test_epochs_that_overlap_are_said():
    recording = from_mne(epochs_of([200, 300, 800]))
    assert codes(recording) == ["gaps", "overlapping_epochs"]
    assert recording.notes[1].message == (
        "1 epochs begin before the one in front ends: signal is doubled, "
        "and times count as if one followed on the other"
    )
    assert recording.segments == [Segment(0, 301, 0.0), Segment(301, 602, 1.505), Segment(602, 903, 3.01)]


def test_a_file_of_epochs_is_read_as_they_are(tmp_path):
    path = tmp_path / "sub-1_task-epo.fif"
    epochs_of([200, 600, 1200]).save(path, fmt="double", verbose="error")
    recording, held = read_recording(path), from_mne(epochs_of([200, 600, 1200]))
    np.testing.assert_allclose(recording.data_uv, held.data_uv, atol=1e-4)
    assert (recording.events, recording.segments) == (held.events, held.segments)
    assert (recording.format, codes(recording)) == ("Epochs", ["gaps"])
    np.testing.assert_allclose(read_recording(path, unit="mV").data_uv, held.data_uv / 1e3, atol=1e-6)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(UserError, match="expected mne's Epochs, but "):
        read_recording(path)


def test_what_mne_warns_of_a_file_of_epochs_is_noted(tmp_path, monkeypatch):
    path = tmp_path / "sub-1_task-epo.fif"
    epochs_of([200, 600]).save(path, verbose="error")
    read = mne.read_epochs

    def warns(*arguments, **keywords):
        mne.utils.warn(f"{path} is odd")
        return read(*arguments, **keywords)

    monkeypatch.setattr(mne, "read_epochs", warns)
    monkeypatch.setattr("bothways.eeg.objects.take_rows", None)  # a copy of all, which is not needed
    recording = read_recording(path)
    assert [(note.code, note.message) for note in recording.notes][1:] == [("reader", "sub-1_task-epo.fif is odd")]


def test_each_of_two_epochs_that_overlap_keeps_its_label(tmp_path):
    store = prepare([from_mne(epochs_of([200, 300, 800]), name="sub-1_e")], tmp_path / "store")
    windows = cut_windows(store, WindowConfig(window_s=1.5, stride_s=1.5), labels_from_events(store))
    assert [(int(start), windows.classes[label]) for start, label in zip(windows.start, windows.label)] == [
        (0, "left"), (301, "right"), (602, "left"),
    ]  # fmt: skip


def test_epochs_of_a_raw_of_another_rate():
    """mne keeps the events at the raw's samples: 200 and 1000 of 200 Hz are 4 s apart at 100 Hz too."""
    recording = from_mne(epochs_of([200, 1000]).resample(100.0, verbose="error"))
    assert (recording.sfreq_hz, [segment.onset_s for segment in recording.segments]) == (100.0, [0.0, 4.0])
    assert recording.notes[-1].message == "epochs were brought from 200 to 100 Hz before"


@pytest.mark.parametrize("event", [(1, 0.5), (1, "long", "go"), 7, (None, 1, "go"), (1, -1, "go"), (np.nan, 1, "go")])
def test_events_that_are_none(event):
    with pytest.raises(UserError, match=r"^array: events: expected \(onset_s, duration_s, label\)") as problem:
        from_array(DATA_UV, NAMES, 200, unit="uV", events=[(0, 1, "fine"), event])
    assert f"got {event!r}; correct it" in str(problem.value)


def test_what_is_no_recording():
    with pytest.raises(UserError, match="expected an mne Raw or Epochs, got str"):
        from_mne("a.fif")
    with pytest.raises(UserError, match="expected data sets with `raw` or `windows`, member 0 is str"):
        from_braindecode(SimpleNamespace(datasets=["x"]))


def test_braindecode_data_sets():
    continuous = SimpleNamespace(raw=raw_of(), description={"subject": 3, "session": "b", "run": "0"})
    cut = SimpleNamespace(windows=epochs_of([200, 600]), raw=None, description={"subject": 4})
    metadata = {
        "i_start_in_trial": [0, 400],
        "i_stop_in_trial": [400, 800],
        "target": [0, 1],
        "i_window_in_trial": [0, 0],
    }
    table = SimpleNamespace(raw=raw_of(), metadata=metadata, description=None)
    first, second, third = from_braindecode(SimpleNamespace(datasets=[continuous, cut, table]))
    assert (first.subject, first.session, first.path.name) == ("3", "b", "sub-3_ses-b_run-0_0000")
    assert [event.label for event in first.events] == ["go"]
    assert (second.subject, [event.label for event in second.events]) == ("4", ["left", "right"])
    assert third.events == [Event(0.0, 2.0, "0", 0), Event(2.0, 2.0, "1", 400)]
    assert codes(third) == ["events_of_windows"]
    table.metadata = metadata | {"target": np.array([-1, -1])}
    (untargeted,) = from_braindecode(table)
    assert ([event.label for event in untargeted.events], codes(untargeted)) == (["go"], ["windows_left_out"])
    assert [r.path.name for r in from_braindecode(continuous)] == ["sub-3_ses-b_run-0_0000"]


def test_recordings_in_memory_in_place_of_paths(tmp_path):
    path = write_edf(tmp_path / "sub-1_a.edf", DATA_UV, NAMES)
    array = from_array(noise_uv(4, seed=1), NAMES, 200, unit="uV", name="sub-1_a.edf", subject="9")
    unnamed = from_array(noise_uv(4, seed=2), NAMES, 200, unit="uV")
    epochs = from_mne(epochs_of([200, 600]), name="sub-2_ses-x_epochs")
    given = [path, array, unnamed, epochs, array]
    found = scan(given)
    assert [(one.file, one.subject, one.session, bool(one.note)) for one in found] == [
        ("sub-1_a.edf", "1", "", False), ("sub-1_a.edf#2", "9", "", False), ("array", "array", "", True),
        ("sub-2_ses-x_epochs", "2", "x", False),
    ]  # fmt: skip
    assert load(found[1]) is array
    assert load(found[0]).ch_names == ["Fp1", "Fp2", "C3"]


def test_what_a_masked_array_masks_is_missing():
    masked = np.ma.MaskedArray(DATA_UV, np.zeros(DATA_UV.shape, bool))
    masked.mask[0, 10:20] = True
    masked.mask[1] = True
    data_uv = from_array(masked, NAMES, 200, unit="uV").data_uv
    assert np.isnan(data_uv[0]).nonzero()[0].tolist() == list(range(10, 20))
    assert np.isnan(data_uv).sum(1).tolist() == [10, 1600, 0]
    whole = np.ma.MaskedArray(np.ones((2, 400), int), np.eye(2, 400, dtype=bool))
    assert np.isnan(from_array(whole, ["Fp1", "C3"], 200, unit="uV").data_uv).sum() == 2


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"ch_names": 200, "sfreq_hz": NAMES}, r"ch_names: expected a name for each channel, .*, got 200"),
        ({"ch_names": "Fp1"}, "ch_names: expected a name for each channel, .*, got 'Fp1'"),
        ({"ch_names": [1, 2, 3, 4]}, r"ch_names: .*, got \[1, 2, 3, 4\]"),
        ({"sfreq_hz": NAMES}, "sfreq_hz: expected a rate in Hz, got"),
        ({"sfreq_hz": None}, "sfreq_hz: expected a rate in Hz, got None"),
        ({"unit": None}, "unit: expected one of V, mV, uV, nV, got None"),
        ({"data": [[1.0, 2.0], [1.0]]}, "expected an array"),
        ({"data": None}, "expected real numbers"),
        ({"subject": 1}, "subject: expected text, got int"),
        ({"name": 1}, "name: expected text, got int"),
        ({"events": 1}, r"events: expected a list of \(onset_s, duration_s, label\), got int"),
    ],
)
def test_arguments_of_the_wrong_kind(wrong, message):
    given = {"data": DATA_UV, "ch_names": NAMES, "sfreq_hz": 200, "unit": "uV"} | wrong
    with pytest.raises(UserError, match=message):
        inspect.unwrap(from_array)(**given)  # the tests check all types


def test_unnamed_recordings_are_people_of_their_own():
    arrays = [from_array(noise_uv(seed=seed), NAMES, 200, unit="uV") for seed in range(3)]
    found = scan([*arrays, arrays[0]])
    assert [(one.file, one.subject) for one in found] == [(f"array-{n}", f"array-{n}") for n in (1, 2, 3)]
    assert "'array-2' taken as a person of its own" in found[1].note
    same = [from_array(array.data_uv, NAMES[:3], 200, unit="uV", name="rest") for array in arrays]
    assert [(one.file, one.subject) for one in scan(same)] == [(n, n) for n in ("rest", "rest#2", "rest#3")]
    assert [one.subject for one in scan([from_mne(raw_of()), from_mne(raw_of())])] == ["mne-1", "mne-2"]


def test_one_recording_is_a_list_of_one(tmp_path):
    path = write_edf(tmp_path / "sub-1_a.edf", DATA_UV, NAMES)
    assert [run.check(one)["recordings"][0]["file"] for one in (path, str(path))] == ["sub-1_a.edf"] * 2
    assert run.check(from_array(DATA_UV, NAMES, 200, unit="uV"))["recordings"][0]["file"] == "array"
    assert run.prepare(str(path), tmp_path / "store")["recordings"] == 1

"""A copy of a signal is found in whatever scale, precision, order of channels or cut; nothing else is."""

import numpy as np
import pytest
from scipy.signal import resample_poly

from bothways.eeg import from_array, landmarks, prepare, read_recording
from bothways.evaluation import repeats
from people import alpha_uv

NAMES = ["Fp1", "Cz", "O1", "O2"]


@pytest.fixture(scope="module")
def signal() -> np.ndarray:
    return alpha_uv("open", 0, seconds=60)


def found(tmp_path, one, other, names=NAMES):
    """The repeats of two recordings of two people."""
    recordings = [
        from_array(data, list(given), 200.0, unit="uV", name=name, subject=name)
        for name, data, given in (("a", one, NAMES), ("b", other, names))
    ]
    store = prepare(recordings, tmp_path / "store", overwrite=True)
    return repeats([{"landmarks": landmarks(store, i), "sfreq_hz": 200.0} for i in (0, 1)], np.array([0, 1]))


@pytest.mark.parametrize(
    ("copy", "start_s", "shift_s"),
    [
        (lambda x: x.copy(), 0, 0),
        (lambda x: -3.3 * x, 0, 0),
        (lambda x: np.rint(x / 0.5) * 0.5, 0, 0),
        (lambda x: x[:, 4000:8000], 20, 20),
        (lambda x: x[:, 4137:8000], 20, 20.685),
        (lambda x: x[:, 6000:], 30, 30),
    ],
)
def test_copies_and_cuts_of_a_signal(signal, tmp_path, copy, start_s, shift_s) -> None:
    other = copy(signal)
    (repeat,) = found(tmp_path, signal, other)
    assert (repeat.one, repeat.other) == (0, 1)
    assert repeat.start_s - repeat.other_start_s == pytest.approx(shift_s, abs=0.006)
    assert start_s <= repeat.start_s < start_s + 5
    assert repeat.stop_s == pytest.approx(start_s + other.shape[1] / 200, abs=6)


def test_halves_that_overlap(signal, tmp_path) -> None:
    (repeat,) = found(tmp_path, signal[:, :8000], signal[:, 4000:])
    assert repeat.start_s >= 20
    assert repeat.stop_s <= 40
    assert found(tmp_path, signal[:, :6000], signal[:, 6000:]) == []


def test_channels_renamed_reordered_or_left_out(signal, tmp_path) -> None:
    assert len(found(tmp_path, signal, signal[::-1], ["X1", "X2", "X3", "X4"])) == 1
    assert len(found(tmp_path, signal, signal[1:2, 2000:], ["Cz"])) == 1


def test_cuts_of_real_eeg_at_any_start_rate_and_polarity(example_data, tmp_path) -> None:
    """Ten seconds of two channels are enough, wherever their samples lie between the stored ones."""
    file = example_data / "sub-07_task.edf"
    whole = read_recording(file)
    fp = [whole.ch_names.index(name) for name in ("Fp1", "Fp2")]
    finer = resample_poly(whole.data_uv.astype(np.float64), 125, 64, axis=1)  # 128 -> 250 Hz
    cuts = [
        (whole.data_uv[:, 1293:2573], 128.0),
        (whole.data_uv[:, 3001:4281], 128.0),
        (-0.37 * whole.data_uv[fp, 1293:2573], 128.0),
        (finer[:, 6001:8501], 250.0),
        (-finer[fp, 3333:5833], 250.0),
        (resample_poly(finer[:, 6001:8501], 2, 5, axis=1), 100.0),
    ]
    others = [
        from_array(data, whole.ch_names if len(data) > 2 else ["Fp1", "Fp2"], rate, unit="uV", name=f"{i}", subject="b")
        for i, (data, rate) in enumerate(cuts)
    ]
    store = prepare([file, *others], tmp_path / "store")
    traits = [{"landmarks": landmarks(store, i), "sfreq_hz": 200.0} for i in range(len(store.recordings))]
    same = repeats(traits, np.array([0] + [1] * len(others)))
    starts_s = {store.recordings[r.other].file: r.start_s - r.other_start_s for r in same}
    expected_s = [1293 / 128, 3001 / 128, 1293 / 128, 6001 / 250, 3333 / 250, 6001 / 250]
    assert [starts_s[recording.file] for recording in store.recordings[1:]] == pytest.approx(expected_s, abs=0.011)


def test_other_signals_and_what_repeats_itself_share_nothing(signal, tmp_path) -> None:
    assert found(tmp_path, signal, alpha_uv("open", 1, seconds=60)) == []
    t = np.arange(12000) / 200
    tone = np.tile(50 * np.sin(2 * np.pi * 10.3 * t) + 5 * np.sin(2 * np.pi * 50 * t), (4, 1))
    triangle = np.tile(100 * np.abs(7.3 * t % 2 - 1), (4, 1))
    assert found(tmp_path, tone, tone[:, 1000:]) == []
    assert found(tmp_path, triangle, triangle[:, 200:]) == []


def test_a_short_signal_has_few(tmp_path) -> None:
    noise = from_array(alpha_uv("open", 0, 2, seconds=2), ["Cz", "O1"], 200.0, unit="uV", name="b", subject="b")
    store = prepare([noise], tmp_path / "store")
    marks, at = landmarks(store, 0)
    assert marks.shape == at.shape
    assert marks.dtype == at.dtype == np.int64
    assert len(marks) < 10


def test_real_people_share_no_landmark(example_data, tmp_path) -> None:
    store = prepare([example_data], tmp_path / "store")
    marks = [landmarks(store, i) for i in range(len(store.recordings))]
    assert sum(len(found) for found, _ in marks) > 30000
    everything = np.concatenate([np.unique(found) for found, _ in marks])
    assert len(np.unique(everything)) == len(everything)

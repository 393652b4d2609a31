"""Windows averaged on a grid, by hand; the laws are in tests/property/test_events.py."""

import tracemalloc

import numpy as np
import pytest

<<<<<<<< HEAD:tests/unit/test_eeg_moments.py
from bothways.config import WindowConfig
from bothways.eeg import Moments, Segment, cut_windows
from bothways.errors import UserError
from stores import a_store, entry
========
from bothways import eeg
from bothways.config import LabelConfig, PatchConfig, WindowConfig
from bothways.eeg.tracks import moment_labels, one_event
from bothways.heads import real_moments
from models import FORMS
from recordings import noise_uv, write_edf
from stores import SFREQ_HZ, a_store, entry
>>>>>>>> d6403aa (Fine-tuning of moments and of one event):tests/unit/test_eeg_tracks.py

GAP = [Segment(0, 2000, 0.0), Segment(2000, 3500, 60.0)]  # 20 s, then 15 s from 60 s on, at 100 Hz


def p(*values: float) -> np.ndarray:
    return np.array([[1 - value, value] for value in values])


def test_overlapping_windows_are_averaged() -> None:
    moments = Moments(GAP[:1], 100.0, ["rest", "task"], 5.0)
    moments.add(np.array([0, 500]), 1000, p(0.25, 0.75))
    trace = moments.trace()
    np.testing.assert_array_equal(trace.onset_s, [0, 5, 10, 15])
    np.testing.assert_array_equal(trace.probabilities[:, 1], [0.25, 0.5, 0.75, np.nan])
    np.testing.assert_array_equal(trace.covered, [True, True, True, False])
    assert (trace.classes, trace.step_s, trace.recorded_s, trace.uncovered_s) == (("rest", "task"), 5.0, 20.0, 5.0)


def test_a_window_counts_by_its_share_of_a_moment() -> None:
    moments = Moments(GAP[:1], 100.0, ["rest", "task"], 10.0)
    moments.add(np.array([0, 250]), np.array([1000, 500]), p(0.2, 0.8))
    np.testing.assert_allclose(moments.trace().probabilities[:, 1], [(0.2 * 10 + 0.8 * 5) / 15, np.nan])


def test_the_mean_of_one_number_is_that_number() -> None:
    for value in np.arange(0.05, 1, 0.05).round(2).tolist():
        moments = Moments(GAP[:1], 100.0, ["rest", "task"], 0.07)
        moments.add(np.arange(0, 1000, 13), 1000, p(*[value] * 77))
        trace = moments.trace()
        assert set(trace.probabilities[trace.covered, 1]) == {value}


def test_each_segment_has_its_own_grid_in_true_time() -> None:
    moments = Moments(GAP, 100.0, ["rest", "task"], 8.0)
    moments.add(np.array([1000, 2000]), 1000, p(0.0, 1.0))
    trace = moments.trace()
    np.testing.assert_array_equal(trace.onset_s, [0, 8, 16, 60, 68])
    np.testing.assert_array_equal(trace.duration_s, [8, 8, 4, 8, 7])
    np.testing.assert_array_equal(trace.segment, [0, 0, 0, 1, 1])
    np.testing.assert_array_equal(trace.probabilities[:, 1], [np.nan, 0, 0, 1, 1])


def test_patches_are_windows_and_padding_says_nothing() -> None:
    moments = Moments(GAP[:1], 100.0, ["rest", "task"], 0.5)
    patches = np.stack([p(0.1, 0.2, 0.3), p(0.5, 0.6, 0.7)])
    mask = np.array([[True, True, True], [True, False, True]])
    moments.add_patches(np.array([0, 500]), 250, 100, patches, mask)  # the last patch is half a second
    told = moments.trace().probabilities[:, 1]
    nan = np.nan
    np.testing.assert_allclose(told[:9], [0.1, 0.1, 0.2, 0.2, 0.3, nan, nan, nan, nan])
    np.testing.assert_allclose(told[9:16], [nan, 0.5, 0.5, nan, nan, 0.7, nan])
    assert np.isnan(told[16:]).all()


def test_the_step_is_whole_samples() -> None:
    assert Moments(GAP, 100.0, ["a"], 0.014).trace().step_s == 0.01
    with pytest.raises(UserError, match=r"step_s: expected a sample \(0.01 s\) or more, got 0.004"):
        Moments(GAP, 100.0, ["a"], 0.004)


@pytest.mark.parametrize(
    ("start", "values", "message"),
    [
        (1500, p(0.5), "inside one segment, got samples 1500 to 2500"),
        (-1, p(0.5), "inside one segment, got samples -1 to 999"),
        (2600, p(0.5), "inside one segment, got samples 2600 to 3600"),
        (0, p(np.nan), "probabilities of 0 to 1"),
        (0, p(1.5), "probabilities of 0 to 1"),
        (0, np.ones((1, 3)), r"expected \[1 2\], got \[1, 3\]"),
    ],
)
def test_what_is_no_window_is_refused(start, values, message) -> None:
    with pytest.raises(ValueError, match=message):
        Moments(GAP, 100.0, ["rest", "task"], 1.0).add(np.array([start]), 1000, values)


<<<<<<<< HEAD:tests/unit/test_eeg_moments.py
def test_patches_lie_in_their_window() -> None:
    with pytest.raises(ValueError, match="patches inside 200 samples, got 3 of 100"):
        Moments(GAP, 100.0, ["a"], 1.0).add_patches(np.array([0]), 200, 100, np.ones((1, 3, 1)))
========
def test_batches_of_moments_and_of_events(tmp_path: Path) -> None:
    write_edf(tmp_path / "data" / "sub-1.edf", noise_uv(2, 4000, seed=1), ["C3", "C4"])
    store = eeg.prepare([tmp_path / "data"], tmp_path / "store")
    windows = eeg.cut_windows(store, FOUR_S, EVENTS[:1], rules=LabelConfig(background="rest"), by_moment=True)
    options = {"background": "rest", "patches": PatchConfig(patch_s=1.0), "jitter_s": 3.0}
    source = eeg.WindowSource(store, windows, task="moment", **options)
    assert source.labels().tolist() == [[0, 0, 0, 0], [0, 1, 1, 1], [1, 1, 1, 0], [0] * 4, [0] * 4]
    ids, epoch = np.arange(5), np.full(5, 7)
    shifted = source.batch(ids, epoch)
    assert shifted["position_labels"][:, 0].tolist() == [-100] * 5
    starts = [source._start(i, 7) / SFREQ_HZ for i in range(5)]
    assert starts != [0, 4, 8, 12, 16]
    for start, labels in zip(starts, shifted["position_labels"][:, 1:].tolist()):
        inside = [min(start + i + 1, 11) - max(start + i, 5) for i in range(4)]
        assert labels == [int(seconds > 0.5) for seconds in inside]
    source = eeg.WindowSource(store, windows, PatchConfig(patch_s=1.0), task="event", background="rest")
    assert source.labels().tolist() == [[0, 0], [-100, -100], [-100, -100], [0, 0], [0, 0]]
    assert source.batch(ids)["span_labels"].tolist() == source.labels().tolist()
>>>>>>>> d6403aa (Fine-tuning of moments and of one event):tests/unit/test_eeg_tracks.py


def test_no_windows_leave_everything_uncovered() -> None:
    moments = Moments(GAP, 100.0, ["rest", "task"], 1.0)
    moments.add(np.array([], dtype=int), 1000, np.zeros((0, 2)))
    assert moments.trace().uncovered_s == 35.0


def test_it_takes_what_cut_windows_gives() -> None:
    store = a_store(entry("a.edf", pieces_s=[(0.0, 25.0), (100.0, 12.0)]))
    windows = cut_windows(store, WindowConfig(window_s=10.0, stride_s=5.0))
    recording = store.recordings[0]
    moments = Moments(recording.segments, store.signal.sfreq_hz, ["rest", "task"], 1.0)
    moments.add(windows.start, windows.window_samples, np.full((len(windows), 2), 0.5))
    trace = moments.trace()
    assert (trace.recorded_s, trace.uncovered_s) == (37.0, 2.0)
    assert np.isnan(trace.probabilities[trace.onset_s == 110.0]).all()


def test_a_day_of_windows_is_never_held() -> None:
    n, batch = 86_400, 4096
    moments = Moments([Segment(0, n * 200, 0.0)], 200.0, ["rest", "task"], 1.0)
    tracemalloc.start()
    for at in range(0, n - 60, batch):
        starts = np.arange(at, min(at + batch, n - 60)) * 200
        moments.add(starts, 60 * 200, np.full((len(starts), 2), 0.5))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200e6
    assert moments.trace().uncovered_s == 1.0

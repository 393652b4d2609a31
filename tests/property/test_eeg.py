import itertools
import string

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bothways.config import WindowConfig
from bothways.eeg import Span, cut_windows, parse_label, prepare
from bothways.eeg.channels import scalp_name, unique_names
from bothways.eeg.preprocess import _bridged
from bothways.eeg.quality import median
from bothways.eeg.store import STEP, from_int16, to_int16
from recordings import noise_uv, write_edf

ELECTRODES = ["Fp1", "T7", "C3", "Cz", "AFF5h", "PO10", "Iz", "FC5"]


@given(st.text(string.ascii_letters + string.digits + " -.:_/$ç", max_size=16))
def test_reading_a_name_twice_changes_nothing(label):
    once = parse_label(label)
    assert parse_label(once.name).name == once.name


@given(
    st.sampled_from(ELECTRODES), st.sampled_from(["", "EEG ", "eeg-", "POL "]),
    st.sampled_from(["", "-REF", "-LE", "-A1", ":M2", ".", "..", "-Ref", " "]), st.booleans(),
)  # fmt: skip
def test_prefix_suffix_and_case_do_not_matter(name, prefix, suffix, upper):
    label = prefix + name + suffix
    assert parse_label(label.upper() if upper else label).anode == name == scalp_name(name.lower())


@given(st.lists(st.sampled_from(["a", "b", "a#2", "b#3"]), max_size=8))
def test_names_become_unique(names):
    unique, _ = unique_names(names)
    assert len(set(unique)) == len(names)


@given(
    arrays(np.float32, (2, 50), elements=st.floats(-15, 15, width=32)),
    st.floats(-1000, 1000), st.floats(0.01, 1000),
)  # fmt: skip
def test_the_store_loses_at_most_half_a_step(units, median, scale):
    median_uv, scale_uv = np.full(2, median, np.float32), np.full(2, scale, np.float32)
    data_uv = units * scale_uv[:, None] + median_uv[:, None]
    exact = (data_uv.astype(float) - median_uv[:, None]) / scale_uv[:, None]
    back = from_int16(to_int16(data_uv, median_uv, scale_uv))
    assert np.abs(back - np.clip(exact, -15, 15)).max() <= STEP / 2 * 1.01


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for i in range(3):
        onsets_s = [*range(7), *range(10, 10 + 5 + i), *range(40, 46)]
        write_edf(
            folder / f"sub-{i}.edf",
            noise_uv(2, 200 * len(onsets_s), seed=i),
            ["C3", "C4"],
            plus="D",
            onsets_s=onsets_s,
        )
    return prepare([folder], tmp_path_factory.mktemp("stores") / "store")


@given(
    st.floats(0.1, 7), st.floats(0.1, 9),
    st.lists(st.tuples(st.integers(0, 2), st.floats(-5, 50), st.floats(0.1, 30)), max_size=4),
)  # fmt: skip
def test_windows_lie_in_one_segment_and_in_one_label(store, window_s, stride_s, stretches):
    rows = [Span(f"sub-{i}.edf", onset_s, duration_s, "x") for i, onset_s, duration_s in stretches]
    windows = cut_windows(store, WindowConfig(window_s=window_s, stride_s=stride_s), rows or None)
    for recording, start, label, low, high in zip(
        windows.recording, windows.start, windows.label, windows.earliest, windows.latest
    ):
        stop = start + windows.window_samples
        entry = store.recordings[recording]
        (segment,) = [s for s in entry.segments if s.start <= start and stop <= s.stop]
        assert segment.start <= low <= start <= high <= segment.stop - windows.window_samples
        begin_s = segment.onset_s + (start - segment.start) / 200
        end_s = begin_s + windows.window_samples / 200
        rounding_s = 0.003
        own = [row for row in rows if row.file == entry.file]
        overlap = any(
            row.onset_s + rounding_s < end_s and begin_s < row.onset_s + row.duration_s - rounding_s for row in own
        )
        assert overlap == (label == 0)


def test_the_order_of_reading_does_not_matter(store):
    places = list(itertools.product(range(3), (0, 100, 2000), (1, 400)))
    forward = {place: store.read(*place) for place in places}
    for place in reversed(places):
        np.testing.assert_array_equal(store.read(*place), forward[place])


@given(
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=40), st.integers(1, 120), st.integers(0, 2**32 - 1)
)
def test_the_quick_median_is_numpys(few: list[float], times: int, seed: int) -> None:
    values = np.random.default_rng(seed).permutation(np.repeat(np.float32(few), times))
    assert median(values) == np.median(values)


@given(arrays(bool, st.integers(1, 60)), st.integers(0, 2**32 - 1))
def test_a_hole_is_bridged_by_a_straight_line_from_what_is_around_it(hole: np.ndarray, seed: int) -> None:
    data_uv = np.random.default_rng(seed).normal(size=len(hole)).astype(np.float32)
    there = np.flatnonzero(~hole)
    line = np.interp(np.arange(len(hole)), there, data_uv[there]) if len(there) else np.zeros(len(hole))
    np.testing.assert_allclose(_bridged(data_uv, hole), np.where(hole, line, data_uv), rtol=1e-6, atol=1e-6)

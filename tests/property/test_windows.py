"""Windows on a grid against counting sample by sample."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bothways.config import LabelConfig, WindowConfig
from bothways.eeg import Span, cut_windows
from stores import SFREQ_HZ, a_store, entry

PIECES_S = [(0.0, 7.0), (10.0, 3.0), (40.0, 6.0)]
NAMES = ("a", "b", "c")


@given(
    st.floats(0.1, 7), st.floats(0.1, 9), st.floats(0.05, 0.99), st.permutations(NAMES),
    st.sampled_from([None, "bckg"]),
    st.lists(st.tuples(st.sampled_from(NAMES), st.integers(-5, 50), st.integers(1, 30)), min_size=1, max_size=6),
)  # fmt: skip
def test_each_window_has_the_label_that_covers_its_share(window_s, stride_s, share, priority, background, stretches):
    """Labels in whole seconds and a priority over all of them, so that a painted recording is the truth."""
    recording = entry(pieces_s=PIECES_S)
    rows = [Span("sub-1.edf", float(onset_s), float(length_s), name) for name, onset_s, length_s in stretches]
    windows = cut_windows(
        a_store(recording), WindowConfig(window_s=window_s, stride_s=stride_s, min_overlap=share), rows,
        rules=LabelConfig(priority=priority, background=background),
    )  # fmt: skip
    painted = np.full(recording.n_samples, background or "", dtype="U4")
    true_s = np.concatenate([onset_s + np.arange(length_s * SFREQ_HZ) / SFREQ_HZ for onset_s, length_s in PIECES_S])
    for name in reversed(priority):
        for label, onset_s, length_s in stretches:
            if label == name:
                painted[(true_s >= onset_s) & (true_s < onset_s + length_s)] = name
    order = [*priority, background]
    for start, label, low, high in zip(windows.start, windows.label, windows.earliest, windows.latest):
        assert [s for s in recording.segments if s.start <= low <= start <= high <= s.stop - windows.window_samples]
        inside = painted[start : start + windows.window_samples]
        fits = [name for name in order if name and (inside == name).mean() >= share - 1e-9]
        assert (windows.classes[label] if label >= 0 else None) == (fits[0] if fits else None)
        if low < high:
            assert len(set(painted[low : high + windows.window_samples])) == 1

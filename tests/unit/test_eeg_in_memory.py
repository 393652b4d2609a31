"""Recordings in memory go where files go: into a check and into a store."""

import numpy as np

from bothways.config import WindowConfig
from bothways.eeg import check, cut_windows, from_array, labels_from_events, prepare
from recordings import noise_uv, write_edf

NAMES = ["Fp1", "Fp2", "C3", "ECG"]


def test_recordings_in_memory_in_place_of_paths(tmp_path):
    path = write_edf(tmp_path / "sub-1_a.edf", noise_uv(), NAMES)
    pieces = noise_uv(4, 1200, seed=1).reshape(4, 3, 400).swapaxes(0, 1)
    events = [(0, 2, "left"), (2, 2, "right")]
    given = [
        path,
        from_array(pieces, NAMES, 200, unit="uV", name="sub-1_a.edf", subject="9", events=events),
        from_array(noise_uv(seed=2) * 1e-6, NAMES, 200, unit="V", name="sub-2_ses-x_b"),
    ]
    store = prepare(given, tmp_path / "store")
    assert [(r.file, r.subject, r.session) for r in store.recordings] == [
        ("sub-1_a.edf", "1", ""), ("sub-1_a.edf#2", "9", ""), ("sub-2_ses-x_b", "2", "x"),
    ]  # fmt: skip
    assert [entry["file"] for entry in check(given)["recordings"]] == [r.file for r in store.recordings]
    windows = cut_windows(store, WindowConfig(window_s=1, stride_s=1), labels_from_events(store))
    assert windows.select(windows.label >= 0).counts()["classes"] == {"left": 2, "right": 2}
    assert np.isfinite(store.read(2)[:, 200:-200]).all()

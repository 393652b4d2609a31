"""A jump there and back is no signal: a recorder's sign for what was lost, a pulse; a step or a slow wave is."""

import numpy as np
import pytest

from bothways.config import SignalConfig
from bothways.eeg import assess, from_array
from bothways.eeg.preprocess import preprocess
from bothways.eeg.quality import jumped_samples
from recordings import noise_uv

NAMES = ["Fp1", "Fp2", "C3", "C4"]


def test_a_sign_for_missing_data_is_missing_and_nothing_else_changes(tmp_path):
    clean = noise_uv(4, 200 * 30)
    damaged = clean.copy()
    damaged[2, 3000:3011] = -9999
    damaged[3, 1000] = 6000
    recordings = [from_array(data, NAMES, 200.0, unit="uV", name=name) for data, name in ((clean, "a"), (damaged, "b"))]
    quality, bad, notes = assess(recordings[1])
    assert bad == []
    assert [note.message for note in notes if note.code == "jumps"] == [
        "samples between a jump of over 1000 uV and the jump back are taken as missing: C3 11, C4 1"
    ]
    assert [quality[name]["missing"] for name in NAMES] == [0, 0, round(11 / 6000, 4), round(1 / 6000, 4)]
    one, two = (preprocess(recording, SignalConfig(), []).data_uv[:] for recording in recordings)
    missing = np.flatnonzero(np.isnan(two[2]))
    assert (missing[0], missing[-1]) == (2990, 3020)  # with 50 ms on both sides
    elsewhere = ~np.isnan(two)
    assert np.abs(one - two)[elsewhere].max() < 25
    assert np.abs(one - two)[2, :2800].max() < 1


@pytest.mark.parametrize("what", ["a step that stays", "a slow wave", "a large unit"])
def test_what_is_no_jump_and_back(tmp_path, what):
    data = noise_uv(4, 200 * 30)
    if what == "a step that stays":
        data[1, 3000:] += 5000
    elif what == "a slow wave":
        data[1] += 8000 * np.sin(np.arange(6000) / 200)
    else:
        data *= 1000
    assert all(len(jumped_samples(np.float32(row), 200.0)) == 0 for row in data)


def test_edges():
    square = np.float32(np.where(np.arange(6000) // 20 % 2, 3000, 0))
    assert len(jumped_samples(square, 200.0)) == 0  # a signal, if a strange one
    assert len(jumped_samples(np.full(100, np.nan, np.float32), 200.0)) == 0
    assert len(jumped_samples(np.zeros(2, np.float32), 200.0)) == 0
    there = np.zeros(400, np.float32)
    there[100:150] = 2000
    assert jumped_samples(there, 200.0).tolist() == list(range(100, 150))
    there[150] = 2000  # longer than a quarter of a second
    assert len(jumped_samples(there, 200.0)) == 0

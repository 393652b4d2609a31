"""Views of a store: fewer channels, differences of neighbours, another unit."""

from dataclasses import replace

import numpy as np
import pytest

from bothways import eeg
from bothways.errors import UserError
from recordings import write_edf

NAMES = ("Fp1", "Cz", "O1", "F7", "O2")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> eeg.Store:
    """One person, five channels of different sizes."""
    top = tmp_path_factory.mktemp("montages")
    draw = np.random.default_rng(0)
    data_uv = np.rint(draw.normal(size=(5, 6000)) * np.array([[10], [20], [30], [15], [12]]))
    write_edf(top / "data" / "sub-1" / "sub-1_rest.edf", data_uv, NAMES, sfreq_hz=200)
    return eeg.prepare([top / "data"], top / "store")


def test_the_first_of_the_10_20_system() -> None:
    assert eeg.ten_twenty(eeg.TEN_TWENTY[::-1], 4) == ["C3", "C4", "O1", "O2"]
    assert eeg.ten_twenty(["Fz", "O2", "AF7", "Fp1"], 2) == ["O2", "Fp1"]
    assert eeg.ten_twenty(["AF7"], 19) == []
    assert len(set(eeg.TEN_TWENTY)) == 19


def test_what_is_hidden_is_bad(store: eeg.Store) -> None:
    entry = replace(store.recordings[0], bad_channels=["O1"])
    marked = eeg.Store(store.path, store.head, store.signal, [entry])
    shown = eeg.showing(marked, ["O1", "O2"])
    assert shown.recordings[0].bad_channels == ["Fp1", "Cz", "O1", "F7"]
    assert np.array_equal(shown.read_steps(0), store.read_steps(0))
    assert marked.recordings[0].bad_channels == ["O1"]


def test_differences_of_neighbours(store: eeg.Store) -> None:
    entry = store.recordings[0]
    bipolar = eeg.BipolarStore(store, [0])
    made = bipolar.recordings[0]
    # The lines: Fp1 F7 – – O1; Fp1 – – – O1; – Cz –; O2 alone, twice.
    assert made.ch_names == ["Fp1-F7", "F7-O1", "Fp1-O1"]
    uv = store.read(0) * entry.scale_uv[:, None] + entry.median_uv[:, None]
    back_uv = bipolar.read(0) * made.scale_uv[:, None] + made.median_uv[:, None]
    for row, (a, b) in zip(back_uv, ((0, 3), (3, 2), (0, 2))):
        np.testing.assert_allclose(row, uv[a] - uv[b], atol=0.03)  # a step of the store is 0.02 uV here
    np.testing.assert_array_equal(made.positions[0], entry.positions[[0, 3], 0])
    assert made.bad_channels == []
    assert np.array_equal(bipolar.read_steps(0, 100, 50), bipolar.read_steps(0)[:, 100:150])


def test_a_difference_with_a_bad_electrode_is_bad(store: eeg.Store) -> None:
    marked = eeg.Store(store.path, store.head, store.signal, [replace(store.recordings[0], bad_channels=["F7"])])
    assert eeg.BipolarStore(marked, [0]).recordings[0].bad_channels == ["Fp1-F7", "F7-O1"]


def test_differences_have_no_differences(store: eeg.Store) -> None:
    with pytest.raises(UserError, match="has no two electrodes on a line of the longitudinal bipolar montage"):
        eeg.BipolarStore(eeg.BipolarStore(store, [0]), [0])


def test_another_unit_changes_the_scale_alone(store: eeg.Store) -> None:
    other = eeg.in_other_unit(store, 1e6)
    assert np.array_equal(other.read_steps(0), store.read_steps(0))
    np.testing.assert_allclose(other.recordings[0].scale_uv, store.recordings[0].scale_uv * 1e6, rtol=1e-6)
    np.testing.assert_allclose(other.recordings[0].median_uv, store.recordings[0].median_uv * 1e6, rtol=1e-6)

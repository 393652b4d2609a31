"""Recordings too large to hold are read some channels at a time: same numbers, bounded memory."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bothways.config import SignalConfig
from bothways.eeg import check, prepare, read_recording, recording
from bothways.eeg.recording import LazyRows
from recordings import noise_uv, write_edf, write_fif

NAMES = ["Fp1", "Fp2", "C3", "C4", "O1"]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    data = noise_uv(5, 4000)
    data[1, 300:700] = 12.0  # a flat stretch
    holes = data.copy()
    holes[2, 1000:1030] = np.nan
    return [
        write_edf(tmp_path / "sub-1.edf", data, NAMES),
        write_edf(tmp_path / "sub-2.edf", data, NAMES, plus="D", onsets_s=[*range(10), *range(15, 25)]),
        write_edf(tmp_path / "sub-3.bdf", data, NAMES, bdf=True),
        write_fif(tmp_path / "sub-4_raw.fif", holes, NAMES),
    ]


@pytest.mark.parametrize("reference", ["file", "average"])
def test_the_store_is_the_same(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str
) -> None:
    signal = SignalConfig(reference=reference)  # type: ignore[arg-type]
    held, report = prepare(files, tmp_path / "held", signal), check(files)
    monkeypatch.setattr(recording, "HELD_BYTES", 0)
    for group_bytes in (1, 2 * 4 * 4000):
        monkeypatch.setattr(recording, "GROUP_BYTES", group_bytes)
        lazy = prepare(files, tmp_path / f"lazy-{group_bytes}", signal)
        for name in ("recordings.json", *(f"signals/{i:06d}.npy" for i in range(len(files)))):
            assert (lazy.path / name).read_bytes() == (held.path / name).read_bytes(), name
        assert check(files) == report


def test_rows_behave_like_an_array(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_recording(files[0]).data_uv
    assert isinstance(whole, np.ndarray)
    monkeypatch.setattr(recording, "HELD_BYTES", 0)
    rows = read_recording(files[0]).data_uv
    assert isinstance(rows, LazyRows)
    np.testing.assert_array_equal(rows, whole)
    np.testing.assert_array_equal(rows[2], whole[2])
    np.testing.assert_array_equal(rows[-1, 5:9], whole[-1, 5:9])
    np.testing.assert_array_equal(rows[1:3, 100:], whole[1:3, 100:])
    np.testing.assert_array_equal(rows[[0, 3]], whole[[0, 3]])
    np.testing.assert_array_equal(list(rows), list(whole))
    assert (len(rows), rows.shape, rows.dtype) == (5, whole.shape, whole.dtype)


PEAK = """
import sys
from pathlib import Path
from bothways import eeg
store = eeg.prepare([sys.argv[1]], sys.argv[2])
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(store.recordings[0].n_samples, int(status["VmHWM"].split()[0]) / 2**20)
"""


@pytest.mark.slow
def test_a_day_of_64_channels_in_bounded_memory(tmp_path: Path) -> None:
    path = write_edf(tmp_path / "sub-1.edf", np.zeros((64, 200)), [f"E{i}" for i in range(64)], n_records=86_400)
    noise = np.random.default_rng(0).normal(0, 300, (600, 64 * 200)).astype("<i2")  # ten minutes, again and again
    still = noise.copy()
    still[:, :200] = 0  # of the first channel: a hole of ten hours to bridge
    with path.open("r+b") as file:
        file.seek(256 * 65)
        for part in range(86_400 // 600):
            file.write((still if part < 60 else noise).tobytes())
    done = subprocess.run(
        [sys.executable, "-c", PEAK, path, tmp_path / "store"], check=True, stdout=subprocess.PIPE, text=True
    )
    n_samples, peak_gb = done.stdout.split()
    assert int(n_samples) == 86_400 * 200
    assert float(peak_gb) < 1.5

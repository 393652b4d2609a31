"""A drawing says in bytes where the signal goes, and in columns where it stops."""

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bothways.eeg import assess, read_recording
from bothways.eeg.drawing import COLUMNS, GAP_COLUMNS, MOST_BYTES, NOTHING, draw
from recordings import noise_uv, write_edf, write_fif

NAMES = ["Fp1", "Fp2", "C3", "C4"]


def drawn(path: Path) -> tuple[dict[str, Any], np.ndarray]:
    recording = read_recording(path)
    drawing = draw(recording, assess(recording)[0])
    levels = np.frombuffer(base64.b64decode(drawing["levels"]), np.uint8)
    return drawing, levels.reshape(len(recording.ch_names), drawing["columns"])


def test_least_and_largest_value_of_each_column(tmp_path: Path) -> None:
    data_uv = noise_uv(4, 4800) / 10 + 400  # an offset is not drawn
    data_uv[1, 2410] = 500.0  # a spike: column 120 of 240
    drawing, levels = drawn(write_edf(tmp_path / "x.edf", data_uv, NAMES))
    assert drawing["columns"] == COLUMNS
    assert drawing["span_uv"] == pytest.approx(6 * 3, rel=0.1)
    assert (levels >> 4 <= levels & 15).all()
    assert np.abs((levels >> 4) + (levels & 15) - 15.0).mean() < 2
    assert np.flatnonzero(levels[1] & 15 == 15).tolist() == [120]
    assert not (levels[[0, 2, 3]] & 15 == 15).any()


def test_what_is_missing_bad_or_marked(tmp_path: Path) -> None:
    data_uv = noise_uv(4, 8000)
    data_uv[0] = np.nan
    data_uv[1, 2000:4000] *= 100
    data_uv[2, 6000:6200] = np.nan
    drawing, levels = drawn(write_fif(tmp_path / "x_raw.fif", data_uv, NAMES))
    assert drawing["bad"] == [0]
    assert (levels[0] == NOTHING).all()
    assert [place for place in drawing["stretches"] if place[0] == 1] == [[1, 60, 120]]
    assert np.flatnonzero(levels[2] == NOTHING).tolist() == list(range(180, 186))
    assert drawing["events"] == [12]  # 2 s of 40 s
    assert drawing["gaps"] == []


def test_gaps_have_a_width_of_their_own(tmp_path: Path) -> None:
    onsets = [*range(10), *range(15, 25)]
    path = write_edf(
        tmp_path / "x.edf", noise_uv(4, 4000), NAMES, plus="D", onsets_s=onsets, annotations=[(16, 1, "b")]
    )
    drawing, levels = drawn(path)
    ((start, stop, seconds),) = drawing["gaps"]
    assert (start, stop - start, seconds) == (118, GAP_COLUMNS, 5.0)
    assert np.flatnonzero((levels == NOTHING).all(0)).tolist() == list(range(start, stop))
    assert drawing["events"][0] > stop


@pytest.mark.parametrize(("n_channels", "columns"), [(1, 240), (64, 240), (128, 125), (256, 62)])
def test_a_drawing_is_small(tmp_path: Path, n_channels: int, columns: int) -> None:
    path = write_edf(tmp_path / "x.edf", noise_uv(n_channels, 2000), [f"E{i + 1}" for i in range(n_channels)])
    drawing, levels = drawn(path)
    assert drawing["columns"] == columns
    assert levels.size <= MOST_BYTES
    assert len(drawing["levels"]) < 22_000


def test_many_gaps_and_few_samples(tmp_path: Path) -> None:
    many = write_edf(tmp_path / "m.edf", noise_uv(4, 8000), NAMES, plus="D", onsets_s=[2 * i for i in range(40)])
    drawing, levels = drawn(many)
    assert len(drawing["gaps"]) == 39
    assert all(start == stop for start, stop, _ in drawing["gaps"])
    assert not (levels == NOTHING).any()
    few, _ = drawn(write_edf(tmp_path / "f.edf", noise_uv(4, 200), NAMES))
    assert few["columns"] == 200

"""Sizes in MATLAB files are true, or the file is refused before its reader believes them."""

import struct

import numpy as np
import pytest
from scipy import sparse
from scipy.io import savemat

from bothways.eeg import read_recording
from bothways.eeg.matlab import check_eeglab
from bothways.errors import UserError
from recordings import noise_uv, write_eeglab

NAMES = ["Fp1", "Fp2", "C3", "C4"]


@pytest.mark.parametrize("packed", [False, True])
def test_what_is_sound_passes(tmp_path, packed):
    inner = np.zeros((2, 3), dtype=[("a", "O"), ("label", "O")])
    inner["a"][0, 0], inner["label"][1, 2] = np.array([[1 + 2j, 3]]), "Ünïcode 日本"
    cells = np.array([[np.zeros((0, 3)), "x"], [np.int8(3), [[True]]]], dtype=object)
    values = {
        "s": inner, "c": cells, "m": sparse.csc_array(np.eye(5)), "big": np.arange(10**5, dtype=np.int64), "e": "",
        "EEG": {"nbchan": 4, "data": np.zeros((4, 9), np.float32)}, "odd": np.arange(3, dtype=np.uint8),
    }  # fmt: skip
    savemat(tmp_path / "a.set", values, do_compression=packed, appendmat=False)
    check_eeglab(tmp_path / "a.set")


def test_a_number_of_channels_that_nothing_could_hold(tmp_path):
    savemat(tmp_path / "a.set", {"EEG": {"nbchan": 1e12, "data": np.zeros((4, 9))}}, appendmat=False)
    with pytest.raises(UserError, match=r"expected a MATLAB file, but it states 1e\+12 channels; it is damaged"):
        read_recording(tmp_path / "a.set")


@pytest.mark.parametrize(
    ("at", "number", "message"),
    [
        (132, 10**6, "a piece of 1000000 bytes reaches beyond its end"),  # of all
        (144, 99, "an array has the unknown class 99"),
        (160, 2**31 - 1, r"a structure of 2147483647 x \d+ arrays holds \d+ bytes"),
        (160, 2**32 - 1, r"an array has the size \[-1, 1\]"),
        (152, 77, "a piece has the unknown type 77"),
        (180, 2**30, "a structure's names are 1073741824 letters long"),
    ],
)
def test_what_is_false_is_said(tmp_path, at, number, message):
    path = write_eeglab(tmp_path / "a.set", noise_uv(), NAMES)
    content = bytearray(path.read_bytes())
    content[at : at + 4] = struct.pack("<I", number)
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"expected a MATLAB file, but {message}; it is damaged, copy it again"):
        read_recording(path)

"""What is said of channels and of ten seconds of them: known faults are found, and what is fine is left alone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mne
import numpy as np
import pytest

from bothways.eeg import assess, check, prepare, read_recording, recording, scan
from bothways.eeg.electrodes import ALONE, _lasting
from bothways.eeg.quality import clipped_samples, cut_grid, unusable
from bothways.eeg.recording import Recording, Segment
from bothways.eeg.store import MISSING
from recordings import write_edf, write_fif

NAMES = ["Fp1", "Fp2", "C3", "C4", "O1", "O2"]
SECONDS, SFREQ_HZ = 60, 200
N = SECONDS * SFREQ_HZ


def scalp_uv(seed: int = 0) -> np.ndarray:
    """Six electrodes that share most of what they measure, some 30 uV each."""
    rng = np.random.default_rng(seed)
    return rng.normal(0, 30, N) + rng.normal(0, 10, (len(NAMES), N))


def assessed(folder: Path, data_uv: np.ndarray) -> tuple[dict[str, dict[str, Any]], list[str], dict[str, str]]:
    quality, bad, notes = assess(read_recording(write_fif(folder / "x_raw.fif", data_uv, NAMES, SFREQ_HZ)))
    return quality, bad, {note.code: note.message for note in notes}


def test_nothing_is_wrong(tmp_path: Path) -> None:
    quality, bad, notes = assessed(tmp_path, scalp_uv())
    assert (bad, notes) == ([], {})
    assert all(q["bad_stretches"] == [] and 0.85 < q["correlation"] < 0.95 for q in quality.values())


def hold(data_uv: np.ndarray) -> None:
    data_uv[1, 20 * SFREQ_HZ : 30 * SFREQ_HZ] = 7


def lose(data_uv: np.ndarray) -> None:
    data_uv[1, 24 * SFREQ_HZ : 36 * SFREQ_HZ] = np.nan  # most of each of two stretches


def clip(data_uv: np.ndarray) -> None:
    data_uv[1, 20 * SFREQ_HZ : 30 * SFREQ_HZ] = np.clip(data_uv[1, 20 * SFREQ_HZ : 30 * SFREQ_HZ] * 10, -200, 200)


def blow_up(data_uv: np.ndarray) -> None:
    data_uv[1, 20 * SFREQ_HZ : 30 * SFREQ_HZ] *= 100


def fall_off(data_uv: np.ndarray) -> None:
    data_uv[1, 10 * SFREQ_HZ : 40 * SFREQ_HZ] = np.random.default_rng(9).normal(0, 30, 30 * SFREQ_HZ)


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (hold, [20.0, 30.0, "flat"]),
        (lose, [20.0, 40.0, "missing"]),
        (clip, [20.0, 30.0, "clipped"]),
        (blow_up, [20.0, 30.0, "amplitude"]),
        (fall_off, [10.0, 40.0, "disconnected"]),
    ],
)
def test_a_bad_stretch_of_a_good_channel(
    tmp_path: Path, spoil: Callable[[np.ndarray], None], expected: list[Any]
) -> None:
    data_uv = scalp_uv()
    spoil(data_uv)
    quality, bad, notes = assessed(tmp_path, data_uv)
    assert bad == []
    assert {name: q["bad_stretches"] for name, q in quality.items()} == {name: [] for name in NAMES} | {
        "Fp2": [expected]
    }
    seconds = expected[1] - expected[0]
    assert notes["bad_stretches"] == f"of channels that are good elsewhere: Fp2 {seconds:g} s ({expected[2]})"


def test_more_bad_than_good_stretches_make_a_bad_channel(tmp_path: Path) -> None:
    data_uv = scalp_uv()
    data_uv[1, : 20 * SFREQ_HZ] *= 100
    data_uv[1, 20 * SFREQ_HZ : 40 * SFREQ_HZ] = 7
    quality, bad, notes = assessed(tmp_path, data_uv)
    assert bad == ["Fp2"]
    assert quality["Fp2"]["bad"] == ["67% amplitude or flat"]
    assert "bad_stretches" not in notes  # all of the channel is out


def test_a_disconnected_electrode(tmp_path: Path) -> None:
    data_uv = scalp_uv()
    mains = 60 * np.sin(2 * np.pi * 50 * np.arange(N) / SFREQ_HZ)
    data_uv[1] = mains + np.random.default_rng(9).normal(0, 2, N)
    data_uv[2] += mains  # noisy, and good all the same
    quality, bad, notes = assessed(tmp_path, data_uv)
    assert bad == ["Fp2"]
    (reason,) = quality["Fp2"]["bad"]
    assert reason.startswith("disconnected: correlation 0.")
    assert quality["Fp2"]["correlation"] < ALONE < 0.85 < quality["C3"]["correlation"]
    share = quality["C3"]["line_noise"]["50"]
    assert share == pytest.approx(60**2 / 2 / (60**2 / 2 + 30**2 + 10**2), abs=0.03)
    assert notes["line_noise"] == f"mains at 50 Hz are up to {share:.0%} of the power: C3; prepare with notch_hz=50"


def test_electrodes_that_do_not_hang_together_are_not_called_disconnected(tmp_path: Path) -> None:
    quality, bad, _ = assessed(tmp_path, np.random.default_rng(0).normal(0, 30, (6, N)))
    assert bad == []
    assert max(q["correlation"] for q in quality.values()) < ALONE


def test_copies_are_said_and_kept(tmp_path: Path) -> None:
    data_uv = scalp_uv()
    data_uv[4] = data_uv[0]
    data_uv[5] = -data_uv[0]
    _, bad, notes = assessed(tmp_path, data_uv)
    assert bad == []
    assert notes["copied_channels"].startswith("the same samples twice: O1 = Fp1, O2 = Fp1;")


@pytest.mark.parametrize("still", [1, 6])
def test_channels_that_cannot_be_compared_are_no_copies(tmp_path: Path, still: int) -> None:
    data_uv = scalp_uv()[:, : 10 * SFREQ_HZ]
    data_uv[:still, 3 * SFREQ_HZ : round(4.5 * SFREQ_HZ)] = 7
    data_uv[0] = 7
    assert "copied_channels" not in assessed(tmp_path, data_uv)[2]


def test_stretches_do_not_cross_gaps() -> None:
    grid = cut_grid([Segment(0, 250, 0.0), Segment(250, 258, 60.0), Segment(258, 498, 90.0)], 10.0)
    assert grid.stretches.tolist() == [[0, 100], [100, 250], [250, 258], [258, 358], [358, 498]]
    assert grid.seconds[[0, 24, 25]].tolist() == [0, 240, 258]
    assert grid.owner.tolist() == [0] * 10 + [1] * 15 + [3] * 10 + [4] * 14


def test_what_is_clipped() -> None:
    row = np.array([0, 5, 5, 5, 5, 1, 5, 5, 2, -3, -3, -3, np.nan, 4], np.float32)
    assert np.flatnonzero(clipped_samples(row)).tolist() == [1, 2, 3, 4, 9, 10, 11]
    assert not clipped_samples(np.full(9, 5, np.float32)).any()
    assert not clipped_samples(np.full(3, np.nan, np.float32)).any()


def test_too_short_is_one_rule(tmp_path: Path) -> None:
    short = read_recording(write_edf(tmp_path / "sub-1.edf", scalp_uv()[:, :100], NAMES, record_s=0.5))
    assert unusable(short, [], []) == "too short: 0.5 s without a gap, at least 1 s expected"
    long_enough = read_recording(write_edf(tmp_path / "sub-2.edf", scalp_uv()[:, :200], NAMES))
    assert unusable(long_enough, [], []) == ""


def test_check_and_prepare_say_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    spoilt = scalp_uv(1)
    blow_up(spoilt)
    spoilt[4] = 7
    write_edf(folder / "sub-0.edf", scalp_uv(), NAMES)
    write_edf(folder / "sub-1.edf", spoilt, NAMES)
    write_edf(folder / "other.edf", scalp_uv(), [*NAMES[:5], "x"])
    write_edf(folder / "sub-3.edf", scalp_uv()[:, :100], NAMES, record_s=0.5)
    write_edf(folder / "sub-4.edf", scalp_uv() * 0, NAMES)
    write_edf(folder / "sub-5.edf", scalp_uv(), NAMES)  # the first one's content
    checked = {r["file"]: r for r in check([folder])["recordings"]}
    store = prepare([folder], tmp_path / "store")
    reasons = {r["file"]: r["reason"] for r in checked.values() if r["status"] == "unusable"}
    skipped = {one["file"]: one["reason"] for one in store.head["skipped"]}
    assert skipped.keys() == reasons.keys() == {"sub-3.edf", "sub-4.edf"}
    assert all(skipped[file].endswith(reason) for file, reason in reasons.items())
    for one in store.recordings:
        said = checked[one.file]
        assert one.quality == said["quality"], one.file
        assert (one.bad_channels, one.left_out) == (said["bad_channels"], said["left_out"])
        assert {(note.code, note.message) for note in one.notes} == {(n["code"], n["message"]) for n in said["notes"]}
    assert "duplicate_content" in [note.code for note in store.recordings[-1].notes]


def test_a_recording_read_in_groups_of_rows_is_judged_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data_uv = scalp_uv()
    for spoil in (fall_off, hold):
        spoil(data_uv)
    path = write_fif(tmp_path / "x_raw.fif", data_uv, NAMES, SFREQ_HZ)
    held = check([path], drawings=True)
    monkeypatch.setattr(recording, "HELD_BYTES", 0)
    monkeypatch.setattr(recording, "GROUP_BYTES", 1)
    assert not isinstance(read_recording(path).data_uv, np.ndarray)
    assert check([path], drawings=True) == held


def test_long_recordings_are_compared_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bothways.eeg import electrodes

    data_uv = scalp_uv()
    data_uv[1] = np.random.default_rng(9).normal(0, 30, N)
    whole = assessed(tmp_path, data_uv)[0]
    monkeypatch.setattr(electrodes, "GROUP_BYTES", 8 * 6 * 171 * 2)  # room for two of six stretches
    (tmp_path / "x_raw.fif").unlink()
    some = assessed(tmp_path, data_uv)[0]
    assert [name for name, q in some.items() if q["bad"]] == ["Fp2"]
    assert some["Fp1"]["correlation"] != whole["Fp1"]["correlation"]
    assert some["Fp1"]["correlation"] == pytest.approx(whole["Fp1"]["correlation"], abs=0.05)


def good_recordings(folder: Path) -> list[Recording]:
    return [read_recording(one.path) for one in scan([folder])]


def test_the_example_recordings_are_fine(example_data: Path) -> None:
    for one in good_recordings(example_data):
        quality, bad, notes = assess(one)
        assert (bad, [q["bad_stretches"] for q in quality.values() if q["bad_stretches"]]) == ([], []), one.path.name
        assert {note.code for note in notes} <= {"flat_stretches"}, one.path.name


@pytest.mark.parametrize(
    ("factor", "advice"),
    [
        (1e3, "÷1000 would make 30 uV; if the stated unit is wrong, pass --unit (unit=)"),
        (1e-3, "×1000 would make"),
        (1e6, "÷1000000 would make"),
        (1e-6, "×1000000 would make"),
        (1e9, "no change of unit makes sense of it"),
    ],
)
def test_a_unit_slip_is_named(tmp_path: Path, factor: float, advice: str) -> None:
    data_uv = scalp_uv()
    data_uv *= 30 / np.median([q["amplitude_uv"] for q in assessed(tmp_path, data_uv)[0].values()])
    (tmp_path / "x_raw.fif").unlink()
    _, bad, notes = assessed(tmp_path, data_uv * factor)
    assert bad == NAMES
    message = notes["unit_suspect"]
    assert message.startswith(f"median amplitude {30 * factor:.3g} uV is not that of scalp EEG; ")
    assert advice in message


@pytest.mark.parametrize(
    ("every", "low", "expected"),
    [
        (1, [0, 1, 1, 0, 0, 0, 0, 0], []),
        (1, [0, 1, 1, 1, 0, 0, 0, 1], [1, 2, 3]),
        (2, [0, 1, 1, 0, 0, 1, 0, 0], [2, 3, 4]),  # of 0 2 4 6 8 10 12 14
        (7, [1, 1, 0, 1, 0, 0, 0, 0], [*range(8)]),  # a look alone says nothing
    ],
)
def test_what_lasts_is_the_same_however_few_stretches_are_compared(
    every: int, low: list[int], expected: list[int]
) -> None:
    which = np.arange(len(low)) * every
    assert _lasting(which, np.array(low, bool), every) == expected


def test_a_long_stretch_without_contact_is_found_where_some_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bothways.eeg import electrodes

    rng = np.random.default_rng(0)
    data_uv = rng.normal(0, 30, 4 * N) + rng.normal(0, 10, (len(NAMES), 4 * N))
    data_uv[1, 60 * SFREQ_HZ : 120 * SFREQ_HZ] = rng.normal(0, 30, 60 * SFREQ_HZ)
    monkeypatch.setattr(electrodes, "GROUP_BYTES", 8 * 6 * 171 * 12)  # room for twelve of 24 stretches
    quality, bad, _ = assessed(tmp_path, data_uv)
    assert bad == []
    assert quality["Fp2"]["bad_stretches"] == [[60.0, 110.0, "disconnected"]]  # the last is not looked at


# What the file itself marks --------------------------------------------------------------------------------------


def marked(folder: Path, *spans: tuple[float, float, str, tuple[str, ...]]) -> Path:
    info = mne.create_info(NAMES, SFREQ_HZ, "eeg", verbose="error")
    raw = mne.io.RawArray(scalp_uv() * 1e-6, info, verbose="error")
    onsets_s, durations_s, labels, names = zip(*spans)
    raw.set_annotations(mne.Annotations(onsets_s, durations_s, labels, ch_names=names), verbose="error")
    raw.save(folder / "sub-1_raw.fif", verbose="error")
    return folder / "sub-1_raw.fif"


def test_stretches_that_the_file_marks_as_bad_are_hidden(tmp_path: Path) -> None:
    path = marked(
        tmp_path, (10.0, 2.5, "BAD_muscle", ()), (-3.0, 4.0, "bad start", ()), (30.0, 10.0, "EDGE x", ("C3", "C4")),
        (50.0, 5.0, "badminton", ()), (55.0, 0.0, "BAD_moment", ()),
    )  # fmt: skip
    mine = "marked bad in the file"
    quality, bad, notes = assess(read_recording(path))
    everywhere = [[0.0, 1.0, mine], [10.0, 12.5, mine]]
    assert quality["Fp1"]["bad_stretches"] == everywhere
    assert quality["C3"]["bad_stretches"] == quality["C4"]["bad_stretches"] == [*everywhere, [30.0, 40.0, mine]]
    assert (bad, [(note.code, note.message) for note in notes]) == (
        [], [("marked_stretches", "3 stretches, 13.5 s of a channel at most, are marked bad in the file and hidden: "
                                  "bad start (1), BAD_muscle (1), EDGE x (1)")],
    )  # fmt: skip
    store = prepare([path], tmp_path / "store")
    hidden = store.read_steps(0, 0, N) == MISSING
    seconds = [np.flatnonzero(row)[[0, -1]].tolist() for row in hidden]
    assert (seconds[0], seconds[2]) == ([0, 2499], [0, 7999])
    assert hidden.sum(1).tolist() == [700, 700, 2700, 2700, 700, 700]
    assert "marked_stretches" in {note.code for note in store.recordings[0].notes}


def test_a_recording_that_is_marked_as_bad_from_end_to_end_is_unusable(tmp_path: Path) -> None:
    path = marked(tmp_path, (0.0, 35.0, "BAD", ()), (30.0, 30.0, "bad sleep", ()))
    (entry,) = check([path])["recordings"]
    assert entry["status"] == "unusable"
    assert "Fp1 (all of it marked bad in the file)" in entry["reason"]

"""Pieces, their order, their edges: what `paste` makes of stretches that were recorded apart."""

from pathlib import Path

import numpy as np
import pytest

from bothways.draws import generator
from bothways.eeg import (
    Piece,
    arrange,
    cut_pieces,
    from_array,
    levelled,
    live_runs,
    paste,
    read_recording,
    write_edf_recording,
)
from bothways.errors import UserError


def cut(length: int, seed: int = 0) -> list[int]:
    pieces = cut_pieces([Piece(3, 100, 100 + length, "rest")], 5, 10, np.random.default_rng(seed))
    assert all((piece.source, piece.label) == (3, "rest") for piece in pieces)
    return [len(piece) for piece in pieces]


@pytest.mark.parametrize(("length", "lengths"), [(4, []), (5, [5]), (7, [7]), (9, [9])])
def test_what_is_short_is_one_piece_or_none(length: int, lengths: list[int]) -> None:
    assert all(cut(length, seed) == lengths for seed in range(20))


def test_what_would_be_left_behind_is_shared_out() -> None:
    assert {tuple(cut(11, seed)) for seed in range(60)} == {(5, 6), (6, 5)}  # not 7 and 4
    assert {tuple(cut(10, seed)) for seed in range(60)} == {(5, 5), (10,)}


def test_a_level_is_that_of_the_stretches() -> None:
    data_uv = np.array([[9.0, 9, 9, 9, 1, 2, 6, 0, 4], [0, 0, 0, 0, -5, -5, 5, 0, 5]], np.float32)
    made = levelled(data_uv, [(4, 7), (8, 9)])  # 1, 2, 6, 4 and -5, -5, 5, 5
    assert made[0].tolist() == [6, 6, 6, 6, -2, -1, 3, -3, 1]
    assert made[1].tolist() == data_uv[1].tolist()


def test_a_join_fades_by_sine_and_cosine() -> None:
    sources = [np.full((1, 4), value, np.float32) for value in (1, 3)]
    pieces = [Piece(0, 0, 4, "rest"), Piece(1, 0, 4, "task")]
    data_uv, laid = paste(pieces, sources, 2)
    near, far = 0.38268343, 0.92387953  # sin 22.5°, cos 22.5°
    np.testing.assert_allclose(data_uv, [[1, 1, far + 3 * near, near + 3 * far, 3, 3]], rtol=1e-6)
    assert [(one.piece, one.start, one.stop) for one in laid] == [(pieces[0], 0, 3), (pieces[1], 3, 6)]


def test_without_a_join_pieces_follow_each_other() -> None:
    source = np.array([[0.0, 1, -1, 2, -2]], np.float32)
    data_uv, laid = paste([Piece(0, 3, 5, "a"), Piece(0, 0, 1, "b"), Piece(0, 1, 3, "c")], [source], 0)
    assert data_uv.tolist() == [[2, -2, 0, 1, -1]]
    assert [(one.start, one.stop) for one in laid] == [(0, 2), (2, 3), (3, 5)]


def test_a_join_keeps_the_power_and_makes_no_step() -> None:
    noise = np.random.default_rng(0).normal(size=(2000, 60)).astype(np.float32)
    slow = np.tile(np.sin(np.arange(60) / 20).astype(np.float32) * 50, (1, 1))
    data_uv, _ = paste([Piece(0, 0, 30, "a"), Piece(0, 30, 60, "b")], [noise], 10)
    assert np.abs(data_uv.std(0) - 1).max() < 0.08  # in the join, too; a straight fade falls to 0.71
    data_uv, _ = paste([Piece(0, 0, 30, "a"), Piece(0, 5, 35, "b")], [slow], 10)
    hard = np.abs(slow[0, 5] - slow[0, 29])
    assert np.abs(np.diff(data_uv)).max() < 0.4 * hard


def test_events_lie_apart_within_the_background() -> None:
    calm, rest = [Piece(0, 0, 9, "")], [Piece(0, 10 * n, 10 * n + 9, "rest") for n in range(1, 7)]
    events = [Piece(1, 10 * n, 10 * n + 9, "task") for n in range(9)]
    made = arrange(calm, rest, events, generator("test", 1))
    assert made[0] == calm[0]
    assert sorted(p for p in made if p.label == "rest") == rest
    labels = "".join(p.label[:1] or "c" for p in made)
    assert labels.count("t") == 3  # six places, three of them stay shams
    assert "tt" not in labels
    assert labels.endswith("r")
    assert (
        arrange(calm, rest, events, generator("test", 1)) == made != arrange(calm, rest, events, generator("test", 2))
    )


def test_too_little_background_takes_no_event() -> None:
    two = [Piece(0, 0, 9, "rest"), Piece(0, 10, 19, "rest")]
    assert sorted(arrange([], two, [Piece(1, 0, 9, "task")], generator("test", 1))) == two
    assert arrange([], [], [Piece(1, 0, 9, "task")], generator("test", 1)) == []


def test_no_event_lies_between_stretches_of_calibration() -> None:
    calm = [Piece(0, 0, 9, "calm"), Piece(0, 20, 29, "calm"), Piece(0, 40, 49, "calm")]
    rest, events = [Piece(0, 10 * i, 10 * i + 9, "rest") for i in range(5, 11)], [Piece(1, 0, 9, "task")] * 9
    for seed in range(50):
        order = arrange(calm, rest, events, generator("test", seed))
        assert order[:3] == calm
        assert [piece.label for piece in order].count("task") == 3  # of the 6 places behind the last calm one


def test_only_what_holds_a_signal_is_used() -> None:
    data_uv = np.random.default_rng(0).normal(0, 10, (3, 1000))
    data_uv[:, 900:] = 7.0  # held, as padding is
    data_uv[1, 300:310] = np.nan
    data_uv[2, 500:700] = 0.0  # one channel of three: its own affair
    recording = from_array(data_uv, ["Fz", "Cz", "Pz"], 100, unit="uV")
    assert live_runs(recording, 0, 1000) == [(0, 300), (310, 875)]  # a quarter of a second before the padding
    assert live_runs(recording, 320, 880) == [(320, 875)]
    assert live_runs(recording, 950, 1000) == []


def test_no_run_crosses_a_gap() -> None:
    pieces = np.random.default_rng(0).normal(0, 10, (2, 1, 300))
    assert live_runs(from_array(pieces, ["Cz"], 100, unit="uV"), 100, 500) == [(100, 300), (300, 500)]


def test_a_recording_is_written_as_it_is_read(tmp_path: Path) -> None:
    data_uv = np.random.default_rng(0).normal(0, 20, (2, 512)) * [[1], [50]]
    events = [(0.5, 1.25, "task"), (3.0, 0.5, "blink")]
    write_edf_recording(tmp_path / "a.edf", data_uv, ["Cz", "T7-P7"], 128, events, "07")
    read = read_recording(tmp_path / "a.edf")
    assert (read.format, read.ch_names, read.sfreq_hz) == ("EDF+C", ["Cz", "T7-P7"], 128)
    step_uv = np.ceil(np.abs(data_uv).max(1, keepdims=True)) / 32767
    assert (np.abs(read.data_uv - data_uv) <= 0.51 * step_uv).all()
    assert [(e.onset_s, e.duration_s, e.label, e.start_sample) for e in read.events] == [
        (0.5, 1.25, "task", 64), (3.0, 0.5, "blink", 384),
    ]  # fmt: skip
    assert read.notes == []


def test_names_that_no_edf_holds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a\.edf: expected channel names of up to 16 ASCII letters, got 'Überall'"):
        write_edf_recording(tmp_path / "a.edf", np.zeros((1, 128)), ["Überall"], 128, [])
    assert not (tmp_path / "a.edf").exists()

from pathlib import Path

import numpy as np
import pytest

from bothways.eeg.recording import Segment
from bothways.eeg.stamps import read_stamps
from bothways.errors import UserError

PATH = Path("a.csv")


def codes(timing):
    return [note.code for note in timing.notes]


@pytest.mark.parametrize("hz", [100, 128, 250, 256, 500, 512, 1000])
@pytest.mark.parametrize("decimals", [2, 3, 6])
def test_rounded_stamps_give_the_true_rate(hz, decimals):
    stamps = np.round(149958.124 + np.arange(20 * hz) / hz, decimals)
    timing = read_stamps(PATH, stamps, "s")
    assert (timing.sfreq_hz, timing.segments) == (hz, [Segment(0, 20 * hz, 0.0)])


def test_a_rate_that_is_not_usual_is_kept():
    timing = read_stamps(PATH, np.arange(4097) / 173.61, None)
    assert timing.sfreq_hz == pytest.approx(173.61, abs=1e-6)
    assert read_stamps(PATH, np.arange(1000) / 99.5, None).sfreq_hz == pytest.approx(99.5, abs=1e-6)


@pytest.mark.parametrize("decimals", [3, 6])
def test_gaps_of_any_size(decimals):
    whole = np.round(np.arange(5000) / 250, decimals)
    kept = np.r_[0:1000, 1001:2000, 2005:2300, 2900:5000]
    timing = read_stamps(PATH, whole[kept], "s")
    assert timing.sfreq_hz == 250.0
    assert [(s.start, s.stop) for s in timing.segments] == [(0, 1000), (1000, 1999), (1999, 2294), (2294, 4394)]
    np.testing.assert_allclose([s.onset_s for s in timing.segments], [0, 4.004, 8.02, 11.6], atol=1e-4)
    assert codes(timing) == ["gaps"]


def test_short_pieces_are_not_joined():
    stamps = (np.arange(6000) / 256)[np.arange(6000) % 60 < 50]
    timing = read_stamps(PATH, stamps, "s")
    assert (timing.sfreq_hz, len(timing.segments)) == (256.0, 100)
    assert timing.segments[1] == Segment(50, 100, 0.234375)


def test_stamps_of_packets_are_no_gaps():
    late_s = np.random.default_rng(0).normal(0, 0.004, 500)
    stamps = np.repeat(np.arange(500) * 10 / 250 + late_s, 10)
    timing = read_stamps(PATH, stamps - stamps.min(), "s")
    assert (timing.sfreq_hz, len(timing.segments)) == (250.0, 1)
    lost = np.delete(stamps, np.s_[2000:2500]) - stamps.min()
    second = read_stamps(PATH, lost, "s").segments[1]
    assert (second.start, second.onset_s) == (2000, pytest.approx(10, abs=0.01))
    exact = read_stamps(PATH, 1.7e9 + np.arange(1000) // 10 * 0.04, None)
    assert (exact.sfreq_hz, len(exact.segments)) == (250.0, 1)


def test_late_packets_are_said():
    stamps = np.arange(2000) / 256
    stamps[300:312] += 0.02  # twelve samples arrive late, and the thirteenth in time
    timing = read_stamps(PATH, stamps, "s")
    assert (timing.sfreq_hz, len(timing.segments), codes(timing)) == (256.0, 1, ["time_jitter", "rate_rounded"])
    assert "1 times lie up to 0.0161 s before the one in front" in timing.notes[0].message


@pytest.mark.parametrize(
    ("unit", "factor", "hz", "noted"),
    [
        (None, 1, 250, False),
        (None, 1e3, 250, True),
        (None, 1e6, 256, True),
        (None, 1e9, 500, True),
        ("ms", 1e3, 250, False),
    ],
)
def test_units_of_time(unit, factor, hz, noted):
    timing = read_stamps(PATH, np.arange(1000) / hz * factor, unit)
    assert timing.sfreq_hz == hz
    assert (codes(timing) == ["time_unit_guessed"]) == noted


def test_a_stated_rate_must_agree():
    assert read_stamps(PATH, np.arange(1000) * 4.0, None, 250.0).sfreq_hz == 250
    with pytest.raises(UserError, match="fit the stated 500 Hz, they give 250 Hz; correct the rate"):
        read_stamps(PATH, np.arange(1000) / 250, "s", 500.0)
    assert read_stamps(PATH, np.arange(1000) / 250, "s", 254.9).sfreq_hz == 254.9  # 1.9 % apart, and 2.1 %
    with pytest.raises(UserError, match=r"fit the stated 255\.4 Hz"):
        read_stamps(PATH, np.arange(1000) / 250, "s", 255.4)


def test_a_count_of_samples_is_no_time():
    counts = np.r_[5:505, 705:1000].astype(np.float64)
    with pytest.raises(UserError, match=r"got a count of samples \(5, 6, 7, …\), which gives no rate; state the rate"):
        read_stamps(PATH, counts, None)
    timing = read_stamps(PATH, counts, None, 250.0)
    assert (timing.sfreq_hz, timing.segments) == (250.0, [Segment(0, 500, 0.0), Segment(500, 795, 2.8)])
    assert codes(timing) == ["time_counts", "gaps"]
    assert read_stamps(PATH, counts, "ms").sfreq_hz == 1000.0


@pytest.mark.parametrize(
    ("stamps", "message"),
    [
        ([1.0], "at least two samples"),
        ([0, 0.004, np.nan, 0.012], "sample 3 has none"),
        ([3.0, 2.0, 1.0], "times that rise, got 3 to 1"),
        ([*np.arange(500) / 250, *np.arange(1000) / 250], "sample 501 goes back 1.996 s; sort the rows"),
        (np.cumsum(np.linspace(0.004, 0.008, 3000)), "evenly spaced samples"),
    ],
)
def test_times_that_are_none(stamps, message):
    with pytest.raises(UserError, match=message):
        read_stamps(PATH, np.array(stamps, np.float64), "s")

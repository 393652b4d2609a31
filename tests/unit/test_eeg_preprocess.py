import dataclasses

import numpy as np
import pytest

from bothways.config import SignalConfig
from bothways.eeg import Segment, assess, check, preprocess, read_recording
from bothways.eeg.preprocess import _convolved, robust_scale
from bothways.eeg.quality import flat_samples
from recordings import noise_uv, write_edf

NAMES = ["Fp1", "Fp2", "C3", "C4"]


def tone_uv(hz, sfreq_hz, seconds, amplitude_uv=30.0):
    return amplitude_uv * np.sin(2 * np.pi * hz * np.arange(round(seconds * sfreq_hz)) / sfreq_hz)


def recording_of(tmp_path, data, sfreq_hz=200.0, names=NAMES, **fields):
    """A recording with exactly these samples, whatever a file could hold."""
    path = write_edf(tmp_path / "a.edf", noise_uv(len(data), 200), names[: len(data)])
    data = np.asarray(data, np.float32)
    segments = [Segment(0, data.shape[1], 0.0)]
    fields = {"data_uv": data, "sfreq_hz": float(sfreq_hz), "segments": segments} | fields
    return dataclasses.replace(read_recording(path), **fields)


def test_a_tone_keeps_its_place_in_time_and_its_size(tmp_path):
    for sfreq_hz in (128.0, 200.0, 250.0, 512.0, 173.61):
        recording = recording_of(tmp_path, [tone_uv(10, sfreq_hz, 30)], sfreq_hz)
        out = preprocess(recording, SignalConfig()).data_uv[0]
        wanted = tone_uv(10, 200, 30)[: len(out)]
        assert abs(len(out) - 6000) <= 1
        assert np.abs(out[1000 : len(wanted) - 1000] - wanted[1000:-1000]).max() < 0.15, sfreq_hz


def test_lengths_follow_the_exact_rate(tmp_path):
    def n_out(n, sfreq_hz):
        return preprocess(recording_of(tmp_path, noise_uv(1, n), sfreq_hz), SignalConfig()).data_uv.shape[1]

    assert [n_out(4097, 173.61), n_out(2475, 250.0), n_out(15360, 128.0), n_out(100, 200.0)] == [
        4720,
        1980,
        24000,
        100,
    ]


def test_band_and_mains_are_taken_out(tmp_path):
    for hz, kept in ((0.03, 0.0), (2, 1.0), (40, 1.0), (50, 0.0), (60, 1.0), (95, 0.0)):
        out = preprocess(recording_of(tmp_path, [tone_uv(hz, 500, 60)], 500), SignalConfig()).data_uv[0, 3000:-3000]
        assert np.sqrt(2) * out.std() / 30 == pytest.approx(kept, abs=0.02), hz
    out = preprocess(recording_of(tmp_path, [tone_uv(50, 500, 60)], 500), SignalConfig(notch_hz=None)).data_uv
    assert np.sqrt(2) * out[0, 3000:-3000].std() / 30 == pytest.approx(1, abs=0.02)


def test_equals_mne(tmp_path):
    import mne

    data = noise_uv(2, 20000, seed=3)
    recording = recording_of(tmp_path, data, 250)
    ours = preprocess(recording, SignalConfig(notch_hz=None)).data_uv
    theirs = mne.filter.filter_data(data.astype(float), 250, 0.5, 70, verbose="error")
    theirs = mne.filter.resample(theirs, 200, 250, method="polyphase", verbose="error")
    difference = (ours - theirs)[:, 2000:-2000]
    assert difference.std() < 0.02 * theirs.std()


def test_upper_edge_follows_a_low_rate(tmp_path):
    prepared = preprocess(recording_of(tmp_path, noise_uv(1, 2000), 100), SignalConfig(notch_hz=None))
    assert [(n.code, n.message) for n in prepared.notes] == [
        ("band_lowered", "upper edge 70 Hz lowered to 45 Hz: the file has 100 Hz")
    ]


@pytest.mark.parametrize("sfreq_hz", [140.001, 1e5])
def test_rates_that_a_damaged_header_states(tmp_path, sfreq_hz):
    recording = dataclasses.replace(recording_of(tmp_path, noise_uv(4)), sfreq_hz=sfreq_hz)
    assert np.isfinite(preprocess(recording, SignalConfig()).data_uv).all()


def test_missing_samples_do_not_spread(tmp_path):
    data = noise_uv(2, 4000)
    whole = preprocess(recording_of(tmp_path, data), SignalConfig()).data_uv
    data[1, 2000:2050] = np.nan
    out = preprocess(recording_of(tmp_path, data), SignalConfig()).data_uv
    assert np.flatnonzero(np.isnan(out[1])).tolist() == list(range(1990, 2060))
    np.testing.assert_array_equal(out[0], whole[0])
    assert np.nanmax(np.abs(out[1, 2100:] - whole[1, 2100:])) < 15
    assert np.nanmax(np.abs(out[1, 3500:] - whole[1, 3500:])) < 0.1


def test_nothing_crosses_a_gap(tmp_path):
    data = noise_uv(1, 4000)
    cut = [Segment(0, 2000, 0.0), Segment(2000, 4000, 60.0)]
    one = preprocess(recording_of(tmp_path, data, segments=cut), SignalConfig())
    data[0, 2000:] += 1000
    two = preprocess(recording_of(tmp_path, data, segments=cut), SignalConfig())
    np.testing.assert_array_equal(one.data_uv[:, :2000], two.data_uv[:, :2000])
    assert one.segments == cut
    # a constant offset is no signal
    np.testing.assert_allclose(one.data_uv[:, 2000:], two.data_uv[:, 2000:], atol=0.01)


def test_average_reference_leaves_bad_channels_out(tmp_path):
    data = noise_uv(4, 2000)
    data[3] *= 1000
    signal = SignalConfig(reference="average")
    out = preprocess(recording_of(tmp_path, data), signal, bad=["C4"]).data_uv
    np.testing.assert_allclose(out[:3].mean(0), 0, atol=1e-4)
    plain = preprocess(recording_of(tmp_path, data), SignalConfig()).data_uv
    np.testing.assert_allclose(out, plain - plain[:3].mean(0), atol=0.02)


def test_flat_stretches_are_missing(tmp_path):
    data = noise_uv(2, 4000)
    data[0] = 7
    data[1, 1000:1200] = 3
    out = preprocess(recording_of(tmp_path, data), SignalConfig()).data_uv
    assert np.isnan(out[0]).all()
    assert np.flatnonzero(np.isnan(out[1])).tolist() == list(range(990, 1210))


def test_flat_samples():
    data = np.array([1, 1, 1, 1, 2, 3, 3, 4, 4, 4, 4, 4], np.float32)
    assert np.flatnonzero(flat_samples(data, 8.0)).tolist() == [0, 1, 2, 3, 7, 8, 9, 10, 11]


def test_robust_scale():
    data = np.random.default_rng(0).normal(5, 20, (3, 10001)).astype(np.float32)
    data[0, :500] = 1e5
    data[1] = 2
    data[2, 5000:] = np.nan
    median_uv, scale_uv = robust_scale(data)
    np.testing.assert_allclose(median_uv, [5, 2, 5], atol=2)
    np.testing.assert_allclose(scale_uv, [20, 1, 20], rtol=0.1)
    assert scale_uv[1] == 1.0


def test_quality_of_a_good_channel(tmp_path):
    quality, bad, notes = assess(recording_of(tmp_path, noise_uv(2, 8000)))
    assert (bad, notes) == ([], [])
    assert quality["Fp1"]["amplitude_uv"] == pytest.approx(30, rel=0.05)
    assert (quality["Fp1"]["flat"], quality["Fp1"]["missing"], quality["Fp1"]["clipped"]) == (0, 0, 0)


def test_quality_names_what_is_wrong(tmp_path):
    data = noise_uv(4, 8000)
    data[0] = 3
    data[1] = np.clip(data[1] * 3, -60, 60)
    data[2] = np.where(np.arange(8000) < 5000, np.nan, data[2])
    data[3] += tone_uv(50, 200, 40, 90)
    quality, bad, _ = assess(recording_of(tmp_path, data, marked_bad=["C4"]))
    assert bad == ["Fp1", "Fp2", "C3", "C4"]
    assert quality["Fp1"]["bad"] == ["100% flat"]
    assert quality["Fp2"]["bad"][0].endswith("% clipped")
    assert quality["C3"]["bad"] == ["62% missing"]
    assert quality["C4"]["bad"] == ["marked bad in the file"]
    assert quality["C4"]["line_noise"]["50"] > 0.75
    assert quality["C4"]["line_noise"]["60"] < 0.05


@pytest.mark.parametrize("share", [0.0, 0.49, 0.51])
def test_flat_stretches_do_not_count_in_the_amplitude(tmp_path, share):
    data = noise_uv(4, 8000)
    data[:, : round(share * 8000)] = 7
    recording = recording_of(tmp_path, data)
    quality, bad, notes = assess(recording)
    assert [q["amplitude_uv"] for q in quality.values()] == pytest.approx([30] * 4, rel=0.05)
    assert "unit_suspect" not in [note.code for note in notes]
    assert len(bad) == (4 if share > 0.5 else 0)
    if share > 0.5:
        assert quality["Fp1"]["bad"] == ["51% flat"]
        path = write_edf(tmp_path / "sub-1.edf", data, NAMES)
        assert check([path])["recordings"][0]["reason"] == (
            "no good channel: 4 of 4: Fp1 (51% flat); Fp2 (51% flat); C3 (51% flat); C4 (51% flat)"
        )


def test_a_channel_that_the_halo_takes_is_bad(tmp_path):
    data = noise_uv(4, 2000)
    data[0, ::2] = np.nan
    data[1, :100] = np.nan
    data[2, 990:1000] = data[2, 1010:1020] = np.nan
    recording = recording_of(tmp_path, data)
    quality, bad, _ = assess(recording)
    assert (bad, quality["Fp1"]["bad"]) == (["Fp1"], ["100% missing or flat with 0.05 s around"])
    assert np.isnan(preprocess(recording, SignalConfig(), bad).data_uv).sum(1).tolist() == [2000, 110, 50, 0]


@pytest.mark.parametrize(
    ("factor", "advice"),
    [
        (1e3, "÷1000 would make 30"),
        (1e-3, "×1000 would"),
        (1e6, "÷1000000 would"),
        (1e-6, "×1000000 would"),
        (1e9, "no change"),
    ],
)
def test_a_unit_slip_is_suspected(tmp_path, factor, advice):
    _, bad, notes = assess(recording_of(tmp_path, noise_uv(4, 2000, sd_uv=30.4) * factor))
    assert len(bad) == 4
    assert [note.code for note in notes] == ["bad_channels", "unit_suspect"]
    assert advice in notes[1].message


def test_a_notch_above_the_rate_is_said(tmp_path):
    def codes(sfreq_hz, notch_hz):
        recording = recording_of(tmp_path, noise_uv(1, 4000), sfreq_hz)
        return [note.code for note in preprocess(recording, SignalConfig(notch_hz=notch_hz)).notes]

    assert codes(200, 50) == codes(200, None) == []
    assert codes(100, 50) == ["band_lowered", "notch_unused"]
    assert codes(102, 50) == ["band_lowered", "notch_unused"]  # 50 Hz are below 51, and too near
    assert codes(100, None) == codes(104, 50) == ["band_lowered"]
    assert codes(200, 500) == ["notch_unused"]
    recording = recording_of(tmp_path, noise_uv(1, 4000), 100)
    message = preprocess(recording, SignalConfig(notch_hz=60)).notes[-1].message
    assert message == "mains at 60 Hz cannot be taken out: the file has 100 Hz"


def test_long_kernels_are_convolved_alike():
    from scipy.signal import fftconvolve

    rng = np.random.default_rng(0)
    a, b = rng.normal(size=40_000), rng.normal(size=30_001)
    np.testing.assert_allclose(_convolved(a, b), fftconvolve(a, b), atol=1e-9)

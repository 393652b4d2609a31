"""Windows as batches: what is read, shifted, hidden and padded, each a function of (seed, epoch, window)."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bothways import eeg
from bothways.config import EncoderConfig, HeadConfig, MaskingConfig, ModelConfig, PatchConfig, WindowConfig
from bothways.eeg.reconstruction import _interpolate
from bothways.eeg.store import STEP
from bothways.errors import BothwaysWarning, UserError
from bothways.model import Model
from recordings import noise_uv, write_edf, write_fif

PATCHES = PatchConfig(patch_s=0.5)
BLOCKS = MaskingConfig(ratio=0.5, mask=0.8, random=0.1)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> eeg.Store:
    """Two people of 20 s, with three and with four channels, one of them (X1) at no known place."""
    folder = tmp_path_factory.mktemp("dataset")
    write_edf(folder / "data" / "sub-a.edf", noise_uv(3, 4000, seed=1), ["C3", "Cz", "C4"])
    write_edf(folder / "data" / "sub-b.edf", noise_uv(4, 4000, seed=2), ["EEG X1", "C4", "T8-P8", "C3"])
    return eeg.prepare([folder / "data"], folder / "store")


def source_of(store: eeg.Store, **options: object) -> eeg.WindowSource:
    windows = eeg.cut_windows(store, WindowConfig(window_s=2.0, stride_s=2.0))
    return eeg.WindowSource(store, windows, PATCHES, **options)


def test_a_batch_holds_the_stored_numbers(store: eeg.Store) -> None:
    source = source_of(store)
    batch = source.batch(np.array([0, 11]))
    assert batch["signals"].shape == (2, 4, 400)
    np.testing.assert_array_equal(batch["signals"][0, :3], store.read(0, 0, 400))
    np.testing.assert_array_equal(batch["signals"][1], store.read(1, 400, 400))
    assert batch["patch_mask"].tolist()[0] == [[True] * 4] * 3 + [[False] * 4]
    np.testing.assert_allclose(10 ** batch["log_scale_uv"][1], store.recordings[1].scale_uv, rtol=1e-5)
    assert batch["positions"][0, 3].isnan().all()
    assert batch["labels"].tolist() == [-100, -100]
    assert source.names(np.array([0, 11])) == ["sub-a.edf", "sub-b.edf"]


def test_a_masked_window_is_the_same_in_any_batch(store: eeg.Store) -> None:
    source = source_of(store, masking=BLOCKS, seed=3)
    alone = source.batch(np.array([2]), np.array([5]))
    padded = source.batch(np.array([15, 2]), np.array([0, 5]))  # sub-b has a channel more
    for name in ("signals", "masked", "action", "replacement", "patch_mask"):
        assert torch.equal(padded[name][1, :3], alone[name][0]), name
    assert not padded["masked"][1, 3].any()


@pytest.mark.parametrize("change", [{"epochs": 1}, {"seed": 4}, {"ids": 3}])
def test_epoch_seed_and_window_change_the_mask(store: eeg.Store, change: dict[str, int]) -> None:
    def mask(ids: int = 2, epochs: int = 0, seed: int = 3) -> torch.Tensor:
        source = source_of(store, masking=BLOCKS, seed=seed)
        return source.batch(np.array([ids]), np.array([epochs]))["masked"]

    assert torch.equal(mask(), mask())
    assert not torch.equal(mask(), mask(**change))


def test_a_shift_stays_in_segment_and_label(store: eeg.Store) -> None:
    rows = [eeg.Span("sub-a.edf", 4.0, 5.0, "x"), eeg.Span("sub-a.edf", 9.0, 5.0, "y")]
    windows = eeg.cut_windows(store, WindowConfig(window_s=2.0, stride_s=2.0), rows, recordings=[0])
    windows = windows.select(windows.label >= 0)
    assert windows.start.tolist() == [800, 1200, 1800, 2200]
    source = eeg.WindowSource(store, windows, PATCHES, jitter_s=5.0)
    whole = store.read(0)
    starts: dict[int, set[int]] = {i: set() for i in range(4)}
    for epoch in range(60):
        for i, signal in enumerate(source.batch(np.arange(4), np.full(4, epoch))["signals"]):
            # The signal is noise: a window of it lies at one place only.
            places = np.flatnonzero(whole[0, :3601] == signal[0, 0].item())
            (start,) = [s for s in places if np.array_equal(whole[0, s : s + 400], signal[0])]
            starts[i].add(int(start))
    for i, (low, high) in enumerate([(800, 1400), (800, 1400), (1800, 2400), (1800, 2400)]):
        assert low <= min(starts[i]) <= max(starts[i]) <= high
        assert len(starts[i]) > 10


def test_fixed_channels_in_the_models_order(store: eeg.Store) -> None:
    patches = PATCHES.model_copy(update={"tokens": "all_channels", "ch_names": ("C4", "C3")})
    windows = eeg.cut_windows(store, WindowConfig(window_s=2.0, stride_s=2.0))
    batch = eeg.WindowSource(store, windows, patches, masking=BLOCKS).batch(np.array([0, 10]))
    np.testing.assert_array_equal(batch["signals"][0], store.read(0, 0, 400)[[2, 0]])
    np.testing.assert_array_equal(batch["signals"][1], store.read(1, 0, 400)[[1, 3]])
    assert batch["masked"].shape == (2, 1, 4)


def test_lacking_channels_are_named(store: eeg.Store) -> None:
    patches = PATCHES.model_copy(update={"tokens": "all_channels", "ch_names": ("C4", "Cz", "Fp1")})
    windows = eeg.cut_windows(store, WindowConfig(window_s=2.0, stride_s=2.0))
    with pytest.raises(UserError, match=r"sub-a\.edf: .* 3 fixed channels, of which this one lacks Fp1;"):
        eeg.WindowSource(store, windows, patches)


@pytest.mark.parametrize(
    ("window_s", "patch_s", "said"),
    [
        (2.7, 0.5, r"a window of 2\.7 s is no whole number of patches of 0\.5 s; set windows\.window_s to 2\.5,"),
        (0.3, 0.5, r"a window of 0\.3 s holds no patch of 0\.5 s; set windows\.window_s to 0\.5,"),
        (2.0, 0.001, r"patch_s 0\.001 at 200 Hz is 0\.2 samples.*set patches\.patch_s to 0\.005"),
        (2.0, 0.5024, r"patch_s 0\.5024 at 200 Hz is 100\.48 samples.*set patches\.patch_s to 0\.5"),
    ],
)
def test_a_window_is_a_whole_number_of_patches(store: eeg.Store, window_s: float, patch_s: float, said: str) -> None:
    windows = eeg.cut_windows(store, WindowConfig(window_s=window_s, stride_s=1.0))
    with pytest.raises(UserError, match=said):
        eeg.WindowSource(store, windows, PatchConfig(patch_s=patch_s))


def test_missing_and_bad_stretches_are_not_real(tmp_path: Path) -> None:
    data = noise_uv(2, 2000, seed=3)
    data[0] = 0.0  # flat
    onsets_s = [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    write_edf(tmp_path / "sub-a.edf", data, ["C3", "C4"], plus="D", onsets_s=onsets_s)
    store = eeg.prepare([tmp_path], tmp_path / "store")
    assert store.recordings[0].bad_channels == ["C3"]
    windows = eeg.cut_windows(store, WindowConfig(window_s=2.0, stride_s=2.0))
    batch = eeg.WindowSource(store, windows, PATCHES, masking=BLOCKS).batch(np.arange(len(windows)))
    assert len(windows) == 4  # two in each part, none across the gap
    assert not batch["patch_mask"][:, 0].any()
    assert batch["patch_mask"][:, 1].all()
    assert not (batch["masked"] & ~batch["patch_mask"]).any()
    assert all(tensor.isfinite().all() for name, tensor in batch.items() if name != "positions")


def test_baseline_is_the_mean_log_spectrum_of_its_stretch(store: eeg.Store) -> None:
    patches = PATCHES.model_copy(update={"baseline": True})
    spans = [eeg.Span("sub-a.edf", 0.0, 4.0, None, "a"), eeg.Span("sub-b.edf", 0.0, 4.0, None, "b")]
    calibration = eeg.cut_windows(store, WindowConfig(window_s=0.5, stride_s=0.5), spans=spans)
    assert len(calibration) == 16
    baselines = eeg.subject_baselines(store, calibration, patches)
    assert {subject: list(of) for subject, of in baselines.items()} == {
        "a": ["C3", "Cz", "C4"], "b": store.recordings[1].ch_names,
    }  # fmt: skip
    windows = eeg.cut_windows(store, WindowConfig(window_s=4.0, stride_s=4.0))
    source = eeg.WindowSource(store, windows, patches, baselines=baselines)
    batch = source.batch(np.array([0, 5]))
    embedding = eeg.PatchEmbedding(patches, 8, 200.0)
    mean = embedding.log_spectrum(batch).mean(2)  # the calibration itself, less its own mean
    assert mean[0, :3].abs().max() < 1e-5
    assert mean[1].abs().max() < 1e-5
    with pytest.raises(UserError, match="but b has none"):
        eeg.WindowSource(store, windows, patches, baselines={"a": baselines["a"]})
    with pytest.raises(UserError, match="--baseline FILE"):
        eeg.WindowSource(store, windows, patches)


def test_a_channel_without_a_baseline_is_hidden_and_said(store: eeg.Store) -> None:
    patches = PATCHES.model_copy(update={"baseline": True})
    calibration = eeg.cut_windows(store, WindowConfig(window_s=0.5, stride_s=0.5))
    baselines = eeg.subject_baselines(store, calibration, patches)
    del baselines["a"]["Cz"]
    windows = eeg.cut_windows(store, WindowConfig(window_s=2.0, stride_s=2.0))
    with pytest.warns(BothwaysWarning, match="lacks these channels or they are bad there: a: Cz$"):
        source = eeg.WindowSource(store, windows, patches, masking=BLOCKS, baselines=baselines)
    batch = source.batch(np.array([0, 11]))
    assert batch["patch_mask"].any(2).tolist() == [[True, False, True, False], [True] * 4]
    assert batch["baseline"].any(2).tolist() == [[True, False, True, False], [True] * 4]
    assert not batch["masked"][0, 1].any()
    with pytest.raises(UserError, match="but a has none"):
        eeg.WindowSource(store, windows, patches, baselines={**baselines, "a": {}})


def test_a_channel_that_is_bad_anyway_is_no_news(tmp_path: Path) -> None:
    """O1 flat in the one file of a person: no baseline of it, and none wanted; no warning (they are errors here)."""
    data = noise_uv(2, 2000, seed=3)
    data[0] = 0.0
    write_edf(tmp_path / "sub-a.edf", data, ["O1", "O2"])
    store = eeg.prepare([tmp_path], tmp_path / "store")
    patches = PATCHES.model_copy(update={"baseline": True})
    calibration = eeg.cut_windows(store, WindowConfig(window_s=0.5, stride_s=0.5))
    baselines = eeg.subject_baselines(store, calibration, patches)
    assert list(baselines["a"]) == ["O2"]
    windows = eeg.cut_windows(store, WindowConfig(window_s=2.0, stride_s=2.0))
    batch = eeg.WindowSource(store, windows, patches, baselines=baselines).batch(np.array([0, 1]))
    assert batch["patch_mask"].any(2).tolist() == [[False, True]] * 2


def test_windows_without_a_real_patch_are_not_usable(tmp_path: Path) -> None:
    data = noise_uv(2, 2000, seed=3)
    data[:, 350:850] = 0.0  # flat on all channels: missing; half of the patch from 350 to 400
    write_edf(tmp_path / "sub-a.edf", data, ["C3", "C4"])
    store = eeg.prepare([tmp_path], tmp_path / "store")
    windows = eeg.cut_windows(store, WindowConfig(window_s=1.0, stride_s=1.0))
    source = eeg.WindowSource(store, windows, PATCHES)
    found = source.usable()
    assert found.tolist() == source.batch(np.arange(len(windows)))["patch_mask"].any(2).any(1).tolist()
    seen = {int(start): bool(usable) for start, usable in zip(windows.start, found)}
    assert [seen[start] for start in (0, 200, 400, 600, 800, 1000)] == [True, True, False, False, True, True]


def test_baselines_do_not_depend_on_how_many_are_read_at_once(store: eeg.Store) -> None:
    """One window at a time, summed by hand; the 160 windows are read in three calls."""
    calibration = eeg.cut_windows(store, WindowConfig(window_s=0.5, stride_s=0.25))
    assert len(calibration) > 128
    found = eeg.subject_baselines(store, calibration, PATCHES)
    source = eeg.WindowSource(store, calibration, PATCHES)
    embedding = eeg.PatchEmbedding(PATCHES, 8, 200.0)
    rows = [embedding.log_spectrum(source.batch(np.array([i])))[0, :, 0] for i in range(len(calibration))]
    for recording, subject in enumerate("ab"):
        of = np.stack([row.numpy() for row, r in zip(rows, calibration.recording) if r == recording])
        for c, name in enumerate(store.recordings[recording].ch_names):
            np.testing.assert_allclose(found[subject][name], of[:, c].mean(0), rtol=1e-5, atol=1e-5)


def test_standardised_spectrum_has_mean_0_and_sd_1(store: eeg.Store) -> None:
    source = source_of(store)
    embedding = eeg.PatchEmbedding(PATCHES, 8, 200.0)
    eeg.fit_spectrum(embedding, source)
    batch = source.batch(np.arange(len(source)))
    values = embedding.features(batch)["spectrum"][batch["patch_mask"]]
    torch.testing.assert_close(values.mean(0), torch.zeros(values.shape[1]), atol=1e-4, rtol=0)
    torch.testing.assert_close(values.std(0, correction=0), torch.ones(values.shape[1]), atol=1e-3, rtol=0)


def test_log_spectrum_of_a_sine_in_microvolts() -> None:
    """A 10-Hz sine of 20 uV peak has 200 uV²; the Hann window spreads it over 1.5 bins of 1 Hz."""
    embedding = eeg.PatchEmbedding(PatchConfig(patch_s=1.0), 8, 200.0)
    sine = torch.sin(2 * torch.pi * 10 * torch.arange(200) / 200)
    batch = {
        "signals": (sine * 4).view(1, 1, 200),
        "log_scale_uv": torch.full((1, 1), np.log10(5.0), dtype=torch.float32),
        "patch_mask": torch.ones(1, 1, 1, dtype=torch.bool),
    }
    spectrum = embedding.log_spectrum(batch)[0, 0, 0]
    assert int(spectrum.argmax()) == 9  # bins from 1 Hz
    assert 10 ** spectrum[9].item() == pytest.approx(200 / 1.5, rel=1e-4)
    assert float((10**spectrum).sum()) == pytest.approx(200, rel=1e-3)


def tiny_model(store: eeg.Store, patches: PatchConfig) -> Model:
    encoder = EncoderConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    config = ModelConfig(encoder=encoder, patches=patches, signal=store.signal)
    embedding = eeg.build_embedding(config)
    head = HeadConfig(kind="reconstruction", features=embedding.targets)
    model = Model(config.model_copy(update={"heads": {"reconstruction": head}}), embedding).eval()
    model.initialise(0)
    return model


def test_the_reconstruction_error_is_of_patches_hidden_in_no_training_epoch(
    store: eeg.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of(store, masking=BLOCKS)
    model, seen, embedded = tiny_model(store, PATCHES), [], []
    monkeypatch.setattr(source, "batch", lambda ids, epochs=None: seen.append(b := whole(ids, epochs)) or b)
    features = model.embedding.features
    monkeypatch.setattr(model.embedding, "features", lambda batch: embedded.append(1) or features(batch))
    whole = eeg.WindowSource(store, source.windows, PATCHES, masking=BLOCKS).batch
    eeg.reconstruction_errors(model, source, batch_size=100)
    (batch,) = seen
    first = whole(batch["sample_id"].numpy())
    assert torch.equal(batch["signals"], first["signals"])
    assert int((batch["masked"] != first["masked"]).flatten(1).any(1).sum()) == len(source)
    assert len(embedded) == 2  # the model's, and once for all guesses


def test_a_bad_channel_of_a_token_is_left_out_of_the_reconstruction_error(tmp_path: Path) -> None:
    data = noise_uv(3, 4000, seed=3)
    data[0] = 0.0
    write_edf(tmp_path / "sub-a.edf", data, ["O1", "C3", "C4"])
    store = eeg.prepare([tmp_path], tmp_path / "store")
    windows = eeg.cut_windows(store, WindowConfig(window_s=2.0, stride_s=2.0))
    two = PATCHES.model_copy(update={"tokens": "all_channels", "ch_names": ("C3", "C4")})
    three = two.model_copy(update={"ch_names": ("C3", "C4", "O1")})
    model = tiny_model(store, three)
    with torch.no_grad():  # O1 guessed wildly, the others by 0
        linear = model.heads["reconstruction"].linear
        linear.weight.zero_()
        sizes = list(model.embedding.targets.values())
        for part in linear.bias.split(sizes):
            part.view(3, -1)[2] = 1e3
    report = eeg.reconstruction_errors(model, eeg.WindowSource(store, windows, three, masking=BLOCKS))
    assert {guesses["model"] for of in report.values() for guesses in of.values()} == {1.0}
    without = eeg.reconstruction_errors(
        tiny_model(store, two), eeg.WindowSource(store, windows, two, masking=BLOCKS)
    )  # fmt: skip
    for feature, of in report.items():
        for band, guesses in of.items():
            assert guesses["interpolation"] == pytest.approx(without[feature][band]["interpolation"], rel=1e-5)


def test_a_token_is_interpolated_from_each_channels_own_visible_patches() -> None:
    """Three patches, the middle hidden; the first channel's patch before is missing, so the one after counts alone."""
    patches = PatchConfig(patch_s=0.01, tokens="all_channels", ch_names=("C3", "C4"), features=("samples",))
    embedding = eeg.PatchEmbedding(patches, 8, 200.0)
    real = torch.ones(1, 2, 3, dtype=torch.bool)
    real[0, 0, 0] = False
    batch = {
        "signals": torch.tensor([[[9.0, 9, 0, 0, 4, 6], [2.0, 4, 0, 0, 4, 8]]]),
        "patch_mask": real,
        "masked": torch.tensor([[[False, True, False]]]),
    }
    assert _interpolate(embedding, batch)["samples"].tolist() == [[4.0, 6.0, 3.0, 6.0]]


@pytest.mark.parametrize("tokens", ["channel", "all_channels"])
def test_batches_are_what_the_store_reads_bit_for_bit(tmp_path: Path, tokens: str) -> None:
    data = noise_uv(4, 4000)
    data[1, 500:900] = np.nan
    data[2, 1000:1030] = np.nan
    write_fif(tmp_path / "sub-1_raw.fif", data, ["Fp1", "Fp2", "C3", "C4"])
    write_edf(tmp_path / "sub-2.edf", noise_uv(2, 4000, seed=1), ["C3", "Fp2"])
    store = eeg.prepare([tmp_path], tmp_path / "store")
    patches = PatchConfig(tokens=tokens, patch_s=0.5, ch_names=("Fp2", "C3") if tokens == "all_channels" else ())
    windows = eeg.cut_windows(store, WindowConfig(window_s=2, stride_s=1))
    source = eeg.WindowSource(store, windows, patches)
    batch = source.batch(np.arange(len(windows)))
    real = batch["patch_mask"].numpy()
    for i, (recording, start) in enumerate(zip(windows.recording, windows.start)):
        values = store.read(int(recording), int(start), 400)[source.channels[int(recording)]]
        missing = np.isnan(values)
        n = len(values)
        np.testing.assert_array_equal(batch["signals"][i, :n], np.where(missing, 0, values))
        np.testing.assert_array_equal(real[i, :n], missing.reshape(*real[i, :n].shape, -1).mean(2) <= 0.25)
        assert not batch["signals"][i, n:].any()
        assert not real[i, n:].any()
    assert real.any()
    assert not real[:, : len(patches.ch_names) or 4].all()
    np.testing.assert_array_equal(source.usable(), real.any((1, 2)))


def test_steps_are_what_is_stored(store: eeg.Store) -> None:
    steps = store.read_steps(0, 100, 50)
    assert (steps.shape, steps.dtype) == ((3, 50), np.int16)
    np.testing.assert_array_equal(steps * np.float32(STEP), store.read(0, 100, 50))
    with pytest.raises(ValueError, match="read-only"):
        steps[0, 0] = 1
    with pytest.raises(IndexError):
        store.read_steps(0, -1, 5)

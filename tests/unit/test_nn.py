"""A run as a torch module of raw signal: equal to our own pipeline, a gradient everywhere, mistakes in one line."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bothways import nn as bw
from bothways.config import FinetuneConfig, HeadConfig, ModelConfig
from bothways.eeg import PatchEmbedding, WindowSource, build_embedding, hold_trials, read_trials
from bothways.eeg.preprocess import robust_scale
from bothways.errors import BothwaysWarning, UserError
from bothways.model import Model
from bothways.nn import EEGEncoder
from bothways.training import class_probabilities, load_run, save_run
from models import CHANNELS, ENCODER, FORMS, SIGNAL
from recordings import noise_uv

NAMES = ["Fp1", "Fp2", "C3", "O1"]
HZ = SIGNAL.sfreq_hz


def run_of(folder: Path, form: str = "eeg_channels", **patches: Any) -> Path:
    """Writes a run with drawn weights and a spectrum that is standardised by something."""
    config = FORMS[form].config
    assert config.patches is not None
    settings = config.patches.model_copy(update={"baseline": False, **patches})
    bare = ModelConfig(encoder=ENCODER, patches=settings, signal=SIGNAL)
    heads = {"sequence": HeadConfig(kind="sequence", classes=("a", "b", "c"))}
    model = Model(bare.model_copy(update={"heads": heads}), build_embedding(bare))
    model.initialise(3)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(10 if weight.ndim > 1 else 1)  # as drawn, what is seen hardly moves [CLS]
    assert isinstance(model.embedding, PatchEmbedding)
    if model.embedding.spectrum is not None:
        n = len(model.embedding.spectrum_mean)
        model.embedding.set_spectrum_statistics(torch.linspace(0.0, 1.0, n), torch.linspace(0.5, 1.0, n))
    folder.mkdir()
    save_run(folder, model, FinetuneConfig(), {"kind": "finetune"})
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return run_of(tmp_path / "run")


def windows_uv(n: int = 3, n_times: int = 192, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.stack([noise_uv(4, n_times, seed + k) for k in range(n)]))


@pytest.mark.parametrize("pool", ["cls", "mean"])
@pytest.mark.parametrize("form", ["eeg_channels", "eeg_all_channels", "walkthrough"])
def test_features_are_those_of_the_model(tmp_path: Path, form: str, pool: Any) -> None:
    """In float64, with patches worked out by numpy."""
    folder = run_of(tmp_path / "run", form)
    encoder = EEGEncoder(folder, NAMES, sfreq_hz=HZ, unit="uV", pool=pool).double().eval()
    data = windows_uv()
    values = data.numpy()
    median = np.median(values, axis=2, keepdims=True)
    scale = 1.4826 * np.median(np.abs(values - median), axis=2, keepdims=True)
    batch = {
        "signals": torch.as_tensor(np.clip((values - median) / scale, -15, 15)),
        "log_scale_uv": torch.as_tensor(np.log10(scale[..., 0])),
        "positions": encoder.positions.expand(3, -1, -1, -1),
        "patch_mask": torch.ones(3, 4, 6, dtype=torch.bool),
    }
    expected = load_run(folder, build_embedding).double().features(batch, pool)
    np.testing.assert_allclose(encoder(data).detach(), expected.detach(), rtol=0, atol=1e-10)
    assert (expected[0] - expected[1]).abs().max() > 0.01


def test_features_are_those_of_a_prepared_recording(run: Path) -> None:
    """What a store rounds to 16 bits is all that is between them, once the same filters have passed."""
    recording = read_trials(windows_uv(n_times=640).numpy(), NAMES, HZ, "uV")
    store, table = hold_trials(recording, SIGNAL, 0.5, np.arange(3))
    table = type(table)(**{**table.__dict__, "window_samples": 192})  # the model knows 8 patches at most
    prepared = np.stack([store.read(k) * r.scale_uv[:, None] + r.median_uv[:, None] for k, r in
                         enumerate(store.recordings)])[..., :192]  # fmt: skip
    assert not np.isnan(prepared).any()
    model = load_run(run, build_embedding)
    source = WindowSource(store, table, model.config.patches)  # type: ignore[arg-type]
    batch = source.batch(np.arange(3))
    encoder = EEGEncoder(run, NAMES, sfreq_hz=HZ, unit="uV").eval()
    mine = encoder.batch(torch.from_numpy(prepared))
    # Its own scale is the window's, the store's that of ten seconds: in microvolts the two are one.
    both = [b["signals"] * 10 ** b["log_scale_uv"][..., None] for b in (mine, batch)]
    offsets = [one - one.mean(2, keepdim=True) for one in both]
    np.testing.assert_allclose(*offsets, atol=0.03)
    np.testing.assert_array_equal(mine["positions"], batch["positions"])
    np.testing.assert_array_equal(mine["patch_mask"], batch["patch_mask"])


def test_a_whole_trial_has_the_pipelines_features(tmp_path: Path) -> None:
    """The trial is the recording, so the scale is the same too."""
    folder = run_of(tmp_path / "run", positions="sinusoidal")
    recording = read_trials(windows_uv(n_times=640).numpy(), NAMES, HZ, "uV")
    store, table = hold_trials(recording, SIGNAL, 0.5, np.arange(3))
    prepared = np.stack([store.read(k) * r.scale_uv[:, None] + r.median_uv[:, None] for k, r in
                         enumerate(store.recordings)])  # fmt: skip
    model = load_run(folder, build_embedding)
    batch = WindowSource(store, table, model.config.patches).batch(np.arange(3))  # type: ignore[arg-type]
    encoder = EEGEncoder(folder, NAMES, sfreq_hz=HZ, unit="uV").eval()
    expected = model.features(batch)
    difference = (encoder(torch.from_numpy(prepared)) - expected).abs().max()
    assert difference < 1e-2 * (expected[0] - expected[1]).abs().max()


@pytest.mark.parametrize(("unit", "factor"), [("V", 1e6), ("mV", 1e3), ("nV", 1e-3)])
def test_units(run: Path, unit: str, factor: float) -> None:
    one, other = (EEGEncoder(run, NAMES, sfreq_hz=HZ, unit=u).double().eval() for u in ("uV", unit))
    np.testing.assert_allclose(other(windows_uv() / factor).detach(), one(windows_uv()).detach(), rtol=1e-9, atol=1e-12)
    assert not torch.allclose(other(windows_uv()), one(windows_uv()))


@pytest.mark.parametrize("n_outputs", [None, 2])
@pytest.mark.parametrize("form", ["eeg_channels", "eeg_all_channels", "walkthrough"])
def test_every_parameter_gets_a_gradient(tmp_path: Path, form: str, n_outputs: int | None) -> None:
    encoder = EEGEncoder(run_of(tmp_path / "run", form), NAMES, sfreq_hz=HZ, unit="uV", n_outputs=n_outputs)
    X = windows_uv().float().requires_grad_()
    out = encoder(X)
    assert out.shape == (3, n_outputs or ENCODER.hidden_size)
    (out * torch.randn(out.shape, generator=torch.Generator().manual_seed(0))).sum().backward()
    without = [name for name, p in encoder.named_parameters() if p.requires_grad and p.grad is None]
    assert without == []
    frozen = [name for name, p in encoder.named_parameters() if not p.requires_grad]
    assert frozen == ["model.embedding.mask"]
    assert X.grad is not None
    assert bool(torch.isfinite(X.grad).all())
    assert bool((X.grad.abs().sum(2) > 0).all())  # each channel matters


def test_the_gradient_of_the_signal_is_its_slope(run: Path) -> None:
    encoder = EEGEncoder(run, NAMES, sfreq_hz=HZ, unit="uV").double().eval()
    X = windows_uv(1).requires_grad_()
    encoder(X)[0, 0].backward()
    step = torch.zeros_like(X)
    step[0, 2, 100] = 1e-4
    with torch.no_grad():
        slope = (encoder(X + step)[0, 0] - encoder(X - step)[0, 0]) / 2e-4
    assert X.grad is not None
    assert slope.abs() > 1e-7
    assert float(X.grad[0, 2, 100]) == pytest.approx(float(slope), rel=1e-4)


def test_the_runs_own_head(run: Path) -> None:
    encoder = EEGEncoder(run, NAMES, sfreq_hz=HZ, unit="uV", own_head=True).eval()
    assert (encoder.n_outputs, encoder.classes) == (3, ("a", "b", "c"))
    X = windows_uv().float()
    expected = class_probabilities(load_run(run, build_embedding), encoder.batch(X))
    torch.testing.assert_close(encoder(X).softmax(1), expected)
    assert isinstance(encoder.final_layer, torch.nn.Linear)


def test_what_braindecode_asks_for(run: Path) -> None:
    encoder = EEGEncoder(run, NAMES, sfreq_hz=64, unit="uV", n_outputs=2, n_times=192)
    assert (encoder.n_outputs, encoder.n_chans, encoder.n_times, encoder.sfreq) == (2, 4, 192, 64.0)
    assert [one["ch_name"] for one in encoder.chs_info] == NAMES
    assert encoder.input_window_seconds == 3.0
    assert isinstance(encoder.final_layer, torch.nn.Linear)
    assert isinstance(EEGEncoder(run, NAMES, sfreq_hz=64, unit="uV").final_layer, torch.nn.Identity)


def test_the_order_of_channels_goes_with_their_names(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "run", "eeg_all_channels")
    turned = [2, 0, 3, 1]
    one = EEGEncoder(folder, list(CHANNELS), sfreq_hz=HZ, unit="uV").eval()
    other = EEGEncoder(folder, [CHANNELS[k] for k in turned], sfreq_hz=HZ, unit="uV").eval()
    X = windows_uv().float()
    torch.testing.assert_close(other(X[:, turned]), one(X))


def test_channels_that_are_no_eeg_are_left_out_and_said(run: Path) -> None:
    with pytest.warns(BothwaysWarning, match="ECG is left out"):
        encoder = EEGEncoder(run, ["ECG", *NAMES], sfreq_hz=HZ, unit="uV").eval()
    X = windows_uv().float()
    plain = EEGEncoder(run, NAMES, sfreq_hz=HZ, unit="uV").eval()
    torch.testing.assert_close(encoder(torch.cat([X[:, :1] * 9, X], dim=1)), plain(X))


def test_missing_and_still_patches_are_hidden(run: Path) -> None:
    encoder = EEGEncoder(run, NAMES, sfreq_hz=HZ, unit="uV").eval()
    X = windows_uv(1).float()
    X[0, 0, 32:64], X[0, 1], X[0, 2, 0:3], X[0, 3, 64:96] = torch.nan, torch.nan, torch.nan, 7.0
    batch = encoder.batch(X)
    expected = torch.ones(4, 6, dtype=torch.bool)
    expected[0, 1] = expected[3, 2] = expected[1] = False
    assert torch.equal(batch["patch_mask"][0], expected)
    assert bool(torch.isfinite(encoder(X)).all())
    changed = X.clone()
    changed[0, 3, 64:96] = 8.0  # as still as before; only its median takes part
    assert torch.equal(encoder.batch(changed)["patch_mask"], batch["patch_mask"])


@given(
    st.integers(2, 40).flatmap(
        lambda n: st.lists(st.lists(st.integers(-99, 99) | st.none(), min_size=n, max_size=n), min_size=1, max_size=3)
    )
)
def test_the_scale_is_numpys(rows: list[list[int | None]]) -> None:
    data = np.array([[np.nan if value is None else value for value in row] for row in rows], np.float32)
    median, scale = bw.robust_scale(torch.from_numpy(data)[None])
    expected = robust_scale(data)
    np.testing.assert_allclose(median[0], expected[0], rtol=1e-6)
    np.testing.assert_allclose(scale[0], expected[1], rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sfreq_hz": 250}, "the model reads 64 Hz, got 250; resample before"),
        ({"unit": "T"}, "unit: expected one of V, mV, uV, nV, got 'T'"),
        ({"ch_names": ["ECG"]}, "no EEG channels"),
        ({"n_times": 20}, "expected 32 samples or more, a patch of 0.5 s, got 20"),
        ({"own_head": True, "n_outputs": 4}, "the run has 3 classes, got 4"),
    ],
)
def test_what_does_not_fit(run: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        EEGEncoder(run, **({"ch_names": NAMES, "sfreq_hz": HZ, "unit": "uV"} | options))


def test_signal_that_does_not_fit(run: Path, tmp_path: Path) -> None:
    encoder = EEGEncoder(run, NAMES, sfreq_hz=HZ, unit="uV")
    with pytest.raises(UserError, match="expected 4 channels as named, got 3"):
        encoder(windows_uv()[:, :3].float())
    with pytest.raises(UserError, match="expected 32 samples or more"):
        encoder(windows_uv()[..., :20].float())
    with pytest.raises(UserError, match="of which ch_names lacks O1"):
        EEGEncoder(run_of(tmp_path / "all", "eeg_all_channels"), NAMES[:3], sfreq_hz=HZ, unit="uV")
    with pytest.raises(UserError, match="subtracts each person's baseline"):
        EEGEncoder(run_of(tmp_path / "base", baseline=True), NAMES, sfreq_hz=HZ, unit="uV")

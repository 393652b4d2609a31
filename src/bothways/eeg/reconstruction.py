"""How well hidden patches are rebuilt, per frequency band, beside two guesses that need no model."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from bothways.eeg.dataset import WindowSource
from bothways.eeg.patches import PatchEmbedding
from bothways.heads import Reconstruction
from bothways.model import Model

TEST_EPOCH = 2**31 - 1
"""The epoch whose masks are tested on: no training comes so far, so that other patches are hidden than in training."""
BANDS_HZ = {"delta": (1, 4), "theta": (4, 8), "alpha": (8, 13), "beta": (13, 30), "gamma": (30, 45)}


@torch.no_grad()
def reconstruction_errors(
    model: Model, source: WindowSource, *, batch_size: int = 32, most_windows: int = 512
) -> dict[str, dict[str, dict[str, float]]]:
    """Measures the squared error on hidden patches, as a share of the zero guess's.

    The guesses: *zero* (the median signal, the mean spectrum; 1.0 by definition), and *interpolation*: from the
    visible electrodes at the same moment, weighted by 1 / distance²; where a token holds all channels, from the
    nearest visible patches before and after. Channels that are not real in a token do not count.

    Args:
        model: with a `reconstruction` head; in eval mode.
        source: with masking.
        batch_size: windows at a time.
        most_windows: evenly spread over the table.

    Returns:
        feature (`samples`, `spectrum`) -> band -> guess (`model`, `interpolation`, `zero`) -> relative error.
        Bands in which the patches have no frequency are absent.
    """
    embedding, head = model.embedding, model.heads["reconstruction"]
    assert isinstance(embedding, PatchEmbedding)
    assert isinstance(head, Reconstruction)
    device = next(model.parameters()).device
    ids = np.unique(np.linspace(0, len(source) - 1, min(len(source), most_windows)).round().astype(np.int64))
    sums: dict[tuple[str, str, str], float] = {}
    for chunk in np.array_split(ids, -(-len(ids) // batch_size)):
        epochs = np.full_like(chunk, TEST_EPOCH)
        batch = {name: tensor.to(device) for name, tensor in source.batch(chunk, epochs).items()}
        output = model(batch, with_losses=False)
        guesses = _interpolate(embedding, batch)
        for name, rebuilt in head.split(output.predictions["reconstruction"]).items():
            truth = output.embedded.targets[name]
            real = output.embedded.targets_real.get(name, torch.ones_like(truth, dtype=torch.bool))
            tried = {"model": rebuilt.float(), "interpolation": guesses[name], "zero": torch.zeros_like(truth)}
            for guess, values in tried.items():
                for band, error in _band_power((values - truth) * real, name, embedding).items():
                    sums[name, band, guess] = sums.get((name, band, guess), 0.0) + error
    report: dict[str, dict[str, dict[str, float]]] = {}
    for (name, band, guess), error in sums.items():
        zero = sums[name, band, "zero"]
        if zero > 0:
            report.setdefault(name, {}).setdefault(band, {})[guess] = error / zero
    return report


def _band_power(error: Float[Tensor, "R F"], feature: str, embedding: PatchEmbedding) -> dict[str, float]:
    """Sums a feature's squared error over the frequencies of each band."""
    if feature == "samples":
        error = error.unflatten(1, (-1, embedding.patch_samples))  # [R C P]
        power = torch.fft.rfft(error.float()).abs() ** 2
        frequencies_hz = np.fft.rfftfreq(embedding.patch_samples, 1 / embedding.sfreq_hz)
    else:
        assert embedding.spectrum is not None
        frequencies_hz = embedding.spectrum.frequencies_hz
        power = error.unflatten(1, (-1, len(frequencies_hz))) ** 2
    inside = {band: (frequencies_hz >= low) & (frequencies_hz < high) for band, (low, high) in BANDS_HZ.items()}
    return {band: float(power[..., torch.from_numpy(kept)].sum()) for band, kept in inside.items() if kept.any()}


def _interpolate(embedding: PatchEmbedding, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Guesses the masked positions' features from visible ones: name -> [R F]."""
    everything = embedding.features(batch)
    features = {name: everything[name] for name in embedding.targets}  # [B C N f]
    masked = batch["masked"]  # [B G N]
    if embedding.together:
        visible = ~masked & batch["patch_mask"]  # [B C N]
        n_patches = visible.shape[2]
        apart = torch.arange(n_patches, device=masked.device)
        gap = (apart[:, None] - apart[None]).abs().to(torch.float32)  # [N N]
        weights = []
        for side in (apart[:, None] > apart[None], apart[:, None] < apart[None]):
            near = torch.where(side & visible[:, :, None], 1 / gap.clamp_min(1), 0.0)  # [B C N N]
            weights.append(near * (near == near.amax(3, keepdim=True)))
        weight = weights[0] + weights[1]
        weight = weight / weight.sum(3, keepdim=True).clamp_min(1e-12)
        between = {name: torch.einsum("bcnm,bcmf->bncf", weight, f).flatten(2) for name, f in features.items()}
        return {str(name): guess[masked[:, 0]] for name, guess in between.items()}
    place = batch["positions"][:, :, 0].nan_to_num(nan=torch.inf)  # [B C 3]
    apart = (place[:, :, None] - place[:, None]).norm(dim=3)  # [B C C]
    near = torch.where(torch.isfinite(apart) & (apart > 0), 1 / apart.clamp_min(1e-6) ** 2, 0.0)
    visible = (~masked & batch["patch_mask"]).to(near.dtype)  # [B C N]
    weight = near[:, :, :, None] * visible[:, None]  # [B C from N]
    weight = weight / weight.sum(2, keepdim=True).clamp_min(1e-12)
    guesses: dict[str, Tensor] = {}
    for name, feature in features.items():
        scale = 10 ** batch["log_scale_uv"][:, :, None, None] if name == "samples" else torch.ones(1, 1, 1, 1)
        scale = scale.to(feature)  # neighbours speak in microvolts, not in their own SDs
        guess = torch.einsum("bcdn,bdnf->bcnf", weight, feature * scale) / scale
        guesses[name] = guess[masked]
    return guesses

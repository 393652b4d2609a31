"""The EEG front end: a batch of windows becomes [CLS] and patches, each a vector of content plus its place."""

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from bothways.config import ModelConfig, PatchConfig
from bothways.encoder import Embedded
from bothways.errors import UserError
from bothways.masking import Action

FLOOR_UV2_HZ = 1e-4
"""Added to the power density before the logarithm: far below any EEG, above the noise of 16-bit storage."""
MOST_PATCH_SAMPLES = 10**6
MOST_WAVES = 10**7
"""Numbers of the matrix that makes a patch's spectrum: a damaged config states any size."""
N_WAVES = 4
"""Octaves of the waves that code an electrode's place; the finest has a wavelength of a quarter head radius."""


class LogSpectrum(nn.Module):
    """Log10 power spectral density of each patch, in microvolts squared per hertz.

    One periodogram with a Hann window (Welch 1967), as a matrix product; the logarithm brings EEG power close to a
    normal distribution (Gasser et al. 1982).
    """

    waves: Tensor

    def __init__(self, patch_samples: int, sfreq_hz: float, band_hz: tuple[float, float]) -> None:
        super().__init__()
        frequencies = np.fft.rfftfreq(patch_samples, 1 / sfreq_hz)
        kept = (frequencies >= band_hz[0] - 1e-9) & (frequencies <= band_hz[1] + 1e-9)
        self.frequencies_hz = frequencies[kept]
        if not kept.any():
            raise UserError(
                f"spectrum_hz {band_hz[0]:g}-{band_hz[1]:g}: a patch of {patch_samples / sfreq_hz:g} s has no "
                "frequency there; widen spectrum_hz or lengthen patch_s"
            )
        if 2 * patch_samples * int(kept.sum()) > MOST_WAVES:
            raise UserError(
                f"spectrum_hz {band_hz[0]:g}-{band_hz[1]:g}: {kept.sum()} frequencies of {patch_samples} samples are "
                f"over {MOST_WAVES} numbers; narrow spectrum_hz or shorten patch_s"
            )
        window = np.hanning(patch_samples + 1)[:-1]
        scale = math.sqrt(2 / (sfreq_hz * (window**2).sum()))
        phase = 2 * np.pi * np.outer(np.arange(patch_samples) / sfreq_hz, self.frequencies_hz)
        waves = np.concatenate([np.cos(phase), np.sin(phase)], axis=1) * window[:, None] * scale  # [P 2F]
        self.register_buffer("waves", torch.tensor(waves, dtype=torch.float32), persistent=False)

    def forward(self, samples: Float[Tensor, "B C N P"], log_scale_uv: Float[Tensor, "B C"]) -> Tensor:
        """Returns [B C N F] from samples in robust SD units and the log10 of the SD in microvolts."""
        with torch.autocast(samples.device.type, enabled=False):
            real, imaginary = (samples @ self.waves.to(samples.dtype)).chunk(2, dim=-1)
            power = (real**2 + imaginary**2) * 10 ** (2 * log_scale_uv[:, :, None, None])
            return (power + FLOOR_UV2_HZ).log10()


class PatchEmbedding(nn.Module):
    """[CLS] and patches with their places, some of them hidden (He et al. 2022; Jiang et al. 2024, LaBraM).

    Two forms: one token per channel and patch (any montage; the place is a wave code of the electrode's coordinates
    and the position in time), or all channels of a patch flattened in one token (a fixed list of channels).
    A patch that is not real is no token in the first form. In the second the channel's part of the token is 0 (the
    median signal, the mean spectrum) and does not count in the loss.

    Args:
        config: patch settings; for `all_channels` with its channel names filled in.
        hidden_size: D.
        sfreq_hz: rate of the windows.
    """

    spectrum_mean: Tensor
    spectrum_sd: Tensor

    def __init__(self, config: PatchConfig, hidden_size: int, sfreq_hz: float) -> None:
        super().__init__()
        patch_samples = config.patch_s * sfreq_hz
        if patch_samples > MOST_PATCH_SAMPLES:
            raise UserError(
                f"patch_s {config.patch_s:g} at {sfreq_hz:g} Hz is over {MOST_PATCH_SAMPLES} samples; shorten patch_s"
            )
        if abs(patch_samples - round(patch_samples)) > 1e-6 or round(patch_samples) < 1:
            raise UserError(
                f"patch_s {config.patch_s:g} at {sfreq_hz:g} Hz is {patch_samples:g} samples; "
                "choose a patch_s that gives a whole number"
            )
        self.config = config
        self.sfreq_hz, self.patch_samples = sfreq_hz, round(patch_samples)
        self.together = config.tokens == "all_channels"
        if self.together and not config.ch_names:
            raise UserError('tokens = "all_channels" needs ch_names; give the list of channels in the recipe')
        self.spectrum = (
            LogSpectrum(self.patch_samples, sfreq_hz, config.spectrum_hz) if "spectrum" in config.features else None
        )
        n_bins = len(self.spectrum.frequencies_hz) if self.spectrum else 0
        n_channels = len(config.ch_names) if self.together else 1
        sizes = {"samples": self.patch_samples, "spectrum": n_bins, "amplitude": 1}
        self.sizes: dict[str, int] = {name: sizes[name] * n_channels for name in config.features}
        self.targets: dict[str, int] = {name: size for name, size in self.sizes.items() if name != "amplitude"}

        self.patch = nn.Linear(sum(self.sizes.values()), hidden_size)
        self.cls = nn.Parameter(torch.empty(hidden_size))
        self.mask = nn.Parameter(torch.empty(hidden_size))
        for vector in (self.cls, self.mask):
            nn.init.normal_(vector, std=0.02)
        if config.positions == "learned":
            self.time = nn.Embedding(config.max_patches + 1, hidden_size)
        if not self.together:
            n_place = 3 * (1 + 2 * N_WAVES)
            self.anode = nn.Linear(n_place, hidden_size)
            self.cathode = nn.Linear(n_place, hidden_size, bias=False)
            self.no_position = nn.Parameter(torch.empty(hidden_size))
            nn.init.normal_(self.no_position, std=0.02)
        if self.spectrum is not None:
            self.register_buffer("spectrum_mean", torch.zeros(n_bins))
            self.register_buffer("spectrum_sd", torch.ones(n_bins))
        self.patches, self.E_patch, self.Z0, self.Z = nn.Identity(), nn.Identity(), nn.Identity(), nn.Identity()

    def features(self, batch: Mapping[str, Tensor]) -> dict[str, Float[Tensor, "B C N f"]]:
        """Computes each feature of each patch; zero where a patch is not real."""
        signals = batch["signals"]
        samples = signals.unflatten(2, (-1, self.patch_samples))  # [B C N P]
        features: dict[str, Tensor] = {}
        for name in self.config.features:
            if name == "samples":
                features[name] = samples
            elif name == "spectrum":
                features[name] = self._standard_spectrum(samples, batch)
            else:
                amplitude = batch["log_scale_uv"][:, :, None, None] - 1  # about 0 at 10 uV
                features[name] = amplitude.expand(*samples.shape[:3], 1)
        real = batch["patch_mask"][..., None]
        return {name: torch.where(real, feature, 0.0) for name, feature in features.items()}

    def log_spectrum(self, batch: Mapping[str, Tensor]) -> Float[Tensor, "B C N F"]:
        """Returns log10 uV²/Hz of each patch, less the subject's baseline where the model uses one."""
        assert self.spectrum is not None
        samples = batch["signals"].unflatten(2, (-1, self.patch_samples))
        spectrum = self.spectrum(samples, batch["log_scale_uv"])
        return spectrum - batch["baseline"][:, :, None] if self.config.baseline else spectrum

    def _standard_spectrum(self, samples: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        return (self.log_spectrum(batch) - self.spectrum_mean) / self.spectrum_sd

    @torch.no_grad()
    def set_spectrum_statistics(self, mean: Float[Tensor, " F"], sd: Float[Tensor, " F"]) -> None:
        """Keeps what `log_spectrum` is standardised by: its mean and SD over the training patches."""
        self.spectrum_mean.copy_(mean)
        self.spectrum_sd.copy_(sd.clamp_min(1e-3))

    def forward(self, batch: Mapping[str, Tensor]) -> Embedded:
        """Embeds a batch; without a mask where all patches are real. See `embed`."""
        return self.embed(batch).without_idle_mask()

    def embed(self, batch: Mapping[str, Tensor]) -> Embedded:
        """Embeds a batch; where nothing is hidden, what is computed does not depend on its values.

        Args:
            batch: `signals` [B C S] (robust SD units, S a whole number of patches), `log_scale_uv` [B C],
                `positions` [B C 2 3], `patch_mask` [B C N], and where positions are hidden `masked`, `action`,
                `replacement` [B G N].

        Returns:
            L = 1 + G·N positions, [CLS] first, then channel by channel (G = C, or 1 for all channels together), and
            M = 1 + N moments.
        """
        # No parameter lies before `patch`; only who asks what a sample does to the output wants a gradient there.
        with torch.set_grad_enabled(torch.is_grad_enabled() and batch["signals"].requires_grad):
            features = self.features(batch)
            real = batch["patch_mask"]  # [B C N]
            if self.together:
                features = {name: f.transpose(1, 2).flatten(2)[:, None] for name, f in features.items()}  # [B 1 N C·f]
                real = real.any(1, keepdim=True)  # [B 1 N]
            features = {name: feature.flatten(1, 2) for name, feature in features.items()}  # [B T f]
            tokens = self.patches(torch.cat([features[name] for name in self.config.features], dim=2))
        content = self.E_patch(self.patch(tokens))  # [B T D]
        place = self._place(batch, real.shape)  # [B L D]
        cls = self.cls.expand(content.shape[0], 1, -1)
        self.Z0(torch.cat([cls, content], dim=1) + place)
        masked = batch.get("masked")
        targets: dict[str, Tensor] = {}
        targets_real: dict[str, Tensor] = {}
        if masked is not None:
            masked = masked.flatten(1)  # [B T]
            targets = {name: features[name][masked] for name in self.targets}
            if self.together and not bool(batch["patch_mask"].all()):
                channels = batch["patch_mask"].transpose(1, 2)[masked]  # [R C]
                n_channels = channels.shape[1]
                targets_real = {
                    name: channels.repeat_interleave(size // n_channels, dim=1) for name, size in self.targets.items()
                }
            content = self._hide(content, batch)
            masked = torch.cat([torch.zeros_like(masked[:, :1]), masked], dim=1)  # [B L]
        hidden = self.Z(torch.cat([cls, content], dim=1) + place)
        attention_mask = torch.cat([torch.ones_like(real[:, 0, :1]), real.flatten(1)], dim=1)  # [B L]
        moments = torch.arange(1, real.shape[2] + 1, device=real.device).repeat(real.shape[1])  # [T]
        return Embedded(
            hidden,
            attention_mask,
            masked,
            place,
            targets,
            targets_real,
            moments=torch.cat([moments.new_zeros(1), moments]),
        )

    def _hide(self, content: Float[Tensor, "B T D"], batch: Mapping[str, Tensor]) -> Float[Tensor, "B T D"]:
        action = batch["action"].flatten(1)[..., None]  # [B T 1]
        other = batch["replacement"].flatten(1)[..., None].expand_as(content)
        content = torch.where(action == Action.RANDOM, content.gather(1, other), content)
        return torch.where(action == Action.MASK, self.mask.to(content.dtype), content)

    def _place(self, batch: Mapping[str, Tensor], shape: torch.Size) -> Float[Tensor, "B L D"]:
        """Returns the places in the weights' precision, also where the rest is computed in a lower one."""
        n_batch, n_groups, n_patches = shape
        weight = self.patch.weight
        if self.config.positions == "learned":
            if n_patches > self.config.max_patches:
                raise UserError(
                    f"a window of {n_patches} patches is longer than max_patches {self.config.max_patches}; "
                    "shorten window_s, or train with a larger max_patches or sinusoidal positions"
                )
            time = self.time.weight[: n_patches + 1]
        else:
            # A symbol of a model that is traced is no key of a cache.
            code = sinusoids if isinstance(n_patches, int) else position_code
            time = code(n_patches + 1, weight.shape[0]).to(weight)
        place = time[1:].repeat(n_groups, 1).expand(n_batch, -1, -1)  # [B T D]
        if not self.together:
            with torch.autocast(weight.device.type, enabled=False):
                where = self._electrodes(batch["positions"])  # [B C D]
            place = place + where[:, :, None].expand(-1, -1, n_patches, -1).flatten(1, 2)  # [B T D]
        return torch.cat([time[:1].expand(n_batch, 1, -1), place], dim=1)

    def _electrodes(self, positions: Float[Tensor, "B C 2 3"]) -> Float[Tensor, "B C D"]:
        known: Bool[Tensor, "B C 2 1"] = ~positions.isnan().any(-1, keepdim=True)
        # At least float32: bfloat16 would turn the finest wave by a tenth of a radian.
        xyz = positions.to(torch.promote_types(self.anode.weight.dtype, torch.float32)).nan_to_num()
        waves = torch.cat([xyz * (math.pi * 2**k) for k in range(N_WAVES)], dim=-1)  # [B C 2 3·waves]
        code = (torch.cat([xyz, waves.sin(), waves.cos()], dim=-1) * known).to(self.anode.weight)
        anode = torch.where(known[:, :, 0], self.anode(code[:, :, 0]), self.no_position)
        return anode + self.cathode(code[:, :, 1])


def position_code(length: int | torch.SymInt, size: int) -> Float[Tensor, "length size"]:
    """Returns the sinusoidal position code (Vaswani et al. 2017, section 3.5), in float64."""
    position = torch.arange(length, dtype=torch.float64)[:, None]  # type: ignore[arg-type]
    rates = torch.exp(-math.log(10000.0) * torch.arange(0, size, 2, dtype=torch.float64) / size)
    angles = position * rates
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)[:, :size]


@lru_cache(maxsize=16)
def sinusoids(length: int, size: int) -> Float[Tensor, "length size"]:
    """Returns `position_code`, one tensor for all who ask: not to be changed in place."""
    return position_code(length, size)


def build_embedding(config: ModelConfig) -> PatchEmbedding:
    """Makes the front end of an EEG model.

    Raises:
        UserError: it is a model of text.
    """
    if config.patches is None or config.signal is None:
        raise UserError("expected a model of EEG, got one of text; choose a run of `bothways eeg`")
    embedding = PatchEmbedding(config.patches, config.encoder.hidden_size, config.signal.sfreq_hz)
    if config.heads and not any("reconstruction" in head.kind for head in config.heads.values()):
        embedding.mask.requires_grad_(False)  # nothing is hidden: several processes would wait for its gradient
    return embedding

"""The encoder as a plain torch module of raw signal, as braindecode and other tools expect one."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from bothways import eeg
from bothways.errors import BothwaysWarning, UserError
from bothways.heads import Sequence as SequenceHead
from bothways.model import Model
from bothways.training import load_run, run_at

__all__ = ["EEGEncoder"]


class EEGEncoder(nn.Module):
    """Raw signal [B C T] to features or classes [B …], with the weights of a run; differentiable on any device.

    It cuts patches and scales, and that is all: filters, mains, reference and rate are to be as `signal` says before,
    for whole recordings, as braindecode's preprocessing does it. Each window is scaled by its own median and robust SD
    (a recording's, in a store), which goes into the spectrum and the amplitude again; NaN is missing, and a patch of a
    channel that does not move is hidden.

    Args:
        pretrained: a run of `bothways eeg`, or a checkpoint of one.
        ch_names: of the channels of X, in its order; what is no scalp EEG by its name is left out, with a warning.
        sfreq_hz: the rate of X, which has to be the model's.
        unit: the unit of X: `V`, `mV`, `uV` or `nV`.
        n_outputs: of `final_layer`, a new linear layer; None = features, `final_layer` does nothing.
        pool: what the features are: [CLS], or the mean of the patches.
        own_head: `final_layer` is that of a fine-tuned run, trained; `classes` names its outputs.
        n_times: samples of X, where tools ask for it; what is more than whole patches is left out.

    Attributes:
        final_layer: what makes outputs of features [B D].
        n_outputs, n_chans, n_times, sfreq, chs_info, input_window_seconds: braindecode's names.
        signal: the contract that X has to keep.

    Raises:
        UserError: the run is no EEG model, needs a baseline or channels that are not there, or something given does not
            fit it.
    """

    picks: Tensor
    positions: Tensor

    def __init__(
        self,
        pretrained: str | Path,
        ch_names: Sequence[str],
        *,
        sfreq_hz: float | int,
        unit: str,
        n_outputs: int | None = None,
        pool: Literal["cls", "mean"] = "cls",
        own_head: bool = False,
        n_times: int | None = None,
    ) -> None:
        super().__init__()
        folder = run_at(Path(pretrained))
        model = load_run(folder, eeg.build_embedding)
        signal, patches = model.config.signal, model.config.patches
        assert signal is not None
        assert patches is not None
        assert isinstance(model.embedding, eeg.PatchEmbedding)
        if patches.baseline:
            raise UserError(f"{folder}: the model subtracts each person's baseline, which signal alone does not have")
        if abs(sfreq_hz - signal.sfreq_hz) > 1e-6:
            raise UserError(
                f"sfreq_hz: the model reads {signal.sfreq_hz:g} Hz, got {sfreq_hz:g}; resample before "
                f"(mne: raw.resample({signal.sfreq_hz:g}))"
            )
        # What the names mean is known to recordings alone; their samples play no part.
        like = eeg.from_array(np.zeros((len(ch_names), 1)), ch_names, sfreq_hz, unit=unit, name="ch_names")
        said = [f"{name} is left out ({why})" for name, why in like.left_out.items()]
        for message in said + [note.message for note in like.notes]:
            warnings.warn(f"ch_names: {message}", BothwaysWarning, stacklevel=2)
        order = [like.ch_names.index(name) for name in _needed(patches.ch_names, like.ch_names, folder)]
        picks = [list(ch_names).index(like.file_names[index]) for index in order]
        self.register_buffer("picks", torch.tensor(picks), persistent=False)
        self.register_buffer("positions", torch.from_numpy(like.positions[order]), persistent=False)

        self.signal, self.unit, self.pool, self.patch_samples = signal, unit, pool, model.embedding.patch_samples
        self.unit_uv = eeg.unit_in_uv(unit) or 1.0  # from_array has refused what is no unit
        self.classes: tuple[str, ...] = ()
        model.embedding.mask.requires_grad_(False)  # nothing is hidden here
        size = model.config.encoder.hidden_size
        self.final_layer: nn.Module = nn.Identity() if n_outputs is None else nn.Linear(size, n_outputs)
        if own_head:
            self._take_head(model, folder, n_outputs)
        elif isinstance(self.final_layer, nn.Linear):
            nn.init.normal_(self.final_layer.weight, std=model.config.encoder.initializer_range)
            nn.init.zeros_(self.final_layer.bias)
        model.heads = nn.ModuleDict()
        self.model = model
        self.n_outputs = self.final_layer.out_features if isinstance(self.final_layer, nn.Linear) else size
        self.n_chans, self.n_times, self.sfreq = len(ch_names), n_times, signal.sfreq_hz
        self.input_window_seconds = None if n_times is None else n_times / signal.sfreq_hz
        self.chs_info = [{"ch_name": name} for name in ch_names]
        if n_times is not None:
            self._check_times(n_times)

    def _take_head(self, model: Model, folder: Path, n_outputs: int | None) -> None:
        head = dict(model.heads.items()).get("sequence")
        if not isinstance(head, SequenceHead) or model.config.pooler:
            raise UserError(f"{folder}: own_head needs a fine-tuned run, this one has no classes; give n_outputs")
        if head.config.pool == "attention":
            raise UserError(f'{folder}: own_head takes pool = "cls" or "mean", got "attention"; give n_outputs')
        if n_outputs not in (None, len(head.config.classes)):
            raise UserError(f"n_outputs: the run has {len(head.config.classes)} classes, got {n_outputs}; leave it out")
        self.final_layer, self.classes, self.pool = head.linear, head.config.classes, head.config.pool

    def _check_times(self, n_times: int) -> None:
        if n_times < self.patch_samples:
            raise UserError(
                f"expected {self.patch_samples} samples or more, a patch of {self.patch_samples / self.sfreq:g} s, got "
                f"{n_times}; cut longer windows"
            )

    def forward(self, X: Float[Tensor, "B C T"]) -> Float[Tensor, "B O"]:
        """Returns what `final_layer` makes of the features.

        Raises:
            UserError: another number of channels than named, or less than a patch.
        """
        return self.final_layer(self.features(X))

    def features(self, X: Float[Tensor, "B C T"]) -> Float[Tensor, "B D"]:
        """Returns the encoder's vector of each window.

        Raises:
            UserError: see `forward`.
        """
        if X.shape[1] != self.n_chans:
            raise UserError(f"expected {self.n_chans} channels as named, got {X.shape[1]}; pick them in that order")
        self._check_times(X.shape[2])
        return self.model.features(self.batch(X), self.pool)

    def batch(self, X: Float[Tensor, "B C T"]) -> dict[str, Tensor]:
        """Returns signal as the embedding wants it: patches in robust SD units, with what they were scaled by."""
        n = X.shape[2] // self.patch_samples * self.patch_samples
        data_uv = X[:, self.picks, :n] * self.unit_uv
        missing = data_uv.isnan()
        median_uv, scale_uv = robust_scale(data_uv)
        signals = ((data_uv - median_uv[..., None]) / scale_uv[..., None]).clamp(-eeg.CLIP, eeg.CLIP)
        patches, absent = (one.unflatten(2, (-1, self.patch_samples)) for one in (data_uv, missing))
        still = patches.nan_to_num(0).amax(3) == patches.nan_to_num(0).amin(3)
        real = (absent.to(X.dtype).mean(3) <= eeg.MOST_MISSING) & ~still
        return {
            "signals": signals.masked_fill(missing, 0),
            "log_scale_uv": scale_uv.clamp_min(1e-3).log10(),
            "positions": self.positions.expand(len(X), -1, -1, -1),
            "patch_mask": real,
        }


def robust_scale(data: Float[Tensor, "B C T"]) -> tuple[Float[Tensor, "B C"], Float[Tensor, "B C"]]:
    """Returns each channel's median and robust SD as a store has them (`eeg.preprocess.robust_scale`), NaN left out."""
    data = data[..., :: max(1, data.shape[2] // eeg.SCALE_SAMPLES)]
    middle = nan_median(data)
    scale = 1.4826 * nan_median((data - middle[..., None]).abs())
    there = ~data.isnan()
    n = there.sum(2).clamp_min(1)
    centred = torch.where(there, data - (data.nan_to_num(0).sum(2) / n)[..., None], 0.0)
    # The root of 0 has no slope, and would make all gradients NaN.
    variance = (centred**2).sum(2) / n
    plain = torch.where(variance > 1e-12, variance, 1.0).sqrt()
    return middle, torch.where(scale < 1e-6, plain, scale)


def nan_median(data: Float[Tensor, "B C T"]) -> Float[Tensor, "B C"]:
    """Returns medians of what is there, of an even number the mean of the middle two, as numpy does; 0 of nothing."""
    ordered = data.sort(2).values  # NaN last
    n = (~data.isnan()).sum(2, keepdim=True)
    low, high = ((n - 1).clamp_min(0) // 2), (n // 2).clamp_max(data.shape[2] - 1)
    middle = (ordered.gather(2, low) + ordered.gather(2, high)).squeeze(2) / 2
    return torch.where(n.squeeze(2) > 0, middle, 0.0)


def _needed(wanted: Sequence[str], there: Sequence[str], folder: Path) -> Sequence[str]:
    """Returns the names of the channels in the model's order."""
    if lacking := [name for name in wanted if name not in there]:
        raise UserError(
            f"{folder}: the model's patches hold {len(wanted)} fixed channels, of which ch_names lacks "
            f'{", ".join(lacking)}; take a model with tokens = "channel"'
        )
    return wanted or there

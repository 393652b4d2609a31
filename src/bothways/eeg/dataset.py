"""Windows of a store as batches: read, hide bad stretches, draw masks; all functions of (seed, epoch, window)."""

import warnings
from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int
from torch import Tensor

from bothways.config import MaskingConfig, PatchConfig, Task
from bothways.draws import generator
from bothways.eeg.labels import Windows
from bothways.eeg.patches import LogSpectrum, PatchEmbedding
from bothways.eeg.store import MISSING, STEP, Store
from bothways.eeg.tracks import Track, moment_labels, one_event
from bothways.errors import BothwaysWarning, UserError
from bothways.heads import IGNORED
from bothways.masking import actions, block_positions, neighbours, random_positions

MOST_MISSING = 0.25
"""A patch with a larger share of missing samples is not real; in others the missing samples are 0, the median."""

Baselines = Mapping[str, Mapping[str, Float[np.ndarray, " F"]]]
"""Subject -> channel -> mean log10 spectrum (uV²/Hz) of the calibration stretch."""


class WindowSource:
    """A table of windows as the training room wants it: `len`, `batch`, `names`.

    Args:
        store: where the signals lie.
        windows: what to cut; `window_samples` of it is a whole number of patches.
        patches: the model's patch settings; for `all_channels` with `ch_names`.
        masking: what to hide; None = nothing, for fine-tuning and prediction.
        seed: of masks and jitter.
        jitter_s: largest shift of a window's start, within its segment and label.
        task: what is labelled: `window` (`labels` [B]), `moment` (`position_labels` [B M], M = 1 + patches),
            or the onset and end of one `event` (`span_labels` [B 2]; see `tracks.one_event`).
        codes: the numbers that each label of a window stands for; then `targets` [B t] instead of `labels`, NaN =
            nothing is known.
        background: the class that is no event.
        baselines: needed where `patches.baseline`. A channel that a subject's baseline lacks is not real in that
            subject's windows; a `BothwaysWarning` names it.

    Raises:
        UserError: channels that the model needs are missing, a subject has no baseline (all are named), or a window
            is no whole number of patches.
    """

    def __init__(
        self,
        store: Store,
        windows: Windows,
        patches: PatchConfig,
        *,
        masking: MaskingConfig | None = None,
        seed: int = 0,
        jitter_s: float = 0.0,
        task: Task = "window",
        codes: Float[np.ndarray, "K t"] | None = None,
        background: str | None = None,
        baselines: Baselines | None = None,
    ) -> None:
        self.store, self.windows, self.patches, self.masking, self.seed = store, windows, patches, masking, seed
        self.patch_samples = self._patch_samples()
        self.n_patches = windows.window_samples // self.patch_samples
        self.jitter_samples = round(jitter_s * store.signal.sfreq_hz)
        self.baselines, self.task, self.codes = baselines, task, codes
        self.background = windows.classes.index(background) if background in windows.classes else None
        self.together = patches.tokens == "all_channels"
        used = np.unique(windows.recording)
        self.channels = {int(r): self._channels(int(r)) for r in used}
        self.positions = {int(r): self._positions(int(r)) for r in used}
        self.log_scales_uv = {int(r): self._log_scale_uv(int(r)) for r in used}
        self.near = {int(r): self._near(int(r)) for r in used}
        if patches.baseline:
            self._check_baselines()
        pairs = sorted(set(zip(windows.recording.tolist(), windows.subject.tolist())))
        self.good = {pair: self._good(*pair) for pair in pairs}

    def __len__(self) -> int:
        return len(self.windows)

    def names(self, ids: Int[np.ndarray, " B"]) -> list[str]:
        """Returns the files that the windows come from."""
        return [self.store.recordings[r].file for r in self.windows.recording[ids]]

    def batch(self, ids: Int[np.ndarray, " B"], epochs: Int[np.ndarray, " B"] | None = None) -> dict[str, Tensor]:
        """Reads windows; see docs/architecture.md for the tensors. Channels are padded to the most of the batch."""
        epochs = np.zeros_like(ids) if epochs is None else epochs
        recordings = self.windows.recording[ids]
        most = max(len(self.channels[int(r)]) for r in recordings)
        n_batch, n_samples = len(ids), self.n_patches * self.patch_samples
        signals = np.zeros((n_batch, most, n_samples), dtype=np.float32)
        real = np.zeros((n_batch, most, self.n_patches), dtype=bool)
        log_scale_uv = np.zeros((n_batch, most), dtype=np.float32)
        positions = np.full((n_batch, most, 2, 3), np.nan, dtype=np.float32)
        starts = [self._start(window, epoch) for window, epoch in zip(ids.tolist(), epochs.tolist())]
        for i, (window, start, recording) in enumerate(zip(ids.tolist(), starts, recordings.tolist())):
            n = len(self.channels[recording])
            real[i, :n] = self._read(window, start, signals[i, :n])
            log_scale_uv[i, :n] = self.log_scales_uv[recording]
            positions[i, :n] = self.positions[recording]
        batch = {
            "signals": torch.from_numpy(signals),
            "patch_mask": torch.from_numpy(real),
            "log_scale_uv": torch.from_numpy(log_scale_uv),
            "positions": torch.from_numpy(positions),
            "sample_id": torch.from_numpy(ids.astype(np.int64)),
            **self._labels(ids, recordings, starts),
        }
        if self.patches.baseline:
            batch["baseline"] = torch.from_numpy(self._baseline_of(ids, most))
        if self.masking is not None:
            batch |= self._masks(ids, epochs, recordings, real)
        return batch

    def labels(self) -> Int[np.ndarray, "n *k"]:
        """Returns what is to be learned of each window as it is cut (not shifted), -100 = nothing.

        By `task`: its class [n], the class of each patch [n N], or the first and last patch of its event [n 2].
        """
        if self.task == "window":
            return np.where(self.windows.label < 0, IGNORED, self.windows.label)
        read = moment_labels if self.task == "moment" else one_event
        places = zip(self.windows.recording.tolist(), self.windows.start.tolist())
        return np.array([read(*self._track(recording, start)) for recording, start in places])

    def _track(self, recording: int, start: int) -> tuple[Track, int, int, int, int | None]:
        return self.windows.tracks[recording], start, self.n_patches, self.patch_samples, self.background

    def _labels(
        self, ids: Int[np.ndarray, " B"], recordings: Int[np.ndarray, " B"], starts: list[int]
    ) -> dict[str, Tensor]:
        if self.codes is not None:
            label = self.windows.label[ids]
            return {"targets": torch.from_numpy(np.where(label[:, None] < 0, np.nan, self.codes[label])).float()}
        if self.task == "window":
            return {"labels": torch.from_numpy(np.where(self.windows.label[ids] < 0, IGNORED, self.windows.label[ids]))}
        tracks = [self._track(recording, start) for recording, start in zip(recordings.tolist(), starts)]
        if self.task == "event":
            return {"span_labels": torch.tensor([one_event(*track) for track in tracks])}
        labels = np.stack([moment_labels(*track) for track in tracks])
        return {"position_labels": torch.from_numpy(np.insert(labels, 0, IGNORED, axis=1))}  # [B M]

    def usable(self) -> Bool[np.ndarray, " n"]:
        """Returns which windows hold at least one real patch, as they are cut (not shifted); reads each once."""
        found = np.zeros(len(self), dtype=bool)
        for window, (recording, start) in enumerate(zip(self.windows.recording.tolist(), self.windows.start.tolist())):
            channels = len(self.channels[recording])
            signals = np.empty((channels, self.n_patches * self.patch_samples), dtype=np.float32)
            found[window] = self._read(window, start, signals).any()
        return found

    def _patch_samples(self) -> int:
        """Returns the samples of a patch; a window is a whole number of patches, each a whole number of samples."""
        sfreq_hz, patch_s = self.store.signal.sfreq_hz, self.patches.patch_s
        patch_samples = max(1, round(patch_s * sfreq_hz))
        if abs(patch_s * sfreq_hz - patch_samples) > 1e-6:
            raise UserError(
                f"patch_s {patch_s:g} at {sfreq_hz:g} Hz is {patch_s * sfreq_hz:g} samples, expected a whole number; "
                f"set patches.patch_s to {patch_samples / sfreq_hz:g}"
            )
        if self.windows.window_samples % patch_samples or self.windows.window_samples == 0:
            nearest = max(1, round(self.windows.window_samples / patch_samples)) * patch_samples
            wrong = (
                "is no whole number of patches" if self.windows.window_samples >= patch_samples else "holds no patch"
            )
            raise UserError(
                f"a window of {self.windows.window_samples / sfreq_hz:g} s {wrong} of {patch_s:g} s; "
                f"set windows.window_s to {nearest / sfreq_hz:g}, or change patches.patch_s"
            )
        return patch_samples

    def _channels(self, recording: int) -> Int[np.ndarray, " C"]:
        """Returns which stored channels fill the model's, in its order."""
        entry = self.store.recordings[recording]
        if not self.together:
            return np.arange(len(entry.ch_names))
        missing = [name for name in self.patches.ch_names if name not in entry.ch_names]
        if missing:
            raise UserError(
                f"{entry.file}: the model's patches hold {len(self.patches.ch_names)} fixed channels, of which "
                f'this one lacks {", ".join(missing)}; leave it out, or train a model with tokens = "channel"'
            )
        return np.array([entry.ch_names.index(name) for name in self.patches.ch_names])

    def _positions(self, recording: int) -> Float[np.ndarray, "C 2 3"]:
        return np.asarray(self.store.recordings[recording].positions, dtype=np.float32)[self.channels[recording]]

    def _near(self, recording: int) -> list[list[int]]:
        return neighbours(np.zeros((1, 1)) if self.together else _distances(self.positions[recording]))

    def _log_scale_uv(self, recording: int) -> Float[np.ndarray, " C"]:
        scale_uv = np.asarray(self.store.recordings[recording].scale_uv)[self.channels[recording]]
        return np.log10(np.maximum(scale_uv, 1e-3)).astype(np.float32)

    def _start(self, window: int, epoch: int) -> int:
        start = int(self.windows.start[window])
        if not self.jitter_samples:
            return start
        first = max(start - self.jitter_samples, int(self.windows.earliest[window]))
        last = min(start + self.jitter_samples, int(self.windows.latest[window]))
        return int(generator("jitter", self.seed, epoch, window).integers(first, last + 1))

    def _read(self, window: int, start: int, signals: Float32[np.ndarray, "C S"]) -> Bool[np.ndarray, "C N"]:
        """Fills in the model's channels from `start` (robust SD units, missing samples 0); returns the real patches.

        A window is worked on while it is in the processor's cache, and what need not be done is left out: reading is
        to keep up with plain copying.
        """
        recording = int(self.windows.recording[window])
        steps = self.store.read_steps(recording, start, signals.shape[1])
        if self.together:
            steps = steps[self.channels[recording]]
        signals[:] = steps
        signals *= np.float32(STEP)
        real = self.good[recording, str(self.windows.subject[window])][:, None].repeat(self.n_patches, 1)
        if steps.min(initial=0) == MISSING:
            missing = steps == MISSING
            signals[missing] = 0
            real &= missing.reshape(*real.shape, -1).mean(2) <= MOST_MISSING
        return real

    def _names(self, recording: int) -> list[str]:
        """Returns the names of the channels in the model's order."""
        return [self.store.recordings[recording].ch_names[c] for c in self.channels[recording]]

    def _good(self, recording: int, subject: str) -> Bool[np.ndarray, " C"]:
        """Returns which channels may hold real patches: not bad, and in the baseline where one is subtracted."""
        bad = self.store.recordings[recording].bad_channels
        known = None if not self.patches.baseline or self.baselines is None else self.baselines[subject]
        return np.array([name not in bad and (known is None or name in known) for name in self._names(recording)])

    def _masks(
        self,
        ids: Int[np.ndarray, " B"],
        epochs: Int[np.ndarray, " B"],
        recordings: Int[np.ndarray, " B"],
        real: Bool[np.ndarray, "B C N"],
    ) -> dict[str, Tensor]:
        assert self.masking is not None
        available = np.any(real, axis=1, keepdims=True) if self.together else real
        masked = np.zeros(available.shape, dtype=bool)
        action = np.zeros(available.shape, dtype=np.uint8)
        replacement = np.zeros(available.shape, dtype=np.int64)
        for i, (window, epoch, recording) in enumerate(zip(ids, epochs, recordings)):
            rng = generator("mask", self.seed, int(epoch), int(window))
            # Drawn over the recording's own channels: the padding of a batch must not change the draw.
            own = slice(None) if self.together else slice(len(self.channels[int(recording)]))
            here = available[i, own]
            if self.masking.kind == "block":
                masked[i, own] = block_positions(here, self.near[int(recording)], self.masking, rng)
            else:
                masked[i, own] = random_positions(here, self.masking.ratio, rng)
            action[i, own], replacement[i, own] = actions(masked[i, own], here, self.masking, rng)
        return {
            "masked": torch.from_numpy(masked),
            "action": torch.from_numpy(action),
            "replacement": torch.from_numpy(replacement),
        }

    def _check_baselines(self) -> None:
        if self.baselines is None:
            raise UserError(
                "the model subtracts each subject's baseline, but the store has none; "
                "run `bothways eeg prepare` with --baseline FILE.csv"
            )
        without = sorted(s for s in set(self.windows.subject.tolist()) if not self.baselines.get(s))
        if without:
            raise UserError(
                f"the model subtracts each subject's baseline, but {', '.join(without)} has none; add a stretch of "
                "rest to the baseline file, or leave the subject out"
            )
        lost: dict[str, set[str]] = {}
        for recording, subject in sorted(set(zip(self.windows.recording.tolist(), self.windows.subject.tolist()))):
            bad = self.store.recordings[recording].bad_channels  # hidden anyway, and said by `check`
            lacking = set(self._names(recording)) - set(bad) - set(self.baselines[subject])
            if lacking:
                lost.setdefault(subject, set()).update(lacking)
        if lost:
            named = "; ".join(f"{subject}: {', '.join(sorted(names))}" for subject, names in lost.items())
            message = f"hidden, because the subject's baseline lacks these channels or they are bad there: {named}"
            warnings.warn(message, BothwaysWarning, stacklevel=3)

    def _baseline_of(self, ids: Int[np.ndarray, " B"], most: int) -> Float[np.ndarray, "B C F"]:
        """Returns the baseline of each channel, 0 where there is none: such a channel is not real."""
        assert self.baselines is not None
        (size,) = next(iter(self.baselines[str(self.windows.subject[ids[0]])].values())).shape
        baseline = np.zeros((len(ids), most, size), dtype=np.float32)
        for i, window in enumerate(ids):
            known = self.baselines[str(self.windows.subject[window])]
            for c, name in enumerate(self._names(int(self.windows.recording[window]))):
                if name in known:
                    baseline[i, c] = known[name]
        return baseline


def _distances(positions: Float[np.ndarray, "C 2 3"]) -> Float[np.ndarray, "C C"]:
    """Returns distances between channels in head radii, infinite where a place is unknown; 0 to itself."""
    known = ~np.isnan(positions).any(2, keepdims=True)  # [C 2 1]
    centre = np.where(known, positions, 0).sum(1) / np.maximum(known.sum(1), 1)  # middle of a bipolar pair
    distances = np.linalg.norm(centre[:, None] - centre[None], axis=2)
    unknown = np.flatnonzero(~known.any(axis=(1, 2)))
    distances[unknown, :] = distances[:, unknown] = np.inf
    np.fill_diagonal(distances, 0)
    return distances


def subject_baselines(store: Store, windows: Windows, patches: PatchConfig) -> dict[str, dict[str, np.ndarray]]:
    """Averages the log spectrum of each subject's calibration windows, channel by channel.

    Args:
        store: with the recordings.
        windows: cut from the calibration stretches, one patch each; labels play no part.
        patches: patch length and band.
    """
    spectrum = LogSpectrum(windows.window_samples, store.signal.sfreq_hz, patches.spectrum_hz)
    plain = patches.model_copy(update={"tokens": "channel", "ch_names": (), "baseline": False})
    source = WindowSource(store, windows, plain)
    sums: dict[str, dict[str, np.ndarray]] = {}
    counts: dict[str, dict[str, int]] = {}
    for ids in np.array_split(np.arange(len(windows)), max(1, -(-len(windows) // 64))):
        batch = source.batch(ids)
        values = spectrum(batch["signals"][:, :, None], batch["log_scale_uv"])[:, :, 0].numpy()  # [B C F]
        real = batch["patch_mask"][:, :, 0].numpy()  # [B C]
        for i, window in enumerate(ids):
            entry, subject = store.recordings[int(windows.recording[window])], str(windows.subject[window])
            of_sums, of_counts = sums.setdefault(subject, {}), counts.setdefault(subject, {})
            for c in np.flatnonzero(real[i]):
                name = entry.ch_names[c]
                of_sums[name] = of_sums.get(name, 0) + values[i, c]
                of_counts[name] = of_counts.get(name, 0) + 1
    return {s: {name: total / counts[s][name] for name, total in of.items()} for s, of in sums.items()}


def fit_spectrum(embedding: PatchEmbedding, source: WindowSource, most_windows: int = 2000) -> None:
    """Sets what the spectrum is standardised by: mean and SD of each frequency over real patches of training data.

    Looks at no more than `most_windows`, evenly spread over the table.
    """
    if embedding.spectrum is None:
        return
    ids = np.unique(np.linspace(0, len(source) - 1, min(len(source), most_windows)).round().astype(np.int64))
    total: Tensor | float = 0.0
    squares: Tensor | float = 0.0
    count = 0
    for chunk in np.array_split(ids, max(1, len(ids) // 64)):
        batch = source.batch(chunk)
        values = embedding.log_spectrum(batch)[batch["patch_mask"]].double()  # [n F]
        total, squares, count = total + values.sum(0), squares + (values**2).sum(0), count + len(values)
    if count == 0:
        raise UserError("no training window has a usable patch; look at the recordings with `bothways eeg check`")
    mean = torch.as_tensor(total) / count
    variance = torch.as_tensor(squares) / count - mean**2
    embedding.set_spectrum_statistics(mean.float(), variance.clamp_min(0).sqrt().float())

"""What overlapping windows say, averaged on one grid of moments over a recording."""

from collections.abc import Sequence
from dataclasses import dataclass

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float, Float64, Int, Int64

<<<<<<<< HEAD:src/bothways/eeg/moments.py
from bothways.eeg.recording import Segment
from bothways.errors import UserError
========
from bothways.eeg.labels import Windows
from bothways.heads import IGNORED
>>>>>>>> d6403aa (Fine-tuning of moments and of one event):src/bothways/eeg/tracks.py

_TOGETHER = 2**20
"""Of (window, moment, class) so many are worked on at a time."""


@dataclass(frozen=True)
class Trace:
    """Class probabilities over a recording, a row per moment, in order; no moment holds a gap.

    Attributes:
        classes: names of the K classes.
        onset_s: true time of each moment's beginning, gaps counted.
        duration_s: `step_s`, at the end of a segment what is left.
        segment: which stretch without a gap it lies in.
        probabilities: NaN where no window covers the moment.
        step_s: the grid's step.
    """

    classes: tuple[str, ...]
    onset_s: Float64[np.ndarray, " M"]
    duration_s: Float64[np.ndarray, " M"]
    segment: Int64[np.ndarray, " M"]
    probabilities: Float64[np.ndarray, "M K"]
    step_s: float

    @property
    def covered(self) -> Bool[np.ndarray, " M"]:
        """Whether any window covers the moment."""
        return ~np.isnan(self.probabilities).any(1)

    @property
    def recorded_s(self) -> float:
        """Seconds of signal, gaps not counted."""
        return float(self.duration_s.sum())

    @property
    def uncovered_s(self) -> float:
        """Seconds of signal that no window covers."""
        return float(self.duration_s[~self.covered].sum())


class Moments:
    """Averages windows on a time grid as they come, in any order, and keeps none of them.

    A moment's probabilities are the mean over all (window, sample) pairs in it. In memory are 32 + 8 K bytes a moment,
    however many windows there are: 5 classes of a day in steps of 1 s are 6 MB.

    Args:
        segments: stretches of stored samples without a gap, as the recording has them.
        sfreq_hz: rate of the stored samples.
        classes: names of the K classes.
        step_s: the grid's step, rounded to whole samples; each segment has a grid of its own from its beginning.

    Raises:
        UserError: the step is below a sample.
    """

    def __init__(self, segments: Sequence[Segment], sfreq_hz: float, classes: Sequence[str], step_s: float) -> None:
        self.step = round(step_s * sfreq_hz)
        if self.step < 1:
            raise UserError(f"step_s: expected a sample ({1 / sfreq_hz:g} s) or more, got {step_s:g}; raise it")
        self.classes, self.sfreq_hz, self.segments = tuple(classes), sfreq_hz, list(segments)
        grids = [np.arange(segment.start, segment.stop, self.step) for segment in self.segments]
        nowhere = np.iinfo(np.int64).max  # one moment behind all others, for what reaches past the last
        self._segment = np.repeat(np.arange(len(grids)), [len(grid) for grid in grids])
        self._start = np.concatenate([*grids, [nowhere]]).astype(np.int64)
        stops = np.array([segment.stop for segment in self.segments], dtype=np.int64)
        self._stop = np.append(np.minimum(self._start[:-1] + self.step, stops[self._segment]), nowhere)
        self._sum = np.zeros((len(self._start), len(self.classes)))
        self._weight = np.zeros(len(self._start))

    def add(
        self, start: Int[np.ndarray, " n"], length: int | Int[np.ndarray, " n"], probabilities: Float[np.ndarray, "n K"]
    ) -> None:
        """Takes windows in.

        Args:
            start: first stored sample of each.
            length: samples of each.
            probabilities: of each class.

        Raises:
            ValueError: a window does not lie in one segment, other classes, or what is no probability.
        """
        start = np.asarray(start, dtype=np.int64)
        stop = start + length
        self._check(start, stop, probabilities)
        if not len(start):
            return
        first = np.searchsorted(self._start, start, "right") - 1
        reach = np.arange(int((stop - start).max()) // self.step + 2)
        at_once = max(1, _TOGETHER // (len(reach) * len(self.classes)))
        for at in range(0, len(start), at_once):
            part = slice(at, at + at_once)
            moments = np.minimum(first[part, None] + reach, len(self._start) - 1)
            begin = np.maximum(start[part, None], self._start[moments])
            overlap = np.maximum(np.minimum(stop[part, None], self._stop[moments]) - begin, 0).astype(float)
            np.add.at(self._weight, moments, overlap)
            np.add.at(self._sum, moments, overlap[..., None] * probabilities[part, None, :])

<<<<<<<< HEAD:src/bothways/eeg/moments.py
    def add_patches(
        self,
        start: Int[np.ndarray, " n"],
        window_samples: int,
        patch_samples: int,
        probabilities: Float[np.ndarray, "n P K"],
        patch_mask: Bool[np.ndarray, "n P"] | None = None,
    ) -> None:
        """Takes in what a position head says of each patch of each window.

        Args:
            start: first stored sample of each window.
            window_samples: samples of a window; the last patch ends with it.
            patch_samples: samples of a patch.
            probabilities: of each class in each patch.
            patch_mask: True = real; the others (padding, unusable signal) say nothing. None = all are.

        Raises:
            ValueError: see `add`, or patches that begin after the window.
        """
        n, n_patches = probabilities.shape[:2]
        begin = np.arange(n_patches) * patch_samples
        if n_patches and begin[-1] >= window_samples:
            raise ValueError(f"expected patches inside {window_samples} samples, got {n_patches} of {patch_samples}")
        real = np.ones((n, n_patches), dtype=bool) if patch_mask is None else patch_mask
        starts = np.asarray(start, dtype=np.int64)[:, None] + begin
        lengths = np.broadcast_to(np.minimum(patch_samples, window_samples - begin), real.shape)
        self.add(starts[real], lengths[real], probabilities[real])

    def trace(self) -> Trace:
        """Returns the averages of what was taken in so far."""
        weight = self._weight[:-1, None]
        probabilities = np.full((len(weight), len(self.classes)), np.nan)
        np.divide(self._sum[:-1], weight, out=probabilities, where=weight > 0)
        # Means of one number differ in the last bit, by the order of the windows; no threshold shall see that.
        probabilities = probabilities.round(12)
        starts, begins_s = (
            np.array([getattr(segment, name) for segment in self.segments], dtype=float)
            for name in ("start", "onset_s")
        )
        return Trace(
            self.classes,
            begins_s[self._segment] + (self._start[:-1] - starts[self._segment]) / self.sfreq_hz,
            (self._stop - self._start)[:-1] / self.sfreq_hz,
            self._segment,
            probabilities,
            self.step / self.sfreq_hz,
        )

    def _check(
        self, start: Int64[np.ndarray, " n"], stop: Int64[np.ndarray, " n"], probabilities: Float[np.ndarray, "n K"]
    ) -> None:
        if probabilities.shape != (len(start), len(self.classes)):
            raise ValueError(f"expected [{len(start)} {len(self.classes)}], got {list(probabilities.shape)}")
        inside = np.zeros(len(start), dtype=bool)
        for segment in self.segments:
            inside |= (segment.start <= start) & (start < stop) & (stop <= segment.stop)
        if not inside.all():
            at = int(np.flatnonzero(~inside)[0])
            raise ValueError(f"expected windows inside one segment, got samples {start[at]} to {stop[at]}")
        if not ((probabilities > -1e-6) & (probabilities < 1 + 1e-6)).all():  # NaN is neither
            raise ValueError("expected probabilities of 0 to 1")
========
def labelled_moments(windows: Windows, patch_samples: int, background: str | None = None) -> Windows:
    """Returns a row for each labelled patch of some windows, in their order: a moment is a small window."""
    tracks = _of_windows(windows, patch_samples, background)
    labels = np.array([moment_labels(*track) for track in tracks]).reshape(len(windows), -1)  # [n N]
    window, patch = np.nonzero(labels != IGNORED)
    start = windows.start[window] + patch * patch_samples
    return replace(
        windows.select(window), start=start, earliest=start, latest=start, label=labels[window, patch],
        window_samples=patch_samples,
    )  # fmt: skip


def windows_with_events(windows: Windows, patch_samples: int, background: str) -> Windows:
    """Returns the windows that hold one event as a whole, or none: their label says which."""
    spans = np.array([one_event(*track) for track in _of_windows(windows, patch_samples, background)]).reshape(-1, 2)
    nothing = windows.classes.index(background)
    label = np.where(spans[:, 0] > 0, 1 - nothing, nothing)
    return replace(windows, label=label).select(spans[:, 0] != IGNORED)


def _of_windows(
    windows: Windows, patch_samples: int, background: str | None
) -> Iterator[tuple[Track, int, int, int, int | None]]:
    nothing = windows.classes.index(background) if background in windows.classes else None
    n_patches = windows.window_samples // patch_samples
    for recording, start in zip(windows.recording.tolist(), windows.start.tolist()):
        yield windows.tracks[recording], start, n_patches, patch_samples, nothing


def _touching(track: Track, start: int, stop: int) -> Int64[np.ndarray, "k 3"]:
    return track[np.searchsorted(track[:, 1], start, "right") : np.searchsorted(track[:, 0], stop, "left")]
>>>>>>>> d6403aa (Fine-tuning of moments and of one event):src/bothways/eeg/tracks.py

"""The label of each moment of a window, a patch's time; and the one event that a window holds."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from jaxtyping import Int64

from bothways.eeg.labels import Windows
from bothways.heads import IGNORED

Track = Int64[np.ndarray, "m 3"]
"""Labelled stretches of a recording in order: first sample, sample after the last, class."""


def moment_labels(
    track: Track, start: int, n_patches: int, patch_samples: int, background: int | None = None
) -> Int64[np.ndarray, " N"]:
    """Returns the class of each patch of a window; -100 where no label says it.

    A patch has the class that covers half of it or more, or, of an event shorter than that, the class of one that lies
    in it with half of itself or more; of several the one that covers most. The background gives way to the others.

    Args:
        track: the labelled stretches.
        start: of the window.
        n_patches: in the window.
        patch_samples: in a patch.
        background: the class of the time without an event.
    """
    labels = np.full(n_patches, IGNORED, dtype=np.int64)
    most = np.zeros(n_patches, dtype=np.int64)
    firsts = start + np.arange(n_patches) * patch_samples
    for a, b, label in _touching(track, start, start + n_patches * patch_samples).tolist():
        covered = np.minimum(b, firsts + patch_samples) - np.maximum(a, firsts)
        event = label != background
        enough = 2 * covered >= (min(patch_samples, b - a) if event else patch_samples)
        weight = covered + event * patch_samples
        better = enough & (covered > 0) & (weight > most)
        labels[better], most[better] = label, weight[better]
    return labels


def one_event(
    track: Track, start: int, n_patches: int, patch_samples: int, background: int | None = None
) -> tuple[int, int]:
    """Returns the first and the last patch, counted from 1, of the one event that a window holds.

    (0, 0), [CLS], where it holds none; (-100, -100) where it holds part of one, or several: what a window that is cut
    elsewhere holds as a whole is not to be learned as something else here.
    """
    stop = start + n_patches * patch_samples
    events = [(a, b) for a, b, label in _touching(track, start, stop).tolist() if label != background]
    if not events:
        return 0, 0
    (a, b), *others = events
    if others or a < start or b > stop:
        return IGNORED, IGNORED
    return (a - start) // patch_samples + 1, (b - 1 - start) // patch_samples + 1


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

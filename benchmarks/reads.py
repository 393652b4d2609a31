"""Reading random windows of a store against numpy's memmap giving the same bytes."""

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from timing import Figure, Figures, paired_seconds

from bothways import eeg
from bothways.config import PatchConfig, WindowConfig
from bothways.eeg import Store, Windows, WindowSource

DATA = Path(__file__).parent.parent / "examples/data/eeg_mental_arithmetic"
WINDOW_S, BATCH, BATCHES = 10.0, 64, 16


def with_memmap(files: list[np.memmap], windows: Windows, ids: np.ndarray) -> list[np.ndarray]:
    """Copies the windows out of files that are open already."""
    n = windows.window_samples
    places = zip(windows.recording[ids].tolist(), windows.start[ids].tolist())
    return [np.array(files[recording][:, start : start + n]) for recording, start in places]


def with_store(store: Store, windows: Windows, ids: np.ndarray) -> list[np.ndarray]:
    """The same through the store."""
    n = windows.window_samples
    places = zip(windows.recording[ids].tolist(), windows.start[ids].tolist())
    return [np.array(store.read_steps(recording, start, n)) for recording, start in places]


def run() -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        store = eeg.prepare([DATA], Path(folder) / "store")
        files = [np.load(store.path / "signals" / f"{r.id}.npy", mmap_mode="r") for r in store.recordings]
        windows = eeg.cut_windows(store, WindowConfig(window_s=WINDOW_S, stride_s=1.0))
        source = WindowSource(store, windows, PatchConfig())
        draws = np.random.default_rng(0).integers(0, len(windows), (BATCHES, BATCH))

        def rate_of(read: Callable[[np.ndarray], object]) -> tuple[float, float]:
            """Returns windows in a second, and that as a share of memmap's."""
            ours_s, numpy_s = paired_seconds(
                lambda: [read(ids) for ids in draws], lambda: [with_memmap(files, windows, ids) for ids in draws]
            )
            return draws.size / statistics.median(ours_s), statistics.median(b / a for a, b in zip(ours_s, numpy_s))

        numpy_rate, _ = rate_of(lambda ids: with_memmap(files, windows, ids))
        steps_rate, steps_share = rate_of(lambda ids: with_store(store, windows, ids))
        batch_rate, batch_share = rate_of(source.batch)
    return {
        "numpy's memmap": Figure(numpy_rate, "windows/s"),
        "Store.read_steps": Figure(steps_rate, "windows/s"),
        "WindowSource.batch": Figure(batch_rate, "windows/s"),
        "Store.read_steps / memmap": Figure(steps_share, "", at_least=0.7),
        "WindowSource.batch / memmap": Figure(batch_share, "", at_least=0.7),
    }

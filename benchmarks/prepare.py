"""Preparing recordings against mne's own reading, filtering and resampling of the same files."""

import statistics
import tempfile
import warnings
from pathlib import Path

import mne
from timing import Figure, Figures, paired_seconds

from bothways import eeg

DATA = Path(__file__).parent.parent / "examples/data/eeg_mental_arithmetic"


def with_mne(files: list[Path]) -> None:
    """Reads, filters and resamples as a script by hand would; nothing is scaled, checked or stored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for file in files:
            recording = mne.io.read_raw_edf(file, preload=True, verbose="error")
            recording.filter(0.5, 0.45 * recording.info["sfreq"], verbose="error")
            recording.resample(200, verbose="error")


def run() -> Figures:
    files = sorted(DATA.glob("*.edf"))
    with tempfile.TemporaryDirectory() as folder:

        def ours() -> None:
            eeg.prepare([DATA], Path(folder) / "store", overwrite=True)

        ours_s, mne_s = paired_seconds(ours, lambda: with_mne(files), repeats=5)
    ratio = statistics.median(a / b for a, b in zip(ours_s, mne_s))
    return {
        "ours, 26 recordings": Figure(statistics.median(ours_s), "s"),
        "mne: read, filter, resample": Figure(statistics.median(mne_s), "s"),
        "ours / mne": Figure(ratio, "", at_most=1.3),
    }

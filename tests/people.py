"""Small recordings of several people with a difference that can be learned: alpha waves with eyes closed."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recordings import GAIN_UV, write_edf

TINY = [
    "encoder.num_hidden_layers=2", "encoder.hidden_size=32", "encoder.num_attention_heads=2",
    "encoder.intermediate_size=64", 'patches.features=["spectrum"]',
]  # fmt: skip
WINDOWS = ["windows.window_s=3", "windows.stride_s=3", "training.batch_size=16", "training.learning_rate=2e-3"]
CHANNELS = ("Fp1", "Cz", "O1", "O2")
STATES = ("closed", "open")


def alpha_uv(state: str, seed: int, n_channels: int = 4, seconds: int = 30, sfreq_hz: int = 200) -> np.ndarray:
    """Returns noise with a falling spectrum, and with eyes closed four times the amplitude at 9 to 11 Hz."""
    n = seconds * sfreq_hz
    frequencies_hz = np.fft.rfftfreq(n, 1 / sfreq_hz)
    white = np.random.default_rng([seed, state == "closed"]).normal(size=(n_channels, n))
    spectrum = np.fft.rfft(white) / np.sqrt(np.maximum(frequencies_hz, 1))
    spectrum[:, (frequencies_hz >= 9) & (frequencies_hz <= 11)] *= 4 if state == "closed" else 1
    signal = np.fft.irfft(spectrum, n)
    return np.rint(15 * signal / signal.std() / GAIN_UV) * GAIN_UV


def write_people(
    folder: Path, n: int = 6, channels: Sequence[Sequence[str]] = (CHANNELS,), sfreq_hz: int = 200
) -> Path:
    """Writes two recordings a person, and labels.csv and baseline.csv beside the folder; channels go in turn."""
    labels, baseline = ["file,label"], ["file,onset_s,duration_s"]
    for person in range(n):
        names = channels[person % len(channels)]
        for state in STATES:
            file = folder / f"sub-{person}" / f"sub-{person}_{state}.edf"
            write_edf(file, alpha_uv(state, person, len(names), sfreq_hz=sfreq_hz), names, sfreq_hz=sfreq_hz)
            labels.append(f"{file.name},{state}")
        baseline.append(f"sub-{person}_open.edf,0,12")
    (folder.parent / "labels.csv").write_text("\n".join(labels), encoding="utf-8")
    (folder.parent / "baseline.csv").write_text("\n".join(baseline), encoding="utf-8")
    return folder


@dataclass(frozen=True)
class Chain:
    """Where everything lies, and what each step gave."""

    data: Path
    labels: Path
    baseline: Path
    store: Path
    pretrained: Path
    finetuned: Path
    results: dict[str, dict[str, Any]]

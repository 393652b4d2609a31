"""Training steps of our model, and of other EEG models in their own environment (`make bench-setup`)."""

import json
import subprocess
import sys
from pathlib import Path

from timing import Figure, Figures, median_seconds

BATCH = 16
HERE = Path(__file__).parent
PYTHON = HERE.parent / ".bench-venv" / "bin" / "python"


def windows_per_s(threads: int) -> dict[str, float]:
    """Returns model -> windows (19 channels, 10 s, 200 Hz) trained in a second on the CPU."""
    if not PYTHON.exists():
        sys.exit(f"{PYTHON}: expected the peers' environment here, found none; run `make bench-setup`")
    command = [PYTHON, HERE / "peer_steps.py", str(threads)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def ours_windows_per_s(threads: int) -> dict[str, float]:
    """Returns size -> windows of the same kind pretrained in a second; the loss is on hidden patches and [CLS]."""
    import torch
    from encoder import model_step

    from bothways.config import ENCODER_SIZES, EncoderConfig

    default = EncoderConfig()
    torch.set_num_threads(threads)
    sizes = {"default": default, **{size: EncoderConfig(**ENCODER_SIZES[size]) for size in ("tiny", "small")}}
    return {name: BATCH / median_seconds(model_step(BATCH, config)) for name, config in sizes.items()}


def run() -> Figures:
    # One thread tells a slow model from a busy machine: two threads that wait for a taken core are slower than one.
    figures: dict[str, Figure] = {}
    for threads in (1, 2):
        ours, peers = ours_windows_per_s(threads), windows_per_s(threads)
        for name, rate in {**{f"ours, {size}": rate for size, rate in ours.items()}, **peers}.items():
            figures[f"{name} training, threads: {threads}"] = Figure(rate, "windows/s")
        ratio = ours["default"] / peers["CBraMod"]
        figures[f"ours, default / CBraMod, threads: {threads}"] = Figure(ratio, "", at_least=8)
    return figures

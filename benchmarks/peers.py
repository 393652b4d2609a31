"""Training steps of other EEG models, in their own environment (`make bench-setup`)."""

import json
import subprocess
import sys
from pathlib import Path

from timing import Figure, Figures

HERE = Path(__file__).parent
PYTHON = HERE.parent / ".bench-venv" / "bin" / "python"


def windows_per_s(threads: int) -> dict[str, float]:
    """Returns model -> windows (19 channels, 10 s, 200 Hz) trained in a second on the CPU."""
    if not PYTHON.exists():
        sys.exit(f"{PYTHON}: expected the peers' environment here, found none; run `make bench-setup`")
    command = [PYTHON, HERE / "peer_steps.py", str(threads)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def run() -> Figures:
    # One thread tells a slow model from a busy machine: two threads that wait for a taken core are slower than one.
    return {
        f"{name} training, threads: {threads}": Figure(rate, "windows/s")
        for threads in (1, 2)
        for name, rate in windows_per_s(threads).items()
    }

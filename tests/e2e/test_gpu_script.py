"""The script for machines with an accelerator runs on one without."""

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu.py"


def test_it_runs_on_the_cpu() -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "--sizes", "nano", "--batch-size", "2", "--repeats", "1", "--steps", "20"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["device"] == "CPU"
    assert found["same_losses"] == {"largest_relative_difference": 0.0, "tolerance": 1e-3}
    assert found["windows_per_s"]["nano"]["float32"] > 0
    assert found["bf16"] is None or found["bf16"]["falls"]

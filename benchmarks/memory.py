"""Peak memory of preparing and of training must not grow with the number of recordings: once, and 20 times as many."""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from timing import Figure, Figures

DATA = Path(__file__).parent.parent / "examples/data/eeg_mental_arithmetic"
TIMES = 20
STEP = """
import json, resource, sys
from bothways import run
what, source, out = sys.argv[1:]
if what == "prepare":
    run.prepare([source], out)
else:
    settings = ["encoder.size='nano'", "training.steps=10", "training.batch_size=16", "validation_fraction=0"]
    run.pretrain(source, out, changes=settings)
print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
"""


def peak_mb(what: str, source: Path, out: Path) -> float:
    """Returns the peak resident memory of one step in a process of its own, in MiB."""
    command = [sys.executable, "-c", STEP, what, source, out]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def run() -> Figures:
    figures: dict[str, Figure] = {}
    with tempfile.TemporaryDirectory() as folder:
        peaks: dict[tuple[str, int], float] = {}
        for times in (1, TIMES):
            recordings, store = Path(folder) / f"recordings-{times}", Path(folder) / f"store-{times}"
            for copy in range(times):
                for file in sorted(DATA.glob("sub-0[0-2]_*.edf")):
                    target = recordings / f"sub-{copy:02d}{file.stem[4:6]}"
                    target.mkdir(parents=True, exist_ok=True)
                    shutil.copy(file, target / file.name.replace("sub-", f"sub-{copy:02d}"))
            peaks["prepare", times] = peak_mb("prepare", recordings, store)
            peaks["pretrain", times] = peak_mb("pretrain", store, Path(folder) / f"run-{times}")
    for what in ("prepare", "pretrain"):
        for times in (1, TIMES):
            figures[f"{what}, {6 * times} recordings"] = Figure(peaks[what, times], "MiB")
        figures[f"{what}: {TIMES}× / 1×"] = Figure(peaks[what, TIMES] / peaks[what, 1], "", at_most=1.15)
    return figures

"""Peak memory of preparing and of training must not grow with the number of recordings."""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from timing import Figure, Figures

DATA = Path(__file__).parent.parent / "examples/data/eeg_mental_arithmetic"
FEW, MANY = 4, 80
"""Copies of six recordings: once, and 20 times as many."""
STEP = """
import sys
from pathlib import Path
from bothways import run
what, source, out = sys.argv[1:]
if what == "prepare":
    run.prepare([source], out)
else:
    settings = ["encoder.size='nano'", "training.steps=10", "training.batch_size=16", "validation_fraction=0"]
    run.pretrain(source, out, changes=settings)
# Of this program alone: the kernel's other figure, ru_maxrss, starts with the peak of the process that started it.
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(int(status["VmHWM"].split()[0]) / 1024)
"""


def peak_mb(what: str, source: Path, out: Path) -> float:
    """Returns the peak resident memory of one step in a process of its own, in MiB."""
    command = [sys.executable, "-c", STEP, what, source, out]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def size_mb(folder: Path) -> float:
    """Returns what the files in a folder hold, in MiB."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 2**20


def run() -> Figures:
    figures: dict[str, Figure] = {}
    with tempfile.TemporaryDirectory() as folder:
        peaks: dict[tuple[str, int], float] = {}
        sizes: dict[int, float] = {}
        for times in (FEW, MANY):
            recordings, store = Path(folder) / f"recordings-{times}", Path(folder) / f"store-{times}"
            for copy in range(times):
                for file in sorted(DATA.glob("sub-0[0-2]_*.edf")):
                    target = recordings / f"sub-{copy:02d}{file.stem[4:6]}"
                    target.mkdir(parents=True, exist_ok=True)
                    shutil.copy(file, target / file.name.replace("sub-", f"sub-{copy:02d}"))
            peaks["prepare", times] = peak_mb("prepare", recordings, store)
            sizes[times] = size_mb(store)
            peaks["pretrain", times] = peak_mb("pretrain", store, Path(folder) / f"run-{times}")
    for times in (FEW, MANY):
        figures[f"store, {6 * times} recordings"] = Figure(sizes[times], "MiB")
    for what in ("prepare", "pretrain"):
        for times in (FEW, MANY):
            figures[f"{what}, {6 * times} recordings"] = Figure(peaks[what, times], "MiB")
        # A store that is read into memory gives 1 and more; mapped pages and the table of recordings are a part of it.
        figures[f"{what}: {MANY // FEW}× / 1×"] = Figure(peaks[what, MANY] / peaks[what, FEW], "")
        growth = (peaks[what, MANY] - peaks[what, FEW]) / (sizes[MANY] - sizes[FEW])
        figures[f"{what}: growth / the store's"] = Figure(growth, "", at_most=0.5)
    return figures

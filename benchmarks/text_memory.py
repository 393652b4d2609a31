"""Peak memory of pretraining steps of BERT beside transformers', each in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

from timing import Figure, Figures

SIZE = "mini"
STEPS = """
import sys
from pathlib import Path
import text_steps
text_steps.transformers().BertForPreTraining  # both processes import the same
def mib(field):
    # Of this program alone: the kernel's other figure, ru_maxrss, starts with the peak of the process that started it.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status[field].split()[0]) / 1024
make = {"ours": text_steps.our_step, "transformers": text_steps.their_step}[sys.argv[1]]
imported, step = mib("VmRSS"), make(sys.argv[2])
built = mib("VmRSS")
for _ in range(3):  # the first makes the optimizer's moments
    step()
print([imported, built, mib("VmHWM")])
"""


def peaks_mib(who: str) -> tuple[float, float, float]:
    """Returns the resident memory with all imported and with the model and batch made, and the peak of the steps."""
    command = [sys.executable, "-c", STEPS, who, SIZE]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent)
    imported, built, peak = json.loads(done.stdout)
    return imported, built, peak


def run() -> Figures:
    figures: dict[str, Figure] = {}
    above: dict[str, float] = {}
    for who in ("ours", "transformers"):
        imported, built, peak = peaks_mib(who)
        above[who] = peak - imported
        figures |= {
            f"{who}: whole process": Figure(peak, "MiB"),
            f"{who}: above the imports": Figure(above[who], "MiB"),
            f"{who}: above the model": Figure(peak - built, "MiB"),
        }
    # Weights, gradients and moments are the same of both and counted; the libraries' own code is not.
    figures["ours / transformers, above the imports"] = Figure(above["ours"] / above["transformers"], "", at_most=0.5)
    return figures

"""Kills a command at many moments: `python killer.py RUN KILLS eeg pretrain …`; prints the steps it had come to.

The command runs in forks of this process, which has imported all that takes long.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

import torch

from bothways import cli, run  # noqa: F401


def start(arguments: list[str]) -> int:
    """Runs a command in a fork; returns its process."""
    child = os.fork()
    if child:
        return child
    sys.argv, status = ["bothways", *arguments], 1
    try:
        cli.main()
    except SystemExit as ended:
        status = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def main(folder: Path, kills: int, arguments: list[str]) -> None:
    torch.set_num_threads(1)
    latest, moments, steps = folder / "checkpoints" / "latest", random.Random(0), [""]
    for _ in range(kills):
        child = start(arguments)
        while not latest.exists() or latest.read_text() == steps[-1]:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                sys.exit(f"ended by itself after {steps[1:]} with {os.waitstatus_to_exitcode(status)}")
            time.sleep(0.002)
        time.sleep(moments.uniform(0.0, 0.1))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        steps.append(latest.read_text())
    _, status = os.waitpid(start(arguments), 0)
    Path(f"{folder}.json").write_text(json.dumps(steps[1:]))
    sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])

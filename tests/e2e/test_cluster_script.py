"""The SLURM script of docs/cluster.md, with stand-ins for `srun` and `scontrol`: stopped, queued again, finished."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from commands import sets, wait_for
from people import TINY, WINDOWS, Chain

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "cluster.md"
SRUN = """#!/bin/bash
export SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=1 SLURM_NTASKS_PER_NODE=1
shift
exec "$@"
"""
SCONTROL = """#!/bin/bash
if [ "$1" = show ]; then echo 127.0.0.1; else echo "$@" >> requeued; fi
"""


@pytest.mark.slow
def test_the_script_stops_in_time_and_queues_itself_again(chain: Chain, tmp_path: Path) -> None:
    (script,) = re.findall(
        r"^```bash\n(.*?)^```$", DOCUMENT.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    (tmp_path / "job.sh").write_text(script)
    settings = sets(*TINY, *WINDOWS, "training.steps=300", "training.log_every=1")
    bothways = f'#!/bin/bash\nexec "{sys.executable}" -m bothways "$@" {" ".join(map(repr, settings))}\n'
    for name, content in (("srun", SRUN), ("scontrol", SCONTROL), ("bothways", bothways)):
        (tmp_path / name).write_text(content)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "recipe.toml").write_text("")
    (tmp_path / "store").symlink_to(chain.store)
    environment = {
        **os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "a",
        "SLURM_CPUS_PER_TASK": "1",
    }  # fmt: skip

    def job() -> subprocess.Popen[str]:
        return subprocess.Popen(["bash", "job.sh"], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)

    first = job()
    wait_for(tmp_path / "pretrained" / "metrics.jsonl", first)
    first.send_signal(signal.SIGUSR1)
    _, errors = first.communicate(timeout=120)
    assert first.returncode == 0, errors
    assert "is saved; to go on, run the same command again" in errors
    assert (tmp_path / "requeued").read_text() == "requeue 7\n"
    second = job()
    _, errors = second.communicate(timeout=300)
    assert second.returncode == 0, errors
    assert (tmp_path / "pretrained" / "manifest.json").is_file()
    assert (tmp_path / "requeued").read_text() == "requeue 7\n"

"""Training steps of braindecode's models at their own sizes; run by `peers` inside .bench-venv.

python peer_steps.py THREADS prints JSON: model -> windows in a second.

Each step is the same work for every model: forward, cross-entropy on two classes, backward, AdamW.
"""

import json
import sys
import warnings

from timing import median_seconds, pin_threads

BATCH, N_CHANNELS, SFREQ_HZ, WINDOW_S = 16, 19, 200, 10
CALLS = {"CBraMod": (5, 1), "BIOT": (9, 2), "EEGConformer": (9, 2)}  # model -> repeats, warm-up


def windows_per_s(name: str, threads: int) -> float:
    import torch
    from braindecode import models

    pin_threads(threads)
    torch.manual_seed(0)
    n_times = SFREQ_HZ * WINDOW_S
    model = getattr(models, name)(n_outputs=2, n_chans=N_CHANNELS, n_times=n_times, sfreq=SFREQ_HZ).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    signals, labels = torch.randn(BATCH, N_CHANNELS, n_times), torch.arange(BATCH) % 2

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(signals), labels).backward()
        optimizer.step()

    repeats, warmup = CALLS[name]
    return BATCH / median_seconds(step, repeats, warmup)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    json.dump({name: windows_per_s(name, threads=int(sys.argv[1])) for name in CALLS}, sys.stdout)

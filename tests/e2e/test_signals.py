"""A signal at any moment of a training: what it exits with, what it says, what is left."""

import os
import shlex
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bothways import eeg, run
from bothways.errors import Interrupted
from bothways.training import RunFolder
from bothways.training.signals import stopping
from commands import finetuning, pretraining
from people import Chain

Call = Callable[..., tuple[int, str, str]]
SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 0), (signal.SIGUSR1, 0)]


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number, _ in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def signalled(real: Callable[..., Any], number: int) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        os.kill(os.getpid(), number)
        return real(*arguments, **options)

    return call


@pytest.mark.parametrize("command", [pretraining, finetuning])
@pytest.mark.parametrize(("number", "status"), SIGNALS)
def test_before_the_first_step(
    bothways: Call, chain: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, status: int,
    command: Callable[..., list[str]],
) -> None:  # fmt: skip
    monkeypatch.setattr(eeg.Store, "open", signalled(eeg.Store.open, number))
    arguments = ["eeg", *command(chain, tmp_path / "run"), "--overwrite"]
    code, out, err = bothways(*arguments)
    assert (code, out) == (status, "")
    title = {"pretrain": "pretrain", "finetune": "fine-tune"}[arguments[1]]
    assert err == (
        f"{title}: stopped by a signal before the first step; to begin or go on, run the same command again: "
        f"{shlex.join(['bothways', *arguments])}\n"
    )
    assert not (tmp_path / "run").exists()


def test_only_the_second_from_the_keyboard_does_not_wait() -> None:
    with stopping() as stop:
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
        assert stop.signal == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_more_signals_while_it_ends(bothways: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Schedulers send several, one after the other."""

    def pretrain(*_: Any, **__: Any) -> None:
        try:
            raise Interrupted("pretrain: stopped by a signal; step 3 is saved; to go on", 0)
        finally:
            for number, _status in SIGNALS:
                os.kill(os.getpid(), number)

    monkeypatch.setattr(run, "pretrain", pretrain)
    code, out, err = bothways("eeg", "pretrain", "--data", "store", "--out", "run")
    assert (code, out) == (0, "")
    assert err.startswith("pretrain: stopped by a signal; step 3 is saved; to go on")
    for number, _status in SIGNALS:  # its status is known
        os.kill(os.getpid(), number)


@pytest.mark.parametrize(("number", "status"), SIGNALS)
def test_while_it_is_imported(bothways: Call, monkeypatch: pytest.MonkeyPatch, number: int, status: int) -> None:
    monkeypatch.setattr(run, "pretrain", signalled(lambda *_: None, number))
    code, out, err = bothways("eeg", "pretrain", "--data", "store", "--out", "run")
    assert (code, out) == (status, "")
    assert err == (
        "stopped by a signal; to begin or go on, start it again: bothways eeg pretrain --data store --out run\n"
    )


@pytest.mark.parametrize(("number", "status"), SIGNALS)
def test_after_the_last_step(
    bothways: Call, chain: Chain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, status: int
) -> None:
    monkeypatch.setattr(RunFolder, "finish", signalled(RunFolder.finish, number))
    code, _, err = bothways("eeg", *pretraining(chain, tmp_path / "run", "training.steps=2"))
    assert code == 0, err
    assert (tmp_path / "run" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("size", "rank", "saved", "said"),
    [
        (1, 0, True, "stopped: bothways eeg pretrain --data store --out run\n"),
        (1, 0, False, "stopped: bothways eeg pretrain --data store --out run --overwrite\n"),
        (2, 0, True, "stopped, without --overwrite\n"),
        (2, 0, False, "stopped\n"),
        (2, 1, True, ""),
    ],
)
def test_what_to_do_next(
    bothways: Call, monkeypatch: pytest.MonkeyPatch, size: int, rank: int, saved: bool, said: str
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise Interrupted("stopped", 0, saved=saved)

    monkeypatch.setattr(run, "pretrain", stopped)
    monkeypatch.setenv("WORLD_SIZE", str(size))
    monkeypatch.setenv("RANK", str(rank))
    assert bothways("eeg", "pretrain", "--data", "store", "--out", "run", "--overwrite") == (0, "", said)

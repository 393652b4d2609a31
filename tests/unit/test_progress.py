"""Off a terminal progress is plain lines with rate and time left; on one it is a bar."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

import bothways.progress
from bothways.progress import progress


class Clock:
    """A clock that moves only when told to."""

    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(bothways.progress, "time", SimpleNamespace(monotonic=clock.monotonic))
    monkeypatch.setattr(bothways.progress, "console", Console(file=io.StringIO(), force_terminal=False))
    return clock


def test_plain_lines(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress("pretrain", 50, "windows", every_s=10.0) as meter:
        for n in range(5):
            clock.now_s += 5.0
            meter.advance(10, note=f"loss 0.{9 - n}")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "pretrain: 20/50 windows, 2.0 windows/s, 15 s left, loss 0.8",
        "pretrain: 40/50 windows, 2.0 windows/s, 5 s left, loss 0.6",
        "pretrain: 50/50 windows, 2.0 windows/s, loss 0.5",
    ]


def test_nothing_done(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress("check", 0, "files"):
        clock.now_s += 1.0
    assert capsys.readouterr().err == "check: 0/0 files, 0.0 files/s\n"


def test_no_closing_line_after_a_failure(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError), progress("check", 2, "files"):
        raise RuntimeError
    assert capsys.readouterr().err == ""


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(bothways.progress, "console", Console(file=screen, force_terminal=True, width=120))
    with progress("prepare", 3, "files") as meter:
        meter.advance(note="sub-00")
        meter.advance(2, note="sub-01")
    shown = screen.getvalue()
    assert "\x1b[" in shown
    assert "prepare" in shown
    assert "3/3" in shown
    assert "files/s" in shown
    assert "sub-01" in shown

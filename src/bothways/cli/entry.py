"""Runs a command: a user's mistake ends with one line and status 2, a signal with how to go on."""

import atexit
import os
import re
import shlex
import signal
import sys
import warnings

import typer

from bothways.cli.commands import app
from bothways.errors import BothwaysWarning, Interrupted, UserError, plain_words

USAGE: type[Exception] = [one for one in typer.BadParameter.__mro__ if hasattr(one, "format_message")][-1]
"""The root of what parsing raises, in click or in the copy of it that newer typer holds."""

_TRAINS = {
    ("eeg", "pretrain"),
    ("eeg", "finetune"),
    ("eeg", "compare"),
    ("text", "pretrain"),
    ("text", "finetune"),
    ("text", "curve"),
}
"""Commands that go on when they are started again."""


class _Signalled(KeyboardInterrupt):
    """A signal that ends the work as Ctrl-C does."""

    number = 0
    over = False
    """The command has ended: its status is known."""

    @classmethod
    def now(cls, number: int, _: object) -> None:
        problem = sys.exc_info()[1]
        while problem is not None:  # schedulers send several: the first one counts
            if isinstance(problem, Interrupted | KeyboardInterrupt):
                return
            problem = problem.__context__
        if not cls.over:
            cls.number = number
            raise cls


def _status(arguments: list[str]) -> int:
    """Runs a command and returns its status; wrong usage is a `UserError` too."""
    command = typer.main.get_command(app)
    try:
        with command.make_context("bothways", arguments) as context:
            command.invoke(context)
    except typer.Exit as ended:
        return ended.exit_code
    except USAGE as problem:
        message, at = problem.format_message(), getattr(problem, "ctx", None)  # type: ignore[attr-defined]
        if at is not None and message == at.get_help():  # no arguments at all
            print(message, file=sys.stderr)
            return 2
        whole = " ".join(message.split()).removesuffix(".")
        raise UserError(f"{whole}; see `{at.command_path if at else 'bothways'} --help`") from None
    return 0


def _last() -> None:
    """From here on no signal matters: what is left to do is short, and the status is known."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)


def _again(saved: bool) -> str:
    """The command to go on with; several processes have none that one of them could print."""
    arguments = ["bothways", *(word for word in sys.argv[1:] if not saved or word != "--overwrite")]
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if several:
        return ", without --overwrite" if len(arguments) <= len(sys.argv[1:]) else ""
    return f": {shlex.join(arguments)}"


def main() -> None:
    """Runs the command line; a `UserError` is one line on standard error and status 2."""
    first = os.environ.get("RANK", "0") == "0"  # of several processes the first one speaks for all
    _Signalled.over = False
    trains = tuple(sys.argv[1:3]) in _TRAINS
    for number in (signal.SIGTERM, *((signal.SIGINT, signal.SIGUSR1) if trains else ())):
        signal.signal(number, _Signalled.now)
    warnings.simplefilter("ignore")
    warnings.simplefilter("always", BothwaysWarning)
    warnings.showwarning = lambda message, *_: print(f"warning: {message}", file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")  # names of files, whatever the locale
    if not first:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        warnings.simplefilter("ignore")
    try:
        raise SystemExit(_status(sys.argv[1:]))
    except UserError as problem:
        status, message = 2, f"error: {problem}"
    except Interrupted as stopped:
        status, message = stopped.status, f"{stopped}{_again(stopped.saved)}" if first else ""
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except (MemoryError, RuntimeError) as problem:  # the second is torch's
        if not isinstance(problem, MemoryError) and not re.search("out of memory|allocate memory", str(problem)):
            raise
        status, message = 2, "error: not enough memory; lower training.batch_size, windows.window_s or the model's size"
    except UnicodeEncodeError as problem:
        name = ascii(problem.object[max(problem.start - 40, 0) : problem.end + 40])
        status, message = (
            2,
            f"error: the name {name} cannot be written in {problem.encoding}; set PYTHONUTF8=1, or rename it",
        )
    except OSError as problem:
        status, message = 2, f"error: {problem.filename or 'output'}: {plain_words(problem)}; check the path and space"
    except KeyboardInterrupt as stop:
        number = stop.number if isinstance(stop, _Signalled) else signal.SIGINT
        status, word = (143, "terminated") if number == signal.SIGTERM else (130, "interrupted")
        message = f"{word}: {stop}" if stop.args else word
        if trains and isinstance(stop, _Signalled):  # before the command has begun
            status = 130 if number == signal.SIGINT else 0
            message = f"stopped by a signal; to begin or go on, start it again{_again(False)}" if first else ""
    finally:
        _Signalled.over = True
        atexit.register(_last)
    if message:
        print(message, file=sys.stderr)
    raise SystemExit(status)

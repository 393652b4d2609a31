"""Runs a command: a user's mistake ends with one line and status 2, a signal with how to go on."""

import os
import shlex
import signal
import sys
import warnings

import typer

from bothways.cli.commands import app
from bothways.errors import BothwaysWarning, Interrupted, UserError, plain_words

USAGE: type[Exception] = [one for one in typer.BadParameter.__mro__ if hasattr(one, "format_message")][-1]
"""The root of what parsing raises, in click or in the copy of it that newer typer holds."""


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which ends the work as Ctrl-C does."""

    @classmethod
    def now(cls, *_: object) -> None:
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


def main() -> None:
    """Runs the command line; a `UserError` is one line on standard error and status 2."""
    signal.signal(signal.SIGTERM, _Terminated.now)
    warnings.simplefilter("ignore")
    warnings.simplefilter("always", BothwaysWarning)
    warnings.showwarning = lambda message, *_: print(f"warning: {message}", file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")  # names of files, whatever the locale
    if os.environ.get("RANK", "0") != "0":  # of several processes the first one speaks for all
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        warnings.simplefilter("ignore")
    try:
        raise SystemExit(_status(sys.argv[1:]))
    except UserError as problem:
        status, message = 2, f"error: {problem}"
    except Interrupted as stopped:
        status, message = stopped.status, f"{stopped}: {shlex.join(['bothways', *sys.argv[1:]])}"
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except MemoryError:
        status, message = 2, "error: not enough memory; lower training.batch_size or windows.window_s"
    except OSError as problem:
        status, message = 2, f"error: {problem.filename or 'output'}: {plain_words(problem)}; check the path and space"
    except KeyboardInterrupt as stop:
        status, word = (143, "terminated") if isinstance(stop, _Terminated) else (130, "interrupted")
        message = f"{word}: {stop}" if stop.args else word
    print(message, file=sys.stderr)
    raise SystemExit(status)

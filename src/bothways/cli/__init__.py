"""The command line: parse (`commands`, `closer`, `making`), call `run`, print (`printing`); `entry` runs it."""

from bothways.cli.closer import curve
from bothways.cli.commands import app, eeg
from bothways.cli.entry import main
from bothways.cli.making import paste
from bothways.cli.printing import out

__all__ = ["app", "curve", "eeg", "main", "out", "paste"]

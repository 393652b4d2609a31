"""The command line: parse (`commands`, `text_commands`, …), call `run`, print (`printing`); `entry` runs it."""

from bothways.cli.closer import curve
from bothways.cli.commands import app, eeg
from bothways.cli.entry import main
from bothways.cli.export import export
from bothways.cli.making import paste
from bothways.cli.printing import out
from bothways.cli.text_commands import text
from bothways.cli.text_curve import curve as text_curve
from bothways.cli.text_folders import text_export, text_import
from bothways.cli.text_labels import print_measured
from bothways.cli.text_use import fill_mask

__all__ = [
    "app",
    "curve",
    "eeg",
    "export",
    "fill_mask",
    "main",
    "out",
    "paste",
    "print_measured",
    "text",
    "text_curve",
    "text_export",
    "text_import",
]

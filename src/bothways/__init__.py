"""Bothways: one bidirectional encoder (BERT) with two front ends, EEG and text."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import bothways.run

__version__ = "0.1.0"


def load(path: str | Path, *, partial: bool = False) -> "bothways.run.Pretrained":
    """Loads a model in eval mode: a run of EEG or text, or a BERT that transformers saved.

    Its `load_report` says what of the weights fitted. All of them have to, unless `partial`: then what does not fit is
    drawn anew, of a model of EEG, and the report is a warning, too.

    Raises:
        UserError: no such folder, or something in it is missing, damaged or does not belong together.
    """
    from bothways.run import load_pretrained  # what it needs takes seconds to import

    return load_pretrained(path, partial=partial)

"""The walkthrough: how the encoder computes, in NumPy alone; the oracle that the PyTorch model is checked against."""

from bothways.walkthrough.display import Check, Paper
from bothways.walkthrough.eeg_reference import walk_eeg
from bothways.walkthrough.page import Walk, as_page

__all__ = ["Check", "Paper", "Walk", "as_page", "walk_eeg"]

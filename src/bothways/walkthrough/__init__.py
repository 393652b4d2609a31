"""The walkthrough: how the encoder computes, in NumPy alone; the oracle that the PyTorch model is checked against."""

from bothways.walkthrough.classifier_reference import walk_classifier
from bothways.walkthrough.display import Check, Paper
from bothways.walkthrough.eeg_model import Window, token_names, walk_eeg_model
from bothways.walkthrough.eeg_reference import walk_eeg
from bothways.walkthrough.model_story import TOLERANCE, differences, tell_model
from bothways.walkthrough.page import Walk, as_page, given, layer_alone
from bothways.walkthrough.text_model import Sentence, walk_text_model
from bothways.walkthrough.text_reference import walk_text

__all__ = [
    "TOLERANCE",
    "Check",
    "Paper",
    "Sentence",
    "Walk",
    "Window",
    "as_page",
    "differences",
    "given",
    "layer_alone",
    "tell_model",
    "token_names",
    "walk_classifier",
    "walk_eeg",
    "walk_eeg_model",
    "walk_text",
    "walk_text_model",
]

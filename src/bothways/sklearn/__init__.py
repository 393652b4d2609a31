"""The encoder as an estimator of scikit-learn: inputs and labels in, a fitted estimator out."""

from bothways.sklearn.common import InputError
from bothways.sklearn.eeg import EEGClassifier
from bothways.sklearn.text import TextClassifier, TextRegressor

__all__ = ["EEGClassifier", "InputError", "TextClassifier", "TextRegressor"]

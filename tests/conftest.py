"""Shared by all tests: array shapes are checked, Hypothesis repeats itself, real data are found or skipped."""

import os
from pathlib import Path

# The tests' tensors are tiny: a second thread only waits, and on a shared machine it waits long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

# Before any test imports the package: every annotated array shape becomes an assertion.
install_import_hook("bothways", "beartype.beartype")

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def example_data() -> Path:
    """The recordings that ship with the project."""
    return ROOT / "examples" / "data" / "eeg_mental_arithmetic"


@pytest.fixture(scope="session")
def shared() -> Path:
    """More real data than can ship, in a folder beside the checkout."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("needs the larger test data in ../shared, which are not part of the project")
    return folder

"""What tests of readers look at: codes of notes, events, segments, and the one line of a refusal."""

import gc
from pathlib import Path
from typing import Any

import pytest

from bothways.eeg import Recording, read_recording
from bothways.errors import UserError


def codes(recording: Recording) -> list[str]:
    return [note.code for note in recording.notes]


def marks(recording: Recording) -> list[tuple[int, str]]:
    return [(event.start_sample, event.label) for event in recording.events]


def segments(recording: Recording) -> list[tuple[int, int, float]]:
    return [(segment.start, segment.stop, segment.onset_s) for segment in recording.segments]


def refused(path: Path, **arguments: Any) -> str:
    """Reads what cannot be read and returns why, without the path."""
    with pytest.raises(UserError) as problem:
        read_recording(path, **arguments)
    text = str(problem.value)
    del problem
    gc.collect()  # EGI's reader leaves its file open
    assert "\n" not in text
    return text.removeprefix(f"{path}: ")

"""EEG: recordings of any format to windows of robust-scaled signal."""

from bothways.eeg.channels import parse_label
from bothways.eeg.check import check
from bothways.eeg.labels import Span, Spans, Windows, cut_windows, labels_from_events, read_labels, read_spans
from bothways.eeg.preprocess import preprocess
from bothways.eeg.quality import assess
from bothways.eeg.recording import Event, Note, Recording, Segment, read_recording
from bothways.eeg.scan import Found, scan
from bothways.eeg.store import Store, StoredRecording, prepare

__all__ = [
    "Event",
    "Found",
    "Note",
    "Recording",
    "Segment",
    "Span",
    "Spans",
    "Store",
    "StoredRecording",
    "Windows",
    "assess",
    "check",
    "cut_windows",
    "labels_from_events",
    "parse_label",
    "prepare",
    "preprocess",
    "read_labels",
    "read_recording",
    "read_spans",
    "scan",
]

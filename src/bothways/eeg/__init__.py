"""EEG: recordings of any format to windows of robust-scaled signal."""

from bothways.eeg.channels import parse_label
from bothways.eeg.check import check
from bothways.eeg.dataset import MOST_MISSING, Baselines, WindowSource, fit_spectrum, subject_baselines
from bothways.eeg.events import PredictedEvent, find_events, spans_s
from bothways.eeg.export import (
    EDF_YEARS,
    write_bids_events,
    write_edf_annotations,
    write_edf_recording,
    write_events_csv,
    write_trace_npy,
    write_trace_parquet,
)
from bothways.eeg.labels import (
    EVENTS,
    NO_CLASS,
    Span,
    Spans,
    Windows,
    baseline_spans,
    find_labels,
    labels_from_events,
    read_labels,
    read_spans,
)
from bothways.eeg.landmarks import landmarks
from bothways.eeg.moments import Moments, Trace
from bothways.eeg.montages import TEN_TWENTY, BipolarStore, in_other_unit, showing, ten_twenty
from bothways.eeg.objects import from_array, from_braindecode, from_mne
from bothways.eeg.pasting import DEAD_UV, Laid, Piece, arrange, cut_pieces, levelled, live_runs, paste
from bothways.eeg.patches import PatchEmbedding, build_embedding
from bothways.eeg.preparing import prepare
from bothways.eeg.preprocess import SCALE_SAMPLES, preprocess
from bothways.eeg.quality import assess, unusable
from bothways.eeg.reconstruction import reconstruction_errors
from bothways.eeg.recording import Event, Note, Recording, Segment, read_recording, true_time_s, unit_in_uv
from bothways.eeg.scan import Found, LeftOut, as_paths, ends_with, load, scan
from bothways.eeg.store import CLIP, Store, StoredRecording
from bothways.eeg.targets import indicators, number_text, numbers, set_in
from bothways.eeg.tracks import labelled_moments, windows_with_events
from bothways.eeg.trials import hold_trials, in_channel_order, is_epochs, read_trials, said_of
from bothways.eeg.windows import cut_windows, labelled_seconds

__all__ = [
    "CLIP",
    "DEAD_UV",
    "EDF_YEARS",
    "EVENTS",
    "MOST_MISSING",
    "NO_CLASS",
    "SCALE_SAMPLES",
    "TEN_TWENTY",
    "Baselines",
    "BipolarStore",
    "Event",
    "Found",
    "Laid",
    "LeftOut",
    "Moments",
    "Note",
    "PatchEmbedding",
    "Piece",
    "PredictedEvent",
    "Recording",
    "Segment",
    "Span",
    "Spans",
    "Store",
    "StoredRecording",
    "Trace",
    "WindowSource",
    "Windows",
    "arrange",
    "as_paths",
    "assess",
    "baseline_spans",
    "build_embedding",
    "check",
    "cut_pieces",
    "cut_windows",
    "ends_with",
    "find_events",
    "find_labels",
    "fit_spectrum",
    "from_array",
    "from_braindecode",
    "from_mne",
    "hold_trials",
    "in_channel_order",
    "in_other_unit",
    "indicators",
    "is_epochs",
    "labelled_moments",
    "labelled_seconds",
    "labels_from_events",
    "landmarks",
    "levelled",
    "live_runs",
    "load",
    "number_text",
    "numbers",
    "parse_label",
    "paste",
    "prepare",
    "preprocess",
    "read_labels",
    "read_recording",
    "read_spans",
    "read_trials",
    "reconstruction_errors",
    "said_of",
    "scan",
    "set_in",
    "showing",
    "spans_s",
    "subject_baselines",
    "ten_twenty",
    "true_time_s",
    "unit_in_uv",
    "unusable",
    "windows_with_events",
    "write_bids_events",
    "write_edf_annotations",
    "write_edf_recording",
    "write_events_csv",
    "write_trace_npy",
    "write_trace_parquet",
]

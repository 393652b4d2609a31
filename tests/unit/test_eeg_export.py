"""What is written is read again by other software: mne, edfio, pyedflib, pyarrow, NumPy; and by our own readers."""

import csv
import json
import sys
from datetime import datetime, timedelta

import edfio
import mne
import numpy as np
import pyarrow.parquet as pq
import pytest

from bothways.eeg import (
    PredictedEvent,
    read_labels,
    read_recording,
    write_bids_events,
    write_edf_annotations,
    write_events_csv,
    write_trace_npy,
    write_trace_parquet,
)
from bothways.eeg.annotations import read_annotations
from bothways.eeg.moments import Trace
from bothways.errors import UserError
from recordings import noise_uv, write_edf

EVENTS = [
    PredictedEvent(0.0, 1.5, "seizure", 0.75, 1.0),
    PredictedEvent(12.345678, 0.25, "nöbet 発作", 0.5, 0.625),
    PredictedEvent(86400.001, 300.0, "seizure, focal", 1.0, 1.0),
]
ONSETS_S = [0.0, 12.345678, 86400.001]
DURATIONS_S = [1.5, 0.25, 300.0]
LABELS = ["seizure", "nöbet 発作", "seizure, focal"]
STARTS = [
    None,
    datetime(2020, 2, 3, 4, 5, 6),
    datetime(2020, 2, 3, 23, 59, 59, 999000),
    datetime(1985, 1, 1),
    datetime(2084, 12, 31, 12),
]


def test_csv(tmp_path) -> None:
    write_events_csv(tmp_path / "a.csv", EVENTS, "sub-1/a, b.edf")
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["file", "onset_s", "duration_s", "label", "mean_probability", "max_probability"]
    assert rows[2] == ["sub-1/a, b.edf", "12.345678", "0.25", "nöbet 発作", "0.500000", "0.625000"]
    labels = read_labels(tmp_path / "a.csv")
    assert [(s.onset_s, s.duration_s, s.label) for s in labels.rows] == list(zip(ONSETS_S, DURATIONS_S, LABELS))


def test_bids(tmp_path) -> None:
    folder = tmp_path / "sub-01" / "eeg"
    write_edf(folder / "sub-01_task-rest_eeg.edf", noise_uv(4, n=200 * 20), ["Fp1", "Fp2", "C3", "C4"])
    (tmp_path / "dataset_description.json").write_text('{"Name": "x", "BIDSVersion": "1.8.0"}')
    path = folder / "sub-01_task-rest_events.tsv"
    write_bids_events(path, EVENTS[:2])
    assert path.read_text(encoding="utf-8") == (
        "onset\tduration\ttrial_type\tmean_probability\tmax_probability\n"
        "0\t1.5\tseizure\t0.750000\t1.000000\n12.345678\t0.25\tnöbet 発作\t0.500000\t0.625000\n"
    )
    about = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert list(about) == ["onset", "duration", "trial_type", "mean_probability", "max_probability"]
    assert (about["onset"]["Units"], sorted(about["trial_type"]["Levels"])) == ("s", ["nöbet 発作", "seizure"])
    events = read_recording(folder / "sub-01_task-rest_eeg.edf").events
    assert [(e.onset_s, e.duration_s, e.label) for e in events] == list(zip(ONSETS_S, DURATIONS_S, LABELS))[:2]
    with pytest.raises(UserError, match=r"ends in events\.tsv"):
        write_bids_events(tmp_path / "a.tsv", EVENTS)


@pytest.mark.parametrize("start", STARTS)
def test_edf_in_mne_and_edfio(tmp_path, start) -> None:
    path = tmp_path / "a_annotations.edf"
    write_edf_annotations(path, EVENTS, start)
    told = mne.read_annotations(path)
    np.testing.assert_allclose(told.onset, ONSETS_S, atol=1e-6)
    np.testing.assert_allclose(told.duration, DURATIONS_S, atol=1e-6)
    assert told.description.tolist() == LABELS
    edf = edfio.read_edf(path)
    assert [tuple(one) for one in edf.annotations] == list(zip(ONSETS_S, DURATIONS_S, LABELS))
    assert edf.num_signals == 0
    header = path.read_bytes()[:256]
    assert header[192:197] == b"EDF+C"
    if start is None:
        assert header[88:98] == b"Startdate "
        assert header[98:100] == b"X "
        assert header[168:184] == b"01.01.8500.00.00"
    else:
        assert datetime.combine(edf.startdate, edf.starttime) == start


@pytest.mark.parametrize("start", STARTS)
def test_edf_in_pyedflib(tmp_path, start) -> None:
    pyedflib = pytest.importorskip("pyedflib")
    write_edf_annotations(tmp_path / "a.edf", EVENTS, start)
    with pyedflib.EdfReader(str(tmp_path / "a.edf")) as file:
        onsets_s, durations_s, labels = file.readAnnotations()
        assert file.filetype == pyedflib.FILETYPE_EDFPLUS
        assert file.signals_in_file == 0
        clock = file.getStartdatetime().replace(microsecond=0)
        assert clock == (start or datetime(1985, 1, 1)).replace(microsecond=0)
    np.testing.assert_allclose(onsets_s, ONSETS_S, atol=1e-6)
    np.testing.assert_allclose(durations_s, DURATIONS_S, atol=1e-6)
    assert labels.tolist() == LABELS


@pytest.mark.parametrize("start", [datetime(2020, 2, 3, 4, 5, 6), datetime(2020, 2, 3, 4, 5, 6, 250000), None])
def test_edf_as_labels_of_its_recording(tmp_path, start) -> None:
    write_edf_annotations(tmp_path / "a_annotations.edf", EVENTS, start)
    clock = None if start is None else start.isoformat()
    (annotated,), notes = read_annotations(tmp_path, [("a.edf", clock)])
    assert [onset_s for onset_s, _, _ in annotated.events] == pytest.approx(ONSETS_S, abs=1e-6)
    assert [label for _, _, label in annotated.events] == LABELS
    assert [note.code for note in notes] == ([] if start is None or not start.microsecond else ["labels_shifted"])


def test_many_events_and_none(tmp_path) -> None:
    many = [PredictedEvent(i * 0.999, 0.5, "spike", 1.0, 1.0) for i in range(20_000)]
    write_edf_annotations(tmp_path / "many.edf", many)
    np.testing.assert_allclose(mne.read_annotations(tmp_path / "many.edf").onset, [e.onset_s for e in many], atol=1e-6)
    write_edf_annotations(tmp_path / "none.edf", [])
    assert len(mne.read_annotations(tmp_path / "none.edf")) == 0
    write_events_csv(tmp_path / "none.csv", [], "a.edf")
    write_bids_events(tmp_path / "none_events.tsv", [])
    assert len((tmp_path / "none_events.tsv").read_text().splitlines()) == 1


def test_a_start_with_a_zone_keeps_its_clock(tmp_path) -> None:
    zoned = datetime.fromisoformat("2020-02-03T04:05:06+05:00")
    assert zoned.utcoffset() == timedelta(hours=5)
    write_edf_annotations(tmp_path / "a.edf", EVENTS, zoned)
    assert edfio.read_edf(tmp_path / "a.edf").starttime == zoned.time()


@pytest.mark.parametrize("year", [1921, 2085])
def test_years_that_edf_does_not_have(tmp_path, year) -> None:
    with pytest.raises(UserError, match=f"from 1985 to 2084, which is what EDF can state, got {year}"):
        write_edf_annotations(tmp_path / "a.edf", EVENTS, datetime(year, 1, 1))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("label", ["", "  ", "two\nlines", "a\tb", "a\x14b"])
def test_labels_that_no_file_holds(tmp_path, label) -> None:
    events = [PredictedEvent(0.0, 1.0, label, 1.0, 1.0)]
    for write in (
        lambda: write_events_csv(tmp_path / "a.csv", events, "a.edf"),
        lambda: write_bids_events(tmp_path / "events.tsv", events),
        lambda: write_edf_annotations(tmp_path / "a.edf", events),
    ):
        with pytest.raises(UserError, match="labels of one line of text"):
            write()
    assert not list(tmp_path.iterdir())


def a_trace() -> Trace:
    return Trace(
        ("rest", "görev"),
        np.array([0.0, 2.0, 4.0, 100.0]),
        np.array([2.0, 2.0, 0.5, 2.0]),
        np.array([0, 0, 0, 1]),
        np.array([[0.25, 0.75], [np.nan, np.nan], [1.0, 0.0], [0.5, 0.5]]),
        2.0,
    )


def test_npy(tmp_path) -> None:
    write_trace_npy(tmp_path / "p.npy", a_trace())
    saved = np.load(tmp_path / "p.npy", allow_pickle=False)
    assert saved.dtype == np.float32
    np.testing.assert_array_equal(saved, a_trace().probabilities)
    assert json.loads((tmp_path / "p.json").read_text(encoding="utf-8")) == {
        "classes": ["rest", "görev"],
        "step_s": 2.0,
        "uncovered_s": 2.0,
        "segments": [
            {"first": 0, "stop": 3, "onset_s": 0.0, "end_s": 4.5},
            {"first": 3, "stop": 4, "onset_s": 100.0, "end_s": 102.0},
        ],
    }


def test_parquet(tmp_path) -> None:
    write_trace_parquet(tmp_path / "p.parquet", a_trace())
    table = pq.read_table(tmp_path / "p.parquet")
    assert table.column_names == ["onset_s", "duration_s", "segment", "p_rest", "p_görev"]
    assert table["onset_s"].to_pylist() == [0.0, 2.0, 4.0, 100.0]
    assert table["segment"].to_pylist() == [0, 0, 0, 1]
    assert table["p_görev"].to_pylist() == [0.75, None, 0.0, 0.5]
    assert [table.schema.field(i).metadata for i in (0, 1, 3)] == [{b"unit": b"s"}, {b"unit": b"s"}, {b"unit": b"1"}]
    about = json.loads(table.schema.metadata[b"bothways"])
    assert about == {"classes": ["rest", "görev"], "step_s": 2.0, "uncovered_s": 2.0}


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch) -> None:
    write_trace_parquet(tmp_path / "p.parquet", a_trace())
    before = (tmp_path / "p.parquet").read_bytes()

    def fail(table, file) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys.modules["pyarrow.parquet"], "write_table", fail)
    with pytest.raises(OSError, match="No space"):
        write_trace_parquet(tmp_path / "p.parquet", a_trace())
    assert [path.name for path in tmp_path.iterdir()] == ["p.parquet"]
    assert (tmp_path / "p.parquet").read_bytes() == before

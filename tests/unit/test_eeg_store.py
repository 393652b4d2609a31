import json
import pickle
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bothways.config import LabelConfig, SignalConfig, WindowConfig
from bothways.eeg import (
    Recording,
    Segment,
    Span,
    Store,
    assess,
    check,
    cut_windows,
    labels_from_events,
    prepare,
    preprocess,
    read_labels,
    read_spans,
)
from bothways.eeg.store import STEP, content_hash, from_int16, to_int16
from bothways.errors import UserError
from recordings import noise_uv, write_brainvision, write_edf

NAMES = ["Fp1", "Fp2", "C3", "C4"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Two good recordings (one with a gap and events), one broken."""
    folder = tmp_path_factory.mktemp("data")
    write_edf(folder / "sub-1_rest.edf", noise_uv(4, 6000, seed=1), NAMES)
    write_edf(
        folder / "sub-2_task.edf", noise_uv(4, 6000, seed=2), NAMES, plus="D",
        onsets_s=[*range(12), *range(20, 38)], annotations=[(2, 4, "go"), (21, 3, "stop"), (25, None, "tick")],
    )  # fmt: skip
    (folder / "sub-3_bad.edf").write_bytes(b"no")
    return folder


@pytest.fixture(scope="module")
def store(data, tmp_path_factory):
    return prepare([data], tmp_path_factory.mktemp("stores") / "store")


def test_store_holds_what_it_says(store):
    first, second = store.recordings
    assert (first.file, first.subject, second.file, second.subject) == (
        "sub-1_rest.edf",
        "1",
        "sub-2_task.edf",
        "2",
    )
    assert first.ch_names == NAMES
    assert first.positions.shape == (4, 2, 3)
    assert [(s.start, s.stop, s.onset_s) for s in second.segments] == [(0, 2400, 0.0), (2400, 6000, 20.0)]
    assert [(e.label, e.start_sample, e.onset_s) for e in second.events] == [
        ("go", 400, 2.0), ("stop", 2600, 21.0), ("tick", 3400, 25.0),
    ]  # fmt: skip
    assert store.head["totals"] == {"recordings": 2, "subjects": 2, "duration_s": 60.0, "skipped": 1}
    assert [s["file"] for s in store.head["skipped"]] == ["sub-3_bad.edf"]
    assert "not an EDF or BDF file" in store.head["skipped"][0]["reason"]
    assert store.signal == SignalConfig()
    assert len(first.sha256) == 64


def test_store_reads_robust_units(store):
    whole = store.read(0)
    assert (whole.shape, whole.dtype) == ((4, 6000), np.float32)
    np.testing.assert_allclose(np.median(whole, axis=1), 0, atol=1e-3)
    np.testing.assert_allclose(1.4826 * np.median(np.abs(whole), axis=1), 1, atol=2e-3)
    np.testing.assert_array_equal(store.read(0, 1234, 500), whole[:, 1234:1734])
    assert store.recordings[0].scale_uv == pytest.approx(np.full(4, 26), rel=0.05)
    with pytest.raises(IndexError):
        store.read(0, 5900, 101)


def test_the_hash_is_of_the_content_whatever_the_header(tmp_path):
    for number in (1, 2, 3):  # the same bytes in each header; the third holds the samples of the first
        (tmp_path / f"sub-{number}").mkdir()
        write_brainvision(tmp_path / f"sub-{number}" / "rest.vhdr", noise_uv(seed=number % 2), NAMES)
    headers = {path.read_bytes() for path in tmp_path.rglob("*.vhdr")}
    assert len(headers) == 1
    write_brainvision(tmp_path / "sub-4_renamed.vhdr", noise_uv(seed=0), NAMES)
    write_edf(tmp_path / "sub-5_a.edf", noise_uv(seed=5), NAMES)
    write_edf(tmp_path / "sub-5_b.edf", noise_uv(seed=5), NAMES, start=b"03.02.2010.20.30")
    expected = {
        "sub-3/rest.vhdr": "same content as sub-1/rest.vhdr",
        "sub-4_renamed.vhdr": "same content as sub-2/rest.vhdr",
        "sub-5_b.edf": "same content as sub-5_a.edf",
    }
    stored = prepare([tmp_path], tmp_path / "store").recordings
    assert {r.file: n.message for r in stored for n in r.notes if n.code == "duplicate_content"} == expected
    assert len({r.sha256 for r in stored}) == 3
    checked = check([tmp_path])["recordings"]
    assert {
        r["file"]: n["message"] for r in checked for n in r["notes"] if n["code"] == "duplicate_content"
    } == expected


def test_the_hash_is_of_names_rate_segments_and_microvolts():
    recording = Recording(
        Path("a.edf"), "EDF", np.array([[1, 2]], np.float32), ["C3"], ["C3"], np.zeros((1, 2, 3), np.float32), 200.0,
        [Segment(0, 2, 0.0)],
    )  # fmt: skip
    # of '[["C3"], 200.0, [[0, 2, 0.0]]]' and the bytes 0000803f 00000040
    assert content_hash(recording) == "0a9ba9309a5a0c4195bdf1f8c41ca1fb059bc6ff1a637375eca10977cd6ffcfa"
    assert content_hash(replace(recording, path=Path("b.set"), format="EEGLAB")) == content_hash(recording)
    for other in ({"ch_names": ["C4"]}, {"sfreq_hz": 100.0}, {"segments": [Segment(0, 2, 1.0)]}):
        assert content_hash(replace(recording, **other)) != content_hash(recording)


def test_store_is_the_same_each_time_and_nothing_lies_beside_the_data(data, store, tmp_path):
    before = sorted(path.name for path in data.iterdir())
    again = prepare([data], tmp_path / "again")
    assert sorted(path.name for path in data.iterdir()) == before
    for path in sorted(store.path.rglob("*")):
        if path.is_file():
            assert (again.path / path.relative_to(store.path)).read_bytes() == path.read_bytes()


def test_store_can_go_to_a_worker(store):
    store.read(0)
    copy = pickle.loads(pickle.dumps(store))
    np.testing.assert_array_equal(copy.read(1, 5, 10), store.read(1, 5, 10))


def test_int16_keeps_missing_and_clips():
    data = np.array([[0, 1, -1, 1e6, -1e6, np.nan]], np.float32)
    back = from_int16(to_int16(data, np.zeros(1, np.float32), np.ones(1, np.float32)))
    np.testing.assert_allclose(back[0, :5], [0, 1, -1, 15, -15], atol=STEP / 2)
    assert np.isnan(back[0, 5])


def test_prepare_refuses_before_it_works(data, tmp_path):
    (tmp_path / "there").mkdir()
    with pytest.raises(UserError, match="already exists"):
        prepare([data], tmp_path / "there")
    with pytest.raises(UserError, match=r"none of 1 recordings can be used: .*not an EDF"):
        prepare([data / "sub-3_bad.edf"], tmp_path / "none")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_a_recording_that_does_not_fit_in_memory_is_left_out(tmp_path, monkeypatch):
    for number in (1, 2):
        write_edf(tmp_path / f"sub-{number}.edf", noise_uv(seed=number), NAMES)

    def full(recording, *_):
        if recording.path.name == "sub-1.edf":
            raise MemoryError
        return real(recording, *_)

    reason = (
        f"{tmp_path / 'sub-1.edf'}: does not fit in memory (a header that states false sizes does the same); "
        "free memory or cut the file"
    )
    real = preprocess
    monkeypatch.setattr(sys.modules["bothways.eeg.preparing"], "preprocess", full)
    store = prepare([tmp_path], tmp_path / "store")
    assert [recording.file for recording in store.recordings] == ["sub-2.edf"]
    assert store.head["skipped"] == [{"file": "sub-1.edf", "reason": reason}]
    real = assess
    monkeypatch.setattr(sys.modules["bothways.eeg.check"], "assess", full)
    first, second = check([tmp_path / "sub-1.edf", tmp_path / "sub-2.edf"])["recordings"]
    assert (first["status"], first["reason"], second["status"]) == ("unusable", reason, "ok")


def test_a_unit_slip_is_not_prepared(tmp_path):
    path = write_edf(tmp_path / "sub-1.edf", noise_uv(), NAMES, units="mV")
    with pytest.raises(UserError, match="÷1000 would make"):
        prepare([path], tmp_path / "store")
    assert prepare([path], tmp_path / "store", unit="uV").recordings[0].bad_channels == []


def test_damaged_stores_are_refused(data, tmp_path):
    with pytest.raises(UserError, match="expected a prepared store"):
        Store.open(tmp_path)
    path = prepare([data / "sub-1_rest.edf"], tmp_path / "store").path
    signals = path / "signals" / "000000.npy"
    whole = signals.read_bytes()
    signals.write_bytes(whole[:-10])
    with pytest.raises(UserError, match="the store is damaged"):
        Store.open(path)
    signals.write_bytes(b"x" * len(whole))
    with pytest.raises(UserError, match="the store is damaged"):
        Store.open(path).read(0)
    entries = json.loads((path / "recordings.json").read_text())
    del entries[0]["segments"]
    (path / "recordings.json").write_text(json.dumps(entries))
    with pytest.raises(UserError, match=r"the store is damaged \(KeyError: 'segments'\)"):
        Store.open(path)
    (path / "store.json").write_text('{"format_version": 99}')
    with pytest.raises(UserError, match="expected a store of version 1, got 99"):
        Store.open(path)


def test_windows_keep_to_their_segment(store):
    windows = cut_windows(store, WindowConfig(window_s=5, stride_s=5))
    assert list(zip(windows.recording.tolist(), windows.start.tolist())) == [
        (0, 0), (0, 1000), (0, 2000), (0, 3000), (0, 4000), (0, 5000),
        (1, 0), (1, 1000), (1, 2400), (1, 3400), (1, 4400),
    ]  # fmt: skip
    assert windows.window_samples == 1000
    assert set(windows.label.tolist()) == {-1}
    assert windows.subject.tolist() == ["1"] * 6 + ["2"] * 5
    assert (windows.earliest[8], windows.latest[8]) == (2400, 5000)
    assert windows.counts() == {
        "windows": 11, "classes": {"(no label)": 11}, "subjects": {"1": {"(no label)": 6}, "2": {"(no label)": 5}},
    }  # fmt: skip


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def test_whole_files_are_labelled(store, tmp_path):
    labels = read_labels(
        write(tmp_path / "l.csv", "\ufefffile,label,age\r\nsub-1_rest.edf,NA\r\nsub-2_task.edf,-1\r\n")
    )
    windows = cut_windows(store, WindowConfig(window_s=10, stride_s=10), labels)
    assert windows.classes == ["-1", "NA"]
    assert windows.label.tolist() == [1, 1, 1, 0, 0]
    assert windows.counts()["subjects"] == {"1": {"-1": 0, "NA": 3}, "2": {"-1": 2, "NA": 0}}
    assert [(n.code, n.message) for n in windows.notes] == [("columns_ignored", "columns not used: age")]


def test_stretches_are_labelled_in_true_time(store, tmp_path):
    rows = (
        "file,onset_s,duration_s,label\nsub-2_task.edf,0,5,a\nsub-2_task.edf,21,4.5,b\nsub-9.edf,0,5,c\n"
        "sub-1_rest.edf,0,1.5,d\n"
    )
    windows = cut_windows(
        store, WindowConfig(window_s=2, stride_s=2), read_labels(write(tmp_path / "l.csv", rows)), recordings=[1]
    )
    labelled = windows.select(windows.label >= 0)
    assert [(windows.classes[label], start) for label, start in zip(labelled.label, labelled.start)] == [
        ("a", 0), ("a", 400), ("b", 2600), ("b", 3000),
    ]  # fmt: skip
    rest = windows.start[windows.label < 0].tolist()
    assert rest == [1000, 1400, 1800, 3500, 3900, 4300, 4700, 5100, 5500]
    assert [n.code for n in windows.notes] == ["rows_unmatched"]
    everything = cut_windows(store, WindowConfig(window_s=2, stride_s=2), read_labels(tmp_path / "l.csv"))
    assert [n.code for n in everything.notes] == ["rows_unmatched", "label_too_short"]


def test_spans_limit_and_rename(store, tmp_path):
    spans = read_spans(write(tmp_path / "b.csv", "file,onset_s,duration_s,subject\nsub-2_task.edf,6,20,anna\n"))
    windows = cut_windows(store, WindowConfig(window_s=3, stride_s=3), spans=spans)
    assert windows.start.tolist() == [1200, 1800, 2400, 3000]
    assert windows.subject.tolist() == ["anna"] * 4


def test_labels_from_events(store):
    labels = labels_from_events(store)
    assert labels.rows == [Span("sub-2_task.edf", 2.0, 4.0, "go"), Span("sub-2_task.edf", 21.0, 3.0, "stop")]
    assert labels.notes[0].message == (
        "events without a duration are left out (set labels.duration_s to give them one): tick (1)"
    )
    assert {row.label for row in labels_from_events(store, LabelConfig(map={"go": "x"})).rows} == {"x"}
    with pytest.raises(UserError, match="expected labels, found no usable one"):
        labels_from_events(store, LabelConfig(map={"nothing": "x"}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,klass\na,b\n", "expected a column 'label' with the labels, got klass; name the one that holds them"),
        ("", "got an empty file"),
        ("file,label\nsub-1_rest.edf,\n", "expected labelled rows, got 1 rows and no label"),
        ("file,onset_s,label\nsub-1_rest.edf,3,x\n", "expected both onset_s and duration_s or neither"),
        ("file,onset_s,duration_s,label\nsub-1_rest.edf,x,3,x\n", "line 2: expected seconds in onset_s, got 'x'"),
        ("file,onset_s,duration_s,label\nsub-1_rest.edf,1,0,x\n", "expected a duration_s above 0, got 0"),
        ("file,label\nother.edf,x\n", r"none of 1 rows names a recording of the store: other\.edf"),
        ("file,label\nedf,x\n", "none of 1 rows"),
        ("file,onset_s,duration_s,label\nsub-1_rest.edf,0,5,x\nsub-1_rest.edf,4,5,y\n",
         "'x' and 'y' overlap at 4 s"),
    ],
)  # fmt: skip
def test_label_files_that_cannot_be_used(store, tmp_path, text, message):
    path = write(tmp_path / "l.csv", text)
    with pytest.raises(UserError, match=message):
        cut_windows(store, WindowConfig(window_s=2, stride_s=2), read_labels(path))


def test_a_name_that_fits_two_recordings_is_refused(tmp_path):
    for name in ("a", "b"):
        write_edf(tmp_path / name / "one.edf", noise_uv(seed=ord(name)), NAMES)
    store = prepare([tmp_path], tmp_path / "store", subject_from="parent")
    with pytest.raises(UserError, match=r"one\.edf fits 2 recordings \(a/one\.edf, b/one\.edf\); write more"):
        cut_windows(store, WindowConfig(window_s=2, stride_s=2), [Span("one.edf", label="x")])
    assert len(cut_windows(store, WindowConfig(window_s=2, stride_s=2), [Span("b/one.edf", label="x")])) == 8


def test_folders_that_the_store_does_not_have_are_noted(store):
    rows = [Span("elsewhere/sub-1_rest.edf", label="x"), Span("./sub-2_task.edf", label="y")]
    windows = cut_windows(store, WindowConfig(window_s=10, stride_s=10), rows)
    assert windows.counts()["classes"] == {"x": 3, "y": 2}
    assert [(n.code, n.message) for n in windows.notes] == [(
        "folders_dropped",
        "labels: 1 rows name folders that the store does not; taken sub-1_rest.edf for elsewhere/sub-1_rest.edf",
    )]  # fmt: skip


def test_windows_are_counted(store):
    windows = cut_windows(store, WindowConfig(window_s=10, stride_s=10), [Span("sub-2_task.edf", label="y")])
    assert windows.counts() == {
        "windows": 5, "classes": {"y": 2, "(no label)": 3},
        "subjects": {"1": {"y": 0, "(no label)": 3}, "2": {"y": 2}},
    }  # fmt: skip
    assert windows.select(np.array([], np.int64)).counts() == {"windows": 0, "classes": {"y": 0}, "subjects": {}}


def test_windows_longer_than_everything(store):
    with pytest.raises(UserError, match="no window of 60 s fits in the recordings"):
        cut_windows(store, WindowConfig(window_s=60, stride_s=60))
    some = cut_windows(store, WindowConfig(window_s=25, stride_s=25))
    assert [(n.code, n.message) for n in some.notes] == [
        ("no_window", "sub-2_task.edf: no window of 25 s fits in 30 s")
    ]


def test_windows_longer_than_the_labelled_stretches(store):
    labels = [
        Span("sub-2_task.edf", onset_s=float(at), duration_s=1.0, label="xy"[at % 2])
        for at in [*range(12), *range(20, 38)]
    ]
    long = WindowConfig(window_s=2, stride_s=2)
    with pytest.raises(
        UserError,
        match=r"no window of 2 s fits in a labelled stretch, or between two, for the longest "
        r"has 1 s; choose a shorter one, or lower windows.min_overlap",
    ):
        cut_windows(store, long, labels, recordings=[1])
    windows = cut_windows(store, long, labels)
    assert [n.message for n in windows.notes if n.code == "no_window"] == [
        "sub-2_task.edf: no window of 2 s fits in a labelled stretch, or between two, for the longest has 1 s"
    ]

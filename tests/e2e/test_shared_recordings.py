"""Every EEG case of the shared bug reports, and every recording of the shared format collection."""

import json
import os
import shutil

import numpy as np
import pytest

from bothways.config import SignalConfig, WindowConfig
from bothways.eeg import (
    Segment,
    assess,
    check,
    cut_windows,
    labels_from_events,
    prepare,
    preprocess,
    read_labels,
    read_recording,
    scan,
)
from bothways.errors import UserError


@pytest.fixture(scope="session")
def cases(shared):
    return shared / "cases"


@pytest.fixture(scope="session")
def expected(cases):
    """The manifest: file -> what a test can compare."""
    return {case["file"]: case.get("expect", {}) for case in json.loads((cases / "manifest.json").read_text())["cases"]}


@pytest.fixture(scope="session")
def clean(cases):
    return read_recording(cases / "ref_clean.edf")


@pytest.fixture(scope="session")
def formats(shared):
    return shared / "data" / "eeg_formats"


def codes(recording):
    return [note.code for note in recording.notes]


def test_reference(clean, expected):
    wanted = expected["ref_clean.edf"]
    assert clean.ch_names == wanted["channels"]
    assert (clean.sfreq_hz, clean.data_uv.shape) == (wanted["sfreq"], (4, wanted["n_samples"]))
    for name, first_uv in wanted["first_uv"].items():
        np.testing.assert_allclose(clean.data_uv[clean.ch_names.index(name), :3], first_uv, atol=1e-4)


@pytest.mark.parametrize(
    ("file", "notes"),
    [
        ("b01_date_zero.edf", ["bad_date"]),
        ("b01_year_1963.edf", []),
        ("b03_latin1_header.edf", ["unknown_names"]),
        ("b05_nrec_minus1.edf", ["record_count"]),
        ("b37_readonly/rec.edf", []),
        ("b38_unicode/日本語 ğü/ñandú é🙂 01.edf", []),
        ("b40_eeglab/renamed.set", ["reader"]),
        ("b49_not_edf/good.edf", []),
    ],
)
def test_same_signals_as_the_reference(cases, clean, expected, file, notes):
    recording, wanted = read_recording(cases / file), expected[file]
    np.testing.assert_allclose(recording.data_uv, clean.data_uv, rtol=0, atol=1e-4)
    assert codes(recording) == notes
    assert recording.sfreq_hz == 200.0
    if "channels" in wanted:
        assert recording.ch_names == wanted["channels"]
    if "events" in wanted:
        assert [[e.label, e.start_sample] for e in recording.events] == wanted["events"]
    if "meas_date" in wanted:
        date = recording.meas_date
        assert (date and date.isoformat()) == wanted["meas_date"]


def test_b06_truncated(cases, clean):
    recording = read_recording(cases / "b06_truncated.edf")
    np.testing.assert_array_equal(recording.data_uv, clean.data_uv[:, :1400])
    assert codes(recording) == ["truncated"]


def test_b08_duplicate_labels(cases, clean):
    recording = read_recording(cases / "b08_duplicate_labels.edf")
    assert recording.ch_names == ["T8-P8", "Fp2", "C3", "T8-P8#2"]
    assert codes(recording) == ["duplicate_labels"]
    assert not np.array_equal(recording.data_uv[0], recording.data_uv[3])


def test_b10_mixed_rates(cases, clean):
    recording = read_recording(cases / "b10_mixed_rates.edf")
    assert (recording.ch_names, recording.sfreq_hz) == (["Fp1", "C3"], 200.0)
    np.testing.assert_array_equal(recording.data_uv, clean.data_uv[[0, 2]])
    assert list(recording.left_out) == ["ECG", "Resp"]


def test_b11_record_length(cases):
    two, thirty = (read_recording(cases / f"b11_record_{n}s.edf") for n in (2, 30))
    assert (two.sfreq_hz, two.data_uv.shape[1], two.duration_s) == (256.0, 2048, 8.0)
    assert (thirty.sfreq_hz, thirty.data_uv.shape, thirty.duration_s) == (100.0, (1, 6000), 60.0)
    assert thirty.left_out == {"Temp rectal": "temperature, not scalp EEG"}


def test_b12_no_physical_range(cases, clean, tmp_path):
    recording = read_recording(cases / "b12_physmin_eq_physmax.edf")
    np.testing.assert_array_equal(recording.data_uv[[0, 1, 3]], clean.data_uv[[0, 1, 3]])
    assert assess(recording)[1] == ["C3"]
    store = prepare([recording.path], tmp_path / "store")
    assert store.recordings[0].bad_channels == ["C3"]
    assert np.isnan(store.read(0)).all(1).tolist() == [False, False, True, False]
    assert np.isfinite(store.recordings[0].scale_uv).all()


def test_b13_units(cases):
    data_uv = read_recording(cases / "b13_units_uV_mV_V_nV.edf").data_uv
    for row in data_uv[1:]:
        np.testing.assert_allclose(row, data_uv[0], atol=0.1)
    assert data_uv[0].std() == pytest.approx(22.93, abs=0.01)


def test_b15_gap(cases, expected, tmp_path):
    recording = read_recording(cases / "b15_edfplus_d_gap.edf")
    assert recording.segments == [Segment(0, 800, 0.0), Segment(800, 1600, 10.0)]
    events = [[e.label, e.onset_s, e.start_sample] for e in recording.events]
    assert [e for e in events if e[0] == "seizure"] == expected["b15_edfplus_d_gap.edf"]["events"]
    store = prepare([recording.path], tmp_path / "store")
    windows = cut_windows(store, WindowConfig(window_s=1.5, stride_s=0.5))
    assert len(windows) == 12
    assert not any(start < 800 < start + 300 for start in windows.start)


def test_b17_hypnogram(cases, tmp_path):
    with pytest.raises(UserError, match="annotations only"):
        read_recording(cases / "b17_hypnogram.edf")
    folder = tmp_path / "night"
    folder.mkdir()
    for name in ("b17_hypnogram.edf", "b17_psg.edf"):
        shutil.copy(cases / name, folder)
    store = prepare([folder], tmp_path / "store")
    assert [r.file for r in store.recordings] == ["b17_psg.edf"]
    assert store.head["totals"]["duration_s"] == 150.0
    reason = "annotations only, of b17_psg.edf: no recording, but labels (finetune --labels)"
    assert store.head["left_out"] == [{"file": "b17_hypnogram.edf", "code": "annotations", "reason": reason}]
    assert (store.head["skipped"], check([folder])["exit_status"]) == ([], 1)


def test_b18_annotations_past_the_end(cases, tmp_path):
    recording = read_recording(cases / "b18_annotation_past_end.edf")
    assert [e.label for e in recording.events] == ["A", "B", "D"]
    assert codes(recording) == ["events_outside", "events_shortened"]
    assert "C at 9 s" in recording.notes[0].message
    store = prepare([recording.path], tmp_path / "store")
    windows = cut_windows(store, WindowConfig(window_s=1, stride_s=1), labels_from_events(store))
    labelled = windows.select(windows.label >= 0)
    assert [[windows.classes[k], int(start)] for k, start in zip(labelled.label, labelled.start)] == [
        ["A", 400], ["A", 600], ["B", 1400],
    ]  # fmt: skip
    assert [n.message for n in windows.notes if n.code == "label_outside"] == [
        "1 labelled stretches hold no sample of their recording: D in b18_annotation_past_end.edf"
    ]


@pytest.mark.parametrize("file", ["b21_tuh_ref.edf", "b21_tuh_le.edf", "b23_trailing_dots.edf"])
def test_names(cases, expected, file):
    recording, wanted = read_recording(cases / file), expected[file]
    assert recording.ch_names == wanted["eeg_channels"]
    assert np.isfinite(recording.positions[:, 0]).all()
    said = " ".join(recording.left_out)
    assert all(name in said for name in wanted.get("not_scalp_eeg", []))


def test_b25_status(cases, expected):
    recording, wanted = read_recording(cases / "b25_biosemi_status.bdf"), expected["b25_biosemi_status.bdf"]
    assert (recording.ch_names, recording.sfreq_hz) == (wanted["eeg_channels"], wanted["sfreq"])
    assert recording.data_uv.shape[1] == wanted["n_samples"]
    assert [[e.start_sample, int(e.label)] for e in recording.events] == wanted["trigger_events"]


def test_b26_missing(cases, tmp_path):
    recording = read_recording(cases / "b26_nan_raw.fif")
    assert np.argwhere(np.isnan(recording.data_uv)).tolist() == [[2, i] for i in range(500, 550)]
    store = prepare([recording.path], tmp_path / "store")
    missing = np.isnan(store.read(0))
    assert missing.sum(1).tolist() == [0, 0, 70, 0]
    assert store.recordings[0].bad_channels == []
    assert "missing_samples" in [n.code for n in store.recordings[0].notes]


def test_b27_flat(cases, tmp_path):
    store = prepare([cases / "b27_flat.edf"], tmp_path / "store")
    (entry,) = store.recordings
    assert entry.bad_channels == ["C3"]
    assert entry.quality["C3"]["bad"] == ["100% flat"]
    data = store.read(0)
    missing = np.isnan(data)
    assert missing[2].all()
    assert missing[:, 1200:1400].all()
    assert not missing[[0, 1, 3]][:, :1180].any()
    assert np.nanmax(np.abs(data)) < 10
    assert "flat_stretches" in [n.code for n in entry.notes]


@pytest.mark.parametrize(
    ("file", "sfreq_hz", "n_samples", "n_prepared"),
    [("b29_173_61_hz.edf", 173.61, 4097, 4720), ("b30_250_hz_9_9_s.edf", 250.0, 2475, 1980)],
)
def test_rates(cases, tmp_path, file, sfreq_hz, n_samples, n_prepared):
    recording = read_recording(cases / file)
    assert recording.sfreq_hz == pytest.approx(sfreq_hz, abs=0.001)
    assert recording.data_uv.shape[1] == n_samples
    data_uv = preprocess(recording, SignalConfig()).data_uv
    assert data_uv.shape[1] == n_prepared
    power = np.abs(np.fft.rfft(data_uv * np.hanning(n_prepared))).mean(0)
    assert np.fft.rfftfreq(n_prepared, 1 / 200)[power.argmax()] == pytest.approx(10, abs=0.06)
    store = prepare([recording.path], tmp_path / "store")
    assert len(cut_windows(store, WindowConfig(window_s=1, stride_s=1))) == n_prepared // 200


def test_b31_too_short(cases, tmp_path):
    assert read_recording(cases / "b31_half_second.edf").data_uv.shape[1] == 100
    with pytest.raises(UserError, match="no data"):
        read_recording(cases / "b31_zero_records.edf")
    store = prepare([cases / "b31_3s.edf", cases / "ref_clean.edf", cases / "b31_zero_records.edf"], tmp_path / "store")
    windows = cut_windows(store, WindowConfig(window_s=4, stride_s=4))
    assert [store.recordings[i].file for i in windows.recording] == ["ref_clean.edf"] * 2
    assert [n.message for n in windows.notes] == ["b31_3s.edf: no window of 4 s fits in 3 s"]
    with pytest.raises(UserError, match=r"none of 1 recordings can be used: .*no data"):
        prepare([cases / "b31_zero_records.edf"], tmp_path / "none")


def test_b33_montages_differ(cases, expected):
    a = read_recording(cases / "b33_subject_a.edf")
    for letter in "abc":
        file = f"b33_subject_{letter}.edf"
        recording = read_recording(cases / file)
        assert sorted(recording.ch_names) == sorted(expected[file]["matched"])
        for name, row in zip(recording.ch_names, recording.data_uv):
            np.testing.assert_array_equal(row, a.data_uv[a.ch_names.index(name)])


def test_b35_class_counts(cases, tmp_path):
    store = prepare([cases / "b35_imbalance"], tmp_path / "store")
    counts = cut_windows(store, WindowConfig(window_s=1, stride_s=1), labels_from_events(store)).counts()
    assert counts["classes"] == {"bckg": 46, "seiz": 2}
    assert counts["subjects"]["01"] == {"bckg": 11, "seiz": 1}
    assert counts["subjects"]["02"] == {"bckg": 12, "seiz": 0}


def test_b37_nothing_is_written_beside_the_data(cases, tmp_path):
    folder = tmp_path / "data"
    shutil.copytree(cases / "b37_readonly", folder)
    for path in [*folder.iterdir(), folder]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir())
    check([folder])
    prepare([folder], tmp_path / "store")
    assert sorted((path.name, path.stat().st_mtime_ns) for path in folder.iterdir()) == before
    folder.chmod(0o755)
    if os.getuid() == 0:
        return  # root writes everywhere, so a refused output cannot be shown
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    with pytest.raises(UserError, match="cannot be written"):
        prepare([folder], locked / "store")


def test_b38_unicode_names(cases, tmp_path):
    store = prepare([cases / "b38_unicode"], tmp_path / "ğü 🙂")
    assert store.recordings[0].file == "日本語 ğü/ñandú é🙂 01.edf"
    assert "ñandú é🙂 01" in (store.path / "recordings.json").read_text(encoding="utf-8")


def test_b40_eeglab(cases):
    with pytest.raises(UserError, match=r"orphan\.fdt"):
        read_recording(cases / "b40_eeglab" / "orphan.set")
    with pytest.raises(UserError, match=r"expected 1600 samples in short\.fdt, it holds 1200"):
        read_recording(cases / "b40_eeglab" / "short.set")
    report = check([cases / "b40_eeglab"])
    assert {r["file"]: r["status"] for r in report["recordings"]} == {
        "orphan.set": "unusable", "renamed.set": "warning", "short.set": "unusable",
    }  # fmt: skip


def test_b47_labels_of_whole_files(cases, tmp_path):
    store = prepare([cases / "b47_leak"], tmp_path / "store")
    windows = cut_windows(store, WindowConfig(window_s=2, stride_s=1), read_labels(cases / "b47_leak" / "labels.csv"))
    assert len(set(windows.subject.tolist())) == 8
    assert (windows.label >= 0).all()


def test_b49_not_an_edf(cases):
    report = check([cases / "b49_not_edf"], subject_from="parent")
    assert {r["file"]: r["status"] for r in report["recordings"]} == {
        "cut_header.edf": "unusable", "empty.edf": "unusable", "good.edf": "ok", "page.edf": "unusable",
    }  # fmt: skip
    reasons = {r["file"]: r["reason"] for r in report["recordings"]}
    assert "not an EDF" in reasons["page.edf"]
    assert "not an EDF" in reasons["empty.edf"]
    assert "header is incomplete" in reasons["cut_header.edf"]
    assert not any("\n" in reason for reason in reasons.values())


@pytest.mark.parametrize(
    ("file", "form", "n_channels", "sfreq_hz", "n_events", "first"),
    [
        ("bdf/eeg_16ch_256hz.bdf", "BDF", 16, 256, 80, "A1"),
        ("bdf/test_bdf_stim_channel.bdf", "BDF", 3, 500, 9, "C3"),
        ("brainvision/test.vhdr", "BrainVision", 26, 1000, 13, "Fp1"),
        ("edf_duplicate_labels/duplicate_channel_labels.edf", "EDF+C", 3, 250, 0, "F1"),
        ("edf_plus_annotated/clinical_42ch.edf", "EDF+C", 29, 200, 5, "Fp1"),
        ("edf_plus_annotated/motor_imagery_T0T1T2.edf", "EDF+C", 64, 128, 38, "FC5"),
        ("edf_plus_d/discontinuous_two_gaps.edf", "EDF+D", 19, 500, 1, "Fp1"),
        ("eeglab_set_fdt/test_raw_chanloc.set", "EEGLAB", 61, 128, 1, "Fp1"),
        ("eeglab_set_hdf5/test_raw_h5.set", "EEGLAB", 32, 128, 154, "EEG 000"),
        ("egi_raw/test_egi.raw", "EGI", 256, 250, 2, "E1"),
        ("fif/brainvision_export_raw.fif", "FIF", 32, 1000, 10, "EEG 001"),
        ("neuroscan_cnt/scan41_short.cnt", "CNT", 124, 400, 6, "1"),
        ("nicolet/test_nicolet_raw.data", "Nicolet", 24, 256, 0, "Fp1"),
        ("nihon_kohden/MB0400FU.EDF", "EDF+D", 20, 200, 2, "Fp2"),
        ("nihon_kohden/MB0400FU.EEG", "Nihon", 19, 200, 2, "Fp2"),
    ],
)
def test_formats(formats, file, form, n_channels, sfreq_hz, n_events, first):
    recording = read_recording(formats / file)
    assert (recording.format, recording.sfreq_hz, recording.ch_names[0]) == (form, sfreq_hz, first)
    assert recording.data_uv.shape[0] == n_channels == len(recording.ch_names) == len(recording.positions)
    assert len(recording.events) == n_events
    assert len(set(recording.ch_names)) == n_channels


def test_formats_that_hold_no_recording(formats):
    with pytest.raises(UserError, match="annotations only"):
        read_recording(formats / "edf_annotations_only" / "SC4001EC-Hypnogram.edf")
    with pytest.raises(UserError, match="no EEG channels among the 1 in the file"):
        read_recording(formats / "gdf" / "test_1ch.gdf")


def test_two_gaps(formats):
    recording = read_recording(formats / "edf_plus_d" / "discontinuous_two_gaps.edf")
    assert recording.segments == [Segment(0, 4000, 0.0), Segment(4000, 8000, 60.0), Segment(8000, 12000, 150.0)]
    assert recording.left_out["EEG A2-A1"] == "reference electrode, not scalp EEG"


def test_one_recording_in_two_formats(formats):
    brainvision = read_recording(formats / "brainvision" / "test.vhdr")
    fif = read_recording(formats / "fif" / "brainvision_export_raw.fif")
    np.testing.assert_allclose(fif.data_uv[:26], brainvision.data_uv, atol=0.01)
    kohden, edf = (read_recording(formats / "nihon_kohden" / f"MB0400FU.{end}") for end in ("EEG", "EDF"))
    assert len(edf.segments) == 1
    rows = [edf.ch_names.index(name) for name in kohden.ch_names[:19]]
    np.testing.assert_allclose(edf.data_uv[rows], kohden.data_uv[:19], atol=0.2)


def test_digitised_positions_come_first(formats):
    recording = read_recording(formats / "eeglab_set_fdt" / "test_raw_chanloc.set")
    assert codes(recording) == ["digitised_positions"]
    assert np.abs(np.linalg.norm(recording.positions[:, 0], axis=1) - 1).max() < 0.3
    cz = recording.positions[recording.ch_names.index("Cz"), 0]
    assert cz[2] > 0.9


def test_the_whole_collection_in_one_go(formats, tmp_path):
    assert len(scan([formats])) == 19
    store = prepare([formats], tmp_path / "store")
    assert [s["file"] for s in store.head["skipped"]] == [
        "edf_annotations_only/SC4001EC-Hypnogram.edf", "egi_raw/test_egi.raw", "gdf/test_1ch.gdf",
    ]  # fmt: skip
    assert "too short: 0.308 s" in store.head["skipped"][1]["reason"]
    assert store.head["totals"]["recordings"] == 16
    assert cut_windows(store, WindowConfig(window_s=1, stride_s=1)).notes == []


def test_mental_arithmetic(shared, tmp_path):
    folder = shared / "data" / "eeg_mental_arithmetic"
    store = prepare([folder], tmp_path / "store")
    assert store.head["totals"] == {"recordings": 60, "subjects": 30, "duration_s": 5400.0, "skipped": 0}
    windows = cut_windows(store, WindowConfig(), read_labels(folder / "recordings.csv"))
    assert windows.counts()["classes"] == {"rest": 360, "task": 180}
    assert windows.counts()["subjects"]["07"] == {"rest": 12, "task": 6}
    assert all(r.bad_channels == [] for r in store.recordings)

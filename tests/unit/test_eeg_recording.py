from datetime import datetime

import numpy as np
import pytest

from bothways.eeg import Event, Segment, check, companions, from_mne, read_recording
from bothways.eeg.recording import unit_in_uv
from bothways.errors import UserError
from recordings import noise_uv, write_brainvision, write_edf, write_eeglab, write_fif

NAMES = ["Fp1", "Fp2", "C3", "C4"]


def codes(recording):
    return [note.code for note in recording.notes]


def test_edf_equals_what_was_written(tmp_path):
    data = noise_uv()
    recording = read_recording(write_edf(tmp_path / "a.edf", data, NAMES))
    np.testing.assert_allclose(recording.data_uv, data, atol=1e-4)
    assert recording.data_uv.dtype == np.float32
    assert (recording.format, recording.sfreq_hz, recording.duration_s) == ("EDF", 200.0, 8.0)
    assert recording.ch_names == recording.file_names == NAMES
    assert recording.segments == [Segment(0, 1600, 0.0)]
    assert recording.meas_date == datetime(2020, 2, 1, 10, 20, 30)
    assert recording.notes == []


@pytest.mark.parametrize("bdf", [False, True])
def test_edf_and_bdf_equal_mne(tmp_path, bdf):
    import mne

    path = write_edf(tmp_path / ("a.bdf" if bdf else "a.edf"), noise_uv(2), ["C3", "C4"], bdf=bdf)
    reader = mne.io.read_raw_bdf if bdf else mne.io.read_raw_edf
    theirs = reader(path, preload=True, verbose="error").get_data() * 1e6
    ours = read_recording(path)
    assert ours.format == ("BDF" if bdf else "EDF")
    np.testing.assert_allclose(ours.data_uv, theirs, rtol=0, atol=2e-5)


@pytest.mark.parametrize(
    ("writer", "name", "form", "event"),
    [
        (write_brainvision, "b.vhdr", "BrainVision", "Stimulus/S  7"),
        (write_eeglab, "c.set", "EEGLAB", "go"),
        (write_fif, "d_raw.fif", "FIF", "go"),
    ],
)
def test_other_formats_give_the_same_numbers(tmp_path, writer, name, form, event):
    data = noise_uv()
    recording = read_recording(writer(tmp_path / name, data, NAMES))
    np.testing.assert_allclose(recording.data_uv, data, atol=1e-4)
    assert (recording.format, recording.sfreq_hz, recording.ch_names) == (form, 200.0, NAMES)
    assert [(e.label, e.start_sample) for e in recording.events] == [(event, 400)]
    assert recording.segments == [Segment(0, 1600, 0.0)]


def test_mixed_rates_keep_the_eeg_at_its_own(tmp_path):
    data = [*noise_uv(2), noise_uv(1, 3200)[0], noise_uv(1, 200)[0]]
    recording = read_recording(write_edf(tmp_path / "a.edf", data, ["Fp1", "C3", "ECG", "X9"]))
    np.testing.assert_allclose(recording.data_uv, data[:2], atol=1e-4)
    assert recording.sfreq_hz == 200.0
    assert recording.left_out == {
        "ECG": "electrocardiogram, not scalp EEG",
        "X9": "25 Hz, the EEG has 200 Hz",
    }


def test_each_channel_has_its_own_unit(tmp_path):
    same = noise_uv(1)[0]
    units = ["uV", b"\xb5V", "mV", "nV", "V", "Volts"]
    names = ["Fp1", "Fp2", "C3", "C4", "O1", "O2"]
    recording = read_recording(write_edf(tmp_path / "a.edf", [same] * 6, names, units=units))
    for row, factor in zip(recording.data_uv, (1, 1, 1e3, 1e-3, 1e6, 1e6)):
        np.testing.assert_allclose(row, same * factor, rtol=1e-5, atol=1e-4 * factor)


def test_an_unknown_unit_is_noted_and_a_wrong_one_overruled(tmp_path):
    data = noise_uv(2)
    path = write_edf(tmp_path / "a.edf", data, ["C3", "C4"], units="")
    blank = read_recording(path)
    assert codes(blank) == ["unit_guessed"]
    np.testing.assert_allclose(blank.data_uv, data, atol=1e-4)
    np.testing.assert_allclose(read_recording(path, unit="mV").data_uv, data * 1e3, rtol=1e-5, atol=0.1)
    with pytest.raises(UserError, match="unit: expected one of V, mV, uV, nV, got 'furlong'"):
        read_recording(path, unit="furlong")


def test_unit_of_other_formats(tmp_path):
    data = noise_uv()
    in_volts = read_recording(write_eeglab(tmp_path / "c.set", data * 1e-6, NAMES), unit="V")
    np.testing.assert_allclose(in_volts.data_uv, data, rtol=1e-5, atol=1e-4)
    in_uv = read_recording(write_fif(tmp_path / "d_raw.fif", data * 1e6, NAMES), unit="uV")
    np.testing.assert_allclose(in_uv.data_uv, data, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("text", "factor"),
    [("uV", 1), ("µV", 1), ("μV", 1), ("UV", 1), ("Âµv", 1), ("microV", 1), ("mV", 1e3), ("V", 1e6), ("nV", 1e-3),
     ("mv", 1e3), ("uv", 1), ("NV", 1e-3), ("milliV", 1e3), ("millivolt", 1e3), ("MILLIVOL", 1e3), ("nanoV", 1e-3),
     ("microVlt", 1), ("microvol", 1), ("µ V", 1), ("Mv", None), ("MVolt", None), ("mmHg", None), ("l/min", None),
     ("Volts", 1e6), ("", None), ("DegC", None), ("%", None), ("MV", None)],
)  # fmt: skip
def test_unit_in_uv(text, factor):
    assert unit_in_uv(text) == factor


def test_a_unit_in_unusual_case_is_noted_and_no_warning(tmp_path):
    data = noise_uv(4, sd_uv=0.5)
    path = write_edf(tmp_path / "sub-1.edf", [data[0] * 0.1, *data[1:] * 60], NAMES, units=["mv", "uV", "UV", "µV"])
    recording = read_recording(path)
    np.testing.assert_allclose(recording.data_uv[0], np.rint(data[0]) * 100, atol=1e-2)
    assert [(note.code, note.message) for note in recording.notes] == [
        ("unit_case", "unit in unusual case: Fp1 (mv), C3 (UV); mv taken for mV, others alike"),
    ]
    assert check([path])["recordings"][0]["status"] == "ok"


def test_scalp_eeg_at_another_rate_is_a_warning(tmp_path):
    data = [*noise_uv(3), noise_uv(1, 800)[0]]
    path = write_edf(tmp_path / "sub-1.edf", data, NAMES)
    (entry,) = check([path])["recordings"]
    assert (entry["status"], entry["left_out"]) == ("warning", {"C4": "100 Hz, the EEG has 200 Hz"})
    assert entry["notes"] == [
        {"code": "other_rate", "message": "scalp EEG that has not the others' 200 Hz: C4 (100 Hz)"},
    ]


def test_discontinuous_records_become_segments(tmp_path):
    path = write_edf(
        tmp_path / "a.edf", noise_uv(), NAMES, plus="D", onsets_s=[5, 6, 7, 8, 15, 16, 17, 18],
        annotations=[(16.5, 1, "seizure"), (11, 1, "lost"), (8.5, 30, "long"), (14, 2, "early"), (3, 3, "first")],
    )  # fmt: skip
    recording = read_recording(path)
    assert recording.segments == [Segment(0, 800, 0.0), Segment(800, 1600, 10.0)]
    assert recording.events == [
        Event(0.0, 1.0, "first", 0), Event(3.5, 10.5, "long", 700), Event(10.0, 1.0, "early", 800),
        Event(11.5, 1.0, "seizure", 1100),
    ]  # fmt: skip
    assert [(note.code, note.message) for note in recording.notes] == [
        ("gaps", "2 pieces, starting at 0, 10 s"),
        ("events_outside", "1 events lie where no data are and are left out: lost at 6 s"),
        ("events_shortened", "3 events begin before or run past their data and are shortened: first, long, early"),
    ]


def test_discontinuous_in_name_only(tmp_path):
    path = write_edf(tmp_path / "a.edf", noise_uv(), NAMES, plus="D")
    recording = read_recording(path)
    assert (recording.segments, recording.notes, recording.format) == ([Segment(0, 1600, 0.0)], [], "EDF+D")


def test_continuous_in_name_only(tmp_path):
    path = write_edf(
        tmp_path / "a.edf", noise_uv(), NAMES, plus="C", onsets_s=[0, 1, 2, 3, 13, 14, 15, 16],
        annotations=[(14.5, 1, "seizure")],
    )  # fmt: skip
    recording = read_recording(path)
    assert recording.segments == [Segment(0, 800, 0.0), Segment(800, 1600, 13.0)]
    assert recording.events == [Event(14.5, 1.0, "seizure", 1100)]
    assert [(note.code, note.message) for note in recording.notes] == [
        ("gaps", "2 pieces, starting at 0, 13 s (the header says continuous, the record times do not)"),
    ]
    inexact = write_edf(tmp_path / "b.edf", noise_uv(), NAMES, plus="C", onsets_s=[0, 1.04, 2, 3.02, 4, 5, 6, 7])
    assert (read_recording(inexact).segments, read_recording(inexact).notes) == ([Segment(0, 1600, 0.0)], [])


def test_record_times_that_run_backwards(tmp_path):
    onsets_s = [0, 1, 2, 13, 4, 5, 6, 7]
    path = write_edf(tmp_path / "a.edf", noise_uv(), NAMES, plus="D", onsets_s=onsets_s)
    with pytest.raises(UserError) as problem:
        read_recording(path)
    assert str(problem.value) == (
        f"{path}: expected records that follow each other, but record 5 begins before the end of the one before; "
        "correct the file's record times or leave it out"
    )
    recording = read_recording(write_edf(tmp_path / "b.edf", noise_uv(), NAMES, plus="C", onsets_s=onsets_s))
    assert recording.segments == [Segment(0, 1600, 0.0)]
    assert [(note.code, note.message) for note in recording.notes] == [
        ("record_times", "1 records begin before the one in front ends; taken as following on"),
    ]


def test_records_without_a_time_between_those_with_one_that_overlap(tmp_path):
    path = write_edf(tmp_path / "a.edf", noise_uv(), NAMES, plus="D", onsets_s=[0, 1, 2, 3, 3.5, 6, 7, 8])
    content = path.read_bytes()
    path.write_bytes(content.replace(b"+3\x14", b"x3\x14"))
    with pytest.raises(UserError, match="record 5 begins before the end of the one before"):
        read_recording(path)


def test_impossible_times_of_annotations(tmp_path):
    import mne

    path = write_fif(tmp_path / "a_raw.fif", noise_uv(), NAMES)
    raw = mne.io.read_raw_fif(path, verbose="error")
    onsets_s, names = [1.0, 2.0, 3.0, 1e300], ["nan", "endless", "fine", "late"]
    raw._annotations = mne.Annotations(onsets_s, [np.nan, np.inf, 1.0, 1.0], names)  # as readers do, unchecked
    recording = from_mne(raw)
    assert [(event.label, event.duration_s) for event in recording.events] == [("nan", 0.0), ("fine", 1.0)]
    assert [note.code for note in recording.notes] == ["events_outside"]
    raw._annotations = mne.Annotations([-5.0], [99.0], ["BAD_ACQ_SKIP"])
    with pytest.raises(UserError, match="marks all of it as skipped"):
        from_mne(raw)


def test_header_numbers_with_nul_and_comma(tmp_path):
    data = noise_uv()
    path = write_edf(tmp_path / "a.edf", data, NAMES)
    content = path.read_bytes()
    path.write_bytes(b"0".ljust(8, b"\0") + content[8:236] + b"8".ljust(8, b"\0") + b"1\0junk  " + content[252:])
    padded = read_recording(path)
    np.testing.assert_allclose(padded.data_uv, data, atol=1e-4)
    assert (padded.sfreq_hz, padded.notes) == (200.0, [])
    path.write_bytes(content[:244] + b"1,0".ljust(8) + content[252:].replace(b"-3276.7", b"-3276,7"))
    comma = read_recording(path)
    np.testing.assert_allclose(comma.data_uv, data, atol=1e-4)
    assert [(note.code, note.message) for note in comma.notes] == [
        ("decimal_comma", "numbers of the header have a comma, taken for the decimal point: '1,0', '-3276,7'"),
    ]


def test_status_channel_gives_events_and_no_signal(tmp_path):
    status = np.zeros(1600, np.int64) | 0x100000
    status[400:410] |= 7
    status[900:] |= 256
    recording = read_recording(write_edf(tmp_path / "a.bdf", noise_uv(2), ["C3", "C4"], bdf=True, status=status))
    assert [(e.label, e.start_sample) for e in recording.events] == [("7", 400), ("256", 900)]
    assert recording.left_out == {"Status": "trigger or status, not scalp EEG"}
    for other in (b"BDF Status", b"Status 1", b"TRIG"):
        path = tmp_path / "b.bdf"
        path.write_bytes((tmp_path / "a.bdf").read_bytes().replace(b"Status".ljust(16), other.ljust(16)))
        assert read_recording(path).events == recording.events


def test_record_counts_that_lie(tmp_path):
    data = noise_uv()
    open_end = read_recording(write_edf(tmp_path / "a.edf", data, NAMES, n_records=-1))
    assert (open_end.data_uv.shape, codes(open_end)) == ((4, 1600), ["record_count"])
    content = bytearray((tmp_path / "a.edf").read_bytes())
    content[236:244] = b" " * 8
    (tmp_path / "blank.edf").write_bytes(content)
    blank = read_recording(tmp_path / "blank.edf")
    assert (blank.data_uv.shape, codes(blank)) == ((4, 1600), ["record_count"])
    short = write_edf(tmp_path / "b.edf", data, NAMES)
    short.write_bytes(short.read_bytes()[:-800])
    cut = read_recording(short)
    assert (cut.data_uv.shape, codes(cut)) == ((4, 1400), ["truncated"])
    np.testing.assert_allclose(cut.data_uv, data[:, :1400], atol=1e-4)


def test_labels_that_repeat_and_bytes_that_are_not_ascii(tmp_path):
    recording = read_recording(write_edf(tmp_path / "a.edf", noise_uv(), ["T8-P8", "Posição", "C3", "T8-P8"]))
    assert recording.ch_names == ["T8-P8", "Posição", "C3", "T8-P8#2"]
    assert codes(recording) == ["duplicate_labels", "unknown_names"]


def test_labels_in_utf8_and_with_control_characters(tmp_path):
    labels = ["Posição".encode(), "xĞüşıöçğü".encode(), "Posição".encode("latin-1"), b"C\x1b4\n\0\0"]
    path = write_edf(tmp_path / "a.edf", noise_uv(), labels)
    assert read_recording(path).ch_names == ["Posição", "xĞüşıöçğ", "Posição#2", "C4"]


def test_no_scale_no_numbers(tmp_path):
    recording = read_recording(write_edf(tmp_path / "a.edf", noise_uv(), NAMES, physical={"C3": (0, 0)}))
    assert np.isnan(recording.data_uv).all(1).tolist() == [False, False, True, False]
    assert codes(recording) == ["uncalibrated"]
    path = write_edf(tmp_path / "b.edf", noise_uv(), NAMES)
    content = path.read_bytes()
    at = 256 + 4 * 120
    path.write_bytes(content[:at] + b"5       " + content[at + 8 : at + 32] + b"5       " + content[at + 40 :])
    assert [note.message for note in read_recording(path).notes] == [
        "Fp1: digital range 5 to 5 is no scale; missing",
    ]


def test_an_impossible_date_is_unknown(tmp_path):
    recording = read_recording(write_edf(tmp_path / "a.edf", noise_uv(), NAMES, start=b"00.00.0000.00.00"))
    assert (recording.meas_date, codes(recording)) == (None, ["bad_date"])


def test_missing_samples_stay_missing(tmp_path):
    data = noise_uv()
    data[2, 500:550] = np.nan
    recording = read_recording(write_fif(tmp_path / "a_raw.fif", data, NAMES))
    assert np.flatnonzero(np.isnan(recording.data_uv[2])).tolist() == list(range(500, 550))
    assert int(np.isnan(recording.data_uv).sum()) == 50


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an EDF or BDF file: it is empty"),
        (b"<!DOCTYPE html><html>", "not an EDF or BDF file: it begins with b'<!DOCTYPE html><'"),
        (b"0".ljust(300), "the EDF header is incomplete"),
    ],
)
def test_what_is_no_edf_is_refused_in_one_line(tmp_path, content, message):
    path = tmp_path / "page.edf"
    path.write_bytes(content)
    with pytest.raises(UserError) as problem:
        read_recording(path)
    assert str(problem.value).startswith(f"{path}: {message}")
    assert "\n" not in str(problem.value)


def test_files_without_a_recording(tmp_path):
    nothing = write_edf(tmp_path / "a.edf", np.zeros((1, 0)), ["C3"], n_records=0)
    with pytest.raises(UserError, match="no data"):
        read_recording(nothing)
    with pytest.raises(UserError, match=r"no EEG channels among the 1 in the file \(ECG: electrocardiogram"):
        read_recording(write_edf(tmp_path / "b.edf", noise_uv(1), ["ECG"]))
    with pytest.raises(UserError, match="found none; check the path"):
        read_recording(tmp_path / "c.edf")
    (tmp_path / "d.set").write_bytes(b"no MATLAB file")
    with pytest.raises(UserError, match="expected a MATLAB file, got one that begins with b'no MATLAB file'"):
        read_recording(tmp_path / "d.set")


@pytest.mark.parametrize(
    ("name", "content", "reader"),
    [
        ("a.cnt", b"RIFF\x0c\0\0\0CNT info\0\0\0\0", "read_raw_ant"),
        ("a.cnt", b"Version 3.0", "read_raw_cnt"),
        ("a.dat", b"", "read_raw_curry"),
    ],
)
def test_an_ending_of_two_formats_goes_to_the_right_reader(tmp_path, monkeypatch, name, content, reader):
    import mne

    raw = mne.io.RawArray(noise_uv() * 1e-6, mne.create_info(NAMES, 200.0, "eeg"), verbose="error")
    monkeypatch.setattr(companions, "_try_ant", lambda path: None)
    for other in ("ant", "cnt", "curry"):
        monkeypatch.setattr(mne.io, f"read_raw_{other}", None, raising=False)
    monkeypatch.setattr(mne.io, reader, lambda path, verbose: raw)
    (tmp_path / name).write_bytes(content)
    np.testing.assert_allclose(read_recording(tmp_path / name).data_uv, noise_uv(), atol=1e-4)


def test_what_mne_warns_of_becomes_a_note(tmp_path):
    path = write_brainvision(tmp_path / "b.vhdr", noise_uv(), NAMES)
    path.write_text(path.read_text(encoding="utf-8").replace("C4,,1,µV", "C4,,1,°C"), encoding="utf-8")
    recording = read_recording(path)
    assert recording.ch_names == ["Fp1", "Fp2", "C3"]
    assert recording.left_out == {"C4": "unit '°C' is no voltage"}


@pytest.mark.parametrize(("unit", "factor"), [("μV", 1), ("microV", 1), ("UV", 1), ("mv", 1e3), ("milliV", 1e3)])
def test_brainvision_units_that_mne_does_not_know(tmp_path, unit, factor):
    data = noise_uv()
    path = write_brainvision(tmp_path / "b.vhdr", data, NAMES)
    path.write_text(path.read_text(encoding="utf-8").replace(",,1,µV", f",,1,{unit}"), encoding="utf-8")
    recording = read_recording(path)
    np.testing.assert_allclose(recording.data_uv, data * factor, rtol=1e-6)
    assert (recording.ch_names, recording.left_out) == (NAMES, {})
    assert codes(recording) == (["unit_case"] if unit in ("UV", "mv") else [])
    np.testing.assert_allclose(read_recording(path, unit="nV").data_uv, data * 1e-3, rtol=1e-6)


def test_boundaries_at_half_samples_cut_before_the_later(tmp_path):
    import mne

    raw = mne.io.RawArray(noise_uv() * 1e-6, mne.create_info(NAMES, 200.0, "eeg"), verbose="error")
    halves = [399.5, 400.5 + 99, 700.5, 1200.0]
    raw.set_annotations(mne.Annotations(np.array(halves) / 200, 0, ["boundary"] * 4))
    raw.save(tmp_path / "a_raw.fif", verbose="error")
    recording = read_recording(tmp_path / "a_raw.fif")
    assert [segment.start for segment in recording.segments] == [0, 400, 500, 701, 1200]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.fif", b"<html>", "expected a FIF file, got one that begins with b'<html>'"),
        ("a.fif", b"", "expected a FIF file, got one without content"),
        ("a.fif.gz", b"\x1f\x8bjunk", "expected a FIF file, got one without content"),
        ("a.cnt", b"<!DOCTYPE html>\n<html>", "expected a Neuroscan or ANT file, got one that begins with "
         "b'<!DOCTYPE html>\\n'"),
        ("a.cnt", b"", "expected a Neuroscan or ANT file, got one without content"),
        ("a.cnt", b"Version 3.0 cut", "expected a recording that mne reads, but IndexError: index 0 is out of bounds "
         "for axis 0 with size 0"),
    ],
)  # fmt: skip
def test_what_mne_cannot_read_is_refused_in_one_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as problem:
        read_recording(tmp_path / name)
    assert str(problem.value) == f"{tmp_path / name}: {message}; check that it was copied whole"


def test_a_short_data_file_of_another_name(tmp_path):
    from scipy.io import loadmat, savemat

    path = write_eeglab(tmp_path / "a.set", noise_uv(), NAMES)
    content = loadmat(path)["EEG"]
    fields = {name: content[name][0, 0] for name in content.dtype.names} | {"data": "other.fdt", "datfile": "other.fdt"}
    savemat(path, {"EEG": fields}, appendmat=False)
    (tmp_path / "other.fdt").write_bytes(bytes(4 * 4 * 1000))
    with pytest.raises(UserError) as problem:
        read_recording(path)
    assert str(problem.value) == f"{path}: expected 1600 samples in other.fdt, it holds 1000; copy it again"


def test_a_data_file_longer_than_its_header_states_is_said(tmp_path):
    from scipy.io import loadmat, savemat

    path = write_eeglab(tmp_path / "a.set", noise_uv(), NAMES)
    fields = loadmat(path, squeeze_me=True, simplify_cells=True)["EEG"]
    noise_uv().astype("<f4").T.tofile(tmp_path / "a.fdt")
    for stated, codes_of in ((1600, []), (1200, ["more_samples"])):
        savemat(path, {"EEG": fields | {"data": "a.fdt", "datfile": "a.fdt", "pnts": stated}}, appendmat=False)
        recording = read_recording(path)
        assert recording.data_uv.shape == (len(NAMES), stated)
        np.testing.assert_allclose(recording.data_uv, noise_uv()[:, :stated], atol=1e-4)
        assert [note.code for note in recording.notes if note.code == "more_samples"] == codes_of
    assert recording.notes[-1].message == "a.fdt holds 1600 samples of each channel, a.set states 1200; those are read"

"""The formats of amplifiers' makers, each from a file written by its layout: values, names, times, what is missing."""

import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from test_workers import running, until

import vendor_files as write
from bothways.eeg import companions, read_recording, scan
from bothways.eeg.source import source_files, source_hash
from bothways.workers import python
from readings import codes, marks, refused, segments
from recordings import noise_uv, write_brainvision

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
NAMES = ["Fp1", "Fp2", "C3", "C4"]
NUMBERED = ["E1", "E2", "E3", "E4"]
EVENTS = [(400, "7"), (1000, "9")]
CODES = [(400, "abcd"), (1000, "DIN1")]
DATA_UV = noise_uv(4, 1600)
WRITERS = {
    "persyst": (write.write_persyst, {}, "Persyst"), "persyst 32": (write.write_persyst, {"wide": True}, "Persyst"),
    "nedf": (write.write_nedf, {}, "Nedf"), "nicolet": (write.write_nicolet, {}, "Nicolet"),
    "egi raw": (write.write_egi_raw, {}, "EGI"), "mff": (write.write_mff, {}, "Mff"),
    "curry 8": (write.write_curry, {}, "Curry"), "curry 7": (write.write_curry, {"version": 7}, "Curry"),
    "ant": (write.write_ant, {}, "ANT"), "nihon": (write.write_nihon, {}, "Nihon"),
    "neuroscan 16": (write.write_neuroscan, {"wide": False}, "CNT"), "neuroscan 32": (write.write_neuroscan, {}, "CNT"),
    "gdf": (write.write_gdf, {}, "GDF"),
}  # fmt: skip
STEPS_UV = {"nedf": write.NEDF_STEP_UV, "nihon": write.NIHON_STEP_UV, "ant": 1 / 64}
"""Of formats whose grid is not that of the data; half a step is the rounding of the writer."""


def make(folder: Path, name: str, **changes: object) -> Path:
    writer, arguments, _ = WRITERS[name]
    folder.mkdir(exist_ok=True)
    return writer(folder, DATA_UV, NAMES, 200, CODES if name == "egi raw" else EVENTS, **{**arguments, **changes})


@pytest.mark.parametrize("name", WRITERS)
def test_what_was_written_is_read(tmp_path, name, capfd):
    path = make(tmp_path, name)
    recording = read_recording(path)
    assert (recording.format, recording.sfreq_hz) == (WRITERS[name][2], 200.0)
    numbered = name in ("egi raw", "mff")  # a file without names
    assert recording.ch_names == (NUMBERED if numbered else NAMES)
    np.testing.assert_allclose(recording.data_uv, DATA_UV, rtol=0, atol=STEPS_UV.get(name, 1e-4) / 2)
    assert marks(recording) == ([] if name == "nicolet" else CODES if name == "egi raw" else EVENTS)
    assert segments(recording) == [(0, 1600, 0.0)]
    day = datetime(2010, 1 if name[:4] in ("pers", "nico", "nedf") else 2, 2 if "persyst" in name else 1, 10, 20, 30)
    assert recording.meas_date is not None
    assert abs((recording.meas_date - day).total_seconds()) < 1e-3
    assert codes(recording) == {"egi raw": ["unknown_names"], "mff": ["unknown_names", "reader"]}.get(name, [])
    np.testing.assert_allclose(read_recording(path, unit="mV").data_uv, recording.data_uv * 1e3, rtol=1e-5)
    assert capfd.readouterr().out == ""  # the readers below print


@pytest.mark.parametrize("name", WRITERS)
def test_scan_finds_one_recording_and_the_hash_knows_each_file(tmp_path, name):
    path = make(tmp_path, name)
    assert [found.path for found in scan([tmp_path])] == [path]
    files = sorted(file for file in tmp_path.rglob("*") if file.is_file())
    assert source_files(path) == files
    before = source_hash(path)
    for file in files:
        content = file.read_bytes()
        file.write_bytes(content + b"\n")
        assert source_hash(path) != before, file.name
        file.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "missing", "message"),
    [
        ("persyst", "a.dat", "expected a.dat beside it, which holds the samples; copy it there too"),
        ("nicolet", "a.head", "expected a.head beside it, found none; copy it there too"),
        ("curry 7", "a.dap", "expected a.dap beside it, found none; copy it there too"),
        ("curry 7", "a.rs3", "expected a.rs3 beside it, found none; copy it there too"),
        ("curry 8", "a.cdt.dpa", "expected a.cdt.dpa beside it, found none; copy it there too"),
        *(("mff", f"a.mff/{file}", f"expected {file} in it, found none; copy it there too")
          for file in ("info.xml", "info1.xml", "signal1.bin", "epochs.xml", "sensorLayout.xml")),
    ],
)  # fmt: skip
def test_a_missing_companion_is_named(tmp_path, name, missing, message):
    path = make(tmp_path, name)
    (tmp_path / missing).unlink()
    assert refused(path) == message


@pytest.mark.parametrize(
    ("name", "missing", "message"),
    [
        ("nihon", "A.LOG", "No LOG file exists. Annotations will not be read"),
        ("nihon", "A.PNT", "No PNT file exists. Metadata will be blank"),
        ("nihon", "A.21E", "Could not find A.21E containing channel definitions; Default channel names are chosen."),
    ],
)
def test_a_missing_companion_that_is_not_needed_is_noted(tmp_path, name, missing, message):
    path = make(tmp_path, name)
    (tmp_path / missing).unlink()
    recording = read_recording(path)
    assert [(note.code, note.message) for note in recording.notes] == [("reader", message)]
    np.testing.assert_allclose(recording.data_uv, DATA_UV, rtol=0, atol=write.NIHON_STEP_UV / 2)
    if missing == "A.21E":
        assert recording.ch_names == ["Fp1", "Fp2", "F3", "F4"]  # the maker's first four


@pytest.mark.parametrize(
    ("name", "cut", "message"),
    [
        ("nedf", "a.nedf", "the samples cannot be read"), ("nicolet", "a.data", "the samples cannot be read"),
        ("egi raw", "a.raw", "expected 1600 samples of 4 channels"), ("mff", "a.mff/signal1.bin", "samples cannot be"),
        ("curry 7", "a.dat", "expected a recording that mne reads"), ("curry 8", "a.cdt", "expected a recording that"),
        ("ant", "a.cnt", "expected an ANT file, but its end is missing"), ("nihon", "A.EEG", "samples cannot be read"),
        ("neuroscan 16", "a.cnt", "expected a recording"), ("neuroscan 32", "a.cnt", "expected a recording"),
        ("gdf", "a.gdf", "the samples cannot be read"),
    ],
)  # fmt: skip
def test_a_cut_file_is_refused_in_one_line(tmp_path, name, cut, message):
    path = make(tmp_path, name)
    content = (tmp_path / cut).read_bytes()
    (tmp_path / cut).write_bytes(content[: len(content) * 2 // 3])
    text = refused(path)
    assert message in text
    assert text.endswith("check that it was copied whole")


@pytest.mark.parametrize(
    ("name", "part", "whole"),
    [
        ("persyst", "a.dat", "a.lay"), ("nicolet", "a.head", "a.data"), ("nihon", "A.21E", "A.EEG"),
        ("nihon", "A.PNT", "A.EEG"), ("mff", "a.mff/signal1.bin", "a.mff"),
    ],
)  # fmt: skip
def test_a_part_names_the_whole(tmp_path, name, part, whole):
    make(tmp_path, name)
    assert refused(tmp_path / part) == f"expected a recording, got a part of one; give {whole}"


@pytest.mark.parametrize("header", ["a.lay", "A.LAY"])
def test_a_part_of_persyst_in_another_case(tmp_path, header):
    """As the recorder's Windows writes it: the samples are no Curry file to rename."""
    make(tmp_path, "persyst").rename(tmp_path / header)
    (tmp_path / "a.dat").rename(tmp_path / "A.DAT")
    assert refused(tmp_path / "A.DAT") == f"expected a recording, got a part of one; give {header}"


@pytest.mark.parametrize("part", ["a.eeg", "a.vmrk"])
def test_a_part_of_brainvision_names_the_whole(tmp_path, part):
    write_brainvision(tmp_path / "a.vhdr", DATA_UV, NAMES)
    assert refused(tmp_path / part) == "expected a recording, got a part of one; give a.vhdr"


def test_a_cut_brainvision_file_keeps_its_whole_samples(tmp_path):
    path = write_brainvision(tmp_path / "a.vhdr", DATA_UV, NAMES)
    samples = (tmp_path / "a.eeg").read_bytes()
    (tmp_path / "a.eeg").write_bytes(samples[: 1000 * 16 + 3])
    recording = read_recording(path)
    np.testing.assert_allclose(recording.data_uv, DATA_UV[:, :1000], atol=1e-4)
    (note,) = recording.notes
    assert (note.code, note.message) == ("truncated", "1000 whole samples are there; the end is missing")
    (tmp_path / "a.eeg").write_bytes(samples[: 1000 * 16])
    path.write_text(path.read_text("utf-8").replace("NumberOf", "DataPoints=1600\nNumberOf"), "utf-8")
    (note,) = read_recording(path).notes
    assert (note.code, note.message) == ("truncated", "1000 whole samples of 1600 are there; the end is missing")


def test_brainvision_without_its_samples_or_markers(tmp_path):
    path = write_brainvision(tmp_path / "a.vhdr", DATA_UV, NAMES)
    (tmp_path / "a.vmrk").unlink()
    (note,) = read_recording(path).notes
    assert (note.code, note.message) == ("reader", "MarkerFile 'a.vmrk' not found; no annotations.")
    (tmp_path / "a.eeg").unlink()
    assert "a file that belongs to it is missing" in refused(path)
    assert "a.eeg" in refused(path)


@pytest.mark.parametrize(("name", "reader"), [("mff", "mffpy"), ("curry 8", "curryreader"), ("ant", "antio")])
def test_a_reader_that_is_not_installed_is_named_with_its_extra(tmp_path, monkeypatch, name, reader):
    path = make(tmp_path, name)
    monkeypatch.setitem(sys.modules, reader, None)
    assert refused(path) == f"expected {reader} to read this format with; pip install 'bothways[readers]'"


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("nicolet", ["a.head"], ["a.HEAD"], "expected a.head beside it, found a.HEAD; rename it"),
        ("nicolet", ["a.head", "a.data"], ["a.HEAD", "a.DATA"], "expected .data, in lower case; rename it and what "
         "lies beside it"),
        ("curry 7", ["a.rs3"], ["a.RS3"], "expected a.rs3 beside it, found a.RS3; rename it"),
    ],
)  # fmt: skip
def test_companions_in_another_case(tmp_path, name, old, new, message):
    path = make(tmp_path, name)
    for before, after in zip(old, new):
        shutil.move(tmp_path / before, tmp_path / after)
    assert refused(tmp_path / new[-1] if old[-1] == path.name else path) == message


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("nicolet", "a.data", "a.DATA", "expected .data, in lower case; rename it and what lies beside it"),
        ("ant", "a.cnt", "a.CNT", "expected .cnt, in lower case; rename it and what lies beside it"),
        ("nihon", "A.21E", "A.21e", "expected A.21E, found A.21e; rename it"),
        ("nihon", "A.LOG", "A.log", "expected A.LOG, found A.log; rename it"),
    ],
)  # fmt: skip
def test_endings_that_a_reader_does_not_know(tmp_path, name, old, new, message):
    path = make(tmp_path, name)
    shutil.move(tmp_path / old, tmp_path / new)
    assert refused(tmp_path / new if path.name == old else path) == message


@pytest.mark.parametrize("name", ["ant", "curry 7", "curry 8"])
@pytest.mark.parametrize(("unit", "factor"), [("mV", 1e3), ("µV", 1), ("nV", 1e-3), ("V", 1e6)])
def test_units_that_mne_does_not_scale(tmp_path, name, unit, factor):
    path = make(tmp_path, name, unit=unit)
    recording = read_recording(path)
    np.testing.assert_allclose(recording.data_uv, DATA_UV * factor, rtol=0, atol=factor / 128)
    assert (recording.notes, recording.file_units) == ([], [unit] * 4)
    np.testing.assert_allclose(read_recording(path, unit="mV").data_uv, DATA_UV * 1e3, rtol=0, atol=1e3 / 128)


@pytest.mark.parametrize("name", ["ant", "curry 8"])
def test_a_unit_that_is_no_voltage(tmp_path, name):
    assert "Fp1: unit" in refused(make(tmp_path, name, unit="%"))
    (found,) = scan([tmp_path])
    np.testing.assert_allclose(read_recording(found.path, unit="uV").data_uv, DATA_UV, atol=0.01)


@pytest.mark.parametrize(
    ("code", "factor", "stated", "noted"),
    [(4256, 1e6, "V", []), (4274, 1e3, "mV", []), (4275, 1, "uV", []), (4276, 1e-3, "nV", []),
     (512, 1, "", ["unit_guessed"]), (0, 1, "", ["unit_guessed"])],
)  # fmt: skip
def test_units_of_gdf(tmp_path, code, factor, stated, noted):
    path = make(tmp_path, "gdf", unit_code=code)
    recording = read_recording(path)
    np.testing.assert_allclose(recording.data_uv, DATA_UV * factor, rtol=0, atol=1e-4 * factor)
    assert (codes(recording), recording.file_units) == (noted, [stated] * 4)
    np.testing.assert_allclose(read_recording(path, unit="mV").data_uv, DATA_UV * 1e3, rtol=0, atol=0.1)


def test_a_unit_of_gdf_that_is_no_voltage(tmp_path):
    assert "Fp1: unit 'code 4288' is no voltage" in refused(make(tmp_path, "gdf", unit_code=4288))


def test_events_of_gdf_that_last(tmp_path):
    recording = read_recording(make(tmp_path, "gdf", lasting=[100, 40]))
    assert [(e.start_sample, e.label, e.duration_s) for e in recording.events] == [(400, "7", 0.5), (1000, "9", 0.2)]


@pytest.mark.parametrize(
    ("trial", "why"),
    [
        ("import os; os.abort()", "its maker's library fails on it"),
        ("import time; time.sleep(60)", "its maker's library was not done with it after 0 s"),
    ],
)
def test_an_ant_file_is_tried_in_another_process(tmp_path, monkeypatch, trial, why):
    path = make(tmp_path, "ant")
    monkeypatch.setattr(companions, "_TRIAL", trial)
    monkeypatch.setattr(companions, "TRIAL_S", 0.4 if "after" in why else 9.0)
    assert refused(path) == f"expected an ANT file, but {why}; check that it was copied whole"


def test_a_trial_of_an_ant_file_ends_by_itself(tmp_path):
    """The process that tries it ends in time though its own parent is killed, as a worker may be."""
    pid = tmp_path / "pid"
    sleeps = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    (tmp_path / "a.cnt").write_bytes(b"")
    command, environment = python(
        f"from pathlib import Path; from bothways.eeg import companions as c; c._TRIAL = {sleeps!r}; c.TRIAL_S = 3.0; "
        f"c._try_ant(Path({str(tmp_path / 'a.cnt')!r}))"
    )
    worker = subprocess.Popen(command, env=environment)
    until(lambda: pid.exists() and pid.read_text())
    worker.kill()
    worker.wait()
    assert running(int(pid.read_text()))
    until(lambda: not running(int(pid.read_text())), 20)


def test_a_trial_of_an_ant_file_imports_nothing_from_the_current_folder(tmp_path, monkeypatch):
    path = make(tmp_path, "ant")
    (tmp_path / "random.py").write_text("raise ImportError")
    (tmp_path / "antio.py").write_text("raise ImportError")
    monkeypatch.chdir(tmp_path)
    assert read_recording(path).data_uv.shape == (4, 1600)


@pytest.mark.parametrize("version", [3, 5, 7])
def test_epochs_of_egi_are_told_from_a_cut_file(tmp_path, version):
    path = make(tmp_path, "egi raw")
    content = path.read_bytes()
    path.write_bytes(content[:3] + bytes([version]) + content[4:1000])
    assert "Only continuous files are supported" in refused(path)


def test_an_ant_file_without_its_description_is_refused(tmp_path):
    """The maker's library would end the process."""
    path = make(tmp_path, "ant", info=False)
    assert refused(path) == "expected an ANT file, but its end is missing; check that it was copied whole"


def test_pauses_of_egi_are_gaps(tmp_path):
    """The recorder's samples 600 to 1399 are missing; the event lies behind them, and one inside is left out."""
    path = write.write_mff(tmp_path, DATA_UV, NAMES, 200, [(1000, "in"), (1800, "go")], pieces=[(0, 600), (1400, 2400)])
    recording = read_recording(path)
    assert segments(recording) == [(0, 600, 0.0), (1400, 2400, 7.0)]
    assert marks(recording) == [(1800, "go")]
    np.testing.assert_allclose(recording.data_uv[:, :600], DATA_UV[:, :600], atol=1e-4)
    np.testing.assert_allclose(recording.data_uv[:, 1400:], DATA_UV[:, 600:], atol=1e-4)
    assert codes(recording) == ["gaps", "events_outside", "unknown_names", "reader"]


@pytest.mark.parametrize(
    ("second", "onset_s"),
    [
        ("100201102130", 60.0),
        ("100201102033", 3.0),
        ("100201102034", 3.0),
        ("100201102000", 3.0),
        ("100231102130", 3.0),
    ],
)
def test_blocks_of_nihon_kohden_are_pieces(tmp_path, second, onset_s):
    """At the time in the second one's header where that is possible, and more than its second later than expected."""
    blocks = [DATA_UV[:, :600], DATA_UV[:, 600:]]
    path = write.write_nihon(tmp_path, blocks, NAMES, 200, EVENTS, begins=["100201102030", second])
    recording = read_recording(path)
    assert segments(recording) == [(0, 600, 0.0), (600, 1600, onset_s)]
    assert [(event.start_sample, event.onset_s) for event in recording.events] == [(400, 2.0), (1000, onset_s + 2.0)]
    np.testing.assert_allclose(recording.data_uv, DATA_UV, rtol=0, atol=write.NIHON_STEP_UV / 2)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc, to measure memory")
def test_many_mutants(tmp_path):
    """As in test_eeg_fuzz; without the folder of EGI."""
    from test_eeg_fuzz import run

    names = [name for name in WRITERS if name != "mff"]
    seeds = [make(tmp_path / name, name) for name in names]
    run([(path.parent, path.name) for path in seeds], range(60))

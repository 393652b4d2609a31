"""XDF of Lab Streaming Layer: what the streams say becomes one recording, at the right times."""

import gzip
from datetime import datetime

import numpy as np
import pytest

from bothways.eeg import read_recording, scan
from bothways.errors import UserError
from readings import codes, refused, segments
from recordings import noise_uv
from xdf import BOUNDARY, Stream, bodies, joined, write_xdf

NAMES = ["Fp1", "Fp2", "C3", "C4"]
UV = [(name, "EEG", "microvolts") for name in NAMES]
FROM_S = 1000.0


def amplifier(n=2000, rate_hz=250.0, **changes):
    given = {"stamps_s": FROM_S + np.arange(n) / rate_hz, "channels": UV, "rate_hz": rate_hz} | changes
    return Stream(noise_uv(4, n).T, **given)


def markers(*marks, **changes):
    given = {"name": "task", "kind": "Markers", "form": "string", "rate_hz": 0} | changes
    return Stream([[label] for _, label in marks], [FROM_S + at_s for at_s, _ in marks], **given)


@pytest.mark.parametrize(("name", "form"), [("a.xdf", "float32"), ("a.xdf", "double64"), ("a.xdfz", "float32")])
def test_the_eeg_stream_and_the_markers(tmp_path, name, form):
    eeg = amplifier(form=form, stamped=[i % 100 == 0 for i in range(2000)])
    gaze = Stream(np.ones((50, 2)), FROM_S + np.arange(50.0), name="gaze", kind="Gaze", rate_hz=0)
    path = write_xdf(tmp_path / name, [gaze, eeg, markers((0.5, "go"), (4.002, "stop"), (-1, "early"), (5, ""))])
    recording = read_recording(path)
    assert (recording.format, recording.sfreq_hz, recording.ch_names) == ("XDF", 250.0, NAMES)
    np.testing.assert_allclose(recording.data_uv, noise_uv(4, 2000), rtol=1e-6)
    assert segments(recording) == [(0, 2000, 0.0)]
    assert [(e.label, e.onset_s, e.start_sample) for e in recording.events] == [("go", 0.5, 125), ("stop", 4.002, 1001)]
    assert recording.meas_date == datetime(2024, 5, 6, 7, 8, 9)
    assert codes(recording) == ["events_outside"]
    assert recording.file_units == ["microvolts"] * 4
    assert [found.file for found in scan([tmp_path])] == [name]


@pytest.mark.parametrize(
    ("unit", "factor", "noted"),
    [("microvolts", 1, []), ("uV", 1, []), ("µV", 1, []), ("volts", 1e6, []), ("millivolts", 1e3, []), ("nV", 1e-3, []),
     ("", 1, ["unit_guessed"]), ("counts", 1, ["unit_guessed"]), ("mv", 1e3, ["unit_case"])],
)  # fmt: skip
def test_units(tmp_path, unit, factor, noted):
    path = write_xdf(tmp_path / "a.xdf", [amplifier(channels=[(name, "EEG", unit) for name in NAMES])])
    recording = read_recording(path)
    np.testing.assert_allclose(recording.data_uv, noise_uv(4, 2000) * factor, rtol=1e-6)
    assert codes(recording) == noted
    np.testing.assert_allclose(read_recording(path, unit="mV").data_uv, noise_uv(4, 2000) * 1e3, rtol=1e-6)


def test_each_channel_has_its_own_unit_and_type(tmp_path):
    channels = [("Fp1", "EEG", "uV"), ("C3", "", "mV"), ("ACC_X", "Accelerometer", "g"), ("resp", "EEG", "mmHg")]
    recording = read_recording(write_xdf(tmp_path / "a.xdf", [amplifier(channels=channels)]))
    np.testing.assert_allclose(recording.data_uv, noise_uv(4, 2000)[:2] * [[1], [1e3]], rtol=1e-6)
    assert recording.left_out["ACC_X"] == "Accelerometer channel in the file, not scalp EEG"
    assert list(recording.left_out) == ["ACC_X", "resp"]


def test_a_trigger_channel_gives_events(tmp_path):
    values = noise_uv(4, 2000).T.copy()
    values[:, 3] = np.repeat([0, 7, 0, 9], 500)
    eeg = amplifier(channels=[*UV[:3], ("TRG", "Trigger", "integer")])
    eeg.values = values
    recording = read_recording(write_xdf(tmp_path / "a.xdf", [eeg]))
    assert recording.ch_names == NAMES[:3]
    assert [(e.label, e.start_sample) for e in recording.events] == [("7", 500), ("9", 1500)]


def test_numbers_as_markers(tmp_path):
    buttons = Stream([[3], [12]], [FROM_S + 1, FROM_S + 2], name="b", kind="Events", form="int32", rate_hz=0)
    recording = read_recording(write_xdf(tmp_path / "a.xdf", [amplifier(), buttons]))
    assert [(e.label, e.start_sample) for e in recording.events] == [("3", 250), ("12", 500)]


def test_channels_without_a_description(tmp_path):
    recording = read_recording(write_xdf(tmp_path / "a.xdf", [amplifier(channels=None)]))
    assert recording.ch_names == ["Ch1", "Ch2", "Ch3", "Ch4"]
    assert codes(recording) == ["unit_guessed", "unknown_names"]


def test_positions_of_the_file(tmp_path):
    from bothways.eeg.channels import parse_labels, standard_positions

    names = ["Fp1", "Fp2", "F3", "F4", "C3", "C4", "P3", "P4", "O1", "O2"]
    places = standard_positions(parse_labels(names))[:, 0]
    places /= np.linalg.norm(places, axis=1, keepdims=True)
    eeg = Stream(noise_uv(10, 2000).T, FROM_S + np.arange(2000) / 250, channels=[(n, "EEG", "uV") for n in names],
                 locations=places * 90 + [0, 5, 0])  # fmt: skip
    recording = read_recording(write_xdf(tmp_path / "a.xdf", [eeg]))
    np.testing.assert_allclose(recording.positions[:, 0], places, atol=1e-4)
    assert codes(recording) == ["digitised_positions"]


def test_stamps_that_jitter_are_evened_out(tmp_path):
    """Late by up to 12 ms, three samples: no gap, the stated rate, and events where they belong."""
    late_s = np.random.default_rng(1).uniform(0, 0.012, 5000)
    eeg = amplifier(5000, stamps_s=FROM_S + np.arange(5000) / 250 + late_s - 0.006)
    recording = read_recording(write_xdf(tmp_path / "a.xdf", [eeg, markers((10.0, "go"))]))
    assert (recording.sfreq_hz, segments(recording)) == (250.0, [(0, 5000, 0.0)])
    assert abs(recording.events[0].start_sample - 2500) <= 1


@pytest.mark.parametrize("lost", [100, 1000])
def test_lost_samples_are_a_gap(tmp_path, lost):
    at = np.concatenate([np.arange(1000), np.arange(1000 + lost, 2000 + lost)])
    recording = read_recording(
        write_xdf(
            tmp_path / "a.xdf", [amplifier(stamps_s=FROM_S + at / 250), markers((4.1, "in"), (4 + lost / 250, "x"))]
        )
    )
    assert segments(recording) == [(0, 1000, 0.0), (1000, 2000, 4 + lost / 250)]
    assert [(e.label, e.start_sample) for e in recording.events] == [("x", 1000)]
    assert codes(recording) == ["gaps", "events_outside"]


def test_a_rate_that_is_almost_the_stated_one(tmp_path):
    """The amplifier's clock is 100 ppm slow: its 250 Hz stand, and a marker lies at the sample that it was set at."""
    eeg = amplifier(50_000, stamps_s=FROM_S + np.arange(50_000) / 249.975)
    recording = read_recording(write_xdf(tmp_path / "a.xdf", [eeg, markers((45_000 / 249.975, "late"))]))
    assert recording.sfreq_hz == 250.0
    assert [event.start_sample for event in recording.events] == [45_000]
    (note,) = recording.notes
    assert (note.code, note.message) == ("rate_rounded", "250 Hz taken for the 249.975 Hz that the times give")


def test_a_rate_that_is_not_the_stated_one(tmp_path):
    eeg = amplifier(5000, rate_hz=250.0, stamps_s=FROM_S + np.arange(5000) / 220)
    recording = read_recording(write_xdf(tmp_path / "a.xdf", [eeg, markers((10.0, "go"))]))
    assert recording.sfreq_hz == 220.0
    assert [event.start_sample for event in recording.events] == [2200]
    (note,) = recording.notes
    assert (note.code, note.message) == (
        "rate_measured", "220 Hz taken, which the times give; the stream states 250 Hz"
    )  # fmt: skip


def test_a_stream_that_states_no_rate(tmp_path):
    eeg = amplifier()
    eeg.rate_hz = 0
    recording = read_recording(write_xdf(tmp_path / "a.xdf", [eeg]))
    assert (recording.sfreq_hz, recording.notes) == (250.0, [])


def test_clocks_of_two_computers(tmp_path):
    """The markers' computer is 500 s ahead; the offsets in the file bring it back."""
    late = markers((503.0, "go"), offsets=[(FROM_S + 500 + 5 * i, -500.0) for i in range(3)])
    eeg = amplifier(offsets=[(FROM_S + 5 * i, 0.0) for i in range(3)])
    recording = read_recording(write_xdf(tmp_path / "a.xdf", [eeg, late]))
    assert [(event.label, event.start_sample) for event in recording.events] == [("go", 750)]


def test_several_eeg_streams(tmp_path):
    empty = Stream([], [], name="off", channels=UV)
    assert read_recording(write_xdf(tmp_path / "a.xdf", [empty, amplifier()])).data_uv.shape == (4, 2000)
    path = write_xdf(tmp_path / "b.xdf", [amplifier(), amplifier(name="second")])
    with pytest.raises(UserError) as problem:
        read_recording(path)
    assert str(problem.value) == (
        f"{path}: expected one stream of type EEG, got amp (EEG), second (EEG); save each as a file of its own"
    )


@pytest.mark.parametrize(
    ("streams", "message"),
    [
        ([amplifier(kind="", name="x")], "expected one stream of type EEG, got x (no type); set the stream's type to "
         "EEG when recording"),
        ([], "expected one stream of type EEG, got none; set the stream's type to EEG when recording"),
        ([Stream([], [], channels=UV)], "no data: the EEG stream has no samples; leave the file out"),
        ([Stream(noise_uv(1, 2000).T, FROM_S + np.arange(2000) / 250, channels=[("eye", "EOG", "uV")])], "no EEG "
         "channels among the 1 in the file (eye: EOG channel in the file, not scalp EEG); leave the file out"),
    ],
)  # fmt: skip
def test_files_without_an_eeg(tmp_path, streams, message):
    path = write_xdf(tmp_path / "a.xdf", streams)
    with pytest.raises(UserError) as problem:
        read_recording(path)
    assert str(problem.value) == f"{path}: {message}"


@pytest.mark.parametrize("cut", [1, 5, 40, 2400, 2505])
def test_a_cut_file_is_read_up_to_its_last_whole_chunk(tmp_path, cut):
    """A chunk of 100 samples is 2511 bytes long."""
    recording = read_recording(write_xdf(tmp_path / "a.xdf", [amplifier()], cut=cut))
    np.testing.assert_allclose(recording.data_uv, noise_uv(4, 2000)[:, :1900], rtol=1e-6)
    (note,) = recording.notes
    assert note.message == f"the last {2516 - cut} bytes are part of a chunk and are left out"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected an XDF file, got an empty one; check that it was copied whole"),
        (b"<html>", "expected an XDF file, got one that begins with b'<html>'; check that it was copied whole"),
        (b"XDF:", "expected one stream of type EEG, got none; set the stream's type to EEG when recording"),
        (b"XDF:\x01\x0d\x02\x00\x01\x00\x00\x00<info>x", "the header of stream 1 is damaged: no element found: line 1, "
         "column 7; copy it again"),
    ],
)  # fmt: skip
def test_what_is_no_xdf_is_refused_in_one_line(tmp_path, content, message):
    path = tmp_path / "a.xdf"
    path.write_bytes(content)
    with pytest.raises(UserError) as problem:
        read_recording(path)
    assert str(problem.value) == f"{path}: {message}"


def changed(path, change):
    """Rewrites a file's chunks; each begins with its tag and stream."""
    path.write_bytes(joined(change(bodies(path.read_bytes()))))
    return path


def replaced(old, new):
    return lambda chunks: [body.replace(old, new) for body in chunks]


@pytest.mark.parametrize("n", [200, 0xFFFF, 2**31])
def test_a_damaged_chunk_is_left_out_and_told(tmp_path, n):
    """It states many more samples than it holds."""
    path = write_xdf(tmp_path / "a.xdf", [amplifier()])
    lie = b"\x04" + n.to_bytes(4, "little")
    changed(path, lambda chunks: [*chunks[:5], chunks[5][:6] + lie + chunks[5][11:], *chunks[6:]])
    recording = read_recording(path)
    assert segments(recording) == [(0, 300, 0.0), (300, 1900, 1.6)]
    assert [(note.code, note.message) for note in recording.notes] == [
        ("damaged", "1 chunks do not hold what they should and are left out"),
        ("gaps", "2 pieces by their times, starting at 0, 1.6 s"),
    ]


@pytest.mark.parametrize("count", ["5", "30000000", "999999999999", "0", "-4", "x", ""])
def test_a_number_of_channels_that_no_chunk_holds(tmp_path, count):
    path = write_xdf(tmp_path / "a.xdf", [amplifier()])
    changed(path, replaced(b"<channel_count>4<", f"<channel_count>{count}<".encode()))
    assert refused(path) == (
        f"expected samples of {count or 'no'} channels in the EEG stream, no chunk of it holds them; it is damaged, "
        "copy it again"
    )


def test_markers_that_lie_are_left_out(tmp_path):
    path = write_xdf(tmp_path / "a.xdf", [amplifier(), markers((1, "go")), markers((2, "x")), markers((3, "y"))])
    lie = b"\x04" + (30_000_000).to_bytes(4, "little")

    def change(chunks):
        *others, first, second, third = chunks
        others[2] = others[2].replace(b"<channel_count>1<", b"<channel_count>30000000<")
        return [*others, first, second[:6] + lie + second[11:], third]

    recording = read_recording(changed(path, change))
    assert [(e.label, e.start_sample) for e in recording.events] == [("y", 750)]
    assert [note.message for note in recording.notes] == ["2 chunks do not hold what they should and are left out"]


def test_empty_chunks_hold_no_channels(tmp_path):
    path = write_xdf(tmp_path / "a.xdf", [amplifier(n=100)])
    changed(path, replaced(b"<channel_count>4<", b"<channel_count>30000000<"))
    changed(path, lambda chunks: [*chunks[:2], chunks[2][:6] + b"\x01\x00"])
    assert "no chunk of it holds them" in refused(path)


def test_only_the_first_header_of_a_stream_counts(tmp_path):
    path = write_xdf(tmp_path / "a.xdf", [amplifier()])
    again = replaced(b"<channel_count>4<", b"<channel_count>30000000<")
    changed(path, lambda chunks: [*chunks[:5], *again(chunks[1:2]), *chunks[5:]])
    recording = read_recording(path)
    assert recording.data_uv.shape == (4, 2000)
    assert codes(recording) == ["damaged"]


@pytest.mark.parametrize("damage", [b"\x07", b"\x08" + b"\x7f" * 8, b"\x01\x01"])
@pytest.mark.parametrize("boundary", [True, False])
def test_damage_in_the_middle(tmp_path, damage, boundary):
    """What follows the next boundary is read; without one, the rest is not taken for the end of a cut file."""
    path = write_xdf(tmp_path / "a.xdf", [amplifier()])
    chunks = bodies(path.read_bytes())
    rest = [*chunks[7:10], *([BOUNDARY] if boundary else []), *chunks[10:]]
    front = joined(chunks[:7])
    path.write_bytes(front + damage + joined(rest)[4:])
    recording = read_recording(path)
    assert recording.data_uv.shape == (4, 500 + 1200 * boundary)
    note = recording.notes[0]
    if damage[0] == 8 and not boundary:  # as a cut file's last chunk
        assert note.code == "truncated"
    else:
        n = len(damage) + len(joined(rest[: 4 if boundary else None])) - 4
        assert (note.code, note.message) == (
            "damaged", f"{n} bytes, from byte {len(front)} on, are damaged and left out"
        )  # fmt: skip


def test_a_length_that_cannot_be_is_no_cut_chunk(tmp_path):
    path = write_xdf(tmp_path / "a.xdf", [amplifier()])
    n = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"\xc8abc")
    (note,) = read_recording(path).notes
    assert (note.code, note.message) == ("damaged", f"4 bytes, from byte {n} on, are damaged and left out")


@pytest.mark.parametrize(
    ("old", "new"),
    [(b"<channels>", b"<channels>none</channels><channels>"), (b"<channel>", b"<channel>x</channel><channel>"),
     (b"<desc>", b"<desc>none</desc><desc>"), (b"<label>Fp1", b"<label><a>Fp1</a></label><label>Fp1")],
)  # fmt: skip
def test_descriptions_of_another_form(tmp_path, old, new):
    """They are passed over, as if the stream said nothing."""
    recording = read_recording(changed(write_xdf(tmp_path / "a.xdf", [amplifier()]), replaced(old, new)))
    assert recording.ch_names[0] == "Ch1"


@pytest.mark.parametrize(
    ("old", "new"),
    [(b"<nominal_srate>250.0<", b"<nominal_srate><a>1</a><"), (b"<nominal_srate>", b"<x>"), (b"<info>", b"<html>"),
     (b"<channel_format>float32<", b"<channel_format>float31<")],
)  # fmt: skip
def test_headers_of_another_form_are_refused(tmp_path, old, new):
    assert refused(changed(write_xdf(tmp_path / "a.xdf", [amplifier()]), replaced(old, new)))


def test_packed_files_that_are_damaged(tmp_path):
    path = write_xdf(tmp_path / "a.xdfz", [amplifier()])
    content = path.read_bytes()
    path.write_bytes(content[:10] + b"\xff" * 40 + content[50:])  # in the first block
    assert refused(path).startswith("expected an XDF file, but Error -3 while decompressing data")
    path.write_bytes(content[:2000])
    assert refused(path).startswith("expected an XDF file, but Compressed file ended")
    path.write_bytes(gzip.compress(bytes(2**24)))
    assert refused(path).startswith("expected an XDF file, got one that begins with b'\\x00")
    path.write_bytes(gzip.compress(b"XDF:" + bytes(2**24)))
    assert refused(path) == (
        "expected an XDF file, got one that unpacks to more than 200 times its size; it is damaged, copy it again"
    )


@pytest.mark.parametrize("form", ["int32", "float32"])
def test_a_trigger_line_at_a_constant_rate_gives_its_changes(tmp_path, form):
    values = np.repeat([0, 7, 0, 9, 5, 0], 100)[:, None]
    line = Stream(values, FROM_S + np.arange(600) / 100, name="line", kind="Trigger", form=form, rate_hz=100)
    recording = read_recording(write_xdf(tmp_path / "a.xdf", [amplifier(), line]))
    assert [(e.label, e.start_sample) for e in recording.events] == [("7", 250), ("9", 750), ("5", 1000)]


def test_large_numbers_as_markers_stay_apart(tmp_path):
    buttons = Stream([[1234567], [1234568]], [FROM_S + 1, FROM_S + 2], kind="Events", form="int32", rate_hz=0)
    recording = read_recording(write_xdf(tmp_path / "a.xdf", [amplifier(), buttons]))
    assert [event.label for event in recording.events] == ["1234567", "1234568"]


def test_times_that_fall_are_no_matter_of_rows(tmp_path):
    eeg = amplifier(stamps_s=FROM_S + np.concatenate([np.arange(1000), np.arange(1000)]) / 250)
    assert refused(write_xdf(tmp_path / "a.xdf", [eeg])) == (
        "expected times that rise, sample 1001 goes back 3.996 s; the stream's times are damaged, leave the file out"
    )

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bothways.config import WindowConfig
from bothways.eeg import LeftOut, check, cut_windows, labels_from_events, prepare, read_recording, scan
from bothways.eeg.recording import Event, LazyRows, Segment
from bothways.errors import UserError

N, HZ = 1000, 250
TIMES = np.arange(N) / HZ
DATA_UV = np.random.default_rng(0).normal(0, 20, (4, N)).round(3)


def write_csv(path, columns, delimiter=",", encoding="utf-8"):
    """Writes a table; `columns` is header -> cells."""
    rows = [list(columns), *zip(*columns.values())]
    text = "".join(delimiter.join(str(cell) for cell in row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode(encoding))
    return path


def plain():
    return {"time": TIMES, **dict(zip(["Fp1", "Fp2", "C3", "C4"], DATA_UV))}


def codes(recording):
    return [note.code for note in recording.notes]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.txt", "a.tsv", "a.parquet"])
def test_one_recording_in_every_kind_of_table(tmp_path, name):
    path = tmp_path / name
    if name.endswith(".parquet"):
        pq.write_table(pa.table(plain()), path)
    else:
        write_csv(path, plain(), "\t" if name.endswith(".tsv") else ",")
    recording = read_recording(path)
    assert (recording.ch_names, recording.sfreq_hz) == (["Fp1", "Fp2", "C3", "C4"], 250.0)
    assert recording.format == {"tsv": "TSV", "quet": "Parquet"}.get(
        name[-4:].lstrip("."), "Parquet" if "parq" in name else "CSV"
    )
    np.testing.assert_array_equal(recording.data_uv, DATA_UV.astype(np.float32))
    assert recording.segments == [Segment(0, N, 0.0)]
    assert recording.left_out == {"time": "time column"}
    assert codes(recording) == ["unit_guessed"]
    assert np.isfinite(recording.positions[:, 0]).all()


def test_columns_that_are_no_eeg_say_why(tmp_path):
    steady = np.full(N, 0.01)
    columns = plain() | {
        "Right AUX": DATA_UV[0], "AccX": steady, "counter": np.arange(N) % 256, "Gyro_Y": steady, "Battery": steady,
        "who": ["anna"] * N, "n": np.arange(N), "gear": np.arange(N) // 200 % 2, "force": DATA_UV[1] * 1e5,
        "SP1": DATA_UV[2], "": np.arange(N),
        "spare": [""] * N,
    }  # fmt: skip
    recording = read_recording(write_csv(tmp_path / "a.csv", columns))
    assert recording.ch_names == ["Fp1", "Fp2", "C3", "C4", "SP1"]
    assert recording.left_out == {
        "time": "time column", "Right AUX": "auxiliary input, not scalp EEG",
        "AccX": "movement or position, not scalp EEG", "counter": "auxiliary input, not scalp EEG",
        "Gyro_Y": "movement or position, not scalp EEG", "Battery": "auxiliary input, not scalp EEG",
        "who": "string, no numbers", "n": "no 10-05 name, and it only rises: a counter",
        "gear": "no 10-05 name, and it takes 8 values at most: a code or a state",
        "force": "no 10-05 name, and its values spread 1e+05 times as much as the EEG's", "": "no name",
        "spare": "no 10-05 name, and it is empty",
    }  # fmt: skip
    assert codes(recording) == ["unit_guessed", "unknown_names"]


def test_markers_are_events_where_they_change(tmp_path):
    codes_of, words = np.zeros(N, int), np.full(N, "", object)
    codes_of[[0, 70]], codes_of[200:203] = 1, 2
    codes_of[203] = 1
    words[500:750], words[750:] = "left", "right"
    columns = plain() | {"Marker0": codes_of, "label": words}
    recording = read_recording(write_csv(tmp_path / "a.csv", columns))
    assert recording.events == [
        Event(0.0, 0.0, "1", 0), Event(0.28, 0.0, "1", 70), Event(0.8, 0.012, "2", 200), Event(0.812, 0.0, "1", 203),
        Event(2.0, 1.0, "left", 500), Event(3.0, 1.0, "right", 750),
    ]  # fmt: skip
    assert recording.left_out["Marker0"] == "marker column, read as events"
    assert recording.ch_names == ["Fp1", "Fp2", "C3", "C4"]


def test_units_by_header_sidecar_and_user(tmp_path):
    columns = {"t (ms)": TIMES * 1e3, "Fp1 (mV)": DATA_UV[0] / 1e3, "C3_uV": DATA_UV[1], "Cz [µV]": DATA_UV[2]}
    recording = read_recording(write_csv(tmp_path / "a.csv", columns, encoding="latin-1"))
    np.testing.assert_allclose(recording.data_uv, DATA_UV[:3], atol=1e-3)
    assert (recording.ch_names, codes(recording), recording.sfreq_hz) == (["Fp1", "C3", "Cz"], [], 250.0)
    assert recording.file_units == ["mV", "uV", "µV"]
    assert (recording.file_names, list(recording.left_out)) == (["Fp1 (mV)", "C3_uV", "Cz [µV]"], ["t (ms)"])
    path = write_csv(tmp_path / "b.csv", {"time": TIMES, "Fp1": DATA_UV[0], "C3": DATA_UV[1] * 1e-3})
    np.testing.assert_allclose(read_recording(path, unit="nV").data_uv[0], DATA_UV[0] * 1e-3, rtol=1e-5)
    (tmp_path / "b.json").write_text('{"Fp1": {"Units": "uV"}, "C3": {"Units": "mV"}}')
    stated = read_recording(path)
    np.testing.assert_allclose(stated.data_uv, DATA_UV[:2], atol=1e-3)
    assert codes(stated) == []


def test_rate_by_argument_and_sidecar(tmp_path):
    path = write_csv(tmp_path / "a.csv", {"Fp1": DATA_UV[0], "C3": DATA_UV[1]})
    with pytest.raises(
        UserError, match=r'and a time column or a rate; got the columns Fp1, C3; .*"SamplingFrequency": 250'
    ):
        read_recording(path)
    assert read_recording(path, sfreq_hz=128).sfreq_hz == 128
    (tmp_path / "a.json").write_text('{"SamplingFrequency": 500}')
    assert read_recording(path).duration_s == 2.0
    (tmp_path / "a.json").write_text('{"SamplingFrequency": "fast"}')
    with pytest.raises(UserError, match="expected SamplingFrequency in Hz, got 'fast'"):
        read_recording(path)
    timed = write_csv(tmp_path / "b.csv", plain())
    (tmp_path / "b.json").write_text('{"SamplingFrequency": 500}')
    with pytest.raises(UserError, match="fit the stated 500 Hz, they give 250 Hz"):
        read_recording(timed)
    write_csv(tmp_path / "d.csv", {"Time:250Hz": TIMES, "Fp1": DATA_UV[0], "Event Id": [""] * 9 + ["7"] * (N - 9)})
    openvibe = read_recording(tmp_path / "d.csv")
    assert (openvibe.sfreq_hz, [event.start_sample for event in openvibe.events]) == (250.0, [9])
    (tmp_path / "c.csv").write_text("%Sample Rate = 250 Hz\nEXG Channel 0, EXG Channel 1\n1.5, 2\n2, 3\n3, 2\n")
    assert read_recording(tmp_path / "c.csv").sfreq_hz == 250.0


def test_gaps_become_segments_and_events_keep_their_samples(tmp_path):
    marker = np.zeros(N, int)
    marker[[100, 900]] = 7
    columns = plain() | {"time": TIMES + np.where(np.arange(N) < 400, 0, 10), "stim": marker}
    recording = read_recording(write_csv(tmp_path / "a.csv", columns))
    assert recording.segments == [Segment(0, 400, 0.0), Segment(400, N, 11.6)]
    assert [(e.start_sample, e.onset_s) for e in recording.events] == [(100, 0.4), (900, pytest.approx(13.6))]


def test_absolute_times_date_the_recording(tmp_path):
    path = write_csv(tmp_path / "a.csv", plain() | {"time": [f"{1.7e9 + t:.3f}" for t in TIMES]})
    assert read_recording(path).meas_date.isoformat() == "2023-11-14T22:13:20"
    path = write_csv(tmp_path / "b.csv", plain() | {"time": [f"2024-05-01 12:00:{t:06.3f}" for t in TIMES]})
    recording = read_recording(path)
    assert (recording.meas_date.isoformat(), recording.sfreq_hz) == ("2024-05-01T12:00:00", 250.0)
    assert read_recording(write_csv(tmp_path / "c.csv", plain())).meas_date is None


def test_decimal_commas_marks_and_missing_cells(tmp_path):
    cells = [str(v).replace(".", ",") for v in DATA_UV[0]]
    times = [str(t).replace(".", ",") for t in TIMES]
    cells[3], cells[4] = "", "n/a"
    path = write_csv(tmp_path / "a.csv", {"\ufefftime": times, "Fp1": cells, "C3": cells}, ";")
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    recording = read_recording(path)
    assert np.flatnonzero(np.isnan(recording.data_uv[0])).tolist() == [3, 4]
    np.testing.assert_array_equal(recording.data_uv[0, 5:], DATA_UV[0, 5:].astype(np.float32))


def test_a_last_row_cut_short_is_said(tmp_path):
    path = write_csv(tmp_path / "a.csv", plain())
    with path.open("a") as file:
        file.write("4.0,12.")
    recording = read_recording(path)
    assert (recording.data_uv.shape[1], codes(recording)) == (N, ["truncated", "unit_guessed"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty"),
        ("a\0b", "it is no text"),
        ("time,Fp1,C3\n", "no rows below its header"),
        ("1,2,3\n4,5,6\n", "expected a header with the channels' names"),
        ("file,onset_s,duration_s,label\na.edf,0,1,x\n", "expected a recording: a row for each sample"),
        ("file,label\na.edf,x\n", "no EEG channels"),
        ("time,Fp1,C3\n0,1,2\n0.004,x,2\n0.008,1,2\n", "expected numbers in column Fp1, row 2 holds 'x'"),
        ("time,Fp1,C3\n0,1,2\n0.004,1\n0.008,1,2\n", "expected 3 cells in each row, line 3 has 2"),
        ("time,Fp1,C3\nnow,1,2\nthen,1,2\n", "expected numbers in column time, row 1 holds 'now'"),
    ],
)
def test_a_table_that_is_no_recording_is_refused_in_one_line(tmp_path, text, message):
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as problem:
        read_recording(path)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize(("rate", "message"), [(b"200", ""), (b"\xc2\xb5", r"expected a number as SamplingFrequency")])
def test_the_rate_in_a_parquet_file(tmp_path, rate, message):
    table = pa.table({name: column for name, column in plain().items() if name != "time"})
    pq.write_table(table.replace_schema_metadata({"SamplingFrequency": rate}), tmp_path / "a.parquet")
    if message:
        with pytest.raises(UserError, match=message):
            read_recording(tmp_path / "a.parquet", unit="uV")
    else:
        assert read_recording(tmp_path / "a.parquet", unit="uV").sfreq_hz == 200


@pytest.mark.parametrize("name", ["a.parquet", "a.csv.gz"])
def test_a_damaged_file_is_refused_in_one_line(tmp_path, name):
    whole = tmp_path / name
    pq.write_table(pa.table(plain()), whole) if name == "a.parquet" else write_csv(whole, plain())
    cut = tmp_path / f"cut_{name}"
    for content in (b"PAR1", whole.read_bytes()[:-2000]):
        cut.write_bytes(content)
        with pytest.raises(UserError) as problem:
            read_recording(cut)
        assert "\n" not in str(problem.value)


def test_a_rate_for_a_file_that_states_its_own(tmp_path):
    (tmp_path / "a.edf").write_bytes(b"0")
    with pytest.raises(UserError, match="states its own rate"):
        read_recording(tmp_path / "a.edf", sfreq_hz=100)


def test_a_scan_takes_recordings_and_leaves_other_tables(tmp_path):
    write_csv(tmp_path / "sub-1_run.csv", plain())
    write_csv(tmp_path / "sub-2_run.tsv", plain(), "\t")
    pq.write_table(pa.table(plain()), tmp_path / "sub-3_run.parquet")
    write_csv(tmp_path / "sub-4_norate.csv", {"Fp1": DATA_UV[0], "C3": DATA_UV[1]})
    write_csv(tmp_path / "sub-5_rate.csv", {"Fp1": DATA_UV[0], "C3": DATA_UV[1]})
    (tmp_path / "sub-5_rate.json").write_text(json.dumps({"SamplingFrequency": 250}))
    write_csv(tmp_path / "notes.txt", plain())
    (tmp_path / "labels.csv").write_text("file,onset_s,duration_s,label\na.edf,0,1,x\n")
    for name in ("participants.tsv", "sub-1_task-rest_channels.tsv", "task-rest_events.tsv"):
        (tmp_path / name).write_text("name\tFp1\nFp1\t1\n")  # BIDS's own: neither recordings nor left out
    (tmp_path / "people.tsv").write_text("participant_id\tage\tFp1\nsub-1\t30\t1\n")
    (tmp_path / "powers.csv").write_text("subject,time,Fp1,C3\na,1,2,3\nb,1,2,3\n")
    (tmp_path / "x_electrodes.tsv").write_text("name\tx\ty\tz\nFp1\t1\t2\t3\n")
    (tmp_path / "x_events.tsv").write_text("onset\tduration\ttrial_type\n1\t2\tgo\n")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    (tmp_path / "empty.csv").write_bytes(b"")
    left_out: list[LeftOut] = []
    assert [one.file for one in scan([tmp_path], left_out=left_out)] == [
        "broken.parquet", "sub-1_run.csv", "sub-2_run.tsv", "sub-3_run.parquet", "sub-5_rate.csv",
    ]  # fmt: skip
    none, missing = "no columns of numbers with 10-05 names among", "no time column and no rate"
    assert left_out == [
        LeftOut("empty.csv", "not_read", "expected a table with a header and a row for each sample, but it is empty"),
        LeftOut("labels.csv", "no_recording", f"{none} file, onset_s, duration_s, label"),
        LeftOut("notes.txt", "text_table", "a .txt is read where it is given by itself; give it, if "
                "time, Fp1, Fp2, C3, C4 are a recording"),
        LeftOut("people.tsv", "no_recording", f"{missing}, and not only numbers, in participant_id, age, Fp1"),
        LeftOut("powers.csv", "no_recording", "no samples: times do not rise from row to row in column time"),
        LeftOut("sub-4_norate.csv", "no_rate", f"{missing}; name the time column 'time', or state the rate as "
                '{"SamplingFrequency": 250} in sub-4_norate.json beside it, if it is a recording'),
        LeftOut("x_electrodes.tsv", "no_recording", f"{none} name, x, y, z"),
        LeftOut("x_events.tsv", "no_recording", f"{none} onset, duration, trial_type"),
    ]  # fmt: skip
    assert [one.file for one in scan([tmp_path / "labels.csv"])] == ["labels.csv"]  # named: tried, and refused aloud
    assert check([tmp_path / "labels.csv"])["exit_status"] == 2


def test_what_a_folder_holds_besides_is_reported_and_only_what_may_be_a_recording_is_a_warning(tmp_path):
    write_csv(tmp_path / "sub-1_run.csv", plain() | {"time": np.arange(N) / 250})
    (tmp_path / "sub-1_run.json").write_text('{"Units": "uV"}')
    (tmp_path / "labels.csv").write_text("file,label\na.edf,x\n")
    report = check([tmp_path])
    reason = "no columns of numbers with 10-05 names among file, label"
    assert report["left_out"] == [{"file": "labels.csv", "code": "no_recording", "reason": reason}]
    assert report["exit_status"] == 0
    write_csv(tmp_path / "sub-2_run.csv", {"Fp1": DATA_UV[0], "C3": DATA_UV[1]})
    report = check([tmp_path])
    assert [one["code"] for one in report["left_out"]] == ["no_recording", "no_rate"]
    assert (len(report["recordings"]), report["exit_status"]) == (1, 1)
    (tmp_path / "sub-3_run.parquet").write_bytes(b"PAR1")
    report = check([tmp_path])
    assert [r["status"] for r in report["recordings"]] == ["ok", "unusable"]
    assert "not a Parquet file that can be read" in report["recordings"][1]["reason"]


def test_a_large_table_is_read_a_column_at_a_time(tmp_path, monkeypatch):
    columns = {**plain(), "EEG.F3": DATA_UV[0] / 2, "EEG": DATA_UV[1]}
    table = pa.Table.from_arrays([*map(pa.array, columns.values()), pa.array(-DATA_UV[0])], [*columns, "Fp1"])
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=300)
    write_csv(tmp_path / "b.csv", columns)
    held = read_recording(tmp_path / "a.parquet")
    monkeypatch.setattr("bothways.eeg.recording.HELD_BYTES", 0)
    for name in ("a.parquet", "b.csv"):
        lazy = read_recording(tmp_path / name)
        assert isinstance(lazy.data_uv, LazyRows)
        rows = dict(zip(lazy.file_names, np.asarray(lazy.data_uv)))
        np.testing.assert_array_equal(rows["EEG.F3"], (DATA_UV[0] / 2).astype(np.float32))
        np.testing.assert_array_equal(rows["C3"], DATA_UV[2].astype(np.float32))
    np.testing.assert_array_equal(np.asarray(read_recording(tmp_path / "a.parquet").data_uv), held.data_uv)
    np.testing.assert_array_equal(held.data_uv[held.file_names.index("Fp1")], DATA_UV[0].astype(np.float32))
    np.testing.assert_array_equal(held.data_uv[-1], -DATA_UV[0].astype(np.float32))


def test_from_a_table_to_windows(tmp_path):
    words = np.where(np.arange(N) < 500, "rest", "task")
    write_csv(tmp_path / "sub-1_run.csv", plain() | {"label": words})
    store = prepare([tmp_path], tmp_path / "store")
    windows = cut_windows(store, WindowConfig(window_s=1, stride_s=1), labels_from_events(store))
    assert windows.counts()["classes"] == {"rest": 2, "task": 2}


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.csv.gz"])
def test_mutants_are_read_or_refused_in_one_line(tmp_path, name):
    random, path = np.random.default_rng(0), tmp_path / name
    short = {key: cells[:60] for key, cells in (plain() | {"label": np.full(N, "a")}).items()}
    pq.write_table(pa.table(short), path) if name == "a.parquet" else write_csv(path, short)
    whole, refused = path.read_bytes(), []
    for _ in range(60):
        mutant = bytearray(whole)
        for _ in range(random.integers(1, 4)):
            at, n = int(random.integers(len(mutant))), int(random.integers(1, 20))
            new = random.integers(0, 256, n, np.uint8).tobytes() if random.random() < 0.5 else b""
            mutant[at : at + n * int(random.integers(2))] = new
        path.write_bytes(mutant)
        try:
            recording = read_recording(path)
        except UserError as problem:
            refused.append(str(problem))
        else:
            assert recording.data_uv.shape == (len(recording.ch_names), recording.segments[-1].stop)
    assert refused
    assert not any("\n" in message for message in refused)


def test_markers_and_channels_of_types_that_are_none(tmp_path):
    far = pa.array([2**62] * N, pa.timestamp("us"))
    pq.write_table(pa.table(plain() | {"label": far}), tmp_path / "a.parquet")
    assert read_recording(tmp_path / "a.parquet").left_out["label"] == "timestamp[us], no numbers"
    pq.write_table(pa.table(plain() | {"Fp1": far}), tmp_path / "b.parquet")
    with pytest.raises(UserError, match=r"expected numbers in column Fp1, got timestamp\[us\]"):
        read_recording(tmp_path / "b.parquet")
    table = pa.table(plain()).replace_schema_metadata({"SamplingFrequency": "inf"})
    pq.write_table(table, tmp_path / "c.parquet")
    with pytest.raises(UserError, match="sampling rate of 10 Hz to 100 kHz, got inf Hz"):
        read_recording(tmp_path / "c.parquet")


def left_out_of(folder):
    """What `check` passes over in a folder with one good recording, and its exit status."""
    write_csv(folder / "sub-0_good.csv", plain())
    (folder / "sub-0_good.json").write_text('{"Units": "uV"}')
    report = check([folder])
    assert report["recordings"][0]["status"] == "ok"
    return {one["file"]: (one["code"], one["reason"]) for one in report["left_out"]}, report["exit_status"]


@pytest.mark.parametrize("row", [0, 18])
def test_a_time_that_is_missing_does_not_end_a_scan(tmp_path, row):
    times = TIMES.astype(str)
    times[row] = "n/a"
    write_csv(tmp_path / "sub-1.csv", plain() | {"time": times})
    report = check([tmp_path])
    assert [r["file"] for r in report["recordings"]] == ["sub-1.csv"]
    assert f"sample {row + 1} has none" in report["recordings"][0]["reason"]


def test_samples_that_come_in_bursts_of_one_time_are_a_recording(tmp_path):
    write_csv(tmp_path / "sub-1.csv", plain() | {"time": (np.arange(N) // 50) * 0.2})
    assert [one.file for one in scan([tmp_path])] == ["sub-1.csv"]


def test_what_is_nearly_a_recording_is_a_warning_in_the_words_of_its_reader(tmp_path):
    write_csv(tmp_path / "sub-1_turned.csv", plain() | {"time": TIMES[::-1]})
    write_csv(tmp_path / "sub-2_still.csv", plain() | {"time": np.full(N, 5.0)})
    write_csv(tmp_path / "sub-3_bare.csv", {name: [] for name in plain()})
    thousands = {name: [f'"{value + 5000:,.1f}"' for value in row] for name, row in zip(["Fp1", "C3"], DATA_UV)}
    write_csv(tmp_path / "sub-4_thousands.csv", {"time": TIMES} | thousands)
    text = "%OpenBCI Raw EXG Data\n%Sample Rate = 250 Hz\nSample Index, EXG Channel 0, EXG Channel 1\n0, 1.5, 2.5\n"
    (tmp_path / "OpenBCI-RAW.txt").write_text(text)
    (tmp_path / "notes.txt").write_text("the cap was loose\n")
    first = f"{DATA_UV[0][0] + 5000:,.1f}"
    found, status = left_out_of(tmp_path)
    assert status == 1
    assert found == {
        "sub-1_turned.csv": (
            "no_times", "expected times that rise, got 3.996 to 3.924 in column time; sort the rows by time, if it is "
            "a recording"),
        "sub-2_still.csv": ("no_times", "no samples: times do not rise from row to row in column time"),
        "sub-3_bare.csv": ("no_data", "no data: the table has no rows below its header; leave the file out"),
        "sub-4_thousands.csv": (
            "not_read", f"expected numbers in column Fp1, row 1 holds {first!r}; correct it or leave it empty"),
        "OpenBCI-RAW.txt": (
            "text_table", "a .txt is read where it is given by itself; give it, if Sample Index, EXG Channel 0, EXG "
            "Channel 1 are a recording"),
    }  # fmt: skip
    for name in ("sub-3_bare.csv", "sub-4_thousands.csv"):
        with pytest.raises(UserError) as problem:
            read_recording(tmp_path / name)
        assert str(problem.value) == f"{tmp_path / name}: {found[name][1]}"


def test_times_as_durations(tmp_path):
    in_ns = pa.array((np.arange(N) * 4_000_000).tolist(), pa.duration("ns"))
    pq.write_table(pa.table(plain() | {"time": in_ns}), tmp_path / "a.parquet")
    assert read_recording(tmp_path / "a.parquet").sfreq_hz == 250
    pq.write_table(pa.table(plain() | {"time": pa.array([0] * N, pa.time64("ns"))}), tmp_path / "b.parquet")
    with pytest.raises(UserError, match=r"in column time, got time64\[ns\]; write seconds, as numbers"):
        read_recording(tmp_path / "b.parquet")


@pytest.mark.parametrize("name", ["state", "condition", "label", "Marker"])
def test_a_column_of_states_gives_labels_that_last(tmp_path, name):
    write_csv(tmp_path / "sub-1.csv", plain() | {name: np.repeat([1, 2], N // 2)})
    assert read_recording(tmp_path / "sub-1.csv").events == [Event(0.0, 2.0, "1", 0), Event(2.0, 2.0, "2", 500)]

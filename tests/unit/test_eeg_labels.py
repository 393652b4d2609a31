"""Where labels come from: CSV files, the recordings' own events, annotation files beside them."""

import pytest

from bothways.config import LabelConfig, WindowConfig
from bothways.eeg import EVENTS, Note, Span, check, cut_windows, find_labels, read_labels, scan
from bothways.eeg.annotations import read_annotations
from bothways.errors import UserError
from recordings import noise_uv, write_edf
from stores import a_store, entry

NIGHT = [
    (0.0, 30.0, "Sleep stage W"), (30.0, 30.0, "Sleep stage 3"), (60.0, 30.0, "Sleep stage 4"),
    (90.0, 30.0, "Sleep stage ?"), (0.0, 0.0, "[Total time: 120 s]"), (5.0, 0.0, "cough"),
]  # fmt: skip


def found(source, store, **rules):
    spans = find_labels(source, store, LabelConfig(**rules))
    return [(row.onset_s, row.duration_s, row.label) for row in spans.rows], {n.code: n.message for n in spans.notes}


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


# Events ----------------------------------------------------------------------------------------------------------


def test_events_are_labels_of_their_own_names():
    rows, notes = found(EVENTS, a_store(entry(seconds=120, events=NIGHT)))
    assert rows == [(0, 30, "Sleep stage W"), (30, 30, "Sleep stage 3"), (60, 30, "Sleep stage 4")]
    assert notes == {
        "no_class": "labels that are no class: Sleep stage ? (1), [Total time: 120 s] (1)",
        "no_duration": "events without a duration are left out (set labels.duration_s to give them one): cough (1)",
    }


def test_events_are_mapped_by_name_and_by_pattern():
    mapping = {"Sleep stage W": "wake", "Sleep stage [34]": "N3", "sleep stage w": "never"}
    rows, notes = found(EVENTS, a_store(entry(seconds=120, events=NIGHT)), map=mapping)
    assert rows == [(0, 30, "wake"), (30, 30, "N3"), (60, 30, "N3")]
    assert notes == {
        "no_class": "labels that are no class: Sleep stage ? (1), [Total time: 120 s] (1), cough (1)",
        "map_unused": "labels.map fits no label: 'sleep stage w'",
    }


def test_a_name_goes_before_a_pattern_and_the_first_pattern_counts():
    store = a_store(entry(seconds=120, events=NIGHT))
    mapping = {"Sleep.*": "sleep", "(?i)SLEEP STAGE 3": "never", "Sleep stage W": "wake"}
    rows, notes = found(EVENTS, store, map=mapping)
    assert [row[2] for row in rows] == ["wake", "sleep", "sleep"]  # no pattern makes a class of what is not scored
    assert notes["map_unused"] == "labels.map fits no label: '(?i)SLEEP STAGE 3'"
    rows, _ = found(EVENTS, store, map={"(?i)SLEEP STAGE 3": "deep", "Sleep stage ?": "unscored"})
    assert [row[2] for row in rows] == ["deep", "unscored"]


def test_a_name_with_brackets_is_a_name():
    rows, _ = found(
        EVENTS, a_store(entry(events=[(0, 2, "seizure (focal"), (4, 2, "a+")])), map={"seizure (focal": "s"}
    )
    assert rows == [(0, 2, "s")]


@pytest.mark.parametrize(
    "label",
    ["Sleep stage ?", "Sleep Stage Unscored", "n/a", "nan", "Total time", "[Total time = 3 s]", "Recording starts",
     "recording ends", "Start Recording", "New Segment/", "boundary", "BAD_ACQ_SKIP"],
)  # fmt: skip
def test_what_marks_the_recording_is_no_class(label):
    rows, notes = found(EVENTS, a_store(entry(events=[(0, 5, label), (6, 5, "go")])))
    assert rows == [(6, 5, "go")]
    assert notes["no_class"] == f"labels that are no class: {label} (1)"


def test_events_without_a_duration_get_a_stated_one():
    """As the triggers of a status channel are."""
    store = a_store(entry(events=[(1, 0, "1"), (2, 0, "255"), (3, 0.5, "256")]))
    assert found(EVENTS, store, duration_s=1.5) == ([(1, 1.5, "1"), (2, 1.5, "255"), (3, 0.5, "256")], {})


def test_events_that_were_lost_in_reading_are_said_again():
    store = a_store(entry(events=[(0, 5, "a")], notes=[Note("events_outside", "1 events lie where no data are")]))
    assert found(EVENTS, store)[1] == {"events_outside": "events lie where no data are in 1 recordings: sub-1.edf"}


@pytest.mark.parametrize("events", [[], [(0, 0, "tick")], [(0, 9, "Sleep stage ?")]])
def test_no_event_that_can_serve(events):
    with pytest.raises(UserError, match="store: events: expected labels, found no usable one: "):
        find_labels(EVENTS, a_store(entry(events=events)))


@pytest.mark.parametrize(
    ("one", "other"), [("Rest", "rest"), ("eyes open", "eyes  open"), ("1", "1.0"), ("é", "e\u0301")]
)
def test_classes_that_differ_in_case_or_spaces_only(one, other):
    """Two classes where one was meant is an error: the map says which it is."""
    store = a_store(entry(events=[(0, 5, one), (6, 5, other)]))
    with pytest.raises(UserError, match="expected classes that differ in more than case, spaces or digits") as caught:
        find_labels(EVENTS, store)
    assert repr(one) in str(caught.value)
    rows, _ = found(EVENTS, store, map={one: "x", other: "x"})
    assert [row[2] for row in rows] == ["x", "x"]


def test_a_priority_of_no_class_is_said():
    store = a_store(entry(events=[(0, 5, "a")]))
    assert found(EVENTS, store, priority=["a", "sezure"])[1] == {
        "priority_unused": "labels.priority names what is no class: sezure"
    }


def test_the_background_is_a_class_too():
    with pytest.raises(UserError, match="got 'BCKG' and 'bckg'"):
        find_labels(EVENTS, a_store(entry(events=[(0, 5, "bckg")])), LabelConfig(background="BCKG"))


# CSV -------------------------------------------------------------------------------------------------------------


def test_rows_of_channels_and_subjects(tmp_path):
    path = write(
        tmp_path / "l.csv",
        "file,onset_s,duration_s,label,channel,subject\nsub-1.edf,1,2,a,C3,\nsub-1.edf,,,b,,1\n,,,c,,sub-2\n",
    )
    assert read_labels(path).rows == [
        Span("sub-1.edf", 1.0, 2.0, "a", None, "C3"),
        Span("sub-1.edf", None, None, "b", "1"),
        Span("", label="c", subject="sub-2"),
    ]
    assert found(path, a_store(entry()))[1] == {
        "channel_labels": "1 labels are of single channels; a window takes them for all of its channels"
    }


def test_a_subject_is_labelled_in_every_recording(tmp_path):
    path = write(tmp_path / "people.csv", "subject,label\nsub-1,old\n2,young\n7,young\n")
    store = a_store(entry("a.edf"), entry("b.edf"), entry("c.edf", subject="2"))
    windows = cut_windows(store, WindowConfig(), find_labels(path, store))
    assert windows.counts()["subjects"] == {"1": {"old": 6, "young": 0}, "2": {"old": 0, "young": 3}}
    assert [(n.code, n.message) for n in windows.notes] == [
        ("rows_unmatched", "labels: 1 rows name no recording: subject 7")
    ]


def test_a_subject_tells_files_of_one_name_apart(tmp_path):
    path = write(tmp_path / "l.csv", "file,subject,label\nrest.edf,1,x\nrest.edf,2,y\nc.edf,9,z\n")
    store = a_store(entry("a/rest.edf"), entry("b/rest.edf", subject="2"), entry("c.edf", subject="3"))
    windows = cut_windows(store, WindowConfig(), find_labels(path, store))
    assert {subject: {k for k, n in c.items() if n} for subject, c in windows.counts()["subjects"].items()} == {
        "1": {"x"}, "2": {"y"}, "3": {"z"},
    }  # fmt: skip
    assert [n.message for n in windows.notes] == [
        "labels: 1 files are of another subject in the store, which counts: c.edf of 9, of 3 here"
    ]


def test_a_csv_is_mapped_and_its_labels_stay_text(tmp_path):
    path = write(tmp_path / "l.csv", "file,label\na,-1\nb,1.0\nc,NA\nd,Sleep stage ?\n")
    store = a_store(entry())
    assert [row[2] for row in found(path, store)[0]] == ["-1", "1.0", "NA"]
    assert [row[2] for row in found(path, store, map={"-?1.*": "one"})[0]] == ["one", "one"]


def test_decimal_commas(tmp_path):
    path = write(tmp_path / "l.csv", "file;onset_s;duration_s;label\r\nsub-1.edf;1,5;2;a\r\n", "latin-1")
    rows, notes = found(path, a_store(entry()))
    assert rows == [(1.5, 2, "a")]
    assert notes == {"decimal_comma": "1 times have a decimal comma: 1,5"}


def test_rows_without_a_duration(tmp_path):
    path = write(
        tmp_path / "l.csv", "file,onset_s,duration_s,label\nsub-1.edf,1,,a\nsub-1.edf,9,0,a\nsub-1.edf,4,3,b\n"
    )
    assert found(path, a_store(entry()), duration_s=2)[0] == [(1, 2, "a"), (9, 2, "a"), (4, 3, "b")]
    with pytest.raises(UserError, match=r"line 2: .*fill in the other, or set labels\.duration_s"):
        read_labels(path)


@pytest.mark.parametrize(
    ("onset", "message"),
    [
        (
            "1577836800",
            "expected seconds in onset_s, got '1577836800', a date in seconds; subtract the recording's start",
        ),
        ("-189388800", "a date in seconds; subtract the recording's start"),
        ("22:30:05", "got '22:30:05', a clock time or date; subtract the recording's start"),
        ("2020-01-01T22:30:05", "a clock time or date"),
        ("01/02/2020", "a clock time or date"),
        ("nan", "expected seconds in onset_s, got 'nan'"),
        ("n/a", "expected seconds in onset_s, got 'n/a'"),
        ("inf", "expected seconds in onset_s, got 'inf'"),
        ("1.234,5", "expected seconds in onset_s"),
    ],
)
def test_times_that_are_no_seconds_of_the_recording(tmp_path, onset, message):
    path = write(tmp_path / "l.csv", f'file,onset_s,duration_s,label\nsub-1.edf,"{onset}",3,x\n')
    with pytest.raises(UserError) as caught:
        read_labels(path)
    assert f"{path}: line 2: " in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("subject,klass\n1,b\n", "expected a column 'label' with the labels, got klass; name the one"),
        ("name,label\n1,b\n", "expected the columns file, label, got name, label; add file"),
        (
            "subject,onset_s,duration_s,label\n1,0,5,b\n",
            "expected a file name, got none; only a label of a whole subject",
        ),
        ("file,label\n,b\n", "line 2: expected a file name, got none"),
        ("file,label\n\n\n,b\n", "line 4: expected a file name, got none"),
        ("file,onset_s,duration_s,label\na.edf,1,5,2,x\n", "line 2: expected 4 cells as in the header, got 5"),
        ("file,label\n", "expected labelled rows, got 0 rows"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path, text, message):
    with pytest.raises(UserError) as caught:
        read_labels(write(tmp_path / "l.csv", text))
    assert message in str(caught.value)


def test_a_subject_that_the_store_does_not_have(tmp_path):
    store = a_store(entry())
    with pytest.raises(UserError, match="none of 1 rows names a recording of the store: subject 7 against subject 1"):
        cut_windows(store, WindowConfig(), read_labels(write(tmp_path / "l.csv", "subject,label\n7,x\n")))


# Annotation files ------------------------------------------------------------------------------------------------


def write_hypnogram(path, texts=((0, 30, "Sleep stage W"), (30, 60, "Sleep stage 1")), start=b"01.02.2010.20.30"):
    """An EDF+ without signals, as Sleep-EDF has them: one record, of no duration."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_edf(path, [noise_uv(1, 200)[0]], ["C3"], plus="C", annotations=texts, start=start)
    whole = path.read_bytes()
    head, rows, body = whole[:256], whole[256:768], whole[768:]
    widths = (16, 80, 8, 8, 8, 8, 8, 80, 8, 32)
    kept, at = b"", 0
    for width in widths:
        kept += rows[at + width : at + 2 * width]
        at += 2 * width
    head = head[:184] + b"512     " + head[192:244] + b"0       " + b"1   "
    path.write_bytes(head + kept + body[400:])
    return path


def whose(source, *files, clock=None):
    annotated, notes = read_annotations(source, [(file, clock) for file in files])
    return {one.file: [text for _, _, text in one.events] for one in annotated}, {n.code: n.message for n in notes}


@pytest.mark.parametrize(
    ("recording", "hypnogram"),
    [
        ("b17_psg.edf", "b17_hypnogram.edf"),
        ("SC4001E0-PSG.edf", "SC4001EC-Hypnogram.edf"),
        ("st7011j0-psg.EDF", "ST7011JP-Hypnogram.edf"),
        ("01-02-0001 PSG.edf", "01-02-0001 Base.edf"),
        ("sub-01_task-sleep_eeg.vhdr", "sub-01_task-sleep_annotations.edf"),
        ("night/psg.edf", "night/hypnogram.edf"),
        ("n1.fif.gz", "N1.edf"),
    ],
)
def test_hypnograms_are_found_by_name(tmp_path, recording, hypnogram):
    path = write_hypnogram(tmp_path / hypnogram)
    stages = {recording: ["Sleep stage W", "Sleep stage 1"]}
    assert whose(tmp_path, recording, "other.edf") == (stages, {})
    assert whose(path, recording, "other.edf") == (stages, {})


def test_hypnograms_in_folders(tmp_path):
    write_hypnogram(tmp_path / "sub-1" / "hypnogram.edf", [(0, 30, "a")])
    write_hypnogram(tmp_path / "sub-2" / "hypnogram.edf", [(0, 30, "b")])
    write_hypnogram(tmp_path / "sub-3" / "hypnogram.edf", [(0, 30, "c")])
    write_edf(tmp_path / "sub-1" / "psg.edf", noise_uv(2, 400), ["C3", "C4"])  # a recording is no label file
    (tmp_path / "sub-1" / "bad.edf").write_bytes(b"no")
    assert whose(tmp_path, "sub-1/psg.edf", "sub-2/psg.edf", "psg4/psg.edf") == (
        {"sub-1/psg.edf": ["a"], "sub-2/psg.edf": ["b"]},
        {"not_read": "1 files are no EDF or damaged: bad.edf",
         "rows_unmatched": "1 files name no recording: hypnogram.edf"},
    )  # fmt: skip


def test_hypnograms_that_cannot_be_matched(tmp_path):
    write_hypnogram(tmp_path / "SC4001EC-Hypnogram.edf")
    with pytest.raises(UserError, match=r"expected to fit one recording, got 2 \(sc4001e0\.edf, SC4001E1-PSG\.edf\)"):
        whose(tmp_path, "sc4001e0.edf", "SC4001E1-PSG.edf")
    with pytest.raises(UserError, match=r"expected names like the recordings' .* got SC4001EC-Hypnogram\.edf against"):
        whose(tmp_path, "SC4002E0-PSG.edf")
    write_hypnogram(tmp_path / "SC4001EH-Hypnogram.edf")
    with pytest.raises(UserError, match=r"expected one file of SC4001E0-PSG\.edf, got SC4001EC.* and SC4001EH"):
        whose(tmp_path, "SC4001E0-PSG.edf")
    signals = write_edf(tmp_path / "only" / "a.edf", noise_uv(2, 400), ["C3", "C4"])
    with pytest.raises(UserError, match="expected annotations only, got a recording of 2 signals"):
        whose(signals, "a.edf")
    with pytest.raises(UserError, match="expected annotations-only EDF files"):
        whose(signals.parent, "a.edf")


def test_a_hypnogram_keeps_the_recordings_time(tmp_path):
    """Lights were out five minutes after the recorder was on."""
    path = write_hypnogram(tmp_path / "n1.edf", [(30, 60, "W")], start=b"01.02.2010.25.30")
    store = a_store(entry("n1-psg.edf", meas_date="2020-02-01T10:20:30"))
    rows, notes = found(path, store)
    assert rows == [(330, 60, "W")]
    assert notes["labels_shifted"].endswith("start by another clock and are moved to it: n1-psg.edf (+300 s)")
    rows, notes = found(path, a_store(entry("n1-psg.edf", meas_date="1963-11-05T10:20:30")))
    assert rows == [(30, 60, "W")]
    assert notes["clocks_differ"].endswith("taken as counted from the recording's start: n1-psg.edf (+20542 days)")
    assert found(path, a_store(entry("n1-psg.edf"))) == ([(30, 60, "W")], {})


def test_annotations_of_a_recording_are_left_out_as_labels(tmp_path):
    night = tmp_path / "night"
    names = ["Fp1", "Fp2", "C3", "C4"]
    write_edf(night / "sub-1-PSG.edf", noise_uv(), names)
    write_hypnogram(night / "sub-1-Hypnogram.edf")
    report = check([tmp_path])
    assert [(r["file"], r["status"]) for r in report["recordings"]] == [("night/sub-1-PSG.edf", "ok")]
    reason = "annotations only, of night/sub-1-PSG.edf: no recording, but labels (finetune --labels)"
    assert report["left_out"] == [{"file": "night/sub-1-Hypnogram.edf", "code": "annotations", "reason": reason}]
    assert report["exit_status"] == 0
    (night / "sub-1-PSG.edf").rename(night / "sub-2-PSG.edf")  # whose they are is not known then
    assert check([tmp_path])["exit_status"] == 2
    write_edf(night / "sub-1-Hypnogram.edf", noise_uv(seed=1), names)
    write_edf(night / "sub-1-PSG.edf", noise_uv(seed=2), names)
    assert [one.file for one in scan([night])] == ["sub-1-Hypnogram.edf", "sub-1-PSG.edf", "sub-2-PSG.edf"]


def test_participants_of_bids_label_people(tmp_path):
    """The column of the classes has to be named; `sub-` or not, it is the same person."""
    text = "participant_id\tage\tGroup\nsub-1\t30\tpatient\nsub-2\t40\tcontrol\nsub-3\t50\tn/a\n"
    path = write(tmp_path / "participants.tsv", text)
    store = a_store(*(entry(f"sub-{n}.edf", subject=str(n)) for n in (1, 2, 3)))
    with pytest.raises(UserError, match="expected a column 'label' with the labels, got age, group; name the one that"):
        find_labels(path, store)
    spans = find_labels(path, store, LabelConfig(column="group"))
    assert [(row.file, row.subject, row.label) for row in spans.rows] == [
        ("", "sub-1", "patient"), ("", "sub-2", "control"),
    ]  # fmt: skip
    assert {note.code: note.message for note in spans.notes} == {
        "columns_ignored": "columns not used: age", "no_class": "labels that are no class: n/a (1)",
    }  # fmt: skip
    windows = cut_windows(store, WindowConfig(window_s=30, stride_s=30), spans)
    assert [windows.classes[label] for label in windows.label if label >= 0] == ["patient", "control"]
    assert [row.label for row in find_labels(path, store, LabelConfig(column="age")).rows] == ["30", "40", "50"]
    both = write(tmp_path / "b.csv", "file,label,other\nsub-1.edf,a,x\nsub-2.edf,b,y\n")
    assert [row.label for row in read_labels(both, column="other").rows] == ["x", "y"]


# What is said of a table's columns -------------------------------------------------------------------------------


def test_the_words_of_bids_are_taken_with_a_file(tmp_path):
    text = "file,onset,duration,trial_type,value\nsub-1.edf,1,2.5,go,7\n"
    given = read_labels(write(tmp_path / "l.csv", text))
    assert given.rows == [Span("sub-1.edf", 1.0, 2.5, "go")]
    assert given.notes == [Note("columns_ignored", "columns not used: value")]
    given = read_labels(write(tmp_path / "l.csv", text), column="value")
    assert given.rows == [Span("sub-1.edf", 1.0, 2.5, "7")]
    assert given.notes == [Note("columns_ignored", "columns not used: trial_type")]


def test_a_label_column_that_is_not_the_chosen_one_is_named(tmp_path):
    given = read_labels(write(tmp_path / "l.csv", "file,group,label,age\nsub-1.edf,a,x,3\n"), column="group")
    assert given.rows == [Span("sub-1.edf", label="a")]
    assert given.notes == [Note("columns_ignored", "columns not used: age, label")]


def test_channels_that_no_recording_has_are_named():
    rows = [Span("sub-1.edf", 0.0, 9.0, "a", None, "EEG C3-REF"), Span("sub-1.edf", 9.0, 9.0, "a", None, "Xz")]
    rows.append(Span("sub-1.edf", 18.0, 9.0, "a", None, "c3, Oz"))
    notes = cut_windows(a_store(entry()), WindowConfig(window_s=1, stride_s=1), rows).notes
    assert notes == [
        Note("channels_unknown", "labels: 2 channels of labels are in none of their recordings: Xz, Oz"),
    ]


def test_how_many_rows_more_name_no_recording():
    rows = [Span("sub-1.edf", label="a"), *(Span(f"{n}.edf", label="a") for n in range(40))]
    (note,) = cut_windows(a_store(entry()), WindowConfig(window_s=1, stride_s=1), rows).notes
    assert note.message == "labels: 40 rows name no recording: 0.edf, 1.edf, 2.edf, 3.edf and 36 more"

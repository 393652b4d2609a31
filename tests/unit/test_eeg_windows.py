"""Where windows are cut, and which label each has."""

import pytest

from bothways.config import LabelConfig, WindowConfig
from bothways.eeg import Span, cut_windows
from bothways.errors import UserError
from stores import SFREQ_HZ, a_store, entry


def cut(rows, recording=None, *, window_s=4.0, stride_s=2.0, min_overlap=1.0, **rules):
    """Returns (second, label) of each window of one recording of 20 s, and the notes."""
    config = WindowConfig(window_s=window_s, stride_s=stride_s, min_overlap=min_overlap)
    spans = [Span("sub-1.edf", float(onset_s), float(duration_s), label) for onset_s, duration_s, label in rows]
    windows = cut_windows(a_store(recording or entry(seconds=20)), config, spans, rules=LabelConfig(**rules))
    names = [*windows.classes, None]
    table = [(start / SFREQ_HZ, names[label]) for start, label in zip(windows.start.tolist(), windows.label.tolist())]
    return table, {note.code: note.message for note in windows.notes}


def labelled(*args, **options):
    table, notes = cut(*args, **options)
    return [(second, label) for second, label in table if label], notes


SEIZURE = [(5, 6, "seizure")]  # seconds 5 to 11 of 20


def test_windows_inside_the_label():
    assert labelled(SEIZURE) == ([(5, "seizure"), (7, "seizure")], {})


@pytest.mark.parametrize(
    ("min_overlap", "seconds"), [(0.2, [2, 4, 6, 8, 10]), (0.5, [4, 6, 8]), (0.75, [4, 6, 8]), (0.76, [6])]
)
def test_windows_on_a_grid(min_overlap, seconds):
    """Of the windows at 2, 4, 6, 8 and 10 s the seizure covers 1, 3, 4, 3 and 1 of 4 s."""
    table, notes = cut(SEIZURE, min_overlap=min_overlap)
    assert [second for second, _ in table] == list(range(0, 17, 2))
    assert [second for second, label in table if label] == seconds
    mixed = 5 - len(seconds)
    text = f"{mixed} windows have no label that covers windows.min_overlap of them: sub-1.edf"
    assert notes == ({"windows_mixed": text} if mixed else {})


def test_unlabelled_time_is_the_background():
    """Every class must cover its share: a window that is half seizure is no background either."""
    table, notes = cut(SEIZURE, min_overlap=0.75, background="bckg")
    assert dict(table) == {
        0: "bckg", 2: "bckg", 4: "seizure", 6: "seizure", 8: "seizure", 10: "bckg", 12: "bckg", 14: "bckg", 16: "bckg",
    }  # fmt: skip
    table, notes = cut([(5, 5, "seizure")], min_overlap=0.8, background="bckg")
    assert dict(table)[4] is None  # three quarters
    assert list(notes) == ["windows_mixed"]
    table, notes = cut(SEIZURE, background="bckg")
    assert table == [(0, "bckg"), (5, "seizure"), (7, "seizure"), (11, "bckg"), (13, "bckg"), (15, "bckg")]
    assert notes == {}


def test_a_recording_without_a_label_is_all_background_and_said():
    store = a_store(entry(seconds=20), entry("sub-2.edf", seconds=8, subject="2"))
    for background, n, what in (("bckg", 2, "count as bckg from end to end"), (None, 0, "give no labelled window")):
        windows = cut_windows(
            store, WindowConfig(window_s=4, stride_s=4), [Span("sub-1.edf", 0.0, 4.0, "x")],
            rules=LabelConfig(background=background),
        )  # fmt: skip
        assert ((windows.recording == 1) & (windows.label >= 0)).sum() == n
        (note,) = windows.notes
        assert (note.code, note.message) == (
            "recordings_unlabelled",
            f"1 recordings have no label and {what}: sub-2.edf",
        )


def test_of_several_labels_the_one_that_covers_most():
    rows = [(0, 1, "a"), (1, 2, "b"), (3, 1, "a")]
    assert labelled(rows, min_overlap=0.25, stride_s=20)[0] == [(0, "a")]  # equal shares: the first in time
    assert labelled([(0, 1, "a"), (1, 3, "b")], min_overlap=0.25, stride_s=20)[0] == [(0, "b")]
    assert labelled([(0, 1, "a"), (1, 3, "b")], min_overlap=0.25, stride_s=20, priority=["a"])[0] == [(0, "a")]
    assert labelled([(0, 1, "a"), (1, 3, "b")], min_overlap=0.5, stride_s=20, priority=["a"])[0] == [(0, "b")]
    two = ["c", "a"]
    assert labelled([(0, 1, "a"), (1, 1, "c"), (2, 2, "b")], min_overlap=0.25, stride_s=20, priority=two)[0] == [
        (0, "c")
    ]


def test_a_label_too_short_for_any_window_is_counted():
    rows = [*SEIZURE, (15, 0.5, "blink"), (17, 0.1, "blink")]
    assert labelled(rows)[1] == {
        "label_too_short": "2 labelled stretches are shorter than a window: blink in sub-1.edf"
    }
    table, notes = labelled(rows, min_overlap=0.5)
    assert table == [(4, "seizure"), (6, "seizure"), (8, "seizure")]
    assert notes["label_too_short"] == "2 labelled stretches give no window its label: blink in sub-1.edf"


@pytest.mark.parametrize("min_overlap", [0.1, 0.5, 1.0])
def test_no_window_over_a_gap(min_overlap):
    recording = entry(pieces_s=[(0, 7), (100, 9)])
    table, _ = cut([(5, 100, "x")], recording, stride_s=1.0, min_overlap=min_overlap)
    assert not [second for second, _ in table if second < 7 < second + 4]
    assert {(7.0, "x"), (8.0, "x")} & set(table)


def test_windows_on_a_grid_are_shifted_only_where_nothing_changes():
    rows = [Span("sub-1.edf", 5.0, 6.0, "x")]
    windows = cut_windows(a_store(entry(seconds=20)), WindowConfig(window_s=4, stride_s=2, min_overlap=0.5), rows)
    shifts = dict(
        zip((windows.start / 200).tolist(), zip((windows.earliest / 200).tolist(), (windows.latest / 200).tolist()))
    )
    assert shifts[0] == (0, 1)
    assert shifts[4] == (4, 4)
    assert shifts[6] == (5, 7)
    assert shifts[14] == (11, 16)


# Overlaps --------------------------------------------------------------------------------------------------------


def test_overlapping_labels_are_refused_in_true_time():
    recording = entry(pieces_s=[(0, 7), (100, 9)])
    with pytest.raises(
        UserError, match=r"sub-1\.edf: 'a' and 'b' overlap at 102 s; a moment has one label: shorten or"
    ):
        cut([(100, 5, "a"), (102, 5, "b")], recording)
    with pytest.raises(UserError, match="'a' and 'b' overlap at 1 s"):
        cut([(0, 9, "a"), (1, 2, "b")])


def test_a_stated_priority():
    rows = [(0, 20, "rest"), (4, 8, "artifact"), (6, 4, "seizure")]
    priority = ["seizure", "artifact"]
    table, notes = cut(rows, window_s=2, stride_s=2, priority=priority)
    assert table == [
        (0, "rest"), (2, "rest"), (4, "artifact"), (6, "seizure"), (8, "seizure"), (10, "artifact"),
        *((second, "rest") for second in (12, 14, 16, 18)),
    ]  # fmt: skip
    what = "labelled stretches give way to a label that labels.priority puts before them"
    assert notes == {"labels_overruled": f"2 {what}: artifact in sub-1.edf, rest in sub-1.edf"}
    with pytest.raises(UserError, match="'rest' and 'sleep' overlap at 15 s"):
        cut([*rows, (15, 2, "sleep")], priority=priority)


def test_the_same_label_twice_counts_once():
    table, notes = labelled([(0, 6, "a"), (4, 4, "a"), (1, 2, "a")], stride_s=4)
    assert table == [(0, "a"), (4, "a")]
    assert notes == {
        "labels_merged": "2 labelled stretches overlap one of the same label and are joined with it: a in sub-1.edf"
    }


def test_neighbours_stay_two():
    """Two trials of one condition: no window lies in both."""
    assert labelled([(0, 5, "a"), (5, 5, "a")])[0] == [(0, "a"), (5, "a")]


def test_one_sample_is_no_overlap():
    """Times rounded to milliseconds put neighbours over each other by less than a sample, and by one in the store."""
    assert labelled([(1, 4.003, "a"), (5, 5, "b")], stride_s=4) == ([(1, "a"), (5, "b")], {})
    assert labelled([(1, 0.005, "a"), (1.001, 0.005, "b"), (5, 5, "c")], window_s=0.005, stride_s=9)[0] == [
        (1, "a"), (5, "c"),
    ]  # fmt: skip
    assert labelled([(1, 0.005, "a"), (1.001, 5, "b")], stride_s=4)[0] == [(1.005, "b")]


def test_labels_that_share_a_little_keep_their_windows_and_are_counted():
    shared = "1 labelled stretches reach up to 0.05 s into the next: both keep their windows: a in sub-1.edf"
    for over_s in (0.025, 0.05):
        for rows in ([(1, 4 + over_s, "a"), (5, 5, "b")], [(1, 4, "a"), (5 - over_s, 5 + over_s, "b")]):
            table, notes = labelled(rows, stride_s=4)
            assert table == [(1, "a"), (rows[1][0], "b")]
            assert notes == {"labels_overlap": shared}
            assert [label for _, label in labelled(rows, stride_s=1, min_overlap=0.6)[0]].count("a") == 3
    for rows in ([(1, 4.06, "a"), (5, 5, "b")], [(1, 4, "a"), (2, 0.025, "b")], [(1, 0.025, "a"), (1, 4, "b")]):
        with pytest.raises(UserError, match="overlap at"):
            labelled(rows)


def test_a_label_cut_by_a_sample_is_not_said_to_be():
    """The end of a recording of 4000 samples is at 20 s; a label may miss one sample by rounding, not two."""
    assert labelled([(10, 10.005, "a")])[1] == {}
    assert list(labelled([(10, 10.01, "a")])[1]) == ["label_clipped"]


# Beyond the recording --------------------------------------------------------------------------------------------


def test_what_reaches_beyond_the_recording_is_cut_and_counted():
    rows = [(-3, 7, "early"), (18, 9, "late"), (-9, 4, "before"), (20, 4, "after"), (10, 2, "in")]
    table, notes = labelled(rows, window_s=2)
    assert table == [(0, "early"), (2, "early"), (10, "in"), (18, "late")]
    assert notes == {
        "label_outside": "2 labelled stretches hold no sample of their recording: "
        "before in sub-1.edf, after in sub-1.edf",
        "label_clipped": "2 labelled stretches reach before, beyond or over a gap of their recording and are cut to "
        "it: early in sub-1.edf, late in sub-1.edf",
    }


def test_what_lies_over_a_gap_is_counted():
    recording = entry(pieces_s=[(0, 7), (100, 9)])
    assert list(cut([(3, 101, "x")], recording)[1]) == ["label_clipped"]
    assert list(cut([(100, 9, "x")], recording)[1]) == []
    assert list(cut([(50, 9, "x"), (0, 7, "y")], recording)[1]) == ["label_outside"]

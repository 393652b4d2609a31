import errno
import json
import os
import sys

import pytest

from bothways.eeg import LeftOut, check, prepare, scan
from bothways.eeg.scan import as_paths, by_ending, ends_with, read_table
from bothways.errors import UserError, plain_words
from recordings import noise_uv, write_edf


def touch(*paths):
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")


def test_a_folder_is_searched_for_recordings_and_not_for_their_companions(tmp_path):
    touch(*(tmp_path / name for name in (
        "x/a.edf", "x/b.vhdr", "x/b.eeg", "x/b.vmrk", "c.set", "c.fdt", "d.eeg", "e.data", "f.data", "f.head",
        "g_raw.fif", "g_raw-1.fif", "notes.txt", "._a.edf", ".hidden/h.edf", "日本 ğ/i.EDF", "p/s_split-01_eeg.fif",
        "p/s_split-02_eeg.fif", "q/curry.dat", "q/curry.dap", "q/curry.rs3", "q/p.lay", "q/p.dat", "q/n.ns3", "q/x.mat",
        "q/x.txt", "q/s.sqd", "q/ctf.ds/ctf.res4", "q/ctf.ds/ctf.meg4", "q/ctf.ds/x.eeg", "q/old.ds/o.edf",
    )))  # fmt: skip
    (tmp_path / "m.mff").mkdir()
    touch(tmp_path / "m.mff" / "signal.edf")
    assert [one.file for one in scan([tmp_path])] == [
        "c.set", "d.eeg", "f.data", "g_raw.fif", "m.mff", "p/s_split-01_eeg.fif", "q/ctf.ds",
        "q/curry.dat", "q/n.ns3", "q/old.ds/o.edf", "q/p.lay", "x/a.edf", "x/b.vhdr", "日本 ğ/i.EDF",
    ]  # fmt: skip


def test_a_recording_that_is_a_folder_is_taken_whole(tmp_path):
    touch(tmp_path / "ctf.ds" / "ctf.res4", tmp_path / "old.ds" / "o.edf")
    assert [one.file for one in scan([tmp_path / "ctf.ds", tmp_path / "old.ds"])] == ["ctf.ds", "o.edf"]


def test_a_link_that_leads_back_up_ends(tmp_path):
    touch(tmp_path / "a" / "one.edf")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    assert [one.file for one in scan([tmp_path])] == ["a/one.edf"]


@pytest.mark.parametrize(
    ("file", "subject", "session"),
    [
        ("sub-00_rest.edf", "00", ""),
        ("sub-A1/ses-2/eeg/sub-A1_ses-2_eeg.edf", "A1", "2"),
        ("x/sub-07/night.edf", "07", ""),
    ],
)
def test_subject_of_the_path(tmp_path, file, subject, session):
    touch(tmp_path / file)
    (found,) = scan([tmp_path])
    assert (found.subject, found.session, found.note) == (subject, session, "")


def test_the_path_below_the_given_folder_comes_first(tmp_path):
    folder = tmp_path / "sub-study" / "ses-9" / "recs"
    touch(folder / "sub-1" / "ses-2" / "a.edf", folder / "sub-2.edf", folder / "b.edf")
    third, first, second = scan([folder])
    assert [(one.file, one.subject, one.session, one.note) for one in (first, second)] == [
        ("sub-1/ses-2/a.edf", "1", "2", ""), ("sub-2.edf", "2", "9", ""),
    ]  # fmt: skip
    assert (third.file, third.subject) == ("b.edf", "study")
    assert third.note == (
        "no 'sub-…' but in the folders above; 'study' taken as the person; "
        "if that is wrong, give --subject-from parent or a CSV file,subject"
    )
    (single,) = scan([folder / "sub-1" / "ses-2" / "a.edf"])
    assert (single.subject, single.session, single.note[:33]) == ("1", "2", "no 'sub-…' but in the folders abo")


def test_a_guessed_subject_is_a_warning(tmp_path):
    write_edf(tmp_path / "P0_open.edf", noise_uv(seed=1), ["Fp1", "Fp2", "C3", "C4"])
    report = check([tmp_path])
    (entry,) = report["recordings"]
    assert (entry["status"], report["exit_status"], entry["notes"][0]["code"]) == ("warning", 1, "subject_guessed")
    assert "give --subject-from parent or a CSV file,subject" in entry["notes"][0]["message"]
    assert check([tmp_path], subject_from="parent")["recordings"][0]["status"] == "ok"


def test_subject_of_name_parent_and_table(tmp_path):
    touch(tmp_path / "data" / "anna" / "one.edf", tmp_path / "data" / "bert" / "two.edf")
    named = scan([tmp_path / "data"])
    assert [one.subject for one in named] == ["one", "two"]
    assert named[0].note == (
        "no 'sub-…' in the path; 'one' taken as a person of its own; "
        "if that is wrong, give --subject-from parent or a CSV file,subject"
    )
    assert [(one.subject, one.note) for one in scan([tmp_path / "data"], "parent")] == [("anna", ""), ("bert", "")]
    table = tmp_path / "who.csv"
    table.write_text("\ufefffile;subject\r\none.edf;7\r\nbert/two.edf;8\r\n", encoding="utf-8")
    assert [(one.subject, one.note) for one in scan([tmp_path / "data"], table)] == [("7", ""), ("8", "")]
    table.write_text("file,subject\none.edf,7\n")
    with pytest.raises(UserError, match=r"bert/two\.edf has no row"):
        scan([tmp_path / "data"], table)
    table.write_text("name,subject\none.edf,7\n")
    with pytest.raises(UserError, match="expected the columns file, subject, got name, subject; add file"):
        scan([tmp_path / "data"], table)


def test_a_table_is_read_as_it_stands_or_refused_by_its_line(tmp_path):
    table = tmp_path / "t.csv"
    table.write_bytes(b'\r\na,b\r\n\r\n1, x \r\n  ,\r\n"2\r\n2",y\r\n3\r\n4,z,\r\n')
    assert read_table(table, ("a",)) == {
        4: {"a": "1", "b": "x"}, 6: {"a": "2\n2", "b": "y"}, 8: {"a": "3", "b": ""}, 9: {"a": "4", "b": "z"},
    }  # fmt: skip
    table.write_text("file,onset_s\n\na.edf,1\n\nb.edf,1,5\n")
    with pytest.raises(UserError, match=r"line 5: expected 2 cells as in the header, got 3; .* that holds ',' itself"):
        read_table(table, ())
    table.write_text("file,subject\na.edf,1\n", encoding="utf-16")
    with pytest.raises(UserError, match="no text in UTF-8 or Latin-1"):
        read_table(table, ())


FILES = ["a.edf", "x/a.edf", "y/x/a.edf", "ba.edf", "m.mff"]


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("a.edf", [0, 1, 2]), ("x/a.edf", [0, 1, 2]), ("./x\\a.edf", [0, 1, 2]), ("z/a.edf", [0]),
        ("y/x/a.edf", [0, 1, 2]), ("/ba.edf", [3]), ("dir/m.mff", [4]), ("edf", []), ("/a.edf", [0, 1, 2]), ("", []),
    ],
)  # fmt: skip
def test_names_fit_files_by_their_last_parts(name, fits):
    assert by_ending(FILES)(name) == fits
    assert [index for index, file in enumerate(FILES) if ends_with(file, name)] == fits


def test_of_a_bids_dataset_the_raw_data_are_taken_and_what_is_left_out_is_said(tmp_path):
    root, why = tmp_path / "set", "holds none of the raw data of a BIDS dataset; give the folder itself to take it"
    touch(*(root / name for name in (
        "dataset_description.json", "sub-1/eeg/sub-1_eeg.edf", "derivatives/clean/sub-1/sub-1_eeg.edf",
        "derivatives/clean/dataset_description.json", "sourcedata/a.edf", "code/test.edf", "stimuli/b.edf",
        "sub-1/derivatives/c.edf",
    )))  # fmt: skip
    left_out: list[LeftOut] = []
    files = [one.file for one in scan([tmp_path], left_out=left_out)]
    assert files == ["set/stimuli/b.edf", "set/sub-1/derivatives/c.edf", "set/sub-1/eeg/sub-1_eeg.edf"]
    assert left_out == [
        LeftOut(f"set/{name}/", "bids_folder", why) for name in ("code", "derivatives", "sourcedata")
    ]  # fmt: skip
    assert [one.file for one in scan([root / "derivatives"])] == ["clean/sub-1/sub-1_eeg.edf"]
    (root / "dataset_description.json").unlink()
    assert len(scan([root])) == 6
    touch(tmp_path / "empty" / "participants.tsv", tmp_path / "empty" / "code" / "a.edf")
    with pytest.raises(UserError, match="or a rate; code/ left out: holds none of the raw data"):
        scan([tmp_path / "empty"])


def test_equal_names_in_two_folders_stay_apart(tmp_path):
    touch(tmp_path / "a" / "one.edf", tmp_path / "b" / "one.edf")
    assert [one.file for one in scan([tmp_path / "a", tmp_path / "b"])] == ["a/one.edf", "b/one.edf"]
    assert [one.file for one in scan([tmp_path / "a", tmp_path / "a" / "one.edf"])] == ["one.edf"]


def test_subjects_are_looked_up_and_not_searched_for(tmp_path, monkeypatch):
    files = [f"sub-{number}/rest.edf" for number in range(300)]
    touch(*(tmp_path / "data" / file for file in files))
    table = tmp_path / "who.csv"
    table.write_text("file,subject\n" + "".join(f"{file},p{number}\n" for number, file in enumerate(files)))
    monkeypatch.setattr(sys.modules["bothways.eeg.scan"], "ends_with", None)  # tries each file with each row
    found = scan([tmp_path / "data"], table)
    assert {one.file: one.subject for one in found} == {file: f"p{number}" for number, file in enumerate(files)}


def test_nothing_to_scan(tmp_path):
    with pytest.raises(UserError, match="no recording found; expected files that end in"):
        scan([tmp_path])
    with pytest.raises(UserError, match="found none; check the path"):
        scan([tmp_path / "gone"])


def test_check_reports_each_file_and_goes_on(tmp_path):
    names = ["Fp1", "Fp2", "C3", "C4"]
    write_edf(tmp_path / "sub-1_a.edf", noise_uv(), names)
    write_edf(tmp_path / "sub-1_b.edf", noise_uv(), names)
    write_edf(tmp_path / "sub-2_c.edf", noise_uv() * 20, names, units="nV")
    (tmp_path / "sub-3_d.edf").write_bytes(b"no")
    write_edf(tmp_path / "sub-4_e.edf", noise_uv(4, 100), names, record_s=0.5)
    report = check([tmp_path])
    assert [(r["file"], r["status"]) for r in report["recordings"]] == [
        ("sub-1_a.edf", "ok"), ("sub-1_b.edf", "warning"), ("sub-2_c.edf", "ok"), ("sub-3_d.edf", "unusable"),
        ("sub-4_e.edf", "unusable"),
    ]  # fmt: skip
    first, second, third, broken, short = report["recordings"]
    assert first["amplitude_uv"] == pytest.approx(30, rel=0.1)
    assert second["notes"] == [{"code": "duplicate_content", "message": "same content as sub-1_a.edf"}]
    assert third["amplitude_uv"] == pytest.approx(0.6, rel=0.1)
    assert "not an EDF or BDF file" in broken["reason"]
    assert short["reason"] == "too short: 0.5 s without a gap, at least 1 s expected"
    assert report["totals"] == {
        "recordings": 5, "subjects": 2, "duration_s": 24.0, "ok": 2, "warning": 1, "unusable": 2,
    }  # fmt: skip
    assert report["exit_status"] == 2
    assert check([tmp_path / "sub-1_a.edf"])["exit_status"] == 0


def test_check_says_which_factor_makes_sense(tmp_path):
    path = write_edf(tmp_path / "sub-1.edf", noise_uv(), ["Fp1", "Fp2", "C3", "C4"], units="mV")
    (entry,) = check([path])["recordings"]
    assert entry["status"] == "unusable"
    assert "÷1000 would make" in entry["reason"]
    assert check([path], unit="uV")["recordings"][0]["status"] == "ok"


def test_names_that_are_not_utf8_are_shown_with_replacements(tmp_path):
    names = [b"bad\xff.edf", b"bad\xfe.edf", b"esc\x1b[31m\n.edf", "ğ.edf".encode()]
    for number, name in enumerate(names):
        path = tmp_path / "data" / os.fsdecode(name)
        write_edf(path, noise_uv(seed=number), ["Fp1", "Fp2", "C3", "C4"])
    (tmp_path / "data" / os.fsdecode(b"no\xff.edf")).write_bytes(b"no")
    found = scan([tmp_path / "data"])
    assert [one.file for one in found] == ["bad\ufffd.edf", "bad\ufffd.edf#2", "esc\ufffd[31m\ufffd.edf",
                                           "no\ufffd.edf", "ğ.edf"]  # fmt: skip
    assert [os.fsencode(one.path.name) for one in found][:2] == [b"bad\xfe.edf", b"bad\xff.edf"]
    assert (found[0].subject, "bad\ufffd" in found[0].note) == ("bad\ufffd", True)
    report = check([tmp_path / "data"])
    json.dumps(report, ensure_ascii=False).encode()
    assert report["recordings"][3]["reason"].startswith(f"{tmp_path}/data/no\ufffd.edf: not an EDF")
    store = prepare([tmp_path / "data"], tmp_path / "store")
    assert [r.file for r in store.recordings] == [one.file for one in found if one.file[:2] != "no"]
    same = [tmp_path / folder / os.fsdecode(name) for folder in ("a\ufffd", os.fsdecode(b"a\xff")) for name in names]
    touch(*same)
    files = [one.file for one in scan(same)]
    assert len(set(files)) == 8
    whole = f"{tmp_path.as_posix()[1:]}/a\ufffd/bad\ufffd.edf"
    assert files[:2] == [whole, f"{whole}#2"]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "permission is denied"), (errno.EISDIR, "it is a folder"),
        (errno.ENAMETOOLONG, "its name is too long"), (errno.ENOENT, "it is not there (any more)"),
        (errno.EBADF, "Bad file descriptor"),
    ],
)  # fmt: skip
def test_what_the_system_says_in_plain_words(number, words):
    assert plain_words(OSError(number, os.strerror(number), "/x")) == words


def test_paths_that_cannot_be_looked_at(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"x\.edf: cannot be read: its name is too long; check the path$"):
        scan([tmp_path / f"{'x' * 300}.edf"])
    with pytest.raises(UserError, match=r"expected a CSV file, but it is a folder; check the path$"):
        read_table(tmp_path, ())
    path = write_edf(tmp_path / "sub-1.edf", noise_uv(), ["Fp1", "Fp2", "C3", "C4"])

    def denied(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", "/x")

    monkeypatch.setattr("pathlib.Path.open", denied)
    (entry,) = check([path])["recordings"]
    assert entry["reason"] == f"{path}: /x cannot be read: permission is denied; check its permissions"


def test_a_person_in_two_folders_is_said(tmp_path):
    files = [tmp_path / "two" / name / "sub-01_rest.edf" for name in ("A", "B")]
    for number, file in enumerate(files):
        write_edf(file, noise_uv(seed=number), ["Fp1", "Fp2", "C3", "C4"])
    for paths in ([tmp_path / "two"], [file.parent for file in files], files):
        found = scan(paths)
        assert [(one.file, one.subject) for one in found] == [("A/sub-01_rest.edf", "01"), ("B/sub-01_rest.edf", "01")]
        assert found[0].note == (
            "sub-01 lies in 2 folders, here in A and in B, and is taken as one person; "
            "if that is wrong, give --subject-from parent or a CSV file,subject"
        )
    notes = [[note["code"] for note in entry["notes"]] for entry in check([tmp_path / "two"])["recordings"]]
    assert notes == [["subject_in_two_folders"]] * 2
    store = prepare([tmp_path / "two"], tmp_path / "store")
    assert [note.code for recording in store.recordings for note in recording.notes][::2] == ["subject_in_two_folders"]
    assert [one.subject for one in scan([tmp_path / "two"], "parent")] == ["A", "B"]


def test_one_dataset_is_one_folder_to_its_people(tmp_path):
    touch(*(tmp_path / name for name in (
        "sub-1/ses-1/eeg/sub-1_ses-1_eeg.edf", "sub-1/ses-2/eeg/sub-1_ses-2_eeg.edf", "sub-1_more.edf",
        "ses-3/sub-1_late.edf",
    )))  # fmt: skip
    assert {one.note for one in scan([tmp_path])} == {""}


def test_equal_names_in_different_folders_are_different_people(tmp_path):
    touch(
        *(tmp_path / name for name in ("p1/rest.edf", "p2/rest.edf", "p2/rest.set", "x/p1/task.edf", "y/p1/task.edf"))
    )
    found = scan([tmp_path])
    assert [one.subject for one in found] == ["p1/rest", "p2/rest", "p2/rest", "x/p1/task", "y/p1/task"]
    assert "'p1/rest' taken as a person of its own" in found[0].note
    assert [one.subject for one in scan([tmp_path / "p1", tmp_path / "p2" / "rest.set"])] == ["p1/rest", "p2/rest"]


def test_a_link_to_what_is_taken_is_left_out_aloud(tmp_path):
    touch(tmp_path / "a" / "one.edf")
    (tmp_path / "b.edf").symlink_to(tmp_path / "a" / "one.edf")
    (tmp_path / "c").symlink_to(tmp_path / "a")
    left_out: list[LeftOut] = []
    assert [one.file for one in scan([tmp_path, tmp_path / "a" / "one.edf"], left_out=left_out)] == ["a/one.edf"]
    assert left_out == [
        LeftOut("b.edf", "seen_already", "leads to a/one.edf, which is taken"),
        LeftOut("c/", "seen_already", "leads to a/, which is searched already"),
    ]


def test_a_pipe_is_no_recording(tmp_path):
    os.mkfifo(tmp_path / "pipe.edf")
    touch(tmp_path / "a.edf")
    left_out: list[LeftOut] = []
    scan([tmp_path], left_out=left_out)
    assert left_out == [LeftOut("pipe.edf", "no_file", "a pipe or a device, and no file")]
    with pytest.raises(UserError, match=r"pipe\.edf: expected a file or folder, got a pipe or a device"):
        scan([tmp_path / "pipe.edf"])


def test_one_path_is_a_list_of_one_and_what_is_no_path_is_refused(tmp_path):
    path = write_edf(tmp_path / "sub-1.edf", noise_uv(), ["Fp1", "Fp2", "C3", "C4"])
    assert [one.file for one in scan(path)] == [one.file for one in scan(str(path))] == ["sub-1.edf"]
    for wrong in (5, [5], [noise_uv()]):
        with pytest.raises(UserError, match="expected paths, or recordings as `from_array` or `from_mne` make them"):
            as_paths(wrong)

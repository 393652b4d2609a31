"""What a reading of the whole found wrong once: pieces of odd length, shuffled epochs, companions, units in memory."""

from pathlib import Path

import mne
import numpy as np
import pytest

from bothways.config import FinetuneConfig, LabelConfig, WindowConfig, load_config
from bothways.eeg import check, cut_windows, from_array, from_mne, labels_from_events, prepare, read_labels
from bothways.eeg.source import source_files
from bothways.errors import UserError
from recordings import noise_uv, write_edf

NAMES = ["Fp1", "Fp2", "C3", "C4"]


def epochs_of(data_uv: np.ndarray, samples: np.ndarray, codes: np.ndarray, sfreq_hz: float = 250.0) -> mne.EpochsArray:
    info = mne.create_info(NAMES, sfreq_hz, "eeg", verbose="error")
    events = np.column_stack([samples, np.zeros_like(samples), codes])
    with mne.utils.use_log_level("error"):
        names = {name: code for name, code in (("bckg", 1), ("seiz", 2)) if code in codes}
        return mne.EpochsArray(data_uv * 1e-6, info, events, event_id=names)


def test_a_bad_stretch_lies_where_it_was_also_after_many_pieces(tmp_path: Path) -> None:
    common = noise_uv(1, 400 * 251, seed=1, sd_uv=20.0) + noise_uv(4, 400 * 251, seed=2, sd_uv=5.0)
    data = common.reshape(4, 400, 251).swapaxes(0, 1)  # [epochs C T], 251 samples are no whole number at 200 Hz
    data[300:320, 1] *= 90
    samples = np.arange(400) * 300
    store = prepare([from_mne(epochs_of(data, samples, np.ones(400, int)))], tmp_path / "store")
    missing = np.isnan(store.read(0)[1])
    share = np.array([missing[one.start : one.stop].mean() for one in store.recordings[0].segments])
    hidden = store.recordings[0].quality["Fp2"]["bad_stretches"]
    assert hidden
    assert (share[300:320] == 1).all()
    assert share[:290].max() == share[330:].max() == 0


def test_shuffled_epochs_keep_their_labels(tmp_path: Path) -> None:
    data = noise_uv(4, 8 * 500, seed=3).reshape(4, 8, 500).swapaxes(0, 1)
    codes = np.array([1, 2, 1, 2, 2, 1, 2, 1])
    order = np.array([5, 2, 7, 0, 3, 6, 1, 4])
    straight, shuffled = (epochs_of(data[i], np.arange(8)[i] * 600, codes[i]) for i in (np.arange(8), order))
    found = []
    for name, epochs in (("a", straight), ("b", shuffled)):
        store = prepare([from_mne(epochs)], tmp_path / name)
        rules = LabelConfig(background="bckg")
        windows = cut_windows(
            store, WindowConfig(window_s=2, stride_s=2), labels_from_events(store, rules), rules=rules
        )
        found.append([windows.classes[i] for i in windows.label])
    assert found[0] == found[1] == [{1: "bckg", 2: "seiz"}[code] for code in codes.tolist()]


def test_a_unit_is_not_ignored_for_a_recording_in_memory() -> None:
    (entry,) = check([from_array(noise_uv(), NAMES, 200, unit="uV")], unit="V")["recordings"]
    assert "unit belongs to files" in entry["reason"]


def test_the_data_file_of_an_eeglab_header_is_part_of_the_source_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "rec.set").write_bytes(b"header")
    (tmp_path / "other.fdt").write_bytes(b"data")
    assert [file.name for file in source_files(tmp_path / "rec.set")] == ["other.fdt", "rec.set"]


def test_a_table_without_times_is_no_recording_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "short.csv").write_text("Cz,Pz,time\n1,2\n3,4\n")
    write_edf(tmp_path / "sub-1.edf", noise_uv(), NAMES)
    assert [entry["file"] for entry in check([tmp_path])["recordings"]] == ["sub-1.edf"]


def test_appending_with_another_unit_or_naming_of_people_is_refused(tmp_path: Path) -> None:
    path = write_edf(tmp_path / "data" / "sub-1.edf", noise_uv(), NAMES)
    prepare([path], tmp_path / "store")
    with pytest.raises(UserError, match="unit: mV, the store None"):
        prepare([path], tmp_path / "store", unit="mV", append=True)
    with pytest.raises(UserError, match="subject_from: parent, the store path"):
        prepare([path], tmp_path / "store", subject_from="parent", append=True)


def test_the_table_s_unit_is_used_where_the_file_s_cannot_be_read(tmp_path: Path) -> None:
    name = "sub-1_task-rest_eeg"
    write_edf(tmp_path / "sub-1" / "eeg" / f"{name}.edf", noise_uv(), NAMES, units="AU")
    rows = "".join(f"{channel}\tEEG\tmV\n" for channel in NAMES)
    (tmp_path / "sub-1" / "eeg" / "sub-1_task-rest_channels.tsv").write_text("name\ttype\tunits\n" + rows)
    (entry,) = check([tmp_path])["recordings"]
    assert "bids_units" in {note["code"] for note in entry["notes"]}
    assert entry["amplitude_uv"] == pytest.approx(30_000, rel=0.1)


def test_the_stride_follows_the_window_where_it_is_not_given() -> None:
    assert load_config(FinetuneConfig, changes=["windows.window_s=2"]).windows.stride_s == 2
    assert load_config(FinetuneConfig, changes=["windows.window_s=2", "windows.stride_s=1"]).windows.stride_s == 1
    assert load_config(FinetuneConfig).windows == WindowConfig()


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("onset,duration", "column 'duration': expected .*; rename it to 'duration_s', or"),
        ("Start,stop_s", "column 'start': expected .*; rename it to 'onset_s', or"),
        ("onset_s,end", "column 'end': expected 'onset_s' and 'duration_s', in seconds; write 'duration_s', or"),
    ],
)
def test_a_table_of_labels_in_other_words_is_refused_not_read_as_whole_files(
    columns: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "labels.csv").write_text(f"file,{columns},label\na.edf,0,20,x\n")
    with pytest.raises(UserError, match=said):
        read_labels(tmp_path / "labels.csv")

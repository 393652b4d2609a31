"""The numbers known for the mental arithmetic set come out of this package's control."""

import csv

import mne
import numpy as np
import pytest
from scipy.signal import welch

from bothways.evaluation import band_power, fit_logistic

WINDOW_S = 10

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def windows(shared):
    """Band power of the labelled windows and of each person's rest before them, labels, people."""
    data = shared / "data" / "eeg_mental_arithmetic"
    features, labels, people, rest = [], [], [], {}
    with (data / "recordings.csv").open() as file:
        for row in csv.DictReader(file):
            raw = mne.io.read_raw_edf(data / row["file"], preload=True, verbose="error")
            sfreq_hz = raw.info["sfreq"]
            cut = np.stack(np.split(raw.get_data() * 1e6, int(row["seconds"]) // WINDOW_S, axis=1))
            frequencies, power = welch(cut, sfreq_hz, nperseg=int(sfreq_hz))
            kept = (frequencies >= 1) & (frequencies < 45)
            bands = band_power(np.log(power[..., kept]), frequencies[kept])
            if row["label"] == "rest":  # the first 60 s are the baseline, the last 60 s are labelled
                rest[row["subject"]], bands = bands[:6].mean(0), bands[6:]
            features.append(bands)
            labels += [int(row["label"] == "task")] * len(bands)
            people += [row["subject"]] * len(bands)
    return np.concatenate(features), np.array(labels), np.array(people), np.stack([rest[name] for name in people])


def leave_one_person_out(features, labels, people) -> float:
    right = 0
    for name in np.unique(people):
        out = people == name
        scores = fit_logistic(features[~out], labels[~out], 2, c=0.01).scores(features[out])
        right += int((scores.argmax(1) == labels[out]).sum())
    return right / len(labels)


def test_band_power_without_and_with_each_persons_rest_removed(windows) -> None:
    features, labels, people, rest = windows
    assert len(labels) == 360
    assert leave_one_person_out(features, labels, people) == pytest.approx(0.71, abs=0.01)
    assert leave_one_person_out(features - rest, labels, people) == pytest.approx(0.81, abs=0.01)

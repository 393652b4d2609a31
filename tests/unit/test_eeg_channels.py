import numpy as np
import pytest

from bothways.eeg.channels import Channel, fit_sphere, parse_label, parse_labels, standard_positions, unique_names


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("Fp1", "Fp1"), ("EEG FP1-REF", "Fp1"), ("EEG FP1-LE", "Fp1"), ("EEG C3-A2", "C3"), ("C4M1", "C4"),
        ("C3:M2", "C3"), ("Fc5.", "FC5"), ("C3..", "C3"), ("T3", "T7"), ("EEG T6-Ref", "P8"), ("eeg_cz", "Cz"),
        ("POL F9", "F9"), ("Cz Ref", "Cz"), ("AFF5H", "AFF5h"), (" Oz ", "Oz"), ("EEG Fp1", "Fp1"),
        ("fz-AVG", "Fz"), ("EEGFp1", "Fp1"), ("EEGT3-REF", "T7"),
    ],
)  # fmt: skip
def test_one_name_for_one_electrode(label, name):
    assert parse_label(label) == Channel(name, name)


@pytest.mark.parametrize(
    ("label", "name", "anode", "cathode"),
    [
        ("FP1-F7", "Fp1-F7", "Fp1", "F7"), ("EEG Fpz-Cz", "Fpz-Cz", "Fpz", "Cz"), ("T8-P8-0", "T8-P8", "T8", "P8"),
        ("EEG T3 - T5", "T7-P7", "T7", "P7"), ("T8-P8_2", "T8-P8", "T8", "P8"), ("F7-T3.1", "F7-T7", "F7", "T7"),
        ("T8-P8 (2)", "T8-P8", "T8", "P8"), ("T8-P8:1", "T8-P8", "T8", "P8"), ("T8-P8#2", "T8-P8", "T8", "P8"),
        ("C3-P3", "C3-P3", "C3", "P3"), ("Fp1-AF7 2", "Fp1-AF7", "Fp1", "AF7"),
    ],
)  # fmt: skip
def test_bipolar_pairs(label, name, anode, cathode):
    assert parse_label(label) == Channel(name, anode, cathode)


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        ("ECG", "electrocardiogram"), ("EEG EKG1-REF", "electrocardiogram"), ("ECG ECG2", "electrocardiogram"),
        ("VEOGR", "eye movement"), ("EOG left", "eye movement"), ("LOC", "eye movement"), ("EMG1", "muscle"),
        ("Status", "trigger"), ("STI 014", "trigger"), ("PHOTIC-PH", "photic"), ("Resp", "respiration"),
        ("Temp rectal", "temperature"), ("SaO2 X9", "oxygen"), ("POL DC01", "auxiliary"), ("A1", "reference"),
        ("EEG A2-A1", "reference"), ("M2", "reference"), ("POL $A1", "reference"), ("IBI", "derived"),
        ("LEFT_EAR", "reference"), ("RIGHT_EAR", "reference"), ("VEO", "eye movement"), ("HEO", "eye movement"),
        ("LUE-RAE", "eye movement"), ("VNS", "auxiliary"), ("Ana1", "auxiliary"), ("GND", "ground"), ("-", "no name"),
        ("POL E", "ground"), ("E", "ground"), ("NA1", "unassigned"), ("NA12", "unassigned"),
        ("Plethysmogram", "oxygen"), ("Plet", "oxygen"), ("TRIG", "trigger"), ("Stim", "trigger"),
        ("Stimulus", "trigger"), ("Marker", "trigger"), ("Event", "trigger"), ("BDF Status", "trigger"),
        ("Status 1", "trigger"),
    ],
)  # fmt: skip
def test_what_is_no_scalp_eeg_says_why(label, reason):
    assert reason in parse_label(label).left_out


@pytest.mark.parametrize("label", ["Posição", "EEG 001", "E17", "SP1", "X1", "T1", "EEG1", "EEGE1"])
def test_a_name_without_a_place_is_kept(label):
    assert parse_label(label) == Channel(label)


def test_ears_are_no_ears_in_a_numbered_net():
    assert [c.left_out for c in parse_labels(["A1", "A2", "A3", "A4"])] == ["", "", "", ""]
    assert [bool(c.left_out) for c in parse_labels(["C3", "A1", "A2"])] == [False, True, True]


def test_e1_and_e2_are_eyes_in_sleep_and_electrodes_in_a_net():
    eyes = "eye movement, not scalp EEG"
    assert [c.left_out for c in parse_labels(["C3-M2", "E1-M2", "E2-M2", "EEG E1", "E2"])] == [
        "",
        eyes,
        eyes,
        eyes,
        eyes,
    ]
    assert [c.left_out for c in parse_labels(["E1-M2", "E1", "X1"])] == [eyes, "", ""]
    assert {c.left_out for c in parse_labels([*(f"E{n}" for n in range(1, 9)), "Cz"])} == {""}


def test_unique_names():
    assert unique_names(["a", "b", "a", "a#2"]) == (["a", "b", "a#3", "a#2"], ["a"])


def test_positions_lie_where_the_names_say():
    channels = [parse_label(name) for name in ("Cz", "T7", "T8", "Fpz", "Oz", "Fp1-F7", "X1")]
    positions = standard_positions(channels)
    assert positions.shape == (7, 2, 3)
    assert positions.dtype == np.float32
    cz, t7, t8, fpz, oz = positions[:5, 0]
    assert cz[2] > 0.9
    assert (t7[0] < -0.8, t8[0] > 0.8, fpz[1] > 0.9, oz[1] < -0.9) == (True,) * 4
    assert np.isnan(positions[:5, 1]).all()
    assert np.isfinite(positions[5]).all()
    assert np.isnan(positions[6]).all()
    assert np.abs(np.linalg.norm(positions[:5, 0], axis=1) - 1).max() < 0.16


def test_fit_sphere():
    points = np.random.default_rng(0).normal(size=(40, 3))
    points = points / np.linalg.norm(points, axis=1, keepdims=True) * 0.09 + [0.01, 0.02, 0.03]
    centre, radius = fit_sphere(points)
    np.testing.assert_allclose([*centre, radius], [0.01, 0.02, 0.03, 0.09], atol=1e-9)

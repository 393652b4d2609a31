import mne
import numpy as np
import pytest

from bothways.eeg import from_array, from_mne
from bothways.eeg.channels import electrode_positions, fit_sphere, parse_label, parse_labels, standard_positions
from recordings import noise_uv


def biosemi(n):
    return [f"{'ABCDEFGH'[i // 32]}{i % 32 + 1}" for i in range(n)]


def egi(n, *more):
    return [*(f"E{i + 1}" for i in range(n)), *more]


@pytest.mark.parametrize(
    ("names", "net"),
    [
        (egi(32, "Cz"), "GSN-HydroCel-32"), (egi(64), "GSN-HydroCel-64_1.0"), (egi(64, "VREF"), "GSN-HydroCel-65_1.0"),
        (egi(65), "GSN-HydroCel-65_1.0"), (egi(128), "GSN-HydroCel-128"), (egi(128, "Cz"), "GSN-HydroCel-129"),
        (egi(129), "GSN-HydroCel-129"), (egi(256), "GSN-HydroCel-256"), (egi(257), "GSN-HydroCel-257"),
        (egi(256, "Vertex Reference"), "GSN-HydroCel-257"),
        ([f"EEG {i + 1:03d}" for i in range(129)], "GSN-HydroCel-129"),
        ([f"EEG E{i + 1}" for i in range(128)], "GSN-HydroCel-128"), (["e001", *egi(128)[1:]], "GSN-HydroCel-128"),
        (biosemi(16), "biosemi16"), (biosemi(32), "biosemi32"), (biosemi(64), "biosemi64"),
        (biosemi(128), "biosemi128"), (biosemi(160), "biosemi160"), (biosemi(256), "biosemi256"),
        ([f"EEG {n}" for n in biosemi(64)], "biosemi64"),
        # the same names mean nothing where they are not a whole net's
        (egi(127), ""), (egi(4), ""), (biosemi(63), ""), (["A1", "A2", "C3"], ""), ([*biosemi(32), "C3"], ""),
        ([f"EEG {i + 1:03d}" for i in range(32)], ""), ([f"EEG {i + 1:03d}" for i in range(64)], ""),
        ([*egi(127), "E130"], ""), (["Fp1", "Fp2"], ""), ([str(i) for i in range(1, 129)], ""),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value[0]}-{value[-1]}-{len(value)}",
)  # fmt: skip
def test_a_net_is_known_by_names_and_count(names, net):
    positions, found = electrode_positions(parse_labels(names))
    assert found == net
    placed = np.isfinite(positions[:, 0]).all(1)
    assert placed.all() if net else not placed[[n[0] in "AE" for n in names]].any()
    if net:
        assert np.abs(np.linalg.norm(positions[:, 0], axis=1) - 1).max() < 0.3


def test_the_order_of_the_channels_does_not_matter():
    names = egi(128)
    shuffled = [names[i] for i in np.random.default_rng(0).permutation(128)]
    straight, _ = electrode_positions(parse_labels(names))
    positions, net = electrode_positions(parse_labels(shuffled))
    assert net == "GSN-HydroCel-128"
    np.testing.assert_array_equal(positions, straight[[names.index(name) for name in shuffled]])


def test_places_of_the_nets_are_the_makers():
    """BioSemi's 64-channel cap is the 10-10 system, A1 = Fp1 to B32 = O2; of EGI's 128, E62 lies at Pz, E11 at Fz."""
    positions, _ = electrode_positions(parse_labels(biosemi(64)))
    for index, name in ((0, "Fp1"), (47, "Cz"), (63, "O2"), (16, "CP5"), (32, "Fpz")):
        standard = standard_positions([parse_label(name)])[0, 0]
        assert np.linalg.norm(positions[index, 0] - standard) < 0.25, name
    net, _ = electrode_positions(parse_labels(egi(128, "Cz")))
    for index, name in ((61, "Pz"), (10, "Fz"), (128, "Cz"), (35, "C3"), (103, "C4"), (69, "O1")):
        standard = standard_positions([parse_label(name)])[0, 0]
        assert np.linalg.norm(net[index, 0] - standard) < 0.25, name


def test_the_template_is_noted_and_the_names_stay():
    recording = from_array(noise_uv(64, 400), biosemi(64), 200, unit="uV")
    assert [(note.code, note.message) for note in recording.notes] == [
        ("template_positions", "positions of 64 electrodes by their numbers in biosemi64")
    ]
    assert recording.ch_names == biosemi(64)
    ears = from_array(noise_uv(4, 400), ["C3", "C4", "A1", "A2"], 200, unit="uV")
    assert (ears.ch_names, ears.notes) == (["C3", "C4"], [])
    unknown = from_array(noise_uv(12, 400), biosemi(12), 200, unit="uV")
    assert [note.code for note in unknown.notes] == ["unknown_names"]


def test_digitised_positions_come_before_the_template():
    names = egi(64)
    info = mne.create_info(names, 200.0, "eeg")
    raw = mne.io.RawArray(noise_uv(64, 400) * 1e-6, info, verbose="error")
    template, _ = electrode_positions(parse_labels(names))
    measured = template[:, 0].astype(float) * 0.095 + np.random.default_rng(0).normal(0, 0.003, (64, 3))
    for channel, point in zip(raw.info["chs"], measured):
        channel["loc"][:3] = point
    recording = from_mne(raw)
    assert [note.code for note in recording.notes] == ["digitised_positions"]
    centre, radius = fit_sphere(measured)
    np.testing.assert_allclose(recording.positions[:, 0], (measured - centre) / radius, atol=1e-5)
    for channel, point in zip(raw.info["chs"], measured):
        channel["loc"][:3] = point[[1, 0, 2]]  # another frame
    assert [note.code for note in from_mne(raw).notes] == ["template_positions"]


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        ("AccX", "movement"), ("Accelerometer_X", "movement"), ("gyro_y", "movement"), ("MOT.Q0", "movement"),
        ("Right AUX", "auxiliary"), ("Sample Index", "auxiliary"), ("EEG.Counter", "auxiliary"), ("PPG1", "auxiliary"),
        ("EEG.Interpolated", "auxiliary"), ("EEG.Battery", "auxiliary"), ("CQ.AF3", "derived"),
        ("POW.AF3.Theta", "derived"),
        ("Delta_TP9", "derived"), ("HSI_TP9", "derived"), ("HeadBandOn", "derived"), ("Packet Counter", "auxiliary"),
    ],
)  # fmt: skip
def test_columns_of_headsets_that_are_no_scalp_eeg(label, reason):
    assert reason in parse_label(label).left_out


@pytest.mark.parametrize(
    ("label", "name"), [("EEG.AF3", "AF3"), ("RAW_TP9", "TP9"), ("EXG Channel 0", "EXG Channel 0"), ("AF7", "AF7")]
)
def test_columns_of_headsets_that_are(label, name):
    assert (parse_label(label).name, parse_label(label).left_out) == (name, "")

"""Damaged files of every format: read correctly or refused in one line, in seconds and in bounded memory."""

from collections import Counter
from pathlib import Path

import pytest

from bothways.workers import Lost, in_processes
from mutants import MAX_S, Mutant, examine, write_seeds

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc, to measure memory")


def run(seeds: list[tuple[Path, str]], numbers: range) -> Counter[str]:
    """Examines so many mutants of each seed, and fails with all that went wrong."""
    mutants = [Mutant(folder, name, number) for number in numbers for folder, name in seeds]
    outcomes: Counter[str] = Counter()
    wrong = []
    for mutant, result in in_processes(examine, mutants, 2):
        if isinstance(result, Lost):
            result = "wrong", f"{mutant}", f"{result.why}: more than {MAX_S} s, or a crash"
        outcome, how, why = result
        outcomes[outcome] += 1
        wrong += [f"{how}\n{why}"] if outcome == "wrong" else []
    assert not wrong, f"{len(wrong)} of {len(mutants)}:\n" + "\n".join(wrong)
    assert outcomes["read"] > len(mutants) / 10  # neither is everything refused
    assert outcomes["refused"] > len(mutants) / 10
    return outcomes


def test_some_mutants(tmp_path):
    run(write_seeds(tmp_path), range(3))


@pytest.mark.slow
def test_many_mutants(tmp_path, example_data):
    seeds = write_seeds(tmp_path)
    (tmp_path / "example").mkdir()
    (tmp_path / "example" / "a.edf").write_bytes((example_data / "sub-00_task.edf").read_bytes())
    run([*seeds, (tmp_path / "example", "a.edf")], range(3, 103))


FORMATS = [
    "bdf/test_bdf_stim_channel.bdf", "brainvision/test.vhdr", "edf_annotations_only/SC4001EC-Hypnogram.edf",
    "edf_duplicate_labels/duplicate_channel_labels.edf", "edf_plus_annotated/clinical_42ch.edf",
    "edf_plus_d/discontinuous_two_gaps.edf", "eeglab_set_fdt/test_raw_chanloc.set",
    "eeglab_set_hdf5/test_raw_h5.set", "egi_raw/test_egi.raw", "fif/brainvision_export_raw.fif", "gdf/test_1ch.gdf",
    "neuroscan_cnt/scan41_short.cnt", "nicolet/test_nicolet_raw.data", "nihon_kohden/MB0400FU.EEG",
]  # fmt: skip


@pytest.mark.slow
def test_many_mutants_of_other_formats(shared):
    formats = [(shared / "data" / "eeg_formats" / file).parent for file in FORMATS]
    run([(folder, file.partition("/")[2]) for folder, file in zip(formats, FORMATS)], range(20))


@pytest.mark.slow
def test_many_mutants_of_the_cases(shared, tmp_path):
    cases = [path for path in sorted((shared / "cases").iterdir()) if path.suffix in (".edf", ".bdf", ".fif")]
    for case in cases:
        (tmp_path / case.stem).mkdir()
        (tmp_path / case.stem / case.name).write_bytes(case.read_bytes())
    run([(tmp_path / case.stem, case.name) for case in cases], range(10))

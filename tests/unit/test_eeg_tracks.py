"""Labels of moments and of one event, from stretches in samples; what the heads make of them."""

from pathlib import Path

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from bothways import eeg
from bothways.config import LabelConfig, PatchConfig, WindowConfig
from bothways.eeg.tracks import moment_labels, one_event
from bothways.heads import real_moments
from models import FORMS
from recordings import noise_uv, write_edf
from stores import SFREQ_HZ, a_store, entry

TRACK = np.array([[0, 30, 0], [30, 55, 1], [55, 100, 0], [100, 102, 2], [102, 200, 0]])


def test_the_class_that_covers_half_of_a_patch() -> None:
    assert moment_labels(TRACK, 0, 6, 10).tolist() == [0, 0, 0, 1, 1, 1]  # 50-60: five samples each, the first has it
    assert moment_labels(TRACK, 2, 3, 16).tolist() == [0, 0, 1]
    assert moment_labels(TRACK[1:2], 0, 6, 10).tolist() == [-100, -100, -100, 1, 1, 1]
    assert moment_labels(TRACK[1:2], 1, 6, 10).tolist() == [-100, -100, -100, 1, 1, -100]  # 51-61: four samples


def test_an_event_shorter_than_a_patch_is_in_the_patch_that_holds_it() -> None:
    assert moment_labels(TRACK, 90, 3, 10, background=0).tolist() == [0, 2, 0]
    assert moment_labels(TRACK, 90, 3, 10).tolist() == [0, 0, 0]
    assert moment_labels(TRACK, 91, 2, 10, background=0).tolist() == [2, 2]  # a half of it in each


def test_one_event_as_a_whole() -> None:
    track = np.array([[30, 55, 1]])
    assert one_event(track, 0, 6, 10) == (4, 6)
    assert one_event(track, 30, 6, 10) == (1, 3)
    assert one_event(track, 60, 6, 10) == (0, 0)
    assert one_event(track, 55, 6, 10) == (0, 0)
    assert one_event(track, 31, 6, 10) == (-100, -100)
    assert one_event(track, 0, 5, 10) == (-100, -100)
    assert one_event(TRACK, 0, 12, 10, background=0) == (-100, -100)
    assert one_event(TRACK, 0, 9, 10, background=0) == (4, 6)


@given(
    edges=st.lists(st.integers(0, 400), min_size=2, max_size=12, unique=True).map(sorted),
    start=st.integers(0, 200), patch=st.integers(1, 40), seed=st.integers(0, 99),
)  # fmt: skip
def test_each_label_is_one_that_touches_the_patch(edges: list[int], start: int, patch: int, seed: int) -> None:
    labels = np.random.default_rng(seed).integers(0, 3, len(edges) - 1)
    track = np.array([(a, b, label) for a, b, label in zip(edges, edges[1:], labels) if label])
    track = track.reshape(-1, 3).astype(np.int64)
    line = np.full(1000, -100)
    for a, b, label in track:
        line[a:b] = label
    for i, label in enumerate(moment_labels(track, start, 8, patch)):
        piece = line[start + i * patch : start + (i + 1) * patch]
        shortest = min([b - a for a, b, other in track if other == label], default=patch)
        if label == -100:
            assert max(((piece == k).sum() for k in (1, 2)), default=0) * 2 < 2 * patch
        else:
            assert 2 * (piece == label).sum() >= min(patch, shortest)


EVENTS = [eeg.Span("sub-1.edf", 5.0, 6.0, "seizure"), eeg.Span("sub-1.edf", 13.0, 0.1, "spike")]
FOUR_S = WindowConfig(window_s=4, stride_s=4)


def cut(**rules: object) -> eeg.Windows:
    return eeg.cut_windows(a_store(entry(seconds=20)), FOUR_S, EVENTS, rules=LabelConfig(**rules), by_moment=True)


def test_windows_by_moment_lie_on_a_grid_and_keep_the_stretches() -> None:
    windows = cut(background="rest")
    assert windows.classes == ["rest", "seizure", "spike"]
    assert (windows.start / SFREQ_HZ).tolist() == [0, 4, 8, 12, 16]
    stretches = [(0, 5, 0), (5, 11, 1), (11, 13, 0), (13, 13.1, 2), (13.1, 20, 0)]
    assert windows.tracks[0].tolist() == [[round(a * SFREQ_HZ), round(b * SFREQ_HZ), k] for a, b, k in stretches]
    assert windows.label.tolist() == [0, 1, 1, 0, 0]  # the class of most of its time
    assert windows.notes == []
    assert set((windows.latest / SFREQ_HZ).tolist()) == {16}  # the labels follow a window that is shifted


def test_without_a_background_the_rest_has_no_label() -> None:
    windows = cut()
    assert windows.label.tolist() == [-1, 0, 0, 1, -1]
    assert [row[2] for row in windows.tracks[0].tolist()] == [0, 1]


def test_batches_of_moments_and_of_events(tmp_path: Path) -> None:
    write_edf(tmp_path / "data" / "sub-1.edf", noise_uv(2, 4000, seed=1), ["C3", "C4"])
    store = eeg.prepare([tmp_path / "data"], tmp_path / "store")
    windows = eeg.cut_windows(store, FOUR_S, EVENTS[:1], rules=LabelConfig(background="rest"), by_moment=True)
    options = {"background": "rest", "patches": PatchConfig(patch_s=1.0), "jitter_s": 3.0}
    source = eeg.WindowSource(store, windows, task="moment", **options)
    assert source.labels().tolist() == [[0, 0, 0, 0], [0, 1, 1, 1], [1, 1, 1, 0], [0] * 4, [0] * 4]
    ids, epoch = np.arange(5), np.full(5, 7)
    shifted = source.batch(ids, epoch)
    assert shifted["position_labels"][:, 0].tolist() == [-100] * 5
    starts = [source._start(i, 7) / SFREQ_HZ for i in range(5)]
    assert starts != [0, 4, 8, 12, 16]
    for start, labels in zip(starts, shifted["position_labels"][:, 1:].tolist()):
        inside = [min(start + i + 1, 11) - max(start + i, 5) for i in range(4)]
        assert labels == [int(seconds > 0.5) for seconds in inside]
    source = eeg.WindowSource(store, windows, PatchConfig(patch_s=1.0), task="event", background="rest")
    assert source.labels().tolist() == [[0, 0], [-100, -100], [-100, -100], [0, 0], [0, 0]]
    assert source.batch(ids)["span_labels"].tolist() == source.labels().tolist()


def test_the_electrodes_of_a_moment_are_averaged() -> None:
    """The scores of a moment are those of the mean of its positions; padding and missing patches play no part."""
    form = FORMS["eeg_moments"]
    model, batch = form.build(0).double().eval(), form.batch(0)
    output = model(batch)
    hidden = torch.full(output.embedded.hidden.shape, torch.nan, dtype=torch.float64)
    hidden[output.rows.selected] = output.rows.values
    patch_mask = batch["patch_mask"]  # [B C N]
    of_patches = hidden[:, 1:].unflatten(1, patch_mask.shape[1:])  # [B C N D]
    means = torch.stack([of_patches[b, patch_mask[b, :, n], n].mean(0) for b in range(2) for n in range(6)])
    means = torch.cat([hidden[:, :1], means.view(2, 6, -1)], 1)  # [B M D]
    linear = model.heads["position"].linear
    torch.testing.assert_close(output.predictions["position"], linear(means).flatten(0, 1))
    torch.testing.assert_close(output.predictions["span"], model.heads["span"].linear(means).transpose(1, 2))


def test_a_moment_without_a_real_patch_has_no_score() -> None:
    form = FORMS["eeg_moments"]
    model, batch = form.build(0).eval(), form.batch(0)
    batch["patch_mask"][0, :, 4] = False
    output = model(batch)
    assert real_moments(output.embedded).tolist() == [[True] * 5 + [False] + [True], [True] * 7]
    assert output.predictions["position"].shape == (13, 3)
    assert output.predictions["span"][0, :, 5].tolist() == [-torch.inf] * 2
    assert output.losses["position"].sum.isfinite()

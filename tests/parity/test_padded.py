"""The graph that is exported, and the model's own pass without padding, in float64."""

import numpy as np
import pytest
import torch

from bothways.config import HeadConfig
from bothways.errors import UserError
from bothways.padded import Padded, input_names, own_outputs, predicting
from bothways.training import class_probabilities, moment_probabilities, number_values, span_probabilities
from graphs import GRAPHS, NUMBER, batch_of, build
from models import FORMS, SEQUENCE

OUTPUTS = {
    "text words and next sentence": ["logits", "next_sentence_logits"],
    "text number": ["standardised", "value"],
    "text answers, fast": ["start_logits", "end_logits", "start_probabilities", "end_probabilities"],
    "text vectors": ["cls", "mean"],
    "eeg vectors": ["cls", "mean"],
}
KINDS = {
    "class": (class_probabilities, "probabilities"),
    "number": (number_values, "value"),
    "moments": (moment_probabilities, "probabilities"),
}


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("name", GRAPHS)
def test_the_graph_is_the_model(name: str, vectors: bool) -> None:
    form = GRAPHS[name]
    model, batch = build(form).double(), batch_of(form)
    batch = {key: one.double() if one.is_floating_point() else one for key, one in batch.items()}
    if "attention_mask" in batch:
        batch["attention_mask"] = batch["attention_mask"].long()  # as a file has it
    padded = Padded(model, vectors=vectors)
    found, wanted = (
        padded.outputs({key: batch[key] for key in padded.inputs}),
        own_outputs(model, batch, vectors=vectors),
    )
    assert list(found) == list(wanted)
    if vectors or name in OUTPUTS:
        assert list(found) == (["cls", "mean"] if vectors else OUTPUTS[name])
    for key, one in wanted.items():
        size = one[one.isfinite()].abs().max()
        np.testing.assert_allclose(found[key].detach(), one, rtol=0, atol=1e-12 * float(size), err_msg=key)


@pytest.mark.parametrize("name", [name for name in GRAPHS if name.split()[1].strip(",") in KINDS])
def test_outputs_are_what_the_commands_read(name: str) -> None:
    read, output = KINDS[name.split()[1].strip(",")]
    model, batch = build(GRAPHS[name]), batch_of(GRAPHS[name])
    found = Padded(model).outputs(batch)[output]
    np.testing.assert_allclose(found.detach(), read(model, batch).detach(), rtol=2e-5, atol=2e-6)


def test_a_moment_of_which_nothing_is_seen_is_nan_and_padding_no_end() -> None:
    for name in ("eeg moments", "eeg moments, all channels"):
        moments = Padded(build(GRAPHS[name])).outputs(batch_of(GRAPHS[name]))["probabilities"]
        assert moments.isnan().any(2).nonzero().tolist() == [[1, 4]]
    events = Padded(build(GRAPHS["eeg events"])).outputs(batch_of(GRAPHS["eeg events"]))
    assert (events["start_logits"] == -torch.inf).nonzero().tolist() == [[1, 5]]  # [CLS] is the first
    wanted = span_probabilities(build(GRAPHS["eeg events"]), batch_of(GRAPHS["eeg events"]))
    np.testing.assert_allclose(events["end_probabilities"].detach(), wanted[:, 1].detach(), atol=1e-6)


def test_inputs_are_those_that_the_model_reads() -> None:
    names = {name: input_names(form.config) for name, form in GRAPHS.items()}
    assert names["text class, no segments, no norm"] == ("input_ids", "attention_mask")
    assert names["text tags"] == ("input_ids", "attention_mask", "token_type_ids")
    assert names["eeg several, samples"] == ("signals", "patch_mask")
    assert names["eeg class, all channels, mean"] == ("signals", "log_scale_uv", "patch_mask", "baseline")
    assert names["eeg events"] == ("signals", "log_scale_uv", "positions", "patch_mask")


def test_one_head_for_labels() -> None:
    config = FORMS["bert"].config
    both: dict[str, HeadConfig] = {**config.heads, "sequence": SEQUENCE}
    assert predicting(config) == ("mlm", "nsp")
    assert predicting(config.model_copy(update={"heads": both})) == ("sequence",)
    with pytest.raises(UserError, match="one head for labels, got sequence, number; tell its vectors instead"):
        predicting(config.model_copy(update={"heads": {"sequence": SEQUENCE, "number": NUMBER}}))


def test_the_mean_of_text_is_that_of_embed() -> None:
    """Of all tokens, [CLS] and [SEP] among them; see tests of `text.embed` for sentence-transformers' way."""
    form = GRAPHS["text vectors"]
    model, batch = build(form), batch_of(form)
    found = Padded(model).outputs(batch)["mean"]
    hidden = model.encoder(model.embedding(batch).hidden[1:2, :6]).values  # six tokens without padding
    np.testing.assert_allclose(found[1].detach(), hidden.mean(0).detach(), atol=1e-5)


def test_the_mean_of_eeg_is_that_of_features() -> None:
    model, batch = build(GRAPHS["eeg vectors"]), batch_of(GRAPHS["eeg vectors"])
    found = Padded(model).outputs(batch)
    np.testing.assert_allclose(found["mean"].detach(), model.features(batch, "mean").detach(), atol=1e-5)
    np.testing.assert_allclose(found["cls"].detach(), model.features(batch).detach(), atol=1e-5)


@pytest.mark.parametrize("name", [name for name in GRAPHS if name.startswith("eeg")])
def test_a_window_of_which_nothing_is_real(name: str) -> None:
    model, batch = build(GRAPHS[name]), batch_of(GRAPHS[name])
    batch["patch_mask"][0] = False
    found = Padded(model).outputs(batch)
    for key, one in own_outputs(model, batch).items():
        np.testing.assert_allclose(found[key].detach(), one, rtol=1e-5, atol=1e-5, err_msg=key)

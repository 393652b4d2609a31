"""Ours equals transformers' BERT on the same random tiny weights, in float64, padded batches too."""

import pytest
import torch
from transformers import BertConfig, BertForPreTraining, BertModel

from bothways.config import EncoderConfig, HeadConfig, ModelConfig, TextConfig
from bothways.model import Model, load_weights
from bothways.text import TokenEmbedding, from_transformers, to_transformers

ENCODER = EncoderConfig(
    hidden_size=24,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=40,
    norm="post",
    final_norm=False,
    layer_norm_eps=1e-12,
)
TEXT = TextConfig(vocab_size=50, max_position_embeddings=20)
REFERENCE = BertConfig(
    vocab_size=50,
    hidden_size=24,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=40,
    max_position_embeddings=20,
    attn_implementation="eager",
)


def ours(heads: dict[str, HeadConfig]) -> Model:
    config = ModelConfig(encoder=ENCODER, text=TEXT, pooler=True, heads=heads)
    return Model(config, TokenEmbedding(config)).double().eval()


def redraw(model: torch.nn.Module, seed: int) -> None:
    """Biases and norms of a fresh model are 0 and 1, and would hide a mix-up."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)


def batch() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, 50, (3, 11), generator=generator)
    mask = torch.ones(3, 11, dtype=torch.long)
    mask[1, 7:] = 0
    mask[2, 2:] = 0
    segments = (torch.arange(11) > 4).long().expand(3, -1)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}


@pytest.mark.parametrize("padded", [True, False])
def test_hidden_states_and_pooler_equal_bert_model(padded: bool) -> None:
    reference = BertModel(REFERENCE).double().eval()
    redraw(reference, 0)
    model = ours({})
    report = load_weights(model, from_transformers(reference.state_dict(), model.state_dict()))
    assert report.body_share == 1.0
    assert report.missing == []
    inputs = batch()
    if not padded:
        inputs["attention_mask"] = torch.ones_like(inputs["attention_mask"])
    with torch.no_grad():
        expected = reference(**inputs)
        embedded = model.embedding(inputs)
        rows = model.encoder(embedded.hidden, embedded.attention_mask)
        pooled = model.pooler(rows.cls())
    real = inputs["attention_mask"].bool()
    assert (embedded.attention_mask is not None) is padded
    torch.testing.assert_close(rows.values, expected.last_hidden_state[real], rtol=0, atol=1e-10)
    torch.testing.assert_close(pooled, expected.pooler_output, rtol=0, atol=1e-10)


def test_losses_and_gradients_equal_bert_for_pretraining() -> None:
    reference = BertForPreTraining(REFERENCE).double().eval()
    redraw(reference, 2)
    model = ours({"mlm": HeadConfig(kind="mlm"), "nsp": HeadConfig(kind="nsp")})
    report = load_weights(model, from_transformers(reference.state_dict(), model.state_dict()))
    assert report.missing == []
    # The decoder is tied: transformers names it twice, and what is left over is that second name alone.
    assert set(report.unexpected) <= {
        "cls.predictions.decoder.weight",
        "cls.predictions.decoder.bias",
        "bert.embeddings.position_ids",
    }
    inputs = batch()
    labels = torch.full((3, 11), -100)
    labels[0, [2, 5]] = torch.tensor([7, 49])
    labels[1, 3] = 0
    next_labels = torch.tensor([0, 1, 1])
    expected = reference(**inputs, labels=labels, next_sentence_label=next_labels)
    output = model({**inputs, "mlm_labels": labels, "nsp_labels": next_labels})
    loss = model.loss(output.losses)
    torch.testing.assert_close(loss, expected.loss, rtol=0, atol=1e-10)
    torch.testing.assert_close(
        output.predictions["mlm"], expected.prediction_logits[labels != -100], rtol=0, atol=1e-10
    )
    torch.testing.assert_close(output.predictions["nsp"], expected.seq_relationship_logits, rtol=0, atol=1e-10)
    loss.backward()
    expected.loss.backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    theirs = {name: p.grad for name, p in reference.named_parameters()}
    for name, gradient in to_transformers(gradients).items():
        torch.testing.assert_close(gradient, theirs[name], rtol=0, atol=1e-10)


def test_parameter_count_of_bert_base_pretraining() -> None:
    with torch.device("meta"):
        reference = BertForPreTraining(BertConfig())
        encoder = EncoderConfig(
            hidden_size=768,
            num_hidden_layers=12,
            num_attention_heads=12,
            intermediate_size=3072,
            norm="post",
            final_norm=False,
        )
        heads = {"mlm": HeadConfig(kind="mlm"), "nsp": HeadConfig(kind="nsp")}
        config = ModelConfig(encoder=encoder, text=TextConfig(), pooler=True, heads=heads)
        model = Model(config, TokenEmbedding(config))
    counted = sum(p.numel() for p in model.parameters())
    assert counted == sum(p.numel() for p in reference.parameters())
    without_heads = sum(p.numel() for name, p in model.named_parameters() if not name.startswith("heads."))
    assert without_heads == 109_482_240
    body = sum(p.numel() for n, p in model.named_parameters() if n.startswith(("embedding.word", "encoder.")))
    assert body == 108_495_360


def test_weights_survive_the_way_there_and_back() -> None:
    model = ours({"mlm": HeadConfig(kind="mlm"), "nsp": HeadConfig(kind="nsp")})
    redraw(model, 3)
    own = model.state_dict()
    back = from_transformers(to_transformers(own), own)
    assert back.keys() == own.keys()
    assert all(torch.equal(back[name], own[name]) for name in own)

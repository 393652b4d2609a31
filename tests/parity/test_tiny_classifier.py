"""The second reference's classifier is one form of our model: 28,994 parameters and its loss trace."""

import torch

from bothways.config import EncoderConfig, HeadConfig, ModelConfig, TextConfig
from bothways.model import Model
from bothways.text import TokenEmbedding
from reference_draws import classifier, data


def tiny_classifier() -> Model:
    encoder = EncoderConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        norm="pre",
        final_norm=False,
        layer_norm_eps=1e-5,
        qkv_bias=False,
        hidden_dropout_prob=0.0,
    )
    text = TextConfig(vocab_size=100, max_position_embeddings=16, type_vocab_size=0, norm=False, pad_token_id=None)
    heads = {"sequence": HeadConfig(kind="sequence", classes=("0", "1"))}
    config = ModelConfig(encoder=encoder, text=text, heads=heads)
    return Model(config, TokenEmbedding(config))


def test_parameters_by_component() -> None:
    model = tiny_classifier()

    def count(prefix: str) -> int:
        return sum(p.numel() for name, p in model.named_parameters() if name.startswith(prefix))

    assert count("embedding.word") == 3_200
    assert count("embedding.position") == 512
    assert count("encoder") == 25_216
    assert count("heads") == 66
    assert count("") == 28_994


def test_loss_trace() -> None:
    model = tiny_classifier()
    weights = classifier()
    assert weights.keys() == model.state_dict().keys()
    model.load_state_dict(weights)
    ids, labels = data().values()
    assert model({"input_ids": ids[:3], "labels": labels[:3]}).predictions["sequence"].shape == (3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    trace = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = model.loss(model({"input_ids": ids, "labels": labels}).losses)
        loss.backward()
        optimizer.step()
        trace.append(f"{loss.item():.4f}")
    assert [trace[epoch] for epoch in (0, 9, 19, 29)] == ["0.7904", "0.5772", "0.4014", "0.1703"]

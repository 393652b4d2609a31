"""BERT weights as people have them (cases B73 to B75): tied, stored twice, without prefix, with the old names."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from bothways.config import EncoderConfig, HeadConfig, ModelConfig, TextConfig
from bothways.errors import UserError
from bothways.model import LoadReport, Model, load_weights
from bothways.text import TokenEmbedding, from_transformers

CASES = {
    "b73_tied": set(),
    "b73_tied_stored_twice": {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"},
    "b74_no_prefix": set(),
    "b74_with_prefix": set(),
    "b75_gamma_beta": set(),
}


def load(folder: Path, weights: dict[str, torch.Tensor] | None = None) -> tuple[Model, LoadReport]:
    values = json.loads((folder / "config.json").read_text())
    text = {name: values[name] for name in TextConfig.model_fields if name in values}
    encoder = {name: values[name] for name in EncoderConfig.model_fields if name in values}
    config = ModelConfig(
        encoder=EncoderConfig(**encoder, norm="post", final_norm=False),
        text=TextConfig(**text),
        pooler=True,
        heads={"mlm": HeadConfig(kind="mlm"), "nsp": HeadConfig(kind="nsp")},
    )
    model = Model(config, TokenEmbedding(config)).eval()
    model.initialise(0)
    found = from_transformers(weights or load_file(folder / "model.safetensors"), model.state_dict())
    return model, load_weights(model, found)


def expected_of(cases: Path, name: str) -> dict[str, Any]:
    listed = json.loads((cases / "manifest.json").read_text())["cases"]
    (expected,) = [case["expect"] for case in listed if case.get("file") == f"text/{name}/model.safetensors"]
    return expected


@pytest.mark.parametrize(("name", "unexpected"), CASES.items(), ids=CASES)
def test_checkpoints_of_others(shared: Path, name: str, unexpected: set[str]) -> None:
    cases = shared / "cases"
    expected = expected_of(cases, name)
    model, report = load(cases / "text" / name)
    assert report.body_share == 1.0
    assert set(report.unexpected) == unexpected
    encoder_alone = name.startswith("b74")
    assert bool(report.missing) is encoder_alone
    assert all(missing.startswith("heads.") for missing in report.missing)
    batch = {"input_ids": torch.tensor([expected["input_ids"]])}
    tolerance = {"rtol": 0.0, "atol": expected["tol"]}
    with torch.no_grad():
        output = model(batch, with_losses=False)
        hidden, pooled = output.rows.cls()[0], model.pooler(output.rows.cls())[0]
    torch.testing.assert_close(hidden[:4], torch.tensor(expected["hidden_first_token"]), **tolerance)
    torch.testing.assert_close(pooled[:4], torch.tensor(expected["pooled"]), **tolerance)
    if not encoder_alone:
        assert output.predictions["mlm"].argmax(1).tolist() == expected["mlm_argmax"]
        torch.testing.assert_close(output.predictions["nsp"][0], torch.tensor(expected["nsp"]), **tolerance)


def test_weights_of_which_none_matches_are_refused(shared: Path) -> None:
    with pytest.raises(UserError, match=r"got gpt\.wte\.weight; restore the weights"):
        load(shared / "cases" / "text" / "b74_no_prefix", {"gpt.wte.weight": torch.ones(2, 2)})


def test_only_a_layer_norms_gamma_is_renamed() -> None:
    weights = {"vision.gamma": torch.ones(1), "x.LayerNorm.gamma": torch.ones(1), "x.LayerNorm.beta": torch.ones(1)}
    assert list(from_transformers(weights, {})) == ["vision.gamma", "x.LayerNorm.weight", "x.LayerNorm.bias"]

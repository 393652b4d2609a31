"""The PyTorch encoder computes the EEG walkthrough: every matrix of tests/golden/eeg_walkthrough.json, in float64."""

import json
from pathlib import Path

import numpy as np
import torch

from bothways.config import EncoderConfig, HeadConfig, ModelConfig, PatchConfig, SignalConfig
from bothways.eeg.patches import build_embedding
from bothways.inspection import trace
from bothways.masking import Action
from bothways.model import Model, Output

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "eeg_walkthrough.json"


def walkthrough_model(golden: dict[str, np.ndarray]) -> Model:
    encoder = EncoderConfig(
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        hidden_act="relu",
        norm="post",
        final_norm=False,
        layer_norm_eps=1e-5,
        qkv_bias=False,
        linear_bias=False,
        hidden_dropout_prob=0.0,
    )
    patches = PatchConfig(
        tokens="all_channels", ch_names=("Fp1", "Fp2"), patch_s=0.125, features=("samples",), positions="sinusoidal"
    )
    heads = {
        "reconstruction": HeadConfig(kind="reconstruction", features={"samples": 16}, loss="mse"),
        "sequence": HeadConfig(kind="sequence", classes=("seizure",)),
    }
    signal = SignalConfig(sfreq_hz=64.0, band_hz=(0.5, 30.0))
    config = ModelConfig(encoder=encoder, patches=patches, signal=signal, heads=heads)
    model = Model(config, build_embedding(config)).double().eval()
    own = model.state_dict()
    weights = {name: torch.zeros_like(tensor) for name, tensor in own.items()}
    layer = "encoder.layers.0."
    weights |= {
        "embedding.patch.weight": golden["W_e"].T,
        "embedding.cls": golden["cls"],
        "embedding.mask": golden["mask"],
        layer + "attention.qkv.weight": np.hstack([golden["W_q"], golden["W_k"], golden["W_v"]]).T,
        layer + "attention.output.weight": golden["W_o"].T,
        layer + "norm_1.weight": np.ones(8),
        layer + "norm_2.weight": np.ones(8),
        layer + "feed_forward.up.weight": golden["W_1"].T,
        layer + "feed_forward.down.weight": golden["W_2"].T,
        "heads.reconstruction.linear.weight": golden["W_r"].T,
        "heads.sequence.linear.weight": golden["w_c"][None],
    }
    model.load_state_dict({name: torch.as_tensor(np.asarray(value)) for name, value in weights.items()})
    return model


def walkthrough_batch(golden: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    masked = torch.zeros(1, 1, 8, dtype=torch.bool)
    masked[0, 0, torch.as_tensor(golden["masked_positions"]) - 1] = True  # 0 is [CLS] there
    return {
        "signals": torch.as_tensor(golden["eeg"])[None],
        "log_scale_uv": torch.zeros(1, 2, dtype=torch.float64),
        "positions": torch.full((1, 2, 2, 3), torch.nan, dtype=torch.float64),
        "patch_mask": torch.ones(1, 2, 8, dtype=torch.bool),
        "masked": masked,
        "action": masked * int(Action.MASK),
        "replacement": torch.arange(8).expand(1, 1, 8),
        "labels": torch.tensor([-100]),
    }


TAPS = {
    "embedding.patches": "patches",
    "embedding.E_patch": "E_patch",
    "embedding.Z0": "Z0",
    "embedding.Z": "Z",
    "encoder.layers.0.attention.Q": "Q",
    "encoder.layers.0.attention.K": "K",
    "encoder.layers.0.attention.V": "V",
    "encoder.layers.0.attention.raw_scores": "raw_scores",
    "encoder.layers.0.attention.scaled_scores": "scaled_scores",
    "encoder.layers.0.attention.attention": "attention",
    "encoder.layers.0.attention.head_outputs": "head_outputs",
    "encoder.layers.0.attention.concat": "concat",
    "encoder.layers.0.attention_output": "attention_output",
    "encoder.layers.0.residual_1": "residual_1",
    "encoder.layers.0.Z1": "Z1",
    "encoder.layers.0.feed_forward.pre_activation": "pre_relu",
    "encoder.layers.0.feed_forward.post_activation": "post_relu",
    "encoder.layers.0.ffn_output": "ffn_output",
    "encoder.layers.0.output": "H",
}


def load() -> dict[str, np.ndarray]:
    return {k: np.array(v) for k, v in json.loads(GOLDEN.read_text()).items()}


def test_the_golden_file_is_the_original(shared: Path) -> None:
    assert GOLDEN.read_bytes() == (shared / "golden" / "eeg_walkthrough.json").read_bytes()


def test_every_matrix_of_the_walkthrough() -> None:
    golden = load()
    model = walkthrough_model(golden)
    with torch.no_grad(), trace(model, TAPS) as seen:
        embedded = model.embedding(walkthrough_batch(golden))
        rows = model.encoder(embedded.hidden)  # all rows, so that every tap holds all of them
    for path, name in TAPS.items():
        np.testing.assert_allclose(seen[path].squeeze(0).numpy(), golden[name], rtol=0, atol=1e-10, err_msg=name)
    np.testing.assert_allclose(rows.values.numpy(), golden["H"], rtol=0, atol=1e-10)
    np.testing.assert_allclose(embedded.place[0].numpy(), golden["PE"], rtol=0, atol=1e-10)
    np.testing.assert_allclose(embedded.targets["samples"].numpy(), golden["targets"], rtol=0, atol=1e-10)
    assert int((seen["encoder.layers.0.feed_forward.post_activation"] == 0).sum()) == golden["relu_zeroed"] == 61


def test_loss_and_probability_as_printed() -> None:
    golden = load()
    model = walkthrough_model(golden)
    with torch.no_grad():
        output: Output = model(walkthrough_batch(golden))
    masked = golden["masked_positions"] - 1
    reconstruction = output.predictions["reconstruction"].numpy()
    np.testing.assert_allclose(reconstruction, golden["reconstruction"][masked], rtol=0, atol=1e-10)
    assert f"{output.losses['reconstruction'].mean():.6f}" == "1.355886"
    assert f"{output.predictions['sequence'].sigmoid().item():.6f}" == "0.613727"
    assert output.losses["sequence"].mean() == 0  # unlabelled

"""Every form that a model can take, tiny, with a batch for each; the contract tests run over all of them."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bothways.config import EncoderConfig, HeadConfig, ModelConfig, PatchConfig, SignalConfig, TextConfig
from bothways.eeg import build_embedding
from bothways.masking import Action
from bothways.model import Model
from bothways.text import TokenEmbedding

ENCODER = EncoderConfig(
    hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, hidden_dropout_prob=0.0
)
BERT = ENCODER.model_copy(update={"norm": "post", "final_norm": False})
WALKTHROUGH = BERT.model_copy(update={"hidden_act": "relu", "qkv_bias": False, "linear_bias": False})
CLASSIFIER = ENCODER.model_copy(update={"final_norm": False, "qkv_bias": False})
SIGNAL = SignalConfig(sfreq_hz=64.0, band_hz=(0.5, 30.0))
SPECTRUM_HZ = (2.0, 20.0)
TEXT = TextConfig(vocab_size=40, max_position_embeddings=12)
CLASSES = ("a", "b", "c")
SEQUENCE = HeadConfig(kind="sequence", classes=CLASSES, class_weights=(0.5, 1.0, 2.0))


@dataclass(frozen=True)
class Form:
    """A model's config, and whether it reads EEG."""

    config: ModelConfig

    @property
    def eeg(self) -> bool:
        """Whether the front end is EEG's."""
        return self.config.patches is not None

    def build(self, seed: int = 0) -> Model:
        """Makes the model with weights of this seed."""
        model = Model(self.config, embedding_of(self.config))
        model.initialise(seed)
        return model

    def batch(self, seed: int = 0) -> dict[str, Tensor]:
        """Makes a batch in which every part of the model has something to do."""
        return eeg_batch(self.config, seed) if self.eeg else text_batch(seed)


def embedding_of(config: ModelConfig) -> nn.Module:
    return TokenEmbedding(config) if config.text else build_embedding(config)


def _eeg(encoder: EncoderConfig, patches: PatchConfig, **heads: HeadConfig) -> Form:
    bare = ModelConfig(encoder=encoder, patches=patches, signal=SIGNAL)
    targets = build_embedding(bare).targets
    filled = {
        name: head.model_copy(update={"features": targets}) if "reconstruction" in head.kind else head
        for name, head in heads.items()
    }
    return Form(bare.model_copy(update={"heads": filled}))


def _text(encoder: EncoderConfig, text: TextConfig, pooler: bool = False, **heads: HeadConfig) -> Form:
    return Form(ModelConfig(encoder=encoder, text=text, pooler=pooler, heads=heads))


RECONSTRUCTION = {
    "reconstruction": HeadConfig(kind="reconstruction"),
    "cls_reconstruction": HeadConfig(kind="cls_reconstruction", weight=0.5),
}
CHANNELS = ("Fp1", "Fp2", "C3", "O1")
FORMS: dict[str, Form] = {
    "eeg_channels": _eeg(
        ENCODER,
        PatchConfig(patch_s=0.5, spectrum_hz=SPECTRUM_HZ, positions="learned", baseline=True, max_patches=8),
        **RECONSTRUCTION,
        sequence=SEQUENCE,
    ),
    "eeg_all_channels": _eeg(
        ENCODER.model_copy(update={"gated": True, "hidden_act": "silu"}),
        PatchConfig(patch_s=0.5, spectrum_hz=SPECTRUM_HZ, tokens="all_channels", ch_names=CHANNELS, baseline=True),
        **RECONSTRUCTION,
        sequence=SEQUENCE.model_copy(update={"pool": "mean"}),
    ),
    "eeg_moments": _eeg(
        ENCODER,
        PatchConfig(patch_s=0.5, spectrum_hz=SPECTRUM_HZ),
        position=HeadConfig(kind="position", classes=CLASSES, class_weights=(0.5, 1.0, 2.0)),
        span=HeadConfig(kind="span"),
    ),
    "eeg_attention_pool": _eeg(
        ENCODER,
        PatchConfig(patch_s=0.5, spectrum_hz=SPECTRUM_HZ),
        **RECONSTRUCTION,
        sequence=SEQUENCE.model_copy(update={"pool": "attention"}),
    ),
    "walkthrough": _eeg(
        WALKTHROUGH,
        PatchConfig(patch_s=0.5, tokens="all_channels", ch_names=CHANNELS, features=("samples",)),
        reconstruction=HeadConfig(kind="reconstruction", loss="mse"),
        sequence=HeadConfig(kind="sequence", classes=CLASSES),
    ),
    "tiny_classifier": _text(
        CLASSIFIER,
        TextConfig(vocab_size=40, max_position_embeddings=12, type_vocab_size=0, norm=False, pad_token_id=None),
        sequence=HeadConfig(kind="sequence", classes=CLASSES),
    ),
    "bert": _text(BERT, TEXT, pooler=True, mlm=HeadConfig(kind="mlm"), nsp=HeadConfig(kind="nsp")),
    "text_attention_pool": _text(BERT, TEXT, sequence=SEQUENCE.model_copy(update={"pool": "attention"})),
    "text_tasks": _text(
        BERT,
        TEXT,
        pooler=True,
        sequence=SEQUENCE,
        position=HeadConfig(kind="position", classes=CLASSES),
        span=HeadConfig(kind="span"),
    ),
}


def text_batch(seed: int = 0) -> dict[str, Tensor]:
    """Three sequences, two of them padded, with labels of every kind."""
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, 40, (3, 9), generator=draw)
    real = torch.arange(9) < torch.tensor([9, 6, 4])[:, None]
    mlm = torch.full((3, 9), -100)
    mlm[0, [2, 7]], mlm[1, 3] = torch.tensor([7, 39]), 1
    return {
        "input_ids": ids * real,
        "attention_mask": real,
        "token_type_ids": (torch.arange(9) > 2).long().expand(3, -1),
        "mlm_labels": mlm,
        "nsp_labels": torch.tensor([0, 1, 1]),
        "labels": torch.tensor([0, 1, 2]),
        "position_labels": torch.randint(0, 3, (3, 9), generator=draw).masked_fill(~real, -100),
        "span_labels": torch.tensor([[2, 4], [1, 1], [0, 0]]),
    }


def eeg_batch(config: ModelConfig, seed: int = 0, n_channels: int = 4) -> dict[str, Tensor]:
    """Two windows of six patches, some missing; channel 1 is at an unknown place, channel 2 a bipolar pair."""
    draw = torch.Generator().manual_seed(seed)
    patches = config.patches
    assert patches is not None
    size = round(patches.patch_s * SIGNAL.sfreq_hz)
    positions = torch.full((2, n_channels, 2, 3), torch.nan)
    positions[:, :, 0] = torch.randn(2, n_channels, 3, generator=draw).clamp(-1, 1)
    positions[:, 1, 0] = torch.nan
    positions[:, 2, 1] = torch.tensor([0.5, -0.2, 0.1])
    real = torch.ones(2, n_channels, 6, dtype=torch.bool)
    real[0, 0, 2] = False
    real[1, 3] = False
    groups = (2, 1, 6) if patches.tokens == "all_channels" else (2, n_channels, 6)
    n_tokens = groups[1] * 6
    masked = torch.rand(groups, generator=draw) < 0.5
    masked[:, 0, 0] = True
    action = torch.randint(1, 4, groups, generator=draw)
    action[:, 0, 0] = int(Action.MASK)
    available = real.any(1, keepdim=True) if patches.tokens == "all_channels" else real
    masked &= available
    batch = {
        "signals": torch.randn(2, n_channels, 6 * size, generator=draw),
        "log_scale_uv": torch.rand(2, n_channels, generator=draw) + 0.5,
        "positions": positions,
        "patch_mask": real,
        "masked": masked,
        "action": (action * masked).to(torch.uint8),
        "replacement": torch.randint(0, n_tokens, groups, generator=draw),
        "labels": torch.tensor([1, 2]),
        "position_labels": torch.tensor([[-100, 0, 2, -100, 1, 1, 0], [-100, 1, 1, 2, 0, 0, -100]]),
        "span_labels": torch.tensor([[2, 4], [0, 0]]),
    }
    if patches.baseline:
        n_bins = round((SPECTRUM_HZ[1] - SPECTRUM_HZ[0]) * patches.patch_s) + 1
        batch["baseline"] = torch.randn(2, n_channels, n_bins, generator=draw)
    return batch

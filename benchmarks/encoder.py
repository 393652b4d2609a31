"""How much of the machine's matrix-product rate an encoder's training step reaches."""

import statistics
from collections.abc import Callable

import numpy as np
import torch
from timing import Figure, Figures, paired_seconds
from torch import nn

from bothways.config import (
    ENCODER_SIZES,
    EncoderConfig,
    HeadConfig,
    MaskingConfig,
    ModelConfig,
    PatchConfig,
    SignalConfig,
)
from bothways.draws import generator
from bothways.eeg import build_embedding
from bothways.encoder import Encoder
from bothways.masking import actions, block_positions, neighbours
from bothways.model import Model

N_CHANNELS, N_PATCHES, BATCH = 19, 10, 16
LENGTH = 1 + N_CHANNELS * N_PATCHES


def products(config: EncoderConfig) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Returns the shapes of all matrix products of one training step: forward, and twice that backward."""
    tokens, size, inner = BATCH * LENGTH, config.hidden_size, config.intermediate_size
    heads, head_size = BATCH * config.num_attention_heads, size // config.num_attention_heads
    linear = [(size, 3 * size), (size, size), (size, inner), (inner, size)]
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for n_in, n_out in linear:
        shapes += [((tokens, n_in), (n_in, n_out)), ((tokens, n_out), (n_out, n_in)), ((n_in, tokens), (tokens, n_out))]
    scores = ((heads, LENGTH, head_size), (heads, head_size, LENGTH))
    values = ((heads, LENGTH, LENGTH), (heads, LENGTH, head_size))
    # Backward of each: one product of either form, and one more of its transpose.
    shapes += [scores, values, scores, values, values, values]
    return shapes * config.num_hidden_layers


def encoder_step(config: EncoderConfig) -> Callable[[], None]:
    """Returns a function that does one training step of the encoder alone on full-length windows."""
    torch.manual_seed(0)
    encoder = Encoder(config).train()
    optimizer = torch.optim.AdamW(encoder.parameters(), fused=True)
    hidden = torch.randn(BATCH, LENGTH, config.hidden_size, requires_grad=True)

    def step() -> None:
        encoder(hidden).values.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def pretraining_model(encoder: EncoderConfig) -> Model:
    """Returns a model with default patches and both decoders."""
    config = ModelConfig(encoder=encoder, patches=PatchConfig(), signal=SignalConfig())
    embedding = build_embedding(config)
    heads = {
        kind: HeadConfig(kind=kind, features=embedding.targets) for kind in ("reconstruction", "cls_reconstruction")
    }
    model = Model(config.model_copy(update={"heads": heads}), embedding).train()
    model.initialise(0)
    return model


def pretraining_batch(batch_size: int) -> dict[str, torch.Tensor]:
    """Returns windows of noise as the default model is pretrained on: 19 channels × 10 s at 200 Hz, some hidden."""
    rng = generator("benchmark", 0)
    positions = rng.normal(size=(N_CHANNELS, 3))
    near = neighbours(np.linalg.norm(positions[:, None] - positions[None], axis=2))
    available = np.ones((N_CHANNELS, N_PATCHES), dtype=bool)
    masked = [block_positions(available, near, MaskingConfig(), rng) for _ in range(batch_size)]
    drawn = [actions(m, available, MaskingConfig(), rng) for m in masked]
    return {
        "signals": torch.randn(batch_size, N_CHANNELS, 2000),
        "log_scale_uv": torch.ones(batch_size, N_CHANNELS),
        "positions": torch.tensor(positions, dtype=torch.float32)[None, :, None].repeat(batch_size, 1, 2, 1),
        "patch_mask": torch.ones(batch_size, N_CHANNELS, N_PATCHES, dtype=torch.bool),
        "masked": torch.tensor(np.stack(masked)),
        "action": torch.tensor(np.stack([a for a, _ in drawn])),
        "replacement": torch.tensor(np.stack([r for _, r in drawn])),
    }


def model_step(batch_size: int, encoder: EncoderConfig) -> Callable[[], None]:
    """Returns a function that does one pretraining step of a model with default patches."""
    model, batch = pretraining_model(encoder), pretraining_batch(batch_size)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step() -> None:
        model.loss(model(batch).losses).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def run() -> Figures:
    figures: dict[str, Figure] = {}
    for size in ("nano", "tiny", "small", "base"):
        config = EncoderConfig(**ENCODER_SIZES[size], hidden_dropout_prob=0.0)
        pairs = [(torch.randn(a), torch.randn(b)) for a, b in products(config)]

        def all_products(pairs: list[tuple[torch.Tensor, torch.Tensor]] = pairs) -> None:
            for a, b in pairs:
                a @ b

        # Taken in turns, so that a busy moment of the machine touches both.
        products_s, step_s = paired_seconds(all_products, encoder_step(config), repeats=7)
        flops = sum(2 * np.prod(a) * b[-1] for a, b in products(config))
        share = statistics.median(p / s for p, s in zip(products_s, step_s))
        figures |= {
            f"{size}: matrix products alone": Figure(flops / statistics.median(products_s) / 1e9, "GFLOP/s"),
            f"{size}: encoder training step": Figure(flops / statistics.median(step_s) / 1e9, "GFLOP/s"),
            f"{size}: share of the products' rate": Figure(share, "", at_least=0.7),
        }
    return figures

"""The bidirectional encoder: [B L D] in, [B L D] (or the rows that are asked for) out.

One class of block expresses BERT (post-norm, GELU, biases), the EEG walkthrough (post-norm, ReLU) and the tiny
classifier (pre-norm, no final norm, no QKV bias); see `config.EncoderConfig`. Linear layers run on the flat
[tokens, D], without padding; padding exists inside attention alone. Tensors worth looking at pass through
`nn.Identity` taps, whose module paths are their names.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bothways.config import EncoderConfig

ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


@dataclass(frozen=True)
class Embedded:
    """What a front end hands to the encoder and the heads."""

    hidden: Float[Tensor, "B L D"]
    attention_mask: Bool[Tensor, "B L"] | None
    """True = a real position; None = all are."""
    masked: Bool[Tensor, "B L"] | None = None
    """True = hidden from the encoder and to be rebuilt."""
    place: Float[Tensor, "B L D"] | None = None
    """The part of `hidden` that says where a position lies (time, electrode), without its content."""
    targets: Mapping[str, Tensor] = field(default_factory=dict)
    """Name -> [R F]: the true content of the R masked positions, in row-major order."""
    targets_real: Mapping[str, Tensor] = field(default_factory=dict)
    """Name -> [R F]: True = a number of `targets` that counts; a name that is absent: all do."""
    table: Float[Tensor, "V D"] | None = None
    """The word embedding, for a decoder tied to it."""
    moments: Int[Tensor, " L"] | None = None
    """Position -> the moment it belongs to, [CLS] being 0: several electrodes share one. None = each is its own."""

    def without_idle_mask(self) -> "Embedded":
        """Returns the same without an attention mask that hides nothing: attention is faster without one."""
        idle = self.attention_mask is not None and bool(self.attention_mask.all())
        return replace(self, attention_mask=None) if idle else self


@dataclass(frozen=True)
class Rows:
    """The encoder's output at the positions that were asked for."""

    values: Float[Tensor, "R D"]
    selected: Bool[Tensor, "B L"]

    def take(self, mask: Bool[Tensor, "B L"]) -> Float[Tensor, "r D"]:
        """Returns the rows where `mask` is true, row-major.

        Raises:
            ValueError: `mask` does not lie within `selected`.
        """
        if bool((mask & ~self.selected).any()):
            missing = int((mask & ~self.selected).sum())
            raise ValueError(
                f"expected positions that were encoded, {missing} of them are padding or were not asked for"
            )
        return self.values[mask[self.selected]]

    def cls(self) -> Float[Tensor, "B D"]:
        """Returns the first position of each sequence, [CLS].

        Raises:
            ValueError: a sequence does not begin with a real position.
        """
        if not bool(self.selected[:, 0].all()):
            raise ValueError("expected [CLS] at position 0 of every sequence, found padding; pad on the right")
        return self.take(first_positions(self.selected))


def first_positions(like: Bool[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
    """Returns a mask that is true at position 0, [CLS], alone."""
    mask = torch.zeros_like(like)
    mask[:, 0] = True
    return mask


@dataclass(frozen=True)
class Layout:
    """Where the flat tokens lie in a padded [B L]; `index` None = everywhere."""

    batch: int | torch.SymInt
    length: int | torch.SymInt
    """Symbols while a model is traced (`padded.py`)."""
    index: Int[Tensor, " T"] | None

    @classmethod
    def of(cls, mask: Bool[Tensor, "B L"]) -> "Layout":
        """Makes the layout of the true positions of a mask."""
        return cls(mask.shape[0], mask.shape[1], mask.flatten().nonzero().squeeze(1))

    def flatten(self, padded: Float[Tensor, "B L D"]) -> Float[Tensor, "T D"]:
        """Drops the padding."""
        flat = padded.flatten(0, 1)  # [B·L D]
        return flat if self.index is None else flat.index_select(0, self.index)

    def pad(self, flat: Float[Tensor, "T D"]) -> Float[Tensor, "B L D"]:
        """Puts the tokens back in their places; the others are zero."""
        if self.index is not None:
            empty = flat.new_zeros(self.batch * self.length, flat.shape[1])
            flat = empty.index_copy(0, self.index, flat)
        return flat.view(self.batch, self.length, flat.shape[1])  # [B L D]


class SelfAttention(nn.Module):
    """Multi-head self-attention without a causal mask (Vaswani et al. 2017, section 3.2; Devlin et al. 2019).

    Runs fused (`scaled_dot_product_attention`); with `written_out = True` step by step with every matrix tapped,
    which a parity test proves equal.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.n_heads = config.num_attention_heads
        self.dropout = config.attention_probs_dropout_prob
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=config.qkv_bias)
        self.output = nn.Linear(config.hidden_size, config.hidden_size, bias=config.linear_bias)
        self.written_out = False
        self.Q, self.K, self.V = nn.Identity(), nn.Identity(), nn.Identity()
        self.raw_scores, self.scaled_scores, self.attention = nn.Identity(), nn.Identity(), nn.Identity()
        self.head_outputs, self.concat = nn.Identity(), nn.Identity()

    def forward(
        self,
        hidden: Float[Tensor, "T D"],
        keys: Layout,
        key_mask: Bool[Tensor, "B L"] | None,
        rows: Int[Tensor, " R"] | None,
        queries: Layout,
    ) -> Float[Tensor, "R D"]:
        """Attends from the rows that are needed to every real position.

        Args:
            hidden: all flat tokens.
            keys: where they lie.
            key_mask: True = real; None = no padding.
            rows: which of the tokens ask; None = all.
            queries: where those lie among themselves, padded.
        """
        size = hidden.shape[1]
        if rows is None:
            q, k, v = self.qkv(hidden).split(size, dim=1)
        else:
            # Queries of rows that nothing reads are never computed.
            weight, bias = self.qkv.weight, self.qkv.bias
            q = F.linear(hidden.index_select(0, rows), weight[:size], None if bias is None else bias[:size])
            kv = F.linear(hidden, weight[size:], None if bias is None else bias[size:])
            k, v = kv.split(size, dim=1)
        q = self._split(self.Q(queries.pad(q)))  # [B H Lq d]
        k = self._split(self.K(keys.pad(k)))  # [B H L d]
        v = self._split(self.V(keys.pad(v)))  # [B H L d]
        mask = None if key_mask is None else key_mask[:, None, None, :]  # [B 1 1 L]
        dropout = self.dropout if self.training else 0.0
        if self.written_out:
            heads = self._written_out(q, k, v, mask, dropout)
        else:
            heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
        heads = self.head_outputs(heads)  # [B H Lq d]
        concat = self.concat(queries.flatten(heads.transpose(1, 2).flatten(2)))  # [R D]
        return self.output(concat)

    def _split(self, x: Float[Tensor, "B L D"]) -> Float[Tensor, "B H L d"]:
        return x.unflatten(2, (self.n_heads, -1)).transpose(1, 2)

    def _written_out(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
        scores = self.raw_scores(q @ k.transpose(2, 3))  # [B H Lq L]
        scores = self.scaled_scores(scores / math.sqrt(q.shape[-1]))
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        weights = self.attention(scores.softmax(dim=-1))
        return F.dropout(weights, dropout) @ v


class FeedForward(nn.Module):
    """Two linear layers with an activation between them, optionally gated (Shazeer 2020)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        size, inner, bias = config.hidden_size, config.intermediate_size, config.linear_bias
        self.up = nn.Linear(size, inner, bias=bias)
        self.gate = nn.Linear(size, inner, bias=bias) if config.gated else None
        self.down = nn.Linear(inner, size, bias=bias)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.pre_activation, self.post_activation = nn.Identity(), nn.Identity()

    def forward(self, hidden: Float[Tensor, "T D"]) -> Float[Tensor, "T D"]:
        """Maps each token by itself."""
        if self.gate is None:
            inner = self.activation(self.pre_activation(self.up(hidden)))
        else:
            inner = self.activation(self.pre_activation(self.gate(hidden))) * self.up(hidden)
        return self.down(self.post_activation(inner))


class Block(nn.Module):
    """Attention and feed-forward, each with a residual sum and a layer norm after (BERT) or before it."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.pre_norm = config.norm == "pre"
        self.attention = SelfAttention(config)
        self.norm_1 = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.feed_forward = FeedForward(config)
        self.norm_2 = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.attention_output, self.residual_1, self.Z1 = nn.Identity(), nn.Identity(), nn.Identity()
        self.ffn_output, self.output = nn.Identity(), nn.Identity()
        if not self.pre_norm:  # elsewhere it is the output
            self.residual_2 = nn.Identity()

    def forward(
        self,
        hidden: Float[Tensor, "T D"],
        keys: Layout,
        key_mask: Bool[Tensor, "B L"] | None = None,
        rows: Int[Tensor, " R"] | None = None,
        queries: Layout | None = None,
    ) -> Float[Tensor, "R D"]:
        """Maps all tokens, or only the `rows`; arguments as in `SelfAttention.forward`."""
        inputs = self.norm_1(hidden) if self.pre_norm else hidden
        attended = self.attention_output(self.attention(inputs, keys, key_mask, rows, queries or keys))
        kept = hidden if rows is None else hidden.index_select(0, rows)
        residual = self.residual_1(kept + self.dropout(attended))
        if self.pre_norm:
            fed = self.ffn_output(self.feed_forward(self.Z1(self.norm_2(residual))))
            return self.output(residual + self.dropout(fed))
        z1 = self.Z1(self.norm_1(residual))
        fed = self.ffn_output(self.feed_forward(z1))
        return self.output(self.norm_2(self.residual_2(z1 + self.dropout(fed))))


class Encoder(nn.Module):
    """A stack of blocks; the last computes only the rows that are read."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(Block(config) for _ in range(config.num_hidden_layers))
        with_norm = config.norm == "pre" and config.final_norm
        self.final_norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps) if with_norm else nn.Identity()
        self.checkpointing = False
        """In training, compute each layer again for its gradient instead of keeping what it passes on."""

    def _layer(self, layer: nn.Module, *inputs: Any) -> Float[Tensor, "R D"]:
        if self.checkpointing and self.training:
            return checkpoint(layer, *inputs, use_reentrant=False)
        return layer(*inputs)

    def forward(
        self,
        hidden: Float[Tensor, "B L D"],
        attention_mask: Bool[Tensor, "B L"] | None = None,
        rows: Bool[Tensor, "B L"] | None = None,
    ) -> Rows:
        """Encodes a padded batch.

        Args:
            hidden: embedded positions.
            attention_mask: True = real; None = no padding. Every sequence needs one real position.
            rows: which positions are read afterwards (padding among them is left out); None = all real ones.

        Returns:
            Their output, flat, with the mask that says where they lie.
        """
        everywhere = Layout(hidden.shape[0], hidden.shape[1], None)
        keys = everywhere if attention_mask is None else Layout.of(attention_mask)
        flat = keys.flatten(hidden)  # [T D]
        below: list[Tensor] = []
        for number, layer in enumerate(self.layers[:-1], 1):
            flat = self._layer(layer, flat, keys, attention_mask)
            if number > len(self.layers) - self.config.mixed_layers:
                below.append(flat)
        real = torch.ones_like(hidden[..., 0], dtype=torch.bool) if attention_mask is None else attention_mask
        selected = real if rows is None else rows & real
        if rows is None:
            flat = self._layer(self.layers[-1], flat, keys, attention_mask)
        else:
            wanted = selected[real].nonzero().squeeze(1)  # [R], places among the flat tokens
            below = [one.index_select(0, wanted) for one in below]
            # Queries are padded to the most that one sequence asks for, not to L.
            asked = selected.sum(1)
            queries = Layout.of(torch.arange(int(asked.max()), device=asked.device) < asked[:, None])
            flat = self._layer(self.layers[-1], flat, keys, attention_mask, wanted, queries)
        if below:
            flat = torch.stack([*below, flat]).mean(0)
        return Rows(self.final_norm(flat), selected)

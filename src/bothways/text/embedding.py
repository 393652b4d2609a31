"""The text front end: word + position + segment embeddings (Devlin et al. 2019, section 3, figure 2)."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bothways.config import ModelConfig
from bothways.encoder import Embedded
from bothways.errors import UserError


class TokenEmbedding(nn.Module):
    """Sum of the word's, the position's and the segment's vector, with BERT's layer norm and dropout after it."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        text, encoder = config.text, config.encoder
        assert text is not None
        self.max_length = text.max_position_embeddings
        self.word = nn.Embedding(text.vocab_size, encoder.hidden_size, padding_idx=text.pad_token_id)
        self.position = nn.Embedding(text.max_position_embeddings, encoder.hidden_size)
        self.segment = nn.Embedding(text.type_vocab_size, encoder.hidden_size) if text.type_vocab_size else None
        self.norm = nn.LayerNorm(encoder.hidden_size, encoder.layer_norm_eps) if text.norm else nn.Identity()
        self.dropout = nn.Dropout(encoder.hidden_dropout_prob if text.norm else 0.0)
        self.Z0 = nn.Identity()

    def forward(self, batch: Mapping[str, Tensor]) -> Embedded:
        """Embeds token ids; without a mask where nothing is padding. See `embed`."""
        return self.embed(batch).without_idle_mask()

    def embed(self, batch: Mapping[str, Tensor]) -> Embedded:
        """Embeds token ids; what is computed does not depend on their values.

        Args:
            batch: `input_ids` [B L]; optional `token_type_ids` [B L] (0 = A, 1 = B), `attention_mask` [B L]
                (1 or True = real) and `mlm_labels` [B L] (-100 = not masked).

        Raises:
            UserError: L is longer than the position table.
        """
        ids = batch["input_ids"]
        length = ids.shape[1]
        if length > self.max_length:
            raise UserError(
                f"a text of {length} tokens is longer than the model's {self.max_length}; cut it or use windows"
            )
        place: Float[Tensor, "B L D"] = self.position.weight[:length].expand(ids.shape[0], -1, -1)
        if self.segment is not None:
            place = place + self.segment(batch.get("token_type_ids", torch.zeros_like(ids)))
        hidden = self.dropout(self.norm(self.Z0(self.word(ids) + place)))
        real = batch.get("attention_mask")
        labels = batch.get("mlm_labels")
        masked = None if labels is None else labels != -100
        return Embedded(hidden, None if real is None else real.bool(), masked, place, table=self.word.weight)

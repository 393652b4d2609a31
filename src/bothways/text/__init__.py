"""Text to batches. For now: the embedding, and the names of transformers' BERT weights."""

from bothways.text.embedding import TokenEmbedding
from bothways.text.hf import from_transformers, to_transformers

__all__ = ["TokenEmbedding", "from_transformers", "to_transformers"]

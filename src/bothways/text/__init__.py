"""Text to batches: the embedding, the tokenizer, and models from folders, also of transformers."""

from bothways.text.embedding import TokenEmbedding
from bothways.text.folder import Loaded, load_folder
from bothways.text.hf import from_transformers, to_transformers
from bothways.text.tokenizer import Encoding, Tokenizer, load_tokenizer

__all__ = [
    "Encoding",
    "Loaded",
    "TokenEmbedding",
    "Tokenizer",
    "from_transformers",
    "load_folder",
    "load_tokenizer",
    "to_transformers",
]

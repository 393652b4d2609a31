"""Text to batches: documents, sentences, tokenizers, the embedding, and models from folders (also transformers')."""

from bothways.text.documents import Document, Documents, SourceFile
from bothways.text.embedding import TokenEmbedding
from bothways.text.folder import Loaded, load_folder
from bothways.text.hf import from_transformers, to_transformers
from bothways.text.sentences import Splitter, split_sentences
from bothways.text.tokenizer import Encoding, Tokenizer, load_tokenizer
from bothways.text.wordpiece import save_tokenizer, train_wordpiece

__all__ = [
    "Document",
    "Documents",
    "Encoding",
    "Loaded",
    "SourceFile",
    "Splitter",
    "TokenEmbedding",
    "Tokenizer",
    "from_transformers",
    "load_folder",
    "load_tokenizer",
    "save_tokenizer",
    "split_sentences",
    "to_transformers",
    "train_wordpiece",
]

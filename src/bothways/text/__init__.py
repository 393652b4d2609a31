"""Text to batches: documents, sentences, tokenizers, the embedding, and models from folders (also transformers')."""

from bothways.text.documents import Document, Documents, SourceFile
from bothways.text.embedding import TokenEmbedding
from bothways.text.folder import Loaded, load_folder
from bothways.text.hf import from_transformers, to_transformers
from bothways.text.hf_config import config_to_transformers, unlike_bert
from bothways.text.saving import save_folder
from bothways.text.sentences import Splitter, split_sentences
from bothways.text.tokenizer import Encoding, Tokenizer, load_tokenizer, tokenizer_files
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
    "config_to_transformers",
    "from_transformers",
    "load_folder",
    "load_tokenizer",
    "save_folder",
    "save_tokenizer",
    "split_sentences",
    "to_transformers",
    "tokenizer_files",
    "train_wordpiece",
    "unlike_bert",
]

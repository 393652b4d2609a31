"""Text to batches: documents, sentences, tokenizers, the embedding, and models from folders (also transformers')."""

from bothways.text.corpus import Corpus, is_corpus
from bothways.text.documents import Document, Documents, SourceFile
from bothways.text.embedding import TokenEmbedding
from bothways.text.folder import Loaded, load_folder
from bothways.text.hf import from_transformers, to_transformers
from bothways.text.hf_config import config_to_transformers, unlike_bert
from bothways.text.preparing import prepare_corpus
from bothways.text.saving import save_folder
from bothways.text.sentences import Splitter, split_sentences
from bothways.text.sequences import IS_NEXT, RANDOM, Example, SequenceSource, can_pair, divide
from bothways.text.tokenizer import Encoding, Tokenizer, load_tokenizer, tokenizer_files
from bothways.text.wordpiece import save_tokenizer, train_wordpiece

__all__ = [
    "IS_NEXT",
    "RANDOM",
    "Corpus",
    "Document",
    "Documents",
    "Encoding",
    "Example",
    "Loaded",
    "SequenceSource",
    "SourceFile",
    "Splitter",
    "TokenEmbedding",
    "Tokenizer",
    "can_pair",
    "config_to_transformers",
    "divide",
    "from_transformers",
    "is_corpus",
    "load_folder",
    "load_tokenizer",
    "prepare_corpus",
    "save_folder",
    "save_tokenizer",
    "split_sentences",
    "to_transformers",
    "tokenizer_files",
    "train_wordpiece",
    "unlike_bert",
]

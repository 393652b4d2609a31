"""Text to batches: documents, sentences, tokenizers, embedding, models from folders; vectors and scores of texts."""

from bothways.text.batching import by_length, most_tokens, padded, pools
from bothways.text.documents import Document, Documents, SourceFile
from bothways.text.embedding import TokenEmbedding
from bothways.text.folder import Loaded, load_folder
from bothways.text.hf import from_transformers, to_transformers
from bothways.text.scoring import (
    Hidden,
    Pairs,
    Scored,
    Sentence,
    draw_pairs,
    hide,
    mlm_scores,
    next_sentence,
    packed,
    pseudo_log_likelihoods,
    score,
    sentence_tokens,
)
from bothways.text.sentences import Splitter, split_sentences
from bothways.text.tokenizer import Encoding, Tokenizer, load_tokenizer
from bothways.text.vectors import Vectors, check_settings, embed, normalised, said_too_long, text_vectors, window_length
from bothways.text.wordpiece import save_tokenizer, train_wordpiece

__all__ = [
    "Document",
    "Documents",
    "Encoding",
    "Hidden",
    "Loaded",
    "Pairs",
    "Scored",
    "Sentence",
    "SourceFile",
    "Splitter",
    "TokenEmbedding",
    "Tokenizer",
    "Vectors",
    "by_length",
    "check_settings",
    "draw_pairs",
    "embed",
    "from_transformers",
    "hide",
    "load_folder",
    "load_tokenizer",
    "mlm_scores",
    "most_tokens",
    "next_sentence",
    "normalised",
    "packed",
    "padded",
    "pools",
    "pseudo_log_likelihoods",
    "said_too_long",
    "save_tokenizer",
    "score",
    "sentence_tokens",
    "split_sentences",
    "text_vectors",
    "to_transformers",
    "train_wordpiece",
    "window_length",
]

"""Text to batches: documents, sentences, tokenizers, embedding, models from folders; vectors and scores of texts."""

from bothways.text.answering import AnswerSource, check_windows, predict_answers
from bothways.text.batching import by_length, most_tokens, padded, pools
from bothways.text.corpus import Corpus, is_corpus, read_head
from bothways.text.documents import Document, Documents, SourceFile
from bothways.text.embedding import TokenEmbedding
from bothways.text.folder import Loaded, load_folder
from bothways.text.hf import from_transformers, to_transformers
from bothways.text.hf_config import config_to_transformers, unlike_bert
from bothways.text.preparing import prepare_corpus
from bothways.text.saving import save_folder
from bothways.text.scoring import (
    Pairs,
    Scored,
    Stretch,
    draw_pairs,
    mlm_scores,
    next_sentence,
    packed,
    pseudo_log_likelihoods,
    score,
    sentence_tokens,
)
from bothways.text.sentences import Splitter, split_sentences
from bothways.text.sequences import IS_NEXT, NOT_NEXT, Example, SequenceSource, can_pair, divide, hide
from bothways.text.squad import GoldAnswer, Question, Squad, read_squad
from bothways.text.tokenizer import Encoding, Tokenizer, load_tokenizer, tokenizer_files
from bothways.text.vectors import Vectors, check_settings, embed, normalised, said_too_long, text_vectors, window_length
from bothways.text.wordpiece import save_tokenizer, train_wordpiece

__all__ = [
    "IS_NEXT",
    "NOT_NEXT",
    "AnswerSource",
    "Corpus",
    "Document",
    "Documents",
    "Encoding",
    "Example",
    "GoldAnswer",
    "Loaded",
    "Pairs",
    "Question",
    "Scored",
    "SequenceSource",
    "SourceFile",
    "Splitter",
    "Squad",
    "Stretch",
    "TokenEmbedding",
    "Tokenizer",
    "Vectors",
    "by_length",
    "can_pair",
    "check_settings",
    "check_windows",
    "config_to_transformers",
    "divide",
    "draw_pairs",
    "embed",
    "from_transformers",
    "hide",
    "is_corpus",
    "load_folder",
    "load_tokenizer",
    "mlm_scores",
    "most_tokens",
    "next_sentence",
    "normalised",
    "packed",
    "padded",
    "pools",
    "predict_answers",
    "prepare_corpus",
    "pseudo_log_likelihoods",
    "read_head",
    "read_squad",
    "said_too_long",
    "save_folder",
    "save_tokenizer",
    "score",
    "sentence_tokens",
    "split_sentences",
    "text_vectors",
    "to_transformers",
    "tokenizer_files",
    "train_wordpiece",
    "unlike_bert",
    "window_length",
]

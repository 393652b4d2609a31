"""Text to batches: documents, sentences, tokenizers, embedding, models from folders; vectors and scores of texts."""

from bothways.text.answering import AnswerSource, check_windows, predict_answers
from bothways.text.batching import by_length, most_tokens, padded, pools
from bothways.text.conll import Sentence, SentenceFile, read_sentences, words_of
from bothways.text.corpus import Corpus, is_corpus, read_head
from bothways.text.documents import Document, Documents, SourceFile
from bothways.text.embedding import TokenEmbedding
from bothways.text.examples import TextSource, Tokenised, tokenise, told
from bothways.text.folder import Loaded, load_folder
from bothways.text.hf import from_transformers, to_transformers
from bothways.text.hf_config import config_to_transformers, unlike_bert
from bothways.text.labelled import LabelledText, LabelledTexts, classes_of, label_name, like_empty
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
from bothways.text.squad import GoldAnswer, Question, Squad, read_squad, squad_of_lines
from bothways.text.tables import TABLES, clean
from bothways.text.tagging import TagSource, best_tags, spans, tag_classes, word_probabilities, word_vectors
from bothways.text.tokenizer import Encoding, Tokenizer, load_tokenizer, tokenizer_files
from bothways.text.vectors import Vectors, check_settings, embed, normalised, said_too_long, text_vectors, window_length
from bothways.text.wordpiece import save_tokenizer, train_wordpiece

__all__ = [
    "IS_NEXT",
    "NOT_NEXT",
    "TABLES",
    "AnswerSource",
    "Corpus",
    "Document",
    "Documents",
    "Encoding",
    "Example",
    "GoldAnswer",
    "LabelledText",
    "LabelledTexts",
    "Loaded",
    "Pairs",
    "Question",
    "Scored",
    "Sentence",
    "SentenceFile",
    "SequenceSource",
    "SourceFile",
    "Splitter",
    "Squad",
    "Stretch",
    "TagSource",
    "TextSource",
    "TokenEmbedding",
    "Tokenised",
    "Tokenizer",
    "Vectors",
    "best_tags",
    "by_length",
    "can_pair",
    "check_settings",
    "check_windows",
    "classes_of",
    "clean",
    "config_to_transformers",
    "divide",
    "draw_pairs",
    "embed",
    "from_transformers",
    "hide",
    "is_corpus",
    "label_name",
    "like_empty",
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
    "read_sentences",
    "read_squad",
    "said_too_long",
    "save_folder",
    "save_tokenizer",
    "score",
    "sentence_tokens",
    "spans",
    "split_sentences",
    "squad_of_lines",
    "tag_classes",
    "text_vectors",
    "to_transformers",
    "tokenise",
    "tokenizer_files",
    "told",
    "train_wordpiece",
    "unlike_bert",
    "window_length",
    "word_probabilities",
    "word_vectors",
    "words_of",
]

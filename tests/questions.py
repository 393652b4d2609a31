"""Questions about contexts, tokenizers for any text, and small models that answer."""

from collections.abc import Sequence

import tokenizers
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import BertProcessing

from bothways.config import EncoderConfig, HeadConfig, ModelConfig, TextConfig
from bothways.model import Model
from bothways.text import GoldAnswer, Question, Squad, TokenEmbedding
from bothways.text.tokenizer import SPECIAL, Tokenizer, bert_tokenizer
from corpora import PIECES


def letters(positions: int = 64) -> Tokenizer:
    """A token for each letter; a word with another character is one [UNK]."""
    pieces = {token: i for i, token in enumerate(PIECES)}
    return Tokenizer(bert_tokenizer(pieces, lowercase=True), SPECIAL, sizes(len(pieces), positions))


def in_bytes(positions: int = 64) -> Tokenizer:
    """A token for each byte of UTF-8, and for ` a`: several lie in one character, and white space is in tokens."""
    pieces = [*SPECIAL.values(), *sorted(ByteLevel.alphabet()), "Ġa"]
    made = tokenizers.Tokenizer(BPE({token: i for i, token in enumerate(pieces)}, [("Ġ", "a")]))
    made.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    made.post_processor = BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return Tokenizer(made, SPECIAL, sizes(len(pieces), positions))


def sizes(vocab_size: int, positions: int) -> TextConfig:
    return TextConfig(vocab_size=vocab_size, max_position_embeddings=positions)


def asked(*questions: tuple[str, str, Sequence[str] | None]) -> Squad:
    """Questions: text, context, and answers that each stand somewhere in it."""
    contexts = list(dict.fromkeys(context for _, context, _ in questions))
    made = [
        Question(f"q{i}", text, contexts.index(context), _placed(answers, context), "t")
        for i, (text, context, answers) in enumerate(questions)
    ]
    return Squad(contexts, made)


def _placed(answers: Sequence[str] | None, context: str) -> tuple[GoldAnswer, ...] | None:
    if answers is None:
        return None
    return tuple(GoldAnswer(one, context.find(one) if one in context else None) for one in answers)


def answering_model(tokenizer: Tokenizer, seed: int = 0, hidden_size: int = 16, sd: float = 0.02) -> Model:
    """A small BERT with a span head."""
    encoder = EncoderConfig(
        hidden_size=hidden_size, num_hidden_layers=2, num_attention_heads=2, intermediate_size=2 * hidden_size,
        hidden_dropout_prob=0.0, norm="post", final_norm=False, initializer_range=sd,
    )  # fmt: skip
    text = sizes(tokenizer.vocab_size, tokenizer.max_length)
    config = ModelConfig(encoder=encoder, text=text, heads={"span": HeadConfig(kind="span")})
    model = Model(config, TokenEmbedding(config)).eval()
    model.initialise(seed)
    return model

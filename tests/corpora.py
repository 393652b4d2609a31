"""Small corpora on disk, with a tokenizer of whole words."""

from pathlib import Path

from bothways.text import Corpus, Documents, load_tokenizer, prepare_corpus, save_tokenizer
from bothways.text.tokenizer import SPECIAL, bert_tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TINY = [
    "encoder.num_hidden_layers=2", "encoder.hidden_size=16", "encoder.num_attention_heads=2",
    "encoder.intermediate_size=32", "sequences.length=32", "training.steps=6", "training.batch_size=8",
    "training.evaluations=2", "training.log_every=1", "validation_fraction=0.1",
]  # fmt: skip
PIECES = [*SPECIAL.values(), *LETTERS, *(f"##{one}" for one in LETTERS), ".", "?"]


def write_tokenizer(folder: Path) -> Path:
    """Letters, and letters that go on: a word of n letters is n tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    made = bert_tokenizer({token: i for i, token in enumerate(PIECES)}, lowercase=True)
    made.add_special_tokens(list(SPECIAL.values()))
    save_tokenizer(made, folder)
    return folder


def make_corpus(folder: Path, text: str, separator: str = "blank") -> Corpus:
    """Prepares a text as one file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.txt").write_text(text, encoding="utf-8")
    tokenizer = load_tokenizer(write_tokenizer(folder / "tokenizer"))
    return prepare_corpus(Documents([folder / "text.txt"], separator), tokenizer, folder / "corpus")[0]


def many_documents(n: int = 40) -> str:
    """Documents of one to six sentences, each of its own letters, so that none equals another."""
    documents = []
    for i in range(n):
        word = LETTERS[i % 26] + LETTERS[(i * 7) % 26] + LETTERS[(i // 26) % 26]
        documents.append("\n".join(f"{word * (1 + k % 3)} {LETTERS[k]} {word}." for k in range(1 + i % 6)))
    return "\n\n".join(documents)

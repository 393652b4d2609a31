"""`text prepare` with a tokenizer beside the tokenizers library's own batches of the same sentences, in memory."""

import shutil
import statistics
import tempfile
from pathlib import Path

from text_encoding import DATA, VOCAB
from timing import Figure, Figures, paired_seconds
from tokenizers import Tokenizer

from bothways import run as bothways
from bothways.text import Documents, split_sentences

COPIES, BATCH = 8, 1000
"""Copies of the speeches (0.8 MB), so that what a command does once is small beside the work; sentences of a batch."""


def run() -> Figures:
    with tempfile.TemporaryDirectory() as name:
        texts, learned, store = (Path(name) / part for part in ("texts", "tokenizer", "store"))
        for copy in range(COPIES):
            shutil.copytree(DATA, texts / str(copy))
        bothways.text_tokenizer(texts, learned, vocab=VOCAB)
        tokenizer = Tokenizer.from_file(str(learned / "tokenizer.json"))
        sentences = [one for document in Documents([texts]) for one in split_sentences(document.text)]

        def prepare() -> None:
            shutil.rmtree(store, ignore_errors=True)
            bothways.text_prepare(texts, store, tokenizer=learned)

        def batches() -> None:
            for start in range(0, len(sentences), BATCH):
                tokenizer.encode_batch(sentences[start : start + BATCH], add_special_tokens=False)

        prepare_s, batches_s = paired_seconds(prepare, batches, repeats=5, warmup=1)
    megabytes = COPIES * sum(file.stat().st_size for file in DATA.iterdir()) / 1e6
    return {
        "prepare, from files to a store": Figure(megabytes / statistics.median(prepare_s), "MB/s"),
        "tokenizers, encode_batch alone": Figure(megabytes / statistics.median(batches_s), "MB/s"),
        "prepare / tokenizers": Figure(
            statistics.median(b / p for p, b in zip(prepare_s, batches_s)), "", at_least=0.9
        ),
    }

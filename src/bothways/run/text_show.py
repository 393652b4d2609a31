"""`bothways text show`."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from bothways import text
from bothways.config import TextPretrainConfig, load_config
from bothways.draws import generator
from bothways.errors import UserError
from bothways.heads import IGNORED
from bothways.masking import Action
from bothways.model import Model
from bothways.training import MANIFEST, check_finished, load_manifest, load_recipe, run_at

LABELS = {text.IS_NEXT: "next", text.NOT_NEXT: "random", IGNORED: None}
BY = {Action.MASK: "mask", Action.RANDOM: "random", Action.UNCHANGED: "unchanged"}


def text_show(
    path: str | Path, *, n: int = 5, seed: int | None = None, epoch: int = 0, corpus: str | Path | None = None
) -> dict[str, Any]:
    """Shows sequences as a run is trained on them: what is hidden, by what, and what the model says.

    Args:
        path: a run of `text_pretrain`, or a corpus, of which sequences are drawn as the default settings have it.
        n: how many, of documents that are trained on.
        seed: of which ones; by default the run's.
        epoch: what is hidden differs from one to the next.
        corpus: where the run's corpus is now, if it was moved.

    Returns:
        `examples`, of each: `document` (file and line), `sequence` (its number), `pair` (`next`, `random`, or none
        where it is one stretch), `truth` and `seen` (text with the special tokens), and `hidden`: of each hidden token
        `position`, `truth`, `seen`, `by` (`mask`, `random`, `unchanged`), and of a run the model's `guess` and the
        `probability` that it gives the truth.

    Raises:
        UserError: the folder is neither, or the corpus is another one than the run was trained on.
    """
    if n < 1:
        raise UserError(f"n: expected 1 or more, got {n}")
    for name, value in (("seed", seed or 0), ("epoch", epoch)):
        if value < 0:
            raise UserError(f"{name}: expected 0 or more, got {value}")
    path = Path(path)
    model: Model | None = None
    if text.is_corpus(path):
        if corpus is not None:
            raise UserError(f"--corpus belongs to a run, {path} is a corpus itself; leave it out")
        store, settings = text.Corpus.open(path), load_config(TextPretrainConfig)
        pairs = settings.objective.next_sentence and not text.can_pair(store, np.arange(len(store)))
    else:
        folder = run_at(path)
        check_finished(folder)
        store, settings, pairs = corpus_of(folder, corpus)
        model = text.load_folder(folder).model
    training = settings.training.seed
    documents, _ = text.divide(store, settings.validation_fraction, training, pairs=pairs)
    source = text.SequenceSource(
        store, documents, settings.sequences, settings.masking, next_sentence=pairs, seed=training
    )
    rng = generator("show", training if seed is None else seed, epoch)
    numbers = np.sort(rng.choice(len(source), min(n, len(source)), replace=False))
    return {"examples": [_told(source, int(number), epoch, model) for number in numbers]}


def corpus_of(folder: Path, place: str | Path | None = None) -> tuple[text.Corpus, TextPretrainConfig, bool]:
    """Returns the corpus of a run, its settings, and whether it learned next sentences.

    Raises:
        UserError: the run is none of `text_pretrain`, its corpus is gone, or is another one now.
    """
    manifest = load_manifest(folder) if (folder / MANIFEST).is_file() else {}
    data = manifest.get("data", {})
    if manifest.get("kind") != "pretrain" or "corpus" not in data:
        raise UserError(f"{folder}: expected a run of `bothways text pretrain` or a corpus, got another folder")
    at = Path(place or data["corpus"])
    if not text.is_corpus(at):
        raise UserError(f"{at}: the run's corpus is not there; say where it is with --corpus, or prepare it again")
    corpus = text.Corpus.open(at)
    if corpus.identity() != data["identity"]:
        raise UserError(f"{at}: is another corpus than {folder} was trained on; give that one with --corpus")
    return corpus, load_recipe(folder, TextPretrainConfig), bool(data["next_sentence"])


def _told(source: text.SequenceSource, number: int, epoch: int, model: Model | None) -> dict[str, Any]:
    tokenizer, one = source.corpus.tokenizer, source.example(number, epoch)
    places = np.flatnonzero(one.masked)
    hidden: list[dict[str, Any]] = []
    for at in places:
        truth, seen = int(one.truth[at]), int(one.ids[at])
        names = {"truth": tokenizer.token(truth), "seen": tokenizer.token(seen)}
        hidden.append({"position": int(at), **names, "by": BY[Action(one.action[at])]})
    if model is not None:
        batch = source.batch(np.array([number]), np.array([epoch]))
        with torch.no_grad():
            scores = tokenizer.named(model(batch, with_losses=False).predictions["mlm"])
        probabilities = scores.softmax(1)
        for told, row, at in zip(hidden, probabilities, places):
            told["guess"] = tokenizer.token(int(row.argmax()))
            told["probability"] = float(row[int(one.truth[at])])
    return {
        "document": source.names(np.array([number]))[0],
        "sequence": number,
        "pair": LABELS[one.next_label],
        "truth": tokenizer.decode(one.truth.tolist()),
        "seen": tokenizer.decode(one.ids.tolist()),
        "hidden": hidden,
    }

"""`bothways text pretrain`."""

import hashlib
import json
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bothways import text
from bothways.config import HeadConfig, ModelConfig, TextConfig, TextPretrainConfig, load_config
from bothways.errors import BothwaysWarning, UserError
from bothways.files import check_output, locked
from bothways.model import Model
from bothways.run.common import check_names, fitted_batch, made_with, parameters_of
from bothways.run.text_prepare import told_of
from bothways.training import check_fits, check_place, interruptible, join, mean_losses, open_run, train

MOST_NAMES = 1000
"""Documents kept out that the manifest names; the others follow from seed and fraction."""


@interruptible("text pretrain")
def text_pretrain(
    paths: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    tokenizer: str | Path | None = None,
    recipe: str | Path | None = None,
    changes: Sequence[str] = (),
    documents: str = "blank",
    column: str | None = None,
    encoding: str | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    force: bool = False,
) -> dict[str, Any]:
    """Trains a BERT on text: hidden tokens from both sides, and whether a sentence is the next one.

    Text that is not prepared yet is: a vocabulary is learned where no tokenizer is given, and the tokens are written
    to `OUT-corpus`, beside the run, which holds no text itself. A run that was stopped goes on when it is called again,
    to the same numbers as if it had not been.

    Args:
        paths: files and folders of text, see `text.Documents`; or one corpus of `text_prepare`.
        out: the run's folder.
        tokenizer: a folder with one; if none, `vocabulary` of the settings is learned.
        recipe: TOML of `config.TextPretrainConfig`.
        changes: `a.b=value` on top of it.
        documents: what ends a document in plain text; see `text.Documents`.
        column: of tables, the text's name.
        encoding: of all text files; if none, that of each is found.
        workers: processes that tokenise; see `text_prepare`.
        overwrite: replace `out` and `OUT-corpus`; begin anew.
        force: go on with a stopped run although its settings or text have changed.

    Returns:
        `run`, `finished_before` (it was there already, nothing was done), `corpus` (its folder) and what
        `text_prepare` tells of it, `notes`, `trained_documents`, `held_out_documents`, `held_out_of_files_trained_on`
        (how many of these are in a file with others that are trained on), `sequences` (of an epoch),
        `next_sentence` (whether NSP was learned), `parameters`, `steps`, `best_step`, `seconds`, `sequences_per_s`,
        `wait_share`, `loss` (last), `validation`: of `mlm` and `nsp` the `loss`, `accuracy` and number `n` on the
        documents kept out, or where there are none on those that were trained on.

    Raises:
        UserError: the text, the tokenizer or the recipe does not fit, `out` was begun with others, or the loss is not
            finite.
        Interrupted: a signal came; what was done is saved.
    """
    paths = [paths] if isinstance(paths, str | Path) else paths
    check_names(*paths, out)
    out = Path(out)
    settings = load_config(TextPretrainConfig, Path(recipe) if recipe else None, changes)
    check_place(out, overwrite=overwrite, inputs=paths)
    team = join()
    # Here about, for a corpus that is there would be replaced before the vocabulary is known to the token.
    check_fits(_model_config(settings, settings.vocabulary.size, 0, pairs=True), text.TokenEmbedding, "settings")
    found = {"documents": documents, "column": column, "encoding": encoding}
    alone = team.size == 1
    made = team.first_does(lambda: _corpus(paths, out, tokenizer, settings, found, workers, overwrite, alone=alone))
    corpus = text.Corpus.open(made)
    of_text = [message for messages in corpus.head["notes"].values() for message in messages]
    of_text += [f"{one['file']}: skipped: {one['reason']}" for one in corpus.head["skipped"]]
    notes: list[str] = []
    why_not = text.can_pair(corpus, np.arange(len(corpus))) if settings.objective.next_sentence else ""
    if why_not:
        notes.append(f"{made}: trained without next sentences (NSP): {why_not}, or objective.next_sentence=false")
    pairs = settings.objective.next_sentence and not why_not
    if pairs and len(np.unique(corpus.digests[np.diff(corpus.documents) > 1])) < 2:
        notes.append(
            f"{made}: one document alone has two sentences: a sentence that is not the next begins a document, which "
            "tells it; give more documents of several sentences"
        )
    trained_on, held_out = text.divide(corpus, settings.validation_fraction, settings.training.seed, pairs=pairs)
    if not len(held_out):
        notes.append("no document is kept out: what is measured is measured on what was trained on")
    for note in [*(of_text if made != Path(paths[0]) else ()), *notes]:  # of a corpus, `prepare` has said it
        warnings.warn(note, BothwaysWarning, stacklevel=2)
    notes = of_text + notes
    seed, lengths, masking = settings.training.seed, settings.sequences, settings.masking
    source = text.SequenceSource(corpus, trained_on, lengths, masking, next_sentence=pairs, seed=seed)
    tested_on = held_out if len(held_out) else trained_on
    tests = text.SequenceSource(
        corpus, tested_on, lengths, masking, next_sentence=pairs, seed=seed, purpose="validation"
    )
    depends_on = {"command": "text pretrain", "data": corpus.identity()}
    with open_run(out, settings, depends_on, team, overwrite=overwrite, force=force, inputs=paths) as folder:
        if folder.result is not None:
            return {**folder.result, "run": str(out), "corpus": str(made), "finished_before": True}
        config = _model_config(settings, corpus.tokenizer.size, corpus.tokenizer.pad_id, pairs=pairs)
        check_fits(config, text.TokenEmbedding, "settings", trained=team.device.type == "cpu")
        model = Model(config, text.TokenEmbedding(config))
        model.initialise(seed)
        folder.settings = settings = fitted_batch(settings, model, source, folder)
        n_of_known_files = int(np.isin(corpus.places[held_out, 0], corpus.places[trained_on, 0]).sum())
        names = [corpus.name(int(one)) for one in held_out[:MOST_NAMES]]
        folder.side_files = text.tokenizer_files(text.load_tokenizer(corpus.path, config.text))
        folder.manifest = {
            "kind": "pretrain",
            **_provenance(corpus, trained_on, pairs=pairs),
            "held_out": {"documents": len(held_out), "of_files_trained_on": n_of_known_files, "names": names},
            "notes": notes,
        }
        result = train(
            model,
            source,
            settings.training,
            title="text pretrain",
            unit="sequences",
            evaluate=lambda m: {"validation": _measured(m, tests, settings.validation_sequences)},
            score=_score,
            team=team,
            run=folder,
        )
        assert result.evaluation is not None
        told = {
            "run": str(out),
            "corpus": str(made),
            **told_of(corpus),
            "notes": notes,
            "trained_documents": len(trained_on),
            "held_out_documents": len(held_out),
            "held_out_of_files_trained_on": n_of_known_files,
            "sequences": len(source),
            "next_sentence": pairs,
            "parameters": parameters_of(model),
            **result.told("sequences"),
            "validation": result.evaluation["validation"],
        }
        folder.finish(model, told, save=text.save_folder)
    return {**told, "finished_before": False}


def _score(evaluation: dict[str, Any]) -> float:
    """How good a model is: minus the loss of hidden tokens."""
    loss = evaluation["validation"]["mlm"]["loss"]
    return -np.inf if loss is None else -loss


def _corpus(
    paths: Sequence[str | Path],
    out: Path,
    tokenizer: str | Path | None,
    settings: TextPretrainConfig,
    found: dict[str, str | None],
    workers: int | None,
    overwrite: bool,
    *,
    alone: bool,
) -> Path:
    """Returns the corpus that is given, or that lies beside the run, where it is made if need be, and checks it."""
    if len(paths) == 1 and text.is_corpus(Path(paths[0])):
        asked = {"tokenizer": tokenizer, **found}
        if given := [f"--{name}" for name, value in asked.items() if value not in (None, "blank")]:
            raise UserError(f"{paths[0]}: is a prepared corpus, with its tokenizer; leave out {', '.join(given)}")
        corpus = text.Corpus.open(paths[0])
        corpus.check()
        _say_vocabulary(settings, corpus.tokenizer)
        return corpus.path
    documents = text.Documents(paths, found["documents"] or "blank", found["column"], found["encoding"])
    given_tokenizer = None if tokenizer is None else text.load_tokenizer(Path(tokenizer))
    if given_tokenizer is not None:
        _say_vocabulary(settings, given_tokenizer)
    ids = settings.vocabulary.model_dump() if given_tokenizer is None else given_tokenizer.to_str()
    source = hashlib.sha256(json.dumps([documents.fingerprint(), ids]).encode()).hexdigest()
    place = out.with_name(f"{out.name}-corpus")
    if text.is_corpus(place) and not overwrite and text.read_head(place)["source"] == source:
        text.Corpus.open(place).check()
        return place
    if not alone:
        raise UserError(
            f"{place}: expected a corpus that is prepared, for processes that train together do not wait hours for it; "
            "first run `bothways text prepare`, then give this command what it made"
        )
    if place.exists() and not overwrite:
        raise UserError(
            f"{place}: was made from other text, or with another tokenizer; give it instead of the text, choose "
            "another --out, or pass --overwrite to replace it"
        )
    check_output(place, overwrite=overwrite, inputs=paths)
    if out.is_dir():
        with locked(out / "lock", f"{out}: another process trains it; wait until it is done, or choose another --out"):
            (out / "lock").unlink(missing_ok=True)  # nobody does, or the corpus that it reads would be replaced
    if given_tokenizer is None:
        wanted = settings.vocabulary
        learned, _ = text.train_wordpiece(
            documents, wanted.size, lowercase=not wanted.cased, strip_accents=wanted.strip_accents
        )
        with tempfile.TemporaryDirectory() as folder:
            text.save_tokenizer(learned, Path(folder))
            given_tokenizer = text.load_tokenizer(Path(folder))
    text.prepare_corpus(documents, given_tokenizer, place, source=source, overwrite=overwrite, workers=workers)
    return place


def _say_vocabulary(settings: TextPretrainConfig, tokenizer: text.Tokenizer) -> None:
    """Warns where another vocabulary was asked for than the one that is given."""
    wanted = settings.vocabulary.size
    if "vocabulary" in settings.model_fields_set and wanted != tokenizer.size:
        warnings.warn(
            f"vocabulary.size {wanted} has no effect: a tokenizer of {tokenizer.size} tokens is given", BothwaysWarning,
            stacklevel=4,
        )  # fmt: skip


def _model_config(settings: TextPretrainConfig, vocab_size: int, pad_id: int, *, pairs: bool) -> ModelConfig:
    heads = {"mlm": HeadConfig(kind="mlm")}
    if pairs:
        heads["nsp"] = HeadConfig(kind="nsp", weight=settings.objective.next_sentence_weight)
    sizes = TextConfig(
        vocab_size=vocab_size,
        max_position_embeddings=settings.sequences.positions,
        pad_token_id=pad_id,
    )
    return ModelConfig(encoder=settings.encoder, text=sizes, pooler=pairs, heads=heads)


def _measured(model: Model, source: text.SequenceSource, n: int) -> dict[str, Any]:
    """Returns the losses on about `n` sequences, spread evenly; of fewer each is taken several times, at most ten."""
    times = min(10, max(1, n // len(source)))
    ids = np.unique(np.linspace(0, len(source) - 1, min(n, len(source))).astype(np.int64))
    return mean_losses(model, source, np.tile(ids, times), np.repeat(np.arange(times), len(ids)))


def _provenance(corpus: text.Corpus, documents: np.ndarray, *, pairs: bool) -> dict[str, Any]:
    """Returns what a run records of its text and of the software that made it."""
    first, last = corpus.documents[documents], corpus.documents[documents + 1]
    return {
        **made_with("tokenizers"),
        "data": {
            "corpus": str(corpus.path.absolute()),
            "identity": corpus.identity(),
            "next_sentence": pairs,
            "documents": len(documents),
            "sentences": int((last - first).sum()),
            "tokens": int((corpus.sentences[last] - corpus.sentences[first]).sum()),
            "unknown_share": corpus.head["totals"]["unknown"] / corpus.head["totals"]["tokens"],
            "files": corpus.head["files"],
        },
    }

"""`bothways text prepare`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bothways import text
from bothways.files import check_output


def text_prepare(
    paths: str | Path | Sequence[str | Path],
    out: str | Path,
    tokenizer: str | Path,
    *,
    documents: str = "blank",
    column: str | None = None,
    encoding: str | None = None,
    split: text.Splitter = text.split_sentences,
    overwrite: bool = False,
    workers: int | None = None,
    dask: str | None = None,
) -> dict[str, Any]:
    """Tokenises documents into a corpus that training reads memory-mapped.

    A call that was stopped (killed, disk full) goes on where it was when it is repeated.

    Args:
        paths: files and folders; see `text.Documents`.
        out: the corpus's folder.
        tokenizer: a folder with a tokenizer: of `text_tokenizer`, a run, or a model of transformers.
        documents: what ends a document in plain text; see `text.Documents`.
        column: of tables, the text's name.
        encoding: of all text files; if none, that of each is found.
        split: makes sentences of a document; a function of a module.
        overwrite: replace `out`.
        workers: processes; by default one for each core, fewer where there is little to do.
        dask: address of a Dask cluster that does the work instead, e.g. `tcp://host:8786`.

    Returns:
        `corpus` (the folder), `reused` (how many chunks a stopped call had finished), `documents`, `empty_documents`,
        `sentences`, `tokens`, `unknown` (how many of these are [UNK]), `next_pairs` (of sentences that follow each
        other), `equal_documents` (how many are there before), `files` (of each `file`, `encoding`, `column`,
        `documents`, `empty`), `skipped` and `left_out` (file, reason), `notes` (code -> messages).

    Raises:
        UserError: a path that is not there, no text, no tokenizer, a setting that is none, or `out` cannot be written.
    """
    out, paths = Path(out), [paths] if isinstance(paths, str | Path) else paths
    check_output(out, overwrite=overwrite, inputs=paths)
    found = text.Documents(paths, documents, column, encoding)
    corpus, reused = text.prepare_corpus(
        found, text.load_tokenizer(Path(tokenizer)), out, split=split, overwrite=overwrite, workers=workers, dask=dask
    )  # fmt: skip
    return {"corpus": str(out), "reused": reused, **told_of(corpus)}


def told_of(corpus: text.Corpus) -> dict[str, Any]:
    """Returns what a corpus is made of, as plain values."""
    head = {name: corpus.head[name] for name in ("files", "skipped", "left_out", "notes")}
    return {**corpus.head["totals"], "equal_documents": corpus.equal_documents(), **head}

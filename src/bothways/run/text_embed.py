"""`bothways text embed`."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bothways import text
from bothways.errors import BothwaysWarning, UserError
from bothways.run.text_model import open_model
from bothways.run.vector_files import check_place, vector_writer


def text_embed(
    model: str | Path,
    paths: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    pool: str = "mean",
    normalise: bool = False,
    too_long: str = "windows",
    length: int | None = None,
    documents: str = "blank",
    column: str | None = None,
    encoding: str | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Writes the encoder's vector of each document: a row of a table, or a stretch of a text file.

    However large the corpus, some thousand documents are held at a time. For texts in memory there is `text.embed`, and
    `bothways.load(model).embed(texts)`.

    Args:
        model: a run on text, or a BERT that transformers saved.
        paths: files and folders; see `text.Documents`.
        out: `FILE.parquet`: the columns `file`, `line` (where the document begins; of a table the row), `tokens`
            (without [CLS] and [SEP]) and `vector` (D numbers). `FILE.npy`: an array [n D], and the other columns in
            `FILE.csv`. `FILE.npz`: `vectors` [n D], `line`, `tokens`, `file` (a place in `files`), `files`.
        pool: see `text.embed`.
        normalise: scale each vector to length 1.
        too_long: see `text.embed`.
        length: tokens of a window; if none, those that the model was trained on.
        documents: what ends a document in plain text: a `blank` line, the `file`'s end, or each `line`'s.
        column: of tables, the text's name.
        encoding: of all text files; if none, that of each is found.
        overwrite: replace `out`, if bothways wrote it.

    Returns:
        `model`, `out`, `files_written`, `size` (D), `pool`, `normalise`, `length`, `tokens`, `too_long` (`documents`,
        `rule`), `load_report`, and of the corpus what `text_tokenizer` returns of it (`documents`, `empty_documents`,
        which have no vector, `files`, `skipped`, `left_out`, `notes`).

    Raises:
        UserError: no such model, no text, a setting that is none, or `out` cannot be written.
    """
    out, paths = Path(out), [paths] if isinstance(paths, str | Path) else list(paths)
    check_place(out, overwrite, [model, *paths])
    corpus = text.Documents(paths, documents, column, encoding)
    opened = open_model(model)
    window = text.check_settings(opened.model, pool, too_long, opened.length if length is None else length)
    size = opened.model.config.encoder.hidden_size
    n = n_tokens = n_too_long = 0
    with vector_writer(out, size) as writer:
        for some in text.pools(corpus, "embed"):
            found = text.text_vectors(
                opened.model, opened.tokenizer, [one.text for one in some], pool, too_long, window
            )  # fmt: skip
            values = text.normalised(found.values) if normalise else found.values
            writer.add(some, found.tokens, values)
            n, n_tokens, n_too_long = n + len(some), n_tokens + int(found.tokens.sum()), n_too_long + found.n_too_long
        if not n:
            where, why = ", ".join(map(str, paths)), corpus.first_reason()
            raise UserError(f"{where}: expected documents, found none{why}; check the corpus")
        writer.finish()
    if n_too_long:
        said = text.said_too_long(n_too_long, n, too_long)
        warnings.warn(f"{said} ({window} tokens)", BothwaysWarning, stacklevel=2)
    return {
        "model": str(opened.folder), "out": str(out), "files_written": [str(path) for path in writer.files],
        "size": size, "pool": pool, "normalise": normalise, "length": window, "tokens": n_tokens,
        "too_long": {"documents": n_too_long, "rule": too_long}, **corpus.summary(),
        "load_report": opened.report.as_dict(),
    }  # fmt: skip

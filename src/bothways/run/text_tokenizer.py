"""`bothways text tokenizer`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bothways import text
from bothways.files import check_output, new_folder, write_json

CORPUS = "corpus.json"


def text_tokenizer(
    paths: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    vocab: int = 8192,
    cased: bool = False,
    strip_accents: bool | None = None,
    documents: str = "blank",
    column: str | None = None,
    encoding: str | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Learns a WordPiece vocabulary and writes it as transformers reads it.

    Written are `tokenizer.json`, `vocab.txt`, `tokenizer_config.json`, and `corpus.json`: what this function returns
    but `out`. The same text gives the same bytes.

    Args:
        paths: files and folders; see `text.Documents`.
        out: the folder to write.
        vocab: tokens at most, the five special ones among them.
        cased: keep capital letters.
        strip_accents: whether é becomes e; if none, unless `cased`, as in BERT.
        documents: what ends a document in plain text: a `blank` line, or only the `file`'s end.
        column: of tables, the text's name.
        encoding: of all text files; if none, that of each is found.
        overwrite: replace `out`.

    Returns:
        `out`, `settings`, `vocab_size`, `tokens`, `unknown` (how many of these are [UNK]), `characters`, `alphabet`,
        `alphabet_left_out` and `share_left_out` (see `text.train_wordpiece`), `documents`, `empty_documents`, `files`
        (of each `file`, `encoding`, `column`, `documents`, `empty`), `skipped` and `left_out` (file, reason), `notes`
        (code -> messages).

    Raises:
        UserError: a path that is not there, no text, a setting that is none, or `out` cannot be written.
    """
    out, paths = Path(out), [paths] if isinstance(paths, str | Path) else paths
    check_output(out, overwrite=overwrite, inputs=paths)
    corpus = text.Documents(paths, documents, column, encoding)
    tokenizer, learned = text.train_wordpiece(corpus, vocab, lowercase=not cased, strip_accents=strip_accents)
    found = corpus.summary()
    if learned["vocab_size"] < vocab:
        found["notes"]["small_vocabulary"] = [
            f"the corpus gives {learned['vocab_size']:,} tokens, not {vocab:,}: no more pieces occur twice"
        ]
    if learned["alphabet_left_out"]:
        found["notes"]["rare_characters"] = [
            f"{learned['alphabet_left_out']:,} rare characters ({learned['share_left_out']:.2%} of the corpus's) have "
            "no token, and words with them are [UNK]; a larger --vocab has room"
        ]
    settings = {
        "vocab": vocab,
        "cased": cased,
        "strip_accents": not cased if strip_accents is None else strip_accents,
        "documents": documents,
        "column": column,
        "encoding": encoding,
    }
    result = {"out": str(out), "settings": settings, **learned, **found}
    with new_folder(out, overwrite=overwrite) as folder:
        text.save_tokenizer(tokenizer, folder)
        write_json(folder / CORPUS, {key: value for key, value in result.items() if key != "out"})
    return result

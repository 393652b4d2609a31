"""The commands of text."""

from pathlib import Path
from typing import Annotated

import typer

from bothways.cli.commands import AsJson, Out, Overwrite, app
from bothways.cli.printing import counted, out, print_json, print_notes

text = typer.Typer(help="Text: files and folders in, a BERT of one's own out.", no_args_is_help=True)
app.add_typer(text, name="text")
Corpus = Annotated[
    list[Path], typer.Argument(metavar="CORPUS", help="Files, or folders: .txt .csv .tsv .jsonl .ndjson .parquet.")
]
Separator = Annotated[
    str, typer.Option("--documents", help="What ends a document in plain text: a blank line, or the file: blank, file.")
]
Column = Annotated[str | None, typer.Option(help="Of tables, the text's; found if left out and obvious.")]
Encoding = Annotated[str | None, typer.Option(help="Of the text files, e.g. cp1251; found and said if left out.")]


@text.command(epilog="Example: bothways text tokenizer corpus/ --vocab 8192 --out tokenizer")
def tokenizer(
    corpus: Corpus,
    out_folder: Out,
    vocab: Annotated[int, typer.Option(help="Tokens at most.")] = 8192,
    cased: Annotated[bool, typer.Option("--cased", help="Keep capital letters.")] = False,
    strip_accents: Annotated[
        bool | None,
        typer.Option("--strip-accents/--keep-accents", help="é becomes e; if left out, unless --cased."),
    ] = None,
    documents: Separator = "blank",
    column: Column = None,
    encoding: Encoding = None,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Learn a WordPiece vocabulary that transformers reads; exit 2 if a file could not be used (the others are)."""
    from bothways import run

    result = run.text_tokenizer(
        corpus, out_folder, vocab=vocab, cased=cased, strip_accents=strip_accents, documents=documents, column=column,
        encoding=encoding, overwrite=overwrite,
    )  # fmt: skip
    status = 2 if result["skipped"] else 0
    if json:
        print_json(result)
        raise typer.Exit(status)
    for one in result["skipped"]:
        out.print(f"skipped {one['file']}: {one['reason']}")
    print_notes({f"note, {code}": messages for code, messages in result["notes"].items()})
    if result["left_out"]:
        print_notes({"left out": [f"{one['file']}: {one['reason']}" for one in result["left_out"]]})
    encodings = sorted({one["encoding"] for one in result["files"] if one["encoding"]})
    out.print(
        f"{counted(result['documents'], 'document', 'documents')} ({result['empty_documents']} empty ones left out) of "
        f"{counted(len(result['files']), 'file', 'files')}{' in ' * bool(encodings)}{', '.join(encodings)}"
    )
    share, per_token = result["unknown"] / result["tokens"], result["characters"] / result["tokens"]
    out.print(
        f"{result['vocab_size']:,} tokens; the corpus is {result['tokens']:,} of them, {share:.3%} [UNK], "
        f"{per_token:.2f} characters each"
    )
    out.print(f"written: {result['out']}/, for transformers' AutoTokenizer.from_pretrained")
    raise typer.Exit(status)

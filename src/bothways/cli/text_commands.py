"""The commands of text."""

from pathlib import Path
from typing import Annotated, Any

import typer

from bothways.cli.commands import AsJson, Changes, Force, Out, Overwrite, RunOut, app
from bothways.cli.printing import counted, new_table, number, out, print_found, print_json, print_training

text = typer.Typer(help="Text: files and folders in, a BERT of one's own out.", no_args_is_help=True)
app.add_typer(text, name="text")
Corpus = Annotated[
    list[Path], typer.Argument(metavar="CORPUS", help="Files, or folders: .txt .csv .tsv .jsonl .ndjson .parquet.")
]
Separator = Annotated[
    str, typer.Option("--documents", help="What ends a document in plain text: blank (line), file, line.")
]
Column = Annotated[str | None, typer.Option(help="Of tables, the text's; found if left out and obvious.")]
Workers = Annotated[
    int | None, typer.Option(help="Processes that tokenise; by default one for each core, fewer where little is to do.")
]
Encoding = Annotated[str | None, typer.Option(help="Of the text files, e.g. cp1251; found and said if left out.")]


def say_found(result: dict[str, Any], json: bool) -> int:
    """Prints what was found in files and returns the status; with --json prints all of the result and ends."""
    status = 2 if result["skipped"] else 0
    if json:
        print_json(result)
        raise typer.Exit(status)
    print_found(result)
    return status


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
    status = say_found(result, json)
    share, per_token = result["unknown"] / result["tokens"], result["characters"] / result["tokens"]
    out.print(
        f"{result['vocab_size']:,} tokens; the corpus is {result['tokens']:,} of them, {share:.3%} [UNK], "
        f"{per_token:.2f} characters each"
    )
    out.print(f"written: {result['out']}/, for transformers' AutoTokenizer.from_pretrained")
    raise typer.Exit(status)


@text.command(epilog="Example: bothways text prepare corpus/ --tokenizer tokenizer --out store")
def prepare(
    corpus: Corpus,
    out_folder: Out,
    tokenizer: Annotated[Path, typer.Option(help="A folder with one: of `tokenizer`, a run, or a model.")],
    documents: Separator = "blank",
    column: Column = None,
    encoding: Encoding = None,
    workers: Workers = None,
    dask: Annotated[str | None, typer.Option(help="Address of a Dask cluster that works instead.")] = None,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Tokenise text once for training; exit 2 if a file could not be used (the others are). Goes on where it was."""
    from bothways import run

    result = run.text_prepare(
        corpus, out_folder, tokenizer, documents=documents, column=column, encoding=encoding, overwrite=overwrite,
        workers=workers, dask=dask,
    )  # fmt: skip
    status = say_found(result, json)
    again = f"; {result['reused']} chunks were finished before" if result["reused"] else ""
    equal = (
        f", {counted(result['equal_documents'], 'document equals', 'documents equal')} one before"
        if result["equal_documents"]
        else ""
    )
    out.print(
        f"{result['tokens']:,} tokens, {result['unknown'] / result['tokens']:.3%} [UNK], {result['sentences']:,} "
        f"sentences, {result['next_pairs']:,} pairs of neighbours{equal}{again}"
    )
    out.print(f"written: {result['corpus']}/")
    raise typer.Exit(status)


@text.command(
    epilog="Example: bothways text pretrain corpus/ --out run --set encoder.size=mini --set training.minutes=9"
)
def pretrain(
    corpus: Annotated[
        list[Path], typer.Argument(metavar="CORPUS", help="Files, or folders of text; or what `prepare` made.")
    ],
    out_folder: RunOut,
    tokenizer: Annotated[
        Path | None, typer.Option(help="A folder with one; if left out, a vocabulary is learned (vocabulary.size).")
    ] = None,
    recipe: Annotated[Path | None, typer.Option(help="TOML file with settings.")] = None,
    changes: Changes = None,
    documents: Separator = "blank",
    column: Column = None,
    encoding: Encoding = None,
    workers: Workers = None,
    overwrite: Overwrite = False,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Train a BERT on text: hidden tokens, next sentences; exit 2 if a file could not be used. Goes on where it was."""
    from bothways import run

    result = run.text_pretrain(
        corpus, out_folder, tokenizer=tokenizer, recipe=recipe, changes=changes or (), documents=documents,
        column=column, encoding=encoding, workers=workers, overwrite=overwrite, force=force,
    )  # fmt: skip
    prepared_here = Path(result["corpus"]) not in corpus  # of a corpus that was given `prepare` has said it
    status = 2 if result["skipped"] and prepared_here else 0
    if json:
        print_json(result)
        raise typer.Exit(status)
    where = "kept out" if result["held_out_documents"] else "trained on"
    table = new_table("on documents " + where, "loss", "accuracy", "of")
    near = result["held_out_of_files_trained_on"]
    names = {"mlm": "hidden tokens (MLM)", "nsp": "next sentence (NSP)"}
    for name, one in result["validation"].items():
        table.add_row(names[name], number(one["loss"]), number(one.get("accuracy")), f"{one['n']:,}")
    out.print(table)
    out.print(
        f"{counted(result['trained_documents'], 'document', 'documents')} trained on, "
        f"{result['held_out_documents']:,} kept out"
        + f" ({near:,} of them in files that are trained on, too)"
        * bool(near)
        + f"; the tokens "
        f"are in {result['corpus']}/"
    )
    print_training(result, "sequences")
    raise typer.Exit(status)


@text.command(epilog="Example: bothways text show run --n 3")
def show(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="A run of `pretrain`, or a corpus of `prepare`.")],
    n: Annotated[int, typer.Option(help="How many sequences.")] = 5,
    seed: Annotated[int | None, typer.Option(help="Of which ones; the run's if left out.")] = None,
    epoch: Annotated[int, typer.Option(help="Another one has other tokens hidden.")] = 0,
    corpus: Annotated[Path | None, typer.Option(help="Where the run's corpus is now, if it was moved.")] = None,
    json: AsJson = False,
) -> None:
    """Show sequences as they are trained on: what is hidden, by what, and what the model says."""
    from bothways import run

    result = run.text_show(path, n=n, seed=seed, epoch=epoch, corpus=corpus)
    if json:
        return print_json(result)
    pairs = {"next": ", the second part is the next (label 0)", "random": ", the second part is of another (label 1)"}
    for one in result["examples"]:
        out.print(f"{one['document']}, sequence {one['sequence']}{pairs.get(one['pair'], '')}")
        out.print(f"  {one['seen']}")
        for token in one["hidden"]:
            by = token["by"] if token["by"] == "unchanged" else token["seen"]
            guess = f"; model: {token['guess']}, truth {token['probability']:.3f}" if "guess" in token else ""
            out.print(f"    {token['position']:>4}  {token['truth']} -> {by}{guess}")

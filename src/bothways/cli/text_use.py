"""The commands that use a model of text."""

from pathlib import Path
from typing import Annotated

import typer

from bothways.cli.commands import AsJson, Overwrite
from bothways.cli.printing import counted, interval, new_table, number, out, print_json, print_notes
from bothways.cli.text_commands import Column, Corpus, Encoding, Separator, say_found, text
from bothways.cli.text_labels import print_measured

Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A run on text, or a folder of a BERT of transformers.")]
Length = Annotated[
    int | None, typer.Option(help="Tokens that are read together; if left out, those the model was trained on.")
]


@text.command(
    "fill-mask", epilog='Example: bothways text fill-mask model "the cat [MASK] on the mat" --targets sat,slept'
)
def fill_mask(
    model: Model,
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="With [MASK] where a word is.")] = None,
    file: Annotated[Path | None, typer.Option(help="More of them: a line each, or a row of a table.")] = None,
    top: Annotated[int, typer.Option(help="Tokens for each mask.")] = 5,
    targets: Annotated[str | None, typer.Option(help="Score these words alone, parted by commas.")] = None,
    column: Column = None,
    encoding: Encoding = None,
    json: AsJson = False,
) -> None:
    """Predict hidden words, as transformers' fill-mask does."""
    from bothways import run

    words = None if targets is None else [word for one in targets.split(",") if (word := one.strip())]
    result = run.text_fill_mask(
        model, texts or [], file=file, top=top, targets=words, column=column, encoding=encoding
    )  # fmt: skip
    if json:
        return print_json(result)
    print_notes({f"note, {code}": messages for code, messages in result["notes"].items()})
    for one in result["texts"]:
        out.print(one["text"])
        for place, mask in enumerate(one["masks"], 1):
            shown = ", ".join(f"{found['token']} {found['probability']:.3f}" for found in mask["top"])
            out.print(f"  {f'mask {place}: ' if len(one['masks']) > 1 else ''}{shown}")
        out.print(f"  {one['filled']}")
    return None


@text.command(epilog="Example: bothways text embed model reviews.csv --column text --out vectors.parquet")
def embed(
    model: Model,
    corpus: Corpus,
    out_file: Annotated[
        Path, typer.Option("--out", help="FILE.parquet, FILE.npy (with FILE.csv beside it) or FILE.npz.")
    ],
    pool: Annotated[
        str, typer.Option(help="mean of all tokens, [CLS] and [SEP] among them (as sentence-transformers), or cls.")
    ] = "mean",
    normalise: Annotated[bool, typer.Option("--normalise", help="Scale each vector to length 1.")] = False,
    too_long: Annotated[
        str, typer.Option(help="What is longer than the model: windows (their mean is taken) or cut (the beginning).")
    ] = "windows",
    length: Length = None,
    documents: Separator = "blank",
    column: Column = None,
    encoding: Encoding = None,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Write a vector for each document or row; exit 2 if a file could not be used (the others are)."""
    from bothways import run

    result = run.text_embed(
        model, corpus, out_file, pool=pool, normalise=normalise, too_long=too_long, length=length,
        documents=documents, column=column, encoding=encoding, overwrite=overwrite,
    )  # fmt: skip
    status = say_found(result, json)
    out.print(f"{counted(result['documents'], 'vector', 'vectors')} of {result['size']} numbers, {result['pool']}")
    out.print(f"written: {', '.join(result['files_written'])}")
    raise typer.Exit(status)


@text.command(epilog="Example: bothways text evaluate model held-out/ --n 500")
def evaluate(
    model: Model,
    texts: Annotated[
        list[Path] | None,
        typer.Argument(metavar="CORPUS", help="Files, or folders of text; if left out, what the run has kept out."),
    ] = None,
    corpus: Annotated[Path | None, typer.Option(help="Where the run's corpus is now, if it was moved.")] = None,
    ratio: Annotated[float, typer.Option(help="Share of the tokens that is hidden.")] = 0.15,
    n: Annotated[int, typer.Option("--n", help="Sentences whose tokens are hidden one by one, and pairs.")] = 200,
    seed: Annotated[int, typer.Option(help="Of what is hidden and drawn.")] = 0,
    length: Length = None,
    documents: Separator = "blank",
    column: Column = None,
    encoding: Encoding = None,
    json: AsJson = False,
) -> None:
    """Measure a model on texts: hidden tokens, pseudo-perplexity, next sentence, beside two guesses.

    Exit 2 if a file could not be used (the others are).
    """
    from bothways import run

    result = run.text_evaluate(
        model, texts or (), corpus=corpus, ratio=ratio, n=n, seed=seed, length=length, documents=documents,
        column=column, encoding=encoding,
    )  # fmt: skip
    if "metrics" in result:
        return print_json(result) if json else print_measured(result)
    status = say_found(result, json)
    mlm, controls, pseudo = result["mlm"], result["controls"], result["pseudo_perplexity"]
    common = controls["most_frequent"]
    table = new_table("", "loss", "perplexity", "accuracy", title=f"{mlm['hidden']:,} hidden tokens")
    table.add_row("this model", number(mlm["loss"]), number(mlm["perplexity"]), f"{mlm['accuracy']:.1%}")
    table.add_row("unigram", number(controls["unigram"]["loss"]), number(controls["unigram"]["perplexity"]), "")
    table.add_row(f"always {common['token']}", "", "", f"{common['accuracy']:.1%}")
    out.print(table)
    out.print(
        f"pseudo-perplexity of {pseudo['sentences']} of {counted(pseudo['of'], 'sentence', 'sentences')}: "
        f"{number(pseudo['per_token'])} per token, {number(pseudo['per_word'])} per word"
    )
    if result["next_sentence"] is not None:
        accuracy = result["next_sentence"]["accuracy"]
        out.print(
            f"next sentence: {accuracy['value']:.1%} of {accuracy['n']} pairs right ({interval(accuracy)}; half of "
            "them follow each other)"
        )
    if len(result["by_file"]) > 1:
        worst = max(result["by_file"], key=lambda one: one["loss"])
        out.print(f"worst of {len(result['by_file'])} files: {worst['file']}, loss {number(worst['loss'])}")
    out.print(f"{result['tokens']:,} tokens, {result['unknown_share']:.3%} [UNK]")
    raise typer.Exit(status)

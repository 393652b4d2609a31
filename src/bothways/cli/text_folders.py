"""The commands that take a text model from others, and to them."""

from pathlib import Path
from typing import Annotated

import typer

from bothways.cli.commands import AsJson, Out, Overwrite
from bothways.cli.printing import out, print_json
from bothways.cli.text_commands import text


@text.command("import", epilog="Example: bothways text import bert-base-uncased/ --out bert")
def text_import(
    folder: Annotated[Path, typer.Argument(help="A BERT in safetensors, with its config and tokenizer.")],
    out_folder: Out,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Take a BERT that transformers or TensorFlow named, and say what became of each weight.

    What is written opens here and in transformers: present names, float32, tokenizer.json beside vocab.txt.
    """
    from bothways import run

    result = run.text_import(folder, out_folder, overwrite=overwrite)
    if json:
        return print_json(result)
    report = result["load_report"]
    renamed = f", renamed from {result['names']}" * bool(result["names"])
    out.print(
        f"{len(report['matched'])} tensors, {result['body_share']:.0%} of embedding and encoder{renamed}; "
        f"heads: {', '.join(result['heads']) or 'none'}"
    )
    for what in ("missing", "unexpected"):
        if report[what]:
            out.print(f"{what}: {', '.join(report[what])}")
    for note in result["notes"]:
        out.print(f"note: {note}")
    out.print(f"{result['parameters']:,} parameters; {result['tokens']:,} tokens in {result['vocab_size']:,} rows")
    out.print(f"written: {result['out']}/, for {result['architecture']}.from_pretrained")


@text.command("export", epilog="Example: bothways text export my-bert --out for-others")
def text_export(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run on text, or a checkpoint of one.")],
    out_folder: Out,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Write of a run on text what transformers needs, and nothing of what it was trained on."""
    from bothways import run

    result = run.text_export(run_folder, out_folder, overwrite=overwrite)
    if json:
        return print_json(result)
    out.print(f"{result['parameters']:,} parameters; heads: {', '.join(result['heads']) or 'none'}")
    out.print(f"left out: {', '.join(result['left_out']) or 'nothing'}")
    out.print(f"written: {result['out']}/, for {result['architecture']}.from_pretrained")

"""The commands that write models for other software."""

from pathlib import Path
from typing import Annotated

import typer

from bothways.cli.commands import AsJson, app
from bothways.cli.printing import number, out, print_json

export = typer.Typer(help="Models for other software.", no_args_is_help=True)
app.add_typer(export, name="export")


@export.callback()
def _export() -> None: ...


@export.command("onnx", epilog="Example: bothways export onnx classifier --out classifier.onnx --int8 --data test.csv")
def export_onnx(
    run_folder: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run on EEG or text, or a BERT that transformers saved.")
    ],
    out_file: Annotated[Path, typer.Option("--out", help="NAME.onnx.")],
    int8: Annotated[bool, typer.Option("--int8", help="Write NAME-int8.onnx, too, a quarter of the weights.")] = False,
    data: Annotated[
        list[Path] | None,
        typer.Option(help="Measure the files: a table with labels, or a run's store (its tested people)."),
    ] = None,
    vectors: Annotated[bool, typer.Option("--vectors", help="The encoder's vectors, not what its head says.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that exist.")] = False,
    json: AsJson = False,
) -> None:
    """Write a model as one ONNX file, for onnxruntime; any number and length of inputs, with padding.

    It is compared with the model on inputs of other sizes than it was traced with; what it needs is in its metadata.
    """
    from bothways import run

    result = run.export_onnx(
        run_folder, out_file, int8=int8, data=data or (), vectors=vectors, overwrite=overwrite
    )  # fmt: skip
    if json:
        return print_json(result)
    facts, small = result["facts"], result["int8"]
    for what in ("inputs", "outputs"):
        out.print(f"{what}: {', '.join(facts[what])}")
    if facts["classes"]:
        out.print(f"classes: {', '.join(facts['classes'])}", markup=False)
    out.print(f"largest difference to the model: {result['largest_difference']:.1e}")
    if small is not None:
        same = "" if small["agreement"] is None else f"; on drawn inputs it decides alike in {small['agreement']:.1%}"
        out.print(f"int8: largest difference {small['largest_difference']:.1e}{same}")
    if result["data"] is not None:
        for name, one in result["data"]["figures"].items():
            shown = f", int8 {number(one['int8'])}, difference {number(one['difference'])}" if "int8" in one else ""
            out.print(f"{name.replace('.', ' ').replace('_', ' ')}: {number(one['float'])}{shown}")
        out.print(f"largest difference on the data: {result['data']['largest_difference']:.1e}")
    for note in result["notes"]:
        out.print(f"note: {note}", markup=False)
    sizes = {result["out"]: result["bytes"], **({small["out"]: small["bytes"]} if small is not None else {})}
    for file, size in sizes.items():
        out.print(f"written: {file}, {size / 1e6:.1f} MB")
    if result["tokenizer"]:
        out.print(f"written: {result['tokenizer']}")
    return None

"""The commands of text with labels: fine-tuning, and predictions."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from bothways.cli.commands import AsJson, Changes, Force, Overwrite, RunOut
from bothways.cli.printing import counted, interval, new_table, number, out, print_json, print_notes, print_training
from bothways.cli.text_commands import Encoding, text

Run = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run of `finetune`, or a folder of a classifier of transformers.")
]


@text.command(
    epilog="Example: bothways text finetune --from my-bert --data train.csv --set columns.label=stars --out classifier"
)
def finetune(
    start: Annotated[Path, typer.Option("--from", help="A run on text, or a BERT that transformers saved.")],
    data: Annotated[list[Path], typer.Option(help="A table with texts and labels: .csv .tsv .jsonl .parquet.")],
    out_folder: RunOut,
    validation: Annotated[
        list[Path] | None, typer.Option(help="Another to measure on; if left out, some rows are kept out.")
    ] = None,
    recipe: Annotated[Path | None, typer.Option(help="TOML file with settings.")] = None,
    changes: Changes = None,
    overwrite: Overwrite = False,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Train a BERT on texts with labels: a class, several at once, or a number. Goes on where it was."""
    from bothways import run

    result = run.text_finetune(
        start, data, out_folder, validation=validation or (), recipe=recipe, changes=changes or (),
        overwrite=overwrite, force=force,
    )  # fmt: skip
    if json:
        return print_json(result)
    for part, counts in result["texts"].items():
        out.print(f"{part}: " + ", ".join(f"{n:,} {name}" for name, n in counts.items()), markup=False)
    if result["validation"] is not None:
        out.print(_line(result["labels"], result["validation"]))
    print_training(result, "sequences")


@text.command(epilog="Example: bothways text predict classifier new.csv --out predictions.csv")
def predict(
    model: Run,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Tables, or .txt with a text on each line; if left out, standard input."),
    ] = None,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="FILE.csv or FILE.jsonl; if left out, they are printed.")
    ] = None,
    encoding: Encoding = None,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Say of each text what a run has learned to tell; any number of texts."""
    from bothways import run

    lines = None if files else (line.rstrip("\n") for line in sys.stdin)
    result = run.text_predict(model, files or (), out_file, texts=lines, encoding=encoding, overwrite=overwrite)
    if json:
        return print_json(result)
    print_notes({f"note, {code}": messages for code, messages in result["notes"].items()})
    for one in result.get("predictions", ()):
        if result["labels"] == "tags":
            marked = "; ".join(f"{entity['text']} ({entity['type']})" for entity in one["entities"])
            out.print(f"{one['file'] or ''}{':' * bool(one['file'])}{one['row']}  {marked or '–'}", markup=False)
            continue
        value = one["prediction"]
        shown = number(value) if isinstance(value, float) else "; ".join(value) if isinstance(value, list) else value
        sure = f"  {one['probability']:.3f}" if one.get("probability") is not None else ""
        place = f"{one['file']}:{one['row']}" if one["file"] else str(one["row"])
        out.print(f"{place}  {'–' if shown is None else shown}{sure}", markup=False)
    counts = ", ".join(f"{n:,} {name}" for name, n in (result["counts"] or {}).items())
    out.print(f"{counted(result['n'], 'text', 'texts')}{': ' if counts else ''}{counts}", markup=False)
    if result["out"]:
        out.print(f"written: {result['out']}")
    return None


def print_measured(result: dict[str, Any]) -> None:
    """Prints how well a fine-tuned run does on labelled texts."""
    print_notes({"note": result["notes"]} if result["notes"] else {})
    out.print(_line(result["labels"], result["metrics"]))
    for name, found in result["controls"].items():
        out.print(f"{name.replace('_', ' ')}, a guess: {_line(result['labels'], found)}")
    if result["labels"] == "tags":
        table = new_table("type", "entities", "predicted", "precision", "recall", "F1")
        for name, one in result["metrics"]["types"].items():
            figures = (number(one[key]) for key in ("precision", "recall", "f1"))
            table.add_row(name, f"{one['support']:,}", f"{one['n_predicted']:,}", *figures)
        out.print(table)
    if result["labels"] == "classes":
        table = new_table("class", "texts", "precision", "recall", "F1", "AUROC")
        for name, one in result["metrics"]["per_class"].items():
            table.add_row(name, f"{one['n']:,}", *(number(one[key]) for key in ("precision", "recall", "f1", "auroc")))
        out.print(table)


def _line(kind: str, found: dict[str, Any]) -> str:
    """Returns the main figures."""
    if kind == "tags":
        micro = found["micro"]
        of_two = f"precision {micro['precision']:.3f}, recall {micro['recall']:.3f}"
        strictly = f"strictly {found['strict']['scheme']} {found['strict']['f1']:.3f}"
        words = f"words right {found['word_accuracy']:.3f}, n = {found['n']}"
        return f"entities: F1 {micro['f1']:.3f} ({of_two}), {strictly}, {words}"
    if kind == "number":
        figures = {"mean error": found["mae"], "R²": found["r2"], "Pearson": found["pearson"]}
        return ", ".join(f"{name} {number(value)}" for name, value in figures.items()) + f", n = {found['n']}"
    if kind == "several":
        macro = found["macro"]
        figures = {"macro AUROC": macro["auroc"], "macro F1": macro["f1"], "all right": found["exact_match"]}
        return ", ".join(f"{name} {number(value)}" for name, value in figures.items())
    sure = f" ({interval(found['accuracy_interval'])})" if "accuracy_interval" in found else ""
    return (
        f"accuracy {found['accuracy']:.3f}{sure}, balanced {number(found['balanced_accuracy'])}, macro F1 "
        f"{number(found['macro_f1'])}, AUROC {number(found['auroc'])}, n = {found['n']}"
    )

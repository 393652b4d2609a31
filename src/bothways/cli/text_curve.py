"""`bothways text curve`."""

from pathlib import Path
from typing import Annotated

import typer

from bothways.cli.commands import AsJson, Changes, Overwrite
from bothways.cli.printing import new_table, out, print_json, print_notes
from bothways.cli.text_commands import text


@text.command(epilog="Example: bothways text curve --from my-bert --data train.csv --test test.csv --out curve")
def curve(
    start: Annotated[Path, typer.Option("--from", help="A run on text, or a BERT that transformers saved.")],
    data: Annotated[list[Path], typer.Option(help="A table with texts and labels: .csv .tsv .jsonl .parquet.")],
    out_folder: Annotated[
        Path, typer.Option("--out", help="The curve's folder; one that was stopped goes on with the same settings.")
    ],
    test: Annotated[
        list[Path] | None, typer.Option(help="A table to test on; if left out, each seed keeps some texts out.")
    ] = None,
    labels: Annotated[
        list[int] | None,
        typer.Option(help="A number of labels; if left out 100, 1,000 and 10,000, as far as there are."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many draws of labelled texts, order and first weights.")] = 5,
    arms: Annotated[
        list[str] | None,
        typer.Option(
            "--arm",
            help="frozen, full, scratch, tfidf (all four if left out), frozen_cls, frozen_last_four or full_mean.",
        ),
    ] = None,
    rates: Annotated[
        list[float] | None,
        typer.Option("--rate", help="A multiple of the learning rate to try; if left out 1, from scratch 10."),
    ] = None,
    measure: Annotated[str, typer.Option(help="accuracy, balanced_accuracy, macro_f1 or auroc.")] = "accuracy",
    recipe: Annotated[Path | None, typer.Option(help="TOML file with settings.")] = None,
    changes: Changes = None,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Compare ways to learn with 100, 1,000, 10,000 labels: frozen, all weights, from scratch, word counts."""
    from bothways import run

    result = run.text_curve(
        start, data, out_folder, test=test or (), recipe=recipe, changes=changes or (), labels=labels or (),
        seeds=seeds, rates=rates or (), arms=arms or (), measure=measure, overwrite=overwrite,
    )  # fmt: skip
    if json:
        return print_json(result)
    print_notes({"note": result["notes"]} if result["notes"] else {})
    table = new_table("arm", *(f"{n:,} labels" for n in result["labels"]))
    for name, title in result["titles"].items():
        table.add_row(title, *(_shown(row["arms"].get(name)) for row in result["sizes"]))
    out.print(table)
    for line in result["said"]:
        out.print(line, markup=False)
    folder = result["out"]
    out.print(f"written: {folder}/report.html, {folder}/curve.json; {result['seconds']:.0f} s in all", markup=False)
    return None


def _shown(arm: dict[str, float] | None) -> str:
    if arm is None:
        return "–"
    if arm["low"] is None:
        return f"{arm['mean']:.3f}"
    return f"{arm['mean']:.3f} ({arm['low']:.3f} to {arm['high']:.3f})"

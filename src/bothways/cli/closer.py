"""The commands that look closer at a run: evaluation, curves and probes."""

from pathlib import Path
from typing import Annotated

import typer

from bothways.cli.commands import AsJson, Changes, Data, Overwrite, Recipe, eeg
from bothways.cli.printing import interval, new_table, number, out, print_evaluation, print_json, print_loaded

curve = typer.Typer(help="Curves: over labelled people, over channels.", no_args_is_help=True)
eeg.add_typer(curve, name="curve")
CurveOut = Annotated[
    Path, typer.Option("--out", help="The curve's folder; one that was stopped goes on with the same settings.")
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A fine-tuned run.")]
Moved = Annotated[Path | None, typer.Option("--data", help="The run's store, if it has moved.")]
Page = Annotated[Path | None, typer.Option("--html", help="Write the result as a page to this file.")]
ReplacePage = Annotated[bool, typer.Option("--overwrite", help="Replace --html if it exists.")]


@eeg.command(epilog="Example: bothways eeg evaluate run2 --html evaluation.html")
def evaluate(
    run_folder: RunFolder,
    data: Moved = None,
    part: Annotated[str, typer.Option(help="test or validation.")] = "test",
    event_rules: Annotated[
        list[str] | None,
        typer.Option("--event-rule", help="As before_s=1 or merge_s=2; SzCORE's if left out."),
    ] = None,
    html: Page = None,
    overwrite: ReplacePage = False,
    json: AsJson = False,
) -> None:
    """Measure a fine-tuned run on people it has not seen, beside controls on the same split."""
    from bothways import run

    result = run.evaluate(
        run_folder, data=data, part=part, event_rules=event_rules or (), html=html, overwrite=overwrite
    )
    if json:
        return print_json(result)
    print_loaded(result["load_report"])
    print_loaded(result["probe_load_report"], "weights of the frozen probe")
    print_evaluation(result)
    if html is not None:
        out.print(f"written: {html}")


@curve.command(
    "labels", epilog="Example: bothways eeg curve labels --from run --data store --labels labels.csv --out curve"
)
def label_curve(
    start: Annotated[
        list[str], typer.Option("--from", help="A pretrained run, or one for each --split; `scratch`: controls alone.")
    ],
    data: Data,
    labels: Annotated[str, typer.Option(help="As `finetune` takes them.")],
    out_folder: CurveOut,
    recipe: Recipe = None,
    changes: Changes = None,
    split: Annotated[
        list[Path] | None, typer.Option("--split", help="Split file; several take turns. If left out, each seed's own.")
    ] = None,
    people: Annotated[
        list[int] | None, typer.Option(help="A number of labelled people; if left out 1, 2, 4, … and all.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Trials: whom, first weights, order, and the split.")] = 5,
    rate: Annotated[
        list[float] | None,
        typer.Option(help="Learning rates to try, times the recipe's; 0.3, 1 and 3 if left out."),
    ] = None,
    arm: Annotated[
        list[str] | None,
        typer.Option(help="An arm of compare; band_power, scratch, frozen_probe and finetuned if left out."),
    ] = None,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Compare arms with 1, 2, 4, 8 … labelled people, each number holding the smaller ones; writes OUT/report.html.

    Who they are is in OUT/people-N/splits. What is finished is kept, not done again, and stays in the result.
    """
    from bothways import run

    result = run.label_curve(
        start, data, labels, out_folder, recipe=recipe, changes=changes or (), splits=split or (),
        people=people or (), seeds=seeds, arms=arm or (), overwrite=overwrite, **({"rates": rate} if rate else {}),
    )  # fmt: skip
    if json:
        return print_json(result)
    table = new_table(
        "people", "balanced accuracy", "over trials", "n", "95 %", "over people", "95 %",
        title=f"{result['seeds']} trials",
    )  # fmt: skip
    for row in result["sizes"]:
        for one in row["arms"].values():
            trials, over = one["over_trials"], one["over_people"]
            n = str(trials["n"] or 0)
            means = number(trials["mean"]), n, interval(trials), number(over["mean"]), interval(over)
            table.add_row(str(row["people"]), one["title"], *means)
    out.print(table)
    table = new_table("people", "arm", "against", "difference", "95 % over people", "above", "better for", "p")
    for row in result["sizes"]:
        for name, those in row["differences"].items():
            for control, d in those.items():
                better = f"{d['wins']} of {d['n']} people"
                titles = result["titles"][name], result["titles"][control]
                above = "yes" if d["above"] else "no"
                shown = number(d["mean"]), interval(d), above, better, number(d["p"])
                table.add_row(str(row["people"]), *titles, *shown)
    if table.row_count:
        out.print(table)
    for line in result["said"]:
        out.print(line)
    for one in result["pretraining_overlap"]:
        out.print(f"split {one['split']}: overlap of the tested people with pretraining: {one['kind']}")
    for note in result["notes"]:
        out.print(f"note: {note}")
    out.print(f"written: {result['out']}/report.html, {result['out']}/curve.json; {result['seconds']:.0f} s in all")


@curve.command("channels", epilog="Example: bothways eeg curve channels run2 --out channels")
def channel_curve(
    run_folder: RunFolder,
    out_folder: CurveOut,
    data: Moved = None,
    part: Annotated[str, typer.Option(help="test or validation.")] = "test",
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Measure a fine-tuned run on 19, 8, 4 and 2 channels and on bipolar differences, without training again."""
    from bothways import run

    result = run.channel_curve(run_folder, out_folder, data=data, part=part, overwrite=overwrite)
    if json:
        return print_json(result)
    table = new_table(
        "montage", "channels", "balanced accuracy", "over people", "95 %", "difference to all", "95 %",
        title=f"{result['n']} {result['thing']}s of {result['part']} people",
    )  # fmt: skip
    for row in result["montages"]:
        d, over = row["difference_to_all"], row["over_people"]
        table.add_row(
            row["name"], str(row["n_channels"]), number(row["balanced_accuracy"]), number(over["mean"]),
            interval(over), *(("", "") if d is None else (number(d["mean"]), interval(d))),
        )  # fmt: skip
    out.print(table)
    for name, why in result["refused"].items():
        out.print(f"not {name}: {why}")
    for note in result["notes"]:
        out.print(f"note: {note}")
    out.print(f"written: {result['out']}/report.html, {result['out']}/channels.json")


@eeg.command(epilog="Example: bothways eeg probe run2 --html probes.html")
def probe(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A pretrained or fine-tuned run.")],
    data: Moved = None,
    steps: Annotated[int, typer.Option(min=1, help="Of each short training.")] = 30,
    shuffles: Annotated[int, typer.Option(min=2, help="How often the labels are dealt anew.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Of deals and trainings.")] = 0,
    html: Page = None,
    overwrite: ReplacePage = False,
    json: AsJson = False,
) -> None:
    """Ask whom a run recognises, whether it learns shuffled labels, and whether it minds a wrong unit."""
    from bothways import run

    result = run.probe(run_folder, data=data, steps=steps, shuffles=shuffles, seed=seed, html=html, overwrite=overwrite)
    if json:
        return print_json(result)
    if one := result["identity"]:
        above = one["above_chance"]
        out.print(
            f"identity: {number(one['accuracy'])} of {one['people']} people's windows, chance {number(one['chance'])}; "
            f"above it by {number(above['mean'])} ({interval(above)}), p {number(above['p'])}"
        )
    if one := result["shuffled"]:
        over, verdict = one["over_shuffles"], "at chance" if one["at_chance"] else "NOT at chance"
        out.print(
            f"shuffled labels: balanced accuracy {number(over['mean'])} ({interval(over)}), {verdict} "
            f"({number(one['chance'])}); as labelled {number(one['as_labelled'])} ({interval(one['over_seeds'])}); "
            f"{over['n']} trainings each, of {one['steps']} steps"
        )
    if result["amplitude"]:
        table = new_table("amplitude", "changed", "balanced accuracy", "as it is", "suspected", "refused", "said")
        for row in result["amplitude"]:
            n = row["recordings"]
            table.add_row(
                row["what"], f"{row['changed']:.0%}", number(row["balanced_accuracy"]), number(row["as_it_is"]),
                f"{row['suspected']} of {n}", f"{row['refused']} of {n}", row["said"],
            )  # fmt: skip
        out.print(table)
    for note in result["notes"]:
        out.print(f"note: {note}")
    if html is not None:
        out.print(f"written: {html}")

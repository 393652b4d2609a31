"""The commands that make recordings."""

from pathlib import Path
from typing import Annotated

import typer

from bothways.cli.commands import AsJson, Out, Overwrite, Paths, SubjectFrom, Unit, eeg
from bothways.cli.printing import out, print_json


@eeg.command(epilog="Example: bothways eeg paste recordings/ --labels labels.csv --background rest --out long")
def paste(
    paths: Paths,
    labels: Annotated[Path, typer.Option(help="CSV file,label or file,onset_s,duration_s,label.")],
    out_folder: Out,
    background: Annotated[str, typer.Option(help="The class that events of the others are pasted into.")] = "rest",
    baseline: Annotated[
        Path | None,
        typer.Option(help="CSV file,onset_s,duration_s: opens the person's recordings, without a label."),
    ] = None,
    recordings: Annotated[int, typer.Option(help="Of each person, each cut and ordered anew.")] = 1,
    shortest_s: Annotated[float, typer.Option(help="Of a piece, in seconds.")] = 6.0,
    longest_s: Annotated[float, typer.Option(help="The same; twice the shortest or more.")] = 14.0,
    join_s: Annotated[float, typer.Option(help="Seconds that one piece fades into the next.")] = 0.5,
    seed: Annotated[int, typer.Option(help="Of lengths, order and places.")] = 0,
    subject_from: SubjectFrom = "path",
    unit: Unit = None,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Make long recordings with events, of recordings that hold one condition each.

    Each person's background is cut and put together anew, events are pasted into it; labels.csv says where. Joins
    without an event (shams) are as frequent or more, and joins.csv lists all.
    """
    from bothways import run

    result = run.paste(
        paths, labels, out_folder, background=background, baseline=baseline, recordings=recordings,
        shortest_s=shortest_s, longest_s=longest_s, join_s=join_s, seed=seed, subject_from=subject_from, unit=unit,
        overwrite=overwrite,
    )  # fmt: skip
    if json:
        return print_json(result)
    made = result["recordings"]
    for subject, why in result["left_out"].items():
        out.print(f"left out: {subject} ({why})")
    for note in result["notes"]:
        out.print(f"note: {note}")
    seconds, events, shams, unused_s = (sum(r[k] for r in made) for k in ("duration_s", "events", "shams", "unused_s"))
    people = len({r["subject"] for r in made})
    out.print(
        f"{len(made)} recordings of {people} people, {seconds / 60:.1f} minutes: {events} events, {shams} sham joins; "
        f"{unused_s / 60:.1f} labelled minutes without a place"
    )
    out.print(f"written: {result['out']}/, with labels.csv, pieces.csv and joins.csv")

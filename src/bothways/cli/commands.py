"""The commands: what each takes, which function of `bothways.run` it calls, what it prints."""

import sys
import textwrap
from pathlib import Path
from typing import Annotated

import typer

from bothways import __version__
from bothways.cli.printing import (
    bare_reason,
    checked_row,
    collect,
    new_table,
    number,
    out,
    print_checked,
    print_compared,
    print_embedded,
    print_json,
    print_loaded,
    print_notes,
    print_predicted,
    print_training,
    print_validation,
    print_windows,
)
from bothways.errors import UserError

app = typer.Typer(
    help="Pretrain and fine-tune BERT-style encoders on EEG and on text.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
eeg = typer.Typer(help="EEG: recordings in, a trained model and predictions out.", no_args_is_help=True)
app.add_typer(eeg, name="eeg")
Paths = Annotated[list[Path], typer.Argument(help="Recordings, or folders that are searched for them.")]
Out = Annotated[Path, typer.Option("--out", help="Folder to write; must not exist.")]
RunOut = Annotated[
    Path, typer.Option("--out", help="The run's folder; one that was stopped, with the same settings, goes on.")
]
Recipe = Annotated[Path | None, typer.Argument(help="TOML file with settings.")]
Changes = Annotated[list[str] | None, typer.Option("--set", help="One setting, e.g. training.steps=500.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace --out if it exists.")]
SubjectFrom = Annotated[
    str, typer.Option(help="Whose a recording is: path (sub-… in it), parent (folder), or a CSV file,subject.")
]
Unit = Annotated[str | None, typer.Option(help="What the files' numbers are (uV, mV, V, nV), if they say it wrong.")]
Baseline = Annotated[
    Path | None, typer.Option(help="CSV file,onset_s,duration_s[,subject]: each person's stretch of rest.")
]
Force = Annotated[
    bool, typer.Option("--force", help="Go on with a stopped run although its settings or data have changed.")
]
SplitFile = Annotated[Path | None, typer.Option("--split", help="Split file (JSON): train, validation, test.")]
Data = Annotated[Path, typer.Option("--data", help="Store made by `bothways eeg prepare`.")]


def _version(asked: bool) -> bool:
    if asked:
        out.print(__version__)
        raise typer.Exit
    return asked


@app.callback()
def _app(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None: ...


@eeg.command(epilog="Example: bothways eeg check recordings/ --html check.html")
def check(
    paths: Paths,
    subject_from: SubjectFrom = "path",
    unit: Unit = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with a picture of each recording to it.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace --html if it exists.")] = False,
    json: AsJson = False,
) -> None:
    """Say what is in recordings and what is wrong with them; exit 0 fine, 1 warnings, 2 unusable."""
    from bothways import run

    report = run.check(paths, subject_from=subject_from, unit=unit, html=html, overwrite=overwrite)
    if json:
        print_json(report)
        raise typer.Exit(report["exit_status"])
    print_checked([checked_row(r) for r in report["recordings"]])
    said: dict[str, list[str]] = {}
    for r in report["recordings"]:
        if r["reason"]:
            said.setdefault(f"unusable {r['file']}", []).append(bare_reason(r))
        if "format" in r:
            collect(said, r)
    for one in report["left_out"]:
        said.setdefault(f"left out, {one['code']}", []).append(f"{one['file']}: {one['reason']}")
    print_notes(said)
    t = report["totals"]
    out.print(
        f"{t['recordings']} recordings of {t['subjects']} people, {t['duration_s'] / 60:.1f} minutes: "
        f"{t['ok']} ok, {t['warning']} with warnings, {t['unusable']} unusable"
    )
    if html is not None:
        out.print(f"written: {html}")
    raise typer.Exit(report["exit_status"])


@eeg.command(epilog="Example: bothways eeg prepare recordings/ --out store --set notch_hz=60")
def prepare(
    paths: Paths,
    out_folder: Out,
    recipe: Annotated[Path | None, typer.Option(help="TOML file with signal settings.")] = None,
    changes: Changes = None,
    baseline: Baseline = None,
    subject_from: SubjectFrom = "path",
    unit: Unit = None,
    overwrite: Overwrite = False,
    append: Annotated[bool, typer.Option("--append", help="Add to the store --out, of the same settings.")] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; as many as pay off if left out.")] = None,
    dask: Annotated[str | None, typer.Option(metavar="ADDRESS", help="A Dask cluster that does the work.")] = None,
    json: AsJson = False,
) -> None:
    """Filter, resample and scale recordings into a store; exit 2 if one could not be used (the others are).

    Stopped half-way, it goes on where it was when it is run again.
    """
    from bothways import run

    result = run.prepare(
        paths, out_folder, recipe=recipe, changes=changes or (), baseline=baseline, subject_from=subject_from,
        unit=unit, overwrite=overwrite, append=append, workers=workers, dask=dask,
    )  # fmt: skip
    if json:
        print_json(result)
        raise typer.Exit(2 if result["skipped"] else 0)
    for skipped in result["skipped"]:
        out.print(f"skipped {skipped['file']}: {bare_reason(skipped)}")
    for one in result["left_out"]:
        result["notes"].setdefault(f"left out, {one['code']}", []).append(f"{one['file']}: {one['reason']}")
    print_notes(result["notes"])
    if n := result["already_there"]:
        out.print("nothing new: " * (not result["added"]) + f"{n} recordings were in the store already")
    if result["reused"]:
        out.print(f"{result['reused']} recordings had been finished before and were kept")
    out.print(
        f"{result['store']}: {result['recordings']} recordings of {result['subjects']} people, "
        f"{result['duration_s'] / 60:.1f} minutes, {len(result['skipped'])} skipped"
    )
    raise typer.Exit(2 if result["skipped"] else 0)


@eeg.command(
    epilog="Example: bothways eeg split --data store --out split.json; instead --out splits --folds 5 --stratify "
    "labels.csv, or --out split.json --test 03,04 --validation 02 --aliases same.csv"
)
def split(
    data: Data,
    out_file: Annotated[
        Path, typer.Option("--out", help="Split file (JSON) to write, or the folder of several; must not exist.")
    ],
    seed: Annotated[int, typer.Option(min=0, help="Another seed, another division.")] = 0,
    train_fraction: Annotated[
        float | None, typer.Option(min=0, max=1, help="Share of the people to train on.", show_default="0.6")
    ] = None,
    validation_fraction: Annotated[float, typer.Option(min=0, max=1, help="Share to look at while training.")] = 0.2,
    folds: Annotated[int | None, typer.Option(help="So many splits; each person is tested once.")] = None,
    leave_one_out: Annotated[
        bool, typer.Option("--leave-one-out", help="A split for each person, who alone is tested.")
    ] = False,
    repeats: Annotated[int | None, typer.Option(help="So many splits; all are tested about equally often.")] = None,
    test: Annotated[
        str | None, typer.Option(help="Whom to test: a,b or a file with a name a line; the rest is trained on.")
    ] = None,
    validation: Annotated[str | None, typer.Option(help="Beside --test, whom to look at; drawn if left out.")] = None,
    train: Annotated[str | None, typer.Option(help="Beside --test, whom to train on; others are not used.")] = None,
    aliases: Annotated[
        Path | None, typer.Option(help="CSV or JSON; a row holds the names of one person, such as chb01,chb21.")
    ] = None,
    stratify: Annotated[
        str | None, typer.Option(help="Labels, as for finetune, whose classes each part shall have alike.")
    ] = None,
    stratify_by: Annotated[
        str, typer.Option(help="A person's class: the set of its labels, or the majority, by time.")
    ] = "set",
    changes: Annotated[list[str] | None, typer.Option("--set", help="One setting of labels, labels.column=…")] = None,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Divide people into train, validation and test once, for pretrain and finetune alike.

    Nothing that is the same, by names, content or signal, may lie in two parts.
    """
    from bothways import run

    result = run.split(
        data, out_file, seed=seed, train_fraction=train_fraction, validation_fraction=validation_fraction,
        folds=folds, leave_one_out=leave_one_out, repeats=repeats, test=test, validation=validation, train=train,
        aliases=aliases, stratify=stratify, stratify_by=stratify_by, changes=changes or (), overwrite=overwrite,
    )  # fmt: skip
    if json:
        return print_json(result)
    for one in result["splits"]:
        if "train" not in result:
            out.print(f"{out_file / one['file']}: {one['note']}")
        for part in ("train", "validation", "test"):
            counts = ", ".join(f"{n} {name}" for name, n in one.get("classes", {}).get(part, {}).items())
            classes = f" ({counts})" if counts else ""
            n = one["people"][part]
            out.print(f"{part}: {n} {'person' if n == 1 else 'people'}{classes}: {', '.join(one[part])}")
    if result.get("stratified"):
        out.print("stratified: in every part each class is within one person of its share")
    for note in result["notes"]:
        out.print(f"warning: {note}")


@eeg.command(epilog="Example: bothways eeg pretrain --data store --out run --set training.steps=2000")
def pretrain(
    data: Data,
    out_folder: RunOut,
    recipe: Recipe = None,
    changes: Changes = None,
    split: SplitFile = None,
    overwrite: Overwrite = False,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Train an encoder to rebuild hidden patches; no labels. A run that was stopped goes on."""
    from bothways import run

    result = run.pretrain(
        data, out_folder, recipe=recipe, changes=changes or (), split=split, overwrite=overwrite, force=force
    )
    if json:
        return print_json(result)
    for feature, bands in result["reconstruction"].items():
        whose = "people held out" if result["validation_subjects"] else "the training people"
        table = new_table(
            "band", "model", "interpolation", "zero", title=f"error on hidden patches of {whose}: {feature}"
        )
        for band, errors in bands.items():
            table.add_row(band, *(number(errors[guess]) for guess in ("model", "interpolation", "zero")))
        out.print(table)
    print_training(result)


@eeg.command(epilog="Example: bothways eeg finetune --from run --data store --labels labels.csv --out run2")
def finetune(
    start: Annotated[str, typer.Option("--from", help="A pretrained run, a checkpoint of one, or `scratch`.")],
    data: Data,
    labels: Annotated[
        str,
        typer.Option(
            help="events = the recordings' own; a CSV file,label or subject,label or file,onset_s,duration_s,label; "
            "a hypnogram (EDF) or a folder of them."
        ),
    ],
    out_folder: RunOut,
    recipe: Recipe = None,
    changes: Changes = None,
    split: SplitFile = None,
    min_overlap: Annotated[
        float | None, typer.Option(help="Share of a window that its label must cover; windows.min_overlap.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the windows of each class and stop.")] = False,
    overwrite: Overwrite = False,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Train a label for each window, read from [CLS]; a run that was stopped goes on.

    Says first how many windows of each class everybody has. With --set labels.kind=number a label is a number (an age),
    with labels.kind=several any number of classes.
    """
    from bothways import run

    settings = [*(changes or ()), *([] if min_overlap is None else [f"windows.min_overlap={min_overlap}"])]
    result = run.finetune(
        start, data, labels, out_folder, recipe=recipe, changes=settings, split=split, overwrite=overwrite,
        force=force, dry_run=dry_run, announce=None if json else print_windows,
    )  # fmt: skip
    if json:
        return print_json(result)
    if dry_run:
        return print_windows(result)
    print_loaded(result["load_report"])
    print_validation(result)
    print_training(result)


@eeg.command(epilog="Example: bothways eeg compare --from run --data store --labels labels.csv --out compared")
def compare(
    start: Annotated[
        list[str], typer.Option("--from", help="A pretrained run, or one for each --split; `scratch`: controls alone.")
    ],
    data: Data,
    labels: Annotated[str, typer.Option(help="As `finetune` takes them.")],
    out_folder: Annotated[
        Path,
        typer.Option("--out", help="The comparison's folder; one that was stopped goes on with the same settings."),
    ],
    recipe: Recipe = None,
    changes: Changes = None,
    split: Annotated[
        list[Path] | None, typer.Option("--split", help="Split file; several take turns. If left out, each seed's own.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Trials: first weights, order, and the split without --split.")] = 5,
    rate: Annotated[
        list[float] | None,
        typer.Option(help="Learning rates to try, times the recipe's; 0.3, 1 and 3 if left out."),
    ] = None,
    arm: Annotated[list[str] | None, typer.Option(help="Only this arm; may be given several times.")] = None,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Set a pretrained encoder beside its controls: same people, seeds and budget; writes OUT/report.html.

    Arms: chance, majority, band_power, tangent_space, cnn, scratch, frozen_probe, frozen_attention, finetuned. An arm
    that fails is a note, the others go on; what is finished is kept, not done again, and stays in the result.
    """
    from bothways import run

    result = run.compare(
        start, data, labels, out_folder, recipe=recipe, changes=changes or (), splits=split or (), seeds=seeds,
        arms=arm or (), overwrite=overwrite, **({"rates": rate} if rate else {}),
    )  # fmt: skip
    if json:
        return print_json(result)
    print_compared(result)


@eeg.command(epilog="Example: bothways eeg predict run2 new.edf --out predictions")
def predict(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A fine-tuned run.")],
    files: Paths,
    out_folder: Out,
    baseline: Baseline = None,
    stride_s: Annotated[float | None, typer.Option(help="From one window to the next; as in training.")] = None,
    events: Annotated[str | None, typer.Option(help="What an event is: szcore, or a TOML.")] = None,
    changes: Annotated[list[str] | None, typer.Option("--set", help="Of events, e.g. enter=0.7.")] = None,
    notch_hz: Annotated[float | None, typer.Option(help="Mains frequency there; as in training.")] = None,
    subject_from: SubjectFrom = "path",
    unit: Unit = None,
    html: Annotated[bool, typer.Option("--html", help="Write a page for each recording.")] = False,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Predict new recordings: windows, probabilities (or numbers) over time, events (CSV, BIDS, EDF+).

    Exit 2 if one could not be used (the others are).
    """
    from bothways import run

    result = run.predict(
        run_folder, files, out_folder, baseline=baseline, stride_s=stride_s, events=events, changes=changes or (),
        notch_hz=notch_hz, subject_from=subject_from, unit=unit, pages=html, overwrite=overwrite,
    )  # fmt: skip
    if json:
        print_json(result)
    else:
        print_loaded(result["load_report"])
        print_predicted(result, out_folder)
        said: dict[str, list[str]] = {}
        for r in result["recordings"]:
            collect(said, r)
        print_notes(said)
        if html:
            for r in result["recordings"]:
                out.print(f"written: {out_folder / r['files'][-1]}", markup=False)
        for skipped in result["skipped"]:
            out.print(f"skipped {skipped['file']}: {bare_reason(skipped)}")
    raise typer.Exit(2 if result["skipped"] else 0)


@eeg.command(epilog="Example: bothways eeg embed run store --out embeddings.parquet --plot map.html")
def embed(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A pretrained or fine-tuned run.")],
    data: Annotated[list[Path], typer.Argument(help="A store; or recordings, or folders of them.")],
    out_place: Annotated[Path, typer.Option("--out", help="FILE.parquet, FILE.npy (and FILE.csv), or a folder.")],
    pool: Annotated[str, typer.Option(help="cls = [CLS], mean = mean of the patches, or both.")] = "cls",
    labels: Annotated[str | None, typer.Option(help="As for finetune: events, a CSV, a hypnogram.")] = None,
    stride_s: Annotated[float | None, typer.Option(help="From one window to the next; as in training.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a page with PCA and t-SNE to it.")] = None,
    colour: Annotated[str | None, typer.Option(help="Of the plot: label, subject or file.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the plot.")] = 0,
    baseline: Baseline = None,
    notch_hz: Annotated[float | None, typer.Option(help="Mains frequency there; as in training.")] = None,
    subject_from: SubjectFrom = "path",
    unit: Unit = None,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Write the encoder's vector of each window; exit 2 if a recording could not be used (the others are)."""
    from bothways import run

    result = run.embed(
        run_folder, data, out_place, pool=pool, labels=labels, stride_s=stride_s, baseline=baseline,
        notch_hz=notch_hz, subject_from=subject_from, unit=unit, plot=plot, colour=colour, seed=seed,
        overwrite=overwrite,
    )  # fmt: skip
    if json:
        print_json(result)
    else:
        print_embedded(result)
    raise typer.Exit(2 if result["skipped"] else 0)


@app.command(epilog="Example: bothways walkthrough eeg --html page.html")
def walkthrough(
    kind: Annotated[str, typer.Argument(metavar="eeg|text|classifier", help="Which one.")],
    model: Annotated[
        Path | None, typer.Option(help="A trained model instead: a run, or a folder of a transformers BERT.")
    ] = None,
    input: Annotated[str | None, typer.Option(help="Its input: a recording, or a text ([MASK] = hidden).")] = None,
    pair: Annotated[str | None, typer.Option(help="A second text, for a pair.")] = None,
    at_s: Annotated[float | None, typer.Option("--at", help="Where in the recording, in seconds.")] = None,
    mask: Annotated[
        str | None, typer.Option(help="Positions to hide, e.g. 3,7; as the recipe says if left out.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Another seed, other hidden patches.")] = None,
    layer: Annotated[int | None, typer.Option(help="The layer of the encoder that is shown, from 0.")] = None,
    head: Annotated[int | None, typer.Option(help="The only head that is shown, from 0; all if left out.")] = None,
    row: Annotated[int | None, typer.Option(help="The row that is shown in full and worked out, from 0.")] = None,
    baseline: Baseline = None,
    notch_hz: Annotated[float | None, typer.Option(help="Mains frequency there; as in training.")] = None,
    subject_from: SubjectFrom = "path",
    unit: Unit = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all arrays to this file.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page that computes along to this file.")] = None,
    width: Annotated[int | None, typer.Option(min=80, help="Of the text; as wide as the terminal if left out.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that exist.")] = False,
) -> None:
    """Show how an encoder computes, every matrix; exit 1 if a number is not what it should be.

    Without --model: small encoders with drawn weights. With it: a trained model on your own recording or text, each
    step computed again in NumPy and compared with the model.
    """
    from bothways import run

    positions = None if mask is None else [part.strip() for part in mask.split(",") if part.strip()]
    if positions == []:
        raise UserError("--mask: expected positions such as 3,7 or p2,p6, got none; leave it out for the recipe's own")
    terminal = sys.stdout.isatty()
    columns = width or (max(out.width, 80) if terminal else 120)
    result = run.walkthrough(
        kind, model=model, input=input, pair=pair, at_s=at_s, mask=positions or (), seed=seed, layer=layer, head=head,
        row=row, baseline=baseline, notch_hz=notch_hz, subject_from=subject_from, unit=unit, json_file=json_file,
        html=html, overwrite=overwrite, width=columns,
        colour=terminal and not out.no_color and out.color_system is not None,
    )  # fmt: skip
    print(result["text"])
    for line in [f"note: {note}" for note in result["notes"]]:
        print(textwrap.fill(line, columns))
    for file in result["files"]:
        print(f"written: {file}")
    failed, first = result["checks"]["failed"], result["first_difference"]
    if first is not None:
        print(f"NumPy and the model differ, first in {first}", file=sys.stderr)
    elif failed:
        print(f"{len(failed)} hand computations differ from the array, the first is {failed[0]}", file=sys.stderr)
    raise typer.Exit(1 if failed else 0)

"""The command line: parse, call `bothways.run`, print. A user's mistake ends with one line and status 2."""

import json
import os
import signal
import sys
import textwrap
import warnings
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from bothways import __version__
from bothways.errors import BothwaysWarning, UserError, plain_words

app = typer.Typer(
    help="Pretrain and fine-tune BERT-style encoders on EEG and on text.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
eeg = typer.Typer(help="EEG: recordings in, a trained model and predictions out.", no_args_is_help=True)
app.add_typer(eeg, name="eeg")
out = Console(highlight=False, soft_wrap=True, markup=False, width=None if sys.stdout.isatty() else 200)

CHECKED = ("format", "channels", "left out", "Hz", "s", "gaps", "events", "uV", "problems")
"""What the table of `check` says of a recording that could be read."""
COUNTED = ("channels", "Hz", "s", "gaps", "events", "uV")
WRAPPED = ("subject", "left out", "problems")
"""Columns that may take several lines."""

Paths = Annotated[list[Path], typer.Argument(help="Recordings, or folders that are searched for them.")]
Out = Annotated[Path, typer.Option("--out", help="Folder to write; must not exist.")]
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
        _print_json(report)
        raise typer.Exit(report["exit_status"])
    _print_checked([_checked(r) for r in report["recordings"]])
    said: dict[str, list[str]] = {}
    for r in report["recordings"]:
        if r["reason"]:
            said.setdefault(f"unusable {r['file']}", []).append(r["reason"])
        if "format" in r:
            _collect(said, r)
    for one in report["left_out"]:
        said.setdefault(f"left out, {one['code']}", []).append(f"{one['file']}: {one['reason']}")
    _print_notes(said)
    t = report["totals"]
    out.print(
        f"{t['recordings']} recordings of {t['subjects']} people, {t['duration_s'] / 60:.1f} minutes: "
        f"{t['ok']} ok, {t['warning']} with warnings, {t['unusable']} unusable"
    )
    if html is not None:
        out.print(f"written: {html}")
    raise typer.Exit(report["exit_status"])


def _checked(r: dict[str, Any]) -> dict[str, str]:
    """What `check` says of a recording, by column."""
    shown = {"file": r["file"], "status": r["status"], "subject": r["subject"]}
    if "format" not in r:
        return shown | dict.fromkeys(CHECKED, "")
    bad = f" ({len(r['bad_channels'])} bad)" if r["bad_channels"] else ""
    why = Counter(reason.removesuffix(", not scalp EEG") for reason in r["left_out"].values()).most_common()
    left_out = [f"{n} {reason}" for reason, n in why[:2]] + ([f"{len(why) - 2} more kinds"] if len(why) > 2 else [])
    problems = dict.fromkeys(note["code"].replace("_", " ") for note in r["notes"])
    values = (
        r["format"], f"{len(r['ch_names'])}{bad}", ", ".join(left_out), f"{r['sfreq_hz']:g}", f"{r['duration_s']:g}",
        str(len(r["segments"]) - 1), str(r["n_events"]), _number(r["amplitude_uv"]), ", ".join(problems),
    )  # fmt: skip
    return shown | dict(zip(CHECKED, values))


def _print_checked(rows: list[dict[str, str]]) -> None:
    """Prints a table where there is room for it, else a few lines for each recording."""
    width = {key: max(cell_len(text) for text in (key, *(row[key] for row in rows))) + 2 for key in rows[0]}
    if sum(min(n, 18) if key in WRAPPED else n for key, n in width.items()) <= out.width:
        table = _table(*rows[0])
        for column, key in zip(table.columns, rows[0]):
            column.no_wrap = key not in WRAPPED
        for row in rows:
            table.add_row(*row.values())
        return out.print(table)
    for row in rows:
        out.print(f"{row['file']}: {row['status']}")
        parts = [f"{row[key]} {key}" if key in COUNTED else f"{key} {row[key]}" for key in list(row)[2:] if row[key]]
        out.print(Padding(Text(", ".join(parts)), (0, 0, 0, 2)), soft_wrap=False)


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
        _print_json(result)
        raise typer.Exit(2 if result["skipped"] else 0)
    for skipped in result["skipped"]:
        out.print(f"skipped {skipped['file']}: {skipped['reason']}")
    for one in result["left_out"]:
        result["notes"].setdefault(f"left out, {one['code']}", []).append(f"{one['file']}: {one['reason']}")
    _print_notes(result["notes"])
    if n := result["already_there"]:
        out.print("nothing new: " * (not result["added"]) + f"{n} recordings were in the store already")
    if result["reused"]:
        out.print(f"{result['reused']} recordings had been finished before and were kept")
    out.print(
        f"{result['store']}: {result['recordings']} recordings of {result['subjects']} people, "
        f"{result['duration_s'] / 60:.1f} minutes, {len(result['skipped'])} skipped"
    )
    raise typer.Exit(2 if result["skipped"] else 0)


@eeg.command(epilog="Example: bothways eeg split --data store --out split.json")
def split(
    data: Data,
    out_file: Annotated[Path, typer.Option("--out", help="Split file (JSON) to write; must not exist.")],
    seed: Annotated[int, typer.Option(min=0, help="Another seed, another division.")] = 0,
    train_fraction: Annotated[float, typer.Option(min=0, max=1, help="Share of the people to train on.")] = 0.6,
    validation_fraction: Annotated[float, typer.Option(min=0, max=1, help="Share to look at while training.")] = 0.2,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Divide people into train, validation and test once, for pretrain and finetune alike."""
    from bothways import run

    result = run.split(
        data, out_file, seed=seed, train_fraction=train_fraction, validation_fraction=validation_fraction,
        overwrite=overwrite,
    )  # fmt: skip
    if json:
        return _print_json(result)
    for part in ("train", "validation", "test"):
        out.print(f"{part}: {len(result[part])} people: {', '.join(result[part])}")
    for note in result["notes"]:
        out.print(f"warning: {note}")


@eeg.command(epilog="Example: bothways eeg pretrain --data store --out run --set training.steps=2000")
def pretrain(
    data: Data,
    out_folder: Out,
    recipe: Recipe = None,
    changes: Changes = None,
    split: SplitFile = None,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Train an encoder to rebuild hidden patches; no labels."""
    from bothways import run

    result = run.pretrain(data, out_folder, recipe=recipe, changes=changes or (), split=split, overwrite=overwrite)
    if json:
        return _print_json(result)
    for feature, bands in result["reconstruction"].items():
        whose = "people held out" if result["validation_subjects"] else "the training people"
        table = _table("band", "model", "interpolation", "zero", title=f"error on hidden patches of {whose}: {feature}")
        for band, errors in bands.items():
            table.add_row(band, *(_number(errors[guess]) for guess in ("model", "interpolation", "zero")))
        out.print(table)
    _print_training(result)


@eeg.command(epilog="Example: bothways eeg finetune --from run --data store --labels labels.csv --out run2")
def finetune(
    start: Annotated[str, typer.Option("--from", help="A pretrained run, or `scratch`.")],
    data: Data,
    labels: Annotated[
        str,
        typer.Option(
            help="events = the recordings' own; a CSV file,label or subject,label or file,onset_s,duration_s,label; "
            "a hypnogram (EDF) or a folder of them."
        ),
    ],
    out_folder: Out,
    recipe: Recipe = None,
    changes: Changes = None,
    split: SplitFile = None,
    min_overlap: Annotated[
        float | None, typer.Option(help="Share of a window that its label must cover; windows.min_overlap.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count the windows of each class and stop.")] = False,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Train a label for each window, read from [CLS]; says first how many windows of each class everybody has."""
    from bothways import run

    settings = [*(changes or ()), *([] if min_overlap is None else [f"windows.min_overlap={min_overlap}"])]
    result = run.finetune(
        start, data, labels, out_folder, recipe=recipe, changes=settings, split=split, overwrite=overwrite,
        dry_run=dry_run, announce=None if json else _print_windows,
    )  # fmt: skip
    if json:
        return _print_json(result)
    if dry_run:
        return _print_windows(result)
    if result["load_report"]:
        left = {key: len(names) for key, names in result["load_report"].items()}
        out.print(f"weights: {left['matched']} loaded, {left['missing']} new, {left['unexpected']} not used")
    _print_training(result)


@eeg.command(epilog="Example: bothways eeg evaluate run2")
def evaluate(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A fine-tuned run.")],
    data: Annotated[Path | None, typer.Option("--data", help="The run's store, if it has moved.")] = None,
    part: Annotated[str, typer.Option(help="test or validation.")] = "test",
    json: AsJson = False,
) -> None:
    """Measure a fine-tuned run on people it has not seen, beside controls on the same split."""
    from bothways import run

    result = run.evaluate(run_folder, data=data, part=part)
    if json:
        return _print_json(result)
    table = _table("", "balanced accuracy", "95 % over people", "accuracy", "macro-F1", "AUROC")
    arms = {**result["controls"], "this run": result["model"]}
    for name, m in arms.items():
        interval = m.get("interval") or {}
        low, high = interval.get("low"), interval.get("high")
        span = f"{low:.2f}-{high:.2f}" if low is not None and high is not None else ""
        table.add_row(
            name.replace("_", " "), _number(m["balanced_accuracy"]), span, _number(m["accuracy"]),
            _number(m.get("macro_f1")), _number(m.get("auroc")),
        )  # fmt: skip
    out.print(table)
    support = ", ".join(f"{n} {name}" for name, n in result["model"]["support"].items())
    out.print(f"{result['model']['n_subjects']} people, windows: {support}")
    out.print(f"overlap of the tested people with pretraining: {result['pretraining_overlap']['kind']}")
    for note in result["notes"]:
        out.print(note)


@eeg.command(epilog="Example: bothways eeg predict run2 new.edf --out predictions")
def predict(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A fine-tuned run.")],
    files: Paths,
    out_folder: Out,
    baseline: Baseline = None,
    stride_s: Annotated[float | None, typer.Option(help="From one window to the next; as in training.")] = None,
    notch_hz: Annotated[float | None, typer.Option(help="Mains frequency there; as in training.")] = None,
    subject_from: SubjectFrom = "path",
    unit: Unit = None,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Predict the class of each window of new recordings; exit 2 if one could not be used (the others are)."""
    from bothways import run

    result = run.predict(
        run_folder, files, out_folder, baseline=baseline, stride_s=stride_s, notch_hz=notch_hz,
        subject_from=subject_from, unit=unit,
        overwrite=overwrite,
    )  # fmt: skip
    if json:
        _print_json(result)
    else:
        table = _table("file", "windows", "predicted", "mean probability", "s without", "written")
        for r in result["recordings"]:
            counts = ", ".join(f"{n} {name}" for name, n in r["counts"].items())
            means = ", ".join(f"{p:.2f} {name}" for name, p in r["mean_probability"].items())
            table.add_row(
                r["file"], str(r["windows"]), counts, means, f"{r['uncovered_s']:g}", str(out_folder / r["csv"])
            )
        out.print(table)
        said: dict[str, list[str]] = {}
        for r in result["recordings"]:
            _collect(said, r)
        _print_notes(said)
        for skipped in result["skipped"]:
            out.print(f"skipped {skipped['file']}: {skipped['reason']}")
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


def _collect(said: dict[str, list[str]], recording: dict[str, Any]) -> None:
    """Sorts what is to be said of one recording by kind."""
    for name, why in recording["left_out"].items():
        said.setdefault(f"left out: {name} ({why})", []).append(recording["file"])
    for note in recording["notes"]:
        said.setdefault(note["code"], []).append(f"{recording['file']}: {note['message']}")


def _print_notes(said: dict[str, list[str]]) -> None:
    """Prints the first message of each kind and how many more there are; all of them are in --json."""
    for kind, messages in said.items():
        more = f" (and {len(messages) - 1} more; --json has all)" if len(messages) > 1 else ""
        out.print(f"{kind}: {messages[0]}{more}")


def _print_windows(plan: dict[str, Any]) -> None:
    """Prints how many windows of each class the people of each part have; a class that one lacks shows as 0."""
    table = _table("part", "person", *plan["classes"], title="windows")
    for part, people in plan["counts"].items():
        for person, counts in people.items():
            table.add_row(part, person, *(str(counts[name]) for name in plan["classes"]))
    out.print(table)
    for part, counts in plan["windows"].items():
        shown = ", ".join(f"{n} {name}" for name, n in counts.items())
        out.print(f"{part}: {len((plan['split'] or plan['counts'])[part])} people, windows: {shown}")


def _print_training(result: dict[str, Any]) -> None:
    out.print(
        f"{result['run']}: {result['parameters']['total']:,} parameters, {result['seconds']:.0f} s, "
        f"{result['windows_per_s']:.1f} windows/s, last loss {result['loss']:.4f}"
    )


def _print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _table(*columns: str, title: str | None = None) -> Table:
    table = Table(*columns, title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.overflow = "fold"
    return table


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which ends the work as Ctrl-C does."""

    @classmethod
    def now(cls, *_: object) -> None:
        raise cls


def _status(arguments: list[str]) -> int:
    """Runs a command and returns its status; wrong usage is a `UserError` too."""
    command = typer.main.get_command(app)
    usage_error: type[typer.BadParameter] = typer.BadParameter.__mro__[1]  # which typer itself does not offer
    try:
        with command.make_context("bothways", arguments) as context:
            command.invoke(context)
    except typer.Exit as ended:
        return ended.exit_code
    except usage_error as problem:
        if type(problem).__name__ == "NoArgsIsHelpError":
            problem.show()
            return 2
        message = " ".join(problem.format_message().split()).removesuffix(".")
        raise UserError(f"{message}; see `{problem.ctx.command_path if problem.ctx else 'bothways'} --help`") from None
    return 0


def main() -> None:
    """Runs the command line; a `UserError` is one line on standard error and status 2."""
    signal.signal(signal.SIGTERM, _Terminated.now)
    warnings.simplefilter("ignore")
    warnings.simplefilter("always", BothwaysWarning)
    warnings.showwarning = lambda message, *_: print(f"warning: {message}", file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")  # names of files, whatever the locale
    try:
        raise SystemExit(_status(sys.argv[1:]))
    except UserError as problem:
        status, message = 2, f"error: {problem}"
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except MemoryError:
        status, message = 2, "error: not enough memory; lower training.batch_size or windows.window_s"
    except OSError as problem:
        status, message = 2, f"error: {problem.filename or 'output'}: {plain_words(problem)}; check the path and space"
    except KeyboardInterrupt as stop:
        status, word = (143, "terminated") if isinstance(stop, _Terminated) else (130, "interrupted")
        message = f"{word}: {stop}" if stop.args else word
    print(message, file=sys.stderr)
    raise SystemExit(status)

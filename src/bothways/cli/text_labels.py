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


_COUNTED = {"tags": ("sentence", "sentences"), "answers": ("question", "questions")}


@text.command(
    epilog="Example: bothways text finetune --from my-bert --data train.csv --set columns.label=stars --out classifier"
)
def finetune(
    start: Annotated[Path, typer.Option("--from", help="A run on text, or a BERT that transformers saved.")],
    data: Annotated[
        list[Path],
        typer.Option(
            help="A table with texts and labels: .csv .tsv .jsonl .parquet; to tag, CoNLL or JSON; to answer, SQuAD's "
            "JSON, or a table of question, context and answer."
        ),
    ],
    out_folder: RunOut,
    task: Annotated[
        str | None, typer.Option(help="classify (a label of each text, the default), tag (each word) or answer.")
    ] = None,
    frozen: Annotated[
        bool, typer.Option("--frozen", help="Learn a head on features of the encoder, which stays as it is.")
    ] = False,
    validation: Annotated[
        list[Path] | None, typer.Option(help="Another to measure on; if left out, some rows are kept out.")
    ] = None,
    recipe: Annotated[Path | None, typer.Option(help="TOML file with settings.")] = None,
    changes: Changes = None,
    overwrite: Overwrite = False,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Train a BERT on texts with labels, tagged words, or questions about contexts. Goes on where it was."""
    from bothways import run

    changes = [*([f"task={task}"] if task else []), *(["frozen=true"] if frozen else []), *(changes or ())]
    result = run.text_finetune(
        start, data, out_folder, validation=validation or (), recipe=recipe, changes=changes,
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
        typer.Argument(
            metavar="FILE",
            help="Tables, or .txt with a text on each line; to tag, CoNLL or JSON, too; to answer, SQuAD's JSON or a "
            "table of question and context. If left out, standard input: a text a line, or a question in JSON.",
        ),
    ] = None,
    out_file: Annotated[
        Path | None, typer.Option("--out", help="FILE.csv or FILE.jsonl; if left out, they are printed.")
    ] = None,
    encoding: Encoding = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Of several classes, from which probability one is there (0.5). Of answers, how much the null score "
            "may be above the best answer's before there is none (the run's own, tuned on its validation questions)."
        ),
    ] = None,
    overwrite: Overwrite = False,
    json: AsJson = False,
) -> None:
    """Say of each text what a run has learned to tell; any number of texts."""
    from bothways import run

    lines = None if files else (line.rstrip("\n") for line in sys.stdin)
    result = run.text_predict(
        model, files or (), out_file, texts=lines, encoding=encoding, threshold=threshold, overwrite=overwrite
    )
    if json:
        return print_json(result)
    print_notes({f"note, {code}": messages for code, messages in result["notes"].items()})
    for one in result.get("predictions", ()):
        if result["labels"] == "tags":
            marked = "; ".join(f"{entity['text']} ({entity['type']})" for entity in one["entities"])
            out.print(f"{one['file'] or ''}{':' * bool(one['file'])}{one['row']}  {marked or '–'}", markup=False)
            continue
        if result["labels"] == "answers":
            place = f"{one['file']}{':' * bool(one['file'])}{one['id']}"
            out.print(f"{place}  {one['question']}  {one['text'] or '–'}", markup=False)
            continue
        value = one["prediction"]
        shown = number(value) if isinstance(value, float) else "; ".join(value) if isinstance(value, list) else value
        sure = f"  {one['probability']:.3f}" if one.get("probability") is not None else ""
        place = f"{one['file']}:{one['row']}" if one["file"] else str(one["row"])
        out.print(f"{place}  {'–' if shown is None else shown}{sure}", markup=False)
    counts = ", ".join(f"{n:,} {name}" for name, n in (result["counts"] or {}).items())
    out.print(
        f"{counted(result['n'], *_COUNTED.get(result['labels'], ('text', 'texts')))}{': ' if counts else ''}{counts}",
        markup=False,
    )
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
    if kind == "answers":
        main = f"answers: exact match {found['exact']:.3f}, F1 {found['f1']:.3f}, n = {found['n']}"
        if "threshold" not in found:
            return main
        tuned, best = found.get("tuned"), found["best"]
        of_validation = (
            f"at the run's own threshold {tuned['f1']['threshold']:.2f}: exact match {tuned['f1']['exact']:.3f}, F1 "
            f"{tuned['f1']['f1']:.3f}; "
            if tuned
            else ""
        )
        here = f"at best F1 {best['f1']:.3f} (at {best['f1_threshold']:.2f}, chosen on these very questions)"
        return f"{main} at threshold {found['threshold']:g}; {of_validation}{here}"
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

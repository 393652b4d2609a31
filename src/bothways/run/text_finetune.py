"""`bothways text finetune`."""

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bothways import text
from bothways.config import HeadConfig, TextFinetuneConfig, load_config
from bothways.errors import BothwaysWarning, UserError
from bothways.model import LoadReport, Model, load_weights
from bothways.run.common import check_names, fitted_batch, made_with, parameters_of
from bothways.run.text_answer import Answer, read_questions, with_windows
from bothways.run.text_classify import Classify, read_rows
from bothways.run.text_data import SEEN, Labelled, digests, divide_rows
from bothways.run.text_frozen import fit_frozen, with_features
from bothways.run.text_model import TextModel, content_of_model, length_of, open_model
from bothways.run.text_tag import Tag, read_tagged
from bothways.training import check_place, interruptible, join, open_run, train

TASKS: dict[str, Any] = {"classify": Classify, "tag": Tag, "answer": Answer}
_LABELLED = {"classify": "texts with a label", "tag": "tagged sentences", "answer": "questions with answers"}


@interruptible("text finetune")
def text_finetune(
    start: str | Path,
    data: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    validation: str | Path | Sequence[str | Path] = (),
    recipe: str | Path | None = None,
    changes: Sequence[str] = (),
    overwrite: bool = False,
    force: bool = False,
) -> dict[str, Any]:
    """Trains a head, and the encoder under it, on labelled texts, tagged words, or questions about contexts.

    A run that was stopped goes on when it is called again, to the same numbers as if it had not been.

    Args:
        start: a run of `text_pretrain` or of this, or a BERT that transformers saved.
        data: tables (CSV, TSV, JSON lines, Parquet) with a column of text and one of labels; to `tag`, sentences in
            CoNLL or JSON; to `answer`, SQuAD's JSON or tables of question, context and answer.
        out: the run's folder.
        validation: others to measure on; without, `validation_fraction` of the rows is kept out.
        recipe: TOML of `config.TextFinetuneConfig`.
        changes: `a.b=value` on top of it.
        overwrite: replace `out`; begin anew.
        force: go on with a stopped run although its settings or data have changed.

    Returns:
        `run`, `finished_before` (it was there already, nothing was done), `from`, `task`, `labels`, `classes`, `length`
        (tokens of a sequence), `texts` (per part and class how many), `too_long` (per part how many texts; of words and
        answers, how many windows beyond the first of each), `data` (of the files: `rows`, `empty_rows`,
        `unlabelled_rows`, `columns`, `files`, `notes`), `notes`, `load_report` (None of weights
        that are drawn anew), `parameters`, `steps`, `best_step`, `seconds`, `sequences_per_s`, `wait_share`, `loss`
        (last), `validation` (metrics, or None without).

    Raises:
        UserError: the model, the data or the recipe do not fit, `out` was begun with others, or the loss is not finite.
        Interrupted: a signal came; what was done is saved.
    """
    data, validation = _paths(data), _paths(validation)
    check_names(*data, *validation, start, out)
    out, inputs = Path(out), [*data, *validation, start]
    settings = load_config(TextFinetuneConfig, Path(recipe) if recipe else None, changes)
    check_place(out, overwrite=overwrite, inputs=inputs)
    opened = open_model(start)

    def read(paths: Sequence[str | Path]) -> Any:
        if settings.task == "classify":
            return read_rows(paths, settings)
        return read_tagged(paths) if settings.task == "tag" else read_questions(paths)

    found = read(data)
    notes = [message for messages in found.told["notes"].values() for message in messages]
    training, held_out = found.labelled(), None
    if validation:
        measured_on = read(validation)
        notes += [message for messages in measured_on.told["notes"].values() for message in messages]
        held_out = measured_on.labelled()
    elif settings.validation_fraction:
        training, held_out = divide_rows(training, settings.validation_fraction, settings.training.seed)
        if len(training) and not len(held_out):
            notes.append("nothing is kept out to measure on, as all belongs together; give --validation")
    if not len(training):
        raise UserError(
            f"{', '.join(map(str, data))}: expected {_LABELLED[settings.task]} to train on, found none; give some"
        )
    return learn(opened, training, held_out, out, settings, notes, overwrite=overwrite, force=force, inputs=inputs)


def learn(
    opened: TextModel,
    training: Labelled[Any],
    held_out: Labelled[Any] | None,
    out: Path,
    settings: TextFinetuneConfig,
    notes: Sequence[str] = (),
    *,
    overwrite: bool = False,
    force: bool = False,
    inputs: Sequence[str | Path] = (),
) -> dict[str, Any]:
    """Does what `text_finetune` does, with labelled rows that are there already.

    Args:
        opened: what it starts from.
        training: rows to train on, one at least.
        held_out: rows to measure on.
        out: the run's folder.
        settings: the recipe.
        notes: what was noted of the rows before.
        overwrite: replace `out`; begin anew.
        force: go on with a stopped run although its settings or data have changed.
        inputs: files that must not be overwritten.

    Raises:
        UserError: see `text_finetune`.
        Interrupted: a signal came; what was done is saved.
    """
    team, notes, length = join(), list(notes), length_of(opened, settings)
    if settings.task == "answer":
        settings = with_windows(settings, length)
    task: Any = TASKS[settings.task].of(training, settings)
    if held_out is not None:
        held_out = task.known(held_out, notes)
        shared = set(training.keys()) & set(held_out.keys())
        if shared:
            what = "articles" if settings.task == "answer" else "texts or groups"
            notes.append(f"{len(shared)} {what} are trained on and measured on; what is measured is too good")
    if odd := text.like_empty(task.classes if settings.task == "classify" else ()):
        notes.append(f"{', '.join(odd)} counts as a class; if it means no label, empty its cells")
    parts = {"train": training, **({} if held_out is None or not len(held_out) else {"validation": held_out})}
    made = {
        name: task.prepare(rows, opened.tokenizer, length, settings, training=name == "train")
        for name, rows in parts.items()
    }
    for name, one in made.items():
        notes += task.notes(one, name, length, settings)
    for note in notes:
        warnings.warn(note, BothwaysWarning, stacklevel=3)
    pad_id = opened.tokenizer.pad_id
    source = task.source(made["train"], training, pad_id, settings.training.seed)
    settings = _with_steps(settings, len(source))
    depends_on = {
        "command": "text finetune",
        "from": team.first_does(lambda: content_of_model(opened)),
        "data": training.identity(),
        "validation": "" if held_out is None else held_out.identity(),
    }
    with open_run(out, settings, depends_on, team, overwrite=overwrite, force=force, inputs=inputs) as folder:
        if folder.result is not None:
            return {**folder.result, "run": str(out), "finished_before": True}
        if settings.frozen:
            settings = with_features(settings)
        model, report = start_model(opened, settings, task.head(settings))
        folder.settings = settings = fitted_batch(settings, model, source, folder)
        seen = sorted({one for rows in parts.values() for one in digests(rows)})
        folder.side_files = {
            **text.tokenizer_files(opened.tokenizer, opened.folder),
            SEEN: "".join(f"{one}\n" for one in seen),
        }
        plan: dict[str, Any] = {
            "from": str(opened.folder.absolute()), "task": settings.task, "labels": task.kind,
            "classes": list(task.classes), "length": length,
            "texts": {name: task.counted(rows) for name, rows in parts.items()},
            "too_long": {name: task.n_too_long(one) for name, one in made.items()},
            "data": training.told, "notes": notes,
        }  # fmt: skip
        if task.kind == "number":
            plan["number"] = {"mean": task.mean, "sd": task.sd}
        folder.manifest = {"kind": "finetune", **made_with("tokenizers"), **plan}

        def evaluate(m: Model) -> dict[str, Any]:
            assert held_out is not None
            return task.evaluate(m, made["validation"], held_out, pad_id, "validation", n_bootstrap=200)

        measured = "validation" in parts
        if settings.frozen:
            both: Any = {name: (rows, made[name]) for name, rows in parts.items()}
            fitted = {"steps": 0, "best_step": 0, "wait_share": 0.0, "loss": None}
            fitted |= fit_frozen(model, task, both, pad_id, settings)
            found_out = evaluate(model) if measured else None
        else:
            result = train(
                model, source, settings.training, title="text finetune", unit="sequences",
                evaluate=evaluate if measured else None, score=task.score if measured else None, team=team, run=folder,
            )  # fmt: skip
            fitted, found_out = result.told("sequences"), result.evaluation
        told = {
            "run": str(out), **plan, "load_report": None if report is None else report.as_dict(),
            "parameters": parameters_of(model), **fitted, "validation": found_out,
        }  # fmt: skip
        folder.finish(model, told, save=text.save_folder)
    return {**told, "finished_before": False}


def _paths(paths: str | Path | Sequence[str | Path]) -> list[str | Path]:
    return [paths] if isinstance(paths, str | Path) else list(paths)


def _with_steps(settings: TextFinetuneConfig, n: int) -> TextFinetuneConfig:
    """Returns settings with the number of steps that `epochs` comes to."""
    if settings.epochs is None:
        return settings
    size = settings.training.batch_size
    steps = max(settings.least_steps, math.ceil(settings.epochs * n / (32 if size == "auto" else size)))
    return settings.model_copy(update={"training": settings.training.model_copy(update={"steps": steps})})


def start_model(opened: TextModel, settings: TextFinetuneConfig, head: HeadConfig) -> tuple[Model, LoadReport | None]:
    """Builds the model on the encoder of another; the load report accounts for its weights.

    Raises:
        UserError: more layers are to be drawn anew than there are.
    """
    theirs = opened.model.config
    encoder = theirs.encoder
    if settings.frozen and settings.features == "last_four":
        encoder = encoder.model_copy(update={"mixed_layers": min(4, encoder.num_hidden_layers)})
    pooler = settings.pool == "cls" and not settings.frozen and head.kind not in ("position", "span")
    config = theirs.model_copy(update={"heads": {head.kind: head}, "pooler": pooler, "encoder": encoder})
    model = Model(config, text.TokenEmbedding(config))
    model.initialise(settings.training.seed)
    if settings.scratch:
        return model, None
    n, n_layers = settings.reinitialise_layers, theirs.encoder.num_hidden_layers
    if n > n_layers:
        raise UserError(f"reinitialise_layers: expected at most {n_layers}, as the model has, got {n}; lower it")
    anew = tuple(f"encoder.layers.{layer}." for layer in range(n_layers - n, n_layers)) + (("pooler.",) if n else ())
    weights = {
        name: tensor for name, tensor in opened.model.state_dict().items() if not name.startswith(anew or ("/",))
    }
    before = theirs.heads.get(head.kind)
    ours = (head.classes, head.mean, head.sd)
    other = [head.kind] if before is not None and (before.classes, before.mean, before.sd) != ours else []
    report = load_weights(model, weights, partial=bool(n), anew=other)
    return model, report

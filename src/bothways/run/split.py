"""`bothways eeg split`."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bothways import eeg, evaluation
from bothways.config import FinetuneConfig, load_config
from bothways.errors import UserError
from bothways.evaluation import (
    PARTS,
    Split,
    class_counts,
    fixed_split,
    k_fold,
    person_of,
    read_aliases,
    read_names,
    repeated_splits,
    split_subjects,
)
from bothways.files import check_output, new_folder, write_json
from bothways.run.common import guessed_subjects
from bothways.run.leaks import check_split, content_of_people, has_copies
from bothways.run.targets import need_classes

INDEX = "splits.json"
"""In a folder of splits: their names, in order, and how they were made."""


def split(
    data: str | Path,
    out: str | Path,
    *,
    seed: int = 0,
    train_fraction: float | None = None,
    validation_fraction: float = 0.2,
    folds: int | None = None,
    leave_one_out: bool = False,
    repeats: int | None = None,
    test: str | Path | Iterable[str] | None = None,
    validation: str | Path | Iterable[str] | None = None,
    train: str | Path | Iterable[str] | None = None,
    aliases: str | Path | None = None,
    stratify: str | Path | None = None,
    stratify_by: str = "set",
    changes: Sequence[str] = (),
    overwrite: bool = False,
) -> dict[str, Any]:
    """Divides the people of a store once, for `pretrain` and `finetune` alike: the tested ones stay unseen by both.

    One split is drawn, unless `folds`, `leave_one_out` or `repeats` asks for several, or `test` names the people.

    Args:
        data: a store.
        out: the split file (JSON); of several splits a folder, of files that each can be used alone.
        seed: another seed, another division.
        train_fraction: share of the people to train on, 0.6 where none is given; of one split or repeated ones.
        validation_fraction: share of all people to look at during training; 0 = nobody. The rest are tested on.
        folds: so many splits; each person is tested once.
        leave_one_out: a split for each person, who alone is tested.
        repeats: so many splits, in which all are tested about equally often.
        test: whom to test: a list, `a,b`, or a file with a name a line. The rest are trained on.
        validation: beside `test`, whom to look at; drawn from the rest where it and `train` are not given.
        train: beside `test`, whom to train on; all others are in no part.
        aliases: CSV or JSON whose rows each hold the names of one person, who is then in one part (see
            `evaluation.read_aliases`).
        stratify: labels (as `finetune` takes them) by whose classes people are divided alike.
        stratify_by: a person's class is the `set` of the labels that it has, or the `majority`, by time.
        changes: `labels.…=value`, of `config.FinetuneConfig`.
        overwrite: replace `out`.

    Returns:
        `split` (the file or folder), `splits` (of each its `file`, `note`, `train`, `validation`, `test` (names),
        `people` (how many persons that are, per part) and, where stratified, `classes`: people per part and class),
        `notes`; of one split its parts at the top, too; where stratified, `stratified`: whether each class is within
        one person of its share in every part, and in none missing (if not, `notes` say where).

    Raises:
        UserError: options that do not go together, too few people, unknown names, a recording or person in two parts
            (see `leaks.check_split`), or `out` exists.
    """
    out = Path(out)
    several = folds is not None or leave_one_out or repeats is not None
    _check_options(folds, leave_one_out, repeats, test, validation, train, train_fraction)
    if several or not (overwrite and out.is_file()):  # a file is replaced atomically when it is saved
        check_output(out, overwrite=overwrite and several, inputs=[data])
    store = eeg.Store.open(data)
    people = [recording.subject for recording in store.recordings]
    notes = guessed_subjects(store, set(people))
    groups = () if aliases is None else read_aliases(aliases)
    classes = None
    if stratify is not None:
        classes, said = _classes(store, stratify, stratify_by, changes)
        notes += said
    elif changes:
        raise UserError(f"split: --set {changes[0]} is about labels; give --stratify LABELS with it")
    kwargs: dict[str, Any] = {"seed": seed, "validation_fraction": validation_fraction, "aliases": groups}
    fraction = 0.6 if train_fraction is None else train_fraction
    if test is not None:
        kwargs |= {
            part: read_names(names)
            for part, names in (("validation", validation), ("train", train))
            if names is not None
        }
        made = [fixed_split(people, read_names(test), **kwargs, stratify=classes)]
    elif folds is not None:
        made = k_fold(people, folds, **kwargs, stratify=classes)
    elif leave_one_out:
        made = evaluation.leave_one_out(people, **kwargs, stratify=classes)
    elif repeats is not None:
        made = repeated_splits(people, repeats, **kwargs, train_fraction=fraction, stratify=classes)
    else:
        made = [split_subjects(people, **kwargs, train_fraction=fraction, stratify=classes)]
    told: list[dict[str, Any]] = []
    unmet: list[str] = []
    width = len(str(len(made)))
    content = content_of_people(store)
    signals = len(made) == 1 or has_copies(store)
    for number, one in enumerate(made, 1):
        how = one.made | ({} if stratify is None else {"stratify": Path(stratify).name, "stratify_by": stratify_by})
        made[number - 1] = one = replace(one, made=how, content=content)
        notes += [note for note in check_split(one, store, signals=signals) if note not in notes]
        parts = {part: list(getattr(one, part)) for part in PARTS}
        file = f"split-{number:0{width}d}.json" if several else out.name
        persons = person_of([name for names in parts.values() for name in names], one.aliases)
        n_people = {part: len({persons[name] for name in names}) for part, names in parts.items()}
        told.append({"file": file, "note": one.note, **parts, "people": n_people})
        if classes is not None:
            counts, said = class_counts(one, classes)
            told[-1]["classes"] = counts
            unmet += [f"{file}: {note}" if several else note for note in said]
    _save(out, made, told, several, overwrite)
    alone = {} if several else {part: told[0][part] for part in PARTS}
    told_of = {"split": str(out), **alone, "splits": told, "notes": notes + unmet}
    return told_of if classes is None else told_of | {"stratified": not unmet}


def _save(out: Path, made: Sequence[Split], told: Sequence[dict[str, Any]], several: bool, overwrite: bool) -> None:
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    if not several:
        return made[0].save(out)
    with new_folder(out, overwrite=overwrite) as folder:
        for one, entry in zip(made, told):
            one.save(folder / entry["file"])
        write_json(folder / INDEX, {"made": made[0].made, "splits": [entry["file"] for entry in told]})


def _check_options(
    folds: Any, leave_one_out: bool, repeats: Any, test: Any, validation: Any, train: Any, train_fraction: Any
) -> None:
    ways = {"--folds": folds, "--leave-one-out": leave_one_out or None, "--repeats": repeats, "--test": test}
    given = [name for name, value in ways.items() if value is not None]
    if len(given) > 1:
        raise UserError(f"split: {' and '.join(given)} are different ways to divide people; choose one")
    if test is None and (validation is not None or train is not None):
        raise UserError("split: --validation and --train name people beside --test; give --test, too")
    if train_fraction is not None and given and given != ["--repeats"]:
        raise UserError(f"split: --train-fraction has no effect with {given[0]}; leave it out")


def _classes(store: eeg.Store, labels: str | Path, by: str, changes: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Returns each subject's class by its labels, and what is to be said of them."""
    if by not in ("set", "majority"):
        raise UserError(f"--stratify-by: expected set or majority, got {by}")
    if others := [change for change in changes if not change.startswith("labels.")]:
        raise UserError(f"split: expected settings of labels.… only, got {others[0]}; leave it out")
    settings = load_config(FinetuneConfig, None, changes)
    need_classes(settings, "split --stratify")
    rules = settings.labels
    seconds, notes = eeg.labelled_seconds(store, eeg.find_labels(labels, store, rules), rules.background)
    classes = {}
    for subject, of in seconds.items():
        if of:
            classes[subject] = "+".join(sorted(of)) if by == "set" else max(sorted(of), key=of.__getitem__)
    if without := sorted(set(seconds) - set(classes)):
        notes = [*notes, eeg.Note("no_class", f"{len(without)} people have no label: {', '.join(without[:8])}")]
        classes |= dict.fromkeys(without, "(no label)")
    return classes, [note.message for note in notes]

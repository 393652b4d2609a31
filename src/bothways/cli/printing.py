"""What commands print: tables, notes, one line on a training, or JSON."""

import json
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

out = Console(highlight=False, soft_wrap=True, markup=False, width=None if sys.stdout.isatty() else 200)

PEOPLE = ("person", "people")
CHECKED = ("format", "channels", "left out", "Hz", "s", "gaps", "events", "uV", "problems")
"""What the table of `check` says of a recording that could be read."""
COUNTED = ("channels", "Hz", "s", "gaps", "events", "uV")
WRAPPED = ("subject", "left out", "problems")
"""Columns that may take several lines."""


def checked_row(r: dict[str, Any]) -> dict[str, str]:
    """What `check` says of a recording, by column."""
    shown = {"file": r["file"], "status": r["status"], "subject": r["subject"]}
    reason = textwrap.shorten(bare_reason(r).split("; ")[0], 60, placeholder=" …")
    if "format" not in r:
        return shown | dict.fromkeys(CHECKED, "") | {"problems": reason}
    bad = f" ({len(r['bad_channels'])} bad)" if r["bad_channels"] else ""
    why = Counter(reason.removesuffix(", not scalp EEG") for reason in r["left_out"].values()).most_common()
    left_out = [f"{n} {reason}" for reason, n in why[:2]] + ([f"{len(why) - 2} more kinds"] if len(why) > 2 else [])
    problems = dict.fromkeys([*filter(None, [reason]), *(note["code"].replace("_", " ") for note in r["notes"])])
    amplitude = "" if r["amplitude_uv"] is None else number(r["amplitude_uv"])
    values = (
        r["format"], f"{len(r['ch_names'])}{bad}", ", ".join(left_out), f"{r['sfreq_hz']:g}", f"{r['duration_s']:g}",
        str(len(r["segments"]) - 1), str(r["n_events"]), amplitude, ", ".join(problems),
    )  # fmt: skip
    return shown | dict(zip(CHECKED, values))


def bare_reason(r: dict[str, Any]) -> str:
    """Why a recording cannot be used, without the path that such an error begins with."""
    path, colon, reason = r["reason"].partition(": ")
    return reason if colon and path.endswith(r["file"].rpartition("/")[2]) else r["reason"]


def print_checked(rows: list[dict[str, str]]) -> None:
    """Prints a table where there is room for it, else a few lines for each recording."""
    width = {key: max(cell_len(text) for text in (key, *(row[key] for row in rows))) + 2 for key in rows[0]}
    if sum(min(n, 18) if key in WRAPPED else n for key, n in width.items()) <= out.width:
        table = new_table(*rows[0])
        for column, key in zip(table.columns, rows[0]):
            column.no_wrap = key not in WRAPPED
        for row in rows:
            table.add_row(*row.values())
        return out.print(table)
    for row in rows:
        out.print(f"{row['file']}: {row['status']}")
        parts = [f"{row[key]} {key}" if key in COUNTED else f"{key} {row[key]}" for key in list(row)[2:] if row[key]]
        out.print(Padding(Text(", ".join(parts)), (0, 0, 0, 2)), soft_wrap=False)


def collect(said: dict[str, list[str]], recording: dict[str, Any]) -> None:
    """Sorts what is to be said of one recording by kind."""
    for name, why in recording["left_out"].items():
        said.setdefault(f"left out: {name} ({why})", []).append(recording["file"])
    for note in recording["notes"]:
        said.setdefault(note["code"], []).append(f"{recording['file']}: {note['message']}")


def print_notes(said: dict[str, list[str]]) -> None:
    """Prints the first message of each kind and how many more there are; all of them are in --json."""
    for kind, messages in said.items():
        more = f" (and {len(messages) - 1} more; --json has all)" if len(messages) > 1 else ""
        out.print(f"{kind}: {messages[0]}{more}")


def print_windows(plan: dict[str, Any]) -> None:
    """Prints how many windows of each class the people of each part have; a class that one lacks shows as 0."""
    people = [(part, person, counts) for part, those in plan["counts"].items() for person, counts in those.items()]
    columns = list(people[0][2]) if "target" in plan else plan["classes"]
    things = things_of(plan.get("task"))
    table = new_table("part", "person", *columns, title=things)
    for part, person, counts in people:
        table.add_row(part, person, *(f"{counts[name]:.4g}" for name in columns))
    out.print(table)
    for part, counts in plan["windows"].items():
        shown = ", ".join(f"{n:.4g} {name}" for name, n in counts.items())
        out.print(f"{part}: {counted(len((plan['split'] or plan['counts'])[part]), *PEOPLE)}, {things}: {shown}")


def things_of(task: str | None) -> str:
    """Returns what a task counts."""
    return "moments" if task == "moment" else "windows"


def print_loaded(report: dict[str, list[str]] | None, what: str = "weights") -> None:
    """Prints what became of weights as one line, beside the output."""
    if report is not None:
        n = {key: len(names) for key, names in report.items()}
        both = n["reshaped"] + n["other_classes"]
        line = f"{what}: {n['matched']} loaded, {n['missing'] + both} new, {n['unexpected'] + both} not used"
        print(line, file=sys.stderr)


def print_found(result: dict[str, Any]) -> None:
    """Prints what was found in files, and what was not used."""
    for one in result["skipped"]:
        out.print(f"skipped {one['file']}: {one['reason']}")
    print_notes({f"note, {code}": messages for code, messages in result["notes"].items()})
    if result["left_out"]:
        print_notes({"left out": [f"{one['file']}: {one['reason']}" for one in result["left_out"]]})
    encodings, columns = (
        sorted({one[what] for one in result["files"] if one.get(what)}) for what in ("encoding", "column")
    )
    out.print(
        f"{counted(result['documents'], 'document', 'documents')} ({result['empty_documents']} empty ones left out) of "
        f"{counted(len(result['files']), 'file', 'files')}{' in ' * bool(encodings)}{', '.join(encodings)}"
        f"{', column ' * bool(columns)}{', '.join(map(repr, columns))}"
    )


def print_training(result: dict[str, Any], unit: str = "windows") -> None:
    """Prints what a training came to as one line."""
    finished = ", finished before; --overwrite trains it anew" if result["finished_before"] else ""
    out.print(
        f"{result['run']}{finished}: {result['parameters']['total']:,} parameters, {result['seconds']:.0f} s, "
        f"{result[f'{unit}_per_s']:.1f} {unit}/s, last loss {result['loss']:.4f}"
    )


def print_evaluation(result: dict[str, Any]) -> None:
    """Prints the run beside its controls, and the run per recording, within people, and how sure it may be."""
    if "target" in result:
        return print_target(result)
    columns = {"accuracy": "accuracy", "macro_f1": "macro-F1", "kappa": "kappa", "auroc": "AUROC", "auprc": "AUPRC"}
    table = new_table("", "balanced accuracy", "95 % over people", *columns.values())
    for name, m in {**result["controls"], "this run": result["model"]}.items():
        table.add_row(
            name.replace("_", " "), number(m["balanced_accuracy"]), span(m.get("interval")),
            *(number(m.get(column)) for column in columns),
        )  # fmt: skip
    out.print(table)
    support = ", ".join(f"{n} {name}" for name, n in result["model"]["support"].items())
    out.print(f"{counted(result['model']['n_subjects'], *PEOPLE)}, {things_of(result['task'])}: {support}")
    why = (result["model"]["interval"] or {}).get("note") or result["model"]["undefined"].get("intervals")
    if why:
        out.print(f"95 % over people: {why}")
    for name, one in result["comparisons"]["arms"].items():
        if one["difference"] is not None:
            p = "" if one["p_holm"] is None else f", p {number(one['p_holm'])} (Holm)"
            against = f"this run against {name.replace('_', ' ')}"
            out.print(f"{against}: balanced accuracy {one['difference']:+.3f}{between(one)}{p}")
    levels = result["levels"]["model"]
    for level in ("recording", "subject"):
        found = levels[level]
        left_out = f"; {found['n_mixed']} with several classes left out" if found["n_mixed"] else ""
        told = found["reason"] if found["metrics"] is None else scores_line(found["metrics"]) + left_out
        out.print(f"this run, per {level}: {told}")
    within = [
        f"{title} {one['mean']:.3f} ("
        + ("" if one["sd"] is None else f"SD {one['sd']:.3f}, ")
        + f"{counted(one['n'], *PEOPLE)})"
        for metric, title in (("balanced_accuracy", "balanced accuracy"), ("auroc", "AUROC"))
        if (one := levels["within_subject"][metric])["n"]
    ]
    out.print(f"this run, within each person: {', '.join(within) or 'each has windows of one class only'}")
    for name, found in (result["events"] or {}).items():
        rates = {
            "sensitivity": "sensitivity",
            "precision": "precision",
            "f1": "F1",
            "false_alarms_per_24h": "false alarms per 24 h",
        }
        told = [f"{title} {number(found[rate] and found[rate]['mean'])}" for rate, title in rates.items()]
        rules = ", ".join(f"{rule} {seconds:g}" for rule, seconds in result["event_rules"].items())
        n_true = f"{found['pooled']['n_found']} of {found['pooled']['n_reference']} found"
        out.print(
            f"events {name} ({rules}; {n_true}; mean of {counted(found['n_subjects'], *PEOPLE)}): {', '.join(told)}"
        )
    if spans := result["model"].get("spans"):
        out.print(
            f"onset and end of {counted(spans['n'], 'event', 'events')}: median error {number(spans['onset_error_s'])} "
            f"s and {number(spans['end_error_s'])} s, mean overlap {number(spans['overlap'])}"
        )
    if sleep := result["sleep"]:
        print_sleep(sleep)
    print_temperature(result["temperature"])
    print_overlap(result["pretraining_overlap"], "test" if result["part"] == "test" else "validation")
    for note in result["notes"]:
        out.print(note)


def print_target(result: dict[str, Any]) -> None:
    """Prints a run that tells a number, or several classes at once, beside its controls."""
    if result["target"]["kind"] == "number":
        _print_number(result)
    else:
        _print_several(result)
    print_overlap(result["pretraining_overlap"], result["part"])
    for note in result["notes"]:
        out.print(note)


def _print_number(result: dict[str, Any]) -> None:
    columns = {"rmse": "RMSE", "r2": "R²", "pearson": "Pearson", "spearman": "Spearman", "bias": "bias"}
    heads = ("", "of", "n", "MAE", "95 % over people", *columns.values())
    table = new_table(*heads, title=result["target"]["name"])
    for name, m in {**result["controls"], "model": result["model"]}.items():
        levels = {level: found["metrics"] for level, found in result["levels"][name].items()}
        for level, found in {"window": m, **levels}.items():
            if found is not None:
                table.add_row(
                    "this run" if name == "model" else name.replace("_", " "), level, str(found["n"]),
                    number(found["mae"]), between((found["intervals"] or {}).get("mae")).strip(" ()"),
                    *(number(found[column]) for column in columns),
                )  # fmt: skip
    out.print(table)
    for name, one in result["comparisons"].items():
        against = f"this run against {name.replace('_', ' ')}, over {one['n']} people"
        out.print(f"{against}: MAE {one['mean']:+.3g}{between(one)}, p {number(one['p'])}")


def _print_several(result: dict[str, Any]) -> None:
    columns = {"auroc": "AUROC", "auprc": "AUPRC", "precision": "precision", "recall": "recall", "f1": "F1"}
    arms = {**result["controls"], "this run": result["model"]}
    table = new_table("class", "", "there", "of", *columns.values(), title="windows")
    for label in result["classes"]:
        for name, m in arms.items():
            one = m["labels"][label]
            table.add_row(
                label, name.replace("_", " "), str(one["n_positive"]), str(one["n"]), *(number(one[c]) for c in columns)
            )
    out.print(table)
    for name, m in arms.items():
        interval_of = between((m["intervals"] or {}).get("macro auroc"))
        out.print(
            f"{name.replace('_', ' ')}: macro AUROC {number(m['macro']['auroc'])}{interval_of}, macro F1 "
            f"{number(m['macro']['f1'])}, all classes right in {number(m['exact_match'])} of {m['n']} windows"
        )
    for level, found in result["levels"]["model"].items():
        if (m := found["metrics"]) is None:
            out.print(f"this run, per {level}: {found['reason']}")
        else:
            macro, exact = number(m["macro"]["auroc"]), number(m["exact_match"])
            out.print(f"this run, per {level}: macro AUROC {macro}, all classes right in {exact} of {m['n']}")


def print_predicted(result: dict[str, Any], out_folder: Path) -> None:
    """Prints what `predict` says of each recording, and where it is written."""
    middle = "mean" if result["target"] == "number" else "mean probability"
    table = new_table("file", "windows", "predicted", middle, "events", "s without", "written")
    for r in result["recordings"]:
        counts = ", ".join(f"{n} {name}" for name, n in r.get("counts", {}).items())
        means = ", ".join(f"{p:.2f} {name}" for name, p in r.get("mean_probability", {}).items())
        table.add_row(
            r["file"], str(r["windows"]), counts, number(r["mean_value"]) if "mean_value" in r else means,
            str(len(r["events"])) if "events" in r else "", f"{r['uncovered_s']:g}", str(out_folder / r["csv"]),
        )  # fmt: skip
    out.print(table)


def print_sleep(sleep: dict[str, Any]) -> None:
    """Prints the agreement of sleep stages, over all windows, by person and stage by stage."""
    own = sleep["kappa_subjects"]
    by_person = "" if own is None else f", by person {number(own['mean'])}{between(own)}"
    stages = ", ".join(f"{name} {number(one['f1'])}" for name, one in sleep["stages"].items())
    out.print(
        f"sleep stages: kappa {number(sleep['kappa'])}{by_person}, macro-F1 {number(sleep['macro_f1'])}; F1 {stages}"
    )


def print_temperature(t: dict[str, Any]) -> None:
    """Prints how well the probabilities can be believed, before and after a temperature, or why there is none."""
    said = f"this run, calibration: error {t['before']['ece']:.3f}, log loss {t['before']['log_loss']:.3f}"
    if t["after"] is None:
        return out.print(f"{said}; no temperature: {t['reason']}")
    return out.print(
        f"{said}; with temperature {t['temperature']:.2f} (of {t['n_subjects']} validation people) error "
        f"{t['after']['ece']:.3f}, log loss {t['after']['log_loss']:.3f}"
    )


def scores_line(m: dict[str, Any]) -> str:
    """Returns what `classification_metrics` says of recordings or people, as one line."""
    defined = {"balanced accuracy": "balanced_accuracy", "accuracy": "accuracy", "AUROC": "auroc"}
    shown = [
        f"{title} {m[name]:.3f}{between((m['intervals'] or {}).get(name))}"
        for title, name in defined.items()
        if m[name] is not None
    ]
    return f"{', '.join(shown)}, n = {m['n']}"


def span(interval: dict[str, Any] | None) -> str:
    """Returns an interval from low to high; of none, nothing."""
    return "" if interval is None or interval["low"] is None else f"{interval['low']:.2f}-{interval['high']:.2f}"


def between(interval: dict[str, Any] | None) -> str:
    """Returns an interval behind its value; of none, nothing. Its ends may be below 0."""
    known = interval is not None and interval["low"] is not None
    return f" ({interval['low']:.2f} to {interval['high']:.2f})" if interval is not None and known else ""


def print_validation(result: dict[str, Any]) -> None:
    """Prints what a fine-tuning came to on its validation people, and whether they were seen before."""
    measured, kind = result["validation"], result.get("target", {}).get("kind")
    if measured is not None and kind == "number":
        out.print(f"validation: MAE {number(measured['mae'])}, R² {number(measured['r2'])}")
    elif measured is not None and kind == "several":
        out.print(
            f"validation: macro AUROC {number(measured['macro']['auroc'])}, all classes right in "
            f"{number(measured['exact_match'])} of {measured['n']} windows"
        )
    elif measured is not None:
        out.print(
            f"validation: balanced accuracy {number(measured['balanced_accuracy'])}, accuracy "
            f"{number(measured['accuracy'])} of {counted(measured['n_subjects'], *PEOPLE)}"
        )
    if result.get("pretraining_overlap") is not None:
        print_overlap(result["pretraining_overlap"], "validation")


def print_overlap(overlap: dict[str, Any], part: str) -> None:
    """Prints how the people of a part are touched by what the weights were trained on before."""
    files, people = overlap["recordings"], overlap["subjects"]
    which = f" ({len(files)} recordings, such as {files[0]})" if files else ""
    out.print(f"overlap of the {part} people with pretraining: {overlap['kind']}{which}")
    if people:
        names = ", ".join(people[:8]) + (", …" if len(people) > 8 else "")
        out.print(
            f"warning: the weights were trained on {counted(len(people), *PEOPLE)} of the {part} part "
            f"({names}) before: the figures are not those of people never seen"
        )


def print_embedded(result: dict[str, Any]) -> None:
    """Prints what `embed` wrote and left out."""
    said: dict[str, list[str]] = {}
    for r in result["recordings"]:
        collect(said, r)
        if n := r["unusable_windows"]:
            said.setdefault("unusable windows", []).append(f"{n} of {r['file']} hold no usable patch")
    print_notes(said)
    for note in result["notes"]:
        out.print(note)
    for skipped in result["skipped"]:
        out.print(f"skipped {skipped['file']}: {bare_reason(skipped)}")
    of_labels = "".join(f", {n} {name}" for name, n in result["labels"].items())
    out.print(
        f"{result['windows']} windows of {result['window_s']:g} s, {result['size']} numbers for each of "
        f"{' and '.join(result['pools'])}{of_labels}"
    )
    if plot := result["plot"]:
        share, chance = plot["same_neighbour"], plot["by_chance"]
        rest = f" ({plot['ungrouped']} windows without one left out)" if plot["ungrouped"] else ""
        told = "too few windows" if share is None else f"{share:.0%}, by chance {chance:.0%}"
        out.print(f"nearest neighbour of the same {plot['colour']}: {told}{rest}")
    for file in result["files"]:
        out.print(f"written: {file}")


def print_compared(result: dict[str, Any]) -> None:
    """Prints what `compare` found: arms, differences to the strongest control, what each was given."""
    table = new_table(
        "balanced accuracy", "over trials", "n", "95 %", "over people", "95 %", "fitted", "encoder",
        title=f"{counted(result['seeds'], 'trial', 'trials')}, {counted(result['splits'], 'split', 'splits')}",
    )  # fmt: skip
    for arm in result["arms"].values():
        trials, people = arm["over_trials"], arm["over_people"]
        table.add_row(
            arm["title"], number(trials["mean"]), str(trials["n"] or 0), interval(trials), number(people["mean"]),
            interval(people), f"{arm['trained']:,}", "" if arm["encoder"] is None else f"{arm['encoder']:,}",
        )  # fmt: skip
    out.print(table)
    strongest = result["strongest_control"]
    compared = {name: those[strongest] for name, those in result["differences"].items() if strongest in those}
    if compared:
        title = f"difference to the strongest control, {result['arms'][strongest]['title']}"
        table = new_table(
            "", "difference", "95 % over people", "95 % over trials", "above", "better for", "p", "Holm", title=title
        )
        for name, d in compared.items():
            better = f"{d['wins']} of {d['n']} people"
            table.add_row(
                result["arms"][name]["title"], number(d["mean"]), interval(d), interval(d["over_trials"]),
                "yes" if d["above"] else "no", better, number(d["p"]), number(d["p_holm"]),
            )  # fmt: skip
        out.print(table)
    for name, one in result["every_control"].items():
        if one is not None:
            above = "above" if one["above"] else "not above"
            out.print(f"{result['arms'][name]['title']}: {above} every control, p {number(one['p'])}")
    for arm in result["arms"].values():
        out.print(f"{arm['title']}: given {arm['given']}")
    for one in result["pretraining_overlap"]:
        out.print(f"split {one['split']}: overlap of the tested people with pretraining: {one['kind']}")
    for note in result["notes"]:
        out.print(f"note: {note}")
    out.print(f"written: {result['out']}/report.html, {result['out']}/compare.json; {result['seconds']:.0f} s in all")


def interval(values: dict[str, Any]) -> str:
    """Returns the 95 % interval of a summary; of one value, nothing."""
    return "" if values["low"] is None else f"{values['low']:.2f} to {values['high']:.2f}"


def print_json(value: dict[str, Any]) -> None:
    """Prints a result as JSON."""
    print(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False))


def counted(n: int, one: str, several: str) -> str:
    """Returns a number and the word that goes with it."""
    return f"{n:,} {one if n == 1 else several}"


def number(value: float | None) -> str:
    """Returns three digits of a number; of what is undefined, a dash."""
    return "–" if value is None else f"{value:.3g}"


def new_table(*columns: str, title: str | None = None) -> Table:
    """Makes a table without lines; its first column is never broken."""
    table = Table(*columns, title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.overflow = "fold"
    return table

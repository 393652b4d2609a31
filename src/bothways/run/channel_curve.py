"""`bothways eeg curve channels`: a fine-tuned run on fewer channels than it was trained on, without training again.

OUT/manifest.json          what the result depends on
OUT/montages/NAME.json     what is finished, one file for a montage
OUT/channels.json          the result, and OUT/report.html the same as a page
"""

import json
import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from bothways import eeg
from bothways.errors import UserError
from bothways.evaluation import side_by_side
from bothways.files import check_output, locked, read_json, write_json
from bothways.report import write_report
from bothways.run.common import content_of
from bothways.run.curve_page import channel_page
from bothways.run.targets import need_classes
from bothways.run.tested import Tested, open_tested, scored
from bothways.training import MANIFEST, content_of_run, interruptible

RESULT, PAGE = "channels.json", "report.html"
RESULTS = 2
"""Number of the form in which results are kept."""
COUNTS = (19, 8, 4, 2)
ALL, BIPOLAR = "all", "bipolar"


@interruptible("channel curve")
def channel_curve(
    run: str | Path,
    out: str | Path,
    *,
    data: str | Path | None = None,
    part: str = "test",
    overwrite: bool = False,
) -> dict[str, Any]:
    """Measures a fine-tuned run with all channels, 19, 8, 4 and 2 of them, and with a montage that it has never seen.

    The channels that are kept are the first ones of `eeg.TEN_TWENTY` that all recordings of the people have; the others
    are hidden as bad ones are: no tokens or, where a token holds all channels, zeros in it. The montage never seen is
    the longitudinal bipolar one (`eeg.BipolarStore`): differences of neighbours, made of the stored signals. Only
    windows that every montage can be asked about are counted. What is finished is kept in `out`.

    Args:
        run: a fine-tuned run.
        out: folder of the curve.
        data: the run's store, where it has moved.
        part: `test` or `validation`.
        overwrite: begin anew.

    Returns:
        `out`, `run`, `part`, `classes`, `thing` (what is told: window, moment or event), `n` (how many), `montages` (a
        row for each: `name`, `ch_names`, `n_channels`, `balanced_accuracy`, `over_people` (mean, 95 % interval),
        `people`, `difference_to_all` (as `evaluation.side_by_side` has it)), `refused` (name -> reason),
        `notes`.

    Raises:
        UserError: see `evaluate`; or `out` was begun with another run or other data.
        Interrupted: a signal came; what was finished is kept.
    """
    out = Path(out)
    here = open_tested(run, data, part)
    need_classes(here.settings, "channel curve")
    begun = not overwrite and (out / MANIFEST).is_file()
    check_output(out, overwrite=overwrite or begun, inputs=[here.run, here.store.path])
    depends_on = {
        "run": content_of_run(here.run), "data": content_of(here.store), "part": part, "bothways": version("bothways"),
        "results": RESULTS,
    }  # fmt: skip
    if begun and read_json(out / MANIFEST) != {"kind": "channel_curve", "depends_on": depends_on}:
        raise UserError(
            f"{out}: was begun by another command or with another run, part or data; use those, choose another --out, "
            "or pass --overwrite to begin anew"
        )
    stores, ch_names, refused = _montages(here)
    usable = np.ones(len(here.tested), bool)
    for store in stores.values():
        usable &= here.sources(store).of(here.tested).usable()
    if not usable.any():
        raise UserError(f"{here.run}: no window has a usable patch in every montage; see `bothways eeg check`")
    tested = here.tested.select(usable)
    notes = [*here.notes, *_notes(here, stores)]
    if lost := int((~usable).sum()):
        notes.append(f"{lost} of {len(usable)} windows have no usable patch in one of the montages: left out of all")
    with locked(out / "lock", f"{out}: another process computes a curve there; wait until it is done"):
        if overwrite:
            for entry in out.iterdir():
                if entry.name != "lock":
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        (out / "montages").mkdir(exist_ok=True)
        write_json(out / MANIFEST, {"kind": "channel_curve", "depends_on": depends_on})
        entries: dict[str, dict[str, Any]] = {}
        for name, store in stores.items():
            file = out / "montages" / f"{name}.json"
            if not file.is_file():
                write_json(file, scored(*here.predict(here.sources(store), tested)))
            entries[name] = read_json(file)
        compared = side_by_side({name: {part: entry} for name, entry in entries.items()}, [ALL])
        result = {
            "out": str(out),
            "run": str(here.run),
            "part": part,
            "classes": here.tested.classes,
            "thing": here.task,
            "n": entries[ALL]["n"],
            "montages": [
                {
                    "name": name,
                    "ch_names": ch_names[name],
                    "n_channels": len(ch_names[name]),
                    "balanced_accuracy": entry["balanced_accuracy"],
                    "over_people": compared["arms"][name]["over_people"],
                    "people": compared["arms"][name]["people"],
                    "difference_to_all": None if name == ALL else compared["differences"][name][ALL],
                }
                for name, entry in entries.items()
            ],
            "refused": refused,
            "notes": notes,
        }
        write_json(out / RESULT, result)
        write_report(channel_page(result), out / PAGE)
    return result


def _montages(here: Tested) -> tuple[dict[str, eeg.Store], dict[str, list[str]], dict[str, str]]:
    """Returns the store as each montage shows it, the channels in it, and which montages cannot be had, with why."""
    used = sorted(set(here.tested.recording.tolist()))
    common = set.intersection(*(set(here.store.recordings[index].ch_names) for index in used))
    fixed = here.patches.ch_names if here.patches.tokens == "all_channels" else ()
    everything = [n for n in fixed or here.store.recordings[used[0]].ch_names if n in common]
    stores, ch_names, refused = {ALL: here.store}, {ALL: everything}, dict[str, str]()
    for n in COUNTS:
        kept = eeg.ten_twenty(everything, n)
        name = str(len(kept))
        if not kept:
            refused[str(n)] = "no channel of all recordings is one of the 10-20 system"
        elif len(kept) == len(everything) or name in stores:
            n_all = len(everything)
            refused[str(n)] = f"of the {n_all} channels that the recordings share {name} are of the 10-20 system: done"
        else:
            stores[name], ch_names[name] = eeg.showing(here.store, kept), kept
    if fixed:
        refused[BIPOLAR] = (
            f"the model's tokens hold {len(fixed)} channels by their names, of which none is a difference"
        )
        return stores, ch_names, refused
    try:
        of_people = [i for i, r in enumerate(here.store.recordings) if r.subject in set(here.tested.subject.tolist())]
        stores[BIPOLAR] = bipolar = eeg.BipolarStore(here.store, sorted({*used, *of_people}))
        shared = set.intersection(*(set(bipolar.recordings[index].ch_names) for index in used))
        ch_names[BIPOLAR] = [name for name in bipolar.recordings[used[0]].ch_names if name in shared]
    except UserError as problem:
        refused[BIPOLAR] = str(problem)
    return stores, ch_names, refused


def _notes(here: Tested, stores: Mapping[str, eeg.Store]) -> list[str]:
    notes = []
    if here.store.signal.reference == "average":
        notes.append(
            "the store's reference is the average of all channels and stays: where some are hidden, a trace of them is "
            "left in the others"
        )
    if BIPOLAR in stores:
        trained = json.dumps([here.manifest["data"], here.manifest.get("pretraining")])
        pairs = {n for i in set(here.tested.recording.tolist()) for n in stores[BIPOLAR].recordings[i].ch_names}
        if seen := sorted(name for name in pairs if name in trained):
            notes.append(f"bipolar is not new to the model: it was trained on {', '.join(seen)}")
    return notes

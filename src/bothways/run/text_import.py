"""`bothways text import`."""

from pathlib import Path
from typing import Any

import torch

from bothways import __version__, text
from bothways.errors import UserError
from bothways.files import check_output, new_folder, sha256_file, write_json, write_text
from bothways.run.text_export import usage
from bothways.training import (
    CARD,
    CONFIG,
    CONFIG_SUM,
    MANIFEST,
    check_config,
    check_finished,
    content_of_run,
    model_card,
    run_at,
)
from bothways.weights import read_folder, read_header


def text_import(folder: str | Path, out: str | Path, *, overwrite: bool = False) -> dict[str, Any]:
    """Makes of a BERT that others saved a folder in transformers' present layout, and says what became of its weights.

    Taken are safetensors with transformers' names, with and without the prefix `bert.`, old ones (`gamma`, `beta`) and
    TensorFlow's. Written are the config, the weights in float32, `tokenizer.json`, `vocab.txt`,
    `tokenizer_config.json`, a manifest and a README.md.

    Args:
        folder: the BERT.
        out: the folder to write.
        overwrite: replace `out`.

    Returns:
        `out`, `source`, `architecture` (transformers' class), `heads`, `parameters`, `vocab_size`, `tokens`
        (named ones: the table may have more rows), `load_report`, `body_share` (of the embedding and encoder, what was
        filled), `names` (whose names the weights had, "" = PyTorch's) and `notes`.

    Raises:
        UserError: it is no BERT, is damaged or has not all its weights, or `out` cannot be written.
    """
    source, out = run_at(Path(folder)), Path(out)
    check_output(out, overwrite=overwrite, inputs=[source])
    check_finished(source)
    check_config(source)
    model, tokenizer, report = text.load_folder(source)
    if odd := text.unlike_bert(model.config):
        raise UserError(f"{source}: expected a BERT, got a model with {odd}; a run of ours needs no import")
    kinds = {tensor.dtype for tensor in read_folder(source, read_header).values() if tensor.is_floating_point()}
    others = sorted(str(kind).removeprefix("torch.") for kind in kinds - {torch.float32})
    notes = [f"weights of {' and '.join(others)} are float32 now"] if others else []
    if (source / CARD).is_file():
        notes.append(f"its own {CARD} is not copied; what it says of licence and data holds for this copy, too")
    if "mlm" not in model.heads:
        notes.append("it has no head for hidden tokens (mlm), which fill-mask and evaluate need; embed does not")
    found = {
        "architecture": text.config_to_transformers(model.config)["architectures"][0],
        "heads": list(model.config.heads),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "vocab_size": tokenizer.vocab_size,
        "tokens": len(tokenizer),
        "load_report": report.as_dict(),
        "body_share": report.body_share,
        "names": report.names,
        "notes": notes,
    }
    origin = {"folder": source.resolve().name, "sha256": content_of_run(source)}
    manifest = {"kind": "imported", "source": origin, **found, "versions": {"bothways": __version__}}
    with new_folder(out, overwrite=overwrite) as new:
        text.save_folder(new, model)
        for name, content in text.tokenizer_files(tokenizer, source).items():
            write_text(new / name, content)
        card = model_card(model, {}, manifest, {})
        write_text(new / CARD, card + "\n" + usage(found["architecture"]))
        write_json(new / MANIFEST, {**manifest, CONFIG_SUM: sha256_file(new / CONFIG)})
    return {"out": str(out), "source": str(source), **found}

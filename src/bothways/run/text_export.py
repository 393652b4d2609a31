"""`bothways text export`."""

from pathlib import Path
from typing import Any

from bothways import text
from bothways.errors import UserError
from bothways.files import check_output, new_folder, sha256_file, write_json, write_text
from bothways.training import (
    CARD,
    CONFIG,
    CONFIG_SUM,
    MANIFEST,
    check_config,
    check_finished,
    run_at,
)

_README = """---
library_name: transformers
tags:
- bert
---

# {architecture}

A BERT of {layers} layers, hidden size {size}, {heads} attention heads: {parameters:,} parameters, {tokens:,} tokens, \
texts of at most {positions:,} tokens.

{usage}"""
_USAGE = """## In transformers

```python
from transformers import AutoTokenizer, {architecture}

tokenizer = AutoTokenizer.from_pretrained("PATH")  # this folder
model = {architecture}.from_pretrained("PATH")
```
"""


def usage(architecture: str) -> str:
    """Returns how transformers opens a folder, as a section of its README."""
    return _USAGE.format(architecture=architecture)


def text_export(run: str | Path, out: str | Path, *, overwrite: bool = False) -> dict[str, Any]:
    """Writes of a run on text what transformers needs and nothing of what it was trained on.

    That is the config, the weights, the tokenizer and a short README.md; `manifest.json` says only that it is an export
    and holds the config's checksum, by which `bothways.load` and `overwrite` know the folder.

    Args:
        run: a run, or a checkpoint of one.
        out: the folder to write.
        overwrite: replace `out`.

    Returns:
        `out`, `run`, `architecture` (transformers' class), `heads`, `parameters`, `files` (what was written) and
        `left_out` (what else lies beside the run's weights).

    Raises:
        UserError: it is no model of text, transformers has no such model (preset `fast`), or `out` cannot be written.
    """
    source, out = run_at(Path(run)), Path(out)
    check_output(out, overwrite=overwrite, inputs=[source])
    check_finished(source)
    check_config(source)
    model, tokenizer, _ = text.load_folder(source)
    config = model.config
    if odd := text.unlike_bert(config):
        raise UserError(
            f"{source}: expected a model that transformers has a class for, got one with {odd}; train with "
            'encoder.preset = "bert" to export'
        )
    assert config.text is not None
    parameters = sum(parameter.numel() for parameter in model.parameters())
    architecture = text.config_to_transformers(config)["architectures"][0]
    readme = _README.format(
        architecture=architecture, layers=config.encoder.num_hidden_layers, size=config.encoder.hidden_size,
        heads=config.encoder.num_attention_heads, parameters=parameters, tokens=len(tokenizer),
        positions=config.text.max_position_embeddings, usage=usage(architecture),
    )  # fmt: skip
    with new_folder(out, overwrite=overwrite) as new:
        text.save_folder(new, model, bare=True)
        for name, content in text.tokenizer_files(tokenizer, source).items():
            write_text(new / name, content)
        write_text(new / CARD, readme)
        write_json(new / MANIFEST, {"kind": "exported", CONFIG_SUM: sha256_file(new / CONFIG)})
        files = sorted(path.name for path in new.iterdir())
    return {
        "out": str(out),
        "run": str(source),
        "architecture": architecture,
        "heads": list(config.heads),
        "parameters": parameters,
        "files": files,
        "left_out": sorted({path.name for path in source.iterdir()} - {*files}),
    }

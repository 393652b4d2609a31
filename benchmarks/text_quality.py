"""Held-out losses of pretraining on the speeches at an equal budget of time, beside transformers; prints a table.

python benchmarks/text_quality.py [--minutes 10] [--arms bert,fast,transformers] [--rates 0.15,0.25,0.4] [--out FOLDER]

Each arm has the same corpus, tokenizer, documents kept out, sizes, batch and time. `transformers` is its
BertForPreTraining in a plain loop on the same batches in the same order, with the rate, schedule and dropout of `bert`.
`--rates` trains preset fast with other shares of hidden tokens instead; all are measured with 15 % hidden.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bothways import run, text
from bothways.config import ModelConfig, TextConfig, TextMaskingConfig, TextPretrainConfig, load_config
from bothways.evaluation import wilson
from bothways.model import Model, load_weights
from bothways.training import Plan, learning_rate_at, mean_losses

ROOT = Path(__file__).parent.parent
DATA = ROOT / "examples/data/text_speeches/inaugural"
RECIPE = ROOT / "recipes/small-corpus-text.toml"
BERT_RATE = "training.learning_rate=1e-3"
"""Layer norms behind the sums bear less than the recipe's rate."""
EPOCHS = 8
"""How often the documents kept out are gone through, with other pairs and masks each time."""


def settings_of(minutes: float, *changes: str) -> list[str]:
    return [f"training.minutes={minutes}", "training.checkpoint_every_s=0", "training.evaluations=1", *changes]


def held_out_source(corpus: text.Corpus, settings: TextPretrainConfig) -> text.SequenceSource:
    """Sequences of the documents kept out, 15 % of their tokens hidden."""
    _, held_out = text.divide(corpus, settings.validation_fraction, settings.training.seed, pairs=True)
    return text.SequenceSource(
        corpus, held_out, settings.sequences, TextMaskingConfig(), next_sentence=True, seed=1, purpose="quality"
    )


def measured(model: Model, source: text.SequenceSource) -> dict[str, Any]:
    ids = np.tile(np.arange(len(source)), EPOCHS)
    found = mean_losses(model.eval(), source, ids, np.repeat(np.arange(EPOCHS), len(source)))
    nsp = found["nsp"]
    interval = wilson(round(nsp["accuracy"] * nsp["n"]), nsp["n"])
    return found | {"nsp": nsp | {"interval": [interval["low"], interval["high"]]}}


def ours(corpus: Path, out: Path, changes: list[str]) -> tuple[Model, int]:
    """Trains by the command; returns the model and its steps."""
    told = run.text_pretrain(corpus, out, recipe=RECIPE, changes=changes, overwrite=True)
    return text.load_folder(out).model, told["steps"]


def theirs(corpus: text.Corpus, settings: TextPretrainConfig, minutes: float) -> tuple[Model, int]:
    """Trains transformers' class in a plain loop; returns its weights in our model, and the steps."""
    from transformers import BertConfig, BertForPreTraining

    encoder, config = settings.encoder, settings.training
    torch.manual_seed(config.seed)
    sizes = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
    model = BertForPreTraining(
        BertConfig(
            **{name: getattr(encoder, name) for name in sizes},
            vocab_size=corpus.tokenizer.size,
            max_position_embeddings=settings.sequences.positions,
            hidden_dropout_prob=encoder.hidden_dropout_prob,
            attention_probs_dropout_prob=encoder.attention_probs_dropout_prob,
        )
    ).train()
    trained_on, _ = text.divide(corpus, settings.validation_fraction, config.seed, pairs=True)
    source = text.SequenceSource(
        corpus, trained_on, settings.sequences, settings.masking, next_sentence=True, seed=config.seed
    )
    assert isinstance(config.batch_size, int)
    plan = Plan(len(source), config.batch_size, config.seed)
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}],
        lr=config.learning_rate, betas=(0.9, config.beta2), fused=True,
    )  # fmt: skip
    started, step = time.monotonic(), 0
    while (share := (time.monotonic() - started) / (60 * minutes)) < 1:
        batch = source.batch(*plan.step(step))
        labels = {"labels": batch.pop("mlm_labels"), "next_sentence_label": batch.pop("nsp_labels")}
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(share, config)
        model(**batch, **labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm or torch.inf)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % 200 == 0:
            print(f"transformers: step {step}, {share:.0%} of the time", file=sys.stderr, flush=True)
    built = ModelConfig(
        encoder=encoder,
        text=TextConfig(vocab_size=corpus.tokenizer.size, max_position_embeddings=settings.sequences.positions),
        pooler=True,
        heads={"mlm": {"kind": "mlm"}, "nsp": {"kind": "nsp"}},  # type: ignore[dict-item]
    )
    mine = Model(built, text.TokenEmbedding(built))
    load_weights(mine, text.from_transformers(model.state_dict(), mine.state_dict()))
    return mine, step


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--arms", default="bert,fast,transformers")
    parser.add_argument("--rates", default="", help="shares of hidden tokens, with preset fast, instead of --arms")
    parser.add_argument("--vocab", type=int, default=4096)
    parser.add_argument("--set", action="append", default=[], help="another setting of the recipe, for all arms")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/text_quality")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    tokenizer, prepared = options.out / "tokenizer", options.out / "corpus"
    run.text_tokenizer(DATA, tokenizer, vocab=options.vocab, documents="file", overwrite=True)
    run.text_prepare(DATA, prepared, tokenizer, documents="file", overwrite=True)
    corpus, settings = text.Corpus.open(prepared), load_config(TextPretrainConfig, RECIPE, options.set)
    source = held_out_source(corpus, settings)
    rows: dict[str, dict[str, Any]] = {}
    rates = [float(rate) for rate in options.rates.split(",") if rate]
    plan = {f"rate {rate:g}": ("fast", [f"masking.ratio={rate}"]) for rate in rates}
    plan = plan or {arm: (arm, [] if arm == "fast" else [BERT_RATE]) for arm in options.arms.split(",")}
    for name, (preset, changes) in plan.items():
        if preset == "transformers":
            same = load_config(TextPretrainConfig, RECIPE, [*options.set, "encoder.preset=bert", *changes])
            model, steps = theirs(corpus, same, options.minutes)
        else:
            told = settings_of(options.minutes, *options.set, f"encoder.preset={preset}", *changes)
            model, steps = ours(prepared, options.out / name.replace(" ", "-"), told)
        rows[name] = {"steps": steps, **measured(model, source)}
        mlm, nsp = rows[name]["mlm"], rows[name]["nsp"]
        low, high = nsp["interval"]
        print(
            f"| {name} | {steps:,} | {mlm['loss']:.3f} | {mlm['accuracy']:.3f} | {nsp['accuracy']:.3f} "
            f"({low:.3f} to {high:.3f}) |",
            flush=True,
        )
    where = f"{len(os.sched_getaffinity(0))} cores, {torch.get_num_threads()} threads"
    (options.out / f"{'rates' if rates else 'arms'}.json").write_text(
        json.dumps({"where": where, "rows": rows}, indent=1)
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Text to a BERT of one's own: vocabulary, corpus, pretraining, and what stands in the place of a [MASK].

Run it with `make demo-text`. It uses the same functions as the command line, so it also shows the Python API.
"""

import json
import shutil
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bothways import run

ROOT = Path(__file__).parent.parent
DATA = ROOT / "examples/data/text_speeches/inaugural"
OUT = ROOT / "demo-run/text"
RECIPE = ROOT / "recipes/small-corpus-text.toml"
MINUTES = 3.0
SENTENCES = (
    "the president of the united [MASK] .",
    "we the people of this [MASK] .",
    "fellow [MASK] , i thank you .",
)
console = Console(highlight=False)


def main() -> None:
    """Runs all steps and prints the tables."""
    started = time.monotonic()
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    console.print(f"1 tokenizer: {DATA.relative_to(ROOT)}, each file a document")
    learned = run.text_tokenizer(DATA, OUT / "tokenizer", vocab=4096, documents="file")
    console.print(f"  {learned['vocab_size']:,} tokens; {learned['unknown'] / learned['tokens']:.2%} of the text [UNK]")
    console.print("2 prepare: sentences, token ids")
    corpus = run.text_prepare(DATA, OUT / "corpus", OUT / "tokenizer", documents="file")
    console.print(f"  {corpus['documents']} documents, {corpus['sentences']:,} sentences, {corpus['tokens']:,} tokens")
    console.print(f"3 pretrain: hidden tokens and next sentences, {MINUTES:g} minutes")
    trained = run.text_pretrain(OUT / "corpus", OUT / "run", recipe=RECIPE, changes=[f"training.minutes={MINUTES}"])
    table = Table("on speeches never seen", "loss", "accuracy")
    for name, title in (("mlm", "hidden tokens (MLM)"), ("nsp", "next sentence (NSP)")):
        measured = trained["validation"][name]
        table.add_row(title, f"{measured['loss']:.3f}", f"{measured['accuracy']:.3f}")
    console.print(table)
    console.print("4 fill-mask")
    filled = run.text_fill_mask(OUT / "run", list(SENTENCES), top=3)
    for one in filled["texts"]:
        for mask in one["masks"]:
            guesses = ", ".join(f"{guess['token']} {guess['probability']:.2f}" for guess in mask["top"])
            console.print(f"  {one['text']}  ->  {guesses}", markup=False)
    (OUT / "demo.json").write_text(
        json.dumps({"validation": trained["validation"], "filled": filled["texts"]}, indent=1)
    )
    console.print(f"{time.monotonic() - started:.0f} s; the run is in {OUT.relative_to(ROOT)}/run")


if __name__ == "__main__":
    main()

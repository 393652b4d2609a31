"""Runs all parts, or those named, in one run: prints the table, writes it, and fails where a bound is missed.

python benchmarks/run.py [PART …]
"""

import importlib
import sys
from pathlib import Path

from timing import Figures, pin_threads, table, warn_if_busy, write_results

PARTS = (  # modules of this folder with `run() -> Figures`
    *("encoder", "peers", "prepare", "reads", "memory", "loop"),
    *("text_steps", "text_memory", "text_encoding", "text_tokenising"),
)


def main(chosen: list[str]) -> int:
    if unknown := set(chosen) - set(PARTS):
        print(f"no such part: {', '.join(sorted(unknown))}; known: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    pin_threads()
    load = warn_if_busy()
    results: dict[str, Figures] = {}
    for part in chosen or PARTS:
        print(f"measuring: {part}", file=sys.stderr, flush=True)
        results[part] = importlib.import_module(part).run()
    write_results(results, load, Path(__file__).parent / "results")
    print(table(results))
    return 0 if all(figure.holds for figures in results.values() for figure in figures.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

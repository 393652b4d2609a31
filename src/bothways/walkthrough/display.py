"""Matrices, products and hand computations as lines of text, for a terminal or a pipe, of any width."""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from bothways.walkthrough.tape import Array

MOST = 16
"""Rows or columns up to which a matrix is shown whole."""
FIRST, LAST = 8, 4
"""Rows and columns that are shown of a longer one: the first and the last, and the one that is asked for."""
TOLERANCE = 1e-9
"""Between a hand computation and the array: the two add up in another order."""
STYLES = {
    "title": "1;36", "name": "36", "positive": "33", "negative": "34", "zero": "2", "match": "1;32", "differ": "1;31",
    "note": "2",
}  # fmt: skip


@dataclass(frozen=True)
class Check:
    """A hand computation beside the array that it came from."""

    name: str
    by_hand: float
    from_array: float
    tolerance: float = TOLERANCE

    @property
    def match(self) -> bool:
        """Whether the two agree."""
        return bool(abs(self.by_hand - self.from_array) <= self.tolerance * max(1.0, abs(self.from_array)))


@dataclass
class Paper:
    """Takes what is shown and keeps it as lines; every check that was made is kept too."""

    width: int = 120
    colour: bool = False
    row: int = 0
    """The row that is shown also where a long matrix is abbreviated, and that is worked out by hand."""
    head: int | None = None
    """The only head of the attention that is shown; None = all."""
    in_full: bool = False
    """Whether that row is written out in full below an abbreviated matrix."""
    brief: bool = False
    """Whether the left side of a product that was shown before is only named."""
    lines: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    # --- words -------------------------------------------------------------------------------------------------

    def banner(self, title: str, note: str = "") -> None:
        """The head of a part."""
        rule = "=" * min(self.width, 78)
        self.lines += ["", self._style(rule, "title")]
        self.lines += [self._style(line, "title") for line in textwrap.wrap(title, self.width)]
        if note:
            self.lines += textwrap.wrap(note, self.width)
        self.lines.append(self._style(rule, "title"))

    def step(self, title: str, note: str = "") -> None:
        """The head of a step."""
        self.lines += ["", self._style(title, "title"), self._style("-" * min(self.width, len(title)), "title")]
        if note:
            self.lines += [self._style(line, "note") for line in textwrap.wrap(note, self.width)]

    def text(self, *paragraphs: str) -> None:
        """Sentences, wrapped."""
        for paragraph in paragraphs:
            self.lines += textwrap.wrap(paragraph, self.width) or [""]

    def line(self, *lines: str) -> None:
        """Lines as they are; one that is too wide goes on in the next."""
        for line in lines:
            self.lines += textwrap.wrap(line, self.width, subsequent_indent="    ", drop_whitespace=False) or [""]

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> None:
        """A table of words and numbers; the last column takes what room is left and goes on below."""
        widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
        last = max(self.width - sum(widths[:-1]) - 2 * (len(columns) - 1), 12)

        def put(row: Sequence[str], style: str | None = None) -> None:
            left = "  ".join(cell.ljust(width) for cell, width in zip(row[:-1], widths[:-1]))
            indent = " " * (len(left) + 2 * (len(row) > 1))
            parts = textwrap.wrap(row[-1], last) or [""]
            for k, part in enumerate(parts):
                text = (left + "  " * (len(row) > 1) if k == 0 else indent) + part
                self.lines.append(self._style(text.rstrip(), style) if style else text.rstrip())

        put(columns, "name")
        self.lines.append("-" * min(self.width, sum(widths[:-1]) + 2 * (len(columns) - 1) + min(widths[-1], last)))
        for row in rows:
            put(row)
        if note:
            self.text(note)

    def bars(
        self, names: Sequence[str], values: Sequence[float], notes: Sequence[str] = (), unit: float = 0.25
    ) -> None:
        """Numbers with a bar of one sign for each `unit`."""
        wide = max(map(len, names))
        for i, (name, value) in enumerate(zip(names, values)):
            note = f"  {notes[i]}" if notes and notes[i] else ""
            self.lines.append(f"{name.rjust(wide)}: {value:.4f}  {'#' * int(value / unit)}{note}")

    # --- matrices ----------------------------------------------------------------------------------------------

    def matrix(
        self,
        name: str,
        array: Array,
        rows: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        decimals: int | None = None,
        signed: bool = True,
        keep: tuple[int, int] | None = None,
    ) -> None:
        """A matrix with its shape; a long one is abbreviated and says how, a wide one goes on in a second block.

        Args:
            name: what it is called.
            array: [n m] or [m].
            rows: names of the rows.
            columns: names of the columns.
            decimals: of each number; 3 where not given, 5 where all are small.
            signed: whether a plus is written.
            keep: the row and the column that are shown in any case; `self.row` and the first where not given.
        """
        array = np.asarray(array)
        array = array[None] if array.ndim == 1 else array
        if decimals is None:
            decimals = 5 if 0 < np.abs(array).max(initial=0.0) < 0.1 else 3
        n_rows, n_columns = array.shape
        keep_row, keep_column = keep or (self.row, 0)
        kept_rows, kept_columns = _kept(n_rows, keep_row), _kept(n_columns, keep_column)
        said = [
            f"{what} {_ranges(kept)} of {total} shown"
            for what, kept, total in (("rows", kept_rows, n_rows), ("columns", kept_columns, n_columns))
            if len(kept) < total
        ]
        rest = f" {_shape(array)}" + (f" [{'; '.join(said)}]" if said else "") + " ="
        if len(name + rest) > self.width:
            self.line(name + rest)
        else:
            self.lines.append(self._style(name, "name") + rest)
        row_names = [str(r) for r in range(n_rows)] if rows is None else [str(r) for r in rows]
        wide = max([len(row_names[r]) for r in kept_rows] or [1])
        sign = "+" if signed else ""
        cells = {(r, c): f"{array[r, c]:{sign}.{decimals}f}" for r in kept_rows for c in kept_columns}
        heads = {c: str(columns[c]) for c in kept_columns} if columns is not None else {}
        cell = max([len(text) for text in [*cells.values(), *heads.values()]] or [1])
        room = self.width - wide - 2 - 4 * (len(kept_columns) < n_columns)  # a gap takes four signs
        at_once = max(1, room // (cell + 1))
        blocks = [kept_columns[i : i + at_once] for i in range(0, len(kept_columns), at_once)] or [[]]
        for block in blocks:
            if len(blocks) > 1:
                self.lines.append(self._style(f"  columns {_ranges(block)}:", "note"))
            after_gap = {c for before, c in pairwise(block) if c > before + 1}
            if heads:
                names = [("    " if c in after_gap else "") + heads[c].rjust(cell) for c in block]
                self.lines.append(" " * (wide + 3) + " ".join(names))
            before = -1
            for r in kept_rows:
                if r > before + 1:
                    self.lines.append(" " * wide + " | ...")
                before = r
                shown = [
                    ("... " if c in after_gap else "") + self._number(cells[r, c].rjust(cell), float(array[r, c]))
                    for c in block
                ]
                self.lines.append(f"{row_names[r].rjust(wide)} | {' '.join(shown)}")
        if self.in_full and len(kept_columns) < n_columns and keep_row < n_rows:
            self.vector(f"row {keep_row} in full", array[keep_row], decimals)

    def vector(self, name: str, values: Array, decimals: int = 4) -> None:
        """A few numbers in a line."""
        self.line(f"{name} = {numbers(values, decimals)}")

    def product(
        self,
        left: tuple[str, Array],
        right: tuple[str, Array],
        result: tuple[str, Array],
        *,
        rows: Sequence[str] | None = None,
        inner: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        worked: tuple[int, int] | None = (0, 0),
        bias: Array | None = None,
        note: str = "",
        right_name: str | None = None,
        known: bool = False,
    ) -> None:
        """Shows left @ right = result: the shape rule, the three matrices and one element by hand.

        Args:
            left: name and matrix [n k].
            right: name and matrix [k m].
            result: name and matrix [n m].
            rows: names of the rows of `left` and `result`.
            inner: names of the rows of `right`.
            columns: names of the columns of `right` and `result`.
            worked: which element is computed by hand; None = none.
            bias: [m], added to each row.
            note: a remark below the shape rule.
            right_name: what `right` is called in the worked element.
            known: whether `left` was shown before and is only named.
        """
        (n, k), m = left[1].shape, right[1].shape[1]
        rule = "=" * min(self.width, 78)
        added = " + b" if bias is not None else ""
        self.lines.append(rule)
        self.line(
            f"{left[0]} ({n}, {k}) @ {right[0]} ({k}, {m}){added} = {result[0]} ({n}, {m})",
            f"shapes: ({n} x {k}) @ ({k} x {m}) -> ({n} x {m})   the inner {k} goes",
        )
        if note:
            self.text(note)
        self.lines.append(rule)
        i, j = worked or (self.row, 0)
        if known:
            self.line(f"{left[0]} is shown above")
        else:
            self.matrix(*left, rows=rows, columns=inner, keep=(i, 0))
        self.matrix(*right, rows=inner, columns=columns, keep=(0, j))
        if bias is not None:
            self.matrix("b", bias, rows=[""], keep=(0, j))
        self.matrix(*result, rows=rows, columns=columns, keep=(i, j))
        if worked is not None and n and m:
            name = f"{result[0]}[{i},{j}]"
            self.line(f"by hand: {name} is row {i} of {left[0]} times column {j} of {right_name or right[0]}")
            self.dot(
                name, left[1][i], right[1][:, j], result[1][i, j], f"row {i} of {left[0]}",
                f"col {j} of {right_name or right[0]}", add=0.0 if bias is None else float(bias[j]),
            )  # fmt: skip

    def dot(self, name: str, a: Array, b: Array, expected: float, a_name: str, b_name: str, add: float = 0.0) -> None:
        """A sum of products by hand, beside the number that it must give."""
        if len(a) <= MOST:
            self.line(f"  {a_name} = {numbers(a)}", f"  {b_name} = {numbers(b)}")
        self.lines += [f"  {line}" for line in self.expand(a, b)]
        total = float(sum(x * y for x, y in zip(a.tolist(), b.tolist()))) + add
        extra = f"{add:+.6f} (bias) " if add else ""
        self.result(name, total, float(expected), before=extra)

    def expand(self, a: Array, b: Array) -> list[str]:
        """Writes out a sum of products; of a long one the first and last terms."""
        terms = [f"({x:+.4f})*({y:+.4f})" for x, y in zip(a, b)]
        if len(terms) > MOST:
            terms = [*terms[:FIRST], f"... {len(terms) - FIRST - LAST} more ...", *terms[-LAST:]]
        at_once = min(4, max(1, (self.width - 2) // 22))
        groups = [" + ".join(terms[i : i + at_once]) for i in range(0, len(terms), at_once)]
        return [f"{group} +" for group in groups[:-1]] + groups[-1:]

    def result(self, name: str, by_hand: float, from_array: float, before: str = "") -> None:
        """The end of a hand computation: its number, the array's, and whether they match."""
        match = self.check(name, by_hand, from_array)
        self.lines.append(f"  {before}= {by_hand:+.6f} | from array: {from_array:+.6f} | {match}")

    def check(self, name: str, by_hand: float, from_array: float, tolerance: float = TOLERANCE) -> str:
        """Keeps a check and returns the words MATCH: True or MATCH: False."""
        check = Check(name, float(by_hand), float(from_array), tolerance)
        self.checks.append(check)
        return self._style(f"MATCH: {check.match}", "match" if check.match else "differ")

    def elementwise(
        self,
        a: tuple[str, Array],
        b: tuple[str, Array],
        result: tuple[str, Array],
        rows: Sequence[str],
        sign: str = "+",
        note: str = "",
    ) -> None:
        """Shows a + b = result (or another sign), three lines for each row, and one element by hand."""
        a, b = ((name, np.broadcast_to(array, result[1].shape)) for name, array in (a, b))
        shape = _shape(result[1])
        rule = "=" * min(self.width, 78)
        self.lines.append(rule)
        self.line(f"{result[0]} = {a[0]} {sign} {b[0]}   all three are {shape} - element-wise")
        if note:
            self.text(note)
        self.lines.append(rule)
        wide = max(len(part[0]) for part in (a, b, result)) + 1
        n_rows, n_columns = result[1].shape
        kept_rows, kept_columns = _kept(n_rows, self.row), _kept(n_columns, 0)
        if len(kept_rows) < n_rows or len(kept_columns) < n_columns:
            self.lines.append(f"[rows {_ranges(kept_rows)} and columns {_ranges(kept_columns)} shown]")
        for r in kept_rows:
            self.lines.append(f"{rows[r]} |")
            for name, array in (a, b, result):
                cells = [self._number(f"{array[r, c]:+.3f}", float(array[r, c])) for c in kept_columns]
                at_once = max(1, (self.width - wide - 3) // 7)
                for start in range(0, len(cells), at_once):
                    label = f"{name}:".rjust(wide) if start == 0 else " " * wide
                    self.lines.append(f"  {label} {' '.join(cells[start : start + at_once])}")
        r = min(self.row, n_rows - 1)
        x, y = float(a[1][r, 0]), float(b[1][r, 0])
        by_hand = {"+": x + y, "-": x - y, "*": x * y, "/": x / y if y else math.nan}[sign]
        found = float(result[1][r, 0])
        match = self.check(f"{result[0]}[{r},0]", by_hand, found)
        self.lines.append(f"check [{r},0]: {x:+.6f} {sign} ({y:+.6f}) = {by_hand:+.6f} {match}")

    # --- helpers -----------------------------------------------------------------------------------------------

    def report(self) -> str:
        """Returns all lines as one text."""
        return "\n".join(self.lines).lstrip("\n") + "\n"

    def _style(self, text: str, style: str) -> str:
        return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if self.colour else text

    def _number(self, text: str, value: float) -> str:
        if not self.colour:
            return text
        return self._style(text, "zero" if value == 0 else "positive" if value > 0 else "negative")


def numbers(values: Array, decimals: int = 4) -> str:
    """Returns numbers in brackets, without trailing zeros."""
    return "[" + " ".join(_short(float(value), decimals) for value in np.ravel(values)) + "]"


def _short(value: float, decimals: int) -> str:
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _kept(total: int, keep: int) -> list[int]:
    """Returns which of so many rows or columns are shown."""
    if total <= MOST:
        return list(range(total))
    return sorted({*range(FIRST), *range(total - LAST, total), min(keep, total - 1)})


def _shape(array: Array) -> str:
    return "(" + ", ".join(map(str, array.shape)) + ")"


def _ranges(indexes: Sequence[int]) -> str:
    """Writes [0, 1, 2, 7] as 0-2, 7."""
    groups: list[list[int]] = []
    for i in indexes:
        if groups and i == groups[-1][-1] + 1:
            groups[-1].append(i)
        else:
            groups.append([i])
    return ", ".join(str(g[0]) if len(g) == 1 else f"{g[0]}-{g[-1]}" for g in groups)

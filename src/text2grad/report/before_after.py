"""The same held-out prompts before and after training, side by side, for the page and for the terminal.

Enters: arms, and the completions of each run. Leaves: a few examples as cells of a table, and the mean scores of all.
A rule picks the examples, whatever the outcome: the best changes of the score and the worst one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from text2grad.report.arms import Arm
from text2grad.report.completions import Shown, cut
from text2grad.report.terminal import SIGNS, STYLES
from text2grad.report.words import counted, number
from text2grad.types import Verdict

EXAMPLES = 4
"""On the page."""
LONGEST = 1500
"""Characters of a completion that are shown."""

Key = tuple[str, str]
"""(id, prompt) of an example."""
Row = Mapping[str, Any]
"""As `encode` makes it."""
Pairs = dict[Key, tuple[Row, Row]]
"""Example → (before, after)."""


class Piece(NamedTuple):
    """A stretch of a completion, what the critique says about it, and in which words."""

    text: str
    verdict: Verdict | None = None
    comment: str = ""


class Cell(NamedTuple):
    pieces: list[Piece]
    score: str
    omissions: Sequence[str]


@dataclass(frozen=True)
class BeforeAfter:
    """A table. The first two columns are the first arm before and after training."""

    columns: list[str]
    examples: list[tuple[str, list[Cell]]]
    """(prompt, one cell per column), best change first."""
    means: list[str]
    """Per column, over all examples, also those that are not shown."""
    total: int

    @property
    def picked(self) -> str:
        """How the examples were picked."""
        shown, logged = len(self.examples), "logged at the first and the last evaluation"
        if shown == self.total:
            return f"All {counted(shown, 'held-out prompt')} {logged}, the best change of score first."
        return (
            f"{shown} of the {self.total:,} held-out prompts {logged}: the {shown - 1} with the best change of score "
            "(mean of the arms), and, as the last, the one with the worst."
        )


def before_and_after(arms: Sequence[Arm], shown: Mapping[Path, Shown]) -> BeforeAfter | None:
    """From one run of each arm, the prompts that all of them have; an arm that has none of them is left out. None
    where no prompt was scored twice. `shown`: by the path of the run."""
    sides: list[tuple[str, Pairs]] = []
    keys: list[Key] = []
    for arm in arms:
        for run in arm.runs:
            pairs = _scored(shown[run.path].pairs)
            if shared := [key for key in pairs if not sides or key in keys]:
                keys = shared
                sides.append((arm.name if len(arm.runs) == 1 else run.name, pairs))
                break
    if not keys:
        return None
    change = {key: fmean(_change(pairs[key]) for _, pairs in sides) for key in keys}
    ranked = sorted(keys, key=lambda key: -change[key])
    chosen = ranked if len(ranked) <= EXAMPLES else [*ranked[: EXAMPLES - 1], ranked[-1]]
    columns, means = [], []
    cells: dict[Key, list[Cell]] = {key: [] for key in chosen}
    for title, pairs, side in _columns(sides, keys):
        columns.append(title)
        means.append(_mean([pairs[key] for key in keys], side))
        for key in chosen:
            cells[key].append(_cell(pairs[key][side]))
    return BeforeAfter(columns, [(key[1].strip(), cells[key]) for key in chosen], means, len(keys))


def _scored(pairs: Sequence[Sequence[Row]]) -> Pairs:
    """Those of the run's first and last evaluation, with a score both times."""
    both = [(pair[0], pair[1]) for pair in pairs if len(pair) == 2]
    ends = {(before["update"], after["update"]) for before, after in both}
    whole = (min(first for first, _ in ends), max(last for _, last in ends)) if ends else ()
    return {
        (before["id"], before["prompt"]): (before, after)
        for before, after in both
        if (before["update"], after["update"]) == whole and "score" in before and "score" in after
    }


def _change(pair: tuple[Row, Row]) -> float:
    return float(pair[1]["score"] - pair[0]["score"])


def _columns(sides: Sequence[tuple[str, Pairs]], keys: Sequence[Key]) -> list[tuple[str, Pairs, int]]:
    """(title, pairs, 0 for before or 1 for after). Arms that begin alike share the column of before."""
    begun = [[(pairs[key][0]["pieces"], pairs[key][0]["score"]) for key in keys] for _, pairs in sides]
    alike = all(some == begun[0] for some in begun)
    columns: list[tuple[str, Pairs, int]] = []
    for name, pairs in sides:
        first, last = (row["update"] for row in pairs[keys[0]])
        when = f"at update {first}" if first else "before training"
        if not columns or not alike:
            columns.append((when.capitalize() if alike else f"{name} {when}", pairs, 0))
        columns.append((f"{name} after {counted(last, 'update')}", pairs, 1))
    return columns


def _mean(pairs: Sequence[tuple[Row, Row]], side: int) -> str:
    mean = number(fmean(pair[side]["score"] for pair in pairs))
    changes = [_change(pair) for pair in pairs]
    rose, fell = sum(change > 0 for change in changes), sum(change < 0 for change in changes)
    return f"{mean} ({rose} better, {fell} worse)" if side else mean


def _cell(row: Row) -> Cell:
    """The completion cut where the span changes: of several the shortest that counts, as in the heat-maps."""
    text, kept = "".join(row["pieces"]), 0
    spans = sorted((span for span in row["spans"] if len(span) < 6), key=lambda span: span[1] - span[0])
    owners = [next((span for span in spans if span[0] <= i < span[1]), None) for i in range(len(row["pieces"]))]
    found: list[Piece] = []
    for span, group in groupby(zip(owners, row["pieces"], strict=True), key=itemgetter(0)):
        words = "".join(piece for _, piece in group)[: LONGEST - kept]
        kept += len(words)
        blank = len(words) - len(words.lstrip()) if span else 0
        found += [Piece(words[:blank]), Piece(words[blank:], *(span[2:4] if span else ()))]
    found.append(Piece(cut(text, LONGEST)[kept:]))
    return Cell([piece for piece in found if piece.text], number(row["score"]), row["omissions"])


def show_change(console: Console, table: BeforeAfter, noun: str) -> None:
    """Print the best and the worst example of the first arm; `noun`: what the prompts are. Where styles do not show,
    brackets and signs mark the spans."""

    def words(pieces: Sequence[Piece]) -> Text:
        made = Text()
        for text, verdict, _ in pieces:
            if verdict is None:
                made.append(text)
            else:
                made.append(text if console.color_system else f"⟦{SIGNS[verdict]}{text}⟧", STYLES[verdict])
        return made

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    ends = table.examples[:1] + table.examples[1:][-1:]
    for prompt, cells in ends:
        short = " ".join(prompt.split())
        grid.add_row(noun, Text(short if len(short) <= 130 else f"{short[:129]}…"), style="dim")
        for label, cell in zip(("before", "after"), cells, strict=False):
            grid.add_row(label, words(cell.pieces).append(f"  score {cell.score}", "dim"))
    which = "best and worst change" if len(ends) > 1 else "change"
    said = f"{table.columns[1]}: {which} of score of {counted(table.total, f'held-out {noun}')} "
    key = [Piece("("), Piece("good", "good"), Piece(", "), Piece("poor", "poor"), Piece(")")]
    console.print(Text(said).append_text(words(key)))
    console.print(grid)

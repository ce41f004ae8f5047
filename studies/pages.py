"""What the pages in docs/results share: the runs of a finished comparison, costs, curves, and text with coloured words.

Enters: the folder of `text2grad compare` (ARM/seed-N.done), comparison.json, rows of results.json. Leaves: intervals,
lines of Markdown, SVG.
"""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from text2grad.report.arms import Point
from text2grad.report.charts import Chart, Series
from text2grad.report.differences import Interval, over_seeds_and_examples

Each = dict[str, list[Any]]
"""What is known of each held-out completion: column → values, with `id` and `text` among them."""
SIZE, LINE, WIDE, STEP = 13, 19, 96, 7.8
"""Of text in a picture: font and line height in pixels, characters of a line, pixels of a character."""
COLOURS = ("#1f5fbf", "#c2571a", "#2d7d46", "#7a3fa0", "#b3263c", "#0f7f8c", "#7d6608", "#5d6066")
DASHES = ("none", "7 4", "2 4", "9 3 2 3")
"""Of the lines of a chart; both begin again where there are more arms."""
_NAMES = 4
"""Names of arms in a line above a chart."""
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML file may hold, not even escaped."""


def loaded(path: Path, what: str) -> Any:
    """The JSON of a file; what is missing or broken is said in one sentence."""
    try:
        return json.loads(path.read_bytes())
    except OSError as problem:
        raise SystemExit(f"{path}: cannot be read ({problem.strerror}); {what}") from None
    except ValueError as problem:
        raise SystemExit(f"{path}: is not JSON ({problem}); {what}") from None


def runs_of(folder: Path, arm: str) -> dict[int, Each]:
    """Seed → what is known of each held-out completion at the end."""
    found = {}
    for mark in sorted((folder / arm).glob("seed-*.done")):
        kept = json.loads(mark.read_bytes().partition(b"\n")[2])
        found[int(mark.stem.removeprefix("seed-"))] = kept["each"]
    return found


def apart(folder: Path, one: str, other: str, key: str) -> Interval | None:
    """one − other by seed and example; a single run of `other` stands for every seed."""
    ours, theirs = runs_of(folder, one), runs_of(folder, other)
    if len(theirs) == 1:
        theirs = dict.fromkeys(ours, next(iter(theirs.values())))
    pairs = [(ours[seed], theirs[seed]) for seed in ours if seed in theirs]
    tables = [_differences(a, b, key) for a, b in pairs]
    shared = [name for name in tables[0] if all(name in table for table in tables)] if tables else []
    return over_seeds_and_examples([[table[name] for name in shared] for table in tables]) if shared else None


def _differences(ours: Each, theirs: Each, key: str) -> dict[str, float]:
    other = dict(zip(theirs["id"], theirs.get(key, ()), strict=False))
    values = zip(ours["id"], ours.get(key, ()), strict=False)
    return {name: value - other[name] for name, value in values if None not in (value, other.get(name))}


def costs(arms: Mapping[str, Any]) -> Iterator[str]:
    """A Markdown table of what each arm cost."""
    yield "| arm | completions | sampled tokens | critic calls | seconds |"
    yield "|---|---|---|---|---|"
    for name, arm in arms.items():
        if arm["cost"]:
            numbers = (f"{arm['cost'][key]:,.0f}" for key in ("completions", "tokens", "critic_calls", "seconds"))
            yield f"| `{name}` | {' | '.join(numbers)} |"


def curves(rows: Sequence[Mapping[str, Any]], key: str, title: str) -> str:
    """SVG: a metric over updates, one line per arm, as wide as its seeds differ."""
    measured = [row for row in rows if key in row["metrics"]]
    arms = list(dict.fromkeys(row["arm"] for row in measured))
    lines = [Series(arm, _points([row for row in measured if row["arm"] == arm], key), i) for i, arm in enumerate(arms)]
    drawn = str(Chart(title, "The bands reach from the lowest seed to the highest.", lines).svg(640, 300))
    colours = [COLOURS[i % len(COLOURS)] for i in range(len(arms))]
    dashes = [DASHES[(i + i // len(COLOURS)) % len(DASHES)] for i in range(len(arms))]
    styles = [f".c{i}{{color:{colour}}}" for i, colour in enumerate(colours)]
    styles += [f".d{i}{{stroke-dasharray:{dash}}}" for i, dash in enumerate(dashes)]
    styles += [".line{fill:none;stroke:currentColor;stroke-width:2.2}", ".band{fill:currentColor;opacity:.14}"]
    styles += [".mark{fill:#fff;stroke:currentColor;stroke-width:2}", ".grid,.zero{stroke:#ddd;fill:none}"]
    styles += ["text{font:12px sans-serif;fill:#444}", ".end{text-anchor:end}", ".mid{text-anchor:middle}"]
    head, body = drawn.partition(">")[::2]
    names_high = 20 * max(1, -(-len(arms) // _NAMES))
    top, height = -26 - names_high, 330 + names_high
    names = "".join(
        f"<text x='{60 + 150 * (i % _NAMES)}' y='{12 - names_high + 20 * (i // _NAMES)}' "
        f"style='fill:{colours[i]};font-weight:bold'>{escape(arm)}</text>"
        for i, arm in enumerate(arms)
    )
    box = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 {top} 640 {height}"'
    head = head.replace('viewBox="0 0 640 300"', box)
    ground = f"<rect y='{top}' width='640' height='{height}' fill='#fff'/>"
    ground += f"<text x='8' y='{top + 18}'>{escape(title)}</text>"
    return f"{head} width='640' height='{height}'><style>{''.join(styles)}</style>{ground}{names}{body}\n"


def _points(rows: Sequence[Mapping[str, Any]], key: str) -> list[Point]:
    """Over the updates at which every seed was measured."""
    seeds = {row["seed"] for row in rows}
    found: dict[int, list[float]] = {}
    for row in rows:
        found.setdefault(row["update"], []).append(row["metrics"][key])
    whole = {update: some for update, some in sorted(found.items()) if len(some) == len(seeds)}
    return [Point(update, sum(some) / len(some), min(some), max(some)) for update, some in whole.items()]


class Mark(NamedTuple):
    """Characters of a text, and the colour behind them."""

    start: int
    end: int
    colour: str
    strength: float = 1.0
    """From 0 to 1."""


class Sheet:
    """Lines of text as SVG, some words on coloured ground."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.height = 10

    def heading(self, text: str) -> None:
        self._write(10, text, "font-weight='bold'", self.height + LINE)
        self.height += LINE + 8

    def text(self, text: str, marks: Sequence[Mark], wrap: bool = False) -> None:
        """As it stands, one line each and cut at the margin; or with `wrap`, broken at spaces."""
        for start, line in _wrapped(text) if wrap else _lines(text):
            for mark in marks:
                low, high = max(mark.start - start, 0), min(mark.end - start, len(line), WIDE)
                if low < high:
                    shade = f"fill='{mark.colour}' fill-opacity='{0.2 + 0.4 * mark.strength:.2f}'"
                    place = f"x='{14 + low * STEP:.1f}' y='{self.height}' width='{(high - low) * STEP:.1f}'"
                    self.parts.append(f"<rect {place} height='{LINE}' {shade}/>")
            self._write(14, line[:WIDE], "", self.height + LINE - 5)
            self.height += LINE

    def remark(self, text: str) -> None:
        for line in textwrap.wrap(text, WIDE):
            self.height += LINE
            self._write(14, line, "fill='#555' font-style='italic'", self.height)

    def gap(self) -> None:
        self.height += 2 * LINE

    def svg(self) -> str:
        size = f"width='{WIDE * 8 + 28}' height='{self.height}'"
        ground = f"<rect {size} fill='white'/>"
        return "\n".join([f"<svg xmlns='http://www.w3.org/2000/svg' {size}>", ground, *self.parts, "</svg>", ""])

    def _write(self, x: float, text: str, style: str, y: float) -> None:
        text = _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
        font = f"font-family='monospace' font-size='{SIZE}' xml:space='preserve'"
        width = f"textLength='{len(text) * STEP:.1f}' lengthAdjust='spacingAndGlyphs'" if text.strip() else ""
        self.parts.append(f"<text x='{x}' y='{y}' {font} {width} {style}>{escape(text)}</text>")


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """(first character, line without its end)."""
    start = 0
    for line in text.splitlines(keepends=True):
        yield start, line.rstrip("\r\n")
        start += len(line)


def _wrapped(text: str) -> Iterator[tuple[int, str]]:
    """The same, broken after the last space that fits.

    >>> list(_wrapped("one two"))
    [(0, 'one two')]
    """
    for start, line in _lines(text):
        while len(line) > WIDE:
            cut = line.rfind(" ", 0, WIDE + 1) + 1 or WIDE
            yield start, line[:cut]
            start, line = start + cut, line[cut:]
        yield start, line

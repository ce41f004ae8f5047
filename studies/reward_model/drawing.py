"""Small multiples as SVG: panels of lines and marks in data units → one picture, with a key and labels.

Colours are the report's. A picture brings its own paper, light or dark as the reader's browser asks, so that it can be
read wherever it is shown. Same panels, same text. Knows nothing of reward models.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from text2grad.report.charts import ticks

Place = tuple[float, float]
WIDTH, MARGIN, LEFT, GAP, TALL = 960, 18, 62, 20, 190
HEADED, FOOTED = 36, 48
"""Room above panels for their titles, and below them for the axis."""
LETTER = 5.9
"""Width of a letter, about: labels keep clear of what is near by it."""
COLOURS = {
    "paper": ("#ffffff", "#1c1f24"),
    "ink": ("#1d2126", "#e6e4df"),
    "soft": ("#5b626b", "#a2a8b0"),
    "hair": ("#e3e1dc", "#31353c"),
    "blue": ("#0867ad", "#62b5f0"),
    "orange": ("#b55000", "#f29d38"),
    "green": ("#0a7d5c", "#45c29b"),
    "violet": ("#8a4d8f", "#d08fd6"),
    "grey": ("#6d737b", "#9aa1aa"),
}
STYLE = """
text { font: 12px -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; fill: currentColor }
.title { font-size: 17px; font-weight: 600 } .row { font-size: 14px; font-weight: 600 } .name { font-weight: 600 }
.mid { text-anchor: middle } .end { text-anchor: end } .sheet { fill: currentColor }
.grid { stroke: currentColor; fill: none } .line { stroke: currentColor; fill: none; stroke-width: 1.4 }
.base { stroke: currentColor; fill: none; stroke-dasharray: 1 4 } .dashed { stroke-dasharray: 5 3 }
.mark { fill: currentColor } .hollow { stroke: currentColor; stroke-width: 1.8 }
.label { font-weight: 600; font-size: 11.5px; paint-order: stroke; stroke-width: 3; stroke-linejoin: round }
"""


@dataclass(frozen=True)
class Trace:
    colour: str
    points: Sequence[Place]
    dashed: bool = False


@dataclass(frozen=True)
class Mark:
    colour: str
    shape: str
    """Ring, square, triangle or diamond: another cue than colour."""
    at: Place


@dataclass(frozen=True)
class Panel:
    title: str
    lines: Sequence[Trace]
    marks: Sequence[Mark] = ()
    labels: Sequence[tuple[str, str]] = ()
    """(what it says, the colour of what it names); it is put where there is room beside that."""
    under: str = ""
    """A second, quieter title."""
    base: tuple[float, str] | None = None
    """A height to compare with, and its name."""
    x: str = ""
    """The name of its own x axis."""
    steps: Sequence[tuple[float, str]] = ()
    """Its own marks on the x axis, and what they say: for an axis that is no plain number."""


@dataclass(frozen=True)
class Row:
    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Picture:
    title: str
    alt: str
    x: str
    y: str
    key: Sequence[tuple[str, Trace | Mark]]
    """What it means, and any one of it."""
    rows: Sequence[Row]
    notes: Sequence[str]
    unit: bool = False
    """Both axes from 0 to 1; else they hold what is drawn: heights the same in all panels, x from 0 in each."""

    def svg(self) -> str:
        key, top = _key(self.key, 56)
        parts = [_text(MARGIN, 32, self.title, "title ink"), *key]
        heights = [height for row in self.rows for panel in row.panels for _, height in _places(panel)]
        y_ticks = QUARTERS if self.unit else ticks(min(heights, default=0), max(heights, default=1), 5)
        for row in self.rows:
            if row.title:
                parts.append(_text(MARGIN, top + 16, row.title, "row ink"))
                top += 16
            wide = (WIDTH - LEFT - MARGIN - GAP * 3) / max(4, len(row.panels))
            for column, panel in enumerate(row.panels):
                last = max((x for x, _ in _places(panel)), default=1.0)
                x_ticks = QUARTERS if self.unit else [tick for tick in ticks(0, last, 4) if tick <= last]
                steps = panel.steps or [(tick, _number(tick)) for tick in x_ticks]
                frame = _Frame(LEFT + column * (wide + GAP), top + HEADED, wide, steps, y_ticks, max(last, 1.0))
                parts += frame.drawn(panel, panel.x or self.x, self.y if column == 0 else "")
            top += HEADED + TALL + FOOTED
        parts += [_text(MARGIN, top + 10 + 17 * at, note, "soft") for at, note in enumerate(self.notes)]
        return _sheet(self.alt, top + 12 + 17 * len(self.notes), parts)


QUARTERS = [0, 0.25, 0.5, 0.75, 1]


@dataclass(frozen=True)
class _Frame:
    """Where a panel's numbers go on the paper."""

    left: float
    top: float
    wide: float
    x_ticks: Sequence[tuple[float, str]]
    y_ticks: Sequence[float]
    last: float

    def at(self, place: Place) -> Place:
        low, high = self.y_ticks[0], self.y_ticks[-1]
        x = self.left + self.wide * place[0] / self.last
        return x, self.top + TALL * (high - place[1]) / (high - low)

    def drawn(self, panel: Panel, x: str, y: str) -> Iterator[str]:
        yield from self._axes(x, y)
        yield _text(self.left, self.top - (23 if panel.under else 8), panel.title, "name ink")
        if panel.under:
            yield _text(self.left, self.top - 8, panel.under, "soft")
        if panel.base is not None:
            height, name = panel.base
            yield _path("base soft", [self.at((0, height)), self.at((self.last, height))])
            yield _text(self.left + 4, self.at((0, height))[1] - 4, name, "soft")
        for line in panel.lines:
            yield _path(f"line {'dashed ' * line.dashed}{line.colour}", [self.at(place) for place in line.points])
        for mark in panel.marks:
            yield _mark(mark, *self.at(mark.at))
        yield from self._labels(panel)

    def _axes(self, x: str, y: str) -> Iterator[str]:
        foot, right = self.top + TALL, self.left + self.wide
        for tick in self.y_ticks:
            height = self.at((0, tick))[1]
            yield _path(f"grid {'soft' if tick == 0 else 'hair'}", [(self.left, height), (right, height)])
            if y:
                yield _text(self.left - 7, height + 4, _number(tick), "end soft")
        for tick, said in self.x_ticks:
            yield _text(self.at((tick, 0))[0], foot + 16, said, "mid soft")
        yield _text(self.left + self.wide / 2, foot + 33, x, "mid soft")
        if y:
            turned = f'transform="rotate(-90 {_px(self.left - 40)} {_px(self.top + TALL / 2)})"'
            yield _text(self.left - 40, self.top + TALL / 2, y, "mid soft", turned)

    def _labels(self, panel: Panel) -> Iterator[str]:
        """Each beside what it names, where the fewest lines, marks and labels are in its way or nearer to others; one
        that would stand over another is left out, for the key has them all."""
        taken: list[tuple[float, float, float]] = []
        busy = [
            (line.colour, place) for line in panel.lines for place in _dense([self.at(place) for place in line.points])
        ]
        busy += [(mark.colour, self.at(mark.at)) for mark in panel.marks for _ in range(20)]
        if panel.base is not None:
            x, y = self.at((0, panel.base[0]))
            busy += [("", (x + step, y - 8)) for step in range(0, int(len(panel.base[1]) * LETTER), 2)]
        for text, colour in panel.labels:
            own = [self.at(mark.at) for mark in panel.marks if mark.colour == colour and mark.shape != "ring"]
            own = own or [self.at(place) for line in panel.lines if line.colour == colour for place in line.points]
            if not own:
                continue
            half = len(text) * LETTER / 2
            spots = [
                (x + across * (half + 9), y + down)
                for (x, y), (across, down) in itertools.product(own[:: max(1, len(own) // 60)], AROUND)
            ]
            all_of, others = ([place for kind, place in busy if kind not in own_kind] for own_kind in ((), (colour,)))
            x, y = min(spots, key=lambda spot: self._cost(spot, half, all_of, others))
            if any(abs(x - a) < half + wide and abs(y - b) < 11 for a, b, wide in taken):
                continue
            taken.append((x, y, half))
            busy += [("", (x + step, y)) for step in range(-int(half), int(half) + 1, 2)]
            yield _text(x, y + 4, text, f"label mid {colour}")

    def _cost(self, spot: Place, half: float, busy: Sequence[Place], others: Sequence[Place]) -> float:
        x, y = spot
        inside = self.left + half + 2 <= x <= self.left + self.wide - half and 8 <= y - self.top <= TALL - 8
        met = sum(abs(x - a) < half + 4 and abs(y - b) < 11 for a, b in busy)
        near = sum(abs(x - a) < half + 8 and abs(y - b) < 24 for a, b in others)
        return 10_000 * (not inside) + 2 * met + near / 8


AROUND = [(1, 0), (-1, 0), (0, -14), (0, 14), (1, -9), (1, 9), (-1, -9), (-1, 9), (0, -24), (0, 24)]
"""Where a label may stand: in halves of its width, and in pixels."""


def _places(panel: Panel) -> Iterator[Place]:
    yield from (place for line in panel.lines for place in line.points)
    yield from (mark.at for mark in panel.marks)


def _dense(places: Sequence[Place]) -> Iterator[Place]:
    """A line as points, none far from the next."""
    yield from places[:1]
    for (a, b), (x, y) in itertools.pairwise(places):
        steps = max(1, int(max(abs(x - a), abs(y - b)) / 4))
        yield from ((a + (x - a) * step / steps, b + (y - b) * step / steps) for step in range(1, steps + 1))


def _key(entries: Sequence[tuple[str, Trace | Mark]], y: float) -> tuple[list[str], float]:
    """What the lines and marks are, over as many lines as it takes; and where that ends."""
    parts, x = [], float(MARGIN)
    for name, one in entries:
        wide = 34 + len(name) * LETTER + 18
        if x + wide > WIDTH - MARGIN + 18:
            x, y = float(MARGIN), y + 20
        if isinstance(one, Trace):
            parts.append(_path(f"line {'dashed ' * one.dashed}{one.colour}", [(x, y), (x + 26, y)]))
        else:
            parts.append(_mark(one, x + 13, y))
        parts.append(_text(x + 34, y + 4, name, "ink"))
        x += wide
    return parts, y + 22


def _mark(mark: Mark, x: float, y: float) -> str:
    kind, at = f"mark {mark.colour}", f"M{_px(x)} {_px(y - 5)}"
    if mark.shape == "ring":
        return f'<g class="{mark.colour}"><circle class="hollow" cx="{_px(x)}" cy="{_px(y)}" r="4"/></g>'
    if mark.shape == "square":
        return f'<rect class="{kind}" x="{_px(x - 3.5)}" y="{_px(y - 3.5)}" width="7" height="7"/>'
    return f'<path class="{kind}" d="{at}{"l5 5l-5 5l-5-5z" if mark.shape == "diamond" else "l4.8 8.6h-9.6z"}"/>'


def _path(kind: str, places: Sequence[Place]) -> str:
    return f'<path class="{kind}" d="M{"L".join(f"{_px(x)} {_px(y)}" for x, y in places)}"/>'


def _text(x: float, y: float, text: str, kind: str, more: str = "") -> str:
    return f'<text class="{kind}" x="{_px(x)}" y="{_px(y)}"{" " * bool(more)}{more}>{escape(text)}</text>'


def _sheet(alt: str, height: float, parts: Sequence[str]) -> str:
    size = f'width="{WIDTH}" height="{_px(height)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {WIDTH} {_px(height)}" role="img"'
    paper = f'<rect class="paper sheet" {size} rx="10"/>'
    light, dark = _colours(0), f"@media (prefers-color-scheme: dark) {{\n{_colours(1)}\n}}"
    style = f"<style>\n{STYLE.strip()}\n{light}\n{dark}\n</style>"
    return "\n".join([f'{head} aria-label="{escape(alt)}">', style, paper, *parts, "</svg>", ""])


def _colours(at: int) -> str:
    paper = COLOURS["paper"][at]
    named = " ".join(f".{name} {{ color: {pair[at]} }}" for name, pair in COLOURS.items())
    return f"{named} .label {{ stroke: {paper} }} .hollow {{ fill: {paper} }}"


def _number(value: float) -> str:
    return f"{value:g}".replace("-", "−")


def _px(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")

"""Lines as SVG, each chart with a table of the same numbers. No library: a few axes, one palette, no script.

Enters: series of `Point`s under a label. Leaves: markup, escaped; colours are classes that the page's style sheet fills
for light, dark and print. Lines differ in dash and mark as well as in colour. Knows nothing of runs.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from markupsafe import Markup

from text2grad.report.arms import Point
from text2grad.report.words import ranged

SMOOTHED = 40
"""Series longer than this are drawn as a running mean, with the single updates faint behind it."""
DRAWN = 300
"""Points drawn per series at most: more cannot be seen."""
ROWS = 40
"""Rows of a chart's table at most."""
_TOP, _BOTTOM, _RIGHT = 10, 30, 14
"""Margins of the paper."""
T = TypeVar("T")


@dataclass(frozen=True)
class Series:
    label: str
    points: Sequence[Point]
    style: int
    """Which colour, dash and mark."""

    @property
    def spread(self) -> bool:
        return any(point.low != point.high for point in self.points)

    @property
    def many(self) -> bool:
        return len(self.points) > SMOOTHED

    @property
    def drawn(self) -> list[Point]:
        """The points of the line on the paper."""
        return _thin(smooth(self.points) if self.many else self.points, DRAWN)


@dataclass(frozen=True)
class Chart:
    """Lines over updates."""

    title: str
    note: str
    lines: Sequence[Series]
    beside: Sequence[Series] = ()
    """Lines of the charts next to this one, so that all of them have the same axes."""

    @property
    def smoothed(self) -> bool:
        return any(line.many for line in self.lines)

    def svg(self, width: int, height: int) -> Markup:
        frame = _Frame.around([*self.lines, *self.beside], width, height)
        parts = [*frame.x_axis(), *frame.y_axis(), *(part for line in self.lines for part in _drawn(line, frame))]
        places = Markup('data-left="{}" data-right="{}" data-last="{}" data-foot="{}"').format(
            frame.left, width - _RIGHT, frame.x_ticks[-1], height - _BOTTOM
        )
        return _svg(width, height, f"{self.title}. {self.note} The table below holds the numbers.", parts, places)

    def table(self) -> tuple[list[str], list[list[str]], str]:
        """(header, rows, a remark where not every update is listed)."""
        header = ["update", *(line.label for line in self.lines)]
        updates = sorted({point.update for line in self.lines for point in line.points})
        listed = _thin(updates, ROWS)
        at = [{point.update: point for point in line.points} for line in self.lines]
        rows = [
            [str(update), *(ranged(column[update]) if update in column else "–" for column in at)] for update in listed
        ]
        remark = f"{len(listed)} of {len(updates)} updates are listed." if len(listed) < len(updates) else ""
        return header, rows, remark


@dataclass(frozen=True)
class _Frame:
    """Where a number goes on the paper."""

    width: int
    height: int
    left: int
    x_ticks: Sequence[float]
    y_ticks: Sequence[float]

    @classmethod
    def around(cls, lines: Sequence[Series], width: int, height: int) -> "_Frame":
        points = [point for line in lines for point in line.points]
        last = max((point.update for point in points), default=1) or 1
        x_ticks = [tick for tick in ticks(0, last, 5) if tick == int(tick) and last - tick > last * 0.06]
        low, high = min((p.low for p in points), default=0.0), max((p.high for p in points), default=1.0)
        if 0 < low < high / 3 or 0 < low == high:
            low = 0.0  # Close to zero, or flat: show zero for scale.
        y_ticks = ticks(low, high, 5 if height < 310 else 6)
        left = max(46, 16 + round(6.6 * max(map(len, tick_labels(y_ticks)))))
        return cls(width, height, left, [*x_ticks, last], y_ticks)

    def x(self, update: float) -> float:
        return self.left + (self.width - self.left - _RIGHT) * update / self.x_ticks[-1]

    def y(self, value: float) -> float:
        share = (value - self.y_ticks[0]) / (self.y_ticks[-1] - self.y_ticks[0])
        return self.height - _BOTTOM - (self.height - _TOP - _BOTTOM) * share

    def y_axis(self) -> Iterator[Markup]:
        shape = '<path class="{}" d="M{} {}H{}"/><text class="tick end" x="{}" y="{}">{}</text>'
        for tick, label in zip(self.y_ticks, tick_labels(self.y_ticks), strict=True):
            y, kind = self.y(tick), "zero" if tick == 0 else "grid"
            yield Markup(shape).format(kind, self.left, _px(y), self.width - _RIGHT, self.left - 8, _px(y + 4), label)

    def x_axis(self) -> Iterator[Markup]:
        for tick in self.x_ticks:
            if 0 < self.x(tick) - self.left < 66 and tick != self.x_ticks[-1]:
                continue  # No room beside "update 0".
            place = "first" if tick == 0 else "mid"
            shape = '<text class="tick {}" x="{}" y="{}">{}</text>'
            label = "update 0" if tick == 0 else f"{tick:,.0f}"
            yield Markup(shape).format(place, _px(self.x(tick)), self.height - 10, label)


def ticks(low: float, high: float, wanted: int) -> list[float]:
    """Round numbers that reach from `low` or below to `high` or above.

    >>> ticks(0.31, 0.62, 4)
    [0.3, 0.4, 0.5, 0.6, 0.7]
    >>> ticks(2, 2, 4)[0] < 2 < ticks(2, 2, 4)[-1]
    True
    """
    if high - low < 1e-9 * max(abs(low), abs(high), 1e-300):
        room = abs(low) / 10 or 1.0  # Flat.
        low, high = low - room, high + room
    rough = (high - low) / wanted
    scale = 10.0 ** math.floor(math.log10(rough))
    step = scale * next(factor for factor in (1, 2, 5, 10) if factor * scale >= rough * 0.8)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{index * step:.12g}") for index in range(first, max(last, first + 1) + 1)]


def tick_labels(values: Sequence[float]) -> list[str]:
    """As few digits as tell neighbours apart and say each number exactly enough.

    >>> tick_labels([-0.5, 0.0, 0.5]), tick_labels([0.50001, 0.50002]), tick_labels([0, 2e-7])
    (['−0.5', '0.0', '0.5'], ['0.50001', '0.50002'], ['0', '2e−7'])
    """
    step, largest = math.floor(math.log10(values[1] - values[0]) + 1e-9), max(map(abs, values))
    plain = 1e-4 <= largest < 1e15
    digits = max(0, -step) if plain else max(0, math.floor(math.log10(largest)) - step)
    labels = [f"{value:,.{digits}f}" if plain else f"{value:.{digits}e}" if value else "0" for value in values]
    return [re.sub(r"e\+?(-?)0*(?=\d)", r"e\1", label).replace("-", "−") for label in labels]


def smooth(points: Sequence[Point]) -> list[Point]:
    """A centred running mean over a twentieth of the series; towards its ends over what there is of that."""
    half = max(1, len(points) // 40)
    made = []
    for index, point in enumerate(points):
        window = points[max(0, index - half) : index + half + 1]
        mean, low, high = (math.fsum(item[column] for item in window) / len(window) for column in (1, 2, 3))
        made.append(Point(point.update, mean, low, high))
    return made


def _drawn(line: Series, frame: _Frame) -> Iterator[Markup]:
    points, style = line.drawn, line.style
    if line.spread:
        there, back = [(p.update, p.high) for p in points], [(p.update, p.low) for p in reversed(points)]
        yield _path(f"band c{style}", [*there, *back], frame, "Z")
    elif line.many:
        yield _path(f"faint c{style}", [(p.update, p.mean) for p in _thin(line.points, DRAWN)], frame)
    yield _path(f"line c{style} d{style}", [(p.update, p.mean) for p in points], frame)
    for point in points if len(points) <= 16 else points[-1:]:
        yield _mark(style, frame.x(point.update), frame.y(point.mean))


def _thin(items: Sequence[T], most: int) -> list[T]:
    """Every so many of them, and the last."""
    step = math.ceil(len(items) / most)
    return [*items[: -1 : max(step, 1)], *items[-1:]]


def _path(kind: str, places: Iterable[tuple[float, float]], frame: _Frame, end: str = "") -> Markup:
    path = "L".join(f"{_px(frame.x(x))} {_px(frame.y(y))}" for x, y in places)
    return Markup('<path class="{}" d="M{}{}"/>').format(kind, path, end)


def _mark(style: int, x: float, y: float) -> Markup:
    """A disc, a square, a triangle or a diamond: a cue besides colour."""
    disc = "M-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0-7.2 0z"
    shapes = (disc, "M-3.3-3.3h6.6v6.6h-6.6z", "M0-4.4l4.2 7.4h-8.4z", "M0-4.4l4.4 4.4l-4.4 4.4l-4.4-4.4z")
    shape = '<path class="mark c{}" transform="translate({} {})" d="{}"/>'
    return Markup(shape).format(style, _px(x), _px(y), shapes[style % len(shapes)])


def swatch(style: int) -> Markup:
    """The line of a style, for a key."""
    line = Markup('<path class="line c{} d{}" d="M1 6H33"/>').format(style, style)
    return _svg(34, 12, "", [line, _mark(style, 17, 6)])


def _svg(width: float, height: float, label: str, parts: Sequence[Markup], places: Markup | str = "") -> Markup:
    """`places`: what the page's script needs to find an update on the chart."""
    role = Markup('role="img" aria-label="{}"').format(label) if label else Markup('aria-hidden="true"')
    head = Markup('<svg viewBox="0 0 {} {}" {} {} focusable="false">').format(width, height, role, places)
    return head + Markup("").join(parts) + Markup("</svg>")


def _px(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")

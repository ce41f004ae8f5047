"""Which charts a page has. What a metric is called and means comes with the metric (`MetricInfo`).

Enters: `Arm`s. Leaves: charts; metrics that no run has are left out. Every metric is drawn somewhere: the held-out
metrics of tasks and users beside the comparison, the known ones in their order, the rest under "More metrics".
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from text2grad.report.arms import Arm
from text2grad.report.charts import Chart, Line
from text2grad.report.words import infos_of, number
from text2grad.runs.metrics import METRICS
from text2grad.types import MetricInfo

STYLES = 6
GOOD, POOR, GREEN, PLAIN = 0, 1, 2, 4
"""Styles of lines that are no arms: blue, orange, green, grey."""
MOST = 60
"""Charts under "More metrics" at most: the page must load."""

KNOWN = (
    *("score/mean", "reward/mean", "kl/reference", "length/mean", "text/diversity", "text/repetition"),
    *("critic/unscored_frac", "align/missed_frac", "loss/mean", "held_out/loss", "loss/joint", "held_out/watched"),
    *("held_out/poor_ap", "held_out/good_ap"),
)
"""Metrics that everybody looks at, in this order."""
_PARTS = ("sample", "critic", "align", "forward", "update", "evaluate", "other")


@dataclass(frozen=True)
class Group:
    """Metrics that are drawn together, one chart per arm."""

    title: str
    intro: str
    lines: Mapping[str, tuple[str, int]]
    """Key → (label, style)."""
    stacked: bool = False
    least: int = 1
    """An arm with fewer of them has no such chart."""


GROUPS = (
    Group(
        "Locality",
        "Mean change of log-prob per update, by what the critique says about the token. Good tokens should rise, poor "
        "ones fall, and the others move little.",
        {
            "locality/good": ("good", GOOD),
            "locality/poor": ("poor", POOR),
            "locality/unlabelled": ("unlabelled", PLAIN),
        },
    ),
    Group(
        "Critic compared with examiner",
        "Held-out score by the critic used for training, above, and by the examiner (evaluation.critic), below, each "
        "on its own scale. If only the critic’s score rises, the policy has learned to please the critic.",
        {"held_out/critic_score": ("critic", POOR), "held_out/score": ("examiner", GOOD)},
        stacked=True,
        least=2,
    ),
    Group(
        "Parts of the loss",
        "Each on its own scale.",
        {
            "loss/policy": ("policy", GOOD),
            "loss/value": ("value", POOR),
            "loss/entropy": ("entropy", GREEN),
            "loss/span": ("spans", GOOD),
            "loss/worth": ("scores", POOR),
            "loss/language": ("critique", GREEN),
        },
        stacked=True,
        least=2,
    ),
)


@dataclass
class Panels:
    """The charts of a page, by section."""

    held_out: list[Chart] = field(default_factory=list)
    known: list[Chart] = field(default_factory=list)
    groups: list[tuple[Group, list[Chart]]] = field(default_factory=list)
    more: list[Chart] = field(default_factory=list)
    left_out: int = 0
    """Metrics beyond the most that are drawn."""


def panels_of(arms: Sequence[Arm], main: str) -> Panels:
    """All charts but the one at the top, which draws the metric `main`."""
    infos = infos_of(arms)
    keys = [key for key in infos if not key.startswith("time/") and key != main]
    panels = Panels()
    for group in GROUPS:
        if charts := list(_grouped(arms, group)):
            panels.groups.append((group, charts))
            keys = [key for key in keys if key not in group.lines]
    known = [key for key in KNOWN if key in keys and not _is_zero(arms, key)]
    held_out = [key for key in keys if key.startswith("held_out/") and key not in METRICS]
    more = sorted((key for key in keys if key not in {*known, *held_out}), key=lambda key: key in METRICS)
    panels.known, panels.held_out, panels.more = (
        [made for key in some if (made := chart_of(arms, key, infos[key])).lines]
        for some in (known, held_out, more[:MOST])
    )
    panels.left_out = max(len(more) - MOST, 0)
    return panels


def chart_of(arms: Sequence[Arm], key: str, info: MetricInfo) -> Chart:
    """One metric, one line per arm in the arm's own style."""
    better = "" if info.better == "neither" else f"{info.better.capitalize()} is better."
    lines = [Line(arm.name, points, style_of(i)) for i, arm in enumerate(arms) if (points := arm.series(key))]
    return Chart(info.title, f"{info.help} {better}".strip(), lines)


def style_of(index: int) -> int:
    return index % STYLES


def _is_zero(arms: Sequence[Arm], key: str) -> bool:
    """Nothing ever happened."""
    return all(point.low == point.high == 0 for arm in arms for point in arm.series(key))


def _grouped(arms: Sequence[Arm], group: Group) -> Iterator[Chart]:
    drawn: dict[str, list[Line]] = {}
    for arm in arms:
        series = [(label, arm.series(key), style) for key, (label, style) in group.lines.items()]
        lines = [Line(label, points, style) for label, points, style in series if points]
        if len(lines) >= group.least:
            drawn[arm.name] = lines
    everything = [line for lines in drawn.values() for line in lines]
    for name, lines in drawn.items():
        yield Chart(name, "", lines, () if group.stacked else everything, group.stacked)


def time_by_part(arms: Sequence[Arm]) -> tuple[list[str], list[list[str]]] | None:
    """(header, rows): mean seconds per update; unknown parts come last, before `other`."""
    keys = {key for arm in arms for run in arm.runs for key in run.keys if key.startswith("time/")}
    found = {key.removeprefix("time/") for key in keys}
    parts = [*(part for part in _PARTS[:-1] if part in found), *sorted(found - set(_PARTS)), *({"other"} & found)]
    columns = {arm.name: [_mean_over_updates(arm, f"time/{part}") for part in parts] for arm in arms}
    columns = {name: values for name, values in columns.items() if sum(values)}
    if not columns:
        return None
    totals = {name: sum(values) for name, values in columns.items()}
    rows = [
        [part, *(f"{number(values[i])} ({values[i] / totals[name]:.0%})" for name, values in columns.items())]
        for i, part in enumerate(parts)
    ]
    return ["seconds per update", *columns], [*rows, ["total", *map(number, totals.values())]]


def _mean_over_updates(arm: Arm, key: str) -> float:
    """Updates without the part count as 0 s: evaluations come every few updates only."""
    return sum(point.mean for point in arm.series(key)) / max(arm.updates, 1)

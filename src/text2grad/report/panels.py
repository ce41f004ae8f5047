"""Which charts a page has. What a metric is called and means comes with the metric (`MetricInfo`, in `run.json`).

Enters: `Arm`s. Leaves: charts; metrics that no run has are left out. Every metric is drawn somewhere: the held-out
metrics of tasks and users beside the comparison, those that everybody looks at first, the rest under "More metrics".
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev

from text2grad.report.arms import Arm
from text2grad.report.charts import Chart, Series
from text2grad.report.words import counted, infos_of, number, signed
from text2grad.types import MetricInfo

STYLES = 6
LOCALITY = {"locality/good": 0, "locality/poor": 1, "locality/unlabelled": 4}
"""Drawn together, one chart per arm. Key → style of its line: blue, orange, grey."""

KNOWN = (
    *("score/mean", "reward/mean", "kl/reference", "length/mean", "text/diversity", "text/repetition"),
    *("critic/unscored_frac", "align/missed_frac", "held_out/critic_score", "loss/mean", "held_out/loss"),
    *("held_out/accuracy", "preference/accuracy"),
    *("loss/joint", "held_out/watched", "held_out/poor_ap", "held_out/good_ap"),
)
"""Metrics that everybody looks at, in this order."""
OURS = ("score", "reward", "kl", "length", "text", "critic", "align", "loss", "update", "preference", "pairs", "data")
"""Namespaces of the built-in metrics: a user's come before them."""
HELD_OUT = (
    *("std", "length", "truncated_frac", "diversity", "repetition", "unscored_frac", "joint", "span", "reward"),
    *("copied", "linking", "language", "accuracy", "poor_f1", "good_f1"),
)
"""Built-in `held_out/` metrics: those of tasks and users stand beside the comparison."""


@dataclass
class Panels:
    """The charts of a page, by section."""

    held_out: list[Chart] = field(default_factory=list)
    known: list[Chart] = field(default_factory=list)
    locality: list[Chart] = field(default_factory=list)
    more: list[Chart] = field(default_factory=list)


def panels_of(arms: Sequence[Arm], main: str) -> Panels:
    """All charts but the one at the top, which draws the metric `main`."""
    infos = infos_of(arms)
    keys = [key for key in infos if not key.startswith("time/") and key not in (main, *LOCALITY)]
    known = [key for key in KNOWN if key in keys and not _is_zero(arms, key)]
    rest = [key for key in keys if key not in known]
    held_out = [key for key in rest if key.startswith("held_out/") and key.partition("/")[2] not in HELD_OUT]
    more = sorted(
        {*rest} - {*held_out}, key=lambda key: (key.partition("/")[0] in ("held_out", *OURS), rest.index(key))
    )
    panels = Panels(locality=_locality(arms))
    panels.known, panels.held_out, panels.more = (
        [made for key in some if (made := chart_of(arms, key, infos[key])).lines] for some in (known, held_out, more)
    )
    return panels


def chart_of(arms: Sequence[Arm], key: str, info: MetricInfo) -> Chart:
    """One metric, one line per arm in the arm's own style."""
    better = "" if info.better == "neither" else f"{info.better.capitalize()} is better."
    lines = [Series(arm.name, points, style_of(i)) for i, arm in enumerate(arms) if (points := arm.series(key))]
    return Chart(info.title, f"{info.help} {better}".strip(), lines)


def style_of(index: int) -> int:
    return index % STYLES


def _is_zero(arms: Sequence[Arm], key: str) -> bool:
    """Nothing ever happened."""
    return all(point.low == point.high == 0 for arm in arms for point in arm.series(key))


def _locality(arms: Sequence[Arm]) -> list[Chart]:
    drawn: dict[str, list[Series]] = {}
    for arm in arms:
        series = [(key.partition("/")[2], arm.series(key), style) for key, style in LOCALITY.items()]
        drawn[arm.name] = [Series(*line) for line in series if line[1]]
    everything = [line for lines in drawn.values() for line in lines]
    return [Chart(name, "", lines, everything) for name, lines in drawn.items() if lines]


def locality_gaps(arms: Sequence[Arm]) -> tuple[list[str], list[list[str]]] | None:
    """(header, rows): by how much more an update raised good tokens than poor ones, per arm and between the arms. The
    order alone proves little: good tokens are often the likelier ones, so scalar rewards mostly keep it as well."""
    gaps = {arm.name: gap for arm in arms if (gap := _gaps(arm))}
    rows = [[name, *_summary(list(gap.values()))] for name, gap in gaps.items()]
    (first, own), *others = gaps.items() or [("", {})]
    for other, theirs in others:
        differences = [own[update] - theirs[update] for update in own if update in theirs]
        rows += [[f"{first} minus {other}", *_summary(differences)]] if differences else []
    return (["good − poor", "mean", "spread over updates", "above 0"], rows) if rows else None


def _gaps(arm: Arm) -> dict[int, float]:
    """Update → change of log-prob on good tokens minus that on poor ones."""
    poor = {point.update: point.mean for point in arm.series("locality/poor")}
    return {
        point.update: point.mean - poor[point.update] for point in arm.series("locality/good") if point.update in poor
    }


def _summary(values: Sequence[float]) -> list[str]:
    """Mean, standard deviation, and how many are above 0."""
    spread = number(stdev(values)) if len(values) > 1 else "–"
    above = sum(value > 0 for value in values)
    return [signed(fmean(values)), spread, f"{above / len(values):.0%} of {counted(len(values), 'update')}"]


def time_by_part(arms: Sequence[Arm]) -> tuple[list[str], list[list[str]]] | None:
    """(header, rows): mean seconds per update."""
    keys = {key: None for arm in arms for run in arm.runs for key in run.keys if key.startswith("time/")}
    named = [key.removeprefix("time/") for key in keys if not key.endswith("_frac")]  # a share is no time
    parts = sorted(named, key=lambda part: part == "other")
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

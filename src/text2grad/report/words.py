"""Numbers and comparisons in words: what the top of the page, and the terminal, say about the arms.

Enters: `Arm`s. Leaves: sentences. A claim is made only where the numbers carry it: falling is called falling, and an
arm that does not end above another is not said to have reached it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from text2grad.report.arms import Arm, Error, Point
from text2grad.types import MetricInfo

TRAINING = "score/mean"
WATCHED = "held_out/watched"
"""The loss by which a reward model chooses its weights."""
NORMAL_95 = 1.96
"""Standard errors on each side of a mean that a 95 % interval reaches to."""
MEASURES = (
    *("held_out/score", TRAINING),
    *("held_out/poor_ap", "held_out/good_ap", WATCHED, "held_out/loss", "loss/joint", "loss/mean"),
)
"""What is compared: the first of these that an arm has, else the first metric with a direction, held-out ones first.
From precision on: reward models, then supervised fine-tuning and preference runs on given pairs."""


def infos_of(arms: Sequence[Arm]) -> dict[str, MetricInfo]:
    """What the runs say about their metrics, else their keys; in order of appearance."""
    runs = [run for arm in arms for run in arm.runs]
    declared = {key: info for run in reversed(runs) for key, info in run.declared.items()}
    keys = {key: None for run in runs for key in run.keys}
    return {key: declared.get(key) or MetricInfo(key, "") for key in keys}


def _inside(title: str) -> str:
    """A title in the middle of a sentence.

    >>> _inside("Held-out score"), _inside("KL to the reference")
    ('held-out score', 'KL to the reference')
    """
    return title if title[1:2].isupper() else title[:1].lower() + title[1:]


def number(value: float) -> str:
    """About three digits, with a real minus.

    >>> [number(x) for x in (1234.5, 12.345, 1.2345, 0.31415, -0.5, 0.0, 0.00021, 4e90)]
    ['1,234', '12.3', '1.23', '0.314', '−0.500', '0', '2.1e−4', '4.0e90']
    """
    size = abs(value)
    if size == 0:
        return "0"
    if size < 0.0005 or size >= 1e15:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}".replace("-", "−")
    digits = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.9995 else 3
    return f"{value:,.{digits}f}".replace("-", "−")


def signed(value: float) -> str:
    """With its sign, always."""
    return f"+{number(value)}" if value > 0 else number(value)


def counted(count: int, noun: str) -> str:
    """
    >>> counted(1, "update"), counted(3, "update")
    ('1 update', '3 updates')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def ranged(point: Point) -> str:
    """The mean, and the range of the seeds where they differ."""
    spread = f" ({number(point.low)} to {number(point.high)})" if point.low != point.high else ""
    return number(point.mean) + spread


class _Measure(NamedTuple):
    """What the arms are compared by."""

    key: str
    name: str
    """In the middle of a sentence."""
    noun: str
    """One word for it."""
    sign: int
    """1 where higher is better, −1 where lower is."""


Curve = tuple[Arm, list[Point]]


@dataclass(frozen=True)
class Comparison:
    """What is said about the arms."""

    key: str
    """The metric that they are compared by."""
    headline: str
    sentences: tuple[str, ...]


def compare(arms: Sequence[Arm]) -> Comparison:
    """Held-out scores where there are any, else the next best measure, which the sentences name."""
    measure = _measure(arms)
    if measure is None:
        names = " and ".join(arm.name for arm in arms)
        return Comparison("", names, ("No scores yet: there is nothing to compare.",))
    key = measure.key
    curves = [(arm, points) for arm in arms if (points := arm.series(key))]
    curves.sort(key=lambda curve: -measure.sign * curve[1][-1].mean)
    sentences = [_journey(arm, arm.series(key), measure) for arm in arms if arm.series(key)]
    if len(curves[0][1]) > 1:
        # The best arm against each of the others: every pair would be more than anybody reads.
        alike = [other for other in curves[1:] if _same_critic(curves[0], other, measure)]
        sentences += [_reach(curves[0], other, measure) for other in alike]
    sentences += [said for other in curves[1:] if (said := _minus(curves[0], other, measure))]
    if key == TRAINING:
        sentences.append("There are no held-out scores in these runs, so training scores are compared.")
    runs = [run for arm in arms for run in arm.runs]
    sentences += [f"{run.name} is {run.unfinished}." for run in runs if run.unfinished]
    silent = [arm.name for arm in arms if not arm.series(key)]
    if silent:
        sentences.append(f"No {measure.name} in {', '.join(silent)}.")
    return Comparison(key, _headline(curves, measure), tuple(sentences))


def _measure(arms: Sequence[Arm]) -> _Measure | None:
    infos = infos_of(arms)
    directed = [key for key, info in infos.items() if info.better != "neither"]
    directed.sort(key=lambda key: not key.startswith("held_out/"))
    key = next((key for key in (*MEASURES, *directed) if any(arm.series(key) for arm in arms)), None)
    if key is None:
        return None
    noun = "loss" if "loss" in key or key == WATCHED else "score" if key in MEASURES else "value"
    lower = noun == "loss" or infos[key].better == "lower"
    return _Measure(key, _inside(infos[key].title), noun, -1 if lower else 1)


def _reached(points: Sequence[Point], value: float, measure: _Measure) -> int | None:
    """The first update at which a curve has the value or a better one."""
    return next((point.update for point in points if measure.sign * (point.mean - value) >= 0), None)


def _journey(arm: Arm, points: Sequence[Point], measure: _Measure) -> str:
    first, last = points[0], points[-1]
    seeds = ""
    if len(arm.runs) > 1:
        spread = f", {number(last.low)} to {number(last.high)}" if last.low != last.high else ""
        seeds = f" ({arm.repeats}{spread})"
    if len(points) == 1:
        return f"{arm.name}: {measure.name} {number(last.mean)} at update {last.update}{seeds}."
    change = _change(arm, points, measure.key)
    seeds += f": {change.words}" if change else ""
    if number(first.mean) == number(last.mean):
        return f"{arm.name}: {measure.name} stayed at {number(last.mean)} over {counted(last.update, 'update')}{seeds}."
    verb = "rose" if last.mean > first.mean else "fell"
    if change is not None and not change.clear:
        verb = "went"
    return f"{arm.name}: {measure.name} {verb} from {number(first.mean)} to {number(last.mean)} {_span(points)}{seeds}."


def _span(points: Sequence[Point]) -> str:
    """How long a curve is. Training scores begin at the first update, and so have one step less than the run."""
    first, last = points[0].update, points[-1].update
    return f"between updates {first} and {last}" if first and first < last else f"in {counted(last - first, 'update')}"


class _Change(NamedTuple):
    """A difference between two means, and whether it is more than noise."""

    size: str
    basis: str
    clear: bool

    @property
    def brief(self) -> str:
        """For a headline; a sentence below it has the rest."""
        return self.size + ("" if self.clear else ", within noise")

    @property
    def words(self) -> str:
        return f"{self.size} ({self.basis})" + ("" if self.clear else ", within noise")


def _change(arm: Arm, points: Sequence[Point], key: str) -> _Change | None:
    """From the first to the last point; None where the runs did not log how sure they are. The two evaluations count as
    independent samples, which is on the safe side: they are of the same prompts."""
    errors = [arm.error(key, point.update) for point in (points[0], points[-1])]
    return _difference(points[-1].mean - points[0].mean, errors, arm.judged_by)


def _difference(change: float, errors: Sequence[Error | None], judged_by: str) -> _Change | None:
    sizes = [error.size for error in errors if error is not None]
    if len(sizes) < len(errors) or errors[0] is None:
        return None
    margin = NORMAL_95 * math.hypot(*sizes)
    basis = f"95 %, n = {errors[0].prompts}, critic {judged_by}"
    return _Change(f"{signed(change)} ± {number(margin)}", basis, abs(change) > margin)


def _same_critic(best: Curve, other: Curve, measure: _Measure) -> bool:
    return measure.key != "held_out/score" or best[0].judged_by == other[0].judged_by


def _minus(best: Curve, other: Curve, measure: _Measure) -> str:
    """How far apart the two end, or why that is not known; empty where runs did not log how sure they are."""
    (arm, _), (rival, _) = best, other
    if not _same_critic(best, other, measure):
        judges = f"{arm.judged_by} and {rival.judged_by}"
        pair = f"{arm.name} and {rival.name} were scored by different critics ({judges})"
        return f"{pair}, so their scores cannot be compared."
    apart = _apart(best, other, measure)
    return f"{arm.name} minus {rival.name}, at the end: {apart.words}." if apart else ""


def _apart(best: Curve, other: Curve, measure: _Measure) -> _Change | None:
    """How far one arm ends from another; None where that is not known."""
    if not _same_critic(best, other, measure):
        return None
    ends = [(arm, points[-1]) for arm, points in (best, other)]
    errors = [arm.error(measure.key, point.update) for arm, point in ends]
    return _difference(ends[0][1].mean - ends[1][1].mean, errors, best[0].judged_by)


def _reach(best: Curve, other: Curve, measure: _Measure) -> str:
    (arm, points), (rival, target), noun = best, other, measure.noun
    value, theirs = target[-1].mean, target[-1].update
    update = _reached(points, value, measure)
    assert update is not None, "asked only of curves that end at the value or better"
    if update == points[0].update:
        return f"{arm.name} was at the final {noun} of {rival.name}, {number(value)}, from the start."
    sentence = f"{arm.name} reached the final {noun} of {rival.name}, {number(value)}, by update {update}"
    if theirs and update < theirs:
        sentence += f", {math.ceil(100 * update / theirs)} % of the {theirs} updates that {rival.name} had"
        own = _reached(target, value, measure)
        if own is not None and own < theirs:
            # A curve that goes up and down was there before its end: that is the other half of the truth.
            sentence += f"; {rival.name} itself first had it at update {own}"
    return sentence + "."


def _headline(ranked: Sequence[Curve], measure: _Measure) -> str:
    best, points = ranked[0]
    first, last = points[0], points[-1]
    if len(ranked) == 1:
        change = _change(best, points, measure.key)
        said = f": {change.brief}" if change else ""
        return f"{best.name}: {measure.name} {number(first.mean)} → {number(last.mean)} {_span(points)}{said}"
    second, theirs = ranked[1]
    apart = _apart(ranked[0], ranked[1], measure)
    said = f": {apart.brief}" if apart else ""
    update = _reached(points, theirs[-1].mean, measure)
    if first.update < (update or 0) < theirs[-1].update and (apart is None or apart.clear):
        many = f"{update} of {theirs[-1].update} updates"
        return f"{best.name} reaches {second.name}’s final {measure.noun} in {many}{said}"
    return f"{best.name} ends at {number(last.mean)}, {second.name} at {number(theirs[-1].mean)}{said}"

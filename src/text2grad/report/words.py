"""Numbers and comparisons in words: what the top of the page, and the terminal, say about the arms.

Enters: `Arm`s. Leaves: sentences. A claim is made only where the numbers carry it: falling is called falling, an arm
that does not end above another is not said to have reached it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from text2grad.report.arms import Arm, Point
from text2grad.report.folders import Run

HELD_OUT = "held_out/score"
TRAINING = "score/mean"
WATCHED = "held_out/watched"
"""By which a reward model chooses its weights."""
MEASURES = {
    HELD_OUT: "held-out score",
    TRAINING: "score of the completions trained on",
    "held_out/poor_ap": "average precision on poor tokens",
    "held_out/good_ap": "average precision on good tokens",
    WATCHED: "held-out loss",
    "held_out/loss": "held-out loss",
    "loss/joint": "training loss",
    "loss/mean": "training loss",
}
"""What is compared, by the first of these that an arm has. From precision on: reward models, then supervised starts."""


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


@dataclass(frozen=True)
class Comparison:
    """What is said about the arms, and by which measure."""

    key: str
    measure: str
    """What the numbers are, in words."""
    headline: str
    sentences: tuple[str, ...]


def compare(arms: Sequence[Arm]) -> Comparison:
    """Held-out scores where there are any; else the scores of the completions trained on, and that is said. Reward
    models have none: theirs is how well they find what is poor."""
    key = next((key for key in MEASURES if any(arm.series(key) for arm in arms)), "")
    curves = [(arm, points) for arm in arms if (points := arm.series(key))]
    if not curves:
        names = " and ".join(arm.name for arm in arms)
        return Comparison("", "", names, ("No scores yet: nothing has been measured that could be compared.",))
    measure = MEASURES[key]
    sentences = [_journey(arm, points, measure) for arm, points in curves]
    # The best arm against each of the others: every pair would be more than anybody reads.
    best, points = max(curves, key=lambda item: _worth(key, item[1][-1].mean))
    if len(points) > 1:
        sentences += [_reach(best, points, other, target, key) for other, target in curves if other is not best]
    if key == TRAINING:
        sentences.append("There are no held-out scores in these runs, so these are scores on what was trained on.")
    sentences += [f"{run.name} is {run.unfinished}." for arm in arms for run in arm.runs if run.unfinished]
    sentences += [said for arm in arms for run in arm.runs if (said := _kept(run, key))]
    silent = [arm.name for arm in arms if not arm.series(key)]
    if silent:
        sentences.append(f"No {measure} in {', '.join(silent)}.")
    return Comparison(key, measure, _headline(curves, key), tuple(sentences))


def _kept(run: Run, key: str) -> str:
    """Of a reward model whose weights are not those of the last look: whose they are."""
    looks = {update: row[WATCHED] for update, row in sorted(run.metrics.items()) if WATCHED in row}
    if run.unfinished or not looks or run.config.get("keep") != "best":
        return ""
    best = min(looks, key=looks.__getitem__)
    if best == max(looks) or key not in run.metrics[best]:
        return ""
    return (
        f"{run.name} has the weights of update {best}, where its held-out loss was lowest: {MEASURES[key]} "
        f"{number(run.metrics[best][key])}."
    )


def _worth(key: str, value: float) -> float:
    """More is better, of losses less."""
    return -value if MEASURES[key].endswith("loss") else value


def reached(points: Sequence[Point], score: float, key: str = HELD_OUT) -> int | None:
    """The first update at which a curve is at the score or better."""
    return next((point.update for point in points if _worth(key, point.mean) >= _worth(key, score)), None)


def _journey(arm: Arm, points: Sequence[Point], measure: str) -> str:
    first, last = points[0], points[-1]
    seeds = ""
    if len(arm.runs) > 1:
        spread = f", {number(last.low)} to {number(last.high)}" if last.low != last.high else ""
        seeds = f" ({arm.repeats}{spread})"
    if len(points) == 1:
        return f"{arm.name}: {measure} {number(last.mean)} at update {last.update}{seeds}."
    if number(first.mean) == number(last.mean):
        return f"{arm.name}: {measure} stayed at {number(last.mean)} over {counted(last.update, 'update')}{seeds}."
    verb = "rose" if last.mean > first.mean else "fell"
    return (
        f"{arm.name}: {measure} {verb} from {number(first.mean)} to {number(last.mean)} "
        f"in {counted(last.update - first.update, 'update')}{seeds}."
    )


def _reach(arm: Arm, points: Sequence[Point], other: Arm, target: Sequence[Point], key: str) -> str:
    score, theirs, noun = target[-1].mean, target[-1].update, _noun(key)
    if points[-1].mean == score:
        return f"{arm.name} and {other.name} end at the same {noun}, {number(score)}."
    update = reached(points, score, key)
    assert update is not None, "asked only of curves that end at the score or better"
    if update == points[0].update:
        return f"{arm.name} was at the final {noun} of {other.name}, {number(score)}, from the start."
    sentence = f"{arm.name} reached the final {noun} of {other.name}, {number(score)}, by update {update}"
    if theirs and update < theirs:
        sentence += f", {math.ceil(100 * update / theirs)} % of the {theirs} updates that {other.name} had"
        own = reached(target, score, key)
        if own is not None and own < theirs:
            # A curve that goes up and down was there before its end: that is the other half of the truth.
            sentence += f"; {other.name} itself was there first by update {own}"
    return sentence + "."


def _noun(key: str) -> str:
    return "loss" if MEASURES[key].endswith("loss") else "score"


def _headline(curves: Sequence[tuple[Arm, list[Point]]], key: str) -> str:
    ranked, measure = sorted(curves, key=lambda item: -_worth(key, item[1][-1].mean)), MEASURES[key]
    best, points = ranked[0]
    if len(ranked) == 1:
        first, last = points[0], points[-1]
        if len(points) == 1:
            return f"{best.name}: {measure} {number(last.mean)}"
        done = counted(last.update - first.update, "update")
        return f"{best.name}: {measure} {number(first.mean)} → {number(last.mean)} in {done}"
    second, theirs = ranked[1]
    if points[-1].mean == theirs[-1].mean:
        return f"{best.name} and {second.name} end at the same {_noun(key)}, {number(points[-1].mean)}"
    update = reached(points, theirs[-1].mean, key)
    if points[0].update < (update or 0) < theirs[-1].update:
        return f"{best.name} reaches {second.name}’s final {_noun(key)} in {update} of {theirs[-1].update} updates"
    return f"{best.name} ends at {number(points[-1].mean)}, {second.name} at {number(theirs[-1].mean)}"

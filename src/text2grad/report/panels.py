"""Which charts a page has: the names of the metrics, and what they mean in words.

Enters: `Arm`s. Leaves: charts; one whose numbers no run has is left out. A new metric that people should look at is a
line here.
"""

from collections.abc import Iterator, Sequence

from text2grad.report.arms import Arm
from text2grad.report.charts import Bars, Chart, Line

STYLES = 6
GOOD, POOR, PLAIN = 0, 1, 4
"""Styles that carry a meaning: blue, orange, grey."""

_OVER_UPDATES = (
    ("score/mean", "Score in training", "Mean score of the completions sampled at each update."),
    ("reward/mean", "Reward", "Sum of a completion’s token rewards, before the KL penalty."),
    (
        "kl/reference",
        "KL to the reference",
        "How far the policy has moved, mean per token. An estimate from sampled tokens: a few can make a spike.",
    ),
    ("length/mean", "Length", "Tokens of a completion. Watch it beside the reward: short can be a trick."),
    ("text/diversity", "Diversity", "Distinct pairs of neighbouring tokens, as a share of all in the batch."),
    ("text/repetition", "Repetition", "Share of tokens in stretches of four that occur again."),
    ("critic/unscored_frac", "Unscored", "Share of completions that the critic did not score; they train nothing."),
    ("align/missed_frac", "Missed quotes", "Share of the critiques’ quotes that were found nowhere."),
    ("loss/mean", "Training loss", "Mean loss of a token that is learned from, at each update."),
    ("held_out/loss", "Held-out loss", "Mean loss of a token, on examples that are not learned from."),
    ("loss/joint", "Training loss", "Of a reward model, both heads, at each update."),
    (
        "held_out/watched",
        "Held-out loss",
        "Of a reward model’s judging, on prompts that it does not learn from; it chooses the best weights.",
    ),
    (
        "held_out/poor_ap",
        "Poor tokens found",
        "Average precision, held out: 1 is all, before any other.",
    ),
    (
        "held_out/good_ap",
        "Good tokens found",
        "Average precision, held out: 1 is all, before any other.",
    ),
)
_AGAINST = (
    "Held-out score by the critic that is trained on, above, and by the examiner (evaluation.critic), below, each on a "
    "scale of its own. Where the critic rises and the examiner does not, the policy pleases the critic and nobody else."
)
_LOCALITY = (("good", GOOD), ("poor", POOR), ("unlabelled", PLAIN))
_PARTS = ("sample", "critic", "align", "forward", "update", "evaluate", "other")


def style_of(index: int) -> int:
    return index % STYLES


def lines_of(arms: Sequence[Arm], key: str) -> list[Line]:
    """One line an arm, in the arm's own style; arms without the metric have none."""
    return [Line(arm.name, points, style_of(i)) for i, arm in enumerate(arms) if (points := arm.series(key))]


def over_updates(arms: Sequence[Arm], besides: str = "") -> Iterator[Chart]:
    """One chart a metric, one line an arm; but for the one that is drawn already."""
    for key, title, note in _OVER_UPDATES:
        if key == besides:
            continue
        lines = lines_of(arms, key)
        constant_zero = all(point.high == point.low == 0 for line in lines for point in line.points)
        if lines and not (constant_zero and key in ("critic/unscored_frac", "align/missed_frac")):
            yield Chart(title, note, lines)


def locality(arms: Sequence[Arm]) -> Iterator[Chart]:
    """One chart an arm: does an update move the tokens that the critique spoke of, and those only?"""
    note = "Mean change of log-prob by one update, by what the critique said of the token."
    drawn = {}
    for arm in arms:
        series = [(name, arm.series(f"locality/{name}"), style) for name, style in _LOCALITY]
        drawn[arm.name] = [Line(name, points, style) for name, points, style in series if points]
    everything = [line for lines in drawn.values() for line in lines]
    yield from (Chart(name, note, lines, everything) for name, lines in drawn.items() if lines)


def against_examiner(arms: Sequence[Arm]) -> Iterator[Chart]:
    """One chart an arm that knows both: what the critic gives that is trained on, and what another one would."""
    for arm in arms:
        given, right = arm.series("held_out/critic_score"), arm.series("held_out/score")
        if given and right:
            lines = [Line("critic", given, POOR), Line("examiner", right, GOOD)]
            yield Chart(arm.name, _AGAINST, lines, stacked=True)


def time_by_part(arms: Sequence[Arm]) -> Bars | None:
    """Mean seconds an update; a part that is not known here comes last, before `other`."""
    rows = [row for arm in arms for run in arm.runs for row in run.metrics.values()]
    found = {key.removeprefix("time/") for row in rows for key in row if key.startswith("time/")}
    parts = [*(part for part in _PARTS[:-1] if part in found), *sorted(found - set(_PARTS)), *({"other"} & found)]
    bars = [(arm.name, [_mean_over_updates(arm, f"time/{part}") for part in parts]) for arm in arms]
    bars = [(name, values) for name, values in bars if any(values)]
    return Bars("Time by part", "Mean seconds an update.", parts, bars) if bars else None


def _mean_over_updates(arm: Arm, key: str) -> float:
    """Over all updates, those included that spent nothing on it: evaluations come every few updates only."""
    return sum(point.mean for point in arm.series(key)) / max(arm.updates, 1)

"""tuning.json, results.json, again.json and corrected.json → the tables of README.md below its mark, and curves.svg."""

import json
import statistics
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from studies.reward_model.drawing import Panel, Picture, Place, Row, Trace

from text2grad.report.differences import over_seeds

MARK = "<!-- below: written by tables.py from the JSON files beside it -->"
RESULTS = Path(__file__).parents[2] / "docs" / "results" / "README.md"
START, END = "<!-- words: written by studies/words/tables.py -->", "<!-- /words -->"
SHORT = {
    "words": "words, read by the aligner",
    "scalar rloo": "RLOO on the score, the strongest scalar rival",
    "words deleted": "words deleted, the score kept",
    "words flipped": "right called wrong and wrong called right",
    "words, 40 % moved": "quotes moved elsewhere in 40 % of critiques",
    "words, binary score": "words, the score 0 for nearly every bulletin",
    "scalar rloo, binary score": "RLOO, the score 0 for nearly every bulletin",
}
"""Arms of the table in docs/results, in its words."""
SCORE, FACTS = "held_out/true_score", "held_out/facts_right"
RIVALS = ("scalar rloo", "scalar grpo", "scalar gae")
Runs = dict[str, dict[int, dict[int, dict[str, float]]]]
"""Arm → seed → update → metrics."""


def write(here: Path, results: Path = RESULTS) -> None:
    runs, updates = read(here / "results.json")
    parts = ["## Tuning", "", *tuning_table(here / "tuning.json"), "", "## Arms", "", *arms_table(runs, updates)]
    parts += ["", *crossings(runs), "", "## Again", "", *arms_table(*read(here / "again.json"))]
    parts += ["", "## Corrected", "", *arms_table(*read(here / "corrected.json"))]
    page = here / "README.md"
    page.write_text(page.read_text().split(MARK)[0] + MARK + "\n\n" + "\n".join(parts) + "\n")
    (here / "curves.svg").write_text(picture(runs), encoding="utf-8")
    before, rest = results.read_text().split(START)
    results.write_text(before + START + "\n" + "\n".join(short_table(runs)) + "\n" + END + rest.split(END)[1])


def read(path: Path) -> tuple[Runs, int]:
    """The runs that were finished, and their number of updates."""
    stored = json.loads(path.read_text())
    runs: Runs = {}
    for row in stored["rows"]:
        runs.setdefault(row["arm"], {}).setdefault(row["seed"], {})[row["update"]] = row["metrics"]
    last = stored["updates"]
    return {arm: {seed: run for seed, run in seeds.items() if last in run} for arm, seeds in runs.items()}, last


def final(run: dict[int, dict[str, float]], key: str) -> float:
    return run[max(run)][key]


def area(run: dict[int, dict[str, float]], key: str) -> float:
    """Under the curve, by trapezoids, divided by its length: the mean over the updates."""
    places = sorted(run)
    pieces = [(b - a) * (run[a][key] + run[b][key]) / 2 for a, b in pairwise(places)]
    return sum(pieces) / (places[-1] - places[0])


def paired(runs: Runs, arm: str, other: str, measure: Any, key: str) -> list[float]:
    seeds = sorted(runs[arm].keys() & runs[other].keys())
    return [measure(runs[arm][seed], key) - measure(runs[other][seed], key) for seed in seeds]


def strongest(runs: Runs) -> str:
    """The scalar rival with the highest mean final score."""
    there = [arm for arm in RIVALS if arm in runs]
    return max(there, key=lambda arm: statistics.mean(final(run, SCORE) for run in runs[arm].values()))


def arms_table(runs: Runs, updates: int) -> Iterable[str]:
    rival = strongest(runs)
    yield f"After {updates} updates. Differences are to `{rival}`, the strongest scalar rival, on the same seeds."
    yield ""
    yield "| arm | seeds | facts right | score | score, mean over updates | facts, difference | score, difference |"
    yield "|---|---|---|---|---|---|---|"
    for arm, seeds in runs.items():
        if not seeds:
            continue
        facts, score, under = (
            [measure(run, key) for run in seeds.values()]
            for measure, key in ((final, FACTS), (final, SCORE), (area, SCORE))
        )
        compared = [_compared(runs, arm, rival, key) if arm != rival else "" for key in (FACTS, SCORE)]
        cells = [arm, str(len(seeds)), _spread(facts, "%"), _spread(score), _spread(under), *compared]
        yield f"| {' | '.join(cells)} |"


def short_table(runs: Runs) -> Iterable[str]:
    """That of docs/results."""
    rival = strongest(runs)
    yield "| after 48 updates of 64 bulletins | seeds | facts right | points more than the rival, 95 % interval |"
    yield "|---|---|---|---|"
    for arm, words in SHORT.items():
        facts = [final(run, FACTS) for run in runs[arm].values()]
        more = "" if arm == rival else _compared(runs, arm, rival, FACTS).replace(" points", "")
        yield f"| {words} | {len(facts)} | {_spread(facts, '%')} | {more} |"


def _compared(runs: Runs, arm: str, rival: str, key: str) -> str:
    differences = paired(runs, arm, rival, final, key)
    if len(differences) < 2:
        return "–"
    factor, unit = (100, " points") if key == FACTS else (1, "")
    mean, low, high = (factor * number for number in over_seeds(differences))
    digits = 1 if key == FACTS else 3
    return f"{mean:+.{digits}f}{unit} ({low:+.{digits}f} to {high:+.{digits}f})"


def _spread(numbers: Sequence[float], unit: str = "") -> str:
    """Mean ± standard deviation over the seeds."""
    deviation = statistics.stdev(numbers) if len(numbers) > 1 else 0.0
    if unit == "%":
        return f"{statistics.mean(numbers):.1%} ± {100 * deviation:.1f}"
    return f"{statistics.mean(numbers):.3f} ± {deviation:.3f}"


def tuning_table(path: Path) -> Iterable[str]:
    runs, _ = read(path)
    yield "| setting | final score, mean | each seed |"
    yield "|---|---|---|"
    means = {arm: statistics.mean(final(run, SCORE) for run in seeds.values()) for arm, seeds in runs.items() if seeds}
    best = {kind: max((arm for arm in means if arm.startswith(kind)), key=means.__getitem__) for kind in KINDS}
    for arm in sorted(means, key=lambda arm: -means[arm]):
        each = ", ".join(f"{final(run, SCORE):.3f}" for _, run in sorted(runs[arm].items()))
        yield f"| {arm} | {means[arm]:.3f}{' ←' if arm in best.values() else ''} | {each} |"


KINDS = ("words anchored", "words gae", "words span_rloo", "scalar rloo", "scalar grpo", "scalar gae")


def crossings(runs: Runs) -> Iterable[str]:
    rival, firsts = strongest(runs), []
    for seed in sorted(runs["words"].keys() & runs[rival].keys()):
        goal = final(runs[rival][seed], SCORE)
        reached = [update for update, metrics in sorted(runs["words"][seed].items()) if metrics[SCORE] >= goal]
        firsts.append(str(reached[0]) if reached else "never")
    yield f"`words` first reaches the final score of `{rival}` at update {', '.join(firsts)}, by seed, in steps of 6."
    yield "This is noisy; the differences above are the measure."


def picture(runs: Runs) -> str:
    """Mean facts right against updates."""

    def panel(title: str, arms: dict[str, tuple[str, str]]) -> Panel:
        lines = [Trace(colour, curve(runs[arm])) for arm, (colour, _) in arms.items() if runs.get(arm)]
        return Panel(title, lines, labels=[(name, colour) for colour, name in arms.values()])

    return Picture(
        title="Facts right on held-out reports, mean over seeds",
        alt="Facts right against updates for words, scalar rivals and damaged words; README.md holds the numbers.",
        x="update",
        y="facts right",
        key=[],
        rows=[
            Row(
                "",
                [
                    panel(
                        "words and scalar rivals",
                        {
                            "words": ("blue", "words"),
                            "scalar rloo": ("orange", "rloo"),
                            "scalar grpo": ("violet", "grpo"),
                            "scalar gae": ("grey", "gae"),
                        },
                    ),
                    panel(
                        "the same words, damaged",
                        {
                            "words": ("blue", "words"),
                            "words, 40 % moved": ("green", "40 % moved"),
                            "words deleted": ("grey", "deleted"),
                            "words flipped": ("orange", "flipped"),
                        },
                    ),
                    panel(
                        "other ways to pay",
                        {
                            "words": ("blue", "words"),
                            "prefix quality": ("green", "prefix quality"),
                            "words, paper's ±1": ("violet", "paper's ±1"),
                            "words, local": ("orange", "local"),
                        },
                    ),
                    panel(
                        "a score of 0 for nearly all",
                        {
                            "words, binary score": ("blue", "words"),
                            "scalar rloo, binary score": ("orange", "rloo"),
                        },
                    ),
                ],
            )
        ],
        notes=[
            "Same starts, reports and completions per update in every arm. Numbers of seeds: the table in README.md."
        ],
    ).svg()


def curve(seeds: dict[int, dict[int, dict[str, float]]]) -> list[Place]:
    """Mean over the seeds at every update that all of them have."""
    updates = sorted(set.intersection(*(set(run) for run in seeds.values())))
    return [(update, statistics.mean(run[update][FACTS] for run in seeds.values())) for update in updates]

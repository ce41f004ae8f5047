"""results.json → the tables of README.md below its mark, and economy.svg."""

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from studies.economy.run import HERE, PENALTY, PER_UPDATE, SIZES, learned
from studies.reward_model.drawing import Mark, Panel, Picture, Place, Row, Trace
from studies.words.tables import FACTS, SCORE, Runs, curve, final, paired, read

from text2grad.report.differences import over_seeds

MARK = "<!-- below: written by tables.py from results.json -->"
TRUE, RLOO = "true critic", "true critic, scalar rloo"
SHADES = dict(zip(SIZES, ("grey", "violet", "green", "orange"), strict=True))
OWN = "held_out/score"
EARLIER = HERE.parent / "reward_model" / "demo.json"
"""An earlier study: the same task and model, a critic of prefix quality, reward models that write critiques too."""
EARLIER_ARMS = {"free-middling": (24_000, 0.0), "demo-learned": (64_000, 0.0), "steady-learned": (64_000, 0.01)}
"""Its arm → (critiques that the reward model has seen, KL penalty)."""


def write(here: Path) -> None:
    runs, updates = read(here / "results.json")
    parts = ["## Gain", "", *gains(runs, updates), "", "## Reward models", "", *models(here / "results.json")]
    parts += ["", "## What pays back", "", *pays_back(runs, updates)]
    parts += ["", "## More critiques, an earlier study", "", *earlier_table()]
    page = here / "README.md"
    page.write_text(page.read_text().split(MARK)[0] + MARK + "\n\n" + "\n".join(parts) + "\n")
    (here / "economy.svg").write_text(picture(runs, updates), encoding="utf-8")


def arms(runs: Runs) -> list[str]:
    """Those with a finished run, in the order of the table."""
    names = [TRUE, RLOO, *map(learned, SIZES), f"{TRUE}, KL {PENALTY:g}", *(learned(size, PENALTY) for size in SIZES)]
    return [name for name in names if runs.get(name)]


def critiques_of(arm: str, updates: int) -> int:
    """What the true critic was asked: for the reward model, or in RL itself."""
    sizes = {learned(size, penalty): size for size in SIZES for penalty in (0.0, PENALTY)}
    return sizes.get(arm, PER_UPDATE * updates)


def gain(run: dict[int, dict[str, float]], key: str) -> float:
    """From the start to the end."""
    return run[max(run)][key] - run[0][key]


def shares(runs: Runs, arm: str) -> list[float]:
    """The arm's gain in score over that of the true critic, by seed."""
    seeds = sorted(runs[arm].keys() & runs.get(TRUE, {}).keys())
    return [gain(runs[arm][seed], SCORE) / gain(runs[TRUE][seed], SCORE) for seed in seeds]


def gains(runs: Runs, updates: int) -> Iterable[str]:
    yield f"After {updates} updates of {PER_UPDATE} bulletins. Score and facts right are by the true critic, on"
    yield "held-out reports: mean over seeds ± deviation. Shares are of the true critic's gain in score, by seed."
    yield ""
    titles = ["RL with", "critiques asked of the true critic", "seeds", "facts right", "score", "share of the gain"]
    titles += ["score, difference to the true critic", "learned critic's own score"]
    yield f"| {' | '.join(titles)} |"
    yield "|---|---|---|---|---|---|---|---|"
    starts = [run[0] for run in runs.get(TRUE, {}).values()]
    if starts:
        before = [spread([start[key] for start in starts], key) for key in (FACTS, SCORE)]
        yield f"| nothing yet: the start | 0 | {len(starts)} | {before[0]} | {before[1]} | | | |"
    for arm in arms(runs):
        seeds = list(runs[arm].values())
        facts, score = (spread([final(run, key) for run in seeds], key) for key in (FACTS, SCORE))
        own = spread([final(run, OWN) for run in seeds], SCORE) if not arm.startswith(TRUE) else ""
        each = ", ".join(f"{share:.0%}" for share in shares(runs, arm)) if arm != TRUE else ""
        cells = [
            arm,
            f"{critiques_of(arm, updates):,}",
            str(len(seeds)),
            facts,
            score,
            each,
            difference(runs, arm),
            own,
        ]
        yield f"| {' | '.join(cells)} |"


def difference(runs: Runs, arm: str) -> str:
    """Mean of the paired differences in final score, with its 95 % interval."""
    if arm == TRUE or len(found := paired(runs, arm, TRUE, final, SCORE)) < 2:
        return ""
    mean, low, high = over_seeds(found)
    return f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"


def spread(numbers: Sequence[float], key: str) -> str:
    deviation = statistics.stdev(numbers) if len(numbers) > 1 else 0.0
    if key == FACTS:
        return f"{statistics.mean(numbers):.1%} ± {100 * deviation:.1f}"
    return f"{statistics.mean(numbers):.3f} ± {deviation:.3f}"


def models(path: Path) -> Iterable[str]:
    """How well each labels the critiques that were kept apart from its own."""
    rows = [row for row in json.loads(path.read_text())["rows"] if row["arm"].startswith("reward model")]
    yield "Average precision on the critiques that each reward model kept apart, with its best weights; by seed."
    yield ""
    yield "| critiques seen | poor tokens | good tokens | best update | seconds |"
    yield "|---|---|---|---|---|"
    for size in SIZES:
        of_size = sorted((row for row in rows if row["cost"]["true_critiques"] == size), key=lambda row: row["seed"])
        if of_size:
            poor, good = (
                ", ".join(f"{row['metrics'][f'held_out/{kind}_ap']:.3f}" for row in of_size)
                for kind in ("poor", "good")
            )
            best = ", ".join(str(row["update"]) for row in of_size)
            seconds = ", ".join(f"{row['cost']['seconds']:.0f}" for row in of_size)
            yield f"| {size:,} | {poor} | {good} | {best} | {seconds} |"


def pays_back(runs: Runs, updates: int) -> Iterable[str]:
    """What a reward model has to serve before fewer critiques were asked than RL with the true critic would ask."""
    per_run = PER_UPDATE * updates
    yield f"RL with the true critic asks it {per_run:,} times a run ({updates} updates × {PER_UPDATE})."
    yield "A reward model of N critiques asks N times, once; the runs and updates below are those it has to serve until"
    yield "as many would have been asked without it."
    yield ""
    yield "| critiques seen | runs of RL | updates of RL | share of the true critic's gain, mean |"
    yield "|---|---|---|---|"
    for size in SIZES:
        found = [name for name in (learned(size), learned(size, PENALTY)) if runs.get(name)]
        best = [f"{statistics.mean(each):.0%} ({name})" for name in found if (each := shares(runs, name))]
        yield f"| {size:,} | {size / per_run:.1f} | {math.ceil(size / PER_UPDATE):,} | {'; '.join(best)} |"


def earlier(arm: str) -> tuple[list[float], list[float]]:
    """(facts right after 48 updates, share of the true critic's gain in score), by seed."""
    facts, gained = [], []
    for seed in json.loads(EARLIER.read_text())["seeds"].values():
        curves = {name: {row["update"]: row for row in seed["curves"][name]} for name in (arm, "demo-true")}
        start, end, true = curves[arm][0], curves[arm][48], curves["demo-true"][48]
        facts.append(end["facts_right"])
        gained.append((end["score"] - start["score"]) / (true["score"] - start["score"]))
    return facts, gained


def earlier_table() -> Iterable[str]:
    yield "[studies/reward_model](../reward_model/README.md): a critic of prefix quality, reward models trained"
    yield "for longer on a GPU. Shares of the gain of RL with that critic and without a penalty, after 48 updates."
    yield ""
    yield "| critiques seen | KL | facts right | share of the gain, by seed |"
    yield "|---|---|---|---|"
    for arm, (size, penalty) in EARLIER_ARMS.items():
        facts, gained = earlier(arm)
        yield f"| {size:,} | {penalty:g} | {spread(facts, FACTS)} | {', '.join(f'{share:.0%}' for share in gained)} |"


def picture(runs: Runs, updates: int) -> str:
    """Facts right against the critiques that were asked of the true critic, and against updates."""
    return Picture(
        title="What critiques buy: directly, and through a reward model",
        alt="Facts right against critiques by the true critic, and against updates; README.md holds the numbers.",
        x="update",
        y="facts right",
        key=[
            ("RL with the true critic, words", Mark("blue", "diamond", (0, 0))),
            ("RL with the true critic, score alone", Mark("grey", "square", (0, 0))),
            ("a reward model, each seed", Mark("orange", "ring", (0, 0))),
            ("an earlier study, each seed", Mark("violet", "triangle", (0, 0))),
            ("mean", Trace("orange", [])),
            (f"mean, KL {PENALTY:g}", Trace("green", [], dashed=True)),
        ],
        rows=[Row("", [asked(runs, updates), *over_updates(runs)])],
        notes=["The start is the dotted line. Same starts, reports and completions per update in every arm."],
    ).svg()


def place(critiques: float) -> float:
    """Where so many critiques are on the axis: a step to the right is twice as many; 500 are at 0."""
    return math.log2(critiques / 500)


def asked(runs: Runs, updates: int) -> Panel:
    marks = [
        Mark("orange", "ring", (place(size), final(run, FACTS)))
        for size in SIZES
        for run in runs.get(learned(size), {}).values()
    ]
    marks += [
        Mark("violet", "triangle", (place(size), facts))
        for arm, (size, _) in EARLIER_ARMS.items()
        for facts in earlier(arm)[0]
    ]
    for arm, colour, shape in ((TRUE, "blue", "diamond"), (RLOO, "grey", "square")):
        if runs.get(arm):
            mean = statistics.mean(final(run, FACTS) for run in runs[arm].values())
            marks.append(Mark(colour, shape, (place(PER_UPDATE * updates), mean)))
    lines = [
        Trace(colour, means, dashed)
        for penalty, colour, dashed in ((0.0, "orange", False), (PENALTY, "green", True))
        if (means := _means(runs, penalty))
    ]
    begun = [run[0][FACTS] for run in runs.get(TRUE, {}).values()]
    return Panel(
        "by critiques asked",
        lines,
        marks,
        base=(statistics.mean(begun), "start") if begun else None,
        x="critiques, thousands",
        steps=[(place(1000 * count), str(count)) for count in (1, 4, 16, 64)],
    )


def _means(runs: Runs, penalty: float) -> list[Place]:
    there = [size for size in SIZES if runs.get(learned(size, penalty))]
    return [
        (place(size), statistics.mean(final(run, FACTS) for run in runs[learned(size, penalty)].values()))
        for size in there
    ]


def over_updates(runs: Runs) -> Iterable[Panel]:
    for title, penalty in (("by updates", 0.0), (f"by updates, KL {PENALTY:g}", PENALTY)):
        true = TRUE if not penalty else f"{TRUE}, KL {PENALTY:g}"
        named = {true: ("blue", "true critic")}
        named |= {learned(size, penalty): (SHADES[size], f"{size:,}") for size in SIZES}
        there = {arm: shown for arm, shown in named.items() if runs.get(arm)}
        if there:
            lines = [Trace(colour, curve(runs[arm])) for arm, (colour, _) in there.items()]
            yield Panel(title, lines, labels=[(name, colour) for colour, name in there.values()])

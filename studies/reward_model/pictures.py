"""The JSON files of this folder → the pictures of its README.

python -m studies.reward_model.pictures      writes curve.svg, and overoptimisation.svg where there is a demo.json
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from studies.reward_model.drawing import Mark, Panel, Picture, Place, Row, Trace
from studies.reward_model.run import HERE
from studies.reward_model.tables import MEASURES, TITLES, Run, learned_runs

SHOWN = ("content", "covered", "spans", "touched")
LEAST = 0.1
"""Spans that touch: with lower thresholds nearly everything is one span, which touches whatever people marked."""
POINTS = {
    "supported": ("support", "orange", "diamond"),
    "absent": ("in no passage", "green", "triangle"),
    "written": ("written", "violet", "square"),
}
"""Label, colour and shape of what has no curve."""
ALIKE = {"free": "demo"}
"""Neither has a KL penalty: the true critic's arm of the one is the reference of the other."""


def draw(out: Path) -> list[Path]:
    """Writes what can be drawn from the files there."""
    pictures = {"curve.svg": curves(out)}
    if (out / "demo.json").exists():
        pictures["overoptimisation.svg"] = overoptimisation(out)
    for name, text in pictures.items():
        (out / name).write_text(text, encoding="utf-8")
    return [out / name for name in pictures]


def curves(out: Path) -> str:
    """Precision against recall of poor, on each data set by each measure."""
    parts = json.loads((out / "baselines.json").read_text(encoding="utf-8"))
    rows = []
    for name, part in parts.items():
        found = part["critics"], learned_runs(out, name)
        rows.append(Row(f"{TITLES[name]}: {part['rows']} completions", [_agreement(key, *found) for key in SHOWN]))
    anywhere = (0.0, 0.0)
    return Picture(
        title="Which words are poor: critics against people",
        alt="Precision against recall of poor words, by data set and measure; the tables below hold the numbers.",
        x="recall",
        y="precision",
        key=[
            (f"{TITLES['head']}, every threshold, a line a seed", Trace("blue", [])),
            ("at the threshold chosen on other rows", Mark("blue", "ring", anywhere)),
            *((TITLES[name].replace("`", ""), Mark(*POINTS[name][1:], anywhere)) for name in ("supported", "absent")),
            (f"{TITLES['written']}, a square a seed", Mark(*POINTS["written"][1:], anywhere)),
        ],
        rows=rows,
        notes=[
            f"Spans that touch: only thresholds of {LEAST:g} and above, for below nearly everything is one span, "
            "which touches whatever people marked.",
            "IoU ≥ ½: low thresholds give spans too long to match any, so that recall falls, too. "
            "Thresholds that find nothing are not drawn.",
        ],
        unit=True,
    ).svg()


def _agreement(key: str, known: dict[str, Run], learned: dict[str, list[Run]]) -> Panel:
    heads = learned.get("head", [])
    marks = [Mark("blue", "ring", at) for run in heads for at in _poor(run, key)]
    for name, (_, colour, shape) in POINTS.items():
        runs = learned.get(name, []) if name == "written" else [known[name]]
        marks += [Mark(colour, shape, at) for run in runs for at in _poor(run, key)]
    return Panel(
        MEASURES[key],
        [Trace("blue", points) for run in heads if (points := _curve(run, key))],
        marks,
        [*((label, colour) for label, colour, _ in POINTS.values()), ("span head", "blue")],
        base=(heads[0]["base"], f"base rate {heads[0]['base']:.2f}") if heads and key == "content" else None,
    )


def _poor(run: Run, key: str) -> list[Place]:
    """(recall, precision), unless nothing was called."""
    found = run[key]["poor"]
    return [(found["recall"], found["precision"])] if found["called"] else []


def _curve(run: Run, key: str) -> list[Place]:
    found = run["curve"] if key == "content" else run["span_curves"][key]
    least = LEAST if key == "touched" else 0.0
    columns = (found[name] for name in ("thresholds", "recall", "precision"))
    return [(recall, precision) for at, recall, precision in zip(*columns, strict=True) if recall and at >= least]


def overoptimisation(out: Path) -> str:
    """The true score and what the learned critic says, over updates: a panel for each arm that learns from one."""
    found = json.loads((out / "demo.json").read_text(encoding="utf-8"))
    panels = [panel for arm in found["arms"] if not arm.endswith("-true") for panel in _arm(found, arm)]
    return Picture(
        title="RL on the demo's task: what becomes of the true score",
        alt="Held-out score over updates by the true critic and by the learned one; the tables below hold the numbers.",
        x="updates",
        y="held-out score",
        key=[
            ("score by the true critic, a line a seed", Trace("blue", [])),
            ("score by the learned critic that it is trained on", Trace("orange", [], dashed=True)),
            ("reference: trained on the true critic", Trace("grey", [])),
        ],
        rows=[Row("", panels[at : at + 3]) for at in range(0, len(panels), 3)],
        notes=[
            "AP: the learned critic's average precision on poor tokens, prompts held out, mean over seeds. "
            "Panels differ in how many updates they show.",
            "The reference has the same settings, if not as many updates; the demo's own have no KL penalty.",
        ],
    ).svg()


def _arm(found: dict[str, Any], arm: str) -> list[Panel]:
    """None where no seed has it."""
    true, said = _scores(found, arm, "score"), _scores(found, arm, "critic_score")
    if not true:
        return []
    last = max(line[-1][0] for line in true)
    kind, _, judge = arm.partition("-")
    reference = _scores(found, f"{kind}-true", "score") or _scores(found, f"{ALIKE.get(kind)}-true", "score")
    beside = [[place for place in line if place[0] <= last] for line in reference]
    title, _, settings = found["arms"][arm].partition(", ")
    precision = _precision(found, judge)
    return [
        Panel(
            title,
            [Trace("grey", line) for line in beside]
            + [Trace("orange", line, dashed=True) for line in said]
            + [Trace("blue", line) for line in true],
            labels=[("true score", "blue"), ("learned critic says", "orange"), ("reference", "grey")],
            under=", ".join(filter(None, (settings, precision))),
        )
    ]


def _scores(found: dict[str, Any], arm: str, name: str) -> list[list[Place]]:
    """A line for each seed that has the arm."""
    curves = (arms["curves"].get(arm, []) for arms in found["seeds"].values())
    lines = ([(float(point["update"]), point[name]) for point in points if name in point] for points in curves)
    return [line for line in lines if line]


def _precision(found: dict[str, Any], judge: str) -> str:
    names = [name for name, title in found["reward_models"].items() if title == judge]
    values = [
        arms["reward_models"][name]["held_out/poor_ap"]
        for arms in found["seeds"].values()
        for name in names
        if name in arms["reward_models"]
    ]
    return f"AP {sum(values) / len(values):.3f}" if values else ""


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE)
    for path in draw(parser.parse_args(words).out):
        print(f"drew {path}")


if __name__ == "__main__":
    main()

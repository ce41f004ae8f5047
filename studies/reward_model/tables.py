"""The JSON files of this folder → the tables of its README."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

Run = dict[str, Any]
TITLES = {
    "defacto": "DeFacto, validation file",
    "qa": "QA-Feedback, odd indices",
    "majority": "majority",
    "absent": "words that no passage has",
    "supported": "`support`, aligned",
    "head": "span head",
    "written": "written critiques (the paper's way)",
}
MEASURES = {
    "content": "characters of content words",
    "tokens": "words (span head: its tokens)",
    "spans": "spans, IoU ≥ ½",
    "covered": "spans, by the share covered",
    "touched": "spans that touch",
}
MARKS = [f"{mark:.3f}" for mark in np.arange(0.4, 0.86, 0.05)]
LOOKS = [0, 16, 32, 48, 96, 144, 192]


def tables(out: Path) -> str:
    lines: list[str] = []
    for name, part in json.loads((out / "baselines.json").read_text(encoding="utf-8")).items():
        known, learned = part["critics"], learned_runs(out, name)
        lines += [f"**{TITLES[name]}**, {part['rows']} completions; precision / recall / F1 of poor.", ""]
        lines += _head(["", *MEASURES.values()])
        lines += [
            _line(TITLES[critic], [_cell(found[key]["poor"]) for key in MEASURES]) for critic, found in known.items()
        ]
        for way, runs in learned.items():
            for run in runs:
                title = f"{TITLES[way]}, seed {run['seed']}"
                lines.append(_line(title, [_cell(run[key]["poor"]) for key in MEASURES]))
        lines += ["", *_classes(known, learned), *_as_precise(learned), *_curves(learned), *_others(learned)]
    return "\n".join([*lines, *_rl(out)])


def learned_runs(out: Path, part: str) -> dict[str, list[Run]]:
    """What learn.py measured, by the way it was learned."""
    found = {}
    for way in ("head", "written"):
        paths = sorted(out.glob(f"{part}-{way}-*.json")) or sorted(out.glob(f"{part}-both-{way}-*.json"))
        if paths:
            found[way] = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    return found


def _classes(known: dict[str, Run], learned: dict[str, list[Run]]) -> list[str]:
    """Every class, in tokens and in spans; the mean over seeds of what was learned. What is neutral has no spans."""
    columns = [("tokens", verdict) for verdict in ("poor", "neutral", "good")]
    columns += [(key, verdict) for key in ("spans", "covered") for verdict in ("poor", "good")]
    names = {"tokens": "words or tokens", "spans": "spans, IoU", "covered": "spans, covered"}
    lines = ["Every class (of what was learned, means over the seeds):", ""]
    lines += _head(["", *(f"{names[key]}: {verdict}" for key, verdict in columns)])
    for critic, runs in {**{name: [found] for name, found in known.items()}, **learned}.items():
        cells = []
        for key, verdict in columns:
            found = [run[key][verdict] for run in runs]
            kept = ("precision", "recall", "f1", "called")
            cells.append(_cell({name: float(np.mean([one[name] for one in found])) for name in kept}))
        lines.append(_line(TITLES[critic], cells))
    return [*lines, ""]


def _as_precise(learned: dict[str, list[Run]]) -> list[str]:
    """Recall of poor where the span head is as precise as `support`."""
    runs = learned.get("head", [])
    if not runs:
        return []
    lines = [
        "Recall of poor at `support`'s precision, by seed: read off the curve of the rows that are measured on; and "
        "with the threshold that has `support`'s precision on the rows that are chosen by: precision → recall.",
        "",
        *_head(["", "`support`: precision, recall", "span head, recall", "threshold chosen elsewhere"]),
    ]
    for key in ("content", "spans", "covered", "touched"):
        found = [run["as_support"][key] for run in runs]
        theirs = f"{found[0]['support_precision']:.2f}, {found[0]['support_recall']:.3f}"
        recalls = ", ".join(f"**{one['read_off_recall']:.3f}**" for one in found)
        chosen = ", ".join(f"{one['chosen_precision']:.2f} → {one['chosen_recall']:.3f}" for one in found)
        lines.append(_line(MEASURES[key], [theirs, recalls, chosen]))
    return [*lines, ""]


def _curves(learned: dict[str, list[Run]]) -> list[str]:
    """The precision–recall curves, read off at round precisions; the picture has all of them."""
    runs = learned.get("head", [])
    if not runs:
        return []
    lines = _head(["span head, recall at precision of at least", *(mark[:-1] for mark in MARKS)])
    for run in runs:
        cells = [f"{run['recall_at_precision'][mark]:.2f}" for mark in MARKS]
        lines.append(_line(f"{MEASURES['content']}, seed {run['seed']}", cells))
    for key in ("spans", "covered", "touched"):
        for run in runs:
            cells = [_at(run["span_curves"][key], float(mark)) for mark in MARKS]
            lines.append(_line(f"{MEASURES[key]}, seed {run['seed']}", cells))
    return [*lines, ""]


def _at(points: dict[str, list[float]], wanted: float) -> str:
    pairs = zip(points["precision"], points["recall"], strict=True)
    enough = [recall for precision, recall in pairs if precision >= wanted - 1e-9]
    return f"{max(enough):.2f}" if enough else "–"


def _others(learned: dict[str, list[Run]]) -> list[str]:
    lines = []
    for way, runs in learned.items():
        if way == "head":
            precisions = ", ".join(f"{run['average_precision']:.3f}" for run in runs)
            errors = (
                f"{verdict} " + ", ".join(f"{run['calibration_error'][verdict]:.3f}" for run in runs)
                for verdict in ("poor", "good")
            )
            lines.append(
                f"{TITLES[way]}, by seed: average precision {precisions} (base rate {runs[0]['base']:.3f}); expected "
                f"calibration error, {'; '.join(errors)} (characters of content words)."
            )
        else:
            parsed = ", ".join(f"{run['parse_rate']:.2f}" for run in runs)
            quoted = ", ".join(f"{run['quote_found_rate']:.2f}" for run in runs)
            seconds = ", ".join(f"{run['seconds_judging']:.0f}" for run in runs)
            others = ", ".join(f"{run['seconds_judging']:.0f}" for run in learned.get("head", []))
            lines.append(
                f"{TITLES[way]}, by seed: parse rate {parsed}; quotes found {quoted}. Unparseable counts as wrong. "
                f"Seconds of judging, several runs sharing the device: {seconds}; span head {others}."
            )
    return [
        *(text for line in lines for text in (line, "")),
    ]


def _rl(out: Path) -> list[str]:
    """The demo's task with the learned critic in the place of the true one."""
    if not (out / "demo.json").exists():
        return []
    found = json.loads((out / "demo.json").read_text(encoding="utf-8"))
    lines = [
        "**RL on the demo's task**: held-out score by the true critic, in brackets by the one that is learned from.",
        "",
        *_head(["seed, critic", *(f"update {mark}" for mark in LOOKS)]),
    ]
    for seed, arms in found["seeds"].items():
        for arm, title in found["arms"].items():
            if arm in arms["curves"]:
                points = {int(point["update"]): point for point in arms["curves"][arm]}
                lines.append(_line(f"{seed}, {title}", [_point(points[at]) if at in points else "" for at in LOOKS]))
    lines += ["", "By the mean of the last three looks:", ""]
    for what in found["summary"]:
        shares = ", ".join(f"**{one:.0%}**" for one in what["shares"])
        last = ", ".join(f"{one:.0%}" for one in what["at_the_last"])
        lines.append(f"- {what['what']}: {shares} (seeds {', '.join(what['seeds'])}); at the last look alone {last}.")
    judges = ", ".join(
        f"seed {seed}: {arms['reward_models'][name]['held_out/poor_ap']:.3f} ({title})"
        for seed, arms in found["seeds"].items()
        for name, title in found["reward_models"].items()
        if name in arms["reward_models"]
    )
    lines += [
        "",
        f"Average precision of the reward models on poor tokens, prompts held out, at their last look: {judges}.",
    ]
    if not found.get("choice"):
        return lines
    lines += ["", "What the penalty was chosen by, on another seed and other held-out reports:", ""]
    lines += _head(["arm", *(f"update {mark}" for mark in LOOKS)])
    for title, curve in found["choice"].items():
        points = {int(point["update"]): point for point in curve}
        lines.append(_line(title, [_point(points[at]) if at in points else "" for at in LOOKS]))
    return lines


def _point(point: dict[str, float]) -> str:
    learned = f" ({point['critic_score']:.2f})" if "critic_score" in point else ""
    return f"{point['score']:.2f}{learned}"


def _head(names: Sequence[str]) -> list[str]:
    return [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]


def _line(title: str, cells: Sequence[str]) -> str:
    return f"| {title} | {' | '.join(cells)} |"


def _cell(found: dict[str, float]) -> str:
    if not found["called"]:
        return "nothing called"
    return " / ".join(f"{found[name]:.2f}" for name in ("precision", "recall", "f1"))

"""How much of a critic's score do its verdicts explain, among the samples of a prompt?

    text2grad evaluate MODEL task=… samples=4 --rollouts SAMPLES.jsonl
    python -m studies.critics.explained NAME=SAMPLES.jsonl …       # adds to explained.json, and to README.md's table

Enters: judged samples, several for each prompt. Leaves: the share of the score's variance that verdicts explain, for
each way of pricing them (`scoring.slopes`, `scoring.by_length`). Prices are learned as training learns them (in one go,
and without its bounds on outliers), on one half of the prompts, and measured on the other, both ways round. Below 0,
spans add noise instead of removing it.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from text2grad.errors import InvalidData, Text2GradError
from text2grad.feedback.rewards import earned_by_spans, kind_of, new_scale, scale_of, scale_rows
from text2grad.feedback.settings import Scoring
from text2grad.runs import read_jsonl
from text2grad.types import Rollout

HERE = Path(__file__).parent
BEGIN, END = "<!-- explained -->", "<!-- /explained -->"
WAYS = {
    "one": Scoring(),
    "two": Scoring(slopes="two"),
    "one, by length": Scoring(by_length=True),
    "two, by length": Scoring(slopes="two", by_length=True),
}


def explained(samples: Iterable[Rollout]) -> dict[str, Any]:
    """Of samples whose critique has a score and verdicts; greedy completions are to be left out before."""
    by_prompt: dict[str, list[Rollout]] = {}
    for one in samples:
        if one.critique is not None and one.alignment is not None and kind_of(one.critique) == "score":
            by_prompt.setdefault(one.example.id, []).append(one)
    prompts = [some for some in by_prompt.values() if len(some) > 1]
    if len(prompts) < 2:
        raise InvalidData("wants two prompts or more that have several samples with a score and verdicts each")
    halves = prompts[::2], prompts[1::2]
    return {
        "completions": sum(map(len, prompts)),
        "prompts": len(prompts),
        "share": {name: _share(halves, scoring) for name, scoring in WAYS.items()},
    }


def _share(halves: tuple[list[list[Rollout]], list[list[Rollout]]], scoring: Scoring) -> float | None:
    whole = left = 0.0
    for learned_on, measured_on in (halves, halves[::-1]):
        seen = [one for some in learned_on for one in some]
        running: Any = new_scale(scoring)
        rows = scale_rows(((*_judged(one), len(one.completion.text)) for one in seen), scoring)
        running.see(rows, [one.example.id for one in seen])
        scale = scale_of(running, scoring)
        for some in measured_on:
            earned = [earned_by_spans(_judged(one)[1], scale, len(one.completion.text)) for one in some]
            scores = np.array([one.score for one in some], dtype=float)
            whole += len(some) * float(scores.var())
            left += len(some) * float((scores - earned).var())
    return round(1 - left / whole, 3) if whole > 1e-12 else None


def _judged(one: Rollout) -> tuple[Any, Any]:
    return one.critique, one.alignment


def table(found: dict[str, Any]) -> str:
    """
    >>> print(table({"calm": {"completions": 8, "prompts": 2, "share": {"one": 0.5, "two": None}}}).splitlines()[2])
    | calm | 2 × 4 | 50 % | – |
    """
    ways = list(next(iter(found.values()))["share"])
    lines = [f"| critic and samples | samples | {' | '.join(ways)} |", "|---" * (len(ways) + 2) + "|"]
    for name, row in found.items():
        shares = ["–" if row["share"][way] is None else f"{100 * row['share'][way]:.0f} %" for way in ways]
        each = row["completions"] / row["prompts"]
        lines.append(f"| {name} | {row['prompts']} × {each:.3g} | {' | '.join(shares)} |")
    return "\n".join(lines)


def main(words: Sequence[str]) -> None:
    kept, page = HERE / "explained.json", HERE / "README.md"
    if not words and not kept.exists():
        raise SystemExit("explained: wants NAME=SAMPLES.jsonl")
    before, rest = page.read_text(encoding="utf-8").split(BEGIN)
    found = json.loads(kept.read_text()) if kept.exists() else {}
    for word in words:
        name, equals, file = word.partition("=")
        if not name or not equals or not file:
            raise SystemExit(f"explained: wants NAME=SAMPLES.jsonl, got {word!r}")
        try:
            rows = [row for row in read_jsonl(file) if row.pop("part", "samples") == "samples"]
            found[name] = explained(Rollout.from_json(row) for row in rows)
        except (Text2GradError, OSError) as problem:
            raise SystemExit(f"explained: {file}: {problem}") from None
    kept.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    page.write_text(f"{before}{BEGIN}\n{table(found)}\n{END}{rest.split(END)[1]}", encoding="utf-8")
    print(table(found))


if __name__ == "__main__":
    main(sys.argv[1:])

"""What a good and a poor word are worth to a critic's score: regressions over the samples of a run.

    python -m studies.summarization.worth NAME=runs/…/seed-100/rollouts.jsonl …     # adds to worth.json

The score is regressed on the sum of verdicts (one slope), and on good and poor ones apart (two slopes), over all
completions and among those of a prompt. Training fits over all completions. `explained` is the share of the score's
variance; null where all scores are equal.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from text2grad.errors import InvalidData, Text2GradError
from text2grad.feedback.rewards import kind_of, scale_rows
from text2grad.feedback.settings import Scoring
from text2grad.runs import read_jsonl
from text2grad.types import Rollout

HERE = Path(__file__).parent


def fits(samples: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Of rows of rollouts.jsonl. Left out are held-out ones, those without a score, and those whose critic grades
    prefixes: there verdicts are worth nothing."""
    rows, groups = [], []
    for sample in samples:
        if not sample.get("held_out"):
            rollout = Rollout.from_json(sample)
            if rollout.critique is not None and rollout.alignment is not None:
                if kind_of(rollout.critique) != "score":
                    continue
                judged = rollout.critique, rollout.alignment, len(rollout.completion.text)
                found_rows = scale_rows([judged], Scoring(slopes="two"))
                rows += found_rows
                groups += [(sample["update"], rollout.group)] * len(found_rows)
    if not rows:
        raise InvalidData("no sampled completion has a score and verdicts")
    table = np.array(rows)
    centred = table.copy()
    for group in set(groups):
        own = [place for place, other in enumerate(groups) if other == group]
        centred[own] -= centred[own].mean(0)
    found: dict[str, Any] = {"completions": len(table)}
    found |= dict(zip(("good", "poor", "score"), table.mean(0).tolist(), strict=True))
    for name, each in (("all", table - table.mean(0)), ("of_a_prompt", centred)):
        good, poor, score = each.T
        one = _fit([good - poor], score)
        two = _fit([good, -poor], score)
        found[name] = {"one": one, "two": two}
    return found


def _fit(columns: Sequence[Any], score: Any) -> dict[str, Any]:
    x = np.stack(columns, 1)
    slopes, *_ = np.linalg.lstsq(x, score, rcond=None)
    whole, left = float((score**2).sum()), float(((score - x @ slopes) ** 2).sum())
    explained = round(1 - left / whole, 3) if whole > 1e-12 * len(score) else None
    return {"slopes": slopes.round(4).tolist(), "explained": explained}


def main(words: Sequence[str]) -> None:
    kept = HERE / "worth.json"
    found = json.loads(kept.read_text()) if kept.exists() else {}
    for word in words:
        name, equals, file = word.partition("=")
        if not name or not equals or not file:
            raise SystemExit(f"worth: wants NAME=rollouts.jsonl, got {word!r}")
        try:
            found[name] = fits(read_jsonl(file))
        except (Text2GradError, OSError) as problem:
            raise SystemExit(f"worth: {file}: {problem}") from None
    kept.write_text(json.dumps(found, indent=1, allow_nan=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

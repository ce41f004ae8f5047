"""What a good and a poor word are worth to a critic's score: regressions over the samples of a run.

    python -m studies.summarization.worth NAME=runs/…/seed-100/rollouts.jsonl …     # adds to worth.json

The score is regressed on the sum of verdicts (one slope), and on good and poor ones apart (two slopes), over all
completions and among those of a prompt. `explained` is the share of the score's variance.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from text2grad.feedback.rewards import scale_rows
from text2grad.types import Rollout

HERE = Path(__file__).parent


def fits(samples: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Of rows of rollouts.jsonl, held-out ones left out."""
    rows, groups = [], []
    for sample in samples:
        if not sample.get("held_out"):
            rollout = Rollout.from_json(sample)
            if rollout.critique is not None and rollout.alignment is not None:
                rows += scale_rows([(rollout.critique, rollout.alignment)])
                groups.append((sample["update"], rollout.group))
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
    explained = 1 - float(((score - x @ slopes) ** 2).sum() / (score**2).sum())
    return {"slopes": slopes.round(4).tolist(), "explained": round(explained, 3)}


def main(words: Sequence[str]) -> None:
    kept = HERE / "worth.json"
    found = json.loads(kept.read_text()) if kept.exists() else {}
    for word in words:
        name, _, file = word.partition("=")
        with Path(file).open(encoding="utf-8") as lines:
            found[name] = fits(map(json.loads, lines))
    kept.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

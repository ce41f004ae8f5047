"""Run folders of a comparison → the rows of a JSON file that a table is made from.

    python -m studies.summarization.collect closing.json runs/closing …      # folders of `text2grad compare`

Of each run: its last evaluation (and the one before the first update), and what the last five updates sampled.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from text2grad.runs import read_jsonl

HERE = Path(__file__).parent
HELD_OUT = ("rouge_l", "rouge_1", "rouge_2", "bleu", "score", "unsupported_share", "copied", "repetition", "length")
SAMPLED = {
    "score/mean": "score",
    "length/mean": "length",
    "kl/reference": "kl",
    "reward/residual_ratio": "residual_ratio",
    "update/learning_rate": "learning_rate",
}
LAST = 5


def rows_of(folder: Path) -> Iterator[dict[str, Any]]:
    """One row per arm, seed and evaluation that counts: the first and the last."""
    for file in sorted(folder.glob("*/seed-*/metrics.jsonl")):
        lines = list(read_jsonl(file))
        evaluated = [line for line in lines if "held_out/score" in line]
        updates = [line for line in lines if "score/mean" in line]
        for line in (evaluated[0], evaluated[-1]) if len(evaluated) > 1 else evaluated:
            row: dict[str, Any] = {"arm": file.parts[-3], "seed": int(file.parts[-2].removeprefix("seed-"))}
            row["update"] = line["update"]
            row["metrics"] = {key: round(line[f"held_out/{key}"], 4) for key in HELD_OUT}
            before = [each for each in updates if each["update"] <= line["update"]][-LAST:]
            row["sampled"] = {
                name: round(sum(each[key] for each in before) / len(before), 6)
                for key, name in SAMPLED.items()
                if before and all(key in each for each in before)
            }
            yield row


def main(words: Sequence[str]) -> None:
    if len(words) < 2:
        raise SystemExit("collect: wants FILE.json and folders of comparisons")
    path = HERE / words[0]
    found = json.loads(path.read_text()) if path.exists() else {}
    rows = [row for folder in words[1:] for row in rows_of(Path(folder))]
    if not rows:
        raise SystemExit(f"collect: no finished evaluations in {', '.join(words[1:])}")
    path.write_text(json.dumps(found | {"rows": rows}, indent=1, allow_nan=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])

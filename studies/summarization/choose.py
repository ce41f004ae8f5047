"""Which settings of each family a study takes, by a rule that is fixed before the runs:

    python -m studies.summarization.choose runs/choose          # prints the words to put behind the study's command

Enters: the folder of a comparison by `choose.yaml`, or by another file of the same kind (`--config`). Leaves: of
`scalar_*` and of `text2grad_*` the arm with the highest last ROUGE-L, mean over its seeds, among those whose length
stays within 20 % of the supervised start's and whose copying is at most 0.02 above it. Where no arm of a family stays
within both: the highest of all.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from text2grad import config

LENGTH, COPIED = 0.2, 0.02
FAMILIES = ("scalar", "text2grad")


def last_metrics(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, float]]]:
    """Arm → the last metrics of each of its seeds, from the rows of results.json."""
    last: dict[tuple[str, int], Mapping[str, Any]] = {}
    for row in rows:
        key = row["arm"], row["seed"]
        if key not in last or row["update"] >= last[key]["update"]:
            last[key] = row
    arms: dict[str, list[Mapping[str, float]]] = {}
    for (arm, _), row in last.items():
        arms.setdefault(arm, []).append(row["metrics"])
    return arms


def mean(metrics: Sequence[Mapping[str, float]], key: str) -> float:
    return sum(each[key] for each in metrics) / len(metrics)


def chosen(rows: Sequence[Mapping[str, Any]], start: str = "sft") -> dict[str, str]:
    """Family → the arm that it takes."""
    arms, picked = last_metrics(rows), {}
    before = arms[start]
    for family in FAMILIES:
        members = [name for name in arms if name.startswith(f"{family}_")]
        within = [
            name
            for name in members
            if abs(mean(arms[name], "length") / mean(before, "length") - 1) <= LENGTH
            and mean(arms[name], "copied") <= mean(before, "copied") + COPIED
        ]
        picked[family] = max(within or members, key=lambda name: mean(arms[name], "rouge_l"))
    return picked


def words(arms: Mapping[str, Mapping[str, Any]], picked: Mapping[str, str]) -> list[str]:
    """What makes an arm of the study like the one that was picked."""
    return [
        f"arms.{family}.{key}={config.inline(value)}"
        for family, name in picked.items()
        for key, value in config.flat(dict(arms[name])).items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the comparison")
    parser.add_argument("--config", type=Path, default=Path(__file__).with_name("choose.yaml"))
    args = parser.parse_args()
    rows = json.loads((args.folder / "results.json").read_bytes())
    print(" ".join(words(config.read(args.config)["arms"], chosen(rows))))


if __name__ == "__main__":
    main()

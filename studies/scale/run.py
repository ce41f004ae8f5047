"""Does the default KL coefficient let a real model learn? SmolLM2 on DeFacto, with and without dividing rewards by the
running spread of the score; everything else at its default.

    python -m studies.scale.run train --data TRAIN.jsonl --held-out VALIDATION.jsonl     writes results.json
    python -m studies.scale.run add --run RUN                                            adds the run after the mend
    python -m studies.scale.run table                                                    writes README.md's table
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
MARK = "<!-- below: written by run.py from results.json -->"
RUNS = [("divided", seed) for seed in (0, 1, 2)] + [("as they are", 0)]
AGAIN = "divided, after the mend"
"""Run later, on a CPU in bf16; README.md has the command."""
KEPT = ("held_out/score", "held_out/length", "held_out/copied", "held_out/truncated_frac", "score/mean", "kl/reference")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["train", "add", "table"])
    parser.add_argument("--run", type=Path, help="of `add`: the folder of the run after the mend")
    parser.add_argument("--data")
    parser.add_argument("--held-out")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--scratch", type=Path, default=HERE / "scratch")
    args = parser.parse_args()
    if args.what == "train":
        train(args)
    if args.what == "add":
        add(args.run)
    write_table()


def train(args: argparse.Namespace) -> None:
    """All runs side by side on one device; then their evaluations."""
    processes = []
    for rewards, seed in RUNS:
        words = ["task=defacto", f"data={args.data}", f"held_out={args.held_out}", f"model={args.model}"]
        words += ["updates=60", f"seed={seed}", f"device={args.device}", "evaluation.every=10"]
        words += ["evaluation.examples=128", f"scoring.normalize={str(rewards == 'divided').lower()}"]
        command = [sys.executable, "-m", "text2grad", "train", str(folder(args.scratch, rewards, seed)), *words]
        processes.append(subprocess.Popen(command))
    for process in processes:
        process.wait()
    rows = []
    for rewards, seed in RUNS:
        rows += rows_of(folder(args.scratch, rewards, seed), rewards, seed)
    (HERE / "results.json").write_text(json.dumps({"rows": rows}, indent=0) + "\n")


def rows_of(run: Path, rewards: str, seed: int) -> list[dict[str, Any]]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [row for line in lines for row in evaluations(rewards, seed, json.loads(line))]


def add(run: Path) -> None:
    """The rows of the run after the mend, in place of those that are there."""
    stored = json.loads((HERE / "results.json").read_text())["rows"]
    rows = [row for row in stored if row["arm"] != AGAIN] + rows_of(run, AGAIN, 0)
    (HERE / "results.json").write_text(json.dumps({"rows": rows}, indent=0) + "\n")


def folder(scratch: Path, rewards: str, seed: int) -> Path:
    return scratch / f"{rewards.replace(' ', '-')}-{seed}"


def evaluations(rewards: str, seed: int, row: dict[str, Any]) -> list[dict[str, Any]]:
    """The row of results.json that a row of metrics gives, if it holds an evaluation."""
    if "held_out/score" not in row:
        return []
    metrics = {key: round(row[key], 5) for key in KEPT if key in row}
    return [{"arm": rewards, "seed": seed, "update": row["update"], "metrics": metrics}]


def write_table() -> None:
    rows = json.loads((HERE / "results.json").read_text())["rows"]
    updates = sorted({row["update"] for row in rows})
    lines = [f"| rewards | seed | {' | '.join(f'update {update}' for update in updates)} |"]
    lines.append("|---|---|" + "---|" * len(updates))
    for arm, seed in dict.fromkeys((row["arm"], row["seed"]) for row in rows):
        by = {row["update"]: row["metrics"] for row in rows if (row["arm"], row["seed"]) == (arm, seed)}
        cells = [f"{by[update]['held_out/score']:.3f}" if update in by else "" for update in updates]
        lines.append(f"| {arm} | {seed} | {' | '.join(cells)} |")
    page = HERE / "README.md"
    page.write_text(page.read_text().split(MARK)[0] + MARK + "\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

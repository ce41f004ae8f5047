"""The study behind the demo: first settings for scalar PPO, then five seeds of both arms.

    python studies/demo/run.py tune  --workers 12      writes studies/demo/tuning.json
    python studies/demo/run.py study --workers 10      writes studies/demo/results.json
    python studies/demo/run.py table                   prints the tables of README.md from these files

λ and learning rate are chosen for scalar PPO alone, on seeds and held-out reports that the study never sees; Text2Grad
takes the learning rate that is best for its rival, and its own default λ. Every run is one process with one thread.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RATES, LAMS = (1e-4, 2e-4, 4e-4), (0.95, 1.0)
TUNE_SEEDS, STUDY_SEEDS = (20, 21), (0, 1, 2, 3, 4)
TUNE_REPORTS, STUDY_REPORTS = 7, 8
"""Seeds of the held-out reports."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["tune", "study", "table", "one"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--updates", type=int, default=48)
    parser.add_argument("--job", default="{}", help=argparse.SUPPRESS)
    parser.add_argument("--folder", default="", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=HERE)
    args = parser.parse_args()
    if args.what == "one":
        print(json.dumps(one(json.loads(args.job), Path(args.folder))))
    elif args.what == "table":
        print(tables(args.out))
    else:
        jobs = tuning_jobs(args.updates) if args.what == "tune" else study_jobs(args.updates, args.out)
        began = time.time()
        with tempfile.TemporaryDirectory() as scratch:
            runs = all_of(jobs, Path(scratch), args.workers)
        name = "tuning.json" if args.what == "tune" else "results.json"
        facts = {"updates": args.updates, "seconds": round(time.time() - began), "runs": runs}
        (args.out / name).write_text(json.dumps(facts, indent=1) + "\n")
        print(tables(args.out))


def tuning_jobs(updates: int) -> list[dict[str, Any]]:
    return [
        {"arm": "scalar", "seed": seed, "rate": rate, "lam": lam, "reports": TUNE_REPORTS, "updates": updates}
        for seed in TUNE_SEEDS
        for rate in RATES
        for lam in LAMS
    ]


def study_jobs(updates: int, out: Path) -> list[dict[str, Any]]:
    rate, lam = chosen(json.loads((out / "tuning.json").read_text())["runs"])
    return [
        {
            "arm": arm,
            "seed": seed,
            "rate": rate,
            "lam": lam if arm == "scalar" else 0.95,
            "reports": STUDY_REPORTS,
            "updates": updates,
        }
        for seed in STUDY_SEEDS
        for arm in ("text2grad", "scalar")
    ]


def chosen(runs: list[dict[str, Any]]) -> tuple[float, float]:
    """Learning rate and λ of the best mean final score of scalar PPO."""
    return max(((rate, lam) for rate in RATES for lam in LAMS), key=lambda pair: statistics.mean(_finals(runs, *pair)))


def _finals(runs: list[dict[str, Any]], rate: float, lam: float) -> list[float]:
    return [run["curve"][-1]["score"] for run in runs if (run["rate"], run["lam"]) == (rate, lam)]


def all_of(jobs: list[dict[str, Any]], scratch: Path, workers: int) -> list[dict[str, Any]]:
    """Each job in a process of its own; the supervised start of a seed is made once."""

    def go(job: dict[str, Any]) -> dict[str, Any]:
        words = [sys.executable, __file__, "one", "--job", json.dumps(job), "--folder", str(scratch)]
        done = subprocess.run(words, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        print({key: found[key] for key in job}, found["curve"][-1], flush=True)
        return found

    with ThreadPoolExecutor(workers) as pool:
        seeds = {job["seed"]: job for job in jobs}
        list(pool.map(go, [{**job, "arm": "start"} for job in seeds.values()]))
        return list(pool.map(go, jobs))


def one(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    import torch

    from text2grad.stages._demo import arm, curve, start
    from text2grad.stages.demo import DemoSettings

    torch.set_num_threads(1)
    options = DemoSettings(
        device="cpu",
        seed=job["seed"],
        updates=job["updates"],
        learning_rate=job["rate"],
        held_out_seed=job["reports"],
        held_out=256,
    )
    options = replace(options, **{"scalar_lam" if job["arm"] == "scalar" else "span_lam": job["lam"]})
    base = start(options, folder / f"start-{job['seed']}")
    if job["arm"] == "start":
        return {**job, "curve": [None]}
    name = f"{job['arm']}-{job['seed']}-{job['rate']}-{job['lam']}"
    arm(options, job["arm"], base, folder / name)
    return {**job, "curve": curve(folder / name)}


def tables(out: Path) -> str:
    lines: list[str] = []
    if (out / "tuning.json").exists():
        runs = json.loads((out / "tuning.json").read_text())["runs"]
        lines += ["| scalar PPO: learning rate | λ | final score, mean | each seed |", "|---|---|---|---|"]
        for rate in RATES:
            for lam in LAMS:
                each = _finals(runs, rate, lam)
                mark = " ←" if (rate, lam) == chosen(runs) else ""
                mean, seeds = statistics.mean(each), ", ".join(f"{value:.3f}" for value in each)
                lines.append(f"| {rate:g} | {lam:g} | {mean:.3f}{mark} | {seeds} |")
    if (out / "results.json").exists():
        lines += ["", *results(json.loads((out / "results.json").read_text())["runs"])]
    return "\n".join(lines)


def results(runs: list[dict[str, Any]]) -> list[str]:
    by = {(run["arm"], run["seed"]): run["curve"] for run in runs}
    seeds = sorted({seed for _, seed in by})
    lines = [
        "| seed | facts right before | scalar PPO | Text2Grad | scalar's final score | Text2Grad had it at update |",
        "|---|---|---|---|---|---|",
    ]
    reached = []
    for seed in seeds:
        span, scalar = by["text2grad", seed], by["scalar", seed]
        goal = scalar[-1]["score"]
        at = next((point["update"] for point in span if point["score"] >= goal), None)
        reached.append(at if at is not None else float("inf"))
        facts = [scalar[0]["facts_right"], scalar[-1]["facts_right"], span[-1]["facts_right"]]
        shares = " | ".join(f"{share:.1%}" for share in facts)
        lines.append(f"| {seed} | {shares} | {goal:.3f} | {'–' if at is None else at} |")
    updates = by["scalar", seeds[0]][-1]["update"]
    middle = statistics.median(reached)
    lines += [
        "",
        f"Median over {len(seeds)} seeds: update {middle:g} of {updates}, {middle / updates:.2f} of scalar PPO's.",
    ]
    return lines


if __name__ == "__main__":
    main()

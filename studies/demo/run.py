"""The study behind the demo: first settings for scalar PPO, then five seeds of both arms.

    python studies/demo/run.py tune       --workers 12      writes studies/demo/tuning.json
    python studies/demo/run.py tune-span  --workers 6       writes studies/demo/tuning-span.json
    python studies/demo/run.py study      --workers 10      writes studies/demo/results.json
    python studies/demo/run.py table                        writes the tables of README.md from these files

λ and learning rate are chosen for scalar PPO first, on seeds and held-out reports that the study never sees. Text2Grad
takes the learning rate that is best for its rival, and of λ the best for itself there. Every run is one process with
one thread.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from text2grad import __version__

HERE = Path(__file__).parent
RATES, LAMS, SPAN_LAMS = (5e-5, 1e-4, 2e-4, 4e-4), (0.95, 1.0), (0.5, 0.8, 0.95)
TUNE_SEEDS, STUDY_SEEDS = (20, 21), (0, 1, 2, 3, 4)
TUNE_REPORTS, STUDY_REPORTS = 7, 8
"""Seeds of the held-out reports."""
MARK = "<!-- below: written by run.py from the JSON files beside it -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["tune", "tune-span", "study", "table", "one"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--updates", type=int, default=48)
    parser.add_argument("--job", default="{}", help=argparse.SUPPRESS)
    parser.add_argument("--folder", default="", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=HERE)
    args = parser.parse_args()
    if args.what == "one":
        print(json.dumps(one(json.loads(args.job), Path(args.folder))))
    elif args.what == "table":
        write_readme(args.out)
    else:
        jobs = JOBS[args.what](args.updates, args.out)
        began = time.time()
        with tempfile.TemporaryDirectory() as scratch:
            runs = all_of(jobs, Path(scratch), args.workers)
        facts = {"updates": args.updates, "seconds": round(time.time() - began), "versions": versions(), "runs": runs}
        (args.out / FILES[args.what]).write_text(json.dumps(facts, indent=1) + "\n")
        write_readme(args.out)


def versions() -> dict[str, str]:
    """What the runs were made with; the commit where git knows it, marked where files were changed since."""
    found = {"python": platform.python_version(), "text2grad": __version__}
    found |= {name: version(name) for name in ("torch", "transformers")}
    if git := shutil.which("git"):
        words = [git, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        described = subprocess.run(words, cwd=HERE, capture_output=True, text=True)
        found |= {"commit": described.stdout.strip()} if described.returncode == 0 else {}
    return found


def write_readme(out: Path) -> None:
    """The page above its mark is written by hand, below it by this script."""
    print(found := tables(out))
    page = out / "README.md"
    if page.exists():
        page.write_text(page.read_text().split(MARK)[0] + MARK + "\n\n" + found + "\n")


def tuning_jobs(updates: int, _: Path) -> list[dict[str, Any]]:
    return [
        _job("scalar", seed, rate, lam, TUNE_REPORTS, updates) for seed in TUNE_SEEDS for rate in RATES for lam in LAMS
    ]


def span_jobs(updates: int, out: Path) -> list[dict[str, Any]]:
    rate, _ = chosen(_runs(out, "tune"), RATES, LAMS)
    return [_job("text2grad", seed, rate, lam, TUNE_REPORTS, updates) for seed in TUNE_SEEDS for lam in SPAN_LAMS]


def study_jobs(updates: int, out: Path) -> list[dict[str, Any]]:
    rate, lam = chosen(_runs(out, "tune"), RATES, LAMS)
    _, span_lam = chosen(_runs(out, "tune-span"), (rate,), SPAN_LAMS)
    lams = {"text2grad": span_lam, "scalar": lam}
    return [_job(arm, seed, rate, lams[arm], STUDY_REPORTS, updates) for seed in STUDY_SEEDS for arm in lams]


JOBS = {"tune": tuning_jobs, "tune-span": span_jobs, "study": study_jobs}
FILES = {"tune": "tuning.json", "tune-span": "tuning-span.json", "study": "results.json"}


def _job(arm: str, seed: int, rate: float, lam: float, reports: int, updates: int) -> dict[str, Any]:
    return {"arm": arm, "seed": seed, "rate": rate, "lam": lam, "reports": reports, "updates": updates}


def _runs(out: Path, what: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((out / FILES[what]).read_text())["runs"]
    return found


def chosen(runs: list[dict[str, Any]], rates: tuple[float, ...], lams: tuple[float, ...]) -> tuple[float, float]:
    """Learning rate and λ of the best mean final score."""
    pairs = [(rate, lam) for rate in rates for lam in lams]
    return max(pairs, key=lambda pair: statistics.mean(_finals(runs, *pair)))


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

    from text2grad.training.demo import arm, curve, start
    from text2grad.training.demo_settings import DemoSettings

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
    for what, name in (("tune", "scalar PPO"), ("tune-span", "Text2Grad")):
        if not (out / FILES[what]).exists():
            continue
        runs = _runs(out, what)
        pairs = sorted({(run["rate"], run["lam"]) for run in runs})
        best = max(pairs, key=lambda pair: statistics.mean(_finals(runs, *pair)))
        lines += [f"| {name}: learning rate | λ | final score, mean | each seed |", "|---|---|---|---|"]
        for rate, lam in pairs:
            each = _finals(runs, rate, lam)
            mean, seeds = statistics.mean(each), ", ".join(f"{value:.3f}" for value in each)
            lines.append(f"| {rate:g} | {lam:g} | {mean:.3f}{' ←' if (rate, lam) == best else ''} | {seeds} |")
        lines.append("")
    if (out / FILES["study"]).exists():
        lines += results(_runs(out, "study"))
    return "\n".join(lines)


def results(runs: list[dict[str, Any]]) -> list[str]:
    by = {(run["arm"], run["seed"]): run["curve"] for run in runs}
    seeds = sorted({seed for _, seed in by})
    lines = [
        "| seed | facts right before | scalar PPO | Text2Grad | scalar's final score | Text2Grad had it at update "
        "| scalar PPO first had it at |",
        "|---|---|---|---|---|---|---|",
    ]
    reached: list[float] = []
    ratios: list[float] = []
    for seed in seeds:
        span, scalar = by["text2grad", seed], by["scalar", seed]
        goal = scalar[-1]["score"]
        at = next((point["update"] for point in span if point["score"] >= goal), None)
        own = next(point["update"] for point in scalar if point["score"] >= goal)
        reached.append(at if at is not None else float("inf"))
        facts = [scalar[0]["facts_right"], scalar[-1]["facts_right"], span[-1]["facts_right"]]
        shares = " | ".join(f"{share:.1%}" for share in facts)
        lines.append(f"| {seed} | {shares} | {goal:.3f} | {'–' if at is None else at} | {own} |")
        ratios.append(reached[-1] / max(own, 1))
    updates = by["scalar", seeds[0]][-1]["update"]
    middle = statistics.median(reached)
    lines += [
        "",
        f"Median over {len(seeds)} seeds: update {middle:g} of {updates}, {middle / updates:.2f} of scalar PPO's.",
        f"Against the update at which scalar PPO itself first had it: {statistics.median(ratios):.2f} in the median.",
    ]
    return lines


if __name__ == "__main__":
    main()

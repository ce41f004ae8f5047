"""Do the words teach? Scalar rivals, words, and words damaged on purpose, on the demo's task.

    python -m studies.words.run tune   --workers 16    writes studies/words/tuning.json
    python -m studies.words.run study  --workers 16    writes studies/words/results.json
    python -m studies.words.run again                  writes studies/words/again.json: the two main arms anew,
                                                       and words with two slopes
    python -m studies.words.run corrected              writes studies/words/corrected.json: the two main arms with
                                                       `anchored` as it is since then
    python -m studies.words.run table                  writes README.md's tables and curves.svg from these files

Settings are chosen on seeds and held-out reports that the study never sees. Every run is one process with one thread;
all commands resume, run by run, after a kill.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TUNE_SEEDS, STUDY_SEEDS = (20, 21, 22), tuple(range(10))
TUNE_REPORTS, STUDY_REPORTS = 7, 8
"""Seeds of the held-out reports."""
UPDATES, EVERY = 48, 6
Settings = dict[str, Any]


def scalar(estimator: str, rate: float, **more: Any) -> Settings:
    options = {"reward": "scalar", "advantage.estimator": estimator, "advantage.lam": 1.0, **more}
    return {"critic": "words", "update.learning_rate": rate, **options}


def words(rate: float, estimator: str = "anchored", anchor: float = 0.5, lam: float = 0.8, **more: Any) -> Settings:
    options = {"advantage.estimator": estimator, "advantage.anchor": anchor, "advantage.lam": lam, **more}
    return {"critic": "words", "update.learning_rate": rate, **options}


def tuning() -> dict[str, Settings]:
    """Every setting that is tried, by its name."""
    tried = {}
    for rate in (1e-4, 2e-4, 4e-4):
        tried[f"scalar gae, rate {rate:g}"] = scalar("gae", rate)
        for anchor in (0.0, 0.25, 0.5, 0.75):
            tried[f"words gae, ρ {anchor:g}, λ 0.8, rate {rate:g}"] = words(rate, "gae", anchor)
        tried[f"words span_rloo, ρ 0.5, rate {rate:g}"] = words(rate, "span_rloo", lam=1.0)
    for rate in (1e-4, 2e-4, 4e-4, 8e-4):
        tried[f"scalar rloo, rate {rate:g}"] = scalar("rloo", rate)
        tried[f"scalar grpo, rate {rate:g}"] = scalar("grpo", rate)
    for lam in (0.5, 0.95):
        tried[f"words gae, ρ 0.5, λ {lam:g}, rate 0.0002"] = words(2e-4, "gae", lam=lam)
    for rate in (2e-4, 4e-4):
        for lam in (0.0, 0.8):
            tried[f"words anchored, ρ 0.5, λ {lam:g}, rate {rate:g}"] = words(rate, lam=lam)
    for anchor in (0.25, 0.75):
        tried[f"words anchored, ρ {anchor:g}, λ 0.8, rate 0.0002"] = words(2e-4, anchor=anchor)
    value_gradient: Settings = {"policy.value_gradient": True}
    tried["words gae with value gradient, ρ 0.5, λ 0.8, rate 0.0002"] = words(2e-4, "gae") | value_gradient
    tried["scalar gae with value gradient, rate 0.0001"] = scalar("gae", 1e-4) | value_gradient
    eight: Settings = {"prompts": 8, "completions": 8}
    tried["words gae, ρ 0.5, λ 0.8, rate 0.0002, 8 × 8"] = words(2e-4, "gae") | eight
    tried["scalar rloo, rate 0.0002, 8 × 8"] = scalar("rloo", 2e-4) | eight
    return tried


def jobs_of(what: str) -> list[dict[str, Any]]:
    chosen, seeds, reports = tuning(), list(TUNE_SEEDS), TUNE_REPORTS
    every = UPDATES // 2
    if what != "tune":
        from studies.words.arms import ARMS

        chosen, seeds, reports, every = ARMS, list(STUDY_SEEDS), STUDY_REPORTS, EVERY
    if what in ("again", "corrected"):
        chosen = {arm: chosen[arm] for arm in ("words", "scalar rloo")}
    if what == "again":
        chosen["words, two slopes"] = chosen["words"] | {"scoring.slopes": "two"}
    return [
        {"arm": arm, "seed": seed, "reports": reports, "every": every, "settings": settings}
        for seed in seeds
        for arm, settings in chosen.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["tune", "study", "again", "corrected", "table", "one"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--scratch", type=Path, default=HERE / "scratch", help="folder of the runs")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds after which no further run begins")
    parser.add_argument("--job", default="{}", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.what == "one":
        print(json.dumps(one(json.loads(args.job), args.scratch)))
    elif args.what == "table":
        from studies.words.tables import write

        write(HERE)
    else:
        name = {"tune": "tuning", "study": "results"}.get(args.what, args.what)
        run_all(jobs_of(args.what), args.out / f"{name}.json", args.scratch, args.workers, args.limit)


def run_all(jobs: list[dict[str, Any]], path: Path, scratch: Path, workers: int, limit: float) -> None:
    """Each job in a process of its own. What is in the file is not run again; it is written after every run."""
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"] if path.exists() else []
    done, began = {(row["arm"], row["seed"]) for row in rows}, time.time()
    todo = [job for job in jobs if (job["arm"], job["seed"]) not in done]
    seeds = {job["seed"]: job for job in todo}

    def go(job: dict[str, Any]) -> None:
        if time.time() - began > limit:
            return
        command = [
            sys.executable,
            "-m",
            "studies.words.run",
            "one",
            "--job",
            json.dumps(job),
            "--scratch",
            str(scratch),
        ]
        ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        if ended.returncode:
            print(job["arm"], job["seed"], ended.stderr[-2000:], flush=True)
            return
        found = json.loads(ended.stdout.splitlines()[-1])
        rows.extend(found)
        if found:
            print(f"{time.time() - began:.0f} s", job["seed"], job["arm"], found[-1]["metrics"], flush=True)
            facts = {"updates": UPDATES, "versions": versions(), "rows": rows}
            path.with_suffix(".part").write_text(json.dumps(facts, indent=0, ensure_ascii=False) + "\n")
            path.with_suffix(".part").replace(path)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(go, [{**job, "arm": "start"} for job in seeds.values()]))
        list(pool.map(go, todo))


def versions() -> dict[str, str]:
    return {"python": platform.python_version()} | {name: version(name) for name in ("torch", "transformers")}


def one(job: dict[str, Any], scratch: Path) -> list[dict[str, Any]]:
    """One run: a row for each evaluation."""
    from studies.words.critics import CRITICS

    base = started(job, scratch)
    if job["arm"] == "start":
        return []
    settings = dict(job["settings"])
    return trained(job, base, scratch, CRITICS[settings.pop("critic")], settings)


def demo_options(job: dict[str, Any]) -> Any:
    from text2grad.training.settings import DemoSettings

    return DemoSettings(
        device="cpu",
        seed=job["seed"],
        updates=job.get("updates", UPDATES),
        prompts=16,
        completions=4,
        held_out_seed=job["reports"],
        held_out=256,
        evaluate_every=job["every"],
    )


def started(job: dict[str, Any], scratch: Path) -> Path:
    """The supervised start of a seed; made where it is not there yet."""
    import torch

    from text2grad.training.demo import start

    torch.set_num_threads(1)
    return start(demo_options(job), scratch / f"start-{job['seed']}")


def trained(
    job: dict[str, Any], base: Path, scratch: Path, critic: Any, settings: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """RL from a start by a critic, with the demo's settings and these changes: a row for each evaluation."""
    from text2grad import config
    from text2grad.models.load import load_model
    from text2grad.runs import read_jsonl
    from text2grad.tasks.bulletin import bulletins
    from text2grad.tasks.bulletin_critic import FACTS_RIGHT, TRAINING_SEEDS, bulletin
    from text2grad.training.demo import EXAMPLES, train_settings
    from text2grad.training.rl import Trainer
    from text2grad.training.settings import TrainSettings

    options, seed = demo_options(job), job["seed"]
    tree = config.plain(train_settings(options, "text2grad"))
    for key, value in settings.items():
        *parents, last = key.split(".")
        branch = tree
        for parent in parents:
            branch = branch[parent]
        branch[last] = value
    model, tokenizer = load_model(str(base))
    folder = scratch / "".join(letter if letter.isalnum() else "-" for letter in f"{job['arm']}-{seed}")
    outcome = Trainer(
        config.build(TrainSettings, tree, "the study"),
        folder,
        model=model,
        tokenizer=tokenizer,
        examples=bulletins(TRAINING_SEEDS + seed, EXAMPLES),
        held_out=bulletins(job["reports"], options.held_out, "held_out"),
        critic=critic,
        # The true score of every arm, whatever its own critic says.
        metrics=[FACTS_RIGHT, true_score(bulletin)],
    ).train()
    if outcome.interrupted:
        raise KeyboardInterrupt
    kept = ("held_out/true_score", "held_out/facts_right", "held_out/length")
    more = (
        "reward/scale",
        "reward/scale_poor",
        "reward/residual_ratio",
        "reward/hindsight",
        "locality/poor",
        "locality/good",
    )
    return [
        {
            "arm": job["arm"],
            "seed": seed,
            "update": row["update"],
            "metrics": {key: round(row[key], 5) for key in (*kept, *more, *job.get("kept", ())) if key in row},
        }
        for row in read_jsonl(folder / "metrics.jsonl")
        if "held_out/true_score" in row
    ]


def true_score(critic: Any) -> Any:
    """The mean score by the demo's own critic."""
    from text2grad.tasks.task import Metric, mean_of

    def score(example: Any, text: str) -> float:
        (critique,) = critic([example.prompt], [text], facts=[example.columns["facts"]])
        return float(critique.score)

    return Metric("true_score", "True score", "Mean score by the demo's critic.", "higher", mean_of(score))


if __name__ == "__main__":
    main()

"""What a reward model saves: RL gain against the critiques that it learned from, beside RL with the true critic.

    python -m studies.economy.run study --device cuda --workers 11 --models 5     writes results.json
    python -m studies.economy.run tune  …     the same on a tuning seed and other held-out reports: tuning.json
    python -m studies.economy.run table       writes README.md's tables and economy.svg from results.json

For each seed: a supervised start, critiques of what it writes, reward models from the first N of them, RL with each.
Every step is a process of its own and begins as soon as what it needs is there. What is in SCRATCH or in the file is
not done again, so the command goes on after a kill.
"""

import argparse
import json
import math
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from studies.words.arms import CHOSEN, GOES_ON, RATE
from studies.words.run import EVERY, STUDY_REPORTS, TUNE_REPORTS, UPDATES, scalar, started, trained, versions

HERE = Path(__file__).parent
STUDY_SEEDS, TUNE_SEEDS = (0, 1, 2), (20,)
SIZES = (1000, 4000, 16000, 64000)
"""Critiques that a reward model has seen: the first N of one list, so each size holds the smaller ones."""
PER_UPDATE = 64
"""Completions of an update of RL, each criticised once."""
PENALTY = 0.05
"""KL coefficient of the arms with a penalty; the demo's own is 0."""
REPORTS = 10_000
"""Seeds of the reports that are criticised for reward models begin here. RL trains on those of 100 + seed."""
TEMPERATURES = (1.0, 0.7, 1.4)
"""Of the bulletins that are criticised, in turn: what the policy writes, and what it might write later on, when it is
surer of itself or has left where it began."""
CHUNK = 16_000
"""Bulletins that one process writes, and has criticised and aligned."""
EPOCHS = {1000: 10, 4000: 4, 16000: 2, 64000: 1}
"""Of a reward model, by the critiques that it sees. More were not tried: there were minutes of two CPU cores."""
REWARD_MODEL = (
    *("policy.lora.rank=0", "update.learning_rate=2e-3", "update.schedule=cosine", "update.warmup=30"),
    *("update.beta2=0.99", "loss.language=0", "template.max_tokens=512", "template.critique_tokens=160"),
    "checkpoint_every=200",
)
"""The span head alone, which is what RL asks: learning to write critiques as well takes three times as long."""
BATCH = 32


def updates_for(size: int, batch: int = BATCH) -> int:
    """Updates of a reward model. The best weights are kept."""
    return math.ceil(EPOCHS.get(size, 4) * (size - kept_apart(size)) / batch)


def kept_apart(size: int) -> int:
    """Critiques of `size` that are not learned from, to choose the weights by."""
    return min(size // 2, max(64, size // 20), 800)


@dataclass(frozen=True)
class Job:
    """One process."""

    name: str
    what: dict[str, Any]
    makes: Path | None = None
    """The file or folder that others need."""
    needs: Sequence[Path] = ()
    arm: str = ""
    """Of the rows that it gives, if it does."""


def learned(size: int, penalty: float = 0.0) -> str:
    return f"{size:,} critiques{f', KL {penalty:g}' if penalty else ''}"


def arms_of(sizes: Iterable[int]) -> dict[str, tuple[int, dict[str, Any]]]:
    """Arm → (critiques that its reward model has seen, 0: the true critic; settings), most wanted first."""
    words = {key: value for key, value in CHOSEN.items() if key != "critic"}
    rloo = {key: value for key, value in scalar("rloo", RATE).items() if key != "critic"}
    steady: dict[str, Any] = {"kl.coefficient": PENALTY}
    arms: dict[str, tuple[int, dict[str, Any]]] = {"true critic": (0, words), "true critic, scalar rloo": (0, rloo)}
    arms |= {learned(size): (size, words | GOES_ON) for size in sizes}
    arms |= {learned(size, PENALTY): (size, words | GOES_ON | steady) for size in sizes}
    return arms | {f"true critic, KL {PENALTY:g}": (0, words | steady)}


def jobs_of(args: argparse.Namespace) -> list[Job]:
    """All steps: starts, critiques, reward models (the longest first), RL (the most wanted first)."""
    seeds, reports = (STUDY_SEEDS, STUDY_REPORTS) if args.what == "study" else (TUNE_SEEDS, TUNE_REPORTS)
    shared = {"reports": reports, "every": EVERY, "updates": args.updates, "device": args.device}
    begun = {seed: args.scratch / f"start-{seed}" / "model" for seed in args.seeds or seeds}
    starts = [Job(f"start {seed}", {"do": "start", "seed": seed} | shared, begun[seed]) for seed in begun]
    critiques, models = _critiques(args, begun, shared), {}
    longest = max(args.sizes)
    for size in (longest, *sorted(set(args.sizes) - {longest})):
        for seed, start in begun.items():
            files = [job.makes for (of, begin), job in critiques.items() if of == seed and begin < size and job.makes]
            folder = args.scratch / f"reward-{seed}-{size}"
            what = {"do": "reward", "seed": seed, "size": size, "files": list(map(str, files)), "batch": args.batch}
            what |= {"start": str(start), "folder": str(folder)} | shared
            models[seed, size] = Job(f"reward {seed}, {size}", what, folder / "model", files, f"reward model, {size:,}")
    runs = []
    for arm, (size, settings) in arms_of(args.sizes).items():
        for seed, start in begun.items():
            critic = [folder] if size and (folder := models[seed, size].makes) else []
            what = {"do": "rl", "arm": arm, "seed": seed, "settings": settings, "size": size, "kept": KEPT} | shared
            what["critic"] = str(critic[0]) if critic else ""
            runs.append(Job(f"{arm}, seed {seed}", what, None, [start, *critic], arm))
    return [*starts, *critiques.values(), *models.values(), *runs]


KEPT = ["held_out/score", "kl/reference"]
"""The learned critic's own opinion of held-out bulletins, and how far the policy has gone."""


def _critiques(args: argparse.Namespace, begun: dict[int, Path], shared: dict[str, Any]) -> dict[tuple[int, int], Job]:
    """(seed, first index) → the job that makes so many of the seed's critiques."""
    longest = max(args.sizes)
    return {
        (seed, begin): Job(
            f"critiques {seed}, from {begin}",
            {"do": "critiques", "seed": seed, "begin": begin, "chunk": begin // args.chunk, "start": str(start)}
            | {"end": min(begin + args.chunk, longest)}
            | shared,
            args.scratch / f"critiques-{seed}" / f"{begin}-{min(begin + args.chunk, longest)}.pickle",
            [start],
        )
        for begin in range(0, longest, args.chunk)
        for seed, start in begun.items()
    }


def wanted(jobs: Sequence[Job], done: set[tuple[str, int]]) -> list[Job]:
    """Those whose rows are not there yet, and what these need and is not there."""
    chosen: list[Job] = []
    missing: set[Path] = set()
    for job in reversed(jobs):
        rows_missing = bool(job.arm) and (job.arm, job.what["seed"]) not in done
        if rows_missing or (job.makes in missing and job.makes and not job.makes.exists()):
            chosen.append(job)
            missing.update(job.needs)
    return chosen[::-1]


# ------------------------------------------------------------------------------------------------------ the processes


@dataclass
class Board:
    """The rows, in memory and in their file."""

    path: Path
    updates: int

    def __post_init__(self) -> None:
        self.rows: list[dict[str, Any]] = json.loads(self.path.read_text())["rows"] if self.path.exists() else []

    @property
    def done(self) -> set[tuple[str, int]]:
        return {(row["arm"], row["seed"]) for row in self.rows}

    def add(self, rows: list[dict[str, Any]]) -> None:
        if not rows:
            return
        new = {(row["arm"], row["seed"]) for row in rows}
        self.rows = [row for row in self.rows if (row["arm"], row["seed"]) not in new] + rows
        facts = {"updates": self.updates, "versions": versions(), "rows": self.rows}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.with_suffix(".part").write_text(json.dumps(facts, indent=0, ensure_ascii=False) + "\n")
        self.path.with_suffix(".part").replace(self.path)


def run_all(jobs: Sequence[Job], board: Board, args: argparse.Namespace) -> None:
    """Each job as soon as what it needs is there and a place is free. At the limit the running ones are asked to stop;
    training keeps what it has."""
    began, todo = time.time(), wanted(jobs, board.done)
    running: dict[str, tuple[Job, subprocess.Popen[str], float]] = {}
    logs = args.scratch / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    print(f"{len(todo)} of {len(jobs)} steps are to be done", flush=True)
    while time.time() - began < args.limit:
        for name, (_, process, at) in list(running.items()):
            if process.poll() is not None:
                del running[name]
                took = f"{time.time() - began:.0f} s: {name} took {time.time() - at:.0f} s"
                print(took, ended(name, process.returncode, logs, board), flush=True)
        for job in list(todo):
            if all(path.exists() for path in job.needs) and has_room(
                job, [one for one, _, _ in running.values()], todo, args
            ):
                todo.remove(job)
                running[job.name] = job, begin(job, args.scratch, logs), time.time()
        if not running:
            break
        time.sleep(0.1)
    for _, process, _ in running.values():
        process.send_signal(signal.SIGINT)
    for _, process, _ in running.values():
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
    left = [job.name for job in wanted(jobs, board.done)]
    print(f"{time.time() - began:.0f} s; left to do: {len(left)} {left[:8]}", flush=True)


def has_room(job: Job, running: Sequence[Job], todo: Sequence[Job], args: argparse.Namespace) -> bool:
    """Reward models have places of their own. Others may take them before the first is ready and after the last."""
    models = sum(one.what["do"] == "reward" for one in running)
    if job.what["do"] == "reward":
        return bool(models < args.models)
    early = job.what["do"] in ("start", "critiques")
    late = not models and not any(one.what["do"] == "reward" for one in todo)
    return bool(len(running) - models < args.workers + (args.models - models if early or late else 0))


def ended(name: str, status: int, logs: Path, board: Board) -> str:
    """Take the rows of a process that has ended; what to say of it."""
    said = (logs / f"{_plain(name)}.txt").read_text()
    if status:
        return f"and failed ({status})\n{said[-2000:]}"
    found = json.loads(said.splitlines()[-1])
    board.add(found)
    return str(found[-1]["metrics"]) if found else ""


def begin(job: Job, scratch: Path, logs: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "studies.economy.run", "one", "--job", json.dumps(job.what)]
    with (logs / f"{_plain(job.name)}.txt").open("w") as log:
        return subprocess.Popen(
            [*command, "--scratch", str(scratch)],
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )


def _plain(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name)


# -------------------------------------------------------------------------------------------------------- what they do


def one(what: dict[str, Any], scratch: Path) -> list[dict[str, Any]]:
    """One step; the rows of an RL run or of a reward model."""
    if what["do"] == "start":
        started(what, scratch)
        return []
    if what["do"] == "critiques":
        criticise(what, scratch)
        return []
    return reward_model(what) if what["do"] == "reward" else rl(what, scratch)


def criticise(what: dict[str, Any], scratch: Path) -> None:
    """What the started policy writes about training reports, what the true critic says of it in words, and the spans
    that the aligner finds, as in training."""
    import torch

    from text2grad.feedback.align.ladder import Pair, align_many
    from text2grad.models.chat import end_ids, prompt_ids
    from text2grad.models.load import load_model
    from text2grad.models.offsets import completion_of
    from text2grad.models.sampling import ModelSampler, SamplingSettings, uniforms
    from text2grad.tasks.annotated import Annotated
    from text2grad.tasks.bulletin import bulletins
    from text2grad.tasks.bulletin_critic import bulletin

    torch.set_num_threads(1)
    seed = REPORTS + 1000 * what["seed"] + what["chunk"]
    examples = bulletins(seed, what["end"] - what["begin"])
    model, tokenizer = load_model(what["start"], device=what["device"])
    rows: dict[int, Annotated] = {}
    for turn, temperature in enumerate(TEMPERATURES):
        mine = range(turn, len(examples), len(TEMPERATURES))
        settings = SamplingSettings(max_new_tokens=40, temperature=temperature, batch=1024)
        sampler = ModelSampler(model, settings, end_ids=end_ids(tokenizer, model), pad_id=tokenizer.pad_token_id)
        prompts = [prompt_ids(tokenizer, examples[index].prompt, "plain") for index in mine]
        drawn = sampler(prompts, uniforms(seed, turn, mine, 40)) if mine else []
        texts = [completion_of(tokenizer, sampled.token_ids).text for sampled in drawn]
        told = [examples[index] for index in mine]
        said = bulletin([one.prompt for one in told], texts, facts=[one.columns["facts"] for one in told])
        asked = {at: critique for at, critique in enumerate(said) if critique is not None and texts[at].strip()}
        found = align_many(Pair(texts[at], critique, source=str(told[at].prompt)) for at, critique in asked.items())
        for (at, critique), alignment in zip(asked.items(), found, strict=True):
            rows[what["begin"] + mine[at]] = Annotated(told[at].id, told[at].prompt, texts[at], critique, alignment)
    path = scratch / f"critiques-{what['seed']}" / f"{what['begin']}-{what['end']}.pickle"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(f".{os.getpid()}").write_bytes(pickle.dumps(dict(sorted(rows.items()))))
    path.with_suffix(f".{os.getpid()}").replace(path)


def reward_model(what: dict[str, Any]) -> list[dict[str, Any]]:
    """A reward model from the first critiques. One row: how well it labels those that were kept apart."""
    import torch

    from text2grad import config
    from text2grad.models.load import load_model
    from text2grad.runs import read_jsonl
    from text2grad.training.reward_model import RewardModelTrainer
    from text2grad.training.settings import RewardModelSettings

    torch.set_num_threads(1)
    if what["device"] != "cpu":
        torch.set_float32_matmul_precision("high")
    began, size = time.time(), what["size"]
    known = {index: row for file in what["files"] for index, row in pickle.loads(Path(file).read_bytes()).items()}
    rows = [known[index] for index in range(size) if index in known]
    apart = kept_apart(size)
    model, tokenizer = load_model(what["start"])
    # Rotary positions go on; the second reading and the critique want more of them than bulletins do.
    model.config.max_position_embeddings = 512
    updates = updates_for(size, what["batch"])
    chosen = [f"seed={what['seed']}", f"device={what['device']}", f"updates={updates}", f"update.batch={what['batch']}"]
    chosen += [f"update.micro_batch={what['batch']}", f"evaluate_every={max(1, updates // 10)}"]
    settings = config.load(RewardModelSettings, None, [*REWARD_MODEL, *chosen])
    given: dict[str, Any] = {"model": model, "tokenizer": tokenizer, "rows": rows[apart:], "held_out": rows[:apart]}
    outcome = RewardModelTrainer(settings, what["folder"], **given).train()
    if outcome.interrupted:
        raise KeyboardInterrupt
    looks = [row for row in read_jsonl(Path(what["folder"]) / "metrics.jsonl") if "held_out/watched" in row]
    best = min(looks, key=lambda row: row["held_out/watched"])
    metrics = {key: round(value, 5) for key, value in best.items() if key.startswith("held_out/")}
    cost = {"true_critiques": size, "seconds": round(time.time() - began, 1)}
    return [
        {
            "arm": f"reward model, {size:,}",
            "seed": what["seed"],
            "update": best["update"],
            "metrics": metrics,
            "cost": cost,
        }
    ]


def rl(what: dict[str, Any], scratch: Path) -> list[dict[str, Any]]:
    """RL by the true critic or by a reward model; what it cost up to each evaluation."""
    import torch

    from text2grad.tasks.bulletin_critic import bulletin

    torch.set_num_threads(1)
    critic: Any = by_model(what["critic"], what["device"]) if what["critic"] else bulletin
    rows = trained(what, started(what, scratch), scratch, critic, what["settings"])
    for row in rows:
        asked = PER_UPDATE * row["update"]
        size = what["size"]
        row["cost"] = {"true_critiques": size or asked, "learned_critiques": asked if size else 0}
    return rows


def by_model(path: str, device: str) -> Any:
    """The reward model as a critic by its span head. Every completion is scored, and nothing is written: no reward
    depends on what it would write."""
    from text2grad.feedback.settings import LearnedSettings
    from text2grad.models.reward.critic import RewardCritic

    model = RewardCritic(path, LearnedSettings(device=device, confidence=0.0))

    def critic(prompts: Sequence[Any], completions: Sequence[str], **_: Any) -> Any:
        return model(prompts, completions)

    return critic


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["tune", "study", "table", "one"])
    parser.add_argument(
        "--device", default="cpu", help="of reward models, and of the start when it writes for them; RL is on the CPU"
    )
    parser.add_argument("--workers", type=int, default=2, help="processes on the CPU side by side")
    parser.add_argument("--models", type=int, default=4, help="reward models that are trained side by side")
    parser.add_argument("--scratch", type=Path, default=HERE / "scratch", help="folder of the runs")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds after which it stops")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="critiques of the reward models")
    parser.add_argument("--seeds", type=int, nargs="+", default=None)
    parser.add_argument("--updates", type=int, default=UPDATES, help="of RL")
    parser.add_argument("--batch", type=int, default=BATCH, help="of reward models")
    parser.add_argument("--chunk", type=int, default=CHUNK, help="bulletins that one process has criticised")
    parser.add_argument("--job", default="{}", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.what == "one":
        print(json.dumps(one(json.loads(args.job), args.scratch)))
    elif args.what == "table":
        from studies.economy.tables import write

        write(args.out)
    else:
        name = {"tune": "tuning.json", "study": "results.json"}[args.what]
        run_all(jobs_of(args), Board(args.out / name, args.updates), args)


if __name__ == "__main__":
    main()

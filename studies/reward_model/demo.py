"""RL with a learned critic on the demo's task: how much of the true critic's improvement it gives, and what becomes of
true quality as optimisation goes on.

    python -m studies.reward_model.demo …
        prepare --seed N --work DIR [--device cuda]     the supervised start, critiques of it, a reward model
        arm --which true|learned --seed N --work DIR    RL from that start; the true critic examines both
        collect --work DIR                              writes demo.json here

Made for the demo of 0.1.0, whose critic gave places and prefix quality (here `bulletin_quality`), and whose credit was
GAE. `studies/economy` asks the same of the present demo, whose critic gives words.

The reward model sees critiques of what the started policy writes about training reports, other ones than RL trains on,
and never a report of the held-out split. `learned` goes on for longer, to see what over-optimisation does.
"""

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from text2grad import config
from text2grad.models.chat import end_ids, prompt_ids
from text2grad.models.load import load_model
from text2grad.models.offsets import completion_of
from text2grad.models.sampling import ModelSampler, SamplingSettings, uniforms
from text2grad.runs import read_jsonl
from text2grad.tasks.annotated import Annotated
from text2grad.tasks.bulletin import bulletins
from text2grad.tasks.bulletin_critic import FACTS_RIGHT, bulletin_quality
from text2grad.training import demo as _demo
from text2grad.training.reward_model import RewardModelTrainer
from text2grad.training.rl import Trainer
from text2grad.training.settings import DemoSettings, RewardModelSettings
from text2grad.types import Alignment, Span

HERE = Path(__file__).parent
TRUE = "text2grad.tasks.bulletin_critic:bulletin_quality"
UPDATES = {"true": 192, "learned": 192}
KL = 0.02
REWARD_MODEL = [
    "policy.lora.rank=0",
    "update.batch=256",
    "update.micro_batch=256",
    "update.learning_rate=2e-3",
    "update.schedule=cosine",
    "update.warmup=50",
    "update.beta2=0.99",
    "loss.language=0.1",
    "template.max_tokens=512",
    "template.critique_tokens=160",
    "evaluate_every=250",
    "validation=0.02",
    "checkpoint_every=1000",
]


TEMPERATURES = (1.0, 0.7, 1.4)
"""Of the bulletins that are criticised, a third each: what the policy writes, and what it might write later on, when it
is surer of itself or has left where it began."""
HELD_OUT, EVERY = 384, 8
"""Reports that are measured on, and updates between two looks: three times as many as the demo has, for less noise."""


def options(args: argparse.Namespace, updates: int = 48) -> DemoSettings:
    seed = args.held_out_seed
    return DemoSettings(
        seed=args.seed, device=args.device, updates=updates, held_out=HELD_OUT, held_out_seed=seed, evaluate_every=EVERY
    )


def critiques(start: Path, seed: int, count: int, device: str, workers: int) -> list[Annotated]:
    """What the started policy writes about training reports, and what the true critic says of it."""
    model, tokenizer = load_model(str(start), device=device)
    examples = bulletins(seed, count)
    drawn: list[Any] = []
    for turn, temperature in enumerate(TEMPERATURES):
        part = examples[turn :: len(TEMPERATURES)]
        sampler = ModelSampler(
            model,
            SamplingSettings(max_new_tokens=40, batch=256, temperature=temperature),
            end_ids=end_ids(tokenizer, model),
            pad_id=tokenizer.pad_token_id,
        )
        prompts = [prompt_ids(tokenizer, example.prompt, "plain") for example in part]
        drawn += zip(part, sampler(prompts, uniforms(seed, turn, range(len(part)), 40)), strict=True)
    asked = [
        (example.id, example.prompt, completion_of(tokenizer, sampled.token_ids).text, example.columns["facts"])
        for example, sampled in drawn
    ]
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        return [row for row in pool.map(criticised, asked, chunksize=500) if row is not None]


def criticised(asked: tuple[str, Any, str, Any]) -> Annotated | None:
    """One bulletin, with what the true critic says of it."""
    identity, prompt, text, facts = asked
    (said,) = bulletin_quality([prompt], [text], facts=[facts])
    if said is None or not text.strip():
        return None
    spans = tuple(
        Span(quote.start or 0, (quote.start or 0) + len(quote.text), quote.verdict, comment=quote.comment)
        for quote in said.quotes
    )
    return Annotated(identity, prompt, text, said, Alignment(spans, (), said.omissions))


def prepare(args: argparse.Namespace) -> None:
    folder = args.work / f"seed-{args.seed}"
    start = folder / "start" / "model"
    if not start.is_dir():
        start = _demo.start(options(args), folder / "start")
    began = time.perf_counter()
    rows = critiques(start, 300 + args.seed, args.rows, args.device, args.workers)
    print(f"{len(rows)} critiques: {time.perf_counter() - began:.0f} s", flush=True)
    model, tokenizer = load_model(str(start))
    # Rotary positions go on; the second reading and the critique want more of them than bulletins do.
    model.config.max_position_embeddings = 512
    words = [
        *REWARD_MODEL,
        f"seed={args.seed}",
        f"device={args.device}",
        f"updates={args.updates or 1500}",
        *args.settings,
    ]
    chosen = config.load(RewardModelSettings, None, words)
    name = args.name or "reward"
    RewardModelTrainer(chosen, folder / name, model=model, tokenizer=tokenizer, rows=rows, show=True).train()


def arm(args: argparse.Namespace) -> None:
    folder = args.work / f"seed-{args.seed}"
    updates = args.updates or UPDATES[args.which]
    demo = options(args, updates)
    chosen = replace(_demo.train_settings(demo, "text2grad"), checkpoint_every=48)
    chosen = replace(chosen, kl=replace(chosen.kl, coefficient=args.kl), critic=TRUE)
    if args.which == "learned":
        critic = str(folder / args.judge / "model")
        evaluation = replace(chosen.evaluation, critic=TRUE)
        learned = replace(chosen.critics.learned, device=args.device)
        critics = replace(chosen.critics, learned=learned)
        chosen = replace(chosen, critic=critic, evaluation=evaluation, critics=critics)
    model, tokenizer = load_model(str(folder / "start" / "model"))
    began = time.perf_counter()
    Trainer(
        chosen,
        folder / (args.name or args.which),
        model=model,
        tokenizer=tokenizer,
        examples=bulletins(100 + args.seed, _demo.EXAMPLES),
        held_out=bulletins(demo.held_out_seed, demo.held_out, "held_out"),
        metrics=[FACTS_RIGHT],
        show=True,
    ).train()
    print(f"{args.which} {args.seed}: {time.perf_counter() - began:.0f} s", flush=True)


def curve(folder: Path) -> list[dict[str, float]]:
    """Held-out numbers at each look: true score, facts right, length, diversity, and what the learned critic says."""
    names = ("update", "held_out/score", "held_out/facts_right", "held_out/length", "held_out/diversity",
             "held_out/critic_score")  # fmt: skip
    if not (folder / "metrics.jsonl").exists():
        return []
    rows = [row for row in read_jsonl(folder / "metrics.jsonl") if "held_out/score" in row]
    return [{name.removeprefix("held_out/"): row[name] for name in names if name in row} for row in rows]


ARMS = {
    "demo-true": "true critic, the demo's own settings",
    "demo-learned": "learned critic, the demo's own settings",
    "steady-true": "true critic, KL penalty 0.01",
    "steady-learned": "learned critic, KL penalty 0.01",
    "long-true": "true critic, KL penalty 0.02",
    "long-learned": "learned critic, KL penalty 0.02",
    "long-middling": "middling learned critic, KL penalty 0.02",
    "free-middling": "middling learned critic, no KL penalty",
}
CHOICE = "choice-"
"""Arms of this name are those that the penalty was chosen by, on another seed."""
JUDGES = {"reward": "learned", "middling": "middling"}
SHARES = (
    ("long-learned", "long-true", 48),
    ("long-learned", "long-true", 192),
    ("steady-learned", "steady-true", 48),
    ("steady-learned", "demo-true", 48),
    ("long-learned", "demo-true", 48),
    ("demo-learned", "demo-true", 48),
    ("long-middling", "long-true", 96),
    ("free-middling", "demo-true", 40),
)


def collect(args: argparse.Namespace) -> None:
    seeds: dict[str, Any] = {}
    for folder in sorted(args.work.glob("seed-*")):
        curves = {arm: found for arm in ARMS if (found := curve(folder / arm))}
        judges = {name: look for name in JUDGES if (look := _last_look(folder / name))}
        if any(name in curves for name, _, _ in SHARES):
            seeds[folder.name.removeprefix("seed-")] = {"curves": curves, "reward_models": judges}
    everything = {
        "arms": ARMS,
        "reward_models": JUDGES,
        "settings": REWARD_MODEL,
        "choice": _choice(args.work),
        "summary": [share for one in SHARES if (share := shares(seeds, *one))],
        "seeds": seeds,
    }
    (args.out / "demo.json").write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(everything["summary"], indent=1))


def _choice(work: Path) -> dict[str, Any]:
    """Of each arm that something was chosen by, its curve."""
    folders = sorted(work.glob(f"seed-*/{CHOICE}*"))
    return {f"{one.parent.name} {one.name.removeprefix(CHOICE)}": curve(one) for one in folders}


def _last_look(folder: Path) -> dict[str, float]:
    """What was measured of a reward model at its end."""
    if not (folder / "metrics.jsonl").exists():
        return {}
    looks = [row for row in read_jsonl(folder / "metrics.jsonl") if "held_out/joint" in row]
    return {name: looks[-1][name] for name in looks[-1] if name.startswith("held_out/")} if looks else {}


def shares(seeds: dict[str, Any], learned: str, true: str, at: int) -> dict[str, Any]:
    """The learned critic's improvement over the true critic's, both by the true critic, from the same start after the
    same number of updates; the mean of the last three looks, for one alone is noisy."""
    found, last = {}, {}
    for seed, arms in seeds.items():
        ends = []
        for name in (learned, true):
            points = {int(point["update"]): point["score"] for point in arms["curves"].get(name, [])}
            if at in points:
                mean = float(np.mean([points[at - back * EVERY] for back in range(3)]))
                ends.append((mean - points[0], points[at] - points[0]))
        if len(ends) == 2:
            (found[seed], last[seed]) = (one / other for one, other in zip(*ends, strict=True))
    if not found:
        return {}
    what = f"{ARMS[learned]}, share of what the {ARMS[true]}, improves, after {at} updates"
    least = {"least": min(found.values()), "at_the_last": list(last.values())}
    return {"what": what, "seeds": list(found), "shares": list(found.values()), **least}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["prepare", "arm", "collect"])
    parser.add_argument("--which", choices=list(UPDATES), default="learned")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, default=64000, help="critiques that the reward model learns from")
    parser.add_argument("--updates", type=int, default=None)
    parser.add_argument("--workers", type=int, default=2, help="processes that criticise")
    parser.add_argument("--kl", type=float, default=KL, help="coefficient of the penalty for leaving the start")
    parser.add_argument("--held-out-seed", type=int, default=8, help="of the reports that are measured on")
    parser.add_argument("--name", default=None, help="of the folder of the arm, or of the reward model")
    parser.add_argument("--judge", default="reward", help="the reward model that an arm learns from")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("settings", nargs="*", help="key=value settings of the reward model")
    args = parser.parse_intermixed_args()
    {"prepare": prepare, "arm": arm, "collect": collect}[args.what](args)


if __name__ == "__main__":
    main()

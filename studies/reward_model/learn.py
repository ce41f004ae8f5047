"""Reward models held against people: the two heads of this project, and the paper's way, on the same rows.

    learn.py weak   --way head|written --data DIR --work DIR --model NAME [--device cuda]
    learn.py people --way head|written --data DIR --work DIR --part defacto|qa --seed N [--device cuda]

`weak` trains on labels that no person gave (weak.py); `people` goes on from there on people's, and measures: DeFacto's
validation file, QA-Feedback's odd indices. `head` judges by the span head; `written` learns to write critiques with
their quotes alone, and is judged by what it writes. What `people` finds goes to OUT/PART-WAY-SEED.json.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from studies.reward_model.run import Part, Row, measured, parts
from studies.reward_model.weak import by_support, corrupted

from text2grad import config
from text2grad.feedback.agreement import Judged, calibration_error, content_scores, curve, replies
from text2grad.feedback.align.ladder import align
from text2grad.feedback.critics.learned import LearnedSettings
from text2grad.models.reward.critic import RewardCritic
from text2grad.stages.reward_model import RewardModelSettings
from text2grad.stages.reward_trainer import RewardTrainer
from text2grad.tasks.annotated import Annotated

HERE = Path(__file__).parent
WAYS = {
    "head": ["loss.language=0.1", "template.writes=words", "template.critique_tokens=256"],
    "written": ["loss.span=0", "loss.worth=0", "loss.language=1", "template.writes=quotes"],
}
SHARED = [
    "policy.lora.rank=0",
    "policy.precision=bfloat16",
    "update.batch=16",
    "update.weight_decay=0.01",
    "update.warmup=20",
    "template.critique_tokens=256",
    "checkpoint_every=100000",
    "keep_checkpoints=1",
]
ROOM = {"defacto": 1280, "qa": 1536}
CURVE_POINTS = 200


def settings(args: argparse.Namespace, *words: str) -> RewardModelSettings:
    return config.load(
        RewardModelSettings, None, [*SHARED, *WAYS[args.way], f"device={args.device}", *words, *args.settings]
    )


def weak(args: argparse.Namespace) -> None:
    rows = parts(args.data)["defacto"].train[: args.rows]
    made = [Annotated.of(row) for row in [*by_support(rows), *corrupted(rows, seed=0)]]
    print(f"{len(made)} weak rows", flush=True)
    chosen = settings(
        args, f"model={args.model}", "epochs=1", "update.learning_rate=1e-4", "template.max_tokens=1280",
        "evaluate_every=10000", "validation=0.05", "update.micro_batch=16",
    )  # fmt: skip
    RewardTrainer(chosen, args.work / f"weak-{args.way}", rows=made, show=True).train()


def people(args: argparse.Namespace) -> None:
    every, began = parts(args.data), time.perf_counter()
    part = every[args.part]
    if args.both:
        rest = [row for name, one in every.items() if name != args.part for row in one.train]
        part = Part([*part.train, *rest], part.held_out, part.left_out, part.shared)
    if args.rows:
        part = Part(part.train[: args.rows], part.held_out[: args.rows], part.left_out, part.shared)
    name = f"{args.part}-{'both-' if args.both else ''}{args.way}-{args.seed}"
    chosen = settings(
        args, f"model={args.work / f'weak-{args.way}' / 'model'}", "epochs=4", "update.learning_rate=5e-5",
        f"template.max_tokens={ROOM[args.part]}", f"evaluate_every={max(1, len(part.train) // 16)}",
        f"seed={args.seed}", "update.micro_batch=16",
    )  # fmt: skip
    rows = [Annotated.of(row) for row in part.train]
    RewardTrainer(chosen, args.work / name, rows=rows, show=True).train()
    trained = time.perf_counter() - began
    found = {"part": args.part, "way": args.way, "both": args.both, "seed": args.seed, "rows": len(part.train)}
    judge = by_head if args.way == "head" else by_writing
    found |= judge(str(args.work / name / "model"), part.held_out, args.device)
    plain = config.plain(chosen) | {"model": f"WORK/weak-{args.way}/model"}
    found |= {"seconds_training": round(trained, 1), "settings": plain}
    (args.out / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(name, json.dumps({key: found[key] for key in ("content", "average_precision") if key in found}), flush=True)


def by_head(path: str, rows: Sequence[Row], device: str) -> dict[str, Any]:
    """At the thresholds chosen on validation, and at every other."""
    critic = RewardCritic(path, LearnedSettings(device=device, confidence=0.0))
    prompts, texts = [row["prompt"] for row in rows], [row["completion"] for row in rows]
    began = time.perf_counter()
    critiques = critic(prompts, texts)
    seconds = time.perf_counter() - began
    judged, columns, tokens = [], [], []
    for row, critique, read in zip(rows, critiques, critic.probabilities(prompts, texts), strict=True):
        if critique is None or read is None:
            judged.append(Judged.of(row, None))
            continue
        encoded, probs, _ = read
        offsets = [tuple(pair) for pair in encoded.offsets.tolist()]
        item = Judged.of(row, align(row["completion"], critique).spans, offsets)
        judged.append(item)
        columns.append(content_scores(item.text, offsets, probs[:-1, 0], item.people))
        tokens.append(content_scores(item.text, offsets, probs[:-1, 2], item.people)[0])
    scores, poor, weight = (np.concatenate(column) for column in zip(*columns, strict=True))
    drawn = curve(scores, poor, weight)
    places = np.unique(np.linspace(0, len(drawn.recall) - 1, CURVE_POINTS).astype(int))
    return {
        **measured(judged),
        "average_precision": drawn.average_precision,
        "base": drawn.base,
        "calibration_error": calibration_error(np.clip(scores, 0, 1), poor, weight),
        "curve": {
            name: [round(float(value), 4) for value in getattr(drawn, name)[places]]
            for name in ("recall", "precision", "thresholds")
        },
        "recall_at_precision": {
            f"{wanted:.3f}": drawn.at_precision(wanted)[0] for wanted in np.arange(0.4, 0.9, 0.005)
        },
        "calibration": config.plain(critic.model.calibration),
        "unscored": sum(critique is None for critique in critiques),
        "seconds_judging": round(seconds, 2),
    }


def by_writing(path: str, rows: Sequence[Row], device: str) -> dict[str, Any]:
    """What the model writes, parsed, and located by the aligner. What cannot be read is wrong."""
    critic = RewardCritic(path, LearnedSettings(device=device, by="generation"))
    began = time.perf_counter()
    critiques = critic([row["prompt"] for row in rows], [row["completion"] for row in rows])
    seconds = time.perf_counter() - began
    located = [
        None if critique is None else align(row["completion"], critique)
        for row, critique in zip(rows, critiques, strict=True)
    ]
    counts = replies(located)
    judged = [Judged.of(row, None if found is None else found.spans) for row, found in zip(rows, located, strict=True)]
    rates = {"parse_rate": counts.parse_rate, "quote_found_rate": counts.quote_found_rate}
    return {**measured(judged), **rates, "reasons": critiques.reasons, "seconds_judging": round(seconds, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["weak", "people"])
    parser.add_argument("--way", choices=list(WAYS), default="head")
    parser.add_argument("--part", choices=list(ROOM), default="defacto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="where models go; they are not kept")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--both", action="store_true", help="learn from the other data's people as well")
    parser.add_argument("--rows", type=int, default=None, help="only so many rows: a try")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("settings", nargs="*", help="key=value settings laid over the study's own")
    args = parser.parse_intermixed_args()
    args.work.mkdir(parents=True, exist_ok=True)
    args.out.mkdir(parents=True, exist_ok=True)
    {"weak": weak, "people": people}[args.what](args)


if __name__ == "__main__":
    main()

"""Reward models held against people: the two heads of this project, and the paper's way, on the same rows.

    python -m studies.reward_model.learn …
        weak    --way head|written --data DIR --work DIR --model NAME [--device cuda]
        people  --way head|written --data DIR --work DIR --part defacto|qa --seed N [--device cuda]
        measure --data DIR --work DIR

`weak` trains on labels that no person gave (weak.py); `people` goes on from there on people's, and keeps what the model
says of each completion: DeFacto's validation file, QA-Feedback's odd indices, and the rows that are chosen by
(WORK/NAME/said.json). `measure` makes numbers of that, OUT/NAME.json. `head` judges by the span head; `written` learns
to write critiques with their quotes alone, and is judged by what it writes.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from studies.reward_model.judged import by_head, by_writing
from studies.reward_model.run import Part, Row, parts
from studies.reward_model.weak import by_support, corrupted

from text2grad import config
from text2grad.feedback.settings import LearnedSettings
from text2grad.models.reward.critic import RewardCritic
from text2grad.models.reward.template import FilledTemplate
from text2grad.tasks.annotated import Annotated
from text2grad.training.reward_model import RewardModelTrainer
from text2grad.training.settings import RewardModelSettings

HERE = Path(__file__).parent
WAYS = {
    "head": ["loss.language=0.1", "template.writes=words", "template.critique_tokens=256"],
    "written": ["loss.span=0", "loss.reward=0", "loss.language=1", "template.writes=quotes"],
}
SHARED = [
    "policy.lora.rank=0",
    "policy.precision=bfloat16",
    "update.batch=16",
    "update.micro_batch=16",
    "update.weight_decay=0.01",
    "update.warmup=20",
    "template.critique_tokens=256",
    "template.max_tokens=1536",
    "checkpoint_every=100000",
    "keep_checkpoints=1",
]
EACH = 8
"""Texts of a source that are corrupted."""


def settings(args: argparse.Namespace, *words: str) -> RewardModelSettings:
    return config.load(
        RewardModelSettings, None, [*SHARED, *WAYS[args.way], f"device={args.device}", *words, *args.settings]
    )


def weak(args: argparse.Namespace) -> None:
    train, choosing = (
        [row for part in parts(args.data).values() for row in getattr(part, side)[: args.rows]]
        for side in ("train", "choosing")
    )
    made, held_out = (
        [Annotated.of(row) for row in [*by_support(rows), *corrupted(rows, seed=0, each=each)]]
        for rows, each in ((train, EACH), (choosing, 1))
    )
    print(f"{len(made)} weak rows, {len(held_out)} held out", flush=True)
    chosen = settings(args, f"model={args.model}", "epochs=1", "update.learning_rate=1e-4", "evaluate_every=200")
    RewardModelTrainer(chosen, args.work / f"weak-{args.way}", rows=made, held_out=held_out, show=True).train()


def people(args: argparse.Namespace) -> None:
    every, began = parts(args.data), time.perf_counter()
    part = every[args.part]
    if args.both:
        rest = [row for name, one in every.items() if name != args.part for row in one.train]
        part = replace(part, train=[*part.train, *rest])
    if args.rows:
        sides = {name: getattr(part, name)[: args.rows] for name in ("train", "choosing", "held_out")}
        part = replace(part, **sides)
    name = f"{args.part}-{'both-' if args.both else ''}{args.way}-{args.seed}"
    chosen = settings(
        args, f"model={args.work / f'weak-{args.way}' / 'model'}", "epochs=4", "update.learning_rate=5e-5",
        f"evaluate_every={max(1, len(part.train) // 16)}", f"seed={args.seed}",
    )  # fmt: skip
    rows, held_out = ([Annotated.of(row) for row in side] for side in (part.train, part.choosing))
    RewardModelTrainer(chosen, args.work / name, rows=rows, held_out=held_out, show=True).train()
    trained = time.perf_counter() - began
    found = {"part": args.part, "way": args.way, "both": args.both, "seed": args.seed, "rows": len(part.train)}
    found |= said(args, str(args.work / name / "model"), part)
    plain = config.plain(chosen) | {"model": f"WORK/weak-{args.way}/model"}
    found |= {"seconds_training": round(trained, 1), "settings": plain}
    (args.work / name / "said.json").write_text(json.dumps(found) + "\n", encoding="utf-8")


def said(args: argparse.Namespace, path: str, part: Part) -> dict[str, Any]:
    """What the model says of each row that is chosen by or measured on, as it comes: numbers of tokens, or texts."""
    critic = RewardCritic(path, LearnedSettings(device=args.device, by="head" if args.way == "head" else "generation"))
    found: dict[str, Any] = {}
    for side in ("choosing", "held_out"):
        rows: Sequence[Row] = getattr(part, side)
        began = time.perf_counter()
        encoded, reasons = critic.encode([row["prompt"] for row in rows], [row["completion"] for row in rows])
        known = [one for one in encoded if one is not None]
        heard = iter(_numbers(critic, known) if args.way == "head" else _texts(critic, known))
        found[side] = [None if one is None else next(heard) for one in encoded]
        found[f"seconds_{side}"], found[f"reasons_{side}"] = round(time.perf_counter() - began, 2), reasons
    model = critic.model
    return found | {"calibration": config.plain(model.calibration), "class_weights": model.class_weights_3.tolist()}


def _numbers(critic: RewardCritic, encoded: Sequence[FilledTemplate]) -> list[dict[str, Any]]:
    outs = critic.model.predict(encoded, critic.options.batch_tokens)
    return [
        {"offsets": one.offsets.tolist(), "out": _rounded(out.tolist())} for one, out in zip(encoded, outs, strict=True)
    ]


def _texts(critic: RewardCritic, encoded: Sequence[FilledTemplate]) -> list[dict[str, Any]]:
    return [
        {"text": critic.tokenizer.decode(one.token_ids, skip_special_tokens=True), "cut": one.truncated}
        for one in critic.sampler([one.ids for one in encoded], None)
    ]


def _rounded(rows: list[list[float]]) -> list[list[float]]:
    return [[round(number, 4) for number in row] for row in rows]


def measure(args: argparse.Namespace) -> None:
    every = parts(args.data)
    for path in sorted(args.work.glob("*/said.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        part, judge = every[found["part"]], by_head if found["way"] == "head" else by_writing
        kept = {name: found[name] for name in ("part", "way", "both", "seed", "rows", "seconds_training", "settings")}
        kept |= {"seconds_judging": found["seconds_held_out"]}
        name = path.parent.name
        (args.out / f"{name}.json").write_text(json.dumps(kept | judge(found, part), indent=1) + "\n", encoding="utf-8")
        print(name, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["weak", "people", "measure"])
    parser.add_argument("--way", choices=list(WAYS), default="head")
    parser.add_argument("--part", choices=["defacto", "qa"], default="defacto")
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
    {"weak": weak, "people": people, "measure": measure}[args.what](args)


if __name__ == "__main__":
    main()

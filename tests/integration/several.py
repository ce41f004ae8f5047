"""What each process of a test with several processes does; started by `torchrun`, see test_processes.py.

    torchrun … several.py FOLDER KIND

KIND is `ddp` or `fsdp2`. Each run of RUNS is trained in FOLDER/NAME; FOLDER/NAME-RANK.json is what this process saw.
"""

import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from text2grad.models.sampling import SamplingSettings
from text2grad.models.settings import LoraSettings, PolicySettings
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.optim.settings import AdvantageSettings, KLSettings, UpdateSettings
from text2grad.tasks.annotated import Annotated
from text2grad.training.preference import DPOTrainer
from text2grad.training.reward_model import RewardModelTrainer
from text2grad.training.rl import Trainer
from text2grad.training.settings import (
    DPOSettings,
    EvaluationSettings,
    LogSettings,
    RewardModelSettings,
    SFTSettings,
    SupervisedSettings,
    TrainSettings,
)
from text2grad.training.sft import SFTTrainer
from text2grad.types import Alignment, Critique, Example, Quote, Span

EXAMPLES = [Example(f"e{i}", f"Say {'it ' * i}", reference=f"It is {i}.") for i in range(5)]
UNSCORED = EXAMPLES[1].prompt
TRACKERS = ("tensorboard",) if find_spec("tensorboardX") else ()


def critic(prompts: Sequence[Any], completions: Sequence[str], **_: Any) -> list[Critique | None]:
    """Likes short words; has nothing to say about one of the prompts."""
    found: list[Critique | None] = []
    for prompt, text in zip(prompts, completions, strict=True):
        quotes = tuple(Quote(text[at : at + 3], "good", start=at) for at in (0,) if text[at : at + 3].strip())
        score = sum(character.isalpha() for character in text) / 10
        found.append(None if prompt == UNSCORED else Critique("fine", quotes=quotes, score=score))
    return found


def silence(prompts: Sequence[Any], completions: Sequence[str], **_: Any) -> list[Critique | None]:  # noqa: ARG001
    return [None] * len(completions)


def train_settings(**changed: Any) -> TrainSettings:
    chosen: dict[str, Any] = {
        "updates": 3,
        "prompts": 3,  # an odd number: one process has more to do than the other
        "completions": 2,
        "checkpoint_every": 2,
        "device": "cpu",
        "sampling": SamplingSettings(max_new_tokens=6, batch=4),
        "policy": PolicySettings(lora=LoraSettings(rank=0)),
        "update": UpdateSettings(learning_rate=1e-3, micro_batch=2),
        "kl": KLSettings(coefficient=0.1),
        "evaluation": EvaluationSettings(every=2),
        "log": LogSettings(rollouts=4, locality=4, trackers=TRACKERS),
    }
    return TrainSettings(**chosen | changed)


def lora() -> TrainSettings:
    policy = PolicySettings(lora=LoraSettings(rank=4), gradient_checkpointing=True)
    return train_settings(policy=policy, advantage=AdvantageSettings(estimator="span_rloo"), sampling=PLAIN)


PLAIN = SamplingSettings(max_new_tokens=6, batch=4, sampler="plain")
SUPERVISED = SFTSettings(
    updates=3,
    evaluate_every=2,
    device="cpu",
    policy=PolicySettings(lora=LoraSettings(rank=0)),
    update=SupervisedSettings(batch=3, micro_batch=1, learning_rate=1e-3),
)
JUDGED = RewardModelSettings(
    updates=3,
    evaluate_every=2,
    keep="last",
    device="cpu",
    policy=PolicySettings(lora=LoraSettings(rank=0)),
    update=SupervisedSettings(batch=3, micro_batch=1, learning_rate=1e-3),
    head_learning_rate=1e-2,
)
PREFERRED = DPOSettings(
    updates=3,
    evaluate_every=2,
    pairs="samples",
    completions=4,
    device="cpu",
    sampling=SamplingSettings(max_new_tokens=6, batch=4),
    policy=PolicySettings(lora=LoraSettings(rank=0)),
    update=SupervisedSettings(batch=3, micro_batch=2, learning_rate=1e-3),
)
PAIRED = replace(PREFERRED, pairs="file", policy=PolicySettings(lora=LoraSettings(rank=4)))
RUNS = ("gae", "lora", "unscored", "sft", "reward", "dpo", "pairs")


def annotated(count: int) -> list[Annotated]:
    """Of different lengths, some with no critique that has room."""
    spans = [Alignment((Span(0, 4, "good"),)), Alignment((Span(3, 7, "poor", severity=0.5),)), Alignment()]
    found = []
    for n, where in enumerate((spans * count)[:count]):
        said = Critique("No. " * (1 + 99 * (n == 2)))
        found.append(Annotated(f"a{n}", f"Say {'it ' * n}", f"It is the {n}." * (1 + n % 2), said, where))
    return found


def _given() -> dict[str, Any]:
    tokenizer = tiny_tokenizer()
    return {"model": tiny_model(tokenizer), "tokenizer": tokenizer, "examples": EXAMPLES, "held_out": EXAMPLES[2:]}


def loop(
    name: str, folder: Path, callbacks: Sequence[Any] = ()
) -> Trainer | SFTTrainer | RewardModelTrainer | DPOTrainer:
    """The run of this name, for one process or for one of several."""
    given = _given() | {"callbacks": callbacks}
    if name == "unscored":
        given |= {"examples": EXAMPLES[:2], "held_out": EXAMPLES[:1]}  # one example: the second process has none
    if name == "reward":
        # One held-out completion: the second process has none.
        given = {key: value for key, value in given.items() if key in ("model", "tokenizer", "callbacks")}
        return RewardModelTrainer(JUDGED, folder, rows=annotated(5), held_out=annotated(1), **given)
    if name == "dpo":
        return DPOTrainer(PREFERRED, folder, critic=critic, **given)
    if name == "pairs":
        # One held-out pair: the second process has none.
        pairs = [Example(e.id, e.prompt, columns={"chosen": e.reference, "rejected": "No."}) for e in EXAMPLES]
        return DPOTrainer(PAIRED, folder, **given | {"examples": pairs, "held_out": pairs[:1]})
    if name == "sft":
        _untie(given["model"])
        return SFTTrainer(SUPERVISED, folder, **given)
    # Two prompts, one of them never scored: a process may have nothing to learn from while the other has.
    options = lora() if name == "lora" else train_settings(prompts=2) if name == "unscored" else train_settings()
    return Trainer(options, folder, critic=critic, **given)


def main(folder: Path, kind: str) -> None:
    torch.set_num_threads(1)
    for name in RUNS:
        _sharded(kind)
        one = loop(name, folder / name)
        outcome = one.train()
        parameters = [
            parameter
            for _, parameter in (one.model if isinstance(one, RewardModelTrainer) else one.policy).named_parameters()
        ]
        local = sum(getattr(parameter, "_local_tensor", parameter).numel() for parameter in parameters)
        said = {
            "status": outcome.status,
            "kinds": sorted({type(parameter.data).__name__ for parameter in parameters}),
            "module": type(one.module).__name__,
            "share": local / sum(parameter.numel() for parameter in parameters),
            "processes": one.world.size,
        }
        (folder / f"{name}-{one.world.rank}.json").write_text(json.dumps(said))
    # Nothing is scored: every process ends after the first update.
    _sharded(kind)
    silent = Trainer(train_settings(), folder / "silent", critic=silence, **_given())
    ended = silent.train()
    (folder / f"silent-{os.environ['RANK']}.json").write_text(json.dumps([ended.updates, ended.status]))
    # Once more, interrupted after update 2 and taken up again.
    _sharded(kind)
    statuses = [loop("gae", folder / "again", callbacks=[_interrupt]).train().status]
    _sharded(kind)
    statuses.append(loop("gae", folder / "again").train().status)
    (folder / f"again-{os.environ['RANK']}.json").write_text(json.dumps(statuses))


def _untie(model: Any) -> None:
    """A vocabulary projection of its own, as larger models have it."""
    model.config.tie_word_embeddings = False
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())


def _sharded(kind: str) -> None:
    """As `accelerate launch` says it; read once."""
    os.environ["ACCELERATE_USE_FSDP"] = str(kind == "fsdp2").lower()


def _interrupt(one: Any, metrics: Any) -> None:
    """Ctrl-C, in one process only."""
    if metrics["update"] == 2 and one.world.rank == 1:
        os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

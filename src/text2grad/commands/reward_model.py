"""`text2grad reward-model`: annotated completions → a model that scores every token and writes the critique.

The loop is `training/reward_model.py`. The same command resumes after a kill. The result, RUN/model, is a critic:
`--critic RUN/model` in `annotate`, `critic=RUN/model` in `train`.
"""

import argparse

from text2grad.commands.training import add_training, run_training
from text2grad.training.settings import NO_BEST, RewardModelSettings


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "text2grad reward-model RUN data=FILE model=NAME [key=value …] [--config FILE] [--launch ddp]"
    add_training(parser, RewardModelSettings)


def run(args: argparse.Namespace) -> int:
    def check(settings: RewardModelSettings) -> str | None:
        # Said once, here, and not by each process.
        return NO_BEST if args.launch == "fsdp2" and settings.keep == "best" else missing(settings)

    return run_training(
        args, "reward-model", RewardModelSettings, "text2grad.training.reward_model:RewardModelTrainer", check
    )


def missing(settings: RewardModelSettings) -> str | None:
    """What a run cannot do without."""
    if not settings.data and settings.task == "jsonl":
        return "wants annotated completions to learn from: data=FILE.jsonl (made by `text2grad annotate`), or task=NAME"
    return None

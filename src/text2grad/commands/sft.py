"""`text2grad sft`: supervised fine-tuning, mostly as a start for `train`. The loop is `training/sft.py`.

Reinforcement learning from a cold model finds the weaknesses of its critic before it finds the task. A short supervised
start shows the model what a completion looks like. The same command resumes after a kill.
"""

import argparse

from text2grad.commands.training import add_training, run_training
from text2grad.training.settings import SFTSettings


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "text2grad sft RUN data=FILE model=NAME [key=value …] [--config FILE] [--launch ddp]"
    add_training(parser, SFTSettings)


def run(args: argparse.Namespace) -> int:
    return run_training(args, "sft", SFTSettings, "text2grad.training.sft:SFTTrainer", missing)


def missing(settings: SFTSettings) -> str | None:
    """What a run cannot do without."""
    ready = settings.data or settings.task != "jsonl"
    return None if ready else "wants examples to learn from: data=FILE.jsonl, or task=NAME"

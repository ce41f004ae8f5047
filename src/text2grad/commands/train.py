"""`text2grad train`: a policy learns from critiques. The loop is `training/rl.py`.

Run the same command again after a kill, Ctrl-C or a full disk: it resumes from the last checkpoint, and ends with the
same weights and files as a run that was never interrupted.
"""

import argparse

from text2grad.commands.training import add_training, run_training
from text2grad.training.settings import TrainSettings


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "text2grad train RUN data=FILE critic=NAME model=NAME [key=value …] [--config FILE] [--launch ddp]"
    add_training(parser, TrainSettings, sandbox=True)


def run(args: argparse.Namespace) -> int:
    return run_training(args, "train", TrainSettings, "text2grad.training.rl:Trainer", missing)


def missing(settings: TrainSettings) -> str | None:
    """What a run cannot do without."""
    from text2grad.feedback.critics.named import refuse_people

    refuse_people(settings.critic)
    refuse_people(settings.evaluation.critic)
    ready = settings.data or settings.task != "jsonl"
    return None if ready else "wants examples to train on: data=FILE.jsonl, or task=NAME"

"""`text2grad dpo`: a policy learns which of two completions is better. The loop is `training/preference.py`.

Run the same command again after a kill or Ctrl-C: it resumes from the last checkpoint.
"""

import argparse

from text2grad.commands.training import add_training, run_training
from text2grad.training.settings import DPOSettings


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "text2grad dpo RUN data=FILE model=NAME [pairs=samples critic=NAME] [key=value …] [--launch ddp]"
    add_training(parser, DPOSettings, sandbox=True)


def run(args: argparse.Namespace) -> int:
    return run_training(args, "dpo", DPOSettings, "text2grad.training.preference:DPOTrainer", missing)


def missing(settings: DPOSettings) -> str | None:
    """What a run cannot do without."""
    if settings.pairs == "samples":
        from text2grad.feedback.critics.named import refuse_people

        refuse_people(settings.critic)
    if settings.task != "jsonl" or settings.data:
        return None
    return "wants pairs to learn from: data=FILE.jsonl with prompt, chosen and rejected"

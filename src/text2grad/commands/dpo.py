"""`text2grad dpo`: a policy learns which of two completions is better. The loop is `training/preference.py`.

Run the same command again after a kill or Ctrl-C: it resumes from the last checkpoint.
"""

import argparse

from text2grad.commands.training import TrainingCommand
from text2grad.training.settings import DPOSettings


def check(_: argparse.Namespace, settings: DPOSettings) -> None:
    from text2grad.feedback.critics.named import refuse_people

    refuse_people(settings.critic if settings.pairs == "samples" else None)


_command = TrainingCommand(
    "dpo",
    DPOSettings,
    "text2grad.training.preference:DPOTrainer",
    usage="data=FILE model=NAME [pairs=samples critic=NAME]",
    wants="pairs to learn from: data=FILE.jsonl with prompt, chosen and rejected",
    sandbox=True,
    check=check,
)
arguments, run = _command.arguments, _command.run

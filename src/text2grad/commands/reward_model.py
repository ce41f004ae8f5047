"""`text2grad reward-model`: annotated completions → a model that scores every token and writes the critique.

The loop is `training/reward_model.py`. The same command resumes after a kill. The result, RUN/model, is a critic:
`--critic RUN/model` in `annotate`, `critic=RUN/model` in `train`.
"""

import argparse

from text2grad.commands.training import TrainingCommand
from text2grad.errors import UsageError
from text2grad.training.settings import NO_BEST, RewardModelSettings


def check(args: argparse.Namespace, settings: RewardModelSettings) -> None:
    # Said once, here, and not by each process.
    if args.launch == "fsdp2" and settings.keep == "best":
        raise UsageError(f"{NO_BEST}; see text2grad reward-model --help")


_command = TrainingCommand(
    "reward-model",
    RewardModelSettings,
    "text2grad.training.reward_model:RewardModelTrainer",
    usage="data=FILE model=NAME",
    wants="annotated completions to learn from: data=FILE.jsonl (made by `text2grad annotate`), or task=NAME",
    check=check,
)
arguments, run = _command.arguments, _command.run

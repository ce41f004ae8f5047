"""`text2grad trl`: TRL's trainers as rivals of ours, mostly as arms of `text2grad compare`. See `training/trl.py`."""

from text2grad.commands.train import check
from text2grad.commands.training import TrainingCommand
from text2grad.training.settings import TRLSettings

_command = TrainingCommand(
    "trl",
    TRLSettings,
    "text2grad.training.trl:TRLTrainer",
    usage="trainer=grpo data=FILE critic=NAME model=NAME",
    wants="examples to train on: data=FILE.jsonl, or task=NAME",
    sandbox=True,
    check=check,
)
arguments, run = _command.arguments, _command.run

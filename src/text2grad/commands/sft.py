"""`text2grad sft`: supervised fine-tuning, mostly as a start for `train`. The loop is `training/sft.py`.

Reinforcement learning from a cold model finds the weaknesses of its critic before it finds the task. A short supervised
start shows the model what a completion looks like. The same command resumes after a kill.
"""

from text2grad.commands.training import TrainingCommand
from text2grad.training.settings import SFTSettings

_command = TrainingCommand(
    "sft",
    SFTSettings,
    "text2grad.training.sft:SFTTrainer",
    usage="data=FILE model=NAME",
    wants="examples to learn from: data=FILE.jsonl, or task=NAME",
)
arguments, run = _command.arguments, _command.run

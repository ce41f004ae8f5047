"""`text2grad train`: a policy learns from critiques. The loop is `training/rl.py`.

Run the same command again after a kill, Ctrl-C or a full disk: it resumes from the last checkpoint, and ends with the
same weights and files as a run that was never interrupted.
"""

import argparse

from text2grad.commands.training import TrainingCommand
from text2grad.training.settings import TrainSettings


def check(_: argparse.Namespace, settings: TrainSettings) -> None:
    from text2grad.feedback.critics.named import refuse_people

    refuse_people(settings.critic)
    refuse_people(settings.evaluation.critic)


def dry_run(settings: TrainSettings) -> list[str]:
    """Reads the data, looks for critics and model, and asks no critic."""
    from text2grad.models.load import check_there
    from text2grad.tasks.task import task_of
    from text2grad.training.spending import check_critic, estimate

    task = task_of(settings)
    critic, examples = settings.critic or task.critic, task.examples("train")
    check_critic(critic, settings.critics, examples)
    if settings.evaluation.critic is not None:
        check_critic(settings.evaluation.critic, settings.critics, examples)
    check_there(settings.model)
    lines = estimate(settings, examples, task.held_out(), critic)
    return lines if len(lines) > 1 else [*lines, "no cost: no model server is asked"]


_command = TrainingCommand(
    "train",
    TrainSettings,
    "text2grad.training.rl:Trainer",
    usage="data=FILE critic=NAME model=NAME",
    wants="examples to train on: data=FILE.jsonl, or task=NAME",
    sandbox=True,
    dry_run=dry_run,
    check=check,
)
arguments, run = _command.arguments, _command.run

"""What a comparison will do and cost, before it is run. Reads the data, looks for models and critics, asks nobody."""

import math
from collections.abc import Iterator, Sequence
from importlib.util import find_spec

from text2grad.errors import MissingExtra
from text2grad.models.load import check_there
from text2grad.tasks.task import task_of
from text2grad.training.compare import ArmJob, CompareSettings, baseline_of, paired, sft_updates
from text2grad.training.settings import TrainSettings
from text2grad.training.spending import check_critic, estimate


def dry_run(jobs: Sequence[ArmJob]) -> Iterator[str]:
    """What each arm will do and cost, and the whole."""
    totals = [0, 0, 0, 0, 0]
    for arm in dict.fromkeys(job.arm for job in jobs):
        runs = [job for job in jobs if job.arm == arm]
        job, made = runs[0], runs[0].settings
        if not job.kind.measured:
            yield f"{arm}: {len(runs)} x a reward model, from {made.data or made.task}"
            totals[0] += len(runs)
            continue
        task = task_of(made)
        if job.start is None:
            check_there(job.words[1] if job.kind.command == "evaluate" else made.model)
        evaluation, judge = job.evaluation, job.evaluation.critic
        critic = getattr(made, "best_of_critic", None) or getattr(made, "critic", None) or judge or task.critic
        examples = task.examples("train") if "train" in task.splits else task.held_out()
        for named in (judge or task.critic,) if job.critic else (critic, judge or critic):
            check_critic(named, made.critics, examples)
        held_out = len(task.held_out()[: evaluation.examples])
        updates = sft_updates(made) if job.kind.command == "sft" else getattr(made, "updates", 0)
        completions, calls = updates * job.completions, updates * job.completions
        if job.kind.command == "evaluate":
            completions, calls = (held_out * each for each in job.per_example)
        numbers = [1, updates, completions, calls, completions * made.sampling.max_new_tokens]
        totals = [total + len(runs) * number for total, number in zip(totals, numbers, strict=True)]
        looks = 1 + math.ceil(updates / evaluation.every)
        yield f"{arm}: {_work([len(runs), *numbers[1:]])} each; {looks} x {held_out} held-out examples are evaluated"
        if job.kind.command == "trl" and find_spec("trl") is None:
            # Not refused: the other arms can do without.
            yield f"  will fail: {MissingExtra.of(ModuleNotFoundError(name='trl'), arm)}"
        if job.kind.samples:
            lines = estimate(_as_train(job), examples, task.held_out(), critic)[1:]
            yield from (f"  each run: {line}" for line in lines)
    yield f"in all: {_work(totals)}, evaluations apart"


def judge_line(options: CompareSettings, jobs: Sequence[ArmJob]) -> Iterator[str]:
    """What the judge of the comparison is asked, where there is one."""
    if options.judge is None:
        return
    arms: dict[str, list[ArmJob]] = {}
    for job in jobs:
        arms.setdefault(job.arm, []).append(job)
    theirs = arms.pop(baseline_of(options))
    ours = [job for some in arms.values() for job in some if job.kind.measured]
    pairs = sum(paired(one, other) for one in ours for other in theirs)
    most = 2 * pairs * min(options.examples, len(task_of(theirs[0].settings).held_out()))
    yield f"judge: {pairs} pairs of runs, at most {most:,} requests to {options.judge}; equal texts are not asked about"


def _work(numbers: Sequence[int]) -> str:
    """
    >>> _work([2, 100, 6400, 6400, 409600])
    '2 runs, 100 updates, 6,400 completions, 6,400 critic calls, at most 409,600 sampled tokens'
    """
    nouns = ("run", "update", "completion", "critic call", "sampled token")
    said = [f"{number:,} {noun}{'s'[: number != 1]}" for number, noun in zip(numbers, nouns, strict=True)]
    return ", ".join([*said[:-1], f"at most {said[-1]}"])


def _as_train(job: ArmJob) -> TrainSettings:
    """A run that samples, in the words of `train`."""
    made = job.settings
    if job.kind.command != "dpo":
        train: TrainSettings = made
        return train
    budget = {"updates": made.updates, "prompts": made.update.batch, "completions": made.completions}
    shared = {name: getattr(made, name) for name in ("critics", "sampling", "align")}
    return TrainSettings(reward="scalar", evaluation=job.evaluation, **budget, **shared)

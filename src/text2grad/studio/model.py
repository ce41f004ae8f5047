"""The model of a studio: it writes completions, is measured, and is at one of its versions.

Enters: rows of the store. Leaves: bodies for it. Version 0 is the start; version n is the last checkpoint of its Learn
(`runs/learn-0000n`), so that undoing a Learn means reading the weights of another version: nothing is computed back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from text2grad.errors import InvalidData, RunError
from text2grad.evaluation.evaluator import Evaluator, judged
from text2grad.models.chat import completion_ids, turn_end
from text2grad.models.load import device_named, fingerprint, load_model
from text2grad.models.modes import evaluating, without_plans
from text2grad.models.offsets import completion_of
from text2grad.models.parallel import AccelerateWorld
from text2grad.models.policy import Policy, Reference
from text2grad.models.sampling import Seed
from text2grad.models.writer import Writer
from text2grad.optim.batch import Batch, collate_ids
from text2grad.optim.losses import approximate_kl
from text2grad.optim.reduce import masked_mean
from text2grad.optim.settings import UpdateSettings
from text2grad.studio import words
from text2grad.studio.settings import EMBEDDED, OF_TASK, StudioSettings
from text2grad.studio.store import Row
from text2grad.tasks.task import Task
from text2grad.training.settings import TrainSettings
from text2grad.training.setup import reward_function_of
from text2grad.training.state import TrainingState, restore_weights, seed_everything
from text2grad.types import Completion, Example, Rollout

AT_ONCE = 32
"""Completions that are read or learned from at once."""
EACH = 64
"""Completions of one prompt that have random numbers of their own, at each version."""
_NO_OPTIMIZER = torch.optim.SGD([torch.zeros(1, requires_grad=True)])

Bodies = dict[int, list[dict[str, Any]]]
"""Prompt → bodies of its completions."""


class Model:
    """A policy with its start, its tokenizer and what it is measured on."""

    def __init__(self, settings: StudioSettings, base: str, runs: Path, task: Task) -> None:
        """`base`: the model that version 0 is. `runs`: where the Learns are."""
        self.settings, self.runs, self.task = settings, runs, task
        self.options = run_settings(settings, base)
        self.world = AccelerateWorld(device_named(settings.device))
        without_plans()
        seed_everything(settings.seed)
        model, self.tokenizer = load_model(base, device=str(self.world.device))
        self.fingerprint = fingerprint(model, self.tokenizer)
        sampling = self.options.sampling
        self.policy = Policy(model, self.options.policy, value_head=False, temperature=sampling.temperature)
        self.policy.eval()
        self.reference: Reference = self.policy.reference()
        self.writer = Writer(self.policy, self.tokenizer, sampling, form=self.options.format)
        self.start = {name: weight.detach().clone() for name, weight in self.policy.trainable().items()}
        self.version = 0
        self.reward = reward_function_of(
            task.critic if settings.critic in (None, OF_TASK) else settings.critic, settings
        )
        held_out = task.held_out()[: settings.learn.held_out]
        self.evaluator = Evaluator(held_out, self.reward, metrics=task.metrics) if held_out else None
        self.measured: dict[int, tuple[dict[str, float], list[Rollout]]] = {}

    def close(self) -> None:
        """Let go of the critic."""
        self.reward.close()

    # ------------------------------------------------------------------------------------------ versions

    def load(self, version: int) -> None:
        """The weights of a version, bit for bit."""
        if version == self.version:
            return
        weights = self.start if version == 0 else self._checkpoint(version)["weights"]
        restore_weights(self.policy, _NO_OPTIMIZER, {"weights": weights, "optimizer": _NO_OPTIMIZER.state_dict()})
        self.version = version

    def _checkpoint(self, version: int) -> dict[str, Any]:
        found = sorted((self.run_folder(version) / "checkpoints").glob("step-*"))
        if not found:
            raise RunError(
                f"{self.run_folder(version)}: the weights of version {version} are gone; put the folder back"
            )
        return TrainingState(self.policy, _NO_OPTIMIZER, self.world, {}).read(found[-1])

    def run_folder(self, version: int) -> Path:
        return self.runs / f"learn-{version:05d}"

    # ------------------------------------------------------------------------------------------ completions

    def sample(self, prompts: Sequence[Row], counts: Sequence[int], first: Sequence[int]) -> Bodies:
        """Completions of each prompt: so many, from this number on. The same numbers give the same random numbers at
        every version, so that versions can be compared."""
        examples: list[Example] = []
        indices: list[int] = []
        for row, count, start in zip(prompts, counts, first, strict=True):
            examples += [words.example_in(row)] * count
            indices += [row["id"] * EACH + (start + turn) % EACH for turn in range(count)]
        rollouts = self.writer(examples, Seed(self.settings.seed, 0, indices)) if examples else []
        if self.settings.critic is not None:
            rollouts = judged(self.reward, rollouts)
        waiting = iter(map(_body, rollouts))
        return {row["id"]: [next(waiting) for _ in range(count)] for row, count in zip(prompts, counts, strict=True)}

    def given(self, row: Row) -> Bodies:
        """Completions that came with a prompt: as the tokenizer writes them, with the policy's log-probs."""
        example = words.example_in(row)
        prompt, completions = self.encoded(example, row["given"])
        logprobs = self.logprobs(collate_ids([prompt] * len(completions), [each.token_ids for each in completions]))
        made = [
            Rollout(example, each, prompt_ids=tuple(prompt), logprobs=tuple(numbers))
            for each, numbers in zip(completions, logprobs, strict=True)
        ]
        return {row["id"]: [*map(_body, judged(self.reward, made) if self.settings.critic is not None else made)]}

    def encoded(self, example: Example, texts: Sequence[str]) -> tuple[list[int], list[Completion]]:
        """(ids of the prompt, texts that somebody wrote as completions of it)."""
        prompt = self.writer.prompt(example)
        end = turn_end(self.tokenizer, example.prompt, self.writer.end_ids, self.options.format)
        made = [completion_of(self.tokenizer, completion_ids(self.tokenizer, text, end)) for text in texts]
        longest, room = max(len(each.token_ids) for each in made), self.writer.positions
        if room is not None and len(prompt) + longest > room:
            raise InvalidData(f"a text has {len(prompt) + longest} tokens with its prompt, and the model reads {room}")
        return prompt, made

    def logprobs(self, batch: Batch) -> list[list[float]]:
        with evaluating(self.policy):
            found_BT, _ = self.policy.logprobs_and_values(batch, AT_ONCE)
        return [row[:length] for row, length in zip(found_BT.tolist(), batch.lengths_B.tolist(), strict=True)]

    # ------------------------------------------------------------------------------------------ measuring

    def measure(self) -> tuple[dict[str, float], list[Rollout]]:
        """Held-out prompts, completed greedily and judged: numbers, and the rollouts."""
        if self.evaluator is None:
            return {}, []
        if self.version not in self.measured:
            found = self.evaluator.greedy(self.writer)
            self.measured[self.version] = dict(found.metrics), found.rollouts
        return self.measured[self.version]

    def measure_kl(self, others: Sequence[Example]) -> float:
        """KL per token to the start, on sampled completions of held-out prompts; where there are none, of others."""
        examples = [*(self.evaluator.examples if self.evaluator else others)][:AT_ONCE]
        if not examples:
            return 0.0
        prompts, samples = self.writer.sample(examples, Seed(self.settings.seed + 1, 0, range(len(examples))))
        batch = collate_ids(prompts, [sample.token_ids for sample in samples])
        with evaluating(self.policy):
            own_BT, _ = self.policy.logprobs_and_values(batch, AT_ONCE)
        kl_BT = approximate_kl(self.reference.logprobs(batch, AT_ONCE), own_BT)
        return float(masked_mean(kl_BT, batch.mask_BT))


def _body(rollout: Rollout) -> dict[str, Any]:
    """What the store keeps of a completion: the ids and log-probs that it was sampled with."""
    plain = rollout.completion.to_json()
    return {
        **plain,
        "prompt_ids": list(rollout.prompt_ids),
        "logprobs": list(rollout.logprobs or ()),
        "truncated": rollout.truncated,
        "score": rollout.score,
    }


def shown_metrics(metrics: Mapping[str, float]) -> dict[str, float]:
    return {key.removeprefix("held_out/"): value for key, value in metrics.items()}


def run_settings(settings: StudioSettings, base: str) -> TrainSettings:
    """What a Learn is, as a run knows it. The embedded model is trained as in the demo: all weights, plain prompts."""
    small, learn = settings.model == EMBEDDED, settings.learn
    policy, sampling = settings.policy, settings.sampling
    if small:
        policy = replace(policy, lora=replace(policy.lora, rank=0))
        sampling = replace(sampling, max_new_tokens=40, batch=128)
    shared = (
        "task",
        "data",
        "held_out",
        "columns",
        "critic",
        "seed",
        "device",
        "advantage",
        "scoring",
        "critics",
        "align",
    )
    return TrainSettings(
        model=base,
        **{name: getattr(settings, name) for name in shared},
        task_options=dict(settings.task_options),
        updates=learn.updates,
        prompts=learn.prompts,
        completions=learn.completions,
        format="plain" if small else settings.format,
        keep_checkpoints=1,
        save_best=False,
        policy=policy,
        sampling=sampling,
        update=UpdateSettings(
            epochs=learn.steps,
            minibatches=1,
            micro_batch=AT_ONCE,
            clip=learn.clip,
            clip_high=learn.clip_high,
            learning_rate=learn.learning_rate,
        ),
    )

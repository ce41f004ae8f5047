"""Completions → critiques → spans → token rewards: the reading half of an update.

Enters: examples and their completions. Leaves: one `RewardedCompletion` each; without critique, alignment and rewards
where the critic did not score it. Keeps one event loop, because a model's client lives in the loop that it began in.
"""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from text2grad.feedback.align import Pair, align_many
from text2grad.feedback.align.overlap import project
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.critics.protocol import Answers, Critic, ask, name_of
from text2grad.feedback.critics.words import prompt_text
from text2grad.feedback.rewards import Slope, kind_of, on_last_token, token_rewards, total_of, verdict_sum
from text2grad.optim.reduce import ALONE, Exchange
from text2grad.runs import Closable
from text2grad.tasks.examples import columns_of
from text2grad.training.guard import Watch
from text2grad.types import Alignment, Completion, Critique, Example, RewardedCompletion, Scoring


class Judge(Closable):
    """A critic, how its critiques are located, and how they become rewards."""

    def __init__(self, critic: Critic, align: AlignSettings, scoring: Scoring, *, scalar: bool = False) -> None:
        self.critic, self.options, self.scoring, self.scalar = critic, align, scoring, scalar
        self.slope = Slope()
        """Of score on verdicts, over the completions that `learn` has seen."""
        self.times = {"critic": 0.0, "align": 0.0}
        """Seconds of the last call."""
        self.why = ""
        """Why something of an update was not scored, in the critic's own words, if it had any."""
        self._loop: asyncio.AbstractEventLoop | None = None

    def __call__(
        self,
        examples: Sequence[Example],
        completions: Sequence[Completion],
        *,
        learn: bool = True,
        among: Exchange = ALONE,
    ) -> list[RewardedCompletion]:
        """Judge them all. `learn`: let the slope see them, those of the other processes as well."""
        began = time.perf_counter()
        critiques = self._ask(examples, completions)
        if learn:
            self.why = next(iter(critiques.reasons.values()), "")
        judged = time.perf_counter()
        scored = [index for index, critique in enumerate(critiques) if critique is not None]
        pairs = [Pair(completions[i], _said(critiques[i]), source=prompt_text(examples[i].prompt)) for i in scored]
        alignments = dict(zip(scored, align_many(pairs, settings=self.options), strict=True))
        if learn:
            self._learn([(_said(critiques[i]), alignments[i]) for i in scored], among)
        rows = [
            self._rewarded(example, completion, critiques[i], alignments.get(i))
            for i, (example, completion) in enumerate(zip(examples, completions, strict=True))
        ]
        self.times = {"critic": judged - began, "align": time.perf_counter() - judged}
        return rows

    def explained(self, rows: Sequence[RewardedCompletion]) -> list[RewardedCompletion]:
        """The same rows, with feedback written by a critic that judges by numbers and writes on demand. For those that
        are logged: no reward changes."""
        explain = getattr(self.critic, "explain", None)
        scored = [index for index, row in enumerate(rows) if row.scored]
        if explain is None or not scored:
            return list(rows)
        prompts, texts = zip(*((rows[i].example.prompt, rows[i].completion.text) for i in scored), strict=True)
        found, critiques = list(rows), explain(prompts, texts, [rows[i].critique for i in scored])
        for index, critique in zip(scored, critiques, strict=True):
            found[index] = replace(rows[index], critique=critique)
        return found

    @property
    def unit(self) -> float | None:
        """What a verdict earns where the critic has a score beside its verdicts; none: rewards are not made so."""
        if self.scalar or self.scoring.rule == "paper":
            return None
        return self.slope.value if self.scoring.scale is None else self.scoring.scale

    def complaints(self, metrics: Mapping[str, float], watch: Watch, examples: Sequence[Example]) -> list[str]:
        """What the metrics say about the critic and the rewards, each said once."""
        said = []
        if metrics["critic/unscored_frac"] == 1 and watch.first_time("unscored"):
            columns = ", ".join(f"`{name}`" for name in columns_of(list(examples))) or "none"
            said.append(
                f"the critic {name_of(self.critic)} scored no completion of this update, so nothing was learned."
                f"{self.why and ' It says: ' + self.why + '.'} If it lacks what it judges by: the "
                f"columns that the examples bring it are: {columns} (docs/critics.md says what each critic needs)"
            )
        if watch.recent("reward/residual_ratio") > 1 and watch.first_time("residual"):
            said.append("span rewards add variance instead of removing it; set scoring.scale lower")
        return said

    def close(self) -> None:
        if self._loop is None:
            return
        # What a critic left behind when it failed or was interrupted: ended here, not complained about later.
        self._loop.run_until_complete(_ended(asyncio.all_tasks(self._loop)))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
        self._loop = None

    def _ask(self, examples: Sequence[Example], completions: Sequence[Completion]) -> Answers:
        prompts = [example.prompt for example in examples]
        texts = [completion.text for completion in completions]
        self._loop = self._loop or asyncio.new_event_loop()
        return self._loop.run_until_complete(ask(self.critic, prompts, texts, columns_of(list(examples))))

    def _learn(self, found: Sequence[tuple[Critique, Alignment]], among: Exchange) -> None:
        seen = Slope()
        judged = [(verdict_sum(where), said.score) for said, where in found if kind_of(said) == "score"]
        seen.see([x for x, _ in judged], [y for _, y in judged if y is not None])
        self.slope.add(among.total(torch.tensor(seen.sums, dtype=torch.float64)).numpy())

    def _rewarded(
        self, example: Example, completion: Completion, critique: Critique | None, alignment: Alignment | None
    ) -> RewardedCompletion:
        if critique is None or alignment is None:
            return RewardedCompletion(example, completion)
        rewards = token_rewards(critique, alignment, completion, self.scoring, self.slope.value)
        if self.scalar:
            rewards = on_last_token(rewards)
        return RewardedCompletion(example, completion, critique, alignment, tuple(rewards.tolist()))


async def _ended(tasks: Collection["asyncio.Task[Any]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def score_of(row: RewardedCompletion) -> float:
    """The scalar that the critic gave, or what its verdicts come to."""
    assert row.critique is not None and row.alignment is not None
    if row.critique.score is not None:
        return row.critique.score
    return total_of(row.critique, row.alignment, row.completion.text)


def verdicts_of(row: RewardedCompletion, *, ended: bool = False) -> tuple[float, ...]:
    """1, −1 or 0 a token. Where something was left out, the decision to stop is what that is about: the last token of a
    completion that `ended` by itself is poor then."""
    assert row.alignment is not None
    offsets = np.asarray(row.completion.offsets).reshape(-1, 2)
    verdicts = np.sign(project(row.alignment.spans, offsets))
    if ended and row.alignment.omissions and len(verdicts) and not verdicts[-1]:
        verdicts[-1] = -1.0
    return tuple(verdicts.tolist())


def _said(critique: Critique | None) -> Critique:
    assert critique is not None
    return critique

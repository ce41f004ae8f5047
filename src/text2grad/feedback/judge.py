"""Completions → critiques → spans → token rewards, in one torch-free call.

Enters: examples and their completions, and a critic. Leaves: one `Rollout` for each, in the same order; without
critique, alignment and rewards where the critic did not score it. `judge` is for one batch; a training loop keeps a
`RewardFunction`, which remembers the scale of verdicts from batch to batch.
"""

import time
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from text2grad._checked import shorten
from text2grad.errors import InvalidData
from text2grad.feedback.align import Pair, align_many
from text2grad.feedback.align.helpers import Question
from text2grad.feedback.align.locator import Locator
from text2grad.feedback.align.overlap import project
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.critics.named import critic_named
from text2grad.feedback.critics.protocol import Critic, Critiques, OwnLoop, ask
from text2grad.feedback.critics.words import prompt_text
from text2grad.feedback.rewards import (
    Scale,
    kind_of,
    new_scale,
    on_last_token,
    scale_of,
    scale_rows,
    token_rewards,
    total_of,
)
from text2grad.feedback.scales import RunningSpread
from text2grad.feedback.settings import CriticSettings, Scoring
from text2grad.runs.folder import Closable
from text2grad.runs.world import ALONE, World
from text2grad.types import Alignment, Completion, Critique, Example, Rollout


def judge(
    examples: Sequence[Example],
    completions: Sequence[Completion],
    critic: Critic | str,
    *,
    align: AlignSettings | None = None,
    scoring: Scoring | None = None,
    truncated: Sequence[bool] = (),
    prompt_ids: Sequence[Sequence[int]] = (),
    logprobs: Sequence[Sequence[float]] = (),
) -> list[Rollout]:
    """Ask the critic about these completions, locate what it says, and turn that into token rewards.

    `critic`: a callable, or a name as in `text2grad annotate --critic`. The scale of verdicts, where the critic gives a
    score as well, is that of this batch, or `scoring.scale`. `truncated`: which completions were cut off at the length
    limit; none if it is not given. `prompt_ids`, `logprobs`: what was sampled from, and the log-probs of the sampled
    ids; kept in the rollouts, for `text2grad.training_rows`. Completions of the same example share a group.

    >>> from text2grad.types import Quote
    >>> def critic(prompts, completions, **columns):
    ...     return [Critique("Wrong colour.", quotes=(Quote("red", "poor"),)) for _ in completions]
    >>> completion = Completion("a red car", (1, 2, 3, 0), ((0, 1), (1, 5), (5, 9), (9, 9)))
    >>> judge([Example("a", "Which car?")], [completion], critic)[0].token_rewards
    (0.0, -1.0, 0.0, 0.0)
    """
    if len(examples) != len(completions):
        raise InvalidData(f"judge: should get one example per completion, got {len(examples)} and {len(completions)}")
    for example, completion in zip(examples, completions, strict=True):
        if not isinstance(example, Example):
            raise InvalidData(f"judge: should get text2grad.Example objects, got {shorten(example)}")
        if not isinstance(completion, Completion):
            raise InvalidData(
                f"judge: should get text2grad.Completion objects, got {shorten(completion)}; "
                f"text2grad.completion_of(tokenizer, token_ids) makes them from sampled ids"
            )
    for name, given in (("truncated", truncated), ("prompt_ids", prompt_ids), ("logprobs", logprobs)):
        if len(given) not in (0, len(completions)):
            raise InvalidData(f"judge: {name} should have one entry per completion, got {len(given)}")
    named = critic_named(critic, CriticSettings()) if isinstance(critic, str) else critic
    with RewardFunction(named, align or AlignSettings(), scoring or Scoring()) as reward_function:
        judged = reward_function(examples, completions, truncated=truncated)
    groups: dict[str, int] = {}
    for index, rollout in enumerate(judged):
        group = groups.setdefault(rollout.example.id, len(groups))
        ids, probs = tuple(prompt_ids[index]) if prompt_ids else (), tuple(logprobs[index]) if logprobs else None
        judged[index] = replace(rollout, index=index, group=group, prompt_ids=ids, logprobs=probs)
    return judged


class RewardFunction(Closable):
    """A critic, how its critiques are located, and how they become rewards.

    Keeps one event loop, because the client of a model lives in the loop that it started in."""

    def __init__(
        self,
        critic: Critic,
        align: AlignSettings,
        scoring: Scoring,
        *,
        scalar: bool = False,
        locator: Locator | None = None,
    ) -> None:
        """`scalar`: put the whole sum on the last token; nothing else changes. `locator`: with its own server or
        budget; else the one that `align` names, if it names one."""
        self.critic, self.options, self.scoring, self.scalar = critic, align, scoring, scalar
        self.locator = locator or (Locator(align.locator) if align.locator is not None else None)
        self.running_scale = new_scale(scoring)
        self.running_spread = RunningSpread()
        """Both of the completions that were learned from."""
        self.reason = ""
        """Why a completion of the last call was not scored, in the critic's words, if it gave any."""
        self.seconds = {"critic": 0.0, "align": 0.0}
        """Of the last call."""
        self._loop = OwnLoop()

    def __call__(
        self,
        examples: Sequence[Example],
        completions: Sequence[Completion],
        *,
        truncated: Sequence[bool] = (),
        learn: bool = True,
        world: World = ALONE,
    ) -> list[Rollout]:
        """`learn`: let the scale of verdicts see these completions, and those of the other processes."""
        start = time.perf_counter()
        critiques = self._loop.run(self._ask(examples, completions)) if completions else Critiques([])
        asked = time.perf_counter()
        rollouts = self._rewarded(examples, completions, critiques, truncated, learn, world)
        self.seconds = {"critic": asked - start, "align": time.perf_counter() - asked}
        return rollouts

    async def within(
        self, examples: Sequence[Example], completions: Sequence[Completion], *, truncated: Sequence[bool] = ()
    ) -> list[Rollout]:
        """The same inside an event loop that runs already, as engines with async rollouts have one."""
        critiques = await self._ask(examples, completions) if completions else Critiques([])
        return self._rewarded(examples, completions, critiques, truncated, learn=True, world=ALONE)

    def _rewarded(
        self,
        examples: Sequence[Example],
        completions: Sequence[Completion],
        critiques: Critiques,
        truncated: Sequence[bool],
        learn: bool,
        world: World,
    ) -> list[Rollout]:
        if learn:
            self.reason = next(iter(critiques.reasons.values()), "")
        scored = {i: critique for i, critique in enumerate(critiques) if critique is not None}
        pairs = [Pair(completions[i], said, source=prompt_text(examples[i].prompt)) for i, said in scored.items()]
        located = align_many(pairs, locate=self.locator, settings=self.options)
        alignments = dict(zip(scored, located, strict=True))
        # Whose verdicts have a price, and which of them have the same prompt.
        priced = [i for i, said in scored.items() if kind_of(said) == "score"]
        rows = scale_rows(((scored[i], alignments[i], len(completions[i].text)) for i in priced), self.scoring)
        numbers: dict[str, int] = {}
        prompts = [numbers.setdefault(prompt_text(examples[i].prompt), len(numbers)) for i in priced]
        if learn:
            scores = [total_of(said, alignments[i], completions[i].text) for i, said in scored.items()]
            gathered = world.all_gather((rows, prompts, scores))
            low, high = self.running_spread.see(*(part for *_, part in gathered))
            for part, own, _ in gathered:
                self.running_scale.see([(*sums, min(max(score, low), high)) for *sums, score in part], own)
        running = self.running_scale
        if not running.count:
            # Before the first update there is nothing but these.
            running = new_scale(self.scoring)
            running.see(rows, prompts)
        worth = scale_of(running, self.scoring)
        cut_off = truncated or [False] * len(completions)
        return [
            self._rollout(example, completion, scored.get(i), alignments.get(i), cut, worth)
            for i, (example, completion, cut) in enumerate(zip(examples, completions, cut_off, strict=True))
        ]

    @property
    def begins(self) -> bool:
        """Whether the critic can judge in the background: it has `begin(prompt, completion, **row)`."""
        return callable(getattr(self.critic, "begin", None))

    def begin(self, example: Example, completion: Completion) -> None:
        """Let the critic start on a completion while others are sampled. The next call is asked about it, too."""
        columns = {name: values[0] for name, values in columns_of([example]).items()}
        self.critic.begin(example.prompt, completion.text, **columns)  # type: ignore[attr-defined]

    @property
    def asked(self) -> tuple[Critic | Locator, ...]:
        """Who may cost something: the critic, and the locator where there is one."""
        return (self.critic,) if self.locator is None else (self.critic, self.locator)

    @property
    def scale(self) -> Scale | None:
        """Reward of a verdict where the critic gives a score as well; None where rewards are not made so."""
        if self.scalar or self.scoring.rule == "paper":
            return None
        return scale_of(self.running_scale, self.scoring) if self.scoring.scale is None else self.scoring.scale

    @property
    def spread(self) -> float:
        """What the update divides rewards by."""
        divided = self.scoring.normalize and self.scoring.rule != "paper"
        return self.running_spread.value if divided else 1.0

    def explain(self, rollouts: Sequence[Rollout]) -> list[Rollout]:
        """Let a critic that judges by numbers write its feedback, for rollouts that are logged. No reward changes."""
        write = getattr(self.critic, "explain", None)
        scored = [i for i, rollout in enumerate(rollouts) if rollout.scored]
        if write is None or not scored:
            return list(rollouts)
        prompts = [rollouts[i].example.prompt for i in scored]
        texts = [rollouts[i].completion.text for i in scored]
        critiques = dict(zip(scored, write(prompts, texts, [rollouts[i].critique for i in scored]), strict=True))
        return [replace(one, critique=critiques.get(i, one.critique)) for i, one in enumerate(rollouts)]

    def probe(self, model: Critic, example: Example) -> None:
        """Ask a critic in this one about a single example: a wrong key or address is found now. Its reply is
        remembered, not used."""
        if self.locator is not None and model is self.locator.model:
            self.locator([Question(example.reference or prompt_text(example.prompt), "Is this right?")])
            return
        self._loop.run(ask(model, [example.prompt], [example.reference or ""], columns_of([example])))

    def close(self) -> None:
        self._loop.close()
        if self.locator is not None:
            self.locator.close()

    def _ask(self, examples: Sequence[Example], completions: Sequence[Completion]) -> Coroutine[Any, Any, Any]:
        prompts = [example.prompt for example in examples]
        return ask(self.critic, prompts, [completion.text for completion in completions], columns_of(examples))

    def _rollout(
        self,
        example: Example,
        completion: Completion,
        critique: Critique | None,
        alignment: Alignment | None,
        truncated: bool,
        worth: Scale,
    ) -> Rollout:
        if critique is None or alignment is None:
            return Rollout(example, completion, truncated=truncated)
        rewards = token_rewards(critique, alignment, completion, self.scoring, worth)
        if self.scalar:
            rewards = on_last_token(rewards)
        return Rollout(
            example,
            completion,
            truncated=truncated,
            critique=critique,
            alignment=alignment,
            token_rewards=tuple(rewards.tolist()),
            verdicts=token_verdicts(completion, alignment, ended=not truncated),
            score=critique.score if critique.score is not None else total_of(critique, alignment, completion.text),
        )


def token_verdicts(completion: Completion, alignment: Alignment, *, ended: bool) -> tuple[float, ...]:
    """1, −1 or 0 for each token. If something was left out and the completion `ended` by itself, its last token, the
    decision to stop, is poor."""
    offsets = np.asarray(completion.offsets).reshape(-1, 2)
    verdicts = np.sign(project(alignment.spans, offsets))
    if ended and alignment.omissions and len(verdicts) and not verdicts[-1]:
        verdicts[-1] = -1.0
    return tuple(verdicts.tolist())


def columns_of(examples: Sequence[Example]) -> dict[str, list[Any]]:
    """What critics take by name, one list per column; None where an example lacks it."""
    names = dict.fromkeys(name for example in examples for name in example.columns)
    columns = {name: [example.columns.get(name) for example in examples] for name in names}
    own = [example.reference for example in examples]
    if any(text is not None for text in own):
        others = columns.get("reference", own)
        columns["reference"] = [text if text is not None else other for text, other in zip(own, others, strict=True)]
    return columns

"""Which of two texts is better, by a model behind an OpenAI-compatible server: pairwise, in both orders.

Enters: prompts and two texts for each. Leaves: `Verdicts`. A judge that prefers whatever stands first contradicts
itself when the texts change places, and then the pair is a tie. Nothing is asked about two equal texts.
"""

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from text2grad.errors import CriticError, InvalidData
from text2grad.evaluation.named import references_of
from text2grad.feedback.critics.budget import Budget
from text2grad.feedback.critics.openai import OpenAICritic
from text2grad.feedback.critics.words import prompt_text
from text2grad.feedback.settings import OpenAISettings
from text2grad.report.differences import wilson
from text2grad.runs import read_jsonl
from text2grad.types import Rollout

ASKED = """Two answers to the same request follow. Decide which one is better: more correct, more complete, better put.
Ignore which one comes first. A longer answer is not better because it is longer.

Request:
{prompt}

Answer A:
{first}

Answer B:
{second}

Reply with one JSON object and nothing else: {{"better": "A"}}, {{"better": "B"}} or {{"better": "tie"}}."""
_BETTER = re.compile(r'"better"\s*:\s*"(A|B|tie)"', re.IGNORECASE)
_BARE = re.compile(r"\W*(A|B|tie)\W*", re.IGNORECASE)


@dataclass(frozen=True)
class Verdicts:
    """Over all pairs: 1 where ours wins in both orders, 0 where it loses in both, else one half."""

    judge: str
    each: list[float | None]
    """None: a reply could not be read, so the pair does not count."""

    @property
    def counted(self) -> list[float]:
        return [value for value in self.each if value is not None]

    def to_json(self) -> dict[str, Any]:
        counted = self.counted
        rate = sum(counted) / len(counted) if counted else None
        low, high = wilson(sum(counted), len(counted)) if counted else (None, None)
        return {
            "judge": self.judge,
            "win_rate": rate,
            "low": low,
            "high": high,
            "wins": sum(value > 0.5 for value in counted),
            "losses": sum(value < 0.5 for value in counted),
            "ties": counted.count(0.5),
            "unreadable": len(self.each) - len(counted),
        }


def judge_named(name: str, options: OpenAISettings, budget: Budget | None = None) -> OpenAICritic:
    """`name`: openai:MODEL. `budget`: where it is shared by several rounds of questions."""
    kind, _, model = name.partition(":")
    if kind != "openai" or not model:
        raise CriticError(f"judge should be openai:MODEL, got {name!r}")
    return OpenAICritic(model, replace(options, structured=False), budget)


def judge_pairs(
    name: str,
    options: OpenAISettings,
    prompts: Sequence[str],
    ours: Sequence[str],
    theirs: Sequence[str],
    budget: Budget | None = None,
) -> Verdicts:
    """Asks twice about each pair, the second time with the texts in each other's place."""
    critic = judge_named(name, options, budget)
    asked = [place for place, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a.strip() != b.strip()]
    chats = [
        [{"role": "user", "content": ASKED.format(prompt=prompts[place], first=first, second=second)}]
        for place in asked
        for first, second in ((ours[place], theirs[place]), (theirs[place], ours[place]))
    ]
    replies = asyncio.run(critic.answers(chats))
    each: list[float | None] = [0.5] * len(ours)
    for turn, place in enumerate(asked):
        first, second = (_read(reply) for reply in replies[2 * turn : 2 * turn + 2])
        # In the second order ours is B.
        each[place] = None if first is None or second is None else (first + 1 - second) / 2
    values = [None if value is None else 1.0 if value > 0.5 else 0.0 if value < 0.5 else 0.5 for value in each]
    return Verdicts(name, values)


def _read(reply: str | None) -> float | None:
    """What a reply says for A: 1, 0, or one half. None where it says nothing, or several things.

    >>> _read('{"better": "A"}'), _read("**B**"), _read("Tie."), _read("Both are good answers.")
    (1.0, 0.0, 0.5, None)
    >>> _read('{"better": "A"} or {"better": "B"}? I cannot say.')
    """
    bare = _BARE.fullmatch(reply or "")
    said = {word.lower() for word in ([bare[1]] if bare else _BETTER.findall(reply or ""))}
    return {"a": 1.0, "b": 0.0, "tie": 0.5}[said.pop()] if len(said) == 1 else None


def against(name: str, settings: Any, rollouts: Sequence[Rollout]) -> Verdicts:
    """The judge on these completions and what the settings name: their first references, or another model's texts."""
    texts = {rollout.example.id: next(iter(references_of(rollout.example)), None) for rollout in rollouts}
    if settings.against != "reference":
        rows = [row for row in read_jsonl(settings.against) if row.get("part", "greedy") == "greedy"]
        try:
            texts = {row["example"]["id"]: row["completion"]["text"] for row in rows}
        except (LookupError, TypeError):
            raise InvalidData(f"{settings.against}: should be a file of evaluate --rollouts") from None
    if lacking := [rollout.example.id for rollout in rollouts if texts.get(rollout.example.id) is None]:
        raise InvalidData(
            f"judge: there is nothing to compare example {json.dumps(lacking[0])} with in {settings.against}"
        )
    return judge_pairs(
        name,
        settings.critics.openai,
        [prompt_text(rollout.example.prompt) for rollout in rollouts],
        [rollout.completion.text for rollout in rollouts],
        [str(texts[rollout.example.id]) for rollout in rollouts],
    )

"""A model behind an OpenAI-compatible server as the judge: which of two texts is better, or a grade for each text.

Enters: prompts and two texts for each. Leaves: `Verdicts`. A judge that prefers whatever stands first contradicts
itself when the texts change places, and then the pair is a tie. Nothing is asked about two equal texts.
Or enters: rollouts. Leaves: `Grades`, from 1 to 10, as MT-Bench has them; where an example has a reference, the judge
sees it.
"""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, stdev
from typing import Any

from text2grad.errors import CriticError, InvalidData
from text2grad.evaluation.named import references_of
from text2grad.feedback.critics.budget import Budget
from text2grad.feedback.critics.openai import OpenAICritic
from text2grad.feedback.critics.words import prompt_text
from text2grad.feedback.settings import OpenAISettings
from text2grad.report.differences import wilson
from text2grad.runs import read_jsonl
from text2grad.types import Example, Rollout

ASKED = """Two answers to the same request follow. Decide which one is better: more correct, more complete, better put.
Ignore which one comes first. A longer answer is not better because it is longer.

Request:
{prompt}

Answer A:
{first}

Answer B:
{second}

Reply with one JSON object and nothing else: {{"better": "A"}}, {{"better": "B"}} or {{"better": "tie"}}."""
GRADED = """Grade the last answer of a conversation: how helpful, correct and complete it is. A longer answer is not
better because it is longer.

{conversation}{reference}
Answer to grade:
{answer}

Reply with one JSON object and nothing else: {{"grade": N}}, a whole number from 1 (useless) to 10
(nothing is missing)."""
_GRADE = re.compile(r'"(?:grade|rating|score)"\s*:\s*"?(\d+(?:\.\d+)?)|\[\[(\d+(?:\.\d+)?)\]\]')
_BARE_GRADE = re.compile(r"\W*(\d+(?:\.\d+)?)\W*(?:/\s*10\W*)?")
_BETTER = re.compile(r'"better"\s*:\s*"(A|B|tie)"', re.IGNORECASE)
_BARE = re.compile(r"\W*(A|B|tie)\W*", re.IGNORECASE)


@dataclass(frozen=True)
class Verdicts:
    """Over all pairs: 1 where ours wins, 0 where it loses, one half where it does neither over both orders."""

    judge: str
    each: list[float | None]
    """None: a reply could not be read, so the pair does not count."""

    def to_json(self) -> dict[str, Any]:
        counted = [value for value in self.each if value is not None]
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


@dataclass(frozen=True)
class Grades:
    """One grade for each completion of each turn."""

    judge: str
    each: dict[str, list[float | None]]
    """Turn → grades in the order of its completions. None: the reply held no grade from 1 to 10."""
    categories: dict[str, list[str]]
    """Turn → what the example's column `category` says."""

    def to_json(self) -> dict[str, Any]:
        counted = [grade for grades in self.each.values() for grade in grades if grade is not None]
        named: dict[str, list[float]] = {}
        for turn, grades in self.each.items():
            for grade, category in zip(grades, self.categories[turn], strict=True):
                if grade is not None and category:
                    named.setdefault(category, []).append(grade)
        return {
            "judge": self.judge,
            "grade": mean(counted) if counted else None,
            # Of the mean; turns of one example are not independent, so this is a little narrow where there are several.
            "error": stdev(counted) / len(counted) ** 0.5 if len(counted) > 1 else None,
            "graded": len(counted),
            "unreadable": sum(map(len, self.each.values())) - len(counted),
            "turns": {turn: _mean(grades) for turn, grades in self.each.items()},
            "categories": {category: mean(grades) for category, grades in sorted(named.items())},
        }


def _mean(grades: Sequence[float | None]) -> float | None:
    return mean(counted) if (counted := [grade for grade in grades if grade is not None]) else None


def grade(name: str, options: OpenAISettings, turns: Mapping[str, Sequence[Rollout]]) -> Grades:
    """Asks once about each completion of each turn."""
    critic = judge_named(name, options)
    rollouts = [rollout for some in turns.values() for rollout in some]
    replies = iter(asyncio.run(critic.answers([[{"role": "user", "content": _grading(each)}] for each in rollouts])))
    return Grades(
        name,
        {turn: [_read_grade(next(replies)) for _ in some] for turn, some in turns.items()},
        {turn: [str(each.example.columns.get("category") or "") for each in some] for turn, some in turns.items()},
    )


def _grading(rollout: Rollout) -> str:
    prompt, reference = rollout.example.prompt, rollout.example.reference
    turns = [("user", prompt)] if isinstance(prompt, str) else [(turn.role, turn.content) for turn in prompt]
    said = "".join(f"{role.capitalize()}:\n{text}\n\n" for role, text in turns)
    known = f"A good answer, for comparison:\n{reference}\n\n" if reference else ""
    return GRADED.format(conversation=said, reference=known, answer=rollout.completion.text)


def _read_grade(reply: str | None) -> float | None:
    """
    >>> _read_grade('{"grade": 7}'), _read_grade("Rating: [[8.5]]"), _read_grade("9/10"), _read_grade("Good!")
    (7.0, 8.5, 9.0, None)
    >>> _read_grade('{"grade": 11}'), _read_grade('{"grade": 2} {"grade": 9}')
    (None, None)
    """
    said = _answer(reply)
    bare = _BARE_GRADE.fullmatch(said)
    found = {float(bare[1])} if bare else {float(a or b) for a, b in _GRADE.findall(said)}
    return found.pop() if len(found) == 1 and 1 <= min(found) <= 10 else None


def _answer(reply: str | None) -> str:
    """What comes after a model's reasoning, where the server sends both."""
    return (reply or "").rpartition("</think>")[2]


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
        if first is None or second is None:
            each[place] = None
        elif first != second:
            each[place] = float(first > second)  # in the second order, ours is B
    return Verdicts(name, each)


def _read(reply: str | None) -> float | None:
    """What a reply says for A: 1, 0, or one half. None where it says nothing, or several things.

    >>> _read('{"better": "A"}'), _read("**B**"), _read("Tie."), _read("Both are good answers.")
    (1.0, 0.0, 0.5, None)
    >>> _read('{"better": "A"} or {"better": "B"}? I cannot say.')
    """
    answer = _answer(reply)
    bare = _BARE.fullmatch(answer)
    said = {word.lower() for word in ([bare[1]] if bare else _BETTER.findall(answer))}
    return {"a": 1.0, "b": 0.0, "tie": 0.5}[said.pop()] if len(said) == 1 else None


def texts_against(source: str, examples: Sequence[Example]) -> dict[str, str]:
    """Example's id → what the judge compares with: its first reference, or another model's text in a file."""
    if source == "reference":
        texts: dict[str, Any] = {example.id: next(iter(references_of(example)), None) for example in examples}
    else:
        try:
            rows = [row for row in read_jsonl(source) if row.get("part", "greedy") == "greedy"]
            texts = {row["example"]["id"]: row["completion"]["text"] for row in rows}
        except (LookupError, TypeError, AttributeError):
            raise InvalidData(f"{source}: should be a file of evaluate --rollouts") from None
    if lacking := [example.id for example in examples if not isinstance(texts.get(example.id), str)]:
        raise InvalidData(f"judge: there is nothing to compare example {json.dumps(lacking[0])} with in {source}")
    return texts


def against(name: str, options: OpenAISettings, texts: Mapping[str, str], rollouts: Sequence[Rollout]) -> Verdicts:
    """The judge on these completions and what they are compared with, by their examples' ids."""
    return judge_pairs(
        name,
        options,
        [prompt_text(rollout.example.prompt) for rollout in rollouts],
        [rollout.completion.text for rollout in rollouts],
        [texts[rollout.example.id] for rollout in rollouts],
    )

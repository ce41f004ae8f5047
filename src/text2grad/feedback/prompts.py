"""What a model critic is asked: one instruction, one line on what matters for each task, one shape for the reply.

Enters: prompt, completion and what else is known of them, as text. Leaves: chat messages and the JSON schema of the
reply. The same words go to every server, and they are part of the cache key: a changed prompt is a new question.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from text2grad.types import Message

TASKS = {
    "summarization": (
        "The completion is a summary. Judge whether every statement in it is supported by the text it summarises "
        "(numbers, names, dates, who did what), whether the main points are there, and whether it repeats itself."
    ),
    "code": (
        "The completion is a program or a part of one. Judge whether it does what was asked: wrong logic, missing edge "
        "cases, undefined names, wrong calls. Style matters only where it hides a fault. Quote code exactly, "
        "indentation included."
    ),
    "qa": (
        "The completion answers a question. Judge whether it is right, whether the passages (if given) support each "
        "statement, whether it answers what was asked, and whether something that the reader needs is missing."
    ),
    "general": "Judge whether the completion does what the prompt asks, correctly, completely and without padding.",
}

_INSTRUCTION = """You review text that a language model wrote, so that it can learn from what you say.
{task}

First think: go through the completion statement by statement. Then write a critique of a few plain sentences, and point
at the words it is about with at most {most} short quotes. A quote is copied from the completion character by character,
as short as still says what is meant (a number, a name, a phrase, a line of code), never paraphrased, never from the
prompt. Give each a verdict, `good` or `poor` (`neutral` if you only mention it), and a severity from 0.1 (a trifle) to
1 (it ruins the completion). What should be there and is not has no quote: list it under omissions. Praise only what
earns it.
The score is for the whole completion, from 0 (useless) to 1 (could not be better).

Reply with one JSON object and nothing else, its keys in this order:
{{"reasoning": "…", "critique": "…", "quotes": [{{"text": "…", "verdict": "poor", "severity": 0.5, "comment": "…"}}],
 "omissions": ["…"], "score": 0.5}}"""

_REPAIR = (
    "That was not one JSON object of the shape asked for ({reason}). Reply again with the same judgement as one valid "
    "JSON object with the keys reasoning, critique, quotes, omissions and score, and nothing else."
)

_QUOTE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "verdict": {"type": "string", "enum": ["good", "poor", "neutral"]},
        "severity": {"type": "number"},
        "comment": {"type": "string"},
    },
    "required": ["text", "verdict", "severity", "comment"],
    "additionalProperties": False,
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "reasoning": {"type": "string"},
        "critique": {"type": "string"},
        "quotes": {"type": "array", "items": _QUOTE},
        "omissions": {"type": "array", "items": {"type": "string"}},
        "score": {"type": "number"},
    },
    "required": ["reasoning", "critique", "quotes", "omissions", "score"],
    "additionalProperties": False,
}


def messages_for(
    task: str,
    prompt: str | Sequence[Message],
    completion: str,
    extras: Mapping[str, object],
    most_quotes: int,
    rubric: str = "",
) -> list[dict[str, str]]:
    """The chat to send. `task`: one of `TASKS`, or an instruction in somebody's own words. The tags around each part
    carry a mark that no part can know, so none passes for another."""
    parts = [("prompt", _as_text(prompt)), *((name, _as_text(value)) for name, value in extras.items() if value)]
    parts.append(("completion", completion))
    mark = hashlib.sha256("\0".join(text for _, text in parts).encode("utf-8", "replace")).hexdigest()[:8]
    body = "\n\n".join(f"<{name} {mark}>\n{text}\n</{name} {mark}>" for name, text in parts)
    judged = TASKS.get(task, task) + (f"\nThe score follows this rubric:\n{rubric}" if rubric else "")
    instruction = _INSTRUCTION.format(task=judged, most=most_quotes)
    return [{"role": "system", "content": instruction}, {"role": "user", "content": body}]


def repair_messages(messages: list[dict[str, str]], reply: str, reason: str) -> list[dict[str, str]]:
    """The same chat, with what came and what was wrong with it."""
    again = _REPAIR.format(reason=reason)
    return [*messages, {"role": "assistant", "content": reply or "(nothing)"}, {"role": "user", "content": again}]


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Message):
        return f"{value.role}: {value.content}"
    if isinstance(value, Sequence):
        return "\n\n".join(map(_as_text, value))
    return str(value)

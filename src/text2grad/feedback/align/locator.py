"""A model behind any OpenAI-compatible server as a locator: it quotes the words that a given critique is about.

Enters: questions. Leaves: quotes for each, none where it points at nothing, its reply cannot be read, the server
refuses this one question, or the budget is spent; all of that is counted. Requests, retries, cache and budget are
those of the model critic. It judges nothing: `helpers.located` checks every quote against the completion.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from text2grad.errors import BudgetSpent, ConfigError, CriticError
from text2grad.feedback import prompts
from text2grad.feedback.align.helpers import Question
from text2grad.feedback.align.locate import locate
from text2grad.feedback.align.settings import AlignSettings, QuoteSettings
from text2grad.feedback.critics.budget import Budget, counted
from text2grad.feedback.critics.openai import OpenAICritic
from text2grad.feedback.critics.protocol import OwnLoop
from text2grad.feedback.settings import CriticSettings, OpenAISettings
from text2grad.feedback.text import Text
from text2grad.runs import Closable
from text2grad.types import Quote

_LONGEST = 100_000
"""Characters of a reply that are read; a few quotes are never that long."""
_WHY = {
    "nowhere": "it pointed at no words of the completion",
    "unreadable": "its reply could not be read, nor a second one",
    "refused": "the server refused",
    "spent": "the budget was spent",
}
"""Why a critique is left to the ladder."""


def locator_of(align: AlignSettings, critics: CriticSettings, budget: Budget | None = None) -> "Locator | None":
    """The locator that the settings name, if they name one. `budget`: what it shares with model critics."""
    return None if align.locator is None else Locator(align.locator, critics.openai, budget)


class Locator(Closable):
    """`Locator("openai:gpt-5-mini")` is what `align(…, locate=)` takes. `with` closes it.

    `options`: server, key, cache, concurrency; without them the environment's. `budget`: where it is shared."""

    def __init__(self, name: str, options: OpenAISettings | None = None, budget: Budget | None = None) -> None:
        kind, _, model = name.partition(":")
        if kind != "openai" or not model:
            raise ConfigError(f"align.locator should be openai:MODEL, got {name!r}")
        self.model = OpenAICritic(model, options or OpenAISettings(), budget, prompts.LOCATED)
        self.critics = (self.model,)
        """What costs something: `models_in` looks here."""
        self.counts: Counter[str] = Counter()
        """`located`, and by the words of `_WHY` what was left to the ladder."""
        self._loop = OwnLoop()

    def __call__(self, questions: Sequence[Question]) -> list[tuple[Quote, ...]]:
        return self._loop.run(self.ask(questions))

    async def ask(self, questions: Sequence[Question]) -> list[tuple[Quote, ...]]:
        """The same, awaited. A reply that cannot be read is asked for once more."""
        most = self.model.options.most_quotes
        chats = [prompts.locate_messages(q.completion, q.critique, q.source, most) for q in questions]
        read = [_read(reply) for reply in await self.model.replies(chats)]
        broken = [index for index, found in enumerate(read) if isinstance(found, _Unreadable)]
        if broken:
            repairs = [prompts.repair_messages(chats[i], read[i].text, read[i].why, "quotes") for i in broken]  # type: ignore[union-attr]
            for index, reply in zip(broken, await self.model.replies(repairs), strict=True):
                read[index] = _read(reply)
        return [self._counted(q, found, most) for q, found in zip(questions, read, strict=True)]

    def _counted(self, question: Question, found: "_Found", most: int) -> tuple[Quote, ...]:
        if not isinstance(found, tuple):
            self.counts["unreadable" if isinstance(found, _Unreadable) else found] += 1
            return ()
        quotes, text = found[:most], Text(question.completion)
        lands = any(locate(text, quote.text, QuoteSettings())[0] for quote in quotes)
        self.counts["located" if lands else "nowhere"] += 1
        return quotes

    def __str__(self) -> str:
        asked, located = self.counts.total(), self.counts["located"]
        told = f"the locator {self.model.__name__} located {located:,} of {counted(asked, 'critique')}"
        left = [f"{self.counts[why]:,} because {words}" for why, words in _WHY.items() if self.counts[why]]
        return f"{told}; left to the ladder: {', '.join(left)}" if left else told

    def close(self) -> None:
        self._loop.close()


class _Unreadable:
    def __init__(self, text: str, why: str) -> None:
        self.text, self.why = text, why


_Found = tuple[Quote, ...] | _Unreadable | str
"""Quotes, a reply that cannot be read, or another reason of `_WHY`."""


def _read(reply: dict[str, Any] | CriticError) -> _Found:
    if isinstance(reply, CriticError):
        return "spent" if isinstance(reply, BudgetSpent) else "refused"
    text = reply["text"][:_LONGEST].encode("utf-8", "replace").decode()
    if reply["cut"]:
        return _Unreadable(text, "it was cut off at the length limit; be brief")
    try:
        return read_quotes(text)
    except ValueError as problem:
        return _Unreadable(text, str(problem))


def read_quotes(text: str) -> tuple[Quote, ...]:
    """The quotes in a reply: one JSON object, perhaps after thoughts or in a code fence. `ValueError` says what it is
    instead. Quotes without a letter or digit are dropped; all others are checked against the completion later.

    >>> [quote.text for quote in read_quotes('{"quotes": [{"text": "nine", "about": "the count", "verdict": "poor"}]}')]
    ['nine']
    >>> read_quotes("The critique is about the ships.")
    Traceback (most recent call last):
    ValueError: it holds no JSON object
    """
    body = text.rpartition("</think>")[2].strip()
    if fenced := re.fullmatch(r"```(?:json)?\s*(.*?)\s*```", body, re.DOTALL | re.IGNORECASE):
        body = fenced[1]
    if "{" not in body:
        raise ValueError("it holds no JSON object")
    body = body[body.index("{") :]
    try:
        value, end = json.JSONDecoder().raw_decode(body)
    except (ValueError, RecursionError):
        raise ValueError("it is not one whole JSON object") from None
    if "{" in body[end:]:  # words may follow, but not another object
        raise ValueError("it is not one whole JSON object")
    items = value.get("quotes")
    if not isinstance(items, list):
        raise ValueError("`quotes` should be a list")
    return tuple(quote for item in items if (quote := _quote(item)) is not None)


def _quote(item: object) -> Quote | None:
    if not isinstance(item, dict) or item.get("verdict") not in ("good", "poor", "neutral"):
        raise ValueError("each quote should be an object with text, about and verdict (good, poor or neutral)")
    text, about = item.get("text"), item.get("about")
    if not isinstance(text, str) or not isinstance(about, str | None):
        raise ValueError("`text` and `about` should be texts")
    # A mark alone ("." or "—") points nowhere.
    pointing = any(character.isalnum() for character in text)
    return Quote(text, item["verdict"], comment=about or "") if pointing else None

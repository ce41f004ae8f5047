"""What a model critic may spend, what it has spent, and what a file will cost: requests, tokens, money.

Counts only; knows no server and no file. Before a request is sent, the most that it may cost is set aside, so that
requests under way together stay within the limits, too; when its reply has come, what it did cost takes that place. A
request that got no reply (it was lost, or its process was killed) counts as what was set aside for it. A `journal`,
where there is one, is told of each step before it is taken, and gives the count back after a kill.
"""

import asyncio
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import Ge

from text2grad._checked import Int, Real
from text2grad.config import settings
from text2grad.errors import BudgetSpent, InvalidData

CHARACTERS_PER_TOKEN = 3.5
"""For estimates, on the safe side of English prose; the tally uses the server's own counts where it gives them."""


@settings
class BudgetSettings:
    requests: Annotated[Int, Ge(0)] | None = None
    """Requests at most for one output file, retries, repairs and earlier runs included; none: no limit."""
    tokens: Annotated[Int, Ge(0)] | None = None
    """Tokens at most, in and out together, likewise; none: no limit."""
    money: Annotated[Real, Ge(0)] | None = None
    """Money at most, in the currency of the prices, likewise; none: no limit."""
    price_in: Annotated[Real, Ge(0)] = 0.0
    """Price of a million tokens that are sent."""
    price_out: Annotated[Real, Ge(0)] = 0.0
    """Price of a million tokens that come back."""

    def __post_init__(self) -> None:
        if self.money is not None and not self.price_in and not self.price_out:
            raise ValueError(
                "money: limits nothing without prices; set price_in and price_out to what a million tokens cost, or "
                "limit requests or tokens"
            )


@dataclass(frozen=True, slots=True)
class Cost:
    """Tokens of a request, sent and received."""

    tokens_in: int
    tokens_out: int


def most_of(question: Mapping[str, Any], beside: int = 0) -> Cost:
    """What a question may cost: what is sent, estimated from its length (with so many characters beside the messages),
    and the longest reply that it allows."""
    return Cost(_tokens(len(json.dumps(question["messages"])) + beside), question["max_tokens"])


def cost_of(question: Mapping[str, Any], reply: Mapping[str, Any]) -> Cost:
    """What a reply did cost, by the server's count where it gives one, else by the length of the text."""
    sent, came = reply["tokens_in"], reply["tokens_out"]
    return Cost(
        sent if sent is not None else _tokens(len(json.dumps(question["messages"]))),
        came if came is not None else _tokens(len(reply["text"])),
    )


@dataclass
class Tally:
    """What has been spent so far, and what is set aside for requests under way."""

    settings: BudgetSettings
    journal: Callable[[dict[str, Any]], None] | None = None
    """Takes entries that `restore` understands; durable, as far as it can, when it returns."""
    requests: int = 0
    retries: int = 0
    recalled: int = 0
    """Questions whose reply was remembered, in this run: free."""
    refused: int = 0
    """Questions that the server would not answer."""
    lost: int = 0
    """Requests that got no reply, counted as what was set aside for them."""
    earlier: int = 0
    """Requests of earlier runs, among all."""
    tokens_in: int = 0
    tokens_out: int = 0
    _aside: dict[int, Cost] = field(default_factory=dict)
    _waiting: list["asyncio.Future[None]"] = field(default_factory=list)

    async def reserve(self, most: Cost, again: bool = False) -> int:
        """Set aside what a request may cost, and give its number. Where that is too much as long as others are under
        way, wait for them: they may cost less than was set aside. Where nothing is left to wait for: `BudgetSpent`."""
        while (problem := self._over(most)) is not None:
            if not self._aside or problem[0] == "requests":
                raise BudgetSpent(self._spent(*problem))
            woken = asyncio.get_running_loop().create_future()
            self._waiting.append(woken)
            await woken
        self.requests += 1
        self.retries += again
        number = self.requests
        self._note({"sent": number, "again": again, "most": [most.tokens_in, most.tokens_out]})
        self._aside[number] = most
        return number

    def settle(self, number: int, cost: Cost | None) -> None:
        """A request has come to its end: what it cost, or None where nobody knows."""
        most = self._aside.pop(number)
        cost, known = cost or most, cost is not None
        self._note({"done": number, "cost": [cost.tokens_in, cost.tokens_out], "known": known})
        self.lost += not known
        self._add(cost)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    def refuse(self) -> None:
        """Count a question that the server would not answer."""
        self.refused += 1
        self._note({"refused": 1})

    def restore(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Count what a journal tells of earlier runs; what was under way when they were killed counts in full."""
        open_: dict[int, Cost] = {}
        try:
            for entry in entries:
                if "total" in entry:
                    for name in _TOTALS:
                        setattr(self, name, getattr(self, name) + int(entry["total"][name]))
                elif "sent" in entry:
                    open_[entry["sent"]] = Cost(*map(int, entry["most"]))
                    self.requests += 1
                    self.retries += bool(entry["again"])
                elif "done" in entry:
                    open_.pop(entry["done"])
                    self._add(Cost(*map(int, entry["cost"])))
                    self.lost += not entry["known"]
                else:
                    self.refused += int(entry["refused"])
        except (LookupError, TypeError, ValueError) as problem:
            raise InvalidData(f"should be what was spent in earlier runs: {type(problem).__name__} {problem}") from None
        for most in open_.values():
            self.lost += 1
            self._add(most)
        self.earlier = self.requests

    def total(self) -> dict[str, Any]:
        """All of it as one entry of a journal."""
        return {"total": {name: getattr(self, name) for name in _TOTALS}}

    @property
    def money(self) -> float:
        return self._price(self.tokens_in, self.tokens_out)

    def _price(self, tokens_in: int, tokens_out: int) -> float:
        return (tokens_in * self.settings.price_in + tokens_out * self.settings.price_out) / 1e6

    def _add(self, cost: Cost) -> None:
        self.tokens_in += cost.tokens_in
        self.tokens_out += cost.tokens_out

    def _note(self, entry: dict[str, Any]) -> None:
        if self.journal is not None:
            self.journal(entry)

    def _over(self, most: Cost) -> tuple[str, float, float, float] | None:
        """The limit that one more request might pass: (name, spent, limit, what this one may take)."""
        limits = self.settings
        if limits.requests is None and limits.tokens is None and limits.money is None:
            return None
        aside_in = sum(cost.tokens_in for cost in self._aside.values())
        aside_out = sum(cost.tokens_out for cost in self._aside.values())
        money = self._price(aside_in, aside_out)
        for name, limit, spent, aside, wanted in (
            ("requests", limits.requests, self.requests, 0, 1),
            ("tokens", limits.tokens, self.tokens_in + self.tokens_out, aside_in + aside_out, sum_of(most)),
            ("money", limits.money, self.money, money, self._price(most.tokens_in, most.tokens_out)),
        ):
            if limit is not None and spent + aside + wanted > limit:
                return name, spent, limit, wanted
        return None

    def _spent(self, name: str, spent: float, limit: float, wanted: float) -> str:
        before = f", {self.earlier:,} requests of earlier runs included" if self.earlier else ""
        return (
            f"the budget is spent: {spent:,.6g} of {limit:,.6g} {name}{before}, and the next request may take "
            f"{wanted:,.6g}. What arrived is kept; to go on, raise critics.openai.budget.{name} to at least "
            f"{spent + wanted:,.6g} and run the same command again"
        )

    def __str__(self) -> str:
        parts = [f"{self.requests:,} requests ({self.retries:,} of them again)", f"{self.recalled:,} remembered"]
        parts.append(f"{self.tokens_in:,} tokens in and {self.tokens_out:,} out")
        parts += [f"{self.refused:,} refused"] if self.refused else []
        parts += [f"{self.lost:,} lost and counted in full"] if self.lost else []
        if self.settings.price_in or self.settings.price_out:
            parts.append(f"{self.money:.4f} money")
        parts += [f"{self.earlier:,} of the requests in earlier runs"] if self.earlier else []
        return ", ".join(parts)


_TOTALS = ("requests", "retries", "refused", "lost", "tokens_in", "tokens_out")


def sum_of(cost: Cost) -> int:
    return cost.tokens_in + cost.tokens_out


def estimate(characters_in: int, items: int, tokens_out_each: int, limits: BudgetSettings) -> str:
    """In words, before the first request: about so much, if nothing is remembered and nothing fails."""
    tokens_in = math.ceil(characters_in / CHARACTERS_PER_TOKEN)
    tokens_out = items * tokens_out_each
    text = f"about {items:,} requests, {tokens_in:,} tokens in and at most {tokens_out:,} out"
    if limits.price_in or limits.price_out:
        text += f", at most {(tokens_in * limits.price_in + tokens_out * limits.price_out) / 1e6:.4f} money"
    return text


def _tokens(characters: int) -> int:
    return math.ceil(characters / CHARACTERS_PER_TOKEN)

"""What a model critic may spend, has spent, and will spend: requests, tokens, money.

Before a request is sent, the most that it may cost is set aside, so that requests in flight together stay within the
limits, too; when its reply has come, the real cost takes that place. A request without a reply (it was lost, or its
process was killed) counts as what was set aside for it.

A budget may be kept in a file beside an output (`OUT.jsonl.spent`): each request is written there before it is sent,
and its cost when it is known. So the count survives `kill -9` and covers all runs on that output. Lines are left to the
system, not synced: twice per request, that would cost more than it saves.
"""

import asyncio
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from text2grad.errors import BudgetSpent, InvalidData, RunError
from text2grad.feedback.settings import BudgetSettings
from text2grad.runs import Jsonl, read_jsonl

CHARACTERS_PER_TOKEN = 3.5
"""For estimates, on the safe side of English prose; the server's own counts are used where it gives them."""
_HEADER = {"text2grad": "spent"}


@dataclass(frozen=True, slots=True)
class Cost:
    """Tokens of a request, sent and received."""

    tokens_in: int
    tokens_out: int

    def money(self, prices: BudgetSettings) -> float:
        return (self.tokens_in * prices.price_in + self.tokens_out * prices.price_out) / 1e6


def most_of(question: Mapping[str, Any], beside: int = 0) -> Cost:
    """What a question may cost: its messages and `beside` more characters, and the longest reply that it allows."""
    return Cost(tokens(len(json.dumps(question["messages"])) + beside), question["max_tokens"])


def cost_of(question: Mapping[str, Any], reply: Mapping[str, Any]) -> Cost:
    """What a reply did cost, by the server's count where it gives one, else by the length of the text."""
    sent, received = reply["tokens_in"], reply["tokens_out"]
    return Cost(
        sent if sent is not None else tokens(len(json.dumps(question["messages"]))),
        received if received is not None else tokens(len(reply["text"])),
    )


def tokens(characters: int) -> int:
    """An estimate."""
    return math.ceil(characters / CHARACTERS_PER_TOKEN)


def counted(count: int, noun: str) -> str:
    """
    >>> counted(1, "request"), counted(1200, "request")
    ('1 request', '1,200 requests')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


@dataclass
class Budget:
    """The limits, what has been spent of them, and what is set aside for requests in flight."""

    limits: BudgetSettings
    requests: int = 0
    recalled: int = 0
    """Questions whose reply was in the cache, in this run: free."""
    lost: int = 0
    """Requests that got no reply, counted as what was set aside for them."""
    earlier: int = 0
    """Requests of earlier runs, among all."""
    tokens_in: int = 0
    tokens_out: int = 0
    _aside: dict[int, Cost] = field(default_factory=dict)
    _waiting: list["asyncio.Future[None]"] = field(default_factory=list)
    _journal: Jsonl | None = None

    async def reserve(self, most: Cost) -> int:
        """Set aside what a request may cost, and number it. Where that is too much while others are in flight, wait for
        them: they may cost less than was set aside. Where nothing is left to wait for: `BudgetSpent`."""
        while (problem := self._over(most)) is not None:
            if not self._aside or problem[0] == "requests":
                raise BudgetSpent(self._explain(*problem))
            woken = asyncio.get_running_loop().create_future()
            self._waiting.append(woken)
            await woken
        self.requests += 1
        number = self.requests
        self._note({"sent": number, "most": [most.tokens_in, most.tokens_out]})
        self._aside[number] = most
        return number

    def settle(self, number: int, cost: Cost | None) -> None:
        """A request has ended: what it cost, or None where nobody knows."""
        most = self._aside.pop(number)
        known = cost is not None
        cost = cost or most
        self._note({"done": number, "cost": [cost.tokens_in, cost.tokens_out], "known": known})
        self.lost += not known
        self._add(cost)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    @staticmethod
    def journal_of(target: Path) -> Path:
        """`out.jsonl` → `out.jsonl.spent`."""
        return target.with_name(f"{target.name}.spent")

    @contextmanager
    def kept_beside(self, target: Path) -> Iterator[None]:
        """Begin where earlier runs on this output ended, and write down what this one spends."""
        path = self.journal_of(target)
        if path.exists():
            try:
                if not path.is_file():
                    raise InvalidData("it is no file")
                rows = read_jsonl(path)
                if next(rows, _HEADER) != _HEADER:
                    raise InvalidData("has another header")
                self.restore(rows)
            except (InvalidData, OSError) as problem:
                raise RunError(
                    f"{path} is in the way: it should be what earlier runs have spent on this output ({problem}); name "
                    f"another OUT, or delete it to begin with a fresh budget"
                ) from None
        with Jsonl(path) as self._journal:
            if self._journal.size == 0:
                self._journal.append([_HEADER])
            try:
                yield
            finally:
                self._journal = None

    def restore(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Count what earlier runs wrote down; what was in flight when they were killed counts in full."""
        open_: dict[int, Cost] = {}
        try:
            for entry in entries:
                if "sent" in entry:
                    open_[entry["sent"]] = Cost(*map(int, entry["most"]))
                    self.requests += 1
                else:
                    open_.pop(entry["done"])
                    self._add(Cost(*map(int, entry["cost"])))
                    self.lost += not entry["known"]
        except (LookupError, TypeError, ValueError) as problem:
            raise InvalidData(f"should be what was spent in earlier runs: {type(problem).__name__} {problem}") from None
        for most in open_.values():
            self.lost += 1
            self._add(most)
        self.earlier = self.requests

    @property
    def money(self) -> float:
        return Cost(self.tokens_in, self.tokens_out).money(self.limits)

    def estimate(self, items: int, cost: Cost) -> str:
        """In words, before the first request: about so much, if no reply is in the cache and nothing fails."""
        text = f"about {counted(items, 'request')}, {cost.tokens_in:,} tokens in and at most {cost.tokens_out:,} out"
        priced = self.limits.price_in or self.limits.price_out
        return f"{text}, at most {cost.money(self.limits):.4f} money" if priced else text

    def __str__(self) -> str:
        parts = [counted(self.requests, "request"), f"{self.recalled:,} remembered"]
        parts.append(f"{self.tokens_in:,} tokens in and {self.tokens_out:,} out")
        parts += [f"{self.lost:,} lost and counted in full"] if self.lost else []
        parts += [f"{self.money:.4f} money"] if self.limits.price_in or self.limits.price_out else []
        parts += [f"{self.earlier:,} of the requests in earlier runs"] if self.earlier else []
        return ", ".join(parts)

    def _add(self, cost: Cost) -> None:
        self.tokens_in += cost.tokens_in
        self.tokens_out += cost.tokens_out

    def _note(self, entry: dict[str, Any]) -> None:
        if self._journal is not None:
            self._journal.append([entry], sync=False)

    def _over(self, most: Cost) -> tuple[str, float, float, float] | None:
        """The limit that one more request might pass: (name, spent, limit, what this one may take)."""
        limits = self.limits
        inflow = sum(cost.tokens_in for cost in self._aside.values())
        outflow = sum(cost.tokens_out for cost in self._aside.values())
        money = Cost(inflow, outflow).money(limits)
        wanted_tokens = most.tokens_in + most.tokens_out
        for name, limit, spent, aside, wanted in (
            ("requests", limits.requests, self.requests, 0, 1),
            ("tokens", limits.tokens, self.tokens_in + self.tokens_out, inflow + outflow, wanted_tokens),
            ("money", limits.money, self.money, money, most.money(limits)),
        ):
            if limit is not None and spent + aside + wanted > limit:
                return name, spent, limit, wanted
        return None

    def _explain(self, name: str, spent: float, limit: float, wanted: float) -> str:
        before = f", {self.earlier:,} requests of earlier runs included" if self.earlier else ""
        setting = f"critics.openai.budget.{name}"
        told = f"{spent:,.6g} of {limit:,.6g} {name}{before}, and the next request may take {wanted:,.6g}"
        then = f"What arrived is kept; to resume, raise {setting} to at least {spent + wanted:,.6g}"
        if self._journal is None:
            # Nothing is written down that could be resumed; but replies are remembered.
            then = f"Replies that arrived are remembered and free: raise {setting}"
        return f"the budget is spent: {told}. {then} and run the same command again"

"""What a model critic may spend, what it has spent, and what a file will cost: requests, tokens, money.

Counts only; knows no server. A limit that is reached stops the next request, never a reply that is under way.
"""

import json
import math
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Ge

from text2grad._checked import Int, Real
from text2grad.config import settings
from text2grad.errors import BudgetSpent

CHARACTERS_PER_TOKEN = 3.5
"""For estimates, on the safe side of English prose; the tally uses the server's own counts where it gives them."""


@settings
class BudgetSettings:
    requests: Annotated[Int, Ge(0)] | None = None
    """Requests at most, retries and repairs included; none: no limit."""
    tokens: Annotated[Int, Ge(0)] | None = None
    """Tokens at most, in and out together; none: no limit."""
    money: Annotated[Real, Ge(0)] | None = None
    """Money at most, in the currency of the prices; none: no limit."""
    price_in: Annotated[Real, Ge(0)] = 0.0
    """Price of a million tokens that are sent."""
    price_out: Annotated[Real, Ge(0)] = 0.0
    """Price of a million tokens that come back."""


@dataclass
class Tally:
    """What has been spent so far."""

    settings: BudgetSettings
    requests: int = 0
    retries: int = 0
    recalled: int = 0
    """Questions whose reply was remembered: free."""
    refused: int = 0
    """Questions that the server would not answer."""
    tokens_in: int = 0
    tokens_out: int = 0

    def before_request(self) -> None:
        """Count a request about to be sent, or stop because a limit is reached."""
        limits = self.settings
        for name, spent, limit in (
            ("requests", self.requests, limits.requests),
            ("tokens", self.tokens_in + self.tokens_out, limits.tokens),
            ("money", self.money, limits.money),
        ):
            if limit is not None and spent >= limit:
                raise BudgetSpent(
                    f"the budget is spent: {spent:g} of {limit:g} {name}. What arrived is kept; raise "
                    f"openai.budget.{name} and run the same command again to go on"
                )
        self.requests += 1

    def count(self, reply: dict[str, Any], question: dict[str, Any]) -> None:
        """Add a reply's tokens, by the server's count where it gives one, else by the length of the text."""
        for name, text in (("tokens_in", json.dumps(question["messages"])), ("tokens_out", reply["text"])):
            counted = reply[name]
            spent = counted if counted is not None else math.ceil(len(text) / CHARACTERS_PER_TOKEN)
            setattr(self, name, getattr(self, name) + spent)

    @property
    def money(self) -> float:
        return (self.tokens_in * self.settings.price_in + self.tokens_out * self.settings.price_out) / 1e6

    def __str__(self) -> str:
        parts = [f"{self.requests:,} requests ({self.retries:,} of them again)", f"{self.recalled:,} remembered"]
        parts.append(f"{self.tokens_in:,} tokens in and {self.tokens_out:,} out")
        parts += [f"{self.refused:,} refused"] if self.refused else []
        if self.settings.price_in or self.settings.price_out:
            parts.append(f"{self.money:.4f} money")
        return ", ".join(parts)


def estimate(characters_in: int, items: int, tokens_out_each: int, limits: BudgetSettings) -> str:
    """In words, before the first request: about so much, if nothing is remembered and nothing fails."""
    tokens_in = math.ceil(characters_in / CHARACTERS_PER_TOKEN)
    tokens_out = items * tokens_out_each
    text = f"about {items:,} requests, {tokens_in:,} tokens in and at most {tokens_out:,} out"
    if limits.price_in or limits.price_out:
        text += f", at most {(tokens_in * limits.price_in + tokens_out * limits.price_out) / 1e6:.4f} money"
    return text

"""What is open while a model critic works: the client, the memory of replies, the requests under way.

Enters: questions as plain data. Leaves: replies, kept in the memory the moment they arrive and counted in the tally,
even where nobody waits for them any more. A request is one try; when to try again is the critic's to say.
"""

import asyncio
import email.utils
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from text2grad._checked import shorten
from text2grad.errors import CriticError
from text2grad.feedback.critics.budget import Cost, Tally, cost_of
from text2grad.feedback.critics.memory import LEASE, ReplyMemory

LOOK_AGAIN = 0.05
"""Seconds between two looks for a reply that somebody else is asking for."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question on its way."""

    question: dict[str, Any]
    key: str
    """Of its reply in the memory."""
    most: Cost
    """What it may cost."""


class Connection:
    """`places`: as many requests may be under way at once."""

    def __init__(self, client: Any, memory: ReplyMemory, places: int, timeout: float) -> None:
        self.client, self.memory, self.timeout = client, memory, timeout
        self.places = asyncio.Semaphore(places)
        self._under_way: set[asyncio.Task[dict[str, Any]]] = set()
        self._renewing = asyncio.create_task(self._renew())

    async def close(self) -> None:
        self._renewing.cancel()
        await asyncio.gather(self._renewing, return_exceptions=True)
        self.memory.close()
        await self.client.close()

    async def known_or_claimed(self, key: str) -> dict[str, Any] | None:
        """The reply that is remembered; or None, and then the question is ours to ask: whoever else asks it waits."""
        while True:
            if (known := self.memory.recall(key)) is not None:
                return known
            if self.memory.claim(key):
                # Between the two, somebody's reply may have come.
                known = self.memory.recall(key)
                if known is not None:
                    self.memory.release(key)
                return known
            await asyncio.sleep(LOOK_AGAIN)

    async def send(self, asked: Asked, form: dict[str, Any], tally: Tally, again: bool) -> dict[str, Any]:
        """One request, once the budget allows it. It goes on in a task of its own where the caller is cancelled."""
        number = await tally.reserve(asked.most, again)
        task = asyncio.create_task(self._exchange(asked, form, tally, number))
        self._under_way.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def drain(self, seconds: float, say: Callable[[str], None]) -> None:
        """Wait for the requests under way, so that what they cost is not lost; then stop those that are left."""
        if self._under_way:
            say(
                f"waiting up to {seconds:g} s for {len(self._under_way)} requests under way: they are paid for, and "
                f"their replies are kept. Ctrl-C (once more) stops at once"
            )
        try:
            if self._under_way:
                await asyncio.wait(set(self._under_way), timeout=seconds)
        finally:
            left = list(self._under_way)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            self.memory.release()

    async def _exchange(self, asked: Asked, form: dict[str, Any], tally: Tally, number: int) -> dict[str, Any]:
        body = {name: value for name, value in asked.question.items() if name != "server"} | form
        try:
            async with asyncio.timeout(self.timeout):
                reply = contents(await self._post(body))
        except BaseException as problem:
            tally.settle(number, None if _may_be_paid(problem) else Cost(0, 0))
            raise
        try:
            self.memory.keep(asked.key, reply)
        finally:
            tally.settle(number, cost_of(asked.question, reply))
        return reply

    async def _post(self, body: dict[str, Any]) -> Any:
        """What the server answers. A body that is not JSON (cut off, a gateway's page, bytes) is the server's fault."""
        try:
            # The plain `post`: the client's typed method walks through every message and the schema, for nothing.
            return await self.client.post("/chat/completions", cast_to=object, body=body)
        except UnicodeEncodeError:
            raise
        except (ValueError, RecursionError) as problem:
            raise CriticError(
                f"the server's body is not JSON: {type(problem).__name__}: {str(problem)[:100]}"
            ) from None

    def _ended(self, task: "asyncio.Task[dict[str, Any]]") -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # seen, also where nobody waits for it any more

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(LEASE / 4)
            self.memory.renew()


def _may_be_paid(problem: BaseException) -> bool:
    """Whether a request that failed may have been worked on. The server's own errors are free, and so is what never
    reached it; what broke off in between may be on the bill."""
    import openai

    if isinstance(problem, openai.APIStatusError):
        return False
    # By name: which library carries the client's requests is its own affair.
    return type(problem.__cause__).__name__ not in ("ConnectError", "ConnectTimeout", "PoolTimeout")


def connect(base_url: str | None, key: str, timeout: float) -> Any:
    """The official client, without retries of its own."""
    try:
        import openai
    except ImportError:
        raise CriticError("the openai critic needs the openai package: pip install 'text2grad[api]'") from None
    address = base_url or os.environ.get("OPENAI_BASE_URL")
    return openai.AsyncOpenAI(api_key=key, base_url=address, timeout=timeout, max_retries=0)


CUT = ("length", "max_tokens", "content_filter", "error", "abort")
"""What servers say of a reply that is not whole."""


def contents(body: Any) -> dict[str, Any]:
    """The parts of a reply that matter; a body without them raises, and is tried again like any other fault."""
    try:
        choice = body["choices"][0]
        text = choice["message"].get("content") or ""
        finish = choice.get("finish_reason")
    except (LookupError, TypeError, AttributeError):
        raise CriticError(f"the reply should hold choices[0].message.content, got {shorten(body)}") from None
    usage = body.get("usage") if isinstance(body, dict) else None
    counted = usage if isinstance(usage, dict) else {}
    return {
        "text": str(text),
        "cut": finish in CUT,
        "tokens_in": _count(counted.get("prompt_tokens")),
        "tokens_out": _count(counted.get("completion_tokens")),
    }


def _count(value: object) -> int | None:
    """A server's count of tokens, where it gives one that makes sense."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def seconds(text: str, divisor: float) -> float | None:
    """What Retry-After asks for: a number, or a date; None where it is neither."""
    try:
        asked = float(text) / divisor
    except ValueError:
        try:
            asked = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, TypeError, IndexError):
            return None
    return asked if math.isfinite(asked) else None

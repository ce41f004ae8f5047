"""A model behind any OpenAI-compatible server as a critic: asks, waits, retries, remembers, and stops at its budget.

Enters: prompts and completions. Leaves: critiques, None where no readable reply came. The key goes into the client and
nowhere else: not into the memory, not into messages, not into settings that are written down.
"""

import asyncio
import json
import os
import random
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge, Gt
from pydantic import Field, SecretStr

from text2grad._checked import Int, Real
from text2grad.config import settings
from text2grad.errors import BudgetSpent, CriticError
from text2grad.feedback import prompts as words
from text2grad.feedback.critics.budget import BudgetSettings, Tally, most_of
from text2grad.feedback.critics.connection import Asked, Connection, connect, seconds
from text2grad.feedback.critics.memory import ReplyMemory, key_of
from text2grad.feedback.critics.protocol import Answers, Prompt
from text2grad.feedback.replies import Reply, read_reply
from text2grad.runs import cache_folder


@settings
class OpenAISettings:
    base_url: str | None = None
    """Address of the server, ending in /v1; none: OPENAI_BASE_URL from the environment, else OpenAI's own."""
    api_key: SecretStr | None = None
    """Better left to OPENAI_API_KEY in the environment. Never written down: it prints as stars."""
    task: Literal["summarization", "code", "qa", "general"] = "general"
    """Which instruction the model gets."""
    show: tuple[str, ...] = ("source", "passages", "reference")
    """Columns of the data that the model is shown beside prompt and completion, where they are there."""
    most_quotes: Annotated[Int, Gt(0)] = 6
    """Quotes asked for at most: a critic that quotes everything says nothing."""
    temperature: Annotated[Real, Ge(0)] = 0.0
    """Of the critic's own sampling; 0 makes its critiques repeatable on most servers."""
    max_tokens: Annotated[Int, Gt(0)] = 1200
    """Length of a reply at most, reasoning included; a reply that hits it is asked for again once."""
    structured: bool = True
    """Ask for the reply's JSON schema to be enforced; given up by itself where the server does not know it."""
    concurrency: Annotated[Int, Gt(0)] = 32
    """Requests under way at once."""
    timeout: Annotated[Real, Gt(0)] = 120.0
    """Seconds until a request counts as lost."""
    retries: Annotated[Int, Ge(0)] = 6
    """Times that a request is sent again after a failure that may pass (429, 5xx, time-outs, lost connections)."""
    longest_wait: Annotated[Real, Gt(0)] = 60.0
    """Seconds between two tries at most, also where the server asks for more."""
    drain: Annotated[Real, Ge(0)] = 60.0
    """Seconds that requests under way are waited for when a run ends early (an error, a spent budget, Ctrl-C): they are
    paid for, and their replies are kept. A second Ctrl-C stops at once."""
    cache: str | None = None
    """SQLite file of the replies; none: `critiques.sqlite` in the cache folder of text2grad."""
    budget: BudgetSettings = Field(default_factory=BudgetSettings)
    """Where to stop."""


class OpenAICritic:
    """`critic(prompts, completions, **columns)`, async. Inside `async with critic` its connections serve many calls."""

    def __init__(self, model: str, options: OpenAISettings) -> None:
        if not model:
            raise CriticError("openai: should be followed by the model's name on the server, as in openai:gpt-5-mini")
        self.__name__ = f"openai:{model}"
        self.model = model
        self.options = options
        self.tally = Tally(options.budget)
        self.structured = options.structured
        self.say: Callable[[str], None] = _silent
        """Told in words what is being waited for."""
        self._answered = False
        self._key = _key(options)
        self._open: Connection | None = None

    async def __aenter__(self) -> Self:
        options = self.options
        memory = ReplyMemory(options.cache or cache_folder() / "critiques.sqlite")
        try:
            client = connect(options.base_url, self._key, options.timeout)
        except BaseException:
            memory.close()
            raise
        self._open = Connection(client, memory, options.concurrency, options.timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._open is not None
        opened, self._open = self._open, None
        await opened.close()

    async def __call__(
        self, prompts: Sequence[Prompt], completions: Sequence[str], **columns: Sequence[Any]
    ) -> Answers:
        if self._open is None:
            async with self:
                return await self(prompts, completions, **columns)
        opened = self._open
        shown = {name: columns[name] for name in self.options.show if name in columns}

        async def judge(index: int) -> Reply:
            extras = {name: values[index] for name, values in shown.items()}
            async with opened.places:
                return await self._judge(self.question(prompts[index], completions[index], extras))

        tasks = [asyncio.create_task(judge(index)) for index in range(len(completions))]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION) if tasks else ((), ())
            if (problem := next(filter(None, (task.exception() for task in done)), None)) is not None:
                raise problem
            found = Answers()
            for task in tasks:
                found.add(task.result().critique, task.result().reason)
            return found
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await opened.drain(self.options.drain, self.say)

    def overhead(self) -> int:
        """Characters that go with every question beside what the row holds."""
        schema = _FORMAT_LENGTH if self.options.structured else 0
        return len(json.dumps(self.question("", "", {}))) + schema

    def question(self, prompt: Prompt, completion: str, extras: dict[str, Any]) -> dict[str, Any]:
        """Everything that the reply depends on: what is sent, and the key of the memory."""
        options = self.options
        return {
            "server": server_of(options),
            "model": self.model,
            "messages": words.messages_for(options.task, prompt, completion, extras, options.most_quotes),
            "temperature": options.temperature,
            "max_tokens": options.max_tokens,
        }

    async def _judge(self, question: dict[str, Any]) -> Reply:
        """A question that the server refuses, where it answers others, leaves its own item unscored."""
        try:
            return await self._judged(question)
        except _Refused as problem:
            if not self._answered:
                raise
            self.tally.refuse()
            return Reply(None, reason=str(problem))

    async def _judged(self, question: dict[str, Any]) -> Reply:
        reply = await self._ask(question)
        read = _read(question, reply)
        if read.critique is None or read.mended:
            repair = question | {"messages": words.repair_messages(question["messages"], reply["text"], read.reason)}
            again = _read(question, await self._ask(repair))
            if again.critique is not None and (read.critique is None or not again.mended):
                read = again
            elif read.critique is None:
                reason = f"the model's reply cannot be read ({read.reason}), nor its repair ({again.reason})"
                reason += "; critics.openai.max_tokens allows longer ones" if reply["cut"] else ""
                read = Reply(None, reason=reason)
        return read

    async def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """The reply to a question, from memory if it ever arrived. Whoever asks the same at the same time, in this
        process or another, waits for our reply instead of paying for it."""
        assert self._open is not None
        key = key_of(question)
        reply = await self._open.known_or_claimed(key)
        if reply is not None:
            self.tally.recalled += 1
        else:
            try:
                most = most_of(question, _FORMAT_LENGTH if self.structured else 0)
                reply = await self._request(self._open, Asked(question, key, most))
            except Exception:
                self._open.memory.release(key)
                raise
        self._answered = True
        return reply

    async def _request(self, opened: Connection, asked: Asked) -> dict[str, Any]:
        """Send until it is answered, the tries are used up, or the server says no."""
        import openai

        tried = sent = 0
        while True:
            form = {"response_format": _FORMAT} if self.structured else {}
            sent += 1
            try:
                return await opened.send(asked, form, self.tally, again=sent > 1)
            except (openai.BadRequestError, openai.UnprocessableEntityError) as problem:
                # Servers that do not know structured output say so in many ways; without it they may know the rest.
                if not form:
                    raise self._refused(problem) from None
                if "response_format" in str(problem) or "schema" in str(problem) or not self._answered:
                    self.structured = False
                else:
                    raise self._refused(problem) from None
            except (openai.AuthenticationError, openai.PermissionDeniedError, openai.NotFoundError) as problem:
                raise self._refused(problem) from None
            except BudgetSpent:
                raise
            except (openai.APIError, TimeoutError, CriticError) as problem:
                if isinstance(problem, openai.APIStatusError) and problem.status_code not in PASSING:
                    raise self._refused(problem) from None
                if tried >= self.options.retries:
                    raise CriticError(
                        f"{self.__name__}: gave up after {tried + 1} tries ({self._safe(problem)}). What arrived is "
                        f"kept: run the same command again when the server is well"
                    ) from None
                tried += 1
                await asyncio.sleep(self._wait(tried, problem))

    def _wait(self, tried: int, problem: Exception) -> float:
        """What the server asks for, else half a second doubling each time, a little apart from one another."""
        headers = getattr(getattr(problem, "response", None), "headers", {})
        asked = seconds(headers.get("retry-after-ms", ""), 1000) or seconds(headers.get("retry-after", ""), 1)
        if asked is None:
            asked = 0.25 * 2**tried * random.uniform(0.75, 1.25)
        return min(max(asked, 0.0), self.options.longest_wait)

    def _refused(self, problem: Exception) -> CriticError:
        status = getattr(problem, "status_code", 0)
        return (CriticError if status in (401, 403, 404) else _Refused)(
            f"{self.__name__}: the server refused ({self._safe(problem)}). Check the model's name, openai.base_url or "
            f"OPENAI_BASE_URL, and OPENAI_API_KEY"
        )

    def _safe(self, problem: Exception) -> str:
        """A server's message may quote the key back; ours does not."""
        return f"{type(problem).__name__}: {problem}".replace(self._key, "***")[:300]


class _Refused(CriticError):
    """The server will not answer this question; it may answer others."""


PASSING = {408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529}
"""Statuses of failures that may pass."""
_FORMAT = {"type": "json_schema", "json_schema": {"name": "critique", "strict": True, "schema": words.SCHEMA}}


_FORMAT_LENGTH = len(json.dumps(_FORMAT))


def server_of(options: OpenAISettings) -> str:
    """The address that is asked: part of what a reply depends on."""
    return options.base_url or os.environ.get("OPENAI_BASE_URL") or "OpenAI"


def public_server_of(options: OpenAISettings) -> str:
    """The same, as it may be written down: without a name and a password that it may hold."""
    return re.sub(r"(?<=//)[^/@]*@", "", server_of(options))


def _silent(_: str) -> None:
    """Nobody is told."""


def _read(question: dict[str, Any], reply: dict[str, Any]) -> Reply:
    # The instruction and the item: a repair's own chat holds the first reply as well, and may repeat it.
    shown = "\n".join(message["content"] for message in question["messages"][:2])
    return read_reply(reply["text"], cut=bool(reply["cut"]), shown=shown)


def _key(options: OpenAISettings) -> str:
    named, key = "OPENAI_API_KEY", os.environ.get("OPENAI_API_KEY")
    if options.api_key is not None:
        named, key = "critics.openai.api_key", options.api_key.get_secret_value()
    if not key:
        raise CriticError(f"{named} should hold the server's key; for a server without one, set it to anything")
    if not (key.isascii() and key.isprintable() and key == key.strip()):
        raise CriticError(
            f"{named} should hold plain ASCII letters, digits and signs, without spaces around them or line ends: "
            f"nothing else can be sent to a server; copy the key again"
        )
    return key

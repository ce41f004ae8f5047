"""A model behind any OpenAI-compatible server as a critic: asks, waits, retries, caches, and stops at its budget.

Enters: prompts and completions. Leaves: critiques, None where no readable reply came. A reply is cached the moment it
arrives and counted in the budget, even where nobody waits for it any more. The key goes into the client and nowhere
else: not into the cache, not into messages, not into settings that are written down.
"""

import asyncio
import importlib.util
import json
import os
import random
import re
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, Self, TypeVar
from weakref import WeakValueDictionary

from text2grad.errors import BudgetSpent, CriticError, MissingExtra
from text2grad.feedback import prompts as words
from text2grad.feedback.critics.budget import Budget, Cost, cost_of, most_of, tokens
from text2grad.feedback.critics.cache import ResponseCache, key_of
from text2grad.feedback.critics.protocol import Critiques, Prompt
from text2grad.feedback.replies import Reply, read_reply
from text2grad.feedback.settings import OpenAISettings
from text2grad.runs import cache_folder
from text2grad.secrets import hidden, remember, without_password

T = TypeVar("T")
PASSING = {408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529}
"""Statuses of failures that may pass."""
_CHECK = {
    401: "Check OPENAI_API_KEY, or critics.openai.api_key",
    403: "Check OPENAI_API_KEY, or critics.openai.api_key: it may not use this model",
    404: "Check the model's name, and that critics.openai.base_url or OPENAI_BASE_URL ends in /v1",
}
"""What to look at, by the status of a refusal of everything."""
_CHECK_ALL = "Check the model's name, critics.openai.base_url or OPENAI_BASE_URL, and OPENAI_API_KEY"
_CUT = ("length", "max_tokens", "content_filter", "error", "abort")
"""What servers say of a reply that is not whole."""


class OpenAICritic:
    """`critic(prompts, completions, **columns)`, async. Inside `async with critic` its connections serve many calls.

    `budget`: what it may spend, where that is shared with other critics; else its own, by its settings. `schema`: the
    shape of a reply, for those who ask it something else (`replies`).
    """

    _client: Any
    _cache: ResponseCache

    def __init__(
        self,
        model: str,
        options: OpenAISettings,
        budget: Budget | None = None,
        schema: dict[str, Any] = words.SCHEMA,
    ) -> None:
        if not model:
            raise CriticError("openai: should be followed by the model's name on the server, as in openai:gpt-5-mini")
        self.__name__ = f"openai:{model}"
        if importlib.util.find_spec("openai") is None:
            missing = ModuleNotFoundError("no openai", name="openai")
            raise MissingExtra.of(missing, f"the critic {self.__name__}") or missing
        _check_address(options)
        self.model = model
        self.options = options
        self.budget = budget or Budget(options.budget)
        self.structured = options.structured
        self._format = {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": schema}}
        self._format_length = len(json.dumps(self._format))
        self._reached = False
        """Whether the server has answered a request of this process."""
        self._answered = False
        """Whether the server has answered anything yet: then a refusal is of the question, not of everything."""
        self.told: Callable[[], None] = lambda: None
        """Called whenever an item is judged."""
        self._key = _key(options)
        self._open = False
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By the key of the question that is being asked."""
        self._in_flight: set[asyncio.Task[dict[str, Any]]] = set()

    async def __aenter__(self) -> Self:
        import openai

        self._cache = ResponseCache(self.options.cache or cache_folder() / "critiques.sqlite")
        try:
            address = self.options.base_url or os.environ.get("OPENAI_BASE_URL")
            # Without retries of its own: each is counted in the budget.
            self._client = openai.AsyncOpenAI(
                api_key=self._key, base_url=address, timeout=self.options.timeout, max_retries=0
            )
        except BaseException:
            self._cache.close()
            raise
        self._slots, self._first = asyncio.Semaphore(self.options.concurrency), asyncio.Lock()
        self._unreachable: CriticError | None = None
        self._open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        self._open = False
        self._cache.close()
        await self._client.close()

    async def __call__(
        self, prompts: Sequence[Prompt], completions: Sequence[str], **columns: Sequence[Any]
    ) -> Critiques:
        if not self._open:
            async with self:
                return await self(prompts, completions, **columns)
        shown = {name: columns[name] for name in self.options.show if name in columns}

        async def judge(index: int) -> Reply:
            extras = {name: values[index] for name, values in shown.items()}
            async with self._slots:
                reply = await self._judge(self.question(prompts[index], completions[index], extras))
            self.told()
            return reply

        critiques = Critiques()
        for reply in await self._all([judge(index) for index in range(len(completions))]):
            critiques.add(reply.critique, reply.reason)
        return critiques

    async def answers(self, chats: Sequence[list[dict[str, str]]]) -> list[str | None]:
        """What the model replies to these conversations, as it is; None where the server refuses one of several."""
        replies = await self.replies(chats)
        for reply in replies:
            if isinstance(reply, BudgetSpent):
                raise reply
        return [None if isinstance(reply, CriticError) else str(reply["text"]) for reply in replies]

    async def replies(self, chats: Sequence[list[dict[str, str]]]) -> list[dict[str, Any] | CriticError]:
        """The reply to each conversation: its `text`, and whether it was `cut`. Instead, the reason, where the server
        refuses one of several, or the budget is spent."""
        if not self._open:
            async with self:
                return await self.replies(chats)

        async def answer(chat: list[dict[str, str]]) -> dict[str, Any] | CriticError:
            question = self.question("", "", {}) | {"messages": chat}
            async with self._slots:
                try:
                    return await self._reply(question)
                except BudgetSpent as problem:
                    return problem
                except _Refused as problem:
                    if not self._answered:
                        raise
                    return problem

        return await self._all([answer(chat) for chat in chats])

    async def _all(self, work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """The results of all, in order; the first failure ends the rest, and what is under way is waited for."""
        tasks = [asyncio.create_task(each) for each in work]
        try:
            return await asyncio.gather(*tasks)
        finally:
            await _stop(tasks)
            await self._drain()

    def estimate(self, characters: int, items: int) -> str:
        """`most`, in words."""
        return self.budget.estimate(items, self.most(characters, items))

    def most(self, characters: int, items: int) -> Cost:
        """What so many items with so many characters in all will cost at most."""
        schema = self._format_length if self.options.structured else 0
        each = len(json.dumps(self.question("", "", {}))) + schema
        return Cost(tokens(characters + items * each), items * self.options.max_tokens)

    def question(self, prompt: Prompt, completion: str, extras: dict[str, Any]) -> dict[str, Any]:
        """Everything that the reply depends on: what is sent, and the key of the cache."""
        options = self.options
        return {
            "server": server_of(options),
            "model": self.model,
            "messages": words.messages_for(
                options.instruction or options.task, prompt, completion, extras, options.most_quotes, options.rubric
            ),
            "temperature": options.temperature,
            "max_tokens": options.max_tokens,
        }

    async def _judge(self, question: dict[str, Any]) -> Reply:
        """The critique in a reply; a reply that cannot be trusted gets one request for repair. A question that the
        server refuses, where it answers others, leaves its own item unscored."""
        try:
            reply = await self._reply(question)
            read = _read(question, reply)
            if read.critique is not None and not read.mended:
                return read
            repair = words.repair_messages(question["messages"], reply["text"], read.reason)
            again = _read(question, await self._reply(question | {"messages": repair}))
        except _Refused as problem:
            if not self._answered:
                raise
            return Reply(None, reason=str(problem))
        if again.critique is not None and (read.critique is None or not again.mended):
            return again
        if read.critique is not None:
            return read
        reason = f"the model's reply cannot be read ({read.reason}), nor its repair ({again.reason})"
        return Reply(None, reason=reason + ("; critics.openai.max_tokens allows longer ones" if reply["cut"] else ""))

    async def _reply(self, question: dict[str, Any]) -> dict[str, Any]:
        """The reply to a question, from the cache if it ever arrived. Whoever asks the same meanwhile waits for it."""
        key = key_of(question)
        async with self._asking.setdefault(key, asyncio.Lock()):
            reply = self._cache.get(key)
            if reply is not None:
                self.budget.recalled += 1
            else:
                reply = await self._send(question, key)
        self._answered = True
        return reply

    async def _send(self, question: dict[str, Any], key: str) -> dict[str, Any]:
        """Send. The first request goes alone: a wrong address or key is found with one, not with all of them."""
        if not self._reached:
            async with self._first:
                if self._unreachable is not None:
                    raise self._unreachable
                if not self._reached:
                    try:
                        reply = await self._tried(question, key)
                    except CriticError as problem:
                        self._unreachable = None if isinstance(problem, _Refused) else problem
                        raise
                    self._reached = True
                    return reply
        return await self._tried(question, key)

    async def _tried(self, question: dict[str, Any], key: str) -> dict[str, Any]:
        """Send until it is answered, the tries are used up, or the server says no."""
        import openai

        most = most_of(question, self._format_length if self.structured else 0)
        tried = 0
        while True:
            extra = {"response_format": self._format} if self.structured else {}
            number = await self.budget.reserve(most)
            # A task of its own, which ends well where the caller is cancelled.
            task = asyncio.create_task(self._request(question, key, extra, number))
            self._in_flight.add(task)
            task.add_done_callback(self._ended)
            try:
                return await asyncio.shield(task)
            except openai.APIStatusError as problem:
                # Servers that do not know structured output say so in many ways; without it they may know the rest.
                unknown_format = not self._answered or re.search("response_format|schema", str(problem))
                if problem.status_code in (400, 422) and extra and unknown_format:
                    self.structured = False
                    continue
                if problem.status_code not in PASSING:
                    status, said = problem.status_code, self._safe(problem)
                    raise (CriticError if status in _CHECK else _Refused)(
                        f"{self.__name__}: {self._address} refused ({said}). {_CHECK.get(status, _CHECK_ALL)}"
                    ) from None
                failed: Exception = problem
            except BudgetSpent:
                raise
            except (openai.APIError, TimeoutError, CriticError) as problem:
                failed = problem
            if not self._reached and type(failed.__cause__).__name__ == "ConnectError":
                why = self._safe(failed.__cause__ or failed)
                raise CriticError(
                    f"{self.__name__}: nobody answers at {self._address} ({why}). Is the server up? Check "
                    f"critics.openai.base_url or OPENAI_BASE_URL: host, port, and /v1 at the end"
                ) from None
            if tried >= self.options.retries:
                tries = "1 try" if tried == 0 else f"{tried + 1} tries"
                raise CriticError(
                    f"{self.__name__}: gave up after {tries} at {self._address} ({self._safe(failed)}). What arrived "
                    f"is kept: run the same command again when the server is well"
                ) from None
            tried += 1
            await asyncio.sleep(self._wait(tried, failed))

    async def _request(self, question: dict[str, Any], key: str, extra: dict[str, Any], number: int) -> dict[str, Any]:
        """One request. Its reply is cached and its cost counted, also where nobody waits for it any more."""
        body = {name: value for name, value in question.items() if name != "server"} | extra
        try:
            async with asyncio.timeout(self.options.timeout):
                # The plain `post`: the client's typed method walks through every message and the schema, for nothing.
                came = await self._client.post("/chat/completions", cast_to=object, body=body)
                # Without the header that calls it JSON, the client leaves it as text.
                reply = _contents(json.loads(came) if isinstance(came, str) else came)
        except BaseException as problem:
            self.budget.settle(number, None if _may_be_paid(problem) else Cost(0, 0))
            if isinstance(problem, ValueError | RecursionError) and not isinstance(problem, UnicodeEncodeError):
                # Cut off, a gateway's page, bytes: the server's fault.
                words = f"{type(problem).__name__}: {hidden(str(problem), message=True)[:100]}"
                raise CriticError(f"the server's body is not JSON: {words}") from None
            raise
        try:
            self._cache.put(key, reply)
        finally:
            self.budget.settle(number, cost_of(question, reply))
        return reply

    def _ended(self, task: "asyncio.Task[dict[str, Any]]") -> None:
        self._in_flight.discard(task)
        if not task.cancelled():
            task.exception()  # seen, also where nobody waits for it any more

    async def _drain(self) -> None:
        """Wait for the requests in flight, so that what they cost is not lost; then stop those that are left."""
        if not self._in_flight:
            return
        print(
            f"waiting up to {self.options.drain:g} s for {len(self._in_flight)} requests under way: they are paid for, "
            f"and their replies are kept. Ctrl-C (once more) stops at once",
            file=sys.stderr,
        )
        try:
            await asyncio.wait(set(self._in_flight), timeout=self.options.drain)
        finally:
            await _stop(self._in_flight)

    def _wait(self, tried: int, problem: Exception) -> float:
        """Half a second doubling each time, a little apart; longer where the server asks for more."""
        headers = getattr(getattr(problem, "response", None), "headers", {})
        wait: float = max(0.25 * 2**tried * random.uniform(0.75, 1.25), _seconds(headers.get("retry-after", "")))
        return min(wait, self.options.longest_wait)

    @property
    def _address(self) -> str:
        """What is asked."""
        server = server_of(self.options)
        return f"{'https://api.openai.com/v1' if server == 'OpenAI' else server.rstrip('/')}/chat/completions"

    def _safe(self, problem: BaseException) -> str:
        """A server's message may quote the key back; ours does not."""
        return hidden(f"{type(problem).__name__}: {problem}", message=True)[:300]


class _Refused(CriticError):
    """The server will not answer this question; it may answer others."""


async def _stop(tasks: Iterable["asyncio.Task[Any]"]) -> None:
    left = list(tasks)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def server_of(options: OpenAISettings) -> str:
    """The address that is asked: part of what a reply depends on. Without a name and a password that it may hold."""
    return without_password(options.base_url or os.environ.get("OPENAI_BASE_URL") or "OpenAI")


def _check_address(options: OpenAISettings) -> None:
    """Refuse an address that no request can be sent to."""
    named, address = "critics.openai.base_url", options.base_url
    if not address:
        named, address = "OPENAI_BASE_URL", os.environ.get("OPENAI_BASE_URL")
    if address and not re.match("https?://", address, re.IGNORECASE):
        # As an address with a scheme, so that its password is seen as one.
        shown = without_password(f"http://{address.removeprefix('//')}").removeprefix("http://")
        raise CriticError(f"{named} should begin with http:// or https://, got {shown}")


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
    remember(key)
    return key


def _seconds(retry_after: str) -> float:
    """What a server's `Retry-After` asks for: a number of seconds, or a date; 0 where it says nothing of use."""
    if re.fullmatch(r"\d+(\.\d+)?", retry_after):
        return float(retry_after)
    try:
        return parsedate_to_datetime(retry_after).timestamp() - time.time()
    except (ValueError, OverflowError):
        return 0.0


def _read(question: dict[str, Any], reply: dict[str, Any]) -> Reply:
    # The instruction and the item: a repair's own chat holds the first reply as well, and may repeat it.
    shown = "\n".join(message["content"] for message in question["messages"][:2])
    return read_reply(reply["text"], cut=bool(reply["cut"]), shown=shown)


def _contents(body: Any) -> dict[str, Any]:
    """The parts of a reply that matter; a body without them raises, and is tried again like any other fault."""
    try:
        choice = body["choices"][0]
        text = choice["message"].get("content") or ""
        finish = choice.get("finish_reason")
    except (LookupError, TypeError, AttributeError):
        shown = hidden(repr(body), message=True)[:80]
        raise CriticError(f"the reply should hold choices[0].message.content, got {shown}") from None
    usage = body.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    # None where the server does not count, or what it gives makes no sense.
    sent, received = (
        count if type(count := counts.get(f"{name}_tokens")) is int and count >= 0 else None
        for name in ("prompt", "completion")
    )
    return {"text": hidden(str(text)), "cut": finish in _CUT, "tokens_in": sent, "tokens_out": received}


def _may_be_paid(problem: BaseException) -> bool:
    """Whether a request that failed may have been worked on. The server's own errors are free, and so is what never
    reached it; what broke off in between may be on the bill."""
    import openai

    if isinstance(problem, openai.APIStatusError):
        return False
    # By name: which library carries the client's requests is its own affair.
    return type(problem.__cause__).__name__ not in ("ConnectError", "ConnectTimeout", "PoolTimeout")

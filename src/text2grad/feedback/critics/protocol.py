"""What a critic is: any callable `critic(prompts, completions, **columns) -> list[Critique | None]`, sync or async.

Enters: lists of equal length, one item per completion; columns by name (`reference`, `tests`, …), None where a row has
none. Leaves: one `Critique` per item, or None where the critic cannot say: *not scored*, which is not a score of 0 and
never a positive reward. A critic judges each item alone. One that knows why an item is not scored returns `Critiques`,
a list that carries the reasons.
"""

import asyncio
import inspect
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

from text2grad._checked import shorten
from text2grad.errors import CriticError, Text2GradError
from text2grad.runs import Closable
from text2grad.types import Critique, Message

T = TypeVar("T")
Prompt = str | Sequence[Message]
LARGEST = 1e6
"""No score is larger: one of 1e30 among others would make zeros of all differences between them."""


class Critiques(list[Critique | None]):
    """Critiques, and why there is none where there is none: `reasons[index]`, for as many items as the critic knows.
    `brought`: the items of which the row's own spans, revision and verdict are part of the critique; people's are.

    >>> critiques = Critiques()
    >>> critiques.add(Critique("Fine.")); critiques.add(None, "there is no reference")
    >>> len(critiques), critiques.reasons
    (2, {1: 'there is no reference'})
    """

    def __init__(self, critiques: Iterable[Critique | None] = (), reasons: Mapping[int, str] | None = None) -> None:
        super().__init__(critiques)
        self.reasons = dict(reasons or {})
        self.brought: set[int] = set()

    def add(self, critique: Critique | None, reason: str | None = None) -> None:
        """The next item's critique, or None and why."""
        if critique is None and reason:
            self.reasons[len(self)] = reason
        self.append(critique)


class Critic(Protocol):
    def __call__(
        self, prompts: Sequence[Prompt], completions: Sequence[str], **columns: Sequence[Any]
    ) -> list[Critique | None] | Awaitable[list[Critique | None]]: ...


async def ask(
    critic: Critic, prompts: Sequence[Prompt], completions: Sequence[str], columns: Mapping[str, Sequence[Any]]
) -> Critiques:
    """Call a critic, sync or async, and check what it returns. What it raises becomes a `CriticError`."""
    try:
        returned = critic(prompts, completions, **columns)
        critiques = await returned if inspect.isawaitable(returned) else returned
    except Text2GradError:
        raise
    except BaseException as problem:
        if _is_ours(problem):
            raise
        raise CriticError(
            f"the critic {name_of(critic)} raised {described(problem)}, asked about {len(completions)} completions "
            f"with the columns {', '.join(columns) or '(none)'}. Mend the critic, or have it return None for what it "
            f"cannot judge; {DEBUG}=1 in the environment shows the whole traceback"
        ) from problem
    if not isinstance(critiques, list) or len(critiques) != len(completions):
        came = f"a list of {len(critiques)}" if isinstance(critiques, list) else type(critiques).__name__
        raise CriticError(
            f"{name_of(critic)} should return a list with one Critique or None for each of {len(completions)} "
            f"completions, got {came}"
        )
    for index, (critique, completion) in enumerate(zip(critiques, completions, strict=True)):
        if critique is not None and (wrong := _wrong_with(critique, completion)) is not None:
            raise CriticError(f"{name_of(critic)}, item {index}: {wrong}; the completion is {shorten(completion, 40)}")
    return critiques if isinstance(critiques, Critiques) else Critiques(critiques)


def _wrong_with(critique: Any, completion: str) -> str | None:
    """What is wrong with what a critic returned for a completion."""
    if not isinstance(critique, Critique):
        return f"should be a text2grad.Critique or None, got {type(critique).__name__}"
    quality = critique.quality or ()
    if quality and quality[-1][0] > len(completion):
        return (
            f"quality should end within the {len(completion)} characters of the completion, got a prefix that ends at "
            f"{quality[-1][0]}; count characters of the completion as it was given, not tokens or bytes"
        )
    numbers = {"score": critique.score or 0.0, **{f"quality at {end}": value for end, value in quality}}
    for name, value in numbers.items():
        if abs(value) > LARGEST:
            return f"{name} should lie within ±{LARGEST:g}, got {value:g}; scale it down, or return None if it failed"
    return None


def is_cancelled() -> bool:
    """Whether what asks a critic is to end, by Ctrl-C for one. A critic that is not async does not hear of it."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # nobody async asks
        return False
    return task is not None and task.cancelling() > 0


def _is_ours(problem: BaseException) -> bool:
    """Whether an exception stops the run, and is not the critic's own: Ctrl-C, or the end of the task it runs in."""
    if isinstance(problem, asyncio.CancelledError):
        return is_cancelled()
    return isinstance(problem, KeyboardInterrupt | GeneratorExit)


async def ask_all(
    critics: Iterable[Critic],
    prompts: Sequence[Prompt],
    completions: Sequence[str],
    columns: Mapping[str, Sequence[Any]],
) -> list[Critiques]:
    """Several critics about the same items, at the same time. Where one fails, the others are stopped and waited for:
    what they have paid for is kept."""
    tasks = [asyncio.ensure_future(ask(critic, prompts, completions, columns)) for critic in critics]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def ask_now(
    critic: Critic, prompts: Sequence[Prompt], completions: Sequence[str], columns: Mapping[str, Sequence[Any]]
) -> Critiques:
    """`ask` for callers that are not async themselves."""
    return asyncio.run(ask(critic, prompts, completions, columns))


class OwnLoop(Closable):
    """An event loop for callers that are not async: the client of a model lives in the loop that it started in. Closed,
    it can be used again: it is another loop then."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        # Not by `Runner.run`: it would make Ctrl-C wait until a critic that is not async returns.
        return self._apart(lambda: self._runner.get_loop().run_until_complete(work))

    def close(self) -> None:
        runner, self._runner = self._runner, asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._apart(runner.close)

    def _apart(self, work: Callable[[], T]) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return work()
        # Called from async code, as in a notebook: our loop runs in a thread of its own for as long as it takes.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(work).result()


DEBUG = "TEXT2GRAD_DEBUG"
"""The environment variable that makes the command line print tracebacks."""


def described(problem: BaseException) -> str:
    """An exception in one line: its class, its words, and the line of code it came from.

    >>> described(KeyError("reference"))
    "KeyError: 'reference'"
    """
    words = " ".join(str(problem).split())
    frames = traceback.extract_tb(problem.__traceback__)
    place = f" (line {frames[-1].lineno} of {frames[-1].filename})" if frames else ""
    return f"{type(problem).__name__}{': ' if words else ''}{words[:300]}{place}"


def name_of(critic: object) -> str:
    """A critic's name in messages: its own, or its class's."""
    return str(getattr(critic, "__name__", None) or type(critic).__name__)

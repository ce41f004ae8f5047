"""What a critic is: any callable `critic(prompts, completions, **columns) -> list[Critique | None]`, sync or async.

Enters: equal-length lists, one item a completion; columns by name (`reference`, `tests`, …), None where a row has none.
Leaves: one `Critique` an item, or None where the critic cannot say: *not scored*, which is not a score of 0 and never a
positive reward. A critic judges each item alone: its verdict does not depend on the others in the batch.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol

from text2grad.errors import CriticError
from text2grad.types import Critique, Message

Prompt = str | Sequence[Message]
Critiques = list[Critique | None]


class Critic(Protocol):
    def __call__(
        self, prompts: Sequence[Prompt], completions: Sequence[str], **columns: Sequence[Any]
    ) -> Critiques | Awaitable[Critiques]: ...


async def ask(
    critic: Critic, prompts: Sequence[Prompt], completions: Sequence[str], columns: Mapping[str, Sequence[Any]]
) -> Critiques:
    """Call a critic of either kind and hold it to the protocol."""
    found = critic(prompts, completions, **columns)
    if inspect.isawaitable(found):
        found = await found
    if not isinstance(found, list) or len(found) != len(completions):
        came = f"a list of {len(found)}" if isinstance(found, list) else type(found).__name__
        raise CriticError(
            f"{name_of(critic)} should return a list with one Critique or None for each of {len(completions)} "
            f"completions, got {came}"
        )
    for index, critique in enumerate(found):
        if critique is not None and not isinstance(critique, Critique):
            raise CriticError(
                f"{name_of(critic)}, item {index}: should be a text2grad.Critique or None, got "
                f"{type(critique).__name__}"
            )
    return found


def ask_now(
    critic: Critic, prompts: Sequence[Prompt], completions: Sequence[str], columns: Mapping[str, Sequence[Any]]
) -> Critiques:
    """`ask` for callers that are not async themselves."""
    return asyncio.run(ask(critic, prompts, completions, columns))


def name_of(critic: object) -> str:
    """A critic's name in messages: its own, or its class's."""
    return str(getattr(critic, "__name__", None) or type(critic).__name__)

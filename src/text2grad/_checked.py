"""Frozen dataclasses that are checked when they are made; pydantic does the checking, our errors do the talking.

Enters: a class with annotations. Leaves: a frozen, slotted dataclass that raises `error` with a message of the form
`Span.verdict: should be 'good', 'poor' or 'neutral', got 'bad'`. Knows nothing of what the fields mean.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Annotated, Any, TypeVar, cast, dataclass_transform

from annotated_types import Ge, Gt, Le, Lt
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    SecretStr,
    Strict,
    TypeAdapter,
    ValidationError,
)
from pydantic.dataclasses import dataclass

from text2grad.errors import Text2GradError
from text2grad.secrets import remember, without_password

T = TypeVar("T")

Int = Annotated[int, Strict(), Ge(-(2**63)), Lt(2**63)]
"""A whole number of 64 bits, as tensors hold them; `True`, `"3"` and `3.0` are refused rather than guessed at."""
Real = Annotated[float, Strict()]
"""A finite number; whole numbers pass."""
Rate = Annotated[Real, Gt(0), Le(1e30)]
"""A learning rate; larger ones overflow the optimizer's 32 bits."""
Decay = Annotated[Real, Ge(0), Le(1e3)]
"""A weight decay. Each step multiplies weights by 1 − learning rate × decay; with larger ones they run away."""


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise ValueError(
            f"should be text that can be written as UTF-8, got half a surrogate pair at character {problem.start}"
        ) from None
    return text


Text = Annotated[str, Strict(), AfterValidator(_encodable)]
"""Any text that can be written to a file and read back."""
Flag = Annotated[bool, Strict()]
"""True or false; `"off"` and 0 are refused."""


def _remembered(value: object) -> object:
    if not isinstance(value, str | SecretStr | None):
        raise ValueError(f"should be a text in quotes, got {type(value).__name__}")
    remember(value if isinstance(value, str) else None)
    return value


Secret = Annotated[SecretStr, BeforeValidator(_remembered), PlainSerializer(lambda _: None)]
"""A setting that is never written down: files hold null."""
Address = Annotated[str, PlainSerializer(without_password)]
"""A setting whose password is never written down."""


def _in_order(value: object) -> object:
    if not isinstance(value, list | tuple):
        raise ValueError(f"should be a list or a tuple, got {type(value).__name__}")
    return value


InOrder = BeforeValidator(_in_order)
"""Marks a tuple; pydantic alone would take a set for one, in any order."""

_RULES = ConfigDict(extra="forbid", allow_inf_nan=False)


@dataclass_transform(frozen_default=True)
def checked(error: type[Text2GradError]) -> Callable[[type[T]], type[T]]:
    """Decorate a class into a frozen dataclass whose violations raise `error`."""

    def decorate(cls: type[T]) -> type[T]:
        made: Any = dataclass(frozen=True, slots=True, config=_RULES)(cls)
        construct = made.__init__

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            try:
                construct(self, *args, **kwargs)
            except ValidationError as problem:
                raise error(explain(problem, made)) from None

        made.__init__ = __init__
        return cast(type[T], made)

    return decorate


def adapter(cls: type[T]) -> TypeAdapter[T]:
    """The reader and writer of a checked class, built once."""
    if cls not in _ADAPTERS:
        _ADAPTERS[cls] = TypeAdapter(cls)
    return _ADAPTERS[cls]


_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


def explain(problem: ValidationError, cls: type) -> str:
    """Pydantic's report as one line per violation: where, what was wanted, what came."""
    names = [field.name for field in fields(cls)]
    lines: dict[str, str] = {}
    found = [(cls.__name__ + _path(item["loc"], names), item) for item in problem.errors(include_url=False)]
    # Our own check explains the problem; the messages about the other allowed types add nothing.
    ours = {where for where, item in found if item["type"] == "value_error"}
    for where, item in found:
        if where in ours and item["type"] != "value_error":
            continue
        if item["type"] == "value_error":
            said = f"{item['ctx']['error']}"
        elif item["type"].startswith("missing"):
            said = "is required, nothing came"
        elif item["type"].startswith("unexpected"):
            said = f"there is no such field; the fields are {', '.join(names)}"
        else:
            wanted, got = item["msg"].replace("Input should be", "should be"), f", got {shorten(item['input'])}"
            before = lines.get(where, "")
            if before.startswith("should be ") and before.endswith(got) and wanted.startswith("should be "):
                # What another allowed type wants of the same value.
                others = before.removesuffix(got)
                wanted = wanted.removeprefix("should be ")
                wanted = others if wanted in others else f"{others} or {wanted}"
            said = wanted + got
        lines[where] = said
    return "\n".join(f"{where}: {said}" for where, said in lines.items())


def shorten(value: object, width: int = 80) -> str:
    """`repr`, cut to a width that fits an error message."""
    text = repr(value)
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _path(location: Sequence[int | str], names: Sequence[str]) -> str:
    """`('spans', 0, 'end')` → `.spans[0].end`; a leading number is a positional argument, named by its field."""
    if location and isinstance(location[0], int) and location[0] < len(names):
        location = (names[location[0]], *location[1:])
    # Pydantic names the branch of a union that it tried, as in `tuple[Message, ...]`: no part of the path to the value.
    known = [part for part in location if isinstance(part, int) or (part.isidentifier() and part not in _BRANCHES)]
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in known)


_BRANCHES = {"str", "int", "float", "bool", "none", "list", "dict"}

"""What can be said about a program without running it: whether it parses, and which names nobody defines.

Enters: source. Leaves: facts with lines. Pyflakes does the reading of scopes; style is none of its business, nor ours.
"""

import ast
from typing import NamedTuple

from pyflakes.checker import Checker
from pyflakes.messages import UndefinedName


class Fault(NamedTuple):
    """A syntax error, or an undefined name."""

    line: int | None
    column: int
    words: str
    """Python's message, or the name."""


def syntax_error(source: str) -> Fault | None:
    """Python's own complaint, if it cannot read the source.

    >>> syntax_error("def f(:\\n    pass")
    Fault(line=1, column=6, words='SyntaxError: invalid syntax')
    """
    try:
        ast.parse(source)
    except SyntaxError as problem:
        return Fault(problem.lineno, max(0, (problem.offset or 1) - 1), f"{type(problem).__name__}: {problem.msg}")
    except (ValueError, RecursionError, MemoryError) as problem:
        return Fault(None, 0, f"{type(problem).__name__}: {problem}")
    return None


def undefined_names(source: str) -> list[Fault]:
    """Names that are used and never bound, where Python would look for them; each at its first use.

    >>> undefined_names("def f(x):\\n    return helper(x) + helper(1)")
    [Fault(line=2, column=11, words='helper')]
    """
    try:
        messages = Checker(ast.parse(source), "program").messages
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    first: dict[str, Fault] = {}
    for message in sorted(messages, key=lambda message: (message.lineno, message.col)):
        if isinstance(message, UndefinedName):
            name = str(message.message_args[0])
            first.setdefault(name, Fault(message.lineno, message.col, name))
    return list(first.values())

"""What can be said about a program without running it: whether it parses or ends, and which names nobody defines.

Enters: source. Leaves: facts with lines. Pyflakes does the reading of scopes; style is none of its business, nor ours.
"""

import ast
import re
from codeop import compile_command
from typing import NamedTuple

from pyflakes.checker import Checker
from pyflakes.messages import UndefinedName

_LAST_WORD = re.compile(r"(?:\w+|[^\w\s()\[\]{},'\"]+)\Z")


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


def unfinished(source: str) -> bool:
    """Whether a source that Python cannot read might just lack its end. Its last word may be the beginning of another
    one.

    >>> [unfinished(source) for source in ("def f(x):", "[y f", "y = 'ab", "if x =", "x = = 1", "x = 1)", "x =\\n")]
    [True, True, True, True, False, False, False]
    """
    fault, without = syntax_error(source), _LAST_WORD.sub("", source)
    if fault is None or fault.line is None or "unexpected indent" in fault.words:
        return False
    return _open(source) or (without != source and (syntax_error(without) is None or _open(without)))


def _open(source: str) -> bool:
    """Whether the error is that the source ends here: in brackets, before a block, in the middle of a line."""
    try:
        if compile_command(source, "program", "exec") is None:
            return True
        ast.parse(source)
    except SyntaxError as problem:
        lines = source.split("\n")
        end, lacks_else = len(lines[-1].rstrip()), problem.msg.startswith("expected 'else'")
        at_end = (problem.end_offset if lacks_else else problem.offset) or 0
        return problem.lineno == len(lines) and (at_end > end or problem.msg.startswith("unterminated"))
    except (ValueError, OverflowError, RecursionError, MemoryError):
        pass
    return False


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

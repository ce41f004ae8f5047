"""Where the program is in a completion, and which characters a line of it is.

Enters: a prompt, a completion: a whole program, text with a ```python fence, or a function's body that goes on where
the prompt ends. Leaves: a `Source`: the program to run, and for any of its statements the characters of the completion
as given. Nothing is stripped or rewritten; a statement that stands in the prompt has no characters.
"""

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

from rapidfuzz import fuzz

from text2grad.types import Message

Place = tuple[int, int]
_FENCE = re.compile(
    r"^(?P<indent>[ \t]*)```[ \t]*(?P<language>[\w+-]*)[^\n]*\n(?P<code>.*?)(?:^(?:(?P=indent)| {0,3})```|\Z)",
    re.DOTALL | re.MULTILINE,
)
"""Up to a fence that is indented as the first one or by less than a block of code: one in a docstring ends nothing."""
_PYTHON = {"", "py", "python", "python3", "py3"}
_LINE = re.compile(r"\r\n|\r|\n")
_HEADER = re.compile(r":\s*(?:#[^\r\n]*\s*)*\Z")
_SIGNATURE = re.compile(r"def\s+(?P<name>\w+)\s*(?P<rest>\(.*)", re.DOTALL)
_STARTS = re.compile(r"main$|tests?(?:_|$)", re.IGNORECASE)
_NAME_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_ALIKE = 0.6
"""Names of which so much is the same are taken for one name."""


@dataclass(frozen=True)
class Source:
    """A program, and where it stands in the completion."""

    text: str
    offset: int
    """What to add to a position in `text` to get one in the completion; negative where the prompt is part of it."""
    completion: str

    @cached_property
    def starts(self) -> list[int]:
        """Where each line begins, as Python counts lines."""
        return [0, *(match.end() for match in _LINE.finditer(self.text))]

    def _line(self, number: int) -> Place:
        return self.starts[number - 1], self.starts[number] if number < len(self.starts) else len(self.text)

    @cached_property
    def tree(self) -> ast.Module | None:
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            return ast.parse(self.text)
        return None

    @cached_property
    def statements(self) -> dict[int, list[ast.stmt]]:
        """Statements by their first line; several may share one."""
        by_line: dict[int, list[ast.stmt]] = {}
        for node in ast.walk(self.tree or ast.Module([], [])):
            if isinstance(node, ast.stmt):
                by_line.setdefault(node.lineno, []).append(node)
        return by_line

    def line(self, number: int) -> Place | None:
        """The characters of a line without the white space around it, in the completion."""
        return self.place(*self._line(number)) if 1 <= number <= len(self.starts) else None

    def statement(self, number: int) -> Place | None:
        """The statement that begins on this line: all of a simple one, the header of one that has a body."""
        nodes = self.statements.get(number)
        if not nodes:
            return self.line(number)
        first = nodes[0]
        body = getattr(first, "body", None) or getattr(first, "cases", None)
        start = self._at(first.lineno, first.col_offset)
        if body:
            inner = getattr(body[0], "pattern", body[0])
            end = self._at(inner.lineno, inner.col_offset)
            header = _HEADER.search(self.text, start, end)
            end = header.start() + 1 if header else end
        else:
            end = max(self._at(node.end_lineno or node.lineno, node.end_col_offset or 0) for node in nodes)
        return self.place(start, end)

    def name(self, number: int, column: int, text: str) -> Place | None:
        """A name on a line, at a column counted in characters or bytes, whichever fits."""
        if not 1 <= number <= len(self.starts):
            return None
        for start in (self.starts[number - 1] + column, self._at(number, column)):
            if self.text.startswith(text, start):
                return self.place(start, start + len(text))
        return self.line(number)

    @property
    def ends_the_completion(self) -> bool:
        """Whether nothing follows the program, not even the end of a fence."""
        return self.offset + len(self.text) == len(self.completion)

    def misnamed(self, name: str, other: Collection[str]) -> str | None:
        """The function at the top of the completion that was meant to be called `name`: the one with the most similar
        name, or the only one that no other function uses; None where that is not clear. `other`: names that are right.

        What starts a program (`main`, `test…`, statements at the top) uses functions, and is meant to have its own
        name, unless there is nothing else."""
        functions = [each for each in self.functions if each not in other]
        if not _STARTS.match(name):
            functions = [each for each in functions if not _STARTS.match(each)] or functions
        unused = [each for each in functions if each not in self._used]
        likeness = {each: _likeness(each, name) for each in functions}
        # A helper is often named after the function that calls it, so a function that nobody calls is preferred.
        ranked = sorted(((likeness[each] + (each in unused) / 4, each) for each in functions), reverse=True)
        if not ranked or (len(ranked) > 1 and ranked[0][0] == ranked[1][0]):
            return None
        best = ranked[0][1]
        return best if unused == [best] or likeness[best] >= _ALIKE else None

    @cached_property
    def _used(self) -> set[str]:
        """Names that functions use, other than their own."""
        tops = [top for top in (self.tree.body if self.tree else []) if isinstance(top, ast.FunctionDef | ast.ClassDef)]
        parts = [(top.name, node) for top in tops if not _STARTS.match(top.name) for node in ast.walk(top)]
        return {node.id for name, node in parts if isinstance(node, ast.Name) and node.id != name}

    @cached_property
    def functions(self) -> dict[str, tuple[Place, Place]]:
        """Functions that the completion defines at the top: name → where the name and the parameters stand."""
        found = {}
        for node in (self.tree or ast.Module([], [])).body:
            header = self.statement(node.lineno) if isinstance(node, ast.FunctionDef) else None
            match = _SIGNATURE.match(self.completion, *header) if header else None
            if match is not None and isinstance(node, ast.FunctionDef):
                opened = (0, *accumulate({"(": 1, ")": -1}.get(sign, 0) for sign in match["rest"]))
                end = opened.index(0, 1) if 0 in opened[1:] else len(match["rest"])
                found[node.name] = match.span("name"), (match.start("rest"), match.start("rest") + end)
        return found

    def loop(self, number: int) -> int | None:
        """The first line of the innermost loop around a line."""
        return self._innermost(number, ast.For | ast.While)

    def owner(self, number: int) -> int | None:
        """The first line of the statement that a line belongs to: tracebacks name lines inside long statements."""
        return self._innermost(number, ast.stmt)

    def _innermost(self, number: int, kind: Any) -> int | None:
        nodes = [node for nodes in self.statements.values() for node in nodes if isinstance(node, kind)]
        around = [node.lineno for node in nodes if node.lineno <= number <= (node.end_lineno or node.lineno)]
        return max(around, default=None)

    def place(self, start: int, end: int) -> Place | None:
        """Positions of the program as positions of the completion; white space at the ends does not belong."""
        start = max(start, -self.offset)
        text = self.text[start:end]
        if not text.strip():
            return None
        start += len(text) - len(text.lstrip())
        return start + self.offset, start + len(text.strip()) + self.offset

    def _at(self, number: int, column: int) -> int:
        """Python counts columns in bytes of UTF-8."""
        start, end = self._line(number)
        return start + len(self.text[start:end].encode("utf-8", "surrogatepass")[:column].decode("utf-8", "ignore"))


def _likeness(one: str, other: str) -> float:
    """How much of two names is the same, from 0 to 1, whatever the order of their words.

    >>> [round(_likeness(name, "count_vowels"), 2) for name in ("countVowel", "vowel_count", "main")]
    [0.96, 0.96, 0.12]
    """
    a, b = (" ".join(_NAME_PART.findall(name)).lower() for name in (one, other))
    return max(fuzz.ratio(a, b), fuzz.token_sort_ratio(a, b)) / 100


def find(prompt: str | Sequence[Message], completion: str, wanted: Sequence[str] = ()) -> Source:
    """The program in a completion: the reading that parses and defines what the tests want, else that parses, else the
    likeliest one, so that its syntax error can be named.

    >>> find("def f(x):\\n", "    return x\\n").text
    'def f(x):\\n    return x\\n'
    >>> find("Write f.", "Sure:\\n```python\\ndef f(x): return x\\n```\\n").text
    'def f(x): return x\\n'
    """

    def rank(source: Source) -> tuple[bool, int, bool]:
        defined = _defined(source.tree) if source.tree is not None else set()
        return source.tree is None, sum(name not in defined for name in wanted), not defined

    return min(_readings(prompt, completion), key=rank)


def _readings(prompt: str | Sequence[Message], completion: str) -> Iterator[Source]:
    """Every way to read it, likeliest first."""
    fences = [match for match in _FENCE.finditer(completion) if match["language"].lower() in _PYTHON]
    for match in sorted(fences, key=lambda match: -len(match["code"])):
        yield Source(match["code"], match.start("code"), completion)
    text = prompt if isinstance(prompt, str) else prompt[-1].content if prompt else ""
    continued = Source(text + completion, -len(text), completion)
    alone = Source(completion, 0, completion)
    goes_on = completion[:1].isspace() or bool(re.search(r"^(?:def|class)\b[^\n]*:", text, re.MULTILINE))
    yield from (continued, alone) if goes_on and "def " in text else (alone, continued)


def _defined(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
    return names

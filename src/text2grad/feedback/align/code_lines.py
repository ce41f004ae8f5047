"""A completion that is code, as lines: what kind of statement each is, which names, numbers and texts it holds.

Enters: text. Leaves: `Line`s, or None where the text does not look like code. Reads by patterns, not by a parser: a
program that is criticised often does not parse, and the languages are many.
"""

import re
from dataclasses import dataclass

from text2grad.feedback.align.stems import wordset

_SIGNS = re.compile(
    r"^\s*(?:def |class |return\b|import |from \w[\w.]* import|if\b.*[:{]\s*$|elif\b|else\s*[:{]|for\b.*[:{]\s*$|"
    r"while\b.*[:{]\s*$|try\s*[:{]|except\b|"
    r"@\w+|#include|public |private |static |function\b|const |let |var |fn |func |print\(|[})\]]+;?\s*$|//|"
    r"package |using |#!|SELECT\b|\w[\w.\[\]]*\s*[-+*/%|&^]?=[^=]|"
    r"\w[\w.]*\(.*\)\s*[;:{]?\s*$|.*[;{]\s*$)"
)
_DOCSTRING = re.compile(r"\"\"\".*?(?:\"\"\"|\Z)|'''.*?(?:'''|\Z)", re.DOTALL)
_STRING = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'")
_NAME = re.compile(r"[A-Za-z_]\w*")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_OPERATORS = re.compile(r"\*\*|//|[-+*/%&|^~]|[<>]=?|[!=]=")
_KEYWORDS = """
and as assert async await bool break case catch char class const continue def del dict do double elif else enum
except false finally float fn for foreach from func function global if impl import in int is lambda let list match
new nil none not null or package pass print private public raise return self set static str string struct super
switch this throw true try tuple var void while with yield
"""
KEYWORDS = wordset(_KEYWORDS)

KINDS = (
    "return", "for", "while", "if", "elif", "else", "print", "import", "regex", "formula", "recursion", "range",
    "assignment", "header", "call", "text", "index", "comprehension", "sort", "compare", "comment", "try",
)  # fmt: skip

_PATTERNS = {
    "return": r"^\s*(?:return|yield)\b|\breturn\b",
    "for": r"\bfor\b|\bforeach\b",
    "while": r"\bwhile\b",
    "if": r"^\s*(?:}\s*)?if\b|\bif\s*\(",
    "elif": r"\belif\b|\belse if\b",
    "else": r"\belse\b",
    "print": r"\b(?:print|console\.log|println|printf|puts|echo|cout)\b",
    "import": r"^\s*(?:import|from|#include|using|require|package)\b",
    "regex": r"\bre\.\w+|\bregex\w*|\bRegExp\b|\bpattern\w*\s*=|r['\"]|\bmatch\(",
    "formula": r"[\w)\]]\s*(?:\*\*|//|[-+*/%])\s*[\w(\[]|\bmath\.\w+|\bsqrt\b|\bpow\b",
    "range": r"\brange\b|\bxrange\b|\.\.\.?",
    "assignment": r"^\s*[\w.,\[\]\s]+\s*[-+*/%|&^]?=[^=]",
    "header": r"^\s*(?:def|class|function|func|fn|public|private|static)\b",
    "call": r"\w\(",
    "text": r"['\"]",
    "index": r"\w\[[^\]]*\]",
    "comprehension": r"[\[({].*\bfor\b.*\bin\b.*[\])}]",
    "sort": r"\bsort\w*\b|\bmin\b|\bmax\b",
    "compare": r"[<>]=?|[!=]=|\bin\b|\bis\b|\band\b|\bor\b|\bnot\b",
    "comment": r"^\s*(?:#|//|/\*|\*)",
    "try": r"^\s*(?:try|except|catch|finally|raise|throw)\b",
}
_COMPILED = {kind: re.compile(pattern) for kind, pattern in _PATTERNS.items()}


@dataclass(frozen=True, slots=True)
class Line:
    start: int
    end: int
    """Without the indentation and the line break."""
    number: int
    """Counted from 1 in the completion, blank lines included."""
    indent: int
    kinds: frozenset[str]
    names: frozenset[str]
    numbers: frozenset[str]
    operators: frozenset[str]
    texts: str
    """What its text literals hold, lower case."""
    tight: str
    """The line without its white space."""


def code_lines(raw: str, shift: int = 0, *, certain: bool = False) -> list[Line] | None:
    """The lines that hold code, docstrings apart; None for prose. `shift` is where the text begins in the completion;
    `certain`: it is code, whatever it looks like.

    >>> [sorted(line.kinds) for line in code_lines("def f(n):\\n    return n * 2\\n") or ()]
    [['call', 'header'], ['formula', 'return']]
    >>> code_lines("Nine ships left.\\nThey came back.") is None
    True
    """
    hidden = [(match.start(), match.end()) for match in _DOCSTRING.finditer(raw)]
    rows = []
    position = 0
    for number, line in enumerate(raw.split("\n"), 1):
        start, position = position, position + len(line) + 1
        body = line.strip()
        if body and not any(a <= start + len(line) - len(line.lstrip()) < b for a, b in hidden):
            rows.append((start + line.index(body[0]), line, body, number))
    if not rows or (not certain and sum(bool(_SIGNS.match(line)) for _, line, _, _ in rows) < 0.5 * len(rows)):
        return None
    function = {match[1] for match in re.finditer(r"\b(?:def|function|func|fn)\s+(\w+)", raw)}
    return [_line(shift + start, line, body, number, function) for start, line, body, number in rows]


def _line(start: int, line: str, body: str, number: int, functions: set[str]) -> Line:
    bare = _STRING.sub("''", body)
    names = frozenset(name for name in _NAME.findall(bare) if name.lower() not in KEYWORDS)
    kinds = {kind for kind, pattern in _COMPILED.items() if pattern.search(body if kind in ("text", "regex") else bare)}
    if "header" not in kinds and names & functions:
        kinds.add("recursion")
    texts = " ".join(match[0][1:-1].lower() for match in _STRING.finditer(body))
    return Line(
        start,
        start + len(body),
        number,
        len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip()),
        frozenset(kinds),
        names,
        frozenset(_NUMBER.findall(bare)),
        frozenset(_OPERATORS.findall(bare)),
        texts,
        re.sub(r"\s+", "", body),
    )

"""References to code without quotes → lines: line numbers, traceback frames, names, kinds of statement.

Enters: a completion that is code, clauses of a critique. Leaves: spans of whole lines. Line numbers and traceback
frames are taken at their word; otherwise a line is found by what it holds. Reads by patterns, not by a parser: a
program that is criticised often does not parse, and the languages are many.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from rapidfuzz import fuzz

from text2grad.feedback.align.ordinals import picks
from text2grad.feedback.align.scorer import span_of
from text2grad.feedback.align.settings import CodeSettings
from text2grad.feedback.parse import Clause
from text2grad.feedback.text import ENGLISH, FUNCTION_WORDS, Place, stem, word_set
from text2grad.types import Span, Verdict

_SIGNS = re.compile(
    r"^\s*(?:def |class |return\b|import |from \w[\w.]* import|if\b.*[:{]\s*$|elif\b|else\s*[:{]|for\b.*[:{]\s*$|"
    r"while\b.*[:{]\s*$|try\s*[:{]|except\b|@\w+|#include|public |private |static |function\b|const |let |var |fn |"
    r"func |print\(|[})\]]+;?\s*$|//|package |using |#!|SELECT\b|\w[\w.\[\]]*\s*[-+*/%|&^]?=[^=]|"
    r"\w[\w.]*\(.*\)\s*[;:{]?\s*$|.*[;{]\s*$)"
)
_DOCSTRING = re.compile(r"\"\"\".*?(?:\"\"\"|\Z)|'''.*?(?:'''|\Z)", re.DOTALL)
_STRING = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'")
_NAME = re.compile(r"[^\W\d]\w*|\d+(?:\.\d+)?")
"""A name or a number."""
_KEYWORDS = word_set(ENGLISH["keywords"])
_KINDS = {
    "return": (r"\b(?:return|yield)\b", r"returns?|returned|returning"),
    "loop": (r"\b(?:for(?:each)?|while)\b", r"(?:for|while)[- ]statements?|loops?"),
    "if": (
        r"^(?:}\s*)?if\b|\bif\s*\(",
        r"if[- ](?:statement|condition|clause|block|check|case)s?|base cases?|condition(?:al)?s?",
    ),
    "formula": (
        r"[\w)\]]\s*(?:\*\*|//|[-+*/%])\s*[\w(\[]|\bmath\.\w+|\bsqrt\b|\bpow\b",
        r"formula\w*|equations?|calculations?|math|arithmetic|algebra\w*|expressions?",
    ),
    "range": (r"\bx?range\b|\.\.\.?", r"range|stop term|bounds?"),
    "comparison": (r"[=!<>]=|[^-=]>|<", r"compar\w+|inequalit\w+|(?:less|greater|larger|smaller) than|equal\w*"),
    "plus": (r"\+", r"adds|added|addition|adding|plus|increment\w*|sums?|summing|summed"),
    "minus": (r"-(?![\d.]*\s*[,)\]]|>)", r"subtract\w*|minus|decrement\w*|difference"),
    "times": (r"\*", r"multipl\w+|times|products?|squared?|power|exponent\w*"),
    "divide": (r"/", r"divi(?:d\w+|sion)|quotient"),
    "largest": (r"\bmax\w*", r"max\w*|largest|biggest|greatest|highest"),
    "smallest": (r"\bmin\w*", r"min\w*|smallest|lowest|least"),
    "assignment": (r"^[\w.\[\], ]+=(?!=)", r"assign\w*|initiali[sz]\w*|variables?"),
}
"""Kind of statement or operation → how it looks, how critics call it. Other statements are found by their names."""
_OPERATIONS = frozenset(("<plus>", "<minus>", "<times>", "<divide>", "<largest>", "<smallest>"))
_LOOKS = {kind: re.compile(looks) for kind, (looks, _) in _KINDS.items()}
_CALLED = {kind: re.compile(rf"\b(?:{words})\b", re.IGNORECASE) for kind, (_, words) in _KINDS.items()}
_SHORT = re.compile(
    r"(?:\bL|(?<=\w)\.[A-Za-z]{1,4}:)(\d{1,6}(?:\s*[-–]\s*L?\d{1,6})?)\b"
    r"(?! (?:norm|loss|regulari|distance|penalt|cache))"
)
"""A line as tools name it: "L5-L7", "stats.py:9"."""
_PER_POINT = 0.4
"""Confidence per point of a line's score. On people's feedback (ILF), lines of one to one and a half points are meant
in 57 of 100 cases, of one and a half to two in 82, of more in 90."""
_ALIKE = 70
"""Per cent of characters that a line shares with one offered in its stead."""
_LEAST = 0.1
"""Abstain below this confidence that a line is meant."""
_FRAME = re.compile(r"File \"[^\"\n]*\", line (\d+)(?:, in (\S+))?(?:\n(?![ \t]*File \")[ \t]+([^\n]*))?")


@dataclass(frozen=True, slots=True)
class Line:
    start: int
    end: int
    """Without the indentation and the line break."""
    number: int
    """Counted from 1 in the completion, blank lines included."""
    indent: int
    things: frozenset[str]
    """Names, numbers, the words of its text literals, and the kinds of statement that it is, in angle brackets."""
    tight: str
    """The line without its white space."""


def code_lines(raw: str, shift: int = 0, *, certain: bool = False) -> list[Line] | None:
    """The lines that hold code, docstrings apart; None for prose. `shift` is where the text begins in the completion;
    `certain`: it is code, whatever it looks like.

    >>> [sorted(line.things) for line in code_lines("def f(n):\\n    return n * 2\\n") or ()]
    [['f', 'n'], ['2', '<formula>', '<return>', '<times>', 'n']]
    >>> code_lines("Nine ships left.\\nThey came back.") is None
    True
    """
    hidden = [match.span() for match in _DOCSTRING.finditer(raw)]
    rows = []
    position = 0
    for number, line in enumerate(raw.split("\n"), 1):
        begin = position + len(line) - len(line.lstrip())
        position += len(line) + 1
        if line.strip() and not any(a <= begin < b for a, b in hidden):
            rows.append((begin, line, number))
    if not rows or (not certain and sum(bool(_SIGNS.match(line)) for _, line, _ in rows) < 0.5 * len(rows)):
        return None
    return [_line(shift + begin, line, number) for begin, line, number in rows]


def _line(start: int, line: str, number: int) -> Line:
    body, wide = line.strip(), line.expandtabs(4)
    bare = _STRING.sub("''", body)
    things = {name for name in _NAME.findall(bare) if name.lower() not in _KEYWORDS}
    things.update(f"<{kind}>" for kind, looks in _LOOKS.items() if looks.search(bare))
    things.update(word for text in _STRING.findall(body) for word in re.findall(r"[A-Za-z]{3,}", text))
    things.update(part for name in tuple(things) if name[0] != "<" for part in _parts(name))
    indent = len(wide) - len(wide.lstrip())
    return Line(start, start + len(body), number, indent, frozenset(things), re.sub(r"\s+", "", body))


def in_code(
    lines: Sequence[Line], clauses: Sequence[Clause], verdict: Verdict, settings: CodeSettings, quoted: Sequence[Place]
) -> list[Span]:
    """Spans of the clauses, all of which carry the one verdict (or none, which is taken for it)."""
    spans: list[Span] = []
    open_clauses = []
    for clause in clauses:
        named = named_lines(lines, clause.plain)
        spans += [_span(lines[index], clause, verdict, 0.95) for index in sorted(named)]
        open_clauses += [] if named else [clause]
    return spans + (_by_what_it_holds(lines, open_clauses, verdict, settings, quoted) if open_clauses else [])


def broken_line(lines: Sequence[Line], critique: str) -> Span | None:
    """The innermost frame of a traceback that lies in the completion: where it broke."""
    by_number = {line.number: line for line in lines}
    for frame in reversed(list(_FRAME.finditer(critique))):
        wanted = re.sub(r"\s+", "", frame[3] or "")
        alike = next((line for line in lines if line.tight == wanted), None)
        line = alike if wanted else by_number.get(int(frame[1]))
        if line is not None:
            comment = frame[0].strip()
            return Span(line.start, line.end, "poor", provenance="code", confidence=0.95, comment=comment)
    return None


def replaced_line(lines: Sequence[Line], offered: str) -> Span | None:
    """The line that comes nearest to one that is offered instead ("should be `n + 1`"), where it is near."""
    tight = re.sub(r"\s+", "", offered)
    scores = [fuzz.ratio(line.tight, tight) for line in lines]
    best = max(range(len(lines)), key=scores.__getitem__)
    if scores[best] < _ALIKE or scores.count(scores[best]) > 1:
        return None
    line, confidence = lines[best], round(0.9 * scores[best] / 100, 4)
    return Span(line.start, line.end, "poor", provenance="code", confidence=confidence, comment=offered)


def named_lines(lines: Sequence[Line], clause: str) -> set[int]:
    """Indices of the lines that a clause names outright: by number, or "the last line"."""
    by_number = {line.number: index for index, line in enumerate(lines)}
    named: set[int] = set()
    for pick in picks(_SHORT.sub(lambda short: f" line {short[1].replace('L', '')} ", clause), "line"):
        if pick.numbered:
            numbers = (place + 1 for place in pick.of(max(by_number, default=0)))
            named.update(by_number[number] for number in numbers if number in by_number)
        else:
            named.update(pick.of(len(lines)))
    return named


def _by_what_it_holds(
    lines: Sequence[Line], clauses: Sequence[Clause], verdict: Verdict, settings: CodeSettings, quoted: Sequence[Place]
) -> list[Span]:
    """Lines that share the clauses' names and kinds; the fewer lines have a name or are of a kind, the more it says."""
    said = [_things_in(clause.plain) for clause in clauses]
    everything = frozenset().union(*said)
    # Where words run together, a name stands inside a longer run of letters.
    names = {thing for line in lines for thing in line.things if not thing.isascii() and len(thing) > 1}
    everything |= {name for name in names if any(name in clause.plain for clause in clauses)}
    holders = Counter(thing for line in lines for thing in line.things)
    own = []
    for line in lines:
        shared = sum(_worth(thing) / holders[thing] for thing in line.things & everything)
        own.append(shared + any(start < line.end and line.start < end for start, end in quoted))
    scores = list(own)
    for index, line in enumerate(lines):
        # A line that is named speaks for what stands inside its block.
        header = next((k for k in range(index - 1, -1, -1) if lines[k].indent < line.indent), None)
        scores[index] += 0.3 * min(1.0, own[header]) if header is not None else 0.0
    # Of praise, only what is the only one of its name or kind: blame is what most critiques are about.
    least = max(settings.share * max(scores), 1.0 if verdict == "good" else 0.0)
    spans = []
    for line, score in zip(lines, scores, strict=True):
        confidence = min(0.9, _PER_POINT * score)
        if score >= least and confidence >= _LEAST:
            cause = max(range(len(clauses)), key=lambda k: len(line.things & said[k]))
            spans.append(_span(line, clauses[cause], verdict, confidence))
    return spans


def _things_in(words: str) -> frozenset[str]:
    """The names, the parts of names and the kinds of statement that a clause speaks of."""
    kinds = {f"<{kind}>" for kind, cue in _CALLED.items() if cue.search(words)}
    names = _NAME.findall(words)
    parts = {f"~{stem(name)}" for name in names if len(name) > 2 and name.lower() not in FUNCTION_WORDS}
    return frozenset(names) | kinds | parts


def _worth(thing: str) -> float:
    """Points for a thing that one line alone holds. A word of a name says less than the name, and an operation less
    than a statement: its words are said of much else."""
    return 0.25 if thing[0] == "~" else 0.5 if len(thing) < 3 or thing in _OPERATIONS else 1.0


@lru_cache(maxsize=4096)
def _parts(name: str) -> tuple[str, ...]:
    """The words that a name is made of, marked as such.

    >>> _parts("sum_of_digits"), _parts("maxValue")
    (('~sum', '~digit'), ('~max', '~valu'))
    """
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return tuple(f"~{stem(word)}" for word in words if len(word) > 2)


def _span(line: Line, clause: Clause, verdict: Verdict, confidence: float) -> Span:
    return span_of((line.start, line.end), verdict, confidence, clause, "code")

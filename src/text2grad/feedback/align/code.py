"""Critiques of code → the lines they are about, without quotes: line numbers, identifiers, kinds of statement,
tracebacks.

Enters: the lines of a completion, the parsed critique. Leaves: evidence per line, numbers with names, nothing decided
yet, except for line numbers and traceback frames: those are said outright.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from text2grad.feedback.align.code_lines import KINDS, Line
from text2grad.feedback.align.ordinals import ORDINAL, ordinal, picks
from text2grad.feedback.align.said import mentions_of
from text2grad.feedback.parse import Clause

_SAID = {
    "return": r"return\w*|yield\w*|answer|result|output",
    "for": r"for[- ]?loops?|for statement|loops?|iterat\w+|iterates|enumerat\w+",
    "while": r"while\b|while[- ]?loops?|loops?",
    "if": r"if[- ]?(?:statement|condition|clause|else|block|case)?s?\b|conditions?|conditional\w*|base cases?|"
    r"checks?|checking|edge cases?|cases?",
    "elif": r"elif|else[- ]?if|base cases?|cases?|conditions?",
    "else": r"else\b|otherwise|non\w*match\w*",
    "print": r"print\w*",
    "import": r"import\w*|librar\w+|modules?|packages?",
    "regex": r"regex\w*|regular expressions?|patterns?|match\w*",
    "formula": r"formulas?|formulae|formulation|equations?|calculat\w+|math\w*|arithmetic|algebra|expressions?|"
    r"multipl\w+|divid\w+|division|add(?:s|ed|ing|ition)?|subtract\w*|sum\w*|minus|plus|squar\w+|power|modul\w+|"
    r"remainder|operators?|comput\w+",
    "recursion": r"recurs\w+|recursive call",
    "range": r"ranges?|bounds?|stops?|starts?|stop term|ceiling|upper|lower|off[- ]by[- ]one|last element|index",
    "assignment": r"assign\w*|initiali\w+|variables?|values?|sets?|setting|updat\w+|defin\w+|stor\w+|declar\w+",
    "header": r"signatures?|parameters?|arguments?|function (?:name|header|definition)|method name|default value",
    "call": r"calls?|called|calling|functions?|methods?",
    "text": r"strings?|messages?|text|wording|quotes?|spelling|output",
    "index": r"ind(?:ex|ices|exes)\w*|elements?|positions?|access\w*|subscripts?|slic\w+|dictionar\w+|keys?",
    "comprehension": r"comprehensions?|lists?|tuples?",
    "sort": r"sort\w*|order\w*|min\w*|max\w*|smallest|largest",
    "compare": r"compar\w+|equal\w*|greater|less|inequalit\w+|conditions?|check\w*|boolean|and|or|not|whether",
    "comment": r"comments?",
    "try": r"exceptions?|error handling|try|except|catch|rais\w+|throw\w*",
}
_KIND_CUES = {kind: re.compile(rf"\b(?:{words})\b", re.IGNORECASE) for kind, words in _SAID.items()}
_STRONG_CUES = {
    "return": re.compile(
        r"\breturn (?:statement|value|expression|line|type|clause)s?|\breturns?\b|\breturned\b|\breturning\b", re.I
    ),
    "for": re.compile(r"\bfor[- ](?:loop|statement)s?|\bloops?\b", re.I),
    "while": re.compile(r"\bwhile[- ](?:loop|statement)s?|\bwhile\b.{0,12}\bcondition", re.I),
    "if": re.compile(
        r"\bif[- ](?:statement|condition|clause|block|check|case)s?|\bbase cases?|\bconditionals?\b|\bcondition\b", re.I
    ),
    "else": re.compile(r"\belse (?:statement|clause|case|block|branch)|\botherwise\b", re.I),
    "print": re.compile(r"\bprint(?:s|ing|ed)?(?: statement)?s?\b", re.I),
    "import": re.compile(r"\bimport(?:s|ing|ed)?\b", re.I),
    "regex": re.compile(r"\bregex\w*|\bregular expression|\bpattern", re.I),
    "formula": re.compile(r"\bformula\w*|\bequation|\bcalculation|\bmath\b|\barithmetic|\balgebra|\bexpression", re.I),
    "recursion": re.compile(r"\brecurs\w+", re.I),
    "range": re.compile(r"\brange\b|\bstop term|\bbounds?\b", re.I),
    "sort": re.compile(r"\bsort\w*", re.I),
    "header": re.compile(r"\bsignature|\bparameters?\b|\bfunction (?:name|header|definition)", re.I),
    "comment": re.compile(r"\bcomments?\b", re.I),
}
_OPERATOR_WORDS = {
    "+": r"plus|add(?:s|ed|ing|ition)?|sum",
    "-": r"minus|subtract\w*",
    "*": r"times|multipl\w+",
    "/": r"divid\w+|division",
    "//": r"floor|integer division|divid\w+",
    "%": r"mod(?:ul\w+)?|remainder",
    "**": r"power|squar\w+|exponent\w*|cubed?",
    "<": r"less|smaller|below|inequalit\w+",
    ">": r"greater|larger|more than|above|inequalit\w+",
    "<=": r"less|at most|inequalit\w+",
    ">=": r"greater|at least|inequalit\w+",
    "==": r"equals?|equality|same",
    "!=": r"not equal|unequal|different",
    "&": r"bitwise|ampersand",
    "|": r"bitwise|pipe",
    "^": r"xor|caret",
    "~": r"complement",
}
_OPERATOR_CUES = {sign: re.compile(rf"\b(?:{words})\b", re.IGNORECASE) for sign, words in _OPERATOR_WORDS.items()}
_NAME = re.compile(r"[A-Za-z_]\w*")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_NUMBER_WORDS = {"zero": "0", "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "ten": "10"}
_SHORT = re.compile(
    r"\b(?P<name>L\d{1,6})\b(?! (?:norm|loss|regulari|distance|penalt|cache))"
    r"(?:\s*[-–]\s*L?(?P<to>\d{1,6})\b)?"
    r"|(?<=\w)\.[A-Za-z]{1,4}:(?P<at>\d{1,6})\b(?:-(?P<until>\d{1,6})\b)?"
)
"""A line as tools name it: "L5-L7", "stats.py:9"."""
_NESTED = {"outer": 0, "inner": -1}
_ORDER = re.compile(
    rf"\b({ORDINAL}|inner|outer)\s+(?:\w+\s+)?(loop|if|condition|return|for|while|case|line|statement|else|call|"
    r"argument)",
    re.I,
)
_REWRITE = re.compile(
    r"\b(?:entire|whole|all of|completely|rewrite|rewrote|redo|unnecessar\w+|simply|just|all it needs|only needs|"
    r"another approach|different approach|"
    r"logic|algorithm|approach|ambiguous|procedure|implementation)\b",
    re.IGNORECASE,
)
_HEADER = re.compile(r"(?:async)?(?:def|function|func|fn)(\w+)\(")
_FRAME = re.compile(r"File \"[^\"\n]*\", line (\d+)(?:, in (\S+))?(?:\n(?![ \t]*File \")[ \t]+([^\n]*))?")

SCALARS = (
    "names", "rare_name", "call_name", "numbers", "texts", "operators", "quoted", "against_names", "kind_weak",
    "kind_strong", "kind_rare", "ordinal", "short_name", "inside_named", "before_named", "after_named", "first",
    "last", "nesting", "lines", "one_line", "rewrite", "good_kind", "said_words", "any_strong",
)  # fmt: skip
NAMES = (*SCALARS, *(f"is_{kind}" for kind in KINDS), *(f"said_{kind}" for kind in KINDS if kind in _STRONG_CUES))
_AT = {name: index for index, name in enumerate(NAMES)}


@dataclass(frozen=True, slots=True)
class CodeTalk:
    """What the clauses say of code, gathered once."""

    names: frozenset[str]
    calls: frozenset[str]
    against: frozenset[str]
    words: frozenset[str]
    numbers: frozenset[str]
    operators: frozenset[str]
    weak: frozenset[str]
    strong: frozenset[str]
    good: frozenset[str]
    ordinals: tuple[tuple[str, str], ...]
    rewrite: bool
    length: int


def talk_of(clauses: Sequence[Clause], praise: bool = False) -> CodeTalk:
    """`praise`: it is the praise that is looked for."""
    said = [clause for clause in clauses if praise or clause.verdict != "good"]
    poor = " . ".join(clause.plain for clause in said)
    good = " . ".join(clause.plain for clause in clauses if clause.verdict == "good" and not praise)
    mentions = [mention for clause in said for mention in mentions_of(clause.plain)]
    numbers = set(_NUMBER.findall(poor)) | {
        digit for word, digit in _NUMBER_WORDS.items() if re.search(rf"\b{word}\b", poor, re.I)
    }
    return CodeTalk(
        frozenset(_NAME.findall(poor)),
        frozenset(re.findall(r"([A-Za-z_][\w.]*)\(", poor)),
        frozenset(mention.stem for mention in mentions if not mention.meant),
        frozenset(word.lower() for word in _NAME.findall(poor)),
        frozenset(numbers),
        frozenset(sign for sign, cue in _OPERATOR_CUES.items() if cue.search(poor)),
        frozenset(kind for kind, cue in _KIND_CUES.items() if cue.search(poor)),
        frozenset(kind for kind, cue in _STRONG_CUES.items() if cue.search(poor)),
        frozenset(kind for kind, cue in _STRONG_CUES.items() if cue.search(good)),
        tuple((match[1].lower(), match[2].lower()) for match in _ORDER.finditer(poor)),
        bool(_REWRITE.search(poor)),
        len(poor.split()),
    )


def broken_line(lines: Sequence[Line], critique: str) -> tuple[int, str] | None:
    """(index, frame) of the innermost frame of a traceback that lies in the completion: where it broke."""
    by_number = {line.number: index for index, line in enumerate(lines)}
    for frame in reversed(list(_FRAME.finditer(critique))):
        wanted = re.sub(r"\s+", "", frame[3] or "")
        index = next((k for k, line in enumerate(lines) if wanted and line.tight == wanted), None)
        if index is None and not wanted:
            index = by_number.get(int(frame[1]))
        if index is not None:
            return index, frame[0].strip()
    return None


def named_lines(lines: Sequence[Line], clause: str) -> dict[int, str]:
    """Index of a line → the words that name it outright: a line number, "the last line"."""
    by_number = {line.number: index for index, line in enumerate(lines)}
    found: dict[int, str] = {}
    for pick in picks(clause, "line"):
        said = clause[pick.start : pick.end]
        if pick.numbered:
            numbers = (place + 1 for place in pick.of(max(by_number, default=0)))
            found.update((by_number[number], said) for number in numbers if number in by_number)
        else:
            found.update((place, said) for place in pick.of(len(lines)))
    for match in _SHORT.finditer(clause):
        name, first = match["name"], int(match["at"] or match["name"][1:])
        if name and any(name in line.names for line in lines):
            continue
        last = int(match["until"] or match["to"] or first)
        found.update((index, match[0]) for number, index in by_number.items() if first <= number <= last)
    return found


def line_evidence(
    lines: Sequence[Line],
    talk: CodeTalk,
    quoted: Sequence[tuple[int, int]] = (),
    functions: frozenset[str] = frozenset(),
) -> NDArray[np.float32]:
    """One row per line, one column per name in `NAMES`."""
    holders: dict[str, int] = {}
    kinds_held: dict[str, int] = {}
    kinds = [line.kinds | ({"recursion"} if line.names & functions else set()) for line in lines]
    for line, held in zip(lines, kinds, strict=True):
        for name in line.names:
            holders[name] = holders.get(name, 0) + 1
        for kind in held:
            kinds_held[kind] = kinds_held.get(kind, 0) + 1
    rows = np.zeros((len(lines), len(NAMES)), dtype=np.float32)
    shallow = min((line.indent for line in lines), default=0)
    for index, (line, held) in enumerate(zip(lines, kinds, strict=True)):
        row = _Row(rows[index])
        _match(row, line, talk, holders)
        strong = held & talk.strong
        row.kind_weak = len(held & talk.weak)
        row.kind_strong = len(strong)
        row.kind_rare = max((1 / kinds_held[kind] for kind in strong), default=0.0)
        row.good_kind = bool(held & talk.good)
        row.quoted = any(start < line.end and line.start < end for start, end in quoted)
        row.ordinal = _ordinal(kinds, index, talk.ordinals)
        row.first, row.last, row.one_line = index == 0, index == len(lines) - 1, len(lines) == 1
        row.nesting = min(4, (line.indent - shallow) / 4)
        row.lines = min(len(lines), 20) / 10
        row.rewrite, row.said_words, row.any_strong = talk.rewrite, min(talk.length, 100) / 50, bool(talk.strong)
        for kind in held:
            rows[index, _AT[f"is_{kind}"]] = 1
        for kind in strong:
            rows[index, _AT[f"said_{kind}"]] = 1
    _neighbours(rows, lines)
    return rows


def _match(row: "_Row", line: Line, talk: CodeTalk, holders: dict[str, int]) -> None:
    met = line.names & talk.names
    long = {name for name in met if len(name) > 2 or "_" in name}
    row.names = min(3, len(long))
    row.short_name = min(3, len(met - long))
    row.rare_name = max((1 / holders[name] for name in long), default=0.0)
    row.call_name = bool({name.rpartition(".")[2] for name in talk.calls} & line.names)
    row.numbers = min(3, len(line.numbers & talk.numbers))
    row.operators = min(3, len(line.operators & talk.operators))
    words = set(re.findall(r"[a-z]{3,}", line.texts))
    row.texts = len(words & talk.words) / len(words) if words else 0.0
    row.against_names = bool({name.lower() for name in line.names} & talk.against) and not long


def _ordinal(kinds: Sequence[frozenset[str] | set[str]], index: int, said: Sequence[tuple[str, str]]) -> float:
    """1 where "the second loop" is this line, −1 where it is another line of that kind."""
    names = {"loop": {"for", "while"}, "condition": {"if", "elif"}, "case": {"if", "elif"}, "call": {"recursion"}}
    best = 0.0
    for place, kind in said:
        wanted = names.get(kind, {kind})
        same = [k for k, held in enumerate(kinds) if held & wanted]
        if index in same and len(same) > 1:
            tally = _NESTED[place] if place in _NESTED else ordinal(place)
            if -len(same) <= tally < len(same):
                best = 1.0 if same[tally] == index else min(best, -1.0) or -1.0
    return best


def _neighbours(rows: NDArray[np.float32], lines: Sequence[Line]) -> None:
    """A named line speaks for what stands inside its block, and a little for the lines beside it."""
    strength = np.minimum(1.0, rows[:, _AT["rare_name"]] + rows[:, _AT["kind_rare"]] + rows[:, _AT["quoted"]])
    for index, line in enumerate(lines):
        if index:
            rows[index, _AT["after_named"]] = strength[index - 1]
        if index + 1 < len(lines):
            rows[index, _AT["before_named"]] = strength[index + 1]
        for above in range(index - 1, max(-1, index - 8), -1):
            if lines[above].indent < line.indent:
                rows[index, _AT["inside_named"]] = strength[above]
                break


def functions_in(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """Name of each function that the lines define → its lines, header first."""
    found: dict[str, list[Line]] = {}
    holder: tuple[str, int] | None = None
    for line in lines:
        header = _HEADER.match(line.tight)
        if header and "header" in line.kinds:
            holder = (header[1], line.indent)
            found[header[1]] = [line]
        elif holder and line.indent > holder[1]:
            found[holder[0]].append(line)
        else:
            holder = None
    return found


POINTED = [_AT[name] for name in ("rare_name", "call_name", "kind_rare", "texts", "ordinal")]
"""Columns that point at a line by something only few lines have."""
TOUCHED = [_AT[name] for name in (
    "names", "short_name", "call_name", "numbers", "texts", "operators", "quoted", "kind_weak", "kind_strong",
    "ordinal",
)]  # fmt: skip
"""Columns that say that a critique touches a line at all; where none does, the scorer knows only what lines in general
are worth."""


def nearness(line: Line, clause: Clause) -> int:
    """How much of a line a clause names."""
    words = set(_NAME.findall(clause.plain))
    texts = len(set(re.findall(r"[a-z]{3,}", line.texts)) & {word.lower() for word in words})
    numbers = len(line.numbers & set(_NUMBER.findall(clause.plain)))
    return (
        texts
        + numbers
        + 2 * len(words & line.names)
        + sum(bool(cue.search(clause.plain)) for kind, cue in _STRONG_CUES.items() if kind in line.kinds)
    )


class _Row:
    """A row of the matrix by column names, so that the code above reads."""

    def __init__(self, cells: NDArray[np.float32]) -> None:
        object.__setattr__(self, "_cells", cells)

    def __setattr__(self, name: str, value: float) -> None:
        self._cells[_AT[name]] = value  # type: ignore[attr-defined]

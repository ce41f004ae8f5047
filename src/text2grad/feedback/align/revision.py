"""A corrected version → what was wrong: the words that the correction removed or replaced.

Enters: the completion and its revision. Leaves: places in the completion, in order. Words that the correction only
added have no place here; they are omissions of the completion. Changes of small words alone ("a" → "the") come with
almost every correction and are left out where anything else changed.
"""

import re
from difflib import SequenceMatcher

from rapidfuzz.distance import LCSseq

from text2grad.feedback.align.code_lines import code_lines
from text2grad.feedback.align.places import UNSPACED, Place
from text2grad.feedback.align.settings import RevisionSettings
from text2grad.feedback.align.stems import FUNCTION_WORDS

_TOKEN = re.compile(rf"(?=\w)[{UNSPACED}]|[^\W{UNSPACED}]+(?:['’.,][^\W{UNSPACED}]+)*|[^\w\s]")
"""A word; where words run together, a character."""
_LINE = re.compile(r"[^\n]*\S[^\n]*")
_WHITE = re.compile(r"\s+")
_CLOSE_READING = 4_000
"""Tokens up to which the diff looks for the longest unchanged stretches, as a reader would; beyond it, whose cost
grows with the square, the longest common subsequence is found instead."""


def changed(completion: str, revision: str, settings: RevisionSettings) -> tuple[list[Place], list[str]]:
    """(places removed or replaced, texts that were only added). Nothing where the revision is another text altogether.

    >>> changed("Seven ships left on Tuesday.", "Nine ships left.", RevisionSettings())
    ([(0, 5), (17, 27)], [])
    """
    if "\n" in completion.strip() and code_lines(completion):
        return _changed_lines(completion, revision, settings)
    ours = [(match.start(), match.end(), match[0]) for match in _TOKEN.finditer(completion)]
    theirs = [(match.start(), match.end(), match[0]) for match in _TOKEN.finditer(revision)]
    removed: list[tuple[int, int]] = []
    added: list[str] = []
    for start, end, their_start, their_end in _differences(
        [token[2] for token in ours], [token[2] for token in theirs]
    ):
        if start < end:
            removed.append((start, end))
        elif any(token[2][0].isalnum() for token in theirs[their_start:their_end]):
            added.append(revision[theirs[their_start][0] : theirs[their_end - 1][1]])
    weighty = [piece for piece in removed if any(_weighs(token[2]) for token in ours[piece[0] : piece[1]])]
    places = [(ours[start][0], ours[end - 1][1]) for start, end in weighty or removed]
    return _unless_new(completion, places, added, settings)


def _unless_new(
    completion: str, places: list[Place], added: list[str], settings: RevisionSettings
) -> tuple[list[Place], list[str]]:
    if sum(end - start for start, end in places) > settings.most * max(1, len(completion.strip())):
        return [], []
    return places, added


def _changed_lines(completion: str, revision: str, settings: RevisionSettings) -> tuple[list[Place], list[str]]:
    """Code is corrected line by line: a line is as it was or it is not; indentation and blank lines apart."""
    ours = [match.span() for match in _LINE.finditer(completion)]
    theirs = [match[0].strip() for match in _LINE.finditer(revision)]
    tight = [_WHITE.sub("", completion[start:end]) for start, end in ours]
    places: list[Place] = []
    added: list[str] = []
    for start, end, their_start, their_end in _differences(tight, [_WHITE.sub("", line) for line in theirs]):
        for first, last in ours[start:end]:
            body = completion[first:last]
            places.append((first + len(body) - len(body.lstrip()), first + len(body.rstrip())))
        if start == end:
            added.append("\n".join(theirs[their_start:their_end]))
    return _unless_new(completion, places, added, settings)


def _weighs(token: str) -> bool:
    return token[0].isalnum() and token.lower() not in FUNCTION_WORDS


def _differences(ours: list[str], theirs: list[str]) -> list[tuple[int, int, int, int]]:
    """(start, end) in ours and in theirs of every stretch that is not common to both."""
    first = 0
    while first < min(len(ours), len(theirs)) and ours[first] == theirs[first]:
        first += 1
    last = 0
    while last < min(len(ours), len(theirs)) - first and ours[-1 - last] == theirs[-1 - last]:
        last += 1
    inner, outer = ours[first : len(ours) - last], theirs[first : len(theirs) - last]
    codes: list[tuple[str, int, int, int, int]]
    if max(len(inner), len(outer)) <= _CLOSE_READING:
        codes = list(SequenceMatcher(None, inner, outer, autojunk=False).get_opcodes())
    else:
        codes = [(c.tag, c.src_start, c.src_end, c.dest_start, c.dest_end) for c in LCSseq.opcodes(inner, outer)]
    found: list[tuple[int, int, int, int]] = []
    for tag, a, b, c, d in codes:
        if tag == "equal":
            continue
        if found and found[-1][1] == first + a and found[-1][3] == first + c:
            found[-1] = (found[-1][0], first + b, found[-1][2], first + d)
        else:
            found.append((first + a, first + b, first + c, first + d))
    return found

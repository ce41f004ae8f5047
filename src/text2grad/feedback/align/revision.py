"""A corrected version → what was wrong: the words that the correction removed or replaced.

Enters: the completion and its revision. Leaves: places in the completion, in order. Words that the correction only
added have no place here; they are omissions. Changes of function words alone ("a" → "the") come with almost every
correction and are left out where anything else changed.
"""

import re
from difflib import SequenceMatcher

from rapidfuzz.distance import LCSseq

from text2grad.feedback.align.code import code_lines
from text2grad.feedback.text import FUNCTION_WORDS, PIECE, Place

_LINE = re.compile(r"\S[^\n]*")
_MOST = 0.9
"""A revision that changes more than this share of the completion is a new text, which points nowhere."""
_CLOSE_READING = 4_000
"""Tokens up to which the diff looks for the longest unchanged stretches, as a reader would. Its cost grows with the
square; beyond, the longest common subsequence is found instead."""


def changed(completion: str, revision: str) -> tuple[list[Place], list[str]]:
    """(places removed or replaced, texts that were only added). Nothing where the revision is another text altogether.

    >>> changed("Seven ships left on Tuesday.", "Nine ships left.")
    ([(0, 5), (17, 27)], [])
    """
    code = "\n" in completion.strip() and code_lines(completion) is not None
    # Code is corrected line by line: a line is as it was or it is not, indentation and blank lines apart.
    pattern = _LINE if code else PIECE
    ours = [match.span() for match in pattern.finditer(completion)]
    theirs = [match.span() for match in pattern.finditer(revision)]
    keys = [[re.sub(r"\s+", "", raw[a:b]) for a, b in spans] for raw, spans in ((completion, ours), (revision, theirs))]
    removed: list[Place] = []
    added: list[str] = []
    for start, end, their_start, their_end in _differences(*keys):
        if start < end:
            removed += [(k, k + 1) for k in range(start, end)] if code else [(start, end)]
        elif code or any(key[0].isalnum() for key in keys[1][their_start:their_end]):
            added.append(revision[theirs[their_start][0] : theirs[their_end - 1][1]])
    weighty = [piece for piece in removed if code or any(map(_weighs, keys[0][slice(*piece)]))]
    places = [(ours[start][0], ours[end - 1][1]) for start, end in weighty or removed]
    places = [(start, start + len(completion[start:end].rstrip())) for start, end in places]
    if sum(end - start for start, end in places) > _MOST * max(1, len(completion.strip())):
        return [], []
    return places, added


def _weighs(token: str) -> bool:
    return token[0].isalnum() and token.lower() not in FUNCTION_WORDS


def _differences(ours: list[str], theirs: list[str]) -> list[tuple[int, int, int, int]]:
    """(start, end) in ours and in theirs of every stretch that is not common to both."""
    codes: list[tuple[str, int, int, int, int]]
    if max(len(ours), len(theirs)) <= _CLOSE_READING:
        codes = list(SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes())
    else:
        codes = [(c.tag, c.src_start, c.src_end, c.dest_start, c.dest_end) for c in LCSseq.opcodes(ours, theirs)]
    stretches: list[tuple[int, int, int, int]] = []
    for tag, a, b, c, d in codes:
        if tag == "equal":
            continue
        if stretches and stretches[-1][1] == a and stretches[-1][3] == c:
            stretches[-1] = (stretches[-1][0], b, stretches[-1][2], d)
        else:
            stretches.append((a, b, c, d))
    return stretches

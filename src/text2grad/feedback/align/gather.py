"""Clauses → what they say together about one stretch of the completion (`Said`)."""

import re
from collections.abc import Sequence
from itertools import pairwise

from text2grad.feedback.align import cues
from text2grad.feedback.align.evidence import Met, Said
from text2grad.feedback.align.said import mentions_of
from text2grad.feedback.align.stems import FUNCTION_WORDS, stem
from text2grad.feedback.parse import Clause

_WORD = re.compile(r"[^\W_]+(?:[-'’.,/:&][^\W_]+)*%?")
_DENIES = re.compile(
    r"\b(?:not?|n['’]t|never|nowhere|un(?:supported|verified|mentioned)|absent|makes? up|made up|adds?|"
    r"hallucinat\w+|fabricat\w+|invent\w+)\b",
    re.IGNORECASE,
)


def gather(clauses: Sequence[Clause], praise: bool = False) -> Said:
    """`praise`: it is the praise that is looked for, and its words are the ones that are meant."""
    meant: dict[str, Met] = {}
    against: set[str] = set()
    good: set[str] = set()
    surfaces: set[str] = set()
    pairs: set[tuple[str, str]] = set()
    kinds: set[str] = set()
    says_all = denies = False
    count = 0
    for number, clause in enumerate(clauses):
        mentions = mentions_of(clause.plain)
        against.update(mention.stem for mention in mentions if not mention.meant)
        if clause.verdict == "good" and not praise:
            good.update(mention.stem for mention in mentions)
            continue
        for mention in mentions:
            if mention.meant:
                meant.setdefault(mention.stem, Met()).add(number, mention)
        lowered = [match[0].lower() for match in _WORD.finditer(clause.plain)]
        count += len(lowered)
        surfaces.update(lowered)
        content = [stem(word) for word in lowered if word not in FUNCTION_WORDS]
        pairs.update(pairwise(content))
        kinds |= cues.cues_of(clause.plain)
        says_all = says_all or bool(cues.ALL.search(clause.plain))
        denies = denies or bool(_DENIES.search(clause.plain))
    return Said(
        meant,
        frozenset(against),
        frozenset(good),
        frozenset(surfaces),
        frozenset(pairs),
        frozenset(kinds),
        says_all,
        denies,
        count,
    )

"""What a critique finds missing. No span can hold it: it belongs to the decision to stop.

Enters: a clause, the completion, the source. Leaves: the words for what is missing, or None. "Does not mention X" is an
omission only of the completion: said of the source it blames X, and so it does where X stands in the completion.
"""

import re

from text2grad.feedback import lexicon
from text2grad.feedback.align import cues
from text2grad.feedback.align.stems import content_stems
from text2grad.feedback.parse import Clause

_SOURCE_SUBJECT = re.compile(rf"\b{lexicon.SOURCE_NOUN}\b|\bthere(?:['’]s| is| was| were|['’]re| are)\b", re.IGNORECASE)
_SUBJECT = re.compile(rf"\b(?:{lexicon.COMPLETION_NOUN})(?:\s+\w+ly|\s+also|\s+still|\s+just)?\s*$", re.IGNORECASE)
_VAGUE = frozenset(("it", "this", "he", "she", "they", "text"))
"""Subjects that may stand for the source as well."""
_OF_SOURCE = re.compile(r"\s*(?:in|by|from|at all in) (?:the |this )?(?:source|article|original)", re.IGNORECASE)
_LEAD = re.compile(r"(?:[\s,:]|\b(?:to|of|about|on|from|that|the fact that|any|even|also|it|out)\b)*", re.IGNORECASE)
_TOLD = 0.6
"""Share of the missing thing's words that the source must hold, so that the completion could have told it."""
_STANDS = 0.5
"""Share of them that makes the thing present in the completion, whatever the critique calls it."""


def finds_missing(clause: Clause) -> bool:
    """Whether the clause has any word for it; most have none."""
    text = clause.plain
    return bool(lexicon.OMISSION_OUTRIGHT.search(text) or lexicon.OMISSION_SAID.search(text))


def omission_of(
    clause: Clause, completion: frozenset[str] | set[str], source: frozenset[str] | set[str] | None
) -> str | None:
    """The words of the critique for what is missing; `completion` and `source` are the stems of the two texts."""
    text = clause.plain
    outright = lexicon.OMISSION_OUTRIGHT.search(text)
    cue = outright or lexicon.OMISSION_SAID.search(text)
    if cue is None or clause.quotes:
        return None
    before, after = text[: cue.start()], text[cue.end() :]
    missing = after if content_stems(after) else before
    wanted = content_stems(missing)
    if not wanted or _SOURCE_SUBJECT.search(before) or _OF_SOURCE.match(after):
        return None
    there = len(wanted & completion) / len(wanted)
    subject = _SUBJECT.search(before)
    explicit = subject is not None and subject[0].split()[0].lower() not in _VAGUE
    told = source is None or len(wanted & source) / len(wanted) >= _TOLD
    if outright or explicit:
        return _trim(missing) if there < _STANDS else None
    # Nobody is named who does not tell it: only what the source tells and the completion has no word of.
    unnamed = there == 0 and told and not cues.cues_of(missing) & {"first_name", "name", "age", "role"}
    return _trim(missing) if unnamed else None


def _trim(words: str) -> str:
    lead = _LEAD.match(words)
    trimmed = words[lead.end() :] if lead else words
    return trimmed.strip(" \t\r\n.,;:!?\"'") or words.strip()

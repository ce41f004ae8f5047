"""What a critique finds missing. No span can hold it: it belongs to the decision to stop.

Enters: the clauses, the stems of the completion and of the source. Leaves: the clauses about something that is there,
and the words for what is missing. "Does not mention X" is an omission only of the completion: said of the source it
blames X, and so it does where X stands in the completion.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from text2grad.feedback.align.evidence import kinds_in, stems_of
from text2grad.feedback.lexicon import COMPLETION_NOUN, SOURCE_NOUN, content_stems, verdict_of
from text2grad.feedback.parse import Clause

_TELL = (
    r"(?:mention|includ|cover|explain|address|discuss|say|stat|tell|giv|provid|contain|describ|refer|not|specif|show|"
    r"captur|account for|consider|handl|check|talk about|touch on|acknowledg|add|speak of|bring up)\w*"
)
_UNTOLD = re.compile(
    rf"\b(?:(?:does|do|did|is|are|was|were)(?:\s+not|n['’]t)\s+(?:even |also |really |actually |ever |being )*{_TELL}"
    rf"|never (?:even |once |really |actually )?{_TELL}|(?:no|without (?:any )?) ?(?:mention|reference|information|"
    r"explanation|discussion|word|sign|trace) (?:of|to|about|on|that)|(?:there is|says?|said) nothing (?:about|on|of))"
    r"\b",
    re.IGNORECASE,
)
"""Something is not told. Of the completion it finds an omission; of the source it blames what the completion adds."""
_MISSING = re.compile(
    rf"\b(?:(?:fail\w*|neglect\w*|forg[eo]t\w*|omit\w*) to {_TELL}|forg[eo]t(?:s|ten)?|neglect(?:s|ed)?"
    r"|leav(?:es?|ing) out|left out|omit(?:s|ted|ting)?|omission of|skip(?:s|ped|ping)?|overlook(?:s|ed|ing)?"
    r"|ignor(?:es?|ed|ing)|(?:is|are) (?:also )?missing|missing (?:the|a|an|any|from|some|details?|information)"
    r"|lack(?:s|ing)?|misses|(?:is|are|was|were) (?:entirely |completely |also )?(?:absent|nowhere to be found)"
    r"|(?:should|could|must|needs? to|ought to|might|please)\s+(?:also )?(?:add|include|mention|cover|explain|address|"
    r"say (?:something|more)|talk about|speak (?:of|about)|discuss|touch on|go into|expand on|elaborate on|acknowledge)"
    r"|(?:should|could|must) have (?:also )?(?:added|included|mentioned|covered|explained|said)"
    r"|(?:needs?|could use|wants?|requires?|deserves?)\s+(?:more|some|further|additional)\s+(?:\w+\s+)?(?:details?|"
    r"information|context|explanations?|depth|background)\s+(?:about|on|of|for))\b"
    r"|^\s*(?:and |but |so )?what about\b(?=[^?]*\?)|^\s*(?:please |also |then )*(?:add|include|mention)\b(?! up\b)",
    re.IGNORECASE,
)
"""Something is missing, whoever should have told it."""
_DENIED = re.compile(r"(?:\b(?:not|never|nothing|hardly|no)|n['’]t)\s+(?:\w+\s+)?$", re.IGNORECASE)
_NOTHING = re.compile(r"\W*(?:nothing|none|little)\b", re.IGNORECASE)
_SEAM = re.compile(r"[,;]\s+(?:(?:and|but|so|while)\s+)?(?!which\b|who\b|that\b|where\b)", re.IGNORECASE)
_SOURCE = re.compile(rf"\b{SOURCE_NOUN}\b", re.IGNORECASE)
_OF_SOURCE = re.compile(rf"\b(?:in|by|from) (?:the |this |its )?{SOURCE_NOUN}\b", re.IGNORECASE)
_SUBJECT = re.compile(rf"\b{COMPLETION_NOUN}(?:\s+\w+ly|\s+also|\s+still|\s+just)?\s*$", re.IGNORECASE)
_VAGUE = frozenset(("it", "this", "he", "she", "they", "text"))
"""Subjects that may stand for the source as well."""
_LEAD = re.compile(r"(?:[\s,:]|\b(?:to|of|about|on|from|that|the fact that|any|even|also|it|out)\b)*", re.IGNORECASE)
_TOLD = 0.6
"""Share of the missing thing's words that the source must hold, so that the completion could have told it."""
_STANDS = 0.5
"""A larger share of them makes the thing present in the completion, whatever the critique calls it."""


def split_omissions(
    clauses: Sequence[Clause], completion: str, source: Collection[str] | None
) -> tuple[list[Clause], list[str]]:
    """(clauses about something that is there, the words for what is not). A clause may be both, one part each.
    `source`: the stems of the source."""
    if not any(_MISSING.search(clause.plain) or _UNTOLD.search(clause.plain) for clause in clauses):
        return list(clauses), []
    stems = stems_of(completion)
    there: list[Clause] = []
    missing: list[str] = []
    for clause in clauses:
        said, judged = _parts(clause.plain)
        omission = None if clause.quotes else _omission(said, stems, source)
        if omission is None:
            there.append(clause)
            continue
        missing.append(omission)
        if judged:
            there.append(replace(clause, text=judged, plain=judged, verdict=verdict_of(judged)))
    return there, missing


def _parts(words: str) -> tuple[str, str]:
    """(what may be missing, the parts that judge something by themselves).

    >>> _parts("It omits the cost, and the ships are wrong.")
    ('It omits the cost', 'the ships are wrong.')
    """
    parts = _SEAM.split(words)
    cues = [bool(_MISSING.search(part) or _UNTOLD.search(part)) for part in parts]
    apart = [
        not cue and len(part.split()) > 2 and bool(verdict_of(part)) for part, cue in zip(parts, cues, strict=True)
    ]
    if not any(apart) or not any(cues):
        return words, ""
    said, judged = (", ".join(p for p, own in zip(parts, apart, strict=True) if own is kind) for kind in (False, True))
    return said, judged


def _omission(text: str, completion: Collection[str], source: Collection[str] | None) -> str | None:
    """The words for what is missing; `completion` and `source` are stems."""
    outright = _MISSING.search(text)
    cue = outright or _UNTOLD.search(text)
    if cue is None:
        return None
    before, after = text[: cue.start()], text[cue.end() :]
    if outright and (_DENIED.search(before) or _NOTHING.match(after)):
        return None
    # "Subtracts where it should add": no object, so nothing is missing.
    if outright and outright[0].lower().endswith(" add") and not content_stems(after):
        return None
    missing = after if content_stems(after) else before
    wanted = content_stems(missing)
    named = _OF_SOURCE.search(after)
    # "No mention of a storm in the article" blames the storm; "omits the storm told of in the article" does not.
    of_source = named is not None and (not outright or not content_stems(after[: named.start()]))
    if not wanted or of_source or _SOURCE.search(before):
        return None
    stands = len(wanted.intersection(completion)) / len(wanted)
    subject = _SUBJECT.search(before)
    if outright or (subject and subject[0].split()[0].lower() not in _VAGUE):
        return _trim(missing) if stands <= _STANDS else None
    # Nobody is named who does not tell it: only what the source tells and the completion has no word of.
    told = source is None or len(wanted.intersection(source)) / len(wanted) >= _TOLD
    unnamed = stands == 0 and told and not kinds_in(missing) & {"first_name", "name", "age", "role"}
    return _trim(missing) if unnamed else None


def _trim(words: str) -> str:
    lead = _LEAD.match(words)
    trimmed = words[lead.end() :] if lead else words
    return trimmed.strip(" \t\r\n.,;:!?\"'") or words.strip()

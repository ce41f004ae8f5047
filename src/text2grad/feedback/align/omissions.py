"""What a critique finds missing. No span can hold it: it belongs to the decision to stop.

Enters: the clauses, the completion, what the source supports. Leaves: the clauses about something that is there, and
the words for what is missing. "Does not mention X" is an omission only of the completion: said of the source it blames
X, and so it does where X stands in the completion.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from text2grad.feedback import lexicon
from text2grad.feedback.align.evidence import Support, kinds_in
from text2grad.feedback.lexicon import content_stems
from text2grad.feedback.parse import Clause
from text2grad.feedback.text import FUNCTION_WORDS, WORD, stem

_TELL = (
    r"(?:mention|includ|cover|explain|address|discuss|say|stat|tell|giv|provid|contain|describ|refer|not|specif|show|"
    r"captur|account for|consider|import|handl|check|talk about|touch on|acknowledg|elaborat|add|speak of|bring up|"
    r"go into)\w*"
)
_UNTOLD = re.compile(
    rf"\b(?:(?:does|do|did|is|are|was|were)(?:\s+not|n['’]t|nt)\s+(?:even |also |really |actually |ever |being )*"
    rf"{_TELL}\b|never (?:even |once |really |actually )?{_TELL}\b"
    r"|(?:no|without (?:any )?) ?(?:mention|reference|information|explanation|discussion|word|sign|trace) "
    r"(?:of|to|about|on|that)\b|(?:there is|says?|said) nothing (?:about|on|of)\b)",
    re.IGNORECASE,
)
"""Something is not told. Of the completion it finds an omission; of the source it blames what the completion adds."""
_MISSING = re.compile(
    r"\b(?:there (?:is|are) no (?:\w+ )?(?:handling|checks?|validation|tests?|comments?|docstrings?|conclusion|"
    r"introduction|examples?|details?|transitions?|explanation)"
    rf"|(?:fail\w*|neglect\w*|forg[eo]t\w*|omit\w*) to {_TELL}|forg[eo]t(?:s|ten)?(?! to\b)|neglect(?:s|ed)?(?! to\b)"
    r"|leav(?:es?|ing) out|left out|omit(?:s|ted|ting)?|omission of|skip(?:s|ped|ping)?|overlook(?:s|ed|ing)?"
    r"|gloss(?:es|ed) over|ignor(?:es?|ed|ing)|disregard(?:s|ed|ing)?"
    r"|(?:is|are) (?:also )?missing|missing (?:the|a|an|any|from|some|details?|information)|lack(?:s|ing)?|misses"
    r"|(?:should|could|must|needs? to|ought to|might|please)\s+(?:\w+\s+)?(?:also )?(?:add|include|mention|cover|"
    r"explain|address|incorporate|say (?:something|more)|talk about|speak (?:of|about)|discuss|touch on|go into|"
    r"expand on|elaborate on|acknowledge|bring up)"
    r"|(?:should|could|must) have (?:also )?(?:added|included|mentioned|covered|explained|said)"
    r"|(?:add|include|mention) (?:the |some |more |a |an )?(?:information|details?|facts?|mention|context|reference|"
    r"explanation|example)s?|would (?:be|have been) (?:nice|good|better|helpful|useful) to (?:add|include|mention|know|"
    r"see|have)"
    r"|(?:needs?|could use|wants?|requires?|deserves?)\s+(?:more|some|further|additional)\s+(?:\w+\s+)?(?:details?|"
    r"information|context|explanations?|depth|background)\s+(?:about|on|of|for)"
    r"|(?:is|are|was|were) (?:entirely |completely |also )?(?:absent|nowhere (?:to be (?:found|seen)|mentioned)))\b"
    r"|^\s*(?:and |but |so )?what about\b(?=[^?]*\?)"
    r"|^\s*(?:please |also |then |you should )*(?:add|include|mention)(?: in)?\b(?! up\b)",
    re.IGNORECASE,
)
"""Something is missing, whoever should have told it."""
_BARE = re.compile(
    r"^\s*(?:and |also |but )?no (?!one\b|more\b|longer\b|idea\b|way\b)([\w-]+(?:\s+[\w-]+){0,2}[.!\s]*)$",
    re.IGNORECASE,
)
"""A clause that is nothing but "no conclusion"."""
_ELLIPSIS = re.compile(
    rf"^(?:but|while|whereas|though|although|yet|and)?,?\s*(?:the |this |your )*{lexicon.COMPLETION_NOUN} "
    rf"(?:does|do|did|has)(?:\s+not|n['’]t|nt)"
    rf"(?:\s+(?:do|{_TELL})(?:\s+(?:so|it|this|that|them|any of (?:it|this)))?)?\W*$",
    re.IGNORECASE,
)
"""The completion does not do what the source was just said to do."""
_LACKS_NOTHING = re.compile(
    r"\b(?:lacks?|omits?|misses|skips?|overlooks?|ignores?|forgets?) nothing\b"
    r"|\bnothing (?:is|was|seems) (?:missing|absent|left out|omitted)\b|\bleaves? nothing out\b",
    re.IGNORECASE,
)
"""Praise in words of blame."""
_NEGATED = re.compile(r"(?:\b(?:not|never|nothing|hardly|no)|n['’]t)\s+(?:\w+\s+)?$", re.IGNORECASE)
_NOTHING = re.compile(r"\W*(?:nothing|none|little)\b", re.IGNORECASE)
_NOT = re.compile(r"\b(?:not|never)\b|n['’]t\b", re.IGNORECASE)
_WHERE = re.compile(r"\b(?:to|into|inside|before|after)\b", re.IGNORECASE)
_SEAM = re.compile(r"[,;]\s+(?:(?:and|but|so|while)\s+)?(?!which\b|who\b|that\b|where\b)", re.IGNORECASE)
_SEAMS = 8
"""Seams nearest the cue that are tried; a list has more, and no judgement behind them."""
_SOURCE = re.compile(rf"\b{lexicon.SOURCE_NOUN}\b", re.IGNORECASE)
_OF_SOURCE = re.compile(rf"\b(?:in|by|from|at all in) (?:the |this |its )?{lexicon.SOURCE_NOUN}\b", re.IGNORECASE)
_SUBJECT = re.compile(rf"\b(?:{lexicon.COMPLETION_NOUN})(?:\s+\w+ly|\s+also|\s+still|\s+just)?\s*$", re.IGNORECASE)
_VAGUE = frozenset(("it", "this", "he", "she", "they", "text"))
"""Subjects that may stand for the source as well."""
_LEAD = re.compile(r"(?:[\s,:]|\b(?:to|of|about|on|from|that|the fact that|any|even|also|it|out)\b)*", re.IGNORECASE)
_TOLD = 0.6
"""Share of the missing thing's words that the source must hold, so that the completion could have told it."""
_STANDS = 0.5
"""Share of them that makes the thing present in the completion, whatever the critique calls it."""


def split_omissions(
    clauses: Sequence[Clause], completion: str, support: Support | None
) -> tuple[list[Clause], list[str]]:
    """(clauses about something that is there, the words for what is not). A clause may be both, one part each."""
    cues = (_MISSING, _UNTOLD, _BARE, _ELLIPSIS, _LACKS_NOTHING)
    if not any(cue.search(clause.plain) for clause in clauses for cue in cues):
        return list(clauses), []
    stems = Support.of(completion).stems
    there: list[Clause] = []
    missing: list[str] = []
    for clause in clauses:
        if there and _ELLIPSIS.match(clause.plain) and (told := _told(there[-1])):
            there.pop()
            missing.append(told)
        elif _LACKS_NOTHING.search(clause.plain):
            there.append(replace(clause, verdict="good"))
        elif (parts := _omission(clause, stems, support.stems if support else None)) is None:
            there.append(clause)
        else:
            missing.append(_trim(parts[0]))
            if rest := parts[1]:
                there.append(replace(clause, text=rest, plain=rest, verdict=lexicon.verdict_of(rest), quotes=()))
    return there, missing


def _omission(clause: Clause, completion: frozenset[str], source: frozenset[str] | None) -> tuple[str, str] | None:
    """(the words for what is missing, what else the clause says and judges); `completion` and `source` are stems."""
    text = clause.plain
    if clause.quotes:
        return None
    if bare := _BARE.match(text):
        wanted = content_stems(bare[1])
        lacks = clause.verdict != "good" and wanted and not wanted & completion
        return (bare[1], "") if lacks and lexicon.verdict_of(text) != "good" else None
    outright = _MISSING.search(text)
    cue = outright or _UNTOLD.search(text)
    if cue is None:
        return None
    before, after = text[: cue.start()], text[cue.end() :]
    if outright and (_NEGATED.search(before) or _NOT.search(cue[0]) or _NOTHING.match(after)):
        return None
    where = _WHERE.search(after) if outright and cue[0].lower().endswith("add") else None
    if where and content_stems(after[where.end() :]) & completion:
        # "Add one to the range": the range is what has to change.
        return None
    behind = bool(content_stems(after))
    missing, rest = _part(after if behind else before, last=not behind)
    wanted = content_stems(missing)
    if not wanted or _SOURCE.search(before) or _blames_source(after, bool(outright)):
        return None
    there = len(wanted & completion) / len(wanted)
    subject = _SUBJECT.search(before)
    if outright or (subject and subject[0].split()[0].lower() not in _VAGUE):
        stands = there >= _STANDS and (_head(missing) in completion or there > _STANDS)
        return None if stands else (missing, rest)
    # Nobody is named who does not tell it: only what the source tells and the completion has no word of.
    told = source is None or len(wanted & source) / len(wanted) >= _TOLD
    unnamed = there == 0 and told and not kinds_in(missing) & {"first_name", "name", "age", "role"}
    return (missing, rest) if unnamed else None


def _blames_source(after: str, outright: bool) -> bool:
    """ "No mention of a storm in the article": the source does not tell it. "Omits the storm told of in the article":
    the completion does not."""
    named = _OF_SOURCE.search(after)
    return named is not None and (not outright or not content_stems(after[: named.start()]))


def _told(clause: Clause) -> str | None:
    """What the source says in a clause that says nothing else."""
    says = lexicon.source_says(clause.plain)
    told = clause.plain[says.end() :] if says else ""
    return _trim(told) if content_stems(told) else None


def _part(words: str, *, last: bool) -> tuple[str, str]:
    """(the words next to the cue, the others) where the others are a judgement of their own: "the cost, and the ships
    are wrong"."""
    seams = list(_SEAM.finditer(words))
    for seam in seams[: -_SEAMS - 1 : -1] if last else seams[:_SEAMS]:
        left, right = words[: seam.start()], words[seam.end() :]
        near, far = (right, left) if last else (left, right)
        if content_stems(near) and len(far.split()) > 2 and lexicon.verdict_of(far):
            return near, far.strip()
    return words, ""


def _head(words: str) -> str:
    """Stem of the noun that a phrase is about: the last word before anything that hangs on it.

    >>> _head("the harbour master"), _head("of the cost of the storm")
    ('mast', 'cost')
    """
    head = ""
    for word in WORD.findall(words.lower()):
        if word not in FUNCTION_WORDS:
            head = word
        elif head:
            break
    return stem(head)


def _trim(words: str) -> str:
    lead = _LEAD.match(words)
    trimmed = words[lead.end() :] if lead else words
    return trimmed.strip(" \t\r\n.,;:!?\"'") or words.strip()

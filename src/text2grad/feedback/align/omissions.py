"""What a critique finds missing. No span can hold it: it belongs to the decision to stop.

Enters: the clauses, the completion, the source. Leaves: the words for what is missing, and the clauses that are about
something that is there. "Does not mention X" is an omission only of the completion: said of the source it blames X,
and so it does where X stands in the completion.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from text2grad.feedback import lexicon
from text2grad.feedback.align import cues
from text2grad.feedback.align.stems import FUNCTION_WORDS, content_stems, stem
from text2grad.feedback.parse import Clause

_TELL = (
    r"(?:mention|includ|cover|explain|address|discuss|stat|tell|describ|refer|acknowledg|talk about|touch on|"
    r"speak of|bring up|go into)"
)
_SAID = re.compile(
    rf"\bnever (?:even |once |really |actually )?{_TELL}\w*"
    r"|\bno (?:mention|word|sign|trace) (?:that|of|about|on)\b",
    re.IGNORECASE,
)
"""Something is not told, beside `lexicon.OMISSION_SAID`."""
_OUTRIGHT = re.compile(
    r"\b(?:ignor(?:es?|ed|ing)|disregard(?:s|ed|ing)?|forg[eo]t(?:s|ten)?(?! to\b)|neglect(?:s|ed)?(?! to\b))\b"
    r"|\b(?:should|could|must|needs? to|ought to|might|please)\s+(?:also\s+)?(?:talk about|speak (?:of|about)|discuss|"
    r"touch on|go into|expand on|elaborate on|acknowledge|bring up)\b"
    r"|\b(?:needs?|could use|wants?|requires?|deserves?)\s+(?:more|some|further|additional)\s+(?:\w+\s+)?(?:details?|"
    r"information|context|explanations?|depth|background)\s+(?:about|on|of|for)\b"
    r"|\b(?:is|are|was|were) (?:entirely |completely |also )?(?:absent|nowhere (?:to be (?:found|seen)|mentioned))\b"
    r"|^\s*(?:and |but |so )?what about\b(?=[^?]*\?)"
    r"|^\s*(?:please |also |then |you should )*(?:add|include|mention)(?: in)?\b(?! up\b)",
    re.IGNORECASE,
)
"""Something is missing, beside `lexicon.OMISSION_OUTRIGHT`."""
_BARE = re.compile(
    r"^\s*(?:and |also |but )?no (?!one\b|more\b|longer\b|idea\b|way\b)[\w-]+(?:\s+[\w-]+){0,2}[.!\s]*$", re.IGNORECASE
)
"""A clause that is nothing but "no conclusion"."""
_ELLIPSIS = re.compile(
    rf"^(?:but|while|whereas|though|although|yet|and)?,?\s*(?:the |this |your )*{lexicon.COMPLETION_NOUN} "
    rf"(?:does|do|did|has)(?:\s+not|n['’]t|nt)(?:\s+(?:do|{_TELL}\w*|say)(?:\s+(?:so|it|this|that|"
    r"them|any of (?:it|this)))?)?\W*$",
    re.IGNORECASE,
)
"""The completion does not do what the source was just said to do."""
_NOTHING = re.compile(r"\W*(?:nothing|none|little)\b", re.IGNORECASE)
_LACKS_NOTHING = re.compile(
    r"\b(?:lacks?|omits?|misses|skips?|overlooks?|ignores?|forgets?) nothing\b"
    r"|\bnothing (?:is|was|seems) (?:missing|absent|left out|omitted)\b|\bleaves? nothing out\b",
    re.IGNORECASE,
)
"""Praise in words of blame."""
_NEGATED = re.compile(r"(?:\b(?:not|never|nothing|hardly|no)|n['’]t)\s+(?:\w+\s+)?$", re.IGNORECASE)
_NOT = re.compile(r"\b(?:not|never)\b|n['’]t\b", re.IGNORECASE)
_ADDS = re.compile(r"\badd$", re.IGNORECASE)
_WHERE = re.compile(r"\b(?:to|into|inside|before|after)\b", re.IGNORECASE)
_SEAM = re.compile(r"[,;]\s+(?:(?:and|but|so|while)\s+)?(?!which\b|who\b|that\b|where\b)", re.IGNORECASE)
_SEAMS = 8
"""Seams nearest the cue that are tried; a list has more, and no judgement behind them."""
_SOURCE_SUBJECT = re.compile(rf"\b{lexicon.SOURCE_NOUN}\b", re.IGNORECASE)
_SUBJECT = re.compile(rf"\b{lexicon.SOURCE_NOUN}\b|\bthere(?:['’]s| is| was| were|['’]re| are)\b", re.IGNORECASE)
_SUBJECT = re.compile(rf"\b(?:{lexicon.COMPLETION_NOUN})(?:\s+\w+ly|\s+also|\s+still|\s+just)?\s*$", re.IGNORECASE)
_VAGUE = frozenset(("it", "this", "he", "she", "they", "text"))
"""Subjects that may stand for the source as well."""
_OF_SOURCE = re.compile(rf"\b(?:in|by|from|at all in) (?:the |this |its )?{lexicon.SOURCE_NOUN}\b", re.IGNORECASE)
_LEAD = re.compile(r"(?:[\s,:]|\b(?:to|of|about|on|from|that|the fact that|any|even|also|it|out)\b)*", re.IGNORECASE)
_TOLD = 0.6
"""Share of the missing thing's words that the source must hold, so that the completion could have told it."""
_STANDS = 0.5
"""Share of them that makes the thing present in the completion, whatever the critique calls it."""


def split_clauses(
    clauses: Sequence[Clause], completion: frozenset[str], source: frozenset[str] | None
) -> tuple[list[Clause], list[tuple[Clause, str]]]:
    """(clauses about something that is there, clauses about something that is not, with its words); `completion` and
    `source` are the stems of the two texts. A clause may be both, one part each."""
    there: list[Clause] = []
    gone: list[tuple[Clause, str]] = []
    for clause in clauses:
        if there and _ELLIPSIS.match(clause.plain) and (said := _told(there[-1])):
            gone.append((there.pop(), said))
            continue
        if _LACKS_NOTHING.search(clause.plain):
            there.append(replace(clause, verdict="good"))
            continue
        found = omission_of(clause, completion, source)
        if found is None:
            there.append(clause)
            continue
        missing, rest = found
        gone.append((clause, missing))
        if rest:
            there.append(replace(clause, text=rest, plain=rest, verdict=lexicon.verdict_of(rest), quotes=()))
    return there, gone


def finds_missing(clause: Clause) -> bool:
    """Whether the clause has any word for it; most have none."""
    text = clause.plain
    patterns = (
        lexicon.OMISSION_OUTRIGHT, lexicon.OMISSION_SAID, _OUTRIGHT, _SAID, _BARE, _ELLIPSIS, _LACKS_NOTHING,
    )  # fmt: skip
    return any(pattern.search(text) for pattern in patterns)


def omission_of(
    clause: Clause, completion: frozenset[str] | set[str], source: frozenset[str] | set[str] | None
) -> tuple[str, str] | None:
    """(the words of the critique for what is missing, what else the clause says and judges); `completion` and `source`
    are the stems of the two texts."""
    text = clause.plain
    if clause.quotes:
        return None
    if _BARE.match(text):
        bare = re.sub(r"^.*?\bno\s+", "", text, flags=re.IGNORECASE)
        lacks = clause.verdict != "good" and content_stems(bare) and not content_stems(bare) & completion
        return (_trim(bare), "") if lacks and lexicon.verdict_of(text) != "good" else None
    outright = lexicon.OMISSION_OUTRIGHT.search(text) or _OUTRIGHT.search(text)
    cue = outright or lexicon.OMISSION_SAID.search(text) or _SAID.search(text)
    if cue is None:
        return None
    before, after = text[: cue.start()], text[cue.end() :]
    if outright and (_NEGATED.search(before) or _NOT.search(outright[0]) or _NOTHING.match(after)):
        return None
    where = _WHERE.search(after) if outright and _ADDS.search(outright[0]) else None
    if where and content_stems(after[where.end() :]) & completion:
        # "Add one to the range": the range is what has to change.
        return None
    rest = ""
    if content_stems(after):
        missing, rest = _part(after, last=False)
    else:
        missing, rest = _part(before, last=True)
    wanted = content_stems(missing)
    if not wanted or _SOURCE_SUBJECT.search(before) or _blames_source(after, bool(outright)):
        return None
    there = len(wanted & completion) / len(wanted)
    subject = _SUBJECT.search(before)
    explicit = subject is not None and subject[0].split()[0].lower() not in _VAGUE
    told = source is None or len(wanted & source) / len(wanted) >= _TOLD
    if outright or explicit:
        stands = there >= _STANDS and (_head(missing) in completion or there > _STANDS)
        return None if stands else (_trim(missing), rest)
    # Nobody is named who does not tell it: only what the source tells and the completion has no word of.
    unnamed = there == 0 and told and not cues.cues_of(missing) & {"first_name", "name", "age", "role"}
    return (_trim(missing), rest) if unnamed else None


def _blames_source(after: str, outright: bool) -> bool:
    """ "No mention of a storm in the article": the source does not tell it. "Omits the storm told of in the article":
    the completion does not."""
    found = _OF_SOURCE.search(after)
    return found is not None and (not outright or not content_stems(after[: found.start()]))


def _told(clause: Clause) -> str | None:
    """What the source says in a clause that says nothing else."""
    said = lexicon.SOURCE_SAYS.search(clause.plain)
    if not said or lexicon.NEGATED_CLAIM.search(clause.plain, max(0, said.start() - 12), said.end() + 9):
        return None
    told = clause.plain[said.end() :]
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
    found = ""
    for word in re.findall(r"\w+", words.lower()):
        if word in FUNCTION_WORDS:
            if found:
                break
        else:
            found = word
    return stem(found)


def _trim(words: str) -> str:
    lead = _LEAD.match(words)
    trimmed = words[lead.end() :] if lead else words
    return trimmed.strip(" \t\r\n.,;:!?\"'") or words.strip()

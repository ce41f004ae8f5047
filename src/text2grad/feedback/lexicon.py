"""The words by which critics praise, blame, quote the source, or offer something else. English, as regular expressions.

Enters: a stretch of a critique. Leaves: its verdict, its severity, its content words; and patterns. Knows no completion
and no data set. What it cannot see (irony, other languages) has no verdict, which is not the same as neutral.
"""

import re
from functools import lru_cache

from text2grad.feedback.text import ENGLISH, FUNCTION_WORDS, WORD, pattern, pieces, stem, word_set
from text2grad.types import Verdict

CRITIC_WORDS = word_set(ENGLISH["critic_words"])
"""Words by which critics speak about texts: evidence of nothing when a completion happens to hold them too."""


def content_stems(words: str) -> set[str]:
    """Stems of the words that carry content, talk about texts apart; pairs of characters where words run together."""
    lowered = {match[0].lower() for match in WORD.finditer(words)} - FUNCTION_WORDS - CRITIC_WORDS
    if words.isascii():
        return {stem(word) for word in lowered}
    return {stem(form) for word in lowered for _, _, forms in pieces(word) for form in forms}


_BLAME, _PRAISE = pattern(ENGLISH["blame"]), pattern(ENGLISH["praise"])
_NEGATION = pattern(ENGLISH["negation"])

_CUE = re.compile(rf"(?<![\w])(?:(?P<praise>{_PRAISE})|{_BLAME})(?!\w)|n['’]t\b", re.IGNORECASE)
_NEGATED = re.compile(
    rf"(?:(?<!\w)(?:{_NEGATION})|n['’]t)\s+(?:(?:is|are|was|were|be|been|a|an|the|any|all|so|as|very|really|quite|"
    rf"entirely|fully|particularly|especially|always|longer|ever|that|too|of|real|actual|obvious|factual|major|minor|"
    rf"serious|glaring|single)\s+){{0,3}}$",
    re.IGNORECASE,
)
_DEFECT = re.compile(f"^(?:{pattern(ENGLISH['defect'])})$", re.IGNORECASE)
"""Where one of these is denied, that is praise ("no errors", "never dull")."""
_SEVERE, _MILD = (re.compile(rf"\b(?:{pattern(ENGLISH[how])})\b", re.IGNORECASE) for how in ("severe", "mild"))


@lru_cache(maxsize=4096)
def verdict_of(words: str) -> Verdict | None:
    """Good, poor, or no verdict at all. Praise beside blame in one clause is mostly the standard that was not met
    ("fails to be clear", "not the council that said it was good"), so that blame wins.

    >>> [verdict_of(words) for words in ("a lovely opening", "not accurate", "no errors", "in line two")]
    ['good', 'poor', 'good', None]
    """
    verdict: Verdict | None = None
    for cue in _CUE.finditer(words):
        denied = _NEGATED.search(words[max(0, cue.start() - 60) : cue.start()])
        if cue["praise"]:
            verdict = verdict or ("poor" if denied else "good")
        else:
            verdict = "good" if denied and _DEFECT.match(cue[0]) else "poor"
    return verdict


def severity_of(words: str) -> float | None:
    """How grave the words say it is, in (0, 1]; None where they do not say.

    >>> severity_of("completely wrong"), severity_of("a minor slip"), severity_of("wrong")
    (1.0, 0.3, None)
    """
    if _MILD.search(words):
        return 0.3
    return 1.0 if _SEVERE.search(words) else None


SOURCE_NOUN, COMPLETION_NOUN, _SAYS = (
    f"(?:{pattern(ENGLISH[name])})" for name in ("source_noun", "completion_noun", "says")
)
SOURCE_SAYS = re.compile(
    rf"\b{SOURCE_NOUN}\b(?:\s+(?:text|article|itself|only|just|actually|clearly|explicitly|in fact|also|which|that|"
    rf"merely|simply|rather))*\s+(?P<says>{_SAYS})\b|\b(?:according to|as per|per|based on|from|in|quot\w+) (?:the |"
    rf"this |its |their )?{SOURCE_NOUN}\b",
    re.IGNORECASE,
)
"""The source is made to say something, affirmatively; a negation in front of the verb breaks the pattern on purpose."""

COMPLETION_SAYS = re.compile(
    rf"\b(?:the |this |your |its |original |model )*{COMPLETION_NOUN}\s+(?:\w+ly |also |then |just |only )*{_SAYS}\b",
    re.IGNORECASE,
)
NEGATED_CLAIM = re.compile(
    r"\b(?:not|never|nothing|n['’]t|no|doesnt|didnt|nowhere|without|fails? to|neither|nor|none|lacks?|cannot)\b|"
    r"n['’]t\b",
    re.IGNORECASE,
)


def negated(words: str, claim: re.Match[str]) -> bool:
    """Whether a claim that the source says something is denied right before or behind it."""
    return bool(NEGATED_CLAIM.search(words, max(0, claim.start() - 12), claim.end() + 9))


def source_says(words: str) -> re.Match[str] | None:
    """Where the source is first made to say something, unless that is denied."""
    claim = SOURCE_SAYS.search(words)
    return claim if claim and not negated(words, claim) else None


LEADS_UP = re.compile(
    r"(?:[\s,:(\x00]|\b(?:that|the|a|an|and|or|it|is|was|are|were|only|just|of|there|to|about|as|simply)\b)*",
    re.IGNORECASE,
)
"""What may stand between "the source says" and its quote without another thing being said."""
OFFERS_BEFORE = re.compile(
    r"(?:\b(?:should|must|ought to|needs? to|ha(?:s|ve) to|supposed to|better|please)\s+(?:\w+\s+){0,2}?(?:be|say|read|"
    r"have been|have said|use|return|write|print|become|state|call\w*|look like|include|mention)|\b(?:change[ds]?|"
    r"changing|convert\w*|turn\w*|correct\w*|updat\w+|renam\w+|switch\w*|modif\w+|fix\w*|edit\w*)\b[^.;]{0,120}?\b"
    r"(?:to|into|as)|\b(?:replac\w+|swap\w*|substitut\w+)\b[^.;]{0,120}?\b(?:with|by|for)|(?:^|[.,;:!?(\n]\s*|\b"
    r"(?:please|instead|then|or|and)\s+)(?:use|try|write|say|add|insert|prefer)|\b(?:expected|expects?|"
    r"correct (?:\w+ ){0,3}?(?:is|are|would be|was|being)|something like))"
    r"(?:\s+(?:the|a|an|it|this|them|word|words|phrase|simply|just|something|like|value|string|text|as|be|only|"
    r"written))*\s*[:,]?\s*$",
    re.IGNORECASE,
)
"""What follows is demanded in the place of something else."""
OFFERS_AFTER = re.compile(
    r"\s*[,.]?\s*(?:is (?:what is )?expected|(?:would|might) \w+ (?:been )?(?:\w+ly )?(?:better|best|clearer|nicer|"
    r"preferable|more \w+)\b(?! (?:as|if|with|without|in|at|when|after|before)\b))",
    re.IGNORECASE,
)
INSTEAD_OF = re.compile(
    r"^\s*,?\s*(?:instead of|rather than|and not|, not|not)\s*(?:the |a |an |just |using |saying |writing )*(?:word |"
    r"phrase )?$",
    re.IGNORECASE,
)
SWAPS = re.compile(
    r"(?P<behind>(?:[,;–—-]|\b(?:and|but))\s*not\s+|"
    r"\b(?:chang(?:e|ed|ing)|replac(?:e|ed|ing)|correct|swap|turn)\s+(?=(?:\S+\s+){1,6}?(?:to|with|by|for|into)\b))|"
    r"(?P<before>\s+(?:should|must|ought to|needs? to)\s+(?:rather |actually |instead )?(?:be|read|say|become|"
    r"have (?:been|read|said))\b)|\b(?:instead of|rather than)\s+",
    re.IGNORECASE,
)
"""One thing in the place of another. What is wrong stands right `behind` it, right `before` it, or on either side."""

"""Words made comparable: which words carry content, and a light stem so that "killed" meets "kills". English endings
only; words of other scripts stem to themselves.
"""

import re
from functools import lru_cache


def wordset(words: str) -> frozenset[str]:
    """Words between white space."""
    return frozenset(words.split())


_FUNCTION_WORDS = """
a about above across after again against all along also although am among an and another any are around as at away
be because been before being below between both but by can cannot could did do does doing down during each either
else ever every few for from further had has have having he her here hers herself him himself his how i if in into
is it its itself just least less like may me might mine more most much must my myself near neither no nor not now of
off on once one only onto or other our ours ourselves out over own per rather same shall she should since so some
such than that the their theirs them themselves then there these they this those though through to too toward
towards under until up upon us very via was we were what when where whether which while who whom whose why will with
within without would yet you your yours yourself s t d ll re ve m don doesn didn isn wasn aren weren won wouldn
couldn shouldn hasn haven hadn isn't doesn't didn't wasn't aren't weren't don't won't can't couldn't wouldn't
shouldn't hasn't haven't hadn't it's that's there's he's she's they're i'm you're we're however therefore thus hence
even still already really actually simply well
"""
FUNCTION_WORDS = wordset(_FUNCTION_WORDS)

_CRITIC_WORDS = """
summary summaries text source article original information info fact facts detail details mention mentions mentioned
mentioning state states stated stating say says said claim claims claimed include includes included including
contain contains incorrect incorrectly correct correctly wrong wrongly error errors mistake add adds added adding
remove removed replace replaced present support supported unsupported hallucinates hallucinated hallucination
invented made makes up accurate inaccurate inconsistent consistent completion response answer code function method
program model sentence word phrase words line critique feedback issue problem should need needs needed instead
change changed fix fixed specify specified indicate indicates indicated describe described reference refer refers
implies implied suggest suggests provide provided given gives give refers found written reads read
"""
CRITIC_WORDS = wordset(_CRITIC_WORDS)
"""Words by which critics speak about texts: evidence of nothing when a completion happens to hold them too."""

_WORD = re.compile(r"\w+(?:['’]\w+)*")


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """A word without its commonest endings.

    >>> [stem(word) for word in ("killed", "killing", "kills", "injuries", "Scotland's", "13")]
    ['kill', 'kill', 'kill', 'injury', 'scotland', '13']
    """
    word = word.lower().replace("’", "'")
    if word.endswith("'s"):
        word = word[:-2]
    elif word.endswith("'"):
        word = word[:-1]
    if len(word) < 4 or not word.isascii():
        return word
    for ending, replacement, least in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= least:
            word = word[: len(word) - len(ending)] + replacement
            break
    if len(word) > 4 and word[-1] == word[-2] and word[-1] not in "aeiouls":
        word = word[:-1]
    return word[:-1] if len(word) > 4 and word.endswith("e") else word


_ENDINGS = (
    ("ations", "at", 3), ("ation", "at", 3), ("ings", "", 3), ("ing", "", 3), ("ies", "y", 2), ("ied", "y", 2),
    ("edly", "", 3), ("ed", "", 3), ("ments", "", 3), ("ment", "", 4), ("ers", "", 3), ("er", "", 4),
    ("ly", "", 3), ("sses", "ss", 2), ("ches", "ch", 2), ("shes", "sh", 2), ("xes", "x", 2),
    ("ss", "ss", 2), ("us", "us", 2), ("s", "", 3),
)  # fmt: skip


def content_stems(words: str) -> set[str]:
    """Stems of the words that carry content, of the talk about texts apart."""
    return {
        stem(word)
        for word in (match[0].lower() for match in _WORD.finditer(words))
        if word not in FUNCTION_WORDS and word not in CRITIC_WORDS
    }

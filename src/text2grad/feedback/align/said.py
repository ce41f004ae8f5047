"""What a clause talks about, word by word: the completion's words that are meant, or the words held against them.

Enters: a clause of a critique. Leaves: its words in two groups, `meant` and `against`. "Says X, but the source says
Y": X is meant, Y is held against it, and must not be found in the completion however often it occurs there.
"""

import re
from dataclasses import dataclass

from text2grad.feedback import lexicon
from text2grad.feedback.align.stems import CRITIC_WORDS, FUNCTION_WORDS, stem

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_TO_MEANT = re.compile(
    rf"\b(?:instead of|rather than|as opposed to|not just|as stated in the|,? not(?! only))\b|"
    rf"{lexicon.COMPLETION_SAYS.pattern}",
    re.IGNORECASE,
)
_TO_AGAINST = re.compile(
    r"\b(?:should (?:actually |really |instead |rather |probably )?(?:be|have been|say|read|have said|state|use|"
    r"return)|but (?:rather|actually|in fact)"
    r"|in fact|in reality|actually|the correct \w+ (?:is|are|was|would be|being)|only (?:that|says|states|mentions|"
    r"said|mentioned)|(?:whereas|when) in \w+"
    r"|(?:replace|replaced|replacing|change|changed|changing|modify|correct)\b[^.]{0,120}?\b(?:with|to|by)\b(?! "
    r"the summary)|instead(?! of)"
    r"|to say|to read|to be|it (?:is|was) (?:really|actually|just|only))\b",
    re.IGNORECASE,
)


_NEGATES = re.compile(
    r"\b(?:not?|never|n['’]t|nor|neither|incorrectly|wrongly|falsely|mistakenly|without)\b|n['’]t\b", re.IGNORECASE
)
_DEMANDS = re.compile(
    r"\s*(?:should|must|is not|isn['’]t|was not|wasn['’]t|are not|aren['’]t|were not|weren['’]t|needs?|is wrong|is "
    r"incorrect)\b",
    re.I,
)
_CLAIMS = re.compile(
    r"\b(?:says?|states?|stated|claims?|claimed|mentions?|mentioned|implies|suggests|indicates|describes|refers? "
    r"to|includes?|adds?|gives?|provides?|"
    r"makes? up|hallucinates?|fabricates?|invents?|assumes?|about|such as|e\.g\.|i\.e\.|like|that)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Mention:
    """One content word of a clause, and how the clause brings it up."""

    stem: str
    meant: bool
    """Not held against the completion, as the words of the source or of a better version are."""
    place: float
    """0 for the first content word of the clause, 1 for the last: what is new stands late."""
    negated: bool
    """A negation stands right in front ("not seven")."""
    demanded: bool
    """What should be otherwise: "seven should be nine", "the gun was not …"."""
    claimed: bool
    """Behind a word of saying: what the completion is made to say."""


def mentions_of(text: str) -> list[Mention]:
    """Read a clause from left to right; each turn of phrase says what the words behind it are there for.

    >>> [(m.stem, m.meant) for m in mentions_of("It says seven ships, but the source says nine.")]
    [('seven', True), ('ship', True), ('nine', False)]
    """
    words = [match for match in _WORD.finditer(text) if not _idle(match[0].lower())]
    turns = _turns(text)
    negations = [match.end() for match in _NEGATES.finditer(text)]
    claim = min((match.end() for match in _CLAIMS.finditer(text)), default=len(text))
    found = []
    meant = True
    position = passed = 0
    for index, match in enumerate(words):
        while position < len(turns) and turns[position][0] <= match.start():
            meant = turns[position][1]
            position += 1
        while passed < len(negations) and negations[passed] <= match.start():
            passed += 1
        negated = passed > 0 and match.start() - negations[passed - 1] <= 14
        found.append(
            Mention(
                stem(match[0].lower()),
                meant,
                index / max(1, len(words) - 1),
                negated,
                bool(_DEMANDS.match(text, match.end())),
                match.start() >= claim,
            )
        )
    return found


def _idle(word: str) -> bool:
    return word in FUNCTION_WORDS or word in CRITIC_WORDS


def _turns(text: str) -> list[tuple[int, bool]]:
    """(place, whether the words behind it are meant) of every turn of phrase."""
    sources = list(lexicon.SOURCE_SAYS.finditer(text))
    spoken = {match.end() for match in sources}
    # "The source text says": the source speaks, although a text speaks too.
    turns = [(match.end(), True) for match in _TO_MEANT.finditer(text) if match.end() not in spoken]
    turns += [(match.end(), False) for match in _TO_AGAINST.finditer(text)]
    for match in sources:
        if not lexicon.NEGATED_CLAIM.search(text, max(0, match.start() - 12), match.end() + 9):
            turns.append((match.end(), False))
    return sorted(turns)

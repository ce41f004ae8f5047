"""The words by which critics praise, blame, find something missing, or offer something else. English, as regular
expressions.

Enters: nothing. Leaves: compiled patterns and the verdict of a stretch of words. Knows no completion and no data set:
these are the words of critiques in general. What it cannot see (irony, other languages) comes out as no verdict,
which is not 0."""

import re

from text2grad.types import Verdict


def _any(*words: str) -> str:
    return "|".join(words)


_BLAME = _any(
    r"wrong\w*|incorrect\w*|inaccura\w+|erroneous\w*|errors?|mistakes?|mistaken\w*|false\w*|untrue|fault[sy]?|complaints?|flaws?|"
    r"flawed",
    r"fabricat\w+|hallucinat\w+|invent(?:s|ed|ing)|ma[dk]es? (?:\w+ )?up|made[- ]up|making up|unsupported|"
    r"unverifi\w+|unfounded|baseless",
    r"mislead\w*|misrepresent\w*|misstat\w+|misinterpret\w*|misunderst\w+|misattribut\w+|misquot\w+|misspel\w+|"
    r"misplac\w+|typos?",
    r"confus\w+|unclear\w*|vague\w*|ambigu\w+|awkward\w*|clumsy|clunky|repetit\w+|repeat(?:s|ed)|redundan\w+|"
    r"verbose|wordy|rambl\w+",
    r"bugs?|buggy|fails?|failed|failing|failure|broken|breaks?|crash\w*|throws?|raises? an? \w*error|off by one|"
    r"off-by-one|infinite loop",
    r"missing|lacks?|lacking|leaves? out|left out|leaving out|omit\w*|unnecessar\w+|irrelevan\w+|superfluous|"
    r"extraneous|unrelated|contradict\w*|inconsisten\w+|conflict\w*|inefficient",
    r"should(?:n['’]t| not)?|must(?:n['’]t| not)?|needs?(?: to)?|needed to|ought to|supposed to|had to|have to|"
    r"instead|rather than",
    r"remov\w+|replac\w+|delet\w+|chang(?:e|es|ed|ing)|fix(?:es|ed|ing)?|correct(?:ed|ing|ion)|rewrit\w+|"
    r"rephras\w+|avoid\w*|drop(?:ped)?",
    r"bad|badly|poor|poorly|weak\w*|worse|worst|odd\w*|strange\w*|weird\w*|boring|dull|bland|stilted|cliché\w*|"
    r"clich[eé]s?|generic|overused",
    r"overstat\w+|understat\w+|exaggerat\w+|speculat\w+|assum(?:es|ed|ption)|opinionated|biased|unfair|offensive|"
    r"rude|harmful|dangerous",
    r"nit|nitpick|prefer|arbitrary|arbitrarily|silly|stupid\w*|ridiculous\w*|lazy|lazily|ugly|messy|sloppy|"
    r"sloppily|one short|falls? short|stops? short|is "
    r"off|are off|"
    r"rushed|slow|drags?|dragging|myth|predictable|flat|cheesy|forced|unearned|heavy-handed|underdeveloped|"
    r"undeveloped|shallow|"
    r"excludes?|by zero|overflows?|leaks?|never explained|does nothing|loses?|lost|stereotyp\w+|purple prose|"
    r"tedious|stale|"
    r"issues?|problems?|problematic|concern\w*|nonsens\w+|meaningless|pointless|useless|illogical|implausible|"
    r"unrealistic|disjointed|abrupt\w*",
    r"too (?!bad|good)\w+|overly|adds? (?:\w+ ){0,3}?(?:info\w*|facts?|details?|claims?)|unknown|unproven|doubtful|"
    r"hardly|barely|fluff|filler",
    r"disagree\w*|dislike\w*|hate\w*|annoy\w+|distract\w*|jarring|undermin\w+|spoil\w*|let down|could (?:be|have)|"
    r"would (?:be|have been) better",
    r"except(?: for| that)?|apart from|contrary to|at odds|only (?:says|states|mentions|said)|no (?:mention|proof|"
    r"evidence|support|information|indication|"
    r"reference|basis|source)",
    r"nowhere|none of|nothing(?! short of| less than| but\b)|no(?= (?:such )?(?:\w+ )?\x00)",
    r"(?:not|n['’]t|never)(?: \w+){0,2} (?:found|mentioned|stated|present|included|supported|specified|given|"
    r"confirmed|true|clear|defined|listed|known|explained|said|shown|proven)|not (?:in|from|by) the",
    r"neither|nor|cannot|can['’]t|not(?! only\b| merely\b)|never|n['’]t|isnt|doesnt|didnt|wasnt|dont|wont|arent",
)
_PRAISE = _any(
    r"(?:should|must|can) (?:stay|remain|be kept)|keep (?:it|this|that)|worth keeping",
    r"good|great|nice|nicely|excellent\w*|well|correct|correctly|accurate|accurately|clear|concise|"
    r"concisely|crisp",
    r"love|loved|loves|lovely|liked|(?<=\bI )(?:really )?like|enjoy\w*|strong|strongly|vivid\w*|perfect|perfectly|"
    r"helpful|"
    r"effective|effectively|works",
    r"elegant\w*|beautiful\w*|right|rightly|charming|neat|neatly|solid|fine|impressive|best|superb|wonderful\w*|"
    r"delightful|memorable",
    r"engaging|insightful|informative|faithful\w*|supported by|true|valid|appropriate\w*|apt|aptly|useful|readable|"
    r"efficient\w*|thorough\w*",
    r"captures?|succeeds?|handles? (?:\w+ )?(?:well|correctly)|fluent\w*|coherent\w*|polished|clever\w*|"
    r"thoughtful\w*|appreciat\w+|bravo|spot on|kudos",
    r"praiseworthy|pleasing|satisf\w+|smooth\w*|precise\w*|compelling|touching|funny|witty|graceful\w*|sharp|tight|"
    r"convincing\w*|on point|lacks? nothing|brilliant\w*|flawless\w*",
)
_SURPASSED = (
    rf"(?:could|can|would)(?: ?not|n['’]t) (?:be|have been|get|ask for|have asked for)(?: any(?:thing)?)? "
    rf"(?:better|clearer|finer|nicer|stronger|simpler|more (?:{_PRAISE}))"
)
"""Nothing is above it: "couldn't be better"."""
_NEGATION = _any(
    r"not|never|no|n['’]t|isnt|doesnt|wasnt|without|hardly|barely|far from|anything but|nothing|none|neither|nor",
    r"rather than|instead of|lacks?|fails? to be|cannot|hard to",
)

_CUE = re.compile(
    rf"(?<![\w])(?:(?P<praise>{_SURPASSED}|{_PRAISE})|(?P<blame>{_BLAME}))(?!\w)|(?P<nt>n['’]t)\b", re.IGNORECASE
)
_NEGATED = re.compile(
    rf"(?:(?<!\w)(?:{_NEGATION})|n['’]t)\s+(?:(?:is|are|was|were|be|been|a|an|the|any|all|so|as|very|really|quite|"
    rf"entirely|fully|"
    r"particularly|especially|always|longer|ever|that|too|of|real|actual|obvious|factual|major|minor|serious|glaring|"
    r"single)\s+){0,3}$",
    re.IGNORECASE,
)
_COMPARATIVE = re.compile(
    r"\b(?:could|should|would|might|can|needs? to|must)\s+(?:(?:\w+\s+){0,2}|(?:[\w\x00]+\s+){0,4}more\s+)$",
    re.IGNORECASE,
)
_BARE_NEGATION = re.compile(
    r"^(?:not|never|n['’]t|cannot|can['’]t|nor|neither|isnt|doesnt|didnt|wasnt|dont|wont|arent)$",
    re.IGNORECASE,
)
_DIRECTIVE = re.compile(
    r"^(?:should|must|needs?|ought|had|have|could|would|instead|rather|supposed|chang|fix|correct|remov|replac|rewrit)",
    re.I,
)
_DEFECT = re.compile(
    r"^(?:errors?|mistakes?|bugs?|typos?|issues?|problems?|flaws?|wrong|incorrect|inaccura\w+|false|bad|confus\w+|"
    r"faults?|complaints?|"
    r"dull|boring|bland|flat|stale|tedious|predictable|awkward\w*|clumsy|clunky|vague|unclear|wordy|verbose|rushed|"
    r"forced|silly|shallow|heavy-handed|repetitive|clich[eé]s?)$",
    re.I,
)
"""Where one of these is denied, that is praise ("no errors", "never dull")."""
_SPARED = re.compile(
    r"\b(?:(?:I|we|you) would|do|should|must|need)(?: not|n['’]t)\s+(?:(?:be|to|really|ever|even)\s+)*$|"
    r"\bno (?:need|reason) to (?:be )?$|\bnothing to (?:be )?$",
    re.I,
)
_EDIT = re.compile(r"^(?:chang|fix|correct|remov|replac|rewrit|rephras|delet|drop)", re.I)
"""Where one of these is ruled out, that is praise too ("I wouldn't change a thing")."""
_IN_PRAISE = re.compile(
    r"\b(?:nicely|beautifully|wonderfully|delightfully|charmingly|elegantly|gracefully|cleverly|brilliantly|"
    r"pleasingly|pleasantly|superbly)\s+$",
    re.I,
)
"""Adverbs that make praise of the adjective behind them ("nicely understated")."""
_ASKED = re.compile(r"(?:^|[.,;:!?\n]|\b(?:please|to|and|should|must|kindly|just))\s*$", re.I)
_ITS_OBJECT = re.compile(r"\s+(?:\x00|(?:the|this|that|these|those|it|its|your|all|any)\b)", re.I)

_SEVERE = re.compile(
    r"\b(?:completely|totally|entirely|utterly|severe(?:ly)?|serious(?:ly)?|major|critical(?:ly)?|crucial|"
    r"fatal(?:ly)?|egregious|dangerous\w*|"
    r"terrible|terribly|horribl[ey]|awful(?:ly)?|blatant(?:ly)?|grossly|very|extremely|badly|worst)\b",
    re.IGNORECASE,
)
_MILD = re.compile(
    r"\b(?:slight(?:ly)?|minor|small|a bit|a little|somewhat|perhaps|maybe|nitpick\w*|nit|tiny|marginal(?:ly)?|"
    r"almost|nearly|mostly)\b",
    re.IGNORECASE,
)


def verdict_of(words: str) -> Verdict | None:
    """Good, poor, or no verdict at all. The last clear cue wins where both occur: what a clause comes down to stands
    last.

    >>> [verdict_of(words) for words in ("a lovely opening", "not accurate", "no errors", "in line two")]
    ['good', 'poor', 'good', None]
    """
    found: Verdict | None = None
    bare = False
    negated = 0
    for cue in _CUE.finditer(words):
        before = words[max(0, cue.start() - 60) : cue.start()]
        if _is_order(cue, before, words):
            found, bare = "poor", False
        elif cue["praise"]:
            poor = bool(_NEGATED.search(before)) or bool(_COMPARATIVE.search(before))
            # Praise behind blame in one clause is mostly the standard that was not met ("fails to be clear", "not the
            # council that said it was good"); behind a comma it is another thought.
            if poor or found is None or (bare and "," in words[negated : cue.start()]):
                found, bare = ("poor" if poor else "good"), False
        elif cue["nt"] or _BARE_NEGATION.match(cue[0]):
            # A bare negation blames only where nothing clearer is said: "not wrong" is settled by "wrong".
            if found is None:
                found, bare, negated = "poor", True, cue.end()
        elif _is_denied(cue[0], before):
            found, bare = "good", False
        elif not (found == "good" and _DIRECTIVE.match(cue[0]) and cue[0].lower().startswith("correct")):
            found, bare = "poor", False
    return found


def _is_order(cue: re.Match[str], before: str, words: str) -> bool:
    """ "Correct" as something to do, not as something that is: "please correct the date"."""
    return cue[0].lower() == "correct" and bool(_ASKED.search(before) and _ITS_OBJECT.match(words, cue.end()))


def _is_denied(blame: str, before: str) -> bool:
    """Whether the words in front turn a word of blame into praise."""
    if _DEFECT.match(blame) and _NEGATED.search(before):
        return True
    return bool(_IN_PRAISE.search(before) or (_EDIT.match(blame) and _SPARED.search(before)))


def severity_of(words: str) -> float | None:
    """How grave the words say it is, in (0, 1]; None where they do not say.

    >>> severity_of("completely wrong"), severity_of("a minor slip"), severity_of("wrong")
    (1.0, 0.3, None)
    """
    if _MILD.search(words):
        return 0.3
    return 1.0 if _SEVERE.search(words) else None


SOURCE_NOUN = (
    r"(?:(?:source|original|input|reference|given|full|actual|news)[ -]?(?:text|article|document|material|story|"
    r"post|passage|report|data|file)?"
    r"|article|passages?|document|transcript|dialogue|prompt|question|context|post|docs?|documentation|spec(?:s|ifications?)?|"
    r"unit tests?|tests?|assertions?)"
)
COMPLETION_NOUN = (
    r"(?:summar(?:y|ies)|completion|response|answer|output|candidate|model(?:['’]s)?(?: \w+)?|text|draft|essay|"
    r"story|poem|translation|code|function|method|"
    r"program|implementation|solution|script|author|writer|it|this|he|she|they|you)"
)
_SAYS = (
    r"(?:says?|said|states?|stated|mentions?|mentioned|reads?|reports?|reported|gives?|gave|describes?|described|"
    r"indicates?|indicated|shows?|"
    r"refers? to|referred to|tells?|told|notes?|noted|calls?|called|claims?|has|had|uses?|used|writes?|wrote|"
    r"specif(?:y|ies|ied)|suggests?|"
    r"contains?|includes?|expects?|expected|requires?|required|wants?)"
)
SOURCE_SAYS = re.compile(
    rf"\b{SOURCE_NOUN}\b(?:\s+(?:text|article|itself|only|just|actually|clearly|explicitly|in fact|also|which|that|"
    rf"merely|simply|rather))*\s+(?P<says>{_SAYS})\b"
    rf"|\b(?:according to|as per|per|based on|from|in|quot\w+) (?:the |this |its |their )?{SOURCE_NOUN}\b",
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
    re.I,
)

LEADS_UP = re.compile(
    r"(?:[\s,:(\x00]|\b(?:that|the|a|an|and|or|it|is|was|are|were|only|just|of|there|to|about|as|simply)\b)*",
    re.IGNORECASE,
)
"""What may stand between "the source says" and its quote without another thing being said."""
PREDICATE = re.compile(
    r"(?:\s*,?\s*(?:(?:and|or|nor)\s+)?\x00+)*\s*,?\s*(?:(?:which|that)\s+)?(?:\w+ly\s+)?"
    r"((?:(?:is|are|was|were|does|do|did|has|have|should|must|needs?|can|could)(?:n['’]t)?|cannot|seems?|sounds?|"
    r"looks?|feels?|reads?|makes?|contradicts?)\b[^.,;:!?\n\x00]*)",
    re.IGNORECASE,
)
"""What is said of a quote right behind it."""

OFFERS_BEFORE = re.compile(
    r"(?:\b(?:should|must|ought to|needs? to|ha(?:s|ve) to|could|would|can|had to|supposed to|better|to|just|"
    r"simply|please|probably|rather)\s+"
    r"(?:\w+\s+){0,2}?(?:be|say|read|have been|have said|use|return|write|print|become|state|call\w*|be changed to|"
    r"look like|include|mention)"
    r"|\b(?:change[ds]?|changing|convert\w*|turn\w*|correct\w*|updat\w+|renam\w+|switch\w*|modif\w+|fix\w*|"
    r"edit\w*)\b[^.;]{0,120}?\b(?:to|into|as)"
    r"|\b(?:replac\w+|swap\w*|substitut\w+)\b[^.;]{0,120}?\b(?:with|by|for)"
    r"|(?:^|[.,;:!?(\n]\s*|\b(?:to|please|just|instead|simply|rather|then|or|and)\s+)(?:use|try|write|say|add|"
    r"insert|prefer|consider)"
    r"|\b(?:expected|expects?|correct (?:\w+ ){0,3}?(?:is|are|would be|was|being)"
    r"|right (?:\w+ ){0,2}?(?:is|was)|(?:in fact|in reality|actually|really|instead),? (?:(?:it|he|she|they|that|"
    r"this) )?(?:is|was|are|were)|in fact|in reality|actually|something like|such as writing))"
    r"(?:\s+(?:the|a|an|it|this|them|word|words|phrase|simply|just|something|like|value|string|text|as|be|only|"
    r"written))*\s*[:,]?\s*$",
    re.IGNORECASE,
)
OFFERS_AFTER = re.compile(
    r"^\s*[,.]?\s*(?:instead\b(?! of)|would (?:be|have been|read|work|suit|sound)|might be better|is better|is "
    r"(?:what is )?expected)",
    re.I,
)
FIRM_AFTER = re.compile(
    r"\s*[,.]?\s*(?:instead\b|is (?:what is )?expected|(?:would|might) \w+ (?:been )?(?:\w+ly )?"
    r"(?:better|best|clearer|nicer|preferable|more \w+)\b(?! (?:as|if|with|without|in|at|when|after|before)\b))",
    re.I,
)
LOOSE_OFFER = re.compile(
    r"\W*(?:(?:could|would|can|to|just|simply|probably|rather|had to)\s|(?:consider|in fact|in reality|actually)\W*$)",
    re.I,
)
"""Offers that are as often none: "I would say “…” is wrong", "actually, “…” …"."""
INSTEAD_OF = re.compile(
    r"^\s*,?\s*(?:instead of|rather than|and not|, not|not)\s*(?:the |a |an |just |using |saying |writing "
    r")*(?:word |phrase )?$",
    re.I,
)
CLAIMS_BEFORE = re.compile(
    r"\b(?:says|said|states|stated|uses|used|using|reads|writes|wrote|has|had|gives|claims|mentions|returns|prints|"
    r"calls|contains|puts|is|was)\s*"
    r"(?:that |the |a |an |word |phrase |it |is |of )*[:,]?\s*$",
    re.IGNORECASE,
)

_TELL = (
    r"(?:mention|includ|cover|explain|address|discuss|say|stat|tell|giv|provid|contain|describ|refer|not|specif|"
    r"show|captur|"
    r"account for|consider|import|handl|check|talk about|touch on|acknowledg|elaborat|add)\w*"
)
OMISSION_SAID = re.compile(
    rf"\b(?:(?:does|do|did|is|are|was|were)(?:\s+not|n['’]t|nt)\s+(?:even |also |really |actually |ever |being "
    rf")*{_TELL}\b"
    r"|(?:no|without (?:any )?) ?(?:mention|reference|information|explanation|discussion|word) (?:of|to|about|on)\b"
    r"|(?:there is|says?|said) nothing (?:about|on|of)\b)",
    re.IGNORECASE,
)
"""Something is not told. Of the completion it finds an omission; of the source it blames what the completion adds."""
OMISSION_OUTRIGHT = re.compile(
    r"\b(?:there (?:is|are) no (?:\w+ )?(?:handling|checks?|validation|tests?|comments?|docstrings?|conclusion|"
    r"introduction|"
    r"examples?|details?|transitions?|explanation)"
    rf"|(?:fail\w*|neglect\w*|forg[eo]t\w*|omit\w*) to {_TELL}\b"
    r"|leav(?:es?|ing) out|left out|omit(?:s|ted|ting)?|omission of|skip(?:s|ped|ping)?|overlook(?:s|ed|ing)?|"
    r"gloss(?:es|ed) over"
    r"|(?:is|are) (?:also )?missing|missing (?:the|a|an|any|from|some|details?|information)|lack(?:s|ing)?|misses"
    rf"|(?:should|could|must|needs? to|ought to|might|please)\s+(?:\w+\s+)?(?:also )?(?:add|include|mention|cover|"
    rf"explain|"
    r"address|incorporate|say (?:something|more))"
    r"|(?:should|could|must) have (?:also )?(?:added|included|mentioned|covered|explained|said)"
    r"|(?:add|include|mention) (?:the |some |more |a |an )?(?:information|details?|facts?|mention|context|reference|"
    r"explanation|example)s?"
    r"|would (?:be|have been) (?:nice|good|better|helpful|useful) to (?:add|include|mention|know|see|have))\b",
    re.IGNORECASE,
)
"""Something is missing, whoever should have told it."""

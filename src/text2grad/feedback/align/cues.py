"""Kinds of things that critics name instead of the words themselves ("his first name", "the number of dead"), and the
words of a completion that are of such a kind.

Enters: a clause; a token with its neighbours. Leaves: which kinds the clause names; of which kinds the token is.
General English, no data set: a kind that is missing here only means that a critique has to use the words.
"""

import re

from text2grad.feedback.align.stems import wordset

KINDS = ("first_name", "name", "role", "place", "time", "number", "age", "group", "cause")

_NAMED = {
    "first_name": r"(?:first|fore|given|full|christian|whole|complete)[- ]?names?|forenames?|names? in full",
    "name": r"names?|named|identity|who (?:he|she|they|it)|title",
    "role": r"position|job|titles?|roles?|occupation|profession|rank|status|career|former|ex-\w+|works? as|designation",
    "place": r"locations?|located|places?|where|countr\w+|cit(?:y|ies)|towns?|count(?:y|ies)|regions?|areas?|venues?|"
    r"nationalit\w+|province|address|set in|takes? place|geograph\w+|setting",
    "time": r"when|dates?|days?|years?|months?|weeks?|times?|timing|seasons?|duration|how long|lengths?|periods?|"
    r"centur\w+|"
    r"hours?|minutes?|decades?|time ?frame|deadline",
    "number": r"numbers?|how many|how much|amounts?|figures?|scores?|percent\w*|costs?|prices?|totals?|counts?|values?|"
    r"statistics?|sizes?|sums?|quantit\w+|rate|margin|number of \w+|lengths?|distances?|measurements?",
    "age": r"ages?|aged|years? old|how old|year-old",
    "group": r"clubs?|teams?|part(?:y|ies)|compan\w+|organi[sz]ations?|leagues?|competitions?|tournaments?|events?|"
    r"cups?|"
    r"festivals?|shows?|programmes?|programs?|bands?|agenc\w+|division|affiliation|opponents?|brand|publisher",
    "cause": r"why|reasons?|causes?|caused|motives?|because|due to|circumstances",
}
_CUES = re.compile("|".join(rf"(?P<{kind}>\b(?:{words})\b)" for kind, words in _NAMED.items()), re.IGNORECASE)
ALL = re.compile(
    r"\b(?:everything|entire(?:ly)?|whole|completely|totally|all of|none of|nothing|any of|most of|the summary is "
    r"(?:not|wrong|incorrect)|rest of)\b",
    re.IGNORECASE,
)

_ROLES = """
actor actress ambassador analyst artist author ballerina bishop boss bowler boxer broadcaster businessman
businesswoman captain chairman chairwoman champion chancellor chef chief coach columnist comedian commander
commissioner conductor constable councillor cricketer critic cyclist dancer defender deputy designer director doctor
driver editor engineer executive ex fighter fisherman flanker footballer former forward founder fullback full-back
gardener general goalkeeper golfer governor guard guitarist head host hooker inspector inventor jockey journalist
judge keeper king lawyer lead leader lieutenant lock magician maker manager mayor midfielder minister model musician
nurse officer official opener owner painter peer photographer pilot player poet politician presenter president
priest prime prince princess principal producer professor prop queen racer rapper reporter researcher scientist
scrum-half secretary senator sergeant singer singer-songwriter skipper soldier spinner spokesman spokeswoman star
stowaway striker student superintendent swimmer teacher teenager trainer veteran vice winger winner writer
centre-back full-time left-back right-back fly-half
"""
ROLE_WORDS = wordset(_ROLES)
_TIMES = """
monday tuesday wednesday thursday friday saturday sunday january february march april may june july august september
october november december today yesterday tomorrow tonight week weeks month months year years day days hour hours
minute minutes second seconds decade decades century season seasons weekend morning evening afternoon night noon
midnight spring summer autumn winter annual daily weekly monthly yearly last next this ago since recent recently
previous previously late early end start ever
"""
TIME_WORDS = wordset(_TIMES)
_NUMBERS = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred hundreds thousand thousands million
millions billion billions dozen dozens half third quarter first second fourth fifth sixth seventh eighth ninth tenth
once twice several many few more most least record number
"""
NUMBER_WORDS = wordset(_NUMBERS)
UNITS = wordset(
    "metres meters kilometres kilometers km m cm mm miles yards feet inches grams kilograms kg g mg tonnes tons pounds "
    "ounces litres liters ml gallons degrees percent seconds minutes hours days weeks months years decades centuries "
    "dollars euros hundred thousand million billion trillion"
)
"""What is cut off its number only to lose its sense."""
PLACE_PREPOSITIONS = wordset("in at near from outside inside around across off into to")
CAUSE_WORDS = wordset("because due over after following since amid as for by")


def cues_of(words: str) -> set[str]:
    """The kinds that a clause names.

    >>> sorted(cues_of("his first name and the number of dead"))
    ['first_name', 'number']
    """
    return {match.lastgroup for match in _CUES.finditer(words) if match.lastgroup}


def without_kinds(words: str) -> str:
    """A clause without the words that only name a kind.

    >>> without_kinds("the first name of Finch")
    'the   of Finch'
    """
    return _CUES.sub(" ", words)

"""Gold for alignment, made by perturbing texts at hand: what was changed is known, and critiques of it are written in
many wordings, roles and lengths.

Enters: the data folder. Leaves: `Item`s of five kinds. `facts`: a number, a name or a direction is replaced; gold is
the words. `details`: one or two details are put into news; gold is the details. `clauses`: a remark is put into a
sentence; gold is the remark. `sentences`: a sentence is repeated, moved, foreign or badly written; gold is the
sentence. `programs`: one line of a program is broken; gold is the line. The
wordings quote, paraphrase, point by position or speak of style, order, relevance and redundancy. Half of the items
have a source. Everything is drawn from the name of the text, so that it is the same on every machine.
"""

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gold.items import SMALL, Item, Part, part_of, spanned

_SENTENCE = re.compile(r"[^.!?]+(?:[.!?](?=\S)[^.!?]*)*[.!?]")
_NTH = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
Made = tuple[str, tuple[int, int], dict[str, str], Sequence[str], str]
"""The perturbed text, the place of the perturbation, the slots of the wordings, the wordings, the whole text before."""


# ---- Texts at hand ---------------------------------------------------------------------------------------------------


def _answers(folder: Path) -> Iterator[tuple[str, list[str], str]]:
    """(name, sentences, source) of questions answered from passages, and of conclusions of medical papers."""
    for number, row in enumerate(json.loads((folder / "qa" / "qa_feedback_dev.json").read_text(encoding="utf-8"))):
        passages = "\n".join(" ".join(passage) for passage in row["passages"])
        yield f"answer-{number}", _split(row["gold"]), passages
    for name, row in json.loads((folder / "qa" / "pubmedqa_pqal.json").read_text(encoding="utf-8")).items():
        yield f"paper-{name}", _split(row["LONG_ANSWER"]), "\n".join(row["CONTEXTS"])


def _articles(folder: Path) -> Iterator[tuple[str, list[str], str]]:
    """(name, the first sentences, the whole) of news articles and of abstracts."""
    for split in ("train", "val"):
        for number, row in enumerate(_lines(folder / "summarization" / f"defacto_{split}.jsonl")):
            yield f"article-{split}-{number}", _split(row["article"])[:8], row["article"]
    for row in _lines(folder / "summarization" / "scitldr_dev.jsonl"):
        yield f"abstract-{row['id']}", [sentence.strip() for sentence in row["source"]][:9], " ".join(row["source"])


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


def _split(text: str) -> list[str]:
    return [match[0].strip() for match in _SENTENCE.finditer(" ".join(text.split()))]


def _topic(sentence: str, avoid: str = "", count: int = 2) -> list[str]:
    """The longest content words of a sentence: what a reader would name it by."""
    words = [word for word in re.findall(r"[^\W\d_]{4,}", sentence) if word.lower() not in SMALL]
    words = [word for word in dict.fromkeys(words) if word.lower() not in avoid.lower()]
    longest = sorted(words, key=len, reverse=True)[:count]
    return [word for word in words if word in longest]


def _joined(sentences: Sequence[str], index: int) -> tuple[str, int]:
    """The text, and where its sentence of this index begins."""
    return " ".join(sentences), sum(len(sentence) + 1 for sentence in sentences[:index])


def _where(index: int, count: int) -> str:
    return "last" if index == count - 1 else _NTH[index]


def _items(
    kind: str,
    texts: Iterator[tuple[str, list[str], str]],
    perturb: Callable[[list[str], random.Random], Made | None],
    part: Part,
    most: int,
) -> Iterator[Item]:
    made = 0
    for name, sentences, source in texts:
        if made == most:
            return
        if part_of(name) != part:
            continue
        draw = random.Random(f"{kind} {name}")
        perturbed = perturb(sentences, draw) if 2 <= len(sentences) <= 10 else None
        if perturbed is None:
            continue
        text, place, slots, wordings, before = perturbed
        critique = _said(draw, wordings, slots)
        given = f"{before}\n{source}" if draw.random() < 0.5 else None
        item = spanned(kind, f"{kind}-{name}", text, critique, given, [place], before)
        if item is not None:
            made += 1
            yield item


_ROLES = (
    "{}", "{}", "{}", "{}", "Reviewer 2: {}", "Thanks for this. {}", "As your editor I have one remark: {}",
    "{} Please fix it before we publish.", "Mostly fine. {}", "{} The rest reads well.", "From a student's view: {}",
)  # fmt: skip


def _said(draw: random.Random, wordings: Sequence[str], slots: dict[str, str]) -> str:
    """One of the wordings in the mouth of one of the roles; one in four forgets the full stop."""
    said = draw.choice(wordings).format(**slots)
    said = said[0].upper() + said[1:] if draw.random() < 0.7 else said
    stop = "" if said[-1] in ".?!" or draw.random() < 0.25 else "."
    return draw.choice(_ROLES).format(said + stop)


# ---- Facts -----------------------------------------------------------------------------------------------------------

_TURNS = {
    "increased": "decreased", "decreased": "increased", "higher": "lower", "lower": "higher", "more": "fewer",
    "before": "after", "after": "before", "first": "last", "best": "worst", "positive": "negative",
    "significant": "negligible", "early": "late", "north": "south", "south": "north", "east": "west", "west": "east",
    "male": "female", "female": "male", "largest": "smallest", "effective": "useless", "improved": "worsened",
    "high": "low", "common": "rare", "safe": "dangerous", "associated": "unrelated", "won": "lost",
}  # fmt: skip
_DENIALS = {"is": "is not", "are": "are not", "was": "was not", "were": "were not", "can": "cannot", "has": "has not"}
_FACTS = {
    "number": (
        "the {kind} is wrong, it should be {old}", '"{new}" is wrong', "{old}, not {new}",
        "where does {new} come from? I count {old}", "the {kind} given for {topic} cannot be right",
        "check the {kind} in the {nth} sentence: it is not what was reported", "{new} should read {old}",
        "the figure next to {near} does not match my notes", "wrong {kind} ({near})",
        "I looked it up and it was {old}; saying {new} misleads readers about the {topic}",
        "the passage on {topic} gets the {kind} wrong",
    ),
    "name": (
        "it was {old}, not {new}", "{new} has nothing to do with this", '"{new}" should be "{old}"',
        "wrong name: {old}", "why {new}? {old} is meant", "the name that goes with {near} is wrong",
        "you mixed up {old} and {new}", "nobody called {new} appears anywhere in the material",
        "in the {nth} sentence the name is not right", "the {topic} part names the wrong one",
    ),
    "turn": (
        "it is the other way round: {old}", "this says {new}, but it should say {old}",
        "the direction is reversed where it speaks of {topic}", '"{new}" contradicts the findings',
        "{topic}: the opposite is true", "it claims {new} {near}, which is false",
        "the {nth} sentence states the opposite of what happened", "{new}?? no, {old}",
    ),
    "denial": (
        "the negation is wrong where it speaks of {topic}", "{topic}: the opposite is true", 'why "{new}"?',
        'it should say "{old}", not "{new}"', "it denies {topic}, which is plainly the case",
        "remove the not in the {nth} sentence", '"{new}" turns the meaning of the part on {topic} upside down',
    ),
}  # fmt: skip


def _fact(sentences: list[str], draw: random.Random) -> Made | None:
    before = " ".join(sentences)
    found = [
        (index, match, sort)
        for index, sentence in enumerate(sentences)
        for sort, pattern in (
            ("number", r"(?<![\w.,])\d[\d.,]*\d%?|(?<![\w.,])\d%?(?![\w.])"),
            ("name", r"(?<=[a-z,] )[A-Z][a-z]{3,}(?: [A-Z][a-z]+)*"),
            ("turn", rf"\b(?:{'|'.join(_TURNS)})\b"),
            ("denial", rf"\b(?:{'|'.join(_DENIALS)})\b"),
        )
        for match in re.finditer(pattern, sentence)
    ]
    sorts = sorted({sort for _, _, sort in found})
    if not sorts:
        return None
    chosen = draw.choice(sorts)
    index, match, sort = draw.choice([each for each in found if each[2] == chosen])
    old = match[0]
    new = (_TURNS | _DENIALS).get(old) or (_other_number(old, draw) if sort == "number" else draw.choice(_NAMES))
    sentence = sentences[index]
    changed = [*sentences[:index], sentence[: match.start()] + new + sentence[match.end() :], *sentences[index + 1 :]]
    text, begin = _joined(changed, index)
    near = _topic(sentence[match.end() : match.end() + 40], count=1) or _topic(sentence[: match.start()], count=1)
    topic = _topic(sentence, old)
    if not near or not topic:
        return None
    named = "year" if re.fullmatch(r"(?:18|19|20)\d\d", old) else "percentage" if "%" in old else "number"
    slots = {"old": old, "new": new, "kind": named, "near": near[0], "topic": " and ".join(topic)}
    slots["nth"] = _where(index, len(sentences))
    place = (begin + match.start(), begin + match.start() + len(new))
    return text, place, slots, _FACTS[sort], before


def _other_number(old: str, draw: random.Random) -> str:
    digits = [place for place, character in enumerate(old) if character.isdigit()]
    place = draw.choice(digits)
    return old[:place] + draw.choice([d for d in "123456789" if d != old[place]]) + old[place + 1 :]


_NAMES = (
    "Oslo", "Ana Ruiz", "Brightwater", "Kenji Mori", "Lakeland", "Tamsin Gale", "Porto", "Helen Adeyemi", "Nordbank",
    "Vilnius", "Marek", "Atlas Group", "Siobhan", "Ravenna", "Zhou Lin", "Calder", "Umbria", "Dr. Patel", "Yusuf",
)  # fmt: skip

# ---- Details ---------------------------------------------------------------------------------------------------------

_DETAILS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "first name": (r"(?<=\bMr )(?=[A-Z])|(?<=\bMs )(?=[A-Z])|(?<=\bMrs )(?=[A-Z])|(?<=\bDr )(?=[A-Z])",
        ("Oliver ", "Priya ", "Hannah ", "Tomas ", "Grace "),
        ("{after}'s first name", "the first name of {after}", "the first name", "the full name of {after}")),
    "when": (r"(?=[.]$)|(?=, (?:which|who|and|but) )",
        (" on Tuesday", " last month", " in 2012", " on Friday evening", " this summer", " two years ago"),
        ("the day", "when it happened", "the date", "the time", "that it was{detail}")),
    "where": (r"(?=[.]$)|(?=, (?:which|who|and|but) )",
        (" in Aberdeen", " near Leeds", " at a hotel in Rome", " in the south of Wales", " in Oslo"),
        ("the location", "the place", "where it took place", "that it was{detail}", "the city")),
    "number": (r"(?<=\bthe )(?=[a-z]{4,}s\b)|(?<=\bof )(?=[a-z]{4,}s\b)",
        ("three ", "more than 200 ", "17 ", "dozens of ", "five "),
        ("the number of {after}", "how many {after} there were", "the figure", "that there were {detail}{after}")),
    "role": (r"(?<=[a-z] )(?=[A-Z][a-z]+ [A-Z][a-z]+\b)",
        ("former striker ", "the author ", "chief executive ", "singer ", "the ex-mayor "),
        ("his position", "the job title", "{after}'s role", "{after} being {detail}", "the profession of {after}")),
    "why": (r"(?=[.]$)",
        (" because of a strike", " after a row over pay", " due to heavy snow", " amid fears of a recession"),
        ("the reason", "the cause", "why it happened", "that this was{detail}")),
    "adjective": (r"(?<=\bthe )(?=[a-z]{5,} )|(?<=\ba )(?=[bcdfghjklmnpqrstvwz][a-z]{4,} )",
        ("controversial ", "famous ", "new ", "disused ", "long-awaited ", "brutal "),
        ("the {after} being {detail}", "that the {after} is {detail}", "the word {detail}")),
}  # fmt: skip
_ON_DETAILS = (
    "it makes up {}", "{} is not in the source", "the source does not mention {}", "nothing is said about {}",
    "the summary adds {}, which the text does not support", "there is no evidence for {}", "{}: invented",
    "the article never tells us {}", "I could not verify {}", "{} was made up by the writer", "who told you {}?",
    "the text includes facts that are not found in the article, such as {}", "remove {}", "take out {}, please",
    "The original article was silent on {}, so this should not have been included in the summary",
)  # fmt: skip


def _detail(sentences: list[str], draw: random.Random) -> tuple[str, list[tuple[int, int]], str] | None:
    """One or two details put into the text: (the text, their places, the critique)."""
    text = " ".join(sentences[: draw.choice((1, 1, 3))])
    sorts = draw.sample(sorted(_DETAILS), len(_DETAILS))
    spots: list[tuple[int, str, str]] = []
    for sort in sorts:
        pattern, details, names = _DETAILS[sort]
        found = [match.start() for match in re.finditer(pattern, text)]
        found = [at for at in found if all(abs(at - other) > 3 for other, _, _ in spots)]
        if found and len(spots) < 2 and (not spots or draw.random() < 0.4):
            at, detail = draw.choice(found), draw.choice(details)
            after = (re.findall(r"[\w-]+", text[at:]) or [""])[0]
            if after or detail.startswith(" "):
                spots.append((at, detail, draw.choice(names).format(after=after, detail=detail.rstrip())))
    if not spots:
        return None
    places, shift = [], 0
    for at, detail, _ in sorted(spots):
        text = text[: at + shift] + detail + text[at + shift :]
        lead = len(detail) - len(detail.lstrip())
        places.append((at + shift + lead, at + shift + len(detail.rstrip())))
        shift += len(detail)
    said = draw.choice(_ON_DETAILS).format(" and ".join(name for _, _, name in spots))
    return text, places, _said(draw, (said.replace("{", "(").replace("}", ")"),), {})


def details(folder: Path, part: Part, most: int = 300) -> Iterator[Item]:
    """Details put into news that the rest of the article does not have."""
    texts = list(_articles(folder))
    random.Random("details").shuffle(texts)
    made = 0
    for name, sentences, source in texts:
        draw = random.Random(f"details {name}")
        perturbed = _detail(sentences, draw) if sentences and part_of(name) == part and made < most else None
        if perturbed is None:
            continue
        text, places, critique = perturbed
        given = source if draw.random() < 0.7 else None
        item = spanned("details", f"details-{name}", text, critique, given, places)
        if item is not None:
            made += 1
            yield item


# ---- Clauses ---------------------------------------------------------------------------------------------------------

_REMARKS = (
    (", which came as a shock to experts around the world", "experts being shocked", "a global reaction"),
    (", thanks largely to a generous private donor", "a private donor", "who paid for it"),
    (", although critics have called the whole thing a waste", "critics calling it a waste", "controversy"),
    (", mainly because of a lack of rain", "the lack of rain", "the cause"),
    (", just in time for the summer holidays", "summer holidays", "the timing"),
    (", as several neighbours later confirmed", "neighbours confirming it", "witnesses"),
    (", making it the most successful of its kind", "being the most successful", "its success"),
    (" after months of bitter argument in parliament", "arguments in parliament", "the politics before it"),
    (" despite repeated warnings from the police", "police warnings", "warnings"),
    (", and a film about it is already planned", "a planned film", "what is to come"),
    (", costing taxpayers more than expected", "the cost to taxpayers", "money"),
    (" in front of a crowd of cheering children", "cheering children", "the audience"),
    (", a fact long known to local fishermen", "local fishermen", "who knew of it"),
    (", using a method borrowed from astronomy", "astronomy", "the method"),
    (", for which the team later apologised", "the team apologising", "an apology"),
)
_ON_REMARKS = (
    "the bit about {what} is made up", "{what}: says who?", "nothing in the source about {what}",
    "the remark on {theme} at the end of the {nth} sentence is speculation", '"{quote}" is not supported',
    "where does the claim about {what} come from? I would cut it", "delete the aside about {what}",
    "the {nth} sentence adds something on {theme} that nobody said", "unsupported: {what}",
    "I can't find any evidence for {what}, and it distracts from {topic}",
    "the text on {topic} goes on about {theme}, which is invented",
    "you mention {what}, but the material never does; it is an embellishment",
)  # fmt: skip


def _clause(sentences: list[str], draw: random.Random) -> Made | None:
    index = draw.randrange(len(sentences))
    sentence = sentences[index]
    commas = [match.start() for match in re.finditer(r",(?= [a-z])", sentence)]
    at = draw.choice(commas) if commas and draw.random() < 0.4 else len(sentence) - 1
    remark, what, theme = draw.choice(_REMARKS)
    topic = _topic(sentence)
    if len(topic) < 2 or at < 20:
        return None
    changed = [*sentences[:index], sentence[:at] + remark + sentence[at:], *sentences[index + 1 :]]
    text, begin = _joined(changed, index)
    words = remark.strip(" ,").split()
    first = draw.randrange(max(1, len(words) - 4))
    slots = {"what": what, "theme": theme, "nth": _where(index, len(sentences)), "topic": " and ".join(topic)}
    slots["quote"] = " ".join(words) if draw.random() < 0.6 else " ".join(words[first : first + 5])
    place = (begin + at + len(remark) - len(remark.lstrip(" ,")), begin + at + len(remark))
    return text, place, slots, _ON_REMARKS, " ".join(sentences)


# ---- Sentences -------------------------------------------------------------------------------------------------------

_CLUMSY = (
    "It is what it is and that is basically the thing with {topic}, you know, at the end of the day.",
    "And then, like, {topic} were sort of a really, really big deal for everybody and stuff.",
    "It should be noted that it is important to note that {topic} is noted as being of note.",
    "In today's fast-paced world, {topic} has never been more important than it is right now today!",
    "There was the existence of a situation in which {topic} was being in the process of being considered.",
    "Because of {topic}, and also because, and this matters, of other things which, as said, are many, it is so.",
    "{topic} is amazing!!! Everyone just has to love it, no doubt about that.",
    "One might, perhaps, arguably, in some sense, possibly say that {topic} could maybe matter somewhat.",
)
_ON_SENTENCES: dict[str, tuple[str, ...]] = {
    "foreign": (
    "the sentence about {topic} does not belong here", "irrelevant: {topic}", "what has {topic} to do with the rest?",
    "the {nth} sentence is off topic", "one sentence is completely unrelated to the others; it talks about {topic}",
    "stay on the subject, the part on {topic} is a digression", '"{quote}" is beside the point',
    "I would drop the {nth} sentence, it adds nothing to the subject", "there is an irrelevant sentence in here",
    "the remarks about {topic} come out of nowhere and should go",
    ),
    "repeated": (
    "this is repetitive: {topic} is said twice", "the {nth} sentence repeats what was already said",
    "redundant, we already know about {topic}", "you say the same thing about {topic} again",
    "one sentence is a repetition of an earlier one", "repeats itself", '"{quote}": already said above',
    "no need to tell us about {topic} a second time", "cut the second mention of {topic}",
    ),
    "moved": (
    "the {nth} sentence comes too early", "the order is off: {topic} should come later",
    "the sentence on {topic} is in the wrong place", "move the part about {topic} further down",
    "you speak of {topic} before the reader knows the context; this should not be the opening",
    "the opening is confusing, it presupposes what follows", "the text should not begin with {topic}",
    ),
    "style": (
    "the {nth} sentence is badly written", "clumsy wording in the sentence on {topic}", "too informal: {topic}",
    "this is hard to read: the sentence with {topic} should be rewritten in plain words",
    "awkward style in the {nth} sentence", '"{quote}" is waffle', "the tone of the part about {topic} is wrong",
    "I stumbled over the wordy sentence about {topic}", "the sentence that speaks of {topic} says nothing at all",
    ),
}  # fmt: skip


def _sentence(others: Sequence[str]) -> Callable[[list[str], random.Random], Made | None]:
    def perturb(sentences: list[str], draw: random.Random) -> Made | None:
        if len(sentences) < 4:
            return None
        sort = draw.choice(("foreign", "repeated", "moved", "style"))
        index = draw.randrange(1, len(sentences))
        rest = list(sentences)
        if sort == "foreign":
            added = draw.choice(others)
        elif sort == "repeated":
            added = _again(sentences[draw.randrange(index)], draw)
        elif sort == "moved":
            added, index = rest.pop(draw.randrange(2, len(rest))), 0
        else:
            added = draw.choice(_CLUMSY).format(topic=" and ".join(_topic(sentences[index - 1])))
        topic = _topic(added)
        if len(topic) < 2 or len(added) < 20:
            return None
        changed = [*rest[:index], added, *rest[index:]]
        text, begin = _joined(changed, index)
        words = added.rstrip(".").split()
        first = draw.randrange(max(1, len(words) - 6))
        slots = {"topic": " and ".join(topic), "nth": _where(index, len(changed))}
        slots["quote"] = " ".join(words[first : first + 6])
        if '"' in slots["quote"]:
            return None
        return text, (begin, begin + len(added)), slots, _ON_SENTENCES[sort], " ".join(sentences)

    return perturb


def _again(sentence: str, draw: random.Random) -> str:
    """The sentence as somebody says it who forgot having said it."""
    lead = draw.choice(("", "As mentioned, ", "Again, ", "In other words, ", "It was also noted that "))
    return lead + (sentence[0].lower() + sentence[1:] if lead and not sentence[:2].isupper() else sentence)


# ---- Programs --------------------------------------------------------------------------------------------------------

_BREAKS: tuple[tuple[str, str, str], ...] = (
    (r"range\((\w+)\)", r"range(\1 - 1)", "the loop misses the last element"),
    (r"range\(1, ", "range(", "the counting starts one too early"),
    (r" \+ 1\b", "", "off by one"), (r" - 1\b", "", "one too many"), (r" == ", " != ", "the comparison is inverted"),
    (r" <= ", " < ", "the bound itself is excluded"), (r" < ", " > ", "the comparison goes the wrong way"),
    (r" > ", " < ", "the comparison goes the wrong way"), (r" \+ ", " - ", "subtracts where it should add"),
    (r" \* ", " + ", "adds where it should multiply"), (r" % ", " // ", "divides instead of taking the remainder"),
    (r" and ", " or ", "one of the two conditions is enough to pass, both should hold"),
    (r"\bTrue\b", "False", "gives the wrong truth value"), (r"\bmax\(", "min(", "takes the smallest, not the largest"),
    (r"\bmin\(", "max(", "takes the largest, not the smallest"), (r"\bsorted\((.+)\)", r"\1", "it is never sorted"),
    (r"= 0$", "= 1", "starts from the wrong value"), (r"return (\w+)$", r"return not \1", "returns the wrong thing"),
    (r"\.append\(", ".remove(", "takes away from the list instead of adding to it"),
    (r"\blen\((\w+)\)", r"\1", "uses the thing where its length is needed"),
)  # fmt: skip
_ON_PROGRAMS = (
    "line {number} is wrong: {why}", "{why}", "`{code}`: {why}", "{why}; look at {names}", "the {sort} is wrong, {why}",
    "in the {sort} with {names}, {why}", "the tests fail because {why} ({names})", "bug in line {number}",
    "I think {names} is handled incorrectly", "please correct the {sort}: {why}", "should be `{old}`",
    "The function does not do what the task asks. {why}, so the result is wrong for most inputs. Check {names}.",
    "nit: {why}", "the {sort} should use {fixed}",
)  # fmt: skip


def programs(folder: Path, part: Part, most: int = 300) -> Iterator[Item]:
    """MBPP's solutions with one line broken. The source is the task."""
    made = 0
    for row in _lines(folder / "code" / "mbpp.jsonl"):
        name, program = f"program-{row['task_id']}", row["code"].replace("\r\n", "\n").rstrip()
        draw = random.Random(name)
        lines = [line.rstrip() for line in program.split("\n")]
        found = [
            (number, pattern, put, why)
            for number, line in enumerate(lines)
            for pattern, put, why in _BREAKS
            if number and line.strip() and re.search(pattern, line)
        ]
        if part_of(name) != part or len([line for line in lines if line.strip()]) < 4 or not found or made == most:
            continue
        number, pattern, put, why = draw.choice(found)
        broken = re.sub(pattern, put, lines[number], count=1)
        names = re.findall(r"[A-Za-z_]\w{2,}", broken) or re.findall(r"[A-Za-z_]\w*", broken)
        before, after = set(re.findall(r"\S+", lines[number])), set(re.findall(r"\S+", broken))
        if broken == lines[number] or not broken.strip() or not names:
            continue
        sort = next((s for s in ("return", "for", "while", "if") if re.match(rf"\s*{s}\b", broken)), "assignment")
        slots = {
            "number": str(number + 1), "why": why, "code": broken.strip(), "old": lines[number].strip(),
            "names": " and ".join(draw.sample(names, min(2, len(names)))),
            "sort": {"for": "loop", "while": "loop", "if": "condition", "return": "return statement"}.get(sort, sort),
            "fixed": " ".join(sorted(before - after)) or lines[number].strip(),
        }  # fmt: skip
        text = "\n".join([*lines[:number], broken, *lines[number + 1 :]])
        begin = sum(len(line) + 1 for line in lines[:number]) + len(broken) - len(broken.lstrip())
        critique = _said(draw, _ON_PROGRAMS, slots)
        place = (begin, begin + len(broken.strip()))
        item = spanned("programs", name, text, critique, row["text"], [place], program, lines=True)
        if item is not None:
            made += 1
            yield item


def facts(folder: Path, part: Part, most: int = 300) -> Iterator[Item]:
    return _items("facts", _answers(folder), _fact, part, most)


def clauses(folder: Path, part: Part, most: int = 300) -> Iterator[Item]:
    return _items("clauses", _mixed(_answers(folder), _articles(folder)), _clause, part, most)


def sentences(folder: Path, part: Part, most: int = 300) -> Iterator[Item]:
    texts = list(_articles(folder))
    others = [sentence for _, text, _ in texts[::7] for sentence in text[1:2] if 40 < len(sentence) < 160]
    random.Random("texts").shuffle(texts)
    return _items("sentences", iter(texts), _sentence(others), part, most)


def _mixed(*streams: Iterator[tuple[str, list[str], str]]) -> Iterator[tuple[str, list[str], str]]:
    texts = [text for stream in streams for text in stream]
    random.Random("texts").shuffle(texts)
    return iter(texts)

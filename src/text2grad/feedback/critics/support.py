"""The critic `support`: sentence by sentence, what source passages support, what they do not, and what they contradict.

Enters: `passages` (texts, or lists of sentences), else `source`, else the prompt. Leaves: a `Critique` whose quotes are
supported sentences (good), and the numbers, dates, names and words that no passage has (poor); where a passage says
something else in their place, the comment cites it. Score: (supported − poor) / sentences, from −1 to 1; a completion
that says nothing has −1, so that silence is never the better choice. Too little source: None.

It compares words, not meanings. What it cannot see: a right name in a wrong role, a negation, and a fact that the
passages tell of somebody else. Between "supported" and "not" it abstains: such a sentence gets no quote.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from annotated_types import Ge, Le

from text2grad._checked import Int, Real
from text2grad.config import settings
from text2grad.feedback.align.text import Text
from text2grad.feedback.critics.evidence import Cited, Evidence, evidence_in, is_name, shifted, word_after
from text2grad.feedback.critics.facts import Fact, facts_of
from text2grad.feedback.critics.protocol import Critiques, Prompt
from text2grad.feedback.critics.words import (
    UNENCODABLE,
    Word,
    cite,
    column_at,
    encodable,
    listed,
    prompt_text,
    sentences_of,
    texts_in,
    words_of,
)
from text2grad.types import Critique, Quote

Share = Annotated[Real, Ge(0), Le(1)]
_BEFORE = 24
"""Characters before a number in which "about" is looked for."""
_MOST_FACTS = 40
"""A sentence with more numbers than this is a table: what a passage says instead of one of them is not looked for."""


@settings
class SupportSettings:
    """When a sentence counts as supported or not. How they were chosen: docs/critics.md."""

    supported: Share = 0.85
    """A sentence is supported if the passages have at least this share of its content words, and nothing in it is
    poor."""
    together: Share = 0.7
    """And if one sentence of theirs has at least this share by itself: words from all over prove nothing."""
    unsupported: Share = 0.5
    """Below this share of content words in the passages, the words that they lack are poor. Above it, only numbers,
    dates and names are: other words may be paraphrase."""
    least: Annotated[Int, Ge(0)] = 3
    """A sentence with fewer content words gets no verdict from its words, only from its numbers, dates and names."""
    thin: Annotated[Int, Ge(0)] = 20
    """Where there are no passages and no source, a prompt of fewer words than this counts for none: then there is no
    score."""
    prompt_known: bool = True
    """Words, names and numbers of the prompt are not called unsupported: a question may use words that the
    passages do not."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A stretch that the passages do not have, and what they have instead."""

    start: int
    end: int
    instead: Cited | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """A sentence with what was found. Neither supported nor with problems: no verdict."""

    start: int
    end: int
    supported: bool
    problems: tuple[Problem, ...]


class SupportCritic:
    """`critic(prompts, completions, passages=[…])`.

    >>> passage = "Fjord is the second album by the singer Jorun Vekas, released on 23 April 2016 by Tern Norway."
    >>> critic = SupportCritic()
    >>> (said,) = critic([""], ["The album Fjord was released on 23 April 2017."], passages=[[passage]])
    >>> said.feedback
    '“23 April 2017” is not supported: passage 1 says “23 April 2016”.'
    """

    __name__ = "support"

    def __init__(self, settings: SupportSettings | None = None) -> None:
        self.settings = settings or SupportSettings()

    def __call__(self, prompts: Sequence[Prompt], completions: Sequence[str], **columns: Sequence[Any]) -> Critiques:
        critiques = Critiques()
        for item, completion in enumerate(completions):
            prompt = prompt_text(prompts[item])
            passages = texts_in(column_at(columns, "passages", item), "passages", item)
            passages = passages or texts_in(column_at(columns, "source", item), "source", item)
            if not passages and len(prompt.split()) >= self.settings.thin:
                passages, prompt = [prompt], ""
            critiques.add(self.judge(completion, passages, prompt), self._why_not(completion, passages))
        return critiques

    def _why_not(self, completion: str, passages: Sequence[str]) -> str:
        """Why `judge` has nothing to say, where it has nothing."""
        if not encodable(completion, *passages):
            return UNENCODABLE
        if passages:
            return "its passages hold no word to compare with"
        return f"it has no passages and no source, and its prompt has fewer than {self.settings.thin} words"

    def judge(self, completion: str, passages: Sequence[str], prompt: str = "") -> Critique | None:
        """One completion against its passages; None where they say nothing."""
        evidence = evidence_in(tuple(passages))
        if not evidence.size or not encodable(completion, *passages):
            return None
        asked = evidence_in((prompt,)) if prompt and self.settings.prompt_known else None
        judged = list(self._sentences(completion, evidence, asked))
        if not judged:
            return Critique("The completion says nothing.", score=-1.0, quotes_only=True)
        quotes = [quote for sentence in judged for quote in _quotes(completion, sentence)]
        supported = sum(sentence.supported for sentence in judged)
        poor = sum(bool(sentence.problems) for sentence in judged)
        score = (supported - poor) / len(judged)
        return Critique(_feedback(completion, judged), quotes=tuple(quotes), score=score, quotes_only=True)

    def _sentences(self, completion: str, evidence: Evidence, asked: Evidence | None) -> Iterator[Judged]:
        text = Text(completion)
        all_words, all_facts = words_of(text), facts_of(completion)
        for start, end in sentences_of(text):
            raw = completion[start:end]
            words, facts = list(shifted(all_words, start, end)), list(shifted(all_facts, start, end))
            if not words:
                continue
            content = _outside(words, facts)
            known = [_known(raw, word, evidence, asked) for word in content]
            share = sum(known) / len(content) if content else 1.0
            problems = list(self._facts(raw, words, facts, evidence, asked))
            if len(content) >= self.settings.least and share < self.settings.unsupported:
                problems += _stretches(words, [w for w, k in zip(content, known, strict=True) if not k])
            else:
                problems += _names(raw, words, content, known, evidence)
            supported = (
                not problems
                and len(content) >= self.settings.least
                and share >= self.settings.supported
                and _together(content, evidence) >= self.settings.together
            )
            yield Judged(start, end, supported, tuple(_merged(raw, start, problems)))

    def _facts(
        self, raw: str, words: Sequence[Word], facts: Sequence[Fact], evidence: Evidence, asked: Evidence | None
    ) -> Iterator[Problem]:
        absent = []
        for fact in facts:
            before = raw[max(0, fact.start - _BEFORE) : fact.start]
            if not (evidence.has_fact(fact, before) or (asked is not None and asked.has_fact(fact, before))):
                absent.append(fact)
        nearest = evidence.nearest({word.stem for word in words if word.content}, 2) if absent else None
        for fact in absent:
            instead = None
            if nearest is not None and len(facts) <= _MOST_FACTS:
                instead = evidence.instead_of(fact, nearest, word_after(words, fact), facts)
            yield Problem(fact.start, fact.end, instead)


def _outside(words: Sequence[Word], facts: Sequence[Fact]) -> list[Word]:
    """The content words that are no part of a number or date: those are judged as what they mean."""
    found, index = [], 0
    for word in words:
        while index < len(facts) and facts[index].end <= word.start:
            index += 1
        if word.content and (index == len(facts) or word.start < facts[index].start):
            found.append(word)
    return found


def _together(content: Sequence[Word], evidence: Evidence) -> float:
    """The largest share of these words that one sentence of the passages has."""
    stems = {word.stem for word in content}
    nearest = evidence.nearest(stems, 1)
    return len(stems & nearest.stems) / len(stems) if nearest is not None else 0.0


def _known(raw: str, word: Word, evidence: Evidence, asked: Evidence | None) -> bool:
    said = raw[word.start : word.end]
    return evidence.has_word(said) or (asked is not None and asked.has_word(said))


def _names(
    raw: str, words: Sequence[Word], content: Sequence[Word], known: Sequence[bool], evidence: Evidence
) -> Iterator[Problem]:
    """Capitalised words that no passage has; not in headlines, and the first word of a sentence only if the second has
    a capital too."""
    capitals = sum(is_name(raw, word) for word in content)
    if capitals > 0.9 * len(content) and len(content) > 4:
        return
    absent = [
        word
        for word, there in zip(content, known, strict=True)
        if not there and is_name(raw, word) and (word is not words[0] or _two_names(raw, words))
    ]
    gone = {word.start for word in absent}
    for problem in _stretches(words, absent):
        # Half a name: "Jimmy" before a "Carr" whom the passages know as "Graham Carr".
        index = bisect_left(words, (problem.end,))
        last = words[index] if index < len(words) else None
        instead = None
        if last is not None and raw[problem.end : last.start] == " " and is_name(raw, last) and last.start not in gone:
            instead = evidence.full_name(last.stem)
        yield replace(problem, instead=instead if instead is None or instead.text not in raw else None)


def _two_names(raw: str, words: Sequence[Word]) -> bool:
    return len(words) > 1 and raw[words[0].end : words[1].start] == " " and is_name(raw, words[1])


def _stretches(words: Sequence[Word], chosen: Sequence[Word]) -> Iterator[Problem]:
    """Chosen words that stand together, with function words between them, as one stretch."""
    wanted = {word.start for word in chosen}
    first: Word | None = None
    last: Word | None = None
    for word in words:
        if word.start in wanted:
            first, last = first or word, word
        elif word.content and first is not None and last is not None:
            yield Problem(first.start, last.end)
            first = last = None
    if first is not None and last is not None:
        yield Problem(first.start, last.end)


def _merged(raw: str, offset: int, problems: Sequence[Problem]) -> Iterator[Problem]:
    """Problems in order, neighbouring ones as one unless a passage says something else instead of one of them, at their
    places in the completion."""
    current: Problem | None = None
    for problem in sorted(problems, key=lambda each: (each.start, each.end)):
        touching = current is not None and not raw[current.end : problem.start].strip(" -'’")
        if current is not None and (
            problem.start < current.end or (touching and current.instead is None and problem.instead is None)
        ):
            end, instead = max(current.end, problem.end), current.instead or problem.instead
            current = replace(current, end=end, instead=instead)
            continue
        if current is not None:
            yield replace(current, start=current.start + offset, end=current.end + offset)
        current = problem
    if current is not None:
        yield replace(current, start=current.start + offset, end=current.end + offset)


def _quotes(completion: str, sentence: Judged) -> Iterator[Quote]:
    if sentence.supported:
        said = completion[sentence.start : sentence.end]
        yield Quote(said, "good", comment=f"{cite(said)} is supported.", start=sentence.start)
    for problem in sentence.problems:
        said = completion[problem.start : problem.end]
        yield Quote(said, "poor", comment=_comment(said, problem), start=problem.start)


def _comment(said: str, problem: Problem) -> str:
    if problem.instead is None:
        return f"{cite(said)} is in no passage."
    return f"{cite(said)} is not supported: passage {problem.instead.passage} says {cite(problem.instead.text)}."


def _feedback(completion: str, judged: Sequence[Judged]) -> str:
    problems = [problem for sentence in judged for problem in sentence.problems]
    told = [_comment(completion[p.start : p.end], p) for p in problems if p.instead is not None]
    absent = [cite(completion[p.start : p.end]) for p in problems if p.instead is None]
    if absent:
        told.append(f"{listed(absent)} {'is' if len(absent) == 1 else 'are'} in no passage.")
    supported = sum(sentence.supported for sentence in judged)
    if supported == len(judged):
        told.append("Every sentence is supported." if len(judged) > 1 else "The sentence is supported.")
    elif supported:
        told.append(f"{supported} of {len(judged)} sentences {'is' if supported == 1 else 'are'} supported.")
    return " ".join(told) or "The passages neither support it nor speak against it."


support = SupportCritic()
"""With the default settings: `--critic support`."""

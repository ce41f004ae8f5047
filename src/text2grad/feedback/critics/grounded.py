"""The critic `grounded`: which clauses of an answer its passages bear out.

Enters: `passages` (texts, or lists of sentences), else `source`; the prompt, or `question`, says what was asked;
`reference`, if there is one, what a good answer says. Leaves: a `Critique`. Poor: clauses that the passages do not say.
Good: clauses that they do say and that answer the question. No passages: None.

A clause is doubtful by two measures, neither of which knows meanings:

- *coverage*: the share of its sentence's content words that one single sentence of a passage has (with that passage's
  title, since "she" has a name there), rare words counting more. An invented statement is often made of words that the
  passages do have, in different places: "Audrey Langford plays Bonnie", where they say who plays whom.
- *pairs*: the share of its neighbouring words that are neighbours in a passage, too.

The weights of the two were learned from one half of QA-Feedback, where people marked what is not grounded; the other
half says how well that works (docs/critics.md). A paraphrase looks doubtful, a negation that is left out does not.

The score is the share of content words that are not in doubt, times how well the completion answers: by its words in
common with the reference (F-measure), or else by the share of the question's words that grounded sentences take up.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Any, Literal, NamedTuple

from text2grad.feedback.critics.protocol import Critiques, Prompt
from text2grad.feedback.critics.support import Labelled, Sentence, source_of
from text2grad.feedback.critics.words import UNENCODABLE, Column, Word, cite, encodable, judge_items
from text2grad.feedback.settings import GroundedSettings
from text2grad.types import Critique, Quote

_CLAUSE = re.compile(
    r"(?<=[,;:.!?])\s+(?!\d)|(?<=[。，；：！？])\s*"
    r"|\s+(?=(?:and|but|while|which|who|when|where|because|although|before|after)\b)"
)
"""Where a clause ends: behind a mark, unless a number follows ("3 May, 1777"), or before a word that begins another."""
_BIAS, _COVERAGE, _PAIRS = 1.62, 3.59, 2.23
"""Log-odds that a clause is not grounded: bias − coverage · … − pairs · …; by studies/critics/grounded.py."""
_TITLE = 12
"""A passage's first line of at most so many words, with others below it, is its title."""
_LONGEST = 160
"""Characters of a passage that are quoted in a remark."""
_QUESTION = re.compile(r"(?:^|\n)\s*Question:\s*(.+)")


class CompletionClause(NamedTuple):
    """A clause of a completion, and what the passages have of it."""

    start: int
    end: int
    first: int
    """Its first word, as an index; `last` is behind its last."""
    last: int
    sentence: tuple[int, int]
    """Words of its sentence."""
    coverage: float
    pairs: float
    nearest: Sentence | None

    @property
    def doubt(self) -> float:
        """The probability that people would call it ungrounded, from 0 to 1."""
        return 1 / (1 + math.exp(_COVERAGE * self.coverage + _PAIRS * self.pairs - _BIAS))


class Passages:
    """What passages say: their sentences with titles, which words are rare, which are neighbours."""

    def __init__(self, texts: Sequence[str]) -> None:
        source = source_of(tuple(texts))
        self.words = source.words
        self.sentences = source.sentences
        titles = [_title(text) for text in texts]
        own = [{word.stem for word in s.text.words[s.first : s.end]} for s in self.sentences]
        self.counts = Counter(stem for stems in own for stem in stems)
        self.stems = [stems | titles[s.number - 1] for stems, s in zip(own, self.sentences, strict=True)]
        self.pairs = {(a.stem, b.stem) for text in source.passages for a, b in pairwise(text.words)}

    def weight(self, stem: str) -> float:
        """More for a rare word: log((n + 1) / (sentences with it + ½))."""
        return math.log((len(self.sentences) + 1) / (self.counts[stem] + 0.5))

    def cover(self, stems: set[str]) -> tuple[float, Sentence | None]:
        """The largest weighted share of these stems that one sentence has, and that sentence."""
        weights = {stem: self.weight(stem) for stem in stems}
        found = [sum(weights[stem] for stem in stems & there) for there in self.stems]
        if not weights or not found:
            return 1.0 if found else 0.0, None
        best = max(range(len(found)), key=found.__getitem__)
        return found[best] / sum(weights.values()), self.sentences[best] if found[best] else None

    def clauses(self, text: Labelled) -> Iterator[CompletionClause]:
        """The clauses of a completion that have a word, in order."""
        places = list(_clauses(text.raw))
        covered = {
            sentence: self.cover({word.stem for word in text.words[slice(*sentence)] if word.content})
            for sentence in text.sentences
        }
        at = 0
        for start, end in places:
            first = at
            while at < len(text.words) and text.words[at].start < end:
                at += 1
            if first == at:
                continue
            sentence = next((s for s in text.sentences if s[0] <= first < s[1]), (first, at))
            coverage, nearest = covered.get(sentence) or self.cover({w.stem for w in text.words[first:at] if w.content})
            # The step into the clause from the word before it belongs to the clause.
            chain = text.words[max(first - 1, sentence[0]) : at]
            steps = [(a.stem, b.stem) in self.pairs for a, b in pairwise(chain)]
            pairs = sum(steps) / len(steps) if steps else 1.0
            yield CompletionClause(start, end, first, at, sentence, coverage, pairs, nearest)


class GroundedCritic:
    """`critic(prompts, completions, passages=[…])`.

    >>> passage = "Bonnie\\nCammie King played Bonnie. Audrey Lang was her mother, a columnist of the Examiner in Utah."
    >>> critic = GroundedCritic()
    >>> (critique,) = critic(["Who played Bonnie?"], ["Cammie King played Bonnie. A Utah columnist sang."],
    ...                      passages=[[passage]])
    >>> [(quote.text, quote.verdict) for quote in critique.quotes]
    [('Cammie King played Bonnie.', 'good'), ('A Utah columnist sang.', 'poor')]
    """

    __name__ = "grounded"

    def __init__(self, settings: GroundedSettings | None = None) -> None:
        self.settings = settings or GroundedSettings()

    def __call__(self, prompts: Sequence[Prompt], completions: Sequence[str], **columns: Sequence[Any]) -> Critiques:
        return judge_items(prompts, completions, columns, self._judge_item)

    def _judge_item(self, completion: str, prompt: str, column: Column) -> tuple[Critique | None, str]:
        passages, references = column("passages") or column("source"), column("reference")
        question = next(iter(column("question")), None)
        asked = question_in(prompt) if question is None else question
        return self.judge(completion, passages, asked, references), _why_not(completion, passages, references)

    def judge(
        self, completion: str, passages: Sequence[str], question: str = "", references: Sequence[str] = ()
    ) -> Critique | None:
        """One completion against its passages; None where they say nothing."""
        if not encodable(completion, question, *passages, *references):
            return None
        known = passages_of(tuple(passages))
        if not known.words:
            return None
        text = Labelled(completion)
        clauses = list(known.clauses(text))
        told = max((_content(Labelled(r).words) for r in references), key=len, default=frozenset[str]())
        asked = _content(Labelled(question).words)
        labelled = [(self._verdict(text, clause, told, asked), clause) for clause in clauses]
        quotes = [_quote(text.raw, verdict, group) for verdict, group in _groups(labelled)]
        said = " ".join(quote.comment for quote in quotes)
        score = self._score(text, clauses, [Labelled(reference) for reference in references], asked)
        nothing = "The passages bear the completion out." if clauses else "The completion says nothing."
        return Critique(said or nothing, quotes=tuple(quotes), score=score, quotes_only=True)

    def _verdict(
        self, text: Labelled, clause: CompletionClause, told: frozenset[str], asked: frozenset[str]
    ) -> Literal["good", "poor"] | None:
        """Poor: in doubt. Good: far from it, and half of its words are the reference's, or its sentence takes up half
        of the question's."""
        if clause.doubt >= self.settings.doubt:
            return "poor"
        mine = _content(text.words[clause.first : clause.last])
        sentence = _content(text.words[slice(*clause.sentence)])
        answers = 2 * len(mine & told) >= len(mine) if told else 2 * len(sentence & asked) >= len(asked)
        return "good" if mine and answers and clause.doubt < self.settings.doubt / 2 else None

    def _score(
        self, text: Labelled, clauses: Sequence[CompletionClause], references: Sequence[Labelled], asked: frozenset[str]
    ) -> float:
        sure = [clause for clause in clauses if clause.doubt < self.settings.doubt]
        content = sum(word.content for word in text.words)
        if not content:
            return 0.0
        grounded = [word for clause in sure for word in text.words[clause.first : clause.last] if word.content]
        share = len(grounded) / content
        if references:
            return share * max(f1(text.words, reference.words) for reference in references)
        taken = {word.stem for clause in sure for word in text.words[slice(*clause.sentence)]}
        return share * (len(asked & taken) / len(asked) if asked else 1.0)


def _groups(labelled: Sequence[tuple[Any, CompletionClause]]) -> Iterator[tuple[Any, list[CompletionClause]]]:
    """Clauses of one sentence that follow each other with one verdict, together."""
    for (verdict, _), group in groupby(labelled, key=lambda each: (each[0], each[1].sentence)):
        if verdict is not None:
            yield verdict, [clause for _, clause in group]


def _quote(raw: str, verdict: Literal["good", "poor"], group: Sequence[CompletionClause]) -> Quote:
    words = raw[group[0].start : group[-1].end]
    if verdict == "good":
        return Quote(words, "good", None, f"{cite(words)} is what the passages say, and answers.", group[0].start)
    remark, near = "is not what the passages say", group[0].nearest
    if near is not None:
        passage = near.text.raw[near.text.words[near.first].start : near.text.words[near.end - 1].end]
        remark += f"; the nearest, in passage {near.number}, is {cite(_shortened(passage))}"
    severity = round(max(clause.doubt for clause in group), 2)
    return Quote(words, "poor", severity, f"{cite(words)} {remark}.", group[0].start)


def f1(ours: Sequence[Word], theirs: Sequence[Word]) -> float:
    """F-measure of the content words, each counted as often as the other text has it.

    >>> f1(Labelled("red red ship").words, Labelled("a red boat").words)
    0.4
    """
    a, b = (Counter(word.stem for word in words if word.content) for words in (ours, theirs))
    return 2 * (a & b).total() / (a.total() + b.total()) if a or b else 0.0


def question_in(prompt: str) -> str:
    """The question of a prompt that names one; else all of a short prompt.

    >>> question_in("Answer from the passages.\\n\\nQuestion: Who sang?\\n\\nPassages:\\nAda sang.")
    'Who sang?'
    """
    named = _QUESTION.search(prompt)
    return named[1].strip() if named else prompt if len(prompt) < 400 else ""


@lru_cache(maxsize=256)
def passages_of(texts: tuple[str, ...]) -> Passages:
    """Kept, because the completions of a batch share them."""
    return Passages(texts)


def _title(text: str) -> set[str]:
    first, newline, rest = text.strip().partition("\n")
    return set(Labelled(first).stems) if newline and rest.strip() and len(first.split()) <= _TITLE else set()


def _clauses(raw: str) -> Iterator[tuple[int, int]]:
    start = 0
    for match in (*_CLAUSE.finditer(raw), None):
        end = len(raw) if match is None else match.start()
        text = raw[start:end]
        if text.strip():
            yield start + len(text) - len(text.lstrip()), start + len(text.rstrip())
        start = end if match is None else match.end()


def _content(words: Sequence[Word]) -> frozenset[str]:
    return frozenset(word.stem for word in words if word.content)


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST].rsplit(' ', 1)[0]} …"


def _why_not(completion: str, passages: Sequence[str], references: Sequence[str]) -> str:
    if not encodable(completion, *passages, *references):
        return UNENCODABLE
    return "its passages hold no word to compare with" if passages else "it has no passages and no source"

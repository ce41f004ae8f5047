"""The nouns. Frozen, checked on construction, JSON both ways; no torch, no tokenizer, no files.

Read top to bottom: a task gives an `Example`; a policy writes a `Completion`; a critic writes a `Critique` made of
`Quote`s; alignment locates them as `Span`s in an `Alignment`; scoring turns spans into token rewards. All of it
together is a `Rollout`: one noun from the sampler to the report, a row of a run's `rollouts.jsonl`.

All positions are character offsets into the text, half open, counted in Python characters (Unicode code points).
"""

import json
from collections.abc import Mapping
from dataclasses import field
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge, Gt, Le
from pydantic import BeforeValidator, JsonValue, ValidationError

from text2grad._checked import Flag, InOrder, Int, Real, Text, adapter, checked, explain, shorten
from text2grad.errors import InvalidData

Verdict = Literal["good", "poor", "neutral"]
Role = Literal["system", "user", "assistant", "tool"]
Provenance = Literal["given", "exact", "normalised", "fuzzy", "revision", "located", "code", "paraphrase", "learned"]
"""Which evidence located a span, strongest first; `given` means the data came with its character offsets."""
Occurrence = Literal["only", "resolved", "ambiguous"]
"""Whether the quoted text occurs once, or several times with a reason to pick this one, or several times without."""
Isolation = Literal["isolated", "in_process"]
"""Where a program's tests ran: in another process than the program, or in the same one, where it can reach them."""
Index = Annotated[Int, Ge(0)]
Severity = Annotated[Real, Gt(0), Le(1)]
Ids = Annotated[tuple[Index, ...], InOrder]
Numbers = Annotated[tuple[Real, ...], InOrder]
Texts = Annotated[tuple[Text, ...], InOrder]
Identity = Annotated[Text, BeforeValidator(lambda value: str(value) if type(value) is int else value)]


class Noun:
    """JSON in and out, the same for all of them."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers; `from_json` gives the same noun back."""
        plain: dict[str, Any] = adapter(type(self)).dump_python(self, mode="json")
        return plain

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote, or what somebody wrote by hand; every violation is named with its path."""
        try:
            return adapter(cls).validate_python(data)
        except ValidationError as problem:
            raise InvalidData(explain(problem, cls)) from None


@checked(InvalidData)
class Message(Noun):
    """One turn of a conversation.

    >>> Message("user", "Summarise the report.").role
    'user'
    """

    role: Role
    content: Text


@checked(InvalidData)
class Example(Noun):
    """One task item: what the policy is asked, and what a critic may need to judge it.

    >>> example = Example("news-1", "Summarise: The dam broke at noon.", reference="Dam breaks.")
    >>> Example.from_json(example.to_json()) == example
    True
    """

    id: Identity
    """Kept everywhere the item goes, rejected rows included. A whole number becomes its text."""
    prompt: Text | tuple[Message, ...]
    """Text, source included, or a conversation whose last assistant turn is to be written."""
    reference: Text | None = None
    columns: Mapping[str, JsonValue] = field(default_factory=dict)
    """Whatever else the critic takes by name: passages, tests, facts. A copy of what was given; treat it as frozen."""

    def __post_init__(self) -> None:
        if not self.id:
            raise ValueError("id: should be a non-empty text, got ''; give each example its own")
        if not self.prompt:
            raise ValueError(f"prompt: should be a non-empty text or list of messages, got {self.prompt!r}")
        try:
            json.dumps(self.columns, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError(
                "columns should hold texts that can be written as UTF-8, got half a surrogate pair"
            ) from None
        object.__setattr__(self, "columns", dict(self.columns))


@checked(InvalidData)
class Completion(Noun):
    """What the policy wrote: the sampled ids, the text they decode to, and the characters each id covers.

    An id that is part of a character (an emoji split over three tokens) covers that whole character; a special token
    covers nothing, as an empty range where it stands.

    >>> Completion("Hi 🙂", (10, 11, 12, 0), ((0, 3), (3, 4), (3, 4), (4, 4))).text[3:4]
    '🙂'
    >>> Completion("Hi", (10, 11), ((0, 2),))
    Traceback (most recent call last):
    text2grad.errors.InvalidData: Completion: should have one offset pair per token id, got 2 ids and 1 pairs
    """

    text: Text
    token_ids: Ids
    offsets: Annotated[tuple[tuple[Index, Index], ...], InOrder]

    def __post_init__(self) -> None:
        if len(self.token_ids) != len(self.offsets):
            raise ValueError(
                f"should have one offset pair per token id, got {len(self.token_ids)} ids and {len(self.offsets)} pairs"
            )
        last_start = covered = 0
        for index, (start, end) in enumerate(self.offsets):
            if not last_start <= start <= covered or not start <= end <= len(self.text):
                raise ValueError(
                    f"offsets[{index}] should start within {last_start}..{covered} and end within "
                    f"its start..{len(self.text)}, so that the tokens cover the text in order, got ({start}, {end})"
                )
            last_start, covered = start, max(covered, end)
        if covered != len(self.text):
            raise ValueError(
                f"offsets should cover all {len(self.text)} characters of the text, got the first {covered}; "
                f"uncovered: {shorten(self.text[covered:], 40)}"
            )


@checked(InvalidData)
class Quote(Noun):
    """Words that a critique points at, as the critique gives them: not yet located in the completion.

    >>> Quote("on Tuesday", "poor", comment="the report says Monday").verdict
    'poor'
    >>> Quote("  ", "poor")
    Traceback (most recent call last):
    text2grad.errors.InvalidData: Quote: text should hold more than white space, got '  '
    """

    text: Text
    verdict: Verdict
    severity: Severity | None = None
    comment: Text = ""
    """The words of the critique that this quote came with."""
    start: Index | None = None
    """Where the critique says the quote begins, if it does."""

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise ValueError(f"text should hold more than white space, got {self.text!r}")


@checked(InvalidData)
class Critique(Noun):
    """What was said about one completion. Located nowhere yet; see `Alignment`.

    >>> said = Critique("Good opening, but leaves out the cause.", omissions=("the cause",), score=0.5)
    >>> said.omissions
    ('the cause',)
    """

    feedback: Text
    quotes: Annotated[tuple[Quote, ...], InOrder] = ()
    omissions: Texts = ()
    """What is missing; belongs to the decision to stop, not to a span."""
    score: Real | None = None
    """Of the whole completion, if the critic has one."""
    quality: Annotated[tuple[tuple[Index, Real], ...], InOrder] | None = None
    """Q of the prefixes that end at these characters, ascending, where the critic can measure prefixes."""
    revision: Text | None = None
    """The completion as it should have been."""
    verdict: Isolation | None = None
    """Of critics that run tests. `in_process`: at least one test shared a process with the program it judges."""
    quotes_only: Flag = False
    """The quotes are all that is pointed at, even where there are none: alignment reads nothing out of the feedback."""

    def __post_init__(self) -> None:
        if any(not omission.strip() for omission in self.omissions):
            raise ValueError(f"omissions should each say what is missing, got {shorten(self.omissions)}")
        ends = [end for end, _ in self.quality or ()]
        if any(b <= a for a, b in pairwise(ends)):
            raise ValueError(f"quality should have strictly ascending character ends, got {shorten(ends)}")


@checked(InvalidData)
class Span(Noun):
    """Characters of a completion with a verdict, and the evidence for their being the ones meant.

    >>> Span(4, 11, "poor").slice("at the quay")
    'he quay'
    >>> Span(4, 12, "poor").slice("at the quay")
    Traceback (most recent call last):
    text2grad.errors.InvalidData: Span(4, 12) should end within its text of 11 characters 'at the quay', got end 12
    """

    start: Index
    end: Index
    verdict: Verdict
    severity: Severity | None = None
    provenance: Provenance = "given"
    confidence: Annotated[Real, Ge(0), Le(1)] = 1.0
    comment: Text = ""
    """The clause of the critique that caused it."""
    occurrence: Occurrence = "only"

    def __post_init__(self) -> None:
        if self.end <= self.start:
            raise ValueError(f"end should lie behind start, got start {self.start} and end {self.end}")

    def slice(self, text: str) -> str:
        """The characters themselves; a span that reaches outside its text is an error, not a shorter slice."""
        if self.end > len(text):
            raise InvalidData(
                f"Span({self.start}, {self.end}) should end within its text of {len(text)} characters "
                f"{shorten(text, 40)}, got end {self.end}"
            )
        return text[self.start : self.end]


@checked(InvalidData)
class Missed(Noun):
    """A quote that landed nowhere, and why.

    >>> Missed("seven ships", "not in the completion").reason
    'not in the completion'
    """

    quote: Text
    reason: Text

    def __post_init__(self) -> None:
        if not self.quote or not self.reason:
            raise ValueError(f"should name the quote and the reason, got {self.quote!r} and {self.reason!r}")


@checked(InvalidData)
class Alignment(Noun):
    """Where a critique's quotes are. Every quote ends in exactly one of the two lists.

    >>> Alignment((Span(0, 3, "good"),), (Missed("seven ships", "not in the completion"),)).missed[0].quote
    'seven ships'
    """

    spans: Annotated[tuple[Span, ...], InOrder] = ()
    missed: Annotated[tuple[Missed, ...], InOrder] = ()
    omissions: Texts = ()
    """What the critique finds missing from the completion; no span can hold it."""


@checked(InvalidData)
class Rollout(Noun):
    """One completion with everything that is known about it. A row of `rollouts.jsonl`.

    The sampler makes the first part, `judge` the second, the optimizer the third. A rollout without a critique was not
    scored: then it has no alignment and no rewards, which is not the same as rewards of 0.

    >>> completion = Completion("Hi", (10, 0), ((0, 2), (2, 2)))
    >>> rollout = Rollout(Example("a", "Greet."), completion, critique=Critique("Short."), alignment=Alignment(),
    ...                   token_rewards=(0.0, 1.0))
    >>> rollout.scored, Rollout.from_json(rollout.to_json()) == rollout
    (True, True)
    """

    example: Example
    completion: Completion
    index: Index = 0
    """Number of this completion in its update, over all processes."""
    group: Index = 0
    """Completions of the same prompt share it."""
    prompt_ids: Ids = ()
    logprobs: Numbers | None = None
    """Of the sampled ids, under the distribution they were sampled from."""
    values: Numbers | None = None
    """What the value head predicted before each id."""
    truncated: Flag = False
    """Cut off at the length limit, so the last token is not a decision to stop."""

    critique: Critique | None = None
    alignment: Alignment | None = None
    token_rewards: Numbers | None = None
    verdicts: Numbers | None = None
    """1 in good spans, −1 in poor ones, 0 elsewhere."""
    score: Real | None = None
    """The critic's score of the whole, or what its verdicts add up to."""

    advantages: Numbers | None = None
    logprobs_after: Numbers | None = None
    """The same log-probs after the update."""

    def __post_init__(self) -> None:
        given = {name: getattr(self, name) is not None for name in ("critique", "alignment", "token_rewards")}
        if any(given.values()) != all(given.values()):
            raise ValueError(
                "critique, alignment and token_rewards should come together or not at all, got "
                + ", ".join(f"{name}={'given' if there else None}" for name, there in given.items())
            )
        length = len(self.completion.token_ids)
        for name in ("logprobs", "values", "token_rewards", "verdicts", "advantages", "logprobs_after"):
            stream = getattr(self, name)
            if stream is not None and len(stream) != length:
                raise ValueError(f"{name} should hold one number per token id, got {len(stream)} for {length} ids")
        for span in self.alignment.spans if self.alignment else ():
            span.slice(self.completion.text)
        ends = [end for end, _ in (self.critique and self.critique.quality) or ()]
        if ends and ends[-1] > len(self.completion.text):
            raise ValueError(
                f"critique.quality should end within the text of {len(self.completion.text)} characters, got {ends[-1]}"
            )

    @property
    def scored(self) -> bool:
        return self.critique is not None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Reads `to_json`, a row of `rollouts.jsonl`, and rows of runs before version 0.2."""
        renamed = {"logprobs_before": "logprobs"}
        row = {renamed.get(key, key): value for key, value in data.items() if key not in ("update", "held_out")}
        # A slotted dataclass is made anew, so the bare `super()` would know the old class.
        return super(Rollout, cls).from_json(row)  # noqa: UP008


@checked(InvalidData)
class MetricInfo(Noun):
    """What a reader of a chart needs to know about a metric. Declared where the metric is made.

    >>> MetricInfo("Held-out score", "Mean score of greedy completions.", "higher").better
    'higher'
    """

    title: Text
    help: Text
    better: Literal["higher", "lower", "neither"] = "neither"

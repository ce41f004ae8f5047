"""The settings of alignment: every number that changes a result, with its reason."""

from dataclasses import field
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from text2grad._checked import Int, Real
from text2grad.config import settings

Fraction = Annotated[Real, Ge(0), Le(1)]
Count = Annotated[Int, Ge(0)]


@settings
class QuoteSettings:
    """How quoted text is found."""

    ambiguous: Literal["first", "all", "none"] = "first"
    """A quote that occurs several times, where nothing in the critique says which: the `first` one, `all` of them, or
    `none` (it is missed). Spans of `first` and `all` are marked `occurrence: ambiguous`."""
    fuzzy: Fraction = 0.2
    """Also find a quote whose best window is within this share of its length in character edits; 0 turns it off.
    Above a quarter, quotes that nobody wrote begin to find windows."""
    shortest_fuzzy: Count = 6
    """A quote of fewer characters is never matched loosely: one edit turns most short words into others."""


@settings
class RevisionSettings:
    """How a corrected version is used."""

    use: bool = True
    """Take what the correction removed or replaced as poor."""


@settings
class CodeSettings:
    """How code is referred to without quotes: lines, names, kinds of statement, tracebacks."""

    use: bool = True
    """Look for such references where the completion looks like code."""
    share: Fraction = 0.6
    """Lines that hold at least this share of what the best line holds of the critique's names and kinds are chosen.
    Between 0.5 and 0.7 the choice makes little difference on people's feedback."""


@settings
class ParaphraseSettings:
    """How words are found that a critique talks about without quoting them."""

    use: bool = True
    """Look for paraphrases at all."""
    threshold: Fraction = 0.12
    """Abstain below this confidence that a word is meant."""
    bridge: Fraction = 0.2
    """Words between two chosen ones are chosen, too, where they are on average at least this likely."""
    similarity: Fraction = 0.25
    """With an embedder: how near in meaning a sentence has to be to a clause that shares no word with the text. On
    critiques of one sentence among several, all-MiniLM-L6-v2 is right 93 times in 100 above this and `margin`."""
    margin: Fraction = 0.05
    """With an embedder: by how much it has to be nearer than the next sentence."""


@settings
class LimitSettings:
    """What is too large to be meant."""

    critique: Annotated[Int, Gt(0)] = 200_000
    """Characters of a critique; a longer one is rejected, not cut."""
    completion: Annotated[Int, Gt(0)] = 5_000_000
    """Characters of a completion; a longer one is rejected, not cut."""


@settings
class AlignSettings:
    """Settings of `text2grad align` and `text2grad.align`."""

    RENAMED: ClassVar = dict.fromkeys(
        ("quotes.boundary", "quotes.normalise", "revision.boundary", "revision.most", "code.certain", "code.threshold",
         "paraphrase.longest", "paraphrase.certain")
    )  # fmt: skip
    verdict: Literal["good", "poor", "neutral"] = "neutral"
    """Of what is said without praise or blame, where the rest of the critique does not settle it."""
    embedder: str | None = None
    """Folder or hub id of a sentence-embedding model such as all-MiniLM-L6-v2, to find a sentence by its meaning where
    no word is shared. Used by the command line; from Python, hand `align` a callable."""
    locator: str | None = None
    """openai:MODEL: any OpenAI-compatible model quotes the words that a critique is about, where the critique quotes
    none itself. Its quotes are checked; what it cannot point at is left to the ladder. Its server, key, cache and
    budget are those of critics.openai."""
    quotes: QuoteSettings = field(default_factory=QuoteSettings)
    """Quoted text."""
    revision: RevisionSettings = field(default_factory=RevisionSettings)
    """A corrected version, where one is given."""
    code: CodeSettings = field(default_factory=CodeSettings)
    """References to code."""
    paraphrase: ParaphraseSettings = field(default_factory=ParaphraseSettings)
    """Words that are meant but not quoted."""
    limits: LimitSettings = field(default_factory=LimitSettings)
    """Sizes."""

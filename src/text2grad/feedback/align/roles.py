"""What the quotes of a sentence are there for: the critic's words propose, the texts decide.

Enters: the quotes of one sentence of a critique with the roles that its words give them, the completion, the source.
Leaves: for each quote None, if it is meant and has to be placed, or the reason why it is not looked for. The words
alone mislead ("actually, “…” is wrong" offers nothing, "according to the article, “…” is false" does not quote the
article), so that a quote which stands in the completion, and only there, is meant unless the sentence means another.
"""

from collections.abc import Sequence

from text2grad.feedback.align import quoted
from text2grad.feedback.align.places import exact, normalised
from text2grad.feedback.align.settings import QuoteSettings
from text2grad.feedback.align.text import Text
from text2grad.feedback.parse import CitedQuote, Role


def refusals(
    text: Text, quotes: Sequence[CitedQuote], source: Text | None, settings: QuoteSettings
) -> list[str | None]:
    """Why each quote is not looked for; None for those that are."""
    roles = [_proposed(text, quote, quotes, settings) for quote in quotes]
    landed = any(role == "meant" and _lands(text, quote, settings) for quote, role in zip(quotes, roles, strict=True))
    return [_refusal(text, quote, role, source, landed, settings) for quote, role in zip(quotes, roles, strict=True)]


def _proposed(text: Text, quote: CitedQuote, quotes: Sequence[CitedQuote], settings: QuoteSettings) -> Role:
    """The role by the words; of "A instead of B", whichever of the two stands in the completion is meant."""
    if not quote.doubtful:
        return quote.role
    there = _lands(text, quote, settings)
    others = any(_lands(text, other, settings) for other in quotes if other is not quote and other.doubtful)
    return quote.role if there == others else "meant" if there else "offered"


def _refusal(
    text: Text, quote: CitedQuote, role: Role, source: Text | None, landed: bool, settings: QuoteSettings
) -> str | None:
    if role == "meant":
        return None
    in_text = bool(exact(text, quote.text) or (settings.normalise and normalised(text, quote.text)))
    in_source = source is not None and _lands(source, quote, settings)
    if in_text and not in_source and not landed and _open(quote, role, source):
        return None
    if role == "source":
        if in_source or source is None:
            return quoted.QUOTES_SOURCE
        return quoted.OFFERED if in_text else quoted.NOT_THERE
    return quoted.QUOTES_SOURCE if in_source and not in_text else quoted.OFFERED


def _open(quote: CitedQuote, role: Role, source: Text | None) -> bool:
    """Whether the texts may overrule the words: where these are loose, or name a source that is here to be asked."""
    return not quote.firm or (role == "source" and source is not None)


def _lands(text: Text, quote: CitedQuote, settings: QuoteSettings) -> bool:
    return bool(quoted.locate(text, quote.text, settings)[0])

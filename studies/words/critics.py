"""The critics of the study: the demo's words, and the same words damaged on purpose.

Each is a callable as `text2grad.tasks.bulletin_critic:bulletin`. What is damaged depends on the prompt and the
completion alone, so a run can be repeated.
"""

import hashlib
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from text2grad.feedback.critics.protocol import Critiques
from text2grad.tasks.bulletin_critic import bulletin, bulletin_places, bulletin_quality
from text2grad.types import Critique

Change = Callable[[Critique, str, random.Random], Critique]
_QUOTE = re.compile("“([^”]+)”")
_WORD = re.compile(r"\S+")


def changed(critic: Any, change: Change, share: float = 1.0) -> Any:
    """The critic, with this share of its critiques changed."""

    def changing(prompts: Sequence[Any], completions: Sequence[str], **columns: Any) -> Critiques:
        critiques = critic(prompts, completions, **columns)
        return Critiques(
            critique if critique is None else _maybe(critique, str(prompt), completion, change, share)
            for critique, prompt, completion in zip(critiques, prompts, completions, strict=True)
        )

    changing.__name__ = f"{change.__name__} {share:g}"
    return changing


def _maybe(critique: Critique, prompt: str, completion: str, change: Change, share: float) -> Critique:
    rng = random.Random(hashlib.sha256(f"{prompt}\n{completion}".encode()).digest())
    return change(critique, completion, rng) if rng.random() < share else critique


def deleted(critique: Critique, _: str, __: random.Random) -> Critique:
    """The score, and not a word."""
    return Critique("", score=critique.score)


def flipped(critique: Critique, _: str, __: random.Random) -> Critique:
    """What is right is called wrong, and the other way round."""
    swap = {"right": "wrong", "wrong": "right"}
    text = re.sub(r"\b(right|wrong)\b(: the report [^.]*)?", lambda found: swap[found[1]], critique.feedback)
    return replace(critique, feedback=text.replace("does not make a sentence", "is right"))


def moved(critique: Critique, completion: str, rng: random.Random) -> Critique:
    """Every quote names other words of the completion, as many as it had."""
    words = [(found.start(), found.end()) for found in _WORD.finditer(completion)]

    def elsewhere(found: re.Match[str]) -> str:
        count = min(len(found[1].split()), len(words))
        first = rng.randrange(len(words) - count + 1)
        return f"“{completion[words[first][0] : words[first + count - 1][1]]}”"

    return replace(critique, feedback=_QUOTE.sub(elsewhere, critique.feedback)) if words else critique


def cut_anywhere(critique: Critique, completion: str, rng: random.Random) -> Critique:
    """Prefix quality that is cut at random words instead of where the quotes are."""
    ends = [found.end() for found in _WORD.finditer(completion)]
    quotes = []
    for quote in critique.quotes:
        count = min(len(quote.text.split()), len(ends)) or 1
        first = rng.randrange(len(ends) - count + 1)
        start = [found.start() for found in _WORD.finditer(completion)][first]
        quotes.append(replace(quote, text=completion[start : ends[first + count - 1]], start=start))
    return replace(critique, quotes=tuple(quotes))


def all_or_nothing(critique: Critique, _: str, __: random.Random) -> Critique:
    """Words as ever, and a score of 1 for a bulletin without a fault, else 0: at the start 0 for nearly everybody."""
    return replace(critique, score=float((critique.score or 0.0) > 0.999))


CRITICS: dict[str, Any] = {
    "words": bulletin,
    "places": bulletin_places,
    "quality": bulletin_quality,
    "quality_anywhere": changed(bulletin_quality, cut_anywhere),
    "deleted": changed(bulletin, deleted),
    "flipped": changed(bulletin, flipped),
    "binary": changed(bulletin, all_or_nothing),
    **{f"moved_{share}": changed(bulletin, moved, share / 100) for share in (5, 10, 20, 40)},
    **{f"flipped_{share}": changed(bulletin, flipped, share / 100) for share in (5, 10, 20, 40)},
}

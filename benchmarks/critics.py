"""How fast the program critics `reference` and `support` are: items of 100 words against 300 words of source, one core.
Asserted: 300 items/s each, the same critiques twice, and work that grows in step with the text. How often people agree
with them: studies/critics. Ends with `name=value` pairs.
"""

import random
import time
from collections.abc import Callable

from text2grad.feedback.critics.reference import ReferenceCritic
from text2grad.feedback.critics.support import SupportCritic
from text2grad.feedback.text import FUNCTION_WORDS
from text2grad.types import Critique


def speed(name: str, ask: Callable[[list[str], list[str], list[str]], list[Critique | None]]) -> float:
    """Items a second of processor time, on invented text with the shape of English: two words of five are function
    words, some begin with capitals, some are numbers; every item has its own source."""
    draw = random.Random(0)
    common = sorted(FUNCTION_WORDS)
    rare = ["".join(draw.choices("aeioubcdfglmnprstw", k=draw.randint(3, 9))) for _ in range(3000)]
    rare += [word.capitalize() for word in rare[:600]] + [str(draw.randint(2, 2030)) for _ in range(200)]

    def invent(size: int) -> str:
        words = (draw.choice(common if draw.random() < 0.4 else rare) for _ in range(size))
        return " ".join(word + ("." if n % 17 == 16 else "") for n, word in enumerate(words))

    completions, references, sources = ([invent(size) for _ in range(600)] for size in (100, 60, 300))
    first = ask(completions, references, sources)
    start = time.process_time()
    again = ask(completions, references, [f"{source} Anew." for source in sources])
    rate = len(completions) / (time.process_time() - start)
    assert all(critique is not None for critique in again)
    assert ask(completions, references, sources) == first, "the same items should get the same critiques"
    print(f"{name:<12} {rate:>8,.0f} items/s of 100 words, against 300 words of source")
    assert rate > 300, f"{name}: wanted over 300 items/s, got {rate:.0f}"
    return rate


def growth(ask: Callable[[str], object]) -> float:
    """Time for ten times the text over ten times the time: 1 is linear. The worst of texts made to be slow."""

    def seconds(text: str) -> float:
        start = time.process_time()
        ask(text)
        return time.process_time() - start

    worst = 0.0
    for piece in ("ship ", "12 ", "Paris of ", "1 May 2018, ", "“", "漢", "a. "):
        short = min(seconds(piece * 3_000) for _ in range(3))
        worst = max(worst, min(seconds(piece * 30_000) for _ in range(2)) / (10 * max(short, 1e-3)))
    return worst


def main() -> None:
    reference, support = ReferenceCritic(), SupportCritic()
    rates = [
        speed(
            "reference",
            lambda texts, refs, sources: reference([""] * len(texts), texts, reference=refs, source=sources),
        ),
        speed("support", lambda texts, _, sources: support([""] * len(texts), texts, source=sources)),
    ]
    grows = max(
        growth(lambda text: reference([""], [text], reference=[text[:600]], source=[text[:600]])),
        growth(lambda text: support([""], [text], source=["The ship left Paris on 12 May 2017 with 13 men. " * 9])),
    )
    print(f"growth       {grows:.2f} (1 is linear), on texts of 30,000 pieces")
    assert grows < 3, f"wanted linear growth (quadratic would be 10), got {grows:.2f} times that"
    print(f"growth={grows:.2f} reference_per_second={rates[0]:.0f} support_per_second={rates[1]:.0f}")


if __name__ == "__main__":
    main()

"""How many bulletins the critic of the embedded task judges a second: one core, best of a few runs.

Asserts first that the work is done (every reference scores 1, and the others do not), then times references, bulletins
of other reports, references with words exchanged at random, and babble. Ends with `critiques_per_second=…`, the slowest
of the four. Asserted: at least 2,000; aimed at: 5,000. Texts of 1,000 and of 10,000 words show how the time grows.
"""

import random
import time
from collections.abc import Sequence

from text2grad.tasks.bulletin import bulletins
from text2grad.tasks.bulletin_critic import bulletin

COUNT = 1000


def garbled(text: str, rng: random.Random, words: list[str]) -> str:
    """The text with a quarter of its words replaced by others."""
    return " ".join(rng.choice(words) if rng.random() < 0.25 else word for word in text.split())


def main() -> None:
    rng = random.Random(0)
    examples = bulletins(0, COUNT)
    facts = [example.columns["facts"] for example in examples]
    references = [example.reference or "" for example in examples]
    words = sorted({word for text in references for word in text.split()})
    kinds = {
        "references": references,
        "of other reports": references[1:] + references[:1],
        "a quarter exchanged": [garbled(text, rng, words) for text in references],
        "babble": [" ".join(rng.choices(words, k=20)) for _ in references],
    }
    rates = {}
    for name, completions in kinds.items():
        scores = [critique.score or 0.0 for critique in bulletin(references, completions, facts=facts) if critique]
        assert len(scores) == COUNT and (min(scores) == 1.0) == (name == "references"), "unequal work"
        rates[name] = COUNT / seconds(completions, facts)
        print(f"{name:<22} {rates[name]:>8,.0f} critiques/s   mean score {sum(scores) / COUNT:+.2f}")
    long = [" ".join(kinds["babble"][i : i + 50]) for i in range(0, COUNT, 50)]
    longer = [" ".join(long[i : i + 10]) for i in range(0, len(long), 10)]
    few = [seconds(texts, facts) / sum(map(len, texts)) for texts in (long, longer)]
    print(f"growth from 1,000 words to 10,000: {few[1] / few[0]:.2f} times the time a character")
    slowest = min(rates.values())
    assert slowest >= 2000, f"wanted at least 2,000 critiques/s, got {slowest:,.0f}"
    print(f"critiques_per_second={slowest:.0f}")


def seconds(completions: list[str], facts: Sequence[object], repeats: int = 5) -> float:
    """The best of a few runs, in the processor's time."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        bulletin(completions, completions, facts=facts)
        best = min(best, time.process_time() - start)
    return best


if __name__ == "__main__":
    main()

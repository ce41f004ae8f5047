"""The program critics `reference` and `support`: how fast,
and how often people agree with what `support` calls poor.

Speed: items of 100 words against 300 words of source, one core; asserted: 300 items/s each, the same critiques twice.
Agreement, where the data is (`--data DIR`, or TEXT2GRAD_DATA):

- `qa`: completions to questions, with passages, in which people marked what is wrong or not verifiable
  (`qa/qa_feedback_dev.json`); thresholds were chosen on even indices, the odd ones are reported.
- `defacto`: one-sentence news summaries (`summarization/defacto_*.jsonl`); what the person's correction removed or
  replaced is what was wrong; chosen on train, reported on val.

Precision and recall of poor spans in characters of content words, beside the baseline that calls all words poor that no
passage has; of sentences with something poor in them, how many hold something that people marked; and of supported
ones, how many hold nothing. Ends with `name=value` pairs.
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
from studies.reward_model.baselines import absent

from text2grad.feedback.critics.reference import ReferenceCritic
from text2grad.feedback.critics.support import SupportCritic
from text2grad.feedback.critics.words import sentences_of, words_of
from text2grad.feedback.people import Rejected
from text2grad.feedback.text import FUNCTION_WORDS, Text
from text2grad.tasks.defacto import read_defacto
from text2grad.tasks.qa_feedback import read_qa_feedback
from text2grad.types import Critique, Quote

Place = tuple[int, int]


@dataclass(frozen=True)
class Marked:
    """A completion that a person has marked."""

    prompt: str
    completion: str
    passages: list[str]
    poor: list[Place]


def questions(folder: Path, held_out: bool) -> Iterator[Marked]:
    for row in read_qa_feedback(folder / "qa" / "qa_feedback_dev.json", "odd" if held_out else "even"):
        yield Marked(row["question"], row["completion"], row["passages"], _poor(row))


def summaries(folder: Path, held_out: bool) -> Iterator[Marked]:
    for row in read_defacto(folder / "summarization" / f"defacto_{'val' if held_out else 'train'}.jsonl"):
        if not isinstance(row, Rejected):
            yield Marked("", row["completion"], row["passages"], _poor(row))


def _poor(row: dict[str, Any]) -> list[Place]:
    return [(span["start"], span["end"]) for span in row["spans"] if span["verdict"] == "poor"]


@dataclass
class Tally:
    """Characters of content words that were called poor, are poor, and both; and supported sentences."""

    called: int = 0
    are: int = 0
    both: int = 0
    supported: int = 0
    supported_right: int = 0
    sentences_called: int = 0
    sentences_marked: int = 0
    sentences: int = 0
    sentences_right: int = 0
    unscored: int = 0
    items: int = 0

    def add(self, item: Marked, called: list[Place], supported: list[Place]) -> None:
        self.items += 1
        for word in words_of(Text(item.completion)):
            if word.content:
                said, is_poor = (_inside(word.start, places) for places in (called, item.poor))
                length = word.end - word.start
                self.called += length * said
                self.are += length * is_poor
                self.both += length * (said and is_poor)
        for start, end in sentences_of(Text(item.completion)):
            said, marked = (any(a < end and start < b for a, b in places) for places in (called, item.poor))
            self.sentences += 1
            self.sentences_called += said
            self.sentences_marked += marked
            self.sentences_right += said and marked
        self.supported += len(supported)
        self.supported_right += sum(not any(a < end and start < b for a, b in item.poor) for start, end in supported)

    @property
    def precision(self) -> float:
        return self.both / max(1, self.called)

    @property
    def recall(self) -> float:
        return self.both / max(1, self.are)


def _inside(position: int, places: list[Place]) -> bool:
    return any(start <= position < end for start, end in places)


def by_support(critic: SupportCritic, items: Iterator[Marked]) -> Tally:
    tally = Tally()
    for item in items:
        (critique,) = critic([item.prompt], [item.completion], passages=[item.passages])
        tally.unscored += critique is None
        quotes = critique.quotes if critique is not None else ()
        places = {verdict: [_place(q) for q in quotes if q.verdict == verdict] for verdict in ("poor", "good")}
        tally.add(item, places["poor"], places["good"])
    return tally


def by_absence(items: Iterator[Marked]) -> Tally:
    """The baseline: a content word that no passage has is poor."""
    tally = Tally()
    for item in items:
        spans = absent({"completion": item.completion, "passages": item.passages})
        tally.add(item, [(span.start, span.end) for span in spans], [])
    return tally


def _place(quote: Quote) -> Place:
    assert quote.start is not None
    return quote.start, quote.start + len(quote.text)


def agreement(folder: Path) -> list[str]:
    found = []
    print("precision and recall of what is called poor; in brackets, of calling every absent word poor")
    for name, load in (("qa", questions), ("defacto", summaries)):
        for held_out in (False, True):
            ours, base = by_support(SupportCritic(), load(folder, held_out)), by_absence(load(folder, held_out))
            clean = ours.supported_right / max(1, ours.supported)
            marked = ours.sentences_right / max(1, ours.sentences_called)
            print(
                f"{name:<8} {'held out' if held_out else 'tuned on'} {ours.items:>4} items, {ours.unscored} unscored: "
                f"characters {ours.precision:.2f} / {ours.recall:.2f} ({base.precision:.2f} / {base.recall:.2f}) of "
                f"{ours.are:,} marked; sentences with something poor that people marked {ours.sentences_right} of "
                f"{ours.sentences_called} = {marked:.2f}, of {ours.sentences_marked} they marked; "
                f"supported ones that they did not {ours.supported_right} of "
                f"{ours.supported} = {clean:.2f} (of all {1 - ours.sentences_marked / ours.sentences:.2f})"
            )
        found += [
            f"{name}_poor_precision={ours.precision:.2f} {name}_poor_recall={ours.recall:.2f}",
            f"{name}_poor_sentence_precision={marked:.2f} "
            f"{name}_poor_sentence_recall={ours.sentences_right / max(1, ours.sentences_marked):.2f}",
            f"{name}_supported_unmarked={clean:.2f}",
            f"{name}_absent_precision={base.precision:.2f} {name}_absent_recall={base.recall:.2f}",
        ]
    return found


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("TEXT2GRAD_DATA"), help="folder of the marked data")
    folder = parser.parse_args().data
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
    found = [f"growth={grows:.2f} reference_per_second={rates[0]:.0f} support_per_second={rates[1]:.0f}"]
    if folder and all((Path(folder) / sub).is_dir() for sub in ("qa", "summarization")):
        found += agreement(Path(folder))
    else:
        print("agreement with people skipped: name a folder with qa/ and summarization/ by --data or TEXT2GRAD_DATA")
    print(" ".join(found))


if __name__ == "__main__":
    main()

"""Alignment measured on people's words: character F1, hit rate (IoU ≥ 0.5), abstention; beside baselines; and speed.

usage: align.py [--data DIR] [--split val|train] [--embedder FOLDER]

Gold is what people corrected (see `gold`): DeFacto's explanations of wrong news summaries, ILF's feedback on wrong
programs. Without the data, given by --data or TEXT2GRAD_DATA, only speed is measured. The last line repeats the
numbers as name=value pairs.
"""

import argparse
import os
import random
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.gold import Item, defacto, ilf, score

from text2grad import Alignment, Span, align
from text2grad.config import build
from text2grad.feedback.align import AlignSettings, Pair, align_many, project
from text2grad.feedback.align.helpers import Embedder as Embeds
from text2grad.feedback.align.helpers import Helpers
from text2grad.feedback.lexicon import content_stems
from text2grad.feedback.text import stem

Method = Callable[[Item], set[int]]
WORDS = [
    "harbour",
    "lantern",
    "quiet",
    "seven",
    "copper",
    "the",
    "of",
    "river",
    "and",
    "stone",
    "a",
    "letter",
    "morning",
    "to",
    "grey",
    "window",
    "under",
    "song",
    "winter",
    "was",
]


def characters(found: Alignment) -> set[int]:
    return {place for span in found.spans if span.verdict != "good" for place in range(span.start, span.end)}


def aligned(item: Item) -> set[int]:
    return characters(align(item.completion, item.critique, source=item.source))


def without_source(item: Item) -> set[int]:
    return characters(align(item.completion, item.critique))


def with_revision(item: Item) -> set[int]:
    return characters(align(item.completion, item.critique, source=item.source, revision=item.revision))


def quotes_only(item: Item) -> set[int]:
    settings = build(AlignSettings, {"paraphrase": {"use": False}, "code": {"use": False}}, "quotes only")
    return characters(align(item.completion, item.critique, source=item.source, settings=settings))


def everything(item: Item) -> set[int]:
    return set(item.universe)


def overlap_window(item: Item) -> set[int]:
    """The window of words that shares most with the critique, each shared word +1, each other −0.5."""
    wanted = content_stems(item.critique)
    words = [(match.start(), match.end(), stem(match[0])) for match in re.finditer(r"\w+", item.completion)]
    best, chosen, total, first = 0.0, (0, 0), 0.0, 0
    for index, (_, end, word) in enumerate(words):
        if total <= 0:
            total, first = 0.0, index
        total += 1.0 if word in wanted else -0.5
        if total > best:
            best, chosen = total, (words[first][0], end)
    return set(range(*chosen))


def table(title: str, items: Sequence[Item], methods: dict[str, Method], pairs: dict[str, float]) -> None:
    print(f"\n{title}: {len(items)} items")
    print(f"  {'':<24}{'F1':>7}{'hit':>7}{'abstained':>11}")
    for name, method in methods.items():
        scores = np.array([score(item, method(item)) for item in items], dtype=float)
        f1, hit, abstained = scores.mean(axis=0)
        print(f"  {name:<24}{f1:>7.3f}{hit:>7.3f}{abstained:>11.3f}")
        key = f"{title.split()[0].lower()}_{name.replace(' ', '_')}"
        pairs |= {f"{key}_f1": f1, f"{key}_hit": hit, f"{key}_abstained": abstained}


def people(folder: Path, split: str, pairs: dict[str, float]) -> None:
    baselines: dict[str, Method] = {
        "everything": everything,
        "quotes only": quotes_only,
        "overlap window": overlap_window,
    }
    ours: dict[str, Method] = {"aligned": aligned, "without source": without_source, "with revision": with_revision}
    table(f"DeFacto {split}", list(defacto(folder, split)), {**baselines, **ours}, pairs)
    table("ILF", list(ilf(folder)), {**baselines, **ours}, pairs)


def sentence(count: int, draw: random.Random) -> str:
    words = [draw.choice(WORDS) for _ in range(count)]
    return " ".join(words).capitalize() + "."


def speed(pairs: dict[str, float]) -> None:
    """Equal work first: every quote of the timed texts must be found before its time counts. Times are those of the
    processor, so that what else the machine does is not counted; all of this runs on one core."""
    draw = random.Random(0)
    rows = []
    for index in range(300):
        text = " ".join(sentence(20, draw) for _ in range(5))
        critique = (
            f"The part about the {text.split()[7]} and the {text.split()[30]} is not in the source. "
            f'"{text[40:70]}" is wrong. '
            f"The {text.split()[-3]} is lovely, but it does not mention the price of bread."
        )
        rows.append((f"{index} {text}", critique, " ".join(sentence(20, draw) for _ in range(20))))
    align(*rows[0][:2], source=rows[0][2])
    start = time.process_time()
    for text, critique, source in rows:
        found = align(text, critique, source=source)
        assert any(span.provenance == "exact" for span in found.spans)
    rate = len(rows) / (time.process_time() - start)
    print(f"\n100-word completions, 400-word sources, one core: {rate:,.0f} pairs/s")

    long = " ".join(f"{sentence(19, draw)[:-1]} {index}." for index in range(1000))
    starts = [long.index(" ", draw.randrange(len(long) - 200)) + 1 for _ in range(200)]
    quotes = " ".join(f'Then "{long[start : long.rindex(" ", start, start + 60)]}" is wrong.' for start in starts)
    start = time.process_time()
    found = align(long, quotes)
    seconds = time.process_time() - start
    assert sum(span.provenance == "exact" for span in found.spans) == 200
    print(f"20,000-word completion, 200 quotes: {seconds:.2f} s")

    count = 2_000_000
    ends = np.arange(1, count + 1) * 4
    offsets = np.stack([ends - 4, ends], axis=1)
    spans = [Span(k * 4000, k * 4000 + 100, "poor") for k in range(2000)]
    start = time.process_time()
    rewards = project(spans, offsets)
    projected = count / (time.process_time() - start)
    assert int((rewards < 0).sum()) == 2000 * 25
    print(f"projection: {projected / 1e6:.1f}M tokens/s")
    pairs |= {"pairs_per_s": rate, "long_s": seconds, "projection_tokens_per_s": projected}


def speed_with(folder: str, pairs: dict[str, float]) -> None:
    """Every critique shares no word with its completion, so that every pair needs the embedder."""
    from text2grad.models.embed import Embedder

    for dtype in ("float32", "bfloat16"):
        _speed_with(Embedder(folder, dtype=dtype), dtype, pairs)


def _speed_with(embed: Embeds, dtype: str, pairs: dict[str, float]) -> None:
    draw = random.Random(1)
    asked = "Those expensive vehicles malfunctioned badly near gate"
    rows = [Pair(" ".join(sentence(20, draw) for _ in range(5)), f"{asked} {index}.") for index in range(256)]
    asking = sum(_asks(row) for row in rows)
    assert asking == len(rows), "every pair is to ask the embedder"
    list(align_many(rows[:8], embed=embed))
    start, busy = time.perf_counter(), time.process_time()
    found = list(align_many(rows, embed=embed))
    wall, busy = time.perf_counter() - start, time.process_time() - busy
    assert len(found) == len(rows)
    print(
        f"with the embedder ({dtype}), {asking} of {len(rows)} pairs asking it: {len(rows) / wall:,.0f} pairs/s, "
        f"{len(rows) / busy:,.0f} per CPU second"
    )
    pairs |= {f"embedded_{dtype}_pairs_per_s": len(rows) / wall, f"embedded_{dtype}_pairs_per_cpu_s": len(rows) / busy}


def _asks(pair: Pair) -> bool:
    """Whether aligning the pair needs the embedder."""
    asked: list[int] = []

    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        asked.append(len(texts))
        return np.zeros((len(texts), 1), dtype=np.float32)

    pair.align(AlignSettings(), Helpers(embed=embed))
    return bool(asked)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", default=os.environ.get("TEXT2GRAD_DATA"), help="folder of data; default: $TEXT2GRAD_DATA"
    )
    parser.add_argument("--split", default="val", choices=["val", "train"], help="of DeFacto; develop on train")
    parser.add_argument("--embedder", help="folder of an embedding model, to time alignment with it")
    args = parser.parse_args()
    pairs: dict[str, float] = {}
    if args.data:
        people(Path(args.data), args.split, pairs)
    else:
        print("no data: name its folder with --data or TEXT2GRAD_DATA to measure on people's words")
    speed(pairs)
    if args.embedder:
        speed_with(args.embedder, pairs)
    print("\n" + " ".join(f"{name}={value:.4g}" for name, value in pairs.items()))


if __name__ == "__main__":
    main()

"""The pairs that the reader learns from and is measured on, as one file that travels.

usage: python -m studies.align.data OUT.jsonl.gz [--data DIR] [--most N]

Each line: kind, part, use (`train`, `direct`, `asked`), name, completion, critique, source (each of its words once: the
reader knows no more of it), spans. `direct`: the critique as it is. `asked`: what `align` asks a reader, which is the
clauses that quotes, revisions and named lines leave open. `train` adds more perturbed pairs, DeFacto's instructions,
completions among others, and critiques of other texts, which point nowhere.
"""

import argparse
import gzip
import json
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gold import Item, clauses, defacto, facts, load, programs, sentences
from studies.align.rung import reading

from text2grad import align
from text2grad.feedback.text import WORD

Record = dict[str, Any]
MORE = {"facts": facts, "clauses": clauses, "sentences": sentences, "programs": programs}


def asked_of(item: Item) -> list[str]:
    """What alignment asks a reader about this item."""
    asked: list[str] = []

    def read(_: str, critique: str) -> list[tuple[int, int, float]]:
        asked.append(critique)
        return []

    with reading(read):
        align(item.completion, item.critique, source=item.source)
    return asked


def record(item: Item, part: str, use: str, critique: str, name: str | None = None) -> Record:
    words = " ".join(dict.fromkeys(WORD.findall(item.source or "")))
    return {
        "kind": item.kind,
        "part": part,
        "use": use,
        "name": name or item.name,
        "completion": item.completion,
        "critique": critique,
        "source": words or None,
        "spans": [list(span) for span in item.spans],
    }


def to_train(item: Item) -> Record:
    return record(item, "develop", "train", " ".join(asked_of(item)) or item.critique)


def among_others(items: Sequence[Item], draw: random.Random) -> Iterator[Record]:
    """Each completion among one to four others of its kind: a longer text."""
    for item in items:
        others = draw.sample(items, min(len(items), draw.randint(1, 4)))
        cut = draw.randint(0, len(others))
        before = "".join(f"{other.completion.strip()} " for other in others[:cut])
        after = "".join(f" {other.completion.strip()}" for other in others[cut:])
        made = to_train(item)
        source = " ".join(dict.fromkeys(WORD.findall(" ".join(each.source or "" for each in (item, *others)))))
        spans = [[start + len(before), end + len(before)] for start, end in made["spans"]]
        yield made | {"completion": before + item.completion + after, "source": source or None, "spans": spans}


def nowhere(items: Sequence[Item], draw: random.Random, count: int) -> Iterator[Record]:
    """Critiques of other texts: they point at nothing here."""
    for item in draw.sample(items, min(count, len(items))):
        other = draw.choice(items)
        if other.completion != item.completion:
            yield record(item, "develop", "train", other.critique) | {"spans": []}


def records(folder: Path, most: int) -> Iterator[Record]:
    draw = random.Random(0)
    for part in ("develop", "held out"):
        for items in load(folder, part).values():
            for item in items:
                yield record(item, part, "direct", item.critique)
                for index, words in enumerate(asked_of(item)):
                    yield record(item, part, "asked", words, f"{item.name}#{index}")
    kinds = load(folder, "develop") | {kind: list(made(folder, "develop", most)) for kind, made in MORE.items()}
    told = list(defacto(folder, "train", "instruction"))
    for items in kinds.values():
        yield from map(to_train, items)
        yield from nowhere(items, draw, len(items) // 20)
    yield from map(to_train, told)
    for items in (kinds["defacto"], told, kinds["qa"]):
        yield from among_others(items, draw)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", default=os.environ.get("TEXT2GRAD_DATA"), help="folder of data")
    parser.add_argument("--most", type=int, default=1200, help="pairs of each perturbed kind to train on")
    args = parser.parse_args()
    if not args.data:
        parser.error("name the folder of data with --data or TEXT2GRAD_DATA")
    with gzip.open(args.out, "wt", encoding="utf-8") as file:
        for row in records(Path(args.data), args.most):
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

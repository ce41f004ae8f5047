"""How often the critic `code` points at a line that a person then changed, against pointing at random.

Data: ILF's feedback on wrong MBPP programs (`code/ilf_feedback_dev.jsonl` below `--data DIR` or `$TEXT2GRAD_DATA`): the
wrong program, a person's fix, the tests. A line is *changed* if a line diff replaces or deletes it, or inserts beside
it; white space at line ends does not count. Many fixes rewrite the whole function, where every pointer hits, so fixes
that change at most half of the code lines are counted apart. Equal work: both pointers see the same programs, and the
random one points at as many code lines of the function. Ends with `programs=… with_span=… hit=… random_hit=…
small_fixes=… small_hit=… small_random_hit=…`; skips where the data is absent.
"""

import argparse
import difflib
import json
import os
import random
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from text2grad.feedback.critics.code import CodeCritic
from text2grad.types import Critique


def changed_lines(wrong: str, right: str) -> set[int]:
    """Lines of the wrong program, counted from 1."""
    before, after = ([line.rstrip() for line in text.splitlines()] for text in (wrong, right))
    found: set[int] = set()
    for tag, start, end, _, _ in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "insert":
            found |= {start, start + 1}
        elif tag != "equal":
            found |= set(range(start + 1, end + 1))
    return found


def code_lines(text: str, body_from: int) -> list[int]:
    """Lines of the function that hold code: what a random pointer chooses from."""
    lines = text.splitlines()
    return [n for n, line in enumerate(lines, 1) if n > body_from and line.strip() and not line.strip().startswith("#")]


def kind_of(critique: Critique) -> str:
    """Which evidence the first quote rests on."""
    said = critique.quotes[0].comment
    for kind, words in {
        "syntax": "cannot read",
        "undefined name": "is not defined",
        "traceback": " raises ",
        "timeout": "does not end",
    }.items():
        if words in said:
            return kind
    return "spectrum"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("TEXT2GRAD_DATA"), help="the folder with code/…")
    folder = parser.parse_args().data
    path = Path(folder or "") / "code" / "ilf_feedback_dev.jsonl"
    if folder is None or not path.is_file():
        print(f"skipped: needs ILF's data, {path.name}; name its folder with --data or TEXT2GRAD_DATA")
        return
    rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    names = [re.findall(r"^def +(\w+)", row["prompt"], re.MULTILINE)[-1] for row in rows]
    wrong = [row["original_model_completion"] for row in rows]
    critiques = CodeCritic()([""] * len(rows), wrong, tests=[row["test"] for row in rows], entry_point=names)
    fixed = [row["prompt"] + row["completion"] for row in rows]
    right = CodeCritic()([""] * len(rows), fixed, tests=[row["test"] for row in rows], entry_point=names)
    counts = Counter("unscored" if c is None else "passes" if c.score == 1.0 else "fails" for c in critiques)
    print(
        f"{len(rows)} wrong programs: {dict(counts)}; human fixes that pass: {sum(c.score == 1.0 for c in right if c)}"
    )

    failing = [(row, text, c) for row, text, c in zip(rows, wrong, critiques, strict=True) if c and c.score != 1.0]
    found = [_judged(row, text, critique) for row, text, critique in failing if critique.quotes]
    for kind in sorted({judged.kind for judged in found}):
        same = [judged for judged in found if judged.kind == kind]
        print(f"{kind:<16} {len(same):>3} programs with a span, {sum(j.hit for j in same):>3} touch a changed line")
    small = [judged for judged in found if judged.share <= 0.5]
    print(
        f"programs={len(failing)} with_span={len(found) / len(failing):.2f} hit={_mean(j.hit for j in found):.2f} "
        f"random_hit={_mean(j.chance for j in found):.2f} small_fixes={len(small)} "
        f"small_hit={_mean(j.hit for j in small):.2f} small_random_hit={_mean(j.chance for j in small):.2f}"
    )


class Judged(NamedTuple):
    """One program with a span."""

    kind: str
    hit: bool
    chance: float
    """How often pointing at random hits."""
    share: float
    """Of the code lines, those that were changed."""


def _judged(row: dict[str, Any], text: str, critique: Critique) -> Judged:
    changed = changed_lines(text, row["prompt"] + row["completion"])
    pointed = [_lines(text, quote.start or 0, quote.text) for quote in critique.quotes]
    choices = code_lines(text, row["prompt"].count("\n"))
    draw = random.Random(0)
    count = min(len(pointed), len(choices))
    trials = [bool(set(draw.sample(choices, count)) & changed) for _ in range(500)]
    share = len(changed & set(choices)) / max(1, len(choices))
    return Judged(kind_of(critique), any(lines & changed for lines in pointed), _mean(trials), share)


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / max(1, len(numbers))


def _lines(text: str, start: int, quote: str) -> set[int]:
    first = text.count("\n", 0, start) + 1
    return set(range(first, first + quote.count("\n") + 1))


if __name__ == "__main__":
    main()

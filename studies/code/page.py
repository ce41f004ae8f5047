"""docs/results/code.md from a finished comparison: tables, whether the bar was met, and one program as a heat-map.

    python studies/code/page.py runs/code --data mbpp.jsonl --out docs/results

Enters: the folder of `text2grad compare` (comparison.json, ARM/seed-N.done) and MBPP's file, for the tests of the
program that is shown. Leaves: code.md and code.svg. Every number is read or computed from these files; what is missing
is said to be missing.
"""

import argparse
import json
import textwrap
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from text2grad.feedback.critics.code import CodeCritic
from text2grad.report.differences import Interval, over_seeds_and_examples
from text2grad.tasks.task import open_task
from text2grad.types import Critique, Example

COLUMNS = {
    "pass_1": "pass@1",
    "pass_8": "pass@8",
    "pass_1_humaneval": "HumanEval pass@1",
    "parses": "parses",
    "no_static_errors": "no static errors",
    "hard_coded": "shown test tabled",
    "length": "tokens",
}
OURS, RIVAL, BASE, WANTED = "text2grad", "scalar", "base", 0.03
SIZE, LINE, WIDE = 13, 19, 96
"""Of the picture: font and line height in pixels, characters of a line."""


class Shown(NamedTuple):
    """A task's programs before and after training, and what the critic says of both."""

    example: Example
    texts: tuple[str, str]
    critiques: tuple[Critique | None, Critique | None]


def runs_of(folder: Path, arm: str) -> dict[int, dict[str, list[Any]]]:
    """Seed → what is known of each held-out completion at the end."""
    found = {}
    for mark in sorted((folder / arm).glob("seed-*.done")):
        kept = json.loads(mark.read_bytes().partition(b"\n")[2])
        found[int(mark.stem.removeprefix("seed-"))] = kept["each"]
    return found


def apart(folder: Path, one: str, other: str, key: str = "pass_1") -> Interval | None:
    """one − other by seed and example; a single run of `other` stands for every seed."""
    ours, theirs = runs_of(folder, one), runs_of(folder, other)
    pairs = [(ours[seed], theirs.get(seed) or next(iter(theirs.values()))) for seed in ours if theirs]
    tables = [_differences(a, b, key) for a, b in pairs]
    shared = [name for name in tables[0] if all(name in table for table in tables)] if tables else []
    return over_seeds_and_examples([[table[name] for name in shared] for table in tables]) if shared else None


def _differences(ours: dict[str, list[Any]], theirs: dict[str, list[Any]], key: str) -> dict[str, float]:
    other = dict(zip(theirs["id"], theirs.get(key, ()), strict=False))
    values = zip(ours["id"], ours.get(key, ()), strict=False)
    return {name: value - other[name] for name, value in values if None not in (value, other.get(name))}


def verdict(against_base: Interval | None, against_rival: Interval | None, seeds: int) -> str:
    """Whether the bar was met, in words.

    >>> verdict(Interval(0.05, 0.01, 0.09), Interval(0.01, -0.02, 0.04), 3).partition(" (")[0]
    '**The bar is met.** `text2grad` ends +5.0 points above `base`'
    """
    if against_base is None or against_rival is None:
        return "**Not decided:** the runs of `text2grad`, `base` and `scalar` are not all there."
    met = against_base.mean >= WANTED and against_base.low > 0 and against_rival.mean >= 0
    few = "" if seeds >= 3 else f" Too few seeds for a claim: {seeds}, where three are wanted."
    return textwrap.fill(
        f"**The bar is {'' if met else 'not '}met.** `{OURS}` ends {_points(against_base)} above `{BASE}` "
        f"(95 % interval {_ends(against_base)}) and {_points(against_rival)} from `{RIVAL}` ({_ends(against_rival)}). "
        f"Wanted: at least {100 * WANTED:.0f} points above `{BASE}` with an interval above zero, and not below "
        f"`{RIVAL}`.{few}",
        120,
    )


def _points(found: Interval) -> str:
    return f"{100 * found.mean:+.1f} points"


def _ends(found: Interval) -> str:
    if abs(found.low) == float("inf"):
        return "one seed, no interval"
    return f"{100 * found.low:+.1f} to {100 * found.high:+.1f}"


def tables(comparison: dict[str, Any]) -> Iterator[str]:
    """Markdown lines: final metrics, differences of the primary metric, cost."""
    arms = comparison["arms"]
    keys = [key for key in COLUMNS if any(key in arm["final"] for arm in arms.values())]
    yield f"| arm | seeds | {' | '.join(COLUMNS[key] for key in keys)} | difference to `{comparison['baseline']}` |"
    yield "|---" * (len(keys) + 3) + "|"
    for name, arm in arms.items():
        values = [_cell(arm["final"].get(key), key) for key in keys]
        found = arm["difference"].get(comparison["primary"])
        moved = "–" if found is None else f"{found['mean']:+.3f}"
        if found is not None and found["low"] is not None:
            moved += f" ({found['low']:+.3f} to {found['high']:+.3f})"
        yield f"| `{name}` | {len(arm['seeds'])} | {' | '.join(values)} | {moved} |"
    yield ""
    yield "| arm | completions | sampled tokens | critic calls | seconds |"
    yield "|---|---|---|---|---|"
    for name, arm in arms.items():
        if arm["cost"]:
            numbers = (f"{arm['cost'][key]:,.0f}" for key in ("completions", "tokens", "critic_calls", "seconds"))
            yield f"| `{name}` | {' | '.join(numbers)} |"


def _cell(final: dict[str, Any] | None, key: str) -> str:
    return "–" if final is None else f"{final['mean']:.0f}" if key == "length" else f"{final['mean']:.3f}"


def chosen(folder: Path, examples: Sequence[Example]) -> Shown | None:
    """The first task, in the file's order, whose program fails with a quoted line before and passes after training;
    where there is none, the first that fails with a quoted line."""
    before, after = (next(iter(runs_of(folder, arm).values()), None) for arm in (BASE, OURS))
    if not before or not after:
        return None
    texts = [dict(zip(each["id"], each["text"], strict=True)) for each in (before, after)]
    scores = dict(zip(after["id"], after["score"], strict=True))
    known = [example for example in examples if all(example.id in each for each in texts)]
    critic, first = CodeCritic(), None
    for example in sorted(known, key=lambda example: scores[example.id] != 1.0):
        pair = texts[0][example.id], texts[1][example.id]
        columns = {name: [value, value] for name, value in example.columns.items()}
        said = critic([example.prompt] * 2, list(pair), **columns)
        found = Shown(example, pair, (said[0], said[1]))
        if said[0] is not None and said[0].score != 1.0:
            first = first or found
            if said[0].quotes:
                return found
    return first


def picture(shown: Shown) -> str:
    """SVG: both programs, the quoted words red, the sentence below."""
    parts, y = [], 10
    for title, text, critique in zip(("before", "after"), shown.texts, shown.critiques, strict=True):
        score = "not scored" if critique is None or critique.score is None else f"score {critique.score:.2f}"
        parts.append(_text(10, y + LINE, f"{title} training: {score}", "font-weight='bold'"))
        y += LINE + 8
        for number, line in enumerate(text.splitlines()):
            start = sum(len(each) for each in text.splitlines(keepends=True)[:number])
            parts += [_box(y, place, severity) for place, severity in _marked(critique, start, line)]
            parts.append(_text(14, y + LINE - 5, line[:WIDE]))
            y += LINE
        said = "" if critique is None else critique.feedback
        for line in textwrap.wrap(said, WIDE):
            y += LINE
            parts.append(_text(14, y, line, "fill='#8b1a1a' font-style='italic'"))
        y += 2 * LINE
    size = f"width='{WIDE * 8 + 28}' height='{y}'"
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' {size}>\n<rect {size} fill='white'/>\n"
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _marked(critique: Critique | None, start: int, line: str) -> Iterator[tuple[tuple[int, int], float]]:
    """((first, last) character within the line, severity) of what is quoted."""
    for quote in critique.quotes if critique is not None else ():
        low, high = (quote.start or 0) - start, (quote.start or 0) + len(quote.text) - start
        if low < len(line) and high > 0:
            yield (max(low, 0), min(high, len(line))), quote.severity if quote.severity is not None else 1.0


def _box(y: float, place: tuple[int, int], severity: float) -> str:
    shade = f"fill='#e53935' fill-opacity='{0.2 + 0.4 * severity:.2f}'"
    x, width = 14 + place[0] * 7.8, (place[1] - place[0]) * 7.8
    return f"<rect x='{x:.1f}' y='{y}' width='{width:.1f}' height='{LINE}' {shade}/>"


def _text(x: float, y: float, text: str, style: str = "") -> str:
    font = f"font-family='monospace' font-size='{SIZE}' xml:space='preserve'"
    return f"<text x='{x}' y='{y}' {font} {style}>{escape(text)}</text>"


def page(folder: Path, examples: Sequence[Example]) -> tuple[str, str | None]:
    """(code.md, code.svg)."""
    comparison = json.loads((folder / "comparison.json").read_bytes())
    seeds = len(runs_of(folder, OURS))
    lines = [
        "# Code generation on MBPP",
        "",
        "Generated by `studies/code/page.py`; how it is run: [studies/code](../../studies/code/README.md).",
        "",
        verdict(apart(folder, OURS, BASE), apart(folder, OURS, RIVAL), seeds),
        "",
        *tables(comparison),
        "",
    ]
    if comparison["failed"]:
        lines += ["Failed: " + "; ".join(f"{name}: {why}" for name, why in comparison["failed"].items()), ""]
    shown = chosen(folder, examples)
    if shown is None:
        return "\n".join([*lines, "No program of `base` failed, so none is shown.", ""]), None
    passes = shown.critiques[1] is not None and shown.critiques[1].score == 1.0
    how = "the first one that fails before training and passes after it" if passes else "none that failed passes now"
    lines += [
        f"## {shown.example.id}",
        "",
        f"One task of those held out ({how}).",
        "",
        "![the program, before and after](code.svg)",
    ]
    return "\n".join([*lines, ""]), picture(shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the comparison")
    parser.add_argument("--data", required=True, help="MBPP's file")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    args = parser.parse_args()
    text, drawn = page(args.folder, open_task("mbpp", data=args.data).examples("test"))
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "code.md").write_text(text, encoding="utf-8")
    if drawn is not None:
        (args.out / "code.svg").write_text(drawn, encoding="utf-8")
    print(f"wrote {args.out}/code.md")


if __name__ == "__main__":
    main()

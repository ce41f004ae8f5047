"""docs/results/code.md from a finished comparison: tables, whether the bar was met, and one program as a heat-map.

    python -m studies.code.page runs/code --data mbpp.jsonl --out docs/results

Enters: the folder of `text2grad compare` (comparison.json, ARM/seed-N.done) and MBPP's file, for the tests of the
program that is shown. Leaves: code.md and code.svg. Every number is read or computed from these files; what is missing
is said to be missing.
"""

import argparse
import json
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from studies.pages import Mark, Sheet, apart, costs, runs_of

from text2grad.feedback.critics.code import CodeCritic
from text2grad.report.differences import Interval
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
RED = "#e53935"


class Shown(NamedTuple):
    """A task's programs before and after training, and what the critic says of both."""

    example: Example
    texts: tuple[str, str]
    critiques: tuple[Critique | None, Critique | None]


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
    yield from costs(arms)


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
    sheet = Sheet()
    for title, text, critique in zip(("before", "after"), shown.texts, shown.critiques, strict=True):
        score = "not scored" if critique is None or critique.score is None else f"score {critique.score:.2f}"
        sheet.heading(f"{title} training: {score}")
        sheet.text(text, list(_marked(critique)))
        sheet.remark("" if critique is None else critique.feedback)
        sheet.gap()
    return sheet.svg()


def _marked(critique: Critique | None) -> Iterator[Mark]:
    """What is quoted, the redder the worse."""
    for quote in critique.quotes if critique is not None else ():
        start = quote.start or 0
        yield Mark(start, start + len(quote.text), RED, quote.severity if quote.severity is not None else 1.0)


def page(folder: Path, examples: Sequence[Example]) -> tuple[str, str | None]:
    """(code.md, code.svg)."""
    comparison = json.loads((folder / "comparison.json").read_bytes())
    seeds = len(runs_of(folder, OURS))
    lines = [
        "# Code generation on MBPP",
        "",
        "Generated by `studies/code/page.py`; how it is run: [studies/code](../../studies/code/README.md).",
        "",
        verdict(apart(folder, OURS, BASE, "pass_1"), apart(folder, OURS, RIVAL, "pass_1"), seeds),
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

"""How often the critic `code` points at the line that is wrong, against pointing at random.

**Seeded bugs** (`code/mbpp.jsonl` below `--data DIR` or `$TEXT2GRAD_DATA`): one-line mutants of MBPP solutions that a
test kills, up to four of a program, where failing tests run at least 6 lines. Printed is how often the mutated
line is among the first three, and the first, ties counted as expected value: at random, by plain Ochiai, with evidence
but without trials, with trials of other kinds than the bug's (so that none undoes it), and as the critic does it.
`--split train` (tasks 601–974) is for developing; the numbers of `test` (11–510) are reported.

**ILF's feedback on wrong MBPP programs** (`code/ilf_feedback_dev.jsonl`): the wrong program, a person's fix, the tests.
A line is *changed* if a line diff replaces or deletes it, or inserts beside it; white space at line ends does not
count. Many fixes rewrite the whole function, where every pointer hits, so fixes that change at most half of the code
lines are counted apart. Equal work: both pointers see the same programs, and the random one points at as many code
lines of the function. `covered`: the share of changed lines that a poor span touches; `others`: lines touched per
program that were not changed.

Both measure and never train. Ends with `mutants=… top3=… ochiai_top3=… random_top3=… programs=… hit=… random_hit=…
small_fixes=… small_hit=… small_random_hit=…`; skips what has no data.
"""

import argparse
import difflib
import json
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.gold.seeded import drawn

from text2grad.feedback.critics.code import CodeCritic
from text2grad.feedback.critics.faults import Trial, ranked, trials, weighed
from text2grad.feedback.settings import CodeCriticSettings
from text2grad.sandbox import Job, Limits, Sandbox, TestResult
from text2grad.types import Critique

SPLITS = {"train": range(601, 975), "test": range(11, 511)}
FEWEST, MOST = 6, 4
"""Lines that failing tests run, mutants of a program."""


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
        "trial": "every test passes",
    }.items():
        if words in said:
            return kind
    return "spectrum"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("TEXT2GRAD_DATA"), help="the folder with code/…")
    parser.add_argument("--split", choices=SPLITS, default="test", help="of MBPP, for seeded bugs")
    args = parser.parse_args()
    parts = []
    for work, name in ((partial(seeded_bugs, split=args.split), "mbpp.jsonl"), (human_fixes, "ilf_feedback_dev.jsonl")):
        path = Path(args.data or "") / "code" / name
        if args.data is None or not path.is_file():
            print(f"skipped: needs {name}; name the folder of its folder `code` with --data or TEXT2GRAD_DATA")
        else:
            parts.append(work([json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]))
    print(" ".join(parts))


# --------------------------------------------------------------------------------------------------------- seeded bugs


class Seeded(NamedTuple):
    job: Job
    mutant: Trial
    results: tuple[TestResult, ...]


def seeds(rows: Iterable[dict[str, Any]], sandbox: Sandbox) -> list[Seeded]:
    """Mutants that a test kills."""
    jobs = [Job(row["code"].replace("\r\n", "\n"), row["test_list"], row["test_setup_code"]) for row in rows]
    right = [job for job, report in zip(jobs, sandbox.run_many(jobs), strict=True) if report.score == 1.0]
    made = [
        (job, mutant) for job in right for mutant in islice(drawn(job.program, random.Random(job.program)), 3 * MOST)
    ]
    reports = sandbox.run_many([replace(job, program=mutant.source) for job, mutant in made])
    found, each = [], Counter[str]()
    for (job, mutant), report in zip(made, reports, strict=True):
        ran = {line for result in report.results if not result.passed for line in result.lines}
        if len(ran) >= FEWEST and mutant.line in ran and each[job.program] < MOST:
            each[job.program] += 1
            found.append(Seeded(replace(job, program=mutant.source), mutant, report.results))
    return found


def chance(scores: Mapping[int, float], line: int, first: int) -> float:
    """That the line is among the `first` ones, if ties are broken at random.

    >>> chance({1: 0.5, 2: 0.5, 3: 0.7}, 1, 2)
    0.5
    """
    above = sum(score > scores[line] + 1e-9 for score in scores.values())
    tied = sum(abs(score - scores[line]) <= 1e-9 for score in scores.values())
    return 0.0 if above >= first else min(1.0, (first - above) / tied)


def rankings(bugs: Sequence[Seeded], sandbox: Sandbox, most: int) -> dict[str, list[dict[int, float]]]:
    """Way → for each bug, line → score."""
    alone = [ranked(bug.job.program, bug.results) for bug in bugs]
    tried = [trials(bug.job.program, [one.line for one in found], most) for bug, found in zip(bugs, alone, strict=True)]
    jobs = [(bug.job, [trial.source for trial in made]) for bug, made in zip(bugs, tried, strict=True)]
    with ThreadPoolExecutor(sandbox.workers) as pool:
        names = pool.map(lambda each: sandbox.try_variants(*each), jobs)
        passed = [[*zip(*pair, strict=True)] for pair in zip(tried, names, strict=True)]
    ours, others = [], []
    for bug, made in zip(bugs, passed, strict=True):
        other = [(trial, names) for trial, names in made if trial.kind != bug.mutant.kind]
        ours.append(ranked(bug.job.program, bug.results, weighed(made, bug.results)))
        others.append(ranked(bug.job.program, bug.results, weighed(other, bug.results)))
    whole = {"without trials": alone, "trials of other kinds": others, "as the critic does": ours}
    return {
        "at random": [{one.line: 0.0 for one in found} for found in alone],
        "plain Ochiai": [{one.line: one.suspicion for one in found} for found in alone],
        **{
            way: [{one.line: one.suspicion + one.evidence for one in found} for found in each]
            for way, each in whole.items()
        },
    }


def seeded_bugs(rows: list[dict[str, Any]], split: str) -> str:
    sandbox = Sandbox(Limits(seconds=1.0, wall=5.0))
    bugs = seeds([row for row in rows if row["task_id"] in SPLITS[split]], sandbox)
    start = time.perf_counter()
    ways = rankings(bugs, sandbox, CodeCriticSettings().trials)
    kinds = [kind for kind, _ in Counter(bug.mutant.kind for bug in bugs).most_common()]
    print(f"{len(bugs)} mutants of MBPP {split} ({(time.perf_counter() - start) / len(bugs):.2f} s of trials each)")
    print(f"{'':<24}top 3  top 1  " + "  ".join(kinds))
    top = {}
    for way, scores in ways.items():
        third, first = ([chance(s, bug.mutant.line, n) for s, bug in zip(scores, bugs, strict=True)] for n in (3, 1))
        by_kind = [_mean(v for v, bug in zip(third, bugs, strict=True) if bug.mutant.kind == kind) for kind in kinds]
        columns = "  ".join(f"{value:{len(kind)}.2f}" for value, kind in zip(by_kind, kinds, strict=True))
        print(f"{way:<24}{_mean(third):5.2f}  {_mean(first):5.2f}  {columns}")
        top[way] = _mean(third)
    ours, plain, chances = top["as the critic does"], top["plain Ochiai"], top["at random"]
    return f"mutants={len(bugs)} top3={ours:.2f} ochiai_top3={plain:.2f} random_top3={chances:.2f}"


# ---------------------------------------------------------------------------------------------------------- human fixes


def human_fixes(rows: list[dict[str, Any]]) -> str:
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
    for name, some in (("all fixes", found), ("small fixes", small)):
        print(f"{name}: covered={_mean(j.covered for j in some):.2f} others={_mean(j.others for j in some):.2f}")
    return (
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
    covered: float
    """Of the changed lines, those that a span touches."""
    others: int
    """Lines that a span touches and nobody changed."""


def _judged(row: dict[str, Any], text: str, critique: Critique) -> Judged:
    changed = changed_lines(text, row["prompt"] + row["completion"])
    pointed = [_lines(text, quote.start or 0, quote.text) for quote in critique.quotes]
    choices = code_lines(text, row["prompt"].count("\n"))
    draw = random.Random(0)
    count = min(len(pointed), len(choices))
    draws = [bool(set(draw.sample(choices, count)) & changed) for _ in range(500)]
    share = len(changed & set(choices)) / max(1, len(choices))
    touched = set[int]().union(*pointed)
    covered = len(touched & changed) / max(1, len(changed))
    return Judged(kind_of(critique), bool(touched & changed), _mean(draws), share, covered, len(touched - changed))


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / max(1, len(numbers))


def _lines(text: str, start: int, quote: str) -> set[int]:
    first = text.count("\n", 0, start) + 1
    return set(range(first, first + quote.count("\n") + 1))


if __name__ == "__main__":
    main()

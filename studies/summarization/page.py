"""docs/results/summarization.md from a comparison of the two main arms: whether the bar was met, tables, curves, both
arms at equal copying, what the critic's remarks are worth, and three summaries before and after training.

    python -m studies.summarization.page runs/main     # writes main.json anew from the folder, then the page
    python -m studies.summarization.page               # the page from main.json

Enters: the folder of `text2grad compare` (comparison.json, results.json, ARM/seed-N.done, and of runs that are still
there run.json, metrics.jsonl and rollouts.jsonl). Leaves: main.json with all that the page needs, summarization.md and
its pictures. notes.md goes into the page if its first line, `<!-- rows: DIGEST -->`, names the rows of main.json.
"""

import hashlib
import json
import math
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from studies.pages import Mark, Sheet, apart, costs, curves, loaded

from text2grad.report.differences import over_seeds, student

HERE = Path(__file__).parent
OUT = HERE.parents[1] / "docs" / "results"
OURS, RIVAL = "text2grad", "scalar"
COLUMNS = {
    "rouge_l": "ROUGE-L",
    "rouge_1": "ROUGE-1",
    "rouge_2": "ROUGE-2",
    "bleu": "BLEU",
    "unsupported_share": "unsupported share",
    "score": "critic's score",
    "copied": "copied",
    "repetition": "repetition",
    "length": "tokens",
}
BAR = {"rouge_l": 1, "unsupported_share": -1}
"""Metric of the bar → its better direction."""
LENGTH = 0.2
"""The share by which the length may differ from the supervised start's."""
COLOUR = {"good": "#43a047", "poor": "#e53935"}
PICTURES = {
    "rouge_l": "ROUGE-L on the held-out abstracts",
    "score": "Score of the critic on the held-out abstracts",
    "copied": "Share of words in stretches of six or more that the abstract has, too",
    "length": "Tokens of a summary",
}
REMARKS = {
    "in the reference": r"is in the reference",
    "in the reference and in the source": r"is supported",
    "not in the reference": r"is not in the reference",
    "neither in the reference nor in the source": r"is in neither the reference nor the source",
    "not in the source": r"is not in the (words of the )?source",
    "copied from the source": r"is copied from the source",
    "a list of words": r"is a list of words",
    "said before": r"repeats what was said before",
}
"""What a remark of the critic says of a span → how to find it."""
TARGETS = {"score": "score", "rouge_l": "ROUGE-L"}
SHARED = ("copied", "length", "rouge_l")
"""What the table at equal copying shows of each evaluation."""
Numbers = NDArray[np.float64]


def collected(folder: Path) -> dict[str, Any]:
    """What the page needs, from a comparison's folder."""
    comparison, rows = (
        loaded(folder / f"{name}.json", "the page wants the folder of a comparison by `text2grad compare`")
        for name in ("comparison", "results")
    )
    for arm in (RIVAL, OURS):
        if not comparison.get("arms", {}).get(arm, {}).get("seeds"):
            raise SystemExit(f"{folder}: has no finished run of `{arm}`; the page compares `{OURS}` with `{RIVAL}`")
        if not any(row["arm"] == arm and row["update"] == 0 for row in rows):
            raise SystemExit(f"{folder}: results.json has no evaluation of `{arm}` at update 0, the supervised start")
    between = {
        key: each
        for key, each in comparison["arms"][OURS].get("difference", {}).items()
        if key in COLUMNS and each["low"] is not None
    }
    for key in COLUMNS:
        if (found := apart(folder, OURS, RIVAL, key)) is not None and math.isfinite(found.low):
            between[key] = found._asdict()
    run_on = machine(folder)
    return {
        **({"machine": run_on} if run_on else {}),
        "comparison": comparison,
        "rows": [row | {"metrics": _some(row["metrics"], COLUMNS)} for row in rows],
        "between": {key: between[key] for key in COLUMNS if key in between},
        "kl": {arm: kl(folder / arm) for arm in (RIVAL, OURS)},
        "shown": shown(folder / OURS),
        "remarks": remarks(folder),
    }


def machine(folder: Path) -> str:
    """What the runs say they ran on, by run.json; empty where no run folder is left."""
    found, days = [], []
    for file in sorted(file for arm in (RIVAL, OURS) for file in (folder / arm).glob("seed-*/run.json")):
        facts = loaded(file, "delete it to leave the machine out of the page")
        versions = [f"{key} {facts[key]}" for key in ("torch", "transformers") if key in facts]
        found.append(", ".join([str(facts.get("device", "an unknown device")), *versions]))
        days += [str(facts["started"])[:10]] if "started" in facts else []
    day = f"; started {min(days)}" if days else ""
    return f"{' and '.join(dict.fromkeys(found))}{day}" if found else ""


def digest(rows: Sequence[Mapping[str, Any]]) -> str:
    """Of the rows of main.json. What is written about one comparison must not stand beside the numbers of another.

    >>> digest([{"update": 0, "arm": "scalar"}]) == digest([{"arm": "scalar", "update": 0}])
    True
    """
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:12]


def notes(file: Path, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The lines of notes.md, if it is about these rows."""
    if not file.exists():
        return []
    first, *lines = file.read_text(encoding="utf-8").strip().splitlines() or [""]
    wanted = f"<!-- rows: {digest(rows)} -->"
    if first.strip() == wanted:
        return lines[lines[:1] == [""] :]
    print(f"{file.name} is left out: it is about other numbers. Write about these, and begin the file with {wanted}")
    return []


def kl(arm: Path) -> dict[int, float]:
    """Update → KL per token to the start, the mean over seeds."""
    found: dict[int, list[float]] = {}
    for file in sorted(arm.glob("seed-*/metrics.jsonl")):
        with file.open(encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                if "kl/reference" in row:
                    found.setdefault(row["update"], []).append(row["kl/reference"])
    return {update: round(sum(some) / len(some), 3) for update, some in sorted(found.items())}


def remarks(folder: Path) -> dict[str, Any]:
    """What one more remark of each kind goes with: over the logged samples and held-out completions of each arm's first
    seed, the score and ROUGE-L, regressed on the numbers of remarks. And how many there are in a sample of the first
    and of the last logged update of each arm."""
    from rouge_score.rouge_scorer import RougeScorer

    rouge = RougeScorer(["rougeL"], use_stemmer=True)
    counts: list[list[int]] = []
    targets: list[tuple[float, float]] = []
    prompts: list[str] = []
    seen: dict[str, Any] = {}
    for arm in (RIVAL, OURS):
        for file in sorted((folder / arm).glob("seed-*/rollouts.jsonl"))[:1]:
            with file.open(encoding="utf-8") as lines:
                rows = [row for row in map(json.loads, lines) if row["score"] is not None]
            for row in rows:
                counts.append([_count(row["alignment"]["spans"], how) for how in REMARKS.values()])
                reference, text = row["example"]["reference"], row["completion"]["text"]
                targets.append((row["score"], rouge.score(reference, text)["rougeL"].fmeasure))
                prompts.append(row["example"]["id"])
            own = zip(rows, counts[len(counts) - len(rows) :], strict=True)
            sampled = [(row["update"], each) for row, each in own if not row.get("held_out")]
            for name, update in (("first", min(sampled)[0]), ("last", max(sampled)[0])) if sampled else ():
                some = [each for at, each in sampled if at == update]
                means = np.mean(some, 0).round(4).tolist()
                kinds = {"update": update, "completions": len(some), "counts": dict(zip(REMARKS, means, strict=True))}
                seen[f"{arm}, {name}"] = kinds
    if not counts:
        return {}
    found = worth(np.array(counts, dtype=np.float64), np.array(targets), prompts)
    return {"completions": len(counts), "prompts": len(set(prompts)), "worth": found, "seen": seen}


def _count(spans: Sequence[Mapping[str, Any]], how: str) -> int:
    """How many spans have a remark of this kind: its sentence begins with the words in quotation marks."""
    return sum(bool(re.search(f"” {how}", span["comment"] or "")) for span in spans)


def worth(counts: Numbers, targets: Numbers, prompts: Sequence[str]) -> dict[str, Any]:
    """Kind of remark → how many there are, and the slope of each target with its 95 % interval. Completions of a prompt
    are alike, so the interval is made by leaving out one prompt after the other (a jackknife)."""
    names = np.array(prompts)
    whole = _slopes(counts, targets)
    without = [_slopes(counts[names != name], targets[names != name]) for name in sorted(set(prompts))]
    half = np.full_like(whole, np.inf)
    if len(without) > 1:
        apart = np.stack(without) - whole
        half = student(len(without) - 1) * np.sqrt((1 - 1 / len(without)) * (apart**2).sum(0))
    found: dict[str, Any] = {}
    for place, name in enumerate(REMARKS):
        ends = np.stack([whole[place], whole[place] - half[place], whole[place] + half[place]], 1)
        rounded = [[round(end, 4) + 0.0 if math.isfinite(end) else None for end in column] for column in ends.tolist()]
        found[name] = {"remarks": int(counts[:, place].sum()), **dict(zip(TARGETS, rounded, strict=True))}
    return found


def _slopes(counts: Numbers, targets: Numbers) -> Numbers:
    """One row for each kind, one column for each target; 0 for a kind that does not occur."""
    x = np.column_stack([counts, np.ones(len(counts))])
    slopes, *_ = np.linalg.lstsq(x, targets, rcond=None)
    return np.asarray(slopes[:-1], dtype=np.float64)


def _some(metrics: Mapping[str, float], keys: Mapping[str, str]) -> dict[str, float]:
    return {key: round(metrics[key], 5) for key in keys if key in metrics}


def shown(arm: Path) -> list[dict[str, Any]]:
    """Of the first seed: the two held-out examples whose score rose most, and the one whose score fell most."""
    pairs: dict[str, dict[int, dict[str, Any]]] = {}
    for file in sorted(arm.glob("seed-*/rollouts.jsonl"))[:1]:
        with file.open(encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                if row.get("held_out") and row["score"] is not None:
                    pairs.setdefault(row["example"]["id"], {})[row["update"]] = row
    last = max((max(each) for each in pairs.values()), default=0)
    whole = [(name, each[0], each[last]) for name, each in pairs.items() if {0, last} <= each.keys()]
    ranked = sorted(whole, key=lambda pair: pair[1]["score"] - pair[2]["score"])
    return [
        {"id": name, "sides": [_side(before), _side(after)], "update": last}
        for name, before, after in [*ranked[:2], *ranked[2:][-1:]]
    ]


def _side(row: dict[str, Any]) -> dict[str, Any]:
    spans = [[span["start"], span["end"], span["verdict"], span["severity"]] for span in row["alignment"]["spans"]]
    critique = row["critique"]["feedback"]
    return {"text": row["completion"]["text"], "score": row["score"], "spans": spans, "critique": critique}


def picture(example: Mapping[str, Any]) -> str:
    """SVG: a summary before and after, with what the critique calls good and poor."""
    sheet = Sheet()
    for title, side in zip(("before", "after"), example["sides"], strict=True):
        sheet.heading(f"{title} training: score {side['score']:.2f}")
        marks = [
            Mark(start, end, COLOUR[verdict], 1.0 if severity is None else severity)
            for start, end, verdict, severity in side["spans"]
            if verdict in COLOUR
        ]
        sheet.text(side["text"], marks, wrap=True)
        sheet.remark(" ".join(side["critique"].split()))
        sheet.gap()
    return sheet.svg()


def verdict(found: Mapping[str, Any]) -> str:
    """Whether the bar was met, in words."""
    between, arms = found["between"], found["comparison"]["arms"]
    if not BAR.keys() <= between.keys():
        return "**Not decided:** the runs of the two arms are not all there."
    said, better, worse = [], [], []
    for key, sign in BAR.items():
        low, mean, high = (between[key][end] for end in ("low", "mean", "high"))
        said.append(f"{COLUMNS[key]} {mean:+.4f} (95 %: {low:+.4f} to {high:+.4f})")
        better += [COLUMNS[key]] if (low if sign > 0 else -high) > 0 else []
        worse += [COLUMNS[key]] if (high if sign > 0 else -low) < 0 else []
    starts = [row["metrics"] for row in found["rows"] if row["arm"] == OURS and row["update"] == 0]
    length, copied = (arms[OURS]["final"][key]["mean"] for key in ("length", "copied"))
    length_before, copied_before = (sum(each[key] for each in starts) / len(starts) for key in ("length", "copied"))
    outside = ["the length is out of bounds"] if abs(length / length_before - 1) > LENGTH else []
    outside += ["more is copied than at the start"] if copied > copied_before + 1e-9 else []
    return textwrap.fill(
        f"**{_outcome(better, worse, outside)}** `{OURS}` less `{RIVAL}` at the end, {len(arms[OURS]['seeds'])} seeds: "
        f"{'; '.join(said)}. The length of `{OURS}` is {length:.1f} tokens, {length / length_before - 1:+.0%} compared "
        f"with the supervised start; the copied share is {copied:.3f}, {copied - copied_before:+.3f}. The bar wants an "
        "interval on the better side of zero for both, a length within 20 % of the start, and no more copying.",
        120,
    )


def _outcome(better: Sequence[str], worse: Sequence[str], outside: Sequence[str]) -> str:
    """Of the metrics of the bar, those that words surely make better or worse; and what is out of bounds.

    >>> _outcome(["ROUGE-L"], ["unsupported share"], [])
    'Mixed: with words ROUGE-L is better than with the score alone, and unsupported share is worse.'
    >>> _outcome(["ROUGE-L", "unsupported share"], [], ["the length is out of bounds"])
    'The bar is not met: with words both are better than with the score alone, but the length is out of bounds.'
    """
    if worse and better:
        return f"Mixed: with words {better[0]} is better than with the score alone, and {worse[0]} is worse."
    if worse:
        which = f"{worse[0]} is" if len(worse) < len(BAR) else "both are"
        return f"The bar is not met: with words {which} worse than with the score alone."
    if not better:
        return "No difference that is sure."
    lacking = [*([] if len(better) == len(BAR) else ["the other shows no sure difference"]), *outside]
    if not lacking:
        return "The bar is met here."
    which = f"{better[0]} is" if len(better) < len(BAR) else "both are"
    return f"The bar is not met: with words {which} better than with the score alone, but {' and '.join(lacking)}."


def tables(found: Mapping[str, Any]) -> Iterator[str]:
    """Markdown: the end of each arm, the start of all, the differences, the cost."""
    arms = found["comparison"]["arms"]
    yield f"| arm | seeds | {' | '.join(COLUMNS.values())} | KL per token |"
    yield "|---" * (len(COLUMNS) + 3) + "|"
    start = next(row for row in found["rows"] if row["update"] == 0)
    yield f"| supervised start | | {' | '.join(_cell(start['metrics'].get(key), key) for key in COLUMNS)} | 0 |"
    for name, arm in arms.items():
        cells = []
        for key in COLUMNS:
            each = list(arm["final"][key]["seeds"].values()) if key in arm["final"] else []
            ends = f"({_cell(min(each), key)}–{_cell(max(each), key)})" if each else ""
            cells.append(f"{_cell(sum(each) / len(each), key)} {ends}" if each else "–")
        moved = list(found["kl"].get(name, {}).values())
        cells.append(f"{moved[-1]:.2f}" if moved else "–")
        yield f"| `{name}` | {len(arm['seeds'])} | {' | '.join(cells)} |"
    yield ""
    yield "In brackets: the lowest and the highest seed."
    yield ""
    yield f"| `{OURS}` less `{RIVAL}` | mean | 95 % interval | over |"
    yield "|---|---|---|---|"
    for key, each in found["between"].items():
        # BLEU and the like are numbers of the whole held-out set, so no example has one.
        over = "seeds alone" if each.get("examples") == 0 else "seeds and examples"
        yield f"| {COLUMNS[key]} | {each['mean']:+.4f} | {each['low']:+.4f} to {each['high']:+.4f} | {over} |"
    yield ""
    yield from costs(arms)


class Pair(NamedTuple):
    """One seed: the rival's last evaluation, and the evaluation of ours that copies most nearly as much."""

    seed: int
    rival: Mapping[str, Any]
    ours: Mapping[str, Any]

    @property
    def difference(self) -> float:
        """In ROUGE-L."""
        return float(self.ours["metrics"]["rouge_l"] - self.rival["metrics"]["rouge_l"])


def at_equal_copying(rows: Sequence[Mapping[str, Any]]) -> list[Pair]:
    """One pair per seed. Update 0 does not count."""
    trained = [row for row in rows if row["update"] > 0 and {"rouge_l", "copied"} <= row["metrics"].keys()]
    pairs = []
    for seed in sorted({row["seed"] for row in trained}):
        theirs, ours = ([row for row in trained if (row["arm"], row["seed"]) == (arm, seed)] for arm in (RIVAL, OURS))
        if theirs and ours:
            last = max(theirs, key=lambda row: row["update"])
            copied = last["metrics"]["copied"]
            nearest = min(ours, key=lambda row: (abs(row["metrics"]["copied"] - copied), -row["update"]))
            pairs.append(Pair(seed, last, nearest))
    return pairs


def equal_copying(pairs: Sequence[Pair], between: Mapping[str, Any]) -> Iterator[str]:
    """Markdown: how far apart the arms are in ROUGE-L where they copy as much."""
    yield "## At equal copying"
    yield ""
    mean, low, high = over_seeds([pair.difference for pair in pairs])
    ends = f"95 % over seeds: {low:+.4f} to {high:+.4f}" if math.isfinite(low) else "one seed"
    end = f" At the end it is {between['rouge_l']['mean']:+.4f}." if "rouge_l" in between else ""
    yield textwrap.fill(
        f"At the end one arm copies more than the other. So for each seed this table takes the last evaluation of "
        f"`{RIVAL}`, and that evaluation of `{OURS}` whose copied share is nearest to it. There the mean difference in "
        f"ROUGE-L is {mean:+.4f} ({ends}).{end} The evaluation of `{OURS}` may be an earlier one: it then comes after "
        "fewer updates.",
        120,
    )
    yield ""
    yield (
        f"| seed | `{RIVAL}`: update | copied | tokens | ROUGE-L | `{OURS}`: update | copied | tokens | ROUGE-L | "
        "difference in ROUGE-L |"
    )
    yield "|---" * 10 + "|"
    for pair in pairs:
        cells = [
            cell
            for row in (pair.rival, pair.ours)
            for cell in (str(row["update"]), *(_cell(row["metrics"].get(key), key) for key in SHARED))
        ]
        yield f"| {pair.seed} | {' | '.join(cells)} | {pair.difference:+.3f} |"


def said(found: Mapping[str, Any]) -> Iterator[str]:
    """Markdown: what the critic's remarks are worth, and how often they are made."""
    kept = found["remarks"]
    seen = {f"{name}, update {one['update']}": one["counts"] for name, one in kept["seen"].items()}
    numbers = ["remarks"] if any(one["remarks"] is not None for one in kept["worth"].values()) else []
    columns = ["remark", *numbers, *TARGETS.values(), *seen]
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    for name, one in kept["worth"].items():
        slopes = ["–" if one["remarks"] == 0 else _slope(*one[key]) for key in TARGETS]
        counts = [f"{each[name]:.2f}" if name in each else "–" for each in seen.values()]
        yield f"| {' | '.join([name, *(f'{one[key]:,}' for key in numbers), *slopes, *counts])} |"


def _slope(mean: float, low: float | None, high: float | None) -> str:
    return f"{mean:+.3f}" if low is None or high is None else f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"


def _cell(value: float | None, key: str) -> str:
    return "–" if value is None else f"{value:.1f}" if key == "length" else f"{value:.3f}"


def page(found: Mapping[str, Any], notes: Sequence[str]) -> str:
    """The text of summarization.md."""
    lines = [
        "# Summaries of scientific abstracts (SciTLDR)",
        "",
        "Generated by `studies/summarization/page.py` from `main.json`; how it was run, and what was tried before: "
        "[studies/summarization](../../studies/summarization/README.md).",
        "",
        verdict(found),
        "",
        *([found["note"], ""] if "note" in found else []),
        *([f"Measured on {found['machine']}.", ""] if "machine" in found else []),
        *tables(found),
        "",
        *(f"![{title}](summarization-{key}.svg)\n" for key, title in PICTURES.items()),
    ]
    if pairs := at_equal_copying(found["rows"]):
        lines += [*equal_copying(pairs, found["between"]), ""]
    lines += notes
    if found["comparison"]["failed"]:
        failed = "; ".join(f"{name}: {why}" for name, why in found["comparison"]["failed"].items())
        lines += ["", f"Failed: {failed}"]
    if found.get("remarks"):
        known = any(one[key][1] is not None for one in found["remarks"]["worth"].values() for key in TARGETS)
        brackets = "In brackets: 95 %, over prompts. " if known else ""
        lines += [
            "",
            "## What the critic's remarks are worth",
            "",
            textwrap.fill(
                "The critic's score and ROUGE-L, regressed on how many remarks of each kind a summary has. So a number "
                "says by how much summaries with one more such remark are higher or lower, not what causes it. "
                f"{brackets}From the {found['remarks']['completions']} logged completions of both arms' first seeds, "
                "sampled and held out. On the right: remarks in one sampled summary.",
                120,
            ),
            "",
            *([found["remarks"]["note"], ""] if "note" in found["remarks"] else []),
            *said(found),
        ]
    if found["shown"]:
        lines += [
            "",
            "## Three summaries, before and after",
            "",
            f"First seed of `{OURS}`, after {found['shown'][0]['update']} updates: the two held-out abstracts whose "
            "score rose most, and the one whose score fell most. Green words are called good by the critique, red ones "
            "poor; below each summary is the critique.",
            "",
        ]
        lines += [f"![{one['id']}](summarization-{i}.svg)\n" for i, one in enumerate(found["shown"], 1)]
    return "\n".join(lines).rstrip() + "\n"


def main(words: Sequence[str]) -> None:
    kept = HERE / "main.json"
    if words:
        text = json.dumps(collected(Path(words[0])), indent=1, allow_nan=False)
        kept.write_text(text + "\n", encoding="utf-8")
    found = loaded(kept, "name the folder of a comparison to make it")
    OUT.mkdir(parents=True, exist_ok=True)
    text = page(found, notes(HERE / "notes.md", found["rows"]))
    (OUT / "summarization.md").write_text(text, encoding="utf-8")
    for key, title in PICTURES.items():
        (OUT / f"summarization-{key}.svg").write_text(curves(found["rows"], key, title), encoding="utf-8")
    for number, example in enumerate(found["shown"], 1):
        (OUT / f"summarization-{number}.svg").write_text(picture(example), encoding="utf-8")
    print(f"wrote {OUT}/summarization.md")


if __name__ == "__main__":
    main(sys.argv[1:])

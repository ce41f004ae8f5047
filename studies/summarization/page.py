"""docs/results/summarization.md from a comparison of the two main arms: whether the bar was met, tables, curves, and
three summaries before and after training.

    python -m studies.summarization.page runs/main     # writes main.json anew from the folder, then the page
    python -m studies.summarization.page               # the page from main.json

Enters: the folder of `text2grad compare` (comparison.json, results.json, ARM/seed-N.done, and rollouts.jsonl of the
first seed of `text2grad`). Leaves: main.json with all that the page needs, summarization.md and three pictures.
"""

import json
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from studies.pages import Mark, Sheet, apart, costs, curves

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
    "length": "tokens",
}
BAR = {"rouge_l": 1, "unsupported_share": -1}
"""Metric of the bar → its better direction."""
COLOUR = {"good": "#43a047", "poor": "#e53935"}
PICTURES = {
    "rouge_l": "ROUGE-L on the held-out abstracts",
    "score": "Score of the critic on the held-out abstracts",
    "copied": "Share of words in stretches of six or more that the abstract has, too",
    "length": "Tokens of a summary",
}
REMARKS = {
    "in the reference": r"(is|are) in the reference",
    "supported by the source, not in the reference": r"(is|are) supported",
    "not in the reference": r"(is|are) not in the reference",
    "neither in the reference nor in the source": r"neither the reference nor the source",
    "copied from the source": r"copied from the source",
}
"""What the critic's sentences say of a span → how to find it."""


def collected(folder: Path) -> dict[str, Any]:
    """What the page needs, from a comparison's folder."""
    comparison = json.loads((folder / "comparison.json").read_bytes())
    rows = json.loads((folder / "results.json").read_bytes())
    between = {
        key: each
        for key, each in comparison["arms"][OURS].get("difference", {}).items()
        if key in COLUMNS and each["low"] is not None
    }
    for key in COLUMNS:
        if (found := apart(folder, OURS, RIVAL, key)) is not None:
            between[key] = found._asdict()
    return {
        "comparison": comparison,
        "rows": [row | {"metrics": _some(row["metrics"], COLUMNS)} for row in rows],
        "between": {key: between[key] for key in COLUMNS if key in between},
        "kl": {arm: kl(folder / arm) for arm in (RIVAL, OURS)},
        "shown": shown(folder / OURS),
        "remarks": remarks(folder),
    }


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
    """What each kind of remark is worth: over the logged samples and held-out completions of each arm's first seed, the
    score and ROUGE-L, regressed on how often (by severity) each kind occurs. And how often in the first and the last
    logged update of each arm."""
    from rouge_score.rouge_scorer import RougeScorer

    rouge = RougeScorer(["rougeL"], use_stemmer=True)
    counts: list[list[float]] = []
    targets: list[tuple[float, float]] = []
    seen: dict[str, Any] = {}
    for arm in (RIVAL, OURS):
        for file in sorted((folder / arm).glob("seed-*/rollouts.jsonl"))[:1]:
            with file.open(encoding="utf-8") as lines:
                rows = [row for row in map(json.loads, lines) if row["score"] is not None]
            for row in rows:
                found = [_severity(row["alignment"]["spans"], how) for how in REMARKS.values()]
                counts.append(found)
                reference, text = row["example"]["reference"], row["completion"]["text"]
                targets.append((row["score"], rouge.score(reference, text)["rougeL"].fmeasure))
            own = zip(rows, counts[-len(rows) :], strict=True)
            sampled = [(row["update"], each) for row, each in own if not row.get("held_out")]
            for name, update in (("first", min(sampled)[0]), ("last", max(sampled)[0])):
                some = [each for at, each in sampled if at == update]
                mean = np.mean(some, 0).round(3).tolist()
                seen[f"{arm}, {name}"] = {"update": update, "completions": len(some), "counts": mean}
    if not counts:
        return {}
    x = np.column_stack([counts, np.ones(len(counts))])
    slopes, *_ = np.linalg.lstsq(x, np.array(targets), rcond=None)
    worth = {name: slopes[place].round(3).tolist() for place, name in enumerate(REMARKS)}
    return {"completions": len(counts), "worth": worth, "seen": seen}


def _severity(spans: Sequence[Mapping[str, Any]], how: str) -> float:
    """How often a remark is made, a half-severe one counting half."""
    found = (span["severity"] for span in spans if re.search(how, span["comment"] or ""))
    return float(sum(1 if severity is None else severity for severity in found))


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
    between, final = found["between"], {arm: each["final"] for arm, each in found["comparison"]["arms"].items()}
    if not BAR.keys() <= between.keys():
        return "**Not decided:** the runs of the two arms are not all there."
    said, above, below = [], True, False
    for key, better in BAR.items():
        low, mean, high = (between[key][end] for end in ("low", "mean", "high"))
        said.append(f"{COLUMNS[key]} {mean:+.4f} (95 %: {low:+.4f} to {high:+.4f})")
        above &= (low if better > 0 else -high) > 0
        below |= (high if better > 0 else -low) < 0
    outcome = "The bar is met here." if above else "Words end below the score alone." if below else "No difference."
    start = [row["metrics"] for row in found["rows"] if row["arm"] == OURS and row["update"] == 0]
    lengths = [final[OURS]["length"]["mean"], sum(each["length"] for each in start) / len(start)]
    copied = [final[OURS]["copied"]["mean"], sum(each["copied"] for each in start) / len(start)]
    seeds = len(found["comparison"]["arms"][OURS]["seeds"])
    return textwrap.fill(
        f"**{outcome}** `{OURS}` less `{RIVAL}` at the end, {seeds} seeds: {'; '.join(said)}. "
        f"The length of `{OURS}` is {lengths[0]:.1f} tokens, {lengths[0] / lengths[1] - 1:+.0%} compared with the "
        f"supervised start; the copied share is {copied[0]:.3f}, {copied[0] - copied[1]:+.3f}. The bar wants an "
        "interval on the better side of zero for both, a length within 20 % of the start, and no more copying.",
        120,
    )


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
    yield f"| `{OURS}` less `{RIVAL}` | mean | 95 % interval over seeds and examples |"
    yield "|---|---|---|"
    for key, each in found["between"].items():
        yield f"| {COLUMNS[key]} | {each['mean']:+.4f} | {each['low']:+.4f} to {each['high']:+.4f} |"
    yield ""
    yield from costs(arms)


def said(found: Mapping[str, Any]) -> Iterator[str]:
    """Markdown: what the critic's remarks are worth, and how often they are made."""
    kept = found["remarks"]
    each = {name: f"{name}, update {one['update']}" for name, one in kept["seen"].items()}
    yield f"| remark | score | ROUGE-L | {' | '.join(each.values())} |"
    yield "|---" * (len(each) + 3) + "|"
    for place, name in enumerate(REMARKS):
        score, rouge = kept["worth"][name]
        counts = (f"{one['counts'][place]:.2f}" for one in kept["seen"].values())
        yield f"| {name} | {score:+.3f} | {rouge:+.3f} | {' | '.join(counts)} |"


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
        *([f"Measured on {found['machine']}.", ""] if "machine" in found else []),
        *tables(found),
        "",
        *(f"![{title}](summarization-{key}.svg)\n" for key, title in PICTURES.items()),
        *notes,
    ]
    if found["comparison"]["failed"]:
        failed = "; ".join(f"{name}: {why}" for name, why in found["comparison"]["failed"].items())
        lines += ["", f"Failed: {failed}"]
    if found.get("remarks"):
        lines += [
            "",
            "## What the critic's remarks are worth",
            "",
            "The critic's score and ROUGE-L, regressed on how often each remark is made (half-severe ones count half). "
            f"From the {found['remarks']['completions']} logged completions of both arms' first seeds, sampled and "
            "held out. On the right: how often, in a sampled summary.",
            "",
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
        more = json.loads(kept.read_text()) if kept.exists() else {}
        kept.write_text(json.dumps(more | collected(Path(words[0])), indent=1) + "\n", encoding="utf-8")
    found, notes = json.loads(kept.read_text(encoding="utf-8")), HERE / "notes.md"
    OUT.mkdir(parents=True, exist_ok=True)
    text = page(found, notes.read_text(encoding="utf-8").splitlines() if notes.exists() else ())
    (OUT / "summarization.md").write_text(text, encoding="utf-8")
    for key, title in PICTURES.items():
        (OUT / f"summarization-{key}.svg").write_text(curves(found["rows"], key, title), encoding="utf-8")
    for number, example in enumerate(found["shown"], 1):
        (OUT / f"summarization-{number}.svg").write_text(picture(example), encoding="utf-8")
    print(f"wrote {OUT}/summarization.md")


if __name__ == "__main__":
    main(sys.argv[1:])

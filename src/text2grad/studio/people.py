"""Several people at work: who wrote how much, on which day, and how far they agree about the same completions.

Enters: rows of the store. Leaves: plain values for JSON. Agreement is counted by `feedback/agreement.py`, as
`text2grad agree` counts it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import combinations
from typing import Any

from text2grad.feedback.agreement import Agreements, agreement
from text2grad.studio.exports import critique_rows
from text2grad.studio.store import Store

MOST = 2000
"""Critiques that agreement is counted on: the latest."""


def day_of(time: float) -> str:
    """The day, where the studio runs."""
    return datetime.fromtimestamp(time).astimezone().date().isoformat()


def today_of(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    today = day_of(datetime.now().timestamp())
    return [row for row in rows if day_of(row["time"]) == today]


def counts(rows: list[Any]) -> list[dict[str, Any]]:
    today, in_all = Counter(row["author"] for row in today_of(rows)), Counter(row["author"] for row in rows)
    return [{"name": name, "critiques": count, "today": today[name]} for name, count in in_all.most_common()]


def progress_of(store: Store) -> dict[str, Any]:
    """Critiques by day and person."""
    rows = store.rows("SELECT author, time FROM critiques WHERE deleted = 0 ORDER BY time")
    days: dict[str, Counter[str]] = {}
    for row in rows:
        days.setdefault(day_of(row["time"]), Counter())[row["author"]] += 1
    return {
        "days": [
            {"day": day, "critiques": sum(by.values()), "people": dict(by.most_common())} for day, by in days.items()
        ],
        "people": counts(rows),
    }


def agreement_of(store: Store) -> dict[str, Any]:
    """Of each two people, on the completions that both have criticised; and of everybody."""
    rows = critique_rows(store, latest=MOST)
    by_person: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        item = row["id"].partition("#")[0]
        by_person.setdefault(row["annotator"], {})[item] = row | {"id": item}
    pairs = []
    for one, other in combinations(sorted(by_person), 2):
        shared = by_person[one].keys() & by_person[other].keys()
        if shared:
            found = agreement(*([by_person[name][item] for item in sorted(shared)] for name in (one, other)))
            pairs.append({"a": one, "b": other, "completions": len(shared), **_numbers(found)})
    items = Counter(row["id"].partition("#")[0] for row in rows)
    several = [row for row in rows if items[row["id"].partition("#")[0]] > 1]
    whole = agreement(several) if several else None
    return {
        "pairs": whole.items if whole else 0,
        "completions": sum(count > 1 for count in items.values()),
        "overall": _numbers(whole) if whole else None,
        "people": pairs,
        "note": "Counted over words: F1 of blamed and of praised words, and Cohen's kappa of the verdicts."
        if pairs
        else "No completion has been criticised by two people yet.",
    }


def _numbers(found: Agreements) -> dict[str, Any]:
    """F1 of each verdict over words, over both together, and kappa."""
    both = found.words["poor"] + found.words["good"]
    return {
        "characters": both.f1 if both.called + both.marked else None,
        "poor": found.words["poor"].f1 if found.words["poor"].called + found.words["poor"].marked else None,
        "good": found.words["good"].f1 if found.words["good"].called + found.words["good"].marked else None,
        "verdict": found.kappa,
        "scores": found.scores,
    }

"""Do the program critics agree with people? Pairs of a wrong text and its human correction, and texts made to cheat.

    python -m studies.critics.run measure --data DIR      writes agreement.json: numbers only
    python -m studies.critics.run table                   writes the tables of docs/critics.md from that file

DeFacto: wrong summaries and their corrections; settings were chosen on the training file, the validation file is held
out. QA-Feedback: wrong answers and their corrections; even indices and odd ones (held out). The correction itself is
never given to a critic as the reference: that would be circular. The reference is DeFacto's published abstract, or
QA-Feedback's gold answer.
"""

import argparse
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from studies.reward_model.measures import by_content

from text2grad.feedback.agreement import Judged
from text2grad.feedback.align.ladder import align
from text2grad.feedback.critics.named import critic_named
from text2grad.feedback.critics.protocol import Critic, ask_now
from text2grad.feedback.critics.words import sentences_of, words_of
from text2grad.feedback.people import Rejected
from text2grad.feedback.settings import CriticSettings, SupportSettings
from text2grad.feedback.text import Text
from text2grad.report.differences import wilson
from text2grad.runs.folder import write_atomic
from text2grad.tasks.defacto import read_defacto
from text2grad.tasks.qa_feedback import read_qa_feedback
from text2grad.types import Critique, Span

HERE = Path(__file__).parent
PAGE = HERE.parent.parent / "docs" / "critics.md"
BEGIN, END = "<!-- written by studies/critics/run.py -->", "<!-- end -->"
SETS = {"defacto": "DeFacto, summaries", "qa": "QA-Feedback, answers"}
CRITICS = {
    "shorter": "the shorter text wins (no critic)",
    "support": "`support`",
    "support+reference": "`support` with the reference",
    "support-copying": "`support`, `copied=0`",
    "reference": "`reference`",
    "merge": "`merge(reference, support)`",
    "grounded": "`grounded`",
    "grounded+reference": "`grounded` with the reference",
}
TEXTS = {
    "corrected": "the corrected text",
    "wrong": "the wrong text",
    "first": "first sentence of the source",
    "middle": "middle sentence of the source",
    "three": "first three sentences",
    "nearly": "first sentence, its middle word left out",
    "names": "names of the source",
    "keywords": "ten most frequent words",
    "things": "the same, each with “the”",
    "beginning": "first four words of the correction",
    "other": "another item's correction",
    "empty": "an empty text",
}
_NAME = re.compile(r"(?<=[a-z,] )[A-Z]\w+(?: [A-Z]\w+)*")


class Pair(NamedTuple):
    wrong: str
    corrected: str
    passages: list[str]
    reference: str | None
    prompt: str
    spans: tuple[Span, ...] | None
    """What people found wrong in `wrong`; None where the correction does not show it."""


def pairs(folder: Path, name: str, held_out: bool) -> Iterator[Pair]:
    """Wrong texts that people corrected into another text."""
    rows = _summaries(folder, held_out) if name == "defacto" else _answers(folder, held_out)
    return (pair for pair in rows if pair.corrected.strip() not in ("", pair.wrong.strip()))


def _summaries(folder: Path, held_out: bool) -> Iterator[Pair]:
    path = folder / "summarization" / f"defacto_{'val' if held_out else 'train'}.jsonl"
    marked = {row["id"]: _spans(row) for row in read_defacto(path) if not isinstance(row, Rejected)}
    for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        corrected = row["feedback"].get("summary") or ""
        spans = marked.get(f"defacto-{row['doc_id']}")
        if row["has_error"]:
            yield Pair(row["candidate"], corrected, [row["article"]], row["abstract"], "", spans)


def _answers(folder: Path, held_out: bool) -> Iterator[Pair]:
    for row in read_qa_feedback(folder / "qa" / "qa_feedback_dev.json", "odd" if held_out else "even"):
        corrected = row["critique"].get("revision") or ""
        yield Pair(row["completion"], corrected, row["passages"], row["reference"], row["question"], _spans(row))


def _spans(row: dict[str, Any]) -> tuple[Span, ...]:
    return tuple(Span.from_json(span) for span in row["spans"])


Scorer = Callable[[Sequence[str], Sequence[Pair]], list[Critique | None]]


def scorers() -> dict[str, Scorer]:
    """Each way to judge texts, one text for each pair."""

    def asking(critic: Critic, *columns: str) -> Scorer:
        def score(texts: Sequence[str], items: Sequence[Pair]) -> list[Critique | None]:
            given = {column: [getattr(item, column) for item in items] for column in columns}
            return ask_now(critic, [item.prompt for item in items], texts, given)

        return score

    def shorter(texts: Sequence[str], _: Sequence[Pair]) -> list[Critique | None]:
        return [Critique("Its length.", score=-float(len(words_of(Text(text)))), quotes_only=True) for text in texts]

    plain, quoting = CriticSettings(), CriticSettings(support=SupportSettings(copied=0))
    return {
        "shorter": shorter,
        "support": asking(critic_named("support", plain), "passages"),
        "support+reference": asking(critic_named("support", plain), "passages", "reference"),
        "support-copying": asking(critic_named("support", quoting), "passages"),
        "reference": asking(critic_named("reference", plain), "passages", "reference"),
        "merge": asking(critic_named("merge(reference, support)", plain), "passages", "reference"),
        "grounded": asking(critic_named("grounded", plain), "passages"),
        "grounded+reference": asking(critic_named("grounded", plain), "passages", "reference"),
    }


def made(items: Sequence[Pair]) -> dict[str, list[str]]:
    """The texts of `TEXTS`, one of each for every pair."""
    sources = ["\n".join(item.passages) for item in items]
    parts = [[source[a:b] for a, b in sentences_of(Text(source))] for source in sources]
    return {
        "corrected": [item.corrected for item in items],
        "wrong": [item.wrong for item in items],
        "first": [sentences[0] for sentences in parts],
        "middle": [sentences[len(sentences) // 2] for sentences in parts],
        "three": [" ".join(sentences[:3]) for sentences in parts],
        "nearly": [_without_middle(sentences[0]) for sentences in parts],
        "names": [", ".join(dict.fromkeys(_NAME.findall(source))) for source in sources],
        "keywords": [", ".join(_frequent(source)) for source in sources],
        "things": [", ".join(f"the {word}" for word in _frequent(source)) for source in sources],
        "beginning": [" ".join(item.corrected.split()[:4]) for item in items],
        "other": [items[index - 1].corrected for index in range(len(items))],
        "empty": [""] * len(items),
    }


def _without_middle(sentence: str) -> str:
    words = sentence.split()
    return " ".join(words[: len(words) // 2] + words[len(words) // 2 + 1 :])


def _frequent(source: str) -> list[str]:
    counts = Counter(source[word.start : word.end] for word in words_of(Text(source)) if word.content)
    return [word for word, _ in counts.most_common(10)]


def measure(folder: Path) -> dict[str, Any]:
    """Data set → split → critic → numbers: the scores of each pair where it is held out, else only counts."""
    found: dict[str, Any] = {}
    for name in SETS:
        found[name] = {}
        for split in ("tuned_on", "held_out"):
            items = list(pairs(folder, name, split == "held_out"))
            texts = made(items)
            numbers = {critic: _numbers(score, items, texts) for critic, score in scorers().items()}
            if split == "tuned_on":
                numbers = {critic: {"counts": counts(part)} for critic, part in numbers.items()}
            found[name][split] = numbers
    return found


def _numbers(score: Scorer, items: Sequence[Pair], texts: dict[str, list[str]]) -> dict[str, Any]:
    critiques = {kind: score(given, items) for kind, given in texts.items()}
    scores = {kind: [_score(critique) for critique in given] for kind, given in critiques.items()}
    judged = [
        Judged(item.wrong, item.spans, align(item.wrong, critique).spans if critique is not None else None)
        for item, critique in zip(items, critiques["wrong"], strict=True)
        if item.spans is not None
    ]
    poor = by_content(judged)["poor"]
    return {
        "wrong": scores["wrong"],
        "corrected": scores["corrected"],
        "means": {kind: round(mean(s for s in given if s is not None), 3) for kind, given in scores.items()},
        "above_correction": {
            kind: sum(a is not None and b is not None and a > b for a, b in zip(g, scores["corrected"], strict=True))
            for kind, g in scores.items()
        },
        "poor": {"precision": round(poor.precision, 3), "recall": round(poor.recall, 3)},
    }


def _score(critique: Critique | None) -> float | None:
    return None if critique is None or critique.score is None else round(critique.score, 4)


def not_shorter(numbers: dict[str, Any]) -> list[int]:
    """Indices of the pairs whose correction has at least as many words."""
    lengths = zip(numbers["shorter"]["wrong"], numbers["shorter"]["corrected"], strict=True)
    return [index for index, (wrong, corrected) in enumerate(lengths) if corrected <= wrong]


def counts(numbers: dict[str, Any], of: Sequence[int] | None = None) -> dict[str, int]:
    """Pairs (all, or `of` these indices) in which the correction is above the wrong text, or tied with it; and those
    that are not scored.

    >>> counts({"wrong": [0.1, 0.5, 0.2, None], "corrected": [0.2, 0.5, 0.1, 0.3]})
    {'pairs': 3, 'above': 1, 'ties': 1, 'unscored': 1}
    """
    both = list(zip(numbers["wrong"], numbers["corrected"], strict=True))
    both = both if of is None else [both[index] for index in of]
    scored = [(wrong, right) for wrong, right in both if wrong is not None and right is not None]
    above, ties = sum(right > wrong for wrong, right in scored), sum(right == wrong for wrong, right in scored)
    return {"pairs": len(scored), "above": above, "ties": ties, "unscored": len(both) - len(scored)}


def tables(found: dict[str, Any]) -> str:
    """What docs/critics.md shows between its marks."""
    lines: list[str] = []
    for name, title in SETS.items():
        held_out = found[name]["held_out"]
        pairs_of = counts(held_out["support"])["pairs"]
        lines += [f"**{title}**, {pairs_of} held-out pairs of a wrong text and its correction.", ""]
        lines += _head(
            *("", "correction above", "95 % interval", "ties", "ties as half"),
            *("above, if not shorter", "above, tuned on", "poor: precision / recall"),
        )
        for critic, label in CRITICS.items():
            got, before = counts(held_out[critic]), found[name]["tuned_on"][critic]["counts"]
            long = counts(held_out[critic], not_shorter(held_out))
            low, high = wilson(got["above"], got["pairs"])
            poor = held_out[critic]["poor"]
            cells = [
                f"{got['above'] / got['pairs']:.1%}",
                f"{low:.1%} – {high:.1%}",
                f"{got['ties'] / got['pairs']:.1%}",
                f"{(got['above'] + got['ties'] / 2) / got['pairs']:.1%}",
                f"{long['above'] / max(1, long['pairs']):.1%} of {long['pairs']}",
                f"{before['above'] / before['pairs']:.1%} of {before['pairs']}",
                "–" if critic == "shorter" else f"{poor['precision']:.2f} / {poor['recall']:.2f}",
            ]
            lines.append(f"| {label} | {' | '.join(cells)} |")
        shown = [critic for critic in CRITICS if critic != "shorter"]
        lines += ["", "Mean score, and in brackets how often it is above the correction's:", ""]
        lines += _head("", *(CRITICS[critic] for critic in shown))
        for kind, label in TEXTS.items():
            cells = []
            for critic in shown:
                above = held_out[critic]["above_correction"][kind] / pairs_of
                cells.append(
                    f"{held_out[critic]['means'][kind]:.2f}" + ("" if kind == "corrected" else f" ({above:.0%})")
                )
            lines.append(f"| {label} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines).strip()


def _head(*titles: str) -> list[str]:
    return [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]


def write_page(out: Path, page: Path) -> None:
    """The page outside its marks is written by hand."""
    text = page.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    found = json.loads((out / "agreement.json").read_text(encoding="utf-8"))
    write_atomic(page, f"{before}{BEGIN}\n{tables(found)}\n{END}{after}".encode())


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["measure", "table"])
    parser.add_argument("--data", default=os.environ.get("TEXT2GRAD_DATA"), help="folder of the marked data")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--page", type=Path, default=PAGE)
    args = parser.parse_args(words)
    if args.what == "measure":
        if not args.data:
            raise SystemExit("measure: name the folder with qa/ and summarization/ by --data or TEXT2GRAD_DATA")
        found = json.dumps(measure(Path(args.data)), separators=(",", ":")).replace('"support', '\n"support')
        write_atomic(args.out / "agreement.json", f"{found}\n".encode())
    write_page(args.out, args.page)


if __name__ == "__main__":
    main()

"""Labels that no person gave, for a first reading before people's few: what `support` says of summaries, and clean
sentences in which names, numbers and words were replaced, so that it is known what is wrong.

Enters: rows that are learned from; of the sources that are held out, or chosen by, nothing. Leaves: annotated rows.
"""

import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from studies.reward_model.baselines import supported

from text2grad.feedback.critics.support import support
from text2grad.feedback.critics.words import cite
from text2grad.feedback.text import FUNCTION_WORDS
from text2grad.tasks.annotated import marked_row
from text2grad.types import Critique, Span

Row = dict[str, Any]
NAME = re.compile(r"[A-Z][\w’'-]*[a-z][\w’'-]*(?: (?:of |the |de |van )?[A-Z][\w’'-]+)*")
NUMBER = re.compile(
    r"[£$€]?\b\d[\d,]*(?:\.\d+)?(?:%|m|bn|st|nd|rd|th)?\b|"
    r"\b(?:two|three|four|five|six|seven|eight|nine|ten|dozens|hundreds|thousands)\b"
)
PLAIN = re.compile(r"\b[a-z]{5,}\b")
SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"“])")
OWN = 0.35
"""How often a name or number is replaced by another one of the same article: there, and still wrong."""


def by_support(rows: Sequence[Row]) -> Iterator[Row]:
    """What the program critic says of the summaries and of the published ones."""
    for row in rows:
        for text in dict.fromkeys(filter(None, (row["completion"], row["reference"]))):
            asked = row.get("question") or ""
            (critique,) = support([asked], [text], passages=[row["passages"]])
            if critique is not None:
                yield _row(row, text, critique.feedback, supported(row | {"completion": text}))


def corrupted(rows: Sequence[Row], seed: int, each: int) -> Iterator[Row]:
    """Corrected and faultless completions and sentences of the sources, most of them with something replaced."""
    draw = random.Random(seed)
    sources = {_source(row): row for row in rows}
    clean: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        fixed = row["critique"]["revision"] or (None if _poor(row) else row["completion"])
        if fixed and len(fixed.split()) > 5:
            # Twice, differently: these read like what will be judged.
            clean[_source(row)] += [fixed, fixed]
    replace = Replacing([*sources, *(row["completion"] for row in rows)], draw)
    for article, row in sources.items():
        sentences = [one for one in SENTENCE.split(article)[:24] if 8 <= len(one.split()) <= 40]
        texts = clean[article] + draw.sample(sentences, min(len(sentences), each))
        for text in texts[:each]:
            places: list[tuple[int, int]] = []
            changed = text
            if draw.random() < 0.8:
                changed, places = replace(text, article)
            spans = tuple(Span(start, end, "poor") for start, end in places)
            said = " ".join(f"{cite(changed[start:end])} is not what the article says." for start, end in places)
            yield _row(row, changed, said or "Nothing is wrong.", spans or (Span(0, len(changed), "good"),))


class Replacing:
    """A clean text → the same with one to three names, numbers or words replaced or put before a name, and where."""

    def __init__(self, texts: Sequence[str], draw: random.Random) -> None:
        self.draw = draw
        names = {m[0] for text in texts for m in NAME.finditer(text) if m.start() and not _small(m[0])}
        self.names = {size: sorted(n for n in names if min(3, n.count(" ") + 1) == size) for size in (1, 2, 3)}
        self.given = sorted({name.split(" ")[0] for name in self.names[2]})
        self.numbers = sorted({m[0] for text in texts for m in NUMBER.finditer(text)})
        plain = {m[0] for text in texts for m in PLAIN.finditer(text) if not _small(m[0])}
        self.plain: dict[str, list[str]] = defaultdict(list)
        for word in sorted(plain):
            self.plain[word[-2:]].append(word)

    def __call__(self, text: str, article: str) -> tuple[str, list[tuple[int, int]]]:
        spots = [(m.span(), "name") for m in NAME.finditer(text) if not _small(m[0]) and (m.start() or " " in m[0])]
        spots += [(m.span(), "number") for m in NUMBER.finditer(text)]
        # "Low said" → "Ada Low said": what writers of summaries add from memory.
        spots += [((a, a), "given") for (a, b), _ in spots if a and text[a - 1] == " " and text[a:b].isalpha()]
        plain = [(m.span(), "plain") for m in PLAIN.finditer(text) if not _small(m[0])]
        self.draw.shuffle(plain)
        spots += plain[: max(1, len(spots) // 2)]
        self.draw.shuffle(spots)
        most = self.draw.choice((1, 1, 2, 3))
        chosen: list[tuple[tuple[int, int], str]] = []
        for (start, end), kind in spots:
            if len(chosen) == most or any(a < end and start < b for (a, b), _ in chosen):
                continue
            if (new := self._instead(text[start:end], kind, article)) is not None:
                chosen.append(((start, end), new))
        out, places, last = "", [], 0
        for (start, end), new in sorted(chosen):
            out += text[last:start]
            places.append((len(out), len(out) + len(new.rstrip())))
            out, last = out + new, end
        return out + text[last:], places

    def _instead(self, old: str, kind: str, article: str) -> str | None:
        if kind in ("name", "number") and self.draw.random() < OWN:
            pattern = NAME if kind == "name" else NUMBER
            own = [m[0] for m in pattern.finditer(article) if m[0] != old and not _small(m[0])]
            own = [one for one in own if abs(one.count(" ") - old.count(" ")) <= 1]
            return self.draw.choice(own) if own else None
        pools = {"name": self.names[min(3, old.count(" ") + 1)], "number": self.numbers, "plain": self.plain[old[-2:]]}
        pools["given"] = self.given
        for _ in range(4):
            new = self.draw.choice(pools[kind] or [old])
            if new != old and new.lower() not in article.lower():
                return f"{new} " if kind == "given" else new
        return None


def _row(row: Row, text: str, said: str, spans: Sequence[Span]) -> Row:
    columns = {"group": row["group"], "passages": row["passages"]}
    return marked_row(row["id"], row["prompt"], text, Critique(said, quotes_only=True), spans, columns)


def _source(row: Row) -> str:
    return "\n".join(row["passages"])


def _poor(row: Row) -> bool:
    return any(span["verdict"] == "poor" for span in row["spans"])


def _small(word: str) -> bool:
    return word.lower() in FUNCTION_WORDS

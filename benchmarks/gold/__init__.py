"""Gold for alignment: critiques, and the characters of a completion that they are about. Several kinds, one item type.

Enters: the data folder. Leaves: `Item`s. DeFacto and ILF: a word (or line) diff between the completion and a person's
correction; what was removed or replaced is gold; changes of function words only are left out. SQuALITY and QA-Feedback:
the spans that people marked. The other kinds are `perturbed`. Items without gold are left out, and so are items whose
gold is over 80 % of the text, which no critique can point at.

Each kind has a part to develop on and a part held out, split by completion.
"""

import json
import re
from collections.abc import Callable, Iterator
from difflib import SequenceMatcher
from pathlib import Path

from benchmarks.gold.items import MEASURES, SMALL, Item, Part, Score, measure, part_of, score, spanned, visible
from benchmarks.gold.perturbed import clauses, details, facts, programs, sentences

__all__ = [
    "KINDS",
    "MEASURES",
    "Item",
    "Part",
    "Score",
    "clauses",
    "defacto",
    "details",
    "facts",
    "ilf",
    "load",
    "measure",
    "programs",
    "qa",
    "score",
    "sentences",
    "squality",
]

_WORD = re.compile(r"\w+(?:[-'’.,]\w+)*")


def defacto(folder: Path, split: str, critique: str = "explanation") -> Iterator[Item]:
    """News summaries; `critique` chooses between a person's explanation and a person's instruction."""
    path = folder / "summarization" / f"defacto_{split}.jsonl"
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        row = json.loads(line)
        said = row["feedback"][critique]
        if not row["has_error"] or not row["feedback"]["summary"].strip() or not said.strip():
            continue
        made = _item(f"{split}-{number}", row["candidate"], said, row["feedback"]["summary"], row["article"])
        if made is not None:
            yield made


def ilf(folder: Path) -> Iterator[Item]:
    """Wrong programs; the completion is what follows the prompt, the docstring apart."""
    path = folder / "code" / "ilf_feedback_dev.jsonl"
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        row = json.loads(line)
        program = row["original_model_completion"]
        completion = program[len(row["prompt"]) :] if program.startswith(row["prompt"]) else program
        revision = row["completion"].replace("\r\n", "\n")
        places = _changed_lines(completion, revision)
        universe = visible(completion) - _docstring(completion)
        gold = frozenset(place for start, end in places for place in range(start, end)) & universe
        if gold and len(gold) <= 0.8 * len(universe):
            yield Item(
                "ilf", f"ilf-{number}", completion, row["Feedback"], revision, row["prompt"], gold, universe, lines=True
            )


def squality(folder: Path) -> Iterator[Item]:
    """Summaries of long stories, which are not given; the critique is a reviewer's comment on the spans it marks."""
    path = folder / "align" / "squality_reviews_dev.jsonl"
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        spans = [(span["start"], span["end"]) for span in row["spans"]]
        made = spanned("squality", row["id"], row["completion"], row["critique"], None, spans, praise=True)
        if made is not None:
            yield made


_WORDINGS = {
    "Wrong-Grounding": ("The passages say: {}", "This is wrong. {}", "{}", "Not what the passage says: {}"),
    "Redundant": ("Redundant: {}", "This was said before: {}", "Already told: {}", "Repeats: {}"),
}


def qa(folder: Path) -> Iterator[Item]:
    """Answers from passages; the critique is a mark's explanation: the sentence of the passages that contradicts it, or
    what it repeats. The explanation is not put between quotation marks."""
    rows = json.loads((folder / "qa" / "qa_feedback_dev.json").read_text(encoding="utf-8"))
    for number, row in enumerate(rows):
        source = "\n".join(" ".join(passage) for passage in row["passages"])
        for index, mark in enumerate(row["feedback"]["errors"]):
            said = (mark.get("explanation") or "").strip()
            if said.startswith("{"):
                place = json.loads(said)
                passage = row["passages"][place["passage_id"] - 1]
                said = " ".join(" ".join(passage[index] for index in place["sentence_id"]).split())
            wordings = _WORDINGS.get(mark["error type"], ("{}",))
            if said:
                critique = wordings[(number + index) % len(wordings)].format(said)
                span = (mark["start"], mark["end"])
                made = spanned("qa", f"qa-{number}-{index}", row["prediction 1"], critique, source, [span])
                if made is not None:
                    yield made


def _halves(read: Callable[[Path], Iterator[Item]]) -> Callable[[Path, Part], Iterator[Item]]:
    """Half of the items, by completion."""
    return lambda folder, part: (item for item in read(folder) if part_of(item.completion) == part)


KINDS: dict[str, Callable[[Path, Part], Iterator[Item]]] = {
    "defacto": lambda folder, part: defacto(folder, "train" if part == "develop" else "val"),
    "ilf": _halves(ilf),
    "squality": _halves(squality),
    "qa": _halves(qa),
    "facts": facts,
    "details": details,
    "clauses": clauses,
    "sentences": sentences,
    "programs": programs,
}


def load(folder: Path, part: Part) -> dict[str, list[Item]]:
    """Kind → its items."""
    return {kind: list(read(folder, part)) for kind, read in KINDS.items()}


def _item(name: str, completion: str, critique: str, revision: str, source: str) -> Item | None:
    words = [(match.start(), match.end()) for match in _WORD.finditer(completion)]
    ours, theirs = [completion[start:end].lower() for start, end in words], _WORD.findall(revision.lower())
    universe = visible(completion)
    gold: set[int] = set()
    for tag, a, b, c, d in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if tag != "equal" and b > a and any(word not in SMALL for word in (*ours[a:b], *theirs[c:d])):
            gold.update(range(words[a][0], words[b - 1][1]))
    if not gold or len(gold & universe) > 0.8 * len(universe):
        return None
    return Item("defacto", name, completion, critique, revision, source, frozenset(gold) & universe, universe)


def _changed_lines(completion: str, revision: str) -> list[tuple[int, int]]:
    """Places of the lines that have no counterpart in the revision; indentation and blank lines apart."""
    lines = [(match.start(), match.end()) for match in re.finditer(r"[^\n]*\S[^\n]*", completion)]
    ours = [_tight(completion[start:end]) for start, end in lines]
    theirs = [_tight(line) for line in revision.splitlines() if line.strip()]
    codes = SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes()
    return [place for tag, a, b, _, _ in codes if tag != "equal" for place in lines[a:b]]


def _tight(line: str) -> str:
    return re.sub(r"\s+", "", line)


def _docstring(completion: str) -> frozenset[int]:
    match = re.match(r"\s*(?:\"\"\".*?\"\"\"|'''.*?''')", completion, re.DOTALL)
    return frozenset(range(match.end())) if match else frozenset()

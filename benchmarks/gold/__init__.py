"""Gold for alignment, made from what people wrote and corrected: which characters of a completion a critique is about.

Enters: the data folder. Leaves: `Item`s. The rule: a word (or line) diff between the completion and a person's
correction; what was removed or replaced is gold. Changes of function words only are left out, and so are items without
gold and items whose gold is over 80 % of the text, which no critique can point at. Only non-white characters count.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

_SMALL = """
a an the of in on at to for from by with and or but as is are was were be been being has have had it its his her
their he she they this that these those which who whom whose will would can could may might do does did not so than
then there up out into over
"""
SMALL = frozenset(_SMALL.split())
_WORD = re.compile(r"\w+(?:[-'’.,]\w+)*")


@dataclass(frozen=True)
class Item:
    name: str
    completion: str
    critique: str
    revision: str
    source: str | None
    gold: frozenset[int]
    """Indices of the non-white characters that the correction removed or replaced."""
    universe: frozenset[int]
    """Indices of the characters that count at all."""
    lines: bool = False
    """Predictions are snapped to whole lines."""


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
        universe = _visible(completion) - _docstring(completion)
        gold = frozenset(place for start, end in places for place in range(start, end)) & universe
        if gold and len(gold) <= 0.8 * len(universe):
            yield Item(
                f"ilf-{number}", completion, row["Feedback"], revision, row["prompt"], gold, universe, lines=True
            )


def _item(name: str, completion: str, critique: str, revision: str, source: str) -> Item | None:
    words = [(match.start(), match.end()) for match in _WORD.finditer(completion)]
    ours, theirs = [completion[start:end].lower() for start, end in words], _WORD.findall(revision.lower())
    universe = _visible(completion)
    gold: set[int] = set()
    for tag, a, b, c, d in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if tag != "equal" and b > a and any(word not in SMALL for word in (*ours[a:b], *theirs[c:d])):
            gold.update(range(words[a][0], words[b - 1][1]))
    if not gold or len(gold & universe) > 0.8 * len(universe):
        return None
    return Item(name, completion, critique, revision, source, frozenset(gold) & universe, universe)


def _visible(text: str) -> frozenset[int]:
    return frozenset(index for index, character in enumerate(text) if not character.isspace())


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


def snap_to_lines(text: str, places: set[int]) -> set[int]:
    """Every line that holds one of the characters, whole."""
    found: set[int] = set()
    for match in re.finditer(r"[^\n]+", text):
        line = range(match.start(), match.end())
        if not places.isdisjoint(line):
            found.update(line)
    return found


def score(item: Item, places: set[int]) -> tuple[float, bool, bool]:
    """(character F1, whether the intersection is at least half of the union, whether nothing was predicted)."""
    if item.lines:
        places = snap_to_lines(item.completion, places)
    found = places & item.universe
    both = len(found & item.gold)
    union = len(found | item.gold)
    return 2 * both / (len(found) + len(item.gold)), both / union >= 0.5, not found

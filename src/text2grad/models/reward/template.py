"""The one prompt template of a reward model: prompt, completion, again the completion, critique.

Enters: texts and a tokenizer. Leaves: ids, and where in them the second reading of the completion stands; a causal
model that labels on the first has not seen the rest. Stored with the weights: training, RL and evaluation read the
same. Where there is no room, prompts lose their middle; the words around them and the completion are never cut.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Gt
from numpy.typing import NDArray

from text2grad._checked import Int
from text2grad.config import plain, settings
from text2grad.errors import ConfigError, InvalidData
from text2grad.feedback.critics.protocol import Prompt
from text2grad.feedback.critics.words import cite, prompt_text
from text2grad.models.offsets import decode_all
from text2grad.types import Alignment, Critique

LEAST = 16
"""Tokens of a shortened prompt that a judge should still see; with fewer a completion is not scored."""
NOTHING = "Nothing stands out."
"""The critique of a completion of which nothing was said."""


@settings
class Template:
    """The words around the parts, and the room there is."""

    before: str = "Prompt:\n"
    """Before the prompt; instructions for the judge go here."""
    between: str = "\n\nText:\n"
    """Between the prompt and the completion."""
    again: str = "\n\nAgain:\n"
    """Between the two readings of the completion."""
    after: str = "\n\nCritique:\n"
    """Between the completion and its critique."""
    gap: str = " […] "
    """What stands for the middle of a prompt that is too long."""
    max_tokens: Annotated[Int, Gt(16)] = 1024
    """Tokens of all of it together, critique included; no more than the model has positions for."""
    writes: Literal["words", "quotes"] = "words"
    """What the language head learns to write: the critique's own words; or the paper's way, one JSON object with the
    words and every quote, which takes several times as many tokens and can be judged by without a span head."""
    critique_tokens: Annotated[Int, Gt(0)] = 256
    """Tokens of the critique at most: room that is kept for it, and where writing it ends."""

    def within(self, model: Any) -> "Template":
        """The same, with no more room than the model has positions for."""
        positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        return replace(self, max_tokens=min(self.max_tokens, positions or self.max_tokens))


def continued(wanted: Template, stored: Template, model: str) -> Template:
    """The template of a reward model that goes on learning: the one that is stored with it. Settings that are not the
    default may give it another room; other words are refused, because its weights know those that are stored."""
    asked = {name: value for name, value in plain(wanted).items() if value != getattr(Template(), name)}
    for name, value in asked.items():
        if name not in ("max_tokens", "critique_tokens") and value != getattr(stored, name):
            raise ConfigError(
                f"template.{name}={value!r}: {model} has learned to read {getattr(stored, name)!r} there; leave the "
                f"setting out to go on with that, or start from a model that is no reward model yet"
            )
    return replace(stored, **asked)


@dataclass(frozen=True, slots=True)
class Encoded:
    """A prompt and a completion as ids, up to where the critique begins."""

    ids: tuple[int, ...]
    first: int
    """Where the second reading of the completion begins."""
    offsets: NDArray[np.int64]
    """(T, 2): the characters of each of its tokens."""

    @property
    def positions(self) -> list[int]:
        """Where the span head is read: on each token of the second reading, and where the critique begins."""
        return [*range(self.first, self.first + len(self.offsets)), len(self.ids) - 1]


class Reader:
    """A template with the tokenizer that it is read by."""

    def __init__(self, template: Template, tokenizer: Any) -> None:
        self.template, self.tokenizer = template, tokenizer
        before = tokenizer(template.before, add_special_tokens=True).input_ids
        # Some tokenizers close every text with their end token; this one goes on.
        self._before = before[:-1] if len(before) > 1 and before[-1] == tokenizer.eos_token_id else before
        self._between, self._again, self._after, self._gap = (
            self._ids(words) for words in (template.between, template.again, template.after, template.gap)
        )
        if not self._after:
            raise InvalidData("template.after should hold at least one token: the decision to stop is judged there")

    def encode(self, prompt: Prompt, completion: str) -> Encoded:
        """All but the critique. `InvalidData` where the completion alone is too long."""
        (found,) = self.encode_all([prompt], [completion])
        if isinstance(found, InvalidData):
            raise found
        return found

    def encode_all(self, prompts: Sequence[Prompt], completions: Sequence[str]) -> list[Encoded | InvalidData]:
        """The same of many, in one call of the tokenizer, a text that comes again once; what `encode` would raise is
        in the place of what it would give."""
        sources = list(map(prompt_text, prompts))
        texts = list(dict.fromkeys([*sources, *completions]))
        known = dict(zip(texts, self._all_ids(texts), strict=True))
        offsets = self._offsets(list(dict.fromkeys(completions)), known)
        found: list[Encoded | InvalidData] = []
        for source, completion in zip(sources, completions, strict=True):
            try:
                found.append(self._joined(known[source], known[completion], offsets[completion]))
            except InvalidData as problem:
                found.append(problem)
        return found

    def _joined(self, source: list[int], ids: list[int], offsets: NDArray[np.int64] | InvalidData) -> Encoded:
        fixed = sum(map(len, (self._before, self._between, self._again, self._after))) + 2 * len(ids)
        room = self.template.max_tokens - self.template.critique_tokens - fixed
        if room < 0:
            raise InvalidData(
                f"the completion has {len(ids)} tokens, and reading it twice leaves no room in template.max_tokens="
                f"{self.template.max_tokens}, of which the critique has {self.template.critique_tokens}"
            )
        start = [*self._before, *self._shortened(source, room), *self._between, *ids, *self._again]
        if isinstance(offsets, InvalidData):
            raise offsets
        return Encoded((*start, *ids, *self._after), len(start), offsets)

    def critique_ids(self, critique: Critique, alignment: Alignment, completion: str) -> tuple[int, ...] | None:
        """What the language head is to write; None where there is no room for the whole of it."""
        said = written(critique, alignment, completion, quotes=self.template.writes == "quotes")
        ids = (*self._ids(said), self.tokenizer.eos_token_id)
        return ids if len(ids) <= self.template.critique_tokens else None

    def _ids(self, text: str) -> list[int]:
        return self._all_ids([text])[0]

    def _all_ids(self, texts: list[str]) -> list[list[int]]:
        if not texts:
            return []
        # What spells a special token is text all the same: no completion puts an end into what its judge reads.
        ids: list[list[int]] = self.tokenizer(
            texts, add_special_tokens=False, split_special_tokens=True, return_attention_mask=False
        ).input_ids
        return ids

    def _shortened(self, ids: list[int], room: int) -> list[int]:
        """Without its middle, if it is longer than there is room."""
        if len(ids) <= room:
            return ids
        keep = room - len(self._gap)
        if keep < LEAST:
            raise InvalidData(
                f"the completion leaves room for {max(keep, 0)} of the {len(ids)} tokens of its prompt, too few to "
                f"judge by; raise template.max_tokens={self.template.max_tokens}"
            )
        return [*ids[: keep - keep // 2], *self._gap, *ids[len(ids) - keep // 2 :]]

    def _offsets(self, texts: list[str], known: Mapping[str, list[int]]) -> dict[str, NDArray[np.int64] | InvalidData]:
        """The characters of each token of each text, or why they are not known."""
        found: dict[str, NDArray[np.int64] | InvalidData] = {}
        for text, (decoded, ranges) in zip(
            texts, decode_all(self.tokenizer, [known[text] for text in texts]), strict=True
        ):
            if decoded == text:
                found[text] = ranges
            elif not self.tokenizer.is_fast:
                found[text] = InvalidData(
                    "the tokenizer changes this text when it reads it, so its tokens cannot be located"
                )
            else:
                mapped = self.tokenizer(
                    text, add_special_tokens=False, split_special_tokens=True, return_offsets_mapping=True
                ).offset_mapping
                found[text] = np.array(mapped, dtype=np.int64).reshape(-1, 2)
        return found


def written(critique: Critique, alignment: Alignment, completion: str, *, quotes: bool) -> str:
    """A critique as the language head writes it: its words, or, with `quotes`, the JSON object that model critics are
    asked for."""
    quoted = [
        {"text": text, "verdict": span.verdict} for span in alignment.spans if (text := span.slice(completion)).strip()
    ]
    said = critique.feedback.strip() or " ".join(f"{cite(one['text'])} is {one['verdict']}." for one in quoted)
    if not quotes:
        return said or NOTHING
    omissions = list(alignment.omissions or critique.omissions)
    return json.dumps({"critique": said or NOTHING, "quotes": quoted, "omissions": omissions}, ensure_ascii=False)

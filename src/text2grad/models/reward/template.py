"""The prompt template of a reward model: prompt, completion, the completion again, critique.

Enters: texts and a tokenizer. Leaves: ids, and where in them the second reading of the completion stands. Labels are
read there, because a causal model on its first reading has not seen the rest. The template is stored with the weights,
so that training, RL and evaluation read the same. A prompt that is too long loses its middle; nothing else is cut.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from text2grad.config import plain
from text2grad.errors import ConfigError, InvalidData
from text2grad.feedback.critics.protocol import Prompt
from text2grad.feedback.critics.words import UNENCODABLE, cite, encodable, prompt_text
from text2grad.models.chat import open_ids
from text2grad.models.offsets import decode_all
from text2grad.models.settings import Template
from text2grad.types import Alignment, Critique

LEAST = 16
"""Tokens that must be left of a shortened prompt; with fewer a completion is not scored."""
NOTHING = "Nothing stands out."
"""The critique of a completion that nobody said anything about."""


def continued(wanted: Template, stored: Template, model: str) -> Template:
    """The template of a reward model whose training continues: the stored one, with the room of `wanted` where that is
    not the default. Other words are refused, because the weights have learned the stored ones."""
    asked = {name: value for name, value in plain(wanted).items() if value != getattr(Template(), name)}
    for name, value in asked.items():
        if name not in ("max_tokens", "critique_tokens") and value != getattr(stored, name):
            raise ConfigError(
                f"template.{name}={value!r}: {model} has learned to read {getattr(stored, name)!r} there; leave the "
                f"setting out, or start from a model that is not a reward model yet"
            )
    return replace(stored, **asked)


@dataclass(frozen=True, slots=True)
class FilledTemplate:
    """A prompt and a completion as ids, up to where the critique begins."""

    ids: tuple[int, ...]
    first: int
    """Where the second reading of the completion begins."""
    offsets: NDArray[np.int64]
    """(T, 2): the characters of each of its tokens."""


class Reader:
    """A template and the tokenizer that it is read with."""

    def __init__(self, template: Template, tokenizer: Any) -> None:
        self.template, self.tokenizer = template, tokenizer
        self._before = open_ids(tokenizer, template.before)
        self._between, self._again, self._after, self._gap = (
            self._ids([words])[0] for words in (template.between, template.again, template.after, template.gap)
        )
        if not self._after:
            raise InvalidData("template.after should hold at least one token: the decision to stop is labelled there")

    def encode(self, prompt: Prompt, completion: str) -> FilledTemplate:
        """All but the critique. Raises `InvalidData` where the completion does not fit."""
        (encoded,) = self.encode_all([prompt], [completion])
        if isinstance(encoded, InvalidData):
            raise encoded
        return encoded

    def encode_all(self, prompts: Sequence[Prompt], completions: Sequence[str]) -> list[FilledTemplate | InvalidData]:
        """Many at once, in one call of the tokenizer, equal texts once. Where `encode` would raise, its error."""
        sources = list(map(prompt_text, prompts))
        texts = [text for text in dict.fromkeys([*sources, *completions]) if encodable(text)]
        ids = dict(zip(texts, self._ids(texts), strict=True))
        unique = [text for text in dict.fromkeys(completions) if text in ids]
        decoded = decode_all(self.tokenizer, [ids[text] for text in unique])
        offsets = {text: self._offsets(text, *pair) for text, pair in zip(unique, decoded, strict=True)}
        encoded: list[FilledTemplate | InvalidData] = []
        for source, completion in zip(sources, completions, strict=True):
            try:
                if not (source in ids and completion in ids):
                    raise InvalidData(UNENCODABLE)
                encoded.append(self._joined(ids[source], ids[completion], offsets[completion]))
            except InvalidData as problem:
                encoded.append(problem)
        return encoded

    def _joined(self, source: list[int], ids: list[int], offsets: NDArray[np.int64] | None) -> FilledTemplate:
        fixed = sum(map(len, (self._before, self._between, self._again, self._after))) + 2 * len(ids)
        room = self.template.max_tokens - self.template.critique_tokens - fixed
        if room < 0:
            raise InvalidData(
                f"the completion has {len(ids)} tokens, and reading it twice leaves no room in template.max_tokens="
                f"{self.template.max_tokens}, of which template.critique_tokens={self.template.critique_tokens} are "
                f"reserved for the critique; lower that, or raise template.max_tokens where the model has the positions"
            )
        start = [*self._before, *self._shortened(source, room), *self._between, *ids, *self._again]
        if offsets is None:
            raise InvalidData("the tokenizer changes this text when it reads it, so its tokens cannot be located")
        return FilledTemplate((*start, *ids, *self._after), len(start), offsets)

    def critique_ids(self, critique: Critique, alignment: Alignment, completion: str) -> tuple[int, ...] | None:
        """What the language head learns to write; None where all of it does not fit."""
        text = written(critique, alignment, completion, quotes=self.template.writes == "quotes")
        ids = (*self._ids([text])[0], self.tokenizer.eos_token_id)
        return ids if len(ids) <= self.template.critique_tokens else None

    def _ids(self, texts: list[str]) -> list[list[int]]:
        if not texts:
            return []
        # Text that spells a special token stays text: no completion puts an end into what its judge reads.
        options = {"add_special_tokens": False, "split_special_tokens": True, "return_attention_mask": False}
        ids: list[list[int]] = self.tokenizer(texts, **options).input_ids
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

    def _offsets(self, text: str, decoded: str, offsets: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """The characters of each token, (T, 2). Where the ids do not spell the text, by the tokenizer's own mapping;
        None if it has none."""
        if decoded == text:
            return offsets
        if not self.tokenizer.is_fast:
            return None
        options = {"add_special_tokens": False, "split_special_tokens": True, "return_offsets_mapping": True}
        return np.array(self.tokenizer(text, **options).offset_mapping, dtype=np.int64).reshape(-1, 2)


def written(critique: Critique, alignment: Alignment, completion: str, *, quotes: bool) -> str:
    """A critique as the language head writes it: its words, or, with `quotes`, the JSON object that model critics are
    asked for."""
    quoted = [
        {"text": text, "verdict": span.verdict} for span in alignment.spans if (text := span.slice(completion)).strip()
    ]
    words = critique.feedback.strip() or " ".join(f"{cite(quote['text'])} is {quote['verdict']}." for quote in quoted)
    if not quotes:
        return words or NOTHING
    omissions = list(alignment.omissions or critique.omissions)
    return json.dumps({"critique": words or NOTHING, "quotes": quoted, "omissions": omissions}, ensure_ascii=False)

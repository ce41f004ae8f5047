"""A small learned reader: which words of a completion a critique is about.

Enters: questions (completion, critique, source) and a pretrained encoder. Leaves: the probability of each word of the
completion that it is meant, and the places that follow from these. One pass reads critique and completion together. Of
the source it knows only which words stand in it, so a long source costs nothing. Imports nothing of text2grad but words
and stems, so that a bare machine can train it.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from text2grad.feedback.text import FUNCTION_WORDS, PIECE, WORD, Place, stem

FLAGS = 8
"""Kinds of word: whether the other text has it (2) × the source: none, has it, lacks it, a function word (4)."""
_GLUE = frozenset(" \t\n-–—'’\"“”(),&/;:")
_ADAPTED = ("query", "key", "value", "dense")
"""Linear layers of an encoder that are adapted."""


class Asked(Protocol):
    """A `Question` of alignment, or anything like it."""

    @property
    def completion(self) -> str: ...
    @property
    def critique(self) -> str: ...
    @property
    def source(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Card:
    """What belongs to a reader."""

    encoder: str
    rank: int = 32
    scale: float = 2.0
    critique: int = 128
    """Tokens of a critique that are read."""
    window: int = 320
    """Tokens of a completion that are read at once."""
    stride: int = 240
    """Tokens from one window to the next."""
    threshold: float = 0.15
    """It abstains where no word is likelier than this."""
    certain: float = 0.5
    """Every word that is likelier than this is chosen."""
    bridge: int = 2
    """So many words between two chosen ones are chosen as well."""


# ---- Texts → rows of numbers -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """A critique and one window of its completion."""

    ids: list[int]
    types: list[int]
    flags: list[int]
    first: int
    """Where the window's tokens begin in the row."""
    units: list[int]
    """For each token of the window, the number of its unit; −1 for punctuation."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A question as rows. Its units are words, or single characters of scripts without spaces."""

    places: list[Place]
    rows: list[Row]


class Encoder:
    """Questions → rows, with the encoder's own tokenizer (of the package `tokenizers`)."""

    def __init__(self, tokenizer: Any, begin: int, end: int, card: Card) -> None:
        self.tokenizer, self.begin, self.end, self.card = tokenizer, begin, end, card
        tokenizer.no_truncation()
        tokenizer.no_padding()

    def __call__(self, questions: Sequence[Asked]) -> list[Encoded]:
        texts = [text for question in questions for text in (question.critique, question.completion)]
        tokens = self.tokenizer.encode_batch(texts, add_special_tokens=False)
        return [
            self._encoded(question, tokens[2 * index], tokens[2 * index + 1])
            for index, question in enumerate(questions)
        ]

    def _encoded(self, question: Asked, said: Any, written: Any) -> Encoded:
        card = self.card
        source = None if not question.source else _stems(question.source)
        head = said.ids[: card.critique]
        known = _flags(question.critique, said.offsets[: card.critique], _stems(question.completion), source)
        flags = _flags(question.completion, written.offsets, _stems(question.critique), source)
        places = units_of(question.completion)
        units = _units(written.offsets, places)
        rows = []
        for start in _starts(len(written.ids), card.window, card.stride):
            part = slice(start, start + card.window)
            body = written.ids[part]
            ids = [self.begin, *head, self.end, *body, self.end]
            types = [0] * (len(head) + 2) + [1] * (len(body) + 1)
            rows.append(Row(ids, types, [0, *known, 0, *flags[part], 0], len(head) + 2, units[part]))
        return Encoded(places, rows)


def units_of(text: str) -> list[Place]:
    """Words, and single characters of scripts without spaces; not punctuation.

    >>> units_of("nine, 三隻")
    [(0, 4), (6, 7), (7, 8)]
    """
    return [match.span() for match in PIECE.finditer(text) if match[0][0].isalnum() or match[0][0] == "_"]


def _starts(count: int, window: int, stride: int) -> list[int]:
    """
    >>> _starts(10, 4, 3), _starts(3, 4, 3)
    ([0, 3, 6], [0])
    """
    starts = [0]
    while starts[-1] + window < count:
        starts.append(starts[-1] + stride)
    return starts


def _stems(text: str) -> frozenset[str]:
    return frozenset(stem(word) for word in {match[0].lower() for match in WORD.finditer(text)} - FUNCTION_WORDS)


def _flags(text: str, offsets: Sequence[Place], other: frozenset[str], source: frozenset[str] | None) -> list[int]:
    """The kind of each token's word."""
    kinds, starts = [], []
    for match in WORD.finditer(text):
        word = match[0].lower()
        small, root = word in FUNCTION_WORDS, stem(word)
        known = 0 if source is None else 3 if small else 1 if root in source else 2
        kinds.append(4 * (not small and root in other) + known)
        starts.append(match.start())
    return [kinds[at] if (at := bisect_right(starts, start) - 1) >= 0 else 0 for start, _ in offsets]


def _units(offsets: Sequence[Place], places: Sequence[Place]) -> list[int]:
    starts = [start for start, _ in places]
    found = []
    for start, end in offsets:
        at = bisect_right(starts, max(start, end - 1)) - 1
        found.append(at if at >= 0 and start < places[at][1] else -1)
    return found


# ---- The network -----------------------------------------------------------------------------------------------------


class Network(nn.Module):
    """An encoder, an embedding of the kinds of words, and one number per token: the log-odds that it is meant."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        width = encoder.config.hidden_size
        self.encoder = encoder
        self.flags = nn.Embedding(FLAGS, width)
        self.head = nn.Linear(width, 1)
        nn.init.zeros_(self.flags.weight)

    def forward(
        self, ids_BT: torch.Tensor, types_BT: torch.Tensor, flags_BT: torch.Tensor, mask_BT: torch.Tensor
    ) -> torch.Tensor:
        words_BTD = self.encoder.get_input_embeddings()(ids_BT) + self.flags(flags_BT)
        typed = {"token_type_ids": types_BT} if getattr(self.encoder.config, "type_vocab_size", 0) > 1 else {}
        states_BTD = self.encoder(inputs_embeds=words_BTD, attention_mask=mask_BT, **typed).last_hidden_state
        logits_BT: torch.Tensor = self.head(states_BTD)[..., 0]
        return logits_BT


class Adapted(nn.Module):
    """A linear layer and a product of two thin matrices (LoRA), which begins at zero."""

    def __init__(self, linear: nn.Linear, rank: int, scale: float) -> None:
        super().__init__()
        self.linear, self.scale = linear.requires_grad_(False), scale
        self.down = nn.Parameter(torch.randn(rank, linear.in_features) / linear.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(linear.out_features, rank))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.linear(given) + self.scale * (given @ self.down.T) @ self.up.T
        return result


def linears(encoder: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Linear]]:
    """(parent, name there, layer) of what is adapted."""
    for path, parent in list(encoder.named_modules()):
        for name, child in list(parent.named_children()):
            if name in _ADAPTED and isinstance(child, nn.Linear) and "pooler" not in path:
                yield parent, name, child


def adapt(network: Network, card: Card) -> None:
    """Freeze the encoder and add what is to be trained."""
    network.encoder.requires_grad_(False)
    for parent, name, layer in list(linears(network.encoder)):
        setattr(parent, name, Adapted(layer, card.rank, card.scale).to(layer.weight.device))


# ---- Rows → probabilities → places -----------------------------------------------------------------------------------


@torch.inference_mode()
def chances(
    network: Network, encoded: Sequence[Encoded], pad: int, batch_tokens: int = 8192
) -> list[NDArray[np.float32]]:
    """The probability of each unit of each question. Rows of like length go together."""
    device = next(network.parameters()).device
    sums = [np.zeros((2, len(each.places))) for each in encoded]
    rows = sorted(((len(row.ids), k, row) for k, each in enumerate(encoded) for row in each.rows), key=lambda r: r[:2])
    while rows:
        count = 1
        # From the shortest; the last of a batch is its longest.
        while count < len(rows) and rows[count][0] * (count + 1) <= batch_tokens:
            count += 1
        batch, rows = rows[:count], rows[count:]
        logits_BT = network(*tensors([row for *_, row in batch], pad, device)).float()
        for (_, k, row), chance in zip(batch, torch.sigmoid(logits_BT).cpu().numpy(), strict=True):
            units = np.array(row.units)
            inside = chance[row.first : row.first + len(units)]
            np.add.at(sums[k][0], units[units >= 0], inside[units >= 0])
            np.add.at(sums[k][1], units[units >= 0], 1)
    return [(total / np.maximum(count, 1)).astype(np.float32) for total, count in sums]


def tensors(rows: Sequence[Row], pad: int, device: Any) -> tuple[torch.Tensor, ...]:
    """ids, types, flags and mask, (B, T) each, padded on the right."""
    longest = max(len(row.ids) for row in rows)
    stacked = np.zeros((4, len(rows), longest), dtype=np.int64)
    stacked[0] = pad
    for index, row in enumerate(rows):
        length = len(row.ids)
        stacked[0, index, :length], stacked[1, index, :length] = row.ids, row.types
        stacked[2, index, :length], stacked[3, index, :length] = row.flags, 1
    return tuple(torch.from_numpy(stacked).to(device))


def decode(text: str, places: Sequence[Place], chance: NDArray[np.float32], card: Card) -> list[tuple[int, int, float]]:
    """Places with their mean probability. Units that follow each other, or nearly so, are one place.

    >>> card = Card("e", bridge=1)
    >>> decode("nine grey ships", [(0, 4), (5, 9), (10, 15)], np.array([0.9, 0.1, 0.7], dtype=np.float32), card)
    [(0, 15, 0.5667)]
    >>> decode("nine ships", [(0, 4), (5, 10)], np.array([0.1, 0.05], dtype=np.float32), card)
    []
    """
    chosen = np.flatnonzero(likeliest(chance, np.array([b - a for a, b in places]), card)).tolist()
    runs: list[list[int]] = []
    for unit in chosen:
        if runs and unit - runs[-1][1] - 1 <= card.bridge and _joined(text, places[runs[-1][1] : unit + 1]):
            runs[-1][1] = unit
        else:
            runs.append([unit, unit])
    return [
        (places[first][0], places[last][1], round(float(chance[first : last + 1].mean()), 4)) for first, last in runs
    ]


def likeliest(chance: NDArray[np.float32], lengths: NDArray[np.int64], card: Card) -> NDArray[np.bool_]:
    """Every unit that is likely enough; where none is, those with the highest expected F1; none below the threshold."""
    chosen: NDArray[np.bool_] = chance >= card.certain
    if chosen.any() or not len(chance) or chance.max() < card.threshold:
        return chosen
    order = np.argsort(-chance, kind="stable")
    mass = chance[order] * lengths[order]
    expected = 2 * np.cumsum(mass) / (np.cumsum(lengths[order]) + mass.sum())
    chosen[order[: int(np.argmax(expected)) + 1]] = True
    return chosen


def _joined(text: str, places: Sequence[Place]) -> bool:
    """Whether nothing but glue stands between these units: no full stop, no line break."""
    return all(_GLUE.issuperset(text[a[1] : b[0]]) for a, b in pairwise(places))

"""The small learned scorers: rows of evidence → the probability that a word, or a line, is meant.

Enters: evidence with named columns. Leaves: one probability per row. Weights are data beside this file, made by
`scripts/train_aligner.py`: for words an average of a few very small recurrent networks that read a sentence both ways,
for lines one weight per column. numpy only. A column that the weights do not know, or no longer gets, is an error and
not a guess.
"""

import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from text2grad.errors import InvalidData

Rows = NDArray[np.float32]


class WordTagger:
    """Reads whole sentences: each word's probability sees the words before and behind it."""

    def __init__(self, weights: dict[str, Any]) -> None:
        self.columns = tuple(weights["columns"])
        self.mean, self.scale = _array(weights["mean"]), _array(weights["scale"])
        nets = weights["nets"]
        self.into = np.stack([_array(net["into"]) for net in nets])  # nets, columns, hidden
        self.into_bias = np.stack([_array(net["into_bias"]) for net in nets])[:, None]
        # nets, directions, hidden, 3 × hidden: the gates reset, update and new, as in torch's GRU
        self.gates_in = np.stack([_array(net["gates_in"]) for net in nets])
        self.gates_in_bias = np.stack([_array(net["gates_in_bias"]) for net in nets])[:, :, None]
        self.gates_state = np.stack([_array(net["gates_state"]) for net in nets])
        self.gates_state_bias = np.stack([_array(net["gates_state_bias"]) for net in nets])[:, :, None]
        self.out = np.stack([_array(net["out"]) for net in nets])  # nets, 2 × hidden
        self.out_bias = np.array([net["out_bias"] for net in nets], dtype=np.float32)

    def __call__(self, sentences: Sequence[Rows]) -> list[NDArray[np.float32]]:
        """Probabilities of the words of each sentence; sentences of different lengths go through together."""
        lengths = np.array([len(rows) for rows in sentences])
        if not lengths.sum():
            return [np.zeros(0, dtype=np.float32) for _ in sentences]
        flat = (np.vstack([rows for rows in sentences if len(rows)]) - self.mean) / self.scale
        entered = np.tanh(flat @ self.into + self.into_bias)  # nets, words, hidden
        gates = entered[:, None] @ self.gates_in + self.gates_in_bias  # nets, directions, words, 3 × hidden
        states = self._read(gates, lengths)
        both = np.concatenate([states[:, 0], states[:, 1]], axis=-1)  # nets, words, 2 × hidden
        logits = (both @ self.out[:, :, None])[..., 0] + self.out_bias[:, None]
        probabilities = 1.0 / (1.0 + np.exp(-logits.mean(axis=0)))
        return [part.astype(np.float32) for part in np.split(probabilities, np.cumsum(lengths)[:-1])]

    def _read(self, gates: Rows, lengths: NDArray[np.int64]) -> Rows:
        """Both directions at once, all sentences at once, one step per word of the longest."""
        nets, _, words, width = gates.shape
        hidden = width // 3
        starts = np.cumsum(lengths) - lengths
        states = np.zeros((nets, 2, words, hidden), dtype=np.float32)
        state = np.zeros((nets, 2, len(lengths), hidden), dtype=np.float32)
        for step in range(int(lengths.max())):
            alive = np.flatnonzero(lengths > step)
            at = np.stack([starts[alive] + step, starts[alive] + lengths[alive] - 1 - step])
            given = np.stack([gates[:, 0, at[0]], gates[:, 1, at[1]]], axis=1)
            old = state[:, :, alive]
            kept = old @ self.gates_state + self.gates_state_bias
            opened = 1.0 / (1.0 + np.exp(-(given[..., : 2 * hidden] + kept[..., : 2 * hidden])))
            fresh = np.tanh(given[..., 2 * hidden :] + opened[..., :hidden] * kept[..., 2 * hidden :])
            update = opened[..., hidden:]
            now = (1.0 - update) * fresh + update * old
            state[:, :, alive] = now
            states[:, 0, at[0]] = now[:, 0]
            states[:, 1, at[1]] = now[:, 1]
        return states


class LineScorer:
    """One weight per column."""

    def __init__(self, weights: dict[str, Any]) -> None:
        self.columns = tuple(weights["columns"])
        self.mean, self.scale = _array(weights["mean"]), _array(weights["scale"])
        self.weights, self.bias = _array(weights["weights"]), float(weights["bias"])

    def __call__(self, rows: Rows) -> NDArray[np.float32]:
        return (1.0 / (1.0 + np.exp(-(((rows - self.mean) / self.scale) @ self.weights + self.bias)))).astype(
            np.float32
        )


T = TypeVar("T", WordTagger, LineScorer)


@cache
def word_tagger() -> WordTagger:
    """The one that comes with the package."""
    from text2grad.feedback.align.evidence import COLUMNS

    return _known(WordTagger(_read_weights("words.json")), COLUMNS)


@cache
def line_scorer() -> LineScorer:
    """The one that comes with the package."""
    from text2grad.feedback.align.code import NAMES

    return _known(LineScorer(_read_weights("lines.json")), NAMES)


def _known(scorer: T, columns: Sequence[str]) -> T:
    if tuple(columns) != scorer.columns:
        differ = sorted(set(columns) ^ set(scorer.columns)) or ["their order"]
        raise InvalidData(
            f"the weights should know the columns of the evidence, but differ in {', '.join(differ)}; train again"
        )
    return scorer


def _read_weights(name: str) -> dict[str, Any]:
    text = resources.files("text2grad.feedback.align").joinpath("weights", name).read_text(encoding="utf-8")
    weights: dict[str, Any] = json.loads(text)
    return weights


def _array(values: Any) -> Rows:
    return np.array(values, dtype=np.float32)

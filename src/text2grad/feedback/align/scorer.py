"""Evidence → how likely each word is meant → the words to choose.

Enters: rows of numbers with named columns. Leaves: one probability per row, and a choice. The weights lie beside this
file and are made by `scripts/train_aligner.py`. numpy only. Weights that do not know exactly the columns of the
evidence are an error, not a guess.
"""

import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from text2grad.errors import InvalidData
from text2grad.feedback.align.settings import ParaphraseSettings
from text2grad.feedback.parse import Clause
from text2grad.feedback.text import Place
from text2grad.types import Provenance, Span, Verdict

Rows = NDArray[np.float32]


class WordScorer:
    """An average of small networks that read each word with its neighbours, twice over."""

    def __init__(self, weights: dict[str, Any]) -> None:
        self.mean, self.scale = _array(weights["mean"]), _array(weights["scale"])
        names = weights["nets"][0]
        self.nets = {name: np.stack([_array(net[name]) for net in weights["nets"]]) for name in names}

    def __call__(self, sentences: Sequence[Rows]) -> list[Rows]:
        """Probabilities of the words of each sentence; all sentences go through together."""
        nets, lengths = self.nets, np.array([len(rows) for rows in sentences], dtype=np.int64)
        if not lengths.sum():
            return [np.zeros(0, dtype=np.float32) for _ in sentences]
        # N networks, L layers, K neighbours, W words of all sentences, H hidden units.
        layers, inner, hidden = nets["near"].shape[1:]
        count = inner // hidden
        # Blank rows between the sentences: nobody is a neighbour across them.
        reach = count // 2
        at_W = np.arange(lengths.sum()) + reach * np.repeat(np.arange(1, len(lengths) + 1), lengths)
        padded = np.zeros((len(nets["into"]), int(at_W[-1]) + reach + 1, hidden), dtype=np.float32)
        flat_WC = (np.vstack(sentences) - self.mean) / self.scale
        states = [np.tanh(flat_WC @ nets["into"] + nets["into_bias"][:, None])]
        for layer in range(layers):
            padded[:, at_W] = states[-1]
            near_NKHH = nets["near"][:, layer].reshape(-1, count, hidden, hidden)
            # One product per neighbour: each is too small to wake a second thread, which would cost more than it helps.
            around = sum(padded[:, at_W + k - reach] @ near_NKHH[:, k] for k in range(count))
            states.append(np.tanh(around + nets["near_bias"][:, layer, None]))
        logits_NW = (np.concatenate(states, axis=-1) @ nets["out"][..., None])[..., 0] + nets["out_bias"]
        return np.split(_sigmoid(logits_NW.mean(axis=0)), np.cumsum(lengths)[:-1])


@cache
def word_scorer(columns: tuple[str, ...]) -> WordScorer:
    """The one that comes with the package."""
    file = resources.files("text2grad.feedback.align").joinpath("weights", "words.json")
    weights = json.loads(file.read_text(encoding="utf-8"))
    if columns != tuple(weights["columns"]):
        differ = sorted(set(columns) ^ set(weights["columns"])) or ["their order"]
        raise InvalidData(
            f"words.json should know the evidence's columns, but differs in {', '.join(differ)}: train again"
        )
    return WordScorer(weights)


def _array(values: Any) -> Rows:
    return np.array(values, dtype=np.float32)


def _sigmoid(logits: Rows) -> Rows:
    return (1.0 / (1.0 + np.exp(-logits))).astype(np.float32)


def best_words(probabilities: Rows, lengths: NDArray[np.int64], settings: ParaphraseSettings) -> NDArray[np.bool_]:
    """Every word that is likely enough. Where none is, those whose choice has the highest expected F1 if the
    probabilities are true. None at all where the best is below the threshold.

    >>> best_words(np.array([0.3, 0.02, 0.28], dtype=np.float32), np.array([5, 5, 5]), ParaphraseSettings()).tolist()
    [True, False, True]
    """
    chosen = probabilities >= settings.certain
    if chosen.any() or not len(probabilities) or probabilities.max() < settings.threshold:
        return chosen
    order = np.argsort(-probabilities, kind="stable")
    mass = probabilities[order] * lengths[order]
    expected = 2 * np.cumsum(mass) / (np.cumsum(lengths[order]) + mass.sum())
    chosen[order[: int(np.argmax(expected)) + 1]] = True
    return chosen


def filled(chosen: NDArray[np.bool_], chances: Rows, settings: ParaphraseSettings) -> NDArray[np.bool_]:
    """The chosen words of a sentence with the gaps between them that are likely enough to be meant, too: people mark a
    stretch, not its words.

    >>> chosen, chances = np.array([True, False, True]), np.array([0.6, 0.3, 0.5], dtype=np.float32)
    >>> filled(chosen, chances, ParaphraseSettings(bridge=0.3)).tolist()
    [True, True, True]
    """
    places = np.flatnonzero(chosen).tolist()
    whole = chosen.copy()
    for left, right in pairwise(places):
        if right - left > 1 and chances[left + 1 : right].mean() >= settings.bridge:
            whole[left:right] = True
    return whole


def span_of(
    place: Place, verdict: Verdict, confidence: float, clause: Clause, provenance: Provenance = "paraphrase"
) -> Span:
    """The span that a clause causes without quoting it; `verdict` holds where the clause has none."""
    return Span(
        *place,
        verdict=clause.verdict or verdict,
        severity=clause.severity,
        provenance=provenance,
        confidence=round(min(1.0, confidence), 4),
        comment=clause.text,
    )

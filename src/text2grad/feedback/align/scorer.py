"""Evidence → how likely each word is meant → the words to choose.

Enters: rows of numbers with named columns. Leaves: one probability per row, and a choice. The weights lie beside this
file and are made by `scripts/train_aligner.py`. numpy only. Weights that do not know exactly the columns of the
evidence are an error, not a guess.
"""

import json
from functools import cache
from importlib import resources
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
    """An average of small convolutional networks: a word's probability sees the words around it."""

    def __init__(self, weights: dict[str, Any]) -> None:
        self.mean, self.scale = _array(weights["mean"]), _array(weights["scale"])
        names = weights["nets"][0]
        self.nets = {name: np.stack([_array(net[name]) for net in weights["nets"]]) for name in names}

    def __call__(self, rows: Rows) -> Rows:
        """Probabilities of the words of one sentence."""
        nets = self.nets
        # N networks, T words, H hidden units.
        near_NTH = np.tanh((rows - self.mean) / self.scale @ nets["into"] + nets["into_bias"][:, None])
        layers = [near_NTH]
        for layer in ("wide", "wider"):
            layers.append(np.tanh(_convolved(layers[-1], nets[layer]) + nets[f"{layer}_bias"][:, None]))
        logits_NT = (np.concatenate(layers, axis=-1) @ nets["out"][..., None])[..., 0] + nets["out_bias"]
        return _sigmoid(logits_NT.mean(axis=0))


def _convolved(states_NTH: Rows, kernel_NWHH: Rows) -> Rows:
    width, length = kernel_NWHH.shape[1], states_NTH.shape[1]
    padded = np.pad(states_NTH, ((0, 0), (width // 2, width // 2), (0, 0)))
    return sum((padded[:, k : k + length] @ kernel_NWHH[:, k] for k in range(width)), start=np.zeros_like(states_NTH))


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

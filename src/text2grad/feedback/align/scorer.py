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
_KNOWN = 1.5
"""The least log-odds of the gate, a chance of 0.82. At 0 a third of the `details` would pass that it has not seen."""
_BOUNDS_B = (np.arange(100, dtype=np.float32) + 0.5) / 100


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
        flat_WC = (np.vstack(sentences)[:, : len(self.mean)] - self.mean) / self.scale
        states = [np.tanh(flat_WC @ nets["into"] + nets["into_bias"][:, None])]
        for layer in range(layers):
            padded[:, at_W] = states[-1]
            near_NKHH = nets["near"][:, layer].reshape(-1, count, hidden, hidden)
            # One product per neighbour: each is too small to wake a second thread, which would cost more than it helps.
            around = sum(padded[:, at_W + k - reach] @ near_NKHH[:, k] for k in range(count))
            states.append(np.tanh(around + nets["near_bias"][:, layer, None]))
        logits_NW = (np.concatenate(states, axis=-1) @ nets["out"][..., None])[..., 0] + nets["out_bias"]
        return np.split(_sigmoid(logits_NW.mean(axis=0)), np.cumsum(lengths)[:-1])


class SentenceScorer:
    """An average of small recurrent networks (GRU) that read a whole sentence both ways, its evidence and its context.
    They learned from one kind of critique, and a gate tells from the evidence whether a critique is of that kind."""

    def __init__(self, weights: dict[str, Any]) -> None:
        self.mean, self.scale = _array(weights["mean"]), _array(weights["scale"])
        names = weights["nets"][0]
        self.nets = {name: np.stack([_array(net[name]) for net in weights["nets"]]) for name in names}
        self.gate = {name: _array(values) for name, values in weights["gate"].items()}

    def knows(self, sentences: Sequence[Rows]) -> bool:
        """Whether the evidence of a critique looks like what the networks learned from."""
        gate, pooled = self.gate, pool(sentences)
        logit = (pooled - gate["mean"]) / gate["scale"] @ gate["weights"] + gate["bias"]
        return bool(logit >= _KNOWN)

    def __call__(self, sentences: Sequence[Rows]) -> list[Rows]:
        """Probabilities of the words of each sentence; all sentences go through together, one step per word of the
        longest."""
        nets, lengths = self.nets, np.array([len(rows) for rows in sentences], dtype=np.int64)
        if not lengths.sum():
            return [np.zeros(0, dtype=np.float32) for _ in sentences]
        # N networks, 2 directions, W words of all sentences, S sentences, H hidden units; G: the gates reset, update
        # and new side by side, as in torch.
        flat_WC = (np.vstack(sentences) - self.mean) / self.scale
        entered_NWH = np.tanh(flat_WC @ nets["into"] + nets["into_bias"][:, None])
        gates_N2WG = entered_NWH[:, None] @ nets["gates_in"] + nets["gates_in_bias"][:, :, None]
        count, hidden = len(entered_NWH), entered_NWH.shape[-1]
        starts = np.cumsum(lengths) - lengths
        states_N2WH = np.zeros((count, 2, len(flat_WC), hidden), dtype=np.float32)
        state_N2SH = np.zeros((count, 2, len(lengths), hidden), dtype=np.float32)
        for step in range(int(lengths.max())):
            alive = np.flatnonzero(lengths > step)
            forth, back = starts[alive] + step, starts[alive] + lengths[alive] - 1 - step
            given = np.stack([gates_N2WG[:, 0, forth], gates_N2WG[:, 1, back]], axis=1)
            old = state_N2SH[:, :, alive]
            kept = old @ nets["gates_state"] + nets["gates_state_bias"][:, :, None]
            opened = _sigmoid(given[..., : 2 * hidden] + kept[..., : 2 * hidden])
            fresh = np.tanh(given[..., 2 * hidden :] + opened[..., :hidden] * kept[..., 2 * hidden :])
            now = fresh + opened[..., hidden:] * (old - fresh)
            state_N2SH[:, :, alive] = now
            states_N2WH[:, 0, forth], states_N2WH[:, 1, back] = now[:, 0], now[:, 1]
        both = np.concatenate([states_N2WH[:, 0], states_N2WH[:, 1], entered_NWH], axis=-1)
        logits_NW = (both @ nets["out"][..., None])[..., 0] + nets["out_bias"]
        return np.split(_sigmoid(logits_NW.mean(axis=0)), np.cumsum(lengths)[:-1])


def pool(sentences: Sequence[Rows]) -> Rows:
    """The mean and the maximum of each column over the words of all sentences: what the gate reads."""
    flat_WC = np.vstack(sentences)
    return np.concatenate([flat_WC.mean(axis=0), flat_WC.max(axis=0)])


@cache
def word_scorer(columns: tuple[str, ...]) -> WordScorer:
    """The one that comes with the package; it learned from critiques of all kinds."""
    return WordScorer(_weights(columns)["words"])


@cache
def sentence_scorer(columns: tuple[str, ...], context: tuple[str, ...]) -> SentenceScorer | None:
    """The one that comes with the package; it learned from people's critiques of news summaries. None in measurements
    without it."""
    return SentenceScorer(_weights(columns, context)["sentences"])


def _weights(columns: tuple[str, ...], context: tuple[str, ...] | None = None) -> dict[str, Any]:
    file = resources.files("text2grad.feedback.align").joinpath("weights", "words.json")
    weights: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    asked, known = columns, tuple(weights["columns"])
    if context is not None:
        asked, known = (*columns, *context), (*known, *weights["context"])
    if asked != known:
        differ = sorted(set(asked) ^ set(known)) or ["their order"]
        raise InvalidData(
            f"words.json should know the evidence's columns, but differs in {', '.join(differ)}: train again"
        )
    return weights


def _array(values: Any) -> Rows:
    return np.array(values, dtype=np.float32)


def _sigmoid(logits: Rows) -> Rows:
    return (1.0 / (1.0 + np.exp(-logits))).astype(np.float32)


def best_words(probabilities: Rows, lengths: NDArray[np.int64], settings: ParaphraseSettings) -> NDArray[np.bool_]:
    """The words whose choice has the highest expected F1, if likely words are meant together: some bound between 0 and
    1, each as likely as any other, parts the words that are meant from the others. None at all where the best is below
    the threshold.

    >>> best_words(np.array([0.8, 0.5, 0.3], dtype=np.float32), np.array([5, 5, 5]), ParaphraseSettings()).tolist()
    [True, True, False]
    """
    if not len(probabilities) or probabilities.max() < settings.threshold:
        return np.zeros(len(probabilities), dtype=bool)
    above_BW = probabilities > _BOUNDS_B[:, None]
    size_B = above_BW @ lengths
    f1_BB = 2 * np.minimum(size_B[:, None], size_B) / np.maximum(1, size_B[:, None] + size_B)
    chosen: NDArray[np.bool_] = above_BW[np.argmax(f1_BB.mean(axis=1))]
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

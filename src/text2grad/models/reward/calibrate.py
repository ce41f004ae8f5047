"""How a reward model's predictions are read, chosen on held-out completions: temperature and thresholds.

Enters: the span head's numbers for held-out completions, (T + 1, 5) each, and the verdicts they should have predicted.
Leaves: a `Calibration`, metrics, and a warning where the held-out completions do not show that the model is of use.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from text2grad.feedback.labels import GOOD, POOR, Calibration, Words
from text2grad.models.reward.model import RewardModel
from text2grad.optim.labels import read_out

_MARGIN = 0.02
"""A model is of use if its log loss lies below that of the base rates by more than this share of it."""
_LEAST = 1e-6
"""Smallest probability in a log loss: one token that was called impossible should not outweigh all the others."""
TEMPERATURES = (1e-2, 1e2)
"""The range that is searched."""


def calibrated(
    model: RewardModel, outs: Sequence[Tensor], verdicts: Sequence[Tensor], words: Sequence[Words] | None = None
) -> Calibration:
    """The model's calibration with temperature and thresholds chosen on these completions. A model that is not shown to
    be of use scores nothing: its least confidence is 1. `words`: thresholds are chosen on whole words, as the critic
    reads them; None: on tokens."""
    out_N5, verdict_N = torch.cat(list(outs)), torch.cat(list(verdicts))
    if not bool(torch.isfinite(out_N5).all()):
        return replace(model.calibration, confidence=1.0)
    weights_3 = model.class_weights_3.cpu()
    temperature = fit_temperature(out_N5[:, :3] - weights_3.log(), verdict_N)
    probs_N3, _ = read_out(out_N5, weights_3, temperature)
    probs = torch.split(probs_N3, [len(out) for out in outs])
    pooled_N3 = torch.cat([_pooled(*pair) for pair in zip(probs, words, strict=True)]) if words else probs_N3
    poor, good = (best_threshold(pooled_N3[:, kind], verdict_N == kind)[0] for kind in (POOR, GOOD))
    loss, base = _log_loss(probs_N3, verdict_N), _base_loss(verdicts)
    floor = 0.0 if loss < (1 - _MARGIN) * base else 1.0
    return replace(model.calibration, temperature=temperature, poor=poor, good=good, confidence=floor)


def complaint(model: RewardModel, outs: Sequence[Tensor], verdicts: Sequence[Tensor]) -> str:
    """The warning for a model that was calibrated on these completions; empty if there is none."""
    if model.calibration.confidence < 1:
        return ""
    loss, base = _log_loss(model.read(torch.cat(list(outs)))[0], torch.cat(list(verdicts))), _base_loss(verdicts)
    reason = f"its log loss per token is {loss:.3g}, and that of the base rates is {base:.3g}"
    if not base:
        reason = "all their tokens have the same verdict, so nothing shows whether it tells them apart"
    return (
        f"the {len(outs)} held-out completions do not show that this reward model is of use: {reason}. It scores "
        f"nothing (critics.learned.confidence=0 where it is used scores all). Train it on more completions, or hold "
        f"out more (validation)"
    )


def token_metrics(model: RewardModel, outs: Sequence[Tensor], verdicts: Sequence[Tensor]) -> dict[str, float]:
    """Accuracy, and for poor and good tokens the average precision and the best F1 of any threshold."""
    out_N5, verdict_N = torch.cat(list(outs)), torch.cat(list(verdicts))
    probs_N3, _ = read_out(out_N5, model.class_weights_3.cpu(), 1.0)
    metrics = {"accuracy": float((probs_N3.argmax(-1) == verdict_N).double().mean())}
    for name, kind in (("poor", POOR), ("good", GOOD)):
        if bool((verdict_N == kind).any()):
            metrics[f"{name}_ap"] = average_precision(probs_N3[:, kind], verdict_N == kind)
            metrics[f"{name}_f1"] = best_threshold(probs_N3[:, kind], verdict_N == kind)[1]
    return metrics


def _pooled(probs: Tensor, words: Words) -> Tensor:
    """Each token has its word's probabilities; the decision to stop keeps its own."""
    return torch.cat([torch.from_numpy(words.pooled(probs[:-1].double().numpy())), probs[-1:].double()])


def _base_loss(verdicts: Sequence[Tensor]) -> float:
    """The log loss of the base rates: what is known without a model. The decision to stop has rates of its own: it is
    nearly always neutral, and knowing only that is no skill."""
    nats = 0.0
    for part in ([v[:-1] for v in verdicts], [v[-1:] for v in verdicts]):
        count_3 = torch.bincount(torch.cat(part), minlength=3).double()
        nats += float(torch.special.entr(count_3 / count_3.sum().clamp(min=1)).sum() * count_3.sum())
    return nats / sum(map(len, verdicts))


def _log_loss(probs_N3: Tensor, verdict_N: Tensor) -> float:
    """In nats per token."""
    return float(-probs_N3.double().gather(1, verdict_N[:, None]).clamp(min=_LEAST).log().mean())


def fit_temperature(logits_N3: Tensor, verdict_N: Tensor) -> float:
    """The temperature with the highest likelihood of the labels, by bisection of the slope of a convex function.

    One more token counts, of which nothing is known (as in Platt scaling): otherwise a few labels that are all
    predicted right would make every prediction certain.

    >>> logits = torch.tensor([[4.0, 0.0, 0.0]] * 1000)
    >>> temperature = fit_temperature(logits, torch.tensor([0] * 600 + [1] * 200 + [2] * 200))
    >>> round(float((logits / temperature).softmax(-1)[0, 0]), 3)
    0.6
    >>> temperature = fit_temperature(logits[:9], torch.tensor([0] * 9))
    >>> round(float((logits / temperature).softmax(-1)[0, 0]), 3)
    0.933
    """
    logits_N3 = logits_N3.double()
    if not len(logits_N3):
        return 1.0
    unknown = 1 / (len(logits_N3) + 1)
    picked_N = (1 - unknown) * logits_N3.gather(1, verdict_N[:, None])[:, 0] + unknown * logits_N3.mean(-1)
    coldest, hottest = TEMPERATURES
    low, high = 1 / hottest, 1 / coldest
    for _ in range(60):
        factor = (low * high) ** 0.5
        expected_N = ((logits_N3 * factor).softmax(-1) * logits_N3).sum(-1)
        # The slope of −log p in the factor: the mean logit that the model expects, less the one that came.
        if float((expected_N - picked_N).mean()) > 0:
            high = factor
        else:
            low = factor
    return float(1 / (low * high) ** 0.5)


def best_threshold(probs_N: Tensor, is_N: Tensor) -> tuple[float, float]:
    """(the probability from which to say yes, F1 with it), where F1 is highest; 0.5 for a class that does not occur.

    >>> best_threshold(torch.tensor([0.875, 0.625, 0.375, 0.125]), torch.tensor([True, True, False, False]))
    (0.5, 1.0)
    """
    positives = int(is_N.sum())
    if not positives:
        return 0.5, 0.0
    prob_K, hits_K, count_K = _cuts(probs_N, is_N)
    f1_K = 2 * hits_K / (count_K + positives)
    best = int(f1_K.argmax())
    below = float(prob_K[best + 1]) if best + 1 < len(prob_K) else 0.0
    return round((float(prob_K[best]) + below) / 2, 12), float(f1_K[best])


def average_precision(probs_N: Tensor, is_N: Tensor) -> float:
    """Mean precision at the ranks of the positives, from the most probable down; ties share a rank.

    >>> average_precision(torch.tensor([0.9, 0.8, 0.7]), torch.tensor([True, False, True]))
    0.8333333333333333
    """
    positives = int(is_N.sum())
    if not positives:
        return 0.0
    _, hits_K, count_K = _cuts(probs_N, is_N)
    gained_K = torch.diff(hits_K, prepend=hits_K.new_zeros(1))
    return float((gained_K * hits_K / count_K).sum() / positives)


def _cuts(probs_N: Tensor, is_N: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(probability, positives so far, tokens so far) at each cut, from the most probable down. There is no cut between
    equal probabilities."""
    order = probs_N.double().argsort(descending=True, stable=True)
    ranked_N = probs_N.double()[order]
    last_N = torch.cat([ranked_N[1:] < ranked_N[:-1], ranked_N.new_ones(1, dtype=torch.bool)])
    count_N = torch.arange(1, len(order) + 1, device=order.device)
    return ranked_N[last_N], is_N[order].double().cumsum(0)[last_N], count_N[last_N]

"""How a reward model's predictions are read, chosen on held-out completions: temperature, thresholds, least confidence.

Enters: the span head's numbers for held-out completions, (T + 1, 5) each, and the verdicts they should have predicted.
Leaves: a `Calibration`, metrics, and a warning where the held-out completions do not show that the model is of use.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from text2grad.feedback.labels import GOOD, POOR, Calibration, Words, confidence_of
from text2grad.models.reward.model import RewardModel
from text2grad.optim.labels import read_out

_MARGIN = 0.02
"""A completion is worth scoring if its tokens are predicted better than by the base rates, by more than this share of
the entropy of those rates."""
_LEAST = 1e-6
"""Smallest probability in a log loss: one token that was called impossible should not outweigh all the others."""
TEMPERATURES = (1e-2, 1e2)
"""The range that is searched. A temperature that ends at a limit means nothing."""


def calibrated(
    model: RewardModel, outs: Sequence[Tensor], verdicts: Sequence[Tensor], words: Sequence[Words] | None = None
) -> Calibration:
    """The model's calibration with temperature, thresholds and least confidence chosen on these completions. `words`:
    thresholds are chosen on whole words, as the critic reads them; None: on tokens."""
    out_N5, verdict_N = torch.cat(list(outs)), torch.cat(list(verdicts))
    if not bool(torch.isfinite(out_N5).all()):
        return replace(model.calibration, confidence=1.0)
    weights_3 = model.class_weights_3.cpu()
    temperature = fit_temperature(out_N5[:, :3] - weights_3.log(), verdict_N)
    probs_N3, _ = read_out(out_N5, weights_3, temperature)
    probs = list(torch.split(probs_N3, [len(out) for out in outs]))
    pooled_N3 = torch.cat([_pooled(*pair) for pair in zip(probs, words, strict=True)]) if words else probs_N3
    poor, good = (best_threshold(pooled_N3[:, kind], verdict_N == kind)[0] for kind in (POOR, GOOD))
    # At the temperature limit all classes are equally likely, so confidence carries no information.
    floor = 1.0 if temperature > TEMPERATURES[1] / 1.01 else _confidence_floor(probs, verdicts)
    return replace(model.calibration, temperature=temperature, poor=poor, good=good, confidence=floor)


def complaint(model: RewardModel, outs: Sequence[Tensor], verdicts: Sequence[Tensor]) -> str:
    """The warning for a model that was calibrated on these completions; empty if there is none."""
    probs, verdict_N = [model.read(out)[0] for out in outs], torch.cat(list(verdicts))
    scored = sum(confidence_of(p.double().numpy()) >= model.calibration.confidence for p in probs)
    loss, base = _log_loss(torch.cat(probs), verdict_N), _log_loss(torch.cat(_base_rates(verdicts)), verdict_N)
    if 2 * scored >= len(probs) and loss < base:
        return ""
    reason = f"its log loss per token is {loss:.3g}, and that of the base rates is {base:.3g}"
    if not base:
        reason = "all their tokens have the same verdict, so nothing shows whether it tells them apart"
    return (
        f"the {len(probs)} held-out completions do not show that this reward model is of use: {reason}. It scores "
        f"{scored} of them, and about as large a share of new ones (critics.learned.confidence=0 where it is used "
        f"scores all). Train it on more completions, or hold out more (validation)"
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


# --------------------------------------------------------------------------------------------------- least confidence


def _confidence_floor(probs: Sequence[Tensor], verdicts: Sequence[Tensor]) -> float:
    """The confidence below which a completion is not scored. 0: all are scored, 1: none is.

    Completions are ranked by confidence. First the least confident ones are refused, up to the point where their summed
    gain over the base rates is lowest, if it is below 0 by more than its standard error. Of the rest, a share is
    refused that equals the probability that they gain nothing either, but no more of them than gained nothing. One
    completion that gains exactly nothing is added: a few held-out completions prove little."""
    confidence_C = torch.tensor([confidence_of(p.double().numpy()) for p in probs], dtype=torch.float64)
    order = confidence_C.argsort(stable=True)
    confidence_C, gain_C = confidence_C[order], _gains(probs, verdicts)[order]
    nothing = gain_C.new_zeros(1)
    total_C, count_C = gain_C.cumsum(0), torch.arange(1, len(gain_C) + 1)
    spread = torch.cat([gain_C, nothing]).std(correction=0)
    worse_C = total_C + spread * count_C.sqrt() < 0
    below = int(torch.where(worse_C, total_C, 0.0).argmin()) + 1 if bool(worse_C.any()) else 0
    if below < len(gain_C):
        rest = torch.cat([gain_C[below:], nothing])
        error = rest.std(correction=0) / len(rest) ** 0.5
        no_better = float(torch.special.ndtr(-rest.mean() / error.clamp(min=_LEAST**2)))
        below += min(round(no_better * (len(gain_C) - below)), int((gain_C[below:] <= 0).sum()))
    # Equally confident completions are on the same side.
    below = int((confidence_C <= confidence_C[below - 1]).sum()) if below else 0
    if below == len(gain_C):
        return 1.0
    # Between the last refused completion and the next.
    return float(confidence_C[below - 1 : below + 1].mean()) if below else 0.0


def _gains(probs: Sequence[Tensor], verdicts: Sequence[Tensor]) -> Tensor:
    """How much lower the log loss of each completion is than that of the base rates, per token, beyond the margin. Log
    loss, not accuracy: where most tokens are neutral, a model that says 0.4 for poor tokens and 0.1 for others is
    useful, although its likeliest class is always neutral."""
    rates = _base_rates(verdicts)
    gains = [_log_loss(base, v) - _log_loss(p, v) for p, v, base in zip(probs, verdicts, rates, strict=True)]
    entropy = torch.special.entr(torch.cat(rates)).sum(-1).mean()
    return torch.tensor(gains, dtype=torch.float64) - _MARGIN * float(entropy)


def _base_rates(verdicts: Sequence[Tensor]) -> list[Tensor]:
    """How often each verdict occurs, (T + 1, 3) for each completion. The decision to stop has rates of its own: it is
    nearly always neutral, and knowing only that is no skill."""
    tokens_3, stop_3 = (
        torch.bincount(torch.cat(part), minlength=3).double()
        for part in ([v[:-1] for v in verdicts], [v[-1:] for v in verdicts])
    )
    tokens_3, stop_3 = tokens_3 / tokens_3.sum().clamp(min=1), stop_3 / stop_3.sum()
    return [torch.cat([tokens_3.expand(len(v) - 1, 3), stop_3[None]]) for v in verdicts]


def _log_loss(probs_N3: Tensor, verdict_N: Tensor) -> float:
    """In nats per token."""
    return float(-probs_N3.double().gather(1, verdict_N[:, None]).clamp(min=_LEAST).log().mean())


# --------------------------------------------------------------------------------------- temperature, threshold, rank


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

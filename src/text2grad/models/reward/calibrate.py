"""Temperature, thresholds and the floor of confidence, chosen on completions that were held out of training."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from text2grad.feedback.lessons import GOOD, POOR, Calibration, confidence_of
from text2grad.models.reward.model import RewardModel
from text2grad.optim.spans import average_precision, best_threshold, fit_temperature, read_out

_MARGIN = 0.02
"""How much more often right than the majority class a completion's tokens have to be, to be worth scoring."""
_MOST = 0.1
"""Share of the held-out completions that the floor leaves out at most: beyond it, it would be fitted to chance."""


def calibrated(model: RewardModel, outs: Sequence[Tensor], verdicts: Sequence[Tensor]) -> Calibration:
    """The model's calibration with everything chosen that is chosen on held-out data. `outs`: what the span head says
    of each completion, (T + 1, 5); `verdicts`: what it should have said."""
    out_N5, verdict_N = torch.cat(list(outs)), torch.cat(list(verdicts))
    weights_3 = model.class_weights_3.cpu()
    temperature = fit_temperature(out_N5[:, :3] - weights_3.log(), verdict_N)
    probs_N3, _ = read_out(out_N5, weights_3, temperature)
    poor, good = (_threshold(probs_N3[:, kind], verdict_N == kind) for kind in (POOR, GOOD))
    floor = _floor(list(torch.split(probs_N3, [len(one) for one in outs])), verdicts)
    return replace(model.calibration, temperature=temperature, poor=poor, good=good, confidence=floor)


def token_metrics(model: RewardModel, outs: Sequence[Tensor], verdicts: Sequence[Tensor]) -> dict[str, float]:
    """How well tokens are told apart, whatever the threshold: average precision and the best F1 of poor and good."""
    out_N5, verdict_N = torch.cat(list(outs)), torch.cat(list(verdicts))
    probs_N3, _ = read_out(out_N5, model.class_weights_3.cpu(), 1.0)
    found = {"accuracy": float((probs_N3.argmax(-1) == verdict_N).double().mean())}
    for name, kind in (("poor", POOR), ("good", GOOD)):
        if bool((verdict_N == kind).any()):
            found[f"{name}_ap"] = average_precision(probs_N3[:, kind], verdict_N == kind)
            found[f"{name}_f1"] = best_threshold(probs_N3[:, kind], verdict_N == kind)[1]
    return found


def _threshold(probs_N: Tensor, is_N: Tensor) -> float:
    """Where F1 is highest; a half where the class was not held out, so that nothing is known of it."""
    return best_threshold(probs_N, is_N)[0] if bool(is_N.any()) else 0.5


def _floor(probs: Sequence[Tensor], verdicts: Sequence[Tensor]) -> float:
    """The confidence below which a completion's tokens are no better told apart than by always saying the commonest
    class; 0 if they always are. Completions are ranked by confidence; those below the floor are the longest run from
    the least sure one that is, taken together, no better than that; a tenth of all at most."""
    verdict_N = torch.cat(list(verdicts))
    majority = int(torch.bincount(verdict_N, minlength=3).argmax())
    sure = torch.tensor([confidence_of(one.double().numpy()) for one in probs], dtype=torch.float64)
    gains = torch.tensor(
        [
            float(((p.argmax(-1) == v).double() - (v == majority).double()).mean())
            for p, v in zip(probs, verdicts, strict=True)
        ]
    )
    order = sure.argsort(stable=True)
    means = gains[order].cumsum(0) / torch.arange(1, len(order) + 1)
    worse = (means[: int(_MOST * len(order))] < _MARGIN).nonzero()
    if not len(worse):
        return 0.0
    # Between the last of the run and the next: a completion at the floor is scored.
    return float(sure[order[int(worse[-1]) :][:2]].mean())

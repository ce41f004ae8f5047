"""Temperature, thresholds and the floor of confidence, chosen on completions that were held out of training."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from text2grad.feedback.lessons import GOOD, POOR, Calibration, confidence_of
from text2grad.feedback.units import Units
from text2grad.models.reward.model import RewardModel
from text2grad.optim.spans import TEMPERATURES, average_precision, best_threshold, fit_temperature, read_out

_MARGIN = 0.02
"""By how much better than by the base rates a completion's tokens have to be told, to be worth scoring: a share of what
there is to know of a token, the entropy of those rates."""
_LEAST = 1e-6
"""No probability counts as less: one token that was called impossible should not outweigh all the others."""


def calibrated(
    model: RewardModel, outs: Sequence[Tensor], verdicts: Sequence[Tensor], units: Sequence[Units] | None = None
) -> Calibration:
    """The model's calibration with everything chosen that is chosen on held-out data. `outs`: what the span head says
    of each completion, (T + 1, 5); `verdicts`: what it should have said; `units`: its words, which thresholds are held
    against (none: a token is one)."""
    out_N5, verdict_N = torch.cat(list(outs)), torch.cat(list(verdicts))
    if not bool(torch.isfinite(out_N5).all()):
        return replace(model.calibration, confidence=1.0)
    weights_3 = model.class_weights_3.cpu()
    temperature = fit_temperature(out_N5[:, :3] - weights_3.log(), verdict_N)
    probs_N3, _ = read_out(out_N5, weights_3, temperature)
    probs = list(torch.split(probs_N3, [len(one) for one in outs]))
    pooled_N3 = torch.cat([_pooled(*pair) for pair in zip(probs, units, strict=True)]) if units else probs_N3
    poor, good = (_threshold(pooled_N3[:, kind], verdict_N == kind) for kind in (POOR, GOOD))
    # As hot as it gets, all probabilities are a third: it has nothing to say, and how sure it is, is noise.
    floor = 1.0 if temperature > TEMPERATURES[1] / 1.01 else _floor(probs, verdicts)
    return replace(model.calibration, temperature=temperature, poor=poor, good=good, confidence=floor)


def complaint(model: RewardModel, outs: Sequence[Tensor], verdicts: Sequence[Tensor]) -> str:
    """What a person should hear of a judge that was calibrated on these; empty if nothing."""
    probs, verdict_N = [model.read(out)[0] for out in outs], torch.cat(list(verdicts))
    scored = sum(confidence_of(one.double().numpy()) >= model.calibration.confidence for one in probs)
    loss, base = (_log_loss(torch.cat(list(one)), verdict_N) for one in (probs, _base_rates(verdicts)))
    if 2 * scored < len(probs) or loss >= base:
        told = f"it tells their tokens with a log loss of {loss:.3g}, and how often each verdict comes has {base:.3g}"
        if not base:
            told = "all their tokens have the same verdict, so nothing shows whether it tells them apart"
        less = (
            ", or set critics.learned.confidence=0 where it judges, to have all scored" if scored < len(probs) else ""
        )
        return (
            f"the {len(probs)} held-out completions do not show that this judge is of use: {told}. It scores {scored} "
            f"of them, and of what is new about as large a share. Give it more completions to learn from or to be "
            f"measured on (validation){less}"
        )
    low, high = TEMPERATURES
    if not 1.01 * low < model.calibration.temperature < high / 1.01:
        return (
            f"the temperature ended at {model.calibration.temperature:.3g}, the end of its range, so the probabilities "
            f"are not calibrated; train longer, or hold out more completions (validation)"
        )
    return ""


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


def _pooled(probs: Tensor, units: Units) -> Tensor:
    """Each token as its word, the decision to stop as it is."""
    return torch.cat([torch.from_numpy(units.pooled(probs[:-1].double().numpy())), probs[-1:].double()])


def _threshold(probs_N: Tensor, is_N: Tensor) -> float:
    """Where F1 is highest; a half where the class was not held out, so that nothing is known of it."""
    return best_threshold(probs_N, is_N)[0] if bool(is_N.any()) else 0.5


def _log_loss(probs_N3: Tensor, verdict_N: Tensor) -> float:
    """In nats a token."""
    return float(-probs_N3.double().gather(1, verdict_N[:, None]).clamp(min=_LEAST).log().mean())


def _gains(probs: Sequence[Tensor], verdicts: Sequence[Tensor]) -> Tensor:
    """By how much better each completion is told than by the base rates of the held-out tokens, in nats a token, beyond
    the margin. Log loss, not how often the likeliest class is right: where most tokens are neutral, a judge that says
    0.4 of poor ones and 0.1 of others is worth a lot, and its likeliest class is always neutral."""
    rates = _base_rates(verdicts)
    triples = zip(probs, verdicts, rates, strict=True)
    found = [_log_loss(base, v) - _log_loss(p, v) for p, v, base in triples]
    entropy = torch.special.entr(torch.cat(rates)).sum(-1).mean()
    return torch.tensor(found, dtype=torch.float64) - _MARGIN * float(entropy)


def _base_rates(verdicts: Sequence[Tensor]) -> list[Tensor]:
    """How often each verdict comes, (T + 1, 3) for each completion: of the tokens, and, at the end, of decisions to
    stop. Those are neutral nearly always, and who only knows that knows nothing."""
    tokens_3, stop_3 = (
        torch.bincount(torch.cat(part), minlength=3).double()
        for part in ([one[:-1] for one in verdicts], [one[-1:] for one in verdicts])
    )
    tokens_3, stop_3 = tokens_3 / tokens_3.sum().clamp(min=1), stop_3 / stop_3.sum()
    return [torch.cat([tokens_3.expand(len(one) - 1, 3), stop_3[None]]) for one in verdicts]


def _floor(probs: Sequence[Tensor], verdicts: Sequence[Tensor]) -> float:
    """The confidence below which a completion is not scored; 0: all are, 1: none is.

    Ranked by confidence, first the run from the least sure one on is below it that is told worst against the base
    rates, if it is worse by more than its standard error. Of the others as large a share is as it is likely that they,
    too, are told no better, but no more of them than were. One more completion is counted that shows nothing: a few
    that are held out prove little."""
    sure_C = torch.tensor([confidence_of(one.double().numpy()) for one in probs], dtype=torch.float64)
    order = sure_C.argsort(stable=True)
    sure_C, gain_C = sure_C[order], _gains(probs, verdicts)[order]
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
    # Those that are equally sure are on the same side.
    below = int((sure_C <= sure_C[below - 1]).sum()) if below else 0
    if below == len(gain_C):
        return 1.0
    # Between the last below and the next: a completion at the floor is scored.
    return float(sure_C[below - 1 : below + 1].mean()) if below else 0.0

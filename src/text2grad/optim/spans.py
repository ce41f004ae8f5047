"""The span head's side of a reward model: where labels are read, the loss against them, and how numbers are calibrated.

Enters: hidden positions with their labels, and the head's five numbers for each: three logits (poor, neutral, good) and
two worths (if poor, if good). Leaves: losses, temperature, thresholds. L: labelled positions of a row, padded; N: all
of them in a batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.nn import functional

NEUTRAL, GOOD = 1, 2
TEMPERATURES = (1e-2, 1e2)
"""The coldest and the hottest that is looked for; one that ends there has found nothing."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Where in (B, S) the span head is read, and what it should say there."""

    position_BL: Tensor
    verdict_BL: Tensor
    """0 poor, 1 neutral, 2 good."""
    worth_BL: Tensor
    """≥ 0, in units of the calibration's scale."""
    mask_BL: Tensor

    def rows(self, index: Tensor) -> Self:
        index = index.to(self.mask_BL.device)
        width = int(self.mask_BL[index].sum(1).max()) if len(index) else 0
        return replace(self, **{field.name: getattr(self, field.name)[index, :width] for field in fields(self)})

    def where(self) -> tuple[Tensor, Tensor]:
        """(row_N, position_N), in the order of the mask."""
        row_N, l_N = self.mask_BL.nonzero(as_tuple=True)
        return row_N, self.position_BL[row_N, l_N]


class Places(NamedTuple):
    """Where in (B, S) the span head is read, where nobody knows yet what it should say. Counted before they are sent: a
    GPU need not be waited for to know how many there are."""

    row_N: Tensor
    position_N: Tensor

    def where(self) -> tuple[Tensor, Tensor]:
        return self.row_N, self.position_N


def collate_marks(
    positions: Sequence[Sequence[int]],
    verdicts: Sequence[Sequence[int]],
    worths: Sequence[Sequence[float]],
    device: torch.device | str = "cpu",
) -> Marks:
    """Pad, once.

    >>> marks = collate_marks([[3, 4], [2]], [[0, 2], [1]], [[1.0, 0.5], [0.0]])
    >>> marks.mask_BL.tolist(), [stream.tolist() for stream in marks.where()]
    ([[True, True], [True, False]], [[0, 0, 1], [3, 4, 2]])
    """

    def padded(rows: Sequence[Sequence[float]], dtype: torch.dtype) -> Tensor:
        made = [torch.tensor(list(row), dtype=dtype) for row in rows]
        return torch.nn.utils.rnn.pad_sequence(made, batch_first=True).to(device)

    lengths_B = torch.tensor([len(row) for row in positions])
    mask_BL = torch.arange(int(lengths_B.max())) < lengths_B[:, None]
    return Marks(
        padded(positions, torch.long), padded(verdicts, torch.long), padded(worths, torch.float32), mask_BL.to(device)
    )


def class_weights(counts_3: Tensor, exponent: float) -> Tensor:
    """What a token of each class counts: its rarity to the power of `exponent`, 1 on average over the tokens.

    >>> class_weights(torch.tensor([10.0, 80.0, 10.0]), 0.0).tolist()
    [1.0, 1.0, 1.0]
    >>> class_weights(torch.tensor([1.0, 4.0, 0.0]), 1.0).tolist()
    [2.5, 0.625, 1.0]
    """
    there_3 = counts_3 > 0
    raw_3 = torch.where(there_3, counts_3.clamp(min=1).pow(-exponent), 0.0)
    mean = (raw_3 * counts_3).sum() / counts_3.sum().clamp(min=1)
    return torch.where(there_3, raw_3 / mean.clamp(min=1e-30), 1.0)


def span_losses(out_N5: Tensor, verdict_N: Tensor, worth_N: Tensor, weights_3: Tensor) -> tuple[Tensor, Tensor]:
    """(cross entropy of the verdicts, times what their class counts; error of the worth, where there is one), summed.

    >>> one = torch.zeros(1, 5)
    >>> [round(float(part), 4) for part in span_losses(one, torch.tensor([2]), torch.tensor([1.0]), torch.ones(3))]
    [1.0986, 0.0471]
    """
    entropy_N = functional.cross_entropy(out_N5[:, :3].float(), verdict_N, reduction="none")
    found_N2 = functional.softplus(out_N5[:, 3:].float())
    found_N = torch.where(verdict_N == GOOD, found_N2[:, 1], found_N2[:, 0])
    error_N = functional.smooth_l1_loss(found_N, worth_N, reduction="none")
    return (entropy_N * weights_3[verdict_N]).sum(), torch.where(verdict_N != NEUTRAL, error_N, 0.0).sum()


def read_out(out_N5: Tensor, weights_3: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """(probabilities (N, 3), worths (N, 2)). A class that counted twice in the loss is taken for twice as likely as it
    is; here that is taken back."""
    logits_N3 = (out_N5[:, :3].float() - weights_3.log()) / temperature
    return logits_N3.softmax(-1), functional.softplus(out_N5[:, 3:].float())


def fit_temperature(logits_N3: Tensor, verdict_N: Tensor) -> float:
    """What to divide logits by so that the labels are likeliest; by bisection of a convex function's slope.

    Beside the labels counts one more token, of which nothing is known (as in Platt scaling): a few labels that are all
    guessed right would otherwise make every guess certain.

    >>> logits = torch.tensor([[4.0, 0.0, 0.0]] * 1000)
    >>> sure = fit_temperature(logits, torch.tensor([0] * 600 + [1] * 200 + [2] * 200))
    >>> round(float((logits / sure).softmax(-1)[0, 0]), 3)
    0.6
    >>> sure = fit_temperature(logits[:9], torch.tensor([0] * 9))
    >>> round(float((logits / sure).softmax(-1)[0, 0]), 3)
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
    """(the probability from which on to say yes, F1 with it): where F1 is highest.

    >>> best_threshold(torch.tensor([0.875, 0.625, 0.375, 0.125]), torch.tensor([True, True, False, False]))
    (0.5, 1.0)
    """
    positives = int(is_N.sum())
    if not positives:
        return 1.0, 0.0
    order = probs_N.double().argsort(descending=True, stable=True)
    ranked_N = probs_N.double()[order]
    right_N = is_N[order].double().cumsum(0)
    f1_N = 2 * right_N / (torch.arange(1, len(order) + 1, device=order.device) + positives)
    # A cut between equal probabilities is none.
    last_N = torch.cat([ranked_N[1:] < ranked_N[:-1], ranked_N.new_ones(1, dtype=torch.bool)])
    best = int(torch.where(last_N, f1_N, -1.0).argmax())
    below = float(ranked_N[best + 1]) if best + 1 < len(ranked_N) else 0.0
    return round((float(ranked_N[best]) + below) / 2, 12), float(f1_N[best])


def average_precision(probs_N: Tensor, is_N: Tensor) -> float:
    """Mean precision at the places of the positives, from the most probable down; ties count as one place.

    >>> average_precision(torch.tensor([0.9, 0.8, 0.7]), torch.tensor([True, False, True]))
    0.8333333333333333
    """
    positives = int(is_N.sum())
    if not positives:
        return 0.0
    order = probs_N.double().argsort(descending=True, stable=True)
    ranked_N, hits_N = probs_N.double()[order], is_N[order].double()
    last_N = torch.cat([ranked_N[1:] < ranked_N[:-1], ranked_N.new_ones(1, dtype=torch.bool)])
    right_K = hits_N.cumsum(0)[last_N]
    said_K = torch.arange(1, len(order) + 1, device=order.device)[last_N]
    gained_K = torch.diff(right_K, prepend=right_K.new_zeros(1))
    return float((gained_K * right_K / said_K).sum() / positives)

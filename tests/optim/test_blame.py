"""A critic that only blames, and a policy small enough to enumerate: fewer poor words is not the same as fewer words.

A token is poor, plain or the end, by three logits; after three tokens the text ends by itself. All scores are equal.
What should be learned is to write plain tokens, not to stop.
"""

from dataclasses import replace
from itertools import product

import pytest
import torch

from text2grad.optim.batch import collate_ids
from text2grad.optim.estimators import find_estimator
from text2grad.optim.settings import AdvantageSettings

POOR, PLAIN, END = range(3)
ALL = [(*words, END) for length in range(4) for words in product((POOR, PLAIN), repeat=length)]
LENGTH_N = torch.tensor([len(ids) - 1.0 for ids in ALL])


def learned(lam: float, steps: int = 60, rate: float = 0.5) -> tuple[float, float]:
    """(probability of a poor token, expected length) after exact gradient ascent, over all pairs of completions."""
    pairs = torch.tensor(list(product(range(len(ALL)), repeat=2)))
    batch = collate_ids(
        [(1,)] * pairs.numel(),
        [ALL[n] for n in pairs.flatten()],
        groups=torch.arange(len(pairs)).repeat_interleave(2).tolist(),
    )
    ids_BT = batch.ids_BS[:, 1:]
    verdicts_BT = -((ids_BT == POOR) & batch.mask_BT).float()
    rewards_BT = verdicts_BT.scatter(1, batch.last_B1, -verdicts_BT.sum(1, keepdim=True))
    batch = replace(batch, rewards_BT=rewards_BT, verdicts_BT=verdicts_BT)
    options = AdvantageSettings(estimator="anchored", lam=lam)
    advantages_BT = find_estimator("anchored")(batch, 0.0, options).advantages_BT
    # The end after three tokens is nobody's choice.
    chosen_BT = batch.mask_BT & (torch.arange(4) < 3)
    logits = torch.zeros(3, requires_grad=True)
    for _ in range(steps):
        logprobs_BT = torch.where(chosen_BT, logits.log_softmax(0)[ids_BT], 0.0)
        chance_P = logprobs_BT.detach().sum(1).exp().view(-1, 2).prod(1)
        gain = (chance_P.repeat_interleave(2)[:, None] * advantages_BT * logprobs_BT).sum() / 2
        (gradient,) = torch.autograd.grad(gain, logits)
        logits = (logits + rate * gradient).detach().requires_grad_()
    chance_B = torch.where(chosen_BT, logits.detach().log_softmax(0)[ids_BT], 0.0).sum(1).exp()
    return float(logits.detach().softmax(0)[POOR]), float((chance_B[:: 2 * len(ALL)] * LENGTH_N).sum())


@pytest.mark.parametrize("lam", [0.0, 0.5, 0.8])
def test_poor_words_go_and_the_others_stay(lam: float) -> None:
    before = float((torch.tensor([3.0 ** -min(len(ids), 3) for ids in ALL]) * LENGTH_N).sum())
    poor, length = learned(lam)
    assert poor < 0.02
    assert before <= length < 3

"""A critic that judges in hindsight, and a policy small enough to enumerate.

Two tokens of four each. The second token alone decides the score: 1 for token 0, else 0. The critic's words are about
the first token, which it calls good or poor once it has seen the second. Every estimator for words but `local` must
learn the second token from that; without an anchor, return-to-go never does.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from text2grad.feedback.rewards import token_rewards
from text2grad.feedback.settings import Scoring
from text2grad.optim.batch import Batch, collate_ids
from text2grad.optim.estimators import find_estimator, keep_back
from text2grad.optim.settings import AdvantageSettings
from text2grad.types import Alignment, Completion, Critique, Span

TOKENS = range(4)
ALL = list(product(TOKENS, TOKENS))
SCORE_N = torch.tensor([float(second == 0) for _, second in ALL])


def rewards() -> Tensor:
    """Of all 16 completions, as the package makes them: verdict on the first token, residual on the second. The scale
    is the slope of score on verdict, so the words explain the score and the residual is the same for all."""
    rows = []
    for (first, second), score in zip(ALL, SCORE_N.tolist(), strict=True):
        where = Alignment((Span(0, 1, "good" if score else "poor"),))
        text = "abcd"[first] + "abcd"[second]
        completion = Completion(text, (first, second), ((0, 1), (1, 2)))
        rows.append(token_rewards(Critique("", score=score), where, completion, Scoring(scale=0.5)))
    return torch.from_numpy(np.stack(rows)).float()


def groups(rewards_N2: Tensor) -> tuple[Batch, Tensor]:
    """Every group of two completions: 256 of them, and which completion each row is."""
    rows_B = torch.tensor(list(product(range(16), range(16)))).flatten()
    group_B = torch.arange(256).repeat_interleave(2)
    batch = collate_ids([(1,)] * 512, [ALL[row] for row in rows_B.tolist()], groups=group_B.tolist())
    verdicts_B2 = torch.stack([2 * SCORE_N[rows_B] - 1, torch.zeros(512)], 1)
    return replace(batch, rewards_BT=rewards_N2[rows_B], verdicts_BT=verdicts_B2), rows_B


def learned(name: str, anchor: float, steps: int = 150, rate: float = 2.0) -> float:
    """Probability of a score of 1 after exact gradient ascent."""
    options, estimator = AdvantageSettings(estimator=name, anchor=anchor, whiten=False), find_estimator(name)
    rewards_N2 = rewards()
    batch, rows_B = groups(rewards_N2)
    togo_N2 = keep_back(rewards_N2, collate_ids([(1,)] * 16, ALL), anchor).flip(1).cumsum(1).flip(1)
    logits_54 = torch.zeros(5, 4, requires_grad=True)
    for _ in range(steps):
        log_54 = logits_54.log_softmax(1)
        logprobs_N2 = torch.stack([log_54[0].repeat_interleave(4), log_54[1:].flatten()], 1)
        chance_N = logprobs_N2.detach().sum(1).exp()
        values_B2 = None
        if estimator.needs_values:
            # What is expected before the first token, and after each first one.
            start = (chance_N * togo_N2[:, 0]).sum()
            second_4 = (logprobs_N2.detach()[:, 1].exp() * togo_N2[:, 1]).view(4, 4).sum(1)
            values_B2 = torch.stack([start.expand(16), second_4.repeat_interleave(4)], 1)[rows_B]
        found = estimator(replace(batch, values_BT=values_B2), 0.0, options)
        chance_B = chance_N[rows_B].view(256, 2).prod(1).repeat_interleave(2)
        gain = (chance_B[:, None] * found.advantages_BT * logprobs_N2[rows_B]).sum() / 2
        (gradient_54,) = torch.autograd.grad(gain, logits_54)
        logits_54 = (logits_54 + rate * gradient_54).detach().requires_grad_()
    chance_54 = logits_54.detach().softmax(1)
    return float((chance_54[0] * chance_54[1:, 0]).sum())


@pytest.mark.parametrize("name", ["gae", "rloo", "grpo", "span_rloo", "anchored"])
def test_hindsight_is_learned(name: str) -> None:
    assert learned(name, AdvantageSettings().anchor) > 0.9


@pytest.mark.parametrize("name", ["gae", "span_rloo", "local"])
def test_without_an_anchor_it_is_not(name: str) -> None:
    assert learned(name, 0.0) == pytest.approx(0.25, abs=0.01)

"""What spans teach about length: nothing, also where a full stop leads to the end. Policies of a few numbers, and
critics that always blame or always praise.

The first policy chooses a poor token, a plain one or the end, by three logits; after at most three tokens the text ends
by itself. All scores are equal. What should be learned is to write plain tokens, not to stop. It is enumerated. The
second chooses at each place whether to end, and nothing else. It is sampled.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest
import torch

from text2grad.optim.batch import collate_ids
from text2grad.optim.estimators import find_estimator
from text2grad.optim.settings import AdvantageSettings

POOR, PLAIN, END = range(3)
Texts = list[tuple[int, ...]]


def texts_of(most: int) -> Texts:
    """All texts of at most so many words."""
    return [(*words, END) for length in range(most + 1) for words in product((POOR, PLAIN), repeat=length)]


def learned(lam: float, most: int = 3, steps: int = 60, rate: float = 0.5) -> tuple[float, float]:
    """(probability of a poor token, expected length) after exact gradient ascent, over all pairs of completions."""
    texts = texts_of(most)
    lengths_N = torch.tensor([len(ids) - 1.0 for ids in texts])
    pairs = torch.tensor(list(product(range(len(texts)), repeat=2)))
    batch = collate_ids(
        [(1,)] * pairs.numel(),
        [texts[n] for n in pairs.flatten()],
        groups=torch.arange(len(pairs)).repeat_interleave(2).tolist(),
    )
    ids_BT = batch.ids_BS[:, 1:]
    verdicts_BT = -((ids_BT == POOR) & batch.mask_BT).float()
    rewards_BT = verdicts_BT.scatter(1, batch.last_B1, -verdicts_BT.sum(1, keepdim=True))
    batch = replace(batch, rewards_BT=rewards_BT, verdicts_BT=verdicts_BT)
    options = AdvantageSettings(estimator="anchored", lam=lam)
    advantages_BT = find_estimator("anchored")(batch, 0.0, options).advantages_BT
    # The end after the last word that fits is nobody's choice.
    chosen_BT = batch.mask_BT & (torch.arange(most + 1) < most)
    logits = torch.zeros(3, requires_grad=True)
    for _ in range(steps):
        logprobs_BT = torch.where(chosen_BT, logits.log_softmax(0)[ids_BT], 0.0)
        chance_P = logprobs_BT.detach().sum(1).exp().view(-1, 2).prod(1)
        gain = (chance_P.repeat_interleave(2)[:, None] * advantages_BT * logprobs_BT).sum() / 2
        (gradient,) = torch.autograd.grad(gain, logits)
        logits = (logits + rate * gradient).detach().requires_grad_()
    chance_B = torch.where(chosen_BT, logits.detach().log_softmax(0)[ids_BT], 0.0).sum(1).exp()
    return float(logits.detach().softmax(0)[POOR]), float((chance_B[:: 2 * len(texts)] * lengths_N).sum())


@pytest.mark.parametrize("lam", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("most", [1, 2, 3])
def test_poor_words_go_and_the_others_stay(lam: float, most: int) -> None:
    """Also in texts of a single word: a blamed one and another at the same place do not earn the same."""
    texts = texts_of(most)
    before = sum(3.0 ** -min(len(ids), most) * (len(ids) - 1) for ids in texts)
    poor, length = learned(lam, most)
    assert poor < 0.02
    assert before <= length < most


PLACES, GROUPS, EACH = 12, 128, 4
Earned = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(place of each token, words of its completion) → what spans earn there."""


def lengths(
    earned: Earned, score: Callable[[torch.Tensor], torch.Tensor], steps: int = 60, closing: int = 0, lam: float = 0.8
) -> list[float]:
    """Mean number of words, update by update, of a policy that chooses when to end. `closing`: tokens that it then
    writes before the end, such as a full stop; nothing is ever said of them."""
    generator, found = torch.Generator().manual_seed(0), []
    logits_T, place_T = torch.full((PLACES,), -1.0), torch.arange(PLACES + closing + 1)
    for _ in range(steps):
        ends_BT = torch.rand(GROUPS * EACH, PLACES, generator=generator) < logits_T.sigmoid()
        ends_BT[:, 0] = False
        words_B = torch.where(ends_BT.any(1), ends_BT.int().argmax(1), PLACES)
        found.append(float(words_B.float().mean()))
        ids = [(1,) * (words + closing) + (2,) for words in words_B.tolist()]
        batch = collate_ids([(1,)] * len(ids), ids, groups=torch.arange(GROUPS).repeat_interleave(EACH).tolist())
        place_BT = place_T[: batch.mask_BT.shape[1]].expand_as(batch.mask_BT)
        inner_BT = place_BT < words_B[:, None]
        spans_BT = torch.where(inner_BT, earned(place_BT, words_B[:, None]), 0.0)
        rest_B1 = (score(words_B.float()) - spans_BT.sum(1))[:, None]
        rewards_BT = spans_BT.scatter(1, batch.last_B1, rest_B1)
        batch = replace(batch, rewards_BT=rewards_BT, verdicts_BT=spans_BT.sign())
        advantages_BT = find_estimator("anchored")(batch, 0.0, AdvantageSettings(lam=lam)).advantages_BT
        learned_T = logits_T.clone().requires_grad_()
        padded_T = torch.cat([learned_T, torch.zeros(closing + 1)])[place_BT]
        logprobs_BT = torch.nn.functional.logsigmoid(torch.where(inner_BT, -padded_T, padded_T))
        chosen_BT = batch.mask_BT & (place_BT > 0) & (place_BT < PLACES) & (place_BT <= words_B[:, None])
        gain = (advantages_BT * logprobs_BT * chosen_BT).sum() / len(ids)
        (gradient_T,) = torch.autograd.grad(gain, learned_T)
        logits_T = logits_T + gradient_T
    return found


CRITICS: dict[str, Earned] = {
    "blames the first word": lambda place, _: -(place == 0).float(),
    "praises the first word": lambda place, _: (place == 0).float(),
    "blames every second word": lambda place, _: -(place % 2 == 0).float(),
    "praises every word": lambda place, _: torch.ones_like(place, dtype=torch.float32),
    "blames every second word, less each the more there are": lambda place, words: (
        -(place % 2 == 0).float() / ((words + 1) // 2)
    ),
}


@pytest.mark.parametrize("critic", CRITICS)
def test_remarks_that_say_nothing_of_length_do_not_change_it(critic: str) -> None:
    found = lengths(CRITICS[critic], lambda words: torch.full_like(words, 0.3))
    assert found[-1] == pytest.approx(found[0], abs=0.4)


CRITICS["praises two words, then blames"] = lambda place, _: torch.where(place < 2, 1.0, -1.0)
CRITICS["blames two words, then praises"] = lambda place, _: torch.where(place < 2, -1.0, 1.0)


@pytest.mark.parametrize("lam", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("closing", [1, 2])
@pytest.mark.parametrize("critic", CRITICS)
def test_words_that_lead_to_the_end_are_no_way_around_blame(critic: str, closing: int, lam: float) -> None:
    """Of a full stop nothing is said. What stands behind it in the others would have been blamed, or praised. If it
    earned nothing, texts would get down to one word, or up to eleven of twelve. Now they change by less than a word."""
    found = lengths(CRITICS[critic], lambda words: torch.full_like(words, 0.3), closing=closing, lam=lam)
    assert found[-1] == pytest.approx(found[0], abs=0.9)


@pytest.mark.parametrize("critic", ["blames the first word", "praises the first word"])
def test_the_score_decides_on_the_length(critic: str) -> None:
    """Seven words are best."""
    found = lengths(CRITICS[critic], lambda words: -(words - 7).abs() / 4, steps=120)
    assert found[0] < 4 and found[-1] == pytest.approx(7, abs=0.7)

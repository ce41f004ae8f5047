"""Our estimators on other engines' tensors: by hand, and the same as in our own loop."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from text2grad import TrainingRow, with_advantages
from text2grad.engines.advantages import NAMES, estimate, registered
from text2grad.engines.scorer import labelled, masked
from text2grad.errors import ConfigError, InvalidData
from text2grad.optim.batch import collate
from text2grad.optim.estimators import find_estimator
from text2grad.optim.settings import AdvantageSettings
from text2grad.types import Alignment, Completion, Critique, Example, Rollout


def row(group: str, rewards: tuple[float, ...] | None, *, length: int = 2, **given: Any) -> TrainingRow:
    mask = (1 if rewards is not None else 0,) * length
    return TrainingRow("a", group, (5,), (7,) * length, mask, token_rewards=rewards, **given)


def test_rloo_by_hand() -> None:
    """Returns 3, 1 and 2 in one group: 3 − 1.5, 1 − 2.5, 2 − 2. One unscored, one alone in its group."""
    rows = [row("a", (1.0, 2.0)), row("a", (0.0, 1.0)), row("a", None), row("a", (2.0, 0.0)), row("b", (9.0, 9.0))]
    found = with_advantages(rows, AdvantageSettings(estimator="rloo", whiten=False))
    assert [each.advantages for each in found] == [(1.5, 1.5), (-1.5, -1.5), None, (0.0, 0.0), (0.0, 0.0)]


def test_local_pays_spans_and_not_the_residual() -> None:
    """The last token's reward is the residual of the score: it has no verdict."""
    rows = [row("a", (-1.0, 0.7), verdicts=(-1.0, 0.0))]
    found = with_advantages(rows, AdvantageSettings(estimator="local", whiten=False))
    assert found[0].advantages == (-1.0, 0.0)


def test_what_a_tool_wrote_is_not_there() -> None:
    """Tokens 0 and 3 were sampled. Without whitening span_rloo with anchor 0 is the return-to-go against the other's:
    1 + 2 and 2 against 0, whose advantages are the opposite."""
    rewards_BT = torch.tensor([[1.0, 0.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.0]])
    mask_BT = torch.tensor([[1, 0, 0, 1], [1, 1, 0, 0]])
    options = AdvantageSettings(estimator="span_rloo", anchor=0.0, whiten=False)
    found_BT = estimate(rewards_BT, mask_BT, ["g", "g"], options)
    assert found_BT.tolist() == [[3.0, 0.0, 0.0, 2.0], [-3.0, -2.0, 0.0, 0.0]]


numbers = st.sampled_from([-1.0, 0.0, 0.5, 1.0])


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_the_same_as_in_our_own_loop(name: str, data: st.DataObject) -> None:
    """Rewards lie on labelled tokens, and the residual on the last one."""
    rollouts = []
    for index in range(4):
        verdicts = data.draw(st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=1, max_size=5))
        rewards = [each * 0.5 for each in verdicts]
        rewards[-1] += data.draw(numbers)
        length = len(rewards)
        completion = Completion("x" * length, tuple(range(length)), tuple((i, i + 1) for i in range(length)))
        made = Rollout(Example("a", "p"), completion, index, index // 2, (3,), (-1.0,) * length)
        rollouts.append(
            replace(
                made,
                critique=Critique(""),
                alignment=Alignment(),
                token_rewards=tuple(rewards),
                verdicts=tuple(verdicts),
            )
        )
    options = AdvantageSettings(estimator=name)
    wanted_BT = find_estimator(name)(collate(rollouts), 0.0, options).advantages_BT
    mask_BT = collate(rollouts).mask_BT
    # An engine that carries rewards alone gets those of labelled tokens for `local`.
    sent = [labelled(each) if name == "local" else each.token_rewards or () for each in rollouts]
    rewards_BT = torch.nn.utils.rnn.pad_sequence([torch.tensor(each) for each in sent], True)
    found_BT, returns_BT = registered(name)(rewards_BT, mask_BT, index=["u", "u", "v", "v"], gamma=1.0)
    torch.testing.assert_close(found_BT, wanted_BT)
    assert found_BT is returns_BT


def test_a_mask_keeps_the_sum() -> None:
    rollout = Rollout(
        Example("a", "p"), Completion("xyz", (1, 2, 3), ((0, 1), (1, 2), (2, 3))), critique=Critique(""),
        alignment=Alignment(), token_rewards=(-1.0, 0.25, 0.5), verdicts=(-1.0, 1.0, 0.0), score=-0.25,
    )  # fmt: skip
    found = masked(rollout, [1, 1, 0])
    assert (found.token_rewards, found.verdicts) == ((-1.0, 0.75, 0.0), (-1.0, 1.0, 0.0))
    assert masked(rollout, [1, 0, 0]).token_rewards == (-0.25, 0.0, 0.0)
    assert not masked(rollout, [0, 0, 0]).scored and masked(rollout, [1, 1, 1]) is rollout


def test_what_cannot_be_estimated_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs a value head, which only the engine has"):
        with_advantages([row("a", (1.0, 0.0))], AdvantageSettings(estimator="gae"))
    with pytest.raises(InvalidData, match="should agree"):
        estimate(torch.zeros(1, 2), torch.ones(1, 3), ["a"], AdvantageSettings())
    with pytest.raises(ConfigError, match="use_kl_in_reward=false"):
        registered("rloo")(torch.zeros(1, 2), torch.ones(1, 2), SimpleNamespace(use_kl_in_reward=True), ["a"])
    assert with_advantages([row("a", None)]) == [row("a", None)]
    assert estimate(torch.ones(1, 2), torch.zeros(1, 2), ["a"], AdvantageSettings()).tolist() == [[0.0, 0.0]]

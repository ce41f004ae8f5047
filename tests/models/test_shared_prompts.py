"""Looking at completions of the same prompt reads the prompt once, and sees the same."""

from typing import Any

import pytest
import torch

from tests.optim.made import rollout
from text2grad.models.policy import Policy
from text2grad.models.settings import LoraSettings, PolicySettings
from text2grad.models.tiny import tiny_model
from text2grad.optim.batch import Batch, collate

PROMPTS = ((5, 6, 7, 8, 9), (0, 7), (7,), (30, 31, 32))


def batch(each: int, tokens: int = 6) -> Batch:
    """Each prompt so many times, with completions of mixed lengths, in mixed order."""
    draw = torch.Generator().manual_seed(0)
    rows = []
    for number in range(each * len(PROMPTS)):
        ids = torch.randint(300, (1 + number % tokens,), generator=draw).tolist()
        group = number % len(PROMPTS)
        rows.append(
            rollout(
                PROMPTS[group],
                ids,
                logprobs=(0.0,) * len(ids),
                token_rewards=(0.0,) * len(ids),
                values=(0.0,) * len(ids),
                group=group,
                index=number,
            )
        )
    return collate(rows)


@pytest.fixture
def policy(tokenizer: Any) -> Policy:
    torch.manual_seed(0)
    made = Policy(tiny_model(tokenizer), PolicySettings(lora=LoraSettings(rank=2)), value_head=True, temperature=0.7)
    with torch.no_grad():
        for weight in made.trainable().values():
            weight.normal_(std=0.3)
    return made.eval()


def one_by_one(policy: Policy, given: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """A row at a time there is nothing to share."""
    logprobs, values = policy.logprobs_and_values(given, 1)
    assert values is not None
    return logprobs, values


@pytest.mark.parametrize("size", [2, 5, 8, 100])
def test_the_same_is_seen_with_less_reading(policy: Policy, size: int) -> None:
    given = batch(each=4)
    read: list[int] = []
    hook = policy.base.base_model.embed_tokens.register_forward_pre_hook(lambda _, ids: read.append(ids[0].numel()))
    logprobs, values = policy.logprobs_and_values(given, size)
    hook.remove()
    alone, values_alone = one_by_one(policy, given)
    assert values is not None
    torch.testing.assert_close(logprobs, alone, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(values, values_alone, atol=1e-5, rtol=1e-5)
    if size == 8:
        # Two prompts a part, of 2 and 5 tokens at most; eight completions of 6, the last token of which is not read.
        assert sum(read) == 2 * 2 + 2 * 5 + 2 * 8 * 5


def test_the_reference_shares_too(policy: Policy) -> None:
    given = batch(each=4)
    reference = policy.reference()
    torch.testing.assert_close(reference.logprobs(given, 8), reference.logprobs(given, 1), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(reference.logprobs(given, 8), policy.logprobs_and_values(given, 8)[0])


def test_completions_of_one_token(policy: Policy) -> None:
    given = batch(each=4, tokens=1)
    torch.testing.assert_close(
        policy.logprobs_and_values(given, 8)[0], one_by_one(policy, given)[0], atol=1e-5, rtol=1e-5
    )


def test_windows_are_not_shared(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_: Batch) -> None:
        raise AssertionError("shared")

    monkeypatch.setattr(policy.backbone, "_hidden_shared", never)
    with pytest.raises(AssertionError, match="shared"):
        policy.logprobs_and_values(batch(each=4), 8)
    monkeypatch.setattr(policy.base.config, "sliding_window", 4, raising=False)
    policy.logprobs_and_values(batch(each=4), 8)

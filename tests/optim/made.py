"""What the tests of the optimizer share: tiny policies, rollouts of mixed length, and an optimizer that keeps the
gradients it is given instead of using them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from text2grad.models.policy import Policy
from text2grad.models.settings import LoraSettings, PolicySettings
from text2grad.optim.batch import Batch, collate, collate_ids
from text2grad.optim.estimators import Advantages, find_estimator
from text2grad.optim.settings import AdvantageSettings, UpdateSettings
from text2grad.optim.update import Stats, update
from text2grad.types import Alignment, Completion, Critique, Example, Rollout

VOCABULARY = 37
PROMPTS = (3, 1, 5, 2, 4, 3, 6, 2)
COMPLETIONS = (4, 1, 6, 3, 2, 5, 1, 7)


def llama(seed: int = 0, **changes: Any) -> Any:
    settings = {
        "vocab_size": VOCABULARY,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "tie_word_embeddings": True,
        # Large enough that the tokens' probabilities differ.
        "initializer_range": 0.3,
        "bos_token_id": None,
        "eos_token_id": 0,
        "pad_token_id": 0,
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return LlamaForCausalLM(LlamaConfig(**(settings | changes)))


def policy(
    *,
    lora: int = 0,
    value_head: bool = False,
    temperature: float = 1.0,
    seed: int = 0,
    model: Any = None,
    **options: Any,
) -> Policy:
    """Adapters and value head begin at random instead of 0, so that gradients reach everything."""
    made = Policy(
        llama(seed) if model is None else model,
        PolicySettings(lora=LoraSettings(rank=lora), **options),
        value_head=value_head,
        temperature=temperature,
    )
    draw = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if "lora" in name or "value_head" in name:
                weight.copy_(torch.randn(weight.shape, generator=draw) * 0.1)
    return made


def rollout(
    prompt_ids: Sequence[int],
    token_ids: Sequence[int],
    *,
    logprobs: Sequence[float],
    token_rewards: Sequence[float],
    **others: Any,
) -> Rollout:
    """A scored rollout of these numbers; its text is one letter per token."""
    ids = tuple(token_ids)
    return Rollout(
        Example("a", "b"),
        Completion("x" * len(ids), ids, tuple((t, t + 1) for t in range(len(ids)))),
        prompt_ids=tuple(prompt_ids),
        logprobs=tuple(logprobs),
        critique=Critique(""),
        alignment=Alignment(),
        token_rewards=tuple(token_rewards),
        **others,
    )


def rollouts(
    prompts: Sequence[int] = PROMPTS, completions: Sequence[int] = COMPLETIONS, *, seed: int = 0, group: int = 2
) -> list[Rollout]:
    """Random ids, log-probs, rewards, values and verdicts; neighbours share a group."""
    draw = torch.Generator().manual_seed(seed)

    def numbers(length: int) -> tuple[float, ...]:
        return tuple(torch.randn(length, generator=draw).tolist())

    return [
        rollout(
            tuple(torch.randint(1, VOCABULARY, (prompt,), generator=draw).tolist()),
            tuple(torch.randint(0, VOCABULARY, (length,), generator=draw).tolist()),
            logprobs=tuple(-3.5 + 0.5 * number for number in numbers(length)),
            token_rewards=numbers(length),
            values=numbers(length),
            verdicts=tuple(float(round(number)) for number in torch.randint(-1, 2, (length,), generator=draw).tolist()),
            group=index // group,
            index=index,
        )
        for index, (prompt, length) in enumerate(zip(prompts, completions, strict=True))
    ]


def made_batch(policy: Policy | None = None, **options: Any) -> Batch:
    """With a policy, sampling log-probs near its own, so that some ratios are clipped and most are not."""
    batch = collate(rollouts(**options))
    draw = torch.Generator().manual_seed(17)
    reference_BT = -3.5 + 0.5 * torch.randn(batch.mask_BT.shape, generator=draw)
    batch = replace(batch, reference_BT=torch.where(batch.mask_BT, reference_BT, 0.0))
    if policy is None:
        return batch
    logprobs_BT, _ = policy.logprobs_and_values(batch, 8)
    noise_BT = torch.randn(logprobs_BT.shape, generator=torch.Generator().manual_seed(5)) * 0.15
    return replace(batch, logprobs_BT=torch.where(batch.mask_BT, logprobs_BT + noise_BT, 0.0))


class Keeps(torch.optim.SGD):
    """Takes no step; `seen` has the gradients of each."""

    def __init__(self, policy: Policy) -> None:
        self.names = list(policy.trainable())
        self.seen: list[dict[str, Tensor | None]] = []
        super().__init__(policy.trainable().values(), lr=0.1)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # noqa: ARG002
        weights = self.param_groups[0]["params"]
        self.seen.append(
            {
                name: None if weight.grad is None else weight.grad.clone()
                for name, weight in zip(self.names, weights, strict=True)
            }
        )


ONE_STEP = UpdateSettings(epochs=1, minibatches=1, micro_batch=8, max_grad_norm=1e9)


def gradients(
    policy: Policy, batch: Batch, found: Advantages, options: UpdateSettings = ONE_STEP
) -> tuple[dict[str, Tensor], Stats]:
    """Of one step over the whole batch; every trainable weight should get one."""
    optimizer = Keeps(policy)
    stats = update(policy, optimizer, batch, found, options, seed=0)
    (seen,) = optimizer.seen
    assert all(gradient is not None for gradient in seen.values()), [n for n, g in seen.items() if g is None]
    return {name: gradient for name, gradient in seen.items() if gradient is not None}, stats


def advantages(batch: Batch, rewards_BT: Tensor, options: AdvantageSettings) -> Advantages:
    """The estimator that the settings name, on these rewards."""
    return find_estimator(options.estimator)(replace(batch, rewards_BT=rewards_BT), 0.0, options)


def leave_one_out(
    rewards_BT: Tensor, mask_BT: Tensor, group_B: Tensor, gamma: float = 1.0, anchor: float = 0.0
) -> tuple[Tensor, Tensor]:
    """(`span_rloo` without whitening, whether there were others), in the precision of the rewards."""
    ids_BT = torch.zeros(mask_BT.shape, dtype=torch.long)
    batch = replace(
        collate_ids([(1,)] * len(ids_BT), ids_BT.tolist()), mask_BT=mask_BT, rewards_BT=rewards_BT, group_B=group_B
    )
    found = advantages(
        batch, rewards_BT, AdvantageSettings(estimator="span_rloo", gamma=gamma, anchor=anchor, whiten=False)
    )
    return found.advantages_BT, found.mask_BT.any(1)

"""The policy: a backbone with a value head where the estimator needs one, and its reference.

Enters: a transformers model and a batch. Leaves: losses with gradients, or log-probs and values without. The backbone
runs once; only the completion's positions go through the vocabulary projection, a chunk at a time (`optim/head.py`).
The reference is the same model with its adapter off, or a frozen copy.
"""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from text2grad.models.backbone import Headed
from text2grad.models.modes import evaluating
from text2grad.models.settings import PolicySettings
from text2grad.optim.batch import Batch, micro_batches, sent
from text2grad.optim.head import Head, log_probs, sequence_losses, token_losses
from text2grad.optim.losses import SequenceLoss, TokenLoss
from text2grad.optim.reduce import ALONE, World


class Forward(NamedTuple):
    """What one pass over a micro-batch gives; N completion tokens in the order of `Batch.where`."""

    loss: Tensor
    logprobs_N: Tensor
    entropy_N: Tensor
    values_N: Tensor | None


class Policy(Headed):
    """A model that can be updated from token advantages."""

    def __init__(self, model: Any, options: PolicySettings, *, value_head: bool, temperature: float = 1.0) -> None:
        super().__init__(model, options)
        self.temperature = temperature
        self.value_head = self.backbone.token_head() if value_head else None

    def head(self) -> Head:
        """The vocabulary projection with its current weights, at the sampling temperature."""
        return self.backbone.head(self.temperature)

    def forward(
        self,
        batch: Batch,
        loss_of: TokenLoss | SequenceLoss | None = None,
        value_loss_of: Callable[[Tensor], Tensor] | None = None,
        entropy: bool = False,
    ) -> Forward:
        """A micro-batch: its loss with gradients; or, without a loss, log-probs and values only. A prompt that several
        rows begin with is read once, where the model can.

        Everything that reads weights comes through here, because this is where a sharded policy gathers them."""
        # Found before the pass: on a GPU, what is found after it waits for it.
        row_N, ids_N = (sent(numbers, self.device) for numbers in batch.where()[::2])
        hidden_NH = self.backbone.completion_hidden(batch, share=self.backbone.shares_prompts())
        if loss_of is None:
            logprobs_N = log_probs(hidden_NH, self.head(), ids_N)
            loss, entropy_N = logprobs_N.new_zeros(()), torch.zeros_like(logprobs_N)
        elif isinstance(loss_of, SequenceLoss):
            weight_N = sent(batch.loss_weights_BT[batch.mask_BT], self.device)
            loss, logprobs_N = sequence_losses(hidden_NH, self.head(), ids_N, loss_of, row_N, weight_N, len(batch))
            entropy_N = torch.zeros_like(logprobs_N)
        else:
            loss, logprobs_N, entropy_N = token_losses(hidden_NH, self.head(), ids_N, loss_of, entropy=entropy)
        values_N = None
        if self.value_head is not None:
            values_N = self.value_head(hidden_NH if self.options.value_gradient else hidden_NH.detach())
            if value_loss_of is not None:
                loss = loss + value_loss_of(values_N)
        return Forward(loss, logprobs_N, entropy_N, values_N)

    def logprobs_and_values(self, batch: Batch, size: int, world: World = ALONE) -> tuple[Tensor, Tensor | None]:
        """(logprobs_BT, values_BT) of the current policy, `size` completions at a time; 0 outside the mask."""
        return self.read(batch, size, world).wait()

    @torch.no_grad()
    def read(self, batch: Batch, size: int, world: World = ALONE) -> "PendingForward":
        """The same, started and not waited for."""
        rows = torch.arange(len(batch), device=batch.ids_BS.device)
        parts = list(micro_batches(batch, rows, size, together=self.backbone.shares_prompts()))
        # Where weights are gathered from other processes, all must go through the model equally often.
        spare = world.all_max(len(parts)) - len(parts)
        found = []
        with evaluating(self):
            for index in parts + parts[:1] * spare:
                part = batch.rows(index)
                row_N, t_N = part.mask_BT.nonzero(as_tuple=True)
                found.append((index[row_N], t_N, self(part)))
        return PendingForward(torch.zeros_like(batch.logprobs_BT), found)

    def reference(self) -> "Reference":
        """What the policy is kept near to: itself without its adapter, or a frozen copy of its current weights."""
        return Reference(self)


class PendingForward(NamedTuple):
    """Log-probs and values that a GPU may still be at work on."""

    zeros_BT: Tensor
    found: list[tuple[Tensor, Tensor, Forward]]
    """Rows, places in them, and what came for these."""

    def wait(self) -> tuple[Tensor, Tensor | None]:
        """(logprobs_BT, values_BT); values where there is a value head."""
        logprobs_BT, values_BT = self.zeros_BT.clone(), self.zeros_BT.clone()
        valued = False
        for row_N, t_N, out in self.found:
            logprobs_BT[row_N, t_N] = out.logprobs_N.to(row_N.device)
            if out.values_N is not None:
                values_BT[row_N, t_N], valued = out.values_N.to(row_N.device), True
        return logprobs_BT, values_BT if valued else None


class Reference:
    """Log-probs of the policy as it was."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.copy: Policy | None = None
        if not policy.options.lora.rank:
            self.copy = copy.deepcopy(policy).requires_grad_(False).eval()
            self.copy.value_head = None
            self.copy.backbone.compile_layers()

    def logprobs(self, batch: Batch, size: int, world: World = ALONE) -> Tensor:
        return self.read(batch, size, world).wait()[0]

    def read(self, batch: Batch, size: int, world: World = ALONE) -> PendingForward:
        """The same, started and not waited for."""
        if self.copy is not None:
            return self.copy.read(batch, size, world)
        with self._policy.model.disable_adapter():
            return self._policy.read(batch, size, world)

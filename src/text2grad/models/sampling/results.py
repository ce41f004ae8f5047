"""Tensors of a decoded batch → `Sampled`, and hidden states → values: the last step, the same for every sampler.

Enters: (B, T) tensors, filled up to each row's length. Leaves: tuples of plain numbers. One transfer a batch.
"""

from torch import Tensor, nn

from text2grad.models.sampling.types import Sampled


def as_sampled(
    ids_BT: Tensor, logprobs_BT: Tensor, values_BT: Tensor | None, lengths_B: Tensor, ended_B: Tensor
) -> list[Sampled]:
    ids, logprobs = ids_BT.tolist(), logprobs_BT.tolist()
    values = None if values_BT is None else values_BT.tolist()
    return [
        Sampled(
            token_ids=tuple(ids[row][:length]),
            logprobs=tuple(logprobs[row][:length]),
            values=None if values is None else tuple(values[row][:length]),
            truncated=not ended,
        )
        for row, (length, ended) in enumerate(zip(lengths_B.tolist(), ended_B.tolist(), strict=True))
    ]


def values_of(value_head: nn.Module, hidden: Tensor) -> Tensor:
    """The head's numbers in float32, with or without a last dimension of one; it reads numbers of its own dtype."""
    own = next(value_head.parameters(), hidden)
    values: Tensor = value_head(hidden.to(own.dtype))
    return (values.squeeze(-1) if values.dim() == hidden.dim() else values).float()

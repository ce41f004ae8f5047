"""How likely a model finds given continuations: log-probs of their tokens, in batches.

Enters: a model, and pairs of prompt ids and continuation ids. Leaves: one sum of log-probs per pair. Nothing is
sampled.
"""

from collections.abc import Sequence
from typing import Any

import torch

Pair = tuple[Sequence[int], Sequence[int]]
BATCH_TOKENS = 8192
"""Of one pass, padding included."""


@torch.no_grad()
def continuation_logprobs(model: Any, pairs: Sequence[Pair], pad_id: int) -> list[float]:
    """The sum over each continuation's tokens of log p(token | prompt, tokens before it); 0 for an empty one."""
    sums = [0.0] * len(pairs)
    order = sorted(range(len(pairs)), key=lambda place: -sum(map(len, pairs[place])))
    while order:
        width = max(2, sum(map(len, pairs[order[0]])))
        chosen, order = order[: max(1, BATCH_TOKENS // width)], order[max(1, BATCH_TOKENS // width) :]
        rows = [[*pairs[place][0], *pairs[place][1]] for place in chosen]
        ids_BT = torch.tensor([row + [pad_id] * (width - len(row)) for row in rows], device=model.device)
        mask_BT = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=model.device)
        logits_BTV = model(input_ids=ids_BT, attention_mask=mask_BT).logits
        for row, place in enumerate(chosen):
            begin, end = len(pairs[place][0]), len(rows[row])
            if begin == end:
                continue
            # The logits before a token say how likely it is. Only these rows of the vocabulary become float32.
            logprobs_TV = logits_BTV[row, begin - 1 : end - 1].float().log_softmax(-1)
            taken_T = ids_BT[row, begin:end, None]
            sums[place] = float(logprobs_TV.gather(-1, taken_T).sum())
    return sums

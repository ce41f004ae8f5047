"""tinker: rows → `Datum`s with one advantage per token. Page: docs/engines/tinker.md.

The SDK is imported when a row is turned; this module can be imported without it.
"""

from collections.abc import Sequence
from typing import Any

from text2grad.engines.rows import TrainingRow


def datums(rows: Sequence[TrainingRow]) -> list[Any]:
    """What `TrainingClient.forward_backward` takes with the losses importance_sampling, ppo and cispo. Unscored rows
    are left out."""
    import tinker

    return [
        tinker.Datum(model_input=tinker.ModelInput.from_ints(each.pop("input")), loss_fn_inputs=each)
        for each in map(streams, rows)
        if each is not None
    ]


def streams(row: TrainingRow) -> dict[str, Any] | None:
    """The streams of one row, each as long as the targets: position t predicts token t + 1, and prompt positions are 0.

    >>> ids = {"prompt_ids": (5, 6), "completion_ids": (7, 0), "mask": (1, 1)}
    >>> numbers = {"logprobs": (-1.0, -2.0), "token_rewards": (0.0, 1.0), "advantages": (0.0, 1.5)}
    >>> made = streams(TrainingRow("a", "0", **ids, **numbers))
    >>> made["input"], made["target_tokens"], made["advantages"]
    ([5, 6, 7], [6, 7, 0], [0.0, 0.0, 1.5])
    """
    if not row.scored:
        return None
    logprobs, advantages = row.learned_from("tinker")
    ids, before = [*row.prompt_ids, *row.completion_ids], [0.0] * (len(row.prompt_ids) - 1)
    return {
        "input": ids[:-1],
        "target_tokens": ids[1:],
        "logprobs": [*before, *logprobs],
        "advantages": [*before, *advantages],
    }

"""What every sampler holds: the model that it draws from, and what a completion may look like."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from text2grad.models.sampling.requests import Padding, vocabulary_of
from text2grad.models.sampling.settings import SamplingSettings


class OverModel:
    """A sampler over a model of transformers, or peft's around one."""

    def __init__(
        self,
        model: Any,
        settings: SamplingSettings,
        *,
        end_ids: Sequence[int],
        pad_id: int,
        value_head: nn.Module | None = None,
    ) -> None:
        self.model, self.settings, self.value_head = model, settings, value_head
        self.end_ids, self.pad_id = tuple(end_ids), pad_id
        self.positions: int | None = getattr(model.config, "max_position_embeddings", None)
        self.vocabulary = vocabulary_of(model, pad_id)
        self.padding = Padding(0, 0)
        """Of the last call."""

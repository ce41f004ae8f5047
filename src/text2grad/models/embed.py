"""Texts → vectors of length one whose products say how alike they mean: the embedder that alignment can be given.

Enters: the folder or hub id of a sentence-embedding model (all-MiniLM-L6-v2 and its kind: mean over tokens), texts.
Leaves: one row per text. Batched by length, without gradients. Knows nothing of critiques.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from text2grad.models.load import read_pair


class Embedder:
    """`Embedder("path/to/model")(["a text", "another"])` → array of two rows."""

    def __init__(
        self, name: str, *, device: str = "cpu", dtype: str = "float32", batch: int = 64, longest: int = 64
    ) -> None:
        """`longest`: tokens of a text that are read; `batch`: texts at once. `dtype` bfloat16 is twice as fast on
        processors that have it; a row then depends in its third digit on what it is batched with, which float32 avoids.
        """
        from transformers import AutoModel

        model, self.tokenizer = read_pair(AutoModel.from_pretrained, name)
        self.model = model.to(device, getattr(torch, dtype)).eval()
        self.device, self.batch, self.longest = device, batch, longest

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        rows = np.zeros((len(texts), self.model.config.hidden_size), dtype=np.float32)
        for start in range(0, len(order), self.batch):
            chosen = order[start : start + self.batch]
            rows[chosen] = self._embed([texts[index] for index in chosen])
        return rows

    @torch.inference_mode()
    def _embed(self, texts: list[str]) -> Any:
        encoded = self.tokenizer(texts, padding=True, truncation=True, max_length=self.longest, return_tensors="pt")
        encoded = encoded.to(self.device)
        hidden_BTD = self.model(**encoded).last_hidden_state
        mask_BT1 = encoded["attention_mask"].unsqueeze(-1).to(hidden_BTD.dtype)
        mean_BD = (hidden_BTD * mask_BT1).sum(1) / mask_BT1.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(mean_BD, dim=-1).float().cpu().numpy()

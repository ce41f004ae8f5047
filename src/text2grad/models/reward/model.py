"""The two-headed reward model. The backbone reads prompt, completion, the completion again and the critique, once. The
language head learns to write the critique. The span head labels the tokens of the second completion.

Enters: a causal model, or a folder that `save_pretrained` wrote. Leaves: losses with gradients, or predictions. Plain
transformers loads the folder; the span head and the card (template, calibration) are files beside the model.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import fields
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from text2grad import config
from text2grad.errors import CorruptModel, ModelNotFound
from text2grad.feedback.critics.learned import CARD
from text2grad.feedback.critics.words import encodable
from text2grad.feedback.labels import Calibration, TokenLabels
from text2grad.models.backbone import Headed, at_positions
from text2grad.models.load import load_model
from text2grad.models.modes import evaluating
from text2grad.models.reward.template import FilledTemplate, Reader
from text2grad.models.settings import LoraSettings, PolicySettings, Template
from text2grad.optim.batch import Batch, sent, unlearned
from text2grad.optim.head import token_losses
from text2grad.optim.labels import LabelBatch, LossWeights, read_out, span_losses
from text2grad.optim.losses import Likelihood

_HEAD = "span_head.safetensors"


class RewardForward(NamedTuple):
    """What one pass over a micro-batch gives."""

    loss: Tensor
    sums_3: Tensor
    """Span, reward and language loss, summed over tokens, without weights."""
    out_N5: Tensor
    """The span head's numbers, in the order of the `LabelBatch`."""


class RewardModel(Headed):
    """A backbone with its language head, which writes the critique, and a span head, which labels every token."""

    def __init__(self, model: Any, options: PolicySettings, template: Template) -> None:
        super().__init__(model, options)
        self.template = template
        self.calibration = Calibration()
        self.span_head = self.backbone.token_head(5)
        self._gathered: dict[str, Tensor] | None = None
        # A buffer, because predictions cannot be read without it.
        self.register_buffer("class_weights_3", torch.ones(3, device=self.device))
        self.class_weights_3: Tensor

    def forward(
        self, batch: Batch, labels: LabelBatch | None = None, weights: LossWeights | None = None
    ) -> RewardForward:
        """A micro-batch. `Batch.loss_weights_BT` says which tokens of the critique count. Without `weights` there is no
        loss, and the language head does not run."""
        hidden_BSH = self.backbone.hidden(batch.ids_BS)
        zero = hidden_BSH.new_zeros((), dtype=torch.float32)
        out_N5 = zero.new_zeros((0, 5))
        if labels is not None:
            out_N5 = self.span_head(at_positions(hidden_BSH, labels.row_N, labels.position_N))
        if weights is None:
            return RewardForward(zero, zero.new_zeros(3), out_N5)
        span, reward = zero, zero
        if labels is not None and labels.verdict_N is not None and labels.reward_N is not None:
            span, reward = span_losses(out_N5, labels.verdict_N, labels.reward_N, self.class_weights_3)
        row_N, position_N, ids_N = batch.where()
        hidden_NH = self.backbone.narrowed(at_positions(hidden_BSH, row_N, position_N))
        weight_N = batch.loss_weights_BT[batch.mask_BT]
        loss_of = Likelihood(weight_N * weights.language)
        language, logprobs_N, _ = token_losses(hidden_NH, self.backbone.head(), ids_N, loss_of, entropy=False)
        sums_3 = torch.stack([span.detach(), reward.detach(), -(logprobs_N * weight_N).sum().detach()])
        return RewardForward(weights.span * span + weights.reward * reward + language, sums_3, out_N5)

    @torch.no_grad()
    def predict(self, encoded: Sequence[FilledTemplate], batch_tokens: int) -> list[Tensor]:
        """The span head's raw numbers for each completion, (T + 1, 5). Completions of similar length share a pass; all
        passes are started before the first result is waited for."""
        if not encoded:
            return []
        parts = list(by_length([len(text.ids) for text in encoded], batch_tokens))
        outs = []
        with evaluating(self):
            for part in parts:
                texts = [encoded[i] for i in part]
                batch = unlearned([text.ids for text in texts], self.device)
                outs.append(self(batch, label_batch(texts, self.device)).out_N5.float())
        order = [i for part in parts for i in part]
        split = torch.split(torch.cat(outs).cpu(), [len(encoded[i].offsets) + 1 for i in order])
        return [out for _, out in sorted(zip(order, split, strict=True), key=itemgetter(0))]

    def read(self, out_N5: Tensor) -> tuple[Tensor, Tensor]:
        """Raw numbers → (probabilities (N, 3), reward sizes (N, 2)), by the calibration."""
        probs_N3, sizes_N2 = read_out(out_N5, self.class_weights_3.to(out_N5.device), self.calibration.temperature)
        return probs_N3, sizes_N2 * self.calibration.scale

    def reader(self, tokenizer: Any) -> Reader:
        return Reader(self.template, tokenizer)

    def reweigh(self, weights_3: Tensor) -> None:
        """Change the class weights of the loss; predictions stay the same."""
        weights_3 = weights_3.to(self.device)
        with torch.no_grad():
            self.span_head.linear.bias[:3] += weights_3.log() - self.class_weights_3.log()
        self.class_weights_3.copy_(weights_3)

    # ------------------------------------------------------------------------------------------------------- files

    def save_pretrained(
        self, path: str | Path, tokenizer: Any, weights: dict[str, Tensor] | None = None, *, adapter: bool = False
    ) -> None:
        """Write what `from_pretrained` reads. `weights`: see `Backbone.save_pretrained`."""
        assert not adapter, "a reward model is saved whole: its head belongs to it"
        self.backbone.save_pretrained(path, tokenizer, weights)
        head = self._gathered or self._head_weights()
        save_file(head | {"class_weights_3": self.class_weights_3.cpu()}, Path(path) / _HEAD)
        card = {"template": config.plain(self.template), "calibration": config.plain(self.calibration)}
        (Path(path) / CARD).write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    def gather_head(self) -> None:
        """Gather the span head's weights where they are sharded. Every process must call it; the main one saves."""
        self._gathered = self._head_weights()

    def _head_weights(self) -> dict[str, Tensor]:
        parameters: Any = self.span_head.named_parameters()
        whole = {name: w.full_tensor() if hasattr(w, "full_tensor") else w.detach() for name, w in parameters}
        return {name: weight.contiguous().cpu() for name, weight in whole.items()}

    def load_head(self, path: str | Path) -> None:
        """Take the span head and its class weights from a reward model's folder."""
        file = Path(path).expanduser() / _HEAD
        try:
            head = load_file(file, device=str(self.device))
            weights = head.pop("class_weights_3")
            if weights.shape != (3,) or not bool(((weights > 0) & weights.isfinite()).all()):
                raise ValueError(f"class_weights_3 should be three finite numbers above 0, got {weights.tolist()}")
            self.class_weights_3.copy_(weights)
            self.span_head.load_state_dict(head)
        except (OSError, KeyError, ValueError, RuntimeError, SafetensorError) as problem:
            raise _corrupt(file, problem) from None

    @classmethod
    def from_pretrained(
        cls, path: str | Path, *, device: str = "cpu", precision: Literal["float32", "bfloat16"] = "float32"
    ) -> tuple["RewardModel", Any]:
        """(reward model, tokenizer), frozen."""
        folder = Path(path).expanduser()
        template, calibration = read_card(folder)
        base, tokenizer = load_model(str(folder), device=device, dtype=precision)
        options = PolicySettings(lora=LoraSettings(rank=0), precision=precision)
        model = cls(base, options, template.within(base))
        model.calibration = calibration
        model.load_head(folder)
        return model.requires_grad_(False).eval(), tokenizer


def read_card(path: str | Path) -> tuple[Template, Calibration]:
    """The card of a reward model: what it reads, and how its predictions are read."""
    card = Path(path).expanduser() / CARD
    if not card.is_file():
        raise ModelNotFound(f"{path}: should be a reward model's folder, but has no {CARD}; RUN/model has one")
    try:
        content = json.loads(card.read_text(encoding="utf-8"))
        for name, kind in (("template", Template), ("calibration", Calibration)):
            if missing := [field.name for field in fields(kind) if field.name not in content[name]]:
                raise KeyError(f"{name} has no {', '.join(missing)}")
        if not encodable(*filter(lambda value: isinstance(value, str), content["template"].values())):
            raise ValueError("template: half a surrogate pair")
        template = config.build(Template, content["template"], f"{card}: template")
        return template, config.build(Calibration, content["calibration"], f"{card}: calibration")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise _corrupt(card, problem) from None


def _corrupt(path: Path, problem: Exception) -> CorruptModel:
    return CorruptModel(f"{path}: cannot be read ({' '.join(str(problem).split())}); train or copy the model again")


def label_batch(
    encoded: Sequence[FilledTemplate],
    device: torch.device | str,
    labels: Sequence[TokenLabels] | None = None,
    scale: float = 1.0,
) -> LabelBatch:
    """Where the span head is read for each completion: on every token of the second reading, and where the critique
    begins (the decision to stop). `labels`: what to predict there, rewards in units of `scale`. Counted on the host, so
    that a GPU need not be waited for."""
    sizes = np.array([len(text.offsets) + 1 for text in encoded])
    row_N, ends_B = np.repeat(np.arange(len(encoded)), sizes), np.cumsum(sizes)
    first_B = np.array([text.first for text in encoded])
    position_N = np.arange(len(row_N)) + (first_B - ends_B + sizes)[row_N]
    position_N[ends_B - 1] = [len(text.ids) - 1 for text in encoded]
    streams = [row_N, position_N]
    if labels is not None:
        streams.append(np.concatenate([label.verdicts for label in labels]))
        streams.append((np.concatenate([label.rewards for label in labels]) / scale).astype(np.float32))
    return LabelBatch(*(sent(torch.from_numpy(stream), device) for stream in streams))


def by_length(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Indices in parts of at most so many tokens, padding included; at least one in each.

    >>> list(by_length([5, 9, 4], 10))
    [[2, 0], [1]]
    """
    part: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: (lengths[i], i)):
        if part and lengths[i] * (len(part) + 1) > tokens:
            yield part
            part = []
        part.append(i)
    if part:
        yield part

"""The two-headed model. The backbone runs once over prompt, completion, completion again and critique; the language
head learns the critique, the span head reads the second completion: three logits and two worths a token.

Enters: a causal model, or a folder that `save_pretrained` wrote. Leaves: losses with gradients, or numbers to judge by.
The folder is one that plain transformers loads; the span head and the card (template, calibration) lie beside.
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
from torch import Tensor, nn

from text2grad import config
from text2grad.errors import CorruptModel, ModelNotFound
from text2grad.feedback.critics.learned import CARD
from text2grad.feedback.critics.words import encodable
from text2grad.feedback.lessons import Calibration, Numbers
from text2grad.models.backbone import Backbone, at_positions
from text2grad.models.load import load_model
from text2grad.models.modes import evaluating
from text2grad.models.reward.template import Encoded, Reader, Template
from text2grad.models.settings import LoraSettings, PolicySettings
from text2grad.optim.batch import Batch, sent, unlearned
from text2grad.optim.head import token_losses
from text2grad.optim.reward import TokenLikelihood, Weighing
from text2grad.optim.spans import Marks, Places, read_out, span_losses

_HEAD = "span_head.safetensors"


class Judged(NamedTuple):
    """What one pass over a micro-batch gives."""

    loss: Tensor
    sums_3: Tensor
    """Span, worth and language loss, summed over tokens, not weighed."""
    out_N5: Tensor
    """The span head's numbers, in the order of `Marks.where`."""


class RewardModel(nn.Module):
    """A backbone with its language head, which writes the critique, and a span head, which labels every token."""

    def __init__(self, model: Any, options: PolicySettings, template: Template) -> None:
        super().__init__()
        self.backbone = Backbone(model, options)
        self.template = template
        self.calibration = Calibration()
        self.span_head = self.backbone.token_head(5)
        self._settled: dict[str, Tensor] | None = None
        # Of the loss. Kept in a buffer, because they belong to the head's numbers as its weights do.
        self.register_buffer("class_weights_3", torch.ones(3, device=self.device))
        self.class_weights_3: Tensor

    @property
    def base(self) -> Any:
        """The transformers model, without peft's wrapper."""
        return self.backbone.base

    @property
    def device(self) -> torch.device:
        return self.backbone.device

    def trainable(self) -> dict[str, nn.Parameter]:
        return {name: weight for name, weight in self.named_parameters() if weight.requires_grad}

    def forward(self, batch: Batch, marks: Marks | Places | None = None, weighing: Weighing | None = None) -> Judged:
        """A micro-batch, in which `rewards_BT` says which tokens of the critique count. Without `weighing` nothing is
        learned, and the language head does not run."""
        hidden_BSH = self.backbone.hidden(batch.ids_BS)
        zero = hidden_BSH.new_zeros((), dtype=torch.float32)
        out_N5, span, worth, language, loss = zero.new_zeros((0, 5)), zero, zero, zero, zero
        if marks is not None:
            out_N5 = self.span_head(at_positions(hidden_BSH, *marks.where()))
            if weighing is not None and isinstance(marks, Marks):
                verdict_N, worth_N = marks.verdict_BL[marks.mask_BL], marks.worth_BL[marks.mask_BL]
                span, worth = span_losses(out_N5, verdict_N, worth_N, self.class_weights_3)
                loss = weighing.span * span + weighing.worth * worth
        if weighing is not None:
            row_N, position_N, ids_N = batch.where()
            hidden_NH = self.backbone.narrowed(at_positions(hidden_BSH, row_N, position_N))
            counts_N = batch.rewards_BT[batch.mask_BT]
            weighed, logprobs_N, _ = token_losses(
                hidden_NH, self.backbone.head(), ids_N, TokenLikelihood(counts_N * weighing.language), entropy=False
            )
            language = -(logprobs_N * counts_N).sum()
            loss = loss + weighed
        return Judged(loss, torch.stack([span.detach(), worth.detach(), language.detach()]), out_N5)

    @torch.no_grad()
    def judge(self, encoded: Sequence[Encoded], batch_tokens: int) -> list[Tensor]:
        """What the span head says of each: (T + 1, 5), as it comes; neighbours in length are read together. All parts
        are asked for before the first is waited for."""
        if not encoded:
            return []
        parts = list(by_length([len(one.ids) for one in encoded], batch_tokens))
        with evaluating(self):
            outs = [self(*unlabelled([encoded[at] for at in part], self.device)).out_N5.float() for part in parts]
        order = [at for part in parts for at in part]
        found = torch.split(torch.cat(outs).cpu(), [len(encoded[at].offsets) + 1 for at in order])
        return [out for _, out in sorted(zip(order, found, strict=True), key=itemgetter(0))]

    def read(self, out: Tensor) -> tuple[Tensor, Tensor]:
        """The head's numbers as probabilities and worths, by the calibration."""
        probs, worths = read_out(out, self.class_weights_3.to(out.device), self.calibration.temperature)
        return probs, worths * self.calibration.scale

    def read_all(self, outs: Sequence[Tensor]) -> tuple[Numbers, Numbers]:
        """The same of what `judge` gave, one below the other, to reckon with on the host."""
        probs, worths = self.read(torch.cat([*outs]) if outs else torch.empty(0, 5))
        return probs.double().numpy(), worths.double().numpy()

    def reader(self, tokenizer: Any) -> Reader:
        return Reader(self.template, tokenizer)

    def save_pretrained(self, path: str | Path, tokenizer: Any, weights: dict[str, Tensor] | None = None) -> None:
        """What `from_pretrained` reads; without the span head, plain transformers does, too."""
        self.backbone.save_pretrained(path, tokenizer, weights)
        head = self._settled or self._head()
        save_file(head | {"class_weights_3": self.class_weights_3.cpu()}, Path(path) / _HEAD)
        card = {"template": config.plain(self.template), "calibration": config.plain(self.calibration)}
        (Path(path) / CARD).write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    def settle(self) -> None:
        """Take the span head's weights together, as they are now, where they are shared out over processes: all must
        ask, and only the first one saves."""
        self._settled = self._head()

    def reweigh(self, weights_3: Tensor) -> None:
        """Count the classes otherwise in the loss; what the head has learned, it goes on saying."""
        weights_3 = weights_3.to(self.device)
        with torch.no_grad():
            self.span_head.linear.bias[:3] += weights_3.log() - self.class_weights_3.log()
        self.class_weights_3.copy_(weights_3)

    def _head(self) -> dict[str, Tensor]:
        return {name: _whole(weight).contiguous().cpu() for name, weight in self.span_head.named_parameters()}

    def adopt(self, path: str | Path) -> None:
        """Take over the span head of a reward model's folder, and how its classes were weighed."""
        place = Path(path).expanduser()
        try:
            head = load_file(place / _HEAD, device=str(self.device))
            weights = head.pop("class_weights_3")
            if weights.shape != (3,) or not bool(((weights > 0) & weights.isfinite()).all()):
                raise ValueError(f"class_weights_3 should be three finite numbers above 0, got {weights.tolist()}")
            self.class_weights_3.copy_(weights)
            self.span_head.load_state_dict(head)
        except (OSError, KeyError, ValueError, RuntimeError, SafetensorError) as problem:
            raise _corrupt(place / _HEAD, problem) from None

    @classmethod
    def from_pretrained(
        cls, path: str | Path, *, device: str = "cpu", precision: Literal["float32", "bfloat16"] = "float32"
    ) -> tuple["RewardModel", Any]:
        """(reward model, tokenizer), to judge with."""
        place = Path(path).expanduser()
        template, calibration = read_card(place)
        model, tokenizer = load_model(str(place), device=device, dtype=precision)
        template = template.within(model)
        made = cls(model, PolicySettings(lora=LoraSettings(rank=0), precision=precision), template)
        made.calibration = calibration
        made.adopt(place)
        return made.requires_grad_(False).eval(), tokenizer


def read_card(path: str | Path) -> tuple[Template, Calibration]:
    """What lies beside the weights of a reward model: what it reads, and how it is read."""
    card = Path(path).expanduser() / CARD
    if not card.is_file():
        raise ModelNotFound(f"{path}: should be a reward model's folder, but has no {CARD}; RUN/model has one")
    try:
        held = json.loads(card.read_text(encoding="utf-8"))
        for name, kind in (("template", Template), ("calibration", Calibration)):
            if missing := [field.name for field in fields(kind) if field.name not in held[name]]:
                raise KeyError(f"{name} has no {', '.join(missing)}")
        if not encodable(*filter(lambda value: isinstance(value, str), held["template"].values())):
            raise ValueError("template: half a surrogate pair")
        template = config.build(Template, held["template"], f"{card}: template")
        return template, config.build(Calibration, held["calibration"], f"{card}: calibration")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise _corrupt(card, problem) from None


def _corrupt(path: Path, problem: Exception) -> CorruptModel:
    return CorruptModel(f"{path}: cannot be read ({' '.join(str(problem).split())}); train or copy the model again")


def _whole(weight: Any) -> Tensor:
    whole: Tensor = weight.full_tensor() if hasattr(weight, "full_tensor") else weight.detach()
    return whole


def unlabelled(encoded: Sequence[Encoded], device: torch.device | str) -> tuple[Batch, Places]:
    """Completions to judge; no critique follows."""
    sizes = np.array([len(one.offsets) + 1 for one in encoded])
    row_N, ends_B = np.repeat(np.arange(len(encoded)), sizes), np.cumsum(sizes)
    first_B = np.array([one.first for one in encoded])
    position_N = np.arange(len(row_N)) + (first_B - ends_B + sizes)[row_N]
    # The last of each is the decision to stop, where the critique begins.
    position_N[ends_B - 1] = [len(one.ids) - 1 for one in encoded]
    places = Places(sent(row_N, device), sent(position_N, device))
    return unlearned([one.ids for one in encoded], device), places


def by_length(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Places in parts of at most so many tokens, padding included; at least one in each.

    >>> list(by_length([5, 9, 4], 10))
    [[2, 0], [1]]
    """
    part: list[int] = []
    for place in sorted(range(len(lengths)), key=lambda one: (lengths[one], one)):
        if part and lengths[place] * (len(part) + 1) > tokens:
            yield part
            part = []
        part.append(place)
    if part:
        yield part

"""A trained reward model as a critic: `--critic path/to/checkpoint`.

Enters: prompts and completions. Leaves: critiques whose rewards come from the span head, in one pass. The language head
writes feedback on demand (`explain`). A completion is not scored if the model is not sure enough or has no room for it.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from text2grad.errors import CriticError, InvalidData
from text2grad.feedback.critics.protocol import Critiques, Prompt
from text2grad.feedback.labels import Numbers, confidence_of, critique_of
from text2grad.feedback.replies import Reply, read_reply
from text2grad.feedback.settings import LearnedSettings
from text2grad.models.chat import end_ids
from text2grad.models.reward.model import RewardModel
from text2grad.models.reward.template import FilledTemplate
from text2grad.models.sampling import ModelSampler, SamplingSettings
from text2grad.types import Critique

Prediction = tuple[Numbers, Numbers]
"""(probabilities (T + 1, 3), reward sizes (T + 1, 2)) of one completion, calibrated."""


class RewardCritic:
    """`critic(prompts, completions)`; columns are ignored. `loaded`: a model in memory with its tokenizer; `path` is
    then only a name, and device and precision stay as they are."""

    def __init__(
        self, path: str | Path, options: LearnedSettings | None = None, loaded: tuple[RewardModel, Any] | None = None
    ) -> None:
        self.options = options or LearnedSettings()
        self.__name__ = f"reward model {path}"
        device = self.options.device
        if device == "auto":
            # Several processes on one machine take different GPUs, as far as there are enough.
            gpu = int(os.environ.get("LOCAL_RANK", "0")) % max(torch.cuda.device_count(), 1)
            device = f"cuda:{gpu}" if torch.cuda.is_available() else "cpu"
        self.model, self.tokenizer = loaded or RewardModel.from_pretrained(
            path, device=device, precision=self.options.precision
        )
        self.reader = self.model.reader(self.tokenizer)
        self._check(path)

    def _check(self, path: str | Path) -> None:
        options = self.options
        if options.by == "head" and not self.model.span_head.linear.weight[:3].any():
            raise CriticError(
                f"{path}: its span head was never trained (loss.span=0, or the held-out loss never fell below its "
                f"start), so it predicts nothing; critics.learned.by=generation has it write its critiques instead"
            )
        if options.by == "generation" and options.confidence is not None:
            raise CriticError(
                f"{path}: critics.learned.confidence is about the span head, which critics.learned.by=generation does "
                f"not use; leave it out, or set critics.learned.by=head"
            )

    def __call__(self, prompts: Sequence[Prompt], completions: Sequence[str], **_: Sequence[Any]) -> Critiques:
        encoded, reasons = self.encode(prompts, completions)
        if self.options.by == "generation":
            critiques: list[Critique | None] = []
            for i, reply in enumerate(self._write(encoded, completions)):
                critiques.append(None if reply is None else reply.critique)
                if reply is not None and reply.critique is None:
                    reasons[i] = f"what the reward model wrote is no critique: {reply.reason}"
            return Critiques(critiques, reasons)
        answers = self._by_head(encoded, completions, reasons)
        return self._explained(prompts, completions, answers) if self.options.write else answers

    def explain(
        self, prompts: Sequence[Prompt], completions: Sequence[str], critiques: Sequence[Critique | None]
    ) -> Critiques:
        """The same critiques with feedback written by the language head. Where it writes nothing that can be parsed,
        the feedback stays. Nothing else changes: no reward depends on these words."""
        if self.options.write or self.options.by == "generation":
            # The language head has already written these words.
            return Critiques(critiques, getattr(critiques, "reasons", {}))
        return self._explained(prompts, completions, critiques)

    def _explained(
        self, prompts: Sequence[Prompt], completions: Sequence[str], critiques: Sequence[Critique | None]
    ) -> Critiques:
        scored = {i: critique for i, critique in enumerate(critiques) if critique is not None}
        texts = [completions[i] for i in scored]
        encoded, _ = self.encode([prompts[i] for i in scored], texts)
        explained = list(critiques)
        for (i, critique), reply in zip(scored.items(), self._write(encoded, texts), strict=True):
            if reply is not None and reply.critique is not None and not reply.mended:
                explained[i] = replace(critique, feedback=reply.critique.feedback)
        return Critiques(explained, getattr(critiques, "reasons", {}))

    # ------------------------------------------------------------------------------------------------ its two heads

    def encode(
        self, prompts: Sequence[Prompt], completions: Sequence[str]
    ) -> tuple[list[FilledTemplate | None], dict[int, str]]:
        """(what the model reads; None where it cannot, the reasons)."""
        texts = self.reader.encode_all(prompts, completions)
        reasons = {i: str(text) for i, text in enumerate(texts) if isinstance(text, InvalidData)}
        return [None if isinstance(text, InvalidData) else text for text in texts], reasons

    def predict(self, encoded: Sequence[FilledTemplate | None]) -> list[Prediction | None]:
        """The span head's calibrated predictions for each; None for None."""
        texts = [text for text in encoded if text is not None]
        outs = self.model.predict(texts, self.options.batch_tokens)
        # Calibrated all together, then cut apart: one call instead of hundreds.
        probs, sizes = (n.double().numpy() for n in self.model.read(torch.cat(outs) if outs else torch.empty(0, 5)))
        edges = pairwise(accumulate((len(out) for out in outs), initial=0))
        split = ((probs[start:end], sizes[start:end]) for start, end in edges)
        return [None if text is None else next(split) for text in encoded]

    def _by_head(
        self, encoded: Sequence[FilledTemplate | None], completions: Sequence[str], reasons: dict[int, str]
    ) -> Critiques:
        calibration = self.model.calibration
        floor = calibration.confidence if self.options.confidence is None else self.options.confidence
        critiques: list[Critique | None] = [None] * len(encoded)
        for i, (text, prediction) in enumerate(zip(encoded, self.predict(encoded), strict=True)):
            if text is None or prediction is None:
                continue
            probs, sizes = prediction
            confidence = confidence_of(probs)
            if not np.isfinite(probs).all() or not np.isfinite(sizes).all():
                reasons[i] = "the reward model gave numbers that are not finite"
            elif confidence < floor or floor == 1:
                # A floor of 1 scores nothing, not even what rounding makes certain.
                reasons[i] = (
                    f"the reward model is only {confidence:.4f} sure, and {floor:.4f} is wanted "
                    f"(critics.learned.confidence)"
                )
            else:
                critiques[i] = critique_of(completions[i], text.offsets, probs, sizes, calibration)
        return Critiques(critiques, reasons)

    def _write(self, encoded: Sequence[FilledTemplate | None], completions: Sequence[str]) -> list[Reply | None]:
        """What the language head writes about each, parsed; None for None."""
        readable = [i for i, text in enumerate(encoded) if text is not None]
        replies: list[Reply | None] = [None] * len(encoded)
        samples = self.sampler([text.ids for text in encoded if text is not None], None) if readable else []
        for i, sample in zip(readable, samples, strict=True):
            text = self.tokenizer.decode(sample.token_ids, skip_special_tokens=True)
            replies[i] = self._parsed(text, sample.truncated, completions[i])
        return replies

    def _parsed(self, text: str, truncated: bool, completion: str) -> Reply:
        if self.model.template.writes == "quotes":
            reply = read_reply(text, cut=truncated, shown=completion)
            critique = reply.critique
            return reply if critique is None else replace(reply, critique=replace(critique, quotes_only=True))
        if truncated or not text.strip():
            return Reply(None, reason="it was cut off" if truncated else "it is empty")
        return Reply(Critique(text.strip()))

    @cached_property
    def sampler(self) -> Any:
        """Writes critiques, greedily."""
        ends = end_ids(self.tokenizer, self.model.base)
        settings = SamplingSettings(max_new_tokens=self.model.template.critique_tokens)
        return ModelSampler(self.model.base, settings, end_ids=ends, pad_id=self.tokenizer.pad_token_id)

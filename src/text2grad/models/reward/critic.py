"""A trained reward model as a critic: `--critic path/to/checkpoint`.

Enters: prompts and completions. Leaves: critiques whose token rewards come from the span head, in one pass; feedback is
written by the language head on demand (`explain`). What the model is not sure of, or has no room for, is not scored.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from text2grad.errors import CriticError, InvalidData
from text2grad.feedback.critics.learned import LearnedSettings
from text2grad.feedback.critics.protocol import Answers, Prompt
from text2grad.feedback.critics.words import UNENCODABLE, encodable, prompt_text
from text2grad.feedback.lessons import Numbers, confidence_of, critique_of
from text2grad.feedback.replies import Reply, read_reply
from text2grad.models.chat import end_ids
from text2grad.models.reward.model import RewardModel
from text2grad.models.reward.template import Encoded
from text2grad.models.sampling import SamplingSettings, make_sampler
from text2grad.types import Critique


class RewardCritic:
    """`critic(prompts, completions)`; columns are not looked at. `held`: a model and its tokenizer that are in memory
    already; `path` is then a name, and their device and precision stay as they are."""

    def __init__(
        self, path: str | Path, options: LearnedSettings | None = None, held: tuple[RewardModel, Any] | None = None
    ) -> None:
        import torch

        self.options = options or LearnedSettings()
        self.__name__ = f"reward model {path}"
        device = self.options.device
        if device == "auto":
            # Of several processes on a machine, each has a GPU of its own, as far as there are enough.
            place = int(os.environ.get("LOCAL_RANK", "0")) % max(torch.cuda.device_count(), 1)
            device = f"cuda:{place}" if torch.cuda.is_available() else "cpu"
        self.model, self.tokenizer = held or RewardModel.from_pretrained(
            path, device=device, precision=self.options.precision
        )
        self.reader = self.model.reader(self.tokenizer)
        if self.options.by == "head" and not self.model.span_head.linear.weight[:3].any():
            raise CriticError(
                f"{path}: its span head was never trained (loss.span=0, or no look at the held-out loss was below the "
                f"first), so it judges nothing; critics.learned.by=generation has it write its critiques instead"
            )

        if self.options.by == "generation" and (self.options.caution or self.options.confidence is not None):
            raise CriticError(
                f"{path}: critics.learned.caution and critics.learned.confidence are about the span head's numbers, "
                f"and with critics.learned.by=generation it is not asked; leave them out, or judge by=head"
            )
        if self.options.caution and self.model.calibration.kind == "verdicts":
            raise CriticError(
                f"{path}: critics.learned.caution is taken off scores, and this reward model learned verdicts alone, "
                f"because not all its critiques had a score; leave it out, or raise critics.learned.confidence instead"
            )

    def __call__(self, prompts: Sequence[Prompt], completions: Sequence[str], **_: Sequence[Any]) -> Answers:
        encoded, reasons = self._encoded(prompts, completions)
        if self.options.by == "generation":
            return self._by_generation(encoded, completions, reasons)
        found = self._by_head(encoded, completions, reasons)
        return self._worded(prompts, completions, found) if self.options.write else found

    def explain(
        self, prompts: Sequence[Prompt], completions: Sequence[str], critiques: Sequence[Critique | None]
    ) -> Answers:
        """The same critiques, their feedback written by the language head; where it writes nothing that can be parsed,
        the feedback stays as it was. Nothing else changes: words earn nothing."""
        if self.options.write or self.options.by == "generation":
            # These words are the language head's already.
            return Answers(critiques, getattr(critiques, "reasons", {}))
        return self._worded(prompts, completions, critiques)

    def _worded(
        self, prompts: Sequence[Prompt], completions: Sequence[str], critiques: Sequence[Critique | None]
    ) -> Answers:
        asked = [place for place, critique in enumerate(critiques) if critique is not None]
        texts = [completions[place] for place in asked]
        encoded, _ = self._encoded([prompts[place] for place in asked], texts)
        found = list(critiques)
        for place, reply in zip(asked, self._written(encoded, texts), strict=True):
            critique = found[place]
            if critique is not None and reply is not None and reply.critique is not None and not reply.mended:
                found[place] = replace(critique, feedback=reply.critique.feedback)
        return Answers(found, getattr(critiques, "reasons", {}))

    def probabilities(
        self, prompts: Sequence[Prompt], completions: Sequence[str]
    ) -> list[tuple[Encoded, Any, Any] | None]:
        """(ids and offsets, calibrated probabilities (T + 1, 3), worths (T + 1, 2)) of each; None where there is no
        room. What `critique_of` makes critiques of; for measuring."""
        encoded, _ = self._encoded(prompts, completions)
        heard = dict(self._heard(encoded))
        return [None if one is None else (one, *heard[place]) for place, one in enumerate(encoded)]

    def _heard(self, encoded: Sequence[Encoded | None]) -> list[tuple[int, tuple[Numbers, Numbers]]]:
        """(place, (probabilities, worths)) of each that could be read."""
        there = [(place, one) for place, one in enumerate(encoded) if one is not None]
        outs = self.model.judge([one for _, one in there], self.options.batch_tokens)
        probs, worths = self.model.read_all(outs)
        ends = accumulate(len(out) for out in outs)
        return [
            (place, (probs[end - len(out) : end], worths[end - len(out) : end]))
            for (place, _), out, end in zip(there, outs, ends, strict=True)
        ]

    def _by_head(
        self, encoded: Sequence[Encoded | None], completions: Sequence[str], reasons: dict[int, str]
    ) -> Answers:
        read = self.model.calibration
        found: list[Critique | None] = [None] * len(encoded)
        wanted = read.confidence if self.options.confidence is None else self.options.confidence
        for place, (probs, worths) in self._heard(encoded):
            sure, one = confidence_of(probs), encoded[place]
            if not np.isfinite(probs).all() or not np.isfinite(worths).all():
                reasons[place] = "the reward model gave numbers that are not finite"
            elif one is None or sure < wanted or wanted == 1:
                # A floor of 1 scores nothing, also what rounding makes certain.
                said, floor = _apart(sure, wanted)
                reasons[place] = (
                    f"the reward model is only {said} sure, and {floor} is wanted (critics.learned.confidence)"
                )
            else:
                found[place] = critique_of(completions[place], one.offsets, probs, worths, read, self.options.caution)
        return Answers(found, reasons)

    def _by_generation(
        self, encoded: Sequence[Encoded | None], completions: Sequence[str], reasons: dict[int, str]
    ) -> Answers:
        found: list[Critique | None] = []
        for place, reply in enumerate(self._written(encoded, completions)):
            critique = None if reply is None else reply.critique
            if reply is not None and critique is None:
                reasons[place] = f"what the reward model wrote is no critique: {reply.reason}"
            found.append(critique)
        return Answers(found, reasons)

    def _written(self, encoded: Sequence[Encoded | None], completions: Sequence[str]) -> list[Reply | None]:
        """What the language head writes of each, parsed; None where it was not asked."""
        there = [place for place, one in enumerate(encoded) if one is not None]
        found: list[Reply | None] = [None] * len(encoded)
        if not there:
            return found
        drawn = self._sampler([one.ids for one in encoded if one is not None], None)
        for place, one in zip(there, drawn, strict=True):
            text = self.tokenizer.decode(one.token_ids, skip_special_tokens=True)
            found[place] = self._parsed(text, one.truncated, completions[place])
        return found

    def _parsed(self, text: str, cut: bool, completion: str) -> Reply:
        if self.model.template.writes == "quotes":
            reply = read_reply(text, cut=cut, shown=completion)
            said = reply.critique
            return reply if said is None else replace(reply, critique=replace(said, quotes_only=True))
        if cut or not text.strip():
            return Reply(None, reason="it was cut off" if cut else "it is empty")
        return Reply(Critique(text.strip()))

    @cached_property
    def _sampler(self) -> Any:
        ends = end_ids(self.tokenizer, self.model.base)
        settings = SamplingSettings(max_new_tokens=self.model.template.critique_tokens)
        return make_sampler(self.model.base, settings, end_ids=ends, pad_id=self.tokenizer.pad_token_id)

    def _encoded(
        self, prompts: Sequence[Prompt], completions: Sequence[str]
    ) -> tuple[list[Encoded | None], dict[int, str]]:
        found: list[Encoded | None] = [None] * len(completions)
        written = [
            encodable(completion, prompt_text(prompt)) for prompt, completion in zip(prompts, completions, strict=True)
        ]
        reasons = {place: UNENCODABLE for place, fine in enumerate(written) if not fine}
        there = [place for place, fine in enumerate(written) if fine]
        read = self.reader.encode_all([prompts[place] for place in there], [completions[place] for place in there])
        for place, one in zip(there, read, strict=True):
            if isinstance(one, InvalidData):
                reasons[place] = str(one)
            else:
                found[place] = one
        return found, reasons


def _apart(low: float, high: float) -> tuple[str, str]:
    """Two numbers with as many digits as tell them apart.

    >>> _apart(0.3, 1), _apart(0.3812, 0.3814), _apart(1, 1)
    (('0.30', '1.00'), ('0.3812', '0.3814'), ('1.00', '1.00'))
    """
    digits = next((n for n in range(2, 16) if f"{low:.{n}f}" != f"{high:.{n}f}"), 2)
    return f"{low:.{digits}f}", f"{high:.{digits}f}"

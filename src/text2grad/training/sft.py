"""The supervised loop: given completions, made likelier; held-out loss watched, checkpointed, resumed exactly.

From Python: `WarmStart(settings, folder, model=…, tokenizer=…, examples=…).train()`; from the shell: `text2grad sft`.
Only completions are trained, the end token among them: never a prompt, never an earlier assistant turn.
"""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from text2grad.errors import InvalidData
from text2grad.models.chat import completion_ids, end_ids, prompt_ids, turn_end
from text2grad.models.modes import evaluating
from text2grad.models.policy import Policy
from text2grad.optim.batch import Batch, blank, collate
from text2grad.optim.reduce import masked_mean
from text2grad.optim.supervised import supervised_update
from text2grad.tasks.examples import Stream, load_examples
from text2grad.training._loop import Callback
from text2grad.training._run import digests, memory_named
from text2grad.training._setup import make_optimizer
from text2grad.training._supervised import Supervised
from text2grad.training.settings import SftSettings
from text2grad.types import Example, Rollout


class WarmStart(Supervised):
    """One run. Everything that is not given is loaded by the names in the settings."""

    stage = "sft"
    watched = "held_out/loss"
    settings: SftSettings

    def __init__(
        self,
        settings: SftSettings,
        folder: str | Path,
        *,
        model: Any = None,
        tokenizer: Any = None,
        examples: Sequence[Example] | None = None,
        held_out: Sequence[Example] | None = None,
        callbacks: Sequence[Callback] = (),
        show: bool = False,
        again: str = "",
    ) -> None:
        self.examples = list(examples) if examples is not None else load_examples(settings.data)
        if not self.examples:
            raise InvalidData("`examples` should hold at least one example, got none")
        self.held_out = list(held_out or ()) if held_out or not settings.held_out else load_examples(settings.held_out)
        self.skipped = 0
        """Examples that were too long, held-out ones among them."""
        super().__init__(
            settings,
            folder,
            model=model,
            tokenizer=tokenizer,
            data=digests(("examples", settings.data, examples), ("held-out", settings.held_out, held_out)),
            callbacks=callbacks,
            show=show,
            by_names=examples is None and held_out is None,
            again=again,
        )

    def _build(self, model: Any) -> None:
        settings = self.settings
        self.rows = self._encoded(self.examples, model)
        self.held_rows = self._encoded(self.held_out, model) if self.held_out else []
        self.stream = Stream(self.rows, settings.seed)
        self.updates = settings.updates or math.ceil(settings.epochs * len(self.rows) / settings.update.batch)
        self.policy = Policy(model, settings.policy, value_head=False)
        self.policy.eval()
        self.module = self.others.prepare(self.policy)
        self.optimizer = make_optimizer(self.policy, settings.update)

    # ------------------------------------------------------------------------------------------------ examples

    def _encoded(self, examples: Sequence[Example], model: Any) -> list[Rollout]:
        """Examples as ids; all of them, or an error, or those that are not too long."""
        positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        limit = min(self.settings.max_tokens, positions or self.settings.max_tokens)
        ends = end_ids(self.tokenizer, model)
        closing: dict[bool, int] = {}
        kept: list[Rollout] = []
        for example in examples:
            kind = isinstance(example.prompt, str)
            prompt = prompt_ids(self.tokenizer, example.prompt, self.settings.format)
            if kind not in closing:
                closing[kind] = turn_end(self.tokenizer, example.prompt, ends, self.settings.format)
            target = completion_ids(self.tokenizer, _target(example), closing[kind])
            length = len(prompt) + len(target)
            if length <= limit:
                zeros = (0.0,) * len(target)
                kept.append(Rollout(tuple(prompt), tuple(target), logprobs=zeros, token_rewards=zeros))
            elif self.settings.too_long == "error":
                raise InvalidData(
                    f"example {example.id!r} has {length} tokens and the limit is {limit}: raise max_tokens (the model "
                    f"has {positions} positions), shorten it, or set too_long=skip to leave out all that are longer"
                )
        self.skipped += len(examples) - len(kept)
        if not kept:
            raise InvalidData(f"all {len(examples)} examples are over the limit of {limit} tokens; raise max_tokens")
        return kept

    def _batch(self, rows: Sequence[Rollout]) -> Batch:
        return collate(rows, self.others.device) if rows else blank(self.others.device)

    # ------------------------------------------------------------------------------------------------ the loop

    def _counts(self) -> dict[str, int]:
        return {"data/examples": len(self.rows), "data/held_out": len(self.held_rows), "data/skipped": self.skipped}

    def _learn(self, items: Sequence[Rollout]) -> dict[str, float]:
        options = self.settings.update
        return supervised_update(
            self.module,
            self.optimizer,
            self._batch(items),
            micro_batch=options.micro_batch,
            max_grad_norm=options.max_grad_norm,
            among=self.others,
        )

    def _evaluate(self) -> dict[str, float]:
        """The mean loss a token of the held-out examples."""
        if not self.held_rows:
            return {}
        began = time.perf_counter()
        batch = self._batch(self.held_rows[self.others.rank :: self.others.processes])
        with memory_named("reading held-out examples", "update.micro_batch"), evaluating(self.policy):
            logprobs_BT, _ = self.policy.logprobs_and_values(batch, self.settings.update.micro_batch, self.others)
        loss = float(masked_mean(-logprobs_BT, batch.mask_BT, self.others))
        return {"held_out/loss": loss, "time/evaluate": time.perf_counter() - began}


def _target(example: Example) -> str:
    """What the model should have written."""
    given = example.columns.get("completion", example.reference)
    if not isinstance(given, str) or not given.strip():
        raise InvalidData(
            f"example {example.id!r} should say what the model is to write: a text in `completion` or `reference`, or "
            f"messages that end with an assistant turn; got {given!r:.60}"
        )
    return given

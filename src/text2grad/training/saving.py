"""What comes out of a run: the trained policy, merged or as an adapter, the best one beside the last, and a card.

Enters: a policy and the run that trained it. Leaves: the writers that `Run.finish` calls, by the name of their folder.
Models are written in the dtype that their base was published in.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from text2grad import __version__, config
from text2grad.models.memory import memory_named
from text2grad.models.parallel import Processes, whole_weights
from text2grad.report.arms import arms_of
from text2grad.report.folders import read_runs
from text2grad.report.words import compare
from text2grad.training.state import disk_errors

Save = Literal["merged", "adapter", "both"]
Writers = dict[str, Callable[[Path], None]]
"""Name of a folder in the run's own → what writes it."""


class BestWeights:
    """The trained weights at the best evaluation so far, on the CPU. Part of a checkpoint."""

    def __init__(self, policy: Any, *, wanted: bool = True) -> None:
        """`wanted`: if not, nothing is kept."""
        self.policy, self.wanted = policy, wanted
        self.weights: dict[str, Tensor] | None = None
        self.update = 0
        """The update after which the weights were kept."""
        self.score: float | None = None

    def keep(self, update: int) -> None:
        if not self.wanted:
            return
        self.update = update
        self.weights = {name: weight.detach().to("cpu", copy=True) for name, weight in self.policy.trainable().items()}

    def see(self, metrics: Mapping[str, Any]) -> None:
        """Keep the weights if the held-out score is the highest of the updates so far. The start does not count: its
        weights are the base's."""
        score = metrics.get("held_out/score")
        if metrics["update"] and score is not None and (self.score is None or score > self.score):
            self.score = score
            self.keep(metrics["update"])

    @torch.no_grad()
    def put_back(self) -> None:
        parameters = self.policy.trainable()
        for name, weight in (self.weights or {}).items():
            parameters[name].copy_(weight)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The policy with these weights, for a while."""
        last = BestWeights(self.policy)
        last.keep(0)
        self.put_back()
        try:
            yield
        finally:
            last.put_back()

    def state(self) -> dict[str, Any]:
        return {"weights": self.weights, "update": self.update, "score": self.score}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.weights, self.update, self.score = state["weights"], state["update"], state["score"]


def writers_of(
    policy: Any,
    tokenizer: Any,
    world: Processes,
    card: str = "",
    save: Save = "merged",
    best: BestWeights | None = None,
    best_card: str = "",
) -> Writers:
    """RUN/model, and RUN/adapter or RUN/best where they are wanted; `best_card` goes into the latter. Gathers sharded
    weights, so every process must call it."""
    with memory_named("saving the model", "nothing: close other programs"):
        trained = save == "adapter"  # the base need not be gathered
        weights: dict[str, Tensor] | None = whole_weights(policy.model, trained=trained) if world.sharded else None

    def write(path: Path, *, adapter: bool = False, card: str = card) -> None:
        options = {"adapter": True} if adapter else {}
        with memory_named("saving the model", "nothing: close other programs"), disk_errors():
            policy.save_pretrained(path, tokenizer, weights, **options)
        if card:
            library = "peft" if adapter else "transformers"
            (path / "README.md").write_text(card.replace("LIBRARY", library, 1), encoding="utf-8")

    def write_best(path: Path) -> None:
        assert best is not None
        with best.in_place():
            write(path, adapter=save == "adapter", card=best_card)

    writers: Writers = {"model": partial(write, adapter=save == "adapter")}
    if save == "both":
        writers["adapter"] = partial(write, adapter=True)
    if best is not None:
        writers["best"] = write_best
    return writers


def writers_for(trainer: Any) -> Writers:
    """What comes out of a policy's run: the last weights, and the best where others were better."""
    run = trainer.run
    best = trainer.best if trainer.best.weights is not None and trainer.best.update != run.done else None
    card = partial(card_of, run.path, trainer.settings, run.command)
    last, of_best = card(run.done), ""
    if best is not None:
        last = card(run.done, beside=f" `best/` holds the weights of update {best.update}, the best evaluation.")
        why = "the lowest held-out loss" if best.score is None else f"the best held-out score, {best.score:.3f}"
        of_best = card(
            best.update, beside=f" Of all updates they have {why}; `model/` holds the weights of update {run.done}."
        )
    return writers_of(trainer.policy, trainer.tokenizer, trainer.world, last, trainer.settings.save, best, of_best)


def card_of(folder: Path, settings: Any, command: str, update: int, *, beside: str = "") -> str:
    """The model card: what it was made from, how, and what is known of it. `beside`: about the run's other folder."""
    plain = config.flat(config.plain(settings))
    usual = config.flat(config.plain(type(settings)()))
    changed = {
        key: value for key, value in plain.items() if value != usual.get(key) and not key.endswith(("key", "model"))
    }
    results = compare(arms_of(read_runs([folder]))).sentences if (folder / "metrics.jsonl").exists() else ()
    chosen = "\n".join(f"| `{key}` | `{config.inline(value)}` |" for key, value in changed.items())
    return f"""---
base_model: {settings.model}
library_name: LIBRARY
tags: [text2grad]
---

# {folder.resolve().name}

{settings.model}, trained with `text2grad {command}` {__version__}: weights after update {update}.{beside}

## Results

{chr(10).join(f"- {sentence}" for sentence in results) or "Not evaluated."}

## Settings

What differs from the defaults; `config.yaml` of the run has all of them.

| setting | value |
|---|---|
{chosen}
"""

"""What comes out of a run: the trained policy, merged or as an adapter, the best one beside the last, and a card.

Enters: a policy and the run that trained it. Leaves: the writers that `Run.finish` calls, by the name of their folder.
Models are written in the dtype that their base was published in.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from text2grad import __version__, config
from text2grad.errors import RunError
from text2grad.models.checks import HUB_NAME
from text2grad.models.load import fingerprint, load_model, published_dtype
from text2grad.models.modes import memory_named
from text2grad.models.parallel import AccelerateWorld, whole_weights
from text2grad.models.policy import Policy
from text2grad.report.arms import arms_of
from text2grad.report.folders import read_runs
from text2grad.report.words import compare
from text2grad.runs import aside
from text2grad.runs.run import same_model
from text2grad.secrets import hidden, names_secret
from text2grad.training.state import disk_errors, trained_weights

Save = Literal["merged", "adapter", "both"]
_FOLDERS = re.compile(r"""(?<![^\s*,(=:\[{"'])(?:~[\w.-]*|\.\.?)?/(?!/)(?:[^,()*"'\n]*/)?""")
"""Where a path begins in a text, up to the name of its file: not in `ada/judge`, not in `http://host/v1`."""
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
        """Keep the weights if no update so far has a higher held-out score; of equal ones the last. The start does not
        count: its weights are the base's."""
        score = metrics.get("held_out/score")
        if metrics["update"] and score is not None and (self.score is None or score >= self.score):
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
    world: AccelerateWorld,
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


def export(folder: Path, checkpoint: Path, settings: Any, stage: str, target: Path, *, adapter: bool) -> int:
    """A checkpoint → a model folder: the base model of the run, with the weights that the checkpoint holds. Gives the
    number of its update. Works on the CPU."""
    model, tokenizer = load_model(settings.model)
    if not same_model(json.loads((folder / "run.json").read_bytes()).get("model"), fingerprint(model, tokenizer)):
        raise RunError(f"{folder} was started from another model than {settings.model} is now; put that one back")
    model.saves_as = published_dtype(settings.model)
    world = AccelerateWorld("cpu")
    policy = Policy(model, settings.policy, value_head=False)
    parameters = policy.trainable()
    found = trained_weights(checkpoint, parameters)
    weights = {name: weight for name, weight in found.items() if not name.startswith("value_head.")}
    if weights.keys() != parameters.keys():
        raise RunError(
            f"{checkpoint}: holds other weights than {settings.model} has; did the model change under the run?"
        )
    with torch.no_grad():
        for name, weight in weights.items():
            parameters[name].copy_(weight)
    update = int(checkpoint.name.removeprefix("step-"))
    card = card_of(folder, settings, stage, update)
    write = writers_of(policy, tokenizer, world, card, "adapter" if adapter else "merged")["model"]
    with aside(target) as scratch:
        write(scratch)
    return update


def card_of(folder: Path, settings: Any, command: str, update: int, *, beside: str = "") -> str:
    """The model card: what it was made from, how, and what is known of it. Others will read it: paths are cut to the
    name of the file, and nothing secret is in it. `beside`: about the run's other folder."""
    plain = config.flat(config.plain(settings))
    usual = config.flat(config.plain(type(settings)()))
    changed = {
        key: _named(value)
        for key, value in plain.items()
        if value != usual.get(key) and not key.endswith(("key", "model", "url", "folder")) and not names_secret(key)
    }
    (run,) = read_runs([folder]) if (folder / "metrics.jsonl").exists() else [None]
    results = compare(arms_of([run])).sentences if run is not None else ()
    # The hub takes a name of its own for a base, and nothing else: no alias of ours, no folder, also if it is gone.
    on_hub = "/" in settings.model and HUB_NAME.fullmatch(settings.model) and not Path(settings.model).exists()
    front = f"base_model: {settings.model}\n" if on_hub else ""
    parts = [
        f"---\n{front}library_name: LIBRARY\ntags: [text2grad]\n---\n\n# {folder.resolve().name}",
        f"{_named(settings.model)}, trained with `text2grad {command}` {__version__}: weights after update {update}."
        f"{beside}",
        "## Results\n\n" + ("\n".join(f"- {sentence}" for sentence in results) or "Not evaluated."),
        _measured(run) if run is not None else "",
        "## Data and critic\n\n" + _table(("", ""), _made_from(settings, run)),
        "## Settings\n\nWhat differs from the defaults; `config.yaml` of the run has all of them.\n\n"
        + _table(("setting", "value"), [(f"`{key}`", f"`{config.inline(value)}`") for key, value in changed.items()]),
    ]
    return hidden("\n\n".join(filter(None, parts)) + "\n", message=True)


def _made_from(settings: Any, run: Any) -> list[tuple[str, str]]:
    """What was learned from, and who judged it."""
    given = {name: getattr(settings, name, None) for name in ("task", "data", "held_out", "critic")}
    rows = [(name.replace("_", "-"), f"`{_named(value)}`") for name, value in given.items() if value]
    if "critic" in config.plain(settings) and not given["critic"]:
        rows.append(("critic", "the task's own, or `reference`"))
    digests = run.facts.get("data", {}) if run is not None else {}
    return rows + [(f"sha256 of `{_named(name)}`", f"`{digest}`") for name, digest in digests.items()]


def _measured(run: Any) -> str:
    """Every held-out number, at the first and at the last evaluation."""
    updates = [update for update, row in sorted(run.metrics.items()) if any(key.startswith("held_out/") for key in row)]
    if not updates:
        return ""
    first, last = run.metrics[updates[0]], run.metrics[updates[-1]]
    rows = [
        (run.declared[key].title if key in run.declared else key, *(f"{row[key]:.4g}" for row in (first, last)))
        for key in last
        if key.startswith("held_out/") and key in first
    ]
    return _table(("held out", f"update {updates[0]}", f"update {updates[-1]}"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def _named(value: Any) -> Any:
    """A path without the folders that it lies in: they are nobody's business.

    >>> _named("/home/ada/secret/train.jsonl"), _named("first(0.7*~/my judge, ada/judge)"), _named(0.5)
    ('train.jsonl', 'first(0.7*my judge, ada/judge)', 0.5)
    """
    if isinstance(value, list | tuple):
        return [_named(each) for each in value]
    if isinstance(value, dict):
        return {key: _named(each) for key, each in value.items()}
    if not isinstance(value, str):
        return value
    return Path(value).name if Path(value).is_absolute() else _FOLDERS.sub("", value)

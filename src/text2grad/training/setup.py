"""What every training loop starts with: device, processes, run folder, model, optimizer.

Enters: settings, and what Python callers bring themselves. Leaves: a `Session`. Knows no algorithm.
"""

import hashlib
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from text2grad import __version__, config
from text2grad.errors import ConfigError, InvalidData, RunError, UsageError, first_line
from text2grad.evaluation.evaluator import Evaluator
from text2grad.feedback.align.locator import locator_of
from text2grad.feedback.critics.budget import Budget
from text2grad.feedback.critics.learned import is_checkpoint
from text2grad.feedback.critics.named import critic_named, refuse_people, sources_of
from text2grad.feedback.critics.protocol import Critic
from text2grad.feedback.judge import RewardFunction
from text2grad.feedback.settings import HOW_CRITICS_ARE_ASKED
from text2grad.models.load import device_named, fingerprint, load_model, published_dtype
from text2grad.models.modes import memory_named, without_plans
from text2grad.models.parallel import AccelerateWorld
from text2grad.models.reward import open_critic
from text2grad.models.sampling import OURS, SamplingSettings, in_bf16
from text2grad.optim.settings import OptimizerSettings
from text2grad.optim.update import learning_rate_factor
from text2grad.runs import Closable
from text2grad.runs.folder import file_digest
from text2grad.runs.run import Run
from text2grad.runs.world import World
from text2grad.secrets import hidden_word
from text2grad.tasks.examples import Stream
from text2grad.tasks.task import Metric, Task, task_of
from text2grad.training.spending import Spending
from text2grad.training.state import seed_everything
from text2grad.types import Example, MetricInfo

T = TypeVar("T")
FREE = (
    "update.micro_batch",
    "sampling.batch",
    "sampling.prefill_tokens",
    "sampling.url",
    "sampling.served.folder",
    "sampling.served.timeout",
    "sampling.served.retries",
    "sampling.served.tolerance",
    "policy.gradient_checkpointing",
    "policy.cuda_graphs",
    "policy.compile",
    "checkpoint_every",
    "keep_checkpoints",
    *HOW_CRITICS_ARE_ASKED,
)
"""Settings that may change on resume: how much is in memory and on the disk at once, how critics are asked and what
they may cost; not what is computed. Sums are then taken in another order, so the last bits of the weights may
differ."""

DTYPE = "sampling_dtype"
"""Where run.json says what `sampling.dtype=auto` was."""
Callback = Callable[[Any, Mapping[str, Any]], object]
"""Called with the trainer and an update's metrics, after they are written."""


@dataclass(frozen=True, slots=True)
class Session:
    """A run that has been opened, with the model it starts from."""

    world: AccelerateWorld
    run: Run
    model: Any
    tokenizer: Any


def start(
    settings: Any,
    folder: str | Path,
    *,
    command: str,
    model: Any = None,
    tokenizer: Any = None,
    data: Mapping[str, str] | None = None,
    metrics: Mapping[str, MetricInfo] | None = None,
    callbacks: Sequence[Callable[[Mapping[str, Any]], object]] = (),
    show: bool = False,
    resume_with: str | None = "",
    before_loading: Callable[[Run], None] = lambda _: None,
) -> Session:
    """Open the run folder, seed everything, load the model. See `Run` for the arguments. `before_loading`: called in
    the main process of a fresh run; it may refuse the run before a model is loaded."""
    if (model is None) != (tokenizer is None):
        raise UsageError("a model and its tokenizer go together: give both, or neither and the name of one")
    if getattr(settings, "save", "merged") != "merged" and not settings.policy.lora.rank:
        raise ConfigError(f"save={settings.save} wants an adapter, and policy.lora.rank=0 has none; set save=merged")
    world = AccelerateWorld(device_named(settings.device), settings.log.trackers, str(folder))
    run = Run(
        folder,
        settings,
        command=command,
        world=world,
        launched=world.launched,
        data=data,
        facts=facts(settings, world),
        metrics=metrics,
        free=FREE,
        trackers=AccelerateTrackers(world, settings, Path(folder)) if settings.log.trackers else None,
        callbacks=callbacks,
        show=show,
        resume_with=None if resume_with == "" and model is not None else resume_with,
    )
    without_plans()
    with run.abandoned_on_failure():
        seed_everything(settings.seed)
        if model is None:
            world.on_main(lambda: None if any((run.path / "checkpoints").glob("step-*")) else before_loading(run))
            model, tokenizer = load_model(settings.model, device=str(world.device))
            if command != "reward-model":  # its calibration is of these very weights
                model.saves_as = published_dtype(settings.model)
        run.began_from(fingerprint(model, tokenizer))
        return Session(world, run, model.to(world.device), tokenizer)


def sampling_of(run: Run, policy: Any, settings: SamplingSettings) -> SamplingSettings:
    """How a run samples. What `dtype=auto` means depends on the processor, so it is written down when the run begins:
    one that resumes elsewhere samples in the same precision."""
    if settings.dtype != "auto" or settings.sampler not in OURS:
        return settings
    if run.recorded(DTYPE) is None:
        run.record(DTYPE, "bfloat16" if in_bf16(policy) else str(policy.model.dtype).removeprefix("torch."))
    kept = run.recorded(DTYPE)
    return replace(settings, dtype=kept) if kept in ("float32", "bfloat16") else settings


def make_optimizer(policy: Any, options: OptimizerSettings, head_rate: float | None = None) -> torch.optim.AdamW:
    """AdamW, with a rate of its own for the value or span head if one is set. `peak` is what the schedule multiplies.
    Call it after weights have been sharded: sharding replaces them."""
    groups: dict[float, list[Any]] = {}
    for name, weight in policy.trainable().items():
        own = head_rate if name.startswith(("value_head.", "span_head.")) else None
        groups.setdefault(own or options.learning_rate, []).append(weight)
    return torch.optim.AdamW(
        [{"params": weights, "lr": rate, "peak": rate} for rate, weights in groups.items()],
        betas=(0.9, options.beta2),
        weight_decay=options.weight_decay,
        fused=policy.device.type == "cuda" or None,
    )


def set_rate(optimizer: torch.optim.Optimizer, step: int, updates: int, options: OptimizerSettings) -> dict[str, float]:
    """The learning rate of this update, by the schedule; as a metric."""
    factor = learning_rate_factor(step, updates, options)
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * factor
    return {"update/learning_rate": options.learning_rate * factor}


def share_of(stream: Stream[T], step: int, batch: int, world: AccelerateWorld) -> list[T]:
    """This process's items of an update."""
    return [stream.at(place) for place in range((step - 1) * batch + world.rank, step * batch, world.size)]


@contextmanager
def learning(module: Any) -> Iterator[None]:
    """The module in training mode, for an update."""
    with memory_named("the update", "update.micro_batch, or set policy.gradient_checkpointing=true"):
        module.train()
        yield
        module.eval()


def facts(settings: Any, world: AccelerateWorld) -> dict[str, Any]:
    """What a report needs to say how to make the run again."""
    import transformers

    program = Path(sys.argv[0])
    # `python -m text2grad` and the installed script are the same to a reader.
    ours = program.name == "text2grad" or program.parts[-2:] == ("text2grad", "__main__.py")
    return {
        "text2grad": __version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "device": str(world.device),
        "processes": world.size,
        "threads": torch.get_num_threads(),
        "command": ["text2grad" if ours else sys.argv[0], *map(hidden_word, sys.argv[1:])],
        "seed": settings.seed,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


@dataclass(frozen=True, slots=True)
class Data:
    """What a run learns from and is evaluated on."""

    task: Task
    examples: list[Example]
    held_out: list[Example]
    digests: dict[str, str]
    """Of what may not change under a run."""
    from_python: bool
    """Given by a caller, so the settings alone cannot resume the run."""


def load_data(
    settings: Any, examples: Sequence[Example] | None = None, held_out: Sequence[Example] | None = None
) -> Data:
    """The task of the settings, and its examples unless they are given."""
    task = task_of(settings)
    train = list(examples) if examples is not None else task.examples("train")
    if not train:
        raise InvalidData("`examples` should hold at least one example, got none")
    # A file that the settings name counts also where the examples to train on are given.
    elsewhere = not held_out and (examples is None or settings.held_out)
    held = task.held_out() if elsewhere else list(held_out or ())
    from_files = examples is None and settings.task == "jsonl"
    digests = {}
    for name, path, part, of_file in (
        ("examples", settings.data, train, from_files),
        ("held-out", settings.held_out, held, settings.task == "jsonl" and not held_out),
    ):
        if not of_file and part:
            content = "\n".join(json.dumps(example.to_json(), sort_keys=True) for example in part)
            digests[name] = hashlib.sha256(content.encode()).hexdigest()
        elif of_file:
            digests |= file_digests(path)
    return Data(task, train, held, digests, examples is not None or bool(held_out))


def file_digests(*paths: str) -> dict[str, str]:
    """Path → sha256 of the file, for those that are named."""
    return {path: file_digest(Path(path).expanduser()) for path in filter(None, paths)}


def reward_function_of(
    critic: Critic | str, settings: Any, *, scalar: bool = False, budget: Budget | None = None
) -> RewardFunction:
    """A critic, or its name, with the settings of a run. `budget`: what its models may spend together."""
    refuse_people(critic)
    if isinstance(critic, str):
        critic = critic_named(critic, settings.critics, open_critic, budget)
    locator = locator_of(settings.align, settings.critics, budget)
    return RewardFunction(critic, settings.align, settings.scoring, scalar=scalar, locator=locator)


def critic_digests(*critics: Critic | str | None) -> dict[str, str]:
    """Of the reward models among these: they are as much of a run as its data. Others may be mended on the way."""
    sources = {part: digest for name in critics if isinstance(name, str) for part, digest in sources_of(name).items()}
    return {part: digest for part, digest in sources.items() if is_checkpoint(part)}


class RewardFunctions(Closable):
    """The critics of a run: one for training, one for evaluation, one budget."""

    def __init__(self, settings: Any, critic: Critic | str, other: str | None, *, scalar: bool = False) -> None:
        """`other`: judges held-out completions; None: the same critic."""
        self.spending = Spending(settings.critics.openai.budget)
        made = partial(reward_function_of, settings=settings, scalar=scalar, budget=self.spending.budget)
        self.training = made(critic)
        self.held_out = self.training if other is None else made(other)
        self.digests = critic_digests(critic, other)

    def counted(self, run: Run) -> AbstractContextManager[None]:
        """Inside, what they spend is counted for this run."""
        return self.spending.of(run, *self.training.asked, *self.held_out.asked)

    def evaluator(self, examples: Sequence[Example], metrics: Sequence[Metric], world: World) -> Evaluator | None:
        """For these held-out examples, if there are any."""
        if not examples:
            return None
        training = None if self.held_out is self.training else self.training
        return Evaluator(examples, self.held_out, metrics=metrics, training_critic=training, world=world)

    def close(self) -> None:
        self.training.close()
        self.held_out.close()


def spent_by(judges: RewardFunctions | None, run: Run) -> dict[str, float]:
    """What was spent so far, as metrics; nothing where nobody judges, or nothing costs."""
    return {} if judges is None else judges.spending.metrics(run)


class AccelerateTrackers:
    """TensorBoard, W&B and others, through accelerate. A run that resumes is one run there, too."""

    def __init__(self, world: AccelerateWorld, settings: Any, path: Path) -> None:
        self.world, self.settings, self.path = world, settings, path
        self._started = False

    def start(self, done: int) -> None:
        """What trackers heard of later updates counts no more."""
        flat = config.flat(config.plain(self.settings))
        known = {
            key: value if isinstance(value, int | float | str | bool) else str(value) for key, value in flat.items()
        }
        try:
            self.world.accelerator.init_trackers("text2grad", known if done == 0 else None, self._options(done))
        except Exception as problem:  # each tracker has errors of its own
            trackers = ", ".join(self.settings.log.trackers)
            raise RunError(f"log.trackers: {trackers} could not be started ({first_line(problem)})") from problem
        self._started = True

    def log(self, metrics: Mapping[str, Any]) -> None:
        if self._started:
            numbers = {key: value for key, value in metrics.items() if isinstance(value, int | float)}
            self.world.accelerator.log(numbers, step=metrics["update"])

    def finish(self) -> None:
        if self._started:
            self._started = False
            # Not `end_training`, which would end the exchange between the processes as well.
            for tracker in self.world.accelerator.trackers:
                tracker.finish()

    def _options(self, done: int) -> dict[str, dict[str, Any]]:
        place = str(self.path.resolve())
        name = f"{self.path.resolve().name}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"
        return {
            # tensorboardX names its files by the second, and would write over one of the same.
            "tensorboard": {"purge_step": done + 1 if done else 0, "filename_suffix": f".{done}"},
            "wandb": {"id": name, "name": name, "dir": str(self.path), "resume": "allow"},
            "trackio": {"name": name, "resume": "allow"},
        }


class Clock:
    """Seconds that the parts of an update took."""

    def __init__(self, *parts: str) -> None:
        self._start = time.perf_counter()
        self.parts = dict.fromkeys(parts, 0.0)

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.add({part: time.perf_counter() - start})

    def add(self, seconds: Mapping[str, float]) -> None:
        for part, spent in seconds.items():
            self.parts[part] = self.parts.get(part, 0.0) + spent

    def metrics(self) -> dict[str, float]:
        whole = time.perf_counter() - self._start
        parts = {**self.parts, "other": whole - sum(self.parts.values())}
        step = max(whole - parts.get("evaluate", 0.0), 1e-9)
        # Nothing else goes on while the critic is waited for: tests that ran beside sampling are not in it.
        waiting = {"time/critic_frac": parts["critic"] / step} if "critic" in parts else {}
        return {f"time/{part}": seconds for part, seconds in parts.items()} | waiting

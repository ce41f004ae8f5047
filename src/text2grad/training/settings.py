"""The settings of every training command, without torch, so that `--help` can list them at once."""

from dataclasses import field
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt

from text2grad import config
from text2grad._checked import Flag, Int, Rate, Real
from text2grad.config import Renamed, settings
from text2grad.errors import ConfigError
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.settings import CriticSettings, Scoring
from text2grad.models.sampling import SamplingSettings
from text2grad.models.settings import PolicySettings, Template
from text2grad.optim.settings import AdvantageSettings, KLSettings, OptimizerSettings, UpdateSettings

NO_BEST = "keep=best wants whole weights in each process; with --launch fsdp2 set keep=last"


@settings
class GuardSettings:
    """When a run looks as if it exploits its critic (the score has risen, and the text has fallen apart), and when it
    cannot learn at all."""

    action: Literal["warn", "stop", "off"] = "warn"
    """warn: say so once, and in metrics.jsonl. stop: end the run there, with a checkpoint. off: say nothing of an
    exploited critic; missed quotes and an update that learned nothing are still told."""
    window: Annotated[Int, Gt(1)] = 5
    """Updates in each of the two windows that are compared: the first ones and the latest ones."""
    shrink: Annotated[Real, Gt(0), Lt(1)] = 0.5
    """Warn when length or diversity is below this share of its start."""
    grow: Annotated[Real, Gt(1)] = 3.0
    """Warn when length is above this multiple of its start."""
    truncated: Annotated[Real, Gt(0), Le(1)] = 0.5
    """Warn when this share of completions that used to end is now cut off."""
    repetition: Annotated[Real, Gt(0), Le(1)] = 0.2
    """Warn when repetition is this far above its start."""
    copied: Annotated[Real, Gt(0), Le(1)] = 0.3
    """Warn when this share of originally new words is now copied from the prompt."""
    linking: Annotated[Real, Gt(0), Lt(1)] = 0.67
    """Warn when linking words are below this share of their start: completions have become lists of words."""
    held_out: Annotated[Real, Gt(0)] = 0.25
    """Warn if the held-out score is this many standard deviations (of single completions) below its start, twice in a
    row, while the training score rises."""
    nothing_learned: Literal["stop", "warn"] = "stop"
    """If nothing can be learned from the first updates: no completion scored, all rewards 0 or all alike, or all
    advantages 0. stop: end the run with exit status 1. warn: say so, and continue."""
    patience: Annotated[Int, Gt(0)] = 3
    """Number of first updates to wait. If nothing is scored at all, one is enough."""


@settings
class EvaluationSettings:
    """The held-out set, on which nothing is ever trained."""

    every: Annotated[Int, Gt(0)] = 10
    """Updates between two evaluations; the start and the end are always evaluated."""
    examples: Annotated[Int, Gt(0)] = 64
    """How many of the first held-out examples are completed, greedily."""
    critic: str | None = None
    """Another critic for the held-out examples. null: the one that is trained on."""
    each: Flag = False
    """Also write each completion's text and numbers to metrics.jsonl, under `held_out/each`; `text2grad compare` asks
    for it."""


@settings
class TrackerSettings:
    """Where the metrics go beside metrics.jsonl."""

    trackers: tuple[str, ...] = ()
    """Also send the metrics to these, through accelerate: tensorboard, wandb, trackio."""


@settings
class LogSettings(TrackerSettings):
    """What is written beside the metrics."""

    rollouts: Annotated[Int, Ge(0)] = 16
    """Completions per update that go to rollouts.jsonl, all those of some prompts; and held-out ones per evaluation.
    prompts × completions logs all, for `text2grad export --format`; each is read once more after the update."""
    locality: Annotated[Int, Ge(0)] = 16
    """Completions per update whose log-probs are taken again after it, to see what moved on poor spans, good spans and
    unlabelled tokens. 0: not measured."""
    hindsight: Annotated[Int, Ge(0)] = 8
    """Completions per evaluation that are cut at a random token, rewritten from there and judged again, to see
    whether the critic judges in hindsight (`reward/hindsight`). 0: not measured."""


@settings
class RunSettings:
    """What every training run has."""

    model: str = "smollm2-135m"
    """The model to start from: smollm2-135m, embedded (tiny), a folder, a .gguf file or a hub id."""
    task: str = "jsonl"
    """jsonl: examples from your files. Or a data set as published: defacto, scitldr, xsum, tldr, qa_feedback, slf5k,
    ultrafeedback, mbpp, humaneval, kodcode, pubmedqa, bulletin. Or your own as package.module:object."""
    data: str = ""
    """File of examples."""
    held_out: str = ""
    """File of examples that are only evaluated; empty: none, unless the task brings its own."""
    columns: dict[str, str] = field(default_factory=dict)
    """Names of our columns in your files, nested ones too: columns.prompt=question
    columns.reference=feedback.summary columns.tests=test_list."""
    task_options: dict[str, Any] = field(default_factory=dict)
    """Options of the task, as task_options.NAME=value."""
    seed: Annotated[Int, Ge(0)] = 0
    """Seed of everything that is random."""
    device: str = "auto"
    """cpu, cuda, …; auto: cuda where there is one."""
    checkpoint_every: Annotated[Int, Gt(0)] = 100
    """Updates between checkpoints."""
    keep_checkpoints: Annotated[Int, Gt(0)] = 2
    """How many of the newest checkpoints stay on the disk."""
    policy: PolicySettings = field(default_factory=PolicySettings)
    """How the model is held and computed."""


@settings
class PolicyRunSettings(RunSettings):
    """What every run has that trains a policy."""

    format: Literal["auto", "chat", "plain"] = "auto"
    """chat: prompts go through the model's chat template. plain: as they are. auto: chat where there is a template."""
    save: Literal["merged", "adapter", "both"] = "merged"
    """What RUN/model is. merged: whole weights, in the dtype of the base. adapter: the LoRA adapter alone, which is
    small and needs its base. both: merged, and the adapter in RUN/adapter."""
    save_best: Flag = True
    """Also write RUN/best, the weights of the best held-out evaluation, where the last are not the best. Checkpoints
    hold a second copy of the trained weights for it. Not with --launch fsdp2."""
    sampling: SamplingSettings = field(default_factory=SamplingSettings)
    """How completions are sampled."""
    scoring: Scoring = field(default_factory=Scoring)
    """How spans become token rewards."""
    metrics: tuple[str, ...] = ()
    """What is measured on held-out completions beside the score and the task's own metrics: rouge, bleu, f1, support,
    grounded, code, similarity:MODEL, or your own as package.module:object."""
    critics: CriticSettings = field(default_factory=CriticSettings)
    """Settings of the critics."""
    align: AlignSettings = field(default_factory=AlignSettings)
    """How quotes are located; see `text2grad align --help`."""


@settings
class TrainSettings(PolicyRunSettings):
    COMMON: ClassVar[tuple[str, ...]] = (
        *("model", "task", "data", "held_out", "columns"),
        *("critic", "reward", "updates", "prompts", "completions", "seed"),
        *("device", "sampling.max_new_tokens", "advantage.estimator", "kl.coefficient", "update.learning_rate"),
        *("policy.lora.rank", "policy.precision", "evaluation.every", "log.trackers"),
    )
    RENAMED: ClassVar = {
        "credit.kind": Renamed("advantage.estimator", {"group": "span_rloo"}),
        "credit.gamma": Renamed("advantage.gamma"),
        "credit.lam": Renamed("advantage.lam"),
        "credit.whiten": Renamed("advantage.whiten"),
    }
    model: str = "smollm2-135m"
    """The policy to start from: smollm2-135m, embedded (tiny), a folder, a .gguf file or a hub id. `text2grad sft`
    gives it a start."""
    data: str = ""
    """File of examples to train on. JSONL: prompt, and what the critic needs (reference, tests, passages, …)."""
    critic: str | None = None
    """Who writes the critiques: reference, support, grounded, code, openai:MODEL, module:object, the
    folder of a reward model, or first(…), merge(…), weighted(0.7*a, 0.3*b) of these; null: the task's own critic,
    or `reference`."""
    reward: Literal["span", "scalar"] = "span"
    """span: rewards where the critique points. scalar: the same sum on the last token; nothing else differs."""
    updates: Annotated[Int, Gt(0)] = 100
    """Rounds of sampling, judging and updating."""
    prompts: Annotated[Int, Gt(0), Le(1_000_000)] = 16
    """Prompts per update."""
    completions: Annotated[Int, Gt(0), Le(100_000)] = 4
    """Completions per prompt; rloo, grpo and span_rloo need at least 2."""
    checkpoint_every: Annotated[Int, Gt(0)] = 10
    """Updates between checkpoints. What is sampled and judged in between is kept as well, and not paid for twice."""
    advantage: AdvantageSettings = field(default_factory=AdvantageSettings)
    """How token rewards become advantages."""
    kl: KLSettings = field(default_factory=KLSettings)
    """The penalty for leaving the reference."""
    update: UpdateSettings = field(default_factory=UpdateSettings)
    """How a batch changes the weights."""
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    """The held-out set."""
    guard: GuardSettings = field(default_factory=GuardSettings)
    """When a run looks as if it exploits its critic."""
    log: LogSettings = field(default_factory=LogSettings)
    """What is written beside the metrics."""


@settings
class SupervisedSettings(OptimizerSettings):
    """How a batch changes the weights."""

    batch: Annotated[Int, Gt(0)] = 32
    """Examples per update, over all processes."""
    micro_batch: Annotated[Int, Gt(0)] = 8
    """Examples in memory at once; gradients are accumulated. Lower it when memory runs out: the result stays the
    same."""
    learning_rate: Rate = 2e-4
    """Peak learning rate of AdamW. 2e-4 suits LoRA; full fine-tuning of pretrained models wants about 1e-5."""
    schedule: Literal["constant", "linear", "cosine"] = "linear"


@settings
class SFTSettings(PolicyRunSettings):
    COMMON: ClassVar[tuple[str, ...]] = (
        *("model", "task", "data", "held_out", "columns"),
        *("epochs", "updates", "max_tokens", "seed", "device"),
        *("update.learning_rate", "update.batch", "update.micro_batch", "policy.lora.rank", "policy.precision"),
        *("evaluate_every", "checkpoint_every", "save", "log.trackers"),
    )
    data: str = ""
    """File of examples. JSONL: prompt with completion or reference, or messages that end with the assistant's turn."""
    updates: Annotated[Int, Gt(0)] | None = None
    """Optimizer steps; null: as many as `epochs` takes."""
    epochs: Annotated[Real, Gt(0)] = 1.0
    """Passes over the examples, each in a new order, if `updates` is not given."""
    max_tokens: Annotated[Int, Gt(1)] = 1024
    """Longest example, prompt and completion together. Nothing is cut off: see `too_long`."""
    too_long: Literal["error", "skip"] = "error"
    """What to do with an example or a pair that is too long: stop and name it, or leave it out and count it."""
    evaluate_every: Annotated[Int, Gt(0)] = 20
    """Updates between evaluations; the start and the end are always evaluated."""
    patience: Annotated[Int, Ge(0)] = 0
    """Stop after this many evaluations in a row above the lowest held-out loss. 0: never. RUN/model has the weights of
    the last update, RUN/best those of the lowest loss."""
    evaluate_examples: Annotated[Int, Ge(0)] = 0
    """How many of the first held-out examples are also completed, greedily, and judged; 0: only their loss counts."""
    evaluate_critic: str | None = None
    """Who judges them; null: the task's own critic, or `reference`."""
    evaluate_each: Flag = False
    """Also write each completion's text and numbers to metrics.jsonl, under `held_out/each`."""
    update: SupervisedSettings = field(default_factory=SupervisedSettings)
    """How a batch changes the weights."""
    log: TrackerSettings = field(default_factory=TrackerSettings)
    """Where the metrics go beside metrics.jsonl."""


@settings
class DPOLogSettings(TrackerSettings):
    """What is written beside the metrics."""

    rollouts: Annotated[Int, Ge(0)] = 16
    """With pairs=samples: completions per update that go to rollouts.jsonl."""


@settings
class DPOSettings(SFTSettings):
    COMMON: ClassVar[tuple[str, ...]] = (
        *("model", "task", "data", "held_out", "columns"),
        *("pairs", "critic", "completions", "loss", "beta", "epochs", "updates"),
        *("max_tokens", "seed", "device", "update.learning_rate", "update.batch", "update.micro_batch"),
        *("policy.lora.rank", "policy.precision", "evaluate_every"),
    )
    model: str = "smollm2-135m"
    """The policy to start from, and the reference: smollm2-135m, embedded (tiny), a folder, a .gguf file, a hub id."""
    data: str = ""
    """File of examples. With pairs=file, JSONL with prompt, chosen and rejected."""
    pairs: Literal["file", "samples"] = "file"
    """file: `chosen` and `rejected` of each example. samples: the policy's own completions of each prompt, the one with
    the critic's highest score against the one with the lowest."""
    critic: str | None = None
    """With pairs=samples: who scores the completions, as in `text2grad train`: reference, support, grounded, code,
    openai:MODEL, module:object, the folder of a reward model; null: the task's own critic, or `reference`."""
    completions: Annotated[Int, Gt(0), Le(100_000)] = 4
    """With pairs=samples: completions per prompt."""
    loss: str = "dpo"
    """dpo: log-sigmoid. ipo: squared. Or your own as package.module:object."""
    beta: Annotated[Real, Gt(0)] = 0.1
    """How strongly the policy is held to its reference: larger stays nearer."""
    max_tokens: Annotated[Int, Gt(1)] = 1024
    """With pairs=file: longest prompt and completion together. Nothing is cut off: see `too_long`."""
    patience: Annotated[Int, Ge(0)] = 0
    """With pairs=file: stop after this many evaluations in a row above the lowest held-out loss. 0: never."""
    evaluate_examples: Annotated[Int, Gt(0)] = 64
    """With pairs=samples: how many of the first held-out examples are completed, greedily."""
    evaluate_critic: str | None = None
    """Who judges them; null: the critic of the pairs."""
    checkpoint_every: Annotated[Int, Gt(0)] = 50
    """Updates between checkpoints."""
    update: SupervisedSettings = field(default_factory=lambda: SupervisedSettings(learning_rate=5e-5))
    """How a batch changes the weights; `batch` counts pairs, or prompts that are sampled."""
    log: DPOLogSettings = field(default_factory=DPOLogSettings)
    """What is written beside the metrics."""


@settings
class LossSettings:
    """The joint loss: span · cross entropy of the verdicts + reward · error of the reward sizes + language · −log p of
    the critique. Each is a mean over its own tokens."""

    span: Annotated[Real, Ge(0)] = 1.0
    """Weight of the tokens' verdicts: poor, neutral or good. 0 with loss.reward=0 is the paper's way: a model that only
    writes critiques (use it with critics.learned.by=generation)."""
    reward: Annotated[Real, Ge(0)] = 0.5
    """Weight of the size of a poor or good token's reward: its share of the score, or its severity."""
    language: Annotated[Real, Ge(0)] = 0.5
    """Weight of the critique's own words. 0 does not train the language head and takes about half the time."""
    imbalance: Annotated[Real, Ge(0), Le(1)] = 0.5
    """Most tokens are neutral. A class counts by its rarity to this power. 0: no correction. 1: all classes count the
    same. The model's probabilities are corrected for it."""


@settings
class RewardModelSettings(RunSettings):
    COMMON: ClassVar[tuple[str, ...]] = (
        *("model", "task", "data", "held_out", "columns"),
        *("validation", "epochs", "updates", "keep", "patience", "seed"),
        *("device", "update.learning_rate", "update.batch", "update.micro_batch", "policy.lora.rank"),
        *("policy.precision", "loss.span", "loss.reward", "loss.language", "evaluate_every", "log.trackers"),
    )
    RENAMED: ClassVar = {"loss.worth": Renamed("loss.reward")}
    model: str = "smollm2-135m"
    """The causal model to start from: smollm2-135m, embedded (tiny), a folder, a .gguf file or a hub id. From the
    folder of a reward model training continues, span head included."""
    task: str = "jsonl"
    """jsonl: annotated completions from files. defacto, slf5k, …: a data set. Your own as package.module:object."""
    data: str = ""
    """File of annotated completions. JSONL as `text2grad annotate` writes it: prompt, completion, critique, spans."""
    held_out: str = ""
    """File of annotated completions that are only measured; empty: `validation` of the prompts in `data`, unless the
    task brings its own."""
    validation: Annotated[Real, Gt(0), Lt(1)] = 0.1
    """Share of the prompts that is held out of `data`, each with all its completions, if `held_out` is empty."""
    held_out_by: Literal["task", "prompts"] = "task"
    """What is held out if `held_out` is empty. task: its own validation split, where it has one. prompts: `validation`
    of the prompts, also where it has one: a split that policies are measured on should not choose their critic."""
    updates: Annotated[Int, Gt(0)] | None = None
    """Optimizer steps; null: as many as `epochs` takes."""
    epochs: Annotated[Real, Gt(0)] = 3.0
    """Passes over the completions, each in a new order, if `updates` is not given."""
    too_long: Literal["error", "skip"] = "skip"
    """What to do with a completion that does not fit the template: stop and name it, or leave it out and count it."""
    evaluate_every: Annotated[Int, Gt(0)] = 50
    """Updates between evaluations; the start and the end are always evaluated."""
    patience: Annotated[Int, Ge(0)] = 0
    """Stop after this many evaluations in a row above the lowest held-out loss. 0: never. Watched is the loss of the
    span head, or, if it is not trained, of the language head."""
    keep: Literal["best", "last"] = "best"
    """Which weights become the model: those with the lowest held-out loss (see `patience`), or the last ones."""
    update: SupervisedSettings = field(default_factory=SupervisedSettings)
    """How a batch changes the weights."""
    log: TrackerSettings = field(default_factory=TrackerSettings)
    """Where the metrics go beside metrics.jsonl."""
    template: Template = field(default_factory=Template)
    """What the model reads. Stored with the model."""
    loss: LossSettings = field(default_factory=LossSettings)
    """Weights of the parts of the loss."""
    head_learning_rate: Rate = 1e-3
    """Peak learning rate of the span head, which starts at 0."""


# ------------------------------------------------------------------------------------------------ TRL, and the demo

UNREAD_BY_TRL = ("reward", "advantage", "update.value_learning_rate", "update.loss")
"""Settings of `train` that TRL's trainers have no counterpart of, and that would change the result if they were read:
only their defaults are accepted."""


@settings
class TRLSettings(TrainSettings):
    COMMON: ClassVar[tuple[str, ...]] = (
        *("model", "task", "data", "held_out", "columns", "trainer", "distillation_weight", "critic"),
        *("updates", "prompts", "completions", "seed", "device", "sampling.max_new_tokens", "sampling.temperature"),
        *("kl.coefficient", "update.learning_rate", "update.epochs", "policy.lora.rank", "policy.precision"),
        *("evaluation.every", "metrics"),
    )
    RENAMED: ClassVar[dict[str, Any]] = {}
    trainer: Literal["grpo", "sdpo"] = "grpo"
    """grpo: TRL's GRPOTrainer on the critic's score. sdpo: its experimental SDPOTrainer, whose teacher is the policy
    itself with the critique of the sampled completion in its prompt."""
    distillation_weight: Annotated[Real, Ge(0), Le(1)] = 1.0
    """Of sdpo: 1 learns from the teacher alone, 0 from the score alone. Its authors mix 0.1 for small models."""
    teacher_rate: Annotated[Real, Gt(0), Le(1)] = 0.05
    """Of sdpo: how fast the teacher's weights follow the policy's."""


def check_trl(chosen: TRLSettings) -> None:
    """Refuse settings that TRL's trainers would not read."""
    plain, usual = (config.flat(config.plain(each)) for each in (chosen, TRLSettings()))
    for key, value in plain.items():
        if any(key == name or key.startswith(f"{name}.") for name in UNREAD_BY_TRL) and value != usual[key]:
            raise ConfigError(f"`{key}` means nothing to TRL's {chosen.trainer} trainer; leave it out")
    update, rows = chosen.update, chosen.prompts * chosen.completions
    if chosen.completions < 2:
        raise ConfigError(
            f"completions: TRL compares those of a prompt, so it wants 2 or more, got {chosen.completions}"
        )
    if rows % update.minibatches or (rows // update.minibatches) % rows_at_once(chosen):
        raise ConfigError(
            f"trl: prompts x completions ({rows}) should be a multiple of update.minibatches, and a minibatch one of "
            f"update.micro_batch"
        )
    if update.schedule != "constant" or update.warmup:
        raise ConfigError("trl: the learning rate should be constant: leave update.schedule and update.warmup out")


def rows_at_once(chosen: TRLSettings, most: int = 32) -> int:
    """Completions in memory at once. TRL pads them, and keeps the activations of all.

    >>> [rows_at_once(TRLSettings(prompts=prompts, completions=2)) for prompts in (128, 12, 45, 37)]
    [32, 12, 15, 1]
    """
    rows = chosen.prompts * chosen.completions // chosen.update.minibatches
    if chosen.update.micro_batch != "auto":
        return min(chosen.update.micro_batch, rows)
    return max(size for size in range(1, most + 1) if rows % size == 0)


@settings
class DemoSettings:
    model: str = "embedded"
    """`embedded`: our own, 1.2 million parameters. Or any name that `text2grad train` takes (smollm2-135m): made for a
    GPU. On a CPU the counts below are smaller then, unless they are given: 8 and 4 updates, of 4 reports each,
    measured on 16 every 2."""
    device: str = "auto"
    """cpu, cuda, …; auto: cuda where there is one."""
    seed: Annotated[Int, Ge(0)] = 0
    """Of everything that is random."""
    start_updates: Annotated[Int, Gt(0)] = 40
    """Supervised updates on plain reports, before both arms."""
    updates: Annotated[Int, Gt(0)] = 56
    """Updates of each arm."""
    prompts: Annotated[Int, Gt(0)] = 16
    """Reports per update."""
    completions: Annotated[Int, Gt(1)] = 8
    """Bulletins of each report; they are compared with each other."""
    learning_rate: Annotated[Real, Gt(0)] = 2e-4
    """Of both arms, at its peak: the best of both (studies/words)."""
    held_out: Annotated[Int, Gt(0)] = 128
    """Reports with unseen combinations, on which both are measured."""
    held_out_seed: Annotated[Int, Ge(0)] = 8
    """Of the generator that makes them; the settings were chosen on those of another seed (studies/words)."""
    evaluate_every: Annotated[Int, Gt(0)] = 8
    """Updates between two measurements."""


SMALLER = ("start_updates=8", "updates=4", "prompts=4", "completions=4", "held_out=16", "evaluate_every=2")
"""What a model larger than ours does on a CPU unless something else is asked for."""


def slow(options: DemoSettings) -> bool:
    """Whether a model larger than ours is to be trained on a CPU."""
    if options.model == "embedded" or options.device not in ("cpu", "auto"):
        return False
    import torch

    return options.device == "cpu" or not torch.cuda.is_available()

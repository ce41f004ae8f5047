"""The RL loop: sample, judge, estimate advantages, update; evaluated, guarded, logged.

    for step in run.steps():
        rollouts   = sample(prompts), judged by the critic: critique → spans → token rewards
        batch      = collate(rollouts)                       the first tensors
        advantages = estimator(batch)
        stats      = update(policy, batch, advantages)
        run.log(metrics, rollouts)

How it departs from plain PPO: rewards lie on the tokens a critique is about; completions without a critique leave the
loss and every baseline; sampling uses nothing but a temperature, so ratios are exact. Scalar RL is the same loop with
the sum of the rewards on the last token (`reward=scalar`).

From Python: `Trainer(settings, folder, model=…, tokenizer=…, examples=…, critic=…).train()`. From the shell:
`text2grad train`. A run is a function of its settings: after a kill it resumes and ends as if nothing had happened.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from text2grad.errors import ConfigError, RunError
from text2grad.evaluation.metrics import RUNNING, describe, metric_infos
from text2grad.evaluation.named import metrics_named
from text2grad.feedback.critics.protocol import Critic
from text2grad.models.modes import evaluating, memory_named, one_thread
from text2grad.models.parallel import shard
from text2grad.models.policy import PendingForward, Policy, Reference
from text2grad.models.sampling import Seed
from text2grad.models.writer import Writer
from text2grad.optim import kl, mismatch
from text2grad.optim import update as optim_update
from text2grad.optim.batch import Batch, blank, collate, collate_ids
from text2grad.optim.estimators import Advantages, find_estimator
from text2grad.optim.losses import approximate_kl, find_policy_loss
from text2grad.optim.reduce import masked_mean
from text2grad.optim.update import begin_update
from text2grad.runs import Closable
from text2grad.runs.run import Outcome
from text2grad.tasks.examples import Stream
from text2grad.tasks.task import Metric
from text2grad.training import guard, hindsight, locality, rollouts, spending
from text2grad.training.guard import Guard
from text2grad.training.rollouts import SampleAndJudge, evaluate_once, evenly, price_metrics, residual_ratio
from text2grad.training.saving import BestWeights, writers_for
from text2grad.training.settings import TrainSettings
from text2grad.training.setup import (
    Callback,
    Clock,
    RewardFunctions,
    learning,
    load_data,
    make_optimizer,
    sampling_of,
    set_rate,
    start,
)
from text2grad.training.sizes import Sizes
from text2grad.training.spending import estimate
from text2grad.training.state import Part, TrainingState
from text2grad.types import Example, Rollout

Numbers = Callable[[], dict[str, float]]
"""Metrics that have to be waited for."""


class Trainer(Closable):
    """One RL run. Everything that is not given is loaded by the names in the settings."""

    def __init__(
        self,
        settings: TrainSettings,
        folder: str | Path,
        *,
        model: Any = None,
        tokenizer: Any = None,
        examples: Sequence[Example] | None = None,
        held_out: Sequence[Example] | None = None,
        critic: Critic | None = None,
        metrics: Sequence[Metric] = (),
        callbacks: Sequence[Callback] = (),
        show: bool = False,
        resume_with: str = "",
    ) -> None:
        check(settings)
        self.settings = settings
        data = load_data(settings, examples, held_out)
        self.examples, self.held_out = data.examples, data.held_out
        self.metrics = (*data.task.metrics, *metrics_named(settings.metrics), *metrics)
        named = critic if critic is not None else settings.critic or data.task.critic
        self.judges = RewardFunctions(settings, named, settings.evaluation.critic, scalar=settings.reward == "scalar")
        self.reward_function, self.spending = self.judges.training, self.judges.spending
        from_python = data.from_python or critic is not None or bool(metrics)
        session = start(
            settings,
            folder,
            command="train",
            model=model,
            tokenizer=tokenizer,
            data=data.digests | self.judges.digests,
            metrics=RUNNING | INFOS | metric_infos(self.metrics),
            callbacks=[partial(callback, self) for callback in callbacks],
            show=show,
            resume_with=resume_with or (None if from_python else ""),
            before_loading=lambda run: self.spending.probe(
                run, self.examples[0], self.judges.training, self.judges.held_out
            ),
        )
        self.world, self.run, self.tokenizer = session.world, session.run, session.tokenizer
        with self.run.abandoned_on_failure():
            self._build(session.model)

    def _build(self, model: Any) -> None:
        settings, world = self.settings, self.world
        self.guard = Guard(settings.guard)
        self.estimator = find_estimator(settings.advantage.estimator)
        needs_values, temperature = self.estimator.needs_values, settings.sampling.temperature
        self.policy = Policy(model, settings.policy, value_head=needs_values, temperature=temperature)
        self.reference = self.policy.reference() if kl.needs_reference(settings.kl) or settings.kl.measure else None
        self.policy.eval()
        self.module = world.prepare(self.policy)
        """The policy as it is called in the update: with several processes, wrapped."""
        if world.sharded and self.reference is not None and self.reference.copy is not None:
            shard(self.reference.copy)
        self.optimizer = make_optimizer(self.policy, settings.update, settings.update.value_learning_rate)
        sampling = sampling_of(self.run, self.policy, settings.sampling)
        self.writer = Writer(self.policy, self.tokenizer, sampling, settings.format, world=world)
        self.sample_and_judge = SampleAndJudge(
            Stream(self.examples, settings.seed),
            self.writer,
            self.reward_function,
            self.run,
            prompts=settings.prompts,
            completions=settings.completions,
            seed=settings.seed,
        )
        held_out = self.held_out[: settings.evaluation.examples]
        self.evaluator = self.judges.evaluator(held_out, self.metrics, world)
        self.sizes = Sizes(self.run, settings.update.micro_batch, world.device, self.writer)
        self._readings: dict[str, tuple[PendingForward, int]] = {}
        self.best = BestWeights(self.policy, wanted=settings.save_best and not world.sharded)
        parts: dict[str, Part] = {
            "scale": self.reward_function.running_scale,
            "spread": self.reward_function.running_spread,
            "guard": self.guard,
            "best": self.best,
        }
        self.state = TrainingState(self.policy, self.optimizer, world, parts)
        # A prompt that is too long is found now, not when it comes up after hours.
        for example in (*self.examples, *held_out):
            self.writer.prompt(example)

    # ---------------------------------------------------------------------------------------------------- the loop

    def train(self) -> Outcome:
        """From where the folder stands to the end; once."""
        run, settings = self.run, self.settings
        with closing(self), run.working(self.state, settings.updates), self.judges.counted(run):
            if self.spending.models and not run.done:
                for line in estimate(settings, self.examples, self.held_out, self.reward_function.critic):
                    run.note(line)
            if run.done == 0 and self.evaluator is not None and not run.over:
                metrics, held_out = self.evaluate(0)
                self.guard.see(metrics)
                self.best.see({"update": 0, **metrics})
                run.log({"update": 0, **metrics, **self.spending.metrics(run)}, held_out=held_out)
            for step in run.steps():
                clock = Clock("sample", "critic", "align", "forward", "update")
                # Everybody's, this process's. Passes that need no critique run on a GPU while the critic judges.
                rollouts, mine = self.sample_and_judge(step, clock, partial(self.read, step, clock))
                metrics = {"update": step}
                most = settings.log.rollouts
                unscored = [rollout for rollout in rollouts if not rollout.scored]
                logged = unscored if most >= len(rollouts) else unscored[: most // 4]
                learns, updated = any(rollout.scored for rollout in rollouts), nothing
                if learns:
                    batch, apart = self.correct(self.collate(mine, clock))
                    metrics |= apart | self.measure_kl(batch)
                    advantages = self.advantages(batch)
                    metrics |= self._advantage_metrics(batch, advantages)
                    if self._too_far(metrics) is None:
                        updated = self.update(step, batch, advantages, clock)
                    looked = self.look_back(batch, advantages, rollouts, mine, clock)
                # A GPU is at work on both meanwhile.
                metrics = {"update": step} | describe(rollouts) | self._reward_metrics(rollouts) | metrics
                if learns:
                    metrics |= updated()
                    changed, moved = looked()
                    logged, metrics = logged + changed, metrics | moved
                held_out = []
                if self._is_evaluated(step):
                    with clock("evaluate"):
                        metrics |= self.measure_hindsight(step, rollouts, mine)
                        measured, held_out = self.evaluate(step)
                    metrics |= measured
                if (reason := self._reason_to_stop(metrics)) is not None:
                    run.stop(reason)
                    if "held_out/length" not in metrics:  # the end is always evaluated
                        measured, held_out = self.evaluate(step)
                        metrics |= measured
                self.best.see(metrics)
                run.log(metrics | clock.metrics() | self.spending.metrics(run), logged, held_out)
            return run.finish(partial(writers_for, self))

    # ------------------------------------------------------------------------------------------------ its verbs

    def read(
        self,
        step: int,
        clock: Clock,
        prompts: Sequence[Sequence[int]],
        texts: Sequence[Sequence[int]],
        groups: Sequence[int],
        valued: bool,
    ) -> None:
        """Start the passes over sampled completions that the update needs: values, the reference's log-probs, and the
        policy's own where sampling rounds differently. `collate` waits for them."""
        measured = kl.needs_reference(self.settings.kl) or self._is_evaluated(step)
        reads: dict[str, tuple[Policy | Reference, int]] = {}
        if self.estimator.needs_values and not valued:
            reads["values_BT"] = self.policy, 1
        if self.reference is not None and measured:
            reads["reference_BT"] = self.reference, 0
            if self.settings.policy.precision != "float32":
                reads["own_BT"] = self.policy, 0
        if self.writer.other_engine:
            reads["own_BT"] = self.policy, 0
        named, alone = memory_named("reading completions", "update.micro_batch"), one_thread(self.world.device)
        with clock("forward"), named, evaluating(self.policy), alone:
            batch = collate_ids(prompts, texts, groups=groups) if texts else blank()
            self.sizes.settle(self.policy, self.optimizer, batch, self.settings.update.minibatches)
            models = dict.fromkeys(of for of, _ in reads.values())  # one pass each, whatever is wanted of it
            found = self.sizes.within_memory(lambda size: {of: of.read(batch, size, self.world) for of in models})
            self._readings = {name: (found[of], part) for name, (of, part) in reads.items()}

    def collate(self, mine: Sequence[Rollout], clock: Clock) -> Batch:
        """The scored rollouts of this process as tensors, with what `read` has found of them."""
        places = [place for place, rollout in enumerate(mine) if rollout.scored]
        with clock("forward"), one_thread(self.world.device):
            # Where only the others have something to learn from, this process takes part with a row that counts
            # nothing.
            batch = collate([mine[place] for place in places]) if places else blank()
            batch = replace(batch, rewards_BT=batch.rewards_BT / self.reward_function.spread)
            found: dict[str, Tensor] = {}
            for name, (reading, part) in self._readings.items():
                stream_BT = reading.wait()[part]
                assert stream_BT is not None
                found[name] = stream_BT[places or [0], : batch.mask_BT.shape[1]]
        self._readings = {}
        return replace(batch, **found)

    def correct(self, batch: Batch) -> tuple[Batch, dict[str, float]]:
        """Where another engine sampled: importance weights for what it computes differently, and how much that is."""
        if not self.writer.other_engine:
            return batch, {}
        asked: dict[str, float] = getattr(self.writer.sampler, "metrics", dict)()
        batch, apart = mismatch.corrected(batch, self.settings.sampling.served.cap, self.world)
        return batch, apart | asked

    def measure_kl(self, batch: Batch) -> dict[str, float]:
        """How far the sampling policy is from the reference, where that was run."""
        if batch.reference_BT is None:
            return {}
        # Of each sampled token: unbiased, and never negative.
        with one_thread(self.world.device):
            kl_BT = approximate_kl(batch.reference_BT, _own(batch))
            return {"kl/reference": float(masked_mean(kl_BT, batch.mask_BT, self.world))}

    def advantages(self, batch: Batch) -> Advantages:
        coefficient, resolution = self.settings.kl.coefficient, kl.RESOLUTION[self.settings.policy.precision]
        with one_thread(self.world.device):
            penalty_BT = kl.kl_penalty(_own(batch), batch.reference_BT, coefficient, resolution)
            return self.estimator(batch, penalty_BT, self.settings.advantage, self.world)

    def update(self, step: int, batch: Batch, advantages: Advantages, clock: Clock) -> Numbers:
        """Start the update, which a GPU may still be at work on when this returns. Gives what waits for it, and then
        says what it did."""
        options = self.settings.update
        rate = set_rate(self.optimizer, step, self.settings.updates, options)
        seed = int(np.random.SeedSequence([self.settings.seed, step]).generate_state(1)[0])
        with clock("update"), learning(self.module), one_thread(self.world.device):
            pending = begin_update(
                self.module,
                self.optimizer,
                batch,
                advantages,
                options,
                seed=seed,
                groups=self.settings.prompts,
                micro_batch=self.sizes.micro_batch,
                halve=lambda: self.sizes.halve() if self.sizes.halves else None,
                world=self.world,
            )

        def updated() -> dict[str, float]:
            with clock("update"):
                return pending.wait().means() | rate

        return updated

    def look_back(
        self,
        batch: Batch,
        advantages: Advantages,
        everybody: Sequence[Rollout],
        mine: Sequence[Rollout],
        clock: Clock,
    ) -> Callable[[], tuple[list[Rollout], dict[str, float]]]:
        """Start a pass over some rollouts after the update. Gives what waits for it, and then says (rollouts to log,
        with what the update did to them; where log-probs moved)."""
        options, world = self.settings, self.world
        scored = [rollout.index for rollout in everybody if rollout.scored]
        logged = evenly(scored, options.log.rollouts, options.completions)
        wanted = logged | evenly(scored, options.log.locality, options.completions)
        if not wanted:
            return lambda: ([], {})
        named, alone = memory_named("reading completions", "update.micro_batch"), one_thread(self.world.device)
        with clock("forward"), named, evaluating(self.policy), alone:
            pending = self.sizes.within_memory(
                lambda size: locality.look_back(self.policy, batch, advantages, wanted, size, world)
            )

        def looked() -> tuple[list[Rollout], dict[str, float]]:
            with clock("forward"), one_thread(world.device):
                after, moved = pending()
            if not all(map(math.isfinite, (number for _, logprobs in after.values() for number in logprobs))):
                raise RunError(
                    "after this update log-probs are not finite: the weights have run away. Lower update.learning_rate "
                    "or update.weight_decay, and start in another folder"
                )
            changed = [
                replace(
                    rollout, advantages=tuple(after[rollout.index][0]), logprobs_after=tuple(after[rollout.index][1])
                )
                for rollout in mine
                if rollout.index in logged & after.keys()
            ]
            with clock("critic"):
                explained = self.reward_function.explain(changed)
            gathered = [rollout for part in world.all_gather(explained) for rollout in part]
            return sorted(gathered, key=lambda rollout: rollout.index), moved

        return looked

    def measure_hindsight(self, step: int, everybody: Sequence[Rollout], mine: Sequence[Rollout]) -> dict[str, float]:
        """How much of what was paid later tokens explain, on some rollouts that are written anew in part."""
        whole = [rollout.index for rollout in everybody if rollout.scored and len(rollout.completion.token_ids) > 1]
        wanted = evenly(whole, self.settings.log.hindsight)
        if self.settings.reward == "scalar" or not wanted:
            return {}
        cut = [rollout for rollout in mine if rollout.index in wanted]
        # A draw of its own: with that of the update, the same text would be written again.
        seed = Seed(self.settings.seed + 2**32, step, [rollout.index for rollout in cut])
        return hindsight.measure_hindsight(cut, self.writer, self.reward_function, seed, self.world)

    def evaluate(self, step: int) -> tuple[dict[str, Any], list[Rollout]]:
        """The held-out examples, completed greedily and judged: metrics, and rollouts to log. Nothing is learned from
        them."""
        if self.evaluator is None:
            return {}, []
        most = self.settings.log.rollouts
        explain, each = self.judges.held_out.explain, self.settings.evaluation.each
        return evaluate_once(self.run, step, self.evaluator, self.writer, most, explain, each=each)

    def close(self) -> None:
        """Let go of the run folder and of the critics; `train` does so by itself."""
        self.run.close()
        self.judges.close()

    # ------------------------------------------------------------------------------------------- guard rails, numbers

    def _is_evaluated(self, step: int) -> bool:
        return step % self.settings.evaluation.every == 0 or step == self.settings.updates

    def _reward_metrics(self, everybody: Sequence[Rollout]) -> dict[str, float]:
        """What rewards are made with, and how much of the score the spans leave unexplained."""
        numbers, scale = {"reward/spread": self.reward_function.spread}, self.reward_function.scale
        if scale is not None and self.reward_function.running_scale.count:
            numbers |= price_metrics(scale, self.settings.scoring)
            if (ratio := residual_ratio(everybody, scale)) is not None:
                numbers["reward/residual_ratio"] = ratio
        return numbers

    def _advantage_metrics(self, batch: Batch, found: Advantages) -> dict[str, float]:
        size = {"advantage/size": float(masked_mean(found.advantages_BT.abs(), found.mask_BT, self.world))}
        if not self.estimator.needs_groups:
            return size
        kept = masked_mean(found.mask_BT.float(), batch.mask_BT, self.world)
        return size | {"critic/without_baseline_frac": 1 - float(kept)}

    def _reason_to_stop(self, metrics: dict[str, Any]) -> str | None:
        """Say what looks wrong, in the metrics and to the person who watches; the reason to stop, if there is one."""
        hacked = self.guard.see(metrics)
        over = metrics["update"] == self.settings.updates
        warnings = [*hacked, *self.guard.complaints(metrics, self.reward_function, self.examples, over=over)]
        if warnings:
            metrics["warnings"] = warnings
            for words in warnings:
                self.run.note(f"update {metrics['update']}: {words}")
        if (reason := self._too_far(metrics) or self.guard.hopeless()) is not None:
            return reason
        return f"guard.action=stop, and {hacked[0]}" if hacked and self.settings.guard.action == "stop" else None

    def _too_far(self, metrics: Mapping[str, Any]) -> str | None:
        """Why nothing more should be learned: the policy that sampled has left its reference."""
        limit, measured = self.settings.kl.stop, metrics.get("kl/reference", 0.0)
        if not limit or measured <= limit:
            return None
        return (
            f"the KL to the reference is {measured:.3g} per token, over kl.stop={limit:g}, so update "
            f"{metrics['update']} was not applied"
        )


INFOS = {
    **optim_update.METRICS,
    **kl.METRICS,
    **mismatch.METRICS,
    **locality.METRICS,
    **hindsight.METRICS,
    **rollouts.METRICS,
    **guard.METRICS,
    **spending.METRICS,
}
"""Title, help and direction of what this loop logs beside numbers about completions."""


def check(settings: TrainSettings) -> None:
    """Settings that do not go together, found before anything heavy is loaded."""
    name = settings.advantage.estimator
    estimator = find_estimator(name)
    if estimator.needs_groups and settings.completions < 2:
        raise ConfigError(
            f"advantage.estimator={name} compares the completions of a prompt with each other, so completions should "
            f"be at least 2, got {settings.completions}"
        )
    if settings.reward == "scalar" and estimator.labelled_only:
        raise ConfigError(
            f"reward=scalar puts everything on the last token, and advantage.estimator={name} learns only from tokens "
            f"with a verdict; choose gae, rloo or grpo"
        )
    find_policy_loss(settings.update.loss)


def nothing() -> dict[str, float]:
    """No metrics: this update was not made."""
    return {}


def _own(batch: Batch) -> Tensor:
    """Log-probs of the policy, computed as the reference's were."""
    return batch.logprobs_BT if batch.own_BT is None else batch.own_BT

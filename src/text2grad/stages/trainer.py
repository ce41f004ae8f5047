"""The training loop: sample, judge, reward, update; evaluated, watched, checkpointed.

    rolled = roll_out(examples)              completions, critiques, spans, token rewards
    batch  = collate(rollouts of them)       the first tensors
    stats  = update(policy, batch, advantages)

From Python: `Trainer(settings, folder, model=…, tokenizer=…, examples=…, critic=…).train()`; from the shell:
`text2grad train`. A run is a function of its settings: after a kill it goes on from the last checkpoint and ends as if
nothing had happened.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from text2grad.errors import ConfigError
from text2grad.feedback.critics.named import critic_named
from text2grad.feedback.critics.protocol import Critic
from text2grad.feedback.score import Slope
from text2grad.models.chat import end_ids, prompt_ids
from text2grad.models.offsets import completion_of
from text2grad.models.parallel import gathered_ends, shard
from text2grad.models.policy import Policy, evaluating
from text2grad.models.sampling import make_sampler, uniforms
from text2grad.optim.advantages import Advantages, advantages
from text2grad.optim.batch import Batch, blank, collate
from text2grad.optim.kl import Coefficient, penalised
from text2grad.optim.loss import approximate_kl
from text2grad.optim.reduce import masked_mean
from text2grad.optim.update import learning_rate_factor, update
from text2grad.stages import _state
from text2grad.stages._display import Display
from text2grad.stages._judge import Judge
from text2grad.stages._locality import look_back
from text2grad.stages._loop import Callback, Loop, Stop
from text2grad.stages._rolled import Rolled, describe, evenly, residual_ratio
from text2grad.stages._run import Run, memory_named
from text2grad.stages._watch import Watch
from text2grad.stages.train import TrainSettings
from text2grad.tasks.examples import Stream, load_examples
from text2grad.types import Example

Measure = Callable[[Example, str], float]
"""A number about one held-out completion, beside the critic's score: `held_out/NAME` is its mean."""


class Trainer(Loop):
    """One run. Everything that is not given is loaded by the names in the settings."""

    stage = "train"
    settings: TrainSettings

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
        measures: Mapping[str, Measure] | None = None,
        callbacks: Sequence[Callback] = (),
        show: bool = False,
    ) -> None:
        self.measures = measures or {}
        _check(settings)
        self.examples = list(examples) if examples is not None else load_examples(settings.data)
        self.held_out = list(held_out) if held_out is not None else _held_out(settings)
        super().__init__(settings, folder, model=model, tokenizer=tokenizer, callbacks=callbacks, show=show)
        self.updates = settings.updates
        self._build(self.model)
        critic = critic or critic_named(settings.critic, settings.critics)
        self.judge = self._judge(critic)
        other = settings.evaluation.critic
        self.examiner = self.judge if other is None else self._judge(critic_named(other, settings.critics))
        self.parts += [self.judge, self.examiner]
        self.beta, self.watch = Coefficient(settings.kl), Watch(settings.guard)
        self.run = Run(folder, settings, self.others, data=[settings.data, settings.held_out])
        self.buffer = _state.Buffer(Path(folder))
        self.stream = Stream(self.examples, settings.seed)

    def sample(self, examples: Sequence[Example], numbers: Sequence[int] | None, step: int) -> list[Any]:
        """(prompt ids, what was sampled) for each; numbers None: greedily."""
        prompts = [prompt_ids(self.tokenizer, example.prompt, self.settings.format) for example in examples]
        limit = self.settings.sampling.max_new_tokens
        # Where weights are gathered from other processes, all decode equally many; what is too much is thrown away.
        spare = self.others.most(len(prompts)) - len(prompts) if self.others.sharded else 0
        asked = prompts + [[self.tokenizer.pad_token_id]] * spare
        draws = None if numbers is None else uniforms(self.settings.seed, step, [*numbers, *[0] * spare], limit)
        with (
            memory_named("sampling", "sampling.batch or sampling.max_new_tokens"),
            evaluating(self.policy),
            gathered_ends(self.policy),
        ):
            return list(zip(prompts, self.sampler(asked, draws), strict=False))

    # ------------------------------------------------------------------------------------------------ one update

    def _step(self, number: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        began, options = time.perf_counter(), self.settings
        times = dict.fromkeys(("sample", "critic", "align", "forward", "update"), 0.0)
        rolled, mine = self._rolled(number, times)
        metrics: dict[str, Any] = {"update": number, **describe(rolled)}
        if (ratio := residual_ratio(rolled)) is not None:
            metrics["reward/residual_ratio"] = ratio
        rows = [one.logged(number) for one in rolled if not one.row.scored][: options.log.rollouts // 4]
        if any(one.rollout for one in rolled):
            batch = self._batch(mine, times)
            found = self._advantages(batch, metrics)
            metrics |= self._learn(number, batch, found, len(rolled), times)
            rows += self._look_back(number, batch, found, (rolled, mine), metrics, times)
        if number % options.evaluation.every == 0 or number == options.updates:
            evaluating_from = time.perf_counter()
            found_out, held_rows = self._evaluate(number)
            metrics, rows = metrics | found_out, rows + held_rows
            times["evaluate"] = time.perf_counter() - evaluating_from
        times["other"] = time.perf_counter() - began - sum(times.values())
        return metrics | {f"time/{part}": seconds for part, seconds in times.items()}, rows

    def _rolled(self, number: int, times: dict[str, float]) -> tuple[list[Rolled], list[Rolled]]:
        """(everybody's completions, mine): from the buffer if this update was sampled before a kill, else anew."""
        kept = self.others.shared(self.buffer.get(number) if self.others.first else None)
        if kept is None:
            made = [one.to_json() for one in self._roll_out(number, times)]
            everybody = [one for part in self.others.gathered(made) for one in part]
            kept = {
                "rolled": sorted(everybody, key=lambda one: int(one["number"])),
                "slope": self.judge.slope.sums,
                "random": self.others.gathered(_state.random_states()),
            }
            if self.others.first:
                self.buffer.put(number, kept)
        else:
            self.judge.slope = Slope(*kept["slope"])
            _state.restore_random_states(kept["random"][self.others.rank])
        rolled = [Rolled.from_json(one) for one in kept["rolled"]]
        mine = set(self._numbers())
        return rolled, [one for one in rolled if one.number in mine]

    def _numbers(self) -> list[int]:
        """Of the completions that this process samples; the completions of a prompt stay together."""
        each = self.settings.completions
        prompts = range(self.others.rank, self.settings.prompts, self.others.processes)
        return [prompt * each + turn for prompt in prompts for turn in range(each)]

    def _roll_out(self, number: int, times: dict[str, float]) -> list[Rolled]:
        began = time.perf_counter()
        each, numbers = self.settings.completions, self._numbers()
        first = (number - 1) * self.settings.prompts
        examples = [self.stream.at(first + one // each) for one in numbers]
        drawn = self.sample(examples, numbers, number)
        completions = [completion_of(self.tokenizer, sampled.token_ids) for _, sampled in drawn]
        times["sample"] += time.perf_counter() - began
        rows = self.judge(examples, completions, among=self.others)
        for part, seconds in self.judge.times.items():
            times[part] += seconds
        return [
            Rolled.of(one, row, sampled, prompt, one // each)
            for one, row, (prompt, sampled) in zip(numbers, rows, drawn, strict=True)
        ]

    def _batch(self, mine: Sequence[Rolled], times: dict[str, float]) -> Batch:
        began = time.perf_counter()
        scored = [one for one in mine if one.rollout is not None]
        rollouts = [one.rollout for one in scored if one.rollout is not None]
        # Where only the others have something to learn from, this process takes part with a row that counts nothing.
        device = self.others.device
        batch = collate(rollouts, device, [one.number for one in scored]) if rollouts else blank(device)
        size = self.settings.update.micro_batch
        with memory_named("reading completions", "update.micro_batch"), evaluating(self.policy):
            if self.settings.credit.kind == "gae" and batch.values_BT is None:
                batch = replace(batch, values_BT=self.policy.look(batch, size, self.others)[1])
            if self.reference is not None:
                batch = replace(batch, reference_BT=self.reference.logprobs(batch, size, self.others))
        times["forward"] += time.perf_counter() - began
        return batch

    def _advantages(self, batch: Batch, metrics: dict[str, Any]) -> Advantages:
        beta = metrics["kl/coefficient"] = self.beta.value
        if batch.reference_BT is not None:
            # Of each token that was sampled: unbiased, and never negative.
            kl_BT = approximate_kl(batch.reference_BT, batch.logprobs_BT)
            metrics["kl/reference"] = float(masked_mean(kl_BT, batch.mask_BT, self.others))
            self.beta.follow(metrics["kl/reference"])
        rewards_BT = penalised(batch.rewards_BT, batch.logprobs_BT, batch.reference_BT, beta)
        found = advantages(batch, rewards_BT, self.settings.credit, self.others)
        if self.settings.credit.kind == "group":
            kept = masked_mean(found.mask_BT.float(), batch.mask_BT, self.others)
            metrics["critic/without_baseline_frac"] = 1 - float(kept)
        return found

    def _learn(
        self, number: int, batch: Batch, found: Advantages, rows: int, times: dict[str, float]
    ) -> dict[str, float]:
        began, options = time.perf_counter(), self.settings.update
        factor = learning_rate_factor(number, self.settings.updates, options)
        self._set_rate(factor)
        seed = int(np.random.SeedSequence([self.settings.seed, number]).generate_state(1)[0])
        with memory_named("the update", "update.micro_batch, or set policy.gradient_checkpointing=true"):
            self.module.train()
            stats = update(self.module, self.optimizer, batch, found, options, seed=seed, rows=rows, among=self.others)
            self.module.eval()
        times["update"] += time.perf_counter() - began
        return stats.means() | {"update/learning_rate": options.learning_rate * factor}

    def _look_back(
        self,
        number: int,
        batch: Batch,
        found: Advantages,
        rolled: tuple[Sequence[Rolled], Sequence[Rolled]],
        metrics: dict[str, Any],
        times: dict[str, float],
    ) -> list[dict[str, Any]]:
        """What the update did: where log-probs moved (into the metrics), and the rows to log."""
        began, options = time.perf_counter(), self.settings
        scored = [one.number for one in rolled[0] if one.rollout is not None]
        logged = evenly(scored, options.log.rollouts)
        looked = logged | evenly(scored, options.log.locality)
        with memory_named("reading completions", "update.micro_batch"), evaluating(self.policy):
            seen, moved = look_back(self.policy, batch, found, looked, options.update.micro_batch, self.others)
        metrics |= moved
        mine = [one.seen(*seen[one.number]).logged(number) for one in rolled[1] if one.number in logged & seen.keys()]
        times["forward"] += time.perf_counter() - began
        everybody = [row for part in self.others.gathered(mine) for row in part]
        return sorted(everybody, key=lambda row: int(row["index"]))

    # ------------------------------------------------------------------------------------------------ around it

    def _start(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        metrics, rows = self._evaluate(0)
        return {"update": 0, **metrics}, rows

    def _evaluate(self, number: int) -> tuple[dict[str, float], list[dict[str, Any]]]:
        """The held-out examples, completed greedily and judged: metrics, and rows to log. Nothing is learned from them,
        the slope included."""
        if not self.held_out:
            return {}, []
        chosen = self.held_out[: self.settings.evaluation.examples]
        places = range(self.others.rank, len(chosen), self.others.processes)
        drawn = self.sample([chosen[place] for place in places], None, number)
        completions = [completion_of(self.tokenizer, sampled.token_ids) for _, sampled in drawn]
        rows = self.examiner([chosen[place] for place in places], completions, learn=False)
        mine = [
            Rolled(place, row, sampled.truncated, None).to_json()
            for place, row, (_, sampled) in zip(places, rows, drawn, strict=True)
        ]
        gathered = [Rolled.from_json(one) for part in self.others.gathered(mine) for one in part]
        everybody = sorted(gathered, key=lambda one: one.number)
        numbers = describe(everybody)
        logged = [{**one.logged(number), "held_out": True} for one in everybody[: self.settings.log.rollouts]]
        wanted = {
            "score/mean": "score",
            "length/mean": "length",
            "length/truncated_frac": "truncated_frac",
            "text/diversity": "diversity",
            "text/repetition": "repetition",
            "critic/unscored_frac": "unscored_frac",
        }
        found = {f"held_out/{new}": numbers[old] for old, new in wanted.items() if old in numbers}
        for name, measure in self.measures.items():
            measured = [measure(one.row.example, one.row.completion.text) for one in everybody]
            found[f"held_out/{name}"] = float(np.mean(measured))
        return found, logged

    def _watch(self, metrics: dict[str, Any], display: Display) -> Stop | None:
        """Say what looks wrong; the reason to stop, if there is one."""
        warnings = self.watch.see(metrics)
        if metrics.get("reward/residual_ratio", 0) > 1 and "residual" not in self.watch.said:
            self.watch.said.append("residual")
            warnings.append("span rewards add variance instead of removing it; set scoring.scale lower")
        if warnings:
            metrics["warnings"] = warnings
            for words in warnings:
                display.note(f"update {metrics['update']}: {words}")
        limit = self.settings.kl.stop
        if limit and metrics.get("kl/reference", 0.0) > limit:
            kl = metrics["kl/reference"]
            return Stop(f"stopped: the KL to the reference is {kl:.3g} a token, over kl.stop={limit:g}")
        if self.settings.guard.action == "stop" and warnings:
            return Stop(f"stopped by guard.action=stop: {warnings[0]}")
        return None

    def _own_state(self) -> dict[str, Any]:
        return {"kl": self.beta.value, "slope": list(self.judge.slope.sums), "watch": self.watch.state()}

    def _restore(self, state: Mapping[str, Any]) -> None:
        self.beta.value = state["kl"]
        self.judge.slope = Slope(*state["slope"])
        self.watch.restore(state["watch"])

    def _build(self, model: Any) -> None:
        settings = self.settings
        gae = settings.credit.kind == "gae"
        self.policy = Policy(model, settings.policy, value_head=gae, temperature=settings.sampling.temperature)
        self.reference = self.policy.reference() if settings.kl.coefficient else None
        self.policy.eval()
        self.module = self.others.prepare(self.policy)
        if self.others.sharded and self.reference is not None and self.reference.copy is not None:
            shard(self.reference.copy)
        self.optimizer = self._adamw(settings.update, settings.update.value_learning_rate)
        self.sampler = make_sampler(
            self.policy.model,
            settings.sampling,
            end_ids=end_ids(self.tokenizer, self.policy.base),
            pad_id=self.tokenizer.pad_token_id,
            value_head=self.policy.value_head,
        )

    def _judge(self, critic: Critic) -> Judge:
        settings = self.settings
        return Judge(critic, settings.align, settings.scoring.noun(), scalar=settings.reward == "scalar")


def _check(settings: TrainSettings) -> None:
    if settings.credit.kind == "group" and settings.completions < 2:
        raise ConfigError(
            f"credit.kind=group compares the completions of a prompt with each other, so completions should be at "
            f"least 2, got {settings.completions}"
        )
    if settings.reward == "scalar" and settings.credit.kind == "local":
        raise ConfigError(
            "reward=scalar puts everything on the last token, and credit.kind=local keeps it there; choose gae or group"
        )


def _held_out(settings: TrainSettings) -> list[Example]:
    return load_examples(settings.held_out) if settings.held_out else []

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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from text2grad.errors import InvalidData, RunError
from text2grad.feedback.critics.learned import is_checkpoint
from text2grad.feedback.critics.named import critic_named, sources_of
from text2grad.feedback.critics.protocol import Critic
from text2grad.feedback.rewards import Slope
from text2grad.models.chat import end_ids, prompt_ids
from text2grad.models.modes import evaluating
from text2grad.models.offsets import completion_of
from text2grad.models.parallel import gathered_ends, shard
from text2grad.models.policy import Policy
from text2grad.models.reward import open_critic
from text2grad.models.sampling import make_sampler, uniforms
from text2grad.optim.advantages import Advantages, advantages, credited
from text2grad.optim.batch import Batch, blank, collate
from text2grad.optim.kl import RESOLUTION, Coefficient, needs_reference, penalised
from text2grad.optim.loss import approximate_kl
from text2grad.optim.reduce import masked_mean
from text2grad.optim.update import learning_rate_factor, update
from text2grad.runs.display import Display
from text2grad.tasks.examples import Stream, load_examples
from text2grad.training import _state
from text2grad.training._judge import Judge, score_of
from text2grad.training._locality import look_back
from text2grad.training._loop import Callback, Loop, Stop
from text2grad.training._rolled import Rolled, describe, evenly, explained, held_out_metrics, residual_ratio
from text2grad.training._run import digests, memory_named
from text2grad.training._setup import check, make_optimizer
from text2grad.training.guard import Watch
from text2grad.training.settings import TrainSettings
from text2grad.types import Completion, Example

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
        again: str = "",
    ) -> None:
        self.measures = measures or {}
        check(settings)
        self.examples = list(examples) if examples is not None else load_examples(settings.data)
        if not self.examples:
            raise InvalidData("`examples` should hold at least one example, got none")
        self.held_out = list(held_out or ()) if held_out or not settings.held_out else load_examples(settings.held_out)
        named = partial(critic_named, options=settings.critics, opened=open_critic)
        self.judge = _judge(critic if critic is not None else named(settings.critic), settings)
        other = settings.evaluation.critic
        self.examiner = self.judge if other is None else _judge(named(other), settings)
        self.beta, self.watch = Coefficient(settings.kl), Watch(settings.guard)
        self.buffer = _state.Buffer(Path(folder))
        self.stream = Stream(self.examples, settings.seed)
        data = digests(("examples", settings.data, examples), ("held-out", settings.held_out, held_out))
        for name in (settings.critic if critic is None else None, other):
            # A reward model is as much of a run as its data; other critics may be mended on the way.
            data |= {part: digest for part, digest in sources_of(name or "").items() if is_checkpoint(part)}
        super().__init__(
            settings,
            folder,
            model=model,
            tokenizer=tokenizer,
            data=data,
            callbacks=callbacks,
            show=show,
            by_names=examples is None and held_out is None and critic is None and measures is None,
            again=again,
        )

    def close(self) -> None:
        super().close()
        self.judge.close()
        self.examiner.close()

    def sample(self, examples: Sequence[Example], numbers: Sequence[int] | None, step: int) -> list[Any]:
        """(prompt ids, what was sampled) for each; numbers None: greedily."""
        prompts = [self._prompt(example) for example in examples]
        limit = self.settings.sampling.max_new_tokens
        # Where weights are gathered from other processes, all decode equally many; what is too much is thrown away.
        spare = self.others.most(len(prompts)) - len(prompts) if self.others.sharded else 0
        asked = prompts + [[0]] * spare
        draws = None if numbers is None else uniforms(self.settings.seed, step, [*numbers, *[0] * spare], limit)
        with (
            memory_named("sampling", "sampling.batch or sampling.prefill_tokens"),
            evaluating(self.policy),
            gathered_ends(self.policy),
        ):
            drawn = list(zip(prompts, self.sampler(asked, draws), strict=False))
        if not all(np.isfinite(sampled.logprobs).all() for _, sampled in drawn):
            raise RunError(
                f"at update {step} the policy gives log-probs that are not finite: its weights have run away, or were "
                f"so when it began. Begin again in another folder with a lower update.learning_rate"
            )
        return drawn

    def _prompt(self, example: Example) -> list[int]:
        try:
            return prompt_ids(self.tokenizer, example.prompt, self.settings.format, room=self.room)
        except InvalidData as problem:
            raise InvalidData(f"example {example.id!r}: {problem}") from None

    # ------------------------------------------------------------------------------------------------ one update

    def _step(self, number: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        began, options = time.perf_counter(), self.settings
        times = dict.fromkeys(("sample", "critic", "align", "forward", "update"), 0.0)
        rolled, mine = self._rolled(number, times)
        metrics: dict[str, Any] = {"update": number, **describe(rolled)}
        if self.judge.unit is not None and (ratio := residual_ratio(rolled, self.judge.unit)) is not None:
            metrics["reward/residual_ratio"] = ratio
        rows = [one.logged(number) for one in rolled if not one.row.scored][: options.log.rollouts // 4]
        if any(one.rollout for one in rolled):
            batch = self._batch(number, mine, times)
            found = self._advantages(batch, metrics)
            if self._too_far(metrics) is None:
                metrics |= self._learn(number, batch, found, len(rolled), times)
            rows += self._look_back(number, batch, found, (rolled, mine), metrics, times)
        if self._is_evaluated(number):
            evaluating_from = time.perf_counter()
            self._evaluate(number, metrics, rows)
            times["evaluate"] = time.perf_counter() - evaluating_from
        times["other"] = time.perf_counter() - began - sum(times.values())
        return metrics | {f"time/{part}": seconds for part, seconds in times.items()}, rows

    def _rolled(self, number: int, times: dict[str, float]) -> tuple[list[Rolled], list[Rolled]]:
        """(everybody's completions, mine): from the buffer if this update was sampled before a kill, else anew."""
        if (kept := self.others.shared(self.buffer.get(number) if self.others.first else None)) is None:
            made = [one.to_json() for one in self._roll_out(number, times)]
            everybody = [one for part in self.others.gathered(made) for one in part]
            kept = {
                "rolled": sorted(everybody, key=lambda one: int(one["number"])),
                "slope": self.judge.slope.sums,
                "why": self.others.shared(self.judge.why),
                "random": self.others.gathered(_state.random_states()),
            }
            if self.others.first:
                self.buffer.put(number, kept)
        else:
            self.judge.slope = Slope(*kept["slope"])
            _state.restore_random_states(kept["random"][self.others.rank])
        self.judge.why = kept.get("why", "")
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

    def _batch(self, number: int, mine: Sequence[Rolled], times: dict[str, float]) -> Batch:
        began = time.perf_counter()
        scored = [one for one in mine if one.rollout is not None]
        rollouts = [one.rollout for one in scored if one.rollout is not None]
        # Where only the others have something to learn from, this process takes part with a row that counts nothing.
        device = self.others.device
        batch = collate(rollouts, device, [one.number for one in scored]) if rollouts else blank(device)
        size = self.settings.update.micro_batch
        with memory_named("reading completions", "update.micro_batch"), evaluating(self.policy):
            if self.settings.credit.kind == "gae" and batch.values_BT is None:
                batch = replace(batch, values_BT=self.policy.logprobs_and_values(batch, size, self.others)[1])
            if self.reference is not None and (needs_reference(self.settings.kl) or self._is_evaluated(number)):
                batch = replace(batch, reference_BT=self.reference.logprobs(batch, size, self.others))
                if self.settings.policy.precision != "float32":
                    batch = replace(batch, own_BT=self.policy.logprobs_and_values(batch, size, self.others)[0])
        times["forward"] += time.perf_counter() - began
        return batch

    def _advantages(self, batch: Batch, metrics: dict[str, Any]) -> Advantages:
        beta = metrics["kl/coefficient"] = self.beta.value
        own_BT = batch.logprobs_BT if batch.own_BT is None else batch.own_BT
        if batch.reference_BT is not None:
            # Of each token that was sampled: unbiased, and never negative.
            kl_BT = approximate_kl(batch.reference_BT, own_BT)
            metrics["kl/reference"] = float(masked_mean(kl_BT, batch.mask_BT, self.others))
            self.beta.follow(metrics["kl/reference"])
        resolution = RESOLUTION[self.settings.policy.precision]
        earned_BT = credited(batch, self.settings.credit)
        rewards_BT = penalised(earned_BT, own_BT, batch.reference_BT, beta, resolution)
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
        logged = evenly(scored, options.log.rollouts, options.completions)
        looked = logged | evenly(scored, options.log.locality, options.completions)
        if not looked:
            return []
        with memory_named("reading completions", "update.micro_batch"), evaluating(self.policy):
            seen, moved = look_back(self.policy, batch, found, looked, options.update.micro_batch, self.others)
        metrics |= moved
        mine = [one.seen(*seen[one.number]) for one in rolled[1] if one.number in logged & seen.keys()]
        times["forward"] += time.perf_counter() - began
        writing = time.perf_counter()
        told = [one.logged(number) for one in explained(mine, self.judge)]
        times["critic"] += time.perf_counter() - writing
        everybody = [row for part in self.others.gathered(told) for row in part]
        return sorted(everybody, key=lambda row: int(row["index"]))

    # ------------------------------------------------------------------------------------------------ around it

    def _start(self) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
        if not self.held_out:
            return None
        metrics: dict[str, Any] = {"update": 0}
        rows: list[dict[str, Any]] = []
        self._evaluate(0, metrics, rows)
        self.watch.see(metrics)
        return metrics, rows

    def _is_evaluated(self, number: int) -> bool:
        return number % self.settings.evaluation.every == 0 or number == self.settings.updates

    def _evaluate(self, number: int, metrics: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        """The held-out examples, completed greedily and judged: adds to the metrics, and to the rows that are logged.
        Nothing is learned from them, the slope included."""
        if not self.held_out:
            return
        chosen = self.held_out[: self.settings.evaluation.examples]
        places = range(self.others.rank, len(chosen), self.others.processes)
        drawn = self.sample([chosen[place] for place in places], None, number)
        completions = [completion_of(self.tokenizer, sampled.token_ids) for _, sampled in drawn]
        judged = self.examiner([chosen[place] for place in places], completions, learn=False)
        mine = [
            Rolled(place, row, sampled.truncated, None).to_json()
            for place, row, (_, sampled) in zip(places, judged, drawn, strict=True)
        ]
        gathered = [Rolled.from_json(one) for part in self.others.gathered(mine) for one in part]
        everybody = sorted(gathered, key=lambda one: one.number)
        told = explained(everybody[: self.settings.log.rollouts], self.examiner) if self.others.first else []
        rows += [{**one.logged(number), "held_out": True} for one in told]
        metrics |= held_out_metrics(everybody)
        if self.examiner is not self.judge:
            metrics |= self._also([chosen[place] for place in places], completions)
        for name, measure in self.measures.items():
            measured = [measure(one.row.example, one.row.completion.text) for one in everybody]
            metrics[f"held_out/{name}"] = float(np.mean(measured))

    def _also(self, examples: Sequence[Example], completions: Sequence[Completion]) -> dict[str, float]:
        """What the critic that is trained on says of completions that another one examines: where the first rises and
        the other does not, it is being hacked."""
        mine = [score_of(row) for row in self.judge(examples, completions, learn=False) if row.scored]
        scores = [score for part in self.others.gathered(mine) for score in part]
        return {"held_out/critic_score": float(np.mean(scores))} if scores else {}

    def _watch(self, metrics: dict[str, Any], rows: list[dict[str, Any]], display: Display) -> Stop | None:
        """Say what looks wrong; the reason to stop, if there is one. The end is always evaluated."""
        reason = self._reason(metrics, display)
        if reason is not None and "held_out/length" not in metrics:
            self._evaluate(metrics["update"], metrics, rows)
        return None if reason is None else Stop(reason)

    def _reason(self, metrics: dict[str, Any], display: Display) -> str | None:
        hacked = self.watch.see(metrics)
        warnings = [*hacked, *self.judge.complaints(metrics, self.watch, self.examples)]
        if metrics.get("update/skipped") and self.watch.first_time("skipped"):
            warnings.append(
                f"{metrics['update/skipped']:.0f} optimizer steps were skipped, because their gradients were not "
                f"finite: lower update.learning_rate, or look for scores that are out of all proportion"
            )
        if warnings:
            metrics["warnings"] = warnings
            for words in warnings:
                display.note(f"update {metrics['update']}: {words}")
        if (far := self._too_far(metrics)) is not None:
            return far
        if self.settings.guard.action == "stop" and hacked:
            return f"guard.action=stop, and {hacked[0]}"
        return None

    def _too_far(self, metrics: Mapping[str, Any]) -> str | None:
        """Why nothing more should be learned: the policy that sampled has left its reference."""
        limit, measured = self.settings.kl.stop, metrics.get("kl/reference", 0.0)
        if not limit or measured <= limit:
            return None
        return (
            f"the KL to the reference is {measured:.3g} a token, over kl.stop={limit:g}, so update {metrics['update']} "
            f"was not applied"
        )

    def _own_state(self) -> dict[str, Any]:
        return {"kl": self.beta.value, "slope": list(self.judge.slope.sums), "watch": self.watch.state()}

    def _restore(self, state: Mapping[str, Any]) -> None:
        self.beta.value = state["kl"]
        self.judge.slope = Slope(*state["slope"])
        self.watch.restore(state["watch"])

    def _build(self, model: Any) -> None:
        settings = self.settings
        self.updates = settings.updates
        gae = settings.credit.kind == "gae"
        self.policy = Policy(model, settings.policy, value_head=gae, temperature=settings.sampling.temperature)
        self.reference = self.policy.reference() if needs_reference(settings.kl) or settings.kl.measure else None
        self.policy.eval()
        self.module = self.others.prepare(self.policy)
        if self.others.sharded and self.reference is not None and self.reference.copy is not None:
            shard(self.reference.copy)
        self.optimizer = make_optimizer(self.policy, settings.update, settings.update.value_learning_rate)
        ends = end_ids(self.tokenizer, self.policy.base)
        self.sampler = make_sampler(
            self.policy.model,
            settings.sampling,
            end_ids=ends,
            pad_id=self.tokenizer.pad_token_id if self.tokenizer.pad_token_id is not None else ends[0],
            value_head=self.policy.value_head,
        )
        positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self.room = None if positions is None else positions - settings.sampling.max_new_tokens
        # A prompt that is too long is found now, not when it comes up after hours.
        for example in (*self.examples, *self.held_out[: settings.evaluation.examples]):
            self._prompt(example)


def _judge(critic: Critic, settings: TrainSettings) -> Judge:
    return Judge(critic, settings.align, settings.scoring.noun(), scalar=settings.reward == "scalar")

"""*Learn*: a few updates on what people wrote so far, and what became of it.

Enters: a `Model` at some version, and `LearnData` from the store. Leaves: a run folder, which `text2grad report` and
`text2grad export` read, and what the store keeps of the new version. It has two parts:

direct  The completions that people criticised, with the log-probs that they were sampled with. Blamed tokens are pushed
        down and praised ones up by the clipped objective, until they are as far from their sampling as `clip` allows.
        What a correction put in is made likelier, until it is likely. Where somebody has scored two completions of a
        prompt, the better one gains as a whole. A penalty holds all tokens where the start had them; it is taken on
        completions that nobody criticised as well.
rl      Where a critic is set: sampled, judged and updated by the functions that `training/rl.py` is made of.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from text2grad.errors import InvalidData
from text2grad.evaluation.evaluator import judged
from text2grad.evaluation.metrics import RUNNING, describe, metric_infos
from text2grad.feedback.align.revision import changed
from text2grad.models.modes import evaluating
from text2grad.optim import kl
from text2grad.optim import update as optim_update
from text2grad.optim.batch import Batch, collate, collate_ids
from text2grad.optim.estimators import Advantages, find_estimator
from text2grad.optim.settings import UpdateSettings
from text2grad.optim.update import supervised_update, update
from text2grad.report.completions import pieces, prompt_text
from text2grad.runs.run import Run
from text2grad.studio import words
from text2grad.studio.model import AT_ONCE, Bodies, Model, shown_metrics
from text2grad.studio.store import Row, Store
from text2grad.tasks.examples import Stream
from text2grad.training.rollouts import METRICS as ROLLOUTS
from text2grad.training.rollouts import SampleAndJudge
from text2grad.training.settings import TrainSettings
from text2grad.training.setup import Clock, facts, learning, make_optimizer
from text2grad.training.state import TrainingState
from text2grad.types import Alignment, Critique, Example, MetricInfo, Rollout

Told = Callable[[float, str], None]
"""Told the progress from 0 to 1, and what is being done. Raises where somebody has cancelled it."""
METRICS = {
    "direct/poor": MetricInfo("Blamed tokens", "Mean log-prob of the tokens that people blamed.", "lower"),
    "direct/good": MetricInfo("Praised tokens", "Mean log-prob of the tokens that people praised.", "higher"),
    "direct/corrected": MetricInfo("Corrections", "Mean log-prob of what people's corrections put in.", "higher"),
}
FAR = 0.1
"""KL per token to the start above which a Learn is said to have gone far."""

SHOWN = 100
"""Criticised completions that the page shows before and after: the latest."""


@dataclass(frozen=True, slots=True)
class LearnData:
    """What is learned from, as the store has it."""

    critiques: list[Row]
    completions: dict[int, Row]
    prompts: dict[int, Row]
    """Those of the critiques."""
    current: dict[int, list[Row]]
    """Prompt → its completions of the version that learns."""
    kept: list[tuple[Row, Row]]
    """Completions that nobody criticised, each with its prompt."""
    judged: list[Example]
    """The task's own prompts, for the critic."""
    learned: dict[str, int]
    """Critique → the edit that was learned from before."""

    @classmethod
    def of(cls, store: Store, version: int, kept: int, most: int) -> "LearnData":
        """`most`: as many critiques as there are turns: what is new first, then the latest."""
        learned = store.learned(version)

        def weight(row: Row) -> tuple[bool, float]:
            return learned.get(str(row["id"])) != row["version"], row["time"]

        said = sorted(store.critiques(), key=weight)[-most:]
        criticised = {row["completion"] for row in said}
        asked = {row["prompt"] for row in said}
        others = store.rows(
            "SELECT c.* FROM completions c JOIN prompts p ON p.id = c.prompt WHERE NOT EXISTS "
            "(SELECT 1 FROM critiques q WHERE q.prompt = c.prompt AND q.deleted = 0) "
            "AND c.id = (SELECT MIN(o.id) FROM completions o WHERE o.prompt = c.prompt) ORDER BY p.place LIMIT ?",
            kept,
        )
        task = store.rows("SELECT * FROM prompts WHERE author IS NULL ORDER BY place LIMIT 5000")
        return cls(
            said,
            {number: store.completion(number) for number in criticised},
            {number: store.prompt(number) for number in asked},
            {number: store.completions(number, version) for number in asked},
            [(row, store.prompt(row["prompt"])) for row in others],
            [words.example_in(row) for row in task],
            learned,
        )


@dataclass(frozen=True, slots=True)
class Learned:
    """What came out, for the store."""

    body: dict[str, Any]
    comparison: dict[str, Any]
    completions: Bodies
    """Of the new version."""


def learn(model: Model, version: int, parts: Sequence[str], updates: int, data: LearnData, told: Told) -> Learned:
    """From the version that is loaded to a new one. If it fails or is cancelled, the model is what it was."""
    parent = model.version
    told(0.01, "measuring before")
    before, _ = model.measure()
    compared = _compared(model, data)
    direct = Direct(model, data) if "direct" in parts else None
    try:
        _train(model, version, updates, direct, "rl" in parts, data, told)
        after, _ = model.measure()
        told(0.92, "sampling again")
        rows, counts = [data.prompts[number] for number in compared], [len(each) for each in compared.values()]
        again = model.sample(rows, counts, [0] * len(rows))
        apart = model.measure_kl([words.example_in(row) for row in data.prompts.values()])
    except BaseException:
        model.measured.pop(version, None)
        model.version = -1
        model.load(parent)
        raise
    body = {
        "updates": updates,
        "parts": list(parts),
        "critiques": len(data.critiques) if direct else 0,
        "learned": data.learned | {str(row["id"]): row["version"] for row in data.critiques if direct},
        "held_out": shown_metrics(after) or None,
        "kl": apart,
    }
    comparison = {
        "updates": updates,
        "held_out": {"before": shown_metrics(before), "after": shown_metrics(after)} if after else None,
        "kl": apart,
        "criticised": direct.shown() if direct else [],
        "prompts": _side_by_side(model, data, compared, again),
        "warnings": warnings_of(before, after, apart, direct.skipped if direct else 0),
    }
    return Learned(body, comparison, again)


def _train(
    model: Model, version: int, updates: int, direct: "Direct | None", rl: bool, data: LearnData, told: Told
) -> None:
    """The updates, in a run folder of their own; the last checkpoint is the version."""
    options = replace(model.options, updates=updates, checkpoint_every=updates)
    run = Run(
        model.run_folder(version),
        options,
        command="train",
        world=model.world,
        facts=facts(options, model.world),
        metrics=RUNNING | optim_update.METRICS | kl.METRICS | ROLLOUTS | METRICS | metric_infos(model.task.metrics),
        resume_with=None,
    )
    optimizer = make_optimizer(model.policy, options.update)
    judge = _judge(model, data, options, run) if rl else None
    with closing(run), run.working(TrainingState(model.policy, optimizer, model.world, {}), updates):
        run.began_from(model.fingerprint)
        numbers, shown = model.measure()
        run.log({"update": 0, **numbers}, held_out=shown)
        for step in run.steps():
            told(0.05 + 0.75 * (step - 1) / updates, f"update {step} of {updates}")
            metrics: dict[str, Any] = {"update": step}
            rollouts: list[Rollout] = []
            if direct is not None:
                metrics |= direct.update(optimizer, options.update, step)
            if judge is not None:
                found, rollouts = _rl(model, judge, optimizer, options, step)
                metrics |= found
            if step < updates:
                run.log(metrics, rollouts)
                continue
            told(0.82, "measuring after")
            model.version = version
            numbers, shown = model.measure()
            run.log(metrics | numbers, [*(direct.after() if direct else []), *rollouts], shown)
        if not run.over:
            raise SystemExit(143)  # asked to stop: the next worker does this job again


def _judge(model: Model, data: LearnData, options: TrainSettings, run: Run) -> SampleAndJudge:
    examples = data.judged or [words.example_in(row) for row in data.prompts.values()]
    if not examples:
        raise InvalidData("RL wants prompts to sample from, and the queue is empty")
    # Each Learn goes on to other prompts of the queue.
    stream = Stream(examples, options.seed + model.version)
    counts = {"prompts": options.prompts, "completions": options.completions, "seed": options.seed + 7 + model.version}
    return SampleAndJudge(stream, model.writer, model.reward, run, **counts)


def _rl(
    model: Model, judge: SampleAndJudge, optimizer: Any, options: TrainSettings, step: int
) -> tuple[dict[str, Any], list[Rollout]]:
    rollouts, _ = judge(step, Clock())
    metrics: dict[str, Any] = dict(describe(rollouts))
    scored = [rollout for rollout in rollouts if rollout.scored]
    if scored:
        batch = collate(scored)
        batch = replace(batch, rewards_BT=batch.rewards_BT / model.reward.spread)
        found = find_estimator(options.advantage.estimator)(batch, 0.0, options.advantage)
        metrics |= _step(
            model, optimizer, batch, found, replace(options.update, epochs=1, clip=0.2, clip_high=None), step
        )
    return metrics, rollouts[: options.log.rollouts]


def _step(
    model: Model, optimizer: Any, batch: Batch, found: Advantages, options: UpdateSettings, step: int
) -> dict[str, float]:
    with learning(model.policy):
        stats = update(model.policy, optimizer, batch, found, options, seed=step, micro_batch=AT_ONCE)
    return stats.means()


class Direct:
    """What people wrote, as two batches: completions that were criticised, and corrections."""

    def __init__(self, model: Model, data: LearnData) -> None:
        self.model, self.data, self.options = model, data, model.settings.learn
        self.rollouts = [self._rollout(place, row) for place, row in enumerate(data.critiques)]
        kept = [self._silent(len(self.rollouts) + place, *pair) for place, pair in enumerate(data.kept)]
        self.batch = collate([*self.rollouts, *kept])
        self.batch = replace(self.batch, rewards_BT=self.batch.rewards_BT + self._by_scores())
        self.batch = replace(self.batch, reference_BT=model.reference.logprobs(self.batch, AT_ONCE))
        self.skipped = 0
        """Corrections that are too long for the model."""
        self.corrections = self._corrections()
        self.before = model.logprobs(self.batch)

    def _rollout(self, place: int, row: Row) -> Rollout:
        completion = self.data.completions[row["completion"]]
        said, found = words.critique_in(row)
        return _rollout(place, completion, self.data.prompts[row["prompt"]], said, found)

    def _silent(self, place: int, completion: Row, prompt: Row) -> Rollout:
        return _rollout(place, completion, prompt, Critique(""), Alignment())

    def _by_scores(self) -> Tensor:
        """Where a person has scored several completions of a prompt: half of what each is above or below the mean of
        the others, on all its tokens; (B, T)."""
        whole_BT = torch.zeros_like(self.batch.rewards_BT)
        by_person: dict[tuple[str, int], list[int]] = {}
        for place, row in enumerate(self.data.critiques):
            if row["score"] is not None:
                by_person.setdefault((row["author"], row["prompt"]), []).append(place)
        for places in (each for each in by_person.values() if len(each) > 1):
            scores = np.array([self.data.critiques[place]["score"] for place in places], dtype=float)
            others = (scores.sum() - scores) / (len(scores) - 1)
            for place, gain in zip(places, np.clip(scores - others, -1, 1) / 2, strict=True):
                whole_BT[place] = float(gain)
        return torch.where(self.batch.mask_BT, whole_BT, 0.0)

    def _corrections(self) -> Batch | None:
        """Corrected versions; only what the correction changed counts. All of it, where it is another text. The
        number of a row is that of its critique."""
        prompts, texts, weights, places_of = [], [], [], []
        for place, row in enumerate(self.data.critiques):
            if not row["revision"]:
                continue
            try:
                prompt, (made,) = self.model.encoded(
                    words.example_in(self.data.prompts[row["prompt"]]), [row["revision"]]
                )
            except InvalidData:
                self.skipped += 1
                continue
            original = self.data.completions[row["completion"]]["text"]
            places, added = changed(made.text, original)
            new = [*places, *((at, at + len(text)) for text in added if (at := made.text.find(text)) >= 0)]
            touched = [not new or any(s < end and start < e for start, end in new) for s, e in made.offsets]
            places_of.append(place)
            prompts.append(prompt)
            texts.append(made.token_ids)
            weights.append([float(each and s < e) for each, (s, e) in zip(touched, made.offsets, strict=True)])
        return collate_ids(prompts, texts, loss_weights=weights, indices=places_of) if prompts else None

    def _turn(self, step: int) -> Tensor:
        """Rows of an update: critiques in turn, the newest first, and what is to stay."""
        count = len(self.rollouts)
        most = min(count, self.options.critiques)
        chosen = [count - 1 - ((step - 1) * most + place) % count for place in range(most)]
        return torch.tensor([*chosen, *range(count, len(self.batch))])

    def update(self, optimizer: Any, options: UpdateSettings, step: int) -> dict[str, float]:
        rows, model = self._turn(step), self.model
        batch = self.batch.rows(rows)
        with evaluating(model.policy):
            own_BT, _ = model.policy.logprobs_and_values(batch, AT_ONCE)
        assert batch.reference_BT is not None
        penalty_BT = kl.kl_penalty(own_BT, batch.reference_BT, self.options.kl)
        advantages_BT = torch.where(batch.mask_BT, batch.rewards_BT - penalty_BT, 0.0)
        metrics = {
            f"direct/{name}": float(own_BT[mask_BT].mean())
            for name, mask_BT in (("poor", batch.verdicts_BT < 0), ("good", batch.verdicts_BT > 0))
            if mask_BT.any()
        }
        metrics |= _step(model, optimizer, batch, Advantages(advantages_BT, batch.mask_BT), options, step)
        return metrics | self._correct(optimizer, options, rows)

    def _correct(self, optimizer: Any, options: UpdateSettings, turn: Tensor) -> dict[str, float]:
        if self.corrections is None:
            return {}
        rows = torch.isin(self.corrections.number_B, turn).nonzero()[:, 0]
        if not len(rows):
            return {}
        corrections = self.corrections.rows(rows)
        wanted_BT = corrections.loss_weights_BT
        for _ in range(options.epochs):
            with evaluating(self.model.policy):
                own_BT, _ = self.model.policy.logprobs_and_values(corrections, AT_ONCE)
            weights_BT = torch.where(own_BT.exp() < self.options.sure, wanted_BT, 0.0)
            if not weights_BT.any():
                break
            batch = replace(corrections, loss_weights_BT=weights_BT)
            with learning(self.model.policy):
                supervised_update(
                    self.model.policy, optimizer, batch, micro_batch=AT_ONCE, max_grad_norm=options.max_grad_norm
                )
        return {"direct/corrected": float(own_BT[wanted_BT > 0].mean())} if wanted_BT.any() else {}

    def after(self) -> list[Rollout]:
        """What was criticised, with its log-probs before this Learn and after it."""
        self.later = self.model.logprobs(self.batch)
        return [
            replace(rollout, logprobs=tuple(self.before[place]), logprobs_after=tuple(self.later[place]))
            for place, rollout in enumerate(self.rollouts)
        ]

    def shown(self) -> list[dict[str, Any]]:
        """For the page."""
        shown = list(enumerate(zip(self.data.critiques, self.rollouts, strict=True)))[-SHOWN:]
        return [
            {
                "completion": row["completion"],
                "critique": row["id"],
                "author": row["author"],
                "prompt": row["prompt"],
                "text": rollout.completion.text,
                "pieces": pieces(rollout.completion),
                "offsets": rollout.completion.to_json()["offsets"],
                "before": self.before[place],
                "after": self.later[place],
                "spans": row["alignment"]["spans"],
                "feedback": row["feedback"],
            }
            for place, (row, rollout) in shown
        ]


def _rollout(place: int, completion: Row, prompt: Row, said: Critique, found: Alignment) -> Rollout:
    made, ended = words.completion_in(completion), not completion["truncated"]
    rewards = words.rewards_of(made, found, ended=ended)
    return Rollout(
        words.example_in(prompt),
        made,
        index=place,
        group=place,
        prompt_ids=tuple(completion["prompt_ids"]),
        logprobs=tuple(completion["logprobs"]),
        truncated=completion["truncated"],
        critique=said,
        alignment=found,
        token_rewards=rewards,
        verdicts=tuple(np.sign(rewards).tolist()),
        score=said.score,
    )


def _compared(model: Model, data: LearnData) -> Bodies:
    """The prompts that were criticised last, and what the version before writes for them."""
    latest = dict.fromkeys(row["prompt"] for row in sorted(data.critiques, key=lambda row: -row["time"]))
    chosen = list(latest)[: model.settings.learn.compared]
    missing = [data.prompts[number] for number in chosen if not data.current[number]]
    count = model.settings.completions
    sampled = model.sample(missing, [count] * len(missing), [0] * len(missing))
    return {number: data.current[number][:4] or sampled[number] for number in chosen}


def _side_by_side(model: Model, data: LearnData, before: Bodies, after: Bodies) -> list[dict[str, Any]]:
    return [
        {
            "id": number,
            "prompt": prompt_text(words.example_in(data.prompts[number])),
            "before": _shown(model, data.prompts[number], before[number]),
            "after": _shown(model, data.prompts[number], after[number]),
        }
        for number in before
    ]


def _shown(model: Model, prompt: Row, bodies: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Completions as the page reads them, with the score of whoever measures held-out prompts."""
    rollouts = [Rollout(words.example_in(prompt), words.completion_in(body)) for body in bodies]
    if model.evaluator is not None:
        rollouts = judged(model.reward, rollouts)
    return [
        {
            "text": rollout.completion.text,
            "pieces": pieces(rollout.completion),
            "logprobs": body["logprobs"],
            "score": rollout.score,
            "truncated": body["truncated"],
        }
        for rollout, body in zip(rollouts, bodies, strict=True)
    ]


def _noise(metrics: Mapping[str, float]) -> float:
    """Standard error of the held-out score; 0 where it is not known."""
    return float(metrics.get("held_out/std", 0.0) / max(metrics.get("held_out/n", 1.0), 1.0) ** 0.5)


def warnings_of(before: Mapping[str, float], after: Mapping[str, float], apart: float, skipped: int) -> list[str]:
    """What a person should know before going on."""
    said = []
    old, new = before.get("held_out/score"), after.get("held_out/score")
    if old is None or new is None:
        said.append("There is no held-out score: the task has no held-out prompts that a critic can judge.")
    elif new < old - _noise(before) / 2:
        said.append(
            f"The held-out score fell from {old:.3f} to {new:.3f}: the model may know these critiques by heart. "
            f"Undo, write more of them, or make fewer updates."
        )
    if apart > FAR:
        said.append(f"The model is far from its start: the KL is {apart:.2f} per token. Undo if its texts look odd.")
    if skipped:
        said.append(f"{skipped} correction{'s'[: skipped != 1]} too long for the model; left out.")
    return said

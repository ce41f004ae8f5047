"""TRL's GRPO and SDPO as rivals: the same examples in the same order, critic, budget, evaluation and run folder.

TRL's trainer drives; a callback of ours counts its optimizer steps, evaluates, logs and saves after each update. What
differs from `training/rl.py` is TRL's own: its loss, its KL term (in the loss, not in the rewards), its generation.
SDPO (`trl.experimental.sdpo`) takes feedback from the data set alone, so a subclass gives it the critique of what was
just sampled. Random numbers are seeded per update, so a run that was killed resumes as if nothing had happened.
"""

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from text2grad.evaluation.metrics import RUNNING, describe, metric_infos
from text2grad.evaluation.named import metrics_named
from text2grad.models.load import device_named, fingerprint, load_model, published_dtype
from text2grad.models.offsets import completion_of
from text2grad.models.policy import Policy
from text2grad.models.writer import Writer
from text2grad.runs import Closable
from text2grad.runs.run import Outcome, Run
from text2grad.runs.world import ALONE
from text2grad.tasks.examples import Stream
from text2grad.training.rollouts import evaluate_once
from text2grad.training.saving import card_of
from text2grad.training.settings import TRLSettings, check_trl, rows_at_once
from text2grad.training.setup import RewardFunctions, facts, load_data, sampling_of
from text2grad.training.spending import METRICS
from text2grad.training.state import TrainingState, disk_errors, seed_everything
from text2grad.types import Example, Rollout


class TRLTrainer(Closable):
    """One run of TRL's trainer in a run folder of ours."""

    world = ALONE

    def __init__(self, settings: TRLSettings, folder: str | Path, *, show: bool = False) -> None:
        import trl  # noqa: F401 - missing: said before anything is loaded

        check_trl(settings)
        self.settings, data = settings, load_data(settings)
        self.examples, self.held_out = data.examples, data.held_out[: settings.evaluation.examples]
        self.metrics = (*data.task.metrics, *metrics_named(settings.metrics))
        self.judges = RewardFunctions(settings, settings.critic or data.task.critic, settings.evaluation.critic)
        device = device_named(settings.device)
        self.run = Run(
            folder,
            settings,
            command="trl",
            data=data.digests | self.judges.digests,
            facts=facts(settings, SimpleNamespace(device=device, size=1)),  # type: ignore[arg-type]
            metrics=RUNNING | METRICS | metric_infos(self.metrics),
            show=show,
        )
        with self.run.abandoned_on_failure():
            seed_everything(settings.seed)
            model, self.tokenizer = load_model(settings.model, device=device)
            model.saves_as = published_dtype(settings.model)
            self.run.began_from(fingerprint(model, self.tokenizer))
            self.tokenizer.padding_side = "left"
            # TRL calls the model itself, as transformers made it.
            plain = replace(settings.policy, packing="never", compile=False)
            self.policy = Policy(model, plain, value_head=False)
            sampling = sampling_of(self.run, self.policy, settings.sampling)
            self.writer = Writer(self.policy, self.tokenizer, sampling, settings.format)
            self.evaluator = self.judges.evaluator(self.held_out, self.metrics, ALONE)
        self.state = _State(self)
        self.judged: dict[tuple[int, tuple[int, ...]], Rollout] = {}
        """What was sampled in this update, by place in the data and ids."""
        self.sampled: list[Rollout] = []
        """The same, every completion as often as it was sampled."""

    def train(self) -> Outcome:
        run, updates = self.run, self.settings.updates
        with closing(self), run.working(self.state, updates), self.judges.counted(run):
            if run.done == 0 and not run.over:
                run.log({"update": 0, **self.evaluate(0)[0]})
            if run.over:
                self.state.put_back()
            else:
                with tempfile.TemporaryDirectory() as scratch:
                    self._trainer(scratch).train()
            return run.finish(lambda: {"model": self._write})

    def judge(self, places: Sequence[int], ids: Sequence[Sequence[int]]) -> list[Rollout]:
        """The critic on what was sampled; each completion once, however often TRL asks."""
        keys = [(place, tuple(each)) for place, each in zip(places, ids, strict=True)]
        ends = set(self.writer.end_ids)
        if new := [key for key in dict.fromkeys(keys) if key not in self.judged]:
            completions = [completion_of(self.tokenizer, key[1]) for key in new]
            cut = [not key[1] or key[1][-1] not in ends for key in new]
            said = self.judges.training([self.stream_at(key[0]) for key in new], completions, truncated=cut)
            self.judged |= dict(zip(new, said, strict=True))
        return [self.judged[key] for key in keys]

    def stream_at(self, place: int) -> Example:
        return self._stream.at(place)

    def evaluate(self, step: int) -> tuple[dict[str, Any], list[Rollout]]:
        if self.evaluator is None:
            return {}, []
        each = self.settings.evaluation.each
        return evaluate_once(self.run, step, self.evaluator, self.writer, self.settings.log.rollouts, each=each)

    def close(self) -> None:
        """Let go of the run folder and of the critics; `train` does so by itself."""
        self.run.close()
        self.judges.close()

    def _write(self, path: Path) -> None:
        with disk_errors():
            self.policy.save_pretrained(path, self.tokenizer, None)
        (path / "README.md").write_text(card_of(self.run.path, self.settings, "trl", self.run.done), encoding="utf-8")

    def _trainer(self, scratch: str) -> Any:
        """TRL's, with what is left to do."""
        from datasets import Dataset

        settings, chat = self.settings, self.settings.format != "plain" and bool(self.tokenizer.chat_template)
        self._stream = Stream(self.examples, settings.seed)
        first, last = self.run.done * settings.prompts, settings.updates * settings.prompts
        rows = [{"prompt": _prompt(self.stream_at(place), chat), "place": place} for place in range(first, last)]
        kind, arguments = _kind(settings.trainer)
        known = {each.name for each in fields(arguments)}
        options = {key: value for key, value in self._options().items() if key in known}

        def score(place: list[int], completion_ids: list[list[int]], **_: Any) -> list[float | None]:
            self.sampled += (said := self.judge(place, completion_ids))
            return [rollout.score for rollout in said]

        trainer = kind(
            model=self.policy.model,
            reward_funcs=score,
            args=arguments(output_dir=scratch, **options),
            train_dataset=Dataset.from_list(rows),
            processing_class=self.tokenizer,
        )
        # Without adapters TRL loads its reference or teacher by the name of the base, without what was merged into it.
        for other in (getattr(trainer, name, None) for name in ("ref_model", "teacher_model")):
            if other is not None and other is not trainer.model:
                other.to(self.policy.model.dtype).load_state_dict(self.policy.model.state_dict())
        trainer.judge = self.judge
        trainer.add_callback(_callback(self))
        self.state.trainer = trainer
        return trainer

    def _options(self) -> dict[str, Any]:
        """Ours in its words."""
        ours, update = self.settings, self.settings.update
        rows = ours.prompts * ours.completions
        each = rows // update.minibatches
        size = rows_at_once(ours)
        return {
            "per_device_train_batch_size": size,
            "gradient_accumulation_steps": each // size,
            "steps_per_generation": rows // size,
            "num_iterations": update.epochs,
            "num_generations": ours.completions,
            "max_steps": (ours.updates - self.run.done) * self.steps_each,
            "max_completion_length": ours.sampling.max_new_tokens,
            "max_prompt_length": None,
            "temperature": ours.sampling.temperature,
            "top_p": 1.0,
            "top_k": 0,
            "beta": ours.kl.coefficient,
            "epsilon": update.clip,
            "epsilon_high": update.clip_high,
            "learning_rate": update.learning_rate,
            "lr_scheduler_type": "constant",
            "adam_beta2": update.beta2,
            "weight_decay": update.weight_decay,
            "max_grad_norm": update.max_grad_norm,
            "seed": ours.seed,
            "shuffle_dataset": False,
            "bf16": ours.policy.precision == "bfloat16",
            "use_cpu": self.policy.device.type == "cpu",
            "gradient_checkpointing": ours.policy.gradient_checkpointing,
            "logging_strategy": "no",
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            "dataloader_pin_memory": False,
            "distillation_weight": ours.distillation_weight,
            "teacher_update_rate": ours.teacher_rate,
            "include_environment_feedback": True,
            "use_successful_as_teacher": False,
        }

    @property
    def steps_each(self) -> int:
        """Optimizer steps per update."""
        return self.settings.update.minibatches * self.settings.update.epochs


def _prompt(example: Example, chat: bool) -> Any:
    if isinstance(example.prompt, str):
        return [{"role": "user", "content": example.prompt}] if chat else example.prompt
    return [{"role": turn.role, "content": turn.content} for turn in example.prompt]


def _kind(name: str) -> tuple[Any, Any]:
    """(trainer, its arguments)."""
    if name == "grpo":
        from trl import GRPOConfig, GRPOTrainer

        return GRPOTrainer, GRPOConfig
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    from trl.experimental.sdpo import SDPOConfig, SDPOTrainer

    class Critiqued(SDPOTrainer):  # type: ignore[misc]
        def sample_rollouts(self, inputs: list[dict[str, Any]]) -> Any:
            batch = super().sample_rollouts(inputs)
            said = self.judge([row["place"] for row in inputs], self._get_completion_ids_list(batch))
            for row, rollout in zip(inputs, said, strict=True):
                row["privileged_context"] = rollout.critique.feedback if rollout.critique else ""
            return batch

    return Critiqued, SDPOConfig


def _callback(ours: TRLTrainer) -> Any:
    """Follows TRL's optimizer steps: every so many are an update of ours."""
    from transformers import TrainerCallback

    run, settings, steps = ours.run, ours.settings, ours.run.steps()
    done, began = run.done, time.perf_counter()

    class Follow(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            ours.state.put_back()
            next(steps)

        def on_step_begin(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
            if state.global_step % ours.steps_each == 0:
                torch.manual_seed(settings.seed * 1_000_003 + done + state.global_step // ours.steps_each)

        def on_step_end(self, _: Any, state: Any, control: Any, **__: Any) -> None:
            nonlocal began
            if state.global_step % ours.steps_each:
                return
            step = done + state.global_step // ours.steps_each
            rollouts = ours.sampled
            metrics = {"update": step, **describe(rollouts), "time/update": time.perf_counter() - began}
            held_out: list[Rollout] = []
            if step % settings.evaluation.every == 0 or step == settings.updates:
                measured, held_out = ours.evaluate(step)
                metrics |= measured
            run.log(metrics | ours.judges.spending.metrics(run), rollouts[: settings.log.rollouts], held_out)
            ours.judged, ours.sampled = {}, []
            control.should_training_stop = next(steps, None) is None
            began = time.perf_counter()

    return Follow()


class _State(TrainingState):
    """Trained weights, TRL's optimizer, and SDPO's teacher. Made before the trainer is, so `put_back` restores."""

    def __init__(self, ours: TRLTrainer) -> None:
        self.ours, self.world = ours, ALONE
        self.trainer: Any = None
        self._found: Mapping[str, Any] | None = None

    def collect(self) -> dict[str, Any]:
        average, teacher = self._average(), getattr(self.trainer, "teacher_model", None)
        if average is not None:
            kept = dict(average.shadow_weights)
        else:
            kept = dict(teacher.state_dict()) if teacher is not None and teacher is not self.trainer.model else {}
        trained = {name: weight.detach() for name, weight in self.ours.policy.trainable().items()}
        return {"weights": trained, "optimizer": self.trainer.optimizer.state_dict(), "teacher": kept}

    def restore(self, collected: Mapping[str, Any]) -> None:
        self._found = collected

    @torch.no_grad()
    def put_back(self) -> None:
        """Once TRL's trainer is there: it takes its reference from the adapter that it is given, which is the first."""
        if self._found is None:
            return
        for name, weight in self.ours.policy.trainable().items():
            weight.copy_(self._found["weights"][name])
        if self.trainer is None:  # the run was over
            return
        self.trainer.optimizer.load_state_dict(self._found["optimizer"])
        average, kept = self._average(), self._found["teacher"]
        if average is not None:
            from peft import set_peft_model_state_dict

            average.shadow_weights = {name: weight.to(self.ours.policy.device) for name, weight in kept.items()}
            set_peft_model_state_dict(self.trainer.model, kept, adapter_name=average.teacher_adapter_name)
        elif kept:
            self.trainer.teacher_model.load_state_dict(kept)

    def _average(self) -> Any:
        """TRL's callback that keeps the teacher's adapter; None where there is none."""
        callbacks = self.trainer.callback_handler.callbacks
        return next((one for one in callbacks if getattr(one, "shadow_weights", None) is not None), None)

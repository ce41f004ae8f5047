"""TRL's trainers in a run folder of ours: they learn, are judged by the same critic, and resume as if never stopped."""

from pathlib import Path
from typing import Any

import pytest
import torch

from text2grad import config
from text2grad.errors import ConfigError
from text2grad.models.load import load_model
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.runs import read_jsonl
from text2grad.training.settings import TRLSettings
from text2grad.training.trl import TRLTrainer
from text2grad.types import Critique

pytest.importorskip("trl")
pytestmark = pytest.mark.filterwarnings("ignore")
SMALL = [
    *("updates=4", "prompts=2", "completions=2", "checkpoint_every=2", "evaluation.every=2", "device=cpu"),
    *("sampling.max_new_tokens=6", "policy.lora.rank=2", "update.learning_rate=1e-2", "update.epochs=1"),
    f"critic={__name__}:letters",
]
ASKED: list[str] = []


def letters(_: list[str], completions: list[str], **__: Any) -> list[Critique]:
    ASKED.extend(completions)
    return [Critique(f"“{text[:3]}” has few letters.", score=float(len(set(text)))) for text in completions]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trl")
    tokenizer = tiny_tokenizer()
    tiny_model(tokenizer, hidden_size=16, layers=1).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    (folder / "data.jsonl").write_text("".join(f'{{"prompt": "Which river {n}?"}}\n' for n in range(4)))
    return folder


def trained(given: Path, folder: Path, *words: str, stop: int = 0) -> None:
    files = [f"model={given / 'model'}", f"data={given / 'data.jsonl'}", f"held_out={given / 'data.jsonl'}"]
    trainer = TRLTrainer(config.load(TRLSettings, None, [*SMALL, *files, *words]), folder)
    if stop:
        trainer.run.callbacks.append(lambda metrics: _stop_at(metrics["update"], stop))
    trainer.train()


def _stop_at(update: int, stop: int) -> None:
    if update == stop:
        raise KeyboardInterrupt


def weights(folder: Path) -> dict[str, torch.Tensor]:
    model, _ = load_model(str(folder / "model"))
    found: dict[str, torch.Tensor] = model.state_dict()
    return found


@pytest.mark.parametrize("kind", ["grpo", "sdpo"])
def test_a_run_learns_and_resumes_to_the_same_bits(kind: str, given: Path, tmp_path: Path) -> None:
    ASKED.clear()
    trained(given, tmp_path / "whole", f"trainer={kind}")
    rows = list(read_jsonl(tmp_path / "whole" / "metrics.jsonl"))
    assert [row["update"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row["update"] for row in rows if "held_out/score" in row] == [0, 2, 4]
    # 4 updates of 4 completions, 3 evaluations of 4: TRL asks about each completion once (equal ones together).
    assert len(ASKED) <= 4 * 4 + 3 * 4
    before = weights(given)
    assert any(not torch.equal(weight, before[name]) for name, weight in weights(tmp_path / "whole").items())
    with pytest.raises(KeyboardInterrupt):
        trained(given, tmp_path / "cut", f"trainer={kind}", stop=3)
    assert not (tmp_path / "cut" / "model").exists()
    trained(given, tmp_path / "cut", f"trainer={kind}")
    after = weights(tmp_path / "cut")
    assert all(torch.equal(weight, after[name]) for name, weight in weights(tmp_path / "whole").items())


def test_the_teacher_reads_the_critique_of_what_was_sampled(
    given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trl.experimental.sdpo import sdpo_trainer

    seen: list[str] = []
    build = sdpo_trainer.SuccessfulRolloutTeacherContextBuilder._build_reprompt_text

    def spied(self: Any, prompt: str, solution: str, feedback: str) -> str:
        seen.append(text := build(self, prompt, solution, feedback))
        return str(text)

    monkeypatch.setattr(sdpo_trainer.SuccessfulRolloutTeacherContextBuilder, "_build_reprompt_text", spied)
    trained(given, tmp_path / "run", "trainer=sdpo", "updates=1", "distillation_weight=0.1")
    assert len(seen) == 4
    assert all("has few letters." in text and "Which river" in text for text in seen)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["advantage.estimator=rloo"], "`advantage.estimator` means nothing to TRL's grpo trainer"),
        (["reward=scalar"], "`reward` means nothing"),
        (["update.schedule=linear"], "the learning rate should be constant"),
        (["prompts=3", "completions=3", "update.minibatches=2"], "should be a multiple of update.minibatches"),
    ],
)
def test_settings_that_trl_would_not_read_are_refused(words: list[str], told: str, given: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=told):
        trained(given, tmp_path / "run", *words)


def test_the_rows_in_memory_are_few_and_divide_the_minibatch(given: Path, tmp_path: Path) -> None:
    """The activations of all 256 completions of an update would take a whole GPU."""
    files = [f"model={given / 'model'}", f"data={given / 'data.jsonl'}"]
    chosen = config.load(TRLSettings, None, [*SMALL, *files, "prompts=64", "completions=4", "update.minibatches=2"])
    with TRLTrainer(chosen, tmp_path / "run") as trainer:
        options = trainer._options()
    assert (options["per_device_train_batch_size"], options["gradient_accumulation_steps"]) == (32, 4)
    assert options["steps_per_generation"] == 8  # of 32: all 256


@pytest.mark.parametrize(("kind", "other"), [("grpo", "ref_model"), ("sdpo", "teacher_model")])
def test_the_reference_of_all_weights_is_the_model_that_was_given(
    kind: str, other: str, given: Path, tmp_path: Path
) -> None:
    """A start whose adapter was merged is not what its base's name leads to."""
    files = [f"model={given / 'model'}", f"data={given / 'data.jsonl'}"]
    words = [*SMALL, *files, f"trainer={kind}", "policy.lora.rank=0", "kl.coefficient=0.1"]
    with TRLTrainer(config.load(TRLSettings, None, words), tmp_path / "run") as trainer:
        with torch.no_grad():
            trainer.policy.model.lm_head.weight += 1.0
        made = getattr(trainer._trainer(str(tmp_path)), other)
        assert made is not trainer.policy.model
        wanted = trainer.policy.model.state_dict()
        assert all(torch.equal(weight, wanted[name]) for name, weight in made.state_dict().items())

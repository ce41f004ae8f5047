"""The page for TRL runs as it stands; what TRL's loss gets is what our estimator says."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.optim.batch import collate
from text2grad.optim.estimators import find_estimator
from text2grad.optim.settings import AdvantageSettings
from text2grad.types import Rollout

PAGE = (Path(__file__).parents[2] / "docs" / "engines" / "trl.md").read_text(encoding="utf-8")
(SCRIPT,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = tiny_tokenizer()
    tiny_model(tokenizer).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    monkeypatch.chdir(tmp_path)


def logprobs(model: Any, prompt: list[int], ids: tuple[int, ...]) -> torch.Tensor:
    with torch.no_grad():
        logits = model(torch.tensor([prompt + list(ids)])).logits[0, len(prompt) - 1 : -1]
    found: torch.Tensor = logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0]
    return found


@pytest.mark.filterwarnings("ignore")
def test_the_page_trains_a_model() -> None:
    made: dict[str, Any] = {}
    exec(compile(SCRIPT, "trl.md", "exec"), made)
    trainer, tokenizer = made["trainer"], made["trainer"].processing_class
    before = tiny_model(tokenizer)
    change = {1.0: 0.0, -1.0: 0.0}
    rollout: Rollout
    for rollout in trainer.judged:
        ids, prompt = rollout.completion.token_ids, tokenizer(rollout.example.prompt)["input_ids"]
        moved = logprobs(trainer.model, prompt, ids) - logprobs(before, prompt, ids)
        verdicts = torch.tensor(rollout.verdicts)
        for verdict in change:
            change[verdict] += float(moved[verdicts == verdict].sum())
    assert change[1.0] > 1.0 and change[-1.0] < -1.0, change


def vowels(prompts: Any, completions: Sequence[str], **columns: Any) -> list[Any]:
    made: dict[str, Any] = {}
    exec(compile(SCRIPT.partition("trainer =")[0], "trl.md", "exec"), made)
    said = list(made["vowels"](prompts, completions, **columns))
    return [
        None if place == 1 else replace(each, score=len(text) / 10)
        for place, (each, text) in enumerate(zip(said, completions, strict=True))
    ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["anchored", "rloo", "local"])
def test_the_loss_gets_what_our_estimator_says(name: str) -> None:
    from datasets import Dataset
    from trl import GRPOConfig

    from text2grad.engines.trl import CritiqueGRPOTrainer

    class Watched(CritiqueGRPOTrainer):
        def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
            self.output = super()._generate_and_score_completions(inputs)
            self.seen = self.output["advantages"].clone()
            return self.output

    settings = AdvantageSettings(estimator=name)
    trainer = Watched(
        model="model",
        critic=vowels,
        advantage=settings,
        train_dataset=Dataset.from_dict({"prompt": ["Name a river.", "Name a harbour."]}),
        args=GRPOConfig(
            "out",
            per_device_train_batch_size=8,
            num_generations=4,
            max_completion_length=12,
            max_steps=1,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
        ),
    )
    trainer.train()
    rollouts = [
        replace(
            rollout, group=place // 4, index=place, prompt_ids=(1,), logprobs=(0.0,) * len(rollout.completion.token_ids)
        )
        for place, rollout in enumerate(trainer.judged)
    ]
    scored = [rollout for rollout in rollouts if rollout.scored]
    assert len(scored) == 7
    wanted_BT = find_estimator(name)(collate(scored), 0.0, settings).advantages_BT
    found_BT = trainer.seen[[rollout.index for rollout in scored]][:, : wanted_BT.shape[1]]
    torch.testing.assert_close(found_BT, wanted_BT)
    assert wanted_BT.abs().sum() > 0 and not trainer.seen[1].any()


def test_a_group_may_be_spread_over_processes(tmp_path: Path) -> None:
    """Four completions of one prompt, two in each process, of which each process has one that was not scored."""
    root = Path(__file__).parents[2]
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", f"{root}/tests/engines/two.py"]
    environment = os.environ | {"PYTHONPATH": f"{root}/src:{root}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *words, str(tmp_path)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    said = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    rollouts = [Rollout.from_json(row) for each in said for row in each["rollouts"]]
    assert [rollout.scored for rollout in rollouts] == [True, False, True, False]
    scored = [
        replace(each, prompt_ids=(1,), logprobs=(0.0,) * len(each.completion.token_ids))
        for each in rollouts
        if each.scored
    ]
    wanted = find_estimator("anchored")(collate(scored), 0.0, AdvantageSettings()).advantages_BT.tolist()
    found = [each["advantages"][0] for each in said]
    for row, own, rollout in zip(wanted, found, scored, strict=True):
        length = len(rollout.completion.token_ids)
        assert own[:length] == pytest.approx(row[:length], abs=1e-5) and any(row)


def test_what_does_not_go_together_is_refused() -> None:
    from text2grad.engines.trl import CritiqueGRPOTrainer
    from text2grad.errors import ConfigError

    with pytest.raises(ConfigError, match="only reward here"):
        CritiqueGRPOTrainer(model="model", critic=vowels, reward_funcs=[len])

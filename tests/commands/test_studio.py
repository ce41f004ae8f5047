"""`text2grad studio RUN | MODEL`: which settings a studio takes over."""

from pathlib import Path

from text2grad import config
from text2grad.commands.studio import _of
from text2grad.studio.settings import StudioSettings
from text2grad.training.demo import train_settings
from text2grad.training.settings import DemoSettings, TrainSettings


def settings_of(name: str) -> StudioSettings:
    return config.load(StudioSettings, None, _of(name))


def test_a_run_brings_its_task_and_its_kind_of_model(tmp_path: Path) -> None:
    run = TrainSettings(task="defacto", data="a=b.jsonl", columns={"prompt": "question"}, format="chat", seed=3)
    (tmp_path / "config.yaml").write_text(config.dump(run))
    found = settings_of(str(tmp_path))
    assert (found.model, found.task, found.data, found.columns) == (
        *(str(tmp_path), "defacto", "a=b.jsonl", {"prompt": "question"}),
    )
    assert (found.format, found.seed, found.policy.lora.rank, found.sampling.max_new_tokens) == ("chat", 3, 16, 64)


def test_a_run_of_the_demo_is_about_bulletins(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(config.dump(train_settings(DemoSettings(), "text2grad")))
    found = settings_of(str(tmp_path))
    assert (found.task, found.data, found.format, found.policy.lora.rank) == ("bulletin", "", "plain", 0)
    assert found.sampling.max_new_tokens == 40


def test_a_model_alone_brings_no_prompts() -> None:
    found = settings_of("smollm2-135m")
    assert (found.model, found.task, found.data) == ("smollm2-135m", "jsonl", "")

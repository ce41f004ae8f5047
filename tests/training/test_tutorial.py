"""docs/tutorial.md, run as it is written, on a tiny model: its commands work, and what it promises is there."""

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from text2grad import RewardModel
from text2grad.cli import main
from text2grad.models.load import load_model
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.runs import read_jsonl

DOCS = Path(__file__).parent.parent.parent / "docs"
TEXT = (DOCS / "tutorial.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(line) for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()
]


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder after every command, in the order of the page."""
    folder = tmp_path_factory.mktemp("newcomer")
    shutil.copytree(DOCS / "tutorial", folder / "docs" / "tutorial")
    tokenizer = tiny_tokenizer()
    tiny_model(tokenizer).save_pretrained(folder / "tiny")
    tokenizer.save_pretrained(folder / "tiny")
    before = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        torch.set_num_threads(1)
        for program, *words in COMMANDS:
            smaller = ["model=tiny" if word == "model=smollm2-135m" else word for word in words]
            if words[0] == "train":  # a judge this small is sure of nothing, which would end the run
                smaller.append("guard.nothing_learned=warn")
            assert program == "text2grad"
            assert main(smaller) == 0, words
    torch.set_num_threads(before)
    return folder


def rows(path: Path) -> list[dict[str, Any]]:
    return list(read_jsonl(path))


def test_it_is_three_commands_and_a_look() -> None:
    assert [words[1] for words in COMMANDS] == ["annotate", "reward-model", "train", "report", "report"]
    models = [word for words in COMMANDS for word in words if word.startswith("model=")]
    assert models == ["model=smollm2-135m"] * 2


def test_the_line_that_is_shown_is_in_the_file_and_lands_where_the_table_says(followed: Path) -> None:
    (shown,) = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    assert json.loads(shown) == rows(followed / "docs" / "tutorial" / "critiques.jsonl")[0]
    table = re.findall(r"^\| (\d+)–(\d+) \| (.+?) \| (\w+) \|$", TEXT, re.MULTILINE)
    first = rows(followed / "annotated.jsonl")[0]
    found = [(s["start"], s["end"], first["completion"][s["start"] : s["end"]], s["verdict"]) for s in first["spans"]]
    assert found == [(int(start), int(end), words, verdict) for start, end, words, verdict in table]
    assert len(found) == 2


def test_every_critique_lands_and_none_is_rejected(followed: Path) -> None:
    found = rows(followed / "annotated.jsonl")
    assert len(found) == 24 and all(row["spans"] and not row["missed"] for row in found)
    assert len({row["prompt"] for row in found}) == 8
    assert not (followed / "annotated.rejected.jsonl").exists() or not rows(followed / "annotated.rejected.jsonl")
    quoted = [(row["id"], said) for row in found for said in re.findall(r'"(.+?)"', row["critique"]["feedback"])]
    placed = {(row["id"], row["completion"][s["start"] : s["end"]]) for row in found for s in row["spans"]}
    assert set(quoted) == placed, "what people quoted, and nothing else"


def test_the_reward_model_is_a_folder_that_judges(followed: Path) -> None:
    run = followed / "runs" / "judge"
    metrics = rows(run / "metrics.jsonl")
    assert "held_out/poor_ap" in metrics[0] and "held_out/poor_ap" in metrics[-1]
    assert metrics[0]["data/held_out"] + metrics[0]["data/rows"] == 24 and metrics[0]["data/held_out"] % 3 == 0
    model, tokenizer = RewardModel.from_pretrained(run / "model")
    assert model.reader(tokenizer).encode("When is breakfast?", "At 7.").ids
    assert "verage precision on poor tokens" in (run / "report.html").read_text(encoding="utf-8")


def test_the_policy_is_trained_by_that_judge(followed: Path) -> None:
    run = followed / "runs" / "policy"
    metrics = rows(run / "metrics.jsonl")
    assert [row["update"] for row in metrics] == [1, 2, 3] and all("critic/unscored_frac" in row for row in metrics)
    assert "runs/judge/model" in json.loads((run / "run.json").read_text())["data"]
    assert rows(run / "rollouts.jsonl")
    load_model(str(run / "model"))
    assert (run / "report.html").is_file()

"""What the README says is so: its Python runs and gives what its comments say, its links lead somewhere."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from text2grad.cli import main
from text2grad.runs import read_jsonl

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
LOOP = re.findall(r"```py\n(.*?)```", README, re.DOTALL)[0]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]


@pytest.mark.usefixtures("smollm2_tokenizer")
@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_python_of_the_readme_gives_what_its_comments_say(block: str) -> None:
    names: dict[str, object] = {}
    checked = 0
    code = ""
    for line in block.splitlines():
        if line.startswith("# "):
            *before, last = code.rstrip().split("\n")
            exec("\n".join(before), names)
            assert repr(eval(last, names)) == line.removeprefix("# ")
            checked, code = checked + 1, ""
        else:
            code += line + "\n"
    assert checked and not code.strip(), "a block ends with what it gives"


def test_the_critic_of_the_readme_trains_as_the_readme_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Any, tokenizer: Any
) -> None:
    """Its command, with a tiny model, one update, and whatever that model writes."""
    (block,) = (block for block in BLOCKS if "def calm(" in block)
    (command,) = re.findall(r"`text2grad (train [^`]*calm:calm[^`]*)`", README)
    (line,) = re.findall(r'`(\{"prompt": .*?\})`', README)
    model.save_pretrained(tmp_path / "start")
    tokenizer.save_pretrained(tmp_path / "start")
    (tmp_path / "calm.py").write_text(block, encoding="utf-8")
    (tmp_path / "prompts.jsonl").write_text(f"{line}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "calm", raising=False)
    small = ["updates=1", "prompts=2", "device=cpu", "guard.nothing_learned=warn", "log.rollouts=16"]
    assert main([*command.replace("smollm2-135m", "start").split(), *small]) == 0
    del sys.modules["calm"]
    rollouts = read_jsonl(tmp_path / "runs" / "calm" / "rollouts.jsonl")
    rows = [row for row in rollouts if row["completion"]["text"].strip()]
    assert rows
    for row in rows:
        shouted = len(re.findall(r"\b[A-Z]{2,}\b", row["completion"]["text"]))
        assert sum(row["token_rewards"]) == pytest.approx(-1.0 if shouted else 0.0)
        assert sum(span["verdict"] == "poor" for span in row["alignment"]["spans"]) == shouted


def test_the_loop_of_the_readme_is_the_loop() -> None:
    """The README's verbs are those of `Trainer.train`, in the same order."""
    verbs = ["steps", "sample_and_judge", "collate", "estimator", "update", "evaluate", "log"]
    assert re.findall(r"\b(\w+)\(", LOOP) == verbs
    code = (ROOT / "src" / "text2grad" / "training" / "rl.py").read_text(encoding="utf-8")
    calls = [
        "in run.steps(",
        "self.sample_and_judge(",
        "self.collate(",
        "self.advantages(",
        "self.update(step, batch, advantages",
        "measured, held_out = self.evaluate(step)",
        "run.log(metrics |",
    ]
    places = [code.index(call) for call in calls]
    assert places == sorted(places)


def test_the_first_screen_has_no_number() -> None:
    """What it is, two commands, the loop, a critic, where to go: then installation, use, and only then numbers."""
    first, rest = README.split("## Install", 1)
    assert "## What was measured" in rest
    prose = re.sub(r"```.*?```|\[[^]]*\]\([^)]*\)", "", first, flags=re.DOTALL)
    assert not re.search(r"\d+(\.\d+)? ?(%|times|seconds|updates)", prose)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []

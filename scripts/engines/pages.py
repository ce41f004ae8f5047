"""What the checks of engines share: the code of the pages, a tiny model, and what a step did to marked tokens."""

import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

PAGES = Path(__file__).parents[2] / "docs" / "engines"


def block(page: str, language: str, which: int = 0) -> str:
    """A code block of a page."""
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    return str(re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)[which])


def overrides(page: str, which: int) -> list[str]:
    """The `a.b=c` words of a command on a page."""
    return [word for word in shlex.split(block(page, "sh", which).replace("\\\n", " ")) if re.match(r"[a-z_.]+=", word)]


def make_model(folder: Path) -> None:
    from text2grad.models.tiny import tiny_model, tiny_tokenizer

    tokenizer = tiny_tokenizer()
    tiny_model(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def logprobs(model: Any, prompt: Sequence[int], completion: Sequence[int]) -> Any:
    """Of the completion's ids, with their gradient."""
    import torch

    logits = model(torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1).gather(1, torch.tensor(completion)[:, None])[:, 0]


def judge_change(marked: Iterable[tuple[float, float]]) -> None:
    """(sign of a token's advantage, change of its log-prob) of many tokens; fails where a step went the wrong way."""
    pairs = list(marked)
    for sign, name in ((1, "praised"), (-1, "blamed")):
        changes = [change for each, change in pairs if each == sign]
        mean = sum(changes) / len(changes)
        print(f"{len(changes)} {name} tokens: log-prob {mean:+.3f} on average")
        assert mean * sign > 0, f"{name} tokens went the wrong way"

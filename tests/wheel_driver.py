"""Run by the Python of a bare installation (tests/test_wheel.py): what works without torch and transformers."""

import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import text2grad
from text2grad.feedback.critics.reference import ReferenceCritic
from text2grad.models.offsets import completion_of
from text2grad.runs import RunFolder
from text2grad.types import Completion, Critique, Example, Quote, Rollout

ABSENT = ("torch", "transformers", "accelerate", "peft", "gguf", "safetensors", "tokenizers", "huggingface_hub")


class ByteTokens:
    """The least that exact offsets need to know of a tokenizer: byte-level BPE, four tokens and an end."""

    all_special_ids = (4,)

    def __len__(self) -> int:
        return 5

    @property
    def backend_tokenizer(self) -> "ByteTokens":
        return self

    def to_str(self) -> str:
        return json.dumps({"decoder": {"type": "ByteLevel"}})

    def get_vocab(self, with_added_tokens: bool) -> dict[str, int]:
        assert with_added_tokens
        # The second and third hold two bytes each of the same character, 🦩.
        return {"a": 0, "ĠðŁ": 1, "¦©": 2, "Ġbird": 3, "<end>": 4}

    def get_added_tokens_decoder(self) -> dict[int, "ByteTokens"]:
        return {4: self}

    special = True


def critic(prompts: Sequence[Any], completions: Sequence[str], **columns: Sequence[Any]) -> list[Critique | None]:
    assert len(prompts) == len(completions) and not columns
    return [
        Critique("The flamingo is right.", quotes=(Quote("🦩", "good"),)) if "🦩" in completion else None
        for completion in completions
    ]


def main(folder: Path) -> None:
    for package in ABSENT:
        assert importlib.util.find_spec(package) is None, f"{package} is installed"
    located = text2grad.align("Seven ships left the harbour.", 'There were nine: "Seven ships" is wrong.')
    assert located.spans[0].slice("Seven ships left the harbour.") == "Seven ships"
    (critique,) = ReferenceCritic()(["Where?"], ["By the quay."], reference=["By the quay."])
    assert critique is not None and critique.score == 1
    completion = completion_of(ByteTokens(), [0, 1, 2, 3, 4])
    assert completion == Completion("a 🦩 bird", (0, 1, 2, 3, 4), ((0, 1), (1, 3), (2, 3), (3, 8), (8, 8)))
    examples = [Example("one", "Name a bird."), Example("two", "Name a bird.")]
    silent = Completion("a", (0,), ((0, 1),))
    rollouts = text2grad.judge(examples, [completion, silent], critic, prompt_ids=[[3], [3]])
    assert rollouts[0].token_rewards == (0.0, 0.0, 1.0, 0.0, 0.0), rollouts[0]
    assert not rollouts[1].scored and rollouts[1].token_rewards is None
    assert Rollout.from_json(rollouts[0].to_json()) == rollouts[0]
    with RunFolder(folder, text2grad.TrainSettings(data="birds.jsonl")) as run:
        run.metrics.append([{"update": 1, "score/mean": 1.0}])
        run.rollouts.append({"update": 1, "held_out": False} | rollout.to_json() for rollout in rollouts)
    try:
        _ = text2grad.Trainer
    except ImportError as problem:
        assert "text2grad.Trainer needs PyTorch and transformers: pip install 'text2grad[train]'" in str(problem)
    else:
        raise AssertionError("Trainer came without torch")
    assert not {*ABSENT} & set(sys.modules)
    print("used")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""The benchmark of the reward model, briefly: that the work is what it says, not how long it takes."""

import json
from pathlib import Path

import pytest
import torch
from benchmarks.reward_model import (
    HeadJudge,
    agreement,
    assert_alone,
    assert_opinions,
    call_a_third,
    give_opinions,
    main,
    texts,
)

from text2grad.models.reward.model import RewardModel
from text2grad.models.settings import LoraSettings, PolicySettings, Template
from text2grad.models.tiny import tiny_model, tiny_tokenizer


def test_a_head_without_opinions_is_found_out_and_a_random_one_has_some() -> None:
    tokenizer = tiny_tokenizer()
    torch.manual_seed(0)
    template = Template(max_tokens=512, critique_tokens=8)
    model = RewardModel(tiny_model(tokenizer), PolicySettings(lora=LoraSettings(rank=0)), template)
    model.requires_grad_(False).eval()
    items = texts(tokenizer, 6, 12, 60)
    model.span_head.linear.weight.fill_(1e-6)
    judge = HeadJudge(model, tokenizer, items, 512)
    with pytest.raises(AssertionError, match="probabilities differ"):
        assert_opinions(judge, judge())
    give_opinions(model, tokenizer, items, 512)
    call_a_third(judge)
    found = judge()
    called, quotes = assert_opinions(judge, found)
    assert 0.2 < called < 0.45 and 1 < quotes < 12
    assert [one.critique for one in found] == judge.critic(*zip(*items, strict=True)), "what a user has"
    assert len({len(one.encoded.ids) for one in found}) > 1  # something to pad
    assert assert_alone(judge, found, 1e-3) < 1e-3
    assert set(judge.parts) == {"tokenizing", "the pass", "critiques"}


def test_texts_have_as_many_tokens_as_they_should() -> None:
    tokenizer = tiny_tokenizer()
    for prompt, completion in texts(tokenizer, 20, 40, 24):
        assert 18 <= len(tokenizer(completion).input_ids) <= 30
        assert 40 <= len(tokenizer(prompt).input_ids) <= 44


def test_all_ways_do_equal_work(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = tiny_tokenizer()
    monkeypatch.setattr("benchmarks.reward_model.loaded", lambda _: (tiny_model(tokenizer), tokenizer))
    few = {"completions": 3, "prompt-tokens": 12, "completion-tokens": 24, "critique-tokens": 5, "repeats": 2}
    words = [f"--{name}={number}" for name, number in few.items()]
    main([*words, "--device=cpu", "--dtype=float32", "--model=some/where/small"])
    said = capsys.readouterr().out
    rows = [line for line in said.splitlines() if "completions/s" in line]
    assert [row[:14].strip() for row in rows] == ["span head", "fast sampler", "model.generate"]
    assert all(len(row.split("all runs: ")[1].split()) == 3 for row in rows)  # two times and their unit
    assert "3 completions; prompts of 12 tokens" in said and "critiques of 5;" in said and "some/where" not in said
    assert said.splitlines()[-1].startswith("speed_generate=")


def test_agreement_with_people_by_seed_and_on_average(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def wrote(way: str, *spans: float) -> None:
        for seed, f1 in enumerate(spans):
            run = {name: {"poor": {"f1": f1 if name == "spans" else 0.5}} for name in ("content", "spans", "touched")}
            (tmp_path / f"defacto-{way}-{seed}.json").write_text(json.dumps(run))

    assert agreement(tmp_path) == " f1_head=not measured f1_written=not measured"
    wrote("head", 0.25, 0.75)
    assert agreement(tmp_path) == " f1_head=0.500 f1_written=not measured"
    wrote("written", 0.25)
    capsys.readouterr()
    assert agreement(tmp_path) == " f1_head=0.500 f1_written=0.250"
    said = capsys.readouterr().out
    assert "spans: span head 0.250 0.750, mean 0.500; written critiques 0.250, mean 0.250" in said
    assert "tokens: span head not measured; written critiques not measured" in said
    wrote("written", 0.75)
    with pytest.raises(AssertionError, match="no worse with people"):
        agreement(tmp_path)

"""Learning from pairs: what the loss is, where pairs come from, and that a kill changes nothing."""

import copy
import json
import math
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional
from transformers import AutoModelForCausalLM

from tests.training.trainings import Driver, Fixed, assert_same, metrics_of, rows_of, said, vowels, weights_of
from text2grad import config
from text2grad.cli import main
from text2grad.errors import ConfigError, InvalidData, RunError
from text2grad.feedback.critics.learned import CARD
from text2grad.models.policy import Policy
from text2grad.models.sampling import Sampled
from text2grad.models.settings import LoraSettings, PolicySettings
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.optim.batch import collate_ids
from text2grad.optim.losses import find_preference_loss
from text2grad.optim.update import preference_update
from text2grad.runs import encode_row
from text2grad.training import setup
from text2grad.training.preference import NO_PAIR, DPOTrainer, best_and_worst, chosen_and_rejected
from text2grad.training.settings import DPOSettings
from text2grad.training.setup import Clock, critic_digests
from text2grad.types import Completion, Critique, Example, Rollout

SMALL = [
    "updates=5",
    "evaluate_every=2",
    "checkpoint_every=2",
    "completions=3",
    "sampling.max_new_tokens=8",
    "update.batch=3",
    "update.micro_batch=3",
    "update.learning_rate=1e-2",
    "policy.lora.rank=2",
    "device=cpu",
]
KILLED = -signal.SIGKILL


def pair(number: int, name: str = "train") -> Example:
    columns = {"chosen": "The Mura." * (1 + number % 2), "rejected": "No idea at all"}
    return Example(f"{name}-{number}", f"Which river runs through valley {number}?", columns=columns)


PAIRS, HELD_OUT = [pair(number) for number in range(7)], [pair(number, "held") for number in range(20, 23)]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def trainer(folder: Path, *settings: str, **more: Any) -> DPOTrainer:
    """A run of the tiny model in this process."""
    tokenizer = more.pop("tokenizer", None) or tiny_tokenizer()
    more = {"examples": PAIRS, "model": tiny_model(tokenizer, hidden_size=16, layers=1), **more}
    return DPOTrainer(config.load(DPOSettings, None, [*SMALL, *settings]), folder, tokenizer=tokenizer, **more)


def silent(_prompts: Any, completions: Sequence[str], **_: Any) -> list[Critique | None]:
    """The same score for everything."""
    return [Critique("", score=0.5) for _ in completions]


# ------------------------------------------------------------------------------------------------------ the loss


@pytest.mark.parametrize(("loss", "expected"), [("dpo", math.log(2)), ("ipo", 25.0)])
def test_before_the_first_update_no_pair_has_a_margin(tmp_path: Path, loss: str, expected: float) -> None:
    with trainer(tmp_path / "run", f"loss={loss}") as one:
        for example in one.pairs:
            one.held_pairs = [example]
            metrics, rollouts = one.evaluate(0)
            assert metrics["held_out/loss"] == pytest.approx(expected, rel=1e-4) and rollouts == []


@pytest.mark.parametrize("rank", [0, 4])
def test_the_chosen_completion_becomes_likelier_than_the_rejected_one(tmp_path: Path, rank: int) -> None:
    outcome = trainer(tmp_path / "run", "updates=20", f"policy.lora.rank={rank}", held_out=HELD_OUT).train()
    assert (outcome.updates, outcome.status, outcome.model) == (20, 0, tmp_path / "run" / "model")
    first, second, *_, last = metrics_of(tmp_path / "run")
    assert first["held_out/loss"] == pytest.approx(math.log(2), rel=1e-4)
    assert second["loss/mean"] == pytest.approx(math.log(2), rel=1e-4)
    assert last["held_out/accuracy"] == last["preference/accuracy"] == 1
    assert last["held_out/loss"] < 0.9 * first["held_out/loss"] and last["preference/margin"] > 1

    tokenizer = tiny_tokenizer()
    before = tiny_model(tokenizer, hidden_size=16, layers=1)
    after = AutoModelForCausalLM.from_pretrained(outcome.model)
    with trainer(tmp_path / "encoded", examples=HELD_OUT) as one:
        pairs = one.pairs
    for chosen, rejected in pairs:
        was, now = ([plain_sum(model, row) for row in (chosen, rejected)] for model in (before, after))
        assert now[0] - now[1] > was[0] - was[1] + 1


def plain_sum(model: Any, row: Any) -> torch.Tensor:
    """The log-prob of a completion, by transformers alone."""
    logits = model(input_ids=torch.tensor([row.prompt + row.completion])).logits[0, len(row.prompt) - 1 : -1]
    logprobs: torch.Tensor = logits.log_softmax(-1).gather(1, torch.tensor(row.completion)[:, None]).sum()
    return logprobs


class Gradients(torch.optim.SGD):
    """Takes no step, and keeps the gradients."""

    def step(self, *_: Any) -> None:  # type: ignore[override]
        self.kept = [weight.grad.clone() for group in self.param_groups for weight in group["params"]]


@pytest.mark.parametrize("micro_batch", [1, 2, 3, 4, 16])
@pytest.mark.parametrize("loss", ["dpo", "ipo"])
def test_gradients_are_those_of_the_loss_as_it_is_written_down(tmp_path: Path, loss: str, micro_batch: int) -> None:
    tokenizer, beta = tiny_tokenizer(), 0.3
    model = tiny_model(tokenizer, hidden_size=16, layers=1)
    reference = copy.deepcopy(model)
    with torch.no_grad():
        for place, weight in enumerate(model.parameters()):
            weight += 0.02 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(place))
    with trainer(tmp_path / "run", examples=PAIRS[:5]) as one:
        pairs = one.pairs
    margins = []
    for chosen, rejected in pairs:
        before = plain_sum(reference, chosen) - plain_sum(reference, rejected)
        margins.append(plain_sum(model, chosen) - plain_sum(model, rejected) - before.detach())
    margin_P = torch.stack(margins)
    written = {"dpo": -functional.logsigmoid(beta * margin_P), "ipo": (margin_P - 1 / (2 * beta)) ** 2}[loss].mean()
    torch.autograd.backward(written)
    expected = {name: weight.grad for name, weight in model.named_parameters()}

    policy = Policy(copy.deepcopy(model), PolicySettings(lora=LoraSettings(rank=0)), value_head=False)
    kept = Policy(reference, PolicySettings(lora=LoraSettings(rank=0)), value_head=False)
    rows = [row for pair in pairs for row in pair]
    batch = collate_ids([row.prompt for row in rows], [row.completion for row in rows])
    batch = replace(batch, reference_BT=kept.logprobs_and_values(batch, 4)[0])
    policy.zero_grad(set_to_none=True)
    optimizer = Gradients(policy.parameters(), lr=1.0)
    metrics = preference_update(
        policy,
        optimizer,
        batch,
        find_preference_loss(loss),
        beta=beta,
        micro_batch=micro_batch,
        max_grad_norm=1e9,
    )
    names = [name.removeprefix("backbone.model.") for name, _ in policy.named_parameters()]
    assert set(names) == set(expected)
    for name, gradient in zip(names, optimizer.kept, strict=True):
        torch.testing.assert_close(gradient, expected[name], atol=2e-5, rtol=2e-4)
    assert metrics["loss/mean"] == pytest.approx(written.item(), rel=1e-4)
    assert metrics["preference/margin"] == pytest.approx(margin_P.mean().item(), abs=1e-4)
    assert metrics["preference/accuracy"] == (margin_P > 0).float().mean().item()
    assert metrics["update/pairs"] == 5


# --------------------------------------------------------------------------------------------- pairs from samples


@pytest.mark.parametrize(("pairs", "temperature"), [("file", 1.0), ("samples", 0.5)])
def test_given_pairs_are_compared_under_the_plain_model(tmp_path: Path, pairs: str, temperature: float) -> None:
    with trainer(tmp_path / "run", f"pairs={pairs}", "sampling.temperature=0.5", critic=silent) as one:
        assert one.policy.temperature == temperature


def test_no_more_held_out_examples_are_completed_than_asked_for(tmp_path: Path) -> None:
    with trainer(tmp_path / "run", "pairs=samples", "evaluate_examples=2", critic=silent, held_out=HELD_OUT) as one:
        assert one.evaluator is not None and one.evaluator.examples == HELD_OUT[:2]
        assert one._counts()["data/held_out"] == 2


def rollout(index: int, score: float | None) -> Rollout:
    completion = Completion("x", (index,), ((0, 1),))
    return Rollout(Example("a", "?"), completion, prompt_ids=(9,), index=index, group=index // 3, score=score)


def test_the_best_and_the_worst_of_a_prompt_make_its_pair() -> None:
    scores = [0.1, 0.9, -1.0, 0.5, 0.5, 0.5, 0.2, None, 0.7, None, 0.3, None, 1.0, 0.0, 1.0]
    pairs = best_and_worst([rollout(index, score) for index, score in enumerate(scores)])
    # Of the second prompt all are equal, of the fourth one alone has a score, of the fifth two are the best.
    assert [(chosen.completion, rejected.completion) for chosen, rejected in pairs] == [
        ([1], [2]),
        ([8], [6]),
        ([12], [13]),
    ]
    assert {tuple(row.prompt) for pair in pairs for row in pair} == {(9,)}


def test_pairs_come_from_samples_and_scores_rise(tmp_path: Path) -> None:
    more = {"critic": vowels, "examples": [Example(e.id, e.prompt) for e in PAIRS], "held_out": HELD_OUT}
    outcome = trainer(tmp_path / "run", "pairs=samples", "updates=8", "update.batch=6", "beta=0.05", **more).train()
    assert outcome.status == 0
    first, *rows = metrics_of(tmp_path / "run")
    assert rows[-1]["held_out/score"] > first["held_out/score"]
    assert all(0 < row["pairs/frac"] <= 1 and row["update/pairs"] == 6 * row["pairs/frac"] for row in rows)
    assert [row["update"] for row in rows if "held_out/score" in row] == [2, 4, 6, 8]
    logged = rows_of(tmp_path / "run")
    assert {row["update"] for row in logged} == set(range(1, 9)) and all(row["score"] is not None for row in logged)
    declared = json.loads((tmp_path / "run" / "run.json").read_text())["metrics"]
    assert {key for row in (first, *rows) for key in row} - declared.keys() <= {
        "update",
        "update/pairs",
        "data/examples",
        "data/held_out",
        "data/skipped",
    }


def test_the_pairs_of_an_update_are_what_was_sampled(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    texts = [tuple(tokenizer(text).input_ids) for text in ("bcd", "aei", "abc")]
    with trainer(tmp_path / "run", "pairs=samples", critic=vowels, tokenizer=tokenizer) as one:
        one.writer.sampler = Fixed(*(Sampled(ids, (-1.0,) * len(ids), None, truncated=False) for ids in texts))
        pairs, metrics, logged = one.next_pairs(1, Clock())
    assert [(tuple(chosen.completion), tuple(rejected.completion)) for chosen, rejected in pairs] == [
        (texts[1], texts[0])
    ] * 3
    assert metrics["pairs/frac"] == 1 and len(logged) == 9


def test_an_update_without_pairs_changes_nothing(tmp_path: Path) -> None:
    one = trainer(tmp_path / "run", "pairs=samples", "updates=3", critic=silent)
    before = weights_of(one)
    assert one.train().status == 0
    assert all(torch.equal(weight, before[name]) for name, weight in weights_of(one).items())
    rows = metrics_of(tmp_path / "run")[1:]
    assert [(row["pairs/frac"], row["update/pairs"]) for row in rows] == [(0, 0)] * 3
    assert not any("loss/mean" in row or "update/skipped" in row for row in rows)
    # Said once.
    assert [row.get("warnings") for row in rows] == [[NO_PAIR.format(1)], None, None]


def test_a_reward_model_that_changed_is_refused(tmp_path: Path) -> None:
    critic = tmp_path / "critic"
    critic.mkdir()
    (critic / CARD).write_text("{}")
    before = critic_digests(f"first({critic}, reference)", None, vowels, "reference")
    assert list(before) == [str(critic)]
    (critic / "weights").write_text("others")
    assert critic_digests(str(critic)) != before


def test_a_reward_model_is_of_the_runs_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    critic = tmp_path / "critic"
    critic.mkdir()
    (critic / CARD).write_text("{}")
    monkeypatch.setattr(setup, "open_critic", lambda *_: vowels)
    words = ["pairs=samples", f"critic={critic}", "updates=2"]
    assert trainer(tmp_path / "run", *words).train().status == 0
    assert str(critic) in json.loads((tmp_path / "run" / "run.json").read_text())["data"]
    (critic / "weights").write_text("others")
    with pytest.raises(RunError, match=str(critic)):
        trainer(tmp_path / "run", *words)


# ---------------------------------------------------------------------------------------------- resume, and ends

KINDS = {
    "file": ["policy.lora.dropout=0.2", "update.schedule=cosine"],
    "file, all weights": ["policy.lora.rank=0", "loss=ipo"],
    "samples": ["pairs=samples"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_changes_nothing(driver: Driver, tmp_path: Path, kind: str) -> None:
    more: dict[str, Any] = {"bare": True, "stage": "dpo"}
    settings, run = [*SMALL, *KINDS[kind]], tmp_path / "run"
    assert driver(tmp_path / "whole", settings, **more) == 0, said(tmp_path / "whole")
    sampled = [["critic", 2], ["buffer", 1]] if kind == "samples" else []
    points = [["step", 2], ["log", 2], *sampled, ["save", 1], ["checkpoint", 1], ["step", 3], ["model", 1]]
    for die in points:
        assert driver(run, settings, die=die, **more) == KILLED, (die, said(run))
    assert driver(run, settings, **more) == 0, said(run)
    assert_same(run, tmp_path / "whole")


def test_it_stops_when_the_held_out_loss_rises(tmp_path: Path) -> None:
    contrary = [
        Example("h", e.prompt, columns={"chosen": e.columns["rejected"], "rejected": e.columns["chosen"]})
        for e in PAIRS[:1]
    ]
    outcome = trainer(tmp_path / "run", "updates=40", "patience=2", held_out=contrary).train()
    assert (outcome.updates, outcome.status) == (4, 0)


# ------------------------------------------------------------------------------------------------- what is refused


def test_a_pair_may_be_messages() -> None:
    turns: dict[str, Any] = {"chosen": [{"role": "assistant", "content": "Yes."}], "rejected": "No."}
    assert chosen_and_rejected(Example("a", "Well?", columns=turns)) == ("Yes.", "No.")


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"better": "a", "worse": "b"}, r"'a' should have a text in `chosen`; its columns are: `better`, `worse`\."),
        ({"chosen": "a"}, r"a text in `rejected`; its columns are: `chosen`\. .*pairs=samples critic=NAME"),
        ({"chosen": " ", "rejected": "b"}, "a text in `chosen`"),
        ({"chosen": "b", "rejected": "b"}, "'a' has the same text in `chosen` and `rejected`"),
        ({"chosen": [], "rejected": "b"}, "a text in `chosen`"),
        ({}, "its columns are: `reference`"),
    ],
)
def test_a_pair_that_is_none_names_the_columns_that_are_there(
    tmp_path: Path, columns: dict[str, Any], words: str
) -> None:
    example = Example("a", "Well?", None if columns else "Yes.", columns=columns)
    with pytest.raises(InvalidData, match=words):
        trainer(tmp_path / "run", examples=[example])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["loss=dop"], "loss: there is no 'dop'; did you mean `dpo`"),
        (["pairs=samples", "completions=1"], "wants completions of at least 2, got 1"),
        (["pairs=flie"], "file"),
        (["task=jsno"], "task: there is no 'jsno'; did you mean `jsonl`"),
    ],
)
def test_settings_that_cannot_be_are_told_before_a_folder_is_made(
    tmp_path: Path, settings: list[str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        trainer(tmp_path / "run", *settings)
    assert not (tmp_path / "run").exists()


def test_long_pairs_are_counted_and_never_cut(tmp_path: Path) -> None:
    long = Example("long", "Well?", columns={"chosen": "word " * 60, "rejected": "No."})
    with pytest.raises(InvalidData, match=r"'long' has \d+ tokens and the limit is 60"):
        trainer(tmp_path / "run", "max_tokens=60", examples=[*PAIRS, long])
    one = trainer(tmp_path / "run", "max_tokens=60", "too_long=skip", "updates=1", examples=[*PAIRS, long])
    assert len(one.pairs) == 7 and one.train().status == 0
    assert metrics_of(tmp_path / "run")[0]["data/skipped"] == 1
    with pytest.raises(InvalidData, match="all 1 examples are over the limit of 60 tokens"):
        trainer(tmp_path / "none", "max_tokens=60", "too_long=skip", examples=[long])


def test_from_the_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = tiny_tokenizer()
    tiny_model(tokenizer, hidden_size=16, layers=1).save_pretrained(tmp_path / "tiny")
    tokenizer.save_pretrained(tmp_path / "tiny")
    data, run = tmp_path / "data.jsonl", tmp_path / "run"
    data.write_bytes(b"".join(encode_row({"prompt": e.prompt, **e.columns}) for e in PAIRS))
    words = ["dpo", str(run), f"data={data}", f"model={tmp_path / 'tiny'}", "update.batch=4", "device=cpu"]
    assert main(words) == 0
    assert [row["update"] for row in metrics_of(run)] == [0, 1, 2]
    assert list(json.loads((run / "run.json").read_text())["data"]) == [str(data)]
    assert "dpo 2/2  loss" in capsys.readouterr().err
    assert main([*words, "seed=1"]) == 2
    assert "seed: 0 there, 1 now" in capsys.readouterr().err
    assert main(["dpo", str(run)]) == 2
    assert "data=FILE.jsonl with prompt, chosen and rejected" in capsys.readouterr().err

"""The training loop on a tiny model: what is learned from, what is not, where credit goes."""

import itertools
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.training.trainings import EXAMPLES, HELD_OUT, Fixed, metrics_of, rows_of, trainer, vowels, weights_of
from text2grad.errors import CriticError, InvalidData, RunError
from text2grad.models.load import load_model
from text2grad.models.sampling import Sampled
from text2grad.models.tiny import tiny_model
from text2grad.optim.update import PendingUpdate, begin_update
from text2grad.runs import read_jsonl
from text2grad.tasks.task import Metric, mean_of
from text2grad.training import locality, rl
from text2grad.training.rl import Trainer
from text2grad.types import Critique, Example, Message, Quote


def unscored(_prompts: Any, completions: Sequence[str], **_: Any) -> list[Critique | None]:
    return [None] * len(completions)


def changed(one: Trainer, before: dict[str, Any]) -> set[str]:
    return {name for name, weight in weights_of(one).items() if not torch.equal(weight, before[name])}


@pytest.mark.parametrize(
    ("estimator", "rule", "placement"),
    [
        *itertools.product(("gae", "rloo", "grpo", "span_rloo", "local"), ("return_equivalent", "paper"), ("last",)),
        ("gae", "return_equivalent", "even"),
    ],
)
def test_every_estimator_and_scoring_learns(tmp_path: Path, estimator: str, rule: str, placement: str) -> None:
    one = trainer(
        tmp_path / "run",
        f"advantage.estimator={estimator}",
        f"scoring.rule={rule}",
        f"scoring.placement={placement}",
        "updates=1",
    )
    before = weights_of(one)
    assert one.train().status == 0
    assert any("lora" in name for name in changed(one, before))
    (row,) = metrics_of(tmp_path / "run")
    assert all(math.isfinite(value) for value in row.values())
    assert ("loss/value" in row and row["loss/value"] > 0) == (estimator == "gae")


def test_the_scalar_switch_changes_only_where_rewards_lie(tmp_path: Path) -> None:
    for reward in ("span", "scalar"):
        trainer(tmp_path / reward, f"reward={reward}", "updates=1", "scoring.scale=0.1").train()
    span, scalar = rows_of(tmp_path / "span"), rows_of(tmp_path / "scalar")
    assert len(span) == 6
    for one, other in zip(span, scalar, strict=True):
        for same in ("completion", "critique", "alignment", "logprobs"):
            assert one[same] == other[same]
        assert sum(one["token_rewards"]) == pytest.approx(sum(other["token_rewards"]))
        assert not any(other["token_rewards"][:-1])
    assert any(any(one["token_rewards"][:-1]) for one in span)
    first, second = metrics_of(tmp_path / "span")[0], metrics_of(tmp_path / "scalar")[0]
    assert first["reward/mean"] == pytest.approx(second["reward/mean"])
    assert first["score/mean"] == second["score/mean"]


def test_local_credit_lowers_poor_spans_and_raises_good_ones(tmp_path: Path) -> None:
    settings = ["advantage.estimator=local", "scoring.rule=paper", "kl.coefficient=0", "prompts=8", "updates=4"]
    settings += ["update.epochs=1", "update.minibatches=1", "update.learning_rate=1e-3"]
    trainer(tmp_path / "run", *settings, "policy.lora.rank=0").train()
    rows = metrics_of(tmp_path / "run")
    assert len(rows) == 4
    for row in rows:
        assert row["locality/poor"] < 0 < row["locality/good"]
    for row in rows_of(tmp_path / "run"):
        pairs = list(zip(row["token_rewards"], row["advantages"], strict=True))
        assert all(advantage == 0 for reward, advantage in pairs if reward == 0)
        assert all(reward * advantage > 0 for reward, advantage in pairs if reward != 0)


@pytest.mark.parametrize("rule", ["return_equivalent", "paper"])
@pytest.mark.parametrize("kind", ["score", "quality", "verdicts"])
def test_local_credit_is_exactly_zero_where_no_verdict_is(tmp_path: Path, kind: str, rule: str) -> None:
    def third_letter(_prompts: Any, completions: Sequence[str], **_: Any) -> list[Critique | None]:
        return [
            Critique(
                "",
                quotes=(Quote(text[2:5], "poor", start=2),) if len(text) > 6 else (),
                score=float(len(text)) if kind == "score" else None,
                quality=((0, 0.0), (3, 0.5), (len(text), 1.0)) if kind == "quality" and len(text) > 3 else None,
            )
            for text in completions
        ]

    settings = ["advantage.estimator=local", "kl.coefficient=0", f"scoring.rule={rule}", "sampling.max_new_tokens=12"]
    trainer(tmp_path / "run", *settings, "updates=2", critic=third_letter).train()
    unlabelled = 0
    for row in rows_of(tmp_path / "run"):
        spans = [(span["start"], span["end"]) for span in row["alignment"]["spans"]]
        for (start, end), advantage in zip(row["completion"]["offsets"], row["advantages"], strict=True):
            if not any(start < after and end > before for before, after in spans):
                unlabelled += 1
                assert advantage == 0
    assert unlabelled > 20


def test_local_credit_charges_what_is_missing_to_the_decision_to_stop(tmp_path: Path, tokenizer: Any) -> None:
    def incomplete(_prompts: Any, completions: Sequence[str], **_: Any) -> list[Critique | None]:
        return [Critique("", omissions=("where it was",)) for _ in completions]

    one = trainer(
        tmp_path / "run",
        "advantage.estimator=local",
        "kl.coefficient=0",
        "updates=1",
        critic=incomplete,
        tokenizer=tokenizer,
    )
    word = tokenizer("cranes").input_ids[0]
    ended = Sampled((word, tokenizer.eos_token_id), (-2.0, -2.0), None, truncated=False)
    cut = Sampled((word, word), (-2.0, -2.0), None, truncated=True)
    one.writer.sampler = Fixed(ended, cut)
    one.train()
    for row in rows_of(tmp_path / "run"):
        assert row["token_rewards"] == [0, -1]
        first, last = row["advantages"]
        assert first == 0 and (last == 0 if row["truncated"] else last < 0)


def test_what_is_not_scored_is_counted_and_not_learned_from(tmp_path: Path) -> None:
    def every_other(prompts: Any, completions: Sequence[str], **columns: Any) -> list[Critique | None]:
        return [said if place % 2 else None for place, said in enumerate(vowels(prompts, completions, **columns))]

    trainer(tmp_path / "run", "updates=1", critic=every_other).train()
    (row,) = metrics_of(tmp_path / "run")
    assert row["critic/unscored_frac"] == 0.5
    rows = rows_of(tmp_path / "run")
    assert sorted(row["index"] for row in rows if row["critique"] is not None) == [1, 3, 5]
    assert [row["index"] for row in rows if row["critique"] is None] == [0, 2, 4]
    assert all("advantages" not in row or row["advantages"] is None for row in rows if row["critique"] is None)


def test_a_completion_alone_in_its_group_has_no_baseline(tmp_path: Path) -> None:
    def every_other(prompts: Any, completions: Sequence[str], **columns: Any) -> list[Critique | None]:
        return [said if place % 2 else None for place, said in enumerate(vowels(prompts, completions, **columns))]

    one = trainer(tmp_path / "run", "updates=1", "advantage.estimator=span_rloo", critic=every_other)
    before = weights_of(one)
    one.train()
    assert metrics_of(tmp_path / "run")[0]["critic/without_baseline_frac"] == 1
    assert changed(one, before) == set()


def test_an_update_without_a_score_changes_no_weight(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = itertools.count(1)

    def second_time_silent(prompts: Any, completions: Sequence[str], **columns: Any) -> list[Critique | None]:
        return (unscored if next(calls) == 2 else vowels)(prompts, completions, **columns)

    seen: list[dict[str, Any]] = []
    one = trainer(
        tmp_path / "run", "updates=3", critic=second_time_silent, callbacks=[lambda it, _: seen.append(weights_of(it))]
    )
    assert one.train().status == 0
    assert all(torch.equal(seen[0][name], seen[1][name]) for name in seen[0])
    assert any(not torch.equal(seen[1][name], seen[2][name]) for name in seen[0])
    row = metrics_of(tmp_path / "run")[1]
    assert row["critic/unscored_frac"] == 1 and "score/mean" not in row and "loss/policy" not in row
    assert "scored no completion of this update" in row["warnings"][0]
    assert "update 2: the critic second_time_silent scored no completion" in capsys.readouterr().err


def test_a_critic_that_never_scores_ends_the_run_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = trainer(tmp_path / "run", "updates=4", critic=unscored)
    before = weights_of(one)
    outcome = one.train()
    assert (outcome.updates, outcome.status) == (1, 1)
    assert changed(one, before) == set()
    assert "the run ended after 1 update: nothing could be learned from the first update" in capsys.readouterr().err
    going_on = trainer(tmp_path / "warn", "updates=4", "guard.nothing_learned=warn", critic=unscored)
    assert going_on.train().status == 0
    assert ["warnings" in row for row in metrics_of(tmp_path / "warn")] == [True, False, False, False]


@pytest.mark.parametrize(
    ("critique", "words"),
    [
        (Critique("Fine."), "every token reward was 0"),
        (Critique("Fine.", quotes=(Quote("words that nobody wrote", "poor"),)), "none of the critic's quotes"),
        (Critique("Fine.", score=0.5), "every completion the same score"),
    ],
)
def test_a_critique_that_teaches_nothing_ends_the_run_after_three_updates(
    tmp_path: Path, critique: Critique, words: str
) -> None:
    one = trainer(tmp_path / "run", "updates=9", critic=lambda _, completions, **__: [critique] * len(completions))
    outcome = one.train()
    assert (outcome.updates, outcome.status) == (3, 1)
    (warning,) = metrics_of(tmp_path / "run")[-1]["warnings"]
    assert words in warning and re.match("nothing could be learned from (the words of )?the first 3 updates", warning)


def test_scores_that_are_equal_within_each_group_end_the_run(tmp_path: Path) -> None:
    def by_prompt(prompts: Sequence[Any], completions: Sequence[str], **_: Any) -> list[Critique | None]:
        return [
            Critique("", score=float(sum(map(ord, prompt)))) for prompt, _ in zip(prompts, completions, strict=True)
        ]

    outcome = trainer(tmp_path / "run", "updates=9", "advantage.estimator=rloo", critic=by_prompt).train()
    assert (outcome.updates, outcome.status) == (3, 1)
    assert "every advantage was 0" in metrics_of(tmp_path / "run")[-1]["warnings"][0]


@pytest.mark.parametrize("estimator", ["gae", "rloo", "grpo", "span_rloo", "local"])
def test_equal_scores_teach_an_unmoved_policy_nothing(tmp_path: Path, estimator: str) -> None:
    def all_zero(_prompts: Any, completions: Sequence[str], **_: Any) -> list[Critique | None]:
        return [Critique("", score=0.0) for _ in completions]

    one = trainer(tmp_path / "run", "updates=3", "prompts=4", f"advantage.estimator={estimator}", critic=all_zero)
    before = weights_of(one)
    assert one.train().status == 1
    assert changed(one, before) == set()
    assert not any(any(row["advantages"]) for row in rows_of(tmp_path / "run"))


def test_rounding_of_sixteen_bits_is_no_signal_either(tmp_path: Path) -> None:
    """The sampler computes in 32 bits, update and reference in 16: apart by up to 0.06 with this model, unmoved."""

    def all_zero(_prompts: Any, completions: Sequence[str], **_: Any) -> list[Critique | None]:
        return [Critique("", score=0.0) for _ in completions]

    model, tokenizer = load_model("embedded")
    words = ("updates=1", "policy.precision=bfloat16", "kl.coefficient=0.1", "format=plain")
    trainer(tmp_path / "run", *words, critic=all_zero, model=model, tokenizer=tokenizer).train()
    assert not any(any(row["advantages"]) for row in rows_of(tmp_path / "run"))
    assert metrics_of(tmp_path / "run")[0]["kl/reference"] == 0


def test_weights_that_have_run_away_are_said_to(tmp_path: Path) -> None:
    one = trainer(tmp_path / "run", "updates=1")
    nothing = Sampled((5, 6), (-1.0, math.nan), (0.0, 0.0), truncated=True)
    one.writer.sampler = Fixed(nothing)
    with pytest.raises(RunError, match="not finite: its weights have run away"):
        one.train()


def test_generation_settings_that_cannot_be_saved_do_not_lose_the_run(tmp_path: Path, tokenizer: Any) -> None:
    model = tiny_model(tokenizer, hidden_size=16, layers=1)
    model.generation_config.temperature = 0.3  # without sampling: transformers reads it, and refuses to write it
    outcome = trainer(tmp_path / "run", "updates=1", model=model, tokenizer=tokenizer).train()
    again = AutoModelForCausalLM.from_pretrained(outcome.model)
    assert again.generation_config.temperature == 0.3 and again.generation_config.do_sample


def test_a_completion_that_was_cut_off_has_its_residual_on_the_last_token(tmp_path: Path) -> None:
    def scores_only(_prompts: Any, completions: Sequence[str], **_: Any) -> list[Critique | None]:
        return [Critique("", score=0.75) for _ in completions]

    trainer(tmp_path / "run", "updates=1", "sampling.max_new_tokens=3", critic=scores_only).train()
    rows = [row for row in rows_of(tmp_path / "run") if row["truncated"]]
    assert rows and metrics_of(tmp_path / "run")[0]["length/truncated_frac"] == len(rows) / 6
    assert {tuple(row["token_rewards"]) for row in rows} == {(0.0, 0.0, 0.75)}


def test_empty_completions_are_counted_and_learned_from(tmp_path: Path, tokenizer: Any) -> None:
    one = trainer(tmp_path / "run", "updates=1", tokenizer=tokenizer)
    ended = Sampled((tokenizer.eos_token_id,), (-2.0,), (0.0,), truncated=False)
    one.writer.sampler = Fixed(ended)
    assert one.train().status == 0
    (row,) = metrics_of(tmp_path / "run")
    assert (row["length/empty_frac"], row["length/mean"], row["update/steps"]) == (1, 1, 4)
    assert {row["completion"]["text"] for row in rows_of(tmp_path / "run")} == {""}


def test_a_critic_that_raises_stops_the_run_where_it_can_go_on(tmp_path: Path) -> None:
    calls = itertools.count(1)

    def fails_third_time(prompts: Any, completions: Sequence[str], **columns: Any) -> list[Critique | None]:
        if next(calls) == 3:
            raise ValueError("no credit left")
        return vowels(prompts, completions, **columns)

    with pytest.raises(CriticError, match=r"fails_third_time raised ValueError: no credit left .* Mend the critic"):
        trainer(tmp_path / "run", critic=fails_third_time).train()
    trainer(tmp_path / "run").train()
    trainer(tmp_path / "whole").train()
    assert metrics_of(tmp_path / "run") == metrics_of(tmp_path / "whole")


def test_conversations_go_through_the_template(tmp_path: Path, tokenizer: Any) -> None:
    turns = (Message("system", "Be brief."), Message("user", "Which river?"))
    prompts: set[str] = set()

    def look(one: Trainer, metrics: Any) -> None:
        kept = one.run.kept(metrics["update"])
        assert kept is not None
        prompts.update(tokenizer.decode(row["prompt_ids"]) for row in kept["rollouts"])

    trainer(
        tmp_path / "run", "updates=1", tokenizer=tokenizer, examples=[Example("a", turns)], callbacks=[look]
    ).train()
    assert prompts == {
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhich river?<|im_end|>\n<|im_start|>assistant\n"
    }


@pytest.mark.parametrize("where", ["examples", "held_out"])
def test_a_prompt_without_room_names_its_example_before_anything_is_sampled(tmp_path: Path, where: str) -> None:
    given = [*EXAMPLES, Example("long", "river " * 600)]
    with pytest.raises(InvalidData, match=r"example 'long': the prompt has \d+ tokens, and the model has room for 504"):
        trainer(tmp_path / "run", "updates=1", **{where: given})
    assert trainer(tmp_path / "run", "updates=1", "prompts=2", **{where: EXAMPLES}).train().status == 0


def test_a_run_that_fails_before_its_first_row_does_not_hold_its_folder(tmp_path: Path) -> None:
    def fails(*_: Any, **__: Any) -> list[Critique | None]:
        raise ValueError("no such column")

    with pytest.raises(CriticError, match="no such column"):
        trainer(tmp_path / "run", "updates=1", critic=fails).train()
    assert not (tmp_path / "run").exists()
    assert trainer(tmp_path / "run", "updates=2").train().updates == 2


def test_held_out_examples_are_completed_at_the_start_now_and_then_and_at_the_end(tmp_path: Path) -> None:
    trainer(tmp_path / "run", "updates=3", "log.rollouts=2", held_out=HELD_OUT).train()
    rows = metrics_of(tmp_path / "run")
    assert [row["update"] for row in rows if "held_out/score" in row] == [0, 2, 3]
    assert {key.split("/")[0] for key in rows[0]} == {"update", "held_out"}
    logged = rows_of(tmp_path / "run", held_out=True)
    assert [(row["update"], row["example"]["id"]) for row in logged] == [
        (update, f"held-{n}") for update in (0, 2, 3) for n in (0, 1)
    ]
    assert all(row["token_rewards"] and not row["advantages"] for row in logged)


def test_held_out_examples_may_come_from_a_file_while_the_others_are_given(tmp_path: Path) -> None:
    file = tmp_path / "held.jsonl"
    file.write_text('{"id": "h", "prompt": "Name the crane."}\n')
    trainer(tmp_path / "run", "updates=1", f"held_out={file}").train()
    assert {row["example"]["id"] for row in rows_of(tmp_path / "run", held_out=True)} == {"h"}
    assert json.loads((tmp_path / "run" / "run.json").read_text())["data"].keys() == {"examples", str(file)}


def test_metrics_of_held_out_completions_are_means_and_are_declared(tmp_path: Path) -> None:
    letters_of = mean_of(lambda example, text: float(len(text) + 1000 * int(example.id[-1])))
    metrics = [Metric("letters", "Letters", "How many letters there are.", "neither", letters_of)]
    trainer(tmp_path / "run", "updates=1", held_out=HELD_OUT, metrics=metrics).train()
    logged = [row for row in rows_of(tmp_path / "run", held_out=True) if row["update"] == 0]
    letters = [len(row["completion"]["text"]) + 1000 * n for n, row in enumerate(logged)]
    assert metrics_of(tmp_path / "run")[0]["held_out/letters"] == pytest.approx(sum(letters) / 3)
    declared = json.loads((tmp_path / "run" / "run.json").read_text())["metrics"]["held_out/letters"]
    assert declared == {"title": "Letters", "help": "How many letters there are.", "better": "neither"}


def test_another_critic_may_examine(tmp_path: Path) -> None:
    held_out = [Example("a", "Name the crane.", "The crane.")]
    trainer(tmp_path / "run", "updates=1", "evaluation.critic=reference", held_out=held_out).train()
    (row, *_) = rows_of(tmp_path / "run", held_out=True)
    assert row["critique"]["omissions"]
    assert not any(row["critique"]["omissions"] for row in rows_of(tmp_path / "run"))


def test_log_probs_are_of_the_temperature_that_was_sampled_with(tmp_path: Path) -> None:
    """Of the policy, and of its reference: otherwise the first update would already be far from both."""
    for temperature in (0.5, 2.0):
        run = tmp_path / f"{temperature}"
        one = trainer(run, f"sampling.temperature={temperature}", "updates=1", "update.learning_rate=1e-9")
        assert one.policy.temperature == temperature
        one.train()
        (row,) = metrics_of(run)
        assert row["kl/reference"] < 1e-8 and row["kl/sampling"] < 1e-8
        for row in rows_of(run):
            assert row["logprobs_after"] == pytest.approx(row["logprobs"], abs=1e-4)


def test_the_kl_is_that_of_the_policy_to_the_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the tokens that the policy sampled: (π_ref / π) − 1 − log(π_ref / π), not the other way about; and leaving the
    reference costs."""
    one = trainer(tmp_path / "run", "updates=1", "advantage.estimator=local", "advantage.whiten=false")
    collate = one.collate

    def moved(*given: Any) -> Any:
        batch = collate(*given)
        unlabelled_BT = torch.zeros_like(batch.verdicts_BT)
        return replace(batch, reference_BT=batch.logprobs_BT - 1.0, verdicts_BT=unlabelled_BT)

    monkeypatch.setattr(one, "collate", moved)
    one.train()
    assert metrics_of(tmp_path / "run")[0]["kl/reference"] == pytest.approx(math.exp(-1) - 1 + 1, rel=1e-4)
    for row in rows_of(tmp_path / "run"):
        assert row["advantages"] == pytest.approx([-0.05] * len(row["advantages"]))


def test_words_teach_where_every_score_is_the_same(tmp_path: Path) -> None:
    """Every program fails, and the critic says where: with one number there would be nothing to learn from."""

    def failing(_prompts: Any, texts: Sequence[str], **_: Any) -> list[Critique | None]:
        return [Critique("", quotes=(Quote(t.strip()[0], "poor"),) if t.strip() else (), score=0.0) for t in texts]

    one = trainer(tmp_path / "run", "updates=2", "kl.coefficient=0", critic=failing)
    before = weights_of(one)
    assert one.train().status == 0
    assert any(not torch.equal(weight, before[key]) for key, weight in weights_of(one).items())
    for row in metrics_of(tmp_path / "run"):
        assert row["reward/scale"] == 0.5 and row["reward/spread"] == 1 and row["advantage/size"] > 0
    scalar = trainer(tmp_path / "scalar", "updates=4", "kl.coefficient=0", "reward=scalar", critic=failing).train()
    assert scalar.status == 1 and scalar.updates == 3, "nothing to learn, and it says so"


@pytest.mark.parametrize("rank", [0, 2])
def test_measuring_the_kl_changes_nothing_else(tmp_path: Path, rank: int) -> None:
    """Looked at where the run is evaluated, and with the numbers of a run that looks at every update."""
    weights, rows = {}, {}
    for name, looks in {"never": "measure=false", "now and then": "measure=true", "always": "stop=1000"}.items():
        settings = ("kl.coefficient=0", f"kl.{looks}", f"policy.lora.rank={rank}", "policy.lora.dropout=0.3")
        one = trainer(tmp_path / name, *settings, held_out=HELD_OUT)
        one.train()
        weights[name], rows[name] = weights_of(one), metrics_of(tmp_path / name)
    measured = {name: {row["update"]: row.pop("kl/reference", None) for row in found} for name, found in rows.items()}
    assert rows["never"] == rows["now and then"] == rows["always"]
    for name in ("now and then", "always"):
        assert weights[name].keys() == weights["never"].keys()
        assert all(torch.equal(weight, weights["never"][key]) for key, weight in weights[name].items())
    assert not any(measured["never"].values())
    seen = {update: kl for update, kl in measured["now and then"].items() if kl is not None}
    assert seen == {update: measured["always"][update] for update in (2, 4, 5)}
    assert seen[2] > 0 and seen[5] > 0


def test_an_update_that_goes_too_far_stops_early(tmp_path: Path) -> None:
    trainer(tmp_path / "run", "updates=1", "update.stop_kl=1e-5").train()
    (row,) = metrics_of(tmp_path / "run")
    assert (row["update/stopped_early"], row["update/steps"]) == (1, 1)


def test_the_look_back_starts_before_the_update_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a GPU has work from one to the other."""
    order: list[str] = []
    for owner, name in ((PendingUpdate, "wait"), (locality, "look_back"), (locality, "_looked")):
        real = getattr(owner, name)

        def noted(*given: Any, name: str = name, real: Any = real) -> Any:
            order.append(name)
            return real(*given)

        monkeypatch.setattr(owner, name, noted)
    trainer(tmp_path / "run", "updates=2").train()
    assert order == ["look_back", "wait", "_looked"] * 2


def test_minibatches_are_drawn_anew_in_every_update_and_the_same_in_every_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds: dict[str, list[int]] = {"run": [], "again": [], "other": []}
    for name, seed in (("run", 0), ("again", 0), ("other", 1)):

        def seen(*given: Any, name: str = name, **more: Any) -> Any:
            seeds[name].append(more["seed"])
            return begin_update(*given, **more)

        monkeypatch.setattr(rl, "begin_update", seen)
        trainer(tmp_path / name, "updates=3", f"seed={seed}").train()
    assert seeds["run"] == seeds["again"]
    assert len({*seeds["run"], *seeds["other"]}) == 6


def test_quotes_that_are_not_there_are_counted(tmp_path: Path) -> None:
    def invents(_prompts: Any, completions: Sequence[str], **_: Any) -> list[Critique | None]:
        return [Critique("", quotes=(Quote("entirely invented words", "good"),), score=1.0) for _ in completions]

    trainer(tmp_path / "run", "updates=1", critic=invents).train()
    (row,) = metrics_of(tmp_path / "run")
    assert (row["align/missed_frac"], row["align/labelled_frac"], row["reward/mean"]) == (1, 0, 1)


class Early:
    """A critic that can begin before all is sampled."""

    def __init__(self) -> None:
        self.begun: list[str] = []

    def __call__(self, prompts: Any, completions: Sequence[str], **columns: Any) -> Any:
        return vowels(prompts, completions, **columns)

    def begin(self, _prompt: Any, completion: str, **_row: Any) -> None:
        self.begun.append(completion)


def test_a_critic_that_can_begins_on_every_completion_before_it_is_asked(tmp_path: Path) -> None:
    critic = Early()
    one = trainer(tmp_path / "run", "updates=1", critic=critic)
    one.train()
    sampled = [row["completion"]["text"] for row in rows_of(tmp_path / "run") if row["update"] == 1]
    assert set(sampled) <= set(critic.begun) and len(critic.begun) == one.settings.prompts * one.settings.completions
    (row,) = [row for row in read_jsonl(tmp_path / "run" / "metrics.jsonl") if row["update"] == 1]
    whole = sum(value for key, value in row.items() if key.startswith("time/") and key not in OTHER)
    assert row["time/critic_frac"] == pytest.approx(row["time/critic"] / whole, rel=0.05)


OTHER = ("time/evaluate", "time/critic_frac")

"""Training a reward model: that it learns, what it keeps, when it stops, and that a kill changes nothing."""

import json
import math
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.models.reward.made import FAST, FULL, TEMPLATE, rows, write_rows
from tests.training.trainings import Driver, metrics_of
from text2grad import config
from text2grad.errors import ConfigError, CriticError, InvalidData, RunError
from text2grad.feedback.labels import verdicts_of
from text2grad.feedback.people import Rejected
from text2grad.models.parallel import AccelerateWorld
from text2grad.models.reward.calibrate import calibrated
from text2grad.models.reward.critic import RewardCritic
from text2grad.models.reward.model import RewardModel
from text2grad.models.settings import LoraSettings, PolicySettings, Template
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.tasks.annotated import Annotated
from text2grad.tasks.task import Task
from text2grad.training.reward_model import RewardModelTrainer
from text2grad.training.settings import LossSettings, RewardModelSettings
from text2grad.types import Alignment, Critique, Message, Span


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def settings(**changed: Any) -> RewardModelSettings:
    chosen: dict[str, Any] = {"updates": 6, "checkpoint_every": 2, "evaluate_every": 2, "validation": 0.25}
    return RewardModelSettings(
        **chosen | {"device": "cpu", "policy": FULL, "update": FAST, "template": TEMPLATE} | changed
    )


def start(folder: Path, options: RewardModelSettings | None = None, **given: Any) -> RewardModelTrainer:
    tokenizer = tiny_tokenizer()
    given = {"rows": rows(), "model": tiny_model(tokenizer), "tokenizer": tokenizer} | given
    return RewardModelTrainer(options or settings(), folder / "run", **given)


# ---------------------------------------------------------------------------------------------- that it learns


@pytest.fixture(scope="module", params=[0, 8], ids=["full", "lora"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("trained")
    policy = PolicySettings(lora=LoraSettings(rank=request.param))
    options = settings(updates=40, evaluate_every=20, policy=policy, head_learning_rate=2e-2)
    torch.set_num_threads(1)
    return folder, start(folder, options, rows=rows(48)).train()


def test_it_tells_poor_tokens_from_others_on_prompts_that_it_never_saw(trained: tuple[Path, Any]) -> None:
    folder, outcome = trained
    assert (outcome.status, outcome.updates) == (0, 40)
    found = metrics_of(folder / "run")
    first, last = found[0], found[-1]
    assert first["held_out/poor_ap"] < 0.3, "with no opinion, precision is how often it comes"
    assert last["held_out/poor_ap"] > 0.9 and last["held_out/good_ap"] > 0.9
    assert last["held_out/joint"] < 0.7 * first["held_out/joint"]
    assert last["held_out/language"] < first["held_out/language"] - 0.5
    assert last["loss/joint"] < found[1]["loss/joint"]


def test_what_it_wrote_judges_new_completions_and_names_the_places(trained: tuple[Path, Any]) -> None:
    critic = RewardCritic(trained[1].model)
    made = rows(12, seed=9)
    found = critic([row.prompt for row in made], [row.completion for row in made])
    right = sum(
        {(q.start, q.verdict) for q in said.quotes} == {(s.start, s.verdict) for s in row.alignment.spans}
        for said, row in zip(found, made, strict=True)
        if said is not None
    )
    assert right >= 8


def test_the_calibration_is_that_of_the_weights_that_are_kept(trained: tuple[Path, Any]) -> None:
    """Read anew from the folder: called at its thresholds, the held-out tokens are right where training said so."""
    folder, outcome = trained
    model, _ = RewardModel.from_pretrained(outcome.model)
    assert model.calibration.kind == "verdicts" and model.calibration.temperature != 1
    loop = start(folder / "again", settings(), rows=rows(48))
    outs = model.predict([item.encoded for item in loop.held_items], 4096)
    loop.close()
    called = [verdicts_of(model.read(out)[0].double().numpy(), model.calibration) for out in outs]
    pairs = [
        (c, v)
        for one, item in zip(called, loop.held_items, strict=True)
        for c, v in zip(one, item.labels.verdicts, strict=True)
    ]
    right = sum(c == v == 0 for c, v in pairs)
    f1 = 2 * right / (sum(c == 0 for c, _ in pairs) + sum(v == 0 for _, v in pairs))
    assert f1 == pytest.approx(metrics_of(folder / "run")[-1]["held_out/poor_f1"], abs=0.05)


def test_thresholds_are_of_words_as_the_critic_reads_them(tmp_path: Path) -> None:
    with start(tmp_path, settings(updates=4, head_learning_rate=2e-2), rows=rows(24)) as loop:
        loop.train()
        outs = [out.cpu() for out in loop._predict(loop.held_items)[2]]
        verdicts = [torch.from_numpy(item.labels.verdicts) for item in loop.held_items]
        found = loop.model.calibration
        by_words, by_tokens = (
            calibrated(loop.model, outs, verdicts, words) for words in ([item.words for item in loop.held_items], None)
        )
    assert found == by_words and (by_tokens.poor, by_tokens.good) != (found.poor, found.good)


def test_with_scores_the_critics_score_follows_the_true_one(tmp_path: Path) -> None:
    options = settings(updates=60, evaluate_every=60, head_learning_rate=2e-2)
    outcome = start(tmp_path, options, rows=rows(48, score=True)).train()
    assert outcome.model is not None
    critic, made = RewardCritic(outcome.model), rows(24, seed=5, score=True)
    assert critic.model.calibration.kind == "score"
    found = critic([row.prompt for row in made], [row.completion for row in made])
    pairs = [(said.score, row.critique.score) for said, row in zip(found, made, strict=True) if said is not None]
    scores, truth = torch.tensor(pairs).T
    assert len(pairs) > 16 and float(torch.corrcoef(torch.stack([scores, truth]))[0, 1]) > 0.8
    # And in its unit: half as much, or twice, would be another reward.
    assert 0.75 < float(scores.std() / truth.std()) < 1.33


def test_the_papers_way_trains_no_head(tmp_path: Path) -> None:
    options = settings(updates=2, loss=LossSettings(span=0.0, reward=0.0, language=1.0))
    loop = start(tmp_path, options)
    loop.train()
    assert not loop.model.span_head.linear.weight.any()
    row = metrics_of(tmp_path / "run")[-1]
    assert row["loss/joint"] == row["loss/language"]


# ---------------------------------------------------------------------------------------------- the data


def test_no_prompt_is_on_both_sides(tmp_path: Path) -> None:
    with start(tmp_path, rows=rows(60, each=3)) as loop:
        prompts = [{row.prompt for row in side} for side in (loop.rows, loop.held_out)]
    assert not prompts[0] & prompts[1] and len(prompts[0] | prompts[1]) == 20
    assert len(loop.items) + len(loop.held_items) == 60


def test_a_held_out_file_is_taken_as_it_is(tmp_path: Path) -> None:
    held = write_rows(tmp_path / "held.jsonl", rows(5, seed=3))
    data = write_rows(tmp_path / "data.jsonl", rows(9))
    with start(tmp_path, settings(data=str(data), held_out=str(held)), rows=None) as loop:
        assert (len(loop.items), len(loop.held_items)) == (9, 5)
    assert {str(held), str(data)} == set(json.loads((tmp_path / "run" / "run.json").read_text())["data"])


TASK = Task("rivers", {}, annotations={"train": lambda: [*rows(9), Rejected(9, None, "not English")]})


def test_a_task_brings_its_rows_and_what_could_not_be_read_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = start(tmp_path, settings(updates=1, task=f"{__name__}:TASK"), rows=None)
    loop.train()
    assert len(loop.items) + len(loop.held_items) == 9 and loop.held_items
    assert f"1 rows of task={__name__}:TASK could not be read and are left out" in capsys.readouterr().err


HALVES = Task("halves", {}, annotations={"train": lambda: rows(12)[:9], "validation": lambda: rows(12)[9:]})


def test_a_tasks_own_split_is_held_out_unless_policies_are_measured_on_it(tmp_path: Path) -> None:
    for by, held in (("task", {row.id for row in rows(12)[9:]}), ("prompts", set())):
        with start(tmp_path / by, settings(task=f"{__name__}:HALVES", held_out_by=by), rows=None) as loop:
            assert {row.id for row in rows(12)[9:]} & {row.id for row in (*loop.rows, *loop.held_out)} == held
            assert loop.held_out and len(loop.rows) + len(loop.held_out) == (12 if held else 9)


def test_a_held_out_prompt_that_is_learned_from_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = rows(9)
    chat = replace(made[3], prompt=(Message("user", str(made[3].prompt)),))
    start(tmp_path, settings(updates=1), rows=[*made[:3], chat], held_out=made[2:5]).train()
    assert "2 of 4 completions to learn from have a prompt that is also held out" in capsys.readouterr().err
    start(tmp_path / "apart", settings(updates=1), rows=made[:3], held_out=made[3:]).train()
    start(tmp_path / "split", settings(updates=1), rows=made).train()
    assert "held out" not in capsys.readouterr().err


def test_rows_without_a_score_that_cost_the_others_theirs_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = rows(9, score=True)
    plain = replace(made[1], critique=Critique("Fine."))
    loop = start(tmp_path, settings(updates=1), rows=[made[0], plain, *made[2:4]], held_out=made[5:])
    loop.train()
    assert "1 of 8 completions, held-out ones included, have no score" in capsys.readouterr().err
    assert loop.kind == "verdicts"
    loop = start(tmp_path / "held", settings(updates=1), rows=made[2:4], held_out=[plain, *made[5:]])
    loop.train()
    assert "1 of 7 completions, held-out ones included, have no score" in capsys.readouterr().err
    assert loop.kind == "verdicts"
    start(tmp_path / "all", settings(updates=1), rows=made[:4], held_out=made[5:]).train()
    start(tmp_path / "none", settings(updates=1), rows=rows(4), held_out=made[5:]).train()
    assert "no score" not in capsys.readouterr().err


def test_long_completions_are_counted_and_long_critiques_leave_the_head_its_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = Annotated("long", "Q", "word " * 99, Critique("x"), Alignment())
    wordy = Annotated("wordy", "Q", "Drava it is", Critique("word " * 99), Alignment((Span(0, 5, "poor"),)))
    options = settings(updates=1)
    start(tmp_path, options, rows=[*rows(6), long, wordy], held_out=[long, *rows(2, seed=1)]).train()
    assert "2 of 11 completions have no room in template.max_tokens=200" in capsys.readouterr().err
    first = metrics_of(tmp_path / "run")[0]
    assert {key: first[f"data/{key}"] for key in ("rows", "held_out", "skipped", "without_critique")} == {
        "rows": 7,
        "held_out": 2,
        "skipped": 2,
        "without_critique": 1,
    }
    with start(tmp_path / "counted", options, rows=[wordy, *rows(3)], held_out=rows(2)) as loop:
        batch, labels = loop._batch(loop.items)
    assert batch.loss_weights_BT.sum(1).tolist() == [0, *batch.lengths_B.tolist()[1:]]
    verdict_N = labels.rows(torch.tensor([0])).verdict_N
    assert verdict_N is not None and verdict_N.eq(0).any(), "its spans are taught all the same"
    with pytest.raises(InvalidData, match=r"row 'long': the completion has \d+ tokens.*set too_long=skip"):
        start(tmp_path / "strict", settings(too_long="error"), rows=[*rows(6), long])
    with pytest.raises(InvalidData, match=r"none of 1 completions has room in template\.max_tokens=200"):
        start(tmp_path / "none", options, rows=rows(4), held_out=[long])
    with pytest.raises(InvalidData, match=r"none of 1 critiques has room in .* template\.critique_tokens=40; loss"):
        start(tmp_path / "wordy", options, rows=[wordy], held_out=rows(2))
    with pytest.raises(InvalidData, match="at least one annotated completion, got none"):
        start(tmp_path / "empty", options, rows=[])


def test_the_template_has_no_more_room_than_the_model_has_positions(tmp_path: Path) -> None:
    with start(tmp_path, settings(template=type(TEMPLATE)())) as loop:
        assert (settings().template.max_tokens, loop.model.template.max_tokens) == (200, 512)


def test_rare_classes_count_more_and_epochs_become_updates(tmp_path: Path) -> None:
    with start(tmp_path, settings(updates=None, epochs=1.5)) as loop:
        weights = loop.model.class_weights_3.tolist()
        assert weights[0] > 1 > weights[1] and weights[2] > 1
        assert loop.updates == -(-len(loop.items) * 3 // 16)
    with start(tmp_path / "plain", settings(loss=LossSettings(imbalance=0.0))) as loop:
        assert loop.model.class_weights_3.tolist() == [1, 1, 1]


# ---------------------------------------------------------------------------------------------- when it ends

CONTRARY = [
    Annotated(
        row.id,
        row.prompt,
        row.completion,
        Critique("Никогда! 漢字"),
        Alignment(tuple(Span(s.start, s.end, "poor" if s.verdict == "good" else "good") for s in row.alignment.spans)),
    )
    for row in rows(6, seed=1)
]
"""What is learned is wrong here: the held-out loss rises."""


def test_it_stops_when_the_held_out_loss_rises_keeps_the_best_and_stays_stopped(tmp_path: Path) -> None:
    options = settings(updates=40, evaluate_every=1, patience=2, head_learning_rate=5e-2)
    best: list[dict[str, Any]] = []

    def look(loop: Any, _: Any) -> None:
        best.append({name: weight.detach().clone() for name, weight in loop.model.named_parameters()})

    loop = start(tmp_path, options, held_out=CONTRARY, callbacks=[look])
    outcome = loop.train()
    looks = [row["held_out/watched"] for row in metrics_of(tmp_path / "run")]
    assert outcome.status == 0 and outcome.updates < 40
    at = looks.index(min(looks))
    assert at == len(looks) - 3, "two looks after the lowest"
    kept, _ = RewardModel.from_pretrained(outcome.model or "")
    for name, weight in kept.named_parameters():
        assert torch.equal(weight, best[at][name])
    assert any(not torch.equal(weight, best[-1][name]) for name, weight in kept.named_parameters())
    assert start(tmp_path, options, held_out=CONTRARY).train() == outcome


def test_the_best_weights_are_those_that_judge_best_however_well_others_write(tmp_path: Path) -> None:
    loss = LossSettings(span=1.0, reward=0.5, language=20.0)
    options = settings(updates=12, evaluate_every=1, head_learning_rate=5e-2, loss=loss)
    # Words as they are learned, verdicts the other way round: the writer gets better, the judge worse.
    turned = [replace(row, critique=real.critique) for row, real in zip(CONTRARY, rows(6, seed=1), strict=True)]
    loop = start(tmp_path, options, held_out=turned)
    loop.train()
    found = metrics_of(tmp_path / "run")
    for row in found:
        assert row["held_out/watched"] == pytest.approx(row["held_out/span"] + 0.5 * row["held_out/reward"])
    judging, both = ([row[name] for row in found] for name in ("held_out/watched", "held_out/joint"))
    assert judging.index(min(judging)) != both.index(min(both)), "else this shows nothing"
    assert loop.best.update == judging.index(min(judging))


def test_a_model_that_only_writes_is_watched_by_what_it_writes(tmp_path: Path) -> None:
    start(tmp_path, settings(updates=2, loss=LossSettings(span=0.0, reward=0.0, language=1.0))).train()
    for row in metrics_of(tmp_path / "run"):
        if "held_out/watched" in row:
            assert row["held_out/watched"] == row["held_out/joint"] == row["held_out/language"]
            assert "held_out/poor_ap" not in row, "of a head that nobody trains"


def test_the_best_weights_and_the_patience_outlast_an_interruption(tmp_path: Path) -> None:
    options = settings(updates=40, evaluate_every=1, patience=3, head_learning_rate=5e-2)
    whole = start(tmp_path / "whole", options, held_out=CONTRARY).train()
    looks = [row["held_out/watched"] for row in metrics_of(tmp_path / "whole" / "run")]
    behind = looks.index(min(looks)) + 1

    def press(_: object, metrics: Any) -> None:
        if metrics["update"] == behind:
            os.kill(os.getpid(), signal.SIGINT)

    assert start(tmp_path, options, held_out=CONTRARY, callbacks=[press]).train().status == 130
    assert start(tmp_path, options, held_out=CONTRARY).train().updates == whole.updates
    assert metrics_of(tmp_path / "run") == metrics_of(tmp_path / "whole" / "run")
    assert files_of(tmp_path / "run") == files_of(tmp_path / "whole" / "run")


def test_a_run_that_only_made_things_worse_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = settings(updates=2, evaluate_every=1, head_learning_rate=9.0, update=replace(FAST, learning_rate=1.0))
    outcome = start(tmp_path, options).train()
    assert "the held-out loss never fell below its start" in capsys.readouterr().err
    with pytest.raises(CriticError, match="the held-out loss never fell below its start"):
        RewardCritic(outcome.model or "")
    start(tmp_path / "better", settings(updates=2)).train()
    assert "never fell" not in capsys.readouterr().err


def test_a_judge_of_no_use_says_so_and_scores_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What it learned is wrong of the held-out completions, few as they are: there, other words are poor."""
    options = settings(updates=12, evaluate_every=12, keep="last", head_learning_rate=5e-2)
    other = [replace(row, alignment=Alignment((Span(0, row.completion.index(" "), "poor"),))) for row in CONTRARY]
    outcome = start(tmp_path, options, held_out=other).train()
    assert "the 6 held-out completions do not show that this reward model is of use" in capsys.readouterr().err
    made = rows(8, seed=4)
    found = RewardCritic(outcome.model or "")([row.prompt for row in made], [row.completion for row in made])
    assert found == [None] * 8
    start(tmp_path / "writer", settings(updates=1, loss=LossSettings(span=0.0, reward=0.0, language=1.0))).train()
    assert "of use" not in capsys.readouterr().err, "one that only writes is not judged by"


def test_a_loss_that_is_no_number_is_neither_low_nor_patient(tmp_path: Path) -> None:
    with start(tmp_path) as loop:
        for update, (loss, lowest, above, best) in enumerate(
            [(2.0, 2.0, 0, 0), (math.nan, 2.0, 1, 0), (math.nan, 2.0, 2, 0), (1.0, 1.0, 0, 3), (math.inf, 1.0, 1, 3)]
        ):
            assert loop.watch.see({"update": update, "held_out/watched": loss}) == (update == best)
            assert (loop.watch.lowest, loop.watch.above) == (lowest, above)


def break_at(update: int) -> Any:
    def break_it(loop: Any, metrics: Any) -> None:
        if metrics["update"] == update:
            with torch.no_grad():
                loop.model.span_head.linear.weight.fill_(math.nan)

    return break_it


def test_a_loss_that_is_no_number_ends_the_run_and_keeps_the_best(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = settings(updates=40, evaluate_every=1, head_learning_rate=2e-2)
    outcome = start(tmp_path, options, callbacks=[break_at(4)]).train()
    assert (outcome.status, outcome.updates) == (1, 5)
    said = capsys.readouterr().err
    assert "update 5: the loss is not a number; the weights have run away. The model is that of update" in said
    assert "held_out/watched" not in metrics_of(tmp_path / "run")[-1]
    kept, _ = RewardModel.from_pretrained(outcome.model or "")
    assert all(weight.isfinite().all() for weight in kept.parameters()) and kept.span_head.linear.weight.any()
    assert start(tmp_path, options).train() == outcome, "it stays ended"


def test_weights_that_ran_away_are_no_model_and_one_bad_step_is_no_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = settings(updates=40, evaluate_every=100, checkpoint_every=100, keep="last")
    with pytest.raises(RunError, match=r"update 14: 10 steps in a row were skipped.*Lower update\.learning_rate="):
        start(tmp_path, options, callbacks=[break_at(4)]).train()
    assert not (tmp_path / "run" / "model").exists()
    assert "the step of update 5 was skipped" in capsys.readouterr().err

    def mend(loop: Any, metrics: Any) -> None:
        if metrics["update"] == 5:
            with torch.no_grad():
                loop.model.span_head.linear.weight.zero_()

    once = start(tmp_path / "once", replace(options, updates=8), callbacks=[break_at(4), mend]).train()
    assert (once.status, once.updates) == (0, 8)
    assert [row.get("update/skipped") for row in metrics_of(tmp_path / "once" / "run")][4:8] == [0, 1, 0, 0]


def test_the_last_weights_are_kept_where_asked(tmp_path: Path) -> None:
    options = settings(updates=6, evaluate_every=1, keep="last", head_learning_rate=5e-2)
    loop = start(tmp_path, options, held_out=CONTRARY)
    outcome = loop.train()
    looks = [row["held_out/watched"] for row in metrics_of(tmp_path / "run")]
    assert looks.index(min(looks)) < 6
    kept, _ = RewardModel.from_pretrained(outcome.model or "")
    assert torch.equal(kept.span_head.linear.weight, loop.model.span_head.linear.weight)
    assert loop.best.weights is None


def test_a_reward_model_goes_on_from_another(tmp_path: Path) -> None:
    """Span head included: what it knew, it knows at update 0; the classes' weights may be others."""
    first = start(tmp_path / "first", settings(updates=40, head_learning_rate=2e-2), rows=rows(48)).train()
    options = settings(updates=1, model=str(first.model), loss=LossSettings(imbalance=1.0))
    start(tmp_path, options, model=None, tokenizer=None, held_out=rows(12, seed=7)).train()
    assert metrics_of(tmp_path / "run")[0]["held_out/poor_ap"] > 0.9
    before, _ = RewardModel.from_pretrained(str(first.model))
    before.calibration = replace(before.calibration, temperature=1.0)
    with start(tmp_path / "looked", options, model=None, tokenizer=None) as loop:
        assert not torch.allclose(loop.model.class_weights_3, before.class_weights_3)
        encoded = [item.encoded for item in loop.held_items[:2]]
        for here, there in zip(loop.model.predict(encoded, 999), before.predict(encoded, 999), strict=True):
            torch.testing.assert_close(loop.model.read(here)[0], before.read(there)[0], atol=1e-5, rtol=1e-4)


def test_going_on_reads_what_the_first_run_read(tmp_path: Path) -> None:
    own = Template(before="Q:\n", again="\n\nOnce more:\n", max_tokens=200, critique_tokens=40)
    first = start(tmp_path / "first", settings(updates=1, template=own, head_learning_rate=0.1)).train()
    options = settings(updates=1, model=str(first.model), template=Template(critique_tokens=30))
    outcome = start(tmp_path, options, model=None, tokenizer=None).train()
    assert RewardModel.from_pretrained(outcome.model or "")[0].template == replace(own, critique_tokens=30)
    # The settings that were written down lead to the same run, which is over.
    again = config.load(RewardModelSettings, tmp_path / "run" / "config.yaml")
    assert start(tmp_path, again, model=None, tokenizer=None).train() == outcome
    with pytest.raises(ConfigError, match=r"template\.before='Task: ': .*model has learned to read 'Q:\\n' there"):
        start(tmp_path / "other", replace(options, template=Template(before="Task: ")), model=None, tokenizer=None)
    assert not (tmp_path / "other" / "run").exists()


def test_a_reward_model_that_only_got_worse_stays_what_it_was(tmp_path: Path) -> None:
    """With its own kind, unit and thresholds: of the lessons of this run it has learned nothing."""
    scored = settings(updates=40, evaluate_every=20, head_learning_rate=2e-2)
    first = start(tmp_path / "first", scored, rows=rows(48, score=True)).train()
    worse = replace(FAST, learning_rate=1.0)
    options = settings(updates=1, model=str(first.model), head_learning_rate=9.0, update=worse)
    outcome = start(tmp_path, options, model=None, tokenizer=None).train()
    before, after = (RewardModel.from_pretrained(path or "")[0] for path in (first.model, outcome.model))
    assert after.calibration == before.calibration and after.calibration.kind == "score"


# ---------------------------------------------------------------------------------------------- stops and kills

WORDS = [
    *("updates=6", "checkpoint_every=2", "evaluate_every=2", "validation=0.25", "device=cpu", "policy.lora.rank=2"),
    *("template.max_tokens=200", "template.critique_tokens=40", "update.batch=4", "update.micro_batch=3"),
    *("update.learning_rate=1e-2", "policy.lora.dropout=0.1"),
]


def files_of(run: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((run / "model").iterdir())}


@pytest.fixture(scope="module")
def undisturbed(driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("undisturbed")
    words = [*WORDS, f"data={write_rows(folder / 'rows.jsonl', rows(16))}"]
    assert driver(folder / "run", settings=words, stage="reward-model", bare=True) == 0
    return folder / "run", words


@pytest.mark.parametrize(
    ("point", "number"),
    [("look", 1), ("step", 2), ("log", 4), ("look", 3), ("checkpoint", 2), ("save", 3), ("look", 5), ("model", 1)],
)
def test_a_kill_changes_nothing(
    driver: Driver, undisturbed: tuple[Path, list[str]], tmp_path: Path, point: str, number: int
) -> None:
    """Dropout draws from a global state, so random numbers are restored, too."""
    wanted, words = undisturbed
    run = tmp_path / "run"
    job: dict[str, Any] = {"settings": words, "stage": "reward-model", "bare": True}
    assert driver(run, **job, die=[point, number]) == -signal.SIGKILL
    assert not (run / "model").exists()
    assert driver(run, **job) == 0
    assert metrics_of(run) == metrics_of(wanted)
    assert files_of(run) == files_of(wanted)
    assert not list(run.rglob(".aside-*"))


def test_ctrl_c_saves_and_the_run_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start(tmp_path / "whole").train()

    def press(_: object, metrics: Any) -> None:
        if metrics["update"] == 3:
            os.kill(os.getpid(), signal.SIGINT)

    outcome = start(tmp_path, callbacks=[press], show=True).train()
    assert (outcome.updates, outcome.status, outcome.model) == (3, 130, None)
    assert "saved at update 3 of 6; resume with: the same script\n" in capsys.readouterr().err
    assert start(tmp_path).train().status == 0
    assert files_of(tmp_path / "run") == files_of(tmp_path / "whole" / "run")


def test_other_rows_are_another_run(tmp_path: Path) -> None:
    start(tmp_path, settings(updates=1)).train()
    with pytest.raises(RunError, match="another content of rows"):
        start(tmp_path, settings(updates=1), rows=rows(24, seed=1))


def test_weights_that_are_shared_out_have_no_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = AccelerateWorld.__init__

    def sharded(self: Any, *words: Any, **named: Any) -> None:
        real(self, *words, **named)
        self.sharded = True

    monkeypatch.setattr(AccelerateWorld, "__init__", sharded)
    with pytest.raises(ConfigError, match="with --launch fsdp2 set keep=last"):
        start(tmp_path)


def test_nothing_to_learn_from_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"loss\.span, loss\.reward and loss\.language are all 0"):
        start(tmp_path, settings(loss=LossSettings(span=0.0, reward=0.0, language=0.0)))
    assert not (tmp_path / "run").exists()

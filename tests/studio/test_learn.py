"""Learning from words, and going back: what was blamed falls, what was praised rises, and undo is bitwise."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.studio.made import tiny_studio
from text2grad.cli import main
from text2grad.models.settings import LoraSettings, PolicySettings
from text2grad.report.folders import read_runs
from text2grad.report.page import build
from text2grad.runs import read_jsonl
from text2grad.studio import words
from text2grad.studio.learn import Direct, LearnData, warnings_of
from text2grad.studio.settings import StudioSettings
from text2grad.studio.store import Store
from text2grad.studio.worker import Cancelled, Progress, Worker


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> StudioSettings:
    return tiny_studio(tmp_path_factory.mktemp("tiny"))


def begun(folder: Path, settings: StudioSettings) -> Worker:
    """A worker in this process that has made its start and sampled all prompts."""
    worker = Worker(folder, Store(folder / "studio.sqlite"), replace(settings, ahead=100))
    worker.store.add_job("start")
    work(worker)
    while worker.ahead():
        pass
    return worker


def work(worker: Worker) -> list[dict[str, Any]]:
    """Do all jobs that wait; gives them as they ended."""
    done = []
    while (job := worker.store.next_job()) is not None:
        worker.do(job)
        done.append(worker.store.job(job["id"]))
    return done


def close(worker: Worker) -> None:
    assert worker.model is not None
    worker.model.close()
    worker.store.close()


@pytest.fixture
def worker(tmp_path: Path, settings: StudioSettings) -> Iterator[Worker]:
    worker = begun(tmp_path, settings)
    yield worker
    close(worker)


def say(worker: Worker, completion: int, author: str = "Ada", **said: Any) -> int:
    """Store a critique as the server does."""
    row = worker.store.completion(completion)
    example = words.example_in(worker.store.prompt(row["prompt"]))
    found = words.read(example, words.completion_in(row), said, 20_000, worker.settings.align)
    saved, critique = worker.store.save_critique(
        completion, author, words.critique_body(*found, said.get("notes")), None
    )
    assert saved
    return int(critique["id"])


def mark(worker: Worker, completion: int, first: int, last: int, verdict: str) -> int:
    """Mark so many of a completion's tokens."""
    offsets = worker.store.completion(completion)["offsets"]
    note = {"start": offsets[first][0], "end": offsets[last][1], "verdict": verdict, "comment": ""}
    return say(worker, completion, notes=[note])


def weights(worker: Worker) -> dict[str, torch.Tensor]:
    assert worker.model is not None
    return {name: weight.detach().clone() for name, weight in worker.model.policy.trainable().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def learn(worker: Worker, parts: tuple[str, ...] = ("direct",), updates: int = 4) -> dict[str, Any]:
    worker.store.add_job("learn", "Ada", updates=updates, parts=list(parts))
    (job,) = work(worker)
    assert job["state"] == "done", job["error"]
    return worker.store.version(job["version"]) | {"comparison": worker.store.comparison(job["version"])}


def test_blamed_tokens_fall_praised_ones_rise_and_the_rest_stays(worker: Worker) -> None:
    poor, good = mark(worker, 1, 0, 3, "poor"), mark(worker, 4, 0, 3, "good")
    row = learn(worker)
    shown = {each["critique"]: each for each in row["comparison"]["criticised"]}

    def change(critique: int, tokens: slice) -> float:
        after, before = shown[critique]["after"][tokens], shown[critique]["before"][tokens]
        return float(sum(after) - sum(before)) / len(after)

    assert change(poor, slice(0, 4)) < -0.1
    assert change(good, slice(0, 4)) > 0.1
    assert abs(change(poor, slice(5, None))) < 0.5 * abs(change(poor, slice(0, 4)))
    # What is shown as before are the log-probs that the completion was sampled with: it is of this version.
    assert shown[poor]["before"] == pytest.approx(worker.store.completion(1)["logprobs"], abs=1e-4)
    assert row["kl"] > 0 and row["learned"] == {str(poor): 1, str(good): 1}
    assert set(row["comparison"]["held_out"]["before"]) == set(row["comparison"]["held_out"]["after"])


def test_undo_is_bitwise_and_redo_too(worker: Worker) -> None:
    store = worker.store
    mark(worker, 1, 0, 3, "poor")
    start = weights(worker)
    texts = [row["token_ids"] for row in store.completions(1, 0)]
    learn(worker)
    first = weights(worker)
    mark(worker, 4, 0, 3, "poor")
    learn(worker)
    second = weights(worker)
    assert not same(start, first) and not same(first, second)
    for kind, version, expected in (
        *(("undo", 1, first), ("undo", 0, start)),
        *(("redo", 1, first), ("redo", 2, second), ("undo", 1, first), ("undo", 0, start)),
    ):
        store.add_job(kind)
        (job,) = work(worker)
        assert (job["state"], store.get("version")) == ("done", version)
        assert same(weights(worker), expected), (kind, version)
    # The same samples, number for number, from the weights that came back.
    assert worker.model is not None
    again = worker.model.sample([store.prompt(1)], [len(texts)], [0])[1]
    assert [body["token_ids"] for body in again] == texts
    # A worker that starts anew reads the very same.
    other = Worker(worker.folder, store, worker.settings)
    other.model = other.load(lambda *_: None)
    other.model.load(2)
    assert same(weights(other), second)
    other.model.close()
    # Learning from here ends what could be redone, and takes a number of its own.
    row = learn(worker)
    assert (row["version"], row["parent"], store.get("redo")) == (3, 0, [])


def test_adapters_learn_and_go_back_as_well(tmp_path: Path, settings: StudioSettings) -> None:
    made = begun(tmp_path, replace(settings, policy=PolicySettings(lora=LoraSettings(rank=4))))
    mark(made, 1, 0, 3, "poor")
    start = weights(made)
    (shown,) = learn(made)["comparison"]["criticised"]
    assert sum(shown["after"][:4]) < sum(shown["before"][:4]) and not same(weights(made), start)
    made.store.add_job("undo")
    work(made)
    assert same(weights(made), start)
    close(made)


def test_the_same_learning_gives_the_same_weights(tmp_path: Path, settings: StudioSettings) -> None:
    found = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        made = begun(tmp_path / name, settings)
        mark(made, 1, 0, 3, "poor")
        learn(made)
        found.append(weights(made))
        close(made)
    assert same(*found)


def test_a_correction_makes_what_it_put_in_likelier(worker: Worker) -> None:
    assert worker.model is not None
    say(worker, 1, feedback="", revision="The crane fell at noon.")
    direct = Direct(worker.model, LearnData.of(worker.store, 0, 4, 99))
    assert direct.corrections is not None
    learn(worker)
    rows = list(read_jsonl(worker.folder / "runs" / "learn-00001" / "metrics.jsonl"))
    numbers = [row["direct/corrected"] for row in rows if "direct/corrected" in row]
    assert numbers[-1] > numbers[0] + 0.5


def test_only_what_a_correction_changed_is_a_target(worker: Worker) -> None:
    assert worker.model is not None
    row = worker.store.completion(1)
    prompt = worker.store.prompt(row["prompt"])
    text = "Nobody was hurt, said the port's master on Monday."
    _, (made,) = worker.model.encoded(words.example_in(prompt), [text])
    body = {**row, **made.to_json(), "logprobs": [-1.0] * len(made.token_ids)}
    data = LearnData.of(worker.store, 0, 0, 99)
    said = {"revision": text.replace("Monday", "Tuesday"), "score": None, "feedback": "", "author": "Ada"}
    found: dict[str, list[Any]] = {"spans": [], "missed": [], "omissions": []}
    critique = {"id": 1, "completion": 1, "prompt": row["prompt"], "version": 1, "alignment": found, **said}
    data = replace(data, critiques=[critique], completions={1: body}, prompts={row["prompt"]: prompt})
    batch = Direct(worker.model, data).corrections
    assert batch is not None
    counted = [int(i) for i in batch.loss_weights_BT[0].nonzero()[:, 0]]
    _, (revised,) = worker.model.encoded(words.example_in(prompt), [said["revision"] or ""])
    covered = "".join(revised.text[slice(*revised.offsets[i])] for i in counted)
    assert "Tuesday" in covered and len(covered) <= len(" Tuesday.")


def test_scores_of_two_completions_move_them_apart(worker: Worker) -> None:
    assert worker.model is not None
    say(worker, 1, feedback="", score=1.0)
    say(worker, 2, feedback="", score=-0.5)
    say(worker, 4, feedback="", score=1.0)  # alone with its prompt: nothing to compare it with
    gains = Direct(worker.model, LearnData.of(worker.store, 0, 0, 99))._by_scores()
    # Above the other by 1.5, which counts as 1, of which half.
    assert [float(row[0]) for row in gains] == [0.5, -0.5, 0.0]


def test_what_is_new_comes_first_where_there_is_more_than_there_are_turns(worker: Worker) -> None:
    one, two, three = (mark(worker, number, 0, 3, "poor") for number in (1, 4, 7))
    with worker.store.writing():
        body = {"updates": 1, "learned": {str(three): 1}}
        worker.store.add_version(1, 0, body, {})

    def chosen(most: int) -> set[int]:
        return {row["id"] for row in LearnData.of(worker.store, 1, 0, most).critiques}

    assert chosen(1) == {two} and chosen(2) == {one, two} and chosen(9) == {one, two, three}


@pytest.mark.parametrize("critic", ["reference", "task"])  # `reference` is the critic of this task
def test_rl_with_a_critic_is_told_apart(tmp_path: Path, settings: StudioSettings, critic: str) -> None:
    made = begun(tmp_path, replace(settings, critic=critic))
    assert all(row["score"] is not None for row in made.store.completions(1, 0))
    row = learn(made, ("rl",), updates=2)
    assert row["parts"] == ["rl"] and row["comparison"]["criticised"] == [] and row["learned"] == {}
    rows = list(read_jsonl(tmp_path / "runs" / "learn-00001" / "metrics.jsonl"))
    assert "score/mean" in rows[-1] and not any(key.startswith("direct/") for key in rows[-1])
    mark(made, 1, 0, 3, "poor")
    assert learn(made, ("direct", "rl"), updates=2)["parts"] == ["direct", "rl"]
    close(made)


def test_the_run_folder_is_one_that_report_and_export_read(worker: Worker, tmp_path: Path) -> None:
    mark(worker, 1, 0, 3, "poor")
    learn(worker)
    folder = worker.folder / "runs" / "learn-00001"
    page = build(read_runs([folder]))
    assert page.completions and b"Blamed tokens" in page.html
    target = tmp_path / "exported"
    assert main(["export", str(folder), str(target)]) == 0
    from text2grad.models.load import load_model

    model, _ = load_model(str(target))
    assert worker.model is not None
    mine = worker.model.policy.model.state_dict()
    assert all(torch.equal(weight, mine[name]) for name, weight in model.state_dict().items())


def test_a_cancelled_or_failed_learn_changes_nothing(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    store = worker.store
    mark(worker, 1, 0, 3, "poor")
    before = weights(worker)
    for problem, state in ((Cancelled(), "interrupted"), (RuntimeError("out of luck"), "failed")):

        def told(_: Progress, progress: float, __: str, problem: Exception = problem) -> None:
            if progress > 0.5:
                raise problem

        with monkeypatch.context() as patched:
            patched.setattr(Progress, "__call__", told)
            store.add_job("learn", "Ada", updates=4, parts=["direct"])
            (job,) = work(worker)
        assert job["state"] == state and store.get("version") == 0
        assert same(weights(worker), before) and not list((worker.folder / "runs").glob("learn-*"))
    assert "out of luck" in job["error"]
    learn(worker)


def test_a_given_completion_is_read_not_sampled(worker: Worker) -> None:
    from text2grad.types import Example

    body = words.example_body(Example("own", "0: Nobody was hurt."), ["A crane fell."])
    (number,) = worker.store.add_prompts([body], "Ada")
    worker.store.add_job("sample", prompt=number, count=3)
    work(worker)
    (row,) = worker.store.completions(number, 0)
    assert row["text"] == "A crane fell." and len(row["logprobs"]) == len(row["token_ids"])
    worker.store.add_job("sample", "Ada", prompt=number, count=2, more=True)
    work(worker)
    assert len(worker.store.completions(number, 0)) == 3


def test_a_prompt_that_is_too_long_fails_alone(worker: Worker) -> None:
    from text2grad.types import Example

    (number,) = worker.store.add_prompts([words.example_body(Example("own", "long " * 600))], "Ada")
    assert worker.ahead() is True and worker.ahead() is False
    worker.store.add_job("sample", prompt=number, count=3)
    (job,) = work(worker)
    assert job["state"] == "failed" and "tokens" in job["error"]


def test_warnings_say_what_to_do() -> None:
    (fell, far) = warnings_of({"held_out/score": 0.5}, {"held_out/score": 0.4}, 0.2, 0)
    assert "fell from 0.500 to 0.400" in fell and "Undo" in fell and "0.20 per token" in far
    assert warnings_of({"held_out/score": 0.5}, {"held_out/score": 0.6}, 0.01, 0) == []
    assert "no held-out score" in warnings_of({}, {}, 0.0, 0)[0]

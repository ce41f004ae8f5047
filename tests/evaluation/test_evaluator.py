"""The Evaluator with a writer made by hand: what is measured, what the best of n is, and several processes."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any, TypeVar

import pytest

from text2grad.errors import InvalidData
from text2grad.evaluation.evaluator import Evaluation, Evaluator
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.judge import RewardFunction
from text2grad.feedback.settings import Scoring
from text2grad.models.sampling import Seed
from text2grad.runs.world import World
from text2grad.tasks.task import Metric, mean_of
from text2grad.types import Completion, Critique, Example, Rollout

T = TypeVar("T")
EXAMPLES = [Example(f"e{n}", f"Prompt {n}.", columns={"wanted": str(n)}) for n in range(3)]


def write(examples: Sequence[Example], seed: Seed | None) -> list[Rollout]:
    """Greedy: "5". Sampled: a digit that depends on the seed and the index alone."""
    numbers = [5] * len(examples) if seed is None else [(seed.run + 7 * index) % 10 for index in seed.indices]
    return [
        Rollout(example, Completion(str(number), (number, 0), ((0, 1), (1, 1))), truncated=number == 9)
        for example, number in zip(examples, numbers, strict=True)
    ]


def highest(_prompts: Any, completions: Sequence[str], **_: Any) -> list[Critique | None]:
    return [Critique("", score=int(text)) for text in completions]


def lowest(_prompts: Any, completions: Sequence[str], **_: Any) -> list[Critique | None]:
    """Of digits below 8; the others are not scored."""
    return [Critique("", score=-int(text)) if int(text) < 8 else None for text in completions]


def nearest(_prompts: Any, completions: Sequence[str], wanted: Sequence[str], **_: Any) -> list[Critique | None]:
    return [Critique("", score=-abs(int(text) - int(want))) for text, want in zip(completions, wanted, strict=True)]


OPENED: list[RewardFunction] = []


def by(critic: Any) -> RewardFunction:
    OPENED.append(RewardFunction(critic, AlignSettings(), Scoring()))
    return OPENED[-1]


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def written(evaluation: Evaluation) -> list[str]:
    return [rollout.completion.text for rollout in evaluation.rollouts]


def test_greedy_is_one_completion_per_example_scored_with_its_columns() -> None:
    odd = Metric("odd", "Odd", "Odd digits.", "neither", mean_of(lambda _, text: int(text) % 2))
    greedy = Evaluator(EXAMPLES, by(nearest), metrics=[odd]).greedy(write)
    assert written(greedy) == ["5", "5", "5"]
    assert [rollout.score for rollout in greedy.rollouts] == [-5, -4, -3]
    assert greedy.metrics["held_out/score"] == -4 and greedy.metrics["held_out/odd"] == 1
    assert greedy.metrics["held_out/length"] == 2 and "held_out/critic_score" not in greedy.metrics
    assert [(rollout.group, rollout.index) for rollout in greedy.rollouts] == [(0, 0), (1, 1), (2, 2)]


def test_the_score_of_the_training_critic_stands_beside_that_of_the_measuring_one() -> None:
    greedy = Evaluator(EXAMPLES, by(highest), training_critic=by(lowest)).greedy(write)
    assert (greedy.metrics["held_out/score"], greedy.metrics["held_out/critic_score"]) == (5, -5)
    none = Evaluator(EXAMPLES, by(highest), training_critic=by(lambda _, texts, **__: [None] * len(texts)))
    assert "held_out/critic_score" not in none.greedy(write).metrics


def test_samples_are_a_function_of_the_seed() -> None:
    evaluator = Evaluator(EXAMPLES, by(highest))
    samples = evaluator.samples(write, 2, seed=1)
    assert written(samples) == ["1", "8", "5", "2", "9", "6"]
    assert [rollout.group for rollout in samples.rollouts] == [0, 0, 1, 1, 2, 2]
    assert samples.metrics["samples/score"] == pytest.approx(31 / 6)
    assert samples.metrics["samples/truncated_frac"] == pytest.approx(1 / 6)
    assert evaluator.samples(write, 2, seed=1) == samples
    assert written(evaluator.samples(write, 2, seed=2)) != written(samples)


def test_the_best_of_n_is_the_best_of_the_first_n() -> None:
    evaluator = Evaluator(EXAMPLES, by(highest))
    samples = evaluator.samples(write, 3, seed=0)
    assert written(samples) == ["0", "7", "4", "1", "8", "5", "2", "9", "6"]
    assert written(evaluator.best_of(samples, 1)) == ["0", "1", "2"]
    best = evaluator.best_of(samples, 3)
    assert written(best) == ["7", "8", "9"]
    assert best.metrics["best_of/score"] == 8
    with pytest.raises(InvalidData, match="best of 4 wants so many completions of each example, got 3"):
        evaluator.best_of(samples, 4)


def test_another_critic_may_choose_and_what_it_does_not_score_is_not_chosen() -> None:
    evaluator = Evaluator(EXAMPLES, by(highest), chooser=by(lowest))
    best = evaluator.best_of(evaluator.samples(write, 2, seed=1), 2)
    assert written(best) == ["1", "2", "6"]
    # Measured by the other critic.
    assert best.metrics["best_of/score"] == 3


def test_nothing_is_learned_from_what_is_only_evaluated() -> None:
    judge = by(highest)
    Evaluator(EXAMPLES, judge).greedy(write)
    assert judge.running_scale.state() == by(highest).running_scale.state()


def test_an_evaluation_wants_examples() -> None:
    with pytest.raises(InvalidData, match="at least one example"):
        Evaluator([], by(highest))


class Threads:
    """A world of several threads."""

    def __init__(self, size: int) -> None:
        self.size, self._barrier, self._box = size, Barrier(size, timeout=10), [None] * size

    def of(self, rank: int) -> World:
        threads = self

        class One(World):
            def __init__(self) -> None:
                self.rank, self.size = rank, threads.size

            def all_sum(self, numbers: Any) -> Any:
                raise NotImplementedError

            def all_gather(self, mine: T) -> list[T]:
                box: list[Any] = threads._box
                box[rank] = mine
                threads._barrier.wait()
                everybody = list(box)
                threads._barrier.wait()
                return everybody

            def broadcast(self, mine: T) -> T:
                return self.all_gather(mine)[0]

        return One()


@pytest.mark.parametrize("size", [2, 4])
def test_the_result_does_not_depend_on_the_number_of_processes(size: int) -> None:
    def evaluated(world: Any) -> tuple[Evaluation, Evaluation, Evaluation]:
        evaluator = Evaluator(EXAMPLES, by(highest), training_critic=by(lowest), chooser=by(nearest), **world)
        samples = evaluator.samples(write, 3, seed=4)
        return evaluator.greedy(write), samples, evaluator.best_of(samples, 3)

    threads = Threads(size)
    with ThreadPoolExecutor(size) as pool:
        together = list(pool.map(evaluated, [{"world": threads.of(rank)} for rank in range(size)]))
    assert all(result == evaluated({}) for result in together)

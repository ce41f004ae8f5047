"""What verdicts are worth: laws for any scores and verdicts, and each case once by hand."""

import json
import random
from collections.abc import Callable, Hashable, Sequence

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from text2grad.errors import RunError
from text2grad.feedback.scales import RunningScale, RunningSpread, _never_negative, among_prompts

NUMBERS = st.floats(-5, 5, allow_nan=False, width=32)
PAIRS = st.lists(st.tuples(st.integers(-8, 8), NUMBERS), min_size=2, max_size=40)
TWO = (1.0, -1.0)
"""One slope for good verdicts, one for poor ones."""


def price(rows: Sequence[tuple[float, ...]], prompts: Sequence[Hashable] = ()) -> float:
    """Of the sum of all verdicts; without `prompts` each row has its own."""
    return prices(rows, prompts, (1.0,))[0]


def prices(
    rows: Sequence[tuple[float, ...]],
    prompts: Sequence[Hashable] = (),
    signs: tuple[float, ...] = TWO,
    length_signs: tuple[float, ...] = (),
) -> tuple[float, ...]:
    scale = RunningScale(signs, length_signs)
    scale.see(rows, prompts or range(len(rows)))
    return scale.value


@given(PAIRS, st.integers(1, 5))
def test_the_price_lies_between_the_prior_and_least_squares(pairs: list[tuple[int, float]], parts: int) -> None:
    scale = RunningScale()
    for part in range(parts):
        some = [(float(x), y) for x, y in pairs][part::parts]
        scale.see(some, range(len(some)))
    x, y = np.array(pairs, dtype=float).T
    assume(float(np.std(y)) > 1e-4)  # what is less is rounding, and counts as equal
    prior = 0.5 * float(np.std(y)) / max(1.0, float(np.mean(x * x)) ** 0.5)
    slope = float(np.polyfit(x, y, 1)[0]) if len(set(x)) > 1 else prior
    evidence = float(((y - y.mean()) ** 2).sum()) / float(np.abs(y - y.mean()).max()) ** 2
    assert scale.value[0] == pytest.approx(max(0.0, (16 * prior + evidence * slope) / (16 + evidence)), abs=1e-5)


def test_the_price_by_hand() -> None:
    # x = 0, 1, 2, 5; y = 1, 1, 2, 6. Means 2 and 2.5. Σ (x − 2)(y − 2.5) = 3 + 1.5 + 0 + 10.5 = 15; Σ (x − 2)² = 14.
    # Σ (y − 2.5)² = 17, so the scores spread by √(17/4); the farthest is 3.5 from the mean: evidence 17 / 12.25.
    # Verdict sums are of size √(30/4), so the prior is half of √(17/30).
    evidence, prior = 17 / 12.25, 0.5 * (17 / 30) ** 0.5
    found = price([(0.0, 1.0), (1.0, 1.0), (2.0, 2.0), (5.0, 6.0)])
    assert found == pytest.approx((16 * prior + evidence * 15 / 14) / (16 + evidence))
    assert RunningScale().value == (0.0,)


@pytest.mark.parametrize("verdicts", [(-1.0, -1.0), (0.0, -1.0), (0.0, 0.0)])
def test_equal_scores_leave_the_prior(verdicts: tuple[float, ...]) -> None:
    """All programs fail: the words still say where. A verdict is worth half of 1, the unit while nothing is known."""
    assert price([(x, 0.0) for x in verdicts] * 50) == 0.5
    assert price([(x, 0.0) for x in verdicts] * 50, [0, 1] * 50) == 0.5


def test_one_success_among_many_failures_does_not_outweigh_the_prior() -> None:
    # The evidence of one success is that of about one completion, against 16: a seventeenth of the way.
    prior = 0.5 * (0.001 * 0.999) ** 0.5
    assert price([(-1.0, 0.0)] * 999 + [(0.0, 1.0)]) == pytest.approx(prior + (1 - prior) / 17, rel=0.01)


def test_the_price_moves_from_the_prior_by_the_completions_that_differ() -> None:
    # 60 failures, all blamed once: nothing is known, so half of the unit 1. Blamed twice: half of that.
    assert price([(-1.0, 0.0)] * 60) == 0.5
    assert price([(-2.0, 0.0)] * 60) == 0.25
    # Then 20 successes without blame: mean 1/4, Σ (y − ¼)² = 60/16 + 20 · 9/16 = 15, spread √(15/80), slope 1. The
    # farthest is ¾ from the mean: evidence 15 · 16/9 = 80/3, against 16. Verdict sums are below 1, so they count as 1.
    prior = 0.5 * (15 / 80) ** 0.5
    found = price([(-1.0, 0.0)] * 60 + [(0.0, 1.0)] * 20)
    assert found == pytest.approx((16 * prior + 80 / 3) / (16 + 80 / 3)) == pytest.approx(0.706, abs=5e-4)


def ordinary(seed: int, kind: str, size: float, batch: int) -> list[list[float]]:
    """Scores of 40 updates."""
    draw = random.Random(seed)
    kinds: dict[str, Callable[[], float]] = {
        "even": draw.random,
        "normal": lambda: draw.gauss(3, 1),
        "rare success": lambda: float(draw.random() < 0.002),
        "shares": lambda: draw.choice([0, 1 / 4, 1 / 2, 3 / 4, 1]),
        "equal": lambda: 0.25,
    }
    return [[size * kinds[kind]() for _ in range(batch)] for _ in range(40)]


KINDS = st.sampled_from(["even", "normal", "rare success", "shares", "equal"])
SIZES = st.sampled_from([0.003, 0.1, 1.0, 16.0])
BATCHES = st.sampled_from([1, 4, 8, 32, 48])


@given(st.integers(0, 10_000), KINDS, SIZES, BATCHES, st.integers(1, 3))
def test_the_spread_of_ordinary_scores_is_the_plain_one_to_the_last_bit(
    seed: int, kind: str, size: float, batch: int, processes: int
) -> None:
    spread, count, total, squares, seen = RunningSpread(), 0.0, 0.0, 0.0, []
    for scores in ordinary(seed, kind, size, batch):
        seen += scores
        parts = [scores[process::processes] for process in range(processes)]
        low, high = spread.see(*parts)
        for part in parts:
            count, total, squares = count + len(part), total + sum(part), squares + sum(y * y for y in part)
        assert all(low <= score <= high for score in scores)
        apart = squares - total * total / count
        assert spread.value == ((max(apart, 0.0) / count) ** 0.5 if apart > 1e-12 * max(squares, 1e-12) else 1.0)
    assert spread.value == pytest.approx(float(np.std(seen)) if len(set(seen)) > 1 else 1.0, rel=1e-6)


@given(
    st.integers(0, 10_000),
    st.sampled_from(["even", "normal", "shares"]),
    SIZES,
    st.sampled_from([8, 32, 48]),
    st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.sampled_from([-1e6, -1e4, 1e4, 1e6])), max_size=2),
)
def test_an_outlier_is_forgotten(
    seed: int, kind: str, size: float, batch: int, outliers: list[tuple[int, int, float]]
) -> None:
    """Up to two within 8 updates; in small batches one, since two of eight are more than the tenth that may be wild.
    Each counts as 20 spreads afterwards, so as 400 / n of the variance."""
    outliers = outliers[: 1 if batch == 8 else 2]
    spread, plain = RunningSpread(), RunningSpread()
    for update, scores in enumerate(ordinary(seed, kind, size, batch) * 3):
        plain.see(scores)
        spoilt = {place: score for when, place, score in outliers if when == update}
        spread.see([spoilt.get(place, score) for place, score in enumerate(scores)])
        if spoilt:  # in its own update it counts in full: no reward is beyond √n
            assert spread.value > 1e4 / (2 * spread.count) ** 0.5
    assert 0.5 < spread.value / plain.value < 2


def test_what_an_outlier_counts_by_hand() -> None:
    spread = RunningSpread()
    spread.see([0.0, 1.0] * 4)  # mean ½, spread ½: up to 10½ nothing is an outlier
    assert spread.see([1e6]) == (-9.5, 10.5)
    assert spread.value == pytest.approx(1e6 * 8**0.5 / 9, rel=1e-5)
    spread.see([])
    assert spread.value == pytest.approx(((4 + 10.5**2) / 9 - (14.5 / 9) ** 2) ** 0.5)
    again = RunningSpread()
    again.restore(spread.state())
    assert again == spread
    # In the first update: seven zeros are nearest to the median, and their unit is 1.
    first = RunningSpread()
    assert first.see([0.0] * 7 + [-1e6]) == (-20.0, 20.0)


SUMS = st.floats(0, 4, allow_nan=False, width=16)


@given(st.lists(st.tuples(SUMS, NUMBERS), min_size=1, max_size=20))
def test_with_good_spans_alone_the_slope_is_that_of_one(rows: list[tuple[float, float]]) -> None:
    good, poor = prices([(good, 0.0, score) for good, score in rows])
    assert good == pytest.approx(price(rows), rel=1e-6, abs=1e-9)
    assert poor >= 0, "nothing is known of poor ones, so they cost the prior"


ROWS = st.lists(st.tuples(st.integers(0, 3), SUMS, SUMS, NUMBERS), max_size=20)


@given(ROWS, ROWS)
def test_prices_are_never_negative_and_survive_a_file(
    rows: list[tuple[int, float, float, float]], more: list[tuple[int, float, float, float]]
) -> None:
    scale, again = RunningScale(TWO), RunningScale(TWO)
    scale.see([row for _, *row in rows], [prompt for prompt, *_ in rows])  # type: ignore[misc]
    assert all(0 <= value < np.inf for value in scale.value)
    assert {type(number) for number in scale.state()} == {float}, "a checkpoint holds nothing of numpy's"
    again.restore(json.loads(json.dumps(scale.state())))
    for each in (scale, again):
        each.see([row for _, *row in more], [prompt for prompt, *_ in more])  # type: ignore[misc]
    assert again.value == scale.value and again.count == len(rows) + len(more)
    assert again.state() == scale.state()


@pytest.mark.parametrize("size", [8, 18, 19, 0])
def test_what_another_version_learned_is_refused(size: int) -> None:
    with pytest.raises(RunError, match="Resume with that version and those settings, or start in another folder"):
        RunningScale(TWO).restore([1.0] * size)


def test_two_slopes_say_what_each_kind_is_worth() -> None:
    """score = 2 × good − ½ × poor, with five poor for each good: one slope would make them alike. And where poor words
    raise the score, they cost nothing."""
    rows = [(good, poor, 2 * good - 0.5 * poor) for good in (0.0, 1.0, 2.0) for poor in (3.0, 5.0, 9.0)] * 200
    assert prices(rows) == pytest.approx((2.0, 0.5), rel=0.05)
    assert 0.5 < price([(good - poor, score) for good, poor, score in rows]) < 1
    good, poor = prices([(good, poor, good + poor) for good, poor, _ in rows])
    assert poor == 0 and good == pytest.approx(1, rel=0.1)


def test_a_slope_that_explains_the_score_is_kept() -> None:
    """Good and poor words rise together, as with length. The two slopes of least squares are both negative; good words
    alone still explain the score: 0.63 each, as a dense search over both finds, too."""
    rows = [(4.0, 17.0, 2.5), (2.0, 12.0, 2.5), (0.0, 0.0, 0.0), (2.0, 9.0, 1.4), (1.0, 7.0, 1.6), (0.0, 0.0, 0.0)]
    assert prices(rows * 200) == pytest.approx((0.63, 0.0), abs=0.005)
    tens = [(10 * good, poor, score) for good, poor, score in rows]
    assert prices(tens * 200) == pytest.approx((0.063, 0.0), abs=0.002)


@given(
    st.lists(st.tuples(*[st.floats(-3, 3)] * 2), min_size=2, max_size=2),
    st.tuples(st.floats(-3, 3), st.floats(-3, 3)),
    st.tuples(st.floats(0, 5), st.floats(0, 5)),
)
def test_nothing_that_is_not_negative_fits_better(
    sides: list[tuple[float, float]], wanted: tuple[float, float], other: tuple[float, float]
) -> None:
    normal = np.array(sides) @ np.array(sides).T + np.eye(2)
    found = _never_negative(normal, np.array(wanted))

    def cost(point: np.ndarray) -> float:
        return float(point @ normal @ point / 2 - np.array(wanted) @ point)

    assert (found >= 0).all() and cost(found) <= cost(np.array(other)) + 1e-9


PROMPTS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-4, 4), NUMBERS), min_size=1, max_size=30)


@given(PROMPTS, st.dictionaries(st.sampled_from("abc"), st.floats(-3, 3, width=16)))
def test_what_is_the_same_in_a_whole_prompt_changes_no_price(
    rows: list[tuple[str, int, float]], shifts: dict[str, float]
) -> None:
    prompts = [prompt for prompt, *_ in rows]
    within = np.array(among_prompts([(float(x), y) for _, x, y in rows], prompts)).reshape(-1, 2)
    assume(len(within) and float((within[:, 1] ** 2).sum()) > 1e-6)  # below this, rounding alone tells them apart
    plain = price([(float(x), y) for _, x, y in rows], prompts)
    shifted = price([(float(x), y + shifts.get(prompt, 0.0)) for prompt, x, y in rows], prompts)
    assert shifted == pytest.approx(plain, rel=1e-4, abs=1e-5)


EASY_AND_HARD = [(x, level + 0.05 * x) for level, least in ((0.1, 0.0), (0.65, 5.0)) for x in (least, least + 1)] * 400
"""Between the prompts, five more praised words go with 0.8 more; within each, one more goes with 0.05."""
FOUR = [name for n in range(400) for name in (f"hard {n}", f"hard {n}", f"easy {n}", f"easy {n}")]


@pytest.mark.parametrize("signs", [(1.0,), TWO])
def test_an_easy_prompt_with_much_praise_does_not_make_praise_dear(signs: tuple[float, ...]) -> None:
    rows: list[tuple[float, ...]] = [(x, *[0.0] * (len(signs) - 1), y) for x, y in EASY_AND_HARD]
    assert prices(rows, (), signs)[0] > 0.14
    assert prices(rows, FOUR, signs)[0] == pytest.approx(0.05, rel=0.05)


def test_completions_that_are_alone_do_not_mix_with_those_of_a_prompt() -> None:
    """Some are not scored, or a prompt is drawn once in a while: prices stay those of prompts with several."""
    scale = RunningScale()
    scale.see(EASY_AND_HARD, FOUR)
    before = scale.value
    for _ in range(40):
        scale.see(EASY_AND_HARD[::2], range(len(EASY_AND_HARD[::2])))
    assert scale.value == pytest.approx(before, rel=0.01)
    # While all are alone, they are all there is.
    assert price(EASY_AND_HARD[::2]) > 0.14
    assert among_prompts([(1.0, 0.5), (3.0, 0.9), (7.0, -4.0)], "abc") == [] == among_prompts([], [])
    half = 2**0.5
    found = among_prompts([(1.0, 0.5), (3.0, 0.9), (7.0, -4.0)], "aab")
    assert np.allclose(found, [(-half, -0.2 * half), (half, 0.2 * half)])


def test_where_each_prompt_has_one_score_prompts_still_say_what_the_unit_is() -> None:
    """A policy that hardly varies: all completions of a prompt score alike. Verdicts are worth half a deviation of what
    prompts score, in the unit of the scores."""
    for unit in (0.001, 1.0, 100.0):
        assert price([(1.0, 0.0), (1.0, 0.0), (1.0, unit), (1.0, unit)] * 9, [*"aabb"] * 9) == pytest.approx(unit / 4)


@pytest.mark.parametrize("score", [0.1, 1e6 / 3, -1e-9])
def test_equal_scores_of_a_prompt_are_exactly_equal(score: float) -> None:
    """The mean of three equal numbers may differ from them in the last bit; that is not a difference of scores."""
    rows = [(1.0, score), (2.0, score), (4.0, score)]
    assert [y for _, y in among_prompts(rows, "aaa")] == [0.0] * 3
    assert price(rows, "aaa") == pytest.approx(0.5 / 7**0.5)  # the prior: half of 1, over the size of 1, 2 and 4


def test_verdicts_that_are_alike_in_a_prompt_keep_their_usual_size() -> None:
    """Each program is blamed twice, and all fail: both together cost half of the unit, as without prompts."""
    assert price([(-2.0, 0.0)] * 60, [*"ab"] * 30) == 0.25
    assert prices([(0.0, 2.0, 0.0)] * 60, [*"ab"] * 30) == (0.25, 0.25)
    # Of ten that are alone, with eight verdicts each, the usual size is of all rows.
    alone = [(8.0, 0.0)] * 10 + [(-2.0, 0.0)] * 2
    assert price(alone, [*range(10), "a", "a"]) == pytest.approx(0.5 / ((10 * 64 + 2 * 4) / 12) ** 0.5)


def test_what_length_is_worth_is_told_from_what_a_verdict_is_worth() -> None:
    """score = 0.1 × verdicts + 0.8 × share of the text: each is found, with one slope and with two."""
    draw = random.Random(0)
    rows = [(float(draw.randint(-3, 3)), draw.uniform(-1, 1)) for _ in range(4000)]
    one = prices([(x, share, 0.1 * x + 0.8 * share) for x, share in rows], (), (1.0,), (1.0,))
    assert one == pytest.approx((0.1, 0.8), rel=0.03)
    sums = [(float(draw.randint(0, 3)), float(draw.randint(0, 3)), draw.random(), draw.random()) for _ in range(4000)]
    scored = [(*row, 0.2 * row[0] - 0.1 * row[1] + 0.8 * row[2] - 0.4 * row[3]) for row in sums]
    assert prices(scored, (), TWO, TWO) == pytest.approx((0.2, 0.1, 0.8, 0.4), rel=0.05)


def test_where_scores_say_nothing_length_is_worth_nothing() -> None:
    assert RunningScale((1.0,), (1.0,)).value == (0.0, 0.0)
    assert prices([(1.0, 0.5, 0.3), (-1.0, -0.2, 0.3)] * 20, (), (1.0,), (1.0,)) == (0.5, 0.0)


def test_prices_by_length_by_hand() -> None:
    # Verdicts 0 throughout; shares 0, 0.5, 1 and scores 0, 1, 1. Means ½ and ⅔; Σ (s − ½)² = ½, Σ (s − ½)(y − ⅔) = ½,
    # Σ (y − ⅔)² = ⅔, the farthest is ⅔ from the mean: evidence ⅔ / (4/9) = 3/2. The slope 1 is shrunk towards 0 by 16.
    found = prices([(0.0, 0.0, 0.0), (0.0, 0.5, 1.0), (0.0, 1.0, 1.0)], (), (1.0,), (1.0,))
    assert found[1] == pytest.approx(1.5 / (1.5 + 16))

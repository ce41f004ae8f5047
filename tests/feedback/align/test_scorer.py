"""From chances to words, and which scorer is asked: numbers worked by hand."""

from collections.abc import Sequence

import numpy as np
import pytest

from text2grad import align
from text2grad.feedback.align import paraphrase
from text2grad.feedback.align.context import CONTEXT
from text2grad.feedback.align.evidence import COLUMNS
from text2grad.feedback.align.scorer import Rows, SentenceScorer, best_words, pool, sentence_scorer
from text2grad.feedback.align.settings import ParaphraseSettings


@pytest.mark.parametrize(
    ("chances", "lengths", "expected"),
    [
        # Both words are meant with a chance of 0.5, the first alone with 0.3. Both: 0.5 + 0.3 × 2/3 = 0.7;
        # the first: 0.5 × 2/3 + 0.3 = 0.63.
        ([0.8, 0.5], [5, 5], [True, True]),
        # Both: 0.3 + 0.5 × 2/3 = 0.63; the first: 0.3 × 2/3 + 0.5 = 0.7.
        ([0.8, 0.3], [5, 5], [True, False]),
        # With a long second word, both: 0.3 + 0.5 × 4/22 = 0.39; the first: 0.3 × 4/22 + 0.5 = 0.55.
        ([0.8, 0.3], [2, 18], [True, False]),
        # Where that is likelier, both: 0.5 + 0.3 × 4/22 = 0.55; the first: 0.5 × 4/22 + 0.3 = 0.39.
        ([0.8, 0.5], [2, 18], [True, True]),
        # Nothing is likely, but one word more than the threshold.
        ([0.15, 0.02], [5, 5], [True, False]),
        ([0.11, 0.1], [5, 5], [False, False]),
        ([], [], []),
    ],
)
def test_the_words_with_the_highest_expected_f1(chances: list[float], lengths: list[int], expected: list[bool]) -> None:
    found = best_words(np.array(chances, dtype=np.float32), np.array(lengths), ParaphraseSettings(threshold=0.12))
    assert found.tolist() == expected


def _gated(weights: list[float], bias: float) -> SentenceScorer:
    gate = {"mean": [0.5, 1.0], "scale": [0.5, 1.0], "weights": weights, "bias": bias}
    return SentenceScorer({"mean": [0.0], "scale": [1.0], "nets": [{}], "gate": gate})


def test_the_gate_reads_mean_and_maximum_of_each_column() -> None:
    rows = [np.array([[1.0], [0.0]], dtype=np.float32), np.array([[2.0]], dtype=np.float32)]
    assert pool(rows).tolist() == [1.0, 2.0]
    # (1 − 0.5) / 0.5 = 1 and (2 − 1) / 1 = 1; the least log-odds are 1.5.
    assert _gated([1.0, 0.75], -0.25).knows(rows)
    assert not _gated([1.0, 0.75], -0.5).knows(rows)


class Known:
    """A sentence scorer that knows every critique, or none, and means every second word."""

    def __init__(self, *, knows: bool) -> None:
        self.known, self.asked = knows, 0

    def knows(self, _sentences: Sequence[Rows]) -> bool:
        self.asked += 1
        return self.known

    def __call__(self, sentences: Sequence[Rows]) -> list[Rows]:
        return [(np.arange(len(rows)) % 2 == 0).astype(np.float32) for rows in sentences]


TEXT = "Seven ships left the harbour"


@pytest.mark.parametrize(
    ("knows", "critique", "expected"),
    [
        (True, "It was nine ships, not seven.", ["Seven", "left", "harbour"]),
        # Not known: words to be replaced come before all others, and the other scorer speaks.
        (False, "It was nine ships, not seven.", ["Seven"]),
    ],
)
def test_where_the_gate_knows_a_critique_the_rules_stand_aside(
    knows: bool, critique: str, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paraphrase, "sentence_scorer", lambda *_: Known(knows=knows))
    assert [span.slice(TEXT) for span in align(TEXT, critique).spans] == expected


def test_praise_does_not_ask_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = Known(knows=True)
    monkeypatch.setattr(paraphrase, "sentence_scorer", lambda *_: scorer)
    align(TEXT, "The harbour is lovely.")
    assert scorer.asked == 0
    align(TEXT, "The harbour is wrong.")
    assert scorer.asked == 1


def test_sentences_are_scored_alike_alone_and_together() -> None:
    scorer = sentence_scorer(COLUMNS, CONTEXT)
    assert scorer is not None
    draw = np.random.default_rng(0)
    rows = [draw.random((length, len(COLUMNS) + len(CONTEXT)), dtype=np.float32) for length in (3, 1, 0, 7)]
    for alone, chances in zip(rows, scorer(rows), strict=True):
        np.testing.assert_allclose(scorer([alone])[0], chances, rtol=1e-4, atol=1e-5)

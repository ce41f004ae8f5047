"""Many at once gives what one by one gives."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from text2grad import align
from text2grad.feedback.align import Pair, align_many

PAIRS = [
    Pair("Nine ships left on Tuesday.", 'The "on Tuesday" is wrong.'),
    Pair("The dam broke. The mayor spoke. Nobody came.", "Those officials talked rubbish."),
    Pair("The dam broke at noon.", "The time is made up.", source="The dam broke."),
    Pair("Boil it for forty minutes.", "It will bounce.", revision="Boil it for eight minutes."),
]


class Letters:
    """An embedder of letter counts, and how often it was called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.calls += 1
        rows = np.array(
            [[text.lower().count(letter) + 0.01 for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]
        )
        unit: NDArray[np.float32] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        return unit


@settings(deadline=None)
@given(st.permutations(range(len(PAIRS))))
def test_independent_of_order(order: list[int]) -> None:
    alone = [align(p.completion, p.critique, source=p.source, revision=p.revision) for p in PAIRS]
    assert list(align_many(PAIRS[index] for index in order)) == [alone[index] for index in order]


def test_the_embedder_is_asked_once_for_all() -> None:
    embed = Letters()
    together = list(align_many(PAIRS, embed=embed))
    assert embed.calls == 1
    alone = [align(p.completion, p.critique, source=p.source, revision=p.revision, embed=Letters()) for p in PAIRS]
    assert together == alone
    assert any(span.provenance == "paraphrase" for span in together[1].spans)

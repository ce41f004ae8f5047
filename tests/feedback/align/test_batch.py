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


class Officials:
    """An embedder that knows one meaning, and how often it was called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.calls += 1
        rows = [[1.0, 0.0] if "mayor" in text or "officials" in text else [0.0, 1.0] for text in texts]
        return np.array(rows, dtype=np.float32)


@settings(deadline=None)
@given(st.permutations(range(len(PAIRS))))
def test_independent_of_order(order: list[int]) -> None:
    alone = [align(p.completion, p.critique, source=p.source, revision=p.revision) for p in PAIRS]
    assert list(align_many(PAIRS[index] for index in order)) == [alone[index] for index in order]


def test_the_embedder_is_asked_once_for_all() -> None:
    embed = Officials()
    together = list(align_many(PAIRS, embed=embed))
    assert embed.calls == 1
    alone = [align(p.completion, p.critique, source=p.source, revision=p.revision, embed=Officials()) for p in PAIRS]
    assert together == alone
    assert [span.slice("The dam broke. The mayor spoke. Nobody came.") for span in together[1].spans] == [
        "The mayor spoke"
    ]

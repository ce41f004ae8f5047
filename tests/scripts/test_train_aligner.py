"""What the training writes is what the scorers read."""

import numpy as np
import torch
from benchmarks.gold import Item
from benchmarks.gold.items import visible
from scripts.train_aligner import Case, SentenceReader, _export_sentences, alone, train_gate, train_sentences

from text2grad.feedback.align.scorer import SentenceScorer


def _case(rows: list[list[float]]) -> Case:
    ones = np.ones(len(rows), dtype=np.float32)
    none = np.zeros((len(rows), 0), dtype=np.float32)
    return Case([np.array(rows, dtype=np.float32)], [none], [ones], [ones], 1.0)


def test_numpy_reads_sentences_as_torch_does() -> None:
    torch.manual_seed(0)
    net = SentenceReader(4, 3, 0.5).eval()
    rows = torch.rand(1, 6, 4)
    moments = {"mean": [0.0] * 4, "scale": [1.0] * 4, "gate": {}}
    scorer = SentenceScorer({**moments, "nets": [_export_sentences(net)]})
    with torch.no_grad():
        expected = torch.sigmoid(net(rows, torch.tensor([6])))[0]
    np.testing.assert_allclose(scorer([rows[0].numpy()])[0], expected, atol=1e-3)


def test_a_gate_tells_its_own_kind_from_the_others() -> None:
    own = [_case([[0.0, 1.0], [0.1 * k, 1.0]]) for k in range(5)]
    others = [_case([[1.0, 0.1 * k]]) for k in range(5)]
    gate = train_gate(own, [others[:2], others[2:]])
    scorer = SentenceScorer({**train_sentences(own, [0], epochs=1), "gate": gate})
    assert all(scorer.knows(case.rows) for case in own)
    assert not any(scorer.knows(case.rows) for case in others)


def test_a_sentence_alone_keeps_its_gold() -> None:
    text = "It rained. He left at dawn."
    at = text.index("dawn")
    item = Item("facts", "1", text, "Not at dawn.", None, None, frozenset(range(at, at + 4)), visible(text))
    cut = alone(item)
    assert cut is not None
    assert cut.completion in ("He left at dawn", "He left at dawn.")
    assert "".join(cut.completion[place] for place in sorted(cut.gold)) == "dawn"
    spread = frozenset({text.index("rained"), at})
    assert alone(Item("facts", "2", text, "Wrong.", None, None, spread, visible(text))) is None

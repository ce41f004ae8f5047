"""The study of a learned reader: rows and places by hand, and a few steps of all of it on made-up items."""

import gzip
import json
import pickle
import random
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.gold import Item
from hypothesis import given
from hypothesis import strategies as st
from studies.align import data, evaluate, reader, train
from studies.align.reader import Card, Encoder, Network, decode
from studies.align.rung import reading

from text2grad import align
from text2grad.feedback.text import WORD

PLACES = [(0, 1), (2, 3), (5, 6), (7, 8), (9, 10)]
TEXT = "a b. c d e"


def item(kind: str, number: int) -> Item:
    text = f"Ship {number} left the quiet harbour. It came back at noon with nine crates."
    start = text.index("at noon")
    gold = frozenset(k for k in range(start, start + 7) if text[k] != " ")
    universe = frozenset(k for k, character in enumerate(text) if not character.isspace())
    return Item(
        kind, f"{kind}{number}", text, "The hour of noon is wrong.", None, "It came back at dusk.", gold, universe
    )


def tiny_encoder(folder: Path) -> Path:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel

    words = ["the", "hour", "of", "noon", "is", "wrong", "ship", "left", "it", "came", "back", "at", "nine", "crates"]
    names = ["[UNK]", "[CLS]", "[SEP]", *words]
    tokenizer: Any = Tokenizer(models.WordLevel({name: index for index, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    BertModel(BertConfig(vocab_size=train.MASKED + 1, **sizes)).save_pretrained(folder)
    return folder


@dataclass
class Asked:
    completion: str
    critique: str
    source: str | None = None


def test_rows_by_hand() -> None:
    @dataclass
    class Tokens:
        ids: list[int]
        offsets: list[tuple[int, int]]

    class Words:
        def no_truncation(self) -> None: ...
        def no_padding(self) -> None: ...
        def encode_batch(self, texts: list[str], add_special_tokens: bool) -> list[Tokens]:
            assert not add_special_tokens
            found = [list(WORD.finditer(text)) for text in texts]
            return [Tokens([len(m[0]) for m in matches], [m.span() for m in matches]) for matches in found]

    encode = Encoder(Words(), 101, 102, Card("e", window=3, stride=2))
    (each,) = encode([Asked("The seven ships sailed home", "Ships: seven?", "nine ships")])
    first, second = each.rows
    assert first.ids == [101, 5, 5, 102, 3, 5, 5, 102] and first.types == [0, 0, 0, 0, 1, 1, 1, 1]
    assert (first.first, first.units, second.units) == (4, [0, 1, 2], [2, 3, 4])
    # Shared by critique and completion: 4. Of the source: 1 it has it, 2 it lacks it, 3 a function word.
    assert first.flags == [0, 4 + 1, 4 + 2, 0, 3, 4 + 2, 4 + 1, 0]
    (bare,) = encode([Asked("seven", "eight")])
    assert bare.rows[0].flags == [0, 0, 0, 0, 0]


def test_places_by_hand() -> None:
    card = Card("e", threshold=0.2, certain=0.6, bridge=1)

    def found(*chance: float, **changes: Any) -> list[tuple[int, int, float]]:
        return decode(TEXT, PLACES, np.array(chance, dtype=np.float32), replace(card, **changes))

    assert found(0.9, 0.8, 0.9, 0.1, 0.7) == [(0, 3, 0.85), (5, 10, 0.5667)], "no place goes over a full stop"
    assert found(0.9, 0.1, 0.1, 0.1, 0.1, bridge=0) == [(0, 1, 0.9)]
    assert found(0.1, 0.1, 0.1, 0.19, 0.1) == []
    # None is certain: of 0.5, 0.4 and little else, two have the highest expected F1 (0.9·2/(2+0.95) = 0.61).
    assert found(0.01, 0.02, 0.5, 0.4, 0.02) == [(5, 8, 0.45)]


@given(st.lists(st.floats(0, 1, width=32), min_size=5, max_size=5), st.integers(0, 3))
def test_places_are_in_order_and_hold_what_is_certain(chance: list[float], bridge: int) -> None:
    card = Card("e", threshold=0.2, certain=0.6, bridge=bridge)
    found = decode(TEXT, PLACES, np.array(chance, dtype=np.float32), card)
    assert all(a[1] <= b[0] for a, b in pairwise(found))
    assert bool(found) == bool(np.array(chance, dtype=np.float32).max() >= card.threshold)
    for (start, end), value in zip(PLACES, chance, strict=True):
        if value >= 0.6:
            assert any(a <= start and end <= b for a, b, _ in found)


def test_probabilities_do_not_depend_on_the_batch(tmp_path: Path) -> None:
    from transformers import AutoModel

    folder = tiny_encoder(tmp_path)
    network = Network(AutoModel.from_pretrained(str(folder))).eval()
    questions = [Asked("It left at noon.", "The hour is wrong."), Asked("x", "?"), Asked("the ship " * 300, "Which?")]
    encoded = train.encoder_of(folder)([*questions, Asked("。。。", "What?")])
    together = reader.chances(network, encoded, 0)
    for each, chance in zip(encoded, together, strict=True):
        (alone,) = reader.chances(network, [each], 0, batch_tokens=1)
        np.testing.assert_allclose(chance, alone, atol=1e-5)
    assert [len(chance) for chance in together] == [4, 1, 600, 0] and len(encoded[2].rows) > 1


def test_it_stands_where_paraphrase_would_and_only_inside() -> None:
    text, asked = "It rained all day. He left at noon.", list[str]()

    def read(completion: str, critique: str) -> list[tuple[int, int, float]]:
        assert completion == text
        asked.append(critique)
        return [(27, 34, 0.8)]

    with reading(read):
        found = align(text, 'The "rained" is wrong. The hour is lovely.')
        assert [(s.slice(text), s.verdict) for s in found.spans] == [("rained", "poor"), ("at noon", "good")]
        named = align(text, "The first sentence is wrong.")
        assert [s.slice(text) for s in named.spans] == ["It rained all day"]
    align(text, "The hour is lovely.")
    assert asked == ["The hour is lovely."], "quotes and named sentences are not asked about"


def test_pairs_to_train_on() -> None:
    items = [item("a", n) for n in range(6)]
    assert data.asked_of(items[0]) == [items[0].critique]
    for row in data.among_others(items, random.Random(0)):
        assert [row["completion"][start:end] for start, end in row["spans"]] == ["at noon"]
        assert len(row["completion"]) > len(items[0].completion)
    assert all(row["spans"] == [] for row in data.nowhere(items, random.Random(0), 6))


def test_a_few_steps_of_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    items = {kind: [item(kind, n) for n in range(4)] for kind in ("a", "b")}
    rows = [data.to_train(each) for kind in items.values() for each in kind]
    for each in items["b"]:
        rows.append(data.record(each, "held out", "direct", each.critique))
        rows += [data.record(each, "held out", "asked", words, f"{each.name}#0") for words in data.asked_of(each)]
    pairs, cache = tmp_path / "pairs.jsonl.gz", tmp_path / "pairs.pickle"
    with gzip.open(pairs, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    folder = tiny_encoder(tmp_path / "encoder")
    known = train.read_data(pairs, folder)
    cache.write_bytes(pickle.dumps(known))
    job = train.Job("without b", "b", 0, True, 4, 3, float("inf"))
    _, took, found = train.run(job, cache, folder)
    assert took["steps"] == 3 and took["measured"]["b, held out"][0] == 4 and len(found) == 8
    np.savez_compressed(tmp_path / "predictions.npz", **train.packed(job, found))
    predicted = evaluate.predictions(pairs, tmp_path)
    assert list(predicted) == ["b"]
    # Everything is likely enough: all of the text is marked, by the reader alone and through the ladder.
    generous = replace(train.CARD, certain=0.0, bridge=9)
    for made in (evaluate.direct, evaluate.method):
        marked = made(predicted["b"], generous)(items["b"][0])
        assert items["b"][0].gold < marked
    evaluate.ASKED.clear()
    evaluate.sweep({"b": items["b"]}, predicted, train.CARD, evaluate.method)
    assert len(capsys.readouterr().out.splitlines()) == 36
    assert evaluate.ASKED == {True: 36 * 4}, "what the ladder asks is what the data holds"


def test_what_is_trained_is_thin_and_begins_as_the_encoder(tmp_path: Path) -> None:
    from transformers import AutoModel

    folder = tiny_encoder(tmp_path)
    network = Network(AutoModel.from_pretrained(str(folder))).eval()
    encoded = train.encoder_of(folder)([Asked("It left at noon.", "The hour is wrong.")])
    before = reader.chances(network, encoded, 0)[0]
    reader.adapt(network, Card("e", rank=2))
    np.testing.assert_allclose(reader.chances(network, encoded, 0)[0], before, atol=1e-6)
    trained = {name for name, value in network.named_parameters() if value.requires_grad}
    assert {name.rpartition(".")[2] for name in trained if "encoder" in name} == {"down", "up"}

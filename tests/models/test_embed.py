"""Texts → rows of length one, alike whatever they are batched with."""

from pathlib import Path

import numpy as np
import pytest

from text2grad import align
from text2grad.errors import ModelNotFound
from text2grad.feedback.align import Pair, align_many
from text2grad.models.embed import Embedder
from text2grad.models.tiny import tiny_model, tiny_tokenizer

TEXTS = ["Nine ships left.", "x", "The harbour was closed at noon after a crane fell; nobody was hurt."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("embedder")
    tokenizer = tiny_tokenizer()
    tokenizer.save_pretrained(place)
    tiny_model(tokenizer).save_pretrained(place)
    return place


def test_rows_have_length_one_and_do_not_depend_on_the_batch(folder: Path) -> None:
    together = Embedder(str(folder))(TEXTS)
    alone = np.vstack([Embedder(str(folder), batch=1)([text]) for text in TEXTS])
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_nothing_in_nothing_out(folder: Path) -> None:
    assert Embedder(str(folder))([]).shape[0] == 0


def test_it_is_what_alignment_takes(folder: Path) -> None:
    embed = Embedder(str(folder))
    pair = Pair("The dam broke. The mayor spoke. Nobody came.", "Those officials talked rubbish.")
    assert list(align_many([pair], embed=embed)) == [align(pair.completion, pair.critique, embed=embed)]


def test_a_folder_that_is_not_there_is_named() -> None:
    with pytest.raises(ModelNotFound, match="no-such"):
        Embedder("./no-such/folder")

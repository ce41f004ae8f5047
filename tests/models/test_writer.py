"""A model that completes examples: batches, streams, run folders, prompts that are too long."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from text2grad.errors import InvalidData, ModelNotFound
from text2grad.models.sampling import SamplingSettings, Seed
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.models.writer import Loaded, Writer, model_in, pieces
from text2grad.types import Example, Message

EXAMPLES = [Example(f"e{n}", f"Name the {'crane of ' * n}harbour.") for n in range(5)]


@pytest.fixture(scope="session")
def tiny() -> tuple[Any, Any]:
    tokenizer = tiny_tokenizer()
    return tiny_model(tokenizer), tokenizer


@pytest.fixture(scope="session")
def folder(tiny: tuple[Any, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny"
    for part in tiny:
        part.save_pretrained(path)
    return path


def writer(tiny: tuple[Any, Any], **settings: Any) -> Writer:
    model, tokenizer = tiny
    return Writer(Loaded(model, model), tokenizer, SamplingSettings(max_new_tokens=12, **settings))


def texts(made: Writer, seed: Seed | None) -> list[str]:
    return [rollout.completion.text for rollout in made(EXAMPLES, seed)]


def test_one_completion_per_example_whatever_the_batch(tiny: tuple[Any, Any]) -> None:
    counts: list[int] = []
    made = writer(tiny, batch=2)
    made.on_progress = counts.append
    rollouts = made(EXAMPLES, None)
    assert [rollout.example.id for rollout in rollouts] == ["e0", "e1", "e2", "e3", "e4"]
    assert counts == [1] * 5
    assert [rollout.completion.text for rollout in rollouts] == texts(writer(tiny), None)
    assert all(len(rollout.completion.token_ids) == len(rollout.logprobs or ()) for rollout in rollouts)
    assert all(rollout.prompt_ids and not rollout.scored for rollout in rollouts)


def test_a_prompt_goes_through_the_tokenizer_once(tiny: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    made, asked = writer(tiny), list[str]()
    ids = made._ids

    def counted(example: Example, room: int | None) -> list[int]:
        asked.append(example.id)
        return ids(example, room)

    monkeypatch.setattr(made, "_ids", counted)
    first, again = (made.prompt(example) for example in (EXAMPLES[0], EXAMPLES[0]))
    assert first == again == ids(EXAMPLES[0], None) and asked == ["e0"]
    # Equal numbers do not make it another's: an example of the same id may have another prompt.
    assert made.prompt(replace(EXAMPLES[0], prompt="Another.")) != first


def test_what_is_sampled_is_there_before_its_text(tiny: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    made = writer(tiny)
    wanted = made(EXAMPLES, None)
    with monkeypatch.context() as patch:
        patch.setattr("text2grad.models.writer.completion_of", lambda *_: pytest.fail("text is not needed yet"))
        prompts, samples = made.sample(EXAMPLES, None)
    assert made.rollouts(EXAMPLES, prompts, samples) == wanted


def test_the_same_seed_samples_the_same(tiny: tuple[Any, Any]) -> None:
    first = texts(writer(tiny), Seed(3, 0, range(5)))
    assert texts(writer(tiny, batch=2), Seed(3, 0, range(5))) == first
    assert texts(writer(tiny), Seed(4, 0, range(5))) != first
    # A completion depends on its own index alone.
    assert writer(tiny)(EXAMPLES[2:3], Seed(3, 0, [2]))[0].completion.text == first[2]


@pytest.mark.parametrize("seed", [None, Seed(3, 0, [1])])
def test_a_stream_is_the_same_text_in_pieces(tiny: tuple[Any, Any], seed: Seed | None) -> None:
    made = writer(tiny, temperature=0.7)
    (rollout,) = made(EXAMPLES[1:2], seed)
    parts = list(made.stream(EXAMPLES[1].prompt, seed))
    assert "".join(parts) == rollout.completion.text
    assert len(parts) > 1


def test_a_character_of_several_tokens_comes_whole(tiny: tuple[Any, Any]) -> None:
    tokenizer = tiny[1]
    text = "café 漢字 👩‍🚀!"
    ids = tokenizer(text, add_special_tokens=False).input_ids
    parts = list(pieces(tokenizer, ids))
    assert "".join(parts) == text and "\ufffd" not in "".join(parts)
    cut = list(pieces(tokenizer, tokenizer("👩", add_special_tokens=False).input_ids[:-1]))
    assert cut == ["\ufffd"]


def test_conversations_and_prompts_that_are_too_long(tiny: tuple[Any, Any]) -> None:
    made = writer(tiny)
    (rollout,) = made([Example("chat", (Message("user", "Hi"),))], None)
    assert rollout.completion.token_ids
    with pytest.raises(InvalidData, match=r"example 'long': the prompt has .* tokens, and the model has room for 500"):
        made([Example("long", "crane " * 600)], None)
    with pytest.raises(InvalidData, match=r"example 'odd': .*ends with its turn"):
        made([Example("odd", (Message("user", "Hi"), Message("assistant", "Ho")))], None)


def test_a_run_folder_is_its_model(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text("model: x\n")
    with pytest.raises(ModelNotFound, match="has no model yet"):
        model_in(str(run))
    (run / "model").symlink_to(folder)
    assert model_in(str(run)) == str(run / "model")
    assert model_in(str(folder)) == str(folder)
    assert model_in("org/name") == "org/name"
    loaded = Writer.load(str(run), SamplingSettings(max_new_tokens=4), "auto", "cpu", "float32")
    assert loaded(EXAMPLES[:1], None)[0].completion.token_ids

"""The template: what a reward model reads, what it may lose, and what its language head is to write."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad.errors import ConfigError, InvalidData
from text2grad.feedback.align import align
from text2grad.feedback.replies import read_reply
from text2grad.models.reward.model import label_batch
from text2grad.models.reward.template import LEAST, Reader, continued, written
from text2grad.models.settings import Template
from text2grad.models.tiny import tiny_tokenizer
from text2grad.types import Alignment, Critique, Message, Quote, Span

TOKENIZER = tiny_tokenizer()
SMALL = Template(max_tokens=120, critique_tokens=20)


def reader(template: Template = SMALL, tokenizer: Any = TOKENIZER) -> Reader:
    return Reader(template, tokenizer)


def test_it_reads_prompt_completion_and_the_completion_again() -> None:
    found = reader().encode("Which river?", "The Mura.")
    assert TOKENIZER.decode(found.ids) == (
        "Prompt:\nWhich river?\n\nText:\nThe Mura.\n\nAgain:\nThe Mura.\n\nCritique:\n"
    )


def test_a_conversation_is_read_as_its_turns() -> None:
    turns = (Message("system", "Be brief."), Message("user", "Which river?"))
    assert "Be brief.\n\nWhich river?\n\nText:" in TOKENIZER.decode(reader().encode(turns, "The Mura.").ids)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), st.text(max_size=12))
def test_the_second_reading_is_the_first_and_its_characters_are_those_of_the_text(completion: str, prompt: str) -> None:
    """Whatever the Unicode; where characters are split over tokens, too."""
    prompt = prompt.encode("utf-8", "replace").decode()
    found = reader(Template(max_tokens=2000)).encode(prompt, completion)
    ids = TOKENIZER(completion).input_ids
    again = TOKENIZER("\n\nAgain:\n").input_ids
    assert list(found.ids[found.first : found.first + len(ids)]) == ids
    assert list(found.ids[found.first - len(again) - len(ids) : found.first]) == [*ids, *again]
    where = label_batch([found], "cpu").position_N.tolist()
    assert where == [*range(found.first, found.first + len(ids)), len(found.ids) - 1]
    covered = {place for start, end in found.offsets.tolist() for place in range(start, end)}
    assert len(found.offsets) == len(ids) and covered == set(range(len(completion)))


@given(st.integers(0, 400), st.integers(1, 20))
def test_a_long_prompt_loses_its_middle_and_nothing_else(length: int, size: int) -> None:
    template = Template(before="Judge the text.\n", max_tokens=120, critique_tokens=20)
    prompt, completion = "".join(chr(97 + n % 26) + str(n) for n in range(length)), "Mura " * size
    ids = TOKENIZER(prompt).input_ids
    parts = [TOKENIZER(part).input_ids for part in ("Judge the text.\n", "\n\nText:\n", "\n\nAgain:\n")]
    before, between, again = parts
    twice, after, gap = (TOKENIZER(part).input_ids for part in (completion, "\n\nCritique:\n", " […] "))
    room = 100 - sum(map(len, [*parts, after])) - 2 * len(twice)
    if room < 0:
        with pytest.raises(InvalidData, match=rf"has {len(twice)} tokens.*max_tokens=120.*critique_tokens=20"):
            reader(template).encode(prompt, completion)
        return
    if len(ids) > room and room - len(gap) < LEAST:
        with pytest.raises(InvalidData, match=f"of the {len(ids)} tokens of its prompt, too few to judge by"):
            reader(template).encode(prompt, completion)
        return
    found = list(reader(template).encode(prompt, completion).ids)
    end = [*between, *twice, *again, *twice, *after]
    assert found[: len(before)] == before and found[-len(end) :] == end, "the words around it and the completion stay"
    kept = found[len(before) : -len(end)]
    if len(ids) <= room:
        assert kept == ids
        return
    assert len(kept) == room
    first, last = -(-(room - len(gap)) // 2), (room - len(gap)) // 2
    assert kept == [*ids[:first], *gap, *ids[len(ids) - last :]]


def alone(prompt: Any, completion: str) -> Any:
    try:
        found = reader().encode(prompt, completion)
    except InvalidData as problem:
        return str(problem)
    return found.ids, found.first, found.offsets.tolist()


TEXTS = st.one_of(
    st.sampled_from(["", "Mura", "🙂 漢字", "word " * 12, "word " * 60]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
)


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=6))
def test_many_are_read_as_each_alone_and_what_has_no_room_says_so_in_its_place(pairs: list[tuple[str, str]]) -> None:
    found = reader().encode_all([prompt for prompt, _ in pairs], [completion for _, completion in pairs])
    said = [str(one) if isinstance(one, InvalidData) else (one.ids, one.first, one.offsets.tolist()) for one in found]
    assert said == [alone(*pair) for pair in pairs]


def test_many_are_one_call_of_the_tokenizer_and_a_prompt_that_comes_again_is_read_once() -> None:
    class Counted:
        is_fast = True

        def __call__(self, texts: Any, **named: Any) -> Any:
            asked.append(texts)
            return TOKENIZER(texts, **named)

        def __getattr__(self, name: str) -> Any:
            return getattr(TOKENIZER, name)

        def __len__(self) -> int:
            return len(TOKENIZER)

    asked: list[Any] = []
    made = reader(tokenizer=Counted())
    asked.clear()
    assert len(made.encode_all(["Q", "Q", "Q"], ["A", "B", "A"])) == 3
    assert asked == [["Q", "A", "B"]]


def test_an_empty_completion_has_a_stop_to_judge() -> None:
    found = reader().encode("Q", "")
    assert label_batch([found], "cpu").position_N.tolist() == [len(found.ids) - 1] and found.offsets.shape == (0, 2)


def test_what_spells_a_special_token_is_text_to_the_judge() -> None:
    found = reader().encode("Q<|endoftext|>", "a<|im_end|>b")
    assert not set(found.ids) & set(TOKENIZER.all_special_ids)
    covered = {place for start, end in found.offsets.tolist() for place in range(start, end)}
    assert covered == set(range(len("a<|im_end|>b")))


def test_a_tokenizer_that_opens_and_closes_texts_opens_once_and_never_closes() -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer = tiny_tokenizer()
    tokens = [(name, tokenizer.convert_tokens_to_ids(name)) for name in ("<|im_start|>", "<|im_end|>")]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|im_start|> $A <|im_end|>", special_tokens=tokens
    )
    ids = reader(tokenizer=tokenizer).encode("Q", "A").ids
    assert ids[0] == tokens[0][1] and ids.count(tokens[0][1]) == 1 and tokens[1][1] not in ids


def test_a_template_without_a_place_to_judge_the_stop_is_refused() -> None:
    with pytest.raises(InvalidData, match=r"template\.after should hold at least one token"):
        reader(Template(after=""))


# ---------------------------------------------------------------------------------------------- what is written

TEXT = "Seven ships left “Kiel” at 5 o'clock."
SAID = Critique("Wrong number.", omissions=("the cause",))
WHERE = Alignment((Span(0, 5, "poor"), Span(17, 23, "good")), omissions=("the cause",))


def test_words_are_the_critiques_own_or_what_its_spans_say() -> None:
    assert written(SAID, WHERE, TEXT, quotes=False) == "Wrong number."
    assert written(Critique(""), WHERE, TEXT, quotes=False) == "“Seven” is poor. ““Kiel”” is good."
    assert written(Critique(" "), Alignment(), TEXT, quotes=False) == "Nothing stands out."


def test_quotes_are_read_back_as_a_model_critics_reply() -> None:
    found = read_reply(written(SAID, WHERE, TEXT, quotes=True), shown=TEXT)
    assert not found.mended and found.critique is not None
    assert [(quote.text, quote.verdict) for quote in found.critique.quotes] == [("Seven", "poor"), ("“Kiel”", "good")]
    assert (found.critique.feedback, found.critique.omissions) == ("Wrong number.", ("the cause",))
    assert [(span.start, span.end) for span in align(TEXT, found.critique).spans] == [(0, 5), (17, 23)]


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(str.strip), st.data())
def test_any_quote_comes_back(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    span = Span(start, data.draw(st.integers(start + 1, len(text))), "poor")
    if not span.slice(text).strip():
        return
    found = read_reply(written(Critique("Wrong."), Alignment((span,)), text, quotes=True))
    assert found.critique is not None
    assert found.critique.quotes == (Quote(span.slice(text), "poor"),)


def test_a_span_of_white_space_is_no_quote() -> None:
    """No critic's reply may quote one, so none is taught."""
    found = read_reply(written(SAID, Alignment((Span(5, 6, "poor"), Span(0, 5, "poor"))), TEXT, quotes=True))
    assert found.critique is not None and [quote.text for quote in found.critique.quotes] == ["Seven"]


def test_a_critique_is_written_whole_or_not_at_all() -> None:
    ids = reader().critique_ids(SAID, WHERE, TEXT)
    assert ids is not None and ids[-1] == TOKENIZER.eos_token_id
    assert TOKENIZER.decode(ids[:-1]) == "Wrong number."
    assert reader().critique_ids(Critique("word " * 30), Alignment(), TEXT) is None
    paper = reader(Template(writes="quotes")).critique_ids(SAID, WHERE, TEXT)
    assert paper is not None and json.loads(TOKENIZER.decode(paper[:-1]))["critique"] == "Wrong number."


def test_a_model_goes_on_with_its_own_words_and_may_have_another_room() -> None:
    stored = Template(before="Q:\n", max_tokens=200, critique_tokens=40, writes="quotes")
    assert continued(Template(), stored, "judge") == stored
    assert continued(Template(before="Q:\n", max_tokens=300), stored, "judge") == replace(stored, max_tokens=300)
    with pytest.raises(
        ConfigError, match=r"template\.after='So:': judge has learned to read '\\n\\nCritique:\\n' there"
    ):
        continued(Template(after="So:"), stored, "judge")
    with pytest.raises(ConfigError, match=r"template\.writes='quotes': judge has learned to read 'words'"):
        continued(stored, Template(before="Q:\n"), "judge")

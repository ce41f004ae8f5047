"""What quotes are there for: the critic's words propose, completion and source decide."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from text2grad import AlignSettings, align
from text2grad.config import build
from text2grad.feedback.align.locate import cuts_number

TEXT = (
    "Seven ships left Brindlemoor on Monday after a storm. "
    "The harbour master, Ada Finch, stayed on the quay until dusk."
)
SOURCE = "Nine ships left the harbour of Brindlemoor on Monday, after the fog had lifted."
QUOTES_ONLY = build(AlignSettings, {"paraphrase": {"use": False}}, "test")

FRAMES = [
    "According to the article, “{}” is wrong.",
    "In the article “{}” cannot be found.",
    "From the source it is clear that “{}” is false.",
    "Based on the source, “{}” is not so.",
    "Per the docs, “{}” is deprecated.",
    "Actually, “{}” is wrong.",
    "In fact “{}” is false.",
    "I would say “{}” is wrong.",
    "To say “{}” is misleading.",
    "It seems to say “{}”, which is wrong.",
    "It could say “{}” more elegantly.",
    "The writer manages to include “{}”, a nice touch.",
    "You could use “{}” again.",
    "“{}” would be fine if that were so.",
    "Instead, “{}” was invented.",
    "Do not write “{}”.",
    "Consider “{}”: it is wrong.",
    "“{}” is better than the rest.",
    "“{}” would be better without the pathos.",
]


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("source", [None, SOURCE])
def test_a_quote_that_only_the_completion_has_is_meant_whatever_leads_up_to_it(frame: str, source: str | None) -> None:
    found = align(TEXT, frame.format("Seven ships"), source=source, settings=QUOTES_ONLY)
    assert ([span.slice(TEXT) for span in found.spans], found.missed) == (["Seven ships"], ())


@given(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]) | st.just("\n"), min_size=1, max_size=60),
    st.sampled_from(FRAMES),
    st.sampled_from([None, "\u2603 none of it \u2603"]),
    st.data(),
)
def test_exact_quotes_are_found_in_every_frame(
    completion: str, frame: str, source: str | None, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(completion) - 1))
    end = data.draw(st.integers(start + 1, len(completion)))
    quote = completion[start:end]
    assume(quote.strip(" \"'`\n") and quote.strip() and not set(quote) & set("“”„〝〞〟"))
    assume(not cuts_number(completion, start, end))
    # One letter, or none, is "found" in a source by folding: that is another law's business.
    assume(source is None or sum(character.isalnum() for character in quote) > 6)
    found = align(completion, frame.format(quote), source=source, settings=QUOTES_ONLY)
    assert [span.slice(completion) for span in found.spans] == [quote]


@pytest.mark.parametrize(
    ("critique", "meant", "missed"),
    [
        ("It says “Seven ships”, but the source says “on Monday”.", ["Seven ships"], ["quotes the source"]),
        ("It says “after a storm”, but the source says “until dusk”.", ["after a storm"], ["offered instead"]),
        ("Based on the source, “Seven ships” should be “Nine ships”.", ["Seven ships"], ["quotes the source"]),
        ("According to the article, “Nine ships” left.", [], ["quotes the source"]),
        ("According to the article, “Eleven gulls” sang.", [], ["not in the completion"]),
        ("It should be “after the fog had lifted” as the source says.", [], ["quotes the source"]),
        ("The day is wrong: it should be “until dusk”.", ["Monday"], ["offered instead"]),
        ("Actually, “Seven ships” and “after a storm” are wrong.", ["Seven ships", "after a storm"], []),
        ("The source says “after a storm” nowhere.", ["after a storm"], []),
        ("“until dusk” would be better.", [], ["offered instead"]),
        ("It cannot be gathered from the source that “on Monday” was meant.", ["on Monday"], []),
        ("The source says:\n\n> Nine ships left the harbour", [], ["quotes the source"]),
        (
            "> Seven ships left Brindlemoor\n> on Monday\n\nThis is wrong.",
            ["Seven ships left Brindlemoor on Monday"],
            [],
        ),
        ("> Eleven gulls sang in a storm\n\nThis is wrong.", [], ["not in the completion"]),
    ],
)
def test_the_texts_decide(critique: str, meant: list[str], missed: list[str]) -> None:
    found = align(TEXT, critique, source=SOURCE)
    assert [span.slice(TEXT) for span in found.spans] == meant
    assert [each.reason.partition(",")[0] for each in found.missed] == missed


def test_without_a_source_the_words_say_what_is_quoted_from_it() -> None:
    found = align(TEXT, "The source says “on Monday”, nothing more.", settings=QUOTES_ONLY)
    assert (found.spans, [each.reason for each in found.missed]) == ((), ["quotes the source"])

"""What a critique finds missing: returned in its words, never forced onto a span."""

import pytest

from text2grad import align

TEXT = "Nine ships left the harbour. The storm was bad."


@pytest.mark.parametrize(
    ("critique", "missing"),
    [
        ("There is no mention of the cost.", "the cost"),
        ("It never mentions the cost.", "the cost"),
        ("It ignores the cost.", "the cost"),
        ("Should also talk about the cost.", "the cost"),
        ("What about the cost?", "the cost"),
        ("You forgot the harbour master.", "the harbour master"),
        ("Needs more detail about the harbour master.", "the harbour master"),
        ("The harbour master is absent from the summary.", "The harbour master"),
        ("Add the cost of the storm.", "the cost of the storm"),
        ("No mention that nobody was hurt.", "nobody was hurt"),
    ],
)
def test_an_omission_has_no_span(critique: str, missing: str) -> None:
    found = align(TEXT, critique)
    assert (found.omissions, found.spans) == ((missing,), ())


@pytest.mark.parametrize(
    "critique",
    ["The summary omits the cost, and the ships are wrong.", "The ships are wrong, and the cost is missing."],
)
def test_a_clause_may_miss_one_thing_and_blame_another(critique: str) -> None:
    found = align(TEXT, critique)
    assert found.omissions == ("the cost",)
    assert [(span.verdict, "ships" in span.slice(TEXT)) for span in found.spans] == [("poor", True)]


@pytest.mark.parametrize(
    "critique",
    [
        "The amount of flour lacks nothing.",
        "It does not omit the storm.",
        "No errors.",
        "There is no mention of a storm in the article.",
        "The source never mentions a storm.",
        "The article does not mention the storm, but the summary does.",
        "It forgot the storm.",
        "It should not mention the cost.",
    ],
)
def test_nothing_is_missing(critique: str) -> None:
    assert align(TEXT, critique).omissions == ()


@pytest.mark.parametrize("critique", ["The storm lacks nothing.", "Nothing is missing from the storm."])
def test_what_lacks_nothing_is_praised(critique: str) -> None:
    found = align(TEXT, critique)
    assert found.omissions == ()
    assert {span.verdict for span in found.spans} <= {"good"}

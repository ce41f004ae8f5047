"""The baselines, each on texts small enough to read."""

from studies.reward_model.baselines import Marker, absent, majority, supported

PASSAGE = (
    "Fjord is the second album by the Norwegian singer Jorun Vekas, released on 23 April 2016 by Tern, and sold well."
)


def row(completion: str, *poor: tuple[int, int], **columns: str) -> dict[str, object]:
    spans = [{"start": start, "end": end, "verdict": "poor"} for start, end in poor]
    return {"completion": completion, "spans": spans, "passages": [PASSAGE], **columns}


def said(mark: Marker, given: dict[str, object]) -> list[tuple[str, str]]:
    return [(str(given["completion"])[span.start : span.end], span.verdict) for span in mark(given)]


def test_the_majority_is_counted_in_words() -> None:
    some, most = row("Seven ships left.", (0, 5)), row("Seven ships left.", (0, 11))
    assert majority([some])(row("Nine left.")) == ()
    assert said(majority([most]), row("Nine left.")) == [("Nine left.", "poor")]
    assert said(majority([most, most, some]), row("Nine left.")) == [("Nine left.", "poor")]  # 5 of 9
    assert majority([most, some, some])(row("Nine left.")) == ()  # 4 of 9
    good = {"completion": "Nine ships.", "spans": [{"start": 0, "end": 11, "verdict": "good"}]}
    assert said(majority([good]), row("Nine left.")) == [("Nine left.", "good")]
    assert majority([])(row("Nine left.")) == ()


def test_support_is_located_where_it_quotes() -> None:
    given = row("In 2017 Fjord was released, on 23 April 2017.")
    assert said(supported, given) == [
        ("2017", "poor"),
        ("Fjord", "good"),
        ("released", "good"),
        ("23 April", "good"),
        ("2017", "poor"),
    ]
    assert supported({**given, "passages": [""]}) == ()


def test_words_of_the_question_are_not_held_against_it() -> None:
    given = row("The second album was sold to Dagny Moe.")
    assert [words for words, verdict in said(supported, given) if verdict == "poor"] == ["Dagny Moe"]
    assert "poor" not in [verdict for _, verdict in said(supported, {**given, "question": "Whose is Dagny Moe?"})]


def test_absent_words_are_poor_function_words_are_not() -> None:
    assert said(absent, row("Albums of the sea were sold.")) == [("sea", "poor")]
    assert absent(row("Fjord is by Jorun Vekas.")) == ()

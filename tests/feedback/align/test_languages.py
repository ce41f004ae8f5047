"""Other scripts and languages: quotes, revisions and code are found in all of them; paraphrase by shared words, or by
meaning where an embedder knows the language."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from text2grad import align

TEXTS = {
    "Japanese": "東京都は月曜日に新しい計画を承認した。市長は春に工事を始めると述べた。費用は二十億円である。",
    "Chinese": "七艘船星期一离开了港口。市长说工程将在春天开始。费用是二十亿元。",
    "Korean": "배 일곱 척이 월요일에 항구를 떠났다. 시장은 봄에 공사가 시작된다고 말했다.",
    "Thai": "เรือเจ็ดลำออกจากท่าเรือวันจันทร์",
    "Arabic": "غادرت السفن الميناء يوم الاثنين. قال رئيس البلدية إن العمل سيبدأ في الربيع.",
    "Hindi": "जहाज़ सोमवार को बंदरगाह से निकले। मेयर ने कहा कि काम वसंत में शुरू होगा।",
    "German": "Sieben Schiffe verließen am Montag den Hafen. Der Bürgermeister sprach von einem Sturm.",
    "Russian": "Семь кораблей покинули порт в понедельник. Мэр говорил о шторме.",
}
WRONG = {
    "Japanese": "二十億円",
    "Chinese": "春天",
    "Korean": "월요일에",
    "Thai": "วันจันทร์",
    "Arabic": "الربيع",
    "Hindi": "वसंत",
    "German": "Sturm",
    "Russian": "шторме",
}


@pytest.mark.parametrize("language", TEXTS)
@pytest.mark.parametrize("marks", ["“”", "«»", "「」", '""'])
def test_a_quote_is_found_in_any_script(language: str, marks: str) -> None:
    text, wrong = TEXTS[language], WRONG[language]
    (span,) = align(text, f"{marks[0]}{wrong}{marks[1]}?").spans
    assert (span.slice(text), span.provenance) == (wrong, "exact")


@pytest.mark.parametrize("language", TEXTS)
def test_a_quote_that_nobody_wrote_lands_nowhere_in_any_script(language: str) -> None:
    found = align(TEXTS[language], "「雪が降る夜の山」?")
    assert (found.spans, len(found.missed)) == ((), 1)


@pytest.mark.parametrize("language", TEXTS)
def test_a_revision_is_read_in_any_script(language: str) -> None:
    text, wrong = TEXTS[language], WRONG[language]
    (span,) = align(text, "!", revision=text.replace(wrong, "XYZ")).spans
    assert (span.slice(text), span.provenance) == (wrong, "revision")


@pytest.mark.parametrize("said", ["L2 は間違っている。", "第二行 (line 2) 有错误。", "stats.py:2 неверно."])
def test_a_line_of_code_is_named_in_any_language(said: str) -> None:
    code = "def f(n):\n    total = n + 1\n    return total\n"
    assert [span.slice(code) for span in align(code, said).spans] == ["total = n + 1"]


@pytest.mark.parametrize(
    ("critique", "line"),
    [
        ("итог неверен", "итог = n + 1"),
        ("合計が間違っている。", "合計 = итог * 2"),
        ("`Größe` ist falsch.", "Größe = 3"),
        ("Größe ist falsch.", "Größe = 3"),
    ],
)
def test_a_name_in_code_is_found_in_any_script(critique: str, line: str) -> None:
    code = "def f(n):\n    итог = n + 1\n    合計 = итог * 2\n    Größe = 3\n    return n\n"
    found = [
        code[code.rfind("\n", 0, s.start) + 1 : code.find("\n", s.end)].strip() for s in align(code, critique).spans
    ]
    assert line in found
    assert len(found) <= 2


@pytest.mark.parametrize(
    ("language", "critique", "sentence"),
    [
        ("Japanese", "市長は春に工事を始めるとは言っていない。", 1),
        ("Chinese", "市长没有说春天开始。", 1),
        ("Arabic", "العمل لن يبدأ في الربيع.", 1),
        ("Hindi", "वसंत में काम शुरू नहीं होगा।", 1),
        ("German", "Von einem Sturm war nie die Rede.", 1),
        ("Russian", "О шторме никто не говорил.", 1),
    ],
)
def test_paraphrase_that_shares_words_lands_in_their_sentence(language: str, critique: str, sentence: int) -> None:
    text = TEXTS[language]
    start = [0, *(k + 1 for k, character in enumerate(text) if character in ".。।")][sentence]
    spans = align(text, critique).spans
    assert spans
    assert all(span.start >= start and span.verdict == "neutral" for span in spans)


def test_paraphrase_without_a_shared_word_needs_an_embedder() -> None:
    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        # A multilingual model would put a storm near bad weather, in any two languages.
        return np.array(
            [[1.0, 0.0] if any(word in t for word in ("Sturm", "嵐", "storm")) else [0.0, 1.0] for t in texts],
            dtype=np.float32,
        )

    text = TEXTS["German"]
    for critique in ("嵐のことは書かれていなかった。", "The storm is invented."):
        assert align(text, critique).spans == ()
        (span,) = align(text, critique, embed=embed).spans
        assert span.slice(text) == "Der Bürgermeister sprach von einem Sturm"


def test_a_vowel_sign_stays_with_its_letter() -> None:
    text = TEXTS["Hindi"]
    for span in align(text, "वसंत में काम शुरू नहीं होगा।").spans:
        assert not text[span.end : span.end + 1].strip() or text[span.end] in "।,"

"""A reward model as a critic: by its head, by what it writes, alone and among others; what is not scored, and why."""

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.models.reward.made import rows, untrained
from text2grad.errors import ConfigError, CriticError
from text2grad.feedback.critics.learned import checkpoint_digest, is_checkpoint
from text2grad.feedback.critics.named import critic_named, sources_of
from text2grad.feedback.critics.protocol import Critiques, ask
from text2grad.feedback.labels import confidence_of
from text2grad.feedback.settings import CriticSettings, LearnedSettings
from text2grad.models.reward import open_critic
from text2grad.models.reward.critic import RewardCritic
from text2grad.models.reward.model import RewardModel
from text2grad.types import Critique, Message

MADE = rows(7, seed=3)
PROMPTS, TEXTS = [row.prompt for row in MADE], [row.completion for row in MADE]


def asked(
    name: str, prompts: Any, completions: Any, options: CriticSettings | None = None, **columns: Any
) -> Critiques:
    critic = critic_named(name, options or CriticSettings(), open_critic)
    return asyncio.run(ask(critic, prompts, completions, columns))


def sure(**more: Any) -> LearnedSettings:
    """Scores all, however unsure."""
    return LearnedSettings(confidence=0.0, **more)


# ---------------------------------------------------------------------------------------------- by the head


def test_quotes_and_quality_come_from_the_head_and_q_ends_at_the_score(checkpoint: Path) -> None:
    critic = RewardCritic(checkpoint, sure())
    encoded, _ = critic.encode(PROMPTS, TEXTS)
    for said, text, read, prediction in zip(
        critic(PROMPTS, TEXTS), TEXTS, encoded, critic.predict(encoded), strict=True
    ):
        assert read is not None and prediction is not None
        probs, sizes = prediction
        assert said is not None and said.score is not None and said.quality is not None
        expected = probs[:, 2] * sizes[:, 1] - probs[:, 0] * sizes[:, 0]
        assert said.score == pytest.approx(critic.model.calibration.start + expected.sum())
        assert said.quality[-1][0] == len(text)
        assert said.quality[-1][1] == pytest.approx(said.score - expected[-1])
        assert all(text[q.start :].startswith(q.text) for q in said.quotes if q.start is not None)
        assert len(probs) == len(read.offsets) + 1 and np.allclose(probs.sum(1), 1)
    assert {q.text: q.verdict for said in critic(PROMPTS, TEXTS) if said for q in said.quotes}["Drava"] == "poor"


@pytest.mark.parametrize("batch_tokens", [1, 16384])
def test_a_verdict_does_not_depend_on_the_rest_of_the_batch(checkpoint: Path, batch_tokens: int) -> None:
    critic = RewardCritic(checkpoint, sure(batch_tokens=batch_tokens))
    prompts, texts = [*PROMPTS, "Q " * 40], [*TEXTS, "Drava"]
    for prompt, text, among in zip(prompts, texts, critic(prompts, texts), strict=True):
        (alone,) = critic([prompt], [text])
        assert alone is not None and among is not None
        assert alone.score == pytest.approx(among.score, abs=1e-5)
        assert replace(alone, score=None, quality=None) == replace(among, score=None, quality=None)
        assert np.allclose(alone.quality or (), among.quality or (), atol=1e-5)


def test_a_floor_of_1_scores_nothing_also_of_what_is_certain(checkpoint: Path) -> None:
    critic = RewardCritic(checkpoint, LearnedSettings(confidence=1.0))
    with torch.no_grad():
        critic.model.span_head.linear.weight.mul_(1e6)
    (found,) = critic(["Which?"], ["The Drava."])
    assert found is None
    (found,) = RewardCritic(checkpoint, LearnedSettings(confidence=0.0), loaded=(critic.model, critic.tokenizer))(
        ["Which?"], ["The Drava."]
    )
    assert found is not None


def test_what_is_about_the_head_is_refused_where_it_is_not_asked(checkpoint: Path) -> None:
    with pytest.raises(CriticError, match=r"which critics\.learned\.by=generation does not use; leave it out"):
        RewardCritic(checkpoint, LearnedSettings(by="generation", confidence=0.5))


def test_low_confidence_is_not_scored_and_says_so(checkpoint: Path) -> None:
    critic = RewardCritic(checkpoint, LearnedSettings(confidence=1.0))
    found = critic(PROMPTS[:2], TEXTS[:2])
    assert found == [None, None]
    assert found.reasons[1].startswith("the reward model is only 0.") and found.reasons[1].endswith(
        "1.0000 is wanted (critics.learned.confidence)"
    )
    probs = [one[0] for one in critic.predict(critic.encode(PROMPTS[:1], TEXTS[:1])[0]) if one]
    at = RewardCritic(checkpoint, LearnedSettings(confidence=confidence_of(probs[0])))
    assert at(PROMPTS[:1], TEXTS[:1])[0] is not None, "at the floor it is scored"
    trained = RewardCritic(checkpoint)
    trained.model.calibration = replace(trained.model.calibration, confidence=1.0)
    assert trained(PROMPTS[:1], TEXTS[:1]) == [None], "the floor of training holds where none is set"


@pytest.mark.parametrize(
    ("completion", "reason"),
    [("half \ud83d", "half of a surrogate pair"), ("word " * 5000, "reading it twice leaves no room")],
)
def test_what_it_cannot_read_is_not_scored_and_disturbs_nobody(checkpoint: Path, completion: str, reason: str) -> None:
    found = RewardCritic(checkpoint, sure())([*PROMPTS[:2], "Q"], [TEXTS[0], completion, TEXTS[1]])
    assert [said is None for said in found] == [False, True, False]
    assert list(found.reasons) == [1] and reason in found.reasons[1]


def test_a_prompt_that_cannot_be_written_down_is_not_scored(checkpoint: Path) -> None:
    found = RewardCritic(checkpoint, sure())(["\ud83d", (Message("user", "Which river?"),)], TEXTS[:2])
    assert [said is None for said in found] == [True, False] and "surrogate" in found.reasons[0]


def test_an_empty_completion_has_a_score_and_nothing_to_quote(checkpoint: Path) -> None:
    found = RewardCritic(checkpoint, sure())(["Q"], [""])
    assert found[0] is not None and found[0].quotes == () and found[0].score is not None
    assert RewardCritic(checkpoint)([], []) == []


def test_numbers_that_are_not_finite_are_not_scored(checkpoint: Path) -> None:
    critic = RewardCritic(checkpoint, sure())
    with torch.no_grad():
        critic.model.span_head.linear.bias[0] = float("nan")
    found = critic(PROMPTS[:1], TEXTS[:1])
    assert found == [None] and "not finite" in found.reasons[0]


# ---------------------------------------------------------------------------------------------- in words


def test_words_are_written_on_demand_and_change_nothing_else(checkpoint: Path) -> None:
    critic = RewardCritic(checkpoint, sure())
    found = critic(PROMPTS, TEXTS)
    told = critic.explain(PROMPTS, TEXTS, found)
    assert any(a.feedback != b.feedback for a, b in zip(told, found, strict=True) if a and b)
    for here, there in zip(told, found, strict=True):
        assert here is not None and there is not None
        assert replace(here, feedback="") == replace(there, feedback="")
    assert critic.explain(PROMPTS[:2], TEXTS[:2], Critiques([None, found[1]], {0: "why"})) == [None, told[1]]
    writes = RewardCritic(checkpoint, sure(write=True))
    assert writes(PROMPTS, TEXTS) == told
    setattr(writes, "_write", None)  # noqa: B010
    assert writes.explain(PROMPTS, TEXTS, told) == told, "not written twice"


def test_by_generation_quotes_are_what_was_written(writer: Path) -> None:
    critic = RewardCritic(writer, LearnedSettings(by="generation"))
    (said,) = critic(["Which river runs through 3?"], ["Drava 3"])
    assert said is not None and said.quotes_only and said.score is None
    assert (said.feedback, [(q.text, q.verdict) for q in said.quotes]) == ("Wrong river.", [("Drava", "poor")])
    assert critic.explain(["Q"], ["Drava 3"], [said]) == [said]


def test_by_generation_what_cannot_be_parsed_is_not_scored(tmp_path: Path, writer: Path) -> None:
    model, tokenizer = untrained(template=RewardCritic(writer, LearnedSettings(by="generation")).model.template)
    model.save_pretrained(tmp_path / "noise", tokenizer)
    found = RewardCritic(tmp_path / "noise", LearnedSettings(by="generation"))(PROMPTS[:2], TEXTS[:2])
    assert found == [None, None]
    assert all(why.startswith("what the reward model wrote is no critique: ") for why in found.reasons.values())
    words = RewardCritic(tmp_path / "noise", sure())
    assert words.explain(PROMPTS[:1], TEXTS[:1], words(PROMPTS[:1], TEXTS[:1])) == words(PROMPTS[:1], TEXTS[:1])


def test_a_model_without_a_trained_head_is_not_judged_by_it(writer: Path) -> None:
    with pytest.raises(CriticError, match=r"span head was never trained.*critics\.learned\.by=generation"):
        RewardCritic(writer)


# ---------------------------------------------------------------------------------------------- by its name


def test_a_folder_is_a_name_alone_and_inside_others(checkpoint: Path) -> None:
    floor = CriticSettings(learned=LearnedSettings(confidence=1.0))
    (said,) = asked(str(checkpoint), PROMPTS[:1], TEXTS[:1], CriticSettings(learned=sure()))
    assert said is not None and said.quality is not None
    (first,) = asked(f"first({checkpoint}, reference)", PROMPTS[:1], TEXTS[:1], floor, reference=[TEXTS[0]])
    assert first is not None and first.score == pytest.approx(1.0), "the next one's, where it is not sure"
    neither = asked(f"first({checkpoint}, reference)", PROMPTS[:1], TEXTS[:1], floor, reference=[None])
    assert neither == [None] and "sure" in neither.reasons[0] and "reference" in neither.reasons[0]
    name, options = f"weighted(0.5*{checkpoint}, 0.5*reference)", CriticSettings(learned=sure())
    both = asked(name, PROMPTS[:1], TEXTS[:1], options, reference=[TEXTS[0]])
    assert both[0] is not None and both[0].score == pytest.approx((said.score or 0) / 2 + 0.5)


def test_a_changed_checkpoint_is_another_critic(checkpoint: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(checkpoint, copy)
    assert is_checkpoint(str(copy)) and checkpoint_digest(str(copy)) == checkpoint_digest(str(checkpoint))
    assert sources_of(f"first(weighted(1*{copy}), people)") == {str(copy): checkpoint_digest(str(copy))}
    before = checkpoint_digest(str(copy))
    card = copy / "reward_model.json"
    card.write_text(card.read_text().replace('"scale"', '"scale" '))
    assert checkpoint_digest(str(copy)) != before


def test_names_that_lead_nowhere(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(CriticError, match=r"is a folder, but not of a reward model: it has no reward_model\.json"):
        asked(str(tmp_path), [], [])
    with pytest.raises(CriticError, match="the folder of a reward model"):
        asked(str(tmp_path / "nothing"), [], [])
    with pytest.raises(CriticError, match="is a folder, but not"):
        critic_named(str(checkpoint.parent), CriticSettings(), open_critic)
    assert not is_checkpoint("\0") and not is_checkpoint("x" * 5000)
    with pytest.raises(ConfigError, match="warp"):
        RewardCritic(checkpoint, LearnedSettings(device="warp"))


@pytest.mark.parametrize(("rank", "device"), [(None, "cuda:0"), ("1", "cuda:1"), ("3", "cuda:1")])
def test_each_process_of_a_machine_judges_on_its_own_gpu(
    monkeypatch: pytest.MonkeyPatch, rank: str | None, device: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    if rank is not None:
        monkeypatch.setenv("LOCAL_RANK", rank)

    def opened(*_: Any, **named: Any) -> Any:
        raise LookupError(named["device"])

    monkeypatch.setattr(RewardModel, "from_pretrained", opened)
    with pytest.raises(LookupError, match=device):
        RewardCritic("anywhere")


def test_a_critique_that_was_made_from_numbers_is_json_both_ways(checkpoint: Path) -> None:
    (said,) = RewardCritic(checkpoint, sure())(PROMPTS[:1], TEXTS[:1])
    assert said is not None and Critique.from_json(said.to_json()) == said

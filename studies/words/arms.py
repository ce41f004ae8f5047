"""The arms of the study. The scalar rivals and `words` have the rate, ρ and λ that tuning chose for each (tuning.json).
The other arms have the settings of `words`, for comparison; `local` and the paper's ±1 were not tuned."""

from typing import Any

from studies.words.run import scalar, words

RATE = 2e-4
"""The best of `words`, and of rloo."""
CHOSEN = words(RATE)
GOES_ON = {"guard.nothing_learned": "warn"}
"""While all scores are equal a scalar run learns nothing, and would be ended."""


def judged_by(critic: str, settings: dict[str, Any] = CHOSEN) -> dict[str, Any]:
    """The same settings, another critic."""
    return {**settings, "critic": critic}


ARMS: dict[str, dict[str, Any]] = {
    "scalar rloo": scalar("rloo", RATE),
    "words": CHOSEN,
    "scalar grpo": scalar("grpo", 1e-4),
    "scalar gae": scalar("gae", 1e-4),
    "words deleted": judged_by("deleted"),
    "words flipped": judged_by("flipped"),
    "verdicts with places": judged_by("places"),
    "prefix quality": judged_by("quality"),
    "prefix quality, cut anywhere": judged_by("quality_anywhere"),
    "words, binary score": judged_by("binary") | GOES_ON,
    "scalar rloo, binary score": judged_by("binary", scalar("rloo", RATE)) | GOES_ON,
    **{f"words, {share} % moved": judged_by(f"moved_{share}") for share in (40, 20, 10, 5)},
    **{f"words, {share} % flipped": judged_by(f"flipped_{share}") for share in (40, 20, 10, 5)},
    "words, local": words(RATE, "local", **{"kl.coefficient": 0.0}),
    "words, paper's ±1": words(RATE, "gae", anchor=0.0, lam=0.95, **{"scoring.rule": "paper"}),
    "words, gae": words(RATE, "gae"),
    "words, gae without anchor": words(RATE, "gae", anchor=0.0),
    "words, span_rloo": words(RATE, "span_rloo", lam=1.0),
}

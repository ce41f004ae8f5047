"""How far critics agree with ROUGE-L about samples of a policy, before anything is trained on them.

    text2grad evaluate MODEL task=scitldr data=TRAIN split=train examples=128 samples=4 --rollouts SAMPLES.jsonl
    python -m studies.summarization.critics SAMPLES.jsonl

Two numbers for each critic. `score`: correlation of its score with ROUGE-L, among the samples of a prompt. `words`: how
far the verdicts on a sample's words say what each word does to ROUGE-L: the correlation with the loss when that word is
left out, among the words of a sample. A scalar reward says nothing about the second.
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from text2grad.evaluation.named import references_of
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.critics.named import critic_named
from text2grad.feedback.judge import RewardFunction
from text2grad.feedback.settings import CriticSettings, Scoring, SupportSettings
from text2grad.types import Rollout

HERE = Path(__file__).parent
CRITICS = {
    "`support`": ("support", {}),
    "`support`, `copied=0`": ("support", {"copied": 0}),
    "`merge(reference, support)`": ("merge(reference,support)", {}),
    "`weighted(0.7*reference, 0.3*support)`": ("weighted(0.7*reference,0.3*support)", {}),
    "the same, `copied=0`": ("weighted(0.7*reference,0.3*support)", {"copied": 0}),
    "`reference`": ("reference", {}),
}
Numbers = NDArray[np.float64]


def main() -> None:
    rows = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    samples = [
        Rollout.from_json({k: v for k, v in row.items() if k != "part"}) for row in rows if row["part"] == "samples"
    ]
    print(json.dumps(agreement(samples), indent=1))


def agreement(samples: Sequence[Rollout]) -> dict[str, Any]:
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(["rougeL"], use_stemmer=True)

    def rouge(sample: Rollout, text: str) -> float:
        return max(float(scorer.score(one, text)["rougeL"].fmeasure) for one in references_of(sample.example))

    whole = np.array([rouge(sample, sample.completion.text) for sample in samples])
    words = [[match.span() for match in re.finditer(r"\S+", sample.completion.text)] for sample in samples]
    lost = [
        np.array([own - rouge(sample, sample.completion.text[:a] + sample.completion.text[b:]) for a, b in places])
        for sample, own, places in zip(samples, whole, words, strict=True)
    ]
    found: dict[str, Any] = {"samples": len(samples), "rouge_l": float(whole.mean()), "critics": {}}
    for name, (critic, options) in CRITICS.items():
        settings = CriticSettings(support=SupportSettings(**options))
        with RewardFunction(critic_named(critic, settings), AlignSettings(), Scoring()) as judge:
            judged = judge([sample.example for sample in samples], [sample.completion for sample in samples])
        scores = np.array([one.score for one in judged], dtype=float)
        pairs = list(centred(judged, words, lost))
        found["critics"][name] = {
            "score": correlation(within(scores, samples), within(whole, samples)),
            "words": correlation(*(np.concatenate(column) for column in zip(*pairs, strict=True))),
        }
    return found


def centred(
    judged: Sequence[Rollout], words: Sequence[Sequence[tuple[int, int]]], lost: Sequence[Numbers]
) -> Iterator[tuple[Numbers, Numbers]]:
    """Of each sample, less its mean: the mean verdict on each word, and what leaving it out costs."""
    for rollout, places, costs in zip(judged, words, lost, strict=True):
        if len(places) > 2:
            first, end = np.array(rollout.completion.offsets).reshape(-1, 2).T
            verdicts = np.array(rollout.verdicts)
            touched = [verdicts[(first < b) & (end > a)] for a, b in places]
            said = np.array([float(some.mean()) if len(some) else 0.0 for some in touched])
            yield said - said.mean(), costs - costs.mean()


def within(values: Numbers, samples: Sequence[Rollout]) -> Numbers:
    """Less the mean over the samples of the same prompt."""
    names = {sample.example.id: place for place, sample in enumerate(samples)}
    group = np.array([names[sample.example.id] for sample in samples])
    sums, counts = np.bincount(group, values, len(samples)), np.bincount(group, minlength=len(samples))
    apart: Numbers = values - (sums / np.maximum(counts, 1))[group]
    return apart


def correlation(one: Numbers, other: Numbers) -> float:
    return float(np.corrcoef(one, other)[0, 1])


if __name__ == "__main__":
    main()

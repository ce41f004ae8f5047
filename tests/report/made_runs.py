"""Run folders made up for the tests of the report: the row formats are real, the numbers are invented.

A bulletin of an incident has facts; a wrong one is quoted by the critique. Some completions are unscored, some
critiques quote what nobody wrote, one completion is a script, and some hold emoji whose bytes are split over tokens.
"""

import json
import math
import random
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from text2grad.runs import encode_row
from text2grad.types import Alignment, Completion, Critique, Example, MetricInfo, Missed, Rollout, Span

PLACES = ("Lindau", "Port Wren", "Östersund", "札幌", "Vila do Conde")
CAUSES = ("a burst pipe", "a lightning strike", "a faulty valve", "ice on the rails")
OUTCOMES = ("two people were hurt", "the line was closed for a day", "nobody was hurt", "forty homes lost power")
TITLES = {
    "score/mean": ("Score", "higher"),
    "reward/mean": ("Reward", "higher"),
    "kl/reference": ("KL to the reference", "neither"),
    "length/mean": ("Length", "neither"),
    "text/diversity": ("Diversity", "higher"),
    "text/repetition": ("Repetition", "lower"),
    "critic/unscored_frac": ("Unscored", "lower"),
    "loss/joint": ("Joint loss", "lower"),
    "loss/mean": ("Training loss", "lower"),
    "held_out/score": ("Held-out score", "higher"),
    "held_out/critic_score": ("Score of the training critic", "higher"),
    "held_out/loss": ("Held-out loss", "lower"),
    "held_out/watched": ("Held-out loss", "lower"),
    "held_out/poor_ap": ("Average precision on poor tokens", "higher"),
    "held_out/good_ap": ("Average precision on good tokens", "higher"),
}
METRICS = {key: MetricInfo(title, f"What {key} is.", better) for key, (title, better) in TITLES.items()}  # type: ignore[arg-type]
"""As the runs declare them; metrics that are not here are drawn under their keys."""
SCRIPT = "<script>window.hacked = true</script> & <img src=x onerror='window.hacked = true'> </script>"


def tokens(text: str) -> Completion:
    """Words with the space before them as tokens; an emoji is three of them; the end is one without characters."""
    offsets: list[tuple[int, int]] = []
    for match in re.finditer(r"\s*(?:[\w’]+|[^\w\s])", text):
        start, end = match.span()
        if ord(text[end - 1]) > 0xFFFF:
            offsets += [(start, end), (end - 1, end), (end - 1, end)]
        else:
            offsets += [(start, end)]
    offsets.append((len(text), len(text)))
    return Completion(text, tuple(range(len(offsets))), tuple(offsets))


def bulletin(chance: random.Random, skill: float, words: int = 0) -> tuple[Example, str, Critique, Alignment]:
    """An example, and a completion of it with what is said about it: each fact is right with the chance `skill`."""
    facts = {"place": chance.choice(PLACES), "cause": chance.choice(CAUSES), "outcome": chance.choice(OUTCOMES)}
    pools = {"place": PLACES, "cause": CAUSES, "outcome": OUTCOMES}
    prompt = f"Report {chance.randrange(1000)}: in {facts['place']}, {facts['cause']} was found; {facts['outcome']}."
    said = {k: v if chance.random() < skill else chance.choice(pools[k]) for k, v in facts.items()}
    left_out = chance.random() > skill
    text = f"In {said['place']} there was {said['cause']}" + ("." if left_out else f", and {said['outcome']}. 🚒")
    text += " The town is calm again, and the work goes on." * (words // 10)
    spans, sentences = [], []
    for key in ("place", "cause") if left_out else ("place", "cause", "outcome"):
        right = said[key] == facts[key]
        sentence = f"“{said[key]}” is right." if right else f"“{said[key]}” is wrong: the report says {facts[key]}."
        start = text.index(said[key])
        verdict = "good" if right else "poor"
        spans.append(Span(start, start + len(said[key]), verdict, provenance="exact", comment=sentence))  # type: ignore[arg-type]
        sentences.append(sentence)
    missed = []
    if chance.random() < 0.15:
        sentences.append("“seven ships” is out of place.")
        missed.append(Missed("seven ships", "not in the completion"))
    omissions = (f"what came of it: {facts['outcome']}",) if left_out else ()
    sentences += [f"It leaves out {omission}." for omission in omissions]
    good = sum(span.verdict == "good" for span in spans)
    score = (2 * good - len(spans) - len(omissions)) / 3
    critique = Critique(" ".join(sentences), omissions=omissions, score=score)
    return (
        Example(f"report-{chance.randrange(10_000)}", prompt),
        text,
        critique,
        Alignment(tuple(spans), tuple(missed), omissions),
    )


def row(update: int, chance: random.Random, skill: float, *, held_out: bool = False, **extra: Any) -> dict[str, Any]:
    """A line of `rollouts.jsonl`."""
    example, text, critique, alignment = bulletin(chance, skill, extra.pop("words", 0))
    made = rewarded(example, text, critique, alignment, chance, held_out)
    if extra.pop("unscored", False):
        made = Rollout(example, made.completion, logprobs=made.logprobs)
    return {**made.to_json(), "update": update, "held_out": held_out, **extra}


def rewarded(
    example: Example, text: str, critique: Critique, alignment: Alignment, chance: random.Random, held_out: bool = False
) -> Rollout:
    completion = tokens(text)
    rewards = [0.0] * len(completion.token_ids)
    for span in alignment.spans:
        last = max(index for index, (start, end) in enumerate(completion.offsets) if start < end and start < span.end)
        rewards[last] += {"good": 1 / 3, "poor": -1 / 3, "neutral": 0.0}[span.verdict]
    rewards[-1] -= len(alignment.omissions) / 3
    judged = Rollout(example, completion, critique=critique, alignment=alignment, token_rewards=tuple(rewards))
    if held_out:
        return judged
    before = [-abs(chance.gauss(0.4, 1.2)) for _ in rewards]
    advantages = [3 * reward + chance.gauss(0, 0.15) for reward in rewards]
    after = [b + 0.3 * a for b, a in zip(before, advantages, strict=True)]
    numbers = [tuple(round(value, 6) for value in stream) for stream in (before, advantages, after)]
    return replace(judged, logprobs=numbers[0], advantages=numbers[1], logprobs_after=numbers[2])


def skill_at(update: int, updates: int, arm: str) -> float:
    pace = {"span": 5.0, "scalar": 1.6}.get(arm, 3.0)
    return 0.45 + 0.45 * (1 - math.exp(-pace * update / max(updates, 1)))


def metrics(arm: str, seed: int, updates: int, every: int) -> Iterable[dict[str, Any]]:
    chance = random.Random(f"{arm} {seed}")
    for update in range(updates + 1):
        skill = skill_at(update, updates, arm)
        made: dict[str, Any] = {"update": update}
        if update % every == 0 or update == updates:
            made |= {"held_out/score": 2 * skill - 1 + chance.gauss(0, 0.015), "held_out/length": 16 + skill}
            made |= {"held_out/diversity": 0.7, "held_out/repetition": 0.02}
        if update:
            made |= {
                "score/mean": 2 * skill - 1 + chance.gauss(0, 0.06),
                "reward/mean": 2 * skill - 1 + chance.gauss(0, 0.06),
            }
            made |= {"kl/reference": 0.04 * (1 - math.exp(-update / 12)) + abs(chance.gauss(0, 0.002))}
            made |= {"length/mean": 15 + 3 * skill + chance.gauss(0, 0.4), "text/diversity": 0.74 - 0.1 * skill}
            made |= {"text/repetition": 0.02 + abs(chance.gauss(0, 0.004)), "critic/unscored_frac": 0.03}
            local = 0.06 if arm == "span" else 0.012
            made |= {
                "locality/good": local * abs(chance.gauss(1, 0.3)),
                "locality/poor": -local * abs(chance.gauss(1.4, 0.4)),
            }
            made |= {"locality/unlabelled": chance.gauss(0, 0.004), "align/missed_frac": abs(chance.gauss(0.05, 0.02))}
            made |= {
                "time/sample": 0.62,
                "time/critic": 0.05,
                "time/align": 0.02,
                "time/forward": 0.21,
                "time/update": 0.44,
            }
            made |= {"time/other": 0.03}
        if update == 3:
            made["warnings"] = ["reward/residual_ratio is 1.2: span rewards add variance"]
        yield made


def write_run(
    folder: Path,
    arm: str = "span",
    seed: int = 1,
    updates: int = 40,
    sampled: int = 2,
    held_out: int = 6,
    words: int = 0,
) -> Path:
    """A whole run folder; the first rows of training are the odd ones."""
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(
        f"seed: {seed}\nupdates: {updates}\ncredit: {arm}\noptim:\n  learning_rate: 1.0e-05\n"
    )
    versions = {"text2grad": "0.1.0", "torch": "2.9.0", "transformers": "5.10.1", "python": "3.11.9", "device": "cpu"}
    command = ["text2grad", "train", f"credit={arm}", f"seed={seed}", "out=runs/my run"]
    facts = {**versions, "platform": "Linux-6.1", "command": command, "seed": seed, "started": "2026-11-15T16:00:00Z"}
    facts["data"] = {"train.jsonl": "ab" * 32, "held_out.jsonl": "cd" * 32}
    facts["metrics"] = {key: info.to_json() for key, info in METRICS.items()}
    (folder / "run.json").write_text(json.dumps(facts))
    write_rows(folder / "metrics.jsonl", metrics(arm, seed, updates, max(1, updates // 8)))
    chance = random.Random(f"rows {arm} {seed}")
    rows = [
        odd_row(1, SCRIPT, "script-1"),
        row(1, chance, 0.5, unscored=True),
        odd_row(2, "Nine ships 🦩🦩.\nFine.", "emoji-1"),
    ]
    rows += [
        row(u, chance, skill_at(u, updates, arm), words=words) for u in range(1, updates + 1) for _ in range(sampled)
    ]
    for prompt in range(held_out):
        for update in (0, updates // 2, updates):
            # The same example each time: the facts come first from the generator.
            rows.append(row(update, random.Random(f"{prompt}"), skill_at(update, updates, arm), held_out=True))
            rows[-1]["example"]["id"] = f"held-out-{prompt}"
    write_rows(folder / "rollouts.jsonl", rows)
    return folder


def odd_row(update: int, text: str, identity: str) -> dict[str, Any]:
    """A completion that somebody might call an attack, criticised."""
    first = re.search(r"\w+ ?\w*", text)
    assert first is not None
    comment = f"“{first.group()}” has no place <b>here</b>."
    critique = Critique(comment, score=-0.5)
    spans = (Span(first.start(), first.end(), "poor", severity=0.5, comment=comment),)
    example = Example(identity, "Summarise: <i>nothing</i> & all.")
    made = rewarded(example, text, critique, Alignment(spans), random.Random(identity))
    return {**made.to_json(), "update": update, "held_out": False}


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    path.write_bytes(b"".join(map(encode_row, rows)))

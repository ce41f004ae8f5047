"""Train the scorer of paraphrases that ships in `src/text2grad/feedback/align/weights`.

usage: train_aligner.py [--data DIR] [--measure] [--write]

It learns from DeFacto's training split: people's explanations and instructions, with and without the article, alone and
among other sentences. `--measure` prints what the scorer reaches on folds that it has not seen, which is what
docs/alignment.md reports; `--write` trains on everything and writes the weights. Each takes minutes on one core.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.gold import Item, defacto, score

from text2grad.feedback.align.evidence import COLUMNS, evidence
from text2grad.feedback.align.ladder import prepare
from text2grad.feedback.align.paraphrase import Prose, route
from text2grad.feedback.align.scorer import WordScorer, best_words
from text2grad.feedback.align.settings import AlignSettings, ParaphraseSettings

WEIGHTS = Path(__file__).parent.parent / "src" / "text2grad" / "feedback" / "align" / "weights" / "words.json"
SETTINGS = AlignSettings()
Rows = NDArray[np.float32]
RATE = 8e-3


@dataclass(frozen=True)
class Case:
    """One item with the evidence of the sentences that its critique is about."""

    item: Item
    rows: list[Rows]
    places: list[list[tuple[int, int]]]
    labels: list[Rows]
    weight: float
    settled: frozenset[int]
    """Characters that quotes have already found."""


def label(item: Item, places: Sequence[tuple[int, int]]) -> Rows:
    return np.array(
        [sum(p in item.gold for p in range(*place)) > (place[1] - place[0]) / 2 for place in places], dtype=np.float32
    )


def word_case(item: Item, weight: float = 1.0) -> Case:
    """The same road as `align` takes, up to the scorer."""
    ready = prepare(item.completion, item.critique, item.source, SETTINGS)
    prose = Prose(item.completion, ready.text.sentences, ready.source)
    blame = [clause for clause in ready.clauses if clause.verdict != "good"]
    about = sorted(route(prose, blame, SETTINGS.paraphrase)[0].items())
    places = [[(token.start, token.end) for token in prose.tokens[number]] for number, _ in about]
    rows = [evidence(prose.raw, prose.tokens[number], group, ready.source) for number, group in about]
    return Case(item, rows, places, [label(item, spots) for spots in places], weight, _characters(ready.quoted))


def _characters(places: Sequence[tuple[int, int]]) -> frozenset[int]:
    return frozenset(character for place in places for character in range(*place))


def among_others(items: Sequence[Item], seed: int) -> list[Item]:
    """Each item's completion among two to four others', with their sources: a longer text."""
    random = np.random.default_rng(seed)
    made = []
    for item in items:
        others = [
            items[k]
            for k in random.choice(len(items), int(random.integers(2, 5)), replace=False)
            if items[k] is not item
        ]
        place = int(random.integers(0, len(others) + 1))
        before = "".join(other.completion.strip() + " " for other in others[:place])
        after = "".join(" " + other.completion.strip() for other in others[place:])
        text = before + item.completion + after
        gold = frozenset(p + len(before) for p in item.gold)
        universe = frozenset(p for p, character in enumerate(text) if not character.isspace())
        source = "\n".join([item.source or "", *(other.source or "" for other in others)])
        made.append(replace(item, completion=text, gold=gold, universe=universe, source=source))
    return made


class Reader(nn.Module):
    """Torch's side of `WordScorer`."""

    def __init__(self, columns: int, hidden: int, drop: float) -> None:
        super().__init__()
        self.into = nn.Linear(columns, hidden)
        self.both = nn.GRU(hidden, hidden, bidirectional=True, batch_first=True)
        self.out = nn.Linear(2 * hidden, 1)
        self.drop = nn.Dropout(drop)

    def forward(self, rows_BTC: torch.Tensor, lengths_B: torch.Tensor) -> torch.Tensor:
        entered = self.drop(torch.tanh(self.into(self.drop(rows_BTC))))
        packed = nn.utils.rnn.pack_padded_sequence(entered, lengths_B, batch_first=True, enforce_sorted=False)
        states, _ = nn.utils.rnn.pad_packed_sequence(self.both(packed)[0], batch_first=True)
        logits_BT: torch.Tensor = self.out(self.drop(states))[..., 0]
        return logits_BT


def train(
    cases: Sequence[Case], seeds: Sequence[int], hidden: int = 20, drop: float = 0.35, epochs: int = 22
) -> dict[str, Any]:
    """Weights in the form that `WordScorer` reads. The loss is half cross-entropy, half what F1 loses."""
    flat = np.vstack([rows for case in cases for rows in case.rows])
    mean, scale = flat.mean(axis=0), flat.std(axis=0) + 0.05
    pieces = [
        (
            torch.tensor((rows - mean) / scale),
            torch.tensor(labels),
            torch.tensor([b - a for a, b in spots], dtype=torch.float32),
            case.weight,
        )
        for case in cases
        for rows, labels, spots in zip(case.rows, case.labels, case.places, strict=True)
        if len(rows)
    ]
    nets = []
    for seed in seeds:
        torch.manual_seed(seed)
        net = Reader(flat.shape[1], hidden, drop)
        _fit(net, pieces, epochs, np.random.default_rng(seed))
        nets.append(_export(net.eval()))
    return {"columns": list(COLUMNS), "mean": _plain(mean), "scale": _plain(scale), "nets": nets}


def _fit(net: Reader, pieces: Sequence[Any], epochs: int, random: np.random.Generator) -> None:
    optimizer = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=0.03)
    batches = max(1, len(pieces) // 48)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=epochs * batches)
    pad = nn.utils.rnn.pad_sequence
    for _ in range(epochs):
        for chosen in np.array_split(random.permutation(len(pieces)), batches):
            rows, labels, sizes, weights = zip(*(pieces[k] for k in chosen), strict=True)
            labels_BT, sizes_BT = pad(list(labels), batch_first=True), pad(list(sizes), batch_first=True)
            logits_BT = net(pad(list(rows), batch_first=True), (sizes_BT > 0).sum(1))
            weights_B = torch.tensor(weights)
            each_BT = torch.sqrt(sizes_BT) * weights_B[:, None]
            entropy = nn.functional.binary_cross_entropy_with_logits(logits_BT, labels_BT, reduction="none")
            chance_BT = torch.sigmoid(logits_BT) * (sizes_BT > 0)
            shared_B = (chance_BT * labels_BT * sizes_BT).sum(1)
            lost_B = 1 - (2 * shared_B + 1) / (((chance_BT + labels_BT) * sizes_BT).sum(1) + 1)
            # A sentence without gold has no F1 to lose; cross-entropy alone teaches it to stay silent.
            held_B = weights_B * (labels_BT.sum(1) > 0)
            loss = 0.6 * (entropy * each_BT).sum() / each_BT.sum() + 0.4 * (lost_B * held_B).sum() / held_B.sum().clamp(
                min=1e-6
            )
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()


def _export(net: Reader) -> dict[str, Any]:
    """Matrices as numpy multiplies them: rows × columns, both directions stacked."""
    named = {name: value.detach().numpy() for name, value in net.named_parameters()}
    both = {
        name: np.stack([named[f"both.{key}"], named[f"both.{key}_reverse"]])
        for name, key in (
            ("gates_in", "weight_ih_l0"),
            ("gates_in_bias", "bias_ih_l0"),
            ("gates_state", "weight_hh_l0"),
            ("gates_state_bias", "bias_hh_l0"),
        )
    }
    for name in ("gates_in", "gates_state"):
        both[name] = both[name].transpose(0, 2, 1)
    rest = {"into": named["into.weight"].T, "into_bias": named["into.bias"]}
    out = {"out": named["out.weight"][0], "out_bias": named["out.bias"]}
    return {name: _plain(value) for name, value in {**rest, **both, **out}.items()}


def _plain(values: Any) -> Any:
    return np.round(np.asarray(values, dtype=np.float64), 4).tolist()


def judge(case: Case, chances: Sequence[Rows], settings: ParaphraseSettings) -> tuple[float, bool, bool]:
    found = set(case.settled)
    for spots, chance in zip(case.places, chances, strict=True):
        chosen = best_words(chance, np.array([b - a for a, b in spots]), settings)
        for k, place in enumerate(spots):
            if chosen[k]:
                found.update(
                    range(spots[k - 1][1] if k and chosen[k - 1] and not case.item.lines else place[0], place[1])
                )
    return score(case.item, found)


def report(name: str, cases: Sequence[Case], chances: Sequence[Sequence[Rows]], settings: Any) -> None:
    for certain in (0.3, 0.36, 0.42, 0.48):
        tried = replace(settings, certain=certain)
        scores = np.array(
            [judge(case, chance, tried) for case, chance in zip(cases, chances, strict=True)], dtype=float
        )
        print(
            f"{name}: certain={certain} f1={scores[:, 0].mean():.3f} hit={scores[:, 1].mean():.3f} "
            f"abstained={scores[:, 2].mean():.3f}",
            flush=True,
        )


def word_sets(folder: Path) -> list[list[Case]]:
    """The training split as people wrote it, and four ways to make the same critiques harder."""
    plain = list(defacto(folder, "train"))
    told = list(defacto(folder, "train", "instruction"))
    return [
        [word_case(item) for item in plain],
        [word_case(item, 0.5) for item in told],
        [word_case(replace(item, source=None), 0.3) for item in plain],
        [word_case(item, 0.3) for item in among_others(plain, 1)],
        [word_case(replace(item, source=None), 0.2) for item in among_others(told, 2)],
    ]


def measure(sets: Sequence[Sequence[Case]]) -> None:
    """Five folds of the training split, one network each."""
    plain = [case.item for case in sets[0]]
    fold_of = {
        item.name: fold for item, fold in zip(plain, np.random.default_rng(0).permutation(len(plain)) % 5, strict=True)
    }
    seen: dict[int, list[list[Rows]]] = {k: [[] for _ in sets[k]] for k in range(len(sets))}
    for fold in range(5):
        kept = [case for cases in sets for case in cases if fold_of.get(case.item.name, -1) != fold]
        scorer = WordScorer(train(kept, seeds=(0,)))
        for k, cases in enumerate(sets):
            for index, case in enumerate(cases):
                if fold_of.get(case.item.name, -1) == fold:
                    seen[k][index] = scorer(case.rows)
    for k, name in enumerate(("explanation", "instruction", "no source", "among others", "among others, no source")):
        held = [(case, chances) for case, chances in zip(sets[k], seen[k], strict=True) if case.item.name in fold_of]
        report(name, [case for case, _ in held], [chances for _, chances in held], SETTINGS.paraphrase)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", default=os.environ.get("TEXT2GRAD_DATA"), help="folder of data; default: $TEXT2GRAD_DATA"
    )
    parser.add_argument("--measure", action="store_true", help="measure on five folds")
    parser.add_argument("--write", action="store_true", help="train on everything and write the weights")
    args = parser.parse_args()
    if not args.data:
        parser.error("name the folder of data with --data or TEXT2GRAD_DATA")
    torch.set_num_threads(1)
    sets = word_sets(Path(args.data))
    if args.measure:
        measure(sets)
    if args.write:
        weights = train([case for cases in sets for case in cases], seeds=(0, 1, 2))
        WEIGHTS.write_text(json.dumps(weights, separators=(",", ":")) + "\n", encoding="utf-8")
        print(f"wrote {WEIGHTS.name}: {WEIGHTS.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()

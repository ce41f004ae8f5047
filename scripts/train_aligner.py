"""Train the scorers of paraphrases that ship in `src/text2grad/feedback/align/weights`.

usage: train_aligner.py [--data DIR] [--measure develop|held_out|folds] [--kinds KIND…] [--write]

The word scorer learns from the develop parts of all kinds of prose in `benchmarks.gold`; DeFacto's also as
instructions, without the article, and among other sentences. The sentence scorer learns from DeFacto alone, and its
gate to tell DeFacto's critiques from the others.

`--measure` leaves one kind out, trains on the others and measures on the kind left out, which is what docs/alignment.md
reports and what to steer by; `--measure folds` measures the recipe as shipped on three folds of DeFacto's training
half. `--write` trains on everything and writes the weights. Each takes minutes on one core.
"""

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.gold import Item, defacto, load
from benchmarks.gold.items import visible
from benchmarks.kinds import aligned, table

from text2grad.feedback.align import paraphrase
from text2grad.feedback.align.context import CONTEXT, context
from text2grad.feedback.align.evidence import COLUMNS, GENERAL, evidence, points
from text2grad.feedback.align.ladder import prepare
from text2grad.feedback.align.paraphrase import Prose, route
from text2grad.feedback.align.scorer import SentenceScorer, WordScorer, pool
from text2grad.feedback.align.settings import AlignSettings
from text2grad.feedback.text import sentences

WEIGHTS = Path(__file__).parent.parent / "src" / "text2grad" / "feedback" / "align" / "weights" / "words.json"
SETTINGS = AlignSettings()
Rows = NDArray[np.float32]
RATE = 8e-3
SEEDS = range(3)
NEWS_SEEDS = range(6)
"""Of the networks in the word scorer, and in the sentence scorer."""
FOLDS = 3
WIDTH, LAYERS = 5, 2
"""Words that are read together, and how often."""


@dataclass(frozen=True)
class Case:
    """One item with the evidence of the sentences that its critique may be about."""

    rows: list[Rows]
    context: list[Rows]
    """What the sentence scorer reads beside the rows."""
    labels: list[Rows]
    sizes: list[Rows]
    """Characters of each word."""
    weight: float


def case_of(item: Item, weight: float = 1.0) -> Case:
    """The same road as `align` takes, up to the scorer."""
    ready = prepare(item.completion, item.critique, item.source, SETTINGS)
    prose = Prose(item.completion, ready.text.sentences, ready.source)
    clauses = [clause for clause in ready.clauses if item.praise or clause.verdict != "good"]
    about = sorted(route(prose, clauses, SETTINGS.paraphrase)[0].items())
    stems = ready.source.stems if ready.source else None
    read = [(prose.tokens[n], evidence(prose.raw, prose.tokens[n], aim, stems), aim) for n, aim in about]
    given = [(tokens, rows, aim) for tokens, rows, aim in read if points(rows, praise=False)]
    more = [context(tokens, aim, ready.source) for tokens, _, aim in given]
    places = [[(token.start, token.end) for token in tokens] for tokens, *_ in given]
    sizes = [np.array([end - start for start, end in spots], dtype=np.float32) for spots in places]
    labels = [
        np.array([sum(p in item.gold for p in range(a, b)) > (b - a) / 2 for a, b in spots], dtype=np.float32)
        for spots in places
    ]
    return Case([rows for _, rows, _ in given], more, labels, sizes, weight)


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


def alone(item: Item) -> Item | None:
    """The one sentence that holds all gold, as a text of its own: not only DeFacto has texts of one sentence."""
    held = [place for place in sentences(item.completion) if not item.gold.isdisjoint(range(*place))]
    if len(held) != 1:
        return None
    ((start, end),) = held
    text = item.completion[start:end]
    gold = frozenset(p - start for p in item.gold)
    return replace(item, completion=text, gold=gold, universe=visible(text))


class Reader(nn.Module):
    """Torch's side of `WordScorer`."""

    def __init__(self, columns: int, hidden: int, drop: float) -> None:
        super().__init__()
        self.into = nn.Linear(columns, hidden)
        self.near = nn.ModuleList(nn.Conv1d(hidden, hidden, WIDTH, padding=WIDTH // 2) for _ in range(LAYERS))
        self.out = nn.Linear((LAYERS + 1) * hidden, 1)
        self.drop = nn.Dropout(drop)

    def forward(self, rows_BTC: torch.Tensor, lengths_B: torch.Tensor) -> torch.Tensor:
        there_BT1 = (torch.arange(rows_BTC.shape[1]) < lengths_B[:, None])[..., None].float()
        states = [torch.tanh(self.into(self.drop(rows_BTC))) * there_BT1]
        for near in self.near:
            around = near(self.drop(states[-1]).transpose(1, 2)).transpose(1, 2)
            states.append(torch.tanh(around) * there_BT1)
        logits_BT: torch.Tensor = self.out(self.drop(torch.cat(states, dim=-1)))[..., 0]
        return logits_BT


class SentenceReader(nn.Module):
    """Torch's side of `SentenceScorer`."""

    def __init__(self, columns: int, hidden: int, drop: float) -> None:
        super().__init__()
        self.into = nn.Linear(columns, hidden)
        self.both = nn.GRU(hidden, hidden, bidirectional=True, batch_first=True)
        self.out = nn.Linear(3 * hidden, 1)
        self.drop = nn.Dropout(drop)

    def forward(self, rows_BTC: torch.Tensor, lengths_B: torch.Tensor) -> torch.Tensor:
        entered = self.drop(torch.tanh(self.into(self.drop(rows_BTC))))
        packed = nn.utils.rnn.pack_padded_sequence(entered, lengths_B, batch_first=True, enforce_sorted=False)
        states, _ = nn.utils.rnn.pad_packed_sequence(self.both(packed)[0], batch_first=True)
        logits_BT: torch.Tensor = self.out(self.drop(torch.cat([states, entered], dim=-1)))[..., 0]
        return logits_BT


def train(cases: Sequence[Case], seeds: Sequence[int], epochs: int = 20) -> dict[str, Any]:
    """Weights in the form that `WordScorer` reads."""
    cases = [replace(case, rows=[rows[:, :GENERAL] for rows in case.rows]) for case in cases]
    return _train(cases, seeds, lambda columns: Reader(columns, 24, 0.3), epochs)


def train_sentences(cases: Sequence[Case], seeds: Sequence[int], epochs: int = 20) -> dict[str, Any]:
    """Weights in the form that `SentenceScorer` reads."""
    cases = [
        replace(case, rows=[np.hstack(both) for both in zip(case.rows, case.context, strict=True)]) for case in cases
    ]
    return _train(cases, seeds, lambda columns: SentenceReader(columns, 20, 0.35), epochs)


def _train(
    cases: Sequence[Case], seeds: Sequence[int], make: Callable[[int], Reader | SentenceReader], epochs: int
) -> dict[str, Any]:
    """The loss is half cross-entropy, half what F1 loses."""
    cases = [case for case in cases if case.rows]
    flat = np.vstack([rows for case in cases for rows in case.rows])
    mean, scale = flat.mean(axis=0), flat.std(axis=0) + 0.05
    nets = []
    for seed in seeds:
        torch.manual_seed(seed)
        net = make(flat.shape[1])
        _fit(net, cases, (mean, scale), epochs, np.random.default_rng(seed))
        net.eval()
        nets.append(_export(net) if isinstance(net, Reader) else _export_sentences(net))
    return {"mean": _plain(mean), "scale": _plain(scale), "nets": nets}


def train_gate(own: Sequence[Case], others: Sequence[Sequence[Case]]) -> dict[str, Any]:
    """Logistic regression: is a critique of the sentence scorer's own kind? Both sides weigh the same, and so does each
    of the other kinds."""
    groups = [[pool(case.rows) for case in cases if case.rows] for cases in (own, *others)]
    shares = [0.5, *(0.5 / len(others) for _ in others)]
    pooled = np.vstack([row for group in groups for row in group])
    mean, scale = pooled.mean(axis=0), pooled.std(axis=0) + 0.05
    inputs = torch.from_numpy((pooled - mean) / scale)
    labels = torch.tensor([float(k == 0) for k, group in enumerate(groups) for _ in group])
    weights = torch.tensor([share / len(group) for share, group in zip(shares, groups, strict=True) for _ in group])
    layer = nn.Linear(inputs.shape[1], 1)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        lost = nn.functional.binary_cross_entropy_with_logits(layer(inputs)[:, 0], labels, weights, reduction="sum")
        total = lost + 0.01 * (layer.weight**2).sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    named = {"mean": mean, "scale": scale, "weights": layer.weight[0].detach(), "bias": layer.bias[0].detach()}
    return {name: _plain(values) for name, values in named.items()}


def _fit(
    net: nn.Module, cases: Sequence[Case], moments: tuple[Rows, Rows], epochs: int, random: np.random.Generator
) -> None:
    mean, scale = moments
    optimizer = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=0.03)
    batches = max(1, len(cases) // 48)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=epochs * batches)

    def pad(parts: Sequence[Rows]) -> torch.Tensor:
        return nn.utils.rnn.pad_sequence([torch.from_numpy(part) for part in parts], batch_first=True)

    for _ in range(epochs):
        for chosen in np.array_split(random.permutation(len(cases)), batches):
            batch = [cases[k] for k in chosen]
            # S sentences of the batch's I items, T words.
            rows_STC = pad([(rows - mean) / scale for case in batch for rows in case.rows])
            labels_ST = pad([labels for case in batch for labels in case.labels])
            sizes_ST = pad([sizes for case in batch for sizes in case.sizes])
            item_S = torch.tensor([k for k, case in enumerate(batch) for _ in case.rows])
            weight_I = torch.tensor([case.weight for case in batch])
            logits_ST = net(rows_STC, (sizes_ST > 0).sum(1))
            each_ST = torch.sqrt(sizes_ST) * weight_I[item_S][:, None]
            entropy = nn.functional.binary_cross_entropy_with_logits(logits_ST, labels_ST, reduction="none")
            chance_ST = torch.sigmoid(logits_ST) * (sizes_ST > 0)

            def summed(values_ST: torch.Tensor, item_S: torch.Tensor = item_S, count: int = len(batch)) -> torch.Tensor:
                return torch.zeros(count).index_add(0, item_S, values_ST.sum(1))

            shared_I = summed(chance_ST * labels_ST * sizes_ST)
            lost_I = 1 - (2 * shared_I + 1) / (summed((chance_ST + labels_ST) * sizes_ST) + 1)
            # An item without gold in reach has no F1 to lose; cross-entropy alone teaches it to stay silent.
            held_I = weight_I * (summed(labels_ST) > 0)
            loss = 0.5 * (entropy * each_ST).sum() / each_ST.sum() + 0.5 * (lost_I * held_I).sum() / held_I.sum().clamp(
                min=1e-6
            )
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()


def _export(net: Reader) -> dict[str, Any]:
    """Matrices as numpy multiplies them: rows × columns, the neighbours of a word side by side."""
    layers = [layer for layer in net.near if isinstance(layer, nn.Conv1d)]
    near = [layer.weight.permute(2, 1, 0).flatten(0, 1) for layer in layers]
    named = {
        "into": net.into.weight.T,
        "into_bias": net.into.bias,
        "near": torch.stack(near),
        "near_bias": torch.stack([layer.bias for layer in layers if layer.bias is not None]),
        "out": net.out.weight[0],
        "out_bias": net.out.bias,
    }
    return {name: _plain(value.detach()) for name, value in named.items()}


def _export_sentences(net: SentenceReader) -> dict[str, Any]:
    """Matrices as numpy multiplies them: rows × columns, both directions stacked."""
    named = dict(net.both.named_parameters())

    def both(key: str) -> torch.Tensor:
        return torch.stack([named[f"{key}_l0"], named[f"{key}_l0_reverse"]])

    exported = {
        "into": net.into.weight.T,
        "into_bias": net.into.bias,
        "gates_in": both("weight_ih").transpose(1, 2),
        "gates_in_bias": both("bias_ih"),
        "gates_state": both("weight_hh").transpose(1, 2),
        "gates_state_bias": both("bias_hh"),
        "out": net.out.weight[0],
        "out_bias": net.out.bias,
    }
    return {name: _plain(value.detach()) for name, value in exported.items()}


def _plain(values: Any) -> Any:
    return np.round(np.asarray(values, dtype=np.float64), 4).tolist()


def fold_of(item: Item) -> int:
    """By the article, so that no two forms of a critique are in different folds."""
    return int(hashlib.md5((item.source or "").encode()).hexdigest(), 16) % FOLDS


def cases_of(folder: Path, fold: int | None = None) -> dict[str, list[Case]]:
    """Kind → its cases; each kind weighs as much as any other, DeFacto, which people wrote, six times as much. DeFacto
    without a fold, where one is named."""
    kinds = {kind: items for kind, items in load(folder, "develop").items() if not items[0].lines}
    told = [item for item in defacto(folder, "train", "instruction") if fold_of(item) != fold]
    plain = kinds["defacto"] = [item for item in kinds["defacto"] if fold_of(item) != fold]
    heavy = {"defacto": 6.0}
    made = {
        kind: [case_of(item, heavy.get(kind, 1.0) * 300 / len(items)) for item in items]
        for kind, items in kinds.items()
    }
    # The same critiques made harder: as instructions, without the article, among other sentences.
    made["defacto"] += [case_of(item, 0.4) for item in told]
    made["defacto"] += [case_of(replace(item, source=None), 0.4) for item in plain[::2]]
    made["defacto"] += [case_of(item, 0.4) for item in among_others(plain[1::2], 1)]
    made["defacto"] += [case_of(replace(item, source=None), 0.3) for item in among_others(told[1::4], 2)]
    return made


def news_of(folder: Path, fold: int | None = None) -> list[Case]:
    """DeFacto's critiques alone, with all their harder forms: what the sentence scorer learns from."""
    plain = [item for item in defacto(folder, "train") if fold_of(item) != fold]
    told = [item for item in defacto(folder, "train", "instruction") if fold_of(item) != fold]
    return [
        *(case_of(item) for item in plain),
        *(case_of(item, 0.5) for item in told),
        *(case_of(replace(item, source=None), 0.3) for item in plain),
        *(case_of(item, 0.3) for item in among_others(plain, 1)),
        *(case_of(replace(item, source=None), 0.2) for item in among_others(told, 2)),
    ]


def others_of(folder: Path) -> dict[str, list[Case]]:
    """Kind of prose → the cases that the gate learns to tell from DeFacto's, the sentence with gold alone, too."""
    kinds = {kind: items for kind, items in load(folder, "develop").items() if not items[0].lines}
    del kinds["defacto"]
    return {
        kind: [case_of(item) for item in (*items, *filter(None, map(alone, items)))] for kind, items in kinds.items()
    }


def plain_of(own: Sequence[Case]) -> list[Case]:
    """Of the sentence scorer's cases, the critiques as people wrote them."""
    return [case for case in own if case.weight == 1.0]


def known(own: Sequence[Case], others: Sequence[Sequence[Case]]) -> dict[str, Any]:
    """Weights of the sentence scorer with its gate."""
    return {**train_sentences(own, NEWS_SEEDS), "gate": train_gate(plain_of(own), others)}


def using(words: WordScorer, sentences: SentenceScorer | None) -> Any:
    """The method that aligns by these scorers."""

    def method(item: Item) -> set[int]:
        vars(paraphrase)["word_scorer"] = lambda _: words
        vars(paraphrase)["sentence_scorer"] = lambda *_: sentences
        return aligned(item)

    return method


def measure(folder: Path, part: Any, only: Sequence[str]) -> None:
    """Each kind by scorers and a gate that were trained on the others; DeFacto, the sentence scorer's own kind,
    without that one."""
    cases, own, others = cases_of(folder), news_of(folder), others_of(folder)
    news = train_sentences(own, NEWS_SEEDS)
    kinds = {kind: items for kind, items in load(folder, part).items() if kind in only or not only}

    def left_out(kind: str) -> Any:
        if kind not in cases:
            return aligned  # Of code, which no scorer reads.
        kept = [case for other, group in cases.items() if other != kind for case in group]
        words = WordScorer(train(kept, SEEDS))
        if kind == "defacto":
            return using(words, None)
        gate = train_gate(plain_of(own), [group for other, group in others.items() if other != kind])
        return using(words, SentenceScorer({**news, "gate": gate}))

    table(kinds, {kind: left_out(kind) for kind in kinds})


def measure_folds(folder: Path) -> None:
    """The recipe as shipped; each item by scorers and a gate that have not seen its article."""
    others = list(others_of(folder).values())
    methods = []
    for fold in range(FOLDS):
        words = train([case for group in cases_of(folder, fold).values() for case in group], SEEDS)
        methods.append(using(WordScorer(words), SentenceScorer(known(news_of(folder, fold), others))))
    table({"defacto": list(defacto(folder, "train"))}, {"defacto": lambda item: methods[fold_of(item)](item)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", default=os.environ.get("TEXT2GRAD_DATA"), help="folder of data; default: $TEXT2GRAD_DATA"
    )
    parser.add_argument(
        "--measure",
        choices=["develop", "held_out", "folds"],
        help="leave one kind, or one fold of DeFacto, out at a time",
    )
    parser.add_argument("--kinds", nargs="*", default=[], help="measure these kinds alone")
    parser.add_argument("--write", action="store_true", help="train on everything and write the weights")
    args = parser.parse_args()
    if not args.data:
        parser.error("name the folder of data with --data or TEXT2GRAD_DATA")
    torch.set_num_threads(1)
    folder = Path(args.data)
    if args.measure == "folds":
        measure_folds(folder)
    elif args.measure:
        measure(folder, args.measure.replace("_", " "), args.kinds)
    if args.write:
        weights = {
            "columns": list(COLUMNS),
            "context": list(CONTEXT),
            "words": train([case for cases in cases_of(folder).values() for case in cases], SEEDS),
            "sentences": known(news_of(folder), list(others_of(folder).values())),
        }
        WEIGHTS.write_text(json.dumps(weights, separators=(",", ":")) + "\n", encoding="utf-8")
        print(f"wrote {WEIGHTS.name}: {WEIGHTS.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()

"""Train the reader: one model per left-out kind, and one on all kinds, side by side on one card.

usage: python -m studies.align.train DATA.jsonl.gz ENCODER OUT [--limit SECONDS] [--steps N] [--batch N] [--jobs N]
       [--only "NAME;NAME"]

DATA is what data.py writes, ENCODER a folder with a pretrained encoder. Writes to OUT: `predictions.npz` (what each
model says of the pairs it has not seen: evaluate.py measures them) and `results.json` (times, losses, a first measure).
The first wave is one model per kind, and one that learns from the develop part of all kinds, with two seeds. The
second, if time is left: each left-out kind with a third of the steps, and people's kinds with all weights trained
instead of LoRA.
"""

import argparse
import gzip
import json
import math
import multiprocessing
import pickle
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from studies.align import reader
from studies.align.reader import Card, Encoded, Network, Row

CARD = Card("sentence-transformers/all-MiniLM-L6-v2")
PEOPLE = ("defacto", "ilf", "qa", "squality")
"""Kinds that people wrote."""
MASKED = 103
"""The id of [MASK]."""
MASK = 0.1
"""Share of a critique's tokens that are hidden in training, so that no single word is learned by heart."""
NO_SOURCE = 0.25
"""Share of training pairs whose source is hidden."""


@dataclass(frozen=True)
class Asked:
    completion: str
    critique: str
    source: str | None


@dataclass(frozen=True)
class Known:
    """A pair as rows, with the units that are meant."""

    kind: str
    part: str
    use: str
    name: str
    text: str
    spans: list[list[int]]
    encoded: Encoded
    labels: NDArray[np.float32]


@dataclass(frozen=True)
class Job:
    name: str
    leave: str | None
    seed: int
    lora: bool
    batch: int
    steps: int
    until: float
    """By the clock, in seconds since the epoch."""


def encoder_of(folder: Path) -> reader.Encoder:
    from tokenizers import Tokenizer

    tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return reader.Encoder(tokenizer, tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]"), CARD)


def read_data(path: Path, encoder: Path) -> list[Known]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    encode = encoder_of(encoder)
    encoded = encode([Asked(row["completion"], row["critique"], row["source"]) for row in rows])
    return [
        Known(
            kind=row["kind"],
            part=row["part"],
            use=row["use"],
            name=row["name"],
            text=row["completion"],
            spans=row["spans"],
            encoded=each,
            labels=_labels(each.places, row["spans"], len(row["completion"])),
        )
        for row, each in zip(rows, encoded, strict=True)
    ]


def _labels(places: Sequence[tuple[int, int]], spans: Sequence[Sequence[int]], length: int) -> NDArray[np.float32]:
    """1 where more than half of a unit's characters are meant."""
    meant = np.zeros(length + 1)
    for start, end in spans:
        meant[start:end] = 1
    return np.array([meant[a:b].mean() > 0.5 for a, b in places], dtype=np.float32)


class Batches:
    """Kinds by the root of their size, pairs at random, mostly windows with something that is meant."""

    def __init__(self, known: Sequence[Known], seed: int, size: int) -> None:
        self.size, self.random = size, np.random.default_rng(seed)
        self.kinds = [[each for each in known if each.kind == kind] for kind in sorted({each.kind for each in known})]
        sizes = np.sqrt([len(items) for items in self.kinds])
        self.shares = sizes / sizes.sum()
        self.full = {
            id(pair): [row for row in pair.encoded.rows if any(unit >= 0 and pair.labels[unit] for unit in row.units)]
            for pair in known
        }

    def draw(self, device: Any) -> tuple[tuple[torch.Tensor, ...], torch.Tensor, torch.Tensor]:
        """(tensors of the rows, labels (B, T), weights (B, T))."""
        random, rows, labels = self.random, [], []
        for kind in random.choice(len(self.kinds), self.size, p=self.shares):
            pair = self.kinds[kind][random.integers(len(self.kinds[kind]))]
            windows, full = pair.encoded.rows, self.full[id(pair)]
            chosen = full if full and random.random() < 0.8 else windows
            row = chosen[random.integers(len(chosen))]
            labels.append([pair.labels[unit] if unit >= 0 else -1.0 for unit in row.units])
            rows.append(_hidden(row, random))
        inputs = reader.tensors(rows, 0, "cpu")
        labels_BT = torch.full(inputs[0].shape, -1.0)
        for index, (row, values) in enumerate(zip(rows, labels, strict=True)):
            labels_BT[index, row.first : row.first + len(values)] = torch.tensor(values)
        moved = tuple(each.to(device, non_blocking=True) for each in inputs)
        return moved, labels_BT.clamp(min=0).to(device), (labels_BT >= 0).float().to(device)


def _hidden(row: Row, random: np.random.Generator) -> Row:
    ids, flags = list(row.ids), row.flags
    for at in np.flatnonzero(random.random(row.first - 2) < MASK).tolist():
        ids[at + 1] = MASKED
    if random.random() < NO_SOURCE:
        flags = [flag - flag % 4 for flag in flags]
    return Row(ids, row.types, flags, row.first, row.units)


def loss_of(logits_BT: torch.Tensor, labels_BT: torch.Tensor, weights_BT: torch.Tensor) -> torch.Tensor:
    """Half cross-entropy, each row alike; half what F1 loses. A row without gold has no F1 to lose."""
    entropy = torch.nn.functional.binary_cross_entropy_with_logits(logits_BT, labels_BT, reduction="none")
    each_B = (entropy * weights_BT).sum(1) / weights_BT.sum(1).clamp(min=1)
    chance_BT = torch.sigmoid(logits_BT) * weights_BT
    shared_B = (chance_BT * labels_BT).sum(1)
    lost_B = 1 - (2 * shared_B + 1) / ((chance_BT + labels_BT * weights_BT).sum(1) + 1)
    held_B = (labels_BT.sum(1) > 0).float()
    return 0.5 * each_B.mean() + 0.5 * (lost_B * held_B).sum() / held_B.sum().clamp(min=1)


def fit(known: Sequence[Known], encoder: Path, job: Job, device: str) -> tuple[Network, dict[str, Any]]:
    from transformers import AutoModel

    torch.manual_seed(job.seed)
    network = Network(AutoModel.from_pretrained(str(encoder)).float()).to(device)
    network.encoder.get_input_embeddings().weight.requires_grad_(False)
    if job.lora:
        reader.adapt(network, CARD)
    # Few numbers start from nothing; the encoder's own are changed with care.
    new = [value for name, value in network.named_parameters() if value.requires_grad and "encoder" not in name]
    thin = [value for name, value in network.named_parameters() if value.requires_grad and "encoder" in name]
    groups: list[dict[str, Any]] = [{"params": new, "lr": 2e-3}, {"params": thin, "lr": 1e-3 if job.lora else 1e-4}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01)
    rates = [group["lr"] for group in groups]
    batches, began, step, losses = Batches(known, job.seed, job.batch), time.time(), 0, []
    network.train()
    while step < job.steps and time.time() < job.until:
        # Whichever ends first, the steps or the time: the rate is at zero by then.
        done = max(step / job.steps, (time.time() - began) / max(1.0, job.until - began))
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * min(1.0, done / 0.06 + 0.01) * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
        inputs, labels_BT, weights_BT = batches.draw(device)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            logits_BT = network(*inputs)
        loss = loss_of(logits_BT.float(), labels_BT, weights_BT)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_([*new, *thin], 1.0)
        optimizer.step()
        step += 1
        if step % 20 == 0:
            losses.append(round(loss.item(), 4))
    return network.eval(), {"steps": step, "seconds": round(time.time() - began, 1), "losses": losses}


def run(job: Job, cache: Path, encoder: Path) -> tuple[Job, dict[str, Any], dict[str, Any]]:
    """One job in a process of its own: (itself, what it took, name → probabilities of the units)."""
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    known: list[Known] = pickle.loads(cache.read_bytes())
    learned = [each for each in known if each.use == "train" and each.kind != job.leave]
    network, took = fit(learned, encoder, job, device)
    asked = [
        each
        for each in known
        if each.use != "train" and (each.kind == job.leave or (job.leave is None and each.part == "held out"))
    ]
    if device == "cpu":
        asked = asked[:8]
    with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
        found = reader.chances(network, [each.encoded for each in asked], 0, 65536 if device == "cuda" else 4096)
    names = ["|".join((each.kind, each.part, each.use, each.name)) for each in asked]
    took["measured"] = measured(asked, found)
    return job, took, dict(zip(names, found, strict=True))


def packed(job: Job, found: dict[str, Any]) -> dict[str, Any]:
    """Name → probabilities as three arrays of predictions.npz."""
    return {
        f"{job.name}/names": np.array(list(found)),
        f"{job.name}/sizes": np.array([len(chance) for chance in found.values()]),
        f"{job.name}/chances": np.concatenate(list(found.values())).astype(np.float16),
    }


def measured(asked: Sequence[Known], found: Sequence[NDArray[np.float32]]) -> dict[str, list[float]]:
    """Kind and part → (items, F1, hit, abstained) in characters, of the critiques as they are. A first look: the
    ladder's own quotes are not in it."""
    scores: dict[str, list[list[float]]] = {}
    for each, chance in zip(asked, found, strict=True):
        if each.use != "direct":
            continue
        visible = {k for k, character in enumerate(each.text) if not character.isspace()}
        places = reader.decode(each.text, each.encoded.places, chance, CARD)
        chosen = {k for start, end, _ in places for k in range(start, end)} & visible
        gold = {k for start, end in each.spans for k in range(start, end)} & visible
        both, union = len(chosen & gold), len(chosen | gold)
        row = [2 * both / max(1, len(chosen) + len(gold)), float(both >= 0.5 * union), float(not chosen)]
        scores.setdefault(f"{each.kind}, {each.part}", []).append(row)
    means = {key: [round(float(value), 4) for value in np.mean(rows, axis=0)] for key, rows in scores.items()}
    return {key: [len(rows), *means[key]] for key, rows in scores.items()}


def speed(encoder: Path, data: Path) -> dict[str, float]:
    """Pairs a second of the reader alone, from texts to places, on this device."""
    from transformers import AutoModel

    device = "cuda" if torch.cuda.is_available() else "cpu"
    network = Network(AutoModel.from_pretrained(str(encoder)).to(device, torch.bfloat16)).to(device, torch.bfloat16)
    encode = encoder_of(encoder)
    with gzip.open(data, "rt", encoding="utf-8") as file:
        rows = [row for row in map(json.loads, file) if row["use"] == "direct"]
    rows = rows if device == "cuda" else rows[:16]
    questions = [Asked(row["completion"], row["critique"], row["source"]) for row in rows]
    best = 0.0
    for _ in range(3):
        start = time.perf_counter()
        encoded = encode(questions)
        middle = time.perf_counter()
        found = reader.chances(network.eval(), encoded, 0, 65536)
        for question, each, chance in zip(questions, encoded, found, strict=True):
            reader.decode(question.completion, each.places, chance, CARD)
        ended = time.perf_counter()
        best = max(best, len(rows) / (ended - start))
    words = float(np.mean([len(row["completion"].split()) for row in rows]))
    return {
        "pairs_per_s": round(best, 1),
        "mean_words": round(words, 1),
        "encode_share": round((middle - start) / (ended - start), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("encoder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--limit", type=float, default=250.0, help="seconds for all of it")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=48, help="pairs per step")
    parser.add_argument("--jobs", type=int, default=10, help="processes at a time")
    parser.add_argument("--only", default="", help="names of jobs, as in results.json; all where none is named")
    args = parser.parse_args()
    began = time.time()
    args.out.mkdir(parents=True, exist_ok=True)
    known = read_data(args.data, args.encoder)
    cache = args.out / "pairs.pickle"
    cache.write_bytes(pickle.dumps(known))
    kinds = sorted({each.kind for each in known})
    first, last = began + 0.55 * args.limit, began + 0.92 * args.limit
    size = (args.batch, args.steps)
    jobs = [Job(f"without {kind}", kind, 0, True, *size, first) for kind in kinds]
    jobs += [Job(f"all, seed {seed}", None, seed, True, *size, first) for seed in (0, 1)]
    brief = (args.batch, args.steps // 3)
    jobs += [Job(f"without {kind}, brief", kind, 1, True, *brief, last) for kind in kinds]
    jobs += [Job(f"without {kind}, all weights", kind, 1, False, *brief, last) for kind in kinds if kind in PEOPLE]
    wanted = [name.strip() for name in args.only.split(";") if name.strip()]
    jobs = [job for job in jobs if not wanted or job.name in wanted]
    results: dict[str, Any] = {"card": asdict(CARD), "read": round(time.time() - began, 1), "jobs": {}}
    arrays: dict[str, Any] = {}

    def keep() -> None:
        np.savez_compressed(args.out / "predictions.npz", **arrays)
        results["seconds"] = round(time.time() - began, 1)
        (args.out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")

    context = multiprocessing.get_context("spawn")
    with context.Pool(min(args.jobs, len(jobs)), maxtasksperchild=1) as pool:
        running = [pool.apply_async(run, (job, cache, args.encoder)) for job in jobs]
        for each in running:
            try:
                job, took, found = each.get(timeout=max(1.0, began + args.limit - time.time()))
            except multiprocessing.TimeoutError:
                print("out of time", flush=True)
                break
            except (RuntimeError, ValueError, OSError) as problem:
                # Of one job, memory that ran out, say: the others go on.
                print(f"failed: {type(problem).__name__}: {problem}", flush=True)
                continue
            results["jobs"][job.name] = took
            arrays |= packed(job, found)
            print(job.name, took["steps"], took["seconds"], took["measured"], flush=True)
            keep()
    results["speed"] = speed(args.encoder, args.data)
    keep()
    cache.unlink()
    print(results["speed"], results["seconds"], flush=True)


if __name__ == "__main__":
    main()

"""Memory and time of a training run on N GPUs: the tables of docs/scaling.md, computed from shapes and measured parts.

    python scripts/scaling.py          # writes the tables into docs/scaling.md
    python scripts/scaling.py --print  # prints them

Measured: one step on one H200 (studies/h200/step.json). Assumed, from data sheets, and marked so in the page: the
bandwidth of memory, links and disk. Nothing here was run on several GPUs. Simplifications: work is spread evenly, and
gathering weights does not overlap with computing, so times of sharded passes are upper bounds.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "scaling.md"
MEASURED = ROOT / "studies" / "h200" / "step.json"
RUN = "SmolLM2-1.7B's shape, policy.compile=true"

GIB = 2**30
MEMORY = 139 * GIB
"""Of an H200."""
PEAK, READ = 989e12, 4.8e12
"""FLOP/s in bf16, and bytes/s of its memory."""
LINK = {"node": 450e9, "nodes": 50e9}
"""Bytes/s per GPU, each way: NVLink within a machine, 400 Gbit/s between machines."""
DISK = 2e9
"""Bytes/s of a shared file system."""
FILLED = 0.6
"""Share of a GPU's memory that weights, gradients and optimizer may take; the rest is for activations."""
RANK = 16
PROMPT, COMPLETION, COMPLETIONS = 512, 512, 1024
"""Tokens of a prompt and of a completion, and completions of an update, 4 per prompt."""


@dataclass(frozen=True)
class Shape:
    """A Llama-like model."""

    name: str
    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    vocabulary: int
    tied: bool

    @property
    def matrices(self) -> list[tuple[int, int]]:
        """(in, out) of the linear layers of one decoder layer."""
        kv = self.hidden // self.heads * self.kv_heads
        square = (self.hidden, self.hidden)
        return [
            square,
            (self.hidden, kv),
            (self.hidden, kv),
            square,
            *[(self.hidden, self.inner)] * 2,
            (self.inner, self.hidden),
        ]

    @property
    def layer(self) -> int:
        return sum(rows * columns for rows, columns in self.matrices) + 2 * self.hidden

    @property
    def ends(self) -> int:
        return self.vocabulary * self.hidden * (1 if self.tied else 2) + self.hidden

    @property
    def weights(self) -> int:
        return self.layers * self.layer + self.ends

    @property
    def adapter(self) -> int:
        return self.layers * sum(RANK * (rows + columns) for rows, columns in self.matrices)

    @property
    def cache(self) -> int:
        """Bytes of keys and values of one token, in bf16."""
        return 2 * 2 * self.layers * self.hidden // self.heads * self.kv_heads


SHAPES = (
    Shape("1.7B (SmolLM2)", 24, 2048, 8192, 32, 32, 49152, True),
    Shape("8B (Llama 3.1)", 32, 4096, 14336, 32, 8, 128256, False),
    Shape("70B (Llama 3.1)", 80, 8192, 28672, 64, 8, 128256, False),
)


def state(shape: Shape, *, lora: bool) -> int:
    """Bytes of weights, gradients, AdamW and the reference, over all GPUs. All are held in fp32: 4 bytes per weight, 16
    per weight that is trained, and 4 for the reference's copy, which LoRA does not need."""
    return 4 * shape.weights + 16 * shape.adapter if lora else (16 + 4) * shape.weights


def gathered(shape: Shape) -> int:
    """Bytes that a sharded pass holds whole at a time: the ends, and two layers, of which one is on its way."""
    return 4 * (shape.ends + 2 * shape.layer)


def per_gpu(shape: Shape, gpus: int, *, lora: bool) -> float:
    return state(shape, lora=lora) / gpus + (gathered(shape) if gpus > 1 else 0)


def fewest(shape: Shape, *, lora: bool) -> int | None:
    """GPUs, as a power of two, with which it fits and leaves room."""
    return next((2**n for n in range(11) if per_gpu(shape, 2**n, lora=lora) <= FILLED * MEMORY), None)


# ------------------------------------------------------------------------------------------------------------ time


def measured() -> dict[str, float]:
    """The parts of one step, per completion where they grow with it."""
    found = json.loads(MEASURED.read_text())[RUN]["sides"]["ours"]
    parts = found["parts"]
    completions = 256
    return {
        "mfu": found["mfu_update"],
        "judge": (parts["critic"] + parts["align"]) / completions,
        "other": parts["other"],
        "sample": parts["sample"],
        "weights": found["weights"],
        "prompt": found["prompt_tokens"],
        "completion": found["completion_tokens"],
    }


def ideal_sampling(shape: Shape, completions: float, prompt: float, completion: float) -> float:
    """Seconds if nothing but arithmetic and memory counted, for so many completions per GPU: prompts are computed once
    per group of 4, then each token reads all weights in bf16, and the keys and values so far. A model that does not fit
    on one GPU is spread over 8, which read an eighth each."""
    spread = 1 if 2 * shape.weights <= FILLED * MEMORY else 8
    prefill = 2 * shape.weights * prompt * completions / 4 / PEAK
    read = 2 * shape.weights / spread + completions * shape.cache * (prompt + completion / 2)
    return prefill + completion * read / READ


def slowness() -> float:
    """How many times longer the measured sampling took."""
    m = measured()
    return m["sample"] / ideal_sampling(SHAPES[0], 256, m["prompt"], m["completion"])


def step(shape: Shape, gpus: int, *, lora: bool, servers: int = 0) -> dict[str, float]:
    """Seconds of the parts of one update with so many GPUs, `servers` of which only sample."""
    m, train = measured(), gpus - servers
    link = LINK["node" if train <= 8 else "nodes"]
    sharded = per_gpu(shape, 1, lora=lora) > FILLED * MEMORY
    gather = 4 * shape.weights / link if sharded else 0.0
    tokens = COMPLETIONS * COMPLETION + COMPLETIONS / 4 * PROMPT  # packed: each prompt once
    # Forward and backward; without a gradient for the frozen weights a LoRA update saves a third.
    update = (4 if lora else 6) * shape.weights * tokens / (PEAK * m["mfu"]) / train
    forward = (
        2 * 2 * shape.weights * tokens / (PEAK * m["mfu"]) / train
    )  # the reference, and the policy's own log-probs
    passes, steps = 4, 4  # micro-batches in a row on one GPU, and optimizer steps
    sampling = ideal_sampling(shape, COMPLETIONS / (servers or train), PROMPT, COMPLETION) * slowness()
    if not servers and sharded:
        # The fast sampler holds all weights once, in bf16; where they do not fit, every token gathers every layer.
        whole = per_gpu(shape, train, lora=lora) + 2 * shape.weights <= FILLED * MEMORY
        sampling += gather if whole else COMPLETION * gather
    trained = shape.adapter if lora else shape.weights
    return {
        "sample": sampling,
        "push": (4 * trained / DISK * (1 if lora else 2)) if servers else 0.0,  # written, and read
        "judge": m["judge"] * COMPLETIONS / train,
        "forward": forward + 2 * gather,
        "update": update + gather * 2 * passes + steps * 4 * trained * 2 / link,
        "other": m["other"],
    }


# ------------------------------------------------------------------------------------------------------------ tables


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def memory_table() -> str:
    rows = []
    for shape in SHAPES:
        for lora in (True, False):
            needed = fewest(shape, lora=lora)
            numbers = [f"{per_gpu(shape, gpus, lora=lora) / GIB:,.0f}" for gpus in (1, 8, 64)]
            trains = f"LoRA, rank {RANK}" if lora else "all weights"
            rows.append([shape.name, trains, f"{shape.weights / 1e9:.2f}", *numbers, str(needed or "more than 1024")])
    return table(["model", "trains", "weights, 10⁹", "1 GPU, GiB", "8, each", "64, each", "fewest H200"], rows)


def time_table() -> str:
    rows = []
    for shape in SHAPES:
        for lora in (True, False):
            for servers in (0, 16):
                parts = step(shape, 64, lora=lora, servers=servers)
                whole = sum(parts.values())
                where = "16 of 64 serve" if servers else "all 64 train and sample"
                shares = [f"{100 * seconds / whole:.0f} %" for seconds in parts.values()]
                rows.append([shape.name, "LoRA" if lora else "all", where, f"{whole:,.1f}", *shares])
    return table(
        ["model", "trains", "GPUs", "s per update", "sample", "push", "judge", "forward", "update", "other"], rows
    )


def constants_table() -> str:
    m = measured()
    rows = [
        ["of the peak in the update", f"{100 * m['mfu']:.1f} %", "measured"],
        ["critic and alignment, per completion", f"{1000 * m['judge']:.2f} ms", "measured"],
        ["everything else, per update", f"{m['other']:.2f} s", "measured"],
        ["sampling, times what memory and arithmetic allow", f"{slowness():.1f}", "measured"],
        ["between machines, per GPU", f"{LINK['nodes'] / 1e9:.0f} GB/s", "assumed"],
        ["within a machine, per GPU", f"{LINK['node'] / 1e9:.0f} GB/s", "assumed"],
        ["shared disk", f"{DISK / 1e9:.0f} GB/s", "assumed"],
    ]
    return table(["part", "value", ""], rows)


TABLES = {"memory": memory_table, "time": time_table, "constants": constants_table}


def filled(text: str) -> str:
    """The page with its tables computed anew."""
    for name, made in TABLES.items():
        start, end = f"<!-- {name}: written by scripts/scaling.py -->\n", f"<!-- /{name} -->"
        before, _, rest = text.partition(start)
        _, _, after = rest.partition(end)
        text = f"{before}{start}{made()}\n{end}{after}"
    return text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--print", action="store_true", help="print the tables, and change nothing")
    if parser.parse_args().print:
        print("\n\n".join(made() for made in TABLES.values()))
    else:
        PAGE.write_text(filled(PAGE.read_text()))

"""The smallest training, long, while everything goes wrong: `make soak`.

Two runs with the same settings, side by side, each with a server of its own on loopback as its critic. One is left in
peace. The other is killed at random moments, a quarter of its requests fail, and its disk is filled now and then. Both
have to end with the same bits; memory, open files and files on the disk have to stay flat. Prints what was measured,
writes it as JSON with --out, and ends with status 1 where a promise was broken.

Everything happens inside bubblewrap, on a file system of its own, so that a full disk is a real one.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SERVER = ROOT / "tests" / "feedback" / "critics" / "fault_server.py"
FAULTS = "429,500,reset,no-choices,html,cut-body,bytes,no-header"
"""What passes: the next try gets the same critique. (A reply that is whole and says nothing is asked for once more; two
of them cost their row, and so change the result.)"""
SETTINGS = "device=cpu prompts=2 completions=2 sampling.max_new_tokens=6 policy.lora.rank=2 update.learning_rate=1e-3"
SETTINGS += " checkpoint_every=20 evaluation.every=200 log.rollouts=2 log.hindsight=0 guard.nothing_learned=warn"
SETTINGS += " guard.action=warn kl.stop=0 critics.openai.longest_wait=0.05 critics.openai.timeout=5"
SETTINGS += " critics.openai.retries=40"
DISK = 1 << 30
INSIDE = "TEXT2GRAD_SOAK"
MEGA = 1 << 20
SETTLED = 80
"""Updates after which a process has all it needs: libraries, checkpoints to keep."""
FEWEST = 20
"""Looks at one process; with fewer, nothing is said about flatness."""


@dataclass
class Watched:
    """One run, started again and again until it is over."""

    name: str
    words: list[str]
    process: "subprocess.Popen[str] | None" = None
    begun: int = 0
    """Updates that were done when the present process was started."""
    seen: list[tuple[int, int, int, int]] = field(default_factory=list)
    """(updates done, bytes in memory, open files, files in the run folder) of the present process."""
    longest: list[tuple[int, int, int, int]] = field(default_factory=list)
    """The same of the process that has done most updates."""

    @property
    def log(self) -> Path:
        """On another disk than the one that is filled."""
        return Path(os.environ[INSIDE]) / f"{self.name}.log"

    def start(self) -> None:
        self.begun, self.seen = updates_of(self.name), []
        with self.log.open("a") as log:
            self.process = subprocess.Popen(self.words, stdout=log, stderr=log, text=True)

    def look(self) -> None:
        """Where it stands; a process that has just ended is passed over."""
        assert self.process is not None
        place = Path(f"/proc/{self.process.pid}")
        try:
            pages = int((place / "statm").read_text().split()[1])
            handles = len(list((place / "fd").iterdir()))
        except OSError:
            return
        done = updates_of(self.name)
        if done < self.begun + SETTLED:
            return
        # What is there for a moment is not counted: what is written aside, what is kept for the next checkpoint.
        # `walk` passes over a folder that is gone by the time it is looked into.
        places = [Path(folder) / name for folder, _, names in os.walk(self.name) for name in names]
        files = [path for path in places if not {"buffer", "model"} & {*path.parts} and ".aside-" not in str(path)]
        self.seen.append((done, pages * os.sysconf("SC_PAGE_SIZE"), handles, len(files)))
        if len(self.seen) > len(self.longest):
            self.longest = self.seen


def updates_of(run: str) -> int:
    """The last update that the metrics hold."""
    path = Path(run) / "metrics.jsonl"
    if not path.exists():
        return 0
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 20_000))
        lines = [line for line in file.read().split(b"\n")[:-1] if line.startswith(b'{"update"')]
    return int(json.loads(lines[-1])["update"]) if lines else 0


def serve(chance: float) -> tuple["subprocess.Popen[str]", str]:
    words = [sys.executable, str(SERVER), "--faults", FAULTS if chance else "", "--chance", str(chance)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, f"http://127.0.0.1:{int(process.stdout.readline())}/v1"


def prepare() -> None:
    from text2grad.models.tiny import tiny_model, tiny_tokenizer

    tokenizer = tiny_tokenizer()
    tiny_model(tokenizer, hidden_size=16, layers=1).save_pretrained("model")
    tokenizer.save_pretrained("model")
    for name, count in (("data", 8), ("held", 2)):
        rows = [{"prompt": f"Which river runs through valley {n}?"} for n in range(count)]
        Path(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def fill(victim: Watched) -> bool:
    """Fill the disk until the run gives up; whether it said why."""
    assert victim.process is not None
    with Path("filler").open("wb", buffering=0) as filler:
        for size in (MEGA, 1024):
            try:
                while True:
                    filler.write(bytes(size))
            except OSError:
                pass
    status = victim.process.wait()
    Path("filler").unlink()
    last = (victim.log.read_text().splitlines() or [""])[-1]
    print(f"full disk: status {status}: {last}", file=sys.stderr)
    return status == 2 and ("disk is full" in last or "No space left" in last)


def steady(row: dict[str, Any]) -> dict[str, Any]:
    """A row of metrics without what kills and failing requests may change: times, and what was spent on the critic."""
    from text2grad.training.spending import METRICS

    return {key: value for key, value in row.items() if not key.startswith("time/") and key not in METRICS}


def bits_of(run: str) -> dict[str, str]:
    """Hashes of what has to be the same, each apart: the weights, what lies beside them, the rollouts, the metrics. The
    model's card is left out: it names the run."""
    rows = [steady(json.loads(line)) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]
    weights, beside = hashlib.sha256(), hashlib.sha256()
    for path in sorted((Path(run) / "model").iterdir()):
        digest = weights if path.suffix == ".safetensors" else beside
        if path.name != "README.md":
            digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return {
        "weights": weights.hexdigest(),
        "settings and tokenizer": beside.hexdigest(),
        "rollouts": hashlib.sha256((Path(run) / "rollouts.jsonl").read_bytes()).hexdigest(),
        "metrics": hashlib.sha256(json.dumps(rows).encode()).hexdigest(),
    }


def first_difference(one: str, other: str) -> str:
    """The first row of metrics in which two runs differ."""
    rows = [(Path(run) / "metrics.jsonl").read_text().splitlines() for run in (one, other)]
    for left, right in zip(*(map(json.loads, lines) for lines in rows), strict=False):
        keys = [key for key in steady(left | right) if left.get(key) != right.get(key)]
        if keys:
            values = ", ".join(f"{key} {left.get(key)} and {right.get(key)}" for key in keys[:4])
            return f"at update {left['update']}: {values}"
    return "in their rollouts or their models"


def flat(numbers: list[int], slack: float) -> tuple[int, int, bool]:
    """(median of the second fifth, median of the last fifth, whether it has not grown by more than the slack)."""
    fifth = max(1, len(numbers) // 5)
    early, late = sorted(numbers[fifth : 2 * fifth] or numbers), sorted(numbers[-fifth:])
    before, after = early[len(early) // 2], late[len(late) // 2]
    return before, after, after <= before * (1 + slack)


def soak(updates: int, kills: int, fills: int, seed: int) -> dict[str, Any]:
    drawn, began = random.Random(seed), time.monotonic()
    prepare()
    servers, runs = [], []
    for name, chance in (("peace", 0.0), ("soak", 0.25)):
        server, address = serve(chance)
        servers.append(server)
        words = [sys.executable, "-m", "text2grad", "train", name, "model=model", "data=data.jsonl"]
        words += ["held_out=held.jsonl", f"updates={updates}", "critic=openai:m", "--quiet", *SETTINGS.split()]
        words += [f"critics.openai.base_url={address}", f"critics.openai.cache={name}.sqlite"]
        runs.append(Watched(name, words))
    peace, victim = runs
    for run in runs:
        run.start()
    # At even shares of the way, each a little off, so that every part of the run is disturbed.
    points = sorted(
        (updates * (place + drawn.random()) / (kills + fills), kind)
        for place, kind in enumerate(drawn.sample(["kill"] * kills + ["fill"] * fills, kills + fills))
    )
    killed, filled, told, looked = 0, 0, 0, 0.0
    statuses: dict[str, int] = {}
    while len(statuses) < len(runs):
        time.sleep(0.05)
        for run in runs:
            assert run.process is not None
            if run.name not in statuses and (status := run.process.poll()) is not None:
                statuses[run.name] = status
        if time.monotonic() > looked + 1:
            looked = time.monotonic()
            for run in runs:
                run.look()
        assert victim.process is not None
        if points and victim.name not in statuses and updates_of(victim.name) >= points[0][0]:
            _, kind = points.pop(0)
            time.sleep(drawn.uniform(0, 0.3))
            if kind == "kill":
                killed += 1
                victim.process.send_signal(signal.SIGKILL)
                victim.process.wait()
            else:
                filled += 1
                if peace.name not in statuses:
                    peace.process.send_signal(signal.SIGSTOP)  # type: ignore[union-attr]
                told += fill(victim)
                if peace.name not in statuses:
                    peace.process.send_signal(signal.SIGCONT)  # type: ignore[union-attr]
            victim.start()
    for server in servers:
        server.kill()
        server.wait()
    done = {"kills": killed, "full disks": filled, "told as such": told}
    measured: dict[str, Any] = {"updates": updates, **done, "minutes": round((time.monotonic() - began) / 60, 1)}
    return measured | judged(runs, statuses, done, {"kills": kills, "full disks": fills})


def judged(
    runs: list[Watched], statuses: dict[str, int], done: dict[str, int], planned: dict[str, int]
) -> dict[str, Any]:
    """What the two runs came to, and which promises were broken. `done` counts what was done to the second run."""
    measured: dict[str, Any] = {"statuses": statuses}
    broken = [f"{name} ended with status {status}" for name, status in statuses.items() if status]
    broken += [f"{done[what]} of {count} planned {what}" for what, count in planned.items() if done[what] != count]
    if (untold := done["full disks"] - done["told as such"]) > 0:
        broken.append(f"{untold} of {done['full disks']} full disks not told as such")
    if not any(statuses.values()):
        one, other = (bits_of(run.name) for run in runs)
        measured["same bits"] = {what: one[what] == other[what] for what in one}
        if differing := [what for what in one if one[what] != other[what]]:
            where = first_difference(*(run.name for run in runs))
            broken.append(f"the two runs differ in their {', '.join(differing)}: {where}")
    for run in runs:
        if len(run.longest) < FEWEST:
            measured[f"{run.name}: memory and files"] = f"not measured: {len(run.longest)} looks, {FEWEST} needed"
            continue
        updates, memory, handles, files = (list(numbers) for numbers in zip(*run.longest, strict=True))
        for what, numbers, slack, unit in (
            ("memory in MiB", memory, 0.05, MEGA),
            ("open files", handles, 0.1, 1),
            ("files", files, 0.1, 1),
        ):
            before, after, ok = flat(numbers, slack)
            measured[f"{run.name}: {what}"] = [round(before / unit, 1), round(after / unit, 1)]
            broken += [] if ok else [f"{run.name}: {what} grew from {before / unit:.1f} to {after / unit:.1f}"]
        measured[f"{run.name}: updates of its longest process"] = max(updates) - min(updates)
    measured["left aside"] = len([*Path().rglob(".aside-*")])
    measured["broken"] = broken + (["something was left aside"] if measured["left aside"] else [])
    return measured


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=10_000, help="length of each run; 10,000 take about an hour")
    parser.add_argument(
        "--kills", type=int, default=None, help="kills of the disturbed run; default: one in 150 updates"
    )
    parser.add_argument("--fills", type=int, default=None, help="times that its disk is filled; default: one in 1,000")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", metavar="FILE", help="write what was measured as JSON")
    args = parser.parse_args()
    if INSIDE not in os.environ:
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as logs:
            walls = ["bwrap", "--dev-bind", "/", "/", "--size", str(DISK), "--tmpfs", folder, "--chdir", folder]
            given = ["--out", str(Path(args.out).resolve())] if args.out else []
            words = [word for word in sys.argv[1:] if word != "--out" and word != args.out]
            environment = {**os.environ, INSIDE: logs, "OMP_NUM_THREADS": "1", "OPENAI_API_KEY": "soaked"}
            environment |= {"TEXT2GRAD_CACHE": f"{folder}/cache", "TOKENIZERS_PARALLELISM": "false"}
            command = [*walls, "--die-with-parent", sys.executable, str(Path(__file__).resolve()), *words, *given]
            return subprocess.run(command, env=environment, check=False).returncode
    kills = max(1, args.updates // 150) if args.kills is None else args.kills
    fills = max(1, args.updates // 1000) if args.fills is None else args.fills
    measured = soak(args.updates, kills, fills, args.seed)
    text = json.dumps(measured, indent=2)
    print(text)
    if args.out:
        Path(args.out).write_text(text + "\n")
    return 1 if measured["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())

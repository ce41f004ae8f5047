"""`--launch`: the same command again, as several processes, by `accelerate launch` with a shipped configuration.

Enters: the words of the command. Leaves: their exit status. The first process of each machine writes how the run ended
to a file, because the launcher treats every status but 0 as a crash. Imports torch only to count GPUs. On several
machines the command is given on each; `jobs.py` prints files that do so.
"""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from text2grad.commands.parsing import STATUS
from text2grad.errors import RunError, UsageError
from text2grad.secrets import hidden_word

NAMES = ("ddp", "fsdp2")
JOBS = ("slurm", "skypilot", "kubernetes")


def add_launch(parser: argparse.ArgumentParser) -> None:
    launch = "run as several processes. ddp: each holds all weights. fsdp2: weights are sharded"
    parser.add_argument("--launch", choices=NAMES, help=launch)
    numbers = {
        "--processes": ("N", "with --launch: how many per machine; default: one per GPU of it"),
        "--nodes": ("N", "with --launch: how many machines; each runs the command"),
        "--node-rank": ("R", "number of this machine, from 0"),
        "--rollout-nodes": ("K", "with --print-job: K more machines, which serve the policy with vLLM and sample"),
    }
    for flag, (metavar, words) in numbers.items():
        parser.add_argument(flag, type=int, metavar=metavar, help=words)
    parser.add_argument("--rendezvous", metavar="HOST:PORT", help="where the machines meet: a port of machine 0")
    job = "with --launch: print a job file that runs this command on all machines, and stop"
    parser.add_argument("--print-job", choices=JOBS, help=job)


def config_file(kind: str) -> Path:
    """Accelerate's configuration of this kind."""
    return Path(__file__).parent.parent / "training" / "launch" / f"{kind}.yaml"


def launcher(
    command: str,
    kind: str,
    processes: int,
    words: list[str],
    *,
    nodes: int = 1,
    rank: int = 0,
    meet: tuple[str, int] = ("127.0.0.1", 0),
) -> list[str]:
    """The command line that starts the processes of one machine: `processes` of them, `nodes` times as many in all."""
    accelerate = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config_file(kind))]
    several = ["--num_processes", str(processes * nodes)]
    if nodes > 1:
        several += ["--num_machines", str(nodes), "--machine_rank", str(rank)]
        several += ["--main_process_ip", meet[0], "--main_process_port", str(meet[1])]
    return [*accelerate, *several, "-m", "text2grad", command, *words]


def launch(args: argparse.Namespace, command: str, flags: Sequence[str] = ()) -> int:
    """Run the command as several processes; waits for them, Ctrl-C included."""
    check_launch(args)
    named = ["--config", args.config] if args.config else []
    words = [*args.words, *named, *flags, *(["--quiet"] if args.quiet else [])]
    several: dict[str, Any] = {}
    if (args.nodes or 1) > 1:
        several = {"nodes": args.nodes, "rank": args.node_rank, "meet": _meeting_place(args)}
    wanted = launcher(command, args.launch, _processes(args), words, **several)
    if not args.quiet:
        print(f"text2grad {command}: {shlex.join(map(hidden_word, wanted))}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        note = Path(folder) / "status"
        child = subprocess.Popen(wanted, env=os.environ | {STATUS: str(note)})
        # Ctrl-C reaches the processes by itself; this one only waits for what they make of it.
        interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
        terminate = signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        try:
            status = child.wait()
        finally:
            signal.signal(signal.SIGINT, interrupt)
            signal.signal(signal.SIGTERM, terminate)
        if note.exists():
            return int(note.read_text())
    if status == 0:
        raise RunError("the processes of this run ended without saying how; look at their messages")
    raise RunError(
        "a process of this run ended before the run was over, so all of them were ended; see its messages above. When "
        "the reason is gone, run the same command again: it resumes from the last checkpoint"
    )


def check_launch(args: argparse.Namespace) -> None:
    """Refuse words that do not go together, before anything is started."""
    if args.processes is not None and args.processes < 1:
        raise UsageError(f"--processes should be at least 1, got {args.processes}")
    if not args.launch:
        if used := _given(args):
            raise UsageError(f"{used[0]} goes with --launch ddp or --launch fsdp2")
        return
    if args.nodes is not None and args.nodes < 1:
        raise UsageError(f"--nodes should be at least 1, got {args.nodes}")
    if args.rollout_nodes and not args.print_job:
        raise UsageError("--rollout-nodes goes with --print-job; servers that are up already: sampling.url=http://…")
    if alone := [name for name in _given(args) if name in ("--node-rank", "--rendezvous")]:
        if args.print_job:
            raise UsageError(f"{alone[0]} does not go with --print-job: the job file says it on each machine")
        if args.nodes is None:
            raise UsageError(f"{alone[0]} goes with --nodes N, the number of machines")
    if (args.nodes or 1) > 1 and not args.print_job:
        if args.node_rank is None or not 0 <= args.node_rank < args.nodes:
            raise UsageError(f"--nodes {args.nodes} wants --node-rank, from 0 to {args.nodes - 1}, on each machine")
        _meeting_place(args)


def _given(args: argparse.Namespace) -> list[str]:
    flags = ("processes", "nodes", "node_rank", "rendezvous", "print_job", "rollout_nodes")
    return [f"--{name.replace('_', '-')}" for name in flags if getattr(args, name) is not None]


def _meeting_place(args: argparse.Namespace) -> tuple[str, int]:
    host, _, port = (args.rendezvous or "").rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 65536:
        raise UsageError(
            f"--nodes {args.nodes} wants --rendezvous HOST:PORT, a free port of machine 0, the same on each machine; "
            f"got {args.rendezvous or 'nothing'}"
        )
    return host, int(port)


def ended(status: int) -> int:
    """The exit status of one process of a run that ended with this."""
    if (note := os.environ.get(STATUS)) is None:
        return status
    if os.environ.get("LOCAL_RANK", "0") == "0":
        Path(note).write_text(str(status))
    return 0


def set_threads(*folders: Path) -> None:
    """As many threads as there are cores, unless OMP_NUM_THREADS says; fewer on a machine that others keep busy, where
    more threads wait for each other. A run that resumes has as many as it began with, so that its sums stay the
    same."""
    if "OMP_NUM_THREADS" in os.environ:
        return
    import torch

    for folder in folders:
        with suppress(OSError, ValueError, LookupError, TypeError):
            torch.set_num_threads(int(json.loads((folder / "run.json").read_bytes())["threads"]))
            return
    torch.set_num_threads(free_threads())


def free_threads() -> int:
    """How many threads to use; said where they are fewer than the cores."""
    cores = usable_cores()
    threads = free_cores(cores)
    if threads < round(cores):
        named = f"{threads} thread{'s'[: threads != 1]}"
        print(f"{named} on {cores:g} cores: the machine is busy (OMP_NUM_THREADS decides)", file=sys.stderr)
    return threads


def usable_cores(limit: Path = Path("/sys/fs/cgroup/cpu.max")) -> float:
    """Cores that this process may use: by its affinity, and by the quota of its container."""
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    with suppress(OSError, ValueError):
        quota, period = limit.read_text().split()
        cores = min(cores, float(quota) / float(period))
    return cores


def free_cores(cores: float) -> int:
    """Threads for so many cores: as many, and fewer where the whole machine has more to do than it has cores."""
    share = min(1.0, (os.cpu_count() or 1) / max(os.getloadavg()[0], 1e-9))
    return max(1, round(cores * share))


def _processes(args: argparse.Namespace) -> int:
    if args.processes is not None:
        return int(args.processes)
    import torch

    if not torch.cuda.device_count():
        raise UsageError("--launch on a machine without GPUs wants a number: --processes N")
    return torch.cuda.device_count()

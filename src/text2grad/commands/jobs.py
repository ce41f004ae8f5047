"""`--print-job`: one file that runs a training command on several machines, for Slurm, SkyPilot or Kubernetes.

Enters: the words of the command. Leaves: the text of a file. All three run the same shell lines on every machine, which
know the machines by name and this one by its number: the first ones train together, the others serve the policy.
"""

import argparse
import re
import shlex
import textwrap
from typing import Any, NamedTuple

from text2grad.commands.training import samples
from text2grad.errors import UsageError
from text2grad.models.cache import ALIASES
from text2grad.secrets import hidden_word

PORT, SERVED_AT = 29500, 8000
IMAGE = "YOUR-REGISTRY/text2grad-vllm:latest"
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM takes as --max-lora-rank."""


class JobSpec(NamedTuple):
    """What every job file says."""

    name: str
    nodes: int
    """That train."""
    servers: int
    gpus: int
    """Of each machine."""
    body: str
    """Shell lines; they take HOSTS, RANK and JOB."""


def job(args: argparse.Namespace, command: str, folder: str, settings: Any) -> str:
    """The file."""
    nodes, servers, gpus = args.nodes or 1, args.rollout_nodes or 0, args.processes or 8
    if any(hidden_word(word) != word for word in args.words):
        raise UsageError("--print-job: a key or a password would stand in the file; leave it to the job's environment")
    if servers < 0:
        raise UsageError(f"--rollout-nodes should be at least 0, got {servers}")
    if servers and not samples(settings):
        raise UsageError(f"--rollout-nodes: text2grad {command} samples nothing with these settings")
    if servers and (settings.model in ALIASES or settings.model.endswith(".gguf")):
        raise UsageError(
            f"--rollout-nodes: vLLM should serve the very weights that the run starts from, and cannot load "
            f"{settings.model!r}, which text2grad converts for itself; give model= a folder or a hub id"
        )
    name = re.sub(r"[^a-z0-9]+", "-", folder.lower()).strip("-")[-40:].strip("-") or "text2grad"
    plan = JobSpec(f"t2g-{name}", nodes, servers, gpus, _body(args, command, folder, settings, nodes, gpus))
    return {"slurm": _slurm, "skypilot": _skypilot, "kubernetes": _kubernetes}[args.print_job](plan)


def _body(args: argparse.Namespace, command: str, folder: str, settings: Any, nodes: int, gpus: int) -> str:
    """What every machine runs. A rollout server ends when the training has: a file beside the run says so."""
    named = ["--config", args.config] if args.config else []
    words = shlex.join([*args.words, *named, "--quiet", "--launch", args.launch, "--processes", str(gpus)])
    several = f" --nodes {nodes} --node-rank $RANK --rendezvous ${{HOSTS[0]}}:{PORT}" if nodes > 1 else ""
    train = f"text2grad {command} {words}{several}"
    run = shlex.quote(folder)
    if not args.rollout_nodes:
        return f"{train}\n"
    serve = shlex.join(["vllm", "serve", settings.model, *_server_flags(settings, gpus)])
    return f"""\
over={run}.$JOB.over
mkdir -p "$(dirname {run})"
if [ "$RANK" -ge {nodes} ]; then
  VLLM_SERVER_DEV_MODE=1 VLLM_ALLOW_RUNTIME_LORA_UPDATING=True {serve} &
  until [ -e "$over" ]; do
    kill -0 $!
    sleep 5
  done
  kill $!
  exit 0
fi
for host in "${{HOSTS[@]:{nodes}}}"; do
  until (exec 3<>"/dev/tcp/$host/{SERVED_AT}") 2>/dev/null; do sleep 5; done
  urls+=",http://$host:{SERVED_AT}"
done
{train} \\
  sampling.sampler=vllm sampling.url="${{urls:1}}" sampling.served.folder={run}.weights
if [ "$RANK" -eq 0 ]; then touch "$over"; fi
"""


def _server_flags(settings: Any, gpus: int) -> list[str]:
    flags = ["--host", "0.0.0.0", "--port", str(SERVED_AT), "--tensor-parallel-size", str(gpus)]
    flags += ["--logprobs-mode", "processed_logprobs"]
    if rank := settings.policy.lora.rank:
        if rank > RANKS[-1]:
            raise UsageError(
                f"--rollout-nodes: vLLM takes adapters up to rank {RANKS[-1]}, got policy.lora.rank={rank}"
            )
        flags += ["--enable-lora", "--max-lora-rank", str(next(size for size in RANKS if size >= rank))]
    return flags


def _slurm(plan: JobSpec) -> str:
    end = "EACH"
    while end in plan.body:  # a setting may hold any line
        end += "_"
    return f"""\
#!/bin/bash
# Start: sbatch FILE. The same file again resumes the run: after a kill, a time limit or a lost machine.
# The folder you start it in must lie on a file system that all machines see.
#SBATCH --job-name={plan.name}
#SBATCH --nodes={plan.nodes + plan.servers}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={plan.gpus}
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@300
#SBATCH --requeue
export HOSTS_LINE=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | tr '\\n' ' ')
srun --kill-on-bad-exit=1 bash -c "$(cat <<'{end}'
set -e
read -ra HOSTS <<<"$HOSTS_LINE"
RANK=$SLURM_NODEID JOB=$SLURM_JOB_ID
{plan.body}{end}
)"
"""


def _skypilot(plan: JobSpec) -> str:
    return f"""\
# Start: sky launch FILE. The run folder must lie on storage that all machines see: mount a bucket or a volume there.
name: {plan.name}
num_nodes: {plan.nodes + plan.servers}
resources:
  accelerators: H200:{plan.gpus}
workdir: .
setup: |
  pip install '.[train]'{"" if not plan.servers else "  # and, on the machines that serve: pip install vllm"}
run: |
  set -e
  mapfile -t HOSTS <<<"$SKYPILOT_NODE_IPS"
  RANK=$SKYPILOT_NODE_RANK JOB=$SKYPILOT_TASK_ID
{textwrap.indent(plan.body, "  ")}"""


def _kubernetes(plan: JobSpec) -> str:
    total, has = plan.nodes + plan.servers, " and vLLM, each in its own environment" if plan.servers else ""
    return f"""\
# Start: kubectl apply -f FILE. The image has text2grad{has}.
# The claim `runs` is a volume that many machines may write (ReadWriteMany); the command runs in it.
apiVersion: v1
kind: Service
metadata: {{name: {plan.name}}}
spec:
  clusterIP: None
  selector: {{job-name: {plan.name}}}
  publishNotReadyAddresses: true
---
apiVersion: batch/v1
kind: Job
metadata: {{name: {plan.name}}}
spec:
  completionMode: Indexed
  completions: {total}
  parallelism: {total}
  backoffLimit: {4 * total}
  template:
    spec:
      subdomain: {plan.name}
      restartPolicy: OnFailure
      terminationGracePeriodSeconds: 300
      containers:
      - name: main
        image: {IMAGE}
        workingDir: /runs
        resources: {{limits: {{nvidia.com/gpu: {plan.gpus}}}}}
        volumeMounts: [{{name: runs, mountPath: /runs}}, {{name: shm, mountPath: /dev/shm}}]
        env:
        - name: JOB
          valueFrom: {{fieldRef: {{fieldPath: "metadata.labels['batch.kubernetes.io/controller-uid']"}}}}
        command: [bash, -c]
        args:
        - |
          set -e
          for i in $(seq 0 {total - 1}); do HOSTS+=("{plan.name}-$i.{plan.name}"); done
          RANK=$JOB_COMPLETION_INDEX
{textwrap.indent(plan.body, " " * 10)}\
      volumes:
      - {{name: runs, persistentVolumeClaim: {{claimName: runs}}}}
      - {{name: shm, emptyDir: {{medium: Memory}}}}
"""

"""vLLM as the sampler of a run: `sampling.sampler=vllm sampling.url=http://a:8000,http://b:8000`.

Enters: prompt ids, and a policy whose weights have changed. Leaves: sampled ids with the log-probs that the engine drew
them with. Weights travel as a folder: an adapter under a new name per version, so that nothing of an old one can be
used by mistake, or all weights, which the servers load again. After each push every server writes a short completion,
the probe; the trainer computes its log-probs too, and they must agree.

What may differ between engine and trainer afterwards is rounding, and `optim/mismatch.py` measures and corrects it per
token. So a server with slightly old weights would cost efficiency and not correctness: its log-probs are those of what
it sampled.
"""

import os
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from text2grad.engines import servers
from text2grad.engines.servers import (
    CompletionRequest,
    Forgotten,
    RequestQueue,
    ServedCompletion,
    Server,
    ServerFault,
    nobody_left,
    rest_after,
    servers_at,
)
from text2grad.errors import ConfigError, RunError
from text2grad.models.backbone import write_adapter, write_weights
from text2grad.models.modes import evaluating
from text2grad.models.parallel import whole_weights
from text2grad.models.sampling import Sampled, SamplingSettings, Seed
from text2grad.optim.batch import collate_ids
from text2grad.runs import aside
from text2grad.runs.folder import MACHINE, clear_left
from text2grad.runs.world import ALONE, World

PROBE_TOKENS = 24
ROOTS = "text2grad-weights"
"""How the folders begin that weights are handed over in."""
AT_ONCE = 64
"""Requests under way per server and process, with sampling.batch=auto."""
MOVED = 1e-3
"""Mean change of our own log-probs up to which a server's may stay the same: bf16 rounds such changes away."""


class PolicyVersion(NamedTuple):
    """One version of the policy, as it is handed over."""

    name: str
    folder: str
    adapter: bool
    """An adapter, which requests name; else all weights, in place of the served model's."""


class Probe(NamedTuple):
    """A short completion after a push: as a server wrote it, and the log-probs that the trainer gives it."""

    answer: ServedCompletion
    ours: tuple[float, ...]


class ServedSampler:
    """A `Sampler` that asks servers. All processes of a run call it together; the main one hands over weights."""

    other_engine = True

    def __init__(
        self, policy: Any, settings: SamplingSettings, *, end_ids: Sequence[int], world: World = ALONE
    ) -> None:
        if not hasattr(policy, "trainable"):
            raise ConfigError(
                f"sampling.sampler={settings.sampler} is for training runs; a model that is only looked at is sampled "
                f"here: leave the setting out"
            )
        self.policy, self.settings, self.world, self.end_ids = policy, settings, world, tuple(end_ids)
        vocabulary = policy.base.get_input_embeddings().weight.shape[0]
        self.servers = servers_at(settings.url, settings.sampler, settings.served.timeout, vocabulary)
        far = [server.name for server in self.servers if not server.local]
        if far and not settings.served.folder:
            raise ConfigError(
                f"sampling.served.folder should name a folder that {', '.join(far)} and this machine see under the "
                f"same path: weights are handed over there"
            )
        self._root: str = world.broadcast(self._make_root() if world.is_main else "")
        self.weights: PolicyVersion | None = None
        self.probe: Probe | None = None
        self._probe_request: CompletionRequest | None = None
        """The probe's; the same in all versions, so that two can be compared."""
        self._versions = 0
        self._seen: list[int] = []
        self.faults, self.push_seconds = 0, 0.0

    def _make_root(self) -> str:
        given = Path(self.settings.served.folder).expanduser() if self.settings.served.folder else None
        if given is not None:
            given.mkdir(parents=True, exist_ok=True)
        clear_left(given or Path(tempfile.gettempdir()), ROOTS)  # of runs that were killed
        root = Path(tempfile.mkdtemp(prefix=f"{ROOTS}-{MACHINE}-{os.getpid()}-", dir=given)).resolve()
        root.chmod(0o755)  # servers may run as somebody else
        weakref.finalize(self, shutil.rmtree, root, ignore_errors=True)
        return str(root)

    # ------------------------------------------------------------------------------------------------ a `Sampler`

    def load(self, policy: Any) -> None:
        self.policy = policy

    def sample(self, prompts: Sequence[Sequence[int]], seed: Seed | None) -> list[Sampled]:
        self._hand_over(prompts)
        limit, temperature = self.settings.max_new_tokens, self.settings.temperature
        requests = [
            CompletionRequest(tuple(prompt), limit, 0.0, 0, self.end_ids)
            if seed is None
            else CompletionRequest(tuple(prompt), limit, temperature, seed_of(seed, place), self.end_ids)
            for place, prompt in enumerate(prompts)
        ]
        at_once = AT_ONCE if self.settings.batch == "auto" else self.settings.batch
        queue = RequestQueue(
            requests,
            self.servers,
            lambda server, request: server.complete(request, self._model(server)),
            ready=lambda server: self.weights is not None and server.holds == self.weights.name,
            prepare=self._prepare,
            workers=at_once,
            retries=self.settings.served.retries,
        )
        answers = queue.run() if requests else []
        self.faults += queue.faults
        return [Sampled(answer.ids, answer.logprobs, None, answer.truncated) for answer in answers]

    def metrics(self) -> dict[str, float]:
        """Since they were last asked for."""
        numbers = {"engine/faults": float(self.faults), "time/push": self.push_seconds}
        self.faults, self.push_seconds = 0, 0.0
        return numbers

    # ------------------------------------------------------------------------------------------------ weights

    def _hand_over(self, prompts: Sequence[Sequence[int]]) -> None:
        """Give the servers the policy's weights, if they have changed. Collective."""
        now = sums_of(self.policy.trainable().values())
        if not self.world.all_max(int(now != self._seen)):
            assert self.weights is not None
            if not self.weights.adapter:
                # A server that was started again in between would answer with the weights that it was started with.
                for server in self.servers:
                    server.holds = ""
            return
        start = time.perf_counter()
        before, self.weights, self._seen = self.weights, self._written(), now
        if self._probe_request is None:
            prompt = self.world.broadcast(tuple(prompts[0]) if prompts else self.end_ids[:1])
            tokens = min(PROBE_TOKENS, self.settings.max_new_tokens)
            self._probe_request = CompletionRequest(prompt, tokens, self.settings.temperature, 0, self.end_ids)
        answers = self.world.on_main(self._push_to_all)
        self._check(answers)
        for server in self.servers:
            server.holds = self.weights.name if server.url in answers else ""
        if before is not None:
            self.world.on_main(lambda: self._forget(before))
        self.push_seconds += time.perf_counter() - start

    def _written(self) -> PolicyVersion:
        """The policy's weights in a folder; gathered first, where they are sharded."""
        self._versions += 1
        policy, adapter = self.policy, bool(self.policy.options.lora.rank)
        sharded = any(hasattr(weight, "full_tensor") for weight in policy.trainable().values())
        whole = whole_weights(policy.model, trained=adapter) if sharded else None
        root = Path(self._root)
        weights = PolicyVersion(f"{root.name}-{self._versions}", str(root / str(self._versions)), adapter)

        def write() -> None:
            with aside(Path(weights.folder)) as scratch:
                if adapter:
                    write_adapter(policy.model, scratch, whole)
                else:
                    narrow = self.settings.dtype == "bfloat16"
                    write_weights(policy.base, scratch, whole, narrow=narrow)

        self.world.on_main(write)
        return weights

    def _push_to_all(self) -> dict[str, ServedCompletion]:
        """Address → probe, of the servers that have taken over the weights. Those that fail are tried again when they
        are asked; all of them here, where all fail. A doubtful one is waited for only if there is no other."""
        asked = [server for server in self.servers if not server.doubtful] or self.servers
        for faults in range(1, self.settings.served.retries + 2):
            good = self._push_to(asked)
            self.faults += len(asked) - len(good)
            if good:
                return good
            asked = self.servers
            if faults <= self.settings.served.retries:
                time.sleep(rest_after(faults))
        raise nobody_left(self.servers, 0, 0)

    def _push_to(self, asked: Sequence[Server]) -> dict[str, ServedCompletion]:
        """Those that answer; after the first has, the others may take a few times as long and no longer."""
        told: SimpleQueue[tuple[Server, ServedCompletion | Exception]] = SimpleQueue()
        for server in asked:
            threading.Thread(target=lambda one=server: told.put((one, self._try(one))), daemon=True).start()
        start, late, good = time.monotonic(), {server.url: server for server in asked}, dict[str, ServedCompletion]()
        until: float | None = None
        while late:
            try:
                server, answer = told.get(timeout=None if until is None else max(0.0, until - time.monotonic()))
            except Empty:
                break
            del late[server.url]
            if isinstance(answer, ServedCompletion):
                good[server.url] = answer
                took = time.monotonic() - start
                until = until or start + took + max(servers.PATIENCE, 4 * took)
            elif not isinstance(answer, ServerFault):
                raise answer
        for server in late.values():
            server.doubtful = True
        return good

    def _try(self, server: Server) -> ServedCompletion | Exception:
        try:
            with server.lock:
                self._push(server)
                answer = self._probed(server)
        except ServerFault as problem:
            server.given_up, server.doubtful = str(problem), True
            return problem
        except Exception as problem:  # noqa: BLE001 - raised again in the thread that waits
            return problem
        server.doubtful = False
        return answer

    def _push(self, server: Server) -> None:
        assert self.weights is not None
        if self.weights.adapter:
            server.engine.load(server, self.weights.name, self.weights.folder)
        else:
            server.engine.reload(server, self.weights.folder)

    def _forget(self, old: PolicyVersion) -> None:
        """A version that nobody is asked for any more. Where a server does not let go of it, it drops it by itself when
        it needs the room."""
        if old.adapter:
            for server in self.servers:
                with suppress(ServerFault, RunError):
                    if not server.doubtful:
                        server.engine.unload(server, old.name)
        shutil.rmtree(old.folder, ignore_errors=True)

    # ------------------------------------------------------------------------------------------------ one server

    def _prepare(self, server: Server) -> None:
        """Make sure that a server has the weights. In any thread, with the server's lock held; it may take so long that
        there are newer ones by then, and it is asked again."""
        assert self.weights is not None
        wanted = self.weights.name
        if not self._has(server):
            self._push(server)
            if not self._has(server):
                raise ServerFault(f"{server.name}: has taken over the weights, and computes other log-probs")
        server.holds = wanted

    def _has(self, server: Server) -> bool:
        """Whether it writes the probe as another server did that was found to have the weights."""
        assert self.probe is not None
        try:
            return agree(self._probed(server), self.probe.answer, self.settings.served.tolerance)
        except Forgotten:
            return False

    def _probed(self, server: Server) -> ServedCompletion:
        assert self._probe_request is not None
        return server.complete(self._probe_request, self._model(server))

    def _model(self, server: Server) -> str:
        assert self.weights is not None
        if self.weights.adapter:
            return self.weights.name
        return server.base_name()

    # ------------------------------------------------------------------------------------------------ the probe

    def _check(self, answers: Mapping[str, ServedCompletion]) -> None:
        """Compare what servers computed with what the trainer computes. Collective: weights may be sharded."""
        ours, old, tolerance = self._ours(answers), self.probe, self.settings.served.tolerance
        for server in self.servers:
            if (answer := answers.get(server.url)) is None:
                continue
            moved = 0.0 if old is None or answer != old.answer else difference(old.ours, ours[answer.ids])
            if old is not None and moved > max(MOVED, 2 * difference(old.answer.logprobs, old.ours)):
                raise RunError(
                    f"{server.name} says that it has taken over new weights, and computes with the old ones: the "
                    f"policy's log-probs have moved by {moved:.3g} per token, the server's not at all. Start it again, "
                    f"or use another version of {server.engine.name}"
                )
            apart = difference(answer.logprobs, ours[answer.ids])
            if not apart <= tolerance:
                raise RunError(
                    f"{server.name} was given the policy's weights, and its log-probs differ from the trainer's by "
                    f"{apart:.3g} per token, over sampling.served.tolerance={tolerance:g}. Does it serve the model "
                    f"that this run starts from, in this precision? It should be started with: {server.engine.flags}"
                    f"{self._tied()}"
                )
        answer = next(iter(answers.values()))
        self.probe = Probe(answer, ours[answer.ids])

    def _tied(self) -> str:
        """About servers that load all weights again, and keep the vocabulary projection where it is the embedding."""
        tied = getattr(self.policy.base.config.get_text_config(), "tie_word_embeddings", False)
        if self.policy.options.lora.rank or not tied:
            return ""
        return ". This model's embedding is its vocabulary projection: some builds reload only one of them; train LoRA"

    def _ours(self, answers: Mapping[str, ServedCompletion]) -> dict[tuple[int, ...], tuple[float, ...]]:
        """Ids of a probe → their log-probs by the policy as it is now."""
        assert self._probe_request is not None
        different = sorted({answer.ids for answer in answers.values()})
        batch = collate_ids([self._probe_request.prompt] * len(different), different)
        with evaluating(self.policy):
            logprobs_BT, _ = self.policy.logprobs_and_values(batch, len(batch), self.world)
        return {ids: tuple(logprobs_BT[row, : len(ids)].tolist()) for row, ids in enumerate(different)}


def sums_of(weights: Iterable[Tensor]) -> list[int]:
    """A checksum of each weight, of this process's part where it is sharded: the sum of its bits, read as integers. Not
    torch's counter of changes: steps of a sharded optimizer do not count there."""
    kinds = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    parts = [getattr(weight, "_local_tensor", weight).detach() for weight in weights]
    sums = [part.contiguous().view(kinds[part.element_size()]).sum(dtype=torch.int64) for part in parts]
    return torch.stack(sums).tolist() if sums else []


def seed_of(seed: Seed, place: int) -> int:
    """What the engine draws a completion with: a function of the run, the update and the completion's number.

    >>> seed_of(Seed(7, 3, [5, 6]), 1) == seed_of(Seed(7, 3, [6]), 0) != seed_of(Seed(7, 4, [6]), 0)
    True
    """
    words = [seed.run % 2**64, seed.step % 2**64, seed.indices[place] % 2**64]
    return int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0] >> 1)


def difference(some: Sequence[float], others: Sequence[float]) -> float:
    """Mean absolute difference; nan where there is nothing.

    >>> difference([-1.0, -2.0], [-1.0, -2.5])
    0.25
    """
    return float(np.abs(np.subtract(some, others)).mean()) if some else float("nan")


def agree(answer: ServedCompletion, known: ServedCompletion, tolerance: float) -> bool:
    """Whether two servers write the same from the same seed, as far as rounding lets them: up to the first id that
    differs, their log-probs are near."""
    pairs = zip(answer.ids, known.ids, strict=False)
    same = next(
        (place for place, (one, other) in enumerate(pairs) if one != other), min(len(answer.ids), len(known.ids))
    )
    return difference(answer.logprobs[:same], known.logprobs[:same]) <= tolerance

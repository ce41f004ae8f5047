"""Rollouts from servers that speak vLLM's protocol: what is asked, what is refused, and what failing servers cost."""

import math
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engines.loopback import BAD_IDS, Loopback
from tests.training.trainings import HELD_OUT, driving, metrics_of, rows_of, said, trainer
from text2grad import config
from text2grad.engines import servers
from text2grad.engines.servers import ServedCompletion, servers_at
from text2grad.engines.vllm import agree, sums_of
from text2grad.errors import ConfigError, RunError
from text2grad.models.tiny import tiny_model, tiny_tokenizer
from text2grad.runs.folder import MACHINE
from text2grad.training.settings import TrainSettings
from text2grad.types import Rollout

FULL = "policy.lora.rank=0"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "LONGEST_WAIT", 0.01)


@pytest.fixture
def loopback() -> Iterator[Any]:
    running: list[Loopback] = []

    def start(**options: Any) -> Loopback:
        running.append(Loopback(**options))
        return running[-1]

    yield start
    for server in running:
        server.stop()


def asking(*running: Loopback, engine: str = "vllm") -> list[str]:
    return [f"sampling.sampler={engine}", f"sampling.url={','.join(server.url for server in running)}"]


def trained(folder: Path, *words: str, **more: Any) -> Path:
    assert trainer(folder, *words, held_out=HELD_OUT, **more).train().status == 0
    return folder


def same_run(run: Path, other: Path) -> None:
    """What was learned is the same to the last bit; how often servers were asked is not."""

    def rows(folder: Path) -> list[dict[str, Any]]:
        return [{k: v for k, v in row.items() if k != "engine/faults"} for row in metrics_of(folder)]

    assert rows(run) == rows(other)
    for name in ("rollouts.jsonl", "model/model.safetensors"):
        assert (run / name).read_bytes() == (other / name).read_bytes(), name


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs with one server that never fails: an adapter, and all weights."""
    folder, server = tmp_path_factory.mktemp("undisturbed"), Loopback()
    runs = {"lora": trained(folder / "lora", *asking(server)), "full": trained(folder / "full", *asking(server), FULL)}
    server.stop()
    return runs


# ------------------------------------------------------------------------------------------------ what is asked


def test_ids_go_in_and_ids_with_their_log_probs_come_out(loopback: Any, tmp_path: Path) -> None:
    server = loopback()
    run = trained(tmp_path / "run", *asking(server), "sampling.temperature=0.7", "log.rollouts=99")
    assert len(rows_of(run)) == 5 * 6
    for row in rows_of(run):
        rollout = Rollout.from_json(row)
        asked = {"temperature": 0.7, "stop_token_ids": [2], "max_tokens": 8, "prompt": list(rollout.prompt_ids)}
        assert any(asked.items() <= body.items() for path, body in server.log if path == "/v1/completions")
        assert rollout.logprobs is not None and max(rollout.logprobs) < 0
        assert rollout.truncated == (rollout.completion.token_ids[-1] != 2)
    greedy = [body for path, body in server.log if path == "/v1/completions" and body["temperature"] == 0]
    assert len(greedy) == len(HELD_OUT) * len([row for row in metrics_of(run) if "held_out/score" in row])
    first = metrics_of(run)[1]
    assert first["engine/mismatch_max"] < 1e-5 and first["engine/faults"] == 0 and first["engine/capped_frac"] == 0


def test_every_version_of_an_adapter_has_a_name_of_its_own_and_the_old_one_is_dropped(
    loopback: Any, tmp_path: Path
) -> None:
    server = loopback()
    trained(tmp_path / "run", *asking(server), f"sampling.served.folder={tmp_path / 'shared'}")
    loaded = [body["lora_name"] for path, body in server.log if path == "/v1/load_lora_adapter"]
    dropped = [body["lora_name"] for path, body in server.log if path == "/v1/unload_lora_adapter"]
    # Five updates change the weights; before the first one they are the base's, with an adapter that does nothing.
    assert len(set(loaded)) == len(loaded) == 6 and dropped == loaded[:-1]
    folders = [Path(body["lora_path"]) for path, body in server.log if path == "/v1/load_lora_adapter"]
    assert {folder.parent.parent for folder in folders} == {(tmp_path / "shared").resolve()}
    assert not any(folder.exists() for folder in folders[:-1]), "a version that nobody asks for takes no room"
    seen: dict[str, int] = {}
    for path, body in server.log:
        if path == "/v1/completions":
            seen[body["model"]] = seen.get(body["model"], 0) + 1
    assert list(seen) == loaded


def test_all_weights_are_loaded_again_and_old_keys_are_thrown_away(loopback: Any, tmp_path: Path) -> None:
    server = loopback()
    trained(tmp_path / "run", *asking(server), FULL)
    changes = [path for path in server.paths() if path != "/v1/completions"]
    assert changes == ["/collective_rpc", "/reset_prefix_cache", "/v1/models"] + 5 * [
        "/collective_rpc",
        "/reset_prefix_cache",
    ]
    served = server.model.state_dict()["model.norm.weight"]
    assert not torch.equal(served, tiny_model(tiny_tokenizer(), hidden_size=16, layers=1).model.norm.weight)


def test_weights_that_are_handed_over_in_bf16_agree_within_the_tolerance(loopback: Any, tmp_path: Path) -> None:
    run = trained(tmp_path / "run", *asking(loopback()), FULL, "sampling.dtype=bfloat16")
    assert 1e-5 < metrics_of(run)[1]["engine/mismatch"] < 0.02


def test_sglang_is_asked_as_its_documentation_says(loopback: Any, tmp_path: Path, undisturbed: dict[str, Path]) -> None:
    """Against a server of ours alone: nobody has run this with SGLang."""
    same_run(trained(tmp_path / "lora", *asking(loopback(), engine="sglang")), undisturbed["lora"])
    same_run(trained(tmp_path / "full", *asking(loopback(), engine="sglang"), FULL), undisturbed["full"])


# ------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize("key", ["top_p", "top_k", "min_p", "repetition_penalty"])
def test_there_is_no_truncation_of_the_distribution(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"`sampling.{key}`: there is none, on purpose: importance ratios"):
        config.load(TrainSettings, None, [f"sampling.{key}=0.9"])


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["sampling.sampler=vllm"], "sampler: vllm and url: none do not go together"),
        (["sampling.url=http://a:8000"], "sampler: auto and url: http://a:8000 do not go together"),
        (["sampling.sampler=vllm", "sampling.url=a:8000"], "should hold addresses as http://host:8000"),
        (["sampling.sampler=vllm", "sampling.url=http://gpu7:8000"], "that http://gpu7:8000 and this"),
        (["sampling.sampler=vllm", "sampling.url=http://me:secretword@127.0.0.1:8000"], "A key goes into VLLM_API_KEY"),
        (["sampling.sampler=vllm", "sampling.url=http://127.0.0.1:1,http://127.0.0.1:1"], "different addresses"),
        (["sampling.sampler=vllm", "sampling.url=http://127.0.0.1:1,http://127.0.0.1:1/"], "different addresses"),
        (["sampling.sampler=vllm", "sampling.url=http://localhost,http://LOCALHOST:80/v1"], "different addresses"),
        (["sampling.sampler=vllm", "sampling.url=http://127.0.0.1:99999"], "should hold addresses as http://host:8000"),
        (["sampling.sampler=vllm", "sampling.url=http://127.0.0.1:abc"], "should hold addresses as http://host:8000"),
        (["sampling.sampler=vllm", "sampling.url=http://[::1"], "should hold addresses as http://host:8000"),
        (["sampling.sampler=vllm", "sampling.url=http://127.0.0.1:1?key=secretword"], "no name, password, query"),
    ],
)
def test_addresses_that_cannot_work(words: list[str], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refusal:
        trainer(tmp_path / "run", *words)
    assert complaint in str(refusal.value) and "secretword" not in str(refusal.value)
    assert not (tmp_path / "run").exists()


def test_another_model_is_found_before_anything_is_learned(loopback: Any, tmp_path: Path) -> None:
    other = tiny_model(tiny_tokenizer(), seed=1, hidden_size=16, layers=1)
    other.model.embed_tokens.weight.data *= 30  # of 400 random tokens all are nearly as likely; not here
    with pytest.raises(RunError, match=r"differ from the trainer's by [\d.]+ per token.*processed_logprobs"):
        trained(tmp_path / "run", *asking(loopback(base=other)))
    assert not (tmp_path / "run").exists()


def test_log_probs_without_the_temperature_are_found(loopback: Any, tmp_path: Path) -> None:
    """vLLM's default, and a wrong ratio for every token."""
    words = ["sampling.temperature=0.2", "sampling.served.tolerance=0.02"]
    with pytest.raises(RunError, match="processed_logprobs"):
        trained(tmp_path / "run", *asking(loopback(raw=True)), *words)
    trained(tmp_path / "good", *asking(loopback()), *words)


@pytest.mark.parametrize("more", [[], [FULL]], ids=["adapter", "weights"])
def test_a_server_that_keeps_the_old_weights_is_found(more: list[str], loopback: Any, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"computes with the old ones: the policy's log-probs have moved by [\d.]+"):
        trained(tmp_path / "run", *asking(loopback(stale=True)), "update.learning_rate=0.05", *more)
    assert metrics_of(tmp_path / "run")[-1]["update"] < 3, "an adapter begins at 0, and moves little at first"


def test_a_key_is_sent_and_shown_to_nobody(loopback: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = loopback(key="token-abc123")
    monkeypatch.setenv("VLLM_API_KEY", "token-wrong9")
    with pytest.raises(RunError, match=r"status 401.*Check VLLM_API_KEY") as refusal:
        trained(tmp_path / "run", *asking(server))
    assert "token-wrong9" not in str(refusal.value)
    monkeypatch.setenv("VLLM_API_KEY", "token-abc123")
    run = trained(tmp_path / "run", *asking(server))
    assert not any(b"token-abc123" in path.read_bytes() for path in run.rglob("*") if path.is_file())


# ------------------------------------------------------------------------------------------------ what fails


def test_requests_that_fail_are_asked_again_and_nothing_changes(
    loopback: Any, tmp_path: Path, undisturbed: dict[str, Path]
) -> None:
    """In turn: an error of the server, a broken connection, half a reply, a log-prob that is no number, one too few,
    and ids that no policy has."""
    faults, met = ("500", "reset", "cut", "nan", "short", *BAD_IDS), list[str]()

    def fault(number: int) -> str:
        if number % 3:
            return ""
        met.append(faults[len(met) % len(faults)])
        return met[-1]

    run = trained(tmp_path / "run", *asking(loopback(faults=fault)), "sampling.batch=2")
    same_run(run, undisturbed["lora"])
    assert set(met) == set(faults) and sum(row.get("engine/faults", 0) for row in metrics_of(run)) > len(faults)


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_a_server_that_dies_and_comes_back_without_its_weights_costs_nothing(
    kind: str, loopback: Any, tmp_path: Path, undisturbed: dict[str, Path]
) -> None:
    """It is started again with the first weights, which would answer as well. It is given the current ones first."""
    one, other = loopback(), loopback(faults=lambda number: "die" if number == 9 else "")

    def bring_back(_: Any, metrics: Any) -> None:
        if metrics["update"] == 3:
            other.restart()

    words = [*asking(one, other), *([FULL] if kind == "full" else []), "sampling.batch=1"]
    same_run(trained(tmp_path / "run", *words, callbacks=[bring_back]), undisturbed[kind])
    assert other.asked > 12, "it has worked again"


def test_a_server_that_is_started_again_between_updates_is_given_the_weights(
    loopback: Any, tmp_path: Path, undisturbed: dict[str, Path]
) -> None:
    server = loopback()

    def start_again(_: Any, metrics: Any) -> None:
        if metrics["update"] in (1, 2):
            server.stop()
            server.restart()

    run = trained(tmp_path / "run", *asking(server), FULL, callbacks=[start_again])
    same_run(run, undisturbed["full"])


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_a_server_that_hangs_is_waited_for_by_nobody(
    kind: str, loopback: Any, tmp_path: Path, undisturbed: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It accepts and never answers. Its timeout is longer than any test: a run that waits for one request of it does
    not end. The other server takes over what it was asked, and later updates only look whether it is back."""
    monkeypatch.setattr(servers, "PATIENCE", 0.2)
    one, other = loopback(), loopback(faults=lambda number: "hang" if number == 6 else "")
    words = [*asking(one, other), *([FULL] if kind == "full" else []), "sampling.served.timeout=100000"]
    ended: list[Path] = []
    running = threading.Thread(target=lambda: ended.append(trained(tmp_path / "run", *words)), daemon=True)
    running.start()
    running.join(40)
    assert ended, "it waits"
    same_run(tmp_path / "run", undisturbed[kind])
    assert one.asked > other.asked >= 6


def test_a_server_that_alone_hangs_costs_a_timeout_per_try(loopback: Any, tmp_path: Path) -> None:
    """Not one per completion: all of them are under way together, and then one worker looks whether it is back."""
    server = loopback(faults=lambda number: "hang" if number == 4 else "")
    with pytest.raises(RunError, match=r"no server of sampling.url answers any more .*timed out"):
        trained(tmp_path / "run", *asking(server), "sampling.served.timeout=0.5", "sampling.served.retries=2")
    late = server.asked - 3
    assert late <= 6 + 2, "the update's completions, and then a probe per try"


@pytest.mark.parametrize("fault", BAD_IDS)
def test_a_server_with_ids_that_the_policy_does_not_have_is_left_alone(
    fault: str, loopback: Any, tmp_path: Path, undisturbed: dict[str, Path]
) -> None:
    strange = loopback(faults=lambda _: fault)
    same_run(trained(tmp_path / "run", *asking(loopback(), strange)), undisturbed["lora"])
    with pytest.raises(RunError, match=r"no server .*should give (ids from 0 to \d+|lists of ids)"):
        trained(tmp_path / "alone", *asking(strange), "sampling.served.retries=1")


def test_a_run_that_was_killed_leaves_no_weights_behind_for_ever(loopback: Any, tmp_path: Path) -> None:
    server, shared = loopback(), tmp_path / "shared"
    words = [*asking(server), f"sampling.served.folder={shared}"]
    with driving(tmp_path) as drive:
        assert drive(tmp_path / "run", words, die=["step", 10]) == -9
        (left,) = shared.iterdir()
        (mine := shared / f"text2grad-weights-{MACHINE}-{os.getpid()}-abc").mkdir()
        (far := shared / f"text2grad-weights-00000000-{left.name.split('-')[-2]}-abc").mkdir()
        assert drive(tmp_path / "run", words) == 0, said(tmp_path / "run")
    assert sorted(shared.iterdir()) == sorted([mine, far]), "of processes that live, or of another machine"


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_with_no_server_left_the_run_stops_and_resumes_as_if_nothing_had_happened(
    kind: str, loopback: Any, tmp_path: Path, undisturbed: dict[str, Path]
) -> None:
    servers = [loopback(faults=lambda number: "die" if number == 20 else "") for _ in range(2)]
    words = ["sampling.served.retries=1", *([FULL] if kind == "full" else [])]
    with pytest.raises(RunError, match=r"no server of sampling.url answers any more .* run the same command again"):
        trained(tmp_path / "run", *asking(*servers), *words)
    # Elsewhere, and only one: addresses are no part of what a run is.
    run = trained(tmp_path / "run", *asking(loopback()), *words[1:])
    same_run(run, undisturbed[kind])


def test_what_was_sampled_before_a_kill_is_what_is_learned_from(loopback: Any, tmp_path: Path) -> None:
    """The run is killed in the middle of update 3, after a checkpoint at update 2. On resume another server draws other
    completions; those that were drawn and judged before are used all the same."""
    one, other = loopback(), loopback(noise=0.5)
    with driving(tmp_path) as drive:
        assert drive(tmp_path / "whole", asking(one)) == 0, said(tmp_path / "whole")
        assert drive(tmp_path / "run", asking(one), die=["step", 10]) == -9
        assert [path.name for path in (tmp_path / "run" / "buffer").iterdir()] == ["update-00000003.json"]
        again = [*asking(other), "sampling.served.tolerance=1"]
        assert drive(tmp_path / "run", again) == 0, said(tmp_path / "run")
    whole, run = metrics_of(tmp_path / "whole"), metrics_of(tmp_path / "run")
    assert [row["update"] for row in run] == [0, 1, 2, 3, 4, 5]
    for row in (*whole, *run):
        row.pop("engine/faults", None)
    assert run[:4] == whole[:4], "to the last bit"
    assert run[4]["engine/mismatch"] > 0.05 > whole[4]["engine/mismatch"], "from here on it is another engine"


# ------------------------------------------------------------------------------------------------ the parts


def test_two_servers_agree_up_to_the_first_id_that_differs() -> None:
    known = ServedCompletion((5, 6, 7), (-1.0, -2.0, -3.0), False)
    assert agree(ServedCompletion((5, 6, 8), (-1.01, -2.0, -9.0), False), known, 0.1)
    assert not agree(ServedCompletion((5, 6, 8), (-1.3, -2.0, -9.0), False), known, 0.1)
    assert not agree(ServedCompletion((9, 6, 7), (-1.0, -2.0, -3.0), False), known, 0.1), (
        "nothing in common proves nothing"
    )


def test_a_rollout_of_another_engine_keeps_its_own_log_probs(loopback: Any, tmp_path: Path) -> None:
    """What is written down is what was sampled with; the correction is the update's."""
    run = trained(tmp_path / "run", *asking(loopback(noise=0.3)), "sampling.served.tolerance=1", "updates=1")
    row = metrics_of(run)[1]
    assert 0.05 < row["engine/mismatch"] < row["engine/mismatch_max"] and row["update/clip_frac"] < 1
    assert len(rows_of(run)) == 6, "no completion is left out"
    assert all(math.isfinite(number) for one in rows_of(run) for number in one["logprobs"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_smallest_change_of_a_weight_is_seen(dtype: torch.dtype) -> None:
    weights = [torch.randn(3, 2).to(dtype), torch.zeros(4, dtype=dtype)]
    before = sums_of(weights)
    assert sums_of(weights) == before
    weights[1].data[2] = torch.finfo(dtype).smallest_normal
    after = sums_of(weights)
    assert after[0] == before[0] and after[1] != before[1]


def test_one_address_and_several() -> None:
    assert [server.name for server in servers_at(" http://a:1 , http://b:2/", "vllm", 1.0)] == [
        "http://a:1",
        "http://b:2",
    ]
    assert [server.name for server in servers_at("http://a:1/v1,http://b:2/v1/,http://c/x/v1", "vllm", 1.0)] == [
        "http://a:1",
        "http://b:2",
        "http://c/x",
    ]
    assert [server.local for server in servers_at("http://127.0.0.2:1,http://gpu:2", "vllm", 1.0)] == [True, False]

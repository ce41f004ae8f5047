"""`text2grad annotate` against a server that answers in 50 ms: 2,000 items, 64 at once; beside the bare client.

The bare client sends the same questions with the same concurrency and throws the replies away: no memory, parsing,
alignment or file. Asserted: the same number of requests on both sides, every item annotated, under 10 s. Ends with
`seconds=… items_per_second=… against_bare_client=…`.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import openai

from text2grad.feedback.critics.openai import OpenAICritic
from text2grad.feedback.settings import OpenAISettings
from text2grad.runs import encode_row, read_jsonl

SERVER = Path(__file__).parent.parent / "tests" / "feedback" / "critics" / "fault_server.py"
ITEMS, AT_ONCE = 2000, 64


def rows() -> list[dict[str, Any]]:
    return [
        {"id": n, "prompt": f"Say something about {n}.", "completion": f"The number {n} is a fine one, {n * 7} too."}
        for n in range(ITEMS)
    ]


async def bare(address: str, home: Path) -> float:
    critic = OpenAICritic("m", OpenAISettings(cache=str(home / "unused.sqlite")))
    questions = [critic.question(row["prompt"], row["completion"], {}) for row in rows()]
    places = asyncio.Semaphore(AT_ONCE)
    start = time.perf_counter()
    async with openai.AsyncOpenAI(base_url=address, api_key="k", max_retries=0) as client:

        async def send(question: dict[str, Any]) -> None:
            async with places:
                await client.chat.completions.create(**{k: v for k, v in question.items() if k != "server"})

        await asyncio.gather(*map(send, questions))
    return time.perf_counter() - start


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        words = [sys.executable, str(SERVER), "--delay", "0.05", "--log", str(home / "log")]
        server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        address = f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        os.environ |= {"OPENAI_BASE_URL": address, "OPENAI_API_KEY": "k", "TEXT2GRAD_CACHE": str(home / "cache")}
        try:
            (home / "in.jsonl").write_bytes(b"".join(map(encode_row, rows())))
            start = time.perf_counter()
            stage = ["annotate", str(home / "in.jsonl"), str(home / "out.jsonl"), "--critic", "openai:m"]
            subprocess.run(
                [sys.executable, "-m", "text2grad", *stage, f"critics.openai.concurrency={AT_ONCE}"],
                check=True,
                capture_output=True,
            )
            seconds = time.perf_counter() - start
            asked = len((home / "log").read_text().splitlines())
            plain = asyncio.run(bare(address, home))
            assert len((home / "log").read_text().splitlines()) == 2 * asked == 2 * ITEMS, "unequal work"
            found = list(read_jsonl(home / "out.jsonl"))
            assert len(found) == ITEMS and all(len(row["spans"]) == 2 for row in found), json.dumps(found[0])
        finally:
            server.kill()
            server.communicate()
    print(f"annotate     {seconds:6.2f} s, start of Python and all\nbare client  {plain:6.2f} s, requests alone")
    assert seconds < 10, f"wanted {ITEMS} items in under 10 s, got {seconds:.1f} s"
    print(f"seconds={seconds:.2f} items_per_second={ITEMS / seconds:.0f} against_bare_client={plain / seconds:.2f}")


if __name__ == "__main__":
    main()

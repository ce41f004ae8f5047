"""How soon the command line answers, against a bare interpreter and against importing torch: one run, best of a few.

Ends with `help_seconds=… against_bare_python=… against_torch=…`. Asserted: `text2grad --help` within half a second;
the help of a command, which lists its settings, is shown beside it.
"""

import subprocess
import sys
import time

from text2grad.cli import COMMANDS


def seconds(*words: str, repeats: int = 5) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run([sys.executable, *words], check=True, capture_output=True)
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    bare = seconds("-c", "pass")
    torch = seconds("-c", "import torch", repeats=2)
    print(f"bare interpreter           {bare:.3f} s\nimport torch               {torch:.3f} s")
    answers = {}
    for words in (("--help",), *((command, "--help") for command in COMMANDS)):
        answers[words] = seconds("-m", "text2grad", *words)
        print(f"text2grad {' '.join(words):<16} {answers[words]:.3f} s")
    first = answers[("--help",)]
    assert first < 0.5, f"wanted an answer within half a second, got {first:.3f} s"
    print(f"help_seconds={first:.3f} against_bare_python={first / bare:.1f} against_torch={first / torch:.2f}")


if __name__ == "__main__":
    main()

"""How soon the command line answers, against a bare interpreter and against importing torch: one run, best of a few.

Ends with `help_seconds=… against_bare_python=… against_torch=…`. Asserted: `--help` within half a second.
"""

import subprocess
import sys
import time


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
    print(f"bare interpreter       {bare:.3f} s\nimport torch           {torch:.3f} s")
    answers = {}
    for words in (("--help",), ("align", "--help"), ("env", "--help")):
        answers[words] = seconds("-m", "text2grad", *words)
        print(f"text2grad {' '.join(words):<12} {answers[words]:.3f} s")
    slowest = max(answers.values())
    assert slowest < 0.5, f"wanted an answer within half a second, got {slowest:.3f} s"
    print(f"help_seconds={slowest:.3f} against_bare_python={slowest / bare:.1f} against_torch={slowest / torch:.2f}")


if __name__ == "__main__":
    main()

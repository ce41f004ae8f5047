"""The first lines that run inside the walls: make this folder a package, give up what limits take away, take a role.

Enters: a role (`candidate`, `tester`, `functions` or `probe`), the limits and further folders as JSON, file
descriptors; of a warm interpreter `warm`, the role, and what it builds walls of (`warm.py`). The package is built by
hand because the walls show this folder and nothing else of text2grad.
"""

import importlib
import json
import os
import resource
import sys
import types
from collections.abc import Callable
from contextlib import suppress

USUAL = ("bisect", "copy", "datetime", "functools", "heapq", "itertools", "math", "random", "re", "string", "typing")
"""What programs import most; a warm interpreter has them."""


def package() -> None:
    for name in ("text2grad", "text2grad.sandbox", "text2grad.sandbox.inside"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = []
    sys.modules["text2grad.sandbox.inside"].__path__ = [os.path.dirname(os.path.abspath(__file__))]  # noqa: PTH100, PTH120


def limit(limits: dict[str, int]) -> None:
    """Hard limits: nothing in here can raise them again."""
    for name, value in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def quiet() -> tuple[int, int]:
    """Move the real stdin and stdout out of the way of whatever reads and prints; what is printed goes to a file whose
    size the limits bound, so a program that prints without end gets an error from `print`."""
    kept = os.dup(0), os.dup(1)
    nowhere = os.open("/dev/null", os.O_RDONLY)
    printed = os.open("printed", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink("printed")  # noqa: PTH108
    for source, target in ((nowhere, 0), (printed, 1), (printed, 2)):
        os.dup2(source, target)
    os.close(nowhere)
    os.close(printed)
    return kept


def bound(most: int) -> bool:
    """Whether the limit on threads holds: the kernel lets the machine's root user pass."""
    import threading

    threading.stack_size(1 << 16)
    wait = threading.Event()
    try:
        for _ in range(most):
            threading.Thread(target=wait.wait, daemon=True).start()
    except RuntimeError:
        return True
    return False


def imported(role: str) -> Callable[..., None]:
    """What the role does, imported."""
    if role == "candidate":
        from text2grad.sandbox.inside.candidate import serve

        return serve
    from text2grad.sandbox.inside.tester import conduct

    if role == "functions":
        with suppress(ModuleNotFoundError):  # the tester says so for each test
            importlib.import_module("text2grad.sandbox.inside.plugin")
    return conduct


def warm(role: str, limits: str, control: str, disk: str, rules: str) -> None:
    from text2grad.sandbox.inside.warm import keep

    for name in USUAL:
        importlib.import_module(name)
    work = imported(role)

    def run(*wire: int) -> None:
        channel = quiet()
        limit(json.loads(limits))
        work(*channel, *wire)

    def serve() -> None:
        keep(int(control), int(disk), bytes.fromhex(rules), run)

    plugin = sys.modules.get("text2grad.sandbox.inside.plugin")
    plugin.started(serve) if plugin else serve()


def main() -> None:
    role, limits, folders, *wire = sys.argv[1:]
    package()
    sys.path += json.loads(folders)
    del sys.argv[1:]
    if role == "probe":
        given = json.loads(limits)
        limit(given)
        print("ready" if bound(given["NPROC"]) else "unbound", flush=True)
        os._exit(0)
    os.environ.clear()
    if role == "warm":
        warm(wire[0], limits, *wire[1:])
        return
    channel = quiet()
    limit(json.loads(limits))
    imported(role)(*channel, *map(int, wire))


main()

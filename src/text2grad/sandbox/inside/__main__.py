"""The first lines that run inside: become a small package of this folder, give up what limits take away, take a role.

Enters: a role (`candidate`, `tester`, `live` or `probe`), the limits as JSON, file descriptors. The package is built by
hand because the sandbox shows this folder and nothing else of text2grad.
"""

import builtins
import importlib.machinery
import os
import resource
import sys
import types

NAMES = dict(vars(builtins))


class Loader(importlib.machinery.SourceFileLoader):
    """Gives our modules built-in names of their own: a program that patches `isinstance` patches it for itself."""

    def exec_module(self, module: types.ModuleType) -> None:
        module.__dict__["__builtins__"] = NAMES
        super().exec_module(module)


class Finder:
    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> importlib.machinery.ModuleSpec | None:
        if not name.startswith("text2grad."):
            return None
        place = f"{os.path.dirname(os.path.abspath(__file__))}/{name.rpartition('.')[2]}.py"  # noqa: PTH100, PTH120
        return importlib.machinery.ModuleSpec(name, Loader(name, place), origin=place)


def package() -> None:
    for name in ("text2grad", "text2grad.sandbox", "text2grad.sandbox.inside"):
        made = types.ModuleType(name)
        made.__path__ = []
        sys.modules[name] = made
    sys.meta_path.insert(0, Finder)


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
    name = f"printed-{os.getpid()}"  # without bubblewrap, the tester stands in the same folder
    printed = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.unlink(name)  # noqa: PTH108
    for source, target in ((nowhere, 0), (printed, 1), (printed, 2)):
        os.dup2(source, target)
    os.close(nowhere)
    os.close(printed)
    return kept


def main() -> None:
    role, *numbers = sys.argv[1:]
    import json

    package()
    sys.path += json.loads(numbers[1])
    if role == "probe":
        print("ready")
        return
    limits = json.loads(numbers[0])
    os.environ.clear()
    channel = quiet()
    limit(limits)
    if role == "candidate":
        from text2grad.sandbox.inside.candidate import serve

        serve(*channel)
    else:
        from text2grad.sandbox.inside.tester import conduct

        conduct(*channel, *map(int, numbers[2:]))


main()

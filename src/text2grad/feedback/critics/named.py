"""A critic's name → the critic. `CRITICS` is the registry of plain names: a plug-in may add its own.

people                      what the rows bring with them
reference, support,         programs, offline
grounded, code
path/to/checkpoint          a reward model, as `text2grad reward-model` writes it
openai:MODEL                a model behind an OpenAI-compatible server
package.module:object       your own: any callable that keeps the protocol
first(a, b), merge(a, b), weighted(0.7*a, 0.3*b)
"""

import difflib
import hashlib
import inspect
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import Any

from text2grad.errors import ConfigError, CriticError
from text2grad.feedback.critics.budget import Budget
from text2grad.feedback.critics.code import CodeCritic
from text2grad.feedback.critics.compose import FirstThatAnswers, Weighted, merged
from text2grad.feedback.critics.grounded import GroundedCritic
from text2grad.feedback.critics.learned import CARD, checkpoint_digest, is_checkpoint
from text2grad.feedback.critics.openai import OpenAICritic
from text2grad.feedback.critics.people import people
from text2grad.feedback.critics.protocol import DEBUG, Critic, described
from text2grad.feedback.critics.reference import ReferenceCritic
from text2grad.feedback.critics.support import SupportCritic
from text2grad.feedback.settings import CriticSettings, LearnedSettings
from text2grad.plugins import import_object

CRITICS: dict[str, Callable[[CriticSettings], Critic]] = {
    "people": lambda _: people,
    "reference": lambda options: ReferenceCritic(options.reference),
    "support": lambda options: SupportCritic(options.support),
    "grounded": lambda options: GroundedCritic(options.grounded),
    "code": lambda options: CodeCritic(options.code),
}
_CALL = re.compile(r"(first|merge|weighted)\((.*)\)", re.DOTALL)
_OBJECT = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_][\w.]*)")


Opener = Callable[[str, LearnedSettings], Critic]
"""What opens a reward model's folder: passed in by those who know tensors."""


def critic_named(
    name: str, options: CriticSettings, opened: Opener | None = None, budget: Budget | None = None
) -> Critic:
    """Build the critic; a name that means nothing is an error with the nearest one that does. `budget`: what all model
    critics in it may spend together; else each has its own, by its settings."""
    name = name.strip()
    if call := _CALL.fullmatch(name):
        return _composed(call[1], _parts(call[2]), name, lambda part: critic_named(part, options, opened, budget))
    if opened is not None and is_checkpoint(name):
        return opened(name, options.learned)
    if name.startswith("openai:"):
        return OpenAICritic(name.removeprefix("openai:"), options.openai, budget)
    if name in CRITICS:
        return CRITICS[name](options)
    if _OBJECT.fullmatch(name):
        return _imported(name)
    if name and Path(name).is_dir():
        raise CriticError(f"{name}: is a folder, but not of a reward model: it has no {CARD}; RUN/model has one")
    near = difflib.get_close_matches(name, CRITICS, n=1)
    known = f"there are {', '.join(CRITICS)}, openai:MODEL, module:object and the folder of a reward model"
    hint = f"did you mean `{near[0]}`?" if near else known
    raise CriticError(f"there is no critic {name!r}; {hint}")


def models_in(critic: Any) -> list[OpenAICritic]:
    """The model critics that a critic is made of: those that cost something."""
    if isinstance(critic, OpenAICritic):
        return [critic]
    return [model for part in getattr(critic, "critics", ()) for model in models_in(part)]


def sources_of(name: str) -> dict[str, str]:
    """Hashes of what a critic's name stands for. Of each reward model: its files. Of each `module:object` (which has
    been imported): the module's file, the object's if that is another, and those of the loaded modules of its package
    or folder.

    >>> sources_of("first(people, openai:m)")
    {}
    """
    sources = {}
    for part in names_in(name):
        if is_checkpoint(part):
            sources[part] = checkpoint_digest(part)
        elif (match := _OBJECT.fullmatch(part)) and match[1] != "openai":
            sources[part] = _hash_of_source(match[1], match[2])
    return sources


def names_in(name: str) -> list[str]:
    """The critics that a name is made of.

    >>> names_in("weighted(0.5*people, 0.5*first(code, openai:m))")
    ['people', 'code', 'openai:m']
    """
    if not (call := _CALL.fullmatch(name.strip())):
        return [name.strip()]
    parts = [part.partition("*")[2] if call[1] == "weighted" else part for part in _parts(call[2])]
    return [inner for part in parts for inner in names_in(part)]


def refuse_people(critic: "Critic | str | None") -> None:
    """Refuse the critic `people` for text that a model has just written."""
    if critic is people or (isinstance(critic, str) and "people" in names_in(critic)):
        raise ConfigError(
            f"critic={critic if isinstance(critic, str) else 'people'}: what people wrote in a file is about the "
            f"completions of that file, not about text that a model has just written. Train a critic on it first: "
            f"text2grad annotate IN.jsonl OUT.jsonl --critic people; text2grad reward-model RUN data=OUT.jsonl; then "
            f"critic=RUN/model"
        )


def _hash_of_source(module: str, path: str) -> str:
    target = reduce(getattr, path.split("."), sys.modules[module])
    homes = {module, str(getattr(target, "__module__", None) or type(target).__module__)}
    files = {name: Path(getattr(home, "__file__", None) or "") for name, home in list(sys.modules.items())}
    package, folder = module.partition(".")[0], files[module].parent
    if "." in module:
        homes |= {name for name in files if name.partition(".")[0] == package}
    elif folder.name not in ("site-packages", "dist-packages"):
        homes |= {name for name, file in files.items() if file.parent == folder}
    digest = hashlib.sha256()
    for name in sorted(homes):
        if files.get(name, Path()).is_file():
            digest.update(f"{name}\0".encode() + hashlib.sha256(files[name].read_bytes()).digest())
    return digest.hexdigest()


def _composed(kind: str, parts: list[str], name: str, build: Callable[[str], Critic]) -> Critic:
    if not parts:
        raise CriticError(f"{name}: should name at least one critic between its brackets")
    if kind == "first":
        return FirstThatAnswers(tuple(map(build, parts)))
    if kind == "merge":
        return merged(*map(build, parts))
    weights, critics = [], []
    for part in parts:
        weight, star, inner = part.partition("*")
        try:
            weights.append(float(weight))
        except ValueError:
            star = ""
        if not star:
            raise CriticError(f"{name}: each part should look like 0.5*critic, got {part!r}")
        critics.append(build(inner))
    return Weighted(tuple(critics), tuple(weights))


def _parts(inside: str) -> list[str]:
    """Split at commas that are not inside brackets.

    >>> _parts("a, first(b, c), 0.5*d")
    ['a', 'first(b, c)', '0.5*d']
    """
    parts, depth, current = [], 0, ""
    for character in inside:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += character
    return [part for part in [*parts, current.strip()] if part]


def _imported(name: str) -> Critic:
    try:
        critic = import_object(name, "critic")
    except ConfigError as problem:
        module, _, model = name.partition(":")
        near = difflib.get_close_matches(module, ["openai"], n=1)
        raise CriticError(f"{problem} Did you mean `openai:{model}`?" if near else str(problem)) from problem
    except (Exception, SystemExit) as problem:
        raise CriticError(
            f"{name}: importing it raised {described(problem)}; mend it. {DEBUG}=1 in the environment shows the whole "
            f"traceback"
        ) from problem
    if not callable(critic) or isinstance(critic, type):
        came = "a class; name an instance of it" if isinstance(critic, type) else type(critic).__name__
        raise CriticError(
            f"{name}: should be a function or an object that can be called as critic(prompts, completions, "
            f"**columns), got {came}"
        )
    with suppress(ValueError):  # what does not say what it takes is taken as it is
        signature = inspect.signature(critic)
        try:
            signature.bind_partial([], [])
        except TypeError:
            raise CriticError(
                f"{name}: should be called as critic(prompts, completions, **columns), but takes {signature}"
            ) from None
    return critic  # type: ignore[no-any-return]

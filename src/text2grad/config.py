"""Settings: dataclasses ← one YAML file + `a.b=c` overrides.

Enters: a settings class, the text of a YAML file, override words. Leaves: a checked, frozen instance; or the same as
YAML with every field's help beside it (`--print-config`). Knows no command: each room declares its own settings with
`@settings`, a docstring under every field, and a default for every field. A class may also declare

    COMMON: ClassVar = ("model", "update.learning_rate")     # what `--help` shows; `--help-all` shows the rest
    RENAMED: ClassVar = {"credit.kind": Renamed("advantage.estimator", {"group": "span_rloo"})}

Old keys are accepted for one version, with a warning, in files, in overrides and in the config.yaml of run folders.

PyYAML reads, pydantic checks; what is ours is the overrides, the suggestions and the commented print-out. Why:
docs/decisions.md.
"""

import ast
import copy
import difflib
import inspect
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from dataclasses import field as dataclass_field
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NamedTuple, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

import yaml
from pydantic import ValidationError
from pydantic_core import PydanticUndefined

from text2grad._checked import adapter, checked, explain, shorten
from text2grad.errors import ConfigError

S = TypeVar("S")
ELSEWHERE = {
    "lr": ("learning_rate",),
    "beta": ("coefficient",),
    "batch_size": ("micro_batch", "batch"),
    "per_device_train_batch_size": ("micro_batch",),
    "steps": ("updates",),
    "max_steps": ("updates",),
    "num_train_epochs": ("epochs",),
    "num_generations": ("completions", "samples"),
    "max_length": ("max_new_tokens", "max_tokens"),
    "max_completion_length": ("max_new_tokens",),
    "model_name": ("model",),
    "model_name_or_path": ("model",),
    "dataset": ("data",),
    "train_file": ("data",),
    "lora_r": ("rank",),
    "r": ("rank",),
    "bf16": ("precision",),
    "dtype": ("precision",),
    "report_to": ("trackers",),
    "save_steps": ("checkpoint_every",),
    "eval_steps": ("every", "evaluate_every"),
}
"""What other trainers call a setting → the last part of our key, the likeliest first."""
_LARGEST = 16 << 20
"""Bytes of a file of settings."""


@dataclass(frozen=True)
class Renamed:
    """What became of an old key: its new one (None: the setting is gone and the key is ignored), and of its values."""

    key: str | None
    values: Mapping[Any, Any] = dataclass_field(default_factory=dict)
    refused: Mapping[Any, str] = dataclass_field(default_factory=dict)
    """Values of a setting that is gone which cannot be ignored, and what to do instead."""


class Setting(NamedTuple):
    """One leaf of a settings class, as help shows it."""

    key: str
    help: str
    default: Any
    choices: tuple[Any, ...]
    """The values of a choice; empty where the value is free."""


def _warn(message: str) -> None:
    warnings.warn(message, FutureWarning, stacklevel=4)


@dataclass_transform(frozen_default=True)
def settings(cls: type[S]) -> type[S]:
    """Declare a settings class: frozen, checked, every field with a default and a docstring. A class may inherit the
    fields of another settings class, and declare some of them again with another default or another help."""
    return checked(ConfigError)(cls)


def load(
    cls: type[S],
    path: str | Path | None = None,
    overrides: Sequence[str] = (),
    warn: Callable[[str], None] = _warn,
) -> S:
    """Read the file, lay the overrides over it, check the whole. `warn` is told of old keys.

    Raises `ConfigError` that names the key with its path, what it takes, what came, and the nearest known key.
    """
    tree = read(path, cls, warn) if path is not None else {}
    for word in overrides:
        _lay(tree, word, cls, warn)
    sources = [str(path)] if path is not None else []
    return build(cls, tree, " + ".join(sources + ["overrides"] * bool(overrides)), warn)


def build(cls: type[S], tree: Mapping[str, Any], source: str, warn: Callable[[str], None] = _warn) -> S:
    """Check a tree of plain values against a settings class; `source` is named in errors."""
    tree = renamed(cls, tree, source, warn)
    unknown = list(_unknown(cls, tree))
    if unknown:
        raise ConfigError("\n".join(f"{source}: {line}" for line in unknown))
    try:
        return adapter(cls).validate_python(_as_meant(cls, tree))
    except ValidationError as problem:
        lines = explain(problem, cls).splitlines()
        raise ConfigError("\n".join(f"{source}: {line.removeprefix(cls.__name__ + '.')}" for line in lines)) from None


def _as_meant(cls: type, tree: Mapping[str, Any]) -> dict[str, Any]:
    """YAML reads `off` and `on` as false and true, and nothing at all as null: where `off` or `on` is a choice, the
    word is meant; where the default is an empty text, the empty text."""
    hints, meant = get_type_hints(cls), dict(tree)
    for key, inner in _fields(cls):
        value = tree.get(key)
        if inner is not None and isinstance(value, Mapping):
            meant[key] = _as_meant(inner, value)
        elif isinstance(value, bool) and (word := "on" if value else "off") in _choices(hints[key]):
            meant[key] = word
        elif key in tree and value is None and hints[key] is str and _default(cls, key) == "":
            meant[key] = ""
    return meant


def read(path: str | Path, cls: type | None = None, warn: Callable[[str], None] = _warn) -> dict[str, Any]:
    """One YAML mapping from a file, where `a.b: c` is also understood; with the class that it is for, old keys are
    renamed."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(_LARGEST + 1)  # a device may have no end
        text = data.decode()
        if len(data) > _LARGEST:
            raise ConfigError(f"{path}: should be a YAML file of settings, and has more than {_LARGEST >> 20} MiB")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; --print-config shows a complete one to start from") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(f"{path}: should be a readable YAML file in UTF-8: {problem}") from None
    tree = parse(text, str(path))
    if tree is None:
        return {}
    if not isinstance(tree, dict) or not all(isinstance(key, str) for key in tree):
        raise ConfigError(f"{path}: should be `key: value` lines, got {shorten(tree)}")
    tree = _branched(tree, str(path), cls)
    return tree if cls is None else renamed(cls, tree, str(path), warn)


def _branched(tree: dict[Any, Any], source: str, cls: type | None, above: str = "") -> dict[str, Any]:
    """With `a.b: c` lines as what they mean among the words of a command, wherever settings are named. A mapping that
    is a value, such as one of columns or arms, keeps its dots: it is only merged with what stands elsewhere."""
    result: dict[str, Any] = {}
    for key in sorted(tree, key=lambda key: "." in str(key)):
        parts, value, inner = key.split(".") if isinstance(key, str) else [key], tree[key], cls
        if len(parts) > 1 and not all(parts):
            raise ConfigError(f"{source}: keys should look like `a` or `a.b`, got {key!r}")
        for part in parts:
            inner = None if inner is None else dict(_fields(inner)).get(part)
        if inner is not None and isinstance(value, dict):
            value = _branched(value, source, inner, f"{above}{key}.")
        for part in reversed(parts):
            value = {part: value}
        result = _merged(result, value, source, above)
    return result


def _merged(one: Mapping[Any, Any], other: Mapping[Any, Any], source: str, above: str) -> dict[Any, Any]:
    """Two mappings as one; a value may be given in only one of the two. An empty `kl:` adds nothing."""
    result = dict(one)
    for key, value in other.items():
        there = one.get(key)
        branches = [side for side in (there, value) if isinstance(side, dict)]
        if key not in one:
            result[key] = value
        elif len(branches) == 2:
            result[key] = _merged(branches[0], branches[1], source, f"{above}{key}.")
        elif branches and (there is None or value is None):
            result[key] = branches[0]
        elif branches and branches[0]:
            held = there if branches[0] is value else value
            raise ConfigError(
                f"{source}: `{above}{key}.{next(iter(branches[0]))}`: `{key}` holds {shorten(held)}, which has nothing "
                f"below it to set"
            )
        else:
            raise ConfigError(f"{source}: `{above}{key}` stands twice")
    return result


def renamed(cls: type, tree: Mapping[str, Any], source: str, warn: Callable[[str], None] = _warn) -> dict[str, Any]:
    """The tree with the old keys of the class, and of the classes below it, under their new names."""
    result: dict[str, Any] = copy.deepcopy(dict(tree))
    for above, old, new in _renames(cls):
        *parents, leaf = (above + old).split(".")
        branch = _branch(result, parents)
        if branch is None or leaf not in branch:
            continue
        value = branch[leaf]
        if new.key == old and not (isinstance(value, str | int | float) and value in new.values):
            continue
        del branch[leaf]
        _prune(result, parents)
        if new.key is None:
            if isinstance(value, str | int | float) and value in new.refused:
                raise ConfigError(
                    f"{source}: `{above}{old}={inline(value)}` is no longer possible; {new.refused[value]}"
                )
            warn(f"{source}: `{above}{old}` is no longer a setting; it is ignored")
            continue
        mapped = new.values.get(value, value) if isinstance(value, str | int | float) else value
        _put(result, (above + new.key).split("."), mapped, f"{source}: `{above}{old}`", anew=True)
        say = f"={inline(mapped)}" if mapped != value else ""
        warn(f"{source}: `{above}{old}` is now `{above}{new.key}{say}`; the old form works in this version only")
    return result


def plain(config: Any) -> dict[str, Any]:
    """The settings as dicts, lists and scalars; `build` gives the same settings back."""
    tree: dict[str, Any] = adapter(type(config)).dump_python(config, mode="json")
    return tree


def dump(config: Any) -> str:
    """The settings as YAML, each field's help as a comment above it; `read` and `build` give the same settings back."""
    return "\n".join(_dump_lines(config, indent="")) + "\n"


def describe(cls: type) -> Iterator[Setting]:
    """Every leaf, in declaration order: the help of a command."""
    hints, texts = get_type_hints(cls), help_of(cls)
    for key, inner in _fields(cls):
        if inner is not None:
            yield from (leaf._replace(key=f"{key}.{leaf.key}") for leaf in describe(inner))
        else:
            yield Setting(key, texts[key], _default(cls, key), _choices(hints[key]))


def common(cls: type) -> list[Setting]:
    """The leaves that people change first, in the order of the class's COMMON; all of them where it declares none."""
    leaves = {leaf.key: leaf for leaf in describe(cls)}
    named: Sequence[str] = getattr(cls, "COMMON", ())
    if unknown := [key for key in named if key not in leaves]:
        raise TypeError(f"{cls.__name__}.COMMON names {', '.join(unknown)}, and there is no such setting")
    return [leaves[key] for key in named] or list(leaves.values())


class _Loader(yaml.SafeLoader):
    """Numbers as people write them. PyYAML follows YAML 1.1, where `1e-5` is a text, `010` is 8, `1:30` is 90 and
    `2026-01-01` is no text. Duplicate keys are errors."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands twice", key_node.start_mark
                )
            seen.add(key if isinstance(key, str) else None)
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


class _Dumper(yaml.SafeDumper):
    """Texts with line breaks in double quotes, as escapes: PyYAML's other styles fold them over several lines."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if text.splitlines() not in ([], [text]) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
_INT = re.compile(r"^[-+]?(0|[1-9]\d*)$")
_FLOAT = re.compile(r"^[-+]?((\.\d+|\d+\.\d*)(e[-+]?\d+)?|\d+e[-+]?\d+|\.inf)$|^\.nan$", re.IGNORECASE)
_NUMBERS = {f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "timestamp")}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _NUMBERS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _side in (_Loader, _Dumper):
    # Both sides: what reads as a number is quoted where it is a text.
    _side.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
    _side.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))


def parse(text: str, source: str) -> Any:
    """Plain values from YAML text; `source` is named in errors."""
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, RecursionError, ValueError, LookupError, AttributeError, TypeError) as problem:
        # Beside its own errors PyYAML lets through what its constructors meet in `!!int ""` and the like.
        raise ConfigError(f"{source}: is not readable as YAML: {problem}") from None


def _lay(tree: dict[str, Any], word: str, cls: type, warn: Callable[[str], None]) -> None:
    """Lay one `a.b=c` over the tree; the value is read as YAML, so numbers, lists and null mean what they do there."""
    key, equals, value = word.partition("=")
    parts = key.split(".")
    if not equals or not all(parts):
        raise ConfigError(f"overrides should look like `a.b=c`, got {word!r}")
    # YAML keeps @ for itself; here it begins the name of a file.
    laid = value if value.startswith("@") else parse(value, f"override {word!r}")
    alone: dict[str, Any] = {}
    _put(alone, parts, laid, word)
    new = renamed(cls, alone, "overrides", warn)
    if new == alone:
        _put(tree, parts, laid, f"override {word!r}")
    else:
        for dotted, leaf in flat(new).items():
            _put(tree, dotted.split("."), leaf, f"override {word!r}")


def _put(tree: dict[str, Any], parts: Sequence[str], value: Any, source: str, *, anew: bool = False) -> None:
    """Set a value below its parents. `anew`: it came under an old key, so the new one must not be there yet."""
    if anew and isinstance(value, dict):
        for key, below in value.items():
            _put(tree, [*parts, key], below, source, anew=True)
        return
    for part in parts[:-1]:
        if tree.get(part) is None:  # not there, or `part:` with nothing behind it
            tree[part] = {}
        below = tree[part]
        if not isinstance(below, dict):
            raise ConfigError(f"{source}: `{part}` holds {shorten(below)}, which has nothing below it to set")
        tree = below
    if anew and parts[-1] in tree:
        raise ConfigError(f"{source} is the old name of `{'.'.join(parts)}`, and both are given; keep the new one")
    tree[parts[-1]] = value


def _renames(cls: type, above: str = "") -> Iterator[tuple[str, str, Renamed]]:
    """(path of the class, old key in it, what became of it) of this class and of those below it."""
    table: Mapping[str, str | Renamed | None] = getattr(cls, "RENAMED", {})
    for old, new in table.items():
        yield above, old, new if isinstance(new, Renamed) else Renamed(new)
    for key, inner in _fields(cls):
        if inner is not None:
            yield from _renames(inner, f"{above}{key}.")


def _branch(tree: dict[str, Any], parents: Sequence[str]) -> dict[str, Any] | None:
    for part in parents:
        below = tree.get(part)
        if not isinstance(below, dict):
            return None
        tree = below
    return tree


def _prune(tree: dict[str, Any], parents: Sequence[str]) -> None:
    """Remove what a rename left empty."""
    for depth in range(len(parents), 0, -1):
        branch = _branch(tree, parents[: depth - 1])
        if branch is not None and branch.get(parents[depth - 1]) == {}:
            del branch[parents[depth - 1]]


def _unknown(cls: type, tree: Mapping[str, Any], top: type | None = None, above: str = "") -> Iterator[str]:
    known = dict(_fields(cls))
    for key, value in tree.items():
        inner = known.get(key)
        lifted = next((name for name in value if name in known), None) if isinstance(value, Mapping) else None
        if key in getattr(cls, "REFUSED", {}):
            yield f"`{above}{key}`: {cls.REFUSED[key]}"  # type: ignore[attr-defined]
        elif key not in known and lifted is not None:
            # What one command keeps under a name, another has at the top.
            yield f"there is no setting `{above}{key}.{lifted}`; here it is `{above}{lifted}`"
        elif key not in known:
            yield f"there is no setting `{above}{key}`; {_suggest(str(key), above, known, top or cls)}"
        elif inner is not None and isinstance(value, Mapping):
            yield from _unknown(inner, value, top or cls, f"{above}{key}.")


def _suggest(key: str, above: str, known: Mapping[str, Any], top: type) -> str:
    """What others call it; else the nearest key beside it; else the nearest last part anywhere in the settings; else
    what there is."""
    leaves = {leaf.key.rpartition(".")[2]: leaf.key for leaf in reversed(list(describe(top)))}
    if usual := next((name for name in ELSEWHERE.get(key, ()) if name in leaves), None):
        return f"did you mean `{leaves[usual]}`?"
    if near := difflib.get_close_matches(key, known, n=1):
        return f"did you mean `{above}{near[0]}`?"
    if near := difflib.get_close_matches(key, leaves, n=1):
        return f"did you mean `{leaves[near[0]]}`?"
    return f"the keys here are {', '.join(above + name for name in known)}"


def _fields(cls: type) -> Iterator[tuple[str, type | None]]:
    """(name, settings class below it if it holds one) of each field."""
    hints = get_type_hints(cls)
    for item in fields(cls):
        hint = hints[item.name]
        yield item.name, hint if isinstance(hint, type) and is_dataclass(hint) else None


def help_of(cls: type) -> dict[str, str]:
    """Field → the docstring under it, in this class or in the nearest one that it inherits from. Read from the source
    when help is asked for: Python keeps no such docstrings."""
    texts = {key: text for base in reversed(cls.__mro__) for key, text in _docstrings(base).items()}
    if missing := [item.name for item in fields(cls) if not texts.get(item.name)]:
        raise TypeError(f"{cls.__name__}.{missing[0]} has no help text: put a docstring under the field")
    return texts


def _docstrings(cls: type) -> dict[str, str]:
    module = inspect.getmodule(cls)
    if module is None or not is_dataclass(cls):
        return {}
    return _documented(inspect.getsource(module)).get(cls.__qualname__.replace("<locals>.", ""), {})


@cache
def _documented(source: str) -> dict[str, dict[str, str]]:
    """Path of each class in a module's source → its fields that have a docstring."""
    classes: dict[str, dict[str, str]] = {}

    def visit(node: ast.AST, above: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = getattr(child, "name", None) if isinstance(child, ast.ClassDef | ast.FunctionDef) else None
            if isinstance(child, ast.ClassDef):
                classes[above + child.name] = {
                    field.target.id: inspect.cleandoc(text.value.value)
                    for field, text in pairwise(child.body)
                    if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
                    if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
                    if isinstance(text.value.value, str)
                }
            visit(child, f"{above}{name}." if name else above)

    visit(ast.parse(source), "")
    return classes


def _choices(hint: Any) -> tuple[Any, ...]:
    """The values that a `Literal` allows, inside `Annotated`, tuples and `| None` as well; none where it is only one of
    several kinds."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    others = [part for part in get_args(hint) if part is not type(None)] if get_origin(hint) is UnionType else []
    if not all(map(_choices, others)):  # a number, or a word: anything may come
        return ()
    inner = [value for part in get_args(hint) for value in _choices(part)]
    return (*inner, None) if inner and type(None) in get_args(hint) else tuple(inner)


def _default(cls: type, key: str) -> Any:
    documented = cls.__pydantic_fields__[key]  # type: ignore[attr-defined]
    default = documented.get_default(call_default_factory=True)
    if default is PydanticUndefined:
        raise TypeError(f"{cls.__name__}.{key} has no default")
    return default


def _dump_lines(config: Any, indent: str) -> Iterator[str]:
    values, texts = plain(config), help_of(type(config))
    for key, inner in _fields(type(config)):
        yield from (f"{indent}# {line.strip()}" for line in texts[key].splitlines())
        if inner is not None:
            yield f"{indent}{key}:"
            yield from _dump_lines(getattr(config, key), indent + "  ")
        else:
            yield f"{indent}{key}: {inline(values[key])}"


def inline(value: Any) -> str:
    """A value on one line; inside a flow list every scalar is quoted where it must be."""
    text: str = yaml.dump(
        [value], Dumper=_Dumper, default_flow_style=True, allow_unicode=True, sort_keys=False, width=10**9
    )
    return text.strip()[1:-1]


def flat(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """A tree of settings as `{"a.b": value}`.

    >>> flat({"a": {"b": 1}, "c": 2})
    {'a.b': 1, 'c': 2}
    """
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        leaves |= flat(value, f"{above}{key}.") if isinstance(value, Mapping) else {above + key: value}
    return leaves

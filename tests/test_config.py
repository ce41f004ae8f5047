"""Settings from YAML and overrides: what is read, what is refused, and what the refusal says."""

import subprocess
import sys
from dataclasses import field
from itertools import permutations
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from text2grad import config
from text2grad._checked import Int, Real
from text2grad.commands.annotate import AnnotateSettings
from text2grad.config import Renamed, settings
from text2grad.errors import ConfigError
from text2grad.evaluation.settings import EvaluateSettings, GenerateSettings
from text2grad.feedback.align.settings import AlignSettings
from text2grad.optim.settings import KLSettings
from text2grad.runs import RunFolder
from text2grad.training.compare import CompareSettings
from text2grad.training.settings import DemoSettings, DPOSettings, RewardModelSettings, SFTSettings, TrainSettings


@settings
class Optimizer:
    learning_rate: Real = 1e-5
    """Step size."""
    clip: Real | None = 1.0
    """Largest gradient norm;
    None: no clipping."""


@settings
class Training:
    optimizer: Optimizer = field(default_factory=Optimizer)
    """How weights move."""
    steps: Int = 100
    """Number of updates."""
    credit: Literal["gae", "local"] = "gae"
    """Where credit goes."""
    names: tuple[str, ...] = ()
    """Names to log."""
    note: str = ""
    """Anything."""


@settings
class Advantage:
    RENAMED: ClassVar = {"lambda_": "lam"}
    estimator: Literal["gae", "span_rloo", "local"] = "gae"
    """How token rewards become advantages."""
    lam: Real = 0.95
    """λ of GAE."""


@settings
class Renewed:
    COMMON: ClassVar = ("steps", "advantage.estimator")
    RENAMED: ClassVar = {
        "credit.kind": Renamed("advantage.estimator", {"group": "span_rloo"}),
        "credit.lam": "advantage.lam",
        "advantage.kind": "advantage.estimator",
        "mode": Renamed("mode", {"quick": "fast"}),
        "spare": None,
    }
    advantage: Advantage = field(default_factory=Advantage)
    """From rewards to advantages."""
    steps: Int = 100
    """Number of updates."""
    mode: Literal["fast", "exact"] | None = None
    """How."""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults_then_file_then_overrides(tmp_path: Path) -> None:
    path = written(tmp_path, "steps: 7\noptimizer:\n  learning_rate: 1e-4\n  clip: null\n")
    resolved = config.load(Training, path, ["steps=8", "optimizer.clip=2", "names=[a, b]"])
    assert resolved == Training(Optimizer(1e-4, 2.0), steps=8, names=("a", "b"))


@pytest.mark.parametrize("number", ["1e-5", "1E-5", "+1e-5", "1.0e-5", ".00001", "0.1e-4", "1e-05"])
def test_scientific_notation_is_a_number(tmp_path: Path, number: str) -> None:
    assert config.load(Optimizer, None, [f"learning_rate={number}"]).learning_rate == 1e-5
    assert config.load(Optimizer, written(tmp_path, f"learning_rate: {number}")).learning_rate == 1e-5


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["training.steps=1"], "there is no setting `training.steps`; here it is `steps`"),
        (["stepps=1"], "there is no setting `stepps`; did you mean `steps`?"),
        (
            ["optimizer.learning_rat=1"],
            "there is no setting `optimizer.learning_rat`; did you mean `optimizer.learning_rate`?",
        ),
        (["learning_rate=1"], "there is no setting `learning_rate`; did you mean `optimizer.learning_rate`?"),
        (["xyzzy=1"], "there is no setting `xyzzy`; the keys here are optimizer, steps, credit, names, note"),
        (["steps=many"], "steps: should be a valid integer, got 'many'"),
        (["steps=true"], "steps: should be a valid integer, got True"),
        (["steps='5'"], "steps: should be a valid integer, got '5'"),
        (["steps=2.5"], "steps: should be a valid integer, got 2.5"),
        ([f"steps={10**400}"], "steps: should be less than 9223372036854775808, got 1000"),
        ([f"steps=-{10**400}"], "steps: should be greater than or equal to -9223372036854775808, got -1000"),
        ([f"optimizer.learning_rate={10**400}"], "optimizer.learning_rate: should be a valid number, got 1000"),
        (["optimizer.learning_rate=.nan"], "optimizer.learning_rate: should be a finite number, got nan"),
        (["credit=gea"], "credit: should be 'gae' or 'local', got 'gea'"),
        (["optimizer=5"], "optimizer: should be a dictionary or an instance of Optimizer, got 5"),
        (["steps"], "overrides should look like `a.b=c`, got 'steps'"),
        (["=5"], "overrides should look like `a.b=c`, got '=5'"),
        (["optimizer..clip=5"], "overrides should look like `a.b=c`"),
        (["steps=1", "steps.more=5"], "`steps` holds 1, which has nothing below it to set"),
        (["names=[a"], "override 'names=[a': is not readable as YAML"),
    ],
)
def test_a_wrong_override_says_what_to_do(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.load(Training, None, overrides)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1\n- 2\n", "should be `key: value` lines, got [1, 2]"),
        ("1: 2\n", "should be `key: value` lines, got {1: 2}"),
        ("steps: 1\nsteps: 2\n", "the key 'steps' stands twice"),
        ("steps: [1\n", "is not readable as YAML"),
        ("note: !!python/object/apply:os.system ['true']\n", "is not readable as YAML"),
        ("steps: !!int ''\n", "is not readable as YAML"),
        ("steps: !!bool x\n", "is not readable as YAML"),
        ("note: !!timestamp x\n", "is not readable as YAML"),
        ("steps: 010\n", "steps: should be a valid integer, got '010'"),
        ("steps: 1:30\n", "steps: should be a valid integer, got '1:30'"),
        ("note: \x00\n", "is not readable as YAML"),
        ("optimizer.clip: 1\noptimizer: {clip: 2}\n", "`optimizer.clip` stands twice"),
        ("optimizer: {clip: 2}\noptimizer.clip: 2\n", "`optimizer.clip` stands twice"),
        ("steps: 1\nsteps.more: 2\n", "`steps.more`: `steps` holds 1, which has nothing below it to set"),
        ("steps.more: {deep: 2}\nsteps: 1\n", "`steps.more`: `steps` holds 1, which has nothing below it to set"),
        ("optimizer..clip: 1\n", "keys should look like `a` or `a.b`, got 'optimizer..clip'"),
        ("optimizer.clipp: 1\n", "there is no setting `optimizer.clipp`; did you mean `optimizer.clip`?"),
        ("optimizer: {clipp: 1}\n", "there is no setting `optimizer.clipp`; did you mean `optimizer.clip`?"),
    ],
)
def test_a_wrong_file_is_named_in_the_error(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        config.load(Training, path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)


def test_a_file_may_have_the_keys_of_a_command(tmp_path: Path) -> None:
    path = written(tmp_path, "optimizer.clip: 2\noptimizer: {learning_rate: 1e-4}\nsteps: 7\n")
    assert config.load(Training, path, ["optimizer.clip=3"]) == Training(Optimizer(1e-4, 3.0), steps=7)
    assert config.read(path) == {"optimizer": {"learning_rate": 1e-4, "clip": 2}, "steps": 7}


@pytest.mark.parametrize(
    "lines",
    [
        ("critics.reference: {beside: 0.2}", "critics.reference.thin: 3"),
        ("critics: {reference.beside: 0.2}", "critics.reference.thin: 3"),
        ("critics: {reference.beside: 0.2, reference: {thin: 3}}",),
        ("critics: {reference: }", "critics.reference: {beside: 0.2, thin: 3}"),
        ("critics:", "critics.reference.beside: 0.2", "critics.reference: {thin: 3}"),
    ],
)
def test_mappings_of_settings_are_merged_in_any_order(tmp_path: Path, lines: tuple[str, ...]) -> None:
    wanted = config.load(TrainSettings, None, ["critics.reference.beside=0.2", "critics.reference.thin=3"])
    for order in permutations(lines):
        assert config.load(TrainSettings, written(tmp_path, "\n".join(order))) == wanted, order


def test_nothing_behind_a_key_adds_nothing_to_what_is_set_below_it(tmp_path: Path) -> None:
    for text in ("kl:\nkl.coefficient: 0.3\n", "kl.coefficient: 0.3\nkl:\n"):
        assert config.load(TrainSettings, written(tmp_path, text)).kl == KLSettings(coefficient=0.3)
    path = written(tmp_path, "kl:\n")
    assert config.load(TrainSettings, path, ["kl.coefficient=0.3"]).kl == KLSettings(coefficient=0.3)
    with pytest.raises(ConfigError, match="kl: should be a dictionary or an instance of KLSettings, got None"):
        config.load(TrainSettings, path)


def test_what_is_set_twice_below_is_named_in_full(tmp_path: Path) -> None:
    for text in (
        "critics.reference: {thin: 3}\ncritics.reference.thin: 3\n",
        "critics.reference.thin: 3\ncritics.reference: {thin: 3}\n",
        "critics: {reference: {thin: 3}, reference.thin: 4}\n",
    ):
        with pytest.raises(ConfigError, match=r": `critics\.reference\.thin` stands twice$"):
            config.load(TrainSettings, written(tmp_path, text))


def test_dots_in_mappings_that_are_values_are_part_of_the_key(tmp_path: Path) -> None:
    path = written(tmp_path, "columns: {prompt: a.b, c.d: e}\ntask_options.f: {g.h: 1}\ntask_options: {i.j: 2}\n")
    found = config.load(TrainSettings, path)
    assert found.columns == {"prompt": "a.b", "c.d": "e"}
    assert found.task_options == {"f": {"g.h": 1}, "i.j": 2}
    path = written(tmp_path, "arms: {a.b: {kl.coefficient: 0}}\narms.c: {command: sft}\n")
    assert config.load(CompareSettings, path).arms == {"a.b": {"kl.coefficient": 0}, "c": {"command": "sft"}}


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file; --print-config shows"):
        config.load(Training, tmp_path / "absent.yaml")
    with pytest.raises(ConfigError, match="should be a readable YAML file"):
        config.load(Training, tmp_path)


def test_dates_stay_texts() -> None:
    assert config.load(Training, None, ["note=2026-01-01"]).note == "2026-01-01"


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    assert config.load(Training, written(tmp_path, "# nothing\n")) == Training()


def test_the_print_out_has_the_help_of_every_field() -> None:
    assert config.dump(Training()) == (
        "# How weights move.\n"
        "optimizer:\n"
        "  # Step size.\n"
        "  learning_rate: 1.0e-05\n"
        "  # Largest gradient norm;\n"
        "  # None: no clipping.\n"
        "  clip: 1.0\n"
        "# Number of updates.\n"
        "steps: 100\n"
        "# Where credit goes.\n"
        "credit: gae\n"
        "# Names to log.\n"
        "names: []\n"
        "# Anything.\n"
        "note: ''\n"
    )


def test_a_field_without_help_is_an_error_where_help_is_asked_for() -> None:
    @settings
    class Silent:
        rate: float = 1.0

    for ask in (lambda: list(config.describe(Silent)), lambda: config.dump(Silent())):
        with pytest.raises(TypeError, match=r"Silent\.rate has no help text"):
            ask()


def test_every_settings_class_of_ours_has_help() -> None:
    for cls in (TrainSettings, SFTSettings, DPOSettings, RewardModelSettings, EvaluateSettings, GenerateSettings):
        assert all(leaf.help for leaf in config.describe(cls))
    assert all(leaf.help for leaf in [*config.describe(AnnotateSettings), *config.describe(DemoSettings)])


def test_fields_and_their_help_are_inherited_and_may_be_declared_again() -> None:
    @settings
    class Parent:
        rate: float = 1.0
        """How fast."""
        seed: int = 0
        """Of everything."""

    @settings
    class Child(Parent):
        rate: float = 0.5
        """How fast, for a child."""
        name: str = ""
        """Who."""

    listed = [(leaf.key, leaf.default, leaf.help) for leaf in config.describe(Child)]
    assert listed == [("rate", 0.5, "How fast, for a child."), ("seed", 0, "Of everything."), ("name", "", "Who.")]
    assert config.load(Child, overrides=["seed=3"]) == Child(seed=3)
    assert [leaf.help for leaf in config.describe(Parent)] == ["How fast.", "Of everything."]


def test_describe_lists_every_leaf_with_its_default() -> None:
    listed = {leaf.key: leaf.default for leaf in config.describe(Training)}
    assert listed["optimizer.learning_rate"] == 1e-5
    assert listed["credit"] == "gae"
    assert "optimizer" not in listed


def test_describe_gives_the_values_of_a_choice() -> None:
    choices = {leaf.key: leaf.choices for leaf in config.describe(Renewed)}
    assert choices["advantage.estimator"] == ("gae", "span_rloo", "local")
    assert choices["mode"] == ("fast", "exact", None)
    assert choices["steps"] == ()


def test_common_settings_come_in_their_order_and_all_where_none_are_named() -> None:
    assert [leaf.key for leaf in config.common(Renewed)] == ["steps", "advantage.estimator"]
    assert config.common(Training) == list(config.describe(Training))


def test_a_common_setting_that_does_not_exist_is_an_error_of_the_class() -> None:
    @settings
    class Wrong:
        COMMON: ClassVar = ("stepps",)
        steps: Int = 1
        """Number of updates."""

    with pytest.raises(TypeError, match=r"Wrong\.COMMON names stepps"):
        config.common(Wrong)


@pytest.mark.parametrize(
    ("words", "expected", "told"),
    [
        (["credit.kind=group"], Advantage("span_rloo"), "`credit.kind` is now `advantage.estimator=span_rloo`"),
        (["credit.kind=local"], Advantage("local"), "`credit.kind` is now `advantage.estimator`;"),
        (["credit={kind: group, lam: 0.5}"], Advantage("span_rloo", 0.5), "`credit.lam` is now `advantage.lam`"),
        (["advantage.lambda_=0.5"], Advantage(lam=0.5), "`advantage.lambda_` is now `advantage.lam`"),
        (["spare=3"], Advantage(), "`spare` is no longer a setting; it is ignored"),
        (["advantage.lam=0.5", "credit.kind=local"], Advantage("local", 0.5), "`credit.kind` is now"),
        (["credit.kind=local", "advantage.estimator=gae"], Advantage(), "`credit.kind` is now"),
    ],
)
def test_old_keys_work_with_a_warning(words: list[str], expected: Advantage, told: str, tmp_path: Path) -> None:
    warned: list[str] = []
    assert config.load(Renewed, None, words, warn=warned.append) == Renewed(expected)
    assert any(told in line for line in warned), warned
    with pytest.warns(FutureWarning, match="advantage|ignored"):
        config.load(Renewed, None, words)
    path = written(tmp_path, "credit:\n  kind: group\n  lam: 0.5\nsteps: 3\n")
    resolved = config.load(Renewed, path, ["advantage.lam=0.7"], warn=warned.append)
    assert resolved == Renewed(Advantage("span_rloo", 0.7), steps=3)


def test_an_old_value_of_a_key_that_stayed() -> None:
    warned: list[str] = []
    assert config.load(Renewed, None, ["mode=quick"], warn=warned.append).mode == "fast"
    assert warned == ["overrides: `mode` is now `mode=fast`; the old form works in this version only"]
    assert config.load(Renewed, None, ["mode=exact"]).mode == "exact"


def test_both_names_of_a_setting_in_one_file_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "credit:\n  kind: gae\nadvantage:\n  estimator: local\n")
    with pytest.raises(ConfigError, match=r"`credit\.kind` is the old name of `advantage\.estimator`, and both"):
        config.load(Renewed, path, warn=lambda _: None)
    with pytest.raises(ConfigError, match=r"`credit\.kind`: `advantage` holds 5, which has nothing below it"):
        config.build(Renewed, {"credit": {"kind": "gae"}, "advantage": 5}, "here", warn=lambda _: None)


def test_what_is_unknown_beside_an_old_key_is_still_refused() -> None:
    with pytest.raises(ConfigError, match="there is no setting `credit`"):
        config.build(Renewed, {"credit": {"kind": "gae", "spam": 1}}, "here", warn=lambda _: None)


def test_a_run_folder_of_an_older_version_is_resumed(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("credit:\n  kind: group\nspare: 1\n")
    with pytest.warns(FutureWarning, match="advantage|ignored"):
        RunFolder(tmp_path, Renewed(Advantage("span_rloo"))).close()
    assert "estimator: span_rloo" in (tmp_path / "config.yaml").read_text()


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (TrainSettings, ["credit.kind=group", "credit.gamma=0.9", "credit.lam=0.5", "credit.whiten=false"]),
        (TrainSettings, ["align.revision.boundary=expand", "align.code.certain=0.5"]),
        (RewardModelSettings, ["loss.worth=0.25"]),
        (AnnotateSettings, ["people.columns.comment=note", "align.code.certain=0.5"]),
        (AlignSettings, ["revision.boundary=expand", "code.certain=0.5"]),
    ],
)
def test_keys_of_version_0_1_are_still_read(cls: type, words: list[str]) -> None:
    warned: list[str] = []
    config.load(cls, None, words, warn=warned.append)
    assert len(warned) == len(words)


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@example(0.0, None, 1, ["0E0", "\x85", "a\nb\n"], "\x85")
@given(
    st.floats(allow_nan=False, allow_infinity=False),
    st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
    st.integers(-(2**63), 2**63 - 1),
    st.lists(_TEXTS, max_size=3),
    _TEXTS,
)
def test_what_is_printed_reads_back_the_same(
    rate: float, clip: float | None, steps: int, names: list[str], note: str
) -> None:
    original = Training(Optimizer(rate, clip), steps, "local", tuple(names), note)
    tree: Any = config.parse(config.dump(original), "printed")
    assert config.build(Training, tree, "printed") == original


def test_settings_import_no_torch() -> None:
    code = "import sys, text2grad.config, text2grad.types, text2grad.runs; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_off_is_a_word_where_it_is_a_choice_and_nothing_is_an_empty_text() -> None:
    """YAML reads them as false and null."""
    for overrides in (["guard.action=off"], ["guard.action=false"], ["guard.action='off'"]):
        assert config.load(TrainSettings, None, overrides).guard.action == "off"
    with pytest.raises(ConfigError, match=r"guard\.action: should be 'warn', 'stop' or 'off', got"):
        config.load(TrainSettings, None, ["guard.action=on"])
    for word in ("critics.openai.instruction=", 'critics.openai.instruction=""'):
        assert config.load(TrainSettings, None, [word]).critics.openai.instruction == ""
    with pytest.raises(ConfigError, match="model: should be"):
        config.load(TrainSettings, None, ["model="])


def test_a_value_that_cannot_be_ignored_is_refused_with_a_setting_that_is_gone() -> None:
    with pytest.warns(FutureWarning, match="`adaptive` is no longer a setting; it is ignored"):
        assert config.load(KLSettings, None, ["adaptive=false"]) == KLSettings()
    with pytest.raises(ConfigError, match=r"`adaptive=true` is no longer possible; kl\.coefficient is fixed"):
        config.load(KLSettings, None, ["adaptive=true"])

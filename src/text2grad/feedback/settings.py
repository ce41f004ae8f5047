"""The settings of critics and of token rewards. Imports neither numpy nor a critic, so that `--help` answers at once.
A critic's own module says what it does with them."""

from dataclasses import field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt

from text2grad._checked import Address, Flag, Int, Real, Secret
from text2grad.config import settings


@settings
class Scoring:
    """How spans become token rewards."""

    rule: Literal["return_equivalent", "paper"] = "return_equivalent"
    """return_equivalent: token rewards sum to the critic's score. paper: +1 on good spans, −1 on poor ones, 0
    elsewhere; the sum grows with the length, so it is easy to hack."""
    placement: Literal["last", "even"] = "last"
    """Put a segment's reward on its last token, or spread it evenly over its tokens."""
    scale: Annotated[Real, Ge(0)] | None = None
    """Reward of one verdict where the critic gives a score as well; null: the running least-squares slope of score on
    verdicts, shrunk towards half a standard deviation of the score."""
    slopes: Literal["one", "two"] = "one"
    """Of that running scale. one: a good and a poor span earn the same. two: a slope for good spans and one for poor
    ones, for a critic that calls much more poor than good, or much less."""
    by_length: Flag = False
    """Also learn what a span is worth by the share of the text that it covers: for a critic whose score is a share of
    words, such as an F-measure. A span then earns more the longer it is, spread over its tokens."""
    normalize: Flag = True
    """Divide rewards by the running standard deviation of the score, so that one KL coefficient means the same for
    every critic. Logged rewards stay in the critic's units. Only with return_equivalent."""

    def __post_init__(self) -> None:
        if self.scale is not None or self.rule == "paper":
            other = "scale" if self.scale is not None else "rule=paper"
            fixed = f"learned only without {other}, which fixes what a verdict earns"
            if self.slopes == "two":
                raise ValueError(f"slopes: two slopes are {fixed}")
            if self.by_length:
                raise ValueError(f"by_length: what length is worth is {fixed}")


@settings
class ReferenceSettings:
    """How a completion is compared with its reference."""

    RENAMED: ClassVar = {"beta": None, "pairs": None, "function_weight": None}
    repeat: Annotated[Int, Ge(2)] = 4
    """This many words in a row that were said before are a repetition (twice as many characters in scripts without
    spaces). Good text does repeat names of three words."""
    thin: Annotated[Int, Ge(0)] = 20
    """With fewer different words of source than this, nothing is called unsupported: an instruction is not a source."""
    beside: Annotated[Real, Ge(0), Le(1)] = 0.0
    """Severity of content words that the reference does not have and that are not called unsupported: words of the
    source; where the source is too short (`thin`), invented ones, too. They lower the score in any case, and with this
    the critique says which they are. 0: it does not."""


@settings
class SupportSettings:
    """What a text that has a source is not paid for."""

    RENAMED: ClassVar = {"supported": None, "together": None, "unsupported": None, "least": None, "prompt_known": None}
    copied: Annotated[Int, Ge(0)] = 9
    """This many words in a row are copied if the source has them and the reference does not. So is a whole sentence of
    four words or more. In scripts without spaces: twice as many characters. 0: copying is allowed, as in an answer
    that should quote."""
    thin: Annotated[Int, Ge(0)] = 20
    """Without passages and source, the prompt is the source if it has at least this many words. Else nothing is
    scored."""


@settings
class GroundedSettings:
    """What counts as not grounded in the passages."""

    doubt: Annotated[Real, Gt(0), Lt(1)] = 0.29
    """A clause with at least this probability is called ungrounded. On one half of QA-Feedback, people marked half of
    the characters that are called so. A higher value is more certain and finds less."""


@settings
class CodeCriticSettings:
    """Settings of the critic `code`."""

    seconds: Annotated[Real, Gt(0)] = 2.0
    """CPU seconds for one test. Published tests of this kind take milliseconds."""
    wall: Annotated[Real, Gt(0)] = 10.0
    """Wall-clock seconds for all tests of one program."""
    memory: Annotated[Int, Gt(0)] = 512
    """Megabytes of address space."""
    workers: Annotated[Int, Ge(0)] = 0
    """Programs that run at the same time. 0: one more than the machine has cores."""
    packages: tuple[str, ...] = ()
    """Folders that programs and tests may import from besides the standard library."""
    in_process: bool = False
    """Run and count tests that need live objects, too. The program shares a process with them and can cheat there, so
    leave this off in training; such tests are then left out of the score."""
    held_back: Annotated[Real, Ge(0), Lt(1)] = 0.34
    """Share of a task's tests that is hidden, rounded down, where the task brings no `hidden_tests`: one of three, none
    of two. Tests that the prompt shows stay visible; which of the others are hidden depends on their text alone."""
    partial: Annotated[Real, Ge(1)] = 3.0
    """The score is the share of tests passed to this power: 12 % of tests, passed by luck, earn 0.002, half of them
    0.125, all of them 1."""
    most_suspects: Annotated[Int, Ge(1)] = 3
    """Statements that may share the highest suspicion; where more do, the likeliest one is quoted, with less weight."""
    trials: Annotated[Int, Ge(0)] = 24
    """Small changes (another sign, a number one more or less) that are tried out on a program that fails, to find the
    statement that is wrong; about 2 ms of the processor each. 0: none."""
    unsafe: bool = False
    """Run without a sandbox, as you, with your files and your network: only on a machine that can be thrown away."""


@settings
class LearnedSettings:
    """Settings of a reward model as a critic."""

    RENAMED: ClassVar = {"caution": None}
    by: Literal["head", "generation"] = "head"
    """head: the span head judges every token in one forward pass. generation: the language head writes a critique,
    which is aligned like any other; a completion whose critique cannot be parsed is not scored."""
    write: Flag = False
    """Also write the feedback of every critique with the language head, which is slow. False: the feedback is one
    sentence that lists the spans, and `train` writes it in full only for the completions that it logs."""
    device: str = "auto"
    """Where the model runs: cpu, cuda, …; auto takes cuda if there is one."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16 halves the memory and is faster on a GPU; the span head stays in float32."""
    batch_tokens: Annotated[Int, Gt(0)] = 16384
    """Tokens per forward pass, padding included. Lower it if memory runs out."""
    confidence: Annotated[Real, Ge(0), Le(1)] | None = None
    """Completions with a confidence below this are not scored. null: the threshold that was chosen in training."""


@settings
class BudgetSettings:
    requests: Annotated[Int, Ge(0)] | None = None
    """Stop after this many requests, per output file or run; retries, repairs and resumes count. null: no limit."""
    tokens: Annotated[Int, Ge(0)] | None = None
    """Stop after this many tokens, in and out. null: no limit."""
    money: Annotated[Real, Ge(0)] | None = None
    """Stop before spending more than this, in the currency of the prices. null: no limit."""
    price_in: Annotated[Real, Ge(0)] = 0.0
    """Price of a million tokens that are sent."""
    price_out: Annotated[Real, Ge(0)] = 0.0
    """Price of a million tokens that come back."""

    def __post_init__(self) -> None:
        if self.money is not None and not self.price_in and not self.price_out:
            raise ValueError(
                "money: limits nothing without prices; set price_in and price_out to what a million tokens cost, or "
                "limit requests or tokens"
            )


@settings
class OpenAISettings:
    base_url: Address | None = None
    """Address of the server, ending in /v1. null: OPENAI_BASE_URL from the environment, else OpenAI's own. A
    password in it is never written down."""
    api_key: Secret | None = None
    """Use OPENAI_API_KEY in the environment instead. Never written down, so a resume needs it again."""
    task: Literal["summarization", "code", "qa", "general"] = "general"
    """Which instruction the model gets."""
    instruction: str = ""
    """Your own instruction, instead of that of `task`. @FILE reads it from a file."""
    rubric: str = ""
    """What the score means, or how much each point counts, in your own words. @FILE reads it from a file."""
    show: tuple[str, ...] = ("source", "passages", "reference")
    """Columns of the data that the model sees beside prompt and completion, if a row has them."""
    most_quotes: Annotated[Int, Gt(0)] = 6
    """Ask for at most this many quotes: a critic that quotes everything says nothing."""
    temperature: Annotated[Real, Ge(0)] = 0.0
    """Sampling temperature of the critic. 0 makes its critiques repeatable on most servers."""
    max_tokens: Annotated[Int, Gt(0)] = 1200
    """Longest reply in tokens, reasoning included. A reply that reaches it is requested once more."""
    structured: bool = True
    """Ask the server to enforce the reply's JSON schema. Switched off by itself if the server does not support it."""
    concurrency: Annotated[Int, Gt(0)] = 32
    """Requests in flight at once."""
    timeout: Annotated[Real, Gt(0)] = 120.0
    """Seconds until a request counts as lost."""
    retries: Annotated[Int, Ge(0)] = 6
    """How often a request is repeated after a failure that may pass (429, 5xx, time-outs, lost connections)."""
    longest_wait: Annotated[Real, Gt(0)] = 60.0
    """Longest pause between two tries in seconds, even if the server asks for more."""
    drain: Annotated[Real, Ge(0)] = 60.0
    """Seconds to wait for requests in flight when a run ends early (an error, a spent budget, Ctrl-C): they are paid
    for, and their replies are kept. A second Ctrl-C stops at once."""
    cache: str | None = None
    """SQLite file of the replies. null: `critiques.sqlite` in the cache folder of text2grad."""
    budget: BudgetSettings = field(default_factory=BudgetSettings)
    """Where to stop."""

    def __post_init__(self) -> None:
        for name in ("instruction", "rubric"):
            if (value := getattr(self, name)).startswith("@"):
                # The words themselves are the setting: an edited file is another run.
                try:
                    words = Path(value[1:]).expanduser().read_text(encoding="utf-8").strip()
                except (OSError, UnicodeDecodeError) as problem:
                    raise ValueError(f"{name}: should be a text, or @FILE of a readable one: {problem}") from None
                object.__setattr__(self, name, words)


MANY_MISSED = 1 / 3
"""Share of quotes; more than these that are not located are worth a word."""
HOW_CRITICS_ARE_ASKED = (
    *(f"critics.openai.{name}" for name in ("api_key", "concurrency", "timeout", "retries", "longest_wait")),
    *(f"critics.openai.{name}" for name in ("drain", "cache", "structured")),
    *(f"critics.openai.budget.{name}" for name in ("requests", "tokens", "money", "price_in", "price_out")),
    *("critics.code.workers", "critics.learned.batch_tokens"),
)
"""Settings that change how the work is done, not what comes out: they may change on resume."""


@settings
class CriticSettings:
    openai: OpenAISettings = field(default_factory=OpenAISettings)
    """Of `openai:MODEL`."""
    reference: ReferenceSettings = field(default_factory=ReferenceSettings)
    """Of `reference`."""
    support: SupportSettings = field(default_factory=SupportSettings)
    """Of `support`."""
    grounded: GroundedSettings = field(default_factory=GroundedSettings)
    """Of `grounded`."""
    code: CodeCriticSettings = field(default_factory=CodeCriticSettings)
    """Of `code`."""
    learned: LearnedSettings = field(default_factory=LearnedSettings)
    """Of reward models."""

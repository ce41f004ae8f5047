"""Every error that text2grad raises on purpose.

    Text2GradError
    ├── InvalidData        (ValueError)   a noun, a row or a file whose content breaks its contract
    ├── ConfigError        (ValueError)   a setting that does not exist, or a value it cannot take
    ├── UsageError         (ValueError)   command-line words that do not go together
    ├── RunError           (RuntimeError) a run folder that cannot be used as asked
    │   └── RunLocked                     another process holds it
    ├── CriticError        (RuntimeError) a critic that cannot be had, or does not keep the protocol
    │   └── BudgetSpent                   it may not spend more
    ├── SandboxError       (RuntimeError) model-written code cannot be run safely here
    └── ModelError         (RuntimeError) a model or tokenizer that cannot be had
        ├── ModelNotFound                 no such alias, folder, file or hub id
        ├── DownloadFailed                it exists, but it could not be fetched
        ├── CorruptModel                  it arrived, but it is not what it should be
        ├── UnsupportedTokenizer          its decoder is of a kind whose offsets are not known
        └── UnsupportedModel              its layers are of a kind that the fast sampler does not know

Each message says what was wanted, what came, where, and what to do. Each class also derives from the standard
library's class for the same thing, so callers who never heard of text2grad can still catch it.
"""


class Text2GradError(Exception):
    """Base of all of them; the command line prints these without a traceback."""


class InvalidData(Text2GradError, ValueError):
    pass


class ConfigError(Text2GradError, ValueError):
    pass


class UsageError(Text2GradError, ValueError):
    pass


class RunError(Text2GradError, RuntimeError):
    pass


class RunLocked(RunError):
    pass


class CriticError(Text2GradError, RuntimeError):
    pass


class BudgetSpent(CriticError):
    pass


class SandboxError(Text2GradError, RuntimeError):
    pass


class ModelError(Text2GradError, RuntimeError):
    pass


class ModelNotFound(ModelError):
    pass


class DownloadFailed(ModelError):
    pass


class CorruptModel(ModelError):
    pass


class UnsupportedTokenizer(ModelError):
    pass


class UnsupportedModel(ModelError):
    pass

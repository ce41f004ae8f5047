"""Keys and passwords: what was met once is left out of everything that is written, kept or shown.

Enters: secrets as they are met, texts. Leaves: texts with `***` in their place.
"""

import base64
import re
from urllib.parse import unquote

SHORTEST = 4
"""Characters of a text that is taken for a secret; for servers without a key people type `x`."""
LONG = 8
"""Characters from which on a secret is known wherever it stands, and by a piece of it; a shorter one as a whole word
only."""
_KNOWN: set[str] = set()
_BEFORE = r"(?:^|(?<=[.{,\"'?&\n-])|(?<=[{,] )|(?<=  )|(?<=\t)|(?<=export ))"
"""What stands before the name of a setting, in a word or in a file; in `the next token: a` there is a text."""
_NAME = rf"(?:api[-_]?key|password|{_BEFORE}(?:(?:api|auth|access|hf|hub)[-_])?(?:token|secret))"
"""Last parts of the names of settings that hold secrets. `max_new_tokens`, `critique_tokens` and `eos_token` do not."""
_IN_WORD = re.compile(
    rf"(?i)({_NAME}[\"']?\s*[=:]\s*[\"']?|[?&]key=)(?!(?:true|false|null)(?![^\s\"'&,}}]))([^\s\"'&,}}]+)"
)
_LIKE_KEY = re.compile(
    r"(?<![A-Za-z0-9])(?:sk-[\w-]{8,}|hf_[A-Za-z0-9]{16,}|gh[oprsu]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|A[KS]IA[A-Z0-9]{16}\b)"
)
"""Keys as they are handed out: of servers, Hugging Face, GitHub and AWS."""
_LONG_KEY = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[\w./+=-]{16,}")
"""What a key looks like in a file, where nothing but its name tells that it is one."""
_IN_ADDRESS = re.compile(r"(?<=://)(?:[^\s/?#:]*:(?!\d*(?:[/?#\s]|$))\S*|[^\s?#]*)@")
"""Up to the last @: a password may hold an @, a slash or a question mark that nobody has escaped."""
_QUERY = re.compile(r"(://[^\s?#]*\?)([^\s#]+)")
_IN_QUERY = re.compile(r"([^=&;]*=)?([^&;]+)")
_NAMES_SECRET = re.compile(r"(?i)key|token|secret|password|sig|auth|code|cred")
"""Names of a query whose values are secrets; `api-version=2024-02-01` is hidden there, and nowhere else."""


def remember(*secrets: str | None) -> None:
    """Leave these out from now on."""
    _KNOWN.update(secret for secret in secrets if secret and len(secret) >= SHORTEST)


def names_secret(setting: str) -> bool:
    """Whether a setting of this name holds a secret.

    >>> [names_secret(name) for name in ("task_options.token", "critics.openai.api_key", "sampling.max_new_tokens")]
    [True, True, False]
    """
    return re.search(rf"(?i){_NAME}$", setting) is not None and not setting.startswith("columns.")


def found_in(text: str) -> str | None:
    """The first thing in a file's text that looks like a key, by its form, or by its name and its form.

    >>> found_in('{"token": 17, "password": "see-the-manual"}'), found_in("token=abcdefgh12345678")
    (None, 'abcdefgh12345678')
    """
    if (like := next((key[0] for key in _LIKE_KEY.finditer(text) if not _a_word(key[0])), None)) is not None:
        return like
    return next((match[2] for match in _IN_WORD.finditer(text) if _LONG_KEY.fullmatch(match[2])), None)


def _a_word(key: str) -> bool:
    """`sk-learn-pipeline` and `sk-1234` stand in texts and are no keys."""
    return key.startswith("sk-") and (len(key) < 19 or not re.search(r"\d", key))


def hidden(text: str, *, message: bool = False) -> str:
    """The text without any known secret, and without what is left of one that was cut off at either end. A short one
    that is a plain word or a number (`none`, `1234`) is left out of a `message` only: data hold such words. So is what
    looks like a key and was not met before.

    >>> remember("sk-0123456789")
    >>> hidden("the key sk-0123456789 is wrong; you sent sk-012345")
    'the key *** is wrong; you sent ***'
    """
    known = sorted((secret for secret in _KNOWN if len(secret) >= LONG), key=len, reverse=True)
    # Whole ones first: what is left of one secret may stand in the middle of another.
    for secret in known:
        text = text.replace(secret, "***")
    for secret in known:
        if secret[:LONG] in text or secret[-LONG:] in text:
            for size in range(len(secret) - 1, LONG - 1, -1):
                text = text.replace(secret[:size], "***").replace(secret[-size:], "***")
    for secret in _KNOWN.difference(known):
        if secret in text and (message or not (secret.isalpha() or secret.isdigit())):
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "***", text)
    return _LIKE_KEY.sub("***", text) if message else text


def hidden_word(word: str) -> str:
    """A word of a command line without the secret that it sets; the secret is remembered.

    >>> hidden_word("critics.openai.api_key=sk-1"), hidden_word("critics.openai.base_url=http://me:pw@host/v1")
    ('critics.openai.api_key=***', 'critics.openai.base_url=http://host/v1')
    """
    remember(*_LIKE_KEY.findall(word))
    if word.startswith("columns."):  # its value is the name of a column
        return hidden(word)
    remember(*(match[2] for match in _IN_WORD.finditer(word)))
    return hidden(_IN_WORD.sub(r"\1***", without_password(word)))


def without_password(address: str) -> str:
    """An address without the name and the password that it may hold, and without the values of its query. All of them
    are remembered, the name and the password as they are sent, too.

    >>> without_password("http://me:p@ss/word@host/v1?api_key=abc&debug"), without_password("http://host/v1")
    ('http://host/v1?api_key=***&***', 'http://host/v1')
    """
    for match in _IN_ADDRESS.finditer(address):
        both = match[0][:-1]
        # Of a name with a password the name is no secret: messages may hold the word (postgres, postgresql://).
        remember(both.partition(":")[2] or both, base64.b64encode(both.encode()).decode())
    return _QUERY.sub(lambda match: match[1] + _IN_QUERY.sub(_without_value, match[2]), _IN_ADDRESS.sub("", address))


def _without_value(part: "re.Match[str]") -> str:
    """`api_key=abc` → `api_key=***`."""
    name = part[1] or ""
    if not name or _NAMES_SECRET.search(name):
        remember(part[2], unquote(part[2]))
    return f"{name}***"

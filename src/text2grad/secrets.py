"""Keys and passwords: what was met once is left out of everything that is written, kept or shown.

Enters: secrets as they are met, texts. Leaves: texts with `***` in their place.
"""

import base64
import re

SHORTEST = 8
"""Characters of a text that is taken for a secret; for servers without a key people type `x` or `none`."""
_KNOWN: set[str] = set()
_IN_WORD = re.compile(r"(?i)((?:api[-_]?key|password)[\"']?\s*[=:]\s*[\"']?|[?&]key=)([^\s\"'&,}]+)")
_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]+@")


def remember(*secrets: str | None) -> None:
    """Leave these out from now on."""
    _KNOWN.update(secret for secret in secrets if secret and len(secret) >= SHORTEST)


def hidden(text: str) -> str:
    """The text without any known secret, and without what is left of one that was cut off at either end.

    >>> remember("sk-0123456789")
    >>> hidden("the key sk-0123456789 is wrong; you sent sk-012345")
    'the key *** is wrong; you sent ***'
    """
    for secret in sorted(_KNOWN, key=len, reverse=True):
        if secret[:SHORTEST] in text or secret[-SHORTEST:] in text:
            for size in range(len(secret), SHORTEST - 1, -1):
                text = text.replace(secret[:size], "***").replace(secret[-size:], "***")
    return text


def hidden_word(word: str) -> str:
    """A word of a command line without the secret that it sets; the secret is remembered.

    >>> hidden_word("critics.openai.api_key=sk-1"), hidden_word("critics.openai.base_url=http://me:pw@host/v1")
    ('critics.openai.api_key=***', 'critics.openai.base_url=http://host/v1')
    """
    remember(*(match[2] for match in _IN_WORD.finditer(word)))
    return hidden(_IN_WORD.sub(r"\1***", without_password(word)))


def without_password(address: str) -> str:
    """An address without the name and the password that it may hold; they are remembered, as they are sent, too."""
    for match in _IN_ADDRESS.finditer(address):
        both = match[0][:-1]
        remember(both, both.rpartition(":")[2], base64.b64encode(both.encode()).decode())
    return _IN_ADDRESS.sub("", address)

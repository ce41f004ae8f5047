"""Where a span begins and ends. Enters: a text, a place, a policy. Leaves: a place, never empty.

`strict` keeps the characters as they are; `expand` widens to whole words; `contract` narrows to the words that lie
inside, and keeps the place as it is where none does, because a quote that was found must not vanish.
"""

from text2grad.feedback.align.places import Place, splits_word
from text2grad.feedback.align.settings import Boundary


def settle(raw: str, place: Place, boundary: Boundary) -> Place:
    """Apply the policy.

    >>> [settle("on Tuesday noon", (4, 12), policy) for policy in ("strict", "expand", "contract")]
    [(4, 12), (3, 15), (4, 12)]
    >>> settle("on Tuesday noon", (1, 12), "contract")
    (3, 10)
    """
    start, end = place
    if boundary == "expand":
        while splits_word(raw, start):
            start -= 1
        while splits_word(raw, end):
            end += 1
    elif boundary == "contract":
        while start < end and splits_word(raw, start):
            start += 1
        while end > start and splits_word(raw, end):
            end -= 1
        while start < end and raw[start].isspace():
            start += 1
        while end > start and raw[end - 1].isspace():
            end -= 1
        if start >= end or not any(character.isalnum() for character in raw[start:end]):
            return place
    return start, end

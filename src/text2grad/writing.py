"""Scripts without spaces between words, stated once for all rooms.

Enters: nothing. Leaves: a set of characters, and the pattern of one of them. What words are: `feedback.text`.
"""

import re

UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3100-\u312f\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff"
)
"""Thai, Lao, Burmese, Khmer, kana, bopomofo, Han and Hangul, for a set in a regular expression. Words run together; in
Korean, particles are written onto the noun. Each character is compared by itself."""
ONE_UNSPACED = re.compile(f"[{UNSPACED}]")
"""A character of such a script."""

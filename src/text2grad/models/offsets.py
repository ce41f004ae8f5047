"""Sampled ids → their text and the characters each id covers. Exact, for it starts from the ids, never from the text.

Enters: a tokenizer once, then ids. Leaves: the text that `tokenizer.decode(ids, skip_special_tokens=True)` gives
(without its clean-up of spaces) and an array of half-open character ranges, one per id. Never tokenises.

Every id stands for some bytes (byte-level BPE) or for a piece of text or a single byte (SentencePiece). A character
whose bytes are spread over several ids belongs to all of them. Bytes that are no UTF-8, as a completion cut off inside
a character leaves them, decode to U+FFFD, which belongs to the ids that hold them. Special tokens, and ids beyond the
vocabulary, cover nothing: an empty range where they stand.
"""

import codecs
import json
import re
import threading
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from text2grad._checked import shorten
from text2grad.errors import InvalidData, UnsupportedTokenizer
from text2grad.types import Completion

Ranges = NDArray[np.int64]
"""(T, 2): start and end of each id."""


def completion_of(tokenizer: Any, token_ids: Sequence[int]) -> Completion:
    """The `Completion` that these sampled ids are. `tokenizer`: transformers', or a `tokenizers.Tokenizer`."""
    text, ranges = decode(tokenizer, token_ids)
    return Completion(text, tuple(map(int, token_ids)), tuple(zip(*ranges.T.tolist(), strict=True)))


def decode(tokenizer: Any, token_ids: Sequence[int]) -> tuple[str, Ranges]:
    """The text of these ids and the characters of each."""
    ids = _checked_ids(token_ids)
    texts, ranges = _decoder(tokenizer)(ids, (len(ids),))
    return texts[0], ranges


def decode_all(tokenizer: Any, many: Sequence[Sequence[int]]) -> list[tuple[str, Ranges]]:
    """The same of many texts, in much less time than one by one."""
    if not many:
        return []
    sizes = [len(ids) for ids in many]
    texts, ranges = _decoder(tokenizer)(_checked_ids([*chain.from_iterable(many)]), sizes)
    return list(zip(texts, np.split(ranges, np.cumsum(sizes)[:-1]), strict=True))


def _decoder(tokenizer: Any) -> "Decoder":
    # Tokens added since make another decoder.
    if hasattr(tokenizer, "all_special_ids"):
        vocabulary = (len(tokenizer), tuple(tokenizer.all_special_ids))
    else:
        backend = _backend(tokenizer)
        added = backend.get_added_tokens_decoder().items()
        vocabulary = (backend.get_vocab_size(), tuple(index for index, token in added if token.special))
    known = _DECODERS.get(tokenizer)
    if known is None or known[0] != vocabulary:
        known = _DECODERS[tokenizer] = (vocabulary, decoder_of(tokenizer))
    return known[1]


def _backend(tokenizer: Any) -> Any:
    """The `tokenizers.Tokenizer` that this is, or that is inside."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None and hasattr(tokenizer, "get_added_tokens_decoder"):
        backend = tokenizer
    if backend is None:
        raise UnsupportedTokenizer(
            f"{type(tokenizer).__name__}: exact offsets need a tokenizer of the `tokenizers` library (a "
            f"tokenizer.json); load it with AutoTokenizer, which converts SentencePiece models"
        )
    return backend


def _checked_ids(token_ids: Sequence[int]) -> NDArray[np.int64]:
    try:
        ids = np.asarray(token_ids)
        ids = ids.astype(np.int64) if ids.size == 0 else ids
    except (ValueError, OverflowError, TypeError):
        ids = np.empty((0, 0))
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or (len(ids) and (ids.min() < 0 or ids.max() >= 2**31)):
        raise InvalidData(f"token ids should be one sequence of whole numbers from 0, got {shorten(token_ids)}")
    return ids.astype(np.int64)


_DECODERS: WeakKeyDictionary[Any, tuple[object, "Decoder"]] = WeakKeyDictionary()


def decoder_of(tokenizer: Any) -> "Decoder":
    """Read the tokenizer's own description of its decoder and build the same one with offsets."""
    backend = _backend(tokenizer)
    decoder = json.loads(backend.to_str())["decoder"] or {"type": "Sequence", "decoders": []}
    steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    pieces = _pieces(backend)
    kinds = [step["type"] for step in steps]
    if kinds[-1:] == ["ByteLevel"] and _idle(steps[:-1], pieces):
        return Decoder([_byte_level_bytes(piece) for piece in pieces])
    if "Metaspace" in kinds or "Replace" in kinds:
        return _sentencepiece(steps, pieces, tokenizer)
    raise _unsupported(tokenizer, kinds)


class Decoder:
    """Ids stand for bytes; the text is their UTF-8 reading, with U+FFFD for what is none.

    SentencePiece has ids that stand for one byte each (`<0xE2>`), for characters that its vocabulary lacks. Of these,
    bytes that stand together and are UTF-8 as a whole become its characters; otherwise each becomes one U+FFFD. That is
    how the `tokenizers` library reads them, so it is how the policy's text is read.
    """

    def __init__(
        self,
        table: list[bytes],
        firsts: list[bytes] | None = None,
        byte_of: list[int] | None = None,
        strip: tuple[str, int] = (" ", 0),
    ) -> None:
        """`table`: per id, nothing for special ones. `firsts`: the same for an id that opens the text, where the
        decoder treats that one differently. `byte_of`: the byte that an id stands for alone; −1 for text, −2 for
        special ids. `strip`: a character, and how many of it are taken off the front of the text at most."""
        # The last entry is for unknown ids.
        self.table, self.firsts, self.strip = [*table, b""], firsts, strip
        self.byte_of = None if byte_of is None else np.array([*byte_of, -2], dtype=np.int64)

    def __call__(self, ids: NDArray[np.int64], sizes: Sequence[int]) -> tuple[list[str], Ranges]:
        """The ids of texts that follow each other, each of so many → the texts, and all ranges, each in its text."""
        known = np.minimum(ids, len(self.table) - 1)
        pieces = list(map(self.table.__getitem__, known.tolist()))
        text_ends = [0, *np.cumsum(sizes).tolist()]
        if self.byte_of is not None:
            for first, last in pairwise(text_ends):
                self._settle(pieces, known, self.byte_of[known[first:last]], first)
        lengths = np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces))
        ends = np.cumsum(lengths)
        texts, character_at = _read_utf8(b"".join(pieces), np.append(0, ends)[text_ends].tolist())
        ranges = _ranges(character_at, ends - lengths, ends)
        ranges -= np.repeat(np.cumsum([0, *map(len, texts[:-1])]), sizes)[:, None]
        character, most = self.strip
        if most:
            cuts = [min(most, len(text) - len(text.lstrip(character))) for text in texts]
            texts = [text[cut:] for text, cut in zip(texts, cuts, strict=True)]
            ranges = np.maximum(ranges - np.repeat(cuts, sizes)[:, None], 0)
        return texts, ranges

    def _settle(self, pieces: list[bytes], known: NDArray[np.int64], bytes_T: NDArray[np.int64], first: int) -> None:
        """Change what its neighbours decide, in the text whose ids begin at `first`: the id that opens it, and bytes
        that are no UTF-8."""
        seen = np.flatnonzero(bytes_T != -2) + first
        if self.firsts is not None and len(seen):
            pieces[seen[0]] = self.firsts[known[seen[0]]]
        for start, end in _runs(bytes_T[seen - first]):
            places = seen[start:end].tolist()
            try:
                b"".join(pieces[place] for place in places).decode()
            except UnicodeDecodeError:
                for place in places:
                    pieces[place] = "\ufffd".encode()


def _runs(bytes_S: NDArray[np.int64]) -> list[tuple[int, int]]:
    """[first, last) of ids that stand for bytes and follow each other, where not all are ASCII: those need no care."""
    if not (bytes_S >= 0x80).any():
        return []
    edges = np.flatnonzero(np.diff(bytes_S >= 0, prepend=False, append=False))
    return [(a, b) for a, b in edges.reshape(-1, 2).tolist() if (bytes_S[a:b] >= 0x80).any()]


class _Broken(threading.local):
    """Where the decoding under way in this thread met bytes that are no UTF-8. Python finds handlers by name only."""

    def __init__(self) -> None:
        self.places: list[tuple[int, int]] = []

    def __call__(self, problem: UnicodeError) -> tuple[str, int]:
        assert isinstance(problem, UnicodeDecodeError)
        self.places.append((problem.start, problem.end))
        return "\ufffd", problem.end


_BROKEN = _Broken()
codecs.register_error("text2grad.replace", _BROKEN)


def _read_utf8(data: bytes, cuts: Sequence[int]) -> tuple[list[str], NDArray[np.int64]]:
    """(texts with U+FFFD for what is no UTF-8, cut by cut; which character of all of them each byte belongs to)."""
    opens: NDArray[np.bool_] = (np.frombuffer(data, dtype=np.uint8) & 0xC0) != 0x80  # no continuation byte
    texts = []
    for first, last in pairwise(cuts):
        _BROKEN.places = []
        texts.append(data[first:last].decode(errors="text2grad.replace"))
        for start, end in _BROKEN.places:
            opens[first + start] = True
            opens[first + start + 1 : first + end] = False
    return texts, np.cumsum(opens) - 1


def _ranges(character_at: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Ranges:
    """Byte ranges → character ranges; an empty one stays empty, before the character that its place is in."""
    count = character_at[-1] + 1 if len(character_at) else 0
    at = np.append(character_at, count)
    firsts = at[starts]
    lasts = np.where(ends > starts, at[np.maximum(ends - 1, 0)] + 1, firsts)
    return np.stack([firsts, lasts], axis=1)


def _pieces(backend: Any) -> list[str | None]:
    """The vocabulary in id order; None where an id is special or free, as decoding skips both."""
    vocabulary = backend.get_vocab(with_added_tokens=True)
    pieces: list[str | None] = [None] * (max(vocabulary.values(), default=-1) + 1)
    for piece, index in vocabulary.items():
        pieces[index] = piece
    for index, added in backend.get_added_tokens_decoder().items():
        pieces[index] = None if added.special else added.content
    return pieces


def _byte_level_bytes(piece: str | None) -> bytes:
    """Bytes of a byte-level token; one with a character outside the alphabet is an added token, taken literally."""
    if piece is None:
        return b""
    try:
        return bytes(map(_BYTE_OF.__getitem__, piece))
    except KeyError:
        return piece.encode()


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's alphabet: printable Latin-1 characters stand for themselves, the other bytes for U+0100 onwards."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + n): byte for n, byte in enumerate(others)}


_BYTE_OF = _byte_alphabet()
_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")


def _idle(steps: list[dict[str, Any]], pieces: list[str | None]) -> bool:
    """Whether steps before a byte-level decoder find nothing to do. transformers writes a SentencePiece chain there
    when it converts some GGUF files, and no byte-level token has a ▁ or is called <0x0A>."""
    known = [piece for piece in pieces if piece is not None]
    whole = all(_BYTE_OF.keys() >= set(piece) for piece in known)

    def idle(step: dict[str, Any]) -> bool:
        match step:
            case {"type": "Fuse"}:
                return whole
            case {"type": "ByteFallback"}:
                return not any(map(_BYTE.fullmatch, known))
            case {"type": "Replace", "pattern": {"String": str(pattern)}}:
                return whole and not _BYTE_OF.keys() >= set(pattern)
        return False

    return all(map(idle, steps))


def _sentencepiece(steps: list[dict[str, Any]], pieces: list[str | None], tokenizer: Any) -> Decoder:
    """Llama's and Gemma's chains (Replace, ByteFallback, Fuse, Strip) and T5's kind (Metaspace), as their files say."""
    mark, strip = "▁", (" ", 0)
    has_bytes = fused = drops_first = False
    for position, step in enumerate(steps):
        match step:
            case {"type": "Replace", "pattern": {"String": str(pattern)}, "content": " "} if position == 0:
                mark = pattern
            case {"type": "Metaspace", "replacement": str(replacement)} if position == 0:
                mark = replacement
                drops_first = step.get("prepend_scheme", "always") != "never"
            case {"type": "ByteFallback"} if not fused:
                has_bytes = True
            case {"type": "Fuse"}:
                fused = True
            case {"type": "Strip", "content": str(character), "start": int(start), "stop": 0} if (
                fused and strip[1] == 0
            ):
                strip = (character, start)
            case _:
                raise _unsupported(tokenizer, [step["type"] for step in steps])
    table, firsts, byte_of = [], [], []
    for piece in pieces:
        byte = _BYTE.fullmatch(piece) if piece is not None and has_bytes else None
        text = "" if piece is None else piece
        table.append(bytes([int(byte[1], 16)]) if byte else text.replace(mark, " ").encode())
        firsts.append(table[-1] if byte else text.replace(mark, "").encode())
        byte_of.append(-2 if piece is None else int(byte[1], 16) if byte else -1)
    return Decoder(table, firsts if drops_first else None, byte_of, strip)


def _unsupported(tokenizer: Any, kinds: list[str]) -> UnsupportedTokenizer:
    return UnsupportedTokenizer(
        f"{type(tokenizer).__name__}: exact offsets are known for byte-level BPE and SentencePiece decoders, and its "
        f"decoder is made of {kinds or 'nothing'}; those of the GPT, Llama, Qwen, Mistral and Gemma families work"
    )

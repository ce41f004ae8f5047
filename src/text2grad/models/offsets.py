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
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Protocol
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


class Decoder(Protocol):
    def __call__(self, ids: NDArray[np.int64], sizes: Sequence[int]) -> tuple[list[str], Ranges]:
        """The ids of texts that follow each other, each of so many → the texts, and all ranges, each in its text."""


_DECODERS: WeakKeyDictionary[Any, tuple[object, Decoder]] = WeakKeyDictionary()


def decoder_of(tokenizer: Any) -> Decoder:
    """Read the tokenizer's own description of its decoder and build the same one with offsets."""
    backend = _backend(tokenizer)
    decoder = json.loads(backend.to_str())["decoder"] or {"type": "Sequence", "decoders": []}
    steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    pieces = _pieces(backend)
    kinds = [step["type"] for step in steps]
    if kinds[-1:] == ["ByteLevel"] and _idle(steps[:-1], pieces):
        return ByteLevel([_byte_level_bytes(piece) for piece in pieces])
    if "Metaspace" in kinds or "Replace" in kinds:
        return _sentencepiece(steps, pieces, tokenizer)
    raise _unsupported(tokenizer, kinds)


class ByteLevel:
    """Ids stand for bytes; the text is their UTF-8 reading, with U+FFFD for what is none."""

    def __init__(self, table: list[bytes]) -> None:
        self.table = [*table, b""]
        self.lengths = np.array([len(piece) for piece in self.table])

    def __call__(self, ids: NDArray[np.int64], sizes: Sequence[int]) -> tuple[list[str], Ranges]:
        # Only the reading as UTF-8 is text by text: no character may have bytes of two.
        known = np.minimum(ids, len(self.table) - 1)
        data = b"".join(map(self.table.__getitem__, known.tolist()))
        lengths = self.lengths[known]
        ends = np.cumsum(lengths)
        cuts = np.append(0, ends)[np.cumsum(sizes)].tolist() if len(sizes) > 1 else [len(data)]
        texts, character_at = _read_utf8(data, [0, *cuts])
        ranges = _ranges(character_at, ends - lengths, ends)
        if len(sizes) > 1:
            before = np.cumsum([0, *map(len, texts[:-1])])
            ranges -= np.repeat(before, sizes)[:, None]
        return texts, ranges


@dataclass(frozen=True)
class SentencePiece:
    """Ids stand for pieces of text, or for one byte each (`<0xE2>`) where the vocabulary lacks a character.

    Bytes that stand together and are UTF-8 as a whole become its characters; otherwise each becomes one U+FFFD. That is
    how the `tokenizers` library reads them, so it is how the policy's text is read.
    """

    texts: list[str]
    """Per id, ▁ already a space; ASCII bytes are themselves; empty for other bytes and for special tokens. One more at
    the end, for unknown ids."""
    firsts: list[str]
    """The same for an id that opens the text, where the decoder treats that one differently."""
    byte_of: NDArray[np.int64]
    """The byte that an id stands for, or −1; −2 for ids that the decoder never sees (special, unknown)."""
    strip: tuple[str, int]
    """A character, and how many of it are taken off the front of the text at most."""

    def __call__(self, ids: NDArray[np.int64], sizes: Sequence[int]) -> tuple[list[str], Ranges]:
        # What opens a text is read differently, so each is read alone.
        found = list(map(self._read, np.split(ids, np.cumsum(sizes)[:-1])))
        return [text for text, _ in found], np.concatenate([ranges for _, ranges in found])

    def _read(self, ids: NDArray[np.int64]) -> tuple[str, Ranges]:
        known = np.minimum(ids, len(self.texts) - 1)
        bytes_T = self.byte_of[known]
        parts = list(map(self.texts.__getitem__, known.tolist()))
        seen = np.flatnonzero(bytes_T != -2)
        if len(seen) and bytes_T[seen[0]] == -1:
            parts[seen[0]] = self.firsts[known[seen[0]]]
        lengths, extents, back = self._layout(seen, bytes_T, parts)
        starts = np.cumsum(lengths) - lengths + back
        # A special token between the bytes of one character stands before it, as in `_ranges`.
        starts = np.minimum.accumulate(starts[::-1])[::-1]
        return self._stripped("".join(parts), np.stack([starts, starts + extents], axis=1))

    def _layout(
        self, seen: NDArray[np.int64], bytes_T: NDArray[np.int64], parts: list[str]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Settle the bytes in `parts`; (characters laid out by each id, covered by it, its start in the layout)."""
        lengths = list(map(len, parts))
        extents, back = lengths.copy(), [0] * len(parts)
        places, values = seen.tolist(), np.maximum(bytes_T[seen], 0).astype(np.uint8).tobytes()
        for first, last in _runs(bytes_T[seen]):
            text, character_at = _read_byte_run(values[first:last])
            # The run's characters are laid out on its first id, the others point back into them.
            for index, character in zip(range(first, last), character_at, strict=True):
                place = places[index]
                leading = index == first
                parts[place] = text if leading else ""
                lengths[place] = len(text) if leading else 0
                extents[place] = 1
                back[place] = character if leading else character - len(text)
        return np.array(lengths, dtype=np.int64), np.array(extents, dtype=np.int64), np.array(back, dtype=np.int64)

    def _stripped(self, text: str, ranges: Ranges) -> tuple[str, Ranges]:
        character, most = self.strip
        cut = 0
        while cut < min(most, len(text)) and text[cut] == character:
            cut += 1
        return text[cut:], np.maximum(ranges - cut, 0)


def _runs(bytes_S: NDArray[np.int64]) -> list[tuple[int, int]]:
    """[first, last) of ids that stand for bytes and follow each other, where not all are ASCII: those need no care."""
    is_byte = bytes_S >= 0
    if not (bytes_S >= 0x80).any():
        return []
    edges = np.flatnonzero(np.diff(is_byte, prepend=False, append=False))
    firsts, lasts = edges[::2], edges[1::2]
    beyond = np.concatenate([[0], np.cumsum(bytes_S >= 0x80)])
    wanted = beyond[lasts] > beyond[firsts]
    return list(zip(firsts[wanted].tolist(), lasts[wanted].tolist(), strict=True))


def _read_byte_run(data: bytes) -> tuple[str, Iterable[int]]:
    """(text, the character that each byte belongs to). Plain Python: runs are short, and there are many."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "\ufffd" * len(data), range(len(data))
    character_at, at = [], -1
    for byte in data:
        at += byte & 0xC0 != 0x80
        character_at.append(at)
    return text, character_at


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
                return all(_byte_of(piece, True) < 0 for piece in known)
            case {"type": "Replace", "pattern": {"String": str(pattern)}}:
                return whole and not _BYTE_OF.keys() >= set(pattern)
        return False

    return all(map(idle, steps))


def _sentencepiece(steps: list[dict[str, Any]], pieces: list[str | None], tokenizer: Any) -> SentencePiece:
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
    texts = [_text_of(piece, mark, " ", has_bytes) for piece in pieces]
    firsts = [_text_of(piece, mark, "", has_bytes) for piece in pieces] if drops_first else texts
    byte_of = [-2 if piece is None else _byte_of(piece, has_bytes) for piece in pieces]
    return SentencePiece([*texts, ""], [*firsts, ""], np.array([*byte_of, -2], dtype=np.int64), strip)


def _text_of(piece: str | None, mark: str, space: str, has_bytes: bool) -> str:
    if piece is None:
        return ""
    byte = _byte_of(piece, has_bytes)
    return piece.replace(mark, space) if byte < 0 else chr(byte) if byte < 0x80 else ""


def _byte_of(piece: str, has_bytes: bool) -> int:
    if has_bytes and len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        try:
            return int(piece[3:5], 16)
        except ValueError:
            return -1
    return -1


def _unsupported(tokenizer: Any, kinds: list[str]) -> UnsupportedTokenizer:
    return UnsupportedTokenizer(
        f"{type(tokenizer).__name__}: exact offsets are known for byte-level BPE and SentencePiece decoders, and its "
        f"decoder is made of {kinds or 'nothing'}; those of the GPT, Llama, Qwen, Mistral and Gemma families work"
    )

# SPDX-License-Identifier: Apache-2.0
"""MD5 of decimal text, of thousands of texts at a time: what coins and shards are hashed by.

A text is a head, then for each column the row's number in decimals and what follows it. Numbers
that are next to each other are looked up together where few texts can come of them::

    head "a5:", columns of 3 and 20 codes, then "," and "#":   a5:2,17#
                                                                  ----- entry 2 * 20 + 17 of a table

Each entry is 16 bytes, its text and zeros, and is written where the one before it ended, over that
one's zeros. A word that is the same in all texts is kept once, and so is what MD5 makes of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np

__all__ = ["TextDigests"]

AT_ONCE = 2**15  # texts: the numbers of one step of MD5 fit into a core's cache
ENTRY = 16  # bytes
MAX_ENTRIES = 2**13  # of a table: 128 KiB
ROWS_OF_ENTRY = 32  # rows whose look-up takes as long as making an entry
END = b"\x80"  # what MD5 puts behind a text

_BEGIN = (0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476)
_TURNS = ((7, 12, 17, 22), (5, 9, 14, 20), (4, 11, 16, 23), (6, 10, 15, 21))
_STRIDES = ((1, 0), (5, 1), (3, 5), (7, 0))
# Of each step of MD5 the word that it reads, by how much it turns, and the constant that it adds.
_STEPS = [
    (
        (_STRIDES[step // 16][0] * step + _STRIDES[step // 16][1]) % 16,
        _TURNS[step // 16][step % 4],
        int(abs(math.sin(step + 1)) * 2**32),
    )
    for step in range(64)
]


class TextDigests:
    """The last eight bytes of the MD5 hashes of texts.

    Args:
        head: How each text begins.
        columns: What follows: of each column its largest number, and the bytes after the number.
        rows: For about how many texts.
    """

    def __init__(self, head: bytes, columns: Sequence[tuple[int, bytes]], rows: int) -> None:
        entries = min(MAX_ENTRIES, rows // ROWS_OF_ENTRY)
        fields = [field for most, after in columns for field in _fields_of(most, after, entries)]
        self._fields = _joined(fields, entries)
        self._same = len(head) // 4 * 4  # bytes at the beginning that are whole words
        self._head, self._rest = head[: self._same], np.frombuffer(head[self._same :], dtype=np.uint8)
        longest = len(self._rest) + sum(field.longest for field in self._fields) + len(END)
        # Texts lie at whole words, each with room for an entry that is written at its end.
        self._stride = -(-(longest + ENTRY) // 4) * 4

    def __call__(self, columns: Sequence[np.ndarray], check: Callable[[], None]) -> np.ndarray:
        """The hashes as numbers, shape (rows,).

        Args:
            columns: The numbers of each, unsigned, shape (rows,).
            check: Called before each some thousands of rows; what it raises ends the work.
        """
        rows = len(columns[0])
        hashes = np.empty(rows, dtype=np.uint64)
        room = np.empty(min(rows, AT_ONCE) * self._stride + ENTRY, dtype=np.uint8)
        for start in range(0, rows, AT_ONCE):
            check()
            own = slice(start, start + AT_ONCE)
            hashes[own] = self._hashes([column[own] for column in columns], room)
        return hashes

    def _hashes(self, columns: Sequence[np.ndarray], room: np.ndarray) -> np.ndarray:
        """The same of some rows, whose texts are written into ``room``."""
        length = self._written(columns, room)
        texts = room[: len(length) * self._stride].reshape(-1, self._stride).view("<u4")
        blocks = (length + 8) // 64 + 1  # the last one ends with how many bits the text has
        if blocks.min() == blocks.max():
            return self._digest(texts, length, int(blocks[0]))
        hashes = np.empty(len(length), dtype=np.uint64)
        for count in np.unique(blocks).tolist():
            rows = np.flatnonzero(blocks == count)
            hashes[rows] = self._digest(texts[rows], length[rows], count)
        return hashes

    def _written(self, columns: Sequence[np.ndarray], room: np.ndarray) -> np.ndarray:
        """Writes the texts from their first word on that differs; returns how long each is."""
        rows, numbers = len(columns[0]), iter(columns)
        room.fill(0)
        room[: rows * self._stride].reshape(rows, -1)[:, : len(self._rest)] = self._rest
        anywhere = np.ndarray(len(room) - ENTRY, dtype=f"V{ENTRY}", buffer=room, strides=(1,))
        begins = np.arange(rows) * self._stride
        ends = begins + len(self._rest)
        for field in self._fields:
            own = [next(numbers) for _ in field.sizes]
            for table, number in field.lookups(own, rows):
                anywhere[ends] = table.entries.take(number)
                ends += table.lengths.take(number)
        room[ends] = END[0]
        return ends - begins + self._same

    def _digest(self, texts: np.ndarray, length: np.ndarray, blocks: int) -> np.ndarray:
        """What MD5 makes of texts that have so many blocks."""
        state = [np.full(1, word, dtype=np.uint32) for word in _BEGIN]
        words = [*np.frombuffer(self._head, dtype="<u4").reshape(-1, 1)]
        words += [np.ascontiguousarray(word) for word in texts.T[: 16 * blocks - len(words)]]
        words += [np.zeros(1, dtype=np.uint32)] * (16 * blocks - len(words))
        words[-2] = (8 * length).astype(np.uint32)
        for block in range(0, len(words), 16):
            state = _compressed(state, words[block : block + 16])
        return state[3].astype(np.uint64) << np.uint64(32) | state[2]


@dataclass(frozen=True, eq=False)
class _Table:
    """Texts by number: their bytes, 16 for each, and how many of these are the text."""

    entries: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, texts: Sequence[bytes]) -> _Table:
        """A table of texts of 16 bytes at most."""
        lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
        return cls(np.array(texts, dtype=f"S{ENTRY}").view(f"V{ENTRY}"), lengths)


class _Field(Protocol):
    """A stretch of the texts."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of each column that it shows, what its numbers are below."""

    @property
    def texts(self) -> list[bytes]:
        """All that may stand there; empty where that is too much."""

    @property
    def longest(self) -> int:
        """How many bytes it has at most."""

    def lookups(self, columns: Sequence[np.ndarray], rows: int) -> Iterator[tuple[_Table, np.ndarray]]:
        """Yields one table after the other, each with the number of each row's text in it."""


@dataclass(frozen=True, eq=False)
class _Few:
    """Columns of few numbers: one table has all their texts.

    Attributes:
        sizes: Each column's numbers are below.
        texts: Of all of them; the last one is the longest.
    """

    sizes: tuple[int, ...]
    texts: list[bytes]

    @property
    def longest(self) -> int:
        return len(self.texts[-1])

    def lookups(self, columns: Sequence[np.ndarray], rows: int) -> Iterator[tuple[_Table, np.ndarray]]:
        number = np.zeros(rows, dtype=np.int64)
        for size, column in zip(self.sizes, columns, strict=True):
            number *= size
            number += column.astype(np.int64)
        yield self._table, number

    @cached_property
    def _table(self) -> _Table:
        return _Table.of(self.texts)


@dataclass(frozen=True, eq=False)
class _Many:
    """A column of many numbers, looked up by some digits at a time.

    Attributes:
        most: The largest number.
        after: What follows it.
        digits: How many are looked up together.
    """

    most: int
    after: bytes
    digits: int

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.most + 1,)

    @property
    def texts(self) -> list[bytes]:
        return []

    @property
    def longest(self) -> int:
        return len(str(self.most)) + len(self.after)

    def lookups(self, columns: Sequence[np.ndarray], rows: int) -> Iterator[tuple[_Table, np.ndarray]]:
        (rest,), base, after = columns, 10**self.digits, self.after
        chunks: list[tuple[_Table, np.ndarray]] = []
        for _ in range(0, len(str(self.most)), self.digits):
            higher = rest // base
            number = (rest - higher * base).astype(np.int64)
            chunks.append((_chunk(self.digits, after, last=not chunks), number + (higher > 0) * base))
            rest, after = higher, b""
        return reversed(chunks)


@lru_cache(maxsize=16)
def _chunk(digits: int, after: bytes, *, last: bool) -> _Table:
    """Some digits of a number, here four: entries as they are, then those behind higher digits.

    Of 40,007 there are two chunks: entry 4, "4", and entry 10,000 + 7, "0007". Where nothing but
    zeros came so far there are no digits, but for the last chunk of the number 0.
    """
    short = [b"%d" % number + after for number in range(10**digits)]
    short[0] = b"0" + after if last else b""
    return _Table.of(short + [b"%0*d" % (digits, number) + after for number in range(10**digits)])


def _fields_of(most: int, after: bytes, entries: int) -> Iterator[_Field]:
    """Yields a column's numbers with what follows them, in tables of about so many entries."""
    near, far = after[:1], after[1:]  # of the tables of digits there are a few, which are kept
    if most < max(10, entries):
        yield _Few((most + 1,), [b"%d" % number + near for number in range(most + 1)])
    else:
        yield _Many(most, near, 4 if entries == MAX_ENTRIES else 2)
    for start in range(0, len(far), ENTRY):
        yield _Few((), [far[start : start + ENTRY]])


def _joined(fields: Sequence[_Field], entries: int) -> list[_Field]:
    """The same stretches, as few as can be looked up."""
    joined = [fields[0]]
    for field in fields[1:]:
        last, count = joined[-1], len(joined[-1].texts) * len(field.texts)
        if 0 < count <= entries and last.longest + field.longest <= ENTRY:
            texts = [text + more for text in last.texts for more in field.texts]
            joined[-1] = _Few(last.sizes + field.sizes, texts)
        else:
            joined.append(field)
    return joined


def _compressed(state: Sequence[np.ndarray], words: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What a block of 16 words makes of the four words of MD5, for all texts (RFC 1321, 3.4).

    Where a word is the same in all texts its array has one entry; so has the state, up to the first
    word that differs.
    """
    a, b, c, d = (own.copy() for own in state)
    spare = np.empty_like(a)
    for step, (word, turn, constant) in enumerate(_STEPS):
        if len(words[word]) > len(a):
            a, b, c, d, spare = (np.repeat(own, len(words[word])) for own in (a, b, c, d, spare))
        a += _mixed(step // 16, b, c, d, spare)
        a += np.add(words[word], np.uint32(constant), out=spare[: len(words[word])])
        np.right_shift(a, np.uint32(32 - turn), out=spare)
        np.left_shift(a, np.uint32(turn), out=a)
        a |= spare
        a += b
        a, b, c, d = d, a, b, c
    return [new + old for new, old in zip((a, b, c, d), state, strict=True)]


def _mixed(round_number: int, b: np.ndarray, c: np.ndarray, d: np.ndarray, out: np.ndarray) -> np.ndarray:
    """The function of a round: F, G, H, I."""
    if round_number == 3:
        np.invert(d, out=out)
        out |= b
        out ^= c
    elif round_number == 2:
        np.bitwise_xor(b, c, out=out)
        out ^= d
    else:
        chosen, other, by = (c, d, b) if round_number == 0 else (b, c, d)
        np.bitwise_xor(chosen, other, out=out)
        out &= by
        out ^= other
    return out

# SPDX-License-Identifier: Apache-2.0
"""Random disjoint shards: a keyed coin for each row, steady across sessions.

Privacy:
    A row's coin is a keyed hash of its codes and of its number among equal rows. Adding a row adds
    one (row, number) pair and changes no other, so coins are a stability-1 map of the table.
    Held by: tests/contract/test_every_engines_rows.py.

The ledger outlives versions of every library, so coins are made by MD5 of decimal text, which means
the same everywhere: a hash that a library calls its own need not.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from pinq.engine.codes import BLOCK_ROWS, Codes, smallest
from pinq.engine.tallies import packed_words, run_starts

__all__ = ["KEPT_SHARDS", "ShardColumns", "ShardSource", "coins_of", "shards_of"]

KEPT_SHARDS = 8
HASHED_AT_ONCE = 2**13
MARGIN = 24  # bytes before a text, for zeros before the digits of its first number
ShardSource = tuple[str, int, int]
"""What ``Axis.source`` is for shards: the word, the key and the number of shards."""

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


class ShardColumns:
    """Which shards an encoded table's rows are in, by key and count; columns made last are kept.

    Coins are made when the first shards are asked for. Who asks for one key waits for nobody who
    makes another's.

    Args:
        codes: The table.
        salt: Keys the coins; the same salt gives the same coins.
    """

    def __init__(self, codes: Codes, salt: bytes) -> None:
        self._codes, self._salt = codes, salt
        self._guard, self._tossing = threading.Lock(), threading.Lock()
        self._coins: np.ndarray | None = None
        self._kept: dict[ShardSource, _Column] = {}

    def columns(
        self, sources: Iterable[ShardSource], check: Callable[[], None] | None = None
    ) -> dict[ShardSource, np.ndarray]:
        """Returns each row's shard for each of these keys and counts, shape (rows,).

        Args:
            sources: As ``Axis.source`` names them.
            check: Called before each block of rows of each key; what it raises ends the work.
        """
        return {source: self._column(source, check) for source in sources}

    def _column(self, source: ShardSource, check: Callable[[], None] | None) -> np.ndarray:
        with self._guard:
            column = self._kept.pop(source, None) or _Column()
            self._kept[source] = column
            while len(self._kept) > KEPT_SHARDS:
                del self._kept[next(iter(self._kept))]
        with column.lock:
            if column.shards is None:
                column.shards = self._made(source, check)
            return column.shards

    def _made(self, source: ShardSource, check: Callable[[], None] | None) -> np.ndarray:
        """Makes a column, block by block."""
        with self._tossing:
            if self._coins is None:
                self._coins = coins_of(self._codes, self._salt, check)
            coins = self._coins
        _, key, count = source
        shards = np.empty(len(coins), dtype=smallest(count))
        for start in range(0, len(coins), BLOCK_ROWS):
            if check is not None:
                check()
            rows = slice(start, start + BLOCK_ROWS)
            shards[rows] = shards_of(coins[rows], key, count)
        return shards


@dataclass(eq=False)
class _Column:
    """A column of shards, made by whoever asks for it first while others who ask wait."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    shards: np.ndarray | None = None


def coins_of(codes: Codes, salt: bytes, check: Callable[[], None] | None = None) -> np.ndarray:
    """The coin of each row, 64 bits. All rows that are equal to one of them must be there.

    Args:
        codes: The rows.
        salt: Keys the coins.
        check: Called before each block of rows; what it raises ends the work.
    """
    if not codes.rows:
        return np.zeros(0, dtype=np.uint64)
    check = check or _go_on
    nth, head, coins = _nth_among_equals(codes, check), f"{salt.hex()}:".encode(), []
    for block in codes.blocks:
        for start in range(0, block.rows, HASHED_AT_ONCE):
            check()
            rows = slice(start, min(start + HASHED_AT_ONCE, block.rows))
            # Of the second of equal rows (3, 0) this hashes <salt>:3,0#2.
            numbers = [column[rows] for column in block.columns.values()]
            coins.append(_hashes(head, [*numbers, nth[rows]], [*[b","] * (len(numbers) - 1), b"#", b""]))
        nth = nth[block.rows :]
    return np.concatenate(coins)


def _hashes(head: bytes, numbers: Sequence[np.ndarray], after: Sequence[bytes]) -> np.ndarray:
    """The last eight bytes of the MD5 hashes of texts, as numbers, shape (rows,).

    Args:
        head: How each text begins.
        numbers: Then come these numbers of each row, shape (rows,) each, as decimals.
        after: What follows each of them.
    """
    signs, length = _texts(head, numbers, after)
    # A text's last block ends with how many bits the text has.
    blocks = (length + 8) // 64 + 1
    hashes = np.empty(len(blocks), dtype=np.uint64)
    for count in np.unique(blocks).tolist():
        rows = np.flatnonzero(blocks == count)
        words = np.zeros((len(rows), 16 * count), dtype="<u4")
        words.view(np.uint8)[:] = signs[rows, MARGIN : MARGIN + 64 * count]
        words[:, -2] = 8 * length[rows]
        state = [np.full(len(rows), word, dtype=np.uint32) for word in _BEGIN]
        for block in np.split(np.ascontiguousarray(words.T), count):
            state = _compressed(state, block)
        hashes[rows] = state[3].astype(np.uint64) << np.uint64(32) | state[2]
    return hashes


def _texts(head: bytes, numbers: Sequence[np.ndarray], after: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """The signs of texts, each from MARGIN on and ended by 128; and how long each is."""
    ends, length = [], np.full(len(numbers[0]), len(head))
    for column, tail in zip(numbers, after, strict=True):
        ends.append(length + _digits(column))
        length = ends[-1] + len(tail)
    signs = np.zeros((len(length), MARGIN + 64 * (int(length.max() + 8) // 64 + 1)), dtype=np.uint8)
    flat, begins = signs.reshape(-1), np.arange(len(signs)) * signs.shape[1] + MARGIN
    flat[begins + length] = 128
    # From the last column to the first, each with as many digits as its longest number: in 3,12 and
    # 14,5 the last numbers are 12 and 05, and over the 0 a comma is written later.
    for column, end, tail in zip(reversed(numbers), reversed(ends), reversed(after), strict=True):
        last, rest = begins + end, column
        for number, sign in enumerate(tail):
            flat[last + number] = sign
        for _ in range(len(str(int(column.max())))):
            tenth = rest // 10
            last -= 1
            flat[last] = rest - tenth * 10 + ord("0")
            rest = tenth
    signs[:, MARGIN : MARGIN + len(head)] = np.frombuffer(head, dtype=np.uint8)
    return signs, length


def _digits(numbers: np.ndarray) -> np.ndarray:
    """How many digits each number has."""
    digits = np.ones(len(numbers), dtype=np.int64)
    for power in range(1, len(str(int(numbers.max())))):
        digits += numbers >= 10**power
    return digits


def _nth_among_equals(codes: Codes, check: Callable[[], None]) -> np.ndarray:
    """Numbers equal rows from 1 on, each row of its own by its place, shape (rows,).

    Of rows a, b, a, a the numbers are 1, 1, 2, 3: which of equal ones is which, nothing tells.
    """
    lines, sizes = [], []
    for name in codes.blocks[0].columns:
        check()
        lines.append(np.concatenate([block.columns[name] for block in codes.blocks]))
        sizes.append(int(lines[-1].max()) + 1)
    words = packed_words(lines, sizes)
    order = np.argsort(words)
    starts = run_starts(words[order])
    # Words 5 3 5: in order 3 5 5, by `order` 1 0 2; runs start at 0 and 1, so 1 2 3 less 0 1 1 are
    # 1 1 2, and the rows are numbered 1, 1 and 2.
    nth = np.empty(codes.rows, dtype=np.int64)
    nth[order] = np.arange(1, codes.rows + 1) - np.repeat(starts, np.diff(starts, append=codes.rows))
    return nth


def shards_of(coins: np.ndarray, key: int, count: int) -> np.ndarray:
    """Which of ``count`` shards the rows with these coins are in, shape (rows,)."""
    shards, tail = np.empty(len(coins), dtype=smallest(count)), f":{key}".encode()
    for start in range(0, len(coins), HASHED_AT_ONCE):
        own = slice(start, start + HASHED_AT_ONCE)
        # The upper half u of a hash is a number below 2^32, and u * count >> 32 says in which of
        # `count` equal stretches it lies: with three shards, u = 2^31 is in the middle one, 3 * 2^31
        # >> 32 = 1.
        upper = _hashes(b"", [coins[own]], [tail]) >> np.uint64(32)
        shards[own] = upper * np.uint64(count) >> np.uint64(32)
    return shards


def _compressed(state: Sequence[np.ndarray], words: np.ndarray) -> list[np.ndarray]:
    """What a block of 16 words makes of the four words of MD5, for all texts (RFC 1321, 3.4)."""
    a, b, c, d = state
    spare = np.empty_like(a)
    for step, (word, turn, constant) in enumerate(_STEPS):
        mixed = _mixed(step // 16, b, c, d)
        mixed += a
        mixed += np.uint32(constant)
        mixed += words[word]
        np.right_shift(mixed, np.uint32(32 - turn), out=spare)
        np.left_shift(mixed, np.uint32(turn), out=mixed)
        mixed |= spare
        mixed += b
        a, b, c, d = d, mixed, b, c
    return [new + old for new, old in zip((a, b, c, d), state, strict=True)]


def _mixed(round_number: int, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
    """The function of a round: F, G, H, I."""
    if round_number == 3:
        return c ^ (b | ~d)
    if round_number == 2:
        return b ^ c ^ d
    chosen, other, by = (c, d, b) if round_number == 0 else (b, c, d)
    return other ^ (by & (chosen ^ other))


def _go_on() -> None:
    """Ends nothing."""

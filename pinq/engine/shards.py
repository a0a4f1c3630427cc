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
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import duckdb
import numpy as np
import pyarrow as pa

from pinq.engine.codes import BLOCK_ROWS, Codes, smallest
from pinq.engine.databases import SMALL_ROWS, small_database
from pinq.engine.tallies import packed_words, run_starts

__all__ = ["KEPT_SHARDS", "ShardColumns", "ShardSource", "coins_of", "shards_of"]

KEPT_SHARDS = 8
LOOK_SECONDS = 0.1
HASHED_AT_ONCE = 2**14
ShardSource = tuple[str, int, int]
"""What ``Axis.source`` is for shards: the word, the key and the number of shards."""

_POWERS = np.array([10**digits for digits in range(20)], dtype=np.uint64)
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
    names = [f"c{number}" for number in range(len(codes.blocks[0].columns))]
    nth, numbers, batches = _nth_among_equals(codes, check), np.arange(codes.rows), []
    for block in codes.blocks:
        check()
        rows = [pa.array(nth[: block.rows]), pa.array(numbers[: block.rows])]
        arrays = [pa.array(column) for column in block.columns.values()]
        batches.append(pa.RecordBatch.from_arrays([*arrays, *rows], [*names, "nth", "number"]))
        nth, numbers = nth[block.rows :], numbers[block.rows :]
    text = ", ',', ".join(names)
    # Of the second of equal rows (3, 0) this hashes <salt>:3,0#2.
    coin = f"md5_number_lower(concat('{salt.hex()}:', {text}, '#', nth))"
    return _in_order(pa.Table.from_batches(batches), f"SELECT number, {coin} FROM source", check)


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
    tail, shards = f":{key}".encode(), np.empty(len(coins), dtype=smallest(count))
    lengths = np.maximum(1, np.searchsorted(_POWERS, coins, side="right"))
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        for start in range(0, len(rows), HASHED_AT_ONCE):
            own = rows[start : start + HASHED_AT_ONCE]
            # The upper half u of a hash is a number below 2^32, and u * count >> 32 says in which of
            # `count` equal stretches it lies: with three shards, u = 2^31 is in the middle one, 3 *
            # 2^31 >> 32 = 1.
            upper = _last_word(_words(coins[own], length, tail)).astype(np.uint64)
            shards[own] = upper * np.uint64(count) >> np.uint64(32)
    return shards


def _words(numbers: np.ndarray, length: int, tail: bytes) -> np.ndarray:
    """The texts of numbers, followed by ``tail``, as MD5 takes them, shape (16, numbers).

    Args:
        numbers: Each of so many digits.
        length: How many; with the tail at most 55 signs.
        tail: Follows each.
    """
    # The text 12:7 has the codes 49 50 58 55. The sign 128 ends it, and word 14 says that it has 32
    # bits.
    signs, rest = np.zeros((16, len(numbers), 4), dtype=np.uint8), numbers
    for position in reversed(range(length)):
        tenth = rest // np.uint64(10)
        signs[position // 4, :, position % 4] = rest - tenth * np.uint64(10) + np.uint64(ord("0"))
        rest = tenth
    for position, sign in enumerate([*tail, 128], start=length):
        signs[position // 4, :, position % 4] = sign
    bits = 8 * (length + len(tail))
    signs[14, :, 0], signs[14, :, 1] = bits % 256, bits // 256
    return signs.view("<u4")[..., 0]


def _last_word(words: np.ndarray) -> np.ndarray:
    """The last of the four words of an MD5 hash, all texts step by step (RFC 1321, 3.4)."""
    a, b, c, d = (np.full(words.shape[1], word, dtype=np.uint32) for word in _BEGIN)
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
    return d + np.uint32(_BEGIN[3])


def _mixed(round_number: int, b: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
    """The function of a round: F, G, H, I."""
    if round_number == 3:
        return c ^ (b | ~d)
    if round_number == 2:
        return b ^ c ^ d
    chosen, other, by = (c, d, b) if round_number == 0 else (b, c, d)
    return other ^ (by & (chosen ^ other))


def _in_order(source: pa.Table, query: str, check: Callable[[], None]) -> np.ndarray:
    """Returns a query's second column in the order of its first, the rows' numbers.

    The query runs in a thread of its own, so that what ``check`` raises meanwhile interrupts it.
    """
    with _database(source.num_rows) as connection, ThreadPoolExecutor(1) as thread:
        connection.register("source", source)
        asked = thread.submit(lambda: connection.execute(query).fetchnumpy())
        try:
            while not wait([asked], LOOK_SECONDS).done:
                check()
        except BaseException:
            connection.interrupt()
            raise
        number, values = map(np.ma.getdata, asked.result().values())
    ordered = np.empty(len(values), dtype=values.dtype)
    ordered[number] = values
    return ordered


def _database(rows: int) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
    """A database for so many rows, with the threads that many are worth."""
    return small_database() if rows <= SMALL_ROWS else duckdb.connect(config={"enable_external_access": "false"})


def _go_on() -> None:
    """Ends nothing."""

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

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from pinq.engine.codes import BLOCK_ROWS, Codes, smallest
from pinq.engine.digests import TextDigests
from pinq.engine.tallies import packed_words

__all__ = ["KEPT_SHARDS", "ShardColumns", "ShardSource", "coins_of", "shards_of"]

KEPT_SHARDS = 8
MIXED_AT_ONCE = 2**15  # rows
MIXER = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no code is lost
ShardSource = tuple[str, int, int]
"""What ``Axis.source`` is for shards: the word, the key and the number of shards."""


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
    nth, names = _nth_among_equals(codes, check), list(codes.blocks[0].columns)
    most = [max(int(block.columns[name].max(initial=0)) for block in codes.blocks) for name in names]
    # Of the second of equal rows (3, 0) this hashes <salt>:3,0#2.
    after = [*[b","] * (len(names) - 1), b"#", b""]
    digests = TextDigests(f"{salt.hex()}:".encode(), list(zip([*most, int(nth.max())], after, strict=True)), codes.rows)
    coins = []
    for block in codes.blocks:
        coins.append(digests([*block.columns.values(), nth[: block.rows]], check))
        nth = nth[block.rows :]
    return np.concatenate(coins)


def _nth_among_equals(codes: Codes, check: Callable[[], None]) -> np.ndarray:
    """Numbers equal rows from 1 on, each row of its own by its place, shape (rows,).

    Of rows a, b, a, a the numbers are 1, 1, 2, 3: which of equal ones is which, nothing tells.
    """
    order, again = _in_order(_mixed_words(codes, check))
    if not _are_equal(codes, order[again], order[again - 1], check):
        order, again = _in_order(_exact_words(codes, check))
    # Words 5 3 5 5 are 3 5 5 5 in order: at 2 and 3 is one that was there before. These two are
    # next to each other, so the rows there are the second and the third.
    starts = np.flatnonzero(np.diff(again, prepend=-1) != 1)
    nth = np.ones(codes.rows, dtype=np.uint64)
    nth[order[again]] = 2 + np.arange(len(again)) - np.repeat(starts, np.diff(starts, append=len(again)))
    return nth


def _in_order(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows in order of their words; and where in it a row has the word of the one before."""
    order = np.argsort(words)
    ordered = words[order]
    return order, np.flatnonzero(ordered[1:] == ordered[:-1]) + 1


def _mixed_words(codes: Codes, check: Callable[[], None]) -> np.ndarray:
    """A number for each row, the same for equal ones, and nearly always another for others."""
    words = np.zeros(codes.rows, dtype=np.uint64)
    last = 0
    for block in codes.blocks:
        for start in range(0, block.rows, MIXED_AT_ONCE):
            check()
            rows = slice(start, start + MIXED_AT_ONCE)
            own = words[last:][: block.rows][rows]
            for column in block.columns.values():
                own *= MIXER
                own += column[rows]
        last += block.rows
    return words


def _are_equal(codes: Codes, left: np.ndarray, right: np.ndarray, check: Callable[[], None]) -> bool:
    """Whether each of these rows is equal to its counterpart."""
    return all(np.array_equal(line[left], line[right]) for line in _whole_columns(codes, check))


def _exact_words(codes: Codes, check: Callable[[], None]) -> np.ndarray:
    """A number for each row, the same for equal ones, and another for others."""
    lines = list(_whole_columns(codes, check))
    return packed_words(lines, [int(line.max()) + 1 for line in lines])


def _whole_columns(codes: Codes, check: Callable[[], None]) -> Iterator[np.ndarray]:
    """Yields the codes of each column, of all rows."""
    for name in codes.blocks[0].columns:
        check()
        yield np.concatenate([block.columns[name] for block in codes.blocks])


def shards_of(coins: np.ndarray, key: int, count: int) -> np.ndarray:
    """Which of ``count`` shards the rows with these coins are in, shape (rows,)."""
    # The upper half u of a hash is a number below 2^32, and u * count >> 32 says in which of
    # `count` equal stretches it lies: with three shards, u = 2^31 is in the middle one, 3 * 2^31
    # >> 32 = 1.
    upper = TextDigests(b"", [(2**64 - 1, f":{key}".encode())], len(coins))([coins], _go_on) >> np.uint64(32)
    return (upper * np.uint64(count) >> np.uint64(32)).astype(smallest(count))


def _go_on() -> None:
    """Ends nothing."""

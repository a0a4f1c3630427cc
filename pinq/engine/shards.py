# SPDX-License-Identifier: Apache-2.0
"""Random disjoint shards: a keyed draw for each row, equal in all sessions.

Privacy:
    A row's coin is a keyed hash of its codes and of its number among equal rows. Adding a row adds
    one (row, number) pair and changes no other, so coins are a stability-1 map of the table.
    Held by: tests/contract/test_every_engines_rows.py.

A ledger outlives library versions, so no library's hash is used. The length of the ledger's salt decides between two
hashes. With ``SALT_BYTES``, each of a row's codes is multiplied by a word of 64 bits that is derived from the salt. The
sum is mixed by the last step of SplitMix64, so that each bit of the coin depends on all bits of the sum. Older ledgers
have a shorter salt: coins are MD5 of decimal text, which takes ten times as long for a coin and two hundred times for a
shard.

References:
    Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators".
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import duckdb
import numpy as np
import pyarrow as pa

from pinq.engine.codes import BLOCK_ROWS, Codes, ShardSource, smallest
from pinq.engine.counting import packed_words, run_starts
from pinq.engine.tables import go_on
from pinq.language.specs import SALT_BYTES, Axis
from pinq.public.schema import ENTRY_BYTES, Kept

KEPT_SHARDS = 8


def contents_of(codes: Codes, salt: bytes) -> str:
    """A keyed digest of a table's rows in any order; for the provider alone."""
    # Each coin hashes a row and its number among equal rows, so equal rows do not cancel in the sum.
    return keyed(f"{codes.rows} {coins_of(codes, salt).sum(dtype=np.uint64)}", salt)


def contents_by(codes: Codes, axis: Axis, salt: bytes) -> list[str]:
    """A keyed digest of the rows, in any order, of each part of an axis; for the provider alone."""
    coins = coins_of(codes, salt)
    part_of = np.concatenate([axis.parts_of(block.columns[axis.column]) for block in codes.blocks] or [coins])
    by_part = [coins[part_of == part] for part in range(axis.size)]
    return [keyed(f"{len(part)} {part.sum(dtype=np.uint64)}", salt) for part in by_part]


def keyed(text: str, salt: bytes) -> str:
    """A keyed digest of a text."""
    return hashlib.blake2b(text.encode(), key=salt, digest_size=16).hexdigest()


class ShardColumns:
    """The shards of an encoded table's rows, by key and count; the latest columns are kept.

    Coins are drawn for the first request.
    """

    def __init__(self, codes: Codes, salt: bytes) -> None:
        self._codes, self._salt = codes, salt
        self._coins: np.ndarray | None = None
        self._tossing, self._kept = threading.Lock(), Kept(KEPT_SHARDS * ENTRY_BYTES)

    def columns(
        self, sources: Iterable[ShardSource], check: Callable[[], None] = go_on
    ) -> dict[ShardSource, np.ndarray]:
        """Each row's shard for each of these keys and counts, shape (rows,).

        ``check`` is called before each block of rows.
        """
        columns = {source: self._kept.get(source) for source in sources}
        for source in [source for source, shards in columns.items() if shards is None]:
            columns[source] = self._column(source, check)
            self._kept.put(source, columns[source], 0)  # of size 0: at most KEPT_SHARDS entries fit
        return columns

    def _column(self, source: ShardSource, check: Callable[[], None]) -> np.ndarray:
        with self._tossing:
            if self._coins is None:
                self._coins = coins_of(self._codes, self._salt, check)
            coins = self._coins
        _, key, count = source
        shards = np.empty(len(coins), dtype=smallest(count))
        for start in range(0, len(coins), BLOCK_ROWS):
            check()
            rows = slice(start, start + BLOCK_ROWS)
            shards[rows] = shards_of(coins[rows], self._salt, key, count)
        return shards


def coins_of(codes: Codes, salt: bytes, check: Callable[[], None] = go_on) -> np.ndarray:
    """The coin of each row, 64 bits; the rows must include all rows that are equal to any of them."""
    if not codes.rows:
        return np.zeros(0, dtype=np.uint64)
    codes.require()
    names = list(codes.blocks[0].columns)
    # Codes (3, 0), (5, 1) and (3, 0) are the words 6, 11 and 6. Sorted, 6 6 11, runs begin at 0 and 2, so
    # the numbers among equal rows are 1, 2 and 1.
    words = packed_words(codes.rows, _whole_columns(codes, check))
    order = np.argsort(words)
    starts = run_starts(words[order])
    nth = np.empty(codes.rows, dtype=np.uint32)
    nth[order] = 1 + np.arange(codes.rows) - np.repeat(starts, np.diff(starts, append=codes.rows))
    coins, ends = [], np.cumsum([block.rows for block in codes.blocks])
    for block, block_nth in zip(codes.blocks, np.split(nth, ends[:-1]), strict=True):
        check()
        coins.append(_coins(salt, [block.columns[name] for name in names], block_nth))
    return np.concatenate(coins)


def _whole_columns(codes: Codes, check: Callable[[], None]) -> Iterator[tuple[np.ndarray, int]]:
    """Yields each column's codes over all blocks, and a number that is larger than all of them."""
    for name in codes.blocks[0].columns:
        check()
        line = np.concatenate([block.columns[name] for block in codes.blocks])
        yield line, int(line.max()) + 1


def shards_of(coins: np.ndarray, salt: bytes, key: int, count: int) -> np.ndarray:
    """The shards, out of ``count``, of rows with these coins of a salt, shape (rows,)."""
    # The upper half u of a hash is below 2^32, and u * count >> 32 is the number of its shard among
    # `count` equal intervals: with three shards, u = 2^31 is in the middle one, 3 * 2^31 >> 32 = 1.
    if len(salt) == SALT_BYTES:
        hashes = _mixed(coins ^ _words(f"{salt.hex()}:{key}", 1))
    else:
        hashes = _hashes(f"coin || ':{key}'", {"coin": coins})
    return ((hashes >> np.uint64(32)) * np.uint64(count) >> np.uint64(32)).astype(smallest(count))


def _coins(salt: bytes, columns: Sequence[np.ndarray], nth: np.ndarray) -> np.ndarray:
    """The coins of some rows, from their codes and their numbers among equal rows."""
    if len(salt) != SALT_BYTES:
        # For the second of equal rows (3, 0) it hashes <salt>:3,0#2. A chain of || would copy each prefix again.
        codes = {f"n{number}": column for number, column in enumerate(columns)}
        return _hashes(f"concat('{salt.hex()}:', concat_ws(',', {', '.join(codes)}), '#', nth)", {**codes, "nth": nth})
    # With words 5, 7 and 9: 3 * 5 + 0 * 7 + 2 * 9.
    total = np.zeros(len(nth), dtype=np.uint64)
    for column, word in zip([*columns, nth], _words(salt.hex(), len(columns) + 1), strict=True):
        total += np.multiply(column, word, dtype=np.uint64)
    return _mixed(total)


def _words(text: str, count: int) -> np.ndarray:
    return np.frombuffer(hashlib.shake_256(text.encode()).digest(8 * count), dtype="<u8")


def _mixed(words: np.ndarray) -> np.ndarray:
    """Mixes the bits of each word; overwrites the array."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words ^= words >> np.uint64(shift)
        words *= np.uint64(factor)
    return words ^ (words >> np.uint64(31))


def _hashes(text: str, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """The last eight bytes of the MD5 hash of a text in SQL, with a row's numbers in it, shape (rows,)."""
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        connection.register("numbers", pa.table(dict(columns)))
        hashed = connection.execute(f"SELECT md5_number_lower({text}) AS hash FROM numbers")
        return np.asarray(hashed.fetchnumpy()["hash"])

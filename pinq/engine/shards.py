# SPDX-License-Identifier: Apache-2.0
"""Random disjoint shards: a keyed coin for each row, steady across sessions.

Privacy:
    A row's coin is a keyed hash of its codes and of its number among equal rows. Adding a row adds
    one (row, number) pair and changes no other, so coins are a stability-1 map of the table.
    Held by: tests/contract/test_every_engine.py.

The ledger outlives versions of every library, so coins are made by MD5 of decimal text, which means
the same everywhere: a hash that a library calls its own need not.
"""

from __future__ import annotations

import threading

import duckdb
import numpy as np
import pyarrow as pa

from pinq.engine.codes import Codes, smallest

__all__ = ["Coins", "coins_of", "shards_of"]


class Coins:
    """The coins of an encoded table, made when the first of them is asked for.

    Args:
        codes: The table.
        salt: Keys the coins; the same salt gives the same coins.
    """

    def __init__(self, codes: Codes, salt: bytes) -> None:
        self._codes, self._salt = codes, salt
        self._lock = threading.Lock()
        self._coins: np.ndarray | None = None

    def shards(self, key: int, count: int) -> np.ndarray:
        """Which of ``count`` shards each row is in, shape (rows,)."""
        with self._lock:
            if self._coins is None:
                self._coins = coins_of(self._codes, self._salt)
        return shards_of(self._coins, key, count)


def coins_of(codes: Codes, salt: bytes) -> np.ndarray:
    """The coin of each row, 64 bits. All rows that are equal to one of them must be there."""
    if not codes.rows:
        return np.zeros(0, dtype=np.uint64)
    names = [f"c{number}" for number in range(len(codes.blocks[0].columns))]
    numbers, batches = np.arange(codes.rows), []
    for block in codes.blocks:
        arrays = [pa.array(column) for column in block.columns.values()]
        batches.append(pa.RecordBatch.from_arrays([*arrays, pa.array(numbers[: block.rows])], [*names, "number"]))
        numbers = numbers[block.rows :]
    listed, text = ", ".join(names), " || ',' || ".join(names)
    nth = f"row_number() OVER (PARTITION BY {listed})"
    coin = f"md5_number_lower('{salt.hex()}' || ':' || {text} || '#' || {nth})"
    return _in_order(pa.Table.from_batches(batches), f"SELECT number, {coin} FROM source")


def shards_of(coins: np.ndarray, key: int, count: int) -> np.ndarray:
    """Which of ``count`` shards the rows with these coins are in, shape (rows,)."""
    face = f"((md5_number_lower(coin || ':{key}') >> 32) * {count} >> 32)"
    table = pa.table({"coin": pa.array(coins), "number": pa.array(np.arange(len(coins)))})
    return _in_order(table, f"SELECT number, {face}::UINTEGER FROM source").astype(smallest(count))


def _in_order(source: pa.Table, query: str) -> np.ndarray:
    """Returns a query's second column in the order of its first, the rows' numbers."""
    with duckdb.connect(config={"enable_external_access": "false"}) as connection:
        connection.register("source", source)
        number, values = map(np.ma.getdata, connection.execute(query).fetchnumpy().values())
    ordered = np.empty(len(values), dtype=values.dtype)
    ordered[number] = values
    return ordered

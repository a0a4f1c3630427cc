# SPDX-License-Identifier: Apache-2.0
"""A row's coin and shard are MD5 of decimal text, as any library computes it."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable

import numpy as np
import pytest

from pinq.engine import shards
from pinq.engine.codes import Codes, RowBlock
from pinq.public.policy import Policy


@pytest.mark.parametrize(("key", "count"), [(0, 2), (7, 100), (2**63 - 1, 1000), (2**64 - 1, 3)])
def test_shards_are_what_a_library_says(key: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Coins of one digit and of twenty, some hashed at a time."""
    monkeypatch.setattr(shards, "THREAD_ROWS", 50)
    random = np.random.default_rng(3)
    short = [0, 9, 10, 99, 100, 2**32, 2**63, 2**64 - 1]
    coins = np.concatenate([np.array(short, dtype=np.uint64), random.integers(0, 2**64, 300, dtype=np.uint64)])
    expected = [shard_of(coin, key, count) for coin in coins.tolist()]
    assert shards.shards_of(coins, key, count).tolist() == expected
    assert set(expected) <= set(range(count))


def shard_of(coin: int, key: int, count: int) -> int:
    """The upper half of the hash's last eight bytes, as a share of the shards."""
    digest = hashlib.md5(f"{coin}:{key}".encode(), usedforsecurity=False).digest()
    return (int.from_bytes(digest[8:], "little") >> 32) * count >> 32


@pytest.mark.parametrize("columns", [1, 3, 40])
@pytest.mark.parametrize("salt", [b"", bytes(range(16)), bytes(range(100, 132))])
def test_coins_are_what_a_library_says(columns: int, salt: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of one block of MD5 and of several; equal rows are numbered."""
    monkeypatch.setattr(shards, "THREAD_ROWS", 16)
    random = np.random.default_rng(columns)
    kinds = [(np.uint8, 3), (np.uint16, 60_000), (np.uint32, 1_500_001)]
    table = [random.integers(0, size, 90).astype(kind) // (columns + 1) for kind, size in (kinds * columns)[:columns]]
    rows: list[dict[Hashable, np.ndarray]] = [
        {str(name): column[part] for name, column in enumerate(table)} for part in (slice(0, 50), slice(50, 90))
    ]
    schema = Policy(
        dataset="d",
        cap=1,
        max_rows=1,
        columns={str(name): {"type": "categorical", "values": [0, 1]} for name in range(columns)},
    ).schema_
    coins = shards.coins_of(Codes([RowBlock(block, len(block["0"])) for block in rows], schema), salt)
    seen: dict[str, int] = {}
    for row, coin in zip(zip(*(column.tolist() for column in table), strict=True), coins.tolist(), strict=True):
        codes = ",".join(map(str, row))
        seen[codes] = seen.get(codes, 0) + 1
        # Which of equal rows is which, nothing tells: here it is their order, or any other.
        assert coin in {coin_of(f"{salt.hex()}:{codes}#{nth}") for nth in range(1, 91)}
    assert sorted(coins.tolist()) == sorted(
        coin_of(f"{salt.hex()}:{codes}#{nth}") for codes, count in seen.items() for nth in range(1, count + 1)
    )


def coin_of(text: str) -> int:
    """The last eight bytes of the hash."""
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[8:], "little")

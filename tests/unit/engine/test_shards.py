# SPDX-License-Identifier: Apache-2.0
"""A row's shard follows from MD5 of its coin and a key, as any library computes it."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from pinq.engine import shards


@pytest.mark.parametrize(("key", "count"), [(0, 2), (7, 100), (2**63 - 1, 1000), (2**64 - 1, 3)])
def test_shards_are_what_a_library_says(key: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Coins of one digit and of twenty, some hashed at a time."""
    monkeypatch.setattr(shards, "HASHED_AT_ONCE", 50)
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

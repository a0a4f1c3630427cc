# SPDX-License-Identifier: Apache-2.0
"""A row's coin and shard by both hashes: as any library, or plain integers, compute them, and how they are spread."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable

import numpy as np
import pytest

from pinq.engine import shards
from pinq.engine.codes import Codes, RowBlock
from pinq.policy.policy import Policy
from tests.support.laws.laws import law_is


@pytest.mark.parametrize(("key", "count"), [(0, 2), (7, 100), (2**63 - 1, 1000), (2**64 - 1, 3)])
def test_shards_are_what_a_library_says(key: int, count: int) -> None:
    """Coins of one digit and of twenty."""
    random = np.random.default_rng(3)
    short = [0, 9, 10, 99, 100, 2**32, 2**63, 2**64 - 1]
    coins = np.concatenate([np.array(short, dtype=np.uint64), random.integers(0, 2**64, 300, dtype=np.uint64)])
    expected = [shard_of(coin, key, count) for coin in coins.tolist()]
    assert shards.shards_of(coins, b"salt", key, count).tolist() == expected
    assert set(expected) <= set(range(count))


def shard_of(coin: int, key: int, count: int) -> int:
    """The upper half of the hash's last eight bytes, as a share of the shards."""
    digest = hashlib.md5(f"{coin}:{key}".encode(), usedforsecurity=False).digest()
    return (int.from_bytes(digest[8:], "little") >> 32) * count >> 32


@pytest.mark.parametrize("columns", [1, 3, 40])
@pytest.mark.parametrize("salt", [b"", bytes(range(16)), bytes(range(100, 131))])
def test_coins_are_what_a_library_says(columns: int, salt: bytes) -> None:
    """Texts of one block of MD5 and of several; equal rows are numbered."""
    random = np.random.default_rng(columns)
    kinds = [(np.uint8, 3), (np.uint16, 60_000), (np.uint32, 1_500_001)]
    table = [random.integers(0, size, 90).astype(kind) // (columns + 1) for kind, size in (kinds * columns)[:columns]]
    rows: list[dict[Hashable, np.ndarray]] = [
        {str(name): column[part] for name, column in enumerate(table)} for part in (slice(0, 50), slice(50, 90))
    ]
    coins = coins_of_rows(rows, salt)
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


def coins_of_rows(blocks: list[dict[Hashable, np.ndarray]], salt: bytes) -> np.ndarray:
    """The coins of rows, some in each block."""
    declared = {str(name): {"type": "categorical", "values": [0, 1]} for name in blocks[0]}
    schema = Policy(dataset="d", cap=1, max_rows=1, columns=declared).schema_
    return shards.coins_of(Codes([RowBlock(own, len(next(iter(own.values())))) for own in blocks], schema), salt)


SALT = bytes(range(7, 39))


def mixed(word: int) -> int:
    """The last step of SplitMix64."""
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
    return word ^ (word >> 31)


def words(text: str, count: int) -> list[int]:
    """Words that follow from a text."""
    stream = hashlib.shake_256(text.encode()).digest(8 * count)
    return [int.from_bytes(stream[8 * place : 8 * place + 8], "little") for place in range(count)]


def test_mixing_is_what_its_authors_say() -> None:
    """The first numbers of SplitMix64 with seed 1234567, as many implementations list them."""
    states = np.array([1234567 + step * 0x9E3779B97F4A7C15 & 2**64 - 1 for step in (1, 2, 3)], dtype=np.uint64)
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert shards._mixed(states).tolist() == published


def test_coins_and_shards_of_words_are_what_plain_integers_say() -> None:
    """Blocks of several widths; equal rows are numbered; codes of one bit and of 32."""
    random = np.random.default_rng(5)
    kinds = ((np.uint8, 2), (np.uint16, 3), (np.uint32, 2**32 - 1))
    blocks: list[dict[Hashable, np.ndarray]] = [
        {str(place): (random.integers(0, 2, 40) * (top - 1)).astype(kind) for place, (kind, top) in enumerate(kinds)}
        for _ in range(2)
    ]
    coins = coins_of_rows(blocks, SALT)
    rows = [row for block in blocks for row in zip(*(column.tolist() for column in block.values()), strict=True)]
    factors, seen, expected = words(SALT.hex(), 4), dict[tuple[int, ...], int](), []
    for row in rows:
        seen[row] = seen.get(row, 0) + 1
        expected.append((row, mixed(sum(a * b for a, b in zip((*row, seen[row]), factors, strict=True)) % 2**64)))
    assert sorted(zip(rows, coins.tolist(), strict=True)) == sorted(expected)
    (word,) = words(f"{SALT.hex()}:9", 1)
    assert shards.shards_of(coins, SALT, 9, 5).tolist() == [
        (mixed(coin ^ word) >> 32) * 5 >> 32 for coin in coins.tolist()
    ]


TABLES: dict[str, list[np.ndarray]] = {
    "numbers in order": [np.arange(60_000, dtype=np.uint32)],
    "equal rows": [np.zeros(60_000, dtype=np.uint8)],
    "all pairs": [np.arange(60_000, dtype=np.uint16) // 300, np.arange(60_000, dtype=np.uint16) % 300],
    "far apart": [np.arange(60_000, dtype=np.uint32) << 16],
    "forty columns": [np.arange(60_000, dtype=np.uint32) >> place & 1 for place in range(40)],
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("salt", [SALT, bytes(32), b"salt"], ids=["words", "zeros", "MD5"])
def test_draws_are_even_and_independent(table: str, salt: bytes) -> None:
    """Of a row for one key and another, of neighbours, and of one bit of the coin and the next: all pairs are as likely."""
    coins = coins_of_rows([{str(place): column for place, column in enumerate(TABLES[table])}], salt)
    assert len(np.unique(coins)) == len(coins)
    draws = [shards.shards_of(coins, salt, key, 7).astype(np.intp) for key in (0, 1, 2**62)]
    even = np.full(49, 1 / 49)
    for one in draws:
        law_is(7 * one[:-1:2] + one[1::2], even)
        law_is(7 * one[:30_000] + one[30_000:], even)
    law_is(7 * draws[0] + draws[1], even)
    law_is(7 * draws[1] + draws[2], even)
    bits = (coins >> np.arange(64, dtype=np.uint64)[:, None] & np.uint64(1)).astype(np.intp)
    for one, other in zip(bits, np.roll(bits, 1, axis=0), strict=True):
        law_is(2 * one + other, np.full(4, 1 / 4))


def test_sizes_of_shards_are_binomial() -> None:
    """Of many keys: the sizes of a shard are spread as independent draws make them, neither more evenly nor less."""
    coins = coins_of_rows([{"0": np.arange(2000, dtype=np.uint32)}], SALT)
    sizes = np.array([np.count_nonzero(shards.shards_of(coins, SALT, key, 4) == 1) for key in range(4000)])
    assert abs(sizes.mean() - 500) < 5 * (375 / 4000) ** 0.5
    assert abs(sizes.var() / 375 - 1) < 5 * (2 / 4000) ** 0.5

# SPDX-License-Identifier: Apache-2.0
"""``sides_of`` draws the bipartitions that a family of groupings stands for."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np

__all__ = ["MAX_GROUPINGS", "sides_of"]

MAX_GROUPINGS = 4096
KEPT_VALUES = 64  # of no more values bipartitions are kept, 256 kB of them a column and seed


def sides_of(column: str, seed: int, count: int) -> np.ndarray:
    """Draws bipartitions of ``count`` values, as rows of truth values.

    Value i is in the first group where bit i is set.
    """
    return _kept(column, seed, count) if count <= KEPT_VALUES else _sides(column, seed, count)


@lru_cache(maxsize=64)
def _kept(column: str, seed: int, count: int) -> np.ndarray:
    return _sides(column, seed, count)


def _sides(column: str, seed: int, count: int) -> np.ndarray:
    if count < 2:
        return np.zeros((0, count), dtype=bool)
    # The last value is always in the second group, so that no bipartition appears twice.
    if 2 ** (count - 1) - 1 <= MAX_GROUPINGS:
        # Three values: the numbers 1, 2 and 3 are the groups {a}, {b} and {a, b}.
        octets = np.arange(1, 2 ** (count - 1), dtype="<u2").view(np.uint8).reshape(-1, 2)[:, : (count + 7) // 8]
    else:
        octets = _drawn(column, seed, count)
    sides = np.unpackbits(octets, axis=1, count=count, bitorder="little").astype(bool)
    sides.flags.writeable = False
    return sides


def _drawn(column: str, seed: int, count: int) -> np.ndarray:
    """Draws ``MAX_GROUPINGS`` different bipartitions, as bits of octets, lowest first.

    Draw i is the hash of column, seed and i, a number of which the lowest ``count - 1`` bits count.
    """
    start, length = f"{column}\x00{seed}\x00".encode(), (count + 7) // 8
    masks, drawn = np.zeros((0, length), dtype=np.uint8), 0
    while len(masks) < MAX_GROUPINGS:
        more = 64 + (MAX_GROUPINGS - len(masks)) * 9 // 8  # some are 0, or there already
        hashes = b"".join(
            hashlib.shake_256(b"%s%d" % (start, number)).digest(length) for number in range(drawn, drawn + more)
        )
        new = np.frombuffer(hashes, dtype=np.uint8).reshape(-1, length)[:, ::-1].copy()
        # Of 10 values 9 bits count: all of the first octet, the lowest of the second.
        new[:, -1] &= 2 ** ((count - 1) % 8) - 1
        every = np.concatenate([masks, new[new.any(axis=1)]])
        # Draws 5, 3, 5, 9: the third is there already; those kept stay in the order drawn, so that
        # more draws change none.
        _, first = np.unique(_numbers(every), return_index=True)
        masks, drawn = every[np.sort(first)], drawn + more
    return masks[:MAX_GROUPINGS]


def _numbers(octets: np.ndarray) -> np.ndarray:
    """Returns a value for each row of octets, equal where rows are; up to eight make an integer."""
    count, length = octets.shape
    if length > 8:
        return octets.view(f"V{length}").ravel()
    padded = np.zeros((count, 8), dtype=np.uint8)
    padded[:, :length] = octets
    return padded.view(np.uint64).ravel()

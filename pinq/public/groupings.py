# SPDX-License-Identifier: Apache-2.0
"""``sides_of`` draws the bipartitions that a family of groupings stands for."""

from __future__ import annotations

import hashlib
import itertools
from functools import lru_cache

import numpy as np

__all__ = ["MAX_GROUPINGS", "sides_of"]

MAX_GROUPINGS = 4096


@lru_cache(maxsize=256)
def sides_of(column: str, seed: int, count: int) -> np.ndarray:
    """Draws bipartitions of ``count`` values, as rows of truth values.

    Value i is in the first group where bit i is set.
    """
    if count < 2:
        return np.zeros((0, count), dtype=bool)
    # The last value is always in the second group, so that no bipartition appears twice.
    every, length = 2 ** (count - 1), (count + 7) // 8
    masks: dict[int, None] = {}
    if every - 1 <= MAX_GROUPINGS:
        masks = dict.fromkeys(range(1, every))
    draws = itertools.count()
    while len(masks) < min(MAX_GROUPINGS, every - 1):
        text = f"{column}\x00{seed}\x00{next(draws)}".encode()
        mask = int.from_bytes(hashlib.shake_256(text).digest(length), "big") % every
        if mask:
            masks[mask] = None
    octets = np.frombuffer(b"".join(mask.to_bytes(length, "little") for mask in masks), dtype=np.uint8).reshape(
        -1, length
    )
    sides = np.unpackbits(octets, axis=1, count=count, bitorder="little").astype(bool)
    sides.flags.writeable = False
    return sides

# SPDX-License-Identifier: Apache-2.0
"""Random demands on a tree of partitions: possible ones, and impossible ones with overlapping parts."""

from __future__ import annotations

import hashlib
import random

from pinq.ledger.composition import Demand

Path = tuple[tuple[int, int], ...]
"""Steps from the whole table, each a partition and one of its parts."""


def _key(*names: object) -> bytes:
    return hashlib.sha256(repr(names).encode()).digest()[:16]


def path(draw: random.Random) -> Path:
    """One part, of depth 0 to 3."""
    return tuple((draw.randint(1, 2), draw.randint(1, 3)) for _ in range(draw.choice([0, 1, 1, 2, 2, 3])))


def demand(draw: random.Random) -> Demand:
    """The demand of one to four nodes: of the node itself, or of all parts of a partition of it."""
    chosen = [path(draw) for _ in range(draw.choice([1, 1, 1, 2, 3, 4]))]
    above = sorted(
        {each[:depth] for each in chosen for depth in range(1, len(each) + 1)}, key=lambda each: (len(each), each)
    )
    number = {(): 0} | {each: position for position, each in enumerate(above, start=1)}
    nodes = tuple((number[each[:-1]], _key("split", each[-1][0]), _key("part", each)) for each in above)
    alike = [None if draw.random() < 0.7 else _key("split", draw.randint(1, 3)) for _ in chosen]
    return Demand(nodes, tuple((number[each], split) for each, split in zip(chosen, alike, strict=True)))

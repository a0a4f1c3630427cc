# SPDX-License-Identifier: Apache-2.0
"""``exp_mech`` by ``EnoughRows``: how far down a grown tree its parts are large enough.

It is charged once, however deep the tree. PrivTree's test (Zhang, Xiao & Xie 2016), of a whole tree
of partitions at once: the tree is public by now, a part that is split stays split while its rows,
less ``least``, less a penalty for each split above it, and noise are together above 0.

Example: with ``least`` 100 and a penalty of 20, a tree of 300 rows has 300 - 100 = 200 to spare and
its child of 110 rows 110 - 100 - 20 = -10; what is below -20 counts as -20.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from pinq.curator.mechanisms import choose
from pinq.curator.prepared import Counted, Noise, PreparedQuery, Released, about
from pinq.errors import QueryError
from pinq.public.parts import Block, Part, PartSet
from pinq.public.queries import Stop
from pinq.public.schema import Schema
from pinq.public.scores import PATH_LOSS, EnoughRows

__all__ = ["beginnings", "penalty", "prepare", "splits_kept"]

MAX_LEAVES = 2**19
HALVES = Fraction(693148, 1000000)  # ln 2, rounded up


def prepare(question: Stop, parts: PartSet, schema: Schema) -> PreparedQuery:
    """Prepares the test of whole trees.

    It is charged where they begin, for the answer depends on all of their rows. Its privacy is that
    of ``splits_kept``.
    """
    score = question.score
    score.check(schema)
    if len(parts) > MAX_LEAVES:
        raise QueryError(f"trees of {len(parts):,} leaves are too large; at most {MAX_LEAVES:,} are possible.")
    if any(block.part.depth + (block.partition is not None) < score.above for block in parts.blocks):
        raise QueryError(
            f"the trees are said to begin {score.above} splits below the whole table, and a part lies above that."
        )

    def noise(epsilon: Fraction) -> Noise:
        within = math.ceil(PATH_LOSS / epsilon * Fraction(math.log(20)))
        return Noise(
            f"a part stays split from about {score.least:,} rows on, ±{within:,} in 95 % of cases, "
            f"and {penalty(epsilon):,} more for each split of its tree above it"
        )

    def release(slices: Iterable[Counted], epsilon: Fraction) -> Released:
        counts = [count for counted in slices for count in counted.array().tolist()]
        return Released(splits_kept(parts, counts, score, epsilon))

    what = about(f"exp_mech by {score.kind}", parts)
    return PreparedQuery(parts=parts, about=what, noise=noise, release=release, charged=beginnings(parts, score.above))


def penalty(epsilon: Fraction) -> int:
    """Rows by which each split above a part raises what it needs.

    The least at which what a test can lose halves from one to the next.
    """
    # Rounded up, as // rounds down: 4.2 becomes 5.
    return -int(-HALVES * PATH_LOSS / epsilon // 1)


def beginnings(parts: PartSet, above: int) -> PartSet:
    """Finds the parts where the trees begin: on their rows the answer depends, so they pay."""
    # Trees that begin one split down: from (women, nurses) and (women, clerks) the walk up ends at
    # women, which pay once.
    roots: dict[bytes, Part] = {}
    for block in parts.blocks:
        under = [block.part] if block.part.depth >= above else [block.at(index) for index in range(len(block))]
        for part in under:
            while part.depth > above and part.parent is not None:
                part = part.parent
            roots[part.key] = part
    return PartSet([Block(part) for part in roots.values()])


def splits_kept(parts: PartSet, counts: Sequence[int], score: EnoughRows, epsilon: Fraction) -> list[int]:
    """How many splits of its path, counted from where the tree begins, are left above each part.

    Args:
        parts: The leaves of trees, disjoint: so every part above them is split by one partition
            only.
        counts: The rows of each, exact. A part above them has the rows of those below it.
        score: What is enough, and where the trees begin.
        epsilon: Privacy loss of the release for one row.

    Privacy:
        Adjacency: add or remove one row. Claim: epsilon-DP in each of ``beginnings``, whatever the
        depth. Why, step by step (privacy.md 3.4):

        1. Permute-and-flip between "split", worth s, and "stop", worth 0, splits with probability
           F(s), that of s + Laplace(1 / eta) > 0: F(s) = 1 - exp(-eta s) / 2, and exp(eta s) / 2
           below 0.
        2. Only the tests down to the first "stop" of a path are made. A row is in one leaf at most,
           so it moves the tests of one path only, each s upwards by 1 or not at all.
        3. A "stop" becomes less likely by a factor of at most exp(eta), and it is the last test of
           its path.
        4. A "split" becomes more likely by exp(g(s)), g(s) = ln F(s + 1) - ln F(s): at most eta,
           and falling in s.
        5. Rows never grow along a path and the penalty d does. So of the tests that the row can move
           (s >= -d, the floor) the last has s >= -d, the one before it s >= 0, then s >= d, 2d, ...
        6. For s >= 0, g(s) <= eta q / (2 - q) with q = exp(-eta s), and q <= 2^-k at s = k d.
        7. Together a path loses at most eta (1 + 1 + 1/3 + 1/7 + ...) < PATH_LOSS eta = epsilon.

        Exact: integers, fractions, OpenDP's sampler; its scale is rounded up. Held by:
        tests/privacy/test_stopping.py.

    References:
        Zhang, Xiao & Xie 2016, "PrivTree", sec. 3.
    """
    eta, step = epsilon / PATH_LOSS, penalty(epsilon)
    paths = [_split_above(part, score.above) for part in parts]
    rows = _rows_above(paths, counts)
    splits: dict[bytes, bool] = {}
    kept = []
    for path in paths:
        length = 0
        for key in path:
            if key not in splits:
                worth = max(-step, rows[key] - score.least - length * step)
                splits[key] = choose(np.array([worth, 0]), 1, eta) == 0
            if not splits[key]:
                break
            length += 1
        kept.append(length)
    return kept


def _rows_above(paths: Sequence[Sequence[bytes]], counts: Sequence[int]) -> dict[bytes, int]:
    """Adds up the rows of each part above some leaves; by key."""
    rows: dict[bytes, int] = {}
    for path, count in zip(paths, counts, strict=True):
        for key in path:
            rows[key] = rows.get(key, 0) + int(count)
    return rows


def _split_above(part: Part, above: int) -> list[bytes]:
    """Lists the keys of the parts that are split above a part, from where the tree begins."""
    keys = []
    while part.depth > above and part.parent is not None:
        part = part.parent
        keys.append(part.key)
    return keys[::-1]

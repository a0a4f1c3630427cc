# SPDX-License-Identifier: Apache-2.0
"""``AnyCross``: every combination of so many specs as one family of candidates, and the exact scores of its members.

35 columns have 5,984 triples beside a target, 60 have 32,509. As a family they are one candidate of a request however many they are, and all
members are scored from one listing of the table, each from a small table of its own that is counted and forgotten: memory follows the rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from pinq.errors import QueryError
from pinq.schema import Schema
from pinq.specs import Cross, Cuts, Spec, Values

__all__ = ["AnyCross", "member_scores"]

MAX_MEMBERS = 100_000
MAX_CELLS = 2**62
BLOCK = 2**18  # keys that are made at a time
DENSE_CELLS = 2**22  # a larger table is counted by sorting


@dataclass(frozen=True)
class AnyCross:
    """A family of candidates for ``exp_mech``: the joint parts of every ``size`` of the specs, mass one in all.

    ``AnyCross((Values("job"), Values("sex"), Cuts("age", (30,))), 2)`` is three candidates: job x sex, job x age and sex x age.

    Attributes:
        specs: ``Values`` and ``Cuts`` of different columns.
        size: How many of them make a candidate.
    """

    specs: tuple[Values | Cuts, ...]
    size: int
    kind: Literal["any_cross"] = field(default="any_cross", repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "specs", tuple(self.specs))
        if not all(isinstance(spec, (Values, Cuts)) for spec in self.specs):
            raise QueryError("AnyCross takes Values and Cuts. Nothing was spent.")
        columns = [spec.column for spec in self.specs]
        if len(set(columns)) != len(columns):
            raise QueryError(f"a column stands twice in an AnyCross of {', '.join(columns)}. Nothing was spent.")
        if isinstance(self.size, bool) or not isinstance(self.size, (int, np.integer)) or not 1 <= self.size <= len(columns):
            raise QueryError(f"`size` of AnyCross is {self.size!r}; it must be a whole number from 1 to {len(columns)}, its specs. Nothing was spent.")
        object.__setattr__(self, "size", int(self.size))
        if len(self) > MAX_MEMBERS:
            raise QueryError(f"there are {len(self):,} ways to take {self.size} of {len(columns)} specs; at most {MAX_MEMBERS:,} are possible. Nothing was spent.")

    def columns(self) -> set[str]:
        """The columns that its specs name."""
        return set().union(*(spec.columns() for spec in self.specs))

    def __len__(self) -> int:
        return math.comb(len(self.specs), self.size)

    @cached_property
    def _members(self) -> list[tuple[Values | Cuts, ...]]:
        return list(itertools.combinations(self.specs, self.size))

    def member(self, index: int) -> Spec:
        """Candidate ``index``, in the order of ``itertools.combinations``."""
        specs = self._members[index]
        return Cross(specs) if len(specs) > 1 else specs[0]

    def require_room(self, sizes: Sequence[int], classes: int) -> None:
        """``QueryError`` where the cells of some member cannot be numbered. ``sizes`` are the parts of each spec."""
        cells = math.prod(sorted(sizes)[-self.size :]) * classes
        if cells * len(sizes) > MAX_CELLS:
            raise QueryError(f"the largest {self.size} of {len(sizes)} specs have {cells:,} joint cells, more than can be numbered. Take a smaller `size`. Nothing was spent.")


def member_scores(codes: np.ndarray, target: np.ndarray, counts: np.ndarray, sizes: Sequence[int], classes: int, size: int, score: Any, schema: Schema) -> np.ndarray:
    """The exact score of every member of an ``AnyCross``.

    A score of classes is a sum over cells, and an empty cell adds nothing; so the tables of several members are counted side by side
    as one long table, and each member's score is the sum over its own stretch of it.

    Args:
        codes: The part of each listed row along each spec, shape (specs, rows).
        target: Its class, shape (rows,).
        counts: How often it occurs, shape (rows,).
        sizes: Parts of each spec.
        classes: Classes of the target.
        size: How many specs make a member.
        score: A score of classes; see ``pinq.scores``.
        schema: For the score.

    Returns:
        int64, shape (members,), in the order of ``itertools.combinations``.
    """
    if counts.sum() <= 2 * len(counts):  # counting a row twice is cheaper than weighing it
        codes, target, counts = np.repeat(codes, counts, axis=1), np.repeat(target, counts), np.ones(0, dtype=np.int64)
    last = codes * np.int64(classes) + target
    lengths = np.array(sizes, dtype=np.int64)
    step = max(1, BLOCK // max(1, codes.shape[1]))
    room = np.empty((min(step, len(lengths)), codes.shape[1]), dtype=np.int64)
    found: list[np.ndarray] = []
    for start, prefix, cells in _prefixes(codes, lengths, size):
        # Every member that continues this prefix by one more spec, some at a time.
        for low in range(start, len(lengths), step):
            block = slice(low, min(low + step, len(lengths)))
            keys = np.multiply(prefix, (lengths[block] * classes)[:, None], out=room[: block.stop - low])
            keys += last[block]
            found.append(_block(keys, cells * lengths[block], classes, counts, score, schema))
    return np.concatenate(found)


def _prefixes(codes: np.ndarray, sizes: np.ndarray, size: int, start: int = 0, cell: np.ndarray | None = None, cells: int = 1) -> Iterator[tuple[int, np.ndarray, int]]:
    """All choices of ``size - 1`` specs in lexicographic order: where the next spec may start, each row's joint cell, and how many cells there are."""
    if cell is None:
        cell = np.zeros(codes.shape[1], dtype=np.int64)
    if size == 1:
        yield start, cell, cells
        return
    for spec in range(start, len(sizes) - size + 1):
        joint, count = cell * sizes[spec] + codes[spec], cells * int(sizes[spec])
        if count > max(DENSE_CELLS, 2 * len(joint)):  # most of them are empty: number the others
            occupied, joint = np.unique(joint, return_inverse=True)
            count = max(1, len(occupied))
        yield from _prefixes(codes, sizes, size - 1, spec + 1, joint, count)


def _block(keys: np.ndarray, cells: np.ndarray, classes: int, counts: np.ndarray, score: Any, schema: Schema) -> np.ndarray:
    """The scores of several members.

    Args:
        keys: Each row's cell of each member times ``classes`` plus its class, shape (members, rows); overwritten.
        cells: Cells of each member.
        classes: Classes of the target.
        counts: As in ``member_scores``; empty where every row counts once.
        score: As in ``member_scores``.
        schema: As in ``member_scores``.
    """
    ends = np.cumsum(cells)
    keys += ((ends - cells) * classes)[:, None]
    flat, total, numbers = keys.ravel(), int(ends[-1]), None
    if total * classes > max(DENSE_CELLS, 2 * flat.size):  # most cells are empty: number the others
        cell, label = np.divmod(flat, classes)
        numbers, cell = np.unique(cell, return_inverse=True)
        flat, total = cell * classes + label, len(numbers)
    weights = np.tile(counts, len(cells)) if len(counts) else None
    table = np.bincount(flat, weights, total * classes).astype(np.int64, copy=False).reshape(-1, classes)
    if numbers is None:
        numbers = np.flatnonzero(table @ np.ones(classes, dtype=np.int64))
        table = table[numbers]
    summed = np.concatenate([[0], np.cumsum(score.of(table[:, None, :], schema))])
    return summed[np.searchsorted(numbers, ends)] - summed[np.searchsorted(numbers, ends - cells)]

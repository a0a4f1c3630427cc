# SPDX-License-Identifier: Apache-2.0
"""``Part`` and ``PartSet``: places in the tree of partitions below the whole table.

A ``PartSet`` is an ordered collection of pairwise disjoint parts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from pinq.errors import QueryError
from pinq.language.specs import MAX_AXES, MAX_PARTS, Axis, Calendar, Partition, Values, bind
from pinq.public.checks import brief, first_of
from pinq.public.schema import Cohorts, Numeric, Schema


class Part:
    """The whole table, or part ``index`` of a partition of its parent.

    Attributes:
        key: The identity of the place for the ledger, 16 bytes; equal keys mean the same rows of every
            table.
    """

    __slots__ = ("_by_column", "_spans_below", "depth", "index", "key", "parent", "partition")

    def __init__(self, parent: Part | None = None, partition: Partition | None = None, index: int = 0) -> None:
        self.parent, self.partition, self.index = parent, partition, index
        self._by_column: dict[str | None, list[tuple[Axis, int]]] | None = None
        self._spans_below: dict[str, tuple[int, int]] | None = None
        if parent is None or partition is None:
            self.key, self.depth = b"", 0
        else:
            self.key = hashlib.blake2b(parent.key + partition.key + index.to_bytes(4, "big"), digest_size=16).digest()
            self.depth = parent.depth + 1

    def steps(self) -> list[tuple[Partition, int]]:
        """The path down from the whole table."""
        steps, part = [], self
        while part.parent is not None and part.partition is not None:
            steps.append((part.partition, part.index))
            part = part.parent
        return steps[::-1]

    def splits_by(self, name: str) -> Sequence[tuple[Axis, int]]:
        """The path down along the axes of one column."""
        if self._by_column is None:
            self._by_column = {}
            for partition, index in self.steps():
                for axis, position in partition.positions(index):
                    self._by_column.setdefault(axis.column, []).append((axis, position))
        return self._by_column.get(name, ())

    def interval(self, name: str, column: Numeric) -> tuple[int, int]:
        """Returns the range [first, end) of a column's cells that the splits above leave.

        It is empty for a part of missing values.
        """
        first, end = self.span(name, column.codes)
        return min(first, column.cells), min(end, column.cells)

    def span(self, name: str, codes: int) -> tuple[int, int]:
        """Returns the range [first, end) of a column's codes that the splits above leave.

        Groups and weekdays may leave only some of these codes.
        """
        if self.parent is None or self.partition is None:
            return 0, codes
        low, high = self.parent._span_below(name, codes)
        for axis, position in self.partition.positions(self.index):
            if axis.column == name:
                first, end = axis.span(position, codes)
                low, high = max(low, first), min(high, end)
        return low, max(low, high)

    def _span_below(self, name: str, codes: int) -> tuple[int, int]:
        """The span of a split part; computed once, because a split may have a million parts."""
        if self._spans_below is None:
            self._spans_below = {}
        if name not in self._spans_below:
            self._spans_below[name] = self.span(name, codes)
        return self._spans_below[name]

    def values_left(self, name: str, codes: int) -> np.ndarray:
        """The codes of a column that the splits above leave to this part, shape (codes,)."""
        left = np.ones(codes, dtype=bool)
        for axis, position in self.splits_by(name):
            # Values a to d, split into (a, b) and (c, d), then (a) and (b, c, d): the first part of
            # the one and the second of the other leave b.
            left &= axis.parts_of(np.arange(codes)) == position
        return left

    def __str__(self) -> str:
        if not self.depth:
            return "the whole table"
        return ", ".join(partition.describe(index) for partition, index in self.steps())


@dataclass(frozen=True, eq=False)
class Block:
    """One part, or with ``partition`` all parts of a partition of it, in order."""

    part: Part
    partition: Partition | None = None

    def __len__(self) -> int:
        return 1 if self.partition is None else self.partition.size

    def edges(self, name: str, codes: int) -> np.ndarray:
        """The first code of each part along a column, and the end of the last."""
        edges = (0, codes) if self.partition is None else self.partition.axes[0].edges(codes)
        return np.clip(edges, *self.part.span(name, codes))

    def at(self, index: int) -> Part:
        return self.part if self.partition is None else Part(self.part, self.partition, index)


class PartSet:
    """An ordered collection of pairwise disjoint parts of one table, with a shape like an array's.

    Args:
        blocks: The parts, in order. Blocks keep a query about a million cells short.
        shape: The shape of answers; flat by default.
    """

    def __init__(self, blocks: Sequence[Block], shape: tuple[int, ...] | None = None) -> None:
        self.blocks = tuple(blocks)
        self.size = sum(map(len, self.blocks))
        self.shape = (self.size,) if shape is None else shape
        if len(self.shape) > MAX_AXES:
            raise QueryError(f"this makes answers of {len(self.shape)} axes; at most {MAX_AXES} are possible.")
        if self.size > MAX_PARTS:
            raise QueryError(f"this makes {self.size:,} parts; at most {MAX_PARTS:,} are possible.")

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Part]:
        for block in self.blocks:
            for index in range(len(block)):
                yield block.at(index)

    def at(self, index: int) -> Part:
        if len(self.blocks) == 1:
            return self.blocks[0].at(index)
        # Blocks of 1 and 3 parts start at 0 and 1: part 2 is number 1 of the second block.
        block = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self.blocks[block].at(index - int(self._starts[block]))

    @cached_property
    def _starts(self) -> np.ndarray:
        """The position of each block's first part, and the number of parts."""
        return np.cumsum([0, *map(len, self.blocks)])

    @cached_property
    def ancestors(self) -> dict[bytes, Part]:
        """Every part from below the whole table down to a block, by key, parents first."""
        ancestors: dict[bytes, Part] = {}
        for block in self.blocks:
            # Each path is followed upwards to the first part that is already listed, because all
            # parts above it are listed too.
            path, part = [], block.part
            while part.parent is not None and part.key not in ancestors:
                path.append(part)
                part = part.parent
            ancestors |= {part.key: part for part in reversed(path)}
        return ancestors

    @cached_property
    def partitions(self) -> set[Partition]:
        """The partitions on the paths down to the parts, with the last."""
        ends = chain[Part | Block](self.ancestors.values(), self.blocks)
        return {end.partition for end in ends if end.partition is not None}

    def take(self, chosen: np.ndarray) -> PartSet:
        """Picks parts by flat positions; a complete block in its order stays a block."""
        chosen = np.asarray(chosen, dtype=np.int64)
        if len(np.unique(chosen)) != len(chosen):
            raise QueryError("the same part is chosen twice.")
        owner = np.searchsorted(self._starts, chosen, side="right") - 1
        blocks: list[Block] = []
        cursor = 0
        while cursor < len(chosen):
            number = int(owner[cursor])
            block, start = self.blocks[number], int(self._starts[number])
            whole = chosen[cursor : cursor + len(block)]
            if (
                len(whole) == len(block)
                and whole[0] == start
                and np.array_equal(whole, np.arange(start, start + len(block)))
            ):
                blocks.append(block)
                cursor += len(block)
            else:
                blocks.append(Block(block.at(int(chosen[cursor]) - start)))
                cursor += 1
        return PartSet(blocks)

    def split(self, partition: Partition) -> PartSet:
        """Splits each part by one partition; the shape grows."""
        return PartSet([Block(part, partition) for part in self], self.shape + partition.shape)

    def split_each(self, partitions: Sequence[Partition | None]) -> PartSet:
        """Splits each part by its own partition, flat; None leaves a part as it is."""
        if len(partitions) != self.size:
            raise QueryError(f"{len(partitions)} specs were given for {self.size} parts.")
        return PartSet([Block(part, partition) for part, partition in zip(self, partitions, strict=True)])

    @staticmethod
    def union(sets: Sequence[PartSet]) -> PartSet:
        """Joins several collections, in order, flat. Raises ``QueryError`` unless provably disjoint."""
        joined = PartSet([block for parts in sets for block in parts.blocks])
        joined.check_disjoint()
        return joined

    def check_disjoint(self) -> None:
        """Raises ``QueryError`` unless the parts are provably disjoint.

        Two parts are disjoint if one partition above both puts them into different parts.

        A part on a path from the whole table has one of three uses. It is queried whole; it is split, and all parts of
        the split are queried at once; or it is split and entered, by one or several parts of the split. The queried
        parts are disjoint exactly if no part has two uses, two partitions, or two queries: then any two paths separate
        in one split. Women and nurses are not disjoint: two partitions would split the whole table. Nor are women and
        young women: women would be queried whole and be split.
        """
        whole: set[bytes] = set()
        at_once: set[bytes] = set()
        entered: set[bytes] = set()
        split: dict[bytes, bytes] = {}

        def use(part: Part, partition: Partition) -> None:
            if split.setdefault(part.key, partition.key) != partition.key:
                _overlap(part)

        walked: set[bytes] = set()  # keys of parts whose path up was checked already
        for block in self.blocks:
            part, queried = block.part, whole if block.partition is None else at_once
            if part.key in queried:
                _overlap(part)
            queried.add(part.key)
            if block.partition is not None:
                use(part, block.partition)
            while part.parent is not None and part.partition is not None and part.key not in walked:
                walked.add(part.key)
                use(part.parent, part.partition)
                entered.add(part.parent.key)
                part = part.parent
        # Women, and men by age: women are whole, men at once, the whole table is entered: disjoint.
        # Women, and women by age: women are whole and split. Men by age, and men below 30 by job:
        # men are at once and entered.
        both = (whole & split.keys()) | (at_once & entered)
        for block in self.blocks:
            if block.part.key in both:
                _overlap(block.part)


def _overlap(part: Part) -> None:
    raise QueryError(
        f"the parts are not disjoint at {part}: a row could be in two of them. Parts must come from one partition "
        "of each part that is split."
    )


def no_cohort(name: object, closed: Sequence[str]) -> QueryError:
    """The error for a name of no closed cohort."""
    cohorts = f"the closed ones are {first_of(closed, 5)}" if closed else "the policy closes none"
    return QueryError(f"is {brief(name)}, which is no closed cohort; {cohorts}", parameter="cohort")


def closed_parts(cohorts: Cohorts, schema: Schema) -> dict[str, Part]:
    """Finds the part of each closed cohort of a table by its name, oldest first.

    Raises ``QueryError`` if the declaration does not fit the schema.
    """
    partition = bind(Values(cohorts.column) if cohorts.by is None else Calendar(cohorts.column, cohorts.by), schema)
    names = [str(label) for label in partition.axes[0].labels if label is not None]
    if cohorts.closed not in names:
        raise QueryError(f"is {cohorts.closed!r}", parameter="closed", allowed=f"a cohort: {first_of(names, 5)}")
    return {name: Part(Part(), partition, index) for index, name in enumerate(names[: 1 + names.index(cohorts.closed)])}

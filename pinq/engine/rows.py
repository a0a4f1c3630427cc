# SPDX-License-Identifier: Apache-2.0
"""The part of each row of a block, its place along any axis, and the numbers of a measure.

A collection of parts is a tree of partitions. Its nodes are numbered level by level. A level is a few
plain arrays that take a row from its node to that node's child::

    the whole table ── sex ─┬─ 0: Female ── age < 30, ... ─┬─ 0
                            │                              └─ 1
                            └─ 1: Male ──── job ───────────┬─ 2: clerk
                                                           └─ 3: nurse

    level 1: a row at node 1 with code 1 in `job` goes to  first[1] + part of `job` = 2 + 1 = 3

All nodes of a level are looked up together while the tables of their partitions stay small; else in groups. The arrays
depend on specs and schema, not on rows, can be pickled, and have an entry for each code: reading a row cannot fail.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pinq.engine.codes import RowBlock, smallest
from pinq.language.derivatives import RowMeasure
from pinq.language.parts import Part
from pinq.language.specs import Axis, Partition, joint_cells, joint_slots

# All code tables of a request. Looking up a code is five to twenty times as fast as searching among edges.
TABLES_BYTES = 2**24


@dataclass(frozen=True, eq=False)
class CodeTable:
    """The place of each code along an axis; every code has one.

    Attributes:
        table: The place of each code; larger codes have the last place. Empty if edges are searched.
        edges: The first code of each place but the first, in order; empty for groups of codes.
    """

    table: np.ndarray
    edges: np.ndarray

    @classmethod
    def of_edges(cls, edges: Sequence[int] | np.ndarray, room: int = TABLES_BYTES) -> CodeTable:
        """Numbers the intervals between edges, in a table of at most ``room`` bytes."""
        # Edges 3 and 5 make the table 0 0 0 1 1 2; codes above 5 have the place of 5. No edge makes the table 0.
        last, kind = int(edges[-1]) if len(edges) else 0, smallest(len(edges) + 1)
        if len(edges) == 1 or (last + 1) * kind.itemsize > room:
            return cls(np.zeros(0, dtype=kind), np.array(edges, dtype=np.uint32))
        widths: np.ndarray = np.diff(np.array(edges, dtype=np.int64), prepend=0, append=last + 1)
        return cls(np.repeat(np.arange(len(widths), dtype=kind), widths), np.array(edges, dtype=np.uint32))

    @classmethod
    def of_axis(cls, axis: Axis, room: int) -> CodeTable:
        if axis.lookup is None:
            return cls.of_edges(axis.thresholds or (), room)
        parts = axis.parts_of(np.arange(len(axis.lookup)))
        places = np.where(parts < 0, axis.size, parts).astype(smallest(axis.size + 1))
        return cls(places, np.zeros(0, dtype=np.uint32))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the edges alone, if there are edges."""
        return (
            (CodeTable.of_edges, (self.edges, self.table.nbytes))
            if len(self.edges)
            else (CodeTable, (self.table, self.edges))
        )

    def __call__(self, codes: np.ndarray) -> np.ndarray:
        if len(self.table):
            return self.table.take(codes, mode="clip")
        if len(self.edges) == 1:
            return (codes >= self.edges[0]).view(np.uint8)
        return np.searchsorted(self.edges, codes, side="right").astype(smallest(len(self.edges) + 1))


def code_tables(axes: Iterable[Axis]) -> dict[Axis, CodeTable]:
    """The tables of all axes with cuts or groups; codes in no part have the place ``axis.size``."""
    tables, room = dict[Axis, CodeTable](), TABLES_BYTES
    for axis in axes:
        if axis not in tables and (axis.thresholds is not None or axis.lookup is not None):
            tables[axis] = CodeTable.of_axis(axis, room)
            room -= tables[axis].table.nbytes
    return tables


class Rows:
    """Rows of a block, each at a numbered node.

    Args:
        block: The block of the rows.
        picked: The numbers of the selected rows; None for all.
        node: The node of each row, shape (rows,).
        nodes: The number of nodes.
        tables: The code tables of the axes in use; see ``code_tables``.
        measure: The measure to sum.
    """

    def __init__(
        self,
        block: RowBlock,
        picked: np.ndarray | None,
        node: np.ndarray,
        nodes: int,
        tables: Mapping[Axis, CodeTable],
        measure: RowMeasure | None = None,
    ) -> None:
        self.block, self.picked, self.node, self.nodes = block, picked, node, nodes
        self.tables, self.measure = tables, measure
        self._codes: dict[Hashable, np.ndarray] = {}
        self._joint: dict[tuple[Axis, ...], np.ndarray] = {}
        self._words: np.ndarray | None = None

    @classmethod
    def of(cls, block: RowBlock, tables: Mapping[Axis, CodeTable]) -> Rows:
        return cls(block, None, np.zeros(block.rows, dtype=np.uint8), 1, tables)

    def over(self, block: RowBlock, tables: Mapping[Axis, CodeTable]) -> Rows:
        """The same rows of a block with other columns, for other axes; nothing is looked up yet."""
        return Rows(block, self.picked, self.node, self.nodes, tables, self.measure)

    def codes(self, source: Hashable) -> np.ndarray:
        if source not in self._codes:
            codes = self.block.columns[source]
            self._codes[source] = codes if self.picked is None else codes.take(self.picked)
        return self._codes[source]

    def places(self, axis: Axis, some: np.ndarray | None = None) -> np.ndarray:
        """The place of each row, or of ``some`` rows by number, along an axis; ``axis.size`` for none."""
        codes = self.codes(axis.source)
        codes = codes if some is None else codes.take(some)
        return codes if axis.lookup is None and axis.thresholds is None else self.tables[axis](codes)

    def cells(self, axes: tuple[Axis, ...]) -> np.ndarray:
        """Each row's cell in the joint table of some axes, without its node, shape (rows,)."""
        if len(axes) == 1:
            return self.places(axes[0])
        if self.nodes > 1:
            return self._joined(np.zeros_like(self.node), 1, axes)
        if axes not in self._joint:
            self._joint[axes] = self.cell(axes)
        return self._joint[axes]

    def cell(self, axes: tuple[Axis, ...]) -> np.ndarray:
        """The cell of each row in the joint table of nodes and some axes, shape (rows,).

        Reused if the block or a measure has it.
        """
        if axes in self._joint:
            return self._joint[axes]
        if self.nodes == 1 and axes in self.block.columns:
            return self.codes(axes).astype(np.intp)
        return self._joined(self.node, self.nodes, axes)

    def _joined(self, cell: np.ndarray, cells: int, axes: Sequence[Axis]) -> np.ndarray:
        along = ((axis.slots, self.places(axis)) for axis in axes)
        return joint_cells(cell, along, smallest(cells * joint_slots(axes) + 1))

    def words(self) -> np.ndarray | None:
        """The packed numbers of each row, shape (words, rows); None to count rows."""
        if self._words is None and self.measure is not None:
            self._words = self.measure.words([self.cells(axes) for axes in self.measure.cells])
        return self._words

    def pieces(self, rows: int) -> Iterator[Rows]:
        """Yields the same rows in pieces of ``rows`` rows; nothing is looked up yet."""
        for start in range(0, max(1, len(self.node)), rows):
            part = slice(start, start + rows)
            block, picked = self.block, self.picked
            if picked is None:
                block = block.rows_in(part)
            else:
                picked = picked[part]
            yield Rows(block, picked, self.node[part], self.nodes, self.tables, self.measure)

    def inside(self, axes: Sequence[Axis]) -> Rows:
        """The rows with a place along each axis."""
        partial = [axis for axis in axes if axis.slots > axis.size]
        if not partial:
            return self
        return self.take(np.flatnonzero(np.logical_and.reduce([self.places(axis) < axis.size for axis in partial])))

    def take(self, chosen: np.ndarray) -> Rows:
        picked = chosen if self.picked is None else self.picked.take(chosen)
        return Rows(self.block, picked, self.node.take(chosen), self.nodes, self.tables, self.measure)

    def moved(self, node: np.ndarray, nodes: int) -> Rows:
        """The same rows at new nodes, without the rows at -1."""
        small = node.astype(smallest(nodes))
        if node.min(initial=0) >= 0:
            return Rows(self.block, self.picked, small, nodes, self.tables, self.measure)
        # Of rows 4, 7 and 9 at nodes 0, -1 and 1, rows 4 and 9 remain. The block's columns are not copied.
        remaining = np.flatnonzero(node >= 0)
        picked = remaining.astype(np.uint32) if self.picked is None else self.picked.take(remaining)
        return Rows(self.block, picked, small.take(remaining), nodes, self.tables, self.measure)

    def measured(self, measure: RowMeasure | None) -> Rows:
        rows = Rows(self.block, self.picked, self.node, self.nodes, self.tables, measure)
        is_counted = None if measure is None else measure.counted_rows(rows.places)
        return rows if is_counted is None else rows.take(np.flatnonzero(is_counted))


# The number of a missing part in the arrays: sums with it stay below 0.
NONE = np.iinfo(np.int32).min
# Rows that descend together. With 2^18 a level takes about twice as long.
ROWS_AT_ONCE = 2**15
# Entries of a table of several partitions: it stays in a core's cache.
MAX_VALUES = 2**18


@dataclass(frozen=True, eq=False)
class _PartitionLookup:
    """Several partitions; each row is looked up in the partition of its node.

    Attributes:
        axes: The common axes of the partitions: one for each column, two if some partitions cut it and
            others do not.
        low: The number of the first partition.
        column: Index into ``axes`` for each axis of each partition, shape (axes, partitions).
        offset: The position in ``values`` of each axis' first part, shape (axes, partitions).
        values: The part of each place, times the axis' stride.
    """

    axes: tuple[Axis, ...]
    low: int
    column: np.ndarray
    offset: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, partitions: Sequence[tuple[Axis, ...]], low: int, common: Mapping[Hashable, Axis]) -> _PartitionLookup:
        columns = {key: number for number, key in enumerate(common)}
        column, offset = np.zeros((2, max(map(len, partitions)), len(partitions)), dtype=np.intp)
        # A partition with fewer axes adds 0 in each place of a missing axis.
        values = [np.zeros(max((axis.size for axis in common.values()), default=1), dtype=np.int32)]
        end = len(values[0])
        # Four parts by sex and by age below and from 30 on: age gives 0 or 1, sex gives 0 or 2, and a
        # man of 40 is in part 2 + 1 = 3.
        for number, partition in enumerate(partitions):
            stride = 1
            for position, axis in enumerate(reversed(partition)):
                shared = common[_axis_key(axis)]
                # The first code of an interval stands for all of it: with edges 3 and 5 the codes 0, 3 and 5.
                codes = np.arange(shared.size) if shared.thresholds is None else np.array([0, *shared.thresholds])
                parts = axis.parts_of(codes)
                values.append(np.where(parts < 0, NONE, parts * stride).astype(np.int32))
                column[position, number], offset[position, number] = columns[_axis_key(axis)], end
                end, stride = end + shared.size, stride * axis.size
        return cls(tuple(common.values()), low, column, offset, np.concatenate(values))

    def parts(self, rows: Rows, kind: np.ndarray, some: np.ndarray | None) -> np.ndarray:
        """The part of each row, or of ``some`` by number, in the partition ``kind`` of its node; negative for none."""
        kind, count = kind - kind.dtype.type(self.low), len(kind)
        places = [rows.places(axis, some) for axis in self.axes]
        number, part = np.arange(count), np.zeros(count, dtype=np.int64)
        all_places = np.concatenate(places or [number])
        for column, offset in zip(self.column, self.offset, strict=True):
            # Of 1,000 rows, row 5 at a node that is split by column 2 has its place at 2 * 1000 + 5.
            place = all_places if len(places) == 1 else all_places.take((column * count).take(kind) + number)
            part += self.values.take(offset.take(kind) + place, mode="clip")
        return part


def _axis_key(axis: Axis) -> Hashable:
    return axis.source, axis.thresholds is None


def _looked_up(partitions: Sequence[tuple[Axis, ...]], low: int = 0) -> list[_PartitionLookup]:
    axes = dict[Hashable, list[Axis]]()
    for partition in partitions:
        for axis in partition:
            axes.setdefault(_axis_key(axis), []).append(axis)
    common = {key: _common_axis(alike) for key, alike in axes.items()}
    if len(partitions) == 1 or sum(len(alike) * common[key].size for key, alike in axes.items()) <= MAX_VALUES:
        return [_PartitionLookup.of(partitions, low, common)]
    half = len(partitions) // 2
    return [*_looked_up(partitions[:half], low), *_looked_up(partitions[half:], low + half)]


def _common_axis(axes: Sequence[Axis]) -> Axis:
    """An axis that refines several axes of a column: cut at all their edges, or all codes."""
    first = axes[0]
    if first.thresholds is None:
        codes = max(axis.size if axis.lookup is None else len(axis.lookup) for axis in axes)
        return replace(first, size=codes, labels=(), lookup=None)
    edges = sorted({edge for axis in axes for edge in axis.thresholds or ()})
    return Axis(first.column, len(edges) + 1, (), tuple(edges))


@dataclass(frozen=True, eq=False)
class Descent:
    """One step down from numbered nodes to their children.

    Attributes:
        nodes: The number of children.
        kind: The number of each node's partition, shape (parents,).
        first: The place of each node's first child, shape (parents,).
        lookups: The look-ups of partitions.
        lookup: The number of each partition's look-up, shape (partitions,).
        places: The requested places, in order; None for all.
        children: The number of the child at each of these places.
    """

    nodes: int
    kind: np.ndarray
    first: np.ndarray
    lookups: tuple[_PartitionLookup, ...]
    lookup: np.ndarray
    places: np.ndarray | None
    children: np.ndarray

    @property
    def axes(self) -> Iterator[Axis]:
        return (axis for lookup in self.lookups for axis in lookup.axes)

    def down(self, rows: Rows) -> np.ndarray:
        """The child of each row, -1 for none, shape (rows,)."""
        return np.concatenate([self._down(piece) for piece in rows.pieces(ROWS_AT_ONCE)])

    def _down(self, rows: Rows) -> np.ndarray:
        """The children of a few rows; temporary arrays stay in a core's cache."""
        kind = self.kind.take(rows.node)
        if len(self.lookups) == 1:
            part = self.lookups[0].parts(rows, kind, None)
        else:
            # Rows with the look-ups 1 0 1 are sorted to 1, 0 2: one slice for each look-up.
            lookup = self.lookup.take(kind)
            order, part = np.argsort(lookup, kind="stable"), np.empty(len(kind), dtype=np.int64)
            ends = np.bincount(lookup, minlength=len(self.lookups)).cumsum()
            for partition_lookup, some in zip(self.lookups, np.split(order, ends[:-1]), strict=True):
                if len(some):
                    part[some] = partition_lookup.parts(rows, kind.take(some), some)
        return self._children(self.first.take(rows.node) + part, part)

    def _children(self, slot: np.ndarray, part: np.ndarray) -> np.ndarray:
        if self.places is None:
            return np.where(part < 0, -1, slot)
        # With requested places 4 and 9, rows at 9 and at 7 both find index 1; the row at 7 is in no part.
        nearest = np.minimum(np.searchsorted(self.places, slot), len(self.places) - 1)
        return np.where((self.places.take(nearest) == slot) & (part >= 0), self.children.take(nearest), -1)


def split_level(partitions: Sequence[Partition | None]) -> Descent:
    """Makes a request's last level: node i becomes all parts of ``partitions[i]``, or stays for None."""
    kind, lookups, sizes = _distinct(partitions)
    ends = np.cumsum(sizes.take(kind))
    return Descent(int(ends[-1]), kind, ends - sizes.take(kind), *lookups, None, np.zeros(0, dtype=np.int64))


def paths_down(
    parts: Sequence[Part], part_numbers: Mapping[bytes, int]
) -> tuple[np.ndarray, list[Descent], np.ndarray]:
    """Makes the paths from located parts, numbered in ``part_numbers``, down to disjoint requested parts.

    Returns:
        The numbers of the located parts where paths begin; the levels from there on; and the index
        in ``parts`` of each node of the last level (of the beginning, if there is no level).

    Raises:
        KeyError: The path to one of ``parts`` passes no located part.
    """
    trie = _Trie(part_numbers)
    for number, part in enumerate(parts):
        trie.ask(part, number)
    return trie.levels()


class _Branch:
    """A part on a path, with its children by index; a requested part has its number in ``answer``."""

    __slots__ = ("answer", "children", "depth", "partition")

    def __init__(self, depth: int, answer: int = -1) -> None:
        self.depth, self.answer = depth, answer
        self.partition: Partition | None = None
        self.children: dict[int, _Branch] | None = None  # a million nodes may have none

    def enter(self, partition: Partition | None, index: int, child: _Branch) -> _Branch:
        """Returns the child with this index, or enters ``child`` if there is none."""
        if self.children is None:
            self.partition, self.children = partition, {}
        return self.children.setdefault(index, child)

    def below(self) -> Iterable[tuple[int, _Branch]]:
        """The children of the node; a node without children continues as its own child."""
        return ((0, self),) if self.children is None else self.children.items()


class _Trie:
    def __init__(self, part_numbers: Mapping[bytes, int]) -> None:
        self._part_numbers, self._depth = part_numbers, 0
        self._nodes, self._begin = dict[bytes, _Branch](), dict[int, _Branch]()

    def ask(self, part: Part, answer: int) -> None:
        # A located part needs no path.
        if part.parent is None or part.key in self._part_numbers:
            self._node(part).answer = answer
            return
        parent = self._node(part.parent)
        parent.enter(part.partition, part.index, _Branch(parent.depth + 1, answer))
        self._depth = max(self._depth, parent.depth + 1)

    def _node(self, part: Part) -> _Branch:
        """The node of a part; makes it and the nodes above it."""
        node, number = self._nodes.get(part.key), self._part_numbers.get(part.key)
        if node is not None:
            return node
        if number is not None:
            node = self._begin.setdefault(number, _Branch(0))
        elif part.parent is None:
            raise KeyError(part.key)
        else:
            parent = self._node(part.parent)
            node = parent.enter(part.partition, part.index, _Branch(parent.depth + 1))
        self._nodes[part.key] = node
        return node

    def levels(self) -> tuple[np.ndarray, list[Descent], np.ndarray]:
        # A request for women, and for men by job: on the second level the node of women has itself as
        # its child.
        begin = np.fromiter(self._begin, dtype=np.int64, count=len(self._begin))
        nodes, levels = list(self._begin.values()), []
        for _ in range(self._depth):
            partitions = [node.partition for node in nodes]
            counts = [1 if node.children is None else len(node.children) for node in nodes]
            children = [pair for node in nodes for pair in node.below()]
            levels.append(_entered(partitions, counts, [index for index, _ in children]))
            nodes = [child for _, child in children]
        return begin, levels, np.array([node.answer for node in nodes], dtype=np.int64)


def _entered(partitions: Sequence[Partition | None], counts: Sequence[int], indices: Sequence[int]) -> Descent:
    """Makes a level with the children of these indices, ``counts[i]`` of them for node i."""
    kind, lookups, sizes = _distinct(partitions)
    ends = np.cumsum(sizes.take(kind))
    # Nodes of 2 and of 3 parts have places 0 to 1 and 2 to 4. A request for the second part of the first
    # node and the first part of the second has indices 1 and 0, and places 1 and 2.
    first = ends - sizes.take(kind)
    places = np.repeat(first, counts) + np.array(indices, dtype=np.int64)
    order = np.argsort(places)
    return Descent(len(places), kind, first, *lookups, places[order], order)


def _distinct(
    partitions: Sequence[Partition | None],
) -> tuple[np.ndarray, tuple[tuple[_PartitionLookup, ...], np.ndarray], np.ndarray]:
    """The number of each node's partition among the distinct ones, their look-ups, and their sizes."""
    # Nodes split by age, by sex and by age again: two distinct partitions, and `kind` is 0 1 0.
    numbers: dict[bytes, int] = {}
    distinct: list[Partition | None] = []
    kind = np.empty(len(partitions), dtype=np.int64)
    for node, partition in enumerate(partitions):
        kind[node] = numbers.setdefault(b"" if partition is None else partition.key, len(distinct))
        if kind[node] == len(distinct):
            distinct.append(partition)
    lookups = _looked_up([() if partition is None else partition.axes for partition in distinct])
    together = np.diff([*(lookup.low for lookup in lookups), len(distinct)])
    lookup = np.repeat(np.arange(len(lookups), dtype=smallest(len(lookups))), together)
    sizes = np.array([1 if partition is None else partition.size for partition in distinct], dtype=np.int64)
    return kind.astype(smallest(len(distinct))), (tuple(lookups), lookup), sizes

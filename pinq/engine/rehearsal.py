# SPDX-License-Identifier: Apache-2.0
"""Counts dummy rows, so that a query runs once, as a whole, before it is charged and before data is read.

They are counted like data: with the same compiled request, pickled as for Spark's workers, and the same kernel. So a
request whose counting or release fails, fails here, where an error reveals nothing about rows. One case runs on data
only: ``ArrayEngine`` reads intervals of one column off that column's table by searches, which find a place for every
number.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np

from pinq.engine.codes import RowBlock, kinds_of, smallest
from pinq.engine.counting import CountRequest, count, count_request
from pinq.engine.tables import Measure, Table, TableRequest
from pinq.language.parts import Part, PartSet
from pinq.language.specs import Axis
from pinq.public.schema import Schema

SAMPLED_PARTS = 16  # parts that get dummy rows, so that the rehearsal of a million parts is fast


class DummyEngine:
    """An ``Engine`` over dummy rows, which are new for each request and depend on public facts only.

    The curator runs a prepared query on two of them, ``filled=False`` and ``filled=True``; one that raises is refused.
    A compiled request that passed once passes again, so the outcome may be cached.

    Args:
        schema: The schema of the table.
        filled: Whether there are rows: one with the first code of each column, one with the last, two in each requested
            part (or in a public sample of many parts), and one outside of each axis that leaves codes out. In both
            cases a block without rows is counted first.
    """

    def __init__(self, schema: Schema, *, filled: bool) -> None:
        self.schema, self._filled = schema, filled

    def tabulate(
        self,
        parts: PartSet,
        tables: Sequence[TableRequest] = (TableRequest(),),
        measure: Measure | None = None,
        check: Callable[[], None] | None = None,
    ) -> list[Table]:
        request: CountRequest = pickle.loads(pickle.dumps(count_request(parts, tables, measure, schema=self.schema)))
        empty, filled = (count(self._rows(rows, request), request) for rows in ([], self._dummies(parts, request)))
        counts = empty.merged(filled)
        counts.fill(counts.pieces(1))  # pieces are the messages between machines
        return counts.tables()

    def problem(self) -> str:
        return ""

    def close(self) -> None:
        """Holds nothing."""

    def _sizes(self, request: CountRequest) -> dict[Hashable, int]:
        columns: dict[Hashable, int] = {name: column.codes for name, column in self.schema.columns.items()}
        return columns | {source: source[2] for source in request.shards()}

    def _rows(self, rows: Sequence[Mapping[Hashable, int]], request: CountRequest) -> RowBlock:
        """A block of rows, each given by the codes of some columns; other codes are 0."""
        sizes = self._sizes(request)
        kinds = {source: smallest(size) for source, size in sizes.items()} | kinds_of(self.schema)
        columns = {source: np.array([row.get(source, 0) for row in rows], dtype=kinds[source]) for source in sizes}
        return RowBlock(columns, len(rows))

    def _dummies(self, parts: PartSet, request: CountRequest) -> list[dict[Hashable, int]]:
        if not self._filled:
            return []
        sizes = self._sizes(request)
        last = {source: size - 1 for source, size in sizes.items()}
        possible = [_inside(parts.at(number), sizes) for number in _sampled(parts)]
        inside = [row for row in possible if row is not None]
        outside = [
            {axis.source: int(np.argmin(axis.lookup))}
            for axis in {*request.places, *(axis for partition in parts.partitions for axis in partition.axes)}
            if axis.lookup is not None and axis.slots > axis.size
        ]
        return [{}, last, *inside, *(last | row for row in inside), *outside]


def _sampled(parts: PartSet) -> list[int]:
    """A sample of parts, by number: some at equal distances, and two for each form of splits."""
    chosen = set(np.linspace(0, len(parts) - 1, SAMPLED_PARTS).astype(np.int64).tolist())
    forms, walked, start = set[Hashable](), set[bytes](), 0
    for block in parts.blocks:
        block_forms: set[Hashable] = {("last", None if block.partition is None else block.partition.form)}
        part = block.part
        while part.partition is not None and part.parent is not None and part.key not in walked:
            walked.add(part.key)  # the forms above a walked part are already in `forms`
            block_forms.add(("down", part.partition.form))
            part = part.parent
        if not block_forms <= forms:
            forms |= block_forms
            chosen |= {start, start + len(block) - 1}
        start += len(block)
    return sorted(chosen)


def _inside(part: Part, sizes: Mapping[Hashable, int]) -> dict[Hashable, int] | None:
    """The codes that a row needs to be in a part; None if no row can be."""
    # Ages below 30 and from 20 on leave the codes 20 to 29; the row gets 20.
    ranges = dict[Hashable, tuple[int, int]]()
    groups = list[tuple[Axis, int]]()
    for partition, index in part.steps():
        for axis, place in partition.positions(index):
            low, high = ranges.get(axis.source, (0, sizes[axis.source]))
            first, end = axis.span(place, sizes[axis.source])
            ranges[axis.source] = max(low, first), min(high, end)
            if axis.lookup is not None:
                groups.append((axis, place))
    grouped = {axis.source: np.arange(*ranges[axis.source]) for axis, _ in groups}
    for axis, place in groups:
        grouped[axis.source] = grouped[axis.source][axis.parts_of(grouped[axis.source]) == place]
    if any(low >= high for low, high in ranges.values()) or not all(map(len, grouped.values())):
        return None
    return {source: low for source, (low, _) in ranges.items()} | {
        source: int(codes[0]) for source, codes in grouped.items()
    }

# SPDX-License-Identifier: Apache-2.0
"""Which way rows go in a tree: columns of a table to codes, codes to nodes. The same row-wise map as behind the wall."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from miners.fitted.node import Node
from pinq.errors import QueryError
from pinq.public.schema import Categorical, Numeric, Schema, closest
from pinq.public.specs import Axis, bind

__all__ = ["Router", "encode", "encode_values"]

MOST_LOOKED_UP = 2**16  # codes of a column; a larger table would not be faster than a search


class Router:
    """Sends encoded rows down all at once: one table lookup a level, however many nodes there are.

    The codes of each column are first reduced to *places* that no split of the tree tells apart:
    place 0 for code -1, then the ranges between all thresholds (cuts), or the codes themselves
    (values, groups). Node v has a table that maps the place of a row in v's column to the node that
    comes next; v itself where the row stops.
    """

    def __init__(self, schema: Schema, nodes: Sequence[Node]) -> None:
        axes = [None if node.split is None else bind(node.split, schema).axes[0] for node in nodes]
        self.schema = schema
        self.columns = tuple(
            dict.fromkeys(axis.column for axis in axes if axis is not None and axis.column is not None)
        )
        # The first code of each range; None where each code is a place of its own.
        self.ranges = {
            name: _ranges([a for a in axes if a is not None and a.column == name], schema.columns[name])
            for name in self.columns
        }
        self.place_of = {name: _place_of(firsts, schema.columns[name].codes) for name, firsts in self.ranges.items()}
        self.row_of = np.zeros(len(nodes), dtype=np.int64)
        self.start = np.zeros(len(nodes), dtype=np.int64)
        tables, cursor = [], 0
        for place, (node, axis) in enumerate(zip(nodes, axes, strict=True)):
            table = np.array([place]) if axis is None else self._table(place, node, axis)
            if axis is not None:
                self.row_of[place] = 1 + self.columns.index(str(axis.column))
            self.start[place] = cursor
            cursor += len(table)
            tables.append(table)
        self.next = np.concatenate(tables).astype(np.int64)

    def _table(self, place: int, node: Node, axis: Axis) -> np.ndarray:
        column = self.schema.columns[str(axis.column)]
        firsts = self.ranges[str(axis.column)]
        codes = np.concatenate([[-1], np.arange(column.codes) if firsts is None else firsts])
        parts = axis.parts_of(codes)
        return np.where(parts < 0, place, np.array(node.children)[parts])

    def places(self, name: str, codes: np.ndarray) -> np.ndarray:
        """The place of each code of a column, shape like ``codes``."""
        firsts, place_of = self.ranges[name], self.place_of[name]
        if firsts is None:
            return codes + 1
        result: np.ndarray = np.searchsorted(firsts, codes, side="right") if place_of is None else place_of[codes]
        return result

    def walk(self, places: np.ndarray, levels: int) -> np.ndarray:
        """Where rows with these places, shape (columns + 1, rows), end up."""
        rows = places.shape[1]
        # `take` on flat arrays is twice as fast as indexing with two arrays.
        flat, offset, own = np.ascontiguousarray(places).ravel(), self.row_of * rows, np.arange(rows)
        node = np.zeros(rows, dtype=np.int64)
        for _ in range(levels):
            node = self.next.take(self.start.take(node) + flat.take(offset.take(node) + own))
        return node


def encode(schema: Schema, name: str, frame: Any) -> np.ndarray:
    """Codes of one column of a pandas or Arrow table, shape (rows,); -1 where a value is not declared.

    Raises:
        QueryError: The table has no such column.
    """
    import pandas as pd

    names = [str(known) for known in (frame.column_names if hasattr(frame, "column_names") else frame.columns)]
    if name not in names:
        raise QueryError(
            f"the table has no column {name!r}{closest(name, names)}, which the tree asks for; it has {', '.join(names) or 'none'}."
        )
    if names.count(name) > 1:
        raise QueryError(f"the table has more than one column {name!r}.")
    values = frame[name]
    return encode_values(schema, name, values.to_pandas() if hasattr(values, "to_pandas") else pd.Series(values))


def encode_values(schema: Schema, name: str, values: Any) -> np.ndarray:
    """Codes of a sequence of values of one column."""
    import pandas as pd

    column = schema.columns[name]
    if isinstance(column, Numeric):
        return column.encode(values)
    # Text is looked up once for each distinct value; a missing value's place is -1, the last.
    places, distinct = pd.factorize(pd.Series(values), use_na_sentinel=True)
    distinct_values = [*pd.Series(distinct).astype(object), None]
    result: np.ndarray = column.encode(distinct_values)[places]
    return result


def _ranges(axes: Sequence[Axis], column: Categorical | Numeric) -> np.ndarray | None:
    if any(axis.thresholds is None for axis in axes):
        return None
    firsts = {0, *(threshold for axis in axes for threshold in axis.thresholds or ())}
    return np.array(sorted(firsts | ({column.cells} if column.nullable else set())), dtype=np.int64)


def _place_of(firsts: np.ndarray | None, codes: int) -> np.ndarray | None:
    """The place of each code, that of code -1 at the end, where Python looks for it; None where a search is better."""
    if firsts is None or codes > MOST_LOOKED_UP:
        return None
    return np.append(np.searchsorted(firsts, np.arange(codes), side="right"), 0).astype(np.int32)

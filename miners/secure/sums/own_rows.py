# SPDX-License-Identifier: Apache-2.0
"""``OwnRows`` counts one party's rows by any parts, exactly.

The counts must only ever be shared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from miners.federated.federation import Sums
from miners.federated.splitting import first_codes
from miners.fitted.route import encode
from miners.secure.id3.task import Table, Task
from pinq.public.parts import Part, PartSet
from pinq.public.schema import Schema
from pinq.public.specs import Axis, Partition, bind
from pinq.secure_computation import Holding

__all__ = ["OwnRows"]


class OwnRows:
    """One party's rows.

    Args:
        codes: Of each column that may be asked for a code of each distinct row, or another code
            that no question tells apart from it.
        counts: How often each occurs.
    """

    def __init__(self, codes: Mapping[str, np.ndarray], counts: np.ndarray) -> None:
        self._codes, self._counts = codes, counts
        self._rows: dict[bytes, np.ndarray] = {Part().key: np.arange(len(counts))}

    @classmethod
    def of_holding(cls, task: Task, holding: Holding) -> OwnRows:
        """Takes a session's holding: rows known by the values that the splits tell apart."""
        *attributes, classes = holding.codes
        codes = {task.target: classes}
        for split, values in zip(task.splits, attributes, strict=True):
            codes[split.column] = first_codes(bind(split, task.schema).axes[0])[values]
        return cls(codes, holding.counts)

    @classmethod
    def of_tables(cls, schema: Schema, tables: Sequence[Table]) -> OwnRows:
        """Takes all rows of several tables.

        Those with an undeclared value are left out, as behind pinq's wall.
        """
        codes = {name: np.concatenate([encode(schema, name, table) for table in tables]) for name in schema.columns}
        known = np.all([column >= 0 for column in codes.values()], axis=0)
        counts = np.ones(int(known.sum()), dtype=np.int64)
        return cls({name: column[known] for name, column in codes.items()}, counts)

    def table(self, parts: PartSet) -> np.ndarray:
        """Counts the rows of each part, shape ``parts.shape``."""
        counts = [self._block(self._within(block.part), block.partition) for block in parts.blocks]
        return np.concatenate(counts or [np.zeros(0, dtype=np.int64)]).reshape(parts.shape)

    def derivatives(self, parts: PartSet, sums: Sums, schema: Schema) -> np.ndarray:
        """Adds up derivatives over the rows of one part, exactly, shape (cells, width)."""
        (part,) = parts
        rows, vectors = self._within(part), sums.loss.vectors(schema)
        # A row that occurs three times adds three times its vector.
        places = [self._places(axis, rows) for axis in vectors.inputs]
        weighted = vectors.of(places) * self._counts[rows]
        cells = bind(sums.by, schema)
        totals = np.zeros((cells.size + 1, vectors.width), dtype=np.int64)
        np.add.at(totals, self._cells(cells, rows), weighted.T)
        return totals[: cells.size]

    def _places(self, axis: Axis, rows: np.ndarray) -> np.ndarray:
        """Finds each row's place along an axis, ``axis.size`` for none."""
        places = axis.parts_of(self._codes[str(axis.column)][rows])
        return np.where(places < 0, axis.size, places)

    def _block(self, rows: np.ndarray, partition: Partition | None) -> np.ndarray:
        if partition is None:
            return self._counts[rows].sum(keepdims=True)
        counts = np.bincount(self._cells(partition, rows), self._counts[rows], partition.size + 1)
        return counts[: partition.size].astype(np.int64)

    def _within(self, part: Part) -> np.ndarray:
        """Selects the rows of a part; remembered, for those below it are asked next."""
        if part.key not in self._rows:
            assert part.parent is not None
            assert part.partition is not None
            # Rows 0, 2 and 5 are women, and their jobs are parts 1, 0 and 1: women of job 1 are the
            # rows 0 and 5.
            above = self._within(part.parent)
            self._rows[part.key] = above[self._cells(part.partition, above) == part.index]
        return self._rows[part.key]

    def _cells(self, partition: Partition, rows: np.ndarray) -> np.ndarray:
        """Finds the part of a partition in which each row lies, ``partition.size`` for none."""
        positions = np.stack([axis.parts_of(self._codes[str(axis.column)][rows]) for axis in partition.axes])
        inside = (positions >= 0).all(axis=0)
        cells = np.full(len(rows), partition.size)
        cells[inside] = np.ravel_multi_index(tuple(positions[:, inside]), partition.shape)
        return cells

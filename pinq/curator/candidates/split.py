# SPDX-License-Identifier: Apache-2.0
"""A plain candidate: one spec, one score for each part."""

from __future__ import annotations

import numpy as np

from pinq.curator.candidates.scorer import Frame, Runs, Scorer, cells_by_codes, occupied
from pinq.curator.prepared import Counted
from pinq.public.specs import Spec, bind

__all__ = ["SplitScorer"]


class SplitScorer(Scorer[Spec]):
    """Scores a spec by a table of its parts.

    Many splits of one column share the table of its codes.
    """

    is_family = False

    def __init__(self, candidate: Spec, frame: Frame) -> None:
        self.partition = bind(candidate, frame.schema)
        frame.score.check_cells(candidate, self.partition.axes)
        super().__init__(candidate, frame)
        self._column = self.partition.axes[0].column if len(self.partition.axes) == 1 else None
        self._shares = frame.is_crowded(self._column)
        self.table = frame.add_codes(str(self._column)) if self._shares else frame.add(self.partition.axes)
        # Its cells, or the codes of its column where it shares their table.
        codes = frame.schema.column(self._column).codes if self._shares else 0
        self.member_cells = self.partition.size * frame.width + min(codes, frame.schema.max_rows)

    def runs(self, counted: Counted, rows: np.ndarray) -> list[Runs]:
        """One run of one member."""
        single = np.ones(1, dtype=np.int64)
        scores = self.frame.scores(self._cells(counted, rows), self.score).reshape(-1, 1)
        return [Runs(score, single, single, lambda _: self.partition.spec) for score in scores]

    def _cells(self, counted: Counted, rows: np.ndarray) -> np.ndarray:
        """What is in each part of the split, shape (rows, cells, measure)."""
        axis = self.partition.axes[0]
        # Three kinds of tables: the occupied codes of a fine grid, all codes of a column that many
        # splits share, or the split's own parts. The first two are added up to parts here.
        if self.frame.tables[self.table].form != "dense":
            codes = self.frame.schema.column(self._column).codes
            occupation = occupied(self.frame, counted, self.table, codes, rows)
            return np.stack([own.cells(axis) for own in occupation])
        tables = self.frame.measured(counted.array(self.table)[rows])
        if self._shares:
            return np.stack([cells_by_codes(axis, np.arange(len(counts)), counts) for counts in tables])
        return tables.reshape(tables.shape[0], self.partition.size, tables.shape[-1])

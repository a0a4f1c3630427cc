# SPDX-License-Identifier: Apache-2.0
"""``AnyGrouping``: bipartitions of the values of a categorical column that a part has left."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pinq.curator.candidates.scorer import Frame, Runs, Scorer
from pinq.curator.prepared import Counted
from pinq.curator.work import MEMBER
from pinq.public.schema import Value
from pinq.public.specs import MAX_GROUPINGS, AnyGrouping, Spec

__all__ = ["AnyGroupingScorer"]

BLOCK = 2**21  # entries of bipartitions that are widened at a time


class AnyGroupingScorer(Scorer[AnyGrouping]):
    """Scores all bipartitions at once: their sides times the table of the column's values."""

    def __init__(self, candidate: AnyGrouping, frame: Frame) -> None:
        super().__init__(candidate, frame)
        self._column = frame.schema.categorical(candidate.column)
        self.table = frame.add_codes(candidate.column)
        self.members = min(2 ** (self._column.codes - 1), MAX_GROUPINGS)
        self.scratch = self.members * 2 * frame.width  # two sides of each
        values = self._column.codes  # each bipartition is drawn, scored over them, and may be chosen
        self.member_cells = MEMBER + values // 3 + (values // 16 + 2) * frame.width
        self.spec_bytes += sum(16 + 12 * len(str(label)) for label in self._column.labels)  # a member names them all

    def runs(self, counted: Counted, rows: np.ndarray) -> list[Runs]:
        """Each bipartition as a run; parts that have the same values left are scored together."""
        counts = self.frame.measured(counted.array(self.table)[rows])
        column = self._column
        left = [counted.part_list[row].values_left(self.candidate.column, column.codes) for row in rows]
        lefts = np.array(left).reshape(len(rows), column.codes)
        nothing = np.zeros(0, dtype=np.int64)
        runs = [Runs(nothing, nothing, nothing, self._namer([]))] * len(rows)
        # Of three parts that have a b c, a c and a b c left, the first and the third are scored as
        # one array.
        for kept in np.unique(lefts, axis=0):
            counted.turn.check()
            alike = np.flatnonzero((lefts == kept).all(axis=1))
            codes = np.flatnonzero(kept)
            sides = self.candidate.sides(len(codes))
            if not len(sides):
                continue
            # Of values a, b, c with 4, 1 and 2 rows, the side {a, c} is the row 1 0 1 of `sides`:
            # it has 4 + 2 rows, and the other side has the 7 of all values less those.
            here = counts[np.ix_(alike, codes)]
            first = side_sums(sides, here, counts=self.frame.measure is None)
            scores = self.frame.scores(np.stack([first, here.sum(axis=1, keepdims=True) - first], axis=2))
            numbers, single = np.arange(len(sides), dtype=np.int64), np.ones(len(sides), dtype=np.int64)
            name = self._namer([column.labels[code] for code in codes])
            for number, own in zip(alike, scores, strict=True):
                runs[number] = Runs(own, single, numbers, name)
        return runs

    def _namer(self, labels: list[Value | None]) -> Callable[[int], Spec]:
        # One of thousands of families is named: its bipartitions are drawn again, none are kept for it.
        return lambda number: self.candidate.member(labels, self.candidate.sides(len(labels))[number])


def side_sums(sides: np.ndarray, table: np.ndarray, *, counts: bool) -> np.ndarray:
    """What each side's values add up to, exactly, shape (parts, members, measure).

    Args:
        sides: Which values are on the side, shape (members, values).
        table: What each value has, shape (parts, values, measure).
        counts: Whether it has numbers of rows.
    """
    # Doubles are exact up to 2^53, and their matrix product is many times as fast as that of
    # integers. Counts add up to 2^38 at most, sums of what a row has to more.
    kind = np.float64 if counts else np.int64
    step = max(1, BLOCK // max(1, sides.shape[1]))  # of many values, so many members at a time
    numbers = table.astype(kind)
    sums = [sides[low : low + step].astype(kind) @ numbers for low in range(0, len(sides), step)]
    result: np.ndarray = np.concatenate(sums, axis=-2).astype(np.int64)
    return result

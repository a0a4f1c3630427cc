# SPDX-License-Identifier: Apache-2.0
"""``AnyCut``: every cut of a numeric column into two, from the counts at its codes.

A column of few codes has a dense table, and each cut is a run of its own. On a fine grid only the
occupied codes are listed: cuts between two neighbouring ones put the same rows on the same sides,
so they score alike and are one run.
"""

from __future__ import annotations

import numpy as np

from pinq.curator.candidates.scorer import SCORING, Frame, Runs, Scorer, occupied
from pinq.curator.counted import Counted
from pinq.curator.work import CELL
from pinq.public.parts import Part
from pinq.public.specs import AnyCut, Cuts, Spec

__all__ = ["AnyCutScorer"]

FLIP_CUTS = 256  # among more cuts of one column many score alike, and the two mechanisms have nearly the same law


class AnyCutScorer(Scorer[AnyCut]):
    """Scores all cuts at once, by sums of what is below each."""

    def __init__(self, candidate: AnyCut, frame: Frame) -> None:
        super().__init__(candidate, frame)
        self._column = frame.schema.numeric(candidate.column)
        self.table = frame.add_codes(candidate.column)

    @property
    def work(self) -> int:
        """Its cuts in one part."""
        return self.work_of(1)

    def work_of(self, parts: int) -> int:
        """Its cuts: one for each cell of the grid; on a fine one around each row of any part."""
        cuts = parts * self._column.codes
        if self._is_fine:  # disjoint parts have no more rows together than the table
            cuts = min(cuts, 2 * parts + 2 * self.frame.schema.max_rows)
        return SCORING * parts + 4 * CELL * cuts * self.frame.width

    def flips(self, size: int) -> bool:
        """Where there are few cuts."""
        return size <= FLIP_CUTS

    def runs(self, counted: Counted, rows: np.ndarray) -> list[Runs]:
        """The cuts within the interval that a part's own splits leave to it."""
        return self._every_gap(counted, rows) if self._is_fine else self._every_cut(counted, rows)

    @property
    def _is_fine(self) -> bool:
        """Whether only occupied codes are listed."""
        return self.frame.tables[self.table].form != "dense"

    def _every_cut(self, counted: Counted, rows: np.ndarray) -> list[Runs]:
        """Every cut as a run, from a table (rows, codes, measure)."""
        # Codes with 3, 0, 2 and 5 rows: 3, 3, 5 and 10 up to each, so the cuts before codes 1, 2
        # and 3 have 3 and 7 rows on their sides, 3 and 7, 5 and 5. The score of the cut before code
        # k is at k - 1.
        table = self.frame.measured(counted.array(self.table)[rows])
        below = np.cumsum(table[:, : self._column.cells], axis=1)
        left, total = below[:, :-1], below[:, -1:]
        sides = [left, total - left]
        if self._column.nullable:
            sides.append(np.broadcast_to(table[:, self._column.cells :], left.shape))
        scores = self.frame.scores(np.stack(sides, axis=2))
        runs = []
        for row, own in zip(rows, scores, strict=True):
            low, high = self._interval(counted.part_list[row])
            first = np.arange(low + 1, max(low + 1, high), dtype=np.int64)
            runs.append(Runs(own[first - 1], np.ones(len(first), dtype=np.int64), first, self._name))
        return runs

    def _every_gap(self, counted: Counted, rows: np.ndarray) -> list[Runs]:
        """Makes a run of each gap between occupied codes, and of both ends."""
        runs = []
        occupation = occupied(self.frame, counted, self.table, self._column.codes, rows)
        for row, (codes, counts) in zip(rows, occupation, strict=True):
            counted.turn.check()
            present = int(np.searchsorted(codes, self._column.cells))
            edges = codes[:present]
            # 4 rows at code 3 and 6 at code 7: below the cuts of the three runs are 0, 4 and 10.
            below = np.zeros((counts.shape[1], present + 1), dtype=counts.dtype)
            np.cumsum(counts[:present].T, axis=1, out=below[:, 1:])
            sides = [below, below[:, -1:] - below]
            if self._column.nullable:
                missing = counts[present:].sum(axis=0)
                sides.append(np.broadcast_to(missing[:, None], below.shape))
            scores = self.frame.scores(np.stack(sides).transpose(2, 0, 1))
            # Codes 3 and 7 occupied, interval 0 to 9: the cuts before 1..3, before 4..7 and before
            # 8..9 make three runs.
            low, high = self._interval(counted.part_list[row])
            first = np.maximum(np.concatenate([[low], edges]) + 1, low + 1)
            last = np.minimum(np.concatenate([edges, [high - 1]]), high - 1)
            runs.append(Runs(scores, np.maximum(0, last - first + 1), first, self._name))
        return runs

    def _interval(self, part: Part) -> tuple[int, int]:
        return part.interval(self.candidate.column, self._column)

    def _name(self, threshold: int) -> Spec:
        return Cuts(self.candidate.column, (self._column.cut_before(threshold),))

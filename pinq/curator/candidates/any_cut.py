# SPDX-License-Identifier: Apache-2.0
"""``AnyCut``: every cut of a numeric column into two, from the counts at its codes.

A column of few codes has a dense table, and each cut is a run of its own. On a fine grid only the
occupied codes are listed: cuts between two neighbouring ones put the same rows on the same sides,
so they score alike and are one run.
"""

from __future__ import annotations

import math

import numpy as np

from pinq.curator.candidates.scorer import Frame, Occupation, Runs, Scorer, occupied
from pinq.curator.prepared import Counted
from pinq.public.parts import Part
from pinq.public.specs import AnyCut, Cuts, Spec

__all__ = ["AnyCutScorer"]

FLIP_CUTS = 256  # among more cuts of one column many score alike, and the two mechanisms have nearly the same law


class AnyCutScorer(Scorer[AnyCut]):
    """Scores all cuts at once, by sums of what is below each."""

    most_flipped = FLIP_CUTS

    def __init__(self, candidate: AnyCut, frame: Frame) -> None:
        super().__init__(candidate, frame)
        self._column = frame.schema.numeric(candidate.column)
        self.table = frame.add_codes(candidate.column)
        self._is_fine = frame.tables[self.table].form != "dense"  # only occupied codes are listed
        gaps = frame.schema.max_rows + 1 if self._is_fine else math.inf
        self.members, self.member_cells = int(min(self._column.codes, gaps)), 4 * frame.width

    def cells(self, parts: int) -> int:
        """Of a fine grid: disjoint parts have no more rows together than the table, each between two cuts."""
        most = 2 * (parts + self.frame.schema.max_rows) * self.member_cells
        return min(super().cells(parts), most) if self._is_fine else super().cells(parts)

    def runs(self, counted: Counted, rows: np.ndarray) -> list[Runs]:
        """The cuts within the interval that a part's own splits leave to it."""
        return self._every_gap(counted, rows) if self._is_fine else self._every_cut(counted, rows)

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
        for row, own in zip(rows, occupation, strict=True):
            counted.turn.check()
            present, missing = own.divided(self._column.cells)
            scores, last = self._gaps(present, missing.total())
            # Codes 3 and 7 occupied, interval 0 to 9: the cuts after 0..2, after 3..6 and after 7
            # make three runs.
            low, high = self._interval(counted.part_list[row])
            last[0], last[-1] = low, max(low, high - 1)
            np.clip(last, low, last[-1], out=last)
            runs.append(Runs(scores, np.diff(last), last[:-1], self._name_after))
        return runs

    def _gaps(self, present: Occupation, missing: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Scores the gaps, shape (codes + 1,), and lists the codes, with room at both ends.

        Args:
            present: What is at the codes.
            missing: What has no value, shape (measure,).
        """
        codes = np.empty(len(present.places) + 2, dtype=np.int64)
        scores = np.empty(len(present.places) + 1, dtype=np.int64)
        total, end = present.total(), 0
        below = np.zeros_like(total)[:, None]
        for own_codes, counts in present.pieces():
            # 4 rows at code 3 and 6 at code 7: below the three cuts are 0, 4 and 10.
            left = np.concatenate([below, counts.T], axis=1).cumsum(axis=1)
            below, begin, end = left[:, -1:], end, end + len(own_codes)
            scores[begin:end] = self._scores(left[:, :-1], total, missing)
            codes[begin + 1 : end + 1] = own_codes
        scores[end : end + 1] = self._scores(below, total, missing)
        return scores[: end + 1], codes[: end + 2]

    def _scores(self, left: np.ndarray, total: np.ndarray, missing: np.ndarray) -> np.ndarray:
        """Scores gaps from what is below each, shape (measure, gaps)."""
        sides = [left, total[:, None] - left]
        if self._column.nullable:
            sides.append(np.broadcast_to(missing[:, None], left.shape))
        return self.frame.scores(np.stack(sides).transpose(2, 0, 1))

    def _interval(self, part: Part) -> tuple[int, int]:
        return part.interval(self.candidate.column, self._column)

    def _name_after(self, code: int) -> Spec:
        return self._name(code + 1)

    def _name(self, threshold: int) -> Spec:
        return Cuts(self.candidate.column, (self._column.cut_before(threshold),))

# SPDX-License-Identifier: Apache-2.0
"""``AnyCrossScorer`` scores every combination of so many specs.

35 columns have 5,984 triples beside a target, 60 have 32,509. As a family they are one candidate of
a request however many they are, and all members are scored from one listing of the table, each from
a small table of its own that is counted and forgotten: memory follows the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from pinq.curator.candidates.scorer import Frame, Runs, Scorer
from pinq.curator.prepared import Counted
from pinq.curator.work import SCORING
from pinq.errors import QueryError
from pinq.public.specs import AnyCross, bind

__all__ = ["AnyCrossScorer", "Crossing"]

DENSE_CELLS = 2**22  # a larger table is counted by sorting
AT_ONCE = 2**18  # rows, or cells, of members that are counted together


class AnyCrossScorer(Scorer[AnyCross]):
    """Scores every member from one listing of the occupied cells over all specs."""

    def __init__(self, candidate: AnyCross, frame: Frame) -> None:
        if not frame.classes:
            raise QueryError(
                f"{candidate!r} goes with scores of a table of classes, and {frame.score.kind} is not one."
            )
        if frame.scores(np.zeros((1, frame.classes[0].size), dtype=np.int64)).any():
            raise QueryError(f"{frame.score.kind} counts empty cells, and AnyCross leaves them out.")
        axes = tuple(bind(spec, frame.schema).axes[0] for spec in candidate.specs)
        self._sizes = [axis.size for axis in axes]
        candidate.require_room(self._sizes, frame.classes[0].size)
        super().__init__(candidate, frame)
        self.table = frame.add(axes, "listed")
        self.members = self.options = len(candidate)
        # For each member the rows are looked up in a table of its own, four in the time of a cell. Pairs
        # of specs of 2, 5 and 9 parts: no pair has more than 5 * 9 cells.
        cells, rows = math.prod(sorted(self._sizes)[-candidate.size :]) * frame.width, frame.schema.max_rows
        self.member_cells = SCORING + rows // 4 + min(cells, rows)

    def runs(self, counted: Counted, rows: np.ndarray) -> list[Runs]:
        """Each member as a run."""
        table = counted.listed(self.table)
        numbers, single = np.arange(self.members, dtype=np.int64), np.ones(self.members, dtype=np.int64)
        runs = []
        for row in rows:
            mine = slice(None) if len(counted.parts) == 1 else table.parts == row
            codes, counts = table.codes[:, mine], table.counts[mine]
            cross = Crossing(codes[:-1], codes[-1], counts, tuple(self._sizes), self.frame.classes[0].size)
            scores = cross.member_scores(self.candidate.size, self.frame.scores, counted.turn.check)
            runs.append(Runs(scores, single, numbers, self.candidate.member))
        return runs


@dataclass(frozen=True, eq=False)
class Crossing:
    """Listed rows, as the specs see them.

    Attributes:
        codes: The part of each row along each spec, shape (specs, rows).
        target: Its class, shape (rows,).
        counts: How often it occurs, shape (rows,).
        sizes: Parts of each spec.
        classes: Classes of the target.
    """

    codes: np.ndarray
    target: np.ndarray
    counts: np.ndarray
    sizes: tuple[int, ...]
    classes: int

    def member_scores(
        self, size: int, score: Callable[[np.ndarray], np.ndarray], check: Callable[[], None]
    ) -> np.ndarray:
        """The exact score of every ``size`` of the specs.

        Args:
            size: How many specs make a member.
            score: Scores tables of shape (..., cells, classes).
            check: Called now and then; what it raises ends the work.

        Returns:
            int64, shape (members,), in the order of ``itertools.combinations``.
        """
        weights = None if (self.counts == 1).all() else self.counts  # to weigh takes longer
        scores: list[np.ndarray] = []
        for first, prefix, cells in self._prefixes(size):
            # Every member that continues this prefix by one more spec.
            start = first
            while start < len(self.sizes):
                check()
                stop = self._alike(start, cells)
                joint, count = self._joined(prefix, cells, slice(start, stop))
                # Two members of 8 cells and 2 classes: the second one's keys begin at 16.
                member = np.arange(stop - start)[:, None]
                keys = (member * count + joint) * self.classes + self.target
                weighed = None if weights is None else np.broadcast_to(weights, keys.shape).ravel()
                table = np.bincount(keys.ravel(), weighed, (stop - start) * count * self.classes)
                counted = table.astype(np.int64, copy=False).reshape(stop - start, count, self.classes)
                scores.append(score(counted))
                start = stop
        return np.concatenate(scores).astype(np.int64)

    def _alike(self, start: int, cells: int) -> int:
        """Where a stretch of specs of as many parts ends that are counted together; the call for each is dear."""
        room = AT_ONCE // max(len(self.target), cells * self.sizes[start] * self.classes, 1)
        stop = start + 1
        while stop < min(len(self.sizes), start + room) and self.sizes[stop] == self.sizes[start]:
            stop += 1
        return stop

    def _prefixes(
        self, size: int, first: int = 0, cell: np.ndarray | None = None, cells: int = 1
    ) -> Iterator[tuple[int, np.ndarray, int]]:
        """All choices of ``size - 1`` specs, in lexicographic order.

        Yields:
            Where the next spec may start, each row's joint cell, and how many cells there are.
        """
        cell = np.zeros(self.codes.shape[1], dtype=np.int64) if cell is None else cell
        if size == 1:
            yield first, cell, cells
            return
        # Triples of four specs: 0 1 is continued by 2 and by 3, 0 2 by 3, and 1 2 by 3.
        for spec in range(first, len(self.sizes) - size + 1):
            joint, count = self._joined(cell, cells, slice(spec, spec + 1))
            yield from self._prefixes(size - 1, spec + 1, joint[0], count)

    def _joined(self, cell: np.ndarray, cells: int, specs: slice) -> tuple[np.ndarray, int]:
        """Each row's cell with one more spec, for some specs of as many parts, and how many cells there are."""
        # Parts 1, 2 and 3 of specs of 2, 3 and 4 parts: cell 1 * 3 + 2 = 5, and then 5 * 4 + 3 = 23.
        size = self.sizes[specs.start]
        joint, count = cell * size + self.codes[specs], cells * size
        if count * self.classes > max(DENSE_CELLS, 2 * len(cell)):
            # Most cells are empty, and an empty cell adds nothing to a score: number the others.
            occupied, number = np.unique(joint, return_inverse=True)
            joint, count = number.reshape(joint.shape), max(1, len(occupied))
        return joint, count

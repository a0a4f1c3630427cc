# SPDX-License-Identifier: Apache-2.0
"""``AnyCrossScorer`` scores every combination of so many specs.

35 columns have 5,984 triples beside a target, 60 have 32,509. As a family they are one candidate of
a request however many they are, and all members are scored from one listing of the table, each from
a small table of its own that is counted and forgotten: memory follows the rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from pinq.curator.candidates.scorer import SCORING, Frame, Runs, Scorer
from pinq.curator.counted import Counted
from pinq.curator.work import CELL, ROW, Turn
from pinq.errors import QueryError
from pinq.public.schema import Schema
from pinq.public.scores import Score
from pinq.public.specs import AnyCross, bind

__all__ = ["AnyCrossScorer", "member_scores"]

BLOCK = 2**18  # keys that are made at a time
DENSE_CELLS = 2**22  # a larger table is counted by sorting


class AnyCrossScorer(Scorer[AnyCross]):
    """Scores every member from one listing of the occupied cells over all specs."""

    def __init__(self, candidate: AnyCross, frame: Frame) -> None:
        if not frame.classes:
            raise QueryError(
                f"{candidate!r} goes with scores of a table of classes, and {frame.score.kind} is not one."
            )
        axes = tuple(bind(spec, frame.schema).axes[0] for spec in candidate.specs)
        self._sizes = [axis.size for axis in axes]
        candidate.require_room(self._sizes, frame.classes[0].size)
        super().__init__(candidate, frame)
        self.table = frame.add_list(axes)

    @property
    def options(self) -> int:
        """Its members."""
        return len(self.candidate)

    @property
    def most_runs(self) -> int:
        """Its members."""
        return len(self.candidate)

    @property
    def work(self) -> int:
        """Its members: for each, the rows are looked up in a table of its own."""
        # Pairs of specs of 2, 5 and 9 parts: no pair has more than 5 * 9 cells.
        cells = math.prod(sorted(self._sizes)[-self.candidate.size :]) * self.frame.width
        rows = self.frame.schema.max_rows
        return SCORING + len(self.candidate) * (SCORING + ROW * rows + CELL * min(cells, rows))

    def flips(self, size: int) -> bool:
        """Always."""
        return True

    def runs(self, counted: Counted, rows: np.ndarray) -> list[Runs]:
        """Each member as a run."""
        table = counted.listed(self.table)
        frame, classes = self.frame, self.frame.classes[0].size
        numbers, single = np.arange(len(self.candidate), dtype=np.int64), np.ones(len(self.candidate), dtype=np.int64)
        runs = []
        for row in rows:
            mine = slice(None) if len(counted.parts) == 1 else table.parts == row
            codes, counts = table.codes[:, mine], table.counts[mine]
            scores = member_scores(
                codes[:-1],
                codes[-1],
                counts,
                self._sizes,
                classes,
                self.candidate.size,
                frame.score,
                frame.schema,
                counted.turn,
            )
            runs.append(Runs(scores, single, numbers, self.candidate.member))
        return runs


def member_scores(
    codes: np.ndarray,
    target: np.ndarray,
    counts: np.ndarray,
    sizes: Sequence[int],
    classes: int,
    size: int,
    score: Score,
    schema: Schema,
    turn: Turn | None = None,
) -> np.ndarray:
    """The exact score of every member of an ``AnyCross``.

    A score of classes is a sum over cells, and an empty cell adds nothing; so the tables of several
    members are counted side by side as one long table, and each member's score is the sum over its
    own stretch of it.

    Args:
        codes: The part of each listed row along each spec, shape (specs, rows).
        target: Its class, shape (rows,).
        counts: How often it occurs, shape (rows,).
        sizes: Parts of each spec.
        classes: Classes of the target.
        size: How many specs make a member.
        score: A score of classes; see ``pinq.public.scores``.
        schema: For the score.
        turn: When it ends, scoring ends; None for never.

    Returns:
        int64, shape (members,), in the order of ``itertools.combinations``.
    """
    if counts.sum() <= 2 * len(counts):  # counting a row twice is cheaper than weighing it
        codes, target, counts = np.repeat(codes, counts, axis=1), np.repeat(target, counts), np.ones(0, dtype=np.int64)
    turn = turn or Turn()
    last = codes * np.int64(classes) + target
    lengths = np.array(sizes, dtype=np.int64)
    step = max(1, BLOCK // max(1, codes.shape[1]))
    room = np.empty((min(step, len(lengths)), codes.shape[1]), dtype=np.int64)
    scores: list[np.ndarray] = []
    for start, prefix, cells in _prefixes(codes, lengths, size):
        # Every member that continues this prefix by one more spec, some at a time.
        for low in range(start, len(lengths), step):
            turn.check()
            block = slice(low, min(low + step, len(lengths)))
            # Parts 1, 2 and 3 of specs of 2, 3 and 4 parts, class 1 of two: the prefix is cell 1 *
            # 3 + 2 = 5, and the row has the key (5 * 4 + 3) * 2 + 1 = 47.
            keys = np.multiply(prefix, (lengths[block] * classes)[:, None], out=room[: block.stop - low])
            keys += last[block]
            scores.append(_block(keys, cells * lengths[block], classes, counts, score, schema))
    return np.concatenate(scores)


def _prefixes(
    codes: np.ndarray, sizes: np.ndarray, size: int, start: int = 0, cell: np.ndarray | None = None, cells: int = 1
) -> Iterator[tuple[int, np.ndarray, int]]:
    """All choices of ``size - 1`` specs, in lexicographic order.

    Yields:
        Where the next spec may start, each row's joint cell, and how many cells there are.
    """
    if cell is None:
        cell = np.zeros(codes.shape[1], dtype=np.int64)
    if size == 1:
        yield start, cell, cells
        return
    # Triples of four specs: 0 1 is continued by 2 and by 3, 0 2 by 3, and 1 2 by 3.
    for spec in range(start, len(sizes) - size + 1):
        joint, count = cell * sizes[spec] + codes[spec], cells * int(sizes[spec])
        if count > max(DENSE_CELLS, 2 * len(joint)):  # most of them are empty: number the others
            occupied, joint = np.unique(joint, return_inverse=True)
            count = max(1, len(occupied))
        yield from _prefixes(codes, sizes, size - 1, spec + 1, joint, count)


def _block(
    keys: np.ndarray, cells: np.ndarray, classes: int, counts: np.ndarray, score: Score, schema: Schema
) -> np.ndarray:
    """The scores of several members.

    Args:
        keys: Each row's cell of each member times ``classes`` plus its class, shape (members,
            rows); overwritten.
        cells: Cells of each member.
        classes: Classes of the target.
        counts: As in ``member_scores``; empty where every row counts once.
        score: As in ``member_scores``.
        schema: As in ``member_scores``.
    """
    # Members of 6 and 4 cells and two classes: the first has keys 0 to 11, the second 12 to 19, and
    # cells 0 to 5 and 6 to 9 of the long table.
    ends = np.cumsum(cells)
    keys += ((ends - cells) * classes)[:, None]
    flat, total, numbers = keys.ravel(), int(ends[-1]), None
    if total * classes > max(DENSE_CELLS, 2 * flat.size):  # most cells are empty: number the others
        cell, label = np.divmod(flat, classes)
        numbers, cell = np.unique(cell, return_inverse=True)
        flat, total = cell * classes + label, len(numbers)
    weights = np.tile(counts, len(cells)) if len(counts) else None
    table = np.bincount(flat, weights, total * classes).astype(np.int64, copy=False).reshape(-1, classes)
    if numbers is None:
        numbers = np.flatnonzero(table @ np.ones(classes, dtype=np.int64))
        table = table[numbers]
    # `numbers` are the occupied cells, in order. If these are 1, 4 and 7, the first member's score
    # is that of two cells, summed[2] - summed[0], and the second's summed[3] - summed[2].
    summed = np.concatenate([[0], np.cumsum(score.of(table[:, None, :], schema))])
    return summed[np.searchsorted(numbers, ends)] - summed[np.searchsorted(numbers, ends - cells)]

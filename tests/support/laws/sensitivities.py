# SPDX-License-Identifier: Apache-2.0
"""A search for a score's sensitivity: every small table, and every row that can be added to it.

It can refute a declared sensitivity and never proves one. A new score passes it first::

    found = search_sensitivity(Gini("income"), schema, cells=3, classes=2)
    assert found.span <= Gini("income").span(schema)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from pinq.public.schema import Schema


@dataclass(frozen=True)
class Movement:
    """The changes of a score by one added row, over all tried tables.

    Attributes:
        change: The largest change of one candidate's score, in the score's units.
        span: The largest change of the difference of two candidates' scores.
        monotone: Whether no two candidates ever moved in opposite directions.
        tables: The number of tried pairs of neighbouring tables.
    """

    change: int
    span: int
    monotone: bool
    tables: int


def search_sensitivity(
    score: Any, schema: Schema, *, cells: int = 2, classes: int = 2, rows: int | None = None
) -> Movement:
    """Tries every table of counts of at most ``rows`` rows, and every row that can be added.

    Two candidates see the same rows, so their tables have the same number of rows of each class. Any
    two such tables belong to two columns of one dataset. Hence the span is the widest range of changes
    among tables that agree in the classes, for a row of one class.

    Args:
        score: One of ``pinq.language.scores``, or an object with ``measure`` ("classes", "rows",
            "moments" or "vectors") and ``of(table, schema)``; tables are as in
            ``pinq.language.scores``. A score without ``of`` is the counts themselves, one candidate
            for each class. For a score of vectors, all rows are in the first part of each other input.
        schema: The schema; its ``max_rows`` bounds the larger table if ``rows`` is None.
        cells: The number of parts of a candidate.
        classes: The number of classes of the target; for "moments" the levels 0, 1, ...
        rows: The rows of the larger table. The number of tables grows as its power ``cells * classes``.
    """
    largest = schema.max_rows if rows is None else rows
    measure = getattr(score, "measure", "classes")
    kinds = 1 if measure == "rows" else classes
    counts = np.array(list(small_tables(cells * kinds, largest - 1)), dtype=np.int64).reshape(-1, cells, kinds)
    # Cells (2, 0) and (0, 1) agree with cells (1, 1) and (1, 0): two rows of one class, one of the other.
    agree = np.unique(counts.sum(axis=1), axis=0, return_inverse=True)[1].reshape(-1)
    before = _scores(score, counts, schema, measure)
    change = span = 0
    monotone, tried = True, 0
    for kind in range(kinds):
        low = np.full((agree.max() + 1, before.shape[1]), np.iinfo(np.int64).max)
        high = np.full((agree.max() + 1, before.shape[1]), np.iinfo(np.int64).min)
        for cell in range(cells):
            after = counts.copy()
            after[:, cell, kind] += 1
            moved = _scores(score, after, schema, measure) - before
            np.minimum.at(low, agree, moved)
            np.maximum.at(high, agree, moved)
            tried += len(moved)
        change = max(change, int(np.abs(low).max()), int(np.abs(high).max()))
        lowest, highest = low.min(axis=1), high.max(axis=1)
        span = max(span, int((highest - lowest).max()))
        monotone = monotone and not bool(((lowest < 0) & (highest > 0)).any())
    return Movement(change, span, monotone, tried)


def small_tables(cells: int, rows: int) -> Iterator[tuple[int, ...]]:
    """Every table of ``cells`` counts with at most ``rows`` rows."""
    if cells == 0:
        yield ()
        return
    for first in range(rows + 1):
        for others in small_tables(cells - 1, rows - first):
            yield (first, *others)


def _scores(score: Any, counts: np.ndarray, schema: Schema, measure: str) -> np.ndarray:
    """Scores tables of counts, shape (tables, candidates); one candidate, unless the score is the counts."""
    if not hasattr(score, "of"):
        return counts.sum(axis=1)
    if measure == "moments":
        # 2, 0 and 1 rows on levels 0 to 2 are 3 rows with sum 2 and sum of squares 4.
        levels = np.arange(counts.shape[2], dtype=np.int64)
        counts = np.stack([counts.sum(axis=2), counts @ levels, counts @ levels**2], axis=-1)
    if measure == "vectors":
        vectors = score.vectors(schema)
        first = [np.zeros(counts.shape[2], dtype=np.int64)] * (len(vectors.inputs) - 1)
        counts = counts @ vectors.of([*first, np.arange(counts.shape[2])]).T
    return np.asarray(score.of(counts, schema)).astype(np.int64)[:, None]

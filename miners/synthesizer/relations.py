# SPDX-License-Identifier: Apache-2.0
"""Relations between two columns that synthetic rows keep: a declared order, and values that determine others.

A model of noisy tables gives every cell some rows, also a start date after its end date. Cells against a declared order
are emptied, and the rows of a cell exchange numbers until they obey.

Privacy:
    Claim: free. Why: it is computed from earlier answers and from the user's declarations. Held by:
    tests/unit/synthesizer/test_relations.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from miners.synthesizer.graphical_model import Clique, Measurement
from pinq.errors import QueryError
from pinq.language.specs import Cuts, Values, bind
from pinq.public.schema import Schema

MEETINGS = 30  # rounds of random pairs of a cell's rows; each round mends about half of the wrong rows
PLAIN = 2.0  # deviations of noise; cells far out with fewer rows are empty
TELLING = 10.0  # deviations of noise by which a relation must be better than the most frequent value alone


def ordered(schema: Schema, columns: Sequence[str], order: Any) -> tuple[tuple[str, str], ...]:
    """Reads pairs of numeric columns of one unit; the first is never the larger.

    Raises:
        QueryError: ``order`` is something else.
    """
    allowed = 'pairs of numeric columns of the model in one unit, like `[("from", "to")]`'
    if isinstance(order, str) or not isinstance(order, Sequence):
        raise QueryError(f"is {order!r}", parameter="order", allowed=allowed)
    for pair in order:
        whole = isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(name, str) for name in pair)
        if not whole or len({*pair}) < 2 or not {*pair} <= {*columns} & {*schema.numeric_columns}:
            raise QueryError(f"holds {pair!r}", parameter="order", allowed=allowed)
        if len({schema.numeric(name).unit for name in pair}) > 1:
            raise QueryError(f"holds {pair!r}, which have two units", parameter="order", allowed=allowed)
    return tuple((low, high) for low, high in order)


def grid_edges(schema: Schema, spec: Values | Cuts) -> np.ndarray:
    """Returns the first grid cell of each cell of a numeric column, and the first beyond its bounds."""
    return np.unique(bind(spec, schema).axes[0].edges(schema.numeric(spec.column).cells))


def limits(schema: Schema, spec: Values | Cuts) -> np.ndarray:
    """Returns the ends of each cell of a numeric column as numbers, shape (2, cells)."""
    column, edges = schema.numeric(spec.column), grid_edges(schema, spec)
    return float(column.lower) + float(column.width) * np.array([edges[:-1], edges[1:]])


def possible(lows: np.ndarray, highs: np.ndarray, sizes: tuple[int, int]) -> np.ndarray:
    """Returns 1 for each pair of cells in which the smaller column can be below the larger one, else 0.

    Args:
        lows: The limits of the smaller column's cells, shape (2, cells).
        highs: The limits of the larger column's cells.
        sizes: The cells of both, with missing values at the end.
    """
    fits = np.ones(sizes)
    fits[: lows.shape[1], : highs.shape[1]] = np.less.outer(lows[0], highs[1])
    return fits


def determined(table: np.ndarray, deviation: float) -> np.ndarray | None:
    """Returns the possible cells of a noisy table if each value determines a value of the other column; else None.

    Args:
        table: Noisy rows, shape (cells, cells).
        deviation: The deviation of the noise in each.
    """
    # Five diplomas with fixed years: 900 of 1,000 rows in five cells, and 100 in 20 cells, whose noise is 150 in all.
    possible = (table == table.max(axis=1, keepdims=True)) | (table == table.max(axis=0, keepdims=True))
    noise = deviation * math.sqrt(table.size - possible.sum())
    usual = table.sum() - max(table.sum(axis=0).max(), table.sum(axis=1).max())
    return possible if table[~possible].sum() <= noise < usual / TELLING else None


def margin_noise(bought: Sequence[Measurement], number: int, cells: int) -> float:
    """The deviation of the noise in the rows of each cell of a column, in the most exact table that has it."""
    # In a table of 12 x 5 cells, each of the twelve sums has the noise of five cells.
    return min(table.deviation * math.sqrt(len(table.counts) / cells) for table in bought if number in table.columns)


def occupied(
    rows: np.ndarray, bought: Sequence[Measurement], number: int, cells: int, hidden_share: float = 1.0
) -> np.ndarray:
    """Whether each cell of a numeric column clearly has rows; cells far out need more rows than noise.

    The farthest cells are emptied first, with at most ``hidden_share`` of the rows.
    """
    noise = margin_noise(bought, number, len(rows))
    with_number = rows[:cells]
    median = int(np.searchsorted(with_number.cumsum(), with_number.sum() / 2))
    plain = [*np.flatnonzero(with_number > PLAIN * noise).tolist(), min(median, cells - 1)]
    is_occupied, far = np.ones(len(rows), dtype=bool), np.argsort(-np.abs(np.arange(cells) - median), kind="stable")
    far = far[(far < min(plain)) | (far > max(plain))]
    is_occupied[far[with_number[far].cumsum() <= hidden_share * with_number.sum()]] = False
    return is_occupied


def detected(bought: Sequence[Measurement], sizes: Sequence[int]) -> dict[Clique, np.ndarray]:
    """Returns the possible cells of each pair of columns in whose most exact table values determine others."""
    pairs = sorted((table for table in bought if len(table.columns) == 2), key=lambda table: -table.deviation)
    exact = {table.columns: table for table in pairs}
    masks = {
        columns: determined(table.counts.reshape([sizes[number] for number in columns]), table.deviation)
        for columns, table in exact.items()
    }
    return {columns: mask.astype(np.float64) for columns, mask in masks.items() if mask is not None}


def in_order(
    low: np.ndarray, high: np.ndarray, cells: np.ndarray, largest: float, random: np.random.Generator
) -> np.ndarray:
    """Exchanges the larger numbers among rows of one cell, until none is below the smaller number of its row.

    Within its cell a number depends on no other column, so exchanges change no relation of cells. Random pairs of rows
    exchange first. Then a cell with wrong rows is sorted.
    """
    high = high.copy()
    for cell in np.unique(cells[low > high]):
        rows = np.flatnonzero(cells == cell)
        for _ in range(MEETINGS):
            first, second = random.permutation(rows)[: len(rows) // 2 * 2].reshape(2, -1)
            wrong = (low[first] > high[first]) | (low[second] > high[second])
            swapped = wrong & (low[first] <= high[second]) & (low[second] <= high[first])
            first, second = first[swapped], second[swapped]
            high[first], high[second] = high[second], high[first]
        if (low[rows] > high[rows]).any():
            high[rows[np.argsort(low[rows])]] = np.sort(high[rows])
    # A few wrong rows may remain in cells that noise combined.
    return np.maximum(high, np.minimum(low, largest))

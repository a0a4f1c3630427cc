# SPDX-License-Identifier: Apache-2.0
"""Relations between two columns that synthetic rows keep: an order that is declared, and values that fix others.

A model of noisy tables gives every cell some rows. Dates then lie before those that they follow, and parts exceed
their wholes; the tenth class stands beside the number of years of the twelfth. Where a user declares an order, cells
against it are emptied, and numbers change places among the rows of a cell until they obey. Where a noisy table says
no more rows than its noise outside of the largest cell of each value, all other cells are emptied.

Privacy:
    Claim: free. Why: it is computed from earlier answers and from what a user declares. Held by:
    tests/unit/synthesizer/test_relations.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from miners.synthesizer.graphical_model import Clique, Measurement
from pinq.errors import QueryError
from pinq.language.specs import Spec, bind
from pinq.public.schema import Schema

MEETINGS = 30  # of two rows of a cell at random: half of the wrong ones find a partner each time
PLAIN = 2.0  # deviations of noise: cells of numbers far out with fewer rows are empty
TELLING = 10.0  # deviations of noise by which the most frequent value alone must be worse than a relation


def ordered(schema: Schema, columns: Sequence[str], order: Any) -> tuple[tuple[str, str], ...]:
    """Reads pairs of numeric columns of one unit, of which the first is never the larger.

    Raises:
        QueryError: It is something else.
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


def limits(schema: Schema, spec: Spec, name: str) -> np.ndarray:
    """Returns the ends of each cell of a numeric column as numbers, shape (2, cells)."""
    column = schema.numeric(name)
    edges = np.unique(bind(spec, schema).axes[0].edges(column.cells))
    return float(column.lower) + float(column.width) * np.array([edges[:-1], edges[1:]])


def possible(lows: np.ndarray, highs: np.ndarray, sizes: tuple[int, int]) -> np.ndarray:
    """Returns whether numbers of two cells can lie in order.

    Args:
        lows: The limits of the smaller column's cells, shape (2, cells).
        highs: The limits of the larger column's cells.
        sizes: The cells of both, with missing values at the end.
    """
    fits = np.ones(sizes)
    fits[: lows.shape[1], : highs.shape[1]] = np.less.outer(lows[0], highs[1])
    return fits


def determined(table: np.ndarray, deviation: float) -> np.ndarray | None:
    """Returns which cells of a noisy table can have rows, if each value fixes one of the other column; else None.

    Args:
        table: Noisy rows, shape (cells, cells).
        deviation: The deviation of the noise in each.
    """
    # Five diplomas, each with its years: 900 of 1,000 rows in five cells, 100 in 20, whose noise is 150 in all.
    kept = (table == table.max(axis=1, keepdims=True)) | (table == table.max(axis=0, keepdims=True))
    noise = deviation * math.sqrt(table.size - kept.sum())
    usual = table.sum() - max(table.sum(axis=0).max(), table.sum(axis=1).max())
    return kept if table[~kept].sum() <= noise < usual / TELLING else None


def occupied(rows: np.ndarray, bought: Sequence[Measurement], number: int, cells: int, most: float = 1.0) -> np.ndarray:
    """Returns whether each cell of a numeric column is seen to have rows: far out, rows must be more than noise.

    The farthest cells are hidden first.

    Args:
        rows: The rows of each cell in the model.
        bought: The noisy tables.
        number: The column.
        cells: Its cells but that of missing values.
        most: The share of the rows that may be hidden at the most.
    """
    # A table of 12 x 5 cells adds up five noises for each of twelve.
    noise = min(own.deviation * math.sqrt(len(own.counts) / len(rows)) for own in bought if number in own.columns)
    known = rows[:cells]
    median = int(np.searchsorted(known.cumsum(), known.sum() / 2))
    plain = [*np.flatnonzero(known > PLAIN * noise).tolist(), min(median, cells - 1)]
    seen, far = np.ones(len(rows), dtype=bool), np.argsort(-np.abs(np.arange(cells) - median), kind="stable")
    far = far[(far < min(plain)) | (far > max(plain))]
    seen[far[known[far].cumsum() <= most * known.sum()]] = False
    return seen


def found(bought: Sequence[Measurement], sizes: Sequence[int]) -> dict[Clique, np.ndarray]:
    """Returns the cells that can have rows, of each pair of columns whose most exact table fixes values."""
    pairs = sorted((own for own in bought if len(own.columns) == 2), key=lambda own: -own.deviation)
    exact = {own.columns: own for own in pairs}
    masks = {
        columns: determined(own.counts.reshape([sizes[number] for number in columns]), own.deviation)
        for columns, own in exact.items()
    }
    return {columns: mask.astype(np.float64) for columns, mask in masks.items() if mask is not None}


def in_order(
    low: np.ndarray, high: np.ndarray, cells: np.ndarray, most: float, random: np.random.Generator
) -> np.ndarray:
    """Exchanges the larger numbers among rows of one cell, until none is below the smaller number of its row.

    In its cell a number depends on no other column, so the relations of cells stay, and all numbers do. Rows meet at
    random. A cell that still has wrong rows is sorted, and sorting finds an order if there is one.

    Args:
        low: The smaller number of each row.
        high: The larger one.
        cells: The cell of the larger one.
        most: The largest number that there can be.
        random: Public random numbers.
    """
    high = high.copy()
    for cell in np.unique(cells[low > high]):
        rows = np.flatnonzero(cells == cell)
        for _ in range(MEETINGS):
            one, other = random.permutation(rows)[: len(rows) // 2 * 2].reshape(2, -1)
            wrong = (low[one] > high[one]) | (low[other] > high[other])
            swapped = wrong & (low[one] <= high[other]) & (low[other] <= high[one])
            one, other = one[swapped], other[swapped]
            high[one], high[other] = high[other], high[one]
        if (low[rows] > high[rows]).any():
            high[rows[np.argsort(low[rows])]] = np.sort(high[rows])
    # A few rows of cells that noise has put together are left.
    return np.maximum(high, np.minimum(low, most))

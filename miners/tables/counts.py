# SPDX-License-Identifier: Apache-2.0
"""``crosstab``, ``histogram`` and ``top_k``: tables of counts, one question each."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from miners.budget.plan import PlanLine
from miners.tables.columns import ALL, Column, Columns, count_line, even_cuts, is_categorical, specs_of
from miners.tables.noise import half_width, scale_of
from miners.tables.table import Draft, Picture, Table, TableFunction, require_level
from pinq.analyst.answers import NoisyArray
from pinq.analyst.queryable import Parts, PrivateQueryable
from pinq.errors import QueryError
from pinq.public.epsilon import Epsilon, Loss
from pinq.public.schema import Schema
from pinq.public.specs import Cuts, Spec, Values

__all__ = ["crosstab", "histogram", "top_k"]

NONNEGATIVE = (
    "cells were moved to the nearest table without negative numbers that has the same total; "
    "small cells are too large on average, and their intervals are those of the noisy counts, cut at 0"
)
MARGINS = "margins are the sums of the cells, so they agree with them; their intervals are wider than a count's"


@TableFunction
def crosstab(
    handle: PrivateQueryable,
    rows: Columns,
    columns: Columns = (),
    *,
    epsilon: Loss,
    level: float = 0.95,
    margins: bool = False,
    nonnegative: bool = False,
    reuse: bool = False,
) -> Draft:
    """Counts the rows of every combination of some columns' values.

    Args:
        handle: On a table, or on a part of it (``where``).
        rows: A column, or several. A numeric one is cut where its policy declares; ``Cuts(column,
            [...])`` cuts it elsewhere.
        columns: More of them: ``table.wide()`` puts the last one across.
        epsilon: Loss; all cells together cost it once, for they are disjoint.
        level: Of the intervals.
        margins: Whether to add the sums over each column, called ``"All"``.
        nonnegative: Whether to move the counts to the nearest table without negative numbers.
        reuse: Return the stored answer where this was asked before, at no cost.

    Returns:
        A row for each cell: its labels, ``value``, ``low``, ``high``. Counts can be negative unless
        ``nonnegative``.

    Raises:
        QueryError: Malformed.
        BudgetExceeded: More than what remains; nothing was spent.
    """
    specs = [*specs_of(handle.schema, rows), *specs_of(handle.schema, columns)]
    names = [factor.columns() for spec in specs for factor in spec.factors]
    title = f"rows by {' and '.join(', '.join(sorted(name)) or 'shard' for name in names)}"
    notes = ((MARGINS,) if margins else ()) + ((NONNEGATIVE,) if nonnegative else ())
    counts = _Counts(handle.partition(*specs), Epsilon.of(epsilon), require_level(level), bool(reuse))

    def answer() -> Table:
        cells = counts.ask()
        if nonnegative:
            cells = cells.nonnegative()
        frame, scale = cells.with_margins(level) if margins else (cells.frame(), cells.scales())
        picture: Picture = "heat" if cells.values.ndim == 2 else "bars"
        return Table(title, frame, scale, counts.epsilon.exact, level, notes, picture)

    return Draft(title, (counts.line(handle.schema, title),), answer, notes)


@TableFunction
def histogram(
    handle: PrivateQueryable,
    column: str,
    bins: int | Sequence[float] | None = None,
    *,
    by: Columns | None = None,
    epsilon: Loss,
    level: float = 0.95,
    reuse: bool = False,
) -> Draft:
    """Counts the rows in each bin of a numeric column, or of each value of a categorical one.

    Args:
        handle: On a table, or on a part of it.
        column: Which.
        bins: Of a numeric column: how many bins of equal width between its declared bounds, or where
            to cut; by default where the policy declares, else 10 bins. Bins never follow the rows.
        by: Groups to count apart.
        epsilon: Loss; all bins together cost it once.
        level: Of the intervals.
        reuse: As in ``crosstab``.

    Returns:
        A row for each bin: the groups' labels, the bin's, ``value``, ``low``, ``high``.
    """
    groups = [] if by is None else specs_of(handle.schema, by)
    spec = _bins(handle.schema, column, bins)
    title = f"rows by {column}"
    counts = _Counts(handle.partition(*groups, spec), Epsilon.of(epsilon), require_level(level), bool(reuse))

    def answer() -> Table:
        cells = counts.ask()
        return Table(title, cells.frame(), cells.scales(), counts.epsilon.exact, level)

    return Draft(title, (counts.line(handle.schema, title),), answer)


@TableFunction
def top_k(
    handle: PrivateQueryable,
    column: Column,
    k: int = 5,
    *,
    epsilon: Loss,
    level: float = 0.95,
    reuse: bool = False,
) -> Draft:
    """Finds the k most frequent values of a column, by noisy counts of all of them.

    Args:
        handle: On a table, or on a part of it.
        column: A categorical column, or a spec.
        k: How many.
        epsilon: Loss; all values are counted at once, and looking for the largest is free.
        level: With which probability all intervals hold together. Being among the largest selects
            for upward noise, so they are wider than those of ``histogram``.
        reuse: As in ``crosstab``.

    Returns:
        A row for each of the k values, the largest count first.
    """
    (spec,) = specs_of(handle.schema, [column])
    parts: Parts = handle.partition(spec)
    if k != int(k) or not 1 <= k <= len(parts):
        raise QueryError(f"is {k!r}", parameter="k", allowed=f"a whole number from 1 to {len(parts)}, the values")
    each = 1 - (1 - require_level(level)) / len(parts)
    title = f"the {k} most frequent values of {', '.join(sorted(spec.columns()))}"
    counts = _Counts(parts, Epsilon.of(epsilon), each, bool(reuse))

    def answer() -> Table:
        cells = counts.ask()
        frame = cells.frame().sort_values("value", ascending=False, kind="stable").head(int(k))
        scale = cells.scales().loc[frame.index].reset_index(drop=True)
        notes = ("the intervals hold together, with all other values' too",)
        return Table(title, frame.reset_index(drop=True), scale, counts.epsilon.exact, level, notes)

    return Draft(title, (counts.line(handle.schema, title),), answer)


@dataclass(frozen=True)
class _Counts:
    """One question for counts: of which parts, at which loss and level."""

    parts: Parts
    epsilon: Epsilon
    level: float
    reuse: bool

    def line(self, schema: Schema, asked: str) -> PlanLine:
        return count_line(schema, asked, len(self.parts), self.epsilon)

    def ask(self) -> _Cells:
        values = self.parts.noisy_count(epsilon=self.epsilon.exact, reuse=self.reuse)
        low, high = values.interval(self.level)
        return _Cells(self.parts, values, +values, low, high)


@dataclass(frozen=True)
class _Cells:
    """Noisy counts with their intervals, all of the parts' shape."""

    parts: Parts
    answer: NoisyArray
    values: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def frame(self) -> pd.DataFrame:
        """A row for each part."""
        return self.parts.frame(self.values).assign(low=self.low.reshape(-1), high=self.high.reshape(-1))

    def scales(self) -> pd.Series:
        """The scale of each count."""
        return pd.Series(np.full(self.values.size, scale_of(self.answer)), name="scale")

    def nonnegative(self) -> _Cells:
        """Moves the counts to the nearest ones that are at least 0 and have the same total."""
        values = _nearest_nonnegative(self.values.astype(np.float64).reshape(-1)).reshape(self.values.shape)
        return _Cells(self.parts, self.answer, values, np.maximum(self.low, 0), np.maximum(self.high, 0))

    def with_margins(self, level: float) -> tuple[pd.DataFrame, pd.Series]:
        """Adds the sums over each subset of the axes, with intervals of sums of noises."""
        frame, axes = self.frame(), self.values.ndim
        frames, scales = [frame], [self.scales()]
        names = [name for name in frame.columns if name not in ("value", "low", "high")]
        labels = [list(dict.fromkeys(frame[name])) for name in names]
        scale = scale_of(self.answer)
        for kept in _subsets(axes):
            summed = tuple(axis for axis in range(axes) if axis not in kept)
            sums, noises = self.values.sum(axis=summed), int(np.prod([self.values.shape[axis] for axis in summed]))
            exact = (+self.answer).sum(axis=summed)
            half = int(half_width(np.ones(noises), scale, level))
            keys = list(itertools.product(*(labels[axis] if axis in kept else [ALL] for axis in range(axes))))
            frames.append(
                pd.DataFrame(keys, columns=names, dtype=object).assign(
                    value=np.ravel(sums), low=np.ravel(exact - half), high=np.ravel(exact + half)
                )
            )
            scales.append(pd.Series(np.full(np.size(sums), np.nan)))
        return pd.concat(frames, ignore_index=True), pd.concat(scales, ignore_index=True)


def _bins(schema: Schema, column: str, bins: int | Sequence[float] | None) -> Spec:
    if is_categorical(schema, column):
        if bins is not None:
            raise QueryError(f"`{column}` is categorical; it takes no `bins`.")
        return Values(column)
    if isinstance(bins, int):
        return even_cuts(schema, column, bins)
    if bins is not None:
        return Cuts(column, tuple(bins))
    cuts = schema.numeric(column).declared_cuts
    return Cuts(column, cuts) if cuts else even_cuts(schema, column, 10)


def _subsets(axes: int) -> list[tuple[int, ...]]:
    """Lists the axes that each margin keeps, most first: of two axes (0,), (1,) and none."""
    kept = [tuple(axis for axis in range(axes) if mask >> axis & 1) for mask in range(2**axes - 1)]
    return sorted(kept, key=lambda subset: (-len(subset), subset))


def _nearest_nonnegative(values: np.ndarray) -> np.ndarray:
    """Projects numbers on those of at least 0 with the same total, or 0 if that is negative.

    All are lowered by one amount and cut at 0: of (5, 1, -2), total 4, by 1: (4, 0, 0).
    """
    total = max(0.0, float(values.sum()))
    descending = np.sort(values)[::-1]
    excess = (np.cumsum(descending) - total) / np.arange(1, len(values) + 1)
    positive = np.flatnonzero(descending - excess > 0)
    lowered = excess[positive[-1]] if len(positive) else descending[0]
    return np.maximum(values - lowered, 0.0)

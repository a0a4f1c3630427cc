# SPDX-License-Identifier: Apache-2.0
"""``crosstab``, ``histogram`` and ``top_k``: tables of counts, one question each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from miners.tables.arguments import require_count, require_level
from miners.tables.cells import NONNEGATIVE, CountQuestion
from miners.tables.columns import Column, Columns, even_cuts, is_categorical, specs_of
from miners.tables.cross_table import CrossTable, Margins
from miners.tables.table import Draft, Table, TableFunction
from pinq.analyst.queryable import Parts, PrivateQueryable
from pinq.errors import QueryError
from pinq.public.checks import is_listing
from pinq.public.epsilon import Epsilon, Loss
from pinq.public.schema import Schema
from pinq.public.specs import Cuts, Spec, Values

__all__ = ["crosstab", "histogram", "top_k"]


@TableFunction
def crosstab(
    handle: PrivateQueryable,
    rows: Columns,
    columns: Columns = (),
    *,
    epsilon: Loss,
    level: float = 0.95,
    margins: Margins = False,
    consistent: bool = False,
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
        margins: Whether to add the sums over each column, called ``"All"``. ``"asked"`` asks for
            each margin by itself, at an equal share of epsilon: sums of many cells are then more
            exact, the cells less, and they do not agree.
        consistent: With ``margins="asked"``: whether to move cells and margins to the nearest ones
            that agree.
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
    factors = cast(tuple[Spec, ...], tuple(factor for spec in specs for factor in spec.factors))
    if margins not in (True, False, "asked"):
        raise QueryError(f"is {margins!r}", parameter="margins", allowed="False, True or 'asked'")
    if consistent and margins != "asked":
        raise QueryError("is True; sums of cells agree, so it goes with margins='asked'", parameter="consistent")
    table = CrossTable(factors, require_level(level), margins, consistent, nonnegative)
    return table.draft(handle, Epsilon.of(epsilon), reuse=bool(reuse))


@TableFunction
def histogram(
    handle: PrivateQueryable,
    column: str,
    bins: int | Sequence[float] | None = None,
    *,
    by: Columns | None = None,
    epsilon: Loss,
    level: float = 0.95,
    nonnegative: bool = False,
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
        nonnegative: Whether to move the counts to the nearest table without negative numbers.
        reuse: As in ``crosstab``.

    Returns:
        A row for each bin: the groups' labels, the bin's, ``value``, ``low``, ``high``.
    """
    groups = [] if by is None else specs_of(handle.schema, by)
    spec = _bins(handle.schema, column, bins)
    title = f"rows by {column}"
    counts = CountQuestion(handle.partition(*groups, spec), Epsilon.of(epsilon), require_level(level), bool(reuse))

    notes = (NONNEGATIVE,) if nonnegative else ()

    def answer() -> Table:
        cells = counts.ask()
        cells = cells.nonnegative() if nonnegative else cells
        return Table(title, cells.frame(), cells.scales(), counts.epsilon.exact, level, notes)

    return Draft(title, (counts.line(handle.schema, title),), answer, notes)


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
    k = require_count(k, "k", 1, len(parts), ", the values")
    each = 1 - (1 - require_level(level)) / len(parts)
    title = f"the {k} most frequent values of {', '.join(sorted(spec.columns()))}"
    counts = CountQuestion(parts, Epsilon.of(epsilon), each, bool(reuse))

    def answer() -> Table:
        cells = counts.ask()
        frame = cells.frame().sort_values("value", ascending=False, kind="stable").head(k)
        scale = cells.scales().loc[frame.index].reset_index(drop=True)
        notes = ("the intervals hold together, with all other values' too",)
        return Table(title, frame.reset_index(drop=True), scale, counts.epsilon.exact, level, notes)

    return Draft(title, (counts.line(handle.schema, title),), answer)


def _bins(schema: Schema, column: str, bins: int | Sequence[float] | None) -> Spec:
    if is_categorical(schema, column):
        if bins is not None:
            raise QueryError(f"`{column}` is categorical; it takes no `bins`.")
        return Values(column)
    if bins is not None:
        return Cuts(column, tuple(bins)) if is_listing(bins) else even_cuts(schema, column, bins)
    cuts = schema.numeric(column).declared_cuts
    return Cuts(column, cuts) if cuts else even_cuts(schema, column, 10)

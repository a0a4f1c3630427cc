# SPDX-License-Identifier: Apache-2.0
"""``correlation``: how columns go together, two and two, with intervals and a map."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from miners.budget.payment import require_budget
from miners.budget.recipe import spread
from miners.linear.moments import ROOT, Coordinates, Moments, Norm, asked_columns, product_line, scale_line
from miners.tables.columns import require_level
from miners.tables.table import Draft, Table, TableFunction
from pinq.analyst.queryable import PrivateQueryable
from pinq.analyst.reuse import reusing
from pinq.public.epsilon import ZERO, Epsilon, EpsilonLike

__all__ = ["correlation"]

SHARES = (15, 85)  # of epsilon: scales, products


@TableFunction
def correlation(
    handle: PrivateQueryable,
    columns: Sequence[str] | None = None,
    *,
    epsilon: EpsilonLike,
    level: float = 0.95,
    reuse: bool = False,
) -> Draft:
    """Correlates columns, two and two; ``plot`` draws a map.

    Rows far from the mean in many columns count less, and numbers beyond some deviations as these:
    on normal columns that changes hardly anything, on others it is what a robust correlation does.

    Args:
        handle: A private handle.
        columns: Their names; None for all numeric ones. A categorical column enters as an indicator
            for each value but the first.
        epsilon: What the whole table costs.
        level: With which probability each interval holds what noise would have hidden.
        reuse: Return the stored answers where this was asked before, at no cost.

    Returns:
        A row for two terms, in either order: ``first``, ``second``, ``value``, ``low``, ``high``.
    """
    level, schema = require_level(level), handle.schema
    names = asked_columns(schema, None, list(schema.numeric_columns) if columns is None else columns)
    total, measured = Epsilon.of(epsilon), any(name in schema.numeric_columns for name in names)
    scales, products = spread(total, SHARES) if measured else (ZERO, total)
    norm = Norm.of(schema, names, products)
    lines = [scale_line(schema, names, scales)] if measured else []
    lines.append(product_line(schema, norm, "all", "products of columns", products))
    Coordinates.unasked(schema, names).products().check(schema)
    notes = ("rows far from the mean count less, and numbers beyond some deviations as these.",)
    title = f"correlation of {', '.join(names)}"

    def answer() -> Table:
        pay = partial(require_budget, handle, total, name="correlation")
        asked = reusing(handle, pay) if reuse else handle
        coordinates = Coordinates.asked(asked, schema, names, scales)
        moments = Moments.asked(asked, coordinates, norm, products)
        frame, deviations = _frame(coordinates, moments, -math.log(1 - level) / ROOT)
        return Table(title, frame, deviations, total.exact, level, notes, "map")

    return Draft(title, tuple(lines), answer, notes)


def _frame(coordinates: Coordinates, moments: Moments, sure: float) -> tuple[pd.DataFrame, pd.Series]:
    """The table, and the deviation of the noise in each number."""
    rows, _, (covariance,) = moments.centred()
    noise = moments.deviation / float(rows[0])
    roots = np.sqrt(np.maximum(np.diag(covariance), noise))
    found = np.clip(covariance / np.outer(roots, roots), -1, 1)
    # r = c / (s t): noise in c moves it by noise / (s t), and noise in s² and t² by r / 2 of the same each.
    each = noise / np.outer(roots, roots)
    own = noise / roots**2
    deviations = np.sqrt(each**2 + found**2 * (own[:, None] ** 2 + own[None, :] ** 2) / 4)
    np.fill_diagonal(found, 1.0)
    np.fill_diagonal(deviations, 0.0)
    terms = coordinates.names
    low, high = np.maximum(found - sure * deviations, -1), np.minimum(found + sure * deviations, 1)
    keys = {"first": np.repeat(terms, len(terms)), "second": np.tile(terms, len(terms))}
    numbers = {"value": found.ravel(), "low": low.ravel(), "high": high.ravel()}
    return pd.DataFrame({**keys, **numbers}), pd.Series(deviations.ravel())

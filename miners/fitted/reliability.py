# SPDX-License-Identifier: Apache-2.0
"""How reliable predicted shares are.

Of rows that were given a share of p, about p should have the class.

Privacy:
    Claim: none for the rows that are passed. They must be public, or the caller's own: how often
    classes occur among them is computed exactly. The model costs nothing more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from miners.fitted.theme import BLUE, PALE, pyplot
from pinq.errors import QueryError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Reliability", "determination"]

SURE = 1.96  # standard errors on each side


@dataclass(frozen=True, eq=False)
class Reliability:
    """Predicted shares beside what happened, over bins of equal width.

    Attributes:
        predicted: Mean predicted share of each bin, shape (bins,); NaN where no row is.
        happened: Share of the bin's rows that have the class, shape (bins,); NaN where no row is.
        rows: Rows of each bin, shape (bins,).
        label: Of which class.
    """

    predicted: np.ndarray
    happened: np.ndarray
    rows: np.ndarray
    label: str

    @classmethod
    def of(cls, shares: np.ndarray, happened: np.ndarray, *, bins: int, label: str) -> Reliability:
        """Bins rows by their predicted shares.

        Args:
            shares: Predicted share of the class, shape (rows,).
            happened: Whether the row has it, shape (rows,).
            bins: How many.
            label: Of which class.
        """
        if not len(shares):
            raise QueryError("there is no row to judge shares by.")
        # In ten bins .37 is in bin 3, and 1 in bin 9, the last.
        number = np.minimum((shares * bins).astype(int), bins - 1)
        rows = np.bincount(number, minlength=bins)
        sums = [np.bincount(number, weights, bins) for weights in (shares, happened.astype(np.float64))]
        predicted, seen = (np.where(rows > 0, total / np.maximum(rows, 1), np.nan) for total in sums)
        return cls(predicted, seen, rows, label)

    @property
    def off(self) -> float:
        """Mean difference between predicted shares and what happened, weighted by rows."""
        return float(np.nansum(np.abs(self.predicted - self.happened) * self.rows) / self.rows.sum())

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws what happened over what was predicted; dots as large as their rows are many.

        Bars are 95 % of what chance does to a share of so many rows.

        Raises:
            ImportError: matplotlib is not installed.
        """
        plt = pyplot("shares")
        if ax is None:
            ax = plt.subplots(figsize=(4.5, 4.5), layout="constrained")[1]
        known = self.rows > 0
        predicted, happened, rows = self.predicted[known], self.happened[known], self.rows[known]
        ax.plot([0, 1], [0, 1], color=PALE, linewidth=1, linestyle="--")
        # A share of .3 among 100 rows deviates by sqrt(.3 * .7 / 100) = .046 by chance.
        error = SURE * np.sqrt(happened * (1 - happened) / rows)
        ax.errorbar(predicted, happened, yerr=error, color=BLUE, linewidth=1, capsize=2)
        ax.scatter(predicted, happened, s=8 + 140 * rows / rows.max(), color=BLUE)
        ax.set(xlim=(0, 1), ylim=(0, 1), xlabel=f"predicted share of {self.label}", ylabel="share that happened")
        ax.set_title(f"{rows.sum():,} rows, off by {self.off:.3f} in the mean", fontsize=10)
        return ax


def determination(truth: np.ndarray, predicted: np.ndarray, weight: np.ndarray | None = None) -> float:
    """Returns the coefficient of determination: 1 - (mean squared error) / (variance).

    Where nothing varies it is 1 if all is right, else 0.

    Args:
        truth: The true values, shape (rows,).
        predicted: The predicted ones, shape (rows,).
        weight: A weight for each row, shape (rows,).
    """
    error = np.average((truth - predicted) ** 2, weights=weight)
    variance = np.average((truth - np.average(truth, weights=weight)) ** 2, weights=weight)
    return float(1 - error / variance) if variance else float(not error)

# SPDX-License-Identifier: Apache-2.0
"""``kmeans``: centres of groups of rows, on one noisy grid of up to four numeric columns.

A row counts as the middle of its grid cell. Lloyd's method runs on the counts, from public seeds, so the same table
gives the same centres. The variance of a centre, the mean of its rows, has two parts: rows vary between samples, and
each count of its cells has noise. Intervals do not include that another sample has other borders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
import pandas as pd

from miners.pictures import Axes, axes_of, colour, titled
from miners.statistics.cells import FAINT, SEED, Axis, Cells, Result, StatisticFunction, drafted
from miners.tables.columns import Column, Columns
from miners.tables.table import NUMBERS, Draft
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import QueryError
from pinq.public.checks import is_listing, whole_number
from pinq.public.epsilon import EpsilonLike

STARTS = 50  # of Lloyd's method: in a crowd without gaps, ten starts missed the best centres in a tenth of the tables
ROUNDS = 100  # of each start at most
BORDERS = "the intervals take the borders between clusters as they are, so they hold where clusters lie apart"
MAX_COLUMNS, MAX_BINS, MAX_CELLS = 4, 64, 1000  # each cell has noise, so more cells blur the centres


@dataclass(frozen=True, eq=False, repr=False)
class Clusters(Result):
    """Centres of clusters: a row for each cluster and column.

    ``centers`` has a row for each cluster, ``sizes`` their noisy numbers of rows with intervals.
    """

    axes: tuple[Axis, ...] = ()

    def predict(self, rows: pd.DataFrame) -> np.ndarray:
        """The number of the nearest centre of each row; -1 for a missing value.

        Args:
            rows: The rows, shape (rows, columns), with the clustered columns.

        Raises:
            QueryError: A column is missing, or the noise hides the centres.
        """
        if self.frame["value"].isna().all():
            raise QueryError("there are no centres, for the noise hides them; take a larger epsilon.")
        names = [axis.name for axis in self.axes]
        for name in names:
            if name not in rows:
                raise QueryError(f"the rows have no column {name!r}")
        reach = _reach(self.axes)
        values = rows[names].astype(float).to_numpy() / reach
        nearest = _nearest(np.nan_to_num(values), self.more["centers"][names].to_numpy() / reach)
        return np.where(np.isnan(values).any(axis=1), -1, nearest)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws the centres by their first two columns, with intervals; the area is the number of rows."""
        ax = axes_of("clusters", ax, (5.6, 4.6))
        across, up = (self.axes * 2)[:2]
        sizes = self.more["sizes"]["value"].dropna().to_numpy()
        (x, _, right), (y, _, top) = (
            self.frame.loc[self.frame["column"] == axis.name, [*NUMBERS]].to_numpy().T for axis in (across, up)
        )
        for number, size in enumerate(sizes):
            at, label = (x[number], y[number]), f"{size:,.0f} rows"
            half = {"xerr": right[number] - x[number], "yerr": top[number] - y[number]}
            ax.scatter(*at, s=1200 * size / sizes.max(), color=colour(number), alpha=0.35, linewidth=0)
            ax.errorbar(*at, **half, fmt="o", color=colour(number), capsize=3, label=label)
        ax.set(xlim=_bounds(across), ylim=_bounds(up), xlabel=across.name, ylabel=up.name)
        if len(sizes):
            ax.legend(fontsize=8, markerscale=0.6)
        titled(ax, self.title)
        return ax


def _bounds(axis: Axis) -> tuple[float, float]:
    numeric = axis.schema.numeric(axis.name)
    return float(numeric.lower), float(numeric.upper)


def _reach(axes: Sequence[Axis]) -> np.ndarray:
    return np.diff([_bounds(axis) for axis in axes])[:, 0]


def _nearest(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    return np.asarray(((points[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1))


def _lloyd(
    points: np.ndarray, weights: np.ndarray, clusters: int, rng: np.random.Generator
) -> tuple[float, np.ndarray]:
    """The total squared distance to the nearest centre, and the centre of each point."""
    centres = points[[rng.choice(len(points), p=weights / weights.sum())]]
    while len(centres) < clusters:  # far points are likelier, as of k-means++
        far = weights * ((points[:, None] - centres) ** 2).sum(axis=2).min(axis=1)
        chosen = rng.choice(len(points), p=far / far.sum() if far.sum() else None)
        centres = np.concatenate([centres, points[[chosen]]])
    for _ in range(ROUNDS):
        nearest = _nearest(points, centres)
        sizes = np.bincount(nearest, weights, clusters)
        sums = np.stack([np.bincount(nearest, weights * column, clusters) for column in points.T], axis=1)
        moved = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1e-9)[:, None], centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    return float(weights @ ((points - centres[nearest]) ** 2).sum(axis=1)), nearest


def _clustered(axes: tuple[Axis, ...], clusters: int, cells: Cells) -> Result:
    names, reach = [axis.name for axis in axes], _reach(axes)
    places = np.stack(np.meshgrid(*(axis.middles for axis in axes), indexing="ij"), axis=-1).reshape(-1, len(axes))
    weights, rng = cells.counts.reshape(-1), np.random.default_rng(SEED)
    if not weights.sum():
        weights = np.ones_like(weights)  # the noise has left nothing: no power is said below
    starts = [_lloyd(places / reach, weights, clusters, rng) for _ in range(STARTS)]
    spread, nearest = min(starts, key=lambda start: start[0])
    whole, _ = _lloyd(places / reach, weights, 1, rng)
    members = [nearest == cluster for cluster in range(clusters)]
    clusters_found = [
        _cluster(cells, places[members_of], cells.noisy.reshape(-1)[members_of]) for members_of in members
    ]
    sizes, centres = (
        np.array(part) for part in zip(*sorted(clusters_found, key=lambda cluster: -cluster[0][0]), strict=True)
    )
    keys = pd.MultiIndex.from_product([range(clusters), names], names=["cluster", "column"])
    frame = pd.DataFrame(centres.reshape(-1, 3), columns=NUMBERS, index=keys).reset_index()
    more = {
        "centers": pd.DataFrame(centres[:, :, 0], columns=names),
        "sizes": pd.DataFrame(sizes, columns=NUMBERS),
    }
    faint, share = not np.isfinite(centres).all(), 1 - spread / whole if whole else 1.0
    explained = f"the centres explain {share:.0%} of the spread, each column divided by the distance of its bounds"
    notes = [explained, BORDERS] if clusters > 1 else [explained]
    return cells.result(Clusters, frame, faint=faint, notes=notes, more=more, axes=axes)


def _cluster(cells: Cells, places: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The size of a cluster and its centre, each with its interval; NaN if noise hides it."""
    size, noise = counts.sum(), cells.noise * len(counts)
    deviation = np.sqrt(max(size * (1 - size / max(cells.n, size, 1.0)), 0) + noise)
    clear_size = size if size > FAINT * np.sqrt(noise) else np.nan
    centre = counts @ places / clear_size
    spread = np.sqrt((np.maximum(counts, 0) + cells.noise) @ ((places - centre) / clear_size) ** 2)
    return cells.interval(size, deviation), cells.interval(centre, spread).T


@StatisticFunction
def kmeans(
    handle: PrivateQueryable,
    columns: Columns,
    n_clusters: int,
    *,
    epsilon: EpsilonLike,
    bins: int | None = None,
    level: float = 0.95,
    reuse: bool = False,
) -> Draft:
    """Finds groups of similar rows, by k-means on one noisy grid.

    Distances are Euclidean, each column divided by the width of its bounds.

    Args:
        handle: A private handle.
        columns: One to four numeric columns, or ``Cuts`` of them.
        n_clusters: The number of clusters, 1 to 50.
        epsilon: The cost of all counts together.
        bins: The number of parts of each column; by default for a grid of 1,000 cells.
        level: The confidence level of the intervals.
        reuse: As in ``miners.tables.crosstab``.

    Returns:
        A centre with its interval for each cluster and column, the largest cluster first;
        ``centers``, ``sizes`` and ``predict``.

    Raises:
        QueryError: The request is malformed.
        BudgetExceeded: The cost exceeds the remaining budget; nothing was spent.

    Examples:
        >>> import pinq
        >>> from miners.statistics import kmeans
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> kmeans(h, ["age", "hours_per_week"], 3, epsilon=1).centers.shape
        (3, 2)
    """
    named = list(columns) if is_listing(columns) else [cast(Column, columns)]
    if not 1 <= len(named) <= MAX_COLUMNS:
        raise QueryError(f"names {len(named)} columns", parameter="columns", allowed=f"1 to {MAX_COLUMNS}")
    parts = bins if bins is not None else min(MAX_BINS, round(MAX_CELLS ** (1 / len(named))))
    axes = tuple(Axis.numeric(handle, column, parts, "columns") for column in named)
    cells = int(np.prod([len(axis.labels) for axis in axes]))
    finish = partial(_clustered, axes, whole_number("n_clusters", n_clusters, 1, min(50, cells)))
    title = f"{n_clusters} clusters of {', '.join(axis.name for axis in axes)}"
    return drafted(handle, title, axes, finish, epsilon, level, reuse)

# SPDX-License-Identifier: Apache-2.0
"""Points from noisy sums: how far noise lets a score move, and how sure that is. Sees no rows.

A cell's points f have the public prior N(0, width²). Its noisy gradient G is about H f, with the
variance H of the rows themselves and that of the noise; so f has the posterior mean
width² H G / (H² width² + variance) and the posterior variance width² variance / (the same). Noise
shrinks points by itself: where H cannot be told from noise they are about 0.

The law of the noise is two-sided geometric, not normal; it enters by its variance alone. With
curvature that is noisy too, an interval of two deviations is a guide, not a guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Estimate", "log_shares", "newton", "reliable_share"]

FEWEST = 0.5  # noise scales; rows below so many cannot be told from none


@dataclass(frozen=True, eq=False)
class Estimate:
    """Points of the cells of one spec.

    Attributes:
        points: Shape (cells, outputs).
        deviations: Standard deviations of the posterior, same shape.
        weights: How much the cells count among all rows, at least 0, shape (cells,).
    """

    points: np.ndarray
    deviations: np.ndarray
    weights: np.ndarray


def newton(
    gradients: np.ndarray, curvatures: np.ndarray, *, spread: float, noise: float, width: float, most: float
) -> Estimate:
    """Returns the posterior of one Newton step from 0.

    Args:
        gradients: Noisy sums of gradients, shape (cells, outputs).
        curvatures: Noisy sums of second derivatives, same shape.
        spread: Variance of a row's gradient for each unit of its second derivative.
        noise: Variance of the noise in a gradient.
        width: Of the prior.
        most: Points are clipped to this size.
    """
    rows = np.maximum(curvatures, 0.0)
    variance = np.maximum(rows * spread + noise, 1e-12)
    # Gradient 30, curvature 100, width 1: 100 * 30 / (100^2 + 100) = .30 without noise, and 100 *
    # 30 / (100^2 + 100 + 10,000) = .15 with noise of deviation 100.
    scale = width**2 / (rows**2 * width**2 + variance)
    points = np.clip(scale * rows * gradients, -most, most)
    return Estimate(points, np.sqrt(scale * variance), rows.sum(axis=1))


def log_shares(tables: list[np.ndarray], totals: np.ndarray, *, scale: float, damping: float) -> list[Estimate]:
    """Returns points from tables of classes, as naive Bayes has them, damped.

    Tables of the same rows have the same class totals. Each is moved to those, for else the errors
    of many tables' totals would add up to a class of their own. Fewer rows than noise can tell from
    none count as so many.

    Args:
        tables: Noisy counts, each of shape (cells, classes).
        totals: The best estimate of the rows of each class, shape (classes,).
        scale: Of the noise in a count.
        damping: What points are multiplied with, for attributes repeat each other.
    """
    estimates = []
    for table in tables:
        moved = _moved(table, totals)
        counts = np.maximum(moved, FEWEST * scale)
        # Of two classes with 100 rows each, a cell has 30 and 10: ln .3 and ln .1, of which the
        # mean is taken off, +.55 and -.55.
        logs = np.log(counts / counts.sum(axis=0))
        deviations = damping * np.sqrt(1 / counts + 2 * (scale / counts) ** 2)
        points = damping * (logs - logs.mean(axis=1, keepdims=True))
        estimates.append(Estimate(points, deviations, np.maximum(moved, 0.0).sum(axis=1)))
    return estimates


def _moved(table: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Returns a table whose class totals are the known ones."""
    # Five cells of a class with 90 rows in all, of which 100 are known: each gets 2 more.
    moved: np.ndarray = table - (table.sum(axis=0) - totals) / len(table)
    return moved


def reliable_share(tables: list[np.ndarray], totals: np.ndarray, scale: float) -> float:
    """Returns which share of the variance of two classes' scores noise does not explain, 0 to 1.

    An attribute whose cells differ in class by no more than noise and chance let expect counts
    nothing, one whose squared differences are four times that counts three quarters.

    Args:
        tables: Noisy counts, each of shape (cells, 2).
        totals: The best estimate of the rows of each class, shape (2,).
        scale: Of the noise in a count.
    """
    share = totals[1] / totals.sum()
    chance, noise = share * (1 - share), 2 * scale**2 * (share**2 + (1 - share) ** 2)
    known = every = 0.0
    for table, estimate in zip(tables, log_shares(tables, totals, scale=scale, damping=1.0), strict=True):
        moved, odds = _moved(table, totals), estimate.points[:, 1] - estimate.points[:, 0]
        rows = estimate.weights + 1e-9
        variance = np.average((odds - np.average(odds, weights=rows)) ** 2, weights=rows)
        # Of 100 rows, half of class 1, a cell with 40 and 10 is 15 away from what chance expects.
        away = np.square(moved[:, 1] - share * moved.sum(axis=1)).sum()
        known += variance * max(0.0, 1 - (chance * totals.sum() + noise * len(moved)) / max(away, 1e-9))
        every += variance
    return float(known / max(every, 1e-9))

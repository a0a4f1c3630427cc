# SPDX-License-Identifier: Apache-2.0
"""Criteria judge splits: as scores for noisy selection, and as quantities of noisy tables."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pinq.errors import QueryError
from pinq.public.checks import closest
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Schema
from pinq.public.scores import ENTROPY_BITS, GINI_UNIT, AbsoluteError, Gini, InfoGain, MaxClass, Score, SquaredError

__all__ = [
    "CRITERIA",
    "REGRESSION_CRITERIA",
    "choice_noise_scale",
    "gain",
    "impurity_reduction",
    "require_criterion",
    "score_of",
]

# A score, what one unit of plain counting is in its own units, and how that unit is called.
CRITERIA: dict[str, tuple[type[MaxClass] | type[Gini] | type[InfoGain], int, str]] = {
    "max": (MaxClass, 1, "rows"),
    "gini": (Gini, GINI_UNIT, "rows"),
    "info_gain": (InfoGain, 2**ENTROPY_BITS, "bits"),
}


REGRESSION_CRITERIA: dict[str, type[SquaredError] | type[AbsoluteError]] = {
    "squared_error": SquaredError,
    "absolute_error": AbsoluteError,
}


def score_of(criterion: str, target: str) -> Score:
    """The score that a criterion stands for."""
    return (
        REGRESSION_CRITERIA[criterion](target) if criterion in REGRESSION_CRITERIA else CRITERIA[criterion][0](target)
    )


def choice_noise_scale(
    schema: Schema, criterion: str, epsilon: Epsilon, *, textbook: bool, target: str = ""
) -> tuple[float, str]:
    """Returns the scale of the noise in a choice, and its unit.

    By about so much score a worse one of two candidates may pass the better one.

    Args:
        schema: The public schema.
        criterion: One of ``CRITERIA`` or ``REGRESSION_CRITERIA``.
        epsilon: Of the choice.
        textbook: Whether it is made by the exponential mechanism with its general factor 2.
        target: Needed for regression, whose unit is the error of a row that is as wrong as one can
            be.
    """
    score = score_of(criterion, target)
    unit, called = (
        (score.sensitivity(schema), "rows of the largest error")
        if criterion in REGRESSION_CRITERIA
        else CRITERIA[criterion][1:]
    )
    width = 2 * score.sensitivity(schema) if textbook else score.span(schema)
    return float(width / (unit * epsilon.per_row(schema.distance))), called


def require_criterion(criterion: object, criteria: Iterable[str] = CRITERIA) -> str:
    """The criterion's name, else ``QueryError``."""
    names = list(criteria)
    if isinstance(criterion, str) and criterion in names:
        return criterion
    why = ""
    if criterion == "gain_ratio":
        why = (
            ". Gain ratio cannot steer a noisy selection: one row can move it over its full range, however large the "
            "table, so noise that hides a row hides everything (privacy.md 2.5). SuLQID3 computes it from "
            "counts that are noisy already"
        )
    listed = ", ".join(repr(name) for name in names)
    problem = f"is {criterion!r}{closest(str(criterion), names)}"
    raise QueryError(problem, parameter="criterion", allowed=f"one of {listed}{why}")


def gain(criterion: str, table: np.ndarray, parts: np.ndarray | None = None) -> float:
    """Returns how good a split is by its table of noisy counts, shape (parts, classes).

    Higher is better. Counts below 0 count as 0.

    The quantities of Friedman & Schuster 2010, sec. 4.1 and 4.2, per row; for ``"gain_ratio"`` the
    information gain over the split's own entropy.

    Args:
        criterion: One of ``CRITERIA``, or ``"gain_ratio"``.
        table: Noisy rows of each part and class.
        parts: Noisy rows of each part where they were asked for themselves, as Algorithm 1 does; by
            default the sums over classes.
    """
    counts = np.maximum(np.asarray(table, dtype=np.float64), 0.0)
    sums = counts.sum(axis=1) if parts is None else np.maximum(np.asarray(parts, dtype=np.float64), 0.0)
    rows = sums.sum()
    if rows <= 0 or counts.sum() <= 0:
        return 0.0
    # Parts of 8 + 2 and 0 + 10 rows of two classes: max (8 + 10) / 20 = .9, gini ((64 + 4) / 10 +
    # 100 / 10) / 20 = .84, and an information gain of .971 - .361 = .61 bits.
    inside = np.where(sums > 0, sums, 1)[:, None]
    if criterion == "max":
        return float(counts.max(axis=1).sum() / rows)
    if criterion == "gini":
        return float((np.square(counts) / inside).sum() / rows)
    # -H(class given part): the terms of Algorithm 1; a part that seems smaller than one of its
    # classes has no entropy to speak of.
    after = float((counts * np.minimum(np.log2(np.where(counts > 0, counts, 1) / inside), 0.0)).sum() / rows)
    information = float(_entropy(counts.sum(axis=0))) + after
    if criterion == "info_gain":
        return information
    own = float(_entropy(sums))
    return information / own if own > 0 else 0.0


def impurity_reduction(criterion: str, tables: np.ndarray) -> np.ndarray:
    """Returns how much of a node's uncertainty splits take away, for each row of it.

    It is J of Wang, Dick & Balcan 2020, sec. 2.1, for any number of classes.

    Args:
        criterion: One of ``CRITERIA``.
        tables: Noisy counts, shape (..., parts, classes); below 0 counts as 0.

    Returns:
        From 0 to 1, shape (...,): 1 where evenly mixed classes become pure parts, 0 where nothing
        is there.
    """
    counts = np.maximum(tables, 0.0)
    rows = counts.sum(axis=(-2, -1))
    # Of 8 + 12 rows cut to 8 + 2 and 0 + 10, by "max": 8 rows were not of the larger class and 2
    # are left, so 6 are taken, of at most 20 / 2 for evenly mixed classes: .6.
    taken = _uncertainty(criterion, counts.sum(axis=-2)) - _uncertainty(criterion, counts).sum(axis=-1)
    worst = _uncertainty(criterion, np.full(counts.shape[-1], 1.0)) / counts.shape[-1]
    reduction: np.ndarray = taken / np.where(rows > 0, rows * worst, 1.0)
    return reduction


def _uncertainty(criterion: str, counts: np.ndarray) -> np.ndarray:
    """Rows times impurity, over the last axis."""
    rows = counts.sum(axis=-1)
    if criterion == "max":
        return rows - counts.max(axis=-1)
    if criterion == "gini":
        return rows - np.square(counts).sum(axis=-1) / np.where(rows > 0, rows, 1)
    return rows * _entropy(counts)


def _entropy(counts: np.ndarray) -> np.ndarray:
    """Entropy along the last axis, in bits; 0 where there is nothing."""
    whole = counts.sum(axis=-1, keepdims=True)
    shares = counts / np.where(whole > 0, whole, 1)
    result: np.ndarray = -(shares * np.log2(np.where(shares > 0, shares, 1))).sum(axis=-1)
    return result

# SPDX-License-Identifier: Apache-2.0
"""Criteria judge splits: as scores for noisy selection, and as quantities of noisy tables.

A new criterion is one ``Criterion`` in ``CRITERIA`` (classes) or ``REGRESSION_CRITERIA`` (a mean);
all that trees and federations do with it follows from the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from miners.fitted.node import Ends
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


@dataclass(frozen=True)
class Criterion:
    """By what splits are judged.

    Attributes:
        name: As parameters have it.
        score: The score by which a choice is made; None where nothing may be chosen by it.
        unit: How many of the score's units make one of its natural ones; None for the error of a
            row that is as wrong as one can be.
        called: The natural unit's name.
        uncertainty: Rows times impurity over the last axis, of noisy class counts and of the noisy
            rows that they are parts of; None of a criterion for means.
        whole: The impurity from which that of the parts is taken, of class counts.
    """

    name: str
    score: Callable[..., Score] | None
    unit: int | None
    called: str
    uncertainty: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    whole: Callable[[np.ndarray], float] = lambda counts: 1.0


def _max_uncertainty(counts: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return rows - counts.max(axis=-1)


def _gini_uncertainty(counts: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return rows - np.square(counts).sum(axis=-1) / np.where(rows > 0, rows, 1)


def _entropy_uncertainty(counts: np.ndarray, rows: np.ndarray) -> np.ndarray:
    # The terms of Algorithm 1; a part that seems smaller than one of its classes has no entropy to
    # speak of.
    inside = np.where(rows > 0, rows, 1)[..., None]
    terms: np.ndarray = counts * np.minimum(np.log2(np.where(counts > 0, counts, 1) / inside), 0.0)
    return -terms.sum(axis=-1)


def _entropy(counts: np.ndarray) -> float:
    """Entropy of some counts, in bits; 0 where there is nothing."""
    rows = counts.sum()
    return float(_entropy_uncertainty(counts, rows) / rows) if rows > 0 else 0.0


_ENTROPY = (_entropy_uncertainty, _entropy)
CRITERIA = {
    each.name: each
    for each in (
        Criterion("max", MaxClass, 1, "rows", _max_uncertainty),
        Criterion("gini", Gini, GINI_UNIT, "rows", _gini_uncertainty),
        Criterion("info_gain", InfoGain, 2**ENTROPY_BITS, "bits", *_ENTROPY),
    )
}
REGRESSION_CRITERIA = {
    each.name: each
    for each in (
        Criterion("squared_error", SquaredError, None, "rows of the largest error"),
        Criterion("absolute_error", AbsoluteError, None, "rows of the largest error"),
    )
}
# The information gain over the split's own entropy. Nothing may be chosen by it (privacy.md 2.5).
GAIN_RATIO = Criterion("gain_ratio", None, None, "bits a bit", *_ENTROPY)
_EVERY = {**CRITERIA, **REGRESSION_CRITERIA, GAIN_RATIO.name: GAIN_RATIO}


def score_of(criterion: str, target: str, *within: Ends) -> Score:
    """The score that a criterion stands for; of a numeric target within a range."""
    score = _EVERY[criterion].score
    assert score is not None, criterion
    return score(target, *within)


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
    score, record = score_of(criterion, target), _EVERY[criterion]
    unit = score.sensitivity(schema) if record.unit is None else record.unit
    width = 2 * score.sensitivity(schema) if textbook else score.span(schema)
    return float(width / (unit * epsilon.per_row(schema.distance))), record.called


def require_criterion(criterion: object, criteria: Iterable[str] = CRITERIA) -> str:
    """The criterion's name, else ``QueryError``."""
    names = list(criteria)
    if isinstance(criterion, str) and criterion in names:
        return criterion
    why = ""
    if criterion == GAIN_RATIO.name:
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
    record = _EVERY[criterion]
    assert record.uncertainty is not None, criterion
    counts = np.maximum(np.asarray(table, dtype=np.float64), 0.0)
    sums = counts.sum(axis=1) if parts is None else np.maximum(np.asarray(parts, dtype=np.float64), 0.0)
    rows = sums.sum()
    if rows <= 0 or counts.sum() <= 0:
        return 0.0
    # Parts of 8 + 2 and 0 + 10 rows of two classes: max (8 + 10) / 20 = .9, gini ((64 + 4) / 10 +
    # 100 / 10) / 20 = .84, and an information gain of .971 - .361 = .61 bits.
    gained = record.whole(counts.sum(axis=0)) - float(record.uncertainty(counts, sums).sum() / rows)
    if record is not GAIN_RATIO:
        return gained
    own = _entropy(sums)
    return gained / own if own > 0 else 0.0


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
    uncertainty = CRITERIA[criterion].uncertainty
    assert uncertainty is not None, criterion
    counts = np.maximum(tables, 0.0)
    parts, classes = counts.sum(axis=-1), counts.sum(axis=-2)
    rows = parts.sum(axis=-1)
    # Of 8 + 12 rows cut to 8 + 2 and 0 + 10, by "max": 8 rows were not of the larger class and 2
    # are left, so 6 are taken, of at most 20 / 2 for evenly mixed classes: .6.
    taken = uncertainty(classes, rows) - uncertainty(counts, parts).sum(axis=-1)
    even = np.full(counts.shape[-1], 1.0)
    worst = uncertainty(even, even.sum()) / even.sum()
    reduction: np.ndarray = taken / np.where(rows > 0, rows * worst, 1.0)
    return reduction

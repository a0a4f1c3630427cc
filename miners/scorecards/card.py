# SPDX-License-Identifier: Apache-2.0
"""A fitted scorecard: points for each cell of each attribute, added up.

Points come from noisy sums, with the uncertainty of the noise. A cell's points f have the public prior N(0, width²).
Its noisy gradient G is about H f, with the variance H of the rows themselves and that of the noise; so f has the
posterior mean width² H G / (H² width² + variance) and the posterior variance width² variance / (the same). If H is
indistinguishable from noise, points are about 0. The noise is not normal, and the curvature is noisy too, so an
interval of two deviations is a guide and no guarantee.

Privacy:
    Claim: a card costs nothing to use, show, store or send (post-processing of answers). Its JSON contains nothing
    else. Held by: tests/unit/scorecards/test_card.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np

from miners.fitted.node import Split, Target, as_array, split_in, split_out, target_of
from miners.fitted.route import Bins, encode_rows, length
from pinq.errors import QueryError
from pinq.language.points import POINTS, Points
from pinq.language.specs import Axis, Cross, bind
from pinq.public.checks import Shown, many
from pinq.public.schema import Numeric, Schema, Value

FEWEST = 0.5  # noise scales; fewer rows are indistinguishable from none
ANY_SHARE = 1 / 12  # variance of a share that may be anything from 0 to 1


@dataclass(frozen=True, eq=False)
class Estimate:
    """Points of the cells of one spec.

    Attributes:
        points: Shape (cells, outputs).
        deviations: The standard deviations of the posterior, same shape.
        weights: The weights of the cells among all rows, at least 0, shape (cells,).
    """

    points: np.ndarray
    deviations: np.ndarray
    weights: np.ndarray


def newton(
    gradients: np.ndarray, curvatures: np.ndarray, *, spread: float, noise: float, width: float, limit: float
) -> Estimate:
    """The posterior of one Newton step from 0.

    Args:
        gradients: Noisy sums of gradients, shape (cells, outputs).
        curvatures: Noisy sums of second derivatives, same shape.
        spread: Variance of a row's gradient for each unit of its second derivative.
        noise: Variance of the noise in a gradient.
        width: The width of the prior.
        limit: The largest size of points.
    """
    rows = np.maximum(curvatures, 0.0)
    variance = np.maximum(rows * spread + noise, 1e-12)
    # Gradient 30, curvature 100, width 1: 100 * 30 / (100^2 + 100) = .30 without noise, and 100 *
    # 30 / (100^2 + 100 + 10,000) = .15 with noise of deviation 100.
    scale = width**2 / (rows**2 * width**2 + variance)
    points = np.clip(scale * rows * gradients, -limit, limit)
    return Estimate(points, np.sqrt(scale * variance), rows.sum(axis=1))


def from_probability(step: Estimate, share: float, limit: float) -> Estimate:
    """Returns the points of a Newton step in log-odds, if all rows had one probability of the class.

    Such a step is exact for the share of a cell's rows with the class; as log-odds it would go too far towards the
    rarer class.

    Args:
        step: Of two classes, shape (cells, 1).
        share: The probability that all rows had, above 0 and below 1.
        limit: The largest size of points.
    """
    # A share of .2 and a step of 1.5: .2 + 1.5 * .16 = .44, whose log-odds are 1.15 above those of .2.
    variance, odds = share * (1 - share), math.log(share / (1 - share))
    lowest, largest = (1 / (1 + math.exp(-odds - end)) for end in (-limit, limit))
    shares = np.clip(share + step.points * variance, lowest, largest)
    points = np.log(shares / (1 - shares)) - odds
    return Estimate(points, step.deviations * variance / (shares * (1 - shares)), step.weights)


def log_probabilities(tables: list[np.ndarray], totals: np.ndarray, scale: float) -> list[Estimate]:
    """Points from tables of classes, as in naive Bayes.

    Each table is adjusted to the common class totals, because the errors of many tables' totals would add up. Counts
    are at least ``FEWEST`` noise scales.

    Args:
        tables: Noisy counts, each of shape (cells, classes).
        totals: The best estimate of the rows of each class, shape (classes,).
        scale: The scale of the noise in a count.
    """
    estimates = []
    for table in tables:
        moved = _moved(table, totals)
        counts = np.maximum(moved, FEWEST * scale)
        # Of two classes with 100 rows each, a cell has 30 and 10: ln .3 and ln .1, of which the
        # mean is taken off, +.55 and -.55.
        logs = np.log(counts / counts.sum(axis=0))
        deviations = np.sqrt(1 / counts + 2 * (scale / counts) ** 2)
        points = logs - logs.mean(axis=1, keepdims=True)
        estimates.append(Estimate(points, deviations, np.maximum(moved, 0.0).sum(axis=1)))
    return estimates


def _moved(table: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """A table adjusted to these class totals."""
    # A class has 90 rows in five cells, and its known total is 100: each cell gets 2 more.
    return np.asarray(table - (table.sum(axis=0) - totals) / len(table))


def reliable_probabilities(
    tables: list[np.ndarray], estimates: list[Estimate], totals: np.ndarray, scale: float
) -> np.ndarray:
    """Returns the share of the variance of each table's points that noise does not explain, 0 to 1.

    If the squared differences of a table's cells are as large as by noise and chance, its share is 0; if they are four
    times as large, it is three quarters. Each share moves towards the mean of all, by its error.

    Args:
        tables: Noisy counts, each of shape (cells, classes).
        estimates: The points that ``log_probabilities`` finds in them.
        totals: The best estimate of the rows of each class, shape (classes,).
        scale: The scale of the noise in a count.
    """
    of_classes, others = totals / totals.sum(), len(totals) - 1
    chance = of_classes * (1 - of_classes)
    noise = 2 * scale**2 * ((1 - of_classes) ** 2 + others * of_classes**2)
    # With fixed totals, m - 1 of m cells and K - 1 of K classes are free.
    free = np.array([len(table) - 1 for table in tables])
    away, variances = np.empty(len(tables)), np.empty(len(tables))
    by_chance = free * [(chance * totals.sum() / len(table) + noise).sum() for table in tables]
    for number, (table, estimate) in enumerate(zip(tables, estimates, strict=True)):
        moved, rows = _moved(table, totals), estimate.weights + 1e-9
        # Of 100 rows, half of class 1, a cell with 40 and 10 is 15 away from the expected 25.
        away[number] = np.square(moved - of_classes * moved.sum(axis=1, keepdims=True)).sum()
        mean = np.average(estimate.points, axis=0, weights=rows)
        variances[number] = np.average((estimate.points - mean) ** 2, axis=0, weights=rows).sum()
    shares = np.maximum(0.0, 1 - by_chance / np.maximum(away, 1e-9))
    # The relative error of a variance from so many free squares is the root of 2 / squares.
    errors = (1 - shares) ** 2 * 2 / (free * others)
    return shares + errors / (errors + ANY_SHARE) * (np.average(shares, weights=variances + 1e-9) - shares)


FORMAT, VERSION = "pinq-scorecard", 1
MOST_POINTS = 2**48
ADDED_AT_ONCE = 2**14  # rows, whose points fit into a processor's cache
DOUBLES = 20  # printed points that double the odds
NO_PART = "A value that the card does not know adds no points."
CardCells = Split | Cross
"""The cells of an attribute, or of a pair of attributes."""


@dataclass(frozen=True, eq=False)
class Term:
    """The points of the cells of one attribute, or of a pair.

    Attributes:
        spec: The cells.
        points: Whole numbers, 256 to one logit or one grid cell of the target; shape (cells,
            outputs).
        deviations: Standard deviations of the remaining noise in them, same unit and shape.
        weights: The approximate weights of the cells among all rows, shape (cells,).
    """

    spec: CardCells
    points: np.ndarray
    deviations: np.ndarray
    weights: np.ndarray

    @classmethod
    def estimated(cls, spec: CardCells, estimate: Estimate) -> Term:
        return cls(
            spec,
            np.rint(estimate.points * POINTS).astype(np.int64),
            estimate.deviations * POINTS,
            estimate.weights,
        )

    def plus(self, other: Term) -> Term:
        """Adds the points of a later step for the same cells.

        Smaller deviations replace larger ones.
        """
        deviations = np.minimum(self.deviations, other.deviations)
        return Term(self.spec, self.points + other.points, deviations, np.maximum(self.weights, other.weights))

    @property
    def factors(self) -> tuple[Split, ...]:
        return cast("tuple[Split, ...]", self.spec.factors)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(factor.column for factor in self.factors)

    @property
    def name(self) -> str:
        return " and ".join(map(str, self.columns))

    @property
    def is_sound(self) -> bool:
        """Whether its numbers can be those of a card: finite, sizes at least 0."""
        sizes = np.concatenate([self.deviations.ravel(), self.weights])
        return bool((np.abs(self.points) <= MOST_POINTS).all() and ((sizes >= 0) & (sizes <= MOST_POINTS)).all())

    @property
    def spread(self) -> float:
        """The standard deviation of the points over rows, by weights: the importance of the attribute."""
        weights = self.weights + 1e-9
        mean = np.average(self.points, axis=0, weights=weights)
        return math.sqrt(np.average((self.points - mean) ** 2, axis=0, weights=weights).sum())


@dataclass(frozen=True, eq=False)
class Card(Shown):
    """Points that add up to the log-odds of a class, to those of each class, or to a mean.

    Attributes:
        base: The score from which every row starts, a whole number for each output.
        terms: A term for each attribute or pair, in the order of ``spread``.

    Raises:
        QueryError: The terms do not fit the schema.
    """

    schema: Schema
    target: str
    base: tuple[int, ...]
    terms: tuple[Term, ...] = ()

    kept_as: ClassVar[str] = "card"

    def __repr__(self) -> str:
        return f"Scorecard for {self.goal}: {many(len(self.columns), 'attribute')}"

    def __post_init__(self) -> None:
        if len(self.classes) == 1:
            raise QueryError(f"`{self.target}` has one value only; there is nothing to predict.")
        outputs = 1 if len(self.classes) <= 2 else len(self.classes)  # one for a mean or two classes
        if len(self.base) != outputs:
            raise QueryError(f"a card for `{self.target}` needs {outputs} bases, not {len(self.base)}.")
        if any(abs(points) > MOST_POINTS for points in self.base):
            raise QueryError(f"the bases of a card are at most {MOST_POINTS:,} in size.")
        for term in self.terms:
            shape = (bind(term.spec, self.schema).size, len(self.base))
            fits = term.points.shape == term.deviations.shape == shape and term.weights.shape == shape[:1]
            if not fits or not term.is_sound:
                raise QueryError(f"the points of {term.spec!r} do not fit its {shape[0]} cells.")

    @cached_property
    def goal(self) -> Target:
        return target_of(self.schema, self.target)

    @property
    def classes(self) -> tuple[Value, ...]:
        return self.goal.classes

    @cached_property
    def numeric(self) -> Numeric | None:
        return self.schema.numeric_columns.get(self.target)

    @property
    def columns(self) -> list[str]:
        """The attributes, in descending order of their term's spread."""
        return list(dict.fromkeys(itertools.chain.from_iterable(term.columns for term in self.ranked)))

    @cached_property
    def ranked(self) -> tuple[Term, ...]:
        return tuple(sorted(self.terms, key=lambda term: -term.spread))

    @property
    def importances(self) -> dict[str, float]:
        """The importances of attributes, with sum 1; a pair's are halved."""
        total = sum(term.spread for term in self.terms)
        return {
            name: sum(term.spread / len(term.columns) for term in self.terms if name in term.columns) / total
            for name in (self.columns if total else ())
        }

    def plus(self, spec: CardCells, estimate: Estimate) -> Card:
        """The card with more points for some cells."""
        added = Term.estimated(spec, estimate)
        terms = {term.spec: term for term in self.terms}
        # Each step adds to the points of earlier steps: 40 points, then -10, are 30.
        terms[spec] = terms[spec].plus(added) if spec in terms else added
        return Card(self.schema, self.target, self.base, tuple(terms.values()))

    def score_of(self, output: int) -> Points:
        """The public score of one output, in the layer's form."""
        tables = tuple(tuple(term.points[:, output].tolist()) for term in self.terms)
        return Points(tuple(term.spec for term in self.terms), tables, self.base[output])

    # Predictions

    def scores(self, frame: Any) -> np.ndarray:
        """The sums of points, in logits or grid cells, shape (rows, outputs)."""
        rows = length(frame)
        codes = encode_rows(self.schema, self.columns, frame, otherwise=NO_PART)
        total = np.tile(np.array(self.base, dtype=np.int64), (rows, 1))
        for term in self.terms:
            # Cell -1, of a code in no part, has no points.
            points = np.vstack([term.points, np.zeros_like(term.points[:1])])
            if len(term.columns) > 1:
                total += points.take(self.cells(term, codes), axis=0)
                continue
            column_codes, axis = codes[term.columns[0]], self.axis(term)
            bins = Bins(self.schema.columns[term.columns[0]], [axis])
            points, find = points.take(axis.parts_of(bins.codes), axis=0), bins.finder(rows)
            for first in range(0, rows, ADDED_AT_ONCE):
                block = slice(first, first + ADDED_AT_ONCE)
                total[block] += points.take(find(column_codes[block]), axis=0)
        return total / POINTS

    def predict_proba(self, frame: Any) -> np.ndarray:
        """Returns class probabilities, shape (rows, classes), in the order of ``classes``."""
        return probabilities(self.scores(frame))

    def predict(self, frame: Any) -> np.ndarray:
        """Returns the likeliest class or the mean for each row, shape (rows,)."""
        if self.numeric is not None:
            cells = np.clip(self.scores(frame)[:, 0], 0, self.numeric.cells - 1)
            return float(self.numeric.origin) + float(self.numeric.width) * cells
        # The class with the most points is the likeliest. One score stands beside a 0.
        scores = self.scores(frame)
        best = scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1)
        return np.asarray(as_array(self.classes).take(best))

    def axis(self, term: Term) -> Axis:
        return bind(term.spec, self.schema).axes[0]

    def cells(self, term: Term, codes: Mapping[str, np.ndarray]) -> np.ndarray:
        """The cell of each row in a term, -1 for none."""
        cells = bind(term.spec, self.schema)
        parts = [axis.parts_of(codes[name]) for axis, name in zip(cells.axes, term.columns, strict=True)]
        return np.where(np.min(parts, axis=0) < 0, -1, np.ravel_multi_index(parts, cells.shape, mode="clip"))

    # In the units of people

    @property
    def unit(self) -> float:
        """The printed points of one logit, or the units of the target in one grid cell."""
        return DOUBLES / math.log(2) if self.numeric is None else float(self.numeric.width)

    @property
    def headings(self) -> tuple[str, ...]:
        """The names of the outputs: the second class, each class, or the target."""
        if self.numeric is not None:
            return (self.target,)
        return tuple(str(value) for value in (self.classes[1:] if len(self.classes) == 2 else self.classes))

    def printed(self, points: np.ndarray | Sequence[int]) -> np.ndarray:
        """Printed points: 20 double the odds, or units of the target."""
        return np.asarray(points, dtype=np.float64) / POINTS * self.unit

    @property
    def start(self) -> np.ndarray:
        printed = self.printed(self.base)
        return printed if self.numeric is None else printed + float(self.numeric.origin)

    # JSON

    def to_dict(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "target": self.target,
            "schema": self.schema.model_dump(mode="json"),
            "base": list(self.base),
            "terms": [
                {
                    "cells": _cells_out(term),
                    "points": term.points.tolist(),
                    "deviations": term.deviations.tolist(),
                    "weights": term.weights.tolist(),
                }
                for term in self.terms
            ],
        }

    @classmethod
    def from_dict(cls, stored: Any) -> Card:
        """Reads a result of ``to_dict``; raises ``QueryError`` unless it is a whole and valid card."""
        if not isinstance(stored, dict) or stored.get("format") != FORMAT or stored.get("version") != VERSION:
            raise QueryError(f"this is not a stored card: its `format` must be {FORMAT!r}, its `version` {VERSION}.")
        try:
            schema = Schema.model_validate(stored["schema"])
            terms = tuple(_read_terms(stored["terms"]))
            return cls(schema, stored["target"], tuple(int(number) for number in stored["base"]), terms)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise QueryError(f"this is not a stored card: {error}") from None


def probabilities(scores: np.ndarray) -> np.ndarray:
    """Class probabilities from log-odds, shape (rows, 1), or from scores of each class."""
    # One score of ln 3 stands beside a 0: odds of 1 and 3, shares .25 and .75. All rows of a class lie side by side,
    # because sums along rows of two take many times as long.
    of_classes = np.vstack([np.zeros(len(scores)), scores.T]) if scores.shape[1] == 1 else scores.T.copy()
    odds = np.exp(of_classes - of_classes.max(axis=0))
    return np.ascontiguousarray((odds / odds.sum(axis=0)).T)


def _cells_out(term: Term) -> object:
    cells = [split_out(factor) for factor in term.factors]
    return cells if len(cells) > 1 else cells[0]


def _read_terms(stored: Any) -> Iterator[Term]:
    for number, entry in enumerate(stored):
        # The cells of a pair are those of its two attributes.
        cells = entry["cells"] if isinstance(entry["cells"], list) else [entry["cells"]]
        factors = [split_in(f"the cells of term {number} of the stored card", cell) for cell in cells]
        if not factors:
            raise QueryError(f"term {number} of the stored card has no cells.")
        spec = Cross(tuple(factors)) if len(factors) > 1 else factors[0]
        arrays = [np.array(entry[name], dtype=np.float64) for name in ("deviations", "weights")]
        yield Term(spec, np.array(entry["points"], dtype=np.int64), arrays[0], arrays[1])

# SPDX-License-Identifier: Apache-2.0
"""Second moments of columns from noisy sums: centres, deviations, and moments of standardised columns.

There are two requests. The first is for the sums and squares of all numeric columns over their declared bounds; they
give each column a centre and a deviation, and count missing numbers, which would otherwise count as the middle of the
bounds. The second is for ``Products`` of columns in these units, in which the expected norm of a row depends on the
number of columns, not on bounds. The second contains the constant, so covariances are about the true means.

A row whose products have a norm above a limit (docs/linear.md) is shortened to the limit, and so counts less. Numbers
are clamped beyond the largest possible distance from the mean of ``max_rows`` numbers, if the grid of the sums allows
it. Sums are in deviations: a row at the mean of all columns adds 1 to the constant and 0 to all other sums.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, cast

import numpy as np

from miners.budget.plan import PlanLine, count_scale
from miners.fitted.route import encode_rows, length
from miners.growth.candidates import attribute_names
from pinq.analyst.queryable import Parts, PrivateQueryable
from pinq.errors import QueryError
from pinq.language.products import MAX_ENTRIES, Entry, Pairs, Products
from pinq.public.checks import first_of, text_of
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Schema

# Chosen on three tables and random normal columns at epsilon .1 to 4 (docs/linear.md).
LIMIT = 0.6  # the least limit, as a share of the expected norm
GROWTH = (
    2 / 3
)  # the exponent of epsilon in the limit: below 1, so that noise vanishes; above 0, so that shortening does
LOST, SHIFT = 0.7, 0.2  # at the norm of a normal row: lost variance with heavy tails; a correlation's shift
SCALE_NORM = 0.75  # the limit for a column's sum and square over its bounds, at most 2; the norm of a missing number
NORMAL_SIZE = 0.8  # mean size of a normal number, in deviations
INDICATED = 0.7  # the assumed share of rows in which a categorical column does not have its first value
REACH = (3.0, 256.0)  # the least and the largest distance from the centre to which numbers are clamped, in deviations
NORMAL_REACH = 6.0  # the largest such distance if far rows shall not count
LEAST_GRID = 16.0  # the least such distance if far rows shall count
NEAREST = 2**11  # the least number of grid steps of sums in a limit
ROOT = math.sqrt(2)  # the deviation of Laplace noise of scale 1; the grid of sums of products is too fine to matter
LEAST_VARIANCE = 1e-12  # the least variance, in squares of half a column's range
KNOWN_NOT = "An unknown value counts as the first one, or as the mean."


def asked_columns(schema: Schema, target: str | None, attributes: Sequence[str] | None) -> tuple[str, ...]:
    """The columns of the model, without columns of a single value."""
    names = attribute_names(schema, target, attributes)
    numeric = schema.numeric_columns
    varied = [name for name in names if (numeric[name].cells if name in numeric else schema.columns[name].codes) > 1]
    if not varied:
        raise QueryError("the columns have a single value each, so there is nothing to learn.")
    return tuple(varied)


@dataclass(frozen=True)
class Norm:
    """The expected norm of rows' vectors, in deviations.

    Attributes:
        numeric: The number of numeric columns.
        categorical: The number of other columns.
        target: Whether a numeric target counts in each row.
        fair: The norm for which noise in a sum is as large as the variation of ``max_rows`` rows.
    """

    numeric: int
    categorical: int
    target: bool = False
    fair: float = 0.0

    @classmethod
    def of_rows(cls, schema: Schema, columns: Sequence[str], epsilon: Epsilon) -> Self:
        """The norm for statistics of the rows themselves: shortening and noise together have the least effect."""
        # Noise rises with the limit L as √2 s L / n, and the possible shift falls as SHIFT √(E / L): the sum is
        # least for L³ = E (SHIFT n / (2 √2 s))². An eighth of that is used, because most tails are lighter.
        fair = SHIFT * schema.max_rows / (16 * ROOT * count_scale(schema, epsilon))
        return replace(cls.of(schema, columns), fair=fair)

    @classmethod
    def of(
        cls, schema: Schema, columns: Sequence[str], epsilon: Epsilon | None = None, *, target: bool = False
    ) -> Self:
        """Of columns; with a loss, longer rows are kept where its noise is small for as many rows as there may be."""
        numeric = sum(name in schema.numeric_columns for name in columns)
        fair = 0.0 if epsilon is None else math.sqrt(schema.max_rows) / (ROOT * count_scale(schema, epsilon))
        return cls(numeric, len(columns) - numeric, target, fair)

    @property
    def entries(self) -> int:
        """The approximate number of coordinates."""
        return self.numeric + self.categorical + self.target

    def limit(self, pairs: Pairs) -> float:
        """The limit to which the norm of a row's products is shortened; no products are larger than the last."""
        usual = self._size if pairs == "sums" else self._expected * max(LIMIT, self.slack**GROWTH)
        return min(usual, MAX_ENTRIES**2)

    def sizes(self, rows: np.ndarray) -> np.ndarray:
        """The norms of the products of rows of numbers, with the usual indicators, shape (rows,)."""
        others = 1 + INDICATED * self.categorical
        return ((others + np.abs(rows).sum(axis=1)) ** 2 + others + (rows**2).sum(axis=1)) / 2

    @property
    def _columns_size(self) -> float:
        """The L1 norm of a normal row without the target."""
        return 1 + NORMAL_SIZE * self.numeric + INDICATED * self.categorical

    @property
    def target_size(self) -> float:
        """The size with which a target that is clamped at ``NORMAL_REACH`` deviations enters each row's norm.

        With a norm of B without it, a size of a makes noise of (B + a)² in products of columns, and reach / a
        times this in those with the target. Where both count alike, a is about the root below.
        """
        if not self.target:
            return 0.0
        return min(self._columns_size, math.cbrt(NORMAL_REACH**2 * self._columns_size), LEAST_GRID)

    @property
    def _size(self) -> float:
        return self._columns_size + self.target_size

    @property
    def _expected(self) -> float:
        square = 1 + self.numeric + INDICATED * self.categorical + self.target_size**2
        return (self._size**2 + square) / 2

    @property
    def slack(self) -> float:
        """The fair norm as a multiple of the norm of a normal row's products."""
        return self.fair / self._expected

    def shift(self, lost: np.ndarray) -> np.ndarray:
        """The largest deviation of a correlation's shift if shortening took these shares of columns' variances."""
        usual = LOST / math.sqrt(max(LIMIT, self.slack**GROWTH))
        return SHIFT / LOST * np.minimum(lost, usual)

    def reach(self, schema: Schema) -> float:
        """The deviations at which numbers are clamped: beyond any number of ``max_rows`` rows, if the grid allows."""
        # No number of 10,000 rows is further than 100 deviations from their mean, so the reach is 128.
        far = min(math.sqrt(schema.max_rows), math.sqrt(NEAREST * self.limit("all")) / 2)
        return float(np.clip(2.0 ** math.ceil(math.log2(far)), LEAST_GRID, REACH[1]))


@dataclass(frozen=True, eq=False)
class Scales:
    """The centres and deviations of numeric columns, in ranges from -1 to 1.

    Attributes:
        rows: The approximate number of rows.
        centres: The mean and the deviation of each column.
        unsure: The noise in the variance of each column, as a share of it; 1 if noise hides it.
    """

    rows: float
    centres: Mapping[str, tuple[float, float]]
    unsure: Mapping[str, float]

    @classmethod
    def asked(cls, handle: PrivateQueryable, products: Products, epsilon: Epsilon) -> Self:
        """Queries the sums and squares of all columns of ``products``, and the rows without their numbers."""
        sums, deviation = noisy_products(handle, products, epsilon)
        rows = max(float(sums.flat[0]), deviation)
        totals, squares = sums.reshape(-1)[1:].reshape(2, -1)
        entries = products.entries(handle.schema)[1:]
        missing = {entry.column: 2 * total for entry, total in zip(entries, totals, strict=True) if entry.value}
        present = np.array([max(rows - missing.get(name, 0.0), deviation) for name in products.names])
        numbers = [entry.value is None for entry in entries]
        noise, means, squares = (each / present for each in (deviation, totals[numbers], squares[numbers]))
        # A mean of 0.1 with noise of 0.1 is shrunk to 0.05; a variance is at least its noise.
        means = np.clip(means, -1, 1)
        means *= means**2 / (means**2 + noise**2)
        variances = np.clip(np.maximum(squares - means**2, noise), LEAST_VARIANCE, 0.5)
        # Missing numbers are at the mean, so they add nothing to the variance of all rows.
        deviations = np.sqrt(variances * np.minimum(present / rows, 1))
        pairs = zip(means.tolist(), deviations.tolist(), strict=True)
        return cls(
            rows,
            dict(zip(products.names, pairs, strict=True)),
            dict(zip(products.names, np.minimum(noise / variances, 1).tolist(), strict=True)),
        )

    def in_units(self, schema: Schema, name: str) -> tuple[float, float]:
        """A mean and a deviation in units of the column, from those over its bounds."""
        column, (mean, deviation) = schema.numeric_columns[name], self.centres[name]
        low, high = float(column.low), float(column.high)
        middle, half = (low + high) / 2, (high - low) / 2
        return middle + half * mean, max(half * deviation, float(column.width) / 4)


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Columns in deviations from their centres, and indicators.

    Attributes:
        scales: The centre and the deviation of each numeric column; None for a categorical one.
        reach: The distance from the centre, in deviations, at which numbers are clamped.
        unsure: The noise in the variance of each column, as a share of it; 1 if it is unknown. Empty
            without scales.
    """

    schema: Schema
    columns: tuple[str, ...]
    scales: tuple[tuple[float, float] | None, ...]
    reach: float
    unsure: tuple[float, ...] = ()

    @classmethod
    def asked(
        cls,
        handle: PrivateQueryable,
        schema: Schema,
        columns: tuple[str, ...],
        epsilon: Epsilon,
        norm: Norm | None = None,
    ) -> Self:
        """Queries sums and squares of the numeric columns; without any there is no query."""
        if not any(name in schema.numeric_columns for name in columns):
            return cls.unasked(schema, columns)
        return cls.of_scales(schema, columns, Scales.asked(handle, scale_products(schema, columns), epsilon), norm)

    @classmethod
    def of_scales(cls, schema: Schema, columns: tuple[str, ...], scales: Scales, norm: Norm | None = None) -> Self:
        """Columns in deviations; a norm decides where numbers are clamped, else the range of normal numbers."""
        centred = [scales.in_units(schema, name) if name in schema.numeric_columns else None for name in columns]
        # About the largest of n normal numbers.
        reach = min(math.sqrt(2 * math.log(max(scales.rows, 2))), NORMAL_REACH)
        if norm is not None:
            numeric = [
                (schema.numeric_columns[name], scale) for name, scale in zip(columns, centred, strict=True) if scale
            ]
            ends = [(float(end), scale) for column, scale in numeric for end in (column.low, column.high)]
            widest = max((abs(end - centre) / unit for end, (centre, unit) in ends), default=1.0)
            reach = min(norm.reach(schema), max(LEAST_GRID, 2.0 ** math.ceil(math.log2(widest))))
        return cls(
            schema,
            columns,
            tuple(centred),
            float(np.clip(reach, *REACH)),
            tuple(scales.unsure.get(name, 1.0) for name in columns),
        )

    @classmethod
    def unasked(cls, schema: Schema, columns: tuple[str, ...]) -> Self:
        """Coordinates without scales, for a plan."""
        return cls(
            schema, columns, tuple((0.0, 1.0) if name in schema.numeric_columns else None for name in columns), 3.0
        )

    @property
    def doubts(self) -> tuple[str, ...]:
        """The warning for columns whose spread noise hides: their coefficients are noise."""
        hidden = [
            f"`{name}`"
            for name, scale, unsure in zip(self.columns, self.scales, self.unsure, strict=False)
            if scale is not None and unsure >= 1
        ]
        return bool(hidden) * (
            f"noise hides how far {first_of(hidden, 3)} spread within the declared "
            "bounds, and so what they tell: narrower bounds, or a larger `epsilon`, are needed.",
        )

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        return Products(self.columns).entries(self.schema)[1:]

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(
            str(entry.column) if entry.value is None else f"{entry.column} = {text_of(entry.value)}"
            for entry in self.entries
        )

    @cached_property
    def places(self) -> np.ndarray:
        """The centre and the unit of each coordinate, shape (2, entries); 0 and 1 for an indicator."""
        by_column = dict(zip(self.columns, self.scales, strict=True))
        return np.array([by_column[str(entry.column)] or (0.0, 1.0) for entry in self.entries], dtype=np.float64).T

    @property
    def doubt(self) -> np.ndarray:
        """The noise in the variance of each coordinate, as a share of it; 1 if it is unknown."""
        by_column = dict(zip(self.columns, self.unsure, strict=False))
        return np.array([by_column.get(str(entry.column), 1.0) for entry in self.entries])

    @property
    def centres(self) -> np.ndarray:
        return self.places[0]

    @property
    def deviations(self) -> np.ndarray:
        return self.places[1]

    def target_size(self, norm: Norm) -> float:
        """The size of a target in each row's norm, at most the reach."""
        return min(norm.target_size, self.reach)

    def products(
        self, norm: Norm | None = None, pairs: Pairs = "all", target: tuple[str, float, float, float] | None = None
    ) -> Products:
        """The products to query; a target, with its centre, deviation and reach, is the last column."""
        names, sizes = self.columns, [1 / self.reach if scale is None else 1.0 for scale in self.scales]
        within = [None if scale is None else (*scale, self.reach) for scale in self.scales]
        if target is not None:
            names, within = (*names, target[0]), [*within, target[1:]]
            sizes.append(1.0 if norm is None else self.target_size(norm) / self.reach)
        ranges = [None if at is None else (at[0] - at[2] * at[1], at[0] + at[2] * at[1]) for at in within]
        limit = None if norm is None else norm.limit(pairs) / self.reach**2
        return Products(
            names,
            tuple(ranges),
            tuple(sizes),
            1 / self.reach,
            None if target is None else target[0],
            pairs,
            limit,
        )

    def of(self, frame: Any) -> np.ndarray:
        """The coordinates of rows, shape (rows, entries)."""
        rows, points = length(frame), []
        codes = encode_rows(self.schema, self.columns, frame, otherwise=KNOWN_NOT)
        for name, scale in zip(self.columns, self.scales, strict=True):
            column_codes = codes[name]
            if scale is None:
                points.append(
                    (column_codes[:, None] == np.arange(1, self.schema.columns[name].codes)).astype(np.float64)
                )
                continue
            column = self.schema.numeric_columns[name]
            numbers = float(column.origin) + float(column.width) * column_codes
            inside = np.clip((numbers - scale[0]) / scale[1], -self.reach, self.reach)
            points.append(np.where((column_codes < 0) | (column_codes >= column.cells), 0.0, inside)[:, None])
        return np.concatenate([np.zeros((rows, 0)), *points], axis=1)

    def proportions(self, weights: np.ndarray) -> dict[str, float]:
        """The weights of columns from those of coordinates, as proportions of 1; empty if all are 0."""
        total, proportions = float(weights.sum()), dict.fromkeys(self.columns, 0.0)
        for entry, weight in zip(self.entries, weights.tolist(), strict=True):
            proportions[str(entry.column)] += weight / total if total > 0 else 0.0
        return proportions if total > 0 else {}

    def to_dict(self) -> dict[str, Any]:
        schema = self.schema.model_dump(mode="json")
        return {"schema": schema, "columns": list(self.columns), "scales": list(self.scales), "reach": self.reach}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Reads the result of ``to_dict``; raises an error for anything else."""
        schema, columns = Schema.model_validate(stored["schema"]), tuple(map(str, stored["columns"]))
        scales = tuple(None if pair is None else (float(pair[0]), float(pair[1])) for pair in stored["scales"])
        reach = float(stored["reach"])
        numeric = [name in schema.numeric_columns for name in columns]
        fits = numeric == [pair is not None for pair in scales] and REACH[0] <= reach <= REACH[1]
        if not fits or not all(math.isfinite(pair[0]) and pair[1] > 0 for pair in scales if pair is not None):
            raise QueryError("the scales of the stored model do not fit its columns.")
        coordinates = cls(schema, columns, scales, reach)
        coordinates.products().check(schema)
        return coordinates


@dataclass(frozen=True, eq=False)
class NoisyMoments:
    """Noisy sums of products, in deviations.

    Attributes:
        matrices: Σ x x' of each part, the constant first, shape (parts, entries, entries).
        deviation: The deviation of the noise in each number.
    """

    matrices: np.ndarray
    deviation: float

    @classmethod
    def asked(
        cls,
        handle: PrivateQueryable | Parts,
        coordinates: Coordinates,
        norm: Norm,
        epsilon: Epsilon,
        target: tuple[str, float, float, float] | None = None,
    ) -> Self:
        """Queries all products; a target is the last entry."""
        products = coordinates.products(norm, target=target)
        sums, deviation = noisy_products(handle, products, epsilon)
        entries = 1 + len(coordinates.entries) + (target is not None)
        numbers = sums.reshape(-1, entries * (entries + 1) // 2)
        matrices = np.zeros((len(numbers), entries, entries))
        first, second = np.triu_indices(entries)
        matrices[:, first, second] = matrices[:, second, first] = numbers * coordinates.reach**2
        return cls(matrices, deviation * coordinates.reach**2)

    @property
    def rows(self) -> int:
        """The noisy number of rows of all parts, at least 1."""
        return max(1, round(float(self.matrices[:, 0, 0].sum())))

    def centred(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows, means and covariances of each part."""
        mean_rows = float(np.maximum(self.matrices[:, 0, 0], 0).sum()) / len(self.matrices)
        rows = np.maximum(
            self.matrices[:, 0, 0], max(mean_rows / 5, self.deviation)
        )  # noise must not make a part vanish
        means = self.matrices[:, 0, 1:] / rows[:, None]
        squares = self.matrices[:, 1:, 1:] / rows[:, None, None]
        return rows, means, squares - means[:, :, None] * means[:, None, :]


def noisy_products(handle: PrivateQueryable | Parts, products: Products, epsilon: Epsilon) -> tuple[np.ndarray, float]:
    """Queries products; returns the sums and the deviation of their noise."""
    sums = handle.noisy_sum(products, epsilon=epsilon)
    return np.asarray(sums, dtype=np.float64), ROOT * float(cast(float, sums.scale))


def noise_edge(deviation: float, entries: int) -> float:
    """The expected largest eigenvalue of a symmetric matrix of noise of this deviation."""
    return 2 * deviation * math.sqrt(entries)


def scale_products(schema: Schema, columns: Sequence[str]) -> Products:
    """The sums and squares of the numeric columns among ``columns``, over their bounds."""
    numeric = tuple(name for name in columns if name in schema.numeric_columns)
    nullable = sum(schema.numeric_columns[name].nullable for name in numeric)
    # Where so many entries do not fit, a missing number counts as the middle of the bounds here.
    missing = 0 < nullable < MAX_ENTRIES - len(numeric)
    return Products(numeric, pairs="squares", limit=1 + SCALE_NORM * len(numeric), missing=missing)


def scale_line(schema: Schema, columns: Sequence[str], epsilon: Epsilon) -> PlanLine:
    """The plan's line of the first request."""
    products = scale_products(schema, columns)
    noise = ROOT * count_scale(schema, epsilon) * float(products.limit or 0)
    return PlanLine(0, "sums and squares of numeric columns", "noisy_sum", 1, epsilon.exact, noise)


def product_line(
    schema: Schema, norm: Norm, pairs: Pairs, text: str, epsilon: Epsilon, level: int = 1, parts: int = 1
) -> PlanLine:
    """The plan's line of a request for products."""
    noise = ROOT * count_scale(schema, epsilon) * norm.limit(pairs)
    return PlanLine(level, text, "noisy_sum", parts, epsilon.exact, noise)

# SPDX-License-Identifier: Apache-2.0
"""Second moments of columns from noisy sums: centres, deviations, and moments of standardised columns.

There are two requests. The first is for the sums and squares of all numeric columns over their
declared bounds; they give each column a centre and a deviation. The second is for ``Products`` of
columns in these units, in which a row's norm follows from the number of columns, for any bounds.
The second corrects errors of the first, because it contains the constant: covariances are about the
true means.

A row whose products have a larger norm than a limit is shortened to it, and so counts less. The limit
is ``LIMIT`` of the norm that a normal row is expected to have, where noise needs it. It grows with
epsilon and the square root of the rows that there may be, slower than the noise falls: in the end no
row is shortened, and the noise is small beside the rows' own variation. Numbers are clamped so far from
the mean that no number of so many rows can be further, as far as the grid of the sums allows. Sums are
in deviations: a row at the mean of all columns adds 1 to the constant and 0 to all else.
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
from pinq.language.products import Entry, Pairs, Products
from pinq.public.checks import first_of, text_of
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Schema

# Chosen on three tables and random normal columns at epsilon .1 to 4 (docs/linear.md).
LIMIT = 0.6  # of the expected norm: the least limit
GROWTH = 2 / 3  # of the limit, as a power of epsilon: below 1 noise ends, above 0 shortening does
LOST, SHIFT = 0.7, 0.2  # at the norm of a normal row: lost variance where tails are heavy; a correlation's shift
SCALE_NORM = 0.75  # of a column's sum and square over its bounds, of 2 at most
NORMAL_SIZE = 0.8  # mean size of a normal number, in deviations
INDICATED = 0.7  # of a categorical column: how often its value is not the first
REACH = (3.0, 256.0)  # deviations beyond which numbers count as these: the least and the most
NORMAL_REACH = 6.0  # the most, where far rows shall not count
LEAST_GRID = 16.0  # deviations: the least reach where far rows shall count
NEAREST = 2**11  # the least limit in the grid of sums is one part in so many
ROOT = math.sqrt(2)  # deviation of Laplace noise of scale 1; sums of products have so fine a grid that none shows
LEAST_VARIANCE = 1e-12  # of half a column's range, squared
KNOWN_NOT = "An unknown value counts as the first one, or as the mean."


def asked_columns(schema: Schema, target: str | None, attributes: Sequence[str] | None) -> tuple[str, ...]:
    """Returns the columns to look at, without those of a single value."""
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
        fair: The norm for which noise in a sum is as large as the variation of as many rows as there may be.
    """

    numeric: int
    categorical: int
    target: bool = False
    fair: float = 0.0

    @classmethod
    def of_rows(cls, schema: Schema, columns: Sequence[str], epsilon: Epsilon) -> Self:
        """Where numbers of these very rows are asked for: shortening and noise together move them least."""
        # Noise rises with the limit L as √2 s L / n, and the possible shift falls as SHIFT √(E / L): the sum is
        # least where L³ is E (SHIFT n / (2 √2 s))². Most columns' tails are lighter, so it is an eighth of that.
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
        """The limit to which the norm of a row's products is shortened."""
        return self._size if pairs == "sums" else self._expected * max(LIMIT, self.slack**GROWTH)

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
        """The L1 norm of a normal row."""
        return self._columns_size + self.target_size

    @property
    def _expected(self) -> float:
        """The norm of a normal row's products."""
        square = 1 + self.numeric + INDICATED * self.categorical + self.target_size**2
        return (self._size**2 + square) / 2

    @property
    def slack(self) -> float:
        """The times that the norm of a normal row's products fits into the fair one."""
        return self.fair / self._expected

    def shift(self, lost: np.ndarray) -> np.ndarray:
        """The deviation of a correlation's shift by shortening that took so much of columns' variances, at most."""
        usual = LOST / math.sqrt(max(LIMIT, self.slack**GROWTH))
        return SHIFT / LOST * np.minimum(lost, usual)

    def reach(self, schema: Schema) -> float:
        """The deviations beyond which numbers are clamped: none of ``max_rows`` is further, if the grid allows it."""
        # Of 10,000 rows no number is further than 100 deviations from their mean, which asks for 128.
        far = min(math.sqrt(schema.max_rows), math.sqrt(NEAREST * self.limit("all")) / 2)
        return float(np.clip(2.0 ** math.ceil(math.log2(far)), LEAST_GRID, REACH[1]))


@dataclass(frozen=True, eq=False)
class Scales:
    """The centres and deviations of numeric columns, in ranges from -1 to 1.

    Attributes:
        rows: The approximate number of rows.
        found: The mean and the deviation of each column.
        unsure: The noise in the variance of each column, as a share of it; 1 where it stands in its place.
    """

    rows: float
    found: Mapping[str, tuple[float, float]]
    unsure: Mapping[str, float]

    @classmethod
    def asked(cls, handle: PrivateQueryable | Parts, products: Products, epsilon: Epsilon) -> Self:
        """Asks for the sums and squares of all columns of ``products``."""
        sums, deviation = noisy_products(handle, products, epsilon)
        numbers = sums.reshape(-1)
        rows = max(float(numbers[0]), deviation)
        noise, (means, squares) = deviation / rows, numbers[1:].reshape(2, -1) / rows
        # A mean of .1 with noise of .1 is shrunk to .05; a variance below its noise is taken to be that.
        means = np.clip(means, -1, 1)
        means *= means**2 / (means**2 + noise**2)
        variances = np.clip(np.maximum(squares - means**2, noise), LEAST_VARIANCE, 0.5)
        pairs = zip(means.tolist(), np.sqrt(variances).tolist(), strict=True)
        return cls(
            rows,
            dict(zip(products.names, pairs, strict=True)),
            dict(zip(products.names, np.minimum(noise / variances, 1).tolist(), strict=True)),
        )

    def in_units(self, schema: Schema, name: str) -> tuple[float, float]:
        """A mean and a deviation in units of the column, from those over its bounds."""
        column, (mean, deviation) = schema.numeric_columns[name], self.found[name]
        low, high = float(column.low), float(column.high)
        middle, half = (low + high) / 2, (high - low) / 2
        return middle + half * mean, max(half * deviation, float(column.width) / 4)


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Columns in deviations from their centres; indicators as they are.

    Attributes:
        schema: The schema of the columns.
        columns: Their names.
        scales: The centre and the deviation of each numeric column; None for a categorical one.
        reach: Numbers further from the centre count as so many deviations.
        unsure: The noise in the variance of each column, as a share of it; 1 where it is unknown. Empty
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
        handle: PrivateQueryable | Parts,
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
        """Columns in deviations; with a norm, numbers are clamped as far out as it allows, else as normal ones are."""
        found = [scales.in_units(schema, name) if name in schema.numeric_columns else None for name in columns]
        # Of n normal numbers the largest is about this.
        reach = min(math.sqrt(2 * math.log(max(scales.rows, 2))), NORMAL_REACH)
        if norm is not None:
            ends = [(schema.numeric_columns[name].bounds, own) for name, own in zip(columns, found, strict=True) if own]
            widest = max((abs(float(end) - own[0]) / own[1] for bounds, own in ends for end in bounds), default=1.0)
            reach = min(norm.reach(schema), max(LEAST_GRID, 2.0 ** math.ceil(math.log2(widest))))
        return cls(
            schema,
            columns,
            tuple(found),
            float(np.clip(reach, *REACH)),
            tuple(scales.unsure.get(name, 1.0) for name in columns),
        )

    @classmethod
    def unasked(cls, schema: Schema, columns: tuple[str, ...]) -> Self:
        """Coordinates without scales: the plan of a query for products does not need them."""
        return cls(
            schema, columns, tuple((0.0, 1.0) if name in schema.numeric_columns else None for name in columns), 3.0
        )

    @property
    def doubts(self) -> tuple[str, ...]:
        """The warning where noise hides how far numbers spread: their coefficients are then none of theirs."""
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
        """The meaning of each coordinate, without the constant."""
        return Products(self.columns).entries(self.schema)[1:]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The name of each coordinate."""
        return tuple(
            str(entry.column) if entry.value is None else f"{entry.column} = {text_of(entry.value)}"
            for entry in self.entries
        )

    @cached_property
    def places(self) -> np.ndarray:
        """The centre and the unit of each coordinate, shape (2, entries); 0 and 1 for an indicator."""
        known = dict(zip(self.columns, self.scales, strict=True))
        return np.array([known[str(entry.column)] or (0.0, 1.0) for entry in self.entries], dtype=np.float64).T

    @property
    def doubt(self) -> np.ndarray:
        """The noise in the variance of each coordinate, as a share of it; 1 where it is unknown."""
        known = dict(zip(self.columns, self.unsure, strict=False))
        return np.array([known.get(str(entry.column), 1.0) for entry in self.entries])

    @property
    def centres(self) -> np.ndarray:
        """The centre of each coordinate, shape (entries,)."""
        return self.places[0]

    @property
    def deviations(self) -> np.ndarray:
        """The unit of each coordinate, shape (entries,)."""
        return self.places[1]

    def target_size(self, norm: Norm) -> float:
        """The size with which a target enters each row's norm: no entry is larger than the reach."""
        return min(norm.target_size, self.reach)

    def products(
        self, norm: Norm | None = None, pairs: Pairs = "all", target: tuple[str, float, float, float] | None = None
    ) -> Products:
        """The products to query; a target with its centre, deviation and own reach comes last."""
        names, sizes = self.columns, [1 / self.reach if scale is None else 1.0 for scale in self.scales]
        within = [None if scale is None else (*scale, self.reach) for scale in self.scales]
        if target is not None:
            names, within = (*names, target[0]), [*within, target[1:]]
            sizes.append(1.0 if norm is None else self.target_size(norm) / self.reach)
        ranges = [None if own is None else (own[0] - own[2] * own[1], own[0] + own[2] * own[1]) for own in within]
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
            own = codes[name]
            if scale is None:
                points.append((own[:, None] == np.arange(1, self.schema.columns[name].codes)).astype(np.float64))
                continue
            column = self.schema.numeric_columns[name]
            numbers = float(column.origin) + float(column.width) * own
            inside = np.clip((numbers - scale[0]) / scale[1], -self.reach, self.reach)
            points.append(np.where((own < 0) | (own >= column.cells), 0.0, inside)[:, None])
        return np.concatenate([np.zeros((rows, 0)), *points], axis=1)

    def proportions(self, weights: np.ndarray) -> dict[str, float]:
        """The weights of columns from those of coordinates, as proportions of 1; empty if all are 0."""
        total, proportions = float(weights.sum()), dict.fromkeys(self.columns, 0.0)
        for entry, weight in zip(self.entries, weights.tolist(), strict=True):
            proportions[str(entry.column)] += weight / total if total > 0 else 0.0
        return proportions if total > 0 else {}

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        schema = self.schema.model_dump(mode="json")
        return {"schema": schema, "columns": list(self.columns), "scales": list(self.scales), "reach": self.reach}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Reads what ``to_dict`` wrote. An error where it is something else."""
        schema, columns = Schema.model_validate(stored["schema"]), tuple(map(str, stored["columns"]))
        scales = tuple(None if own is None else (float(own[0]), float(own[1])) for own in stored["scales"])
        reach = float(stored["reach"])
        numeric = [name in schema.numeric_columns for name in columns]
        fits = numeric == [own is not None for own in scales] and REACH[0] <= reach <= REACH[1]
        if not fits or not all(math.isfinite(own[0]) and own[1] > 0 for own in scales if own is not None):
            raise QueryError("the scales of the stored model do not fit its columns.")
        found = cls(schema, columns, scales, reach)
        found.products().check(schema)
        return found


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
        """Asks for all products; a target is the last entry."""
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
        most = float(np.maximum(self.matrices[:, 0, 0], 0).sum()) / len(self.matrices)
        rows = np.maximum(self.matrices[:, 0, 0], max(most / 5, self.deviation))  # no part is lost in noise
        means = self.matrices[:, 0, 1:] / rows[:, None]
        squares = self.matrices[:, 1:, 1:] / rows[:, None, None]
        return rows, means, squares - means[:, :, None] * means[:, None, :]


def noisy_products(handle: PrivateQueryable | Parts, products: Products, epsilon: Epsilon) -> tuple[np.ndarray, float]:
    """Asks; returns the sums and the deviation of their noise."""
    sums = handle.noisy_sum(products, epsilon=epsilon)
    return np.asarray(sums, dtype=np.float64), ROOT * float(cast(float, sums.scale))


def noise_edge(deviation: float, entries: int) -> float:
    """The largest eigenvalue that a symmetric matrix of such noise is expected to have."""
    return 2 * deviation * math.sqrt(entries)


def scale_products(schema: Schema, columns: Sequence[str]) -> Products:
    """The sums and squares of the numeric ones of some columns, over their bounds."""
    numeric = tuple(name for name in columns if name in schema.numeric_columns)
    return Products(numeric, pairs="squares", limit=1 + SCALE_NORM * len(numeric))


def scale_line(schema: Schema, columns: Sequence[str], epsilon: Epsilon) -> PlanLine:
    """The plan's line of the first request."""
    products = scale_products(schema, columns)
    noise = ROOT * count_scale(schema, epsilon) * float(products.limit or 0)
    return PlanLine(0, "sums and squares of numeric columns", "noisy_sum", 1, epsilon.exact, noise)


def product_line(
    schema: Schema, norm: Norm, pairs: Pairs, asked: str, epsilon: Epsilon, level: int = 1, parts: int = 1
) -> PlanLine:
    """The plan's line of a request for products."""
    noise = ROOT * count_scale(schema, epsilon) * norm.limit(pairs)
    return PlanLine(level, asked, "noisy_sum", parts, epsilon.exact, noise)

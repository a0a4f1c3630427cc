# SPDX-License-Identifier: Apache-2.0
"""Second moments of columns from noisy sums: centres, deviations, and moments of standardised columns.

There are two requests. The first is for the sums and squares of all numeric columns over their
declared bounds; they give each column a centre and a deviation. The second is for ``Products`` of
columns in these units, in which a row's norm follows from the number of columns, for any bounds.
The second corrects errors of the first, because it contains the constant: covariances are about the
true means.

Rows are shortened to ``LIMIT`` of the norm that a normal row is expected to have. Where the answer is
the covariance itself, of components and correlations, they are shortened to more, up to hardly any row,
once public facts say that the noise in a correlation is below ``FINE``. Sums are in deviations: a row
at the mean of all columns adds 1 to the constant and 0 to all else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

# All chosen on three tables and random normal columns at epsilon .1 to 4 (docs/linear.md).
LIMIT, MOST = 0.6, 10.0  # of the expected norm: the least and the most
FINE = 0.01  # deviation of the noise in a correlation below which longer rows are kept as they are
SCALE_NORM = 0.75  # of a column's sum and square over its bounds, of 2 at most
NORMAL_SIZE = 0.8  # mean size of a normal number, in deviations
INDICATED = 0.7  # of a categorical column: how often its value is not the first
TARGET_SIZE = 3.0  # deviations: with how much a target counts in each row's norm
REACH = (3.0, 6.0)  # deviations beyond which numbers count as these: the least and the most
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
        scale: The scale of the noise in a count, as a proportion of the rows.
        fine: The deviation of the noise in a correlation below which longer rows are kept.
    """

    numeric: int
    categorical: int
    target: bool = False
    scale: float = math.inf
    fine: float = FINE

    @classmethod
    def of(
        cls, schema: Schema, columns: Sequence[str], epsilon: Epsilon | None = None, *, target: bool = False
    ) -> Self:
        """Of columns; with a loss, longer rows are kept where its noise is small for as many rows as there may be."""
        numeric = sum(name in schema.numeric_columns for name in columns)
        scale = math.inf if epsilon is None else count_scale(schema, epsilon) / schema.max_rows
        return cls(numeric, len(columns) - numeric, target, scale)

    @property
    def entries(self) -> int:
        """The approximate number of coordinates."""
        return self.numeric + self.categorical + self.target

    def limit(self, pairs: Pairs) -> float:
        """The limit to which the norm of a row's products is shortened."""
        added = TARGET_SIZE * self.target
        size = 1 + NORMAL_SIZE * self.numeric + INDICATED * self.categorical + added
        if pairs == "sums":
            return size
        square = 1 + self.numeric + INDICATED * self.categorical + added**2
        expected = (size**2 + square) / 2
        return expected * min(MOST, max(LIMIT, self.fine / (ROOT * self.scale * expected)))


@dataclass(frozen=True, eq=False)
class Scales:
    """The centres and deviations of numeric columns, in ranges from -1 to 1.

    Attributes:
        rows: The approximate number of rows.
        found: The mean and the deviation of each column.
        hidden: The noise-dominated columns. The noise stands in place of their variance.
    """

    rows: float
    found: Mapping[str, tuple[float, float]]
    hidden: frozenset[str]

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
            frozenset(np.array(products.names)[variances <= noise].tolist()),
        )

    def in_units(self, schema: Schema, name: str, within: tuple[float, float] | None) -> tuple[float, float]:
        """A mean and a deviation in units of the column, from those over a range; None for its bounds."""
        column, (mean, deviation) = schema.numeric_columns[name], self.found[name]
        low, high = (float(column.low), float(column.high)) if within is None else within
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
        hidden: Columns whose deviation is that of its noise.
    """

    schema: Schema
    columns: tuple[str, ...]
    scales: tuple[tuple[float, float] | None, ...]
    reach: float
    hidden: tuple[str, ...] = ()

    @classmethod
    def asked(
        cls, handle: PrivateQueryable | Parts, schema: Schema, columns: tuple[str, ...], epsilon: Epsilon
    ) -> Self:
        """Queries sums and squares of the numeric columns; without any there is no query."""
        if not any(name in schema.numeric_columns for name in columns):
            return cls.unasked(schema, columns)
        return cls.of_scales(schema, columns, Scales.asked(handle, scale_products(schema, columns), epsilon))

    @classmethod
    def of_scales(cls, schema: Schema, columns: tuple[str, ...], scales: Scales) -> Self:
        """Columns in deviations; the limit of a coordinate follows from the number of rows."""
        found = [scales.in_units(schema, name, None) if name in schema.numeric_columns else None for name in columns]
        # Of n normal numbers the largest is about this.
        reach = math.sqrt(2 * math.log(max(scales.rows, 2)))
        return cls(
            schema,
            columns,
            tuple(found),
            float(np.clip(reach, *REACH)),
            tuple(name for name in columns if name in scales.hidden),
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
        return bool(self.hidden) * (
            f"noise hides how far {first_of([f'`{name}`' for name in self.hidden], 3)} spread within the declared "
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
    def centres(self) -> np.ndarray:
        """The centre of each coordinate, shape (entries,)."""
        return self.places[0]

    @property
    def deviations(self) -> np.ndarray:
        """The unit of each coordinate, shape (entries,)."""
        return self.places[1]

    def products(
        self, norm: Norm | None = None, pairs: Pairs = "all", target: tuple[str, float, float] | None = None
    ) -> Products:
        """The products to query; a target with its centre and deviation comes last."""
        names, scales = self.columns, self.scales
        sizes = [1 / self.reach if scale is None else 1.0 for scale in scales]
        if target is not None:
            names, scales = (*names, target[0]), (*scales, target[1:])
            sizes.append(TARGET_SIZE / self.reach)
        ranges = [
            None if scale is None else (scale[0] - self.reach * scale[1], scale[0] + self.reach * scale[1])
            for scale in scales
        ]
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

    def shares(self, weights: np.ndarray) -> dict[str, float]:
        """The weights of columns from those of coordinates, as proportions of 1; empty if all are 0."""
        total, shares = float(weights.sum()), dict.fromkeys(self.columns, 0.0)
        for entry, weight in zip(self.entries, weights.tolist(), strict=True):
            shares[str(entry.column)] += weight / total if total > 0 else 0.0
        return shares if total > 0 else {}

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
        target: tuple[str, float, float] | None = None,
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


def scale_products(
    schema: Schema, columns: Sequence[str], target: str | None = None, near: tuple[float, float] | None = None
) -> Products:
    """The sums and squares of the numeric ones of some columns, over their bounds; a target's over a range."""
    numeric = tuple(name for name in columns if name in schema.numeric_columns)
    limit = 1 + SCALE_NORM * len(numeric)
    if target is None:
        return Products(numeric, pairs="squares", limit=limit)
    ranges = (*(None for _ in numeric), near)
    return Products((*numeric, target), ranges, fixed=target, pairs="squares", limit=limit + 2)


def scale_line(schema: Schema, columns: Sequence[str], epsilon: Epsilon, target: str | None = None) -> PlanLine:
    """The plan's line of the first request."""
    products = scale_products(schema, columns, target)
    noise = ROOT * count_scale(schema, epsilon) * float(products.limit or 0)
    return PlanLine(0, "sums and squares of numeric columns", "noisy_sum", 1, epsilon.exact, noise)


def product_line(
    schema: Schema, norm: Norm, pairs: Pairs, asked: str, epsilon: Epsilon, level: int = 1, parts: int = 1
) -> PlanLine:
    """The plan's line of a request for products."""
    noise = ROOT * count_scale(schema, epsilon) * norm.limit(pairs)
    return PlanLine(level, asked, "noisy_sum", parts, epsilon.exact, noise)

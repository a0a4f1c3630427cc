# SPDX-License-Identifier: Apache-2.0
"""The common code of linear models: the decisions before the first query, stored state, and output."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from miners.budget.plan import (
    NOT_GIVEN,
    PlanLine,
    Storage,
    bytes_of,
    count_scale,
    spread,
)
from miners.estimator import FitPlan, Miner
from miners.growth.target_range import HISTOGRAM
from miners.linear.moments import ROOT, Coordinates, Norm, noise_edge, product_line, scale_line
from miners.pictures import Axes, named_map, shorten
from pinq.errors import QueryError
from pinq.language.products import Products
from pinq.language.specs import Values
from pinq.public.checks import many
from pinq.public.epsilon import ZERO, Epsilon, EpsilonLike
from pinq.public.schema import Schema

if TYPE_CHECKING:
    import pandas as pd

    from pinq.analyst.queryable import PrivateQueryable


Shape = Literal["regression", "components", "pooled", "each", "curved", "own"]
"""The learned model; for classes: a covariance of all rows, the mean of the classes' covariances, or one for each."""

REGIMES: Mapping[Shape, tuple[tuple[int, ...], float]] = {
    # Shares of epsilon in the order of queries, and the limit of the noise's largest eigenvalue, in variances of a
    # column, above which noise hides too much. By experiments on three tables and random ones (docs/linear.md).
    "regression": ((15, 3, 4, 3, 75), 1.0),  # scales; range of the target, twice; its mean; products
    "components": ((15, 85), 1.0),  # scales, products
    "pooled": ((5, 60, 35), 1.0),  # scales, sums of each class, products of all rows
    "each": ((15, 85), 0.2),  # scales, products of each class
    "curved": ((15, 85), 0.2),  # as "each", from which the shapes of classes follow, too
    # Scales, sums of each class, products of each; the limit is for numeric columns, which alone have own shapes.
    "own": ((8, 22, 70), 0.75),
}

CLEAR = 0.01  # the largest noise in each part of a regression's histograms, as a share of the rows
MOST_FOR_MEAN = 20  # the largest percentage of epsilon for each query of the target alone


@dataclass(frozen=True, eq=False)
class LinearState(ABC):
    """The stored state of a linear model: its columns, and arrays whose shapes follow from them."""

    coordinates: Coordinates

    kept_as: ClassVar[str]
    about: ClassVar[str]

    @property
    def schema(self) -> Schema:
        return self.coordinates.schema

    def to_dict(self) -> dict[str, Any]:
        """The state as plain values, for JSON."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        arrays = {name: value.tolist() for name, value in values.items() if isinstance(value, np.ndarray)}
        return {**values, "coordinates": self.coordinates.to_dict(), **arrays}

    @classmethod
    def from_dict(cls, stored: Any) -> Self:
        """Reads the result of ``to_dict``; raises ``QueryError`` unless it is complete and valid."""
        try:
            coordinates = Coordinates.from_dict(stored["coordinates"])
            values = {field.name: stored[field.name] for field in fields(cls)} | {"coordinates": coordinates}
            for name, shape in cls._shapes(coordinates, stored).items():
                array = np.array(values[name], dtype=np.float64)
                if array.shape != shape or not np.isfinite(array).all():
                    raise ValueError(f"its {name} do not fit its columns")
                values[name] = array if shape else float(array)
            return cls(**values)
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            raise QueryError(f"this is not a stored {cls.about}: {error}") from None

    @classmethod
    @abstractmethod
    def _shapes(cls, coordinates: Coordinates, stored: Any) -> Mapping[str, tuple[int, ...]]:
        """The shape of each array, () for a number; raises ``ValueError`` if another field is not valid."""

    @abstractmethod
    def to_frame(self) -> pd.DataFrame:
        """A row for each term (of each class), or for each component."""

    @abstractmethod
    def export_text(self) -> str:
        """The report as text."""

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.export_text())}</pre>"

    @abstractmethod
    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws it on axes, or on a new figure."""


@dataclass(frozen=True)
class LinearFit(FitPlan["PrivateQueryable"]):
    """The fit of a linear model.

    Attributes:
        columns: The columns that the queries read.
        costs: The costs of the queries, in their order.
    """

    miner: Any
    schema: Schema
    columns: tuple[str, ...]
    target: str
    shape: Shape
    costs: tuple[Epsilon, ...]

    @classmethod
    def of(cls, miner: LinearMiner, schema: Schema, columns: tuple[str, ...], target: str, shape: Shape) -> Self:
        """Divides epsilon; without numeric columns there is no query for their scales."""
        weights, loss = REGIMES[shape][0], Epsilon.of(miner.epsilon)
        if shape == "regression":
            # For 5,000 rows at epsilon 0.1, 35 % of epsilon would be needed; `MOST_FOR_MEAN` limits it.
            each = round(100 * ROOT * count_scale(schema, loss) / (CLEAR * schema.max_rows))
            each = min(max(each, weights[1]), MOST_FOR_MEAN)
            weights = (weights[0], each, each + 1, each, sum(weights[1:]) - 3 * each - 1)
        numeric = any(name in schema.numeric_columns for name in columns)
        costs = spread(loss, weights) if numeric else (ZERO, *spread(loss, weights[1:]))
        fit = cls(miner, schema, columns, target, shape, costs)
        fit.heaviest.check(schema)
        return fit

    @property
    def norm(self) -> Norm:
        """The norm of the rows' vectors."""
        share = None if self.by_class else self.costs[-1]
        return Norm.of(self.schema, self.columns, share, target=self.shape == "regression")

    @property
    def heaviest(self) -> Products:
        """The products of the later query, in any scales."""
        target = (self.target, 0.0, 1.0, 1.0) if self.shape == "regression" else None
        return Coordinates.unasked(self.schema, self.columns).products(target=target)

    @property
    def by_class(self) -> bool:
        """Whether the products of each class are queried."""
        return self.shape in ("each", "curved", "own")

    @property
    def separate(self) -> bool:
        """Whether each class has a covariance of its own."""
        return self.shape in ("curved", "own")

    @property
    def sums(self) -> bool:
        """Whether sums of each class are queried apart from products."""
        return self.shape in ("pooled", "own")

    @property
    def classes(self) -> int:
        return len(self.schema.categorical(self.target).values)

    @property
    def hidden(self) -> bool:
        """Whether noise hides too much even with ``max_rows`` rows."""
        return self.edge(self.schema.max_rows) >= self.most

    @property
    def most(self) -> float:
        """The largest edge that hides nothing."""
        return REGIMES[self.shape][1] * (self.norm.numeric / self.norm.entries if self.shape == "own" else 1)

    def edge(self, rows: int) -> float:
        """The largest eigenvalue of the noise in the covariance of ``rows`` rows, or of a class of them."""
        noise = ROOT * count_scale(self.schema, self.costs[-1]) * self.norm.limit("all")
        return noise_edge(noise, self.norm.entries) * (self.classes if self.by_class else 1) / max(rows, 1)

    def rehearse(self, handle: PrivateQueryable) -> Storage:
        parts = handle.partition(Values(self.target)) if self.by_class or self.shape == "pooled" else handle
        heaviest = parts.preview("noisy_sum", self.heaviest, epsilon=self.costs[-1]).stored
        return Storage(len(self.costs) * (heaviest + bytes_of(2 * HISTOGRAM)))

    @property
    def total(self) -> Epsilon:
        return sum(self.costs, ZERO)

    @property
    def title(self) -> str:
        by = "on" if self.shape == "regression" else "by"
        target = f"`{self.target}` {by} " if self.shape != "components" else ""
        return f"{type(self.miner).__name__} of {target}{many(len(self.columns), 'column')}"

    def lines(self) -> Sequence[PlanLine]:
        parts = self.schema.columns[self.target].codes if self.by_class else 1
        products = product_line(self.schema, self.norm, "all", "products of columns", self.costs[-1], 1, parts)
        return *([scale_line(self.schema, self.columns, self.costs[0])] if self.norm.numeric else ()), products

    def notes(self) -> tuple[str, ...]:
        return ("the noise of products is in units of a column's variance.",)

    def warnings(self, rows: int | None) -> tuple[str, ...]:
        expected = self.schema.max_rows if rows is None else rows
        edge = self.edge(expected)
        return () if edge < self.most else (self.doubt(edge, expected),)

    @abstractmethod
    def doubt(self, edge: float, rows: int) -> str:
        """The warning for noise of this largest eigenvalue in the covariance of a number of rows."""


@dataclass(kw_only=True, repr=False, eq=False)
class LinearMiner(Miner):
    """A linear model."""

    epsilon: EpsilonLike = NOT_GIVEN
    attributes: Sequence[str] | None = None

    def export_text(self) -> str:
        return self._model.export_text()

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws coefficients with 95 % intervals, or a map of class means. It needs matplotlib."""
        return self._model.plot(ax)


def draw_map(ax: Axes, numbers: np.ndarray, limit: float, across: Sequence[str], down: Sequence[str]) -> None:
    """Draws numbers from ``-limit`` to ``limit`` in two colours, with names across and down and a scale."""
    names, beside = [shorten(name) for name in across], [shorten(name, 16) for name in down]
    drawn = named_map(ax, numbers, names, beside, size=7, cmap="RdBu", vmin=-limit, vmax=limit)
    ax.figure.colorbar(drawn, ax=ax, pad=0.01).ax.tick_params(labelsize=7)

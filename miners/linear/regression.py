# SPDX-License-Identifier: Apache-2.0
"""``LinearRegression``: coefficients with errors that include both the noise and the rows.

With A = Σ x x' and b = Σ x y of the answers, least squares is b = A β + η. Three independent parts
make η: the residuals of the rows, Σ x e; the noise of b; and the noise of A times β. All but β are
public or in the answers, so β has a normal posterior under a prior that says how large coefficients
are: precise where A is large beside its noise, the prior where it is not. It is ridge regression
whose ridge is small in directions that the noise leaves alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np

from miners.budget.plan import PlanLine, count_line, tell
from miners.estimator import Regressor, require_varied
from miners.fitted.theme import BLUE, INK, PALE, axes_of, shorten
from miners.linear.linear_miner import LinearMiner, LinearState, Work
from miners.linear.moments import (
    TARGET_SIZE,
    Coordinates,
    NoisyMoments,
    Scales,
    asked_columns,
    product_line,
    scale_line,
    scale_products,
)
from miners.scorecards.objectives import Mean, objective_of
from pinq.errors import QueryError
from pinq.language.points import POINTS
from pinq.language.specs import bind
from pinq.public.checks import many
from pinq.public.schema import Schema

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from pinq.analyst.queryable import PrivateQueryable


NEAR = 4.0  # deviations of a histogram about its mean, where the target is looked for
SURE = 1.96  # deviations on each side of a 95 % interval
ROUNDS = 30  # of the posterior; it changes by less than a hundredth of its errors after 20
LEAST_RESIDUAL = 0.05  # share of the target's variance: noise may leave less than none


@dataclass(frozen=True, eq=False)
class RegressionLine(LinearState):
    """A fitted regression.

    Attributes:
        coordinates: The coordinates of the columns.
        target: The predicted column.
        scale: The target's centre and deviation, shape (2,).
        coefficients: The coefficients of the constant and the coordinates, in deviations, shape (entries,).
        errors: Standard errors of ``natural``, the intercept first, shape (entries,).
        determination: R², from the noisy sums.
        residual: The standard deviation of the target about the line, in its units.
        rows: The approximate number of rows that it was learned from.
    """

    target: str
    scale: np.ndarray
    coefficients: np.ndarray
    errors: np.ndarray
    determination: float
    residual: float
    rows: float

    kept_as: ClassVar[str] = "line"
    about: ClassVar[str] = "regression"
    classes: ClassVar[tuple[()]] = ()

    @classmethod
    def _shapes(cls, coordinates: Coordinates, stored: Any) -> Mapping[str, tuple[int, ...]]:
        coordinates.schema.numeric(stored["target"])
        if min(stored["errors"]) < 0 or stored["scale"][1] <= 0:
            raise ValueError("a size is below 0")
        each = (1 + len(coordinates.entries),)
        numbers = dict.fromkeys(("determination", "residual", "rows"), ())
        return {"scale": (2,), "coefficients": each, "errors": each, **numbers}

    @classmethod
    def of(
        cls, coordinates: Coordinates, target: str, scale: tuple[float, float], moments: NoisyMoments, rows: float
    ) -> Self:
        """The posterior of the coefficients by noisy moments of so many rows, the target their last entry."""
        matrix, larger = moments.matrices[0], coordinates.reach / TARGET_SIZE  # the target was asked for smaller
        gram, cross, square = matrix[:-1, :-1], matrix[:-1, -1] * larger, float(matrix[-1, -1]) * larger**2
        mean, covariance, residual = posterior(
            gram,
            cross,
            square,
            moments.deviation,
            larger,
            max(float(gram[0, 0]), moments.deviation),  # of all rows: those that were shortened count less
        )
        natural = _to_units(coordinates, scale[1])
        errors = np.sqrt(np.einsum("ij,jk,ik->i", natural, covariance, natural))
        return cls(
            coordinates,
            target,
            np.array(scale),
            mean,
            errors,
            max(0.0, 1 - residual),
            math.sqrt(residual) * scale[1],
            rows,
        )

    @property
    def natural(self) -> np.ndarray:
        """The intercept and each coordinate's coefficient in units of the columns, shape (entries,)."""
        found: np.ndarray = _to_units(self.coordinates, self.scale[1]) @ self.coefficients
        found[0] += self.scale[0]
        return found

    @property
    def terms(self) -> tuple[str, ...]:
        """The terms of the coefficients."""
        return ("(intercept)", *self.coordinates.names)

    @property
    def importances(self) -> dict[str, float]:
        """The sizes of the coefficients of each column, in deviations, as proportions of 1."""
        return self.coordinates.shares(np.abs(self.coefficients[1:]))

    def predict(self, frame: Any) -> np.ndarray:
        """Predicts the mean of each row, within the target's bounds, shape (rows,)."""
        points = self.coordinates.of(frame)
        found = self.scale[0] + self.scale[1] * (self.coefficients[0] + points @ self.coefficients[1:])
        column = self.schema.numeric(self.target)
        return np.clip(found, float(column.low), float(column.high))

    def predict_proba(self, frame: Any) -> np.ndarray:
        """``QueryError``: a mean has no classes."""
        raise QueryError(f"`{self.target}` is numeric; its mean is predicted, and no class.")

    def to_frame(self) -> pd.DataFrame:
        """A row for each coefficient; with ``error``, ``low``, ``high`` (95 %) and ``z``."""
        import pandas as pd

        natural, errors = self.natural, np.maximum(self.errors, 1e-300)
        columns = {"coefficient": natural, "error": self.errors, "low": natural - SURE * self.errors}
        columns |= {"high": natural + SURE * self.errors, "z": natural / errors}
        return pd.DataFrame({"term": self.terms, **columns})

    def export_text(self) -> str:
        """The report as text."""
        heading = f"Linear regression of {self.target}: {many(len(self.coordinates.entries), 'coefficient')}"
        quality = (
            f"about {many(round(self.rows), 'row')}, R² {self.determination:.3f}, "
            f"residual deviation {self.residual:.4g}"
        )
        wide = max(len(term) for term in self.terms) + 2
        lines = [heading, quality, "", f"{'':<{wide}}coefficient       error  95 % interval             z"]
        for term, own, error, low, high, z in self.to_frame().itertuples(index=False):
            interval = f"[{low:.4g}, {high:.4g}]"
            lines.append(f"{term:<{wide}}{own:>11.4g} {error:>11.3g}  {interval:<22} {z:>6.1f}")
        return "\n".join(lines)

    def plot(self, ax: Axes | None = None, most: int = 25) -> Axes:
        """Draws the largest coefficients in deviations with intervals."""
        units = np.diag(_to_units(self.coordinates, self.scale[1]))[1:]
        errors = SURE * self.errors[1:] / units
        chosen = np.argsort(-np.abs(self.coefficients[1:]), kind="stable")[:most][::-1]
        ax = axes_of("a regression", ax, (6, 1 + 0.28 * len(chosen)))
        heights, points = np.arange(len(chosen)), self.coefficients[1:][chosen]
        ax.axvline(0, color=PALE, linewidth=0.7)
        ax.errorbar(points, heights, xerr=errors[chosen], fmt="o", color=BLUE, ecolor=INK, elinewidth=0.8, capsize=2)
        ax.set_yticks(heights, [shorten(self.coordinates.names[number]) for number in chosen])
        ax.set_xlabel(f"deviations of {self.target} for one deviation, or for the value; bars: 95 %")
        return ax

    def __repr__(self) -> str:
        return f"RegressionLine({self.target}, {many(len(self.coordinates.entries), 'coefficient')})"


def posterior(
    gram: np.ndarray, cross: np.ndarray, square: float, noise: float, larger: float, rows: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """The coefficients' mean and covariance, and the residual variance, in deviations.

    Args:
        gram: Noisy Σ x x', shape (entries, entries).
        cross: Noisy Σ x y, shape (entries,).
        square: Noisy Σ y².
        noise: The deviation of the noise in ``gram``.
        larger: The factor by which it is larger in ``cross``.
        rows: The weight of all rows.
    """
    values, vectors = np.linalg.eigh(gram)
    sums, true = vectors.T @ cross, np.maximum(values, 0)
    least = 0.5 / len(values)  # of the prior's variance: noise that hides all coefficients does not prove them 0
    prior, residual = 2 * least, 1.0
    mean, variances = np.zeros(len(values)), np.zeros(len(values))
    for _ in range(ROUNDS):
        # Along an eigenvector of value a, b = a β + η, whose variance is the noise's and a times the residuals'.
        spread_ = noise**2 * (larger**2 + float(mean @ mean) + float(variances.sum())) + residual * true
        precision = values**2 / spread_ + 1 / prior
        variances, mean = 1 / precision, values * sums / spread_ / precision
        prior = max(float(mean @ mean + variances.sum()) / len(values), least)
        fitted = 2 * float(mean @ sums) - float(mean**2 @ values)
        residual = float(np.clip((square - fitted) / rows, LEAST_RESIDUAL, 1.2))
    return vectors @ mean, (vectors * variances) @ vectors.T, residual


def _to_units(coordinates: Coordinates, deviation: float) -> np.ndarray:
    """The matrix that converts coefficients in deviations to units of the columns and the target."""
    # y = m + s (β0 + β1 (x - c) / d): the slope is s β1 / d, and the intercept m + s β0 - s β1 c / d.
    units = np.diag(np.append(1.0, 1 / coordinates.deviations)) * deviation
    units[0, 1:] = -deviation * coordinates.centres / coordinates.deviations
    return units


@dataclass(kw_only=True, repr=False, eq=False)
class LinearRegression(Regressor, LinearMiner):
    """Linear regression of a numeric column, with standard errors, by noisy sums of products.

    Numeric columns enter unchanged; a categorical column becomes an indicator for each value except
    the first. A missing number counts as the mean; rows without a target do not count.

    Args:
        epsilon: The cost of ``fit``, in the policy's own terms.
        attributes: The columns to use. None for all but the target.

    Attributes:
        line_: The fitted ``RegressionLine``.
        coef_: Coefficients in units of the columns, shape (terms,); ``to_frame`` names them.
        intercept_: The intercept.
        schema_: The public schema of the fit.
        cost_: The cost of the last ``fit``, exact.

    Privacy:
        Adjacency: the policy's. Claim: ``fit`` is ``epsilon``-DP, in the policy's own terms.
        Why: four queries concern the same rows, each at a fraction of ``epsilon``; the fractions
        are whole nano-epsilons that add up to it. All products of a row together cost one sum
        (privacy.md 8.6). Coefficients are computed from answers only.
        Exact: nano-epsilons. Held by: tests/unit/linear/test_regression.py,
        tests/contract/test_every_miner.py.

    Notes:
        Standard errors include the residuals of the rows, the noise in Σ x y, and the noise in Σ x
        x' times the coefficients. 93 to 97 % of the 95 % intervals contain the true coefficient if
        the moments exceed their noise (docs/linear.md); otherwise a ``FitWarning`` says so.

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import LinearRegression
        >>> rows = pd.read_parquet("data/adult.parquet")  # public; of a private table there is only a handle
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=4)
        >>> some = ["age", "education_num", "sex"]
        >>> hours = LinearRegression(epsilon=4, attributes=some).fit(handle, "hours_per_week")
        >>> hours.predict(rows.head(5)).shape
        (5,)
        >>> bool(hours.score(rows) > 0), float(hours.cost_)  # R^2
        (True, 4.0)
    """

    _state = RegressionLine
    _limits = (
        "Only linear, additive effects are learned; interactions and curves are not.",
        "Rows far from the mean count less, and numbers are clamped at some standard deviations.",
    )

    @property
    def _model(self) -> RegressionLine:
        return cast(RegressionLine, super()._model)

    @property
    def coef_(self) -> np.ndarray:
        """Coefficients in units of the columns."""
        return self._model.natural[1:]

    @property
    def intercept_(self) -> float:
        """The mean if all columns are 0 or have their first value."""
        return float(self._model.natural[0])

    def _checked(self, schema: Schema, target: str) -> Work:
        schema.column(target)
        if target not in schema.numeric_columns:
            raise QueryError(f"the target `{target}` is categorical; take LinearDiscriminant, which predicts values.")
        require_varied(schema, target)
        work = Work.of(schema, asked_columns(schema, target, self.attributes), target, "regression", self.epsilon)
        work.heaviest.check(schema)
        return work

    def _learned(self, work: Work, handle: PrivateQueryable, target: str) -> RegressionLine:
        objective = cast(Mean, objective_of(work.schema, target))
        for number in (0, 1):
            counts = handle.partition(objective.base_parts).noisy_count(epsilon=work.shares[number])
            numbers, noise = np.asarray(counts, dtype=np.float64), float(cast(float, counts.scale))
            objective = objective if number else objective.nearer(numbers, noise)
        objective, card = objective.start(numbers, noise)
        column = work.schema.numeric(target)
        centre = float(column.origin) + float(column.width) * card.base[0] / POINTS
        scale = centre, float(column.width) * objective.deviation
        near = scale[0] - NEAR * scale[1], scale[0] + NEAR * scale[1]
        products = scale_products(work.schema, work.columns, target, near)
        scales = Scales.asked(handle, products, work.shares[2])
        coordinates, scale = (
            Coordinates.of_scales(work.schema, work.columns, scales),
            scales.in_units(work.schema, target, near),
        )
        moments = NoisyMoments.asked(handle, coordinates, work.norm, work.shares[3], (target, *scale))
        rows = max(1.0, float(numbers[: bind(objective.base_parts, work.schema).size - column.nullable].sum()))
        tell((*objective.doubts, *self._warnings(work, round(rows)), *coordinates.doubts))
        return RegressionLine.of(coordinates, target, scale, moments, rows)

    def _lines(self, work: Work) -> Sequence[PlanLine]:
        objective, schema = objective_of(work.schema, work.target), work.schema
        parts = bind(objective.base_parts, schema).size
        where = [
            count_line(schema, asked, parts, share)
            for asked, share in zip(("range of the target", "range of the target, finer"), work.shares, strict=False)
        ]
        products = product_line(schema, work.norm, "all", "products of columns and target", work.shares[3])
        return (*where, scale_line(schema, work.columns, work.shares[2], work.target), products)

    def _doubt(self, edge: float, rows: int) -> str:
        return (
            f"noise in the products equals {edge * rows:,.0f} rows, of a table of {many(rows, 'row')}: coefficients "
            "shrink to 0, and their intervals are those of the prior; take fewer `attributes`, or a larger `epsilon`."
        )

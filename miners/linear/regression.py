# SPDX-License-Identifier: Apache-2.0
"""``LinearRegression``: coefficients with errors that include noise, residuals, and the shift by shortened rows.

With A = Σ x x' and b = Σ x y of the answers, least squares is b = A β + η. η has independent parts: the
residuals of the rows, Σ x e; the noise of b; the noise of A times β; and the effect of shortened rows. A
symmetric matrix of noise of deviation s in d rows has no eigenvalue above about 2 s √d, its edge.

*The report* has the solution itself, with the interval of a test (Fieller): all values t that the noisy
sums do not reject for a coefficient. A direction u with u' A u below the edge times u' u may have no
variance at all; a coefficient in such a direction is not estimated. Eigenvalues below the edge are lifted
to it, for the other coefficients, and the possible shift by this is part of their errors.

*Predictions* come from the posterior under a prior on the size of coefficients: a ridge regression whose
ridge is small in directions with little noise. The whole line is shrunk by the part that noise alone
would seem to explain, so that it is hardly worse than the mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np

from miners.budget.plan import PlanLine, count_line, count_scale, tell
from miners.estimator import Regressor
from miners.growth.frontier import ask_ends
from miners.growth.target_range import TargetRange
from miners.linear.linear_miner import LinearFit, LinearMiner, LinearState
from miners.linear.moments import (
    GROWTH,
    NORMAL_REACH,
    ROOT,
    Coordinates,
    NoisyMoments,
    asked_columns,
    noise_edge,
    product_line,
    scale_line,
)
from miners.pictures import BLUE, INK, PALE, Axes, axes_of, shorten
from pinq.errors import QueryError
from pinq.language.specs import bind
from pinq.public.checks import many
from pinq.public.schema import Schema

if TYPE_CHECKING:
    import pandas as pd

    from pinq.analyst.queryable import PrivateQueryable


SURE = 1.96  # deviations on each side of a 95 % interval
ROUNDS = 30  # rounds of the posterior; it changes by less than a hundredth of its errors after 20
LEAST_RESIDUAL = 0.05  # the least residual variance, as a share of the target's, if noise is larger
LEAST_PRIOR = 0.5  # the least expected square of all coefficients: noise that hides them does not prove them 0
SHIFT = 0.25  # the largest plausible effect of shortening on a row's share in Σ x e, in deviations of the target
MEAN_ERROR = 0.1  # the largest error of the mean, in deviations of the target; it costs 0.01 of R²
LITTLE = 0.005  # the share of lost weight below which the report speaks of all rows
NOT_ESTIMATED = 1e300  # the error of a coefficient that is not estimated; JSON has no infinity


@dataclass(frozen=True, eq=False)
class RegressionLine(LinearState):
    """A fitted regression.

    Attributes:
        scale: The target's centre and deviation, shape (2,).
        coefficients: The shrunk coefficients that predict, of the constant and the coordinates, in
            deviations, shape (entries,).
        natural: The estimated intercept and coefficients in units of the columns, shape (entries,);
            shrunk if noise hides one.
        errors: Standard errors of ``natural``, shape (entries,); ``NOT_ESTIMATED`` if noise hides one.
        determination: R² of the predictions, from the noisy sums.
        doubt: The deviation of its noise.
        lost: The share of the rows' weight that shortening took, from the noisy sums.
        residual: The standard deviation of the target about the line, in its units.
        rows: The approximate number of rows that it was learned from.
    """

    target: str
    scale: np.ndarray
    coefficients: np.ndarray
    natural: np.ndarray
    errors: np.ndarray
    determination: float
    doubt: float
    lost: float
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
        numbers = dict.fromkeys(("determination", "doubt", "lost", "residual", "rows"), ())
        return {"scale": (2,), "coefficients": each, "natural": each, "errors": each, **numbers}

    @classmethod
    def of(
        cls,
        coordinates: Coordinates,
        target: str,
        scale: tuple[float, float],
        moments: NoisyMoments,
        rows: float,
        noise_ratio: float,
    ) -> Self:
        """The regression by noisy moments of ``rows`` rows; the target is their last entry."""
        matrix = moments.matrices[0]
        gram, cross, square = matrix[:-1, :-1], matrix[:-1, -1] * noise_ratio, float(matrix[-1, -1]) * noise_ratio**2
        weight = max(float(gram[0, 0]), moments.deviation)  # of all rows; shortened rows count less
        sums = NoisySums(gram, cross, square, moments.deviation, noise_ratio, weight)
        shrunk, _, residual = sums.posterior
        natural = _to_units(coordinates, scale[1])
        numeric = [True, *(entry.value is not None for entry in coordinates.entries)]
        variances = np.maximum(np.diag(gram) - gram[0] ** 2 / weight, moments.deviation) / weight
        spread = min(1.0, float(variances[~np.array(numeric)].min(initial=1.0)))
        lost = 1 - min(weight / rows, 1.0)
        estimates, errors = sums.estimated(natural, lost, spread)
        estimates[0] += scale[0]
        determination, doubt = sums.determination
        return cls(
            coordinates,
            target,
            np.array(scale),
            shrunk,
            estimates,
            np.minimum(errors, NOT_ESTIMATED),
            determination,
            doubt,
            lost,
            math.sqrt(residual) * scale[1],
            rows,
        )

    @property
    def terms(self) -> tuple[str, ...]:
        """The terms of the coefficients."""
        return ("(intercept)", *self.coordinates.names)

    @property
    def importances(self) -> dict[str, float]:
        """The sizes of the coefficients of each column, in deviations, as proportions of 1."""
        return self.coordinates.proportions(np.abs(self.coefficients[1:]))

    def predict(self, frame: Any) -> np.ndarray:
        """Predicts the mean of each row, within the target's bounds, shape (rows,)."""
        points = self.coordinates.of(frame)
        means = self.scale[0] + self.scale[1] * (self.coefficients[0] + points @ self.coefficients[1:])
        column = self.schema.numeric(self.target)
        return np.clip(means, float(column.low), float(column.high))

    def predict_proba(self, frame: Any) -> np.ndarray:
        """Raises ``QueryError``: a mean has no classes."""
        raise QueryError(f"`{self.target}` is numeric; its mean is predicted, and no class.")

    @property
    def estimated(self) -> np.ndarray:
        """Whether each coefficient is estimated, shape (entries,)."""
        return self.errors < NOT_ESTIMATED

    def to_frame(self) -> pd.DataFrame:
        """A row for each coefficient; with ``error``, ``low``, ``high`` (95 %) and ``z``.

        If noise hides a coefficient, it is NaN, and its interval is infinite.
        """
        import pandas as pd

        estimates = np.where(self.estimated, self.natural, np.nan)
        errors = np.where(self.estimated, np.maximum(self.errors, 1e-300), np.inf)
        wide = np.where(self.estimated, SURE * errors, np.inf)
        columns = {"coefficient": estimates, "error": errors, "low": np.nan_to_num(estimates) - wide}
        columns |= {"high": np.nan_to_num(estimates) + wide, "z": estimates / errors}
        return pd.DataFrame({"term": self.terms, **columns})

    @property
    def estimand(self) -> str:
        """The meaning of the coefficients."""
        if self.lost < LITTLE:
            return "coefficients: least squares of all rows"
        return f"coefficients: least squares of weighted rows; far rows lose {self.lost:.0%} of all weight"

    def export_text(self) -> str:
        heading = f"Linear regression of {self.target}: {many(len(self.coordinates.entries), 'coefficient')}"
        quality = (
            f"about {many(round(self.rows), 'row')}, R² {self.determination:.3f} ± {SURE * self.doubt:.3f}, "
            f"residual deviation {self.residual:.4g}\n{self.estimand}"
        )
        wide = max(len(term) for term in self.terms) + 2
        lines = [heading, quality, "", f"{'':<{wide}}coefficient       error  95 % interval             z"]
        for term, coefficient, error, low, high, z in self.to_frame().itertuples(index=False):
            if not math.isfinite(error):
                lines.append(f"{term:<{wide}}not estimated: noise hides it")
                continue
            interval = f"[{low:.4g}, {high:.4g}]"
            lines.append(f"{term:<{wide}}{coefficient:>11.4g} {error:>11.3g}  {interval:<22} {z:>6.1f}")
        return "\n".join(lines)

    def plot(self, ax: Axes | None = None, most: int = 25) -> Axes:
        """Draws the largest coefficients in deviations with intervals."""
        units = np.diag(_to_units(self.coordinates, self.scale[1]))[1:]
        sizes, errors = self.natural[1:] / units, SURE * self.errors[1:] / units
        order = np.argsort(-np.abs(sizes), kind="stable")
        chosen = order[self.estimated[1:][order]][:most][::-1]
        ax = axes_of("a regression", ax, (6, 1 + 0.28 * len(chosen)))
        heights, points = np.arange(len(chosen)), sizes[chosen]
        ax.axvline(0, color=PALE, linewidth=0.7)
        ax.errorbar(points, heights, xerr=errors[chosen], fmt="o", color=BLUE, ecolor=INK, elinewidth=0.8, capsize=2)
        ax.set_yticks(heights, [shorten(self.coordinates.names[number]) for number in chosen])
        ax.set_xlabel(f"deviations of {self.target} for one deviation, or for the value; bars: 95 %")
        return ax

    def __repr__(self) -> str:
        return f"RegressionLine({self.target}, {many(len(self.coordinates.entries), 'coefficient')})"


@dataclass(frozen=True, eq=False)
class NoisySums:
    """The sums of a regression, in deviations.

    Attributes:
        gram: Noisy Σ x x', shape (entries, entries).
        cross: Noisy Σ x y, shape (entries,).
        square: Noisy Σ y².
        noise: The deviation of the noise in ``gram``.
        noise_ratio: The noise in ``cross``, in units of ``noise``.
        rows: The weight of all rows.
    """

    gram: np.ndarray
    cross: np.ndarray
    square: float
    noise: float
    noise_ratio: float
    rows: float

    @cached_property
    def _axes(self) -> tuple[np.ndarray, np.ndarray]:
        """The eigenvalues and eigenvectors of ``gram``."""
        values, vectors = np.linalg.eigh(self.gram)
        return values, vectors

    @cached_property
    def _edge(self) -> float:
        """The expected largest eigenvalue of the noise in ``gram``."""
        return noise_edge(self.noise, len(self.gram))

    @property
    def _least_residual(self) -> float:
        """The least residual variance, because noise could make it negative."""
        return min(LEAST_RESIDUAL, self.noise * self.noise_ratio**2 / self.rows) + 1e-9

    @property
    def determination(self) -> tuple[float, float]:
        """R² of the shrunk line, and the deviation of its noise."""
        line = self.posterior[0]
        whole = max(self.square - float(self.cross[0]) ** 2 / self.rows, self.noise * self.noise_ratio**2)
        # Without the part of the constant, which is the mean.
        explained = (
            2 * float(line @ self.cross) - float(line @ self.gram @ line) - float(self.cross[0]) ** 2 / self.rows
        )
        share, size = min(max(explained / whole, 0.0), 1.0), float(line @ line)
        noise = 4 * self.noise_ratio**2 * size + 2 * size**2 + (share * self.noise_ratio**2) ** 2
        return share, self.noise * math.sqrt(noise) / whole

    @cached_property
    def posterior(self) -> tuple[np.ndarray, float, float]:
        """The shrunk coefficients, the expected sum of their squares, and the residual variance."""
        values, vectors = self._axes
        sums, true = vectors.T @ self.cross, np.maximum(values, 0)
        least = LEAST_PRIOR / len(values)
        prior, residual = 2 * least, 1.0
        mean, factors = np.zeros(len(values)), np.zeros(len(values))
        for _ in range(ROUNDS):
            # Along an eigenvector of value a, b = a β + η; the variance of η is the noise plus a times the residual.
            spread_ = self.noise**2 * (self.noise_ratio**2 + prior * len(values)) + residual * true
            variances = 1 / (true**2 / spread_ + 1 / prior)
            factors = variances * true / spread_
            mean = factors * sums
            prior = max(float(mean @ mean + variances.sum()) / len(values), least)
            residual = (self.square - 2 * float(mean @ sums) + float(mean**2 @ true)) / self.rows
            residual = min(max(residual, self._least_residual), max(self.square / self.rows, 1.2))
        # The whole line is shrunk by the part of Σ y² that noise alone seems to explain.
        size = float(np.linalg.norm(mean))
        doubt = (self.noise * self.noise_ratio) ** 2 * float(
            factors.sum()
        ) + SURE * self.noise * self.noise_ratio * size
        share = 2 * (float(mean @ sums) - doubt) / max(float(mean**2 @ true) + self._edge * size**2, 1e-300)
        return vectors @ mean * float(np.clip(share, 0, 1)), prior * len(values), residual

    def estimated(self, directions: np.ndarray, lost: float, spread: float) -> tuple[np.ndarray, np.ndarray]:
        """Unshrunk combinations of coefficients, and their errors; infinite if noise leaves every value possible.

        Args:
            directions: The weights of the coefficients, a row for each combination. Only the first row may
                have several weights.
            lost: The share of the rows' weight that shortening took.
            spread: The least variance of a column, in squared estimated deviations: a column that varies
                less has larger coefficients.
        """
        values, vectors = self._axes
        lifted = np.maximum(values, self._edge)
        inverse = (vectors / lifted) @ vectors.T
        plain, (shrunk, whole, residual) = inverse @ self.cross, self.posterior
        whole /= spread
        gaps = (vectors * (lifted - values)) @ vectors.T
        estimates, errors = directions @ shrunk, np.full(len(directions), math.inf)
        sizes = np.abs(directions).max(axis=1)
        directions, loaded = directions / sizes[:, None], directions != 0  # units of columns may be 1e99
        turned = directions @ inverse  # Rayleigh's quotient along each must be above the edge of noise
        squares, norms = np.einsum("ij,jk,ik->i", turned, self.gram, turned), (turned**2).sum(axis=1)
        clear = squares > self._edge * norms
        clear &= ~(loaded @ np.append(False, ~clear[1:]))
        for number in np.flatnonzero(clear):
            direction = turned[number] / float(turned[number] @ directions[number])
            each, norm = direction * plain, float(direction @ direction)
            noise = norm * (whole + self.noise_ratio**2) + max(0.0, float(each.sum() ** 2 - each @ each))
            constant = self.noise**2 * noise + residual * float(direction @ self.gram @ direction)
            constant += norm * (SHIFT * lost * self.rows) ** 2 + whole * float(np.sum((gaps @ direction) ** 2))
            # Fieller: the test does not reject values with d² (1 / size² - z² square) <= z² constant.
            square = self.noise**2 * (2 * norm**2 - float((direction**4).sum()))
            denominator = 1 / float(turned[number] @ directions[number]) ** 2 - SURE**2 * square
            if denominator > 0:
                estimates[number] = sizes[number] * float(directions[number] @ plain)
                errors[number] = sizes[number] * math.sqrt(constant / denominator)
        return estimates, errors


def _to_units(coordinates: Coordinates, deviation: float) -> np.ndarray:
    """The matrix that converts coefficients in deviations to units of the columns and the target."""
    # y = m + s (β0 + β1 (x - c) / d): the slope is s β1 / d, and the intercept m + s β0 - s β1 c / d.
    units = np.diag(np.append(1.0, 1 / coordinates.deviations)) * deviation
    units[0, 1:] = -deviation * coordinates.centres / coordinates.deviations
    return units


class RegressionFit(LinearFit):
    """The fit of a regression."""

    def learn(self, handle: PrivateQueryable) -> RegressionLine:
        target = self.target
        coordinates = Coordinates.asked(handle, self.schema, self.columns, self.costs[0], self.norm)
        target_range = TargetRange(self.schema, target)
        for number in (1, 2):
            counts = handle.partition(target_range.parts).noisy_count(epsilon=self.costs[number])
            numbers, noise = np.asarray(counts, dtype=np.float64), float(cast(float, counts.scale))
            target_range = target_range.nearer(numbers, noise) if number == 1 else target_range
        _, deviation, parts = target_range.moments(numbers, noise)
        column = self.schema.numeric(target)
        unit = float(column.width) * max(deviation, 0.5)
        rows = max(1.0, float(numbers[: len(parts)].sum()))
        # Far values count in a mean, as far out as noise allows: a mean near an end is off by the width for each row.
        hidden = ROOT * count_scale(self.schema, self.costs[3])
        within = target_range.widened(MEAN_ERROR * max(deviation, 0.5) * rows / hidden).ends
        below, above = np.maximum(ask_ends(handle.parts(), self.schema, target, self.costs[3], within)[0], 1e-9)
        low, high = map(column.number, column.cells_within(within, target))
        scale = float(low + (high - low) * above / (below + above)), unit
        reach = self._target_reach(coordinates.reach, target_range, scale)
        moments = NoisyMoments.asked(handle, coordinates, self.norm, self.costs[4], (target, *scale, reach))
        tell((*target_range.doubts(deviation), *self.warnings(round(rows)), *coordinates.doubts))
        return RegressionLine.of(coordinates, target, scale, moments, rows, reach / coordinates.target_size(self.norm))

    def _target_reach(self, limit: float, target_range: TargetRange, scale: tuple[float, float]) -> float:
        """The deviations at which the target is clamped: beyond the range with rows, and growing with ``slack``."""
        column = self.schema.numeric(self.target)
        widest, plain = (
            max(abs(column.number(cell) - scale[0]) / scale[1] for cell in column.cells_within(ends, self.target))
            for ends in (None, target_range.ends)
        )
        plain = plain if target_range.within else 0.0
        return min(limit, widest, max(plain, NORMAL_REACH * max(1.0, self.norm.slack ** (GROWTH / 4))))

    def lines(self) -> Sequence[PlanLine]:
        schema = self.schema
        parts = bind(TargetRange(schema, self.target).parts, schema).size
        ranges = [
            count_line(schema, text, parts, share)
            for text, share in zip(("range of the target", "range of the target, finer"), self.costs[1:], strict=False)
        ]
        products = product_line(schema, self.norm, "all", "products of columns and target", self.costs[-1])
        noise = ROOT * count_scale(schema, self.costs[3])
        mean = PlanLine(0, "mean of the target", "noisy_avg", 1, self.costs[3].exact, noise)
        scales = [scale_line(schema, self.columns, self.costs[0])] if self.norm.numeric else []
        return (*scales, *ranges, mean, products)

    def doubt(self, edge: float, rows: int) -> str:
        return (
            f"noise in the products equals {edge * rows:,.0f} rows, of a table of {many(rows, 'row')}: it hides most "
            "coefficients, and predictions are about the mean; take fewer `attributes`, or a larger `epsilon`."
        )


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
        Why: five queries concern the same rows, each at a fraction of ``epsilon``; the fractions
        are whole nano-epsilons that add up to it. All products of a row together cost one sum
        (privacy.md 8.6), for any limit and any range: both follow from public facts and earlier
        answers. Coefficients, intervals and predictions are computed from answers only.
        Exact: nano-epsilons. Held by: tests/unit/linear/test_regression.py,
        tests/contract/test_every_miner.py.

    Notes:
        Standard errors include the residuals of the rows (as if all spread alike), the noise in Σ x
        y, the noise in Σ x x' times the coefficients, and a plausible shift by rows that count
        less. A coefficient that noise hides is NaN, "not estimated" in the report. ``predict``
        shrinks coefficients; ``coef_`` and the report do not (docs/linear.md).

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import LinearRegression
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=4)
        >>> some = ["age", "education_num", "sex"]
        >>> hours = LinearRegression(epsilon=4, attributes=some).fit(handle, "hours_per_week")
        >>> hours.predict(rows.head(5)).shape
        (5,)
        >>> bool(hours.score(rows) > 0), float(hours.cost_)  # R^2
        (True, 4.0)
    """

    _state = RegressionLine
    _other = "LinearDiscriminant"
    _limits = (
        "Only linear, additive effects are learned; interactions and curves are not.",
        "Where epsilon is small for the rows, rows far from the mean count less; the report says how much less.",
    )

    @property
    def coef_(self) -> np.ndarray:
        """Coefficients in units of the columns; NaN where noise hides one."""
        return np.where(self._model.estimated, self._model.natural, np.nan)[1:]

    @property
    def intercept_(self) -> float:
        """The mean if all columns are 0 or have their first value."""
        return float(self._model.natural[0]) if self._model.estimated[0] else math.nan

    def _checked(self, schema: Schema, target: str) -> RegressionFit:
        self._require_target(schema, target)
        columns = asked_columns(schema, target, self.attributes)
        return RegressionFit.of(self, schema, columns, target, "regression")

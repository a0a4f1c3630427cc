# SPDX-License-Identifier: Apache-2.0
"""Discriminants: each class is a normal distribution, with a common covariance or with its own.

docs/linear.md says which products each of them queries, and explains floors of eigenvalues, shrinkage and long tails.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from miners.budget.plan import PlanLine, tell
from miners.estimator import Classifier
from miners.fitted.node import as_array
from miners.linear.linear_miner import LinearFit, LinearMiner, LinearState, Shape, draw_map
from miners.linear.moments import (
    ROOT,
    Coordinates,
    NoisyMoments,
    Norm,
    asked_columns,
    noise_edge,
    noisy_products,
    product_line,
)
from miners.pictures import INK, Axes, axes_of
from pinq.language.specs import Groups, Values
from pinq.public.checks import many, text_of
from pinq.public.schema import Schema, Value

if TYPE_CHECKING:
    import pandas as pd

    from pinq.analyst.queryable import PrivateQueryable


# The least eigenvalue as a share of the noise's largest; measured on random classes of rank 12 in 49 columns.
LIFTED_POOLED, LIFTED_OWN = 0.5, 0.2
LEAST_SIZE = 0.1  # the least size of a class, as a share of the mean size
NORMAL_ROWS = 4_000  # drawn normal rows of each class, with which shortened rows are compared
LOST_OF_EXPONENTIAL = 0.38  # the variance lost by shortening if squared lengths are exponential, beyond normal rows


@dataclass(frozen=True, eq=False)
class Gaussians(LinearState):
    """A normal cloud for each class.

    Attributes:
        sizes: The approximate number of rows of each class, shape (classes,).
        means: The means of the classes, in deviations, shape (classes, entries).
        covariances: Their covariances, shape (classes, entries, entries), or (1, entries, entries) for a
            common one.
    """

    target: str
    sizes: np.ndarray
    means: np.ndarray
    covariances: np.ndarray

    kept_as: ClassVar[str] = "gaussians"
    about: ClassVar[str] = "set of classes"

    @classmethod
    def _shapes(cls, coordinates: Coordinates, stored: Any) -> Mapping[str, tuple[int, ...]]:
        classes, entries = len(coordinates.schema.categorical(stored["target"]).values), len(coordinates.entries)
        shapes = len(stored["covariances"])
        if min(stored["sizes"]) <= 0 or shapes not in (1, classes):
            raise ValueError("a class has no rows, or no shape")
        return {"sizes": (classes,), "means": (classes, entries), "covariances": (shapes, entries, entries)}

    @property
    def classes(self) -> tuple[Value, ...]:
        return self.schema.categorical(self.target).values

    @property
    def importances(self) -> dict[str, float]:
        """The distances of class means in each column, in variances, as proportions of 1."""
        return self.coordinates.proportions(np.average(np.square(self._apart), axis=0, weights=self.sizes))

    @property
    def _apart(self) -> np.ndarray:
        """The distances of class means from the mean of all rows, in deviations within classes.

        Shape (classes, entries).
        """
        within = np.einsum("kii->ki", self.covariances).mean(axis=0)
        apart: np.ndarray = self.means - np.average(self.means, axis=0, weights=self.sizes)
        return apart / np.sqrt(within)

    @cached_property
    def _axes(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues and eigenvectors of the covariances."""
        values, vectors = np.linalg.eigh(self.covariances)
        return np.maximum(values, 1e-9), vectors

    def predict_proba(self, frame: Any) -> np.ndarray:
        """Predicts class probabilities, shape (rows, classes), as declared."""
        points, (values, vectors) = self.coordinates.of(frame), self._axes
        scores = np.tile(np.log(self.sizes), (len(points), 1))
        for number, mean in enumerate(self.means):
            shape = number if len(values) > 1 else 0
            rotated = (points - mean) @ vectors[shape]
            scores[:, number] -= (rotated**2 / values[shape]).sum(axis=1) / 2 + np.log(values[shape]).sum() / 2
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        return odds / odds.sum(axis=1, keepdims=True)

    def predict(self, frame: Any) -> np.ndarray:
        """Predicts the likeliest class of each row, shape (rows,)."""
        return as_array(self.classes)[self.predict_proba(frame).argmax(axis=1)]

    def to_frame(self) -> pd.DataFrame:
        """A row for each class and coordinate."""
        import pandas as pd

        coordinates, proportions = self.coordinates, self.sizes / self.sizes.sum()
        means = coordinates.centres + coordinates.deviations * self.means
        spreads = coordinates.deviations * np.sqrt(np.einsum("kii->ki", self.covariances))
        rows = [
            (text_of(value), share, name, mean, deviation)
            for value, share, centre, width in zip(
                self.classes, proportions, means, np.broadcast_to(spreads, means.shape), strict=True
            )
            for name, mean, deviation in zip(coordinates.names, centre, width, strict=True)
        ]
        return pd.DataFrame(rows, columns=["class", "share", "term", "mean", "deviation"])

    def export_text(self) -> str:
        """The means of the classes as text, columns in descending order of separation."""
        table = self.to_frame().pivot(index="term", columns="class", values="mean")
        order = np.array(self.coordinates.names)[np.argsort(-np.ptp(self.means, axis=0), kind="stable")]
        labels = [text_of(value) for value in self.classes]
        proportions = zip(labels, self.sizes / self.sizes.sum(), strict=True)
        heading = f"{self!r}\nshares: {', '.join(f'{label} {proportion:.1%}' for label, proportion in proportions)}"
        return f"{heading}\n\nmeans\n{table.loc[order, labels].to_string(float_format='{:.4g}'.format)}"

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws the distances of class means from the mean of all rows, in deviations within classes."""
        names, classes = self.coordinates.names, [text_of(value) for value in self.classes]
        # Wide enough for the title, and high enough for the names below.
        ax = axes_of("a discriminant", ax, (max(5.0, 2.0 + 0.3 * len(names)), 2.2 + 0.35 * len(classes)))
        apart = self._apart
        largest = max(float(np.abs(apart).max()), 1e-9)
        draw_map(ax, apart, largest, names, classes)
        ax.set_title(f"means by {self.target}, in deviations, up to ±{largest:.2g}", fontsize=9, color=INK)
        return ax

    def __repr__(self) -> str:
        shape = "shapes of their own" if len(self.covariances) > 1 else "one shape"
        return f"Gaussians({self.target}: {len(self.classes)} classes of {shape})"


def _pulled(numbers: np.ndarray, to: np.ndarray | float, noise: np.ndarray | float) -> np.ndarray:
    """Numbers shrunk towards others, as far as noise explains their differences."""
    # Differences of mean square 4 with noise of mean square 3: one quarter of them remains.
    signal = max(float(np.mean((numbers - to) ** 2) - np.mean(np.square(noise))), 0.0)
    return to + (numbers - to) * (signal / (signal + np.square(noise) + 1e-300))


def _lifted(covariance: np.ndarray, floor: float) -> np.ndarray:
    """A covariance whose eigenvalues are at least ``floor``."""
    values, vectors = np.linalg.eigh(covariance)
    return (vectors * np.maximum(values, max(floor, 1e-6))) @ vectors.T


def class_means(sums: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Sizes and means of classes, from noisy sums of each class."""
    sizes = _pulled(sums[:, 0], max(float(sums[:, 0].mean()), noise), noise)
    sizes = np.maximum(sizes, max(LEAST_SIZE * float(sizes.mean()), 1.0))
    means = sums[:, 1:] / sizes[:, None]
    return sizes, _pulled(means, sizes / sizes.sum() @ means, noise / sizes[:, None])


def pooled_shape(sizes: np.ndarray, means: np.ndarray, moments: NoisyMoments) -> np.ndarray:
    """One shape of all classes, from the moments of all rows, shape (1, entries, entries)."""
    rows, _, (covariance,) = moments.centred()
    apart = means - sizes / sizes.sum() @ means
    within = covariance - (apart.T * sizes / sizes.sum()) @ apart
    return _lifted(within, LIFTED_POOLED * noise_edge(moments.deviation / float(rows[0]), len(within)))[None]


def normal_share(
    norm: Norm, proportions: np.ndarray, means: np.ndarray, shapes: np.ndarray, variances: np.ndarray
) -> float:
    """The share of the variance of a row's squared length that normal classes of these shapes explain.

    Let rows be normal vectors times a length whose square has the mean 1 and the variance m. In d uncorrelated
    columns their squared length has the variance 2 d (1 + (1 + d / 2) m); for normal rows it is 2 d. With
    correlations, d is the squared number of columns over the sum of squared correlations. Longer tails lose more
    variance by shortening: with m = 1 (exponential squares) 0.62 of the variance of normal rows remains, and the
    loss is about proportional to m.

    Args:
        norm: The norm to which rows were shortened.
        proportions: The shares of classes, shape (classes,).
        means: Their means in the numeric columns, shape (classes, numbers).
        shapes: Their covariances, shape (classes, numbers, numbers).
        variances: The variances of all rows after shortening, as shares of those before, shape (numbers,).
    """
    drawn = np.random.default_rng(0).normal(size=(NORMAL_ROWS, means.shape[1]))
    rows = np.concatenate(
        [mean + drawn @ np.linalg.cholesky(shape).T for mean, shape in zip(means, shapes, strict=True)]
    )
    weights = np.repeat(proportions, NORMAL_ROWS)
    rows -= np.average(rows, axis=0, weights=weights)
    rows /= np.sqrt(np.average(rows**2, axis=0, weights=weights))
    counted = weights * np.minimum(1, norm.limit("all") / norm.sizes(rows))
    lost = 1 - float(np.clip(variances / np.average(rows**2, axis=0, weights=counted), 0, 1).mean())
    within = np.einsum("k,kde->de", proportions, shapes)
    correlations = within / np.sqrt(np.outer(np.diag(within), np.diag(within)))
    columns = len(within) ** 2 / float((correlations**2).sum())
    return 1 / (1 + (1 + columns / 2) * lost / LOST_OF_EXPONENTIAL)


def classes_apart(
    moments: NoisyMoments, coordinates: Coordinates, norm: Norm, separate: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sizes, means and shapes of classes, from the moments of each; with ``separate`` each class has a shape."""
    sizes, means, covariances = moments.centred()
    errors, proportions = moments.deviation / sizes, sizes / sizes.sum()
    centre = proportions @ means
    pooled, together = np.einsum("k,kde->de", proportions, covariances), float(np.sqrt((proportions**2) @ errors**2))
    # Plus two deviations of noise, so that noise in squares or rows does not look like long tails.
    variances = np.diag(pooled + ((means - centre).T * proportions) @ (means - centre)) + 2 * ROOT * together
    means = _pulled(means, centre, errors[:, None])
    common = _lifted(pooled, LIFTED_POOLED * noise_edge(together, len(centre)))
    if not separate:
        return np.maximum(sizes, 1.0), means, common[None]
    numeric = np.array([entry.value is None for entry in coordinates.entries])
    apart = (covariances - pooled) * np.outer(numeric, numeric)
    signals = np.maximum((apart**2).sum(axis=(1, 2)) / numeric.sum() ** 2 - errors**2 - together**2, 0)
    weights = (signals / (signals + errors**2 + 1e-300)) ** 2

    def pulled(weights: np.ndarray) -> np.ndarray:
        # One floor: a small class has more noise, and rare indicators would have a larger variance in it alone.
        noise = float(np.hypot(weights * errors, (1 - weights) * together).max())
        shapes = common + weights[:, None, None] * apart
        return np.array([_lifted(shape, LIFTED_OWN * noise_edge(noise, len(centre))) for shape in shapes])

    shapes = pulled(weights)[:, numeric][:, :, numeric]
    share = normal_share(norm, proportions, means[:, numeric], shapes, variances[numeric])
    return np.maximum(sizes, 1.0), means, pulled(weights * share**2)


class DiscriminantFit(LinearFit):
    """The fit of a discriminant."""

    def learn(self, handle: PrivateQueryable) -> Gaussians:
        coordinates = Coordinates.asked(handle, self.schema, self.columns, self.costs[0])
        classes = handle.partition(Values(self.target))
        if self.sums:
            sums, noise = noisy_products(classes, coordinates.products(self.norm, "sums"), self.costs[1])
            sizes, means = class_means(sums[: self.classes] * coordinates.reach**2, noise * coordinates.reach**2)
        declared = Groups(self.target, (self.schema.categorical(self.target).values,))
        parts = classes if self.by_class else handle.partition(declared)
        moments = NoisyMoments.asked(parts, coordinates, self.norm, self.costs[-1])
        moments = NoisyMoments(moments.matrices[: self.classes], moments.deviation)
        tell((*self.warnings(moments.rows), *coordinates.doubts))
        if not self.by_class:
            return Gaussians(coordinates, self.target, sizes, means, pooled_shape(sizes, means, moments))
        apart = classes_apart(moments, coordinates, self.norm, self.separate)
        return Gaussians(coordinates, self.target, *((sizes, means, apart[2]) if self.sums else apart))

    def lines(self) -> Sequence[PlanLine]:
        *scales, products = super().lines()
        classes = self.schema.columns[self.target].codes
        sums = product_line(self.schema, self.norm, "sums", "sums of columns", self.costs[1], 1, classes)
        return *scales, *((sums,) if self.sums else ()), products

    def notes(self) -> tuple[str, ...]:
        one = "all classes share one covariance."
        return *super().notes(), "each class has its own covariance." if self.separate else one

    def doubt(self, edge: float, rows: int) -> str:
        return (
            f"noise in the products is {edge:,.1f} times a column's variance for {many(rows, 'row')} and hides "
            "the correlations of columns; take fewer `attributes`, a larger `epsilon`, or a Scorecard."
        )


@dataclass(kw_only=True, repr=False, eq=False)
class LinearDiscriminant(Classifier, LinearMiner):
    """Linear discriminant analysis: normal classes with one covariance, separated by planes.

    Numeric columns enter unchanged; a categorical column becomes an indicator for each value except
    the first.

    Args:
        epsilon: The cost of ``fit``, in the policy's own terms.
        attributes: The columns to use. None for all but the target.

    Attributes:
        classes_: The declared values of the target, shape (classes,).
        gaussians_: The fitted ``Gaussians``.
        schema_: The public schema of the fit.
        cost_: The cost of the last ``fit``, exact.

    Privacy:
        Adjacency: the policy's. Claim: ``fit`` is ``epsilon``-DP, in the policy's own terms.
        Why: the queries concern the same rows, each at a fraction of ``epsilon``; the fractions are
        whole nano-epsilons that add up to it. Sums and products of classes concern disjoint parts,
        and all products of a row together cost one sum (privacy.md 8.6).
        Exact: nano-epsilons. Held by: tests/unit/linear/test_discriminant.py,
        tests/contract/test_every_miner.py.

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import LinearDiscriminant
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=4)
        >>> line = LinearDiscriminant(epsilon=1).fit(handle, "income")
        >>> line.predict_proba(rows.head(5)).shape  # rows, classes
        (5, 2)
    """

    _state = Gaussians
    _other = "LinearRegression"
    _limits = (
        "Classes are normal distributions: classes with a bent shape, or in several clusters, are not learned.",
        "Numbers are clamped at some standard deviations from the mean.",
    )

    def _checked(self, schema: Schema, target: str) -> DiscriminantFit:
        self._require_target(schema, target)
        columns = asked_columns(schema, target, self.attributes)
        pooled, each = (DiscriminantFit.of(self, schema, columns, target, shape) for shape in ("pooled", "each"))
        return pooled if each.hidden else each


@dataclass(kw_only=True, repr=False, eq=False)
class QuadraticDiscriminant(LinearDiscriminant):
    """Quadratic discriminant analysis: normal classes, each with its own covariance.

    If public facts (epsilon, ``max_rows``, the classes and columns) show that noise hides a class's covariance of
    numbers, or no column is numeric, all classes share one covariance, as in ``LinearDiscriminant``. The plan says so.
    Parameters, attributes and privacy are those of ``LinearDiscriminant``.

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import QuadraticDiscriminant
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=4)
        >>> curve = QuadraticDiscriminant(epsilon=1).fit(handle, "income")
        >>> curve.predict(rows.head(5)).shape
        (5,)
    """

    def _checked(self, schema: Schema, target: str) -> DiscriminantFit:
        pooled = super()._checked(schema, target)
        shape: Shape = "curved" if pooled.by_class else "own"
        separate = DiscriminantFit.of(self, schema, pooled.columns, target, shape)
        return pooled if separate.hidden or not separate.norm.numeric else separate

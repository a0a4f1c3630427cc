# SPDX-License-Identifier: Apache-2.0
"""Discriminants: each class is a normal distribution, with a common covariance or with its own.

``QuadraticDiscriminant`` queries the products of each class, which are disjoint and cost as much as
one. ``LinearDiscriminant`` does so if public facts show that their noise is small. Otherwise it
queries the sums of each class and the products of all rows, which have less noise, but weight a row
differently. Noise in a covariance can make a small variance 0 or negative, so every eigenvalue is
at least a fraction of the largest eigenvalue of the noise alone. Means, sizes and covariances of
classes shrink to those of all classes, as far as noise explains their differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from miners.budget.plan import PlanLine, tell
from miners.estimator import Classifier, require_varied
from miners.fitted.node import as_array
from miners.fitted.theme import INK, axes_of
from miners.linear.linear_miner import LinearFit, LinearMiner, LinearState, draw_map
from miners.linear.moments import Coordinates, NoisyMoments, asked_columns, noise_edge, noisy_products, product_line
from pinq.errors import QueryError
from pinq.language.specs import Groups, Values
from pinq.public.checks import many, text_of
from pinq.public.schema import Schema, Value

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from pinq.analyst.queryable import PrivateQueryable


# Of the noise's largest eigenvalue: eigenvalues are no smaller; on random classes of rank 12 in 49 columns.
LIFTED_POOLED, LIFTED_OWN = 0.5, 0.2
LEAST_SIZE = 0.1  # of the mean size of a class


@dataclass(frozen=True, eq=False)
class Gaussians(LinearState):
    """A normal cloud for each class.

    Attributes:
        coordinates: The coordinates of the columns.
        target: The classes' column.
        sizes: The approximate number of rows of each class, shape (classes,).
        means: Shape (classes, entries), in deviations.
        covariances: Shape (classes, entries, entries), or (1, entries, entries) for one of all.
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
        """The target's declared values."""
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
            own = number if len(values) > 1 else 0
            turned = (points - mean) @ vectors[own]
            scores[:, number] -= (turned**2 / values[own]).sum(axis=1) / 2 + np.log(values[own]).sum() / 2
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
            for value, share, own, width in zip(
                self.classes, proportions, means, np.broadcast_to(spreads, means.shape), strict=True
            )
            for name, mean, deviation in zip(coordinates.names, own, width, strict=True)
        ]
        return pd.DataFrame(rows, columns=["class", "share", "term", "mean", "deviation"])

    def export_text(self) -> str:
        """The means of the classes as text, the column that tells them apart best first."""
        table = self.to_frame().pivot(index="term", columns="class", values="mean")
        order = np.array(self.coordinates.names)[np.argsort(-np.ptp(self.means, axis=0), kind="stable")]
        labels = [text_of(value) for value in self.classes]
        proportions = zip(labels, self.sizes / self.sizes.sum(), strict=True)
        heading = f"{self!r}\nshares: {', '.join(f'{label} {proportion:.1%}' for label, proportion in proportions)}"
        return f"{heading}\n\nmeans\n{table.loc[order, labels].to_string(float_format='{:.4g}'.format)}"

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws how far the mean of each class is from that of all rows, in deviations within classes."""
        names, classes = self.coordinates.names, [text_of(value) for value in self.classes]
        # Wide enough for the title, and high enough for the names below.
        ax = axes_of("a discriminant", ax, (max(5.0, 2.0 + 0.3 * len(names)), 2.2 + 0.35 * len(classes)))
        apart = self._apart
        most = max(float(np.abs(apart).max()), 1e-9)
        draw_map(ax, apart, most, names, classes)
        ax.set_title(f"means by {self.target}, in deviations, up to ±{most:.2g}", fontsize=9, color=INK)
        return ax

    def __repr__(self) -> str:
        shape = "shapes of their own" if len(self.covariances) > 1 else "one shape"
        return f"Gaussians({self.target}: {len(self.classes)} classes of {shape})"


def _pulled(numbers: np.ndarray, to: np.ndarray | float, noise: np.ndarray | float) -> np.ndarray:
    """Numbers pulled to others, by the share of their mean square that noise does not explain."""
    # Differences of square 4 under noise of square 3: one quarter of them is left.
    signal = max(float(np.mean((numbers - to) ** 2) - np.mean(np.square(noise))), 0.0)
    return to + (numbers - to) * (signal / (signal + np.square(noise) + 1e-300))


def _lifted(covariance: np.ndarray, floor: float) -> np.ndarray:
    """A covariance whose eigenvalues are at least ``floor``."""
    values, vectors = np.linalg.eigh(covariance)
    return (vectors * np.maximum(values, max(floor, 1e-6))) @ vectors.T


def pooled_classes(
    coordinates: Coordinates, target: str, sums: np.ndarray, noise: float, moments: NoisyMoments
) -> Gaussians:
    """Classes of one shape, from the sums of each with noise of a deviation, and from the moments of all."""
    sizes = _pulled(sums[:, 0], max(float(sums[:, 0].mean()), noise), noise)
    sizes = np.maximum(sizes, max(LEAST_SIZE * float(sizes.mean()), 1.0))
    errors, proportions = noise / sizes, sizes / sizes.sum()
    means = sums[:, 1:] / sizes[:, None]
    centre = proportions @ means
    means = _pulled(means, centre, errors[:, None])
    rows, _, (covariance,) = moments.centred()
    within = covariance - ((means - centre).T * proportions) @ (means - centre)
    floor = LIFTED_POOLED * noise_edge(moments.deviation / float(rows[0]), len(centre))
    return Gaussians(coordinates, target, sizes, means, _lifted(within, floor)[None])


def _own_shape(covariance: np.ndarray, error: float, pooled: np.ndarray, together: float) -> np.ndarray:
    """The covariance of a class, pulled to that of all; both with noise of a deviation."""
    own = covariance - pooled
    signal = max(float(np.mean(own[np.triu_indices(len(own))] ** 2)) - error**2 - together**2, 0.0)
    # Squared, for what a covariance is used for is its inverse, in which errors are larger.
    weight = (signal / (signal + error**2 + 1e-300)) ** 2
    left = float(np.hypot(weight * error, (1 - weight) * together))
    return _lifted(pooled + weight * own, LIFTED_OWN * noise_edge(left, len(own)))


def own_classes(coordinates: Coordinates, target: str, moments: NoisyMoments, alike: bool) -> Gaussians:
    """Classes of one mean shape, or of a shape each that is pulled to it, from the moments of each."""
    sizes, means, covariances = moments.centred()
    errors, proportions = moments.deviation / sizes, sizes / sizes.sum()
    centre = proportions @ means
    pooled, together = np.einsum("k,kde->de", proportions, covariances), float(np.sqrt((proportions**2) @ errors**2))
    if alike:
        shapes = [_lifted(pooled, LIFTED_POOLED * noise_edge(together, len(centre)))]
    else:
        shapes = [_own_shape(*own, pooled, together) for own in zip(covariances, errors.tolist(), strict=True)]
    means = _pulled(means, centre, errors[:, None])
    return Gaussians(coordinates, target, np.maximum(sizes, 1.0), means, np.array(shapes))


class DiscriminantFit(LinearFit):
    """The fit of a discriminant."""

    def learn(self, handle: PrivateQueryable) -> Gaussians:
        """Asks for products, and sums of each class; returns the normal classes."""
        target = self.target
        coordinates = Coordinates.asked(handle, self.schema, self.columns, self.costs[0])
        classes = handle.partition(Values(target))
        if self.by_class:
            moments = NoisyMoments.asked(classes, coordinates, self.norm, self.costs[1])
            moments = NoisyMoments(moments.matrices[: self.classes], moments.deviation)
            tell((*self.warnings(moments.rows), *coordinates.doubts))
            return own_classes(coordinates, target, moments, self.shape == "each")
        sums, noise = noisy_products(classes, coordinates.products(self.norm, "sums"), self.costs[1])
        numbers, noise = sums[: self.classes] * coordinates.reach**2, noise * coordinates.reach**2
        known = handle.partition(Groups(target, (self.schema.categorical(target).values,)))
        moments = NoisyMoments.asked(known, coordinates, self.norm, self.costs[2])
        tell((*self.warnings(moments.rows), *coordinates.doubts))
        return pooled_classes(coordinates, target, numbers, noise, moments)

    def lines(self) -> Sequence[PlanLine]:
        """Returns a line for each query."""
        *scales, products = super().lines()
        if self.by_class:
            return *scales, products
        classes = self.schema.columns[self.target].codes
        sums = product_line(self.schema, self.norm, "sums", "sums of columns", self.costs[1], 1, classes)
        return *scales, sums, products

    def notes(self) -> tuple[str, ...]:
        """Returns the unit of noise, and the number of covariances."""
        shape = "each class has its own covariance." if self.shape == "own" else "all classes share one covariance."
        return (*super().notes(), shape)

    def doubt(self, edge: float, rows: int) -> str:
        """Returns the warning for this noise."""
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
        >>> rows = pd.read_parquet("data/adult.parquet")  # public; of a private table there is only a handle
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=4)
        >>> line = LinearDiscriminant(epsilon=1).fit(handle, "income")
        >>> line.predict_proba(rows.head(5)).shape  # rows, classes
        (5, 2)
    """

    _state = Gaussians
    _limits = (
        "Classes are normal distributions: classes with a bent shape, or in several clusters, are not learned.",
        "Numbers are clamped at some standard deviations from the mean.",
    )

    def _checked(self, schema: Schema, target: str) -> DiscriminantFit:
        schema.column(target)
        if target in schema.numeric_columns:
            raise QueryError(f"the target `{target}` is numeric; take LinearRegression, which predicts its mean.")
        require_varied(schema, target)
        columns = asked_columns(schema, target, self.attributes)
        pooled, each = (DiscriminantFit.of(self, schema, columns, target, shape) for shape in ("pooled", "each"))
        return pooled if each.hidden else each


@dataclass(kw_only=True, repr=False, eq=False)
class QuadraticDiscriminant(LinearDiscriminant):
    """Quadratic discriminant analysis: normal classes, each with its own covariance.

    If public facts (epsilon, ``max_rows``, the classes and columns) show that the noise in a
    class's covariance is twice a column's variance or more, all classes share one covariance, as in
    ``LinearDiscriminant``. The plan says so. Parameters, attributes and privacy are those of
    ``LinearDiscriminant``.

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import QuadraticDiscriminant
        >>> rows = pd.read_parquet("data/adult.parquet")  # public; of a private table there is only a handle
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=4)
        >>> curve = QuadraticDiscriminant(epsilon=1).fit(handle, "income")
        >>> curve.predict(rows.head(5)).shape
        (5,)
    """

    def _checked(self, schema: Schema, target: str) -> DiscriminantFit:
        alike = super()._checked(schema, target)
        own = DiscriminantFit.of(self, schema, alike.columns, target, "own")
        return alike if own.hidden else own

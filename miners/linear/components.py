# SPDX-License-Identifier: Apache-2.0
"""``PCA``: the directions in which columns vary most, from their noisy covariances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from miners.budget.plan import Bill, Plan, begin_fit, count_scale, many, remember_fit, spread
from miners.estimator import Learned, public_schema, whole_number
from miners.fitted.theme import BLUE, INK, panels, shorten
from miners.linear.linear_miner import arrays_in, reading, text_html
from miners.linear.moments import ROOT, Coordinates, Moments, Norm, asked_columns, noise_edge, product_line, scale_line
from pinq.errors import QueryError, unspent
from pinq.public.epsilon import ZERO, Epsilon, EpsilonLike
from pinq.public.schema import Schema

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from miners.fitted.route import Frame
    from pinq.analyst.queryable import PrivateQueryable

__all__ = ["PCA", "Components", "debiased"]

SHARES = (15, 85)  # of epsilon: scales, products (docs/linear.md)
LOADINGS = 6  # of a component in text


@dataclass(frozen=True, eq=False)
class Components:
    """Directions of most variance.

    Attributes:
        coordinates: Of the columns.
        scaled: Whether columns count in their deviations, else in units of their own.
        mean: Of the coordinates, in deviations, shape (entries,).
        directions: Unit vectors, that of most variance first, shape (components, entries).
        variances: Of rows along each, shape (components,).
        total: The variance of all columns together.
    """

    coordinates: Coordinates
    scaled: bool
    mean: np.ndarray
    directions: np.ndarray
    variances: np.ndarray
    total: float

    @classmethod
    def of(cls, coordinates: Coordinates, moments: Moments, scaled: bool, count: int) -> Self:
        """The components by noisy moments; noise's part of each variance is taken off."""
        rows, (mean,), (covariance,) = moments.centred()
        units = np.ones(len(mean)) if scaled else coordinates.deviations
        covariance = debiased(covariance, moments.deviation / float(rows[0])) * np.outer(units, units)
        values, vectors = np.linalg.eigh(covariance)
        variances, directions = np.maximum(values[::-1], 0), vectors[:, ::-1].T
        # Of a direction and its opposite the one whose largest entry is above 0.
        largest = np.abs(directions).argmax(axis=1)
        directions = directions * np.sign(directions[np.arange(len(directions)), largest])[:, None]
        return cls(coordinates, scaled, mean, directions[:count], variances[:count], float(variances.sum()))

    @property
    def units(self) -> np.ndarray:
        """What one deviation of each coordinate counts."""
        return np.ones(len(self.mean)) if self.scaled else self.coordinates.deviations

    def transform(self, frame: Any) -> np.ndarray:
        """Rows along the components, shape (rows, components)."""
        return (self.coordinates.of(frame) - self.mean) * self.units @ self.directions.T

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        arrays = {name: getattr(self, name).tolist() for name in ("mean", "directions", "variances")}
        return {"coordinates": self.coordinates.to_dict(), "scaled": self.scaled, "total": self.total, **arrays}

    @classmethod
    def from_dict(cls, stored: Any) -> Self:
        """Reads what ``to_dict`` wrote. ``QueryError`` unless it is whole and valid."""
        with reading("set of components"):
            coordinates, scaled = Coordinates.from_dict(stored["coordinates"]), stored["scaled"]
            entries, count = len(coordinates.entries), len(stored["variances"])
            shapes = {"directions": (count, entries), "variances": (count,), "total": ()}
            mean, directions, variances, total = arrays_in(stored, mean=(entries,), **shapes)
            if not isinstance(scaled, bool) or not count:
                raise ValueError("there is none, or `scaled` is neither true nor false")
            return cls(coordinates, scaled, mean, directions, variances, float(total))


def debiased(covariance: np.ndarray, deviation: float) -> np.ndarray:
    """A covariance without what noise of a deviation in each number adds to its eigenvalues.

    An eigenvalue a of a symmetric matrix becomes about a + d s² / a under noise of deviation s in d
    rows, where a is above s √d; below that the noise's own, up to 2 s √d, hide it (Benaych-Georges &
    Nadakuditi 2011). Where all are hidden they stay as they are.
    """
    values, vectors = np.linalg.eigh(covariance)
    edge = noise_edge(deviation, len(values))
    # Of 5 under an edge of 4: (5 + 3) / 2 = 4, to which 4 / 4 was added.
    plain = np.where(values > edge, (values + np.sqrt(np.maximum(values**2 - edge**2, 0))) / 2, 0.0)
    kept = plain if plain.any() else np.maximum(values, 0)
    found: np.ndarray = (vectors * kept) @ vectors.T
    return found


@dataclass(kw_only=True, repr=False, eq=False)
class PCA(Learned):
    """Principal components of numeric columns, from noisy sums of products.

    Args:
        epsilon: What ``fit`` costs in all.
        n_components: How many components to keep; None for all.
        attributes: Columns to look at; None for all numeric ones, or all where none is. A categorical
            one enters as an indicator for each value but the first.
        scaled: Whether each column counts in its own deviation, as in a correlation; else in its
            units, as in a covariance.

    Attributes:
        components_: Directions, that of most variance first, shape (components, terms).
        explained_variance_: Variance along each, shape (components,).
        explained_variance_ratio_: The same as shares of the variance of all columns.
        mean_: Mean of each term in units of the columns, shape (terms,).
        schema_: The public schema under which it was learned.
        cost_: What ``fit`` really spent, exact.

    Privacy:
        Adjacency: the policy's. Claim: ``fit`` is ``epsilon``-DP, in the policy's own terms.
        Why: two questions are asked of the same rows, at shares of ``epsilon`` in whole
        nano-epsilons that add up to it; all products of a row together cost one sum (privacy.md
        8.6). Components are computed from answers alone.
        Exact: nano-epsilons. Held by: tests/unit/linear/test_components.py,
        tests/contract/test_every_miner.py.

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import PCA
        >>> rows = pd.read_parquet("data/adult.parquet")  # public; of a private table there is only a handle
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=4)
        >>> components = PCA(epsilon=1, n_components=2).fit(handle)
        >>> components.transform(rows.head(5)).shape
        (5, 2)
    """

    epsilon: EpsilonLike = 1.0
    n_components: int | None = None
    attributes: Sequence[str] | None = None
    scaled: bool = True

    _limits = (
        "Rows far from the mean count less, and numbers beyond some deviations as these.",
        "A component of little variance is made of noise.",
    )
    _estimator_type = "transformer"

    def fit(self, handle: PrivateQueryable, target: str | None = None, *, reuse: bool = False) -> Self:
        """Learns the components of the rows behind a handle.

        Args:
            handle: A private handle; see ``pinq.open``, ``pinq.connect``, ``pinq.simulate``.
            target: A column to leave out, say one that is to be predicted later; None for none.
            reuse: Take the stored answers where the same fit was paid for before, at no cost.

        Raises:
            QueryError: A parameter is wrong.
            BudgetExceeded: Less than ``epsilon`` remains.
        """
        with unspent():
            schema = public_schema(handle)
            columns, (first, second) = self._checked(schema, target)
            total, warnings = Epsilon.of(self.epsilon), self._warnings(schema, columns, second, None)
            handle.preview("noisy_sum", Coordinates.unasked(schema, columns).products(), epsilon=second)
            asked, certificate = begin_fit(self, handle, target, total, warnings, reuse=reuse)
        with Bill(handle) as bill:
            coordinates = Coordinates.asked(asked, schema, columns, first)
            moments = Moments.asked(asked, coordinates, Norm.of(schema, columns, second), second)
        count = len(coordinates.entries) if self.n_components is None else self.n_components
        remember_fit(self, handle, certificate())
        return self._fitted(Components.of(coordinates, moments, self.scaled, count), bill.total)

    def fitted_again(self, handle: PrivateQueryable) -> Self:
        """Fits another with the parameters and the columns of this one."""
        params = self._fit_params | {"attributes": self._found.coordinates.columns}
        return type(self)(**params).fit(handle)

    def plan(self, schema: Schema, target: str | None = None, *, rows: int | None = None) -> Plan:
        """Says what ``fit`` is going to ask and what it costs. Free: it looks at the schema only."""
        columns, (first, second) = self._checked(schema, target)
        norm = Norm.of(schema, columns, second)
        lines = [scale_line(schema, columns, first)] if norm.numeric else []
        lines.append(product_line(schema, norm, "all", "products of columns", second))
        title = f"{type(self).__name__} of {many(len(columns), 'column')}"
        notes = ("noise of products is in squares of a column's deviation.",)
        return Plan(title, tuple(lines), (first + second).exact, notes, self._warnings(schema, columns, second, rows))

    def transform(self, X: Frame) -> np.ndarray:
        """Returns rows along the components, shape (rows, components); ``X`` is a pandas or Arrow table."""
        return self._found.transform(X)

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """Returns the names of the components: ``pca0``, ``pca1``, ..."""
        return np.array([f"pca{number}" for number in range(len(self.components_))], dtype=object)

    def to_frame(self) -> pd.DataFrame:
        """Returns the directions: a row for each component, ``variance``, ``share``, and a column for each term."""
        import pandas as pd

        found, names = self._found, list(self._found.coordinates.names)
        frame = pd.DataFrame(found.directions, index=self.get_feature_names_out(), columns=names)
        frame.insert(0, "variance", found.variances)
        frame.insert(1, "share", self.explained_variance_ratio_)
        return frame.rename_axis("component").reset_index()

    def export_text(self) -> str:
        """Shares of variance and the largest loadings of each component, as text."""
        lines = [f"PCA: {many(len(self.components_), 'component')} of {many(len(self.components_[0]), 'term')}"]
        for name, share, own in zip(
            self.get_feature_names_out(), self.explained_variance_ratio_, self.components_, strict=True
        ):
            largest = np.argsort(-np.abs(own), kind="stable")[:LOADINGS]
            named = ", ".join(f"{own[number]:+.2f} {self._found.coordinates.names[number]}" for number in largest)
            lines.append(f"{name:<6} {share:>6.1%}  {named}")
        return "\n".join(lines)

    def plot(self, most: int = 8) -> Figure:
        """Draws shares of variance, and the loadings of the first components as a map. It needs matplotlib."""
        names, shown = self._found.coordinates.names, self.components_[:most]
        high = 1.5 + 0.22 * len(names)
        figure, (bars, heat) = panels("components", [high, high], across=2, wide=4.0)
        ratios = self.explained_variance_ratio_[:most]
        bars.bar(np.arange(len(ratios)), ratios, color=BLUE)
        bars.set_title("share of variance", fontsize=9, color=INK)
        heat.imshow(shown.T, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
        heat.set_yticks(np.arange(len(names)), [shorten(name, 18) for name in names], fontsize=7)
        heat.set_title("loadings", fontsize=9, color=INK)
        for ax in (bars, heat):
            ax.set_xticks(np.arange(len(shown)), self.get_feature_names_out()[: len(shown)], fontsize=7)
        return figure

    def _checked(self, schema: Schema, target: str | None) -> tuple[tuple[str, ...], tuple[Epsilon, Epsilon]]:
        """Returns the columns and what both questions cost."""
        epsilon = Epsilon.of(self.epsilon)
        if not isinstance(self.scaled, bool):
            raise QueryError(f"is {self.scaled!r}", parameter="scaled", allowed="True or False")
        if target is not None:
            schema.column(target)
        numeric = [name for name, column in schema.numeric_columns.items() if name != target and column.cells > 1]
        columns = asked_columns(schema, target, self.attributes or numeric or None)
        entries = len(Coordinates.unasked(schema, columns).entries)
        if self.n_components is not None:
            whole_number("n_components", self.n_components, 1, entries)
        Coordinates.unasked(schema, columns).products().check(schema)
        if not any(name in schema.numeric_columns for name in columns):
            return columns, (ZERO, epsilon)
        first, second = spread(epsilon, SHARES)
        return columns, (first, second)

    def _warnings(self, schema: Schema, columns: Sequence[str], share: Epsilon, rows: int | None) -> tuple[str, ...]:
        expected, norm = schema.max_rows if rows is None else rows, Norm.of(schema, columns, share)
        noise = ROOT * count_scale(schema, share) * norm.limit("all") / max(expected, 1)
        edge = noise_edge(noise, norm.entries)
        if edge < 1:
            return ()
        return (
            f"noise alone has components of variance {edge:,.1f} at {expected:,} rows, where a column has 1: take "
            "fewer `attributes`, or a larger `epsilon`.",
        )

    @property
    def _found(self) -> Components:
        self._require_fitted("found_")
        return self.found_

    @property
    def components_(self) -> np.ndarray:
        """Directions, shape (components, terms)."""
        return self._found.directions

    @property
    def explained_variance_(self) -> np.ndarray:
        """Variance along each component."""
        return self._found.variances

    @property
    def explained_variance_ratio_(self) -> np.ndarray:
        """Variance along each component as a share of all."""
        shares: np.ndarray = self._found.variances / max(self._found.total, 1e-300)
        return shares

    @property
    def mean_(self) -> np.ndarray:
        """Mean of each term in units of the columns."""
        coordinates: Coordinates = self._found.coordinates
        means: np.ndarray = coordinates.centres + coordinates.deviations * self._found.mean
        return means

    def _shown(self) -> str:
        return text_html(self.export_text())

    def _told(self) -> Mapping[str, str]:
        return {"learned": self.export_text().splitlines()[0]}

    def _plan_of(self, fitted: PCA) -> Plan:
        fitted.attributes = self._found.coordinates.columns
        return fitted.plan(self.schema_)

    def _stored(self) -> dict[str, object]:
        return {"components": self._found.to_dict()}

    def _restored(self, stored: Mapping[str, Any], cost: Fraction) -> Self:
        return self._fitted(Components.from_dict(stored.get("components")), cost)

    def _fitted(self, found: Components, cost: Fraction) -> Self:
        self.found_ = found
        self._note(found.coordinates.schema, found.coordinates.columns, cost)
        return self

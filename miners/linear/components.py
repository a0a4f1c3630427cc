# SPDX-License-Identifier: Apache-2.0
"""``PCA``: the directions in which columns vary most, from their noisy covariances."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np

from miners.budget.plan import Plan, tell
from miners.linear.linear_miner import LinearFit, LinearMiner, LinearState, draw_map
from miners.linear.moments import Coordinates, NoisyMoments, asked_columns, noise_edge
from miners.pictures import BLUE, INK, Axes, axes_of, panels
from pinq.public.checks import many, require_bool, whole_number
from pinq.public.schema import Schema

if TYPE_CHECKING:
    import pandas as pd

    from miners.fitted.route import Frame
    from pinq.analyst.queryable import PrivateQueryable


LOADINGS = 6  # the loadings of a component in text


@dataclass(frozen=True, eq=False)
class Components(LinearState):
    """Directions of most variance.

    Attributes:
        scaled: Whether columns count in standard deviations, not in their units.
        total: The variance of all columns together.
        mean: The mean of the coordinates, in deviations, shape (entries,).
        directions: Unit vectors in descending order of variance, shape (components, entries).
        variances: The variance of rows along each, shape (components,).
    """

    scaled: bool
    total: float
    mean: np.ndarray
    directions: np.ndarray
    variances: np.ndarray

    kept_as: ClassVar[str] = "components"
    about: ClassVar[str] = "set of components"
    target: ClassVar[str] = ""

    @classmethod
    def _shapes(cls, coordinates: Coordinates, stored: Any) -> Mapping[str, tuple[int, ...]]:
        entries, count = len(coordinates.entries), len(stored["variances"])
        if not isinstance(stored["scaled"], bool) or not count:
            raise ValueError("there is none, or `scaled` is neither true nor false")
        return {"total": (), "mean": (entries,), "directions": (count, entries), "variances": (count,)}

    @classmethod
    def of(cls, coordinates: Coordinates, moments: NoisyMoments, scaled: bool, count: int) -> Self:
        rows, (mean,), (covariance,) = moments.centred()
        units = np.ones(len(mean)) if scaled else coordinates.deviations
        covariance = debiased(covariance, moments.deviation / float(rows[0])) * np.outer(units, units)
        values, vectors = np.linalg.eigh(covariance)
        variances, directions = np.maximum(values[::-1], 0), vectors[:, ::-1].T
        largest = np.abs(directions).argmax(axis=1)
        directions = directions * np.sign(directions[np.arange(len(directions)), largest])[:, None]
        return cls(coordinates, scaled, float(variances.sum()), mean, directions[:count], variances[:count])

    def transform(self, frame: Any) -> np.ndarray:
        """Rows along the components, shape (rows, components)."""
        points = self.coordinates.of(frame) - self.mean
        return (points if self.scaled else points * self.coordinates.deviations) @ self.directions.T

    @property
    def names(self) -> list[str]:
        return [f"pca{number}" for number in range(len(self.directions))]

    @property
    def ratios(self) -> np.ndarray:
        """The variance along each component as a share of the total."""
        return self.variances / max(self.total, 1e-300)

    def to_frame(self) -> pd.DataFrame:
        """A row for each component: ``variance``, ``share``, and a column for each term."""
        import pandas as pd

        frame = pd.DataFrame(self.directions, index=self.names, columns=list(self.coordinates.names))
        frame.insert(0, "variance", self.variances)
        frame.insert(1, "share", self.ratios)
        return frame.rename_axis("component").reset_index()

    def export_text(self) -> str:
        """Shares of variance and the largest loadings of each component, as text."""
        lines = [repr(self)]
        for name, share, direction in zip(self.names, self.ratios, self.directions, strict=True):
            largest = np.argsort(-np.abs(direction), kind="stable")[:LOADINGS]
            loadings = ", ".join(f"{direction[number]:+.2f} {self.coordinates.names[number]}" for number in largest)
            lines.append(f"{name:<6} {share:>6.1%}  {loadings}")
        return "\n".join(lines)

    def plot(self, ax: Axes | None = None, most: int = 8) -> Axes:
        """Draws the loadings of the first components as a map."""
        ax = axes_of("components", ax, (4.0, 1.5 + 0.22 * len(self.coordinates.names)))
        draw_map(ax, self.directions[:most].T, 1.0, self.names[:most], self.coordinates.names)
        return ax

    def __repr__(self) -> str:
        return f"PCA: {many(len(self.directions), 'component')} of {many(len(self.mean), 'term')}"


def debiased(covariance: np.ndarray, deviation: float) -> np.ndarray:
    """Removes from a covariance the bias of its eigenvalues by noise of this deviation in each number.

    Under noise of deviation s in d rows, an eigenvalue a > s √d of a symmetric matrix becomes about
    a + d s² / a. A smaller eigenvalue is hidden by the eigenvalues of the noise, which reach 2 s √d (Benaych-Georges &
    Nadakuditi 2011). If all are hidden, they are not changed.
    """
    values, vectors = np.linalg.eigh(covariance)
    edge = noise_edge(deviation, len(values))
    # An eigenvalue 5 with an edge of 4 becomes (5 + 3) / 2 = 4, to which 4 / 4 was added.
    plain = np.where(values > edge, (values + np.sqrt(np.maximum(values**2 - edge**2, 0))) / 2, 0.0)
    return (vectors * (plain if plain.any() else np.maximum(values, 0))) @ vectors.T


class ComponentsFit(LinearFit):
    """The fit of components."""

    def learn(self, handle: PrivateQueryable) -> Components:
        n_components = self.miner.n_components
        coordinates = Coordinates.asked(handle, self.schema, self.columns, self.costs[0], self.norm)
        moments = NoisyMoments.asked(handle, coordinates, self.norm, self.costs[1])
        tell((*self.warnings(moments.rows), *coordinates.doubts))
        count = len(coordinates.entries) if n_components is None else n_components
        return Components.of(coordinates, moments, self.miner.scaled, count)

    def doubt(self, edge: float, rows: int) -> str:
        return (
            f"noise alone makes components of variance {edge:,.1f} at {many(rows, 'row')}, where a column has 1: take "
            "fewer `attributes`, or a larger `epsilon`."
        )


@dataclass(kw_only=True, repr=False, eq=False)
class PCA(LinearMiner):
    """Principal components of numeric columns, from noisy sums of products.

    Args:
        epsilon: The cost of ``fit``, in the policy's own terms.
        n_components: The number of components; None for all.
        attributes: The columns. None for all numeric columns, or for all if none is numeric. A categorical column
            becomes an indicator for each value except the first.
        scaled: Whether columns are divided by their standard deviations, as in a correlation.
            Otherwise they keep their units, as in a covariance.

    Attributes:
        components_: Directions in descending order of variance, shape (components, terms).
        explained_variance_: Variance along each, shape (components,).
        explained_variance_ratio_: The same as proportions of the variance of all columns.
        mean_: Mean of each term in units of the columns, shape (terms,).
        schema_: The public schema of the fit.
        cost_: The cost of the last ``fit``, exact.

    Privacy:
        Adjacency: the policy's. Claim: ``fit`` is ``epsilon``-DP, in the policy's own terms.
        Why: two queries of the same rows get fractions of ``epsilon``, whole nano-epsilons that add
        up to it. All products of a row together cost one sum (privacy.md 8.6). Components are
        computed from answers only.
        Exact: nano-epsilons. Held by: tests/unit/linear/test_components.py,
        tests/contract/test_every_miner.py.

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import PCA
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=4)
        >>> components = PCA(epsilon=1, n_components=2).fit(handle)
        >>> components.transform(rows.head(5)).shape
        (5, 2)
    """

    n_components: int | None = None
    scaled: bool = True

    _state = Components
    _limits = (
        "Where epsilon is small for the rows, rows far from the mean count less.",
        "A component with little variance is mostly noise.",
    )
    _estimator_type = "transformer"

    def fit(self, handle: PrivateQueryable, target: str | None = None, *, reuse: bool = False) -> Self:
        """Learns the components of the rows behind a handle.

        Args:
            handle: A private handle; see ``pinq.open``, ``pinq.connect``, ``pinq.simulate``.
            target: A column to omit, for example one to be predicted later; None for none.
            reuse: Whether to use the stored answers of an identical earlier fit, at no cost.

        Raises:
            QueryError: A parameter is wrong.
            BudgetExceeded: Less than ``epsilon`` remains.
        """
        return super().fit(handle, "" if target is None else target, reuse=reuse)

    def plan(self, schema: Schema, target: str | None = None, *, rows: int | None = None) -> Plan:
        """Returns the queries of ``fit`` and their costs, for free: it reads the schema only."""
        return super().plan(schema, "" if target is None else target, rows=rows)

    def transform(self, X: Frame) -> np.ndarray:
        return self._model.transform(X)

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """The names of the components: ``pca0``, ``pca1``, ..."""
        return np.array(self._model.names, dtype=object)

    def plot(self, ax: Axes | None = None, most: int = 8) -> Axes:
        """Draws the loadings of the first components as a map, on a new figure beside shares of variance."""
        if ax is not None:
            return self._model.plot(ax, most)
        model, names = self._model, self._model.names[:most]
        high = 1.5 + 0.22 * len(model.coordinates.names)
        _, (bars, heat) = panels("components", [high, high], across=2, wide=4.0)
        bars.bar(names, model.ratios[:most], color=BLUE)
        bars.set_title("share of variance", fontsize=9, color=INK)
        heat.set_title("loadings", fontsize=9, color=INK)
        return model.plot(heat, most)

    def _checked(self, schema: Schema, target: str) -> ComponentsFit:
        require_bool("scaled", self.scaled)
        if target:
            schema.column(target)
        numeric = [name for name, column in schema.numeric_columns.items() if name != target and column.cells > 1]
        wanted = numeric or None if self.attributes is None else self.attributes
        columns = asked_columns(schema, target or None, wanted)
        if self.n_components is not None:
            whole_number("n_components", self.n_components, 1, len(Coordinates.unasked(schema, columns).entries))
        return ComponentsFit.of(self, schema, columns, "", "components")

    @property
    def _model(self) -> Components:
        self._require_fitted("found_")
        return cast("Components", vars(self)["found_"])

    @property
    def components_(self) -> np.ndarray:
        """Directions, shape (components, terms)."""
        return self._model.directions

    @property
    def explained_variance_(self) -> np.ndarray:
        return self._model.variances

    @property
    def explained_variance_ratio_(self) -> np.ndarray:
        return self._model.ratios

    @property
    def mean_(self) -> np.ndarray:
        coordinates = self._model.coordinates
        return coordinates.centres + coordinates.deviations * self._model.mean

    def _fitted(self, model: Components, cost: Fraction, columns: Iterable[str] = (), name: str = "") -> Self:
        super()._fitted(model, cost, model.coordinates.columns, "found")
        self._fit_params["attributes"] = model.coordinates.columns  # without the omitted column
        return self

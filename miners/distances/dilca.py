# SPDX-License-Identifier: Apache-2.0
"""DP-DILCA learns distances between the values of categorical attributes from a private table.

Battaglia, Celano & Pensa 2021 describe it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from html import escape
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pandas as pd

from miners.budget.payment import Bill, begin_fit
from miners.budget.plan import Plan, loss_text, remember_fit
from miners.distances.arithmetic import conditionals, embedding, pairwise, value_distances
from miners.distances.plot import LIMITS, contexts_text, fitted_html
from miners.distances.task import ContextTask, NoisyTable, ask_tables, forecast, make_task, select, tables_of
from miners.estimator import Learned, public_schema, whole_number
from miners.fitted.route import encode
from pinq.errors import QueryError, unspent
from pinq.public.checks import closest, text_of
from pinq.public.epsilon import EpsilonLike
from pinq.public.plugins import optional
from pinq.public.schema import Schema
from pinq.public.specs import Cuts, Values, bind

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from miners.fitted.route import Frame
    from pinq.analyst.queryable import PrivateQueryable

__all__ = ["DPDilca"]


class DPDilca(Learned):
    """Learns distances between the values of an attribute, from their rows' values in other attributes.

    Two values are close if their rows are similar in other columns: ``gastritis`` is nearer to
    ``ulcer`` than to ``migraine``. These other columns are the attribute's *context*, a few
    attributes that depend strongly on it. Noisy selections or noisy tables find the context. Noisy
    tables of the attribute and each member of its context give the distances. Embeddings, distances
    between records and pictures cost nothing more.

    Args:
        method: How contexts are found. ``"max_relevance"``: ``k`` noisy selections of the attribute
            with the largest mutual information. ``"max_dependency"``: one noisy selection among all
            sets of ``k`` attributes, by their joint information; best if attributes are redundant.
            ``"mean_su"``: all attributes whose symmetric uncertainty is at least the mean,
            from noisy tables. ``"baseline"``: noisy tables of all pairs, for comparison.
        k: Attributes in a context, for the two max methods.
        h: The fraction of epsilon that finds the context, between 0 and 1; not for the baseline.
        epsilon: The cost of ``fit``, for any number of attributes.
        attributes: The columns to learn from. None for all.
        cuts: Cut points for numeric columns, ``{"age": [30, 45]}``, or a number of intervals,
            ``{"age": 5}``. Without: the cuts that the policy declares for the column, else 5
            intervals of equal width.

    Attributes:
        distances_: For each target a frame of distances in [0, 1], labelled by its values on both
            sides; a missing value is a separate value.
        context_: For each target the names of its context.
        splits_: How each attribute was cut into values.
        left_out_: Columns that nobody named and that have a single declared value, so there is no
            distance to learn.
        schema_: The public schema.
        feature_names_in_: The attributes that were learned from, shape (n_features_in_,).
        cost_: What the last ``fit`` spent, exact.

    Privacy:
        Adjacency: the policy's. Claim: ``fit`` is ``epsilon``-DP, in the policy's own terms.
        Why: choices and tables are answers of the handle, each at a share of ``epsilon``; the
        shares are whole nano-epsilons that add up to it (``miners.distances.task``). Everything
        else is computed from the answers. With T targets max relevance spends h epsilon / (T k) on
        each choice, max dependency h epsilon / T on each, and (1 - h) epsilon goes evenly to the
        pairs of attributes of all contexts together.
        Exact: nano-epsilons. Held by: tests/unit/distances/test_dilca.py,
        tests/privacy/test_dilca_releases.py.

    Notes:
        Where this differs from the paper, at equal epsilon (privacy.md 2.4, 2.8, 5, 6): a choice's
        exponent is at least twice as large (the tight sensitivity of I', and no factor 2 where
        neighbours differ by a row more or less) and made by permute-and-flip. The paper's MeanSU
        adds noise to entropies per row, which is private only where the number of rows is public,
        and its released code divides by exact entropies, which is not private at all; here the
        uncertainties come from noisy tables, corrected for what noise does to them, and the same
        tables are used again for the distances. One table of two attributes serves both as targets.
        Counts are shrunk by how noisy they are (``miners.distances.arithmetic``). Nothing about the
        number of rows is needed: choices use the policy's ``max_rows``.

    References:
        Battaglia, Celano & Pensa 2021, "Differentially Private Distance Learning in Categorical
        Data", Algorithms 1 to 5.

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import DPDilca
        >>> rows = pd.read_parquet("data/adult.parquet")  # public; of a private table there is only a handle
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=1)
        >>> miner = DPDilca(method="max_dependency", k=2, epsilon=0.5).fit(handle, "education")
        >>> miner.distances_["education"].shape  # the 16 values on both sides
        (16, 16)
        >>> len(miner.context_["education"]), float(miner.cost_)
        (2, 0.5)
    """

    distances_: dict[str, pd.DataFrame]
    context_: dict[str, tuple[str, ...]]
    splits_: dict[str, Values | Cuts]
    left_out_: tuple[str, ...]
    _limits = LIMITS
    _estimator_type = "transformer"

    def __init__(
        self,
        *,
        method: Literal["max_relevance", "max_dependency", "mean_su", "baseline"] = "max_relevance",
        k: int = 3,
        h: EpsilonLike = 0.3,
        epsilon: EpsilonLike = 1.0,
        attributes: Sequence[str] | None = None,
        cuts: Mapping[str, Sequence[float] | int] | None = None,
    ) -> None:
        self.method = method
        self.k = k
        self.h = h
        self.epsilon = epsilon
        self.attributes = attributes
        self.cuts = cuts

    def fit(self, handle: PrivateQueryable, target: str | Sequence[str] | None = None, *, reuse: bool = False) -> Self:
        """Learns the distances between the values of one attribute, of several, or of all.

        Args:
            handle: A private handle; see ``pinq.open``, ``pinq.simulate``.
            target: An attribute or a list of them; None for all. Records can be compared by the
                attributes that were targets.
            reuse: Take the stored answers where the same fit was paid for before, at no cost.

        Raises:
            QueryError: A parameter or the target is wrong.
            BudgetExceeded: Less than ``epsilon`` remains.
        """
        with unspent():
            task = self._task(public_schema(handle), target)
            hopes = self.plan(task.schema, target).warnings
            asked_handle, certificate = begin_fit(self, handle, target, task.total, hopes, reuse=reuse)
        with Bill(handle) as bill:
            contexts, tables = select(asked_handle, task)
            if task.table_epsilon:
                asked = ask_tables(asked_handle, task, task.pairs(contexts), task.table_epsilon)
                tables = {pair: table.joined(tables.get(pair)) for pair, table in asked.items()}
        distances = {name: _distances(tables_of(name, context, tables)) for name, context in contexts.items()}
        remember_fit(self, handle, certificate())
        return self._fitted(task, contexts, distances, bill.total)

    def fitted_again(self, handle: PrivateQueryable) -> Self:
        """Fits another with the parameters and the targets of this one."""
        return type(self)(**self._fit_params).fit(handle, list(self.distances_))

    def plan(self, schema: Schema, target: str | Sequence[str] | None = None, *, rows: int | None = None) -> Plan:
        """Returns what ``fit`` will ask and what it costs. Free: it looks at the schema only.

        Args:
            schema: The public schema, ``handle.schema``.
            target: As in ``fit``.
            rows: How many rows the table has, if that is known; by default the schema's
                ``max_rows``. For the warning only.
        """
        task = self._task(schema, target)
        max_rows = schema.max_rows if rows is None else whole_number("rows", rows, 0, 2**33)
        return forecast(task, self._left_out(task), max_rows)

    def pairwise(self, X: Frame, Y: Frame | None = None) -> np.ndarray:
        """Returns distances between the records of two tables, for ``metric="precomputed"``.

        Args:
            X: A pandas or Arrow table that has the learned attributes; the analyst's own or public,
                or new cases.
            Y: Another; by default ``X`` itself.

        Returns:
            Shape (rows of X, rows of Y).

        Raises:
            QueryError: A column is missing, or holds a value that the schema does not declare.
        """
        self._require_fitted("distances_")
        left = self._codes(X)
        matrices = {name: frame.to_numpy() for name, frame in self.distances_.items()}
        return pairwise(matrices, left, left if Y is None else self._codes(Y))

    def transform(self, X: Frame) -> np.ndarray:
        """Returns points whose Euclidean distances are ``pairwise``, shape (rows, dimensions).

        They serve k-means and everything else that needs coordinates.
        """
        self._require_fitted("distances_")
        return np.concatenate(
            [self.embedding(name).to_numpy()[codes] for name, codes in self._codes(X).items()], axis=1
        )

    def embedding(self, target: str) -> pd.DataFrame:
        """Returns a point for each value of an attribute.

        Their Euclidean distances are the learned ones (Crippen & Havel 1978).
        """
        frame = self._frame(target)
        points = embedding(frame.to_numpy())
        columns = [f"{target}_{number}" for number in range(points.shape[1])]
        return pd.DataFrame(points, index=frame.index, columns=columns)

    def clusters(self, target: str, n_clusters: int) -> pd.Series:
        """Groups the values of an attribute by Ward's clustering.

        Returns:
            The group's number for each value.
        """
        frame = self._frame(target)
        ward = optional("sklearn.cluster", "sklearn", "clustering needs scikit-learn").AgglomerativeClustering
        whole_number("n_clusters", n_clusters, 1, len(frame))
        # A point has at least one coordinate, also where all values are alike.
        points = np.column_stack([self.embedding(target).to_numpy(), np.zeros(len(frame))])
        return pd.Series(ward(n_clusters).fit_predict(points), index=frame.index, name="cluster")

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """Returns the names of the coordinates: ``education_0``, ``education_1``, ..."""
        self._require_fitted("distances_")
        return np.array([column for name in self.distances_ for column in self.embedding(name).columns], dtype=object)

    def plot(self, target: str | None = None, axes: Sequence[Axes] | None = None) -> Figure:
        """Draws an attribute's distances as a heat map, beside the dendrogram that orders it.

        It needs matplotlib.

        Args:
            target: The attribute; None if only one was learned.
            axes: Two axes to draw on, for the dendrogram and the map; a new figure by default.
        """
        from miners.distances.plot import plot_distances

        if target is None and len(getattr(self, "distances_", ())) == 1:
            target = next(iter(self.distances_))
        return plot_distances(self._frame(target), str(target), self.context_[str(target)], axes)

    def plot_context(self, ax: Axes | None = None) -> Axes:
        """Draws contexts as a graph, with an arrow from each target to the members of its context.

        It needs matplotlib.
        """
        from miners.distances.plot import plot_context

        self._require_fitted("distances_")
        return plot_context(self.context_, ax)

    def _stored(self) -> dict[str, object]:
        self._require_fitted("distances_")
        targets = {
            name: {"context": list(self.context_[name]), "distances": frame.to_numpy().tolist()}
            for name, frame in self.distances_.items()
        }
        return {"schema": self.schema_.model_dump(mode="json"), "targets": targets}

    def _restored(self, stored: Mapping[str, Any], cost: Fraction) -> Self:
        try:
            schema = Schema.model_validate(stored["schema"])
            targets: dict[str, dict[str, Sequence[str]]] = dict(stored["targets"])
            task = self._task(schema, list(targets))
            distances = {name: np.array(entry["distances"], dtype=np.float64) for name, entry in targets.items()}
            contexts = {name: tuple(entry["context"]) for name, entry in targets.items()}
            if not _fits(task, contexts, distances):
                raise ValueError
        except (KeyError, TypeError, ValueError, OverflowError):
            raise QueryError(
                "this is not a stored DPDilca: its schema, contexts and distances do not fit together."
            ) from None
        return self._fitted(task, contexts, distances, cost)

    def to_frame(self) -> pd.DataFrame:
        """Returns a row for each two values of a target: attribute, value, other, distance."""
        self._require_fitted("distances_")
        rows = [
            (name, value, frame.columns[other], frame.iat[number, other])
            for name, frame in self.distances_.items()
            for number, value in enumerate(frame.index)
            for other in range(number + 1, len(frame))
        ]
        return pd.DataFrame(rows, columns=["attribute", "value", "other", "distance"])

    def _told(self) -> Mapping[str, str]:
        learned = f"distances between the values of {', '.join(self.distances_)}"
        return {"learned": learned, "contexts": contexts_text(self.context_)}

    def _plan_of(self, fitted: DPDilca) -> Plan:
        return fitted.plan(self.schema_, list(self.distances_))

    def _repr_html_(self) -> str:
        """Returns the parameters, and once fitted the contexts and the first distances."""
        if not hasattr(self, "distances_"):
            return f"<p>{escape(repr(self))}, not fitted</p>"
        return fitted_html(f"{self!r}, cost {loss_text(self.cost_)}", self.context_, self.left_out_, self.distances_)

    def _task(self, schema: Schema, target: str | Sequence[str] | None) -> ContextTask:
        """Returns what is to be learned, all of it checked before anything is spent."""
        return make_task(
            schema,
            target,
            method=self.method,
            k=self.k,
            h=self.h,
            epsilon=self.epsilon,
            attributes=self.attributes,
            cuts=self.cuts,
        )

    def _left_out(self, task: ContextTask) -> tuple[str, ...]:
        """Returns the columns with a single value that were left out without being named."""
        if self.attributes is not None:
            return ()
        return tuple(name for name in task.schema.columns if name not in task.splits)

    def _frame(self, target: str | None) -> pd.DataFrame:
        """Returns the distances of a target. ``QueryError`` where none were learned."""
        self._require_fitted("distances_")
        if target not in self.distances_:
            raise QueryError(
                f"no distances were learned for {target!r}{closest(str(target), self.distances_)}; "
                f"they were for {', '.join(self.distances_)}."
            )
        return self.distances_[str(target)]

    def _codes(self, X: Frame) -> dict[str, np.ndarray]:
        """Returns which value each record has, as an index, for each learned attribute."""
        indices = {}
        for name in self.distances_:
            codes = encode(self.schema_, name, X)
            if (codes < 0).any():
                row = int(np.argmax(codes < 0))
                raise QueryError(
                    f"row {row} has a value of `{name}` that the schema does not declare, or none at all; "
                    "leave such rows out."
                )
            indices[name] = bind(self.splits_[name], self.schema_).axes[0].parts_of(codes)
        return indices

    def _fitted(
        self,
        task: ContextTask,
        contexts: dict[str, tuple[str, ...]],
        distances: Mapping[str, np.ndarray],
        cost: Fraction,
    ) -> Self:
        """Stores what was learned; returns the miner."""
        self._note(task.schema, task.splits, cost)
        self.splits_, self.context_, self.left_out_ = dict(task.splits), contexts, self._left_out(task)
        self.distances_ = {}
        for name, matrix in distances.items():
            values = bind(task.splits[name], task.schema).axes[0].labels
            missing = "missing" if "missing" not in values else "(missing)"
            labels = [missing if value is None else text_of(value) for value in values]
            self.distances_[name] = pd.DataFrame(matrix, index=pd.Index(labels, name=name), columns=labels)
        return self


def _distances(tables: Sequence[NoisyTable]) -> np.ndarray:
    """Returns the distances between a target's values, from its tables with its context."""
    return value_distances(conditionals([table.counts for table in tables], [table.scale for table in tables]))


def _fits(task: ContextTask, contexts: Mapping[str, tuple[str, ...]], distances: Mapping[str, np.ndarray]) -> bool:
    """Returns whether contexts and distances can have been learned for a task."""
    has_shapes = all(
        matrix.shape == (task.parts(name),) * 2 and np.isfinite(matrix).all() for name, matrix in distances.items()
    )
    return has_shapes and all(other in task.others(name) for name, context in contexts.items() for other in context)

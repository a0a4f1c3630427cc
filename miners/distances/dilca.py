# SPDX-License-Identifier: Apache-2.0
"""DP-DILCA: distances between the values of categorical attributes, learned from a private table (Battaglia, Celano & Pensa 2021)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from html import escape
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from miners.budget.noise import count_scale
from miners.budget.plan import Plan, PlanLine, rows_text
from miners.budget.schedule import spread
from miners.distances.arithmetic import conditionals, embedding, pairwise, value_distances
from miners.distances.context import METHODS, ContextTask, ask_tables, select
from miners.estimator import plain, public_schema, read_stored, require_budget, whole_number
from miners.fitted.route import encode
from miners.growth.candidates import multiway_splits
from pinq.errors import QueryError
from pinq.public.accuracy import standard_deviation
from pinq.public.epsilon import NANO, Loss, exact, show, to_nano
from pinq.public.schema import Numeric, Schema, closest, text_of
from pinq.public.scores import ENTROPY_BITS, MutualInformation
from pinq.public.specs import MAX_PARTS, bind

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pinq.analyst.queryable import PrivateQueryable

__all__ = ["DPDilca"]

VERSION = 1
BINS = 5
MAX_ATTRIBUTES = 60


class DPDilca(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Learns how far apart the values of an attribute are, from how they go together with other attributes.

    Two values are close if rows that have them look alike elsewhere: ``gastritis`` is nearer to
    ``ulcer`` than to ``migraine``. Elsewhere means in the attribute's *context*, a few other
    attributes that say much about it. A noisy choice or noisy tables find the context, noisy tables
    of the attribute and each member of its context give the distances, and the rest (embeddings,
    distances between records, pictures) is free.

    Args:
        method: How contexts are found. ``"max_relevance"``: ``k`` noisy choices of the attribute
            that shares most with the target. ``"max_dependency"``: one noisy choice among all sets
            of ``k`` attributes, by what they say together; best where attributes repeat each other.
            ``"mean_su"``: all attributes whose symmetric uncertainty is at least the mean, from
            noisy tables. ``"baseline"``: noisy tables of all pairs, for comparison.
        k: Attributes in a context, for the two max methods.
        h: Share of the budget that finds the context, between 0 and 1; not for the baseline.
        epsilon: What ``fit`` costs in all, for however many attributes.
        attributes: Columns to learn from; None for all.
        cuts: Cut points for numeric columns, ``{"age": [30, 45]}``, or a number of intervals,
            ``{"age": 5}``. Without: the cuts that the policy declares for the column, else 5
            intervals of equal width.

    Attributes:
        distances_: For each target a frame of distances in [0, 1], labelled by its values on both
            sides; a missing value is a value of its own.
        context_: For each target the names of its context.
        splits_: How each attribute was cut into values.
        schema_: The public schema.
        cost_: What ``fit`` really spent, exact.

    Privacy:
        Adjacency: the policy's. Claim: ``fit`` is ``epsilon``-DP, in the policy's own terms.
        Why: choices and tables are answers of the handle, each at a share of ``epsilon``; the
        shares are whole nano-epsilons that add up to it (``miners.distances.context``). Everything
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
        >>> DPDilca(method="max_dependency", k=2, epsilon=0.5)
        DPDilca(epsilon=0.5, k=2, method='max_dependency')
    """

    distances_: dict[str, pd.DataFrame]
    context_: dict[str, tuple[str, ...]]
    splits_: dict[str, Any]
    schema_: Schema
    cost_: Fraction

    def __init__(
        self,
        *,
        method: Literal["max_relevance", "max_dependency", "mean_su", "baseline"] = "max_relevance",
        k: int = 3,
        h: Loss = 0.3,
        epsilon: Loss = 1.0,
        attributes: Sequence[str] | None = None,
        cuts: Mapping[str, Sequence[float] | int] | None = None,
    ) -> None:
        self.method = method
        self.k = k
        self.h = h
        self.epsilon = epsilon
        self.attributes = attributes
        self.cuts = cuts

    def fit(self, handle: PrivateQueryable, target: str | Sequence[str] | None = None) -> Self:
        """Learns the distances between the values of one attribute, of several, or of all.

        Args:
            handle: A private handle; see ``pinq.open``, ``pinq.simulate``.
            target: An attribute or a list of them; None for all. Records can be compared by the
                attributes that were targets.

        Raises:
            QueryError: A parameter or the target is wrong; nothing was spent.
            BudgetExceeded: Less than ``epsilon`` remains; nothing was spent.
        """
        task = self._task(public_schema(handle), target)
        require_budget(handle, task.total, name=f"DPDilca(epsilon={show(int(task.total * NANO))}).fit")
        before = handle.budget.spent
        contexts, tables = select(handle, task)
        if task.telling:
            asked = ask_tables(handle, task, task.pairs(contexts), task.telling)
            tables = {pair: table.joined(tables.get(pair)) for pair, table in asked.items()}
        distances = {}
        for name, context in contexts.items():
            mine = [tables[name, other] if (name, other) in tables else tables[other, name] for other in context]
            counts = [
                table.counts if (name, other) in tables else table.counts.T
                for table, other in zip(mine, context, strict=True)
            ]
            distances[name] = value_distances(conditionals(counts, [table.scale for table in mine]))
        return self._fitted(task.schema, dict(task.splits), contexts, distances, Fraction(handle.budget.spent - before))

    def plan(self, schema: Schema, target: str | Sequence[str] | None = None, *, rows: int | None = None) -> Plan:
        """What ``fit`` is going to ask and what it costs. Free: it looks at the schema only.

        Args:
            schema: The public schema, ``handle.schema``.
            target: As in ``fit``.
            rows: How many rows the table has, if that is known; by default the schema's
                ``max_rows``. For the warning only.
        """
        task = self._task(schema, target)
        known = schema.max_rows if rows is None else whole_number("rows", rows, 0, 2**33)
        lines = []
        if task.choices:
            share = exact(task.selecting) / task.choices
            one = "attribute" if task.method == "max_relevance" else f"set of {task.size} attributes"
            slack = float(MutualInformation(task.targets[0]).span(schema) * schema.distance / share) / 2**ENTROPY_BITS
            lines.append(
                PlanLine(0, f"best {one} for a context", "exp_mech", task.choices, exact(task.selecting), slack, "bits")
            )
        elif task.selecting:
            share = exact(task.selecting) / len(task.surveyed)
            lines.append(
                PlanLine(
                    0,
                    "tables of pairs, to find contexts by",
                    "noisy_count",
                    len(task.surveyed),
                    exact(task.selecting),
                    self._spread(schema, share),
                )
            )
        if task.telling:
            share = exact(task.telling) / task.most_pairs
            lines.append(
                PlanLine(
                    1,
                    "tables of each target and its context",
                    "noisy_count",
                    task.most_pairs,
                    exact(task.telling),
                    self._spread(schema, share),
                )
            )
        counted = f"{len(task.targets):,} {'attribute' if len(task.targets) == 1 else 'attributes'}"
        title = f"DPDilca: distances between the values of {counted}, contexts by {task.method} among {len(task.splits):,} attributes"
        notes = (
            "a table of two attributes is asked once where each is in the other's context; then the others get more of the budget.",
        )
        return Plan(
            title, tuple(lines), task.total, notes if task.telling else (), self._warnings(task, lines[-1], known)
        )

    def pairwise(self, X: Any, Y: Any = None) -> np.ndarray:
        """Distances between the records of two tables, for ``metric="precomputed"``.

        Args:
            X: A pandas or Arrow table that has the learned attributes; the analyst's own or public,
                or new cases.
            Y: Another; by default ``X`` itself.

        Returns:
            Shape (rows of X, rows of Y).

        Raises:
            QueryError: A column is missing, or holds a value that the schema does not declare.
        """
        check_is_fitted(self, "distances_")
        left = self._codes(X)
        matrices = {name: frame.to_numpy() for name, frame in self.distances_.items()}
        return pairwise(matrices, left, left if Y is None else self._codes(Y))

    def transform(self, X: Any) -> np.ndarray:
        """Points whose Euclidean distances are ``pairwise``, shape (rows, dimensions): for k-means and everything else that wants coordinates."""
        check_is_fitted(self, "distances_")
        return np.concatenate(
            [self.embedding(name).to_numpy()[codes] for name, codes in self._codes(X).items()], axis=1
        )

    def embedding(self, target: str) -> pd.DataFrame:
        """A point for each value of an attribute; their Euclidean distances are the learned ones (Crippen & Havel 1978)."""
        frame = self._frame(target)
        points = embedding(frame.to_numpy())
        return pd.DataFrame(
            points, index=frame.index, columns=[f"{target}_{number}" for number in range(points.shape[1])]
        )

    def clusters(self, target: str, n_clusters: int) -> pd.Series:
        """Groups the values of an attribute by Ward's clustering: the group's number for each value."""
        from sklearn.cluster import AgglomerativeClustering

        frame = self._frame(target)
        whole_number("n_clusters", n_clusters, 1, len(frame))
        # A point has at least one coordinate, also where all values are alike.
        points = np.column_stack([self.embedding(target).to_numpy(), np.zeros(len(frame))])
        return pd.Series(AgglomerativeClustering(n_clusters).fit_predict(points), index=frame.index, name="cluster")

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the coordinates that ``transform`` gives: ``education_0``, ``education_1``, ..."""
        check_is_fitted(self, "distances_")
        return np.array([column for name in self.distances_ for column in self.embedding(name).columns], dtype=object)

    def plot(self, target: str | None = None, axes: Sequence[Axes] | None = None) -> Figure:
        """Draws an attribute's distances as a heat map beside the dendrogram that orders it; needs matplotlib.

        Args:
            target: Which; None if only one was learned.
            axes: Two to draw on, for the dendrogram and the map; a new figure by default.
        """
        from miners.distances.plot import plot_distances

        target = (
            next(iter(self.distances_))
            if target is None and hasattr(self, "distances_") and len(self.distances_) == 1
            else target
        )
        return plot_distances(self._frame(target), str(target), self.context_[str(target)], axes)

    def plot_context(self, ax: Axes | None = None) -> Axes:
        """Draws who is in whose context as a graph: an arrow from each target to the members of its context; needs matplotlib."""
        from miners.distances.plot import plot_context

        check_is_fitted(self, "distances_")
        return plot_context(self.context_, ax)

    def to_json(self) -> str:
        """The fitted miner as text: its parameters, what it cost, contexts and distances."""
        check_is_fitted(self, "distances_")
        return json.dumps(
            {
                "format": "pinq-DPDilca",
                "version": VERSION,
                "params": {name: plain(value) for name, value in self.get_params(deep=False).items()},
                "cost": show(int(self.cost_ * NANO)),
                "schema": self.schema_.model_dump(mode="json"),
                "targets": {
                    name: {"context": list(self.context_[name]), "distances": frame.to_numpy().tolist()}
                    for name, frame in self.distances_.items()
                },
            },
            allow_nan=False,
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Reads what ``to_json`` wrote. ``QueryError`` where it is something else."""
        found, params, cost = read_stored(cls, text, VERSION)
        miner: Self = cls(**params)
        try:
            schema = Schema.model_validate(found["schema"])
            targets: dict[str, Any] = dict(found["targets"])
            task = miner._task(schema, list(targets))
            distances = {name: np.array(one["distances"], dtype=np.float64) for name, one in targets.items()}
            contexts = {name: tuple(one["context"]) for name, one in targets.items()}
            fits = all(
                matrix.shape == (task.parts(name),) * 2 and np.isfinite(matrix).all()
                for name, matrix in distances.items()
            )
            if not fits or any(
                other not in task.others(name) for name, context in contexts.items() for other in context
            ):
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise QueryError(
                "this is not a stored DPDilca: its schema, contexts and distances do not fit together."
            ) from None
        return miner._fitted(schema, dict(task.splits), contexts, distances, cost)

    def _repr_html_(self) -> str:
        """The parameters, and once fitted the contexts and the distances of the first attributes."""
        if not hasattr(self, "distances_"):
            return f"<p>{escape(repr(self))}, not fitted</p>"
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td style='text-align:left'>{escape(', '.join(context))}</td></tr>"
            for name, context in self.context_.items()
        )
        head = f"<p>{escape(repr(self))}, cost {show(int(self.cost_ * NANO))}</p><table><thead><tr><th>attribute</th><th>context</th></tr></thead><tbody>{rows}</tbody></table>"
        shown = [(name, frame) for name, frame in self.distances_.items() if len(frame) <= 20][:3]
        return head + "".join(
            f"<p>Distances between values of <b>{escape(name)}</b></p>{frame.round(3).to_html()}"
            for name, frame in shown
        )

    def _task(self, schema: Schema, target: str | Sequence[str] | None) -> ContextTask:
        """Everything checked, before anything is spent."""
        total = to_nano(self.epsilon)
        whole_number("k", self.k, 1, MAX_ATTRIBUTES)
        if not isinstance(self.method, str) or self.method not in METHODS:
            known = ", ".join(repr(name) for name in METHODS)
            raise QueryError(
                f"`method` is {self.method!r}{closest(str(self.method), METHODS)}; it must be one of {known}. Nothing was spent."
            )
        share = exact(to_nano(self.h, name="h"))
        if share >= 1:
            raise QueryError(
                f"`h` is {self.h!r}; it must be a share of the budget, greater than 0 and less than 1. Nothing was spent."
            )
        splits = {
            split.column: split
            for split in multiway_splits(schema, None, attributes=self.attributes, cuts=self._cuts(schema))
        }
        if not 2 <= len(splits) <= MAX_ATTRIBUTES:
            raise QueryError(
                f"there are {len(splits)} attributes with at least two values; 2 to {MAX_ATTRIBUTES} are needed. Name some in `attributes`. Nothing was spent."
            )
        targets = (
            tuple(splits)
            if target is None
            else tuple(target)
            if isinstance(target, Iterable) and not isinstance(target, str)
            else (target,)
        )
        for name in targets:
            schema.column(name)
            if name not in splits:
                raise QueryError(
                    f"the target `{name}` is not among the attributes that have at least two values: {', '.join(splits)}. Nothing was spent."
                )
        if not targets or len(set(targets)) != len(targets):
            raise QueryError(
                f"`target` is {target!r}; it must name an attribute, or a list of different ones, or be None for all. Nothing was spent."
            )
        widest = sorted(bind(split, schema).size for split in splits.values())[-2:]
        if widest[0] * widest[1] > MAX_PARTS:
            raise QueryError(
                f"the two widest attributes have {widest[0] * widest[1]:,} pairs of values; at most {MAX_PARTS:,} are possible. Nothing was spent."
            )
        size = min(self.k, len(splits) - 1)
        nothing_to_choose = len(splits) == 2 if self.method == "mean_su" else size == len(splits) - 1
        selecting = total if self.method == "baseline" else 0 if nothing_to_choose else int(total * share)
        task = ContextTask(schema, splits, targets, self.method, size, selecting, total - selecting)
        for amount, shares in ((task.selecting, task.choices or len(task.surveyed)), (task.telling, task.most_pairs)):
            if amount:
                spread(amount, [1] * shares)  # whether each share is at least a nano-epsilon
        return task

    def _cuts(self, schema: Schema) -> Any:
        """What the caller says, and five intervals for the numeric columns of which nobody says anything."""
        if self.cuts is not None and not isinstance(self.cuts, Mapping):
            return self.cuts  # whoever reads it says what is wrong
        named = list(self.attributes) if isinstance(self.attributes, Iterable) else list(schema.columns)
        silent = {
            name: BINS
            for name, column in schema.columns.items()
            if name in named and isinstance(column, Numeric) and not column.cuts
        }
        return silent | dict(self.cuts or {})

    def _warnings(self, task: ContextTask, line: PlanLine, rows: int) -> tuple[str, ...]:
        """Whether counts stand out of the noise, on a table whose values are evenly spread."""
        widest = max(task.parts(name) for name in task.targets)
        other = sum(task.parts(name) for name in task.splits) / len(task.splits)
        noise = line.noise or 0.0
        if rows >= widest * other * noise:
            return ()
        return (
            f"with at most {rows:,} rows, the cells of a table of the widest target hold about {rows_text(rows / (widest * other))} rows, and the noise "
            f"of each is ±{rows_text(noise)}: distances between its rarer values say little. A larger `epsilon`, fewer targets or a smaller `k` helps.",
        )

    @staticmethod
    def _spread(schema: Schema, epsilon: Fraction) -> float:
        return standard_deviation(count_scale(schema, epsilon))

    def _frame(self, target: str | None) -> pd.DataFrame:
        check_is_fitted(self, "distances_")
        if target not in self.distances_:
            raise QueryError(
                f"no distances were learned for {target!r}{closest(str(target), self.distances_)}; they were for {', '.join(self.distances_)}."
            )
        return self.distances_[str(target)]

    def _codes(self, X: Any) -> dict[str, np.ndarray]:
        """The place of each record's value, for each learned attribute."""
        found = {}
        for name in self.distances_:
            codes = encode(self.schema_, name, X)
            if (codes < 0).any():
                place = int(np.argmax(codes < 0))
                raise QueryError(
                    f"row {place} has a value of `{name}` that the schema does not declare, or none at all; leave such rows out."
                )
            found[name] = bind(self.splits_[name], self.schema_).axes[0].parts_of(codes)
        return found

    def _fitted(
        self,
        schema: Schema,
        splits: dict[str, Any],
        contexts: dict[str, tuple[str, ...]],
        distances: dict[str, np.ndarray],
        cost: Fraction,
    ) -> Self:
        self.schema_, self.splits_, self.context_, self.cost_ = schema, splits, contexts, cost
        self.distances_ = {}
        for name, matrix in distances.items():
            known = bind(splits[name], schema).axes[0].labels
            missing = "missing" if "missing" not in known else "(missing)"
            labels = [missing if label is None else text_of(label) for label in known]
            self.distances_[name] = pd.DataFrame(matrix, index=pd.Index(labels, name=name), columns=labels)
        return self

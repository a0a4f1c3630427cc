# SPDX-License-Identifier: Apache-2.0
"""DP-DILCA (Battaglia, Celano & Pensa 2021): distances between the values of categorical attributes.

``select`` chooses DILCA's contexts, the attributes that compare a target's values.

Privacy:
    Adjacency: the policy's. Claim: ``select`` costs ``task.selection_epsilon`` exactly. Why: each choice and each table
    is one request of the handle at one share; shares are whole nano-epsilons that add up to the claim, and the next
    query follows from noisy answers alone. Exact: nano-epsilons. Held by: tests/unit/distances/test_dilca.py,
    tests/privacy/test_dilca_releases.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
import pandas as pd

from miners.budget.plan import (
    NOT_GIVEN,
    Plan,
    PlanLine,
    Storage,
    bytes_of,
    count_line,
    count_scale,
    rows_text,
    spread,
    tell,
)
from miners.distances.arithmetic import conditionals, embedding, pairwise, symmetric_uncertainty, value_distances
from miners.distances.plot import LIMITS, contexts_text, fitted_html, plot_context, plot_distances
from miners.estimator import FitPlan, Miner, require_word
from miners.fitted.route import Frame, encode
from miners.growth.candidates import multiway_splits
from miners.pictures import Axes
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import QueryError
from pinq.language.scores import ENTROPY_BITS, MutualInformation
from pinq.language.specs import MAX_PARTS, AnyCross, Cuts, Splitting, Values, bind
from pinq.public.checks import closest, is_listing, many, text_of, whole_number
from pinq.public.epsilon import ZERO, Epsilon, EpsilonLike
from pinq.public.plugins import optional
from pinq.public.schema import Schema

METHODS = ("max_relevance", "max_dependency", "mean_su", "baseline")
MAX_METHODS = ("max_relevance", "max_dependency")  # methods that choose a fixed number of attributes
BINS = 5
MAX_ATTRIBUTES = 60

Pair = tuple[str, str]
ONE_TABLE = (
    "if two attributes are in each other's context, their table is queried once; "
    "the other tables then get more of the budget."
)


@dataclass(frozen=True)
class ContextTask(FitPlan["PrivateQueryable"]):
    """The fit of distances: its targets and parameters.

    Attributes:
        splits: The cuts of each attribute into values, in the schema's order.
        size: Attributes in a context, for the max methods.
        selection_epsilon: The cost of finding contexts; 0 if each target has one possible context. For the baseline
            all epsilon, because the same tables give contexts and distances.
        table_epsilon: The cost of the tables from which distances are computed; 0 for the baseline.
        left_out: Columns that have a single declared value.
    """

    schema: Schema
    splits: Mapping[str, Values | Cuts]
    targets: tuple[str, ...]
    method: str
    size: int
    selection_epsilon: Epsilon
    table_epsilon: Epsilon
    left_out: tuple[str, ...] = ()

    @property
    def total(self) -> Epsilon:
        return self.selection_epsilon + self.table_epsilon

    def others(self, target: str) -> tuple[str, ...]:
        return tuple(name for name in self.splits if name != target)

    def parts(self, name: str) -> int:
        return bind(self.splits[name], self.schema).size

    @property
    def choices(self) -> int:
        if not self.selection_epsilon or self.method not in MAX_METHODS:
            return 0
        return len(self.targets) * (self.size if self.method == "max_relevance" else 1)

    @property
    def selection_pairs(self) -> tuple[Pair, ...]:
        """The pairs of attributes whose tables are queried to find contexts; none for the max methods."""
        if self.method == "baseline":
            return tuple(itertools.combinations(self.splits, 2))
        return self._all_pairs if self.method == "mean_su" else ()

    @property
    def max_pairs(self) -> int:
        size = self.size if self.choices else len(self.splits) - 1
        return min(len(self.targets) * size, len(self._all_pairs))

    @property
    def _all_pairs(self) -> tuple[Pair, ...]:
        """The pairs of a target and any other attribute."""
        return self.pairs({target: self.others(target) for target in self.targets})

    def pairs(self, contexts: Mapping[str, Sequence[str]]) -> tuple[Pair, ...]:
        """The pairs of attributes whose tables the contexts need, each pair once.

        Pairs are in the schema's order: ``{"age": ["job"]}`` and ``{"job": ["age"]}`` need the one table ``("age",
        "job")``.
        """
        order = {name: index for index, name in enumerate(self.splits)}
        needed = {
            (target, name) if order[target] < order[name] else (name, target)
            for target, context in contexts.items()
            for name in context
        }
        return tuple(sorted(needed, key=lambda pair: (order[pair[0]], order[pair[1]])))

    @property
    def title(self) -> str:
        return (
            f"DPDilca: distances between the values of {many(len(self.targets), 'attribute')}, "
            f"contexts by {self.method} among {many(len(self.splits), 'attribute')}"
        )

    def lines(self) -> list[PlanLine]:
        schema, cost, max_tables, lines = self.schema, self.selection_epsilon, self.max_pairs, list[PlanLine]()
        if self.choices:
            attribute = "attribute" if self.method == "max_relevance" else f"set of {self.size} attributes"
            span = MutualInformation(self.targets[0]).span(schema) * schema.distance
            slack = float(span * self.choices / cost.exact) / 2**ENTROPY_BITS
            text = f"best {attribute} for a context"
            lines.append(PlanLine(0, text, "exp_mech", self.choices, cost.exact, slack, "bits"))
        elif cost:
            pairs = len(self.selection_pairs)
            lines.append(count_line(schema, "tables of pairs, to find contexts", pairs, cost, cost // pairs))
        if cost := self.table_epsilon:
            text = "tables of each target and its context"
            lines.append(count_line(schema, text, max_tables, cost, cost // max_tables, level=1))
        return lines

    def notes(self) -> tuple[str, ...]:
        left_out = f"left out, because they have a single declared value: {', '.join(self.left_out)}."
        return (*((ONE_TABLE,) if self.table_epsilon else ()), *((left_out,) if self.left_out else ()))

    def warnings(self, rows: int | None) -> tuple[str, ...]:
        """A warning if noise would hide the counts of evenly spread rows.

        1,000 rows in a table of 20 by 5 values leave 10 rows for each cell: noise of a deviation above 10 brings the
        warning.
        """
        expected, noise = self.schema.max_rows if rows is None else rows, self.lines()[-1].noise or 0.0
        largest = max(self.parts(name) for name in self.targets)
        other = sum(self.parts(name) for name in self.splits) / len(self.splits)
        if expected >= largest * other * noise:
            return ()
        return (
            f"with at most {expected:,} rows, the cells of a table of the widest target hold about "
            f"{rows_text(expected / (largest * other))} rows, and noise of a standard deviation of {rows_text(noise)}: "
            "distances between its rare values are unreliable. "
            "A larger `epsilon`, fewer targets or a smaller `k` helps.",
        )

    def rehearse(self, handle: PrivateQueryable) -> Storage:
        pairs = self.selection_pairs or self._all_pairs
        cells = sorted((self.parts(first) * self.parts(second) for first, second in pairs), reverse=True)
        tables = bytes_of(sum(cells[: self.max_pairs]), self.max_pairs) if self.table_epsilon else 0
        if not self.choices:
            return Storage(tables + bytes_of(sum(cells), len(cells)))
        members = sum(split.member_bytes(self.schema) for split in self.splits.values())
        return Storage(tables + self.choices * (bytes_of(1) + members))

    def learn(self, source: PrivateQueryable) -> LearnedDistances:
        contexts, tables = select(source, self)
        if self.table_epsilon:
            answers = ask_tables(source, self, self.pairs(contexts), self.table_epsilon)
            tables = {pair: table.joined(tables.get(pair)) for pair, table in answers.items()}
        mean_rows = np.mean([table.counts.sum() for table in tables.values()])
        tell(self.warnings(max(0, round(mean_rows))))
        by_target = {name: tables_of(name, context, tables) for name, context in contexts.items()}
        matrices = {
            name: value_distances(
                conditionals([table.counts for table in released], [table.scale for table in released])
            )
            for name, released in by_target.items()
        }
        return LearnedDistances(self, contexts, matrices)


def _selection_epsilon(method: str, total: Epsilon, share: Fraction, size: int, others: int) -> Epsilon:
    """The part of ``total`` that finds contexts.

    It is 0 if every target has only one possible context, for example ``k=3`` of 3 other attributes.
    """
    if method == "baseline":
        return total
    only_context = others == 1 if method == "mean_su" else size == others
    return ZERO if only_context else total * share.numerator // share.denominator


def _targets(
    schema: Schema, target: str | Sequence[str] | None, splits: Mapping[str, Values | Cuts]
) -> tuple[str, ...]:
    """The targets as a tuple; raises ``QueryError`` unless they are different attributes."""
    names = splits if target is None else target
    targets: tuple[str, ...] = tuple(names) if is_listing(names) else (names,)
    for name in targets:
        schema.column(name)
        if name not in splits:
            raise QueryError(
                f"the target `{name}` is not among the attributes that have at least two values: {', '.join(splits)}."
            )
    if not targets or len(set(targets)) != len(targets):
        raise QueryError(
            f"`target` is {target!r}; it must name an attribute, or a list of different ones, or be None for all."
        )
    return targets


@dataclass(frozen=True)
class NoisyTable:
    """A released table of counts of two attributes.

    Attributes:
        counts: Shape (parts of the first, parts of the second).
        scale: The scale of the noise; that of the Laplace law of the same variance if two releases were joined.
    """

    counts: np.ndarray
    scale: float

    def joined(self, other: NoisyTable | None) -> NoisyTable:
        """Both releases in one, weighted by precision: never noisier than the better one.

        10 rows at scale 1 and 20 rows at scale 2 have the weights 1 and 1/4: together they are 12 rows at scale 0.89.
        """
        if other is None:
            return self
        weight, other_weight = self.scale**-2, other.scale**-2
        return NoisyTable(
            (self.counts * weight + other.counts * other_weight) / (weight + other_weight),
            (weight + other_weight) ** -0.5,
        )


def select(handle: PrivateQueryable, task: ContextTask) -> tuple[dict[str, tuple[str, ...]], dict[Pair, NoisyTable]]:
    """A context for each target, and the tables that were released on the way, for ``task.selection_epsilon``."""
    if not task.selection_epsilon:
        return {target: task.others(target) for target in task.targets}, {}
    if task.choices:
        return _chosen_contexts(handle, task), {}
    tables = ask_tables(handle, task, task.selection_pairs, task.selection_epsilon)
    uncertainty = {pair: symmetric_uncertainty(table.counts, table.scale) for pair, table in tables.items()}
    # Each pair is queried once, and looked up in both orders.
    uncertainty |= {(second, first): value for (first, second), value in uncertainty.items()}
    choose = predominant_context if task.method == "baseline" else mean_context
    return {target: choose(uncertainty, target, task.others(target)) for target in task.targets}, tables


def ask_tables(
    handle: PrivateQueryable, task: ContextTask, pairs: Sequence[Pair], epsilon: Epsilon
) -> dict[Pair, NoisyTable]:
    """A noisy table of each pair of attributes, for ``epsilon`` together."""
    tables = {}
    for pair, share in zip(pairs, spread(epsilon, [1] * len(pairs)), strict=True):
        counts = handle.partition(task.splits[pair[0]], task.splits[pair[1]]).noisy_count(epsilon=share)
        tables[pair] = NoisyTable(np.asarray(counts, dtype=np.float64), count_scale(task.schema, share))
    return tables


def tables_of(target: str, context: Sequence[str], tables: Mapping[Pair, NoisyTable]) -> list[NoisyTable]:
    """The target's table with each member of its context; rows are the target's values."""
    both = {(second, first): NoisyTable(table.counts.T, table.scale) for (first, second), table in tables.items()}
    both.update(tables)
    return [both[target, other] for other in context]


def mean_context(uncertainty: Mapping[Pair, float], target: str, others: Sequence[str]) -> tuple[str, ...]:
    """The attributes whose uncertainty with the target is at least the mean (DILCA_M)."""
    # Uncertainties .5, .2 and .2 have the mean .3: only the first attribute is in the context.
    values = [uncertainty[target, name] for name in others]
    mean = math.fsum(values) / len(values)
    # Rounding may put the mean above the largest value.
    return tuple(name for name, value in zip(others, values, strict=True) if value >= min(mean, max(values)))


def predominant_context(uncertainty: Mapping[Pair, float], target: str, others: Sequence[str]) -> tuple[str, ...]:
    """The attributes that no more relevant attribute makes redundant (DILCA_RR).

    An attribute is redundant if it shares at least as much with a member of the context as with the
    target (Yu & Liu 2003; Ienco et al. 2012). For example, ``town`` shares 0.5 with the target and
    ``region`` 0.4; if the two share 0.6 with each other, ``region`` is left out.
    """
    members: list[str] = []
    for name in sorted(others, key=lambda name: -uncertainty[target, name]):
        relevance = uncertainty[target, name]
        is_new = relevance > 0 and all(uncertainty[member, name] < relevance for member in members)
        if is_new or not members:
            members.append(name)
    return tuple(name for name in others if name in members)


def _chosen_contexts(handle: PrivateQueryable, task: ContextTask) -> dict[str, tuple[str, ...]]:
    """The contexts of the max methods, each choice at an equal share."""
    shares = spread(task.selection_epsilon, [1] * task.choices)
    if task.method == "max_dependency":
        return {
            target: _most_dependent(handle, task, target, share)
            for target, share in zip(task.targets, shares, strict=True)
        }
    return {
        target: _most_relevant(handle, task, target, shares[number * task.size : (number + 1) * task.size])
        for number, target in enumerate(task.targets)
    }


def _score(task: ContextTask, target: str) -> MutualInformation:
    split = task.splits[target]
    return MutualInformation(split if isinstance(split, Cuts) else split.column)


def _most_relevant(
    handle: PrivateQueryable, task: ContextTask, target: str, shares: Sequence[Epsilon]
) -> tuple[str, ...]:
    """A context by several noisy choices, without replacement."""
    # Two of four attributes: a choice among four, then one among the three that are left.
    remaining = {name: task.splits[name] for name in task.others(target)}
    for share in shares:
        answer = handle.exp_mech(list(remaining.values()), score=_score(task, target), epsilon=share)
        chosen = cast("Values | Cuts", answer)
        del remaining[chosen.column]
    return tuple(name for name in task.others(target) if name not in remaining)


def _most_dependent(handle: PrivateQueryable, task: ContextTask, target: str, share: Epsilon) -> tuple[str, ...]:
    """A context by one noisy choice among all sets of ``task.size`` attributes, by their joint values."""
    family = AnyCross(tuple(task.splits[name] for name in task.others(target)), task.size)
    chosen = cast("Splitting", handle.exp_mech([family], score=_score(task, target), epsilon=share))
    return tuple(name for name in task.others(target) if name in chosen.columns())


@dataclass(frozen=True)
class LearnedDistances:
    """The result of a fit.

    Attributes:
        matrices: The distances between the values of each target.
    """

    kept_as: ClassVar[str] = "learned"
    target: ClassVar[None] = None

    task: ContextTask
    contexts: dict[str, tuple[str, ...]]
    matrices: Mapping[str, np.ndarray]

    @property
    def schema(self) -> Schema:
        return self.task.schema

    @cached_property
    def frames(self) -> dict[str, pd.DataFrame]:
        """The distances of each target, with the names of its values."""
        frames = {}
        for name, matrix in self.matrices.items():
            values = bind(self.task.splits[name], self.schema).axes[0].labels
            missing = "missing" if "missing" not in values else "(missing)"
            labels = [missing if value is None else text_of(value) for value in values]
            frames[name] = pd.DataFrame(matrix, index=pd.Index(labels, name=name), columns=labels)
        return frames

    def _repr_html_(self) -> str:
        return fitted_html(self.contexts, self.task.left_out, self.frames)


class DPDilca(Miner):
    """Learns distances between the values of a categorical attribute, by comparing other attributes of their rows.

    Two values are close if their rows are similar in other columns: ``gastritis`` is nearer to ``ulcer`` than to
    ``migraine``. The compared columns are the attribute's *context*: a few attributes that depend strongly on it. Noisy
    selections or noisy tables find the context; noisy tables with its members give the distances.

    Args:
        method: The way to find contexts. ``"max_relevance"``: ``k`` noisy selections of the attribute
            with the largest mutual information. ``"max_dependency"``: one noisy selection among all
            sets of ``k`` attributes, by their joint information; best if attributes are redundant.
            ``"mean_su"``: all attributes whose symmetric uncertainty is at least the mean,
            from noisy tables. ``"baseline"``: noisy tables of all pairs, for comparison.
        k: Attributes in a context, for the two max methods.
        h: The fraction of epsilon that finds the context, between 0 and 1; not for the baseline.
        epsilon: The cost of ``fit``, for any number of attributes.
        attributes: The columns to learn from. None for all.
        cuts: Cut points for numeric columns, ``{"age": [30, 45]}``, or a number of intervals,
            ``{"age": 5}``. Other columns have the cuts that the policy declares, or else 5
            intervals of equal width.

    Attributes:
        distances_: A frame of distances in [0, 1] for each target. Rows and columns are the
            target's values; a missing value is a separate value.
        context_: The names of the context of each target.
        splits_: The split of each attribute into values.
        left_out_: Columns with a single declared value, which have no distances, unless they were
            named.
        schema_: The public schema.
        feature_names_in_: The attributes that were learned from, shape (n_features_in_,).
        cost_: The cost of the last ``fit``, exact.

    Privacy:
        Adjacency: the policy's. Claim: ``fit`` is ``epsilon``-DP, in the policy's own terms.
        Why: choices and tables are answers of the handle, each at a fraction of ``epsilon``. The
        fractions are whole nano-epsilons that add up to it (``miners.distances.dilca``). Everything
        else is computed from the answers. With T targets a choice costs h epsilon / (T k) in max
        relevance and h epsilon / T in max dependency. The pairs of attributes of all contexts
        divide (1 - h) epsilon evenly.
        Exact: nano-epsilons. Held by: tests/unit/distances/test_dilca.py,
        tests/privacy/test_dilca_releases.py.

    Notes:
        docs/dilca.md has the differences from the paper.

    References:
        Battaglia, Celano & Pensa 2021, "Differentially Private Distance Learning in Categorical
        Data", Algorithms 1 to 5.

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import DPDilca
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows; an analyst has only a handle
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
    _state: type[Any] = LearnedDistances
    _limits = LIMITS
    _estimator_type = "transformer"

    def __init__(
        self,
        *,
        method: Literal["max_relevance", "max_dependency", "mean_su", "baseline"] = "max_relevance",
        k: int = 3,
        h: EpsilonLike = 0.3,
        epsilon: EpsilonLike = NOT_GIVEN,
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
            reuse: Whether to use the stored answers of an identical earlier fit, at no cost.

        Raises:
            QueryError: A parameter or the target is wrong.
            BudgetExceeded: Less than ``epsilon`` remains.
        """
        return super().fit(handle, cast("str", target), reuse=reuse)

    def fitted_again(self, handle: PrivateQueryable) -> Self:
        return type(self)(**self._fit_params).fit(handle, list(self.distances_))

    def plan(self, schema: Schema, target: str | Sequence[str] | None = None, *, rows: int | None = None) -> Plan:
        """Returns the queries of ``fit`` and their costs, for free.

        Args:
            schema: The public schema, ``handle.schema``.
            target: As in ``fit``.
            rows: The number of rows of the table, if it is known; by default the schema's
                ``max_rows``. It serves the warning only.
        """
        return super().plan(schema, cast("str", target), rows=rows)

    def pairwise(self, X: Frame, Y: Frame | None = None) -> np.ndarray:
        """The distances between the records of two tables, for ``metric="precomputed"``.

        Args:
            X: A pandas or Arrow table with the learned attributes: public rows, own rows or new
                cases.
            Y: Another; by default ``X`` itself.

        Returns:
            Shape (rows of X, rows of Y).

        Raises:
            QueryError: A column is missing, or holds a value that the schema does not declare.
        """
        left = self._codes(X)
        return pairwise(self._model.matrices, left, left if Y is None else self._codes(Y))

    def transform(self, X: Frame) -> np.ndarray:
        """Points whose Euclidean distances are ``pairwise``, shape (rows, dimensions), for example for k-means."""
        return np.concatenate(
            [self.embedding(name).to_numpy()[codes] for name, codes in self._codes(X).items()], axis=1
        )

    def embedding(self, target: str) -> pd.DataFrame:
        """A point for each value of an attribute.

        Their Euclidean distances are the learned ones (Crippen & Havel 1978).
        """
        frame = self._frame(target)
        points = embedding(frame.to_numpy())
        columns = [f"{target}_{number}" for number in range(points.shape[1])]
        return pd.DataFrame(points, index=frame.index, columns=columns)

    def clusters(self, target: str, n_clusters: int) -> pd.Series:
        """The number of each value's group, by Ward's clustering."""
        frame = self._frame(target)
        ward = optional("sklearn.cluster", "sklearn", "clustering needs scikit-learn").AgglomerativeClustering
        whole_number("n_clusters", n_clusters, 1, len(frame))
        # A point has at least one coordinate, also where all values are alike.
        points = np.column_stack([self.embedding(target).to_numpy(), np.zeros(len(frame))])
        return pd.Series(ward(n_clusters).fit_predict(points), index=frame.index, name="cluster")

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """The names of the coordinates: ``education_0``, ``education_1``, ..."""
        return np.array(
            [column for name in self._model.frames for column in self.embedding(name).columns], dtype=object
        )

    def plot(self, target: str | None = None, axes: Sequence[Axes] | None = None) -> Axes:
        """Draws an attribute's distances as a heat map, beside the dendrogram that orders it.

        It needs matplotlib.

        Args:
            target: The attribute; None if only one was learned.
            axes: Two axes to draw on, for the dendrogram and the map; a new figure by default.

        Returns:
            The axes of the map; ``.figure`` is the whole picture.
        """
        if target is None and len(getattr(self, "distances_", ())) == 1:
            target = next(iter(self.distances_))
        return plot_distances(self._frame(target), str(target), self.context_[str(target)], axes)

    def plot_context(self, ax: Axes | None = None) -> Axes:
        """Draws contexts as a graph, with an arrow from each target to the members of its context.

        It needs matplotlib.
        """
        return plot_context(self._model.contexts, ax)

    def _stored(self) -> dict[str, object]:
        model: LearnedDistances = self._model
        targets = {
            name: {"context": list(model.contexts[name]), "distances": matrix.tolist()}
            for name, matrix in model.matrices.items()
        }
        return {"schema": self.schema_.model_dump(mode="json"), "targets": targets}

    def _restored(self, stored: Mapping[str, Any], cost: Fraction) -> Self:
        try:
            targets: dict[str, dict[str, Sequence[str]]] = dict(stored["targets"])
            task = self._checked(Schema.model_validate(stored["schema"]), list(targets))
            distances = {name: np.array(entry["distances"], dtype=np.float64) for name, entry in targets.items()}
            contexts = {name: tuple(entry["context"]) for name, entry in targets.items()}
            if not _fits(task, contexts, distances):
                raise ValueError
        except (KeyError, TypeError, ValueError, OverflowError):
            raise QueryError(
                "this is not a stored DPDilca: its schema, contexts and distances do not fit together."
            ) from None
        return self._fitted(LearnedDistances(task, contexts, distances), cost)

    def to_frame(self) -> pd.DataFrame:
        """A row for each two values of a target: attribute, value, other, distance."""
        rows = [
            (name, value, frame.columns[other], frame.iat[number, other])
            for name, frame in self._model.frames.items()
            for number, value in enumerate(frame.index)
            for other in range(number + 1, len(frame))
        ]
        return pd.DataFrame(rows, columns=["attribute", "value", "other", "distance"])

    def _description(self) -> Mapping[str, str]:
        learned = f"distances between the values of {', '.join(self.distances_)}"
        return {"learned": learned, "contexts": contexts_text(self.context_)}

    def _plan_of(self, fitted: DPDilca) -> Plan:
        return fitted.plan(self.schema_, list(self.distances_))

    def _checked(self, schema: Schema, target: str | Sequence[str] | None) -> ContextTask:
        total = Epsilon.of(self.epsilon)
        whole_number("k", self.k, 1, MAX_ATTRIBUTES)
        require_word("method", self.method, METHODS)
        share = Epsilon.of(self.h, name="h").exact
        if share >= 1:
            raise QueryError(
                f"is {self.h!r}", parameter="h", allowed="a share of the budget, greater than 0 and less than 1"
            )
        columns = multiway_splits(schema, None, attributes=self.attributes, cuts=self.cuts, bins=BINS)
        splits = {split.column: split for split in columns}
        if not 2 <= len(splits) <= MAX_ATTRIBUTES:
            raise QueryError(
                f"there are {len(splits)} attributes with at least two values; "
                f"2 to {MAX_ATTRIBUTES} are needed. Name some in `attributes`."
            )
        targets = _targets(schema, target, splits)
        pairs = math.prod(sorted(bind(split, schema).size for split in splits.values())[-2:])
        if pairs > MAX_PARTS:
            raise QueryError(
                f"the two widest attributes have {pairs:,} pairs of values; at most {MAX_PARTS:,} are possible."
            )
        size = min(self.k, len(splits) - 1)
        selection = _selection_epsilon(self.method, total, share, size, len(splits) - 1)
        # Columns with a single value were left out, unless attributes were named.
        left_out = tuple(name for name in schema.columns if self.attributes is None and name not in splits)
        task = ContextTask(schema, splits, targets, self.method, size, selection, total - selection, left_out)
        # `spread` refuses shares below a nano-epsilon.
        if task.selection_epsilon:
            spread(task.selection_epsilon, [1] * (task.choices or len(task.selection_pairs)))
        if task.table_epsilon:
            spread(task.table_epsilon, [1] * task.max_pairs)
        return task

    def _frame(self, target: str | None) -> pd.DataFrame:
        """The distances of a target; raises ``QueryError`` if none were learned."""
        if target not in self._model.frames:
            problem = "name the attribute" if target is None else f"no distances were learned for {target!r}"
            near = "" if target is None else closest(target, self.distances_)
            raise QueryError(f"{problem}{near}; they were learned for {', '.join(self.distances_)}.")
        return self.distances_[str(target)]

    def _codes(self, X: Frame) -> dict[str, np.ndarray]:
        indices = {}
        for name in self._model.frames:
            codes = encode(self.schema_, name, X)
            if (codes < 0).any():
                row = int(np.argmax(codes < 0))
                raise QueryError(
                    f"row {row} has a value of `{name}` that the schema does not declare, or none at all; "
                    "leave such rows out."
                )
            indices[name] = bind(self.splits_[name], self.schema_).axes[0].parts_of(codes)
        return indices

    def _fitted(self, model: LearnedDistances, cost: Fraction, columns: Iterable[str] = (), name: str = "") -> Self:
        task, self.context_, self.distances_ = model.task, model.contexts, model.frames
        self.splits_, self.left_out_ = dict(task.splits), task.left_out
        return super()._fitted(model, cost, task.splits)


def _fits(task: ContextTask, contexts: Mapping[str, tuple[str, ...]], distances: Mapping[str, np.ndarray]) -> bool:
    has_shapes = all(
        matrix.shape == (task.parts(name),) * 2 and np.isfinite(matrix).all() for name, matrix in distances.items()
    )
    return has_shapes and all(other in task.others(name) for name, context in contexts.items() for other in context)

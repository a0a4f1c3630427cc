# SPDX-License-Identifier: Apache-2.0
"""A task tells what DP-DILCA is to learn: splits, targets, method and the shares of the budget.

All of it is public, and all of it is checked before anything is spent. A forecast tells what a task
will ask, what it costs, and how noisy it will be. ``select`` chooses DILCA's contexts, the
attributes by which a target's values are compared: it asks a private handle, and returns a context
for each target.

Privacy:
    Adjacency: the policy's. Claim: ``select`` costs ``task.selection_epsilon`` exactly.
    Why: each choice and each table is one request of the handle at one share; shares are whole
    nano-epsilons that add up to the claim, and what is asked next follows noisy answers alone. One
    table of two attributes serves both as targets, by post-processing.
    Exact: nano-epsilons. Held by: tests/unit/distances/test_dilca.py,
    tests/privacy/test_dilca_releases.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, cast

import numpy as np

from miners.budget.plan import Plan, PlanLine, count_scale, rows_text
from miners.budget.recipe import spread
from miners.distances.arithmetic import symmetric_uncertainty
from miners.estimator import require_word, whole_number
from miners.growth.candidates import CutsByColumn, multiway_splits
from pinq.errors import QueryError
from pinq.public.checks import is_listing
from pinq.public.epsilon import ZERO, Epsilon, EpsilonLike, standard_deviation
from pinq.public.schema import Schema
from pinq.public.scores import ENTROPY_BITS, MutualInformation
from pinq.public.specs import MAX_PARTS, AnyCross, Cuts, Splitting, Values, bind

if TYPE_CHECKING:
    from pinq.analyst.queryable import PrivateQueryable

__all__ = [
    "METHODS",
    "ContextTask",
    "NoisyTable",
    "ask_tables",
    "forecast",
    "make_task",
    "mean_context",
    "predominant_context",
    "select",
    "tables_of",
]

METHODS = ("max_relevance", "max_dependency", "mean_su", "baseline")
MAX_METHODS = ("max_relevance", "max_dependency")  # those that choose a fixed number of attributes
BINS = 5
MAX_ATTRIBUTES = 60

Pair = tuple[str, str]


@dataclass(frozen=True)
class ContextTask:
    """A task holds what is to be learned.

    Attributes:
        schema: The public schema.
        splits: How each attribute is cut into values, in the schema's order.
        targets: The attributes whose values are to be compared.
        method: How contexts are found, one of ``METHODS``.
        size: Attributes in a context, for the max methods.
        selection_epsilon: What finding contexts costs. It is 0 where there is nothing to choose.
            The baseline finds contexts by the same tables as distances, so there it is the whole
            budget.
        table_epsilon: What the tables that distances are computed from cost; 0 for the
            baseline, which uses the tables of the selection again.
    """

    schema: Schema
    splits: Mapping[str, Values | Cuts]
    targets: tuple[str, ...]
    method: str
    size: int
    selection_epsilon: Epsilon
    table_epsilon: Epsilon

    @property
    def total(self) -> Epsilon:
        """Returns what all of it costs."""
        return self.selection_epsilon + self.table_epsilon

    def others(self, target: str) -> tuple[str, ...]:
        """Returns the attributes from which a target's context can be chosen."""
        return tuple(name for name in self.splits if name != target)

    def parts(self, name: str) -> int:
        """Returns how many values an attribute has."""
        return bind(self.splits[name], self.schema).size

    @property
    def choices(self) -> int:
        """Returns how many noisy choices are made."""
        if not self.selection_epsilon or self.method not in MAX_METHODS:
            return 0
        return len(self.targets) * (self.size if self.method == "max_relevance" else 1)

    @property
    def selection_pairs(self) -> tuple[Pair, ...]:
        """Returns the pairs of attributes whose tables find contexts; none for the max methods."""
        if self.method == "baseline":
            return tuple(itertools.combinations(self.splits, 2))
        return self._all_pairs if self.method == "mean_su" else ()

    @property
    def max_pairs(self) -> int:
        """Returns how many tables contexts can need at most."""
        size = self.size if self.choices else len(self.splits) - 1
        return min(len(self.targets) * size, len(self._all_pairs))

    @property
    def _all_pairs(self) -> tuple[Pair, ...]:
        """Returns the pairs of a target and any other attribute."""
        return self.pairs({target: self.others(target) for target in self.targets})

    def pairs(self, contexts: Mapping[str, Sequence[str]]) -> tuple[Pair, ...]:
        """Returns the pairs of attributes of which contexts need tables, each pair once.

        A pair and its members stand in the schema's order: where ``age`` comes before ``job``, both
        ``{"age": ["job"]}`` and ``{"job": ["age"]}`` need the one table ``("age", "job")``.
        """
        order = {name: index for index, name in enumerate(self.splits)}
        needed = {
            (target, name) if order[target] < order[name] else (name, target)
            for target, context in contexts.items()
            for name in context
        }
        return tuple(sorted(needed, key=lambda pair: (order[pair[0]], order[pair[1]])))


def make_task(
    schema: Schema,
    target: str | Sequence[str] | None,
    *,
    method: str,
    k: int,
    h: EpsilonLike,
    epsilon: EpsilonLike,
    attributes: Sequence[str] | None,
    cuts: CutsByColumn | None,
) -> ContextTask:
    """Returns the task that the parameters of ``DPDilca`` describe.

    Raises:
        QueryError: A parameter or the target is wrong, or the budget too small for its shares.
    """
    total = Epsilon.of(epsilon)
    whole_number("k", k, 1, MAX_ATTRIBUTES)
    require_word("method", method, METHODS)
    share = Epsilon.of(h, name="h").exact
    if share >= 1:
        raise QueryError(f"is {h!r}", parameter="h", allowed="a share of the budget, greater than 0 and less than 1")
    columns = multiway_splits(schema, None, attributes=attributes, cuts=cuts, bins=BINS)
    splits = {split.column: split for split in columns}
    if not 2 <= len(splits) <= MAX_ATTRIBUTES:
        raise QueryError(
            f"there are {len(splits)} attributes with at least two values; "
            f"2 to {MAX_ATTRIBUTES} are needed. Name some in `attributes`."
        )
    targets = _targets(schema, target, splits)
    _check_tables(schema, splits)
    size = min(k, len(splits) - 1)
    selection = _selection_epsilon(method, total, share, size, len(splits) - 1)
    task = ContextTask(schema, splits, targets, method, size, selection, total - selection)
    # `spread` refuses shares below a nano-epsilon.
    if task.selection_epsilon:
        spread(task.selection_epsilon, [1] * (task.choices or len(task.selection_pairs)))
    if task.table_epsilon:
        spread(task.table_epsilon, [1] * task.max_pairs)
    return task


def _selection_epsilon(method: str, total: Epsilon, share: Fraction, size: int, others: int) -> Epsilon:
    """Returns what of ``total`` finds contexts.

    It is 0 where every target has only one possible context: the max methods take ``size`` of
    ``others`` attributes, and mean SU takes at least one. With 3 other attributes and ``k=3``, for
    example, all budget goes to the tables.
    """
    if method == "baseline":
        return total
    only_context = others == 1 if method == "mean_su" else size == others
    return ZERO if only_context else total * share.numerator // share.denominator


def _targets(
    schema: Schema, target: str | Sequence[str] | None, splits: Mapping[str, Values | Cuts]
) -> tuple[str, ...]:
    """Returns the targets as a tuple. ``QueryError`` unless they are different attributes."""
    targets: tuple[str, ...]
    if target is None:
        targets = tuple(splits)
    else:
        targets = tuple(target) if is_listing(target) else (target,)
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


def _check_tables(schema: Schema, splits: Mapping[str, Values | Cuts]) -> None:
    """Checks that the largest table of two attributes is possible."""
    second, first = sorted(bind(split, schema).size for split in splits.values())[-2:]
    if first * second > MAX_PARTS:
        raise QueryError(
            f"the two widest attributes have {first * second:,} pairs of values; at most {MAX_PARTS:,} are possible."
        )


@dataclass(frozen=True)
class NoisyTable:
    """A released table of counts of two attributes.

    Attributes:
        counts: Shape (parts of the first, parts of the second).
        scale: Scale of the noise; that of the Laplace law of the same variance where two releases
            were joined.
    """

    counts: np.ndarray
    scale: float

    @property
    def transposed(self) -> NoisyTable:
        """Returns the table with its two attributes exchanged."""
        return NoisyTable(self.counts.T, self.scale)

    def joined(self, other: NoisyTable | None) -> NoisyTable:
        """Returns both releases in one, weighted by precision: never noisier than the better one.

        For example, 10 rows at scale 1 and 20 rows at scale 2 weigh 1 and 1/4: together they are 12
        rows at scale 0.89.
        """
        if other is None:
            return self
        own, others = self.scale**-2, other.scale**-2
        return NoisyTable((self.counts * own + other.counts * others) / (own + others), (own + others) ** -0.5)


def select(handle: PrivateQueryable, task: ContextTask) -> tuple[dict[str, tuple[str, ...]], dict[Pair, NoisyTable]]:
    """Returns a context for each target, and the tables that were released on the way.

    It costs ``task.selection_epsilon`` in all.
    """
    if not task.selection_epsilon:
        return {target: task.others(target) for target in task.targets}, {}
    if task.choices:
        return _chosen_contexts(handle, task), {}
    tables = ask_tables(handle, task, task.selection_pairs, task.selection_epsilon)
    uncertainty = {pair: symmetric_uncertainty(table.counts, table.scale) for pair, table in tables.items()}
    # Each pair is asked once, and looked up from both sides.
    uncertainty |= {(second, first): value for (first, second), value in uncertainty.items()}
    choose = predominant_context if task.method == "baseline" else mean_context
    return {target: choose(uncertainty, target, task.others(target)) for target in task.targets}, tables


def ask_tables(
    handle: PrivateQueryable, task: ContextTask, pairs: Sequence[Pair], epsilon: Epsilon
) -> dict[Pair, NoisyTable]:
    """Returns a noisy table of each pair of attributes, for ``epsilon`` together."""
    tables = {}
    for pair, share in zip(pairs, spread(epsilon, [1] * len(pairs)), strict=True):
        counts = handle.partition(task.splits[pair[0]], task.splits[pair[1]]).noisy_count(epsilon=share)
        tables[pair] = NoisyTable(np.asarray(counts, dtype=np.float64), count_scale(task.schema, share))
    return tables


def tables_of(target: str, context: Sequence[str], tables: Mapping[Pair, NoisyTable]) -> list[NoisyTable]:
    """Returns the target's table with each member of its context; its own values are the rows."""
    return [
        tables[target, other] if (target, other) in tables else tables[other, target].transposed for other in context
    ]


def mean_context(uncertainty: Mapping[Pair, float], target: str, others: Sequence[str]) -> tuple[str, ...]:
    """Returns the attributes whose uncertainty with the target is at least the mean (DILCA_M)."""
    # Uncertainties .5, .2 and .2 have the mean .3: only the first attribute is in the context.
    values = [uncertainty[target, name] for name in others]
    mean = math.fsum(values) / len(values)
    # The largest is never below the mean but for rounding.
    return tuple(name for name, value in zip(others, values, strict=True) if value >= min(mean, max(values)))


def predominant_context(uncertainty: Mapping[Pair, float], target: str, others: Sequence[str]) -> tuple[str, ...]:
    """Returns the attributes that no more relevant attribute makes redundant (DILCA_RR).

    An attribute is redundant beside a kept one that it shares at least as much with as with the
    target (Yu & Liu 2003; Ienco et al. 2012). For example, ``town`` shares 0.5 with the target and
    ``region`` 0.4; if the two share 0.6 with each other, ``region`` is left out.
    """
    kept: list[str] = []
    for name in sorted(others, key=lambda name: -uncertainty[target, name]):
        relevance = uncertainty[target, name]
        is_new = relevance > 0 and all(uncertainty[member, name] < relevance for member in kept)
        if is_new or not kept:
            kept.append(name)
    return tuple(name for name in others if name in kept)


def _chosen_contexts(handle: PrivateQueryable, task: ContextTask) -> dict[str, tuple[str, ...]]:
    """Returns the contexts of the max methods, each choice at an equal share."""
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
    """Returns the score of a candidate: what it tells about the target's values."""
    split = task.splits[target]
    return MutualInformation(split if isinstance(split, Cuts) else split.column)


def _most_relevant(
    handle: PrivateQueryable, task: ContextTask, target: str, shares: Sequence[Epsilon]
) -> tuple[str, ...]:
    """Returns a context by one noisy choice after the other, without replacement."""
    # Two of four attributes: a choice among four, then one among the three that are left.
    remaining = {name: task.splits[name] for name in task.others(target)}
    for share in shares:
        answer = handle.exp_mech(list(remaining.values()), score=_score(task, target), epsilon=share)
        chosen = cast(Values | Cuts, answer)
        del remaining[chosen.column]
    return tuple(name for name in task.others(target) if name not in remaining)


def _most_dependent(handle: PrivateQueryable, task: ContextTask, target: str, share: Epsilon) -> tuple[str, ...]:
    """Returns a context by one noisy choice among all sets of ``task.size`` attributes.

    Each set is scored by its joint values.
    """
    family = AnyCross(tuple(task.splits[name] for name in task.others(target)), task.size)
    chosen = cast(Splitting, handle.exp_mech([family], score=_score(task, target), epsilon=share))
    return tuple(name for name in task.others(target) if name in chosen.columns())


ONE_TABLE = (
    "a table of two attributes is asked once where each is in the other's context; "
    "then the others get more of the budget."
)


def forecast(task: ContextTask, left_out: Sequence[str], rows: int) -> Plan:
    """Returns the plan of a fit.

    Args:
        task: What is to be learned.
        left_out: Columns that have a single declared value.
        rows: How many rows the table has at most. For the warning only.
    """
    lines = [*_selection_lines(task), *_table_lines(task)]
    targets = f"{len(task.targets):,} {'attribute' if len(task.targets) == 1 else 'attributes'}"
    title = (
        f"DPDilca: distances between the values of {targets}, "
        f"contexts by {task.method} among {len(task.splits):,} attributes"
    )
    notes = [ONE_TABLE] if task.table_epsilon else []
    if left_out:
        notes.append(f"left out, for they have a single declared value: {', '.join(left_out)}.")
    return Plan(title, tuple(lines), task.total.exact, tuple(notes), _warnings(task, lines[-1].noise or 0.0, rows))


def _selection_lines(task: ContextTask) -> list[PlanLine]:
    """Returns the line of the questions that find contexts, if any."""
    cost = task.selection_epsilon
    if task.choices:
        attribute = "attribute" if task.method == "max_relevance" else f"set of {task.size} attributes"
        span = MutualInformation(task.targets[0]).span(task.schema) * task.schema.distance
        slack = float(span * task.choices / cost.exact) / 2**ENTROPY_BITS
        return [PlanLine(0, f"best {attribute} for a context", "exp_mech", task.choices, cost.exact, slack, "bits")]
    if not cost:
        return []
    pairs = len(task.selection_pairs)
    noise = _deviation(task, cost // pairs)
    return [PlanLine(0, "tables of pairs, to find contexts by", "noisy_count", pairs, cost.exact, noise)]


def _table_lines(task: ContextTask) -> list[PlanLine]:
    """Returns the line of the tables that distances are computed from, if any."""
    if not task.table_epsilon:
        return []
    cost = task.table_epsilon
    noise = _deviation(task, cost // task.max_pairs)
    return [PlanLine(1, "tables of each target and its context", "noisy_count", task.max_pairs, cost.exact, noise)]


def _warnings(task: ContextTask, noise: float, rows: int) -> tuple[str, ...]:
    """Returns a warning where counts would not stand out of the noise, if rows are evenly spread.

    For example, 1,000 rows in a table of 20 by 5 values leave 10 rows for each cell: noise of a
    deviation above 10 brings the warning.
    """
    largest = max(task.parts(name) for name in task.targets)
    other = sum(task.parts(name) for name in task.splits) / len(task.splits)
    if rows >= largest * other * noise:
        return ()
    return (
        f"with at most {rows:,} rows, the cells of a table of the widest target hold about "
        f"{rows_text(rows / (largest * other))} rows, and the noise of each is ±{rows_text(noise)}: "
        "distances between its rarer values say little. "
        "A larger `epsilon`, fewer targets or a smaller `k` helps.",
    )


def _deviation(task: ContextTask, epsilon: Epsilon) -> float:
    """Returns the standard deviation of the noise in a cell of a table that costs ``epsilon``."""
    return standard_deviation(count_scale(task.schema, epsilon))

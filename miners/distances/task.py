# SPDX-License-Identifier: Apache-2.0
"""A task tells what DP-DILCA is to learn: splits, targets, method and the shares of the budget.

All of it is public, and all of it is checked before anything is spent.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from miners.budget.recipe import spread
from miners.estimator import whole_number
from miners.growth.candidates import CutsByColumn, multiway_splits
from pinq.errors import QueryError
from pinq.public.checks import closest, is_listing
from pinq.public.epsilon import ZERO, Epsilon, Loss
from pinq.public.schema import Schema
from pinq.public.specs import MAX_PARTS, Cuts, Values, bind

__all__ = ["METHODS", "ContextTask", "Pair", "make_task"]

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
    h: Loss,
    epsilon: Loss,
    attributes: Sequence[str] | None,
    cuts: CutsByColumn | None,
) -> ContextTask:
    """Returns the task that the parameters of ``DPDilca`` describe.

    Raises:
        QueryError: A parameter or the target is wrong, or the budget too small for its shares.
    """
    total = Epsilon.of(epsilon)
    whole_number("k", k, 1, MAX_ATTRIBUTES)
    if not isinstance(method, str) or method not in METHODS:
        methods = ", ".join(repr(name) for name in METHODS)
        problem = f"is {method!r}{closest(str(method), METHODS)}"
        raise QueryError(problem, parameter="method", allowed=f"one of {methods}")
    share = Epsilon.of(h, name="h").exact
    if share >= 1:
        raise QueryError(f"is {h!r}", parameter="h", allowed="a share of the budget, greater than 0 and less than 1")
    columns = multiway_splits(schema, None, attributes=attributes, cuts=_with_bins(schema, attributes, cuts))
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


def _with_bins(schema: Schema, attributes: Sequence[str] | None, cuts: CutsByColumn | None) -> CutsByColumn | None:
    """Returns the caller's cuts, and ``BINS`` intervals for numeric columns without any cuts."""
    if cuts is not None and not isinstance(cuts, Mapping):
        return cuts  # `multiway_splits` refuses it
    names = list(attributes) if is_listing(attributes) else list(schema.columns)
    uncut = {
        name: BINS
        for name, column in schema.numeric_columns.items()
        if name in names and not column.cuts and column.cells > 1
    }
    return uncut | dict(cuts or {})


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

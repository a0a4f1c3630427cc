# SPDX-License-Identifier: Apache-2.0
"""A node of a fitted tree: its split, and the noisy counts of its rows.

Checks refuse nodes that are not one tree under a schema, and fill counts that follow from others. The JSON form of
nodes is here too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist, mode
from typing import Annotated, ClassVar

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from pinq.errors import QueryError
from pinq.language.specs import Cuts, Groups, Values, bind
from pinq.public.checks import is_whole, text_of
from pinq.public.columns import CutPoint, problems
from pinq.public.epsilon import laplace_interval, standard_deviation
from pinq.public.schema import Numeric, Schema, Value

Ends = tuple[CutPoint, CutPoint] | None
"""The range to which a numeric target is clamped; None for its bounds."""
NAMED_CLASSES = 4  # in a tree's one-line text


@dataclass(frozen=True)
class ClassTarget:
    """A categorical target, whose classes a tree predicts."""

    kind: ClassVar[str] = "classification"
    name: str
    classes: tuple[Value, ...]

    @property
    def n_counts(self) -> int:
        return len(self.classes)

    @property
    def bar_names(self) -> tuple[str, ...]:
        return tuple(text_of(value) for value in self.classes)

    def __str__(self) -> str:
        more = ", ..." if len(self.classes) > NAMED_CLASSES else ""
        return f"`{self.name}` ({', '.join(str(value) for value in self.classes[:NAMED_CLASSES])}{more})"


@dataclass(frozen=True)
class MeanTarget:
    """A numeric target, whose mean a tree predicts.

    Attributes:
        within: The range to which its values were clamped.
    """

    kind: ClassVar[str] = "regression"
    name: str
    column: Numeric
    within: Ends = None
    classes: ClassVar[tuple[Value, ...]] = ()
    n_counts: ClassVar[int] = 2  # of a node: a row counts in parts for the lower and the upper bound

    @property
    def bar_names(self) -> tuple[str, ...]:
        return (f"mean, from {self._between}",)

    @property
    def ends(self) -> tuple[float, float]:
        """The numbers to which rows are clamped, between which every mean lies."""
        first, last = self.column.cells_within(self.within, self.name)
        return self.column.number(first), self.column.number(last)

    @property
    def _between(self) -> str:
        low, high = self.column.bounds if self.within is None else map(self.column.text, self.ends)
        return f"{low} to {high}"

    def __str__(self) -> str:
        return f"`{self.name}` ({self._between})"


Target = ClassTarget | MeanTarget


def target_of(schema: Schema, name: str, within: Ends = None) -> Target:
    """The target of a name; raises ``QueryError`` without such a column or range."""
    schema.column(name)
    numeric = schema.numeric_columns.get(name)
    if numeric is None:
        return ClassTarget(name, schema.categorical(name).values)
    numeric.cells_within(within, name)
    return MeanTarget(name, numeric, within)


def as_array(classes: Sequence[Value]) -> np.ndarray:
    """Class values as an array, of their type if they share one; else, or beyond 64 bits, of objects."""
    same_type = len({type(value) for value in classes}) == 1
    fits = same_type and not (isinstance(classes[0], int) and any(abs(int(value)) >= 2**63 for value in classes))
    return np.array(classes) if fits else np.array(classes, dtype=object)


Split = Values | Cuts | Groups
StoredSplit = Annotated[Split, Field(discriminator="kind")]
Number = Annotated[float, Field(ge=-1e300, le=1e300)]
"""A number that can be added to some others."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a tree: a split and the noisy answers about its rows.

    Attributes:
        split: The spec by which it is split; None at a leaf.
        children: Positions of its children in the tree's ``nodes``, in the order of the split's parts; empty at a leaf.
        size: Noisy number of rows, as released (it may be negative); None without a query.
        size_scale: Scale of the noise in ``size``; see ``miners.budget.plan``.
        counts: Noisy rows of each class, as released or estimated; of an inner node by default the sums over its
            children. For a numeric target, each row counts in parts for its two ends, by its nearness to each: the mean
            lies between them in proportion.
        counts_scale: Scale of the noise in each of ``counts`` as released; None for sums or estimates.
        counts_deviation: Standard deviation of the noise in each of ``counts`` as estimated from all answers; the
            smaller it is, the less the prediction is shrunk towards the parent's. None if counts are used unchanged.
        label: The position of the node's class in a tree that reveals only its leaves' classes; an inner node has by
            default the most frequent label of its children. None if there are counts.
    """

    # In JSON the number 1 is neither true nor "1", and a node has no other keys.
    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    split: StoredSplit | None = None
    children: tuple[int, ...] = ()
    size: Number | None = None
    size_scale: Number | None = None
    counts: tuple[Number, ...] = ()
    counts_scale: Number | None = None
    counts_deviation: Number | None = None
    label: int | None = None

    @property
    def is_leaf(self) -> bool:
        return self.split is None

    @property
    def rows(self) -> float:
        """The estimated number of rows, at least 0; NaN for a node that has only a label.

        It is the sum of the class counts if they were estimated from all answers; else the noisy size; else the sum of
        the counts.
        """
        return max(0.0, self._number) if self.label is None else math.nan

    def interval(self, level: float = 0.95) -> tuple[float, float] | None:
        """Bounds around ``rows`` that contain the true number with probability ``level``; None if the noise is unknown.

        They follow from the distribution of the noise alone, and hold for this table only. For a queried size they are
        exact. A sum of counts contains several noises: its bounds are those of a Laplace or of a normal variable with
        its deviation, the wider ones, in whole rows.

        Raises:
            QueryError: ``level`` is not between 0 and 1.
        """
        if not 0 < level < 1:
            raise QueryError(f"`level` is {level!r}; it must lie between 0 and 1, like 0.95.")
        # A size of 100 at scale 10 is within 30 of the truth at 95 %.
        if self._is_asked:
            wide: float = laplace_interval(self.size_scale or 0.0, level)
        elif self._each_deviation is not None:
            wide = self._each_deviation * math.sqrt(len(self.counts)) * _deviations(level)
            # With less noise than a thousandth of a row the budget was practically unlimited.
            wide = math.ceil(wide) if wide > 1e-3 else 0.0
        else:
            return None
        return max(0.0, self._number - wide), max(0.0, self._number + wide)

    def share_interval(self, level: float = 0.95) -> tuple[float, float] | None:
        """Bounds for the true share of the last of two counts, at ``level`` or more; None if the noise is unknown.

        If both counts are within k of the true ones (each with probability (1 + level) / 2), the share is within k /
        (sum of both): counts 60 and 40 with k = 5 give 0.35 and 0.45.

        Raises:
            QueryError: ``level`` is not between 0 and 1.
        """
        if not 0 < level < 1:
            raise QueryError(f"`level` is {level!r}; it must lie between 0 and 1, like 0.95.")
        each, rows = self._each_deviation, math.fsum(self.counts)
        if each is None:
            return None
        if rows <= 0:
            return 0.0, 1.0
        share = min(1.0, max(0.0, self.counts[-1] / rows))
        # Counts 60 and 40 that deviate by 2: at 95 % each is within 2 * 2.61, so the share within
        # 5.2 / 100.
        half = each * _deviations((1 + level) / 2) / rows
        return max(0.0, share - half), min(1.0, share + half)

    @property
    def _is_asked(self) -> bool:
        return self.size is not None and self.size_scale is not None and self.counts_deviation is None

    @property
    def _number(self) -> float:
        return self.size if self._is_asked and self.size is not None else math.fsum(self.counts)

    @property
    def _each_deviation(self) -> float | None:
        """The deviation of the noise in each count; None if it is unknown."""
        if self.counts_deviation is None and self.counts_scale is not None:
            return standard_deviation(self.counts_scale)
        return self.counts_deviation


def _deviations(level: float) -> float:
    """The number of standard deviations that contain a noise with probability ``level``.

    It is the larger number of two laws: one Laplace variable, and a nearly normal sum. At 0.95 that is 2.12, of the
    first.
    """
    return max(-math.log(1 - level) / math.sqrt(2), NormalDist().inv_cdf((1 + level) / 2))


def summed(nodes: tuple[Node, ...], n_counts: int) -> tuple[Node, ...]:
    """The nodes; inner ones without counts get the sums over their children, or the most frequent label.

    Nodes that are not a tree stay as they are; ``checked_depths`` refuses them.
    """
    filled = list(nodes)
    for index in range(len(nodes) - 1, -1, -1):
        node = nodes[index]
        if node.counts or node.label is not None or not node.children:
            continue
        if not all(isinstance(child, int) and index < child < len(nodes) for child in node.children):
            continue
        below = [filled[child].counts for child in node.children]
        labels = [filled[child].label for child in node.children]
        if all(map(is_whole, labels)):
            filled[index] = replace(node, label=mode(labels))
        elif all(len(counts) == n_counts for counts in below):
            # Children of (3, 1) and (2, 4): a parent of (5, 5).
            sums = tuple(math.fsum(column) for column in zip(*below, strict=True))
            filled[index] = replace(node, counts=sums)
    return tuple(filled)


def checked_depths(schema: Schema, target: Target, nodes: tuple[Node, ...]) -> tuple[int, ...]:
    """The depth of each node; raises ``QueryError`` unless the nodes are one tree."""
    if not nodes:
        raise QueryError("a tree needs at least one node.")
    depths = [0] + [-1] * (len(nodes) - 1)  # -1 until a parent names the node as its child
    for index, node in enumerate(nodes):
        if depths[index] < 0:
            raise QueryError(f"node {index} of the tree has no parent.")
        _check_numbers(index, node, target, nodes[0].label is not None)
        _check_split(index, node, schema, target)
        for child in node.children:
            if not index < child < len(nodes) or depths[child] >= 0:
                raise QueryError(
                    f"node {index} of the tree names {child} as a child, which comes before it, "
                    "has another parent or does not exist."
                )
            depths[child] = depths[index] + 1
    return tuple(depths)


def _check_numbers(index: int, node: Node, target: Target, labelled: bool) -> None:
    """Checks the counts of a node and the scales of its noise; or its label, if the root has one too."""
    if labelled:
        if node.counts or not is_whole(node.label, 0, len(target.classes) - 1):
            raise QueryError(
                f"`label` of node {index} of the tree is {node.label!r}; in the place of counts it must be "
                f"the position of a class, 0 to {len(target.classes) - 1}."
            )
    elif node.label is not None or len(node.counts) != target.n_counts:
        raise QueryError(
            f"node {index} of the tree has {len(node.counts)} counts; for `{target.name}` it needs {target.n_counts}."
        )
    noise = [scale for scale in (node.size_scale, node.counts_scale, node.counts_deviation) if scale is not None]
    if not all(map(math.isfinite, (*node.counts, node.size or 0.0, *noise))):
        raise QueryError(f"node {index} of the tree holds a number that is not finite.")
    if min(noise, default=0.0) < 0:
        raise QueryError(f"node {index} of the tree has negative noise.")


def _check_split(index: int, node: Node, schema: Schema, target: Target) -> None:
    """Checks that a node's split is one of a tree's, and that it has a child for each part."""
    size = 0
    if node.split is not None:
        if not isinstance(node.split, (Values, Cuts, Groups)) or node.split.column == target.name:
            raise QueryError(
                f"node {index} of the tree is split by {node.split!r}; "
                "Values, Cuts or Groups of a column other than the target is needed."
            )
        size = bind(node.split, schema).size
    if len(node.children) != size:
        raise QueryError(f"node {index} of the tree has {len(node.children)} children; its split makes {size}.")


def read_json(text: str | bytes) -> object:
    """Parses JSON; raises ``QueryError`` for other text."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise QueryError(f"this is not JSON: {error}") from None


_NODES: TypeAdapter[tuple[Node, ...]] = TypeAdapter(tuple[Node, ...])
_SPLIT: TypeAdapter[Split] = TypeAdapter(StoredSplit)


def nodes_out(nodes: Sequence[Node]) -> list[dict[str, object]]:
    """Returns nodes as JSON, without empty fields."""
    stored = _NODES.dump_python(tuple(nodes), mode="json")
    return [{name: value for name, value in node.items() if value not in (None, [])} for node in stored]


def nodes_in(stored: object) -> tuple[Node, ...]:
    """Reads a result of ``nodes_out``; raises ``QueryError`` for anything else."""
    try:
        nodes = _NODES.validate_json(json.dumps(stored))
    except ValidationError as error:
        raise QueryError(f"the nodes of the stored tree are not valid:\n{problems(error)}") from None
    for index, node in enumerate(nodes):
        if node.label is None and not node.counts:
            raise QueryError(f"node {index} of the stored tree has neither `counts` nor a `label`.")
    return nodes


def split_out(split: Split) -> dict[str, object]:
    """Returns a split as JSON."""
    return _SPLIT.dump_python(split, mode="json")


def split_in(name: str, stored: object) -> Split:
    """Reads a result of ``split_out``; ``name`` is its name in a ``QueryError``."""
    try:
        return _SPLIT.validate_json(json.dumps(stored))
    except ValidationError as error:
        raise QueryError(f"{name} is not valid:\n{problems(error)}") from None

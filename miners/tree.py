# SPDX-License-Identifier: Apache-2.0
"""A fitted tree: public data made of noisy answers, nothing else. Shared by all miners that grow trees.

Privacy:
    Claim: a tree costs nothing to use, show, store or send.
    Why: it is computed from a public schema and from differentially private answers (post-processing). Its JSON holds
    those and nothing more: no seed, no secret, no row. Held by: tests/unit/test_tree.py.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from miners.estimates import class_shares
from miners.tree_route import Router, encode
from pinq.accuracy import laplace_interval
from pinq.errors import QueryError
from pinq.parts import Cuts, Groups, Values, bind
from pinq.schema import Schema, Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Node", "Split", "Tree"]

FORMAT = "pinq-tree"
VERSION = 1
ROWS_AT_ONCE = 2**16
NOISE = ("size", "size_scale", "counts_scale", "counts_deviation")

Split = Values | Cuts | Groups
SPLITS: dict[str, type[Values] | type[Cuts] | type[Groups]] = {"values": Values, "cuts": Cuts, "groups": Groups}


@dataclass(frozen=True)
class Node:
    """One node, as its noisy answers describe it.

    Attributes:
        split: The spec by which it is split; None at a leaf.
        children: Positions of its children in the tree's ``nodes``, in the order of the split's parts; empty at a leaf.
        size: Noisy number of rows, as released (it may be negative); None where it was not asked.
        size_scale: Scale of the noise in ``size``; see ``miners.noise``.
        counts: Noisy rows of each class, as released or estimated; of an inner node by default the sums over its children.
        counts_scale: Scale of the noise in each of ``counts`` as released; None where they are sums or estimates.
        counts_deviation: Standard deviation of the noise in each of ``counts`` as estimated from all answers; the surer a node is of its
            classes, the less it leans on its parent's. None where counts are taken as they are.
    """

    split: Split | None = None
    children: tuple[int, ...] = ()
    size: float | None = None
    size_scale: float | None = None
    counts: tuple[float, ...] = ()
    counts_scale: float | None = None
    counts_deviation: float | None = None

    @property
    def is_leaf(self) -> bool:
        """Whether nothing is below it."""
        return self.split is None

    @property
    def rows(self) -> float:
        """Estimated number of rows, at least 0: the sum of estimated class counts; without those the noisy size of an inner node."""
        asked = self.size is not None and self.counts_deviation is None and not (self.is_leaf and self.counts)
        return max(0.0, self.size if asked and self.size is not None else sum(self.counts))

    def interval(self, level: float = 0.95) -> tuple[float, float] | None:
        """Bounds that hold the true number of rows with probability ``level``; None where no size was asked and none estimated.

        A law of the noise alone: it says nothing about other tables of the same kind. Estimated sizes have lighter tails than one
        Laplace variable of their deviation, whose bounds they get.
        """
        if self.counts_deviation is not None:
            wide = self.counts_deviation * math.sqrt(len(self.counts) / 2) * math.log(1 / (1 - level))
            return max(0.0, self.rows - wide), self.rows + wide
        if self.size is None or self.size_scale is None:
            return None
        wide = laplace_interval(self.size_scale, level)
        return max(0.0, self.size - wide), max(0.0, self.size + wide)


class Tree:
    """A decision tree for classification. Immutable; equal when all of its data are equal.

    A row goes down from the root. Where the value that a node asks for is missing (and the column does not declare
    missing values), is not declared, or belongs to no branch, the row stops and the node that it has reached answers.

    Args:
        schema: The public schema under which the tree was grown.
        target: The column that is predicted, categorical.
        nodes: The nodes; the root first, each node before its children.

    Attributes:
        classes: The declared values of the target, in the order of the counts.

    Raises:
        QueryError: The nodes are not a tree under this schema.
    """

    def __init__(self, schema: Schema, target: str, nodes: Sequence[Node]) -> None:
        self.schema = schema
        self.target = target
        self.classes: tuple[Value, ...] = schema.categorical(target).values
        self.nodes = _summed(tuple(nodes), len(self.classes))
        self.depths = _check(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tree):
            return NotImplemented
        return (self.target, self.nodes, self.schema) == (other.target, other.nodes, other.schema)

    def __hash__(self) -> int:
        return hash((self.target, self.nodes))

    @property
    def n_nodes(self) -> int:
        """Number of nodes, leaves included."""
        return len(self.nodes)

    @property
    def n_leaves(self) -> int:
        """Number of leaves."""
        return sum(node.is_leaf for node in self.nodes)

    @property
    def depth(self) -> int:
        """Number of splits above the deepest leaf."""
        return max(self.depths)

    @cached_property
    def probabilities(self) -> np.ndarray:
        """Each node's class probabilities, shape (nodes, classes); rows add up to 1.

        Counts below 0 count as 0. A node that has no count above 0 answers like its parent, a root like that uniformly; one whose noise is
        known leans on its parent's the more, the more noise there is for each of its rows (``miners.estimates.class_shares``).
        """
        counts = np.array([node.counts for node in self.nodes], dtype=np.float64)
        result = class_shares([node.children for node in self.nodes], counts, np.array([node.counts_deviation or 0.0 for node in self.nodes]))
        result.flags.writeable = False
        return result

    def apply(self, frame: Any) -> np.ndarray:
        """The node that answers for each row of a pandas or Arrow table: positions in ``nodes``, shape (rows,)."""
        length = _length(frame)
        router = self._router
        places = np.zeros((len(router.columns) + 1, length), dtype=np.int32)
        for position, name in enumerate(router.columns):
            places[position + 1] = router.places(name, encode(self.schema, name, frame))
        reached = np.empty(length, dtype=np.int64)
        for start in range(0, length, ROWS_AT_ONCE):
            reached[start : start + ROWS_AT_ONCE] = router.walk(places[:, start : start + ROWS_AT_ONCE], self.depth)
        return reached

    def predict_proba(self, frame: Any) -> np.ndarray:
        """Class probabilities for each row, shape (rows, classes), columns in the order of ``classes``."""
        result: np.ndarray = self.probabilities[self.apply(frame)]
        return result

    def predict(self, frame: Any) -> np.ndarray:
        """The likeliest class for each row, shape (rows,); the first declared one in a tie."""
        result: np.ndarray = as_array(self.classes)[self.probabilities.argmax(axis=1)[self.apply(frame)]]
        return result

    def branch(self, place: int) -> tuple[int, int] | None:
        """The parent of a node and which of its children the node is; None for the root."""
        return self._parents[place]

    def export_text(self, *, max_depth: int | None = None) -> str:
        """The tree as indented text, a line for each node; what lies below ``max_depth`` splits is folded away."""
        from miners.tree_view import text

        return text(self, max_depth)

    def plot(self, ax: Axes | None = None, *, max_depth: int | None = None) -> Axes:
        """Draws the tree from left to right with matplotlib; returns the axes.

        Args:
            ax: Where to draw; by default a new figure that is as large as the tree needs.
            max_depth: Levels of splits to draw; what lies below is folded into its node.

        Raises:
            ImportError: matplotlib is not installed.
        """
        from miners.tree_plot import plot

        return plot(self, ax, max_depth)

    def to_json(self) -> str:
        """The tree as text that ``from_json`` reads back exactly."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def to_dict(self) -> dict[str, Any]:
        """The tree as plain lists, dicts, texts and numbers."""
        schema = self.schema.model_dump(mode="json")
        return {"format": FORMAT, "version": VERSION, "kind": "classification", "target": self.target, "schema": schema, "nodes": [_node_out(n) for n in self.nodes]}

    @classmethod
    def from_json(cls, text: str | bytes) -> Tree:
        """Reads what ``to_json`` wrote. ``QueryError`` unless it is a whole and valid tree."""
        return cls.from_dict(read_json(text))

    @classmethod
    def from_dict(cls, found: Any) -> Tree:
        """Reads what ``to_dict`` made. ``QueryError`` unless it is a whole and valid tree."""
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise QueryError(f"this is not a stored tree: its `format` must be {FORMAT!r}.")
        if found.get("version") != VERSION or found.get("kind") != "classification":
            raise QueryError(f"this tree is of version {found.get('version')!r}, kind {found.get('kind')!r}; this release reads version {VERSION}, kind 'classification'.")
        nodes = found.get("nodes")
        if not isinstance(nodes, list):
            raise QueryError("the stored tree has no list of `nodes`.")
        try:
            schema = Schema.model_validate(found.get("schema"))
        except ValueError as error:
            raise QueryError(f"the stored tree's schema is not valid: {error}") from None
        return cls(schema, found.get("target"), [_node_in(place, node) for place, node in enumerate(nodes)])  # type: ignore[arg-type]

    def __repr__(self) -> str:
        used = list(dict.fromkeys(node.split.column for node in self.nodes if node.split is not None))
        return (
            f"Tree for `{self.target}` ({', '.join(str(c) for c in self.classes[:4])}{', ...' if len(self.classes) > 4 else ''}): depth {self.depth}, "
            f"{self.n_leaves:,} {'leaf' if self.n_leaves == 1 else 'leaves'}, about {self.nodes[0].rows:,.0f} rows"
            + (f", splits on {', '.join(used[:5])}{', ...' if len(used) > 5 else ''}" if used else "")
        )

    def _repr_html_(self) -> str:
        from miners.tree_view import html

        return html(self)

    @cached_property
    def _parents(self) -> tuple[tuple[int, int] | None, ...]:
        parents: list[tuple[int, int] | None] = [None] * len(self.nodes)
        for place, node in enumerate(self.nodes):
            for number, child in enumerate(node.children):
                parents[child] = (place, number)
        return tuple(parents)

    @cached_property
    def _router(self) -> Router:
        return Router(self.schema, self.nodes)


def as_array(classes: Sequence[Value]) -> np.ndarray:
    """Class values as an array: of text, of whole numbers or of truth values where all are alike, else of objects."""
    alike = len({type(value) for value in classes}) == 1
    fits = alike and not (isinstance(classes[0], int) and any(abs(int(value)) >= 2**63 for value in classes))
    return np.array(classes) if fits else np.array(classes, dtype=object)


def read_json(text: str | bytes) -> Any:
    """Parses JSON. ``QueryError`` where it is none."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise QueryError(f"this is not JSON: {error}") from None


def _length(frame: Any) -> int:
    if not hasattr(frame, "columns") or not hasattr(frame, "__getitem__"):
        raise QueryError(f"a pandas or Arrow table with named columns is needed, not {type(frame).__name__}.")
    return int(frame.num_rows) if hasattr(frame, "num_rows") else len(frame)


def _summed(nodes: tuple[Node, ...], classes: int) -> tuple[Node, ...]:
    """The nodes, with missing counts of inner nodes filled by the sums over their children."""
    filled = list(nodes)
    for place in range(len(nodes) - 1, -1, -1):
        node = nodes[place]
        if node.counts or not node.children or not all(isinstance(c, int) and place < c < len(nodes) for c in node.children):
            continue
        below = [filled[child].counts for child in node.children]
        if all(len(counts) == classes for counts in below):
            sums = tuple(math.fsum(column) for column in zip(*below, strict=True))
            filled[place] = Node(node.split, node.children, node.size, node.size_scale, sums)
    return tuple(filled)


def _check(tree: Tree) -> tuple[int, ...]:
    """Checks that the nodes are one tree under the schema; returns the depth of each."""
    if not tree.nodes:
        raise QueryError("a tree needs at least one node.")
    depths = [0] + [-1] * (len(tree.nodes) - 1)
    for place, node in enumerate(tree.nodes):
        if depths[place] < 0:
            raise QueryError(f"node {place} of the tree is nobody's child.")
        if len(node.counts) != len(tree.classes):
            raise QueryError(f"node {place} of the tree has {len(node.counts)} class counts; `{tree.target}` has {len(tree.classes)} classes.")
        numbers = [*node.counts, *(n for n in (node.size, node.size_scale, node.counts_scale, node.counts_deviation) if n is not None)]
        if not all(math.isfinite(number) for number in numbers):
            raise QueryError(f"node {place} of the tree holds a number that is not finite.")
        if min(node.size_scale or 0, node.counts_scale or 0, node.counts_deviation or 0) < 0:
            raise QueryError(f"node {place} of the tree has negative noise.")
        if node.split is not None and (not isinstance(node.split, (Values, Cuts, Groups)) or node.split.column == tree.target):
            raise QueryError(f"node {place} of the tree is split by {node.split!r}; Values, Cuts or Groups of a column other than the target is needed.")
        size = 0 if node.split is None else bind(node.split, tree.schema).size
        if len(node.children) != size:
            raise QueryError(f"node {place} of the tree has {len(node.children)} children; its split makes {size}.")
        for child in node.children:
            if not place < child < len(tree.nodes) or depths[child] >= 0:
                raise QueryError(f"node {place} of the tree names {child} as a child, which comes before it, has another parent or does not exist.")
            depths[child] = depths[place] + 1
    return tuple(depths)


def _node_out(node: Node) -> dict[str, Any]:
    out: dict[str, Any] = {"counts": list(node.counts)}
    if node.split is not None:
        spec: dict[str, Any] = {"kind": node.split.kind, "column": node.split.column}
        if isinstance(node.split, Cuts):
            spec["points"] = list(node.split.points)
        elif isinstance(node.split, Groups):
            spec["groups"] = [list(group) for group in node.split.groups]
        out |= {"split": spec, "children": list(node.children)}
    out |= {name: value for name in NOISE if (value := getattr(node, name)) is not None}
    return out


def _node_in(place: int, found: Any) -> Node:
    known = {"split", "children", "counts", *NOISE}
    if not isinstance(found, dict) or not set(found) <= known:
        raise QueryError(f"node {place} of the stored tree must be an object with no other keys than {', '.join(sorted(known))}.")
    children, counts = found.get("children", []), found.get("counts")
    if not isinstance(children, list) or not all(type(child) is int for child in children):
        raise QueryError(f"`children` of node {place} of the stored tree must be a list of whole numbers.")
    if not isinstance(counts, list):
        raise QueryError(f"`counts` of node {place} of the stored tree must be a list of numbers.")
    size, size_scale, counts_scale, counts_deviation = (_number(place, name, found.get(name)) for name in NOISE)
    numbers = tuple(_number(place, "counts", count) for count in counts)
    if any(number is None for number in numbers):
        raise QueryError(f"`counts` of node {place} of the stored tree must be a list of numbers.")
    return Node(_split_in(place, found.get("split")), tuple(children), size, size_scale, numbers, counts_scale, counts_deviation)  # type: ignore[arg-type]


def _number(place: int, name: str, found: Any) -> float | None:
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, (int, float)) or abs(found) > 1e300:
        raise QueryError(f"`{name}` of node {place} of the stored tree is {str(found)[:40]!r}; it must be a number.")
    return float(found)


def _split_in(place: int, found: Any) -> Split | None:
    if found is None:
        return None
    fields = dict(found) if isinstance(found, dict) else {}
    kind = fields.pop("kind", None)
    spec = SPLITS.get(kind) if isinstance(kind, str) else None
    if spec is None:
        raise QueryError(f"the split of node {place} of the stored tree must be an object whose `kind` is one of {', '.join(SPLITS)}.")
    try:
        return spec(**fields)
    except TypeError as error:
        raise QueryError(f"the split of node {place} of the stored tree is malformed: {error}") from None

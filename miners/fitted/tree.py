# SPDX-License-Identifier: Apache-2.0
"""A fitted tree: public data made of noisy answers, nothing else. Shared by all miners that grow trees.

Privacy:
    Claim: a tree costs nothing to use, show, store or send.
    Why: it is computed from a public schema and from differentially private answers
    (post-processing). Its JSON holds those and nothing more: no seed, no secret, no row. Held by:
    tests/unit/fitted/test_tree.py.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from miners.fitted.arrays import TreeArrays, to_arrays
from miners.fitted.dot import dot
from miners.fitted.estimates import class_shares
from miners.fitted.json_form import node_in, node_out, read_json
from miners.fitted.node import Node, Split
from miners.fitted.plot import MOST_LINES, plot
from miners.fitted.route import Router, encode
from miners.fitted.sketch import Sketch, sketch
from miners.fitted.view import MOST_LINES_OF_HTML, html, text
from pinq.errors import QueryError
from pinq.public.schema import Categorical, Schema, Value
from pinq.public.specs import Cuts, Groups, Values, bind

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Node", "Split", "Tree"]

FORMAT = "pinq-tree"
VERSION = 1
KINDS = ("classification", "regression")
ROWS_AT_ONCE = 2**16
ENDS = 2  # of a numeric target


class Tree:
    """A decision tree: for classification where its target is categorical, for regression where it is numeric. Immutable; equal when all of its data are equal.

    A row goes down from the root. Where the value that a node asks for is missing (and the column
    does not declare missing values), is not declared, or belongs to no branch, the row stops and
    the node that it has reached answers.

    Args:
        schema: The public schema under which the tree was grown.
        target: The column that is predicted.
        nodes: The nodes; the root first, each node before its children.

    Attributes:
        classes: The declared values of the target, in the order of the counts; none of a numeric
            target, whose nodes count its two ends.

    Raises:
        QueryError: The nodes are not a tree under this schema.
    """

    kept_as = "tree"  # under this name a miner keeps it

    def __init__(self, schema: Schema, target: str, nodes: Sequence[Node]) -> None:
        self.schema = schema
        self.target = target
        column = schema.column(target)
        self.classes: tuple[Value, ...] = column.values if isinstance(column, Categorical) else ()
        self.cells = len(self.classes) if self.classes else ENDS
        self.nodes = _summed(tuple(nodes), self.cells)
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

    @property
    def kind(self) -> str:
        """``"classification"`` or ``"regression"``."""
        return "classification" if self.classes else "regression"

    @cached_property
    def probabilities(self) -> np.ndarray:
        """Each node's class probabilities, shape (nodes, classes); rows add up to 1. For a numeric target the weights of its two ends, which ``values`` averages.

        Counts below 0 count as 0. A node that has no count above 0 answers like its parent, a root
        like that uniformly; one whose noise is known leans on its parent's the more, the more noise
        there is for each of its rows (``miners.fitted.estimates.class_shares``).
        """
        counts = np.array([node.counts for node in self.nodes], dtype=np.float64)
        result = class_shares(
            [node.children for node in self.nodes],
            counts,
            np.array([node.counts_deviation or 0.0 for node in self.nodes]),
        )
        result.flags.writeable = False
        return result

    @cached_property
    def values(self) -> np.ndarray:
        """Each node's mean of a numeric target, shape (nodes,)."""
        low, high = self._bounds
        result: np.ndarray = low + (high - low) * self.probabilities[:, 1]
        result.flags.writeable = False
        return result

    def intervals(self, level: float = 0.95) -> np.ndarray:
        """Bounds that hold the true mean of each node's rows with probability ``level`` or more, shape (nodes, 2); the declared bounds where the noise is not known.

        A law of the noise alone, as in ``Node.interval``. ``values`` may lean a little on the
        parent's; then the bounds are widened to hold them.
        """
        low, high = self._bounds
        shares = np.array([node.share_interval(level) or (0.0, 1.0) for node in self.nodes])
        shares = np.column_stack(
            [np.minimum(shares[:, 0], self.probabilities[:, 1]), np.maximum(shares[:, 1], self.probabilities[:, 1])]
        )
        return low + (high - low) * shares

    @property
    def _bounds(self) -> tuple[float, float]:
        """The ends of a numeric target, as rows are clamped to them."""
        column = self.schema.numeric(self.target)
        return column.number(0), column.number(column.cells - 1)

    def apply(self, frame: Any) -> np.ndarray:
        """The node that answers for each row of a pandas or Arrow table: positions in ``nodes``, shape (rows,)."""
        rows = length(frame)
        return self.route({name: encode(self.schema, name, frame) for name in self.columns}, rows)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns by which nodes are split."""
        return self._router.columns

    def route(self, codes: Mapping[str, np.ndarray], length: int) -> np.ndarray:
        """``apply`` for rows whose ``columns`` are encoded already; see ``miners.fitted.route.encode``."""
        router = self._router
        places = np.zeros((len(router.columns) + 1, length), dtype=np.int32)
        for position, name in enumerate(router.columns):
            places[position + 1] = router.places(name, codes[name])
        reached = np.empty(length, dtype=np.int64)
        for start in range(0, length, ROWS_AT_ONCE):
            reached[start : start + ROWS_AT_ONCE] = router.walk(places[:, start : start + ROWS_AT_ONCE], self.depth)
        return reached

    def predict_proba(self, frame: Any) -> np.ndarray:
        """Class probabilities for each row, shape (rows, classes), columns in the order of ``classes``."""
        result: np.ndarray = self.probabilities[self.apply(frame)]
        return result

    def predict(self, frame: Any) -> np.ndarray:
        """The likeliest class for each row, the first declared one in a tie; or the mean; shape (rows,)."""
        answers = as_array(self.classes)[self.probabilities.argmax(axis=1)] if self.classes else self.values
        result: np.ndarray = answers[self.apply(frame)]
        return result

    def export_text(self, *, max_depth: int | None = None) -> str:
        """The tree as indented text, a line for each node; what lies below ``max_depth`` splits is folded away."""
        return text(self._sketch(max_depth), repr(self))

    def export_graphviz(self, *, max_depth: int | None = None) -> str:
        """The tree in Graphviz's DOT language, for ``dot -Tsvg`` or ``graphviz.Source``; what lies below ``max_depth`` splits is folded away."""
        return dot(self._sketch(max_depth))

    def plot(self, ax: Axes | None = None, *, max_depth: int | None = None) -> Axes:
        """Draws the tree from left to right with matplotlib; returns the axes.

        Args:
            ax: Where to draw; by default a new figure that is as large as the tree needs.
            max_depth: Levels of splits to draw; what lies below is folded into its node. None for
                as many as a page can hold.

        Raises:
            ImportError: matplotlib is not installed.
        """
        return plot(self._sketch(max_depth, most=MOST_LINES), ax)

    def to_arrays(self) -> TreeArrays:
        """The tree as plain numpy arrays, enough to predict with a few lines of numpy; see ``miners.fitted.arrays.TreeArrays``."""
        return to_arrays(
            self.schema,
            self.target,
            self.classes,
            self.nodes,
            self.probabilities if self.classes else self.values[:, None],
        )

    def to_json(self) -> str:
        """The tree as text that ``from_json`` reads back exactly."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def to_dict(self) -> dict[str, Any]:
        """The tree as plain lists, dicts, texts and numbers."""
        schema = self.schema.model_dump(mode="json")
        return {
            "format": FORMAT,
            "version": VERSION,
            "kind": self.kind,
            "target": self.target,
            "schema": schema,
            "nodes": [node_out(n) for n in self.nodes],
        }

    @classmethod
    def from_json(cls, text: str | bytes) -> Tree:
        """Reads what ``to_json`` wrote. ``QueryError`` unless it is a whole and valid tree."""
        return cls.from_dict(read_json(text))

    @classmethod
    def from_dict(cls, found: Any) -> Tree:
        """Reads what ``to_dict`` made. ``QueryError`` unless it is a whole and valid tree."""
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise QueryError(f"this is not a stored tree: its `format` must be {FORMAT!r}.")
        if found.get("version") != VERSION or found.get("kind") not in KINDS:
            known = " or ".join(map(repr, KINDS))
            raise QueryError(
                f"this tree is of version {found.get('version')!r}, kind {found.get('kind')!r}; this release reads version {VERSION}, kind {known}."
            )
        try:
            schema = Schema.model_validate(found.get("schema"))
        except ValueError as error:
            raise QueryError(f"the stored tree's schema is not valid: {error}") from None
        tree = cls._read(schema, found.get("target"), found.get("nodes"))
        if tree.kind != found["kind"]:
            raise QueryError(
                f"the stored tree says that it is for {found['kind']}, and its target `{tree.target}` is for {tree.kind}."
            )
        return tree

    def with_nodes(self, nodes: Any) -> Tree:
        """Another tree under the same schema for the same target, of nodes as ``to_dict`` writes them."""
        return self._read(self.schema, self.target, nodes)

    @classmethod
    def _read(cls, schema: Schema, target: Any, nodes: Any) -> Tree:
        if not isinstance(nodes, list):
            raise QueryError("the stored tree has no list of `nodes`.")
        return cls(schema, target, [node_in(place, node) for place, node in enumerate(nodes)])

    def __repr__(self) -> str:
        used = list(dict.fromkeys(node.split.column for node in self.nodes if node.split is not None))
        return (
            f"Tree for {said(self.schema, self.target)}: depth {self.depth}, "
            f"{self.n_leaves:,} {'leaf' if self.n_leaves == 1 else 'leaves'}, about {self.nodes[0].rows:,.0f} rows"
            + (f", splits on {', '.join(used[:5])}{', ...' if len(used) > 5 else ''}" if used else "")
        )

    def _repr_html_(self) -> str:
        return html(self._sketch(None, most=MOST_LINES_OF_HTML), repr(self))

    def _sketch(self, max_depth: int | None, *, most: int | None = None) -> Sketch:
        return sketch(
            self.schema,
            self.target,
            self.nodes,
            self.probabilities,
            None if self.classes else self.intervals(),
            max_depth=max_depth,
            most=most,
        )

    @cached_property
    def _router(self) -> Router:
        return Router(self.schema, self.nodes)


def as_array(classes: Sequence[Value]) -> np.ndarray:
    """Class values as an array: of text, of whole numbers or of truth values where all are alike, else of objects."""
    alike = len({type(value) for value in classes}) == 1
    fits = alike and not (isinstance(classes[0], int) and any(abs(int(value)) >= 2**63 for value in classes))
    return np.array(classes) if fits else np.array(classes, dtype=object)


def said(schema: Schema, target: str) -> str:
    """A target for people: its name, its values or bounds."""
    column = schema.column(target)
    if isinstance(column, Categorical):
        return f"`{target}` ({', '.join(str(value) for value in column.values[:4])}{', ...' if len(column.values) > 4 else ''})"
    return f"`{target}` ({column.lower} to {column.upper})"


def length(frame: Any) -> int:
    """Rows of a pandas or Arrow table."""
    if not hasattr(frame, "columns") or not hasattr(frame, "__getitem__"):
        raise QueryError(
            f"a pandas or Arrow table with named columns is needed, not {type(frame).__name__}; pandas.DataFrame(rows, columns=[...]) names them."
        )
    return int(frame.num_rows) if hasattr(frame, "num_rows") else len(frame)


def _summed(nodes: tuple[Node, ...], classes: int) -> tuple[Node, ...]:
    """The nodes, with missing counts of inner nodes filled by the sums over their children."""
    filled = list(nodes)
    for place in range(len(nodes) - 1, -1, -1):
        node = nodes[place]
        if (
            node.counts
            or not node.children
            or not all(isinstance(c, int) and place < c < len(nodes) for c in node.children)
        ):
            continue
        below = [filled[child].counts for child in node.children]
        if all(len(counts) == classes for counts in below):
            sums = tuple(math.fsum(column) for column in zip(*below, strict=True))
            filled[place] = replace(node, counts=sums)
    return tuple(filled)


def _check(tree: Tree) -> tuple[int, ...]:
    """Checks that the nodes are one tree under the schema; returns the depth of each."""
    if not tree.nodes:
        raise QueryError("a tree needs at least one node.")
    depths = [0] + [-1] * (len(tree.nodes) - 1)
    for place, node in enumerate(tree.nodes):
        if depths[place] < 0:
            raise QueryError(f"node {place} of the tree is nobody's child.")
        if len(node.counts) != tree.cells:
            wanted = f"has {tree.cells} classes" if tree.classes else f"is numeric and has {ENDS} ends"
            raise QueryError(f"node {place} of the tree has {len(node.counts)} counts; `{tree.target}` {wanted}.")
        numbers = [
            *node.counts,
            *(n for n in (node.size, node.size_scale, node.counts_scale, node.counts_deviation) if n is not None),
        ]
        if not all(math.isfinite(number) for number in numbers):
            raise QueryError(f"node {place} of the tree holds a number that is not finite.")
        if min(node.size_scale or 0, node.counts_scale or 0, node.counts_deviation or 0) < 0:
            raise QueryError(f"node {place} of the tree has negative noise.")
        if node.split is not None and (
            not isinstance(node.split, (Values, Cuts, Groups)) or node.split.column == tree.target
        ):
            raise QueryError(
                f"node {place} of the tree is split by {node.split!r}; Values, Cuts or Groups of a column other than the target is needed."
            )
        size = 0 if node.split is None else bind(node.split, tree.schema).size
        if len(node.children) != size:
            raise QueryError(f"node {place} of the tree has {len(node.children)} children; its split makes {size}.")
        for child in node.children:
            if not place < child < len(tree.nodes) or depths[child] >= 0:
                raise QueryError(
                    f"node {place} of the tree names {child} as a child, which comes before it, has another parent or does not exist."
                )
            depths[child] = depths[place] + 1
    return tuple(depths)

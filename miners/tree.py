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
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from miners.estimates import class_shares
from miners.node import Node, Split
from miners.tree_arrays import TreeArrays, to_arrays
from miners.tree_dot import dot
from miners.tree_json import node_in, node_out, read_json
from miners.tree_plot import MOST_LINES, plot
from miners.tree_route import Router, encode
from miners.tree_sketch import Sketch, sketch
from miners.tree_view import MOST_LINES_OF_HTML, html, text
from pinq.errors import QueryError
from pinq.parts import Cuts, Groups, Values, bind
from pinq.schema import Schema, Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Node", "Split", "Tree"]

FORMAT = "pinq-tree"
VERSION = 1
ROWS_AT_ONCE = 2**16


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
            max_depth: Levels of splits to draw; what lies below is folded into its node. None for as many as a page can hold.

        Raises:
            ImportError: matplotlib is not installed.
        """
        return plot(self._sketch(max_depth, most=MOST_LINES), ax)

    def to_arrays(self) -> TreeArrays:
        """The tree as plain numpy arrays, enough to predict with a few lines of numpy; see ``miners.tree_arrays.TreeArrays``."""
        return to_arrays(self.schema, self.target, self.nodes, self.probabilities)

    def to_json(self) -> str:
        """The tree as text that ``from_json`` reads back exactly."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def to_dict(self) -> dict[str, Any]:
        """The tree as plain lists, dicts, texts and numbers."""
        schema = self.schema.model_dump(mode="json")
        return {"format": FORMAT, "version": VERSION, "kind": "classification", "target": self.target, "schema": schema, "nodes": [node_out(n) for n in self.nodes]}

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
        return cls(schema, found.get("target"), [node_in(place, node) for place, node in enumerate(nodes)])  # type: ignore[arg-type]

    def __repr__(self) -> str:
        used = list(dict.fromkeys(node.split.column for node in self.nodes if node.split is not None))
        return (
            f"Tree for `{self.target}` ({', '.join(str(c) for c in self.classes[:4])}{', ...' if len(self.classes) > 4 else ''}): depth {self.depth}, "
            f"{self.n_leaves:,} {'leaf' if self.n_leaves == 1 else 'leaves'}, about {self.nodes[0].rows:,.0f} rows"
            + (f", splits on {', '.join(used[:5])}{', ...' if len(used) > 5 else ''}" if used else "")
        )

    def _repr_html_(self) -> str:
        return html(self._sketch(None, most=MOST_LINES_OF_HTML), repr(self))

    def _sketch(self, max_depth: int | None, *, most: int | None = None) -> Sketch:
        return sketch(self.schema, self.target, self.nodes, self.probabilities, max_depth=max_depth, most=most)

    @cached_property
    def _router(self) -> Router:
        return Router(self.schema, self.nodes)


def as_array(classes: Sequence[Value]) -> np.ndarray:
    """Class values as an array: of text, of whole numbers or of truth values where all are alike, else of objects."""
    alike = len({type(value) for value in classes}) == 1
    fits = alike and not (isinstance(classes[0], int) and any(abs(int(value)) >= 2**63 for value in classes))
    return np.array(classes) if fits else np.array(classes, dtype=object)


def _length(frame: Any) -> int:
    if not hasattr(frame, "columns") or not hasattr(frame, "__getitem__"):
        raise QueryError(f"a pandas or Arrow table with named columns is needed, not {type(frame).__name__}; pandas.DataFrame(rows, columns=[...]) names them.")
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

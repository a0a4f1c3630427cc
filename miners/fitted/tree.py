# SPDX-License-Identifier: Apache-2.0
"""A fitted tree is public data made of noisy answers; all miners that grow trees share it.

Privacy:
    Claim: a tree costs nothing to use, show, store or send.
    Why: it is computed from a public schema and from differentially private answers
    (post-processing). Its JSON holds those and nothing more: no seed, no secret, no row. Held by:
    tests/unit/fitted/test_tree.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from miners.fitted.checks import checked_depths, summed
from miners.fitted.dot import dot
from miners.fitted.estimates import class_shares, drowned, moment_shares, open_shares
from miners.fitted.json_form import node_in, node_out, read_json
from miners.fitted.node import Node, Split
from miners.fitted.plot import MAX_LINES, plot
from miners.fitted.readings import importances_of, nodes_frame, rules_frame
from miners.fitted.route import Router, encode_rows
from miners.fitted.sketch import Sketch, sketch
from miners.fitted.target import ENDS, Target, as_array, target_of
from miners.fitted.tree_arrays import TreeArrays, to_arrays
from miners.fitted.view import MAX_HTML_LINES, html, text
from pinq.errors import QueryError
from pinq.public.schema import Schema, Value

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from miners.fitted.route import Frame

__all__ = ["ENDS", "Node", "Split", "Tree", "as_array", "length"]

FORMAT = "pinq-tree"
VERSION = 1
KINDS = ("classification", "regression")
RULES = {"open": open_shares, "posterior": class_shares, "moments": moment_shares}
ROWS_AT_ONCE = 2**16
NAMED_COLUMNS = 5  # in its one-line text


class Tree:
    """A decision tree predicts the classes of a categorical target, or the mean of a numeric one.

    It is immutable, and equal to another when all of their data are equal.

    A row goes down from the root. Where the value that a node asks for is missing (and the column
    does not declare missing values), is not declared, or belongs to no branch, the row stops and
    the node that it has reached answers.

    Args:
        schema: The public schema under which the tree was grown.
        target: The column that is predicted.
        nodes: The nodes; the root first, each node before its children.
        shares: How shares follow from noisy counts: ``"open"`` for classes, ``"posterior"`` for the
            two ends of a numeric target; ``"posterior"`` and ``"moments"`` also for trees of
            classes that were stored when these were the rule. None for the first two.

    Attributes:
        classes: The declared values of the target, in the order of the counts; none of a numeric
            target, whose nodes count its two ends.

    Raises:
        QueryError: The nodes are not a tree under this schema.
    """

    kept_as: ClassVar[str] = "tree"  # the attribute of a miner that holds it, without its underscore

    def __init__(self, schema: Schema, target: str, nodes: Sequence[Node], *, shares: str | None = None) -> None:
        if shares is not None and shares not in RULES:
            raise QueryError(f"the tree's `shares` are {shares!r}; they must be {', '.join(map(repr, RULES))}.")
        self.schema = schema
        self.target = target
        self.shares = shares or ("open" if self._target.classes else "posterior")
        self.nodes = summed(tuple(nodes), self._target.n_counts)
        self.depths = checked_depths(schema, self._target, self.nodes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tree):
            return NotImplemented
        return (self.target, self.nodes, self.shares, self.schema) == (
            other.target,
            other.nodes,
            other.shares,
            other.schema,
        )

    def __hash__(self) -> int:
        return hash((self.target, self.nodes))

    @cached_property
    def _target(self) -> Target:
        """Returns the target with its classes or bounds."""
        return target_of(self.schema, self.target)

    @property
    def classes(self) -> tuple[Value, ...]:
        """Returns the declared values of the target; none of a numeric one."""
        return self._target.classes

    @property
    def n_nodes(self) -> int:
        """Returns the number of nodes, leaves included."""
        return len(self.nodes)

    @property
    def n_leaves(self) -> int:
        """Returns the number of leaves."""
        return sum(node.is_leaf for node in self.nodes)

    @property
    def depth(self) -> int:
        """Returns the number of splits above the deepest leaf."""
        return max(self.depths)

    @property
    def kind(self) -> str:
        """Returns ``"classification"`` or ``"regression"``."""
        return self._target.kind

    @cached_property
    def probabilities(self) -> np.ndarray:
        """Returns each node's class probabilities, shape (nodes, classes); rows add up to 1.

        For a numeric target they are the weights of its two ends, which ``values`` averages.

        A node that is ``drowned`` answers like its parent, and any other whose noise is known leans
        on its parent's answer as far as that noise demands
        (``miners.fitted.estimates.open_shares``). A root has nothing above it: if none of its
        counts is above 0, it answers uniformly.
        """
        result = RULES[self.shares](*self._counted)
        result.flags.writeable = False
        return result

    @cached_property
    def drowned(self) -> np.ndarray:
        """Returns which nodes predict what their parent predicts, shape (nodes,).

        Their rows cannot be told from zero. Pictures mark them "as above".
        """
        result = drowned(*self._counted) & (self.shares != "moments")
        result.flags.writeable = False
        return result

    @property
    def _counted(self) -> tuple[list[tuple[int, ...]], np.ndarray, np.ndarray]:
        """Returns children, counts and the deviation of their noise."""
        counts = np.array([node.counts for node in self.nodes], dtype=np.float64)
        return (
            [node.children for node in self.nodes],
            counts,
            np.array([node.counts_deviation or 0.0 for node in self.nodes]),
        )

    @cached_property
    def values(self) -> np.ndarray:
        """Returns each node's mean of a numeric target, shape (nodes,)."""
        low, high = self._bounds
        result: np.ndarray = low + (high - low) * self.probabilities[:, 1]
        result.flags.writeable = False
        return result

    def intervals(self, level: float = 0.95) -> np.ndarray:
        """Returns bounds of the true mean of each node's rows, shape (nodes, 2).

        They hold it with probability ``level`` or more, by the law of the noise alone, as in
        ``Node.interval``. Where the noise is not known they are the declared bounds. ``values`` may
        lean a little on the parent's; then the bounds are widened to hold them.
        """
        low, high = self._bounds
        shares = np.array([node.share_interval(level) or (0.0, 1.0) for node in self.nodes])
        shares = np.column_stack(
            [np.minimum(shares[:, 0], self.probabilities[:, 1]), np.maximum(shares[:, 1], self.probabilities[:, 1])]
        )
        return low + (high - low) * shares

    @property
    def _bounds(self) -> tuple[float, float]:
        """Returns the ends of a numeric target, to which rows are clamped."""
        column = self.schema.numeric(self.target)
        return column.number(0), column.number(column.cells - 1)

    def apply(self, frame: Frame) -> np.ndarray:
        """Returns the node that answers for each row of a pandas or Arrow table, shape (rows,).

        Nodes are given by their positions in ``nodes``.
        """
        rows = length(frame)
        return self.route(encode_rows(self.schema, self.columns, frame), rows)

    @property
    def columns(self) -> tuple[str, ...]:
        """Returns the columns by which nodes are split."""
        return self._router.columns

    def route(self, codes: Mapping[str, np.ndarray], length: int) -> np.ndarray:
        """Returns what ``apply`` does, for rows whose ``columns`` are encoded already.

        ``miners.fitted.route.encode`` makes the codes.
        """
        router = self._router
        # Row 0 is for leaves: all rows that stop there have bin 0, and stay.
        bins = np.zeros((len(router.columns) + 1, length), dtype=np.int32)
        for position, name in enumerate(router.columns):
            bins[position + 1] = router.bins(name, codes[name])
        reached = np.empty(length, dtype=np.int64)
        for start in range(0, length, ROWS_AT_ONCE):
            reached[start : start + ROWS_AT_ONCE] = router.walk(bins[:, start : start + ROWS_AT_ONCE], self.depth)
        return reached

    def predict_proba(self, frame: Frame) -> np.ndarray:
        """Returns class probabilities, shape (rows, classes), in the order of ``classes``."""
        result: np.ndarray = self.probabilities[self.apply(frame)]
        return result

    def predict(self, frame: Frame) -> np.ndarray:
        """Returns the likeliest class or the mean for each row, shape (rows,).

        In a tie it is the class that is declared first.
        """
        answers = as_array(self.classes)[self.probabilities.argmax(axis=1)] if self.classes else self.values
        result: np.ndarray = answers[self.apply(frame)]
        return result

    def export_text(self, *, max_depth: int | None = None) -> str:
        """Returns the tree as indented text, a line for each node.

        What lies below ``max_depth`` splits is folded away.
        """
        return text(self._sketch(max_depth), repr(self))

    def export_graphviz(self, *, max_depth: int | None = None) -> str:
        """Returns the tree in Graphviz's DOT language, for ``dot -Tsvg`` or ``graphviz.Source``.

        What lies below ``max_depth`` splits is folded away.
        """
        return dot(self._sketch(max_depth))

    def plot(self, ax: Axes | None = None, *, max_depth: int | None = None) -> Axes:
        """Draws the tree from left to right with matplotlib; returns the axes.

        Args:
            ax: Where to draw; by default a new figure that is as large as the tree needs.
            max_depth: Levels of splits to draw; what lies below is folded into its node. None for
                as many as a page can hold, and on an axes of yours as many as can be read there.

        Raises:
            ImportError: matplotlib is not installed.
        """
        return plot(lambda depth: self._sketch(depth, max_ends=MAX_LINES), ax, max_depth)

    def to_frame(self) -> pd.DataFrame:
        """Returns a row for each node, the root first.

        Columns: ``parent`` (-1 of the root), ``depth``, ``condition`` that leads to it, ``split``
        (the column it is split by; None at a leaf), ``rows`` with the ends of their 95 % interval
        (missing where the noise is not known), ``predicts``, and the share of each class, or
        ``low`` and ``high`` of the mean.
        """
        return nodes_frame(self)

    def rules(self) -> pd.DataFrame:
        """Returns a rule for each leaf, that of most rows first; the index is the leaf's node.

        Columns: ``rule`` ("age >= 30 and sex = Male"), then those of ``to_frame``.
        """
        return rules_frame(self)

    @cached_property
    def importances(self) -> dict[str, float]:
        """Returns how much each column's splits tell apart, as shares of 1."""
        return importances_of(self)

    def to_arrays(self) -> TreeArrays:
        """Returns the tree as plain numpy arrays, enough to predict with a few lines of numpy.

        See ``miners.fitted.tree_arrays.TreeArrays``.
        """
        value = self.probabilities if self.classes else self.values[:, None]
        return to_arrays(self.schema, self.target, self.classes, self.nodes, value)

    def to_json(self) -> str:
        """Returns the tree as text that ``from_json`` reads back exactly."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def to_dict(self) -> dict[str, Any]:
        """Returns the tree as plain lists, dicts, texts and numbers."""
        schema = self.schema.model_dump(mode="json")
        rule = {} if self.shares == "moments" else {"shares": self.shares}
        head = {"format": FORMAT, "version": VERSION, "kind": self.kind, "target": self.target, **rule}
        return {**head, "schema": schema, "nodes": [node_out(n) for n in self.nodes]}

    @classmethod
    def from_json(cls, text: str | bytes) -> Tree:
        """Reads what ``to_json`` wrote. ``QueryError`` unless it is a whole and valid tree."""
        return cls.from_dict(read_json(text))

    @classmethod
    def from_dict(cls, stored: object) -> Tree:
        """Reads what ``to_dict`` wrote. ``QueryError`` unless it is a whole and valid tree."""
        if not isinstance(stored, dict) or stored.get("format") != FORMAT:
            raise QueryError(f"this is not a stored tree: its `format` must be {FORMAT!r}.")
        version, kind = stored.get("version"), stored.get("kind")
        if version != VERSION or kind not in KINDS:
            raise QueryError(
                f"this tree is of version {version!r}, kind {kind!r}; "
                f"this release reads version {VERSION}, kind {' or '.join(map(repr, KINDS))}."
            )
        try:
            schema = Schema.model_validate(stored.get("schema"))
        except ValueError as error:
            raise QueryError(f"the stored tree's schema is not valid: {error}") from None
        tree = cls._read(schema, stored.get("target"), stored.get("nodes"), str(stored.get("shares", "moments")))
        if tree.kind != kind:
            raise QueryError(
                f"the stored tree says that it is for {kind}, and its target `{tree.target}` is for {tree.kind}."
            )
        return tree

    def with_nodes(self, nodes: object) -> Tree:
        """Returns a tree under the same schema for the same target, of other nodes.

        The nodes are as ``to_dict`` writes them.
        """
        return self._read(self.schema, self.target, nodes, self.shares)

    @classmethod
    def _read(cls, schema: Schema, target: Any, nodes: object, shares: str) -> Tree:
        """Reads stored nodes; the constructor checks all the rest."""
        if not isinstance(nodes, list):
            raise QueryError("the stored tree has no list of `nodes`.")
        return cls(schema, target, [node_in(index, node) for index, node in enumerate(nodes)], shares=shares)

    def __repr__(self) -> str:
        leaves = f"{self.n_leaves:,} {'leaf' if self.n_leaves == 1 else 'leaves'}"
        text = f"Tree for {self._target}: depth {self.depth}, {leaves}, about {self.nodes[0].rows:,.0f} rows"
        used = list(dict.fromkeys(node.split.column for node in self.nodes if node.split is not None))
        if not used:
            return text
        more = ", ..." if len(used) > NAMED_COLUMNS else ""
        return f"{text}, splits on {', '.join(used[:NAMED_COLUMNS])}{more}"

    def _repr_html_(self) -> str:
        """Returns the tree as a notebook shows it."""
        return html(self._sketch(None, max_ends=MAX_HTML_LINES), repr(self))

    def _sketch(self, max_depth: int | None, *, max_ends: int | None = None) -> Sketch:
        """Returns what every picture shows."""
        return sketch(
            self.schema,
            self._target,
            self.nodes,
            self.probabilities,
            None if self.classes else np.column_stack([self.values, self.intervals()]),
            drowned=self.drowned,
            max_depth=max_depth,
            max_ends=max_ends,
        )

    @cached_property
    def _router(self) -> Router:
        """Returns the router, which is built at the first prediction."""
        return Router(self.schema, self.nodes)


def length(frame: Frame) -> int:
    """Returns the number of rows of a pandas or Arrow table."""
    if not hasattr(frame, "columns") or not hasattr(frame, "__getitem__"):
        raise QueryError(
            f"a pandas or Arrow table with named columns is needed, not {type(frame).__name__}; "
            "pandas.DataFrame(rows, columns=[...]) names them."
        )
    return len(frame)

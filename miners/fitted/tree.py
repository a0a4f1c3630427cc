# SPDX-License-Identifier: Apache-2.0
"""A fitted tree is public data made of noisy answers; all miners that grow trees share it.

Privacy:
    Claim: a tree costs nothing to use, show, store or send. Why: it is computed from a public schema and from
    differentially private answers (post-processing). Its JSON contains only those: no seed, no secret, no row. Held by:
    tests/unit/fitted/test_tree.py.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from miners.budget.plan import rare_classes
from miners.fitted.estimates import (
    class_probabilities,
    counted_probabilities,
    moment_probabilities,
    noise_dominated,
    smoothed_probabilities,
)
from miners.fitted.node import (
    Ends,
    MeanTarget,
    Node,
    Target,
    as_array,
    checked_depths,
    nodes_in,
    nodes_out,
    read_json,
    summed,
    target_of,
)
from miners.fitted.plot import MAX_LINES, plot
from miners.fitted.route import Frame, Router, encode_rows, length
from miners.fitted.sketch import MAX_HTML_LINES, Sketch, dot, html, part_names, sketch, text
from miners.pictures import Axes
from pinq.errors import QueryError
from pinq.language.specs import Axis, Cuts, Groups, Values, bind, two_ends
from pinq.public.checks import many, text_of, whole_number
from pinq.public.schema import Numeric, Schema, Value

if TYPE_CHECKING:
    import pandas as pd


LEAF, NUMERIC, CATEGORICAL = 0, 1, 2


@dataclass(frozen=True, eq=False)
class TreeArrays:
    """The arrays of a fitted tree of n nodes.

    The root is node 0, and each node comes before its children. Ragged rows are stored as in a CSR matrix: those of
    node v lie between ``start[v]`` and ``start[v + 1]``.

    A row at a split node v, with value x in column ``features[feature[v]]``, is in part p:

    - ``kind[v] == NUMERIC``: p = ``np.searchsorted(points[points_start[v]:points_start[v + 1]], x,
      side="right")``;
    - ``kind[v] == CATEGORICAL``: p = ``parts[parts_start[v] + i]`` where x is
      ``categories[feature[v]][i]``; -1 where it is none of them;
    - x is missing: p = ``missing[v]``.

    It goes on to ``children[children_start[v] + p]``, or stops at v where p is -1.

    Attributes:
        features: Every column of the schema but the target.
        categories: The declared values of each feature; None for a numeric one.
        classes: The declared values of the target; none for regression.
        kind: ``LEAF`` (0), ``NUMERIC`` (1) or ``CATEGORICAL`` (2), shape (n,).
        feature: Index into ``features`` of the split of each node, shape (n,); -1 at a leaf.
        children_start: The position of each node's first child in ``children``, shape (n + 1,).
        children: Shape (n - 1,).
        points_start: The position of each node's first point in ``points``, shape (n + 1,).
        points: The smallest double of each part of a numeric split, without the first part. It lies slightly below the
            cut in texts, because ``predict`` accepts numbers that are a rounding error below a grid point.
        parts_start: The position of each node's first category in ``parts``, shape (n + 1,).
        parts: The part of each category; -1 for none.
        missing: The part of a missing value, shape (n,); -1 where such a row stops.
        value: Class probabilities, shape (n, classes), as ``predict_proba`` gives them to rows that stop there; for
            regression means, shape (n, 1); for a tree without counts 1 for the class of a node, else 0.
        n_node_samples: Estimated rows, shape (n,), not whole and at least 0; NaN without counts.
        impurity: Gini impurity of ``value``, shape (n,); NaN for regression, whose spread is not queried,
            and without counts.
    """

    features: tuple[str, ...]
    categories: tuple[tuple[Value, ...] | None, ...]
    classes: tuple[Value, ...]
    kind: np.ndarray
    feature: np.ndarray
    children_start: np.ndarray
    children: np.ndarray
    points_start: np.ndarray
    points: np.ndarray
    parts_start: np.ndarray
    parts: np.ndarray
    missing: np.ndarray
    value: np.ndarray
    n_node_samples: np.ndarray
    impurity: np.ndarray


def _points(column: Numeric, axis: Axis) -> np.ndarray:
    """The smallest double of each part but the first.

    Between a number of the previous part and a number of this part, the search halves the interval until its two ends
    are neighbouring doubles. For a part that begins at 30 on a grid of whole numbers the search ends a rounding error
    below 30.
    """
    thresholds = range(1, column.cells) if axis.thresholds is None else axis.thresholds
    first_codes = np.array([code for code in thresholds if code < column.cells])
    edges = np.array([column.edge(int(code)) for code in first_codes])
    before, within = edges - float(column.width), edges + float(column.width)
    while True:
        middle = before / 2 + within / 2
        is_open = (before < middle) & (middle < within)
        if not is_open.any():
            return within
        in_part = column.codes_of(middle) >= first_codes
        within, before = np.where(is_open & in_part, middle, within), np.where(is_open & ~in_part, middle, before)


def _read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def _ragged(rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Rows [5, 6], [] and [7] become starts [0, 2, 2, 3] and values [5, 6, 7]."""
    return np.concatenate([[0], np.cumsum([len(row) for row in rows])]), np.concatenate(rows)


ALL_ROWS = "all rows"


def stacked(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """The frames of several trees in one, with the tree's number as the first column."""
    import pandas as pd

    tables = list(frames)
    return pd.concat(tables, keys=range(len(tables)), names=["tree"])


def _fractions(gains: Mapping[str, float]) -> dict[str, float]:
    total = sum(gains.values())
    return {column: gain / total for column, gain in gains.items()} if total else {}


def _conditions(tree: Tree) -> list[str]:
    """The test that leads to each node from its parent: ``age < 30``, ``sex = Male``."""
    conditions = [ALL_ROWS] * tree.n_nodes
    for node in tree.nodes:
        for child, condition in zip(node.children, _branches(tree, node), strict=True):
            conditions[child] = condition
    return conditions


def _branches(tree: Tree, node: Node) -> list[str]:
    if node.split is None:
        return []
    verb = {Cuts: "", Values: "= ", Groups: "in "}[type(node.split)]
    texts = [text if text == "missing" else f"{verb}{text}" for _, text in part_names(node, tree.schema)]
    return [f"{node.split.column} {text}" for text in texts]


def _answers(tree: Tree) -> dict[str, np.ndarray]:
    """The prediction of each node, by column name."""
    if not tree.classes:
        numbers = {"predicts": tree.values, **dict(zip(("low", "high"), tree.intervals().T, strict=True))}
        return {name: tree.schema.numeric(tree.target).shown(column) for name, column in numbers.items()}
    predicted = {"predicts": as_array(tree.classes)[tree.answers.argmax(axis=1)]}
    probabilities = {f"share of {text_of(value)}": tree.answers[:, code] for code, value in enumerate(tree.classes)}
    return predicted | (probabilities if tree.is_counted else {})


FORMAT = "pinq-tree"
VERSION = 1
KINDS = ("classification", "regression")
RULES = {
    "open": smoothed_probabilities,
    "counted": counted_probabilities,
    "posterior": class_probabilities,
    "moments": moment_probabilities,
}
TREES_AT_ONCE = 16  # that one router sends rows down
NAMED_COLUMNS = 5  # in a one-line text


def faint_of(trees: Sequence[Tree], copies: int = 1) -> tuple[str, ...]:
    """Warns of classes, or ends of a numeric target, with too few rows for their noise; empty for none.

    A number of rows of at least four deviations of its noise is right within a factor of two in 95 % of cases. The
    predictions of leaves, weighted by their rows, should add up to it within this factor.

    Args:
        trees: All trees of a model.
        copies: The number of trees that have all rows; 1 if each row is in one tree.
    """
    noise = sum(tree.nodes[0].counts_deviation or 0.0 for tree in trees) / len(trees) ** 0.5 / copies
    rows = np.sum([tree.nodes[0].counts for tree in trees], axis=0) / copies
    predicted = np.sum(
        [np.array([tree.nodes[leaf].rows for leaf in tree.leaves]) @ tree.probabilities[tree.leaves] for tree in trees],
        axis=0,
    )
    few = rows < 4 * noise
    inconsistent = ~few & ((predicted < rows * copies / 2) | (predicted > 2 * rows * copies)) & (noise > 0)
    target, classes = trees[0].target, trees[0].classes
    hidden = (
        f"the mean of `{target}` can hardly be distinguished from an end of its range. The range is too wide, or the "
        "rows are too few, for this epsilon, and predictions may be far off; narrower bounds, or a larger `epsilon`, "
        "are needed."
    )
    blurred = (
        f"noise in the leaves hides `{target}`: what they predict does not add up to the rows of the whole table "
        "within a factor of two; take fewer or shallower trees, or a larger `epsilon`."
    )
    rare = rare_classes(target, classes, rows, noise, few) if classes else hidden
    return tuple(doubt for doubt, weak in ((rare, few), (blurred, inconsistent)) if weak.any())


class Tree:
    """A decision tree that predicts the classes of a categorical target, or the mean of a numeric one.

    A row follows a path down from the root. It stops at a node if its value there is missing (and the column declares
    no missing values), is not declared, or is in no branch. The last node that it reaches makes the prediction.

    Args:
        schema: The public schema under which the tree was grown.
        target: The column that is predicted.
        nodes: The nodes; the root first, each node before its children.
        rule: The rule from noisy counts to class probabilities: ``"open"`` for classes,
            ``"counted"`` for classes in a tree of a forest, ``"posterior"`` for the two ends of a
            numeric target. Stored trees of classes may have the older rules ``"posterior"`` and
            ``"moments"``. None for the first or the third.
        within: The range to which a numeric target was clamped and whose ends nodes count; None for
            its bounds.

    Attributes:
        classes: The declared values of the target, in the order of the counts; empty for a numeric
            target, whose nodes count its two ends.

    Raises:
        QueryError: The nodes are not a tree under this schema.

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import DiffPC45, Tree
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=1)
        >>> tree = DiffPC45(epsilon=1, max_depth=2).fit(handle, "income").tree_
        >>> tree.depth <= 2, tree.predict(rows.head(3)).shape
        (True, (3,))
        >>> Tree.from_json(tree.to_json()) == tree
        True
    """

    kept_as: ClassVar[str] = "tree"  # the attribute of a miner that holds it, without its underscore

    def __init__(
        self, schema: Schema, target: str, nodes: Sequence[Node], *, rule: str | None = None, within: Ends = None
    ) -> None:
        if rule is not None and rule not in RULES:
            raise QueryError(f"the tree's `rule` is {rule!r}; it must be {', '.join(map(repr, RULES))}.")
        self.schema = schema
        self.target = target
        self.within = two_ends(within)
        self.rule = rule or ("open" if self._target.classes else "posterior")
        self.nodes = summed(tuple(nodes), self._target.n_counts)
        self.depths = checked_depths(schema, self._target, self.nodes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tree):
            return NotImplemented
        return (self.target, self.nodes, self.rule, self.within, self.schema) == (
            other.target,
            other.nodes,
            other.rule,
            other.within,
            other.schema,
        )

    def __hash__(self) -> int:
        return hash((self.target, self.nodes))

    @cached_property
    def _target(self) -> Target:
        return target_of(self.schema, self.target, self.within)

    @property
    def classes(self) -> tuple[Value, ...]:
        return self._target.classes

    @property
    def n_nodes(self) -> int:
        return len(self.nodes)

    @property
    def leaves(self) -> list[int]:
        return [position for position, node in enumerate(self.nodes) if node.is_leaf]

    @property
    def n_leaves(self) -> int:
        return len(self.leaves)

    @property
    def depth(self) -> int:
        """Returns the number of splits above the deepest leaf."""
        return max(self.depths)

    @property
    def kind(self) -> str:
        return self._target.kind

    @property
    def is_counted(self) -> bool:
        """Whether nodes have counts; secure trees reveal only the class of each leaf."""
        return self.nodes[0].label is None

    @cached_property
    def answers(self) -> np.ndarray:
        """The ``probabilities``; for a tree without counts 1 for each node's class, else 0."""
        if self.is_counted:
            return self.probabilities
        return np.eye(len(self.classes))[[cast("int", node.label) for node in self.nodes]]

    @cached_property
    def probabilities(self) -> np.ndarray:
        """Each node's class probabilities, shape (nodes, classes); rows add up to 1.

        For a numeric target they are the weights of its two ends, which ``values`` averages.

        They are shrunk towards the parent's by the known noise (``miners.fitted.estimates.smoothed_probabilities``).

        Raises:
            QueryError: The tree has no counts.
        """
        if not self.is_counted:
            raise QueryError(
                "this tree has neither probabilities nor importances: its parties opened the class of each leaf "
                "alone, and no count of rows. `predict`, `score`, `to_frame` and the pictures show what was opened."
            )
        return _read_only(RULES[self.rule](*self._counted))

    @cached_property
    def noise_dominated(self) -> np.ndarray:
        """The nodes that predict as their parent does, shape (nodes,)."""
        return _read_only(noise_dominated(*self._counted) & (self.rule != "moments") & self.is_counted)

    @property
    def _counted(self) -> tuple[list[tuple[int, ...]], np.ndarray, np.ndarray]:
        """Children, counts and the deviation of their noise, 0 if it is ignored."""
        counts = np.array([node.counts for node in self.nodes], dtype=np.float64)
        return (
            [node.children for node in self.nodes],
            counts,
            np.array([(self.rule != "counted" and node.counts_deviation) or 0.0 for node in self.nodes]),
        )

    @cached_property
    def values(self) -> np.ndarray:
        """Each node's mean of a numeric target, shape (nodes,)."""
        low, high = self._bounds
        return _read_only(low + (high - low) * self.probabilities[:, 1])

    def intervals(self, level: float = 0.95) -> np.ndarray:
        """Bounds of the true mean of each node's rows, shape (nodes, 2).

        They contain it with probability ``level`` or more, by the distribution of the noise alone, and contain
        ``values``. If the noise is unknown they are the declared bounds.
        """
        low, high = self._bounds
        below, above = np.array([node.share_interval(level) or (0.0, 1.0) for node in self.nodes]).T
        best = self.probabilities[:, 1]
        return low + (high - low) * np.column_stack([np.minimum(below, best), np.maximum(above, best)])

    @property
    def _bounds(self) -> tuple[float, float]:
        self.schema.numeric(self.target)
        return cast("MeanTarget", self._target).ends

    def apply(self, frame: Frame) -> np.ndarray:
        """The node that predicts each row of a pandas or Arrow table, by its position in ``nodes``, shape (rows,)."""
        rows = length(frame)
        codes, reached = encode_rows(self.schema, self._router.columns, frame), np.empty(rows, dtype=np.int64)
        for block, (nodes,) in self._router.reached(codes, rows):
            reached[block] = nodes
        return reached

    def predict_proba(self, frame: Frame) -> np.ndarray:
        """Class probabilities, shape (rows, classes), in the order of ``classes``."""
        return np.asarray(self.probabilities[self.apply(frame)])

    def predict(self, frame: Frame) -> np.ndarray:
        """The likeliest class or the mean for each row, shape (rows,); in a tie the class that is declared first."""
        answers = as_array(self.classes)[self.answers.argmax(axis=1)] if self.classes else self.values
        return np.asarray(answers[self.apply(frame)])

    def export_text(self, *, max_depth: int | None = None) -> str:
        """The tree as indented text, a line for each node at most ``max_depth`` splits deep."""
        return text(self._sketch(max_depth), repr(self))

    def export_graphviz(self, *, max_depth: int | None = None) -> str:
        """The tree in Graphviz's DOT language, for ``dot -Tsvg`` or ``Source``, down to ``max_depth`` splits."""
        return dot(self._sketch(max_depth))

    def plot(self, ax: Axes | None = None, *, max_depth: int | None = None) -> Axes:
        """Draws the tree from left to right with matplotlib; returns the axes.

        Args:
            ax: The axes; by default a new figure of the size that the tree needs.
            max_depth: Levels of splits to draw; None for as many as fit on a page, or on your axes.

        Raises:
            ImportError: matplotlib is not installed.
        """
        return plot(lambda depth: self._sketch(depth, max_ends=MAX_LINES), ax, max_depth)

    def to_frame(self) -> pd.DataFrame:
        """A row for each node, the root first.

        Columns: ``parent`` (-1 of the root), ``depth``, ``condition`` that leads to it, ``split``
        (the column that splits it; None at a leaf), ``rows`` with the ends of their 95 % interval
        (missing if the noise is not known), ``predicts``, and the probability of each class, or
        ``low`` and ``high`` of the mean. A tree without counts has neither rows nor probabilities.
        """
        import pandas as pd

        parents = np.full(self.n_nodes, -1)
        for number, node in enumerate(self.nodes):
            parents[list(node.children)] = number
        intervals = [node.interval() or (np.nan, np.nan) for node in self.nodes]
        return pd.DataFrame(
            {
                "parent": parents,
                "depth": self.depths,
                "condition": _conditions(self),
                "split": [None if node.split is None else node.split.column for node in self.nodes],
                "rows": [node.rows for node in self.nodes],
                "rows_low": [low for low, _ in intervals],
                "rows_high": [high for _, high in intervals],
                **_answers(self),
            },
            index=pd.RangeIndex(self.n_nodes, name="node"),
        )

    def rules(self) -> pd.DataFrame:
        """A rule for each leaf, in descending order of rows; the index is the leaf's node.

        Columns: ``rule`` ("age >= 30 and sex = Male"), then those of ``to_frame``.
        """
        nodes = self.to_frame()
        paths = [""] * len(nodes)
        for number, (parent, condition) in enumerate(zip(nodes["parent"], nodes["condition"], strict=True)):
            above = paths[parent] if parent > 0 else ""
            paths[number] = f"{above} and {condition}" if above else condition
        leaves = nodes[nodes["split"].isna()].drop(columns=["parent", "depth", "condition", "split"])
        leaves.insert(0, "rule", [paths[number] for number in leaves.index])
        return leaves.sort_values("rows", ascending=False, kind="stable")

    @cached_property
    def importances(self) -> dict[str, float]:
        """The importance of each column, with sum 1; empty without a split.

        The importance of a split is the number of rows below it times the spread of its children's answers around their
        mean. For classes that is the decrease of the Gini impurity (Breiman et al. 1984, sec. 5.3), for means that of
        the squared error, in estimated rows.
        """
        gains: defaultdict[str, float] = defaultdict(float)
        for node in self.nodes:
            if node.split is None:
                continue
            rows = np.array([self.nodes[child].rows for child in node.children])
            answers = self.probabilities[list(node.children)]
            mean = rows @ answers / (rows.sum() or 1.0)
            gains[node.split.column] += float(rows @ ((answers - mean) ** 2).sum(axis=1))
        return _fractions(gains)

    def to_arrays(self) -> TreeArrays:
        """The tree as plain numpy arrays, enough to predict with a few lines of numpy; see ``TreeArrays``."""
        nodes, value = self.nodes, self.answers if self.classes else self.values[:, None]
        features = tuple(name for name in self.schema.columns if name != self.target)
        declared = self.schema.categorical_columns
        axes = [None if node.split is None else bind(node.split, self.schema).axes[0] for node in nodes]
        kind, feature, missing = (np.full(len(nodes), default) for default in (LEAF, -1, -1))
        points: list[np.ndarray] = [np.zeros(0)] * len(nodes)
        parts: list[np.ndarray] = [np.zeros(0, dtype=np.int64)] * len(nodes)
        for index, axis in enumerate(axes):
            if axis is None:
                continue
            feature[index] = features.index(str(axis.column))
            name = features[feature[index]]
            column, numeric = self.schema.columns[name], self.schema.numeric_columns.get(name)
            if column.null_code is not None:
                missing[index] = axis.parts_of(np.array([column.null_code]))[0]
            # `age`, cut at 30 and 45, has two points, a rounding error below each; `sex`, split by its
            # values, has the parts 0 and 1 of its two categories.
            if numeric is not None:
                kind[index], points[index] = NUMERIC, _points(numeric, axis)
            else:
                kind[index], parts[index] = CATEGORICAL, axis.parts_of(np.arange(column.cells))
        children_start, children = _ragged([np.array(node.children, dtype=np.int64) for node in nodes])
        points_start, all_points = _ragged(points)
        parts_start, all_parts = _ragged(parts)
        return TreeArrays(
            features=features,
            categories=tuple(declared[name].values if name in declared else None for name in features),
            classes=self.classes,
            kind=kind,
            feature=feature,
            children_start=children_start,
            children=children,
            points_start=points_start,
            points=all_points,
            parts_start=parts_start,
            parts=all_parts,
            missing=missing,
            value=np.array(value),
            n_node_samples=np.array([node.rows for node in nodes]),
            impurity=1 - np.square(value).sum(axis=1)
            if self.classes and self.is_counted
            else np.full(len(nodes), np.nan),
        )

    def to_json(self) -> str:
        """The tree as text that ``from_json`` reads back exactly."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def to_dict(self) -> dict[str, Any]:
        schema = self.schema.model_dump(mode="json")
        stored: dict[str, Any] = {} if self.rule == "moments" else {"shares": self.rule}
        stored |= {} if self.within is None else {"within": list(self.within)}
        head = {"format": FORMAT, "version": VERSION, "kind": self.kind, "target": self.target, **stored}
        return {**head, "schema": schema, "nodes": nodes_out(self.nodes)}

    @classmethod
    def from_json(cls, text: str | bytes) -> Tree:
        """Reads a result of ``to_json``; raises ``QueryError`` unless it is a whole and valid tree."""
        return cls.from_dict(read_json(text))

    @classmethod
    def from_dict(cls, stored: object) -> Tree:
        """Reads a result of ``to_dict``; raises ``QueryError`` unless it is a whole and valid tree."""
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
        rule = str(stored.get("shares", "moments"))
        tree = cls._read(schema, stored.get("target"), stored.get("nodes"), rule, stored.get("within"))
        if tree.kind != kind:
            raise QueryError(
                f"the stored tree says that it is for {kind}, and its target `{tree.target}` is for {tree.kind}."
            )
        return tree

    @classmethod
    def _read(cls, schema: Schema, target: Any, nodes: object, rule: str, within: Any) -> Tree:
        return cls(schema, target, nodes_in(nodes), rule=rule, within=within)

    def __repr__(self) -> str:
        rows = f"about {many(round(self.nodes[0].rows), 'row')}" if self.is_counted else "classes without counts"
        text = f"Tree for {self._target}: depth {self.depth}, {many(self.n_leaves, 'leaf', 'leaves')}, {rows}"
        used = list(dict.fromkeys(node.split.column for node in self.nodes if node.split is not None))
        if not used:
            return text
        more = ", ..." if len(used) > NAMED_COLUMNS else ""
        return f"{text}, splits on {', '.join(used[:NAMED_COLUMNS])}{more}"

    def _repr_html_(self) -> str:
        return html(self._sketch(None, max_ends=MAX_HTML_LINES), repr(self))

    def _sketch(self, max_depth: int | None, *, max_ends: int | None = None) -> Sketch:
        return sketch(
            self.schema,
            self._target,
            self.nodes,
            self.depths,
            self.answers,
            None if self.classes else np.column_stack([self.values, self.intervals()]),
            noise_dominated=self.noise_dominated,
            max_depth=max_depth,
            max_ends=max_ends,
        )

    @cached_property
    def _router(self) -> Router:
        """The router, which is built at the first prediction."""
        return Router(self.schema, [self.nodes], self.depth)


FOREST_FORMAT = "pinq-forest"


class Forest:
    """A forest of trees that predict together.

    Class probabilities and means are averaged over trees with equal weights.

    Args:
        trees: The trees, at least one; all with the same schema and target.

    Attributes:
        classes: The declared values of the target; empty for a numeric target.

    Raises:
        QueryError: There is no tree, or schemas or targets of trees differ.

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import DiPriMeForestClassifier, Forest
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=1)
        >>> forest = DiPriMeForestClassifier(epsilon=1, n_estimators=3).fit(handle, "income").forest_
        >>> len(forest.trees), forest.predict_proba(rows.head(3)).shape
        (3, (3, 2))
        >>> Forest.from_json(forest.to_json()) == forest
        True
    """

    kept_as: ClassVar[str] = "forest"  # the attribute of a miner that holds it, without its underscore

    def __init__(self, trees: Sequence[Tree]) -> None:
        self.trees = tuple(trees)
        if not self.trees:
            raise QueryError("a forest needs at least one tree.")
        self.schema: Schema = self.trees[0].schema
        self.target: str = self.trees[0].target
        self.classes: tuple[Value, ...] = self.trees[0].classes
        common = (self.target, self.trees[0].within, self.schema)
        if any((tree.target, tree.within, tree.schema) != common for tree in self.trees):
            raise QueryError("the trees of a forest must have one schema and one target, within one range.")

    def __eq__(self, other: object) -> bool:
        return self.trees == other.trees if isinstance(other, Forest) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.trees)

    def __len__(self) -> int:
        return len(self.trees)

    @property
    def n_leaves(self) -> int:
        return sum(tree.n_leaves for tree in self.trees)

    @property
    def depth(self) -> int:
        return max(tree.depth for tree in self.trees)

    @cached_property
    def usage(self) -> dict[str, float]:
        """The share of all splits of each column, the most used column first."""
        splits = [node.split for tree in self.trees for node in tree.nodes]
        used = Counter(split.column for split in splits if split is not None)
        return {column: count / used.total() for column, count in used.most_common()}

    @cached_property
    def importances(self) -> dict[str, float]:
        """The importance of each column, with sum 1; all trees have equal weight."""
        together: defaultdict[str, float] = defaultdict(float)
        for tree in self.trees:
            for column, share in tree.importances.items():
                together[column] += share
        return _fractions(together)

    def to_frame(self) -> pd.DataFrame:
        return stacked(tree.to_frame() for tree in self.trees)

    def rules(self) -> pd.DataFrame:
        return stacked(tree.rules() for tree in self.trees)

    def tree(self, number: int) -> Tree:
        """One of its trees; raises ``QueryError`` if there is no tree of this number."""
        return self.trees[whole_number("tree", number, 0, len(self.trees) - 1)]

    def predict_proba(self, frame: Frame) -> np.ndarray:
        """Class probabilities, shape (rows, classes), for the rows of a pandas or Arrow table."""
        return self._average(frame, [tree.probabilities for tree in self.trees])

    def predict(self, frame: Frame) -> np.ndarray:
        """The likeliest class or the mean for each row, shape (rows,); in a tie the class that is declared first."""
        if not self.classes:
            return self._average(frame, [tree.values for tree in self.trees])
        return np.asarray(as_array(self.classes)[self.predict_proba(frame).argmax(axis=1)])

    def _average(self, frame: Frame, answers: Sequence[np.ndarray]) -> np.ndarray:
        """The mean over the trees of the answer at each row's node."""
        rows = length(frame)
        codes = encode_rows(
            self.schema, dict.fromkeys(name for node_answers in self._routers for name in node_answers.columns), frame
        )
        # Two trees that give a row shares of .9 and .6: .75.
        result = np.zeros((rows, *answers[0].shape[1:]))
        for router, first in zip(self._routers, range(0, len(answers), TREES_AT_ONCE), strict=True):
            node_answers = np.concatenate(answers[first : first + TREES_AT_ONCE])
            for block, reached in router.reached(codes, rows):
                for nodes in reached:
                    result[block] += node_answers.take(nodes, axis=0)
        return result / len(self.trees)

    @cached_property
    def _routers(self) -> list[Router]:
        """A router for each few trees, because the tables of all trees grow with each tree."""
        some = [self.trees[first : first + TREES_AT_ONCE] for first in range(0, len(self.trees), TREES_AT_ONCE)]
        return [
            Router(self.schema, [tree.nodes for tree in group], max(tree.depth for tree in group)) for group in some
        ]

    def export_text(self, *, max_depth: int | None = None) -> str:
        return "\n\n".join([repr(self), *(tree.export_text(max_depth=max_depth) for tree in self.trees)])

    def export_graphviz(self, *, tree: int = 0, max_depth: int | None = None) -> str:
        """One tree in Graphviz's DOT language; see ``Tree.export_graphviz``."""
        return self.tree(tree).export_graphviz(max_depth=max_depth)

    def plot(self, ax: Axes | None = None, *, tree: int = 0, max_depth: int | None = None) -> Axes:
        return self.tree(tree).plot(ax, max_depth=max_depth)

    def to_json(self) -> str:
        """The forest as text that ``from_json`` reads back exactly."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def to_dict(self) -> dict[str, Any]:
        """The forest as plain values; common parts of the trees are written once."""
        common = {
            key: value for key, value in self.trees[0].to_dict().items() if key not in ("format", "version", "nodes")
        }
        return {
            "format": FOREST_FORMAT,
            "version": VERSION,
            **common,
            "trees": [tree.to_dict()["nodes"] for tree in self.trees],
        }

    @classmethod
    def from_json(cls, text: str | bytes) -> Forest:
        """Reads a result of ``to_json``; raises ``QueryError`` unless it is a whole and valid forest."""
        return cls.from_dict(read_json(text))

    @classmethod
    def from_dict(cls, stored: object) -> Forest:
        """Reads a result of ``to_dict``; raises ``QueryError`` unless it is a whole and valid forest."""
        if not isinstance(stored, dict) or stored.get("format") != FOREST_FORMAT or stored.get("version") != VERSION:
            raise QueryError(
                f"this is not a stored forest: its `format` must be {FOREST_FORMAT!r} and its `version` {VERSION}."
            )
        trees = stored.get("trees")
        if not isinstance(trees, list):
            raise QueryError("the stored forest has no list of `trees`.")
        first = Tree.from_dict({**stored, "format": "pinq-tree", "nodes": trees[0] if trees else None})
        rest = [Tree._read(first.schema, first.target, nodes, first.rule, first.within) for nodes in trees[1:]]
        return cls([first, *rest])

    def __repr__(self) -> str:
        size = f"{many(len(self.trees), 'tree')}, {many(self.n_leaves, 'leaf', 'leaves')}"
        target = target_of(self.schema, self.target, self.trees[0].within)
        text = f"Forest for {target}: depth {self.depth}, {size}"
        if not self.usage:
            return text
        columns = [f"{column} {share:.0%}" for column, share in list(self.usage.items())[:NAMED_COLUMNS]]
        more = ", ..." if len(self.usage) > NAMED_COLUMNS else ""
        return f"{text}; splits by {', '.join(columns)}{more}"

    def _repr_html_(self) -> str:
        first = f"<details><summary>its first tree</summary>{self.trees[0]._repr_html_()}</details>"
        return f"<p>{escape(repr(self))}</p>{first}"

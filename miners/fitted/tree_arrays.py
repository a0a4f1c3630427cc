# SPDX-License-Identifier: Apache-2.0
"""This module lays a fitted tree out as plain numpy arrays, like scikit-learn's ``tree_``.

They serve tools that want no objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from miners.fitted.node import Node
from pinq.public.schema import Numeric, Schema, Value
from pinq.public.specs import Axis, bind

__all__ = ["CATEGORICAL", "LEAF", "NUMERIC", "BinaryArrays", "TreeArrays", "to_arrays"]

LEAF, NUMERIC, CATEGORICAL = 0, 1, 2


@dataclass(frozen=True, eq=False)
class BinaryArrays:
    """A tree whose splits all have two parts, as scikit-learn lays such trees out.

    A number goes left where ``x <= threshold``, a category where ``goes_left``. A row stops where
    its value is missing, or is a category in neither group.

    Attributes:
        children_left: Shape (nodes,); -1 at a leaf.
        children_right: Shape (nodes,); -1 at a leaf.
        threshold: Of a numeric split, the largest number that goes left, shape (nodes,); NaN
            elsewhere.
        goes_left: Which categories go left, shape (nodes, most categories of a column + 1), the
            missing value in the column behind the last category.
        goes_right: Which go right; the same shape.
    """

    children_left: np.ndarray
    children_right: np.ndarray
    threshold: np.ndarray
    goes_left: np.ndarray
    goes_right: np.ndarray


@dataclass(frozen=True, eq=False)
class TreeArrays:
    """The arrays of a fitted tree of n nodes.

    The root is node 0, and each node comes before its children. Ragged rows stand one behind
    another, as in a CSR matrix: those of node v lie between ``start[v]`` and ``start[v + 1]``.

    A row at a split node v, with value x in column ``features[feature[v]]``, is in part p:

    - ``kind[v] == NUMERIC``: p = ``np.searchsorted(points[points_start[v]:points_start[v + 1]], x,
      side="right")``;
    - ``kind[v] == CATEGORICAL``: p = ``parts[parts_start[v] + i]`` where x is
      ``categories[feature[v]][i]``; -1 where it is none of them;
    - x is missing: p = ``missing[v]``.

    It goes on to ``children[children_start[v] + p]``, or stops at v where p is -1.

    Attributes:
        features: Every column of the schema but the target.
        categories: For each feature its declared values; None for a numeric one.
        classes: The declared values of the target; none for regression.
        kind: ``LEAF`` (0), ``NUMERIC`` (1) or ``CATEGORICAL`` (2), shape (n,).
        feature: Which of ``features`` a node is split by, shape (n,); -1 at a leaf.
        children_start: Where each node's children begin in ``children``, shape (n + 1,).
        children: Shape (n - 1,).
        points_start: Where each node's points begin in ``points``, shape (n + 1,).
        points: The smallest double of each part of a numeric split, without the first part. It
            lies slightly below the cut that texts show, because ``predict`` forgives numbers that
            are a rounding error short of a grid point.
        parts_start: Where each node's categories begin in ``parts``, shape (n + 1,).
        parts: Which part each category belongs to; -1 for none.
        missing: Which part a missing value belongs to, shape (n,); -1 where such a row stops.
        value: Class probabilities, shape (n, classes), as ``predict_proba`` gives them to rows that
            stop there; for regression means, shape (n, 1).
        n_node_samples: Estimated rows, shape (n,), not whole and at least 0.
        impurity: Gini impurity of ``value``, shape (n,); NaN for regression, where no spread was
            asked.
        binary: The same tree in the form of scikit-learn's; None unless all splits have two parts.
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
    binary: BinaryArrays | None


def to_arrays(
    schema: Schema, target: str, classes: tuple[Value, ...], nodes: Sequence[Node], value: np.ndarray
) -> TreeArrays:
    """Lays a tree out as arrays; see ``Tree.to_arrays``."""
    features = tuple(name for name in schema.columns if name != target)
    declared = schema.categorical_columns
    axes = [None if node.split is None else bind(node.split, schema).axes[0] for node in nodes]
    kind, feature, missing = (np.full(len(nodes), default) for default in (LEAF, -1, -1))
    points: list[np.ndarray] = [np.zeros(0)] * len(nodes)
    parts: list[np.ndarray] = [np.zeros(0, dtype=np.int64)] * len(nodes)
    for index, axis in enumerate(axes):
        if axis is None:
            continue
        feature[index] = features.index(str(axis.column))
        name = features[feature[index]]
        column, numeric = schema.columns[name], schema.numeric_columns.get(name)
        if column.null_code is not None:
            missing[index] = axis.parts_of(np.array([column.null_code]))[0]
        # `age`, cut at 30 and 45, has two points, a rounding error below each; `sex`, split by its
        # values, has the parts 0 and 1 of its two categories.
        if numeric is not None:
            kind[index], points[index] = NUMERIC, _points(numeric, axis)
        else:
            kind[index], parts[index] = CATEGORICAL, axis.parts_of(np.arange(column.cells))
    is_binary = all(len(node.children) in (0, 2) for node in nodes)
    children_start, children = _ragged([np.array(node.children, dtype=np.int64) for node in nodes])
    points_start, all_points = _ragged(points)
    parts_start, all_parts = _ragged(parts)
    return TreeArrays(
        features=features,
        categories=tuple(declared[name].values if name in declared else None for name in features),
        classes=classes,
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
        impurity=1 - np.square(value).sum(axis=1) if classes else np.full(len(nodes), np.nan),
        binary=_binary(nodes, points, parts, missing) if is_binary else None,
    )


def _points(column: Numeric, axis: Axis) -> np.ndarray:
    """Returns the smallest double of each part but the first.

    Between a number of the part before and a number of the part itself the search halves the
    interval until its two ends are neighbouring doubles. For example, a part that begins at 30 on
    a grid of whole numbers starts from 29 and 31, and ends a rounding error below 30.
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


def _binary(
    nodes: Sequence[Node], points: list[np.ndarray], parts: list[np.ndarray], missing: np.ndarray
) -> BinaryArrays:
    """Returns the arrays of a tree whose splits all have two parts."""
    children = np.array([node.children or (-1, -1) for node in nodes])
    # One mask for each side; the last column stands for the missing value.
    # Three categories of which 0 and 2 go left, missing right: 1 0 1 0 and 0 1 0 1.
    masks = np.zeros((2, len(nodes), max(len(row) for row in parts) + 1), dtype=bool)
    for index, row in enumerate(parts):
        for side in range(2):
            masks[side, index, : len(row)] = row == side
            masks[side, index, -1] = missing[index] == side
    # scikit-learn sends x <= threshold left, so the threshold is the double before the point.
    threshold = np.array([np.nextafter(row[0], -np.inf) if len(row) else np.nan for row in points])
    return BinaryArrays(children[:, 0], children[:, 1], threshold, masks[0], masks[1])


def _ragged(rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Returns where each row begins, and all rows one behind another.

    Rows [5, 6], [] and [7] become starts [0, 2, 2, 3] and values [5, 6, 7].
    """
    return np.concatenate([[0], np.cumsum([len(row) for row in rows])]), np.concatenate(rows)

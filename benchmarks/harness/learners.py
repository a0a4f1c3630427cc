# SPDX-License-Identifier: Apache-2.0
"""Learners: the algorithms that are compared, each a function from rows and an epsilon to an accuracy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.tree import DecisionTreeClassifier

from miners import Federation
from miners.fitted.route import encode
from miners.growth.fitted_nodes import worth_keeping
from pinq.analyst.queryable import PrivateQueryable
from pinq.public.schema import Schema
from pinq_secure import SecureFederation

__all__ = ["CRITERIA", "Learner", "Rows", "exact_tree", "features", "private"]

CRITERIA = {"Max": "max", "Gini": "gini", "InfoGain": "info_gain"}
Table: TypeAlias = pa.Table | pd.DataFrame


@dataclass(frozen=True)
class Rows:
    """A training set, a test set, and a handle on the training set or on its owners, with budget for all fits."""

    schema: Schema
    target: str
    handle: PrivateQueryable | Federation | SecureFederation
    train: Table
    test: Table


Learner = Callable[[Rows, float], float]


def private(miner: type, **params: object) -> Learner:
    """Returns a miner of this project as a learner."""
    return partial(_private, miner, params)


def _private(miner: type, params: dict[str, object], rows: Rows, epsilon: float) -> float:
    return float(miner(epsilon=epsilon, **params).fit(rows.handle, rows.target).score(rows.test))


def features(rows: Rows, table: Table) -> np.ndarray:
    """Returns the codes of all attributes, shape (rows, attributes)."""
    names = [name for name in rows.schema.columns if name != rows.target]
    return np.column_stack([encode(rows.schema, name, table) for name in names])


def exact_tree(*, pruned: bool, max_depth: int | None = None) -> Learner:
    """Returns the learner without privacy: splits by information gain on the exact rows.

    Args:
        pruned: Whether splits are removed that C4.5's rule does not keep.
        max_depth: The largest depth; None for no limit.
    """
    return partial(_exact, pruned, max_depth)


def _exact(pruned: bool, max_depth: int | None, rows: Rows, _: float) -> float:
    classes, truth = (encode(rows.schema, rows.target, table) for table in (rows.train, rows.test))
    model = DecisionTreeClassifier(criterion="entropy", max_depth=max_depth, random_state=0)
    model.fit(features(rows, rows.train), classes)
    nodes, tree = model.apply(features(rows, rows.test)), model.tree_
    counts = tree.value[:, 0, :] * tree.n_node_samples[:, None]
    if pruned:
        pairs = zip(tree.children_left, tree.children_right, strict=True)
        children = [() if left < 0 else (left, right) for left, right in pairs]
        nodes = _stopped(children, worth_keeping(children, counts, 0.25))[nodes]
    return float(np.mean(model.classes_[counts.argmax(axis=1)[nodes]] == truth))


def _stopped(children: Sequence[tuple[int, ...]], keeps: np.ndarray) -> np.ndarray:
    """Returns for each node the node at which its rows stop, if splits without ``keeps`` are removed.

    Parents come before children. If node 0 keeps its split and its child 2 does not, rows of the
    children 5 and 6 of node 2, and of all nodes below them, stop at node 2.
    """
    stop = np.arange(len(children))
    for parent, below in enumerate(children):
        for child in below:
            stop[child] = child if stop[parent] == parent and keeps[parent] else stop[parent]
    return stop

# SPDX-License-Identifier: Apache-2.0
"""The algorithms that are compared, under the names that tables and pictures give them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.tree import DecisionTreeClassifier

from miners.fitted.route import encode
from miners.growth.pruning import worth_keeping
from pinq.analyst.queryable import PrivateQueryable
from pinq.public.schema import Schema

__all__ = ["CRITERIA", "Learner", "Rows", "exact_tree", "private"]

CRITERIA = {"Max": "max", "Gini": "gini", "InfoGain": "info_gain"}


class Rows:
    """One training set and one test set, and a handle on the former that does not run dry."""

    def __init__(
        self,
        schema: Schema,
        target: str,
        handle: PrivateQueryable,
        train: pa.Table | pd.DataFrame,
        test: pa.Table | pd.DataFrame,
    ) -> None:
        self.schema, self.target, self.handle, self.train, self.test = schema, target, handle, train, test


Learner = Callable[[Rows, float], float]


def private(miner: type[Any], **params: Any) -> Learner:
    """A miner of this project: its test accuracy at an epsilon."""
    return partial(_private, miner, params)


def _private(miner: type[Any], params: dict[str, Any], rows: Rows, epsilon: float) -> float:
    return miner(epsilon=epsilon, **params).fit(rows.handle, rows.target).score(rows.test)


def exact_tree(*, pruned: bool, max_depth: int | None = None) -> Learner:
    """The benchmark without privacy: splits by information gain on the exact rows, as deep as it gets, perhaps pruned by C4.5's rule."""
    return partial(_exact, pruned, max_depth)


def _exact(pruned: bool, max_depth: int | None, rows: Rows, _: float) -> float:
    names = [name for name in rows.schema.columns if name != rows.target]
    features, fresh = (
        np.column_stack([encode(rows.schema, name, table) for name in names]) for table in (rows.train, rows.test)
    )
    classes, truth = (encode(rows.schema, rows.target, table) for table in (rows.train, rows.test))
    grown = DecisionTreeClassifier(criterion="entropy", max_depth=max_depth, random_state=0).fit(features, classes)
    found, tree = grown.apply(fresh), grown.tree_
    counts = tree.value[:, 0, :] * tree.n_node_samples[:, None]
    if pruned:
        children = [
            () if left < 0 else (left, right)
            for left, right in zip(tree.children_left, tree.children_right, strict=True)
        ]
        found = _stopped(children, worth_keeping(children, counts, 0.25))[found]
    return float(np.mean(grown.classes_[counts.argmax(axis=1)[found]] == truth))


def _stopped(children: list[Any], keeps: np.ndarray) -> np.ndarray:
    """For each node the one at which its rows stop when splits that are not kept are gone."""
    stop = np.arange(len(children))
    for place, below in enumerate(children):
        for child in below:
            stop[child] = child if stop[place] == place and keeps[place] else stop[place]
    return stop

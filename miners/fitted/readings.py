# SPDX-License-Identifier: Apache-2.0
"""Trees as tables: a row for each node or each leaf's rule, and how much each column says.

Privacy:
    Claim: all of it is free. Why: it is computed from a fitted tree, which is public.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from miners.fitted.sketch import part_names
from miners.fitted.target import as_array
from pinq.public.checks import text_of
from pinq.public.specs import Cuts, Groups, Values

if TYPE_CHECKING:
    import pandas as pd

    from miners.fitted.node import Node
    from miners.fitted.tree import Tree

__all__ = ["importances_of", "mean_importances", "nodes_frame", "rules_frame", "stacked"]

ALL_ROWS = "all rows"


def nodes_frame(tree: Tree) -> pd.DataFrame:
    """Returns a row for each node; see ``Tree.to_frame``."""
    import pandas as pd

    parents = np.full(tree.n_nodes, -1)
    for number, node in enumerate(tree.nodes):
        parents[list(node.children)] = number
    intervals = [node.interval() or (np.nan, np.nan) for node in tree.nodes]
    frame = pd.DataFrame(
        {
            "parent": parents,
            "depth": tree.depths,
            "condition": _conditions(tree),
            "split": [None if node.split is None else node.split.column for node in tree.nodes],
            "rows": [node.rows for node in tree.nodes],
            "rows_low": [low for low, _ in intervals],
            "rows_high": [high for _, high in intervals],
            **_answers(tree),
        }
    )
    frame.index.name = "node"
    return frame


def rules_frame(tree: Tree) -> pd.DataFrame:
    """Returns a row for each leaf; see ``Tree.rules``."""
    nodes = nodes_frame(tree)
    paths = [""] * len(nodes)
    for number, (parent, condition) in enumerate(zip(nodes["parent"], nodes["condition"], strict=True)):
        # Below the root a rule begins with its first split: "all rows" goes without saying.
        above = paths[parent] if parent > 0 else ""
        paths[number] = f"{above} and {condition}" if above else condition
    leaves = nodes[nodes["split"].isna()].drop(columns=["parent", "depth", "condition", "split"])
    leaves.insert(0, "rule", [paths[number] for number in leaves.index])
    return leaves.sort_values("rows", ascending=False, kind="stable")


def importances_of(tree: Tree) -> dict[str, float]:
    """Returns how much each column's splits tell apart, as shares of 1; nothing without a split.

    A split counts by the rows below it times the spread of its children's answers around their
    mean: with children of 30 and 10 rows whose shares of a class are 0.5 and 0.9, the mean is 0.6
    and the spread of that class 30 x 0.01 + 10 x 0.09. Of classes that is the decrease of the Gini
    impurity (Breiman et al. 1984, sec. 5.3), of means that of the squared error, in estimated rows.
    """
    gains: defaultdict[str, float] = defaultdict(float)
    for node in tree.nodes:
        if node.split is None:
            continue
        rows = np.array([tree.nodes[child].rows for child in node.children])
        answers = tree.probabilities[list(node.children)]
        mean = rows @ answers / (rows.sum() or 1.0)
        gains[node.split.column] += float(rows @ ((answers - mean) ** 2).sum(axis=1))
    return _shares(gains)


def mean_importances(trees: Iterable[Tree]) -> dict[str, float]:
    """Returns the same of several trees, each counting alike."""
    together: defaultdict[str, float] = defaultdict(float)
    for tree in trees:
        for column, share in tree.importances.items():
            together[column] += share
    return _shares(together)


def stacked(frames: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Returns frames of several trees below each other, with the tree's number in front."""
    import pandas as pd

    listed = list(frames)
    return pd.concat(listed, keys=range(len(listed)), names=["tree"])


def _shares(gains: Mapping[str, float]) -> dict[str, float]:
    total = sum(gains.values())
    return {column: gain / total for column, gain in gains.items()} if total else {}


def _conditions(tree: Tree) -> list[str]:
    """Returns what leads to each node from its parent: ``age < 30``, ``sex = Male``."""
    conditions = [ALL_ROWS] * tree.n_nodes
    for node in tree.nodes:
        for child, condition in zip(node.children, _branches(tree, node), strict=True):
            conditions[child] = condition
    return conditions


def _branches(tree: Tree, node: Node) -> list[str]:
    """Returns the conditions of a node's children."""
    if node.split is None:
        return []
    verb = {Cuts: "", Values: "= ", Groups: "in "}[type(node.split)]
    texts = [text if text == "missing" else f"{verb}{text}" for _, text in part_names(node, tree.schema)]
    return [f"{node.split.column} {text}" for text in texts]


def _answers(tree: Tree) -> dict[str, np.ndarray]:
    """Returns what each node predicts, by column name."""
    if not tree.classes:
        low, high = tree.intervals().T
        return {"predicts": tree.values, "low": low, "high": high}
    shares = {f"share of {text_of(value)}": tree.probabilities[:, code] for code, value in enumerate(tree.classes)}
    return {"predicts": as_array(tree.classes)[tree.probabilities.argmax(axis=1)], **shares}

# SPDX-License-Identifier: Apache-2.0
"""Figure 1: how evenly noisy medians and random splits share out the rows of a node."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

import pinq
from benchmarks.harness.datasets import load
from benchmarks.papers.diprime.baselines import DPExtraTrees
from benchmarks.papers.diprime.experiments import DEPTH
from miners import DiPriMeForestClassifier
from miners.fitted.tree import Tree
from pinq.language.specs import Cuts

__all__ = ["figure1"]

N_TREES = 30
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
MEASURES = ("share of rows in the left child", "rows in a leaf")
MAX_ROWS_DRAWN = 1000


def figure1(folder: Path, colors: Mapping[str, str]) -> list[str]:
    """Writes quantiles and histograms of how full nodes are; returns the names of the files."""
    rows = [
        (name, measure, quantile, N_TREES, np.quantile(values, quantile))
        for name, both in occupancy().items()
        for measure, values in zip(MEASURES, both, strict=True)
        for quantile in QUANTILES
    ]
    table = pd.DataFrame(rows, columns=["algorithm", "what", "quantile", "n", "value"])
    table.to_csv(folder / "fig1.csv", index=False, float_format="%.4g")
    _histograms(folder / "fig1.png", colors)
    return ["fig1.csv", "fig1.png"]


@cache
def occupancy() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Returns shares of rows in left children, and rows in leaves, of many trees of both kinds."""
    schema, target, frame = load("robot_navigation")
    size: dict[str, Any] = dict(epsilon=N_TREES, n_estimators=N_TREES, max_depth=DEPTH, rows="all", random_state=0)
    forests: dict[str, DiPriMeForestClassifier | DPExtraTrees] = {
        "DiPriMe, paper": DiPriMeForestClassifier(variant="paper", **size),
        "DP-ERT": DPExtraTrees(**size),
    }
    by_name = {}
    for name, forest in forests.items():
        with pinq.simulate(schema, data=frame, epsilon=N_TREES) as handle:
            trees = forest.fit(handle, target).forest_.trees
        shares, leaves = zip(*(_of_tree(tree, frame) for tree in trees), strict=True)
        by_name[name] = (np.concatenate(shares), np.concatenate(leaves))
    return by_name


def _of_tree(tree: Tree, frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Returns shares of rows in left children, and rows in leaves, of one tree.

    These are exact rows of its nodes, on a table that anybody may see: what trees are like, not
    what they say. Children come after parents, so a sum from the last node up fills all.
    """
    n_rows = np.bincount(tree.apply(frame), minlength=tree.n_nodes).astype(float)
    leaves = [n_rows[index] for index, node in enumerate(tree.nodes) if node.is_leaf]
    for index in range(tree.n_nodes - 1, -1, -1):
        n_rows[index] += n_rows[list(tree.nodes[index].children)].sum()
    shares = [
        n_rows[node.children[0]] / n_rows[index]
        for index, node in enumerate(tree.nodes)
        if isinstance(node.split, Cuts) and n_rows[index] > 0
    ]
    return np.array(shares), np.array(leaves)


def _histograms(path: Path, colors: Mapping[str, str]) -> None:
    fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for name, (shares, leaves) in occupancy().items():
        look = {"alpha": 0.6, "color": colors[name], "label": name}
        left.hist(shares, bins=np.linspace(0, 1, 41), density=True, **look)
        percents = np.full(len(leaves), 100 / len(leaves))
        bins = np.linspace(0, MAX_ROWS_DRAWN, 41)
        right.hist(np.minimum(leaves, MAX_ROWS_DRAWN), bins=bins, weights=percents, **look)
    left.set_xlabel("share of a node's rows in its left child")
    left.set_ylabel("density")
    right.set_xlabel(f"rows in a leaf ({MAX_ROWS_DRAWN:,} or more in the last bar)")
    right.set_ylabel("% of leaves")
    left.legend()
    fig.suptitle(f"Figure 1: {N_TREES} trees of depth {DEPTH} on Robot Navigation, epsilon 1 each", fontsize=10)
    fig.savefig(path, dpi=100, metadata={"Software": None})
    plt.close(fig)

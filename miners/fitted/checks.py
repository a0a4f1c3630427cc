# SPDX-License-Identifier: Apache-2.0
"""These checks refuse nodes that are not one tree under a schema, and fill counts that follow."""

from __future__ import annotations

import math
from dataclasses import replace

from miners.fitted.node import Node
from miners.fitted.target import Target
from pinq.errors import QueryError
from pinq.public.checks import require_kind
from pinq.public.schema import Schema
from pinq.public.specs import Cuts, Groups, Values, bind

__all__ = ["checked_depths", "summed"]


def summed(nodes: tuple[Node, ...], n_counts: int) -> tuple[Node, ...]:
    """Returns the nodes, with missing counts of inner nodes filled by the sums over their children.

    Nodes that are not a tree stay as they are; ``checked_depths`` refuses them.
    """
    filled = list(nodes)
    for index in range(len(nodes) - 1, -1, -1):
        node = nodes[index]
        if node.counts or not node.children:
            continue
        if not all(isinstance(child, int) and index < child < len(nodes) for child in node.children):
            continue
        below = [filled[child].counts for child in node.children]
        if all(len(counts) == n_counts for counts in below):
            # Children of (3, 1) and (2, 4): a parent of (5, 5).
            sums = tuple(math.fsum(column) for column in zip(*below, strict=True))
            filled[index] = replace(node, counts=sums)
    return tuple(filled)


def checked_depths(schema: Schema, target: Target, nodes: tuple[Node, ...]) -> tuple[int, ...]:
    """Returns the depth of each node. ``QueryError`` unless the nodes are one tree."""
    if not nodes:
        raise QueryError("a tree needs at least one node.")
    depths = [0] + [-1] * (len(nodes) - 1)  # -1 until a parent names the node as its child
    for index, node in enumerate(nodes):
        if depths[index] < 0:
            raise QueryError(f"node {index} of the tree is nobody's child.")
        _check_numbers(index, node, target)
        _check_split(index, node, schema, target)
        for child in node.children:
            if not index < child < len(nodes) or depths[child] >= 0:
                raise QueryError(
                    f"node {index} of the tree names {child} as a child, which comes before it, "
                    "has another parent or does not exist."
                )
            depths[child] = depths[index] + 1
    return tuple(depths)


def _check_numbers(index: int, node: Node, target: Target) -> None:
    """Checks the counts of a node and the scales of its noise."""
    if len(node.counts) != target.n_counts:
        raise QueryError(
            f"node {index} of the tree has {len(node.counts)} counts; `{target.name}` {target.requirement}."
        )
    noise = [scale for scale in (node.size_scale, node.counts_scale, node.counts_deviation) if scale is not None]
    if not all(math.isfinite(number) for number in (*node.counts, node.size or 0.0, *noise)):
        raise QueryError(f"node {index} of the tree holds a number that is not finite.")
    if min(noise, default=0.0) < 0:
        raise QueryError(f"node {index} of the tree has negative noise.")


def _check_split(index: int, node: Node, schema: Schema, target: Target) -> None:
    """Checks that a node's split is one of a tree's, and that it has a child for each part."""
    size = 0
    if node.split is not None:

        def wrong() -> str:
            return (
                f"node {index} of the tree is split by {node.split!r}; "
                "Values, Cuts or Groups of a column other than the target is needed."
            )

        require_kind([node.split], (Values, Cuts, Groups), wrong)
        if node.split.column == target.name:
            raise QueryError(wrong())
        size = bind(node.split, schema).size
    if len(node.children) != size:
        raise QueryError(f"node {index} of the tree has {len(node.children)} children; its split makes {size}.")

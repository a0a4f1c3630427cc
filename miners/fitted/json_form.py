# SPDX-License-Identifier: Apache-2.0
"""Nodes as plain lists, dicts, texts and numbers, and back again; whatever is not whole and valid is refused."""

from __future__ import annotations

import json
from typing import Any

from miners.fitted.node import Node, Split
from pinq.errors import QueryError
from pinq.public.specs import Cuts, Groups, Values

__all__ = ["node_in", "node_out", "read_json"]

NOISE = ("size", "size_scale", "counts_scale", "counts_deviation")
SPLITS: dict[str, type[Values] | type[Cuts] | type[Groups]] = {"values": Values, "cuts": Cuts, "groups": Groups}


def read_json(text: str | bytes) -> Any:
    """Parses JSON. ``QueryError`` where it is none."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise QueryError(f"this is not JSON: {error}") from None


def node_out(node: Node) -> dict[str, Any]:
    """A node as JSON has it."""
    out: dict[str, Any] = {"counts": list(node.counts)}
    if node.split is not None:
        spec: dict[str, Any] = {"kind": node.split.kind, "column": node.split.column}
        if isinstance(node.split, Cuts):
            spec["points"] = list(node.split.points)
        elif isinstance(node.split, Groups):
            spec["groups"] = [list(group) for group in node.split.groups]
        out |= {"split": spec, "children": list(node.children)}
    out |= {name: value for name in NOISE if (value := getattr(node, name)) is not None}
    return out


def node_in(place: int, found: Any) -> Node:
    """Reads what ``node_out`` made of the node at ``place``. ``QueryError`` where it is something else."""
    known = {"split", "children", "counts", *NOISE}
    if not isinstance(found, dict) or not set(found) <= known:
        raise QueryError(
            f"node {place} of the stored tree must be an object with no other keys than {', '.join(sorted(known))}."
        )
    children, counts = found.get("children", []), found.get("counts")
    if not isinstance(children, list) or not all(type(child) is int for child in children):
        raise QueryError(f"`children` of node {place} of the stored tree must be a list of whole numbers.")
    if not isinstance(counts, list):
        raise QueryError(f"`counts` of node {place} of the stored tree must be a list of numbers.")
    size, size_scale, counts_scale, counts_deviation = (_number(place, name, found.get(name)) for name in NOISE)
    numbers = tuple(_number(place, "counts", count) for count in counts)
    if any(number is None for number in numbers):
        raise QueryError(f"`counts` of node {place} of the stored tree must be a list of numbers.")
    return Node(
        _split_in(place, found.get("split")), tuple(children), size, size_scale, numbers, counts_scale, counts_deviation
    )  # type: ignore[arg-type]


def _number(place: int, name: str, found: Any) -> float | None:
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, (int, float)) or abs(found) > 1e300:
        raise QueryError(f"`{name}` of node {place} of the stored tree is {str(found)[:40]!r}; it must be a number.")
    return float(found)


def _split_in(place: int, found: Any) -> Split | None:
    if found is None:
        return None
    fields = dict(found) if isinstance(found, dict) else {}
    kind = fields.pop("kind", None)
    spec = SPLITS.get(kind) if isinstance(kind, str) else None
    if spec is None:
        raise QueryError(
            f"the split of node {place} of the stored tree must be an object whose `kind` is one of {', '.join(SPLITS)}."
        )
    try:
        return spec(**fields)
    except TypeError as error:
        raise QueryError(f"the split of node {place} of the stored tree is malformed: {error}") from None

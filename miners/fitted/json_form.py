# SPDX-License-Identifier: Apache-2.0
"""This module turns parameters and nodes into plain lists, dicts, texts and numbers, and back.

It refuses whatever is not whole and valid.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from miners.fitted.node import Node, Split
from pinq.errors import QueryError
from pinq.public.checks import is_number
from pinq.public.epsilon import Epsilon
from pinq.public.specs import Cuts, Groups, Values

if TYPE_CHECKING:
    from miners.parameters import Parameterised

__all__ = ["node_in", "node_out", "param_out", "read_json", "read_stored", "split_in", "split_out"]

NOISE = ("size", "size_scale", "counts_scale", "counts_deviation")
SPLITS: dict[str, type[Values] | type[Cuts] | type[Groups]] = {"values": Values, "cuts": Cuts, "groups": Groups}


def read_json(text: str | bytes) -> object:
    """Parses JSON. ``QueryError`` where the text is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise QueryError(f"this is not JSON: {error}") from None


def read_stored(
    kind: type[Parameterised], text: str | bytes, version: int
) -> tuple[dict[str, Any], dict[str, Any], Fraction]:
    """Returns what every stored miner has: the whole object, its parameters, what it cost.

    Raises:
        QueryError: The text is something else.
    """
    stored, name, known = read_json(text), kind.kept_name(), kind.param_names()
    if not isinstance(stored, dict) or stored.get("format") != f"pinq-{name}" or stored.get("version") != version:
        raise QueryError(
            f"this is not a stored {name}: its `format` must be 'pinq-{name}' and its `version` {version}."
        )
    params = stored.get("params")
    if not isinstance(params, dict) or not set(params) <= set(known):
        raise QueryError(f"`params` of a stored {name} must be an object with no other keys than {', '.join(known)}.")
    try:
        json.dumps(params, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise QueryError(f"`params` of a stored {name} have a value that JSON has not: {error}.") from None
    cost: Any = stored.get("cost")
    # A fit whose questions were all paid for before costs nothing.
    return stored, params, Fraction(0) if cost == "0" else Epsilon.of(cost, name="cost").exact


def param_out(value: object) -> object:
    """Returns a parameter as JSON has it; an exact loss becomes decimal text that means it."""
    match value:
        case Fraction() | Decimal() | Epsilon():
            return str(Epsilon.of(value))
        case np.generic():
            return value.item()
        case Mapping():
            return {str(key): param_out(item) for key, item in value.items()}
        case list() | tuple() | np.ndarray():
            return [param_out(item) for item in value]
    return value


def node_out(node: Node) -> dict[str, object]:
    """Returns a node as JSON has it."""
    out: dict[str, object] = {"counts": list(node.counts)}
    if node.split is not None:
        out |= {"split": split_out(node.split), "children": list(node.children)}
    noise = {name: getattr(node, name) for name in NOISE}
    return out | {name: value for name, value in noise.items() if value is not None}


def node_in(index: int, stored: object) -> Node:
    """Reads a node that ``node_out`` wrote; ``index`` names it in a ``QueryError``."""
    keys = {"split", "children", "counts", *NOISE}
    if not isinstance(stored, dict) or not set(stored) <= keys:
        raise QueryError(
            f"node {index} of the stored tree must be an object with no other keys than {', '.join(sorted(keys))}."
        )
    children, counts = stored.get("children", []), stored.get("counts")
    # By `type`, for JSON's true would pass as child 1.
    if not isinstance(children, list) or not all(type(child) is int for child in children):
        raise QueryError(f"`children` of node {index} of the stored tree must be a list of whole numbers.")
    if not isinstance(counts, list) or any(count is None for count in counts):
        raise QueryError(f"`counts` of node {index} of the stored tree must be a list of numbers.")
    noise = {name: _number(index, name, stored[name]) for name in NOISE if stored.get(name) is not None}
    return Node(
        split_in(f"the split of node {index} of the stored tree", stored.get("split")),
        tuple(children),
        counts=tuple(_number(index, "counts", count) for count in counts),
        **noise,
    )


def _number(index: int, name: str, stored: object) -> float:
    """Reads a number of a node."""
    if not is_number(stored, -1e300, 1e300):
        raise QueryError(f"`{name}` of node {index} of the stored tree is {str(stored)[:40]!r}; it must be a number.")
    return float(stored)


def split_out(split: Split) -> dict[str, object]:
    """Returns a split as JSON has it: its kind first, its points or groups as lists."""
    fields = asdict(split)
    details = {name: _as_lists(value) for name, value in fields.items() if name not in ("kind", "column")}
    return {"kind": split.kind, "column": split.column, **details}


def _as_lists(values: Iterable[object]) -> list[object]:
    """Returns a tuple as a list, and the tuples in it as lists."""
    return [list(value) if isinstance(value, tuple) else value for value in values]


def split_in(what: str, stored: object) -> Split | None:
    """Reads a split, None at a leaf; ``what`` names it in a ``QueryError``."""
    if stored is None:
        return None
    fields = dict(stored) if isinstance(stored, dict) else {}
    kind = fields.pop("kind", None)
    spec = SPLITS.get(str(kind))
    if spec is None:
        kinds = ", ".join(SPLITS)
        raise QueryError(f"{what} must be an object whose `kind` is one of {kinds}.")
    try:
        return spec(**fields)
    except TypeError as error:
        raise QueryError(f"{what} is malformed: {error}") from None

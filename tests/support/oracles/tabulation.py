# SPDX-License-Identifier: Apache-2.0
"""Slow and obvious versions of counting and of composition; the product must agree with them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pinq.engine.tables import Moments
from pinq.language.derivatives import RowMeasure
from pinq.language.parts import Part, PartSet
from pinq.language.specs import Axis
from pinq.public.schema import Schema

Path = tuple[tuple[bytes, int], ...]
"""The partition and the index of each step from the whole table; names a part without the package's keys."""


def path_of(part: Part) -> Path:
    return tuple((partition.key, index) for partition, index in part.steps())


def cost(asked: Iterable[tuple[PartSet, int]]) -> int:
    """The recursion of the design: direct(node) + Σ over distinct partitions of max over their parts of cost(part)."""
    direct: dict[Path, int] = {}
    for parts, epsilon in asked:
        for part in parts:
            direct[path_of(part)] = direct.get(path_of(part), 0) + epsilon

    def below(node: Path) -> int:
        children = {path[: len(node) + 1] for path in direct if len(path) > len(node) and path[: len(node)] == node}
        total = direct.get(node, 0)
        for partition in {child[-1][0] for child in children}:
            total += max(below(child) for child in children if child[-1][0] == partition)
        return total

    return below(())


def disjoint(parts: PartSet) -> bool:
    """Whether every two parts are disjoint: at their first different step they have the same partition, with different indexes."""

    def apart(one: Path, other: Path) -> bool:
        for here, there in itertools.zip_longest(one, other):
            if here is None or there is None or here[0] != there[0]:
                return False  # one contains the other, or their splits differ
            if here[1] != there[1]:
                return True
        return False

    # One part that is split in two ways is refused even if no part is queried twice, so all paths are compared.
    paths = [path_of(part) for part in parts]
    return all(apart(one, other) for one, other in itertools.combinations(paths, 2))


def encode(frame: pd.DataFrame, schema: Schema) -> dict[str, np.ndarray]:
    """Codes of the rows that can be encoded, by each column's own numpy rule."""
    codes = {name: column.encode(frame[name]) for name, column in schema.columns.items()}
    kept = np.logical_and.reduce([one >= 0 for one in codes.values()]) if len(frame) else np.zeros(0, dtype=bool)
    return {name: one[kept] for name, one in codes.items()}


def members(part: Part, codes: dict[Any, np.ndarray]) -> np.ndarray:
    """Whether each row lies in a part."""
    inside = np.ones(len(next(iter(codes.values()))), dtype=bool)
    for partition, index in part.steps():
        for axis, place in zip(partition.axes, np.unravel_index(index, partition.shape), strict=True):
            inside &= axis.parts_of(codes[axis.column]) == place
    return inside


def tabulate(
    parts: PartSet,
    axes: Sequence[Axis],
    codes: dict[Any, np.ndarray],
    moments: Moments | RowMeasure | None = None,
    null: int | None = None,
) -> np.ndarray:
    """The engine's table, row by row: counts, or counts, sums and squares of a column's codes, in Python's own integers."""
    if moments is not None and not isinstance(moments, Moments):
        return _row_sums(parts, axes, codes, moments)
    width = 0 if moments is None else 3 if moments.squares else 2
    shape = (len(parts), *(axis.size for axis in axes), *([width] if width else []))
    table = np.zeros(shape, dtype=object)
    places = [axis.parts_of(codes[axis.column]) for axis in axes]
    for number, part in enumerate(parts):
        for row in np.flatnonzero(members(part, codes)):
            where = (number, *(int(place[row]) for place in places))
            if -1 in where:
                continue
            if moments is None:
                table[where] += 1
            elif codes[moments.column][row] != null:
                value = int(codes[moments.column][row]) >> moments.shift
                table[where] += np.array([1, value, value * value][:width], dtype=object)
    return table


def _row_sums(parts: PartSet, axes: Sequence[Axis], codes: dict[Any, np.ndarray], sums: Any) -> np.ndarray:
    """Sums of a function of a row, computed row by row, in Python's integers."""
    table = np.zeros((len(parts), *(axis.size for axis in axes), sums.width), dtype=object)
    places = [axis.parts_of(codes[axis.column]) for axis in axes]
    inputs = [axis.parts_of(codes[axis.column]) for axis in sums.inputs]
    for number, part in enumerate(parts):
        for row in np.flatnonzero(members(part, codes)):
            where = (number, *(int(place[row]) for place in places))
            if -1 not in where:
                own = [place[row : row + 1] for place in inputs]
                known = [np.where(place < 0, axis.size, place) for place, axis in zip(own, sums.inputs, strict=True)]
                table[where] += sums.of(known)[:, 0].astype(object)
    return table

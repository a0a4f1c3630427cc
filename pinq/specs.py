# SPDX-License-Identifier: Apache-2.0
"""The vocabulary that cuts a table, and what it means under a schema. No data, no noise, no I/O.

A *spec* is what an analyst writes: ``Values("sex")``, ``Cuts("age", [30, 45])``. Bound to a schema it is a
``Partition``: a row-wise map from a row to one part or to none (stability 1, privacy.md 1.1).

Two partitions of the same part are *the same* exactly when they send every possible row to the same place
(privacy.md 1.3). ``Partition.key`` therefore digests the spec in canonical form together with the domains of its
columns: the order of two ``Groups`` or another spelling of a cut makes another key only where parts are numbered differently.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np

from pinq.errors import QueryError
from pinq.schema import Numeric, Schema, Value

__all__ = ["AnyCut", "AnyGrouping", "Axis", "Cross", "Cuts", "Family", "Groups", "Partition", "Shards", "Spec", "Values", "bind"]

MAX_PARTS = 2**20
MAX_GROUPINGS = 4096
MAX_AXES = 32


@dataclass(frozen=True)
class Values:
    """One part for each declared value of a categorical column, or each grid cell of a numeric one; missing last."""

    column: str
    kind: Literal["values"] = field(default="values", repr=False)

    def __post_init__(self) -> None:
        _text("column", self.column)

    def columns(self) -> set[str]:
        """The columns that it names."""
        return {self.column}


@dataclass(frozen=True)
class Cuts:
    """``len(points) + 1`` parts of a numeric column: below the first point, ..., at or above the last; missing last."""

    column: str
    points: tuple[float, ...]
    kind: Literal["cuts"] = field(default="cuts", repr=False)

    def __post_init__(self) -> None:
        _text("column", self.column)
        points = (self.points,) if isinstance(self.points, (int, float)) else self.points
        try:
            object.__setattr__(self, "points", tuple(_number(point) for point in points))
        except TypeError:
            raise QueryError(f"the cuts of `{self.column}` must be a list of numbers, not {points!r}. Nothing was spent.") from None

    def columns(self) -> set[str]:
        """The columns that it names."""
        return {self.column}


@dataclass(frozen=True)
class Groups:
    """One part for each listed group of values of a categorical column; ``None`` names the missing value. Rows in no group go nowhere."""

    column: str
    groups: tuple[tuple[Value | None, ...], ...]
    kind: Literal["groups"] = field(default="groups", repr=False)

    def __post_init__(self) -> None:
        _text("column", self.column)
        try:
            groups = tuple((group,) if isinstance(group, (str, int)) else tuple(group) for group in self.groups)
        except TypeError:
            raise QueryError(f"the groups of `{self.column}` must be a list of lists of values. Nothing was spent.") from None
        object.__setattr__(self, "groups", groups)

    def columns(self) -> set[str]:
        """The columns that it names."""
        return {self.column}


@dataclass(frozen=True)
class Shards:
    """``count`` random disjoint parts: one independent keyed coin for each row, steady across sessions. Another ``key``, other coins."""

    count: int
    key: int = 0
    kind: Literal["shards"] = field(default="shards", repr=False)

    def __post_init__(self) -> None:
        for name, low, high in (("count", 1, 65535), ("key", 0, 2**63 - 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
                raise QueryError(f"`{name}` of Shards is {value!r}; it must be a whole number from {low} to {high}. Nothing was spent.")
            object.__setattr__(self, name, int(value))

    def columns(self) -> set[str]:
        """None: the coins are drawn beside the columns."""
        return set()


@dataclass(frozen=True)
class Cross:
    """Every combination of the parts of several specs, as one partition."""

    specs: tuple[Values | Cuts | Groups | Shards, ...]
    kind: Literal["cross"] = field(default="cross", repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "specs", tuple(self.specs))
        if not self.specs or not all(isinstance(spec, (Values, Cuts, Groups, Shards)) for spec in self.specs):
            raise QueryError("Cross takes Values, Cuts, Groups or Shards. Nothing was spent.")

    def columns(self) -> set[str]:
        """The columns that its specs name."""
        return set().union(*(spec.columns() for spec in self.specs))


@dataclass(frozen=True)
class AnyCut:
    """A family of candidates for ``exp_mech``: every cut of a numeric column into two at a grid point, mass one in all."""

    column: str
    kind: Literal["any_cut"] = field(default="any_cut", repr=False)

    def __post_init__(self) -> None:
        _text("column", self.column)

    def columns(self) -> set[str]:
        """The columns that it names."""
        return {self.column}


@dataclass(frozen=True)
class AnyGrouping:
    """A family of candidates for ``exp_mech``: bipartitions of a categorical column's values, mass one in all.

    Of the values that the splits above leave to a part: all bipartitions while there are at most ``MAX_GROUPINGS``; otherwise as many
    distinct ones, drawn by ``seed`` (public randomness).
    """

    column: str
    seed: int = 0
    kind: Literal["any_grouping"] = field(default="any_grouping", repr=False)

    def __post_init__(self) -> None:
        _text("column", self.column)

    def columns(self) -> set[str]:
        """The columns that it names."""
        return {self.column}

    def sides(self, count: int) -> np.ndarray:
        """Which of ``count`` values are in the first group, for each bipartition; shape (bipartitions, count). Public."""
        return _sides(self.column, self.seed, count)

    def member(self, labels: Sequence[Value | None], side: np.ndarray) -> Groups:
        """The bipartition of these labels that has ``side`` in the first group."""
        pairs = list(zip(labels, side.tolist(), strict=True))
        return Groups(self.column, (tuple(label for label, first in pairs if first), tuple(label for label, first in pairs if not first)))


@lru_cache(maxsize=256)
def _sides(column: str, seed: int, count: int) -> np.ndarray:
    if count < 2:
        return np.zeros((0, count), dtype=bool)
    # The last value is always in the second group, so that no bipartition appears twice.
    if 2 ** (count - 1) - 1 <= MAX_GROUPINGS:
        masks: Any = range(1, 2 ** (count - 1))
    else:
        masks, counter = {}, itertools.count()
        while len(masks) < MAX_GROUPINGS:
            text = f"{column}\x00{seed}\x00{next(counter)}".encode()
            mask = int.from_bytes(hashlib.shake_256(text).digest((count + 7) // 8), "big") % 2 ** (count - 1)
            if mask:
                masks[mask] = None
    sides = np.array([[mask >> place & 1 for place in range(count)] for mask in masks], dtype=bool)
    sides.flags.writeable = False
    return sides


Spec = Values | Cuts | Groups | Shards | Cross
Family = AnyCut | AnyGrouping


@dataclass(frozen=True, eq=False)
class Axis:
    """How one column (or coin) says which part a row belongs to.

    Attributes:
        column: The encoded column; None for a shard.
        size: Number of parts.
        thresholds: For cuts: part i holds codes from thresholds[i-1] to below thresholds[i]; a missing code is the last threshold.
        lookup: For groups: the part of each code, -1 for none; shape (codes,).
        shard_key: For shards: the key of their coins.
    """

    column: str | None
    size: int
    labels: tuple[Any, ...]
    thresholds: tuple[int, ...] | None = None
    lookup: np.ndarray | None = None
    shard_key: int | None = None

    @cached_property
    def slots(self) -> int:
        """Parts, and one more where a row can be in none."""
        return self.size + int(self.lookup is not None and bool((self.lookup < 0).any()))

    def parts_of(self, codes: np.ndarray) -> np.ndarray:
        """The part of each code (-1 for none), shape like ``codes``; the row-wise map itself."""
        if self.thresholds is not None:
            return np.where(codes < 0, -1, np.searchsorted(np.array(self.thresholds), codes, side="right"))
        if self.lookup is not None:
            return np.where(codes < 0, -1, self.lookup[codes])
        return codes


@dataclass(frozen=True, eq=False)
class Partition:
    """A spec bound to a schema."""

    spec: Spec
    axes: tuple[Axis, ...]
    key: bytes

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Parts along each axis."""
        return tuple(axis.size for axis in self.axes)

    @cached_property
    def size(self) -> int:
        """Number of parts."""
        return int(np.prod([int(n) for n in self.shape], dtype=object))

    def label(self, index: int) -> Any:
        """What part ``index`` is called: a value, an interval's text, a group, a shard's number; a tuple for a Cross."""
        places = np.unravel_index(index, self.shape)
        labels = tuple(axis.labels[int(place)] for axis, place in zip(self.axes, places, strict=True))
        return labels[0] if len(labels) == 1 else labels

    def find(self, label: Any) -> int:
        """The part of a label, or of its number. ``QueryError`` when there is none."""
        wanted = label if len(self.axes) > 1 and isinstance(label, tuple) else (label,)
        if len(wanted) != len(self.axes):
            raise QueryError(f"{label!r} is not the label of a part; one label for each of {len(self.axes)} specs is needed.")
        places = []
        for axis, name in zip(self.axes, [one.item() if isinstance(one, np.generic) else one for one in wanted], strict=True):
            found = next((i for i, known in enumerate(axis.labels) if known == name and type(known) is type(name)), None)
            positional = not any(isinstance(known, int) for known in axis.labels)
            if found is None and positional and isinstance(name, int) and not isinstance(name, bool) and 0 <= name < axis.size:
                found = name
            if found is None:
                listed = ", ".join(repr(known) for known in axis.labels[:12]) + (", ..." if axis.size > 12 else "")
                raise QueryError(f"there is no part {name!r}; the parts are {listed}. Nothing was spent.")
            places.append(found)
        return int(np.ravel_multi_index(places, self.shape))


def bind(spec: Spec, schema: Schema) -> Partition:
    """Binds a spec to a schema.

    Raises:
        QueryError: An unknown column or value, a cut out of bounds, overlapping groups, too many parts.
    """
    cache = schema.__dict__.setdefault("_bound", {})
    try:
        hash(spec)
    except TypeError:
        raise QueryError(f"{spec!r} holds something that is not a plain value. Nothing was spent.") from None
    known = spec if isinstance(spec, (Values, Cuts, Shards)) else repr(spec)  # Python's 1 == True, and the value "1" is not "true"
    found = cache.get(known)
    if found is None:
        found = _bind(spec, schema)
        if len(cache) > 10_000:
            cache.clear()
        cache[known] = found
    return found


def _bind(spec: Spec, schema: Schema) -> Partition:
    specs = spec.specs if isinstance(spec, Cross) else (spec,)
    bound = [_axis(one, schema) for one in specs]
    columns = [axis.column for axis, _ in bound if axis.column is not None]
    if len(set(columns)) != len(columns):
        raise QueryError(f"a column stands twice in {spec!r}. Nothing was spent.")
    identity: list[Any] = [key for _, key in bound]
    if len(columns) < len(bound) or schema.privacy_unit != "row":
        # A row's coin, and which rows of a unit are kept, follow the codes of all columns: under another encoding a row
        # could fall into another part, so it is another partition.
        identity.append(schema.row_digest)
    partition = Partition(spec, tuple(axis for axis, _ in bound), hashlib.blake2b(json.dumps(identity).encode(), digest_size=16).digest())
    if partition.size > MAX_PARTS:
        raise QueryError(f"{spec!r} has {partition.size:,} parts; at most {MAX_PARTS:,} are possible. Nothing was spent.")
    return partition


def _axis(spec: Any, schema: Schema) -> tuple[Axis, list[Any]]:
    """The axis of a spec, and what identifies it: kind, column, domain, and the numbered parts."""
    if isinstance(spec, Shards):
        return Axis(None, spec.count, tuple(range(spec.count)), shard_key=spec.key), ["shards", spec.count, spec.key]
    if not isinstance(spec, (Values, Cuts, Groups)):
        raise QueryError(f"{spec!r} is not a partition spec; use Values, Cuts, Groups, Shards or a tuple of them. Nothing was spent.")
    column = schema.column(spec.column)
    identity = [spec.kind, spec.column, column.digest]
    if isinstance(spec, Values):
        if isinstance(column, Numeric):
            numbers = (column.number(code) for code in range(column.cells))
            labels = tuple(int(n) if n == int(n) else n for n in numbers) if column.cells <= MAX_PARTS else ()
            return Axis(spec.column, column.codes, labels + ((None,) if column.nullable else ())), identity
        return Axis(spec.column, column.codes, column.labels), identity
    if isinstance(spec, Cuts):
        numeric = schema.numeric(spec.column)
        thresholds = tuple(numeric.threshold(point, spec.column) for point in spec.points)
        if not thresholds or any(a >= b for a, b in itertools.pairwise(thresholds)):
            cells = f"must increase and lie in different grid cells (width {float(numeric.width):g})"
            raise QueryError(f"the cuts of `{spec.column}` {cells}; they are {list(spec.points)}. Nothing was spent.")
        edges = [f"{numeric.edge(t):.10g}" for t in thresholds]
        intervals: tuple[str | None, ...] = (f"< {edges[0]}", *(f"{a} to < {b}" for a, b in itertools.pairwise(edges)), f">= {edges[-1]}")
        if numeric.nullable:
            intervals, thresholds = (*intervals, None), (*thresholds, numeric.cells)
        return Axis(spec.column, len(intervals), intervals, thresholds=thresholds), [*identity, thresholds]
    categorical = schema.categorical(spec.column)
    lookup = np.full(categorical.codes, -1, dtype=np.int64)
    for number, group in enumerate(spec.groups):
        if not group:
            raise QueryError(f"group {number} of `{spec.column}` is empty. Nothing was spent.")
        for value in group:
            code = categorical.code_of(value, spec.column)
            if lookup[code] >= 0:
                raise QueryError(f"the value {value!r} of `{spec.column}` stands in two groups. Nothing was spent.")
            lookup[code] = number
    if not spec.groups:
        raise QueryError(f"Groups of `{spec.column}` has no group. Nothing was spent.")
    return Axis(spec.column, len(spec.groups), spec.groups, lookup=lookup), [*identity, lookup.tolist()]


def _text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise QueryError(f"`{name}` is {value!r}; it must be the name of a column. Nothing was spent.")


def _number(value: object) -> float:
    if isinstance(value, bool) or (not isinstance(value, (int, float, np.number)) and not hasattr(value, "as_tuple")):
        raise QueryError(f"the cut {value!r} is not a number. Nothing was spent.")
    number = float(value)  # type: ignore[arg-type]
    if number != number or number in (float("inf"), float("-inf")):
        raise QueryError(f"the cut {value!r} is not finite. Nothing was spent.")
    return number

# SPDX-License-Identifier: Apache-2.0
"""The vocabulary that cuts a table. No data, no noise, no I/O.

A *spec* is what an analyst writes: ``Values("sex")``, ``Cuts("age", [30, 45])``. Bound to a schema
it is a ``Partition``: a row-wise map from a row to one part or to none (stability 1, privacy.md
1.1). A *family* stands for many specs, of which ``exp_mech`` chooses one.

A new spec is a class here and an entry of ``Spec``. A new family is a class here, an entry of
``Candidate``, and the file that scores its members (``pinq/curator/candidates``).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, cast

import numpy as np

from pinq.errors import QueryError
from pinq.public.checks import is_whole
from pinq.public.expressions import Expression
from pinq.public.groupings import sides_of
from pinq.public.partitions import Axis, Partition
from pinq.public.schema import Schema, Value

__all__ = [
    "AnyCross",
    "AnyCut",
    "AnyGrouping",
    "Axis",
    "Candidate",
    "Cross",
    "Cuts",
    "Family",
    "Groups",
    "Partition",
    "Shards",
    "Spec",
    "Splitting",
    "Values",
    "bind",
]

MAX_SEED = 2**64
MAX_PARTS = 2**20
MAX_MEMBERS = 100_000
MAX_CELLS = 2**62
MAX_AXES = 32


class Splitting(Expression):
    """A spec: it names the parts of a table."""

    @property
    @abstractmethod
    def factors(self) -> tuple[Factor, ...]:
        """The specs whose joint parts these are."""

    def check(self, schema: Schema) -> None:
        """``QueryError`` unless it binds."""
        bind(self, schema)

    def max_parts(self, schema: Schema) -> int:
        """How many parts it makes."""
        return bind(self, schema).size


class Factor(Splitting):
    """A spec of one axis."""

    @property
    def factors(self) -> tuple[Factor, ...]:
        """This spec alone."""
        return (self,)

    @abstractmethod
    def axis(self, schema: Schema) -> tuple[Axis, Sequence[object]]:
        """Binds to a schema: the axis, and what identifies it (kind, column, domain, parts)."""


@dataclass(frozen=True)
class _OfColumn:
    """What is said of one column."""

    column: str

    def __post_init__(self) -> None:
        if not isinstance(self.column, str):
            raise QueryError(f"`column` is {self.column!r}; it must be the name of a column.")

    def columns(self) -> set[str]:
        """The column that it names."""
        return {self.column}


@dataclass(frozen=True)
class Values(_OfColumn, Factor):
    """One part for each declared value, or each grid cell of a numeric column; missing last."""

    kind: Literal["values"] = field(default="values", repr=False)

    def axis(self, schema: Schema) -> tuple[Axis, Sequence[object]]:
        """A part for each code."""
        column = schema.column(self.column)
        return Axis(self.column, column.codes, column.labels_up_to(MAX_PARTS)), [self.kind, self.column, column.digest]


@dataclass(frozen=True)
class Cuts(_OfColumn, Factor):
    """``len(points) + 1`` parts of a numeric column, from below the first point; missing last."""

    points: tuple[float, ...]
    kind: Literal["cuts"] = field(default="cuts", repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        points = (self.points,) if isinstance(self.points, (int, float)) else self.points
        try:
            object.__setattr__(self, "points", tuple(_number(point) for point in points))
        except TypeError:
            wrong = f"the cuts of `{self.column}` must be a list of numbers, not {points!r}"
            raise QueryError(f"{wrong}.") from None

    def axis(self, schema: Schema) -> tuple[Axis, Sequence[object]]:
        """A part for each interval of codes; a missing code is beyond one more threshold."""
        column = schema.numeric(self.column)
        thresholds = tuple(column.threshold(point, self.column) for point in self.points)
        if not thresholds or any(a >= b for a, b in itertools.pairwise(thresholds)):
            needed = f"must increase and lie in different grid cells (width {float(column.width):g})"
            raise QueryError(f"the cuts of `{self.column}` {needed}; they are {list(self.points)}.")
        edges = [f"{column.edge(threshold):.10g}" for threshold in thresholds]
        between = (f"{low} to < {high}" for low, high in itertools.pairwise(edges))
        labels: tuple[str | None, ...] = (f"< {edges[0]}", *between, f">= {edges[-1]}")
        if column.nullable:
            labels, thresholds = (*labels, None), (*thresholds, column.cells)
        identity = [self.kind, self.column, column.digest, thresholds]
        return Axis(self.column, len(labels), labels, thresholds=thresholds), identity


@dataclass(frozen=True)
class Groups(_OfColumn, Factor):
    """One part for each listed group of values; ``None`` names the missing value.

    Rows in no group go nowhere.
    """

    groups: tuple[tuple[Value | None, ...], ...]
    kind: Literal["groups"] = field(default="groups", repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            groups = tuple((group,) if isinstance(group, (str, int)) else tuple(group) for group in self.groups)
        except TypeError:
            wrong = f"the groups of `{self.column}` must be a list of lists of values"
            raise QueryError(f"{wrong}.") from None
        object.__setattr__(self, "groups", groups)

    def axis(self, schema: Schema) -> tuple[Axis, Sequence[object]]:
        """A part for each group, by a table from codes to groups."""
        column = schema.categorical(self.column)
        lookup = np.full(column.codes, -1, dtype=np.int64)
        for number, group in enumerate(self.groups):
            if not group:
                raise QueryError(f"group {number} of `{self.column}` is empty.")
            for value in group:
                code = column.code_of(value, self.column)
                if lookup[code] >= 0:
                    raise QueryError(f"the value {value!r} of `{self.column}` stands in two groups.")
                lookup[code] = number
        if not self.groups:
            raise QueryError(f"Groups of `{self.column}` has no group.")
        identity = [self.kind, self.column, column.digest, lookup.tolist()]
        return Axis(self.column, len(self.groups), self.groups, lookup=lookup), identity


@dataclass(frozen=True)
class Shards(Factor):
    """``count`` random disjoint parts: one keyed coin for each row, steady across sessions.

    Another ``key``, other coins.
    """

    count: int
    key: int = 0
    kind: Literal["shards"] = field(default="shards", repr=False)

    def __post_init__(self) -> None:
        for name, low, high in (("count", 1, 65535), ("key", 0, 2**63 - 1)):
            value = getattr(self, name)
            if not is_whole(value, low, high):
                allowed = f"it must be a whole number from {low} to {high}"
                raise QueryError(f"`{name}` of Shards is {value!r}; {allowed}.")
            object.__setattr__(self, name, int(value))

    def columns(self) -> set[str]:
        """None: the coins are drawn beside the columns."""
        return set()

    def axis(self, schema: Schema) -> tuple[Axis, Sequence[object]]:
        """A part for each face of the coin."""
        return Axis(None, self.count, tuple(range(self.count)), shard_key=self.key), [self.kind, self.count, self.key]


@dataclass(frozen=True)
class Cross(Splitting):
    """Every combination of the parts of several specs, as one partition."""

    specs: tuple[Values | Cuts | Groups | Shards, ...]
    kind: Literal["cross"] = field(default="cross", repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "specs", tuple(self.specs))
        if not self.specs or not all(isinstance(spec, Factor) for spec in self.specs):
            raise QueryError("Cross takes Values, Cuts, Groups or Shards.")

    def columns(self) -> set[str]:
        """The columns that its specs name."""
        return set().union(*(spec.columns() for spec in self.specs))

    @property
    def factors(self) -> tuple[Factor, ...]:
        """Its specs."""
        return self.specs


@dataclass(frozen=True)
class AnyCut(_OfColumn, Expression):
    """A family for ``exp_mech``: every cut of a numeric column at a grid point, mass one in all."""

    kind: Literal["any_cut"] = field(default="any_cut", repr=False)

    def check(self, schema: Schema) -> None:
        """``QueryError`` unless the column is numeric."""
        schema.numeric(self.column)

    def max_parts(self, schema: Schema) -> int:
        """How many parts a member makes: missing values are a part of their own."""
        return 2 + schema.numeric(self.column).nullable


@dataclass(frozen=True)
class AnyGrouping(_OfColumn, Expression):
    """A family for ``exp_mech``: bipartitions of a column's values, mass one in all.

    Of the values that the splits above leave to a part: all bipartitions while there are at most
    ``MAX_GROUPINGS``; otherwise as many distinct ones, drawn by ``seed`` (public randomness).
    """

    seed: int = 0
    kind: Literal["any_grouping"] = field(default="any_grouping", repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_whole(self.seed, -MAX_SEED, MAX_SEED):
            raise QueryError("is something else", parameter="seed", allowed="a whole number from -2^64 to 2^64")
        object.__setattr__(self, "seed", int(self.seed))

    def check(self, schema: Schema) -> None:
        """``QueryError`` unless the column is categorical and has two values to tell apart."""
        if schema.categorical(self.column).codes < 2:
            raise QueryError(f"`{self.column}` has a single value, so it cannot be grouped.")

    def max_parts(self, schema: Schema) -> int:
        """How many parts a member makes: missing values are in one of the groups."""
        return 2

    def sides(self, count: int) -> np.ndarray:
        """Which of ``count`` values are in the first group, shape (bipartitions, count). Public."""
        return sides_of(self.column, self.seed, count)

    def member(self, labels: Sequence[Value | None], side: np.ndarray) -> Groups:
        """The bipartition of these labels that has ``side`` in the first group."""
        pairs = list(zip(labels, side.tolist(), strict=True))
        first = tuple(label for label, is_first in pairs if is_first)
        second = tuple(label for label, is_first in pairs if not is_first)
        return Groups(self.column, (first, second))


@dataclass(frozen=True)
class AnyCross(Expression):
    """A family for ``exp_mech``: joint parts of every ``size`` of the specs, mass one in all.

    ``AnyCross((Values("job"), Values("sex"), Cuts("age", (30,))), 2)`` is three candidates: job x
    sex, job x age and sex x age.

    Attributes:
        specs: ``Values`` and ``Cuts`` of different columns.
        size: How many of them make a candidate.
    """

    specs: tuple[Values | Cuts, ...]
    size: int
    kind: Literal["any_cross"] = field(default="any_cross", repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "specs", tuple(self.specs))
        if not all(isinstance(spec, (Values, Cuts)) for spec in self.specs):
            raise QueryError("AnyCross takes Values and Cuts.")
        columns = [spec.column for spec in self.specs]
        if len(set(columns)) != len(columns):
            raise QueryError(f"a column stands twice in an AnyCross of {', '.join(columns)}.")
        if not is_whole(self.size, 1, len(columns)):
            allowed = f"it must be a whole number from 1 to {len(columns)}, its specs"
            raise QueryError(f"`size` of AnyCross is {self.size!r}; {allowed}.")
        object.__setattr__(self, "size", int(self.size))
        if len(self) > MAX_MEMBERS:
            raise QueryError(
                f"there are {len(self):,} ways to take {self.size} of {len(columns)} specs; "
                f"at most {MAX_MEMBERS:,} are possible."
            )

    def __len__(self) -> int:
        return math.comb(len(self.specs), self.size)

    def columns(self) -> set[str]:
        """The columns that its specs name."""
        return set().union(*(spec.columns() for spec in self.specs))

    def check(self, schema: Schema) -> None:
        """``QueryError`` unless its specs bind."""
        for spec in self.specs:
            spec.check(schema)

    @cached_property
    def _members(self) -> list[tuple[Values | Cuts, ...]]:
        return list(itertools.combinations(self.specs, self.size))

    def member(self, index: int) -> Spec:
        """Candidate ``index``, in the order of ``itertools.combinations``."""
        specs = self._members[index]
        return Cross(specs) if len(specs) > 1 else specs[0]

    def require_room(self, sizes: Sequence[int], classes: int) -> None:
        """``QueryError`` where the cells of some member cannot be numbered.

        ``sizes`` are the parts of each spec.
        """
        cells = math.prod(sorted(sizes)[-self.size :]) * classes
        if cells * len(sizes) > MAX_CELLS:
            raise QueryError(
                f"the largest {self.size} of {len(sizes)} specs have {cells:,} joint cells, more than can be numbered. "
                "Take a smaller `size`."
            )


Spec = Values | Cuts | Groups | Shards | Cross
Family = AnyCut | AnyGrouping  # of one column
Candidate = Spec | Family | AnyCross


def bind(spec: Splitting, schema: Schema) -> Partition:
    """Binds a spec to a schema.

    Raises:
        QueryError: An unknown column or value, a cut out of bounds, overlapping groups, many parts.
    """
    cache = schema.kept().setdefault("bind", {})
    if not isinstance(spec, Splitting):
        raise QueryError(f"{spec!r} is not a partition spec; use Values, Cuts, Groups, Shards or a tuple of them.")
    partition: Partition | None = cache.get(spec.identity)
    if partition is None:
        partition = _bind(spec, schema)
        if len(cache) > 10_000:
            cache.clear()
        cache[spec.identity] = partition
    return partition


def _bind(spec: Splitting, schema: Schema) -> Partition:
    bound = [factor.axis(schema) for factor in spec.factors]
    columns = [axis.column for axis, _ in bound if axis.column is not None]
    if len(set(columns)) != len(columns):
        raise QueryError(f"a column stands twice in {spec!r}.")
    identity: list[object] = [key for _, key in bound]
    if len(columns) < len(bound) or schema.privacy_unit != "row":
        # A row's coin, and which rows of a unit are kept, follow the codes of all columns: under
        # another encoding a row could fall into another part, so it is another partition.
        identity.append(schema.row_digest)
    key = hashlib.blake2b(json.dumps(identity).encode(), digest_size=16).digest()
    partition = Partition(cast(Spec, spec), tuple(axis for axis, _ in bound), key)
    if partition.size > MAX_PARTS:
        raise QueryError(f"{spec!r} has {partition.size:,} parts; at most {MAX_PARTS:,} are possible.")
    return partition


def _number(value: object) -> float:
    if isinstance(value, bool) or (not isinstance(value, (int, float, np.number)) and not hasattr(value, "as_tuple")):
        raise QueryError(f"the cut {value!r} is not a number.")
    number = float(value)  # type: ignore[arg-type]
    if number != number or number in (float("inf"), float("-inf")):
        raise QueryError(f"the cut {value!r} is not finite.")
    return number

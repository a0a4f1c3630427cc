# SPDX-License-Identifier: Apache-2.0
"""Specs of one axis, and how a spec is bound to a schema. No data, no noise, no I/O.

Each names the parts of a table by one column, or by a coin: ``Values``, ``Cuts``, ``Groups``,
``Calendar``, ``Shards``. What is made of several is in ``specs.py``.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, cast
from weakref import ref

import numpy as np

from pinq.errors import QueryError
from pinq.public.checks import is_whole, require_kind
from pinq.public.columns import CutPoint
from pinq.public.dates import PERIODS, WEEKDAYS, Period
from pinq.public.expressions import Expression
from pinq.public.moments import moment_text
from pinq.public.partitions import Axis, Partition
from pinq.public.schema import Schema, Value
from pinq.public.untrusted import TupleOf

if TYPE_CHECKING:
    from pinq.public.specs import Spec

__all__ = ["MAX_PARTS", "Calendar", "Cuts", "Factor", "Groups", "OfColumn", "Shards", "Splitting", "Values", "bind"]

MAX_PARTS = 2**20
KEPT_PARTITIONS, KEPT_PARTS = 10_000, 2**17  # that a schema remembers
CODES_OF_A_PART = 25  # so many codes of a lookup take the memory of a part


class Splitting(Expression):
    """A spec: it names the parts of a table."""

    @property
    def as_spec(self) -> Splitting:
        """Itself."""
        return self

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
    """A spec of one axis.

    Attributes:
        is_finest: Whether each part has a single value, so that the column splits none of them again.
    """

    is_finest: ClassVar[bool] = False

    @property
    def factors(self) -> tuple[Factor, ...]:
        """This spec alone."""
        return (self,)

    @abstractmethod
    def axis(self, schema: Schema) -> tuple[Axis, Sequence[object]]:
        """Binds to a schema: the axis, and what identifies it (kind, column, domain, parts)."""


@dataclass(frozen=True)
class OfColumn:
    """What is said of one column."""

    column: str

    def __post_init__(self) -> None:
        if not isinstance(self.column, str):
            raise QueryError(f"is {self.column!r}", parameter="column", allowed="the name of a column")

    def columns(self) -> set[str]:
        """The column that it names."""
        return {self.column}


@dataclass(frozen=True)
class Values(OfColumn, Factor):
    """One part for each declared value, or each grid cell of a numeric column; missing last."""

    is_finest = True
    kind: Literal["values"] = field(default="values", repr=False)

    def axis(self, schema: Schema) -> tuple[Axis, Sequence[object]]:
        """A part for each code."""
        column = schema.column(self.column)
        return Axis(self.column, column.codes, column.labels_up_to(MAX_PARTS)), [self.kind, self.column, column.digest]


@dataclass(frozen=True)
class Cuts(OfColumn, Factor):
    """``len(points) + 1`` parts of numbers or dates, from below the first point; missing last.

    Dates are cut at dates: ``Cuts("born", ["1950-01-01", date(1970, 1, 1)])``.
    """

    points: TupleOf[CutPoint]
    kind: Literal["cuts"] = field(default="cuts", repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        points = (self.points,) if isinstance(self.points, (int, float, str)) else self.points
        try:
            object.__setattr__(self, "points", tuple(map(_point, points)))
        except TypeError:
            wrong = f"the cuts of `{self.column}` must be a list of numbers or dates, not {points!r}"
            raise QueryError(f"{wrong}.") from None

    def named(self) -> int:
        """Its points."""
        return len(self.points)

    def axis(self, schema: Schema) -> tuple[Axis, Sequence[object]]:
        """A part for each interval of codes; a missing code is beyond one more threshold."""
        column = schema.numeric(self.column)
        thresholds = tuple(column.threshold(point, self.column) for point in self.points)
        if not thresholds or any(a >= b for a, b in itertools.pairwise(thresholds)):
            needed = f"must increase and lie in different grid cells (width {float(column.width):g})"
            raise QueryError(f"the cuts of `{self.column}` {needed}; they are {list(self.points)}.")
        edges = [column.text(column.edge(threshold)) for threshold in thresholds]
        between = (f"{low} to < {high}" for low, high in itertools.pairwise(edges))
        labels: tuple[str | None, ...] = (f"< {edges[0]}", *between, f">= {edges[-1]}")
        # A cut at 30 of 100 cells, and missing values: thresholds 30 and 100, for 100 is their
        # code.
        if column.nullable:
            labels, thresholds = (*labels, None), (*thresholds, column.cells)
        identity = [self.kind, self.column, column.digest, thresholds]
        return Axis(self.column, len(labels), labels, thresholds=thresholds), identity


@dataclass(frozen=True)
class Groups(OfColumn, Factor):
    """One part for each listed group of values; ``None`` names the missing value.

    Rows in no group go nowhere.
    """

    groups: TupleOf[TupleOf[Value | None]]
    kind: Literal["groups"] = field(default="groups", repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            groups = tuple((group,) if isinstance(group, (str, int)) else tuple(group) for group in self.groups)
        except TypeError:
            wrong = f"the groups of `{self.column}` must be a list of lists of values"
            raise QueryError(f"{wrong}.") from None
        object.__setattr__(self, "groups", groups)

    def named(self) -> int:
        """The values of its groups."""
        return sum(map(len, self.groups))

    def axis(self, schema: Schema) -> tuple[Axis, Sequence[object]]:
        """A part for each group, by a table from codes to groups."""
        column = schema.categorical(self.column)
        # Values a, b, c in the groups (a, c) and (b): 0 1 0. In (c) alone: -1 -1 0.
        lookup = [-1] * column.codes
        for number, group in enumerate(self.groups):
            if not group:
                raise QueryError(f"group {number} of `{self.column}` is empty.")
            for value, code in zip(group, column.codes_of_values(group, self.column), strict=True):
                if lookup[code] >= 0:
                    raise QueryError(f"the value {value!r} of `{self.column}` stands in two groups.")
                lookup[code] = number
        if not self.groups:
            raise QueryError(f"Groups of `{self.column}` has no group.")
        identity = [self.kind, self.column, column.digest, lookup]
        return Axis(self.column, len(self.groups), self.groups, lookup=np.array(lookup, dtype=np.int64)), identity


@dataclass(frozen=True)
class Calendar(OfColumn, Factor):
    """One part for each year, quarter, month or weekday of a column of dates; missing last.

    Years, quarters and months are those that the declared bounds reach, one after the other. A date
    belongs to the period in which its grid cell begins.
    """

    period: Period
    kind: Literal["calendar"] = field(default="calendar", repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.period not in PERIODS:
            raise QueryError(f"is {self.period!r}", parameter="period", allowed=f"one of {', '.join(PERIODS)}")

    def axis(self, schema: Schema) -> tuple[Axis, Sequence[object]]:
        """A part for each period: an interval of codes, or the codes of a weekday."""
        column, missing = schema.dated(self.column), schema.column(self.column).nullable
        identity = [self.kind, self.column, column.digest, self.period]
        if self.period == "weekday":
            # A grid of days from Saturday on: 5 6 0 1 2 3 4 5 ..., and 7 for missing.
            lookup = np.append(column.weekdays(self.column), np.full(int(missing), len(WEEKDAYS)))
            labels: tuple[Value | None, ...] = (*WEEKDAYS, *[None] * missing)
            return Axis(self.column, len(labels), labels, lookup=lookup), identity
        names, starts = column.periods(self.period)
        thresholds = tuple(column.threshold(start, self.column) for start in starts)
        if any(a >= b for a, b in itertools.pairwise(thresholds)):
            raise QueryError(f"a cell of `{self.column}` holds more than a {self.period}; take a longer period.")
        labels = names
        if missing:
            labels, thresholds = (*names, None), (*thresholds, column.cells)
        return Axis(self.column, len(labels), labels, thresholds=thresholds), identity


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
                allowed = f"a whole number from {low} to {high}"
                raise QueryError(f"`{name}` of Shards is {value!r}; it must be {allowed}.")
            object.__setattr__(self, name, int(value))

    def columns(self) -> set[str]:
        """None: the coins are drawn beside the columns."""
        return set()

    def axis(self, schema: Schema) -> tuple[Axis, Sequence[object]]:
        """A part for each face of the coin."""
        return Axis(None, self.count, tuple(range(self.count)), shard_key=self.key), [self.kind, self.count, self.key]


@dataclass
class Kept:
    """The partitions that a schema remembers, by their specs' identities and by the specs.

    An identity is as long as its spec. Who binds an object again finds it by its number, which no
    other object has as long as it lives.

    Attributes:
        partitions: By identity.
        specs: Objects that were bound, and what they mean, by the objects' numbers.
        room: How much memory the partitions take, in parts.
    """

    partitions: dict[Hashable, Partition] = field(default_factory=dict)
    specs: dict[int, tuple[ref[Splitting], Partition]] = field(default_factory=dict)
    room: int = 0

    def of(self, spec: Splitting) -> Partition | None:
        """The partition of this very object."""
        known = self.specs.get(id(spec))
        return None if known is None or known[0]() is not spec else known[1]

    def note(self, spec: Splitting, partition: Partition) -> None:
        """Notes that an object means one of these partitions."""
        if len(self.specs) >= KEPT_PARTITIONS:
            self.specs = {}
        self.specs[id(spec)] = ref(spec), partition

    def add(self, identity: Hashable, partition: Partition) -> None:
        """Keeps a partition, alone where those so far take too much memory."""
        # A cut of a hundred thousand points takes 20 MB: of such, two are kept; of small ones, thousands.
        if len(self.partitions) >= KEPT_PARTITIONS or self.room >= KEPT_PARTS:
            self.partitions, self.specs, self.room = {}, {}, 0
        self.partitions[identity] = partition
        self.room += _room(partition)


def _room(partition: Partition) -> int:
    """How much memory a partition takes, in parts of about 200 bytes."""
    # Two groups of 50,000 values each take as much as 100,000 parts, and the codes of these values
    # as 4,000 more.
    parts = sum(axis.size for axis in partition.axes)
    codes = sum(len(axis.lookup) for axis in partition.axes if axis.lookup is not None)
    return max(parts, partition.spec.named()) + codes // CODES_OF_A_PART


def bind(spec: Splitting, schema: Schema) -> Partition:
    """Binds a spec to a schema.

    Raises:
        QueryError: An unknown column or value, a cut out of bounds, overlapping groups, many parts.
    """
    kept = cast(Kept, schema.kept().get("bind") or schema.kept().setdefault("bind", Kept()))
    known = kept.of(spec)
    if known is not None:
        return known
    wrong = "is not a partition spec; use Values, Cuts, Groups, Shards or a tuple of them."
    require_kind([spec], Splitting, lambda: f"{spec!r} {wrong}")
    partition = kept.partitions.get(spec.identity)
    if partition is None:
        partition = _bind(spec, schema)
        kept.add(spec.identity, partition)
    kept.note(spec, partition)
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
    partition = Partition(cast("Spec", spec), tuple(axis for axis, _ in bound), key)
    if partition.size > MAX_PARTS:
        raise QueryError(f"{spec!r} has {partition.size:,} parts; at most {MAX_PARTS:,} are possible.")
    return partition


def _point(value: object) -> CutPoint:
    """Reads a cut point: a date is kept as text, for it is a number only to its column."""
    text = moment_text(value)
    return _number(value) if text is None else text


def _number(value: object) -> float:
    if isinstance(value, bool) or (not isinstance(value, (int, float, np.number)) and not hasattr(value, "as_tuple")):
        raise QueryError(f"the cut {value!r} is neither a number nor a date.")
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError:
        number = float("inf")
    if number != number or number in (float("inf"), float("-inf")):
        raise QueryError(f"the cut {value!r} is not finite.")
    return number

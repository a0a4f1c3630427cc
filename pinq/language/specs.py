# SPDX-License-Identifier: Apache-2.0
"""Specs: the groupings that split a table.

Bound to a schema a spec is a ``Partition``: a row-wise map from a row to one part or to none (stability 1, privacy.md
1.1). A *family* stands for many specs, of which ``exp_mech`` chooses one.

Two partitions of the same part are *the same* exactly when they send every possible row to the same place (privacy.md
1.3). ``Partition.key`` therefore digests the spec in canonical form, and the domains of its columns.

A new spec is a class beside its like and an entry of ``Spec``. A new family is a class here, an entry of ``Candidate``,
and the class that scores its members (``pinq/curator/candidates``).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import Any, ClassVar, Literal, cast

import numpy as np
from pydantic import ConfigDict

from pinq.errors import QueryError
from pinq.public.checks import Shown, TupleOf, brief, closest, is_number, is_whole, require_kind, text_of, whole_number
from pinq.public.columns import CutPoint, Value, number_of_text
from pinq.public.dates import PERIODS, WEEKDAYS, Period, moment_text
from pinq.public.schema import Numeric, Schema


class Expression(Shown, ABC):
    """A spec, a family of candidates, or a score: a frozen dataclass with a ``kind``.

    Code calls methods of an expression and never tests its class, so no branch can forget a new
    class.
    """

    # On the wire the number 1 is neither true nor 1.0 nor "1", and a field that the class does not have is no request.
    __pydantic_config__ = ConfigDict(strict=True, extra="forbid")

    kind: str

    @abstractmethod
    def columns(self) -> set[str]:
        """The columns that it names; a grant's terms are compared with them."""

    @abstractmethod
    def check(self, schema: Schema) -> None:
        """Raises ``QueryError`` unless it fits this schema."""

    @property
    def as_spec(self) -> Splitting | None:
        """The spec itself; None for a family and for a score."""
        return None

    def member_bytes(self, schema: Schema) -> int:
        """The largest length of a member's text in an answer."""
        # A character that is not ASCII is up to twelve characters of JSON.
        return 192 + len(self.identity) * (2 if self.identity.isascii() else 12)

    def named(self) -> int:
        """The number of listed cut points and values; the work of a check grows with it."""
        return 0

    def inner(self) -> tuple[Expression, ...]:
        """Further specs that a request reads, in addition to its candidates."""
        return ()

    @cached_property
    def identity(self) -> str:
        """The kind and all values as Python writes them, which distinguishes ``True`` from 1."""
        try:
            hash(self)
        except TypeError:
            raise QueryError(f"{brief(self)} holds something that is not a plain value.") from None
        return repr(self)


Interval = tuple[CutPoint | None, CutPoint | None]
Label = Value | float | tuple[Value | None, ...] | None
"""The name of a part along an axis."""


def scale(number: int) -> tuple[int, int]:
    """The size class of a number of parts or codes: the same code handles sizes of one class."""
    return min(number, 3), -(-(number - 1).bit_length() // 8)


@dataclass(frozen=True, eq=False)
class Axis:
    """The map of one column (or random draw) to a row's part.

    Attributes:
        labels: The name of each part; empty if there are too many to list.
        thresholds: For cuts: part i holds codes from thresholds[i-1] to below thresholds[i]; a
            missing code is the last threshold.
        lookup: For groups: the part of each code, -1 for none; shape (codes,).
        shard_key: For shards: the key of their coins.
    """

    column: str | None
    size: int
    labels: tuple[Label, ...]
    thresholds: tuple[int, ...] | None = None
    lookup: np.ndarray | None = None
    shard_key: int | None = None

    @cached_property
    def source(self) -> Hashable:
        """The source of a row's code: the column, or the shards of this key and number."""
        return self.column if self.shard_key is None else ("shards", self.shard_key, self.size)

    @cached_property
    def identity(self) -> tuple[str, int, tuple[int, ...], bytes]:
        """The identity of an axis in its schema."""
        lookup = b"" if self.lookup is None else self.lookup.tobytes()
        return (repr(self.source), self.size, self.thresholds or (), lookup)

    @cached_property
    def slots(self) -> int:
        """The parts, and one more if a row can be in no part."""
        return self.size + int(self.lookup is not None and bool((self.lookup < 0).any()))

    def parts_of(self, codes: np.ndarray) -> np.ndarray:
        """The part of each code (-1 for none), shape like ``codes``; the row-wise map itself."""
        if self.thresholds is not None:
            return np.where(codes < 0, -1, np.searchsorted(np.array(self.thresholds), codes, side="right"))
        if self.lookup is not None:
            return np.where(codes < 0, -1, self.lookup[codes])
        return codes

    @cached_property
    def form(self) -> Hashable:
        """The kind of look-up: the same code looks up axes of one form, for any column."""
        if self.lookup is not None:
            return "table", scale(self.size), scale(len(self.lookup)), self.slots > self.size
        if self.thresholds is not None:
            return "cuts", scale(self.size), scale((self.thresholds or (0,))[-1])
        return "shards" if self.column is None else "codes", scale(self.size)

    def span(self, part: int, codes: int) -> tuple[int, int]:
        """The range [first, end) of a part's codes, in a column of so many codes."""
        if self.lookup is not None:
            first, end = self._spans[:, part].tolist()
            return first, end
        if self.thresholds is None:
            return part, part + 1
        # Only two thresholds are read: a list of all edges for each part would take quadratic time.
        first = self.thresholds[part - 1] if part else 0
        return first, self.thresholds[part] if part < len(self.thresholds) else codes

    def edges(self, codes: int) -> Sequence[int]:
        """The first code of each part, and the end of the last; not for an axis of groups."""
        return range(codes + 1) if self.thresholds is None else (0, *self.thresholds, codes)

    @cached_property
    def _spans(self) -> np.ndarray:
        """The first code of each part of a table, and the code after its last; shape (2, parts)."""
        # In the table 0 1 0 -1, part 0 has the codes 0 to 2. Assigned in order, the last code of a part remains; in
        # reverse order, the first. Codes in no part (-1) go to a last column, which is dropped.
        codes = np.arange(len(self.lookup))  # type: ignore[arg-type]
        spans = np.zeros((2, self.size + 1), dtype=np.int64)
        spans[0, self.lookup[::-1]], spans[1, self.lookup] = codes[::-1], codes + 1  # type: ignore[index]
        return spans[:, :-1]

    def describe(self, part: int) -> str:
        """Describes a part for people: ``sex = Female``, ``age < 30``."""
        label, name = self.labels[part], self.column if self.column is not None else "shard"
        if label is None:
            return f"{name} missing"
        if self.thresholds is not None:
            return f"{name} {label}"
        if isinstance(label, tuple):
            members = ("missing" if value is None else text_of(value) for value in label)
            return f"{name} in {{{', '.join(members)}}}"
        return f"{name} = {label}"

    def find(self, label: object) -> int:
        """Finds a part by its label, or by its number if no label equals it; raises ``QueryError`` if there is none."""
        # With the labels 10, 20 and 30, 10 is a label, and 0 is no part. With the labels "a" and "b",
        # 0 is the first part.
        plain = label.item() if isinstance(label, np.generic) else label
        for part, name in enumerate(self.labels):
            if type(name) is type(plain) and name == plain:
                return part
        # Texts that spell numbers, such as 1.0 and 2.0, are found by the number; a position could be meant too.
        spelled = [number_of_text(name) if isinstance(name, str) else math.nan for name in self.labels]
        if is_number(plain, -(2.0**53), 2.0**53) and spelled.count(float(plain)) == 1:
            return spelled.index(float(plain))
        # A bool is an int to Python: where True and False are the labels, 0 and 1 are no numbers of parts.
        numbered = all(map(math.isnan, spelled)) and not any(isinstance(name, int) for name in self.labels)
        if numbered and type(plain) is int and 0 <= plain < self.size:
            return plain
        names = ", ".join(repr(name) for name in self.labels[:12]) + (", ..." if self.size > 12 else "")
        meant = closest(plain, self.labels)
        raise QueryError(f"there is no part {brief(plain)}{meant}; the parts are {names}.")


def joint_slots(axes: Iterable[Axis]) -> int:
    """The cells of a joint table of axes; an axis of four values has a fifth place for rows in none of them."""
    return math.prod(axis.slots for axis in axes)


def joint_cells(
    cell: np.ndarray, along: Iterable[tuple[int, np.ndarray]], kind: np.dtype[np.unsignedinteger]
) -> np.ndarray:
    """The cell of each row in a joint table, from its cell in the table without the last axes.

    Args:
        cell: The cell of each row without them, shape (rows,).
        along: For each of the last axes, the number of its places and the place of each row.
        kind: A type that holds the number of each cell.
    """
    # Node 3 and places 1 of 2 and 2 of 4: (3 * 2 + 1) * 4 + 2 = 30.
    joint = cell.astype(kind)
    for size, places in along:
        np.multiply(joint, kind.type(size), out=joint)
        np.add(joint, places, out=joint, casting="unsafe")
    return joint


@dataclass(frozen=True, eq=False)
class Partition:
    """A spec bound to a schema.

    Attributes:
        axes: A part of the partition is one part along each axis.
        key: The identity of the map from rows to numbered parts, 16 bytes.
    """

    spec: Spec
    axes: tuple[Axis, ...]
    key: bytes

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return tuple(axis.size for axis in self.axes)

    @cached_property
    def size(self) -> int:
        return math.prod(map(int, self.shape))

    @cached_property
    def form(self) -> tuple[Hashable, ...]:
        return tuple(axis.form for axis in self.axes)

    @property
    def nbytes(self) -> int:
        return _nbytes(self.axes, self.spec)

    def positions(self, index: int) -> list[tuple[Axis, int]]:
        """Returns the part along each axis of part ``index``."""
        if len(self.axes) == 1:
            return [(self.axes[0], index)]
        return list(zip(self.axes, map(int, np.unravel_index(index, self.shape)), strict=True))

    def labels(self, index: int) -> tuple[Label, ...]:
        """Returns the name of part ``index`` along each axis: a value, an interval, a group, or a shard's number."""
        return tuple(axis.labels[part] for axis, part in self.positions(index))

    def describe(self, index: int) -> str:
        return ", ".join(axis.describe(part) for axis, part in self.positions(index))

    def find(self, label: object) -> int:
        """Finds the part of a label, or of its number; raises ``QueryError`` if there is none."""
        labels = label if len(self.axes) > 1 and isinstance(label, tuple) else (label,)
        if len(labels) != len(self.axes):
            raise QueryError(
                f"{brief(label)} is not the label of a part; one label for each of {len(self.axes)} specs is needed."
            )
        positions = [axis.find(part_label) for axis, part_label in zip(self.axes, labels, strict=True)]
        return int(np.ravel_multi_index(positions, self.shape))


MAX_PARTS = 2**20
PART_BYTES = 200  # of a part's label and threshold, or of a value or cut point that a spec lists


class Splitting(Expression):
    """A spec: it names the parts of a table."""

    @property
    def as_spec(self) -> Splitting:
        return self

    @property
    @abstractmethod
    def factors(self) -> tuple[Factor, ...]:
        """The specs whose joint parts these are."""

    def check(self, schema: Schema) -> None:
        bind(self, schema)

    def max_parts(self, schema: Schema) -> int:
        return bind(self, schema).size


class Factor(Splitting):
    """A spec of one axis.

    Attributes:
        is_finest: Whether each part has a single value, so that the column splits no part again.
    """

    is_finest: ClassVar[bool] = False

    @property
    def factors(self) -> tuple[Factor, ...]:
        return (self,)

    @abstractmethod
    def axis(self, schema: Schema) -> tuple[Axis, Sequence[object]]:
        """Binds to a schema: the axis and its identity (kind, column, domain, parts)."""


@dataclass(frozen=True)
class OfColumn:
    """The common part of specs of one column."""

    column: str

    def __post_init__(self) -> None:
        if not isinstance(self.column, str):
            raise QueryError(f"is {self.column!r}", parameter="column", allowed="the name of a column")

    def columns(self) -> set[str]:
        return {self.column}

    def _intervals(self, column: Numeric, labels: tuple[Label, ...], thresholds: tuple[int, ...]) -> Axis:
        # A cut at 30 of 100 cells, and missing values: thresholds 30 and 100, for 100 is their code.
        if column.nullable:
            labels, thresholds = (*labels, None), (*thresholds, column.cells)
        return Axis(self.column, len(labels), labels, thresholds=thresholds)


@dataclass(frozen=True)
class Values(OfColumn, Factor):
    """One part for each declared value, or each grid cell of a numeric column; missing last.

    Examples:
        >>> import pinq
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> h.partition(pinq.Values("sex")).labels
        ['sex = Female', 'sex = Male']
    """

    is_finest = True
    kind: Literal["values"] = field(default="values", repr=False)

    def axis(self, schema: Schema) -> tuple[Axis, Sequence[object]]:
        column = schema.column(self.column)
        return Axis(self.column, column.codes, column.labels_up_to(MAX_PARTS)), [self.kind, self.column, column.digest]


@dataclass(frozen=True)
class Cuts(OfColumn, Factor):
    """``len(points) + 1`` parts of numbers or dates, from below the first point; missing last.

    Dates are cut at dates: ``Cuts("born", ["1950-01-01", date(1970, 1, 1)])``.

    Examples:
        >>> import pinq
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> h.partition(pinq.Cuts("age", [30, 45])).labels
        ['age < 30', 'age 30 to < 45', 'age >= 45']
    """

    points: TupleOf[CutPoint]
    kind: Literal["cuts"] = field(default="cuts", repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        raw: Any = (self.points,) if isinstance(self.points, (int, float, str)) else self.points
        try:
            points = tuple(raw)
            # Finite doubles, of which a request may have thousands, stand for themselves.
            plain = {*map(type, points)} == {float} and all(map(math.isfinite, points))
            object.__setattr__(self, "points", points if plain else tuple(map(_point, points)))
        except TypeError:
            raise QueryError(f"the cuts of `{self.column}` must be a list of numbers or dates, not {raw!r}.") from None

    def named(self) -> int:
        return len(self.points)

    def axis(self, schema: Schema) -> tuple[Axis, Sequence[object]]:
        column = schema.numeric(self.column)
        thresholds = tuple(column.threshold(point, self.column) for point in self.points)
        if not thresholds or any(a >= b for a, b in itertools.pairwise(thresholds)):
            raise QueryError(
                f"the cuts of `{self.column}` must increase and lie in different grid cells (width "
                f"{float(column.width):g}); they are {list(self.points)}."
            )
        edges = [column.text(column.edge(threshold)) for threshold in thresholds]
        between = (f"{low} to < {high}" for low, high in itertools.pairwise(edges))
        axis = self._intervals(column, (f"< {edges[0]}", *between, f">= {edges[-1]}"), thresholds)
        return axis, [self.kind, self.column, column.digest, axis.thresholds]


@dataclass(frozen=True)
class Groups(OfColumn, Factor):
    """One part for each listed group of values; ``None`` names the missing value.

    Rows in no group are in no part.

    Examples:
        >>> import pinq
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> h.partition(pinq.Groups("race", [["White"], ["Black", "Other"]])).labels
        ['race in {White}', 'race in {Black, Other}']
    """

    groups: TupleOf[TupleOf[Value | None]]
    kind: Literal["groups"] = field(default="groups", repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            groups = tuple((group,) if isinstance(group, (str, int)) else tuple(group) for group in self.groups)
        except TypeError:
            raise QueryError(f"the groups of `{self.column}` must be a list of lists of values.") from None
        object.__setattr__(self, "groups", groups)

    def named(self) -> int:
        return sum(map(len, self.groups))

    def axis(self, schema: Schema) -> tuple[Axis, Sequence[object]]:
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
class Ranges(OfColumn, Factor):
    """One part for each listed group of intervals of numbers or dates; ``None`` names the missing value.

    ``(18, 65)`` is from 18 on and below 65; ``None`` leaves an end open. Rows in no interval are in no part.

    Examples:
        >>> import pinq
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> h.partition(pinq.Ranges("age", [[(None, 30), (65, None)], [(30, 65)]])).labels
        ['age in {< 30, >= 65}', 'age in {30 to < 65}']
    """

    groups: TupleOf[TupleOf[Interval | None]]
    kind: Literal["ranges"] = field(default="ranges", repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            groups = tuple(tuple(None if one is None else _interval(*one) for one in group) for group in self.groups)
        except TypeError:
            allowed = "a list of groups, each a list of pairs (low, high), None for an open end"
            raise QueryError("is something else", parameter="groups", allowed=allowed) from None
        object.__setattr__(self, "groups", groups)

    def named(self) -> int:
        return 2 * sum(map(len, self.groups))

    def axis(self, schema: Schema) -> tuple[Axis, Sequence[object]]:
        column = schema.numeric(self.column)
        if not self.groups or not all(self.groups):
            raise QueryError("has no group, or an empty one", parameter="groups", allowed="groups of intervals")
        if column.codes > MAX_PARTS:
            raise QueryError(f"`{self.column}` has too many cells for Ranges: take Cuts, or declare a greater `step`.")
        lookup, labels = np.full(column.codes, -1, dtype=np.int64), list[Label]()
        for number, group in enumerate(self.groups):
            placed = [self._place(column, ends) for ends in group]
            for first, end, text in placed:
                if first >= end or (lookup[first:end] >= 0).any():
                    raise QueryError(
                        f"{text or 'the missing values'} of `{self.column}` is empty, or overlaps another interval."
                    )
                lookup[first:end] = number
            labels.append(tuple(text for *_, text in placed))
        starts = np.flatnonzero(np.diff(lookup, prepend=-2))
        identity = [self.kind, self.column, column.digest, starts.tolist(), lookup[starts].tolist()]
        return Axis(self.column, len(labels), tuple(labels), lookup=lookup), identity

    def _place(self, column: Numeric, ends: Interval | None) -> tuple[int, int, str | None]:
        """The codes [first, end) of an interval, and its label."""
        if ends is None:
            return column.cells, column.codes, None
        low, high = (None if point is None else column.threshold(point, self.column) for point in ends)
        first, end = ("" if place is None else column.text(column.edge(place)) for place in (low, high))
        text = f"{first} to < {end}" if first and end else f">= {first}" if first else f"< {end}" if end else "any"
        return low or 0, high or column.cells, text


@dataclass(frozen=True)
class Calendar(OfColumn, Factor):
    """One part for each year, quarter, month or weekday of a column of dates; missing last.

    All years, quarters and months that overlap the declared bounds are parts, in order. A date
    belongs to the period in which its grid cell begins.

    Examples:
        >>> from datetime import date
        >>> import pinq
        >>> born = pinq.Date(lower=date(1950, 1, 1), upper=date(1951, 12, 31))
        >>> h = pinq.simulate(pinq.Schema(columns={"born": born}, max_rows=100), rows=100, epsilon=1)
        >>> h.partition(pinq.Calendar("born", "year")).labels
        ['born 1950', 'born 1951']
    """

    period: Period
    kind: Literal["calendar"] = field(default="calendar", repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.period not in PERIODS:
            raise QueryError(f"is {self.period!r}", parameter="period", allowed=f"one of {', '.join(PERIODS)}")

    def axis(self, schema: Schema) -> tuple[Axis, Sequence[object]]:
        column = schema.dated(self.column)
        identity = [self.kind, self.column, column.digest, self.period]
        if self.period == "weekday":
            # A grid of days from Saturday on: 5 6 0 1 2 3 4 5 ..., and 7 for missing.
            lookup = np.append(column.weekdays(self.column), np.full(int(column.nullable), len(WEEKDAYS)))
            labels: tuple[Value | None, ...] = (*WEEKDAYS, *[None] * column.nullable)
            return Axis(self.column, len(labels), labels, lookup=lookup), identity
        names, starts = column.periods(self.period)
        thresholds = tuple(column.threshold(start, self.column) for start in starts)
        if any(a >= b for a, b in itertools.pairwise(thresholds)):
            raise QueryError(f"a cell of `{self.column}` holds more than a {self.period}; take a longer period.")
        return self._intervals(column, names, thresholds), identity


SALT_BYTES = 32  # of a new ledger's salt, which keys the draws of shards


@dataclass(frozen=True)
class Shards(Factor):
    """``count`` random disjoint parts: one keyed draw for each row, equal in all sessions.

    Another ``key`` gives other parts.

    Examples:
        >>> import pinq
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> h.partition(pinq.Shards(3, key=7)).noisy_count(epsilon=1).shape
        (3,)
    """

    count: int
    key: int = 0
    kind: Literal["shards"] = field(default="shards", repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", whole_number("count", self.count, 1, 65535))
        object.__setattr__(self, "key", whole_number("key", self.key, 0, 2**63 - 1))

    def columns(self) -> set[str]:
        return set()

    def axis(self, schema: Schema) -> tuple[Axis, Sequence[object]]:
        return Axis(None, self.count, tuple(range(self.count)), shard_key=self.key), [self.kind, self.count, self.key]


def bind(spec: Splitting, schema: Schema) -> Partition:
    """Binds a spec to a schema.

    Raises:
        QueryError: An unknown column or value, a cut out of bounds, overlapping groups, many parts.
    """
    if not isinstance(spec, Splitting):
        kinds = "Values, Cuts, Groups, Ranges, Calendar, Shards or a tuple of them"
        raise QueryError(f"{brief(spec)} is not a partition spec; use {kinds}.")
    return schema.kept.recalled(spec.identity, partial(_bind, spec, schema), lambda partition: partition.nbytes)


def _bind(spec: Splitting, schema: Schema) -> Partition:
    bound = [_bound_axis(factor, schema) for factor in spec.factors]
    columns = [axis.column for axis, _ in bound if axis.column is not None]
    if len(set(columns)) != len(columns):
        raise QueryError(f"a column stands twice among {', '.join(columns)}; name each column once.")
    identity: list[object] = [key for _, key in bound]
    if len(columns) < len(bound) or schema.privacy_unit != "row":
        # Shards and the bound of a unit's rows depend on the codes of all columns: under another
        # encoding a row could be in another part.
        identity.append(schema.row_digest)
    key = hashlib.blake2b(json.dumps(identity).encode(), digest_size=16).digest()
    partition = Partition(cast("Spec", spec), tuple(axis for axis, _ in bound), key)
    if partition.size > MAX_PARTS:
        raise QueryError(f"{brief(spec)} has {partition.size:,} parts; at most {MAX_PARTS:,} are possible.")
    return partition


def _bound_axis(factor: Factor, schema: Schema) -> tuple[Axis, Sequence[object]]:
    """The axis of a factor, which all crosses with this factor share, and its identity, which lists as much."""
    key = "axis", factor.identity
    return schema.kept.recalled(key, partial(factor.axis, schema), lambda bound: 2 * _nbytes(bound[:1], factor))


def _nbytes(axes: Sequence[Axis], spec: Splitting) -> int:
    """The bytes of a spec's axes."""
    lookups = sum(axis.lookup.nbytes for axis in axes if axis.lookup is not None)
    return PART_BYTES * max(sum(axis.size for axis in axes), spec.named()) + lookups


def _point(value: object) -> CutPoint:
    """Reads a cut point; a date stays text, because only its column can number it."""
    text = moment_text(value)
    return _number(value) if text is None else text


def _interval(low: object, high: object) -> Interval:
    return None if low is None else _point(low), None if high is None else _point(high)


def two_ends(within: object) -> tuple[CutPoint, CutPoint] | None:
    """Reads a range of numbers or dates; None for none. Raises ``QueryError`` unless it has two ends."""
    if within is None:
        return None
    if isinstance(within, (tuple, list)) and len(within) == 2:
        return _point(within[0]), _point(within[1])
    raise QueryError(f"is {within!r}", parameter="within", allowed="two numbers or dates, such as (0, 100)")


def _number(value: object) -> float:
    if isinstance(value, bool) or (not isinstance(value, (int, float, np.number)) and not hasattr(value, "as_tuple")):
        raise QueryError(f"the cut {value!r} is neither a number nor a date, which is written like 2024-01-31.")
    try:
        number = float(value)  # type: ignore[arg-type]
    except (OverflowError, ValueError):  # a Decimal that signals, too
        number = math.inf
    if not math.isfinite(number):
        raise QueryError(f"the cut {brief(value)} is not finite.")
    return number


MAX_GROUPINGS = 4096
KEPT_GROUPINGS, KEPT_VALUES = 256, 512  # cached lists of bipartitions, and the largest number of values of one


def bipartitions(column: str, seed: int, count: int) -> np.ndarray:
    """Draws bipartitions of ``count`` values, as bits of octets, shape (bipartitions, octets).

    Value i is in the first group where bit i is set, the lowest bit of an octet first. The last
    value is always in the second group, so that no bipartition appears twice.
    """
    # With 512 values, a column and seed take 256 kB.
    return (_bipartitions if count <= KEPT_VALUES else _bipartitions.__wrapped__)(column, seed, count)


@lru_cache(maxsize=KEPT_GROUPINGS)
def _bipartitions(column: str, seed: int, count: int) -> np.ndarray:
    length = (count + 7) // 8
    if count < 2 or 2 ** (count - 1) - 1 > MAX_GROUPINGS:
        octets = _drawn(column, seed, count) if count > 1 else np.zeros((0, length), dtype=np.uint8)
    else:
        # Three values: the numbers 1, 2 and 3 are the groups {a}, {b} and {a, b}.
        octets = np.arange(1, 2 ** (count - 1), dtype="<u2").view(np.uint8).reshape(-1, 2)[:, :length]
    octets.flags.writeable = False
    return octets


def _drawn(column: str, seed: int, count: int) -> np.ndarray:
    """Draws ``MAX_GROUPINGS`` different bipartitions, as bits of octets, lowest first.

    Draw i is the hash of column, seed and i, of which the lowest ``count - 1`` bits count.
    """
    start, length = f"{column}\x00{seed}\x00".encode(), (count + 7) // 8
    masks, drawn = dict[bytes, None](), 0
    while len(masks) < MAX_GROUPINGS:
        more = 64 + (MAX_GROUPINGS - len(masks)) * 9 // 8  # some are 0, or repeat
        hashes = b"".join(
            hashlib.shake_256(b"%s%d" % (start, number)).digest(length) for number in range(drawn, drawn + more)
        )
        new = np.frombuffer(hashes, dtype=np.uint8).reshape(-1, length)[:, ::-1].copy()
        # Of 10 values 9 bits count: all of the first octet, the lowest of the second.
        new[:, -1] &= 2 ** ((count - 1) % 8) - 1
        # Of the draws 5, 3, 5, 9 the third is dropped, because it is there already. Kept draws stay
        # in order, so further draws change none of them.
        masks.update(dict.fromkeys(map(bytes, new[new.any(axis=1)])))
        drawn += more
    return np.frombuffer(b"".join(itertools.islice(masks, MAX_GROUPINGS)), dtype=np.uint8).reshape(-1, length)


MAX_SEED, MAX_MEMBERS = 2**64, 100_000
MAX_CELLS = 2**62  # so that 64 bits number each
MAX_AXES = 32


class OfSpecs(Expression):
    """The common part of values that are made of several specs."""

    specs: tuple[Splitting, ...]

    def columns(self) -> set[str]:
        return set().union(*(spec.columns() for spec in self.specs))

    def named(self) -> int:
        return sum(spec.named() for spec in self.specs)


@dataclass(frozen=True)
class Cross(OfSpecs, Splitting):
    """Every combination of the parts of several specs, as one partition.

    Examples:
        >>> import pinq
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> sexes, ages = pinq.Values("sex"), pinq.Cuts("age", [40])
        >>> h.partition(pinq.Cross((sexes, ages))).labels
        ['sex = Female, age < 40', 'sex = Female, age >= 40', 'sex = Male, age < 40', 'sex =
        Male, age >= 40']
    """

    specs: TupleOf[Values | Cuts | Groups | Ranges | Calendar | Shards]
    kind: Literal["cross"] = field(default="cross", repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "specs", tuple(self.specs))
        require_kind(self.specs or (None,), Factor, "Cross takes Values, Cuts, Groups, Ranges, Calendar or Shards.")

    @property
    def factors(self) -> tuple[Factor, ...]:
        return self.specs


@dataclass(frozen=True)
class AnyCut(OfColumn, Expression):
    """A family for ``exp_mech``: every cut of a numeric column at a grid point, with mass one together.

    Examples:
        >>> import pandas as pd, pinq
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> h = pinq.simulate("policies/adult.yaml", data=rows, epsilon=10)
        >>> h.exp_mech([pinq.AnyCut("education_num")], score=pinq.Gini("income"), epsilon=5)
        Cuts(column='education_num', points=(13.0,))
    """

    kind: Literal["any_cut"] = field(default="any_cut", repr=False)

    def check(self, schema: Schema) -> None:
        schema.numeric(self.column)

    def max_parts(self, schema: Schema) -> int:
        """The number of parts of a member; missing values are a separate part."""
        return 2 + schema.numeric(self.column).nullable


@dataclass(frozen=True)
class AnyGrouping(OfColumn, Expression):
    """A family for ``exp_mech``: bipartitions of a column's values, with mass one together.

    The family has all bipartitions of the values that the splits above leave, or ``MAX_GROUPINGS`` distinct ones, drawn
    by ``seed`` (public randomness).

    Examples:
        >>> import pandas as pd, pinq
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> h = pinq.simulate("policies/adult.yaml", data=rows, epsilon=10)
        >>> h.exp_mech([pinq.AnyGrouping("relationship")], score=pinq.Gini("income"), epsilon=5)
        Groups(column='relationship', groups=(('Wife', 'Husband'), ('Own-child',
        'Not-in-family', 'Other-relative', 'Unmarried')))
    """

    seed: int = 0
    kind: Literal["any_grouping"] = field(default="any_grouping", repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_whole(self.seed, -MAX_SEED, MAX_SEED):
            raise QueryError("is something else", parameter="seed", allowed="a whole number from -2^64 to 2^64")
        object.__setattr__(self, "seed", int(self.seed))

    def check(self, schema: Schema) -> None:
        if schema.categorical(self.column).codes < 2:
            raise QueryError(f"`{self.column}` has a single value, so it cannot be grouped.")

    def max_parts(self, schema: Schema) -> int:
        """The number of parts of a member; missing values are in one of the groups."""
        return 2

    def member_bytes(self, schema: Schema) -> int:
        """The largest length of a member's text in an answer: it names all values."""
        return super().member_bytes(schema) + schema.categorical(self.column).label_bytes

    def octets(self, count: int) -> np.ndarray:
        """The values in the first group, out of ``count``, as ``bipartitions`` encodes them."""
        return bipartitions(self.column, self.seed, count)

    def member(self, labels: Sequence[Value | None], number: int) -> Groups:
        """The bipartition of this number of these labels."""
        first = np.unpackbits(self.octets(len(labels))[number], count=len(labels), bitorder="little")
        sides = [tuple(itertools.compress(labels, side.tolist())) for side in (first, 1 - first)]
        return Groups(self.column, (sides[0], sides[1]))


@dataclass(frozen=True)
class AnyCross(OfSpecs):
    """A family for ``exp_mech``: the cross of every ``size`` of the specs, with mass one together.

    ``AnyCross((Values("job"), Values("sex"), Cuts("age", (30,))), 2)`` is three candidates: job x
    sex, job x age and sex x age.

    Attributes:
        specs: ``Values`` and ``Cuts`` of different columns.
        size: The number of specs in a candidate.

    Examples:
        >>> import pandas as pd, pinq
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> h = pinq.simulate("policies/adult.yaml", data=rows, epsilon=10)
        >>> three = pinq.Values("relationship"), pinq.Values("education"), pinq.Values("race")
        >>> h.exp_mech([pinq.AnyCross(three, 2)], score=pinq.Gini("income"), epsilon=5)
        Cross(specs=(Values(column='relationship'), Values(column='education')))
    """

    specs: TupleOf[Values | Cuts]
    size: int
    kind: Literal["any_cross"] = field(default="any_cross", repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "specs", tuple(self.specs))
        require_kind(self.specs, (Values, Cuts), "AnyCross takes Values and Cuts.")
        columns = [spec.column for spec in self.specs]
        if len(set(columns)) != len(columns):
            raise QueryError(f"a column stands twice in an AnyCross of {', '.join(columns)}.")
        object.__setattr__(self, "size", whole_number("size", self.size, 1, len(columns)))
        if len(self) > MAX_MEMBERS:
            raise QueryError(
                f"there are {len(self):,} ways to take {self.size} of {len(columns)} specs; "
                f"at most {MAX_MEMBERS:,} are possible."
            )

    def __len__(self) -> int:
        return math.comb(len(self.specs), self.size)

    def check(self, schema: Schema) -> None:
        for spec in self.specs:
            spec.check(schema)

    def member(self, index: int) -> Spec:
        """Candidate ``index``, in the order of ``itertools.combinations``."""
        specs = next(itertools.islice(itertools.combinations(self.specs, self.size), index, None))
        return Cross(specs) if len(specs) > 1 else specs[0]

    def require_room(self, sizes: Sequence[int], classes: int) -> None:
        """Raises ``QueryError`` if a member has too many cells to number, given the parts of each spec."""
        cells = math.prod(sorted(sizes)[-self.size :]) * classes
        # Members that differ in their last spec are numbered side by side, at most one for each
        # spec.
        if cells * len(sizes) > MAX_CELLS:
            raise QueryError(
                f"the largest {self.size} of {len(sizes)} specs have {cells:,} joint cells, more than can be numbered. "
                "Take a smaller `size`."
            )


Spec = Values | Cuts | Groups | Ranges | Calendar | Shards | Cross
Family = AnyCut | AnyGrouping  # of one column
Candidate = Spec | Family | AnyCross

# SPDX-License-Identifier: Apache-2.0
"""What a spec means under a schema: row-wise maps from encoded columns to parts.

No data, no noise, no I/O.

Two partitions of the same part are *the same* exactly when they send every possible row to the same
place (privacy.md 1.3). ``Partition.key`` therefore digests the spec in canonical form together with
the domains of its columns: the order of two ``Groups`` or another spelling of a cut makes another
key only where parts are numbered differently.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from pinq.errors import QueryError
from pinq.public.columns import Numeric, Value
from pinq.public.spelling import closest
from pinq.public.texts import text_of

if TYPE_CHECKING:
    from pinq.public.specs import Spec

__all__ = ["Axis", "Label", "Partition"]

Label = Value | float | tuple[Value | None, ...] | None
"""What a part along an axis is called."""


@dataclass(frozen=True, eq=False)
class Axis:
    """How one column (or coin) says which part a row belongs to.

    Attributes:
        column: The encoded column; None for a shard.
        size: Number of parts.
        labels: What each part is called; empty where there are too many to list.
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
        """What a row's code is read from: the column, or the shards of this key and number."""
        return self.column if self.shard_key is None else ("shards", self.shard_key, self.size)

    @cached_property
    def identity(self) -> tuple[str, int, tuple[int, ...], bytes]:
        """What tells axes of one schema apart."""
        lookup = b"" if self.lookup is None else self.lookup.tobytes()
        return (repr(self.source), self.size, self.thresholds or (), lookup)

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

    def codes_of(self, part: int, column: Numeric) -> tuple[int, int]:
        """Returns the cells [first, end) that a part holds; none for missing values."""
        if self.thresholds is None:
            return (part, part + 1) if part < column.cells else (0, 0)
        edges = (0, *self.thresholds, column.cells)
        return edges[part], edges[part + 1]

    def describe(self, part: int) -> str:
        """Says what a part is, for people: ``sex = Female``, ``age < 30``."""
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
        """Finds the part with this label, or of this number where no label is a whole number.

        ``QueryError`` where there is none.
        """
        # Of labels 10, 20 and 30 the part 10 is found by its label, and 0 is no part. Of labels "a"
        # and "b", 0 is the first part.
        wanted = label.item() if isinstance(label, np.generic) else label
        for part, known in enumerate(self.labels):
            if type(known) is type(wanted) and known == wanted:
                return part
        # A bool is an int to Python: where True and False are the labels, 0 and 1 are no numbers of
        # parts.
        numbered = not any(isinstance(known, int) for known in self.labels)
        if numbered and type(wanted) is int and 0 <= wanted < self.size:
            return wanted
        listed = ", ".join(repr(known) for known in self.labels[:12]) + (", ..." if self.size > 12 else "")
        meant = closest(str(wanted), self.labels)
        raise QueryError(f"there is no part {wanted!r}{meant}; the parts are {listed}.")


@dataclass(frozen=True, eq=False)
class Partition:
    """A spec bound to a schema.

    Attributes:
        spec: What was bound.
        axes: A part of the partition is one part along each axis.
        key: Identifies the map from rows to numbered parts, 16 bytes.
    """

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
        return math.prod(map(int, self.shape))

    def positions(self, index: int) -> list[tuple[Axis, int]]:
        """Returns which part along each axis part ``index`` is."""
        if len(self.axes) == 1:
            return [(self.axes[0], index)]
        return list(zip(self.axes, map(int, np.unravel_index(index, self.shape)), strict=True))

    def labels(self, index: int) -> tuple[Label, ...]:
        """Returns what part ``index`` is called along each axis.

        It is a value, an interval's text, a group, or a shard's number.
        """
        return tuple(axis.labels[part] for axis, part in self.positions(index))

    def describe(self, index: int) -> str:
        """Says what part ``index`` is, for people."""
        return ", ".join(axis.describe(part) for axis, part in self.positions(index))

    def find(self, label: object) -> int:
        """Finds the part of a label, or of its number. ``QueryError`` where there is none."""
        labels = label if len(self.axes) > 1 and isinstance(label, tuple) else (label,)
        if len(labels) != len(self.axes):
            raise QueryError(
                f"{label!r} is not the label of a part; one label for each of {len(self.axes)} specs is needed."
            )
        positions = [axis.find(own) for axis, own in zip(self.axes, labels, strict=True)]
        return int(np.ravel_multi_index(positions, self.shape))

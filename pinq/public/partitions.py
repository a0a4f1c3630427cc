# SPDX-License-Identifier: Apache-2.0
"""What a partition spec means under a schema: row-wise maps from encoded columns to parts. No data, no noise, no I/O.

Two partitions of the same part are *the same* exactly when they send every possible row to the same
place (privacy.md 1.3). ``Partition.key`` therefore digests the spec in canonical form together with
the domains of its columns: the order of two ``Groups`` or another spelling of a cut makes another
key only where parts are numbered differently.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pinq.errors import QueryError
from pinq.public.schema import closest

__all__ = ["Axis", "Partition"]


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

    def find(self, label: Any) -> int:
        """The part with this label, or of this number where no label is a whole number; else ``QueryError``."""
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

    spec: Any
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
        labels = label if len(self.axes) > 1 and isinstance(label, tuple) else (label,)
        if len(labels) != len(self.axes):
            raise QueryError(
                f"{label!r} is not the label of a part; one label for each of {len(self.axes)} specs is needed."
            )
        places = [axis.find(own) for axis, own in zip(self.axes, labels, strict=True)]
        return int(np.ravel_multi_index(places, self.shape))

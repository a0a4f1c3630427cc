# SPDX-License-Identifier: Apache-2.0
"""The vocabulary that cuts a table. No data, no noise, no I/O.

A *spec* is what an analyst writes: ``Values("sex")``, ``Cuts("age", [30, 45])``. Bound to a schema
it is a ``Partition``: a row-wise map from a row to one part or to none (stability 1, privacy.md
1.1). A *family* stands for many specs, of which ``exp_mech`` chooses one.

A new spec of one axis is a class in ``factors.py``, any other one here; both are entries of
``Spec``. A new family is a class here, an entry of ``Candidate``, and the file that scores its
members (``pinq/curator/candidates``).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from pinq.errors import QueryError
from pinq.public.checks import is_whole, require_kind
from pinq.public.expressions import Expression
from pinq.public.factors import MAX_PARTS, Calendar, Cuts, Factor, Groups, OfColumn, Shards, Splitting, Values, bind
from pinq.public.groupings import sides_of
from pinq.public.partitions import Axis, Partition
from pinq.public.schema import Schema, Value
from pinq.public.untrusted import TupleOf

__all__ = [
    "MAX_PARTS",
    "AnyCross",
    "AnyCut",
    "AnyGrouping",
    "Axis",
    "Calendar",
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
MAX_MEMBERS = 100_000
MAX_CELLS = 2**62
MAX_AXES = 32


@dataclass(frozen=True)
class Cross(Splitting):
    """Every combination of the parts of several specs, as one partition."""

    specs: TupleOf[Values | Cuts | Groups | Calendar | Shards]
    kind: Literal["cross"] = field(default="cross", repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "specs", tuple(self.specs))
        require_kind(self.specs or (None,), Factor, "Cross takes Values, Cuts, Groups, Calendar or Shards.")

    def columns(self) -> set[str]:
        """The columns that its specs name."""
        return set().union(*(spec.columns() for spec in self.specs))

    def named(self) -> int:
        """What its specs list."""
        return sum(spec.named() for spec in self.specs)

    @property
    def factors(self) -> tuple[Factor, ...]:
        """Its specs."""
        return self.specs


@dataclass(frozen=True)
class AnyCut(OfColumn, Expression):
    """A family for ``exp_mech``: every cut of a numeric column at a grid point, mass one in all."""

    kind: Literal["any_cut"] = field(default="any_cut", repr=False)

    def check(self, schema: Schema) -> None:
        """``QueryError`` unless the column is numeric."""
        schema.numeric(self.column)

    def max_parts(self, schema: Schema) -> int:
        """How many parts a member makes: missing values are a part of their own."""
        return 2 + schema.numeric(self.column).nullable


@dataclass(frozen=True)
class AnyGrouping(OfColumn, Expression):
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

    specs: TupleOf[Values | Cuts]
    size: int
    kind: Literal["any_cross"] = field(default="any_cross", repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "specs", tuple(self.specs))
        require_kind(self.specs, (Values, Cuts), "AnyCross takes Values and Cuts.")
        columns = [spec.column for spec in self.specs]
        if len(set(columns)) != len(columns):
            raise QueryError(f"a column stands twice in an AnyCross of {', '.join(columns)}.")
        if not is_whole(self.size, 1, len(columns)):
            allowed = f"a whole number from 1 to {len(columns)}, its specs"
            raise QueryError(f"of AnyCross is {self.size!r}", parameter="size", allowed=allowed)
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

    def named(self) -> int:
        """What its specs list."""
        return sum(spec.named() for spec in self.specs)

    def check(self, schema: Schema) -> None:
        """``QueryError`` unless its specs bind."""
        for spec in self.specs:
            spec.check(schema)

    def member(self, index: int) -> Spec:
        """Candidate ``index``, in the order of ``itertools.combinations``."""
        specs = next(itertools.islice(itertools.combinations(self.specs, self.size), index, None))
        return Cross(specs) if len(specs) > 1 else specs[0]

    def require_room(self, sizes: Sequence[int], classes: int) -> None:
        """``QueryError`` where the cells of some member cannot be numbered.

        ``sizes`` are the parts of each spec.
        """
        cells = math.prod(sorted(sizes)[-self.size :]) * classes
        # Members that differ in their last spec are numbered side by side, at most one for each
        # spec.
        if cells * len(sizes) > MAX_CELLS:
            raise QueryError(
                f"the largest {self.size} of {len(sizes)} specs have {cells:,} joint cells, more than can be numbered. "
                "Take a smaller `size`."
            )


Spec = Values | Cuts | Groups | Calendar | Shards | Cross
Family = AnyCut | AnyGrouping  # of one column
Candidate = Spec | Family | AnyCross

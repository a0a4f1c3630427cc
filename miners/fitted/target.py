# SPDX-License-Identifier: Apache-2.0
"""A target is what a tree predicts: the classes of a column, or the mean of a numeric one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pinq.public.checks import text_of
from pinq.public.columns import CutPoint
from pinq.public.schema import Numeric, Schema, Value

__all__ = ["ENDS", "ClassTarget", "Ends", "MeanTarget", "Target", "as_array", "target_of"]

ENDS = 2  # counts of a node whose target is numeric: a row counts in parts for the lower and the upper bound
Ends = tuple[CutPoint, CutPoint] | None
"""The range to which a numeric target is clamped; None for its bounds."""
NAMED_CLASSES = 4  # in a tree's one-line text


@dataclass(frozen=True)
class ClassTarget:
    """A categorical target, whose classes a tree predicts.

    Attributes:
        name: The target's column.
        classes: Its declared values, in the order of a node's counts.
    """

    kind: ClassVar[str] = "classification"
    name: str
    classes: tuple[Value, ...]

    @property
    def n_counts(self) -> int:
        """Returns how many counts a node has."""
        return len(self.classes)

    @property
    def requirement(self) -> str:
        """Returns what a node's counts must match, as the end of a sentence."""
        return f"has {self.n_counts} classes"

    @property
    def bar_names(self) -> tuple[str, ...]:
        """Returns what the pieces of a picture's bar stand for."""
        return tuple(text_of(value) for value in self.classes)

    def __str__(self) -> str:
        more = ", ..." if len(self.classes) > NAMED_CLASSES else ""
        return f"`{self.name}` ({', '.join(str(value) for value in self.classes[:NAMED_CLASSES])}{more})"


@dataclass(frozen=True)
class MeanTarget:
    """A numeric target, whose mean a tree predicts.

    Attributes:
        name: The target's column.
        column: Its declaration.
        within: To what its values were clamped.
        classes: Always empty; it has no classes.
    """

    kind: ClassVar[str] = "regression"
    name: str
    column: Numeric
    within: Ends = None
    classes: ClassVar[tuple[Value, ...]] = ()

    @property
    def n_counts(self) -> int:
        """Returns how many counts a node has, one for each end."""
        return ENDS

    @property
    def requirement(self) -> str:
        """Returns what a node's counts must match, as the end of a sentence."""
        return f"is numeric and has {ENDS} ends"

    @property
    def bar_names(self) -> tuple[str, ...]:
        """Returns what the only piece of a picture's bar stands for."""
        return (f"mean, from {self._between}",)

    @property
    def ends(self) -> tuple[float, float]:
        """Returns the numbers to which rows are clamped, between which every mean lies."""
        first, last = self.column.cells_within(self.within, self.name)
        return self.column.number(first), self.column.number(last)

    @property
    def _between(self) -> str:
        low, high = self.column.bounds if self.within is None else map(self.column.text, self.ends)
        return f"{low} to {high}"

    def __str__(self) -> str:
        return f"`{self.name}` ({self._between})"


Target = ClassTarget | MeanTarget


def target_of(schema: Schema, name: str, within: Ends = None) -> Target:
    """Returns the target of a name. ``QueryError`` where the schema has no such column, or that no such range."""
    schema.column(name)
    numeric = schema.numeric_columns.get(name)
    if numeric is None:
        return ClassTarget(name, schema.categorical(name).values)
    numeric.cells_within(within, name)
    return MeanTarget(name, numeric, within)


def as_array(classes: Sequence[Value]) -> np.ndarray:
    """Returns class values as an array, of their own type where all have one, else of objects.

    Whole numbers beyond 64 bits stay objects.
    """
    alike = len({type(value) for value in classes}) == 1
    fits = alike and not (isinstance(classes[0], int) and any(abs(int(value)) >= 2**63 for value in classes))
    return np.array(classes) if fits else np.array(classes, dtype=object)

# SPDX-License-Identifier: Apache-2.0
"""``CrossTable`` is what ``crosstab`` asks: cells, perhaps margins, and what is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import pandas as pd

from miners.tables.arguments import divided
from miners.tables.cells import NONNEGATIVE, Cells, CountQuestion, margin_frame
from miners.tables.margins import Kept, agreeing, nearest_nonnegative, subsets, summed
from miners.tables.table import Draft, Picture, Table
from pinq.analyst.queryable import Parts, PrivateQueryable
from pinq.public.epsilon import Epsilon
from pinq.public.specs import Spec

__all__ = ["CrossTable", "Margins"]

Margins = bool | Literal["asked"]
ASKED = "each margin was asked by itself, at an equal share of epsilon, so sums of cells differ from it by noise"
CONSISTENT = (
    "cells and margins were moved to the nearest ones that agree; intervals are those of the counts as asked, widened "
    "where a number was moved out"
)
MARGINS = "margins are the sums of the cells, so they agree with them; their intervals are wider than a count's"


@dataclass(frozen=True)
class CrossTable:
    """A table of counts over several axes.

    Attributes:
        axes: What makes each axis.
        level: Of the intervals.
        margins: Whether to add sums, or to ask for them.
        consistent: Whether margins that were asked are made to agree.
        nonnegative: Whether counts are made to be at least 0.
    """

    axes: tuple[Spec, ...]
    level: float
    margins: Margins
    consistent: bool
    nonnegative: bool

    def draft(self, handle: PrivateQueryable, epsilon: Epsilon, *, reuse: bool) -> Draft:
        """Says what will be asked: the cells, and each margin that is asked by itself."""
        whole = tuple(range(len(self.axes)))
        tables = subsets(len(self.axes)) if self.margins == "asked" else [whole]
        shares = divided(epsilon, [1] * len(tables))
        questions = {
            kept: CountQuestion(self._parts(handle, kept), share, self.level, reuse)
            for kept, share in zip(tables, shares, strict=True)
        }
        title, notes = self._title(whole), self._notes()
        lines = tuple(question.line(handle.schema, self._title(kept)) for kept, question in questions.items())
        charged = sum((line.epsilon for line in lines), Fraction(0))
        picture: Picture = "heat" if len(self.axes) == 2 else "bars"

        def answer() -> Table:
            answered = {kept: question.ask() for kept, question in questions.items()}
            frame, scale = self._frames(answered)
            return Table(title, frame, scale, charged, self.level, notes, picture)

        return Draft(title, lines, answer, notes)

    def _frames(self, answered: Mapping[Kept, Cells]) -> tuple[pd.DataFrame, pd.Series]:
        """Returns the table and its scales."""
        if self.margins == "asked":
            return self._asked_margins(answered)
        (cells,) = answered.values()
        if self.nonnegative:
            cells = cells.nonnegative()
        return cells.with_margins(self.level) if self.margins else (cells.frame(), cells.scales())

    def _asked_margins(self, answered: Mapping[Kept, Cells]) -> tuple[pd.DataFrame, pd.Series]:
        """Writes a table and margins that were asked by themselves below each other."""
        # By the axes that each keeps: (0, 1) the table, (0,) and (1,) its margins, () the total.
        tables = {kept: margin.values for kept, margin in answered.items()}
        if self.consistent:
            cells = agreeing(tables)
            cells = nearest_nonnegative(cells) if self.nonnegative else cells
            tables = {kept: summed(cells, kept) for kept in tables}
        elif self.nonnegative:
            tables = {kept: nearest_nonnegative(values) for kept, values in tables.items()}
        frame, *_ = (margin.frame() for margin in answered.values())
        frames, scales = [], []
        for kept, margin in answered.items():
            own = margin
            if self.consistent or self.nonnegative:
                own = margin.moved(tables[kept].reshape(margin.values.shape), cut=self.nonnegative)
            frames.append(margin_frame(frame, kept, own.values, own.low, own.high))
            scales.append(own.scales())
        return pd.concat(frames, ignore_index=True), pd.concat(scales, ignore_index=True)

    def _parts(self, handle: PrivateQueryable, kept: Kept) -> Parts:
        """Returns the parts that a margin counts; all rows where it keeps no axis."""
        return handle.partition(*(self.axes[axis] for axis in kept)) if kept else handle.parts()

    def _title(self, kept: Kept) -> str:
        names = [", ".join(sorted(self.axes[axis].columns())) or "shard" for axis in kept]
        return f"rows by {' and '.join(names)}" if names else "all rows"

    def _notes(self) -> tuple[str, ...]:
        notes = [ASKED if self.margins == "asked" else MARGINS] if self.margins else []
        notes += [CONSISTENT] if self.consistent else []
        return (*notes, *([NONNEGATIVE] if self.nonnegative else []))

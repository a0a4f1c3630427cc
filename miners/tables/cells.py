# SPDX-License-Identifier: Apache-2.0
"""Noisy counts of parts with their intervals, as a table with or without the sums over its axes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pandas as pd

from miners.budget.plan import PlanLine
from miners.tables.columns import ALL, count_line
from miners.tables.margins import Kept, nearest_nonnegative, subsets, summed
from miners.tables.noise import half_width, scale_of
from pinq.analyst.answers import NoisyArray
from pinq.analyst.queryable import Parts
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Schema

__all__ = ["NONNEGATIVE", "Cells", "CountQuestion", "margin_frame"]

NONNEGATIVE = (
    "cells were moved to the nearest table without negative numbers that has the same total; "
    "small cells are too large on average, and their intervals are those of the noisy counts, cut at 0"
)


@dataclass(frozen=True)
class CountQuestion:
    """One question for counts: of which parts, at which loss and level."""

    parts: Parts
    epsilon: Epsilon
    level: float
    reuse: bool

    def line(self, schema: Schema, asked: str) -> PlanLine:
        return count_line(schema, asked, len(self.parts), self.epsilon)

    def ask(self) -> Cells:
        values = self.parts.noisy_count(epsilon=self.epsilon.exact, reuse=self.reuse)
        low, high = values.interval(self.level)
        return Cells(self.parts, values, +values, low, high)


@dataclass(frozen=True)
class Cells:
    """Noisy counts with their intervals, all of the parts' shape."""

    parts: Parts
    answer: NoisyArray
    values: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def frame(self) -> pd.DataFrame:
        """A row for each part."""
        return self.parts.frame(self.values).assign(low=self.low.reshape(-1), high=self.high.reshape(-1))

    def scales(self) -> pd.Series:
        """The scale of each count."""
        return pd.Series(np.full(self.values.size, scale_of(self.answer)), name="scale")

    def moved(self, values: np.ndarray, *, cut: bool = False) -> Cells:
        """Puts other counts into the place of the noisy ones; intervals hold them too.

        Args:
            values: The counts.
            cut: Whether the intervals end at 0, as all counts do.
        """
        ends = (np.maximum(self.low, 0), np.maximum(self.high, 0)) if cut else (self.low, self.high)
        low, high = np.minimum(ends[0], values), np.maximum(ends[1], values)
        return Cells(self.parts, self.answer, values, low, high)

    def nonnegative(self) -> Cells:
        """Moves counts to the nearest table of the same total without negative numbers."""
        return self.moved(nearest_nonnegative(self.values), cut=True)

    def with_margins(self, level: float) -> tuple[pd.DataFrame, pd.Series]:
        """Adds the sums over each subset of the axes, with intervals of sums of noises."""
        frame = self.frame()
        frames, scales, scale = [frame], [self.scales()], scale_of(self.answer)
        for kept in subsets(self.values.ndim)[1:]:
            # Of 3 x 4 cells, a sum of each row has 4 noises, and the total 12.
            exact, noises = summed(+self.answer, kept), self.values.size // max(1, summed(self.values, kept).size)
            half = int(half_width(np.ones(1), scale, level, times=noises))
            frames.append(margin_frame(frame, kept, summed(self.values, kept), exact - half, exact + half))
            scales.append(pd.Series(np.full(exact.size, np.nan)))
        return pd.concat(frames, ignore_index=True), pd.concat(scales, ignore_index=True)


def margin_frame(
    cells: pd.DataFrame, kept: Kept, values: np.ndarray, low: np.ndarray, high: np.ndarray
) -> pd.DataFrame:
    """Writes a margin with the labels of the cells' table, ``ALL`` where it sums."""
    names = [name for name in cells.columns if name not in ("value", "low", "high")]
    labels = [list(dict.fromkeys(cells[name])) if axis in kept else [ALL] for axis, name in enumerate(names)]
    keys = pd.DataFrame(list(itertools.product(*labels)), columns=names, dtype=object)
    return keys.assign(value=np.ravel(values), low=np.ravel(low), high=np.ravel(high))

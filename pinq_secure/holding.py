# SPDX-License-Identifier: Apache-2.0
"""``Holding`` has the encoded rows of one party."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Holding:
    """One party's rows, encoded: the distinct rows, and how often each occurs.

    Attributes:
        codes: The value of each attribute, then of the target; shape (attributes + 1, distinct rows).
        counts: Shape (distinct rows,).
    """

    codes: np.ndarray
    counts: np.ndarray

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.counts.sum())

    @cached_property
    def each(self) -> np.ndarray:
        """Every single row, shape (attributes + 1, rows)."""
        return np.repeat(self.codes, self.counts, axis=1)

    @staticmethod
    def joined(holdings: Sequence[Holding]) -> Holding:
        """All rows of several parties, as one holding."""
        codes = np.concatenate([holding.codes for holding in holdings], axis=1)
        return Holding(codes, np.concatenate([holding.counts for holding in holdings]))

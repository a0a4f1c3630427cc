# SPDX-License-Identifier: Apache-2.0
"""``FineNumbers`` is a fine histogram of one numeric column, by which synthetic numbers lie in their cells.

The model of a synthesizer has about ten cells a column, in which frequent values such as 36 and 60 are lost. Round
whole numbers are frequent, so each is a piece: loans of 10,000 are apart from larger ones. The pieces of each cell are
denoised: they shrink to even shares as far as noise explains their differences, and are then made nonnegative with the
same sum, so most pieces without rows get none.

Privacy:
    Claim: drawing is free. Why: the pieces follow from earlier answers, and the purchase pays for their one noisy
    count. Held by: tests/unit/synthesizer/test_fine_numbers.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from miners.synthesizer.graphical_model import TINY
from miners.tables.counts import nearest_nonnegative
from pinq.language.specs import Cuts
from pinq.public.schema import Numeric

PIECES = 16  # the pieces of an empty cell; a cell with an even share of the rows has twice as many
HIDING = 2.0  # deviations of the noise behind which rows may be hidden


Interval: TypeAlias = tuple[int, int]
"""The first grid cell, and the first beyond the interval."""


@dataclass(frozen=True, eq=False)
class FineNumbers:
    """A fine histogram of a column.

    Attributes:
        starts: The first grid cell of each piece, increasing from 0, shape (pieces,).
        counts: Noisy rows of each piece, shape (pieces,).
        deviation: The deviation of the noise in each count.
        unsure: The deviation of the noise in the column's mean, in its units; None if it is unknown.
        hidden: The largest part of the column's variance that noise hides (``HIDING``); None if it is unknown.
    """

    starts: np.ndarray
    counts: np.ndarray
    deviation: float
    unsure: float | None = None
    hidden: float | None = None

    def spec(self, column: Numeric, name: str) -> Cuts:
        return Cuts(name, tuple(column.cut_before(start) for start in self.starts[1:].tolist()))

    def ends(self, column: Numeric) -> np.ndarray:
        """The least and the largest number of each piece, shape (2, pieces)."""
        edges = float(column.lower) + float(column.width) * np.append(self.starts, column.cells)
        return np.array([edges[:-1], edges[1:] - float(column.width) * column.integer])

    def tenths(self, shares: np.ndarray, parts: int) -> np.ndarray:
        """The first grid cells of ``parts`` intervals of about equal shares, from the shares of pieces."""
        cumulative = shares.cumsum() / max(float(shares.sum()), TINY)
        places = np.searchsorted(cumulative, np.arange(1, parts) / parts) + 1
        return np.append(0, np.unique(self.starts[places[places < len(self.starts)]]))

    def shares(self, firsts: np.ndarray, cells: np.ndarray) -> np.ndarray:
        """Returns the share of each piece, from the shares of the model's cells."""
        shares_of_pieces = np.zeros(len(self.starts))
        for cell, pieces in self._homes(firsts):
            shares_of_pieces[pieces] = cells[cell] * self._shares(pieces)
        return shares_of_pieces

    def weights(self, firsts: np.ndarray, last: int, within: Interval) -> np.ndarray:
        """Returns the share of each cell of the model within an interval; arguments as of ``drawn``."""
        return np.array([float(self._inside(pieces, last, within)[2].sum()) for _, pieces in self._homes(firsts)])

    def drawn(
        self, firsts: np.ndarray, cells: np.ndarray, last: int, random: np.random.Generator, within: Interval
    ) -> np.ndarray:
        codes = np.zeros(len(cells), dtype=np.int64)
        for cell, pieces in self._homes(firsts):
            rows = np.flatnonzero(cells == cell)
            low, high, shares = self._inside(pieces, last, within)
            if len(rows) and shares.sum() > 0:
                chosen = random.choice(len(pieces), len(rows), p=shares / shares.sum())
                codes[rows] = random.integers(low[chosen], high[chosen])
        return codes

    def _homes(self, firsts: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        home = np.searchsorted(firsts, self.starts, side="right") - 1
        for cell in range(len(firsts)):
            yield cell, np.flatnonzero(home == cell)

    def _inside(self, pieces: np.ndarray, last: int, within: Interval) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The first grid cell of each piece within an interval, the first beyond it, and the piece's share there."""
        low = np.clip(self.starts[pieces], *within)
        high = np.maximum(low, np.clip(np.append(self.starts, last)[pieces + 1], *within))
        return low, high, self._shares(pieces) * (high - low) / np.diff(self.starts, append=last)[pieces]

    def _shares(self, pieces: np.ndarray) -> np.ndarray:
        widths = np.diff(self.starts)
        even = np.append(widths, widths.max(initial=1))[pieces]  # as if the last piece were as wide as any
        even, counts = even / even.sum(), self.counts[pieces]
        total = max(float(counts.sum()), self.deviation)
        signal = max(float(np.mean((counts - even * total) ** 2)) - self.deviation**2, 0.0)
        weight = signal / (signal + self.deviation**2)
        shares = nearest_nonnegative(even + weight * (counts - even * counts.sum()) / total)
        return np.asarray(shares / shares.sum())

    def to_list(self) -> list[Any]:
        return [self.starts.tolist(), self.counts.tolist(), self.deviation, self.unsure, self.hidden]


def pieces(firsts: np.ndarray, shares: np.ndarray, column: Numeric) -> np.ndarray:
    """The first grid cells of pieces: more pieces in cells with more rows; ``firsts`` if all cells are fine."""
    starts = [np.zeros(0, dtype=np.int64)]
    for first, end, share in zip(firsts, firsts[1:], shares, strict=False):
        number = min(int(end - first), PIECES + round(PIECES * len(shares) * float(share)))
        if column.integer and not column.unit and number < (end - first) / 2:
            inner = _round_numbers(first, end, number, column)
        else:
            inner = np.linspace(first, end, number + 1)
        starts.append(np.unique(np.rint(inner).astype(np.int64))[:-1])
    return np.unique(np.concatenate([*starts, firsts[:-1]]))


def _round_numbers(first: int, end: int, number: int, column: Numeric) -> np.ndarray:
    """The ends of about ``number`` pieces: each round number is a piece, and all numbers up to the next one."""
    # From 0 to 5,000 in 43 pieces: 0, 1 to 249, 250, 251 to 499, and so on.
    lower, width = float(column.lower), float(column.width)
    least = 2 * width * float(end - first) / (number - 3)
    power = 10.0 ** math.floor(math.log10(least))
    step = power * next(digit for digit in (1, 2, 2.5, 5, 10) if digit * power >= least)
    numbers = step * np.arange(math.ceil((lower + width * first) / step), math.ceil((lower + width * end) / step))
    return np.concatenate([[first], (numbers - lower) / width, (numbers - lower) / width + 1, [end]])


def fine_of(stored: Any, firsts: Mapping[str, np.ndarray]) -> dict[str, FineNumbers]:
    """Reads results of ``to_list``, by column; raises ``ValueError`` for anything else."""
    by_column = {}
    for name, (starts, counts, deviation, *unsure) in dict(stored).items():
        finite = [
            None if number is None else np.asarray_chkfinite(number, dtype=np.float64).item() for number in unsure
        ]
        numbers = FineNumbers(
            np.array(starts, dtype=np.int64), np.asarray_chkfinite(counts, dtype=np.float64), float(deviation), *finite
        )
        if min((number for number in finite if number is not None), default=0.0) < 0:
            raise ValueError(f"the noise of the fine numbers of {name!r} is negative")
        fits = name in firsts and numbers.starts.shape == numbers.counts.shape and 0 < numbers.deviation < np.inf
        if not fits or not (np.diff(numbers.starts) > 0).all() or not np.isin(firsts[name][:-1], numbers.starts).all():
            raise ValueError(f"the fine numbers of {name!r} fit no column")
        if numbers.starts[0] or numbers.starts[-1] >= firsts[name][-1]:
            raise ValueError(f"the fine numbers of {name!r} are beyond its bounds")
        by_column[name] = numbers
    return by_column

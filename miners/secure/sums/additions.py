# SPDX-License-Identifier: Apache-2.0
"""What parties add up: counts of rows, or derivatives of a public loss in whole units.

Noise of many units takes long to draw jointly, so derivatives, whose own units are 2^-16 rows, are
first rounded to coarser ones by each party: up or down at random, so that no sum is biased.

Privacy:
    Claim: noise DLap(``sensitivity`` / epsilon) in every number hides a row at loss epsilon.
    Why: counts: a row is in one cell. Derivatives: a party's exact sums S become
    floor((S + U) / step), one U for each number, uniform on 0 .. step - 1 and drawn without a look
    at any row. For whatever U a row whose vector moves S_i by v_i moves the rounded number by less
    than |v_i| / step + 1, and by nothing where v_i = 0. A vector has ``width`` entries, all in one
    cell, of L1 norm at most ``bound``: in all at most bound / step + width units, which is whole,
    so its floor. Held by: tests/unit/secure/test_secure_scorecard.py, exhaustively on small tables.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from miners.federated.federation import HolderQuestion, Sums
from miners.secure.mpc.noise import Below
from miners.secure.sums.own_rows import OwnRows
from pinq.errors import QueryError
from pinq.public.derivatives import Derivatives
from pinq.public.parts import PartSet
from pinq.public.schema import Schema
from pinq.public.specs import bind

__all__ = ["Addition", "Units", "addition_of", "most_units", "require_sums"]

FINENESS = 32  # units to an entry of a vector, at least: rounding adds at most a thirty-second of noise


@dataclass(frozen=True)
class Units:
    """The whole units of a loss's rounded sums.

    Attributes:
        step: Units of the loss itself to one.
        sensitivity: How many a row moves in all numbers together.
        unit: One of them in the loss's natural units.
    """

    step: int
    sensitivity: int
    unit: float

    @classmethod
    def of(cls, loss: Derivatives, schema: Schema) -> Self:
        """Returns the coarsest power of two that makes ``FINENESS`` units an entry of the bound."""
        # Vectors of two entries and a bound of 65,536 units: 65,536 // (32 * 2) = 1,024, so 1,024
        # of the loss's units make one, and a row moves at most 64 + 2 of these.
        vectors = loss.vectors(schema)
        step = 1 << max(0, (vectors.bound // (FINENESS * vectors.width)).bit_length() - 1)
        rounding = vectors.width if step > 1 else 0
        return cls(step, vectors.bound // step + rounding, step / loss.unit)

    def rounded(self, sums: np.ndarray, below: Below = secrets.randbelow) -> np.ndarray:
        """Rounds exact sums to whole units, each up or down at random.

        Args:
            sums: In the loss's own units, int64.
            below: Draws a number below its argument; the operating system's by default.
        """
        # In steps of 4, a sum of 10 becomes 2 for the draws 0 and 1, and 3 for 2 and 3: 2.5 on
        # average.
        moved = [(total + below(self.step)) // self.step for total in sums.ravel().tolist()]
        return np.array(moved, dtype=np.int64).reshape(sums.shape)


def most_units(width: int) -> int:
    """Returns how many units a row moves at most in sums of so many entries, whatever the loss.

    A step is more than half of bound / (``FINENESS`` width), so bound / step is less than twice
    ``FINENESS`` units an entry; rounding adds one to each.
    """
    return (2 * FINENESS + 1) * width


@dataclass(frozen=True)
class Addition:
    """One question as parties answer it.

    Attributes:
        parts: Of which parts.
        sums: The derivatives to add up in the cells of a spec; None to count rows.
        schema: The public columns.
    """

    parts: PartSet
    sums: Sums | None
    schema: Schema

    @cached_property
    def units(self) -> Units:
        """In which the numbers are whole."""
        return Units(1, 1, 1) if self.sums is None else Units.of(self.sums.loss, self.schema)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the numbers: a count of each part, or a vector in each cell."""
        if self.sums is None:
            return self.parts.shape
        return bind(self.sums.by, self.schema).size, self.sums.loss.vectors(self.schema).width

    @property
    def identity(self) -> bytes:
        """What is added up, digested with the parts."""
        return b"" if self.sums is None else repr((self.sums.loss.identity, self.sums.by.identity)).encode()

    def table(self, rows: OwnRows, below: Below) -> np.ndarray:
        """Returns a party's own numbers, in whole units; only ever to be shared."""
        if self.sums is None:
            return rows.table(self.parts)
        return self.units.rounded(rows.derivatives(self.parts, self.sums, self.schema), below)


def addition_of(question: HolderQuestion, parts: PartSet, schema: Schema) -> Addition:
    """Returns what a question adds up. ``QueryError`` where parties cannot answer it."""
    require_sums(question.verb)
    if question.sums is not None:
        if len(parts) != 1:
            raise QueryError(f"sums of derivatives are asked of one part, not of {len(parts):,}.")
        question.sums.loss.check(schema)
    return Addition(parts, question.sums, schema)


def require_sums(verb: str) -> None:
    """Raises ``QueryError`` unless a question asks for counts or sums."""
    if verb not in ("noisy_count", "noisy_sum"):
        raise QueryError(
            f"parties that add up their counts cannot answer {verb}; use strategy='secure' or 'noisy_counts'."
        )

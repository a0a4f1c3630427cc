# SPDX-License-Identifier: Apache-2.0
"""What parties add up: counts of rows, or derivatives of a public loss in whole units.

``OwnRows`` counts one party's rows by any parts, exactly; the counts must only ever be shared.
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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from miners.federated.federation import HolderQuestion, Sums
from miners.federated.growing import first_codes
from miners.fitted.route import Frame, encode
from miners.secure.id3.task import Task
from miners.secure.mpc.noise import Below
from pinq.errors import QueryError
from pinq.public.derivatives import Derivatives
from pinq.public.parts import Part, PartSet
from pinq.public.schema import Schema
from pinq.public.specs import Axis, Partition, bind
from pinq.secure_computation import Holding

__all__ = ["Addition", "OwnRows", "Units", "addition_of", "most_units", "require_sums"]


class OwnRows:
    """One party's rows.

    Args:
        codes: Of each column that may be asked for a code of each distinct row, or another code
            that no question tells apart from it.
        counts: How often each occurs.
    """

    def __init__(self, codes: Mapping[str, np.ndarray], counts: np.ndarray) -> None:
        self._codes, self._counts = codes, counts
        self._rows: dict[bytes, np.ndarray] = {Part().key: np.arange(len(counts))}

    @classmethod
    def of_holding(cls, task: Task, holding: Holding) -> OwnRows:
        """Takes a session's holding: rows known by the values that the splits tell apart."""
        *attributes, classes = holding.codes
        codes = {task.target: classes}
        for split, values in zip(task.splits, attributes, strict=True):
            codes[split.column] = first_codes(bind(split, task.schema).axes[0])[values]
        return cls(codes, holding.counts)

    @classmethod
    def of_tables(cls, schema: Schema, tables: Sequence[Frame]) -> OwnRows:
        """Takes all rows of several tables.

        Those with an undeclared value are left out, as behind pinq's wall.
        """
        codes = {name: np.concatenate([encode(schema, name, table) for table in tables]) for name in schema.columns}
        known = np.all([column >= 0 for column in codes.values()], axis=0)
        counts = np.ones(int(known.sum()), dtype=np.int64)
        return cls({name: column[known] for name, column in codes.items()}, counts)

    def table(self, parts: PartSet) -> np.ndarray:
        """Counts the rows of each part, shape ``parts.shape``."""
        counts = [self._block(self._within(block.part), block.partition) for block in parts.blocks]
        return np.concatenate(counts or [np.zeros(0, dtype=np.int64)]).reshape(parts.shape)

    def derivatives(self, parts: PartSet, sums: Sums, schema: Schema) -> np.ndarray:
        """Adds up derivatives over the rows of one part, exactly, shape (cells, width)."""
        (part,) = parts
        rows, vectors = self._within(part), sums.loss.vectors(schema)
        # A row that occurs three times adds three times its vector.
        places = [self._places(axis, rows) for axis in vectors.inputs]
        weighted = vectors.of(places) * self._counts[rows]
        cells = bind(sums.by, schema)
        totals = np.zeros((cells.size + 1, vectors.width), dtype=np.int64)
        np.add.at(totals, self._cells(cells, rows), weighted.T)
        return totals[: cells.size]

    def _places(self, axis: Axis, rows: np.ndarray) -> np.ndarray:
        """Finds each row's place along an axis, ``axis.size`` for none."""
        places = axis.parts_of(self._codes[str(axis.column)][rows])
        return np.where(places < 0, axis.size, places)

    def _block(self, rows: np.ndarray, partition: Partition | None) -> np.ndarray:
        if partition is None:
            return self._counts[rows].sum(keepdims=True)
        counts = np.bincount(self._cells(partition, rows), self._counts[rows], partition.size + 1)
        return counts[: partition.size].astype(np.int64)

    def _within(self, part: Part) -> np.ndarray:
        """Selects the rows of a part; remembered, for those below it are asked next."""
        if part.key not in self._rows:
            assert part.parent is not None
            assert part.partition is not None
            # Rows 0, 2 and 5 are women, and their jobs are parts 1, 0 and 1: women of job 1 are the
            # rows 0 and 5.
            above = self._within(part.parent)
            self._rows[part.key] = above[self._cells(part.partition, above) == part.index]
        return self._rows[part.key]

    def _cells(self, partition: Partition, rows: np.ndarray) -> np.ndarray:
        """Finds the part of a partition in which each row lies, ``partition.size`` for none."""
        positions = np.stack([axis.parts_of(self._codes[str(axis.column)][rows]) for axis in partition.axes])
        inside = (positions >= 0).all(axis=0)
        cells = np.full(len(rows), partition.size)
        cells[inside] = np.ravel_multi_index(tuple(positions[:, inside]), partition.shape)
        return cells


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
    """Returns what a question adds up. Raises ``QueryError`` if parties cannot answer it."""
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

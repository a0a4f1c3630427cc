# SPDX-License-Identifier: Apache-2.0
"""A table as small unsigned integers: what encoding makes, and all that counting reads.

It comes in blocks of rows. A block keeps each column's codes side by side, in the smallest type
that holds them. Blocks are independent of each other: any thread or process may locate and count
the rows of one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pinq.public.schema import Schema

__all__ = ["BLOCK_ROWS", "Codes", "RowBlock", "kinds_of", "smallest"]

# Rows of a block: a few columns of one fit into a core's cache.
BLOCK_ROWS = 2**18


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Some rows of an encoded table. It can be pickled.

    Attributes:
        columns: The codes of each column, unsigned, shape (rows,). Shards are columns too, by their
            axis' ``source``.
        rows: How many there are.
    """

    columns: Mapping[Hashable, np.ndarray]
    rows: int

    @classmethod
    def from_arrow(cls, encoded: pa.Table | pa.RecordBatch, schema: Schema) -> RowBlock:
        """Reads what ``encode`` made: columns ``c0``, ``c1``, ... are the schema's, in order."""
        columns: dict[Hashable, np.ndarray] = {
            name: encoded[f"c{number}"].to_numpy() for number, name in enumerate(schema.columns)
        }
        return cls(columns, encoded.num_rows)

    def rows_in(self, part: slice) -> RowBlock:
        """Some rows of it, as views."""
        columns = {source: codes[part] for source, codes in self.columns.items()}
        return RowBlock(columns, len(range(*part.indices(self.rows))))


class Codes:
    """An encoded table.

    Args:
        blocks: Its rows.
        schema: Its columns.
        problem: Says what keeps them from being read, empty for nothing; it reads none.

    Attributes:
        rows: How many there are.
        nbytes: Bytes of all codes.
    """

    def __init__(self, blocks: Iterable[RowBlock], schema: Schema, problem: Callable[[], str] = str) -> None:
        self.problem = problem
        self.blocks: Sequence[RowBlock] = tuple(blocks)
        self.rows = sum(block.rows for block in self.blocks)
        self.nbytes = self.rows * sum(kind.itemsize for kind in kinds_of(schema).values())


def smallest(count: int) -> np.dtype[np.unsignedinteger]:
    """The smallest unsigned type that holds 0 .. count - 1."""
    return np.min_scalar_type(max(0, count - 1))


def kinds_of(schema: Schema) -> dict[str, np.dtype[np.unsignedinteger]]:
    """The type that each column's codes have."""
    return {name: smallest(column.codes) for name, column in schema.columns.items()}

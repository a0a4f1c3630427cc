# SPDX-License-Identifier: Apache-2.0
"""The work of Spark's workers without Spark: a frame of this process that hands batches to the very same functions.

``open_engine(policy, data=Frame.of(table))`` encodes, bounds, tosses coins, counts and adds up as inside Spark, each function pickled
on its way. Java, shuffles over a network and lost workers are left to ``make test-spark``.
"""

from __future__ import annotations

import pickle
import re
import zlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pinq.engine.codes import Codes, RowBlock
from pinq.engine.spark import BLOCKS, SparkEngine, _block, _Encoded, _schema
from pinq.public.policy import Policy
from pinq.public.schema import Schema

__all__ = ["Frame", "codes_of", "workers_over"]

PARTITIONS = 2
SUMMARY = re.compile(r"(sum|count)\((?:DISTINCT )?(\w+)\) AS (\w+)")


class Frame:
    """Partitions of batches, with as much of a frame of Spark as the engine uses.

    Args:
        partitions: The batches of each.
        schema: Of the batches, which may be none.
    """

    def __init__(self, partitions: Sequence[Sequence[pa.RecordBatch]], schema: pa.Schema) -> None:
        self.partitions, self.schema, self.sparkSession = partitions, schema, self
        self.conf = {"spark.sql.shuffle.partitions": str(PARTITIONS)}

    @classmethod
    def of(cls, table: pa.Table) -> Frame:
        """A table in as many partitions as there are workers."""
        half = table.num_rows // 2
        return cls([table.slice(0, half).to_batches(), table.slice(half).to_batches()], table.schema)

    @property
    def columns(self) -> list[str]:
        return self.schema.names

    def mapInArrow(self, work: Any, schema: str) -> Frame:
        made = [list(pickle.loads(pickle.dumps(work))(iter(batches))) for batches in self.partitions]
        return Frame(made, _schema(schema))

    def repartition(self, partitions: int, column: str) -> Frame:
        """Equal values of the column come together."""
        dealt: list[list[pa.RecordBatch]] = [[] for _ in range(partitions)]
        for batch in self._batches():
            for row, value in enumerate(batch[column].to_pylist()):
                dealt[zlib.crc32(str(value).encode()) % partitions].append(batch.slice(row, 1))
        return Frame(dealt, self.schema)

    def selectExpr(self, *columns: str) -> Frame:
        """Columns by their names, and sums and numbers of distinct values of all rows, as Spark calls them."""
        table, answers = self._table(), {}
        for column in columns:
            if column.startswith("`"):
                answers[column[1:-1].replace("``", "`")] = table[column[1:-1].replace("``", "`")]
            else:
                kind, source, name = SUMMARY.fullmatch(column).groups()  # type: ignore[union-attr]
                whole = pc.sum(table[source]) if kind == "sum" else pc.count_distinct(table[source])
                answers[name] = pa.array([whole.as_py()])
        return Frame.of(pa.table(answers))

    def persist(self) -> Frame:
        return self

    unpersist = persist

    def addTag(self, tag: str) -> None:
        """Nothing that runs here is stopped."""

    removeTag = interruptTag = addTag

    def collect(self) -> list[tuple[Any, ...]]:
        return [row for batch in self._batches() for row in zip(*(own.to_pylist() for own in batch), strict=True)]

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for batches in self.partitions:
            yield from batches

    def _table(self) -> pa.Table:
        return pa.Table.from_batches(self._batches(), self.schema)


def codes_of(rows: Iterable[Sequence[int]], schema: Schema) -> Codes:
    """Rows of codes as a table of them."""
    table = np.array([*rows], dtype=np.int64).reshape(-1, len(schema.columns))
    kinds = [np.min_scalar_type(column.codes - 1) for column in schema.columns.values()]
    columns: dict[Hashable, np.ndarray] = {
        name: table[:, place].astype(kind) for place, (name, kind) in enumerate(zip(schema.columns, kinds, strict=True))
    }
    return Codes([RowBlock(columns, len(table))] if len(table) else [], schema)


def workers_over(codes: Codes, policy: Policy, salt: bytes) -> SparkEngine:
    """An engine whose workers hold these codes, half of them each."""
    partitions: list[list[pa.RecordBatch]] = [[] for _ in range(PARTITIONS)]
    for block in codes.blocks:
        table = pa.table({f"c{number}": own for number, own in enumerate(block.columns.values())})
        half = table.num_rows // 2
        for number, share in enumerate((table.slice(0, half), table.slice(half))):
            if share.num_rows:
                partitions[number].append(_block(share, f"task {number}"))
    frame: Any = Frame(partitions, _schema(BLOCKS))
    return SparkEngine(_Encoded(frame, policy, salt))

# SPDX-License-Identifier: Apache-2.0
"""The work of Spark's workers without Spark: a frame of this process that passes batches to the same functions.

``open_engine(policy, data=Frame.of(table))`` encodes, bounds units, draws coins, counts and adds up as inside Spark,
with each function pickled. ``make test-spark`` tests Java, shuffles over a network and lost workers.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from pinq.engine.codes import Codes, RowBlock
from pinq.engine.spark import PARTITION, SparkEngine, _block, _blocks, _Encoded, _schema, _sent
from pinq.policy.policy import Policy
from pinq.public.schema import Schema

__all__ = ["Frame", "codes_of", "workers_over"]

PARTITIONS = 2


class Frame:
    """Partitions of batches, with those methods of Spark's frames that the engine uses.

    Args:
        partitions: The batches of each.
        schema: The schema of the batches; there may be no batch.
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
        """Columns by their names, and the partition's number, as Spark calls them."""
        made = [[_selected(batch, columns, number) for batch in own] for number, own in enumerate(self.partitions)]
        return Frame(made, _selected(self.schema.empty_table(), columns, 0).schema)

    def coalesce(self, partitions: int) -> Frame:
        """Joins adjacent partitions."""
        share = -(-len(self.partitions) // partitions)
        starts = range(0, len(self.partitions), share)
        return Frame([list(chain(*self.partitions[start : start + share])) for start in starts], self.schema)

    def range(self, end: int) -> Frame:
        """Numbers, on as many cores as there are workers."""
        return Frame.of(pa.table({"id": np.arange(PARTITIONS)}))

    def persist(self) -> Frame:
        return self

    unpersist = persist

    def addTag(self, tag: str) -> None:
        """Does nothing, because nothing here is stopped."""

    removeTag = interruptTag = addTag

    def collect(self) -> list[tuple[Any, ...]]:
        return [row for batch in self._batches() for row in zip(*(own.to_pylist() for own in batch), strict=True)]

    def _batches(self) -> Iterator[pa.RecordBatch]:
        for batches in self.partitions:
            yield from batches

    def _table(self) -> pa.Table:
        return pa.Table.from_batches(self._batches(), self.schema)


def _selected(batch: Any, columns: Sequence[str], partition: int) -> pa.RecordBatch:
    """Columns of a batch by their names, in backticks or not; or the number of its partition."""
    found = {}
    for column in columns:
        name = column.removeprefix("`").removesuffix("`").replace("``", "`")
        if column == PARTITION:
            found["partition"] = pa.array(np.full(batch.num_rows, partition, dtype=np.int32))
        else:
            own = batch[name]
            found[name] = own.combine_chunks() if isinstance(own, pa.ChunkedArray) else own
    return pa.RecordBatch.from_pydict(found)


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
    names = [f"c{number}" for number in range(len(policy.columns))]
    for block in codes.blocks:
        table = pa.table(dict(zip(names, block.columns.values(), strict=True)))
        half = table.num_rows // 2
        for number, share in enumerate((table.slice(0, half), table.slice(half))):
            if share.num_rows:
                partitions[number].append(_sent(_block(share)))
    frame: Any = Frame(partitions, _schema(_blocks(names)))
    return SparkEngine(_Encoded(frame, policy, salt))

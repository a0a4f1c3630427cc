# SPDX-License-Identifier: Apache-2.0
"""A table as small unsigned integers: the result of encoding, and the only input of counting.

It comes in blocks of rows, with each column's codes in the smallest type that holds them. Any thread or process may
count a block.

The codes of a large source, and no raw values, are an Arrow file in the provider's state folder, mapped into memory:
one batch for each block, and a last batch without rows that has the file's metadata.
"""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, NonNegativeInt

from pinq.errors import InternalError
from pinq.public.schema import Schema

# Rows of a block: a few columns of one fit into a core's cache.
BLOCK_ROWS = 2**18
ShardSource = tuple[str, int, int]
"""The ``Axis.source`` of shards: the word "shards", the key and the number of shards."""


def _numbers(codes: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Codes without a copy; Arrow's conversion imports pandas, and is used for data in several pieces only."""
    return np.from_dlpack(codes) if isinstance(codes, pa.Array) else codes.to_numpy()


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Some rows of an encoded table. It can be pickled.

    Attributes:
        columns: The codes of each column, unsigned, shape (rows,). Shards are columns too, by their
            axis' ``source``.
    """

    columns: Mapping[Hashable, np.ndarray]
    rows: int

    @classmethod
    def from_arrow(cls, encoded: pa.Table | pa.RecordBatch, schema: Schema) -> RowBlock:
        """Reads a result of ``encode``."""
        columns: dict[Hashable, np.ndarray] = {
            name: _numbers(encoded[f"c{number}"]) for number, name in enumerate(schema.columns)
        }
        return cls(columns, encoded.num_rows)

    def rows_in(self, part: slice) -> RowBlock:
        """A slice of the rows, as views."""
        columns = {source: codes[part] for source, codes in self.columns.items()}
        return RowBlock(columns, len(range(*part.indices(self.rows))))


class Codes:
    """An encoded table in memory."""

    def __init__(self, blocks: Iterable[RowBlock], schema: Schema) -> None:
        self.blocks: Sequence[RowBlock] = tuple(blocks)
        self.rows = sum(block.rows for block in self.blocks)
        self.nbytes = self.rows * sum(kind.itemsize for kind in kinds_of(schema).values())

    def problem(self) -> str:
        """The reason why codes cannot be read, empty for none; reads no codes."""
        return ""

    def require(self, columns: Iterable[Hashable] | None = None) -> None:
        """Verifies the codes of some columns, or of all, before they are read.

        Raises:
            InternalError: The codes are damaged, or the file was cut.
        """


def smallest(count: int) -> np.dtype[np.unsignedinteger]:
    """The smallest unsigned type that holds 0 .. count - 1."""
    return np.min_scalar_type(max(0, count - 1))


def kinds_of(schema: Schema) -> dict[str, np.dtype[np.unsignedinteger]]:
    """The type of each column's codes."""
    return {name: smallest(column.codes) for name, column in schema.columns.items()}


def arrow_schema(schema: Schema) -> pa.Schema:
    """The columns of codes as Arrow calls them."""
    return pa.schema(
        [(f"c{number}", pa.from_numpy_dtype(kind)) for number, kind in enumerate(kinds_of(schema).values())]
    )


def in_blocks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the same rows in batches of ``BLOCK_ROWS``, the last of fewer."""
    return (table.combine_chunks().to_batches()[0] for table in in_tables(batches))


def in_tables(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yields the same rows in tables of ``BLOCK_ROWS``, the last of fewer; nothing is copied."""
    waiting, rows = list[pa.RecordBatch](), 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        # 600,000 rows give two blocks of 262,144; 75,712 wait for the next batch.
        while rows >= BLOCK_ROWS:
            table = pa.Table.from_batches(waiting)
            yield table.slice(0, BLOCK_ROWS)
            waiting, rows = table.slice(BLOCK_ROWS).to_batches(), rows - BLOCK_ROWS
    if rows:
        yield pa.Table.from_batches(waiting)


class FileCodes(BaseModel):
    """The part of a file of codes for one of the source's files.

    Attributes:
        rows: The number of encoded rows, which follow the rows of the files before; 0 if rows are
            chosen from all files together.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    fingerprint: str
    rows: NonNegativeInt = 0
    lines: NonNegativeInt = 0
    lost: NonNegativeInt = 0


class _Footer(BaseModel):
    """The metadata of a file.

    Attributes:
        checksums: The checksums of each column, over all blocks.
    """

    model_config = ConfigDict(strict=True, extra="forbid")
    rows: NonNegativeInt
    files: list[FileCodes]
    checksums: dict[str, NonNegativeInt]


def write_codes(
    file: IO[bytes], schema: pa.Schema, blocks: Iterable[pa.RecordBatch], files: Sequence[FileCodes]
) -> None:
    """Writes codes, in blocks of ``BLOCK_ROWS`` rows but the last, to an empty file, and flushes it to the disk.

    ``files`` is read when all blocks are there.
    """
    rows, checksums = 0, dict.fromkeys(schema.names, 0)
    with pa.ipc.new_file(file, schema) as sink:
        for block in blocks:
            for name, column in zip(schema.names, block.columns, strict=True):
                checksums[name] = zlib.crc32(bytes_of(column), checksums[name])
            sink.write_batch(block)
            rows += block.num_rows
        text = _Footer(rows=rows, files=list(files), checksums=checksums).model_dump_json()
        nothing = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
        sink.write_batch(nothing, custom_metadata={"footer": text, "checksum": str(zlib.crc32(text.encode()))})
    file.flush()
    os.fsync(file.fileno())


class MappedCodes(Codes):
    """Codes in a file that is mapped into memory; calls ``damaged`` when a checksum does not match.

    Raises:
        ValueError: The file has another form, or its metadata is damaged.
    """

    def __init__(self, file: IO[bytes], schema: Schema, damaged: Callable[[], None] = lambda: None) -> None:
        self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        reader = pa.ipc.open_file(pa.py_buffer(self._mapped))
        batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
        footer = _footer_of(reader)
        sizes = [BLOCK_ROWS] * (footer.rows // BLOCK_ROWS) + [footer.rows % BLOCK_ROWS] * bool(footer.rows % BLOCK_ROWS)
        wanted = arrow_schema(schema)
        columns = reader.schema.equals(wanted) and set(footer.checksums) == set(wanted.names)
        if not columns or [batch.num_rows for batch in batches] != [*sizes, 0]:
            raise ValueError("other columns or rows")
        for batch in batches:
            batch.validate()
        self.files, self._damaged = tuple(footer.files), damaged
        self._columns: dict[Hashable, str] = {name: f"c{number}" for number, name in enumerate(schema.columns)}
        self._unread, self._is_damaged = footer.checksums, False
        self.table = pa.Table.from_batches(batches, schema=wanted)
        super().__init__([RowBlock.from_arrow(batch, schema) for batch in batches[:-1]], schema)

    def rows_of(self, codes_of_file: FileCodes) -> list[pa.RecordBatch]:
        """The encoded rows of one of the source's files."""
        self.require()
        start = sum(file.rows for file in self.files[: self.files.index(codes_of_file)])
        return self.table.slice(start, codes_of_file.rows).to_batches()

    def problem(self) -> str:
        """The fault of the file, empty for none.

        Another process that may write to the file can truncate it while it is mapped.
        """
        if self._is_damaged:
            return "the file of its codes is damaged"
        return "the file of its codes was cut" if self._is_cut() else ""

    def require(self, columns: Iterable[Hashable] | None = None) -> None:
        if self._is_cut():  # reading beyond the end would kill the process
            raise InternalError(
                "The file of a source's codes was cut while it was in use. Open the dataset again, and see who "
                "writes to the state folder."
            )
        names = self.table.column_names if columns is None else map(self._columns.get, columns)
        for name in [name for name in names if name in self._unread]:
            checksum = 0
            for chunk in self.table[name].chunks:
                checksum = zlib.crc32(bytes_of(chunk), checksum)
            if checksum != self._unread[name]:
                self._is_damaged = True
                self._damaged()
                raise InternalError(
                    "The codes that were kept of a source are damaged; they are deleted. Open the dataset again, and "
                    "look at the disk that they were on."
                )
            self._unread = {column: crc for column, crc in self._unread.items() if column != name}

    def _is_cut(self) -> bool:
        return self._mapped.size() < len(self._mapped)


def _footer_of(reader: pa.ipc.RecordBatchFileReader) -> _Footer:
    if not reader.num_record_batches:
        raise ValueError("no codes")
    metadata = reader.get_batch_with_custom_metadata(reader.num_record_batches - 1).custom_metadata
    text = b"" if metadata is None else metadata.get(b"footer", b"")
    if metadata is None or metadata.get(b"checksum") != str(zlib.crc32(text)).encode():
        raise ValueError("no footer, or a damaged one")
    return _Footer.model_validate_json(text)


def bytes_of(column: pa.Array) -> memoryview:
    """The bytes of a column's codes."""
    width = column.type.byte_width
    return memoryview(column.buffers()[1])[column.offset * width : (column.offset + len(column)) * width]

# SPDX-License-Identifier: Apache-2.0
"""Codes in a file that is mapped into memory: written once, opened at once.

::

    codes of column 0 of the first 2^18 rows | of column 1 | ... | of the next 2^18 rows | ...
    | footer: JSON | its checksum, 4 bytes | its length, 8 bytes | "pinq-codes"

The file holds codes and nothing raw; where rows of a privacy unit may still come, also a keyed hash
of each row's unit, as a last column. The footer says which of the source's files the rows are from,
and has a checksum of each column of each block, which is compared when its codes are first read.
"""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import IO

import numpy as np
from pydantic import BaseModel, ConfigDict, NonNegativeInt

from pinq.engine.codes import BLOCK_ROWS, Codes, RowBlock, kinds_of
from pinq.errors import InternalError
from pinq.public.schema import Schema

__all__ = ["UNIT", "FileCodes", "MappedCodes", "blocks_of", "map_codes", "write_codes"]

UNIT = ("unit",)
"""The column of units' keyed hashes, 128 bits each."""
UNIT_KIND = np.dtype("V16")
_END = b"pinq-codes"
_TAIL = 4 + 8 + len(_END)
_ALIGNED = 64

Columns = Mapping[Hashable, np.ndarray]


class FileCodes(BaseModel):
    """What a file of codes has of one of the source's files.

    Attributes:
        fingerprint: Identifies what was read, and how.
        rows: How many rows follow those of the files before it; 0 where the rows of all files are
            chosen from together.
        lines: Lines of text that were read.
        lost: How many of them could not be read.
        unit: The kind of its privacy units, as ``Encoder.unit_kind`` says it.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    fingerprint: str
    unit: str = ""
    rows: NonNegativeInt = 0
    lines: NonNegativeInt = 0
    lost: NonNegativeInt = 0


class _Footer(BaseModel):
    """What stands at a file's end.

    Attributes:
        rows: Rows in all blocks.
        units: Whether units' hashes are among the columns.
        files: What it has of each of the source's files.
        checksums: Of each column of each block, in order.
    """

    model_config = ConfigDict(strict=True, extra="forbid")
    rows: NonNegativeInt
    units: bool
    files: list[FileCodes]
    checksums: list[NonNegativeInt]


class MappedCodes:
    """Codes in a mapped file.

    Args:
        blocks: The columns of each of its blocks: those of codes, and those of units' hashes, if
            it has any.
        files: What it has of each of the source's files.
        schema: The columns of codes.
        problem: Says what became of the file, empty for nothing.

    Attributes:
        codes: Its rows, as an engine takes them.
        files: As above.
        units: Whether it has units' hashes.
    """

    def __init__(
        self,
        blocks: Sequence[tuple[RowBlock, Columns]],
        files: Sequence[FileCodes],
        schema: Schema,
        problem: Callable[[], str],
    ) -> None:
        self.files, self._units = tuple(files), [units for _, units in blocks]
        self.codes = Codes([block for block, _ in blocks], schema, problem)
        self.units = all(self._units)

    def file(self, fingerprint: str) -> FileCodes | None:
        """What it has of the file with this fingerprint."""
        return next((file for file in self.files if file.fingerprint == fingerprint), None)

    def rows_of(self, wanted: FileCodes) -> Iterator[Columns]:
        """The columns of one file's rows, some at a time."""
        start = sum(file.rows for file in self.files[: self.files.index(wanted)])
        return self.rows(start, start + wanted.rows)

    def rows(self, start: int = 0, stop: int | None = None) -> Iterator[Columns]:
        """The columns of rows ``start`` .. ``stop`` - 1, some at a time, with units' hashes."""
        # Rows 200,000 to 300,000 of blocks of 262,144: 200,000 to 262,143 of the first block, 0 to
        # 37,855 of the second.
        stop = self.codes.rows if stop is None else stop
        for number in range(start // BLOCK_ROWS, -(-stop // BLOCK_ROWS)):
            first = number * BLOCK_ROWS
            rows = slice(max(0, start - first), stop - first)
            columns = {**self.codes.blocks[number].columns, **self._units[number]}
            yield {name: codes[rows] for name, codes in columns.items()}


def blocks_of(columns: Iterable[Columns]) -> Iterator[RowBlock]:
    """Yields blocks of ``BLOCK_ROWS`` rows, the last of fewer, from batches of any size."""
    waiting: list[Columns] = []
    rows = 0
    for batch in columns:
        waiting.append(batch)
        rows += len(next(iter(batch.values())))
        if rows >= BLOCK_ROWS:
            joined = _joined(waiting)
            for start in range(0, rows - BLOCK_ROWS + 1, BLOCK_ROWS):
                yield RowBlock({name: codes[start : start + BLOCK_ROWS] for name, codes in joined.items()}, BLOCK_ROWS)
            # Of 600,000 rows two blocks of 262,144 are given; 75,712 wait for the next batch.
            rest = rows - rows % BLOCK_ROWS
            waiting, rows = [{name: codes[rest:] for name, codes in joined.items()}], rows % BLOCK_ROWS
    if rows:
        yield RowBlock(_joined(waiting), rows)


def _joined(batches: list[Columns]) -> Columns:
    if len(batches) == 1:
        return batches[0]
    return {name: np.concatenate([columns[name] for columns in batches]) for name in batches[0]}


def write_codes(
    file: IO[bytes], blocks: Iterable[RowBlock], files: Sequence[FileCodes], *, units: bool = False
) -> None:
    """Writes codes to an empty file.

    Args:
        file: Is written and flushed to the disk.
        blocks: All of ``BLOCK_ROWS`` rows but the last.
        files: What they have of each of the source's files; read when all blocks are there.
        units: Whether units' hashes are among their columns.
    """
    rows, checksums = 0, list[int]()
    for block in blocks:
        for codes in block.columns.values():
            content = codes.tobytes()
            checksums.append(zlib.crc32(content))
            file.write(content)
            # 1,000 bytes get 24 zeros, so that each column begins at a multiple of 64.
            file.write(bytes(-len(content) % _ALIGNED))
        rows += block.rows
    footer = _Footer(rows=rows, units=units, files=list(files), checksums=checksums).model_dump_json().encode()
    file.write(footer + zlib.crc32(footer).to_bytes(4, "little") + len(footer).to_bytes(8, "little") + _END)
    file.flush()
    os.fsync(file.fileno())


def map_codes(file: IO[bytes], schema: Schema, damaged: Callable[[], None] = lambda: None) -> MappedCodes:
    """Maps a file of codes into memory.

    Args:
        file: Was written whole.
        schema: The columns that were written.
        damaged: Called once codes are read that are not those that were written.

    Raises:
        ValueError: It is no such file, or its footer is damaged.
    """
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    # The file ends with the footer, its checksum (4 bytes), its length (8), and the letters `_END`.
    tail = len(mapped) - _TAIL
    if tail < 0 or mapped[tail + 12 :] != _END:
        raise ValueError("no codes")
    end = tail - int.from_bytes(mapped[tail + 4 : tail + 12], "little")
    if end < 0 or zlib.crc32(mapped[end:tail]) != int.from_bytes(mapped[tail : tail + 4], "little"):
        raise ValueError("no footer")
    footer = _Footer.model_validate_json(mapped[end:tail])
    kinds: dict[Hashable, np.dtype[np.generic]] = dict(kinds_of(schema).items())
    if footer.units:
        kinds[UNIT] = UNIT_KIND
    state = _FileState(mapped, damaged)
    blocks = list(_mapped_blocks(mapped, kinds, footer, end, state))
    return MappedCodes(blocks, footer.files, schema, state.problem)


class _FileState:
    """What became of a mapped file since it was opened."""

    def __init__(self, mapped: mmap.mmap, damaged: Callable[[], None]) -> None:
        self._mapped, self._damaged, self._is_damaged = mapped, damaged, False

    def note_damage(self) -> None:
        """Codes were read that are not those that were written."""
        self._is_damaged = True
        self._damaged()

    def problem(self) -> str:
        """Says what is wrong with it; empty for nothing.

        Whoever may write to the file can cut off its end while it is mapped.
        """
        if self._is_damaged:
            return "the file of its codes is damaged"
        return "the file of its codes was cut" if self._is_cut() else ""

    def require_whole(self) -> None:
        """``InternalError`` where its end was cut off: to read there would end the process."""
        if self._is_cut():
            raise InternalError(
                "The file of a source's codes was cut while it was in use. Open the dataset again, and see who "
                "writes to the state folder."
            )

    def _is_cut(self) -> bool:
        return self._mapped.size() < len(self._mapped)


def _mapped_blocks(
    mapped: mmap.mmap,
    kinds: Mapping[Hashable, np.dtype[np.generic]],
    footer: _Footer,
    end: int,
    state: _FileState,
) -> Iterator[tuple[RowBlock, Columns]]:
    """The blocks of a mapped file; ``ValueError`` where so many rows do not reach to the end."""
    if len(footer.checksums) != -(-footer.rows // BLOCK_ROWS) * len(kinds):
        raise ValueError("other checksums")
    # Columns of one byte and of two, 1,000 rows: they begin at 0 and 1,024, and the next block at
    # 3,072: each is filled up to a multiple of 64.
    offset, checksums = 0, iter(footer.checksums)
    for start in range(0, footer.rows, BLOCK_ROWS):
        count = min(BLOCK_ROWS, footer.rows - start)
        columns: dict[Hashable, np.ndarray] = {}
        for name, kind in kinds.items():
            columns[name] = np.frombuffer(mapped, kind, count, offset)
            offset += columns[name].nbytes + -columns[name].nbytes % _ALIGNED
        written = dict(zip(kinds, checksums, strict=False))
        units: Columns = {UNIT: columns.pop(UNIT)} if footer.units else {}
        yield RowBlock(_Checked(columns, written, state), count), _Checked(units, written, state)
    if offset != end:
        raise ValueError("other rows")


class _Checked(Mapping[Hashable, np.ndarray]):
    """The columns of a mapped block, each compared with its checksum when it is first read.

    Raises:
        InternalError: The codes of a column are not those that were written, or the file was cut.
    """

    def __init__(self, columns: Columns, checksums: Mapping[Hashable, int], state: _FileState) -> None:
        self._columns, self._state = columns, state
        self._unread = {name: checksums[name] for name in columns}

    def __getitem__(self, name: Hashable) -> np.ndarray:
        codes = self._columns[name]
        self._state.require_whole()
        checksum = self._unread.get(name)
        if checksum is not None:
            if zlib.crc32(codes.data) != checksum:
                self._state.note_damage()
                raise InternalError(
                    "The codes that were kept of a source are damaged; they are deleted. Open the dataset again, and "
                    "look at the disk that they were on."
                )
            self._unread.pop(name, None)
        return codes

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

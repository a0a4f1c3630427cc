# SPDX-License-Identifier: Apache-2.0
"""Gathers the codes of a source's files into one table: kept ones, and new ones.

Privacy:
    A file's rows are encoded by themselves, so their codes may come from an earlier opening. Of
    each unit the ``max_rows`` rows with the smallest keyed hashes are kept (``encoding.py``). The
    smallest of all rows are the smallest among those that were kept of some files and all rows of
    the others: a table that grew file by file keeps the same rows as one that was read at once.
    Where a file changed or went away, the rows that it had pushed out are not kept anywhere, so all
    files are encoded again. A unit is known by a text, so files that would write it otherwise, as
    whole numbers and as floats, are no table together: the unit would be two, with twice the rows.
    Held by: tests/integration/test_source_files.py.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from pinq.engine.codes import BLOCK_ROWS
from pinq.engine.encoding import Encoder, candidate_columns
from pinq.engine.mapped import UNIT, UNIT_KIND, FileCodes, MappedCodes
from pinq.engine.pieces import OpenSource, Piece
from pinq.engine.raw import require_share
from pinq.engine.report import Losses
from pinq.errors import PolicyError
from pinq.public.policy import Policy

__all__ = ["Gathering"]

Files = Sequence[tuple[Path | None, str]]
"""The source's files with their fingerprints; None and an empty one for data that the caller passed."""
_BEFORE = "that were read at an earlier opening"


class Gathering:
    """Reads and encodes an open source.

    Args:
        policy: Whose source.
        source: Is read.
        salt: Keys the hashes that choose a unit's rows.
        losses: Counts what is left out; None for no count.
        apart: Note what is gathered of each file by itself, so that it can be kept; else small
            files are read together, which takes a fraction of the time.
        units: Give units' hashes too, so that what is kept can grow.

    Attributes:
        files: What was gathered of each file; complete when all ``columns`` are there.
        units: Whether there are units whose hashes are given.
    """

    def __init__(
        self,
        policy: Policy,
        source: OpenSource,
        salt: bytes,
        losses: Losses | None,
        *,
        apart: bool = True,
        units: bool = False,
    ) -> None:
        self._policy, self._source, self._salt, self._losses = policy, source, salt, losses
        self._bounded = policy.bounded_unit is not None
        self._apart, self.units = apart, units and self._bounded
        self.files: list[FileCodes] = []
        self._unit_kinds = set[str]()
        self._encoders: dict[tuple[tuple[str, str], ...], Encoder] = {}

    def columns(self, files: Files, before: MappedCodes | None) -> Iterator[Mapping[Hashable, np.ndarray]]:
        """The codes of the rows that are kept, some at a time.

        Args:
            files: Those of the source.
            before: What is kept of an earlier opening.

        Raises:
            PolicyError: More lines were unreadable than the policy allows.
        """
        gathered = self._chosen(files, before) if self._bounded else self._row_by_row(files, before)
        yield from gathered

    def _row_by_row(self, files: Files, before: MappedCodes | None) -> Iterator[Mapping[Hashable, np.ndarray]]:
        """Gives the rows of the files in their order, kept ones or new ones."""
        for together, fingerprint in self._turns(files):
            known = None if before is None else before.file(fingerprint)
            if before is not None and known is not None:
                self._count(known)
                yield from before.rows_of(known)
                continue
            rows, total, lost = 0, self._source.lines.total, self._source.lines.lost
            for encoder, piece in self._pieces(together):
                for batch in self._fetched(encoder.encoded(piece.name)):
                    rows += len(next(iter(batch.values())))
                    yield batch
            self._noted(fingerprint, total, lost, rows)
        self._require_share()

    def _chosen(self, files: Files, before: MappedCodes | None) -> Iterator[Mapping[Hashable, np.ndarray]]:
        """Gives the rows that are kept of each unit, once all of its rows are there."""
        connection = self._source.connection
        columns = ", ".join(f"{name} {kind}" for name, kind in candidate_columns(self._policy).items())
        connection.execute(f"CREATE TEMP TABLE candidates ({columns})")
        known = self._take_over([fingerprint for _, fingerprint in files], before)
        for together, fingerprint in self._turns(files):
            if fingerprint in known:
                continue
            total, lost, unit = self._source.lines.total, self._source.lines.lost, ""
            for encoder, piece in self._pieces(together):
                unit = encoder.unit_kind
                self._unit_kinds.add(unit)
                connection.execute(f"INSERT INTO candidates {encoder.encoded(piece.name)}")
            self._noted(fingerprint, total, lost, unit=unit)
        self._require_share()
        self._require_one_kind_of_unit()
        # What was taken over was noted before what was read: now in the source's order.
        order = [fingerprint for _, fingerprint in self._turns(files)]
        self.files.sort(key=lambda own: order.index(own.fingerprint))
        bounded = Encoder.bounded(self._policy, self._salt, "candidates", units=self.units)
        yield from self._fetched(bounded)

    def _take_over(self, fingerprints: Sequence[str], before: MappedCodes | None) -> set[str]:
        """Takes what was kept of files that all are still there; returns their fingerprints."""
        # Kept of files a and b, now a, b and c: the rows of a and b are taken over and c is read.
        # Now a and c: b's rows had pushed out some of a's, so both are read.
        known = set() if before is None else {file.fingerprint for file in before.files}
        if before is None or not (self.units and before.units) or not known <= set(fingerprints):
            return set()
        for file in before.files:
            self._count(file)
        names = [f"c{number}" for number in range(len(self._policy.columns))]
        for columns in before.rows():
            codes = [pa.array(columns[name]) for name in self._policy.columns]
            units = pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(UNIT_KIND.itemsize), len(codes[0]), [None, pa.py_buffer(columns[UNIT].tobytes())]
            )
            self._source.connection.register("kept", pa.table([*codes, units], [*names, "unit"]))
            self._source.connection.execute(
                f"INSERT INTO candidates SELECT {', '.join(names)}, lower(hex(unit)) FROM kept"
            )
            self._source.connection.unregister("kept")
        return known

    def _turns(self, files: Files) -> list[tuple[list[Path], str]]:
        """The files that are read together, with what identifies them if they are to be kept."""
        if self._apart:
            return [([] if file is None else [file], fingerprint) for file, fingerprint in files]
        return [([file for file, _ in files if file is not None], "")]

    def _pieces(self, files: Sequence[Path]) -> Iterator[tuple[Encoder, Piece]]:
        """The pieces of some files, each with what encodes it."""
        for piece in self._source.pieces(files):
            types = tuple(piece.types.items())
            if types not in self._encoders:
                self._encoders[types] = Encoder(self._source.connection, self._policy, piece.types, self._salt)
            encoder = self._encoders[types]
            if self._losses is not None:
                self._losses.add(self._source.connection, encoder, piece.name)
            yield encoder, piece

    def _count(self, known: FileCodes) -> None:
        """Counts what is kept of a file as if it were read again."""
        self.files.append(known)
        self._source.lines.total += known.lines
        if known.lost:
            self._source.lines.add(_BEFORE, known.lost, "")

    def _noted(self, fingerprint: str, total: int, lost: int, rows: int = 0, unit: str = "") -> None:
        """Notes what was read of a file since so many lines."""
        lines = self._source.lines
        read, unreadable = lines.total - total, lines.lost - lost
        self.files.append(FileCodes(fingerprint=fingerprint, rows=rows, lines=read, lost=unreadable, unit=unit))

    def _require_one_kind_of_unit(self) -> None:
        """``PolicyError`` where files write a unit differently; it follows their types alone."""
        noted = {file.unit for file in self.files} | self._unit_kinds
        kinds, unit = sorted(noted - {""}), self._policy.bounded_unit
        if unit is not None and len(kinds) > 1:
            raise PolicyError(
                f"The files of {self._policy.dataset!r} have {unit.column!r} as {' and as '.join(kinds)}: one unit "
                "would be known by two texts, and keep twice the rows. Give the column one type in all of them."
            )

    def _require_share(self) -> None:
        if self._losses is None:
            require_share(self._policy, self._source.lines)

    def _fetched(self, query: str) -> Iterator[Mapping[Hashable, np.ndarray]]:
        """What a query gives, some rows at a time, by the columns' names."""
        for batch in self._source.connection.sql(query).to_arrow_reader(BLOCK_ROWS):
            columns: dict[Hashable, np.ndarray] = {
                name: np.from_dlpack(codes) for name, codes in zip(self._policy.columns, batch.columns, strict=False)
            }
            if "unit" in batch.schema.names and self.units:
                columns[UNIT] = _hashes(batch.column("unit"))
            yield columns


def _hashes(units: pa.BinaryArray) -> np.ndarray:
    """The bytes of units' hashes, side by side, shape (rows,)."""
    return np.frombuffer(units.cast(pa.binary(UNIT_KIND.itemsize)).buffers()[1], UNIT_KIND, len(units))

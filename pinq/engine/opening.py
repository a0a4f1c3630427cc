# SPDX-License-Identifier: Apache-2.0
"""How an engine is opened: a policy's source is read piece by piece, and only codes are kept."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from pinq.engine.arrays import ArrayEngine
from pinq.engine.codes import BLOCK_ROWS, Block, Codes
from pinq.engine.delimited import Lines
from pinq.engine.encoding import Encoder
from pinq.engine.raw import OpenSource, is_large, opened, require_share
from pinq.engine.sources import source_path
from pinq.engine.store import CodesFile, blocks_of, map_codes, write_codes
from pinq.errors import PolicyError
from pinq.public.policy import Policy
from pinq.public.schema import Numeric

__all__ = ["EncodingReport", "open_engine"]


@dataclass(frozen=True)
class EncodingReport:
    """What encoding did, exactly: for the provider's eyes only.

    Attributes:
        source_rows: Rows in the source, lines that could not be read included.
        encoded_rows: Rows that queries see.
        over_unit: Rows beyond their unit's contribution bound, or whose unit is missing.
        left_out: For each column, rows whose value could not be encoded (a row can count for
            several columns).
        clamped: For each numeric column, rows outside [lower, upper].
        lines: How the lines of delimited text were read.
    """

    source_rows: int
    encoded_rows: int
    over_unit: int
    left_out: dict[str, int]
    clamped: dict[str, int]
    lines: Lines = field(compare=False)


def open_engine(
    policy: Policy, *, data: Any = None, salt: bytes, report: bool = False
) -> tuple[ArrayEngine, EncodingReport | None]:
    """Encodes the source of a policy and opens an engine over it.

    The codes of a large source are kept in the provider's state folder, and used again as long as
    source, policy and salt are the same.

    Args:
        policy: Reviewed.
        data: An Arrow table, a pandas frame or a DuckDB relation's Arrow form, in place of the
            policy's source.
        salt: Keys the coins of rows; the same salt gives the same coins.
        report: Also count what was left out and clamped (another pass).

    Raises:
        PolicyError: The source cannot be read, lacks a declared column, or has more unreadable
            lines than the policy allows; with ``report`` these are counted only.
    """
    large = data is None and is_large(policy)
    kept = _kept(policy, salt, large) if data is None and not report else None
    if kept is not None and (codes := kept.reopened()) is not None:
        return ArrayEngine(codes, policy.schema_, salt), None
    try:
        with opened(policy, data) as source:
            encoding = _Encoding(policy, source, salt, _Counted(policy, source) if report else None)
            codes = _stored(encoding, policy, kept, large)
    except duckdb.Error as error:
        # What DuckDB says may quote a value, so only the provider's own check repeats it.
        why = f": {str(error).splitlines()[0]}" if report else "; `pinq check` says why."
        raise PolicyError(f"The source of {policy.dataset!r} cannot be read{why}") from None
    counted = encoding.counted
    return ArrayEngine(codes, policy.schema_, salt), None if counted is None else counted.report(codes.rows)


def _kept(policy: Policy, salt: bytes, large: bool) -> CodesFile | None:
    """Finds the file for a large source's codes; None for another, or where none can be written.

    What was kept of a source that is small by now is deleted.
    """
    if source_path(policy) is None:
        return None
    try:
        kept = CodesFile(policy, salt)
        if not large:
            kept.forget()
            return None
        kept.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (OSError, RuntimeError):  # a read-only folder, or a user without a home
        return None
    return kept if os.access(kept.path.parent, os.W_OK) else None


def _stored(encoding: _Encoding, policy: Policy, kept: CodesFile | None, large: bool) -> Codes:
    """Stores codes in memory, in the file that is kept, or in one without a name."""
    if not large:
        return Codes(encoding.blocks())
    if kept is not None:
        # Taken before the rows are read: who changes the source meanwhile changes the fingerprint.
        return kept.written(encoding.blocks(), kept.fingerprint)
    with tempfile.TemporaryDirectory(prefix="pinq-") as scratch:
        file = Path(scratch) / "codes"
        write_codes(file, encoding.blocks(), "")
        return map_codes(file, policy, "")


class _Encoding:
    """Reads and encodes an open source."""

    def __init__(self, policy: Policy, source: OpenSource, salt: bytes, counted: _Counted | None) -> None:
        self._policy, self._source, self.counted = policy, source, counted
        self._encoder = Encoder(source.connection, policy, source.types, salt)

    def blocks(self) -> Iterator[Block]:
        """The codes of the rows that can be encoded.

        Raises:
            PolicyError: More lines were unreadable than the policy allows.
        """
        return blocks_of(self._columns())

    def _columns(self) -> Iterator[Mapping[Any, np.ndarray]]:
        bounded = not isinstance(self._policy.privacy_unit, str)
        for number, piece in enumerate(self._source.pieces()):
            if self.counted is not None:
                self.counted.add(self._encoder, piece)
            query = self._encoder.encoded(piece)
            if bounded:  # which rows of a unit are kept is known when all are there
                into = "INSERT INTO candidates" if number else "CREATE TABLE candidates AS"
                self._source.connection.execute(f"{into} {query}")
            else:
                yield from self._fetched(query)
        if self.counted is None:
            require_share(self._policy, self._source.lines)
        if bounded:
            yield from self._fetched(self._encoder.bounded("candidates"))

    def _fetched(self, query: str) -> Iterator[Mapping[Any, np.ndarray]]:
        """What a query gives, some rows at a time, by the columns' names."""
        for batch in self._source.connection.sql(query).to_arrow_reader(BLOCK_ROWS):
            columns = zip(self._policy.columns, batch.columns, strict=True)
            yield {name: codes.to_numpy() for name, codes in columns}


class _Counted:
    """Counts what encoding does to each piece of a source."""

    def __init__(self, policy: Policy, source: OpenSource) -> None:
        self._source, self._columns = source, list(policy.columns)
        self._numeric = [name for name, column in policy.columns.items() if isinstance(column, Numeric)]
        self._rows = np.zeros(2 + len(self._columns), dtype=np.int64)
        self._outside = np.zeros(max(1, len(self._numeric)), dtype=np.int64)

    def add(self, encoder: Encoder, piece: str) -> None:
        """Counts a piece."""
        counts = ["count(*)", f"count(*) FILTER ({encoder.kept})"]
        counts += [f"count(*) FILTER ({name} IS NULL)" for name in encoder.columns]
        self._rows += self._fetch(f"SELECT {', '.join(counts)} FROM ({encoder.tried(piece)})")
        self._outside += self._fetch(encoder.outside(piece))

    def report(self, encoded: int) -> EncodingReport:
        """What was counted, ``encoded`` rows being left."""
        rows, encodable, *left_out = self._rows.tolist()
        by_column = dict(zip(self._columns, left_out, strict=True))
        outside = dict(zip(self._numeric, self._outside.tolist(), strict=False))
        lines = self._source.lines
        return EncodingReport(rows + lines.lost, encoded, encodable - encoded, by_column, outside, lines)

    def _fetch(self, query: str) -> np.ndarray:
        return np.array(self._source.connection.execute(query).fetchall()[0], dtype=np.int64)

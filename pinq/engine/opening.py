# SPDX-License-Identifier: Apache-2.0
"""How an engine is opened: a policy's source is read piece by piece, and only codes are kept."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import duckdb
import numpy as np

from pinq.engine.arrays import ArrayEngine
from pinq.engine.codes import BLOCK_ROWS, Block, Codes
from pinq.engine.encoding import Encoder
from pinq.engine.raw import OpenSource, is_large, opened, require_share
from pinq.engine.report import EncodingReport, Losses
from pinq.engine.sources import source_path
from pinq.engine.spark import SparkEngine, open_spark, spark_frame
from pinq.engine.store import CodesFile, blocks_of, map_codes, write_codes
from pinq.errors import PolicyError
from pinq.public.policy import Policy

__all__ = ["open_engine"]


def open_engine(
    policy: Policy, *, data: Any = None, salt: bytes, report: bool = False
) -> tuple[ArrayEngine | SparkEngine, EncodingReport | None]:
    """Encodes the source of a policy and opens an engine over it.

    The codes of a large source are kept in the provider's state folder, and used again as long as
    source, policy and salt are the same.

    Args:
        policy: Reviewed.
        data: In place of the policy's source: an Arrow table, a pandas frame, anything with
            ``__arrow_c_stream__``, or a frame of Spark, which is encoded and counted there.
        salt: Keys the coins of rows; the same salt gives the same coins.
        report: Also count what was left out and clamped (another pass).

    Raises:
        PolicyError: The source cannot be read, lacks a declared column, or has more unreadable
            lines than the policy allows; or no room is left for its codes. With ``report`` these are counted only.
    """
    if (frame := spark_frame(policy, data)) is not None:
        return open_spark(policy, frame, salt=salt, report=report)
    large = data is None and is_large(policy)
    kept = _kept(policy, salt, large) if data is None and not report else None
    # Taken before the source is looked at: who changes it from here on changes the fingerprint.
    fingerprint = "" if kept is None else kept.fingerprint
    if kept is not None and (codes := kept.reopened(fingerprint)) is not None:
        return ArrayEngine(codes, policy.schema_, salt), None
    try:
        with opened(policy, data) as source:
            encoding = _Encoding(policy, source, salt, Losses(policy) if report else None)
            codes = _stored(encoding, policy, kept, fingerprint) if large else Codes(encoding.blocks())
    except duckdb.Error as error:
        # What DuckDB says may quote a value, so only the provider's own check repeats it.
        why = f": {str(error).splitlines()[0]}" if report else "; `pinq check` says why."
        raise PolicyError(f"The source of {policy.dataset!r} cannot be read{why}") from None
    except OSError as error:  # a full disk; what was written so far is gone
        why = error.strerror or "the disk failed"
        raise PolicyError(f"The source of {policy.dataset!r} cannot be read, or its codes not kept: {why}.") from None
    losses, lines = encoding.losses, source.lines
    return ArrayEngine(codes, policy.schema_, salt), None if losses is None else losses.report(codes.rows, lines)


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
        return kept if kept.make_folder() else None
    except (OSError, RuntimeError):  # a read-only folder, or a user without a home
        return None


def _stored(encoding: _Encoding, policy: Policy, kept: CodesFile | None, fingerprint: str) -> Codes:
    """Stores codes in the file that is kept, or in one without a name."""
    if kept is not None:
        return kept.written(encoding.blocks(), fingerprint)
    with tempfile.TemporaryFile(prefix="pinq-") as file:
        write_codes(file, encoding.blocks(), fingerprint)
        return map_codes(file, policy, fingerprint)


class _Encoding:
    """Reads and encodes an open source."""

    def __init__(self, policy: Policy, source: OpenSource, salt: bytes, losses: Losses | None) -> None:
        self._policy, self._source, self.losses = policy, source, losses
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
            if self.losses is not None:
                self.losses.add(self._source.connection, self._encoder, piece)
            query = self._encoder.encoded(piece)
            if bounded:  # which rows of a unit are kept is known when all are there
                into = "INSERT INTO candidates" if number else "CREATE TABLE candidates AS"
                self._source.connection.execute(f"{into} {query}")
            else:
                yield from self._fetched(query)
        if self.losses is None:
            require_share(self._policy, self._source.lines)
        if bounded:
            yield from self._fetched(self._encoder.bounded("candidates"))

    def _fetched(self, query: str) -> Iterator[Mapping[Any, np.ndarray]]:
        """What a query gives, some rows at a time, by the columns' names."""
        for batch in self._source.connection.sql(query).to_arrow_reader(BLOCK_ROWS):
            columns = zip(self._policy.columns, batch.columns, strict=True)
            yield {name: codes.to_numpy() for name, codes in columns}

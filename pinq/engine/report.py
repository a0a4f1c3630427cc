# SPDX-License-Identifier: Apache-2.0
"""What encoding leaves out and clamps, counted exactly: for the provider's eyes only."""

from __future__ import annotations

from dataclasses import dataclass, field

import duckdb
import numpy as np

from pinq.engine.delimited import Lines
from pinq.engine.encoding import Encoder
from pinq.public.policy import Policy
from pinq.public.schema import numeric_columns

__all__ = ["EncodingReport", "Losses"]


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


class Losses:
    """Counts what encoding does to each piece of a source; pieces add up.

    Attributes:
        numbers: Rows, rows that can be encoded, rows that each column leaves out, and rows that
            each numeric column clamps.
    """

    def __init__(self, policy: Policy) -> None:
        self._columns = list(policy.columns)
        self._numeric = list(numeric_columns(policy.columns))
        self.numbers = np.zeros(2 + len(self._columns) + len(self._numeric), dtype=np.int64)

    def add(self, connection: duckdb.DuckDBPyConnection, encoder: Encoder, piece: str) -> None:
        """Counts a piece, by its name in SQL."""
        counts = ["count(*)", f"count(*) FILTER ({encoder.kept})"]
        counts += [f"count(*) FILTER ({name} IS NULL)" for name in encoder.columns]
        (left_out,) = connection.execute(f"SELECT {', '.join(counts)} FROM ({encoder.tried(piece)})").fetchall()
        (clamped,) = connection.execute(encoder.outside(piece)).fetchall()
        self.numbers += [*left_out, *clamped[: len(self._numeric)]]

    def report(self, encoded: int, lines: Lines) -> EncodingReport:
        """What was counted, ``encoded`` rows being left."""
        rows, encodable, *rest = self.numbers.tolist()
        left_out = dict(zip(self._columns, rest, strict=False))
        clamped = dict(zip(self._numeric, rest[len(self._columns) :], strict=True))
        return EncodingReport(rows + lines.lost, encoded, encodable - encoded, left_out, clamped, lines)

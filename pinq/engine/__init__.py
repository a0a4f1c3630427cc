# SPDX-License-Identifier: Apache-2.0
"""How exact tables are computed. The only SQL, the only import of duckdb."""

from pinq.engine.duckdb import DuckDBEngine
from pinq.engine.encoding import EncodingReport, open_engine, read_columns
from pinq.engine.profile import ColumnProfile, count_rows, profile
from pinq.engine.tables import Engine, Listed, ListRequest, Moments, Sparse, TableRequest

__all__ = [
    "ColumnProfile", "DuckDBEngine", "EncodingReport", "Engine", "ListRequest", "Listed", "Moments", "Sparse", "TableRequest",
    "count_rows", "open_engine", "profile", "read_columns",
]

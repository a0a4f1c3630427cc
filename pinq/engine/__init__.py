# SPDX-License-Identifier: Apache-2.0
"""Exact tables and nothing else: rows are encoded to small integers at open and counted on request.

It knows no epsilon, no analyst and no noise; it is the only room with SQL and the only one that
imports duckdb. Read ``tables.py`` first, then ``encoding.py``.
"""

from pinq.engine.delimited import Lines
from pinq.engine.duckdb import DuckDBEngine
from pinq.engine.encoding import EncodingReport, RawTable, open_engine, read_columns, require_readable
from pinq.engine.profile import ColumnProfile, count_rows, largest_group, profile
from pinq.engine.tables import Engine, Listed, ListRequest, Measure, Moments, RowSums, Sparse, TableRequest

__all__ = [
    "ColumnProfile",
    "DuckDBEngine",
    "EncodingReport",
    "Engine",
    "Lines",
    "ListRequest",
    "Listed",
    "Measure",
    "Moments",
    "RawTable",
    "RowSums",
    "Sparse",
    "TableRequest",
    "count_rows",
    "largest_group",
    "open_engine",
    "profile",
    "read_columns",
    "require_readable",
]

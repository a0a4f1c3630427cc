# SPDX-License-Identifier: Apache-2.0
"""Exact tables and nothing else: rows are encoded to small integers at open and counted on request.

It knows no epsilon, no analyst and no noise. DuckDB reads, profiles and encodes rows, and no other room uses it, but
for the proposal of a policy; plain arrays count. Read ``tables.py`` first: it defines the requests. Then ``opening.py``
for the way in (a source is *opened*, its rows are *encoded*), and ``counting.py`` for the way to tables (codes are
*counted*); ``spark.py`` does both on other machines.
"""

from pinq.engine.arrays import ArrayEngine
from pinq.engine.codes import RowBlock
from pinq.engine.counting import count, count_request
from pinq.engine.delimited import Lines
from pinq.engine.encoding import EncodingReport, encode
from pinq.engine.opening import open_engine
from pinq.engine.profile import ColumnProfile, count_rows, date_range, group_sizes, profile, times_of_day
from pinq.engine.sources import RawTable, read_columns, require_readable
from pinq.engine.spark import SparkEngine
from pinq.engine.tables import Engine, Listed, Measure, Moments, Sparse, TableRequest
from pinq.language.derivatives import RowMeasure

__all__ = [
    "ArrayEngine",
    "ColumnProfile",
    "EncodingReport",
    "Engine",
    "Lines",
    "Listed",
    "Measure",
    "Moments",
    "RawTable",
    "RowBlock",
    "RowMeasure",
    "SparkEngine",
    "Sparse",
    "TableRequest",
    "count",
    "count_request",
    "count_rows",
    "date_range",
    "encode",
    "group_sizes",
    "open_engine",
    "profile",
    "read_columns",
    "require_readable",
    "times_of_day",
]

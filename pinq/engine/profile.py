# SPDX-License-Identifier: Apache-2.0
"""Exact facts about a raw column, for the provider's proposal of a policy only."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from pinq.engine.numbers import moment_number
from pinq.engine.sources import quoted
from pinq.public.dates import MINUTE

FEW = 0.05  # the largest share of values like 1E5 that are typed numbers; a larger share means codes


@dataclass(frozen=True)
class ColumnProfile:
    """Facts about one column.

    Attributes:
        texts: The distinct values; None if there are too many.
        filled: Rows with a value (NaN is missing).
        numbers: Rows whose value encoding would read as a number.
        low, high: The smallest and the largest finite number.
        are_whole: Whether all finite numbers are whole.
        zero_led: Values like 007, and like 1E5 if these are frequent. They are codes: a program would
            write the number as 1E+5.
        longest: Characters of the longest text.
        distinct: The approximate number of different values.
    """

    texts: list[str] | None
    filled: int
    numbers: int
    low: float | None
    high: float | None
    are_whole: bool
    zero_led: int
    longest: int
    distinct: int


def profile(connection: duckdb.DuckDBPyConnection, table: str, name: str, kind: str, *, limit: int) -> ColumnProfile:
    """Profiles a column in one pass, or two if it has at most ``limit`` values; a date or a time is no number."""
    # The casts are those of encoding: NaN is missing, infinities are clamped.
    q = quoted(name)
    real = kind.startswith(("FLOAT", "DOUBLE", "DECIMAL"))
    number = "NULL::DOUBLE" if kind.startswith(("DATE", "TIME")) else f"number_of({q})"
    # Only texts can be such codes; a search in numbers would take most of the time.
    is_text = kind.startswith(("VARCHAR", "ENUM", "UUID"))
    zero_led = f"count(*) FILTER (regexp_matches({q}::VARCHAR, '^[+-]?0[0-9]'))"
    finite = f"FILTER (isfinite({number}))"
    facts = connection.execute(
        f"SELECT count({q}) {f'FILTER (NOT isnan({number}))' if real else ''}, count({number}) FILTER (NOT "
        f"isnan({number})), "
        f"min({number}) {finite}, max({number}) {finite}, coalesce(bool_and({number} = trunc({number})) "
        f"{finite}, false), "
        f"{zero_led if is_text else '0'}, "
        f"coalesce(max(length({q}::VARCHAR)), 0), approx_count_distinct({q}) FROM {table}"
    ).fetchone()
    assert facts is not None
    if facts[1] and is_text:
        powers = f"count(*) FILTER (regexp_matches({q}::VARCHAR, '^[0-9]+[eE][0-9]+$'))"
        ((codes,),) = connection.execute(f"SELECT {powers} FROM {table}").fetchall()
        facts = (*facts[:5], facts[5] + (codes if codes > FEW * facts[0] else 0), *facts[6:])
    texts = None
    if facts[-1] <= 1.2 * limit:  # the estimate's error is a few percent
        rows = connection.execute(
            f"SELECT DISTINCT {q}::VARCHAR FROM {table} WHERE {q} IS NOT NULL LIMIT {limit + 1}"
        ).fetchall()
        texts = [text for (text,) in rows]
    return ColumnProfile(texts, *facts)


def date_range(
    connection: duckdb.DuckDBPyConnection, table: str, value: str, kind: str
) -> tuple[int, float | None, float | None, bool]:
    """The number of dates of an SQL expression, their first and last day since 1970, and whether any has a clock."""
    minutes = moment_number(value, kind, MINUTE)
    days = f"({minutes}) / 1440"
    finite = f"FILTER (abs({days}) < 1e9)"
    ((count, first, last, timed),) = connection.execute(
        f"SELECT count({minutes}), min({days}) {finite}, max({days}) {finite}, "
        f"coalesce(bool_or({days} != floor({days})) {finite}, false) FROM {table}"
    ).fetchall()
    return int(count), first, last, bool(timed)


def times_of_day(connection: duckdb.DuckDBPyConnection, table: str, value: str, kind: str) -> list[str]:
    """The times of day of an SQL expression's dates, such as 22:00 and 23:00; empty for more than two."""
    minutes = moment_number(value, kind, MINUTE)
    clocks = list[tuple[int]]()
    for rows in (f"(FROM {table} LIMIT 2000)", table):  # the first rows nearly always suffice
        if len(clocks) < 3:
            clocks = connection.execute(
                f"SELECT DISTINCT (m::BIGINT % 1440 + 1440) % 1440 AS clock FROM (SELECT {minutes} AS m FROM {rows}) "
                "WHERE abs(m) < 1e12 ORDER BY clock LIMIT 3"
            ).fetchall()
    return [f"{clock // 60:02}:{clock % 60:02}" for (clock,) in clocks] if len(clocks) < 3 else []


def group_sizes(
    connection: duckdb.DuckDBPyConnection, table: str, name: str, limit: int = 1
) -> tuple[int, list[tuple[int, int]]]:
    """Returns the exact number of distinct values, and pairs (rows, number of values with so many rows).

    The largest numbers of rows come first; a column without values has the pair (0, 0).
    """
    q = quoted(name)
    grouped = f"SELECT count(*) AS size FROM {table} WHERE {q} IS NOT NULL GROUP BY {q}"
    counted = f"SELECT sum(count(*)) OVER (), size, count(*) FROM ({grouped}) GROUP BY size"
    sizes = connection.execute(f"{counted} ORDER BY size DESC LIMIT {limit}").fetchall() or [(0, 0, 0)]
    return int(sizes[0][0]), [(int(size), int(values)) for _, size, values in sizes]


def count_rows(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    """Rows of a raw table, exact."""
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])

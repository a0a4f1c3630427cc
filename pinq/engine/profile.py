# SPDX-License-Identifier: Apache-2.0
"""The exact contents of a raw column, only for the provider who proposes a policy."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb

from pinq.engine.numbers import moment_number
from pinq.engine.sources import quoted
from pinq.public.dates import MINUTE

FEW = 0.05  # of a column's values that are written like 1E5, by hand


@dataclass(frozen=True)
class ColumnProfile:
    """Facts about one column.

    Attributes:
        texts: The values, where there are few enough of them.
        filled: Rows with a value (NaN is none).
        numbers: Rows whose value encoding would read as a number.
        low, high: Smallest and largest finite number.
        are_whole: Whether all finite numbers are whole.
        zero_led: Values like 007, and like 1E5 where these are not few, which are codes and no numbers; a program
            writes that number as 1E+5.
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
    """Profiles a column in one pass, two where it has at most ``limit`` values.

    Args:
        connection: A connection that reads the source, and knows how it spells numbers.
        table: The name of the table in SQL.
        name: The column.
        kind: Its type, as SQL calls it; a date or a time is no number.
        limit: The number of values that are listed at most.
    """
    # Casts as encoding does them, so that what is proposed is what is encoded; NaN is missing,
    # infinities clamp.
    q = quoted(name)
    real = kind.startswith(("FLOAT", "DOUBLE", "DECIMAL"))
    number = "NULL::DOUBLE" if kind.startswith(("DATE", "TIME")) else f"number_of({q})"
    # A column of numbers has no texts that are codes: to look for them would take most of the time.
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
        listed = connection.execute(
            f"SELECT DISTINCT {q}::VARCHAR FROM {table} WHERE {q} IS NOT NULL LIMIT {limit + 1}"
        ).fetchall()
        texts = [text for (text,) in listed]
    return ColumnProfile(texts, *facts)


def date_range(
    connection: duckdb.DuckDBPyConnection, table: str, value: str, kind: str
) -> tuple[int, float | None, float | None, bool]:
    """The number of dates of an SQL expression, their first and last day since 1970, and whether any has a time."""
    minutes = moment_number(value, kind, MINUTE)
    days = f"({minutes}) / 1440"
    finite = f"FILTER (abs({days}) < 1e9)"
    ((count, first, last, timed),) = connection.execute(
        f"SELECT count({minutes}), min({days}) {finite}, max({days}) {finite}, "
        f"coalesce(bool_or({days} != floor({days})) {finite}, false) FROM {table}"
    ).fetchall()
    return int(count), first, last, bool(timed)


def times_of_day(connection: duckdb.DuckDBPyConnection, table: str, value: str, kind: str) -> list[str]:
    """The times of day of an SQL expression's dates, such as 22:00 and 23:00; empty where there are more than two."""
    minutes = moment_number(value, kind, MINUTE)
    found = list[tuple[int]]()
    for some in (f"(FROM {table} LIMIT 2000)", table):  # nearly always the first rows have more than two
        if len(found) < 3:
            found = connection.execute(
                f"SELECT DISTINCT (m::BIGINT % 1440 + 1440) % 1440 AS clock FROM (SELECT {minutes} AS m FROM {some}) "
                "WHERE abs(m) < 1e12 ORDER BY clock LIMIT 3"
            ).fetchall()
    return [f"{clock // 60:02}:{clock % 60:02}" for (clock,) in found] if len(found) < 3 else []


def group_sizes(
    connection: duckdb.DuckDBPyConnection, table: str, name: str, limit: int = 1
) -> tuple[int, list[tuple[int, int]]]:
    """Returns the number of a column's values; and pairs of a number of rows and of the values with so many; exact.

    The largest come first; a column without values has the pair (0, 0).
    """
    q = quoted(name)
    grouped = f"SELECT count(*) AS size FROM {table} WHERE {q} IS NOT NULL GROUP BY {q}"
    counted = f"SELECT sum(count(*)) OVER (), size, count(*) FROM ({grouped}) GROUP BY size"
    sizes = connection.execute(f"{counted} ORDER BY size DESC LIMIT {limit}").fetchall() or [(0, 0, 0)]
    return int(sizes[0][0]), [(int(size), int(values)) for _, size, values in sizes]


def count_rows(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    """Rows of a raw table, exact."""
    return int(connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])

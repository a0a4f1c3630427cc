# SPDX-License-Identifier: Apache-2.0
"""Rows of a table that are about nobody: totals, units, the header again, notes below.

A proposal is made as if they were not there. The declarations leave most of them out, row by row: they lack a
value that every other row has, or hold one that is not declared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import duckdb

from pinq.engine import count_rows
from pinq.engine.sources import literal, quoted

MOST_ROWS = 200_000  # of a table that somebody wrote by hand
STRAYS = 10  # more rows of a kind than these, and than one in a hundred, are a part of the table
_TOTAL = (
    r"(grand |sub)?total(s|e|es|i)?|summe[nr]?|gesamt(summe|ergebnis)?|zwischensumme|insgesamt|sum|suma|somme|ensemble|"
    r"overall|all|alle"
)
_UNIT = (
    r"[\[(]?(%|k?g|[mµu]g|[cmk]?m|m?l|dl|eur|euro|€|\$|usd|chf|gbp|£|years?|jahre?|anos|ans|annees|tage?|"
    r"days?|dias|jours|h|min|sec|s|mm ?hg|mmol/l|m?g/dl|bpm|°?c|kg/m.?|tsd\.? ?(€|eur)|n)[\])]?"
)


def without_strays(
    connection: duckdb.DuckDBPyConnection, table: str, types: Mapping[str, str]
) -> tuple[str, dict[str, int]]:
    """Finds the rows that are about nobody.

    Returns:
        The name of the other rows in SQL, and the numbers of rows that are none, by what they look like.
    """
    rows = count_rows(connection, table)
    texts = {name: quoted(name) for name, kind in types.items() if kind == "VARCHAR"}
    if rows > MOST_ROWS or len(types) < 2 or not texts:
        return table, {}
    folded = {name: f"lower(trim({own}))" for name, own in texts.items()}
    filled = _number(f"{quoted(name)} IS NOT NULL" for name in types)
    units = _number(f"regexp_full_match({own}, {literal(_UNIT)})" for own in folded.values())
    kinds = {
        "totals": _number(f"regexp_full_match({own}, {literal(_TOTAL)})" for own in folded.values()) + " >= 1",
        "units": f"{units} >= 2 OR {units} = {filled} AND {filled} > 0",
        "the header again": _number(f"{own} = {literal(name.casefold().strip())}" for name, own in folded.items())
        + f" >= {max(2, len(types) // 2)}",
        "notes beside the table": f"{len(types)} > 2 AND {filled} = 1 AND {next(iter(texts.values()))} IS NOT NULL",
    }
    counts = connection.execute(
        f"SELECT {', '.join(f'count(*) FILTER ({test})' for test in kinds.values())} FROM {table}"
    ).fetchall()[0]
    most = min(STRAYS, rows / 100)
    found = {kind: int(count) for kind, count in zip(kinds, counts, strict=True) if 0 < count <= max(1, most)}
    if not found:
        return table, {}
    stray = " OR ".join(f"coalesce({kinds[kind]}, false)" for kind in found)
    connection.execute(f"CREATE OR REPLACE TEMP VIEW without_strays AS SELECT * FROM {table} WHERE NOT ({stray})")
    return "without_strays", found


def _number(tests: Iterable[str]) -> str:
    """The number of tests that a row passes."""
    return "(" + " + ".join(f"coalesce({test}, false)::INT" for test in tests) + ")"

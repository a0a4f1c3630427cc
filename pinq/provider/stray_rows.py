# SPDX-License-Identifier: Apache-2.0
"""Rows of a table that are about nobody: totals, units, the header again, notes below.

A proposal is made as if they were not there. The declarations leave most of them out, row by row: they lack a
value that every other row has, or hold one that is not declared.

And the opposite: a row that is taken for the header, so that somebody's values would be public names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import duckdb

from pinq.engine import count_rows
from pinq.engine.formats import LIKELY, SAMPLE, Changes, FormatDoubt, as_options
from pinq.engine.sources import literal, quoted
from pinq.policy.dialect import Dialect

MOST_ROWS = 200_000  # of a table that somebody wrote by hand
STRAYS = 10  # more rows of a kind than these, and than one in a hundred, are a part of the table
SUBTOTALS = 10  # more rows than one in so many are a part of the table, though they lack values, too
COUNTED = 5  # names that count from 0 or 1 on are no row
_TOTAL = (
    r"(grand |sub)?total(s|e|es|i)?|summe[nr]?|gesamt(summe|ergebnis)?|zwischensumme|insgesamt|sum|suma|somme|ensemble|"
    r"overall|all|alle"
)
_UNIT = (
    r"[\[(]?(%|k?g|[mµu]g|[cmk]?m|m?l|dl|eur|euro|€|\$|usd|chf|gbp|£|years?|jahre?|anos|ans|annees|tage?|"
    r"days?|dias|jours|h|min|sec|s|mm ?hg|mmol/l|m?g/dl|bpm|°?c|kg/m.?|tsd\.? ?(€|eur)|n)[\])]?"
)
_MAIL = r"[^@\s]+@[^@\s]+\.\w+"


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
    totals = _number(f"regexp_full_match({own}, {literal(_TOTAL)})" for own in folded.values()) + " >= 1"
    units = _number(f"regexp_full_match({own}, {literal(_UNIT)})" for own in folded.values())
    kinds = {
        "totals": totals,
        "subtotals": f"{totals} AND {filled} < {len(types)}",
        "units": f"{units} >= 2 OR {units} = {filled} AND {filled} > 0",
        "the header again": _number(f"{own} = {literal(name.casefold().strip())}" for name, own in folded.items())
        + f" >= {max(2, len(types) // 2)}",
        "notes beside the table": f"{len(types)} > 2 AND {filled} = 1 AND {next(iter(texts.values()))} IS NOT NULL",
    }
    counts = connection.execute(
        f"SELECT {', '.join(f'count(*) FILTER ({test})' for test in kinds.values())} FROM {table}"
    ).fetchall()[0]
    most = dict.fromkeys(kinds, min(STRAYS, rows / 100)) | {"subtotals": rows / SUBTOTALS}
    found = {kind: int(count) for kind, count in zip(kinds, counts, strict=True) if 0 < count <= max(1, most[kind])}
    if "totals" in found:
        found.pop("subtotals", None)
    if not found:
        return table, {}
    stray = " OR ".join(f"coalesce({kinds[kind]}, false)" for kind in found)
    connection.execute(f"CREATE OR REPLACE TEMP VIEW without_strays AS SELECT * FROM {table} WHERE NOT ({stray})")
    return "without_strays", found


def require_names(
    connection: duckdb.DuckDBPyConnection, table: str, names: Sequence[str], dialect: Dialect, before: int = 0
) -> None:
    """Raises ``FormatDoubt`` where a header seems to be a row: a name is a value like those below it.

    That is a text that stands there again, beside others; a number among the numbers, or a date above
    dates; or an e-mail address. A year above counts, such as 2019, is a name, and so are 1 to 12.

    Args:
        connection: A connection that reads the table, and knows how it spells numbers and dates.
        table: The name of the table in SQL.
        names: The columns of texts; the header's names.
        dialect: The form in which the file was read.
        before: The number of columns before the header that were not read; a list of names names them, too.
    """
    numbers = [name for name in names if name.isdecimal()]
    counting = list(map(str, range(len(numbers) + 1)))
    if len(numbers) >= COUNTED and numbers in (counting[:-1], counting[1:]):
        return
    tests = ", ".join(f"coalesce({_is_row_value(quoted(name), literal(name))}, false)" for name in names)
    # A header that stands again, as on each page, has a word above numbers, and is no value.
    again = " AND ".join(f"{quoted(name)} = {literal(name)}" for name in names)
    above = " OR ".join(_is_word_above_numbers(quoted(name), literal(name)) for name in names)
    sample = f"(FROM {table} LIMIT {SAMPLE})"
    rows = f"{sample} WHERE ({again}) IS NOT TRUE OR NOT (SELECT {above} FROM {sample})"
    found = connection.execute(f"SELECT {tests} FROM {rows}").fetchall()[0]
    shown = next((name for name, alike in zip(names, found, strict=True) if alike or re.fullmatch(_MAIL, name)), None)
    if shown is None:
        return
    numbered = tuple(f"column_{number}" for number in range(1, before + len(names) + 1))
    neutral: Changes = {"header": numbered}
    choices, kept = [neutral], {"skip": dialect.skip + 1, "header": (*numbered[:before], *names)}
    choices += [kept] if not any(re.search('[,"]|^ | $', name) for name in names) else []
    raise FormatDoubt(
        f"The first line seems to be a row and no header, for its {shown!r} is a value like those below it, and names "
        f"are public: try {' or, where it does name the columns, '.join(map(as_options, choices))} (other names will "
        "do, too).",
        choices,
    )


def _is_word_above_numbers(column: str, name: str) -> str:
    """Tests in SQL whether a column has numbers, and its name is none."""
    return f"(number_of({name}) IS NULL AND count(number_of({column})) > {LIKELY} * count({column}))"


def _is_row_value(column: str, name: str) -> str:
    """Tests in SQL whether a column's name is a value like those below it."""
    numbers, number = f"number_of({column})", f"number_of({name})"
    most = f"{LIKELY} * count({column})"
    years = f"(NOT regexp_full_match({name}, '(19|20)[0-9]{{2}}') OR min({numbers}) >= 1900 AND max({numbers}) < 2100)"
    among = f"count({numbers}) >= {most} AND {number} BETWEEN min({numbers}) AND max({numbers}) AND {years}"
    dated = f"moment_of({name}) IS NOT NULL AND count(moment_of({column})) >= {most}"
    again = f"{number} IS NULL AND bool_or({column} = {name}) AND min({column}) < max({column})"
    return f"count({column}) > 0 AND ({among} OR {dated} OR {again})"


def _number(tests: Iterable[str]) -> str:
    """The number of tests that a row passes."""
    return "(" + " + ".join(f"coalesce({test}, false)::INT" for test in tests) + ")"

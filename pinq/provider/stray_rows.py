# SPDX-License-Identifier: Apache-2.0
"""Rows of a table that describe no person: totals, units, a repeated header, notes.

A proposal ignores them. The declarations leave most of them out, row by row: they lack a value that every
other row has, or have one that is not declared.

The opposite fault is found too: a row that is read as the header, so that a person's values would be public names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import duckdb

from pinq.engine import count_rows
from pinq.engine.formats import LIKELY, SAMPLE, Changes, FormatDoubt, as_options
from pinq.engine.sources import literal, quoted
from pinq.policy.dialect import Dialect

MOST_ROWS = 200_000  # the largest table that may be written by hand
STRAYS = 10  # the most stray rows of a kind; also at most one row in a hundred
SUBTOTALS = 10  # at most one row in ten is a subtotal
COUNTED = 5  # at least so many names that count from 0 or 1 on are names, not a row
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
    """Finds the stray rows.

    Returns:
        The name of the other rows in SQL, and the numbers of stray rows by kind.
    """
    rows = count_rows(connection, table)
    texts = {name: quoted(name) for name, kind in types.items() if kind == "VARCHAR"}
    if rows > MOST_ROWS or len(types) < 2 or not texts:
        return table, {}
    folded = {name: f"lower(trim({text}))" for name, text in texts.items()}
    filled = _number(f"{quoted(name)} IS NOT NULL" for name in types)
    totals = _number(f"regexp_full_match({text}, {literal(_TOTAL)})" for text in folded.values()) + " >= 1"
    units = _number(f"regexp_full_match({text}, {literal(_UNIT)})" for text in folded.values())
    kinds = {
        "totals": totals,
        "subtotals": f"{totals} AND {filled} < {len(types)}",
        "units": f"{units} >= 2 OR {units} = {filled} AND {filled} > 0",
        "the header again": _number(f"{text} = {literal(name.casefold().strip())}" for name, text in folded.items())
        + f" >= {max(2, len(types) // 2)}",
        "notes beside the table": f"{len(types)} > 2 AND {filled} = 1 AND {next(iter(texts.values()))} IS NOT NULL",
    }
    counts = connection.execute(
        f"SELECT {', '.join(f'count(*) FILTER ({test})' for test in kinds.values())} FROM {table}"
    ).fetchall()[0]
    limits = dict.fromkeys(kinds, min(STRAYS, rows / 100)) | {"subtotals": rows / SUBTOTALS}
    strays = {kind: int(count) for kind, count in zip(kinds, counts, strict=True) if 0 < count <= max(1, limits[kind])}
    if "totals" in strays:
        strays.pop("subtotals", None)
    if not strays:
        return table, {}
    stray = " OR ".join(f"coalesce({kinds[kind]}, false)" for kind in strays)
    connection.execute(f"CREATE OR REPLACE TEMP VIEW without_strays AS SELECT * FROM {table} WHERE NOT ({stray})")
    return "without_strays", strays


def require_names(
    connection: duckdb.DuckDBPyConnection, table: str, names: Sequence[str], dialect: Dialect, before: int = 0
) -> None:
    """Raises ``FormatDoubt`` if a header seems to be a row: a name is a value like those below it.

    Such a name is a text that occurs in its column of several texts, a number in the range of its
    column's numbers, a date above dates, or an e-mail address. A year above counts, such as 2019, is
    a name, and so are 1 to 12.

    Args:
        connection: A connection that reads the table, with the macros ``number_of`` and ``moment_of``.
        table: The name of the table in SQL.
        names: The header's names, of columns of texts.
        dialect: The form in which the file was read.
        before: The number of unread columns before the header; a list of names must name them, too.
    """
    numbers = [name for name in names if name.isdecimal()]
    counting = list(map(str, range(len(numbers) + 1)))
    if len(numbers) >= COUNTED and numbers in (counting[:-1], counting[1:]):
        return
    tests = ", ".join(f"coalesce({_is_row_value(quoted(name), literal(name))}, false)" for name in names)
    # A repeated header, as on each page, has a word above numbers, and does not count as a row.
    again = " AND ".join(f"{quoted(name)} = {literal(name)}" for name in names)
    above = " OR ".join(_is_word_above_numbers(quoted(name), literal(name)) for name in names)
    sample = f"(FROM {table} LIMIT {SAMPLE})"
    rows = f"{sample} WHERE ({again}) IS NOT TRUE OR NOT (SELECT {above} FROM {sample})"
    alike_names = connection.execute(f"SELECT {tests} FROM {rows}").fetchall()[0]
    shown = next(
        (name for name, alike in zip(names, alike_names, strict=True) if alike or re.fullmatch(_MAIL, name)), None
    )
    if shown is None:
        return
    numbered = tuple(f"column_{number}" for number in range(1, before + len(names) + 1))
    neutral: Changes = {"header": numbered}
    choices, with_names = [neutral], {"skip": dialect.skip + 1, "header": (*numbered[:before], *names)}
    choices += [with_names] if not any(re.search('[,"]|^ | $', name) for name in names) else []
    raise FormatDoubt(
        f"The first line seems to be a row and no header, for its {shown!r} is a value like those below it, and names "
        f"are public: try {' or, where it does name the columns, '.join(map(as_options, choices))} (other names will "
        "do, too).",
        choices,
    )


def _is_word_above_numbers(column: str, name: str) -> str:
    return f"(number_of({name}) IS NULL AND count(number_of({column})) > {LIKELY} * count({column}))"


def _is_row_value(column: str, name: str) -> str:
    """Tests in SQL whether a column's name is a value like those below it."""
    numbers, number = f"number_of({column})", f"number_of({name})"
    enough = f"{LIKELY} * count({column})"
    years = f"(NOT regexp_full_match({name}, '(19|20)[0-9]{{2}}') OR min({numbers}) >= 1900 AND max({numbers}) < 2100)"
    among = f"count({numbers}) >= {enough} AND {number} BETWEEN min({numbers}) AND max({numbers}) AND {years}"
    dated = f"moment_of({name}) IS NOT NULL AND count(moment_of({column})) >= {enough}"
    again = f"{number} IS NULL AND bool_or({column} = {name}) AND min({column}) < max({column})"
    return f"count({column}) > 0 AND ({among} OR {dated} OR {again})"


def _number(tests: Iterable[str]) -> str:
    return "(" + " + ".join(f"coalesce({test}, false)::INT" for test in tests) + ")"

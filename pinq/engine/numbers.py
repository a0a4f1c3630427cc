# SPDX-License-Identifier: Apache-2.0
"""How SQL reads numbers and dates, whatever type the source gives them.

Texts spell numbers as declared, or, for who proposes a policy, as reads more of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import duckdb

from pinq.public.dates import DAY, MOMENT_FORM
from pinq.public.dialect import Dialect

__all__ = ["define_readings", "moment_number", "other_spelling"]

# A column looks misread where another spelling reads at least this share of its values as numbers,
# and the declared one less.
LIKELY = 0.9


def define_readings(connection: duckdb.DuckDBPyConnection, dialect: Dialect | None) -> None:
    """Defines ``number_of(value)`` in SQL: the number that a value is or spells, or NULL.

    Times without a zone are read in UTC, whatever the machine's own zone is.
    """
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"CREATE TEMP MACRO number_of(value) AS {_number('value', dialect or Dialect())}")


def moment_number(value: str, kind: str, microseconds: int) -> str:
    """Returns SQL for the number of a date: whole units since 1970; NULL for what is no date.

    ``microseconds_of`` reads values alike, for prediction.

    Args:
        value: An SQL expression.
        kind: Its type, as SQL calls it.
        microseconds: Of a unit.
    """
    if kind == "DATE":  # whose years reach further than those of times: a cast would fail on the row
        days = f"date_diff('day', DATE 'epoch', {value})"
        return _number_or_endless(f"isinf({value})", value, "DATE 'epoch'", f"{days} * {DAY // microseconds}")
    time, far = f"CAST({value} AS TIMESTAMPTZ)", ""
    if kind == "TIMESTAMP_S":  # so do these
        time = f"TRY_CAST({value} AS TIMESTAMP)"
        far = f" OR ({time} IS NULL AND {value} IS NOT NULL)"
    elif not kind.startswith("TIMESTAMP"):
        text = f"CAST({value} AS VARCHAR)"
        time = f"(CASE WHEN regexp_full_match({text}, '{MOMENT_FORM}') THEN TRY_CAST(trim({text}) AS TIMESTAMPTZ) END)"
    count = f"epoch_us({time})"
    whole = f"({count} // {microseconds} - CAST({count} % {microseconds} < 0 AS INTEGER))"
    compared = (value, "CAST('1970-01-01' AS TIMESTAMP_S)") if far else (time, "TIMESTAMPTZ 'epoch'")
    return _number_or_endless(f"isinf({time}){far}", *compared, whole)


def _number_or_endless(is_endless: str, value: str, epoch: str, number: str) -> str:
    """Returns SQL for a number, or for one beyond all bounds where a date is beyond all numbers."""
    endless = f"(CASE WHEN {value} > {epoch} THEN 1e15 ELSE -1e15 END)"
    return f"(CASE WHEN {is_endless} THEN {endless} ELSE CAST({number} AS DOUBLE) END)"


def other_spelling(connection: duckdb.DuckDBPyConnection, table: str, columns: Sequence[str], dialect: Dialect) -> str:
    """Says which spelling would read numbers that the dialect does not; empty if all is well.

    Where the dialect states how numbers are spelled, nothing is said.

    Args:
        connection: Reads the table.
        table: Of texts.
        columns: Which columns, as SQL names them.
        dialect: What it states is not doubted.
    """
    others = list(_others(dialect))
    for column in columns if others else ():
        counts = [f"count({_number(column, other)})" for other in (dialect, *others)]
        filled, declared, *counted = connection.execute(
            f"SELECT count({column}), {', '.join(counts)} FROM {table}"
        ).fetchall()[0]
        likely = [
            other
            for other, count in zip(others, counted, strict=True)
            if filled and count >= LIKELY * filled > declared
        ]
        if likely:
            keep = f'--decimal "{dialect.decimal}" --thousands "{dialect.thousands or "none"}"'
            options = _options(likely[0], dialect)
            return (
                f"The values of {column} look like numbers in another spelling: try {options}. "
                f"To keep them as they are: {keep}"
            )
    return ""


def _number(text: str, dialect: Dialect) -> str:
    """The number that an SQL expression spells. A point is no decimal sign where a comma is one."""
    if dialect.thousands is not None:
        sign = dialect.thousands.replace("'", "''")
        grouped = f"regexp_full_match({text}, '\\s*[+-]?[0-9]{{1,3}}([{sign}][0-9]{{3}})+([^0-9{sign}][^{sign}]*)?')"
        text = f"(CASE WHEN {grouped} THEN replace({text}, '{sign}', '') ELSE {text} END)"
    if dialect.decimal != ".":
        text = f"(CASE WHEN NOT contains({text}, '.') THEN replace({text}, '{dialect.decimal}', '.') END)"
    return f"TRY_CAST({text} AS DOUBLE)"


def _others(dialect: Dialect) -> Iterator[Dialect]:
    """Other spellings, the simplest first. What was stated stays as it is: the provider looked."""
    stated = dialect.model_fields_set
    for decimal in (dialect.decimal,) if "decimal" in stated else (dialect.decimal, ","):
        for thousands in (dialect.thousands,) if "thousands" in stated else (None, ".", ",", " ", "'"):
            if thousands != decimal and (decimal, thousands) != (dialect.decimal, dialect.thousands):
                yield dialect.model_copy(update={"decimal": decimal, "thousands": thousands})


def _options(likely: Dialect, declared: Dialect) -> str:
    options = [f'--decimal "{likely.decimal}"'] if likely.decimal != declared.decimal else []
    return " ".join([*options, *([f'--thousands "{likely.thousands}"'] if likely.thousands else [])])

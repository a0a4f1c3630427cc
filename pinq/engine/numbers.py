# SPDX-License-Identifier: Apache-2.0
"""The reading of numbers and dates in SQL, from any type of the source.

Texts have numbers in the declared form; ``formats`` guesses it.
"""

from __future__ import annotations

import re

import duckdb

from pinq.policy.dialect import Dialect
from pinq.public.dates import CLOCK_FORM, DAY, MOMENT_FORM

_DIGITS = {"%d": "[0-9]{1,2}", "%m": "[0-9]{1,2}", "%b": "[A-Za-z]{3}", "%Y": "[1-9][0-9]{3}", "%y": "[0-9]{2}"}
_DIGITS |= {"%I": "(?:0?[1-9]|1[0-2])", "%M": "[0-5][0-9]", "%S": "[0-5][0-9]", "%p": "[AaPp][Mm]"}


def define_readings(connection: duckdb.DuckDBPyConnection, dialect: Dialect | None) -> None:
    """Defines what a text spells in SQL: ``number_of(value)`` and ``moment_of(text)``, NULL where it spells none.

    Times without a zone are read in UTC, whatever the machine's own zone is.
    """
    spelled = dialect or Dialect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"CREATE TEMP MACRO number_of(value) AS {number_sql('value', spelled)}")
    moments = ", ".join(
        [*(moment_sql("text", form, spelled.century or 0) for form in spelled.dates), moment_sql("text")]
    )
    connection.execute(f"CREATE TEMP MACRO moment_of(text) AS coalesce({moments})")


def moment_sql(text: str, form: str | None = None, century: int = 0) -> str:
    """The time that an SQL expression spells in a form of dates, by default the one of ISO 8601."""
    if form is None:
        return f"(CASE WHEN regexp_full_match({text}, '{MOMENT_FORM}') THEN TRY_CAST(trim({text}) AS TIMESTAMPTZ) END)"
    # Of "16.11.2024 08:30" in the form "%d.%m.%Y" the first part becomes 2024-11-16, and the second stays.
    before, year, after = re.split("(%[yY])", form)
    own = [re.sub("%[a-zA-Z]", lambda part: _DIGITS[part[0]], piece.replace(".", "[.]")) for piece in (before, after)]
    clock = "" if "%p" in form else f"([ T]{CLOCK_FORM})?"
    pattern = f" *({own[0]})({_DIGITS[year]})({own[1]}){clock} *"
    pieces = [f"regexp_extract({text}, '{pattern}', {number})" for number in range(1, 5 if clock else 4)]
    if year == "%y":  # of the hundred years from `century` on, the one that ends so
        ends = f"TRY_CAST({pieces[1]} AS INTEGER)"
        pieces[1] = f"({century - century % 100} + {ends} + CASE WHEN {ends} < {century % 100} THEN 100 ELSE 0 END)"
    date = f"try_strptime({' || '.join(pieces[:3])}, '{form.replace('%y', '%Y')}')"
    moment = f"TRY_CAST({date}::DATE::VARCHAR || {pieces[3]} AS TIMESTAMPTZ)" if clock else f"{date}::TIMESTAMPTZ"
    return f"(CASE WHEN regexp_full_match({text}, '{pattern}') THEN {moment} END)"


def moment_number(value: str, kind: str, microseconds: int) -> str:
    """Returns SQL for the number of a date: whole units since 1970; NULL for what is no date.

    ``microseconds_of`` reads values alike, for prediction.

    Args:
        value: An SQL expression.
        kind: Its type, as SQL calls it.
        microseconds: The microseconds of a unit.
    """
    if kind == "DATE":  # whose years reach further than those of times: a cast would fail on the row
        days = f"date_diff('day', DATE 'epoch', {value})"
        return _number_or_endless(f"isinf({value})", value, "DATE 'epoch'", f"{days} * {DAY // microseconds}")
    time, far = f"CAST({value} AS TIMESTAMPTZ)", ""
    if kind == "TIMESTAMP_S":  # so do these
        time = f"TRY_CAST({value} AS TIMESTAMP)"
        far = f" OR ({time} IS NULL AND {value} IS NOT NULL)"
    elif not kind.startswith("TIMESTAMP"):
        time = f"moment_of(CAST({value} AS VARCHAR))"
    count = f"epoch_us({time})"
    whole = f"({count} // {microseconds} - CAST({count} % {microseconds} < 0 AS INTEGER))"
    compared = (value, "CAST('1970-01-01' AS TIMESTAMP_S)") if far else (time, "TIMESTAMPTZ 'epoch'")
    return _number_or_endless(f"isinf({time}){far}", *compared, whole)


def _number_or_endless(is_endless: str, value: str, epoch: str, number: str) -> str:
    """Returns SQL for a number, or for one beyond all bounds where a date is beyond all numbers."""
    endless = f"(CASE WHEN {value} > {epoch} THEN 1e15 ELSE -1e15 END)"
    return f"(CASE WHEN {is_endless} THEN {endless} ELSE CAST({number} AS DOUBLE) END)"


def number_sql(text: str, dialect: Dialect) -> str:
    """The number that an SQL expression spells. A point is no decimal sign where a comma is one."""
    if dialect.thousands is not None:
        sign = dialect.thousands.replace("'", "''")
        text = f"trim({text}, ' {sign}')" if sign.isspace() else text  # blanks around are none between groups
        grouped = f"regexp_full_match({text}, '\\s*[+-]?[0-9]{{1,3}}([{sign}][0-9]{{3}})+([^0-9{sign}][^{sign}]*)?')"
        text = f"(CASE WHEN {grouped} THEN replace({text}, '{sign}', '') ELSE {text} END)"
    if dialect.decimal != ".":
        text = f"(CASE WHEN NOT contains({text}, '.') THEN replace({text}, '{dialect.decimal}', '.') END)"
    # DuckDB would read the code 12_3 as 123. Of a column of numbers nothing is looked for.
    joined = f"typeof({text}) = 'VARCHAR' AND contains(CAST({text} AS VARCHAR), '_')"
    return f"(CASE WHEN {joined} THEN NULL ELSE TRY_CAST({text} AS DOUBLE) END)"

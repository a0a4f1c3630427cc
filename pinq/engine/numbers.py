# SPDX-License-Identifier: Apache-2.0
"""The reading of numbers and dates in SQL, from any type of the source.

Texts spell numbers in the declared form, which ``formats`` guesses.
"""

from __future__ import annotations

import re

import duckdb

from pinq.policy.dialect import Dialect
from pinq.public.dates import CLOCK_FORM, DAY, MOMENT_FORM

_DIGITS = {"%d": "[0-9]{1,2}", "%m": "[0-9]{1,2}", "%b": "[A-Za-z]{3}", "%Y": "[1-9][0-9]{3}", "%y": "[0-9]{2}"}
_DIGITS |= {"%I": "(?:0?[1-9]|1[0-2])", "%M": "[0-5][0-9]", "%S": "[0-5][0-9]", "%p": "[AaPp][Mm]"}


def define_readings(connection: duckdb.DuckDBPyConnection, dialect: Dialect | None) -> None:
    """Defines the SQL macros ``number_of(value)`` and ``moment_of(text)``; both are NULL for other texts.

    Times without a zone are read in UTC, in any time zone of the machine.
    """
    declared = dialect or Dialect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"CREATE TEMP MACRO number_of(value) AS {number_sql('value', declared)}")
    moments = ", ".join(
        [*(moment_sql("text", form, declared.century or 0) for form in declared.dates), moment_sql("text")]
    )
    connection.execute(f"CREATE TEMP MACRO moment_of(text) AS coalesce({moments})")


def moment_sql(text: str, form: str | None = None, century: int = 0) -> str:
    """SQL for the time that a text spells in a form of dates, by default ISO 8601."""
    if form is None:
        return f"(CASE WHEN regexp_full_match({text}, '{MOMENT_FORM}') THEN TRY_CAST(trim({text}) AS TIMESTAMPTZ) END)"
    # In the form "%d.%m.%Y" the date of "16.11.2024 08:30" becomes 2024-11-16, and the clock stays.
    before, year, after = re.split("(%[yY])", form)
    first, last = (
        re.sub("%[a-zA-Z]", lambda part: _DIGITS[part[0]], piece.replace(".", "[.]")) for piece in (before, after)
    )
    clock = "" if "%p" in form else f"([ T]{CLOCK_FORM})?"
    pattern = f" *({first})({_DIGITS[year]})({last}){clock} *"
    pieces = [f"regexp_extract({text}, '{pattern}', {number})" for number in range(1, 5 if clock else 4)]
    if year == "%y":  # with century 1930, 30 is 1930 and 29 is 2029
        ends = f"TRY_CAST({pieces[1]} AS INTEGER)"
        pieces[1] = f"({century - century % 100} + {ends} + CASE WHEN {ends} < {century % 100} THEN 100 ELSE 0 END)"
    date = f"try_strptime({' || '.join(pieces[:3])}, '{form.replace('%y', '%Y')}')"
    moment = f"TRY_CAST({date}::DATE::VARCHAR || {pieces[3]} AS TIMESTAMPTZ)" if clock else f"{date}::TIMESTAMPTZ"
    return f"(CASE WHEN regexp_full_match({text}, '{pattern}') THEN {moment} END)"


def moment_number(value: str, kind: str, microseconds: int) -> str:
    """SQL for the number of a date: whole units of ``microseconds`` since 1970; NULL for other values.

    ``microseconds_of`` reads values in the same way, for prediction.
    """
    if kind == "DATE":  # a DATE may be beyond the range of TIMESTAMP, and a cast would fail on its row
        days = f"date_diff('day', DATE 'epoch', {value})"
        return _number_or_endless(f"isinf({value})", value, "DATE 'epoch'", f"{days} * {DAY // microseconds}")
    time, far = f"CAST({value} AS TIMESTAMPTZ)", ""
    if kind == "TIMESTAMP_S":  # may be beyond the range of TIMESTAMP, too
        time = f"TRY_CAST({value} AS TIMESTAMP)"
        far = f" OR ({time} IS NULL AND {value} IS NOT NULL)"
    elif not kind.startswith("TIMESTAMP"):
        time = f"moment_of(CAST({value} AS VARCHAR))"
    count = f"epoch_us({time})"
    whole = f"({count} // {microseconds} - CAST({count} % {microseconds} < 0 AS INTEGER))"
    compared = (value, "CAST('1970-01-01' AS TIMESTAMP_S)") if far else (time, "TIMESTAMPTZ 'epoch'")
    return _number_or_endless(f"isinf({time}){far}", *compared, whole)


def _number_or_endless(is_endless: str, value: str, epoch: str, number: str) -> str:
    """SQL for a date's number; plus or minus 10^15 for an infinite date, so that it is clamped."""
    endless = f"(CASE WHEN {value} > {epoch} THEN 1e15 ELSE -1e15 END)"
    return f"(CASE WHEN {is_endless} THEN {endless} ELSE CAST({number} AS DOUBLE) END)"


def number_sql(text: str, dialect: Dialect) -> str:
    """SQL for the number that a text spells. With a decimal comma, a point is not a decimal sign."""
    if dialect.thousands is not None:
        sign = dialect.thousands.replace("'", "''")
        text = f"trim({text}, ' {sign}')" if sign.isspace() else text  # blanks around a number separate no groups
        grouped = f"regexp_full_match({text}, '\\s*[+-]?[0-9]{{1,3}}([{sign}][0-9]{{3}})+([^0-9{sign}][^{sign}]*)?')"
        text = f"(CASE WHEN {grouped} THEN replace({text}, '{sign}', '') ELSE {text} END)"
    if dialect.decimal != ".":
        text = f"(CASE WHEN NOT contains({text}, '.') THEN replace({text}, '{dialect.decimal}', '.') END)"
    # DuckDB would read the text 12_3 as 123. Values of number columns need no such check.
    joined = f"typeof({text}) = 'VARCHAR' AND contains(CAST({text} AS VARCHAR), '_')"
    return f"(CASE WHEN {joined} THEN NULL ELSE TRY_CAST({text} AS DOUBLE) END)"

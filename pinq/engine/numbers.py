# SPDX-License-Identifier: Apache-2.0
"""The reading of numbers and dates in SQL, from any type of the source.

Texts have numbers in the declared form. The proposal of a policy tries the form that reads most of
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import duckdb

from pinq.policy.dialect import Dialect
from pinq.public.dates import CLOCK_FORM, DAY, MOMENT_FORM

# A column looks misread where another form reads at least this share of its values, and more than the
# declared one does, by even one.
LIKELY = 0.8
# Forms that `pinq init` looks for. Numbers of eight digits are dates where all of them can be.
_FORMS = (
    *("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d"),
    *("%d %b %Y", "%d-%b-%Y", "%d%b%Y", "%b %d, %Y", "%Y%m%d"),
)
SAMPLE = 20_000  # rows in which forms of dates are looked for
_DIGITS = {"%d": "[0-9]{1,2}", "%m": "[0-9]{1,2}", "%b": "[A-Za-z]{3}", "%Y": "[1-9][0-9]{3}", "%y": "[0-9]{2}"}
_DIGITS |= {"%I": "(?:0?[1-9]|1[0-2])", "%M": "[0-5][0-9]", "%S": "[0-5][0-9]", "%p": "[AaPp][Mm]"}


def define_readings(connection: duckdb.DuckDBPyConnection, dialect: Dialect | None) -> None:
    """Defines what a text spells in SQL: ``number_of(value)`` and ``moment_of(text)``, NULL where it spells none.

    Times without a zone are read in UTC, whatever the machine's own zone is.
    """
    spelled = dialect or Dialect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"CREATE TEMP MACRO number_of(value) AS {_number('value', spelled)}")
    moments = ", ".join([*(_moment("text", form, spelled.century or 0) for form in spelled.dates), _moment("text")])
    connection.execute(f"CREATE TEMP MACRO moment_of(text) AS coalesce({moments})")


def _moment(text: str, form: str | None = None, century: int = 0) -> str:
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


def other_spelling(connection: duckdb.DuckDBPyConnection, table: str, columns: Sequence[str], dialect: Dialect) -> str:
    """Says which spelling would read numbers that the dialect does not; empty if all is well.

    Where the dialect states how numbers are spelled, nothing is said.

    Args:
        connection: A connection that reads the table.
        table: The table of texts.
        columns: The columns, as SQL names them.
        dialect: The declared form. Declared settings are not guessed again.
    """
    for column in columns:
        if options := likely_spelling(connection, table, column, dialect):
            if len(options) > 1:
                return (
                    f"The values of {column} are numbers in several spellings, for three digits behind a sign may be a "
                    f"fraction or thousands: try {' or '.join(options)}."
                )
            return (
                f"The values of {column} look like numbers in another spelling: try {options[0]}. "
                f"To keep them as they are: {_kept(dialect)}."
            )
    return ""


def likely_spelling(
    connection: duckdb.DuckDBPyConnection, table: str, column: str, dialect: Dialect
) -> tuple[str, ...]:
    """Returns options that would have more of a column's values be numbers; none where no form would.

    Several are returned where each reads all, as different numbers: 1.234 may be one, or a thousand.
    """
    others = list(_others(dialect))
    if not others:
        return ()
    # Three digits behind a sign, each time, may be a fraction or thousands. 0.125 cannot be thousands.
    signs = [sign for sign in (".", ",") if sign == dialect.decimal or dialect.decimal == "."]
    grouped = [
        f"count(*) FILTER (contains({column}, '{sign}')), count(*) FILTER (regexp_full_match({column}, "
        f"'\\s*[+-]?[1-9][0-9]{{0,2}}[{sign}][0-9]{{3}}\\s*'))"
        for sign in signs
    ]
    counts = [f"count({_number(column, other)})" for other in (dialect, *others)]
    query = f"SELECT {', '.join([*grouped, *counts])}, count({column}) FROM {table}"
    *found, filled = connection.execute(query).fetchall()[0]
    declared, *counted = found[2 * len(signs) :]
    best = max(counted)
    if not filled or best < max(LIKELY * filled, declared):
        return ()
    read = [other for other, count in zip(others, counted, strict=True) if count == best]
    either = [sign for sign, signed, alike in zip(signs, found[::2], found[1::2], strict=False) if 0 < signed == alike]
    doubtful = [other for other in read for sign in either if sign in (other.thousands or other.decimal)]
    options = [_options(other, dialect) for other in doubtful or (read[:1] if best > declared else ())]
    return (*options, *([_kept(dialect)] if doubtful and best == declared else ()))


def date_forms(connection: duckdb.DuckDBPyConnection, table: str, value: str) -> tuple[list[str], str]:
    """Returns the forms in which more of a column's values are dates, and one that is not read yet; none for no gain.

    Several forms are returned where each reads as many, such as 01/02/2024 with the day or the month first.

    Args:
        connection: A connection that reads the table.
        table: The name of the table in SQL.
        value: A text, as SQL names it. Where all of them are dates as they are read already, no form is needed.
    """
    reads = [f"count(coalesce({_moment(value, form)}, moment_of({value})))" for form in _FORMS]
    counted = f"count({value}), count(moment_of({value})), max({value}) FILTER (moment_of({value}) IS NULL)"
    filled, declared, example, *counts = connection.execute(
        f"SELECT {counted}, {', '.join(reads)} FROM (FROM {table} LIMIT {SAMPLE})"
    ).fetchall()[0]
    # Numbers of eight digits are dates where all of them can be.
    least = {form: filled if form == "%Y%m%d" else LIKELY * filled for form in _FORMS}
    best = max((count for form, count in zip(_FORMS, counts, strict=True) if count >= least[form]), default=0)
    forms = [form for form, count in zip(_FORMS, counts, strict=True) if count == best > declared]
    return forms, example or ""


def other_dates(connection: duckdb.DuckDBPyConnection, table: str, columns: Sequence[str], dialect: Dialect) -> str:
    """Says which forms of dates would read texts that the dialect does not; empty if all is well.

    Where a column's day and month may be either, and no other column of the file decides, it asks.

    Args:
        connection: A connection that reads the table.
        table: The table of texts.
        columns: The columns, as SQL names them.
        dialect: The declared form. Declared settings are not guessed again.
    """
    if "dates" in dialect.model_fields_set:
        return ""
    found = {column: date_forms(connection, table, column) for column in columns}
    seen = {column: (forms, example) for column, (forms, example) in found.items() if forms}
    if not seen:
        return ""
    known = list(dict.fromkeys(forms[0] for forms, _ in seen.values() if len(forms) == 1))
    either = next((forms for forms, _ in seen.values() if not set(forms) & set(known)), [])
    lists = [[*known, form] for form in either] or [known]
    options = " or ".join(f'--dates "{",".join(forms)}"' for forms in lists)
    shown = ", ".join(f"{column} ({example!r})" for column, (_, example) in seen.items())
    doubt = " Both orders of day and month read all of them: say which it is." if either else ""
    return (
        f"The values of {shown} look like dates in another form: try {options} (in a policy "
        f"`csv: {{dates: {lists[0]}}}`).{doubt} To keep them as they are: --dates none."
    )


def _number(text: str, dialect: Dialect) -> str:
    """The number that an SQL expression spells. A point is no decimal sign where a comma is one."""
    if dialect.thousands is not None:
        sign = dialect.thousands.replace("'", "''")
        grouped = f"regexp_full_match({text}, '\\s*[+-]?[0-9]{{1,3}}([{sign}][0-9]{{3}})+([^0-9{sign}][^{sign}]*)?')"
        text = f"(CASE WHEN {grouped} THEN replace({text}, '{sign}', '') ELSE {text} END)"
    if dialect.decimal != ".":
        text = f"(CASE WHEN NOT contains({text}, '.') THEN replace({text}, '{dialect.decimal}', '.') END)"
    # DuckDB would read the code 12_3 as 123. Of a column of numbers nothing is looked for.
    joined = f"typeof({text}) = 'VARCHAR' AND contains(CAST({text} AS VARCHAR), '_')"
    return f"(CASE WHEN {joined} THEN NULL ELSE TRY_CAST({text} AS DOUBLE) END)"


def _others(dialect: Dialect) -> Iterator[Dialect]:
    """Other spellings, the simplest first. Declared settings stay as they are: the provider looked."""
    stated = dialect.model_fields_set
    for decimal in (dialect.decimal,) if "decimal" in stated else (dialect.decimal, ","):
        for thousands in (dialect.thousands,) if "thousands" in stated else (None, ".", ",", " ", "'"):
            if thousands != decimal and (decimal, thousands) != (dialect.decimal, dialect.thousands):
                yield dialect.model_copy(update={"decimal": decimal, "thousands": thousands})


def _kept(dialect: Dialect) -> str:
    """The options that state a spelling, so that no other is looked for."""
    return f'--decimal "{dialect.decimal}" --thousands "{dialect.thousands or "none"}"'


def _options(likely: Dialect, declared: Dialect) -> str:
    options = [f'--decimal "{likely.decimal}"'] if likely.decimal != declared.decimal else []
    return " ".join([*options, *([f'--thousands "{likely.thousands}"'] if likely.thousands else [])])

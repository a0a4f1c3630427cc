# SPDX-License-Identifier: Apache-2.0
"""Exact facts about a raw column and the look of its values, for the provider's proposal of a policy only.

It names unusual kinds of values (amounts, other dates, missing codes) and a declaration of each, and converts no value,
so codes for missing values do not become bounds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import duckdb

from pinq.engine.numbers import moment_number
from pinq.engine.sources import quoted
from pinq.public.columns import number_of_text
from pinq.public.dates import DAY, MINUTE, write_moment

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


# What values look like


MOSTLY = 0.8  # the least share of texts that have one form
SOME = 0.05  # the least share of texts in a second form of numbers
MOST_WORDS = 5  # the most different texts among numbers, and the most values for each number
MOST_CODES = 4  # the most codes for missing values of one column
USUAL = (-43_829, 47_846)  # days since 1970: from 1850 to 2100
NEVER = ("1899-12-30", "1899-12-31", "1900-01-01", "1970-01-01")  # the number 0 as a date, in several programs
SHOWN = 200  # different texts that are examined
_AMOUNT = re.compile(r"(?P<before>[A-Z]{3}(?=\W)|[$€£¥]|[<>≤≥])?\W{0,2}\d[\d.,'\u00a0\u202f ]*(?P<after>[^\d]{0,8})")
_OTHER_DATES = "dates in another form, such as {!r}; write 2024-11-16 in the source, or derive a date by a `formula:`"
_OTHER_DIGITS = re.compile(r"(?=.*[^\x00-\x7f])[+\-\u2212\u2013\uff0d]?\d[\d.,·\u066b\u066c\uff0e\uff0c'’\s]*")
_GROUPS_OF_TWO = re.compile(r"[+-]?\d{1,2}(,\d\d)+,\d{3}(\.\d+)?")
_FORMS = {
    r"\d{1,2}\W{0,2}[^\W\d]{3,12}\W{0,2}\d{4}|[^\W\d]{3,12}\W{0,2}\d{1,2}\W{0,2}\d{4}": _OTHER_DATES,
    r"(\d{4}|[^\W\d]{1,2}\d{1,2})[年년]\W?\d{1,2}[月월]\W?\d{1,2}[日일]": _OTHER_DATES,
    r"(0[1-9]|[12]\d|3[01])(0[1-9]|1[0-2])(19|20)\d\d": _OTHER_DATES,
    r"(19|20)\d\d(\W|\W?[WQTK]\W?)\d{1,2}|[WQTK]\W?\d{1,2}\W?(19|20)\d\d": "weeks, months or quarters, such as {!r}; "
    "derive a date or a number by a `formula:`",
    r"\d{1,2}([./-])\d{1,2}\1\d{2}( .*)?": "dates with years of two digits, which have no century; "
    "write four digits, or in a text file name the earliest year: --dates %d.%m.%y --century 1930",
    r".*\d:\d\d(:\d\d)? ?[AaPp]\.?[Mm]\.?": "times of the 12-hour clock; in a text file declare them, "
    'such as --dates "%m/%d/%Y %I:%M %p", else derive a date by a `formula:`',
    r"\d{1,3}/\d{1,3}": "two numbers in one text, such as {!r}; write them in two columns",
    r"(\d+ days?,? )?\d+:\d\d(:\d\d(\.\d+)?)?": "times of day or durations; derive a number of hours by a `formula:`",
}
_WORDS = (
    r"[#<]?n/?a>?|nan|n\.a\.|null|nil|none|missing|unknown|unbekannt|k\.? ?a\.?|keine angabe|[-*.?#/ ]+|not available"
)
CODES = (*range(-9, 0), *(sign * int(digit * length) for sign in (1, -1) for digit in "789" for length in range(2, 7)))
"""Numbers that mean a missing value in many tables, such as -9 and 999."""


def looks_like(texts: Sequence[str]) -> str:
    """The form that most of a column's texts have, in words; empty for no known form."""
    for pattern, description in _FORMS.items():
        if len(alike := _written(re.compile(pattern), texts)) >= MOSTLY * len(texts) > 0:
            return description.format(alike[0])
    amounts = [match for text in texts if (match := _AMOUNT.fullmatch(text.strip()))]
    signs = {(match["before"], match["after"].strip()) for match in amounts} - {(None, "")}
    if amounts and len(amounts) >= MOSTLY * len(texts) and 0 < len(signs) <= 5:
        shown = next(match[0] for match in amounts if (match["before"], match["after"].strip()) in signs)
        return f"numbers with a sign or unit, such as {shown!r}; derive a number by a `formula:`"
    plain = [_written(re.compile(rf"[+-]?\d+{decimals}", re.ASCII), texts) for decimals in ("", "[.]\\d+", "[,]\\d+")]
    unusual = _written(_OTHER_DIGITS, texts) or _written(_GROUPS_OF_TWO, texts)
    if sum(map(len, (unusual, *plain))) >= MOSTLY * len(texts) > 0:
        if len(unusual) >= SOME * len(texts):
            return f"numbers in other digits or signs, such as {unusual[0]!r}; write them by 0 to 9 and one sign"
        if min(map(len, plain[1:])) >= SOME * len(texts):
            return f"numbers in two forms, such as {plain[1][0]!r} and {plain[2][0]!r}; write all of them in one"
    return ""


def _written(form: re.Pattern[str], texts: Sequence[str]) -> list[str]:
    return [text for text in texts if form.fullmatch(text.strip())]


def some_texts(connection: duckdb.DuckDBPyConnection, table: str, value: str) -> list[str]:
    """Some different texts of a column."""
    query = f"SELECT DISTINCT {value}::VARCHAR FROM (FROM {table} LIMIT 20000) WHERE {value} IS NOT NULL LIMIT {SHOWN}"
    return [text for (text,) in connection.execute(query).fetchall()]


def missing_words(values: Iterable[object]) -> list[str]:
    """The values that are words or signs for a missing value in many tables."""
    return [value for value in values if isinstance(value, str) and re.fullmatch(_WORDS, value.strip(), re.IGNORECASE)]


def missing_codes(numbers: Iterable[float]) -> list[float]:
    """The known codes among a column's numbers that lie far from its other numbers, in order."""
    distinct = set(numbers)
    others = distinct - set(CODES)
    if not others:
        return []
    low, high = min(others), max(others)
    far = 0.2 * (high - low)
    codes = sorted(code for code in distinct & set(CODES) if code > high + far or code < low - far or code < 0 <= low)
    return codes if len(codes) <= MOST_CODES else []


def unusual_dates(first: float, last: float) -> dict[str, str]:
    """Notes on dates that lie far away, or that programs write for a missing date."""
    days = {key: write_moment(math.floor(day) * DAY)[:10] for key, day in (("lower", first), ("upper", last))}
    strange = (first < USUAL[0] or days["lower"] in NEVER, last > USUAL[1])
    note = "such as {0}: where it stands for a missing date, write `missing: ['{0}']`; of another calendar, convert it"
    return {key: note.format(day) for (key, day), is_strange in zip(days.items(), strange, strict=True) if is_strange}


def codes_note(texts: list[str] | None) -> str:
    """A note on numbers that look like codes for missing values; empty for none."""
    numbers = filter(math.isfinite, map(number_of_text, texts or ()))
    codes = ", ".join(f"{code:g}" for code in missing_codes(numbers))
    return f"far from all others: where they stand for missing values, write `missing: [{codes}]`" if codes else ""


def among_words(connection: duckdb.DuckDBPyConnection, table: str, name: str, profile: ColumnProfile) -> bool:
    """Whether a column has measured numbers, and a few different texts among them, such as "not measured"."""
    if profile.are_whole or not profile.filled <= MOST_WORDS * profile.numbers < MOST_WORDS * profile.filled:
        return False
    words = f"count(DISTINCT {quoted(name)}::VARCHAR) FILTER (number_of({quoted(name)}) IS NULL)"
    return bool(connection.execute(f"SELECT {words} <= {MOST_WORDS} FROM {table}").fetchall()[0][0])

# SPDX-License-Identifier: Apache-2.0
"""Columns of dates: numbers on a public grid of days or minutes that are shown as dates.

The number of a date is its days since 1970, the number of a time its minutes since then. Both are whole numbers, so the
proofs for such columns hold here. Dates and times have one form of text, in UTC. A time without a zone is not
converted, so no setting of a machine moves a row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal, get_args

import numpy as np
from pydantic import BeforeValidator, Field, PlainSerializer

from pinq.errors import QueryError
from pinq.public.checks import brief
from pinq.public.columns import CutPoint, FiniteDecimal, Numeric, Value

MINUTE = 60 * 10**6
DAY = 24 * 60 * MINUTE
_YEAR = r"([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?"
_ZONE = r"(Z|[+-][0-9]{2}(:[0-9]{2})?)"
CLOCK_FORM = rf"{_TIME}{_ZONE}?"
"""A time of day as it may follow a date."""
MOMENT_FORM = rf" *{_YEAR}-[0-9]{{2}}-[0-9]{{2}}([ T]{CLOCK_FORM})? *"
"""The texts that are dates or times; the engine's SQL and Python read it alike."""
_FORM = re.compile(MOMENT_FORM)
_EPOCH = datetime(1970, 1, 1)
_MOST = (datetime.max - _EPOCH) // timedelta(microseconds=1)
_LEAST = (datetime.min - _EPOCH) // timedelta(microseconds=1)


def microseconds_of(value: object) -> int | None:
    """Counts the microseconds of a date or time since 1970; None for other values."""
    match value:
        case str():
            return _of_text(value)
        case datetime() if value == value:  # pandas' NaT is a datetime, and differs from itself
            naive = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo is not None else value
            return (naive - _EPOCH) // timedelta(microseconds=1)
        case date() if not isinstance(value, datetime):
            return (datetime(value.year, value.month, value.day) - _EPOCH) // timedelta(microseconds=1)
        case np.datetime64() if not np.isnat(value):
            return int(value.astype("datetime64[us]").astype(np.int64))
    return None


def _of_text(text: str) -> int | None:
    if _FORM.fullmatch(text) is None:
        return None
    try:
        return microseconds_of(datetime.fromisoformat(text.strip()))
    except (ValueError, OverflowError):  # the 30th of February
        return None


def moment_text(value: object) -> str | None:
    """Writes a date or time in the form that is read; None for other values."""
    count = microseconds_of(value)
    return None if count is None else write_moment(count)


def write_moment(microseconds: float | Fraction | Decimal) -> str:
    """Writes ``2024-02-29``, followed by ``08:30`` if it is not midnight, within the calendar's range."""
    moment = _EPOCH + timedelta(microseconds=min(max(round(microseconds), _LEAST), _MOST))
    return str(moment.date()) if moment.time() == datetime.min.time() else moment.isoformat(" ").removesuffix(":00")


Period = Literal["year", "quarter", "month", "weekday"]
PERIODS: tuple[Period, ...] = get_args(Period)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS: dict[Period, int] = {"year": 12, "quarter": 3, "month": 1}


def _counted_in(unit: int, form: str) -> BeforeValidator:
    """Reads a declared date as its number; a copied declaration has the number already."""

    def read(value: object) -> object:
        if isinstance(value, Decimal):
            return value
        microseconds = microseconds_of(value)
        if microseconds is None or microseconds % unit:
            raise ValueError(f"{brief(value)} is not written as {form}")
        return Decimal(microseconds // unit)

    return BeforeValidator(read)


def _written(unit: int) -> PlainSerializer:
    return PlainSerializer(lambda number: write_moment(number * unit), return_type=str)


_Day = Annotated[Decimal, _counted_in(DAY, "a date, 2024-02-29"), _written(DAY)]
_Minute = Annotated[Decimal, _counted_in(MINUTE, "a time, 2024-02-29 08:30"), _written(MINUTE)]
_Step = Annotated[FiniteDecimal, Field(gt=0)]


def _months_of(text: str) -> int:
    """The months from the year 0 to a date."""
    year, month = text.split("-")[:2]
    return int(year) * 12 + int(month) - 1


class Date(Numeric):
    """A column of dates on a grid of days.

    Examples:
        >>> from datetime import date
        >>> import pinq
        >>> print(pinq.Date(lower=date(1950, 1, 1), upper=date(1999, 12, 31)).describe())
        dates 1950-01-01 to 1999-12-31 in 18,262 cells
    """

    type: Literal["date"] = "date"  # type: ignore[assignment]
    lower: _Day = Field(description="earlier dates count as this one")
    upper: _Day = Field(description="later dates count as this one")
    step: _Step | None = Field(default=None, description="width of a grid cell in days; 1 by default")
    integer: Literal[True] = True
    cuts: tuple[_Day, ...] = Field(default=(), description="dates that trees cut at unless the caller names others")

    microseconds: ClassVar[int] = DAY
    unit: ClassVar[str] = " days"
    dtype: ClassVar[str] = "datetime64[D]"

    def text(self, number: float | Fraction | Decimal) -> str:
        return write_moment(math.floor(number) * self.microseconds)

    def rounded(self, number: float, digits: int) -> str:
        return self.text(round(number))

    def point(self, number: float | Fraction | Decimal) -> CutPoint:
        return self.text(number)

    def describe(self) -> str:
        between = f"{self.text(self.lower)} to {self.text(self.upper)}"
        return f"{self.type}s {between} in {self.cells:,} cells{self._missing}"

    def require_addable(self, name: str) -> None:
        raise QueryError(f"`{name}` has dates, which cannot be added up; ask noisy_avg for their average.")

    def shown(self, numbers: np.ndarray) -> np.ndarray:
        """The dates of numbers, each the nearest one, datetime64."""
        return np.rint(numbers).astype(np.int64).astype(self.dtype)

    def periods(self, period: Period) -> tuple[tuple[Value, ...], tuple[str, ...]]:
        """Returns the names and limits of the years, quarters or months that overlap the bounds.

        Args:
            period: Years, quarters or months.

        Returns:
            The names, and the first days of all but the first.
        """
        # 2023-11-20 to 2024-02-03 by quarters: from the fourth of 2023 to the first of 2024, with a
        # limit at 2024-01-01.
        first, last = (_months_of(self.text(number)) // _MONTHS[period] for number in (self.lower, self.upper))
        starts = [divmod(number * _MONTHS[period], 12) for number in range(first, last + 1)]
        names: dict[Period, Callable[[int, int], Value]] = {
            "year": lambda year, month: year,
            "quarter": lambda year, month: f"{year:04}-Q{month // 3 + 1}",
            "month": lambda year, month: f"{year:04}-{month + 1:02}",
        }
        labels = tuple(names[period](*start) for start in starts)
        return labels, tuple(f"{year:04}-{month + 1:02}-01" for year, month in starts[1:])

    def weekdays(self, name: str) -> np.ndarray:
        """The weekday of each cell, 0 for Monday, shape (cells,).

        Raises:
            QueryError: A cell holds more than a day.
        """
        if self.width * self.microseconds > DAY:
            raise QueryError(f"a cell of `{name}` holds {self.width}{self.unit}, so it has no weekday.")
        days = (np.arange(self.cells) * int(self.width) + int(self.lower)) * self.microseconds // DAY
        return (days + 3) % 7  # 1970 began on a Thursday

    def _label(self, cell: int) -> str:
        return self.text(self.number(cell))

    def _bound(self, number: Decimal) -> str:
        return self.text(number)

    def number_of(self, cut: object, name: str) -> Fraction:
        microseconds = microseconds_of(cut)
        if microseconds is None:
            example = self.text(self.number((self.cells - 1) / 2))
            raise QueryError(f"the cut {cut!r} of `{name}` is not a date; write it as {example!r}.")
        return Fraction(microseconds, self.microseconds)

    def _spelled(self, values: Any) -> np.ndarray:
        import pandas as pd

        series = pd.Series(values)
        if isinstance(series.dtype, pd.DatetimeTZDtype):
            series = series.dt.tz_convert("UTC").dt.tz_localize(None)
        if series.dtype.kind == "M":
            counted = series.to_numpy().astype("datetime64[us]")
            numbers = np.floor_divide(counted.astype(np.int64), self.microseconds).astype(np.float64)
            return np.where(np.isnat(counted), np.nan, numbers)
        places, distinct = pd.factorize(series.astype(object), use_na_sentinel=True)
        counts = (microseconds_of(value) for value in distinct)
        table = [np.nan if count is None else float(count // self.microseconds) for count in counts]
        return np.array([*table, np.nan])[places]  # a missing value has the place -1: the last number


class DateTime(Date):
    """A column of times on a grid of minutes, in UTC if the source has a time zone.

    Examples:
        >>> from datetime import datetime
        >>> import pinq
        >>> print(pinq.DateTime(lower=datetime(2024, 1, 1), upper=datetime(2024, 12, 31)).describe())
        datetimes 2024-01-01 to 2024-12-31 in 525,601 cells
    """

    type: Literal["datetime"] = "datetime"  # type: ignore[assignment]
    lower: _Minute = Field(description="earlier times count as this one")
    upper: _Minute = Field(description="later times count as this one")
    step: _Step | None = Field(default=None, description="width of a grid cell in minutes; 1 by default")
    cuts: tuple[_Minute, ...] = Field(default=(), description="times that trees cut at unless the caller names others")

    microseconds: ClassVar[int] = MINUTE
    unit: ClassVar[str] = " minutes"
    dtype: ClassVar[str] = "datetime64[m]"

    def shown(self, numbers: np.ndarray) -> np.ndarray:
        """The times of numbers, each the nearest minute, datetime64 in seconds, as in Arrow."""
        return super().shown(numbers).astype("datetime64[s]")

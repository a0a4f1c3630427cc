# SPDX-License-Identifier: Apache-2.0
"""How dates and times are read and written: one form of text, in UTC, counted since 1970.

A time without a zone is taken as it stands, one with a zone is read in UTC. So what the source
holds is what analysts see, and no setting of any machine moves a row.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import numpy as np

__all__ = ["DAY", "MINUTE", "MOMENT_FORM", "microseconds_of", "moment_at", "moment_text", "write_moment"]

MINUTE = 60 * 10**6
DAY = 24 * 60 * MINUTE
_YEAR = r"([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?"
_ZONE = r"(Z|[+-][0-9]{2}(:[0-9]{2})?)"
MOMENT_FORM = rf" *{_YEAR}-[0-9]{{2}}-[0-9]{{2}}([ T]{_TIME}{_ZONE}?)? *"
"""The texts that are dates or times; the engine's SQL and Python read it alike."""
_FORM = re.compile(MOMENT_FORM)
_EPOCH = datetime(1970, 1, 1)
_MOST = round((datetime.max - _EPOCH) / timedelta(microseconds=1))
_LEAST = round((datetime.min - _EPOCH) / timedelta(microseconds=1))


def microseconds_of(value: object) -> int | None:
    """Counts a date's or time's microseconds since 1970; None for what is neither."""
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
    """Writes a date or time in the form that is read; None for what is neither."""
    count = microseconds_of(value)
    return None if count is None else write_moment(count)


def write_moment(microseconds: float | Fraction | Decimal) -> str:
    """Writes ``2024-02-29``, with ``08:30`` behind it where it is not midnight."""
    moment = moment_at(microseconds)
    return str(moment.date()) if moment.time() == datetime.min.time() else moment.isoformat(" ").removesuffix(":00")


def moment_at(microseconds: float | Fraction | Decimal) -> datetime:
    """The time so many microseconds after 1970, within what a calendar has."""
    return _EPOCH + timedelta(microseconds=min(max(round(microseconds), _LEAST), _MOST))

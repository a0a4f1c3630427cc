# SPDX-License-Identifier: Apache-2.0
"""Frames of pandas as Arrow tables: typed columns unchanged, columns of Python objects as texts.

A column of objects has no type. A library that infers one looks at all rows: one ``Decimal("0.25")``
gives every ``Decimal("1.5")`` a second decimal, and one text among whole numbers prevents any type.
So each object becomes the text that it has in a typed column or in a text file. Its class and the
column's declaration alone decide.

Privacy:
    The text of an object depends on this object and the policy, so reading a column of objects is
    a row-wise map, stability 1. An object without a text (nested data, an unknown class, a
    character that Unicode does not have) is that row's missing value, never an error of the whole
    frame. Held by: tests/property/test_rows_alone.py.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pinq.errors import PolicyError
from pinq.policy.policy import Policy

MAX_EXPONENT = 400
"""Decimals beyond 10^400 or below 10^-400 are missing: no double holds them, and their digits may fill the memory."""
_SPANS = ("Period", "Interval")
"""The classes of pandas that Arrow stores as plain numbers; each value is read as its text, such as 2024-03."""
_MISSING = ("NoneType", "NaTType", "NAType")
"""The classes of missing values; NaN is missing too."""
_AT_ONCE = {
    str: pa.string(),
    int: pa.int64(),
    bool: pa.bool_(),
    date: pa.date32(),
    datetime: pa.timestamp("us"),
}
"""For a class, without its subclasses, the Arrow type that gives the same texts."""


def frame_table(frame: Any, policy: Policy, column_names: Container[str] | None) -> pa.Table:
    """Returns columns of a pandas frame as an Arrow table.

    Raises:
        PolicyError: Arrow has no type for a column.
    """
    plain = {name: column for name, column in policy.columns.items() if column.formula is None and not column.lookup}
    numbers = {(column.sources or (name,))[0] for name, column in plain.items() if column.type == "numeric"}
    unit = None if policy.bounded_unit is None else policy.bounded_unit.column
    names = list(map(str, frame.columns))
    indices = [index for index, name in enumerate(names) if column_names is None or name in column_names]
    arrays = [
        _column(frame.iloc[:, index], number=names[index] in numbers, unit=names[index] == unit) for index in indices
    ]
    return pa.table(arrays, names=[names[index] for index in indices])


def _column(column: Any, *, number: bool, unit: bool) -> pa.Array:
    # The type of a column of categories is that of its categories.
    kind = getattr(column.dtype, "categories", column).dtype
    if kind.type is np.object_ or getattr(kind, "storage", "") == "python" or kind.type.__name__ in _SPANS:
        return texts_of(column.astype(object).to_numpy(), number=number, unit=unit)
    try:
        return pa.array(column, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError):  # the error's text may quote a value
        raise PolicyError(
            f"The column {column.name!r} of `data` has the type {kind}, which is not read; make it text, numbers, "
            "dates or truth values."
        ) from None


def texts_of(values: Sequence[object] | np.ndarray, *, number: bool = False, unit: bool = False) -> pa.Array:
    """The texts of objects, null for a missing value; arguments as for ``text_of``."""
    kinds = {kind for kind in set(map(type, values)) if kind.__name__ not in _MISSING}
    with suppress(pa.ArrowException, TypeError, ValueError, OverflowError):  # such as 2^63 or the year 3000
        if (texts := _at_once(values, kinds, number)) is not None:
            return texts
    return pa.array([text_of(value, number=number, unit=unit) for value in values], pa.string())


def _at_once(values: Sequence[object] | np.ndarray, kinds: set[type], number: bool) -> pa.Array | None:
    """The same texts in a tenth of the time, for values of one class; None if Arrow's texts may differ."""
    from pandas import Timestamp  # imported here, because a server of files does not need it

    # Among texts Arrow accepts NaN and no other float. Among whole numbers it would drop a float's fraction.
    kind, *others = kinds - {float} if str in kinds else kinds or {str}
    arrow_type = {**_AT_ONCE, Timestamp: pa.timestamp("ns")}.get(kind)
    if others or (number and kind is bool):
        return None
    if kind is float:
        distinct, places = np.unique(np.asarray(values, float), return_inverse=True)  # 0.0 and -0.0 have one text
        return pa.array(map(text_of, distinct.tolist()), pa.string()).take(pa.array(places))
    times = arrow_type is not None and pa.types.is_timestamp(arrow_type)
    if arrow_type is None or (times and any(getattr(value, "tzinfo", None) for value in values)):
        return None
    texts = pa.array(values, arrow_type, from_pandas=True).cast(pa.string())
    # 08:00:05.250000 becomes 08:00:05.25, and 08:00:00.000000 becomes 08:00:00.
    return pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), ".") if times else texts


def text_of(value: object, *, number: bool = False, unit: bool = False) -> str | None:
    """The text of an object, as a typed column or a text file has it; None for a missing value.

    A truth value is 1 or 0 if the column is a ``number``; equal numbers have one text if it is the privacy ``unit``.
    """
    try:
        return _text(_plain(value), number, unit)
    except (ArithmeticError, ValueError):  # such as a zone beyond the year 9999, or half a surrogate pair
        return None


def _plain(value: object) -> object:
    if isinstance(value, np.datetime64):
        return value.astype("datetime64[us]").item()
    return value.item() if isinstance(value, np.generic) else value


def _text(value: object, number: bool, unit: bool) -> str | None:
    match value:
        case str():
            return value.encode().decode()  # the text of str, whatever a subclass prints
        case bool():
            return str(int(value)) if number else str(value).lower()
        case int():
            return int.__repr__(value)
        case float():
            whole = value.is_integer()
            return str(int(value)) if whole else float.__repr__(value) if value == value else None
        case Decimal():
            return _decimal(value, unit)
        case bytes():
            return value.decode()
        case datetime():
            return _moment(value)
        case date() | time():
            return value.isoformat()
        case UUID():
            return str(value)
    return str(value) if type(value).__name__ in _SPANS else None


def _decimal(value: Decimal, unit: bool) -> str | None:
    if value.is_nan() or abs(value.adjusted()) > MAX_EXPONENT:
        return None
    text = format(value, "f")
    if not unit:
        return text  # 1.50 is another category than 1.5, as in a column of two decimals
    # 5.00 and 5 are one person.
    return str(int(value)) if value.is_finite() and value == int(value) else text.rstrip("0")


def _moment(value: datetime) -> str | None:
    """A time as a database writes it, in UTC if it has a zone."""
    if value != value:  # pandas' NaT, which is a datetime
        return None
    zone = "" if value.utcoffset() is None else "+00"
    text = (value.astimezone(UTC).replace(tzinfo=None) if zone else value).isoformat(" ")
    return (text.rstrip("0") if "." in text else text) + zone

# SPDX-License-Identifier: Apache-2.0
"""Checks of input: kinds of values, texts of categories, the size of a request, spelling.

``require_bounded`` bounds the cost of reading a text of 8 MB that may be no request: pydantic notes every wrong item in
a thousand times its bytes, and keeps an array in ten times its bytes.
"""

from __future__ import annotations

import difflib
import json
import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from decimal import Decimal
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, TypeGuard, TypeVar

import numpy as np
from pydantic import Field

from pinq.errors import QueryError

if TYPE_CHECKING:
    from typing_extensions import TypeIs


class Shown:
    """An object that a notebook shows with the same text as a terminal."""

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"


def is_whole(value: object, low: float = -math.inf, high: float = math.inf) -> TypeGuard[int]:
    """Whether a value is a whole number from ``low`` to ``high``, numpy's included; a truth value is not."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(low <= value <= high)


def are_whole(values: Collection[object], low: float = -math.inf, high: float = math.inf) -> bool:
    """Whether all values are whole numbers from ``low`` to ``high``, as by ``is_whole``."""
    kinds = set(map(type, values))
    ends: Any = values
    return not values or (
        all(issubclass(kind, (int, np.integer)) and kind is not bool for kind in kinds)
        and bool(low <= min(ends) and max(ends) <= high)
    )


def is_number(value: object, low: float, high: float) -> TypeGuard[float]:
    """Whether a value is a number from ``low`` to ``high``; a truth value and NaN are not."""
    is_real = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return is_real and bool(low <= value <= high)  # type: ignore[operator]


def whole_number(parameter: str, value: object, low: int, high: int) -> int:
    """A whole number in a range; raises ``QueryError`` for another value."""
    if not is_whole(value, low, high):
        raise QueryError(f"is {brief(value)}", parameter=parameter, allowed=f"a whole number from {low} to {high:,}")
    return int(value)


def require_bool(parameter: str, value: object) -> None:
    """Raises ``QueryError`` unless a parameter is True or False."""
    if not isinstance(value, bool):
        raise QueryError(f"is {brief(value)}", parameter=parameter, allowed="True or False")


def is_listing(value: object) -> TypeIs[Iterable[object]]:
    """Whether a value is a collection of others; a text is not."""
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes))


def require_kind(values: Iterable[object], kinds: type | tuple[type, ...], problem: str | Callable[[], str]) -> None:
    """Raises ``QueryError`` with this text unless each value is of one of the kinds.

    A function makes a text that takes long to write.
    """
    for value in values:
        if not isinstance(value, kinds):
            raise QueryError(problem if isinstance(problem, str) else problem())


def brief(value: object, limit: int = 60) -> str:
    """A caller's value in an error, on one short line; a class or function by its name."""
    try:
        shown = str(getattr(value, "__qualname__", None) or repr(value))
    except ValueError:  # Python writes no whole number of more than 4,300 digits
        shown = "a number of thousands of digits"
    text = " ".join(shown.split())
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


_HALF = re.compile("[\ud800-\udfff]")


def many(count: int, name: str, plural: str = "") -> str:
    """A number with its noun: ``1 level``, ``3 levels``, ``2 leaves``."""
    return f"{count:,} {name if count == 1 else plural or name + 's'}"


def text_of(value: object) -> str:
    """The text by which a category is compared with the source: SQL's text form of the value."""
    try:
        return ("true" if value else "false") if isinstance(value, bool) else str(value)
    except ValueError:  # Python writes no whole number of more than 4,300 digits
        return str(Decimal(value))  # type: ignore[arg-type]


def require_text(text: str, noun: str) -> None:
    """Raises ``ValueError`` for text that SQL cannot hold, or that cannot be stored or sent."""
    if "\x00" in text:
        raise ValueError(f"{noun} contains a NUL character")
    if _HALF.search(text):
        raise ValueError(f"{noun} contains half a character (a lone surrogate)")


def text_of_any(value: object) -> str:
    """``text_of`` of a value in numpy's or pandas' form; a whole number has no decimals."""
    if isinstance(value, np.bool_):
        return text_of(bool(value))
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return text_of(value)


def closest(name: object, names: Iterable[object]) -> str:
    """Writes `` (did you mean 'x'?)`` if one of the names is close, else nothing; case is ignored."""
    folded = {str(one).casefold(): one for one in names}
    folded_name = (name[:60] if isinstance(name, str) else brief(name)).casefold()
    # Comparing letter by letter is slow, and a domain may have a million values.
    compared = [folded_name] if folded_name in folded else list(islice(folded, 5000))
    matches = difflib.get_close_matches(folded_name, compared, n=1, cutoff=0.65)
    return f" (did you mean {folded[matches[0]]!r}?)" if matches else ""


def no_column(name: object, names: Iterable[str]) -> QueryError:
    """The error for an unknown column, with the existing ones."""
    return QueryError(f"there is no column {brief(name)}{closest(name, names)}; the columns are {', '.join(names)}.")


def first_of(names: Sequence[object], limit: int, between: str = ", ") -> str:
    """Lists the first names and the number of the others: ``a, b and 3 more``."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return between.join(map(str, names[:limit])) + more


MAX_OPENINGS = 600_000  # the largest request of 8 MB has 540,000
MAX_FIELDS = 64

T = TypeVar("T")

TupleOf = Annotated[tuple[T, ...], Field(fail_fast=True)]
"""A tuple of any length; reading ends at its first wrong item."""

Switch = Annotated[bool, Field(exclude_if=operator.not_)]
"""A truth value that texts have only if it is true. A field that is added later keeps earlier texts by it."""


def require_bounded(text: str | bytes) -> None:
    """Raises ``QueryError`` if a text has more arrays or fields than a request, or a field twice.

    Text that is no JSON passes, because its later reader reports the fault.
    """
    plain = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    if plain.count(b"[") + plain.count(b"{") > MAX_OPENINGS:
        raise QueryError(
            f"the request has more than {MAX_OPENINGS:,} arrays and objects. Ask about fewer parts at a time."
        )
    try:
        json.loads(plain, object_pairs_hook=_require_fields)
    except QueryError:
        raise
    except (ValueError, RecursionError):
        pass


def _require_fields(pairs: list[tuple[str, object]]) -> None:
    """Raises ``QueryError`` if an object has far more keys than ours, or a key twice.

    Of two equal keys, some readers use the first and some the last.
    """
    if len(pairs) > MAX_FIELDS:
        raise QueryError(f"the request has an object of {len(pairs):,} fields; none has more than {MAX_FIELDS}.")
    if len(dict(pairs)) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise QueryError(f"the request says {twice[:40]!r} twice.")

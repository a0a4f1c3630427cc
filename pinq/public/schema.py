# SPDX-License-Identifier: Apache-2.0
"""What everybody may know: columns with their declared domains, adjacency, privacy unit, row cap.

A column's domain is a finite list of *codes* 0, 1, 2, ... A category's code is its place in
``values``. A number's code is its cell in a public grid of width ``step`` after clamping to
``[lower, upper]``. In a nullable column a missing value has one more code, the last. Encoding looks
at one value at a time, so it is a row-wise map: stability 1.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from typing import Annotated, Any, Generic, Literal, Self, TypeVar, overload

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, field_validator, model_validator

from pinq.errors import QueryError

__all__ = ["Adjacency", "Categorical", "Column", "Numeric", "PrivacyUnit", "Schema", "Value", "closest", "round_up"]

MAX_CELLS = 2**24
MAX_VALUES = 2**16 - 1
REAL_CELLS = 4096
# Bounds and steps lie within 1e-100 and 1e100 in size, so that a noisy answer is a double whatever
# the noise: noise is at most 2^64 units, and a scale at most 1e35 of them.
MAX_DIGITS = 100
# Decimal grids are not binary: 0.3 / 0.1 is a hair under 3. A billionth of a cell (or what doubles
# can tell apart, where that is more) puts grid points into their own cell.
CELL_TOLERANCE = 1e-9
MAX_TOLERANCE = 1e-3
CLOSE = 0.65  # share of letters that a suggestion has in common with what was written
MOST_COMPARED = 5000

Value = str | int | bool
Adjacency = Literal["add-remove", "substitute"]


def _canonical(number: Decimal) -> Decimal:
    """One form for each number: 1, 1.0 and 1E0 are the same declaration, so they must not make different digests."""
    if not number:
        return Decimal(0)
    if not -MAX_DIGITS <= number.adjusted() < MAX_DIGITS:
        raise ValueError(
            f"the number {number:.3g} is not between 1e-{MAX_DIGITS} and 1e{MAX_DIGITS} in size; declare the "
            f"column in another unit"
        )
    digits = format(number, "f")
    return Decimal(digits.rstrip("0").rstrip(".") if "." in digits else digits)


FiniteDecimal = Annotated[Decimal, Field(allow_inf_nan=False), AfterValidator(_canonical)]


T = TypeVar("T")


class derived(Generic[T]):
    """A property that follows from the fields of a declaration, computed once.

    What was computed is kept beside the fields, not among them as ``functools.cached_property``
    would keep it: no dump, comparison or copy of a declaration depends on what somebody looked at
    before.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute, self._name, self.__doc__ = compute, compute.__name__, compute.__doc__

    @overload
    def __get__(self, declared: None, owner: type) -> Self: ...
    @overload
    def __get__(self, declared: _Declared, owner: type) -> T: ...
    def __get__(self, declared: _Declared | None, owner: type) -> Self | T:
        if declared is None:
            return self
        kept = declared.kept()
        if self._name not in kept:
            kept[self._name] = self._compute(declared)
        return kept[self._name]


class _Declared(BaseModel):
    """A declaration: frozen, without unknown keys, and with a place for what follows from it (``derived``)."""

    __slots__ = ("_kept",)  # pydantic dumps, compares and copies what is in __dict__
    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(derived,))

    def kept(self) -> dict[Any, Any]:
        """What was computed from the fields so far, by name. Starts empty, also in a copy."""
        try:
            found: dict[Any, Any] = object.__getattribute__(self, "_kept")
        except AttributeError:
            found = {}
            object.__setattr__(self, "_kept", found)
        return found

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A checked copy; pydantic's own takes any fields."""
        fields = {info.alias or name: getattr(self, name) for name, info in type(self).model_fields.items()}
        named = {
            (type(self).model_fields[name].alias if name in type(self).model_fields else None) or name: value
            for name, value in (update or {}).items()
        }
        return type(self).model_validate(fields | named)


class _Column(_Declared):
    nullable: bool = Field(default=False, description="whether a missing value is a value of its own")
    unreviewed: tuple[str, ...] = Field(
        default=(), description="fields that were read off the data and wait for the provider's word"
    )

    @property
    def codes(self) -> int:
        """Number of codes, the one for a missing value included."""
        return self.cells + int(self.nullable)

    @property
    def null_code(self) -> int | None:
        """The code of a missing value, or None where none is declared."""
        return self.cells if self.nullable else None

    @property
    @abstractmethod
    def cells(self) -> int:
        """Number of codes that stand for values."""

    @derived
    def digest(self) -> str:
        """Identifies the domain: two columns with equal digests give every value the same code."""
        text = self.model_dump_json(exclude={"unreviewed", "cuts"})
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class Categorical(_Column):
    """A column with a declared list of values."""

    type: Literal["categorical"] = "categorical"
    # Dumped as they are: asked to choose among text, number and truth value once more, pydantic may
    # take True for 1.
    values: Annotated[tuple[Value, ...], PlainSerializer(lambda values: values)] = Field(
        min_length=1, max_length=MAX_VALUES, description="every value that the column can have"
    )

    @field_validator("values", mode="before")
    @classmethod
    def _plain(cls, values: Any) -> Any:
        if isinstance(values, (list, tuple)):
            for value in values:
                if not isinstance(value, (str, int, bool)):
                    raise ValueError(f"{value!r} is neither text, a whole number nor true/false; put it in quotes")
        return values

    @model_validator(mode="after")
    def _distinct(self) -> Categorical:
        texts = [text_of(value) for value in self.values]
        if len(set(texts)) != len(texts):
            twice = next(text for text in texts if texts.count(text) > 1)
            raise ValueError(f"the value {twice!r} is listed twice")
        for text in texts:
            _require_text(text, "a value")
        return self

    @property
    def cells(self) -> int:
        return len(self.values)

    @derived
    def texts(self) -> dict[str, int]:
        """Each value's text form and its code."""
        return {text_of(value): code for code, value in enumerate(self.values)}

    @property
    def labels(self) -> tuple[Value | None, ...]:
        """The value of each code; None for a missing one."""
        return (*self.values, None) if self.nullable else self.values

    def code_of(self, value: Value | None, name: str) -> int:
        """The code of one value. ``QueryError`` when it is not declared."""
        if value is None and self.nullable:
            return self.cells
        code = None if value is None else self.texts.get(text_of(value))
        if code is None:
            listed = ", ".join(repr(v) for v in self.labels[:12]) + (", ..." if self.codes > 12 else "")
            raise QueryError(
                f"`{name}` has no value {value!r}{closest(str(value), [text_of(v) for v in self.values])}; "
                f"it has {listed}."
            )
        return code

    def encode(self, values: Any) -> np.ndarray:
        """Codes of a column of values, shape (n,); -1 where a value is not declared."""
        import pandas as pd

        places, distinct = pd.factorize(pd.Series(values).astype(object), use_na_sentinel=True)
        table = [self.texts.get(_text_of_any(value), -1) for value in distinct]
        return np.array([*table, self.cells if self.nullable else -1], dtype=np.int64)[
            places
        ]  # a missing value's place is -1


class Numeric(_Column):
    """A column of numbers on a public grid."""

    type: Literal["numeric"] = "numeric"
    lower: FiniteDecimal = Field(description="smaller values count as this one")
    upper: FiniteDecimal = Field(description="larger values count as this one")
    step: Annotated[FiniteDecimal, Field(gt=0)] | None = Field(
        default=None, description="width of a grid cell; 1 for whole numbers (more on a wide range), else range / 4096"
    )
    integer: bool = Field(default=False, description="whether the values are whole numbers")
    cuts: tuple[FiniteDecimal, ...] = Field(
        default=(), description="cut points that trees use unless the caller names others"
    )

    @model_validator(mode="after")
    def _grid(self) -> Numeric:
        if self.lower > self.upper or (self.lower == self.upper and not self.integer):
            raise ValueError(f"lower ({self.lower}) must be below upper ({self.upper})")
        if self.integer and any(
            number != number.to_integral_value() for number in (self.lower, self.upper, self.step or Decimal(1))
        ):
            raise ValueError("lower, upper and step of a column of whole numbers must be whole")
        if self.cells > MAX_CELLS:
            raise ValueError(
                f"the grid has {self.cells:,} cells, at most {MAX_CELLS:,} are possible; choose a larger step"
            )
        if self.tolerance > MAX_TOLERANCE:
            raise ValueError(
                f"a step of {float(self.width):g} is too fine for numbers as large as "
                f"{max(abs(self.lower), abs(self.upper))}; choose a larger step"
            )
        for before, after in zip(self.cuts, self.cuts[1:], strict=False):
            if before >= after:
                raise ValueError("cuts must increase")
        for cut in self.cuts:
            if not self.lower < cut <= self.upper:
                raise ValueError(f"the cut {cut} must be above lower ({self.lower}) and at most upper ({self.upper})")
        return self

    @derived
    def width(self) -> Fraction:
        """Width of a grid cell, exact. A default gives no more cells than a grid can have."""
        if self.step is not None:
            return Fraction(self.step)
        span = Fraction(self.upper) - Fraction(self.lower)
        if not self.integer:
            return span / REAL_CELLS
        return Fraction(round_up(Decimal(math.ceil((span + 1) / MAX_CELLS))))

    @derived
    def cells(self) -> int:
        span = (Fraction(self.upper) - Fraction(self.lower)) / self.width
        return math.floor(span) + 1 if self.integer else max(1, math.ceil(span))

    @derived
    def tolerance(self) -> float:
        """By how much of a cell a number may lie below an edge and still count as on it."""
        return max(CELL_TOLERANCE, float(max(abs(self.lower), abs(self.upper))) * 2.0**-50 / float(self.width))

    @derived
    def origin(self) -> Fraction:
        """The number that cell 0 stands for: its only whole number or, where it has several values, its middle."""
        return Fraction(self.lower) + (self.width - 1 if self.integer else self.width) / 2

    def number(self, code: float | Fraction) -> float:
        """The number that a (possibly fractional) cell stands for."""
        return float(self.origin + self.width * Fraction(code))

    def edge(self, cell: int) -> float:
        """The left edge of a cell: values below it have smaller codes."""
        return float(Fraction(self.lower) + self.width * cell)

    def threshold(self, cut: Any, name: str) -> int:
        """The first cell at or above a cut point: ``x < cut`` is ``code < threshold``.

        Raises:
            QueryError: Not a number, or no value would lie on one of the sides.
        """
        try:
            point = Fraction(Decimal(repr(float(cut)))) if not isinstance(cut, (Decimal, int)) else Fraction(cut)
        except (ValueError, TypeError, OverflowError, ArithmeticError):
            raise QueryError(f"the cut {cut!r} of `{name}` is not a number.") from None
        if not Fraction(self.lower) < point <= Fraction(self.upper):
            raise QueryError(
                f"the cut {cut} of `{name}` is out of bounds; it must be above {self.lower} and at most {self.upper}."
            )
        if self.cells < 2:
            raise QueryError(f"`{name}` has a single grid cell, so it cannot be cut.")
        # On a grid of reals the topmost edge is `upper` itself: its own cell holds the numbers just
        # below it as well.
        return min(
            max(1, math.ceil((point - Fraction(self.lower)) / self.width - Fraction(self.tolerance))), self.cells - 1
        )

    def encode(self, values: Any) -> np.ndarray:
        """Codes of a column of numbers, shape (n,); -1 where missing and not nullable."""
        import pandas as pd

        numbers = pd.to_numeric(pd.Series(values), errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
        missing = np.isnan(numbers)
        with np.errstate(over="ignore", invalid="ignore"):
            cell = np.floor((numbers - float(self.lower)) / float(self.width) + self.tolerance)
        codes = np.clip(np.where(missing, 0.0, cell), 0, self.cells - 1).astype(np.int64)
        codes[missing] = self.cells if self.nullable else -1
        return codes


Column = Annotated[Categorical | Numeric, Field(discriminator="type")]


class PrivacyUnit(_Declared):
    """Whose presence is hidden: everything that shares one value of a column, at most ``max_rows`` rows of it."""

    column: str
    max_rows: int = Field(ge=1, le=10**6)

    @field_validator("column")
    @classmethod
    def _text(cls, column: str) -> str:
        _require_text(column, "the privacy unit's column")
        return column


class Schema(_Declared):
    """The public facts of a dataset. Needs no data and no secrets."""

    columns: dict[str, Column] = Field(min_length=1)
    max_rows: int = Field(ge=1, le=2**33, description="no table that the policy admits has more rows")
    adjacency: Adjacency = Field(default="add-remove", description="which tables are neighbours")
    privacy_unit: Literal["row"] | PrivacyUnit = Field(default="row", description="whose presence is hidden")

    @field_validator("columns")
    @classmethod
    def _names(cls, columns: dict[str, Column]) -> dict[str, Column]:
        folded: dict[str, str] = {}
        for name in columns:
            if not name:
                raise ValueError("a column's name is empty")
            _require_text(name, "a column's name")
            other = folded.setdefault(name.casefold(), name)
            if other != name:
                raise ValueError(
                    f"columns {other!r} and {name!r} differ only in case, which SQL engines do not tell apart"
                )
        return columns

    @property
    def distance(self) -> int:
        """Rows by which neighbouring tables can differ; what one row costs, times this, is what is charged.

        Adding or removing one row: 1. Replacing one: 2. A unit of k rows: k times that (group
        privacy, privacy.md 1.1).
        """
        rows = 1 if self.privacy_unit == "row" else self.privacy_unit.max_rows
        return rows * (2 if self.adjacency == "substitute" else 1)

    def column(self, name: object) -> Categorical | Numeric:
        """A declared column. ``QueryError`` that lists the columns when there is none of this name."""
        found = self.columns.get(name) if isinstance(name, str) else None
        if found is None:
            raise QueryError(
                f"there is no column {name!r}{closest(str(name), self.columns)}; the columns are "
                f"{', '.join(self.columns)}."
            )
        return found

    def categorical(self, name: object) -> Categorical:
        """A declared categorical column, else ``QueryError``."""
        column = self.column(name)
        if not isinstance(column, Categorical):
            raise QueryError(
                f"`{name}` is numeric; a categorical column is needed here, or cut it with Cuts({name!r}, [...])."
            )
        return column

    def numeric(self, name: object) -> Numeric:
        """A declared numeric column, else ``QueryError``."""
        column = self.column(name)
        if not isinstance(column, Numeric):
            raise QueryError(f"`{name}` is categorical; a numeric column is needed here.")
        return column

    @derived
    def row_digest(self) -> str:
        """Identifies how a row is encoded and kept: the columns in order, their domains, the privacy unit."""
        unit = (
            self.privacy_unit
            if isinstance(self.privacy_unit, str)
            else [self.privacy_unit.column, self.privacy_unit.max_rows]
        )
        text = json.dumps([[[name, column.digest] for name, column in self.columns.items()], unit])
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    @derived
    def digest(self) -> str:
        """Identifies all that is public."""
        return hashlib.blake2b(
            json.dumps(self.model_dump(mode="json"), sort_keys=True).encode(), digest_size=16
        ).hexdigest()

    def __repr__(self) -> str:
        lines = [
            f"Schema: at most {self.max_rows:,} rows, adjacency {self.adjacency}, privacy unit "
            f"{unit_text(self.privacy_unit)}"
        ]
        wide = max(len(name) for name in self.columns)
        lines += [f"  {name:<{wide}}  {describe(column)}" for name, column in self.columns.items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(
            f"<tr><td>{escape(name)}</td><td style='text-align:left'>{escape(describe(column))}</td></tr>"
            for name, column in self.columns.items()
        )
        head = escape(repr(self).splitlines()[0])
        return (
            f"<p>{head}</p><table><thead><tr><th>column</th><th>domain</th></tr></thead><tbody>{rows}</tbody></table>"
        )


def round_up(number: Decimal) -> Decimal:
    """The smallest of 1, 2 and 5 times a power of ten that is not below ``number``."""
    power = Decimal(1).scaleb(number.adjusted())
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= number)


def describe(column: Categorical | Numeric) -> str:
    """One line about a column's domain."""
    missing = ", may be missing" if column.nullable else ""
    if isinstance(column, Numeric):
        kind = "whole numbers" if column.integer else "numbers"
        return f"{kind} {column.lower} to {column.upper} in {column.cells:,} cells{missing}"
    listed = ", ".join(str(value) for value in column.values[:4])
    return f"{len(column.values):,} values: {listed}{', ...' if len(column.values) > 4 else ''}{missing}"


def unit_text(unit: Literal["row"] | PrivacyUnit) -> str:
    """``row``, or ``person_id (at most 3 rows)``."""
    return "row" if isinstance(unit, str) else f"{unit.column} (at most {unit.max_rows} rows each)"


def text_of(value: Value) -> str:
    """The text by which a category is compared with the source: SQL's text form of the value."""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


_HALF = re.compile("[\ud800-\udfff]")


def _require_text(text: str, what: str) -> None:
    """``ValueError`` for text that SQL cannot hold, or that has no UTF-8 and so cannot be stored or sent."""
    if "\x00" in text:
        raise ValueError(f"{what} contains a NUL character")
    if _HALF.search(text):
        raise ValueError(f"{what} contains half a character (a lone surrogate)")


def closest(name: str, names: Iterable[Any]) -> str:
    """`` (did you mean 'x'?)`` where one of the names is close, else nothing.

    Case counts for nothing: ``male`` is ``'Male'`` before it is a misspelt ``'Female'``.
    """
    import difflib

    folded = {str(known).casefold(): known for known in names}
    wanted = name.casefold()
    # Comparing letter by letter is slow, and a domain may have a million values.
    some = [wanted] if wanted in folded else list(islice(folded, MOST_COMPARED))
    found = difflib.get_close_matches(wanted, some, n=1, cutoff=CLOSE)
    return f" (did you mean {folded[found[0]]!r}?)" if found else ""


def _text_of_any(value: Any) -> str:
    if isinstance(value, np.bool_):
        return text_of(bool(value))
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return text_of(value)

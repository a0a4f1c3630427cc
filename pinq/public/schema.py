# SPDX-License-Identifier: Apache-2.0
"""The public facts: columns with their domains, adjacency, privacy unit, row cap."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator

from pinq.errors import QueryError
from pinq.public.checks import T, no_column, require_text
from pinq.public.columns import Categorical, Declared, Numeric, Value
from pinq.public.dates import Date, DateTime

__all__ = [
    "ENTRY_BYTES",
    "Adjacency",
    "Categorical",
    "Column",
    "Date",
    "DateTime",
    "Kept",
    "Numeric",
    "PrivacyUnit",
    "Schema",
    "Value",
    "unit_text",
]

ENTRY_BYTES = 512  # of a key, besides its value


class Kept:
    """Values by key, within ``room`` bytes; the least recently used values are dropped."""

    def __init__(self, room: int) -> None:
        self.room, self._taken, self._lock = room, 0, threading.Lock()
        self._values: dict[Hashable, tuple[Any, int]] = {}

    def get(self, key: Hashable) -> Any:
        with self._lock:
            if key not in self._values:
                return None
            self._values[key] = self._values.pop(key)
            return self._values[key][0]

    def recalled(self, key: Hashable, make: Callable[[], T], nbytes: Callable[[T], int]) -> T:
        """The value; a missing one is made and kept."""
        value: T | None = self.get(key)
        if value is None:
            value = make()
            self.put(key, value, nbytes(value))
        return value

    def put(self, key: Hashable, value: object, nbytes: int) -> None:
        nbytes += ENTRY_BYTES
        with self._lock:
            self._taken += nbytes - self._values.pop(key, (None, 0))[1]
            self._values[key] = value, nbytes
            while self._taken > self.room:
                self._taken -= self._values.pop(next(iter(self._values)))[1]

    def values(self) -> list[Any]:
        """All values, the most recently used last."""
        with self._lock:
            return [value for value, _ in self._values.values()]

    def clear(self) -> None:
        with self._lock:
            self._values, self._taken = {}, 0


Adjacency = Literal["add-remove", "substitute"]
Column = Annotated[Categorical | Numeric | Date | DateTime, Field(discriminator="type")]


MAX_ROWS = 2**33  # of any table
KEPT_BYTES = 2**25  # of bound specs and losses


class PrivacyUnit(Declared):
    """The unit whose presence is hidden: at most ``max_rows`` rows with one value of a column.

    Examples:
        >>> import pinq
        >>> sex = pinq.Categorical(values=("F", "M"))
        >>> unit = pinq.PrivacyUnit(column="person", max_rows=3)
        >>> pinq.Schema(columns={"sex": sex}, max_rows=100, privacy_unit=unit)
        Schema: at most 100 rows, adjacency add-remove, privacy unit person (at most 3 rows each)
          sex  2 values: F, M
    """

    column: str
    max_rows: int = Field(ge=1, le=10**6)

    @field_validator("column")
    @classmethod
    def _text(cls, column: str) -> str:
        require_text(column, "the privacy unit's column")
        return column


class Public(Declared):
    """The keys that everybody may see: a policy has them, and its schema has no others."""

    columns: dict[str, Column] = Field(min_length=1)
    max_rows: int = Field(ge=1, le=MAX_ROWS, description="no table that the policy admits has more rows")
    adjacency: Adjacency = Field(default="add-remove", description="which tables are neighbours")
    privacy_unit: Literal["row"] | PrivacyUnit = Field(default="row", description="whose presence is hidden")

    @property
    def bounded_unit(self) -> PrivacyUnit | None:
        """The privacy unit, if it is more than a row; else None."""
        return None if self.privacy_unit == "row" else self.privacy_unit


class Schema(Public):
    """The public facts of a dataset. It needs no data and no secrets.

    Examples:
        >>> import pinq
        >>> sex, age = pinq.Categorical(values=("F", "M")), pinq.Numeric(lower=0, upper=100, integer=True)
        >>> pinq.Schema(columns={"sex": sex, "age": age}, max_rows=100)
        Schema: at most 100 rows, adjacency add-remove, privacy unit row
          sex  2 values: F, M
          age  whole numbers 0 to 100 in 101 cells
    """

    if TYPE_CHECKING:  # columns and unit may be given as a file has them

        def __init__(
            self,
            *,
            columns: Mapping[str, Column | Mapping[str, Any]],
            max_rows: int,
            adjacency: Adjacency = "add-remove",
            privacy_unit: Literal["row"] | PrivacyUnit | Mapping[str, Any] = "row",
        ) -> None: ...

    @field_validator("columns")
    @classmethod
    def _names(cls, columns: dict[str, Column]) -> dict[str, Column]:
        folded: dict[str, str] = {}
        for name in columns:
            if not name:
                raise ValueError("a column's name is empty")
            require_text(name, "a column's name")
            other = folded.setdefault(name.casefold(), name)
            if other != name:
                raise ValueError(
                    f"columns {other!r} and {name!r} differ only in case, which SQL engines do not tell apart"
                )
        return columns

    @cached_property
    def distance(self) -> int:
        """The number of rows by which neighbouring tables differ: the factor from the cost of one row to a charge.

        Adding or removing one row: 1. Replacing one: 2. A unit of k rows: k times that (group
        privacy, privacy.md 1.1).
        """
        rows = 1 if self.bounded_unit is None else self.bounded_unit.max_rows
        return rows * (2 if self.adjacency == "substitute" else 1)

    @cached_property
    def kept(self) -> Kept:
        """The partitions and vectors that were bound to the schema, by the identities of specs and losses."""
        return Kept(KEPT_BYTES)

    @cached_property
    def numeric_columns(self) -> Mapping[str, Numeric]:
        """The columns of numbers; ``categorical_columns`` are all others."""
        return {name: column for name, column in self.columns.items() if isinstance(column, Numeric)}

    @cached_property
    def categorical_columns(self) -> Mapping[str, Categorical]:
        return {name: column for name, column in self.columns.items() if isinstance(column, Categorical)}

    def column(self, name: object) -> Categorical | Numeric:
        """A declared column; raises ``QueryError``, with the columns, for another name."""
        column = self.columns.get(name) if isinstance(name, str) else None
        if column is None:
            raise no_column(name, self.columns)
        return column

    def categorical(self, name: object) -> Categorical:
        """A declared categorical column; raises ``QueryError`` for another name."""
        column = self.column(name)
        if not isinstance(column, Categorical):
            raise QueryError(
                f"`{name}` is numeric; a categorical column is needed here, or cut it with Cuts({name!r}, [...])."
            )
        return column

    def numeric(self, name: object) -> Numeric:
        """A declared numeric column; raises ``QueryError`` for another name."""
        column = self.column(name)
        if not isinstance(column, Numeric):
            raise QueryError(f"`{name}` is categorical; a numeric column is needed here.")
        return column

    def dated(self, name: object) -> Date:
        """A declared column of dates; raises ``QueryError`` for another name."""
        column = self.column(name)
        if not isinstance(column, Date):
            raise QueryError(f"`{name}` has no dates; a column of dates is needed here.")
        return column

    def addable(self, name: object) -> Numeric:
        """A declared column whose numbers have a sum; raises ``QueryError`` for another name."""
        column = self.numeric(name)
        column.require_addable(str(name))
        return column

    def with_sources(self, columns: Iterable[str]) -> set[str]:
        """Adds the declared columns from which these are derived, because terms count them, too."""
        names = set(columns)
        sources = [source for name in names & self.columns.keys() for source in self.columns[name].sources]
        return names | (self.columns.keys() & set(sources))

    @cached_property
    def row_digest(self) -> str:
        """Identifies the encoding and the selection of rows: columns in order, domains, privacy unit."""
        unit = "row" if self.bounded_unit is None else [self.bounded_unit.column, self.bounded_unit.max_rows]
        text = json.dumps([[[name, column.digest] for name, column in self.columns.items()], unit])
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    @cached_property
    def digest(self) -> str:
        return hashlib.blake2b(
            json.dumps(self.model_dump(mode="json"), sort_keys=True).encode(), digest_size=16
        ).hexdigest()

    def __repr__(self) -> str:
        lines = [
            f"Schema: at most {self.max_rows:,} rows, adjacency {self.adjacency}, privacy unit "
            f"{unit_text(self.bounded_unit)}"
        ]
        wide = max(len(name) for name in self.columns)
        lines += [f"  {name:<{wide}}  {column.describe()}" for name, column in self.columns.items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(
            f"<tr><td>{escape(name)}</td><td style='text-align:left'>{escape(column.describe())}</td></tr>"
            for name, column in self.columns.items()
        )
        head = escape(repr(self).splitlines()[0])
        return (
            f"<p>{head}</p><table><thead><tr><th>column</th><th>domain</th></tr></thead><tbody>{rows}</tbody></table>"
        )


def unit_text(unit: PrivacyUnit | None) -> str:
    """``row``, or ``person_id (at most 3 rows)``."""
    return "row" if unit is None else f"{unit.column} (at most {unit.max_rows} rows each)"


class Cohorts(Declared):
    """The cohorts of a table: by a column, each row belongs for ever to one of them.

    Attributes:
        column: The column that names the cohort, such as a date of admission or a column of codes.
        by: The period of a column of dates.
        closed: The last cohort whose rows no longer change; earlier cohorts do not change either.
    """

    column: str
    by: Literal["year", "quarter", "month"] | None = None
    closed: str

    @field_validator("closed", mode="before")
    @classmethod
    def _text(cls, closed: object) -> object:
        return str(closed) if type(closed) is int else closed  # YAML reads a year as a number

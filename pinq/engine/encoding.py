# SPDX-License-Identifier: Apache-2.0
"""The SQL that takes a raw row to small unsigned integers, the same in any batch and process.

Privacy:
    Each row is encoded by itself (clamp, grid cell, place in the declared list) or left out: a
    row-wise map, stability 1. Each line of delimited text is read by itself too (delimited.py), so
    the map is row-wise from the file's lines on. With a privacy unit of at most k rows, each unit
    keeps the k of its rows whose keyed hashes are smallest. That looks at the unit's own rows only,
    so a unit's coming or going changes at most k encoded rows (privacy.md 1.1). NaN counts as
    missing, infinities clamp, a failed cast is missing: by fixed rules, before any query
    (privacy.md 1.7h).
"""

from __future__ import annotations

import re

import duckdb
import pyarrow as pa

from pinq.engine.columns import RawColumns, RawValue
from pinq.engine.numbers import define_readings, moment_number
from pinq.engine.raw import literal, quoted
from pinq.public.policy import Policy
from pinq.public.schema import Categorical, Column, Numeric, categorical_columns, numeric_columns

__all__ = ["Encoder", "bound", "candidate_columns", "encode"]

_WHOLE_OR_TEXT = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|VARCHAR")
_WHOLE = frozenset({"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"})
_UNSIGNED = ((2**8, "UTINYINT"), (2**16, "USMALLINT"), (2**32, "UINTEGER"))


class Encoder:
    """The SQL that encodes a policy's rows.

    What it makes has columns ``c0``, ``c1``, ... in the policy's order and, where there is a
    privacy unit, ``unit``, a keyed hash of it: nothing raw.

    Args:
        connection: Knows how the source spells numbers (``number_of``); gets types of its own.
        policy: Whose columns.
        types: The source's columns' types, as SQL calls them.
        salt: Keys the hashes.

    Attributes:
        columns: Names of the codes' columns.
        kept: The condition under which a row of ``tried`` is encoded.
        unit_kind: The type of the privacy unit's column, one name for all whose texts agree; empty
            where a unit is a row.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, policy: Policy, types: dict[str, str], salt: bytes
    ) -> None:
        self._policy, self._key = policy, literal(salt.hex())
        self.columns = [f"c{number}" for number in range(len(policy.columns))]
        self.kept = " AND ".join(f"{name} IS NOT NULL" for name in self.columns)
        self._raw = RawColumns.of(connection, policy, types)
        self._select = _codes(connection, policy, self._raw)
        self._unit, self.unit_kind = policy.bounded_unit, ""
        if self._unit is not None:
            kind = types[self._unit.column]
            # The same person must have the same text in every file: 5 and '5' have, 5 and 5.0 have not.
            self.unit_kind = "whole numbers or text" if _WHOLE_OR_TEXT.fullmatch(kind) else kind
            self._select.append(f"md5({self._key} || {_unit_text(quoted(self._unit.column), kind)}) AS unit")

    def tried(self, source: str) -> str:
        """A query for the codes of all rows, NULL where a value cannot be encoded."""
        return f"SELECT {', '.join(self._select)} FROM {self._raw.rows(source)}"

    def encoded(self, source: str) -> str:
        """A query for the codes of the rows that can be encoded and whose unit is known."""
        known = "" if self._unit is None else " AND unit IS NOT NULL"
        return f"SELECT * FROM ({self.tried(source)}) WHERE {self.kept}{known}"

    @staticmethod
    def bounded(policy: Policy, salt: bytes, encoded: str, *, units: bool = False) -> str:
        """A query for the ``max_rows`` rows of each unit that have the smallest keyed hashes.

        Equal rows are interchangeable.

        Args:
            policy: Whose unit.
            salt: Keys the hashes.
            encoded: A table of what ``encoded`` gives.
            units: Ask for the units' own hashes too, as bytes.
        """
        names = ", ".join(f"c{number}" for number in range(len(policy.columns)))
        text = " || ',' || ".join(names.split(", "))
        wanted = names + (", unhex(unit) AS unit" if units else "")
        if policy.bounded_unit is None:
            return f"SELECT {wanted} FROM {encoded}"
        # With max_rows 2, a unit's rows with the hashes 7e.., 1b.. and 40..: the last two are kept.
        nth = f"row_number() OVER (PARTITION BY unit ORDER BY md5({literal(salt.hex())} || {text}), {names})"
        return f"SELECT {wanted} FROM {encoded} QUALIFY {nth} <= {policy.bounded_unit.max_rows}"

    def outside(self, source: str) -> str:
        """A query for how many rows of each numeric column lie outside of its bounds."""
        counts = []
        for name, column in numeric_columns(self._policy.columns).items():
            value = _number(self._raw.values[name], column)
            beyond = f"{value} < {float(column.lower)!r} OR {value} > {float(column.upper)!r}"
            counts.append(f"count(*) FILTER ({beyond})")
        return f"SELECT {', '.join(counts) or 'count(*) FILTER (false)'} FROM {self._raw.rows(source)}"


def encode(batch: pa.Table | pa.RecordBatch, policy: Policy, salt: bytes = b"") -> pa.Table:
    """Encodes a batch of raw rows. It needs nothing but its arguments: any process can do it.

    Args:
        batch: Has the policy's columns, as typed values or as text.
        policy: Whose columns. Its source is not looked at.
        salt: Keys the hashes of units; the dataset's.

    Returns:
        The rows that can be encoded, in any order: columns ``c0``, ``c1``, ... of unsigned codes in
        the policy's order (``RowBlock.from_arrow`` reads them) and, with a privacy unit, ``unit``, its
        keyed hash. What is made of two batches together is what is made of each; only who has all
        rows of a unit can choose the ``max_rows`` that are kept of it, by ``Encoder.bounded``. A
        call costs some milliseconds beside its rows: give it many.
    """
    with duckdb.connect(config={"enable_external_access": "false"}) as connection:
        define_readings(connection, None)
        connection.register("source", batch)
        described = connection.execute("DESCRIBE SELECT * FROM source").fetchall()
        encoder = Encoder(connection, policy, {name: kind for name, kind, *_ in described}, salt)
        return connection.sql(encoder.encoded("source")).to_arrow_table()


def bound(encoded: pa.Table, policy: Policy, salt: bytes) -> pa.Table:
    """Keeps the ``max_rows`` rows of each unit, as ``Encoder.bounded`` does.

    Args:
        encoded: What ``encode`` made, with all rows of each of its units.
        policy: Whose unit.
        salt: Keys the hashes; the one of ``encode``.

    Returns:
        The columns of codes alone.
    """
    with duckdb.connect(config={"enable_external_access": "false"}) as connection:
        connection.register("encoded", encoded)
        return connection.sql(Encoder.bounded(policy, salt, "encoded")).to_arrow_table()


def candidate_columns(policy: Policy) -> dict[str, str]:
    """The columns that ``Encoder.encoded`` gives where there is a privacy unit, and their types."""
    codes = {f"c{number}": unsigned(column.codes) for number, column in enumerate(policy.columns.values())}
    return codes | {"unit": "VARCHAR"}


def _unit_text(value: str, kind: str) -> str:
    """SQL for the text by which a unit is known: one text for all values that are equal."""
    # 0.0 and -0.0 are one number of two texts: one person would be two, and keep twice the rows.
    number = f"CASE WHEN {value} = 0 THEN 0 ELSE {value} END" if kind in ("DOUBLE", "FLOAT") else value
    return f"CAST({number} AS VARCHAR)"


def unsigned(count: int) -> str:
    """The smallest unsigned type that can hold 0 .. count - 1, as SQL calls it."""
    return next(name for cells, name in _UNSIGNED if count <= cells)


def _codes(connection: duckdb.DuckDBPyConnection, policy: Policy, raw: RawColumns) -> list[str]:
    """An expression ``... AS c<i>`` for each column, NULL where a value cannot be encoded."""
    numbers = {name: number for number, name in enumerate(policy.columns)}
    # NULL is both: a value that is missing gets the code for that, one that cannot be encoded none.
    values, codes = {}, {}
    for name, numeric in numeric_columns(policy.columns).items():
        values[name] = _number(raw.values[name], numeric)
        codes[name] = _cell(values[name], numeric)
        if _counts_by_ones(raw.values[name].kind, numeric):
            values[name] = raw.values[name].value
            codes[name] = _whole_cell(values[name], numeric)
    for name, categorical in categorical_columns(policy.columns).items():
        values[name] = raw.values[name].text
        codes[name] = _position(connection, numbers[name], values[name], categorical)
    return [
        f"(coalesce({codes[name]}, {_missing(values[name], column)}))::{unsigned(column.codes)} AS c{numbers[name]}"
        for name, column in policy.columns.items()
    ]


def _cell(value: str, column: Numeric) -> str:
    """The grid cell of a number: 37 is in cell 18 of a grid from 0 in steps of 2."""
    lower, width = float(column.lower), float(column.width)
    # A number a rounding error below an edge is on it: 0.3 of a grid by tenths is
    # 2.9999999999999996 cells from 0 by floating point, and in cell 3.
    cell = f"floor(({value} - ({lower!r})::DOUBLE) / ({width!r})::DOUBLE + {column.tolerance!r})"
    # least() and greatest() pass over NULL, so a missing number must be kept from them.
    return f"CASE WHEN {value} IS NOT NULL THEN least(greatest({cell}, 0), {column.cells - 1}) END"


def _counts_by_ones(kind: str, column: Numeric) -> bool:
    """Whether a source's whole numbers have a cell each, and numbers of 64 bits hold them all."""
    is_plain = column.microseconds is None and column.width == 1 and column.low.denominator == 1
    return kind in _WHOLE and is_plain and abs(column.low) + column.cells < 2**53


def _whole_cell(value: str, column: Numeric) -> str:
    """The cell of a whole number on such a grid: that of ``_cell``, in a quarter of the time."""
    low = int(column.low)
    kept = f"least(greatest({value}::BIGINT, {low}), {low + column.cells - 1})"
    return f"CASE WHEN {value} IS NOT NULL THEN {kept} - ({low}) END"


def _position(connection: duckdb.DuckDBPyConnection, number: int, value: str, column: Categorical) -> str:
    """The position of a text in the declared list, by a type that this makes."""
    # An enum of the declared values finds any value's place. None of them holds a NUL character, so
    # each is a literal.
    values = ", ".join(map(literal, column.texts))
    connection.execute(f"CREATE OR REPLACE TEMP TYPE domain_{number} AS ENUM ({values})")
    code = f"enum_code(TRY_CAST({value} AS domain_{number}))"
    # A code is an unsigned octet where the values are few; what follows from two is as wide as both.
    undeclared = f"CASE WHEN {value} IS NOT NULL THEN {column.other_code} END"
    return code if column.other is None else f"coalesce({code}::BIGINT, {undeclared})"


def _number(raw: RawValue, column: Numeric) -> str:
    """The number that a value is or spells, a date's its days or minutes; NULL for what is none."""
    if column.microseconds is not None:
        return moment_number(raw.value, raw.kind, column.microseconds)
    value = f"number_of({raw.value})"
    return f"(CASE WHEN isnan({value}) THEN NULL ELSE {value} END)"


def _missing(value: str, column: Column) -> str:
    """The code of a missing value where the column has one.

    An undeclared category is not missing but undeclared.
    """
    if not column.nullable:
        return "NULL"
    return f"CASE WHEN {value} IS NULL THEN {column.null_code} END"

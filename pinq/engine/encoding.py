# SPDX-License-Identifier: Apache-2.0
"""The SQL that encodes a raw row as small unsigned integers, equally in any batch and process.

Privacy:
    Each row is encoded independently of the others (clamp, grid cell, position in the declared list) or left out: a
    row-wise map, stability 1, as is the reading of lines (``delimited.py``). With a privacy unit of at most k rows,
    each unit keeps the k rows with the smallest keyed hashes. Other units' rows do not matter, so adding or removing a
    unit changes at most k encoded rows (privacy.md 1.1). By fixed rules, before any query, NaN and a failed cast are
    missing and infinities are clamped (privacy.md 1.7h).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import duckdb
import numpy as np
import pyarrow as pa

from pinq.engine.delimited import Lines
from pinq.engine.derived import require_row_wise, tried_formula
from pinq.engine.numbers import define_readings, moment_number
from pinq.engine.sources import AS_WHOLE, INEXACT, columns_of, literal, prepare_formulas, quoted, said_by, unit_kind
from pinq.errors import PolicyError
from pinq.policy.policy import Policy
from pinq.public.schema import Categorical, Column, Numeric


@dataclass(frozen=True)
class RawValue:
    """A value of a raw row.

    Attributes:
        value: An SQL expression.
    """

    value: str
    kind: str

    def without(self, column: Column) -> RawValue:
        """The same value, NULL for the codes and words that the column declares as missing."""
        if not column.missing:
            return self
        is_missing = f"{self.text} IN ({', '.join(map(literal, sorted(column.missing_texts)))})"
        if isinstance(column, Numeric) and column.missing_numbers:
            numbers = ", ".join(f"({number!r})::DOUBLE" for number in column.missing_numbers)
            is_missing += f" OR {_number(self, column)} IN ({numbers})"
        return RawValue(f"(CASE WHEN {is_missing} THEN NULL ELSE {self.value} END)", self.kind)

    @property
    def text(self) -> str:
        if self.kind in INEXACT:
            # A frame with missing values has whole-number codes as doubles: 1.0 is the category 1.
            value = self.value
            whole = f"{value} = trunc({value}) AND abs({value}) < {2 ** INEXACT[self.kind]}"
            number = f"WHEN {whole} THEN {value}::BIGINT::VARCHAR ELSE {value}::VARCHAR"
            return f"(CASE WHEN isnan({value}) THEN NULL {number} END)"
        return f"CAST({self.value} AS VARCHAR)"

    def require_exact(self, name: str, texts: Iterable[str]) -> None:
        """Raises ``PolicyError`` if the column's type cannot tell these whole numbers apart.

        Missing rows may have decided the type, so the type must not change other rows' values.
        """
        bits = INEXACT.get(self.kind, 0)
        if bits and any(_is_beyond(text, 2**bits) for text in texts):
            raise PolicyError(
                f"Values of the column {name!r} are whole numbers of 2^{bits} = {2**bits:,} and more, and the source "
                f"has them as {self.kind}, in which several of these are one. {AS_WHOLE}"
            )


def _is_beyond(text: str, least: int) -> bool:
    """Whether a text is a number of at least this size."""
    try:
        return abs(float(text)) >= least
    except ValueError:
        return False


@dataclass(frozen=True)
class RawColumns:
    """The raw values of all declared columns, as SQL."""

    values: Mapping[str, RawValue]
    derived: tuple[str, ...] = ()
    joins: tuple[str, ...] = ()

    @classmethod
    def of(cls, connection: duckdb.DuckDBPyConnection, policy: Policy, types: dict[str, str]) -> RawColumns:
        """Finds the values of a policy's columns in a source of these types.

        Raises:
            PolicyError: A formula does not fit the types, or a lookup table was not read.
        """
        plain = (name for name, column in policy.columns.items() if not column.is_derived)
        values = {name: RawValue(quoted(name), types[name]) for name in plain}
        computed = {name: column for name, column in policy.columns.items() if column.is_derived}
        if not computed:
            return cls(values).without(policy)
        prepare_formulas(connection)
        derived, joins = [], []
        for number, (name, column) in enumerate(computed.items()):
            alias = _unused(f"derived_{number}", types)
            formula = _formula(connection, name, column)
            derived.append(f"{formula} AS {alias}")
            values[name] = RawValue(alias, _kind(connection, name, formula, types))
            if column.lookup is not None:
                table = _unused(f"lookup_{number}", types)
                _register(connection, table, name, policy)
                values[name].require_exact(name, policy.lookups[name])
                # LEFT JOIN lookup_0 ON lookup_0.lookup_0_key = derived_0, and the value is
                # lookup_0.lookup_0_value.
                joins.append(f"LEFT JOIN {table} ON {table}.{table}_key = {values[name].text}")
                values[name] = RawValue(f"{table}.{table}_value", "VARCHAR")
        return cls(values, tuple(derived), tuple(joins)).without(policy)

    def without(self, policy: Policy) -> RawColumns:
        values = {name: value.without(policy.columns[name]) for name, value in self.values.items()}
        return replace(self, values=values)

    def rows(self, source: str) -> str:
        if not self.derived:
            return source
        return f"(SELECT *, {', '.join(self.derived)} FROM {source}) {' '.join(self.joins)}"


def _formula(connection: duckdb.DuckDBPyConnection, name: str, column: Column) -> str:
    if column.formula is None:
        return quoted(column.sources[0])
    require_row_wise(connection, name, column.formula, column.sources)
    return tried_formula(column.formula)


def _kind(connection: duckdb.DuckDBPyConnection, name: str, formula: str, types: dict[str, str]) -> str:
    """The type of a formula's values, which follows from its columns' types."""
    # TRY does not catch the error of counting days in a time of day, so a sample value is tried first.
    samples = {kind: "TIME '00:00'" if kind == "TIME" else f"CAST(NULL AS {kind})" for kind in types.values()}
    columns = ", ".join(f"{samples[kind]} AS {quoted(column)}" for column, kind in types.items())
    try:
        described = connection.execute(f"DESCRIBE SELECT {formula} AS value FROM (SELECT {columns})").fetchall()
        connection.execute(f"SELECT {formula} FROM (SELECT {columns})").fetchall()
    except duckdb.Error as error:
        raise PolicyError(f"`formula` of column {name!r} does not fit the source: {said_by(error)}") from None
    return str(described[0][1])


def _register(connection: duckdb.DuckDBPyConnection, table: str, name: str, policy: Policy) -> None:
    if name not in policy.lookups:
        raise PolicyError(f"The lookup table of column {name!r} was not read; read the policy with `pinq.load_policy`.")
    pairs = policy.lookups[name]
    columns = {f"{table}_key": pa.array(list(pairs), pa.string()), f"{table}_value": pa.array(list(pairs.values()))}
    connection.register(table, pa.table(columns))


def _unused(name: str, types: dict[str, str]) -> str:
    names = {column.casefold() for column in types}
    while any(column.startswith(name) for column in names):
        name += "_"
    return name


EXAMPLES = 50  # unreadable values shown for a column
_UNSIGNED = ((2**8, "UTINYINT"), (2**16, "USMALLINT"), (2**32, "UINTEGER"))


class Encoder:
    """The SQL that encodes a policy's rows, without raw values.

    The columns are ``c0``, ``c1``, ... in the policy's order and, with a privacy unit, ``unit``, a keyed hash of it.

    Attributes:
        unit_kind: The type of the privacy unit's column, one name for all types with equal texts; empty if a unit is a
            row.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, policy: Policy, types: dict[str, str], salt: bytes
    ) -> None:
        self._policy, self._key = policy, literal(salt.hex())
        self.columns = [f"c{number}" for number in range(len(policy.columns))]
        self.condition = " AND ".join(f"{name} IS NOT NULL" for name in self.columns)
        self._raw = RawColumns.of(connection, policy, types)
        codes = _codes(connection, policy, self._raw)
        self._select = [f"{code} AS {name}" for code, name in zip(codes, self.columns, strict=True)]
        self._unit, self.unit_kind = policy.bounded_unit, ""
        if self._unit is not None:
            self.unit_kind = unit_kind(self._unit.column, types[self._unit.column])
            self._select.append(f"md5({self._key} || CAST({quoted(self._unit.column)} AS VARCHAR)) AS unit")

    def tried(self, source: str) -> str:
        """A query for the codes of all rows, NULL for a value that cannot be encoded."""
        return f"SELECT {', '.join(self._select)} FROM {self._raw.rows(source)}"

    def encoded(self, source: str) -> str:
        """A query for the codes of the rows that can be encoded and whose unit is known."""
        has_unit = "" if self._unit is None else " AND unit IS NOT NULL"
        # Without the offset DuckDB would push the condition down to the raw values, and compute each
        # code twice.
        return f"SELECT * FROM ({self.tried(source)} OFFSET 0) WHERE {self.condition}{has_unit}"

    @staticmethod
    def bounded(policy: Policy, salt: bytes, encoded: str) -> str:
        """A query for the ``max_rows`` rows of each unit that have the smallest keyed hashes.

        Equal rows are interchangeable.
        """
        names = ", ".join(f"c{number}" for number in range(len(policy.columns)))
        text = " || ',' || ".join(names.split(", "))
        if policy.bounded_unit is None:
            return f"SELECT {names} FROM {encoded}"
        # With max_rows 2, of a unit's rows with the hashes 7e, 1b and 40 the last two are kept.
        nth = f"row_number() OVER (PARTITION BY unit ORDER BY md5({literal(salt.hex())} || {text}), {names})"
        return f"SELECT {names} FROM {encoded} QUALIFY {nth} <= {policy.bounded_unit.max_rows}"

    def compared(self, source: str, rows: int) -> str:
        """A query for some rows: for each column the text of its value, and its code as in ``tried``."""
        texts = [f"CAST({self._raw.values[name].value} AS VARCHAR)" for name in self._policy.columns]
        pairs = (f"{text}, {code}" for text, code in zip(texts, self._select, strict=False))
        return f"SELECT {', '.join(pairs)} FROM {self._raw.rows(source)} LIMIT {rows}"

    def outside(self, source: str) -> str:
        """A query for the number of rows outside the bounds of each numeric column."""
        counts = []
        for name, column in self._policy.schema_.numeric_columns.items():
            value = _number(self._raw.values[name], column)
            beyond = f"{value} < {float(column.lower)!r} OR {value} > {float(column.upper)!r}"
            counts.append(f"count(*) FILTER ({beyond})")
        return f"SELECT {', '.join(counts) or 'count(*) FILTER (false)'} FROM {self._raw.rows(source)}"

    def shapes(self, source: str) -> str:
        """A query for a histogram of each column, over ``bars_of``: a map from bars to numbers of rows."""
        maps = []
        for (name, column), code in zip(self._policy.schema_.columns.items(), self._select, strict=False):
            bar = code.rpartition(" AS ")[0]
            if column.type != "categorical":
                number, (bars, width) = _number(self._raw.values[name], column), bars_of(column)
                low, high = float(column.lower), float(column.upper)
                last = f"CASE WHEN {number} <= {high!r} THEN {bars - 1} ELSE {bars} END"
                bar = f"CAST(greatest(-1, least(floor(({number} - {low!r}) / {width!r}), {last})) AS INTEGER)"
                bar = f"CASE WHEN {number} IS NOT NULL THEN {bar} END"
            maps.append(f"histogram({bar})")
        return f"SELECT count(*), {', '.join(maps)} FROM {self._raw.rows(source)}"

    def unread(self, source: str) -> str:
        """A query that counts, for each column, the values that its declaration cannot read, with the commonest."""
        counts = []
        for (name, column), code in zip(self._policy.columns.items(), self._select, strict=False):
            text = self._raw.values[name].text
            value = (
                code.rpartition(" AS ")[0] if column.type == "categorical" else _number(self._raw.values[name], column)
            )
            unread = f"FILTER ({text} IS NOT NULL AND {value} IS NULL)"
            counts += [f"count(*) {unread}", f"approx_top_k({text}, {EXAMPLES}) {unread}"]
        return f"SELECT {', '.join(counts)} FROM {self._raw.rows(source)}"


BARS = 30  # the most bars of a numeric column's histogram


def bars_of(column: Numeric) -> tuple[int, float]:
    """The number of bars between a column's bounds, and the width of each; bar -1 has all rows below."""
    cells = math.ceil(column.cells / BARS)  # of a bar
    return math.ceil(column.cells / cells), cells * float(column.step or 1)


def encode(batch: pa.Table | pa.RecordBatch, policy: Policy, salt: bytes = b"") -> pa.Table:
    """Encodes a batch of raw rows.

    Returns:
        The rows that can be encoded, in any order: columns ``c0``, ``c1``, ... of unsigned codes in the policy's order
        (``RowBlock.from_arrow`` reads them) and, with a privacy unit, ``unit``, its keyed hash. The result for two
        batches together is the union of their results. A caller that has all rows of a unit keeps ``max_rows`` of them
        by ``Encoder.bounded``. A call has a fixed cost of some milliseconds, so pass it many rows.
    """
    with encoder_of(batch, policy, salt) as (connection, encoder):
        return connection.sql(encoder.encoded("source")).to_arrow_table()


@contextmanager
def encoder_of(
    batch: pa.Table | pa.RecordBatch, policy: Policy, salt: bytes
) -> Iterator[tuple[duckdb.DuckDBPyConnection, Encoder]]:
    """Opens a connection with a batch of raw rows as its table ``source``, and the encoder for it."""
    with duckdb.connect(
        config={"enable_external_access": "false", "autoinstall_known_extensions": "false"}
    ) as connection:
        define_readings(connection, None)
        connection.register("source", batch)
        yield connection, Encoder(connection, policy, columns_of(connection, "source"), salt)


def bound(encoded: pa.Table, policy: Policy, salt: bytes) -> pa.Table:
    """Keeps the ``max_rows`` rows of each unit, as ``Encoder.bounded`` does.

    Args:
        encoded: The result of ``encode``, with all rows of each of its units.
        policy: The policy that declares the unit.
        salt: The key of the hashes; the one of ``encode``.
    """
    with duckdb.connect(
        config={"enable_external_access": "false", "autoinstall_known_extensions": "false"}
    ) as connection:
        connection.register("encoded", encoded)
        return connection.sql(Encoder.bounded(policy, salt, "encoded")).to_arrow_table()


def candidate_columns(policy: Policy) -> dict[str, str]:
    """The columns of ``Encoder.encoded`` with a privacy unit, and their types."""
    codes = {f"c{number}": unsigned(column.codes) for number, column in enumerate(policy.columns.values())}
    return codes | {"unit": "VARCHAR"}


def unsigned(count: int) -> str:
    """The smallest unsigned SQL type that can hold 0 .. count - 1."""
    return next(name for cells, name in _UNSIGNED if count <= cells)


def _codes(connection: duckdb.DuckDBPyConnection, policy: Policy, raw: RawColumns) -> list[str]:
    """An expression for the code in each column, NULL for a value that cannot be encoded."""
    numbers = {name: number for number, name in enumerate(policy.columns)}
    # Up to `_or_missing` NULL means two things: a missing value, which may have a code, and an unreadable one.
    values, codes = {}, {}
    for name, numeric in policy.schema_.numeric_columns.items():
        values[name] = _number(raw.values[name], numeric)
        codes[name] = _cell(values[name], numeric)
    for name, categorical in policy.schema_.categorical_columns.items():
        raw.values[name].require_exact(name, categorical.texts)
        values[name] = raw.values[name].text
        codes[name] = _position(connection, numbers[name], values[name], categorical)
    return [
        f"({_or_missing(codes[name], values[name], column)})::{unsigned(column.codes)}"
        for name, column in policy.columns.items()
    ]


def _cell(value: str, column: Numeric) -> str:
    """The grid cell of a number: 37 is in cell 18 of a grid from 0 in steps of 2."""
    lower, width = float(column.lower), float(column.width)
    # The tolerance undoes rounding errors at edges: on a grid by tenths, 0.3 is computed as
    # 2.9999999999999996 cells from 0, and belongs to cell 3.
    cell = f"floor(({value} - ({lower!r})::DOUBLE) / ({width!r})::DOUBLE + {column.tolerance!r})"
    # least() and greatest() would take twice the time. The cell of NULL is NULL.
    return f"CASE WHEN {cell} < 0 THEN 0 WHEN {cell} >= {column.cells} THEN {column.cells - 1} ELSE {cell} END"


def _position(connection: duckdb.DuckDBPyConnection, number: int, value: str, column: Categorical) -> str:
    """The position of a text in the declared list, by an enum type that is created here."""
    # No declared value holds a NUL character, so each can be a literal.
    values = ", ".join(map(literal, column.texts))
    connection.execute(f"CREATE OR REPLACE TEMP TYPE domain_{number} AS ENUM ({values})")
    code = f"enum_code(TRY_CAST({value} AS domain_{number}))"
    # The enum's code may be an octet. Cast it, so that the code of undeclared values fits.
    undeclared = f"CASE WHEN {value} IS NOT NULL THEN {column.other_code} END"
    return code if column.other is None else f"coalesce({code}::BIGINT, {undeclared})"


def _number(raw: RawValue, column: Numeric) -> str:
    """The number of a value or of its text (of a date, its days or minutes); NULL for other texts."""
    if column.microseconds is not None:
        return moment_number(raw.value, raw.kind, column.microseconds)
    return f"nullif(number_of({raw.value}), 'nan'::DOUBLE)"


def _or_missing(code: str, value: str, column: Column) -> str:
    """A code; for a missing value the column's code for missing values, if it has one.

    An undeclared category is not missing.
    """
    if not column.nullable:
        return code
    return f"coalesce({code}, CASE WHEN {value} IS NULL THEN {column.null_code} END)"


@dataclass(frozen=True)
class EncodingReport:
    """The exact numbers of encoded, omitted and clamped rows, for the provider only.

    Attributes:
        source_rows: Rows in the source, including unreadable lines.
        over_unit: Rows beyond their unit's contribution bound, or whose unit is missing.
        left_out: For each column, rows whose value could not be encoded (a row can count for
            several columns).
        clamped: For each numeric column, rows outside [lower, upper].
        unread: For each column, the number of values that its declaration cannot read, and the commonest of them.
    """

    source_rows: int
    encoded_rows: int
    over_unit: int
    left_out: dict[str, int]
    clamped: dict[str, int]
    lines: Lines = field(compare=False)
    unread: dict[str, tuple[int, list[str]]] = field(default_factory=dict, compare=False)


class Losses:
    """Counts rows that encoding leaves out or clamps in each piece of a source; pieces add up."""

    def __init__(self, policy: Policy) -> None:
        self._columns = list(policy.columns)
        self._numeric = list(policy.schema_.numeric_columns)
        self.numbers = np.zeros(2 + len(self._columns) + len(self._numeric), dtype=np.int64)
        self._unread: dict[str, tuple[int, list[str]]] = {name: (0, []) for name in self._columns}

    def add(self, connection: duckdb.DuckDBPyConnection, encoder: Encoder, piece: str) -> None:
        counts = ["count(*)", f"count(*) FILTER ({encoder.condition})"]
        counts += [f"count(*) FILTER ({name} IS NULL)" for name in encoder.columns]
        (left_out,) = connection.execute(f"SELECT {', '.join(counts)} FROM ({encoder.tried(piece)})").fetchall()
        (clamped,) = connection.execute(encoder.outside(piece)).fetchall()
        self.numbers += [*left_out, *clamped[: len(self._numeric)]]
        (unread,) = connection.execute(encoder.unread(piece)).fetchall()
        for name, count, texts in zip(self._columns, unread[::2], unread[1::2], strict=True):
            total, examples = self._unread[name]
            self._unread[name] = total + count, list(dict.fromkeys([*examples, *(texts or ())]))[:EXAMPLES]

    def report(self, encoded: int, lines: Lines) -> EncodingReport:
        """The counts of a source with ``encoded`` remaining rows."""
        rows, encodable, *by_column = self.numbers.tolist()
        left_out = dict(zip(self._columns, by_column, strict=False))
        clamped = dict(zip(self._numeric, by_column[len(self._columns) :], strict=True))
        return EncodingReport(rows + lines.lost, encoded, encodable - encoded, left_out, clamped, lines, self._unread)

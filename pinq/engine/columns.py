# SPDX-License-Identifier: Apache-2.0
"""Where the value of each declared column is in a raw row: in the source, or derived from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from pinq.engine.formulas import prepare_formulas, require_row_wise, tried_formula
from pinq.engine.raw import quoted
from pinq.errors import PolicyError
from pinq.public.policy import Policy
from pinq.public.schema import Column

__all__ = ["RawColumns", "RawValue"]


@dataclass(frozen=True)
class RawValue:
    """A value of a raw row.

    Attributes:
        value: An SQL expression.
        kind: Its type, as SQL calls it.
    """

    value: str
    kind: str

    @property
    def text(self) -> str:
        """SQL for the text by which categories are compared."""
        if self.kind in ("DOUBLE", "FLOAT"):
            # Whole-number codes come as doubles where a frame had missing values: 1.0 is the category
            # 1.
            value = self.value
            whole = f"{value} = trunc({value}) AND abs({value}) < 1e15"
            number = f"WHEN {whole} THEN {value}::BIGINT::VARCHAR ELSE {value}::VARCHAR"
            return f"(CASE WHEN isnan({value}) THEN NULL {number} END)"
        return f"CAST({self.value} AS VARCHAR)"


@dataclass(frozen=True)
class RawColumns:
    """The raw values of all declared columns.

    Attributes:
        values: Of each declared column.
        derived: What is selected beside the source's own columns.
        joins: The lookup tables, each with the value that is looked up.
    """

    values: Mapping[str, RawValue]
    derived: tuple[str, ...] = ()
    joins: tuple[str, ...] = ()

    @classmethod
    def of(cls, connection: duckdb.DuckDBPyConnection, policy: Policy, types: dict[str, str]) -> RawColumns:
        """Finds the values of a policy's columns in a source of these types.

        Raises:
            PolicyError: A formula does not fit the types, or a lookup table was not read.
        """
        given = (name for name, column in policy.columns.items() if not column.is_derived)
        values = {name: RawValue(quoted(name), types[name]) for name in given}
        made = {name: column for name, column in policy.columns.items() if column.is_derived}
        if not made:
            return cls(values)
        prepare_formulas(connection)
        derived, joins = [], []
        for number, (name, column) in enumerate(made.items()):
            alias = _unused(f"derived_{number}", types)
            formula = _formula(connection, name, column)
            derived.append(f"{formula} AS {alias}")
            values[name] = RawValue(alias, _kind(connection, name, formula, types))
            if column.lookup is not None:
                table = _unused(f"lookup_{number}", types)
                _register(connection, table, name, policy)
                # LEFT JOIN lookup_0 ON lookup_0.lookup_0_key = derived_0, and the value is
                # lookup_0.lookup_0_value.
                joins.append(f"LEFT JOIN {table} ON {table}.{table}_key = {values[name].text}")
                values[name] = RawValue(f"{table}.{table}_value", "VARCHAR")
        return cls(values, tuple(derived), tuple(joins))

    def rows(self, source: str) -> str:
        """SQL for a source's rows with what is derived of each."""
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
    # Times of day have no days to count, which TRY does not catch: a value shows it before any row does.
    samples = {kind: "TIME '00:00'" if kind == "TIME" else f"CAST(NULL AS {kind})" for kind in types.values()}
    columns = ", ".join(f"{samples[kind]} AS {quoted(column)}" for column, kind in types.items())
    try:
        described = connection.execute(f"DESCRIBE SELECT {formula} AS value FROM (SELECT {columns})").fetchall()
        connection.execute(f"SELECT {formula} FROM (SELECT {columns})").fetchall()
    except duckdb.Error as error:
        why = str(error).splitlines()[0]
        raise PolicyError(f"`formula` of column {name!r} does not fit the source: {why}") from None
    return str(described[0][1])


def _register(connection: duckdb.DuckDBPyConnection, table: str, name: str, policy: Policy) -> None:
    """Makes a lookup table known to SQL."""
    if name not in policy.lookups:
        raise PolicyError(f"The lookup table of column {name!r} was not read; read the policy with `pinq.load_policy`.")
    pairs = policy.lookups[name]
    columns = {f"{table}_key": pa.array(list(pairs), pa.string()), f"{table}_value": pa.array(list(pairs.values()))}
    connection.register(table, pa.table(columns))


def _unused(name: str, types: dict[str, str]) -> str:
    """A name that no column of the source has."""
    taken = {column.casefold() for column in types}
    while any(column.startswith(name) for column in taken):
        name += "_"
    return name

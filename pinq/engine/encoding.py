# SPDX-License-Identifier: Apache-2.0
"""From the provider's table to small unsigned integers, once, at open.

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

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from pinq.engine.delimited import DelimitedFiles, Lines
from pinq.engine.duckdb import DuckDBEngine
from pinq.engine.numbers import define_number_of, other_spelling
from pinq.engine.sources import source_dialect, source_files, source_path
from pinq.engine.sql import unsigned
from pinq.errors import PolicyError
from pinq.public.dialect import Dialect
from pinq.public.policy import DatabaseTable, Policy
from pinq.public.schema import Categorical, Numeric
from pinq.public.spelling import closest

__all__ = ["EncodingReport", "RawTable", "open_engine", "read_columns", "require_readable"]

# Sources that are larger on disk than this are encoded into a file, so that memory bounds nothing
# but speed.
IN_MEMORY_BYTES = 2**28
# By how much text may grow when it is unpacked.
UNPACKED = 10
_SAFE = {"preserve_insertion_order": "false"}


@dataclass(frozen=True)
class EncodingReport:
    """What encoding did, exactly: for the provider's eyes only.

    Attributes:
        source_rows: Rows in the source, lines that could not be read included.
        encoded_rows: Rows that queries see.
        over_unit: Rows beyond their unit's contribution bound, or whose unit is missing.
        left_out: For each column, rows whose value could not be encoded (a row can count for
            several columns).
        clamped: For each numeric column, rows outside [lower, upper].
        lines: How the lines of delimited text were read.
    """

    source_rows: int
    encoded_rows: int
    over_unit: int
    left_out: dict[str, int]
    clamped: dict[str, int]
    lines: Lines = field(compare=False)


@dataclass(frozen=True)
class RawTable:
    """The raw source as SQL sees it, for ``pinq init`` only.

    Attributes:
        connection: Reads it.
        name: What SQL calls it.
        types: Its columns' types.
        lines: How the lines of delimited text were read.
    """

    connection: duckdb.DuckDBPyConnection
    name: str
    types: dict[str, str]
    lines: Lines
    _scratch: tempfile.TemporaryDirectory[str]

    def close(self) -> None:
        """Frees the memory and deletes what was copied."""
        self.connection.close()
        self._scratch.cleanup()


def open_engine(
    policy: Policy, *, data: Any = None, salt: bytes, report: bool = False
) -> tuple[DuckDBEngine, EncodingReport | None]:
    """Encodes the source of a policy and opens an engine over it.

    Args:
        policy: Reviewed.
        data: An Arrow table, a pandas frame or a DuckDB relation's Arrow form, in place of the
            policy's source.
        salt: Keys the coins of rows; the same salt gives the same coins.
        report: Also count what was left out and clamped (another pass).

    Raises:
        PolicyError: The source cannot be read, lacks a declared column, or has more unreadable
            lines than the policy allows; with ``report`` these are counted only.
    """
    # Raw rows may spill while they are encoded: into a folder that only the provider can read, and
    # that goes with the engine.
    scratch = tempfile.TemporaryDirectory(prefix="pinq-", ignore_cleanup_errors=True)
    large = data is None and _is_large(policy)
    connection = duckdb.connect(
        str(Path(scratch.name) / "codes.duckdb") if large else ":memory:", config=_config(policy, scratch)
    )
    try:
        source, types, lines = _attach(connection, policy, data, scratch, _declared(policy))
        if not report:
            _require_share(policy, lines)
        select, where = _encoders(connection, policy, types)
        inner = f"SELECT {', '.join(select)}{_unit_key(policy, types)} FROM {source}"
        names = ", ".join(f"c{i}" for i in range(len(policy.columns)))
        kept = f"SELECT {names} FROM ({inner}) WHERE {where}{_unit_rule(policy, names, salt)}"
        connection.execute(f"CREATE TABLE codes AS {kept}")
        found = _report(connection, policy, types, source, inner, where, lines) if report else None
        _forget_source(connection, scratch)
    except duckdb.Error as error:
        connection.close()
        scratch.cleanup()
        # What the engine says may quote a value, so only the provider's own check repeats it.
        why = f": {str(error).splitlines()[0]}" if report else "; `pinq check` says why."
        raise PolicyError(f"The source of {policy.dataset!r} cannot be read{why}") from None
    except BaseException:
        connection.close()
        scratch.cleanup()
        raise
    return DuckDBEngine(connection, policy.schema_, salt, scratch), found


def read_columns(policy: Policy) -> RawTable:
    """All columns of the raw source: for ``pinq init`` only, whose errors may quote values.

    Raises:
        PolicyError: The source cannot be read, has more unreadable lines than allowed, or looks
            like another dialect.
    """
    scratch = tempfile.TemporaryDirectory(prefix="pinq-", ignore_cleanup_errors=True)
    connection = duckdb.connect(config=_config(policy, scratch))
    try:
        source, types, lines = _attach(connection, policy, None, scratch)
        dialect = source_dialect(policy)
        if dialect is not None:
            _require_likely(connection, source, types, dialect, lines)
        return RawTable(connection, source, types, lines, scratch)
    except duckdb.Error as error:
        connection.close()
        scratch.cleanup()
        raise PolicyError(f"The source of {policy.dataset!r} cannot be read: {str(error).splitlines()[0]}") from None
    except BaseException:
        connection.close()
        scratch.cleanup()
        raise


def require_readable(policy: Policy) -> None:
    """``PolicyError`` where delimited text lacks a declared column or has too many unreadable lines, as ``open_engine`` raises it."""
    dialect = source_dialect(policy)
    if dialect is not None:
        files, columns, lines = _delimited(policy, dialect), _declared(policy), Lines()
        _require_columns(columns, files.names, files.looks_like())
        for _ in files.read(columns, lines):
            pass
        _require_share(policy, lines)


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as an SQL string."""
    return "'" + text.replace("'", "''") + "'"


def _config(policy: Policy, scratch: tempfile.TemporaryDirectory[str]) -> dict[str, Any]:
    config: dict[str, Any] = dict(_SAFE)
    if policy.memory_limit:
        config["memory_limit"] = policy.memory_limit
    config["temp_directory"] = str(Path(scratch.name) / "spill")
    return config


def _is_large(policy: Policy) -> bool:
    sizes = [
        (file.stat().st_size, file.name.lower().endswith(".gz")) for file in source_files(policy) if file.is_file()
    ]
    return sum(size * (UNPACKED if packed else 1) for size, packed in sizes) > IN_MEMORY_BYTES


def _declared(policy: Policy) -> list[str]:
    """The columns that the source must have."""
    return [*policy.columns, *([] if isinstance(policy.privacy_unit, str) else [policy.privacy_unit.column])]


def _attach(
    connection: duckdb.DuckDBPyConnection,
    policy: Policy,
    data: Any,
    scratch: tempfile.TemporaryDirectory[str],
    columns: Sequence[str] | None = None,
) -> tuple[str, dict[str, str], Lines]:
    """Makes the source reachable.

    Args:
        connection: Has nothing attached yet.
        policy: Whose source.
        data: In its place.
        scratch: Where a copy of large delimited text may be.
        columns: What the source must have, and all that need be reachable; without them, all that
            it has.

    Returns:
        How SQL names the source, its columns' types, and how the lines of delimited text were read.
    """
    dialect, lines = (source_dialect(policy), Lines()) if data is None else (None, Lines())
    if dialect is None:
        source = _attach_typed(connection, policy, data)
    else:
        source = _attach_lines(
            connection,
            _delimited(policy, dialect),
            columns,
            lines,
            Path(scratch.name) / "rows.duckdb" if _is_large(policy) else None,
        )
    define_number_of(connection, dialect)
    types = _columns(connection, source)
    _require_columns(columns or (), types)
    return source, types, lines


def _attach_typed(connection: duckdb.DuckDBPyConnection, policy: Policy, data: Any) -> str:
    """A frame, a table of a database or Parquet files, as SQL names them."""
    if data is not None:
        table = _arrow_table(data)
        connection.register("source", table)
        return "source"
    path = source_path(policy)
    if path is None:
        raise PolicyError(f"The policy of {policy.dataset!r} names no source: set `source:`, or pass rows from Python.")
    if isinstance(policy.source, DatabaseTable):
        if not path.is_file():
            raise PolicyError(f"There is no database {path}.")
        try:
            connection.execute(f"ATTACH {literal(str(path))} AS provider (READ_ONLY)")
        except duckdb.IOException as error:
            if "lock" not in str(error):
                raise
            raise PolicyError(
                f"The database {path} is open for writing in another program. Close it there, or give `pinq` a copy."
            ) from None
        return f"provider.{quoted(policy.source.schema_name)}.{quoted(policy.source.table)}"
    return "read_parquet([" + ", ".join(literal(str(file)) for file in _files(policy)) + "])"


def _files(policy: Policy) -> list[Path]:
    files = source_files(policy)
    if not files or not all(file.exists() for file in files):
        raise PolicyError(f"There is no source {source_path(policy)}.")
    return files


def _arrow_table(data: Any) -> pa.Table:
    """What the caller passed in place of a source, as Arrow has it."""
    if not isinstance(data, pa.Table) and not hasattr(data, "iloc") and not hasattr(data, "__arrow_c_stream__"):
        home = "" if type(data).__module__ == "builtins" else f"{type(data).__module__.partition('.')[0]}."
        lazy = "; collect() it first" if hasattr(data, "collect") else ""
        known = "a table of Arrow, pandas, polars or DuckDB, or another that has `__arrow_c_stream__`"
        raise PolicyError(f"`data` is a {home}{type(data).__name__}{lazy}; it must be {known}.")
    try:
        return pa.Table.from_pandas(data, preserve_index=False) if hasattr(data, "iloc") else pa.table(data)
    except (pa.ArrowException, TypeError, ValueError):  # whose text may quote a value
        mixed = "`data` has a column of mixed types; make each column text, numbers or truth values."
        raise PolicyError(mixed) from None


def _delimited(policy: Policy, dialect: Dialect) -> DelimitedFiles:
    return DelimitedFiles(_files(policy), dialect)


def _attach_lines(
    connection: duckdb.DuckDBPyConnection,
    files: DelimitedFiles,
    columns: Sequence[str] | None,
    lines: Lines,
    copy: Path | None,
) -> str:
    """The readable lines' fields, as text: in memory, or, where they are many, in a database ``copy`` that goes once they are encoded."""
    if columns is None and (hint := files.looks_like()):
        raise PolicyError(hint)
    _require_columns(columns or (), files.names, files.looks_like())
    names = list(dict.fromkeys(columns or files.names))
    if copy is None:
        empty = pa.table({name: pa.array([], pa.string()) for name in names})
        connection.register("source", pa.concat_tables([empty, *files.read(names, lines)]))
        return "source"
    connection.execute(f"ATTACH {literal(str(copy))} AS provider")
    connection.execute(f"CREATE TABLE provider.rows ({', '.join(f'{quoted(name)} VARCHAR' for name in names)})")
    for table in files.read(names, lines):
        connection.register("block", table)
        connection.execute("INSERT INTO provider.rows SELECT * FROM block")
        connection.unregister("block")
    return "provider.rows"


def _columns(connection: duckdb.DuckDBPyConnection, source: str) -> dict[str, str]:
    described = connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
    return {name: kind for name, kind, *_ in described}


def _require_columns(wanted: Iterable[str], known: Iterable[str], hint: str = "") -> None:
    for name in wanted:
        if name not in known:
            raise PolicyError(
                hint or f"The source has no column {name!r}{closest(name, known)}; it has {', '.join(known)}."
            )


def _require_share(policy: Policy, lines: Lines) -> None:
    dialect = source_dialect(policy)
    if dialect is not None and lines.beyond(dialect.max_unreadable):
        raise PolicyError(
            f"More lines of the source of {policy.dataset!r} cannot be read than its policy allows; `pinq "
            f"check` says how many, and why."
        )


def _require_likely(
    connection: duckdb.DuckDBPyConnection, source: str, types: dict[str, str], dialect: Dialect, lines: Lines
) -> None:
    """For ``pinq init``: nothing is proposed of a file that was declared wrongly."""
    if lines.beyond(dialect.max_unreadable):
        raise PolicyError(
            f"{lines}. Correct them, or say how the file is written, or allow more with --max-unreadable."
        )
    if hint := other_spelling(connection, source, [quoted(name) for name in types], dialect):
        raise PolicyError(hint)


def _encoders(connection: duckdb.DuckDBPyConnection, policy: Policy, types: dict[str, str]) -> tuple[list[str], str]:
    """An expression ``... AS c<i>`` for each column (NULL: cannot be encoded), and the condition under which a row is kept."""
    select = []
    for number, (name, column) in enumerate(policy.columns.items()):
        code = (
            f"coalesce({_code(connection, number, name, column, types[name])}, {_missing(name, column, types[name])})"
        )
        select.append(f"({code})::{unsigned(column.codes)} AS c{number}")
    return select, " AND ".join(f"c{i} IS NOT NULL" for i in range(len(policy.columns)))


def _code(
    connection: duckdb.DuckDBPyConnection, number: int, name: str, column: Categorical | Numeric, kind: str
) -> str:
    if isinstance(column, Numeric):
        value = _double(name, kind)
        cell = f"floor(({value} - ({float(column.lower)!r})::DOUBLE) / ({float(column.width)!r})::DOUBLE + {column.tolerance!r})"
        # least() and greatest() pass over NULL, so a missing number must be kept from them.
        return f"CASE WHEN {value} IS NOT NULL THEN least(greatest({cell}, 0), {column.cells - 1}) END"
    # An enum of the declared values, made from a table and not from text, finds any value's place
    # and fits any name.
    connection.register(
        f"values_{number}",
        pa.table(
            {"value": pa.array(list(column.texts), pa.string()), "place": pa.array(range(column.cells), pa.int32())}
        ),
    )
    connection.execute(f"CREATE TYPE domain_{number} AS ENUM (SELECT value FROM values_{number} ORDER BY place)")
    connection.unregister(f"values_{number}")
    return f"enum_code(TRY_CAST({_text(name, kind)} AS domain_{number}))"


def _double(name: str, kind: str) -> str:
    value = f"number_of({quoted(name)})"
    return f"(CASE WHEN isnan({value}) THEN NULL ELSE {value} END)"


def _text(name: str, kind: str) -> str:
    if kind in ("DOUBLE", "FLOAT"):
        # Whole-number codes come as doubles where a frame had missing values: 1.0 is the category
        # 1.
        value = quoted(name)
        whole = f"{value} = trunc({value}) AND abs({value}) < 1e15"
        return (
            f"(CASE WHEN isnan({value}) THEN NULL WHEN {whole} THEN {value}::BIGINT::VARCHAR ELSE {value}::VARCHAR END)"
        )
    return f"CAST({quoted(name)} AS VARCHAR)"


def _missing(name: str, column: Categorical | Numeric, kind: str) -> str:
    """The code of a missing value where the column has one; an undeclared category is not missing but undeclared."""
    if not column.nullable:
        return "NULL"
    value = _double(name, kind) if isinstance(column, Numeric) else _text(name, kind)
    return f"CASE WHEN {value} IS NULL THEN {column.null_code} END"


def _unit_key(policy: Policy, types: dict[str, str]) -> str:
    return (
        ""
        if isinstance(policy.privacy_unit, str)
        else f", CAST({quoted(policy.privacy_unit.column)} AS VARCHAR) AS unit"
    )


def _unit_rule(policy: Policy, names: str, salt: bytes) -> str:
    """Keeps the ``max_rows`` rows of each unit that have the smallest keyed hashes; equal rows are interchangeable."""
    if isinstance(policy.privacy_unit, str):
        return ""
    text = " || ',' || ".join(names.split(", "))
    return f" AND unit IS NOT NULL QUALIFY row_number() OVER (PARTITION BY unit ORDER BY md5({literal(salt.hex())} || {text}), {names}) <= {policy.privacy_unit.max_rows}"


def _report(
    connection: duckdb.DuckDBPyConnection,
    policy: Policy,
    types: dict[str, str],
    source: str,
    inner: str,
    where: str,
    lines: Lines,
) -> EncodingReport:
    parts = ["count(*)", f"count(*) FILTER ({where})"]
    parts += [f"count(*) FILTER (c{i} IS NULL)" for i in range(len(policy.columns))]
    rows, encodable, *left_out = connection.execute(f"SELECT {', '.join(parts)} FROM ({inner})").fetchone()  # type: ignore[misc]
    numeric = {name: column for name, column in policy.columns.items() if isinstance(column, Numeric)}
    clamped: list[int] = []
    if numeric:
        outside = [
            f"count(*) FILTER ({_double(n, types[n])} < {float(c.lower)!r} OR {_double(n, types[n])} > "
            f"{float(c.upper)!r})"
            for n, c in numeric.items()
        ]
        clamped = list(connection.execute(f"SELECT {', '.join(outside)} FROM {source}").fetchone())  # type: ignore[arg-type]
    encoded = connection.execute("SELECT count(*) FROM codes").fetchone()[0]  # type: ignore[index]
    by_column, outside_of = dict(zip(policy.columns, left_out, strict=True)), dict(zip(numeric, clamped, strict=True))
    return EncodingReport(rows + lines.lost, encoded, encodable - encoded, by_column, outside_of, lines)


def _forget_source(connection: duckdb.DuckDBPyConnection, scratch: tempfile.TemporaryDirectory[str]) -> None:
    """Once encoded, nothing behind the engine's connection can reach raw values, files or the network."""
    for name, *_ in connection.execute(
        "SELECT database_name FROM duckdb_databases() WHERE database_name = 'provider'"
    ).fetchall():
        connection.execute(f"DETACH {name}")
    for copy in Path(scratch.name).glob("rows.duckdb*"):
        copy.unlink()
    connection.execute("DROP VIEW IF EXISTS source")
    connection.execute("SET enable_external_access = false")

# SPDX-License-Identifier: Apache-2.0
"""From the provider's table to small unsigned integers, once, at open.

Privacy:
    Each row is encoded by itself (clamp, grid cell, place in the declared list) or left out: a
    row-wise map, stability 1. With a privacy unit of at most k rows, each unit keeps the k of its
    rows whose keyed hashes are smallest. That looks at the unit's own rows only, so a unit's coming
    or going changes at most k encoded rows (privacy.md 1.1). NaN counts as missing, infinities
    clamp, a failed cast is missing: by fixed rules, before any query (privacy.md 1.7h).
"""

from __future__ import annotations

import csv
import gzip
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from pinq.engine.duckdb import DuckDBEngine
from pinq.engine.sql import unsigned
from pinq.errors import PolicyError
from pinq.public.policy import DatabaseTable, Policy
from pinq.public.schema import Categorical, Numeric, closest

__all__ = ["EncodingReport", "open_engine", "read_columns"]

# Sources that are larger on disk than this are encoded into a file, so that memory bounds nothing
# but speed.
IN_MEMORY_BYTES = 2**28
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_SAFE = {"preserve_insertion_order": "false"}


@dataclass(frozen=True)
class EncodingReport:
    """What encoding did, exactly: for the provider's eyes only.

    Attributes:
        source_rows: Rows in the source.
        encoded_rows: Rows that queries see.
        over_unit: Rows beyond their unit's contribution bound, or whose unit is missing.
        left_out: For each column, rows whose value could not be encoded (a row can count for
            several columns).
        clamped: For each numeric column, rows outside [lower, upper].
    """

    source_rows: int
    encoded_rows: int
    over_unit: int
    left_out: dict[str, int]
    clamped: dict[str, int]


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
        PolicyError: The source cannot be read, or lacks a declared column.
    """
    large = data is None and _bytes_on_disk(policy) > IN_MEMORY_BYTES
    # Raw rows may spill while they are encoded: into a folder that only the provider can read, and
    # that goes with the engine.
    scratch = tempfile.TemporaryDirectory(prefix="pinq-", ignore_cleanup_errors=True)
    connection = duckdb.connect(
        str(Path(scratch.name) / "codes.duckdb") if large else ":memory:", config=_config(policy, scratch)
    )
    try:
        source = _attach(connection, policy, data)
        types = _columns(connection, source)
        _require_columns(policy, types)
        select, where = _encoders(connection, policy, types)
        inner = f"SELECT {', '.join(select)}{_unit_key(policy, types)} FROM {source}"
        names = ", ".join(f"c{i}" for i in range(len(policy.columns)))
        kept = f"SELECT {names} FROM ({inner}) WHERE {where}{_unit_rule(policy, names, salt)}"
        connection.execute(f"CREATE TABLE codes AS {kept}")
        found = _report(connection, policy, types, source, inner, where) if report else None
        _forget_source(connection)
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


def read_columns(policy: Policy, data: Any = None) -> tuple[duckdb.DuckDBPyConnection, str, dict[str, str]]:
    """A connection to the raw source, how SQL names it, and its columns' types: for ``pinq init`` and ``pinq check`` only."""
    connection = duckdb.connect(config=_config(policy, None))
    try:
        source = _attach(connection, policy, data)
        return connection, source, _columns(connection, source)
    except duckdb.Error as error:
        connection.close()
        raise PolicyError(f"The source of {policy.dataset!r} cannot be read: {str(error).splitlines()[0]}") from None


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as an SQL string."""
    return "'" + text.replace("'", "''") + "'"


def _config(policy: Policy, scratch: tempfile.TemporaryDirectory[str] | None) -> dict[str, Any]:
    config: dict[str, Any] = dict(_SAFE)
    if policy.memory_limit:
        config["memory_limit"] = policy.memory_limit
    config["temp_directory"] = str(Path(scratch.name) / "spill") if scratch else ""
    return config


def _bytes_on_disk(policy: Policy) -> int:
    path = policy.source_path()
    if path is None:
        return 0
    return sum(file.stat().st_size for file in policy.source_files() if file.is_file())


def _attach(connection: duckdb.DuckDBPyConnection, policy: Policy, data: Any) -> str:
    """Makes the source reachable and returns how SQL names it."""
    if data is not None:
        try:
            table = (
                data
                if isinstance(data, pa.Table)
                else pa.Table.from_pandas(data, preserve_index=False)
                if hasattr(data, "iloc")
                else data
            )
        except (pa.ArrowException, TypeError, ValueError):  # whose text may quote a value
            raise PolicyError(
                "`data` has a column of mixed types; make each column text, numbers or truth values."
            ) from None
        if not isinstance(table, pa.Table):
            raise PolicyError(f"`data` is a {type(data).__name__}; it must be an Arrow table or a pandas frame.")
        connection.register("source", table)
        return "source"
    path = policy.source_path()
    if path is None:
        raise PolicyError(f"The policy of {policy.dataset!r} names no source; pass `data=`, or set `source:`.")
    if isinstance(policy.source, DatabaseTable):
        if not path.is_file():
            raise PolicyError(f"There is no database {path}.")
        connection.execute(f"ATTACH {literal(str(path))} AS provider (READ_ONLY)")
        return f"provider.{quoted(policy.source.schema_name)}.{quoted(policy.source.table)}"
    files = policy.source_files()
    if not files or not all(file.exists() for file in files):
        raise PolicyError(f"There is no source {path}.")
    listed = "[" + ", ".join(literal(str(file)) for file in files) + "]"
    separator = _SEPARATORS.get(Path(files[0].name.lower().removesuffix(".gz")).suffix)
    return f"read_parquet({listed})" if separator is None else _csv(files, listed, separator)


def _csv(files: list[Path], listed: str, separator: str) -> str:
    """CSV by fixed rules. A reader that guesses quotes, comments or types from the rows lets one row change how all others are read."""
    headers = []
    for file in files:
        try:
            with (
                gzip.open(file, "rt", encoding="utf-8-sig", newline="")
                if file.name.lower().endswith(".gz")
                else file.open(encoding="utf-8-sig", newline="") as lines
            ):
                headers.append(next(csv.reader(lines, delimiter=separator), []))
        except (OSError, UnicodeDecodeError):
            raise PolicyError(f"The header of {file} cannot be read; it must be UTF-8 text.") from None
    if (
        any(header != headers[0] for header in headers)
        or len({name.casefold() for name in headers[0]}) != len(headers[0])
        or not all(headers[0])
    ):
        raise PolicyError(
            f"The header of {files[0]} must name each column once (also without regard to case), and all files of a source must share it."
        )
    columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in headers[0])
    rules = f"auto_detect = false, header = true, delim = {literal(separator)}, quote = '\"', escape = '\"', comment = '', new_line = '\\n'"
    return f"read_csv({listed}, {rules}, columns = {{{columns}}}, ignore_errors = true)"


def _columns(connection: duckdb.DuckDBPyConnection, source: str) -> dict[str, str]:
    described = connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
    return {name: kind for name, kind, *_ in described}


def _require_columns(policy: Policy, types: dict[str, str]) -> None:
    wanted = [*policy.columns, *([] if isinstance(policy.privacy_unit, str) else [policy.privacy_unit.column])]
    for name in wanted:
        if name not in types:
            raise PolicyError(f"The source has no column {name!r}{closest(name, types)}; it has {', '.join(types)}.")


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
    value = f"TRY_CAST({quoted(name)} AS DOUBLE)"
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
    connection: duckdb.DuckDBPyConnection, policy: Policy, types: dict[str, str], source: str, inner: str, where: str
) -> EncodingReport:
    parts = ["count(*)", f"count(*) FILTER ({where})"]
    parts += [f"count(*) FILTER (c{i} IS NULL)" for i in range(len(policy.columns))]
    rows, encodable, *left_out = connection.execute(f"SELECT {', '.join(parts)} FROM ({inner})").fetchone()  # type: ignore[misc]
    numeric = {name: column for name, column in policy.columns.items() if isinstance(column, Numeric)}
    clamped: list[int] = []
    if numeric:
        outside = [
            f"count(*) FILTER ({_double(n, types[n])} < {float(c.lower)!r} OR {_double(n, types[n])} > {float(c.upper)!r})"
            for n, c in numeric.items()
        ]
        clamped = list(connection.execute(f"SELECT {', '.join(outside)} FROM {source}").fetchone())  # type: ignore[arg-type]
    encoded = connection.execute("SELECT count(*) FROM codes").fetchone()[0]  # type: ignore[index]
    return EncodingReport(
        rows,
        encoded,
        encodable - encoded,
        dict(zip(policy.columns, left_out, strict=True)),
        dict(zip(numeric, clamped, strict=True)),
    )


def _forget_source(connection: duckdb.DuckDBPyConnection) -> None:
    """Once encoded, nothing behind the engine's connection can reach raw values, files or the network."""
    for name, *_ in connection.execute(
        "SELECT database_name FROM duckdb_databases() WHERE database_name = 'provider'"
    ).fetchall():
        connection.execute(f"DETACH {name}")
    connection.execute("DROP VIEW IF EXISTS source")
    connection.execute("SET enable_external_access = false")

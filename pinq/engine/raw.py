# SPDX-License-Identifier: Apache-2.0
"""The provider's raw table as DuckDB reads it: Parquet, text, a database's table, or a frame.

To be encoded it is read piece by piece (``pieces.py``); to be looked at by ``pinq init`` it is one
table (``read_columns``).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from pinq.engine.databases import SMALL_BYTES, SMALL_ROWS, small_database
from pinq.engine.delimited import DelimitedFiles, Lines
from pinq.engine.numbers import define_readings, other_spelling
from pinq.engine.sources import missing_path, source_dialect, source_files, source_path
from pinq.errors import PolicyError
from pinq.public.checks import closest
from pinq.public.dialect import Dialect
from pinq.public.policy import Policy

__all__ = [
    "RawTable",
    "arrow_stream",
    "attach_typed",
    "columns_of",
    "database",
    "declared_columns",
    "is_large",
    "is_table",
    "literal",
    "quoted",
    "read_columns",
    "require_columns",
    "require_readable",
    "require_share",
    "wanted_files",
]

# What is larger on disk than this is not held in memory, so that memory bounds nothing but speed.
IN_MEMORY_BYTES = 2**28
# By how much text may grow when it is unpacked.
UNPACKED = 10
Config = dict[str, str | bool | int | float | list[str]]
_SAFE = {"preserve_insertion_order": "false"}
_MIXED = "`data` has a column of mixed types; make each column text, numbers or truth values."


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
    _opened: ExitStack

    def close(self) -> None:
        """Frees the memory and deletes what was copied."""
        self._opened.close()


def read_columns(policy: Policy, data: object = None) -> RawTable:
    """All columns of the raw source: for ``pinq init`` only, whose errors may quote values.

    Args:
        policy: Names the source.
        data: In its place: an Arrow table, a pandas frame, or what has ``__arrow_c_stream__``.

    Raises:
        PolicyError: The source cannot be read, has more unreadable lines than allowed, or looks
            like another dialect.
    """
    files = source_files(policy) if data is None else []
    try:
        with ExitStack() as stack:
            connection = stack.enter_context(database(policy, data, files))
            source, types, lines = _attach(connection, policy, stack, data)
            dialect = source_dialect(policy)
            if dialect is not None:
                _require_likely(connection, source, types, dialect, lines)
            return RawTable(connection, source, types, lines, stack.pop_all())
    except duckdb.Error as error:
        raise PolicyError(f"The source of {policy.dataset!r} cannot be read: {str(error).splitlines()[0]}") from None


def require_readable(policy: Policy) -> None:
    """Raises ``PolicyError`` where ``open_engine`` would for the lines of delimited text.

    They lack a declared column, or too many of them are unreadable.
    """
    dialect = source_dialect(policy)
    if dialect is not None:
        files, columns, lines = _delimited(policy, dialect), declared_columns(policy), Lines()
        require_columns(columns, files.names, files.looks_like())
        for _ in files.read(columns, lines):
            pass
        require_share(policy, lines)


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as an SQL string."""
    return "'" + text.replace("'", "''") + "'"


def _settings(policy: Policy, scratch: str) -> Config:
    """What a connection that reads raw rows is opened with."""
    config: Config = dict(_SAFE)
    if policy.memory_limit:
        config["memory_limit"] = policy.memory_limit
    config["temp_directory"] = str(Path(scratch) / "spill")
    return config


@contextmanager
def database(policy: Policy, data: object, files: Sequence[Path]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that reads raw rows.

    What outgrows the memory that the policy allows spills into a folder that only the provider can
    read.
    """
    with ExitStack() as stack:
        if _is_small(policy, data, files):
            yield stack.enter_context(small_database())
        else:
            config = _settings(policy, stack.enter_context(_folder()))
            yield stack.enter_context(closing(duckdb.connect(config=config)))


def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="pinq-", ignore_cleanup_errors=True)


def _is_small(policy: Policy, data: object, files: Sequence[Path]) -> bool:
    """Whether a source may be read in a database that it shares: it sets nothing for all of it."""
    sets = policy.memory_limit or policy.database or any(column.formula for column in policy.columns.values())
    if data is not None or sets:
        return not sets and is_table(data) and len(data) <= SMALL_ROWS  # type: ignore[arg-type]  # a table has rows
    if policy.served_by is not None or _bytes(files) > SMALL_BYTES:
        return False
    return source_dialect(policy) is not None or _packed_rows(files) <= SMALL_ROWS


def _packed_rows(files: Sequence[Path]) -> int:
    """How many rows Parquet files say they have: a few thousand bytes may hold millions.

    0 where one cannot be read: whoever reads it says why.
    """
    listed = ", ".join(literal(str(file)) for file in files)
    try:
        with small_database() as connection:
            query = f"SELECT sum(num_rows)::BIGINT FROM parquet_file_metadata([{listed}])"
            ((rows,),) = connection.execute(query).fetchall()
    except duckdb.Error:
        return 0
    return int(rows)


def is_large(files: Iterable[Path]) -> bool:
    """Whether a source's files are too large for memory."""
    return _bytes(files) > IN_MEMORY_BYTES


def _bytes(files: Iterable[Path]) -> int:
    """How many bytes files have, unpacked."""
    sizes = [(file.stat().st_size, file.name.lower().endswith(".gz")) for file in files if file.is_file()]
    return sum(size * (UNPACKED if packed else 1) for size, packed in sizes)


def declared_columns(policy: Policy) -> list[str]:
    """The columns that the source must have."""
    read = [source for name, column in policy.columns.items() for source in column.sources or (name,)]
    return [*dict.fromkeys(read), *([] if policy.bounded_unit is None else [policy.bounded_unit.column])]


def _attach(
    connection: duckdb.DuckDBPyConnection,
    policy: Policy,
    stack: ExitStack,
    data: object = None,
) -> tuple[str, dict[str, str], Lines]:
    """Makes the whole source reachable, with all its columns.

    Args:
        connection: Has nothing attached yet.
        policy: Whose source.
        stack: Deletes a copy of large delimited text in the end.
        data: In the source's place.

    Returns:
        How SQL names the source, its columns' types, and how the lines of delimited text were read.
    """
    dialect, lines = source_dialect(policy), Lines()
    define_readings(connection, dialect)
    if dialect is None:
        source = attach_typed(connection, policy, data)
    else:
        copy = Path(stack.enter_context(_folder())) / "rows.duckdb" if is_large(source_files(policy)) else None
        source = _attach_lines(connection, _delimited(policy, dialect), lines, copy)
    return source, columns_of(connection, source), lines


def attach_typed(connection: duckdb.DuckDBPyConnection, policy: Policy, data: object) -> str:
    """A frame, a table of a database or Parquet files, as SQL names them."""
    if data is not None:
        table = _arrow_table(data)
        connection.register("source", table)
        return "source"
    if policy.served_by is not None:
        raise PolicyError(
            "A table of Spark or of a database server is not looked at by `pinq init`. Propose a policy from a sample "
            "of it (`pinq init sample.parquet`), then name the table in its `source:`."
        )
    path = source_path(policy)
    if path is None:
        raise PolicyError(f"The policy of {policy.dataset!r} names no source: set `source:`, or pass rows from Python.")
    if policy.database is not None:
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
        return f"provider.{quoted(policy.database.schema_name)}.{quoted(policy.database.table)}"
    files = wanted_files(policy, source_files(policy))
    return "read_parquet([" + ", ".join(literal(str(file)) for file in files) + "])"


def wanted_files(policy: Policy, files: Sequence[Path]) -> Sequence[Path]:
    """The files of the source; ``PolicyError`` where one that the policy names is not there."""
    if (missing := missing_path(policy)) is not None:
        raise PolicyError(f"There is no source {missing}.")
    return files


def _arrow_table(data: object) -> pa.Table:
    """A table or frame that the caller passed in place of a source, as Arrow has it."""
    if not is_table(data):
        return arrow_stream(data).read_all()
    try:
        return data if isinstance(data, pa.Table) else pa.Table.from_pandas(data, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError):  # whose text may quote a value
        raise PolicyError(_MIXED) from None


def is_table(data: object) -> bool:
    """Whether what the caller passed is in memory as a whole, and may be read in any order."""
    return isinstance(data, pa.Table) or hasattr(data, "iloc")


def arrow_stream(data: object) -> pa.RecordBatchReader:
    """What else the caller passed, as batches that are read once."""
    if not hasattr(data, "__arrow_c_stream__"):
        home = "" if type(data).__module__ == "builtins" else f"{type(data).__module__.partition('.')[0]}."
        lazy = "; collect() it first" if hasattr(data, "collect") else ""
        known = "a table of Arrow, pandas, polars, DuckDB or Spark, or another that has `__arrow_c_stream__`"
        raise PolicyError(f"`data` is a {home}{type(data).__name__}{lazy}; it must be {known}.")
    try:
        return pa.RecordBatchReader.from_stream(data)
    except (pa.ArrowException, OSError, TypeError, ValueError):
        raise PolicyError(_MIXED) from None


def _delimited(policy: Policy, dialect: Dialect) -> DelimitedFiles:
    return DelimitedFiles(wanted_files(policy, source_files(policy)), dialect)


def _attach_lines(
    connection: duckdb.DuckDBPyConnection,
    files: DelimitedFiles,
    lines: Lines,
    copy: Path | None,
) -> str:
    """Makes the readable lines' fields reachable, as text.

    They are in memory or, where they are many, in a database ``copy``.
    """
    if hint := files.looks_like():
        raise PolicyError(hint)
    names = list(files.names)
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


def columns_of(connection: duckdb.DuckDBPyConnection, source: str) -> dict[str, str]:
    """The types of a source's columns, as SQL names both."""
    described = connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
    return {name: kind for name, kind, *_ in described}


def require_columns(wanted: Iterable[str], known: Iterable[str], hint: str = "") -> None:
    """``PolicyError`` where a source lacks a column."""
    for name in wanted:
        if name not in known:
            raise PolicyError(
                hint or f"The source has no column {name!r}{closest(name, known)}; it has {', '.join(known)}."
            )


def require_share(policy: Policy, lines: Lines) -> None:
    """``PolicyError`` where more lines could not be read than the policy allows."""
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

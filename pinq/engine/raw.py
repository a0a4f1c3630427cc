# SPDX-License-Identifier: Apache-2.0
"""The provider's raw table as DuckDB reads it: Parquet, text, a database's table, or a frame.

To be encoded it is read piece by piece (``opened``), so that no raw row is ever written to disk; to
be looked at by ``pinq init`` it is one table (``read_columns``).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from pinq.engine.codes import BLOCK_ROWS
from pinq.engine.delimited import DelimitedFiles, Lines
from pinq.engine.numbers import define_number_of, other_spelling
from pinq.engine.sources import source_dialect, source_files, source_path
from pinq.errors import PolicyError
from pinq.public.dialect import Dialect
from pinq.public.policy import DatabaseTable, Policy, SparkTable
from pinq.public.spelling import closest

__all__ = [
    "OpenSource",
    "RawTable",
    "declared_columns",
    "is_large",
    "literal",
    "opened",
    "quoted",
    "read_columns",
    "require_columns",
    "require_readable",
    "require_share",
]

# What is larger on disk than this is not held in memory, so that memory bounds nothing but speed.
IN_MEMORY_BYTES = 2**28
# By how much text may grow when it is unpacked.
UNPACKED = 10
_SAFE = {"preserve_insertion_order": "false"}
_MIXED = "`data` has a column of mixed types; make each column text, numbers or truth values."


@dataclass(frozen=True)
class OpenSource:
    """A source that is about to be encoded.

    Attributes:
        connection: Reads it.
        types: Its columns' types.
        lines: How the lines of delimited text are read; counts while ``pieces`` are.
    """

    connection: duckdb.DuckDBPyConnection
    types: dict[str, str]
    lines: Lines
    _table: str | None
    _blocks: Iterator[pa.Table]

    def pieces(self) -> Iterator[str]:
        """Yields what SQL calls each piece: the whole table, or a block of a stream or of lines."""
        if self._table is not None:
            yield self._table
        for table in self._blocks:
            self.connection.register("source", table)
            yield "source"
            self.connection.unregister("source")


@contextmanager
def opened(policy: Policy, data: Any = None) -> Iterator[OpenSource]:
    """Opens the source of a policy, or ``data`` in its place.

    Raises:
        PolicyError: It cannot be read, or lacks a declared column.
    """
    # What outgrows the memory that the policy allows spills into a folder that only the provider
    # can read.
    with tempfile.TemporaryDirectory(prefix="pinq-", ignore_cleanup_errors=True) as scratch:
        connection = duckdb.connect(config=_config(policy, scratch))
        try:
            yield _open(connection, policy, data)
        finally:
            connection.close()


def _open(connection: duckdb.DuckDBPyConnection, policy: Policy, data: Any) -> OpenSource:
    dialect, lines, columns = source_dialect(policy) if data is None else None, Lines(), declared_columns(policy)
    define_number_of(connection, dialect)
    if data is not None and not _is_table(data):
        stream = _arrow_stream(data)
        connection.register("source", stream.schema.empty_table())
        types = _columns(connection, "source")
        require_columns(columns, types)
        return OpenSource(connection, types, lines, None, _blocks_of(stream, policy))
    if dialect is None:
        table = _attach_typed(connection, policy, data)
        types = _columns(connection, table)
        require_columns(columns, types)
        return OpenSource(connection, types, lines, table, iter(()))
    files, names = _delimited(policy, dialect), list(dict.fromkeys(columns))
    require_columns(columns, files.names, files.looks_like())
    return OpenSource(connection, dict.fromkeys(names, "VARCHAR"), lines, None, files.read(names, lines))


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


def read_columns(policy: Policy) -> RawTable:
    """All columns of the raw source: for ``pinq init`` only, whose errors may quote values.

    Raises:
        PolicyError: The source cannot be read, has more unreadable lines than allowed, or looks
            like another dialect.
    """
    scratch = tempfile.TemporaryDirectory(prefix="pinq-", ignore_cleanup_errors=True)
    connection = duckdb.connect(config=_config(policy, scratch.name))
    try:
        source, types, lines = _attach(connection, policy, scratch)
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


def _config(policy: Policy, scratch: str) -> dict[str, Any]:
    config: dict[str, Any] = dict(_SAFE)
    if policy.memory_limit:
        config["memory_limit"] = policy.memory_limit
    config["temp_directory"] = str(Path(scratch) / "spill")
    return config


def is_large(policy: Policy) -> bool:
    """Whether a policy's source is too large for memory."""
    sizes = [
        (file.stat().st_size, file.name.lower().endswith(".gz")) for file in source_files(policy) if file.is_file()
    ]
    return sum(size * (UNPACKED if packed else 1) for size, packed in sizes) > IN_MEMORY_BYTES


def declared_columns(policy: Policy) -> list[str]:
    """The columns that the source must have."""
    return [*policy.columns, *([] if isinstance(policy.privacy_unit, str) else [policy.privacy_unit.column])]


def _attach(
    connection: duckdb.DuckDBPyConnection, policy: Policy, scratch: tempfile.TemporaryDirectory[str]
) -> tuple[str, dict[str, str], Lines]:
    """Makes the whole source reachable, with all its columns.

    Args:
        connection: Has nothing attached yet.
        policy: Whose source.
        scratch: Where a copy of large delimited text may be.

    Returns:
        How SQL names the source, its columns' types, and how the lines of delimited text were read.
    """
    dialect, lines = source_dialect(policy), Lines()
    define_number_of(connection, dialect)
    if dialect is None:
        source = _attach_typed(connection, policy, None)
    else:
        copy = Path(scratch.name) / "rows.duckdb" if is_large(policy) else None
        source = _attach_lines(connection, _delimited(policy, dialect), lines, copy)
    return source, _columns(connection, source), lines


def _attach_typed(connection: duckdb.DuckDBPyConnection, policy: Policy, data: Any) -> str:
    """A frame, a table of a database or Parquet files, as SQL names them."""
    if data is not None:
        table = _arrow_table(data)
        connection.register("source", table)
        return "source"
    if isinstance(policy.source, SparkTable):
        raise PolicyError(
            "A table of Spark is not looked at by `pinq init`. Propose a policy from a sample of it (`pinq init "
            "sample.parquet`), then name the table in its `source:`."
        )
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


def _is_table(data: Any) -> bool:
    """Whether what the caller passed is in memory as a whole, and may be read in any order."""
    return isinstance(data, pa.Table) or hasattr(data, "iloc")


def _arrow_table(data: Any) -> pa.Table:
    """A table or frame that the caller passed in place of a source, as Arrow has it."""
    try:
        return data if isinstance(data, pa.Table) else pa.Table.from_pandas(data, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError):  # whose text may quote a value
        raise PolicyError(_MIXED) from None


def _arrow_stream(data: Any) -> pa.RecordBatchReader:
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


def _blocks_of(stream: pa.RecordBatchReader, policy: Policy) -> Iterator[pa.Table]:
    """Yields a stream's rows, so many at a time, in one table at least.

    Raises:
        PolicyError: The stream broke off. Its own error may quote a value.
    """
    waiting: list[pa.RecordBatch] = []
    try:
        for batch in stream:
            waiting.append(batch)
            if sum(batch.num_rows for batch in waiting) >= BLOCK_ROWS:
                yield pa.Table.from_batches(waiting)
                waiting = []
    except (pa.ArrowException, OSError):
        raise PolicyError(
            f"The rows passed for {policy.dataset!r} broke off before their end. Pass them again."
        ) from None
    yield pa.Table.from_batches(waiting, stream.schema)


def _delimited(policy: Policy, dialect: Dialect) -> DelimitedFiles:
    return DelimitedFiles(_files(policy), dialect)


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


def _columns(connection: duckdb.DuckDBPyConnection, source: str) -> dict[str, str]:
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

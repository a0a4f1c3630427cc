# SPDX-License-Identifier: Apache-2.0
"""The raw source piece by piece, to be encoded: no raw row is ever written to disk.

Each file of a source is read with the types that it has by itself: what a row of it becomes does
not depend on what other files there are. So files are read together only where they declare the
same, and lie in one folder if its name says more of their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from pinq.engine.codes import BLOCK_ROWS
from pinq.engine.delimited import DelimitedFiles, Lines
from pinq.engine.numbers import define_readings
from pinq.engine.raw import (
    arrow_stream,
    attach_typed,
    columns_of,
    database,
    declared_columns,
    is_table,
    literal,
    require_columns,
    wanted_files,
)
from pinq.engine.sources import source_dialect
from pinq.engine.warehouse import streamed
from pinq.errors import PolicyError
from pinq.public.policy import Policy

__all__ = ["OpenSource", "Piece", "opened"]


@dataclass(frozen=True)
class Piece:
    """Raw rows that SQL can read.

    Attributes:
        name: What SQL calls them.
        types: Their columns' types.
    """

    name: str
    types: dict[str, str]


@dataclass(frozen=True)
class OpenSource:
    """A source that is about to be encoded.

    Attributes:
        connection: Reads it.
        lines: How the lines of delimited text are read; counts while ``pieces`` are.
    """

    connection: duckdb.DuckDBPyConnection
    lines: Lines
    _read: Callable[[Sequence[Path]], Iterator[Piece]]

    def pieces(self, files: Sequence[Path]) -> Iterator[Piece]:
        """Yields the rows of some files of the source, or those that the caller passed.

        Each piece is a table, or a block of a stream or of lines, and is gone when the next one
        comes.

        Raises:
            PolicyError: A file lacks a declared column.
        """
        return self._read(files)


@contextmanager
def opened(policy: Policy, data: object, files: Sequence[Path]) -> Iterator[OpenSource]:
    """Opens the source of a policy, or ``data`` in its place.

    Args:
        policy: Whose columns are read.
        data: What the caller passed, or None.
        files: Those of the policy's source, as they were listed.

    Raises:
        PolicyError: It cannot be read, or lacks a declared column.
    """
    with ExitStack() as stack:
        connection = stack.enter_context(database(policy, data, files))
        rows = stack.enter_context(streamed(policy)) if data is None else data
        yield _open(connection, policy, rows, files)


def _open(connection: duckdb.DuckDBPyConnection, policy: Policy, data: object, files: Sequence[Path]) -> OpenSource:
    # In this order: a stream that the caller passed, text files, several Parquet files, and
    # whatever SQL reads as one table.
    dialect, lines, columns = source_dialect(policy) if data is None else None, Lines(), declared_columns(policy)
    define_readings(connection, dialect)
    if data is not None and not is_table(data):
        return OpenSource(connection, lines, _stream(connection, policy, arrow_stream(data)))
    if dialect is not None:
        text = DelimitedFiles(wanted_files(policy, files), dialect)
        require_columns(columns, text.names, text.looks_like())
        return OpenSource(connection, lines, _text(connection, text, list(dict.fromkeys(columns)), lines))
    if data is None and policy.named_paths:
        wanted_files(policy, files)
        return OpenSource(connection, lines, lambda files: _parquet(connection, policy, files))
    table = _table(connection, policy, attach_typed(connection, policy, data))
    return OpenSource(connection, lines, lambda files: iter([table]))


def _table(connection: duckdb.DuckDBPyConnection, policy: Policy, name: str) -> Piece:
    types = columns_of(connection, name)
    require_columns(declared_columns(policy), types)
    return Piece(name, types)


def _parquet(connection: duckdb.DuckDBPyConnection, policy: Policy, files: Sequence[Path]) -> Iterator[Piece]:
    for alike in _alike(connection, files):
        listed = ", ".join(literal(str(file)) for file in alike)
        yield _table(connection, policy, f"read_parquet([{listed}])")


def _alike(connection: duckdb.DuckDBPyConnection, files: Sequence[Path]) -> Iterable[list[Path]]:
    """Gathers Parquet files that declare the same columns in the same order.

    A folder like ``year=2024`` gives its files a column: those of such folders stay apart.
    """
    if len(files) < 2:
        return [list(files)]
    listed = ", ".join(literal(str(file)) for file in files)
    query = f"SELECT COLUMNS(* EXCLUDE file_name)::VARCHAR, file_name FROM parquet_schema([{listed}])"
    # By file, its columns in order. Files a and b with (id, age) and c with (age, id) are two
    # groups, read by one statement each.
    declared: dict[str, list[tuple[str | None, ...]]] = {}
    for *declaration, file in connection.execute(query).fetchall():
        declared.setdefault(file, []).append(tuple(declaration))
    groups: dict[Hashable, list[Path]] = {}
    for file in files:
        folder = str(file.parent) if "=" in str(file.parent) else ""
        groups.setdefault((folder, *declared.get(str(file), [(str(file),)])), []).append(file)
    return groups.values()


def _text(
    connection: duckdb.DuckDBPyConnection, text: DelimitedFiles, names: Sequence[str], lines: Lines
) -> Callable[[Sequence[Path]], Iterator[Piece]]:
    def read(files: Sequence[Path]) -> Iterator[Piece]:
        return _registered(connection, _joined(text.read(names, lines, files)))

    return read


def _stream(
    connection: duckdb.DuckDBPyConnection, policy: Policy, stream: pa.RecordBatchReader
) -> Callable[[Sequence[Path]], Iterator[Piece]]:
    connection.register("source", stream.schema.empty_table())
    require_columns(declared_columns(policy), columns_of(connection, "source"))
    connection.unregister("source")
    return lambda files: _registered(connection, _blocks_of(stream, policy))


def _joined(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yields the same rows in larger tables, where these are small."""
    waiting, rows = list[pa.Table](), 0
    for table in tables:
        waiting.append(table)
        rows += table.num_rows
        if rows >= BLOCK_ROWS:
            yield pa.concat_tables(waiting)
            waiting, rows = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


def _registered(connection: duckdb.DuckDBPyConnection, tables: Iterator[pa.Table]) -> Iterator[Piece]:
    """Yields tables, all of the same types, each as SQL can read it for a while."""
    types: dict[str, str] = {}
    for table in tables:
        connection.register("source", table)
        types = types or columns_of(connection, "source")
        yield Piece("source", types)
        connection.unregister("source")


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
            f"The rows for {policy.dataset!r} broke off before their end. Pass or ask for them again."
        ) from None
    yield pa.Table.from_batches(waiting, stream.schema)

# SPDX-License-Identifier: Apache-2.0
"""A policy's source as DuckDB reads it: files, a database's table, rows of a database server, or a frame.

Delimited text and sheets of workbooks become tables of text; typed sources keep their types.

For encoding, a source is read piece by piece (``opened``), and no raw row is ever written to disk. Each file is read
with its own types, so its rows do not depend on other files. Files are read together only if they declare the same
columns; files in a folder whose name gives them a column must also lie in that folder.

Starting a database takes about 15 ms of CPU, more than encoding a small table. So small sources share one database,
which lives as long as the process. Connections make only temporary objects in it. It starts no thread, so the process
may fork; it caches no file and writes none.

For a database server the policy names the environment variable with the URI, never the URI: it
contains a password. The text of a driver's error may quote the URI or a value, so it is not repeated.
"""

from __future__ import annotations

import importlib
import os
import re
import sqlite3
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from pinq.engine.codes import in_tables
from pinq.engine.delimited import DelimitedFiles, Lines, TextFiles, Workbooks
from pinq.engine.formats import Changes, FormatDoubt, column_fault, other_dates, other_spelling, together
from pinq.engine.frames import frame_table, texts_of
from pinq.engine.numbers import define_readings
from pinq.engine.records import JsonLines, StatisticalFiles
from pinq.engine.spills import spill_folder
from pinq.errors import PolicyError
from pinq.policy.dialect import Dialect, is_json_lines, is_statistical, is_workbook
from pinq.policy.files import missing_path, source_dialect, source_files, source_path, tables_of
from pinq.policy.policy import AdbcRows, Joined, Policy
from pinq.public.checks import closest, first_of

# A larger source gets its own database, with threads and perhaps disk.
SMALL_BYTES, SMALL_ROWS = 2**22, 2**16
Config = dict[str, str | bool | int | float | list[str]]
_OFFLINE: Config = {"autoinstall_known_extensions": False}  # no download from a network
_ALONE: Config = _OFFLINE | {
    "threads": 1,
    "async_threads": 0,
    "enable_external_file_cache": False,
    "preserve_insertion_order": False,
    "temp_directory": "",
}


@cache
def _shared(process: int) -> duckdb.DuckDBPyConnection:
    """The database of a process; a forked process makes its own, because a thread may be using the parent's."""
    return duckdb.connect(config=_ALONE)


@contextmanager
def small_database() -> Iterator[duckdb.DuckDBPyConnection]:
    """Connects to the shared database of small work; callers must create temporary objects only."""
    with closing(_shared(os.getpid()).cursor()) as connection:
        try:
            yield connection
        except (duckdb.FatalException, duckdb.InternalException):  # the database may be unusable now
            # Forgotten, not closed: closing would close other connections, and the last of them closes it.
            _shared.cache_clear()
            raise


# The codes of a source that is larger on disk are kept in a file. Text of this size takes 0.7 seconds to
# read; kept codes are mapped in milliseconds and counted as quickly.
IN_MEMORY_BYTES = 2**25
# The assumed ratio of unpacked to packed bytes.
UNPACKED = 10
_SAFE: Config = _OFFLINE | {"preserve_insertion_order": "false"}
_NO_STREAM = "`data` gives no Arrow table: it has a column whose type is none of Arrow's."


@dataclass(frozen=True)
class RawTable:
    """The raw source as SQL sees it, for the provider only.

    Attributes:
        categories: The values that a column's type declares, for columns of such a type.
    """

    connection: duckdb.DuckDBPyConnection
    name: str
    types: dict[str, str]
    lines: Lines
    categories: dict[str, list[str]]


@contextmanager
def read_columns(policy: Policy, data: object = None, *, likely: bool = True) -> Iterator[RawTable]:
    """All columns of the raw source, for the provider only, because errors may quote values.

    If ``likely``, a text is refused that seems to have another dialect, or has more unreadable lines than allowed.

    Raises:
        PolicyError: The source cannot be read, or is refused by ``likely``.
    """
    files = source_files(policy) if data is None else []
    with ExitStack() as stack:
        try:
            connection = stack.enter_context(database(policy, data, files))
            dialect, lines = source_dialect(policy), Lines()
            define_readings(connection, dialect or _spelling(policy))
            source, types, categories = "source", dict[str, str](), dict[str, list[str]]()
            if dialect is not None:
                text = _texts(policy, wanted_files(policy, files), dialect)
                if hint := text.looks_like():
                    raise FormatDoubt(hint, [text.other()] if text.other() else [])
                source = _attach_lines(connection, text, lines, "lines", text.names)
            elif data is None and policy.adbc is not None:
                types = _attach_streamed(connection, policy)
            else:
                data = None if data is None else _arrow_table(data, policy, None)
                source = attach_typed(connection, policy, data)
                types, categories = _declared_types(connection, source, files, data)
            types = types or columns_of(connection, source)
            if dialect is not None and likely:
                _require_likely(connection, source, types, dialect, lines, text.encodings(lines.unreadable))
            raw = RawTable(connection, source, types, lines, categories)
        except duckdb.Error as error:
            raise PolicyError(f"The source of {policy.dataset!r} cannot be read: {said_by(error)}") from None
        yield raw


def _declared_types(
    connection: duckdb.DuckDBPyConnection, source: str, files: Sequence[Path], data: pa.Table | None
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """The types of a typed source's columns, and the categories that types declare, also without rows."""
    types, categories = columns_of(connection, source), dict[str, list[str]]()
    for name, kind in types.items():
        if kind.startswith("ENUM") and kind.endswith(")"):
            query = f"SELECT unnest(enum_range(NULL::{kind}))::VARCHAR"
            categories[name] = [text for (text,) in connection.execute(query).fetchall()]
    fields, columns = _arrow_columns(files if source.startswith("read_parquet") else (), data)
    require_distinct([field.name for field in fields])
    for field in fields:
        if "pandas." in f"{field.type}{field.metadata}":  # periods and intervals; SQL shows their storage type
            types[field.name] = str(field.type)
    for name, column in columns.items():
        values = column.unify_dictionaries().chunk(0).dictionary.to_pylist() if column.num_chunks else []
        categories[name] = [str(value) for value in values if value is not None]
    return types, categories


def _arrow_columns(files: Sequence[Path], data: pa.Table | None) -> tuple[list[pa.Field], dict[str, pa.ChunkedArray]]:
    """The Arrow fields of a table or the first Parquet file, and the values of its dictionary columns."""
    with suppress(pa.ArrowException, OSError):  # DuckDB may read a file that Arrow cannot
        file = pq.ParquetFile(files[0]) if files else None
        fields = list(file.schema_arrow if file else data.schema if data is not None else ())
        names = [field.name for field in fields if pa.types.is_dictionary(field.type)]
        if file is None or not file.num_row_groups:
            return fields, {name: data[name] for name in names if data is not None}
        return fields, {name: file.read_row_group(0, [name])[name] for name in names}
    return [], {}


def require_distinct(names: Sequence[str]) -> None:
    """Raises ``PolicyError`` if names of columns are missing, or differ only in case: SQL would rename them."""
    if names and (fault := column_fault(names)):
        raise PolicyError(f"The header of the table {fault}; rename its columns.")


def require_readable(policy: Policy) -> None:
    """Raises ``PolicyError`` if ``open_engine`` would refuse the lines of delimited text.

    A declared column is missing, or too many lines are unreadable.
    """
    dialect = source_dialect(policy)
    if dialect is not None:
        files, columns, lines = wanted_files(policy, source_files(policy)), declared_columns(policy), Lines()
        text = _texts(policy, files, dialect)
        require_columns(columns, text.known(columns), text.looks_like())
        for _ in text.read(columns, lines):
            pass
        require_share(policy, lines)


def quoted(name: str) -> str:
    """A name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def said_by(error: duckdb.Error) -> str:
    """The first line of a database's error, without the name of its class; for the provider only."""
    return re.sub(r"^[A-Z][\w ]*? Error: ", "", str(error).splitlines()[0])


def literal(text: str) -> str:
    """A text as an SQL string."""
    return "'" + text.replace("'", "''") + "'"


# Unused columns are not read. Other optimizers are not needed, and some of them compute expressions of
# a TRY outside of it.
_KEPT_OPTIMIZERS = frozenset({"unused_columns", "column_lifetime"})


def prepare_formulas(connection: duckdb.DuckDBPyConnection) -> None:
    """Keeps DuckDB from computing parts of a formula outside of its ``TRY``.

    It also makes division by zero and log(0) fail instead of giving infinity.
    """
    names = {name for (name,) in connection.execute("SELECT name FROM duckdb_optimizers()").fetchall()}
    connection.execute(f"SET disabled_optimizers = '{','.join(sorted(names - _KEPT_OPTIMIZERS))}'")
    connection.execute("SET ieee_floating_point_ops = false")


INEXACT = {"DOUBLE": 53, "FLOAT": 24}
"""The types that a library gives a column of whole numbers with a missing value.

From this power of two on, several whole numbers are one number of the type.
"""
AS_WHOLE = (
    "Give the column as whole numbers or as text; pandas keeps it exact with "
    "`pandas.read_csv(..., dtype={column: 'Int64'})`."
)
_WHOLE_OR_TEXT = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|VARCHAR")
_SEVERAL_TEXTS = re.compile(
    r"(INTERVAL|STRUCT|MAP|UNION|VARIANT|TIME WITH TIME ZONE).*|.*\]", re.DOTALL
)  # of equal values


def unit_kind(column: str, kind: str) -> str:
    """The type of a privacy unit's column; types with equal texts have one name.

    Raises:
        PolicyError: In this type, one person may have two texts, or two persons one.
    """
    if _SEVERAL_TEXTS.fullmatch(kind):
        raise PolicyError(
            f"The column {column!r} of `privacy_unit` has the type {kind}, in which equal values "
            "may have different texts, so one person would be two. Name a column of text, numbers or dates."
        )
    if kind in INEXACT:  # two persons of 17 digits would be one, or NaN would be somebody
        raise PolicyError(
            f"The column {column!r} of `privacy_unit` has the type {kind}, in which the numbers of "
            f"several people may be one. {AS_WHOLE}"
        )
    # A person must have the same text in every file. The texts of 5 and '5' agree, of 5 and 5.00 do not.
    return "whole numbers or text" if _WHOLE_OR_TEXT.fullmatch(kind) else kind


@contextmanager
def database(policy: Policy, data: object, files: Sequence[Path]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that reads raw rows.

    If work exceeds the policy's memory limit, it spills into a folder that only the provider can read.
    """
    with ExitStack() as stack:
        if _is_small(policy, data, files):
            yield stack.enter_context(small_database())
        else:
            config = _SAFE | {"temp_directory": str(stack.enter_context(spill_folder()) / "rows")}
            config |= {"memory_limit": policy.memory_limit} if policy.memory_limit else {}
            yield stack.enter_context(closing(duckdb.connect(config=config)))


def _is_small(policy: Policy, data: object, files: Sequence[Path]) -> bool:
    """Whether a source may be read in the shared database: it is small and changes no global setting."""
    sets = (
        policy.memory_limit
        or policy.database
        or policy.joined
        or any(column.formula for column in policy.columns.values())
    )
    if data is not None or sets:
        return not sets and is_table(data) and len(data) <= SMALL_ROWS  # type: ignore[arg-type]  # a table has rows
    # Not Parquet: a few thousand bytes may hold millions of rows.
    return policy.served_by is None and source_dialect(policy) is not None and _bytes(files) <= SMALL_BYTES


def _spelling(policy: Policy) -> Dialect | None:
    """The dialect of the source, or of a joined table of text."""
    return next(filter(None, map(source_dialect, tables_of(policy))), None)


def is_large(files: Sequence[Path]) -> bool:
    """Whether a source's files are too large for memory."""
    return _bytes(files) > IN_MEMORY_BYTES


def _bytes(files: Sequence[Path]) -> int:
    return sum(
        file.stat().st_size * (UNPACKED if file.name.lower().endswith(".gz") or is_workbook(file.name) else 1)
        for file in files
        if file.is_file()
    )


def declared_columns(policy: Policy) -> list[str]:
    """The columns that the source must have."""
    sources = [source for name, column in policy.columns.items() for source in column.sources or (name,)]
    return [*dict.fromkeys(sources), *([] if policy.bounded_unit is None else [policy.bounded_unit.column])]


def _attach_streamed(connection: duckdb.DuckDBPyConnection, policy: Policy) -> dict[str, str]:
    with streamed(policy, all_columns=True) as rows:
        assert rows is not None
        # PostgreSQL's exact numbers are sent as texts, with the type in the field's metadata.
        exact = [field.name for field in rows.schema if "type_name=numeric" in str(field.type)]
        connection.register("stream", rows)
        connection.execute("CREATE TEMP TABLE source AS FROM stream")
        connection.unregister("stream")
    return columns_of(connection, "source") | dict.fromkeys(exact, "DECIMAL")


def attach_typed(
    connection: duckdb.DuckDBPyConnection,
    policy: Policy,
    data: object,
    column_names: Sequence[str] | None = None,
    lines: str = "lines",
) -> str:
    """The SQL name of a frame, a table of a database, Parquet files or joined tables.

    Rows are copied to a table ``lines``.
    """
    if data is not None:
        connection.register("source", _arrow_table(data, policy, column_names))
        return "source"
    if policy.served_by is not None:
        raise PolicyError(
            "A table of Spark is not looked at by `pinq init`. Propose a policy from a sample "
            "of it (`pinq init sample.parquet`), then name the table in its `source:`."
        )
    if policy.joined is not None:
        return _attach_joined(connection, policy, policy.joined)
    path = source_path(policy)
    if path is None:
        raise PolicyError(f"The policy of {policy.dataset!r} names no source: set `source:`, or pass rows from Python.")
    if policy.database is not None:
        if not path.is_file():
            raise PolicyError(f"There is no database {path}.")
        if is_sqlite(path):
            return _attach_sqlite(connection, path, policy.database.table, column_names, lines)
        base = quoted(str(path))
        try:
            connection.execute(f"ATTACH IF NOT EXISTS {literal(str(path))} AS {base} (READ_ONLY)")
        except duckdb.IOException as error:
            if "lock" not in str(error):
                raise
            raise PolicyError(
                f"The database {path} is open for writing in another program. Close it there, or give `pinq` a copy."
            ) from None
        schema = f"lower({literal(policy.database.schema_name)})"
        among = f"table_catalog = {literal(str(path))} AND lower(table_schema) = {schema}"
        query = f"SELECT table_name FROM information_schema.tables WHERE {among} ORDER BY 1"
        _require_table(path, policy.database.table, [name for (name,) in connection.execute(query).fetchall()])
        return f"{base}.{quoted(policy.database.schema_name)}.{quoted(policy.database.table)}"
    return f"read_parquet({_listed(wanted_files(policy, source_files(policy)))})"


def _require_table(path: Path, table: str, names: Sequence[str]) -> None:
    """Raises ``PolicyError`` if a database has no table of this name in any case."""
    if table.casefold() not in map(str.casefold, names):
        tables = f"it has {first_of(names, 12)}" if names else "it has none there"
        raise PolicyError(f"The database {path} has no table {table!r}{closest(table, names)}; {tables}.")


def is_sqlite(path: Path) -> bool:
    """Whether a file is an SQLite database. Its columns have no fixed types, so values are read as text."""
    with suppress(OSError), path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\0"
    return False


def _attach_sqlite(
    connection: duckdb.DuckDBPyConnection, path: Path, table: str, column_names: Sequence[str] | None, lines: str
) -> str:
    """Copies a table of SQLite as texts into a temporary table, which may spill to disk."""
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as base:
            base.text_factory = lambda text: text.decode(errors="replace")
            existing = [name for name, *_ in base.execute("SELECT name FROM pragma_table_info(?)", (table,))]
            tables = base.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY 1")
            _require_table(path, table, [name for (name,) in tables if existing or not name.startswith("sqlite_")])
            require_columns(column_names or (), existing)
            names = list(map(quoted, column_names or existing))
            connection.execute(f"CREATE TEMP TABLE {lines} ({', '.join(f'{name} VARCHAR' for name in names)})")
            rows = base.execute(f"SELECT {', '.join(names)} FROM {quoted(table)}")
            while piece := rows.fetchmany(SMALL_ROWS):
                texts = [texts_of(column) for column in zip(*piece, strict=True)]
                connection.register("rows", pa.table(texts, names=[str(number) for number in range(len(texts))]))
                connection.execute(f"INSERT INTO {lines} SELECT * FROM rows")
                connection.unregister("rows")
    except sqlite3.Error:
        raise PolicyError(f"The database {path} cannot be read: it is damaged, or open in another program.") from None
    return lines


# Expressions whose values are equal only if their texts are: a collation may equate texts, and 0.0 equals -0.0.
_APART = {"VARCHAR": "decode(encode({}))", "DOUBLE": "({} + 0)", "FLOAT": "({} + 0::FLOAT)"}


def _attach_joined(connection: duckdb.DuckDBPyConnection, policy: Policy, joined: Joined) -> str:
    """Makes a view of the provider's SELECT, over views of its tables, in which persons are texts."""
    kinds, dialects = dict[str, str](), [source_dialect(table) for table in joined.tables.values()]
    if len({(d.decimal, d.thousands, d.dates, d.century) for d in dialects if d is not None}) > 1:
        raise PolicyError(f"The SELECT of {policy.name!r} joins texts that write numbers or dates differently (`csv`).")
    for (name, table), dialect in zip(joined.tables.items(), dialects, strict=True):
        columns, unit, lines = joined.columns[name], declared_columns(table)[-1], Lines()
        if dialect is not None:
            text = _texts(table, wanted_files(table, source_files(table)), dialect)
            require_columns(columns, text.known(columns), text.looks_like())
            source = _attach_lines(connection, text, lines, f"{name}_lines", columns)
            require_share(table, lines)
        elif table.named_paths and len(list(_alike(connection, wanted_files(table, source_files(table))))) > 1:
            raise PolicyError(f"The files of {table.name!r} declare different columns; alike ones can be joined.")
        else:
            source = attach_typed(connection, table, None, columns, f"{name}_lines")
        types = columns_of(connection, source)
        require_columns(columns, types)
        kinds.setdefault(unit_kind(unit, types[unit]), table.table)
        fields = {column: _APART.get(types[column], "{}").format(quoted(column)) for column in columns}
        fields[unit] = _APART["VARCHAR"].format(f"CAST({quoted(unit)} AS VARCHAR)")
        selected = ", ".join(f"{value} AS {quoted(column)}" for column, value in fields.items())
        connection.execute(f"CREATE TEMP VIEW {name} AS SELECT {selected} FROM {source}")
    if len(kinds) > 1:
        (kind, name), (kind_2, name_2), *_ = kinds.items()
        raise PolicyError(
            f"The SELECT of {policy.name!r} joins persons who are {kind} in {name}, and {kind_2} in {name_2}: one "
            "person would be known by two texts. Give both columns one type."
        )
    prepare_formulas(connection)
    connection.execute(f"CREATE TEMP VIEW joined AS {joined.query}")
    return "joined"


def wanted_files(policy: Policy, files: Sequence[Path]) -> Sequence[Path]:
    """The files of the source; ``PolicyError`` if a named file does not exist."""
    if (missing := missing_path(policy)) is not None:
        meant = closest(missing.name, (file.name for file in missing.parent.glob("*")))
        raise PolicyError(f"There is no {'table in the folder' if missing.is_dir() else 'source'} {missing}{meant}.")
    return files


def _arrow_table(data: Any, policy: Policy, column_names: Sequence[str] | None) -> pa.Table:
    """A table or frame that the caller passed in place of a source, as an Arrow table."""
    if not is_table(data):
        table = arrow_stream(data).read_all()
    elif isinstance(data, pa.Table):
        table = data
    else:
        require_columns(column_names or (), list(map(str, data.columns)))
        table = frame_table(data, policy, column_names)
    require_distinct(table.column_names)
    return table


def is_table(data: object) -> bool:
    """Whether the caller's data is a table in memory, which may be read in any order."""
    return isinstance(data, pa.Table) or (hasattr(data, "iloc") and hasattr(data, "columns"))


def arrow_stream(data: object) -> pa.RecordBatchReader:
    """The caller's stream of batches, which is read once."""
    if not hasattr(data, "__arrow_c_stream__"):
        home = "" if type(data).__module__ == "builtins" else f"{type(data).__module__.partition('.')[0]}."
        lazy = "; collect() it first" if hasattr(data, "collect") else ""
        accepted = "a table of Arrow, pandas, polars, DuckDB or Spark, or another that has `__arrow_c_stream__`"
        raise PolicyError(f"`data` is a {home}{type(data).__name__}{lazy}; it must be {accepted}.")
    try:
        return pa.RecordBatchReader.from_stream(data)
    except (pa.ArrowException, OSError, TypeError, ValueError):
        raise PolicyError(_NO_STREAM) from None


_READERS: tuple[tuple[Callable[[str], bool], type[TextFiles]], ...] = (
    (is_workbook, Workbooks),
    (is_json_lines, JsonLines),
    (is_statistical, StatisticalFiles),
    (lambda _: True, DelimitedFiles),
)


def _texts(policy: Policy, files: Sequence[Path], dialect: Dialect) -> TextFiles:
    """The reader of some files as text. Raises ``PolicyError`` if they are of two kinds."""
    kinds = {next(reader for is_kind, reader in _READERS if is_kind(file.name)) for file in files}
    if len(kinds) > 1:
        raise PolicyError(f"The files of {policy.dataset!r} are of several kinds; name files of one kind.")
    return kinds.pop()(files, dialect)


def _attach_lines(
    connection: duckdb.DuckDBPyConnection, files: TextFiles, lines: Lines, name: str, columns: Sequence[str]
) -> str:
    """Copies the readable lines' fields, as text, into a temporary table, which may spill to disk."""
    connection.execute(f"CREATE TEMP TABLE {name} ({', '.join(f'{quoted(column)} VARCHAR' for column in columns)})")
    for piece in _registered(connection, files.read(columns, lines)):
        connection.execute(f"INSERT INTO {name} SELECT * FROM {piece.name}")
    return name


def columns_of(connection: duckdb.DuckDBPyConnection, source: str) -> dict[str, str]:
    """The SQL types of a source's columns, by name."""
    return {name: kind for name, kind, *_ in connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()}


def require_columns(names: Iterable[str], existing: Iterable[str], hint: str = "") -> None:
    """Raises ``PolicyError`` if a source lacks a column."""
    for name in names:
        if name not in existing:
            raise PolicyError(
                hint or f"The source has no column {name!r}{closest(name, existing)}; it has {', '.join(existing)}."
            )


def require_share(policy: Policy, lines: Lines) -> None:
    """Raises ``PolicyError`` if more lines could not be read than the policy allows."""
    dialect = source_dialect(policy)
    if dialect is not None and lines.beyond(dialect.max_unreadable):
        raise PolicyError(
            f"More lines of the source of {policy.dataset!r} cannot be read than its policy allows; `pinq "
            f"check` says how many, and why."
        )


def _require_likely(
    connection: duckdb.DuckDBPyConnection,
    source: str,
    types: dict[str, str],
    dialect: Dialect,
    lines: Lines,
    encodings: tuple[Sequence[Changes], str],
) -> None:
    """Raises ``FormatDoubt`` if the file seems to have another form, so that ``pinq init`` proposes nothing wrong."""
    if lines.beyond(dialect.max_unreadable):
        choices, fit = encodings
        raise FormatDoubt(
            f"{lines}.{fit} Correct them, or say how the file is written, or allow more with --max-unreadable.", choices
        )
    doubts = [look(connection, source, list(map(quoted, types)), dialect) for look in (other_spelling, other_dates)]
    if any(doubts):
        raise together([doubt for doubt in doubts if doubt])


@contextmanager
def streamed(policy: Policy, *, all_columns: bool = False) -> Iterator[pa.RecordBatchReader | None]:
    """Streams the rows of the policy's database server; None for other sources.

    Only the declared columns of a table are requested, unless ``all_columns`` is set.

    Raises:
        PolicyError: The driver is not installed, the variable is not set, or the database refuses.
    """
    rows = policy.adbc
    if rows is None:
        yield None
        return
    connect = _driver(rows)
    if not (uri := os.environ.get(rows.uri_env)):
        raise PolicyError(f"The environment variable {rows.uri_env} is not set; it must hold the URI of the database.")
    names = "*" if all_columns else ", ".join(quoted(name) for name in dict.fromkeys(declared_columns(policy)))
    try:
        connection = connect(uri)
    except Exception as error:  # each driver has its own error classes
        raise _refused(policy, rows, "cannot be reached", error) from None
    with connection, connection.cursor() as cursor:
        try:
            cursor.execute(rows.query or f"SELECT {names} FROM {rows.table}")
            stream = cursor.fetch_record_batch()
        except Exception as error:
            raise _refused(policy, rows, "does not give the rows", error) from None
        yield stream


def _driver(rows: AdbcRows) -> Any:
    """The driver that connects to a database."""
    try:
        return importlib.import_module(f"{rows.driver}.dbapi").connect
    except ImportError:
        raise PolicyError(
            f"The driver {rows.driver!r} is not installed: pip install {rows.driver.replace('_', '-')}."
        ) from None


# Codes of standard SQL and PostgreSQL for mistakes in a policy; none depends on rows.
_MEANT = {
    "42P01": "there is no such table",
    "42S02": "there is no such table",
    "42703": "there is no such column",
    "42501": "the user may not read it",
    "28P01": "the password is wrong",
    "28000": "the user may not connect",
    "3D000": "there is no such database",
    "3F000": "there is no such schema",
    "53300": "it has too many connections already",
    "57P03": "it is starting or stopping",
}
# Messages of libpq before there is a code, in our words.
_SAID = {
    "Connection refused": "nothing listens there",
    "could not translate host name": "there is no such machine",
    "password authentication failed": "the password is wrong",
    "timeout expired": "it does not answer in time",
    "does not exist": "there is no such user or database",
    "connection info string": "the URI is none",
}


def _refused(policy: Policy, rows: AdbcRows, failure: str, error: Exception) -> PolicyError:
    state = getattr(error, "sqlstate", None)
    reason = next((words for text, words in _SAID.items() if text in str(error)), "")
    meant = f": {_MEANT[state]}" if state in _MEANT else ""
    code = f" (SQLSTATE {state}{meant})" if isinstance(state, str) and state.isalnum() else reason and f": {reason}"
    return PolicyError(
        f"The database of {policy.dataset!r} {failure}{code}. Try {rows.uri_env}, the rights of its user and the "
        f"{'query' if rows.query else 'table'} with another client; what the driver says may quote a password, so it "
        "is not shown."
    )


@dataclass(frozen=True)
class Piece:
    """Raw rows that SQL can read."""

    name: str
    types: dict[str, str]


class OpenSource:
    """A source that is about to be encoded.

    Raises:
        PolicyError: A file does not exist, or a header lacks a declared column.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, policy: Policy, data: object, files: Sequence[Path]
    ) -> None:
        self.connection, self.lines, self._policy, self._data = connection, Lines(), policy, data
        self._columns = list(dict.fromkeys(declared_columns(policy)))
        self._text: TextFiles | None = None
        dialect = source_dialect(policy) if data is None else None
        define_readings(connection, _spelling(policy) if data is None else None)
        if data is None and policy.named_paths:
            wanted_files(policy, files)
        if dialect is not None:
            self._text = _texts(policy, files, dialect)
            require_columns(self._columns, self._text.known(self._columns), self._text.looks_like())

    def pieces(self, files: Sequence[Path]) -> Iterator[Piece]:
        """Yields the rows of some files of the source, or of the caller's data.

        Each piece is a table, or a block of a stream or of lines. It is valid until the next piece.

        Raises:
            PolicyError: A file lacks a declared column, or a stream broke off.
        """
        if self._data is not None and not is_table(self._data):
            stream = arrow_stream(self._data)
            require_distinct(stream.schema.names)
            require_columns(self._columns, stream.schema.names)
            yield from _registered(self.connection, in_tables(self._unbroken(stream)))
        elif self._text is not None:
            tables = self._text.read(self._columns, self.lines, files)
            yield from _registered(
                self.connection, in_tables(batch for table in tables for batch in table.to_batches())
            )
        elif self._data is None and self._policy.named_paths:
            for alike in _alike(self.connection, files):
                yield self._table(f"read_parquet({_listed(alike)})")
        else:
            yield self._table(attach_typed(self.connection, self._policy, self._data, self._columns))

    def _table(self, name: str) -> Piece:
        types = columns_of(self.connection, name)
        require_columns(self._columns, types)
        return Piece(name, types)

    def _unbroken(self, stream: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """A stream's rows, without an error that may quote a value."""
        try:
            yield from stream
        except (pa.ArrowException, OSError):
            raise PolicyError(
                f"The rows for {self._policy.dataset!r} broke off before their end. Pass or ask for them again."
            ) from None


@contextmanager
def opened(policy: Policy, data: object, files: Sequence[Path]) -> Iterator[OpenSource]:
    """Opens the source of a policy, or ``data`` in its place; arguments and errors as of ``OpenSource``."""
    with ExitStack() as stack:
        connection = stack.enter_context(database(policy, data, files))
        yield OpenSource(connection, policy, stack.enter_context(streamed(policy)) if data is None else data, files)


def _listed(files: Sequence[Path]) -> str:
    return f"[{', '.join(literal(str(file)) for file in files)}]"


def _alike(connection: duckdb.DuckDBPyConnection, files: Sequence[Path]) -> Iterable[list[Path]]:
    """Gathers Parquet files that declare the same columns in the same order.

    A folder like ``year=2024`` gives its files a column, so files of such folders are not mixed.
    """
    if len(files) < 2:
        return [list(files)]
    query = f"SELECT COLUMNS(* EXCLUDE file_name)::VARCHAR, file_name FROM parquet_schema({_listed(files)})"
    # The columns of each file, in order. Files a and b with (id, age) and c with (age, id) are two
    # groups, each read by one statement.
    declared: dict[str, list[tuple[str | None, ...]]] = {}
    for *declaration, file in connection.execute(query).fetchall():
        declared.setdefault(file, []).append(tuple(declaration))
    groups: dict[Hashable, list[Path]] = {}
    for file in files:
        folder = str(file.parent) if "=" in str(file.parent) else ""
        groups.setdefault((folder, *declared.get(str(file), [(str(file),)])), []).append(file)
    return groups.values()


def _registered(connection: duckdb.DuckDBPyConnection, tables: Iterator[pa.Table]) -> Iterator[Piece]:
    """Registers tables of the same types one after the other; each is valid until the next."""
    types: dict[str, str] = {}
    for table in tables:
        connection.register("source", table)
        types = types or columns_of(connection, "source")
        yield Piece("source", types)
        connection.unregister("source")
